"""Evidence of all studies: compute it, pack it, check that it is whole, verify that it
comes out again: `python -m fedlib evidence compute|pack|check|verify`.

`make evidence` is compute, then pack, of the tier that params.yaml names.
"""

import json
import math
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from ..core.errors import refuse_if
from ..core.record import Record
from ..data import get
from ..data.tasks import known
from ..measures import selection
from . import identity, once, store, studies
from .compute import compute_all, forecast, unfinished

STORE, RUNS = Path("evidence"), Path("runs")
VERDICTS = ("same", "rounding", "DIFFERS")
TOLERANCE = 0.6  # points of a mean accuracy that rounding may move
AUDITS = {"cpu": Path("results/audit.csv"), "cuda": Path("results/audit-gpu.csv")}


def chosen(names=(), path="params.yaml"):
    """[(paper, study)] of "paper" and "paper/study", of all without names."""
    papers = {p: v for p, v in studies.load(path).items() if p != "tier"}
    there = {f"{p}/{name}": (p, name) for p in papers for name in papers[p]["studies"]}
    for name in names:
        known(papers | there, "study", name)
    return [x for k, x in there.items() if not names or {x[0], k} & {*names}]


# ---------------------------------------------------------------- compute
def compute(
    names=(), workers=None, tier=None, device="auto", dry_run=False, anew=False
):
    """Compute every run of the studies that is neither packed nor in runs/, at a tier
    (None: that of params.yaml); anew: what is packed, too. device: see `compute_all`.
    dry_run: say only what there is to do, and which data sets are missing."""
    identity.warn_if_edited()
    for study in chosen(names):
        cells = studies.cells(*study, tier=tier)[0]
        todo = unfinished(cells, RUNS) if anew else lacking(cells, *study)
        words = [forecast(todo)] if todo else ["all is there"]
        needed = {json.loads(c.task)["data"]["name"] for c in todo}
        for name in sorted(needed & get.CATALOGUE.keys()):
            if get.status(name).startswith("missing"):
                words.append(f"first: python -m fedlib data get {name}")
        print(f"{'/'.join(study)}: {'; '.join(words)}", flush=True)
        if not dry_run:
            compute_all(todo, RUNS, workers, device)


def lacking(cells, *study):
    """The cells of a study whose runs are neither packed for it nor in runs/."""
    packed = {row["id"] for row in store.listed(STORE / "-".join(study), ("id",))}
    return unfinished([c for c in cells if c.id not in packed], RUNS)


# ---------------------------------------------------------------- pack
def pack(names=(), anew=False):
    """Pack studies, with all of them what notebooks have measured; ValueError where a
    run is not finished. anew: what runs/ has goes before what is packed."""
    identity.warn_if_edited()
    for study in chosen(names):
        items, folder = packable(*study, anew), STORE / "-".join(study)
        store.pack(items, folder)
        print(f"{folder}: {len(items)} runs", flush=True)
    for path in () if names else once.pack(studies.load()["tier"]):
        print(path)


def packable(paper, study, anew):
    """[(id, columns, Record)] of a study, each run once: of seed 0 all, of others and
    winners the evaluations that rules pick, all on data sets in `curves`; its `logs`;
    groups of all clients together; test rows alone where the study's `stored` says so,
    of a search's pilots validation rows. ValueError: a run lacks, or is no commit's."""
    of = lambda part, s: {k: a for k, a in part.items() if s in (None, k[2])}
    pooled = lambda part: {k: a.sum(1, a.dtype, keepdims=True) for k, a in part.items()}
    todo, spec, _ = studies.cells(paper, study)
    found = store.read(STORE / f"{paper}-{study}")
    for c in todo:
        at = RUNS / c.id
        if (at / "record").exists() and (anew or c.id not in found):
            found[c.id] = Record.load(at)
    lacking = missing(todo, found)
    refuse_if(lacking, f"{paper}/{study}: {lacking}: compute and pack")
    items = {}
    for c in todo:
        r = found[c.id]
        short = "diverged" not in r.meta and r.rounds[-1] != r.meta["rounds"]
        why = f"{c} has not ended, or is of sources in no commit, {r.meta['commit']}: "
        why += f"commit them, delete {RUNS / c.id} and compute it again"
        refuse_if(short or identity.uncommitted(r.meta["commit"]), why)
        if c.seed or "winners" in spec:
            names = spec.get("logs", ())
            names = names.get(c.method, ()) if isinstance(names, dict) else names
            logs = {k: v for k, v in r.logs.items() if k in names}
            pilot = c.seed >= studies.PILOT and spec.keys() & {"draws", "winners"}
            split = "val" if pilot else spec.get("stored")
            parts = {"views": of(r.views, split), "cells": pooled(of(r.cells, split))}
            r = replace(r, logs=logs, consistency=pooled(r.consistency), **parts)
            r = r if c.dataset in spec.get("curves", ()) else selection.kept(r)
        versions = json.dumps(identity.raised(identity.parts_of(c)[1]))
        about = vars(c) | {"paper": paper, "study": study, "versions": versions}
        items[c.id] = c.id, {k: about[k] for k in store.SPEC}, r
    return [*items.values()]


