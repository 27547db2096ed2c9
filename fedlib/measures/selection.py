"""Which round, which number: rules that choose the evaluations that count.

A rule takes a record, a view and a moment, and returns positions in the evaluations of
that view [k].
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..core.errors import refuse_if
from . import metrics

if TYPE_CHECKING:
    from ..core.record import Record

At: TypeAlias = np.ndarray  # the positions [k] of evaluations that count
Rule: TypeAlias = Callable[..., At]  # (record, view, moment) -> positions
Metric: TypeAlias = Callable[[np.ndarray], Any]  # accuracies [..., C] -> [...]


def scored(rec: Record, view: str = "global", moment: str = "pre") -> np.ndarray:
    """When a view was scored; of a pilot of a search validation rows are stored."""
    split = "test" if (moment, view, "test") in rec.views else "val"
    return rec.rounds[: len(rec[moment, view, split])]  # the last has no "post"


def last(rec: Record, view: str = "global", moment: str = "pre") -> At:
    """The evaluations that count [k]: the last one."""
    return np.array([len(scored(rec, view, moment)) - 1])


def last10_mean(rec: Record, view: str = "global", moment: str = "pre") -> At:
    """Those of the last ten rounds, of the last quarter in a run shorter than forty."""
    rounds = scored(rec, view, moment)
    return np.flatnonzero(rounds > rounds[-1] - max(1, min(10, rec.rounds[-1] / 4)))


def best_val(rec: Record, view: str = "global", moment: str = "pre") -> At:
    """The highest mean validation accuracy, the first if tied (FedGA's rule)."""
    return np.array([int(np.nanargmax(np.nanmean(rec[moment, view, "val"], 1)))])


def best_round_test(rec: Record, view: str = "global", moment: str = "pre") -> At:
    """The round of the highest mean test accuracy: looks at what it reports."""
    return np.array([int(np.argmax(metrics.mean_acc(rec[moment, view, "test"])))])


def best_round_pooled(rec: Record, view: str = "global", moment: str = "pre") -> At:
    """Most test rows of all clients right (FedAS's rule): looks at what it reports."""
    a, n = rec[moment, view, "test"], rec.meta["n"]["test"]
    return np.array([int(np.argmax(metrics.pooled_acc(a, n)))])


def best_val_gini(rec: Record, view: str = "global", moment: str = "pre") -> At:
    """The round of the lowest Gini of the validation accuracies."""
    a = np.nan_to_num(rec[moment, view, "val"])
    return np.array([int(np.nanargmin(metrics.gini(a)))])


_ALL = last, last10_mean, best_val, best_val_gini, best_round_test, best_round_pooled
RULES: dict[str, Rule] = {f.__name__: f for f in _ALL}


def kept(rec: Record) -> Record:
    """A record with those evaluations alone that rules pick from some view, its meta
    `picked`; itself where a rule, tied but for rounding, picks others from these."""
    views = {(v, m): 0 for m, v, _ in rec.views if m != "guest"}
    picks = {}
    for rule, where in itertools.product(_ALL, views):
        with suppress(LookupError, ValueError):  # it has no validation or no test rows
            picks[rule, where] = rule(rec, *where)
    at = np.unique(np.concatenate([[len(rec.rounds) - 1], *picks.values()]))
    cut = lambda part: {k: a[at[at < len(a)]] for k, a in part.items()}
    parts: Any = {p: cut(getattr(rec, p)) for p in ("views", "cells", "consistency")}
    meta = rec.meta | {"picked": True}
    less = replace(rec, meta=meta, rounds=rec.rounds[at], **parts)
    same = (np.array_equal(at[f(less, *where)], k) for (f, where), k in picks.items())
    return less if len(at) < len(rec.rounds) and all(same) else rec


def picked(rule: Rule, rec: Record, view: str, *moment: str) -> np.ndarray:
    """The evaluations [k] that a rule picks; ValueError where it gives no positions.

    moment: "pre" if none is given, and then the rule need not take one.
    """
    other = f"{rec.meta['method']}: only rounds that the rules of RULES pick are stored"
    refuse_if("picked" in rec.meta and rule not in _ALL, other)
    at = np.atleast_1d(np.array(rule(rec, view, *moment)))
    n = len(scored(rec, view, *moment))
    whole = at.dtype.kind in "iu" and at.ndim == 1 and len(at)
    refuse_if(
        not whole or (at < -n).any() or (at >= n).any(),
        f"rule {getattr(rule, '__name__', rule)} gives {at} for {rec.meta['method']}, "
        f"seed {rec.meta['seed']}: give at least one whole number from 0 to {n - 1}",
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
    """The mean of a metric [.., C] -> [..] over the rounds that a rule picks."""
    at = picked(rule, rec, view, moment)
    return float(np.mean(metric(rec[moment, view, split][at])))
