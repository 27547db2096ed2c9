"""What cannot be trained on is refused when a task is made."""

from __future__ import annotations

import torch


def check_task(task):
    """ValueError for a task that cannot be trained on."""
    check_rows(task)
    if task.groups is not None:
        check_groups(task)
    check_labels(task)
    check_clients(task)
    check_splits(task)
    if task.batch < 1:
        at = f"task {task.name!r}"
        raise ValueError(f"{at}: batch = {task.batch}; give a positive batch size")


def check_rows(task):
    """As many labels as rows, numbers that are finite."""
    x, y, at = task.x, task.y, f"task {task.name!r}"
    if len(x) != len(y):
        raise ValueError(
            f"{at}: x has {len(x)} rows and y {len(y)}; give one label per row"
        )
    if not x.is_floating_point() or y.is_floating_point():
        raise ValueError(
            f"{at}: x is {x.dtype} and y {y.dtype}; x must be floating point "
            "and y integer"
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
