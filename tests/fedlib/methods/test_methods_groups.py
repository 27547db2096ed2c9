"""Reweight, FLinear, FairFed, FedFB and Regular: oracles in numpy, fairlearn or
autograd, limits, clients that lack a group.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from fairlearn.metrics import MetricFrame, selection_rate, true_positive_rate
from fairlearn.preprocessing import CorrelationRemover
from toys_core import Normed, gap, rows, same, seen, state, toy

from fedlib.core import engine
from fedlib.core.groups import Groups, parity
from fedlib.core.local import Private
from fedlib.core.method import Round
from fedlib.core.task import Task
from fedlib.core.tree import add, broadcast, leaves, pick, stack, tmap
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.groups.blind import Blind
from fedlib.methods.groups.fairfed import FairFed
from fedlib.methods.groups.fedfb import FedFB
from fedlib.methods.groups.flinear import FLinear
from fedlib.methods.groups.regular import Regular
from fedlib.methods.groups.reweight import Reweight
from fedlib.nets import CNN, Linear
from fedlib.pieces.surrogates import fairness

SEX = Groups("sex", ("one", "two"), (1,), column=0)
FULL, NO_CELL, ONE_GROUP, ONE_LABEL = (
    [[5, 2], [3, 6]],
    [[4, 3], [2, 0]],
    [[3, 4], [0, 0]],
    [[0, 4], [0, 3]],
)
ALL = (FULL, NO_CELL, ONE_GROUP, ONE_LABEL)
TEST = 4  # test rows per client: every group and outcome


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu", "seed": 1} | more))


def people(tables=ALL, network=None, batch=10**6, groups=SEX, **more):
    """A client per table [A][2] of how many training rows it has of each group and
    outcome; x[:, 0] is the group's code.
    """
    g, A = torch.Generator().manual_seed(3), len(tables[0])
    a, y, n = [], [], [sum(map(sum, t)) for t in tables]
    for t in (*tables, *[[[1, 1]] * 2] * len(tables)):
        for i in range(len(t)):
            for j in (0, 1):
                a += [i] * t[i][j]
                y += [j] * t[i][j]
    a, y = torch.tensor(a), torch.tensor(y)
    x = torch.randn(len(y), 4, generator=g, dtype=torch.float64)
    x[:, 0] = a
    x[:, 1] += 2.0 * a + y
    x[:, 2] -= 1.5 * y
    train, test = rows(n), rows([TEST] * len(n), sum(n))
    assert A == groups.A
    return Task(
        "people",
        network or Linear(4, 2),
        x,
        y,
        train,
        (torch.zeros(0, dtype=torch.long),) * len(n),
        test,
        K=2,
        a=a,
        groups=groups,
        batch=batch,
        **more,
    )


def numbers(task, c):
    """A client's training rows in numpy: x, y, a."""
    r = task.train[c]
    return task.x[r].numpy(), task.y[r].numpy(), task.a[r].numpy()


def step(task, w, loss, lr):
    """One gradient step on loss(w), by autograd."""
    p = {k: v.clone().requires_grad_() for k, v in w.items()}
    return add(w, dict(zip(p, torch.autograd.grad(loss(p), leaves(p)))), -lr)


def row_losses(task, w, r):
    return F.cross_entropy(task.logits(w, task.x[r]), task.y[r], reduction="none")


def server_of(method, rounds=1, **more):
    return run(method, rounds=rounds, **more).state["server"]


def shard_of(method, c, t=0):
    return method.task.shards(1, t, 1, torch.tensor([c]), method.plans())[0]


# ---------------------------------------------------------------- Reweight
def kamiran_calders(a, y):
    """Expected over observed share of the row's cell, row by row."""
    return np.array(
        [
            (a == i).mean() * (y == j).mean() / ((a == i) & (y == j)).mean()
            for i, j in zip(a, y)
        ]
    )


@pytest.mark.parametrize("c", range(len(ALL)))
def test_reweight_is_one_step_on_the_weighted_loss(c):
    task, w = people(), people().init(1)
    _, y, a = numbers(task, c)
    v = kamiran_calders(a, y)
    want = step(
        task,
        w,
        lambda p: (torch.tensor(v) * row_losses(task, p, task.train[c])).sum() / len(y),
        0.3,
    )
    got = server_of(Reweight(task, lr=0.3), cohort=lambda t: [c])["w"]
    assert gap(got, want) < 1e-12
    plain = server_of(FedAvg(task, lr=0.3), cohort=lambda t: [c])["w"]
    assert (gap(got, plain) < 1e-12) == bool((v == 1).all()) == (c > 1)


