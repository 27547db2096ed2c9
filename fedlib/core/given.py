"""What a run is given is checked before the first round: one table, one message each."""

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

WORDS = ("test", "val", "all")
within = lambda low, high: lambda v: is_whole(v) and low <= v <= high
maybe = lambda ok: lambda v: v is None or ok(v)
one_of = lambda *known: lambda v: among(v, known)
switch = one_of(True, False)
VALUES = {  # argument -> (is it fine?, what to give)
    "rounds": (within(0, COUNT), f"whole numbers, from 0 to {COUNT:g}"),
    "every": (within(1, SEEDS), "a whole number >= 1"),
    "seed": (within(0, SEEDS), f"a whole number from 0 to {SEEDS} (2^63 - 1)"),
    "how": (one_of(None, "loop", "vmap"), "'loop', 'vmap' or None"),
    "threads": (within(1, COUNT), "a whole number >= 1"),
    "chunk": (maybe(within(1, COUNT)), "a positive number of clients, or None for all"),
    "precision": (one_of("float32", "tf32", "bf16"), "'float32', 'tf32' or 'bf16'"),
    "checkpoint_every": (
        lambda v: isinstance(v, Real) and not isinstance(v, bool) and v >= 0,
        "seconds, 0 or more (0: after every round)",
    ),
    "progress": (maybe(switch), "True, False, or None (a bar on a terminal)"),
    "upto": (
        maybe(within(0, SEEDS)),
        "the round to stop before, a whole number >= 0, or None",
    ),
    "on_round": (maybe(callable), "a function f(t, record), or None"),
    "splits": (
        lambda v: (
            isinstance(v, (list, tuple))
            and v
            and len(set(v)) == len(v)
            and set(v) <= {*WORDS}
        ),
        "some of 'test', 'val' and 'all' (the training rows)",
    ),
} | dict.fromkeys(
    ("guests", "own", "microscope", "keep_state"), (switch, "True or False")
)


def check_values(**given):
    for name, v in given.items():
        fine, words = VALUES[name]
        try:
            good = fine(v)
        except TypeError:  # what cannot be compared or hashed
            good = False
        if not good:
            raise ValueError(f"{name} = {short(v)}: give {words}")


def refuse(*cases):
    """ValueError with the first message whose condition holds."""
    for wrong, message in cases:
        if wrong:
            raise ValueError(message())


CPU = torch.device("cpu")


def check_run(
    method,
    task,
    cohort,
    own=False,
    how=None,
    guests=False,
    threads=1,
    precision="float32",
    device=CPU,
):
    """ValueError for a run that makes no sense, argument by argument and together."""
    kind, given = (
        type(method).__name__,
        lambda m: f"the class {m.__name__}" if isinstance(m, type) else m,
    )
    refuse(
        (
            not isinstance(method, Method),
            lambda: (
                f"run needs a method, and was given {given(method)!r:.60}: build one, "
                "fedlib.make(name, task)"
            ),
        ),
        (
            not isinstance(task, Task),
            lambda: (
                f"run needs a task: task = {task!r:.60}; give one to the method, or run(method, task, "
                "...), such as fedlib.Task.from_arrays makes (rounds comes after it)"
            ),
        ),
    )
    inside = method
    while isinstance(inside, Wrap) and inside.inner is not None:
        inside = inside.inner
    private, name = isinstance(inside.step, Private), f"{task.name!r}"
    bare = (
        [c for c in range(task.C) if not len(task.val[c])] if method.needs_val else []
    )
    size = is_whole(cohort) and 1 <= cohort <= task.C
    refuse(
        (
            not (cohort is None or callable(cohort) or size),
            lambda: (
                f"cohort = {cohort}: the task {name} has {task.C} clients; give 1 to {task.C}, None "
                "for all, or a function from the round to their numbers"
            ),
        ),
        (
            own and method.who != "all" and cohort not in (None, task.C),
            lambda: (
                f"own = True with cohort = {cohort}: every client's own model is scored, so let all "
                "of them train: cohort None"
            ),
        ),
        (
            threads > 1 and how == "vmap",
            lambda: (
                f"threads = {threads} with how = {how!r}: give more than 1 only with how 'loop'"
            ),
        ),
        (
            precision == "tf32" and device.type != "cuda",
            lambda: (
                f"precision = 'tf32' on {device.type}: tensor cores are a GPU's; give 'float32' or "
                "'bf16'"
            ),
        ),
        (
            isinstance(inside, Wrap),
            lambda: (
                f"{kind} wraps a method and inner is None: give inner={inside.around}(task, ...), or "
                "build it with make"
            ),
        ),
        (
            private and task.buffers,
            lambda: (
                f"Private steps on {type(task.network).__name__}: its batch norm ({task.buffers[0]}) "
                "mixes the rows of a batch, so no gradient is a row's own; take norm: group"
            ),
        ),
        (
            method.needs_groups and task.groups is None,
            lambda: (
                f"{kind} needs to know the groups, and {name} has none: give the task a sensitive "
                "attribute (data census or acs, or groups: {by: parity})"
            ),
        ),
        (
            bare,
            lambda: (
                f"{kind} needs validation rows at every client; client {bare[0]} of {name} has none "
                f"({len(bare)} in all): give the task a validation part, or larger clients"
            ),
        ),
        (
            guests and not task.guests,
            lambda: (
                f"guests = True, and {name} has none: name a domain to leave out (guest: ...)"
            ),
        ),
    )
    network = task.network
    if private and hasattr(network, "check_rows"):
        network.check_rows(task.x)
    if hasattr(network, "check_features") and (
        method.needs_features or method.needs_linear_head
    ):
        network.check_features(type(inside).__name__, method.needs_linear_head)


