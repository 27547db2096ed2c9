"""Numbers of a whole run, from its curves: areas, plateaus, first rounds. Accuracies in
percent, Gini as a fraction.

Letters: E evaluated rounds, R rounds, C clients.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import spearmanr

from . import metrics
from .statistics import kde, smooth

WINDOW = 10  # rounds; the papers smooth without saying how


def window(rec, rounds=WINDOW):
    """`rounds` rounds as a number of evaluations."""
    every = int(np.diff(rec.rounds[:2])[0]) if len(rec.rounds) > 1 else 1
    return max(1, round(rounds / max(1, every)))


def accuracy(rec, split="test"):
    """Mean accuracy over clients at every evaluation, smoothed [E]."""
    return smooth(100 * metrics.mean_acc(rec["pre", "global", split]), window(rec))


def gini(rec):
    """Test Gini at every evaluation, smoothed [E]."""
    return smooth(metrics.gini(rec["pre", "global", "test"]), window(rec))


def gini_auc(rec):
    """Area under the smoothed Gini curve, unit spacing: mean Gini times rounds."""
    return float(np.trapezoid(gini(rec), rec.rounds))


def share_below(rec, other):
    """Share of the evaluations at which this run's smoothed Gini is below another's."""
    return float(np.mean(gini(rec)[1:] < gini(other)[1:]))


def between(rec, values, first, last=math.inf):
    """Mean of values [E] over the rounds first .. last; NaN when there are none."""
    at = (rec.rounds >= first) & (rec.rounds <= last)
    return float(values[at].mean()) if at.any() else math.nan


def plateau(rec):
    """Lowest, mean and highest smoothed test accuracy over the last quarter of the
    rounds.
    """
    a = accuracy(rec)[rec.rounds >= 0.75 * rec.rounds[-1]]
    return {
        "test_acc_plateau_low": a.min(),
        "test_acc_plateau": a.mean(),
        "test_acc_plateau_high": a.max(),
    }


def trigger_round(rec):
    """The round in which the fairness phase starts (log "on"), infinity for never."""
    on = np.asarray(rec.logs["on"], float) > 0
    return float(np.argmax(on)) if on.any() else math.inf


def highest_from(curves, method):
    """First index from which `method`'s curve [E] stays above all others of {method:
    [E]}; None for never.
    """
    others = np.max([v for m, v in curves.items() if m != method], 0)
    below = np.flatnonzero(curves[method] <= others)
    first = below[-1] + 1 if len(below) else 0
    return None if first >= len(others) else int(first)


def scale_and_gini(rec):
    """Pearson's and Spearman's correlation over rounds of the update scale U_s (log)
    and the validation Gini.
    """
    at = rec.rounds < len(rec.logs["update_scale"])
    u = rec.logs["update_scale"][rec.rounds[at]]
    g = metrics.gini(rec["pre", "global", "val"][at])
    return {
        "us_gini_pearson": float(np.corrcoef(u, g)[0, 1]),
        "us_gini_spearman": float(spearmanr(u, g).statistic),
    }


def modes(a, share=0.5):
    """Where client accuracies [..., C] (percent) pile up: the ends of the density's
    highest region that holds `share`.

    Returns (low, high, peak): the shortest interval with that share of the mass, and
    the density's peak.
    """
    grid = np.linspace(0, 100, 401)
    d = kde(np.ravel(a), grid)
    mass = np.concatenate([[0], np.cumsum((d[1:] + d[:-1]) / 2 * np.diff(grid))])
    mass /= mass[-1]
    ends = np.searchsorted(mass, mass + share)
    fits = ends < len(grid)
    width = np.where(fits, grid[np.minimum(ends, len(grid) - 1)] - grid, np.inf)
    i = int(width.argmin())
    return grid[i], grid[ends[i]], grid[d.argmax()]


def early(rec, moment, view):
    """Mean over the first half of the rounds of the accuracy over all test rows, in
    percent: how fast. Gaps are bridged.
    """
    a = 100 * metrics.pooled_acc(rec[moment, view, "test"], rec.meta["n"]["test"])
    trained = rec.rounds[: len(a)] + (moment == "post")  # rounds behind each evaluation
    return float(np.interp(np.arange(1, rec.rounds[-1] // 2 + 1), trained, a).mean())


def held(rec, name, start):
    """The value that each client last logged under `name`, round by round [R, C];
    before its first round start [C].
    """
    out, now = [], np.asarray(start, float).copy()
    for ids, v in zip(rec.logs["cohort"], rec.logs[name]):
        now[ids[ids >= 0].astype(int)] = v[ids >= 0]
        out.append(now.copy())
    return np.array(out)


def trend(rec, name):
    """Rank correlation of the round and the cohort's mean of a logged quantity: 1 where
    it only rises; NaN for a constant, or fewer than three rounds.
    """
    v = np.nanmean(rec.logs[name], 1)
    if len(v) < 3 or not np.ptp(v) > 0:
        return math.nan
    return float(spearmanr(np.arange(len(v)), v).statistic)


def late_over_online(values, late, first=0):
    """Geometric mean over rounds from `first` on and over clients: values [R, C] of the
    late clients over the others'.
    """
    v = np.log(np.asarray(values, float)[first:])
    late = np.asarray(late, bool)
    return float(np.exp(v[:, late].mean() - v[:, ~late].mean()))
