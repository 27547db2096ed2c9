"""Small tasks whose answers are known, and comparisons of trees."""

import math
from dataclasses import dataclass

import torch

from fedlib.core.random import normal
from fedlib.core.task import Task
from fedlib.core.tree import add, leaves
from fedlib.methods.base.fedavg import FedAvg
from fedlib.study.toys import GROUPS, SIZES, Normed, rows, toy

__all__ = [
    "GROUPS",
    "SIZES",
    "Bowl",
    "Noisy",
    "Normed",
    "bowls",
    "gap",
    "rows",
    "same",
    "seen",
    "state",
    "toy",
]


@dataclass(frozen=True)
class Bowl:
    """F(u, v) = mean over rows (|u - x|^2 + |v - x|^2) / 2: body u, head v, both with
    optimum mean(x) and curvature 1.
    """

    D: int
    K = 2
    head, layers, buffers = ("v",), (("u",), ("v",)), ()

    def init(self, seed, dtype=torch.float64):
        return {
            "u": torch.full((self.D,), 1.0 + seed, dtype=dtype),
            "v": torch.full((self.D,), -1.0 - seed, dtype=dtype),
        }

    def each(self, w, b):
        return (((w["u"] - b.x) ** 2).sum(1) + ((w["v"] - b.x) ** 2).sum(1)) / 2

    def feat(self, w, x, b=None, stats=None):
        return x * w["u"]

    def out(self, w, z):
        return torch.stack([z @ w["v"], -(z @ w["v"])], 1)


@dataclass(frozen=True)
class Noisy(FedAvg):
    """FedAvg with every kind of state: a log that begins late, a number per client,
    noise from keys, a question.
    """

    def client(self, w, shard):
        return {"met": shard.n * 0, "last": w}

    def local(self, down, mine, shard):
        _, up = super().local(down, mine, shard)
        w = add(up["w"], normal(shard.key, up["w"]), 0.01)
        return {"met": mine["met"] + 1, "last": w}, up | {"w": w}

    def how_often(self, q, mine, shard):
        return {"met": mine["met"] + q["zero"]}

    def aggregate(self, server, up, r):
        met = r.ask(self.how_often, {"zero": torch.zeros((), dtype=up["n"].dtype)})[
            "met"
        ]
        log = {"met": met} | ({"late": met.mean()} if r.t >= 2 else {})
        return super().aggregate(server, up, r) | {"log": log}


def bowls(centres, n=None):
    """A quadratic task: client i holds n_i copies (default 1) of the row centres[i];
    the optimum of F_i is the row.
    """
    b = torch.as_tensor(centres, dtype=torch.float64)
    n = n or [1] * len(b)
    x = torch.cat([torch.repeat_interleave(b, torch.tensor(n), 0), b, b])
    train, val, test = (
        rows(n),
        rows([1] * len(b), sum(n)),
        rows([1] * len(b), sum(n) + len(b)),
    )
    return Task(
        "bowls",
        Bowl(b.shape[1]),
        x,
        torch.zeros(len(x), dtype=torch.long),
        train,
        val,
        test,
        batch=10**6,
    )


def gap(a, b):
    """Largest difference of two trees (or lists of tensors); NaN against NaN is none,
    against a number infinite.
    """
    a, b = (
        [torch.as_tensor(x) for x in (leaves(t) if isinstance(t, dict) else t)]
        for t in (a, b)
    )
    assert len(a) == len(b) and all(x.shape == y.shape for x, y in zip(a, b)), (
        "trees of different structure"
    )
    worst = 0.0
    for x, y in zip(a, b):
        x, y = x.detach().cpu().double(), y.detach().cpu().double()
        if not torch.equal(x.isnan(), y.isnan()):
            return math.inf
        d = torch.where(x == y, 0.0, (x - y).abs()).nan_to_num(0.0)
        worst = max(worst, float(d.max()) if d.numel() else 0.0)
    return worst


def same(a, b):
    """Equal bits."""
    a, b = ([x.cpu() for x in leaves(t)] for t in (a, b))
    return len(a) == len(b) and all(
        torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0)) and x.dtype == y.dtype
        for x, y in zip(a, b)
    )


def state(rec):
    return {"server": rec.state["server"], "clients": rec.state["clients"]}


def seen(rec):
    """Everything that a record holds of a run, as a tree."""
    all_ = (
        ("", rec.views),
        ("cells ", rec.cells),
        ("alike ", rec.consistency),
        ("", rec.logs),
    )
    return {
        f"{name}{k}": torch.as_tensor(v) for name, what in all_ for k, v in what.items()
    } | {"rounds": torch.as_tensor(rec.rounds)}
