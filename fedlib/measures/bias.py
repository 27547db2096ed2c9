"""From counts of groups, outcomes and predictions to bias. Lower is fairer; 0 is
parity.

Every function takes counts n [..., A, 2, 2]: rows in group a with true outcome y and
predicted outcome yhat (last axis), and returns [...]. Works on numpy arrays. Formulas
as in EquFL, eqs 1 to 4. A cell without rows is skipped; a comparison that fewer than
two groups are left for is NaN, and so is what is made from it.
"""

import numpy as np

from ..core.errors import refuse_if


def _counts(n, least=3):
    n = np.asarray(n, dtype=np.float64)
    what = "give counts [..., groups, 2, 2], y and prediction; to pool, clients first"
    refuse_if(n.ndim < least or n.shape[-2:] != (2, 2), f"{[*n.shape]}: {what}")
    return n


def _ratio(part, whole):
    """part / whole, NaN where the whole is empty."""
    nothing = np.full(np.broadcast_shapes(part.shape, whole.shape), np.nan)
    return np.divide(part, whole, out=nothing, where=whole > 0)[()]


def _max(v, r):
    """Largest of v [..., A] over groups that have a rate r; NaN for fewer than two."""
    there = ~np.isnan(r)
    largest = np.where(there, v, -np.inf).max(-1)
    return np.where(there.sum(-1) < 2, np.nan, largest)[()]


def _gap(r):
    """Largest difference of two groups' rates r [..., A]."""
    return _max(r, r) + _max(-r, r)


def _gaps(n):
    """The gap given y = 0, and given y = 1: P(yhat = 1 | a, y)."""
    n = _counts(n)
    r = _ratio(n[..., 1], n.sum(-1))  # [..., A, 2]
    return _gap(r[..., 0]), _gap(r[..., 1])


def EO(n):
    """Equalised odds, in [0, 1] (eq. 1); max over y and pairs of groups a, a':

    |P(yhat=1 | a, y) - P(yhat=1 | a', y)|
    """
    return np.maximum(*_gaps(n))


def EO_sum(n):
    """The false-positive gap plus the true-positive gap, in [0, 2]."""
    return np.add(*_gaps(n))


def DP(n):
    """Demographic parity (eq. 2); max over pairs of groups a, a':

    |P(yhat=1 | a) - P(yhat=1 | a')|
    """
    n = _counts(n)
    return _gap(_ratio(n[..., 1].sum(-1), n.sum((-2, -1))))


def CAL(n):
    """Calibration in the paper's sense (eq. 3): max_a |TPR_a - TPR|, a group's
    true-positive rate against everybody's.
    """
    n = _counts(n)
    r = _ratio(n[..., 1, 1], n[..., 1, :].sum(-1))
    return _max(abs(r - TPR(n)[..., None]), r)


def CAL_ppv(n):
    """Calibration in the usual sense: max_a |P(y=1 | yhat=1, a) - P(y=1 | yhat=1)|."""
    n = _counts(n)
    hit, predicted = n[..., 1, 1], n[..., 1].sum(-1)
    r = _ratio(hit, predicted)
    return _max(abs(r - _ratio(hit.sum(-1), predicted.sum(-1))[..., None]), r)


def CON(s):
    """Consistency (eq. 4) from s [..., 2] = (sum of |yhat_i - mean prediction of the
    neighbours|, rows): their mean [...].
    """
    differences, rows = np.moveaxis(np.asarray(s, dtype=np.float64), -1, 0)
    return _ratio(differences, rows)


def TPR(n):
    """P(yhat=1 | y=1)."""
    n = _counts(n).sum(-3)
    return _ratio(n[..., 1, 1], n[..., 1, :].sum(-1))


def FPR(n):
    """P(yhat=1 | y=0)."""
    n = _counts(n).sum(-3)
    return _ratio(n[..., 0, 1], n[..., 0, :].sum(-1))


def positive_rate(n):
    """P(yhat=1): 0 or 1 for a collapsed predictor, whose bias is 0."""
    n = _counts(n).sum(-3)
    return _ratio(n[..., 1].sum(-1), n.sum((-2, -1)))


def accuracy(n):
    """P(yhat=y), of the outcome: with many classes above that of the class."""
    n = _counts(n).sum(-3)
    return _ratio(n[..., 0, 0] + n[..., 1, 1], n.sum((-2, -1)))


def pooled(n):
    """Counts of C clients [..., C, A, 2, 2] as counts of their union [..., A, 2, 2]."""
    _counts(n, 4)
    return np.asarray(n).sum(-4)
