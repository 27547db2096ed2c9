"""Methods side by side on one task: methods x seeds are jobs, which run in this process
or in others, are kept in a folder and never computed twice -> Comparison.

    folder/comparison.json     what all runs have in common
    folder/FedGA(alpha=3)/0    the run with seed 0, as `engine.run` keeps it
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch

from ..core import engine, given
from ..core.errors import (
    COUNT,
    SEEDS,
    Diverged,
    is_whole,
    listed,
    nearest,
    refuse_if,
    short,
)
from ..core.files import whole
from ..core.method import Method, Wrap, describe
from ..core.record import same_meta
from ..core.task import Task
from ..measures import selection
from ..methods import METHODS
from ..methods.make import make
from . import identity, lock
from .comparison import Comparison
from .compute import RunError, reason, run_jobs
from .spec import PILOT

EVALUATIONS = 100  # at most so many unless `every` is given: scoring costs, too
MOST = 10_000  # seeds that nobody lists one by one
LONGEST = 80  # letters of a folder's name
ROWS = 8  # of each client's split, on which a method is rehearsed
# arguments of engine.run that change what a record holds, and their defaults
ENGINE = {"cohort": None, "every": 1, "precision": "float32"}
ENGINE |= {"splits": ("test", "val")}
ENGINE |= dict.fromkeys(("guests", "own", "microscope"), False)
PASSED = inspect.signature(engine.run).parameters.keys() - {"method", "seed", "upto"}


def compare(
    methods: Sequence[str | tuple[str, Mapping[str, Any]] | Method],
    task: Task,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    rule: selection.Rule | None = None,
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
    ["FedAvg", ("FedGA", {"alpha": 5})]. seeds: how many, or which; seed s gives all
    methods the same initial weights, cohorts and batches. rule: the round that counts;
    best mean validation accuracy where every client has validation rows, else the last.
    view: the model that is scored; else the personal one where there is one. how: goes
    to fedlib.run (cohort, device, ...); guests are scored where a task has some, and
    all clients every round, or about EVALUATIONS times.

    folder: where each run is kept; a second call computes what is not there yet, and an
    interrupted run continues. workers: processes on this machine, which change no bit
    (on others: see fedlib.study.compute). progress: a bar (True), nothing (False), or a
    bar on a terminal only (None).

    grid: tune hyper-parameters first: {"FedGA": {"alpha": [1, 3]}}, or True for the
    values that each method declares. At most `budget` configurations of a method run
    once, with a seed of 1000 or more that counts nowhere else; the highest mean
    validation accuracy over clients is taken.

    All methods are tried on a few rows first: ValueError names those that cannot run. A
    method that fails later is named in `failed`; Ctrl-C returns what is there, and
    `missing` says what is not. ValueError where every method fails.
    """
    check_values(locals())
    entries, seeds = listed(methods), seeds_of(seeds)
    usual = {"guests": bool(task.guests), "every": math.ceil(rounds / EVALUATIONS)}
    rule = rule_of(rule, task, (how := usual | how).get("splits", ENGINE["splits"]))
    made = methods_of(entries, task)
    searches = {}
    if grid is not None and grid is not False:
        rule_of(selection.best_val, task, how.get("splits", ENGINE["splits"]))
        searches = searches_of(grid, made, budget)
    tries = {label: m for s in searches.values() for label, (_, m) in s.tries.items()}
    setup = Setup(task, made | tries, rounds, how, given.checked_folder(folder))
    pilots = [(label, pilot_seed(seeds)) for label in tries]
    fixed = itertools.product([n for n in made if n not in searches], seeds)
    with one_thread():
        rehearse_all(setup, [*pilots, *fixed], view)
        setup.claim()
        runs, chosen, failed = run_all(setup, pilots, workers, progress), {}, {}
        for name, search in searches.items():
            if found := choose(search, runs, rule, view):
                chosen[name] = found
            elif not runs.stopped:
                why = (w for (at, _), w in runs.failed.items() if at in search.tries)
                failed[name] = f"no configuration could be tried: {next(why)}"
        if not runs.stopped:
            best = {name: method for name, (method, _) in chosen.items()}
            setup = replace(setup, methods=made | best)
            jobs = [(name, s) for s in seeds for name in made if name not in failed]
            runs = run_all(setup, jobs, workers, progress)
    for (name, seed), text in sorted(runs.failed.items(), key=lambda e: e[0][1]):
        if name in made:
            failed.setdefault(name, f"seed {seed}: {text}")
    of = lambda n: {s: runs.records[n, s] for s in seeds if (n, s) in runs.records}
    there = {n: of(n) for n in made if n not in failed}
    nothing = failed and not any(there.values()) and not runs.stopped
    refuse_if(nothing, f"compare: no method has finished{as_lines(failed)}")
    gaps = {n: [s for s in seeds if s not in got] for n, got in there.items()}
    each = zip(entries, made.values())
    words = [in_words(m) if isinstance(e, Method) else repr(e) for e, m in each]
    more = {} if view is None else {"view": view}
    more |= {"grid": grid, "budget": budget} if searches else {}
    told = {"rounds": rounds, "seeds": seeds, "rule": rule} | how | more
    return Comparison(
        {n: [*got.values()] for n, got in there.items() if got},
        rule,
        view,
        failed,
        {n: gap for n, gap in gaps.items() if gap},
        tuned={name: words for name, (_, words) in chosen.items()},
        folder=setup.folder,
        stopped=runs.stopped,
        settings=setup.identity(),
        call=call_of(words, {k: v for k, v in told.items() if k != "guests"}),
        compared=task.compared,
    )


