"""Weights from accuracy and from how often a client took part."""

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import add, normalize, scale, sub, subset, without
from ..base.fedavg import FedAvg
from ..drift.corrections import zeros


@dataclass(frozen=True)
class FedFa(FedAvg):
    """Counts clients more that do badly or took part often; momentum on both sides.

    Huang, Li, Wang, Du, Zhang, Huang. Fairness and Accuracy in Horizontal Federated
    Learning. Information Sciences 589, 2022. (Not FedFA, the feature augmentation of
    ICLR 2023.)

    acc_i: training accuracy. f_i: rounds in which client i took part, this one
    included. Sums run over the cohort.

        A_i = -log2(acc_i / sum_j acc_j + 1e-6)                       eq:fedfa-accuracy
        B_i = -log2(1 - f_i / sum_j f_j + 1e-5)                       eq:fedfa-frequency
        p_i = (1 - beta) A_i / sum_j A_j  +  beta B_i / sum_j B_j     eq:fedfa-weight
        v  <- gamma v + (1 - gamma) (w - sum_i p_i w_i)               eq:fedfa-momentum
        w  <- sum_i p_i w_i - lr v                                    eq:fedfa-step

    beta = 0: accuracy only; beta = 1: participation only; momentum = 0 and gamma = 1:
    no momenta. sign = "released" swaps the difference in eq:fedfa-momentum, as public
    code does; the server's momentum then brakes instead of speeding up.
    """

    card = Card("huang2022fedfa", "weights from accuracy and participation")

    momentum: float = hp(
        0.9, "of the clients, in a round", "FedFV's records", (0, 1), grid=(0.5, 0.9)
    )
    beta: float = hp(
        0.5, "share of participation in p", "FedFV's records", (0, 1), grid=(0.5,)
    )
    gamma: float = hp(
        0.5, "momentum of the server; 1: none", "FedFV", (0, 1), grid=(0.5, 0.9)
    )
    sign: str = hp(
        "momentum", "of the server's v", "public code", ("momentum", "released")
    )
    acc_at: str = hp(
        "after", "before or after training", "before: FLGo", ("before", "after")
    )

    def server(self, w, r):
        v, count = zeros(w, self.task.buffers), self.task.x.new_zeros(self.task.C)
        return {"w": w, "v": v, "count": count}

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        w = down["w"] if self.acc_at == "before" else up["w"]
        acc = shard.over(self.share_right, w)
        return mine, up | {"acc": acc, "cid": shard.cid}

    def aggregate(self, server, up, r):
        beta, gamma, buffers = self.beta, self.gamma, self.task.buffers
        count = server["count"].index_add(0, up["cid"], torch.ones_like(up["acc"]))
        A = -(normalize(up["acc"] + 1e-10) + 1e-6).log2()  # eq:fedfa-accuracy
        B = -(1 - normalize(count[up["cid"]]) + 1e-5).log2()  # eq:fedfa-frequency
        p = (1 - beta) * normalize(A) + beta * normalize(B)  # eq:fedfa-weight
        avg = self.combine(server["w"], up["w"], p)
        new, old = without(avg, buffers), without(server["w"], buffers)
        d = sub(old, new) if self.sign == "momentum" else sub(new, old)
        v = add(scale(server["v"], gamma), d, 1 - gamma)  # eq:fedfa-momentum
        w = add(new, v, -self.lr) | subset(avg, buffers)  # eq:fedfa-step
        return {"w": w, "v": v, "count": count, "log": {"weight": p}}
