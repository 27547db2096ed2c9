"""The round written a second time, in the plainest way: one client after another, one
batch after another, one row after another, autograd and torch's own layers.

Shared with the engine are the data, the initial weights and the integers and normals
that are drawn (`seed_of`, `fold`, `normal`); these have tests of their own.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from fedlib.core.local import Plain
from fedlib.core.random import fold, normal, seed_of, tag
from fedlib.core.tree import tmap
from fedlib.methods.base.fedavg import FedAvg
from fedlib.pieces.robust import Median
from fedlib.pieces.steps import SAM, Private

LAM, NONE = 0.7, float("nan")


class Slow(Plain):
    """The plain step, of which the engine does not know a closed form."""

    def __call__(self, loss):
        g = super().__call__(loss)
        return lambda w, b: g(w, b)


def bias(w):
    """The bias of the last layer."""
    return [v for k, v in w.items() if k.endswith("bias")][-1]


@dataclass(frozen=True)
class Half(FedAvg):
    """A client keeps a model that begins at a place of its own, goes half the way to the
    server's on every download, and is trained tied to that one. The server asks."""

    post = ("personal",)

    def server(self, w, r):
        said = r.ask(self.tell, {"times": bias(w).new_tensor(3.0)})
        return {"w": w, "rows": said["n"].sum()}

    def tell(self, q, mine, shard):
        return {"n": q["times"] * shard.n + bias(mine["w"]).sum()}

    def client(self, w, shard):
        place = 0.05 * shard.cid.to(shard.n) + 0.03 * shard.n
        w = tmap(lambda x: x + place, w)
        return {"w": w, "was": w}  # one tensor under two names

    def receive(self, down, mine, shard):
        return mine | {"w": tmap(lambda a, b: (a + b) / 2, mine["w"], down["w"])}

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard, pull=(LAM, down["w"]))
        return {"w": w, "was": mine["w"]}, {"w": w, "n": shard.n}

    def aggregate(self, server, up, r):
        said = r.ask(self.tell, {"times": up["n"].new_tensor(2.0)})
        new = super().aggregate(server, up, r)
        log = new["log"] | {"said": said["n"], "key": r.key}
        return server | new | {"log": log}

    def views(self, down, mine, shard):
        net = self.task.net
        return {"global": net(down["w"]), "personal": net(mine["w"])}


class HalfAll(Half):
    download = "all"


def logits(w, x, training=False):
    """Linear layers, relu or batch norm and tanh between; training moves statistics."""
    names = [k[:-7] for k in w if k.endswith(".weight")]
    for name in names:
        gain, bias = w[f"{name}.weight"], w[f"{name}.bias"]
        stats = [w.get(f"{name}.running_{k}") for k in ("mean", "var")]
        if stats[0] is None:
            x = F.linear(x, gain, bias)
            x = x if name == names[-1] or "bn" in names else x.relu()
        elif training and len(x) == 1:  # torch refuses a single row
            stats[0].lerp_(x[0].detach(), 0.1), stats[1].mul_(0.9)
            x = (0 * x * gain + bias).tanh()
        else:
            x = F.batch_norm(x, *stats, gain, bias, training, 0.1, 1e-5).tanh()
    return x


def gradient(task, w, rows):
    """(gradient of the mean loss, the model with its running statistics moved)."""
    p = {k: x.clone() for k, x in w.items()}
    free = {k: x.requires_grad_() for k, x in p.items() if "running" not in k}
    loss = F.cross_entropy(logits(p, task.x[rows], True), task.y[rows])
    return dict(zip(free, torch.autograd.grad(loss, [*free.values()]))), p


def length(g):
    return torch.cat([x.flatten() for x in g.values()]).norm()


def step(m, w, rows, key):
    """(direction, the model with its running statistics moved)."""
    if isinstance(m.step, Private):
        gs = [gradient(m.task, w, r[None])[0] for r in rows]
        z, clip = normal(fold(key, tag("privacy")), w), m.step.clip
        total = {k: m.step.sigma * clip * z[k] for k in w}
        for g in gs:
            cut = min(1.0, clip / float(length(g)))
            total = {k: total[k] + cut * g[k] for k in w}
        return {k: v / m.task.batch for k, v in total.items()}, w
    g, moved = gradient(m.task, w, rows)
    if isinstance(m.step, SAM):
        far = m.step.rho / length(g)
        g, _ = gradient(m.task, {k: w[k] + far * g.get(k, 0) for k in w}, rows)
    return g, moved


