"""FedAvg-P, FedAvg-FT, their FedProx forms, LG-FedAvg, FedBABU and FedProto: oracles in
plain torch, and the limits of each.
"""

import copy
import inspect
import re

import numpy as np
import pytest
import torch
from toys_core import Normed, bowls, gap, rows, same, seen, state, toy

from fedlib.core import engine
from fedlib.core.batches import Plan
from fedlib.core.clients import cohort_of
from fedlib.core.local import SAM, grad, sgd
from fedlib.core.method import Method
from fedlib.core.task import Task
from fedlib.core.tree import broadcast, normalize, pick
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.base.fedprox import FedProx
from fedlib.methods.base.finetune import FedAvgFT, FedProxFT
from fedlib.methods.base.own import FedAvgP, FedProxP
from fedlib.methods.base.tuned import Tuned
from fedlib.methods.personal.ditto import Ditto
from fedlib.methods.personal.fedbabu import FedBABU
from fedlib.methods.personal.fedproto import FedProto
from fedlib.methods.personal.lgfedavg import LGFedAvg
from fedlib.nets import MLP, Linear

ALL = [FedAvgP, FedProxP, FedAvgFT, FedProxFT, LGFedAvg, FedBABU, FedProto]
# optima and sizes of four bowls
B, N = [[0.0, 1.0], [4.0, -2.0], [2.0, 2.0], [-3.0, 5.0]], [1, 3, 4, 2]
# labels of each client's rows
HOLDS = {
    0: [0, 0, 0, 1, 1, 1, 1],
    1: [1, 1, 2, 2, 2, 1],
    2: [3, 3, 3, 3, 3],
    3: [0, 1, 2, 0],
}


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


def optima():
    return torch.tensor(B, dtype=torch.float64)


def alone(task, c, w, seed, R, lr):
    """Client c by itself: every round's batches, no server."""
    for t in range(R):
        w = sgd(
            grad(task.loss),
            w,
            task.shards(seed, t, R, torch.tensor([c]), {"train": Plan()})[0],
            lr,
        )
    return w


def skewed():
    """Four clients, four classes: nobody holds all of them, class 3 is held by client
    2 alone. Test rows of every class.
    """
    g = torch.Generator().manual_seed(11)
    sizes = [len(v) for v in HOLDS.values()]
    y = torch.tensor([k for v in HOLDS.values() for k in v] + [0, 1, 2, 3] * len(sizes))
    x = torch.randn(len(y), 5, generator=g, dtype=torch.float64)
    x[:, 0] += y
    n, C = sum(sizes), len(sizes)
    return Task(
        "skewed",
        MLP(5, 6, 4),
        x,
        y,
        rows(sizes),
        rows([0] * C),
        rows([4] * C, n),
        K=4,
        batch=3,
    )


def torch_net(task, w):
    """The same network as torch modules: (body, head)."""
    body = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU()).double()
    head = torch.nn.Linear(6, task.K).double()
    body.load_state_dict({"0.weight": w["fc1.weight"], "0.bias": w["fc1.bias"]})
    head.load_state_dict({"weight": w["fc.weight"], "bias": w["fc.bias"]})
    return body, head


def weights(body, head):
    return {
        "fc1.weight": body[0].weight.data,
        "fc1.bias": body[0].bias.data,
        "fc.weight": head.weight.data,
        "fc.bias": head.bias.data,
    }


def in_order(task, c, epochs):
    """Client c's batches when nothing is shuffled: (x, y) one after another."""
    r = task.train[c]
    return [(task.x[i], task.y[i]) for _ in range(epochs) for i in r.split(task.batch)]


def shard_of(method, task, c, t=0, seed=0):
    return task.shards(seed, t, 1, torch.tensor([c]), method.plans())[0]


def right(task, c, logits):
    return float((logits.argmax(1) == task.y[task.test[c]]).double().mean())


