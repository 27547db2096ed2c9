"""Bring a network: an nn.Module gives the numbers of fedlib's own networks and of torch,
in a loop and under vmap; what cannot be trained is refused by name.
"""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from toys_core import GROUPS, gap, same, seen, state, toy

from fedlib import nets
from fedlib.core.engine import run
from fedlib.core.local import Private
from fedlib.core.shards import Batch
from fedlib.core.task import Task
from fedlib.core.tree import leaves, tmap
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.nets import CNN, MLP, Linear, Module
from fedlib.nets.forward import Training


class Pooled(nn.Module):
    """A pool before its relu, and 4 x 4 mean pixels, as in CNN."""

    def forward(self, x):
        return F.max_pool2d(x, 2).relu()


def cnn(channels, K, widths, norm):
    layer = nn.BatchNorm2d
    if norm == "group":
        layer = lambda c: nn.GroupNorm(nets.layers.groups(c), c)
    a, b = widths
    return nn.Sequential(
        nn.Conv2d(channels, a, 5, 2, 2, bias=False),
        layer(a),
        Pooled(),
        nn.Conv2d(a, b, 3, 1, 1, bias=False),
        layer(b),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(16 * b, K),
    )


def mlp(*widths, norm=False):
    out = []
    for a, b in zip(widths[:-2], widths[1:-1]):
        out += [nn.Linear(a, b), *([nn.BatchNorm1d(b)] if norm else []), nn.ReLU()]
    return nn.Sequential(*out, nn.Linear(*widths[-2:]))


TWINS = {
    "linear": (Linear(5, 3), lambda: nn.Linear(5, 3)),
    "mlp": (MLP(5, (7, 6), 3), lambda: mlp(5, 7, 6, 3)),
    "mlp batch": (MLP(5, (7, 6), 3, "batch"), lambda: mlp(5, 7, 6, 3, norm=True)),
    "cnn": (CNN(1, 3, (4, 8)), lambda: cnn(1, 3, (4, 8), "group")),
    "cnn batch": (
        CNN(1, 3, (4, 8), "batch"),
        lambda: cnn(1, 3, (4, 8), "batch"),
    ),
}
SEED, HOW = 1, ("loop", "vmap")


def with_weights(module, w):
    """The module with the values of w, in order."""
    module = module.double()
    tensors = [v for v in module.state_dict().values() if v.is_floating_point()]
    for old, new in zip(tensors, w.values(), strict=True):
        old.copy_(new)
    return module


def twins(name):
    """(task with fedlib's own network, task with the nn.Module), equal weights."""
    own, make_module = TWINS[name]
    task = toy(own, groups=GROUPS) if "cnn" not in name else images(own)
    module = with_weights(make_module(), own.init(SEED, torch.float64))
    return task, replace(task, network=module)


def images(network, n=60, size=12):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 1, size, size, generator=g, dtype=torch.float64)
    y, c = torch.arange(n) % 3, torch.arange(n) ** 2 % 7 % 4
    return Task.from_arrays(x, y, c, network, batch=4)


def go(task, name="FedAvg", how="loop", rounds=3, **more):
    return run(make(name, task, **more), None, rounds, SEED, how=how, device="cpu")


def values(rec):
    return [torch.as_tensor(v) for v in leaves(state(rec))]


# ------------------------------------------------------ the numbers of our own networks
@pytest.mark.parametrize("name", TWINS)
def test_the_numbers_of_our_own_networks(name):
    own, module = twins(name)
    want = go(own, momentum=0.5)
    for how in ("loop", "vmap"):
        got = go(module, how=how, momentum=0.5)
        assert gap(values(got), values(want)) < 1e-9
        assert gap(seen(got), seen(want)) < 1e-9
    moved = gap(values(want), leaves(own.network.init(SEED, torch.float64)))
    assert moved > 1e-3  # it did train


# ---------------------------------------------------------------- the numbers of torch
def batch(x, m=None, key=0, row=None):
    i = torch.arange(len(x)) if row is None else row
    key = None if key is None else torch.tensor(key)
    return Batch(x, i * 0, None, m, i, key, len(x))


def tried(module, x, K=1, **more):
    return nets.fitted(Module(module, **more), x, K)


