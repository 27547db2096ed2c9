"""A pull towards the global model."""

from dataclasses import dataclass

from ...core.method import Card, hp
from .fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients may not stray far from the model they were sent.

    Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith. Federated Optimization in Heterogeneous
    Networks. MLSys 2020, Algorithm 2.

        w_i ~ argmin_v  F_i(v) + mu/2 |v - w|^2                               eq:fedprox

    mu = 0 is FedAvg; a large mu freezes the model. On F_i(v) = |v - b_i|^2 / 2 the
    exact minimum is (b_i + mu w) / (1 + mu). The pull acts on parameters, not buffers.
    """

    card = Card("li2020fedprox", "FedAvg with a pull towards the global model")

    mu: float = hp(
        0.1, "pull towards the global model", "the paper", grid=(0.001, 0.01, 0.1, 1)
    )

    def local(self, down, mine, shard):
        pull = self.mu, down["w"]
        w = self.fit(self.loss, down["w"], shard, pull=pull)  # eq:fedprox
        return mine, {"w": w, "n": shard.n}
