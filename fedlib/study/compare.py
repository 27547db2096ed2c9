"""Methods side by side on one task: a table of fairness, who gains and who loses.

Methods x seeds are jobs, kept in a folder and never computed twice. The folder of a
method is named by all that makes its numbers but the seed. Letters: C clients, S seeds.

    folder/FedGA-0123456789abcdef/0    the run with seed 0, as `engine.run` keeps it
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from ..core import engine, files, given
from ..core.errors import SEEDS, is_whole, known, listed, refuse_if
from ..core.method import Method, describe
from ..core.record import OWN_FIRST, Record, digest
from ..core.task import Task
from ..measures import bias, metrics, selection
from ..methods import search as tune
from ..methods.make import make
from . import guide, identity
from .compute import run_jobs
from .store import alone
from .studies import PILOT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EVALUATIONS = 100  # at most so many unless `every` is given: scoring costs, too
MOST = 10_000  # seeds that nobody lists one by one
# arguments of engine.run that change what a record holds
NAMING = "cohort every splits guests own microscope".split()
USUAL = {k: p.default for k, p in inspect.signature(engine.run).parameters.items()}
COLUMNS = {
    "mean": lambda a: 100 * metrics.mean_acc(a),
    "worst 10 %": lambda a: 100 * metrics.worst(a),
    "Gini": metrics.gini,
}
BIAS = {"EO": bias.EO, "DP": bias.DP}  # between groups, where the task has them
LOW = ("Gini", *BIAS)  # fractions, of which less is better
CUT = """all seeds share one cut of the rows in training and test, which ± leaves out; \
of {} clients the smallest has {} test rows"""


def compare(
    methods: Sequence[str | tuple[str, Mapping[str, Any] | Method] | Method],
    task: Task,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    rule: selection.Rule | None = None,
    *,
    folder: str | Path | None = None,
    workers: int = 1,
    search: int = 0,
    progress: bool | None = None,
    **how: Any,
) -> Comparison:
    """Run every method with every seed on the task -> Comparison.

    methods: names, Methods, and pairs (name, hyper-parameters) or (label, Method), as
    ["FedAvg", ("FedGA", {"alpha": 5})]. seeds: how many, or which; seed s gives all
    methods the same initial weights, cohorts and batches. rule: the round that counts;
    best mean validation accuracy where every client has validation rows, else the last.
    how: goes to fedlib.run (cohort, device, ...); guests are scored where a task has
    some, and all clients every round, or about EVALUATIONS times.

    folder: where each run is kept; a second call computes what is not there yet, and an
    interrupted run continues. workers: processes on this machine, which change no bit
    (on others: see fedlib.study.compute). progress: a bar (True), nothing (False), or a
    bar on a terminal or in a notebook (None).

    search: so many settings of each method are tried first, the local step among them
    (fedlib.methods.search), on seeds from 1000 on that count nowhere else; what an
    entry gives stays. A row is the highest mean validation accuracy over clients; where
    another setting has the best worst tenth, that one is a row "FedGA (worst)".

    A method that fails is named in `failed`, stops no other; ValueError: all fail."""
    given.check_values({**locals(), "how": None, **how}, VALUES)
    seeds, entries, how_many = seeds_of(seeds), {}, (workers, progress)
    for name, *entry in map(method_of, methods):
        refuse_if(name in entries, f"{name} is listed twice: give (label, method)")
        entries[name] = entry
    usual = {"guests": bool(task.guests), "every": math.ceil(rounds / EVALUATIONS)}
    runs = Runs(task, rounds, usual | how, given.checked_folder(folder))
    rule = rule_of(rule, task, runs.settings["splits"], search)
    with one_thread():
        some, tuned = {k: m for k, (m, _) in entries.items()}, {}
        if search:
            some, tuned = searched(runs, entries, search, seeds, rule, *how_many)
        records, failed = runs.all(some, seeds, *how_many), {}
    for name in some:
        each = zip(seeds, records[name])
        if why := [f"seed {s}: {r}" for s, r in each if isinstance(r, str)]:
            failed[name] = why[0]
            del records[name]
    lines = "".join(f"\n  {name}: {why}" for name, why in failed.items())
    refuse_if(not records, f"compare: no method has finished{lines}")
    return Comparison(records, rule, failed, tuned, runs.settings, task.compared)


@contextmanager
def one_thread():
    """Small models on a CPU: a second thread costs more than it brings."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------- what is given
def seeds_of(v):
    """[seed] of their number, or of a list of them, each once; [] of anything else."""
    each = [*range(v)] if is_whole(v) and v <= MOST else listed(v) or []
    fine = all(is_whole(s) and 0 <= s <= SEEDS for s in each)
    return [int(s) for s in each] if fine and len({*each}) == len(each) else []


VALUES = given.VALUES | {  # argument -> (is it fine?, what to give)
    "methods": (listed, 'a list of methods, as ["FedAvg", "FedGA"]'),
    "task": (lambda v: isinstance(v, Task), "a fedlib.Task, as from_arrays makes"),
    "seeds": (seeds_of, f"how many, from 1 to {MOST}, or which, as in [0, 1, 2]"),
    "rule": (given.or_none(callable), "a function of fedlib.measures.selection"),
    "search": (lambda v: is_whole(v) and 0 <= v <= MOST, "how many settings, as 16"),
}
VALUES |= dict.fromkeys(("rounds", "workers"), given.VALUES["every"])