def test_batch_norm_is_torchs_with_its_own_eps_and_momentum():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 6, 3),
        nn.BatchNorm2d(6, eps=1e-3, momentum=0.01),
        nn.ReLU(),
        nn.Conv2d(6, 4, 3),
        nn.BatchNorm2d(4, affine=False),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).double()
    x = torch.randn(5, 2, 6, 6, dtype=torch.float64)
    net = tried(module, x, 3)
    w, stats = net.init(0, torch.float64), {}
    padded = torch.cat([x, 100 * x[:2]])
    m = torch.tensor([1.0] * 5 + [0] * 2, dtype=torch.float64)
    loss = lambda w, b: b.avg(net.out(w, net.feat(w, b.x, b))[:, 0])
    slopes = torch.func.grad(loss)(w, batch(padded, m))
    z = net.feat(w, padded, batch(padded, m), stats)[:5]
    assert torch.allclose(net.out(w, net.feat(w, x)), module.eval()(x))
    module.train()(x)[:, 0].mean().backward()
    assert torch.allclose(net.out(w, z), module(x)) and stats.keys() == set(net.buffers)
    for k, p in module.named_parameters():
        assert torch.allclose(slopes[k], p.grad), k
    module.load_state_dict(w, strict=False)  # the two passes above moved them
    module(x)
    for k in net.buffers:
        assert torch.allclose(stats[k], module.get_buffer(k)), k


def test_the_module_is_never_changed_and_later_changes_are_not_seen():
    module = mlp(5, 7, 3, norm=True).double().eval()
    before = copy.deepcopy(module.state_dict())
    task = toy(module)
    drawn = torch.get_rng_state()
    went = go(task, rounds=1)
    assert torch.equal(torch.get_rng_state(), drawn)  # nothing global is drawn from
    assert same(dict(module.state_dict()), dict(before)) and not module.training
    with torch.no_grad():
        module[0].weight.zero_()
    assert same(state(go(task, rounds=1)), state(went))


# ---------------------------------------------------------------- dropout
def dropped(p=0.5, layer=nn.Dropout, width=4000):
    return tried(nn.Sequential(nn.Linear(3, width), layer(p)), torch.ones(2, 3))


def test_dropout_keeps_a_share_and_the_mean():
    net, x = dropped(0.3), torch.ones(6, 3)
    w = net.init(0)
    full, some = net.call("whole", w, x), net.call("whole", w, x, batch(x))
    kept = some != 0
    assert abs(float(kept.double().mean()) - 0.7) < 0.01
    assert torch.allclose(some[kept], (full / 0.7)[kept])
    assert torch.equal(net.call("whole", w, x, batch(x, key=None)), full)


def test_dropout_is_a_function_of_key_row_and_layer():
    net, x = dropped(), torch.ones(4, 3)
    w, at = net.init(0), lambda *a, **k: net.call("whole", w, x, batch(x, *a, **k)) != 0
    assert torch.equal(at(), at()) and not torch.equal(at(), at(key=1))
    rows = torch.tensor([3, 2, 1, 0])
    assert torch.equal(at(row=rows), at().flip(0))  # whatever its place in the batch
    assert not torch.equal(at()[0], at()[1])
    two = nn.Sequential(nn.Linear(3, 99), nn.Dropout(), nn.Identity(), nn.Dropout())
    kept = tried(two, x).call("whole", tried(two, x).init(0), x, batch(x)) != 0
    assert abs(float(kept.double().mean()) - 0.25) < 0.1  # two draws, not one


@pytest.mark.parametrize("name", ["FedAvg", "Ditto", "FedAS"])
def test_dropout_by_loop_vmap_and_threads(name):
    parts = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)
    task = toy(nn.Sequential(*parts).double())
    runs = [go(task, name, how, 2) for how in HOW]
    assert gap(state(runs[0]), state(runs[1])) < 1e-9
    threads = run(make(name, task), None, 2, SEED, threads=2, device="cpu")
    assert same(state(threads), state(runs[0]))
    without = toy(nn.Sequential(*parts[:2], parts[3]).double())
    assert gap(values(go(without, name, rounds=2)), values(runs[0])) > 1e-4