@pytest.mark.parametrize("method", ALL)
def test_equation_tags_in_the_code_are_in_the_docstring(method):
    classes = [c for c in method.__mro__ if issubclass(c, Method) and c is not Method]
    said = {t for c in classes for t in re.findall(r"eq:[\w-]+", c.__doc__)}
    used = {
        t for c in classes for t in re.findall(r"#.*?(eq:[\w-]+)", inspect.getsource(c))
    }
    assert used and used <= said


@pytest.mark.parametrize(
    "method, does",
    [
        (LGFedAvg, "keeps the body of a network at home"),
        (FedProto, "compares features"),
        (FedBABU, "trains the body of a network"),
    ],
)
def test_a_network_without_a_body_is_refused(method, does):
    with pytest.raises(
        ValueError,
        match=(
            f"{method.__name__} {does}.* all of Linear.* head .fc.weight, fc.bias.* a "
            "hidden layer"
        ),
    ):
        run(method(toy(Linear(5, 3))), rounds=1)


# ---------------------------------------------------------------- FedAvg-P
@pytest.mark.parametrize("method, kw", [(FedAvgP, {}), (FedProxP, {"mu": 0.7})])
def test_own_is_trained_if_online_and_the_download_if_not(method, kw):
    task, seed, lr, R = toy(), 3, 0.4, 3
    m = method(task, lr=lr, **kw)
    rec = run(m, rounds=R, seed=seed, cohort=2)
    trained = set()
    for t in range(R):
        before, after = (
            run(m, rounds=R, seed=seed, cohort=2, upto=u).state for u in (t, t + 1)
        )
        w, ids = before["server"]["w"], cohort_of(m, task, seed, t, 2).tolist()
        for c in range(task.C):
            held = w
            if c in ids:
                held = sgd(
                    grad(task.loss),
                    w,
                    shard_of(m, task, c, t, seed),
                    lr,
                    pull=(kw["mu"], w) if kw else None,
                )
                trained.add(c)
                assert gap(held, w) > 1e-3
            assert gap(pick(after["clients"]["w"], c), held) < 1e-15
            score = right(task, c, task.net(held)(task.x[task.test[c]]))
            assert rec["post", "personal", "test"][t, c] == pytest.approx(
                score, abs=1e-15
            )
    assert 2 < len(trained) < task.C
    assert np.array_equal(rec["pre", "personal", "test"], rec["pre", "global", "test"])
    assert not np.array_equal(
        rec["post", "personal", "test"], rec["pre", "personal", "test"][:R]
    )


@pytest.mark.parametrize(
    "method, plain",
    [(FedAvgP, FedAvg), (FedProxP, FedProx), (FedAvgFT, FedAvg), (FedProxFT, FedProx)],
)
def test_the_federation_is_the_plain_one(method, plain):
    task = toy(Normed(5, 6, 3))
    a, b = (run(m(task, momentum=0.5), rounds=3, cohort=3) for m in (method, plain))
    assert same(a.state["server"], b.state["server"])
    assert a.meta["bytes"] == b.meta["bytes"]
    assert np.array_equal(a["pre", "global", "test"], b["pre", "global", "test"])


@pytest.mark.parametrize("prox, plain", [(FedProxP, FedAvgP), (FedProxFT, FedAvgFT)])
def test_without_pull_prox_is_the_average(prox, plain):
    a, b, c = (
        run(m, rounds=3, cohort=3)
        for m in (prox(toy(), mu=0.0), plain(toy()), prox(toy(), mu=2.0))
    )
    assert same(state(a), state(b)) and same(seen(a), seen(b))
    assert gap(state(c), state(b)) > 1e-3