def test_reweight_makes_group_and_outcome_independent():
    """Of the client with all cells; read from the loss,
    whose value is linear in the weights.
    """
    task = people()
    m = Reweight(task)
    _, y, a = numbers(task, 0)
    loss, w = m.fair(shard_of(m, 0)), task.init(1)
    b = shard_of(m, 0).all()
    v = np.array(
        [
            float(loss(w, b._replace(m=torch.eye(len(y), dtype=torch.float64)[i])))
            for i in range(len(y))
        ]
    )
    v /= row_losses(task, w, task.train[0]).numpy()
    table = np.array([[v[(a == i) & (y == j)].sum() for j in (0, 1)] for i in (0, 1)])
    assert v.sum() == pytest.approx(len(y)) and np.allclose(v, kamiran_calders(a, y))
    assert np.allclose(table, np.outer(table.sum(1), table.sum(0)) / len(y))


def test_one_label_per_client_makes_reweight_fedavg():
    task = toy()
    a, groups = parity(task.y, 3)
    own = [r[task.y[r] == task.y[r].mode().values] for r in task.train]
    task = replace(task, train=tuple(own), a=a, groups=groups)
    r, f = (run(M(task, lr=0.2), rounds=3) for M in (Reweight, FedAvg))
    assert gap(state(r), state(f)) < 1e-12 and gap(seen(r), seen(f)) < 1e-12


@pytest.mark.parametrize("M", [Reweight, FedFB])
def test_weights_survive_gradients_row_by_row(M):
    """A private step without noise and with a bound that nobody reaches is the plain
    step, though every row is alone there.
    """
    task = people((FULL, NO_CELL), batch=3)
    kw = {"lr": 0.3} | ({"alpha": 2.0} if M is FedFB else {})
    plain = run(M(task, shuffle=False, last="drop", **kw), rounds=3)
    private = run(
        M(task, shuffle=False, last="drop", step=Private(1e9, 0.0), **kw), rounds=3
    )
    assert gap(state(plain), state(private)) < 1e-9


# ---------------------------------------------------------------- Blind
def test_blind_is_fedavg_on_rows_without_their_group():
    """As FedAvg does on data in which the code's column is 1/2 for everybody."""
    task = people((FULL, FULL, NO_CELL), Normed(4, 5, 2), batch=4)
    x = task.x.clone()
    x[:, 0] = 0.5
    got = run(Blind(task, lr=0.2), rounds=3)
    want = run(FedAvg(replace(task, x=x), lr=0.2), rounds=3)
    assert gap(got.state["server"], want.state["server"]) < 1e-12
    assert (got["pre", "global", "test"] == want["pre", "global", "test"]).all()
    plain = run(FedAvg(task, lr=0.2), rounds=3)
    assert gap(got.state["server"], plain.state["server"]) > 1e-3


def test_blind_gives_two_people_who_differ_in_the_group_alone_one_answer():
    task = people((FULL, FULL))
    m = Blind(task, lr=0.2)
    w = run(m, rounds=2).state["server"]["w"]
    view = m.views({"w": w}, {}, shard_of(m, 0))["global"]
    other = task.x.clone()
    other[:, 0] = 1 - other[:, 0]
    assert torch.equal(view(task.x), view(other))
    assert not torch.equal(task.net(w)(task.x), task.net(w)(other))


def test_blind_where_no_column_holds_the_group_is_fedavg():
    task = people((FULL, FULL))
    apart = replace(task, groups=replace(SEX, column=None))
    ends = [
        run(m(apart, lr=0.2), rounds=2).state["server"]["w"] for m in (Blind, FedAvg)
    ]
    assert gap(*ends) < 1e-15


