"""Methods side by side on one task: every mistake is named before anything trains, then
all runs -> Comparison.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from ..core import engine, given
from ..core.errors import nearest
from ..core.method import Method, Wrap, acts_on_download
from ..core.ranges import COUNT, SEEDS, is_whole, listed, short
from ..core.task import Task
from ..core.tree import pick
from ..core.types import Given, Rule
from ..measures import selection
from ..methods import METHODS
from ..methods.make import make
from .comparison import Comparison
from .matrix import Job, Shared, claim, identity, in_words, run_all

EVALUATIONS = 100  # at most so many unless `every` is given: scoring costs, too
MOST = 10_000  # seeds that nobody lists one by one
PILOT = 1000  # the seed of the runs that choose; a later one where it is taken


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
    check_values(locals())
    seeds = seeds_of(seeds)
    usual = {"guests": bool(task.guests), "every": math.ceil(rounds / EVALUATIONS)}
    how = usual | checked_how(how, task, rounds, usual)
    splits = how.get("splits", SPLITS)
    rule = checked_rule(rule, task, splits)
    entries = listed(methods)
    made = methods_of(entries, task)
    plan = {}  # {method: {label of a configuration: (values, Method)}}
    if grid is not None and grid is not False:
        check_validation("grid", task, splits)
        plan, sizes = configurations(made, grids(grid, made), budget)
    tried = {label: m for of in plan.values() for label, (_, m) in of.items()}
    at = given.checked_folder(folder)
    shared = Shared(task, made | tried, rounds, how, at)
    pilots = [shared.job(label, pilot_seed(seeds)) for label in tried]
    jobs = [shared.job(name, s) for s in seeds for name in made]
    with one_thread():
        fixed = [j for j in jobs if j.name not in plan]
        check_jobs(shared, [*pilots, *fixed], view)
        if at is not None:
            claim(at, identity(shared))
        runs = run_all(shared, pilots, workers, progress)
        tuned = {}
        if plan and not runs.stopped:
            tuned = choose(plan, sizes, runs, rule, view)
        lost = {n: why(plan[n], runs) for n in plan if n not in tuned}
        if not runs.stopped:
            best = {name: method for name, (method, _) in tuned.items()}
            shared = replace(shared, methods=made | best)
            kept = [n for n in made if n not in lost]
            jobs = [shared.job(name, s) for s in seeds for name in kept]
            runs = run_all(shared, jobs, workers, progress)
    records, failed, missing = sorted_out(made, seeds, runs, lost)
    if failed and not records and not runs.stopped:
        raise ValueError(f"compare: no method has finished{as_lines(failed)}")
    texts = [
        in_words(made[name]) if isinstance(entry, Method) else repr(entry)
        for name, entry in zip(made, entries)
    ]
    return Comparison(
        records,
        rule,
        view,
        failed,
        missing,
        tuned={name: words for name, (_, words) in tuned.items()},
        folder=at,
        stopped=runs.stopped,
        settings=identity(shared),
        call=call_of(texts, rounds, seeds, rule, view, grid, budget, how),
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


def sorted_out(made, seeds, runs, lost):
    """(records, failed, missing) of a Comparison; lost: {name: why it was not run}."""
    failed = {name: text for name, text in lost.items() if text}
    for (name, seed), text in sorted(runs.failed.items(), key=lambda e: e[0][1]):
        if name in made:
            failed.setdefault(name, f"seed {seed}: {text}")
    records, missing = {}, {}
    for name in (n for n in made if n not in failed):
        there = {s: runs.records[name, s] for s in seeds if (name, s) in runs.records}
        if there:
            records[name] = list(there.values())
        if len(there) < len(seeds):
            missing[name] = [s for s in seeds if s not in there]
    return records, failed, missing


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
PARAMETERS = inspect.signature(engine.run).parameters
OWN = inspect.signature(compare).parameters
SPLITS = PARAMETERS["splits"].default
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
    "workers": (given.within(1), "a whole number >= 1"),
    "budget": (given.within(1), "a whole number >= 1"),
    "progress": given.VALUES["progress"],
}


def check_values(values):
    """ValueError for the first argument that makes no sense by itself."""
    for name, (fine, remedy) in VALUES.items():
        if not fine(values[name]):
            raise ValueError(f"{name} = {short(values[name])}: give {remedy}")


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


def checked_how(how, task, rounds, usual):
    """The keywords for engine.run; ValueError for what it would refuse."""
    known = [k for k in PARAMETERS if k not in ("method", "seed", "upto", *OWN)]
    for k in how:
        if k not in known:
            own = [k for k in OWN if k != "how"]
            hint = "; give `seeds`" if k == "seed" else nearest(k, [*own, *known])
            both = ", ".join([*own, *known])
            raise ValueError(f"compare has no {k!r}{hint} (known: {both})")
    full = {k: PARAMETERS[k].default for k in known} | usual | how
    given.check_values(full | {"rounds": rounds})
    given.check_run(Method(task), task, full["cohort"], guests=full["guests"])
    if "test" not in full["splits"]:
        raise ValueError(f"splits = {full['splits']}: a comparison needs 'test' in it")
    return how


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
    remedy = "" if "val" in splits else f"splits = {splits} lacks 'val': add it"
    if not remedy and not any(len(r) for r in task.val):
        remedy = f"{task.name!r} has none: give the task some, parts=(0.8, 0.1, 0.1)"
    if remedy:
        raise ValueError(f"{what} chooses on validation rows, and {remedy}")


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
    label = ", ".join(f"{k}={v}" for k, v in hyper.items())
    return f"{name}({label})" if label else name, make(name, task, **hyper)


def check_jobs(shared, jobs, view):
    """One ValueError names all methods that cannot run; jobs that are done can."""
    wrong = {}
    for job in {j.name: j for j in reversed(jobs) if not j.done}.values():
        try:
            views = rehearse(shared, job)
            if view is not None and view not in views:
                wrong[job.name] = f"view = {view!r}: it has {', '.join(views)}"
        except Exception as e:
            bare = isinstance(e, (ValueError, NotImplementedError))
            wrong[job.name] = str(e) if bare else f"{type(e).__name__}: {e}"
    refuse(wrong, shared.task)


def refuse(wrong, task):
    """ValueError for the methods {name: why} that cannot run, if there are any."""
    if wrong:
        many = f"{len(wrong)} methods" if len(wrong) > 1 else "a method"
        raise ValueError(
            f"compare: {many} cannot run on {task.name!r}, so nothing was trained; "
            f"mend or leave out{as_lines(wrong)}"
        )


def as_lines(reasons):
    """{name: why} as lines."""
    return "".join(f"\n  {name}: {why}" for name, why in reasons.items())


def rehearse(shared, job: Job):
    """The names of a method's views, after all that round 0 asks of it was tried on the
    client with the fewest rows and one batch of every plan; nothing is kept.

    Raises what the run would raise.
    """
    method, task, how = shared.methods[job.name], shared.task, dict(shared.how)
    how |= {"seed": job.seed, "upto": 0, "progress": False, "folder": None}
    state = engine.run(method, task, shared.rounds, **how).state
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    task = task.to(how.get("device") or usual)
    method = engine.bind(method, task)
    c = min(range(task.C), key=lambda i: len(task.train[i]))
    ids = torch.tensor([c])
    with torch.no_grad():
        plans = {k: plan._replace(steps=1) for k, plan in method.plans().items()}
        R = method.horizon(shared.rounds)
        shard = task.shards(job.seed, 0, R, ids, plans)[0]
        down = pick(method.send(state["server"], ids), 0)
        mine = pick(state["clients"], c)
        if acts_on_download(method):
            mine = method.receive(down, mine, shard)
        views = method.views(down, mine, shard)
        for name, model in views.items():
            shape = model(task.x[task.train[c][:1].to(task.x.device)]).shape
            if shape != (1, task.K):
                want = f"gives {list(shape)} for one row: give logits [n, {task.K}]"
                raise ValueError(f"view {name!r} {want}")
        method.local(down, mine, shard)
    return list(views)


# ---------------------------------------------------------------- hyper-parameters
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
        grid = {name: usual_grid(m) for name, m in made.items()}
        grid = {name: of for name, of in grid.items() if of}
    of_all = grid.values() if isinstance(grid, Mapping) else [None]
    lists = [
        v for of in of_all for v in (of.values() if isinstance(of, Mapping) else ())
    ]
    fine = all(isinstance(of, Mapping) and of for of in of_all)
    if not (grid and fine and all(map(listed, lists))):
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


def configurations(made, grid, budget):
    """({name: {label: (point, Method)}}, {name: size of the whole grid}); one
    ValueError names every point that a method refuses.
    """
    plan, sizes, refused = {}, {}, {}
    for name, of in grid.items():
        points, sizes[name] = points_of(name, of, budget)
        plan[name] = {}
        for point in points:
            label = f"{name} with {listing(point)}"
            try:
                plan[name][label] = point, altered(made[name], point)
            except (ValueError, TypeError) as e:
                refused[label] = e
    if refused:
        raise ValueError(f"grid: points that cannot be{as_lines(refused)}")
    return plan, sizes


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


def choose(plan, sizes, runs, rule, view):
    """{name: (Method, words)}: of each method the configuration with the highest mean
    validation accuracy, the first of equals; none of a method of which no run has
    ended.
    """
    scores = {}
    for (label, _), record in runs.records.items():
        head = Comparison({label: [record]}, rule, view).seen(label)
        at = selection.picked(rule, record, head)
        scores[label] = float(np.nanmean(record["pre", head, "val"][at]))
    found = {}
    for name, of in plan.items():
        there = {label: scores[label] for label in of if label in scores}
        if there:
            point, method = of[max(there, key=there.get)]
            drawn = f", drawn from {sizes[name]}" if sizes[name] > len(of) else ""
            lost = f", {len(of) - len(there)} failed" if len(of) > len(there) else ""
            found[name] = method, f"{listing(point)} (best of {len(of)}{drawn}{lost})"
    return found


def why(of, runs):
    """Why no configuration {label: ...} of a method has ended."""
    reasons = [text for (label, _), text in runs.failed.items() if label in of]
    return f"no configuration could be tried: {reasons[0]}" if reasons else ""
