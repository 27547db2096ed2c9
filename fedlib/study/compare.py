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
from ..core.errors import Diverged, nearest
from ..core.files import whole
from ..core.method import Method, Wrap, describe
from ..core.ranges import COUNT, SEEDS, is_whole, listed, short
from ..core.task import Task
from ..core.types import Given, Rule
from ..measures import selection
from ..methods import METHODS
from ..methods.make import make
from . import lock, sources
from .comparison import Comparison
from .compute import RunError, reason, run_jobs
from .seeds import PILOT

EVALUATIONS = 100  # at most so many unless `every` is given: scoring costs, too
MOST = 10_000  # seeds that nobody lists one by one
LONGEST = 80  # letters of a folder's name
ROWS = 8  # of each client's split, on which a method is rehearsed
SPLITS = ("test", "val")
# arguments of engine.run that change what a record holds, and their defaults
ENGINE = {"cohort": None, "every": 1, "precision": "float32", "splits": SPLITS}
ENGINE |= dict.fromkeys(("guests", "own", "microscope"), False)


def compare(
    methods: Sequence[str | tuple[str, Given] | Method],
    task: Task,
    rounds: int,
    seeds: int | Sequence[int] = 1,
    rule: Rule | None = None,
    view: str | None = None,
    *,
    folder: str | Path | None = None,
    workers: int | str = 1,
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
    interrupted run continues. workers: processes on this machine, which change no bit,
    or the address of a Dask cluster (see fedlib.study.compute); a script then needs
    `if __name__ == "__main__":`. progress: a bar (True), nothing (False), or a bar on a
    terminal and a line per minute elsewhere (None).

    grid: tune hyper-parameters first: {"FedGA": {"alpha": [1, 3]}}, or True for the
    values that each method declares. Of each method at most `budget` configurations run
    once, with a seed of 1000 or more that counts nowhere else; the one with the highest
    mean validation accuracy over clients is taken.

    All methods are tried on a few rows before anything trains: ValueError names those
    that cannot run. A method that fails later is left out of the table and named in
    `failed`; Ctrl-C returns what is there, and `missing` says what is not. ValueError
    where every method fails.
    """
    check_values(locals())
    entries, seeds = listed(methods), seeds_of(seeds)
    usual = {"guests": bool(task.guests), "every": math.ceil(rounds / EVALUATIONS)}
    how = usual | how
    rule = checked_rule(rule, task, how.get("splits", SPLITS))
    made = methods_of(entries, task)
    searches = {}
    if grid is not None and grid is not False:
        check_validation("grid", task, how.get("splits", SPLITS))
        searches = searches_of(grids(grid, made), made, budget)
    tries = {label: m for s in searches.values() for label, (_, m) in s.tries.items()}
    setup = Setup(task, made | tries, rounds, how, given.checked_folder(folder))
    pilots = [(label, pilot_seed(seeds)) for label in tries]
    names = [name for name in made if name not in searches]
    with one_thread():
        rehearse_all(setup, [*pilots, *itertools.product(names, seeds)], view)
        setup.claim()
        runs, chosen, failed = run_all(setup, pilots, workers, progress), {}, {}
        for name, search in searches.items():
            chosen |= choose(name, search, runs, rule, view)
            if name not in chosen and not runs.stopped:
                failed[name] = search.why(runs)
        if not runs.stopped:
            best = {name: method for name, (method, _) in chosen.items()}
            setup = replace(setup, methods=made | best)
            jobs = [(name, s) for s in seeds for name in made if name not in failed]
            runs = run_all(setup, jobs, workers, progress)
    for (name, seed), text in sorted(runs.failed.items(), key=lambda e: e[0][1]):
        if name in made:
            failed.setdefault(name, f"seed {seed}: {text}")
    records, missing = {}, {}
    for name in (n for n in made if n not in failed):
        there = {s: runs.records[name, s] for s in seeds if (name, s) in runs.records}
        records |= {name: [*there.values()]} if there else {}
        lacking = [s for s in seeds if s not in there]
        missing |= {name: lacking} if lacking else {}
    if failed and not records and not runs.stopped:
        raise ValueError(f"compare: no method has finished{as_lines(failed)}")
    wrote = [
        in_words(method) if isinstance(entry, Method) else repr(entry)
        for method, entry in zip(made.values(), entries)
    ]
    return Comparison(
        records,
        rule,
        view,
        failed,
        missing,
        tuned={name: words for name, (_, words) in chosen.items()},
        folder=setup.folder,
        stopped=runs.stopped,
        settings=setup.identity(),
        call=call_of(wrote, rounds, seeds, rule, view, grid, budget, how),
    )


def call_of(methods, rounds, seeds, rule, view, grid, budget, how):
    """The text of a call that gives the same numbers; methods: as one writes them."""
    more = {k: v for k, v in how.items() if k != "guests"}
    more |= {} if view is None else {"view": view}
    more |= {"grid": grid, "budget": budget} if grid else {}
    lines = [f"[{', '.join(methods)}]", "task", f"rounds={rounds}", f"seeds={seeds}"]
    lines += [f"rule={getattr(rule, '__name__', repr(rule))}"]
    lines += [f"{k}={v!r}" for k, v in more.items()]
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
        return self.folder is not None and (self.at(job) / "done").exists()

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
        path = self.folder / "comparison.json"
        now = json.loads(json.dumps(self.identity()))
        with lock.alone(path):
            before = json.loads(path.read_text("utf-8")) if path.exists() else now
            for k in (k for k in now if before.get(k) != now[k]):
                raise ValueError(
                    f"folder {str(self.folder)!r} holds another comparison: {k} is "
                    f"{short(before.get(k))} there, {short(now[k])} here; give another"
                )
            text = json.dumps(now, indent=1).encode()
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
    where = {"executor": workers} if isinstance(workers, str) else {"workers": workers}
    try:
        for some, how in (
            (done, {"workers": 1}),
            (todo, {"progress": progress} | where),
        ):
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


def in_words(method):
    """A method with the hyper-parameters that are not the usual ones."""
    cls = type(method)
    name = next((n for n, c in METHODS.items() if c is cls), cls.__name__)
    usual = {f.name: as_text(f.default) for f in fields(cls)}
    given = describe(method).items()
    own = [f"{k}={v}" for k, v in given if as_text(getattr(method, k)) != usual[k]]
    return f"{name}({','.join(own)})" if own else name


def as_text(value):
    """A hyper-parameter as a text that says all of it."""
    if hasattr(value, "__dataclass_fields__"):
        value = {type(value).__name__: describe(value)}
    return json.dumps(value, default=str)


def folder_name(method):
    """The same as a file may be called; of a class outside METHODS with a hash of its
    source.
    """
    text, cls = in_words(method), type(method)
    name = re.sub(r"[^\w.=,()+-]", "", text)
    marks = [text] if name != text or len(name) > LONGEST else []
    if cls not in METHODS.values():
        marks.append(sources.own(cls))
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
PASSED = inspect.signature(engine.run).parameters.keys() - {"method", "seed", "upto"}
VALUES = {  # argument -> (is it fine?, what to give)
    "methods": (lambda v: bool(listed(v)), 'a list of methods, as ["FedAvg", "FedGA"]'),
    "task": (lambda v: isinstance(v, Task), "a fedlib.Task, as Task.from_arrays makes"),
    "rounds": (given.within(1, COUNT), "a whole number >= 1"),
    "seeds": (
        lambda v: are_seeds(v),
        f"how many, at least one seed and at most {MOST}, or which, as in [0, 1, 2]",
    ),
    "view": (
        lambda v: v is None or isinstance(v, str),
        "the name of one, as 'global' or 'personal', or None",
    ),
    "workers": (
        lambda v: isinstance(v, str) or is_whole(v) and v >= 1,
        "a whole number >= 1, or the address of a cluster",
    ),
    "budget": (given.within(1), "a whole number >= 1"),
    "progress": given.VALUES["progress"],
}


def check_values(values):
    """ValueError for the first argument that makes no sense by itself."""
    for name, (fine, remedy) in VALUES.items():
        if not fine(values[name]):
            raise ValueError(f"{name} = {short(values[name])}: give {remedy}")
    for k in values["how"]:
        if k not in PASSED:
            known = sorted(PASSED | inspect.signature(compare).parameters.keys())
            near = f"{nearest(k, known)} (known: {', '.join(known)})"
            raise ValueError(f"compare has no {k!r}{near}")


def are_seeds(v):
    """Whether these are seeds, each once, or their number."""
    which = listed(v)
    if which is None:
        return is_whole(v) and 1 <= v <= MOST
    whole = all(is_whole(s) and 0 <= s <= SEEDS for s in which)
    return whole and 0 < len(which) == len({*which})


def seeds_of(v):
    """[seed]"""
    which = listed(v)
    return [*range(v)] if which is None else [int(s) for s in which]


def checked_rule(rule, task, splits):
    """The rule that chooses the round that counts."""
    if rule is None:
        everywhere = "val" in splits and all(len(r) for r in task.val)
        return selection.best_val if everywhere else selection.last
    if not callable(rule):
        raise ValueError(
            f"rule = {rule!r}: give a function of fedlib.measures.selection, as last "
            f"or best_val{nearest(rule, selection.RULES)}"
        )
    if rule in (selection.best_val, selection.best_val_gini):
        check_validation(f"rule = {rule.__name__}", task, splits)
    return rule


def check_validation(what, task, splits):
    """ValueError where no client has validation rows that are scored."""
    if "val" not in splits or not any(len(r) for r in task.val):
        raise ValueError(
            f"{what} chooses on validation rows, and {task.name!r} scores none: give "
            f"the task some, parts=(0.8, 0.1, 0.1), and 'val' in splits = {splits}"
        )


def methods_of(entries, task):
    """{name in the table: Method}; one ValueError names all that cannot be made."""
    made, wrong = {}, {}
    for entry in entries:
        try:
            name, method = method_of(entry, task)
            if name in made:
                raise ValueError("listed twice: change a hyper-parameter, or leave it")
            made[name] = method
        except (ValueError, TypeError) as e:
            wrong[short(entry)] = str(e)
    refuse(wrong, task)
    return made


def method_of(entry, task):
    """(name in the table, Method) of a name, a pair, or a Method."""
    if isinstance(entry, Method):
        cls, of = type(entry), entry.task
        if of is not None and of is not task and of.name != task.name:
            name = f"{of.name!r}: make it for {task.name!r}, or without a task"
            raise ValueError(f"this object was made for the task {name}")
        name = next((n for n, c in METHODS.items() if c is cls), cls.__name__)
        return name, replace(entry, task=task)
    pair = isinstance(entry, (tuple, list)) and len(entry) == 2
    name, hyper = entry if pair else (entry, {})
    if not isinstance(name, str) or not isinstance(hyper, Mapping):
        kinds = "a name, a pair (name, hyper-parameters), or a Method object"
        raise ValueError(f"{entry!r:.80} is no method: give {kinds}")
    return f"{name}({listing(hyper)})" if hyper else name, make(name, task, **hyper)


def rehearse_all(setup, jobs, view):
    """One ValueError names all methods that cannot run; jobs that are done can."""
    first = lambda of: tuple(rows[:ROWS] for rows in of)
    task = setup.task
    parts = {k: first(getattr(task, k)) for k in ("train", "val", "test")}
    small = replace(task, **parts, guests=tuple(map(first, task.guests)))
    wrong = {}
    for name, seed in {j[0]: j for j in reversed(jobs) if not setup.done(j)}.values():
        try:
            views = rehearse(replace(setup, task=small), name, seed)
            if view is not None and view not in views:
                wrong[name] = f"view = {view!r}: it has {', '.join(views)}"
        except Exception as e:
            bare = isinstance(e, (ValueError, NotImplementedError))
            wrong[name] = str(e) if bare else reason(e)
    refuse(wrong, task)


def rehearse(setup, name, seed):
    """The names of a method's views, after round 0 was tried; nothing is kept. Raises
    what the run would raise, but for a model that is not finite.
    """
    how = setup.how | {"seed": seed, "upto": 1, "progress": False, "on_round": None}
    try:
        record = engine.run(setup.methods[name], setup.task, setup.rounds, **how)
    except Diverged as e:
        record = e.record
    return list(dict.fromkeys(v for moment, v, _ in record.views if moment == "pre"))


def refuse(wrong, task):
    """ValueError for the methods {name: why} that cannot run, if there are any."""
    if wrong:
        raise ValueError(
            f"compare: on {task.name!r} cannot run, so nothing was trained; mend or "
            f"leave out{as_lines(wrong)}"
        )


def as_lines(reasons):
    """{name: why} as lines."""
    return "".join(f"\n  {name}: {why}" for name, why in reasons.items())


# ---------------------------------------------------------------- hyper-parameters
class Search(NamedTuple):
    """The configurations of a method that are tried, of `size` in its whole grid."""

    tries: dict  # {label: (point, Method)}
    size: int

    def why(self, runs):
        """Why no configuration has ended."""
        why = next(
            text for (label, _), text in runs.failed.items() if label in self.tries
        )
        return f"no configuration could be tried: {why}"


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


def grids(grid, made):
    """{name: {hyper-parameter: values}} of the methods {name: Method} that are tuned;
    ValueError for what cannot be a grid.
    """
    if grid is True:
        grid = {name: of for name, m in made.items() if (of := usual_grid(m))}
    is_grid = lambda of: (
        isinstance(of, Mapping) and of and all(map(listed, of.values()))
    )
    if (
        not isinstance(grid, Mapping)
        or not grid
        or not all(map(is_grid, grid.values()))
    ):
        raise ValueError(
            f"grid = {grid!r}: give values to try by method, as in "
            '{"FedGA": {"alpha": [1, 3, 5]}}, or True where methods declare some'
        )
    for name in grid:
        if name not in made:
            known = f"{nearest(name, made)} (compared: {', '.join(made)})"
            raise ValueError(f"grid: {name!r} is not compared{known}")
    return {name: {k: listed(v) for k, v in of.items()} for name, of in grid.items()}


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


def searches_of(grid, made, budget):
    """{name: Search} of {name: {hyper-parameter: values}}; one ValueError names every
    point that a method refuses.
    """
    found, refused = {}, {}
    for name, of in grid.items():
        points, size = points_of(name, of, budget)
        found[name] = Search({}, size)
        for point in points:
            label = f"{name} with {listing(point)}"
            try:
                found[name].tries[label] = point, altered(made[name], point)
            except (ValueError, TypeError) as e:
                refused[label] = e
    if refused:
        raise ValueError(f"grid: points that cannot be{as_lines(refused)}")
    return found


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


def choose(name, search, runs, rule, view):
    """{name: (Method, words)}: the configuration with the highest mean validation
    accuracy, the first of equals; {} where no run has ended.
    """
    scores = {}
    for (label, _), record in runs.records.items():
        if label in search.tries:
            head = Comparison({label: [record]}, rule, view).seen(label)
            at = selection.picked(rule, record, head)
            scores[label] = float(np.nanmean(record["pre", head, "val"][at]))
    there, n = (
        {label: scores[label] for label in search.tries if label in scores},
        len(search.tries),
    )
    if not there:
        return {}
    point, method = search.tries[max(there, key=there.get)]
    drawn = f", drawn from {search.size}" if search.size > n else ""
    lost = f", {n - len(there)} failed" if n > len(there) else ""
    return {name: (method, f"{listing(point)} (best of {n}{drawn}{lost})")}
