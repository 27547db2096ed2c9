"""A user's own data become a pool: what is behind `Task.from_arrays`, `from_frame` and
`from_dataset`.

What is REFUSED would give wrong numbers in silence; what is DOUBTFUL can be trained on,
and looks wrong. A check of these tables is (name, test, words): the test returns what
to put into its words, or nothing.
Letters: N rows, D columns, K classes, C clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from numbers import Number, Real
from typing import Any

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from pandas.api.types import infer_dtype

from .errors import check_switch, listed, nearest, refuse_if
from .pool import (
    NOT_FINITE,
    Block,
    Pool,
    cut_rows,
    describe,
    kinds_of,
    natural,
    not_finite,
    owned,
    positions,
)

EXACT = 2**24  # up to here float32 holds every whole number
FEW = 10  # test rows of a client: one more hit moves its accuracy by 10 points
LARGE = 1e3  # a column that reaches this far is probably not standardised
MANY = 20  # groups
SIDE = 5  # pixels per side from which on [N, a, b, 3] is read as images
NUMBERS, WORDS = ("boolean", "integer", "floating"), ("string", "categorical")


# ---------------------------------------------------------------- what is given
@dataclass(frozen=True, eq=False)
class Given:
    """inputs: a DataFrame of numbers and words, or a tensor of numbers [N, ...]. names:
    {what messages call it: one value per row [N]} of label, client and perhaps group.
    attribute: what the groups differ in. own: the network is the user's. standardise:
    numbers become (v - mean) / deviation.
    """

    inputs: Any
    names: dict
    own: bool
    attribute: str = "group"
    standardise: bool = False

    @cached_property
    def columns(self):
        """[(name, column, what it holds in pandas' words)] of a table's inputs."""
        table = [] if torch.is_tensor(self.inputs) else self.inputs.items()
        return [(c, s, infer_dtype(s, skipna=False)) for c, s in table]

    @cached_property
    def encoded(self):
        """x [N, ...] and, of a table, the Blocks of its columns: numbers stay; words of
        two values are one column, 1 for the second, of k > 2 a one-hot block of k."""
        if torch.is_tensor(self.inputs):
            double = self.inputs.dtype == torch.float64
            return self.inputs if double else self.inputs.float(), None
        parts, schema, stop = [], [], 0
        for c, s, kind in self.columns:
            if kind in WORDS:
                values = in_order(s)
                v = F.one_hot(positions(s, values)).double()
                if len(values) <= 2:
                    c, v = f"{c}={values[-1]}", v[:, -1:]
            else:
                v = torch.tensor(s.to_numpy(float))[:, None]
            kind = "onehot" if v.shape[1] > 1 else kinds_of(v)[0]
            start, stop = stop, stop + v.shape[1]
            schema.append(Block(f"{c}", kind, start, stop))
            parts.append(v)
        return torch.cat(parts, 1), tuple(schema)

    x = property(lambda self: self.encoded[0])
    label = property(lambda self: [*self.names.values()][0])
    client = property(lambda self: [*self.names.values()][1])


def of_arrays(x, y, client_id, a, own):
    """See Task.from_arrays."""
    of = {"y": y, "client_id": client_id} | ({} if a is None else {"a": a})
    indexes = {k: v.index for k, v in ({"x": x} | of).items() if hasattr(v, "iloc")}
    for one, two in pairwise(indexes.values()):
        begin = ", ".join(f"{k} {list(v[:2])}" for k, v in indexes.items())
        refuse_if(
            len(one) == len(two) and not one.equals(two),
            f"rows belong together by position, and indexes differ (they begin by "
            f"{begin}): give them in one order, with reset_index(drop=True)",
        )
    return Given(numbers(x), {k: column(v, k) for k, v in of.items()}, own)


def of_frame(df, label, client, sensitive, features, standardise, own):
    """See Task.from_frame."""
    if not hasattr(df, "columns") or not len(df) or not df.columns.is_unique:
        raise TypeError(
            f"from_frame takes a DataFrame with rows and names that differ, and got a "
            f"{type(df).__name__}: use Task.from_arrays or Task.from_dataset"
        )
    check_switch("standardise", standardise)
    roles, there = {"label": label, "client": client}, list(df.columns)
    roles |= {} if sensitive is None else {"sensitive": sensitive}
    usual = [c for c in there if c not in (label, client)]
    features = usual if features is None else listed(features) or []
    odd = [c for c in [*roles.values(), *features] if c not in there]
    once = not odd and 0 < len(set(features)) == len(features)
    if not once or label in (client, sensitive, *features):
        close = nearest(odd[0], there) if odd else ""
        known = ", ".join(map(repr, there))
        raise ValueError(
            f"label = {label!r}, client = {client!r}, sensitive = {sensitive!r}, "
            f"features = {features!r:.200}: give columns of the table (it has "
            f"{known:.400}{close}), inputs once each, and a label that is nothing else"
        )
    of = {f"{role} {c!r}": column(df[c], role) for role, c in roles.items()}
    inputs = df[features].reset_index(drop=True)
    return Given(inputs, of, own, str(sensitive), standardise)


def plain(v):
    """A tensor as an array of numpy; all else as it is."""
    return v.detach().cpu().numpy() if torch.is_tensor(v) else v


def bare(u):
    """A value as one of Python's; a whole float, as pandas makes it, as an int."""
    u = u.item() if hasattr(u, "item") and not np.ndim(u) else u
    return int(u) if isinstance(u, float) and u.is_integer() else u


def column(v, at):
    """One hashable value per row, a Series [N]; an ordered category stays one."""
    try:
        s = pd.Series(plain(v)).reset_index(drop=True).map(bare)
        set(s)
        return s
    except Exception as e:
        raise ValueError(f"{at} has not one value per row, [N]: {e}; give one") from e


def numbers(x):
    """x as a tensor of real numbers; lists of Python's numbers are float32."""
    try:
        if hasattr(x, "columns"):
            x = x.to_numpy(np.result_type(*[d.type for d in x.dtypes]))
        if isinstance(x, np.ma.MaskedArray):
            x = x.astype(float).filled(np.nan)
        if not isinstance(x, (list, tuple)):
            x = np.require(plain(x), requirements="CW")
        elif len(x) and hasattr(x[0], "__array__"):
            x = np.stack([np.asarray(plain(v)) for v in x])
        x = torch.as_tensor(x)
        refuse_if(x.is_complex(), f"complex, the first is {x.flatten()[:1].tolist()}")
        most = 0 if x.is_floating_point() or not x.numel() else x.double().abs().max()
        refuse_if(most > EXACT, f"the whole number {most:.0f}; float32 ends at {EXACT}")
        return x
    except Exception as e:
        raise ValueError(
            f"x is no array of numbers as float32 holds them ({e!s:.200}): give rows of"
            " real numbers, large ones as float64, or a DataFrame to Task.from_frame"
        ) from e


def in_order(s):
    """The values of a column: an ordered category in its own order, others natural."""
    there = set(s)
    if getattr(s.dtype, "ordered", False):
        return [u for u in s.dtype.categories if u in there]
    return sorted(there, key=natural)


# ---------------------------------------------------------------- a pool
def pool_of(given, name, split, parts, positive=None, classes=None):
    """The Pool of what a door was given. ValueError for what is REFUSED."""
    for words in found(REFUSED, given):
        raise ValueError(words)
    (x, schema), (at, *_), groups = given.encoded, given.names, None
    y, client, *a = given.names.values()
    known, classes = classes_of(y, classes, at)
    owners = sorted(set(client), key=natural)
    refuse_if(
        not a and positive is not None,
        f"positive = {positive!r:.60} is of use for groups, and a is not given: give "
        "the group of every row, or leave it out",
    )
    if a:
        good = positive_classes(positive, classes, at)
        a, groups = describe(x, a[0], good, schema, given.attribute)
    K, y, owner = len(classes), positions(y, known), positions(client, owners)
    numbered = [(type(c), c) for c in classes] == [(int, k) for k in range(K)]
    called = () if numbered else tuple(map(str, classes))
    pool = Pool(name, x, y, K, "own", owner, tuple(map(str, owners)))
    pool = pool._replace(a=a if groups else None, groups=groups, classes=called)
    if given.standardise:
        pool = standardised(pool, schema, split, parts)
    return pool._replace(x=pool.x.float()) if schema else pool


def standardised(pool, schema, split, parts):
    """The pool with its numbers as (v - mean) / deviation over all clients' training
    rows. Flags and one-hot blocks stay, and a constant column becomes v - mean."""
    cut = [cut_rows(r, c, split, parts)[0] for c, r in enumerate(owned(pool))]
    j = torch.tensor(
        [b.kind == "number" for b in schema for _ in range(b.start, b.stop)]
    )
    v, x = pool.x[torch.cat(cut)][:, j], pool.x.clone()
    deviation = v.std(0, correction=0)
    small = deviation <= 1e-12 * v.abs().amax(0)
    x[:, j] = (x[:, j] - v.mean(0)) / torch.where(small, 1.0, deviation)
    return pool._replace(x=x)


def classes_of(s, given, at):
    """(labels in the order of their numbers 0 .. K-1, the K classes as one writes them)

    Whole numbers are what they say, words are in order; or `given` lists the labels, or
    names of 0 .. K-1.
    """
    there = [bare(u) for u in in_order(s)]
    classes = there if given is None else [bare(u) for u in listed(given) or ()]
    refuse_if(
        given is not None and len(set(map(str, classes))) < max(2, len(classes)),
        f"classes = {given!r:.80}: list all classes, two or more, each once",
    )
    words = not any(isinstance(u, Real) for u in classes)
    listing = given is not None and (not words or all(u in classes for u in there))
    known = classes if listing or (given is None and words) else [*range(len(classes))]
    odd = [u for u in there if u not in known]
    if odd:
        raise ValueError(
            f"{at}: labels run from {there[0]!r} to {there[-1]!r}, and {odd[0]!r} (row "
            f"{list(s).index(odd[0])}) is none of {len(known)} classes {known!r:.120}"
            f"{nearest(odd[0], classes)}: list all, classes={there!r:.60}, renumber "
            "them, numpy.unique(y, return_inverse=True)[1], or leave such rows out"
        )
    return known, classes


def positive_classes(positive, classes, at):
    """The numbers of the classes that are good for a person; None: the second."""
    if positive is None:
        return (1,)
    known, good = list(map(str, classes)), listed(positive)
    good = [str(bare(u)) for u in ([positive] if good is None else good)]
    for u in good:
        refuse_if(
            u not in known,
            f"positive = {u:.60} is no class of {at}, which has {', '.join(known):.200}"
            f"{nearest(u, known)}; name classes that are good for a person",
        )
    return tuple(dict.fromkeys(map(known.index, good)))


# ---------------------------------------------------------------- the checks
def found(checks, *of):
    """The words of what the checks find."""
    for _, test, words in checks:
        if facts := test(*of):
            yield words.format(*facts)


def of_inputs(test):
    """A check of a table's inputs, one after another: test(column, kind, given, task)
    gives facts about the first that it finds; its name is put before them."""

    def check(g, task=None):
        tried = ((c, test(s, kind, g, task)) for c, s, kind in g.columns)
        return next(((c, *facts) for c, facts in tried if facts), None)

    return check


def missing(g):
    """Gaps, infinity and blank texts, in all columns at once."""
    blank = lambda s: s.dtype.kind == "O" and s.astype(str).str.strip() == ""
    gap = lambda s: s.isna() | s.isin((np.inf, -np.inf)) | blank(s)
    columns = g.names | {f"column {c!r}": s for c, s, _ in g.columns}
    gaps = {k: np.flatnonzero(gap(s)) for k, s in columns.items()}
    gaps = {k: rows for k, rows in gaps.items() if len(rows)}
    for k, rows in gaps.items():
        said = ", ".join(f"{k} ({len(v)})" for k, v in gaps.items())
        return said, rows[0], k, columns[k].iloc[rows[0]]


def unnamed(g):
    """Values that are no names and no whole numbers, or are of two types."""
    for at, s in g.names.items():
        types = [type(bare(u)) for u in s]
        other = [i for i, t in enumerate(types) if t is not types[0]]
        if other or (issubclass(types[0], Number) and not issubclass(types[0], int)):
            i = (other or [0])[0]
            return at, s[i], i, s[0]


def channels_last(g):
    shape = list(g.x.shape)
    if len(shape) == 4 and shape[3] in (1, 3) and min(shape[1:3]) >= SIDE:
        return shape, shape[3]


def pixels(g, by_type):
    """Whole numbers above 1 in images; by_type: those that are kept as such."""
    x, kind, image = g.x, getattr(g.inputs, "dtype", None), g.x.dim() == 4
    if x.dim() < 3 or x.max() <= 1:
        return None
    sure = kind == torch.uint8 or (image and not kind.is_floating_point)
    whole = image and x.min() >= 0 and x.equal(x.round())
    return (list(x.shape), x.max()) if (sure if by_type else whole) else None


def of_clients(g, wrong):
    (_, at, *_), C, N = g.names, g.client.nunique(), len(g.client)
    return (at, C, N, g.client[0]) if wrong(C, N) else None


LAST = "x has shape {}, images with their {} channels last: give [N, channels, height, "
LAST += "width], as x.transpose(0, 3, 1, 2)"
PIXELS = "x has shape {} and whole numbers up to {:.0f}: pixels are expected in [0, 1];"
PIXELS += " divide by 255, or by what is white"
CLIENTS = "{} takes {} different values in {} rows, such as {!r}: "
REFUSED = (  # a check may rely on those before it
    (
        "no rows of numbers",
        lambda g: (g.inputs.ndim < 2 or 0 in g.inputs.shape) and [[*g.inputs.shape]],
        "x has shape {}; give a row of numbers per label, [N, D], for a single column "
        "x[:, None]",
    ),
    (
        "rows that differ",
        lambda g: (
            {len(s) for s in g.names.values()} != {len(g.inputs)}
            and [len(g.inputs), {k: len(s) for k, s in g.names.items()}]
        ),
        "x has {} rows and {}: give one entry per row",
    ),
    (
        "missing values",
        missing,
        "missing values in {}; the first is row {} of {} ({!r}): leave such rows out, "
        "as df.dropna(), or fill them, with a median or a word of their own",
    ),
    (
        "no names",
        unnamed,
        "{} holds {!r} at row {}, and {!r} at row 0: give names, or whole numbers, all "
        "of one type; cut a quantity into bands first (pandas.cut)",
    ),
    (
        "no numbers and no words",
        of_inputs(lambda s, kind, *_: kind not in NUMBERS + WORDS and (kind, s[0])),
        "column {0!r} holds {1}, as {2!r}: give numbers, df[{0!r}].astype(float), or "
        "text, df[{0!r}].astype(str), of dates the years; or leave it out by features=",
    ),
    (
        "identifier",
        of_inputs(
            lambda s, kind, *_: (
                kind in WORDS
                and s.nunique() > max(len(s), 20) / 2
                and (s.nunique(), len(s), s[0])
            )
        ),
        "column {!r} holds {} different words in {} rows, as {!r}: an identifier or "
        "free text; leave it out by features=",
    ),
    (
        "large whole numbers",
        of_inputs(
            lambda s, kind, g, _: (
                kind == "integer"
                and not g.standardise
                and s.abs().max() > EXACT
                and [s.abs().max()]
            )
        ),
        "column {!r} holds the whole number {} or its negative, and float32 is exact up"
        f" to {EXACT}: use standardise=True, or leave an identifier out by features=",
    ),
    ("not finite", lambda g: not_finite(g.x), NOT_FINITE),
    ("channels last", lambda g: not g.own and channels_last(g), LAST),
    ("pixels", lambda g: pixels(g, True), PIXELS),
    (
        "one class",
        lambda g: g.label.nunique() < 2 and ([*g.names][0], g.label[0], len(g.label)),
        "{} holds only the class {!r} in its {} rows: there is nothing to tell apart; "
        "give rows of two classes or more",
    ),
    (
        "a client per row",
        lambda g: of_clients(g, lambda C, N: C == N),
        CLIENTS + "it numbers the rows; give whose row it is",
    ),
)


def far(g, task):
    codes = g.own and not (g.columns or g.inputs.is_floating_point())
    if not (g.standardise or g.x.dim() != 2 or codes):
        most = g.x.abs().amax(0)
        many, j = int((most > LARGE).sum()), int(most.argmax())
        return many and (j, most[j].item(), many)


def few_test_rows(g, task):
    n = [len(r) for r in task.test]
    few, least = sum(k < FEW for k in n), n.index(min(n))
    return few and (few, task.C, task.owners[least], n[least], 100 / n[least])


DOUBTFUL = (
    ("channels last", lambda g, task: channels_last(g), LAST),
    ("pixels", lambda g, task: pixels(g, False), PIXELS),
    (
        "far from 0",
        far,
        "column {} of x reaches {:g} ({} columns reach beyond "
        f"{LARGE:g}): training by gradients may diverge; standardise, as x = (x - "
        "x.mean(0)) / x.std(0)",
    ),
    (
        "many groups",
        lambda g, task: task.groups and task.groups.A > MANY and [task.groups.A],
        "the sensitive attribute has {} groups: make bands first (pandas.cut)",
    ),
    (
        "many classes",
        lambda g, task: (
            task.K > 10
            and g.label.nunique() > len(g.label) / 2
            and ([*g.names][0], g.label.nunique(), len(g.label))
        ),
        "{} takes {} values in {} rows: of a quantity make bands (pandas.cut); for an "
        "identifier choose another label",
    ),
    (
        "few rows of a client",
        lambda g, task: of_clients(g, lambda C, N: C == 1 or C > N / 5),
        CLIENTS + "give two clients or more, of five rows or more each",
    ),
    (
        "the label again",
        of_inputs(
            lambda s, kind, g, task: (
                kind != "floating"
                and s.nunique() == task.K
                and g.label.astype(object).groupby(s, observed=True).nunique().max()
                == 1
                and [[*g.names][0]]
            )
        ),
        "column {!r} tells the {} without error, as if it were the label in other "
        "words: leave it out by features=",
    ),
    (
        "few test rows",
        few_test_rows,
        f"fewer than {FEW} test rows at "
        "{} of {} clients; client {!r} has {}, so its accuracy moves in steps of {:.0f}"
        " points: merge clients, or raise the test share",
    ),
)
