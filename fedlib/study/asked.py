"""What a comparison is asked for: every mistake is named before anything trains."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..core import engine
from ..core.errors import nearest
from ..core.given import check_run, check_values
from ..core.method import Method
from ..core.ranges import SEEDS, check_whole, listed
from ..core.task import Task
from ..measures import selection
from ..methods import METHODS
from ..methods.make import make
from .rehearse import rehearse

MOST = 10_000  # seeds that nobody lists one by one


def check_list(methods, task):
    """A list of methods, and a task."""
    if not listed(methods):
        raise ValueError(
            f"compare(methods={methods!r}): give a list of methods, as in "
            '["FedAvg", "FedGA"]'
        )
    if not isinstance(task, Task):
        raise ValueError(
            f"compare(task={task!r:.80}): give a fedlib.Task, as Task.from_arrays makes"
        )


def whole_number(name, value, least, most=SEEDS):
    """The value as an int; ValueError unless it is whole, from least to most."""
    check_whole(name, value, least, most)
    return int(value)


def seeds(given):
    """The seeds, as a list of int."""
    which = None if isinstance(given, Mapping) else listed(given)
    if which is not None:
        which = [whole_number("a seed", s, 0) for s in which]
        twice = [s for i, s in enumerate(which) if s in which[:i]]
        if twice or not which:
            what = f"{twice[0]} twice" if twice else "none"
            raise ValueError(
                f"seeds = {given!r:.80} holds {what}: give different seeds, at least "
                "one seed"
            )
        return which
    try:
        return list(range(whole_number("seeds", given, 1, MOST)))
    except ValueError:
        raise ValueError(
            f"seeds = {given!r:.80}: give how many, at least one seed and at most "
            f"{MOST}, or which, as in [0, 1, 2]"
        ) from None


def settings(how, task, rounds, usual, ours):
    """The keywords for engine.run; ValueError for an unknown one, with the nearest of
    these and of `ours`, the parameters of compare.
    """
    takes = inspect.signature(engine.run).parameters
    ours = [k for k in ours if k != "how"]
    known = [k for k in takes if k not in ("method", "seed", "upto", *ours)]
    for k in how:
        if k not in known:
            hint = "; give `seeds`" if k == "seed" else nearest(k, [*known, *ours])
            both = ", ".join([*ours, *known])
            raise ValueError(f"compare has no {k!r}{hint} (known: {both})")
    told = {k: takes[k].default for k in known} | usual | how
    check_values(told | {"rounds": rounds})
    check_run(Method(task), task, told["cohort"], guests=told["guests"])
    if "test" not in told["splits"]:
        raise ValueError(f"splits = {told['splits']}: a comparison needs 'test' in it")
    return how


def bar(progress):
    """ValueError unless progress is a choice between a bar and none."""
    if not (progress is None or isinstance(progress, bool)):
        raise ValueError(
            f"progress = {progress!r:.60}: give True for a bar, False for none, or None"
        )


def view(given):
    """ValueError unless a view can have that name, or None is given."""
    if not (given is None or isinstance(given, str)):
        raise ValueError(
            f"view = {given!r:.60}: give the name of one, as 'global' or 'personal', "
            "or None"
        )


def rule(given, task, how):
    """The rule that chooses the round that counts."""
    scored = "val" in how.get("splits", usual_splits())
    if given is None:
        everywhere = scored and all(len(r) for r in task.val)
        return selection.best_val if everywhere else selection.last
    if not callable(given):
        raise ValueError(
            f"rule = {given!r}: give a function of fedlib.measures.selection, as last "
            f"or best_val{nearest(given, selection.RULES)}"
        )
    try:
        inspect.signature(given).bind("a record", "a view")
    except TypeError as e:
        raise ValueError(
            f"rule = {given!r:.60}: a rule takes a record and a view, see "
            f"fedlib.measures.selection ({e})"
        ) from None
    except ValueError:
        pass  # of a function in C: not known
    if given in (selection.best_val, selection.best_val_gini):
        check_validation(f"rule = {given.__name__}", task, how)
    return given


def usual_splits():
    """The splits that are scored where nothing is said."""
    return inspect.signature(engine.run).parameters["splits"].default


def check_validation(what, task, how):
    """ValueError where no client has validation rows that are scored."""
    splits = how.get("splits", usual_splits())
    if "val" not in splits:
        raise ValueError(
            f"{what} chooses on validation rows, and splits = {splits} does not score "
            "them: add 'val'"
        )
    if not any(len(r) for r in task.val):
        raise ValueError(
            f"{what} chooses on validation rows, and {task.name!r} has none: give the "
            "task a part for them, as in parts=(0.8, 0.1, 0.1); test rows are never "
            "used to choose"
        )


def methods(entries, task):
    """{name in the table: Method}; one ValueError names all that cannot be made."""
    made, wrong = {}, {}
    for entry in entries:
        try:
            name, method = named(entry, task)
        except (ValueError, TypeError) as e:
            wrong[label_of(entry)] = str(e)
            continue
        if name in made:
            raise ValueError(
                f"compare: {name} is listed twice; change a hyper-parameter, or "
                "leave one out"
            )
        made[name] = method
    refuse(wrong, task)
    return made


def check_all(common, jobs, view):
    """One ValueError names all methods that cannot run; jobs that are done can."""
    wrong = {}
    for j in jobs:
        if j.name in wrong or (j.at and Path(j.at, "done").exists()):
            continue
        if any(j.name == other.name for other in jobs[: jobs.index(j)]):
            continue  # tried with another seed
        method = common.methods[j.name]
        try:
            views = rehearse(method, common.task, common.rounds, j.seed, **common.how)
        except Exception as e:
            bare = isinstance(e, (ValueError, NotImplementedError))
            wrong[j.name] = str(e) if bare else f"{type(e).__name__}: {e}"
            continue
        if view is not None and view not in views:
            wrong[j.name] = f"view = {view!r}: {j.name} has {', '.join(views)}"
    refuse(wrong, common.task)


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


def named(entry, task):
    """(name in the table, Method)."""
    if isinstance(entry, Method):
        cls, of = type(entry), entry.task
        if of is not None and of is not task and of.name != task.name:
            raise ValueError(
                f"this object was made for the task {of.name!r}: make it for "
                f"{task.name!r}, or without a task"
            )
        name = next((n for n, c in METHODS.items() if c is cls), cls.__name__)
        return name, replace(entry, task=task)
    if isinstance(entry, type) and issubclass(entry, Method):
        raise ValueError(
            f"{entry.__name__} is a class: give an object of it, as in "
            f"{entry.__name__}(task), or its name"
        )
    pair = isinstance(entry, (tuple, list)) and len(entry) == 2
    name, given = entry if pair else (entry, {})
    if not isinstance(name, str) or not isinstance(given, Mapping):
        raise ValueError(
            f"{entry!r:.80} is no method: give a name, a pair (name, "
            "hyper-parameters), or a Method object"
        )
    told = ", ".join(f"{k}={v}" for k, v in given.items())
    return f"{name}({told})" if told else name, make(name, task, **given)


def label_of(entry):
    """An entry of the list of methods, in a message."""
    if isinstance(entry, (tuple, list)) and entry:
        return str(entry[0])
    if isinstance(entry, Method):
        return type(entry).__name__
    return getattr(entry, "__name__", str(entry))
