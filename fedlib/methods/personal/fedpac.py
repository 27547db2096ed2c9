"""A shared body whose features agree on class means, and mixtures of all heads."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.method import Card, hp
from ...core.tree import broadcast, leaves, normalize, put, subset, tmap
from ...pieces.simplex import simplex_qp
from .fedas import class_means
from .fedper import FedPer, class_mean, two_parts

TINY = 1e-3  # smaller weights of a mixture are cut off (released code)
STEPS = 300  # of the solver: shares to about 1e-3 while |h_i - h_j|^2 < 10^4 V_i
MEMORY = 256  # rows of a batch whose features are held at once


@dataclass(frozen=True)
class FedPAC(FedPer):
    """Average bodies, draw features to global class means, mix heads for each client.

    Xu, Tong, Huang. Personalized Federated Learning with Feature Alignment and
    Classifier Collaboration. ICLR 2023, Algorithm 1, and its released code.
    z = f(theta, x) [D], c_k the global mean feature of class k, pi_ik the share of
    class k at client i, m_ik its mean feature there, both with theta as downloaded.

        w_i     <- head_epochs passes on F_i(theta, .)                  eq:fedpac-head
        theta_i <- epochs passes on F_i(., w_i) + lam R_i               eq:fedpac-pull
                   R_i = mean over rows s of |z_s - c_{y_s}|^2 / D
        h_i = (pi_ik m_ik)_k                                    [K, D]  eq:fedpac-stats
        V_i = 1/n_i sum_k (pi_ik E_k|z|^2 - pi_ik^2 |m_ik|^2)           eq:fedpac-var
        theta <- sum_i n_i / n theta_i                                  eq:fedpac-server
        c_k <- sum_i n_ik m_ik / sum_i n_ik,   m_ik after training
        a_i = argmin_a  sum_j a_j^2 V_j + |h_i - sum_j a_j h_j|^2       eq:fedpac-qp
        w_i <- sum_j a_ij w_j                                           eq:fedpac-mix

    a lies in the simplex: M quadratic programs (`mixtures`), solved at once. Weights
    below 1e-3 become 0 and the rest is rescaled. A class that no online client holds
    has no c_k and pulls nobody until somebody brings it back (the released code fails);
    no class pulls in round 0. An absent client keeps its head under the new body. A
    guest gets the plain mean of all heads. V_i falls with 1 / n_i, so a_ii, logged as
    self_weight, is often close to 1. Released code: head_lr 0.1, lr 0.02, momentum 0.5,
    decay 5e-4.
    """

    lam: float = hp(
        1.0, "pull towards global class means", "the paper", grid=(0.1, 1.0, 5.0)
    )
    head_epochs: int = hp(1, "passes for the head, at first", "released code")
    head_lr: float = hp(
        0.0, "step size of the head; 0: lr", "a choice", grid=(0.0, 0.1)
    )

    card = Card("fedpac2023", "shared class means; own mixtures of heads")

    needs_features = True

    def plans(self):
        rows = self.plan(1, batch=MEMORY, last="keep", shuffle=False)
        head = self.plan(self.head_epochs)
        return super().plans() | {"head": head, "statistics": rows}

    def server(self, w, r):
        state, (_, head) = super().server(w, r), two_parts(self, w, "mixes heads")
        seen = leaves(head)[0].new_zeros(self.task.K)
        c = seen.new_zeros(len(seen), self.task.network.D)
        return state | {
            "head": broadcast(head, range(self.task.C)),
            "c": c,
            "seen": seen,
        }

    def send(self, server, ids):
        guest = ids.to(server["seen"].device) < 0  # gets the mean of all heads

        def head(h):  # [C, ...] -> [M, ...]
            own, mean = h[ids.clamp(min=0)], h.mean(0)
            return torch.where(guest.view(-1, *[1] * mean.dim()), mean, own)

        same = broadcast(subset(server, ("w", "c", "seen")), ids)
        return same | {"head": tmap(head, server["head"])}

    def receive(self, down, mine, shard):
        return {"w": mine["w"] | down["w"] | down["head"]}

    def local(self, down, mine, shard):
        body, head = self.task.split(mine["w"])
        m, n, q = class_means(self.task, mine["w"], shard.on("statistics"))
        pi = n / n.sum().clamp(min=1)
        h = pi[:, None] * m  # eq:fedpac-stats
        var = (pi * q - pi**2 * m.square().sum(1)).sum().clamp(min=0)
        V = var / shard.n.clamp(min=1)  # eq:fedpac-var
        of_head, lr = self.loss.beside(body), self.head_lr or None
        head = self.fit(of_head, head, shard.on("head"), lr)  # eq:fedpac-head
        c, seen = down["c"], down["seen"]
        body = self.fit(lambda v, b: self.pull(v | head, b, c, seen), body, shard)
        rows = shard.on("statistics")
        m, n, _ = class_means(self.task, body | head, rows)  # after training
        up = {"w": body, "head": head, "n": shard.n, "cid": shard.cid}
        return {"w": body | head}, up | {"V": V, "h": h, "classes": n, "means": m}

    def pull(self, w, b, c, seen):
        """The loss [] of a batch for the body, with global class means c [K, D]."""
        z = self.task.feat(w, b.x, b)
        ce = F.cross_entropy(self.task.network.out(w, z), b.y, reduction="none")
        R = seen[b.y] * (z - c[b.y]).square().mean(1)  # [B]
        return b.avg(ce + self.lam * R)  # eq:fedpac-pull

    def aggregate(self, server, up, r):
        p, A = normalize(up["n"]), self.mixtures(up["h"], up["V"])
        mix = lambda h: torch.tensordot(A.to(h.dtype), h, 1)  # sum_j a_ij w_j
        heads = tmap(mix, up["head"])  # eq:fedpac-mix
        c, n = class_mean(up["classes"], up["means"])  # eq:fedpac-server
        return {
            "w": self.combine(server["w"], up["w"], p),
            "head": put(server["head"], up["cid"], heads),
            "c": c,
            "seen": (n > 0).to(c.dtype),
            "log": {"weight": p, "self_weight": A.diagonal()},
        }

    def mixtures(self, h, V):
        """Mixing weights A [M, M], row i for client i, of h [M, K, D] and V [M].

        On the simplex h_i = sum_p a_p h_i, so |h_i - sum_p a_p h_p|^2 = a' D_i a with
        D_i[p, q] = <h_i - h_p, h_i - h_q>, and client i minimises a' (D_i + diag V) a.
        All products come from one Gram matrix, in float64.
        """
        H = h.double().flatten(1)
        H = H - H.mean(0)  # differences are the same, rounding is less
        G = H @ H.T  # <h_p, h_q>
        ii, iq, pi = G.diagonal()[:, None, None], G[:, None, :], G[:, :, None]
        D = ii - iq - pi + G  # [i, p, q]
        A = simplex_qp(D + V.double().diag(), STEPS)  # eq:fedpac-qp
        A = torch.where(A < TINY, 0.0, A)
        return A / A.sum(1, keepdim=True)
