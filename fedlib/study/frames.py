"""A study as tidy frames: one row per observation, as pandas and seaborn want them.

    frame(run)                  run x view x split x round x client
    frame(run, at="best_val")   only the rounds that a rule picks: violins, densities
    scores(run, "best_val")     one row per run and view: tables, bars
    rounds(run)                 one row per run, view and round: curves
    biases(run)                 one row per run and round: how groups are treated
    logs(run, "weight")         one row per run, round and client of the cohort, or per
                                run and round for what is logged once in a round

Every frame begins with dataset, method, setting, seed. Accuracies are in percent.
`round` counts the rounds trained before the evaluation: after training ("post", "own")
it is one more than before ("pre").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..core.record import Record
from ..core.types import Key
from .results import (
    BIAS,
    MEASURES,
    Study,
    at_each,
    bias_of,
    evaluations,
    measured,
    rounds_of,
)
from .store import rows_of

SCORED = "scored"  # the moment and the view by which the study judges a method
Measures = Mapping[str, Callable[..., Any]]


def frame(
    run: Study,
    at: str | None = None,
    view: str | None = SCORED,
    moment: str | None = SCORED,
    split: str | None = "test",
) -> pd.DataFrame:
    """The accuracy of every client at every evaluation.

    Columns: dataset, method, setting, seed, moment, view, split, round, client, n (rows
    behind the accuracy), acc (percent; NaN for a client without rows).
    at: keep the evaluations that this rule picks, a name of selection.RULES; None keeps
    all. view, moment, split: None is every one that the records hold.
    ValueError where no record holds such a view, or no rule has the name.
    """
    blocks = []
    for row, r, key in _looks(run, view, moment, split):
        picked = _picked(at, r, key)
        a = np.asarray(r[key][picked], float)
        E, C = a.shape
        columns = {
            "split": key[2],
            "round": np.repeat(rounds_of(r, key)[picked], C),
            "client": np.tile(np.arange(C), E),
            "n": np.tile(rows_of(r.meta, key), E),
            "acc": 100 * a.ravel(),
        }
        blocks.append(row | columns)
    return _joined(blocks)


def rounds(
    run: Study,
    measures: Measures = MEASURES,
    view: str | None = SCORED,
    moment: str | None = SCORED,
) -> pd.DataFrame:
    """Measures of the clients' test accuracies at every evaluation.

    Columns: dataset, method, setting, seed, moment, view, round, and the measures:
    {name: function of accuracies [E, C], or of them and n, the test rows [C], to [E]}.
    view, moment and errors as in `frame`.
    """
    blocks = []
    for row, r, key in _looks(run, view, moment, "test"):
        values = at_each(r, measures, key[:2], slice(None))
        blocks.append(row | {"round": rounds_of(r, key)} | values)
    return _joined(blocks)


def scores(
    run: Study,
    at: str = "best_val",
    measures: Measures = MEASURES,
    view: str | None = SCORED,
    moment: str | None = SCORED,
) -> pd.DataFrame:
    """Measures at the evaluations that the rule `at` picks, averaged over these: the
    numbers of `Study.seeds`, one row per run and view.

    Columns: dataset, method, setting, seed, moment, view, rule, and the measures.
    measures, view, moment and errors as in `rounds`.
    """
    rows = []
    for row, r, key in _looks(run, view, moment, "test"):
        values = measured(r, measures, key[:2], _picked(at, r, key))
        rows.append(row | {"rule": at} | values)
    return pd.DataFrame(rows)


def biases(run: Study, at: str | None = None) -> pd.DataFrame:
    """How the scored model treats groups at every evaluation, over the test rows of all
    clients together.

    Columns: dataset, method, setting, seed, round, EO, DP, CAL, CON, accuracy,
    positive_rate; all fractions, NaN where a group has no row to compare.
    at: keep the evaluations that this rule picks, as in `frame`; the mean over them is
    what `Study.biases` says. ValueError where runs have counted no groups.
    """
    names, blocks = ("EO", "DP", "CAL", "CON", "accuracy", "positive_rate"), []
    for row, r, key in _looks(run, SCORED, SCORED, "test"):
        picked = _picked(at, r, key)
        each = bias_of(r, BIAS, key, picked)
        run_of = {k: row[k] for k in WHO}
        columns = {"round": rounds_of(r, key)[picked]} | {k: each[k] for k in names}
        blocks.append(run_of | columns)
    return _joined(blocks)


def logs(run: Study, *names: str) -> pd.DataFrame:
    """What the server logged, round by round.

    Columns: dataset, method, setting, seed, round, client (of the cohort; missing where
    a log has one number per round), and the names. Runs that did not store all of them
    are left out. ValueError where none did, or where a log has neither one number per
    round nor one per client.
    """
    blocks = []
    for c, r in zip(run.cells, run.records):
        if all(k in r.logs for k in names):
            blocks.append(_who(c) | _logged(names, r))
    if not blocks:
        there = dict.fromkeys(k for r in run.records for k in r.logs)
        what = f"{run.paper}/{run.name}: no run has the logs {' and '.join(names)}"
        raise ValueError(f"{what}; there are: {', '.join(there) or 'none'}")
    out = _joined(blocks)
    if "client" in out:
        out = out[out.client >= 0].reset_index(drop=True)  # below 0 is nobody
    return out


# ---------------------------------------------------------------- of one record
WHO = ("dataset", "method", "setting", "seed")


def _who(cell) -> dict[str, Any]:
    return {k: getattr(cell, k) for k in WHO}


def _looks(run, view, moment, split) -> Iterator[tuple[dict, Record, Key]]:
    """({column: who, moment and view}, record, key) of every view that was asked for;
    ValueError if none is.
    """
    found = False
    for c, r in zip(run.cells, run.records):
        scored = run.scored(c.method)
        wanted = [scored[0] if moment == SCORED else moment]
        wanted += [scored[1] if view == SCORED else view, split]
        for key in r.views:
            if all(want in (None, part) for want, part in zip(wanted, key)):
                found = True
                yield _who(c) | {"moment": key[0], "view": key[1]}, r, key
    if not found:
        there = sorted({" ".join(key) for r in run.records for key in r.views})
        what = f"{run.paper}/{run.name}: no run has {moment!r}, {view!r}, {split!r}"
        raise ValueError(f"{what}; there are: {', '.join(there)}")


def _picked(rule: str | None, r: Record, key: Key):
    """The evaluations that a rule picks by the test accuracies of a view; all."""
    return slice(None) if rule is None else evaluations(rule, r, *key[:2])


def _logged(names, r: Record) -> dict[str, np.ndarray]:
    """Logs [R] or [R, M] as columns, with the rounds, and the clients of the cohort."""
    values = {k: np.asarray(r.logs[k]) for k in names}
    if all(v.ndim == 1 for v in values.values()):
        return {"round": np.arange(len(values[names[0]]))} | values
    cohort = r.logs.get("cohort", np.empty(0))
    shapes = {v.shape for v in values.values()}
    if shapes != {cohort.shape}:
        what = f"logs {', '.join(names)} of shapes {sorted(shapes)}, of {cohort.shape}"
        raise ValueError(
            f"{what} cohorts, are neither all one number per round nor all one per "
            "client; ask for them apart, or read them with Study.log"
        )
    R, M = cohort.shape
    at = {"round": np.repeat(np.arange(R), M), "client": cohort.ravel()}
    return at | {k: v.ravel() for k, v in values.items()}


def _joined(blocks: Iterable[dict]) -> pd.DataFrame:
    """Blocks {column: scalar or array} as one frame. Words stay words: categories keep
    levels that a filter has emptied, and seaborn stumbles over these.
    """
    return pd.concat(map(pd.DataFrame, blocks), ignore_index=True)
