"""Quadratic clients: every method's answer can be written down."""

from dataclasses import dataclass

import numpy as np
import torch
from toys_core import gap, rows, toy

from fedlib.core.method import Round
from fedlib.core.task import Task

__all__ = ["Quadratic", "gap", "quadratic", "serve", "toy"]


@dataclass(frozen=True)
class Quadratic:
    """F(w) = mean over rows of |w - x|^2 / 2, w [P].

    A row counts as right (label 0) if w is nearer to it than 1.
    """

    P: int
    K = 2
    head, layers, buffers = ("w",), (("w",),), ()

    def init(self, seed, dtype=torch.float64):
        g = torch.Generator().manual_seed(seed)
        return {"w": torch.randn(self.P, generator=g, dtype=dtype)}

    def each(self, w, b):
        return (w["w"] - b.x).square().sum(1) / 2

    def feat(self, w, x, b=None, stats=None):
        return (w["w"] - x).square().sum(1, keepdim=True)

    def out(self, w, z):
        return torch.cat([torch.ones_like(z), z], 1)


def quadratic(centres, n=None, batch=10**6):
    """Client i: n_i training rows (default 1), one validation and one test row, all
    equal to centres[i] [P]."""
    b = torch.as_tensor(centres, dtype=torch.float64)
    n, one = n or [1] * len(b), [1] * len(b)
    x = torch.cat([b.repeat_interleave(torch.tensor(n), 0), b, b])
    splits = rows(n), rows(one, sum(n)), rows(one, sum(n) + len(b))
    y, net = torch.zeros(len(x), dtype=torch.long), Quadratic(b.shape[1])
    return Task("quadratic", net, x, y, *splits, batch=batch)


def serve(method, w, ws, **up):
    """One call of `aggregate` from w [P] with the clients' ws [M, P]: the new state."""
    w, ws = (torch.as_tensor(v, dtype=torch.float64) for v in (w, ws))
    ids = torch.arange(len(ws))
    r = Round(0, 10**6, torch.tensor(0), None, ids)
    up = {"n": torch.ones(len(ws), dtype=torch.float64), "cid": ids, **up}
    up = {k: torch.as_tensor(np.asarray(v)) for k, v in up.items()}
    return method.aggregate(method.server({"w": w}, r), {"w": {"w": ws}, **up}, r)
