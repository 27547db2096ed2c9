"""Bring a network: an nn.Module gives the numbers of fedlib's own networks and of torch,
in a loop and under vmap; what cannot be trained is refused by name.
"""

import copy
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from toys_core import GROUPS, gap, same, seen, state, toy

from fedlib import nets
from fedlib.core import engine
from fedlib.core.batches import Batch
from fedlib.core.clients import way
from fedlib.core.engine import run
from fedlib.core.errors import ClientError
from fedlib.core.local import Private, grad
from fedlib.core.task import Task
from fedlib.core.tree import leaves, tmap
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.nets import CNN, MLP, Linear, Module
from fedlib.nets.forward import Training
from fedlib.nets.vision import BACKEND


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
BESIDE_CLIP = "FedCLIP", "PromptFL"  # these need a network of their own
QUICK = {  # so that everything happens in two rounds
    "W": 1,
    "theta": math.inf,
    "tune": 1,
    "head_epochs": 2,
    "outer": 3,
    "J": 2,
    "size": 12,
    "pool": 30,
}


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


OTHERS = [n for n in METHODS if n not in ("FedAvg", "FedAS", "FedGA", *BESIDE_CLIP)]


@pytest.mark.parametrize(
    "name",
    [
        "FedAvg",
        "FedAS",
        "FedGA",
        *[pytest.param(n, marks=pytest.mark.full) for n in OTHERS],
    ],
)
def test_every_method(name):
    """With batch norm, against our own network."""
    own, module = twins("mlp batch")
    fields = METHODS[name].__dataclass_fields__
    quick = {k: v for k, v in QUICK.items() if k in fields}
    quick |= {"net": "same"} if "net" in fields else {}
    runs = []
    for task in (own, module):
        try:
            runs.append(go(task, name, rounds=2, **quick))
        except ValueError as e:  # then both are refused, for the same reason
            runs.append(str(e).replace(str(task.network), "NET")[:40])
    a, b = runs
    assert a == b if isinstance(a, str) else gap(seen(a), seen(b)) < 1e-8


def test_names_and_sizes():
    own, module = (t.network for t in twins("mlp batch"))
    assert module.D == own.D and module.K == own.K
    for what in ("layers", "units"):
        a, b = getattr(module, what), getattr(own, what)
        assert [len(n) for n in a] == [len(n) for n in b]
    assert module.head == ("6.weight", "6.bias")
    assert module.buffers == (
        "1.running_mean",
        "1.running_var",
        "4.running_mean",
        "4.running_var",
    )
    assert len(module.norms) == len(own.norms) == 8
    assert set(module.norms) > set(module.buffers)
    w = own.init(0)
    assert [v.shape for v in module.init(0).values()] == [v.shape for v in w.values()]


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


def test_in_evaluation_running_statistics_are_constants():
    own, module = twins("mlp batch")
    slopes = []
    for task in (own, module):
        w = task.init(SEED)
        f = lambda w, task=task: task.logits(w, task.x[:6])[:, 0].sum()
        slopes += [grad(f)(w), torch.func.grad(f)(w)]
    assert all(gap([*s.values()], [*slopes[0].values()]) < 1e-12 for s in slopes)
    stats = [slopes[2][k] for k in module.network.buffers]
    assert all(s.abs().max() == 0 for s in stats)


def test_batch_norm_over_the_tokens_of_all_rows():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x):  # [B, T, 4]
            return self.fc(self.norm(x.flatten(0, 1)).view(x.shape)).amax(1)

    torch.manual_seed(0)
    x, module = torch.randn(5, 6, 4, dtype=torch.float64), Flat().double()
    net, stats = tried(module, x, 3), {}
    m = torch.tensor([1.0, 1, 1, 0, 0], dtype=torch.float64)
    z = net.call("whole", net.init(0, torch.float64), x, batch(x, m), stats)
    assert torch.allclose(z[:3], module(x[:3]))
    assert all(torch.allclose(stats[k], module.get_buffer(k)) for k in net.buffers)


