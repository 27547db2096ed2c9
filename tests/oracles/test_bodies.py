"""Methods that share a part of the network, align bodies, or write networks."""

import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
from toys_core import gap, toy
from toys_plain import COHORTS, SEED, Plain, agree, flat, rare, recorded, share, vec

from fedlib.core.method import Round
from fedlib.core.random import fold, seed_of, tag
from fedlib.core.tree import leaves, tmap
from fedlib.methods.personal.fedas import FedAS
from fedlib.nets import MLP


def parts(P, shared=lambda P: ~P.head, online=False, train=None):
    """The `shared` coordinates are averaged, the others stay; everybody receives, or
    only who is online. train(P, w, t, c): the model after local training."""
    own, S = P.copies(), shared(P)
    w = P.w[S]
    train = train or (lambda P, v, t, c: P.sgd(v, P.batches(t, c)))
    for t, ids in enumerate(COHORTS):
        for c in ids if online else range(P.C):
            own[c, S] = w
        for c in ids:
            own[c] = train(P, own[c].clone(), t, c)
        w = P.mean(ids, own[list(ids)][:, S])
    seen = own.clone()
    if not online:
        seen[:, S] = w
    return {"server w": w, "clients w": own, "view personal": seen}


def head_first(P, v, t, c, head_epochs, twice):
    v = P.sgd(v, P.batches(t, c, "head", head_epochs), only=P.head)

    def step(v, rows):
        g = ~P.head * P.grad(P.loss, v, rows)
        return g + P.grad(P.loss, v - P.how.lr * g, rows) if twice else g

    return P.sgd(v, P.batches(t, c), only=~P.head, step=step)


def fedbabu(P, tune, tune_lr=0.0):
    w = P.w
    for t, ids in enumerate(COHORTS):
        w = P.mean(ids, P.turn(t, ids, w, only=~P.head))
    of = lambda c: P.batches(len(COHORTS), c, "tune", tune)
    after = [P.sgd(w, of(c), lr=tune_lr or P.how.lr) for c in range(P.C)]
    out = {"server w": w[~P.head], "clients w": w[P.head].expand(P.C, -1)}
    return out | {"view global": [w] * P.C, "view tuned": after}


def test_a_part_is_averaged():
    """eq:fedper eq:lg-fedavg eq:lg-fedavg-head eq:fedbn eq:fedbn-server eq:fedrep-head
    eq:fedrep-body eq:fedrep-twice eq:fedbabu eq:fedbabu-average"""
    agree("FedPer", parts)
    agree("FedPer-online", partial(parts, online=True))
    agree("LG-FedAvg", partial(parts, shared=lambda P: P.head))
    network = MLP(5, 6, 3, norm="group")
    assert network.norms == ("norm1.weight", "norm1.bias")
    shared = lambda P: ~P.where(network.norms)
    agree("FedBN", partial(parts, shared=shared), network=network)
    for name, passes in (("FedRep", 3), ("FedRep-2x", 2)):
        train = partial(head_first, head_epochs=passes, twice=name == "FedRep-2x")
        agree(name, partial(parts, train=train), own={"head_epochs": passes})
    for more in ({"tune": 2}, {"tune": 1, "tune_lr": 0.05}):
        agree("FedBABU", fedbabu, more)


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


PLAIN = {"momentum": 0.0, "decay": 0.0}


def apart(P, old, rows_of_means, sample=False, total=False, means=None):
    """A(v, rows): over the classes of a batch, the mean squared distance of their rows
    to the old class means, or each row's to its own old feature."""
    mu, n = means or P.classes(old, rows_of_means)

    def A(v, rows):
        z, y, far = P.feat(v, rows), P.task.y[rows], 0.0
        goal = P.feat(old, rows) if sample else mu[y]
        d = ((z - goal) ** 2).sum(1) / (1 if total else z.shape[1])
        for k in range(P.task.K):
            if (y == k).any() and (sample or n[k] > 0):
                far = far + d[y == k].mean()
        return far + 0 * z.sum()

    return A


def trace(P, w, c, kind):
    size = {"sample_mean": 1, "full": 10**9}.get(kind)
    of = P.batches(0, c, "fisher", 1, size, shuffle=False)
    squares = [P.grad(P.loss, w, rows).square().sum() for rows in of]
    if kind == "full":
        return P.grad(lambda v, r: len(r) * P.loss(v, r), w, P.rows(c)).square().sum()
    return sum(squares) / (1 if kind == "batch_sum" else len(squares))


def weighted(a, n, by):
    soft, scaled = (a - a.max()).exp(), (a / a.mean()).exp()
    all_ = {"trace": a, "size": n, "softmax": soft, "softmax_scaled": scaled}
    return share((all_ | {"minmax": a - a.min()})[by])


USUAL = {"align": "class_mean", "align_lr": 0.3, "align_epochs": 2, "reduction": "mean"}
USUAL |= {"by": "trace", "skip_first": False, "lam": 0.0}


