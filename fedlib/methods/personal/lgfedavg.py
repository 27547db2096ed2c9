"""A shared head and a body of one's own."""

from dataclasses import dataclass

from ...core.method import Card
from .fedper import FedPer, two_parts


@dataclass(frozen=True)
class LGFedAvg(FedPer):
    """Average the head of the network; the body never leaves the device.

    FedPer the other way round. Liang, Liu, Ziyin, Allen, Auerbach, Brent,
    Salakhutdinov, Morency. Think Locally, Act Globally: Federated Learning with Local
    and Global Representations. arXiv 2001.01523, 2020.

        min  sum_i n_i / n  F_i(theta_i, h)                            eq:lg-fedavg
        h <- sum_i n_i / n  h_i                                        eq:lg-fedavg-head

    over the head h and the bodies theta_1 .. theta_C. Body and head are trained
    together, then only h is averaged, and every client receives it, trained or not.
    Running statistics of batch norm are part of the body. The authors' code starts from
    a model trained by FedAvg, takes the plain average, and shares the last two layers
    on CIFAR-10. Here, as in the comparison of FedAS (CVPR 2024), training starts from
    scratch and the head is the last layer.
    """

    card = Card("lgfedavg2020", "a shared head, averaged; a body that stays")

    def server(self, w, r):
        return {"w": two_parts(self, w, "keeps the body of a network at home")[1]}

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard)  # eq:lg-fedavg
        # averaged: eq:lg-fedavg-head
        return {"w": w}, {"w": self.task.split(w)[1], "n": shard.n}
