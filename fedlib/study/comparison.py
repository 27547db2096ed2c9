"""What a comparison gives: a table of fairness, who gains and who loses, pictures.

Letters: C clients, S seeds.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import nearest, refuse_if
from ..core.files import whole
from ..core.record import OWN_FIRST, Record
from ..measures import bias, metrics, selection

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

COLUMNS = {
    "mean": lambda a: 100 * metrics.mean_acc(a),
    "worst 10 %": lambda a: 100 * metrics.worst(a),
    "Gini": metrics.gini,
}
BIAS = {"EO": bias.EO, "DP": bias.DP}  # between groups, where the task has them
LOW = ("Gini", *BIAS)  # fractions, of which less is better
LARGE = 10  # points: an interval of more says little
WORDS = ("model", "seeds", "tuned")  # columns of the table that are no measure


@dataclass
class Comparison:
    """Methods side by side, S seeds of each.

    table       a row per method: mean, worst tenth, Gini, with intervals
    paired()    each client under each method minus the same client under FedAvg
    frame()     a row per method, seed and client; to_csv(path) writes it
    report()    all of it as one page, report.html
    """

    records: dict[str, list[Record]]  # {name: [Record of every seed]}
    rule: selection.Rule  # chooses the round that counts, see fedlib.measures.selection
    view: str | None = None  # the model that is scored; None: of OWN_FIRST
    failed: dict[str, str] = field(
        default_factory=dict
    )  # not in the table, {name: why}
    missing: dict[str, list[int]] = field(default_factory=dict)  # runs: {name: seeds}
    tuned: dict[str, str] = field(default_factory=dict)  # {name: in words}
    folder: Path | None = None  # where the runs are kept
    stopped: str = ""  # why runs are missing
    settings: dict[str, Any] = field(default_factory=dict)  # what all runs share
    call: str = ""  # how to get the same numbers again
    compared: list[str] = field(default_factory=list)  # see Task.compared

    def known(self, name: str) -> str:
        """The name; ValueError where no method of that name has finished."""
        there = f"(there are {', '.join(self.records) or 'none'})"
        what = f"{name!r:.60} has no finished run here{nearest(name, self.records)}"
        refuse_if(name not in self.records, f"{what} {there}")
        return name

    def seen(self, name: str) -> str:
        """The view that is scored. ValueError where there is no such method or view."""
        views = self.records[self.known(name)][0].views
        have = list(dict.fromkeys(view for at, view, _ in views if at == "pre"))
        wanted = (*OWN_FIRST, *have) if self.view is None else (self.view,)
        known = f"{name} has {', '.join(have)}"
        refuse_if(not {*wanted} & {*have}, f"view = {self.view!r}: {known}")
        return next(v for v in wanted if v in have)

    def _counting(self, name):
        """[(record, key of its test accuracies, evaluations that count)]."""
        view = self.seen(name)
        picked = lambda r: selection.picked(self.rule, r, view)
        return [(r, ("pre", view, "test"), picked(r)) for r in self.records[name]]

    def measure(self, name: str, metric: selection.Metric) -> np.ndarray:
        """A metric of the clients' test accuracies [.., C] at the round that counts,
        for every seed -> [S].
        """
        each = self._counting(name)
        return np.array([np.mean(metric(r[key][at])) for r, key, at in each])

    def accuracies(self, name: str) -> np.ndarray:
        """Test accuracy of every client at the round that counts [S, C], fractions."""
        return np.stack([r[key][at].mean(0) for r, key, at in self._counting(name)])

    @property
    def table(self) -> DataFrame:
        """One row per method: mean and worst tenth of the clients in percent, with
        guests also the mean over clients left out under the global model; Gini, and
        with groups EO and DP, fractions; ± is half a 95 % interval over seeds.
        """
        import pandas as pd  # here, so that `import fedlib` stays quick

        rows = {name: self._row(name) for name in self.records}
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        if not rows:
            return frame
        frame = frame[[*frame.columns.difference(WORDS, sort=False), *WORDS]]
        plain = {"tuned": not self.tuned, "model": (frame.model == "global").all()}
        plain["seeds"] = frame.seeds.nunique() == 1 and not self.missing
        digits = {c: 3 if c.removeprefix("± ") in LOW else 1 for c in frame}
        return frame.round(digits).drop(columns=[c for c in WORDS if plain[c]])

    def _row(self, name):
        """{column: value} of one method."""
        # here, so that `import fedlib` stays quick
        from ..measures.statistics import interval

        row, records, each = {}, self.records[name], self._counting(name)
        found = {c: self.measure(name, f) for c, f in COLUMNS.items()}
        if away := [view for moment, view, _ in records[0].views if moment == "guest"]:
            key = "guest", "global" if "global" in away else self.seen(name), "test"
            left_out = [metrics.mean_acc(r[key][at]).mean() for r, _, at in each]
            found["left out %"] = 100 * np.array(left_out)
        if records[0].cells:
            n = [bias.pooled(r.cells[key][at]) for r, key, at in each]
            found |= {c: [np.mean(f(x)) for x in n] for c, f in BIAS.items()}
        for column, values in found.items():
            row[column], known = float(np.mean(values)), np.isfinite(values).all()
            if len(records) > 1:  # of one client no Gini, of an empty cell no EO
                row[f"± {column}"] = interval(values).half if known else np.nan
        words = self.seen(name), len(records), self.tuned.get(name, "")
        return row | dict(zip(WORDS, words))

    def ranked(self, by: str = "worst 10 %") -> DataFrame:
        """The table, the best of a column first: the lowest Gini, EO or DP, else the
        highest. ValueError for a column that there is not.
        """
        table = self.table
        columns = [c for c in table if not c.startswith("±") and c not in WORDS]
        known = f"{nearest(by, columns)} (the table has {', '.join(columns)})"
        refuse_if(by not in columns, f"by = {by!r}{known}")
        return table.sort_values(by, ascending=by in LOW, kind="stable")

    # ------------------------------------------------------------ client by client
    def clients(self) -> list[str]:
        """The names of the C clients."""
        meta = next(iter(self.records.values()))[0].meta
        return list(meta["owners"] or (f"client {c}" for c in range(meta["clients"])))

    def seeds(self, name: str) -> list[int]:
        """The seeds of a method that are there [S]."""
        return [r.meta["seed"] for r in self.records[name]]

    def paired(self, against: str = "FedAvg", points: float = 1.0) -> DataFrame:
        """Who gains and who loses: one row per method and client.

        Columns: method, client, rows (test rows), accuracy (percent, mean over seeds),
        difference (to the same client and seed under `against`, percentage points, mean
        over the seeds that both have), ± difference (half a 95 % interval, from two
        seeds on), change (gain or loss: by more than `points`; else same).
        ValueError for a name that is not there, or no seed in common.
        """
        import pandas as pd
        from scipy import stats

        names = [n for n in self.records if n != self.known(against)]
        remedy = "give percentage points >= 0, and compare two methods or more"
        wrong = not points >= 0 or not names
        refuse_if(wrong, f"points = {points!r}, against {against}: {remedy}")
        table = lambda n: pd.DataFrame(self.accuracies(n).astype(float), self.seeds(n))
        blocks, base = [], table(against)
        for name in names:
            mine = table(name)
            d = (100 * (mine - base).dropna(how="all")).round(4)  # float32: noise
            have = f"{[*mine.index]} and {[*base.index]}"
            refuse_if(d.empty, f"{name}, {against}: no seed in common, {have}")
            mean = d.mean()
            block = {
                "method": name,
                "client": self.clients(),
                "rows": self.records[name][0].meta["n"]["test"],
                "accuracy": (100 * self.accuracies(name).mean(0).astype(float)).round(
                    4
                ),
                "difference": mean,
                "± difference": stats.t.ppf(0.975, len(d) - 1) * d.sem(),
            }
            side = [mean > points, mean < -points]
            block["change"] = np.select(side, ["gain", "loss"], "same")
            blocks.append(pd.DataFrame(block))
        return pd.concat(blocks, ignore_index=True)

    def frame(self) -> DataFrame:
        """One row per method, seed and client: method, seed, client, rows (test rows),
        model, round (the one that counts; the last of several), accuracy (percent).
        """
        import pandas as pd

        blocks = [
            {
                "method": name,
                "seed": r.meta["seed"],
                "client": self.clients(),
                "rows": r.meta["n"]["test"],
                "model": key[1],
                "round": int(r.rounds[at[-1]]),
                "accuracy": (100 * r[key][at].mean(0).astype(float)).round(4),
            }
            for name in self.records
            for r, key, at in self._counting(name)
        ]
        return pd.concat(map(pd.DataFrame, blocks), ignore_index=True)

    def to_csv(self, path: str | Path) -> None:
        """Write `frame` to a file."""
        text = self.frame().to_csv(index=False).encode()
        whole(Path(path), lambda f: f.write(text))

    # ------------------------------------------------------------ to look at
    def report(self, path: str | Path = "report.html", against: str = "FedAvg") -> Path:
        """Write the comparison as one page that needs nothing else -> its path.
        against: whom clients gain or lose to. ValueError where nothing has finished.
        """
        from .page import page  # here, since it imports what draws

        text = page(self, against).encode()
        whole(Path(path), lambda f: f.write(text))
        return Path(path)

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

    def gaps(self) -> list[str]:
        """What is not in the table, and how to go on; one sentence each."""
        lines = [f"{name} failed: {why}" for name, why in self.failed.items()]
        if self.missing:
            runs = ", ".join(f"{n} (seeds {s})" for n, s in self.missing.items())
            on = "the same call goes on from there"
            if self.folder is None:
                on = "give folder= to keep what is finished, and go on from there"
            lines.append(f"{self.stopped or 'stopped'}; not computed: {runs}; {on}")
        return lines

    def cautions(self) -> list[str]:
        """Who is compared, and what seeds and test rows are too few to say, or seeds
        that differ in nothing: sentences.
        """
        few = min((len(r) for r in self.records.values()), default=0)
        percents = {f"± {c}" for c in (*COLUMNS, "left out %") if c not in LOW}
        widest = self.table.filter(items=percents).max(axis=None) if few > 1 else 0
        wide = (
            f"intervals over {few} seeds reach ±{widest:.0f} points; more seeds narrow"
        )
        one = "one seed gives no interval; give seeds=5 or more"
        curves = {n: [r[k] for r, k, _ in self._counting(n)] for n in self.records}
        same = lambda of: len(of) > 1 and all(np.array_equal(of[0], v) for v in of)
        equal = ", ".join(name for name, of in curves.items() if same(of))
        alike = (
            f"the seeds of {equal} gave one and the same run: nothing in it is drawn"
        )
        said = (few == 1, one), (widest > LARGE, f"{wide} them"), (equal, alike)
        return [*self.compared, *(words for wrong, words in said if wrong)]

    def __repr__(self) -> str:
        text = self.table.to_string() if self.records else "no run has finished"
        return "\n".join([text, *self.cautions(), *self.gaps()])

    def _repr_html_(self):
        table = self.table.to_html() if self.records else "no run has finished"
        lines = [*self.cautions(), *self.gaps()]
        return table + "".join(f"<p>{html.escape(line)}</p>" for line in lines)
