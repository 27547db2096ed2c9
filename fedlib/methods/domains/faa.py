"""Weights that make the generalisation gaps of the clients equal."""

from dataclasses import dataclass
from math import inf

import torch

from ...core.method import Card, hp
from ...core.tree import normalize
from ...pieces import simplex
from .gapped import Gapped


@dataclass(frozen=True)
class FAA(Gapped):
    """Fairness-aware aggregation: weights that minimise the variance of the gaps.

    Zhang, Fan, Yao, Zhang, Wang. Fairness-guided federated training for generalization
    and personalization in cross-silo federated learning. FITEE 26(1), 2025. The text at
    hand states the aim and prints no formula: the rule is ours. More weight on i moves
    w towards w_i and lowers G_i, so descent on Var(G) raises the weight of a client
    whose gap is above the mean:

        z_i  = clip((G_i - mean G) / mean |G|, -1, 1)                        eq:faa-z
        a_i <- a_i exp(eta z_i) / Z                                          eq:faa-step

    then clipped to [floor, ceiling] / C, over its sum.

    timing "probe": with the models w_i of this round fixed, from uniform weights,
    `trials` times: average, send the trial out, get its gaps at once, step with eta
    0.7^q; the weights with the smallest Var(G) are used, so it never exceeds that of
    uniform weights on these rows. Costs `trials` more downloads per round. "lagged":
    one step per round from the gaps of eq:gap, smoothed G <- beta G + (1 - beta) G_new,
    with eta (1 - t/R), as GA has it.

    form: "mirror" is eq:faa-z; "mirror_std" divides by the deviation instead (a step of
    constant length); "additive" adds eta z_i / C with z over max |z|, GA's step,
    centred; "closed" a_i ~ a_i G_i, which would equalise gaps that fall as 1 / a_i.
    """

    plans_ahead = True
    card = Card("zhang2025fftgp", "weights that minimise the variance of the gaps")

    timing: str = hp(
        "probe", "gaps of trials, or of the last average", "ours", ("probe", "lagged")
    )
    form: str = hp(
        "mirror", "the step", "ours", ("mirror", "mirror_std", "additive", "closed")
    )
    eta: float = hp(
        0.5, "step of the weights", "ours", (0, 50), grid=(0.05, 0.1, 0.3, 0.5, 1.0)
    )
    trials: int = hp(4, "trial averages per round (probe)", "ours", (1, 100), grid=(4,))
    beta: float = hp(0.6, "smoothing of the gaps (lagged)", "ours", (0, 1))
    floor: float = hp(0.25, "smallest weight, times C", "ours", (0, 1))
    ceiling: float = hp(
        2.0, "largest weight, times C", "the authors' later code", (1, inf)
    )

    def __post_init__(self):
        super().__post_init__()
        # a mirror step stays inside whatever its length
        if self.form in ("additive", "closed") and self.eta > 1:
            who = f"{type(self).__name__}.eta = {self.eta}"
            raise ValueError(f"{who}: a step out of the simplex; give 1 or less")

    def aggregate(self, server, up, r):
        if self.timing == "lagged":
            return self.lagged(server, up, r)
        a, best, least = normalize(torch.ones_like(server["a"])), None, None
        for q in range(self.trials):
            w = self.combine(server["w"], up["w"], a)
            G = r.ask(self.report, {"w": w})["gap"]
            var = G.var(unbiased=False)
            if best is None or var < least:
                best, least = {"w": w, "a": a, "smooth": G}, var
            a = self.moved(a, G, self.eta * 0.7**q)
        return best | {"log": {"weight": best["a"], "gap": best["smooth"]}}

    def lagged(self, server, up, r):
        """timing "lagged": one step from the smoothed gaps of the last average."""
        G, a = up["gap"], server["a"]
        if r.t > 1:
            G = self.beta * server["smooth"] + (1 - self.beta) * G
        if r.t:
            a = self.moved(a, G, self.eta * (1 - r.t / r.R))
        return self.weighed(server, up, a, G)

    def report(self, trial, mine, shard):
        """The gap of a trial average, against the model this client just uploaded."""
        return {"gap": self.cost(trial["w"], shard) - mine["cost"]}

    def moved(self, a, G, eta):
        """Weights [C] after one step against gaps G [C]; tiny gaps move nothing."""
        size, c = G.abs().mean(), G - G.mean()
        if self.form == "closed":
            new = (1 - eta) * a + eta * normalize((a * G).clamp(min=1e-8))
        elif self.form == "additive":
            new = simplex.additive(a, c / c.abs().max().clamp(min=1e-6), eta)
        else:
            std = c.square().mean().sqrt().clamp(min=1e-6)
            z = c / (size + 1e-8 if self.form == "mirror" else std)
            z = z.clamp(-1, 1)  # eq:faa-z
            new = simplex.mirror(a, z, eta)  # eq:faa-step
        new = simplex.bounded(new, self.floor, self.ceiling)
        return torch.where(size < 1e-6, a, new)


@dataclass(frozen=True)
class FAALagged(FAA):
    """FAA without extra traffic: the gaps travel with the uploads, one step a round."""

    card = FAA.card._replace(line="FAA without extra traffic: gaps are one round old")

    timing: str = hp(
        "lagged", "gaps of trials, or of the last average", "GA", ("probe", "lagged")
    )
    eta: float = hp(
        0.2, "step of the weights", "GA's d_0", (0, 50), grid=(0.05, 0.1, 0.2, 0.3, 1.0)
    )
