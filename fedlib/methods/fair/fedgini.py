"""Fairness that waits until the model has settled, and the trigger it waits for."""

from dataclasses import dataclass
from math import inf

import torch

from ...core.method import Card, hp, uniform_weights
from ...core.tree import without
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class Delayed(FedAvg):
    """What FedGini and FedGA share: fairness begins once a number x_t stops falling.

        rolling:  mean(x[t-W-1 .. t-2]) - mean(x[t-W .. t-1]) < theta    eq:trigger
        half:     mean(x[t-W .. t-h-1]) - mean(x[t-h .. t-1]) < theta    eq:trigger-half

    with h = W // 2. The first is asked in every round t > W, the second in every h-th
    round from t = W on. The rolling difference is (x[t-W-1] - x[t-1]) / W. The test is
    one-sided: a rising x passes. The server keeps W + 1 values.
    """

    W: int = hp(10, "rounds in the trigger's window", "working choice", (1, 10**6))
    theta: float = hp(0.01, "fall of x a round, at most", "a choice", (-inf, inf))
    trigger: str = hp("rolling", "windows compared", "later code", ("rolling", "half"))
    sticky: bool = hp(True, "once on, always on", "working choice")

    def __post_init__(self):
        super().__post_init__()
        if -inf < self.theta < 0:
            raise ValueError(
                f"{type(self).__name__}.theta = {self.theta!r}: x would have to rise; "
                "give a number >= 0, inf to pass at once, or -inf never to do so"
            )
        if self.trigger == "half" and self.W < 2:
            raise ValueError(
                f"{type(self).__name__}.W = {self.W}: trigger = 'half' cuts the window "
                "in two; give 2 rounds or more"
            )

    def server(self, w, r):
        past = self.task.x.new_zeros(self.W + 1)
        return {"w": w, "past": past, "on": past[0] > 0}

    def watch(self, server, x, t):
        """What the server keeps after x [] of round t: past values, and "on" or not."""
        past, W, h = server["past"], self.W, self.W // 2  # x[t-W-1] .. x[t-1]
        if self.trigger == "rolling":
            early, late, ask = past[:-1], past[1:], t > W  # eq:trigger
        else:
            early, late = past[1:-h], past[-h:]  # eq:trigger-half
            ask = t >= W and t % h == 0
        on = (early.mean() - late.mean() < self.theta) & ask
        past = torch.cat([past[1:], x[None]])
        return {"past": past, "on": on | server["on"] if self.sticky else on}


@dataclass(frozen=True)
class FedGini(Delayed):
    """Uniform averaging until updates stop shrinking; then weights by rank of the loss.

    Li, Zhao, Chen, Zheng. Heterogeneity-aware Fair Federated Learning. Information
    Sciences 619, 2023. The text was not at hand: rebuilt from FedGA's description and
    from later code of FedGA's author.

        U_t = 1/P |1/M sum_i (w_i - w)|^2                              eq:update-scale
        q_k = epsilon / M + (1 - epsilon) k (k + 1) / D                eq:fedgini-weight

    U_t is the x of eq:trigger. q_k weighs the client with the k-th smallest loss, k = 0
    .. M-1; with D = (M - 1) M (M + 1) / 3 the q_k sum to 1. Loss: its mean over the
    batches of local training. epsilon = 1, or a trigger that never passes, is the
    uniform average. order = "released" gives the largest weight to the smallest loss,
    as that code does.
    """

    card = Card("li2023fedgini", "weights by rank of the loss, once updates are small")

    epsilon: float = hp(
        0.5, "share of 1 / M", "a choice", (0, 1), grid=(0.1, 0.3, 0.5, 0.7, 0.9)
    )
    W: int = hp(150, "rounds in the window", "later code", (1, 10**6), grid=(10, 150))
    theta: float = hp(
        1e-5, "how fast U may still fall", "later code", (-inf, inf), grid=(1e-5,)
    )
    sticky: bool = hp(False, "once on, always on", "later code of FedGA's author")
    order: str = hp(
        "intended", "who weighs most", "released: later code", ("intended", "released")
    )

    def local(self, down, mine, shard):
        step, zero = self.step(self.loss), shard.n * 0
        # two scalars that the descent adds up beside w
        sums = {"(loss)": zero, "(batches)": zero}

        def with_sums(v, b):
            w = without(v, sums)
            return step(w, b) | {"(loss)": -self.loss(w, b), "(batches)": zero - 1}

        v = self.descend(with_sums, down["w"] | sums, shard)
        loss = v["(loss)"] / v["(batches)"]
        return mine, {"w": without(v, sums), "n": shard.n, "loss": loss}

    def aggregate(self, server, up, r):
        g = self.progress(server["w"], up["w"])  # [M, P]
        U = g.mean(0).square().mean()  # eq:update-scale
        state = self.watch(server, U, r.t)
        on = state["on"]
        p = torch.where(on, self.ranked(up["loss"]), uniform_weights(up["n"]))
        w = self.combine(server["w"], up["w"], p)
        return state | {"w": w, "log": {"weight": p, "update_scale": U, "on": on.int()}}

    def ranked(self, loss):
        """Weights [M] by the rank of the loss [M]; one client alone weighs 1."""
        M = len(loss)
        k = torch.arange(M, dtype=loss.dtype, device=loss.device)
        D = (M - 1) * M * (M + 1) / 3
        rank = k * (k + 1) / D if M > 1 else torch.ones_like(loss)
        q = self.epsilon / M + (1 - self.epsilon) * rank  # eq:fedgini-weight
        order = loss.argsort(stable=True, descending=self.order == "released")
        return torch.empty_like(q).index_copy(0, order, q)
