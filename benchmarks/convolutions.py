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

import torch
import torch.nn.functional as F

from fedlib.nets import layers

from . import harness
from .cases import case

NAMES = "conv1 norm1 relu1 pool1 conv2 norm2 relu2 mean flatten head".split()
PASSES = ("norm1", "pool1", "norm2", "mean")
WAYS = ("forward", "backward")


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


def microseconds(work, reps, seconds):
    """{name: median CPU microseconds of f()}."""
    repeated = lambda f: lambda n: [f() for _ in range(n)] and None
    variants = {k: repeated(f) for k, f in work.items()}
    rates = harness.interleave(variants, reps, seconds)
    return {k: 1e6 / statistics.median(r) for k, r in rates.items()}


def table(way, times, whole):
    """Rows; times {part: (forward, backward)}."""
    rest = whole - sum(map(sum, times.values()))
    for part, (a, b) in (times | {"rest": (rest, 0.0), "step": (whole, 0.0)}).items():
        row = {"way": way, "part": part, "forward_us": a, "backward_us": b}
        yield row | {"share": (a + b) / whole}


def main():
    p = harness.parser("convolutions", __doc__, reps=60, seconds=0.003)
    args = p.parse_args()
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
    took, rows = microseconds(work, args.reps, args.seconds), []
    times = {
        w: {p: [took[w, p, d] for d in WAYS] for p in moved}
        for w in ("module", "fedlib")
    }
    for way, parts in times.items():
        rows += table(way, parts, took[way, "step"])
    quickest = lambda p: tuple(map(min, times["module"][p], times["fedlib"][p]))
    floor = {part: quickest(part) for part in ("conv1", "conv2")}
    for part in PASSES:
        floor[part] = (took["copy"] * moved[part] / (2 * a.numel()),) * 2
    rows += table("floor", floor, least := sum(map(sum, floor.values())))
    for row in rows:
        row["times_floor"] = (
            row["forward_us"] / least if row["part"] == "step" else None
        )
    harness.show(rows)
    harness.keep(rows, args.out)


if __name__ == "__main__":
    main()
