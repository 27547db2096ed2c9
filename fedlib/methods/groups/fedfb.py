"""Group weights that the server learns and the clients train by."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.method import Card, hp
from ...core.tree import broadcast, normalize
from ..base.fedavg import FedAvg
from .reweight import cells, weighted

TINY = 1e-12  # in place of a sum of weights that is zero


@dataclass(frozen=True)
class FedFB(FedAvg):
    """Weights per group and outcome, raised where the global model treats one worse.

    Zeng, Chen, Lee. Improving Fairness via Federated Learning. arXiv 2110.15545, 2021;
    FairBatch (Roh et al., ICLR 2021) at the server. m_az: rows of all clients in group
    a with outcome z; a dot, or no index, sums. After round t, s = alpha / sqrt(t + 1):

        version "EO", with lam_az = m_az / m at first
            v_az    = lam_az m / m_az                                      eq:fedfb-eo
            d_z     = L_1z - L_0z
            lam_1z <- lam_1z + s d_z  in [0, m_.z / m]
            lam_0z  = m_.z / m - lam_1z
        version "DP", with lam_az = m_a. / m at first
            v_az    = lam_az m / m_a.                                      eq:fedfb-dp
            d_a     = P_a - P_0,   d_0 = - sum_{a > 0} d_a
            lam_a0 <- lam_a0 + s d_a  in [0, 2 m_a. / m]
            lam_a1  = 2 m_a. / m - lam_a0
        F_i(w) = sum_r v_r loss_r / sum_r v_r,    p_i ~ sum_r v_r          eq:fedfb-loss

    with L_az the mean loss in the cell, P_a the mean positive probability in the group,
    and sums over the client's rows r. alpha = 0 is FedAvg. The divisor of F_i sums over
    all rows of the client (in the released code over the batch). L and P are those of
    the new model on the rows of the cohort; a cell without rows moves nothing. A round
    costs one more message down and one up.
    """

    card = Card("zeng2021", "row weights per group and outcome, learned by the server")
    needs_groups = True

    alpha: float = hp(
        0.1, "step of lam", "the paper", grid=(0.001, 0.05, 0.08, 0.1, 0.2, 0.5, 1, 2)
    )
    version: str = hp("EO", "equal losses by outcome, or rates", "FedFB", ("EO", "DP"))

    def server(self, w, r):
        if self.version == "EO" and self.task.groups.A != 2:
            raise ValueError(
                f"FedFB.version = 'EO' compares two groups, {self.task.groups.name!r} "
                f"has {self.task.groups.A}: merge some, or take version = 'DP'"
            )
        m = r.ask(self.count)["m"].sum(0)  # [A, 2]
        return {"w": w, "m": m, "lam": self.rows(m) / m.sum()}

    def rows(self, m):
        """m_az or m_a., by version [A, 2]."""
        return m if self.version == "EO" else m.sum(1, keepdim=True).expand_as(m)

    def send(self, server, ids):
        m, lam = server["m"], server["lam"]
        v = lam * m.sum() / self.rows(m).clamp(min=1)
        return broadcast({"w": server["w"], "v": v}, ids)

    def count(self, question, mine, shard):
        return {"m": cells(self.task, shard.all()).sum(0)}

    def local(self, down, mine, shard):
        total = (down["v"] * cells(self.task, shard.all()).sum(0)).sum()
        v = down["v"] * shard.n / total.clamp(min=TINY)
        w = self.fit(weighted(self.task, v), down["w"], shard)  # eq:fedfb-loss
        return mine, {"w": w, "n": shard.n, "total": total}

    def weights(self, up):
        return normalize(up["total"].clamp(min=TINY))

    def aggregate(self, server, up, r):
        p, step = self.weights(up), self.alpha / math.sqrt(r.t + 1)
        w = self.combine(server["w"], up["w"], p)
        answer = r.ask(self.sums, {"w": w})
        lam, d = self.raised(server, answer["sum"].sum(0), answer["n"].sum(0), step)
        return server | {"w": w, "lam": lam, "log": {"weight": p, "d": d}}

    def sums(self, question, mine, shard):
        """Per cell [A, 2]: the sum of losses or positive probabilities, and of rows."""
        b = shard.all()
        cell, z = cells(self.task, b), self.task.net(question["w"])(b.x)
        if self.version == "EO":
            v = F.cross_entropy(z, b.y, reduction="none")
        else:
            v = self.task.groups.odds(z)[:, 1].exp()
        return {"sum": torch.einsum("baz,b->az", cell, v), "n": cell.sum(0)}

    def raised(self, server, s, n, step):
        """The next lam [A, 2] and the differences d, from sums s and rows n [A, 2]."""
        m, lam = server["m"] / server["m"].sum(), server["lam"]
        if self.version == "EO":  # eq:fedfb-eo
            L, most = s / n.clamp(min=1), m.sum(0)
            d = torch.where((n > 0).all(0), L[1] - L[0], 0)
            lam_1 = torch.minimum((lam[1] + step * d).clamp(min=0), most)
            return torch.stack([most - lam_1, lam_1]), d
        s, n, most = s.sum(1), n.sum(1), 2 * m.sum(1)  # eq:fedfb-dp
        P = s / n.clamp(min=1)
        d = torch.where((n > 0) & (n[0] > 0), P - P[0], 0)
        d = torch.cat([-d[1:].sum()[None], d[1:]])
        lam_0 = torch.minimum((lam[:, 0] + step * d).clamp(min=0), most)
        return torch.stack([lam_0, most - lam_0], 1), d
