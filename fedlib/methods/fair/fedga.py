"""Weights that care, once accuracies have stopped growing more equal."""

from dataclasses import dataclass
from math import inf

import torch

from ...core.method import Card, hp
from ...core.tree import normalize
from .fedgini import Delayed


def gini(a):
    """sum_ij |a_i - a_j| / (2 (m - 1) sum_i a_i) of accuracies a [m], in O(m^2).

    The denominator is m - 1, which FedGA's Table 6 forces; 1e-10 is added to every
    accuracy; one client alone gives 0. `measures.metrics.gini` finds it by sorting.
    """
    a = a + 1e-10
    return (a[:, None] - a).abs().sum() / (2 * max(len(a) - 1, 1) * a.sum())


@dataclass(frozen=True)
class FedGA(Delayed):
    """FedAvg until accuracies stop growing more equal; then weights by the error.

    Liu. FedGA: A Fair Federated Learning Framework Based on the Gini Coefficient.
    arXiv 2507.12983, 2025. In the text at hand its formulas are lost: eq:trigger,
    eq:fedga-error and eq:fedga-weight are rebuilt.

    a_i: accuracy of the model as sent, on client i's validation rows.

        G   = sum_ij |a_i - a_j| / (2 (M - 1) sum_i a_i)                 eq:gini
        e_i = 1 - a_i                                                    eq:fedga-error
        p_i = alpha^e_i / sum_j alpha^e_j                                eq:fedga-weight

    G is the x of eq:trigger; until it passes, p_i = n_i / n. alpha = 1 gives 1/M, the
    uniform average (not FedAvg). With alpha > 1 the client with the lowest accuracy
    weighs more than 1/M. weight_norm = "sum" first divides e_i by sum_j e_j, as later
    code of the author does: closer to 1/M the larger the cohort.
    """

    card = Card("liu2025fedga", "weights by error, once the Gini coefficient is flat")
    needs_val = True

    alpha: float = hp(
        5.0, "strength; 1: uniform", "FedGA 5.3", (1, inf), grid=tuple(range(1, 11))
    )
    W: int = hp(10, "rounds in the window", "a choice: lost", (1, 10**6), grid=(10,))
    theta: float = hp(
        0.01, "fall of G per round", "a choice", (-inf, inf), grid=(0.01, 0.005, 0.001)
    )
    sticky: bool = hp(True, "once on, always on", "later code of the author")
    delayed: bool = hp(True, "wait for the trigger", "FedGA 3.1 and 5.4")
    weight_norm: str = hp(
        "none", "divide errors by their sum?", "sum: later code", ("none", "sum")
    )

    def __post_init__(self):
        super().__post_init__()
        if 1 < self.theta < inf:
            raise ValueError(
                f"{type(self).__name__}.theta = {self.theta!r}: a Gini coefficient is "
                "at most 1; give less, or inf"
            )

    def local(self, down, mine, shard):
        a = shard.over(self.share_right, down["w"], "val")  # before training
        mine, up = super().local(down, mine, shard)
        return mine, up | {"acc": a}

    def aggregate(self, server, up, r):
        G = gini(up["acc"])  # eq:gini
        state = self.watch(server, G, r.t)
        on = state["on"] if self.delayed else torch.ones_like(state["on"])
        p = torch.where(on, self.fair(up["acc"]), self.weights(up))
        w = self.combine(server["w"], up["w"], p)
        return state | {"w": w, "log": {"weight": p, "gini": G, "on": on.int()}}

    def fair(self, acc):
        """Weights [M] that sum to one, larger for a lower accuracy acc [M]."""
        e = 1 - acc  # eq:fedga-error
        if self.weight_norm == "sum":
            e = e / e.sum().clamp(min=1e-10)
        return normalize(self.alpha**e)  # eq:fedga-weight


@dataclass(frozen=True)
class FedGAAblation(FedGA):
    """FedGA without the delay: its weights from the first round on.

    The control of FedGA 5.4.
    """

    card = FedGA.card._replace(line="weights by error from the first round on")

    delayed: bool = hp(False, "wait for the trigger", "FedGA 5.4")
