"""FedSAM, pFedMe, FedRep-2x and the hypernetworks: oracles in numpy or plain torch,
limits, and readings that ours are not.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from toys_core import Normed, bowls, gap, same, seen, state, toy

from fedlib.core import engine
from fedlib.core.clients import cohort_of
from fedlib.core.local import SAM, grad
from fedlib.core.method import Round
from fedlib.core.random import fold
from fedlib.core.tree import (
    add,
    broadcast,
    leaves,
    normalize,
    pick,
    sub,
    subset,
    tmap,
    without,
)
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.flat.fedsam import FedSAM
from fedlib.methods.make import make
from fedlib.methods.personal.fedrep import FedRep, FedRep2x
from fedlib.methods.personal.pfedhn import PFedHN
from fedlib.methods.personal.pfedhn_chunked import PFedHNChunked
from fedlib.methods.personal.pfedme import PFedMe
from fedlib.nets import MLP, Linear, ResNet18

# optima and sizes of four clients
B, N = [[0.0, 1.0], [4.0, -2.0], [2.0, 2.0], [-3.0, 5.0]], [1, 3, 4, 2]
HN = [PFedHN, PFedHNChunked]


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


def optima():
    return torch.tensor(B, dtype=torch.float64)


# --------------------------- softmax regression in numpy, and two batches of one client
TWO = (8, 5)  # client 0 has two batches of four rows


def softmax_task():
    return toy(Linear(5, 3), sizes=TWO)


def two_batches(method):
    """Rows and labels of client 0 in round 0, as numpy: x [4, 5], y [4], twice."""
    (shard,) = method.task.shards(1, 0, 1, torch.tensor([0]), method.plans())
    got = [(b.x.numpy(), b.y.numpy()) for b in shard]
    assert [len(y) for _, y in got] == [4, 4]
    return got


def start(task):
    return [v.numpy().copy() for v in task.init(1).values()]


def value(w, x, y):
    """Mean cross-entropy; w = [W [3, 5], c [3]]."""
    s = x @ w[0].T + w[1]
    return float((np.log(np.exp(s).sum(1)) - s[np.arange(len(y)), y]).mean())


def slope(w, x, y):
    s = x @ w[0].T + w[1]
    p = np.exp(s) / np.exp(s).sum(1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return [p.T @ x / len(y), p.mean(0)]


def plus(a, b, s=1.0):
    return [u + s * v for u, v in zip(a, b)]


def length(g):
    return np.sqrt(sum((v * v).sum() for v in g))


def one_client(method):
    """The server's and the clients' state after a round in which
    client 0 trains alone.
    """
    s = run(method, rounds=1, seed=1, cohort=lambda t: [0], how="loop").state
    return s["server"]["w"], s["clients"]


def far(tree, arrays):
    return gap(leaves(tree), [torch.as_tensor(a) for a in arrays])


# ---------------------------------------------------------------- FedSAM
def test_fedsam_two_batches_by_hand():
    """One norm over weight and bias together;
    a norm per tensor would be another method.
    """
    m = FedSAM(softmax_task(), lr=0.4, rho=0.3)
    w = each = start(m.task)
    for x, y in two_batches(m):
        g = slope(w, x, y)
        w = plus(w, slope(plus(w, g, 0.3 / length(g)), x, y), -0.4)
        g = slope(each, x, y)
        each = plus(
            each,
            slope([v + 0.3 * d / length([d]) for v, d in zip(each, g)], x, y),
            -0.4,
        )
    got, _ = one_client(m)
    assert far(got, w) < 1e-12 and far(got, each) > 1e-3


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_fedsam_is_fedavg_with_the_step_sam(network):
    task, kw = toy(network), {"lr": 0.2, "momentum": 0.5, "decay": 0.01, "epochs": 2}
    a = run(FedSAM(task, rho=0.2, **kw), rounds=3, cohort=3, seed=2)
    b = run(FedAvg(task, step=SAM(0.2), **kw), rounds=3, cohort=3, seed=2)
    assert same(state(a), state(b)) and same(seen(a), seen(b))


def test_fedsam_tends_to_fedavg_with_its_radius():
    """The gap falls in proportion to rho and is rounding at 1e-13;
    at 0.05 it is not.
    """
    task = toy()
    plain = state(run(FedAvg(task, lr=0.2), rounds=3, seed=2))
    gaps = {
        rho: gap(state(run(FedSAM(task, lr=0.2, rho=rho), rounds=3, seed=2)), plain)
        for rho in (0.05, 1e-4, 1e-6, 1e-13)
    }
    assert gaps[0.05] > 1e-3 and gaps[1e-13] < 1e-12
    assert gaps[1e-4] / gaps[1e-6] == pytest.approx(100, rel=0.01)


def test_fedsam_running_statistics_are_those_of_the_model_itself():
    """Not of the perturbed one: batch by batch they are what a forward
    pass at w leaves.
    """
    task = toy(Normed(5, 6, 3))
    m = FedSAM(task, lr=0.3, rho=0.5)
    w, bent = task.init(1), {}
    (shard,) = task.shards(1, 0, 1, torch.tensor([3]), m.plans())
    for b in shard:
        g = grad(task.loss)(w, b)
        up = add(w, g, 0.5 / float(torch.cat([x.flatten() for x in leaves(g)]).norm()))
        bent = subset(up, task.buffers) | task.refresh(up | bent, b)
        w = add(w, grad(task.loss)(up, b), -0.3) | task.refresh(w, b)
    got = run(m, rounds=1, seed=1, cohort=lambda t: [3], how="loop").state["server"][
        "w"
    ]
    assert gap(got, w) < 1e-12 and gap(subset(got, task.buffers), bent) > 1e-4


def test_fedsam_without_a_gradient_stays():
    """At the optimum the direction of the perturbation is 0 / 0:
    nothing may move, nothing may be NaN.
    """
    task = bowls([[1.0, 2.0], [1.0, 2.0]])
    m = FedSAM(task, lr=0.3)
    (shard,) = task.shards(0, 0, 1, torch.tensor([0]), m.plans())
    w = {
        "u": torch.tensor([1.0, 2.0], dtype=torch.float64),
        "v": torch.tensor([1.0, 2.0], dtype=torch.float64),
    }
    _, up = m.local({"w": w}, {}, shard)
    assert gap(up["w"], w) == 0


# ---------------------------------------------------------------- pFedMe
ME = {"lam": 4.0, "inner_steps": 3, "inner_lr": 0.1, "outer_lr": 0.15}


def me_by_hand(m, warm=True, decay=0.0):
    """theta and w_i after two batches; warm: theta goes on from the batch before."""
    w = theta = start(m.task)
    for x, y in two_batches(m):
        theta = theta if warm else w
        for _ in range(m.inner_steps):
            g = plus(
                plus(slope(theta, x, y), plus(theta, w, -1.0), m.lam), theta, decay
            )
            theta = plus(theta, g, -m.inner_lr)
        w = plus(w, plus(w, theta, -1.0), -m.outer_lr * m.lam)
    return theta, w


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_pfedme_two_batches_by_hand(decay):
    m = PFedMe(softmax_task(), decay=decay, **ME)
    theta, w = me_by_hand(m, decay=decay)
    got, clients = one_client(m)
    assert far(got, w) < 1e-12 and far(pick(clients["w"], 0), theta) < 1e-12
    assert clients["seen"].tolist() == [True, False]
    cold, _ = me_by_hand(m, warm=False, decay=decay)
    assert far(pick(clients["w"], 0), cold) > 1e-3
    if decay:
        assert far(pick(clients["w"], 0), me_by_hand(m)[0]) > 1e-3


def test_pfedme_keeps_theta_not_the_vector_that_it_uploads():
    """The authors' code scores w_i under the name of theta_i: with the same numbers a
    view on w_i is not ours.
    """
    m = PFedMe(softmax_task(), **ME)
    up, clients = one_client(m)  # one client, beta = 1: the server has its w_i
    theta, x = pick(clients["w"], 0), m.task.x[m.task.test[0]]
    assert gap(theta, up) > 0.01
    (shard,) = m.task.shards(1, 1, 1, torch.tensor([0]), m.plans())
    views = m.views({"w": up}, pick(clients, 0), shard)
    assert gap([views["personal"](x)], [m.task.net(theta)(x)]) == 0
    assert gap([views["personal"](x)], [m.task.net(up)(x)]) > 0.01


def test_pfedme_restarts_theta_in_every_round():
    """What the client kept has no say in its next training."""
    m = PFedMe(toy(), **ME)
    w = m.task.init(0)
    (shard,) = m.task.shards(1, 0, 1, torch.tensor([3]), m.plans())
    seen_ = torch.tensor(True)
    one, two = (
        m.local({"w": w}, {"w": v, "seen": seen_}, shard)
        for v in (w, tmap(lambda x: x + 7, w))
    )
    assert same(dict(enumerate(one)), dict(enumerate(two)))


def test_pfedme_solved_exactly_descends_on_the_moreau_envelope():
    """lam (w - prox(w)) is the gradient of M(w) = min F + lam/2 |theta - w|^2, here by
    differences of M found in numpy.
    """
    task = replace(softmax_task(), batch=100)
    m = PFedMe(task, lam=2.0, inner_steps=400, inner_lr=0.3, outer_lr=0.25)
    x, y = (v[task.train[0]].numpy() for v in (task.x, task.y))

    def envelope(w):
        theta = w
        for _ in range(400):
            theta = plus(
                theta, plus(slope(theta, x, y), plus(theta, w, -1.0), m.lam), -0.3
            )
        return value(theta, x, y) + m.lam / 2 * length(plus(theta, w, -1.0)) ** 2

    w, h, rng = start(task), 1e-5, np.random.default_rng(0)
    got, _ = one_client(m)
    moved = [(b - g.numpy()) / m.outer_lr for b, g in zip(w, leaves(got))]
    for _ in range(4):
        d = [rng.normal(size=v.shape) for v in w]
        want = (envelope(plus(w, d, h)) - envelope(plus(w, d, -h))) / (2 * h)
        assert sum((a * b).sum() for a, b in zip(moved, d)) == pytest.approx(
            want, rel=1e-6
        )
    # it is not grad F
    assert (
        far(tmap(lambda v: v / m.outer_lr, sub(task.init(1), got)), slope(w, x, y))
        > 1e-2
    )


def test_pfedme_on_bowls():
    """At rest w is the weighted mean of the optima, as the common curvature lets it,
    and theta_i = (b_i + lam w) / (1 + lam).
    """
    task, lam = bowls(B, N), 3.0
    rec = run(PFedMe(task, lam=lam, inner_lr=0.25, outer_lr=0.3), rounds=200, every=200)
    w = normalize(torch.tensor(N, dtype=torch.float64)) @ optima()
    for k in ("u", "v"):
        assert gap([rec.state["server"]["w"][k]], [w]) < 1e-12
        assert (
            gap([rec.state["clients"]["w"][k]], [(optima() + lam * w) / (1 + lam)])
            < 1e-12
        )


def test_pfedme_with_a_strong_tie_is_fedavg():
    """theta -> w_i, and lam (w_i - theta) -> grad F: FedAvg with the step outer_lr, up
    to terms of order 1 / lam.
    """
    task, lr, near, own = bowls(B, N), 1e-4, [], []
    plain = run(FedAvg(task, lr=lr), rounds=5, seed=1, every=5).state["server"]["w"]
    for lam in (1e2, 1e3, 1e4):
        s = run(
            PFedMe(task, lam=lam, inner_steps=1, inner_lr=1 / (1 + lam), outer_lr=lr),
            rounds=5,
            seed=1,
            every=5,
        ).state
        near.append(gap(s["server"]["w"], plain))
        own.append(gap(s["clients"]["w"], broadcast(s["server"]["w"], range(4))))
    moved = gap(plain, task.init(1))
    assert near[0] < 0.02 * moved and near[0] > 9 * near[1] > 81 * near[2]
    assert own[0] > 5 * own[1] > 20 * own[2]


def test_pfedme_beta_is_the_servers_step():
    """(1 - beta) w + beta mean on parameters, the plain mean on running statistics;
    beta = 1 is the mean to the last bit.
    """
    task = toy(Normed(5, 6, 3))
    w, one = (
        task.init(1),
        run(PFedMe(task, **ME), rounds=1, seed=1).state["server"]["w"],
    )
    for beta in (0.0, 0.5, 2.0):
        got = run(PFedMe(task, beta=beta, **ME), rounds=1, seed=1).state["server"]["w"]
        want = add(w, sub(one, w), beta) | subset(one, task.buffers)
        assert gap(got, want) < 1e-14
    assert gap(without(one, task.buffers), without(w, task.buffers)) > 1e-2


def test_pfedme_running_statistics_are_those_of_theta():
    """Refreshed once a batch, before its inner steps; w_i, which never sees a row,
    carries them to the server.
    """
    task = toy(Normed(5, 6, 3))
    m = PFedMe(task, **ME)
    w = theta = task.init(1)
    (shard,) = task.shards(1, 0, 1, torch.tensor([3]), m.plans())
    for b in shard:
        stats = task.refresh(theta, b)
        for _ in range(m.inner_steps):
            g = add(grad(task.loss)(theta, b), sub(theta, w), m.lam)
            theta = add(theta, g, -m.inner_lr) | subset(theta, task.buffers)
        w, theta = add(w, sub(w, theta), -m.outer_lr * m.lam) | stats, theta | stats
    s = run(m, rounds=1, seed=1, cohort=lambda t: [3], how="loop").state
    assert gap(s["server"]["w"], w) < 1e-12
    assert gap(pick(s["clients"]["w"], 3), theta) < 1e-12


def test_pfedme_serves_those_who_never_trained_with_the_present_model():
    task, seed = toy(), 2
    m = PFedMe(task, **ME)
    s = run(m, rounds=2, seed=seed, cohort=2).state
    trained = {c for t in range(2) for c in cohort_of(m, task, seed, t, 2).tolist()}
    assert 0 < len(trained) < task.C
    assert s["clients"]["seen"].nonzero()[:, 0].tolist() == sorted(trained)
    shards, x = task.shards(seed, 2, 2, torch.arange(task.C), m.plans()), task.x[:5]
    for c, shard in enumerate(shards):
        views = m.views({"w": s["server"]["w"]}, pick(s["clients"], c), shard)
        assert (gap([views["personal"](x)], [views["global"](x)]) == 0) == (
            c not in trained
        )


def test_pfedme_does_not_use_the_common_step_size():
    a, b = (run(PFedMe(toy(), lr=lr), rounds=2, seed=1) for lr in (0.01, 5.0))
    assert same(state(a), state(b))


# ---------------------------------------------------------------- FedRep-2x
def test_fedrep_twice_is_two_steps_on_each_batch():
    task, lr = toy(), 0.3
    m = FedRep2x(task, lr=lr, head_epochs=2)
    rec = run(m, rounds=1, seed=1, cohort=lambda t: [3])
    (shard,) = task.shards(1, 0, 1, torch.tensor([3]), m.plans())
    body, head = task.split(task.init(1))

    def step(part, rest, b):
        w = {k: v.clone().requires_grad_(k in part) for k, v in (part | rest).items()}
        d = torch.autograd.grad(task.loss(w, b), [w[k] for k in part])
        return {k: part[k] - lr * g for k, g in zip(part, d)}

    for b in shard.on("head"):
        head = step(head, body, b)
    once = body
    for b in shard:
        body, once = step(step(body, head, b), head, b), step(once, head, b)
    assert gap(rec.state["server"]["w"], body) < 1e-13
    assert gap(subset(pick(rec.state["clients"]["w"], 3), task.head), head) < 1e-13
    assert gap(once, body) > 1e-2
    assert (
        gap(
            run(
                FedRep(task, lr=lr, head_epochs=2),
                rounds=1,
                seed=1,
                cohort=lambda t: [3],
            ).state["server"]["w"],
            once,
        )
        < 1e-13
    )


def test_fedrep_twice_on_one_batch_is_fedrep_with_two_passes():
    task, kw = replace(toy(), batch=100), {"lr": 0.3, "head_epochs": 2}
    a, b = (
        run(FedRep2x(task, **kw), rounds=3, seed=1, cohort=3),
        run(FedRep(task, epochs=2, **kw), rounds=3, seed=1, cohort=3),
    )
    assert gap(state(a), state(b)) < 1e-13


# ---------------------------------------------------------------- hypernetworks
def hyper(cls, task, rounds=2, **more):
    """A small hypernetwork with models that are far apart, and its server's state."""
    more = ({"chunk": 16} if cls is PFedHNChunked else {}) | more
    m = cls(task, **({"width": 7, "lr": 0.2, "spread": 1.0} | more))
    return m, run(m, rounds=rounds, seed=3).state["server"]


