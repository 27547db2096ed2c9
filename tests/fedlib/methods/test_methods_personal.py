"""FedPer, FedRep, Ditto, pFedHN and fine-tuning: oracles on quadratics, and limits at
which they become something simpler.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from toys_core import Normed, bowls, gap, same, seen, state, toy

from fedlib.core import engine, errors
from fedlib.core.batches import Plan
from fedlib.core.clients import cohort_of
from fedlib.core.local import grad, sgd
from fedlib.core.tree import (
    add,
    broadcast,
    leaves,
    normalize,
    pick,
    subset,
    tmap,
    without,
)
from fedlib.methods.base.fedavg import FedAvg, Uniform
from fedlib.methods.base.tuned import Tuned
from fedlib.methods.personal.ditto import Ditto
from fedlib.methods.personal.fedper import FedPer, FedPerOnline
from fedlib.methods.personal.fedrep import FedRep
from fedlib.methods.personal.pfedhn import PFedHN
from fedlib.nets import Linear

# optima and sizes of four clients
B, N = [[0.0, 1.0], [4.0, -2.0], [2.0, 2.0], [-3.0, 5.0]], [1, 3, 4, 2]


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


def optima():
    return torch.tensor(B, dtype=torch.float64)


def alone(task, c, start, seed, R, lr, epochs=1):
    """Client c by itself: every round's batches, no server."""
    for t in range(R):
        (shard,) = task.shards(seed, t, R, torch.tensor([c]), {"train": Plan(epochs)})
        start = sgd(grad(task.loss), start, shard, lr)
    return start


# ---------------------------------------------------------------- FedPer
def test_fedper_on_bowls():
    """Body u: FedAvg's. Head v: each client's own, for as many steps as it trained."""
    task, lr, R = bowls(B, N), 0.25, 6
    rec, plain = (
        run(FedPer(task, lr=lr), rounds=R, seed=1, cohort=2),
        run(FedAvg(task, lr=lr), rounds=R, seed=1, cohort=2),
    )
    assert (
        gap([rec.state["server"]["w"]["u"]], [plain.state["server"]["w"]["u"]]) < 1e-13
    )
    trained = torch.tensor(np.bincount(rec.logs["cohort"].flatten(), minlength=4))
    v0 = task.init(1)["v"]
    want = optima() + ((1 - lr) ** trained)[:, None] * (v0 - optima())
    assert gap([rec.state["clients"]["w"]["v"]], [want]) < 1e-13


def test_fedper_sends_and_receives_bodies_only():
    task = toy(Normed(5, 6, 3))
    rec = run(FedPer(task), rounds=2)
    body, head = task.split(task.init(0))
    assert rec.state["server"]["w"].keys() == body.keys()
    for way in ("up", "down"):
        assert rec.meta["bytes"][way]["w"]["values"] == sum(
            v.numel() for v in body.values()
        )
    heads = rec.state["clients"]["w"]["out.weight"]
    assert len(torch.unique(heads, dim=0)) == task.C and len(head) == 2


def test_fedper_absent_clients_hear_and_those_of_the_control_do_not():
    task, seed = toy(), 2
    for method, hears in ((FedPer, True), (FedPerOnline, False)):
        one, two = (
            run(method(task), rounds=5, seed=seed, cohort=3, upto=t).state
            for t in (1, 2)
        )
        absent = [
            c
            for c in range(task.C)
            if c not in cohort_of(method(task), task, seed, 1, 3)
        ]
        a, b = (pick(s["clients"]["w"], torch.tensor(absent)) for s in (one, two))
        assert same(subset(a, task.head), subset(b, task.head)), (
            "a head moved that nobody trained"
        )
        assert (
            same(without(b, task.head), broadcast(one["server"]["w"], absent)) == hears
        )
        assert same(without(a, task.head), without(b, task.head)) != hears


def test_fedper_scores_the_own_head_on_the_new_body():
    task = toy()
    rec = run(FedPer(task), rounds=3, cohort=3)
    body, heads = rec.state["server"]["w"], rec.state["clients"]["w"]
    for c in range(task.C):
        model = task.net(body | subset(pick(heads, c), task.head))
        right = (
            (model(task.x[task.test[c]]).argmax(1) == task.y[task.test[c]])
            .double()
            .mean()
        )
        assert rec["pre", "personal", "test"][-1, c] == pytest.approx(
            float(right), abs=1e-15
        )


