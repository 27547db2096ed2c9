"""Layers as functions of (w, x), the parts of a network, what all networks share."""

import math
from dataclasses import fields
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..core.errors import check_bytes, check_whole, known
from ..core.local import transformed

EPS, MOMENTUM = 1e-5, 0.1  # of batch norm, as in torch


# ----------------------------------------------------- parts: what a network is made of
class Part(NamedTuple):
    """One layer: its name, the shapes of its tensors, and how they start."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    start: str  # torch, fan-out, zero-bias, norm

    def names(self, buffers=False):
        """Of its parameters, or of its buffers (running statistics)."""
        leaves = (k for k in self.shapes if k.startswith("running_") == buffers)
        return tuple(f"{self.name}.{leaf}" for leaf in leaves)

    def draw(self, generator):
        """Initial tensors in float32."""
        outputs, *inputs = self.shapes["weight"]
        how = {"generator": generator, "dtype": torch.float32}

        def first(leaf, size):
            if self.start == "norm" or (self.start == "zero-bias" and leaf == "bias"):
                one = leaf in ("weight", "running_var")
                return torch.full(size, float(one), dtype=torch.float32)
            if self.start == "fan-out":
                # He et al.: keep the variance of gradients through relu
                std = math.sqrt(2 / (outputs * math.prod(inputs[1:])))
                return torch.randn(size, **how) * std
            bound = 1 / math.sqrt(math.prod(inputs))  # fan in = inputs x kernel area
            return (2 * torch.rand(size, **how) - 1) * bound

        return {f"{self.name}.{k}": first(k, size) for k, size in self.shapes.items()}


def linear_part(name, outputs, inputs, start="torch", kernel=(), bias=True):
    """A linear layer, or a convolution: weight [outputs, inputs, *kernel], bias
    [outputs]."""
    shapes = {"weight": (outputs, inputs, *kernel), "bias": (outputs,)}
    return Part(name, {k: shapes[k] for k in ("weight", "bias")[: 1 + bias]}, start)


def norm_part(name, channels, norm):
    """A norm layer, "batch" or "group": weight and bias [channels], and the running
    statistics of batch norm. ValueError for another norm."""
    of = {"batch": ("running_mean", "running_var"), "group": ()}
    running = known(of, "norm", norm)
    return Part(name, {k: (channels,) for k in ("weight", "bias", *running)}, "norm")


# ---------------------------------------------------------------- networks
class Net:
    """What all networks share.

    A subclass is a frozen dataclass with `parts` (in forward order), `D`, `K`, and
    `feat`, the features [B, D] of rows x by weights w; b and stats are for batch norm.
    """

    # True: pre-activation, a norm layer belongs to the layer after it
    norm_first = False

    def __post_init__(self):
        """ValueError for a size that is no whole number >= 1, and for more parameters
        than any memory holds."""
        for f in fields(self):
            v = getattr(self, f.name)
            several = "tuple" in f"{f.type}" and isinstance(v, (list, tuple))
            for one in (v if several else [v]) if "int" in f"{f.type}" else ():
                check_whole(f"{type(self).__name__}: {f.name}", one, 1)
        shapes = (s for part in self.parts for s in part.shapes.values())
        check_bytes(f"{self}", 4 * sum(map(math.prod, shapes)))

    @cached_property
    def layers(self):
        return tuple(p.names() for p in self.parts)

    @cached_property
    def units(self):
        """Names of parameters, one tuple per layer and its norm layer: the one after
        it, or with `norm_first` before it. Another norm layer is a unit of its own."""
        units, way = [], -1 if self.norm_first else 1
        alone = False  # has the last unit room for a norm layer?
        for names in self.layers[::way]:
            norm = names[0] in self.norms
            if norm and alone:
                names = sum((units.pop(), names)[::way], ())
            units.append(names)
            alone = not norm
        return tuple(units[::way])

    @cached_property
    def head(self):
        return self.parts[-1].names()

    @cached_property
    def buffers(self):
        return tuple(n for p in self.parts for n in p.names(buffers=True))

    @cached_property
    def norms(self):
        """Names of the norm layers' tensors, running statistics included."""
        norms = [p for p in self.parts if p.start == "norm"]
        return tuple(f"{p.name}.{leaf}" for p in norms for leaf in p.shapes)

    def init(self, seed: int, dtype=torch.float32) -> dict:
        """Weights and buffers, in float32 first: precisions start from one model."""
        g = torch.Generator().manual_seed(seed)
        return {k: v.to(dtype) for p in self.parts for k, v in p.draw(g).items()}

    def out(self, w, z):
        """Features [B, D] -> logits [B, K]."""
        return F.linear(z, w[self.head[0]], w[self.head[1]])


