"""Weights that follow the generalisation gaps."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ...pieces import simplex
from .gapped import Gapped


@dataclass(frozen=True)
class GA(Gapped):
    """Generalisation adjustment: a client whom averaging hurts counts more next round.

    Zhang, Xu, Yao, Zhang, Tian, Wang. Federated Domain Generalization with
    Generalization Adjustment. CVPR 2023, and its released code. G_i: the gap of the
    model that client i downloads against its own of the round before (`Gapped`).

        a_i <- a_i + step (1 - (t - 2)/R) / C  G_i / max_j |G_j|                   eq:ga

    then clipped to [0, 1], over its sum. The released code subtracts no mean, so only
    the last division makes the step relative; centre = True takes G_i - mean G. 1 / C
    is a hard-coded 1/3 there. The first step, in round t = 1, is step (1 + 1/R), as
    released; falling = "to zero" has 1 - t/R in eq:ga. A weight can reach 0.
    """

    plans_ahead = True
    card = Card("zhang2023ga", "weights follow the accuracy that averaging costs")

    metric: str = hp(
        "accuracy", "what a gap is measured in", "released code", ("loss", "accuracy")
    )
    step_size: float = hp(
        0.2, "step of the weights, times C", "their code", (0, 1), grid=(0.05, 0.1, 0.2)
    )
    centre: bool = hp(False, "subtract the mean gap first", "released code")
    falling: str = hp(
        "released", "fall of the step", "their code", ("released", "to zero")
    )

    def aggregate(self, server, up, r):
        G, a = up["gap"] - up["gap"].mean() if self.centre else up["gap"], server["a"]
        t = r.t - 2 if self.falling == "released" else r.t
        z, eta = G / G.abs().max().clamp(min=1e-6), self.step_size * (1 - t / r.R)
        a = simplex.additive(a, z, eta) if r.t else a  # eq:ga
        return self.weighed(server, up, a, G)
