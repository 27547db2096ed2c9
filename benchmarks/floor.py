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

import statistics
import time
from functools import partial

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from . import harness
from .cases import IMAGES, NAMES, case
from .rounds import ours

LAST = torch.channels_last


def best(f, reps=7, now=time.process_time):
    """Seconds of the quickest of several, since only other work can make it slower."""
    f()
    took = []
    for _ in range(reps):
        start = now()
        f()
        took.append(now() - start)
    return min(took)


def rates(n, images, channels, side, device="cpu", now=time.process_time):
    """FLOP/s of one product, n x n, and of one convolution of so many images."""
    a, b = torch.randn(2, n, n, device=device)
    x = torch.randn(images, channels, side, side, device=device)
    w = torch.randn(channels, channels, 3, 3, device=device)
    x, w = (v.contiguous(memory_format=LAST) for v in (x, w))
    took = (
        best(lambda: a @ b, now=now),
        best(partial(F.conv2d, x, w, padding=1), now=now),
    )
    conv = 2 * images * side**2 * 9 * channels**2
    return {"product": 2 * n**3 / took[0], "convolution": conv / took[1]}


def flops(model, x, y):
    """Floating point operations of one row's forward and backward pass."""
    with FlopCounterMode(display=False) as count, torch.enable_grad():
        F.cross_entropy(model(x), y).backward()
    return count.get_total_flops() / len(x)


def convolutions(c, reps=5):
    """CPU seconds of the convolutions of one training step on a full batch, forward and
    backward.
    """
    model, seen, total = c.model(), [], 0.0
    x = c.rows(0)[0][: c.task.batch].contiguous(memory_format=LAST)
    see = lambda m, a, z: seen.append((m, a[0].detach(), torch.randn_like(z)))
    convs = [m for m in model.modules() if isinstance(m, torch.nn.Conv2d)]
    hooks = [m.register_forward_hook(see) for m in convs]
    model(x)
    for h in hooks:
        h.remove()
    for k, (m, a, g) in enumerate(seen):
        # nobody asks for the images' gradient
        a = a.contiguous(memory_format=LAST).requires_grad_(k > 0)
        g, wanted = g.contiguous(memory_format=LAST), [m.weight, *[a] * (k > 0)]
        step = lambda m=m, a=a, g=g, w=wanted: torch.autograd.grad(m(a), w, g)
        total += best(step, reps)
    return total


def row(name, reach, reps, seconds):
    c, images = case(name), name in IMAGES
    what = "convolution" if images else "product"
    work = flops(c.model(), *c.rows(0)) * c.rows_per_round / 1e9
    rates = harness.interleave({"f": ours(c), "l": ours(c, "loop")}, reps, seconds)
    took, loop = (1 / statistics.median(rates[k]) for k in "fl")
    floor = work / reach[what]
    out = {"case": name, "gflop_per_round": work, "machine": what}
    out |= {"gflop_per_s": reach[what], "floor_ms": 1e3 * floor}
    out |= {"fedlib_ms": 1e3 * took, "times_floor": took / floor}
    out |= {"fedlib_loop_ms": 1e3 * loop, "loop_times_floor": loop / floor}
    if images:
        own = convolutions(c) * c.rows_per_round / c.task.batch
        out |= {"own_convolutions_ms": 1e3 * own, "times_own_convolutions": took / own}
    return out


def main():
    p = harness.parser("floor", __doc__, cases=NAMES, reps=5, seconds=1.0)
    args = p.parse_args()
    torch.set_num_threads(1)
    reach = {k: v / 1e9 for k, v in rates(2048, 32, 64, 56).items()}
    rows = [row(name, reach, args.reps, args.seconds) for name in args.cases]
    harness.show(rows)
    harness.keep(rows, args.out)


if __name__ == "__main__":
    main()
