"""Methods that are fair between groups, and EquFL: numpy, autograd and fairlearn."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from toys_core import GROUPS, Normed, gap, rows, same, toy
from toys_plain import SEED, down, f64, flat, near, run, served, shard_of, slope_of

from fedlib.core.pool import Groups
from fedlib.core.task import Task
from fedlib.core.tree import subset
from fedlib.methods.groups.equfl import METRICS
from fedlib.methods.make import make
from fedlib.nets import Linear
from fedlib.pieces import surrogates

SEX = Groups("sex", ("one", "two"), (1,), column=0)
# clients as tables [group][outcome]: all cells, one empty, one group, one outcome
ALL = ([[5, 2], [3, 6]], [[4, 3], [2, 0]], [[3, 4], [0, 0]], [[0, 4], [0, 3]])
NEAR = 1e-11


def people(tables=ALL, network=None, batch=10**6, groups=SEX):
    """A client per table of how many training rows it has; x[:, 0] is the group."""
    a, y, n = [], [], [sum(map(sum, t)) for t in tables]
    for t in (*tables, *[[[1, 1]] * 2] * len(tables)):
        for i, j in itertools.product(range(len(t)), (0, 1)):
            a += [i] * t[i][j]
            y += [j] * t[i][j]
    a, y = torch.tensor(a), torch.tensor(y)
    x = torch.randn(len(y), 4, generator=torch.Generator().manual_seed(3)).double()
    x[:, 0], x[:, 1], x[:, 2] = a, x[:, 1] + 2.0 * a + y, x[:, 2] - 1.5 * y
    none, test = (y[:0],) * len(n), rows([4] * len(n), sum(n))
    net, more = network or Linear(4, 2), {"groups": groups, "batch": batch}
    return Task("people", net, x, y, rows(n), none, test, K=2, a=a, **more)


def pool(task, ids=None):
    """(row numbers, y, a) of the clients' training rows."""
    r = torch.cat([task.train[c] for c in (range(task.C) if ids is None else ids)])
    return r, task.y[r].numpy(), task.a[r].numpy()


step = lambda w, f: down(w, slope_of(f, w), 0.3)


each = partial(F.cross_entropy, reduction="none")
losses = lambda task, w, r: each(task.logits(w, task.x[r]), task.y[r])


def test_reweight_is_one_step_on_the_weighted_loss():
    """eq:reweight, eq:reweight-loss: expected over observed share of a row's cell."""
    task, w = people(), people().init(SEED)
    for c, table in enumerate(ALL):
        r, y, a = pool(task, [c])
        both = [(a == i, y == j) for i, j in zip(a, y)]
        v = f64([i.mean() * j.mean() / (i & j).mean() for i, j in both])
        want = step(w, lambda p, v=v, r=r: (v * losses(task, p, r)).sum() / len(r))
        got = served(make("Reweight", task, lr=0.3), cohort=lambda t, c=c: [c])["w"]
        assert gap(got, want) < NEAR, table
        assert bool((v == 1).all()) == (c > 1)


def alike(a, b):
    a, b = run(a), run(b)
    assert gap(a.state["server"], b.state["server"]) < NEAR
    assert (a["pre", "global", "test"] == b["pre", "global", "test"]).all()


def test_blind_is_fedavg_on_rows_without_their_group():
    """eq:blind, in training and in evaluation."""
    task = people(ALL[:2], Normed(4, 5, 2), batch=4)
    x, w = task.x.clone(), near(task.init(0))
    x[:, 0] = 0.5
    blind = make("Blind", task)
    alike(blind, make("FedAvg", replace(task, x=x)))
    view = blind.views({"w": w}, {}, shard_of(blind, 0))["global"]
    assert torch.equal(view(task.x), task.net(w)(x))
    apart = replace(task, groups=replace(SEX, column=None))
    assert gap(*(served(make(m, apart))["w"] for m in ("Blind", "FedAvg"))) == 0


