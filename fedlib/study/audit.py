"""Evidence of all studies: compute it, pack it, check that it is whole, verify that it
comes out again.

    python -m fedlib evidence compute [PAPER[/STUDY] ...]
            every run into runs/; says how long, can be killed
    python -m fedlib evidence pack [PAPER[/STUDY] ...]     finished runs into evidence/
    python -m fedlib evidence check
            are all runs of all studies there and readable?
    python -m fedlib evidence verify --sample 20
            runs drawn at random, computed again and compared

`make evidence` is compute, then pack. All of it is about the tier that
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

from ..core.errors import nearest
from ..core.record import Record
from ..core.task import Task
from . import evidence, experiment, guard, identity, once, studies
from .executor import cores

STORE, AUDIT = Path("evidence"), Path("results/audit.csv")


def chosen(names=(), path="params.yaml"):
    """[(paper, study)] of "paper" and "paper/study", in the order of the files; all of
    them without names. Raises ValueError.
    """
    there = [
        (p, s)
        for p, v in studies.load(path).items()
        if isinstance(v, dict)
        for s in v["studies"]
    ]
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
    wanted = {ps: experiment.cells(*ps)[0] for ps in chosen(names)}
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
            experiment.compute_all(todo, runs, workers)
    print(f"All runs are there, after {minutes(time.time() - began)}.")


def count(studies_):
    return sum(map(len, studies_.values()))


def lacking(todo, runs):
    """The cells whose run is not finished in the folder runs, each once."""
    return list(
        {c.id: c for c in todo if not Path(runs, c.id, "done").exists()}.values()
    )


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
        out[ps] = sum(known) + (len(todo) - len(known)) * (
            np.mean(known) if known else usual
        )
    return out


def minutes(seconds):
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


# ---------------------------------------------------------------- pack
def pack(names=(), runs="runs", anew=False):
    """Pack studies whose runs are all finished, and with all studies what notebooks
    have measured. Raises ValueError.

    anew: what runs/ has goes before what is packed already.
    """
    total = 0
    for paper, name in chosen(names):
        items = packable(paper, name, runs, anew)
        size = evidence.pack(items, STORE / f"{paper}-{name}")
        total += size
        print(
            f"{STORE}/{paper}-{name}: {len(items)} runs, {size / 1e3:,.0f} kB",
            flush=True,
        )
    if not names:
        for path in once.pack(studies.load()["tier"]):
            total += path.stat().st_size
            print(f"{path}: {path.stat().st_size / 1e3:,.0f} kB")
    print(f"{total / 1e6:.1f} MB packed")


def packable(paper, name, runs, anew):
    """[(id, columns, Record)] of a study, each run once, with the logs that it keeps.

    Raises ValueError where that cannot be.
    """
    todo, spec, _ = experiment.cells(paper, name)
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
    return [
        (i, described(paper, name, c), kept(r, c.seed, spec.get("logs", {})))
        for i, (c, r) in found.items()
    ]


def kept(r, seed, seeds):
    """The record without logs per client that are kept for fewer seeds: seeds
    {name of a log: how many}.
    """
    return evidence.without(
        r,
        [k for k, v in r.logs.items() if v.ndim > 1 and seed >= seeds.get(k, math.inf)],
    )


def described(paper, name, cell):
    """The columns of SPEC."""
    versions = json.dumps(identity.raised(identity.units(cell)), sort_keys=True)
    named = {"paper": paper, "study": name, "versions": versions}
    return {k: named[k] if k in named else getattr(cell, k) for k in evidence.SPEC}


def record_of(cell, old, runs, anew):
    """A cell's record, from what is packed or from runs/;
    None where it is in neither.
    """
    done = Path(runs, cell.id, "done").exists()
    if cell.id in old and not (anew and done):
        return old[cell.id]
    return Record.load(Path(runs, cell.id)) if done else None


def refuse(cell, r):
    """Raise ValueError for a run that nobody could make again."""
    remedy = f"delete runs/{cell.id} and compute it again"
    if r.meta["commit"].endswith("+") or r.meta["commit"] == "unknown":
        raise ValueError(
            f"{experiment.called(cell)} was made by sources that are in no commit "
            f"({r.meta['commit']}), so that nobody can make it again: commit "
            f"them, {remedy}"
        )
    if "diverged" not in r.meta and int(r.rounds[-1]) != r.meta["rounds"]:
        raise ValueError(
            f"{experiment.called(cell)} ends in round {r.rounds[-1]} of "
            f"{r.meta['rounds']} and is not marked as diverged: {remedy}"
        )


# ---------------------------------------------------------------- check
def check(limit=40e6):
    """[what is wrong] with evidence/: studies without their runs, runs that no study
    wants, damaged files, too many bytes.
    """
    wrong, folders = [], {f for f in STORE.glob("*") if f.is_dir() and f != once.STORE}
    n, size = 0, sum(f.stat().st_size for f in once.STORE.glob("*"))
    for paper, name in chosen():
        folder = STORE / f"{paper}-{name}"
        folders.discard(folder)
        want = {c.id: c for c in experiment.cells(paper, name)[0]}
        try:
            have = {row["id"]: row for row in evidence.listed(folder)}
            missing, more = (
                [want[i] for i in want if i not in have],
                [have[i] for i in have if i not in want],
            )
            if missing or more:
                wrong.append(
                    f"{folder}: "
                    + "; ".join(
                        filter(None, (lost(missing, len(want)), idle(more, missing)))
                    )
                )
            evidence.read(folder, ()) if have else None
        except evidence.Damaged as e:
            wrong.append(str(e))
            continue
        n += len(have)
        size += sum(f.stat().st_size for f in folder.glob("*"))
    wrong += [f"{f}: belongs to no study; delete it" for f in sorted(folders)]
    if size > limit:
        wrong.append(
            f"{STORE} has {size / 1e6:.1f} MB, more than {limit / 1e6:.0f} MB: let "
            "studies keep fewer logs (key `logs`)"
        )
    print(f"{STORE}: {n:,} runs, {size / 1e6:.1f} MB" + ("" if wrong else "; complete"))
    return wrong


def lost(missing, n):
    """What is missing, in words."""
    return (
        (
            f"{len(missing)} of {n} runs are missing, the first is "
            f"{experiment.called(missing[0])}"
        )
        if missing
        else ""
    )


def idle(more, missing):
    """Stored runs that no study wants, and by which versions they were
    made, if that is why.
    """
    if not more:
        return ""
    now = {(c.dataset, c.method, c.setting, c.seed): c for c in missing}
    for row in more:
        c = now.get((row["dataset"], row["method"], row["setting"], row["seed"]))
        if c:
            old, new = json.loads(row["versions"]), identity.raised(identity.units(c))
            moved = [
                f"{u} {old.get(u, 1)}, now {new.get(u, 1)}"
                for u in {**old, **new}
                if old.get(u) != new.get(u)
            ]
            what = f"versions ({'; '.join(moved)})" if moved else "settings"
            return f"{len(more)} are of other {what}: compute and pack again"
    return f"{len(more)} are of settings that the study does not have: pack again"


# ---------------------------------------------------------------- verify
def verify(sample, seed=0, names=()):
    """Compute `sample` stored runs again, drawn at random, and compare -> table, one
    row per run.

    verdict: "same" to the last hit; "rounding", where nothing differs in round 0 and no
    mean accuracy is further off than three times what starting weights times (1 + 1e-7)
    make of it, at least 0.6 points; else "DIFFERS".
    """
    torch.set_num_threads(1)
    rows, have = [], []
    for ps in chosen(names):
        stored = {row["id"] for row in evidence.listed(STORE / "-".join(ps), ("id",))}
        have += [(ps, c) for c in experiment.cells(*ps)[0] if c.id in stored]
    for (paper, name), c in random.Random(seed).sample(have, min(sample, len(have))):
        old, began = evidence.find({c.id}, paper, name, STORE)[c.id], time.time()
        new = again(c)
        share, first, points = apart(old, new)
        verdict = "same"
        if share:
            allowed = max(0.6, 3 * apart(new, again(c, 1e-7))[2])
            verdict = "rounding" if first > 0 and points <= allowed else "DIFFERS"
        rows.append(
            {
                "study": f"{paper}/{name}",
                "data set": c.dataset,
                "method": c.method,
                "setting": c.setting,
                "seed": c.seed,
            }
            | {"verdict": verdict, "hits that differ, %": 100 * share, "points": points}
            | {"commit then": old.meta["commit"], "now": new.meta["commit"]}
        )
        print(
            f"{verdict:9} {paper}/{name} {experiment.called(c)}: {100 * share:.2g} % "
            f"of the hits, {points:.2g} points, {time.time() - began:.1f} s",
            flush=True,
        )
    return pd.DataFrame(rows)


def again(cell, noise=0.0):
    """The record of a cell, computed anew; noise: relative, on the starting weights, to
    see what rounding alone may do.
    """
    init = Task.init

    def shaken(self, seed):
        g = torch.Generator().manual_seed(0)
        return {
            k: w * (1 + noise * torch.randn(w.shape, generator=g, dtype=w.dtype))
            for k, w in init(self, seed).items()
        }

    with patch.object(Task, "init", shaken if noise else init):
        try:
            return experiment.trained(replace(cell), device="cpu")[2]
        except experiment.engine.Diverged as e:
            return e.record


def apart(a, b):
    """(share of accuracies that differ, first evaluated round in which one does,
    largest difference of a mean in points).
    """
    share, first, points = 0.0, math.inf, 0.0
    for k in a.views:
        if a.views[k].shape != b.views[k].shape:
            return 1.0, 0, math.inf
        differs = ~(
            (a.views[k] == b.views[k]) | (np.isnan(a.views[k]) & np.isnan(b.views[k]))
        )
        share = max(share, float(differs.mean()))
        if differs.any():
            first = min(first, int(a.rounds[np.flatnonzero(differs.any(1))[0]]))
        points = max(
            points,
            float(
                100
                * np.abs(np.nanmean(a.views[k], 1) - np.nanmean(b.views[k], 1)).max()
            ),
        )
    return share, first, points


# ---------------------------------------------------------------- command line
def command(args):
    """python -m fedlib evidence: what, names, workers, anew, sample, seed, write."""
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
        found = verify(args.sample, args.seed, args.names)
        if args.write:
            found.to_csv(AUDIT, index=False, float_format="%.3g")
        counts = found.verdict.value_counts()
        print(f"{len(found)} runs: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
        if "DIFFERS" in counts:
            raise ValueError(
                "stored runs do not come out again: either the code has changed "
                "without a new version (python -m fedlib.study.fingerprints check says "
                "where), or this machine computes otherwise"
            )
