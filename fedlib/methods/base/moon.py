"""Features that go with the global model's, and away from the client's old ones."""

from dataclasses import dataclass
from math import inf

import torch.nn.functional as F

from ...core.method import Card, hp
from ..personal.fedper import two_parts
from .fedavg import FedAvg


@dataclass(frozen=True)
class MOON(FedAvg):
    """FedAvg whose clients compare features: like the global model's, unlike their own
    of last time.

    Li, He, Song. Model-Contrastive Federated Learning. CVPR 2021, Algorithm 1. For a
    row x: z its features by the model in training, z_w by the model w as downloaded,
    z_i by the model w_i that the client last trained (before that: the common start).

        l(x) = log(1 + exp((cos(z, z_i) - cos(z, z_w)) / tau))             eq:moon-pull
        w_i <- local training on  F_i + mu mean_x l(x),  from w            eq:moon-loss

    l is the paper's -log of e^(cos(z, z_w) / tau) over the sum of that and
    e^(cos(z, z_i) / tau), without its overflow. z_w and z_i are constants, computed as
    in evaluation. Only z moves, so the head learns from F_i alone. Round 0 is FedAvg's,
    as w = w_i; an absent client keeps its w_i, however old. mu = 0 is FedAvg. Features
    are those before the head; the paper puts a projection of two layers between them.
    Costs two more forward passes a batch.
    """

    card = Card("moon2021", "FedAvg with features like the global model's")

    mu: float = hp(
        1.0, "weight of the comparison", "the paper's grid", grid=(0.1, 1, 5, 10)
    )
    tau: float = hp(
        0.5, "temperature: a small one tells near from far", "the paper", (1e-6, inf)
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task is not None:
            two_parts(self, self.task.shapes, "compares features, not raw rows")

    def client(self, w, shard):
        return {"w": w}

    def local(self, down, mine, shard):
        loss = self.contrastive(down["w"], mine["w"]) if self.mu else self.loss
        w = self.fit(loss, down["w"], shard)
        return {"w": w}, {"w": w, "n": shard.n}

    def contrastive(self, sent, last):
        """The loss (v, batch) -> [] beside the models as sent and as last trained."""
        feat, cos = self.task.feat, F.cosine_similarity

        def loss(v, b):
            z = feat(v, b.x, b)  # [B, D]
            apart = cos(z, feat(last, b.x)) - cos(z, feat(sent, b.x))
            pull = b.avg(F.softplus(apart / self.tau))  # eq:moon-pull
            return self.loss(v, b) + self.mu * pull  # eq:moon-loss

        return loss