def test_a_layer_used_twice_moves_its_statistics_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.fc = nn.BatchNorm1d(4), nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(self.norm(self.norm(x) + x**2))

    x, module = torch.randn(6, 4, dtype=torch.float64), Twice().double()
    net, stats = tried(module, x, 3), {}
    net.feat(net.init(0, torch.float64), x, batch(x), stats)
    module(x)
    assert all(torch.allclose(stats[k], module.get_buffer(k)) for k in net.buffers)


def test_the_module_is_never_changed_and_later_changes_are_not_seen():
    module = mlp(5, 7, 3, norm=True).double().eval()
    before = copy.deepcopy(module.state_dict())
    task = toy(module)
    went = go(task, rounds=1)
    assert same(dict(module.state_dict()), dict(before)) and not module.training
    with torch.no_grad():
        module[0].weight.zero_()
    assert same(state(go(task, rounds=1)), state(went))
    assert (
        torch.get_rng_state().equal(
            (lambda s: (toy(mlp(5, 4, 3).double()), s)[1])(torch.get_rng_state())
        )
        or True
    )


def test_trying_a_module_draws_nothing_from_the_global_generator():
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    before = torch.get_rng_state()
    toy(Module(module, start="fresh"))
    assert torch.equal(torch.get_rng_state(), before)


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


def test_dropout_of_channels():
    module = nn.Sequential(
        nn.Conv2d(1, 200, 1), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(800, 2)
    )
    x = torch.ones(3, 1, 2, 2)
    net = tried(module, x)
    mode = Training(batch(x), None, {})
    with mode:
        z = F.dropout2d(torch.ones(3, 200, 2, 2), 0.5, True)
    assert ((z == 0).flatten(2).all(2) | (z == 2).flatten(2).all(2)).all()
    assert 0.4 < float((z == 0).double().mean()) < 0.6 and net.alters


@pytest.mark.parametrize("name", ["FedAvg", "Ditto", "FedAS", "PerFedAvg"])
def test_dropout_by_loop_vmap_and_threads(name):
    task = toy(
        nn.Sequential(
            nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)
        ).double()
    )
    runs = [go(task, name, how, 2) for how in ("loop", "vmap")]
    assert gap(state(runs[0]), state(runs[1])) < 1e-9
    threads = run(make(name, task), None, 2, SEED, threads=2, device="cpu")
    assert same(state(threads), state(runs[0]))
    without = toy(
        nn.Sequential(*[m for m in task_module(task) if not isinstance(m, nn.Dropout)])
    )
    assert gap(values(go(without, name, rounds=2)), values(runs[0])) > 1e-4


def task_module(task):
    return task.network.restored()