@pytest.mark.parametrize("cls", HN)
@pytest.mark.parametrize("depth", [0, 2])
def test_the_reference_is_the_mean_of_all_models(cls, depth):
    """Which is not the model of the mean vector,
    unless models are linear in vectors.
    """
    task = toy(Normed(5, 6, 3))
    m, server = hyper(cls, task, depth=depth)
    sent = m.send(server, torch.arange(task.C))["w"]
    want, got = tmap(lambda x: x.mean(0), sent), m.reference(server)
    assert gap(got, {k: want[k] for k in got}) < 1e-13
    assert set(got) == set(want) == set(task.init(0))
    guest = pick(m.send(server, torch.tensor([-1]))["w"], 0)
    assert (gap(guest, want) < 1e-13) == (depth == 0)
    assert depth == 0 or gap(guest, want) > 1e-4


@pytest.mark.parametrize("cls", HN)
def test_a_state_of_another_task_is_refused(cls):
    """Ten classes against three, another width, another network, other clients: named
    with both shapes and the remedy.
    """
    _, server = hyper(cls, toy())
    up = {"gap": None, "cid": torch.tensor([0, 2]), "buffers": {}}
    cases = [
        (
            toy(MLP(5, 6, 10)),
            r"fc.weight is \[3, 6\] there, \[10, 6\] in task 'toy' with MLP\(",
        ),
        (toy(MLP(5, 8, 3)), r"fc1.weight is \[6, 5\] there, \[8, 5\] in task"),
        (toy(Linear(5, 3)), r"fc.weight is \[3, 6\] there, \[3, 5\] in task"),
        (toy(Normed(5, 6, 3)), r"one.weight is missing there, \[6, 5\] in task"),
        (toy(sizes=(5, 5)), r"the clients' vectors is 6 there, 2 in task 'toy'"),
    ]
    for task, says in cases:
        m = cls(task)
        for call, args in (
            (m.send, (torch.tensor([0]),)),
            (m.reference, ()),
            (m.aggregate, (up, None)),
        ):
            with pytest.raises(
                ValueError,
                match=(
                    f"{cls.__name__}: the state of the server was trained "
                    f".*{says}.*start anew"
                ),
            ):
                call(server, *args)


