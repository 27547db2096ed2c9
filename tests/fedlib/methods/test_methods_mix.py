"""FedALA, FedPAC and CD2-pFed: plain loops beside them,
and limits at which they become something simpler.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize
from toys_core import Normed, bowls, gap, same, state, toy

from fedlib.core import engine
from fedlib.core.clients import cohort_of
from fedlib.core.method import Round
from fedlib.core.server import simplex_qp
from fedlib.core.task import Task
from fedlib.core.tree import broadcast, leaves, normalize, pick, subset, without
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.personal.cd2pfed import CD2pFed
from fedlib.methods.personal.fedala import FedALA
from fedlib.methods.personal.fedpac import STEPS, FedPAC
from fedlib.methods.personal.fedrep import FedRep
from fedlib.nets import CNN, MLP, FedAvgCNN, Linear

FIXED = {"shuffle": False, "last": "drop"}  # the batches of the chapter


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


def random(*shape, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def one(task, method, c, t=1, R=4):
    """The shard of one client."""
    return task.shards(0, t, R, torch.tensor([c]), method.plans())[0]


def descend(loss, w, batches, lr, names=None):
    """Plain SGD on the tensors `names` (default: all), by autograd and by hand."""
    for b in batches:
        p = {
            k: v.detach().clone().requires_grad_(names is None or k in names)
            for k, v in w.items()
        }
        move = [k for k in p if p[k].requires_grad]
        with torch.enable_grad():
            g = torch.autograd.grad(loss(p, b), [p[k] for k in move], allow_unused=True)
        w = {k: v.detach() for k, v in p.items()} | {
            k: p[k].detach() - lr * d for k, d in zip(move, g) if d is not None
        }
    return w


def cross_entropy(task):
    return lambda w, b: F.cross_entropy(task.net(w)(b.x), b.y)


def photos(network, C=4, n=12, size=16, K=3):
    """Clients with n training, 2 validation and 4 test images each."""
    at = torch.arange(C * (n + 6)).split(n + 6)
    y = torch.arange(C * (n + 6)) % K
    x = random(len(y), 1, size, size) + y[:, None, None, None]
    return Task(
        "photos",
        network,
        x,
        y,
        *(
            tuple(r[s] for r in at)
            for s in (slice(n), slice(n, n + 2), slice(n + 2, None))
        ),
        K=K,
        batch=4,
    )


# ---------------------------------------------------------------- the quadratic program
def grams(M, n, d, noise, seed=0):
    """M matrices [n, n]: D_i + diag(V) of random points."""
    H, V = random(M, n, d, seed=seed), noise * random(M, n, seed=seed + 1).abs()
    return torch.stack(
        [
            (h[i % n] - h) @ (h[i % n] - h).T + v.diag()
            for i, (h, v) in enumerate(zip(H, V))
        ]
    )


def slsqp(q):
    """argmin v' q v over the simplex by another solver."""
    n = len(q)
    return minimize(
        lambda v: v @ q @ v,
        np.full(n, 1 / n),
        jac=lambda v: 2 * q @ v,
        bounds=[(0, 1)] * n,
        method="SLSQP",
        constraints={"type": "eq", "fun": lambda v: v.sum() - 1},
        options={"ftol": 1e-15, "maxiter": 500},
    )


@pytest.mark.parametrize(
    "n, d, noise", [(2, 3, 1.0), (4, 3, 0.3), (8, 40, 0.01), (20, 100, 1e-3)]
)
def test_qp_satisfies_kkt(n, d, noise):
    """One number bounds the slope at every weight from below,
    and equals it where the weight is positive.
    """
    Q = grams(6, n, d, noise)
    a = simplex_qp(Q)
    slope = 2 * torch.einsum("mpq,mq->mp", Q, a)
    level = slope.min(1, keepdim=True).values
    assert (a >= 0).all() and gap([a.sum(1)], [torch.ones(6)]) < 1e-12
    assert float((a * (slope - level)).sum(1).max()) < 1e-9


@pytest.mark.parametrize("n, d, noise", [(3, 3, 1.0), (8, 40, 0.01)])
def test_qp_is_not_beaten_by_another_solver(n, d, noise):
    Q = grams(5, n, d, noise, seed=7)
    a = simplex_qp(Q)
    for q, ours in zip(Q.numpy(), a.numpy()):
        other = slsqp(q)
        assert ours @ q @ ours <= other.fun + 1e-10
        assert np.abs(ours - other.x).max() < 1e-4


