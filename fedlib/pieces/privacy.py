"""What noise buys: the epsilon of differentially private SGD."""

import math
import warnings

TENTHS = [1 + i / 10 for i in range(1, 100)]
ORDERS = [1.02, 1.05, *TENTHS, *range(11, 65), 128, 256, 512]  # of Renyi divergences


def epsilon(sigma, batch, n, steps, delta=1e-5):
    """The epsilon of (epsilon, delta)-differential privacy of DP-SGD.

    After `steps` steps on the n rows of one client. Each row joins a batch with
    probability batch / n (Poisson sampling); sigma is the noise in units of the
    clipping norm; data sets are neighbours if one has one row more. Renyi accounting
    (Mironov, Talwar, Zhang, arXiv 1908.10530, 2019): an upper bound. sigma = 0 gives
    infinity, no step 0. ValueError for what no such training has. Needs Opacus.
    """
    if not (sigma >= 0 and 0 < delta < 1 and 0 < batch <= n and steps >= 0):
        raise ValueError(
            f"epsilon(sigma={sigma}, batch={batch}, n={n}, steps={steps}, delta={delta}"
            "): give sigma and steps from 0 on, a batch of the n rows, 0 < delta < 1"
        )
    if not steps or not sigma:
        return math.inf if steps else 0.0
    from opacus.accountants.analysis import rdp  # of fedlib[paper]

    spent = rdp.compute_rdp(
        q=batch / n, noise_multiplier=sigma, steps=int(steps), orders=ORDERS
    )
    # at the first or last order the bound is loose, but it is one
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Optimal order")
        bound, _ = rdp.get_privacy_spent(orders=ORDERS, rdp=spent, delta=delta)
    return max(0.0, float(bound))