class Rows(Net):
    """A network as `rows`, one after another from `channels` or `inputs` on, and the
    linear head `fc`:

        ("conv", name, outputs, kernel, stride, padding)    ("dense", name, outputs)
        ("norm", name), nothing where self.norm is "none"   ("relu",)
        ("pool", kernel, stride, padding), of maxima        ("mean", side), of pixels
        ("flat", side)           images of side x side pixels, or vectors (side = 1)
        ("add", rows, beside)    the sum of what both make of the same z"""

    norm, bias, start, head_start = "none", False, "torch", "torch"  # of convolutions

    @cached_property
    def parts(self):
        parts = []

        def widths(rows, width):
            for what, *how in rows:
                if what in ("conv", "dense"):
                    name, outputs, *k = how
                    more = (self.start, (k[0], k[0]), self.bias) if k else ()
                    parts.append(linear_part(name, outputs, width, *more))
                    width = outputs
                elif what == "norm" and self.norm != "none":
                    parts.append(norm_part(*how, width, self.norm))
                elif what in ("mean", "flat"):
                    width *= how[0] ** 2
                elif what == "add":
                    width = [widths(side, width) for side in how][0]
            return width

        D = widths(self.rows, getattr(self, "channels", 0) or self.inputs)
        return (*parts, linear_part("fc", self.K, D, self.head_start))

    @property
    def D(self):
        return self.parts[-1].shapes["weight"][1]

    def feat(self, w, x, b=None, stats=None):
        of = lambda name: (w[f"{name}.weight"], w[f"{name}.bias"])
        norms = {
            "none": lambda z, _: z,
            "group": lambda z, name: F.group_norm(
                z, groups(z.shape[1]), *of(name), EPS
            ),
            "batch": lambda z, name: batch_norm(w, name, z, b, stats),
        }
        layers = {
            "conv": lambda z, name, _, __, *how: conv(w, name, z, *how),
            "dense": lambda z, name, _: dense(w, name, z),
            "norm": norms[self.norm],
            "relu": torch.relu,
            "pool": F.max_pool2d,
            "mean": lambda z, side: mean_pool(z, side).flatten(1),
            "flat": lambda z, _: z if z.dim() == 2 else z.flatten(1),
            "add": lambda z, rows, beside: through(rows, z) + through(beside, z),
        }

        def through(rows, z):
            for what, *how in rows:
                z = layers[what](z, *how)
            return z

        return through(self.rows, x)


RELU = ("relu",)


# ---------------------------------------------------------------- layers as functions
def dense(w, name, z):
    """The linear layer `name` of weights w, applied to z [B, inputs]: [B, outputs]."""
    return F.linear(z, w[name + ".weight"], w[name + ".bias"])


def conv(w, name, z, stride=1, padding=0):
    """The convolution `name` of weights w, applied to z [B, inputs, H, W].

    With all channels of a pixel side by side in memory: the quickest order on a CPU."""
    kernel, bias = w[name + ".weight"], w.get(name + ".bias")
    order = {} if transformed() else {"memory_format": torch.channels_last}
    z = F.conv2d(z.contiguous(**order) if order else z, kernel, bias, stride, padding)
    return z.contiguous(**order) if order else z


def mean_pool(z, side):
    """Means over windows, [B, channels, ...] -> [B, channels, side, side]; over all
    pixels (side = 1) [B, channels]."""
    if side == 1:
        return z.mean((2, 3))
    window = z.shape[-1] // side
    if z.shape[-2:] != (side * window, side * window):
        return F.adaptive_avg_pool2d(z, side)
    return F.avg_pool2d(z, window)  # the same means, quicker


def groups(channels):
    """Number of groups (Wu and He, ECCV 2018): a power of two that divides `channels`,
    at most 32. Below 128 channels, four or more share a group."""
    return math.gcd(32, channels, max(1, channels // 4) if channels < 128 else channels)


def batch_norm(w, name, z, b, stats, eps=EPS, momentum=MOMENTUM):
    """Batch norm of z [B, channels, ...], see the package for b and stats.

    With one row that counts (and no pixels) the mean is the row itself: its output is
    the bias."""
    gain, bias = w[f"{name}.weight"], w[f"{name}.bias"]
    running = {k: w.get(k) for k in (f"{name}.running_mean", f"{name}.running_var")}
    if b is None:  # buffers are constants to a gradient
        mean, var = (v.detach() for v in running.values())
        return F.batch_norm(z, mean, var, gain, bias, False, momentum, eps)
    if b.m is None and stats is None and z.numel() > z.shape[1]:
        return F.batch_norm(z, None, None, gain, bias, True, momentum, eps)
    each = tuple(range(2, z.dim()))  # the pixels, if there are any
    over = (lambda v: b.avg(v.mean(each))) if each else b.avg
    column = (-1, *(1 for _ in each))
    mean = over(z)  # [channels]
    gap = z - mean.view(column)
    if b.m is not None:  # padding far off a lone row would overflow
        gap = gap * b.m.view(-1, *(1 for _ in z.shape[1:]))
    var = over(gap * gap)
    if stats is not None:
        rows = torch.tensor(float(len(z)), dtype=z.dtype) if b.m is None else b.m.sum()
        n = rows * math.prod(z.shape[2:])
        fresh = mean, var * (n / (n - 1).clamp(min=1))
        for (k, v), u in zip(running.items(), fresh):  # a layer may be passed twice
            stats[k] = (1 - momentum) * stats.get(k, v) + momentum * u
    return gap * ((var + eps).rsqrt() * gain).view(column) + bias.view(column)


# ---------------------------------------------------------------- torchvision
def ensure_torchvision():
    """Make `import torchvision` work beside a CPU-only torch; call this before.

    The wheel on package indexes is a CUDA build, whose compiled operators such a torch
    cannot load; the import then ends with "operator torchvision::nms does not exist".
    Data sets, transforms and models use none of them: declaring the names is enough."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for operator in ("nms", "qnms"):
            torch.library.define(f"torchvision::{operator}", signature)
