"""Evidence of all studies: compute it, pack it, check that it is whole, verify that it
comes out again.

    python -m fedlib evidence compute [PAPER[/STUDY] ...]   every run into runs/
    python -m fedlib evidence pack [PAPER[/STUDY] ...]      finished runs into evidence/
    python -m fedlib evidence check                         is every run there?
    python -m fedlib evidence verify --sample 20            do some come out again?

`compute` says how long it will take and can be killed; `verify` draws its runs at
random. `make evidence` is compute, then pack. All of it is about the tier that
params.yaml names.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from ..core.errors import Diverged, nearest
from ..core.files import whole
from ..core.record import Record
from ..core.task import Task
from . import evidence, guard, identity, once, packing, studies
from .compute import compute_all, describe_cell, trained
from .executor import cores, processes

STORE = Path("evidence")
VERDICTS = ("same", "rounding", "DIFFERS")
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
    wanted = {ps: studies.cells(*ps)[0] for ps in chosen(names)}
    guard.check([c for todo in wanted.values() for c in todo], runs)
    missing = {ps: lacking(todo, runs) for ps, todo in wanted.items()}
    left, n = estimate(missing), workers or cores()
    print(
        f"{count(wanted):,} runs of {len(wanted)} studies, {count(missing):,} "
        f"of them to compute: about {minutes(sum(left.values()) / n)} on {n} "
        f"core{'s' * (n > 1)}. It can be stopped and goes on where it was."
    )
    began = time.time()
    for i, (ps, todo) in enumerate(missing.items(), 1):
        if todo:
            rest = sum(left[k] for k in list(missing)[i - 1 :]) / n
            print(
                f"[{i:2}/{len(missing)}] {'/'.join(ps)}: {len(todo)} runs; "
                f"{minutes(time.time() - began)} so far, about {minutes(rest)} left",
                flush=True,
            )
            compute_all(todo, runs, workers)
    print(f"All runs are there, after {minutes(time.time() - began)}.")


def count(cells_of):
    """How many cells {study: [cell]} has."""
    return sum(map(len, cells_of.values()))


def lacking(todo, runs):
    """The cells whose run is not finished in the folder runs, each once."""
    missing = {c.id: c for c in todo if not Path(runs, c.id, "done").exists()}
    return list(missing.values())


def estimate(missing):
    """{study: CPU seconds}: what the same run took when it was packed, else the mean of
    its study, else of all runs.
    """
    times = {
        row["id"]: row["seconds"]
        for f in STORE.glob("*")
        for row in evidence.listed(f, ("id", "seconds"))
    }
    usual = np.mean([*times.values()] or [2.0])
    out = {}
    for ps, todo in missing.items():
        known = [times[c.id] for c in todo if c.id in times]
        each = np.mean(known) if known else usual
        out[ps] = sum(known) + (len(todo) - len(known)) * each
    return out


def minutes(seconds):
    """A duration in words: "45 s", "12 min", "3.5 h"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# ---------------------------------------------------------------- pack
