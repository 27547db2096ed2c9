"""Weights that shrink where a client's gap between groups differs from that of all."""

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import normalize
from .reweight import Reweight


@dataclass(frozen=True)
class FairFed(Reweight):
    """Counts a client the less, the further its gap between groups is from that of all.

    Ezzeldin, Yan, He, Ferrara, Avestimehr. FairFed: Enabling Group Fairness in
    Federated Learning. AAAI 2023. For two groups.

    By the model as sent, on training rows: P_i probabilities over client i, P over all
    clients of the cohort, Acc_i and Acc accuracies. With metric "EOD", or "DP":

        F_i = P_i(yhat=1 | a=0, y=1) - P_i(yhat=1 | a=1, y=1)        eq:fairfed-eod
        F_i = P_i(yhat=1 | a=0) - P_i(yhat=1 | a=1)                  eq:fairfed-dp
        F   = sum_i n_i/n (g_i(a=0) - g_i(a=1)),  the gap on all rows
        g_i(a) = P_i(yhat=1 | a, y=1) P_i(a, y=1) / P(a, y=1)        eq:fairfed-global
        D_i = |F - F_i|, or |Acc - Acc_i|                            eq:fairfed-distance
        q_i <- q_i - beta (D_i - mean_j D_j)                         eq:fairfed-budget
        p_i = max(q_i, 0) / sum_j max(q_j, 0)                        eq:fairfed-weight

    D_i is a difference of accuracies where F_i is not defined on the client's rows; q_i
    = n_i / n at first. beta = 0 is FedAvg; with debias its clients descend on the loss
    of Reweight. The q_i have no bounds, so a client may drop out and recover. Where no
    q_i of the cohort is positive, sizes decide. weighting = "exp" is the rule of the
    preprint, without memory: p_i proportional to n_i exp(-beta D_i). Clients send
    counts [A, 2, 2] and their accuracy; the paper hides the terms of eq:fairfed-global
    by secure aggregation.
    """

    card = Card("ezzeldin2023", "less weight far from the gap of all")

    beta: float = hp(
        1.0, "fairness budget; 0: sizes", "elsewhere 0.3, 1, 5", grid=(0.05, 0.5, 1, 5)
    )
    metric: str = hp(
        "EOD", "gap of true positives, or of positives", "FairFed", ("EOD", "DP")
    )
    weighting: str = hp(
        "delta", "how distances become weights", "exp: the preprint", ("delta", "exp")
    )
    debias: bool = hp(True, "clients descend on Reweight's loss", "FairFed")

    def server(self, w, r):
        A = self.task.groups.A
        if A != 2:
            name = self.task.groups.name
            raise ValueError(f"FairFed compares 2 groups, {name!r} has {A}: merge some")
        return {"w": w, "q": normalize(r.ask(self.size)["n"])}

    def size(self, question, mine, shard):
        return {"n": shard.n}

    def fair(self, shard):
        return super().fair(shard) if self.debias else self.loss

    def local(self, down, mine, shard):
        b = shard.all()
        z = self.task.net(down["w"])(b.x)  # before training
        counts, acc = self.task.groups.tally(z, b), b.avg(self.hits(z, b.y))
        mine, up = super().local(down, mine, shard)
        return mine, up | {"counts": counts, "acc": acc}

    def aggregate(self, server, up, r):
        i, n, acc = r.ids.to(up["n"].device), normalize(up["n"]), up["acc"]
        F_i, defined = self.gap(up["counts"])
        F, _ = self.gap(up["counts"].sum(0))  # eq:fairfed-global
        apart = (n @ acc - acc).abs()
        D = torch.where(defined, (F - F_i).abs(), apart)  # eq:fairfed-distance
        q = server["q"][i]
        if self.weighting == "exp":
            p = normalize(n * (-self.beta * (D - D.min())).exp())
        else:
            q = q - self.beta * (D - D.mean())  # eq:fairfed-budget
            positive = torch.where((q > 0).any(), q.clamp(min=0), n)
            p = normalize(positive)  # eq:fairfed-weight
        w, q = self.combine(server["w"], up["w"], p), server["q"].index_copy(0, i, q)
        return {"w": w, "q": q, "log": {"weight": p, "F": F, "distance": D}}

    def gap(self, n):
        """Counts [..., 2, 2, 2] -> (gap F between the groups, is it defined), [...]."""
        n = n[..., 1, :] if self.metric == "EOD" else n.sum(-2)  # [..., A, yhat]
        rows = n.sum(-1)
        rate = n[..., 1] / rows.clamp(min=1)
        F = rate[..., 0] - rate[..., 1]  # eq:fairfed-eod, eq:fairfed-dp
        return F, (rows > 0).all(-1)
