"""Samples before they are dealt to clients: a pool, and the groups of a sensitive
attribute; how each client's rows are cut, and what cannot be trained on.

Letters: N samples, A groups, K classes, n rows; y = 1 positive, yhat = 1 predicted.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from .errors import check_whole, is_number, is_whole, listed, refuse_if
from .random import seed_of, tag
from .tree import onehot

FEW = 10  # test rows: one more hit moves a rate by a tenth


# ---------------------------------------------------------------- groups
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
    """Columns of x, side by side: a "number" (standardised), "flag" (0 or 1) or
    "onehot" (one 1). low, high: what everybody knows of a number's range, as in x."""

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
    who may know how rows look but may not see any; () for images."""

    name: str
    names: tuple
    positive: tuple
    column: int | None = None
    of_class: tuple = ()
    schema: tuple = ()

    A = property(lambda self: len(self.names))

    def outcome(self, y):
        """Classes y [...] -> 1 where the class counts as positive, else 0."""
        return sum((y == k for k in self.positive), torch.zeros_like(y))

    def odds(self, logits):
        """Logits [n, K] -> log-probabilities [n, 2] of the outcomes 0 and 1."""
        negative = [k for k in range(logits.shape[-1]) if k not in self.positive]
        log_p = logits.log_softmax(-1)
        sides = [[log_p[..., k] for k in ks] for ks in (negative, self.positive)]
        return torch.stack([torch.stack(x, -1).logsumexp(-1) for x in sides], -1)

    def cells(self, q, x=None, a=None):
        """Soft membership [n, A, 2] of group a and outcome y, of label probabilities
        q [n, K]. The group is a [n] if given, else the column of x [n, ...], else it
        follows from the class; ValueError where neither is so."""
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

    def told(self, y, a, tests, classes):
        """Sentences: who is compared, and where test rows are too few. y, a [N]: class
        and group of each row. tests: the clients' test rows."""
        yes = [classes[k] for k in self.positive]
        no = [c for c in classes if c not in yes]
        whom = f"{', '.join(self.names):.200} of {self.name!r}"
        yield f"EO and DP compare {whom}: who gets {yes!r:.100}, and not {no!r:.100}"
        rows = torch.cat(tests).unique()
        cell = (2 * a + self.outcome(y)).cpu()[rows]
        n = torch.bincount(cell, minlength=2 * self.A).view(-1, 2).tolist()
        few = [f"{g} {n} + {m}" for g, (n, m) in zip(self.names, n) if min(n, m) < FEW]
        if few:
            none = "; EO and DP leave out what is empty" * any(0 in v for v in n)
            yield (
                f"few test rows of {self.name!r} without + with the positive outcome: "
                f"{', '.join(few[:8])}{none}, and a row moves its rate by 1 / rows"
            )

    def tally(self, logits, b):
        """Rows of batch b [B] by group a, outcome y and prediction yhat: [A, 2, 2]."""
        of_row = self.cells(onehot(b.y, logits.shape[-1], logits), a=b.a)  # [B, A, 2]
        yhat = onehot(self.outcome(logits.argmax(-1)), 2, logits, b.m)
        return torch.einsum("bay,bz->ayz", of_row, yhat)


