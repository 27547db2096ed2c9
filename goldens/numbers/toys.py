"""Toy tasks: small enough for four rounds in a tenth of a second, and with all that a
method may meet: clients of unequal size, one shorter than a batch; groups; guests;
batch norm; two towers with random weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from fedlib.core.method import Method
from fedlib.core.pool import Block, Groups
from fedlib.core.task import Task
from fedlib.core.tree import normalize
from fedlib.nets import MLP, Net, batch_norm, dense, linear_part, norm_part
from fedlib.nets.clip import Adapter, Prompts
from fedlib.nets.towers import IMAGE, StandIn, TextTower
from repro import papers

standin = papers.module("fft-gp", "standin")
GROUPS = Groups(
    "code",
    ("nought", "one"),
    (1, 2),
    0,
    (),
    (Block("code", "flag", 0, 1), Block("rest", "number", 1, 5)),
)
SIZES = (9, 14, 6, 20, 11, 3)  # training rows: unequal, one client shorter than a batch
NAMES = tuple(f"latin small letter {c}" for c in "abdefghjmn")


@dataclass(frozen=True)
class Normed(Net):
    """Linear, batch norm, tanh, linear."""

    inputs: int
    D: int
    K: int

    @cached_property
    def parts(self):
        return (
            linear_part("one", self.D, self.inputs),
            norm_part("bn", self.D, "batch"),
            linear_part("out", self.K, self.D),
        )

    def feat(self, w, x, b=None, stats=None):
        return batch_norm(w, "bn", dense(w, "one", x), b, stats).tanh()


@dataclass(frozen=True)
class Probe(Method):
    """Local training and the mean by size, on what Method offers: the engine, steps and
    rules without any method of ours.
    """

    def local(self, down, mine, shard):
        return mine, {"w": self.fit(self.loss, down["w"], shard), "n": shard.n}

    def aggregate(self, server, up, r):
        p = normalize(up["n"])
        return {"w": self.combine(server["w"], up["w"], p), "log": {"weight": p}}


def rows(sizes, start=0):
    """One row list per size, one after another from `start`."""
    at = torch.arange(start, start + sum(sizes)).split(list(sizes))
    return tuple(at)


def toy(network=None, sizes=SIZES, batch=4, dtype=torch.float64, K=3, **more):
    """Clients of unequal size with 4 validation and 6 test rows each, and two guests:
    an unseen client, and a held-out domain without training rows."""
    g, C = torch.Generator().manual_seed(5), len(sizes)
    n = [s + 10 for s in (*sizes, 10, 0)]
    shift = torch.repeat_interleave(
        0.5 * torch.randn(C + 2, 5, generator=g, dtype=torch.float64),
        torch.tensor(n),
        0,
    )
    x = torch.randn(sum(n), 5, generator=g, dtype=torch.float64) + shift
    a = torch.randint(0, 2, (sum(n),), generator=g)
    x[:, 0] = a
    teacher = torch.randn(5, K, generator=g, dtype=torch.float64)
    y = (x @ teacher + shift[:, :1]).argmax(1)
    own = rows(n)
    train, val, test = (
        tuple(r[s] for r in own) for s in (slice(10, None), slice(0, 4), slice(4, 10))
    )
    guests = tuple(zip(train[C:], val[C:], test[C:]))
    return Task(
        "toy",
        network or MLP(5, 6, K),
        x.to(dtype),
        y,
        train[:C],
        val[:C],
        test[:C],
        K=K,
        a=a,
        guests=guests,
        batch=batch,
        **more,
    )


# ---------------------------------------------------------------- two towers
def towers(d=6, seed=0, width=8, context=32):
    """A StandIn with random weights: d features, tokens of `width`, and a logit scale
    of 5. Its image tower has d = 64.
    """
    g, words = torch.Generator().manual_seed(seed), standin.vocabulary()
    w = standin.start(TextTower(len(words), width, context=context, d=d), g)
    w |= {f"image.{k}": v for k, v in IMAGE.init(seed).items()}
    w["text.words"] = 0.5 * torch.randn(w["text.words"].shape, generator=g)
    return StandIn(w | {"scale": torch.tensor(5.0).log()}, words, 16)


def toy_towers(
    classes=3,
    d=6,
    seed=0,
    network="Adapter",
    dtype=torch.float64,
    sizes=SIZES,
    batch=4,
    a=None,
    groups=None,
    **more,
):
    """(towers, task): unequal clients and two guests as in `toy`, rows near the text
    feature of their class.

    network: "Adapter" or "Prompts" (M = 2 unless `more` says otherwise).
    """
    model, g = towers(d, seed), torch.Generator().manual_seed(seed)
    kind, more = (Adapter, more) if network == "Adapter" else (Prompts, {"M": 2} | more)
    net = kind(d, classes, NAMES[:classes], model, **more)
    n = [s + 10 for s in (*sizes, 10, 0)]
    y = torch.randint(0, classes, (sum(n),), generator=g)
    x = (3 * net.text[y] + torch.randn(sum(n), d, generator=g)).to(dtype)
    own, C = rows(n), len(sizes)
    train, val, test = (
        tuple(r[s] for r in own) for s in (slice(10, None), slice(0, 4), slice(4, 10))
    )
    if groups is not None and a is None:
        a = torch.randint(0, groups.A, (sum(n),), generator=g)
        x[:, 0] = a
    return model, Task(
        "toy towers",
        net,
        x,
        y,
        train[:C],
        val[:C],
        test[:C],
        K=classes,
        a=a,
        groups=groups,
        guests=tuple(zip(train[C:], val[C:], test[C:])),
        batch=batch,
    )
