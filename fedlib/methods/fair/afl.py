"""The worst mixture of clients."""

from dataclasses import dataclass

from ...core.errors import LARGEST
from ...core.method import Card, hp
from ...core.tree import add, broadcast, normalize, scale, subset
from ...pieces.simplex import project
from .qfedavg import ByLoss

FAR = 1e5  # beyond, float32 rounds away that weights sum to 1


@dataclass(frozen=True)
class AFL(ByLoss):
    """Learns the model and, against it, the mixture of clients on which it is worst.

    Mohri, Sivek, Suresh. Agnostic Federated Learning. ICML 2019, section 4.

    All clients train. F_i: loss of the model as sent, on all training rows of client i.
    lam [C] starts at 1/C.

        min_w  max_lam  sum_i lam_i F_i(w)        lam in the simplex    eq:afl-objective
        w   <- w - sum_i lam_i (w - w_i)                                eq:afl-step
        lam <- the point of the simplex nearest to lam + gamma F        eq:afl-mixture
        avg <- (t avg + w) / (t + 1)                                    eq:afl-average

    avg is the model that is scored, and is downloaded for that only; after few rounds
    it lags behind w, which `scored` = "last" scores. gamma = 0 keeps equal weights.
    """

    card = Card("mohri2019afl", "ascent on the weights against descent on the model")
    who = "all"

    gamma: float = hp(
        0.01, "step size of the mixture", "FedFV's records", grid=(0.01, 0.1, 0.5)
    )
    scored: str = hp(
        "average", "which model", "the paper", ("average", "last"), absent="average"
    )

    def server(self, w, r):
        return {"w": w, "avg": w, "lam": normalize(self.task.x.new_ones(self.task.C))}

    def send(self, server, ids):
        return broadcast(subset(server, ("w", "avg")), ids)

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"cid": shard.cid}

    def aggregate(self, server, up, r):
        i = up["cid"]
        if len(i) != self.task.C:
            raise ValueError(
                f"AFL got {len(i)} of {self.task.C} clients: let all of them take part"
            )
        p = server["lam"][i]
        w = self.combine(server["w"], up["w"], p)  # eq:afl-step
        ascent = server["lam"].index_add(0, i, self.gamma * up["loss"])
        if ascent.max() > FAR:  # a shift of all leaves the nearest point as it is
            ascent = ascent.clamp(max=LARGEST)
            ascent = ascent - ascent.max()
        lam = project(ascent)  # eq:afl-mixture
        before = scale(server["avg"], r.t / (r.t + 1))
        avg = add(before, w, 1 / (r.t + 1))  # eq:afl-average
        return {"w": w, "avg": avg, "lam": lam, "log": {"weight": p}}

    def views(self, down, mine, shard):
        w = down[{"average": "avg", "last": "w"}[self.scored]]
        return {"global": self.task.net(w)}
