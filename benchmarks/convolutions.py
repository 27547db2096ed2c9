"""Where a training step of a CNN goes, layer by layer, beside a floor.

    python -m benchmarks.convolutions

One step of CNN(3, 10) on 32 images of 3 x 32 x 32, as a torch Module and as fedlib's
functions. Each part is timed alone, forward and backward; "rest" is what the parts
leave of the step: the graph, the update of the weights, images that have left the
cache. Floor: the convolutions at their quickest here, and norms and pools as one read
and one write at the speed of a copy; the others cost nothing. CPU microseconds,
medians of repetitions that take the parts in turn. Writes
results/benchmarks-convolutions.csv.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F

from fedlib.nets import layers

from . import clock
from .cases import case

OUT = Path(__file__).resolve().parents[1] / "results" / "benchmarks-convolutions.csv"
NAMES = "conv1 norm1 relu1 pool1 conv2 norm2 relu2 mean flatten head".split()
PASSES = ("norm1", "pool1", "norm2", "mean")


def of_module(c):
    """({part: images -> images} in forward order, weights)."""
    model = c.model()
    return dict(zip(NAMES, model, strict=True)), list(model.parameters())


def of_fedlib(c):
    """The same, as `CNN.trunk` has it: the pool before its relu."""
    w = {k: v.requires_grad_() for k, v in c.task.init(0).items()}
    parts = {
        "conv1": lambda z: layers.conv(w, "conv1", z, 2, 2),
        "norm1": lambda z: layers.group_norm(w, "norm1", z),
        "pool1": lambda z: F.max_pool2d(z, 2),
        "relu1": torch.relu,
        "conv2": lambda z: layers.conv(w, "conv2", z, 1, 1),
        "norm2": lambda z: layers.group_norm(w, "norm2", z),
        "relu2": torch.relu,
        "mean": lambda z: layers.mean_pool(z, 4),
        "flatten": lambda z: z.flatten(1),
        "head": lambda z: layers.dense(w, "fc", z),
    }
    return parts, list(w.values())


def each_part(parts, weights, x, y):
    """{(part, direction): f()}, on the images that a part gets in a step, and how many
    numbers it reads and writes: {part: n}."""
    work, moved, z = {}, {}, x
    for name, part in (parts | {"loss": lambda z: F.cross_entropy(z, y)}).items():
        # nobody asks for the gradient of the images themselves
        z = z.detach().requires_grad_(name != "conv1")
        out, wanted = part(z), [v for v in (z, *weights) if v.requires_grad]
        seen = {"outputs": out, "inputs": wanted, "grad_outputs": torch.ones_like(out)}
        seen |= {"retain_graph": True, "allow_unused": True}
        work[name, "forward"] = lambda part=part, z=z: part(z)
        work[name, "backward"] = lambda seen=seen: torch.autograd.grad(**seen)
        moved[name], z = z.numel() + out.numel(), out
    return work, moved


def step(parts, weights, x, y):
    z = x
    for part in parts.values():
        z = part(z)
    gradient = torch.autograd.grad(F.cross_entropy(z, y), weights)
    with torch.no_grad():
        for w, g in zip(weights, gradient, strict=True):
            w.add_(g, alpha=-0.05)


def microseconds(work, reps=60, seconds=0.003):
    """{name: median CPU microseconds of f()}."""

    def repeated(f):
        return lambda n: [f() for _ in range(n)] and None

    rates = clock.interleave({k: repeated(f) for k, f in work.items()}, reps, seconds)
    return {k: 1e6 / statistics.median(r) for k, r in rates.items()}


def rows(way, times, whole):
    """Rows of the table; times {part: (forward, backward)}."""
    rest = whole - sum(map(sum, times.values()))
    times = times | {"rest": (rest, 0.0), "step": (whole, 0.0)}
    return [
        {
            "way": way,
            "part": part,
            "forward_us": there,
            "backward_us": back,
            "share": (there + back) / whole,
        }
        for part, (there, back) in times.items()
    ]


def main():
    torch.set_num_threads(1)
    c = case("cnn")
    x, y = (v[: c.task.batch] for v in c.rows(0))
    a = torch.randn(32, 16, 16, 16)  # what the first norm reads
    target, work = torch.empty_like(a), {}
    work["copy"] = lambda: target.copy_(a)
    for way, make in {"module": of_module, "fedlib": of_fedlib}.items():
        alone, moved = each_part(*make(c), x, y)
        work |= {(way, *k): f for k, f in alone.items()}
        own = make(c)  # weights that move
        work[way, "step"] = lambda own=own: step(*own, x, y)
    took, table, floor = microseconds(work), [], {}

    def both(way, part):
        return took[way, part, "forward"], took[way, part, "backward"]

    for way in ("module", "fedlib"):
        times = {part: both(way, part) for part in moved}
        table += rows(way, times, took[way, "step"])
    for part in ("conv1", "conv2"):
        pairs = zip(both("module", part), both("fedlib", part), strict=True)
        floor[part] = tuple(map(min, pairs))
    for part in PASSES:
        floor[part] = (took["copy"] * moved[part] / (2 * a.numel()),) * 2
    table += rows("floor", floor, whole := sum(map(sum, floor.values())))
    table = pd.DataFrame(table)
    table["times_floor"] = (table.forward_us / whole).where(table.part == "step")
    print(table.round(3).to_string(index=False))
    OUT.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(OUT, index=False, float_format="%.4g", lineterminator="\n")


if __name__ == "__main__":
    sys.exit(main())
