"""Evidence of all studies: compute it, pack it, check that it is whole, verify that it
comes out again.

    python -m fedlib evidence compute [PAPER[/STUDY] ...]   every run into runs/
    python -m fedlib evidence pack [PAPER[/STUDY] ...]      finished runs into evidence/
    python -m fedlib evidence check                         is every run there?
    python -m fedlib evidence verify --sample 20            do some come out again?

`make evidence` is compute, then pack, of the tier that params.yaml names.
"""

from __future__ import annotations

import functools
import json
import math
import random
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from ..core.errors import Diverged, refuse_if
from ..core.files import whole
from ..core.record import Record
from ..core.task import Task
from ..data.tasks import known
from . import identity, once, store, studies
from .compute import compute_all, describe_cell, map_cells, trained

STORE = Path("evidence")
VERDICTS = ("same", "rounding", "DIFFERS")
SHAKEN = 3  # draws of the noise that says what rounding may do
AUDITS = {"cpu": Path("results/audit.csv"), "cuda": Path("results/audit-gpu.csv")}


def chosen(names=(), path="params.yaml"):
    """[(paper, study)] of "paper" and "paper/study", in the order of the files; all of
    them without names. Raises ValueError.
    """
    papers = {p: v for p, v in studies.load(path).items() if p != "tier"}
    there = {f"{p}/{name}": (p, name) for p in papers for name in papers[p]["studies"]}
    for name in names:
        known(papers | there, "study", name)
    return [x for k, x in there.items() if not names or {x[0], k} & {*names}]


def folder_of(study):
    """Where the runs of (paper, study) are stored."""
    return STORE / "-".join(study)


# ---------------------------------------------------------------- compute
def compute(names=(), runs="runs", workers=None, tier=None):
    """Compute every run of the studies that runs/ lacks, at a tier (None: that of
    params.yaml); what is done stays.
    """
    identity.warn_if_edited()
    for study in chosen(names):
        todo = studies.cells(*study, tier=tier)[0]
        print(f"{'/'.join(study)}: {len(todo)} runs", flush=True)
        compute_all(todo, runs, workers)


# ---------------------------------------------------------------- pack
def pack(names=(), runs="runs", anew=False):
    """Pack studies whose runs are all finished, and with all studies what notebooks
    have measured. anew: what runs/ has goes before what is packed. Raises ValueError.
    """
    identity.warn_if_edited()
    for study in chosen(names):
        items, folder = packable(*study, runs, anew), folder_of(study)
        size = store.pack(items, folder) / 1e3
        print(f"{folder}: {len(items)} runs, {size:,.0f} kB", flush=True)
    for path in () if names else once.pack(studies.load()["tier"]):
        print(path)


def packable(paper, study, runs, anew):
    """[(id, columns, Record)] of a study, each run once, with the logs that it keeps;
    ValueError where a run is missing, or could not be made again.
    """
    todo, spec, _ = studies.cells(paper, study)
    found = store.read(folder_of((paper, study)))
    for c in todo:
        at = Path(runs, c.id)
        if (at / "done").exists() and (anew or c.id not in found):
            found[c.id] = Record.load(at)
    lacking = missing(todo, found)
    command = f"python -m fedlib evidence compute {paper}/{study}"
    refuse_if(lacking, f"{paper}/{study}: {lacking}; {command}")
    seeds, items = sorted({c.seed for c in todo}), {}
    for c in todo:
        r = found[c.id]
        refuse(c, r)
        versions = json.dumps(identity.raised(identity.units(c)))
        about = vars(c) | {"paper": paper, "study": study, "versions": versions}
        kept = with_logs(r, seeds.index(c.seed), spec.get("logs", {}))
        items[c.id] = c.id, {k: about[k] for k in store.SPEC}, kept
    return [*items.values()]


def with_logs(r, place, seeds):
    """The record without the logs per client that are stored for fewer seeds: seeds
    {name of a log: how many}; place: of its seed among the study's.
    """
    stored = lambda k, v: v.ndim == 1 or place < seeds.get(k, math.inf)
    return replace(r, logs={k: v for k, v in r.logs.items() if stored(k, v)})


def refuse(cell, r):
    """ValueError for a run that nobody could make again."""
    meta, last = r.meta, int(r.rounds[-1])
    remedy = f"delete runs/{cell.id} and compute it again"
    short = "diverged" not in meta and last != meta["rounds"]
    why = f"ends in round {last} of {meta['rounds']} and did not diverge"
    refuse_if(short, f"{describe_cell(cell)} {why}; {remedy}")
    why = f"was made by sources in no commit ({meta['commit']}); commit them"
    dirty = identity.uncommitted(meta["commit"])
    refuse_if(dirty, f"{describe_cell(cell)} {why}, {remedy}")


def missing(cells, ids):
    """How many cells are not among the ids, in words; "" where none is missing."""
    lacking = {c.id: c for c in cells if c.id not in ids}
    first = describe_cell(next(iter(lacking.values()), ""))
    n = f"{len(lacking)} of {len({c.id for c in cells})} runs are missing"
    return f"{n}, the first is {first}" if lacking else ""


