"""Layers as functions of (w, x), the parts of a network, what all networks share."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..core.errors import check_bytes, check_whole, short
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
        kernel = math.prod(inputs[1:])
        bound = 1 / math.sqrt(math.prod(inputs))  # fan in = inputs x kernel area

        def first(leaf, size):
            if self.start == "norm":
                ones = leaf in ("weight", "running_var")
                return torch.ones(size) if ones else torch.zeros(size)
            if self.start == "zero-bias" and leaf == "bias":
                return torch.zeros(size)
            if self.start == "fan-out":
                # He et al.: keep the variance of gradients through relu
                std = math.sqrt(2 / (outputs * kernel))
                return torch.randn(size, generator=generator) * std
            return (2 * torch.rand(size, generator=generator) - 1) * bound

        return {f"{self.name}.{k}": first(k, size) for k, size in self.shapes.items()}


def linear_part(name, outputs, inputs, start="torch"):
    """A linear layer: weight [outputs, inputs], bias [outputs]."""
    return Part(name, {"weight": (outputs, inputs), "bias": (outputs,)}, start)


def conv_part(name, outputs, inputs, kernel, bias=False, start="torch"):
    """A convolution: weight [outputs, inputs, kernel, kernel], bias [outputs]."""
    shapes = {"weight": (outputs, inputs, kernel, kernel)}
    return Part(name, shapes | ({"bias": (outputs,)} if bias else {}), start)


def norm_part(name, channels, norm):
    """A norm layer, "batch" or "group": weight and bias [channels], and the running
    statistics of batch norm. ValueError for another norm.
    """
    if norm not in ("batch", "group"):
        raise ValueError(f'norm = {norm!r}: use "batch" or "group"')
    running = ("running_mean", "running_var") if norm == "batch" else ()
    return Part(name, {k: (channels,) for k in ("weight", "bias", *running)}, "norm")


def check_sizes(net):
    """ValueError for a field of whole numbers that holds something else than one >= 1,
    or several where it takes a tuple, and for more parameters than any memory holds."""
    for f in fields(net):
        if "int" in f"{f.type}":
            v, at = getattr(net, f.name), f"{type(net).__name__}: {f.name}"
            several = "tuple" in f"{f.type}" and isinstance(v, (list, tuple))
            many = len(f.default) if isinstance(f.default, tuple) else 0
            if several and (not v or len(v) != (many or len(v))):
                raise ValueError(f"{at} = {short(v)}: give {many or 'some'} numbers")
            for one in v if several else [v]:
                check_whole(at, one, 1)
    shapes = (s for part in net.parts for s in part.shapes.values())
    check_bytes(f"{net}", 4 * sum(map(math.prod, shapes)))


class Net:
    """What all networks share.

    A subclass is a frozen dataclass with `parts` (in forward order), `D`, `K`, and
    `feat`, the features [B, D] of rows x by weights w; b and stats are for batch norm.
    """

    # True: pre-activation, a norm layer belongs to the layer after it
    norm_first = False

    def __post_init__(self):
        check_sizes(self)

    @cached_property
    def layers(self):
        return tuple(p.names() for p in self.parts)

    @cached_property
    def units(self):
        """Names of parameters, one tuple per convolution or linear layer and its norm:
        the one after it, or with `norm_first` before it. ValueError for a norm layer
        without one."""
        units = []  # each grows from its convolution or linear layer
        for part in self.parts[::-1] if self.norm_first else self.parts:
            if part.start != "norm":
                units.append([part])
            elif units and len(units[-1]) == 1:
                units[-1].append(part)
            else:
                raise ValueError(
                    f"{self}: the norm layer {part.name!r} stands beside no layer of "
                    f"its own in `parts`; set norm_first = {not self.norm_first}?"
                )
        units = [u[::-1] for u in units[::-1]] if self.norm_first else units
        return tuple(tuple(n for part in u for n in part.names()) for u in units)

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
        return tuple(n for p in norms for b in (False, True) for n in p.names(b))

    def init(self, seed: int, dtype=torch.float32) -> dict:
        """Weights and buffers.

        They are drawn in float32, so both precisions start from the same model.
        """
        g = torch.Generator().manual_seed(seed)
        return {k: v.to(dtype) for p in self.parts for k, v in p.draw(g).items()}

    def normed(self, w, name, z, b, stats):
        """z through the norm layer `name`: group norm or batch norm."""
        if self.norm == "group":
            return group_norm(w, name, z)
        return batch_norm(w, name, z, b, stats)

    def out(self, w, z):
        """Features [B, D] -> logits [B, K]."""
        return F.linear(z, w[self.head[0]], w[self.head[1]])


# ---------------------------------------------------------------- layers as functions
def dense(w, name, z):
    """The linear layer `name` of weights w, applied to z [B, inputs]: [B, outputs]."""
    return F.linear(z, w[name + ".weight"], w[name + ".bias"])


def conv(w, name, z, stride=1, padding=0):
    """The convolution `name` of weights w, applied to z [B, inputs, H, W]."""
    kernel, bias = w[name + ".weight"], w.get(name + ".bias")
    return pixels(F.conv2d(pixels(z), kernel, bias, stride, padding))


def pixels(z):
    """Images with all channels of a pixel side by side in memory.

    That is the quickest order on a CPU for convolution and pool together; the values
    are the same.
    """
    return z if transformed() else z.contiguous(memory_format=torch.channels_last)


def mean_pool(z, side):
    """Means over windows, [B, channels, ...] -> [B, channels, side, side]."""
    window = z.shape[-1] // side
    if z.shape[-2:] != (side * window, side * window):
        return F.adaptive_avg_pool2d(z, side)
    return F.avg_pool2d(z, window)  # the same means, quicker


def group_norm(w, name, z):
    """Per image (Wu and He, ECCV 2018). z [B, channels, ...]."""
    gain, bias = w[name + ".weight"], w[name + ".bias"]
    return F.group_norm(z, groups(z.shape[1]), gain, bias, EPS)


def groups(channels):
    """Number of groups: a power of two that divides the channels, at most 32.

    Below 128 channels, four or more share a group.
    """
    return math.gcd(32, channels, max(1, channels // 4) if channels < 128 else channels)


def batch_norm(w, name, z, b, stats):
    """Batch norm of z [B, channels, ...], see the package for b and stats."""
    names = f"{name}.running_mean", f"{name}.running_var"
    gain, bias = w[f"{name}.weight"], w[f"{name}.bias"]
    running = [w.get(k) for k in names]
    z, new = normalised(z, gain, bias, running, b, stats is not None)
    if new:
        stats.update(zip(names, new))
    return z


def normalised(z, gain, bias, running, b, update, eps=EPS, momentum=MOMENTUM):
    """(the output, the new running statistics or None) of batch norm; running: mean and
    variance [channels].

    With one row that counts (and no pixels) the mean is the row itself: its output is
    the bias.
    """
    if b is None:  # buffers are constants to a gradient
        mean, var = (v.detach() for v in running)
        return F.batch_norm(z, mean, var, gain, bias, False, momentum, eps), None
    if b.m is None and not update and z.numel() > z.shape[1]:
        return F.batch_norm(z, None, None, gain, bias, True, momentum, eps), None
    each = tuple(range(2, z.dim()))  # the pixels, if there are any
    over = (lambda v: b.avg(v.mean(each))) if each else b.avg
    column = (-1, *(1 for _ in each))
    mean = over(z)  # [channels]
    gap, new = z - mean.view(column), None
    if b.m is not None:  # padding far off a lone row would overflow
        gap = gap * b.m.view(-1, *(1 for _ in z.shape[1:]))
    var = over(gap * gap)
    if update:
        rows = torch.tensor(float(len(z)), dtype=z.dtype) if b.m is None else b.m.sum()
        n = rows * math.prod(z.shape[2:])
        fresh = mean, var * (n / (n - 1).clamp(min=1))
        new = [(1 - momentum) * v + momentum * u for v, u in zip(running, fresh)]
    return gap * ((var + eps).rsqrt() * gain).view(column) + bias.view(column), new


# ---------------------------------------------------------------- torchvision
_declared = []  # torch.library.Libraries, alive as long as the names are needed


def ensure_torchvision():
    """Make `import torchvision` work beside a CPU-only torch; call this before.

    The wheel on package indexes is a CUDA build, whose compiled operators such a torch
    cannot load; the import then ends with "operator torchvision::nms does not exist".
    Data sets, transforms and models use none of them: declaring the names is enough.
    """
    package = importlib.util.find_spec("torchvision")
    if package is None:
        raise ModuleNotFoundError("install torchvision for its networks and data sets")
    loaded = lambda: hasattr(torch.ops.torchvision, "nms")
    for library in (
        [] if loaded() else sorted(Path(package.origin).parent.glob("_C*.so"))
    ):
        with contextlib.suppress(OSError, ImportError):  # compiled for another torch
            torch.ops.load_library(str(library))
    if not loaded():
        _declared.append(torch.library.Library("torchvision", "FRAGMENT"))
        signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for operator in ("nms", "qnms"):
            _declared[-1].define(operator + signature)
