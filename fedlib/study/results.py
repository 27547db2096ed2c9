"""The results of a study: cells with their records, as tables, arrays and tidy frames,
one row per observation, as pandas and seaborn want them.

    frame(run)                  run x view x split x round x client
    scores(run)                 one row per run, view and round: curves
    scores(run, "best_val")     one row per run and view: tables, bars
    biases(run)                 one row per run and round: how groups are treated
    logs(run, "weight")         one row per run, round and client of the cohort

A measure turns accuracies [.., C] of C clients into numbers [..]; a selection rule
(fedlib.measures.selection) says which evaluations count. Frames begin with dataset,
method, setting, seed; accuracies are in percent; `round` counts the rounds trained
before the evaluation. Letters: S seeds, E evaluated rounds, R rounds, C clients, A
groups.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..core.errors import listed, refuse_if
from ..core.record import Record
from ..measures import metrics, runs
from ..measures.runs import BIAS, MEASURES, Measures, at_each, means, picked, scoring
from . import TIERS
from .studies import Cell

SCORED = ("pre", "global")  # moment and view, unless a study says otherwise
JUDGED = "scored"  # the moment and the view by which the study judges a method


@dataclass
class Study:
    """The cells of a study with their records; spec: the study as it was run."""

    paper: str
    name: str
    tier: str
    spec: dict[str, Any]
    cells: list[Cell]
    records: list[Record]

    # ------------------------------------------------------------ what is there
    def only(self, dataset=None, method=None, setting=None, seed=None) -> Study:
        """The part of the study that fits; each a value, or a list of values."""
        want = {"dataset": dataset, "method": method, "setting": setting, "seed": seed}
        sets = {k: listed(v) or [v] for k, v in want.items() if v is not None}
        fits = [all(getattr(c, k) in v for k, v in sets.items()) for c in self.cells]
        keep = lambda rows: list(itertools.compress(rows, fits))
        return replace(self, cells=keep(self.cells), records=keep(self.records))

    def of(self, *which, **more):
        """[(cell, record)] of the part that `only` gives."""
        part = self.only(*which, **more)
        return list(zip(part.cells, part.records))

    def join(self, other: Study) -> Study:
        """Both studies as one, for a figure that shows both."""
        both = {k: getattr(self, k) + getattr(other, k) for k in ("cells", "records")}
        return replace(self, **both)

    def methods(self, dataset: str | None = None) -> list[str]:
        """The methods of a data set, or of all, in the order of the study."""
        return list(dict.fromkeys(c.method for c in self.only(dataset).cells))

    def datasets(self) -> list[str]:
        """The data sets, in the order of the study."""
        return list(dict.fromkeys(c.dataset for c in self.cells))

    def scored(self, method: str) -> tuple[str, str]:
        """(moment, view) by which a method is judged here; the study's key `look`."""
        return tuple(self.spec.get("look", {}).get(method, SCORED))

    # ------------------------------------------------------------ long tables
    def row(self, cell, record, metric, rule, value):
        """A number of a run, with where it comes from (columns of results/seeds)."""
        meta, row = record.meta, {"paper": self.paper, "study": self.name} | _who(cell)
        row |= {"metric": metric, "rule": rule, "value": value, "data": cell.data}
        row |= {"tier": cell.tier, "device": meta["device"]}
        row["minutes"] = round(meta["seconds"] / 60, 4)
        return row | {"run_ids": cell.id, "commit": meta["commit"]}

    def _long(self, numbers, rules, scored=None):
        """One row per run, rule and entry of numbers(record, key of what is scored,
        rule) -> {metric: value}; runs that lack the view `scored` are left out."""
        out = []
        for (c, r), rule in itertools.product(self.of(), rules):
            key = (*(scored or self.scored)(c.method), "test")
            if not scored or key in r.views:
                row, found = self.row(c, r, "", rule, 0), numbers(r, key, rule)
                out += [row | {"metric": k, "value": v} for k, v in found.items()]
        return pd.DataFrame(out)

    def seeds(self, measures: Measures = MEASURES, rules=("best_val",), scored=None):
        """Long table, one row per cell, measure and rule. scored: (moment, view), or a
        function of a method that gives it; None: the study's."""
        choose = (lambda method: scored) if isinstance(scored, tuple) else scored
        numbers = lambda *at: means(at_each(measures, *at)) | runs.site_accuracies(*at)
        return self._long(numbers, rules, choose)

    def biases(self, rules=("last10_mean",), measures: Measures = BIAS, split="test"):
        """Seeds of `measures` of counts [.., A, 2, 2], CON, the accuracy as a fraction,
        over all clients' rows of a split together."""
        of = lambda r, key, by: runs.bias_of(measures, r, (*key[:2], split), by)
        return self._long(lambda *at: means(of(*at)), rules)

    def validation(self, rule: str = "best_val", measure=metrics.mean_acc):
        """The same for a measure of validation accuracies; of a diverged run 0."""
        of = lambda r, key, by: r[scoring(key), key[1], "val"][picked(by, r, key)]
        mean = lambda r, *at: np.mean(measure(of(r, *at))) * ("diverged" not in r.meta)
        return self._long(lambda *at: {"val_acc": 100 * float(mean(*at))}, [rule])

    def whole(self, measures: Measures, dataset=None, method=None):
        """Whole runs: {name: record -> value}, rule "run"; without NaN."""
        each = measures.items()
        numbers = lambda r, *_: {k: v for k, f in each if not np.isnan(v := f(r))}
        return self.only(dataset, method)._long(numbers, ("run",))

    # ------------------------------------------------------------ to draw
    def data(self, dataset: str | None = None) -> str:
        """What the numbers were made from, for a figure's provenance line."""
        return "; ".join({f"{c.label} ({c.data})": 0 for c, _ in self.of(dataset)})

    def save(self, fig, name, title, alt, dataset=None, notebook=None, seeds=None):
        """Save a figure with this study's provenance; seeds: in words, if not all."""
        from .. import plots  # here, so that matplotlib is imported to draw only

        stage, cells = notebook or self.name, self.only(dataset).cells
        about = {"title": title, "alt": alt, "data": self.data(dataset)}
        about["tier"] = min((c.tier for c in cells), key=TIERS.index)
        about["seeds"] = str(seeds or len({c.seed for c in cells}))
        about["notebook"] = f"notebooks/{self.paper}/{stage}.ipynb"
        about["stage"] = f"{self.paper}@{stage}"
        folder = f"results/figures/{self.paper}-{stage}"
        return plots.save(fig, name, folder=folder, **about)


