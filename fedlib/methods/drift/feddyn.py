"""Losses that are tilted, client by client, until their optima agree."""

from dataclasses import dataclass

from ...core.method import Card, Mean, hp
from ...core.tree import add, scale, sub, subset
from ..base.fedavg import Uniform, only
from .corrections import corrected, mean_update, stepped, zeros


@dataclass(frozen=True)
class FedDyn(Uniform):
    """Clients descend on a loss whose optimum is that of all, once it is found.

    Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama. Federated Learning Based
    on Dynamic Regularization. ICLR 2021, Algorithm 1.

    l_i: what client i learned of its gradient, kept between rounds; h: the server's
    count of all movement. Both start at 0.

        w_i ~ argmin_v  F_i(v) - <l_i, v> + alpha/2 |v - w|^2           eq:feddyn-local
        l_i <- l_i - alpha (w_i - w)                                   eq:feddyn-tilt
        h   <- h - alpha M/C mean_i (w_i - w)                         eq:feddyn-server
        w   <- mean_i w_i - h / alpha                                   eq:feddyn-step

    The argmin is by local SGD. At rest w_i = w for every client, so l_i is the gradient
    of F_i at w; h is the mean of the l_i, and is 0: w is the optimum of all, however
    few the local steps. If all take part, round t moves w by d_0 + ... + d_(t-1) +
    2 d_t, with d_s the mean update of round s, whatever alpha is: a small alpha lets w
    overshoot, a large one freezes the clients. Every client counts the same, as in the
    paper. l_i is of parameters; buffers are averaged.
    """

    card = Card("acar2021", "a tilt and a pull that let the clients' optima agree")

    alpha: float = hp(
        0.1, "pull, and rate of the tilt", "the paper", grid=(0.001, 0.01, 0.1, 1.0)
    )

    def __post_init__(self):
        super().__post_init__()
        only(self, "rule", Mean, "h is a mean over clients")
        if not self.alpha > 0:
            raise ValueError("FedDyn.alpha = 0: the server divides by it; give more")
        if self.lr * self.alpha >= 2:
            raise ValueError(
                f"FedDyn.lr = {self.lr!r} with alpha = {self.alpha!r}: the pull "
                f"diverges; give lr below 2 / alpha = {2 / self.alpha:.3g}"
            )

    def server(self, w, r):
        return {"w": w, "h": zeros(w, self.task.buffers)}

    def client(self, w, shard):
        return {"l": zeros(w, self.task.buffers)}

    def local(self, down, mine, shard):
        w, tilt = down["w"], mine["l"]
        step, pull = corrected(self.step(self.loss), scale(tilt, -1)), (self.alpha, w)
        wi = self.descend(step, w, shard, pull=pull)  # eq:feddyn-local
        moved = sub(subset(wi, tilt), subset(w, tilt))
        tilt = add(tilt, moved, -self.alpha)  # eq:feddyn-tilt
        return {"l": tilt}, {"w": wi, "n": shard.n}

    def aggregate(self, server, up, r):
        w, p, share = server["w"], self.weights(up), len(r.ids) / self.task.C
        d, buffers = mean_update(self, w, up["w"], p)
        h = add(server["h"], d, -self.alpha * share)  # eq:feddyn-server
        average = stepped(w, d, 1, buffers)
        w = stepped(average, h, -1 / self.alpha, buffers)  # eq:feddyn-step
        return {"w": w, "h": h, "log": {"weight": p}}