def test_flinear_takes_the_groups_means_apart():
    """eq:flinear: fairlearn's CorrelationRemover, by the training rows' coefficients;
    training and scores are FedAvg's on rows moved beforehand."""
    import pandas as pd
    from fairlearn.preprocessing import CorrelationRemover

    task = people(ALL[:2], Normed(4, 5, 2), batch=4)
    for tau in (0.0, 0.3, 1.0):
        m, x = make("FLinear", task, tau=tau, lr=0.2), task.x.clone()
        for c in range(task.C):
            d = m.client(task.init(0), shard_of(m, c))["d"]
            oracle = CorrelationRemover(sensitive_feature_ids=["x0"], alpha=1 - tau)
            frame = lambda r: pd.DataFrame(task.x[r], columns=["x0", "x1", "x2", "x3"])
            oracle.fit(frame(task.train[c]))
            for r in (task.train[c], task.test[c]):
                x[r] = m.moved(task.x[r], task.a[r], d)
                assert np.allclose(x[r][:, 1:], oracle.transform(frame(r)), atol=1e-11)
        alike(m, make("FedAvg", replace(task, x=x), lr=0.2))

    # an absent group moves its code alone
    task = people()
    m = make("FLinear", task)
    d = m.client(task.init(0), shard_of(m, 2))["d"]
    assert d.tolist() == [[0, 0, 0, 0], [1, 0, 0, 0]]


def assembled(task, w, metric, ids):
    """F_i or NaN, F, accuracies and shares, as the paper writes them."""
    per, acc, n = [], [], []
    for c in ids:
        r, y, a = pool(task, [c])
        said = task.logits(w, task.x[r]).argmax(1).numpy()
        cells = [(a == g) & ((y == 1) | (metric == "DP")) for g in (0, 1)]
        per.append([(said[k].mean() if k.any() else np.nan, k.mean()) for k in cells])
        acc.append((said == y).mean())
        n.append(len(y))
    per, p = np.array(per), np.array(n) / sum(n)  # [C, 2 groups, (rate, share)]
    whole = np.maximum(p @ per[:, :, 1], 1e-9)
    g = np.nan_to_num(per[:, :, 0]) * per[:, :, 1] / whole  # eq:fairfed-global
    return per[:, 0, 0] - per[:, 1, 0], p @ (g[:, 0] - g[:, 1]), np.array(acc), p


@pytest.mark.parametrize("metric", ["EOD", "DP"])
def test_fairfed_rounds_by_hand(metric):
    """eq:fairfed-eod, eq:fairfed-dp, eq:fairfed-global, eq:fairfed-distance,
    eq:fairfed-budget, eq:fairfed-weight, by the model that each round sends; small and
    large budgets, whole and partial cohorts, and the preprint's weights."""
    task, size, out = people(), np.array([np.sum(t) for t in ALL], float), set()
    for beta, how, ids in (
        (0.3, "delta", [[0, 1, 2, 3]] * 4),
        (6.0, "delta", [[0, 1, 3], [1, 2], [0, 1, 2], [0, 3]]),
        (2.0, "exp", [[0, 1, 2, 3], [1, 2], [0, 3], [0, 1]]),
    ):
        m = make("FairFed", task, lr=0.2, beta=beta, metric=metric, weighting=how)
        q = size / size.sum()
        more = {"cohort": lambda t, ids=ids: ids[min(t, 3)]}
        logs = run(m, 4, **more).logs
        for t, at in enumerate(ids):
            w = served(m, 4, upto=t, **more)["w"]
            Fi, F_, acc, n = assembled(task, w, metric, at)
            D = np.where(np.isnan(Fi), abs(acc - n @ acc), abs(Fi - F_))
            p = n * np.exp(-beta * D)
            if how == "delta":
                q[at] -= beta * (D - D.mean())
                p = q[at].clip(0) if (q[at] > 0).any() else n
            got = logs["weight"][t][: len(at)]
            assert np.allclose(got, p / p.sum(), atol=1e-9), (beta, how, t)
            out |= {("dropped", (p == 0).any()), ("lacks", np.isnan(Fi).any())}
            assert logs["F"][t] == pytest.approx(F_)
    assert len(out) == 4
    fair = served(make("FairFed", task, lr=0.2, beta=0.0, debias=True))["w"]
    assert gap(fair, served(make("Reweight", task, lr=0.2))["w"]) < NEAR


