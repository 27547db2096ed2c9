"""A server that remembers: it keeps the global models of some rounds."""

import math
from dataclasses import dataclass

import torch

from ...core.method import hp
from ...core.random import fold, tag, uniform
from ...core.tree import tmap
from .calibrated import Calibrated


@dataclass(frozen=True)
class Collecting(Calibrated):
    """Keeps c global models as checkpoints in its state.

    "trail": the models, every leaf [c, ...]; "window" [c]: their rounds; "met" [c]: was
    there a model in that round? With an empty cohort there was none.

    `collect` "continuous" takes the first `count` rounds, "discrete" as many at random,
    both before T0; with `rewind` from a rehearsal of all T rounds, after which the
    server goes back to round T0 (give the run T + T - T0 rounds).
    """

    collect: str = hp(
        "continuous", "which rounds", "EquFL, Table VIII", ("continuous", "discrete")
    )
    count: int = hp(0, "how many; 0: all before T0", "EquFL: all, or 30")
    rewind: bool = hp(False, "collect from a rehearsal of all rounds", "a choice")

    def phases(self, R):
        if not self.rewind:
            return super().phases(R)
        T = math.floor(R / (1 + self.rho) + 1e-9)  # the run has T + T - T0 rounds
        return T, super().phases(T)[0]

    def window(self, r):
        """The rounds that are collected [c], ascending."""
        first, T0 = self.phases(r.R)
        last = first if self.rewind else T0
        count = min(self.count or T0, last)
        if self.collect == "continuous":
            return torch.arange(count)
        order = uniform(fold(r.key, tag("window")), (last,)).argsort()
        return order[:count].sort().values.cpu()

    def server(self, w, r):
        state, window = super().server(w, r), self.window(r)
        c = len(window)
        if c < 2 and self.phases(r.R)[0] < r.R:
            raise ValueError(
                f"{type(self).__name__} with rho = {self.rho} collects {c} models in "
                f"{r.R} rounds, and needs two: give a smaller rho or more rounds"
            )
        trail = tmap(lambda x: x.new_zeros(c, *x.shape), state["in"]["w"])
        met = torch.zeros(c, dtype=torch.bool)
        return state | {"trail": trail, "window": window, "met": met}

    def aggregate(self, server, up, r):
        first, T0 = self.phases(r.R)
        now = server["window"] == r.t
        i = now.nonzero()[:, 0]  # this round's place in the trail, or none

        def put(trail, w):
            return trail.index_copy(0, i.to(w.device), w.expand(len(i), *w.shape))

        trail = tmap(put, server["trail"], server["in"]["w"])
        server = server | {"trail": trail, "met": server["met"] | now}
        if self.rewind and r.t == T0:
            server = server | {"back": server["in"]}
        out = super().aggregate(server, up, r)
        goes_back = "back" in out and r.t == first - 1
        return out | {"in": out["back"]} if goes_back else out
