"""Which round, which number: rules that choose the evaluations that count.

A rule takes a record, a view and a moment, and returns positions in the evaluations of
that view [k].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import metrics

if TYPE_CHECKING:
    from ..core.record import Record
    from ..core.types import Metric, Rule


def last(rec: Record, view: str = "global", moment: str = "pre") -> np.ndarray:
    """The evaluations that count [k]: the last one."""
    return np.array([len(rec[moment, view, "test"]) - 1])


def last10_mean(rec: Record, view: str = "global", moment: str = "pre") -> np.ndarray:
    """The evaluations of the last ten rounds, of the last quarter in a run shorter than
    forty: a metric's mean over them.
    """
    # after the last round nothing is left to train: no "post"
    rounds = rec.rounds[: len(rec[moment, view, "test"])]
    return np.flatnonzero(rounds > rounds[-1] - max(1, min(10, rec.rounds[-1] / 4)))


def best_val(rec: Record, view: str = "global", moment: str = "pre") -> np.ndarray:
    """The round of the highest mean validation accuracy, the first if tied (FedGA's
    rule).
    """
    return np.array([int(np.nanargmax(np.nanmean(rec[moment, view, "val"], 1)))])


def best_round_test(
    rec: Record, view: str = "global", moment: str = "pre"
) -> np.ndarray:
    """The round of the highest mean test accuracy: looks at what it reports."""
    return np.array([int(np.argmax(metrics.mean_acc(rec[moment, view, "test"])))])


def best_round_pooled(
    rec: Record, view: str = "global", moment: str = "pre"
) -> np.ndarray:
    """The round in which most test rows of all clients together are right (FedAS's
    rule): looks at what it reports.
    """
    a, n = rec[moment, view, "test"], rec.meta["n"]["test"]
    return np.array([int(np.argmax(metrics.pooled_acc(a, n)))])


def best_val_gini(rec: Record, view: str = "global", moment: str = "pre") -> np.ndarray:
    """The round of the lowest Gini of the validation accuracies."""
    a = np.nan_to_num(rec[moment, view, "val"])
    return np.array([int(np.nanargmin(metrics.gini(a)))])


RULES: dict[str, Rule] = {
    "last": last,
    "last10_mean": last10_mean,
    "best_val": best_val,
    "best_val_gini": best_val_gini,
    "best_round_test": best_round_test,
    "best_round_pooled": best_round_pooled,
}


def select(
    rec: Record,
    metric: Metric,
    rule: Rule = best_val,
    view: str = "global",
    moment: str = "pre",
    split: str = "test",
) -> float:
    """One number: metric [.., C] -> [..] at the rounds a rule picks, averaged over
    them.
    """
    return float(np.mean(metric(rec[moment, view, split][rule(rec, view, moment)])))
