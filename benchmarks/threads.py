"""Does it pay to train several clients at once, in threads?

    python -m benchmarks.threads

Rounds of FedAvg per second of the wall clock, `fedlib.run(..., threads=n)` beside
`threads=1`, in turn. The numbers of a run do not change by a bit, which is checked
before anything is timed. An idle machine is needed: threads are about waiting, not
about processor time. Writes results/benchmarks-threads.csv.
"""

from __future__ import annotations

import time

import torch

import fedlib
from fedlib.core.tree import leaves
from fedlib.methods.base.fedavg import FedAvg

from . import harness
from .cases import NAMES, case
from .rounds import QUIET


def rounds(c, n, threads, how=None):
    """The record of n rounds."""
    draw = c.cohorts()
    more = {"rounds": n, "upto": n, "every": n + 2, "threads": threads, "how": how}
    method = FedAvg(c.task, lr=c.lr)
    return fedlib.run(method, cohort=lambda t: next(draw), **more, **QUIET)


def seconds(c, n, threads):
    """Of n rounds: a long run minus a run without rounds,
    so that the first evaluation does not count.
    """
    start = time.perf_counter()
    rounds(c, 0, threads)
    middle = time.perf_counter()
    rounds(c, n, threads)
    return time.perf_counter() - middle - (middle - start)


def measure(c, threads, reps, about):
    """Rows of one case; about: seconds of each repetition."""
    one, many = (rounds(c, 1, k, "loop").state["server"] for k in (1, threads[0]))
    if not all(map(torch.equal, leaves(one), leaves(many))):
        raise SystemExit(f"{c.name}: threads change the model")
    n = max(1, round(about / max(1e-3, seconds(c, 1, 1))))
    rates = {k: [] for k in (1, *threads)}
    for _ in range(reps):
        for k in rates:
            rates[k].append(n / max(1e-6, seconds(c, n, k)))
    for k, r in rates.items():
        row = {"case": c.name, "threads": k, **harness.spread(r, "rounds_per_s")}
        yield row | {"times_one": harness.ratio(r, rates[1])}


def main():
    p = harness.parser("threads", __doc__, cases=NAMES, reps=5, seconds=2.0)
    p.add_argument("--threads", type=int, nargs="+", default=[2])
    args, rows = p.parse_args(), []
    torch.set_num_threads(1)
    for c in map(case, args.cases):
        rows += measure(c, args.threads, args.reps, args.seconds)
    harness.show(rows)
    columns = ["case", "threads", "rounds_per_s", "low", "high", "times_one"]
    harness.keep(rows, args.out, [*columns, "repetitions"])


if __name__ == "__main__":
    main()