# ---------------------------------------------------------------- FLinear
@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("c", [0, 1])
def test_flinear_is_a_correlation_remover(tau, c):
    """Training rows and test rows, by the coefficients of the training rows."""
    task = people()
    m = FLinear(task, tau=tau)
    d = m.client(task.init(0), shard_of(m, c))["d"]
    train, test = task.train[c], task.test[c]
    oracle = CorrelationRemover(sensitive_feature_ids=["x0"], alpha=1 - tau)
    frame = [
        pd.DataFrame(task.x[r].numpy(), columns=["x0", "x1", "x2", "x3"])
        for r in (train, test)
    ]
    oracle.fit(frame[0])
    for r, f in zip((train, test), frame):
        assert np.allclose(
            m.moved(task.x[r], task.a[r], d)[:, 1:], oracle.transform(f), atol=1e-12
        )
    x, a = m.moved(task.x[train], task.a[train], d), task.a[train].double()
    if tau == 0:
        assert torch.allclose(x[:, 0], a.mean())
        assert ((x * (a - a.mean())[:, None]).mean(0).abs() < 1e-12).all()
    assert torch.allclose(x.mean(0), task.x[train].mean(0))


def test_flinear_trains_on_moved_rows_and_scores_moved_rows():
    """As FedAvg does on data that were moved beforehand,
    buffers of batch norm included.
    """
    task = people((FULL, FULL, NO_CELL), Normed(4, 5, 2), batch=4)
    m = FLinear(task, lr=0.2, tau=0.2)
    x = task.x.clone()
    for c in range(task.C):
        d = m.client(task.init(0), shard_of(m, c))["d"]
        for r in (task.train[c], task.test[c]):
            x[r] = m.moved(task.x[r], task.a[r], d)
    got, want = run(m, rounds=3), run(FedAvg(replace(task, x=x), lr=0.2), rounds=3)
    assert gap(got.state["server"], want.state["server"]) < 1e-12
    assert (got["pre", "global", "test"] == want["pre", "global", "test"]).all()
    plain = run(FedAvg(task, lr=0.2), rounds=3)
    assert gap(got.state["server"], plain.state["server"]) > 1e-3
    assert (
        gap(
            state(run(FLinear(task, lr=0.2, tau=1.0), rounds=3))["server"],
            plain.state["server"],
        )
        < 1e-12
    )


def test_flinear_where_a_group_is_absent():
    """Rows of the absent group lose their code and keep the rest; the present group
    moves nowhere: it is everybody.
    """
    task = people()
    m = FLinear(task)
    d = m.client(task.init(0), shard_of(m, 2))["d"]
    assert gap([d], [torch.tensor([[0.0, 0, 0, 0], [1.0, 0, 0, 0]])]) < 1e-12
    x = m.moved(task.x[task.test[2]], task.a[task.test[2]], d)
    assert (x[:, 0] == 0).all() and torch.equal(x[:, 1:], task.x[task.test[2]][:, 1:])


def test_flinear_of_a_guest_without_rows_knows_no_group():
    task = toy(groups=Groups("a", ("0", "1"), (1, 2), column=0))
    m = FLinear(task)
    guest = task.shards(1, 0, 1, torch.tensor([-2]), m.plans())[0]
    d = m.client(task.init(0), guest)["d"]
    b = guest.all("test")
    x = m.moved(b.x, b.a, d)
    assert len(guest.all().y) == 0
    assert (x[:, 0] == 0.5).all()
    assert torch.equal(x[:, 1:], b.x[:, 1:])


def test_flinear_of_images_moves_training_rows_only():
    g = torch.Generator().manual_seed(0)
    y = torch.arange(48) % 4
    x = (
        torch.randn(48, 1, 8, 8, generator=g, dtype=torch.float64)
        + y[:, None, None, None] % 2
    )
    a, groups = parity(y, 4)
    task = Task(
        "images",
        CNN(1, 4),
        x,
        y,
        rows([20, 12]),
        (y[:0],) * 2,
        rows([8, 8], 32),
        K=4,
        a=a,
        groups=groups,
        batch=5,
    )
    m = FLinear(task, lr=0.1)
    d = m.client(task.init(0), shard_of(m, 0))["d"]
    r = task.train[0]
    moved = m.moved(x[r], a[r], d)
    assert d.shape == (2, 1, 8, 8)
    assert gap([moved[a[r] == 0].mean(0)], [moved[a[r] == 1].mean(0)]) < 1e-12
    w, shard = task.init(1), shard_of(m, 0)
    view = m.views({"w": w}, {"d": d}, shard)["global"]
    assert gap([view(x[task.test[0]])], [task.logits(w, x[task.test[0]])]) == 0
    x = x.clone()
    for c in (0, 1):
        x[task.train[c]] = m.moved(
            task.x[task.train[c]], a[task.train[c]], m.client(w, shard_of(m, c))["d"]
        )
    assert (
        gap(server_of(m, 2), server_of(FedAvg(replace(task, x=x), lr=0.1), 2)) < 1e-12
    )


