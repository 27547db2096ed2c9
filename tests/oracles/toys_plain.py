"""Federations in plain arithmetic: the second writing that methods are compared with.

A model is a vector [P], a gradient autograd's, a cohort a loop; the network, the data
and the draws of batches are fedlib's.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from toys_core import gap, toy

from fedlib.core.engine import run
from fedlib.core.random import seed_of, tag
from fedlib.core.tree import leaves, pick
from fedlib.methods.make import make

SEED = 3
COHORTS = (0, 2, 3, 5), (1, 2, 4), (0, 3, 4, 5)
HYPER = {"lr": 0.2, "epochs": 2, "momentum": 0.5, "decay": 0.03}


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


class Plain:
    """A task whose models are vectors, and the clients' descent on it."""

    def __init__(self, task, **hyper):
        self.task, self.how = task, SimpleNamespace(**HYPER | hyper)
        self.like = task.init(SEED)
        self.w, self.C = flat(self.like), task.C
        self.n = vec(*map(len, task.train))
        self.head, self.zero = self.where(task.head), torch.zeros_like(self.w)

    def copies(self):
        """The first model, one for each client."""
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
    more = {"every": max(1, rounds), "splits": ("test",), "how": "loop"}
    return m, run(m, rounds=rounds, seed=SEED, cohort=cohort, device="cpu", **more)


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
    not the box's business.
    """
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
