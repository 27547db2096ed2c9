"""Steps: a loss becomes a direction (w, batch) -> tree. The table STEPS."""

from dataclasses import dataclass

import torch

from ..core.errors import check_number, check_positive
from ..core.local import Plain, grad
from ..core.random import fold, normal, tag
from ..core.tree import add, leaves, scale, sqnorm, tmap


@dataclass(frozen=True)
class SAM:
    """The gradient at the worst point of a ball of radius rho (Foret et al.,
    ICLR 2021, eq. 3)."""

    rho: float = 0.05

    def __post_init__(self):
        check_number("SAM.rho", self.rho, 0, why=", the radius of the ball")

    def __call__(self, loss):
        d = grad(loss)

        def g(w, b):
            e = d(w, b)
            return d(add(w, scale(e, self.rho / (sqnorm(e).sqrt() + 1e-12))), b)

        return g


@dataclass(frozen=True)
class Private:
    """The gradient of DP-SGD (Abadi et al., CCS 2016): every row's gradient is clipped,
    noise is added to their sum.

        g = (sum_i g_i min(1, clip / |g_i|) + sigma clip z) / B,   z ~ N(0, I)

    B is the nominal batch size, so with `poisson` batches the noise fits what
    `privacy.epsilon` counts (an empty batch, one in e^B, is left out).
    sigma = 0 clips, too.
    """

    clip: float = 1.0
    sigma: float = 1.0
    per_row = True  # so no layer may mix the rows of a batch

    def __post_init__(self):
        check_positive("Private.clip", self.clip, ", the longest gradient of a row")
        check_number("Private.sigma", self.sigma, 0, why=", noise in units of clip")

    def __call__(self, loss):
        def g(w, b):
            w = tmap(torch.Tensor.detach, w)
            rows = {"x": b.x, "y": b.y, "row": b.row}
            rows |= {} if b.a is None else {"a": b.a}

            def of_row(row):
                alone = b._replace(**tmap(lambda v: v[None], row), m=None)
                return torch.func.grad(loss)(w, alone)

            G = torch.func.vmap(of_row)(rows)  # [B, ...]
            length = sum(v.flatten(1).square().sum(1) for v in leaves(G)).sqrt()  # [B]
            s = (self.clip / length.clamp(min=1e-12)).clamp(max=1)
            s = s if b.m is None else s * b.m
            total = tmap(lambda v: torch.tensordot(s, v, 1), G)
            z = normal(fold(b.key, tag("privacy")), w)
            return scale(add(total, z, self.sigma * self.clip), 1 / b.size)

        return g


STEPS = {"Plain": Plain, "SAM": SAM, "Private": Private}
