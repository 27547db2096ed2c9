"""Peak memory of a federation in which every client keeps a model of its own.

    python -m benchmarks.memory                         ResNet-18, Ditto, one round, several numbers of clients and cohorts
    python -m benchmarks.memory --clients 100 --cohorts 4

What is kept (clients x model) is unavoidable; what comes on top must depend on the cohort (loop) or the chunk (vmap), never
on the number of clients. Each line runs in a process of its own. Writes results/benchmarks-memory.csv.
"""
from __future__ import annotations

import argparse
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
MIB = 2 ** 20


def peak():
    """Largest resident size of this process so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def one(clients, cohort, how, chunk, side):
    """One round of Ditto on ResNet-18 with tiny images; prints a json line."""
    import fedlib
    from fedlib.data import Pool
    from fedlib.nets import ResNet18
    from fedlib.tree import leaves
    torch.set_num_threads(1)
    g, N = torch.Generator().manual_seed(0), clients * 6
    pool = Pool("noise", torch.randn(N, 3, side, side, generator=g), torch.randint(10, (N,), generator=g), 10, "synthetic")
    task = fedlib.Task.from_rows("noise", ResNet18(10), pool, torch.arange(N).split(6), parts=(.7, 0, .3), batch=4)
    before = peak()
    rec = fedlib.run(fedlib.make("Ditto", task), rounds=1, cohort=cohort, every=1, how=how, chunk=chunk, device="cpu",
                     splits=("test",), progress=False)
    model = sum(v.numel() * v.element_size() for v in rec.state["server"]["w"].values())
    kept = sum(v.numel() * v.element_size() for v in leaves(rec.state["clients"]))
    print(json.dumps({"clients": clients, "cohort": cohort, "how": how, "chunk": chunk, "model_mib": model / MIB,
                      "kept_mib": kept / MIB, "peak_mib": peak() - before,
                      "beside_in_models": (peak() - before - kept / MIB) / (model / MIB)}))


def main():
    p = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__.partition("\n")[0])
    p.add_argument("--clients", type=int, nargs="+", default=[10, 20, 40, 100])
    p.add_argument("--cohorts", type=int, nargs="+", default=[2, 4])
    p.add_argument("--how", choices=("loop", "vmap"), default="loop")
    p.add_argument("--chunk", type=int)
    p.add_argument("--side", type=int, default=32, help="pixels per side of the images")
    p.add_argument("--one", type=int, nargs=2, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        return one(*args.one, args.how, args.chunk, args.side)
    rows = []
    for clients in args.clients:
        for cohort in args.cohorts:
            more = ["--how", args.how, "--side", str(args.side)] + (["--chunk", str(args.chunk)] if args.chunk else [])
            done = subprocess.run([sys.executable, "-m", "benchmarks.memory", "--one", str(clients), str(cohort), *more],
                                  cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{clients} clients, cohort {cohort}: {done.stderr.strip().splitlines()[-1]}")
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print({k: round(v, 2) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    new = pd.DataFrame(rows)
    if OUT.exists():
        new = pd.concat([pd.read_csv(OUT), new]).drop_duplicates(["clients", "cohort", "how", "chunk"], keep="last")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    new.sort_values(["how", "chunk", "cohort", "clients"]).to_csv(OUT, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main())