# ---------------------------------------------------------------- FedAvg-FT
def test_finetuning_by_hand():
    """Softmax regression on full batches,
    against gradient descent written with numpy.
    """
    task, lr, tune = toy(Linear(5, 3), batch=100), 0.3, 4
    m = FedAvgFT(task, lr=0.1, tune=tune, tune_lr=lr)
    w, c = task.init(2), 3
    x, y = task.x[task.train[c]].numpy(), np.eye(3)[task.y[task.train[c]].numpy()]
    W, b = w["fc.weight"].numpy().copy(), w["fc.bias"].numpy().copy()
    for _ in range(tune):
        e = np.exp(x @ W.T + b)
        d = (e / e.sum(1, keepdims=True) - y) / len(x)
        W, b = W - lr * d.T @ x, b - lr * d.sum(0)
    test = task.x[task.test[c]]
    got = m.views({"w": w}, {}, shard_of(m, task, c))["tuned"](test)
    assert np.allclose(got.numpy(), test.numpy() @ W.T + b, atol=1e-12)


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_finetuning_is_the_wrapper_around_fedavg(how):
    task = toy(Normed(5, 6, 3))
    a = run(FedAvgFT(task, lr=0.3, tune=3), rounds=3, cohort=3, guests=True, how=how)
    b = run(
        Tuned(task, inner=FedAvg(task, lr=0.3), tune=3),
        rounds=3,
        cohort=3,
        guests=True,
        how=how,
    )
    assert same(a.state["server"], b.state["server"]["in"]) and same(seen(a), seen(b))


def test_finetuning_on_bowls():
    """The distance of client i to its own optimum shrinks by (1 - lr)^tune."""
    task, lr, tune = bowls(B, N), 0.25, 3
    m, w = FedAvgFT(task, lr=lr, tune=tune), task.init(1)
    for c in range(4):
        v = {k: optima()[c] + (1 - lr) ** tune * (w[k] - optima()[c]) for k in w}
        got = m.views({"w": w}, {}, shard_of(m, task, c))["tuned"](task.x[:5])
        assert gap([got], [task.net(v)(task.x[:5])]) < 1e-13


def test_finetuning_walks_batches_as_training_does():
    task = toy()
    want = Plan(2, None, "drop", False)
    for m in (
        FedAvgFT(task, tune=2, last="drop", shuffle=False),
        Tuned(task, inner=FedAvg(task, last="drop", shuffle=False), tune=2),
    ):
        assert m.plans()["tune"] == want
        assert m.plans()["train"] == want._replace(epochs=1)


@pytest.mark.parametrize("method", [FedAvgFT, FedProxFT, FedBABU])
def test_finetuning_leaves_the_federation_untouched(method):
    task = toy(Normed(5, 6, 3))
    recs = [
        run(method(task, momentum=0.5, **k), rounds=3, cohort=3, every=e)
        for k, e in (
            ({"tune": 0}, 1),
            ({"tune": 4, "tune_lr": 0.7}, 1),
            ({"tune": 4}, 3),
            ({}, 1),
        )
    ]
    assert all(same(state(r), state(recs[0])) for r in recs)
    none, much = recs[:2]
    assert np.array_equal(none["pre", "tuned", "test"], none["pre", "global", "test"])
    assert not np.array_equal(
        much["pre", "tuned", "test"], much["pre", "global", "test"]
    )
    assert {v for _, v, _ in much.views} == {"global", "tuned"}


# ---------------------------------------------------------------- LG-FedAvg
def test_lgfedavg_on_bowls():
    """Head v: FedAvg's. Body u: each client's own, for as many steps as it trained."""
    task, lr, R = bowls(B, N), 0.25, 6
    rec = run(LGFedAvg(task, lr=lr), rounds=R, seed=1, cohort=2)
    u, v, times = task.init(1)["u"].expand(4, 2).clone(), task.init(1)["v"], np.zeros(4)
    for ids in rec.logs["cohort"]:
        p = normalize(torch.tensor(N, dtype=torch.float64)[ids])
        u[ids] = optima()[ids] + (1 - lr) * (u[ids] - optima()[ids])
        v = p @ (optima()[ids] + (1 - lr) * (v - optima()[ids]))
        times[ids] += 1
    assert gap([rec.state["server"]["w"]["v"]], [v]) < 1e-13
    assert gap([rec.state["clients"]["w"]["u"]], [u]) < 1e-13
    assert len(set(times)) > 1


