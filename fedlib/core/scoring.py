"""Scoring: what a model gets right at every client, group by group, and next door.

A model that all clients have runs once over the rows of them all; whatever else runs at
its client. What they say of a row is added up alike.
Letters: M clients, S splits, G segments of a client's rows (its splits; with groups
also its test rows that have neighbours, and these), N rows of all clients, A groups.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from operator import is_
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .shards import NEIGHBOURS, SPLIT_OF, as_slice
from .task import Model
from .tree import leaves, subset, unstack, where

BLOCK = {"cpu": 2**20, "cuda": 2**26}  # bytes that one block of rows may hold


def score(method, down, clients, run, shards, splits, views=None, receives=None):
    """{"acc": {view: {split: [M]}}}: each client's accuracy on its own rows.

    down, clients: stacks [M, ...], what the clients were sent and what they keep.
    views: names of those to score, None for all. receives [M]: who receives before it
    is scored; what it then keeps is dropped. A task with groups also gives "cells"
    {view: {split: [M, A, 2, 2]}}, counts of group, outcome and prediction, and
    "consistency" {view: [M, 2]}: sum of |yhat - mean of the neighbours' yhat|, and rows
    (Zemel et al., ICML 2013)."""
    rows, stacks = rows_of(method.task, shards[0], tuple(splits)), (down, clients)
    if receives is None:
        found = together(method, stacks, run, shards, rows, views)
        views = [k for k, v in found.items() if v is None]
    else:
        found, stacks = {}, (*stacks, {"receives": receives})
    if views or not found:
        found = found | at_each(method, stacks, run, shards, rows, views)
    got = {k: rows.scores(*marks) for k, marks in found.items()}
    return {kind: {k: got[k][kind] for k in got} for kind in next(iter(got.values()))}


def marks(method, logits, y):
    """(1 for a row that is right [n], with groups the predicted outcome [n])."""
    groups, right = method.task.groups, method.hits(logits, y)
    return (right, groups.outcome(logits.argmax(-1))) if groups else (right,)


def together(method, stacks, run, shards, rows, names):
    """{view: marks of all rows [N], or None where every client has to run its own}."""
    task, (ids, S), out = method.task, shards, {}
    views_at = lambda *args: subset(method.views(*args), names)  # nothing runs yet
    calls = zip(ids.tolist(), zip(*(unstack(t, len(ids)) for t in stacks), S))
    found = [run.call(views_at, args, c, "views") for c, args in calls]
    for k, model in found[0].items():
        out[k], shown = None, [views[k] for views in found]
        ws = [leaves(m.w) if type(m) is Model else [m] for m in shown]
        if type(model) is Model and all(all(map(is_, w, ws[0])) for w in ws):
            blocks, at = rows.once
            block = lambda r, f=model: marks(method, f(task.x[r]), task.y[r])
            named = [run.call(block, (r,), "(many at once)", "views") for r in blocks]
            out[k] = [torch.cat(v)[at] for v in zip(*named)]
    return out


def at_each(method, stacks, run, shards, rows, names):
    """{view: marks of all rows [N]} of every client's own run."""
    task, L = method.task, int(rows.n.sum(1).max())

    def at_client(down, mine, *rest):
        *received, shard = rest
        if received:
            new = method.receive(down, mine, shard)
            mine = where(received[0]["receives"], new, mine)
        at, mask = map(torch.cat, zip(*segments(task, shard, rows.splits)))
        fill = lambda v: F.pad(v, (0, max(0, L - len(v))))  # in the loop, to stack them
        found = {"": fill(mask)}
        for k, view in subset(method.views(down, mine, shard), names).items():
            of_rows = marks(method, view(task.x[at]), task.y[at])
            found[k] = dict(enumerate(map(fill, of_rows)))
        return found

    what = type(method), rows.splits, names and tuple(names), L, len(stacks)
    found = run.each(at_client, stacks, shards, "views", what)
    real = found.pop("").bool()
    return {k: [v[real] for v in of.values()] for k, of in found.items()}


