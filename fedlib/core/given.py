"""What a run is given is checked before the first round."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch

from .errors import COUNT, SEEDS, among, is_number, is_whole, refuse_if, short
from .method import Method, Wrap
from .task import Task


def within(low, high=SEEDS, fine=is_whole):
    return lambda v: fine(v) and low <= v <= high


def one_of(*known):
    return lambda v: among(v, known)


def splits(v):
    known, many = {"test", "val", "all"}, isinstance(v, (list, tuple)) and v
    return many and len({*v}) == len(v) and {*v} <= known


def or_none(fine):
    return lambda v: v is None or fine(v)


SWITCH = one_of(True, False), "True or False"
SECONDS = within(0, fine=is_number), "seconds, 0 or more (0: after every round)"
VALUES = {  # argument -> (is it fine?, what to give)
    "rounds": (within(0, COUNT), f"whole numbers, from 0 to {COUNT:g}"),
    "every": (within(1), "a whole number >= 1"),
    "seed": (within(0), f"a whole number from 0 to {SEEDS} (2^63 - 1)"),
    "how": (one_of(None, "loop", "vmap"), "'loop', 'vmap' or None"),
    "precision": (one_of("float32", "tf32"), "'float32' or 'tf32'"),
    "checkpoint_every": SECONDS,
    "progress": (one_of(True, False, None), "True, False, or None (on a terminal)"),
    "upto": (or_none(within(0)), "the round to stop before, >= 0, or None"),
    "on_round": (or_none(callable), "a function f(t, record), or None"),
    "splits": (splits, "some of 'test', 'val' and 'all'"),
} | dict.fromkeys(("guests", "own", "microscope", "keep_state"), SWITCH)


def check_values(given, table=VALUES):
    """ValueError for the first of {argument: value} that makes no sense by itself."""
    for name in table.keys() & given.keys():
        fine, remedy = table[name]
        try:
            good = fine(given[name])
        except TypeError:  # what cannot be compared or hashed
            good = False
        refuse_if(not good, f"{name} = {short(given[name])}: give {remedy}")


def check_run(method, task, cohort, own=False):
    """ValueError where method, task and who takes part do not fit together."""
    refuse_if(
        not isinstance(method, Method) or not isinstance(task, Task),
        f"run(method, task, rounds): method = {short(method)}, task = {short(task)}: "
        "give a method of fedlib.make(name, task), which brings its task",
    )
    kind, on, inside = type(method).__name__, f"the task {task.name!r}", method
    while isinstance(inside, Wrap):
        inside = inside.inner
    refuse_if(inside is None, f"{kind} wraps a method and inner is None: use make")
    size = is_whole(cohort) and 1 <= cohort <= task.C
    refuse_if(
        not (cohort is None or callable(cohort) or size),
        f"cohort = {short(cohort)}: give 1 to {task.C}, the clients of {on}, None for "
        "all, or a function from the round to their numbers",
    )
    refuse_if(
        own and method.who != "all" and cohort not in (None, task.C),
        f"own = True with cohort = {cohort}: every client's own model is scored, so "
        "let all of them train: cohort None",
    )
    why = f"{kind} needs to know the groups, and {on} has none: give a sensitive one"
    refuse_if(method.needs_groups and task.groups is None, why)
    bare = [c for c in range(task.C) if method.needs_val and not len(task.val[c])]
    refuse_if(
        bare,
        f"{kind} needs validation rows at every client; client {bare and bare[0]} of "
        f"{on} ({len(bare)} in all) has none: give a validation part or larger clients",
    )
    refuse_if(
        getattr(inside.step, "per_row", False) and task.buffers,
        f"{short(inside.step)} and batch norm, which mixes the rows of a batch: no "
        "gradient is a row's own; give norm: group",
    )
    if method.needs_features or method.needs_linear_head:
        check = getattr(task.network, "check_features", lambda *_: None)
        check(type(inside).__name__, method.needs_linear_head)


def checked_device(device):
    """A torch.device that works; None: a GPU where there is one."""
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(usual if device is None else device)
        torch.empty(0, device=found)
    except (AssertionError, RuntimeError, TypeError) as e:
        said = f"device = {device!r}: give 'cpu', 'cuda' or None ({e!s:.99})"
        raise ValueError(said) from e
    return found


def checked_folder(folder):
    """A Path, or None; ValueError where no folder can be there."""
    if folder is None:
        return None
    named = isinstance(folder, (str, os.PathLike)) and os.fspath(folder)
    path = Path(folder if named else ".")
    there = next((p for p in (path, *path.parents) if p.exists()), path)
    why = f"folder = {short(folder)}: give the path of a folder, or None"
    refuse_if(not named or "\0" in str(folder) or not there.is_dir(), why)
    return path


def checked_start(init, task):
    """Weights {name: tensor} to start from, of the task's network, copied; or None."""
    if init is None:
        return None
    form = lambda v: (getattr(v, "dtype", None), [*getattr(v, "shape", ())])
    want, given = task.init(0), dict(init) if isinstance(init, Mapping) else {}
    given = {k: v for k, v in given.items() if "num_batches" not in k}
    odd = [k for k in want | given if form(given.get(k)) != form(want.get(k))]
    refuse_if(
        odd or not all(v.isfinite().all() for v in given.values()),
        f"init: {odd[:4]} are not as in {task.network}: give finite weights by name, "
        "{name: tensor}, such as module.state_dict() or record.model()",
    )
    return {k: given[k].detach().clone().to(like.device) for k, like in want.items()}
