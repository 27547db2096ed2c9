"""Updates that no longer pull against each other."""

import math
from dataclasses import dataclass

import torch

from ...core.method import Card, hp, uniform_weights
from ...core.tree import leaves, normalize, without
from .qfedavg import ByLoss

TINY = 1e-30  # in place of the squared length of an update that is zero


@dataclass(frozen=True)
class FedFV(ByLoss):
    """Takes out of each update what points against another client's, then averages.

    Wang, Fan, Qi, Wen, Wang, Yu. Federated Learning with Fair Averaging. IJCAI 2021,
    Algorithms 1 to 3.

    g_i = w - w_i, clients in ascending order of F_i, the loss of the model as sent on
    all training rows. From place ceil((M - 1) (1 - alpha)) on, counted from 0, clients
    keep P_i = g_i (none if alpha = 0). The others start there and are projected against
    all other clients in turn:

        for j = 0 .. M-1, j != i:
            P_i <- P_i - min(0, <P_i, g_j>) g_j / |g_j|^2    eq:fedfv-internal
        g = 1/M sum_i P_i                                    eq:fedfv-mean
        for k = tau .. 1, s = sum of last updates, of clients last seen in round t - k,
            that point against g:
            g <- g - min(0, <g, s>) s / |s|^2                eq:fedfv-external
        w <- w - |1/M sum_i g_i| g / |g|                     eq:fedfv-step

    Without conflicts, or with alpha = 1 and tau = 0: the uniform average. Every P_i is
    a combination of the g_j, so the loop runs on coefficients A [M, M], P = A G, and on
    the products G G'. With tau > 0 the server keeps C updates.
    """

    card = Card("wang2021fedfv", "updates without what conflicts with another client's")
    ruled = False

    alpha: float = hp(
        0.1, "share kept", "FedFV", (0, 1), grid=(0, 0.1, 0.2, 1 / 3, 0.5, 2 / 3)
    )
    tau: int = hp(
        0, "rounds that an absent update counts", "FedFV's records", grid=(0, 1, 3, 10)
    )

    def server(self, w, r):
        if not self.tau:
            return {"w": w}
        P = sum(x.numel() for x in leaves(without(w, self.task.buffers)))
        C, x = self.task.C, self.task.x
        seen = torch.full((C,), -1, device=x.device)
        return {"w": w, "last": x.new_zeros(C, P), "seen": seen}

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"cid": shard.cid}

    def aggregate(self, server, up, r):
        w, G = server["w"], self.progress(server["w"], up["w"])  # [M, P]
        p, kept = self.agree(G @ G.T, up["loss"]), {}
        g = p @ G  # eq:fedfv-mean
        if self.tau:
            last = server["last"].index_copy(0, up["cid"], G)
            seen = server["seen"].index_fill(0, up["cid"], r.t)
            kept = {"last": last, "seen": seen}
            for k in range(self.tau, 0, -1) if r.t >= self.tau else ():
                against = (seen == r.t - k) & (last @ g < 0)  # [C]
                s = against.to(g.dtype) @ last
                conflict = (g @ s).clamp(max=0)
                g = g - conflict / (s @ s).clamp(min=TINY) * s  # eq:fedfv-external
        g = g * (G.mean(0).norm() / g.norm().clamp(min=TINY))  # eq:fedfv-step
        w = self.move(w, up["w"], g, uniform_weights(p))
        return kept | {"w": w, "log": {"weight": normalize(p)}}

    def agree(self, K, loss):
        """The coefficients [M] of the mean of the P_i; K = G G' [M, M], loss [M]."""
        M, order = len(loss), loss.argsort(stable=True)
        K, A = K[order][:, order], torch.eye(M, dtype=K.dtype, device=K.device)
        # which P_i is projected against g_j: all but those from place m on
        m = math.ceil((M - 1) * (1 - self.alpha) - 1e-9) if self.alpha else M
        project = 1 - A
        project[m:] = 0
        project = project / K.diagonal().clamp(min=TINY)
        for j in range(M):
            A[:, j] -= (A @ K[:, j]).clamp(max=0) * project[:, j]  # eq:fedfv-internal
        return torch.empty_like(loss).index_copy(0, order, A.mean(0))