# ---------------------------------------------------------------- tidy frames
def _who(cell):
    return {k: getattr(cell, k) for k in ("dataset", "method", "setting", "seed")}


def _tidy(run, columns, view=JUDGED, moment=JUDGED, split="test"):
    """columns(record, key) of every view that is asked for, beside who it is."""
    blocks = []
    for c, r in run.of():
        scored = run.scored(c.method)
        wanted = [scored[0] if moment == JUDGED else moment]
        wanted += [scored[1] if view == JUDGED else view, split]
        for key in r.views:
            if all(want in (None, part) for want, part in zip(wanted, key)):
                at = dict(zip(("moment", "view"), key))
                blocks.append(_who(c) | at | columns(r, key))
    have = ", ".join({" ".join(key): 0 for r in run.records for key in r.views})
    none = f"{run.name}: no run has {moment!r}, {view!r}, {split!r}; there are: {have}"
    refuse_if(not blocks, none)
    return _stacked(blocks)


def _stacked(blocks):
    """Blocks {column: a value, or one a row} as one frame; a frame of each is slow."""
    each = pd.DataFrame(blocks)
    many = [k for k in each if any(map(np.ndim, each[k]))]
    rows = each[many].map(np.size).max(axis=1)
    flat = {k: np.concatenate([*map(np.broadcast_to, each[k], rows)]) for k in many}
    return each.loc[each.index.repeat(rows)].reset_index(drop=True).assign(**flat)


