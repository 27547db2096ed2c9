"""Scoring many clients together gives what every client finds on its own."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from toys_clip import toy_towers
from toys_core import GROUPS, gap, same, toy

from fedlib.core import engine, pooled, scoring
from fedlib.core.clients import Clients
from fedlib.core.errors import ClientError
from fedlib.core.task import Task
from fedlib.core.tree import broadcast, pick, stack, unstack
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import CNN, Linear

BESIDE_CLIP = {"FedCLIP": "Adapter", "PromptFL": "Prompts"}
QUICK = {"EquFL": {"J": 2, "outer": 2, "size": 12, "pool": 30}}
ROUNDS = {"EquFL": 4}  # it collects models before it condenses them
SPLITS = ("test", "val", "all")
NONE = torch.zeros(0, dtype=torch.long)


# ---------------------------------------------------------------- the reference
def plain(method, down, clients, run, shards, splits, views=None, receives=None):
    """What `score` gives, client by client, view by view, split by split."""
    task, out = method.task, []
    walk = task.shards(run.seed, run.t, run.R, shards[0], run.plans)
    for i, shard in enumerate(walk):
        sent, mine = pick(down, i), pick(clients, i)
        if receives is not None and receives[i]:
            mine = method.receive(sent, mine, shard)
        found = method.views(sent, mine, shard).items()
        at = {k: f for k, f in found if views is None or k in views}
        c = int(shards[0][i])
        rows = {s: task.rows_of(c, "train" if s == "all" else s) for s in splits}
        one = {
            "acc": {
                k: {s: share(task, f, rows[s]) for s in splits} for k, f in at.items()
            }
        }
        if task.groups:
            one["cells"] = {
                k: {s: tally(task, f, rows[s]) for s in splits} for k, f in at.items()
            }
            own = task.rows_of(c, "neighbours")
            one["consistency"] = {k: next_door(task, f, own) for k, f in at.items()}
        out.append(one)
    return stack(out)


def share(task, f, rows):
    z = f(task.x[rows])
    right = (z.argmax(1) == task.y[rows]) & z.max(1).values.isfinite()
    right = right.to(z.dtype)
    return right.mean() if len(rows) else right.sum()


def tally(task, f, rows):
    z = f(task.x[rows])
    n = torch.zeros(task.groups.A, 2, 2, dtype=z.dtype)
    outcomes = (task.groups.outcome(v) for v in (task.y[rows], z.argmax(1)))
    for a, y, yhat in zip(task.a[rows], *outcomes):
        n[a, y, yhat] += 1
    return n


def next_door(task, f, own):
    near = task.neighbours["near"][own]
    z = f(task.x[own])
    mine = task.groups.outcome(z.argmax(1)).to(z.dtype)
    theirs = task.groups.outcome(f(task.x[near.flatten()]).argmax(1)).to(z.dtype)
    apart = (mine - theirs.view(near.shape).mean(1)).abs().sum()
    return torch.stack([apart, torch.tensor(len(own), dtype=z.dtype)])


# ---------------------------------------------------------------- tasks
def shared(task):
    """The task in which the test rows of client 0 serve client 1 as well."""
    both = torch.cat([task.test[0], task.test[1]])
    return replace(task, test=(task.test[0], both, *task.test[2:]))


def lacking(task, c):
    """The task in which client c has no validation rows."""
    val = [NONE if i == c else r for i, r in enumerate(task.val)]
    return replace(task, val=tuple(val))


@cache
def task_of(kind):
    """softmax and groups, which has consistency: with guests and shared test rows; cnn:
    small images."""
    if kind == "softmax":
        return shared(toy(Linear(5, 3), dtype=torch.float32))
    if kind == "groups":
        return shared(toy(dtype=torch.float32, groups=GROUPS))
    if kind in ("Adapter", "Prompts"):
        return toy_towers(3, 5, network=kind, dtype=torch.float32)[1]
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(80, 1, 8, 8, generator=g), torch.arange(80) % 3
    who = (torch.arange(80) ** 2 // 7) % 5
    return Task.from_arrays(x, y, who, CNN(1, 3), parts=(0.5, 0.2, 0.3))


def quick(name, task):
    """The method on the task, or None where it is for other tasks."""
    try:
        return make(name, task, **QUICK.get(name, {}))
    except ValueError:
        return None


def go(method, **more):
    usual = {"rounds": 1, "cohort": None if method.who == "all" else 3}
    usual |= {"splits": SPLITS, "device": "cpu", "progress": False}
    return engine.run(method, **(usual | more))


# ---------------------------------------------------------------- the same scores
@pytest.mark.parametrize("how", ["loop", "vmap"])
@pytest.mark.parametrize("name", METHODS)
def test_together_is_one_by_one(name, how, monkeypatch):
    """The same bits in the loop; under vmap a view may fine-tune, which rounds."""
    honest, began, compared = scoring.score, [], []

    def checked(*args, **more):
        began.append(args[0])
        got, want = honest(*args, **more), plain(*args, **more)
        assert same(got, want) if how == "loop" else gap(got, want) < 1e-6
        compared.append(set(got["acc"]))
        return got

    monkeypatch.setattr(engine, "score", checked)
    for kind in (BESIDE_CLIP.get(name, "softmax"), "groups", "cnn"):
        task = task_of(kind)
        method = quick(name, task)
        if method is None:
            continue
        began.clear()
        try:
            rounds = ROUNDS.get(name, 1)
            go(method, rounds=rounds, how=how, guests=bool(task.guests))
        except ValueError:  # the method is not for this network
            assert not began
    assert compared and all(compared)


@dataclass(frozen=True)
class Owners(FedAvg):
    """One model for all, and one of the client's own."""

    def client(self, w, shard):
        return {"w": self.task.init(1 + int(shard.cid))}

    def views(self, down, mine, shard):
        net = self.task.net
        return {"global": net(down["w"]), "personal": net(mine["w"])}


