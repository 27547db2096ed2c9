"""Adaptive steps at the server: the mean update stands where a gradient would."""

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import tmap
from ..base.fedavg import FedAvg
from .corrections import mean_update, stepped, zeros


@dataclass(frozen=True)
class FedAdagrad(FedAvg):
    """A coordinate's step is the shorter the more it has moved so far.

    Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan. Adaptive Federated
    Optimization. ICLR 2021, Algorithm 2. Coordinate by coordinate:

        d  = sum_i p_i w_i - w                                        eq:server-update
        m <- beta1 m + (1 - beta1) d                                  eq:fedopt-first
        v <- v + d^2                                                   eq:fedadagrad
        w <- w + server_lr m / (sqrt(v) + tau)                         eq:fedopt-step

    m starts at 0 and v at tau^2; there is no correction for that. beta1 = 0 and a
    large tau give FedAvg with steps of server_lr / (2 tau) at first. A step's length
    hardly depends on that of d: server_lr is in units of the weights. The paper's
    algorithm has p_i = 1/M; here, as in FedAvg, p_i = n_i / n. Buffers are averaged.
    """

    card = Card("reddi2021", "FedAvg whose server steps by Adagrad")

    server_lr: float = hp(
        0.03, "step size", "a choice", grid=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    )
    beta1: float = hp(0.0, "momentum of the server", "the paper", (0, 1))
    tau: float = hp(
        1e-3, "added to the root of v", "the paper", grid=(1e-4, 1e-3, 1e-2, 1e-1)
    )

    def __post_init__(self):
        super().__post_init__()
        if not self.tau > 0:
            name = type(self).__name__
            raise ValueError(f"{name}.tau = 0: steps are divided by it; give tau > 0")

    def server(self, w, r):
        m = zeros(w, self.task.buffers)
        return {"w": w, "m": m, "v": tmap(lambda x: x + self.tau**2, m)}

    def second(self, v, d):
        """The next second moment v of a tensor of updates d."""
        return v + d * d  # eq:fedadagrad

    def aggregate(self, server, up, r):
        w, p, beta1, tau = server["w"], self.weights(up), self.beta1, self.tau
        d, buffers = mean_update(self, w, up["w"], p)  # eq:server-update
        first = lambda m, d: beta1 * m + (1 - beta1) * d  # eq:fedopt-first
        m = tmap(first, server["m"], d)
        v = tmap(self.second, server["v"], d)
        step = tmap(lambda m, v: m / (v.sqrt() + tau), m, v)
        w = stepped(w, step, self.server_lr, buffers)  # eq:fedopt-step
        return {"w": w, "m": m, "v": v, "log": {"weight": p}}


@dataclass(frozen=True)
class FedAdam(FedAdagrad):
    """A coordinate's step is measured by how much it moved of late.

    As FedAdagrad, with beta1 = 0.9 and

        v <- beta2 v + (1 - beta2) d^2                                    eq:fedadam
    """

    card = FedAdagrad.card._replace(line="FedAvg whose server steps by Adam")

    beta1: float = hp(0.9, "momentum of the server", "the paper", (0, 1))
    beta2: float = hp(0.99, "memory of v", "the paper", (0, 1))

    def second(self, v, d):
        return self.beta2 * v + (1 - self.beta2) * d * d  # eq:fedadam


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam whose memory changes by no more than (1 - beta2) d^2 in a round.

        v <- v - (1 - beta2) d^2 sign(v - d^2)                            eq:fedyogi

    After a large update FedAdam forgets by a share of v, FedYogi by a share of d^2.
    """

    card = FedAdagrad.card._replace(line="FedAvg whose server steps by Yogi")

    def second(self, v, d):
        return v - (1 - self.beta2) * d * d * torch.sign(v - d * d)  # eq:fedyogi
