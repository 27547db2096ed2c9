"""What a run is given is checked before the first round."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from numbers import Real
from pathlib import Path

import torch

from .errors import nearest
from .local import Private
from .method import Method, Wrap
from .ranges import COUNT, SEEDS, among, is_whole, short
from .task import Task


def within(low, high=SEEDS):
    return lambda v: is_whole(v) and low <= v <= high


def one_of(*known):
    return lambda v: among(v, known)


def some_of(*known):
    return lambda v: (
        isinstance(v, (list, tuple)) and v and len({*v}) == len(v) and {*v} <= {*known}
    )


def or_none(fine):
    return lambda v: v is None or fine(v)


def is_seconds(v):
    return isinstance(v, Real) and not isinstance(v, bool) and v >= 0


SWITCH = one_of(True, False), "True or False"
VALUES = {  # argument -> (is it fine?, what to give)
    "rounds": (within(0, COUNT), f"whole numbers, from 0 to {COUNT:g}"),
    "every": (within(1), "a whole number >= 1"),
    "seed": (within(0), f"a whole number from 0 to {SEEDS} (2^63 - 1)"),
    "how": (one_of(None, "loop", "vmap"), "'loop', 'vmap' or None"),
    "threads": (within(1, COUNT), "a whole number >= 1"),
    "chunk": (or_none(within(1, COUNT)), "a number of clients >= 1, or None for all"),
    "precision": (one_of("float32", "tf32", "bf16"), "'float32', 'tf32' or 'bf16'"),
    "checkpoint_every": (is_seconds, "seconds, 0 or more (0: after every round)"),
    "progress": (one_of(True, False, None), "True, False, or None (on a terminal)"),
    "upto": (or_none(within(0)), "the round to stop before, >= 0, or None"),
    "on_round": (or_none(callable), "a function f(t, record), or None"),
    "splits": (some_of("test", "val", "all"), "some of 'test', 'val' and 'all'"),
} | dict.fromkeys(("guests", "own", "microscope", "keep_state"), SWITCH)


def check_values(given):
    """ValueError for the first of {argument: value} that makes no sense by itself."""
    for name, (fine, remedy) in VALUES.items():
        v = given.get(name)
        try:
            good = name not in given or fine(v)
        except TypeError:  # what cannot be compared or hashed
            good = False
        if not good:
            raise ValueError(f"{name} = {short(v)}: give {remedy}")


def check_run(method, task, cohort, own=False, guests=False):
    """ValueError where method, task and who takes part do not fit together."""
    if not isinstance(method, Method):
        kind = "the class " if isinstance(method, type) else ""
        raise ValueError(
            f"run needs a method, and was given {kind}"
            f"{getattr(method, '__name__', repr(method)):.60}: build one, "
            "fedlib.make(name, task)"
        )
    if not isinstance(task, Task):
        raise ValueError(
            f"run needs a task: task = {task!r:.60}; give one to the method, or "
            "run(method, task, ...), such as fedlib.Task.from_arrays makes (rounds "
            "comes after it)"
        )
    kind, name, inside = type(method).__name__, f"{task.name!r}", method
    while isinstance(inside, Wrap) and inside.inner is not None:
        inside = inside.inner
    size = is_whole(cohort) and 1 <= cohort <= task.C
    if not (cohort is None or callable(cohort) or size):
        raise ValueError(
            f"cohort = {cohort}: the task {name} has {task.C} clients; give 1 to "
            f"{task.C}, None for all, or a function from the round to their numbers"
        )
    if own and method.who != "all" and cohort not in (None, task.C):
        raise ValueError(
            f"own = True with cohort = {cohort}: every client's own model is scored, "
            "so let all of them train: cohort None"
        )
    if isinstance(inside, Wrap):
        raise ValueError(
            f"{kind} wraps a method and inner is None: give "
            f"inner={inside.around}(task, ...), or build it with make"
        )
    if method.needs_groups and task.groups is None:
        raise ValueError(
            f"{kind} needs to know the groups, and {name} has none: give the task a "
            "sensitive attribute (data census or acs, or groups: {by: parity})"
        )
    bare = [c for c in range(task.C) if method.needs_val and not len(task.val[c])]
    if bare:
        raise ValueError(
            f"{kind} needs validation rows at every client; client {bare[0]} of {name} "
            f"has none ({len(bare)} in all): give the task a validation part, or "
            "larger clients"
        )
    if guests and not task.guests:
        raise ValueError(
            f"guests = True, and {name} has none: name a domain to leave out (guest: "
            "...)"
        )
    check_network(method, task, inside)


def check_network(method, task, inside):
    """Can the task's network do what the method needs?"""
    network, private = task.network, isinstance(inside.step, Private)
    if private and task.buffers:
        raise ValueError(
            f"Private steps on {type(network).__name__}: its batch norm "
            f"({task.buffers[0]}) mixes the rows of a batch, so no gradient is a row's "
            "own; take norm: group"
        )
    needed = method.needs_features or method.needs_linear_head
    if needed and hasattr(network, "check_features"):
        network.check_features(type(inside).__name__, method.needs_linear_head)