def at_hand(method, how="loop", threads=1, ids=None):
    """What `score` is called with before round 0."""
    task = method.task
    ids = torch.arange(task.C) if ids is None else ids
    run = Clients(method, task, 0, 0, 1, how, None, threads)
    w, shards = task.init(0), task.shards(0, 0, 1, ids, run.plans)
    clients = stack([method.client(w, s) for s in shards])
    return method, broadcast({"w": w}, ids), clients, run, run.shards(ids), SPLITS


@pytest.mark.parametrize("few", [0, 64])
def test_clients_without_rows_have_no_hits(few, monkeypatch):
    monkeypatch.setattr(pooled, "FEW", few)
    none = (NONE,) * 6
    for task in (lacking(task_of("softmax"), 3), replace(task_of("groups"), val=none)):
        *args, _ = at_hand(Owners(task))
        got = scoring.score(*args, ("val",))
        assert same(got, plain(*args, ("val",)))
        assert got["acc"]["personal"]["val"][3] == 0


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["softmax", "groups", "cnn"])
def test_blocks_change_nothing(kind, threads, monkeypatch):
    want = scoring.score(*at_hand(Owners(task_of(kind))))
    monkeypatch.setattr(pooled, "BLOCK", {"cpu": 1})
    fresh = replace(task_of(kind))
    assert same(scoring.score(*at_hand(Owners(fresh), threads=threads)), want)
    rows = pooled.rows_of(fresh, torch.arange(fresh.C), SPLITS)
    assert len(rows.once.blocks) == len(rows.rows.unique())
    assert len(rows.apart.blocks) == fresh.C


def test_clients_of_like_size_are_side_by_side(monkeypatch):
    monkeypatch.setattr(pooled, "FEW", 0)
    task = toy(Linear(5, 3), sizes=(4, 50, 5, 70, 1, 52), dtype=torch.float32)
    rows = pooled.rows_of(task, torch.arange(6), ("all",))
    assert [who for who, _ in rows.apart.blocks] == [[4], [0, 2], [1, 5, 3]]
    args = at_hand(Owners(task))
    assert same(scoring.score(*args), plain(*args))