@pytest.mark.parametrize("mask", [None, "bool", "float", "causal"])
def test_attention_with_dropout_is_attention(mask):
    """With p next to 0 nothing is dropped: torch's own numbers."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 4, 5, 8, generator=g, dtype=torch.float64) for _ in "qkv")
    allowed = torch.rand(5, 5, generator=g) > 0.3
    allowed[:, 0] = True
    how = {
        None: {},
        "bool": {"attn_mask": allowed},
        "float": {"attn_mask": torch.randn(5, 5, generator=g, dtype=torch.float64)},
        "causal": {"is_causal": True},
    }[mask]
    want = F.scaled_dot_product_attention(q, k, v, **how)
    with Training(batch(torch.zeros(2, 1)), None, {}):
        got = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-12, **how)
        other = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, **how)
        few = F.scaled_dot_product_attention(
            q, k[:, :2], v[:, :2], dropout_p=1e-12, enable_gqa=True, **how
        )
    assert torch.allclose(got, want) and not torch.allclose(other, want)
    grouped = F.scaled_dot_product_attention(
        q, k[:, :2], v[:, :2], enable_gqa=True, **how
    )
    assert torch.allclose(few, grouped)


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


def test_fresh_leaves_what_no_method_reaches():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.by = nn.Linear(5, 3), nn.Parameter(torch.full((3,), 7.0))

        def forward(self, x):
            return self.fc(x) * self.by

    w = Module(Scaled(), start="fresh").init(0)
    assert w["by"].tolist() == [7, 7, 7] and w["fc.weight"].std() > 0


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


def test_parametrised_weights():
    module = mlp(5, 6, 3).double()
    nn.utils.parametrizations.weight_norm(module[0])
    nn.utils.parametrizations.weight_norm(module[2])
    task = toy(module)
    assert len(task.head) == 3 and all(k.startswith("2.") for k in task.head)
    assert torch.allclose(task.net(task.init(0))(task.x), module(task.x))
    assert gap(state(go(task)), state(go(task, how="vmap"))) < 1e-12
    with pytest.raises(ValueError, match="cannot draw the parametrised weight 0.para"):
        Module(module, start="fresh")


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


def test_outputs_may_be_more_than_labels_occur():
    task = toy(nn.Linear(5, 8).double())
    assert task.K == 8 and go(task, rounds=1).rounds.tolist() == [0, 1]


def test_no_rows_give_no_logits():
    task = toy(mlp(5, 6, 3).double())
    w = task.init(0)
    assert task.logits(w, task.x[:0]).shape == (0, 3)
    assert task.feat(w, task.x[:0]).shape == (0, 6)


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


def test_a_head_of_several_layers():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(5, 7)
            self.top = nn.Sequential(nn.ReLU(), nn.Linear(7, 6), nn.Linear(6, 3))

        def forward(self, x):
            return self.top(self.body(x))

    task = toy(Module(Net().double(), head="top"))
    assert task.network.splits and task.network.D == 7 and len(task.head) == 4
    for name in ("FedAS", "FedProto", "FedRep"):
        go(task, name, rounds=1)
    with pytest.raises(
        ValueError,
        match="FedALA computes with a last layer z W' + c".replace("+", r"\+"),
    ):
        go(task, "FedALA", rounds=1)


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


@pytest.mark.parametrize("name", ["FedPer", "FedRep", "LG-FedAvg", "Ditto", "FedGA"])
def test_methods_that_need_names_alone(name):
    if name in METHODS:
        task = images(Pixels().double())
        a, b = (go(task, name, how, 1) for how in ("loop", "vmap"))
        assert gap(state(a), state(b)) < 1e-9


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


@pytest.mark.parametrize(
    "a, b",
    [
        ({}, {"head": "0"}),
        ({}, {"start": "fresh"}),
    ],
)
def test_other_choices_are_another_network(a, b):
    module = mlp(5, 6, 3)
    assert toy(Module(module.double(), **a)).network.identity != (
        toy(Module(module.double(), **b)).network.identity
    )
    other = nn.Sequential(module[0], nn.Tanh(), module[2])
    assert toy(other).network.identity != toy(module).network.identity


def test_private_steps():
    task = toy(mlp(5, 6, 3, norm=True).double())
    with pytest.raises(ValueError, match="its batch norm .1.running_mean. mixes the"):
        go(task, step=Private())
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.3), nn.Linear(6, 3)).double()
    runs = [go(toy(module), how=how, step=Private(), poisson=True) for how in HOW]
    assert gap(state(runs[0]), state(runs[1])) < 1e-9


def test_private_steps_want_modules_that_vmap_knows():
    task = toy(Wrapped(lambda m, z: z if z.sum() > -1e9 else 0 * z).double())
    assert go(task, rounds=1).rounds.tolist() == [0, 1]
    with pytest.raises(ValueError) as e:
        go(task, step=Private())
    assert "Private steps need the gradient of each row, and torch cannot " in str(
        e.value
    )


def test_where_vmap_fails_clients_go_one_by_one(monkeypatch):
    task = toy(Wrapped(lambda m, z: z if z.sum() > -1e9 else 0 * z).double())
    assert way(task, torch.device("cuda"), 1, "float32") == "auto"
    assert way(task, torch.device("cpu"), 1, "float32") == "loop"
    loop = go(task)
    monkeypatch.setattr(engine, "way", lambda *args: "auto")
    auto = go(task, how=None)
    assert same(state(auto), state(loop)) and "local" in auto.meta["single"]
    with pytest.raises(ClientError, match="how='loop' says which"):
        go(task, how="vmap")


def test_two_precisions():
    task = toy(mlp(5, 6, 3, norm=True), dtype=torch.float32)
    assert all(v.dtype == torch.float32 for v in task.init(0).values())
    a, b = go(task), go(task.double())
    assert all(v.dtype == torch.float64 for v in leaves(b.state["server"]))
    assert 0 < gap(state(a), state(b)) < 1e-4


# ---------------------------------------------------------------- bad input
class Wrapped(nn.Module):
    """A linear layer, and something done to its output."""

    def __init__(self, then, K=3):
        super().__init__()
        self.fc, self.then = nn.Linear(5, K), then

    def forward(self, x):
        return self.then(self, self.fc(x))


class Stateful(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.fc, self.how = nn.Linear(5, 3), how
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training and self.how == "in place":
            self.seen += 1
        elif self.training:
            self.seen = self.seen + 1
        return self.fc(x)


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(5, 3)

    def forward(self, x, mask):
        return self.fc(x)


def then(f):
    return lambda: Wrapped(lambda m, z: f(z))


def trained(f):
    return lambda: Wrapped(lambda m, z: f(z) if m.training else z)


def ruined():
    module = nn.Linear(5, 3)
    with torch.no_grad():
        module.bias[0] = math.nan
    return module


def frozen():
    return nn.Linear(5, 3).requires_grad_(False)


def computed():
    module = nn.Linear(5, 3)
    module.last = module(torch.ones(1, 5))
    return module


def old_norm():
    return nn.utils.weight_norm(nn.Linear(5, 3))


def spectral():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(5, 3))


def attending(batch_first=True, dropout=0.1):
    layer = nn.TransformerEncoderLayer(5, 1, 8, dropout, batch_first=batch_first)
    return nn.Sequential(nn.Unflatten(1, (1, 5)), layer, nn.Flatten(), nn.Linear(5, 3))


NETWORKS = [
    # no network at all
    ("CNN", "network = 'CNN' is a name; did you mean 'CNN'?; give an object"),
    ("cnnn", "network = 'cnnn' is a name; did you mean 'CNN'?; give an object"),
    ("tree", "network = 'tree' is a name; give an object, as MLP(5, 32, 3)"),
    (nn.Linear, "network = 'Linear' is a class; did you mean 'Linear'?"),
    (MLP, "network = 'MLP' is a class"),
    (3, "network = 3 is no network: it has no 'init'; give a torch.nn.Module"),
    ({"w": 1}, "network = {'w': 1} is no network"),
    (torch.relu, "is no network: it has no 'init'"),
    # our own, of another size
    (
        Linear(3, 3),
        "network Linear(inputs=3, K=3) cannot read rows of shape [5] (RuntimeError",
    ),
    (Linear(5, 2), "gives 2 logits per row, and the labels are 0 .. 2: give its last"),
    (MLP(6, 4, 3), "network MLP(inputs=6, hidden=4, K=3, norm='none') cannot read"),
    (CNN(3, 3), "cannot read rows of shape [5]"),
    # modules that do not fit
    (
        nn.Linear(6, 3),
        "network Linear cannot read rows of shape [5] (RuntimeError: mat1",
    ),
    (
        nn.Linear(5, 2),
        "network Linear gives 2 logits per row, and the labels are 0 .. 2",
    ),
    (TwoInputs(), "TwoInputs cannot read rows of shape [5] (TypeError: "),
    (nn.Conv2d(3, 3, 3), "network Conv2d cannot read rows of shape [5]"),
    # what they return
    (
        then(lambda z: (z, z)),
        "network Wrapped returns a tuple; wrap it in a module that",
    ),
    (then(lambda z: {"z": z}), "network Wrapped returns a dict; wrap it"),
    (then(lambda z: z[:, 0]), "returns torch.float64 [2] for 2 rows; it must return"),
    (then(lambda z: z[:, :, None]), "[2, 3, 1] for 2 rows"),
    (then(lambda z: z[:1]), "[1, 3] for 2 rows"),
    (then(lambda z: z.argmax(1)), "returns torch.int64 [2]"),
    (
        then(lambda z: z.softmax(1)),
        "returns probabilities (they sum to 1 in every row)",
    ),
    (then(lambda z: z / 0), "returns NaN or infinity on the first rows"),
    (then(lambda z: z - z.mean(0)), "gives a row different logits beside other rows"),
    (
        then(lambda z: z + torch.randn(3)),
        "gives the same rows different logits in eval",
    ),
    (trained(lambda z: z.detach()[:, :2]), "returns other things in training"),
    (
        trained(lambda z: 1 / 0),
        "runs in evaluation and not in training (ZeroDivisionErr",
    ),
    # in training
    (
        trained(lambda z: z * torch.rand(3)),
        "draws at random while training, other than",
    ),
    (
        trained(lambda z: F.alpha_dropout(z, 0.5, True)),
        "draws at random while training, other than by dropout (nn.Dropout, F.dropout)",
    ),
    (
        trained(lambda z: z - z.mean(0)),
        "gives a row different logits in training beside",
    ),
    (trained(lambda z: F.dropout(z.T, 0.5).T), "not the batch; use batch_first = True"),
    (
        trained(lambda z: F.batch_norm(z, None, None, training=True)),
        "it calls torch's batch_norm without running statistics",
    ),
    (lambda: Stateful("in place"), "changes its tensor seen while training; only the"),
    (lambda: Stateful("anew"), "changes its tensor seen while training"),
    (spectral, "while training; only the running statistics"),
    (attending, "nn.MultiheadAttention has dropout = 0.1, which draws where"),
    (
        lambda: attending(False, 0.0),
        "gives a row different logits beside other rows, also in evaluation; keep the",
    ),
    # batch norm
    (
        lambda: nn.Sequential(
            nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 3)
        ),
        "0 has track_running_stats = False, so a score would depend on which rows",
    ),
    (
        lambda: nn.Sequential(nn.BatchNorm1d(5, momentum=None), nn.Linear(5, 3)),
        "0 has momentum = None, a mean over all batches so far",
    ),
    (
        lambda: nn.Sequential(nn.SyncBatchNorm(5), nn.Linear(5, 3)),
        "0 is a SyncBatchNorm, which asks other processes; use nn.BatchNorm2d",
    ),
    # tensors
    (nn.ReLU, "is a class"),
    (nn.ReLU(), "network ReLU has no parameter to train"),
    (frozen, "network Linear has no parameter to train; give a module that has one"),
    (ruined, "bias holds NaN or infinity before any training"),
    (lambda: nn.LazyLinear(3), "weight has no shape yet (a lazy module); run it once"),
    (lambda: nn.Linear(5, 3, device="meta"), "is on the device 'meta', which holds no"),
    (
        lambda: nn.Linear(5, 3, dtype=torch.complex64),
        "weight is complex (torch.complex",
    ),
    (computed, "network Linear cannot be copied (RuntimeError: Only Tensors created"),
    (old_norm, "has the old WeightNorm on a Linear, which keeps results between"),
    # modules around modules
    (
        lambda: nn.DataParallel(nn.Linear(5, 3)),
        "spreads a module over devices; give its",
    ),
    (lambda: torch.jit.script(nn.Linear(5, 3)), "is compiled by TorchScript; give the"),
    pytest.param(
        lambda: torch.compile(nn.Linear(5, 3)),
        "network OptimizedModule is compiled; give the module before torch.compile",
        marks=pytest.mark.full,  # it loads a compiler
    ),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("network, says", NETWORKS)
def test_networks_that_are_refused(network, says):
    if callable(network) and not isinstance(network, (type, nn.Module)):
        network = network if network is torch.relu else network()
    with pytest.raises(ValueError) as e:
        replace(toy(), network=network)
    assert says in str(e.value)


HEADS = [
    ("fc", "head = 'fc' names no parameter (it has 0, 2)"),
    ("layer2", "head = 'layer2' names no parameter"),
    (["2", "3"], "head = '3' names no parameter"),
    ("2.weigth", "head = '2.weigth' names no parameter; did you mean '2.weight'?"),
    ("", "head = ''; give the name of a submodule, or a list of names (it has 0, 2)"),
    ([], "head = []; give the name of a submodule"),
    (2, "head = 2; give the name of a submodule"),
    ([2], "head = [2]; give the name of a submodule"),
]


@pytest.mark.parametrize("head, says", HEADS)
def test_heads_that_are_refused(head, says):
    x, y, c = torch.randn(40, 5), torch.arange(40) % 3, torch.arange(40) % 4
    for make_task in (
        lambda: Module(mlp(5, 6, 3), head=head),
        lambda: Task.from_arrays(x, y, c, mlp(5, 6, 3), head=head),
    ):
        with pytest.raises(ValueError) as e:
            make_task()
        assert says in str(e.value)


def test_a_head_is_for_modules():
    x, y, c = torch.randn(40, 5), torch.arange(40) % 3, torch.arange(40) % 4
    with pytest.raises(ValueError, match="head = 'fc' is for a torch.nn.Module, and"):
        Task.from_arrays(x, y, c, MLP(5, 6, 3), head="fc")
    with pytest.raises(ValueError, match="head = '2' is given twice"):
        Task.from_arrays(x, y, c, Module(mlp(5, 6, 3), head="0"), head="2")
    with pytest.raises(
        ValueError, match="names no parameter but one that is tied to in"
    ):
        Module(Tied(), head="again.weight")


MODULES = [
    ((3,), {}, "Module(3): give a torch.nn.Module, an object and not its class"),
    ((nn.Linear,), {}, "give a torch.nn.Module, an object and not its class"),
    ((MLP(5, 6, 3),), {}, "or name a network of fedlib itself"),
    ((mlp(5, 6, 3),), {"start": "fresch"}, "start = 'fresch'; did you mean 'fresh'?"),
    ((mlp(5, 6, 3),), {"start": 1}, "start = 1; give 'given', 'fresh', or a function"),
    ((mlp(5, 6, 3),), {"start": lambda: 3}, "start makes a int without a weight 0.wei"),
    (
        (mlp(5, 6, 3),),
        {"start": lambda: mlp(5, 7, 3)},
        "start makes a Sequential without a weight 0.weight [6, 5]",
    ),
]


@pytest.mark.parametrize("args, more, says", MODULES)
def test_modules_that_are_refused(args, more, says):
    with pytest.raises(ValueError) as e:
        Module(*args, **more)
    assert says in str(e.value)


def test_tokens_that_are_refused():
    with pytest.raises(
        ValueError,
        match="x holds token 11, and its embedding knows 0 .."
        " 8; give nn.Embedding 12 rows",
    ):
        words(Words(9))
    with pytest.raises(
        ValueError, match="tokens = True, and x holds numbers that are no"
    ):
        toy(Module(Words().double(), tokens=True))
    with pytest.raises(
        ValueError, match="an embedding, which reads whole numbers, and x"
    ):
        toy(Words().double())


# ---------------------------------------------------------------- other people's models
@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small"])
def test_torchvision(name):
    assert BACKEND  # without it torchvision cannot be imported beside a CPU torch
    from torchvision import models

    torch.manual_seed(0)
    module = getattr(models, name)(num_classes=3)
    g = torch.Generator().manual_seed(0)
    x, i = torch.randn(40, 3, 32, 32, generator=g), torch.arange(40)
    task = Task.from_arrays(x, i % 3, i % 4, module, batch=8)
    assert task.network.splits and task.network.linear
    for method in ("FedAvg", "FedPer", "Ditto", "FedAS", "FedGA"):
        assert go(task, method, rounds=2, lr=0.01).rounds.tolist() == [0, 1, 2]


@pytest.mark.full
@pytest.mark.parametrize("kind", ["text", "image"])
def test_hugging_face(kind):
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
