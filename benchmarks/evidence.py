"""What the evidence costs: CPU minutes of all runs of each study, before and after.

    python -m benchmarks.evidence --sample 3 --before /path/to/an/older/clone
    python -m benchmarks.evidence --sample 3 --before ... --only fedga/synthetic

Of every study a few cells are run anew, each by both versions of the code in turn. All
its cells, sorted by data set and method, are cut into as many parts of equal length,
and one cell is drawn from each. So each is as likely as any other, a stratum (data set,
method) counts by its number of cells, and

    minutes of the study = number of its runs x mean over the sample.

Not counted: imports, and the building of tasks. Runs that share a piece of work, as
EquFL's share the rows they condense, each have their part of it. A cell that would take
longer than its part of --cpu is cut to fewer rounds, and its time scaled.

Writes results/benchmarks-evidence.csv, and beside it a json with versions and every
cell of the samples, study by study. A study that is there for the same sources and
sample is not measured again, unless --only names it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pandas as pd
import torch

from fedlib.core.files import whole
from fedlib.study.spec import load
from fedlib.study.studies import cells

from . import clock

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = ["study", "runs", "before_min", "after_min", "sampled"]
FEWEST = 8  # rounds of a cut run, if the run has as many; and a quarter of them
BRIEF = 5  # seconds; what takes less is measured twice, and the smaller time counts
# runs that differ only in these share work: see EquFL.condensed
LATER = {"EquFL": ("target", "lam", "form", "at", "scale", "normalise")}


# ---------------------------------------------------------------- which cells
def studies():
    """{"paper/study": its cells at tier small}."""
    tree = load(ROOT / "params.yaml")
    return {
        f"{paper}/{name}": cells(paper, name, ROOT / "params.yaml", "small")[0]
        for paper, part in tree.items()
        if isinstance(part, dict) and "studies" in part
        for name in part["studies"]
    }


def sample(name, todo, n):
    """At most n of the cells, one from each n-th part of the sorted list; the draw
    depends on the study's name alone.
    """
    todo = sorted(todo, key=lambda c: (c.dataset, c.method, c.setting, c.seed))
    n, draw = min(n, len(todo)), random.Random(name)
    return [todo[int((i + draw.random()) * len(todo) / n)] for i in range(n)]


def sharing(cell, todo):
    """How many of the cells share work with this one, itself included."""
    same = lambda c: (c.method, c.task, c.seed, c.engine, trail(c))
    return sum(same(c) == same(cell) for c in todo)


def trail(cell):
    """The hyper-parameters of a cell on which its share of work depends."""
    later = LATER.get(cell.method)
    if later is None:
        return cell.setting  # shared with nobody
    return {k: v for k, v in json.loads(cell.kwargs).items() if k not in later}


# ---------------------------------------------------------------- the two versions
@contextmanager
def version(clone):
    """A process with the code of a clone: (ask, what it says of itself).

    ask(cell, rounds, times) -> CPU seconds of each run.
    """
    env = os.environ | {"PYTHONPATH": str(clone), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, str(Path(__file__).with_name("one_cell.py"))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(program, env=env, cwd=clone, **pipes) as process:

        def listen():
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"the process with the code of {clone} has ended")
            return json.loads(line)

        def ask(cell, rounds, times):
            order = {"cell": dataclasses.asdict(cell), "rounds": rounds, "times": times}
            print(json.dumps(order), file=process.stdin, flush=True)
            said = listen()
            if "error" in said:
                raise RuntimeError(f"{cell.dataset} {cell.method}: {said['error']}")
            return said["seconds"]

        about = listen()
        if not Path(about.pop("fedlib")).is_relative_to(clone):
            raise SystemExit(f"{clone} has no folder fedlib; give the root of a clone")
        try:
            yield ask, about
        finally:
            process.stdin.close()


# ---------------------------------------------------------------- one study
def measure(cell, asks, budget, shared):
    """A row of the sample: CPU seconds {version: s} of one cell, whole or cut.

    asks {version: ask}; budget: seconds for a run; shared: see `sharing`.
    """
    R = json.loads(cell.engine)["rounds"]
    few = min(R, max(FEWEST, -(-R // 4)))
    first = {k: ask(cell, few, 1)[0] for k, ask in asks.items()}  # warms up, too
    whole_run = max(first.values()) * R / few
    rounds = R if whole_run <= budget else few
    times = 2 if shared > 1 or whole_run <= BRIEF else 1
    took = {}
    for k, ask in asks.items():
        seconds = ask(cell, rounds, times)
        own = seconds[-1] + (seconds[0] - seconds[-1]) / shared
        took[k] = (min(seconds) if shared == 1 else own) * R / rounds
    names = "dataset", "method", "setting", "seed"
    row = {k: getattr(cell, k) for k in names} | {"rounds": rounds, "of": R}
    return row | {"shared": shared} | {f"{k}_s": round(v, 4) for k, v in took.items()}


def study(name, todo, n, clones, cpu):
    """(row of the csv, entry of the json) of a study; clones {version: its root}."""
    picked, rows = sample(name, todo, n), []
    with ExitStack() as stack:
        open_ = {k: stack.enter_context(version(c)) for k, c in clones.items()}
        budget = cpu / len(clones) / len(picked)
        for i, cell in enumerate(picked):
            turn = list(open_)[:: (-1) ** i]  # who goes first alternates
            asks = {k: open_[k][0] for k in turn}
            rows.append(measure(cell, asks, budget, sharing(cell, todo)))
        about = {k: said for k, (_, said) in open_.items()}
    row = {"study": name, "runs": len(todo), "sampled": len(rows)}
    for k in clones:
        mean = statistics.mean(r[f"{k}_s"] for r in rows)
        row[f"{k}_min"] = len(todo) * mean / 60
    return row, about | {"sample": n, **clock.provenance(), "cells": rows}


# ---------------------------------------------------------------- what is written
def known(out, name, n, sources):
    """Is the study there, of these sources {version: hash} and sample size?"""
    entry = read(out).get(name, {"sample": None})
    same = [entry.get(k, {}).get("source") == v for k, v in sources.items()]
    return entry["sample"] == n and all(same)


def read(out):
    about = out.with_suffix(".json")
    return json.loads(about.read_text())["studies"] if about.exists() else {}


def keep(out, row, entry, order):
    """Write a study's row, in place of an older one; rows in the order given."""
    old = pd.read_csv(out) if out.exists() else pd.DataFrame(columns=COLUMNS)
    rows = [r for r in old.to_dict("records") if r["study"] != row["study"]] + [row]
    rows = sorted(rows, key=lambda r: order.index(r["study"]))
    table = pd.DataFrame(rows, columns=COLUMNS)
    text = table.to_csv(index=False, float_format="%.4g", lineterminator="\n")
    about = {"command": "python -m benchmarks.evidence"}
    about["studies"] = read(out) | {row["study"]: entry}
    out.parent.mkdir(parents=True, exist_ok=True)
    whole(out.with_suffix(".json"), lambda f: f.write(as_json(about)))
    whole(out, lambda f: f.write(text.encode()))