# ---------------------------------------------------------------- FairFed
def predictions(task, w, c):
    x, y, a = numbers(task, c)
    return (task.logits(w, torch.tensor(x)).argmax(1).numpy(), y, a)


def assembled(task, w, metric):
    """F_i or NaN, F, accuracies and sizes: from each client's own probabilities,
    as the paper writes them.
    """

    def rate(said, y, a, g):
        cell = (a == g) & ((y == 1) | (metric == "DP"))
        return (said[cell].mean() if cell.any() else np.nan), cell.mean()

    got = [predictions(task, w, c) for c in range(task.C)]
    n = np.array([len(y) for _, y, _ in got])
    # [C, 2 groups, (rate, share)]
    per = np.array([[rate(*p, g) for g in (0, 1)] for p in got])
    whole = (n[:, None] * per[:, :, 1]).sum(0) / n.sum()
    terms = np.nan_to_num(per[:, :, 0]) * per[:, :, 1] / whole
    Fi, acc = (
        per[:, 0, 0] - per[:, 1, 0],
        np.array([(s == y).mean() for s, y, _ in got]),
    )
    return Fi, (n / n.sum()) @ (terms[:, 0] - terms[:, 1]), acc, n


def pooled(task, w, metric):
    said, y, a = (
        np.concatenate(v)
        for v in zip(*[predictions(task, w, c) for c in range(task.C)])
    )
    by = MetricFrame(
        metrics={"EOD": true_positive_rate, "DP": selection_rate}[metric],
        y_true=y,
        y_pred=said,
        sensitive_features=a,
    ).by_group
    return by[0] - by[1]


def crooked(task, seed):
    return tmap(
        lambda v: (
            3
            * torch.randn(
                v.shape, generator=torch.Generator().manual_seed(seed), dtype=v.dtype
            )
        ),
        task.init(0),
    )


@pytest.mark.parametrize("metric", ["EOD", "DP"])
def test_fairfed_three_rounds_by_hand(metric):
    task = people()
    m = FairFed(task, lr=0.2, beta=0.3, metric=metric)
    w, q = None, None
    gaps = []
    rec = run(m, rounds=3)
    for t in range(3):
        # the model that round t sends
        w = run(m, rounds=3, upto=t).state["server"]["w"]
        Fi, Fg, acc, n = assembled(task, w, metric)
        q = n / n.sum() if q is None else q
        D = np.where(np.isnan(Fi), abs(acc - (n / n.sum()) @ acc), abs(Fi - Fg))
        q = q - 0.3 * (D - D.mean())
        p = q.clip(0) / q.clip(0).sum()
        assert np.allclose(rec.logs["weight"][t], p, atol=1e-12)
        assert rec.logs["F"][t] == pytest.approx(Fg)
        gaps += [D]
    assert np.isnan(Fi).sum() >= 1 and np.ptp(gaps[0]) > 0.01


@pytest.mark.parametrize("metric", ["EOD", "DP"])
@pytest.mark.parametrize("seed", range(4))
def test_fairfed_assembles_the_pooled_gap(metric, seed):
    """From local probabilities as in the paper, from all rows by fairlearn,
    and from ours: one number.
    """
    task = people()
    w = crooked(task, seed)
    m = FairFed(task, metric=metric)
    ups = stack([m.local({"w": w}, {}, shard_of(m, c))[1] for c in range(task.C)])
    F_, defined = m.gap(ups["counts"].sum(0))
    assert bool(defined)
    assert (
        float(F_)
        == pytest.approx(pooled(task, w, metric))
        == pytest.approx(assembled(task, w, metric)[1])
    )
    Fi, ok = m.gap(ups["counts"])
    want = assembled(task, w, metric)
    assert ok.tolist() == (~np.isnan(want[0])).tolist()
    assert np.allclose(Fi[ok], want[0][ok.numpy()])
    assert np.allclose(ups["acc"], want[2])