def test_a_run_goes_on_with_a_state_of_its_own_task_only(tmp_path, monkeypatch):
    """The same through the engine: a checkpoint of ten classes whose names agree is not
    taken for one of three.
    """
    run(PFedHN(toy(MLP(5, 6, 10))), rounds=2, folder=tmp_path, upto=1)
    # suppose that nobody had looked
    monkeypatch.setattr(engine, "same_run", lambda got, want, path: got)
    with pytest.raises(
        ValueError,
        match=r"fc.weight is \[100, 10, 6\] there, \[100, 3, 6\] in task 'toy'.*use",
    ):
        run(PFedHN(toy()), rounds=2, folder=tmp_path)


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("chunk", [5, 16, 10**6])
def test_chunks_step_is_the_gradient_of_autograd(depth, chunk):
    """phi moves along minus the gradient of  1/M sum_i <w_i(phi), gap_i>; the models
    here are written piece by piece.
    """
    task = toy(Normed(5, 6, 3))
    m, server = hyper(PFedHNChunked, task, depth=depth, chunk=chunk, server_lr=0.7)
    ids, g = torch.tensor([4, 0, 2]), torch.Generator().manual_seed(1)
    up = {
        "gap": tmap(
            lambda x: torch.randn(x.shape, generator=g, dtype=x.dtype),
            m.write(server, ids),
        ),
        "cid": ids,
        "buffers": broadcast(server["buffers"], ids),
    }
    new = m.aggregate(server, up, None)
    phi = tmap(lambda x: x.clone().requires_grad_(), without(server, ("buffers",)))
    A, total = phi["A"], 0.0
    for i, c in enumerate(ids.tolist()):
        row = []
        for u in phi["u"]:
            z = torch.cat([phi["e"][c], u])
            for k in phi["H"]:
                z = (z @ phi["H"][k] + phi["c"][k]).relu()
            row.append(z @ A / len(z) ** 0.5)
        row = torch.cat(row)[: sum(v.numel() for v in leaves(phi["b"]))] + torch.cat(
            [v.flatten() for v in leaves(phi["b"])]
        )
        total = total + row @ torch.cat(
            [v[i].flatten() for v in leaves(up["gap"])]
        ) / len(ids)
        mine = torch.cat([v[i].flatten() for v in leaves(m.write(server, ids))])
        assert gap([mine], [row]) < 1e-13
    total.backward()
    for k in phi:
        assert (
            gap(
                tmap(lambda x: x.detach(), {k: new[k]}),
                tmap(lambda x: (x - 0.7 * x.grad).detach(), {k: phi[k]}),
            )
            < 1e-12
        )
    assert (new["u"] != server["u"]).any() and (new["e"][ids] != server["e"][ids]).any()
    assert torch.equal(new["e"][[1, 3, 5]], server["e"][[1, 3, 5]])


