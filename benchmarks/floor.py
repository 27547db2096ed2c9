"""How far a round is from what the arithmetic alone would take.

    python -m benchmarks.floor

Floor = floating point operations of a round's training (counted by torch, forward and backward) / what one thread of this
machine reaches on one large product (linear cases) or one large convolution (cnn). Times are CPU seconds of rounds by
fedlib's loop. Writes results/benchmarks-floor.csv.
"""
from __future__ import annotations

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
    """GFLOP per CPU second: the best of several, since only other work can make it slower."""
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
    return {"product": speed(lambda: a @ b, 2 * 2048 ** 3),
            "convolution": speed(lambda: F.conv2d(x, w, padding=1), 2 * 32 * 64 * 64 * 9 * 56 * 56)}


def flops(c):
    """Floating point operations of one row's forward and backward pass, by torch's counter."""
    x, y = c.rows(0)
    model = c.model()
    with FlopCounterMode(display=False) as count:
        F.cross_entropy(model(x), y).backward()
    return count.get_total_flops() / len(x)


def rows_per_round(c):
    sizes = torch.tensor([len(r) for r in c.task.train], dtype=torch.double)
    return float(sizes.mean() * c.cohort)


def main():
    torch.set_num_threads(1)
    reach, out = machine(), []
    for name in NAMES:
        c = case(name)
        work = flops(c) * rows_per_round(c)
        what = "convolution" if name == "cnn" else "product"
        rates = clock.interleave({"fedlib loop": ours(c, "loop")}, reps=5, seconds=1.0)["fedlib loop"]
        took, floor = 1 / statistics.median(rates), work / reach[what] / 1e9
        out.append({"case": name, "gflop_per_round": work / 1e9, "machine": what, "gflop_per_s": reach[what],
                    "floor_ms": 1e3 * floor, "fedlib_loop_ms": 1e3 * took, "times_floor": took / floor})
    table = pd.DataFrame(out)
    print(table.round(3).to_string(index=False))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(OUT, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main())