def fedas(P, kind="batch_sum", everybody=False, shape=None, **more):
    """shape: None; "parallel", "global" or "chained", the variants."""
    how = SimpleNamespace(**USUAL | more)
    S, own, w, met = ~P.head, P.copies(), P.w[~P.head], [0] * P.C
    K, logs, uploaded = P.task.K, [], P.copies()
    mu, held = torch.zeros(K, 6).double(), torch.zeros(K).double()
    shuffle = shape != "chained"
    plan = partial(P.batches, plan="align", passes=how.align_epochs, shuffle=shuffle)

    def received(t, c, v):
        """The body after the download, v the one that was sent."""
        v, old = torch.where(S, v, own[c]), own[c].clone()
        first = how.skip_first and not met[c]
        if how.align == "none" or shape == "parallel" or first:
            return v
        old, of = uploaded[c] if shape == "chained" else old, plan(t, c)
        means = (mu, held) if shape == "global" else None
        kinds = how.align == "sample", how.reduction == "sum"
        A = apart(P, old, torch.cat(of), *kinds, means)
        return P.sgd(v, of, A, only=S, lr=how.align_lr, **PLAIN)

    for t, ids in enumerate(COHORTS):
        sent, before = torch.zeros_like(P.w), own.clone()
        sent[S] = w
        for c in range(P.C) if everybody else ids:
            own[c] = received(t, c, sent)
            if shape == "chained":
                sent = own[c].clone()
        a, class_means = [], []
        for c in ids:
            A = apart(P, before[c], torch.cat(plan(t, c)))
            both = lambda v, rows, A=A: P.loss(v, rows) + how.lam * A(v, rows)
            loss = both if shape == "parallel" else P.loss
            own[c] = P.sgd(own[c], P.batches(t, c, shuffle=shuffle), loss)
            a.append(trace(P, own[c], c, kind))
            class_means.append(P.classes(own[c], torch.cat(plan(t, c))))
            uploaded[c] = torch.where(S, own[c], uploaded[c])
            met[c] += 1
        for k in range(K) if shape == "global" else ():
            of_k = [m[k] for m, n in class_means if n[k] > 0]
            if of_k:
                mu[k], held[k] = torch.stack(of_k).mean(0), 1
        logs.append(torch.stack(a))
        w = weighted(logs[-1], P.n[list(ids)], how.by) @ own[list(ids)][:, S]
    out = {"server w": w, "clients w": own, "log trace": logs}
    return out | ({"server mu": mu, "server seen": held} if shape == "global" else {})


def test_fedas():  # eq:fedas-means eq:fedas-align eq:fedas-trace eq:fedas-weights
    names = "align", "reduction", "by", "skip_first", "align_lr", "align_epochs"
    for kind, everybody, *values in (
        ("batch_sum", False, "class_mean", "mean", "trace", False, 0.3, 2),
        ("batch_mean", False, "class_mean", "sum", "minmax", True, 0.03, 2),
        ("full", False, "sample", "mean", "softmax", False, 0.3, 2),
        ("sample_mean", False, "sample", "sum", "softmax_scaled", False, 0.03, 2),
        ("batch_sum", True, "none", "mean", "size", False, 0.3, 2),
    ):
        box = partial(fedas, kind=kind, everybody=everybody)
        own = {"trace": kind, "download": "all" if everybody else "cohort"}
        agree("FedAS", box, dict(zip(names, values)), own=own)
    # eq:fedas-global, the variants
    more = {"align_lr": 0.3, "align_epochs": 2}
    agree("FedAS-parallel", partial(fedas, shape="parallel"), {"lam": 0.6} | more)
    for task in (toy(), rare()):
        agree("FedAS-global", partial(fedas, shape="global"), more, task=task)
    agree("FedAS-chained", partial(fedas, shape="chained"), more)


def test_weights_where_traces_say_nothing():
    n, same, none = vec(3, 1, 6), vec(2, 2, 2), vec(0, 0, 0)
    for by in ("trace", "softmax", "softmax_scaled", "minmax"):
        for a in (same, none, vec(math.inf, 1, 2), vec(1e300, 1e300, 1)):
            p = FedAS(by=by).weights({"trace": a, "n": n})
            assert (p >= 0).all() and abs(float(p.sum()) - 1) < 1e-12, (by, a)
    p = FedAS().weights({"trace": none, "n": n})
    assert torch.allclose(p, share(n))  # by size


