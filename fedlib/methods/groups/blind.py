"""A control: training that never sees the sensitive column."""

from dataclasses import dataclass

import torch

from ...core.method import Card
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class Blind(FedAvg):
    """FedAvg in which the column that holds the group's code is 1/2 for everybody.

    "Fairness through unawareness", as Dwork et al. call it, who reject it: other
    columns tell the group, too. With x_s the column of the group's code,

        x_s <- 1/2                                                        eq:blind

    in training and in evaluation. What bias is left comes by indirect paths: no row in
    which the columns are drawn independently of the group can show it. It sends what
    FedAvg sends. Where no column holds the code, as where the group follows from the
    label, it is FedAvg.
    """

    card = Card("dwork2012", "FedAvg without the sensitive column (a control)")
    needs_groups = True

    def hidden(self, x):
        """Rows x [n, ...] without their group."""
        column = self.task.groups.column
        if column is None:
            return x
        here = torch.arange(x.shape[1], device=x.device) == column
        return torch.where(here, 0.5, x)  # eq:blind

    def local(self, down, mine, shard):
        blind = lambda b: b._replace(x=self.hidden(b.x))
        return super().local(
            down, mine, shard.altered(lambda batches: map(blind, batches))
        )

    def views(self, down, mine, shard):
        net = self.task.net(down["w"])
        return {"global": lambda x: net(self.hidden(x))}
