"""Batches and shards: what one client holds in one round, and how it walks through it.

A plan is a pure function of seed, round, client and name, drawn outside vmap.
Letters: M clients, N rows, T local steps, B batch, R rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from .random import LazyKey, seed_of, tag
from .tree import batched, deep, sent, tmap, unstack

GATHER = 2**25  # bytes of a plan's rows that are fetched in one go
PADDED = 2**17  # bytes of a client's rows that may be padded in one batch
EVERY_ROW = 10**9  # a batch size
NEIGHBOURS = "neighbours"  # the test rows whose nearest others are known


class Batch(NamedTuple):
    """Rows of one client: x [B, ...], y [B], a [B] a sensitive attribute or None."""

    x: Tensor
    y: Tensor
    a: Tensor | None
    m: Tensor | None  # [B], 0 marks padding; None: every row counts
    row: Tensor  # [B] row numbers, to look up what was kept per sample
    key: Any  # the batch's own key; None: no randomness (evaluation)
    size: int  # nominal batch size

    def avg(self, v):
        """Mean over the rows that count; v [B, ...]."""
        if self.m is None:
            return v.mean(0) if len(v) else v.sum(0)
        return torch.einsum("b,b...->...", self.m, v) / self.m.sum().clamp(min=1)

    def part(self, k, n):
        """The k-th of n interleaved parts (so that padding spreads evenly)."""
        return Batch(*[v[k::n] if isinstance(v, Tensor) else v for v in self])


class Plan(NamedTuple):
    """One way through a client's rows. A method names its plans."""

    epochs: int = 1
    batch: int | None = None  # None: the task's
    last: str = "keep"  # or "drop": no incomplete last batch, unless it is the only one
    shuffle: bool = True
    split: str = "train"
    block: float = 1.0  # a random contiguous share of the rows
    steps: int | None = None  # instead of epochs: so many batches
    poisson: bool = False  # each row joins a batch with probability batch / rows


# whole splits are plans, too, of one batch
SPLIT_OF = {"all": "train", "val": "val", "test": "test", NEIGHBOURS: NEIGHBOURS}


