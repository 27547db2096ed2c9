"""Many clients at once: the order of their steps, descents of stacks, and which way the
engine picks.
"""

from dataclasses import dataclass, replace

import pytest
import torch
from torch.func import vmap
from toys_core import gap, same, state, toy

from fedlib import run
from fedlib.core import clients
from fedlib.core.abreast import abreast, by_steps, portions, timetable
from fedlib.core.local import SAM, grad, sgd
from fedlib.core.record import Record
from fedlib.core.task import Task
from fedlib.core.tree import pick, stack
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import MLP, Linear, closed


# ---------------------------------------------------------------- the order of the steps
def plans(*lengths):
    """Clients whose rows are numbered through, with batches of these lengths."""
    first, out = 0, []
    for n in lengths:
        out.append((torch.arange(first, first + sum(n)), list(n)))
        first += sum(n)
    return out


def walked(plans):
    """{client: [rows of a batch]} as a timetable of these clients has them."""
    order, out = by_steps(plans), {i: [] for i in range(len(plans))}
    table, at = timetable([plans[i] for i in order]), 0
    for k, B, full in table.steps:
        for i in order[:k]:
            n = int(table.n[at])
            assert n <= B and (n == B or not full)
            out[i].append(table.rows[at, :n].tolist())
            at += 1
    assert at == len(table.rows) == len(table.n)
    return out


@pytest.mark.parametrize(
    "lengths",
    [
        [(4, 4, 2)],
        [(3,), (4, 4, 1), (4, 4), (2, 2, 2, 2)],
        [(4, 4), (4, 4), (4, 4)],
        [(), (5, 1), ()],
        [(1, 3, 2), (6, 1)],  # Poisson batches: of any length
    ],
)
def test_every_client_walks_its_own_batches_in_their_order(lengths):
    given = plans(*lengths)
    own = {i: [b.tolist() for b in r.split(n)] for i, (r, n) in enumerate(given) if n}
    assert {i: rows for i, rows in walked(given).items() if rows} == own


def test_who_has_finished_is_left_out_and_padding_is_the_batch_s_own():
    table = timetable(plans((4, 4, 2), (4, 1), (3,)))
    assert table.steps == [(3, 4, False), (2, 4, False), (1, 2, True)]
    assert table.rows[2].tolist() == [15, 16, 17, 15]
    assert table.n.tolist() == [4, 4, 3, 4, 1, 2]


def test_portions_keep_the_order_and_the_limit():
    steps = timetable(plans(*[(2,) * n for n in (9, 9, 7, 3, 1)])).steps
    cut = list(portions(steps, 6))
    assert [s for some in cut for s in some] == steps and len(cut) > 1
    assert all(sum(s.k for s in some) <= 6 for some in cut)
    assert [len(some) for some in portions(steps, 1)] == [1] * len(steps)


# ---------------------------------------------------------------- abreast
def test_abreast_hands_over_the_stacks_of_all_clients():
    x, seen = torch.randn(5, 3), []

    def centred(tree):
        seen.append(tree["x"].shape)
        return {"y": {"z": tree["x"] - tree["x"].mean(0)}}

    got = vmap(lambda x: abreast(centred, {"x": x}))(x)
    assert seen == [(5, 3)] and torch.equal(got["y"]["z"], x - x.mean(0))
    alone = abreast(centred, {"x": x[1]})
    assert seen[1] == (1, 3) and torch.equal(alone["y"]["z"], torch.zeros(3))


def test_what_is_the_same_everywhere_is_handed_over_for_everybody():
    x, c = torch.randn(4, 2), torch.ones(2)
    f = lambda x: abreast(lambda t: {"y": t["x"] + t["c"]}, {"x": x, "c": c})
    assert torch.equal(vmap(f)(x)["y"], x + 1)
    with pytest.raises(RuntimeError, match="no argument differs"):
        vmap(lambda x: abreast(lambda t: t, {"c": c}))(x)


# ---------------------------------------------------------------- descents
LAYERS = [MLP(4, 6, 3), MLP(4, (6, 5), 3)]
PARTS = [(Linear(4, 3), "whole"), (Linear(4, 3), "head")] + [
    (net, part) for net in LAYERS for part in ("whole", "head", "body")
]