@pytest.mark.parametrize("weighting", ["delta", "exp"])
def test_fairfed_without_budget_is_fedavg_or_reweight(weighting):
    task, kw = people(batch=4), {"lr": 0.2, "momentum": 0.5}
    for debias, other in ((False, FedAvg), (True, Reweight)):
        a = run(
            FairFed(task, beta=0.0, weighting=weighting, debias=debias, **kw),
            rounds=4,
            cohort=3,
        )
        b = run(other(task, **kw), rounds=4, cohort=3)
        assert gap(a.state["server"]["w"], b.state["server"]["w"]) < 1e-12
        assert np.allclose(a.logs["weight"], b.logs["weight"])


def served(m, counts, acc, q, ids=None):
    """One call of aggregate on clients whose models do not
    matter -> (weights, new q).
    """
    w = m.task.init(0)
    n = torch.as_tensor(counts, dtype=torch.float64)
    ids = torch.arange(len(n)) if ids is None else torch.tensor(ids)
    up = {
        "w": broadcast(w, ids),
        "n": n.sum((1, 2, 3)),
        "counts": n,
        "acc": torch.tensor(acc, dtype=torch.float64),
    }
    out = m.aggregate(
        {"w": w, "q": torch.tensor(q, dtype=torch.float64)},
        up,
        Round(0, 1, None, None, ids),
    )
    return out["log"]["weight"], out["q"]


def table(tp0, tp1):
    """Counts of a client with 10 positives in each group,
    of which so many are found.
    """
    return [[[0, 0], [10 - tp0, tp0]], [[0, 0], [10 - tp1, tp1]]]


def test_fairfed_by_hand():
    """Gaps 0.4, 0.2, 0 and pooled 0.2: distances 0.2, 0, 0.2 with mean 0.4 / 3."""
    m, n = FairFed(people(), beta=0.6), [table(8, 4), table(6, 4), table(5, 5)]
    p, q = served(m, n, [0.5] * 3, [1 / 3] * 4, [3, 0, 1])
    want = [1 / 3 - 0.04, 1 / 3 + 0.08, 1 / 3 - 0.04]
    assert np.allclose(p, want) and np.allclose(q, [want[1], want[2], 1 / 3, want[0]])
    p, _ = served(replace(m, weighting="exp"), n, [0.5] * 3, [1 / 3] * 4, [3, 0, 1])
    assert np.allclose(
        p, np.array([np.exp(-0.12), 1, np.exp(-0.12)]) / (1 + 2 * np.exp(-0.12))
    )
    p, q = served(replace(m, beta=6.0), n, [0.5] * 3, [1 / 3] * 4, [3, 0, 1])
    assert np.allclose(p, [0, 1, 0])
    assert np.allclose(q, [1 / 3 + 0.8, 1 / 3 - 0.4, 1 / 3, 1 / 3 - 0.4])
    # nobody at hand has a positive weight
    p, _ = served(m, n, [0.5] * 3, [-1.0, -1.0, 0.5, -1.0], [3, 0, 1])
    assert np.allclose(p, [1 / 3] * 3)


def test_fairfed_without_a_group_asks_for_accuracy():
    """Client 1 has nobody of group 1; then nobody has."""
    m, lone = FairFed(people(), beta=0.3), [[[0, 0], [5, 5]], [[0, 0], [0, 0]]]
    _, q = served(m, [table(8, 4), lone], [0.8, 0.2], [0.5] * 4)
    acc, F_ = (20 * 0.8 + 10 * 0.2) / 30, 13 / 20 - 4 / 10
    D = np.array([abs(0.4 - F_), abs(acc - 0.2)])
    assert np.allclose(q[:2], 0.5 - 0.3 * (D - D.mean()))
    _, q = served(m, [lone, lone], [0.9, 0.2], [0.5] * 4)
    assert np.allclose(q[:2], 0.5)


# ---------------------------------------------------------------- FedFB
def pool(task, ids=None):
    r = torch.cat([task.train[c] for c in (range(task.C) if ids is None else ids)])
    return r, task.y[r].numpy(), task.a[r].numpy()