def test_lgfedavg_bodies_never_leave():
    """What goes up and down is the head, and an absent client gets the new head
    under its old body.
    """
    task, seed = toy(Normed(5, 6, 3)), 2
    m = LGFedAvg(task)
    rec = run(m, rounds=3, cohort=3, seed=seed)
    head = task.split(task.init(0))[1]
    size = sum(v.numel() for v in head.values())
    assert set(rec.state["server"]["w"]) == set(head)
    assert set(rec.meta["bytes"]["up"]) == {"w", "n"}
    assert (
        rec.meta["bytes"]["up"]["w"]["values"]
        == rec.meta["bytes"]["down"]["w"]["values"]
        == size
    )
    assert rec.meta["bytes"]["up"]["w"]["bytes"] == size * 8
    assert rec.meta["bytes"]["up"]["n"]["values"] == 1
    one, two = (run(m, rounds=3, cohort=3, seed=seed, upto=t).state for t in (1, 2))
    ids = cohort_of(m, task, seed, 1, 3).tolist()
    for c in range(task.C):
        (b1, _), (b2, h2) = (task.split(pick(s["clients"]["w"], c)) for s in (one, two))
        assert (gap(b1, b2) > 1e-6) == (c in ids)
        assert (gap(h2, one["server"]["w"]) > 1e-6) == (c in ids)


def test_lgfedavg_of_one_client_is_local_training():
    task = toy(sizes=(9,))
    rec = run(LGFedAvg(task, lr=0.3), rounds=4, seed=5)
    assert (
        gap(pick(rec.state["clients"]["w"], 0), alone(task, 0, task.init(5), 5, 4, 0.3))
        < 1e-14
    )


# ---------------------------------------------------------------- FedBABU
def test_fedbabu_by_plain_torch():
    """Two rounds, two passes each, of an optimiser that was given the body alone; then
    fine-tuning of everything.
    """
    task, lr, R, tune = toy(), 0.4, 2, 3
    m = FedBABU(task, lr=lr, epochs=2, shuffle=False, tune=tune)
    rec = run(m, rounds=R, seed=1)
    body, head = torch_net(task, task.init(1))
    n = np.array([len(r) for r in task.train])
    for _ in range(R):
        bodies = []
        for c in range(task.C):
            mine = copy.deepcopy(body)
            opt = torch.optim.SGD(mine.parameters(), lr)
            for x, y in in_order(task, c, 2):
                opt.zero_grad()
                torch.nn.functional.cross_entropy(head(mine(x)), y).backward()
                opt.step()
            bodies.append(mine.state_dict())
        body.load_state_dict(
            {k: sum(p * b[k] for p, b in zip(n / n.sum(), bodies)) for k in bodies[0]}
        )
    w = weights(body, head)
    assert gap(rec.state["server"]["w"], task.split(w)[0]) < 1e-13
    for c in range(task.C):
        mine = torch.nn.Sequential(*copy.deepcopy((body, head)))
        opt = torch.optim.SGD(mine.parameters(), lr)
        for x, y in in_order(task, c, tune):
            opt.zero_grad()
            torch.nn.functional.cross_entropy(mine(x), y).backward()
            opt.step()
        test = task.x[task.test[c]]
        views = m.views(
            rec.state["server"], pick(rec.state["clients"], c), shard_of(m, task, c)
        )
        assert gap([views["tuned"](test)], [mine(test)]) < 1e-12
        assert gap([views["global"](test)], [head(body(test))]) < 1e-12
        assert rec["pre", "tuned", "test"][-1, c] == pytest.approx(
            right(task, c, mine(test)), abs=1e-15
        )


