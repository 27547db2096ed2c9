"""How long does a landscape take?

    python -m benchmarks.landscape
            glyphs of 16 x 16 pixels, 41 x 41 points
    python -m benchmarks.landscape --sides 16 32 --points 21

The loss of the small CNN on 2,000 test images at every point of a plane, by

    naive              what is written first: weights copied into a Module, one pass of
                       a DataLoader per point
    loop, vmap         fedlib.measures.landscape, one thread; vmap over eight points
                       at a time
    loop, 2 threads    the same with two threads inside every operation
    loop, 2 processes  half of the points each, one thread each: how the pipeline uses
                       two cores

All of them must give the same numbers at a few points. Each line runs
in a process of its own. Wall and CPU seconds of the whole plane. Writes
results/benchmarks-landscape.csv and .json: what it ran on.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F

from . import clock
from .cases import cnn

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "benchmarks-landscape.csv"
VARIANTS = ("naive", "loop", "vmap", "loop, 2 threads", "loop, 2 processes")
COLUMNS = (
    "side",
    "variant",
    "points",
    "images",
    "wall_s",
    "cpu_s",
    "points_per_s",
    "times_naive",
    "note",
)
IMAGES, BATCH = 2000, 128  # test images; rows per batch of the naive loop


@cache
def setting(side):
    """Task of test images, model, two directions."""
    from fedlib import Task
    from fedlib.data.glyphs import glyphs
    from fedlib.measures.landscape import direction
    from fedlib.nets import CNN

    pool = glyphs(IMAGES, split="test", size=side)
    one = Task(
        "glyphs",
        CNN(3, 10),
        pool.x,
        pool.y,
        (torch.arange(IMAGES - 1),),
        (torch.arange(0),),
        (torch.tensor([IMAGES - 1]),),
        K=10,
    )
    w = one.init(0)
    return one, w, direction(w, 1), direction(w, 2)


def naive(side, at):
    """loss [n] at places [n, 2]."""
    task, w, d1, d2 = setting(side)
    model, rows = cnn().eval(), torch.utils.data.TensorDataset(task.x, task.y)
    loader, out = torch.utils.data.DataLoader(rows, BATCH), []
    with torch.no_grad():
        for x, y in at.tolist():
            for p, k in zip(model.parameters(), w, strict=True):
                p.copy_(w[k] + x * d1[k] + y * d2[k])
            total = 0.0
            for a, b in loader:
                total += F.cross_entropy(model(a), b).item() * len(b)
            out.append(total / len(rows))
    return torch.tensor(out)


def ours(side, at, how):
    from fedlib.measures.landscape import data_loss, losses_at

    task, w, d1, d2 = setting(side)
    return losses_at(
        data_loss(task, torch.arange(len(task.y))), w, (d1, d2), at, how, 8
    )


def start(side):
    torch.set_num_threads(1)
    setting(side)


def part(side, at):
    """A worker's share."""
    return ours(side, torch.tensor(at), "loop").tolist()


def compute(variant, side, at, workers=None):
    """Losses [n]."""
    if variant == "naive":
        return naive(side, at)
    if variant == "loop, 2 processes":
        halves = workers.starmap(
            part, [(side, h.tolist()) for h in (at[::2], at[1::2])], chunksize=1
        )
        z = torch.empty(len(at))
        z[::2], z[1::2] = map(torch.tensor, halves)
        return z
    return ours(side, at, "vmap" if variant == "vmap" else "loop")


def one(variant, side, points):
    """Times one variant and prints a json line."""
    from fedlib.measures.landscape import grid

    torch.set_num_threads(2 if variant == "loop, 2 threads" else 1)
    at = grid(1.0, points)
    setting(side)
    workers = (
        multiprocessing.get_context("spawn").Pool(2, start, (side,))
        if variant == "loop, 2 processes"
        else None
    )
    some = at[:: max(1, len(at) // 6)]
    z = compute(variant, side, some, workers)  # and everything is warm
    cpu, wall = clock.tree_cpu(), time.perf_counter()
    compute(variant, side, at, workers)
    wall, cpu = time.perf_counter() - wall, clock.tree_cpu() - cpu
    gap = float((z - ours(side, some, "loop")).abs().max())
    if not gap < 1e-4:
        raise SystemExit(f"{variant}: losses differ from the loop's by {gap:.1e}")
    if workers:
        workers.close()
        workers.join()
    print(
        json.dumps(
            {
                "side": side,
                "variant": variant,
                "points": points,
                "images": IMAGES,
                "wall_s": wall,
                "cpu_s": cpu,
                "points_per_s": len(at) / wall,
            }
        )
    )


def main():
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.landscape", description=__doc__.partition("\n")[0]
    )
    p.add_argument(
        "--sides",
        type=int,
        nargs="+",
        default=[16],
        help="pixels per side of the images",
    )
    p.add_argument("--points", type=int, default=41, help="points per axis")
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    p.add_argument(
        "--limit", type=int, default=300, help="seconds after which a line is given up"
    )
    p.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.one:
        return one(args.one[0], *map(int, args.one[1:]))
    rows = []
    for side in args.sides:
        for variant in args.variants:
            command = [
                sys.executable,
                "-m",
                "benchmarks.landscape",
                "--one",
                variant,
                str(side),
                str(args.points),
            ]
            try:
                done = subprocess.run(
                    command,
                    cwd=ROOT,
                    capture_output=True,
                    text=True,
                    timeout=args.limit,
                )
                if done.returncode:
                    raise SystemExit(
                        f"{variant}, {side} pixels: "
                        f"{done.stderr.strip().splitlines()[-1]}"
                    )
                rows.append(json.loads(done.stdout.splitlines()[-1]))
            except subprocess.TimeoutExpired:
                # threads wait for each other on a busy machine
                rows.append(
                    {
                        "side": side,
                        "variant": variant,
                        "points": args.points,
                        "images": IMAGES,
                        "note": f"not finished within {args.limit} s",
                    }
                )
            print(
                {
                    k: round(v, 2) if isinstance(v, float) else v
                    for k, v in rows[-1].items()
                },
                flush=True,
            )
    table = pd.DataFrame(rows, columns=COLUMNS)
    naive_s = table[table.variant == "naive"].set_index("side").wall_s
    table["times_naive"] = table.side.map(naive_s) / table.wall_s
    OUT.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(OUT, index=False, float_format="%.4g", lineterminator="\n")
    OUT.with_suffix(".json").write_text(
        json.dumps(clock.provenance(), indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
