"""A shared body whose features agree on class means,
and heads mixed from everybody's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.local import scan
from ...core.method import Card, hp
from ...core.server import simplex_qp
from ...core.tree import broadcast, normalize, onehot, pick, put, tmap
from .fedper import FedPer, two_parts

TINY = 1e-3  # smaller weights of a mixture are cut off (released code)
STEPS = 300  # of the solver: twenty clients to about 1e-6


@dataclass(frozen=True)
class FedPAC(FedPer):
    """Bodies are averaged; features are drawn to global class means; every online
    client gets its own mixture of all heads.

    Xu, Tong, Huang. Personalized Federated Learning with Feature Alignment and
    Classifier Collaboration. ICLR 2023, Algorithm 1, and its released code.
    z = f(theta, x) [D], c_k the global mean feature of class k, pi_ik the share of
    class k at client i, m_ik its mean feature there, both with theta as downloaded.

        w_i     <- head_epochs passes on F_i(theta, .)                  eq:fedpac-head
        theta_i <- epochs passes on F_i(., w_i) + lam mean_s |z_s - c_{y_s}|^2 / D
                                                                        eq:fedpac-pull
        h_i = (pi_ik m_ik)_k                                    [K, D]  eq:fedpac-stats
        V_i = 1/n_i sum_k (pi_ik E_k|z|^2 - pi_ik^2 |m_ik|^2)           eq:fedpac-var
        theta <- sum_i n_i / n theta_i,   c_k <- sum_i n_ik m_ik / sum_i n_ik
            m_ik after training                                         eq:fedpac-server
        a_i = argmin over the simplex of sum_j a_j^2 V_j + |h_i - sum_j a_j h_j|^2
                                                                        eq:fedpac-qp
        w_i <- sum_j a_ij w_j                                           eq:fedpac-mix

    The programs in Gram form, G = H H', D_i[p, q] = <h_i - h_p, h_i - h_q> = G_ii -
    G_iq - G_pi + G_pq: all M at once, in float64. Weights below 1e-3 become 0 and the
    rest is rescaled. All mixtures are of heads as uploaded. A class that no online
    client holds has no c_k and pulls nobody until somebody brings it back (the released
    code fails); no class pulls in round 0. An absent client keeps its head under the
    new body. A guest gets the plain mean of all clients' heads.
    V_i falls with 1 / n_i, so a_ii is often close to 1. The record's log: weight [M],
    and self_weight [M], the a_ii. Released code: head_lr 0.1, lr 0.02, momentum
    0.5, decay 5e-4; here one lr for head and body unless told.
    """

    lam: float = hp(
        1.0,
        "pull of features towards global class means",
        range=(0, math.inf),
        grid=(0.1, 1.0, 5.0),
        source="the paper and its code: 1",
    )
    head_epochs: int = hp(
        1,
        "passes for the head, before the body moves",
        range=(0, 10**6),
        source="released code",
    )
    head_lr: float = hp(
        0.0,
        "step size of the head; 0: lr",
        range=(0, math.inf),
        grid=(0.0, 0.1),
        source="a choice; released code 0.1",
    )

    card = Card(
        "Personalized Federated Learning with Feature Alignment and Classifier "
        "Collaboration",
        "Xu et al.",
        "ICLR",
        2023,
        "fedpac2023",
        "shared class means for the body, and for each client its own mixture of heads",
        "https://arxiv.org/abs/2306.11867",
    )

    def plans(self):
        return super().plans() | {
            "head": self.plan(self.head_epochs),
            "look": self.plan(1, batch=256, last="keep", shuffle=False),
        }  # 256: memory only

    def server(self, w, r):
        state, (_, head) = super().server(w, r), two_parts(self, w, "mixes heads")
        like = next(iter(head.values()))
        return state | {
            "head": broadcast(head, range(self.task.C)),
            "seen": like.new_zeros(self.task.K),
            "c": like.new_zeros(self.task.K, self.task.network.D),
        }

    def send(self, server, ids):
        ids = ids.to(server["seen"].device)
        own, all_ = (
            pick(server["head"], ids.clamp(min=0)),
            tmap(lambda h: h.mean(0), server["head"]),
        )
        head = tmap(
            lambda o, a: torch.where((ids < 0).view(-1, *[1] * a.dim()), a, o),
            own,
            all_,
        )
        return broadcast({k: server[k] for k in ("w", "c", "seen")}, ids) | {
            "head": head
        }

    def receive(self, down, mine, shard):
        return {"w": mine["w"] | down["w"] | down["head"]}

    def local(self, down, mine, shard):
        body, head = self.task.split(mine["w"])
        n, m, q = self.classes(body | head, shard)
        pi = n / n.sum().clamp(min=1)
        # eq:fedpac-var
        V = (pi * q - pi**2 * m.square().sum(1)).sum().clamp(min=0) / shard.n.clamp(
            min=1
        )
        # eq:fedpac-head
        head = self.fit(
            lambda h, b: self.loss(body | h, b),
            head,
            shard.on("head"),
            self.head_lr or None,
        )
        body = self.fit(
            lambda v, b: self.pull(v | head, b, down["c"], down["seen"]), body, shard
        )
        # eq:fedpac-stats
        up = {
            "w": body,
            "head": head,
            "n": shard.n,
            "cid": shard.cid,
            "V": V,
            "h": pi[:, None] * m,
        }
        n, m, _ = self.classes(body | head, shard)
        return {"w": body | head}, up | {"classes": n, "means": m}

    def pull(self, w, b, c, seen):
        z = self.task.feat(w, b.x, b)
        loss = F.cross_entropy(self.task.network.out(w, z), b.y, reduction="none")
        # eq:fedpac-pull
        return b.avg(loss + self.lam * seen[b.y] * (z - c[b.y]).square().mean(1))

    def classes(self, w, shard):
        """Per class over all training rows: how many [K], mean feature [K, D], mean
        |feature|^2 [K]; 0 for an absent class.
        """
        zero = shard.n.new_zeros

        def look(c, b):
            z = self.task.feat(w, b.x)
            y = onehot(b.y, self.task.K, z, b.m)
            return {
                "n": c["n"] + y.sum(0),
                "z": c["z"] + y.T @ z,
                "q": c["q"] + y.T @ z.square().sum(1),
            }

        K, D = self.task.K, self.task.network.D
        s = scan(look, {"n": zero(K), "z": zero(K, D), "q": zero(K)}, shard.on("look"))
        n = s["n"].clamp(min=1)
        return s["n"], s["z"] / n[:, None], s["q"] / n

    def aggregate(self, server, up, r):
        p, A = normalize(up["n"]), self.mixtures(up["h"], up["V"])
        # eq:fedpac-mix
        heads = tmap(lambda h: torch.tensordot(A.to(h.dtype), h, 1), up["head"])
        n = up["classes"].sum(0)  # [K]
        # eq:fedpac-server
        c = (
            torch.einsum("ik,ikd->kd", up["classes"], up["means"])
            / n.clamp(min=1)[:, None]
        )
        return {
            "w": self.combine(server["w"], up["w"], p),
            "head": put(server["head"], up["cid"], heads),
            "c": c,
            "seen": (n > 0).to(c.dtype),
            "log": {"weight": p, "self_weight": A.diagonal()},
        }

    def mixtures(self, h, V):
        """Mixing weights [M, M], row i for client i; h [M, K, D], V [M]."""
        H = h.double().flatten(1)
        H = H - H.mean(0)  # differences are the same, rounding is less
        G = H @ H.T
        D = G.diagonal()[:, None, None] - G[:, None, :] - G[:, :, None] + G  # [M, M, M]
        A = simplex_qp(D + V.double().diag(), STEPS)  # eq:fedpac-qp
        A = torch.where(A < TINY, 0.0, A)
        return A / A.sum(1, keepdim=True)
