"""Scoring: what a model gets right at every client, group by group, and next door.

A model that all clients have runs once over the rows of them all; models of linear
layers run side by side; whatever else runs at its client. What they say of a row is
added up alike.
Letters: M clients, S splits, G segments of a client's rows (its splits; with groups
also its test rows that have neighbours, and these), N rows of all clients, b clients of
a block with at most L rows, A groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .shards import NEIGHBOURS, SPLIT_OF, as_slice
from .task import Fitted, Model
from .tree import leaves, subset, unstack, where

BLOCK = {"cpu": 2**20, "cuda": 2**26}  # bytes that one block may hold
FEW = 64  # rows: clients that differ by so many are of like size


def score(method, down, clients, run, shards, splits, views=None, receives=None):
    """{"acc": {view: {split: [M]}}}: each client's accuracy on its own rows.

    down, clients: stacks [M, ...], what the clients were sent and what they keep.
    views: names of those to score, None for all. receives [M]: who receives before it
    is scored; what it then keeps is dropped. A task with groups also gives "cells"
    {view: {split: [M, A, 2, 2]}}, counts of group, outcome and prediction, and
    "consistency" {view: [M, 2]}: sum of |yhat - mean of the neighbours' yhat|, and rows
    (Zemel et al., ICML 2013).
    """
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
    groups = method.task.groups
    right = method.hits(logits, y)
    return (right, groups.outcome(logits.argmax(-1))) if groups else (right,)


# ---------------------------------------------------------------- many clients at once
def together(method, stacks, run, shards, rows, names):
    """{view: marks of all rows [N], or None where every client has to run its own}."""
    task, (ids, S), out = method.task, shards, {}
    dense = getattr(task.network, "dense", None)
    views_at = lambda *args: subset(method.views(*args), names)  # nothing runs yet
    calls = zip(ids.tolist(), zip(*(unstack(t, len(ids)) for t in stacks), S))
    found = [run.call(views_at, args, c, "views") for c, args in calls]
    for k in found[0]:
        models, out[k] = [views[k] for views in found], None
        if isinstance(models[0], Fitted) and dense:  # fitted together
            fit = lambda d, mine, s, k=k: method.views(d, mine, s)[k].w
            ws = run.each(fit, stacks, shards, f"view {k}")
            models = [Model(task, w) for w in unstack(ws, len(ids))]
        if not all(type(m) is Model for m in models):
            continue
        first = leaves(models[0].w)
        if all(a is b for m in models for a, b in zip(first, leaves(m.w))):
            blocks, at = rows.once
            forward = lambda who, x, w=models[0]: w(x)
        elif dense:
            blocks, at = rows.apart
            ws = [m.w for m in models]
            forward = lambda who, x, ws=ws: side_by_side(dense, [ws[i] for i in who], x)
        else:
            continue

        def block(who, r, forward=forward):
            logits = forward(who, task.x[r]).flatten(0, -2)
            return marks(method, logits, task.y[r].flatten())

        named = lambda *b, f=block: run.call(f, b, "(many at once)", "views")
        out[k] = [torch.cat(v)[at] for v in zip(*(named(*b) for b in blocks))]
    return out


def side_by_side(dense, ws, x):
    """Logits [b, L, K] of b models ws, linear layers with relu between them, at x
    [b, L, ...]. A layer that is the same in all of them is not copied."""
    z = x.flatten(2)
    for name in dense:
        z = z if name == dense[0] else z.relu_()
        W, c = ([w[f"{name}.{leaf}"] for w in ws] for leaf in ("weight", "bias"))
        if all(a is W[0] for a in W) and all(a is c[0] for a in c):
            z = F.linear(z, W[0], c[0])
        else:
            z = torch.baddbmm(torch.stack(c)[:, None], z, torch.stack(W).mT)
    return z


# ---------------------------------------------------------------- one client at a time
def at_each(method, stacks, run, shards, rows, names):
    """{view: marks of all rows [N]} of every client's own run."""
    task, L = method.task, int(rows.n.sum(1).max())

    def at_client(down, mine, *rest):
        *received, shard = rest
        if received:
            new = method.receive(down, mine, shard)
            mine = where(received[0]["receives"], new, mine)
        at, mask = zip(*segments(task, shard, rows.splits))
        at, mask = torch.cat(at), torch.cat(mask)
        fill = lambda v: F.pad(v, (0, max(0, L - len(v))))  # in the loop, to stack them
        found = {"": fill(mask)}
        for k, view in subset(method.views(down, mine, shard), names).items():
            of_rows = marks(method, view(task.x[at]), task.y[at])
            found[k] = dict(enumerate(map(fill, of_rows)))
        return found

    found = run.each(at_client, stacks, shards, "views")
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


# ---------------------------------------------------------------- what rows add up to
@dataclass(frozen=True, eq=False)
class Rows:
    """The rows [N] on which M clients are scored, client by client, in segments of
    n [M, G] rows."""

    task: Any
    splits: tuple
    rows: Tensor
    n: Tensor

    def on_device(self, v):
        return v.to(self.task.x.device)

    @property
    def memory(self):
        return BLOCK["cpu" if self.task.x.device.type == "cpu" else "cuda"]

    @cached_property
    def once(self):
        """(blocks, at): every row once, however many clients have it. A block is (None,
        rows); at [N]: where each row is found in what the blocks give."""
        rows, at = self.rows.unique(return_inverse=True)
        cut = rows.split(max(1, self.memory // max(1, self.task.x[0].nbytes)))
        index = lambda r: self.on_device(r) if as_slice(r) is None else as_slice(r)
        return [(None, index(r)) for r in cut], self.on_device(at)

    @cached_property
    def apart(self):
        """(blocks, at): each client's own rows, b clients of like size side by side:
        (their places, rows [b, L])."""
        n = self.n.sum(1)
        first, at, blocks, seen = n.cumsum(0) - n, torch.empty_like(self.rows), [], 0
        for who in self.like_size(n):
            j = torch.arange(int(n[who].max()))
            place, real = first[who, None] + j, j < n[who, None]  # [b, L]
            at[place[real]] = seen + real.flatten().nonzero()[:, 0]
            rows = self.rows[place.clamp(max=len(self.rows) - 1)]
            blocks.append((who.tolist(), self.on_device(rows)))
            seen += real.numel()
        return blocks, self.on_device(at)

    def like_size(self, n):
        """Clients in order of their numbers of rows n [M], divided into blocks."""
        shapes, x = self.task.shapes.values(), self.task.x
        row = x[0].nbytes + x.element_size() * sum(s[0] for s in shapes)
        model, start = x.element_size() * sum(s.numel() for s in shapes), 0
        order = n.argsort(stable=True)
        sizes = n[order].tolist()
        for i, L in enumerate(sizes):
            full = (i + 1 - start) * (L * row + model) > self.memory
            if i > start and (full or L > 2 * sizes[start] + FEW):
                yield order[start:i]
                start = i
        yield order[start:]

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
