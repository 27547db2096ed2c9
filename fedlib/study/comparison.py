"""What a comparison gives: a table of fairness, who gains and who loses, pictures.

Letters: C clients, S seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from scipy import stats

from ..core.errors import refuse_if
from ..core.files import whole
from ..core.record import OWN_FIRST, Record
from ..measures import bias, metrics, selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = {
    "mean": lambda a: 100 * metrics.mean_acc(a),
    "worst 10 %": lambda a: 100 * metrics.worst(a),
    "Gini": metrics.gini,
}
BIAS = {"EO": bias.EO, "DP": bias.DP}  # between groups, where the task has them
LOW = ("Gini", *BIAS)  # fractions, of which less is better


@dataclass
class Comparison:
    """Methods side by side on one task, S seeds of each.

    table       a row per method: mean, worst tenth, Gini, with intervals
    paired()    each client under each method minus the same client under FedAvg
    frame()     a row per method, seed and client
    report()    all of it as one page, report.html
    """

    records: dict[str, list[Record]]  # {name: [Record of every seed]}
    rule: selection.Rule  # chooses the round that counts, see fedlib.measures.selection
    failed: dict[str, str] = field(default_factory=dict)  # {name: why runs are missing}
    tuned: dict[str, str] = field(default_factory=dict)  # {name: in words}
    folder: Path | None = None  # where the runs are kept
    stopped: str = ""  # why runs were not computed
    settings: dict[str, str] = field(default_factory=dict)  # what all runs share
    compared: list[str] = field(default_factory=list)  # see Task.compared

    def counting(self, name: str) -> list[tuple[Record, str, np.ndarray]]:
        """[(record, view that is scored, evaluations that count)] of every seed."""
        each = [(r, view_of(r)) for r in self.records[name]]
        return [(r, view, selection.picked(self.rule, r, view)) for r, view in each]

    def accuracies(self, name: str) -> np.ndarray:
        """Test accuracy of every client at the round that counts [S, C], fractions."""
        each = self.counting(name)
        return np.stack([r["pre", view, "test"][at].mean(0) for r, view, at in each])

    @property
    def table(self) -> pd.DataFrame:
        """One row per method, the best worst tenth first: mean and worst tenth of the
        clients in percent, with guests also the mean over clients left out under the
        global model; Gini, and with groups EO and DP, fractions; ± is half a 95 %
        interval over seeds. ValueError where nothing has finished.
        """
        none = f"no run has finished: {'; '.join(self.cautions())}"
        refuse_if(not self.records, none)
        rows = {}
        for name, records in self.records.items():
            seeds = pd.DataFrame([measured(*each) for each in self.counting(name)])
            parts = {"": seeds.mean(skipna=False), "± ": half_interval(seeds)}
            row = {f"{mark}{k}": parts[mark][k] for k in seeds for mark in parts}
            row |= {"model": view_of(records[0]), "seeds": len(records)}
            rows[name] = row | {"tuned": self.tuned.get(name, "")}
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        empty = [k for k in table if k[0] == "±" and table[k].isna().all()]
        table = table.drop(columns=[*empty, *["tuned"] * (not self.tuned)])
        digits = {k: 3 if k.removeprefix("± ") in LOW else 1 for k in table}
        by = {"by": "worst 10 %", "ascending": False, "kind": "stable"}
        return table.sort_values(**by).round(digits)

    # ------------------------------------------------------------ client by client
    def frame(self) -> pd.DataFrame:
        """One row per method, seed and client: method, seed, client (name or number),
        rows (of test), model, round (the one that counts; the last of several),
        accuracy (percent).
        """
        blocks = [
            {
                "method": name,
                "seed": r.meta["seed"],
                "client": r.meta["owners"] or range(r.meta["clients"]),
                "rows": r.meta["n"]["test"],
                "model": view,
                "round": int(r.rounds[at[-1]]),
                "accuracy": 100 * r["pre", view, "test"][at].mean(0).astype(float),
            }
            for name in self.records
            for r, view, at in self.counting(name)
        ]
        found = pd.concat(map(pd.DataFrame, blocks), ignore_index=True)
        return found.round({"accuracy": 4})  # of a float32

    def paired(self, against: str = "FedAvg", points: float = 1.0) -> pd.DataFrame:
        """Who gains and who loses: one row per method and client.

        Columns: method, client, rows (test rows), accuracy (percent, mean over seeds),
        difference (to the same client and seed under `against`, percentage points, mean
        over the seeds that both have), ± difference (half a 95 % interval, from two
        seeds on), change (gain or loss: by more than `points`; else same).
        ValueError for a name that is not there, or no seed in common.
        """
        frame, at = self.frame(), ["seed", "client"]
        base = frame[frame.method == against].set_index(at)["accuracy"]
        mine = frame[frame.method != against].join(base.rename("base"), at)
        shared = mine.groupby("method")["base"].count()
        refuse_if(
            not shared.all(),
            f"against = {against!r} has no seed in common with "
            f"{', '.join(shared.index[shared == 0])}, of {', '.join(self.records)}",
        )
        mine["difference"] = (mine["accuracy"] - mine["base"]).round(4)
        each = mine.groupby(["method", "client"], sort=False)
        found = each.agg({"rows": "first", "accuracy": "mean", "difference": "mean"})
        found["± difference"] = half_interval(each["difference"])
        side = [found.difference > points, found.difference < -points]
        found["change"] = np.select(side, ["gain", "loss"], "same")
        return found.reset_index()

    # ------------------------------------------------------------ to look at
    def violin(self, ax: Axes | None = None) -> Axes:
        """The distribution of client accuracies, in percent, all seeds together; bar:
        median, triangle: worst tenth.
        """
        import matplotlib.pyplot as plt  # here, so that it is imported to draw only

        from .. import plots

        values = {name: 100 * self.accuracies(name) for name in self.records}
        with plt.rc_context(plots.RC):
            if ax is None:
                height = 0.9 + 0.5 * len(values)
                ax = plt.subplots(figsize=(plots.SIZE[0], height))[1]
            plots.violins(values, ax).set_xlabel("test accuracy of a client, %")
        return ax

    def report(self, path: str | Path = "report.html", against: str = "FedAvg") -> Path:
        """Write the comparison as one page that needs nothing else, by the template
        report.html beside this file -> its path. against: whom clients gain or lose to;
        the best method, where FedAvg was not compared. ValueError where nothing has
        finished.
        """
        import matplotlib.pyplot as plt
        from jinja2 import Environment

        from .. import plots

        table, path = self.table, Path(path)
        if against == "FedAvg" and against not in self.records:
            against = table.index[0]
        alt = "distribution of client accuracies, one violin per method"
        figure = self.violin().figure
        violins = plots.inline(plots.svg(figure, "clients", alt), "clients", alt)
        plt.close(figure)
        given = {"c": self, "table": table, "low": LOW, "violins": violins}
        given |= {"against": against, "paired": self.paired(against)}
        text = Path(__file__).with_name("report.html").read_text("utf-8")
        page = Environment(autoescape=True).from_string(text)
        page = page.render(given, palette=plots.PALETTE).encode()
        whole(path, lambda f: f.write(page))
        return path

    def cautions(self) -> list[str]:
        """Who is compared, what the table does not hold, and what its seeds cannot say;
        one sentence each.
        """
        lines = [f"{name} is incomplete: {why}" for name, why in self.failed.items()]
        if self.stopped:
            on = "the same call goes on from there"
            if self.folder is None:
                on = "give folder= to keep what is finished, and go on from there"
            lines.append(f"{self.stopped}; {on}")
        if any(len(r) == 1 for r in self.records.values()):
            lines.append("one seed gives no interval; give seeds=5 or more")
        for name, (first, *others) in self.records.items():
            curve = lambda r: r["pre", view_of(r), "test"]
            if others and all(np.array_equal(curve(first), curve(r)) for r in others):
                same = "gave one and the same run: nothing in it is drawn"
                lines.append(f"the seeds of {name} {same}")
        return [*self.compared, *lines]

    def __repr__(self) -> str:
        text = self.table.to_string() if self.records else "no run has finished"
        return "\n".join([text, *self.cautions()])


def view_of(record):
    """The view that is scored: the most personal one before training."""
    have = [view for moment, view, _ in record.views if moment == "pre"]
    return next(view for view in (*OWN_FIRST, *have) if view in have)


def measured(r, view, at):
    """{column: value} of a record, at the evaluations `at`."""
    a = r["pre", view, "test"][at]
    row = {k: float(np.mean(f(a))) for k, f in COLUMNS.items()}
    if away := [view for moment, view, _ in r.views if moment == "guest"]:
        left = r["guest", "global" if "global" in away else view, "test"][at]
        row["left out %"] = 100 * float(metrics.mean_acc(left).mean())
    if r.cells:
        n = bias.pooled(r.cells["pre", view, "test"][at])
        row |= {k: float(np.mean(f(n))) for k, f in BIAS.items()}
    return row


def half_interval(seeds):
    """Half of Student's 95 % interval of each column or group; nan for one seed."""
    return stats.t.ppf(0.975, seeds.count() - 1) * seeds.sem()
