"""Methods that share a part of the network: the body, the head, all but norm layers."""

import itertools
from functools import partial

import numpy as np
import torch
from toys_core import toy
from toys_plain import COHORTS, SEED, agree, rare, recorded, share

from fedlib.core.random import seed_of, tag
from fedlib.nets import MLP

of_body, of_head = lambda P: ~P.head, lambda P: P.head


def parts(P, shared=of_body, online=False, train=None):
    """The `shared` coordinates are averaged, the others stay; everybody receives, or
    only who is online. train(P, w, t, c): the model after local training."""
    own, S = P.copies(), shared(P)
    w = P.w[S]
    for t, ids in enumerate(COHORTS):
        for c in ids if online else range(P.C):
            own[c, S] = w
        for c in ids:
            train_c = train or (lambda P, v, t, c: P.sgd(v, P.batches(t, c)))
            own[c] = train_c(P, own[c].clone(), t, c)
        w = P.mean(ids, own[list(ids)][:, S])
    seen = own.clone()
    if not online:
        seen[:, S] = w
    return {"server w": w, "clients w": own, "view personal": seen}


def test_a_shared_body_or_head():
    """eq:fedper eq:lg-fedavg eq:lg-fedavg-head; the norm layers eq:fedbn
    eq:fedbn-server"""
    agree("FedPer", parts)
    agree("FedPer-online", partial(parts, online=True))
    agree("LG-FedAvg", partial(parts, shared=of_head))
    network = MLP(5, 6, 3, norm="group")
    shared = lambda P: ~P.where(network.norms)
    assert network.norms == ("norm1.weight", "norm1.bias")
    agree("FedBN", partial(parts, shared=shared), network=network)


def head_first(P, v, t, c, head_epochs, twice):
    v = P.sgd(v, P.batches(t, c, "head", head_epochs), only=P.head)

    def step(v, rows):
        g = ~P.head * P.grad(P.loss, v, rows)
        return g + P.grad(P.loss, v - P.how.lr * g, rows) if twice else g

    return P.sgd(v, P.batches(t, c), only=~P.head, step=step)


def test_head_first_then_body():  # eq:fedrep-head eq:fedrep-body eq:fedrep-twice
    for name, passes in (("FedRep", 3), ("FedRep-2x", 2)):
        train = partial(head_first, head_epochs=passes, twice=name == "FedRep-2x")
        agree(name, partial(parts, train=train), own={"head_epochs": passes})


def fedbabu(P, tune, tune_lr=0.0):
    w = P.w
    for t, ids in enumerate(COHORTS):
        w = P.mean(ids, P.turn(t, ids, w, only=~P.head))
    of = lambda c: P.batches(len(COHORTS), c, "tune", tune)
    after = [P.sgd(w, of(c), lr=tune_lr or P.how.lr) for c in range(P.C)]
    out = {"server w": w[~P.head], "clients w": w[P.head].expand(P.C, -1)}
    return out | {"view global": [w] * P.C, "view tuned": after}


def test_a_body_under_a_random_head():  # eq:fedbabu eq:fedbabu-average eq:tuned
    agree("FedBABU", fedbabu, {"tune": 2})
    agree("FedBABU", fedbabu, {"tune": 1, "tune_lr": 0.05})


def block(P, t, c, size):
    """The client's batches of a random contiguous share of its rows, the incomplete one
    left out unless it is all."""
    rows, g = P.rows(c), torch.Generator().manual_seed(seed_of(SEED, t, c, tag("ala")))
    n = max(1, int(size * len(rows)))
    first = int(torch.randint(len(rows) - n + 1, (1,), generator=g))
    cut = rows[first : first + n].split(min(P.task.batch, len(rows)))
    return [b for b in cut if len(b) == len(cut[0])]


def fedala(P, eta, tol, window, cap, size, passes):
    """The whole model and autograd, where ours has cached features."""
    w, own, met, A = P.w, P.copies(), [False] * P.C, 0 * P.copies() + 1
    for t in range(len(COHORTS) + 1):
        trained, kept = own.clone(), A.clone()  # after the last round
        for c in range(P.C):
            d = P.head * (w - own[c])
            losses, learns = [], bool(d.any())
            while learns and len(losses) < cap:
                for rows in block(P, t, c, size):
                    h = torch.where(P.head, own[c], w) + A[c] * d
                    losses_now = float(P.loss(h, rows))
                    A[c] = (A[c] - eta * P.grad(P.loss, h, rows) * d).clamp(0, 1)
                losses.append(losses_now)
                calm = len(losses) > window and np.std(losses[-window:]) < tol
                learns = not met[c] and not calm
            passes.append(len(losses))
            met[c] = met[c] or bool(d.any())
            own[c] = torch.where(P.head, own[c], w) + A[c] * d
        if t == len(COHORTS):
            out = {"server w": w, "clients w": trained, "view personal": own}
            return out | {"clients A": kept[:, P.head]}
        for c in COHORTS[t]:
            own[c] = P.sgd(own[c], P.batches(t, c))
        w = P.mean(COHORTS[t], own[list(COHORTS[t])])


