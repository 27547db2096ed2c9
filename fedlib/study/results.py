"""The results of a study: its cells with their records, as tables and arrays.

A measure turns accuracies [.., C] of C clients into numbers [..]; a selection rule
(fedlib.measures.selection) says which evaluations count. Letters: S seeds, E evaluated
rounds, R rounds, C clients, A groups.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ..core.record import Record
from ..core.types import Key, Look, Metric
from ..measures import bias, curves, metrics, selection
from ..methods import METHODS
from . import TIERS, table
from .seeds import seeds_of
from .spec import load, tiered
from .studies import Cell, kind_of, root

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
    def of(
        self,
        dataset: str | None = None,
        method: str | None = None,
        setting: str | None = None,
        seed: int | None = None,
    ) -> list[tuple[Cell, Record]]:
        """[(cell, record)] that fit."""
        want = {"dataset": dataset, "method": method, "setting": setting, "seed": seed}
        want = {k: v for k, v in want.items() if v is not None}
        return [
            (c, r)
            for c, r in zip(self.cells, self.records)
            if all(getattr(c, k) == v for k, v in want.items())
        ]

    def join(self, other: Study) -> Study:
        """Both studies as one, for a figure that shows both."""
        return dataclasses.replace(
            self,
            cells=self.cells + other.cells,
            records=self.records + other.records,
            tiers=self.tiers + other.tiers,
        )

    def with_view(self, view: str) -> Study:
        """The part of the study whose records hold a view of the model."""
        there = [("pre", view, "test") in r.views for r in self.records]
        keep = lambda rows: [row for row, here in zip(rows, there) if here]
        return dataclasses.replace(
            self,
            cells=keep(self.cells),
            records=keep(self.records),
            tiers=keep(self.tiers),
        )

    def methods(self, dataset: str | None = None) -> list[str]:
        """The methods of a data set, or of all, in the order of the study."""
        return list(dict.fromkeys(c.method for c, _ in self.of(dataset)))

    def datasets(self) -> list[str]:
        """The data sets, in the order of the study."""
        return list(dict.fromkeys(c.dataset for c in self.cells))

    def rounds(self, dataset: str) -> np.ndarray:
        """Evaluated rounds [E]."""
        return self.of(dataset)[0][1].rounds

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
        moment, view = scored or self.scored(method)
        runs = [r for _, r in self.of(dataset, method, setting)]
        y = [
            100 * metrics.pooled_acc(r[moment, view, "test"], test_rows(r, moment))
            for r in runs
        ]
        y = np.stack(y)
        return runs[0].rounds[: y.shape[1]] + (moment == "post"), y

    def log(
        self, dataset: str, method: str, name: str, setting: str = ""
    ) -> np.ndarray:
        """A logged quantity [S, R, ...] of all seeds, of those whose log was kept (a
        study's key `logs`). ValueError where none was.
        """
        runs = [r for _, r in self.of(dataset, method, setting)]
        kept = [r.logs[name] for r in runs if name in r.logs]
        if not kept:
            raise ValueError(
                f"{self.paper}/{self.name}: no run of {method} on {dataset} has "
                f"kept the log {name!r}; let the study's key `logs` keep it, and "
                "pack it anew"
            )
        return np.stack(kept)

    # ------------------------------------------------------------ long tables
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
        if isinstance(scored, tuple):
            choose = lambda method: scored
        else:
            choose = scored or self.scored
        out = []
        for c, r in zip(self.cells, self.records):
            moment, view = choose(c.method)
            for rule in rules:
                at = evaluations(rule, r, moment, view)
                values = measured(r, measures, at, moment, view)
                if moment != "guest":
                    values += site_accuracies(r, at, moment, view)
                out += [self._row(c, r, k, rule, v) for k, v in values]
        return pd.DataFrame(out)

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
        out = []
        for c, r in zip(self.cells, self.records):
            moment, view = self.scored(c.method)
            for rule in rules:
                at = selection.RULES[rule](r, view, moment)
                values = bias_of(r, measures, at, moment, view)
                out += [self._row(c, r, k, rule, v) for k, v in values.items()]
        return pd.DataFrame(out)

    def validation(self, rule: str = "best_val") -> pd.DataFrame:
        """The same for the mean validation accuracy, by which a grid is searched."""
        choose, out = selection.RULES[rule], []
        for c, r in zip(self.cells, self.records):
            moment, view = self.scored(c.method)
            # no guest has validation rows
            moment = "pre" if moment == "guest" else moment
            value = selection.select(r, metrics.mean_acc, choose, view, moment, "val")
            out.append(self._row(c, r, "val_acc", rule, 100 * value))
        return pd.DataFrame(out)

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

    @functools.cached_property
    def _tier_of(self) -> dict[Cell, str]:
        return dict(zip(self.cells, self.tiers))

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
def test_rows(r, moment):
    """Test rows [C] behind the accuracies of a moment: of guests, or of the clients."""
    return r.meta["n"]["guest" if moment == "guest" else "test"]


def evaluations(rule, r, moment, view):
    """The evaluations that a rule picks; for guests, who have no validation rows, by
    the clients.
    """
    return selection.RULES[rule](r, view, "pre" if moment == "guest" else moment)


def measured(r, measures, at, moment, view):
    """[(measure, mean over the evaluations `at`)]; a single guest has no spread."""
    each = at_each(r, measures, at, moment, view)
    return [(k, float(np.mean(v))) for k, v in each.items()]


def at_each(r, measures, at, moment, view):
    """{measure: its values at the evaluations `at`}; a single guest has no spread."""
    n, a = test_rows(r, moment), r[moment, view, "test"][at]
    out = {}
    for k, f in measures.items():
        if len(n) == 1 and k in SPREAD:
            continue
        takes_rows = len(inspect.signature(f).parameters) > 1
        out[k] = f(a, n=n) if takes_rows else f(a)
    return out


def site_accuracies(r, at, moment, view):
    """[("acc_<client>", mean over the evaluations `at`)] of SITES, in percent."""
    owners, a = r.meta["owners"], r[moment, view, "test"][at].mean(0)
    return [(f"acc_{who}", 100 * v) for who, v in zip(owners, a) if who in SITES]


def bias_of(r, measures, at, moment, view):
    """{measure: mean over the evaluations `at`}, with CON and the accuracy."""
    n = bias.pooled(r.cells[moment, view, "test"][at])
    values = {k: f(n) for k, f in measures.items()}
    values["CON"] = bias.CON(r.consistency[moment, view][at].sum(1))
    accuracies = r[moment, view, "test"][at]
    values["accuracy"] = metrics.pooled_acc(accuracies, r.meta["n"]["test"])
    return {k: float(v.mean()) for k, v in values.items()}


# ---------------------------------------------------------------- other tables
def write_seeds(done, path):
    """Every seed's test numbers and mean validation accuracy of a Study, as csv
    (columns of results/seeds).
    """
    table.write(pd.concat([done.seeds(), done.validation()], ignore_index=True), path)


def declared(paper, path="params.yaml"):
    """The settings of tier paper as rows of results/seeds: what is declared, not
    measured.
    """
    out, p = [], load(path)[paper]
    for dataset, entry in p["tasks"].items():
        spec = tiered(entry, "paper")
        row = dict(
            paper=paper,
            study="settings",
            dataset=dataset,
            method="all",
            setting="",
            seed=0,
        )
        end = dict(data=kind_of(root(spec["data"])), tier="exact")
        for k, v in declared_values(spec, dataset, p["studies"]).items():
            if v is not None:
                out.append(row | dict(metric=k, rule="run", value=v) | end)
    return pd.DataFrame(out)


def declared_values(spec, dataset, studies):
    """{setting: value, None where a task has no such thing}; spec: the task's, at tier
    paper.
    """
    runs = (
        len(seeds_of(tiered(s, "paper")["seeds"], name))
        for name, s in studies.items()
        if dataset in s["tasks"]
    )
    return {
        "learning_rate": spec["train"]["lr"],
        "local_epochs": spec["train"]["epochs"],
        "batch_size": spec["batch"],
        "rounds": spec["run"]["rounds"],
        "dirichlet_concentration": spec.get("partition", {}).get("alpha"),
        "runs": next(runs, None),
    }


def hyper_table(cells):
    """One row per cell: the hyper-parameters in use and the grid searched, from the
    methods' own declarations.
    """
    return pd.DataFrame([hyper_row(c) for c in cells])


def hyper_row(cell):
    """{method, setting, used: "alpha = 3, ...", grid: "alpha in 1, 3, 5; ..."}."""
    cls = METHODS[cell.method]
    known = {f.name: f for f in dataclasses.fields(cls)}
    given = json.loads(cell.kwargs)
    used = {k: v for k, v in given.items() if k not in ("lr", "epochs", "last")}
    searched = {
        n: f.metadata["grid"]
        for n, f in known.items()
        if f.metadata.get("grid") and n in cls.__annotations__
    }
    values = {n: used.get(n, known[n].default) for n in (*used, *searched)}
    grids = {n: ", ".join(map(short, grid)) for n, grid in searched.items()}
    return {
        "method": cell.method,
        "setting": cell.setting,
        "used": ", ".join(f"{n} = {short(v)}" for n, v in values.items()),
        "grid": "; ".join(f"{n} in {words}" for n, words in grids.items()),
    }


def short(v):
    """A value of a hyper-parameter, in a table."""
    if isinstance(v, dict):
        return v["name"]
    is_number = isinstance(v, (int, float)) and not isinstance(v, bool)
    return f"{v:g}" if is_number else str(v)
