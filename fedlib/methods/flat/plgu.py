"""Layer-wise sharpness-aware minimisation: what PLGU's three methods share.

Qu, Li, Han, Duan, Shen, Chen. How to Prevent the Poor Performance Clients for
Personalized Federated Learning. CVPR 2023. A layer is a convolution or linear map with
its norm (`network.units`). Letters: L layers, dim_l weights in layer l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...core.local import Plain
from ...core.method import hp
from ...core.tree import sqnorm, tmap

TINY = 1e-12


@dataclass(frozen=True)
class LayerWise:
    """How far has each layer of a client moved from the common model, and how hard is
    each shaken while it trains?

    A part of a method: it stands before a Method among the bases.

        xi_l = |theta_l - w_l| / dim_l,   then divided by their sum
            the personalisation score                                    eq:plgu-score
        e_l  = rho  L xi_l  g_l / |g|     g the gradient, |g| of all layers
            the perturbation                                             eq:plgu-perturb

    Equal scores, L xi_l = 1, give exactly SAM's perturbation of length rho; the
    paper's sum-one scores would shrink it L-fold. Its equation 4 has ordinary SAM as
    its solution; equation 5, which is the algorithm, has an exponent that would let
    e grow as g vanishes. This is the reading of p = q = 2. At one movement per weight
    small layers have the large scores, because |.|/dim falls with the root of dim;
    `by` = "root" takes this out.
    """

    rho: float = hp(
        0.05,
        "radius of the perturbation",
        grid=(0.05, 0.1, 0.5),
        source="the paper, 6.1 and Table 4",
    )
    perturb: str = hp(
        "all",
        "the layers that are perturbed; none: a control without",
        choices=("all", "none"),
        source="the paper contradicts itself; Algorithm 1 perturbs all",
    )
    scale: str = hp(
        "mean1",
        "scores with mean 1, with sum 1, or a perturbation whose length is rho "
        "whatever they are (renorm, exact)",
        choices=("mean1", "sum1", "renorm", "exact"),
        source="equation 5 has no scale that works",
    )
    by: str = hp(
        "dim",
        "a layer's movement is divided by its number of weights, or by the root of it",
        choices=("dim", "root"),
        source="equation 6: dim",
    )
    layer: str = hp(
        "module",
        "a layer is a module with its norm, or a single tensor",
        choices=("module", "tensor"),
        source="a choice; the paper counts 23 in ResNet-18, modules are 21",
    )

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.step, Plain):
            raise ValueError(
                f"{type(self).__name__}.step = {self.step!r}: it perturbs by itself, "
                "so the step must be Plain()"
            )
        if self.task is not None:
            # a network without proper layers is refused here
            self.units(self.task.shapes)
        if not (isinstance(self.rho, (int, float)) and 0 < self.rho < math.inf):
            raise ValueError(
                (
                    f"{type(self).__name__}.rho = {self.rho!r} is no radius: give a "
                    "finite number above 0"
                )
                + (
                    "; for training without a perturbation give perturb='none'"
                    if self.rho == 0
                    else ""
                )
            )

    def units(self, w):
        """One tuple of names per layer, of the tensors that w holds:
        a body lacks the head.
        """
        units = (
            self.task.layers
            if self.layer == "tensor"
            else getattr(self.task.network, "units", self.task.layers)
        )
        units = (
            units
            if self.layer == "module"
            else tuple((k,) for names in units for k in names)
        )
        return tuple(
            filter(None, (tuple(k for k in names if k in w) for names in units))
        )

    def movement(self, a, b):
        """How far model a is from model b, layer by layer [L]: |a_l - b_l| / dim_l."""
        power = {"dim": 1.0, "root": 0.5}[self.by]
        return torch.stack(
            [
                sqnorm({k: a[k] - b[k] for k in names}).sqrt()
                / sum(a[k].numel() for k in names) ** power
                for names in self.units(b)
            ]
        )

    def scores(self, raw):
        """Movements [L] -> scores [L] with mean 1;
        all 1 where nothing has moved (their sum is 1e-12 or less).
        """
        total = raw.sum()
        # eq:plgu-score
        return torch.where(
            total > TINY, len(raw) * raw / total.clamp(min=TINY), torch.ones_like(raw)
        )

    def perturbation(self, g, s, part=None):
        """e, a tree like the gradient g, from scores s [L] of mean 1; part [L]: 1 for
        layers that are perturbed, None: all.
        """
        if self.perturb == "none":
            return tmap(torch.zeros_like, g)
        units = self.units(g)
        s = s / len(s) if self.scale == "sum1" else s
        s = s if part is None else s * part
        weight = {"mean1": part, "sum1": part, "renorm": s, "exact": s}[self.scale]
        length = sqnorm(g if weight is None else spread(weight, g, units)).sqrt() + TINY
        # eq:plgu-perturb
        return spread(
            self.rho / length * (s * s if self.scale == "exact" else s), g, units
        )

    def twice(self, d, lr, s, fresh=False):
        """Two steps on one batch as one direction: g, then the gradient at the
        perturbed point; s: g -> scores [L].

        Without momentum and decay exactly two steps; these, and running statistics, see
        the pair as one.
        """

        def direction(w, b):
            g = d(w, b)
            after = {k: w[k] - lr * g[k] for k in w}
            e = self.perturbation(d(after, b) if fresh else g, s(g))
            return tmap(torch.add, g, d(tmap(torch.add, after, e), b))

        return direction


def spread(v, tree, units):
    """The tree with every layer l multiplied by v_l; v [L].

    Tensors of no layer (running statistics) become 0.
    """
    of = {k: x for names, x in zip(units, v.unbind()) for k in names}
    return {k: x * of.get(k, 0.0) for k, x in tree.items()}


def mix(own, a, b, units):
    """Layers of a where own [L] holds, of b elsewhere; tensors of no layer are b's."""
    at = {k: i for i, names in enumerate(units) for k in names}
    return {k: torch.where(own[at[k]], a[k], b[k]) if k in at else b[k] for k in b}


def largest(raw, D):
    """Truth values [L]: the D largest of raw [L]; of equal ones the earlier layer."""
    i = torch.arange(len(raw), device=raw.device)
    ahead = (raw[None] > raw[:, None]) | (
        (raw[None] == raw[:, None]) & (i[None] < i[:, None])
    )
    return ahead.sum(1) < D
