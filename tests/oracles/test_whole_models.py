"""Methods that share whole models: averaging and its controls, those against drift, and
personalised ones; their boxes, written plainly."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from toys_core import toy
from toys_plain import COHORTS, SEED, agree, answers, rare, recorded, share, vec

from fedlib.core.random import fold
from fedlib.methods.make import make


def average(P, uniform=False, mu=0.0):
    w, weights = P.w, []
    for t, ids in enumerate(COHORTS):
        n = P.n[list(ids)]
        weights.append(share(torch.ones_like(n) if uniform else n))
        w = weights[-1] @ P.turn(t, ids, w, pull=(mu, w))
    return {"server w": w, "log weight": weights}


def held(P, mu=0.0):
    """FedAvg-P, FedProx-P: trained where online, downloaded elsewhere."""
    w = P.w
    for t, ids in enumerate(COHORTS):
        own = w.expand(P.C, -1).clone()  # everybody downloads
        own[list(ids)] = P.turn(t, ids, w, pull=(mu, w))
        w = P.mean(ids, own[list(ids)])
    return {"server w": w, "clients w": own, "view personal": [w] * P.C}


def alone(P):
    own = P.copies()
    for t, ids in enumerate(COHORTS):
        for c in ids:
            own[c] = P.sgd(own[c], P.batches(t, c))
    return {"clients w": own, "view personal": own}


def tuned(P, tune, tune_lr=0.0, mu=0.0):
    w = average(P, mu=mu)["server w"]
    lr, t = tune_lr or P.how.lr, len(COHORTS)
    after = [P.sgd(w, P.batches(t, c, "tune", tune), lr=lr) for c in range(P.C)]
    return {"server w": w, "view tuned": after, "view global": [w] * P.C}


def pooled(P):
    """One model on all rows; the draws are those of the round's own key."""
    w, rows = P.w, torch.cat(P.task.train)
    for t in range(len(COHORTS)):
        key = int(fold(torch.tensor(SEED), t, -999))
        w = P.sgd(w, P.batches(t, 0, rows=rows, seed=key))
    return {"server w": w}


def contrast(P, mu, tau):
    """MOON with the paper's own formula, a logarithm of two exponentials."""
    w, last = P.w, P.copies()
    cos = F.cosine_similarity
    for t, ids in enumerate(COHORTS):
        for c in ids:

            def loss(v, rows, w=w, old=last[c]):
                z = P.feat(v, rows)
                near = (cos(z, P.feat(w, rows)) / tau).exp()
                away = (cos(z, P.feat(old, rows)) / tau).exp()
                return P.loss(v, rows) - mu * (near / (near + away)).log().mean()

            last[c] = P.sgd(w, P.batches(t, c), loss)
        w = P.mean(ids, last[list(ids)])
    return {"server w": w, "clients w": last}


def test_averages_and_controls():
    """eq:fedavg eq:fedprox eq:fedavg-p eq:fedavg-p-download eq:local eq:centralised
    eq:centralised-loss eq:moon-pull eq:moon-loss eq:tuned"""
    agree("FedAvg", average)
    agree("Uniform", partial(average, uniform=True))
    agree("FedProx", average, {"mu": 0.7})
    agree("FedAvg-P", held)
    agree("FedProx-P", held, {"mu": 0.7})
    agree("Local", alone)
    agree("Centralised", pooled)
    assert make("Centralised", toy(), batches=2).plans()["train"].steps == 2 * 6
    agree("MOON", contrast, {"mu": 2.0, "tau": 0.4})
    for more in ({"tune": 3}, {"tune": 1, "tune_lr": 0.05}):
        agree("FedAvg-FT", tuned, more)
        agree("FedProx-FT", tuned, more | {"mu": 0.7})
    for name in ("FedPer", "FedPer-online"):  # from the model that one would use
        m, rec = recorded(f"{name}+FT", toy(), tune=0)
        own = answers(m, rec, "personal")
        assert all(map(torch.equal, answers(m, rec, "tuned"), own)), name
    made = lambda tune, **h: recorded("FedAvg+FT", toy(), shuffle=False, tune=tune, **h)
    way = made(6, also=[1, 5])
    for k, view in ((1, "tuned 1"), (5, "tuned 5"), (6, "tuned")):  # on its way
        assert all(map(torch.equal, answers(*way, view), answers(*made(k), "tuned")))


def gradients(P, steps):
    """How often gradients count in an update: the k-th of K is in the steps k .. K."""
    m = P.how.momentum
    return sum(m**j for k in range(steps) for j in range(steps - k))


def scaffold(P, option="II", server_lr=1.0):
    w, c, own = P.w, P.zero, 0 * P.copies()
    for t, ids in enumerate(COHORTS):
        moved, changes = [], []
        for i in ids:
            of = P.batches(t, i)
            wi = P.sgd(w, of, plus=c - own[i])
            if option == "I":
                new = P.grad(P.loss, w, P.rows(i)) + P.how.decay * w
            else:
                new = own[i] - c + (w - wi) / (gradients(P, len(of)) * P.how.lr)
            moved.append(wi - w)
            changes.append(new - own[i])
            own[i] = new
        w = w + server_lr * torch.stack(moved).mean(0)
        c = c + len(ids) / P.C * torch.stack(changes).mean(0)
    return {"server w": w, "server c": c, "clients c": own}