def fair_batch(task, w, lam, s, version, ids=None):
    """The next lam [A, 2]: the rows of clients ids measure, those of all count."""
    _, y, a = pool(task)
    A = task.groups.A
    m = np.array([[((a == i) & (y == j)).mean() for j in (0, 1)] for i in range(A)])
    (r, y, a), lam = pool(task, ids), lam.copy()
    if version == "EO":  # eq:fedfb-eo
        loss = losses(task, w, r).numpy()
        for j in (0, 1):
            L = [loss[(a == i) & (y == j)] for i in (0, 1)]
            d = L[1].mean() - L[0].mean() if len(L[0]) and len(L[1]) else 0
            lam[1, j] = np.clip(lam[1, j] + s * d, 0, m[:, j].sum())
            lam[0, j] = m[:, j].sum() - lam[1, j]
        return lam
    p = task.logits(w, task.x[r]).softmax(1)[:, 1].numpy()  # eq:fedfb-dp
    d = np.zeros(A)
    for i in {*a} - {0} if (a == 0).any() else ():
        d[i] = p[a == i].mean() - p[a == 0].mean()
    d[0] = -d[1:].sum()
    lam[:, 0] = np.clip(lam[:, 0] + s * d, 0, 2 * m.sum(1))
    lam[:, 1] = 2 * m.sum(1) - lam[:, 0]
    return lam


THREE = ([[4, 3], [2, 2], [3, 5]], [[1, 2], [2, 4], [6, 1]])


@pytest.mark.parametrize("version", ["EO", "DP", "DP of three"])
def test_fedfb_by_hand(version):
    """eq:fedfb-eo, eq:fedfb-dp, eq:fedfb-loss: a round of whole batches of everybody is
    one step on sum_r v_r loss_r / sum_r v_r; with a cohort, its own rows measure."""
    three = Groups("kind", ("a", "b", "c"), (1,), column=0)
    task = people(THREE, groups=three) if "three" in version else people()
    version = version[:2]
    r, y, a = pool(task)
    A = task.groups.A
    m = np.array([[((a == i) & (y == j)).sum() for j in (0, 1)] for i in range(A)])
    per = m if version == "EO" else np.repeat(m.sum(1, keepdims=True), 2, 1)
    for alpha in (0.2, 30.0):  # the second reaches the box
        lam, w, edge = per / m.sum(), task.init(SEED), False
        method = make("FedFB", task, lr=0.3, alpha=alpha, version=version)
        for t in range(3):
            v = f64((lam * m.sum() / per)[a, y])
            w = step(w, lambda p, v=v: (v * losses(task, p, r)).sum() / v.sum())
            lam = fair_batch(task, w, lam, alpha / math.sqrt(t + 1), version)
            got = served(method, t + 1)
            assert gap(got["w"], w) < NEAR and np.allclose(got["lam"], lam, atol=NEAR)
            edge |= bool((lam < 1e-12).any())
        assert edge == (alpha == 30.0)
    method = make("FedFB", task, lr=0.3, alpha=0.5, version=version)
    now = served(method, cohort=lambda t: [0])
    lam = fair_batch(task, now["w"], per / m.sum(), 0.5, version, [0])
    assert np.allclose(now["lam"], lam, atol=NEAR)