def frame(run: Study, at: str | None = None, **which: str | None) -> pd.DataFrame:
    """The accuracy of every client at every evaluation.

    Columns: dataset, method, setting, seed, moment, view, split, round, client, n (rows
    behind the accuracy), acc (percent; NaN for a client without rows). at: a name of
    selection.RULES, whose evaluations are kept; None: all. which: view, moment, split;
    None: all; not given: what the study judges the method by, and the test rows.
    ValueError where there is no such view or rule."""

    def columns(r, key):
        chosen = picked(at, r, key)
        a = np.asarray(r[key][chosen], float)
        E, C = a.shape
        return {
            "split": key[2],
            "round": np.repeat(runs.rounds_of(r, key)[chosen], C),
            "client": np.tile(np.arange(C), E),
            "n": np.tile(runs.rows_of(r.meta, key), E),
            "acc": 100 * a.ravel(),
        }

    return _tidy(run, columns, **which)


def scores(run: Study, at: str | None = None, measures=MEASURES, **which: Any):
    """Measures of the clients' accuracies at every evaluation; at: a rule, then one row
    per run and view, averaged over the evaluations that it picks.

    Columns: dataset, method, setting, seed, moment, view, round (`at`: rule), and the
    measures: {name: function of accuracies [E, C], or of them and n, the test rows [C],
    to [E]}. which and errors as in `frame`."""

    def columns(r, key):
        each, when = at_each(measures, r, key, at), {"round": runs.rounds_of(r, key)}
        return {"rule": [at]} | means(each) if at else when | each

    return _tidy(run, columns, **which)


def biases(run: Study, at: str | None = None) -> pd.DataFrame:
    """How the scored model treats groups at every evaluation, over the test rows of all
    clients together.

    Columns: dataset, method, setting, seed, round, the measures of BIAS, CON, accuracy;
    all fractions, NaN where a group has no row to compare. at: as in `frame`.
    ValueError where runs have counted no groups."""
    when = lambda r, key: {"round": runs.rounds_of(r, key)[picked(at, r, key)]}
    each = lambda r, key: when(r, key) | runs.bias_of(BIAS, r, key, at)
    return _tidy(run, each).drop(columns=["moment", "view"])


def logs(run: Study, *names: str) -> pd.DataFrame:
    """What the server logged, round by round.

    Columns: dataset, method, setting, seed, round, client (of the cohort [R, M];
    missing for logs [R]), and the names. Runs that did not store all are left out.
    ValueError where none did, or where the logs are not of one shape."""
    blocks = []
    for c, r in run.of():
        if all(k in r.logs for k in names):
            values = {k: np.asarray(r.logs[k]) for k in names}
            shape, *others = {v.shape for v in values.values()}
            unlike = len(shape) > 1 and np.shape(r.logs.get("cohort")) != shape
            why = f"logs {', '.join(names)}: ask for each by itself, of the cohort"
            refuse_if(others or unlike, why)
            at = {"round": np.indices(shape)[0].ravel()}
            at |= {"client": np.ravel(r.logs["cohort"])} if len(shape) > 1 else {}
            blocks.append(_who(c) | at | {k: v.ravel() for k, v in values.items()})
    none = f"{run.paper}/{run.name}: no run has stored {' and '.join(names)}"
    refuse_if(not blocks, none)
    out = _stacked(blocks)  # a client below 0 is nobody
    return out[out.client >= 0].reset_index(drop=True) if "client" in out else out


# ---------------------------------------------------------------- csv
def write(table, path):
    """csv with six significant digits: the same table gives the same bytes."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    digits = lambda v: f"{v + 0.0:.0f}" if v == round(v, 0) else f"{v:.6g}"
    text = lambda v: digits(v) if isinstance(v, float) and not math.isnan(v) else v
    table.map(text).to_csv(path, index=False, lineterminator="\n")
    return path