def test_a_guest_gets_the_new_body_and_a_fresh_head():
    task = toy()
    rec = run(FedPer(task), rounds=3, guests=True, seed=1)
    model = task.net(rec.state["server"]["w"] | subset(task.init(1), task.head))
    for g, (_, _, test) in enumerate(task.guests):
        right = (model(task.x[test]).argmax(1) == task.y[test]).double().mean()
        assert rec["guest", "personal", "test"][-1, g] == pytest.approx(
            float(right), abs=1e-15
        )


def test_fedper_without_own_layers_is_fedavg():
    """If the head that stays at home were empty, everything would be averaged."""
    task = toy()
    net = type(task.network)
    bare = replace(
        task,
        network=type(
            "Headless",
            (net,),
            {"head": (), "out": lambda s, w, z: task.network.out(w, z)},
        )(5, 6, 3),
    )
    a, b = run(FedPer(bare), rounds=4, cohort=3), run(FedAvg(task), rounds=4, cohort=3)
    assert gap(a.state["server"]["w"], b.state["server"]["w"]) < 1e-14
    assert np.array_equal(a["pre", "personal", "test"], b["pre", "global", "test"])


@pytest.mark.parametrize("method", [FedPer, FedPerOnline, FedRep])
def test_a_network_without_a_body_is_refused(method):
    with pytest.raises(
        ValueError,
        match=(
            f"{method.__name__} shares the body of a network, and all of Linear.* a "
            "hidden layer"
        ),
    ):
        run(method(toy(Linear(5, 3))), rounds=1)


# ---------------------------------------------------------------- FedRep
def test_fedrep_on_bowls():
    """head_epochs steps for the head, then epochs steps for the body,
    at each client that trains.
    """
    task, lr, R, H = bowls(B, N), 0.25, 5, 3
    rec = run(FedRep(task, lr=lr, head_epochs=H, epochs=2), rounds=R, seed=1, cohort=2)
    v, u = task.init(1)["v"].expand(4, 2).clone(), task.init(1)["u"]
    for ids in rec.logs["cohort"]:
        p = normalize(torch.tensor(N, dtype=torch.float64)[ids])
        v[ids] = optima()[ids] + (1 - lr) ** H * (v[ids] - optima()[ids])
        u = p @ (optima()[ids] + (1 - lr) ** 2 * (u - optima()[ids]))
    assert gap([rec.state["server"]["w"]["u"]], [u]) < 1e-13
    assert gap([rec.state["clients"]["w"]["v"]], [v]) < 1e-13


def test_fedrep_fits_the_head_before_the_body():
    """On a network where the gradient of the body depends on the head, the order
    matters, and it is head first.
    """
    task, lr = toy(), 0.3
    rec = run(
        FedRep(task, lr=lr, head_epochs=2), rounds=1, seed=1, cohort=lambda t: [3]
    )
    (shard,) = task.shards(
        1, 0, 1, torch.tensor([3]), {"train": Plan(1), "head": Plan(2)}
    )
    body, head = task.split(task.init(1))
    new = sgd(grad(lambda h, b: task.loss(body | h, b)), head, shard.on("head"), lr)
    want = sgd(grad(lambda v, b: task.loss(v | new, b)), body, shard, lr)
    wrong = sgd(grad(lambda v, b: task.loss(v | head, b)), body, shard, lr)
    assert gap(rec.state["server"]["w"], want) < 1e-14 < gap(wrong, want)
    assert gap(subset(pick(rec.state["clients"]["w"], 3), task.head), new) < 1e-14


def test_fedrep_the_head_never_leaves_the_device():
    """Nothing of the size of a head goes up, and the server's bodies are the same
    whatever heads others hold.
    """
    task = toy(Normed(5, 6, 3))
    rec = run(FedRep(task, head_epochs=2), rounds=2, cohort=3)
    body, head = task.split(task.init(0))
    assert set(rec.meta["bytes"]["up"]) == {"w", "n"}
    assert set(rec.meta["bytes"]["down"]) == {"w"}
    assert rec.meta["bytes"]["up"]["w"]["values"] == sum(
        v.numel() for v in body.values()
    )
    assert not set(head) & set(rec.state["server"]["w"])


