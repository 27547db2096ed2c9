"""A shared body whose features agree on class means, and mixtures of all heads."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.local import scan
from ...core.method import Card, hp
from ...core.tree import add, broadcast, normalize, onehot, put, tmap
from ...pieces.simplex import simplex_qp
from .fedper import FedPer, two_parts

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
    below 1e-3 become 0 and the rest is rescaled. All mixtures are of heads as uploaded.
    A class that no online client holds has no c_k and pulls nobody until somebody
    brings it back (the released code fails); no class pulls in round 0. An absent
    client keeps its head under the new body. A guest gets the plain mean of all
    clients' heads.
    V_i falls with 1 / n_i, so a_ii is often close to 1. The record's log: weight [M],
    and self_weight [M], the a_ii. Released code: head_lr 0.1, lr 0.02, momentum
    0.5, decay 5e-4; here one lr for head and body unless told.
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
        statistics = self.plan(1, batch=MEMORY, last="keep", shuffle=False)
        return super().plans() | {
            "head": self.plan(self.head_epochs),
            "statistics": statistics,
        }

    def server(self, w, r):
        state, (_, head) = super().server(w, r), two_parts(self, w, "mixes heads")
        like = next(iter(head.values()))
        return state | {
            "head": broadcast(head, range(self.task.C)),
            "seen": like.new_zeros(self.task.K),
            "c": like.new_zeros(self.task.K, self.task.network.D),
        }

    def send(self, server, ids):
        guest = ids.to(server["seen"].device) < 0  # gets the mean of all heads

        def head(h):  # [C, ...] -> [M, ...]
            own, mean = h[ids.clamp(min=0)], h.mean(0)
            return torch.where(guest.view(-1, *[1] * mean.dim()), mean, own)

        same = broadcast({k: server[k] for k in ("w", "c", "seen")}, ids)
        return same | {"head": tmap(head, server["head"])}

    def receive(self, down, mine, shard):
        return {"w": mine["w"] | down["w"] | down["head"]}

    def local(self, down, mine, shard):
        body, head = self.task.split(mine["w"])
        n, m, q = self.classes(body | head, shard)
        pi = n / n.sum().clamp(min=1)
        h = pi[:, None] * m  # eq:fedpac-stats
        var = (pi * q - pi**2 * m.square().sum(1)).sum().clamp(min=0)
        V = var / shard.n.clamp(min=1)  # eq:fedpac-var
        of_head, lr = self.loss.beside(body), self.head_lr or None
        head = self.fit(of_head, head, shard.on("head"), lr)  # eq:fedpac-head
        c, seen = down["c"], down["seen"]
        body = self.fit(lambda v, b: self.pull(v | head, b, c, seen), body, shard)
        n, m, _ = self.classes(body | head, shard)  # after training
        up = {"w": body, "head": head, "n": shard.n, "cid": shard.cid}
        return {"w": body | head}, up | {"V": V, "h": h, "classes": n, "means": m}

    def pull(self, w, b, c, seen):
        """The loss [] of a batch for the body, with global class means c [K, D]."""
        z = self.task.feat(w, b.x, b)
        ce = F.cross_entropy(self.task.network.out(w, z), b.y, reduction="none")
        R = seen[b.y] * (z - c[b.y]).square().mean(1)  # [B]
        return b.avg(ce + self.lam * R)  # eq:fedpac-pull

    def classes(self, w, shard):
        """Per class: number of rows [K], mean feature [K, D] and mean |feature|^2 [K].

        Over all training rows; 0 for an absent class.
        """
        K, D, zero = self.task.K, self.task.network.D, shard.n.new_zeros

        def add_batch(s, b):
            z = self.task.feat(w, b.x)
            y = onehot(b.y, K, z, b.m)
            new = {"n": y.sum(0), "z": y.T @ z, "q": y.T @ z.square().sum(1)}
            return add(s, new)

        sums = {"n": zero(K), "z": zero(K, D), "q": zero(K)}
        sums = scan(add_batch, sums, shard.on("statistics"))
        n = sums["n"].clamp(min=1)
        return sums["n"], sums["z"] / n[:, None], sums["q"] / n

    def aggregate(self, server, up, r):
        p, A = normalize(up["n"]), self.mixtures(up["h"], up["V"])
        mix = lambda h: torch.tensordot(A.to(h.dtype), h, 1)  # sum_j a_ij w_j
        heads = tmap(mix, up["head"])  # eq:fedpac-mix
        n = up["classes"].sum(0)  # [K]
        total = torch.einsum("ik,ikd->kd", up["classes"], up["means"])
        c = total / n.clamp(min=1)[:, None]  # eq:fedpac-server
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