def test_qp_with_known_answers():
    v = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert gap([simplex_qp(v.diag()[None])[0]], [normalize(1 / v)]) < 1e-12  # a ~ 1 / v
    corner = torch.tensor([[[1.0, 2.0], [2.0, 5.0]]], dtype=torch.float64)
    assert gap([simplex_qp(corner)[0]], [torch.tensor([1.0, 0.0])]) < 1e-12
    assert gap([simplex_qp(torch.zeros(2, 3, 3))], [torch.full((2, 3), 1 / 3)]) < 1e-7
    Q = grams(4, 5, 3, 0.1)
    assert gap([simplex_qp(Q)], [torch.cat([simplex_qp(q[None]) for q in Q])]) < 1e-12


def test_qp_refuses_what_is_no_program():
    with pytest.raises(
        ValueError,
        match=r"simplex_qp got Q of shape \[2, 3\]: give one square matrix per program",
    ):
        simplex_qp(torch.zeros(2, 3))


# ---------------------------------------------------------------- FedPAC
def statistics(task, w, rows):
    """h [K, D], V, and class means and counts of a client's rows, class by class."""
    z, y, K = task.feat(w, task.x[rows]), task.y[rows], task.K
    h, mu, V, n = (
        torch.zeros(K, z.shape[1], dtype=z.dtype),
        torch.zeros(K, z.shape[1], dtype=z.dtype),
        0.0,
        [0] * K,
    )
    for k in range(K):
        own = z[y == k]
        if len(own):
            n[k], mu[k], pi = len(own), own.mean(0), len(own) / len(rows)
            h[k] = pi * mu[k]
            V += pi * float((own.T @ own / len(own)).trace()) - pi**2 * float(
                mu[k] @ mu[k]
            )
    return h, V / len(rows), mu, torch.tensor(n, dtype=z.dtype)


@pytest.mark.parametrize(
    "epochs, head_epochs, head_lr", [(1, 1, 0.0), (2, 1, 0.5), (2, 0, 0.0)]
)
def test_fedpac_local_training_is_that_of_plain_loops(epochs, head_epochs, head_lr):
    task = toy()
    m = FedPAC(
        task,
        lr=0.2,
        lam=0.7,
        epochs=epochs,
        head_epochs=head_epochs,
        head_lr=head_lr,
        **FIXED,
    )
    w, c, seen = (
        task.init(3),
        random(3, 6),
        torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64),
    )
    for client in (3, 5):
        shard, rows = one(task, m, client), task.train[client]
        mine, up = m.local({"c": c, "seen": seen}, {"w": w}, shard)
        h, V, *_ = statistics(task, w, rows)
        # before training
        assert (
            gap([up["h"], up["V"]], [h, torch.tensor(V, dtype=torch.float64)]) < 1e-13
        )
        new = descend(
            cross_entropy(task), w, shard.on("head"), head_lr or 0.2, task.head
        )

        def pulled(w, b):
            z, total = task.feat(w, b.x), 0.0
            for s in range(len(b.y)):
                k = int(b.y[s])
                total = total + (((z[s] - c[k]) ** 2).mean() if seen[k] else 0.0)
            return cross_entropy(task)(w, b) + 0.7 * total / len(b.y)

        new = descend(pulled, new, shard, 0.2, [k for k in w if k not in task.head])
        assert gap({k: mine["w"][k] for k in new}, new) < 1e-13
        _, _, mu, n = statistics(task, new, rows)  # after training
        assert gap([up["means"], up["classes"]], [mu, n]) < 1e-13


def outer(h, V):
    """The programs as first written, traces of outer products: Q [M, M, M]."""
    M, K, _ = h.shape
    Q = np.zeros((M, M, M))
    for i in range(M):
        for p in range(M):
            for q in range(M):
                Q[i, p, q] = sum(
                    np.trace(np.outer(h[i, k] - h[p, k], h[i, k] - h[q, k]))
                    for k in range(K)
                ) + V[p] * (p == q)
    return Q


def mixed(solutions):
    a = np.where(solutions < 1e-3, 0, solutions)
    return torch.tensor(a / a.sum(1, keepdims=True))


def test_fedpac_gram_form_is_the_outer_product_form():
    h, V = (
        0.3 * random(4, 3, 5),
        torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=torch.float64),
    )
    A, Q = FedPAC(toy()).mixtures(h, V), outer(h.numpy(), V.numpy())
    assert gap([A], [mixed(simplex_qp(torch.tensor(Q)).numpy())]) < 1e-10
    assert gap([A], [mixed(np.stack([slsqp(q).x for q in Q]))]) < 1e-4
    assert (A > 0).all() and gap([A], [torch.eye(4)]) > 0.1  # mixtures, not choices


