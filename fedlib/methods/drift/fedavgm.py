"""Momentum at the server."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ...core.tree import add
from ..base.fedavg import FedAvg
from .corrections import mean_update, stepped, zeros


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """FedAvg whose server keeps going where the clients sent it before.

    Hsu, Qi, Brown. Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification. arXiv:1909.06335, 2019.

        d  = sum_i p_i w_i - w                                      eq:server-update
        v <- beta v + d                                           eq:fedavgm-velocity
        w <- w + server_lr v                                          eq:fedavgm-step

    beta = 0 and server_lr = 1 is FedAvg. While d stays the same v grows to
    d / (1 - beta), so the best step of the clients is smaller. The momentum is of
    parameters; buffers are averaged.
    """

    card = Card("hsu2019", "FedAvg with momentum at the server")

    beta: float = hp(
        0.9, "momentum of v", "the paper", (0, 1), grid=(0.7, 0.9, 0.97, 0.99, 0.997)
    )
    server_lr: float = hp(1.0, "step along v", "the paper", grid=(0.1, 0.3, 1.0))

    def server(self, w, r):
        return {"w": w, "v": zeros(w, self.task.buffers)}

    def aggregate(self, server, up, r):
        w, p = server["w"], self.weights(up)
        d, buffers = mean_update(self, w, up["w"], p)  # eq:server-update
        v = add(d, server["v"], self.beta)  # eq:fedavgm-velocity
        w = stepped(w, v, self.server_lr, buffers)  # eq:fedavgm-step
        return {"w": w, "v": v, "log": {"weight": p}}
