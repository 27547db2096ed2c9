"""Bodies that are aligned, filters that are one's own, and a network that writes
networks."""

import math
from functools import partial

import torch
from toys_core import toy
from toys_plain import (
    COHORTS,
    HYPER,
    SEED,
    Plain,
    agree,
    flat,
    rare,
    recorded,
    share,
    vec,
)

from fedlib.core.method import Round
from fedlib.core.random import fold
from fedlib.core.tree import leaves
from fedlib.methods.make import make
from fedlib.methods.personal.fedas import FedAS
from fedlib.nets import MLP

PLAIN = {"momentum": 0.0, "decay": 0.0}


def copies(P):
    return P.w.expand(P.C, -1).clone()


# ---------------------------------------------------------------- FedAS and its kin
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
    above = a - a.min()
    return {
        "trace": lambda: share(a),
        "size": lambda: share(n),
        "softmax": lambda: share((a - a.max()).exp()),
        "softmax_scaled": lambda: share((a / a.mean()).exp()),
        "minmax": lambda: share(above),
    }[by]()


def fedas(
    P,
    align="class_mean",
    align_lr=0.3,
    align_epochs=2,
    reduction="mean",
    by="trace",
    kind="batch_sum",
    everybody=False,
    skip_first=False,
    shape=None,
    lam=0.0,
):
    """shape: None; "parallel", "global" or "chained", the variants."""
    S, own, w, met = ~P.head, copies(P), P.w[~P.head], [0] * P.C
    K, logs, uploaded = P.task.K, [], copies(P)
    mu, held = torch.zeros(K, 6).double(), torch.zeros(K).double()
    shuffle = shape != "chained"
    plan = partial(P.batches, plan="align", passes=align_epochs, shuffle=shuffle)

    def received(t, c, v):
        """The body after the download, v the one that was sent."""
        v, old = torch.where(S, v, own[c]), own[c].clone()
        if align == "none" or shape == "parallel" or skip_first and not met[c]:
            return v
        how = {"sample": align == "sample", "total": reduction == "sum"}
        how |= {"means": (mu, held)} if shape == "global" else {}
        old = uploaded[c] if shape == "chained" else old
        of = plan(t, c)
        A = apart(P, old, torch.cat(of), **how)
        return P.sgd(v, of, A, only=S, lr=align_lr, **PLAIN)

    for t, ids in enumerate(COHORTS):
        sent, before = torch.zeros_like(P.w), own.clone()
        sent[S] = w
        for c in range(P.C) if everybody else ids:
            own[c] = received(t, c, sent)
            if shape == "chained":
                sent = own[c].clone()
        a, class_means = [], []
        for c in ids:
            if shape == "parallel":
                A = apart(P, before[c], torch.cat(plan(t, c)))
                loss = lambda v, rows, A=A: P.loss(v, rows) + lam * A(v, rows)
                own[c] = P.sgd(own[c], P.batches(t, c, shuffle=shuffle), loss)
            else:
                own[c] = P.sgd(own[c], P.batches(t, c, shuffle=shuffle))
            a.append(trace(P, own[c], c, kind))
            class_means.append(P.classes(own[c], torch.cat(plan(t, c))))
            uploaded[c] = torch.where(S, own[c], uploaded[c])
            met[c] += 1
        for k in range(K) if shape == "global" else ():
            of_k = [m[k] for m, n in class_means if n[k] > 0]
            if of_k:
                mu[k], held[k] = torch.stack(of_k).mean(0), 1
        logs.append(torch.stack(a))
        w = weighted(logs[-1], P.n[list(ids)], by) @ own[list(ids)][:, S]
    out = {"server w": w, "clients w": own, "log trace": logs}
    return out | ({"server mu": mu, "server seen": held} if shape == "global" else {})


def test_fedas():  # eq:fedas-means eq:fedas-align eq:fedas-trace eq:fedas-weights
    base = {"align_lr": 0.3, "align_epochs": 2}
    for align, reduction, by, kind, everybody, skip in (
        ("class_mean", "mean", "trace", "batch_sum", False, False),
        ("class_mean", "sum", "minmax", "batch_mean", False, True),
        ("sample", "mean", "softmax", "full", False, False),
        ("sample", "sum", "softmax_scaled", "sample_mean", False, False),
        ("none", "mean", "size", "batch_sum", True, False),
    ):
        lr = 0.03 if reduction == "sum" else 0.3
        same = {"align": align, "reduction": reduction, "by": by, "skip_first": skip}
        box = partial(fedas, kind=kind, everybody=everybody)
        own = {"trace": kind, "download": "all" if everybody else "cohort"}
        agree("FedAS", box, base | same | {"align_lr": lr}, own=own)


