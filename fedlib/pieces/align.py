"""Distances between two clouds of features.

Zero for equal clouds; the order of the rows is irrelevant, except for `l2`. z [n, D]
features of the model that is trained, z0 [n, D] of the model that it should stay close
to, m [n] the rows that count or None. Each returns a scalar.
"""

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
    """First and second moments (CORAL: Sun, Saenko, ECCV Workshops 2016).

        mean over d of (mean z - mean z0)^2  +  mean over d x d of (Cov z - Cov z0)^2

    in the scale of DomainBed (Gulrajani, Lopez-Paz, ICLR 2021).

    The covariances [D, D] are never formed:

        |Cov z - Cov z0|_F^2 = |A A'|^2 + |B B'|^2 - 2 |A B'|^2

    for the centred rows A, B [n, D] over sqrt(n - 1). Fewer than two rows have no
    covariance.
    """
    p, n = weights(z, m)
    share = (n > 1).to(z.dtype) / (n - 1).clamp(min=1)
    root = (p * n * share)[:, None].sqrt()  # 0 for padding
    A, B = (root * (v - p @ v) for v in (z, z0))
    AA, BB, AB = ((X @ Y.T).square().sum() for X, Y in ((A, A), (B, B), (A, B)))
    return moments(z, z0, m) + (AA + BB - 2 * AB) / z.shape[1] ** 2


def mmd(z, z0, m=None):
    """Maximum mean discrepancy (Gretton et al., JMLR 2012) with sums of Gaussian
    kernels, k(a, b) = sum_g exp(-g |a - b|^2)."""
    p, _ = weights(z, m)

    def k(a, b):
        d = (a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T).clamp(min=0)
        return p @ sum((-g * d).exp() for g in WIDTHS) @ p

    return k(z, z) + k(z0, z0) - 2 * k(z, z0)


def l2(z, z0, m=None):
    """mean over rows and d of (z - z0)^2 (a control): it pairs the rows."""
    p, _ = weights(z, m)
    return p @ (z - z0).square().mean(1)


LOSSES = {f.__name__: f for f in (coral, mmd, moments, l2)}


def spread(z, owner):
    """The share of the variance of features z [n, D] between domains, owner [n]: 0
    where all have the same mean, 1 where each is one point."""
    variance = lambda v: (v - v.mean(0)).square().sum()
    within = sum(variance(z[owner == k]) for k in torch.unique(owner))
    return float(1 - within / variance(z))
