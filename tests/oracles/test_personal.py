"""Personalised methods that keep whole models: their boxes, written plainly."""

import math

import torch
from toys_core import toy
from toys_plain import COHORTS, Plain, agree, answers, rare, recorded


def ditto(P, lam, own=0):
    w, v = P.w, P.copies()
    for t, ids in enumerate(COHORTS):
        for c in ids:
            of = P.batches(t, c, "own", own) if own else P.batches(t, c)
            v[c] = P.sgd(v[c], of, pull=(lam, w))
        w = P.mean(ids, P.turn(t, ids, w))
    return {"server w": w, "clients v": v, "view personal": v, "view global": [w] * P.C}


def test_ditto():  # eq:ditto-step
    for more in ({"lam": 0.6}, {"lam": 0.2, "own": 3}):
        agree("Ditto", ditto, more)


def apfl(P, alpha, adapt=True):
    w, v, how = P.w, P.copies(), P.how
    a = torch.full((P.C,), alpha, dtype=torch.float64)
    for t, ids in enumerate(COHORTS):
        models = []
        for c in ids:
            wi, vi, ai, mw, mv = w, v[c].clone(), a[c].clone(), 0.0, 0.0
            for rows in P.batches(t, c):
                g = P.grad(P.loss, ai * vi + (1 - ai) * wi, rows)
                mw = how.momentum * mw + P.grad(P.loss, wi, rows) + how.decay * wi
                mv = how.momentum * mv + ai * g + how.decay * vi
                slope = (vi - wi) @ g
                wi, vi = wi - how.lr * mw, vi - how.lr * mv
                ai = (ai - how.lr * slope).clamp(0, 1) if adapt else ai
            v[c], a[c] = vi, ai
            models.append(wi)
        w = P.mean(ids, models)
    own = a[:, None] * v + (1 - a[:, None]) * w
    return {"server w": w, "clients v": v, "clients alpha": a, "view personal": own}


def test_apfl():  # eq:apfl-model eq:apfl-own eq:apfl-alpha eq:fedavg
    agree("APFL", apfl, {"alpha": 0.3})
    agree("APFL", apfl, {"alpha": 0.8, "adapt": False})
    ends = agree("APFL", apfl, {"alpha": 0.98, "lr": 0.9})["clients alpha"]
    assert ends.max() == 1  # a share stays one


def pfedme(P, lam, inner_steps, inner_lr, outer_lr, beta):
    w, own, how = P.w, {}, P.how
    for t, ids in enumerate(COHORTS):
        models = []
        for c in ids:
            wi, theta, v = w, w, 0.0
            for rows in P.batches(t, c):
                for _ in range(inner_steps):
                    g = P.grad(P.loss, theta, rows) + lam * (theta - wi)
                    v = how.momentum * v + g + how.decay * theta
                    theta = theta - inner_lr * v
                wi = wi - outer_lr * lam * (wi - theta)
            own[c] = theta
            models.append(wi)
        w = (1 - beta) * w + beta * P.mean(ids, models)
    return {"server w": w, "view personal": [own.get(c, w) for c in range(P.C)]}


def test_pfedme():  # eq:pfedme-inner eq:pfedme-outer eq:pfedme-server
    more = {"lam": 4.0, "inner_steps": 3, "inner_lr": 0.07, "outer_lr": 0.1}
    agree("pFedMe", pfedme, more | {"beta": 1.0})
    agree("pFedMe", pfedme, more | {"beta": 1.6, "momentum": 0.0})


