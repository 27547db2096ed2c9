"""Methods side by side on one task: a table of fairness, and a picture.

Letters: C clients, S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core import engine
from ..core.method import Method
from ..core.record import Record
from ..core.task import Task
from ..core.types import Given, Metric, Rule
from ..measures import bias, metrics
from ..measures.selection import best_val, last
from ..methods import METHODS
from ..methods.make import make

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

COLUMNS = {
    "mean": lambda a: 100 * metrics.mean_acc(a),
    "worst 10 %": lambda a: 100 * metrics.worst(a),
    "Gini": metrics.gini,
}
BIAS = {"EO": bias.EO, "DP": bias.DP}  # between groups, where the task has them
# the model a method is for: the first of these that it has
VIEWS = ("personal", "tuned", "global")


@dataclass
class Comparison:
    """Methods side by side, S seeds of each."""

    records: dict[str, list[Record]]  # {name: [Record of every seed]}
    rule: Rule  # chooses the round that counts, see fedlib.measures.selection
    view: str | None = None  # the model that is scored; None: the first of VIEWS

    def seen(self, name: str) -> str:
        """The view that is scored."""
        views = self.records[name][0].views
        have = [view for moment, view, _ in views if moment == "pre"]
        if self.view is None:
            return next((v for v in VIEWS if v in have), have[0])
        if self.view not in have:
            raise ValueError(
                f"view = {self.view!r}: {name} has {', '.join(dict.fromkeys(have))}"
            )
        return self.view

    def measure(self, name: str, metric: Metric) -> np.ndarray:
        """A metric of the clients' test accuracies [.., C] at the round that counts,
        for every seed -> [S].
        """
        each = self._counting(name)
        return np.array([np.mean(metric(r[key][at])) for r, key, at in each])

    def bias(self, name: str, metric: Metric) -> np.ndarray:
        """A bias (a function of counts, see fedlib.measures.bias) over all clients'
        test rows together, for every seed -> [S].
        """
        each = self._counting(name)
        counts = [bias.pooled(r.cells[key][at]) for r, key, at in each]
        return np.array([np.mean(metric(n)) for n in counts])

    def accuracies(self, name: str) -> np.ndarray:
        """Test accuracy of every client at the round that counts [S, C], fractions."""
        return np.stack([r[key][at].mean(0) for r, key, at in self._counting(name)])

    def left_out(self, name: str) -> np.ndarray:
        """Accuracy of the global model on the rows of clients that never took part,
        percent, for every seed -> [S].
        """
        views = self.records[name][0].views
        has_global = ("guest", "global", "test") in views
        key = "guest", "global" if has_global else self.seen(name), "test"
        each = self._counting(name)
        return np.array(
            [100 * metrics.mean_acc(r[key][at]).mean() for r, _, at in each]
        )

    def _counting(self, name):
        """[(record, key of its test accuracies, evaluations that count)]."""
        view = self.seen(name)
        recs = self.records[name]
        return [(r, ("pre", view, "test"), self.rule(r, view)) for r in recs]

    @property
    def table(self) -> DataFrame:
        """One row per method: mean and worst tenth of the clients in percent, with
        guests also the mean over clients left out, Gini, and with groups EO and DP,
        fractions; ± is half a 95 % interval over seeds.
        """
        import pandas as pd  # here, so that `import fedlib` stays quick

        rows = {name: self._row(name) for name in self.records}
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        names = {c: c.removeprefix("± ") for c in frame if c != "model"}
        fractions = ("Gini", *BIAS)
        digits = {c: 3 if name in fractions else 1 for c, name in names.items()}
        all_global = (frame.model == "global").all()
        return frame.round(digits).drop(columns="model" if all_global else [])

    def _row(self, name):
        """{column: value} of one method."""
        # here, so that `import fedlib` stays quick
        from ..measures.statistics import interval

        row, recs = {}, self.records[name]
        found = {c: self.measure(name, f) for c, f in COLUMNS.items()}
        if any(moment == "guest" for moment, *_ in recs[0].views):
            found["left out %"] = self.left_out(name)
        if recs[0].cells:
            found |= {c: self.bias(name, f) for c, f in BIAS.items()}
        for column, values in found.items():
            i = interval(values)
            row[column] = i.mean
            if len(recs) > 1:
                row[f"± {column}"] = i.half
        return row | {"model": self.seen(name)}

    def violin(self, ax: Axes | None = None) -> Axes:
        """The distribution of client accuracies, in percent, all seeds together; bar:
        median, triangle: worst tenth.
        """
        import matplotlib.pyplot as plt  # here, so that it is imported to draw only

        from .. import plots

        values = {name: 100 * self.accuracies(name) for name in self.records}
        with plt.rc_context(plots.RC):
            if ax is None:
                size = plots.SIZE[0], 0.9 + 0.5 * len(values)
                _, ax = plt.subplots(figsize=size)
            plots.violins(values, ax)
            ax.set_xlabel("test accuracy of a client, %")
        return ax

    def __repr__(self) -> str:
        return self.table.to_string()

    def _repr_html_(self):
        return self.table.to_html()


def compare(
    methods: Sequence[str | tuple[str, Given] | Method],
    task: Task,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    rule: Rule | None = None,
    view: str | None = None,
    **how: Any,
) -> Comparison:
    """Run every method with every seed on the task -> Comparison.

    methods: names, pairs (name, hyper-parameters) and Method objects, as in
    ["FedAvg", ("FedGA", {"alpha": 5})]. seeds: how many, or which. Seed s gives all
    methods the same initial weights, cohorts and batches. rule: the round that counts;
    best mean validation accuracy where every client has validation rows, else the last.
    view: the model that is scored, for methods with several; else the personal one
    where there is one. how: goes to fedlib.run (cohort, every, device, ...). On a task
    with guests, such as a domain left out, these are scored, too.
    """
    seeds = list(range(seeds)) if isinstance(seeds, int) else list(seeds)
    if not seeds or not methods or isinstance(methods, str):
        raise ValueError(
            f"compare(methods={methods!r}, seeds={seeds}): give a list of methods and "
            "at least one seed"
        )
    if "folder" in how or "seed" in how:
        raise ValueError(
            "compare runs several seeds and keeps no folder: give `seeds`, and use "
            "fedlib.run for one stored run"
        )
    if rule is None:
        rule = best_val if all(len(r) for r in task.val) else last
    how = {"guests": bool(task.guests)} | how
    made = {}
    for entry in methods:
        name, method = named(entry, task)
        if name in made:
            raise ValueError(
                f"compare: {name} is listed twice; change a hyper-parameter, or "
                "leave one out"
            )
        made[name] = method
    with one_thread():
        records = {
            n: [engine.run(m, task, rounds, seed=s, **how) for s in seeds]
            for n, m in made.items()
        }
    return Comparison(records, rule, view)


@contextmanager
def one_thread():
    """Small models on a CPU: a second thread costs more than it brings, far more when
    the machine is busy.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def named(entry, task):
    """(name in the table, Method)."""
    if isinstance(entry, Method):
        cls = type(entry)
        return next((n for n, c in METHODS.items() if c is cls), cls.__name__), entry
    name, given = (entry, {}) if isinstance(entry, str) else entry
    told = ", ".join(f"{k}={v}" for k, v in given.items())
    return f"{name}({told})" if told else name, make(name, task, **given)
