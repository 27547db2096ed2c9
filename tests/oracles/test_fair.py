"""Fairness among clients: the rules written plainly, and their theorems as properties."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch.nn.functional import cross_entropy
from toys import quadratic, serve
from toys_core import toy
from toys_plain import COHORTS, Plain, agree, flat, noise, recorded, served, share, vec

from fedlib.methods.fair.fedga import FedGA, gini
from fedlib.methods.fair.fedgini import FedGini
from fedlib.methods.fair.term import TERM
from fedlib.methods.make import make

EVERYBODY = (tuple(range(6)),) * 3
few = settings(max_examples=12, phases=[Phase.generate])  # to shrink is dear


# loss of the model as sent, on all rows of each client [M]
before = lambda P, w, ids: torch.stack([P.loss(w, P.rows(c)) for c in ids])


def qfed(P, q):
    w, L, weights = P.w, 1 / P.how.lr, []
    for t, ids in enumerate(COHORTS):
        F = before(P, w, ids) + 1e-10
        g = L * (w - P.turn(t, ids, w))
        D = F[:, None] ** q * g
        h = q * F ** (q - 1) * (g**2).sum(1) + L * F**q
        weights.append(share(F**q))
        w = w - D.sum(0) / h.sum()
    return {"server w": w, "log weight": weights}


def still(name, centres, rounds=100, **more):
    """Where a method comes to rest on quadratics, a full step of each client a round."""
    m = make(name, quadratic(centres), **more)
    return served(m, rounds, every=rounds)


def test_qfedavg():
    """eq:qfed-direction eq:qfed-curvature eq:qfed-step; it rests where eq:qfed-objective
    is flat: sum_i F_i^q grad F_i = 0 on F_i = |w - b_i|^2 / 2."""
    for q in (2.0, 0.3):
        agree("q-FedAvg", qfed, {"q": q})
    b = vec(0, 0, 2, 0, 0, 5).view(3, 2)
    w = still("q-FedAvg", b, q=2.0, lr=0.3)["w"]["w"]
    F = ((w - b) ** 2).sum(1) / 2
    assert float((F**2 @ (w - b)).norm()) < 1e-3 * float((F[:, None] * (w - b)).norm())


def tilted(P, tilt, row_tilt=0.0):
    def R(v, rows):
        each = cross_entropy(P.logits(v, rows), P.task.y[rows], reduction="none")
        tilted = (row_tilt * each).exp().mean().log()
        return tilted / row_tilt if row_tilt else each.mean()

    w, weights = P.w, []
    for t, ids in enumerate(COHORTS):
        worst = torch.stack([R(w, P.rows(c)) for c in ids])
        weights.append(share(P.n[list(ids)] * (tilt * worst).exp()))
        w = weights[-1] @ P.turn(t, ids, w, loss=R)
    return {"server w": w, "log weight": weights}


def test_term():
    """eq:term-rows eq:term-weights eq:term-step; a full step is one on eq:term-objective,
    and no exponent overflows."""
    for tilt, row_tilt in ((2.0, 0.0), (-1.5, 0.7), (0.5, -2.0)):
        agree("TERM", tilted, {"tilt": tilt, "row_tilt": row_tilt})
    P, ids = Plain(toy(batch=1000)), COHORTS[0]
    J = lambda w: P.mean(ids, (1.3 * before(P, w, ids)).exp()).log() / 1.3
    more = {"momentum": 0.0, "decay": 0.0, "epochs": 1, "lr": 0.2, "tilt": 1.3}
    _, rec = recorded("TERM", P.task, 1, **more)
    want = P.w - 0.2 * P.grad(J, P.w)
    assert torch.allclose(flat(rec.state["server"]["w"]), want, atol=1e-12)
    for tilt, who in ((1e5, 2), (-1e5, 0)):
        p = TERM(tilt=tilt).weights({"n": vec(1, 2, 3), "loss": vec(0.1, 9, 800)})
        assert p.argmax() == who and p[who] == 1


def agnostic(P, gamma, scored="average"):
    w, avg, lam, weights = P.w, P.zero, share(0 * P.n + 1), []
    for t, ids in enumerate(EVERYBODY):
        F, weights = before(P, w, ids), [*weights, lam]
        w = lam @ P.turn(t, ids, w)
        avg = (t * avg + w) / (t + 1)
        # the nearest point of the simplex, by bisection on the common shift
        v, lo, hi = lam + gamma * F, -9.0, 99.0
        for _ in range(200):
            mid = (lo + hi) / 2
            lo, hi = (mid, hi) if (v - mid).clamp(min=0).sum() > 1 else (lo, mid)
        lam = (v - hi).clamp(min=0)
    said = {"server w": w, "server avg": avg, "server lam": lam, "log weight": weights}
    return said | {"view global": [avg if scored == "average" else w] * P.C}


def test_afl():
    """eq:afl-step eq:afl-mixture eq:afl-average; the worst mixture eq:afl-objective of
    two points far apart and one between is the middle of the two, and the middle client
    ends without weight. However long the step, weights are weights."""
    for gamma, scored in ((0.05, "average"), (0.8, "last")):
        agree("AFL", agnostic, {"gamma": gamma, "scored": scored})
    b = [[0.0], [4.0], [1.0]]
    s = still("AFL", b, lr=0.2, gamma=0.02, rounds=200)
    assert abs(float(s["avg"]["w"]) - 2) < 0.2 and float(s["lam"][2]) < 1e-6
    s = serve(make("AFL", quadratic(b), gamma=1e12), [0.0], b, loss=[1.0, 2.0, 3.0])
    assert s["lam"].tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="AFL"):
        serve(make("AFL", quadratic(b)), [0.0], b[:2], loss=[1.0, 2.0])


def fedfa(P, beta, gamma, sign="momentum", acc_at="after"):
    w, v, f, weights = P.w, P.zero, 0 * P.n, []
    for t, ids in enumerate(COHORTS):
        i = list(ids)
        models = P.turn(t, ids, w)
        at = models if acc_at == "after" else [w] * len(i)
        acc = torch.stack([P.right(a, P.rows(c)) for a, c in zip(at, i)])
        f[i] += 1
        A = -(share(acc + 1e-10) + 1e-6).log2()
        B = -(1 - share(f[i]) + 1e-5).log2()
        weights.append((1 - beta) * share(A) + beta * share(B))
        new = weights[-1] @ models
        d = w - new if sign == "momentum" else new - w
        v = gamma * v + (1 - gamma) * d
        w = new - P.how.lr * v
    return {"server w": w, "server v": v, "server count": f, "log weight": weights}


def fedfv(P, alpha, tau=0):
    """Algorithms 1 to 3, loop by loop."""
    w, last, seen = P.w, {}, {}
    for t, ids in enumerate(COHORTS):
        F, G = before(P, w, ids), list(w - P.turn(t, ids, w))
        order, M = F.argsort().tolist(), len(ids)
        keep = order[math.ceil((M - 1) * (1 - alpha)) :] if alpha else []
        projected = []
        for i in range(M):
            p = G[i]
            for j in order if i not in keep else ():
                if j != i and p @ G[j] < 0:
                    p = p - (p @ G[j]) / (G[j] @ G[j]) * G[j]
            projected.append(p)
        g = torch.stack(projected).mean(0)
        last |= dict(zip(ids, G))
        seen |= dict.fromkeys(ids, t)
        for k in range(tau, 0, -1) if t >= tau else ():
            absent = [c for c, s in seen.items() if s == t - k and last[c] @ g < 0]
            if absent and (s := sum(last[c] for c in absent)) @ g < 0:
                g = g - (g @ s) / (s @ s) * s
        w = w - torch.stack(G).mean(0).norm() * g / g.norm()
    return {"server w": w}


def test_weights_and_angles():
    """eq:fedfa-accuracy eq:fedfa-frequency eq:fedfa-weight eq:fedfa-momentum
    eq:fedfa-step eq:fedfv-internal eq:fedfv-mean eq:fedfv-external eq:fedfv-step"""
    for sign, acc_at in (("momentum", "before"), ("released", "after")):
        more = {"beta": 0.3, "gamma": 0.7, "sign": sign, "acc_at": acc_at}
        agree("FedFa", fedfa, more)
    for alpha, tau in ((0.0, 0), (0.4, 0), (1.0, 1), (0.2, 2)):
        got = agree("FedFV", fedfv, {"alpha": alpha, "tau": tau, "lr": 0.6})
        free = fedfv(Plain(toy(), lr=0.6), 1.0)  # nothing is projected
        assert not torch.allclose(got["server w"], free["server w"])


@few
@given(st.integers(0, 999), st.sampled_from([0.0, 0.1, 0.3, 1.0]))
def test_fedmgda_is_the_shortest_of_its_box(seed, epsilon):
    """eq:fedmgda-unit eq:fedmgda-weights eq:fedmgda-step: against scipy; with epsilon
    1, no client gets worse to first order."""
    G, n, eta = noise(4, 6, seed=seed), np.array([3.0, 1, 5, 4]), 0.4
    m = make("FedMGDA+", quadratic(G), epsilon=epsilon, server_lr=eta)
    s = serve(m, torch.zeros(6), -G, n=n)
    p, u = s["log"]["weight"].numpy(), (G / G.norm(dim=1, keepdim=True)).numpy()
    assert np.allclose(-s["w"]["w"], eta * p @ u)
    n = n / n.sum()
    assert abs(p.sum() - 1) < 1e-9 and (abs(p - n) <= epsilon + 1e-9).all()
    far = lambda p: (p @ u) @ (p @ u)
    one = {"type": "eq", "fun": lambda p: p.sum() - 1}
    box = [(max(0, a - epsilon), min(1, a + epsilon)) for a in n]
    best = minimize(far, n, bounds=box, constraints=one, options={"ftol": 1e-14})
    assert far(p) < best.fun + 1e-6
    if epsilon == 1:
        assert (u @ (p @ u) > far(p) - 1e-3).all()
    # nobody moves
    s = serve(make("FedMGDA+", quadratic([[0.0], [1.0]])), [2.0], [[2.0], [2.0]])
    assert s["w"]["w"].tolist() == [2]


def fires(series, **more):
    """The rounds in which a method is on that watches this series."""
    m = FedGA(quadratic([[0.0]]), **more)
    s, out = m.server({"w": vec(0)}, None), []
    for t, x in enumerate(series):
        s = m.watch(s, vec(x)[0], t)
        out += [t] if s["on"] else []
    return out


def passes(x, t, W, theta, trigger):
    if trigger == "rolling":
        a, b = x[t - W - 1 : t - 1], x[t - W : t]
        return t > W and np.mean(a) - np.mean(b) < theta
    h = W // 2
    due = t >= W and t % h == 0
    return due and np.mean(x[t - W : t - h]) - np.mean(x[t - h : t]) < theta


thetas, kinds = [0.0, 0.05, 0.3, math.inf, -math.inf], ["rolling", "half"]


@settings(few, max_examples=40)
@given(st.integers(), st.integers(2, 6), *map(st.sampled_from, (thetas, kinds)))
def test_the_trigger_by_its_definition(seed, W, theta, trigger):
    """eq:trigger eq:trigger-half; once on, always on."""
    x = np.random.default_rng(abs(seed)).random(12)
    by_hand = [t for t in range(12) if passes(x, t, W, theta, trigger)]
    more = {"W": W, "theta": theta, "trigger": trigger}
    assert fires(x, sticky=False, **more) == by_hand
    first = by_hand[0] if by_hand else 12
    assert fires(x, sticky=True, **more) == list(range(first, 12))


def fedgini(P, epsilon, order, on):
    """By ranks of the loss, its mean over the batches as they came; from round `on`."""
    w, weights, scales = P.w, [], []
    for t, ids in enumerate(COHORTS):
        M, models, losses = len(ids), [], []
        for c in ids:
            of, each = P.batches(t, c), []

            def met(v, rows, each=each):
                each.append(float(P.loss(v.detach(), rows)))
                return P.loss(v, rows)

            models.append(P.sgd(w, of, met))
            losses.append(np.mean(each))
        G, k = torch.stack(models) - w, np.argsort(np.argsort(losses))
        k = M - 1 - k if order == "released" else k
        q = epsilon / M + (1 - epsilon) * k * (k + 1) * 3 / ((M - 1) * M * (M + 1))
        scales.append((G.mean(0) ** 2).mean())
        weights.append(vec(*(q if t >= on else np.ones(M) / M)))
        w = w + weights[-1] @ G
    return {"server w": w, "log weight": weights, "log update_scale": scales}


def fedga(P, alpha, on, weight_norm="none"):
    w, weights, ginis = P.w, [], []
    for t, ids in enumerate(COHORTS):
        a = torch.stack([P.right(w, P.rows(c, "val")) for c in ids])
        e = 1 - a if weight_norm == "none" else share(1 - a)
        weights.append(share(alpha**e if t >= on else P.n[list(ids)]))
        a = a + 1e-10
        pairs = sum(abs(x - y) for x in a for y in a)
        ginis.append(pairs / (2 * (len(a) - 1) * a.sum()))
        w = weights[-1] @ P.turn(t, ids, w)
    return {"server w": w, "log weight": weights, "log gini": ginis}


def test_after_a_trigger():
    """eq:update-scale eq:fedgini-weight eq:gini eq:fedga-error eq:fedga-weight"""
    late = {"W": 1, "theta": math.inf}  # passes in round 2 at the earliest
    for order in ("intended", "released"):
        more = {"order": order, "epsilon": 0.2}
        agree("FedGini", partial(fedgini, on=2), more, own=late)
    assert FedGini(epsilon=0.3).ranked(vec(7)).tolist() == [1]  # one client alone
    for norm in ("none", "sum"):
        more = {"alpha": 3.0, "weight_norm": norm}
        agree("FedGA_ablation", partial(fedga, on=0), more)
        agree("FedGA", partial(fedga, on=2), more, own=late)
        agree("FedGA", partial(fedga, on=9), more, own=late | {"theta": -math.inf})


def test_gini_of_shares():
    """eq:gini: by ranks; 1 where one has all; of one client 0; blind to the scale."""
    a, ranked = vec(5, 1, 9, 2), (-3 * 1 - 1 * 2 + 1 * 5 + 3 * 9) / (3 * 17)
    for x, want in ((a, ranked), (3 * a, ranked), (vec(0, 0, 1), 1), (vec(4), 0)):
        assert abs(float(gini(x)) - want) < 1e-6
