"""Inputs from which the group cannot be read off by a linear function."""

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import onehot
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class FLinear(FedAvg):
    """FedAvg on inputs without the differences between the groups' means.

    He, Burghardt, Lerman. A Geometric Solution to Fair Representations. AIES 2020:
    every column loses its projection on the centred protected columns, at each client.
    Where these say "is in group a", the mean of every group becomes that of all:

        d_a = mean of x over the rows of group a - mean of x over all rows
        x  <- x - (1 - tau) d_a                                               eq:flinear

    The means are over the client's training rows. With two groups that is a regression
    on the group's code. tau = 0 leaves no correlation with the group on the training
    rows, tau = 1 is FedAvg. Where a column of x holds the group's code it becomes
    constant for tau = 0; it tells a new row's group, and test rows are moved by the
    same d. A group without training rows at a client has d_a = 0, but for that column.
    Where there is no such column the group follows from the label: test rows stay as
    they are, and a client with one group only trains as in FedAvg.
    """

    card = Card("he2020geometric", "inputs without linear traces of the group")
    needs_groups = True

    tau: float = hp(
        0.0, "share of d that stays", "the paper", (0, 1), grid=(0, 0.25, 0.5, 0.75, 1)
    )

    def client(self, w, shard):
        return {"d": self.differences(shard.all())}

    def differences(self, b):
        """d_a for every group [A, ...]."""
        groups = self.task.groups
        member = onehot(b.a, groups.A, b.x, b.m)  # [B, A]
        n, sums = member.sum(0), torch.einsum("ba,b...->a...", member, b.x)
        N, total = n.sum(), sums.sum(0)
        n_a = n.view(-1, *[1] * (b.x.dim() - 1))
        d = sums / n_a.clamp(min=1) - total / N.clamp(min=1)
        d = torch.where(n_a > 0, d, 0)
        if groups.column is None:
            return d
        # the column of the group's code: known for groups without rows, too
        code = torch.arange(groups.A, dtype=d.dtype, device=d.device)
        mean = torch.where(N > 0, n @ code / N.clamp(min=1), code.mean())
        column = torch.arange(d.shape[1], device=d.device) == groups.column
        return torch.where(column, (code - mean)[:, None], d)

    def moved(self, x, a, d):
        return x - (1 - self.tau) * d[a]  # eq:flinear

    def local(self, down, mine, shard):
        fair = lambda b: b._replace(x=self.moved(b.x, b.a, mine["d"]))
        moved = shard.altered(lambda batches: map(fair, batches))
        return super().local(down, mine, moved)

    def views(self, down, mine, shard):
        net, groups = self.task.net(down["w"]), self.task.groups
        if groups.column is None:
            return {"global": net}
        group = lambda x: x[:, groups.column].round().long()
        return {"global": lambda x: net(self.moved(x, group(x), mine["d"]))}
