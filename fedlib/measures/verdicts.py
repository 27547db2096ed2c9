"""When is a difference decided? Better, worse, alike, or not yet.

d [..., S] are paired differences of two methods, one for each of S seeds, turned so
that a positive one speaks for the sentence. The smallest difference that anybody would
care about is its margin. With [lo, hi] the interval of the mean of d at level
1 - LEVEL:

    yes         lo > 0                         better
    no          hi < 0                         worse
    alike       -margin < lo and hi < margin   no difference worth the margin
    undecided   else

Every verdict is a one-sided test that errs in LEVEL / 2: Student's t against 0, and for
"alike" two of them against the margins (TOST, Schuirmann 1987). A sentence about
several differences is put together from their p values (`all_of`, `any_of`): where all
must hold, the largest counts (Berger 1982); where one is enough, Holm's correction
makes up for the choice.

Seeds may be added at LOOKS and nowhere between, and each look judges anew. LEVEL is
lower than ALPHA so that all looks together err in ALPHA (Pocock 1977, for t instead of
z): benchmarks.verdicts simulates it, for sentences of each kind.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import special, stats

from ..core.errors import refuse_if
from .statistics import Interval

LOOKS = (5, 10, 20, 40)  # seeds at which a study is looked at
LEAST = LOOKS[0]  # fewer never decide
ALPHA = 0.05  # wrong decisions, yes and no, of all looks together under no difference
LEVEL = 0.0151  # the same at one look
DECIDED = ("yes", "no", "alike")
ENDS = LEVEL / 2, 1 - LEVEL / 2


class P(NamedTuple):
    """One-sided p: above 0, below 0, above -margin, below margin; 1: untestable."""

    yes: np.ndarray | float
    no: np.ndarray | float
    low: np.ndarray | float = 1.0
    high: np.ndarray | float = 1.0

    @property
    def alike(self):
        """p of "it lies between -margin and margin"."""
        return np.maximum(self.low, self.high)


# ---------------------------------------------------------------- one difference
def span(d, width=0.0):
    """The Interval of differences d [S] at level 1 - LEVEL, from LEAST seeds on.
    ValueError for values that are not finite.

    width: of the interval where d does not vary, because counts of rows coincide.
    """
    d = np.asarray(d, float)
    finite = d.size and np.isfinite(d).all()
    refuse_if(not finite, f"differences {d.tolist()}: give finite ones, at least one")
    if d.size < LEAST:
        return Interval(float(d.mean()), math.nan, math.nan, d.size)
    mean, error = mean_and_error(d)
    lo, hi = (q * error + mean for q in special.stdtrit(d.size - 1, ENDS))
    if constant(d):
        lo, hi = d[0] - width / 2, d[0] + width / 2
    return Interval(*map(float, (mean, lo, hi)), d.size)


def constant(d):
    """Are differences d [..., S] the same for all seeds? -> [...]"""
    return np.ptp(d, axis=-1) <= 1e-12 * np.abs(d).max(axis=-1)


def single(d, margin, width=0.0):
    """P [...] of "d is positive", d [..., S]; width: see `span`; constant d: 0 or 1."""
    p = beyond(d, width)
    low, high = (p(sign, -margin) if margin else 1.0 for sign in (1, -1))
    return P(p(1, 0), p(-1, 0), low, high)


def beyond(d, width=0.0):
    """(sign, least) -> p [...] of "sign * d is larger than least"; d [..., S]."""
    if d.shape[-1] < LEAST:
        return lambda sign, least: np.ones(d.shape[:-1])
    (mean, error), same = mean_and_error(d), constant(d)

    def p(sign, least):
        with np.errstate(all="ignore"):  # values that do not vary
            p = special.stdtr(d.shape[-1] - 1, -(sign * mean - least) / error)
        sure = np.where(sign * d[..., 0] - width / 2 > least, 0.0, 1.0)
        return np.where(same, sure, p)

    return p


def mean_and_error(d):
    """The mean of d [..., S] and its standard error [...]."""
    return d.mean(-1), d.std(-1, ddof=1) / math.sqrt(d.shape[-1])


# ---------------------------------------------------------------- several of them
def holm(p):
    """p of "at least one holds", p [k, ...] -> [...]: k times the smallest (Holm)."""
    p = np.asarray(p, float)
    return np.minimum(1.0, len(p) * p.min(axis=0))


def all_of(parts):
    """P of "every one of these sentences holds"; alike where none falls below its
    margin and at least one is not above it.
    """
    yes, no, low, high = (np.stack(np.broadcast_arrays(*p)) for p in zip(*parts))
    return P(yes.max(0), holm(no), low.max(0), holm(high))


def any_of(parts):
    """P of "at least one of these sentences holds"."""
    return contrary(all_of([contrary(p) for p in parts]))


def contrary(p):
    """P of what a sentence denies."""
    return P(p.no, p.yes, p.high, p.low)


# ---------------------------------------------------------------- what they say
def verdict(p):
    """P [...] -> "yes", "no", "alike" or "undecided" [...]."""
    hits = [np.asarray(x) < LEVEL / 2 for x in (p.yes, p.no, p.alike)]
    found = np.select(hits, DECIDED, "undecided")
    return str(found) if found.ndim == 0 else found


def over_looks(p):
    """A p of one look, or several, as that of all looks: LEVEL becomes ALPHA."""
    return np.minimum(1.0, np.asarray(p) * ALPHA / LEVEL)


def survivors(p):
    """Benjamini and Hochberg's q of the p values [k] of many sentences -> [k]."""
    return stats.false_discovery_control(p) if len(p) else np.ones(0)