def perfedavg(P, alpha, order="FO", delta=1e-3):
    def ahead(w, first, second):
        """F after a step of adaptation, differentiable through the step."""
        (g,) = torch.autograd.grad(P.loss(w, first), w, create_graph=True)
        return P.loss(w - alpha * g, second)

    def direction(w, rows):
        parts = 3 if order == "HF" else 2
        if len(rows) < parts:
            return P.zero
        first, second, *third = (rows[k::parts] for k in range(parts))
        if order == "exact":
            return P.grad(ahead, w, first, second)
        g = P.grad(P.loss, w - alpha * P.grad(P.loss, w, first), second)
        if order == "FO":
            return g
        d = delta / g.norm()
        hv = P.grad(P.loss, w + d * g, *third) - P.grad(P.loss, w - d * g, *third)
        return g - alpha * hv / (2 * d)

    w = P.w
    for t, ids in enumerate(COHORTS):
        w = P.turn(t, ids, w, step=direction).mean(0)
    plain = {"lr": alpha, "momentum": 0.0, "decay": 0.0}
    last, out = len(COHORTS), {"personal": [], "tuned": []}
    for c in range(P.C):
        one = P.batches(last, c, "adapt", 1)[:1]
        out["personal"].append(P.sgd(w, one, **plain))
        out["tuned"].append(P.sgd(w, P.batches(last, c, "tune", 1), **plain))
    return {"server w": w} | {f"view {k}": v for k, v in out.items()}


def test_perfedavg():
    """eq:perfedavg-ahead eq:perfedavg-fo eq:perfedavg-hf; "exact" is the gradient of
    eq:perfedavg, and the difference of HF nearly is."""
    for order in ("FO", "HF", "exact"):
        agree("PerFedAvg", perfedavg, {"alpha": 0.3, "order": order})
    # smooth, and all parts of a batch alike: HF is the exact gradient but for d^2
    P = Plain(toy(batch=30))
    P.batches = lambda *a, **k: [P.rows(3)[:1].repeat(6)]
    hf, exact = (perfedavg(P, 0.3, o, 1e-4)["server w"] for o in ("HF", "exact"))
    fo = perfedavg(P, 0.3)["server w"]
    assert (hf - exact).norm() < 1e-4 * (fo - exact).norm()


def fedproto(P, lam, candidates="all"):
    w, K = P.copies(), P.task.K
    table, held = torch.zeros(K, 6).double(), torch.zeros(K)
    for t, ids in enumerate(COHORTS):
        sums, counts = [], []
        for c in ids:
            z_sum, n = torch.zeros(K, 6).double(), torch.zeros(K).double()

            def loss(v, rows, table=table, held=held):
                y, z = P.task.y[rows], P.feat(v, rows)
                apart = (held[y] > 0) * ((z - table[y]) ** 2).mean(1)
                return P.loss(v, rows) + lam * apart.mean()

            def met(v, rows, z_sum=z_sum, n=n, loss=loss):
                mu, count = P.classes(v.detach(), rows)
                z_sum += count[:, None] * mu
                n += count
                return loss(v, rows)

            w[c] = P.sgd(w[c], P.batches(t, c), met)
            sums.append(z_sum / n.clamp(min=1)[:, None])
            counts.append(n > 0)
        has = torch.stack(counts).double()
        held = has.sum(0)
        table = torch.einsum("mk,mkd->kd", has, torch.stack(sums))
        table = table / held.clamp(min=1)[:, None]
    said = []
    for c in range(P.C):
        z = P.feat(w[c], P.rows(c, "test"))
        d = ((z[:, None] - table) ** 2).sum(2)
        mine = torch.bincount(P.task.y[P.rows(c)], minlength=K) > 0
        may = (held > 0) & (mine | (candidates == "all"))
        said.append(torch.where(may, -d, -math.inf))
    out = {"server proto": table, "server held": held, "clients w": w}
    return out | {"view prototype": said, "view personal": w}


def test_fedproto():
    """eq:fedproto-loss eq:fedproto-own eq:fedproto-server eq:fedproto-view; a class of
    one client alone, and one that nobody online holds in the last round."""
    for task in (toy(), rare()):
        for candidates in ("all", "own"):
            more = {"lam": 0.8, "candidates": candidates}
            want = agree("FedProto", fedproto, more, task=task)
    assert want["server held"][2] == 0 and want["server held"][0] > 0
    assert any((a == -math.inf).any() for a in want["view prototype"])
    m, rec = recorded("FedProto", toy(), 0)  # before the first aggregation
    assert all((a == -math.inf).all() for a in answers(m, rec, "prototype"))
