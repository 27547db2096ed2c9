"""Peak memory of a federation in which every client keeps a model of its own.

    python -m benchmarks.memory
            ResNet-18, one round of each method, several numbers of clients
    python -m benchmarks.memory --methods PLGU-LF --clients 100 --cohorts 4

What is kept (clients x model) is unavoidable; what comes on top must depend on the
cohort (loop) or the chunk (vmap), never on the number of clients. Each line runs in a
process of its own. Writes results/benchmarks-memory.csv.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pandas as pd
import torch

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "benchmarks-memory.csv"
MIB = 2**20
BY = ["method", "how", "chunk", "cohort", "clients"]


def peak():
    """Largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(method, clients, cohort, how, chunk, side):
    """One round of a method on ResNet-18 with GroupNorm and tiny images;
    prints a json line.
    """
    import fedlib
    from fedlib.core.pool import Pool
    from fedlib.core.tree import leaves
    from fedlib.nets import ResNet18

    torch.set_num_threads(1)
    g, N = torch.Generator().manual_seed(0), clients * 6
    pool = Pool(
        "noise",
        torch.randn(N, 3, side, side, generator=g),
        torch.randint(10, (N,), generator=g),
        10,
        "synthetic",
    )
    network = ResNet18(10, stem="cifar", norm="group")
    task = fedlib.Task.from_rows(
        "noise", network, pool, torch.arange(N).split(6), parts=(0.7, 0, 0.3), batch=4
    )
    before = peak()
    rec = fedlib.run(
        fedlib.make(method, task),
        rounds=1,
        cohort=cohort,
        every=1,
        how=how,
        chunk=chunk,
        device="cpu",
        splits=("test",),
        progress=False,
    )
    model = sum(v.numel() * v.element_size() for v in task.init(0).values())
    kept = sum(v.numel() * v.element_size() for v in leaves(rec.state["clients"]))
    print(
        json.dumps(
            {
                "method": method,
                "clients": clients,
                "cohort": cohort,
                "how": how,
                "chunk": chunk,
                "model_mib": model / MIB,
                "kept_mib": kept / MIB,
                "peak_mib": peak() - before,
                "beside_in_models": (peak() - before - kept / MIB) / (model / MIB),
            }
        )
    )


def main():
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.memory", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--methods", nargs="+", default=["Ditto", "FedPer", "PLGU-LF"])
    p.add_argument("--clients", type=int, nargs="+", default=[10, 40, 100])
    p.add_argument("--cohorts", type=int, nargs="+", default=[2, 4])
    p.add_argument("--how", choices=("loop", "vmap"), default="loop")
    p.add_argument("--chunk", type=int)
    p.add_argument("--side", type=int, default=32, help="pixels per side of the images")
    p.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        return one(
            args.one[0], *map(int, args.one[1:]), args.how, args.chunk, args.side
        )
    rows = []
    more = ["--how", args.how, "--side", str(args.side)] + (
        ["--chunk", str(args.chunk)] if args.chunk else []
    )
    for method, clients, cohort in itertools.product(
        args.methods, args.clients, args.cohorts
    ):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "benchmarks.memory",
                "--one",
                method,
                str(clients),
                str(cohort),
                *more,
            ],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(
                f"{method}, {clients} clients, cohort {cohort}: "
                f"{done.stderr.strip().splitlines()[-1]}"
            )
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(
            {
                k: round(v, 2) if isinstance(v, float) else v
                for k, v in rows[-1].items()
            },
            flush=True,
        )
    new = pd.DataFrame(rows)
    if OUT.exists():
        new = pd.concat([pd.read_csv(OUT), new]).drop_duplicates(BY, keep="last")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    new.sort_values(BY).to_csv(
        OUT, index=False, float_format="%.4g", lineterminator="\n"
    )


if __name__ == "__main__":
    sys.exit(main())
