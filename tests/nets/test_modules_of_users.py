"""An nn.Module gives the numbers of fedlib's own networks and of torch."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.func import functional_call
from toys_core import gap, same, seen, state, toy
from toys_nets import cnn, mlp

from fedlib.core.engine import run
from fedlib.core.shards import Batch
from fedlib.core.task import Task
from fedlib.core.tree import leaves, tmap
from fedlib.methods.make import make
from fedlib.nets import CNN, MLP, Linear, Module
from fedlib.nets.module import tried as by_trial
from fedlib.pieces.steps import Private

TWINS = {
    "linear": (Linear(5, 3), lambda: nn.Linear(5, 3)),
    "mlp": (MLP(5, (7, 6), 3, "batch"), lambda: mlp(5, 7, 6, 3, norm=nn.BatchNorm1d)),
    "cnn": (CNN(1, 3, (4, 8)), lambda: cnn(1, 3, (4, 8))),
}
SEED, HOW = 1, ("loop", "vmap")


def twins(name):
    """(task with fedlib's own network, task with the nn.Module), equal weights."""
    own, make_module = TWINS[name]
    task, module = (images if name == "cnn" else toy)(own), make_module().double()
    tensors = [v for v in module.state_dict().values() if v.is_floating_point()]
    for old, new in zip(tensors, own.init(SEED, torch.float64).values(), strict=True):
        old.copy_(new)
    return task, replace(task, network=module)


def images(network, n=60, size=12):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 1, size, size, generator=g, dtype=torch.float64)
    y, c = torch.arange(n) % 3, torch.arange(n) ** 2 % 7 % 4
    return Task.from_arrays(x, y, c, network, batch=4)


def go(task, name="FedAvg", how="loop", rounds=3, **more):
    return run(make(name, task, **more), None, rounds, SEED, how=how, device="cpu")


@pytest.mark.parametrize("name", TWINS)
def test_the_numbers_of_our_own_networks(name):
    own, module = twins(name)
    want = go(own, momentum=0.5)
    for how in HOW:
        got = go(module, how=how, momentum=0.5)
        assert gap(leaves(state(got)), leaves(state(want))) < 1e-9
        assert gap(seen(got), seen(want)) < 1e-9


def batch(x, m=None, key=0, row=None):
    i = torch.arange(len(x)) if row is None else row
    key = None if key is None else torch.tensor(key)
    return Batch(x, i * 0, None, m, i, key, len(x))


def tried(module, x):
    return by_trial(Module(module), x)


