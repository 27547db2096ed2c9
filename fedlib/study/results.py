"""The results of a study: its cells with their records, as tables and arrays.

A measure turns accuracies [.., C] of C clients into numbers [..]; a selection rule
(fedlib.measures.selection) says which evaluations count. Letters: S seeds, E evaluated
rounds, R rounds, C clients, A groups.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..core.record import Record
from ..core.types import Key, Look, Metric
from ..measures import bias, curves, metrics, selection
from . import TIERS, table
from .spec import found
from .store import rows_of
from .studies import Cell

MEASURES = {  # name in the tables -> function of accuracies [.., C]; percent but Gini
    "mean_acc": lambda a: 100 * metrics.mean_acc(a),
    "std_acc": lambda a: 100 * metrics.std_acc(a),
    "worst10_acc": lambda a: 100 * metrics.worst(a),
    "top10_minus_bottom10": lambda a: 100 * metrics.gap(a),
    "best_gini": metrics.gini,
}
# say nothing of a single guest
SPREAD = ("std_acc", "worst10_acc", "top10_minus_bottom10", "best_gini")
TAILS = {  # the clients served worst and best, each the mean of a group
    "acc_mean_pct": MEASURES["mean_acc"],
    "acc_lowest20_pct": lambda a: 100 * metrics.worst(a, 0.2),
    "acc_lowest5_pct": lambda a: 100 * metrics.worst(a, 0.05),
    "acc_top5_pct": lambda a: 100 * metrics.best(a, 0.05),
    "acc_min_over_clients_pct": lambda a: 100 * np.min(a, -1),
    "std_acc": MEASURES["std_acc"],
}
TOP1 = {  # of the rows of all clients together, and of the clients served worst
    "top1_acc_pct": lambda a, n: 100 * metrics.pooled_acc(a, n),
    "worst10_acc": MEASURES["worst10_acc"],
}
BIAS = {  # functions of counts [.., A, 2, 2]
    "EO": bias.EO,
    "DP": bias.DP,
    "CAL": bias.CAL,
    "EO_sum": bias.EO_sum,
    "CAL_ppv": bias.CAL_ppv,
    "positive_rate": bias.positive_rate,
}
# (moment, view) of the evaluations that are scored, unless a study says otherwise
SCORED = ("pre", "global")
# clients with names whose accuracies papers print one by one
SITES = ("amazon", "caltech", "dslr", "webcam")


def percent(r):
    """Mean test accuracy over clients at every evaluation [E], in percent."""
    return 100 * r.curve(metrics.mean_acc)


CURVES = {  # of the whole run (rule "run"): record -> {name: value}
    "early_mean_acc": lambda r: curves.between(r, percent(r), 1, 50),
    "late_mean_acc": lambda r: curves.between(r, percent(r), 101),
    "gini_auc": curves.gini_auc,
    "gini_level_after_round_50": lambda r: curves.between(r, r.curve(metrics.gini), 51),
}


@dataclass
class Study:
    """cells and their records, side by side; spec: the study as it was run."""

    paper: str
    name: str
    tier: str
    spec: dict[str, Any]
    cells: list[Cell]
    records: list[Record]
    # per cell: "paper" where its sizes are the paper's, whatever tier ran
    tiers: list[str]

    # ------------------------------------------------------------ what is there
    def _only(self, keep: Callable[[Cell, Record], bool]) -> Study:
        rows = zip(self.cells, self.records, self.tiers)
        kept = [row for row in rows if keep(*row[:2])]
        parts = zip(("cells", "records", "tiers"), zip(*kept) if kept else [()] * 3)
        return dataclasses.replace(self, **{k: [*v] for k, v in parts})

    def of(
        self,
        dataset: str | None = None,
        method: str | None = None,
        setting: str | None = None,
        seed: int | None = None,
    ) -> list[tuple[Cell, Record]]:
        """[(cell, record)] that fit."""
        want = {"dataset": dataset, "method": method, "setting": setting, "seed": seed}
        fits = lambda c: all(v in (None, getattr(c, k)) for k, v in want.items())
        return [(c, r) for c, r in zip(self.cells, self.records) if fits(c)]

    def join(self, other: Study) -> Study:
        """Both studies as one, for a figure that shows both."""
        parts = ("cells", "records", "tiers")
        both = {k: getattr(self, k) + getattr(other, k) for k in parts}
        return dataclasses.replace(self, **both)

    def with_view(self, view: str) -> Study:
        """The part of the study whose records hold a view of the model."""
        return self._only(lambda c, r: ("pre", view, "test") in r.views)

    def methods(self, dataset: str | None = None) -> list[str]:
        """The methods of a data set, or of all, in the order of the study."""
        return list(dict.fromkeys(c.method for c, _ in self.of(dataset)))

    def datasets(self) -> list[str]:
        """The data sets, in the order of the study."""
        return list(dict.fromkeys(c.dataset for c in self.cells))

    def scored(self, method: str) -> Look:
        """(moment, view) by which a method is judged here; the study's key `look`."""
        return tuple(self.spec.get("look", {}).get(method, SCORED))

    # ------------------------------------------------------------ arrays
    def stack(
        self,
        dataset: str,
        method: str,
        key: Key | None = None,
        setting: str = "",
        split: str = "test",
    ) -> np.ndarray:
        """Accuracies [S, E, C] of all seeds of one row.

        key: (moment, view, split); None: what is scored of the method.
        """
        key = key or (*self.scored(method), split)
        return np.stack([r[key] for _, r in self.of(dataset, method, setting)])

    def curve(
        self, dataset: str, method: str, setting: str = "", scored: Look | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rounds trained so far [E], and the accuracy over all test rows in percent [S,
        E]; scored: (moment, view), None: the study's.
        """
        key = (*(scored or self.scored(method)), "test")
        runs = [r for _, r in self.of(dataset, method, setting)]
        y = [100 * metrics.pooled_acc(r[key], rows_of(r.meta, key)) for r in runs]
        return rounds_of(runs[0], key), np.stack(y)

    def log(
        self, dataset: str, method: str, name: str, setting: str = ""
    ) -> np.ndarray:
        """A logged quantity [S, R, ...] of all seeds, of those whose log was stored (a
        study's key `logs`). ValueError where none was.
        """
        runs = [r for _, r in self.of(dataset, method, setting)]
        stored = [r.logs[name] for r in runs if name in r.logs]
        if not stored:
            raise ValueError(
                f"{self.paper}/{self.name}: no run of {method} on {dataset} has the "
                f"log {name!r}; name it in the study's key `logs`, and pack it anew"
            )
        return np.stack(stored)

    # ------------------------------------------------------------ long tables
    def _row(self, c, r, metric, rule, value):
        return dict(
            paper=self.paper,
            study=self.name,
            dataset=c.dataset,
            method=c.method,
            setting=c.setting,
            seed=c.seed,
            metric=metric,
            rule=rule,
            value=value,
            data=c.data,
            tier=self._tier_of[c],
            device=r.meta["device"],
            minutes=round(r.meta["seconds"] / 60, 4),
            run_ids=c.id,
            commit=r.meta["commit"],
        )

    @functools.cached_property
    def _tier_of(self) -> dict[Cell, str]:
        return dict(zip(self.cells, self.tiers))

    def _long(self, rules, numbers, scored=None) -> pd.DataFrame:
        """One row per cell, rule and entry of numbers(record, (moment, view), the
        evaluations that the rule picks) -> {metric: value}.
        """
        out = []
        for c, r in zip(self.cells, self.records):
            look = (scored or self.scored)(c.method)
            for rule in rules:
                values = numbers(r, look, evaluations(rule, r, *look))
                out += [self._row(c, r, k, rule, v) for k, v in values.items()]
        return pd.DataFrame(out)

    def seeds(
        self,
        measures: Mapping[str, Callable[..., Any]] = MEASURES,
        rules: Sequence[str] = ("best_val",),
        scored: Look | Callable[[str], Look] | None = None,
    ) -> pd.DataFrame:
        """Long table, one row per cell, measure and selection rule, with where it comes
        from (results/seeds).

        measures: {name: accuracies a [.., C] -> [..]}, or of a and n, the test
        rows [C]. scored: (moment, view), or a function method -> (moment, view); None:
        the study's.
        """
        choose = (lambda method: scored) if isinstance(scored, tuple) else scored
        numbers = lambda r, *at: measured(r, measures, *at) | site_accuracies(r, *at)
        return self._long(rules, numbers, choose)

    def views(
        self,
        names: Mapping[str, str],
        measures: Mapping[str, Callable[..., Any]],
        rules: Sequence[str],
        setting: Callable[[Cell], str] = lambda cell: cell.setting,
    ) -> pd.DataFrame:
        """Seeds of every view that a record holds: names {view: what the paper calls
        it}, which comes first in the setting, so "personalised model;C=10". setting:
        what follows, from the cell. Judged before training, so as a client is served.
        """
        out = []
        for view, name in names.items():
            part = self.with_view(view)
            rows = part.seeds(measures, rules, scored=("pre", view))
            ends = {c.id: setting(c) for c in part.cells}
            words = [";".join(filter(None, (name, ends[i]))) for i in rows.run_ids]
            out.append(rows.assign(setting=words))
        return pd.concat(out, ignore_index=True)

    def biases(
        self,
        rules: Sequence[str] = ("last10_mean",),
        measures: Mapping[str, Metric] = BIAS,
    ) -> pd.DataFrame:
        """Seeds of how the model treats groups, over all clients' test rows together:
        the metrics of `measures`, functions of counts [.., A, 2, 2], CON, and the
        accuracy as a fraction.
        """

        def numbers(r, look, at):
            each = bias_of(r, measures, (*look, "test"), at)
            return {k: float(v.mean()) for k, v in each.items()}

        return self._long(rules, numbers)

    def validation(self, rule: str = "best_val") -> pd.DataFrame:
        """The same for the mean validation accuracy, by which a grid is searched."""

        def numbers(r, look, at):
            moment = "pre" if look[0] == "guest" else look[0]  # no guest has such rows
            a = r[moment, look[1], "val"][at]
            return {"val_acc": 100 * float(np.mean(metrics.mean_acc(a)))}

        return self._long((rule,), numbers)

    def whole(
        self,
        measures: Mapping[str, Callable[[Record], float]] = CURVES,
        dataset: str | None = None,
        method: str | None = None,
    ) -> pd.DataFrame:
        """The same for numbers of whole runs: {name: record -> value}, rule "run";
        values that do not exist are left out.
        """
        out = [
            self._row(c, r, k, "run", f(r))
            for c, r in self.of(dataset, method)
            for k, f in measures.items()
        ]
        return pd.DataFrame([row for row in out if not np.isnan(row["value"])])

    # ------------------------------------------------------------ to print and draw
    def table(
        self, metric: str = "mean_acc", rule: str = "best_val", **kw: Any
    ) -> pd.DataFrame:
        """Methods x data sets, mean over seeds."""
        s = self.seeds({metric: MEASURES[metric]}, (rule,), **kw)
        s = s.query("metric == @metric")
        rows = ["method"] + (["setting"] if s.setting.any() else [])
        return s.pivot_table(index=rows, columns="dataset", values="value", sort=False)

    def data(self, dataset: str | None = None) -> str:
        """What the numbers were made from, for a figure's provenance line."""
        names = (f"{c.label} ({c.data})" for c, _ in self.of(dataset))
        return "; ".join(dict.fromkeys(names))

    def save(self, fig, name, title, alt, dataset=None, notebook=None, seeds=None):
        """Save a figure with this study's provenance (see plots.save).

        seeds: in words, where not all were used.
        """
        from .. import plots  # here, so that matplotlib is imported to draw only

        stage = notebook or self.name
        n = seeds or len({c.seed for c, _ in self.of(dataset)})
        shown = zip(self.cells, self.tiers)
        tiers = {t for c, t in shown if dataset in (None, c.dataset)}
        return plots.save(
            fig,
            name,
            title=title,
            alt=alt,
            data=self.data(dataset),
            tier=min(tiers, key=TIERS.index),
            seeds=str(n),
            notebook=f"notebooks/{self.paper}/{stage}.ipynb",
            stage=f"{self.paper}@{stage}",
            folder=f"results/figures/{self.paper}-{stage}",
        )


# ---------------------------------------------------------------- numbers of one record
def rounds_of(r, key):
    """Rounds trained before each evaluation of a key [E]: after training one more."""
    return r.rounds[: len(r[key])] + (key[0] in ("post", "own"))


def evaluations(rule, r, moment, view):
    """The evaluations that a rule picks; for guests, who have no validation rows, by
    the clients.
    """
    pick = found(rule, selection.RULES, "no rule")
    return pick(r, view, "pre" if moment == "guest" else moment)


def at_each(r, measures, look, at):
    """{measure: its values at the evaluations `at`}; a single guest has no spread."""
    key = (*look, "test")
    n, a = rows_of(r.meta, key), r[key][at]
    out = {}
    for k, f in measures.items():
        if len(n) == 1 and k in SPREAD:
            continue
        takes_rows = len(inspect.signature(f).parameters) > 1
        out[k] = f(a, n=n) if takes_rows else f(a)
    return out


def measured(r, measures, look, at):
    """{measure: mean over the evaluations `at`}."""
    each = at_each(r, measures, look, at)
    return {k: float(np.mean(v)) for k, v in each.items()}


def site_accuracies(r, look, at):
    """{"acc_<client>": mean over the evaluations `at`} of SITES, in percent."""
    if look[0] == "guest":
        return {}
    a = r[*look, "test"][at].mean(0)
    named = zip(r.meta["owners"], a)
    return {f"acc_{who}": 100 * v for who, v in named if who in SITES}


def bias_of(r, measures, key, at):
    """{measure: values at the evaluations `at`}, with CON and the accuracy."""
    if key not in r.cells or key[:2] not in r.consistency:
        where = f"a run of {r.meta['method']} has counted no groups in {' '.join(key)}"
        raise ValueError(f"biases: {where}; its task needs `groups`")
    n = bias.pooled(r.cells[key][at])
    out = {k: f(n) for k, f in measures.items()}
    out["CON"] = bias.CON(r.consistency[key[:2]][at].sum(1))
    return out | {"accuracy": metrics.pooled_acc(r[key][at], rows_of(r.meta, key))}


def write_seeds(done, path):
    """Every seed's test numbers and mean validation accuracy of a Study, as csv
    (columns of results/seeds).
    """
    table.write(pd.concat([done.seeds(), done.validation()], ignore_index=True), path)
