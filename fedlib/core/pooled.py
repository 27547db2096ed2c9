"""The rows of many clients, scored together: which, in what order, and their sums.

Letters: M clients, S splits, G segments of a client, N rows of all clients, b clients
of a block, L rows of the longest of them, A groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .shards import NEIGHBOURS, WHOLE, as_slice

BLOCK = {"cpu": 2**20, "cuda": 2**26}  # bytes that one block may hold
FEW = 64  # rows: clients that differ by so many are of like size


class Walk(NamedTuple):
    """Rows in blocks of bounded memory.

    A block is (clients, rows): None and rows [n] that one model sees, or a list of b
    clients and rows [b, L], padded. at [N]: where each row is found in what the blocks
    give one after another, so padding is never found.
    """

    blocks: list
    at: Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows on which M clients are scored, client by client, in segments.

    The segments of a client are its splits; with groups also its test rows that have
    neighbours, and these neighbours. rows [N]; n [M, G] rows per segment, on the CPU.
    """

    task: Any
    splits: tuple
    rows: Tensor = field(repr=False)
    n: Tensor = field(repr=False)

    # ------------------------------------------------------------ in which order
    @cached_property
    def once(self):
        """A walk over every row once, however many clients have it."""
        rows, at = self.rows.unique(return_inverse=True)
        many = max(1, self.memory // bytes_of(self.task.x[0]))
        blocks = [(None, self.index(r)) for r in rows.split(many)]
        return Walk(blocks, self.on_device(at))

    @cached_property
    def apart(self):
        """A walk over each client's own rows, clients of like size side by side."""
        n = self.n.sum(1)
        first = n.cumsum(0) - n
        at, blocks, seen = torch.empty_like(self.rows), [], 0
        for who in self.like_size(n):
            j = torch.arange(int(n[who].max()))
            place, real = first[who, None] + j, j < n[who, None]  # [b, L]
            at[place[real]] = seen + real.flatten().nonzero()[:, 0]
            rows = self.rows[place.clamp(max=len(self.rows) - 1)]
            blocks.append((who.tolist(), self.on_device(rows)))
            seen += real.numel()
        return Walk(blocks, self.on_device(at))

    def like_size(self, n):
        """Clients in order of their numbers of rows n [M], divided into blocks."""
        shapes, x = self.task.shapes.values(), self.task.x
        row = bytes_of(x[0]) + x.element_size() * sum(s[0] for s in shapes)
        model = x.element_size() * sum(s.numel() for s in shapes)
        order, start = n.argsort(stable=True), 0
        sizes = n[order].tolist()
        for i, L in enumerate(sizes):
            full = (i + 1 - start) * (L * row + model) > self.memory
            if i > start and (full or L > 2 * sizes[start] + FEW):
                yield order[start:i]
                start = i
        yield order[start:]

    @property
    def memory(self):
        return BLOCK["cpu" if self.task.x.device.type == "cpu" else "cuda"]

    def index(self, rows):
        """Row numbers [n] on the device, a slice where they follow one another."""
        at = as_slice(rows)
        return self.on_device(rows) if at is None else at

    def on_device(self, v):
        return v.to(self.task.x.device)

    # ------------------------------------------------------------ what they add up to
    def scores(self, right, yhat=None):
        """One view's scores, see `scoring.score`; right [N] 1 or 0, yhat [N] the
        outcome that is predicted, with groups."""
        n, S = self.lengths, len(self.splits)
        hits = torch.segment_reduce(right, "sum", lengths=n.flatten(), unsafe=True)
        acc = hits.view_as(n)[:, :S] / n[:, :S].clamp(min=1)
        out = {"acc": dict(zip(self.splits, acc.unbind(1)))}
        if yhat is None:
            return out
        shape = (*n.shape, self.task.groups.A, 2, 2)
        cells = torch.bincount(self.cell + yhat, minlength=math.prod(shape))
        cells = cells.view(shape)[:, :S].to(right.dtype)
        out["cells"] = dict(zip(self.splits, cells.unbind(1)))
        (own, near), yhat = self.next_door, yhat.to(right.dtype)
        apart = (yhat[own] - yhat[near].mean(1)).abs().split(self.n[:, S].tolist())
        # fractions: summed as for one client, so that they round alike
        both = torch.stack([v.sum() for v in apart]), n[:, S].to(right.dtype)
        return out | {"consistency": torch.stack(both, 1)}

    @cached_property
    def lengths(self):
        return self.on_device(self.n)

    @cached_property
    def segment(self):
        """Which of all M G segments a row is in [N], on the CPU."""
        return torch.arange(self.n.numel()).repeat_interleave(self.n.flatten())

    @cached_property
    def cell(self):
        """Segment, group and outcome of a row as one number [N], which leaves room for
        the outcome that is predicted."""
        groups, i = self.task.groups, self.on_device(self.rows)
        y, segment = groups.outcome(self.task.y[i]), self.on_device(self.segment)
        return ((segment * groups.A + self.task.a[i]) * 2 + y) * 2

    @cached_property
    def next_door(self):
        """Where the rows with neighbours are [n], and these neighbours [n, NEAR]."""
        kind, S = self.segment % self.n.shape[1], len(self.splits)
        own, near = ((kind == k).nonzero()[:, 0] for k in (S, S + 1))
        near = near.view(len(own), self.task.neighbours["near"].shape[1])
        return self.on_device(own), self.on_device(near)


def rows_of(task, ids, splits):
    """The Rows of clients ids [M]; kept for all clients and for guests."""
    who = tuple(ids.tolist())
    if ("scored", who, splits) in task.kept:
        return task.kept["scored", who, splits]
    lists = [[task.rows_of(c, WHOLE[s].split) for s in splits] for c in who]
    if task.groups:
        near = task.neighbours["near"].cpu()
        for c, segments in zip(who, lists):
            own = task.rows_of(c, NEIGHBOURS)
            segments += [own, near[own].flatten()]
    n = torch.tensor([[len(r) for r in segments] for segments in lists])
    rows = torch.cat([r for segments in lists for r in segments])
    rows = Rows(task, splits, rows, n)
    if len(who) == task.C or who[0] < 0:
        task.kept["scored", who, splits] = rows
    return rows


def bytes_of(x):
    return max(1, x.numel() * x.element_size())
