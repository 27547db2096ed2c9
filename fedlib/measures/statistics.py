"""How sure a number is: intervals over seeds, paired differences, and average ranks
over settings.

S seeds, M methods, N settings (data sets). Missing values are refused, not skipped.
"""

import math
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import special, stats

from ..core.errors import refuse_if

LEVEL = 0.95


class Interval(NamedTuple):
    """A mean over n values with the ends of its interval, nan for too few values."""

    mean: float
    lo: float
    hi: float
    n: int

    @property
    def half(self):
        """Half the width of the interval."""
        return (self.hi - self.lo) / 2

    def __neg__(self):
        return Interval(-self.mean, -self.hi, -self.lo, self.n)


def interval(x):
    """The mean of x [S] and Student's interval for it -> Interval.

    mean +- t(95 %, S-1) s / sqrt(S), with s the sample standard deviation (ddof 1);
    assumes that the mean over seeds is near normal. ValueError for no values, or one
    that is not finite.
    """
    x = np.asarray(x, dtype=float).ravel()
    finite = x.size and np.isfinite(x).all()
    refuse_if(not finite, f"interval of {x.tolist()}: give finite values, one a seed")
    mean, n = float(x.mean()), x.size
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = special.stdtrit(n - 1, (1 + LEVEL) / 2) * x.std(ddof=1) / math.sqrt(n)
    return Interval(mean, float(mean - half), float(mean + half), n)


def paired(a, b):
    """The interval of the differences a - b [S] of the same seeds.

    Give two Series (or dicts) keyed by seed, which are matched by seed, or two
    sequences in the same order of seeds. Two methods of one seed share split, initial
    weights and batches, so what is common to both cancels. ValueError when the seeds
    are not the same.
    """
    a, b = (pd.Series(v, dtype=float) for v in (a, b))
    seeds = pd.concat([a, b]).index.value_counts()
    alike = a.index.is_unique and b.index.is_unique and (seeds == 2).all()
    odd = ", ".join(map(str, seeds.index[seeds != 2].sort_values()))
    refuse_if(not alike, f"paired: seeds {odd}: each side needs each seed once")
    return interval(a - b.loc[a.index])


class Ranks(NamedTuple):
    """Average ranks [M] (1 is best), best first; methods less than `cd` apart cannot be
    told apart (Nemenyi, 95 %)."""

    ranks: pd.Series
    cd: float
    p: float  # of Friedman's test that all methods are alike
    pairs: pd.DataFrame  # [M, M] Nemenyi's p for each pair
    n: int


def average_ranks(table, higher_is_better=True):
    """Friedman's and Nemenyi's tests over settings (Demsar, JMLR 2006): table [N, M] ->
    Ranks.

        CD = q(95 %, M) sqrt(M (M + 1) / (6 N))

    where q is the quantile of the studentised range (df inf) over sqrt(2). Ties share
    their average rank. ValueError for gaps in the table; it needs three methods.
    """
    import scikit_posthocs  # here, since it takes a second to load

    table = pd.DataFrame(table).astype(float)
    n, m = table.shape
    gaps = [*table.isna().stack().loc[lambda gap: gap].index]
    refuse_if(gaps, f"average_ranks: no value at {gaps}; drop a method or a setting")
    ranks = table.rank(axis=1, ascending=not higher_is_better)
    p = float(stats.friedmanchisquare(*(table[c] for c in table)).pvalue)
    q = stats.studentized_range.ppf(LEVEL, m, np.inf) / math.sqrt(2)
    cd = q * math.sqrt(m * (m + 1) / (6 * n))
    pairs = scikit_posthocs.posthoc_nemenyi_friedman(ranks.to_numpy())
    pairs.index = pairs.columns = table.columns
    return Ranks(ranks.mean().sort_values(kind="stable"), float(cd), p, pairs, n)


def smooth(values, window: int) -> np.ndarray:
    """Moving average of values [..., E] over `window` entries, shorter at ends."""
    v = np.asarray(values, float)
    total = np.concatenate([np.zeros((*v.shape[:-1], 1)), np.cumsum(v, -1)], -1)
    i = np.arange(v.shape[-1])
    low = np.maximum(i - (window - 1) // 2, 0)
    high = np.minimum(i + window // 2 + 1, v.shape[-1])
    return (total[..., high] - total[..., low]) / (high - low)


def silverman(values) -> float:
    """Silverman's width for percentages [n]; equal ones are spread over two points."""
    iqr = np.subtract(*np.percentile(values, [75, 25])) / 1.349
    spread = min((s for s in (np.std(values), iqr) if s > 0), default=2.0)
    return 0.9 * spread * len(values) ** -0.2


def kde(values, grid) -> np.ndarray:
    """Density [G] of percentages [n]; Silverman's width, mirrored at 0 and 100."""
    v = np.asarray(values, float).ravel()
    width = silverman(v)
    v, n = np.unique(v, return_counts=True)  # many clients are equally accurate
    v = np.concatenate([v, -v, 200 - v])
    z = (np.asarray(grid)[:, None] - v) / width
    with np.errstate(under="ignore"):  # far away there is nothing
        heights = np.exp(-z * z / 2) @ np.tile(n, 3)
    return heights / (width * np.sqrt(2 * np.pi) * n.sum())
