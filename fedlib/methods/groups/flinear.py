"""Inputs from which the group cannot be read off by a linear function."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import onehot
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class FLinear(FedAvg):
    """FedAvg on inputs without the differences between the groups' means: fair linear
    representations, fitted at each client.

    He, Burghardt, Lerman. A Geometric Solution to Fair Representations. AIES 2020:
    every column loses its projection on the centred protected columns. Where these say
    "is in group a", the mean of every group becomes that of all:

        d_a = mean of x over the client's training rows of group a,
            minus that over all of them
        x  <- x - (1 - tau) d_a    eq:flinear

    With two groups that is a regression on the group's code. tau = 0 leaves no
    correlation with the group on the training rows, tau = 1 is FedAvg. Where a column
    of x holds the group's code it becomes constant for tau = 0; it tells a new row's
    group, and test rows are moved by the same d. A group without training rows at a
    client has d_a = 0, but for that column. Where there is no such column the group
    follows from the label, which a test row must not tell: test rows stay as they are,
    and a client with one group only, as where every client holds one label, trains as
    in FedAvg.
    """

    card = Card(
        "A Geometric Solution to Fair Representations",
        "He et al.",
        "AIES",
        2020,
        "he2020geometric",
        "inputs freed from linear traces of the group, client by client",
        "https://doi.org/10.1145/3375627.3375864",
    )
    needs_groups = True

    tau: float = hp(
        0.0,
        "share of the groups' differences that stays; 1 gives FedAvg",
        range=(0, 1),
        grid=(0, 0.25, 0.5, 0.75, 1),
        source="the paper sweeps its trade-off parameter; 0: full projection",
    )

    def client(self, w, shard):
        return {"d": self.differences(shard.all())}

    def differences(self, b):
        """d_a for every group [A, ...]."""
        groups = self.task.groups
        at = onehot(b.a, groups.A, b.x, b.m)  # [B, A]
        n, sums = at.sum(0), torch.einsum("ba,b...->a...", at, b.x)
        has = (n > 0).view(-1, *[1] * (b.x.dim() - 1))
        d = torch.where(
            has,
            sums / n.clamp(min=1).view(has.shape) - sums.sum(0) / n.sum().clamp(min=1),
            0,
        )
        if groups.column is None:
            return d
        code = torch.arange(groups.A, dtype=d.dtype, device=d.device)
        middle = torch.where(n.sum() > 0, n @ code / n.sum().clamp(min=1), code.mean())
        here = torch.arange(d.shape[1], device=d.device) == groups.column
        return torch.where(here, (code - middle)[:, None], d)

    def moved(self, x, a, d):
        return x - (1 - self.tau) * d[a]  # eq:flinear

    def local(self, down, mine, shard):
        move = lambda b: b._replace(x=self.moved(b.x, b.a, mine["d"]))
        return super().local(
            down, mine, shard.altered(lambda batches: map(move, batches))
        )

    def views(self, down, mine, shard):
        net, groups = self.task.net(down["w"]), self.task.groups
        if groups.column is None:
            return {"global": net}
        return {
            "global": lambda x: net(
                self.moved(x, x[:, groups.column].round().long(), mine["d"])
            )
        }
