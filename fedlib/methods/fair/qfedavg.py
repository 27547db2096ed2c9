"""Weights that grow with a power of the loss."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ...core.tree import normalize
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class ByLoss(FedAvg):
    """FedAvg whose clients send the loss of the model as sent, on their training rows.

    What q-FedAvg, AFL, FedFV and TERM share.
    """

    def local(self, down, mine, shard):
        F = shard.over(self.loss, down["w"])  # before training
        mine, up = super().local(down, mine, shard)
        return mine, up | {"loss": F}


@dataclass(frozen=True)
class QFedAvg(ByLoss):
    """Counts a client the more the higher its loss; where that is steep, short steps.

    Li, Sanjabi, Beirami, Smith. Fair Resource Allocation in Federated Learning. ICLR
    2020, Algorithm 2.

    F_i: loss of the model as sent, on all training rows of client i, plus 1e-10.
    g_i = w - w_i, L = 1 / lr.

        min_w  sum_i F_i(w)^(q+1) / (q+1)                              eq:qfed-objective
        D_i = F_i^q L g_i                                              eq:qfed-direction
        h_i = q F_i^(q-1) |L g_i|^2 + L F_i^q                          eq:qfed-curvature
        w  <- w - sum_i D_i / sum_i h_i                                eq:qfed-step

    q = 0 is the uniform average (not FedAvg); q -> infinity looks at the worst client
    only. One more number per client goes up.
    """

    card = Card("li2020qffl", "updates weighted by a power of the client's loss")
    ruled = False

    q: float = hp(
        0.1, "power of the loss", "FedFV's records", grid=(0.1, 0.2, 1, 2, 5, 15)
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.lr > 0:
            raise ValueError("QFedAvg.lr = 0: the smoothness L is 1 / lr; give lr > 0")

    def aggregate(self, server, up, r):
        w, q, L = server["w"], self.q, 1 / self.lr
        F, g = up["loss"] + 1e-10, self.progress(w, up["w"])  # [M], [M, P]
        D = (L * F**q) @ g  # eq:qfed-direction (sum)
        h = q * F ** (q - 1) * (L * g).square().sum(1) + L * F**q  # eq:qfed-curvature
        p = normalize(F**q)
        w = self.move(w, up["w"], D / h.sum(), p)  # eq:qfed-step
        return {"w": w, "log": {"weight": p}}