@pytest.mark.parametrize(
    "phase, frozen", [({"epochs": 0}, "body"), ({"head_epochs": 0}, "head")]
)
def test_fedrep_phases_do_not_touch_each_other(phase, frozen):
    """Momentum and decay of one phase leave the other's tensors alone,
    running statistics included.
    """
    task = toy(Normed(5, 6, 3))
    rec = run(
        FedRep(task, momentum=0.9, decay=0.1, **({"head_epochs": 2} | phase)), rounds=2
    )
    (body, head), clients = task.split(task.init(0)), rec.state["clients"]["w"]
    moved = {
        k: gap([clients[k]], [broadcast(task.init(0), range(task.C))[k]])
        for k in clients
    }
    still = body if frozen == "body" else head
    assert all((m < 1e-15) == (k in still) for k, m in moved.items())


# ---------------------------------------------------------------- Ditto
def test_ditto_on_bowls():
    """v_i -> (b_i + lam w) / (1 + lam), where w is the global model at its fixed point,
    the weighted mean of the b_i.
    """
    task, lam = bowls(B, N), 0.7
    rec = run(Ditto(task, lr=0.2, lam=lam), rounds=150, every=150)
    w = normalize(torch.tensor(N, dtype=torch.float64)) @ optima()
    for k in ("u", "v"):
        assert gap([rec.state["server"]["w"][k]], [w]) < 1e-12
        assert (
            gap([rec.state["clients"]["v"][k]], [(optima() + lam * w) / (1 + lam)])
            < 1e-12
        )


def test_ditto_one_step():
    """v <- v - lr (v - b + lam (v - w)), w as downloaded: from the same start the tie
    does not pull in the first round.
    """
    task, lr, lam = bowls(B, N), 0.2, 2.0
    one, two = (
        run(Ditto(task, lr=lr, lam=lam), rounds=t, seed=1).state for t in (1, 2)
    )
    w0 = task.init(1)["u"]
    v1 = w0 - lr * (w0 - optima())
    assert gap([one["clients"]["v"]["u"]], [v1]) < 1e-14
    w1 = one["server"]["w"]["u"]
    assert (
        gap([two["clients"]["v"]["u"]], [v1 - lr * (v1 - optima() + lam * (v1 - w1))])
        < 1e-13
    )


def test_ditto_shared_model_is_fedavgs():
    task = toy()
    a, b = (
        run(Ditto(task, momentum=0.5), rounds=4, cohort=3),
        run(FedAvg(task, momentum=0.5), rounds=4, cohort=3),
    )
    assert same(a.state["server"], b.state["server"])
    assert np.array_equal(a["pre", "global", "test"], b["pre", "global", "test"])


def test_ditto_without_tie_is_purely_local():
    task, R = toy(), 3
    rec = run(Ditto(task, lr=0.2, lam=0.0), rounds=R, seed=4)
    for c in range(task.C):
        assert (
            gap(
                pick(rec.state["clients"]["v"], c),
                alone(task, c, task.init(4), 4, R, 0.2),
            )
            < 1e-14
        )


def test_ditto_with_a_strong_tie_is_the_global_model():
    """At lr lam = 1 every step lands on w_t minus lr grad F: personal models stay
    within lr |grad F| of the download.
    """
    task = toy()
    near = {}
    for lam in (1.0, 100.0, 10000.0):
        rec = run(Ditto(task, lr=1 / (1 + lam), lam=lam), rounds=20, every=20)
        near[lam] = gap(
            rec.state["clients"]["v"],
            broadcast(rec.state["server"]["w"], range(task.C)),
        )
    assert near[1.0] > 10 * near[100.0] > 100 * near[10000.0] and near[10000.0] < 1e-3


def test_ditto_own_passes():
    """own = 3 are three passes over batches of their own;
    the shared model does not notice.
    """
    task, lr, lam = bowls(B, N), 0.2, 0.5
    a, b = (
        run(Ditto(task, lr=lr, lam=lam, own=3), rounds=2, seed=1),
        run(Ditto(task, lr=lr, lam=lam), rounds=2, seed=1),
    )
    assert same(a.state["server"], b.state["server"])
    v, w = (task.init(1)["u"].expand(4, 2) for _ in range(2))
    for t in range(2):
        centre = (optima() + lam * w) / (1 + lam)
        v = centre + (1 - lr * (1 + lam)) ** 3 * (v - centre)
        w = run(FedAvg(task, lr=lr), rounds=t + 1, seed=1).state["server"]["w"]["u"]
    assert gap([a.state["clients"]["v"]["u"]], [v]) < 1e-13