def rule_of(rule, task, splits, search):
    """The rule that counts; ValueError where it or a search lacks validation rows."""
    rows = [len(r) for r in task.val] if "val" in splits else [0]
    chooses = search or rule in (selection.best_val, selection.best_val_gini)
    why = f"{task.name} scores no validation rows, by which search and best_val choose"
    refuse_if(chooses and not any(rows), f"{why}: give parts, and 'val' in {splits}")
    return rule or (selection.best_val if all(rows) else selection.last)


def method_of(entry):
    """(name in the table, Method, names of what is given) of an entry."""
    if isinstance(entry, Method):
        entry = identity.plain(entry)["name"], entry
    pair = isinstance(entry, (tuple, list)) and len(entry) == 2
    name, hyper = entry if pair else (entry, {})
    if isinstance(hyper, Method):
        return name, replace(hyper, task=None), ()
    label = f"{name}({listing(hyper)})" if hyper else name
    return label, make(name, None, **hyper), tuple(hyper)


def listing(point):
    """alpha=3, beta=0.5"""
    return ", ".join(f"{k}={v}" for k, v in point.items())


# ---------------------------------------------------------------- the search
def searched(runs, entries, K, seeds, rule, *how):
    """{row: Method at what won}, {row: that in words}, of {name: (Method, given)}."""
    of = {}
    for name, (m, fixed) in entries.items():
        for point in tune.settings(m, K):
            point = {k: v for k, v in point.items() if k not in fixed}
            of[name, listing(point)] = tune.at(m, **point)
    fresh = (s for s in itertools.count(PILOT) if s not in seeds)
    pilots = [*itertools.islice(fresh, tune.PILOTS)]
    tried = runs.all(of, pilots[:1], *how)
    level = pd.Series({k: validation(r, rule) for k, (r,) in tried.items()})
    each = level.groupby(level=0, sort=False)
    left = [k for _, v in each for k in tune.best(v, tune.FINALISTS)]
    more = runs.all({k: of[k] for k in left}, pilots[1:], *how)
    some, tuned, all_of = {}, {}, {k: tried[k] + more[k] for k in left}
    for by, measure in ("", metrics.mean_acc), (" (worst)", metrics.worst):
        score = lambda r, m=measure: validation(r, rule, m)
        level = pd.Series({k: np.mean([*map(score, v)]) for k, v in all_of.items()})
        for name, v in level.groupby(level=0, sort=False):
            (won,) = tune.best(v)
            if of[won] != some.get(name):
                some[name + by], tuned[name + by] = of[won], won[1]
    return some, tuned


def validation(r, rule, measure=metrics.mean_acc):
    """A measure of a run's validation accuracies where they count; -1: it has none."""
    if isinstance(r, str) or ("pre", view_of(r), "val") not in r.views:
        return -1.0
    a = r["pre", view_of(r), "val"][selection.picked(rule, r, view_of(r))]
    return float(np.mean([measure(row[~np.isnan(row)]) for row in a]))


