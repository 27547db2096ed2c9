"""Pieces of a server: aggregation rules, and points of the simplex. Server functions see stacked rows [M, ...]."""
from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Mean:
    """sum_i p_i g_i. A rule maps updates G [M, P], weights p [M], the model w and the task to one update [P]."""

    def __call__(self, G, p, w, task):
        return p @ G


@dataclass(frozen=True)
class Median:
    """The median of each coordinate (Yin et al., ICML 2018); takes no notice of p."""

    def __call__(self, G, p, w, task):
        s, n = G.sort(0).values, len(G)
        return (s[(n - 1) // 2] + s[n // 2]) / 2


def project(v):
    """The nearest point of the simplex {p >= 0, sum p = 1} to each row of v [..., n] (Held, Wolfe, Crowder 1974)."""
    u = v.sort(-1, descending=True).values
    c = (u.cumsum(-1) - 1) / torch.arange(1, v.shape[-1] + 1, dtype=v.dtype, device=v.device)
    k = (u > c).sum(-1, keepdim=True) - 1
    return (v - c.gather(-1, k)).clamp(min=0)


def project_box(v, lo, hi, passes=50):
    """The nearest point of {lo <= p <= hi, sum p = 1} to v [n]; bounds [n] with sum lo <= 1 <= sum hi.

    The solution is clamp(v - s, lo, hi) for one number s, found by bisection.
    """
    a, b = (v - hi).min(), (v - lo).max()
    for _ in range(passes):
        s = (a + b) / 2
        low = (v - s).clamp(lo, hi).sum() < 1
        a, b = torch.where(low, a, s), torch.where(low, s, b)
    return (v - (a + b) / 2).clamp(lo, hi)