def as_json(tree):
    return (json.dumps(tree, indent=1) + "\n").encode()


def main():
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.evidence", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--sample", type=int, default=3, help="cells per study")
    p.add_argument("--before", type=Path, help="the root of an older clone")
    p.add_argument("--only", nargs="+", default=[], metavar="PAPER/STUDY")
    p.add_argument("--cpu", type=float, default=120, help="CPU seconds per study")
    p.add_argument("--out", type=Path, default=ROOT / "results/benchmarks-evidence.csv")
    args = p.parse_args()
    if args.sample < 1:
        p.error(f"--sample {args.sample}: give 1 or more")
    torch.set_num_threads(1)
    clones = {"before": args.before.resolve()} if args.before else {}
    clones |= {"after": ROOT}
    every, sources = studies(), {}
    for name in args.only:
        if name not in every:
            p.error(f"--only {name}: there are {', '.join(every)}")
    for k, clone in clones.items():
        with version(clone) as (_, about):
            sources[k] = about["source"]
    for name in args.only or every:
        if name in args.only or not known(args.out, name, args.sample, sources):
            found = study(name, every[name], args.sample, clones, args.cpu)
            keep(args.out, *found, list(every))
            print({k: found[0].get(k) for k in COLUMNS}, flush=True)


if __name__ == "__main__":
    sys.exit(main())