class Twice(nn.Module):
    """One norm layer that is passed two times, once by pixels as rows."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(6, eps=1e-3, momentum=0.01)

    def forward(self, x):
        z = self.norm(x.flatten(2)).relu().mT
        return self.norm(z.flatten(0, 1)).view(z.shape).mT.reshape(x.shape)


def test_batch_norm_is_torchs_with_its_own_eps_and_momentum():
    torch.manual_seed(0)
    then = nn.Conv2d(6, 4, 3), nn.BatchNorm2d(4, affine=False), nn.Flatten()
    parts = nn.Conv2d(2, 6, 3), Twice(), *then, nn.Linear(16, 3)
    module = nn.Sequential(*parts).double()
    x = torch.randn(5, 2, 6, 6, dtype=torch.float64)
    net = tried(module, x)
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
    module = mlp(5, 7, 3, norm=nn.BatchNorm1d).double().eval()
    before = copy.deepcopy(module.state_dict())
    task = toy(module)
    drawn = torch.get_rng_state()
    went = go(task, rounds=1)
    assert torch.equal(torch.get_rng_state(), drawn)  # nothing global is drawn from
    assert same(dict(module.state_dict()), dict(before)) and not module.training
    task.init(0)["0.weight"].zero_()  # nor of the weights that it gives
    with torch.no_grad():
        module[0].weight.zero_()
    assert same(state(go(task, rounds=1)), state(went))


def test_dropout_keeps_a_share_and_the_mean_by_key_row_and_layer():
    x = torch.ones(4, 3)
    for layer, shape in ((nn.Dropout, (4000,)), (nn.Dropout2d, (1000, 2, 2))):
        parts = nn.Linear(3, 4000), nn.Unflatten(1, shape), layer(0.3), nn.Flatten()
        net = tried(nn.Sequential(*parts), x)
        w = net.init(0)
        at = lambda *a, w=w, net=net, **k: net.call("whole", w, x, batch(x, *a, **k))
        full, some = net.call("whole", w, x), at()
        kept = some != 0
        assert abs(float(kept.double().mean()) - 0.7) < 0.02
        assert torch.allclose(some[kept], (full / 0.7)[kept])
        assert torch.equal(at(key=None), full)
        assert torch.equal(at(), some) and not torch.equal(at(key=1), some)
        turned = at(row=torch.tensor([3, 2, 1, 0]))
        assert torch.equal(turned, some.flip(0))  # whatever its place in the batch
        assert not torch.equal(kept[0], kept[1])
        whole = kept.view(4, 1000, 4).sum(2) % 4 == 0  # channels, as a whole
        assert bool(whole.all()) == (layer is nn.Dropout2d)
    two = nn.Sequential(nn.Linear(3, 999), nn.Dropout(), nn.Identity(), nn.Dropout())
    kept = tried(two, x).call("whole", tried(two, x).init(0), x, batch(x)) != 0
    assert abs(float(kept.double().mean()) - 0.25) < 0.05  # two draws, not one


def test_dropout_by_loop_and_vmap():
    parts = nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.4), nn.Linear(8, 3)
    task = toy(nn.Sequential(*parts).double())
    for name in ("Ditto", "FedAS"):
        runs = [go(task, name, how, 2) for how in HOW]
        assert gap(state(runs[0]), state(runs[1])) < 1e-9


def test_attention_that_draws_is_refused():
    x = torch.randn(4, 6, 8)
    for dropout in (0.0, 0.1):
        layer = nn.TransformerEncoderLayer(8, 2, 8, 0.2, batch_first=True)
        layer.self_attn.dropout = dropout
        module = nn.Sequential(layer, nn.Flatten(), nn.Linear(48, 3))
        if dropout:
            with pytest.raises(ValueError, match="attention"):
                tried(module, x)
        else:
            assert tried(module, x).splits


def test_given_and_fresh():
    torch.manual_seed(3)
    module = mlp(5, 6, 3)
    assert same(Module(module).init(1), dict(module.state_dict()))
    fresh = Module(module, start="fresh")
    assert same(fresh.init(0), fresh.init(0)) and not same(fresh.init(0), fresh.init(1))
    torch.manual_seed(5)
    want = mlp(5, 6, 3).state_dict()  # drawn in the same order
    assert same(fresh.init(5), dict(want))
    normed = Module(mlp(5, 6, 3, norm=nn.BatchNorm1d), start="fresh").init(5)
    assert torch.equal(normed["0.weight"], want["0.weight"])


def test_frozen_parameters_are_constants():
    module = mlp(5, 6, 3).double()
    module[0].requires_grad_(False)
    task = toy(module)
    assert set(task.init(0)) == {"2.weight", "2.bias"}
    z = task.logits(task.init(0), task.x[:4])
    assert torch.allclose(z, module(task.x[:4]))


class Tied(nn.Module):
    """Reads twice with one matrix."""

    def __init__(self):
        super().__init__()
        self.inner, self.again = nn.Linear(4, 4), nn.Linear(4, 4)
        self.fc = nn.Linear(4, 3)
        self.again.weight = self.inner.weight

    def forward(self, x):
        return self.fc(self.again(self.inner(x[:, :4])))


def test_tied_weights_stay_one_tensor():
    module = Tied().double()
    task = toy(module)
    assert "inner.weight" in task.init(0) and "again.weight" not in task.init(0)
    x = task.x[:4]
    w = tmap(lambda v: v + 0.1, task.init(0))
    want = functional_call(module, w, (x,))  # torch ties them, too
    assert torch.allclose(task.logits(w, x), want)
    f = lambda net: torch.func.grad(lambda w: net(w).sum())(w)
    slopes = f(lambda w: task.logits(w, x, batch(x)))
    want = f(lambda w: functional_call(module, w, (x,)))
    assert gap(slopes, {k: want[k] for k in slopes}) < 1e-12


def test_a_module_at_two_places_is_one():
    fc, norm = nn.Linear(5, 5), nn.BatchNorm1d(5)
    module = nn.Sequential(fc, norm, nn.ReLU(), fc, norm, nn.Linear(5, 3)).double()
    task = toy(module)
    w, x = task.init(0), task.x[:4]
    assert {k[0] for k in w} == {*"015"} and task.network.splits
    assert torch.allclose(task.logits(w, x), module.eval()(x))
    module.train()(x)[:, 0].sum().backward()
    f = lambda w: task.logits(w, x, batch(x))[:, 0].sum()
    slopes = torch.func.grad(f)(w)
    for k, p in module.named_parameters():
        assert torch.allclose(slopes[k], p.grad), k
    runs = [go(task, "FedPer", how, 2) for how in HOW]
    assert gap(state(runs[0]), state(runs[1])) < 1e-9
    ends = toy(nn.Sequential(fc := nn.Linear(5, 5), nn.ReLU(), fc).double()).network
    assert not ends.splits and ends.K == 5


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.fc = nn.Embedding(12, 4), nn.Linear(6, 3)
        self.read = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        return SimpleNamespace(logits=self.fc(self.read(self.table(x))[0][:, -1]))


def test_tokens_and_recurrent_layers():
    torch.manual_seed(0)
    x, i, module = torch.randint(0, 12, (60, 7)), torch.arange(60), Words()
    task = Task.from_arrays(x, i % 3, i % 4, module)
    assert task.network.D == 6
    want, w = module(task.x[:5].long()).logits, task.init(0)
    assert torch.allclose(task.net(w)(task.x[:5]), want, atol=1e-6)
    w = tmap(torch.zeros_like, w)
    assert task.net(w)(task.x[:5]).abs().max() == 0  # no weight goes unseen


class Pixels(nn.Module):
    """A head that is not the last step: a convolution, then a mean."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Conv2d(4, 3, 1)  # registered first, and runs last
        self.body = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return self.fc(self.body(x).relu()).mean((2, 3))


