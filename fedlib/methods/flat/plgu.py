"""Layer-wise sharpness-aware minimisation: what PLGU's three methods share.

Qu, Li, Han, Duan, Shen, Chen. How to Prevent the Poor Performance Clients for
Personalized Federated Learning. CVPR 2023. A layer is a convolution or linear map with
its norm (`network.units`). Letters: L layers, dim_l weights in layer l.
"""

from dataclasses import dataclass

import torch

from ...core.local import Plain
from ...core.method import hp
from ...core.tree import sqnorm, tmap
from ..base.fedavg import only

TINY = 1e-12


@dataclass(frozen=True)
class LayerWise:
    """Each layer's personalisation score, and a perturbation in proportion to it.

    A part of a method: it stands before a Method among the bases.

        m_l  = |theta_l - w_l| / dim_l            movement from the common model w
        xi_l = m_l / sum_l m_l                    personalisation score  eq:plgu-score
        e_l  = rho  L xi_l  g_l / |g|             perturbation           eq:plgu-perturb

    g: the gradient, |g| over all layers. In the code s_l = L xi_l, scores with mean 1.
    Equal ones, s_l = 1, give exactly SAM's perturbation of length rho; the
    paper's sum-one scores would shrink it L-fold. Its equation 4 has ordinary SAM as
    its solution; equation 5, which is the algorithm, has an exponent that would let
    e grow as g vanishes. This is the reading of p = q = 2. scale: scores with mean 1 or
    sum 1; "renorm" and "exact" give e the length rho whatever they are. |.| / dim falls
    with the root of dim, so small layers have the large scores; `by` = "root" takes
    this out. perturb = "none" is a control.
    """

    rho: float = hp(
        0.05, "radius of the perturbation", "the paper, 6.1", grid=(0.05, 0.1, 0.5)
    )
    perturb: str = hp("all", "which layers", "Algorithm 1: all", ("all", "none"))
    scale: str = hp(
        "mean1", "of s, or of e", "a choice", ("mean1", "sum1", "renorm", "exact")
    )
    by: str = hp("dim", "what a movement is divided by", "equation 6", ("dim", "root"))
    layer: str = hp("module", "with its norm, or not", "a choice", ("module", "tensor"))

    def __post_init__(self):
        super().__post_init__()
        only(self, "step", Plain, "this method perturbs by itself")
        if self.task is not None:
            # a network without proper layers is refused here
            self.units(self.task.shapes)
        if not self.rho:
            name = type(self).__name__
            raise ValueError(f"{name}.rho = 0: give more, or perturb = 'none'")

    def units(self, w):
        """One tuple of names per layer, of the tensors in w (a body lacks the head)."""
        layers, network = self.task.layers, self.task.network
        units = getattr(network, "units", layers)
        if self.layer == "tensor":
            units = [(k,) for names in layers for k in names]
        inside = (tuple(k for k in names if k in w) for names in units)
        return tuple(names for names in inside if names)

    def movement(self, a, b):
        """How far model a is from model b, layer by layer [L]: |a_l - b_l| / dim_l."""
        power = {"dim": 1.0, "root": 0.5}[self.by]

        def moved(names):
            dim = sum(a[k].numel() for k in names)
            return sqnorm({k: a[k] - b[k] for k in names}).sqrt() / dim**power

        return torch.stack([moved(names) for names in self.units(b)])

    def scores(self, m):
        """Movements m [L] -> scores [L] with mean 1; all 1 where nothing has moved."""
        total, L = m.sum(), len(m)
        s = L * m / total.clamp(min=TINY)  # eq:plgu-score
        return torch.where(total > TINY, s, torch.ones_like(m))

    def perturbation(self, g, s, part=None):
        """e, a tree like the gradient g, from scores s [L] of mean 1.

        part [L]: 1 for layers that are perturbed, 0 for the others; None: all.
        """
        if self.perturb == "none":
            return tmap(torch.zeros_like, g)
        units, s = self.units(g), s / len(s) if self.scale == "sum1" else s
        s = s if part is None else s * part
        # |g| of the perturbed layers, or of g as the scores weigh it
        weight = s if self.scale in ("renorm", "exact") else part
        length = sqnorm(g if weight is None else spread(weight, g, units)).sqrt() + TINY
        factor = s * s if self.scale == "exact" else s
        return spread(self.rho / length * factor, g, units)  # eq:plgu-perturb

    def twice(self, gradient, lr, s, fresh=False):
        """Two steps on one batch as one direction (w, batch) -> tree.

        The first is along g, the second along the gradient at the perturbed point; s: g
        -> scores [L]. fresh: the perturbation follows a gradient taken after the first
        step. Without momentum and decay exactly two steps; these, and running
        statistics, see the pair as one.
        """

        def direction(w, b):
            g = gradient(w, b)
            after = {k: w[k] - lr * g[k] for k in w}
            e = self.perturbation(gradient(after, b) if fresh else g, s(g))
            return tmap(torch.add, g, gradient(tmap(torch.add, after, e), b))

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


def largest(m, D):
    """Truth values [L]: the D largest of m [L]; of equal ones the earlier layer."""
    i = torch.arange(len(m), device=m.device)
    earlier = (m[None] == m[:, None]) & (i[None] < i[:, None])
    before = (m[None] > m[:, None]) | earlier  # [L, L]: column before row
    return before.sum(1) < D
