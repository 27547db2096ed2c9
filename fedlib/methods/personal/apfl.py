"""A mixture of a model of one's own and the common one."""

from dataclasses import dataclass

import torch

from ...core.local import scan
from ...core.method import Card, hp
from ...core.tree import add, leaves, scale, sub, tmap
from ..base.fedavg import FedAvg


def mixed(alpha, v, w):
    """alpha v + (1 - alpha) w, tensor by tensor, running statistics included."""
    return tmap(lambda x, y: alpha * x + (1 - alpha) * y, v, w)


@dataclass(frozen=True)
class APFL(FedAvg):
    """FedAvg, and at each client a model of its own whose mixture with the common one
    is what it uses.

    Deng, Kamani, Mahdavi. Adaptive Personalized Federated Learning. arXiv 2003.13461,
    2020, Algorithm 1. On each batch, all from the values before it, with
    u_i = alpha_i v_i + (1 - alpha_i) w_i and g = grad F_i(u_i):

        w_i     <- w_i - lr grad F_i(w_i)                                  eq:apfl-model
        v_i     <- v_i - lr alpha_i g                                      eq:apfl-own
        alpha_i <- clip(alpha_i - lr <v_i - w_i, g>, 0, 1)                 eq:apfl-alpha
        w       <- sum_i n_i / n  w_i                                      eq:fedavg

    v_i and alpha_i stay on the device for ever; the server runs plain FedAvg. View
    "personal" is u_i, with w_i as just downloaded, by everybody, or as just trained.
    v_i starts as the common start. Limits, for a fixed alpha: 0 is FedAvg, 1 is local
    training (`Local`). The paper averages plainly. The authors' code mixes logits, not
    weights, moves alpha_i on the first batch of a round only, and shrinks it by 0.02 lr
    alpha_i. Batch norm: the statistics of v_i are those that u_i meets.
    """

    alpha: float = hp(
        0.5, "own share, at first", "their code", (0, 1), grid=(0.25, 0.5, 0.75)
    )
    adapt: bool = hp(True, "learn the share by gradient steps", "the paper has both")

    card = Card("apfl2020", "FedAvg, and a learned mixture of it with an own model")
    download = "all"
    post = ("personal",)

    def client(self, w, shard):
        return {"v": w, "w": w, "alpha": torch.full_like(shard.n, self.alpha)}

    def receive(self, down, mine, shard):
        return mine | {"w": down["w"]}

    def local(self, down, mine, shard):
        gradient, task = self.step(self.loss), self.task

        def moved(x, g, m):
            """x after a step along g, and its velocity m."""
            m = add(add(g, x, self.decay), m, self.momentum)
            return add(x, m, -self.lr), m

        def batch(c, b):
            w, v, alpha = c["w"], c["v"], c["alpha"]
            u = mixed(alpha, v, w)
            g = gradient(u, b)
            new_w, mw = moved(w, gradient(w, b), c["mw"])  # eq:apfl-model
            new_v, mv = moved(v, scale(g, alpha), c["mv"])  # eq:apfl-own
            if task.buffers:
                new_w, new_v = new_w | task.refresh(w, b), new_v | task.refresh(u, b)
            if self.adapt:
                slope = sum(leaves(tmap(lambda d, g: (d * g).sum(), sub(v, w), g)))
                alpha = (alpha - self.lr * slope).clamp(0, 1)  # eq:apfl-alpha
            return {"w": new_w, "v": new_v, "alpha": alpha, "mw": mw, "mv": mv}

        still = tmap(torch.zeros_like, down["w"])
        c = scan(batch, mine | {"w": down["w"], "mw": still, "mv": still}, shard)
        return {k: c[k] for k in ("v", "w", "alpha")}, {"w": c["w"], "n": shard.n}

    def views(self, down, mine, shard):
        u = mixed(mine["alpha"], mine["v"], mine["w"])
        return super().views(down, mine, shard) | {"personal": self.task.net(u)}
