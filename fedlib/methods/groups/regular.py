"""A client's loss with a penalty for bias."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ...pieces import surrogates
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class Regular(FedAvg):
    """FedAvg whose clients add a bias penalty on their own mini-batch to the loss.

        F_i(w) = 1/B sum_s loss_s(w) + mu bias(w; batch)                      eq:regular

    A rival of EquFL, in its Table IX. bias: the surrogate of the target metric with the
    batch's own labels, `surrogates.penalty`. A batch in which a cell that it needs is
    empty pays nothing: a client with one label trains as in FedAvg, unless the target
    is CON. mu = 0 is FedAvg.
    """

    card = Card("equfl", "a bias penalty in every client's loss")
    needs_groups = True

    mu: float = hp(
        1.0, "weight of the penalty; 0: FedAvg", "a choice", grid=(0.1, 1, 10)
    )
    target: str = hp(
        "EO", "whose surrogate is added", "EquFL, Table IX", ("EO", "DP", "CAL", "CON")
    )

    def local(self, down, mine, shard):
        bias = lambda w, b: surrogates.penalty(self.target, self.task, w, b)
        loss = lambda w, b: self.loss(w, b) + self.mu * bias(w, b)  # eq:regular
        return mine, {"w": self.fit(loss, down["w"], shard), "n": shard.n}