def test_variants_of_fedas():  # eq:fedas-global eq:fedas-align
    more = {"align_lr": 0.3, "align_epochs": 2}
    agree("FedAS-parallel", partial(fedas, shape="parallel"), {"lam": 0.6} | more)
    for task in (toy(), rare()):
        agree("FedAS-global", partial(fedas, shape="global"), more, task=task)
    agree("FedAS-chained", partial(fedas, shape="chained"), more)


def test_watched_numbers():
    """How far a body moved, and the mean trace of rows; the run itself is the same."""
    task, more = toy(), {"align_lr": 0.3}
    (_, rec), (_, plain) = (
        recorded("FedAS", task, watch=x, **more) for x in (True, False)
    )
    same = [rec.state["server"]["w"], plain.state["server"]["w"]]
    assert torch.equal(*map(flat, same))
    P, ids = Plain(task), COHORTS[0]
    for j, c in enumerate(ids):
        of = P.batches(0, c, "align", 1)
        A = apart(P, P.w, torch.cat(of))
        aligned = P.sgd(P.w, of, A, only=~P.head, lr=0.3, **PLAIN)
        end = P.sgd(aligned, P.batches(0, c))
        said = {k: float(v[0][j]) for k, v in rec.logs.items()}
        assert math.isclose(said["aligned"], (aligned - P.w).norm(), abs_tol=1e-9)
        moved = (~P.head * (end - aligned)).norm()
        assert math.isclose(said["trained"], moved, abs_tol=1e-9)
        assert math.isclose(said["trace_rows"], trace(P, end, c, "sample_mean"))
        assert said["batches"] == len(P.batches(0, c, passes=1))


def test_weights_where_traces_say_nothing():
    n = vec(3, 1, 6)
    for by in ("trace", "softmax", "softmax_scaled", "minmax"):
        m = FedAS(by=by)
        for a in (
            vec(2, 2, 2),
            vec(0, 0, 0),
            vec(math.inf, 1, 2),
            vec(1e300, 1e300, 1),
        ):
            p = m.weights({"trace": a, "n": n})
            assert (p >= 0).all() and abs(float(p.sum()) - 1) < 1e-12, (by, a)
    p = FedAS().weights({"trace": vec(0, 0, 0), "n": n})
    assert torch.allclose(p, share(n))  # no trace at all: by size


# ---------------------------------------------------------------- CD2-pFed
def cd2(P, p, grow, lam, b=1.0, align=False, align_lr=0.2):
    R, K, own, w, logs = len(COHORTS), P.task.K, copies(P), P.w, []
    old = copies(P)

    def shared(t):
        """Marks of the entries that are shared in a round."""
        pt = p * min(1, t / (grow * R)) if grow else p
        marks = {k: torch.zeros_like(v) for k, v in P.like.items()}
        for k, v in marks.items():
            if k == "fc.weight":
                v[:, : math.ceil((1 - pt) * 6 - 1e-9)] = 1
            elif k == "fc.bias":
                v[:] = 1
            else:
                v[: math.ceil((1 - pt) * len(v) - 1e-9)] = 1
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
            s, l = (
                P.logits(v * (half | P.head), rows).softmax(1) for half in (now, ~now)
            )
            kl = (s * (s / l).log() + l * (l / s).log()).sum(1).mean()
            return P.loss(v, rows) + lam / 2 * kl

        for c in ids:
            v = own[c].clone()
            if align:
                of = P.batches(t, c, "align", 1)
                A = apart(P, old[c], torch.cat(of))
                v = P.sgd(v, of, A, only=now & ~P.head, lr=align_lr, **PLAIN)
            if b == 1:
                v = P.sgd(v, P.batches(t, c), loss)
            else:
                for e in range(P.how.epochs):
                    new = P.sgd(v, P.batches(t, c, f"pass{e}", 1), loss)
                    v = b * new + (1 - b) * v
            own[c] = old[c] = v
        w = share(P.n[list(ids)]) @ own[list(ids)]
    assert K == 3
    seen = own.clone()
    seen[:, now] = w[now]
    return {
        "server w": w[now],
        "clients w": own,
        "view personal": seen,
        "log private": logs,
    }


def test_cd2():  # eq:cd2-share eq:cd2-private eq:cd2-loss eq:cd2-average eq:cd2-server
    base = {"lr": 0.1}
    agree("CD2-pFed", cd2, base | {"p": 0.5, "grow": 0.5, "lam": 0.8})
    agree("CD2-pFed", cd2, base | {"p": 0.4, "grow": 0.0, "lam": 0.3, "b": 0.7})
    more = {"p": 0.7, "grow": 1.0, "lam": 0.0, "align": True, "align_lr": 0.2}
    agree("CD2-pFed", cd2, base | more)
    agree("CD2-pFed", cd2, base | {"p": 1.0, "grow": 0.0, "lam": 0.0})