def test_ditto_ties_by_name_whatever_the_order():
    """A rule puts the server's tensors in another order than the clients':
    the tie must not mix them up.
    """
    task = toy()
    m = Ditto(task, lr=0.2, lam=0.5)
    (shard,) = task.shards(0, 0, 1, torch.tensor([3]), m.plans())
    down, v = task.init(1), task.init(2)
    turned = {k: down[k] for k in reversed(down)}
    (a, _), (b, _) = (m.local({"w": w}, {"v": v}, shard) for w in (down, turned))
    assert same(a, b)


# ---------------------------------------------------------------- pFedHN
def hyper(task, **more):
    """A small hypernetwork, and its server's state after two rounds."""
    m = PFedHN(task, width=7, lr=0.2, spread=1.0, **more)
    return m, run(m, rounds=2, seed=3).state["server"]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_pfedhn_step_is_the_gradient_by_finite_differences(depth, network):
    """phi moves along minus the gradient of  1/M sum_i <w_i(phi), gap_i>  with the
    gaps held fixed.
    """
    task = toy(network)
    m, server = hyper(task, depth=depth, server_lr=0.7)
    ids = torch.tensor([4, 0, 2])
    g = torch.Generator().manual_seed(1)
    up = {
        "gap": tmap(
            lambda x: torch.randn(x.shape, generator=g, dtype=x.dtype),
            m.write(server, ids),
        ),
        "cid": ids,
        "buffers": broadcast(server["buffers"], ids),
    }
    new = m.aggregate(server, up, None)
    phi = without(server, ("buffers",))

    def total(phi):
        return sum(
            (x * y).sum() for x, y in zip(leaves(m.write(phi, ids)), leaves(up["gap"]))
        ) / len(ids)

    h = 1e-6
    for _ in range(6):
        d = tmap(lambda x: torch.randn(x.shape, generator=g, dtype=x.dtype), phi)
        slope = float((total(add(phi, d, h)) - total(add(phi, d, -h))) / (2 * h))
        moved = sum(
            float((x * y).sum())
            for x, y in zip(
                leaves(d), leaves(add(without(new, ("buffers",)), phi, -1.0))
            )
        )
        assert moved == pytest.approx(-0.7 * slope, rel=1e-5, abs=1e-8)


def test_pfedhn_first_models_are_close_to_the_usual_start():
    task = toy(Normed(5, 6, 3))
    w = task.init(3)
    for spread, far in ((0.0, 0.0), (0.1, 0.5)):
        m = PFedHN(task, spread=spread)
        server = run(m, rounds=0, seed=3).state["server"]
        sent = m.send(server, torch.arange(task.C))["w"]
        for k in w:
            assert sent[k].shape == (task.C, *w[k].shape)
            off = (sent[k] - w[k]).abs().max()
            assert off <= far * w[k].std(correction=0) * 3
        models = torch.cat([sent[k].flatten(1) for k in sent], 1)
        assert len(models.unique(dim=0)) == (task.C if spread else 1)
        assert torch.equal(sent["bn.weight"], torch.ones_like(sent["bn.weight"]))


def test_pfedhn_with_a_deaf_hypernetwork_is_the_plain_average():
    """If no hidden unit fires only b moves, and server_lr = 1 is Uniform,
    bit for bit up to rounding.
    """

    @dataclass(frozen=True)
    class Deaf(PFedHN):
        def server(self, w, r):
            s = super().server(w, r)
            return s | {"c": tmap(lambda c: c - 1e6, s["c"])}

    task = toy(Normed(5, 6, 3))
    a, b = (
        run(c(task, lr=0.3, momentum=0.5), rounds=4, cohort=3, seed=2)
        for c in (Deaf, Uniform)
    )
    s = a.state["server"]
    assert (
        gap(
            {k: (s["b"] | s["buffers"])[k] for k in task.init(0)},
            b.state["server"]["w"],
        )
        < 1e-13
    )
    assert np.array_equal(a["pre", "personal", "test"], b["pre", "global", "test"])


def test_pfedhn_on_bowls():
    """Models linear in vectors as long as there are clients reach every
    client's own optimum.
    """
    task = bowls(B, N)
    m = PFedHN(task, lr=0.3, depth=0, size=4, spread=1.0, server_lr=1.0)
    rec = run(m, rounds=300, seed=1, every=300)
    sent = m.send(rec.state["server"], torch.arange(4))["w"]
    assert gap([sent["u"]], [optima()]) < 1e-6 and gap([sent["v"]], [optima()]) < 1e-6