def checked_device(device):
    """A torch.device; None: a GPU where there is one."""
    there = torch.cuda.is_available()
    try:
        found = torch.device(("cuda" if there else "cpu") if device is None else device)
        refuse((found.type == "cuda" and not there, lambda: "torch finds no GPU here"))
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
    named = (
        isinstance(folder, (str, os.PathLike))
        and os.fspath(folder)
        and "\0" not in str(folder)
    )
    refuse(
        (not named, lambda: f"folder = {folder!r}: give the path of a folder, or None")
    )
    path = Path(folder)
    there = next((p for p in (path, *path.parents) if p.exists()), path)
    refuse(
        (
            there.exists() and not there.is_dir(),
            lambda: (
                f"folder = {str(folder)!r}: {there} is a file; give each run a folder of its own"
            ),
        ),
        (
            not (path / "done").exists() and not os.access(there, os.W_OK),
            lambda: (
                f"folder = {str(folder)!r}: {there} cannot be written to; give another"
            ),
        ),
    )
    return path


def checked_start(init, task):
    """Weights {name: tensor} to start from, as of the task's network; nothing is shared."""
    if init is None:
        return None
    want = task.init(0)
    refuse(
        (
            not isinstance(init, Mapping),
            lambda: (
                f"init is a {type(init).__name__}: give weights by name, {{name: tensor}}, such as "
                "module.state_dict() or record.model()"
            ),
        )
    )
    unknown = [
        k for k in init if k not in want and not str(k).endswith("num_batches_tracked")
    ]
    missing = [k for k in want if k not in init]
    refuse(
        (
            unknown,
            lambda: (
                f"init has {unknown[0]!r}, and {task.network} trains no such tensor"
                f"{nearest(unknown[0], want)} (it has {', '.join(want)}); leave it out"
            ),
        ),
        (
            missing,
            lambda: (
                f"init lacks {', '.join(missing)}: give every tensor of {task.network}"
            ),
        ),
    )
    for k, like in want.items():
        v = init[k]
        alike = isinstance(v, torch.Tensor) and (v.shape, v.dtype) == (
            like.shape,
            like.dtype,
        )
        refuse(
            (
                not alike or not bool(v.isfinite().all()),
                lambda k=k, like=like: (
                    f"init[{k!r}] is {of(init[k])}: give a finite tensor, {of(like)}, of this very network"
                ),
            )
        )
    return {k: init[k].detach().clone().to(like.device) for k, like in want.items()}


def of(v):
    return (
        f"{list(v.shape)} of {v.dtype}"
        if isinstance(v, torch.Tensor)
        else f"a {type(v).__name__}"
    )


def digest(w):
    """A hash of weights {name: tensor}."""
    h = hashlib.sha256()
    for name in sorted(w):
        v = w[name].detach().cpu().contiguous()
        h.update(f"{name} {list(v.shape)} {v.dtype}".encode())
        h.update(v.flatten().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:16]