def test_the_head_is_what_runs_last_or_is_named():
    net = images(Pixels().double()).network
    assert net.layers == (("body.weight", "body.bias"), net.head) and not net.splits
    root = toy(nn.Linear(5, 3).double()).network
    assert root.head == ("weight", "bias") and root.D == 5 and root.splits
    x, y, c = torch.randn(40, 5), torch.arange(40) % 3, torch.arange(40) % 4
    two, four = ("2.weight", "2.bias"), ("4.weight", "4.bias")
    table = {"2": (two, False), "4": (four, True), ("2", "4"): (two + four, False)}
    table["4.bias",] = ("4.bias",), False
    module, seen_before = mlp(5, 6, 7, 3), set()
    known = Task.from_arrays(x, y, c, module).network  # its head is the last layer
    for head, (names, splits) in table.items():
        for network in (module, known):
            task = Task.from_arrays(x, y, c, network, head=head)
            assert task.head == names and task.network.splits == splits, head
        up = go(task, "FedPer", rounds=1).meta["tensors"]["up"]
        assert not any(k.endswith(n) for n in names for k in up)
        seen_before.add(task.network.identity)
    assert len(seen_before) == 4
    b, w = batch(x), known.init(0)
    assert torch.equal(known.out(w, known.feat(w, x, b)), known.call("whole", w, x, b))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_what_methods_read_of_a_module(tmp_path):
    net = images(cnn(1, 3, (4, 8), nn.BatchNorm2d).double()).network
    leaves_ = "weight", "bias", "running_mean", "running_var"
    assert {*net.norms} == {f"{i}.{k}" for i in (1, 5) for k in leaves_}
    conv = [(f"{i}.weight", f"{i + 1}.weight", f"{i + 1}.bias") for i in (0, 4)]
    assert net.units == (*conv, ("9.weight", "9.bias")) and net.linear
    twice = toy(nn.Sequential(nn.Linear(5, 4), Doubled(4, 3)).double()).network
    assert twice.splits and not twice.linear
    task = images(Pixels().double())
    for name in ("FedAS", "FedProto", "FedPAC", "FedALA", "CD2-pFed"):
        with pytest.raises(ValueError, match="features .*Pixels"):
            run(make(name, task), rounds=1, folder=tmp_path / "run")


def test_resume_and_identity(tmp_path):
    module = mlp(5, 6, 3, norm=nn.BatchNorm1d).double()
    module.insert(2, nn.Dropout(0.2))
    how = {"rounds": 3, "seed": 1, "folder": tmp_path / "a", "device": "cpu"}
    whole = run(make("Ditto", toy(module)), rounds=3, seed=1, device="cpu")
    run(make("Ditto", toy(module)), upto=2, **how)
    rest = run(make("Ditto", toy(copy.deepcopy(module))), **how)
    assert same(state(rest), state(whole))
    with torch.no_grad():
        module[0].bias[0] += 1
    with pytest.raises(ValueError, match="network"):
        run(make("Ditto", toy(module)), **how)


def test_private_steps():
    with pytest.raises(ValueError, match="batch norm"):
        go(toy(mlp(5, 6, 3, norm=nn.BatchNorm1d).double()), step=Private())
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.3), nn.Linear(6, 3)).double()
    runs = [go(toy(module), how=how, step=Private(), poisson=True) for how in HOW]
    assert gap(state(runs[0]), state(runs[1])) < 1e-9