def cut(plan, N, batch):
    """Batches' lengths of N rows in one pass and in all; with `poisson` as expected."""
    B, n = min(plan.batch or batch, N), max(1, int(min(plan.block, 1) * N))
    full, rest = divmod(n, B) if N else (0, 0)
    one = [B] * full + [rest] * (rest > 0 and not (plan.last == "drop" and full))
    passes = -(-plan.steps // max(1, len(one))) if plan.steps else plan.epochs
    return one, (one * passes)[: plan.steps]


def draw(rows, plan, seed, batch):
    """A plan's batches of rows [N]: (row numbers in their order, batches' lengths)."""
    N, (one, lengths) = len(rows), cut(plan, len(rows), batch)
    if not lengths:
        return rows[:0], []
    g, order = torch.Generator().manual_seed(seed), []
    if plan.poisson:  # empty batches are left out
        B = one[0]
        steps = plan.steps or plan.epochs * -(-N // B)
        draws = (torch.rand(N, generator=g, dtype=torch.float32) for _ in range(steps))
        some = [rows[u < B / N] for u in draws]
        return torch.cat(some), [len(b) for b in some if len(b)]
    for _ in range(0, len(lengths), len(one)):
        r, first = rows[torch.randperm(N, generator=g)] if plan.shuffle else rows, 0
        if plan.block < 1:
            n = max(1, int(plan.block * N))
            first = int(torch.randint(N - n + 1, (1,), generator=g))
        order.append(r[first : first + sum(one)])
    order = torch.cat(order) if len(order) > 1 else order[0]
    return order[: sum(lengths)], lengths


# ---------------------------------------------------------------- what a client holds
@dataclass(frozen=True, eq=False)
class Shard:
    """What ONE client holds in round t of R: iterating yields the batches of a plan.
    n [] training rows; cid [] client number, negative for a guest; key: of this client
    and round. at: its place [] among those under vmap; None, alone."""

    draws: Draws
    n: Tensor
    cid: Tensor
    at: Tensor | None = None
    plan: str = "train"
    change: Callable | None = None  # batches -> batches

    task = property(lambda self: self.draws.task)
    t = property(lambda self: self.draws.t)
    R = property(lambda self: planned(self.draws.rounds))
    key = property(lambda self: LazyKey(self.draws.key, self.t, self.cid))
    known = property(lambda self: self.change is None)  # its rows, beforehand

    @property
    def held(self):
        """What it knows of its clients, as a tree."""
        return {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}

    def on(self, plan):
        """The same shard along another plan."""
        return replace(self, plan=plan)

    def altered(self, f):
        """The same shard with f(batches) in place of its batches, on every plan."""
        g = self.change
        return replace(self, change=f if g is None else lambda batches: f(g(batches)))

    def __iter__(self):
        return self.batches(self.plan, self.key)

    def all(self, name="all"):
        """One batch with every row of a split: "all" (train), "val" or "test"."""
        return next(self.batches(name))

    def over(self, f, w, name="all"):
        """f(w, batch) -> [] of every row of a split. f names no tensor of this client
        but w: clients too unequal to be padded are looked at one after another."""
        d = self.draws
        alike = d.anyhow or deep() or not unequal(d.task, name)
        if self.at is None or self.change or alike:
            return f(w, self.all(name))

        def one_by_one(tree):
            ws = zip(d.who, unstack(tree["w"], len(d.who)))
            out = [f(w, whole_split(d.task, c, name)) for c, w in ws]
            return {"out": torch.stack(out)}

        return batched(one_by_one, {"w": w, "at": self.at})["out"]

    @property
    def full(self):
        """No batch of this plan is padding only, for any client at hand."""
        return not self.change and (self.at is None or self.padded(self.plan)[1])

    def ready(self, make, *args):
        """`Draws.ready` along the plan, of all clients at hand."""
        return self.draws.ready(make, self.plan, *args)

    def batches(self, name, key=None):
        found = (self.alone if self.at is None else self.among)(name, key)
        return iter(self.change(found)) if self.change else found

    def alone(self, name, key):
        task, d = self.task, self.draws
        if name in SPLIT_OF:
            yield whole_split(task, d.who[0], name)
            return
        (own, lengths), size = d.ready(in_order, name), d.size(name)
        rows, many = own["rows"], max(1, GATHER // max(1, task.x[0].nbytes * size))
        for i in range(0, len(lengths), many):
            some = lengths[i : i + many]
            r, rows = rows[: sum(some)], rows[sum(some) :]
            yield from made(task, r, some, key, name, size, i)

    def padded(self, name):
        """All clients' batches, drawn outside vmap: inside, nothing is random."""
        if (padded, name) not in self.draws.cache:
            batched(lambda t: self.draws.ready(padded, name) and t, {"at": self.at})
        return self.draws.ready(padded, name)

    def among(self, name, key):
        found, size = self.padded(name)[0], self.draws.size(name)
        mine = (v[self.at] for v in found.values())  # [T, B]
        for j, (r, m) in enumerate(zip(*mine)):
            yield next(made(self.task, r, [len(r)], key, name, size, j))._replace(m=m)


def planned(rounds):
    """The number of rounds, where a method declares that it looks at it."""
    if rounds is None:
        raise ValueError(
            "R, the number of rounds, is for methods that say plans_ahead = True in "
            "their class: their first rounds are not those of a longer run"
        )
    return rounds


def made(task, rows, lengths, key, name, size, first):
    """The batches of these lengths, the first of them the plan's first-th."""
    x, y, r = (v.split(lengths) for v in (task.x[rows], task.y[rows], rows))
    a = [None] * len(lengths) if task.a is None else task.a[rows].split(lengths)
    for j, (xj, yj, aj, rj) in enumerate(zip(x, y, a, r), first):
        k = None if key is None else LazyKey(key, tag(name), j)
        yield Batch(xj, yj, aj, None, rj, k, size)


def whole_split(task, c, name):
    """Every row of a client's split in one batch, as a view where they are a slice."""
    if (c, name) not in task.cache:
        rows = task.rows_of(c, SPLIT_OF[name])
        task.cache[c, name] = rows.to(task.x.device), as_slice(rows)
    r, at = task.cache[c, name]
    i = r if at is None else at
    a = None if task.a is None else task.a[i]
    return Batch(task.x[i], task.y[i], a, None, r, None, EVERY_ROW)


def as_slice(rows):
    """Row numbers [n] that follow one another as a slice, else None."""
    if not len(rows) or int(rows[-1] - rows[0]) != len(rows) - 1:
        return None
    first, end = int(rows[0]), int(rows[-1]) + 1
    return slice(first, end) if torch.equal(rows, torch.arange(first, end)) else None


# ---------------------------------------------------------------- what clients draw
@dataclass(frozen=True, eq=False)
class Draws:
    """What the clients `who` draw in a round; a plan, when it is first walked."""

    task: Any
    seed: int
    t: int
    rounds: int | None  # None: the method does not plan ahead
    who: tuple
    plans: dict
    anyhow: bool = True  # pad however unequal the clients are
    # of some plans: steps of the clients, most first, and rows in a batch, to pad to
    bounds: dict = field(default_factory=dict)
    cache: dict = field(default_factory=dict)

    @cached_property
    def key(self):
        return torch.tensor(self.seed, device=self.task.x.device)

    def size(self, name):
        whole = name in SPLIT_OF
        return EVERY_ROW if whole else self.plans[name].batch or self.task.batch

    def drawn(self, name):
        """[(row numbers, lengths of batches)] of the clients."""
        if name not in self.cache:
            self.cache[name] = [self.of(c, name) for c in self.who]
        return self.cache[name]

    def of(self, c, name):
        """The same of client c."""
        if name in SPLIT_OF:
            rows = self.task.rows_of(c, SPLIT_OF[name])
            return rows, [len(rows)]
        plan, seed = self.plans[name], seed_of(self.seed, self.t, c, tag(name))
        return draw(self.task.rows_of(c, plan.split), plan, seed, self.task.batch)

    def ready(self, make, name, *args):
        """make(draws, name, *args): (a tree of tensors, sent to the data, the rest)."""
        cache, key = self.cache, (make, name, *args)
        if name in SPLIT_OF and len(self.who) == self.task.C:  # in every round the same
            cache, key = self.task.cache, (self.who, *key)
        if key not in cache:
            tensors, more = make(self, name, *args)
            cache[key] = tmap(lambda x: sent(x, self.task.x.device), tensors), more
        return cache[key]


def in_order(draws, name):
    """({"rows": row numbers}, lengths of batches) of a client alone."""
    ((rows, lengths),) = draws.drawn(name)
    return {"rows": rows}, lengths


def padded(draws, name):
    """({"i": rows [M, T, B], "m": mask}, is no batch empty?); padded by own rows."""
    task, each, bound = draws.task, draws.drawn(name), draws.bounds.get(name)
    if not draws.anyhow and unequal(task, name):
        raise ValueError(f"{task.name}: most of {name!r} would be padding")
    T = max((len(lengths) for _, lengths in each), default=0)
    B = max((n for _, lengths in each for n in lengths), default=0)
    T, B = (bound[0][0], bound[1]) if bound else (T, B)
    i = torch.zeros(len(each), T, B, dtype=torch.long)
    m = torch.zeros(i.shape, dtype=task.x.dtype)
    for k, (rows, lengths) in enumerate(each):
        own = task.rows_of(draws.who[k], "train")
        i[k] = own[0] if len(own) else 0
        for j, r in enumerate(rows.split(lengths) if lengths else ()):
            i[k, j, : len(r)], m[k, j, : len(r)] = r, 1
    return {"i": i, "m": m}, not bound and bool((m.sum(2) > 0).all())


def unequal(task, name):
    """Would most of plan `name`, padded to the largest client, be padding? So where
    that has over twice the mean of rows, and over PADDED bytes of a whole split."""
    if ("unequal", name) not in task.cache:
        n = [len(task.rows_of(c, SPLIT_OF.get(name, "train"))) for c in range(task.C)]
        dear = name not in SPLIT_OF or max(n) * task.x[0].nbytes > PADDED
        task.cache["unequal", name] = dear and max(n) * len(n) > 2 * sum(n)
    return task.cache["unequal", name]


# ---------------------------------------------------------------- making them
def shards(task, seed, t, R, ids, plans):
    """The shards of the clients ids [M], one after another."""
    for n, cid, c in zip(sizes(task, ids), sent(ids, task.x.device), ids.tolist()):
        yield Shard(Draws(task, seed, t, R, (c,), plans), n, cid)


def stacked(task, seed, t, R, ids, plans, anyhow=True):
    """The same as one, of which each `held` is a stack [M]."""
    draws = Draws(task, seed, t, R, tuple(ids.tolist()), plans, anyhow)
    at = torch.arange(len(ids), device=task.x.device)
    return Shard(draws, sizes(task, ids), sent(ids, at.device), at)


def mapped(f, shard, trees):
    """f(*trees, shard), under vmap where the shard is of many clients."""
    if shard.at is None:
        return f(*trees, shard)
    one = lambda held, *trees: f(*trees, replace(shard, **held))
    return vmap(one)(shard.held, *trees)


def sizes(task, ids):
    """Training rows of the clients [M], in the type of x."""
    if "sizes" not in task.cache:
        guests = [g[0] for g in reversed(task.guests)]  # numbered from the end
        task.cache["sizes"] = task.x.new_tensor([*map(len, (*task.train, *guests))])
    return task.cache["sizes"][sent(ids, task.x.device)]
