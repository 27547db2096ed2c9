"""Our own networks: torch's numbers with torch's weights, alone and stacked, padded."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from toys_nets import GROUPS, cnn, grouped, mlp

from fedlib.core.shards import Batch
from fedlib.nets import CNN, MLP, FedAvgCNN, Linear
from fedlib.nets.images import AlexNetBN, ResNet18, ResNet50, WideResNet
from fedlib.nets.layers import ensure_torchvision, groups

T, IMAGE = torch.float64, (3, 16, 16)
ensure_torchvision()  # without it torchvision cannot be imported beside a CPU torch
SMALL = [
    (Linear(12, 4), (12,)),
    (MLP(12, 7, 4), (12,)),
    (MLP(12, (32, 8), 4, norm="group"), (12,)),
    (MLP(12, (7, 5), 4, norm="batch"), (3, 2, 2)),
    (CNN(3, 4), IMAGE),
    (CNN(3, 4, widths=(8, 12), norm="batch"), IMAGE),
    (FedAvgCNN(3, 4, (4, 6), 12, size=16), IMAGE),
    (WideResNet(4, depth=10, width=1), IMAGE),
]
LARGE = [(ResNet18(4), (3, 64, 64)), (AlexNetBN(4, hidden=32), (3, 63, 63))]


def batch(shape, n, real=None, seed=0, K=4):
    """n rows; the first `real` of them count, all without a mask if real is None."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, *shape, generator=g, dtype=T)
    y = torch.randint(0, K, (n,), generator=g)
    m = None if real is None else (torch.arange(n) < real).double()
    return Batch(x, y, None, m, torch.arange(n), None, n)


def loss(net, w, b):
    z = net.out(w, net.feat(w, b.x, b))
    return b.avg(F.cross_entropy(z, b.y, reduction="none"))


def slopes(net, w, b):
    """Gradient by autograd, outside any transform."""
    p = {k: v.clone().requires_grad_(k not in net.buffers) for k, v in w.items()}
    names = [k for k in p if k not in net.buffers]
    return dict(zip(names, torch.autograd.grad(loss(net, p, b), [p[k] for k in names])))


def far(a, b):
    assert a.keys() == b.keys()
    return max(float((a[k] - b[k]).abs().max()) for k in a)


@pytest.mark.parametrize("net, shape", SMALL + LARGE, ids=lambda v: str(v)[:40])
def test_names_shapes_and_starts(net, shape):
    w, b = net.init(3, T), batch(shape, 5)
    named = [n for layer in net.layers for n in layer]
    assert len(named) == len({*named}) and {*named, *net.buffers} == {*w}
    assert not {*named} & {*net.buffers} and net.layers[-1] == net.head
    z = net.feat(w, b.x, b)
    assert z.shape == (5, net.D) and net.out(w, z).shape == (5, net.K)
    body, head = {k: w[k] for k in w if k not in net.head}, {k: w[k] for k in net.head}
    assert torch.equal(net.out(head, net.feat(body, b.x)), net.out(w, net.feat(w, b.x)))
    norm = [n for n in w if re.search(r"(norm\d|bn\d?|downsample.1)\.", n)]
    assert [*net.norms] == norm
    units = [n for u in net.units for n in u]  # a layer with its norm layer
    assert units == [n for n in w if n in named]
    for u in net.units:
        assert sum(w[n].dim() > 1 for n in u) == 1
        assert sum(w[n].dim() == 1 and n.endswith("weight") for n in u) <= 1
    assert far(net.init(3, T), w) == 0 and far(net.init(4, T), w) > 0
    assert far(w, {k: v.double() for k, v in net.init(3).items()}) == 0


