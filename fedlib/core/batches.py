"""Batches: the plans by which a client walks through its rows, drawn outside vmap.

A draw is a pure function of the plan, the seed and the client's rows.
Letters: N rows, B batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    """Rows of one client.

    x [B, ...], y [B]; a [B] a sensitive attribute or None.
    """

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
        """The k-th of n interleaved parts (interleaved, so that padding spreads
        evenly)."""
        rows = {"x": self.x, "y": self.y, "a": self.a, "m": self.m, "row": self.row}
        cut = {name: None if v is None else v[k::n] for name, v in rows.items()}
        return self._replace(**cut)


class Plan(NamedTuple):
    """One way through a client's rows. A method names its plans."""

    epochs: int = 1
    batch: int | None = None  # None: the task's
    last: str = "keep"
    # or "drop": no incomplete last batch, unless it is the only one
    shuffle: bool = True
    split: str = "train"
    block: float = 1.0  # a random contiguous share of the rows
    steps: int | None = None  # instead of epochs: so many batches
    poisson: bool = False
    # each row joins a batch with probability batch / rows, on its own


def draw(rows, plan, seed, batch):
    """The batches of a plan -> (row numbers, one batch after another; their lengths).

    rows [N] of a client. batch: the task's size, where the plan names none.
    """
    if not len(rows):
        return rows, []
    size = min(plan.batch or batch, len(rows))
    random = plan.shuffle or plan.poisson or plan.block < 1
    g = torch.Generator().manual_seed(seed) if random else None
    return (poisson_batches if plan.poisson else passes)(rows, plan, size, g)


def poisson_batches(rows, plan, size, g):
    """Every row joins every batch with probability size / N; empty ones are left out.

    An epoch is as many batches as it has without chance.
    """
    N = len(rows)
    steps = plan.steps or plan.epochs * -(-N // size)
    batches = [rows[torch.rand(N, generator=g) < size / N] for _ in range(steps)]
    return torch.cat(batches), [len(b) for b in batches if len(b)]


def passes(rows, plan, size, g):
    """So many passes over the rows, or so many batches."""
    order, lengths, epoch = [], [], 0
    while len(lengths) < plan.steps if plan.steps else epoch < plan.epochs:
        once, cut = one_pass(rows, plan, size, g)
        order.append(once)
        lengths += cut
        epoch += 1
    lengths = lengths[: plan.steps]
    order = order[0] if len(order) == 1 else torch.cat(order or [rows])
    return order[: sum(lengths)], lengths


def one_pass(rows, plan, size, g):
    """One pass: the rows in a new order, or a block of them, in batches."""
    if plan.shuffle:
        rows = rows[torch.randperm(len(rows), generator=g)]
    if plan.block < 1:
        n = max(1, int(plan.block * len(rows)))
        first = int(torch.randint(len(rows) - n + 1, (1,), generator=g))
        rows = rows[first : first + n]
    full, rest = divmod(len(rows), size)
    lengths = [size] * full
    if rest and not (plan.last == "drop" and full):
        lengths.append(rest)
    return rows[: sum(lengths)], lengths