def fair_batch(task, w, lam, alpha, t, version, ids=None):
    """The next lam [A, 2] in numpy; the rows of clients ids measure,
    those of all count.
    """
    _, y, a = pool(task)
    m = np.array([[((a == i) & (y == j)).sum() for j in (0, 1)] for i in (0, 1)]) / len(
        y
    )
    r, y, a = pool(task, ids)
    z = task.logits(w, task.x[r])
    s, lam = alpha / np.sqrt(t + 1), lam.copy()
    if version == "EO":
        loss = F.cross_entropy(z, task.y[r], reduction="none").numpy()
        for j in (0, 1):
            one, two = (loss[(a == i) & (y == j)] for i in (0, 1))
            d = two.mean() - one.mean() if len(one) and len(two) else 0
            lam[1, j] = np.clip(lam[1, j] + s * d, 0, m[:, j].sum())
            lam[0, j] = m[:, j].sum() - lam[1, j]
        return lam
    p = z.softmax(1)[:, 1].numpy()
    d = p[a == 1].mean() - p[a == 0].mean() if 0 < a.sum() < len(a) else 0
    for i, sign in ((0, -1), (1, 1)):
        lam[i, 0] = np.clip(lam[i, 0] + sign * s * d, 0, 2 * m[i].sum())
        lam[i, 1] = 2 * m[i].sum() - lam[i, 0]
    return lam


@pytest.mark.parametrize("version", ["EO", "DP"])
@pytest.mark.parametrize("alpha", [0.4, 30.0])
def test_fedfb_three_rounds_by_hand(version, alpha):
    """All clients, whole batches: a round is one step on sum lam L (EO), or on the
    weighted mean of the losses (DP).
    """
    task = people()
    r, y, a = pool(task)
    m = np.array([[((a == i) & (y == j)).sum() for j in (0, 1)] for i in (0, 1)])
    per = m if version == "EO" else np.broadcast_to(m.sum(1, keepdims=True), (2, 2))
    lam, w, edge = per / m.sum(), task.init(1), False
    method = FedFB(task, lr=0.3, alpha=alpha, version=version)
    for t in range(3):
        v = torch.tensor((lam * m.sum() / per)[a, y])
        if version == "EO":

            def loss(p, lam=lam):
                each = row_losses(task, p, r)
                return sum(
                    lam[i, j] * each[torch.tensor((a == i) & (y == j))].mean()
                    for i in (0, 1)
                    for j in (0, 1)
                )
        else:

            def loss(p, v=v):
                return (v * row_losses(task, p, r)).sum() / v.sum()

        w = step(task, w, loss, 0.3)
        lam = fair_batch(task, w, lam, alpha, t, version)
        got = server_of(method, t + 1)
        assert gap(got["w"], w) < 1e-12 and np.allclose(got["lam"], lam, atol=1e-12)
        edge |= bool((lam < 1e-12).any())
        top = m.sum(0) / m.sum() if version == "EO" else 2 * m.sum(1)[:, None] / m.sum()
        assert (got["lam"].numpy() >= 0).all()
        assert (got["lam"].numpy() <= top + 1e-12).all()
    assert edge == (alpha == 30.0)  # the box was reached, or it was not
    assert not np.allclose(lam, per / m.sum(), atol=1e-3)


@pytest.mark.parametrize("version", ["EO", "DP"])
def test_fedfb_measures_the_cohort_and_a_missing_cell_moves_nothing(version):
    task, ids = people(), [[2], [3, 1], [0, 2], [2], [0]]
    rec = run(
        FedFB(task, lr=0.3, alpha=0.5, version=version),
        rounds=4,
        cohort=lambda t: ids[t],
    )
    lam = server_of(FedFB(task, version=version), 0)["lam"].numpy()
    for t in range(4):
        now = run(
            FedFB(task, lr=0.3, alpha=0.5, version=version),
            rounds=4,
            cohort=lambda t: ids[t],
            upto=t + 1,
        ).state["server"]
        new = fair_batch(task, now["w"], lam, 0.5, t, version, ids[t])
        assert np.allclose(now["lam"], new, atol=1e-12)
        assert np.allclose(new, lam) == (ids[t] == [2])
        lam = new
    assert rec.logs["d"].shape == (4, 2)


