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
    """records: {name: [Record of every seed]}.

    `rule` chooses the round that counts (a function of fedlib.core.record).
    """

    records: dict[str, list[Record]]
    rule: Rule
    view: str | None = None

    def seen(self, name: str) -> str:
        """The view that is scored."""
        have = [
            v for moment, v, split in self.records[name][0].views if moment == "pre"
        ]
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
        view = self.seen(name)
        return np.array(
            [
                np.mean(metric(r["pre", view, "test"][self.rule(r, view)]))
                for r in self.records[name]
            ]
        )

    def bias(self, name: str, metric: Metric) -> np.ndarray:
        """A bias (a function of counts, see fedlib.measures.bias) over all clients'
        test rows together, for every seed -> [S].
        """
        view = self.seen(name)
        return np.array(
            [
                np.mean(
                    metric(
                        bias.pooled(r.cells["pre", view, "test"][self.rule(r, view)])
                    )
                )
                for r in self.records[name]
            ]
        )

    def accuracies(self, name: str) -> np.ndarray:
        """Test accuracy of every client at the round that counts [S, C], fractions."""
        view = self.seen(name)
        return np.stack(
            [
                r["pre", view, "test"][self.rule(r, view)].mean(0)
                for r in self.records[name]
            ]
        )

    def left_out(self, name: str) -> np.ndarray:
        """Accuracy of the global model on the rows of clients that never took part,
        percent, for every seed -> [S].
        """
        view = (
            "global"
            if ("guest", "global", "test") in self.records[name][0].views
            else self.seen(name)
        )
        return np.array(
            [
                100
                * metrics.mean_acc(
                    r["guest", view, "test"][self.rule(r, self.seen(name))]
                ).mean()
                for r in self.records[name]
            ]
        )

    @property
    def table(self) -> DataFrame:
        """One row per method: mean and worst tenth of the clients in percent, with
        guests also the mean over clients left out, Gini, and with groups EO and DP,
        fractions; ± is half a 95 % interval over seeds.
        """
        import pandas as pd  # here, so that `import fedlib` stays quick

        from ..measures.statistics import interval

        rows = {}
        for name, recs in self.records.items():
            row = rows[name] = {}
            found = {c: self.measure(name, f) for c, f in COLUMNS.items()}
            if any(moment == "guest" for moment, *_ in recs[0].views):
                found["left out %"] = self.left_out(name)
            found |= (
                {c: self.bias(name, f) for c, f in BIAS.items()}
                if recs[0].cells
                else {}
            )
            for column, values in found.items():
                i = interval(values)
                row[column] = i.mean
                if len(recs) > 1:
                    row[f"± {column}"] = i.half
            row["model"] = self.seen(name)
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        digits = {
            c: 3 if c.removeprefix("± ") in ("Gini", *BIAS) else 1
            for c in frame
            if c != "model"
        }
        return frame.round(digits).drop(
            columns="model" if (frame.model == "global").all() else []
        )

    def violin(self, ax: Axes | None = None) -> Axes:
        """The distribution of client accuracies, in percent, all seeds together; bar:
        median, triangle: worst tenth.
        """
        import matplotlib.pyplot as plt

        from .. import plots

        with plt.rc_context(plots.RC):
            if ax is None:
                _, ax = plt.subplots(
                    figsize=(plots.SIZE[0], 0.9 + 0.5 * len(self.records))
                )
            plots.violins(
                {name: 100 * self.accuracies(name) for name in self.records}, ax
            )
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
    """Small models on a CPU: a second thread costs more than it brings,
    far more when the machine is busy.
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
        return next(
            (n for n, c in METHODS.items() if c is type(entry)), type(entry).__name__
        ), entry
    name, given = (entry, {}) if isinstance(entry, str) else entry
    told = ", ".join(f"{k}={v}" for k, v in given.items())
    return f"{name}({told})" if told else name, make(name, task, **given)
