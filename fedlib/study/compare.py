"""Methods side by side on one task: a table of fairness, and a picture.

Letters: C clients, S seeds.
"""

from __future__ import annotations

import html
import inspect
import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..core.errors import nearest
from ..core.files import whole
from ..core.method import Method
from ..core.ranges import COUNT
from ..core.record import Record
from ..core.task import Task
from ..core.types import Given, Metric, Rule
from ..measures import bias, metrics, selection
from . import asked, matrix, tune

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
# the model a method is for: the first of these that it has
VIEWS = ("personal", "tuned", "global")
TIDY = ["method", "seed", "client", "rows", "model", "round", "accuracy"]
EVALUATIONS = 100  # at most so many unless `every` is given: scoring costs, too


@dataclass
class Comparison:
    """Methods side by side, S seeds of each.

    table       a row per method: mean, worst tenth, Gini, with intervals
    paired()    each client under each method minus the same client under FedAvg
    frame()     a row per method, seed and client; to_csv(path) writes it
    report()    all of it as one page, report.html
    """

    records: dict[str, list[Record]]  # {name: [Record of every seed]}
    rule: Rule  # chooses the round that counts, see fedlib.measures.selection
    view: str | None = None  # the model that is scored; None: the first of VIEWS
    # methods that are not in the table since a run failed, {name: why}
    failed: dict[str, str] = field(default_factory=dict)
    # runs that were not computed, {name: seeds}
    missing: dict[str, list[int]] = field(default_factory=dict)
    # hyper-parameters that were chosen on validation rows, {name: in words}
    tuned: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None  # where the runs are kept
    stopped: str = ""  # why runs are missing
    settings: dict[str, Any] = field(default_factory=dict)  # what all runs share
    call: str = ""  # how to get the same numbers again

    def seen(self, name: str) -> str:
        """The view that is scored. ValueError where there is no such method, or it has
        no such view."""
        if not isinstance(name, str) or name not in self.records:
            raise ValueError(
                f"{name!r:.60} is no method of this comparison"
                f"{nearest(name, self.records)} (there are {', '.join(self.records)})"
            )
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
        at = [selection.picked(self.rule, r, view) for r in recs]
        return [(r, ("pre", view, "test"), k) for r, k in zip(recs, at)]

    @property
    def table(self) -> DataFrame:
        """One row per method: mean and worst tenth of the clients in percent, with
        guests also the mean over clients left out, Gini, and with groups EO and DP,
        fractions; ± is half a 95 % interval over seeds. What was tuned, and how many
        seeds there are where some are missing, stand beside it.
        """
        import pandas as pd  # here, so that `import fedlib` stays quick

        rows = {name: self._row(name) for name in self.records}
        if not rows:
            return pd.DataFrame(columns=list(COLUMNS)).rename_axis("method")
        frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        frame = frame[[*(c for c in frame if c not in WORDS), *WORDS]]
        if frame.seeds.nunique() == 1 and not self.missing:
            frame = frame.drop(columns="seeds")
        if not self.tuned:
            frame = frame.drop(columns="tuned")
        names = {c: c.removeprefix("± ") for c in frame if c not in WORDS}
        digits = {c: 3 if name in LOW else 1 for c, name in names.items()}
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
        words = self.seen(name), len(recs), self.tuned.get(name, "")
        return row | dict(zip(WORDS, words))

    def ranked(self, by: str = "worst 10 %") -> DataFrame:
        """The table, the best of a column first: the lowest Gini, EO or DP, else the
        highest. ValueError for a column that there is not.
        """
        table = self.table
        columns = [c for c in table if not c.startswith("±") and c not in WORDS]
        if by not in columns:
            raise ValueError(
                f"by = {by!r}{nearest(by, columns)} (the table has "
                f"{', '.join(columns)})"
            )
        return table.sort_values(by, ascending=by in LOW, kind="stable")

    # ------------------------------------------------------------ client by client
    def clients(self) -> list[str]:
        """The names of the C clients."""
        meta = next(iter(self.records.values()))[0].meta
        return list(meta["owners"] or (f"client {c}" for c in range(meta["clients"])))

    def seeds(self, name: str) -> list[int]:
        """The seeds of a method that are there [S]."""
        return [r.meta["seed"] for r in self.records[name]]

    def differences(self, name: str, against: str = "FedAvg") -> np.ndarray:
        """Test accuracy of every client under one method minus that under another with
        the same seed, in percentage points [S, C]; S seeds that both have.

        ValueError for a name that is not there, or no seed in common.
        """
        for n in (name, against):
            if n not in self.records:
                raise ValueError(
                    f"{n!r} has no finished run here{nearest(n, self.records)} (there "
                    f"are {', '.join(self.records) or 'none'})"
                )
        a, b = (dict(zip(self.seeds(n), self.accuracies(n))) for n in (name, against))
        both = [s for s in a if s in b]
        if not both:
            raise ValueError(
                f"{name} and {against} have no seed in common: {list(a)} and {list(b)}"
            )
        d = 100 * np.stack([a[s].astype(float) - b[s] for s in both])
        return d.round(4)  # accuracies are kept as float32: a point is a point

    def paired(self, against: str = "FedAvg", points: float = 1.0) -> DataFrame:
        """Who gains and who loses: one row per method and client.

        Columns: method, client, rows (test rows), accuracy (percent, mean over seeds),
        difference (to the same client and seed under `against`, percentage points, mean
        over seeds), ± difference (half a 95 % interval, from two seeds on), change
        (gain or loss: by more than `points`; else same).
        ValueError as `differences`.
        """
        import pandas as pd
        from scipy.special import stdtrit

        if not points >= 0:
            raise ValueError(f"points = {points!r}: give percentage points >= 0")
        blocks = []
        for name in (n for n in self.records if n != against):
            d = self.differences(name, against)
            mean = d.mean(0)
            block = {
                "method": name,
                "client": self.clients(),
                "rows": self.records[name][0].meta["n"]["test"],
                "accuracy": 100 * self.accuracies(name).mean(0).astype(float),
                "difference": mean,
            }
            if len(d) > 1:  # as statistics.interval, all clients at once
                error = d.std(0, ddof=1) / math.sqrt(len(d))
                block["± difference"] = stdtrit(len(d) - 1, 0.975) * error
            words = np.array(["loss", "same", "gain"])
            sides = 1 + (mean > points).astype(int) - (mean < -points)
            blocks.append(pd.DataFrame(block | {"change": words[sides]}))
        if not blocks:
            self.differences(against, against)  # is it there?
            raise ValueError(f"only {against} has finished: nothing to compare it with")
        return pd.concat(blocks, ignore_index=True)

    def gains(self, against: str = "FedAvg", points: float = 1.0) -> DataFrame:
        """How many clients gain, stay or lose: one row per method; arguments as
        `paired`.
        """
        by = self.paired(against, points).groupby("method", sort=False)
        count = by["change"].value_counts().unstack(fill_value=0)
        count = count.reindex(columns=["gain", "same", "loss"], fill_value=0)
        count.columns.name = None
        mean, low = by["difference"].mean(), by["difference"].min()
        order = [n for n in self.records if n != against]
        return count.assign(mean=mean, lowest=low).loc[order]

    def frame(self) -> DataFrame:
        """One row per method, seed and client: method, seed, client, rows (test rows),
        model, round (the one that counts; the last of several), accuracy (percent).
        """
        import pandas as pd

        blocks = [
            pd.DataFrame(
                {
                    "method": name,
                    "seed": r.meta["seed"],
                    "client": self.clients(),
                    "rows": r.meta["n"]["test"],
                    "model": key[1],
                    "round": int(r.rounds[at[-1]]),
                    "accuracy": 100 * r[key][at].mean(0).astype(float),
                }
            )
            for name in self.records
            for r, key, at in self._counting(name)
        ]
        if not blocks:
            return pd.DataFrame(columns=TIDY)
        return pd.concat(blocks, ignore_index=True)

    def to_csv(self, path: str | Path) -> None:
        """Write `frame` to a file."""
        text = self.frame().to_csv(index=False).encode()
        whole(Path(path), lambda f: f.write(text))

    # ------------------------------------------------------------ to look at
    def report(self, path: str | Path = "report.html", against: str = "FedAvg") -> Path:
        """Write the comparison as one page that needs nothing else -> its path.

        First the answer in words, then the table, the clients of each method, curves,
        who gains and who loses against a method, the cost, what leaves a device, and
        how to do it again. ValueError where nothing has finished.
        """
        from . import page  # here, since it imports what draws

        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            raise ValueError(
                f"report({str(path)!r}): give a file in a folder that exists, as in "
                "report.html"
            )
        text = page.page(self, against).encode()
        whole(path, lambda f: f.write(text))
        return path

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
        said = [f"{name} failed: {why}" for name, why in self.failed.items()]
        if self.missing:
            runs = ", ".join(
                f"{name} (seed {', '.join(map(str, seeds))})"
                for name, seeds in self.missing.items()
            )
            on = "the same call goes on from there"
            if self.folder is None:
                on = "give folder= to keep what is finished, and go on from there"
            said.append(f"{self.stopped or 'stopped'}; not computed: {runs}; {on}")
        return said

    def cautions(self) -> list[str]:
        """What the seeds are too few to say; a sentence, or none."""
        few = min((len(r) for r in self.records.values()), default=0)
        if not few:
            return []
        if few == 1:
            return ["one seed gives no interval; give seeds=5 or more"]
        table = self.table
        percents = [f"± {c}" for c in (*COLUMNS, "left out %") if c not in LOW]
        halves = table[[c for c in percents if c in table]].max(axis=None)
        if not halves > LARGE:
            return []
        return [
            f"intervals over {few} seeds reach ±{halves:.0f} points; more seeds narrow "
            "them"
        ]

    def __repr__(self) -> str:
        text = self.table.to_string() if self.records else "no run has finished"
        return "\n".join([text, *self.cautions(), *self.gaps()])

    def _repr_html_(self):
        table = self.table.to_html() if self.records else "no run has finished"
        lines = [*self.cautions(), *self.gaps()]
        return table + "".join(f"<p>{html.escape(line)}</p>" for line in lines)


