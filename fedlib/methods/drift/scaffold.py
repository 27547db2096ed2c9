"""Control variates that take a client's own pull out of its steps."""

from dataclasses import dataclass

from ...core.method import Card, Mean, hp
from ...core.tree import add, mean, scale, sub, subset, where
from ...pieces.steps import Private
from ..base.fedavg import Uniform, only
from .corrections import corrected, gradients_in, mean_update, stepped, zeros


@dataclass(frozen=True)
class SCAFFOLD(Uniform):
    """Clients go the way of all while they step on their own rows.

    Karimireddy, Kale, Mohri, Reddi, Stich, Suresh. SCAFFOLD: Stochastic Controlled
    Averaging for Federated Learning. ICML 2020, Algorithm 1.

    c_i: client i's estimate of its gradient, kept between rounds; c: the server's mean
    of all of them. Both start at 0. K: local steps, with momentum |a_i| of FedNova.

        v   <- v - lr (g_i(v) + c - c_i)         K times, from v = w   eq:scaffold-local
        c_i' = grad F_i(w)                           option I      eq:scaffold-gradient
        c_i' = c_i - c + (w - w_i) / (K lr)          option II    eq:scaffold-mean-step
        w   <- w + server_lr mean_i (w_i - w)                         eq:scaffold-server
        c   <- c + M/C mean_i (c_i' - c_i)                              eq:scaffold-mean

    So c stays the mean of the c_i of all C clients, also of absent ones, whose c_i
    grows old. If all take part, w comes to rest where the mean of the gradients is 0,
    however many the local steps. Every client counts the same, as in the paper. Each
    way carries two models. c_i is of parameters; buffers are averaged. `decay` is part
    of the gradient.
    """

    card = Card("karimireddy2020", "control variates take the drift out of local steps")

    option: str = hp("II", "what c_i is", "Algorithm 1", ("I", "II"))
    server_lr: float = hp(
        1.0, "step towards the average", "the paper", grid=(0.5, 1.0, 1.5)
    )

    def __post_init__(self):
        super().__post_init__()
        only(self, "rule", Mean, "c is the mean over clients")
        if self.option == "I" and isinstance(self.step, Private):
            raise ValueError(
                "SCAFFOLD.step is Private, and option = 'I' sends a gradient without "
                "noise; give option = 'II'"
            )
        if self.option == "II" and not self.lr > 0:
            raise ValueError("SCAFFOLD.lr = 0: option = 'II' divides by it; give more")

    def server(self, w, r):
        return {"w": w, "c": zeros(w, self.task.buffers)}

    def send(self, server, ids):
        c = super().send({"w": server["c"]}, ids)["w"]
        return super().send(server, ids) | {"c": c}

    def client(self, w, shard):
        return {"c": zeros(w, self.task.buffers)}

    def local(self, down, mine, shard):
        w, c, own = down["w"], down["c"], mine["c"]
        direction = self.step(self.loss)
        step = corrected(direction, sub(c, own))
        wi = self.descend(step, w, shard)  # eq:scaffold-local
        before, after = subset(w, c), subset(wi, c)
        if self.option == "I":
            g = subset(direction(w, shard.all()), c)
            new = add(g, before, self.decay)  # eq:scaffold-gradient
        else:
            K = gradients_in(shard, self.momentum)
            g = scale(sub(before, after), 1 / (self.lr * K.clamp(min=1)))
            new = where(K > 0, add(sub(own, c), g), own)  # eq:scaffold-mean-step
        return {"c": new}, {"w": wi, "n": shard.n, "dc": sub(new, own)}

    def aggregate(self, server, up, r):
        w, p, share = server["w"], self.weights(up), len(r.ids) / self.task.C
        d, buffers = mean_update(self, w, up["w"], p)
        w = stepped(w, d, self.server_lr, buffers)  # eq:scaffold-server
        c = add(server["c"], mean(up["dc"], p), share)  # eq:scaffold-mean
        return {"w": w, "c": c, "log": {"weight": p}}