@pytest.mark.parametrize("net, shape", SMALL, ids=lambda v: str(v)[:40])
def test_stacked_models_are_single_models_and_padding_does_not_count(net, shape):
    for real in (None, 4):
        ws = [net.init(s, T) for s in range(3)]
        bs = [batch(shape, 6, real, seed=s) for s in range(3)]
        W = {k: torch.stack([w[k] for w in ws]) for k in ws[0]}
        X, Y = torch.stack([b.x for b in bs]), torch.stack([b.y for b in bs])

        def one(w, x, y, m=bs[0].m):
            b, buffers = Batch(x, y, None, m, None, None, 6), net.buffers
            rest = {k: w[k] for k in buffers}
            p = {k: v for k, v in w.items() if k not in buffers}
            return torch.func.grad(lambda p: loss(net, p | rest, b))(p)

        G = torch.func.vmap(one)(W, X, Y)
        Z = torch.func.vmap(lambda w, x: net.out(w, net.feat(w, x)))(W, X)
        for i in range(3):
            alone = net.out(ws[i], net.feat(ws[i], X[i]))
            assert torch.allclose(Z[i], alone, rtol=1e-11, atol=1e-12)
            mine = {k: g[i] for k, g in G.items()}
            assert far(mine, slopes(net, ws[i], bs[i])) < 1e-12
    w, padded = ws[0], bs[0]
    exact = padded._replace(x=padded.x[:4], y=padded.y[:4], m=None)
    other = padded._replace(x=torch.cat([padded.x[:4], 9 - padded.x[4:]]))
    assert far(slopes(net, w, padded), slopes(net, w, exact)) < 1e-12
    assert far(slopes(net, w, padded), slopes(net, w, other)) < 1e-12
    a, b = {}, {}
    net.feat(w, padded.x, padded, a)
    net.feat(w, exact.x, exact, b)
    assert {*a} == {*net.buffers} and (not a or far(a, b) < 1e-12)


