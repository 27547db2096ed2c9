"""Networks for images, small ones first.

A pool comes before its relu: as relu and then pool, and a quarter of the work.
"""

from dataclasses import dataclass
from functools import cached_property

import torch

from ..core.errors import known, listed, refuse_if
from ..core.tree import without
from .layers import RELU, Rows

STEMS = {  # kernel, stride, padding of the first convolution; max pool after it
    "imagenet": (7, 2, 3, True),
    "cifar": (3, 1, 1, False),  # for images of 32 x 32
    "tiny": (3, 2, 1, False),  # for 64 x 64, at the cost of 32 x 32
}


# ---------------------------------------------------------------- small images
@dataclass(frozen=True)
class CNN(Rows):
    """Two convolutions for small images, and the head on 4 x 4 mean pixels.

    conv 5 x 5 with stride 2, norm, relu, max pool 2; conv 3 x 3, norm, relu, mean pool
    to 4 x 4, from any size of image. GroupNorm by default, so there are no buffers."""

    channels: int
    K: int
    widths: tuple[int, int] = (16, 32)
    norm: str = "group"

    @cached_property
    def rows(self):
        refuse_if(len(listed(self.widths) or ()) != 2, f"{self}: give two widths")
        a, b = self.widths
        first = ("conv", "conv1", a, 5, 2, 2), ("norm", "norm1"), ("pool", 2), RELU
        second = ("conv", "conv2", b, 3, 1, 1), ("norm", "norm2"), RELU
        return (*first, *second, ("mean", 4))


@dataclass(frozen=True)
class FedAvgCNN(Rows):
    """The convolutional network of FedAvg's image experiments, `size` x `size` pixels.

    McMahan et al., AISTATS 2017. Twice: conv `kernel` x `kernel` without padding, relu,
    max pool 2; then a hidden linear layer and relu, the features. No norm layers. For
    CIFAR (32 pixels) this is FedAS's network (CVPR 2024, its code): 878,538 parameters
    with K = 10, 924,708 with K = 100; the paper calls it a 6-layer CNN, which counts
    the pools."""

    channels: int
    K: int
    widths: tuple[int, int] = (32, 64)
    hidden: int = 512
    size: int = 32
    kernel: int = 5

    bias = True

    @cached_property
    def rows(self):
        rows, side, k = [], self.size, self.kernel
        for i, width in enumerate(self.widths, 1):
            rows += [("conv", f"conv{i}", width, k, 1, 0), ("pool", 2), RELU]
            side = (side - k + 1) // 2
        refuse_if(side < 1, f"{self}: nothing is left; give size >= {3 * k + 1}")
        return (*rows, ("flat", side), ("dense", "fc1", self.hidden), RELU)


@dataclass(frozen=True)
class AlexNetBN(Rows):
    """AlexNet with batch norm, hidden layers of 1,024 and no dropout.

    A batch norm follows every convolution and hidden linear layer. Convolutions as in
    torchvision's `alexnet` (64, 192, 384, 256, 256), so images of at least 63 x 63.
    With K = 10 it has 12,974,154 parameters (FedGA on Office-Caltech-10; FedBN's
    network is the same with 4,096)."""

    K: int
    channels: int = 3
    hidden: int = 1024

    bias, norm = True, "batch"

    @cached_property
    def rows(self):
        rows, pooled = [], (1, 2, 5)
        table = (64, 11, 4, 2), (192, 5, 1, 2), (384, 3, 1, 1), (256, 3, 1, 1)
        for i, how in enumerate((*table, table[-1]), 1):
            rows += [("conv", f"conv{i}", *how), ("norm", f"bn{i}")]
            rows += [("pool", 3, 2), RELU] if i in pooled else [RELU]
        rows.append(("mean", 6))
        for i in (1, 2):
            rows += [("dense", f"fc{i}", self.hidden), ("norm", f"bn{5 + i}"), RELU]
        return rows


# ---------------------------------------------------------------- residual networks
def blocks(width, depths):
    """(name, width, stride) of residual blocks, depths[i] of them in stage i; every
    stage but the first has twice the width and halves the image."""
    for i, depth in enumerate(depths):
        for j in range(depth):
            yield f"layer{i + 1}.{j}", width * 2**i, 2 if i and not j else 1


