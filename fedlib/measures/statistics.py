"""How sure a number is: intervals over seeds, paired differences, and average ranks
over settings.

S seeds, M methods, N settings (data sets). Missing values are refused, not skipped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats


class Interval(NamedTuple):
    """A mean over n values with the ends of its interval; one value has no interval (lo
    and hi are nan).
    """

    mean: float
    lo: float
    hi: float
    n: int
    level: float
    how: str

    @property
    def half(self):
        """Half the width of the interval; nan for one value."""
        return (self.hi - self.lo) / 2

    def __str__(self):
        if self.n == 1:
            return f"{self.mean:.4g} (one seed, no interval)"
        return f"{self.mean:.4g} ([{self.lo:.4g}, {self.hi:.4g}], {self.n} seeds)"


def interval(x, level=0.95, how="t", draws=10_000, seed=0):
    """The mean of x [S] and an interval for it -> Interval.

    how="t": mean +- t(level, S-1) s / sqrt(S), with s the sample standard deviation
    (ddof 1); assumes that the mean over seeds is near normal. how="bootstrap": the
    percentile interval of the means of `draws` resamples; assumes nothing about the
    shape but is too narrow for fewer than about ten seeds. ValueError for no values,
    or one that is not finite.
    """
    x = np.asarray(x, dtype=float).ravel()
    if not x.size or not np.isfinite(x).all():
        raise ValueError(
            f"interval of {x.tolist()}: give finite values, one for each seed"
        )
    mean, n = float(x.mean()), x.size
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1, level, how)
    if how == "t":
        half = stats.t.ppf((1 + level) / 2, n - 1) * x.std(ddof=1) / math.sqrt(n)
        lo, hi = mean - half, mean + half
    elif how == "bootstrap":
        rng = np.random.default_rng(seed)
        means = x[rng.integers(n, size=(draws, n))].mean(1)
        lo, hi = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    else:
        raise ValueError(f"interval(how={how!r}): choose 't' or 'bootstrap'")
    return Interval(mean, float(lo), float(hi), n, level, how)


def paired(a, b, **how):
    """The interval of the differences a - b [S] of the same seeds; `how` goes to
    `interval`.

    Give two Series (or dicts) keyed by seed, which are matched by seed, or two
    sequences in the same order of seeds. Two methods of one seed share split, initial
    weights and batches, so what is common to both cancels. ValueError when the seeds
    are not the same.
    """
    if isinstance(a, (pd.Series, dict)) and isinstance(b, (pd.Series, dict)):
        a, b = pd.Series(a, dtype=float), pd.Series(b, dtype=float)
        seeds = pd.concat([a, b]).index.value_counts()
        if a.index.has_duplicates or b.index.has_duplicates or (seeds != 2).any():
            odd = ", ".join(map(str, seeds.index[seeds != 2].sort_values()))
            raise ValueError(f"paired: seeds {odd}: each side needs each seed once")
        b = b.loc[a.index]
    a, b = np.asarray(a, dtype=float).ravel(), np.asarray(b, dtype=float).ravel()
    if a.size != b.size:
        raise ValueError(
            f"paired: {a.size} values against {b.size}; compare runs of the same seeds"
        )
    return interval(a - b, **how)


class Ranks(NamedTuple):
    """Average ranks [M] (1 is best), best first; methods less than `cd` apart cannot be
    told apart (Nemenyi)."""

    ranks: pd.Series
    cd: float
    p: float  # of Friedman's test that all methods are alike
    pairs: pd.DataFrame  # [M, M] Nemenyi's p for each pair
    n: int
    level: float


def average_ranks(table, higher_is_better=True, level=0.95):
    """Friedman's and Nemenyi's tests over settings (Demsar, JMLR 2006): table [N, M] ->
    Ranks.

        CD = q(level, M) sqrt(M (M + 1) / (6 N))

    where q is the quantile of the studentised range (df inf) over sqrt(2). Ties share
    their average rank. ValueError for gaps in the table; it needs three methods.
    """
    import scikit_posthocs  # here, since it takes a second to load

    table = pd.DataFrame(table).astype(float)
    n, m = table.shape
    if table.isna().any(axis=None):
        setting, method = table.isna().stack().idxmax()
        raise ValueError(
            f"average_ranks: {method} has no value on {setting}; drop the method or "
            "the setting"
        )
    ranks = table.rank(axis=1, ascending=not higher_is_better)
    p = float(stats.friedmanchisquare(*(table[c] for c in table)).pvalue)
    q = stats.studentized_range.ppf(level, m, np.inf) / math.sqrt(2)
    cd = q * math.sqrt(m * (m + 1) / (6 * n))
    pairs = scikit_posthocs.posthoc_nemenyi_friedman(ranks.to_numpy())
    pairs.index = pairs.columns = table.columns
    return Ranks(ranks.mean().sort_values(kind="stable"), float(cd), p, pairs, n, level)


def smooth(values, window: int) -> np.ndarray:
    """Centred moving average of values [..., E] over `window` entries, 1 or more;
    shorter at both ends.
    """
    v = np.asarray(values, float)
    total = np.concatenate([np.zeros((*v.shape[:-1], 1)), np.cumsum(v, -1)], -1)
    i = np.arange(v.shape[-1])
    low = np.maximum(i - (window - 1) // 2, 0)
    high = np.minimum(i + window // 2 + 1, v.shape[-1])
    return (total[..., high] - total[..., low]) / (high - low)


def silverman(values, bounds=(0, 100)) -> float:
    """Silverman's width of a Gaussian kernel for values [n]; equal values are spread
    over a fiftieth of the bounds.
    """
    iqr = np.subtract(*np.percentile(values, [75, 25])) / 1.349
    spread = min((s for s in (np.std(values), iqr) if s > 0), default=np.inf)
    if not np.isfinite(spread):
        spread = (bounds[1] - bounds[0]) / 50
    return 0.9 * spread * len(values) ** -0.2


def kde(values, grid, bounds=(0, 100)) -> np.ndarray:
    """Density [G] of values [n] on grid [G]; Gaussian kernel, Silverman's width,
    mirrored at the bounds so mass stays.
    """
    v = np.asarray(values, float).ravel()
    width = silverman(v, bounds)
    v = np.concatenate([v, 2 * bounds[0] - v, 2 * bounds[1] - v])
    z = (np.asarray(grid)[:, None] - v) / width
    return np.exp(-z * z / 2).sum(1) / (width * np.sqrt(2 * np.pi) * len(v) / 3)