def pack(names=(), runs="runs", anew=False):
    """Pack studies whose runs are all finished, and with all studies what notebooks
    have measured. Raises ValueError.

    anew: what runs/ has goes before what is packed already.
    """
    total = 0
    for paper, name in chosen(names):
        items = packable(paper, name, runs, anew)
        folder = STORE / f"{paper}-{name}"
        size = packing.pack(items, folder)
        total += size
        print(f"{folder}: {len(items)} runs, {size / 1e3:,.0f} kB", flush=True)
    if not names:
        for path in once.pack(studies.load()["tier"]):
            total += path.stat().st_size
            print(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")
    print(f"{total / 1e6:.1f} MB packed")


def packable(paper, name, runs, anew):
    """[(id, columns, Record)] of a study, each run once, with the logs that it keeps.

    Raises ValueError where that cannot be.
    """
    todo, spec, _ = studies.cells(paper, name)
    guard.check(todo, runs)
    folder = STORE / f"{paper}-{name}"
    old = evidence.read(folder) if evidence.listed(folder, ("id",)) else {}
    found = {c.id: (c, record_of(c, old, runs, anew)) for c in todo}
    missing = [c for c, r in found.values() if r is None]
    if missing:
        raise ValueError(
            f"{paper}/{name}: {lost(missing, len(found))}; "
            f"compute them: python -m fedlib evidence compute {paper}/{name}"
        )
    for c, r in found.values():
        refuse(c, r)
    logs, order = spec.get("logs", {}), sorted({c.seed for c in todo})
    return [
        (i, described(paper, name, c), kept(r, order.index(c.seed), logs))
        for i, (c, r) in found.items()
    ]


def kept(r, place, seeds):
    """The record without the logs per client that are kept for fewer seeds: seeds {name
    of a log: how many}; place: of its seed among the study's.
    """
    per_client = [k for k, v in r.logs.items() if v.ndim > 1]
    return packing.without(
        r, [k for k in per_client if place >= seeds.get(k, math.inf)]
    )


def described(paper, name, cell):
    """The columns of SPEC."""
    versions = json.dumps(identity.raised(identity.units(cell)), sort_keys=True)
    named = {"paper": paper, "study": name, "versions": versions}
    return {k: named[k] if k in named else getattr(cell, k) for k in evidence.SPEC}


def record_of(cell, old, runs, anew):
    """A cell's record, from what is packed or from runs/; None where it is in neither.

    anew: runs/ goes first.
    """
    done = Path(runs, cell.id, "done").exists()
    if cell.id in old and not (anew and done):
        return old[cell.id]
    return Record.load(Path(runs, cell.id)) if done else None


def refuse(cell, r):
    """Raise ValueError for a run that nobody could make again."""
    commit, remedy = r.meta["commit"], f"delete runs/{cell.id} and compute it again"
    if commit.endswith("+") or commit == "unknown":
        raise ValueError(
            f"{describe_cell(cell)} was made by sources that are in no commit "
            f"({commit}), so that nobody can make it again: commit them, {remedy}"
        )
    if "diverged" not in r.meta and int(r.rounds[-1]) != r.meta["rounds"]:
        raise ValueError(
            f"{describe_cell(cell)} ends in round {r.rounds[-1]} of "
            f"{r.meta['rounds']} and is not marked as diverged: {remedy}"
        )


# ---------------------------------------------------------------- check
def check(limit=60e6):
    """[what is wrong] with evidence/: studies without their runs, runs that no study
    wants, damaged files, more than `limit` bytes. Prints how much is there.
    """
    wrong, wanted = [], {STORE / f"{p}-{s}": (p, s) for p, s in chosen()}
    n, size = 0, bytes_in(once.STORE)
    for folder, ps in wanted.items():
        runs, taken, faults = check_study(folder, studies.cells(*ps)[0])
        n, size, wrong = n + runs, size + taken, wrong + faults
    folders = {f for f in STORE.glob("*") if f.is_dir() and f != once.STORE}
    extra = sorted(folders - wanted.keys())
    wrong += [f"{f}: belongs to no study; delete it" for f in extra]
    if size > limit:
        wrong.append(
            f"{STORE} has {size / 1e6:.1f} MB, more than {limit / 1e6:.0f} MB: let "
            "studies keep fewer logs (key `logs`)"
        )
    print(f"{STORE}: {n:,} runs, {size / 1e6:.1f} MB" + ("" if wrong else "; complete"))
    return wrong


def check_study(folder, cells):
    """(runs, bytes, [what is wrong]) of the folder of a study with these cells; a
    damaged one counts nothing.
    """
    want, wrong = {c.id: c for c in cells}, []
    try:
        have = {row["id"]: row for row in evidence.listed(folder)}
        missing = [c for i, c in want.items() if i not in have]
        extra = [row for i, row in have.items() if i not in want]
        faults = [*filter(None, (lost(missing, len(want)), idle(extra, missing)))]
        if faults:
            wrong.append(f"{folder}: {'; '.join(faults)}")
        if have:
            evidence.read(folder, ())
    except evidence.Damaged as e:
        return 0, 0, [*wrong, str(e)]
    return len(have), bytes_in(folder), wrong


def bytes_in(folder):
    return sum(f.stat().st_size for f in folder.glob("*"))


def lost(missing, n):
    """Which of n runs are missing, in words; "" where none is."""
    if not missing:
        return ""
    first = describe_cell(missing[0])
    return f"{len(missing)} of {n} runs are missing, the first is {first}"


def idle(extra, missing):
    """Stored runs that no study wants, in words, with the versions by which they were
    made, if that is why; "" where there are none.
    """
    if not extra:
        return ""
    now = {(c.dataset, c.method, c.setting, c.seed): c for c in missing}
    for row in extra:
        c = now.get((row["dataset"], row["method"], row["setting"], row["seed"]))
        if c:
            moved = version_changes(json.loads(row["versions"]), c)
            what = f"versions ({'; '.join(moved)})" if moved else "settings"
            return f"{len(extra)} are of other {what}: compute and pack again"
    return f"{len(extra)} are of settings that the study does not have: pack again"


def version_changes(old, cell):
    """["method FedAS 1, now 2"] of a cell's units; old {unit: version then}."""
    new = identity.raised(identity.units(cell))
    then_and_now = [(u, old.get(u, 1), new.get(u, 1)) for u in {**old, **new}]
    return [f"{u} {a}, now {b}" for u, a, b in then_and_now if a != b]


# ---------------------------------------------------------------- verify
def verify(sample, seed=0, names=(), device="cpu", workers=1):
    """Compute `sample` stored runs again, drawn at random, and compare -> table, one
    row per run; its verdicts are those of `compare`.

    device: "cpu", where all that is stored was computed, or "cuda".
    """
    have = []
    for ps in chosen(names):
        stored = {row["id"] for row in evidence.listed(STORE / "-".join(ps), ("id",))}
        have += [(ps, c) for c in studies.cells(*ps)[0] if c.id in stored]
    drawn = random.Random(seed).sample(have, min(sample, len(have)))
    with processes(workers) as submit:
        if submit:
            running = [submit(verified, *one, device) for one in drawn]
            rows = (f.result() for f in running)
        else:
            rows = (verified(*one, device) for one in drawn)
        return pd.DataFrame(list(rows))


def verified(study, cell, device):
    """The row of one run: which it is, and what `compare` says of it."""
    torch.set_num_threads(1)
    began, (paper, name) = time.time(), study
    old = evidence.find({cell.id}, paper, name, STORE)[cell.id]
    found = compare(cell, old, device)
    print(
        f"{found['verdict']:9} {paper}/{name} {describe_cell(cell)}: "
        f"{found['hits that differ, %']:.2g} % of the hits, "
        f"{found['points']:.2g} points, {time.time() - began:.1f} s",
        flush=True,
    )
    return {
        "study": f"{paper}/{name}",
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
        wrong = check()
        print(*wrong, sep="\n", file=sys.stderr)
        if wrong:
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
            "stored runs do not come out again: either the code has changed "
            "without a new version (python -m fedlib.study.fingerprints check says "
            "where), or this machine computes otherwise"
        )