def parity(y, K):
    """(group of every row, Groups) for images without people: odd and even classes; the
    upper half of the classes is positive."""
    upper, of_class = tuple(range(K // 2, K)), tuple(k % 2 for k in range(K))
    return y % 2, Groups("parity", ("even", "odd"), upper, None, of_class)


def describe(x, a, positive, schema=None, name="group"):
    """Codes a [N] and Groups for a sensitive attribute a [N] of any values, numbered
    in natural order. Where a column of x [N, D], in no one-hot block, is the code, the
    first is named. schema: Blocks; None: a column of zeros and ones is a flag, any
    other a number."""
    values = sorted(set(a), key=natural)
    a, names = positions(a, values), tuple(map(str, values))
    if x.dim() != 2:
        return a, Groups(name, names, tuple(positive))
    if schema is None:
        kinds = kinds_of(x)
        schema = tuple(Block(f"column {j}", k, j, j + 1) for j, k in enumerate(kinds))
    same = (x == a[:, None]).all(0).tolist()
    alone = (b.start for b in schema if b.kind != "onehot" and same[b.start])
    column = next(alone, None)
    return a, Groups(name, names, tuple(positive), column, (), schema)


def kinds_of(x):
    """Of each column of x [N, D]: "flag" if it holds 0 and 1 alone, else "number"."""
    return ["flag" if f else "number" for f in ((x == 0) | (x == 1)).all(0).tolist()]


# ---------------------------------------------------------------- a pool
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
    classes names of the classes, for models that read them; () where they have none"""

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
    n = torch.bincount(pool.owner, minlength=len(pool.owners)).tolist()
    return list(pool.owner.argsort(stable=True).split(n))


def check_cut(parts, split):
    """How each client's rows are divided: three shares, and the seed of the draw ->
    the seed, as an int (of numpy's own, the mixing of seeds would overflow)."""
    shares = listed(parts) or []
    good = len(shares) == 3 and all(map(is_number, shares)) and min(shares) >= 0
    refuse_if(
        not good or abs(sum(shares) - 1) > 1e-6 or not is_whole(split),
        f"parts = {parts!r:.80}, split = {split!r:.60}: give three shares (train, val, "
        "test) that sum to 1, and a whole number, the seed of the cut",
    )
    return int(split)


def cut_rows(rows, c, split, parts, official=None):
    """(train, val, test) of client c's rows, in shares; official: the test rows."""
    g, n = torch.Generator().manual_seed(seed_of(split, c, tag("split"))), len(rows)
    draw = lambda rows: rows[torch.randperm(len(rows), generator=g)]
    if official is None:
        i, j = int(parts[0] * n + 1e-9), int((parts[0] + parts[2]) * n + 1e-9)
        train, test, val = draw(rows).split([i, j - i, n - j])
        return train, val, test
    held = torch.isin(rows, official)
    test, rows = rows[held], draw(rows[~held])
    i = int(parts[0] / (parts[0] + parts[1]) * len(rows) + 1e-9)
    return rows[:i], rows[i:], test


def laid_out(lists, name):
    """Lists of rows one after another: (all rows [N], where each list lies now)."""
    order = torch.cat(lists) if lists else torch.zeros(0, dtype=torch.long)
    twice = f"task {name!r}: a row is given twice, to one or two clients; give it once"
    refuse_if(len(order) != len(order.unique()), twice)
    return order, torch.arange(len(order)).split([len(r) for r in lists])


# ---------------------------------------------------------------- what is refused
def check_task(task):
    """ValueError for a task that cannot be trained on."""
    for k in ("batch", "K"):
        check_whole(k, getattr(task, k), 1)
    for wrong, words in faults(task):
        refuse_if(wrong, f"task {task.name!r:.60}: {words}")


def faults(task):
    """(is it wrong, the value and the remedy); later ones may rely on earlier ones."""
    x, y, a, groups, K, C = task.x, task.y, task.a, task.groups, task.K, task.C
    form = x.is_floating_point(), y.dtype, [*y.shape], x.dim() > 1 and x.numel() > 0
    yield (
        form != (True, torch.int64, [len(x)], True),
        f"x is {x.dtype} {[*x.shape]} and y {y.dtype} {[*y.shape]}; give floating point"
        " x [N, ...], with rows, and int64 y [N]",
    )
    yield (bad := not_finite(x)), bad
    lo, hi, names, n = int(y.min()), int(y.max()), len(task.classes), len(task.owners)
    wrong = not 0 <= lo <= hi < K or n not in (0, C)
    wrong = wrong or (names and not hi < names <= K)  # a network may know more classes
    yield (
        wrong,
        f"labels from {lo} to {hi}, K = {K}, {names} classes, {n} owners of {C} clients"
        ": give labels below K, and a name to each class and client, or none",
    )
    if groups is not None:
        n = None if a is None else len(a)
        yield n != len(y), f"a has {n} entries for {len(y)} rows; give a group to each"
        there, good = sorted(set(a.tolist())), int(groups.outcome(y).sum())
        yield (
            len(there) < 2 or there != [*range(groups.A)],
            f"the sensitive attribute {groups.name!r} has the groups {there}; give "
            f"rows of all that it names, {', '.join(groups.names)}, two or more",
        )
        yield (
            not 0 < good < len(y),
            f"{good} of {len(y)} rows have the positive outcome {groups.positive}; give"
            " positive classes that some labels are, and some are not",
        )
    n = len(task.train), len(task.val), len(task.test)
    wrong = not C or len({*n}) > 1
    yield wrong, f"{n} clients in train, val and test; give lists for one or more"
    has = zip(task.owners or range(C), map(len, task.train), map(len, task.test))
    few = [
        f"client {c} ({k}) {i} and {j}" for c, (k, i, j) in enumerate(has) if not i * j
    ]
    yield (
        few,
        f"{len(few)} of {C} clients have no training or no test rows: "
        f"{', '.join(few[:8])}; leave them out, or merge them (client_id)",
    )
    rows, tests = torch.cat([*task.train, *task.val]), torch.cat(task.test)
    lo, hi = torch.cat([rows, tests]).aminmax()
    wrong = not 0 <= lo <= hi < len(x)
    yield wrong, f"row numbers from {lo} to {hi}; give those of {len(x)} rows"
    both = rows[torch.isin(rows, tests)][:1].tolist()
    twice = any(len(r) != len(r.unique()) for r in (rows, *task.test))
    yield (
        twice or both,
        f"a row is used twice {both or ''}; give it to one client and one split; only "
        "test rows may serve several clients",
    )


def not_finite(x):
    """What is no number in x [N, ...], in words; "" for nothing."""
    bad = (~x.flatten(1).isfinite()).nonzero()
    if not len(bad):
        return ""
    (i, j), rows = bad[0].tolist(), len(bad[:, 0].unique())
    v = x.flatten(1)[i, j].item()
    first = f"the first is row {i} in column {j} ({v})"
    return f"{rows} rows of x hold NaN or infinity, {first}; drop or impute them first"
