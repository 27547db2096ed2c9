"""Federations in plain arithmetic, on fedlib's network, data and draws of batches."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from toys_core import gap, toy

from fedlib.core import engine
from fedlib.core.random import seed_of, tag
from fedlib.core.tree import leaves, pick
from fedlib.methods.make import make

SEED = 3
COHORTS = (0, 2, 3, 5), (1, 2, 4), (0, 3, 4, 5)
HYPER = {"lr": 0.2, "epochs": 2, "momentum": 0.5, "decay": 0.03}


LAYERS = BODY, HEAD = ("fc1.weight", "fc1.bias"), ("fc.weight", "fc.bias")  # toy's
LOGITS = toy().logits
# the server's state after so many rounds
served = lambda method, rounds=1, **more: run(method, rounds, **more).state["server"]
shard_of = lambda m, c: m.task.shards(SEED, 0, 5, torch.tensor([c]), m.plans())[0]
f64 = lambda x: torch.as_tensor(np.asarray(x), dtype=torch.float64)
flat = lambda w: torch.cat([x.reshape(-1) for x in leaves(w)])
vec = lambda *v: torch.tensor(v, dtype=torch.float64)
share = lambda n: n / n.sum()


def rare():
    """The toy in which clients 1 and 2 alone hold class 2."""
    task = toy()
    y = task.y.clone()
    for c, rows in enumerate(task.train):
        y[rows] = torch.where(y[rows] == 2, 2 * int(c in (1, 2)), y[rows])
    return replace(task, y=y)


def run(method, rounds=3, **more):
    usual = {"seed": SEED, "how": "loop", "device": "cpu"}
    return engine.run(method, rounds=rounds, **usual | more)


def noise(*shape, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64)


def near(tree, size=0.3, seed=1):
    """Another model, not far away."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda v: torch.randn(v.shape, generator=g, dtype=v.dtype)
    return {k: v + size * draw(v) for k, v in tree.items()}


def batches(task, c, passes=1):
    """(x, y) of client c's rows, a task's batch at a time, in their own order."""
    for _ in range(passes):
        for r in task.train[c].split(task.batch):
            yield task.x[r], task.y[r]


def slope_of(f, w, names=None):
    """The gradient of f at w, by autograd; for the tensors named, or for all."""
    p = {k: v.detach().clone() for k, v in w.items()}
    names = list(names or p)
    with torch.enable_grad():
        for k in names:
            p[k].requires_grad_()
        out = torch.autograd.grad(f(p), [p[k] for k in names])
    return dict(zip(names, out))


def slope(w, xy, names=None):
    """The gradient of the mean cross-entropy of the toy's network on a batch."""
    return slope_of(lambda v: F.cross_entropy(LOGITS(v, xy[0]), xy[1]), w, names)


down = lambda w, g, lr: {k: v - lr * g[k] if k in g else v for k, v in w.items()}


def averaged(models, p):
    """sum_i p_i w_i / sum_i p_i of a list of models."""
    return {k: sum(q * m[k] for q, m in zip(share(f64(p)), models)) for k in models[0]}