@pytest.mark.parametrize("more", [{}, {"momentum": 0.9, "decay": 0.1}])
def test_fedbabu_head_never_moves_and_is_never_sent(more):
    task, seed, R = toy(Normed(5, 6, 3)), 4, 3
    body, head = task.split(task.init(seed))
    for t in range(R + 1):
        rec = run(FedBABU(task, tune=1, **more), rounds=R, seed=seed, cohort=3, upto=t)
        assert same(rec.state["clients"]["w"], broadcast(head, range(task.C)))
        assert set(rec.state["server"]["w"]) == set(body)
        assert (gap(rec.state["server"]["w"], body) > 1e-3) == (t > 0)
    size = sum(v.numel() for v in body.values())
    assert [rec.meta["bytes"][way]["w"]["values"] for way in ("up", "down")] == [
        size,
        size,
    ]


def test_fedbabu_tunes_ten_passes_unless_told():
    assert FedBABU(toy()).plans() == {"train": Plan(1), "tune": Plan(10)}


# ---------------------------------------------------------------- FedProto
def fedproto_by_hand(task, seed, cohorts, lr, lam, epochs):
    """Models, table {class: vector} after the rounds: dictionaries, lists, and one
    feature vector at a time.
    """
    models, table = [torch_net(task, task.init(seed)) for _ in range(task.C)], {}
    for ids in cohorts:
        sent = []
        for c in ids:
            body, head = models[c]
            opt, met = torch.optim.SGD([*body.parameters(), *head.parameters()], lr), {}
            for x, y in in_order(task, c, epochs):
                z = body(x)
                target = z.detach().clone()
                for i, k in enumerate(y.tolist()):
                    target[i] = table.get(k, target[i])
                    met.setdefault(k, []).append(z[i].detach().clone())
                loss = torch.nn.functional.cross_entropy(
                    head(z), y
                ) + lam * torch.nn.functional.mse_loss(z, target)
                opt.zero_grad()
                loss.backward()
                opt.step()
            sent.append({k: torch.stack(v).mean(0) for k, v in met.items()})
        table = {
            k: torch.stack([s[k] for s in sent if k in s]).mean(0)
            for k in range(task.K)
            if any(k in s for s in sent)
        }
    return models, table


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_fedproto_by_plain_torch(how):
    task, lr, lam, seed, cohorts = (
        skewed(),
        0.3,
        2.0,
        3,
        [[0, 1, 2], [0, 3], [1, 2, 3], [0, 1]],
    )
    m = FedProto(task, lr=lr, lam=lam, epochs=2, shuffle=False)
    rec = run(m, rounds=4, seed=seed, cohort=lambda t: cohorts[min(t, 3)], how=how)
    models, table = fedproto_by_hand(task, seed, cohorts, lr, lam, 2)
    server = rec.state["server"]
    assert sorted(table) == [0, 1, 2] and server["held"].tolist() == [1, 2, 1, 0]
    assert rec.logs["held"].tolist() == [
        [sum(k in HOLDS[c] for c in ids) for k in range(4)] for ids in cohorts
    ]
    for k in table:
        assert gap([server["proto"][k]], [table[k]]) < 1e-13
    for c, (body, head) in enumerate(models):
        mine, x = pick(rec.state["clients"], c), task.x[task.test[c]]
        assert gap(mine["w"], weights(body, head)) < 1e-13
        got = m.views(server, mine, shard_of(m, task, c))
        want = torch.stack([-(body(x) - table[k]).square().sum(1) for k in range(3)], 1)
        assert gap([got["prototype"](x)[:, :3]], [want]) < 1e-12
        assert gap([got["personal"](x)], [head(body(x))]) < 1e-12
        assert rec["pre", "prototype", "test"][-1, c] == pytest.approx(
            right(task, c, want), abs=1e-15
        )
        assert rec["pre", "personal", "test"][-1, c] == pytest.approx(
            right(task, c, head(body(x))), abs=1e-15
        )


