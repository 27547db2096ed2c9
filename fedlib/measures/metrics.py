"""From the vector of clients' accuracies to one number.

Every function takes a [..., C], accuracies of C clients as fractions, and returns
[...]. Each client counts once, whatever its size. Works on numpy arrays. Formulas as in
FedGA, section 4 and 5.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def mean_acc(a: ArrayLike) -> Any:
    """Mean over clients."""
    return np.mean(a, -1)


def pooled_acc(a: ArrayLike, n: ArrayLike) -> Any:
    """Share of all clients' rows together that are right; n [C] rows of each client.
    The exception: here size counts.
    """
    return np.asarray(a) @ (np.asarray(n) / np.sum(n))


def std_acc(a: ArrayLike) -> Any:
    """Population standard deviation over clients (ddof 0; forced by FedGA, Table 6)."""
    return np.std(a, -1)


def _group(a, part):
    a = np.sort(np.asarray(a), -1)
    return a, max(1, int(part * a.shape[-1] + 1e-9))


def worst(a: ArrayLike, part: float = 0.1) -> Any:
    """Mean of the lowest max(1, floor(part C)) accuracies."""
    a, k = _group(a, part)
    return a[..., :k].mean(-1)


def best(a: ArrayLike, part: float = 0.1) -> Any:
    """Mean of the highest max(1, floor(part C)) accuracies."""
    a, k = _group(a, part)
    return a[..., -k:].mean(-1)


def gap(a: ArrayLike, part: float = 0.1) -> Any:
    """Top group minus bottom group."""
    return best(a, part) - worst(a, part)


def gini(a: ArrayLike) -> Any:
    """Gini coefficient of m clients: 0 when all are equal, 1 when one client has
    everything (FedGA 4).

        sum_ij |a_i - a_j| / (2 (m - 1) sum_i a_i)

    By sorting, O(m log m). The denominator is m - 1, not m; 1e-10 is added to every
    accuracy. NaN for one client.
    """
    a = np.sort(np.asarray(a, dtype=np.float64), -1) + 1e-10
    m = a.shape[-1]
    i = np.arange(1, m + 1)
    return 2 * ((2 * i - m - 1) * a).sum(-1) / (2 * (m - 1 or np.nan) * a.sum(-1))


def avg_diff(a: ArrayLike) -> Any:
    """Mean absolute difference of two different clients, 2 mean(a) G (FedGA 29)."""
    return 2 * mean_acc(a) * gini(a)


def jain(a: ArrayLike) -> Any:
    """Jain's index (sum a)^2 / (m sum a^2): 1 when all are equal, 1/m when one client
    has everything (Jain et al. 1984).
    """
    a = np.asarray(a)
    return a.sum(-1) ** 2 / np.maximum(a.shape[-1] * (a * a).sum(-1), 1e-300)