def test_chunks_first_models_are_close_to_the_usual_start():
    task = toy(Normed(5, 6, 3))
    w = task.init(3)
    deviation = torch.cat(
        [(v - v.mean()).flatten() for v in without(w, task.buffers).values()]
    ).std(correction=0)
    for spread in (0.0, 0.1):
        m = PFedHNChunked(task, spread=spread, chunk=16)
        server = run(m, rounds=0, seed=3).state["server"]
        sent = m.send(server, torch.arange(task.C))["w"]
        off = torch.cat([(sent[k] - w[k]).flatten() for k in without(w, task.buffers)])
        assert off.square().mean().sqrt() <= 1.5 * spread * deviation
        assert (off.abs().max() > 0) == bool(spread)
        assert len(torch.cat([sent[k].flatten(1) for k in sent], 1).unique(dim=0)) == (
            task.C if spread else 1
        )


@pytest.mark.parametrize("chunk", [8, 10**6])
def test_chunks_learn(chunk):
    """A few rounds lower the loss of the models on the rows of their clients,
    and every client has its own.
    """
    task = toy()
    m = PFedHNChunked(task, lr=0.2, chunk=chunk, width=20)

    def loss(rounds):
        sent = m.send(
            run(m, rounds=rounds, seed=3, every=100).state["server"],
            torch.arange(task.C),
        )["w"]
        return np.mean(
            [
                float(
                    torch.nn.functional.cross_entropy(
                        task.net(pick(sent, c))(task.x[r]), task.y[r]
                    )
                )
                for c, r in enumerate(task.train)
            ]
        )

    assert loss(12) < 0.7 * loss(0)


