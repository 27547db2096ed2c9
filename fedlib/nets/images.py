"""Networks for images, small ones first.

A pool comes before its relu: as relu and then pool, and a quarter of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F

from ..core.tree import without
from .layers import Net, conv, conv_part, dense, linear_part, mean_pool, norm_part

STEMS = {  # kernel, stride, padding of the first convolution; max pool after it
    "imagenet": (7, 2, 3, True),
    "cifar": (3, 1, 1, False),  # for images of 32 x 32
    "tiny": (3, 2, 1, False),  # for 64 x 64, at the cost of 32 x 32
}


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
        z = self.normed(w, "norm1", conv(w, "conv1", x, 2, 2), b, stats)
        z = conv(w, "conv2", F.max_pool2d(z, 2).relu(), 1, 1)
        return mean_pool(self.normed(w, "norm2", z, b, stats).relu(), 4).flatten(1)


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
    def parts(self):
        (a, b), k = self.widths, self.kernel
        halved = lambda size: (size - k + 1) // 2  # by a convolution and a pool
        side = halved(halved(self.size))
        if side < 1:
            raise ValueError(f"{self}: nothing is left; give size >= {3 * k + 1}")
        return (
            conv_part("conv1", a, self.channels, k, bias=True),
            conv_part("conv2", b, a, k, bias=True),
            linear_part("fc1", self.hidden, b * side**2),
            linear_part("fc", self.K, self.hidden),
        )

    def feat(self, w, x, b=None, stats=None):
        for name in ("conv1", "conv2"):
            x = F.max_pool2d(conv(w, name, x), 2).relu()
        return dense(w, "fc1", x.flatten(1)).relu()


# ---------------------------------------------------------------- residual networks
def stages(inputs, widths, depths):
    """(name, inputs, outputs, stride) of the residual blocks: depths[i] of them with
    widths[i] channels; every stage but the first halves the image."""
    rows = []
    for i, (width, depth) in enumerate(zip(widths, depths)):
        for j in range(depth):
            rows.append((f"layer{i + 1}.{j}", inputs, width, 2 if i and not j else 1))
            inputs = width
    return tuple(rows)


def fan_out(name, outputs, inputs, kernel):
    """A convolution that starts as the residual networks' do."""
    return conv_part(name, outputs, inputs, kernel, start="fan-out")


def pretrained(path, like, dtype):
    """The tensors that `like` names, from a file with a state dict of equal shapes."""
    try:
        got = torch.load(path, map_location="cpu", weights_only=True)
        wrong = [k for k, v in like.items() if got[k].shape != v.shape]
        if wrong:
            raise ValueError(f"{wrong[0]} has shape {list(got[wrong[0]].shape)}")
    except Exception as e:
        raise ValueError(
            f"weights = {path!r} is no state dict of this network, with this stem "
            f"({type(e).__name__}: {e}); put torchvision's there, or leave it out"
        ) from e
    return {k: got[k].to(dtype) for k in like}