def unequal(net):
    """Five clients of 3 to 41 training rows in batches of eight, in float64."""
    x, y = torch.randn(95, 4, dtype=torch.double), torch.randint(3, (95,))
    train = torch.arange(90).split([3, 41, 8, 21, 17])
    test = torch.arange(90, 95).split(1)
    none = tuple(torch.zeros(0, dtype=torch.long) for _ in train)
    return Task("unequal", net, x, y, train, none, test, K=3, batch=8)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.mark.parametrize("net, part", PARTS, ids=str)
@pytest.mark.parametrize(
    "momentum, decay, mu", [(0, 0, 0), (0.9, 0.01, 0), (0.5, 0, 0.3)]
)
@pytest.mark.parametrize("memory", ["as it is", "one at a time"])
def test_a_descent_of_all_is_the_descent_of_each(
    net, momentum, decay, mu, part, memory, monkeypatch
):
    if memory == "one at a time":
        monkeypatch.setattr(closed, "ABREAST", {"cpu": 1})
        monkeypatch.setattr(closed, "FETCHED", {"cpu": 1})
        monkeypatch.setattr(closed, "KEPT", 0)
    task = unequal(net)
    method = FedAvg(task, epochs=2)
    ids, w = torch.arange(task.C), stack([task.init(c) for c in range(task.C)])

    def parts(w):
        body, head = task.split(w)
        return {"whole": (w, {}), "head": (head, body), "body": (body, head)}[part]

    def fit(w, anchor, shard, loss):
        v, rest = parts(w)
        pull = (mu, parts(anchor)[0]) if mu else None
        return sgd(grad(loss(rest)), v, shard, 0.2, momentum, decay, pull)

    exact = lambda rest: task.loss.beside(rest) if rest else task.loss
    by_hand = lambda rest: lambda v, b: task.loss(rest | v, b)  # autograd
    anchor = task.init(9)
    shards = task.shards(0, 0, 1, ids, method.plans())
    each = [fit(pick(w, c), anchor, s, by_hand) for c, s in enumerate(shards)]
    alone = [fit(pick(w, c), anchor, s, exact) for c, s in enumerate(shards)]
    data, shard_of = task.stacked(0, 0, 1, ids, method.plans())
    batched = vmap(lambda w, d: fit(w, anchor, shard_of(d), exact))(w, data)
    moved = max(gap(e, parts(pick(w, c))[0]) for c, e in enumerate(each))
    assert moved > 1e-3
    assert gap(stack(alone), stack(each)) < 1e-12
    assert gap(batched, stack(each)) < 1e-12


def test_a_layer_cut_in_two_has_no_closed_form():
    task = toy(MLP(5, 6, 3))
    w = task.init(0)
    whole = task.loss.beside({k: w[k] for k in task.head})
    cut = task.loss.beside({task.head[0]: w[task.head[0]]})
    assert whole.descend and whole.gradient
    assert cut.descend is None and cut.gradient is None


# ---------------------------------------------------------------- which way
def test_small_networks_are_batched_and_others_are_not():
    assert run(FedAvg(toy()), rounds=1, device="cpu").meta["how"] == "auto"
    normed = toy(MLP(5, 6, 3, norm="group"))
    assert run(FedAvg(normed), rounds=1, device="cpu").meta["how"] == "loop"
    assert run(FedAvg(toy()), rounds=1, device="cpu", threads=2).meta["how"] == "loop"


@pytest.mark.parametrize("name", ["FedAvg", "Ditto", "FedAvg-FT", "q-FedAvg"])
def test_the_way_changes_nothing_but_rounding(name):
    method = make(name, toy(), lr=0.2)
    auto, loop = (run(method, rounds=3, device="cpu", how=h) for h in (None, "loop"))
    assert gap(state(auto), state(loop)) < 1e-9


