"""What cannot be trained on is refused when a task is made."""

from __future__ import annotations

import torch

from .arrays import check_rows
from .errors import nearest
from .pool import KINDS
from .ranges import is_number, is_whole, listed


def check_cut(parts, split):
    """How each client's rows are divided: three shares, and the seed of the draw ->
    the seed, as an int (of numpy's own, the mixing of seeds would overflow)."""
    shares = listed(parts) or []
    good = len(shares) == 3 and all(map(is_number, shares)) and min(shares) >= 0
    if not good or abs(sum(shares) - 1) > 1e-6 or not is_whole(split):
        raise ValueError(
            f"parts = {parts!r:.80}, split = {split!r:.60}: give three shares (train, "
            "val, test) that sum to 1, and a whole number, the seed of the cut"
        )
    return int(split)


def check_task(task):
    """ValueError for a task that cannot be trained on."""
    at = f"task {task.name!r:.60}"
    if len(task.x) != len(task.y):
        raise ValueError(f"{at}: x has {len(task.x)} rows, y {len(task.y)}: give one y")
    if (
        not task.x.is_floating_point()
        or task.y.dtype != torch.int64
        or task.y.dim() > 1
    ):
        raise ValueError(
            f"{at}: x is {task.x.dtype} and y {task.y.dtype} {list(task.y.shape)}; "
            "give floating point x and int64 y [N]"
        )
    check_rows(task.x, at)
    for faults in (of_fields, of_groups, of_clients, of_rows):
        for fault in faults(task):
            raise ValueError(f"{at}: {fault}")


# Each of these yields what is wrong, the value and the remedy, and nothing where all is
# well; a later check may rely on the earlier ones.
def of_fields(task):
    """Names, kind, classes 0 .. K - 1, batch size."""
    y, K, of_classes = task.y, task.K, len(task.classes)
    text = isinstance(task.name, str) and task.name.strip()
    if not text or task.kind not in KINDS:
        yield (
            f"name = {task.name!r:.60}, kind = {task.kind!r:.60}"
            f"{nearest(task.kind, KINDS)}; give texts, kind one of {', '.join(KINDS)}"
        )
    if not is_whole(task.batch) or task.batch < 1:
        yield f"batch = {task.batch!r:.60}; give a whole number of rows, 1 or more"
    if not is_whole(K) or K < 1:
        yield f"K = {K!r:.60}; give the number of classes, a whole number"
    lo, hi = (int(y.min()), int(y.max())) if len(y) else (0, 0)
    if not 0 <= lo <= hi < K:
        yield f"labels run from {lo} to {hi}; K = {K}: give labels 0 to {K - 1}"
    if task.classes and not hi < of_classes <= K:  # a network may know more classes
        yield f"classes has {of_classes} names; give one for each of {K} classes, or ()"
    if task.owners and len(task.owners) != task.C:
        yield f"owners has {len(task.owners)} names for {task.C} clients; give one each"


def of_groups(task):
    """Every row has a group, every group rows, and both outcomes occur."""
    a, y, groups = task.a, task.y, task.groups
    if groups is None:
        return
    A, names = groups.A, ", ".join(groups.names)
    if a is None or len(a) != len(y):
        n = None if a is None else len(a)
        yield f"a has {n} entries for {len(y)} rows; give the group of every row"
    there = sorted(set(a.tolist()))
    if len(there) < 2 or there != list(range(A)):
        yield (
            f"the sensitive attribute {groups.name!r} has the groups {there}; give "
            f"rows of all that it names, numbered from 0 ({names}), two or more"
        )
    good = int(groups.outcome(y).sum())
    if not 0 < good < len(y):
        yield (
            f"{good} of {len(y)} rows have the positive outcome {groups.positive}; "
            "choose the positive classes so that some labels lie inside, some outside"
        )


def of_clients(task):
    """Each client has rows to train and to be tested on."""
    n = len(task.train), len(task.val), len(task.test)
    if not task.C or len(set(n)) > 1:
        yield f"{n} clients in train, val and test; give lists for one client or more"
    for c, (train, test) in enumerate(zip(task.train, task.test)):
        if not len(train) or not len(test):
            who = f"client {c}" + (f" ({task.owners[c]!r})" if task.owners else "")
            yield (
                f"{who} has {len(train)} training and {len(test)} test samples; leave "
                "it out, merge it with another, or raise the partition's minimum size"
            )


def of_rows(task):
    """A row belongs to one client and one split; only test rows may be shared."""
    rows, tests = torch.cat([*task.train, *task.val]), torch.cat(task.test)
    every, N = torch.cat([rows, tests]), len(task.x)
    lo, hi = int(every.min()), int(every.max())
    if not 0 <= lo <= hi < N:
        yield f"row numbers run from {lo} to {hi}; give those of the {N} rows"
    both = torch.isin(rows, tests)
    if len(rows) != len(rows.unique()) or both.any():
        yield (
            f"a row is used twice ({rows[both][:1].tolist()} in training and testing);"
            " give it to one client and one split; only test rows may serve several"
        )
    n = torch.tensor([len(r) for r in task.test])
    who = torch.arange(task.C).repeat_interleave(n)
    if len(torch.unique(who * N + tests)) < len(tests):
        yield "a client's test rows hold a row twice; give each once"