@pytest.mark.parametrize("version", ["EO", "DP"])
def test_fedfb_without_steps_is_fedavg(version):
    task, kw = people(batch=4), {"lr": 0.2, "momentum": 0.5}
    a, b = (
        run(m, rounds=4, cohort=3)
        for m in (FedFB(task, alpha=0.0, version=version, **kw), FedAvg(task, **kw))
    )
    assert gap(a.state["server"]["w"], b.state["server"]["w"]) < 1e-12
    assert np.allclose(a.logs["weight"], b.logs["weight"])


def test_fedfb_weighs_a_client_by_its_rows_weights():
    task, v = people(), torch.tensor([[1.5, 0.2], [0.5, 3.0]], dtype=torch.float64)
    m = FedFB(task)
    up = stack(
        [
            m.local({"w": task.init(0), "v": v}, {}, shard_of(m, c))[1]
            for c in range(task.C)
        ]
    )
    total = [float((v * torch.tensor(t)).sum()) for t in ALL]
    assert np.allclose(up["total"], total)
    assert np.allclose(m.weights(up), np.array(total) / sum(total))
    up = stack(
        [
            m.local({"w": task.init(0), "v": 0 * v}, {}, shard_of(m, c))[1]
            for c in range(task.C)
        ]
    )
    assert gap(pick(up["w"], 0), task.init(0)) == 0
    assert np.allclose(m.weights(up), 1 / task.C)


def test_fedfb_of_three_groups_moves_the_first_against_the_others():
    task = people(
        ([[4, 3], [2, 2], [3, 5]], [[1, 2], [2, 4], [6, 1]]),
        groups=replace(SEX, names=("a", "b", "c")),
    )
    alpha = 0.2
    got, before = (
        server_of(FedFB(task, lr=0.3, alpha=alpha, version="DP")),
        server_of(FedFB(task, version="DP"), 0)["lam"],
    )
    r, _, a = pool(task)
    p = task.logits(got["w"], task.x[r]).softmax(1)[:, 1].numpy()
    d = np.array([p[a == i].mean() for i in range(3)])
    d = d - d[0]
    d[0] = -d.sum()
    assert np.allclose(got["lam"][:, 0] - before[:, 0], alpha * d)
    assert np.allclose(got["lam"].sum(1), before.sum(1))


# ---------------------------------------------------------------- Regular
@pytest.mark.parametrize("target", ["EO", "DP", "CAL", "CON"])
def test_regular_is_one_step_on_the_loss_and_the_surrogate(target):
    task, w = people(), people().init(1)
    r = task.train[0]
    bias = fairness(
        target, task, {"x": task.x[r], "q": F.one_hot(task.y[r], 2).double()}
    )
    want = step(task, w, lambda p: row_losses(task, p, r).mean() + 0.7 * bias(p), 0.3)
    got = server_of(Regular(task, lr=0.3, mu=0.7, target=target), cohort=lambda t: [0])[
        "w"
    ]
    assert gap(got, want) < 1e-12
    assert gap(got, server_of(FedAvg(task, lr=0.3), cohort=lambda t: [0])["w"]) > 1e-3


@pytest.mark.parametrize("target", ["EO", "DP", "CAL", "CON"])
def test_regular_without_weight_or_without_cells_is_fedavg(target):
    task = people(batch=4)
    off, plain = (
        run(m, rounds=3)
        for m in (Regular(task, lr=0.2, mu=0.0, target=target), FedAvg(task, lr=0.2))
    )
    assert gap(state(off), state(plain)) < 1e-12
    lone = people((ONE_GROUP, ONE_GROUP))
    on, plain = (
        run(m, rounds=3)
        for m in (Regular(lone, lr=0.2, target=target), FedAvg(lone, lr=0.2))
    )
    assert (gap(state(on), state(plain)) < 1e-12) == (target != "CON")


# ---------------------------------------------------------------- all of them
MADE = {
    "Reweight": lambda t: Reweight(t, lr=0.2),
    "FLinear": lambda t: FLinear(t, lr=0.2, tau=0.3),
    "FairFed": lambda t: FairFed(t, lr=0.2),
    "FairFed(exp)": lambda t: FairFed(
        t, lr=0.2, metric="DP", weighting="exp", debias=False, beta=5.0
    ),
    "FedFB": lambda t: FedFB(t, lr=0.2, alpha=1.0),
    "FedFB(DP)": lambda t: FedFB(t, lr=0.2, alpha=1.0, version="DP"),
    "Regular": lambda t: Regular(t, lr=0.2),
    "Regular(CON)": lambda t: Regular(t, lr=0.2, target="CON"),
}
each = pytest.mark.parametrize("name", MADE)


