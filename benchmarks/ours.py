"""FedAvg in fedlib, timed inside a real run: from the end of round 0 to the end of the
last, no evaluation between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import torch

import fedlib
from fedlib.methods.base.fedavg import FedAvg


@dataclass(frozen=True)
class Ticking(FedAvg):
    """FedAvg that looks at the clock whenever a round is aggregated."""

    ticks: list = field(default_factory=list, compare=False)

    def aggregate(self, server, up, r):
        out = super().aggregate(server, up, r)
        self.ticks.append(time.process_time())
        return out


def ours(case, how, **more):
    """f(n) -> CPU seconds of n rounds."""

    def f(n):
        method = Ticking(case.task, lr=case.lr)
        draw = case.cohorts()
        fedlib.run(
            method,
            rounds=n + 1,
            cohort=lambda t: next(draw),
            every=n + 2,
            upto=n + 1,
            how=how,
            device="cpu",
            progress=False,
            splits=("test",),
            **more,
        )
        return method.ticks[-1] - method.ticks[0]

    return f


def after_one(case, how, clients):
    """The global model after one round of the first clients, one full batch each: what
    every other loop must give, too.
    """
    task = replace(case.task, batch=10**6)
    return fedlib.run(
        FedAvg(task, lr=case.lr),
        rounds=1,
        every=2,
        cohort=lambda t: torch.arange(clients),
        upto=1,
        how=how,
        device="cpu",
        progress=False,
        splits=("test",),
    ).state["server"]["w"]
