"""The federation of tests/fedlib/methods/goldens in fedlib, and the answers of other
people's programs on it.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from where import ROOT

from fedlib.core.engine import run
from fedlib.core.task import Task
from fedlib.core.tree import leaves, pick, rows
from fedlib.nets import MLP

HERE = ROOT / "tests/fedlib/methods/goldens"
PACKAGES = ["fedlab", "flgo", "flower", "fluke", "pfllib"]
SHAPES = {"fc1.weight": (5, 4), "fc1.bias": (5,), "fc.weight": (3, 5), "fc.bias": (3,)}
LR, FAR = 0.5, 1e-4  # FAR: readings that are further apart than this are different


@cache
def answers(package):
    with np.load(HERE / f"{package}.npz") as f:
        return dict(f)


def about(package):
    return json.loads((HERE / f"{package}.json").read_text())


# ------------------------------------------------------- the same federation, in fedlib
def tree(v):
    """Vectors [..., P] as a tree of [..., shape]."""
    parts = torch.as_tensor(v).split([int(np.prod(s)) for s in SHAPES.values()], -1)
    return {k: p.reshape(*p.shape[:-1], *s) for (k, s), p in zip(SHAPES.items(), parts)}


@dataclass(frozen=True)
class Given(MLP):
    """The network, and the weights that all programs start from [P]."""

    start: Any = None

    def init(self, seed, dtype=torch.float64):
        return tree(self.start)


@cache
def task(package, batch=8):
    """The federation of a package's goldens; every client also has one test row,
    which nothing here looks at.
    """
    a = answers(package)
    x, y, owner = (torch.as_tensor(a[f"data/{k}"]) for k in ("x", "y", "owner"))
    C, N = int(owner.max()) + 1, len(x)
    own, test = (
        tuple((owner == c).nonzero()[:, 0] for c in range(C)),
        tuple(torch.arange(N, N + C).split(1)),
    )
    none = tuple(torch.arange(0) for _ in range(C))
    net = Given(4, 5, 3, start=a["data/start"])
    return Task(
        "goldens",
        net,
        torch.cat([x, x[:C]]),
        torch.cat([y, y[:C]]),
        own,
        none,
        test,
        K=3,
        batch=batch,
    )


def recorded(method, rounds, cohorts=None, how="loop"):
    """The record of some rounds."""
    cohort = None if cohorts is None else lambda t: cohorts[t % len(cohorts)]
    return run(
        method,
        rounds=rounds,
        cohort=cohort,
        every=rounds,
        how=how,
        splits=("test",),
        device="cpu",
    )


def ours(*args, **more):
    """The state after some rounds."""
    return recorded(*args, **more).state


def vector(w):
    return np.concatenate([x.reshape(-1) for x in leaves(w)])


def vectors(ws):
    return rows(ws).numpy()


def gap(a, b):
    """Largest difference, measured in units of the largest entry."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and np.isfinite(a).all() and np.isfinite(b).all()
    return np.abs(a - b).max() / np.abs(b).max()


def path(method, R, **more):
    """The server's model after each round [R, P]."""
    return [vector(ours(method, r, **more)["server"]["w"]) for r in range(1, R + 1)]


def build(package, method, kw, batch=8):
    return method(
        task(package, batch), **{"lr": LR, "epochs": 2, "shuffle": False} | kw
    )


def seen(method, view, downs, clients=None):
    """What every client says of its own rows [N, K]; downs:
    what each of them has downloaded.
    """
    t = method.task
    out = []
    for i, (down, shard) in enumerate(
        zip(downs, t.shards(0, 2, 2, torch.arange(t.C), method.plans()))
    ):
        mine = (
            method.client(t.init(0), shard)
            if clients is None
            else {k: pick(v, i) for k, v in clients.items()}
        )
        out.append(method.views(down, mine, shard)[view](shard.all().x))
    return torch.cat(out).detach().numpy()
