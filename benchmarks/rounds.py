"""Rounds of FedAvg per CPU second: the usual DataLoader loop, fedlib, and peers.

    python -m benchmarks.rounds                                   the loop and fedlib
    python -m benchmarks.rounds --peer pfl=/path/to/venv/bin/python --peer flower=...

Writes results/benchmarks.csv and its provenance results/benchmarks.json. One torch
thread. Before anything is timed, one round with full batches must give the same model
in every variant.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from . import clock
from .cases import NAMES, case
from .ours import after, ours, version
from .peers.ask import PEERS, ask, given
from .rows import keep
from .usual import Usual, difference

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = [
    "case",
    "variant",
    "version",
    "rounds_per_cpu_s",
    "low",
    "high",
    "times_loader",
    "repetitions",
    "note",
]


def ways(c):
    """How fedlib is timed.

    Batching a ResNet takes longer than the loop, and so long that it is left out.
    """
    return (None, "loop") + (() if c.name == "resnet18" else ("vmap",))


def named(how):
    """The variant's name: "fedlib" chooses its way by itself."""
    return " ".join(filter(None, ("fedlib", how)))


def agree(c, clients=2, tolerance=1e-6):
    """Refuse to time loops that do not compute the same, in float64."""
    c = replace(c, task=c.task.double())
    usual = Usual(c, batch=10**6)
    usual.round(torch.arange(clients))
    for how in ways(c):
        d = difference(after(c, how, clients).values(), usual.model.parameters())
        if not d < tolerance:
            raise SystemExit(
                f"{c.name}: after one round {named(how)} and the DataLoader loop "
                f"differ by {d:.1e}; does benchmarks/cases.py still have the layers of "
                "fedlib/nets?"
            )


def here(name, reps, seconds):
    """Rows of one case, all variants in this process."""
    c = case(name)
    agree(c)
    usual, draw = Usual(c), c.cohorts()

    def loop(n):
        for _ in range(n):
            usual.round(next(draw))

    variants = {"DataLoader loop": loop} | {named(how): ours(c, how) for how in ways(c)}
    rows = clock.summary(clock.interleave(variants, reps, seconds), "DataLoader loop")
    return [
        {
            "case": name,
            "version": torch.__version__
            if r["variant"].startswith("Data")
            else version(),
            **r,
        }
        for r in rows
    ]


def main():
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.rounds", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--cases", nargs="+", default=NAMES, choices=NAMES, metavar="CASE")
    p.add_argument("--reps", type=int, default=7)
    p.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="CPU seconds per variant and repetition",
    )
    p.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help=", ".join(PEERS),
    )
    p.add_argument(
        "--only-peers", action="store_true", help="keep the other rows that are there"
    )
    p.add_argument("--out", type=Path, default=ROOT / "results" / "benchmarks.csv")
    args = p.parse_args()
    peers = given(args.peer, p)
    torch.set_num_threads(1)
    for name in args.cases:
        new = [] if args.only_peers else here(name, args.reps, args.seconds)
        for who, python in peers:
            new += ask(who, python, name, args.reps, args.seconds)
        print(
            pd.DataFrame(new, columns=COLUMNS)
            .round(3)
            .to_string(index=False, na_rep=""),
            flush=True,
        )
        keep(
            new,
            args.out,
            COLUMNS,
            ("case", "variant"),
            NAMES,
            "python -m benchmarks.rounds",
        )


if __name__ == "__main__":
    sys.exit(main())
