"""Samples before they are dealt to clients, how each client's rows are cut, and what
cannot be trained on."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import check_whole, is_number, is_whole, listed, nearest
from .groups import Groups
from .random import seed_of, tag

KINDS = ("own", "real", "synthetic", "stand-in")


class Pool(NamedTuple):
    """name    what the samples are called in figures and tables
    x       [N, ...] float32; images are [N, channels, height, width] in [0, 1] unless a
            loader says otherwise
    y       [N] int64 class of each sample, 0 .. K-1
    K       number of classes
    kind    "real" (a published data set), "synthetic" (the papers' own generator),
            "stand-in" (where a paper's data need a download) or "own" (a user's);
            shown wherever a number made from it is shown
    owner   [N] int64, the natural client or domain of each sample, or None
    owners  names of the owners; () when owner is None
    test    rows of the official test list, ascending by owner, or None where the
            source has none
    a       [N] int64, the group of each sample by a sensitive attribute, or None
    groups  what these groups are, or None
    classes names of the classes, for models that read them; () where they have none
    """

    name: str
    x: Tensor
    y: Tensor
    K: int
    kind: str
    owner: Tensor | None = None
    owners: tuple[str, ...] = ()
    test: Tensor | None = None
    a: Tensor | None = None
    groups: Groups | None = None
    classes: tuple[str, ...] = ()


def named(pool):
    """The pool, with a hash of its content at the end of its name."""
    arrays = [pool.x, pool.y, pool.owner, *([] if pool.a is None else [pool.a])]
    content = b"".join(v.numpy().tobytes() for v in arrays)
    content += repr((pool.K, pool.groups)).encode()
    return pool._replace(name=f"{pool.name}-{hashlib.sha256(content).hexdigest()[:8]}")


def owned(pool):
    """The rows of every owner of a pool, a list of tensors."""
    return [(pool.owner == c).nonzero()[:, 0] for c in range(len(pool.owners))]


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


def cut_rows(rows, c, split, parts, official=None):
    """(train, val, test) of client c's rows, in shares `parts`.

    official: the pool's own list of test rows, or None.
    """
    train, val, held_out = parts
    g = torch.Generator().manual_seed(seed_of(split, c, tag("split")))
    if official is not None:
        held = torch.isin(rows, official)
        test, rows = rows[held], rows[~held]
        rows = rows[torch.randperm(len(rows), generator=g)]
        i = int(train / (train + val) * len(rows) + 1e-9)
        return rows[:i], rows[i:], test
    n, rows = len(rows), rows[torch.randperm(len(rows), generator=g)]
    i, j = int(train * n + 1e-9), int((train + held_out) * n + 1e-9)
    return rows[:i], rows[j:], rows[i:j]


def laid_out(lists, name):
    """Lists of rows one after another: (all rows [N], where each list lies now)."""
    order = torch.cat(lists) if lists else torch.zeros(0, dtype=torch.long)
    if len(order) != len(order.unique()):
        raise ValueError(
            f"task {name!r}: a row is given to two clients, or twice to one; each "
            "row belongs to one client"
        )
    return order, torch.arange(len(order)).split([len(r) for r in lists])


# ---------------------------------------------------------------- what is refused
NOT_FINITE = (
    "{} rows of x hold NaN or infinity, the first is row {} in column {} ({}); "
)
NOT_FINITE += "drop or impute them first"


def check_task(task):
    """ValueError for a task that cannot be trained on."""
    for k in ("batch", "K"):
        check_whole(k, getattr(task, k), 1)
    for faults in (of_fields, of_groups, of_clients):
        for wrong, words in faults(task):
            if wrong:
                raise ValueError(f"task {task.name!r:.60}: {words}")


# Each of these yields (is it wrong, the value and the remedy); a later check may rely
# on the earlier ones.
def of_fields(task):
    """x with rows, all of them finite, classes y of 0 .. K - 1, names and kind."""
    x, y, K, named = task.x, task.y, task.K, len(task.classes)
    yield len(x) != len(y), f"x has {len(x)} rows, y {len(y)}: give one y each"
    kinds = x.is_floating_point(), y.dtype, y.dim(), x.dim() > 1 and x.numel() > 0
    yield (
        kinds != (True, torch.int64, 1, True),
        f"x is {x.dtype} {list(x.shape)} and y {y.dtype} {list(y.shape)}; give floating"
        " point x [N, ...], with rows, and int64 y [N]",
    )
    found = not_finite(x)
    yield found, found and NOT_FINITE.format(*found)
    text = isinstance(task.name, str) and task.name.strip()
    yield (
        not text or task.kind not in KINDS,
        f"name = {task.name!r:.60}, kind = {task.kind!r:.60}"
        f"{nearest(task.kind, KINDS)}; give texts, kind one of {', '.join(KINDS)}",
    )
    lo, hi, n = int(y.min()), int(y.max()), len(task.owners)
    yield not 0 <= lo <= hi < K, f"labels from {lo} to {hi}, K = {K}: give 0 to {K - 1}"
    wrong = task.classes and not hi < named <= K  # a network may know more classes
    yield wrong, f"classes has {named} names; give one for each of {K} classes, or ()"
    wrong = n and n != task.C
    yield wrong, f"owners has {n} names for {task.C} clients; give one each"


def of_groups(task):
    """Every row has a group, every group rows, and both outcomes occur."""
    a, y, groups = task.a, task.y, task.groups
    if groups is None:
        return
    n = None if a is None else len(a)
    yield n != len(y), f"a has {n} entries for {len(y)} rows; give the group of each"
    there = sorted(set(a.tolist()))
    yield (
        len(there) < 2 or there != list(range(groups.A)),
        f"the sensitive attribute {groups.name!r} has the groups {there}; give rows of "
        f"all that it names, numbered from 0 ({', '.join(groups.names)}), two or more",
    )
    good = int(groups.outcome(y).sum())
    yield (
        not 0 < good < len(y),
        f"{good} of {len(y)} rows have the positive outcome {groups.positive}; choose "
        "the positive classes so that some labels lie inside, some outside",
    )


def of_clients(task):
    """Each client has rows to train and to be tested on; a row belongs to one client
    and one split, and only test rows may be shared."""
    n = len(task.train), len(task.val), len(task.test)
    wrong = not task.C or len(set(n)) > 1
    yield wrong, f"{n} clients in train, val and test; give lists for one or more"
    for c, (train, test) in enumerate(zip(task.train, task.test)):
        yield (
            not len(train) or not len(test),
            f"client {c} ({task.owners[c] if task.owners else c!r}) has {len(train)} "
            f"training and {len(test)} test samples; leave it out, merge it with "
            "another, or raise the partition's minimum size",
        )
    rows, tests = torch.cat([*task.train, *task.val]), torch.cat(task.test)
    every, N = torch.cat([rows, tests]), len(task.x)
    lo, hi = int(every.min()), int(every.max())
    yield (
        not 0 <= lo <= hi < N,
        f"row numbers from {lo} to {hi}; give those of {N} rows",
    )
    both = torch.isin(rows, tests)
    yield (
        len(rows) != len(rows.unique()) or both.any(),
        f"a row is used twice ({rows[both][:1].tolist()} in training and testing); give"
        " it to one client and one split; only test rows may serve several",
    )
    who = torch.arange(task.C).repeat_interleave(
        torch.tensor(list(map(len, task.test)))
    )
    twice = len(torch.unique(who * N + tests)) < len(tests)
    yield twice, "a client's test rows hold a row twice; give each once"


def not_finite(x):
    """(rows, the first, the column, the value) of what is no number in x [N, ...]."""
    bad = (~x.flatten(1).isfinite()).nonzero()
    if len(bad):
        (i, j), rows = bad[0].tolist(), len(bad[:, 0].unique())
        return rows, i, j, x.flatten(1)[i, j].item()