def test_how_much_a_hypernetwork_holds():
    """The figures of the docstrings, for a ResNet-18 and a hundred clients;
    nothing is allocated.
    """
    w = {
        k: torch.empty(v.shape, device="meta")
        for k, v in ResNet18(10, norm="group", stem="cifar").init(0).items()
    }
    task = toy(sizes=(5,) * 100)
    P = sum(v.numel() for v in w.values())
    whole, chunked = (m.blank(w) for m in (PFedHN(task), PFedHNChunked(task)))
    size = 1 + 100 // 4
    assert P == 11_173_962 and chunked["u"].shape == (1365, size)
    hidden = 100 * size + (size * 100 + 2 * 100 * 100)  # client vectors, hidden weights
    # b and the hidden biases
    numbers = [
        sum(x.numel() for x in leaves(t)) + P + 3 * 100 for t in (whole, chunked)
    ]
    assert numbers == [
        101 * P + hidden + 300,
        P + hidden + 300 + size * 100 + 1365 * size + 100 * 8192,
    ]
    assert round(numbers[0] / 1e9, 2) == 1.13 and round(numbers[1] / 1e6) == 12


def test_one_piece_holds_no_more_than_the_model():
    task = toy()
    P = sum(v.numel() for v in leaves(task.init(0)))
    m, server = hyper(PFedHNChunked, task, rounds=0, chunk=10**9)
    assert server["A"].shape == (7, P) and server["u"].shape[0] == 1
    r = Round(-1, 1, fold(torch.tensor(3), -1, -999), None, torch.arange(task.C))
    assert (
        hyper(PFedHNChunked, task, rounds=0, chunk=P)[1].keys()
        == m.server(task.init(3), r).keys()
        == server.keys()
    )


