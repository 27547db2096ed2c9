"""Shards: what one client holds in one round.

Made for one client after another, or for many at once under vmap: the same batches.
Letters: M clients, N rows, T local steps, B batch, R rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .abreast import abreast, deep
from .batches import Batch, Plan, draw
from .random import LazyKey, seed_of, tag
from .tree import unstack

GATHER = 2**25  # bytes of a plan's rows that are fetched in one go
PADDED = 2**17  # bytes of a client's rows that may be padded in one batch
EVERY_ROW = 10**9  # a batch size
NEIGHBOURS = "neighbours"  # the test rows whose nearest others are known
WHOLE = {
    name: Plan(1, EVERY_ROW, "keep", False, split)
    for name, split in (
        ("all", "train"),
        ("val", "val"),
        ("test", "test"),
        (NEIGHBOURS, NEIGHBOURS),
    )
}  # plans that every client has: all rows of a split in one batch


@dataclass(frozen=True, eq=False)
class Shard:
    """What ONE client holds in one round: iterating yields the batches of a plan.

    n [] training rows; cid [] client number, negative for a guest; key: the client's
    key of this round; t of R rounds. The plan is "train" unless `on` names another.
    """

    task: Any
    n: Tensor
    cid: Tensor
    key: LazyKey
    t: int
    R: int
    rows: Any  # RowsOfOne, RowsOfMany or Altered
    plan: str = "train"

    def on(self, plan):
        """The same shard along another plan."""
        return replace(self, plan=plan)

    def __iter__(self):
        return self.rows.batches(self.plan, self.key)

    def all(self, name="all"):
        """One batch with every row of a split: "all" (train), "val" or "test"."""
        return next(self.rows.batches(name, None))

    def over(self, f, w, name="all"):
        """f(w, batch) -> [] of one batch with every row of a split, as `all` has it.

        f: names no tensor of this client but w. Clients too unequal to be padded are
        looked at one after another.
        """
        return self.rows.over(f, w, name)

    @property
    def full(self):
        """No batch of this plan is padding only, for any client at hand."""
        return self.rows.full(self.plan)

    @property
    def known(self):
        """Are its rows known beforehand? Not where a method alters every batch."""
        return not isinstance(self.rows, Altered)

    def plans(self):
        """[(row numbers, lengths of batches)] along the plan: of this client, or under
        vmap of all that are abreast."""
        return self.rows.drawn(self.plan)

    def altered(self, f):
        """The same shard with f(batches) in place of its batches, on every plan."""
        return replace(self, rows=Altered(self.rows, f))


@dataclass(frozen=True)
class Altered:
    """Rows of which a method changes, or leaves out, batches."""

    rows: Any
    f: Any

    def batches(self, name, key):
        return iter(self.f(self.rows.batches(name, key)))

    def full(self, name):
        return False

    def over(self, f, w, name):
        return f(w, next(self.batches(name, None)))


@dataclass(frozen=True)
class RowsOfOne:
    """The rows of client c, for execution one client after another.

    Plans are drawn when they are walked.
    """

    task: Any
    seed: int
    t: int
    c: int
    plans: dict

    def batches(self, name, key):
        """The batches of a plan, each with a key of its own."""
        if name in WHOLE:
            yield whole_split(self.task, self.c, name)
            return
        task, what, j = self.task, tag(name), 0
        size = nominal_size(task, self.plans, name)
        for r, lengths in self.pieces(name):
            x, y, row = (v.split(lengths) for v in (task.x[r], task.y[r], r))
            a = [None] * len(lengths) if task.a is None else task.a[r].split(lengths)
            for xj, yj, aj, rj in zip(x, y, a, row):
                k = None if key is None else LazyKey(key, what, j)
                yield Batch(xj, yj, aj, None, rj, k, size)
                j += 1

    def over(self, f, w, name):
        return f(w, whole_split(self.task, self.c, name))

    def drawn(self, name):
        """[(row numbers, lengths of batches)] of the client alone."""
        return [drawn(self.task, self.seed, self.t, self.c, name, self.plans)]

    def pieces(self, name):
        """Row numbers of many batches at a time, and the batches' lengths."""
        x, size = self.task.x, nominal_size(self.task, self.plans, name)
        ((rows, lengths),) = self.drawn(name)
        many = max(1, GATHER // max(1, x[0].numel() * x.element_size() * size))
        cuts = [lengths[i : i + many] for i in range(0, len(lengths), many)]
        for r, cut in zip(rows.split([sum(g) for g in cuts]), cuts):
            yield r.to(x.device), cut

    def full(self, name):
        return True


@dataclass(frozen=True, eq=False)
class Draws:
    """What the clients `who` draw in a round; a plan is drawn, and padded, when it is
    first walked."""

    task: Any
    seed: int
    t: int
    who: tuple
    plans: dict
    anyhow: bool  # pad however unequal the clients are
    kept: dict = field(default_factory=dict)

    def drawn(self, name):
        """[(row numbers, lengths of batches)] of the clients."""
        if name not in self.kept:
            one = lambda c: drawn(self.task, self.seed, self.t, c, name, self.plans)
            self.kept[name] = [one(c) for c in self.who]
        return self.kept[name]

    def padded(self, name):
        """The same as one tensor, see `pad`."""
        kept, key = self.kept, ("padded", name)
        if name in WHOLE and len(self.who) == self.task.C:
            # all rows of a split, at all clients: the same in every round
            kept, key = self.task.kept, (self.who, name)
        if not self.anyhow and unequal(self.task, name):
            raise Unequal(f"{self.task.name}: most of {name!r} would be padding")
        if key not in kept:
            kept[key] = pad(self.task, self.drawn(name), self.who)
        return kept[key]


@dataclass(frozen=True)
class RowsOfMany:
    """The rows of the client at place `at` [] of many, for execution under vmap."""

    draws: Draws
    at: Tensor

    def drawn(self, name):
        return self.draws.drawn(name)

    def padded(self, name):
        """All clients' batches, and whether none is empty; drawn outside the vmap,
        inside which nothing random is allowed."""
        if name not in self.draws.kept:
            abreast(lambda tree: self.draws.padded(name) and tree, {"at": self.at})
        return self.draws.padded(name)

    def batches(self, name, key):
        task, padded = self.draws.task, self.padded(name)[0]
        i, m = padded["i"][self.at], padded["m"][self.at]  # [T, B]
        size = nominal_size(task, self.draws.plans, name)
        for j in range(len(i)):
            r = i[j]
            a = None if task.a is None else task.a[r]
            k = None if key is None else LazyKey(key, tag(name), j)
            yield Batch(task.x[r], task.y[r], a, m[j], r, k, size)

    def over(self, f, w, name):
        task, who = self.draws.task, self.draws.who
        if self.draws.anyhow or deep() or not unequal(task, name):
            return f(w, next(self.batches(name, None)))

        def one_by_one(tree):
            clients = zip(who, unstack(tree["w"], len(who)))
            each = [f(w, whole_split(task, c, name)) for c, w in clients]
            return {"out": torch.stack(each)}

        return abreast(one_by_one, {"w": w, "at": self.at})["out"]

    def full(self, name):
        return self.padded(name)[1]


# ---------------------------------------------------------------- making them
def shards(task, seed, t, R, ids, plans):
    """The shards of the clients ids [M], one after another."""
    n, device = sizes(task, ids), task.x.device
    seed_, clients = torch.tensor(seed, device=device), ids.tolist()
    for n_c, cid, c in zip(n.unbind(), ids.to(device).unbind(), clients):
        key, rows = LazyKey(seed_, t, cid), RowsOfOne(task, seed, t, c, plans)
        yield Shard(task, n_c, cid, key, t, R, rows)


def stacked(task, seed, t, R, ids, plans, anyhow=True):
    """The same shards for vmap: (a tree [M, ...], its row -> shard).

    anyhow: where False, `Unequal` is raised if batches are asked for that are mostly
    padding.
    """
    device, who = task.x.device, tuple(ids.tolist())
    draws = Draws(task, seed, t, who, plans, anyhow)
    at = torch.arange(len(who), device=device)
    data = {"at": at, "n": sizes(task, ids), "cid": ids.to(device)}
    seed_ = torch.tensor(seed, device=device)

    def shard_of(d):
        rows, key = RowsOfMany(draws, d["at"]), LazyKey(seed_, t, d["cid"])
        return Shard(task, d["n"], d["cid"], key, t, R, rows)

    return data, shard_of


def sizes(task, ids):
    """Training rows of the clients [M], in the type of x."""
    if "sizes" not in task.kept:
        known = [*task.train, *(guest[0] for guest in reversed(task.guests))]
        n = [len(rows) for rows in known]  # a guest's number counts from the end
        task.kept["sizes"] = torch.tensor(n, dtype=task.x.dtype, device=task.x.device)
    return task.kept["sizes"][ids.to(task.x.device)]


def drawn(task, seed, t, c, name, plans):
    """Rows of client c's batches in round t, and the batches' lengths."""
    plan = WHOLE.get(name) or plans[name]
    rows = task.rows_of(c, plan.split)
    if name in WHOLE:
        return rows, [len(rows)]
    return draw(rows, plan, seed_of(seed, t, c, tag(name)), task.batch)


class Unequal(Exception):
    """Clients differ so much in size that padded batches would be mostly padding."""


def unequal(task, name):
    """Would most of plan `name`, padded to the largest client, be padding?

    So where it has more than twice the mean number of rows. A split in one batch may be
    padded anyhow while the largest has at most PADDED bytes of it.
    """
    if ("unequal", name) not in task.kept:
        split = WHOLE[name].split if name in WHOLE else "train"
        n = torch.tensor([float(len(task.rows_of(c, split))) for c in range(task.C)])
        row = task.x[0].numel() * task.x.element_size()
        dear = name not in WHOLE or n.max() * row > PADDED
        task.kept["unequal", name] = bool(dear and n.max() > 2 * n.mean())
    return task.kept["unequal", name]


def nominal_size(task, plans, name):
    """The batch size that a plan asks for."""
    return (plans[name].batch if name in plans else None) or task.batch


def whole_split(task, c, name):
    """Every row of a client's split in one batch.

    Where the rows follow one another the batch is a view of the data, and kept.
    """
    if (c, name) in task.kept:
        return task.kept[c, name]
    rows, device = task.rows_of(c, WHOLE[name].split), task.x.device
    at = as_slice(rows)
    i = rows.to(device) if at is None else at
    a = None if task.a is None else task.a[i]
    b = Batch(task.x[i], task.y[i], a, None, rows.to(device), None, EVERY_ROW)
    if at is not None:
        task.kept[c, name] = b
    return b


def as_slice(rows):
    """Row numbers [n] that follow one another as a slice, else None."""
    if not len(rows):
        return None
    first, last = int(rows[0]), int(rows[-1])
    if last - first != len(rows) - 1:
        return None
    follow = torch.equal(rows, torch.arange(first, last + 1))
    return slice(first, last + 1) if follow else None


def pad(task, each, who):
    """Plans [(rows, lengths)] of the clients `who` as one: {"i": rows [M, T, B], "m":
    mask}, and whether no batch is empty.

    Padding repeats a row of the client's own.
    """
    T = max((len(lengths) for _, lengths in each), default=0)
    B = max((n for _, lengths in each for n in lengths), default=0)
    i = torch.zeros(len(each), T, B, dtype=torch.long)
    m = torch.zeros(i.shape, dtype=task.x.dtype)
    for k, (rows, lengths) in enumerate(each):
        if len(lengths) == T and set(lengths) == {B}:
            i[k], m[k] = rows.view(T, B), 1
            continue
        own = task.rows_of(who[k], "train")
        i[k] = own[0] if len(own) else 0
        for j, r in enumerate(rows.split(lengths) if lengths else ()):
            i[k, j, : len(r)], m[k, j, : len(r)] = r, 1
    no_empty_batch = bool((m.sum(2) > 0).all())
    return {"i": i.to(task.x.device), "m": m.to(task.x.device)}, no_empty_batch
