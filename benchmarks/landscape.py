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

import multiprocessing
import time
from functools import cache

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

from . import harness
from .cases import cnn

VARIANTS = ("naive", "loop", "vmap", "loop, 2 threads", "loop, 2 processes")
COLUMNS = ["side", "variant", "points", "images", "wall_s", "cpu_s", "points_per_s"]
COLUMNS += ["times_naive", "note"]
IMAGES, BATCH = 2000, 128  # test images; rows per batch of the naive loop


@cache
def setting(side):
    """Task of test images, model, two directions."""
    from fedlib import Task
    from fedlib.data.glyphs import glyphs
    from fedlib.measures.landscape import direction
    from fedlib.nets import CNN

    pool = glyphs(IMAGES, split="test", size=side)
    rows = (
        (torch.arange(IMAGES - 1),),
        (torch.arange(0),),
        (torch.tensor([IMAGES - 1]),),
    )
    one = Task("glyphs", CNN(3, 10), pool.x, pool.y, *rows, K=10)
    w = one.init(0)
    return one, w, direction(w, 1), direction(w, 2)


def naive(side, at):
    """loss [n] at places [n, 2]."""
    task, w, d1, d2 = setting(side)
    model, rows, out = cnn().eval(), TensorDataset(task.x, task.y), []
    with torch.no_grad():
        for x, y in at.tolist():
            for p, k in zip(model.parameters(), w, strict=True):
                p.copy_(w[k] + x * d1[k] + y * d2[k])
            batches = DataLoader(rows, BATCH)
            sums = [F.cross_entropy(model(a), b).item() * len(b) for a, b in batches]
            out.append(sum(sums) / len(rows))
    return torch.tensor(out)


def ours(side, at, how="loop"):
    from fedlib.measures.landscape import data_loss, losses_at

    task, w, d1, d2 = setting(side)
    loss = data_loss(task, torch.arange(len(task.y)))
    return losses_at(loss, w, (d1, d2), at, how, 8)


def start(side):
    torch.set_num_threads(1)
    setting(side)


def compute(variant, side, at, workers):
    """Losses [n]."""
    if variant == "loop, 2 processes":
        z = torch.empty(len(at))
        z[::2], z[1::2] = workers.starmap(ours, [(side, at[::2]), (side, at[1::2])], 1)
        return z
    if variant == "naive":
        return naive(side, at)
    return ours(side, at, "vmap" if variant == "vmap" else "loop")


def one(variant, side, points):
    """The row of one variant."""
    from fedlib.measures.landscape import grid

    torch.set_num_threads(2 if variant == "loop, 2 threads" else 1)
    at, spawn, workers = grid(1.0, points), multiprocessing.get_context("spawn"), None
    setting(side)
    if variant == "loop, 2 processes":
        workers = spawn.Pool(2, start, (side,))
    some = at[:: max(1, len(at) // 6)]
    z = compute(variant, side, some, workers)  # and everything is warm
    cpu, wall = harness.tree_cpu(), time.perf_counter()
    compute(variant, side, at, workers)
    wall, cpu = time.perf_counter() - wall, harness.tree_cpu() - cpu
    if workers:
        workers.close()
        workers.join()
    gap = float((z - ours(side, some)).abs().max())
    if not gap < 1e-4:
        raise ValueError(f"losses differ from the loop's by {gap:.1e}")
    out = {"side": side, "variant": variant, "points": points, "images": IMAGES}
    return out | {"wall_s": wall, "cpu_s": cpu, "points_per_s": len(at) / wall}


def main():
    p = harness.parser("landscape", __doc__)
    p.add_argument("--sides", type=int, nargs="+", default=[16], help="pixels")
    p.add_argument("--points", type=int, default=41, help="points per axis")
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    p.add_argument("--limit", type=int, default=300, help="seconds for a line at most")
    args, rows = p.parse_args(), []
    for side in args.sides:
        took = {}
        for v in args.variants:
            try:
                row = harness.fresh(one, v, side, args.points, limit=args.limit)
                took[v] = row["wall_s"]
            except TimeoutError as e:  # threads wait for each other on a busy machine
                row = {
                    "side": side,
                    "variant": v,
                    "points": args.points,
                    "note": str(e),
                }
            rows.append(row)
            harness.show(rows[-1:])
            if {v, "naive"} <= took.keys():
                row["times_naive"] = took["naive"] / took[v]
    harness.keep(rows, args.out, COLUMNS)


if __name__ == "__main__":
    main()