def compare(
    methods: Sequence[str | tuple[str, Given] | Method],
    task: Task,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    rule: Rule | None = None,
    view: str | None = None,
    *,
    folder: str | Path | None = None,
    workers: int = 1,
    grid: bool | Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    budget: int = 8,
    progress: bool | None = None,
    **how: Any,
) -> Comparison:
    """Run every method with every seed on the task -> Comparison.

    methods: names, pairs (name, hyper-parameters) and Method objects, as in
    ["FedAvg", ("FedGA", {"alpha": 5})]. seeds: how many, or which. Seed s gives all
    methods the same initial weights, cohorts and batches. rule: the round that counts;
    best mean validation accuracy where every client has validation rows, else the last.
    view: the model that is scored, for methods with several; else the personal one
    where there is one. how: goes to fedlib.run (cohort, device, ...). On a task with
    guests, such as a domain left out, these are scored, too. every: all clients are
    scored every so many rounds; where it is not given in every round, and in a run of
    more than EVALUATIONS rounds about so many times.

    folder: where each run is kept; a second call computes what is not there yet, and an
    interrupted run continues. workers: processes on this machine, which change no bit;
    a script then needs `if __name__ == "__main__":`. progress: a bar (True), nothing
    (False), or a bar on a terminal and a line per minute elsewhere (None).

    grid: tune hyper-parameters first: {"FedGA": {"alpha": [1, 3]}}, or True for the
    values that each method declares. Of each method at most `budget` configurations run
    once, with a seed of 1000 or more that counts nowhere else; the one with the highest
    mean validation accuracy over clients is taken.

    All methods are tried on one client before anything trains: ValueError names those
    that cannot run. A method that fails later is left out of the table and named in
    `failed`; Ctrl-C returns what is there, and `missing` says what is not. ValueError
    where every method fails.
    """
    seeds, rounds = asked.seeds(seeds), asked.whole_number("rounds", rounds, 1, COUNT)
    asked.check_list(methods, task)
    asked.whole_number("workers", workers, 1)
    asked.whole_number("budget", budget, 1)
    asked.bar(progress)
    asked.view(view)
    takes = inspect.signature(compare).parameters
    usual = {"guests": bool(task.guests), "every": math.ceil(rounds / EVALUATIONS)}
    how = usual | asked.settings(how, task, rounds, usual, takes)
    rule = asked.rule(rule, task, how)
    entries = list(methods)
    made, plan = asked.methods(entries, task), {}
    if grid is not None and grid is not False:
        asked.check_validation("grid", task, how)
        plan = tune.candidates(made, tune.grids(grid, made), budget)
    tried = {name: m for of, _ in plan.values() for name, (_, m) in of.items()}
    common = matrix.Common(task, made | tried, rounds, how)
    settings = matrix.identity(common)
    folder = None if folder is None else matrix.checked_folder(folder, settings)
    pilot = tune.pilot_seed(seeds)
    pilots = [job(folder, common, name, pilot) for name in tried]
    planned = [job(folder, common, n, s) for s in seeds for n in made]
    with one_thread():
        fixed = [j for j in planned if j.name not in plan]
        asked.check_all(common, [*pilots, *fixed], view)
        if folder is not None:
            matrix.claim(folder, settings)
        done = matrix.run_all(common, pilots, workers, progress, ahead=planned)
        tuned = choose(plan, done, rule, view)
        lost = {name: why(plan[name][0], done) for name in plan if name not in tuned}
        methods = made | {name: method for name, (method, _) in tuned.items()}
        common = replace(common, methods=methods)
        if not done.stopped:
            run = [n for n in made if n not in lost]
            jobs = [job(folder, common, n, s) for s in seeds for n in run]
            done = matrix.run_all(common, jobs, workers, progress, len(pilots))
    result = gathered(made, seeds, done, lost)
    if not result["records"] and result["failed"] and not done.stopped:
        some = asked.as_lines(result["failed"])
        raise ValueError(f"compare: no method has finished{some}")
    words = [
        matrix.in_words(made[name]) if isinstance(entry, Method) else repr(entry)
        for name, entry in zip(made, entries)
    ]
    return Comparison(
        rule=rule,
        view=view,
        tuned={name: words for name, (_, words) in tuned.items()},
        folder=folder,
        stopped=done.stopped,
        settings=settings,
        call=call_of(words, rounds, seeds, rule, view, grid, budget, how),
        **result,
    )