def batches(m, seed, t, c):
    """The row numbers of a client's batches in round t."""
    g = torch.Generator().manual_seed(seed_of(seed, t, c, tag("train")))
    rows, out = m.task.train[c], []
    N, size = len(rows), min(m.task.batch, len(rows))
    if m.poisson:
        steps = range(m.batches or m.epochs * -(-N // size))
        out = [rows[torch.rand(N, generator=g) < size / N] for _ in steps]
        return [b for b in out if len(b)]
    for _ in range(m.batches or m.epochs):
        order = rows[torch.randperm(N, generator=g)] if m.shuffle else rows
        cut = list(order.split(size))
        short = m.last == "drop" and len(cut) > 1 and len(cut[-1]) < size
        out += cut[:-1] if short else cut
    return out[: m.batches] if m.batches else out


def descend(m, w, seed, t, c, anchor=None):
    v = {k: torch.zeros_like(x) for k, x in w.items()}
    for j, rows in enumerate(batches(m, seed, t, c)):
        key = fold(torch.tensor(seed), t, c, tag("train"), j)
        g, moved = step(m, w, rows, key)
        for k in g:
            pull = m.decay * w[k] + (LAM * (w[k] - anchor[k]) if anchor else 0)
            v[k] = m.momentum * v[k] + g[k] + pull
        w = {k: w[k] - m.lr * v[k] if k in g else moved[k].detach() for k in w}
    return w


def scored(task, w, rows):
    """(share that is right, counts of group, outcome and prediction)"""
    cells = torch.zeros(2, 2, 2)
    if not len(rows):
        return NONE, cells
    said, good = logits(w, task.x[rows]).argmax(1), (1, 2)
    for r, z in zip(rows.tolist(), said.tolist()):
        cells[int(task.x[r, 0]), int(task.y[r] in good), int(z in good)] += 1
    return float((said == task.y[rows]).double().mean()), cells


def unlike(task, w, rows):
    """[sum of |outcome - mean outcome of the five nearest others|, how many rows]."""
    everybody, apart = torch.cat(task.test), 0.0
    rows = [r for r in rows.tolist() if r in everybody]
    good = lambda r: torch.isin(logits(w, task.x[r]).argmax(1), torch.tensor([1, 2]))
    for r in rows:
        others = everybody[everybody != r]
        far = (task.x[others] - task.x[r]).square().sum(1)
        near = others[far.argsort()[:5]]
        apart += abs(float(good(torch.tensor([r]))) - float(good(near).double().mean()))
    return [apart, len(rows)]


def second(m, rounds, seed, cohort=None, every=1, splits=("test", "val"), **more):
    """All that is left of a run of FedAvg or Half; more: guests, own, init.

    As in a Record; model: the server's at the end; w, was: what clients keep; shown: what
    was scored last.
    """
    task, C, half = m.task, len(m.task.train), isinstance(m, Half)
    first = w = more.get("init") or task.init(seed)
    split = ("all", "val", "test")
    clients = [dict(zip(split, r)) for r in zip(task.train, task.val, task.test)]
    guests = {-1 - i: dict(zip(split, r)) for i, r in enumerate(task.guests)}
    place = lambda c: 0.05 * c + 0.03 * len((clients if c >= 0 else guests)[c]["all"])
    fresh = lambda c: {k: x + place(c) for k, x in first.items()}
    meet = lambda a, w: {k: (a[k] + w[k]) / 2 for k in a}
    was = own = [fresh(c) for c in range(C)] if half else [w] * C
    tell = lambda c, q: q * len(task.train[c]) + bias(own[c]).sum()
    total = sum(tell(c, 3.0) for c in range(C)) if half else 0
    out = {k: {} for k in ("views", "cells", "alike")} | {"rounds": [], "logs": []}

    def score(moment, clients, **views):
        for view, models in views.items() if half else [next(iter(views.items()))]:
            at, both = (moment, view), list(zip(models, clients))
            alike = [unlike(task, v, c["test"]) for v, c in both]
            out["alike"].setdefault(at, []).append(alike)
            for s in splits:
                if moment == "guest" and not all(len(c[s]) for c in clients):
                    continue
                a, n = zip(*[scored(task, v, c[s]) for v, c in both])
                out["views"].setdefault((*at, s), []).append(a)
                out["cells"].setdefault((*at, s), []).append(torch.stack(n).tolist())

    for t in range(rounds + 1):
        ids = cohort(t) if callable(cohort) else range(C)
        if isinstance(cohort, int):
            g = torch.Generator().manual_seed(seed_of(seed, t, tag("cohort")))
            ids = sorted(torch.randperm(C, generator=g)[:cohort].tolist())
        ids, kept, now = list(ids), own, t % every == 0 or t == rounds
        if half:
            hear = range(C) if m.download == "all" else ids
            own = [meet(v, w) if c in hear else v for c, v in enumerate(own)]
        if now:
            out["rounds"].append(t)
            score("pre", clients, **{"global": [w] * C, "personal": own})
            new = [meet(fresh(c), w) for c in guests]
            both = {"global": [w] * len(guests), "personal": new}
            if more.get("guests"):
                score("guest", guests.values(), **both)
        if t == rounds:
            shown = own if half else [w] * C
            kept = {"model": w, "w": kept, "was": was}
            return out | kept | {"shown": shown, "total": total}
        start, anchor = (own, w) if half else ([w] * C, None)
        trained = {c: descend(m, start[c], seed, t, c, anchor) for c in ids}
        was = [own[c] if c in trained else v for c, v in enumerate(was)]
        own = [trained.get(c, v) for c, v in enumerate(own)] if half else own
        if now and half:
            score("post", clients, personal=own)
        if now and more.get("own"):
            score("own", clients, **{"global": [trained[c] for c in ids]})
        out["logs"].append({"cohort": ids})
        if ids:
            log, w_new = told(task, w, trained, isinstance(m.rule, Median))
            asked = {"said": [tell(c, 2.0) for c in ids]}
            asked["key"] = fold(torch.tensor(seed), t, -999)
            out["logs"][-1] |= log | (asked if half else {})
            w = w_new


def told(task, w, trained, middle):
    """(what the server logs, the next model) of the models {client: model}."""
    n = torch.tensor([float(len(task.train[c])) for c in trained]).double()
    p, free = n / n.sum(), [k for k in w if "running" not in k]
    G = [torch.cat([(v[k] - w[k]).flatten() for k in free]) for v in trained.values()]
    against = [[float(a @ b < 0) for b in G if b is not a] for a in G]
    log = {"weight": p, "drift": [a.norm() for a in G]}
    log["conflict"] = [sum(a) / max(1, len(a)) for a in against]
    log["update_scale"] = sum(G).div(len(G)).square().mean()
    models = {k: torch.stack([v[k] for v in trained.values()]) for k in w}
    mean = lambda x: sum(q * v for q, v in zip(p, x))
    median = lambda x: x.quantile(0.5, 0)
    new = {k: (median if middle and k in free else mean)(x) for k, x in models.items()}
    return log, new