@dataclass(frozen=True)
class ResNet(Net):
    """What the residual networks of He et al. (CVPR 2016) share.

    Layer by layer and name by name they are torchvision's. stem = "imagenet" is theirs,
    a 7 x 7 convolution with stride 2 and a max pool. For small images "cifar", a 3 x 3
    convolution with stride 1 and no pool, or "tiny", the same with stride 2. norm =
    "group" keeps the names bn1, bn2 and has no buffers. torchvision's counters
    `num_batches_tracked` have no use here (the momentum is fixed) and are left out.

    weights: a file with a state dict of torchvision's network of the same name, to
    start from instead of random tensors; the head is drawn anew. It is never fetched.
    """

    K: int
    channels: int = 3
    norm: str = "batch"
    stem: str = "imagenet"
    weights: str = ""

    # a subclass has depths; kernels of a block; expansion, by how much a block's last
    # convolution is wider than the others
    D = property(lambda self: 512 * self.expansion)

    @cached_property
    def blocks(self):
        widths = [64 * 2**i * self.expansion for i in range(4)]
        return stages(64, widths, self.depths)

    @cached_property
    def parts(self):
        if self.stem not in STEMS:
            raise ValueError(f"stem = {self.stem!r}: use one of {', '.join(STEMS)}")
        blocks = [part for row in self.blocks for part in self.block_parts(*row)]
        return (
            fan_out("conv1", 64, self.channels, STEMS[self.stem][0]),
            norm_part("bn1", 64, self.norm),
            *blocks,
            linear_part("fc", self.K, self.D),
        )

    def block_parts(self, name, inputs, outputs, stride):
        """Convolutions, each with its norm; another in the short cut where the shape
        changes."""
        narrow = [outputs // self.expansion] * (len(self.kernels) - 1)
        channels, parts = [inputs, *narrow, outputs], []
        layers = [(f"conv{i}", f"bn{i}") for i in range(1, len(self.kernels) + 1)]
        wires = [*zip(layers, self.kernels, channels, channels[1:])]
        if stride != 1 or inputs != outputs:
            wires.append((("downsample.0", "downsample.1"), 1, inputs, outputs))
        for (conv_name, norm_name), kernel, a, b in wires:
            parts.append(fan_out(f"{name}.{conv_name}", b, a, kernel))
            parts.append(norm_part(f"{name}.{norm_name}", b, self.norm))
        return parts

    def block(self, w, name, x, stride, b, stats):
        """relu(norm(conv(... relu(norm(conv(x))))) + shortcut(x)); the first 3 x 3 has
        the stride."""
        norm = lambda k, z: self.normed(w, f"{name}.{k}", z, b, stats)
        z, strided = x, self.kernels.index(3)
        for i, kernel in enumerate(self.kernels):
            z = z.relu() if i else z
            step = stride if i == strided else 1
            z = conv(w, f"{name}.conv{i + 1}", z, step, kernel // 2)
            z = norm(f"bn{i + 1}", z)
        if f"{name}.downsample.0.weight" in w:
            x = norm("downsample.1", conv(w, f"{name}.downsample.0", x, stride))
        return (z + x).relu()

    def init(self, seed, dtype=torch.float32):
        w = super().init(seed, dtype)
        if not self.weights:
            return w
        if self.norm != "batch":
            raise ValueError(
                f"weights = {self.weights!r} with norm = {self.norm!r}: these weights "
                "were trained with batch norm; leave one of the two out"
            )
        return w | pretrained(self.weights, without(w, self.head), dtype)

    def feat(self, w, x, b=None, stats=None):
        _, stride, padding, pooled = STEMS[self.stem]
        z = conv(w, "conv1", x, stride, padding)
        z = self.normed(w, "bn1", z, b, stats).relu()
        z = F.max_pool2d(z, 3, 2, 1) if pooled else z
        for name, _, _, stride in self.blocks:
            z = self.block(w, name, z, stride, b, stats)
        return z.mean((2, 3))


@dataclass(frozen=True)
class ResNet18(ResNet):
    """ResNet-18, of basic blocks (see ResNet).

    With K = 10, batch norm and the ImageNet stem 11,181,642 parameters; 11,173,962 with
    a 3 x 3 stem.
    """

    depths, kernels, expansion = (2, 2, 2, 2), (3, 3), 1


@dataclass(frozen=True)
class ResNet50(ResNet):
    """ResNet-50, of bottleneck blocks (see ResNet).

    With K = 200 and a 3 x 3 stem 23,910,152 parameters.
    """

    depths, kernels, expansion = (3, 4, 6, 3), (1, 3, 1), 4


@dataclass(frozen=True)
class WideResNet(Net):
    """WRN-`depth`-`width` for 32 x 32 pixels, pre-activation, without dropout.

    Zagoruyko and Komodakis, BMVC 2016. A 3 x 3 convolution to 16 channels; three stages
    of (depth - 4) / 6 blocks with 16, 32, 64 times `width` channels, the last two at
    half the size; norm, relu, mean pixel. With the defaults and K = 100 it has
    36,536,884 parameters. Where the width changes the short cut is a convolution of the
    activated input, without a norm layer, as in the authors' code.
    """

    K: int
    channels: int = 3
    depth: int = 28
    width: int = 10
    norm: str = "batch"

    norm_first = True
    D = property(lambda self: 64 * self.width)

    @cached_property
    def blocks(self):
        if self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(f"{self}: depth must be 10, 16, 22, 28 ...: 4 + 6 n")
        widths = [16 * 2**i * self.width for i in range(3)]
        return stages(16, widths, [(self.depth - 4) // 6] * 3)

    @cached_property
    def parts(self):
        blocks = [part for row in self.blocks for part in self.block_parts(*row)]
        return (
            fan_out("conv1", 16, self.channels, 3),
            *blocks,
            norm_part("bn", self.D, self.norm),
            linear_part("fc", self.K, self.D, "zero-bias"),
        )

    def block_parts(self, name, inputs, outputs, stride):
        """Twice norm and convolution; one in the short cut where the width changes."""
        shortcut = fan_out(f"{name}.shortcut", outputs, inputs, 1)
        return (
            norm_part(f"{name}.bn1", inputs, self.norm),
            fan_out(f"{name}.conv1", outputs, inputs, 3),
            norm_part(f"{name}.bn2", outputs, self.norm),
            fan_out(f"{name}.conv2", outputs, outputs, 3),
            *((shortcut,) if inputs != outputs else ()),
        )

    def block(self, w, name, x, stride, b, stats):
        """conv(relu(norm(conv(z)))) + x with z = relu(norm(x)); + conv(z) where the
        width changes."""
        z = self.normed(w, f"{name}.bn1", x, b, stats).relu()
        if f"{name}.shortcut.weight" in w:
            x = conv(w, f"{name}.shortcut", z, stride)
        z = conv(w, f"{name}.conv1", z, stride, 1)
        z = self.normed(w, f"{name}.bn2", z, b, stats).relu()
        return conv(w, f"{name}.conv2", z, 1, 1) + x

    def feat(self, w, x, b=None, stats=None):
        z = conv(w, "conv1", x, 1, 1)
        for name, _, _, stride in self.blocks:
            z = self.block(w, name, z, stride, b, stats)
        return self.normed(w, "bn", z, b, stats).relu().mean((2, 3))


# ---------------------------------------------------------------- AlexNet
@dataclass(frozen=True)
class AlexNetBN(Net):
    """AlexNet with batch norm, hidden layers of 1,024 and no dropout.

    A batch norm follows every convolution and hidden linear layer. Convolutions as in
    torchvision's `alexnet` (64, 192, 384, 256, 256), so images of at least 63 x 63.
    With K = 10 it has 12,974,154 parameters (FedGA on Office-Caltech-10; FedBN's
    network is the same with 4,096).
    """

    K: int
    channels: int = 3
    hidden: int = 1024

    norm = "batch"
    D = property(lambda self: self.hidden)
    # outputs, kernel, stride, padding, pooled afterwards
    convolutions = (
        (64, 11, 4, 2, True),
        (192, 5, 1, 2, True),
        (384, 3, 1, 1, False),
        (256, 3, 1, 1, False),
        (256, 3, 1, 1, True),
    )

    @cached_property
    def parts(self):
        parts, inputs = [], self.channels
        for i, (outputs, kernel, *_) in enumerate(self.convolutions, 1):
            parts.append(conv_part(f"conv{i}", outputs, inputs, kernel, bias=True))
            parts.append(norm_part(f"bn{i}", outputs, self.norm))
            inputs = outputs
        for i, width in ((1, 36 * inputs), (2, self.hidden)):  # 6 x 6 pixels are left
            parts.append(linear_part(f"fc{i}", self.hidden, width))
            parts.append(norm_part(f"bn{5 + i}", self.hidden, self.norm))
        return (*parts, linear_part("fc", self.K, self.hidden))

    def feat(self, w, x, b=None, stats=None):
        z = x
        for i, (_, _, stride, padding, pooled) in enumerate(self.convolutions, 1):
            z = conv(w, f"conv{i}", z, stride, padding)
            z = self.normed(w, f"bn{i}", z, b, stats).relu()
            z = F.max_pool2d(z, 3, 2) if pooled else z
        z = F.adaptive_avg_pool2d(z, 6).flatten(1)
        for i in (1, 2):
            z = self.normed(w, f"bn{5 + i}", dense(w, f"fc{i}", z), b, stats).relu()
        return z
