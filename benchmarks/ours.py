"""A method of fedlib, timed inside a real run: from the end of round 0 to the end of
the last, no evaluation between.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata

import torch

import fedlib
from fedlib.methods.base.fedavg import FedAvg


@cache
def ticking(method):
    """The class of a method that looks at the clock whenever a round is aggregated."""

    @dataclass(frozen=True)
    class Ticking(method):
        ticks: list = field(default_factory=list, compare=False)

        def aggregate(self, server, up, r):
            out = super().aggregate(server, up, r)
            self.ticks.append(time.process_time())
            return out

    return Ticking


def ours(case, how=None, method=FedAvg, hp=None, **more):
    """f(n) -> CPU seconds of n rounds; hp: values of the method's hyperparameters."""

    def f(n):
        timed = ticking(method)(case.task, lr=case.lr, **hp or {})
        draw = case.cohorts()
        fedlib.run(
            timed,
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
        return timed.ticks[-1] - timed.ticks[0]

    return f


def after(case, how, clients):
    """The global model after one round of the first clients, one full batch each: what
    every other loop must give, too.
    """
    full = FedAvg(replace(case.task, batch=10**6), lr=case.lr)
    return state(full, how, clients, 1)["server"]["w"]


def state(method, how, clients, rounds):
    """What server and clients hold after some rounds of the first clients."""
    return fedlib.run(
        method,
        rounds=rounds,
        every=rounds + 1,
        cohort=lambda t: torch.arange(clients),
        upto=rounds,
        how=how,
        device="cpu",
        progress=False,
        splits=("test",),
    ).state


def version():
    return metadata.version("fedlib")