def missing(cells, ids):
    """How many cells are not among the ids, in words; "" where none is missing."""
    lacking = {c.id: c for c in cells if c.id not in ids}
    n = f"{len(lacking)} of {len({c.id for c in cells})} runs are missing"
    return f"{n}, the first is {[*lacking.values()][0]}" if lacking else ""


# ---------------------------------------------------------------- check
def check():
    """[what is wrong] with evidence/; prints how much is there."""
    n, wrong, idle = 0, [], {f for f in STORE.glob("*") if f.is_dir()} - {once.STORE}
    for study in chosen():
        cells, folder = studies.cells(*study)[0], STORE / "-".join(study)
        idle.discard(folder)
        try:
            stored = store.read(folder)
        except ValueError as e:
            wrong.append(str(e))
            continue
        n += len(stored)
        extra = len(stored.keys() - {c.id for c in cells})
        more = extra and f"{extra} runs are of other settings or versions"
        if faults := "; ".join(filter(None, (missing(cells, stored), more))):
            wrong.append(f"{folder}: {faults}: compute and pack")
    wrong += [f"{f}: belongs to no study; delete it" for f in sorted(idle)]
    print(f"{STORE}: {n:,} runs" + ("" if wrong else "; complete"))
    return wrong


# ---------------------------------------------------------------- verify
def verify(sample, seed=0, names=(), device="cpu", workers=1, write=False):
    """Compute `sample` stored runs again, drawn at random, and compare -> table, a
    row per run; its verdicts are those of `compare`. ValueError where one differs.

    device: "cpu", where all that is stored was computed, or "cuda". write: keep the
    table in results/."""
    have = []
    for study in chosen(names):
        ids = {row["id"] for row in store.listed(STORE / "-".join(study), ("id",))}
        have += [(study, c) for c in studies.cells(*study)[0] if c.id in ids]
    drawn = random.Random(seed).sample(have, min(sample, len(have)))
    with tempfile.TemporaryDirectory() as runs:
        folders = compute_all([c for _, c in drawn], runs, workers, device)
        again, rows = map(Record.load, folders), []
        for (study, c), r in zip(drawn, again):
            row = {"study": "/".join(study), "data set": c.dataset, "method": c.method}
            row |= {"setting": c.setting, "seed": c.seed, "on": r.meta["device"]}
            rows.append(row | compare(store.find({c.id}, *study, STORE)[c.id], r))
    found = pd.DataFrame(rows)
    if write:
        found.to_csv(AUDITS[device], index=False, float_format="%.3g")
    print(found.to_string(index=False))
    why = "the code has changed without a new version, or this machine differs"
    refuse_if(found.verdict.eq("DIFFERS").any(), f"runs do not come out again: {why}")
    return found


def compare(old, new):
    """The columns of a verification: a stored record beside the new one of its cell.

    verdict: "same" to the last hit; "rounding", where no mean accuracy differs by more
    than TOLERANCE points; else "DIFFERS"."""
    share = points = 0.0
    at = np.isin(new.rounds, old.rounds)  # not all may be stored
    for k, x in old.views.items():
        y = new.views[k][at[: len(new.views[k])]]
        if x.shape != y.shape:
            share = points = math.inf
            break
        share = max(share, float((~np.isclose(x, y, 0, 0, equal_nan=True)).mean()))
        off = 100 * np.abs(np.nanmean(x, 1) - np.nanmean(y, 1)).max()
        points = max(points, float(off))
    verdict = "rounding" if points <= TOLERANCE else "DIFFERS"
    row = {"verdict": verdict if share else "same", "hits that differ, %": 100 * share}
    row["points"] = points
    return row | {"commit then": old.meta["commit"], "now": new.meta["commit"]}