@dataclass(frozen=True)
class ResNet(Rows):
    """What the residual networks of He et al. (CVPR 2016) share.

    Layer by layer and name by name they are torchvision's. stem = "imagenet" is theirs,
    a 7 x 7 convolution with stride 2 and a max pool. For small images "cifar", a 3 x 3
    convolution with stride 1 and no pool, or "tiny", the same with stride 2. norm =
    "group" keeps the names bn1, bn2 and has no buffers. torchvision's counters
    `num_batches_tracked` have no use here (the momentum is fixed) and are left out.

    weights: a file with a state dict of torchvision's network of the same name and stem
    (norm = "batch"), to start from; the head is drawn anew. It is never fetched."""

    K: int
    channels: int = 3
    norm: str = "batch"
    stem: str = "imagenet"
    weights: str = ""

    # a subclass has depths; kernels of a block; expansion, by how much a block's last
    # convolution is wider than the others
    start = "fan-out"

    @cached_property
    def rows(self):
        *how, pooled = known(STEMS, "stem", self.stem)
        rows = [("conv", "conv1", 64, *how), ("norm", "bn1"), RELU]
        rows += [("pool", 3, 2, 1)] if pooled else []
        inputs, last, strided = 64, len(self.kernels), 1 + self.kernels.index(3)
        for name, width, stride in blocks(64, self.depths):
            inside, beside, outputs = [], [], width * self.expansion
            for i, k in enumerate(self.kernels, 1):
                wide = outputs if i == last else width
                step = stride if i == strided else 1
                inside.append(("conv", f"{name}.conv{i}", wide, k, step, k // 2))
                inside += [("norm", f"{name}.bn{i}"), RELU]
            if stride != 1 or inputs != outputs:
                beside = [("conv", f"{name}.downsample.0", outputs, 1, stride, 0)]
                beside.append(("norm", f"{name}.downsample.1"))
            rows += [("add", inside[:-1], beside), RELU]
            inputs = outputs
        return (*rows, ("mean", 1))

    def init(self, seed, dtype=torch.float32):
        w = super().init(seed, dtype)
        if self.weights:
            given = torch.load(self.weights, map_location="cpu", weights_only=True)
            w |= {k: given[k].to(dtype) for k in without(w, self.head)}
        return w


@dataclass(frozen=True)
class ResNet18(ResNet):
    """ResNet-18, of basic blocks (see ResNet).

    With K = 10, batch norm and the ImageNet stem 11,181,642 parameters; 11,173,962 with
    a 3 x 3 stem."""

    depths, kernels, expansion = (2, 2, 2, 2), (3, 3), 1


@dataclass(frozen=True)
class ResNet50(ResNet):
    """ResNet-50, of bottleneck blocks (see ResNet).

    With K = 200 and a 3 x 3 stem 23,910,152 parameters."""

    depths, kernels, expansion = (3, 4, 6, 3), (1, 3, 1), 4


@dataclass(frozen=True)
class WideResNet(Rows):
    """WRN-`depth`-`width` for 32 x 32 pixels, pre-activation, without dropout.

    Zagoruyko and Komodakis, BMVC 2016. A 3 x 3 convolution to 16 channels; three stages
    of (depth - 4) / 6 blocks with 16, 32, 64 times `width` channels, the last two at
    half the size; norm, relu, mean pixel. With the defaults and K = 100 it has
    36,536,884 parameters. Where the width changes the short cut is a convolution of the
    activated input, without a norm layer, as in the authors' code."""

    K: int
    channels: int = 3
    depth: int = 28
    width: int = 10
    norm: str = "batch"

    norm_first, start, head_start = True, "fan-out", "zero-bias"

    @cached_property
    def rows(self):
        odd = self.depth < 10 or (self.depth - 4) % 6
        refuse_if(odd, f"{self}: depth must be 10, 16, 22, 28 ...: 4 + 6 n")
        rows, inputs = [("conv", "conv1", 16, 3, 1, 1)], 16
        for name, width, stride in blocks(16 * self.width, [(self.depth - 4) // 6] * 3):
            before, inside = [("norm", f"{name}.bn1"), RELU], []
            inside.append(("conv", f"{name}.conv1", width, 3, stride, 1))
            inside += [("norm", f"{name}.bn2"), RELU]
            inside.append(("conv", f"{name}.conv2", width, 3, 1, 1))
            if inputs == width:
                rows.append(("add", before + inside, []))
            else:
                shortcut = ("conv", f"{name}.shortcut", width, 1, stride, 0)
                rows += [*before, ("add", inside, [shortcut])]
            inputs = width
        return (*rows, ("norm", "bn"), RELU, ("mean", 1))