def call_of(methods, given):
    """The text of a call that gives the same numbers; methods: as one writes them."""
    named = [f"{k}={getattr(v, '__name__', repr(v))}" for k, v in given.items()]
    lines = f"[{', '.join(methods)}]", "task", *named
    return "fedlib.compare(\n    " + ",\n    ".join(lines) + ",\n)"


@contextlib.contextmanager
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


# ---------------------------------------------------------------- jobs
@dataclass(frozen=True, eq=False)
class Setup:
    """What all runs of a comparison share. A job is the name of a method and a seed."""

    task: Task
    methods: dict  # {name: Method}
    rounds: int
    how: dict  # for engine.run
    folder: Path | None = None

    def at(self, job):
        """The folder of a job's run; None where nothing is kept."""
        name, seed = job
        return self.folder and self.folder / folder_name(self.methods[name]) / f"{seed}"

    def done(self, job):
        return bool(self.folder) and (self.at(job) / "done").exists()

    def __call__(self, job, wait=True):
        """The Record of a job, computed or read; None: another process is at it."""
        (name, seed), at = job, self.at(job)
        how = self.how | {"seed": seed, "folder": at, "progress": False}
        free = at is None or self.done(job)
        with contextlib.nullcontext(True) if free else lock.alone(at, wait) as mine:
            if not mine:
                return None
            record = engine.run(self.methods[name], self.task, self.rounds, **how)
        record.state = None  # the models of all clients: too much to keep of every run
        return record

    def identity(self):
        """What makes two comparisons one: {name: plain value}."""
        task, how = self.task, {k: self.how.get(k, v) for k, v in ENGINE.items()}
        if callable(how["cohort"]):
            how["cohort"] = "a function"
        of_task = {"task": task.name, "clients": task.C, "network": repr(task.network)}
        of_task |= {"batch": task.batch, "data": digest(task)}
        return of_task | {"rounds": self.rounds} | how

    def claim(self):
        """Note in the folder what this is; ValueError where it holds another one."""
        if self.folder is None:
            return
        now, path = self.identity(), self.folder / "comparison.json"
        text = json.dumps(now, indent=1).encode()
        with lock.alone(path):
            if path.exists():
                same_meta(json.loads(path.read_text("utf-8")), now, path, now)
            whole(path, lambda f: f.write(text))