# ---------------------------------------------------------------- runs
@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a comparison. A job is a method and a seed."""

    task: Task
    rounds: int
    how: dict  # for engine.run
    folder: Path | None = None

    @functools.cached_property
    def settings(self):
        """{name: text} of all that makes numbers, but method and seed."""
        task, how = self.task, {k: self.how.get(k, USUAL[k]) for k in NAMING}
        rows = *task.train, *task.val, *task.test, *itertools.chain(*task.guests)
        data = dict(enumerate((task.x, task.y, *rows, task.a)))
        data = digest({f"{i:9}": v for i, v in data.items() if v is not None})
        of = {"task": task.name, "clients": task.C, "network": task.network}
        of |= {"batch": task.batch, "data": data, "rounds": self.rounds} | how
        of |= {"cohort": "a function"} if callable(of["cohort"]) else {}
        return {k: str(v) for k, v in of.items()}

    def __call__(self, job, wait=True):
        """The Record of a job, computed or read; None: another process is at it."""
        (method, seed), at = job, None
        if self.folder:
            of = describe(method), identity.own(cls := type(method))
            of = identity.digest([self.settings, cls.__name__, *of])
            at = self.folder / f"{cls.__name__}-{of}" / str(seed)
        with alone(at, wait) if at else nullcontext(True) as mine:
            if mine:
                how = self.how | {"folder": at, "progress": False}
                record = engine.run(method, self.task, self.rounds, seed, **how)
                record.state = None  # the models of all clients: too much to keep
                return record

    def all(self, methods, seeds, workers, progress):
        """{name: [Record, or why there is none, of each seed]} of {name: Method}."""
        jobs = [(m, s) for s in seeds for m in methods.values()]
        done = run_jobs(self, jobs, workers, progress=progress)
        got = [why or record for _, record, why in sorted(done, key=itemgetter(0))]
        return {k: got[i :: len(methods)] for i, k in enumerate(methods)}


# ---------------------------------------------------------------- what comes out
@dataclass
class Comparison:
    """What comes of `compare`."""

    records: dict[str, list[Record]]  # {name: [Record of every seed]}
    rule: selection.Rule  # chooses the round that counts, see fedlib.measures.selection
    failed: dict[str, str] = field(default_factory=dict)  # {name: why it is missing}
    tuned: dict[str, str] = field(default_factory=dict)  # {name: in words}
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
        interval over seeds."""
        rows = {}
        for name, records in self.records.items():
            seeds = pd.DataFrame([measured(*each) for each in self.counting(name)])
            parts = {"": seeds.mean(skipna=False), "± ": half_interval(seeds)}
            row = {f"{mark}{k}": parts[mark][k] for k in seeds for mark in parts}
            row |= {"model": view_of(records[0]), "seeds": len(records)}
            rows[name] = row | ({"tuned": self.tuned[name]} if self.tuned else {})
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
        empty = [k for k in table if k[0] == "±" and table[k].isna().all()]
        table = table.drop(columns=empty)
        digits = {k: 3 if k.removeprefix("± ") in LOW else 1 for k in table}
        order = table.sort_values("worst 10 %", ascending=False, kind="stable")
        return order.round(digits)

    def frame(self) -> pd.DataFrame:
        """One row per method, seed and client: method, seed, client (name or number),
        rows (of test), model, round (the one that counts; the last of several),
        accuracy (percent)."""
        blocks = []
        for name in self.records:
            for r, view, at in self.counting(name):
                who = r.meta["owners"] or range(r.meta["clients"])
                of = {"method": name, "seed": r.meta["seed"], "client": who}
                of |= {"rows": r.meta["n"]["test"], "model": view}
                of |= {"round": int(r.rounds[at[-1]])}
                a = r["pre", view, "test"][at].mean(0).astype(float)
                blocks.append(pd.DataFrame(of | {"accuracy": 100 * a}))
        found = pd.concat(blocks, ignore_index=True)
        return found.round({"accuracy": 4})  # of a float32

    def paired(self, against: str = "FedAvg", points: float = 1.0) -> pd.DataFrame:
        """Who gains and who loses: one row per method and client.

        Columns: method, client, rows (test rows), accuracy (percent, mean over seeds),
        difference (to the same client and seed under `against`, percentage points, mean
        over seeds), ± difference (half a 95 % interval, from two
        seeds on), change (gain or loss: by more than `points`; else same).
        ValueError for a name that is not there."""
        known(self.records, "method", against)
        frame, at = self.frame(), ["seed", "client"]
        base = frame[frame.method == against].set_index(at)["accuracy"]
        mine = frame[frame.method != against].join(base.rename("base"), at).dropna()
        mine["difference"] = (mine["accuracy"] - mine["base"]).round(4)
        each = mine.groupby(["method", "client"], sort=False)
        found = each.agg({"rows": "first", "accuracy": "mean", "difference": "mean"})
        found["± difference"] = half_interval(each["difference"])
        side = [found.difference > points, found.difference < -points]
        found["change"] = np.select(side, ["gain", "loss"], "same")
        return found.reset_index()

    def violin(self) -> Axes:
        """All clients and seeds, in percent; bar: median, triangle: worst tenth."""
        import matplotlib.pyplot as plt  # here, so that it is imported to draw only

        from .. import plots

        values = {name: 100 * self.accuracies(name) for name in self.records}
        with plt.rc_context(plots.RC):
            size = plots.SIZE[0], 0.9 + 0.5 * len(values)
            ax = plots.violins(values, plt.subplots(figsize=size)[1])
            ax.set_xlabel("test accuracy of a client, %")
        return ax

    def report(self, path: str | Path = "report.html", against: str = "FedAvg") -> Path:
        """Write a page, by report.html -> its path; against: FedAvg, else the best."""
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
        told = {"c": self, "table": table, "low": LOW, "violins": violins}
        told |= {"against": against, "paired": self.paired(against)}
        text = Path(__file__).with_name("report.html").read_text("utf-8")
        page = Environment(autoescape=True).from_string(text)
        page = page.render(told, palette=plots.PALETTE).encode()
        files.whole(path, lambda f: f.write(page))
        return path

    def cautions(self) -> list[str]:
        """Who is compared, and what the table and its seeds cannot say."""
        lines = [f"{name} is missing: {why}" for name, why in self.failed.items()]
        first, *others = [*self.records.values()][0]
        if not others:
            lines.append("one seed gives no interval; give seeds=5 or more")
        n = first.meta["n"]["test"]
        return [*self.compared, *lines, CUT.format(len(n), min(n))]

    def guide(self) -> str:
        """What to try next (fedlib.study.guide), where Local, FedAvg and FedAvg+FT are
        compared and all clients have validation rows; else ""."""
        mean = lambda v: 100 * np.mean([validation(r, self.rule) for r in v])
        return guide.advice({k: mean(v) for k, v in self.records.items()})

    def __repr__(self) -> str:
        told = [self.table.to_string(), *self.cautions(), self.guide()]
        return "\n".join(filter(None, told))


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