class Wide(nn.Module):
    """A wide residual network, depth 10: bn -> relu -> conv, widths listed by hand."""

    def __init__(self, K, width, norm):
        super().__init__()
        conv = lambda a, b, k, s: nn.Conv2d(a, b, k, s, k // 2, bias=False)
        self.conv1, at = conv(3, 16, 3, 1), 16
        for s, channels in enumerate((16 * width, 32 * width, 64 * width), 1):
            block = nn.Module()
            block.bn1, block.conv1 = norm(at), conv(at, channels, 3, 1 + (s > 1))
            block.bn2, block.conv2 = norm(channels), conv(channels, channels, 3, 1)
            if at != channels:
                block.shortcut = conv(at, channels, 1, 1 + (s > 1))
            setattr(self, f"layer{s}", nn.ModuleList([block]))
            at = channels
        self.bn, self.fc = norm(at), nn.Linear(at, K)

    def forward(self, x):
        x = self.conv1(x)
        for (block,) in (self.layer1, self.layer2, self.layer3):
            z = block.bn1(x).relu()
            x = block.shortcut(z) if hasattr(block, "shortcut") else x
            x = x + block.conv2(block.bn2(block.conv1(z)).relu())
        return self.fc(self.bn(x).relu().mean((2, 3)))


def fedavg_cnn(kernel, size):
    side = ((size - kernel + 1) // 2 - kernel + 1) // 2
    block = lambda a, b: [nn.Conv2d(a, b, kernel), nn.ReLU(), nn.MaxPool2d(2)]
    end = [nn.Flatten(), nn.Linear(16 * side**2, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*block(3, 8), *block(8, 16), *end)


def alexnet(hidden):
    from torchvision.models import alexnet

    layers = []
    for m in alexnet(weights=None).features:
        norm = isinstance(m, nn.Conv2d)
        layers += [m, nn.BatchNorm2d(m.out_channels)] if norm else [m]
    layers += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]
    for a in (9216, hidden):
        layers += [nn.Linear(a, hidden), nn.BatchNorm1d(hidden), nn.ReLU()]
    for m in layers:
        m.inplace = False
    return nn.Sequential(*layers, nn.Linear(hidden, 10))


def resnet(stem="imagenet", depth=18, **more):
    from torchvision import models

    module = getattr(models, f"resnet{depth}")(weights=None, num_classes=10, **more)
    if stem != "imagenet":
        module.conv1 = nn.Conv2d(3, 64, 3, 1 + (stem == "tiny"), 1, bias=False)
        module.maxpool = nn.Identity()
    return module


B1, B2, by_group = nn.BatchNorm1d, nn.BatchNorm2d, {"norm_layer": grouped}
FLAT, SEEN, SIZES = (12, (32, 16), 10), (3, 10, (32, 64)), (3, 10, (8, 16), 64)
FIFTY = ResNet50(10, 3, "group", "tiny")
WIDE, WIDER = WideResNet(10, 3, 10, 2), WideResNet(10, 3, 10, 10, "group")
TWINS = {
    "mlp batch": (MLP(*FLAT, "batch"), lambda: mlp(12, 32, 16, 10, norm=B1), 0),
    "mlp group": (MLP(*FLAT, "group"), lambda: mlp(12, 32, 16, 10, norm=grouped), 0),
    "cnn": (CNN(*SEEN), lambda: cnn(*SEEN), 16),
    "cnn batch": (CNN(*SEEN, "batch"), lambda: cnn(*SEEN, B2), 32),
    "fedavg": (FedAvgCNN(*SIZES, 16), lambda: fedavg_cnn(5, 16), 16),
    "kernel 3": (FedAvgCNN(*SIZES, 17, 3), lambda: fedavg_cnn(3, 17), 17),
    "wide": (WIDE, lambda: Wide(10, 2, B2), 12),
    "wide group": (WIDER, lambda: Wide(10, 10, grouped), 8),
    "alexnet": (AlexNetBN(10, hidden=48), lambda: alexnet(48), 70),
    "resnet": (ResNet18(10), resnet, 64),
    "resnet cifar": (ResNet18(10, stem="cifar"), lambda: resnet("cifar"), 16),
    "resnet group": (ResNet18(10, norm="group"), lambda: resnet(**by_group), 32),
    "resnet 50": (FIFTY, lambda: resnet("tiny", 50, **by_group), 16),
}


@pytest.mark.parametrize("name", TWINS)
def test_with_torchs_weights_the_numbers_are_torchs(name):
    """Evaluation, training, gradients and running statistics; and where they start."""
    net, make, side = TWINS[name]
    torch.manual_seed(0)
    module = make()
    given = {k: v for k, v in module.state_dict().items() if "num_batches" not in k}
    ours = net.init(0)
    assert [v.shape for v in ours.values()] == [v.shape for v in given.values()]
    if "resnet" in name:
        assert list(ours) == list(given)
    for k, v in zip(ours, given.values()):
        if v.numel() > 2000 and v.dim() > 1 and "wide" not in name:
            assert abs(float(ours[k].std() / v.std()) - 1) < 0.1, k
            assert abs(float(ours[k].abs().max() / v.abs().max()) - 1) < 0.5, k
    module, b = module.double(), batch((3, side, side) if side else (12,), 4, K=10)
    tensors = [v for k, v in module.state_dict().items() if "num_batches" not in k]
    w = {k: v.clone() for k, v in zip(ours, tensors)}
    with torch.no_grad():
        want = module.eval()(b.x)
    assert torch.allclose(net.out(w, net.feat(w, b.x)), want, rtol=1e-9, atol=1e-10)
    F.cross_entropy(module.train()(b.x), b.y).backward()
    grads = zip((k for k in ours if k not in net.buffers), module.parameters())
    got, stats = slopes(net, w, b), {}
    for k, p in grads:
        most = 1e-8 * p.grad.abs().max().clamp(min=1e-3)
        assert float((got[k] - p.grad).abs().max()) < most, k
    net.feat(w, b.x, b, stats)
    for k, v in zip(ours, tensors):
        if k in net.buffers:
            assert torch.allclose(stats[k], v, atol=1e-10), k
            assert not torch.equal(w[k], v), k


def test_sizes():
    """As the papers state them."""
    sizes = {FedAvgCNN(3, 10): 878_538, FedAvgCNN(3, 100): 924_708}
    sizes |= {AlexNetBN(10): 12_974_154, WideResNet(100): 36_536_884}
    for net, want in sizes.items():
        shapes = {f"{p.name}.{k}": s for p in net.parts for k, s in p.shapes.items()}
        real = [s for k, s in shapes.items() if k not in net.buffers]
        assert sum(math.prod(s) for s in real) == want, net
    pre = WideResNet(10, depth=10, width=2).units
    bn = ("layer1.0.bn1.weight", "layer1.0.bn1.bias")
    assert pre[1] == (*bn, "layer1.0.conv1.weight")
    assert ResNet18(10).units[0] == ("conv1.weight", "bn1.weight", "bn1.bias")


def test_starts_that_are_not_torchs():
    w = Linear(60, 10).init(0)
    bound = 1 / math.sqrt(60)
    assert not w["fc.bias"].any() and 0.97 * bound < w["fc.weight"].abs().max() <= bound
    assert abs(float(w["fc.weight"].std()) / (bound / math.sqrt(3)) - 1) < 0.05
    w = WideResNet(10, depth=10, width=4).init(0)
    assert not w["fc.bias"].any() and w["fc.weight"].abs().max() <= 1 / math.sqrt(256)
    for name, out in (("layer1.0.conv1", 9 * 64), ("layer3.0.shortcut", 256)):
        std = float(w[name + ".weight"].std())
        assert abs(std / math.sqrt(2 / out) - 1) < 0.03, name


def test_norm_layers():
    for channels in range(1, 700):
        g = groups(channels)
        assert channels % g == 0 and 32 % g == 0 and (g == 1 or channels >= 4 * g)
    assert all(groups(c) == g for c, g in GROUPS.items())
    net = MLP(12, (7, 5), 4, norm="batch")
    w = net.init(0, T)
    w["norm2.bias"] += torch.linspace(-1, 1, net.D, dtype=T)
    for b in (batch((12,), 1), batch((12,), 3, 1)):  # a lone row is its own mean
        stats = {}
        z = net.feat(w, b.x, b, stats)
        assert torch.allclose(z[0], w["norm2.bias"].relu(), atol=1e-12)
        assert all(v.isfinite().all() for v in stats.values())
    b = batch((12,), 5)  # evaluation uses the buffers, and training does not
    moved = w | {k: w[k] + 0.5 for k in net.buffers}
    assert torch.equal(net.feat(w, b.x, b), net.feat(moved, b.x, b))
    assert not torch.allclose(net.feat(w, b.x), net.feat(moved, b.x))


def test_closed_form_gradients_are_autograds():
    for net in (Linear(12, 4), MLP(12, 7, 4), MLP(12, (6, 5), 4)):
        for n, real in ((8, None), (1, None), (8, 5), (8, 0), (0, None)):
            w, b = net.init(0, T), batch((3, 2, 2), n, real)
            w["fc.bias"] += torch.linspace(-1, 1, 4, dtype=T)
            g = net.gradient(w, b)
            zero = {k: torch.zeros_like(v) for k, v in w.items()}
            assert far(g, slopes(net, w, b) if n and real != 0 else zero) < 1e-14
            assert list(g) == list(w)
    assert MLP(12, 7, 4, norm="group").dense is None


def test_weights_from_a_file_are_the_bodys(tmp_path):
    given, path = ResNet18(3).init(1), str(tmp_path / "w.pt")
    torch.save(given, path)
    net, fresh = ResNet18(3, weights=path), ResNet18(3).init(2)
    want = given | {k: fresh[k] for k in net.head}  # the head is drawn anew
    assert far(net.init(2), want) == 0
