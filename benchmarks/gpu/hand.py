"""Softmax regression and one-hidden-layer networks of many clients as one: `baddbmm`
with a leading client dimension.

    z_l = relu(z_{l-1} W_l' + c_l)  [M, B, width],  d = (softmax - onehot) share,
                                    W_l <- W_l - lr d' z_{l-1}

The gradient is that of fedlib.nets.closed, for M clients at once. Clients are sorted
by their number of steps; the step exists for a few widths M, M/2, M/4, ..., and the
narrowest that holds all clients with work left is taken. Padding has share 0.
"""

from __future__ import annotations

import torch

from .graph import WARM, eager
from .setups import SEEN, padded, sent


def widths(M):
    """M, M/2, M/4, ..., 1, rounded up."""
    out = [M]
    while out[-1] > 1:
        out.append(-(-out[-1] // 2))
    return out


class Hand:
    """once(t, w) -> the model after round t. S seeds: S times the clients, averaged
    apart; w then is a list of S models.

    how: `eager` or `recorded` of `graph`; low: the type in which products are taken
    (torch.bfloat16), None: as the data.
    """

    def __init__(self, setup, how=eager, S=1, low=None):
        task, M = setup.task, setup.cohort * S
        self.setup, self.S, self.low = setup, S, low
        self.names = task.network.dense
        self.x, self.y = (
            task.x.flatten(1),
            torch.nn.functional.one_hot(task.y, task.K).to(task.x.dtype),
        )
        w = task.init(0)
        self.W, self.c = (
            [
                w[f"{k}.{leaf}"].expand(M, *w[f"{k}.{leaf}"].shape).clone()
                for k in self.names
            ]
            for leaf in ("weight", "bias")
        )
        T, B = setup.longest
        self.rows = torch.zeros(T + WARM, M, B, dtype=torch.long, device=self.x.device)
        self.share = torch.zeros(
            T + WARM, M, B, dtype=self.x.dtype, device=self.x.device
        )
        self.j = torch.zeros(1, dtype=torch.long, device=self.x.device)
        self.plans = [self.sorted(setup.plan(t)) for t in range(SEEN)]
        self.steps = {}
        for k in widths(M):
            self.j.zero_()
            with torch.no_grad():
                self.steps[k] = how(lambda k=k: self.step(k), self.x.device)

    def sorted(self, plan):
        """The plan of S seeds (all the same), the clients with most steps first, and
        whose they are: weights p [S, M].
        """
        p = padded(self.setup, plan * self.S)
        order = p["steps"].argsort(descending=True, stable=True)
        seed = torch.arange(len(order)).div(len(plan), rounding_mode="floor")[order]
        n = p["n"][order]
        mine = (seed == torch.arange(self.S)[:, None]).to(n.dtype) * n
        rows, share = (
            sent(p[k][order].transpose(0, 1), self.x.device) for k in ("rows", "share")
        )
        return {
            "rows": rows,
            "share": share,
            "steps": p["steps"][order].tolist(),
            "seed": seed.to(self.x.device),
            "p": (mine / mine.sum(1, keepdim=True)).to(self.x.device),
        }

    def mm(self, a, b):
        return (
            torch.bmm(a, b)
            if self.low is None
            else torch.bmm(a.to(self.low), b.to(self.low)).to(a.dtype)
        )

    def step(self, k):
        """One step of the first k clients."""
        r, s = (v.index_select(0, self.j)[0, :k] for v in (self.rows, self.share))
        flat = r.reshape(-1)
        z = [self.x[flat].view(k, -1, self.x.shape[1])]
        logits = None
        for l, (W, c) in enumerate(zip(self.W, self.c)):
            out = (
                torch.baddbmm(c[:k, None], z[-1], W[:k].mT)
                if self.low is None
                else self.mm(z[-1], W[:k].mT) + c[:k, None]
            )
            if l + 1 < len(self.W):
                z.append(out.relu_())
            else:
                logits = out
        d = logits.softmax(2).sub_(self.y[flat].view_as(logits)).mul_(s[..., None])
        for l in reversed(range(len(self.W))):
            W, before = (
                self.W[l][:k],
                self.mm(d, self.W[l][:k]).mul_(z[l] > 0) if l else None,
            )
            if self.low is None:
                W.baddbmm_(d.mT, z[l], alpha=-self.setup.lr)
            else:
                W.sub_(self.mm(d.mT, z[l]), alpha=self.setup.lr)
            self.c[l][:k].sub_(d.sum(1), alpha=self.setup.lr)
            d = before
        self.j.add_(1)

    @torch.no_grad()
    def once(self, t, w):
        plan, many = self.plans[t], w if self.S > 1 else [w]
        for name, W, c in zip(self.names, self.W, self.c):
            for v, leaf in ((W, "weight"), (c, "bias")):
                if self.S == 1:
                    v.copy_(many[0][f"{name}.{leaf}"].expand_as(v))
                else:
                    v.copy_(
                        torch.stack([m[f"{name}.{leaf}"] for m in many])[plan["seed"]]
                    )
        for k in ("rows", "share"):
            getattr(self, k)[: len(plan[k])].copy_(plan[k], non_blocking=True)
        self.j.zero_()
        sizes, left = sorted(self.steps), len(plan["steps"])
        for j in range(plan["steps"][0]):
            while plan["steps"][left - 1] <= j:
                left -= 1
            self.steps[next(k for k in sizes if k >= left)]()
        out = [
            {
                f"{name}.{leaf}": torch.tensordot(p, v, 1)
                for name, W, c in zip(self.names, self.W, self.c)
                for v, leaf in ((W, "weight"), (c, "bias"))
            }
            for p in plan["p"]
        ]
        return out if self.S > 1 else out[0]