def lacking(network=None):
    """The toy with guests, batches of four,
    and clients that lack a group or an outcome.
    """
    task = toy(network, groups=Groups("a", ("0", "1"), (1, 2), column=0))
    own = list(task.train)
    own[3], own[4] = own[3][task.a[own[3]] == 1], own[4][task.y[own[4]] == 1]
    assert len(own[3]) and len(own[4])
    return replace(task, train=tuple(own))


@each
@pytest.mark.parametrize("network", [None, Normed(5, 6, 3)])
def test_vmap_is_loop_where_groups_are_absent(name, network):
    task = lacking(network)
    a, b = (
        run(MADE[name](task), rounds=3, cohort=4, how=how, guests=True)
        for how in ("loop", "vmap")
    )
    assert gap(state(a), state(b)) < 1e-9 and gap(seen(a), seen(b)) < 1e-9
    assert all(bool(v.isfinite().all()) for v in leaves(a.state["server"]))
    assert {k[0] for k in a.views} == {"pre", "guest"}


@each
def test_resumed_is_uninterrupted(name, tmp_path):
    m = MADE[name](lacking())
    run(m, rounds=4, cohort=4, folder=tmp_path / "run", upto=2)
    rest, whole = (
        run(m, rounds=4, cohort=4, folder=tmp_path / "run"),
        run(m, rounds=4, cohort=4),
    )
    assert same(state(rest), state(whole)) and same(seen(rest), seen(whole))


@each
def test_who_is_called_one_and_who_two_is_irrelevant(name):
    """Swapping the groups' codes (and leaving the inputs) changes nothing."""
    task = lacking()
    groups = replace(task.groups, column=None, of_class=(0, 1, 0))
    a, b = (
        run(MADE[name](replace(task, a=v, groups=groups)), rounds=3)
        for v in (task.a, 1 - task.a)
    )
    assert gap(a.state["server"]["w"], b.state["server"]["w"]) < 1e-9


@each
def test_groups_are_needed(name):
    with pytest.raises(
        ValueError, match="needs to know the groups, and 'toy' has none"
    ):
        run(MADE[name](toy()))


BAD = [
    (
        FLinear,
        {"tau": 1.5},
        (
            "FLinear.tau = 1.5 is outside [0, 1]: share of the groups' differences "
            "that stays"
        ),
    ),
    (FairFed, {"beta": -1}, "FairFed.beta = -1 is outside [0, inf]: fairness budget"),
    (FairFed, {"metric": "EO"}, "FairFed.metric = 'EO' is not one of 'EOD', 'DP'"),
    (
        FairFed,
        {"weighting": "log"},
        "FairFed.weighting = 'log' is not one of 'delta', 'exp'",
    ),
    (FedFB, {"version": "CAL"}, "FedFB.version = 'CAL' is not one of 'EO', 'DP'"),
    (FedFB, {"alpha": -0.1}, "FedFB.alpha = -0.1 is outside [0, inf]"),
    (
        Regular,
        {"target": "eo"},
        "Regular.target = 'eo' is not one of 'EO', 'DP', 'CAL', 'CON'",
    ),
    (Regular, {"mu": -1}, "Regular.mu = -1 is outside [0, inf]: weight of the penalty"),
]


@pytest.mark.parametrize("cls, kw, says", BAD)
def test_bad_input(cls, kw, says):
    with pytest.raises(ValueError) as e:
        cls(people(), **kw)
    assert says in str(e.value)


@pytest.mark.parametrize(
    "cls, says",
    [
        (FairFed, "FairFed compares two groups, 'sex' of 'people' has 3: merge some"),
        (
            FedFB,
            "FedFB.version = 'EO' compares two groups, 'sex' of 'people' has 3: merge",
        ),
    ],
)
def test_three_groups_are_refused_where_two_are_compared(cls, says):
    task = people(
        ([[4, 3], [2, 2], [3, 5]],), groups=replace(SEX, names=("a", "b", "c"))
    )
    with pytest.raises(ValueError) as e:
        run(cls(task))
    assert says in str(e.value)