def cd2(P, p, grow, lam, b=1.0, align=False, align_lr=0.2):
    R, own, old, w, logs = len(COHORTS), P.copies(), P.copies(), P.w, []

    def shared(t):
        """Marks of the entries that are shared in a round."""
        pt = p * min(1, t / (grow * R)) if grow else p
        marks = {k: torch.zeros_like(v) for k, v in P.like.items()}
        some = math.ceil((1 - pt) * 6 - 1e-9)  # of the six hidden units
        marks["fc1.weight"][:some] = marks["fc1.bias"][:some] = 1
        marks["fc.weight"][:, :some] = marks["fc.bias"][:] = 1
        return flat(marks).bool(), pt

    now = torch.ones_like(P.head)
    for t, ids in enumerate(COHORTS):
        own[:, now] = w[now]
        now, pt = shared(t)
        logs.append(vec(pt))
        both = bool((now | P.head).all()) or bool((~now | P.head).all())

        def loss(v, rows, now=now, both=both):
            if both or not lam:
                return P.loss(v, rows)
            s = P.logits(v * (now | P.head), rows).softmax(1)
            l = P.logits(v * (~now | P.head), rows).softmax(1)
            kl = (s * (s / l).log() + l * (l / s).log()).sum(1).mean()
            return P.loss(v, rows) + lam / 2 * kl

        for c in ids:
            v = own[c].clone()
            if align:
                of = P.batches(t, c, "align", 1)
                A = apart(P, old[c], torch.cat(of))
                v = P.sgd(v, of, A, only=now & ~P.head, lr=align_lr, **PLAIN)
            passes = [P.batches(t, c, f"pass{e}", 1) for e in range(P.how.epochs)]
            for of in [P.batches(t, c)] if b == 1 else passes:
                v = b * P.sgd(v, of, loss) + (1 - b) * v
            own[c] = old[c] = v
        w = P.mean(ids, own[list(ids)])
    seen = own.clone()
    seen[:, now] = w[now]
    state = {"server w": w[now], "clients w": own}
    return state | {"view personal": seen, "log private": logs}


def test_cd2():  # eq:cd2-share eq:cd2-private eq:cd2-loss eq:cd2-average eq:cd2-server
    base = {"lr": 0.1}
    agree("CD2-pFed", cd2, base | {"p": 0.5, "grow": 0.5, "lam": 0.8})
    agree("CD2-pFed", cd2, base | {"p": 0.4, "grow": 0.0, "lam": 0.3, "b": 0.7})
    more = {"p": 0.7, "grow": 1.0, "lam": 0.0, "align": True, "align_lr": 0.2}
    agree("CD2-pFed", cd2, base | more)
    agree("CD2-pFed", cd2, base | {"p": 1.0, "grow": 0.0, "lam": 0.0})


def written(phi, c, P, chunk=0):
    """Client c's model, from the hypernetwork phi, as the equations have it."""

    def code(z):
        for k in phi["H"]:
            z = torch.relu(z @ phi["H"][k] + phi["c"][k])
        return z / math.sqrt(len(z))

    if not chunk:
        z = code(phi["e"][c])
        own = lambda k: sum(z[j] * phi["A"][k][j] for j in range(len(z)))
        return flat({k: b + own(k) for k, b in phi["b"].items()})
    pieces = [code(torch.cat([phi["e"][c], u])) @ phi["A"] for u in phi["u"]]
    return flat(phi["b"]) + torch.cat(pieces)[: len(P.w)]


def hypernetwork(name, chunk=0, server_lr=0.8, **more):
    P, more = Plain(toy()), more | ({"chunk": chunk} if chunk else {})
    m, rec = recorded(name, P.task, server_lr=server_lr, **more)
    key = fold(torch.tensor(SEED), -1, -999)
    start = m.server(P.like, Round(-1, 3, key, None, torch.arange(P.C)))
    phi = {k: start[k] for k in start if k != "buffers"}
    for t, ids in enumerate(COHORTS):
        phi = tmap(lambda x: x.detach().clone().requires_grad_(), phi)
        with torch.enable_grad():
            total = 0.0
            for c in ids:
                w = written(phi, c, P, chunk)
                total = total + w @ (w - P.sgd(w, P.batches(t, c))).detach()
            d = iter(torch.autograd.grad(total / len(ids), leaves(phi)))
        phi = tmap(lambda x, d=d: x.detach() - server_lr * next(d), phi)
    assert gap({k: rec.state["server"][k] for k in phi}, phi) < 1e-9, name
    return m, rec, P, start


def test_pfedhn():  # eq:pfedhn-model eq:pfedhn-step eq:pfedhn-chunk
    for depth in (0, 2):
        m, rec, P, start = hypernetwork("pFedHN", depth=depth, width=7)
        sent = m.send(rec.state["server"], torch.tensor([4, -1]))["w"]
        phi = rec.state["server"]
        mean = phi | {"e": phi["e"].mean(0, keepdim=True)}
        for i, (p, c) in enumerate(((phi, 4), (mean, 0))):  # a guest: the mean vector
            got = flat({k: v[i] for k, v in sent.items()})
            assert torch.allclose(got, written(p, c, P))
        assert start["e"].shape == (6, 1 + 6 // 4) and len(start["H"]) == depth
    _, _, _, start = hypernetwork("pFedHN-chunked", chunk=16, depth=1, width=7, size=3)
    assert start["u"].shape == (4, 3)  # 57 numbers
    assert start["A"].shape == (7, 16) and start["H"]["0"].shape == (6, 7)