def spied(monkeypatch):
    """[(stage, how many clients)] of what was batched, as it goes."""
    seen, at_once = [], clients.Clients._at_once

    def spy(self, f, trees, S, stage):
        out = at_once(self, f, trees, S, stage)
        seen.append((stage, len(S)))
        return out

    monkeypatch.setattr(clients.Clients, "_at_once", spy)
    return seen


def test_fewer_than_few_go_one_after_another(monkeypatch):
    seen = spied(monkeypatch)
    run(FedAvg(toy(), lr=0.2), rounds=2, cohort=clients.FEW - 1, device="cpu")
    assert "local" not in dict(seen)
    run(FedAvg(toy(), lr=0.2), rounds=2, cohort=clients.FEW, device="cpu")
    assert seen.count(("local", clients.FEW)) == 2


@dataclass(frozen=True)
class Looks(FedAvg):
    """Looks at its numbers, as a function under vmap may not."""

    def local(self, down, mine, shard):
        if float(down["w"]["fc.bias"].sum()) > 1e9:
            raise RuntimeError("too large")
        return super().local(down, mine, shard)


def test_what_vmap_refuses_goes_one_after_another_and_so_it_stays(
    monkeypatch, tmp_path
):
    task, seen = toy(), spied(monkeypatch)
    whole = run(Looks(task, lr=0.2), rounds=4, device="cpu")
    plain = run(FedAvg(task, lr=0.2), rounds=4, how="loop", device="cpu")
    assert "local" not in dict(seen) and whole.meta["single"] == ["local"]
    assert same(whole.state["server"], plain.state["server"])
    half = run(Looks(task, lr=0.2), rounds=4, device="cpu", upto=2, folder=tmp_path)
    assert half.meta["unfinished"]
    rest = run(Looks(task, lr=0.2), rounds=4, device="cpu", folder=tmp_path)
    assert same(rest.state["server"], whole.state["server"])
    assert Record.load(tmp_path).meta["single"] == ["local"]


def test_unequal_clients_are_not_padded(monkeypatch):
    seen, task = spied(monkeypatch), unequal(MLP(4, 6, 3))  # 3 to 41 rows
    plain, sam = FedAvg(task, lr=0.2), FedAvg(task, lr=0.2, step=SAM())
    run(plain, rounds=1, device="cpu")
    assert seen.count(("local", 5)) == 1  # a descent in closed form needs no padding
    seen.clear()
    auto, loop = (run(sam, rounds=2, device="cpu", how=h) for h in (None, "loop"))
    assert "local" not in dict(seen) and auto.meta["single"] == ["local"]
    assert gap(state(auto), state(loop)) < 1e-9


@dataclass(frozen=True)
class LooksFirst(FedAvg):
    """Looks at all its rows before it trains, as one padded batch."""

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"F": self.loss(down["w"], shard.all())}


def test_few_rows_are_padded_in_one_batch_and_many_are_not(monkeypatch):
    seen = spied(monkeypatch)
    run(LooksFirst(unequal(MLP(4, 6, 3)), lr=0.2), rounds=1, device="cpu")
    assert ("local", 5) in seen
    monkeypatch.setattr("fedlib.core.shards.PADDED", 40 * 4 * 8)  # bytes of 40 rows
    seen.clear()
    run(LooksFirst(unequal(MLP(4, 6, 3)), lr=0.2), rounds=1, device="cpu")
    assert "local" not in dict(seen)


@pytest.mark.parametrize("name", ["q-FedAvg", "AFL", "FedFV", "FedFa", "FedGA"])
def test_all_rows_of_a_client_need_no_padding(name, monkeypatch):
    seen, task = spied(monkeypatch), unequal(MLP(4, 6, 3))
    train, test = (tuple(r[cut] for r in task.train) for cut in (slice(1, None), [0]))
    task = replace(task, train=train, val=task.test, test=test)  # FedGA asks for val
    monkeypatch.setattr("fedlib.core.shards.PADDED", 0)
    method = make(name, task, lr=0.2)
    auto, loop = (run(method, rounds=3, device="cpu", how=h) for h in (None, "loop"))
    assert ("local", 5) in seen and "single" not in auto.meta
    assert gap(state(auto), state(loop)) < 1e-9