def segments(task, shard, splits):
    """(rows, which of them count) of each segment of a client."""
    near = (NEIGHBOURS,) if task.groups else ()
    for name in (*splits, *near):
        b = shard.all(name)
        m = torch.ones_like(b.row, dtype=task.x.dtype) if b.m is None else b.m
        yield b.row, m
    if near:
        theirs = task.neighbours["near"][b.row]
        yield theirs.flatten(), m[:, None].expand(theirs.shape).flatten()


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows [N] to score, client by client, in segments of n [M, G] rows."""

    task: Any
    splits: tuple
    rows: Tensor
    n: Tensor

    def on_device(self, v):
        return v.to(self.task.x.device)

    @cached_property
    def once(self):
        """(blocks of rows, each row once however many clients have it; at [N]: where
        each row is found in what the blocks give)."""
        rows, at = self.rows.unique(return_inverse=True)
        memory = BLOCK["cpu" if self.task.x.device.type == "cpu" else "cuda"]
        cut = rows.split(max(1, memory // max(1, self.task.x[0].nbytes)))
        index = lambda r: self.on_device(r) if as_slice(r) is None else as_slice(r)
        return [*map(index, cut)], self.on_device(at)

    @cached_property
    def known(self):
        """(n on the device, per row: segment, group and outcome as one number, where
        the rows with neighbours are, and these neighbours)."""
        n, groups, G = self.on_device(self.n), self.task.groups, self.n.shape[1]
        if not groups:
            return n, None, None, None
        i = self.on_device(self.rows)
        segment = torch.arange(n.numel()).repeat_interleave(self.n.flatten())
        cell = self.on_device(segment) * groups.A + self.task.a[i]
        of_segment = lambda k: self.on_device((segment % G == k).nonzero()[:, 0])
        own, near = of_segment(G - 2), of_segment(G - 1)
        near = near.view(len(own), self.task.neighbours["near"].shape[1])
        return n, (cell * 2 + groups.outcome(self.task.y[i])) * 2, own, near

    def scores(self, right, yhat=None):
        """One view's scores, see `score`; right [N], yhat [N] the predicted outcome."""
        (n, cell, own, near), S = self.known, len(self.splits)
        by_split = lambda v: dict(zip(self.splits, v[:, :S].unbind(1)))
        hits = torch.segment_reduce(right, "sum", lengths=n.flatten(), unsafe=True)
        out = {"acc": by_split(hits.view_as(n) / n.clamp(min=1))}
        if yhat is not None:
            shape = (*n.shape, self.task.groups.A, 2, 2)
            cells = torch.bincount(cell + yhat, minlength=math.prod(shape))
            out["cells"] = by_split(cells.view(shape).to(right.dtype))
            yhat = yhat.to(right.dtype)
            apart = (yhat[own] - yhat[near].mean(1)).abs().split(self.n[:, S].tolist())
            sums = torch.stack([v.sum() for v in apart])  # as for one client alone
            out["consistency"] = torch.stack((sums, n[:, S].to(right.dtype)), 1)
        return out


def rows_of(task, ids, splits):
    """The Rows of clients ids [M]; kept for all clients and for guests."""
    who = tuple(ids.tolist())
    if (key := ("scored", who, splits)) in task.cache:
        return task.cache[key]
    near, lists = task.neighbours["near"].cpu() if task.groups else None, []
    for c in who:
        lists += [task.rows_of(c, SPLIT_OF[s]) for s in splits]
        if task.groups:
            own = task.rows_of(c, NEIGHBOURS)
            lists += [own, near[own].flatten()]
    n = torch.tensor([len(r) for r in lists]).view(len(who), -1)
    rows = Rows(task, splits, torch.cat(lists), n)
    if len(who) == task.C or who[0] < 0:
        task.cache[key] = rows
    return rows