@dataclass
class Runs:
    """What has come of some jobs."""

    records: dict = field(default_factory=dict)  # {job: Record}
    failed: dict = field(default_factory=dict)  # {job: reason in one line}
    stopped: str = ""  # why some jobs were not computed


def run_all(setup, jobs, workers=1, progress=None):
    """Every job -> Runs. A job that fails stops no other; Ctrl-C ends the computation,
    not the call: what was finished is returned.
    """
    runs, done = Runs(), [job for job in jobs if setup.done(job)]
    todo = [job for job in jobs if job not in done]
    where = {"workers": workers, "progress": progress}
    try:
        for some, how in (done, {"workers": 1}), (todo, where):
            for i, record, error in run_jobs(setup, some, **how):
                if error:
                    runs.failed[some[i]] = reason(error)
                else:
                    runs.records[some[i]] = record
    except KeyboardInterrupt:
        runs.stopped = "interrupted"
    except RunError as e:
        runs.stopped = str(e)
    return runs


def name_of(cls):
    """What a class of methods is called."""
    return next((n for n, c in METHODS.items() if c is cls), cls.__name__)


def in_words(method):
    """A method with the hyper-parameters that are not the usual ones."""
    values, usual = describe(method), {f.name: f.default for f in fields(method)}
    changed = lambda k: repr(getattr(method, k)) != repr(usual[k])
    own = ",".join(f"{k}={v}" for k, v in values.items() if changed(k))
    return name_of(type(method)) + (f"({own})" if own else "")


def folder_name(method):
    """The same as a file may be called; of a class outside METHODS with a hash of its
    source.
    """
    text, cls = in_words(method), type(method)
    name = re.sub(r"[^\w.=,()+-]", "", text)
    marks = [text] if name != text or len(name) > LONGEST else []
    marks += [] if cls in METHODS.values() else [identity.own(cls)]
    if not marks:
        return name
    return f"{name[:LONGEST]}-{hashlib.sha256(repr(marks).encode()).hexdigest()[:8]}"


def digest(task):
    """A hash of a task's data and of who holds which rows."""
    h = hashlib.sha256()
    guests = [rows for guest in task.guests for rows in guest]
    for x in (task.x, task.y, task.a, *task.train, *task.val, *task.test, *guests):
        if x is not None:
            h.update(str(tuple(x.shape)).encode())
            h.update(x.detach().cpu().contiguous().numpy())
    return h.hexdigest()[:16]


# ---------------------------------------------------------------- what is given
VALUES = {  # argument -> (is it fine?, what to give)
    "methods": (lambda v: bool(listed(v)), 'a list of methods, as ["FedAvg", "FedGA"]'),
    "task": (lambda v: isinstance(v, Task), "a fedlib.Task, as Task.from_arrays makes"),
    "rounds": (given.within(1, COUNT), "a whole number >= 1"),
    "workers": (given.within(1), "a whole number >= 1"),
    "budget": (given.within(1), "a whole number >= 1"),
    "progress": given.VALUES["progress"],
}


def check_values(values):
    """ValueError for the first argument that makes no sense by itself."""
    given.check_values(values, VALUES)
    known = sorted(PASSED | inspect.signature(compare).parameters.keys())
    for k in values["how"].keys() - PASSED:
        near = f"{nearest(k, known)} (known: {', '.join(known)})"
        raise ValueError(f"compare has no {k!r}{near}")


def seeds_of(v):
    """[seed] of their number, or of a list of them, each once."""
    which = [*range(v)] if is_whole(v) and v <= MOST else listed(v) or []
    fine = which and all(is_whole(s) and 0 <= s <= SEEDS for s in which)
    what = f"how many, at least one and at most {MOST}, or which, as in [0, 1, 2]"
    fine = fine and len({*which}) == len(which)
    refuse_if(not fine, f"seeds = {short(v)}: give {what}")
    return [int(s) for s in which]