def call_of(methods, rounds, seeds, rule, view, grid, budget, how):
    """The text of a call that gives the same numbers; methods: as one writes them."""
    told = {k: repr(v) for k, v in how.items() if k != "guests"}
    told |= {"rule": getattr(rule, "__name__", repr(rule))}
    told |= {} if view is None else {"view": repr(view)}
    told |= {"grid": repr(grid), "budget": repr(budget)} if grid else {}
    lines = [f"[{', '.join(methods)}]", "task", f"rounds={rounds}", f"seeds={seeds}"]
    lines += [f"{k}={v}" for k, v in told.items()]
    return "fedlib.compare(\n    " + ",\n    ".join(lines) + ",\n)"


def job(folder, common, name, seed):
    """A run of a comparison, and where it is kept."""
    if folder is None:
        return matrix.Job(name, seed, None)
    at = folder / matrix.folder_name(common.methods[name]) / str(seed)
    return matrix.Job(name, seed, str(at))


def choose(plan, done, rule, view):
    """{name: (Method, words)} of the methods that are tuned, by the validation rows of
    the pilot runs."""
    scores = {}
    for (label, _), record in done.records.items():
        look = Comparison({label: [record]}, rule, view)
        seen = look.seen(label)
        at = selection.picked(rule, record, seen)
        scores[label] = float(np.nanmean(record["pre", seen, "val"][at]))
    found = {name: tune.chosen(of, size, scores) for name, (of, size) in plan.items()}
    return {name: best for name, best in found.items() if best and not done.stopped}


def why(of, done):
    """Why no configuration of a method has ended."""
    said = [text for (name, _), text in done.failed.items() if name in of]
    return f"no configuration could be tried: {said[0]}" if said else ""


def gathered(made, seeds, done, lost):
    """The fields of a Comparison that say what has come of each run."""
    failed = {name: text for name, text in lost.items() if text}
    for (name, seed), text in sorted(done.failed.items(), key=lambda e: e[0][1]):
        if name in made:
            failed.setdefault(name, f"seed {seed}: {text}")
    records, missing = {}, {}
    for name in (n for n in made if n not in failed):
        there = {s: done.records[name, s] for s in seeds if (name, s) in done.records}
        if there:
            records[name] = list(there.values())
        if len(there) < len(seeds):
            missing[name] = [s for s in seeds if s not in there]
    return {"records": records, "failed": failed, "missing": missing}


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