def test_pfedhn_moves_everybody_but_only_the_vectors_of_those_present():
    task, seed = toy(), 3
    m = PFedHN(task, width=7)
    one, two = (
        run(m, rounds=3, seed=seed, cohort=2, upto=t).state["server"] for t in (0, 1)
    )
    moved = (one["e"] != two["e"]).any(1)
    assert moved.nonzero()[:, 0].tolist() == cohort_of(m, task, seed, 0, 2).tolist()
    sent = [m.send(s, torch.arange(task.C))["w"]["fc1.weight"] for s in (one, two)]
    assert ((sent[0] - sent[1]).flatten(1).abs().max(1).values > 0).all()


def test_pfedhn_sizes_and_guest():
    task = toy()
    s = run(PFedHN(task), rounds=0).state
    assert s["server"]["e"].shape == (6, 1 + 6 // 4) and s["clients"] == {}
    assert [tuple(h.shape) for h in s["server"]["H"].values()] == [
        (2, 100),
        (100, 100),
        (100, 100),
    ]
    m, server = hyper(task, size=5, depth=1)
    assert server["e"].shape == (6, 5)
    assert {k: a.shape[0] for k, a in server["A"].items()} == dict.fromkeys(
        server["b"], 7
    )
    guest = m.send(server, torch.tensor([-1]))["w"]
    mean = m.send(
        server | {"e": server["e"].mean(0, keepdim=True).expand(6, 5)},
        torch.tensor([2]),
    )["w"]
    assert gap(guest, mean) < 1e-14


# ---------------------------------------------------------------- fine-tuning
def test_tuned_is_the_model_after_more_training():
    task, lr, tune = bowls(B, N), 0.25, 3
    looked = {}

    @dataclass(frozen=True)
    class Look(Tuned):
        def views(self, down, mine, shard):
            views = super().views(down, mine, shard)
            looked[shard.t, int(shard.cid)] = views["tuned"](task.x[:4])
            return views

    rec = run(Look(task, inner=FedAvg(task, lr=lr), tune=tune), rounds=2)
    w = rec.state["server"]["in"]["w"]
    for c in range(4):
        v = {k: optima()[c] + (1 - lr) ** tune * (w[k] - optima()[c]) for k in w}
        assert gap([looked[2, c]], [task.net(v)(task.x[:4])]) < 1e-12


@pytest.mark.parametrize("inner", [FedAvg, FedPer, FedRep, Ditto, PFedHN])
def test_tuned_leaves_the_federation_untouched(inner):
    task = toy()
    plain, more = (
        run(inner(task), rounds=3, cohort=3),
        run(Tuned(task, inner=inner(task), tune=2), rounds=3, cohort=3),
    )
    assert same(more.state["server"]["in"], plain.state["server"])
    assert same(more.state["clients"], plain.state["clients"])
    assert all(np.array_equal(more.views[k], plain.views[k]) for k in plain.views)
    assert {k for k in more.views if k not in plain.views} == {
        ("pre", "tuned", s) for s in ("test", "val")
    }


@pytest.mark.parametrize("inner", [FedAvg, FedPer, FedRep, Ditto, PFedHN])
def test_tuned_by_nothing_is_the_view_itself(inner):
    task = toy()
    rec = run(Tuned(task, inner=inner(task), tune=0), rounds=3, cohort=3)
    own = "global" if inner in (FedAvg, Ditto) else "personal"
    assert np.array_equal(rec["pre", "tuned", "test"], rec["pre", own, "test"])


def test_tuned_step_size():
    task = toy()
    a, b = (
        run(Tuned(task, inner=FedAvg(task, lr=0.3), tune=4, **k), rounds=2)
        for k in ({}, {"tune_lr": 0.3})
    )
    c = run(Tuned(task, inner=FedAvg(task, lr=0.3), tune=4, tune_lr=2.0), rounds=2)
    assert same(seen(a), seen(b)) and same(state(a), state(c))
    assert not np.array_equal(a["pre", "tuned", "val"], c["pre", "tuned", "val"])


def test_tuned_needs_a_whole_model():
    @dataclass(frozen=True)
    class Scraps(FedAvg):
        def send(self, server, ids):
            return {"body": broadcast(server["w"], ids)}

        def views(self, down, mine, shard):
            return {"global": self.task.net(down["body"])}

    task = toy()
    with pytest.raises(
        errors.ClientError,
        match=(
            "client 0, round 0, views: .*Scraps leaves a client without a whole "
            "model: fc1"
        ),
    ):
        run(Tuned(task, inner=Scraps(task)), rounds=1)
