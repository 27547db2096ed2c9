"""What does a fairer server cost?

    python -m benchmarks.server
            census of 51 states, two layers, 100 rounds as in EquFL
    python -m benchmarks.server --rounds 24 --mean 300 --outer 40 --inner 5 --reps 1

Wall seconds of a whole run on one thread, split into what the clients do and what the
server does:

    clients       local training
    aggregation   putting the clients' models together, and storing the trail
    proxy         once: the server's own network learns the trail
    matching      once: rows that explain it
    calibrating   the server's own update, in every round of the second half

Variants run in turn; a row gives the median over repetitions of each part, and
`times_fedavg` that of the ratios to the FedAvg of the same repetition, which
`times_each` lists. `cpu_s` lies far below `seconds` where the machine had other work to
do. Drawing batches and evaluation are not counted. Writes results/benchmarks-server.csv
and .json: what it ran on.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import torch

from fedlib.core import clients

from . import harness
from .rounds import QUIET

PARTS = ["clients_s", "aggregation_s", "proxy_s", "matching_s", "calibrating_s"]
TARGETS = ("EO", "DP", "CAL", "CON", "Multi")
COLUMNS = ["method", "rounds", "calibrated", "clients", "rows", "seconds", "low"]
COLUMNS += ["high", *PARTS, "calibrating_ms_per_round", "cpu_s", "times_fedavg"]
COLUMNS += ["times_each", "repetitions"]


def variants(args):
    """{name: (method, hyper-parameters)}."""
    same = {"size": args.size, "outer": args.outer, "J": args.inner, "pool": args.pool}
    ours = {f"EquFL-{t}": ("EquFL", {"target": t, **same}) for t in args.targets}
    return {"FedAvg": ("FedAvg", {}), "Gaussian": ("Gaussian-update", {})} | ours


class Stopwatch:
    """Wall and CPU seconds of outermost calls of some functions, and their number."""

    def __init__(self):
        self.wall, self.cpu, self.calls, self.depth = 0.0, 0.0, 0, 0

    def timed(self, f):
        def g(*args, **kw):
            wall, cpu = time.perf_counter(), time.process_time()
            self.depth += 1
            try:
                return f(*args, **kw)
            finally:
                self.depth -= 1
                if not self.depth:  # a wrapper's aggregate calls the one inside
                    self.wall += time.perf_counter() - wall
                    self.cpu += time.process_time() - cpu
                    self.calls += 1

        return g


@contextmanager
def stopwatches():
    """Inside, {part: Stopwatch} of all runs; a part that contains others counts them,
    too.
    """
    from fedlib.methods.base.fedavg import FedAvg
    from fedlib.methods.groups.calibrated import Calibrated, GaussianUpdate
    from fedlib.methods.groups.equfl import EquFL
    from fedlib.pieces import condense

    timed = {
        "clients": [(clients.Clients, "keep")],
        "server": [(c, "aggregate") for c in (FedAvg, Calibrated, EquFL)],
        "proxy": [(condense, "proxy")],
        "synthetic": [(EquFL, "synthetic")],
        "calibrating": [(EquFL, "direction"), (GaussianUpdate, "update")],
    }
    spent = {part: Stopwatch() for part in timed}
    with ExitStack() as stack:
        for part, places in timed.items():
            for owner, name in places:
                f = spent[part].timed(getattr(owner, name))
                stack.enter_context(patch.object(owner, name, f))
        yield spent


def one(task, name, hyper, rounds, seed):
    """One run: seconds of each part, and in how many rounds the server calibrated."""
    import fedlib

    method = fedlib.make(name, task, lr=0.1, batches=8, last="drop", **hyper)
    with stopwatches() as spent:
        more = {"rounds": rounds, "every": rounds, "seed": seed, "how": "vmap"}
        fedlib.run(method, **more, **QUIET)
    wall = {k: s.wall for k, s in spent.items()}
    server = wall["server"] - wall["synthetic"] - wall["calibrating"]
    matching = wall["synthetic"] - wall["proxy"]
    parts = [wall["clients"], server, wall["proxy"], matching, wall["calibrating"]]
    row = dict(zip(PARTS, parts)) | {"seconds": sum(parts)}
    row["cpu_s"] = spent["clients"].cpu + spent["server"].cpu
    return row | {"calibrated": spent["calibrating"].calls}


def row_of(name, runs, rounds, task):
    """runs {variant: [row of `one`]} -> the row of a variant: medians over repetitions,
    and the ratio to the FedAvg paired with it.
    """
    mine, n = runs[name], runs[name][0]["calibrated"]
    row = {k: statistics.median(r[k] for r in mine) for k in mine[0]}
    each = [r["seconds"] / b["seconds"] for r, b in zip(mine, runs["FedAvg"])]
    row |= {"method": name, "rounds": rounds, "calibrated": n, "clients": task.C}
    row |= harness.spread([r["seconds"] for r in mine], "seconds")
    row |= {"rows": sum(map(len, task.train)), "times_fedavg": statistics.median(each)}
    if n:
        row["calibrating_ms_per_round"] = 1000 * row["calibrating_s"] / n
    return row | {"times_each": " ".join(f"{x:.3f}" for x in each)}


def main():
    p = harness.parser("server", __doc__, reps=3)
    for name, default, what in (
        ("rounds", 100, "of a run"),
        ("states", 51, "clients"),
        ("mean", 600, "persons per client, about"),
        ("size", 1000, "synthetic rows"),
        ("outer", 300, "outer steps of the matching"),
        ("inner", 10, "inner steps of the matching"),
        ("pool", 4000, "rows on which the server's network learns the trail"),
    ):
        p.add_argument(f"--{name}", type=int, default=default, help=what)
    p.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    args = p.parse_args()
    from fedlib.data import tasks

    torch.set_num_threads(1)
    data = {"name": "census", "clients": args.states}
    data |= {"n_mean": args.mean, "n_test": 100}
    spec = {"data": data, "network": {"name": "MLP", "hidden": 32}, "batch": 64}
    task = tasks.build(spec | {"parts": [1.0, 0.0, 0.0]}, name="census")
    todo = variants(args)
    for name, hyper in todo.values():  # warm: allocator, kernels, caches
        one(task, name, hyper | ({"outer": 1} if name == "EquFL" else {}), 4, 0)
    runs = {v: [] for v in todo}
    for k in range(args.reps):
        for v, (name, hyper) in todo.items():
            runs[v].append(one(task, name, hyper, args.rounds, k))
    rows = [row_of(v, runs, args.rounds, task) for v in runs]
    harness.show(rows, COLUMNS)
    said = {k: v for k, v in vars(args).items() if k != "out"}
    harness.keep(rows, args.out, COLUMNS, **said)


if __name__ == "__main__":
    main()
