"""Averaging and its controls, against the same written plainly."""

from functools import partial

import torch
import torch.nn.functional as F
from toys import quadratic
from toys_core import toy
from toys_plain import COHORTS, SEED, agree, answers, flat, recorded, share

from fedlib.core.engine import run
from fedlib.core.random import fold
from fedlib.methods.base.tuned import Tuned
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


def test_fine_tuning_before_use():  # eq:tuned
    for more in ({"tune": 3}, {"tune": 1, "tune_lr": 0.05}):
        agree("FedAvg-FT", tuned, more)
        agree("FedProx-FT", tuned, more | {"mu": 0.7})
    for name in ("FedPer", "FedPer-online"):  # from the model that one would use
        build = lambda task, name=name, **how: Tuned(
            task, inner=make(name, task, **how), tune=0
        )
        m, rec = recorded(build, toy())
        for a, b in zip(answers(m, rec, "tuned"), answers(m, rec, "personal")):
            assert torch.equal(a, b), name


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
    eq:centralised-loss eq:moon-pull eq:moon-loss"""
    agree("FedAvg", average)
    agree("Uniform", partial(average, uniform=True))
    agree("FedProx", average, {"mu": 0.7})
    agree("FedAvg-P", held)
    agree("FedProx-P", held, {"mu": 0.7})
    agree("Local", alone)
    agree("Centralised", pooled)
    assert make("Centralised", toy(), batches=2).plans()["train"].steps == 2 * 6
    agree("MOON", contrast, {"mu": 2.0, "tau": 0.4})


def test_a_pull_has_its_minimum_between_the_clients_own_and_the_global_model():
    """eq:fedprox eq:ditto: (b + mu w) / (1 + mu) on |v - b|^2 / 2."""
    b = torch.tensor([[2.0, 0.0], [-1.0, 3.0]], dtype=torch.float64)
    task, mu = quadratic(b), 0.6
    w = flat(task.init(SEED))
    end = lambda m: run(m, rounds=1, seed=SEED, device="cpu").state
    prox = end(make("FedProx", task, mu=mu, lr=0.5, epochs=40))
    ditto = end(make("Ditto", task, lam=mu, lr=0.5, epochs=40))
    want = (b + mu * w) / (1 + mu)
    assert torch.allclose(prox["server"]["w"]["w"], want.mean(0))
    assert torch.allclose(ditto["clients"]["v"]["w"], want)