def test_fedpac_cuts_tiny_weights():
    """Two near clients and one far away, which would get a weight below 1e-3."""
    h = torch.tensor([[[0.0, 0.0]], [[0.1, 0.0]], [[0.0, 30.0]]], dtype=torch.float64)
    V = torch.full((3,), 0.05, dtype=torch.float64)
    A, whole = (
        FedPAC(toy()).mixtures(h, V),
        simplex_qp(torch.tensor(outer(h.numpy(), V.numpy())), STEPS),
    )
    assert 0 < float(whole[0, 2]) < 1e-3 and A[0, 2] == 0
    assert gap([A], [mixed(whole.numpy())]) < 1e-10
    assert gap([A.sum(1)], [torch.ones(3)]) < 1e-14


def test_fedpac_round_on_the_server():
    """Everything from one snapshot: heads of the cohort are mixed, the others' stay;
    class means weighted by counts.
    """
    task, ids = toy(), torch.tensor([4, 0, 3])
    m = FedPAC(task)
    server = m.server(task.init(0), None)
    heads = {
        k: random(3, *v.shape, seed=i)
        for i, (k, v) in enumerate(task.split(task.init(0))[1].items())
    }
    bodies = {
        k: random(3, *v.shape, seed=9 + i)
        for i, (k, v) in enumerate(task.split(task.init(0))[0].items())
    }
    n = torch.tensor(
        [[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [5.0, 1.0, 0.0]], dtype=torch.float64
    )
    up = {
        "w": bodies,
        "head": heads,
        "n": n.sum(1),
        "cid": ids,
        "V": torch.tensor([0.4, 0.1, 0.3], dtype=torch.float64),
        "h": random(3, 3, 6, seed=3),
        "classes": n,
        "means": random(3, 3, 6, seed=4),
    }
    new = m.aggregate(server, up, Round(0, 2, None, None, ids))
    A = m.mixtures(up["h"], up["V"])
    for j, c in enumerate(ids.tolist()):
        want = {k: sum(A[j, i] * heads[k][i] for i in range(3)) for k in heads}
        assert gap(pick(new["head"], c), want) < 1e-14
    assert same(
        pick(new["head"], torch.tensor([1, 2, 5])),
        pick(server["head"], torch.tensor([1, 2, 5])),
    )
    for k in range(2):
        want = sum(n[i, k] * up["means"][i, k] for i in range(3)) / n[:, k].sum()
        assert gap([new["c"][k]], [want]) < 1e-14
    # a class held by nobody
    assert new["seen"].tolist() == [1, 1, 0] and (new["c"][2] == 0).all()
    assert gap([new["log"]["self_weight"]], [A.diag()]) == 0
    assert (
        gap(
            [new["w"]["fc1.bias"]],
            [
                torch.tensor([2.0, 4.0, 6.0], dtype=torch.float64)
                / 12
                @ bodies["fc1.bias"]
            ],
        )
        < 1e-14
    )


def test_fedpac_a_class_without_a_mean_does_not_pull():
    task = replace(toy(MLP(5, 6, 4)), K=4)  # nobody holds class 3
    m = FedPAC(task, lr=0.3, lam=5.0)
    rec = run(m, rounds=2, cohort=3)
    assert rec.state["server"]["seen"].tolist() == [1, 1, 1, 0]
    assert all(x.isfinite().all() for x in leaves(state(rec)) if x.is_floating_point())
    w, shard = task.init(2), one(task, m, 3)
    b, c = next(iter(shard)), random(4, 6)
    none, some = (
        torch.zeros(4, dtype=torch.float64),
        (torch.arange(4) == b.y[0]).double(),
    )
    assert m.pull(w, b, c, none) == pytest.approx(float(m.loss(w, b)), abs=1e-14)
    assert float(m.pull(w, b, c, some)) > float(m.loss(w, b)) + 1e-3


def test_fedpac_a_client_that_lacks_a_class():
    task = toy()
    y = task.y.clone()
    y[task.train[1]] = 2  # client 1 holds class 2 alone
    task = replace(task, y=y)
    m = FedPAC(task)
    _, up = m.local(
        {"c": random(3, 6), "seen": torch.ones(3, dtype=torch.float64)},
        {"w": task.init(0)},
        one(task, m, 1),
    )
    assert up["classes"].tolist() == [0, 0, 14]
    assert (up["h"][:2] == 0).all()
    assert (up["means"][:2] == 0).all()
    z = task.feat(task.init(0), task.x[task.train[1]])
    assert float(up["V"]) == pytest.approx(
        float(z.var(0, correction=0).sum()) / 14, rel=1e-12
    )


def test_fedpac_identical_clients_get_identical_heads():
    base = toy(sizes=(12,))
    C, rows = 4, torch.cat([base.train[0], base.val[0], base.test[0]])
    at = torch.arange(C * len(rows)).split(len(rows))
    task = Task(
        "copies",
        base.network,
        base.x[rows].repeat(C, 1),
        base.y[rows].repeat(C),
        tuple(r[:12] for r in at),
        tuple(r[12:16] for r in at),
        tuple(r[16:] for r in at),
        K=3,
        batch=4,
    )
    rec = run(FedPAC(task, lr=0.3, epochs=2, **FIXED), rounds=3)
    heads = rec.state["server"]["head"]
    assert gap(heads, broadcast(pick(heads, 0), range(C))) < 1e-13
    assert not same(pick(heads, 0), task.split(task.init(0))[1])
    assert (
        gap([torch.as_tensor(rec.logs["self_weight"])], [torch.full((3, C), 1 / C)])
        < 1e-12
    )


def test_fedpac_alone_and_without_pull_is_fedrep():
    """A cohort of one mixes nothing: head first, then body, on the same batches."""
    task = toy()
    a, b = (
        run(m, rounds=4, cohort=1, seed=2)
        for m in (FedPAC(task, lam=0.0, lr=0.3), FedRep(task, head_epochs=1, lr=0.3))
    )
    assert (
        gap(
            {k: a.state["server"]["w"][k] for k in b.state["server"]["w"]},
            b.state["server"]["w"],
        )
        < 1e-14
    )
    own = {k: a.state["clients"]["w"][k] for k in task.init(0)}
    assert gap(own, {k: b.state["clients"]["w"][k] for k in own}) < 1e-14


def test_fedpac_a_guest_gets_the_mean_head():
    task = toy()
    m = FedPAC(task)
    server = run(m, rounds=2, cohort=3).state["server"]
    sent = m.send(server, torch.tensor([-1, 2]))["head"]
    assert gap(pick(sent, 0), {k: v.mean(0) for k, v in server["head"].items()}) < 1e-15
    assert same(pick(sent, 1), pick(server["head"], 2))


# ---------------------------------------------------------------- FedALA
def by_full_models(task, m, w, old, A, first, shard):
    """FedALA's start of a client as it is written: the whole model, autograd, one batch
    after another. -> model, A, passes.
    """
    W, losses = task.head, []
    while True:
        for b in shard.on("ala"):
            with torch.enable_grad():
                h = {
                    k: (old[k] + (w[k] - old[k]) * A[k]).detach().requires_grad_()
                    for k in W
                }
                loss = task.loss(w | h, b)
                g = dict(zip(W, torch.autograd.grad(loss, [h[k] for k in W])))
            A = {k: (A[k] - m.eta * g[k] * (w[k] - old[k])).clamp(0, 1) for k in W}
        losses.append(float(loss.detach()))
        calm = len(losses) > 10 and np.std(losses[-10:]) < m.tol
        if not first or calm or len(losses) == m.cap:
            return w | {k: old[k] + (w[k] - old[k]) * A[k] for k in W}, A, len(losses)


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
@pytest.mark.parametrize(
    "eta, tol, cap", [(1.0, 0.1, 50), (30.0, 0.1, 50), (5.0, 1e-3, 50), (5.0, 0.0, 17)]
)
def test_fedala_on_cached_features_is_the_full_model_procedure(
    network, eta, tol, cap, monkeypatch
):
    task = toy(network)
    m = FedALA(task, eta=eta, tol=tol, cap=cap)
    w, old, passes, seen = (
        task.init(1),
        {k: v + 2 * random(*v.shape, seed=4) for k, v in task.init(2).items()},
        [],
        [],
    )
    learn = FedALA.learn
    monkeypatch.setattr(FedALA, "learn", lambda *a: passes.append(1) or learn(*a))
    for c in range(task.C):
        shard = one(task, m, c)
        A = {k: torch.ones_like(w[k]) for k in task.head}
        met = shard.n * 0
        for _ in range(3):
            passes.clear()
            want, A_, count = by_full_models(task, m, w, old, A, met == 0, shard)
            new = m.receive({"w": w}, {"w": old, "A": A, "met": met}, shard)
            assert gap({k: new["w"][k] for k in want}, want) < 1e-11
            assert gap({k: new["A"][k] for k in A_}, A_) < 1e-11
            assert len(passes) == count and float(new["met"]) == 1
            A, met = new["A"], new["met"]
            seen += [v.flatten() for v in A.values()]
    seen = torch.cat(seen)
    # a large step lands on 0 or 1
    assert (seen < 1).any() and (((seen > 0) & (seen < 1)).any() or eta > 1)


@pytest.mark.parametrize("how", ["loop", "vmap"])
def test_fedala_learns_long_once_and_then_one_pass(how, monkeypatch):
    task, count = toy(), []
    learn = FedALA.learn
    monkeypatch.setattr(FedALA, "learn", lambda *a: count.append(1) or learn(*a))
    done = []
    for R in (0, 1, 2, 3):
        count.clear()
        run(FedALA(task, tol=1e9), rounds=R, cohort=3, how=how)
        done.append(len(count) // (task.C if how == "loop" else 1))
    # 11: the first time that there are more than ten
    assert np.diff(done).tolist() == [11, 1, 1] and done[0] == 0


def test_fedala_without_step_is_fedavg():
    task = toy(Normed(5, 6, 3))
    for more in ({}, FIXED):
        a, b = (
            run(m, rounds=4, cohort=3, seed=1)
            for m in (
                FedALA(task, eta=0.0, lr=0.3, **more),
                FedAvg(task, lr=0.3, **more),
            )
        )
        assert (
            gap(
                {k: a.state["server"]["w"][k] for k in b.state["server"]["w"]},
                b.state["server"]["w"],
            )
            < 1e-13
        )
        assert np.array_equal(a["pre", "personal", "test"], b["pre", "global", "test"])
    moved = run(FedALA(task, eta=5.0, lr=0.3, **more), rounds=4, cohort=3, seed=1)
    assert (
        gap(
            subset(moved.state["server"]["w"], task.head),
            subset(b.state["server"]["w"], task.head),
        )
        > 1e-4
    )


def test_fedala_state_of_clients():
    """Nothing is learned in round 0; then everybody learns, trained or not; bodies are
    the server's, weights in [0, 1].
    """
    task = toy()
    m = FedALA(task, eta=20.0, lr=0.5)
    one_, two = (run(m, rounds=3, cohort=2, seed=1, upto=t).state for t in (1, 2))
    assert (one_["clients"]["met"] == 0).all() and (two["clients"]["met"] == 1).all()
    assert all((v == 1).all() for v in one_["clients"]["A"].values())
    A = two["clients"]["A"]["fc.weight"]
    assert (A >= 0).all() and (A <= 1).all() and ((A < 1).flatten(1).sum(1) > 0).all()
    absent = torch.tensor(
        [c for c in range(task.C) if c not in cohort_of(m, task, 1, 1, 2)]
    )
    body = without(one_["server"]["w"], task.head)
    assert (
        gap(
            pick({k: two["clients"]["w"][k] for k in body}, absent),
            broadcast(body, absent),
        )
        == 0
    )
    assert m.plans()["ala"] == m.plan(1, last="drop", shuffle=False, block=0.8)


def test_fedala_block_is_contiguous_and_four_fifths():
    task = toy()
    m = FedALA(task)
    rows = [
        torch.cat(
            [
                b.row
                for b in task.shards(0, t, 9, torch.tensor([3]), m.plans())[0].on("ala")
            ]
        )
        for t in range(9)
    ]
    assert all(len(r) == 16 and (r.diff() == 1).all() for r in rows)  # of 20
    assert len({int(r[0]) for r in rows}) > 1


def test_fedala_needs_a_linear_head():
    with pytest.raises(
        ValueError,
        match=(
            r"FedALA mixes a linear head, .* the head of Bowl\(D=2\) is \(v\): "
            r"give the task"
        ),
    ):
        run(FedALA(bowls([[0.0, 1.0], [1.0, 0.0]])), rounds=1)


# ---------------------------------------------------------------- CD2-pFed: halves
def keep(z, k, own):
    """The activation with the other group's channels multiplied by 0;
    channels in dimension 1.
    """
    mask = (torch.arange(z.shape[1]) >= k) == own
    return z * mask.view(-1, *[1] * (z.dim() - 2)).to(z.dtype)


def forward(net, w, x, p, own):
    """MLP, FedAvgCNN and CNN written out, with `keep` after every layer."""

    def layer(name, f, *more):
        z = f(*more, w[f"{name}.weight"], w.get(f"{name}.bias"))
        return keep(z, int(np.ceil((1 - p) * z.shape[1])), own)

    if isinstance(net, MLP):
        z = x
        for i in range(len(net.widths)):
            z = layer(f"fc{i + 1}", F.linear, z).relu()
    elif isinstance(net, FedAvgCNN):
        z = F.max_pool2d(layer("conv1", F.conv2d, x).relu(), 2)
        z = F.max_pool2d(layer("conv2", F.conv2d, z).relu(), 2).flatten(1)
        z = layer("fc1", F.linear, z).relu()
    else:
        a, b = net.widths
        z = layer("conv1", lambda w, b: F.conv2d(x, w, b, 2, 2))
        z = F.max_pool2d(
            layer(
                "norm1",
                lambda g, c, z=z: F.group_norm(z, max(1, np.gcd(32, a // 4)), g, c),
            ).relu(),
            2,
        )
        z = layer("conv2", lambda w, b, z=z: F.conv2d(z, w, b, 1, 1))
        z = layer(
            "norm2", lambda g, c, z=z: F.group_norm(z, max(1, np.gcd(32, b // 4)), g, c)
        ).relu()
        z = F.adaptive_avg_pool2d(z, 4).flatten(1)
    return F.linear(z, w["fc.weight"], w["fc.bias"])


NETS = [MLP(5, (7, 6), 3), FedAvgCNN(1, 3, (4, 6), 8, size=16), CNN(1, 3, (8, 12))]


def task_with(net):
    return toy(net) if isinstance(net, MLP) else photos(net)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("p", [0.5, 0.3])
def test_cd2_a_half_is_the_network_with_the_other_activations_zero(net, p):
    task = task_with(net)
    m, w = (
        CD2pFed(task),
        {k: v + 0.1 * random(*v.shape, seed=5) for k, v in task.init(0).items()},
    )
    x, halves = task.x[:6], []
    for own in (False, True):
        got, want = task.net(m.half(w, p, own))(x), forward(net, w, x, p, own)
        assert gap([got], [want]) < 1e-12
        halves.append(got)
    assert gap([halves[0]], [halves[1]]) > 1e-2
    assert gap([halves[0]], [task.net(w)(x)]) > 1e-2


@pytest.mark.parametrize("net", NETS)
def test_cd2_shared_entries_do_not_read_the_private_columns_of_the_head(net):
    """Features [B, D]: the shared half's are the columns that travel, the private
    half's the others, whatever the flattening.
    """
    task = task_with(net)
    m, w = (
        CD2pFed(task),
        {k: v + 0.1 * random(*v.shape, seed=5) for k, v in task.init(0).items()},
    )
    columns = m.cut(w, 0.5)[task.head[0]].shape[1]
    s, l = (task.feat(m.half(w, 0.5, own), task.x[:9]) for own in (False, True))
    assert (s[:, columns:] == 0).all()
    assert (l[:, :columns] == 0).all()
    assert 0 < columns < task.network.D
    assert s.abs().max() > 1e-3 < l.abs().max()


@pytest.mark.parametrize("net", NETS)
def test_cd2_cut_and_paste(net):
    task = task_with(net)
    m, a, b = CD2pFed(task), task.init(1), task.init(2)
    for p in (0.0, 0.4, 1.0):
        mixed = m.paste(a, m.cut(b, p))
        for k in a:
            own = torch.ones(a[k].shape, dtype=torch.bool)
            if k == "fc.weight":
                channels = len(a[task.layers[-2][0]])
                own[
                    :, int(np.ceil((1 - p) * channels)) * (a[k].shape[1] // channels) :
                ] = False
            elif k != "fc.bias":
                own[int(np.ceil((1 - p) * len(a[k]))) :] = False
            assert torch.equal(mixed[k], torch.where(own, b[k], a[k]))


def test_cd2_share_of_a_round():
    m = CD2pFed(toy())
    assert [m.private(t, 4) for t in range(5)] == [0, 0.125, 0.25, 0.375, 0.5]
    half = replace(m, grow=0.5)
    assert [half.private(t, 4) for t in range(5)] == [0, 0.25, 0.5, 0.5, 0.5]
    assert replace(m, grow=0.0).private(0, 4) == 0.5
    # (1 - 0.7) 10 > 3 in doubles
    assert [m.kept(10, p) for p in (0, 0.1, 0.3, 0.7, 0.95, 1.0)] == [10, 9, 7, 3, 1, 0]
    assert [m.kept(7, p) for p in (0.1, 0.5)] == [7, 4]


# ---------------------------------------------------------------- CD2-pFed: training
def test_cd2_loss_by_hand():
    task = toy(MLP(5, (7, 6), 3))
    m, w = CD2pFed(task, lam=0.6), task.init(3)
    b = next(iter(one(task, m, 3)))
    s, l = (
        forward(task.network, w, b.x, 0.5, own).softmax(1).numpy()
        for own in (False, True)
    )
    kl = ((s * np.log(s / l)).sum(1) + (l * np.log(l / s)).sum(1)) / 2
    want = float(F.cross_entropy(task.net(w)(b.x), b.y)) + 0.6 * kl.mean()
    assert float(m.objective(w, 0.5)(w, b)) == pytest.approx(want, rel=1e-12)
    assert kl.mean() > 1e-4
    for p in (0.0, 0.1, 1.0):  # a half is empty: 0.1 leaves 6 of 6 shared
        assert m.objective(w, p)(w, b) == m.loss(w, b)


@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_cd2_without_private_filters_is_fedavg(network):
    task = toy(network)
    a, b = (
        run(m, rounds=4, cohort=3, seed=1)
        for m in (CD2pFed(task, p=0.0, lam=0.0, lr=0.3), FedAvg(task, lr=0.3))
    )
    assert same(
        {k: a.state["server"]["w"][k] for k in task.init(0)},
        {k: b.state["server"]["w"][k] for k in task.init(0)},
    )
    assert np.array_equal(a["pre", "personal", "test"], b["pre", "global", "test"])


def test_cd2_with_private_filters_only_is_local_training_with_a_shared_bias():
    task, R, lr = toy(), 4, 0.3
    rec = run(
        CD2pFed(task, p=1.0, grow=0.0, lam=0.0, lr=lr, **FIXED),
        rounds=R,
        cohort=3,
        seed=1,
    )
    models, bias = [task.init(1) for _ in range(task.C)], task.init(1)["fc.bias"]
    for t, ids in enumerate(rec.logs["cohort"]):
        for c in ids:
            (shard,) = task.shards(
                1, t, R, torch.tensor([c]), {"train": FedAvg(task, **FIXED).plan(1)}
            )
            models[c] = descend(
                cross_entropy(task), models[c] | {"fc.bias": bias}, shard, lr
            )
        n = torch.tensor([len(task.train[c]) for c in ids], dtype=torch.float64)
        bias = normalize(n) @ torch.stack([models[c]["fc.bias"] for c in ids])
    for c, w in enumerate(models):
        own = pick(rec.state["clients"]["w"], c)
        assert (
            gap({k: own[k] for k in w if k != "fc.bias"}, without(w, ("fc.bias",)))
            < 1e-13
        )
    assert gap([rec.state["server"]["w"]["fc.bias"]], [bias]) < 1e-14
    assert {k: v.numel() for k, v in rec.state["server"]["w"].items() if v.numel()} == {
        "fc.bias": 3
    }


def test_cd2_private_entries_persist_and_shared_ones_are_the_servers():
    task = toy()
    m = CD2pFed(task, grow=0.0, lr=0.3)
    one_, two = (run(m, rounds=3, cohort=2, seed=1, upto=t).state for t in (1, 2))
    absent = [c for c in range(task.C) if c not in cohort_of(m, task, 1, 1, 2)]
    for c in absent:
        before, after = (pick(s["clients"]["w"], c) for s in (one_, two))
        assert same(after, m.paste(before, one_["server"]["w"]))
        assert same(m.cut(after, 0.5), {k: one_["server"]["w"][k] for k in after})
        assert torch.equal(after["fc1.bias"][3:], before["fc1.bias"][3:])
    private = two["clients"]["w"]["fc1.weight"][:, 3:]
    assert len(private.flatten(1).unique(dim=0)) == 1 + len(
        {int(c) for t in (0, 1) for c in cohort_of(m, task, 1, t, 2)}
    )


def test_cd2_a_filter_that_turns_private_starts_from_the_last_download():
    """p_1 = 1/4 leaves 5 of 6 filters shared, p_2 = 1/2 leaves 3: filters 3 and 4 are
    downloaded for the last time in round 2.
    """
    task = toy()
    m, R = CD2pFed(task, p=1.0, lam=0.0, lr=0.3), 4
    early = run(m, rounds=R, cohort=3, seed=1, upto=2).state
    sent = early["server"]["w"]
    assert len(sent["fc1.weight"]) == 5 == sent["fc.weight"].shape[1]
    seen = {}
    train = CD2pFed.local

    def local(self, down, mine, shard):
        new, up = train(self, down, mine, shard)
        seen[shard.t, int(shard.cid)] = mine["w"], up["shared"]
        return new, up

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CD2pFed, "local", local)
        run(m, rounds=R, cohort=3, seed=1)
    for c in cohort_of(m, task, 1, 2, 3).tolist():
        start, shared = seen[2, c]
        assert torch.equal(start["fc1.weight"][:5], sent["fc1.weight"])
        assert torch.equal(
            start["fc1.weight"][5:], early["clients"]["w"]["fc1.weight"][c, 5:]
        )
        assert len(shared["fc1.weight"]) == 3 == shared["fc.weight"].shape[1]
        assert len(shared["fc.bias"]) == 3


def test_cd2_moving_average_after_every_pass():
    task, lr, b = toy(), 0.3, 0.6
    m = CD2pFed(task, b=b, epochs=3, lr=lr, **FIXED)
    w, shard = task.init(2), one(task, m, 3, t=0)
    new, _ = m.local({}, {"w": w}, shard)
    want = w
    for _ in range(3):
        after = descend(cross_entropy(task), want, shard.on("pass0"), lr)
        want = {k: b * after[k] + (1 - b) * want[k] for k in w}
    assert gap({k: new["w"][k] for k in want}, want) < 1e-13
    plain, _ = replace(m, b=1.0).local(
        {}, {"w": w}, one(task, replace(m, b=1.0), 3, t=0)
    )
    assert gap(plain["w"], new["w"]) > 1e-3


def test_cd2_alignment_moves_shared_entries_of_the_body_towards_old_class_means():
    task, lr = toy(), 0.2
    m = CD2pFed(task, align=True, align_lr=lr, **FIXED)
    w, old, p = task.init(2), task.init(3), 0.5
    shard = one(task, m, 3).on("align")
    x, y = (torch.cat(v) for v in zip(*((b.x, b.y) for b in shard)))
    z = task.feat(old, x)
    mu = {k: z[y == k].mean(0) for k in y.unique().tolist()}

    def apart(w, b):
        z = task.feat(w, b.x)
        return sum(((z[b.y == k] - mu[k]) ** 2).mean() for k in b.y.unique().tolist())

    want = w
    for b in shard:
        step = descend(apart, want, [b], lr)
        want = m.paste(want, without(m.cut(step, p), task.head))
    got = m.aligned(w, old, p, shard)
    assert gap({k: got[k] for k in w}, want) < 1e-13
    moved = {
        k: (got[k] != w[k]).flatten(1).any(1) if got[k].dim() > 1 else got[k] != w[k]
        for k in w
    }
    assert moved["fc1.weight"][:3].any()
    assert not moved["fc1.weight"][3:].any()
    assert not moved["fc1.bias"][3:].any()
    assert not moved["fc.weight"].any() and not moved["fc.bias"].any()
    assert sum(float(apart(got, b)) for b in shard) < sum(
        float(apart(w, b)) for b in shard
    )


def test_cd2_the_target_of_the_alignment_is_the_model_last_trained():
    task = toy()
    m = CD2pFed(task, align=True, lr=0.3)
    states = [
        run(m, rounds=3, cohort=2, seed=1, upto=t).state["clients"] for t in (1, 2)
    ]
    trained = cohort_of(m, task, 1, 1, 2)
    absent = torch.tensor([c for c in range(task.C) if c not in trained])
    assert same(pick(states[1]["old"], trained), pick(states[1]["w"], trained))
    assert same(pick(states[1]["old"], absent), pick(states[0]["old"], absent))
    assert not same(pick(states[1]["old"], absent), pick(states[1]["w"], absent))
    plain = run(CD2pFed(task, lr=0.3), rounds=3, cohort=2, seed=1)
    assert not same(
        plain.state["server"], run(m, rounds=3, cohort=2, seed=1).state["server"]
    )


def test_cd2_only_shared_entries_travel():
    task = toy()
    rec = run(CD2pFed(task, grow=0.0), rounds=2, cohort=3)
    # 3 of 6 filters, 3 of 6 columns
    assert rec.meta["bytes"]["up"]["shared"]["values"] == 3 * 5 + 3 + 3 * 3 + 3
    assert rec.logs["private"].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_cd2_refuses_a_share_outside_0_and_1(p):
    with pytest.raises(ValueError, match=rf"CD2pFed.p = {p} is outside \[0, 1\]"):
        CD2pFed(toy(), p=p)


@pytest.mark.parametrize("p, shared", [(1.0, 0), (0.1, 6), (0.0, 6)])
def test_cd2_refuses_an_empty_half(p, shared):
    says = (
        f"CD2pFed.p = {p}: layer fc1.weight would share {shared} of its 6 filters,.* "
        "or lam = 0"
    )
    with pytest.raises(ValueError, match=says):
        run(CD2pFed(toy(), p=p), rounds=1)
    run(CD2pFed(toy(), p=p, lam=0.0), rounds=1)


# ---------------------------------------------------------------- all three
@pytest.mark.parametrize(
    "method, says",
    [
        (FedPAC, "FedPAC shares the body of a network, and all of Linear"),
        (CD2pFed, "CD2-pFed divides the filters below a linear head; Linear"),
    ],
)
def test_a_network_without_a_body_is_refused(method, says):
    with pytest.raises(
        ValueError, match=f"{says}.*give the task a network with a hidden layer"
    ):
        run(method(toy(Linear(5, 3))), rounds=1)


@pytest.mark.parametrize("method", [FedALA, FedPAC, CD2pFed])
@pytest.mark.parametrize("net", NETS[1:])
def test_images_at_once_and_one_by_one(method, net):
    task = photos(net)
    a, b = (
        run(method(task, lr=0.05, **FIXED), rounds=3, cohort=3, how=how)
        for how in ("loop", "vmap")
    )
    assert gap(state(a), state(b)) < 1e-9
    assert not same(
        {k: a.state["clients"]["w"][k][0] for k in task.head},
        {k: a.state["clients"]["w"][k][1] for k in task.head},
    )
