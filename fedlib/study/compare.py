"""Methods side by side on one task: methods x seeds are jobs, which run in this process
or in others, are kept in a folder and never computed twice -> Comparison.

    folder/FedGA-0123456789abcdef/0    the run with seed 0, as `engine.run` keeps it

The folder of a method's runs is named by all that makes their numbers but the seed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from ..core import engine, given
from ..core.errors import SEEDS, Diverged, is_whole, listed, refuse_if, short
from ..core.method import Method, describe
from ..core.record import Record, digest
from ..core.task import Task
from ..measures import selection
from ..methods.make import make
from . import identity, lock
from .comparison import Comparison, view_of
from .compute import RunError, reason, run_jobs
from .studies import PILOT

EVALUATIONS = 100  # at most so many unless `every` is given: scoring costs, too
MOST = 10_000  # seeds that nobody lists one by one
ROWS = 8  # of each client's split, on which a method is rehearsed
# arguments of engine.run that change what a record holds
NAMING = "cohort every splits guests own microscope".split()
USUAL = {k: p.default for k, p in inspect.signature(engine.run).parameters.items()}


def compare(
    methods: Sequence[str | tuple[str, Mapping[str, Any]] | Method],
    task: Task,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    rule: selection.Rule | None = None,
    *,
    folder: str | Path | None = None,
    workers: int = 1,
    grid: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    budget: int = 8,
    progress: bool | None = None,
    **how: Any,
) -> Comparison:
    """Run every method with every seed on the task -> Comparison.

    methods: names, pairs (name, hyper-parameters) and Method objects, as in
    ["FedAvg", ("FedGA", {"alpha": 5})]. seeds: how many, or which; seed s gives all
    methods the same initial weights, cohorts and batches. rule: the round that counts;
    best mean validation accuracy where every client has validation rows, else the last.
    how: goes to fedlib.run (cohort, device, ...); guests are scored where a task has
    some, and all clients every round, or about EVALUATIONS times.

    folder: where each run is kept; a second call computes what is not there yet, and an
    interrupted run continues. workers: processes on this machine, which change no bit
    (on others: see fedlib.study.compute). progress: a bar (True), nothing (False), or a
    bar on a terminal only (None).

    grid: tune hyper-parameters first, {"FedGA": {"alpha": [1, 3]}}: at most `budget`
    configurations of a method run once, with a seed of 1000 or more that counts nowhere
    else; the highest mean validation accuracy over clients is taken.

    All methods are tried on a few rows first: ValueError names those that cannot run. A
    method that fails later is named in `failed`; Ctrl-C returns what is there, and
    `failed` says what is not. ValueError where every method fails.
    """
    given.check_values({**locals(), "how": None, **how}, VALUES)
    seeds, configs, wrong = seeds_of(seeds), {}, {}
    for entry in methods:
        with noting(wrong, short(entry)):
            name, build = method_of(entry)
            refuse_if(name in configs, "listed twice: change a hyper-parameter")
            configs[name] = configurations(name, build, grid, budget)
    for name in {*(grid or {})} - {*configs}:
        wrong[f"grid of {name}"] = f"not compared; compared: {', '.join(configs)}"
    usual = {"guests": bool(task.guests), "every": math.ceil(rounds / EVALUATIONS)}
    runs = Runs(configs, task, rounds, usual | how, given.checked_folder(folder))
    rule = rule_of(rule, task, runs.settings["splits"], grid)
    pilot = next(s for s in itertools.count(PILOT) if s not in seeds)
    pilots = [(n, words, pilot) for n in configs for words in configs[n] if words]
    fixed = [(n, "", s) for s in seeds for n in configs if "" in configs[n]]
    with one_thread():
        todo = [job for job in (*pilots, *fixed) if not runs.done(job)]
        for job in {job[:2]: job for job in reversed(todo)}.values():
            with noting(wrong, " ".join(job[:2])):
                runs.rehearse(job)
        cannot = f"on {task.name!r} cannot run, so nothing was trained; mend or leave"
        refuse(f"{cannot} out", wrong)
        tried, stopped = runs.all(pilots, workers, progress)
        chosen = {
            name: choose({words: tried.get((name, words, pilot)) for words in of}, rule)
            for name, of in configs.items()
        }
        jobs = [(name, chosen[name], s) for s in seeds for name in configs]
        came, late = ({}, stopped) if stopped else runs.all(jobs, workers, progress)
    records, failed = {}, {}
    for name, words in chosen.items():
        got = {s: came.get((name, words, s), late) for s in seeds}
        why = [f"seed {s}: {r}" for s, r in got.items() if isinstance(r, str)]
        there = [r for r in got.values() if isinstance(r, Record)]
        failed |= {name: why[0]} if why else {}
        records |= {name: there} if there and (late or not why) else {}
    kept = records or late == "interrupted"  # Ctrl-C returns what is there
    refuse("no method has finished", {} if kept else failed)
    tuned = {
        n: f"{chosen[n]} (best of {len(configs[n])})" for n in records if chosen[n]
    }
    where = {"folder": runs.folder, "stopped": late, "settings": runs.settings}
    return Comparison(records, rule, failed, tuned, **where, compared=task.compared)


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


# ---------------------------------------------------------------- what is given
def seeds_of(v):
    """[seed] of their number, or of a list of them, each once; [] of anything else."""
    each = [*range(v)] if is_whole(v) and v <= MOST else listed(v) or []
    fine = all(is_whole(s) and 0 <= s <= SEEDS for s in each)
    return [int(s) for s in each] if fine and len({*each}) == len(each) else []


RULE = "a function of fedlib.measures.selection, as last or best_val"
GRID = 'values to try by method, as {"FedGA": {"alpha": [1, 3, 5]}}'
VALUES = (
    given.VALUES
    | {  # argument -> (is it fine?, what to give)
        "methods": (
            lambda v: isinstance(v, (list, tuple)) and v,
            'a list of methods, as ["FedAvg", "FedGA"]',
        ),
        "task": (
            lambda v: isinstance(v, Task),
            "a fedlib.Task, as Task.from_arrays makes",
        ),
        "seeds": (seeds_of, f"how many, from 1 to {MOST}, or which, as in [0, 1, 2]"),
        "rule": (given.or_none(callable), RULE),
        "grid": (given.or_none(lambda v: isinstance(v, Mapping)), GRID),
    }
    | dict.fromkeys(("rounds", "budget", "workers"), given.VALUES["every"])
)


def rule_of(rule, task, splits, grid):
    """The rule that chooses the round that counts; ValueError where it or a grid needs
    validation rows and there are none.
    """
    rows = [len(r) for r in task.val] if "val" in splits else [0]
    chooses = grid or rule in (selection.best_val, selection.best_val_gini)
    why = f"{task.name} scores no validation rows, on which a grid or best_val chooses:"
    why += f" give parts=(0.8, 0.1, 0.1), and 'val' in splits = {splits}"
    refuse_if(chooses and not any(rows), why)
    alone = rule is selection.best_val_gini and task.C < 2
    refuse_if(alone, f"rule = best_val_gini: one client has no Gini; give {RULE}")
    return rule or (selection.best_val if all(rows) else selection.last)


def method_of(entry):
    """(name in the table, function of hyper-parameters -> Method) of a name, a pair, or
    a Method.
    """
    if isinstance(entry, Method):
        of = functools.partial(replace, entry, task=None)
        return identity.plain(entry)["name"], of
    pair = isinstance(entry, (tuple, list)) and len(entry) == 2
    name, hyper = entry if pair else (entry, {})
    label = f"{name}({listing(hyper)})" if hyper else name
    return label, functools.partial(make, name, None, **hyper)


def listing(point):
    """alpha=3, beta=0.5"""
    return ", ".join(f"{k}={v}" for k, v in point.items())


@contextmanager
def noting(wrong, name):
    """What goes wrong inside is kept in `wrong`, {name: why}."""
    try:
        yield
    except Diverged:  # a few rows say nothing of that
        pass
    except Exception as e:
        bare = isinstance(e, (ValueError, NotImplementedError))
        wrong[name] = str(e) if bare else reason(e)


def refuse(what, reasons):
    """ValueError for {name: why}, if there are any."""
    lines = "".join(f"\n  {name}: {why}" for name, why in reasons.items())
    refuse_if(reasons, f"compare: {what}{lines}")


# ---------------------------------------------------------------- hyper-parameters
def configurations(name, build, grid, budget):
    """{words: Method}, at most `budget` points of the grid of a method, drawn without
    replacement where it has more; of one that is not tuned {"": Method}.
    """
    of = (grid or {}).get(name, {})
    points = [dict(zip(of, values)) for values in itertools.product(*of.values())]
    refuse_if(not points, f"grid of {name}: give at least one value to try of each")
    if len(points) > budget:
        rng = np.random.default_rng([PILOT, crc32(name.encode())])
        some = rng.choice(len(points), budget, replace=False)
        points = [points[i] for i in np.sort(some)]
    return {listing(point): build(**point) for point in points}


def choose(tried, rule):
    """The words of the configuration with the highest mean validation accuracy, the
    first of equals. tried: {words: the Record of its pilot, or something else}.
    """
    scores = dict.fromkeys(tried, -math.inf)
    for words, r in tried.items():
        if isinstance(r, Record):
            view = view_of(r)
            at = selection.picked(rule, r, view)
            scores[words] = float(np.nanmean(r["pre", view, "val"][at]))
    return max(scores, key=scores.get)


# ---------------------------------------------------------------- runs
@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of a comparison. A job is the name of a method, which of its
    configurations, in words, and a seed.
    """

    configs: dict  # {name: {words: Method}}
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

    def at(self, job):
        """The folder of a job's run; None where nothing is kept."""
        if self.folder is None:
            return None
        name, words, seed = job
        cls, hyper = type(m := self.configs[name][words]), describe(m)
        of = [self.settings, cls.__name__, hyper, identity.own(cls)]
        return self.folder / f"{cls.__name__}-{identity.digest(of)}" / str(seed)

    def done(self, job):
        return self.folder is not None and (self.at(job) / "done").exists()

    def run(self, job, task, **more):
        """What comes of a job on a task; more: further arguments of engine.run."""
        name, words, seed = job
        method, how = self.configs[name][words], self.how | more
        return engine.run(method, task, self.rounds, seed, progress=False, **how)

    def __call__(self, job, wait=True):
        """The Record of a job, computed or read; None: another process is at it."""
        at = self.at(job)
        with lock.alone(at, wait) if at else nullcontext(True) as mine:
            if mine:
                record = self.run(job, self.task, folder=at)
                record.state = None  # the models of all clients: too much to keep
                return record

    def rehearse(self, job):
        """Raise what a job raises in its first round, on a few rows."""
        first, task = lambda of: tuple(rows[:ROWS] for rows in of), self.task
        small = {k: first(getattr(task, k)) for k in ("train", "val", "test")}
        small["guests"] = tuple(map(first, task.guests))
        self.run(job, replace(task, **small), upto=1, on_round=None)

    def all(self, jobs, workers, progress):
        """({job: its Record, or why there is none}, why others are missing). A job that
        fails stops no other; Ctrl-C ends the computation, not the call.
        """
        came, workers = {}, 1 if all(map(self.done, jobs)) else workers
        try:
            for i, record, why in run_jobs(self, jobs, workers, progress=progress):
                came[jobs[i]] = why or record
        except KeyboardInterrupt:
            return came, "interrupted"
        except RunError as e:
            return came, str(e)
        return came, ""