class Plain:
    """A task whose models are vectors, and the clients' descent on it."""

    def __init__(self, task, **hyper):
        self.task, self.how = task, SimpleNamespace(**HYPER | hyper)
        self.like = task.init(SEED)
        self.w, self.C = flat(self.like), task.C
        self.n = vec(*map(len, task.train))
        self.head, self.zero = self.where(task.head), torch.zeros_like(self.w)

    def copies(self):
        return self.w.expand(self.C, -1).clone()

    def mean(self, ids, models):
        """By the number of rows."""
        return share(self.n[list(ids)]) @ torch.stack(list(models))

    def where(self, names):
        """Which of the P numbers belong to these tensors."""
        marks = {k: torch.full_like(v, k in names) for k, v in self.like.items()}
        return flat(marks).bool()

    def tree(self, v):
        parts = v.split([x.numel() for x in self.like.values()])
        return {k: p.view(x.shape) for (k, x), p in zip(self.like.items(), parts)}

    def feat(self, v, rows):
        return self.task.feat(self.tree(v), self.task.x[rows])

    def logits(self, v, rows):
        return self.task.logits(self.tree(v), self.task.x[rows])

    def loss(self, v, rows):
        return F.cross_entropy(self.logits(v, rows), self.task.y[rows])

    def right(self, v, rows):
        hits = self.logits(v, rows).argmax(1) == self.task.y[rows]
        return hits.double().mean()

    def grad(self, f, v, *args):
        with torch.enable_grad():
            p = v.detach().clone().requires_grad_()
            return torch.autograd.grad(f(p, *args), p)[0]

    def rows(self, c, split="train"):
        return getattr(self.task, split)[c]

    def batches(self, t, c, plan="train", passes=None, size=None, shuffle=True, **more):
        """The batches of client c in round t; more: other rows, another seed."""
        seed = seed_of(more.get("seed", SEED), t, c, tag(plan))
        g = torch.Generator().manual_seed(seed)
        rows, out = more.get("rows", self.rows(c)), []
        for _ in range(self.how.epochs if passes is None else passes):
            order = torch.randperm(len(rows), generator=g) if shuffle else slice(None)
            out += rows[order].split(min(size or self.task.batch, len(rows)))
        return out

    def sgd(self, w, batches, loss=None, only=1, plus=0, pull=(0, 0), step=None, **how):
        """Descent with momentum and decay on loss + <plus, w> + mu/2 |w - anchor|^2, of
        the coordinates `only`; pull = (mu, anchor); step: (w, rows) -> [P] in place of
        the gradient of the loss."""
        how = SimpleNamespace(**vars(self.how) | how)
        v = 0.0
        for rows in batches:
            g = step(w, rows) if step else self.grad(loss or self.loss, w, rows)
            g = g + plus + how.decay * w + pull[0] * (w - pull[1])
            v = how.momentum * v + only * g
            w = w - how.lr * v
        return w

    def turn(self, t, ids, start, **more):
        """The models [M, P] that FedAvg's clients train in a round."""
        return torch.stack([self.sgd(start, self.batches(t, c), **more) for c in ids])

    def classes(self, v, rows):
        """Per class of the rows: mean feature [K, D] (0 without any) and number [K]."""
        z, y, K = self.feat(v, rows), self.task.y[rows], self.task.K
        n = torch.bincount(y, minlength=K).double()
        sums = torch.stack([z[y == k].sum(0) for k in range(K)])
        return sums / n.clamp(min=1)[:, None], n


def recorded(name, task, rounds=3, **settings):
    build = partial(make, name) if isinstance(name, str) else name
    m, cohort = build(task, **HYPER | settings), lambda t: COHORTS[t % len(COHORTS)]
    more = {"every": max(1, rounds), "splits": ("test",)}
    return m, run(m, rounds, cohort=cohort, **more)


def answers(m, rec, view):
    """What a view says of every client's test rows after the last round."""
    task, R = m.task, rec.meta["rounds"]
    ids, out = torch.arange(task.C), []
    down = m.send(rec.state["server"], ids)
    for i, shard in enumerate(task.shards(SEED, R, R, ids, m.plans())):
        kept = rec.state["clients"]
        d, mine = pick(down, i), pick(kept, i) if kept else {}
        if m.download == "all":
            mine = m.receive(d, mine, shard)
        out.append(m.views(d, mine, shard)[view](shard.all("test").x))
    return out


def agree(name, box, settings=None, network=None, near=1e-9, task=None, own=None):
    """The method's state, log and views are those of the box, a function of (Plain,
    **settings) -> {"server w": [P], "clients v": [C, P], "log weight": [R][M],
    "view personal": models [C, P] or answers [C][n, K]}. own: hyper-parameters that are
    not the box's business."""
    settings, task = settings or {}, task or toy(network)
    plain = Plain(task, **{k: v for k, v in settings.items() if k in HYPER})
    want = box(plain, **{k: v for k, v in settings.items() if k not in HYPER})
    m, rec = recorded(name, task, **settings | (own or {}))
    assert want
    for key, x in want.items():
        where, what = key.split()
        if where == "log":
            x = [torch.as_tensor(b).reshape(-1) for b in x]
            got = [torch.as_tensor(a).reshape(-1) for a in rec.logs[what]]
            got = [a[: len(b)] for a, b in zip(got, x, strict=True)]
        elif where == "view":
            got = answers(m, rec, what)
            if x[0].dim() == 1:
                x = [plain.logits(v, plain.rows(c, "test")) for c, v in enumerate(x)]
            x = list(x)
        else:
            got = rec.state[where].get("in", rec.state[where])[what]
            if isinstance(got, dict):
                lead = where == "clients" or torch.as_tensor(x).dim() > 1
                parts = [v.flatten(1) if lead else v.flatten() for v in leaves(got)]
                got = torch.cat(parts, -1)
            got, x = [got], [x]
        assert gap(got, x) < near, (name, settings, key)
    return want
