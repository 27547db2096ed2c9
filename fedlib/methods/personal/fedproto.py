"""Private models that agree on where each class lies."""

from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F

from ...core.method import Card, Method, hp
from ...core.tree import broadcast, leaves, onehot, subset
from .fedper import class_mean, two_parts


@dataclass(frozen=True)
class FedProto(Method):
    """Clients exchange the mean feature of each class only; every model is private.

    Tan, Long, Liu, Zhou, Lu, Jiang, Zhang. FedProto: Federated Prototype Learning
    across Heterogeneous Clients. AAAI 2022. With features z = f(theta_i, x) [D], global
    prototypes c_k [D], and H the clients online that hold class k:

        loss_i = CE + lam mean over rows of |z - c_y|^2 / D           eq:fedproto-loss
        c_ik   = mean of z over all rows of class k                   eq:fedproto-own
        c_k    = 1/|H| sum over H of c_ik                             eq:fedproto-server
        y(x)   = argmin_k |f(theta_i, x) - c_k|^2                     eq:fedproto-view

    The rows of c_ik are those of all batches, each with z at that step of training: one
    forward more. The table is replaced every round, so a class that only absent clients
    hold is lost for that round: nobody is pulled towards it and nobody predicts it.
    Before the first aggregation no row is right. The paper weighs c_ik by class counts
    and divides by |H| once more, which would shrink prototypes; the plain mean, means
    over moving features, and the mean over D follow the authors' code and PFLlib,
    `candidates` = "own" the authors' prediction. View "prototype" uses the newest
    table, for absent clients too; "personal" is the own head.
    """

    lam: float = hp(
        1.0, "pull towards the prototypes; 0: local", "the authors", grid=(0.1, 1.0)
    )
    candidates: str = hp("all", "that may be predicted", "PFLlib", ("all", "own"))

    card = Card("fedproto2022", "private models; only class means are shared")
    ruled = False
    post = ("personal",)
    needs_features = True

    def server(self, w, r):
        _, head = two_parts(self, w, "compares features, not raw rows")
        held = leaves(head)[0].new_zeros(self.task.K)  # by how many clients
        return {"proto": held.new_zeros(len(held), self.task.network.D), "held": held}

    def send(self, server, ids):
        return broadcast(subset(server, ("proto", "held")), ids)

    def client(self, w, shard):
        return {"w": w}

    def local(self, down, mine, shard):
        proto, held = down["proto"], (down["held"] > 0).to(down["proto"].dtype)
        total, count = torch.zeros_like(proto), torch.zeros_like(held)

        def loss(w, b):
            z = self.task.feat(w, b.x, b)  # [B, D]
            apart = held[b.y] * (z - proto[b.y]).square().mean(1)  # [B]
            ce = F.cross_entropy(self.task.network.out(w, z), b.y, reduction="none")
            return b.avg(ce + self.lam * apart)  # eq:fedproto-loss

        direction = self.step(loss)

        def step(w, b):
            nonlocal total, count
            y = onehot(b.y, self.task.K, proto, b.m)  # [B, K]; padding is in no class
            total = total + y.T @ self.task.feat(w, b.x, b)
            count = count + y.sum(0)
            return direction(w, b)

        w = self.descend(step, mine["w"], shard)
        own = total / count.clamp(min=1)[:, None]  # eq:fedproto-own
        return {"w": w}, {"proto": own, "count": count}

    def aggregate(self, server, up, r):
        has = (up["count"] > 0).to(up["proto"].dtype)  # [M, K]
        proto, held = class_mean(has, up["proto"])  # eq:fedproto-server
        return {"proto": proto, "held": held, "log": {"held": held}}

    def views(self, down, mine, shard):
        def prototype(x):
            z, c, may = self.task.feat(mine["w"], x), down["proto"], down["held"] > 0
            if self.candidates == "own":
                b = shard.all()
                may = may & (onehot(b.y, self.task.K, z, b.m).sum(0) > 0)
            z2, c2 = z.square().sum(1, keepdim=True), c.square().sum(1)
            distance = z2 - 2 * z @ c.T + c2  # [n, K]
            return (-distance).masked_fill(~may, -inf)  # eq:fedproto-view

        return {"prototype": prototype, "personal": self.task.net(mine["w"])}
