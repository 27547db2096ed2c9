"""How far two clouds of features are apart.

Zero for equal clouds; the order of the rows is irrelevant, except for `l2`.

z [n, D] features of the model that is trained, z0 [n, D] of the model that it should
stay close to, m [n] the rows that count or None. Each returns a scalar.
"""

from __future__ import annotations

import torch

WIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)  # of DomainBed's kernels


def weights(z, m):
    """Equal weights of the rows that count [n], and how many count."""
    m = z.new_ones(len(z)) if m is None else m
    n = m.sum()
    return m / n.clamp(min=1), n


def moments(z, z0, m=None):
    """mean over d of (mean_n z - mean_n z0)^2: first moments only."""
    p, _ = weights(z, m)
    return (p @ (z - z0)).square().mean()


def coral(z, z0, m=None):
    """First and second moments (Sun, Saenko, ECCV Workshops 2016), in the scale of
    DomainBed (Gulrajani, Lopez-Paz, ICLR 2021):

        mean over d of (mean z - mean z0)^2  +  mean over d x d of (Cov z - Cov z0)^2

    The covariances [D, D] are never formed: |Cov z - Cov z0|_F^2 = |A A'|^2 + |B
    B'|^2 - 2 |A B'|^2 for the centred rows A, B [n, D] over sqrt(n - 1). Fewer than two
    rows have no covariance.
    """
    p, n = weights(z, m)
    on = (n > 1).to(z.dtype) / (n - 1).clamp(min=1)
    root = (p * n * on)[:, None].sqrt()  # 0 for padding
    A, B = (root * (v - p @ v) for v in (z, z0))
    apart = (
        (A @ A.T).square().sum()
        + (B @ B.T).square().sum()
        - 2 * (A @ B.T).square().sum()
    )
    return moments(z, z0, m) + apart / z.shape[1] ** 2


def mmd(z, z0, m=None):
    """Maximum mean discrepancy with sums of Gaussian kernels k(a, b) = sum_g exp(-g
    |a - b|^2) (Gretton et al., JMLR 2012).
    """
    p, _ = weights(z, m)

    def k(a, b):
        d = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)
        return p @ sum((-g * d).exp() for g in WIDTHS) @ p

    return k(z, z) + k(z0, z0) - 2 * k(z, z0)


def l2(z, z0, m=None):
    """mean over rows and d of (z - z0)^2: pairs the rows, so it is no distance of
    distributions (a control).
    """
    p, _ = weights(z, m)
    return p @ (z - z0).square().mean(1)


LOSSES = {f.__name__: f for f in (coral, mmd, moments, l2)}


def spread(z, owner):
    """How far domains lie apart in features: the share of the variance of z [n, D] that
    lies between the means of the owners [n].

    0: every domain has the same mean; 1: a domain is one point.
    """
    total = (z - z.mean(0)).square().sum()
    within = sum(
        (z[owner == k] - z[owner == k].mean(0)).square().sum()
        for k in torch.unique(owner)
    )
    return float(1 - within / total)
