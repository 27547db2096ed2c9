"""Two models per client: one for all, one of one's own."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class Ditto(FedAvg):
    """FedAvg, and beside it a personal model per client that is tied to the global one.

    Li, Hu, Beirami, Smith. Ditto: Fair and Robust Federated Learning Through
    Personalization. ICML 2021, Algorithm 1.

        v_i = argmin_v  F_i(v) + lam/2 |v - w_t|^2                         eq:ditto
        v_i <- v_i - lr (grad F_i(v_i) + lam (v_i - w_t))                  eq:ditto-step

    The anchor w_t is the model as downloaded, not as trained in this round. v_i
    stays on the device for ever and continues from round to round; the server runs
    plain FedAvg and never notices. lam = 0 is purely local training, lam -> infinity
    the global model. On F_i(v) = |v - b_i|^2 / 2 the personal model is
    (b_i + lam w) / (1 + lam). Stable while lr (lam + curvature of F_i) < 2.
    """

    lam: float = hp(
        1.0, "tie to the global model", "released scripts", grid=(0.1, 1.0, 2.0)
    )
    own: int = hp(0, "passes of its own; 0: the same batches", "the paper's s steps")

    card = Card("ditto2021", "FedAvg, and a personal model tied to it")
    post = ("personal",)

    def plans(self):
        return super().plans() | ({"own": self.plan(self.own)} if self.own else {})

    def client(self, w, shard):
        return {"v": w}

    def local(self, down, mine, shard):
        batches, pull = shard.on("own") if self.own else shard, (self.lam, down["w"])
        v = self.fit(self.loss, mine["v"], batches, pull=pull)  # eq:ditto-step
        _, up = super().local(down, mine, shard)
        return {"v": v}, up

    def views(self, down, mine, shard):
        return super().views(down, mine, shard) | {"personal": self.task.net(mine["v"])}