def rule_of(rule, task, splits):
    """The rule that chooses the round that counts; ValueError for none, and for one
    that needs validation rows where there are none.
    """
    rows = [len(r) for r in task.val] if "val" in splits else [0]
    if rule is None:
        return selection.best_val if all(rows) else selection.last
    what = "a function of fedlib.measures.selection, as last or best_val"
    what += nearest(rule, selection.RULES)
    refuse_if(not callable(rule), f"rule = {short(rule)}: give {what}")
    chooses = rule in (selection.best_val, selection.best_val_gini)
    why = f"{task.name} scores no validation rows, on which a grid or {rule.__name__}"
    remedy = f"give parts=(0.8, 0.1, 0.1), and 'val' in splits = {splits}"
    refuse_if(chooses and not any(rows), f"{why} chooses: {remedy}")
    return rule


def methods_of(entries, task):
    """{name in the table: Method}; one ValueError names all that cannot be made."""
    made, wrong = {}, {}
    for entry in entries:
        try:
            name, method = method_of(entry, task)
            twice = "listed twice: change a hyper-parameter, or leave it"
            refuse_if(name in made, twice)
            made[name] = method
        except (ValueError, TypeError) as e:
            wrong[short(entry)] = str(e)
    refuse(wrong, task)
    return made


def method_of(entry, task):
    """(name in the table, Method) of a name, a pair, or a Method."""
    if isinstance(entry, Method):
        of = task if entry.task is None else entry.task
        remedy = f"make it for {task.name!r}, or without a task"
        refuse_if(of.name != task.name, f"it was made for {of.name!r}: {remedy}")
        return name_of(type(entry)), replace(entry, task=task)
    pair = isinstance(entry, (tuple, list)) and len(entry) == 2
    name, hyper = entry if pair else (entry, {})
    known = isinstance(name, str) and isinstance(hyper, Mapping)
    kinds = "a name, a pair (name, hyper-parameters), or a Method object"
    refuse_if(not known, f"{entry!r:.80} is no method: give {kinds}")
    return f"{name}({listing(hyper)})" if hyper else name, make(name, task, **hyper)


def rehearse_all(setup, jobs, view):
    """One ValueError names all methods that cannot run; jobs that are done can."""
    first = lambda of: tuple(rows[:ROWS] for rows in of)
    small = {k: first(getattr(setup.task, k)) for k in ("train", "val", "test")}
    small["guests"] = tuple(map(first, setup.task.guests))
    task, wrong = replace(setup.task, **small), {}
    how = setup.how | {"upto": 1, "progress": False, "on_round": None}
    for name, seed in {j[0]: j for j in reversed(jobs) if not setup.done(j)}.values():
        try:
            method = setup.methods[name]
            record = engine.run(method, task, setup.rounds, **how | {"seed": seed})
        except Diverged as e:  # a few rows say nothing of that
            record = e.record
        except Exception as e:
            bare = isinstance(e, (ValueError, NotImplementedError))
            wrong[name] = str(e) if bare else reason(e)
            continue
        views = dict.fromkeys(v for moment, v, _ in record.views if moment == "pre")
        if view is not None and view not in views:
            wrong[name] = f"view = {view!r}: it has {', '.join(views)}"
    refuse(wrong, setup.task)


def refuse(wrong, task):
    """ValueError for the methods {name: why} that cannot run, if there are any."""
    what = f"compare: on {task.name!r} cannot run, so nothing was trained; mend or"
    refuse_if(wrong, f"{what} leave out{as_lines(wrong)}")


def as_lines(reasons):
    """{name: why} as lines."""
    return "".join(f"\n  {name}: {why}" for name, why in reasons.items())


# ---------------------------------------------------------------- hyper-parameters
class Search(NamedTuple):
    """The configurations of a method that are tried, of `size` in its whole grid."""

    tries: dict  # {label: (point, Method)}
    size: int