def feddyn(P, alpha):
    w, h, tilt = P.w, P.zero, 0 * P.copies()
    for t, ids in enumerate(COHORTS):
        models = []
        for i in ids:
            wi = P.sgd(w, P.batches(t, i), plus=-tilt[i], pull=(alpha, w))
            tilt[i] = tilt[i] - alpha * (wi - w)
            models.append(wi)
        h = h - alpha / P.C * sum(wi - w for wi in models)
        w = torch.stack(models).mean(0) - h / alpha
    return {"server w": w, "server h": h, "clients l": tilt}


def fednova(P):
    w, logs = P.w, []
    for t, ids in enumerate(COHORTS):
        a = vec(*(gradients(P, len(P.batches(t, i))) for i in ids))
        d = (w - P.turn(t, ids, w)) / a[:, None]
        w = w - P.mean(ids, a) * P.mean(ids, d)
        logs.append(a)
    return {"server w": w, "log steps": logs}


def at_server(second):
    """A server that steps along the mean update; second(v, d^2, beta2)."""

    def box(P, beta=0.0, beta1=0.0, beta2=0.0, tau=0.0, server_lr=1.0):
        w, m, v = P.w, P.zero, P.zero + tau**2
        for t, ids in enumerate(COHORTS):
            d = P.mean(ids, P.turn(t, ids, w)) - w
            if second is None:
                v = beta * v + d
                w = w + server_lr * v
            else:
                m = beta1 * m + (1 - beta1) * d
                v = second(v, d * d, beta2)
                w = w + server_lr * m / (v.sqrt() + tau)
        out = {"server w": w, "server v": v}
        return out | ({"server m": m} if second else {})

    return box


def test_against_drift():
    """eq:scaffold-local eq:scaffold-gradient eq:scaffold-mean-step eq:scaffold-server
    eq:scaffold-mean eq:feddyn-local eq:feddyn-tilt eq:feddyn-server eq:feddyn-step
    eq:fednova-direction eq:fednova-steps eq:fednova-average eq:server-update
    eq:fedavgm-velocity eq:fedavgm-step eq:fedopt-first eq:fedopt-step eq:fedadagrad
    eq:fedadam eq:fedyogi"""
    agree("SCAFFOLD", scaffold)
    agree("SCAFFOLD", scaffold, {"option": "I", "server_lr": 0.8})
    agree("SCAFFOLD", scaffold, {"momentum": 0.0, "server_lr": 1.5})
    agree("FedDyn", feddyn, {"alpha": 0.3})
    agree("FedNova", fednova)
    agree("FedNova", fednova, {"momentum": 0.0})
    agree("FedAvgM", at_server(None), {"beta": 0.7, "server_lr": 0.5})
    more = {"beta1": 0.6, "tau": 0.02, "server_lr": 0.1}
    agree("FedAdagrad", at_server(lambda v, dd, _: v + dd), more)
    more |= {"beta2": 0.8}
    agree("FedAdam", at_server(lambda v, dd, b: b * v + (1 - b) * dd), more)
    yogi = at_server(lambda v, dd, b: v - (1 - b) * dd * torch.sign(v - dd))
    agree("FedYogi", yogi, more)


def ditto(P, lam, own=0):
    w, v = P.w, P.copies()
    for t, ids in enumerate(COHORTS):
        for c in ids:
            of = P.batches(t, c, "own", own) if own else P.batches(t, c)
            v[c] = P.sgd(v[c], of, pull=(lam, w))
        w = P.mean(ids, P.turn(t, ids, w))
    return {"server w": w, "clients v": v, "view personal": v, "view global": [w] * P.C}


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


def perfedavg(P, alpha, order="FO", delta=1e-3):
    def ahead(w, first, second):
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


def test_models_of_ones_own():
    """eq:ditto eq:ditto-step eq:apfl-model eq:apfl-own eq:apfl-alpha eq:pfedme-inner
    eq:pfedme-outer eq:pfedme-server eq:perfedavg-ahead eq:perfedavg-fo eq:perfedavg-hf;
    "exact" is the gradient of eq:perfedavg."""
    for more in ({"lam": 0.6}, {"lam": 0.2, "own": 3}):
        agree("Ditto", ditto, more)
    agree("APFL", apfl, {"alpha": 0.3})
    agree("APFL", apfl, {"alpha": 0.8, "adapt": False})
    ends = agree("APFL", apfl, {"alpha": 0.98, "lr": 0.9})["clients alpha"]
    assert ends.max() == 1  # a share stays one
    more = {"lam": 4.0, "inner_steps": 3, "inner_lr": 0.07, "outer_lr": 0.1}
    agree("pFedMe", pfedme, more | {"beta": 1.0})
    agree("pFedMe", pfedme, more | {"beta": 1.6, "momentum": 0.0})
    for order in ("FO", "HF", "exact"):
        agree("PerFedAvg", perfedavg, {"alpha": 0.3, "order": order})


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
