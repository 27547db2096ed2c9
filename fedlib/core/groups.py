"""Groups and outcomes: who is compared with whom, and what counts as the good outcome.

Letters: A groups, K classes, n rows; y = 1 the positive outcome, yhat = 1 a positive
prediction.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import torch

from .tree import onehot


def natural(v):
    """A key for `sorted`: numbers by size, then all else as text, the digits in it
    read as numbers: 2 before 10, and "clinic 2" before "clinic 10"."""
    if isinstance(v, Real):
        return 0, v
    text = str(v)
    parts = re.split(r"(\d+)", text)  # text, digits, text, ...
    parts[1::2] = map(int, parts[1::2])
    return 1, parts, text


def positions(v, values):
    """The place of each of v [N] among the values."""
    place = {u: i for i, u in enumerate(values)}
    return torch.tensor([place[u] for u in v], dtype=torch.long)


class Block(NamedTuple):
    """Columns of x, side by side, that belong together: a "number" (standardised), a
    "flag" (0 or 1), or "onehot" (one 1).

    low, high: what everybody knows about a number's range, in the units of x.
    """

    name: str
    kind: str
    start: int
    stop: int
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True)
class Groups:
    """A sensitive attribute with A groups, and the classes of the positive outcome.

    column: the column of x that holds the group's code 0 .. A-1, or None: the group
    follows from the class by of_class [K]. schema: the columns of x in words, for those
    who may know how rows look but may not see any; () for images.
    """

    name: str
    names: tuple
    positive: tuple
    column: int | None = None
    of_class: tuple = ()
    schema: tuple = ()

    A = property(lambda self: len(self.names))

    def __post_init__(self):
        """ValueError for a code that is a column of a one-hot block, among others."""
        for b in self.schema:
            inside = self.column is not None and b.start <= self.column < b.stop
            if b.kind == "onehot" and inside and b.stop - b.start > 1 and self.A > 1:
                raise ValueError(
                    f"groups {self.name!r}: the code is column {self.column} of x, in "
                    f"the one-hot block {b.name!r}, which rows that are drawn would "
                    "break: keep this column alone, as a flag"
                )

    def outcome(self, y):
        """Classes y [...] -> 1 where the class counts as positive, else 0."""
        positive = torch.tensor(self.positive, device=y.device)
        return (y[..., None] == positive).any(-1).long()

    def odds(self, logits):
        """Logits [n, K] -> log-probabilities [n, 2] of the negative and the positive
        outcome."""
        positive = list(self.positive)
        negative = [k for k in range(logits.shape[-1]) if k not in positive]
        log_p = logits.log_softmax(-1)
        both = [log_p[..., ks].logsumexp(-1) for ks in (negative, positive)]
        return torch.stack(both, -1)

    def cells(self, q, x=None, a=None):
        """Soft membership [n, A, 2] of group a and outcome y.

        q [n, K]: label probabilities. The group is a [n] if given, else the column of
        x [n, ...], else it follows from the class; ValueError where neither is so.
        """
        outcomes = self.outcome(torch.arange(q.shape[-1], device=q.device))
        if a is None and self.column is None:
            if not self.of_class:
                raise ValueError(
                    f"nobody can tell the group {self.name!r} of a new row: append its "
                    "code 0, 1, ... to x, as a column"
                )
            group = torch.tensor(self.of_class, device=q.device)
            at = onehot(2 * group + outcomes, 2 * self.A, q)  # [K, 2 A]
            return (q @ at).view(-1, self.A, 2)
        a = x[:, self.column].round().long() if a is None else a
        in_group, with_outcome = onehot(a, self.A, q), q @ onehot(outcomes, 2, q)
        return in_group[:, :, None] * with_outcome[:, None, :]

    def tally(self, logits, b):
        """How many rows of batch b [B] are in group a, have outcome y and prediction
        yhat: counts [A, 2, 2]."""
        a = onehot(b.a, self.A, logits)
        y = onehot(self.outcome(b.y), 2, logits)
        yhat = onehot(self.outcome(logits.argmax(-1)), 2, logits, b.m)
        return torch.einsum("ba,by,bz->ayz", a, y, yhat)


def parity(y, K):
    """(group of every row, Groups) for images without people: odd and even classes; the
    upper half of the classes is positive."""
    upper, of_class = tuple(range(K // 2, K)), tuple(k % 2 for k in range(K))
    return y % 2, Groups("parity", ("even", "odd"), upper, None, of_class)


def describe(x, a, positive, schema=None, name="group"):
    """Codes a [N] and Groups for a sensitive attribute a [N] of any values, numbered
    in natural order.

    Where a column of x [N, D] is the code, it is named; of several, the first that is
    in no one-hot block. schema: Blocks; None: a column of zeros and ones is a flag, any
    other a number.
    """
    values = sorted(set(a), key=natural)
    a, names = positions(a, values), tuple(map(str, values))
    if x.dim() != 2:
        return a, Groups(name, names, tuple(positive))
    if schema is None:
        kinds = kinds_of(x)
        schema = tuple(Block(f"column {j}", k, j, j + 1) for j, k in enumerate(kinds))
    onehots = [b for b in schema if b.kind == "onehot"]
    inside = lambda j: any(b.start <= j < b.stop for b in onehots)
    same = (x == a[:, None]).all(0).nonzero()[:, 0].tolist()
    column = min(same, key=inside, default=None)
    return a, Groups(name, names, tuple(positive), column, (), schema)


# ---------------------------------------------------------------- the columns in words
def kinds_of(x):
    """Of each column of x [N, D]: "flag" if it holds 0 and 1 alone, else "number"."""
    return ["flag" if f else "number" for f in ((x == 0) | (x == 1)).all(0).tolist()]
