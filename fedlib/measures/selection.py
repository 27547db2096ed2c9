"""Which round, which number: rules that choose the evaluations that count.

A rule takes a record, a view and a moment, and returns positions in the evaluations of
that view [k].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from . import metrics

if TYPE_CHECKING:
    from ..core.record import Record

Metric: TypeAlias = Callable[[np.ndarray], Any]  # accuracies [..., C] -> [...]


class Rule(Protocol):
    """Which evaluations of a record count: their positions [k]."""

    def __call__(
        self, rec: Record, view: str = "global", moment: str = "pre"
    ) -> np.ndarray: ...


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


_ALL = last, last10_mean, best_val, best_val_gini, best_round_test, best_round_pooled
RULES: dict[str, Rule] = {f.__name__: f for f in _ALL}


def picked(rule: Rule, rec: Record, view: str, *moment: str) -> np.ndarray:
    """The evaluations [k] that a rule picks; ValueError where it gives no positions.

    moment: "pre" if none is given, and then the rule need not take one.
    """
    at = np.atleast_1d(np.array(rule(rec, view, *moment)))
    n = len(rec[moment[0] if moment else "pre", view, "test"])
    whole = at.dtype.kind in "iu" and at.ndim == 1 and len(at)
    if not whole or (at < -n).any() or (at >= n).any():
        raise ValueError(
            f"rule {getattr(rule, '__name__', rule)} gives {at} for "
            f"{rec.meta['method']}, seed {rec.meta['seed']}: a rule gives positions of "
            f"evaluations, whole numbers from 0 to {n - 1}, at least one"
        )
    return at


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
    at = picked(rule, rec, view, moment)
    return float(np.mean(metric(rec[moment, view, split][at])))
