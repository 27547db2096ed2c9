"""Clients that report what averaging costs them: the base of GA and FAA."""

from dataclasses import dataclass

import torch

from ...core.method import hp
from ...core.tree import normalize
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class Gapped(FedAvg):
    """What GA and FAA share: clients report what averaging costs; one weight for each.

        G_i = cost_i(w) - cost_i(w_i)    w_i: client i's model, w: the average    eq:gap

    cost_i is the loss on client i's validation rows, or 1 minus its accuracy there.
    Positive: averaging hurt this client. The gap of the average downloaded in round t,
    against the model uploaded in round t - 1, travels with the upload of round t; in
    round 0 it is 0. Weights start at 1/C. All clients take part.
    """

    metric: str = hp("loss", "what a gap is measured in", "ours", ("loss", "accuracy"))

    who = "all"
    needs_val = True

    def cost(self, w, shard):
        """Loss, or 1 - accuracy, of model w on the client's validation rows, []."""
        b = shard.all("val")
        if self.metric == "loss":
            return self.loss(w, b)
        return 1 - self.accuracy(self.task.net(w), b)

    def server(self, w, r):
        a = normalize(self.task.x.new_ones(self.task.C))
        return {"w": w, "a": a, "smooth": torch.zeros_like(a)}

    def weighed(self, server, up, a, G):
        """The next state, from weights a [C] and gaps G [C] to remember."""
        w, log = self.combine(server["w"], up["w"], a), {"weight": a, "gap": up["gap"]}
        return {"w": w, "a": a, "smooth": G, "log": log}

    def client(self, w, shard):
        return {"cost": shard.n * 0}

    def local(self, down, mine, shard):
        last = mine["cost"]  # of the model uploaded in the round before: eq:gap
        gap = (self.cost(down["w"], shard) - last) * (shard.t > 0)
        _, up = super().local(down, mine, shard)
        return {"cost": self.cost(up["w"], shard)}, up | {"gap": gap}
