"""Layers as functions of (w, x), the parts that a network is made of,
and what all networks share.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..core.local import transformed

EPS, MOMENTUM = 1e-5, 0.1  # of batch norm, as in torch


# ----------------------------------------------------- parts: what a network is made of
class Part(NamedTuple):
    """One layer: its name, the shapes of its tensors, and how they start."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    start: str  # torch, fan-out, zero-bias, norm

    def names(self, buffers=False):
        return tuple(
            f"{self.name}.{leaf}"
            for leaf in self.shapes
            if leaf.startswith("running_") == buffers
        )

    def draw(self, generator):
        """Initial tensors in float32."""
        shape, w = self.shapes["weight"], {}
        bound = 1 / math.sqrt(math.prod(shape[1:]))  # fan in = inputs x kernel area
        for leaf, size in self.shapes.items():
            if self.start == "norm":
                v = (
                    torch.ones(size)
                    if leaf in ("weight", "running_var")
                    else torch.zeros(size)
                )
            elif leaf == "bias" and self.start == "zero-bias":
                v = torch.zeros(size)
            elif self.start == "fan-out":
                # He et al.: keep the variance of gradients through relu
                v = torch.randn(size, generator=generator) * math.sqrt(
                    2 / (shape[0] * math.prod(shape[2:]))
                )
            else:
                v = (2 * torch.rand(size, generator=generator) - 1) * bound
            w[f"{self.name}.{leaf}"] = v
        return w


def linear_part(name, outputs, inputs, start="torch"):
    return Part(name, {"weight": (outputs, inputs), "bias": (outputs,)}, start)


def conv_part(name, outputs, inputs, kernel, bias=False, start="torch"):
    return Part(
        name,
        {"weight": (outputs, inputs, kernel, kernel)}
        | ({"bias": (outputs,)} if bias else {}),
        start,
    )


def norm_part(name, channels, norm):
    if norm not in ("batch", "group"):
        raise ValueError(f'norm = {norm!r}: use "batch" or "group"')
    running = (
        {"running_mean": (channels,), "running_var": (channels,)}
        if norm == "batch"
        else {}
    )
    return Part(name, {"weight": (channels,), "bias": (channels,)} | running, "norm")


class Net:
    """What all networks share; a subclass is a frozen dataclass with `parts` (in
    forward order), `D`, `K` and `feat`.
    """

    # True: pre-activation, a norm layer belongs to the layer after it
    norm_first = False

    @cached_property
    def layers(self):
        return tuple(p.names() for p in self.parts)

    @cached_property
    def units(self):
        """Names of parameters, one tuple per convolution or linear layer together with
        the norm layer that belongs to it.

        That is the layer before the norm layer, or with `norm_first` the one after it.
        ValueError for a norm layer without one.
        """
        units = []  # each grows from its convolution or linear layer
        for part in self.parts[::-1] if self.norm_first else self.parts:
            if part.start != "norm":
                units.append([part])
            elif units and len(units[-1]) == 1:
                units[-1].append(part)
            else:
                side, other = (
                    ("after", "before") if self.norm_first else ("before", "after")
                )
                raise ValueError(
                    f"{self}: the norm layer {part.name!r} has no convolution "
                    f"or linear layer of its own right {side} it in "
                    f"`parts`; list it right {other} its layer, or set "
                    f"norm_first = {not self.norm_first}"
                )
        units = [u[::-1] for u in units[::-1]] if self.norm_first else units
        return tuple(tuple(n for part in u for n in part.names()) for u in units)

    @cached_property
    def head(self):
        return self.parts[-1].names()

    @cached_property
    def buffers(self):
        return tuple(n for p in self.parts for n in p.names(buffers=True))

    def init(self, seed: int, dtype=torch.float32) -> dict:
        """Weights and buffers.

        They are drawn in float32, so both precisions start from the same model.
        """
        generator = torch.Generator().manual_seed(seed)
        return {
            name: v.to(dtype)
            for p in self.parts
            for name, v in p.draw(generator).items()
        }

    def out(self, w, z):
        """Features [B, D] -> logits [B, K]."""
        return F.linear(z, w[self.head[0]], w[self.head[1]])


# ---------------------------------------------------------------- layers as functions
def dense(w, name, z):
    return F.linear(z, w[name + ".weight"], w[name + ".bias"])


def conv(w, name, z, stride=1, padding=0):
    return F.conv2d(z, w[name + ".weight"], w.get(name + ".bias"), stride, padding)


def group_norm(w, name, z):
    """Per image (Wu and He, ECCV 2018). z [B, channels, ...]."""
    return F.group_norm(
        z, groups(z.shape[1]), w[name + ".weight"], w[name + ".bias"], EPS
    )


def groups(channels):
    """How many: a power of two that divides the channels, at most 32; below 128
    channels, four or more share a group.
    """
    return math.gcd(32, channels, max(1, channels // 4) if channels < 128 else channels)


def batch_norm(w, name, z, b, stats):
    """z [B, channels, ...].

    With one row that counts (and no pixels) the mean is the row itself: its output is
    the bias.
    """
    gain, bias = w[name + ".weight"], w[name + ".bias"]
    if b is None:  # buffers are constants to a gradient
        mean, var = (
            w[name + ".running_mean"].detach(),
            w[name + ".running_var"].detach(),
        )
        return F.batch_norm(z, mean, var, gain, bias, False, MOMENTUM, EPS)
    if b.m is None and stats is None and z.numel() > z.shape[1]:
        return F.batch_norm(z, None, None, gain, bias, True, MOMENTUM, EPS)
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
        fresh = {"running_mean": mean, "running_var": var * (n / (n - 1).clamp(min=1))}
        for leaf, v in fresh.items():
            stats[f"{name}.{leaf}"] = (1 - MOMENTUM) * w[
                f"{name}.{leaf}"
            ] + MOMENTUM * v
    return gap * ((var + EPS).rsqrt() * gain).view(column) + bias.view(column)


def normalise(net, w, name, z, b, stats):
    return (
        group_norm(w, name, z)
        if net.norm == "group"
        else batch_norm(w, name, z, b, stats)
    )


def pixels(x):
    """Images in the memory order in which convolutions and pooling are quickest on a
    CPU; the values are the same.
    """
    return x if transformed() else x.contiguous(memory_format=torch.channels_last)
