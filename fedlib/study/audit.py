"""Evidence of all studies: compute it, pack it, check that it is whole, verify that it
comes out again.

    python -m fedlib evidence compute [PAPER[/STUDY] ...]   every run into runs/
    python -m fedlib evidence pack [PAPER[/STUDY] ...]      finished runs into evidence/
    python -m fedlib evidence check                         is every run there?
    python -m fedlib evidence verify --sample 20            do some come out again?

`compute` can be killed and goes on where it was; `verify` draws its runs at random.
`make evidence` is compute, then pack. All of it is about the tier that params.yaml
names.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from ..core.errors import Diverged, nearest
from ..core.files import whole
from ..core.record import Record
from ..core.task import Task
from ..methods import METHODS
from . import identity, once, sources, store, studies
from .compute import compute_all, describe_cell, opened, trained

STORE = Path("evidence")
VERDICTS = ("same", "rounding", "DIFFERS")
CELL = [f.name for f in fields(studies.Cell) if f.name != "mine"]
SHAKEN = 3  # draws of the noise that says what rounding may do
AUDITS = {
    "cpu": Path("results/audit.csv"),
    "cuda": Path("results/audit-gpu.csv"),
}


def chosen(names=(), path="params.yaml"):
    """[(paper, study)] of "paper" and "paper/study", in the order of the files; all of
    them without names. Raises ValueError.
    """
    papers = {p: v for p, v in studies.load(path).items() if isinstance(v, dict)}
    there = [(p, name) for p, v in papers.items() for name in v["studies"]]
    known = [*dict.fromkeys(p for p, _ in there), *map("/".join, there)]
    for name in names:
        if name not in known:
            raise ValueError(
                f"no study {name!r}{nearest(name, known)} (known: {', '.join(known)})"
            )
    return [(p, s) for p, s in there if not names or p in names or f"{p}/{s}" in names]


# ---------------------------------------------------------------- compute
def compute(names=(), runs="runs", workers=None):
    """Compute every run of the studies that runs/ lacks, one study after another.

    What is done stays when it is stopped.
    """
    sources.warn_if_edited()
    for paper, study in (wanted := chosen(names)):
        todo = studies.cells(paper, study)[0]
        left = {c.id: c for c in todo if not finished(c, runs)}
        print(f"{paper}/{study}: {len(todo)} runs, {len(left)} to compute", flush=True)
        compute_all(left.values(), runs, workers)
    print(f"All runs of {len(wanted)} studies are there.")


def finished(cell, runs):
    """Whether the run of a cell is in the folder runs."""
    return Path(runs, cell.id, "done").exists()


# ---------------------------------------------------------------- pack
def pack(names=(), runs="runs", anew=False):
    """Pack studies whose runs are all finished, and with all studies what notebooks
    have measured. Raises ValueError.

    anew: what runs/ has goes before what is packed already.
    """
    sources.warn_if_edited()
    sizes = {}
    for paper, study in chosen(names):
        items = packable(paper, study, runs, anew)
        folder = STORE / f"{paper}-{study}"
        sizes[folder] = store.pack(items, folder)
        print(f"{folder}: {len(items)} runs, {sizes[folder] / 1e3:,.0f} kB", flush=True)
    for path in () if names else once.pack(studies.load()["tier"]):
        sizes[path] = path.stat().st_size
        print(f"{path}: {sizes[path] / 1e3:,.0f} kB")
    print(f"{sum(sizes.values()) / 1e6:.1f} MB packed")


def packable(paper, study, runs, anew):
    """[(id, columns, Record)] of a study, each run once, with the logs that it keeps.

    Raises ValueError where that cannot be.
    """
    todo, spec, _ = studies.cells(paper, study)
    stored = STORE / f"{paper}-{study}"
    old = store.read(stored) if store.listed(stored, ("id",)) else {}
    cells, found, seeds = {c.id: c for c in todo}, {}, sorted({c.seed for c in todo})
    for i, c in cells.items():
        if finished(c, runs) and (anew or i not in old):
            found[i] = Record.load(Path(runs, i))
        elif i in old:
            found[i] = old[i]
    if lacking := missing(cells.values(), found):
        raise ValueError(
            f"{paper}/{study}: {lacking}; compute them: python -m fedlib evidence "
            f"compute {paper}/{study}"
        )
    items = []
    for i, c in cells.items():
        refuse(c, found[i])
        about = vars(c) | {"paper": paper, "study": study, "versions": versions(c)}
        r = with_logs(found[i], seeds.index(c.seed), spec.get("logs", {}))
        items.append((i, {k: about[k] for k in store.SPEC}, r))
    return items


def with_logs(r, place, seeds):
    """The record without the logs per client that are stored for fewer seeds: seeds
    {name of a log: how many}; place: of its seed among the study's.
    """
    stored = lambda k, v: v.ndim == 1 or place < seeds.get(k, math.inf)
    return replace(r, logs={k: v for k, v in r.logs.items() if stored(k, v)})


def versions(cell):
    """The column `versions` of a cell, json."""
    return json.dumps(identity.raised(identity.units(cell)), sort_keys=True)


def refuse(cell, r):
    """Raise ValueError for a run that nobody could make again."""
    commit, why = r.meta["commit"], ""
    if commit.endswith("+") or commit == "unknown":
        why = f"was made by sources that are in no commit ({commit}): commit them"
    elif "diverged" not in r.meta and int(r.rounds[-1]) != r.meta["rounds"]:
        why = f"ends in round {r.rounds[-1]} of {r.meta['rounds']} and did not diverge"
    if why:
        remedy = f"delete runs/{cell.id} and compute it again"
        raise ValueError(f"{describe_cell(cell)} {why}; {remedy}")


# ---------------------------------------------------------------- check
def check(limit=60e6):
    """[what is wrong] with evidence/: studies without their runs, runs that no study
    wants, damaged files, more than `limit` bytes. Prints how much is there.
    """
    folders = {STORE / f"{p}-{s}": studies.cells(p, s)[0] for p, s in chosen()}
    n, wrong = 0, []
    for folder, cells in folders.items():
        try:
            stored = store.listed(folder)
            n += len(stored)
            if stored:
                store.read(folder, ())
            ids = {row["id"] for row in stored}
            faults = [*filter(None, (missing(cells, ids), extra(cells, stored)))]
            wrong += [f"{folder}: {'; '.join(faults)}"] if faults else []
        except store.Damaged as e:
            wrong.append(str(e))
    there = {f for f in STORE.glob("*") if f.is_dir()} - {once.STORE, *folders}
    wrong += [f"{f}: belongs to no study; delete it" for f in sorted(there)]
    files = (f for at in (*folders, once.STORE) for f in at.glob("*"))
    size = sum(f.stat().st_size for f in files) / 1e6
    if size > limit / 1e6:
        more = f"{size:.1f} MB, more than {limit / 1e6:.0f}"
        wrong.append(f"{STORE}: {more}; let studies keep fewer logs (key `logs`)")
    print(f"{STORE}: {n:,} runs, {size:.1f} MB" + ("" if wrong else "; complete"))
    return wrong


def missing(cells, ids):
    """How many cells are not among the ids, in words; "" where none is missing."""
    wanted = {c.id: c for c in cells}
    lacking = [c for i, c in wanted.items() if i not in ids]
    if not lacking:
        return ""
    first = describe_cell(lacking[0])
    return f"{len(lacking)} of {len(wanted)} runs are missing, the first is {first}"


def extra(cells, stored):
    """How many stored runs no cell wants, in words, and of which units versions were
    raised since; "" where there is none.
    """
    ids, moved = {c.id for c in cells}, set()
    idle = [row for row in stored if row["id"] not in ids]
    if not idle:
        return ""
    for row in (r for r in idle if r["method"] in METHODS):
        cell = studies.Cell(**{k: row[k] for k in CELL})
        old, new = json.loads(row["versions"]), json.loads(versions(cell))
        moved |= {u for u in old | new if old.get(u) != new.get(u)}
    why = f"versions of {', '.join(sorted(moved))}" if moved else "settings"
    return f"{len(idle)} runs are of other {why}: compute and pack again"


# ---------------------------------------------------------------- verify
def verify(sample, seed=0, names=(), device="cpu", workers=1):
    """Compute `sample` stored runs again, drawn at random, and compare -> table, one
    row per run; its verdicts are those of `compare`.

    device: "cpu", where all that is stored was computed, or "cuda".
    """
    have = []
    for ps in chosen(names):
        stored = {row["id"] for row in store.listed(STORE / "-".join(ps), ("id",))}
        have += [(ps, c) for c in studies.cells(*ps)[0] if c.id in stored]
    drawn = random.Random(seed).sample(have, min(sample, len(have)))
    with opened(workers=workers) as submit:
        if submit:
            running = [submit(verified, *one, device) for one in drawn]
            rows = (f.result() for f in running)
        else:
            rows = (verified(*one, device) for one in drawn)
        return pd.DataFrame(list(rows))


def verified(study, cell, device):
    """The row of one run: which it is, and what `compare` says of it."""
    torch.set_num_threads(1)
    began, name = time.time(), "/".join(study)
    old = store.find({cell.id}, *study, STORE)[cell.id]
    found = compare(cell, old, device)
    print(
        f"{found['verdict']:9} {name} {describe_cell(cell)}: "
        f"{found['hits that differ, %']:.2g} % of the hits, "
        f"{found['points']:.2g} points, {time.time() - began:.1f} s",
        flush=True,
    )
    return {
        "study": name,
        "data set": cell.dataset,
        "method": cell.method,
        "setting": cell.setting,
        "seed": cell.seed,
        "on": torch.cuda.get_device_name() if device == "cuda" else device,
    } | found


def compare(cell, old, device="cpu"):
    """The columns of a verification: a cell computed again, beside its stored record.

    verdict: "same" to the last hit; "rounding", where no more differs than three times
    what rounding itself may do: neither in the first round that was evaluated nor, but
    for 0.6 points, in any mean accuracy; else "DIFFERS". What rounding may do is the
    most that starting weights times (1 + 1e-7), drawn three times, make of the run.
    """
    new = again(cell, device=device)
    share, early, points = apart(old, new)
    verdict = "same"
    if share:
        shaken = [again(cell, 1e-7, device, draw) for draw in range(SHAKEN)]
        _, its_early, its_points = np.max([apart(new, s) for s in shaken], axis=0)
        fine = early <= 3 * its_early and points <= max(0.6, 3 * its_points)
        verdict = "rounding" if fine else "DIFFERS"
    return {
        "verdict": verdict,
        "hits that differ, %": 100 * share,
        "points": points,
        "commit then": old.meta["commit"],
        "now": new.meta["commit"],
    }


def again(cell, noise=0.0, device="cpu", draw=0):
    """The record of a cell, computed anew; noise: relative, on the starting weights, to
    see what rounding alone may do; draw: which noise.
    """
    init = Task.init

    def shaken(self, seed):
        g = torch.Generator().manual_seed(draw)
        normal = lambda w: torch.randn(w.shape, generator=g, dtype=w.dtype)
        w = init(self, seed)
        return {k: v * (1 + noise * normal(v).to(v.device)) for k, v in w.items()}

    with patch.object(Task, "init", shaken if noise else init):
        try:
            return trained(replace(cell), device)[2]
        except Diverged as e:
            return e.record


def apart(a, b):
    """(share of accuracies that differ, the same of the first evaluated round, largest
    difference of a mean in points).
    """
    share, early, points = 0.0, 0.0, 0.0
    for k, x in a.views.items():
        y = b.views[k]
        if x.shape != y.shape:
            return 1.0, 1.0, math.inf
        differs = ~((x == y) | (np.isnan(x) & np.isnan(y)))
        share = max(share, float(differs.mean()))
        early = max(early, float(differs[0].mean()))
        off = 100 * np.abs(np.nanmean(x, 1) - np.nanmean(y, 1)).max()
        points = max(points, float(off))
    return share, early, points


# ---------------------------------------------------------------- command line
def command(args):
    """python -m fedlib evidence: what, names, workers, anew, sample, seed, device and
    write."""
    if args.what == "compute":
        compute(args.names, workers=args.workers)
    elif args.what == "pack":
        pack(args.names, anew=args.anew)
    elif args.what == "check":
        if wrong := check():
            print(*wrong, sep="\n", file=sys.stderr)
            raise ValueError(f"{len(wrong)} faults in {STORE}, see above")
    else:
        how = args.names, args.device, args.workers or 1
        found = verify(args.sample, args.seed, *how)
        print_verdicts(found, AUDITS[args.device] if args.write else None)


def print_verdicts(found, to=None):
    """How many runs came out the same; ValueError where one differs.

    to: keep the table in this file.
    """
    if to:
        text = found.to_csv(index=False, float_format="%.3g").encode()
        whole(to, lambda f: f.write(text))
    counts = found.verdict.value_counts()
    print(f"{len(found)} runs: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    if "DIFFERS" in counts:
        raise ValueError(
            "stored runs do not come out again: either the code has changed without a "
            "new version (python -m goldens.numbers check says where), or this machine "
            "computes otherwise"
        )
