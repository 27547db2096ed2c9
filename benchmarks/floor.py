"""How far a round is from what the arithmetic alone would take.

    python -m benchmarks.floor

Floor = floating point operations of a round's training (counted by torch, forward
and backward) / what one thread of this machine reaches on one large product (linear
cases) or one large convolution (cnn, resnet18). For the last two also the time of the
round's own convolutions alone, forward and backward, at their shapes: no program that
calls them can be quicker. Times are CPU seconds of rounds by fedlib's own choice and
by its loop. Writes results/benchmarks-floor.csv.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from . import clock
from .cases import NAMES, case
from .ours import ours

OUT = Path(__file__).resolve().parents[1] / "results" / "benchmarks-floor.csv"


def speed(f, flop, reps=7):
    """GFLOP per CPU second: the best of several,
    since only other work can make it slower.
    """
    f()
    best = 0.0
    for _ in range(reps):
        start = time.process_time()
        f()
        best = max(best, flop / (time.process_time() - start) / 1e9)
    return best


def machine():
    """GFLOP/s of one thread: {"product": ..., "convolution": ...}."""
    a, b = torch.randn(2, 2048, 2048)
    x = torch.randn(32, 64, 56, 56).contiguous(memory_format=torch.channels_last)
    w = torch.randn(64, 64, 3, 3)
    return {
        "product": speed(lambda: a @ b, 2 * 2048**3),
        "convolution": speed(
            lambda: F.conv2d(x, w, padding=1), 2 * 32 * 64 * 64 * 9 * 56 * 56
        ),
    }


def flops(c):
    """Floating point operations of one row's forward and backward pass,
    by torch's counter.
    """
    x, y = c.rows(0)
    model = c.model()
    with FlopCounterMode(display=False) as count:
        F.cross_entropy(model(x), y).backward()
    return count.get_total_flops() / len(x)


def convolutions(c, reps=5):
    """CPU seconds of the convolutions of one training step on a full batch, forward and
    backward, the best of several.
    """
    model, seen = c.model(), []
    x = c.rows(0)[0][: c.task.batch].contiguous(memory_format=torch.channels_last)
    hooks = [
        m.register_forward_hook(
            lambda m, a, z: seen.append((m, a[0].detach(), torch.randn_like(z)))
        )
        for m in model.modules()
        if isinstance(m, torch.nn.Conv2d)
    ]
    model(x)
    for h in hooks:
        h.remove()
    total = 0.0
    for k, (m, a, g) in enumerate(seen):
        # nobody asks for the images' gradient
        a = a.contiguous(memory_format=torch.channels_last).requires_grad_(k > 0)
        g, best = g.contiguous(memory_format=torch.channels_last), math.inf
        for _ in range(reps):
            start = time.process_time()
            torch.autograd.grad(m(a), [m.weight, *[a] * (k > 0)], g)
            best = min(best, time.process_time() - start)
        total += best
    return total


def rows_per_round(c):
    sizes = torch.tensor([len(r) for r in c.task.train], dtype=torch.double)
    return float(sizes.mean() * c.cohort)


def main():
    torch.set_num_threads(1)
    reach, out = machine(), []
    for name in NAMES:
        c = case(name)
        work = flops(c) * rows_per_round(c)
        images = name in ("cnn", "resnet18")
        what = "convolution" if images else "product"
        ways = {"fedlib": ours(c), "loop": ours(c, "loop")}
        rates = clock.interleave(ways, reps=5, seconds=1.0)
        took, loop = (1 / statistics.median(rates[k]) for k in ways)
        floor = work / reach[what] / 1e9
        out.append(
            {
                "case": name,
                "gflop_per_round": work / 1e9,
                "machine": what,
                "gflop_per_s": reach[what],
                "floor_ms": 1e3 * floor,
                "fedlib_ms": 1e3 * took,
                "times_floor": took / floor,
                "fedlib_loop_ms": 1e3 * loop,
                "loop_times_floor": loop / floor,
            }
        )
        if images:
            own = convolutions(c) * rows_per_round(c) / c.task.batch
            out[-1] |= {
                "own_convolutions_ms": 1e3 * own,
                "times_own_convolutions": took / own,
            }
    table = pd.DataFrame(out)
    print(table.round(3).to_string(index=False))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(OUT, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main())
