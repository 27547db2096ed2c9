"""A direction that helps every client."""

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import normalize
from ...pieces.simplex import project_box
from ..base.fedavg import FedAvg


def min_norm(K, lo, hi, steps=200, rho=2.0, relax=1.6):
    """argmin of p' K p over {lo <= p <= hi, sum p = 1}; K [M, M], bounds [M].

    Douglas-Rachford splitting (Boyd et al., Distributed Optimization and Statistical
    Learning via the Alternating Direction Method of Multipliers, 2011, sections 3.4.3
    and 5.2). Two easy problems take turns: the nearest point z of the box, a clamp; and
    on the plane sum p = 1 the best point near y, A y + b. The answer lies in the set.
    """
    I = torch.eye(len(K), dtype=K.dtype, device=K.device)
    R = torch.linalg.inv(2 * K + rho * I)
    b = normalize(R.sum(1))
    A = rho * (R - torch.outer(b, R.sum(1)))
    B, V, c = relax * (2 * A - I), I - relax * A, relax * b
    v = (lo + hi) / 2
    for _ in range(steps):  # v <- v + relax (A (2 z - v) + b - z)
        z = v.clamp(lo, hi)
        v = torch.addmv(torch.addmv(c, B, z), V, v)
    return project_box(v.clamp(lo, hi), lo, hi)


@dataclass(frozen=True)
class FedMGDA(FedAvg):
    """Weighs unit updates so that their sum is as short as possible: it helps everyone.

    Hu, Shaloudegi, Zhang, Yu. Federated Learning Meets Multi-Objective Optimization.
    IEEE Transactions on Network Science and Engineering 9(4), 2022 (FedMGDA+).

        u_i = g_i / |g_i|,   g_i = w - w_i                            eq:fedmgda-unit
        p   = argmin |sum_i p_i u_i|^2,  |p_i - n_i / n| <= epsilon   eq:fedmgda-weights
        w  <- w - eta sum_i p_i u_i                                   eq:fedmgda-step

    p lies in the simplex. epsilon = 0 keeps p_i = n_i / n. epsilon = 1 frees p: then d
    = sum_i p_i u_i has <u_i, d> >= |d|^2 for every i, so that no client gets worse, to
    first order. A step is at most eta long, whatever the updates: with eta = lr, the
    released choice, R rounds move the model by at most R lr.
    """

    card = Card("hu2022fedmgda", "the shortest convex combination of unit updates")
    ruled = False

    epsilon: float = hp(
        0.1, "|p_i - n_i / n| at most", "FedFV", (0, 1), grid=(0.01, 0.05, 0.1, 0.5, 1)
    )
    server_lr: float = hp(
        1.0, "eta, the longest step", "FLGo; easyFL: lr", grid=(1, 0.1, 0.01)
    )

    def aggregate(self, server, up, r):
        w, n = server["w"], self.weights(up)
        g = self.progress(w, up["w"])  # [M, P]
        u = g / g.norm(dim=1, keepdim=True).clamp(min=1e-12)  # eq:fedmgda-unit
        lo, hi = (n - self.epsilon).clamp(min=0), (n + self.epsilon).clamp(max=1)
        p = min_norm(u @ u.T, lo, hi)  # eq:fedmgda-weights
        w = self.move(w, up["w"], self.server_lr * p @ u, p)  # eq:fedmgda-step
        return {"w": w, "log": {"weight": p}}