def test_regular_is_one_step_on_the_loss_and_the_surrogate():
    """eq:regular; a client that lacks a cell pays nothing."""
    task, w = people(), people().init(SEED)
    for target, c in itertools.product(METRICS, (0, 2)):
        r = task.train[c]
        S = {"x": task.x[r], "q": F.one_hot(task.y[r], 2).double()}
        bias = surrogates.fairness(target, task, S)
        mu = 0.7 if c == 0 or target == "CON" else 0
        f = lambda p, r=r, bias=bias, mu=mu: losses(task, p, r).mean() + mu * bias(p)
        m = make("Regular", task, lr=0.3, mu=0.7, target=target)
        got = served(m, cohort=lambda t, c=c: [c])["w"]
        assert gap(got, step(w, f)) < NEAR, (target, c)


LR, R, T0 = 0.2, 6, 3
QUICK = {"lr": LR, "outer": 3, "J": 2, "size": 12, "net": "same"}
SOME = {"sizes": (9, 14, 6, 20, 3), "batch": 8, "groups": GROUPS}
task_of = cache(lambda network=None: toy(network, **SOME))
equfl = lambda task=None, **kw: make("EquFL", task or task_of(), **QUICK | kw)
# the server's state before round t of a run
at = lambda m, t: served(m, R, upto=t, every=100, splits=("test",))


def eo_by_hand(task, S, w):
    """Eq. 8 for GROUPS: classes 1, 2 are positive, column 0 holds the group."""
    p = task.logits(w, S["x"]).softmax(1)
    a, good, out = S["x"][:, 0] > 0.5, S["q"][:, 1] + S["q"][:, 2], 0
    for c, loss in ((good, -(p[:, 1] + p[:, 2]).log()), (1 - good, -p[:, 0].log())):
        one, two = ((c[g] * loss[g]).sum() / c[g].sum() for g in (a, ~a))
        out = out + (one - two).abs()
    return out


def test_when_calibration_begins():
    """T0 = floor(R (1 - rho)) in exact arithmetic; with a rehearsal of T rounds the run
    of T + T - T0 is split into T and T - T0."""
    for n, percent in itertools.product((*range(1, 13), 150), range(101)):
        T0, rho = math.floor(n * (1 - Fraction(percent, 100))), percent / 100
        gauss, equ = make("Gaussian-update", None, rho=rho), equfl(rho=rho, rewind=True)
        assert gauss.phases(n) == (T0, T0), (n, percent)
        assert equ.phases(n + n - T0) == (n, T0), (n, percent)


def first_step(m, inner):
    """(w^T0, aggregated, w^(T0+1), S); what was aggregated from the method inside."""
    before, new = (at(inner, t)["w"] for t in (T0, T0 + 1))
    assert same(at(m, T0)["in"]["w"], before)
    got = at(m, T0 + 1)
    return before, new, got["in"]["w"], got.get("S")


def test_where_the_gradient_is_taken_and_how_long_it_is():
    """eq:equfl-update, eq:calibrated: w <- aggregated - lr lam grad F(w^t; S)."""
    task = task_of()
    passes = np.mean([-(-len(r) // task.batch) for r in task.train])
    for kw, place, length in (
        ({"lam": 3.0}, 0, 1),
        ({"at": "aggregated"}, 1, 1),
        ({"scale": "aggregate"}, 0, None),
        ({"scale": "steps", "epochs": 3}, 0, 3 * passes),
        ({"inner": "q-FedAvg"}, 0, 1),
    ):
        inner = make(kw.get("inner", "FedAvg"), task, lr=LR, epochs=kw.get("epochs", 1))
        w, new, got, S = first_step(equfl(**kw), inner)
        g = slope_of(lambda v, S=S: eo_by_hand(task, S, v), (w, new)[place])
        if length is None:
            G = flat({k: (w[k] - new[k]) / LR for k in w}).norm()
            length = float(G / flat(g).norm())
        assert float(flat(g).norm()) > 1e-3
        assert gap(got, down(new, g, LR * kw.get("lam", 1) * length)) < NEAR, kw
    # running statistics are not stepped
    task = task_of(Normed(5, 6, 3))
    _, new, got, _ = first_step(equfl(task), make("FedAvg", task, lr=LR))
    assert task.buffers and same(*(subset(w, task.buffers) for w in (got, new)))