# ---------------------------------------------------------------- pFedHN
def written(phi, c, P, chunk=0):
    """Client c's model, from the hypernetwork phi, as the equations have it."""

    def code(z):
        for k in phi["H"]:
            z = torch.relu(z @ phi["H"][k] + phi["c"][k])
        return z / math.sqrt(len(z))

    if not chunk:
        z = code(phi["e"][c])
        each = [
            phi["b"][k] + sum(z[j] * phi["A"][k][j] for j in range(len(z)))
            for k in phi["b"]
        ]
        return torch.cat([x.flatten() for x in each])
    pieces = [code(torch.cat([phi["e"][c], u])) @ phi["A"] for u in phi["u"]]
    return flat(phi["b"]) + torch.cat(pieces)[: len(P.w)]


def hypernetwork(name, chunk=0, server_lr=0.8, **more):
    task = toy(MLP(5, 6, 3))
    P = Plain(task)
    more |= {"chunk": chunk} if chunk else {}
    m, rec = recorded(name, task, server_lr=server_lr, **more)
    key = fold(torch.tensor(SEED), -1, -999)
    start = m.server(P.like, Round(-1, 3, key, None, torch.arange(P.C)))
    phi = {k: start[k] for k in start if k != "buffers"}
    names = [
        (k, n) for k, v in phi.items() for n in (v if isinstance(v, dict) else [""])
    ]
    of = lambda tree, k, n: tree[k][n] if n else tree[k]
    for t, ids in enumerate(COHORTS):
        p = {k: {} if isinstance(v, dict) else v for k, v in phi.items()}
        variables = []
        with torch.enable_grad():
            for k, n in names:
                x = of(phi, k, n).detach().clone().requires_grad_()
                variables.append(x)
                if n:
                    p[k][n] = x
                else:
                    p[k] = x
            total = 0.0
            for c in ids:
                w = written(p, c, P, chunk)
                trained = P.sgd(w.detach(), P.batches(t, c))
                total = total + w @ (w.detach() - trained)
            ds = torch.autograd.grad(total, variables)
        step = server_lr / len(ids)
        phi = {k: dict(v) if isinstance(v, dict) else v for k, v in phi.items()}
        for (k, n), d in zip(names, ds):
            new = of(phi, k, n) - step * d
            if n:
                phi[k][n] = new
            else:
                phi[k] = new
    for k, n in names:
        got = of(rec.state["server"], k, n)
        assert torch.allclose(got, of(phi, k, n), atol=1e-9), (name, k, n)
    return m, rec, P, start


def test_pfedhn():  # eq:pfedhn-model eq:pfedhn-step
    for depth in (0, 2):
        m, rec, P, start = hypernetwork("pFedHN", depth=depth, width=7)
        sent = m.send(rec.state["server"], torch.tensor([4, -1]))["w"]
        phi = rec.state["server"]
        mean = phi | {"e": phi["e"].mean(0, keepdim=True)}
        for i, (p, c) in enumerate(((phi, 4), (mean, 0))):  # a guest: the mean vector
            got = torch.cat([v[i].flatten() for v in sent.values()])
            assert torch.allclose(got, written(p, c, P))
        assert start["e"].shape == (6, 1 + 6 // 4) and len(start["H"]) == depth


def test_pfedhn_in_chunks():  # eq:pfedhn-chunk
    _, _, _, start = hypernetwork("pFedHN-chunked", chunk=16, depth=1, width=7, size=3)
    assert start["u"].shape == (4, 3)  # 57 numbers
    assert start["A"].shape == (7, 16) and start["H"]["0"].shape == (6, 7)


def test_first_models_lie_about_the_usual_start():
    P = Plain(toy(MLP(5, 6, 3)))
    r = Round(-1, 3, torch.tensor(5), None, torch.arange(P.C))
    for name in ("pFedHN", "pFedHN-chunked"):
        s = make(name, P.task, spread=0.0).server(P.like, r)
        sent = make(name, P.task).send(s, torch.arange(P.C))["w"]
        assert all(
            torch.equal(v[c], P.like[k]) for k, v in sent.items() for c in (0, 5)
        )
        s = make(name, P.task, spread=0.3, width=300, depth=2, **HYPER).server(
            P.like, r
        )
        A = (
            flat(s["A"])
            if name.endswith("chunked")
            else flat({"": s["A"]["fc.weight"]})
        )
        centred = [v - v.mean() for v in leaves(P.like)]
        whole = torch.cat([v.flatten() for v in centred]).square().mean().sqrt()
        one = centred[2].square().mean().sqrt()
        scale = whole if name.endswith("chunked") else one
        assert math.isclose(A.std(), 0.3 * scale, rel_tol=0.05), name
        H = s["H"]["1"]
        assert math.isclose(H.std(), math.sqrt(2 / len(H)), rel_tol=0.05)