def test_attention_with_dropout_is_attention():
    """With p next to 0 nothing is dropped: torch's own numbers."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 5, 8, generator=g, dtype=torch.float64) for _ in "qkv")
    allowed = torch.rand(5, 5, generator=g) > 0.3
    allowed[:, 0] = True
    added = torch.randn(5, 5, generator=g, dtype=torch.float64)
    attend = F.scaled_dot_product_attention
    for how in ({}, {"attn_mask": allowed}, {"attn_mask": added}, {"is_causal": True}):
        few = q, k[:, :2], v[:, :2]
        want, grouped = attend(q, k, v, **how), attend(*few, enable_gqa=True, **how)
        with Training(batch(torch.zeros(2, 1)), None, {}):
            got = attend(q, k, v, dropout_p=1e-12, **how)
            less = attend(*few, dropout_p=1e-12, enable_gqa=True, **how)
            other = attend(q, k, v, dropout_p=0.5, **how)
        assert torch.allclose(got, want) and not torch.allclose(other, want)
        assert torch.allclose(less, grouped)


# ---------------------------------------------------------------- where weights start
def test_given_fresh_and_made():
    torch.manual_seed(3)
    module = mlp(5, 6, 3)
    given = Module(module)
    assert same(given.init(0), given.init(1))
    assert same(given.init(0), dict(module.state_dict()))
    fresh = Module(module, start="fresh")
    assert same(fresh.init(0), fresh.init(0)) and not same(fresh.init(0), fresh.init(1))
    torch.manual_seed(5)
    want = mlp(5, 6, 3).state_dict()  # drawn in the same order
    assert same(fresh.init(5), dict(want))
    made = Module(module, start=lambda: mlp(5, 6, 3))
    assert same(made.init(5), dict(want))
    half = made.init(5, torch.float64)
    assert all(v.dtype == torch.float64 for v in half.values())
    assert gap(half, dict(want)) == 0


def test_frozen_parameters_are_constants():
    module = mlp(5, 6, 3).double()
    module[0].requires_grad_(False)
    task = toy(module)
    assert set(task.init(0)) == {"2.weight", "2.bias"}
    a, b = (go(task, how=how) for how in ("loop", "vmap"))
    assert gap(state(a), state(b)) < 1e-12
    assert set(a.meta["bytes"]["up"]) and "0.weight" not in str(a.meta["tensors"])


class Tied(nn.Module):
    """Reads and writes with one matrix."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 4), nn.Linear(4, 5, bias=False)
        self.outer.weight = nn.Parameter(self.inner.weight.detach().T.clone())
        self.again = nn.Linear(5, 4)
        self.again.weight = self.inner.weight
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(self.again(self.outer(self.inner(x))))


def test_tied_weights_stay_one_tensor():
    module = Tied().double()
    task = toy(module)
    assert "inner.weight" in task.init(0) and "again.weight" not in task.init(0)
    x = task.x[:4]
    w = tmap(lambda v: v + 0.1, task.init(0))
    want = functional_call(module, w, (x,))  # torch ties them, too
    assert torch.allclose(task.logits(w, x), want)
    b = batch(x)
    slopes = torch.func.grad(lambda w: task.logits(w, x, b).sum())(w)
    want = torch.func.grad(lambda w: functional_call(module, w, (x,)).sum())(w)
    assert gap(slopes, {k: want[k] for k in slopes}) < 1e-12
    go(task, "FedPer", rounds=1)


class Words(nn.Module):
    def __init__(self, tokens=12, recurrent=nn.LSTM, K=3):
        super().__init__()
        self.table = nn.Embedding(tokens, 4)
        self.read = recurrent(4, 6, batch_first=True)
        self.fc = nn.Linear(6, K)

    def forward(self, x):
        return SimpleNamespace(logits=self.fc(self.read(self.table(x))[0][:, -1]))


