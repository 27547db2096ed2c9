"""What does a fairer server cost?

    python -m benchmarks.server
            census of 51 states, two layers, 100 rounds as in EquFL
    python -m benchmarks.server --rounds 24 --mean 300 --outer 40 --inner 5

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

import argparse
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import torch

from fedlib.core import clients

from . import clock

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "benchmarks-server.csv"
PARTS = ("clients_s", "aggregation_s", "proxy_s", "matching_s", "calibrating_s")
TARGETS = ("EO", "DP", "CAL", "CON", "Multi")
COLUMNS = (
    "method",
    "rounds",
    "calibrated",
    "clients",
    "rows",
    "seconds",
    "low",
    "high",
    *PARTS,
    "calibrating_ms_per_round",
    "cpu_s",
    "times_fedavg",
    "times_each",
    "repetitions",
)


def variants(size, outer, inner, pool, targets=TARGETS):
    """{name: (method, hyper-parameters)}."""
    same = {"size": size, "outer": outer, "J": inner, "pool": pool}
    return {"FedAvg": ("FedAvg", {}), "Gaussian": ("Gaussian-update", {})} | {
        f"EquFL-{t}": ("EquFL", {"target": t, **same}) for t in targets
    }


@contextlib.contextmanager
def stopwatches():
    """Inside, {part: [wall seconds, CPU seconds, calls]} of all runs; a part that
    contains others counts them, too.
    """
    from fedlib.methods.base.fedavg import FedAvg
    from fedlib.methods.groups.calibrated import Calibrated, GaussianUpdate
    from fedlib.methods.groups.equfl import EquFL
    from fedlib.pieces import condense

    spent, depth = {}, {}
    now = lambda: (time.perf_counter(), time.process_time())

    def timed(name, f):
        def g(*args, **kw):
            # a wrapper's aggregate calls the one inside
            depth[name] = depth.get(name, 0) + 1
            start = now() if depth[name] == 1 else None
            try:
                return f(*args, **kw)
            finally:
                depth[name] -= 1
                if start:
                    wall, cpu, calls = spent.get(name, (0.0, 0.0, 0))
                    end = now()
                    spent[name] = (
                        wall + end[0] - start[0],
                        cpu + end[1] - start[1],
                        calls + 1,
                    )

        return g

    with contextlib.ExitStack() as stack:
        for owner, attribute, name in (
            (clients.Clients, "keep", "clients"),
            (FedAvg, "aggregate", "server"),
            (Calibrated, "aggregate", "server"),
            (EquFL, "aggregate", "server"),
            (condense, "proxy", "proxy"),
            (EquFL, "synthetic", "synthetic"),
            (EquFL, "direction", "calibrating"),
            (GaussianUpdate, "update", "calibrating"),
        ):
            stack.enter_context(
                patch.object(owner, attribute, timed(name, getattr(owner, attribute)))
            )
        yield spent


def one(task, name, hyper, rounds, seed):
    """One run: seconds of each part, and in how many rounds the clients trained and the
    server calibrated.
    """
    import fedlib

    method = fedlib.make(name, task, lr=0.1, batches=8, last="drop", **hyper)
    with stopwatches() as spent:
        fedlib.run(
            method,
            rounds=rounds,
            seed=seed,
            every=rounds,
            how="vmap",
            device="cpu",
            splits=("test",),
            progress=False,
        )
    wall, cpu, calls = (
        {
            k: spent.get(k, (0.0, 0.0, 0))[i]
            for k in ("clients", "server", "synthetic", "proxy", "calibrating")
        }
        for i in range(3)
    )
    row = {
        "clients_s": wall["clients"],
        "aggregation_s": wall["server"] - wall["synthetic"] - wall["calibrating"],
        "proxy_s": wall["proxy"],
        "matching_s": wall["synthetic"] - wall["proxy"],
        "calibrating_s": wall["calibrating"],
    }
    return row | {
        "seconds": sum(row.values()),
        "cpu_s": cpu["clients"] + cpu["server"],
        "trained": calls["clients"],
        "calibrated": calls["calibrating"],
    }


def table(runs, rounds, task):
    """runs {variant: [row of `one`]} -> a row per variant: medians over repetitions,
    and the ratio to FedAvg paired with it.
    """
    out = []
    for name, rows in runs.items():
        middle = {
            k: statistics.median(r[k] for r in rows)
            for k in ("seconds", "cpu_s", *PARTS)
        }
        n, whole = rows[0]["calibrated"], [r["seconds"] for r in rows]
        ratios = [r["seconds"] / b["seconds"] for r, b in zip(rows, runs["FedAvg"])]
        out.append(
            middle
            | {
                "method": name,
                "rounds": rounds,
                "calibrated": n,
                "clients": task.C,
                "rows": sum(map(len, task.train)),
                "low": min(whole),
                "high": max(whole),
                "repetitions": len(rows),
                "calibrating_ms_per_round": 1000 * middle["calibrating_s"] / n
                if n
                else None,
                "times_fedavg": statistics.median(ratios),
                "times_each": " ".join(f"{x:.3f}" for x in ratios),
            }
        )
    return pd.DataFrame(out, columns=COLUMNS)


def main(argv=None):
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.server", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--rounds", type=int, default=100)
    p.add_argument("--states", type=int, default=51, help="clients")
    p.add_argument("--mean", type=int, default=600, help="persons per client, about")
    p.add_argument("--size", type=int, default=1000, help="synthetic rows")
    p.add_argument("--outer", type=int, default=300, help="outer steps of the matching")
    p.add_argument("--inner", type=int, default=10, help="inner steps of the matching")
    p.add_argument(
        "--pool",
        type=int,
        default=4000,
        help="rows on which the server's network learns the trail",
    )
    p.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    p.add_argument("--repetitions", type=int, default=3)
    p.add_argument("--out", type=Path, default=OUT)
    args = p.parse_args(argv)
    from fedlib.data import tasks

    torch.set_num_threads(1)
    task = tasks.build(
        {
            "data": {
                "name": "census",
                "clients": args.states,
                "n_mean": args.mean,
                "n_test": 100,
            },
            "batch": 64,
            "network": {"name": "MLP", "hidden": 32},
            "parts": [1.0, 0.0, 0.0],
        },
        name="census",
    )
    todo = variants(args.size, args.outer, args.inner, args.pool, args.targets)
    for name, hyper in todo.values():  # warm: allocator, kernels, caches
        one(task, name, hyper | ({"outer": 1} if name == "EquFL" else {}), 4, 0)
    runs = {v: [] for v in todo}
    for k in range(args.repetitions):
        for v, (name, hyper) in todo.items():
            runs[v].append(one(task, name, hyper, args.rounds, k))
            print(v, {k: round(x, 3) for k, x in runs[v][-1].items()}, flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    table(runs, args.rounds, task).to_csv(
        args.out, index=False, float_format="%.4g", lineterminator="\n"
    )
    about = vars(args) | {"out": args.out.name} | clock.provenance()
    args.out.with_suffix(".json").write_text(
        json.dumps(about, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
