"""Ask every point in turns; write the table, the fits, what a million clients need."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import torch

from .. import clock
from . import __doc__ as about
from .ask import ROOT, Asked, turns
from .fit import fits
from .million import METHODS, needed
from .points import Point, parameters
from .seeds import CLIENTS, KINDS

OUT = ROOT / "results" / "benchmarks-growth.csv"
COLUMNS = [
    "axis",
    "method",
    "measure",
    "x",
    "clients",
    "repetitions",
    "median",
    "low",
    "high",
    "mib",
    "note",
    "each",
]
AXES = ("clients", "cohort", "parameters", "seeds")
STACK = 8  # seeds that are stacked at most


def plan(axis, args):
    """[(module, what it measures, its last argument, (name of the curve, x,
    clients))] of an axis.
    """
    if axis == "seeds":
        return [
            ("seeds", {"method": k, "x": S}, args.rounds, (k, S, CLIENTS))
            for k in KINDS
            for S in args.seeds
            if k != "stacked" or S <= STACK
        ]
    C = args.clients_of_cohort
    if axis == "clients":
        points = [
            Point(axis, m, x, x, min(10, x), every=11)
            for m in METHODS
            for x in args.clients
        ]
    elif axis == "cohort":
        points = [Point(axis, m, x, C, x) for m in METHODS for x in args.cohort]
    else:
        nets = [(f"mlp-{h}", 0) for h in args.widths] + (
            [] if args.no_resnet else [("resnet18", 2)]
        )
        points = [
            Point(axis, m, parameters(n), 10, 10, n, every)
            for m in METHODS
            for n, every in nets
        ]
    return [
        ("points", vars(p), args.seconds, (p.label, p.x, p.clients)) for p in points
    ]


def measure(axis, args):
    """All rows of an axis."""
    asked, todo = [], plan(axis, args)
    try:
        for module, spec, more, _ in todo:
            asked.append(Asked(module, spec, more, args.limit))
        turns(asked, args.reps, args.most)
    finally:
        for a in asked:
            a.close()
    rows = [r for a, (*_, what) in zip(asked, todo) for r in rows_of(a, axis, *what)]
    return rows + [draws(C, args.reps) for C in args.draws if axis == "clients"]


def numbers(v):
    return {
        "repetitions": len(v),
        "median": statistics.median(v),
        "low": min(v),
        "high": max(v),
        "each": " ".join(f"{s:.5g}" for s in v),
    }


def rows_of(a, axis, method, x, clients):
    """The rows of one point, one per measure;
    one row with the reason where it gave no number.
    """
    same = {
        "axis": axis,
        "method": method,
        "x": x,
        "clients": clients,
        "note": a.note
        or ("mib: the workers as a whole" if method == "two processes" else ""),
        "mib": max((r["mib"] for r in a.answers), default=None),
    }
    values = {
        k: [r[k] for r in a.answers]
        for k in (a.answers[0] if a.answers else {})
        if k != "mib"
    }
    if a.ready and "start" in a.ready:
        values["start"] = [a.ready["start"]]
    return [same | {"measure": k} | numbers(v) for k, v in values.items()] or [same]


def draws(C, reps):
    """The row of drawing ten of C clients, as every round does."""
    from fedlib.core.clients import cohort_of

    method, task = SimpleNamespace(who="sample"), SimpleNamespace(C=C)

    def f(n):
        for t in range(n):
            cohort_of(method, task, 0, t, 10)

    seconds = [1 / r for r in clock.interleave({"draw": f}, reps, 0.05)["draw"]]
    return {
        "axis": "clients",
        "method": "drawing the cohort",
        "measure": "draw",
        "x": C,
        "clients": C,
    } | numbers(seconds)


def write(rows, axes, args, seconds):
    """The four files. Axes that were not measured now keep their rows."""
    table, out = pd.DataFrame(rows, columns=COLUMNS), args.out
    runs, about_ = [], out.with_suffix(".json")
    if out.exists():
        old = pd.read_csv(out)
        table = pd.concat([old[~old.axis.isin(axes)], table]).sort_values(
            "axis", key=lambda s: s.map(AXES.index), kind="stable"
        )
    if about_.exists():
        runs = [
            r | {"axes": [a for a in r["axes"] if a not in axes]}
            for r in json.loads(about_.read_text())["runs"]
        ]
    runs.append(
        {
            "command": "python -m benchmarks.growth",
            **clock.provenance(),
            "axes": axes,
            "wall_s": round(seconds),
        }
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    for t, path in (
        (table, out),
        (fits(table), out.with_name(out.stem + "-fit.csv")),
        (
            needed(table, args.million),
            out.with_name(out.stem.replace("growth", "million") + ".csv"),
        ),
    ):
        t.to_csv(path, index=False, float_format="%.5g", lineterminator="\n")
    about_.write_text(
        json.dumps({"runs": [r for r in runs if r["axes"]]}, indent=1) + "\n"
    )


def main(argv=None):
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.growth",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def sizes(name, default, what):
        p.add_argument(name, type=int, nargs="+", default=default, help=what)

    p.add_argument("--axes", nargs="+", choices=AXES, default=AXES)
    sizes("--clients", [10, 30, 100, 300, 1000, 3000, 10000], "clients, cohort 10")
    sizes("--cohort", [10, 30, 100, 300, 1000], "clients in a round")
    p.add_argument("--clients-of-cohort", type=int, default=1000, help="of so many")
    sizes(
        "--widths",
        [1, 4, 20, 100, 500, 2500, 12600],
        "of the MLP 784-WIDTH-10: 805 to 10 million parameters",
    )
    p.add_argument("--no-resnet", action="store_true")
    sizes("--seeds", [1, 2, 4, 8, 16], f"runs; stacked up to {STACK}")
    sizes("--draws", [10**3, 10**4, 10**5, 10**6], "clients of whom a cohort is drawn")
    p.add_argument(
        "--rounds", type=int, default=20, help="of a run on the axis of seeds"
    )
    p.add_argument("--reps", type=int, default=5)
    p.add_argument("--seconds", type=float, default=0.2, help="CPU seconds of a block")
    p.add_argument(
        "--most",
        type=float,
        default=8.0,
        help="CPU seconds after which two repetitions are enough",
    )
    p.add_argument(
        "--limit",
        type=float,
        default=120.0,
        help="seconds in which a point must answer",
    )
    p.add_argument(
        "--million", type=int, default=10**6, help="clients to extrapolate to"
    )
    p.add_argument("--out", type=Path, default=OUT)
    args = p.parse_args(argv)
    if args.reps < 1 or max(args.cohort) > args.clients_of_cohort:
        p.error(
            f"--reps {args.reps}, --cohort {max(args.cohort)} of --clients-of-cohort "
            f"{args.clients_of_cohort}: give one repetition or more, and cohorts no "
            "larger than their clients"
        )
    torch.set_num_threads(1)
    for axis in dict.fromkeys(args.axes):
        began = time.time()
        rows = measure(axis, args)
        print(
            pd.DataFrame(rows, columns=COLUMNS[:-1])
            .round(5)
            .to_string(index=False, na_rep=""),
            flush=True,
        )
        write(rows, [axis], args, time.time() - began)


if __name__ == "__main__":
    sys.exit(main())
