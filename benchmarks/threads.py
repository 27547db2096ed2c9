"""Does it pay to train several clients at once, in threads?

    python -m benchmarks.threads

Rounds of FedAvg per second of the wall clock, `fedlib.run(..., threads=n)` beside
`threads=1`, in turn. The numbers of a run do not change by a bit, which is checked
before anything is timed. An idle machine is needed: threads are about waiting, not
about processor time. Writes results/benchmarks-threads.csv.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

import pandas as pd
import torch

import fedlib
from fedlib.core.tree import leaves
from fedlib.methods.base.fedavg import FedAvg

from .cases import NAMES, case

OUT = Path(__file__).resolve().parents[1] / "results" / "benchmarks-threads.csv"


def rounds(c, n, threads):
    """The record of n rounds."""
    draw = c.cohorts()
    return fedlib.run(
        FedAvg(c.task, lr=c.lr),
        rounds=n,
        cohort=lambda t: next(draw),
        every=n + 2,
        upto=n,
        device="cpu",
        progress=False,
        splits=("test",),
        threads=threads,
    )


def seconds(c, n, threads):
    """Of n rounds: a long run minus a run without rounds,
    so that the first evaluation does not count.
    """
    start = time.perf_counter()
    rounds(c, 0, threads)
    middle = time.perf_counter()
    rounds(c, n, threads)
    return time.perf_counter() - middle - (middle - start)


def main(argv=None):
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.threads", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--cases", nargs="+", default=NAMES, choices=NAMES, metavar="CASE")
    p.add_argument("--threads", type=int, nargs="+", default=[2])
    p.add_argument(
        "--seconds", type=float, default=2.0, help="of each repetition, about"
    )
    p.add_argument("--repetitions", type=int, default=5)
    p.add_argument("--out", type=Path, default=OUT)
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    out = []
    for name in args.cases:
        c = case(name)
        one, many = (
            leaves(rounds(c, 1, k).state["server"]) for k in (1, args.threads[0])
        )
        if not all(map(torch.equal, one, many)):
            raise SystemExit(f"{name}: threads change the model")
        n = max(1, round(args.seconds / max(1e-3, seconds(c, 1, 1))))
        rates = {k: [] for k in (1, *args.threads)}
        for _ in range(args.repetitions):
            for k in rates:
                rates[k].append(n / max(1e-6, seconds(c, n, k)))
        for k, r in rates.items():
            out.append(
                {
                    "case": name,
                    "threads": k,
                    "rounds_per_s": statistics.median(r),
                    "low": min(r),
                    "high": max(r),
                    "times_one": statistics.median(a / b for a, b in zip(r, rates[1])),
                    "repetitions": len(r),
                }
            )
            print(out[-1], flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(out).to_csv(
        args.out, index=False, float_format="%.4g", lineterminator="\n"
    )


if __name__ == "__main__":
    sys.exit(main())