# ---------------------------------------------------------------- bad input
BAD = [
    (
        "FedSAM",
        {"rho": 0},
        (
            "FedSAM.rho = 0 is no radius: give a finite number above 0; rho = 0 "
            "perturbs nothing: that is FedAvg"
        ),
    ),
    (
        "FedSAM",
        {"rho": float("inf")},
        "FedSAM.rho = inf is too large: radius of the perturbation; give a finite",
    ),
    ("FedSAM", {"rho": float("nan")}, "FedSAM.rho = nan is outside [0, inf]"),
    (
        "FedSAM",
        {"rho": -0.1},
        "FedSAM.rho = -0.1 is outside [0, inf]: radius of the perturbation",
    ),
    ("FedSAM", {"rho": "0.1"}, "FedSAM.rho = '0.1' is no number"),
    (
        "FedSAM",
        {"step": SAM(0.1)},
        (
            "FedSAM.step = SAM(rho=0.1): this method brings its own step, SAM(rho); "
            "give another one to"
        ),
    ),
    (
        "pFedMe",
        {"lam": 0},
        "PFedMe.lam = 0: without a tie the common model never moves",
    ),
    (
        "pFedMe",
        {"lam": float("inf")},
        "PFedMe.lam = inf is too large: tie of the personal to the common model",
    ),
    (
        "pFedMe",
        {"lam": 100},
        (
            "PFedMe.inner_lr = 0.03 with lam = 100: a product of 3 lets the descent "
            "diverge; give inner_lr below 2 / lam = 0.02, better half of that, or a "
            "smaller lam"
        ),
    ),
    (
        "pFedMe",
        {"outer_lr": 0.2},
        (
            "PFedMe.outer_lr = 0.2 with lam = 15.0: a product of 3 lets the descent "
            "diverge; give outer"
        ),
    ),
    ("pFedMe", {"inner_steps": 0}, "PFedMe.inner_steps = 0 is outside [1, 10000]"),
    ("pFedMe", {"beta": -1}, "PFedMe.beta = -1 is outside [0, inf]"),
    (
        "FedRep-2x",
        {"head_epochs": 0.5},
        "FedRep2x.head_epochs = 0.5 is not a whole number",
    ),
    (
        "pFedHN-chunked",
        {"chunk": 0},
        "PFedHNChunked.chunk = 0 is outside [1, 1000000000]: numbers per piece",
    ),
]


@pytest.mark.parametrize("name, kw, says", BAD)
def test_bad_input(name, kw, says):
    with pytest.raises(ValueError) as e:
        make(name, toy(), **kw)
    assert says in str(e.value)


def test_pfedme_beyond_its_bound_does_diverge():
    """inner_lr lam >= 2 is refused for a reason: on bowls the personal model runs away,
    just below 2 / (lam + 1) it does not.
    """
    task, last = bowls(B, N), {}
    for step in (1.98 / 16, 2.5 / 16):
        theta = w = task.init(0)["u"]
        for _ in range(60):
            theta = theta - step * (theta - optima()[0] + 15 * (theta - w))
        last[step] = float(
            (theta - (optima()[0] + 15 * w) / 16).norm()
            / (w - (optima()[0] + 15 * w) / 16).norm()
        )
    assert last[1.98 / 16] < 1 < last[2.5 / 16]
    with pytest.raises(ValueError, match="diverge"):
        PFedMe(task, inner_lr=2.5 / 16)