# ---------------------------------------------------------------- check
def check():
    """[what is wrong] with evidence/: studies without their runs, runs that no study
    wants, damaged files. Prints how much is there.
    """
    n, wrong, idle = 0, [], {f for f in STORE.glob("*") if f.is_dir()} - {once.STORE}
    for study in chosen():
        cells, folder = studies.cells(*study)[0], folder_of(study)
        idle.discard(folder)
        try:
            stored = store.read(folder)
        except store.Damaged as e:
            wrong.append(str(e))
            continue
        n += len(stored)
        extra = len(stored.keys() - {c.id for c in cells})
        extra = f"{extra} runs are of other settings or versions" if extra else ""
        if faults := "; ".join(filter(None, (missing(cells, stored), extra))):
            wrong.append(f"{folder}: {faults}: compute and pack")
    wrong += [f"{f}: belongs to no study; delete it" for f in sorted(idle)]
    size = sum(f.stat().st_size for f in STORE.glob("*/*"))
    print(f"{STORE}: {n:,} runs, {size / 1e6:.1f} MB" + ("" if wrong else "; complete"))
    return wrong


# ---------------------------------------------------------------- verify
def verify(sample, seed=0, names=(), device="cpu", workers=1):
    """Compute `sample` stored runs again, drawn at random, and compare -> table, one
    row per run; its verdicts are those of `compare`.

    device: "cpu", where all that is stored was computed, or "cuda".
    """
    have = []
    for study in chosen(names):
        ids = {row["id"] for row in store.listed(folder_of(study), ("id",))}
        have += [(study, c) for c in studies.cells(*study)[0] if c.id in ids]
    drawn = random.Random(seed).sample(have, min(sample, len(have)))
    f = functools.partial(verified, device=device)
    return pd.DataFrame(map_cells(f, drawn, workers))


def verified(item, device):
    """The row of one run, (study, cell): which it is, and what `compare` says of it."""
    torch.set_num_threads(1)
    study, cell = item
    on = torch.cuda.get_device_name() if device == "cuda" else device
    row = {"study": "/".join(study), "data set": cell.dataset, "method": cell.method}
    row |= {"setting": cell.setting, "seed": cell.seed, "on": on}
    row |= compare(cell, store.find({cell.id}, *study, STORE)[cell.id], device)
    print(f"{row['verdict']:9} {row['study']} {describe_cell(cell)}", flush=True)
    return row


def compare(cell, old, device="cpu"):
    """The columns of a verification: a cell computed again, beside its stored record.

    verdict: "same" to the last hit; "rounding", where neither the first evaluated round
    nor, but for 0.6 points, any mean accuracy differs by more than three times the most
    that starting weights times (1 + 1e-7), drawn three times, make of the run; else
    "DIFFERS".
    """
    new = again(cell, device=device)
    share, early, points = apart(old, new)
    verdict = "same"
    if share:
        shaken = [again(cell, 1e-7, device, draw) for draw in range(SHAKEN)]
        _, its_early, its_points = np.max([apart(new, s) for s in shaken], axis=0)
        fine = early <= 3 * its_early and points <= max(0.6, 3 * its_points)
        verdict = "rounding" if fine else "DIFFERS"
    differs = {"hits that differ, %": 100 * share, "points": points}
    commits = {"commit then": old.meta["commit"], "now": new.meta["commit"]}
    return {"verdict": verdict} | differs | commits


def again(cell, noise=0.0, device="cpu", draw=0):
    """The record of a cell, computed anew, with relative noise on the starting weights;
    draw: which noise.
    """
    init = Task.init

    def shaken(self, seed):
        g = torch.Generator().manual_seed(draw)
        normal = lambda w: torch.randn(w.shape, generator=g, dtype=w.dtype)
        w = init(self, seed)
        return {k: v * (1 + noise * normal(v).to(v.device)) for k, v in w.items()}

    with patch.object(Task, "init", shaken if noise else init):
        try:
            return trained(cell, device)[2]
        except Diverged as e:
            return e.record


def apart(a, b):
    """(share of accuracies that differ, the same of the first evaluated round, largest
    difference of a mean in points).
    """
    found = [(0.0, 0.0, 0.0)]
    for k, x in a.views.items():
        y = b.views[k]
        if x.shape != y.shape:
            return 1.0, 1.0, math.inf
        differs = ~np.isclose(x, y, 0, 0, equal_nan=True)
        off = 100 * np.abs(np.nanmean(x, 1) - np.nanmean(y, 1)).max()
        found.append((differs.mean(), differs[0].mean(), off))
    return tuple(map(float, np.max(found, axis=0)))


# ---------------------------------------------------------------- command line
def command(args):
    """python -m fedlib evidence; args: those of `fedlib.cli.main.evidence`."""
    if args.what == "compute":
        compute(args.names, workers=args.workers, tier=args.tier)
    elif args.what == "pack":
        pack(args.names, anew=args.anew)
    elif args.what == "check":
        wrong = "\n".join(check())
        refuse_if(wrong, wrong)
    else:
        how = args.seed, args.names, args.device, args.workers or 1
        to = AUDITS[args.device] if args.write else None
        print_verdicts(verify(args.sample, *how), to)


def print_verdicts(found, to=None):
    """How many came out the same; ValueError where one differs. to: a file for all."""
    if to:
        text = found.to_csv(index=False, float_format="%.3g").encode()
        whole(to, lambda f: f.write(text))
    counts = found.verdict.value_counts()
    print(f"{len(found)} runs: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    why = "the code has changed without a new version (python -m goldens.numbers check"
    why += " says where), or this machine computes otherwise"
    refuse_if("DIFFERS" in counts, f"stored runs do not come out again: {why}")