def test_fedproto_without_movement_sends_plain_class_means():
    """At step size 0 the features do not move: the table is the plain mean of the
    clients' class means, whatever their sizes.
    """
    task = skewed()
    server = run(
        FedProto(task, lr=0.0, epochs=3), rounds=1, seed=2, cohort=lambda t: [0, 1, 3]
    ).state["server"]
    z, y = task.feat(task.init(2), task.x).numpy(), task.y.numpy()
    for k, who in ((0, [0, 3]), (1, [0, 1, 3]), (2, [1, 3])):
        own = [z[r][y[r] == k].mean(0) for r in (task.train[c].numpy() for c in who)]
        assert np.allclose(server["proto"][k].numpy(), np.mean(own, 0), atol=1e-14)
    assert server["held"].tolist() == [2, 3, 2, 0] and not server["proto"][3].any()


def test_fedproto_an_absent_class_is_never_predicted():
    """Class 3 is at client 2, which is online in round 0 alone:
    predicted after it, by nobody after round 1.
    """
    task = skewed()
    m = FedProto(task, lr=0.3)
    states = [
        run(
            m, rounds=3, cohort=lambda t: [0, 1, 2] if t == 0 else [0, 1, 3], upto=t
        ).state
        for t in (1, 2, 3)
    ]
    met = []
    for s in states:
        views = [
            m.views(s["server"], pick(s["clients"], c), shard_of(m, task, c))
            for c in range(task.C)
        ]
        met.append(torch.stack([v["prototype"](task.x) for v in views]))  # [C, N, K]
    assert met[0].isfinite().all() and (met[0].argmax(2) == 3).any()
    for z in met[1:]:
        assert (z[..., 3] == -torch.inf).all()
        assert z[..., :3].isfinite().all()
        assert not (z.argmax(2) == 3).any()


def test_fedproto_a_class_without_prototype_does_not_pull():
    """Client 2 holds class 3 alone, of which the table knows nothing: no lam moves it.

    Client 1 holds classes of the table.
    """
    task, seed = skewed(), 1
    start = run(
        FedProto(task), rounds=2, seed=seed, cohort=lambda t: [0, 3], upto=1
    ).state
    down = {k: start["server"][k] for k in ("proto", "held")}
    assert down["held"].tolist() == [2, 2, 1, 0]
    for c, pulled in ((2, False), (1, True)):
        mine = pick(start["clients"], c)
        out = [FedProto(task, lr=0.3, lam=lam) for lam in (0.0, 5.0)]
        a, b = (m.local(down, mine, shard_of(m, task, c))[0]["w"] for m in out)
        assert (gap(a, b) > 1e-3) == pulled and (pulled or same(a, b))
        local = sgd(grad(task.loss), mine["w"], shard_of(out[0], task, c), 0.3)
        assert gap(a, local) < 1e-15


def test_fedproto_a_row_without_prototype_counts_in_the_mean():
    """One full batch of client 3 (classes 0, 1, 2, 0) with a prototype of class 1 only:
    a quarter of one row's pull.
    """
    task, lam, lr = skewed(), 2.0, 0.1
    w, c = task.init(7), 3
    down = {
        "proto": torch.randn(
            4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64
        ),
        "held": torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64),
    }
    one = Task(
        "one",
        task.network,
        task.x,
        task.y,
        task.train,
        task.val,
        task.test,
        K=4,
        batch=100,
    )
    m = FedProto(one, lr=lr, lam=lam)
    (got, _), (free, _) = (
        x.local(down, {"w": w}, shard_of(m, one, c))
        for x in (m, FedProto(one, lr=lr, lam=0.0))
    )
    x = one.x[one.train[c]][1:2]
    pull = grad(lambda v: (one.feat(v, x) - down["proto"][1]).square().sum() / 6 / 4)(w)
    assert gap(got["w"], {k: free["w"][k] - lr * lam * pull[k] for k in w}) < 1e-14
    assert gap(got["w"], free["w"]) > 1e-4


