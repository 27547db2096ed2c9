"""Networks: one function alone, under grad and vmap, padded or not; torchvision's
numbers where a paper uses torchvision's.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedlib.core.batches import Batch
from fedlib.nets import (
    CNN,
    MLP,
    AlexNetBN,
    FedAvgCNN,
    Linear,
    ResNet18,
    ResNet50,
    WideResNet,
    group_norm,
)
from fedlib.nets.layers import groups

IMAGE = (3, 16, 16)
SMALL = [
    (Linear(12, 4), (12,)),
    (MLP(12, 7, 4), (12,)),
    (MLP(12, (7, 5), 4), (3, 2, 2)),
    (CNN(3, 4), IMAGE),
    (CNN(3, 4, widths=(8, 12), norm="batch"), IMAGE),
    (FedAvgCNN(3, 4, (4, 6), 12, size=16), IMAGE),
    (FedAvgCNN(3, 4, (4, 6), 12, size=16, kernel=3), IMAGE),
    (MLP(12, (32, 8), 4, norm="group"), (12,)),
    (MLP(12, (7, 5), 4, norm="batch"), (12,)),
    (WideResNet(4, depth=10, width=1, norm="group"), IMAGE),
    (WideResNet(4, depth=10, width=1), IMAGE),
]
LARGE = [
    (ResNet18(4), (3, 64, 64)),
    (ResNet18(4, norm="group"), (3, 64, 64)),
    (AlexNetBN(4, hidden=32), (3, 63, 63)),
    (ResNet18(4, norm="group", stem="cifar"), IMAGE),
    (ResNet50(4, norm="group", stem="tiny"), IMAGE),
    (ResNet50(4), IMAGE),
]
IDS = [str(net) for net, _ in SMALL]
LARGE_IDS = [str(net) for net, _ in LARGE]


def batch(shape, n, real=None, seed=0, K=4):
    """n rows in float64; the first `real` of them count,
    all without a mask if real is None.
    """
    g = torch.Generator().manual_seed(seed)
    x, y = (
        torch.randn(n, *shape, generator=g, dtype=torch.float64),
        torch.randint(0, K, (n,), generator=g),
    )
    m = None if real is None else (torch.arange(n) < real).double()
    return Batch(x, y, None, m, torch.arange(n), None, n)


def loss(net):
    def L(w, b):
        logits = net.out(w, net.feat(w, b.x, b))
        return (
            F.cross_entropy(logits, b.y)
            if b.m is None
            else b.avg(F.cross_entropy(logits, b.y, reduction="none"))
        )

    return L


def slopes(net, w, b):
    """Gradient by autograd, outside any transform."""
    p = {
        k: v.detach().clone().requires_grad_(k not in net.buffers) for k, v in w.items()
    }
    names = [k for k in p if k not in net.buffers]
    return dict(zip(names, torch.autograd.grad(loss(net)(p, b), [p[k] for k in names])))


def far(a, b):
    assert a.keys() == b.keys()
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def parameters(net):
    return sum(v.numel() for k, v in net.init(0).items() if k not in net.buffers)


# ---------------------------------------------------------- what every network promises
@pytest.mark.parametrize("net, shape", SMALL + LARGE, ids=IDS + LARGE_IDS)
def test_names_and_shapes(net, shape):
    w, b = net.init(3, torch.float64), batch(shape, 5)
    named = [n for layer in net.layers for n in layer]
    assert len(named) == len(set(named))
    assert set(named) | set(net.buffers) == set(w)
    assert not set(named) & set(net.buffers)
    assert net.layers[-1] == net.head
    z = net.feat(w, b.x, b)
    assert z.shape == (5, net.D) and net.out(w, z).shape == (5, net.K)
    assert all(v.dtype == torch.float64 for v in w.values())
    assert net.out(w, net.feat(w, b.x)).isfinite().all()


@pytest.mark.parametrize("net, shape", SMALL, ids=IDS)
def test_init_is_a_function_of_the_seed(net, shape):
    a, again, other = net.init(1), net.init(1), net.init(2)
    assert far(a, again) == 0 and far(a, other) > 0
    assert far(net.init(1, torch.float64), {k: v.double() for k, v in a.items()}) == 0


@pytest.mark.parametrize("net, shape", SMALL, ids=IDS)
@pytest.mark.parametrize("real", [None, 4])
def test_stacked_models_equal_single_models(net, shape, real):
    stacked_equals_single(net, shape, real, 3, 6)


def stacked_equals_single(net, shape, real, models, rows):
    """vmap(grad) over models and batches = autograd on one model after another (which
    may use another memory order).
    """
    ws, bs = (
        [net.init(s, torch.float64) for s in range(models)],
        [batch(shape, rows, real, seed=s) for s in range(models)],
    )
    W = {k: torch.stack([w[k] for w in ws]) for k in ws[0]}
    X, Y = torch.stack([b.x for b in bs]), torch.stack([b.y for b in bs])

    def one(w, x, y, m):
        buffers = {k: w[k] for k in net.buffers}
        b = Batch(x, y, None, m, None, None, rows)
        return torch.func.grad(lambda p: loss(net)(p | buffers, b))(
            {k: v for k, v in w.items() if k not in buffers}
        )

    Z = torch.func.vmap(lambda w, x: net.out(w, net.feat(w, x)))(W, X)
    G = torch.func.vmap(one, (0, 0, 0, None))(W, X, Y, bs[0].m)
    for i in range(models):
        assert torch.allclose(
            Z[i], net.out(ws[i], net.feat(ws[i], X[i])), rtol=1e-11, atol=1e-12
        )
        assert far({k: g[i] for k, g in G.items()}, slopes(net, ws[i], bs[i])) < 1e-12


@pytest.mark.parametrize("net, shape", SMALL, ids=IDS)
def test_padding_changes_nothing(net, shape):
    w, padded = net.init(0, torch.float64), batch(shape, 6, 4)
    exact = padded._replace(x=padded.x[:4], y=padded.y[:4], m=None)
    assert far(slopes(net, w, padded), slopes(net, w, exact)) < 1e-12
    other = padded._replace(x=torch.cat([padded.x[:4], 9 - padded.x[4:]]))
    assert far(slopes(net, w, other), slopes(net, w, padded)) < 1e-12
    # a mask that leaves rows out must be noticed
    every = padded._replace(m=torch.ones(6, dtype=torch.float64))
    assert far(slopes(net, w, every), slopes(net, w, padded)) > 1e-6
    if net.buffers:
        a, b = {}, {}
        net.feat(w, padded.x, padded, a)
        net.feat(w, exact.x, exact, b)
        assert set(a) == set(net.buffers) and far(a, b) < 1e-12


@pytest.mark.parametrize("net, shape", SMALL, ids=IDS)
def test_body_and_head_can_be_apart(net, shape):
    w, b = net.init(0, torch.float64), batch(shape, 5)
    body, head = {k: w[k] for k in w if k not in net.head}, {k: w[k] for k in net.head}
    assert torch.equal(net.out(head, net.feat(body, b.x)), net.out(w, net.feat(w, b.x)))


# ---------------------------------------------------------------- memory and pools


@pytest.mark.parametrize("shape", [IMAGE, (1, 14, 14)], ids=["colour", "grey"])
def test_cnn_is_the_textbooks(shape):
    """relu, then pool, as papers write it: the same features, gradient and its slope
    along itself.
    """
    net, b = CNN(shape[0], 4), batch(shape, 5)

    def textbook(w, x):
        z = F.conv2d(x, w["conv1.weight"], None, 2, 2)
        z = F.group_norm(z, 4, w["norm1.weight"], w["norm1.bias"]).relu()
        z = F.conv2d(F.max_pool2d(z, 2), w["conv2.weight"], None, 1, 1)
        z = F.group_norm(z, 8, w["norm2.weight"], w["norm2.bias"]).relu()
        return F.adaptive_avg_pool2d(z, 4).flatten(1)

    def derivatives(feat):
        p = {k: v.requires_grad_() for k, v in net.init(0, torch.float64).items()}
        value = F.cross_entropy(net.out(p, feat(p, b.x)), b.y)
        g = torch.autograd.grad(value, list(p.values()), create_graph=True)
        length = sum(v.square().sum() for v in g)
        return [value, *g, *torch.autograd.grad(length, list(p.values()))]

    for ours, theirs in zip(derivatives(net.feat), derivatives(textbook), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12)


# ---------------------------------------------------------------- closed forms
CLOSED = pytest.mark.parametrize(
    "net", [Linear(12, 4), MLP(12, 7, 4), MLP(12, (6, 5), 4)], ids=repr
)


@CLOSED
@pytest.mark.parametrize("n, real", [(8, None), (1, None), (8, 5), (8, 0), (0, None)])
def test_closed_form_gradient_equals_autograd(net, n, real):
    w, b = net.init(0, torch.float64), batch((12,), n, real)
    w["fc.bias"] += torch.linspace(-1, 1, 4, dtype=torch.float64)
    g = net.gradient(w, b)
    expected = (
        slopes(net, w, b) if n else {k: torch.zeros_like(v) for k, v in w.items()}
    )
    assert far(g, expected) < 1e-14
    assert real == 0 or n == 0 or float(g["fc.weight"].abs().max()) > 1e-3


def test_linear_starts_as_in_the_synthetic_experiments():
    w = Linear(60, 10).init(0)
    assert parameters(Linear(60, 10)) == 610 and not w["fc.bias"].any()
    bound = 1 / math.sqrt(60)
    assert 0.97 * bound < w["fc.weight"].abs().max() <= bound
    assert abs(float(w["fc.weight"].std()) / (bound / math.sqrt(3)) - 1) < 0.05


@pytest.mark.parametrize(
    "name, module",
    [("fc1", lambda: nn.Linear(400, 300)), ("conv2", lambda: nn.Conv2d(64, 96, 3))],
    ids=["fc1", "conv2"],
)
def test_layers_start_as_in_torch(name, module):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = module()
    w = (MLP(400, 300, 4) if name == "fc1" else CNN(3, 4, widths=(64, 96))).init(0)
    for leaf, theirs in module.named_parameters():
        if f"{name}.{leaf}" in w:
            ours, theirs = w[f"{name}.{leaf}"], theirs.detach()
            assert ours.shape == theirs.shape
            assert abs(float(ours.abs().max() / theirs.abs().max()) - 1) < 0.02
            assert abs(float(ours.std() / theirs.std()) - 1) < 0.1


# ---------------------------------------------------------------- batch norm
def test_a_lone_row_is_its_own_mean():
    net = MLP(12, (7, 5), 4, norm="batch")
    w = net.init(0, torch.float64)
    w["norm2.bias"] += torch.linspace(-1, 1, net.D, dtype=torch.float64)
    for b in (batch((12,), 1), batch((12,), 3, 1)):
        stats = {}
        z = net.feat(w, b.x, b, stats)
        assert torch.allclose(z[0], w["norm2.bias"].relu(), atol=1e-12)
        assert all(v.isfinite().all() for v in stats.values())


def test_evaluation_uses_the_buffers_and_training_does_not():
    net, b = CNN(3, 4, norm="batch"), batch(IMAGE, 5)
    w = net.init(0, torch.float64)
    moved = w | {k: w[k] + 0.5 for k in net.buffers}
    assert torch.equal(net.feat(w, b.x, b), net.feat(moved, b.x, b))
    assert not torch.allclose(net.feat(w, b.x), net.feat(moved, b.x))


# ---------------------------------------------------------------- the papers' networks
def copied(module):
    return {
        k: v.double().clone()
        for k, v in module.state_dict().items()
        if not k.endswith("num_batches_tracked")
    }


def assert_same_model(net, module, x, y):
    """Evaluation, training, gradients and buffers of `net` equal those of a torch
    module with the same weights (float64).
    """
    module, w = module.double(), copied(module)
    ours = net.init(0)
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in w.items()}
    module.eval()
    with torch.no_grad():
        assert torch.allclose(
            net.out(w, net.feat(w, x)), module(x), rtol=1e-10, atol=1e-10
        )
    module.train()
    b, stats = Batch(x, y, None, None, None, None, len(x)), {}
    F.cross_entropy(module(x), y).backward()
    theirs = {k: p.grad for k, p in module.named_parameters()}
    assert (
        far(
            {
                k: v / theirs[k].abs().max().clamp(min=1e-3)
                for k, v in slopes(net, w, b).items()
            },
            {k: v / v.abs().max().clamp(min=1e-3) for k, v in theirs.items()},
        )
        < 1e-8
    )
    net.feat(w, x, b, stats)
    after = {k: v for k, v in copied(module).items() if k in net.buffers}
    assert far(stats, after) < 1e-10 and far({k: w[k] for k in stats}, after) > 1e-3


def test_resnet18_is_torchvisions():
    from torchvision.models import resnet18

    torch.manual_seed(0)
    theirs = resnet18(weights=None, num_classes=10)
    assert (
        parameters(ResNet18(10))
        == sum(p.numel() for p in theirs.parameters())
        == 11_181_642
    )
    w = ResNet18(10).init(0)
    for k, v in theirs.state_dict().items():
        if v.dim() == 4:
            # starts from the same law
            assert abs(float(w[k].std() / v.std()) - 1) < 0.05, k
    g = torch.Generator().manual_seed(1)
    x = torch.rand(4, 3, 64, 64, generator=g, dtype=torch.float64)
    assert_same_model(ResNet18(10), theirs, x, torch.tensor([1, 0, 9, 3]))


@pytest.mark.parametrize("stem, stride", [("cifar", 1), ("tiny", 2)])
def test_small_stems_are_a_3_x_3_convolution_and_no_pool(stem, stride):
    from torchvision.models import resnet18

    torch.manual_seed(0)
    theirs = resnet18(weights=None, num_classes=10)
    theirs.conv1, theirs.maxpool = (
        nn.Conv2d(3, 64, 3, stride, 1, bias=False),
        nn.Identity(),
    )
    x = torch.rand(4, 3, 16, 16, dtype=torch.float64)
    assert_same_model(ResNet18(10, stem=stem), theirs, x, torch.tensor([1, 0, 9, 3]))


# channels -> groups
GROUPS = {
    16: 4,
    32: 8,
    64: 16,
    128: 32,
    160: 32,
    256: 32,
    320: 32,
    512: 32,
    640: 32,
    1024: 32,
    2048: 32,
}


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_group_norm_in_torchvisions_networks(name):
    """The same networks with torch's own GroupNorm and the group
    counts of the table.
    """
    import torchvision

    torch.manual_seed(0)
    theirs = getattr(torchvision.models, name)(
        weights=None, num_classes=10, norm_layer=lambda c: nn.GroupNorm(GROUPS[c], c)
    )
    theirs, net = (
        theirs.double(),
        {"resnet18": ResNet18, "resnet50": ResNet50}[name](10, norm="group"),
    )
    w, rows = copied(theirs), batch((3, 32, 32), 3, K=10)
    assert list(w) == list(net.init(0))
    logits = theirs(rows.x)
    assert torch.allclose(
        net.out(w, net.feat(w, rows.x, rows)), logits, rtol=1e-9, atol=1e-10
    )
    F.cross_entropy(logits, rows.y).backward()
    assert (
        far(slopes(net, w, rows), {k: p.grad for k, p in theirs.named_parameters()})
        < 1e-9
    )


class TorchWide(nn.Module):
    """A wide residual network from torch's own modules: bn -> relu -> conv, widths
    listed by hand, one block per stage.
    """

    def __init__(self, K, width, norm):
        super().__init__()
        self.conv1, at = nn.Conv2d(3, 16, 3, 1, 1, bias=False), 16
        for s, channels in enumerate((16 * width, 32 * width, 64 * width), 1):
            block = nn.Module()
            block.bn1, block.conv1 = (
                norm(at),
                nn.Conv2d(at, channels, 3, 1 if s == 1 else 2, 1, bias=False),
            )
            block.bn2, block.conv2 = (
                norm(channels),
                nn.Conv2d(channels, channels, 3, 1, 1, bias=False),
            )
            if at != channels:
                block.shortcut = nn.Conv2d(
                    at, channels, 1, 1 if s == 1 else 2, bias=False
                )
            setattr(self, f"layer{s}", nn.ModuleList([block]))
            at = channels
        self.bn, self.fc = norm(at), nn.Linear(at, K)

    def forward(self, x):
        x = self.conv1(x)
        for stage in (self.layer1, self.layer2, self.layer3):
            for block in stage:
                z = block.bn1(x).relu()
                x = block.shortcut(z) if hasattr(block, "shortcut") else x
                x = x + block.conv2(block.bn2(block.conv1(z)).relu())
        return self.fc(self.bn(x).relu().mean((2, 3)))


@pytest.mark.parametrize("width", [1, 2])
def test_wide_resnet_is_built_as_said(width):
    torch.manual_seed(0)
    x, y = torch.rand(4, 3, 12, 12, dtype=torch.float64), torch.tensor([1, 0, 9, 3])
    assert_same_model(
        WideResNet(10, depth=10, width=width),
        TorchWide(10, width, nn.BatchNorm2d),
        x,
        y,
    )


def test_wide_resnet_starts_as_its_authors_say():
    w = WideResNet(10, depth=10, width=4).init(0)
    assert not w["fc.bias"].any() and w["fc.weight"].abs().max() <= 1 / math.sqrt(256)
    for name, fan_out in (
        ("layer1.0.conv1", 9 * 64),
        ("layer2.0.conv2", 9 * 128),
        ("layer3.0.shortcut", 256),
    ):
        assert (
            abs(float(w[name + ".weight"].std()) / math.sqrt(2 / fan_out) - 1) < 0.03
        ), name


# ----------------------------------------------------------- layers as PLGU counts them
@pytest.mark.parametrize(
    "net, units, count",
    [
        (ResNet18(10, norm="group", stem="cifar"), 21, 11_173_962),
        (ResNet50(200, norm="group", stem="tiny"), 54, 23_910_152),
        (WideResNet(100, norm="group"), 29, 36_536_884),
        (ResNet18(10), 21, 11_181_642),
        (MLP(12, (7, 5), 4), 3, 155),
        (MLP(12, (8, 4), 4, norm="group"), 3, 184),
        (AlexNetBN(10), 8, 12_974_154),
    ],
    ids=str,
)
def test_units_are_modules_with_their_norm_layer(net, units, count):
    named = [n for u in net.units for n in u]
    assert len(net.units) == units and parameters(net) == count
    assert sorted(named) == sorted(n for layer in net.layers for n in layer)
    assert named == [n for n in net.init(0) if n in named]
    shapes = {k: v.shape for k, v in net.init(0).items()}
    for u in net.units:  # one weight that is not a norm layer's, at most one norm layer
        assert sum(len(shapes[n]) > 1 for n in u) == 1
        assert sum(len(shapes[n]) == 1 and n.endswith("weight") for n in u) <= 1


# ---------------------------------------------------------------- norm layers
@pytest.mark.parametrize("channels, count", GROUPS.items())
def test_groups_of_the_papers_widths(channels, count):
    z = torch.randn(2, channels, 3, 3, dtype=torch.float64)
    w = {
        "n.weight": torch.randn(channels, dtype=torch.float64),
        "n.bias": torch.randn(channels, dtype=torch.float64),
    }
    theirs = F.group_norm(z, count, w["n.weight"], w["n.bias"], 1e-5)
    assert torch.equal(group_norm(w, "n", z), theirs)
    assert not torch.allclose(
        theirs, F.group_norm(z, count // 2, w["n.weight"], w["n.bias"], 1e-5)
    )


def test_any_number_of_channels_has_groups():
    for channels in range(1, 700):
        g = groups(channels)
        assert channels % g == 0 and 32 % g == 0 and (g == 1 or channels >= 4 * g)
        # the rule below 128 channels as runs on record know it, where it divides
        earlier = math.gcd(32, channels // 4)
        assert channels >= 128 or channels % earlier or g == earlier
    assert group_norm(
        {"n.weight": torch.ones(9), "n.bias": torch.zeros(9)}, "n", torch.randn(2, 9)
    ).shape == (2, 9)


def test_mlp_with_norm_layers_is_torchs_sequential():
    torch.manual_seed(0)
    x, y = torch.randn(6, 12, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    for kind, norm in (
        ("batch", nn.BatchNorm1d),
        ("group", lambda c: nn.GroupNorm(GROUPS[c], c)),
    ):
        theirs = nn.Sequential(
            nn.Linear(12, 32),
            norm(32),
            nn.ReLU(),
            nn.Linear(32, 16),
            norm(16),
            nn.ReLU(),
            nn.Linear(16, 4),
        )
        module = nn.Module()
        for name, i in (("fc1", 0), ("norm1", 1), ("fc2", 3), ("norm2", 4), ("fc", 6)):
            setattr(module, name, theirs[i])
        module.forward = theirs.forward
        net = MLP(12, (32, 16), 4, norm=kind)
        if kind == "batch":
            assert_same_model(net, module, x, y)
        w = copied(module.double())
        assert list(w) == list(net.init(0))
        module.eval()
        assert torch.allclose(net.out(w, net.feat(w, x)), module.forward(x), rtol=1e-10)
    plain = net.init(3)
    assert (
        far(
            MLP(12, (32, 16), 4).init(3),
            {k: v for k, v in plain.items() if "norm" not in k},
        )
        == 0
    )


class TorchAlexNetBN(nn.Module):
    """The same network from torch's own modules,
    with the convolutions of torchvision's AlexNet.
    """

    def __init__(self, K, hidden):
        from torchvision.models import alexnet

        super().__init__()
        convolutions = [
            m for m in alexnet(weights=None).features if isinstance(m, nn.Conv2d)
        ]
        for i, conv in enumerate(convolutions, 1):
            setattr(self, f"conv{i}", conv)
            setattr(self, f"bn{i}", nn.BatchNorm2d(conv.out_channels))
        self.fc1, self.bn6 = nn.Linear(9216, hidden), nn.BatchNorm1d(hidden)
        self.fc2, self.bn7, self.fc = (
            nn.Linear(hidden, hidden),
            nn.BatchNorm1d(hidden),
            nn.Linear(hidden, K),
        )

    def forward(self, x):
        for i in range(1, 6):
            x = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)).relu()
            x = nn.MaxPool2d(3, 2)(x) if i in (1, 2, 5) else x
        x = nn.AdaptiveAvgPool2d(6)(x).flatten(1)
        return self.fc(self.bn7(self.fc2(self.bn6(self.fc1(x)).relu())).relu())


def test_alexnet_bn_is_built_as_said():
    assert parameters(AlexNetBN(10)) == 12_974_154
    torch.manual_seed(0)
    x = torch.rand(4, 3, 70, 70, dtype=torch.float64)
    assert_same_model(
        AlexNetBN(10, hidden=48), TorchAlexNetBN(10, 48), x, torch.tensor([1, 0, 9, 3])
    )


@pytest.mark.parametrize(
    "net",
    [
        FedAvgCNN(3, 10),
        FedAvgCNN(1, 7, (8, 16), 64, size=16),
        FedAvgCNN(3, 5, (8, 16), 64, size=17, kernel=3),
    ],
    ids=str,
)
def test_fedavg_cnn_is_torchs_sequential(net):
    """Logits and gradients in float64, and the law of the initial weights."""
    a, b = net.widths
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(net.channels, a, net.kernel),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(a, b, net.kernel),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(net.hidden),
        nn.ReLU(),
        nn.Linear(net.hidden, net.K),
    )
    module(torch.zeros(1, net.channels, net.size, net.size))
    ours = net.init(0)
    theirs = dict(zip(ours, (p.detach() for p in module.parameters()), strict=True))
    for name, v in theirs.items():
        bound = 1 / math.sqrt(theirs[name.split(".")[0] + ".weight"][0].numel())
        assert ours[name].shape == v.shape and ours[name].abs().max() <= bound, name
        assert v.numel() < 500 or abs(float(ours[name].std() / v.std()) - 1) < 0.08, (
            name
        )
    module = module.double()
    w = {name: p.detach().clone() for name, p in zip(ours, module.parameters())}
    rows = batch((net.channels, net.size, net.size), 6, K=net.K)
    logits = module(rows.x)
    assert torch.allclose(
        net.out(w, net.feat(w, rows.x)), logits, rtol=1e-10, atol=1e-12
    )
    F.cross_entropy(logits, rows.y).backward()
    assert (
        far(
            slopes(net, w, rows),
            {name: p.grad for name, p in zip(w, module.parameters())},
        )
        < 1e-12
    )


# -------------------------------------------------------------- bad input, and the shim
