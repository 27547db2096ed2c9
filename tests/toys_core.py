"""Small tasks whose answers are known, and comparisons of trees."""

import math
from dataclasses import dataclass

import torch

from fedlib.core.random import normal
from fedlib.core.tree import add, leaves
from fedlib.methods.base.fedavg import FedAvg
from goldens.numbers.toys import GROUPS, Normed, rows, toy

__all__ = ["GROUPS", "Noisy", "Normed", "gap", "rows", "same", "seen", "toy"]


@dataclass(frozen=True)
class Noisy(FedAvg):
    """FedAvg with every kind of state: a log that begins late, a number per client,
    noise from keys, a question."""

    def client(self, w, shard):
        return {"met": shard.n * 0, "last": w}

    def local(self, down, mine, shard):
        _, up = super().local(down, mine, shard)
        w = add(up["w"], normal(shard.key, up["w"]), 0.01)
        return {"met": mine["met"] + 1, "last": w}, up | {"w": w}

    def how_often(self, q, mine, shard):
        return {"met": mine["met"] + q["zero"]}

    def aggregate(self, server, up, r):
        zero = {"zero": torch.zeros((), dtype=up["n"].dtype)}
        met = r.ask(self.how_often, zero)["met"]
        log = {"met": met} | ({"late": met.mean()} if r.t >= 2 else {})
        return super().aggregate(server, up, r) | {"log": log}


def gap(a, b):
    """Largest difference of two trees (or lists of tensors); NaN against NaN is none,
    against a number infinite."""
    a, b = (leaves(t) if isinstance(t, dict) else t for t in (a, b))
    a, b, worst = [*map(torch.as_tensor, a)], [*map(torch.as_tensor, b)], 0.0
    assert [x.shape for x in a] == [y.shape for y in b], "trees of different structure"
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
    kinds = [x.dtype for x in a] == [y.dtype for y in b]
    a, b = ([x.nan_to_num(7.0) for x in t] for t in (a, b))
    return kinds and all(map(torch.equal, a, b))


def state(rec):
    return {"server": rec.state["server"], "clients": rec.state["clients"]}


def seen(rec):
    """Everything that a record holds of a run, as a tree."""
    all_ = {"cells ": rec.cells, "alike ": rec.consistency, "": rec.views | rec.logs}
    found = {f"{name}{k}": v for name, of in all_.items() for k, v in of.items()}
    found["rounds"] = rec.rounds
    return {k: torch.as_tensor(v) for k, v in found.items()}
