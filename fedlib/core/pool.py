"""Samples before they are dealt to clients, and how each client's rows are cut."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import torch
from torch import Tensor

from .groups import Groups
from .random import seed_of, tag
from .ranges import is_number, is_whole, listed

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