def test_fedala():  # eq:fedala-mix eq:fedala-step eq:fedala-linear
    for size, how in (
        (0.8, {"eta": 20.0, "tol": 0.05, "window": 3, "cap": 20}),
        (0.5, {"eta": 3.0, "tol": 1e-9, "window": 2, "cap": 5}),
    ):
        passes = []
        box = partial(fedala, passes=passes, size=size)
        A = agree("FedALA", box, how, own={"share": size})["clients A"]
        assert A.min() < 0.5 and A.max() == 1 and set(passes) >= {0, 1}
        assert (max(passes) == how["cap"]) == (how["tol"] < 1e-3)


def qp(Q):
    """argmin a' Q a over the simplex, by trying every support."""
    M, best = len(Q), None
    for k in range(1, M + 1):
        for s in map(list, itertools.combinations(range(M), k)):
            a = torch.zeros(M).double()
            a[s] = share(torch.linalg.solve(Q[s][:, s], torch.ones(k).double()))
            if (a >= 0).all() and (best is None or a @ Q @ a < best @ Q @ best):
                best = a
    return best


def fedpac(P, lam, head_epochs, head_lr):
    K, S = P.task.K, ~P.head
    w, heads, out = P.w[S], P.w[P.head].expand(P.C, -1).clone(), []
    c_k, seen = torch.zeros(K, 6).double(), torch.zeros(K).double()
    own = P.copies()
    for t, ids in enumerate(COHORTS):
        own[:, S], own[:, P.head] = w, heads
        h, V, after = [], [], []
        for c in ids:
            m, n = P.classes(own[c], P.rows(c))
            z, pi = P.feat(own[c], P.rows(c)), share(n)
            y = P.task.y[P.rows(c)]
            q = [((z[y == k] ** 2).sum(1).mean() if n[k] else 0) for k in range(K)]
            h.append(pi[:, None] * m)
            v = sum(pi[k] * q[k] - (pi[k] * m[k]).square().sum() for k in range(K))
            V.append(v / len(y))

            def loss(v, rows, c_k=c_k, seen=seen):
                y, z = P.task.y[rows], P.feat(v, rows)
                far = ((z - c_k[y]) ** 2).mean(1)
                return P.loss(v, rows) + lam * (seen[y] * far).mean()

            lr, of_head = head_lr or P.how.lr, P.batches(t, c, "head", head_epochs)
            v = P.sgd(own[c], of_head, only=P.head, lr=lr)
            own[c] = P.sgd(v, P.batches(t, c), loss, only=S)
            after.append(P.classes(own[c], P.rows(c)))
        (ms, ns), A = zip(*after), []
        for hi in h:
            d = torch.stack([(hi - hj).flatten() for hj in h])
            a = qp(d @ d.T + torch.stack(V).diag())
            A.append(share(torch.where(a < 1e-3, 0.0, a)))
        out.append(torch.stack(A).diagonal())
        i, n = list(ids), torch.stack(ns)
        w = P.mean(ids, own[i][:, S])
        heads[i] = torch.stack(A) @ own[i][:, P.head]
        seen = (n.sum(0) > 0).double()
        c_k = torch.einsum("ik,ikd->kd", n, torch.stack(ms))
        c_k = c_k / n.sum(0).clamp(min=1)[:, None]
    seen_by = own.clone()
    seen_by[:, S], seen_by[:, P.head] = w, heads
    state = {"server w": w, "server head": heads, "server c": c_k, "server seen": seen}
    return state | {"log self_weight": out, "view personal": seen_by}


def test_fedpac():
    """eq:fedpac-head eq:fedpac-pull eq:fedpac-stats eq:fedpac-var eq:fedpac-server
    eq:fedpac-qp eq:fedpac-mix"""
    names = "lam", "head_epochs", "head_lr"
    for more, task in (((0.7, 2, 0.5), toy()), ((0.6, 1, 0.0), rare())):
        want = agree("FedPAC", fedpac, dict(zip(names, more)), near=1e-6, task=task)
        mixed = want["log self_weight"]
        assert any(((a > 0.01) & (a < 0.99)).any() for a in mixed)
    assert want["server seen"].tolist() == [1, 1, 0]  # lost in the last round
    m, rec = recorded("FedPAC", toy())  # a guest gets the mean of all heads
    sent = m.send(rec.state["server"], torch.tensor([-1, 4]))["head"]
    for k, v in rec.state["server"]["head"].items():
        assert torch.allclose(sent[k][0], v.mean(0)) and torch.equal(sent[k][1], v[4])
