"""A table with words in its columns becomes numbers: x [N, D], and D columns in words.

A number stays one column. A yes or no, and words of two values, become one flag: 1 for
the second value in natural order. Words of k > 2 values become a one-hot block of k
columns. So the schema of fedlib.core.schema is known, and those who draw rows keep to
the blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .arrays import EXACT, pool_of
from .errors import nearest, warn
from .order import natural
from .ranges import listed

MANY = 100  # values of a column of words; more are accepted with a warning


class Table(NamedTuple):
    """x float64 [N, D], the names of its columns, the schema, and which columns are
    numbers."""

    x: np.ndarray
    names: list
    schema: list
    numbers: list


def pool_of_frame(
    df,
    label,
    client,
    sensitive=None,
    features=None,
    name="frame",
    positive=None,
    classes=None,
    standardise=True,
    network=None,
):
    """(Pool, Table) of a pandas DataFrame; see Task.from_frame."""
    if not (hasattr(df, "columns") and hasattr(df, "iloc")):
        raise TypeError(
            f"from_frame takes a pandas DataFrame, and got {type(df).__name__}: use "
            "Task.from_arrays for arrays and Task.from_dataset for data sets, or give "
            "pandas.DataFrame(...)"
        )
    if not isinstance(standardise, (bool, np.bool_)):
        raise ValueError(f"standardise = {standardise!r:.60}: give True or False")
    if not len(df):
        raise ValueError("the table has 0 rows: look at the filter that it came from")
    twice = df.columns[df.columns.duplicated()]
    if len(twice):
        raise ValueError(
            f"two columns are named {twice[0]!r}: rename one, or leave one out"
        )
    features = chosen(df, label, client, sensitive, features)
    roles = [label, client] + ([] if sensitive is None else [sensitive])
    complete(df, list(dict.fromkeys([*roles, *features])))
    table = encoded(df, features, standardise)
    a = None if sensitive is None else df[sensitive].to_numpy()
    pool = pool_of(
        table.x,
        df[label],
        df[client].tolist(),
        name,
        a,
        positive,
        table.schema if sensitive is not None else None,
        classes,
        str(sensitive),
        network,
        (f"label {label!r}", f"client {client!r}", f"sensitive {sensitive!r}"),
    )
    giveaway(df, features, label, pool.K)
    return pool, table


def chosen(df, label, client, sensitive, features):
    """The columns that are inputs: by default all but the label and the client."""
    there = list(df.columns)
    roles = {"label": label, "client": client, "sensitive": sensitive}
    for role, c in roles.items():
        if role == "sensitive" and c is None:
            continue
        known_column(role, c, there)
    if label in (client, sensitive):
        other = "client" if label == client else "sensitive"
        raise ValueError(
            f"label and {other} are both the column {label!r}: what is predicted says "
            f"nothing about {other}; choose another column"
        )
    usual = [c for c in there if c not in (label, client)]
    if features is not None and listed(features) is None:
        raise ValueError(
            f"features = {features!r:.80}: give a list of columns, [{features!r:.40}]"
        )
    features = usual if features is None else listed(features)
    for c in features:
        known_column("features", c, there)
    if label in features:
        raise ValueError(
            f"features holds {label!r}, the label: a model that sees the answer learns "
            "nothing; leave it out"
        )
    if not features or len(set(features)) < len(features):
        raise ValueError(
            f"features = {features!r:.80}: give one column or more, each once"
        )
    return features


def known_column(role, c, there):
    """ValueError for what is no column of the table."""
    try:
        found = c in there
    except (TypeError, ValueError):
        found = False
    if not found:
        columns = ", ".join(map(repr, there[:20])) + (", ..." if there[20:] else "")
        raise ValueError(
            f"{role} = {c!r:.80} is no column of the table{nearest(c, there)} (it has "
            f"{columns})"
        )


def complete(df, columns):
    """ValueError for missing values, naming all columns that have some."""
    gaps = {}
    for c in columns:
        gone = df[c].isna()
        if df[c].dtype.kind not in "biufcmM":
            text = df[c].map(lambda v: isinstance(v, str) and not v.strip())
            gone = gone | text.astype(bool)
        if gone.any():
            gaps[c] = np.flatnonzero(gone)
    if gaps:
        said = ", ".join(f"{c!r} {len(rows)}" for c, rows in gaps.items())
        c = next(iter(gaps))
        raise ValueError(
            f"missing values in the columns {said}; the first is in row {gaps[c][0]} "
            f"of {c!r}: leave such rows out, df.dropna(subset=[{c!r}]), or fill them, "
            f"as df[{c!r}].fillna(...) with a median or a word of its own"
        )


def encoded(df, features, standardise):
    """The Table of the columns `features`; ValueError for what is no number, flag or
    word."""
    parts, names, schema, numbers = [], [], [], []
    for c in features:
        kind = kind_of(df[c], c)
        if kind == "number":
            v = numeric(df[c], c, standardise)[:, None]
            flag = np.isin(v, (0, 1)).all()
            columns, words = [str(c)], [(str(c), "flag" if flag else "number", 1)]
            numbers += [] if flag else [len(names)]
            constant = v.min() == v.max()
        else:
            v, columns, words = coded(df[c], c, kind)
            constant = v.shape[1] == 1 and v.min() == v.max()
        if constant:
            warn(
                f"column {c!r} holds {df[c].tolist()[0]!r} in every row and tells "
                "nothing: leave it out by features="
            )
        parts.append(v)
        names += columns
        schema += words
    return Table(np.concatenate(parts, 1), names, schema, numbers)


def kind_of(s, c):
    """ "number", "flag" or "words": what a column without gaps holds."""
    dtype = s.dtype
    if dtype.kind in "mM" or type(dtype).__name__ == "PeriodDtype":
        raise ValueError(
            f"column {c!r} holds {dtype}: dates are no inputs; give numbers made of "
            f"them, as df[{c!r}].dt.year, or leave it out by features="
        )
    if dtype.kind == "b":
        return "flag"
    if dtype.kind in "iuf":
        return "number"
    found = {type(v) for v in s.tolist()}
    if type(dtype).__name__ == "CategoricalDtype" or found == {str}:
        return "words"
    if found <= {bool, np.bool_}:
        return "flag"
    odd = next((v for v in s.tolist() if not isinstance(v, str)), s.iloc[0])
    raise ValueError(
        f"column {c!r} holds {type(odd).__name__} ({odd!r:.60}) in a column of type "
        f"{dtype}: make it numbers, df[{c!r}].astype(float), or text, "
        f"df[{c!r}].astype(str), or leave it out by features="
    )


def numeric(s, c, standardise):
    """A column of numbers as float64 [N]."""
    v = s.to_numpy(dtype=np.float64)
    if not np.isfinite(v).all():
        row = int(np.flatnonzero(~np.isfinite(v))[0])
        raise ValueError(
            f"column {c!r} holds {v[row]} in row {row}: leave such rows out, or clip "
            f"them, df[{c!r}].clip(low, high)"
        )
    far = v[np.abs(v).argmax()]
    if s.dtype.kind in "iu" and abs(far) > EXACT and not standardise:
        raise ValueError(
            f"column {c!r} holds the whole number {far:.0f}, and float32 is exact up "
            f"to {EXACT} only: use standardise=True, or leave it out if it is an "
            "identifier"
        )
    return v


def coded(s, c, kind):
    """(columns of 0 and 1 [N, k], their names, their entries of a schema)."""
    values = sorted(set(s.tolist()), key=natural)
    if getattr(s.dtype, "ordered", False):
        values = [u for u in s.dtype.categories if u in set(values)]
    N, k = len(s), len(values)
    if kind == "words" and N > 20 and k > N / 2:
        raise ValueError(
            f"column {c!r} holds {k} different words in {N} rows, the first is "
            f"{s.iloc[0]!r:.60}: an identifier or free text; leave it out by "
            "features=, or make numbers of it first"
        )
    if k > MANY:
        warn(
            f"column {c!r} holds {k} different words, each becomes a column of x: "
            "merge the rare ones, or leave it out by features="
        )
    number = {u: i for i, u in enumerate(values)}
    at = np.array([number[u] for u in s.tolist()])
    if kind == "flag":
        return s.to_numpy(dtype=np.float64)[:, None], [str(c)], [(str(c), "flag", 1)]
    if k <= 2:
        name = f"{c}={values[-1]}"
        return (at == k - 1)[:, None] * 1.0, [name], [(name, "flag", 1)]
    names = [f"{c}={u}" for u in values]
    return np.eye(k)[at], names, [(str(c), "onehot", k)]


def giveaway(df, features, label, K):
    """A DataWarning for an input that says the class in other words."""
    for c in features:
        if df[c].dtype.kind == "f" or df[c].nunique() != K:
            continue
        if df.groupby(c, observed=True)[label].nunique().max() == 1:
            warn(
                f"column {c!r} tells the label {label!r} without error, as if it were "
                "the label in other words: leave it out by features="
            )


def standardised(pool, table, train):
    """The pool with its numbers as (v - mean) / deviation over the rows `train`, in
    float32.

    Flags and one-hot blocks stay as they are, and a column that is constant there
    becomes v - mean.
    """
    x, j = pool.x.clone(), table.numbers
    v = x[train][:, j]
    deviation = v.std(0, correction=0)
    small = deviation <= 1e-12 * v.abs().amax(0)
    x[:, j] = (x[:, j] - v.mean(0)) / torch.where(small, 1.0, deviation)
    return pool._replace(x=x.float())
