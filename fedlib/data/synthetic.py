"""Synthetic(alpha, beta), the data set of Li et al., Federated Optimization in
Heterogeneous Networks, MLSys 2020.

Client k has its own linear teacher and its own place in input space:

    u_k ~ N(0, alpha)          the mean of the teacher's weights; changes no label
    B_k ~ N(0, beta)           how far the inputs differ
    v_k ~ N(B_k, 1)            [60], the centre of the client's inputs
    W_k, b_k ~ N(u_k, 1)       [60, 10], [10]
    x ~ N(v_k, diag(j^-1.2))   [n_k, 60], j = 1 .. 60
    y = argmax(x W_k + b_k)    no label noise

alpha and beta are standard deviations, as in the released generator. (0, 0) is not the
same task on every client: each client still draws its own W_k, b_k and v_k. u_k adds
the same to all ten scores of a row, so alpha alone, with the sizes and the draw kept,
changes no label: teachers differ as much at alpha = 0.
"""

from typing import Literal

import numpy as np
import torch

from ..core.errors import check_bytes, refuse_if
from ..core.pool import Pool
from .settings import Amount, Count, Draw, Some, settings

INPUTS, K = 60, 10

# Test rows per client in the files published with FedProx. The files hold a tenth of
# each client, rounded up, as test rows, so n_k = 10 c_k - 5 recovers the client's size
# to within 5; no client has fewer than 50 rows.
PUBLISHED = """
0.0: 58 5 6 6 24 163 18 10 7 9 6 6 12 14 169 55 21 8 21 82 6 56 11 6 8 15 6 72 7 10
0.5: 5 7 40 11 6 12 8 37 21 20 10 5 33 465 8 9 20 6 11 9 6 6 62 6 15 11 19 18 11 15
1.0: 8 18 9 17 16 50 14 9 6 19 17 6 9 6 7 662 6 13 7 12 8 5 6 44 6 14 31 45 8 6
"""
PUBLISHED = (line.split(":") for line in PUBLISHED.strip().splitlines())
PUBLISHED = {(float(k),) * 2: tuple(map(int, n.split())) for k, n in PUBLISHED}
CLIENTS = 30


def published_sizes(alpha: float, beta: float) -> np.ndarray:
    """Rows per client [30] of the published Synthetic(alpha, beta)."""
    counts = PUBLISHED.get((float(alpha), float(beta)))
    none = f"Synthetic({alpha:g}, {beta:g}) has no published client sizes"
    known = ", ".join(f"({a:g}, {b:g})" for a, b in PUBLISHED)
    refuse_if(counts is None, f'{none} (known: {known}); use sizes="lognormal"')
    return np.maximum(50, 10 * np.array(counts) - 5)


@settings
def synthetic(
    alpha: Amount,
    beta: Amount,
    sizes: Literal["published", "lognormal"] | Some[Count] = "published",
    draw: Draw = 0,
) -> Pool:
    """Synthetic(alpha, beta) as a Pool whose owner is the client.

    sizes  "published" (30 clients, the sizes of the files published with FedProx),
           "lognormal" (30 fresh sizes, floor(LogNormal(4, 2)) + 50, drawn first) or a
           list with one number of rows per client
    draw   which data set: the random state of numpy's RandomState. 0 is the default
           data set; seeds of a run never change it

    Order of draws: [lognormal sizes,] all u_k, all B_k, all v_k, then client after
    client W_k, b_k and the noise of x.
    """
    rng = np.random.RandomState(draw)
    n = _sizes(sizes, alpha, beta, rng)
    C = len(n)
    u, B = rng.normal(0, alpha, C), rng.normal(0, beta, C)
    v = rng.normal(B[:, None], 1, (C, INPUTS))  # [C, 60]
    spread = np.arange(1, INPUTS + 1) ** -0.6  # so that the variance is j^-1.2
    x, y = [], []
    for k in range(C):
        W, b = rng.normal(u[k], 1, (INPUTS, K)), rng.normal(u[k], 1, K)
        xk = v[k] + spread * rng.standard_normal((n[k], INPUTS))
        x.append(xk)
        y.append((xk @ W + b).argmax(1))
    name, owners = f"Synthetic({alpha:g}, {beta:g})", [f"client {k}" for k in range(C)]
    x, y = (torch.from_numpy(np.concatenate(v)) for v in (x, y))
    owner = torch.from_numpy(np.repeat(np.arange(C), n))
    return Pool(name, x.float(), y, K, "synthetic", owner, tuple(owners))


def _sizes(sizes, alpha, beta, rng) -> np.ndarray:
    """Rows per client, see `synthetic`."""
    if sizes == "published":
        return published_sizes(alpha, beta)
    if sizes == "lognormal":
        return np.floor(rng.lognormal(4, 2, CLIENTS)).astype(int) + 50
    check_bytes("synthetic: sizes", sum(sizes) * INPUTS * 8)
    return np.array(sizes, dtype=int)
