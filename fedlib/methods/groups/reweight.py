"""Row weights under which group and outcome are independent."""

from dataclasses import dataclass

from ...core.method import Card
from ...core.tree import onehot
from ..base.fedavg import FedAvg


def cells(task, b):
    """Group and outcome of each row as a one-hot [B, A, 2]; 0 for padding."""
    return task.groups.cells(onehot(b.y, task.K, b.x, b.m), a=b.a)


def weighted(task, v):
    """The mean loss (w, batch) -> [] with row weights v_ay by group and outcome."""
    return lambda w, b: b.avg(v[b.a, task.groups.outcome(b.y)] * task.each(w, b))


@dataclass(frozen=True)
class Reweight(FedAvg):
    """FedAvg with row weights under which group and outcome are independent.

    Kamiran, Calders. Data Preprocessing Techniques for Classification without
    Discrimination. Knowledge and Information Systems 33(1), 2012, Algorithm 3
    (reweighing), at every client on its own training rows: n in all, n_a in group a,
    n_y with outcome y, n_ay with both.

        v_ay = n_a n_y / (n n_ay)                                       eq:reweight
        F_i(w) = 1/n sum_s v_{a_s y_s} loss_s(w)                        eq:reweight-loss

    Where no cell is empty the weights of a client sum to n. A client with one group or
    one outcome only, as where every client holds one label, has weights 1: FedAvg. Its
    weight in the average stays n_i / n.
    """

    card = Card("kamiran2012", "row weights that make group and outcome independent")
    needs_groups = True

    def local(self, down, mine, shard):
        w = self.fit(self.fair(shard), down["w"], shard)
        return mine, {"w": w, "n": shard.n}

    def fair(self, shard):
        """The loss on which this client descends."""
        n_ay = cells(self.task, shard.all()).sum(0)  # [A, 2]
        n, n_a, n_y = n_ay.sum(), n_ay.sum(1, keepdim=True), n_ay.sum(0)
        v = n_a * n_y / (n * n_ay).clamp(min=1)  # eq:reweight
        return weighted(self.task, v)  # eq:reweight-loss