def pilot_seed(seeds):
    """A seed of PILOT or more that is not among the seeds that count."""
    return next(s for s in itertools.count(PILOT) if s not in seeds)


def usual_grid(method):
    """{hyper-parameter: the values that its paper or code searched}, from hp(grid=);
    of a wrapper also those of the method inside.
    """
    inside = usual_grid(method.inner) if isinstance(method, Wrap) else {}
    own = {f.name: list(f.metadata.get("grid") or ()) for f in fields(method)}
    return inside | {k: v for k, v in own.items() if v}


def searches_of(grid, made, budget):
    """{name: Search} of {name: {hyper-parameter: values}}, or True: `usual_grid`; one
    ValueError names every point that a method refuses.
    """
    if grid is True:
        grid = {name: of for name, m in made.items() if (of := usual_grid(m))}
    lists = lambda of: isinstance(of, Mapping) and of and all(map(listed, of.values()))
    fine = isinstance(grid, Mapping) and grid and all(map(lists, grid.values()))
    example = '{"FedGA": {"alpha": [1, 3, 5]}}, or True where methods declare some'
    refuse_if(not fine, f"grid = {grid!r}: give values to try by method, as {example}")
    found, wrong = {}, {}
    for name, of in grid.items():
        near = f"{nearest(name, made)} (compared: {', '.join(made)})"
        refuse_if(name not in made, f"grid: {name!r} is not compared{near}")
        points, size = points_of(name, {k: listed(v) for k, v in of.items()}, budget)
        found[name] = Search({}, size)
        for point in points:
            label = f"{name} with {listing(point)}"
            try:
                found[name].tries[label] = point, altered(made[name], point)
            except (ValueError, TypeError) as e:
                wrong[label] = e
    refuse_if(wrong, f"grid: points that cannot be{as_lines(wrong)}")
    return found


def points_of(name, grid, budget):
    """([{hyper-parameter: value}], size of the whole grid): at most `budget` points of
    the grid of a method, drawn without replacement where it has more.
    """
    points = [dict(zip(grid, v)) for v in itertools.product(*grid.values())]
    if len(points) <= budget:
        return points, len(points)
    rng = np.random.default_rng([PILOT, crc32(name.encode())])
    at = np.sort(rng.choice(len(points), budget, replace=False))
    return [points[i] for i in at], len(points)


def listing(point):
    """alpha=3, beta=0.5"""
    return ", ".join(f"{k}={v}" for k, v in point.items())


def altered(method, values):
    """The method with other hyper-parameters; what a wrapper does not declare goes to
    the method inside. ValueError for one that there is not, or a value that may not be.
    """
    own = {f.name for f in fields(method)} - {"task"}
    rest = {k: v for k, v in values.items() if k not in own}
    if rest and isinstance(method, Wrap):
        values = {k: v for k, v in values.items() if k in own}
        values["inner"] = altered(values.get("inner", method.inner), rest)
    elif rest:
        k = next(iter(rest))
        known = f"{nearest(k, own)} (it has {', '.join(sorted(own))})"
        raise ValueError(f"{type(method).__name__} has no hyper-parameter {k!r}{known}")
    return replace(method, **values)


def choose(search, runs, rule, view):
    """(Method, words) of the configuration with the highest mean validation accuracy,
    the first of equals; None where no run has ended.
    """
    scores = {}
    for (label, _), record in runs.records.items():
        head = Comparison({label: [record]}, rule, view).seen(label)
        at = selection.picked(rule, record, head)
        scores[label] = float(np.nanmean(record["pre", head, "val"][at]))
    n, there = len(search.tries), [label for label in search.tries if label in scores]
    if not there:
        return None
    point, method = search.tries[max(there, key=scores.get)]
    drawn = f", drawn from {search.size}" if search.size > n else ""
    lost = f", {n - len(there)} failed" if n > len(there) else ""
    return method, f"{listing(point)} (best of {n}{drawn}{lost})"
