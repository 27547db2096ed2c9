"""Numbers of a whole run, from its curves: areas, plateaus, first rounds. Accuracies in
percent, Gini as a fraction.

Letters: E evaluated rounds, R rounds, C clients.
"""

import math

import numpy as np

from ..core.errors import refuse_if
from . import metrics
from .statistics import smooth

WINDOW = 10  # rounds; the papers smooth without saying how


def whole(rec):
    """The rounds of all evaluations [E]; ValueError where not all are stored."""
    of = f"{rec.meta.get('method')}, seed {rec.meta.get('seed')}"
    why = f"{of}: no curve, only rounds that rules pick are stored"
    refuse_if("picked" in rec.meta, f"{why}; study(..., mine=True) computes all")
    return rec.rounds


def window(rec, rounds=WINDOW):
    """`rounds` rounds as a number of evaluations."""
    every = int(np.diff(whole(rec)[:2])[0]) if len(rec.rounds) > 1 else 1
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


def between(rec, values, first, last=math.inf):
    """Mean of values [E] over the rounds first .. last; NaN when there are none."""
    at = (whole(rec) >= first) & (rec.rounds <= last)
    return float(values[at].mean()) if at.any() else math.nan


def trigger_round(rec):
    """The round in which the fairness phase starts (log "on"), infinity for never."""
    on = np.asarray(rec.logs["on"], float) > 0
    return float(np.argmax(on)) if on.any() else math.inf
