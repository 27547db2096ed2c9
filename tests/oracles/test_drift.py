"""The methods against drift: the papers' boxes as plain loops, and what they are for."""

import torch
from toys_core import toy
from toys_plain import COHORTS, SEED, Plain, agree, flat, vec

from fedlib.core.engine import run
from fedlib.methods.make import make
from fedlib.nets import Linear


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
    assert torch.allclose(c, own.mean(0))  # of all, absent ones too
    return {"server w": w, "server c": c, "clients c": own}


def test_scaffold():
    """eq:scaffold-local eq:scaffold-gradient eq:scaffold-mean-step eq:scaffold-server
    eq:scaffold-mean"""
    agree("SCAFFOLD", scaffold)
    agree("SCAFFOLD", scaffold, {"option": "I", "server_lr": 0.8})
    agree("SCAFFOLD", scaffold, {"momentum": 0.0, "server_lr": 1.5})


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
    assert torch.allclose(h, tilt.mean(0))
    return {"server w": w, "server h": h, "clients l": tilt}


def test_feddyn():  # eq:feddyn-local eq:feddyn-tilt eq:feddyn-server eq:feddyn-step
    agree("FedDyn", feddyn, {"alpha": 0.3})


def fednova(P):
    w, logs = P.w, []
    for t, ids in enumerate(COHORTS):
        a = vec(*(gradients(P, len(P.batches(t, i))) for i in ids))
        d = (w - P.turn(t, ids, w)) / a[:, None]
        w = w - P.mean(ids, a) * P.mean(ids, d)
        logs.append(a)
    return {"server w": w, "log steps": logs}


def test_fednova():  # eq:fednova-direction eq:fednova-steps eq:fednova-average
    agree("FedNova", fednova)
    agree("FedNova", fednova, {"momentum": 0.0})


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


def test_servers_that_step_along_the_mean_update():
    """eq:server-update eq:fedavgm-velocity eq:fedavgm-step eq:fedopt-first
    eq:fedopt-step eq:fedadagrad eq:fedadam eq:fedyogi"""
    agree("FedAvgM", at_server(None), {"beta": 0.7, "server_lr": 0.5})
    more = {"beta1": 0.6, "tau": 0.02, "server_lr": 0.1}
    agree("FedAdagrad", at_server(lambda v, dd, _: v + dd), more)
    more |= {"beta2": 0.8}
    agree("FedAdam", at_server(lambda v, dd, b: b * v + (1 - b) * dd), more)
    yogi = at_server(lambda v, dd, b: v - (1 - b) * dd * torch.sign(v - dd))
    agree("FedYogi", yogi, more)


def steepness(name, **more):
    """Length of the mean gradient where a method comes to rest, in four whole steps."""
    task = toy(Linear(5, 3), sizes=(9, 14, 6, 20), batch=100)
    how = {"lr": 0.3, "epochs": 4, "decay": 0.1, "momentum": 0.0}
    rec = run(make(name, task, **how, **more), rounds=40, seed=SEED, device="cpu")
    w = flat(rec.state["server"]["w"])
    P = Plain(task, **how)
    each = [P.grad(P.loss, w, P.rows(c)) + how["decay"] * w for c in range(P.C)]
    return float(torch.stack(each).mean(0).norm())


def test_drift_is_corrected_where_averaging_rests_elsewhere():
    drift = steepness("Uniform")
    assert drift > 1e-2
    assert steepness("SCAFFOLD") < 0.1 * drift
    assert steepness("FedDyn", alpha=0.3) < 0.01 * drift