def words(network, most=11, **more):
    g = torch.Generator().manual_seed(0)
    x = torch.randint(0, most + 1, (60, 7), generator=g)
    x[0, 0] = most
    y = (x > most // 2).sum(1).clamp(2, 4) - 2
    return Task.from_arrays(x, y, torch.arange(60) % 4, network, **more)


@pytest.mark.parametrize("recurrent", [nn.LSTM, nn.GRU, nn.RNN])
def test_tokens_and_recurrent_layers(recurrent):
    torch.manual_seed(0)
    module = Words(recurrent=recurrent)
    task = words(module)
    assert task.network.tokens and task.network.D == 6
    z = module(task.x[:5].long()).logits
    assert torch.allclose(task.net(task.init(0))(task.x[:5]), z, atol=1e-6)
    w = tmap(torch.zeros_like, task.init(0))
    assert task.net(w)(task.x[:5]).abs().max() == 0  # no weight goes unseen
    trained, b = go(task, rounds=3, lr=0.3).state["server"]["w"], batch(task.x)
    b = b._replace(y=task.y)
    assert task.loss(trained, b) < task.loss(task.init(0), b) - 0.02


# ---------------------------------------------------------------- the head
class Pixels(nn.Module):
    """A head that is not the last step: a convolution, then a mean."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(4, 3, 1)  # registered first, and runs last
        self.body = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return self.fc(self.body(x).relu()).mean((2, 3))


def test_the_head_is_what_runs_last():
    net = images(Pixels().double()).network
    assert net.head == ("fc.weight", "fc.bias") and not net.splits
    assert net.layers == (("body.weight", "body.bias"), ("fc.weight", "fc.bias"))
    root = toy(nn.Linear(5, 3).double()).network
    assert root.head == ("weight", "bias") and root.D == 5 and root.splits


@pytest.mark.parametrize(
    "head, names, splits",
    [
        ("2", ("2.weight", "2.bias"), False),
        ("4", ("4.weight", "4.bias"), True),
        (["4"], ("4.weight", "4.bias"), True),
        (["2", "4"], ("2.weight", "2.bias", "4.weight", "4.bias"), False),
        (["4.bias"], ("4.bias",), False),
    ],
)
def test_head_by_name(head, names, splits):
    x, y, c = torch.randn(40, 5), torch.arange(40) % 3, torch.arange(40) % 4
    task = Task.from_arrays(x, y, c, mlp(5, 6, 7, 3), head=head)
    assert task.head == names and task.network.splits == splits
    up = go(task, "FedPer", rounds=1).meta["tensors"]["up"]
    assert not any(k.endswith(n) for n in names for k in up)


FEATURES = ["FedAS", "FedProto", "FedPAC", "FedALA", "CD2-pFed", "FedAS-global"]


@pytest.mark.parametrize("name", [n for n in FEATURES if n in METHODS])
def test_methods_that_need_features(name, tmp_path):
    task = images(Pixels().double())
    with pytest.raises(ValueError) as e:
        run(make(name, task), rounds=1, folder=tmp_path / "run")
    assert "needs the features [B, D] before the head, and Module(Pixels)" in str(
        e.value
    )
    assert "give head= the layer that runs last" in str(e.value)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="Task.feat needs the features .B, D. before"):
        task.feat(task.init(0), task.x)  # for a method of one's own


# ---------------------------------------------------------------- runs
def test_resume_and_identity(tmp_path):
    module = mlp(5, 6, 3, norm=True).double()
    module.insert(2, nn.Dropout(0.2))
    how = {"rounds": 3, "seed": 1, "folder": tmp_path / "a", "device": "cpu"}
    whole = run(make("Ditto", toy(module)), rounds=3, seed=1, device="cpu")
    run(make("Ditto", toy(module)), upto=2, **how)
    rest = run(make("Ditto", toy(copy.deepcopy(module))), **how)
    assert same(state(rest), state(whole))
    assert rest.meta["network"].startswith("Sequential, 69 parameters, ")
    with torch.no_grad():
        module[0].bias[0] += 1
    with pytest.raises(ValueError, match="another run: network is .Sequential, 69 par"):
        run(make("Ditto", toy(module)), **how)


def test_private_steps():
    task = toy(mlp(5, 6, 3, norm=True).double())
    with pytest.raises(ValueError, match="its batch norm .1.running_mean. mixes the"):
        go(task, step=Private())
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.3), nn.Linear(6, 3)).double()
    runs = [go(toy(module), how=how, step=Private(), poisson=True) for how in HOW]
    assert gap(state(runs[0]), state(runs[1])) < 1e-9


# ---------------------------------------------------------------- bad input
class Wrapped(nn.Module):
    """A linear layer, and something done to its output."""

    def __init__(self, then, K=3):
        super().__init__()
        self.fc, self.then = nn.Linear(5, K), then

    def forward(self, x):
        return self.then(self, self.fc(x))


# ---------------------------------------------------------------- other people's models


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["text", "image"])
def test_hugging_face(kind):
    import fedlib.nets.vision  # noqa: F401  torchvision beside a torch for processors

    tf = pytest.importorskip("transformers")
    torch.manual_seed(0)
    size = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "num_labels": 3,
        "attention_probs_dropout_prob": 0.1,
        "hidden_dropout_prob": 0.1,
    }
    g, i = torch.Generator().manual_seed(0), torch.arange(40)
    if kind == "text":
        config = tf.BertConfig(vocab_size=50, max_position_embeddings=16, **size)
        module = tf.BertForSequenceClassification(config)
        x = torch.randint(1, 50, (40, 10), generator=g)
    else:
        config = tf.ViTConfig(image_size=16, patch_size=8, **size)
        module = tf.ViTForImageClassification(config)
        x = torch.randn(40, 3, 16, 16, generator=g)
    task = Task.from_arrays(x, i % 3, i % 4, module, batch=8)
    assert task.head == ("classifier.weight", "classifier.bias")
    assert task.network.splits and task.network.tokens == (kind == "text" or None)
    for method in ("FedAvg", "FedRep", "Ditto", "FedAS", "FedGA"):
        go(task, method, rounds=2, lr=0.01)
    a, b = (go(task, how=how, rounds=2, lr=0.01) for how in HOW)
    assert gap(state(a), state(b)) < 1e-4
