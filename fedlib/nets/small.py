"""Networks for vectors and small images.

A pool comes before its relu: as relu and then pool, and a quarter of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch.nn.functional as F

from .closed import Closed
from .layers import (
    Net,
    conv,
    conv_part,
    dense,
    linear_part,
    mean_pool,
    norm_part,
    normalise,
)


# ---------------------------------------------------------------- vectors
@dataclass(frozen=True)
class Linear(Closed):
    """Softmax regression: logits = x W' + c.

    The bias starts at 0, the weights uniform in +-1/sqrt(inputs) (FedGA, Synthetic).
    """

    inputs: int
    K: int

    D = property(lambda self: self.inputs)
    dense = ("fc",)

    @cached_property
    def parts(self):
        return (linear_part("fc", self.K, self.inputs, "zero-bias"),)

    def feat(self, w, x, b=None, stats=None):
        return x if x.dim() == 2 else x.flatten(1)


@dataclass(frozen=True)
class MLP(Closed):
    """Linear layers with relu between them; `hidden` is one width or a tuple of widths.

    Images are flattened. norm: "none", or "group" or "batch" for a norm layer after
    each hidden linear layer, before its relu.
    """

    inputs: int
    hidden: int | tuple[int, ...]
    K: int
    norm: str = "none"

    D = property(lambda self: self.widths[-1])

    @property
    def widths(self):
        """The widths of the hidden layers."""
        return (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)

    @property
    def dense(self):
        hidden = [f"fc{i}" for i in range(1, len(self.widths) + 1)]
        return (*hidden, "fc") if self.norm == "none" else None

    @cached_property
    def parts(self):
        if self.norm not in ("none", "batch", "group"):
            raise ValueError(
                f'MLP has norm = {self.norm!r}: use "none", "batch" or "group"'
            )
        parts, inputs = [], self.inputs
        for i, width in enumerate(self.widths, 1):
            parts.append(linear_part(f"fc{i}", width, inputs))
            if self.norm != "none":
                parts.append(norm_part(f"norm{i}", width, self.norm))
            inputs = width
        return (*parts, linear_part("fc", self.K, self.D))

    def feat(self, w, x, b=None, stats=None):
        z = x.flatten(1)
        for i in range(1, len(self.widths) + 1):
            z = dense(w, f"fc{i}", z)
            if self.norm != "none":
                z = normalise(self, w, f"norm{i}", z, b, stats)
            z = z.relu()
        return z


# ---------------------------------------------------------------- small images
@dataclass(frozen=True)
class CNN(Net):
    """Two convolutions for small images, and the head on 4 x 4 mean pixels.

    conv 5 x 5 with stride 2, norm, relu, max pool 2; conv 3 x 3, norm, relu, mean pool
    to 4 x 4, from any size of image. GroupNorm by default, so there are no buffers.
    """

    channels: int
    K: int
    widths: tuple[int, int] = (16, 32)
    norm: str = "group"

    D = property(lambda self: 16 * self.widths[1])

    @cached_property
    def parts(self):
        a, b = self.widths
        return (
            conv_part("conv1", a, self.channels, 5),
            norm_part("norm1", a, self.norm),
            conv_part("conv2", b, a, 3),
            norm_part("norm2", b, self.norm),
            linear_part("fc", self.K, self.D),
        )

    def feat(self, w, x, b=None, stats=None):
        z = conv(w, "conv1", x, 2, 2)
        z = F.max_pool2d(normalise(self, w, "norm1", z, b, stats), 2).relu()
        z = conv(w, "conv2", z, 1, 1)
        z = normalise(self, w, "norm2", z, b, stats).relu()
        return mean_pool(z, 4).flatten(1)


@dataclass(frozen=True)
class FedAvgCNN(Net):
    """The convolutional network of FedAvg's image experiments, `size` x `size` pixels.

    McMahan et al., AISTATS 2017. Twice: conv `kernel` x `kernel` without padding, relu,
    max pool 2; then a hidden linear layer and relu, the features. No norm layers. For
    CIFAR (32 pixels) this is FedAS's network (CVPR 2024, its code): 878,538 parameters
    with K = 10, 924,708 with K = 100; the paper calls it a 6-layer CNN, which counts
    the pools.
    """

    channels: int
    K: int
    widths: tuple[int, int] = (32, 64)
    hidden: int = 512
    size: int = 32
    kernel: int = 5

    D = property(lambda self: self.hidden)

    @cached_property
    def side(self):
        """Pixels per side that are left: size -> (size - kernel + 1) // 2, twice."""
        side = self.size
        for _ in self.widths:
            side = (side - self.kernel + 1) // 2
        if side < 1:
            raise ValueError(
                f"FedAvgCNN with size = {self.size} and kernel = {self.kernel}: "
                "nothing is left after two convolutions and pools; it needs "
                f"size >= {3 * self.kernel + 1} or a smaller kernel"
            )
        return side

    @cached_property
    def parts(self):
        a, b = self.widths
        return (
            conv_part("conv1", a, self.channels, self.kernel, bias=True),
            conv_part("conv2", b, a, self.kernel, bias=True),
            linear_part("fc1", self.hidden, b * self.side**2),
            linear_part("fc", self.K, self.hidden),
        )

    def feat(self, w, x, b=None, stats=None):
        if x.shape[-2:] != (self.size, self.size):
            raise ValueError(
                f"FedAvgCNN has size = {self.size} and got images of "
                f"{x.shape[-2]} x {x.shape[-1]} pixels: give the network the size of "
                "the images, or resize them"
            )
        for name in ("conv1", "conv2"):
            x = F.max_pool2d(conv(w, name, x), 2).relu()
        return dense(w, "fc1", x.flatten(1)).relu()