def test_fedproto_without_pull_is_local_training():
    task, R = toy(), 3
    rec = run(FedProto(task, lr=0.2, lam=0.0), rounds=R, seed=4)
    for c in range(task.C):
        assert (
            gap(
                pick(rec.state["clients"]["w"], c),
                alone(task, c, task.init(4), 4, R, 0.2),
            )
            < 1e-14
        )


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_fedproto_without_pull_is_ditto_without_tie(how):
    """Every piece of local training is there: momentum, decay, another step,
    running statistics.
    """
    task, pieces = (
        toy(Normed(5, 6, 3)),
        {"lr": 0.2, "lam": 0.0, "momentum": 0.9, "decay": 0.1, "step": SAM(0.1)},
    )
    a, b = (
        run(m(task, **pieces), rounds=3, cohort=3, how=how).state["clients"]
        for m in (FedProto, Ditto)
    )
    assert gap(a["w"], b["v"]) < 1e-13
    assert gap(a["w"], broadcast(task.init(0), range(task.C))) > 1e-2


def test_fedproto_before_the_first_aggregation_nobody_is_right():
    rec = run(FedProto(skewed()), rounds=2)
    assert (rec["pre", "prototype", "test"][0] == 0).all()
    assert rec["pre", "prototype", "test"][1:].any()
    assert rec["pre", "personal", "test"][0].any()
    assert ("post", "personal", "test") in rec.views


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_fedproto_own_candidates(how):
    """A client that may predict its own classes alone does so; one without rows
    predicts nothing. Training is the same.
    """
    task = skewed()
    a, b = (
        run(FedProto(task, candidates=c), rounds=3, how=how) for c in ("all", "own")
    )
    assert same(state(a), state(b))
    assert not np.array_equal(
        a["pre", "prototype", "test"], b["pre", "prototype", "test"]
    )
    m, s = FedProto(task, candidates="own"), b.state
    for c, labels in HOLDS.items():
        z = m.views(s["server"], pick(s["clients"], c), shard_of(m, task, c))[
            "prototype"
        ](task.x)
        assert (
            set((z[0] > -torch.inf).nonzero()[:, 0].tolist())
            == set(labels)
            >= set(z.argmax(1).tolist())
        )
    guests = run(FedProto(toy(), candidates="own"), rounds=2, guests=True, how=how)[
        "guest", "prototype", "test"
    ]
    assert (guests[:, 1] == 0).all()  # this guest has no training rows


def test_fedproto_sends_no_model():
    task = toy(Normed(5, 6, 3))
    told = run(FedProto(task), rounds=2, cohort=3).meta["bytes"]
    assert {k: v["shape"] for k, v in told["up"].items()} == {
        "proto": [3, 6],
        "count": [3],
    }
    assert {k: v["shape"] for k, v in told["down"].items()} == {
        "proto": [3, 6],
        "held": [3],
    }


def test_fedproto_counts_every_row_of_every_pass():
    task = skewed()
    m = FedProto(task, epochs=3)
    down = {
        "proto": torch.zeros(4, 6, dtype=torch.float64),
        "held": torch.zeros(4, dtype=torch.float64),
    }
    for c, labels in HOLDS.items():
        up = m.local(down, {"w": task.init(0)}, shard_of(m, task, c))[1]
        assert up["count"].tolist() == [3 * labels.count(k) for k in range(4)]
        assert (up["proto"].abs().sum(1) > 0).tolist() == [
            k in labels for k in range(4)
        ]


def test_fedproto_refuses_unknown_candidates():
    with pytest.raises(
        ValueError,
        match=(
            "FedProto.candidates = 'mine' is not one of 'all', 'own': classes that a "
            "client may"
        ),
    ):
        FedProto(toy(), candidates="mine")


def test_lgfedavg_shares_what_fedbabu_freezes():
    """Each sends a half of the model, and the halves are different ones."""
    task = toy()
    head, body = (
        set(run(m(task), rounds=1).state["server"]["w"]) for m in (LGFedAvg, FedBABU)
    )
    assert head == set(task.head)
    assert body
    assert head | body == set(task.init(0))
    assert not head & body