# ---------------------------------------------------------------- the work is done once
def watched(task, monkeypatch):
    """How many rows pass the network at each call."""
    seen, net = [], type(task.network)
    feat = net.feat

    def count(self, w, x, *more):
        seen.append(len(x))
        return feat(self, w, x, *more)

    monkeypatch.setattr(net, "feat", count)
    return seen


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_a_row_passes_a_common_model_once(how, monkeypatch):
    """However many clients have it; models of their own do not pass `feat`."""
    task = shared(toy(Linear(5, 3), dtype=torch.float32))
    args, seen = at_hand(Owners(task), how), watched(task, monkeypatch)
    scoring.score(*args)
    rows = torch.cat([*task.train, *task.val, *task.test])
    assert seen == [len(rows.unique())] and len(rows) > seen[0]


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_nobody_fine_tunes_twice(how, monkeypatch):
    """A view that is no model is called once; under vmap that is for all clients."""
    calls, method = [], make("FedAvg-FT", task_of("softmax"))
    fit = FedAvg.fit

    def count(self, *args, **more):
        calls.append(1)
        return fit(self, *args, **more)

    monkeypatch.setattr(type(method), "fit", count)
    got = scoring.score(*at_hand(method, how))
    assert list(got["acc"]) == ["global", "tuned"]
    assert len(calls) == (method.task.C if how == "loop" else 1)


def test_rows_are_kept_for_all_clients_and_for_guests():
    task = toy(Linear(5, 3), dtype=torch.float32)
    kept = lambda *ids: pooled.rows_of(task, torch.tensor(ids), SPLITS[:1])
    assert kept(*range(task.C)) is kept(*range(task.C))
    assert kept(-1, -2) is kept(-1, -2)
    assert kept(0, 2) is not kept(0, 2)


# ---------------------------------------------------------------- odd clients
def test_a_broken_model_spoils_no_other():
    args = at_hand(Owners(task_of("softmax")))
    want = scoring.score(*args)["acc"]["personal"]["test"]
    args[2]["w"]["fc.weight"][0] = torch.nan
    got = scoring.score(*args)["acc"]["personal"]["test"]
    assert got[0] == 0 < want[0] and torch.equal(got[1:], want[1:])


def test_some_models_in_a_view_and_some_functions():
    """Then every client runs its own."""

    @dataclass(frozen=True)
    class Mixed(Owners):
        def views(self, down, mine, shard):
            views = super().views(down, mine, shard)
            f = views["personal"]
            return views | ({"personal": lambda x: f(x)} if shard.cid == 1 else {})

    args = at_hand(Mixed(task_of("softmax")))
    assert same(scoring.score(*args), plain(*args))


def test_a_layer_in_common_is_a_layer_of_each():
    """As in a method that shares the body and keeps the head."""

    @dataclass(frozen=True)
    class Heads(Owners):
        def views(self, down, mine, shard):
            head = {k: mine["w"][k] for k in self.task.head}
            return {"personal": self.task.net(down["w"] | head)}

    args = at_hand(Heads(task_of("groups")))
    assert same(scoring.score(*args), plain(*args))


def test_a_view_that_fails_names_its_client():
    @dataclass(frozen=True)
    class Failing(Owners):
        def views(self, down, mine, shard):
            if shard.cid == 2:
                raise ValueError("no model here")
            return super().views(down, mine, shard)

    with pytest.raises(ClientError, match="client 2, round 0, views: .*no model here"):
        scoring.score(*at_hand(Failing(task_of("softmax"))))


def test_rows_of_a_broadcast_are_the_same_tensors():
    tree, ids = {"a": torch.ones(2), "b": {"c": torch.zeros(3)}}, torch.arange(4)
    own = {"d": torch.arange(4.0)}
    for stacked in (broadcast(tree, ids), broadcast(tree, ids) | own):
        one, two, *_ = unstack(stacked, 4)
        assert one["a"] is two["a"] and one["b"]["c"] is two["b"]["c"]
    assert [float(t["d"]) for t in unstack(own, 4)] == [0, 1, 2, 3]
    assert unstack(broadcast(tree, ids[:0]), 0) == [] and unstack({}, 2) == [{}, {}]
