"""What cannot be run is refused before the first round."""

from __future__ import annotations

from .local import Private
from .method import Method, Wrap
from .ranges import COUNT, among, is_whole
from .task import Task


def check_given(method, task):
    """ValueError unless these are a Method and a Task, or None for its own."""
    if not isinstance(method, Method):
        what = f"the class {method.__name__}" if isinstance(method, type) else method
        raise ValueError(
            f"run needs a method, and was given {what!r:.60}: build one, "
            "fedlib.make(name, task)"
        )
    for given in (task, method.task):
        if not (given is None or isinstance(given, Task)):
            raise ValueError(
                f"task = {given!r:.60}: give a Task, such as fedlib.Task.from_arrays "
                "makes (rounds comes after it)"
            )


def check_run(
    method,
    task,
    rounds,
    cohort,
    every,
    how,
    chunk,
    splits,
    own=False,
    guests=False,
    threads=1,
    precision="float32",
):
    """ValueError for a run that makes no sense; arguments as `engine.run` has them."""
    if task is None:
        raise ValueError(
            "run needs a task: give one to the method, or run(method, task, ...)"
        )
    check_schedule(method, task, rounds, cohort, every, own)
    check_execution(how, chunk, threads, precision)
    check_method(method, task)
    check_scored(task, splits, guests)


def check_schedule(method, task, rounds, cohort, every, own):
    """Rounds, evaluations, and who takes part."""
    whole = is_whole(rounds) and is_whole(every)
    if not whole or not 0 <= rounds <= COUNT or every < 1:
        raise ValueError(
            f"rounds = {rounds!r}, every = {every!r}: give whole numbers, rounds from "
            f"0 to {COUNT:g} and every >= 1"
        )
    size = is_whole(cohort) and 1 <= cohort <= task.C
    if not (cohort is None or callable(cohort) or size):
        raise ValueError(
            f"cohort = {cohort}: the task {task.name!r} has {task.C} clients; give 1 "
            f"to {task.C}, None for all, or a function from the round to their numbers"
        )
    if own and method.who != "all" and cohort not in (None, task.C):
        raise ValueError(
            f"own = True with cohort = {cohort}: every client's own model is scored, "
            "so let all of them train: cohort None"
        )


def check_execution(how, chunk, threads, precision):
    """How the clients' functions are executed."""
    if not among(how, (None, "loop", "vmap")):
        raise ValueError(f"how = {how!r}: give 'loop', 'vmap' or None")
    if not is_whole(threads) or threads < 1 or (threads > 1 and how == "vmap"):
        raise ValueError(
            f"threads = {threads!r} with how = {how!r}: give a whole number >= 1, more "
            "than 1 only with how 'loop'"
        )
    if not among(precision, ("float32", "tf32", "bf16")):
        raise ValueError(f"precision = {precision!r}: give 'float32', 'tf32' or 'bf16'")
    if chunk is not None and not (is_whole(chunk) and 1 <= chunk <= COUNT):
        raise ValueError(
            f"chunk = {chunk!r}: give a positive number of clients, or None for the "
            "whole cohort"
        )


def check_method(method, task):
    """Does the task have what the method needs?"""
    if isinstance(method, Wrap) and method.inner is None:
        raise ValueError(
            f"{type(method).__name__} wraps a method and inner is None: give "
            f"inner={method.around}(task, ...), or build it with make"
        )
    inside = method
    while isinstance(inside, Wrap):
        inside = inside.inner
    if isinstance(inside.step, Private) and task.buffers:
        raise ValueError(
            f"Private steps on {type(task.network).__name__}: its batch norm "
            f"({task.buffers[0]}) mixes the rows of a batch, so no gradient is a row's "
            "own; take norm: group"
        )
    if isinstance(inside.step, Private) and hasattr(task.network, "check_rows"):
        task.network.check_rows(task.x)
    check_features = getattr(task.network, "check_features", None)
    if check_features and (method.needs_features or method.needs_linear_head):
        check_features(type(inside).__name__, method.needs_linear_head)
    if method.needs_groups and task.groups is None:
        raise ValueError(
            f"{type(method).__name__} needs to know the groups, and {task.name!r} has "
            "none: give the task a sensitive attribute (data census or acs, or groups: "
            "{by: parity})"
        )
    bare = [c for c in range(task.C) if not len(task.val[c])]
    if method.needs_val and bare:
        raise ValueError(
            f"{type(method).__name__} needs validation rows at every client; client "
            f"{bare[0]} of {task.name!r} has none ({len(bare)} in all): give the task "
            "a validation part, or larger clients"
        )


def check_scored(task, splits, guests):
    """What is scored must be there."""
    if guests and not task.guests:
        raise ValueError(
            f"guests = True, and {task.name!r} has none: name a domain to leave out "
            "(guest: ...)"
        )
    known, listed = ("test", "val", "all"), isinstance(splits, (list, tuple))
    good = listed and splits and all(s in known for s in splits)
    if not good or len(set(splits)) < len(splits):
        raise ValueError(
            f"splits = {splits!r}: give some of 'test', 'val' and 'all' (the "
            "training rows)"
        )