def check_execution(how, threads, precision, device):
    """ValueError where these do not go together."""
    if threads > 1 and how == "vmap":
        raise ValueError(
            f"threads = {threads} with how = {how!r}: give more than 1 only with how "
            "'loop'"
        )
    if precision == "tf32" and device.type != "cuda":
        raise ValueError(
            f"precision = 'tf32' on {device.type}: tensor cores are a GPU's; give "
            "'float32' or 'bf16'"
        )


def checked_device(device):
    """A torch.device; None: a GPU where there is one."""
    there = torch.cuda.is_available()
    try:
        found = torch.device(("cuda" if there else "cpu") if device is None else device)
        if found.type == "cuda" and not there:
            raise ValueError("torch finds no GPU here")
    except (RuntimeError, TypeError, ValueError) as e:
        why = str(e).splitlines()[0]
        raise ValueError(
            f"device = {device!r}: give 'cpu', 'cuda' or None ({why})"
        ) from e
    return found


def checked_folder(folder):
    """A Path, or None; ValueError where no folder can be there."""
    if folder is None:
        return None
    is_path = isinstance(folder, (str, os.PathLike)) and os.fspath(folder)
    if not is_path or "\0" in str(folder):
        raise ValueError(f"folder = {folder!r}: give the path of a folder, or None")
    path = Path(folder)
    there = next((p for p in (path, *path.parents) if p.exists()), path)
    if there.exists() and not there.is_dir():
        raise ValueError(
            f"folder = {str(folder)!r}: {there} is a file; give each run a folder of "
            "its own"
        )
    if not (path / "done").exists() and not os.access(there, os.W_OK):
        raise ValueError(
            f"folder = {str(folder)!r}: {there} cannot be written to; give another"
        )
    return path


def checked_start(init, task):
    """Weights {name: tensor} to start from, of the task's network, copied; or None."""
    if init is None:
        return None
    if not isinstance(init, Mapping):
        raise ValueError(
            f"init is a {type(init).__name__}: give weights by name, {{name: tensor}}, "
            "such as module.state_dict() or record.model()"
        )
    want = task.init(0)
    for k in init:
        if k not in want and not str(k).endswith("num_batches_tracked"):
            raise ValueError(
                f"init has {k!r}, and {task.network} trains no such tensor"
                f"{nearest(k, want)} (it has {', '.join(want)}); leave it out"
            )
    for k, like in want.items():
        if k not in init:
            raise ValueError(f"init lacks {k}: give every tensor of {task.network}")
        v = init[k]
        if of(v) != of(like) or not bool(v.isfinite().all()):
            raise ValueError(
                f"init[{k!r}] is {of(v)}: give a finite tensor, {of(like)}, of this "
                "very network"
            )
    return {k: init[k].detach().clone().to(like.device) for k, like in want.items()}


def of(v):
    if not isinstance(v, torch.Tensor):
        return f"a {type(v).__name__}"
    return f"{list(v.shape)} of {v.dtype}"


def digest(w):
    """A hash of weights {name: tensor}."""
    h = hashlib.sha256()
    for name in sorted(w):
        v = w[name].detach().cpu().contiguous()
        h.update(f"{name} {list(v.shape)} {v.dtype}".encode())
        h.update(v.flatten().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:16]
