"""FedAvg by fedlib.run on the device, timed from the end of round 0 to the end of the
last; no evaluation between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

import fedlib
from fedlib.core.tree import pick
from fedlib.methods.base.fedavg import FedAvg

from ..growth.seeds import Stacked, copies
from .setups import now


class Ticks:
    """Looks at the clock whenever a round is aggregated."""

    def aggregate(self, server, up, r):
        out = super().aggregate(server, up, r)
        self.ticks.append(now(self.task.x.device))
        return out


@dataclass(frozen=True)
class One(Ticks, FedAvg):
    ticks: list = field(default_factory=list, compare=False)


@dataclass(frozen=True)
class Many(Ticks, Stacked):
    ticks: list = field(default_factory=list, compare=False)


def rounds(setup, how, S=1):
    """(f, once): f(n) -> seconds of n rounds of S seeds;
    once() -> the (first seed's) model after round 0.
    """
    task = setup.task if S == 1 else copies(setup.task, S)
    make = (
        (lambda: One(task, lr=setup.lr))
        if S == 1
        else (lambda: Many(task, lr=setup.lr, seeds=S))
    )
    cohort = lambda t: torch.cat([s * setup.task.C + setup.ids(t) for s in range(S)])
    more = dict(
        cohort=cohort,
        how=how,
        device=str(setup.device),
        progress=False,
        splits=("test",),
    )

    def f(n):
        method = make()
        fedlib.run(method, rounds=n + 2, every=n + 3, upto=n + 1, **more)
        return method.ticks[-1] - method.ticks[0]

    def once():
        w = fedlib.run(make(), rounds=2, every=3, upto=1, **more).state["server"]["w"]
        return w if S == 1 else pick(w, 0)

    return f, once
