"""What cannot be trained on is refused when a task is made."""

from __future__ import annotations

import math
from numbers import Real

import torch

from .errors import nearest
from .pool import KINDS
from .ranges import is_whole, listed


def check_cut(parts, split):
    """How each client's rows are divided: three shares, and the seed of the draw ->
    the seed, as an int.
    """
    shares = listed(parts) or []
    good = len(shares) == 3 and all(
        isinstance(p, Real) and not isinstance(p, bool) and math.isfinite(p)
        for p in shares
    )
    if not good or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(
            f"parts = {parts!r:.80}: give three shares (train, val, test) that sum to 1"
        )
    if not is_whole(split):
        raise ValueError(
            f"split = {split!r:.60}: give a whole number, the seed of the cut into "
            "train, test and validation"
        )
    return int(split)  # of numpy's own, the mixing of seeds would overflow


FURTHER = ("a", "groups", "guests", "batch", "kind", "owners", "classes")


def check_fields(more, known=FURTHER):
    """TypeError for arguments by name that a task does not take."""
    for name in more:
        if name not in known:
            raise TypeError(
                f"a task takes no argument {name!r}{nearest(name, known)} (further "
                f"arguments are {', '.join(known)})"
            )


def check_task(task):
    """ValueError for a task that cannot be trained on."""
    check_rows(task)
    check_names(task)
    if task.groups is not None:
        check_groups(task)
    check_labels(task)
    check_clients(task)
    check_splits(task)
    if not is_whole(task.batch) or task.batch < 1:
        at = f"task {task.name!r}"
        raise ValueError(
            f"{at}: batch = {task.batch!r:.60}; give a positive batch size, a whole "
            "number of rows"
        )


def check_names(task):
    """What it is called, what kind of data, and names of clients and classes."""
    at = f"task {task.name!r:.60}"
    if not isinstance(task.name, str) or not task.name.strip():
        raise ValueError(f"{at}: name = {task.name!r:.60}; give a text")
    if task.kind not in KINDS:
        raise ValueError(
            f"{at}: kind = {task.kind!r:.60}{nearest(task.kind, KINDS)}; give own, for "
            "your own data, or real, synthetic or stand-in"
        )
    if not is_whole(task.K) or task.K < 1:
        raise ValueError(
            f"{at}: K = {task.K!r:.60}; give the number of classes, a whole number"
        )
    if task.owners and len(task.owners) != task.C:
        raise ValueError(
            f"{at}: owners has {len(task.owners)} names for {task.C} clients; give one "
            "each, or ()"
        )
    occur = int(task.y.max()) + 1 if task.y.numel() else 0
    if task.classes and not occur <= len(task.classes) <= task.K:
        raise ValueError(  # a network may know more classes than have names
            f"{at}: classes has {len(task.classes)} names; {occur} classes occur and K "
            f"= {task.K}: give one name each, or ()"
        )


def check_rows(task):
    """As many labels as rows, numbers that are finite."""
    x, y, at = task.x, task.y, f"task {task.name!r}"
    if len(x) != len(y):
        raise ValueError(
            f"{at}: x has {len(x)} rows and y {len(y)}; give one label per row"
        )
    whole_y = not y.is_floating_point() and not y.is_complex() and y.dim() == 1
    if not x.is_floating_point() or not whole_y or y.dtype == torch.bool:
        raise ValueError(
            f"{at}: x is {x.dtype} and y {y.dtype}; x must be floating point "
            f"and y integer [N], and y has shape {list(y.shape)}"
        )
    if not x.isfinite().all():
        bad = (~x.flatten(1).isfinite().all(1)).nonzero()[:, 0]
        raise ValueError(
            f"{at}: {len(bad)} rows of x hold NaN or infinity, the first is row "
            f"{int(bad[0])}; drop or impute them first"
        )


def check_groups(task):
    """Every row has a group, every group rows, and both outcomes occur."""
    y, at = task.y, f"task {task.name!r}"
    a, A = task.a, task.groups.A
    if a is None or len(a) != len(y):
        raise ValueError(
            f"{at}: groups are described and a has {None if a is None else len(a)} "
            f"entries for {len(y)} rows; give the group of every row"
        )
    if len(a) and not 0 <= int(a.min()) <= int(a.max()) < A:
        raise ValueError(
            f"{at}: groups run from {int(a.min())} to "
            f"{int(a.max())}; {task.groups.name!r} has the {A} groups "
            f"{', '.join(task.groups.names)}, numbered 0 to {A - 1}"
        )
    there = [g for i, g in enumerate(task.groups.names) if (a == i).any()]
    if len(a) and len(there) < max(2, A):
        raise ValueError(
            f"{at}: the sensitive attribute {task.groups.name!r} takes only the "
            f"value {', '.join(there)}; two groups or more must have rows, and all "
            f"that it names ({', '.join(task.groups.names)}), or leave it out"
        )
    good = task.groups.outcome(y)
    if len(y) and not 0 < int(good.sum()) < len(y):
        raise ValueError(
            f"{at}: {int(good.sum())} of {len(y)} rows have the positive outcome "
            f"{task.groups.positive}; choose the positive classes so that some "
            "labels lie inside and some outside"
        )


def check_labels(task):
    """Classes 0 .. K - 1."""
    y, at = task.y, f"task {task.name!r}"
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < task.K:
        raise ValueError(
            f"{at}: labels run from {int(y.min())} to {int(y.max())}, K = {task.K} "
            f"allows 0 to {task.K - 1}"
        )


def check_clients(task):
    """Each client has rows to train and to be tested on."""
    at = f"task {task.name!r}"
    if not task.C or not len(task.train) == len(task.val) == len(task.test):
        raise ValueError(
            f"{at}: {len(task.train)} train, {len(task.val)} val and {len(task.test)} "
            "test lists; give one of each per client, and at least one client"
        )
    for c in range(task.C):
        if not len(task.train[c]) or not len(task.test[c]):
            raise ValueError(
                f"{at}: client {c} has {len(task.train[c])} training and "
                f"{len(task.test[c])} test samples; drop it, merge it with another, or "
                "raise the partition's minimum size"
                + (f"; its name is {task.owners[c]!r}" if task.owners else "")
            )


def check_splits(task):
    """A row belongs to one client and one split; only test rows may be shared."""
    x, at = task.x, f"task {task.name!r}"
    rows, tests = torch.cat([*task.train, *task.val]), torch.cat(task.test)
    lo, hi = int(min(rows.min(), tests.min())), int(max(rows.max(), tests.max()))
    if not 0 <= lo <= hi < len(x):
        raise ValueError(
            f"{at}: row numbers run from {lo} to {hi}, the data has {len(x)} rows"
        )
    if len(rows) != len(rows.unique()):
        raise ValueError(
            f"{at}: a row is used twice; each training or validation row belongs to "
            "one client and one split"
        )
    if torch.isin(rows, tests).any():
        raise ValueError(
            f"{at}: row {int(rows[torch.isin(rows, tests)][0])} is used twice, "
            "for training or validation and for testing; only test rows may serve "
            "several clients"
        )
    n = torch.tensor([len(r) for r in task.test])
    who = torch.arange(task.C).repeat_interleave(n)
    if len(torch.unique(who * len(x) + tests)) < len(who):
        raise ValueError(f"{at}: a client's test rows hold a row twice")
