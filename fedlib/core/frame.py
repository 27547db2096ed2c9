"""A table with words in its columns becomes numbers: x [N, D], and D columns in words.

A number stays one column. A yes or no, and words of two values, become one flag: 1 for
the second value in natural order. Words of k > 2 values become a one-hot block of k
columns. So those who draw rows know the blocks (`groups.blocks`) and keep to them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .arrays import EXACT, pool_of
from .errors import nearest, warn
from .groups import natural, positions
from .ranges import listed

NUMBERS = ("boolean", "integer", "floating")  # of pandas' infer_dtype
WORDS = ("string", "categorical")


class Table(NamedTuple):
    """x float64 [N, D], the names of its columns, the schema, and which columns are
    numbers."""

    x: np.ndarray
    names: list
    schema: list
    numbers: list


def pool_of_frame(
    df, label, client, sensitive, features, positive, classes, standardise, name, own
):
    """(Pool, Table) of a pandas DataFrame; see Task.from_frame."""
    if not hasattr(df, "columns") or not len(df) or not df.columns.is_unique:
        raise TypeError(
            f"from_frame takes a DataFrame with rows and names that differ, and got a "
            f"{type(df).__name__}: use Task.from_arrays or Task.from_dataset"
        )
    if not isinstance(standardise, bool):
        raise ValueError(f"standardise = {standardise!r:.60}: give True or False")
    features = inputs(df, label, client, sensitive, features)
    roles = [label, client] + ([] if sensitive is None else [sensitive])
    check_complete(df[list(dict.fromkeys([*roles, *features]))])
    table = encoded(df, features, standardise)
    a, schema = (None, None) if sensitive is None else (df[sensitive], table.schema)
    said = f"label {label!r}", f"client {client!r}", f"sensitive {sensitive!r}"
    given = table.x, df[label], df[client], a, positive, classes, schema, name, own
    pool = pool_of(*given, table.names, (*said, str(sensitive)))
    warn_giveaway(df, features, label, pool.K)
    return pool, table


def inputs(df, label, client, sensitive, features):
    """The columns that are inputs: by default all but the label and the client."""
    there = list(df.columns)
    usual = [c for c in there if c not in (label, client)]
    features = usual if features is None else listed(features) or []
    roles = [("label", label), ("client", client), ("sensitive", sensitive)]
    roles = roles[: 2 if sensitive is None else 3]
    for role, c in [*roles, *(("features", c) for c in features)]:
        if c not in there:
            raise ValueError(
                f"{role} = {c!r:.80} is no column of the table{nearest(c, there)} (it "
                f"has {', '.join(map(repr, there)):.400})"
            )
    once = 0 < len(set(features)) == len(features)
    if label in (client, sensitive, *features) or not once:
        raise ValueError(
            f"label = {label!r}, client = {client!r}, sensitive = {sensitive!r}, "
            f"features = {features!r:.200}: give inputs, each once, and a label "
            "that is nothing else"
        )
    return features


def check_complete(df):
    """ValueError for missing values and blank texts, naming all columns with some."""
    blank = lambda s: s.dtype.kind == "O" and s.astype(str).str.strip() == ""
    found = {c: np.flatnonzero(df[c].isna() | blank(df[c])) for c in df}
    found = {c: rows for c, rows in found.items() if len(rows)}
    for c, rows in found.items():
        said = ", ".join(f"{k!r} {len(v)}" for k, v in found.items())
        raise ValueError(
            f"missing values in the columns {said}; the first is in row {rows[0]} of "
            f"{c!r}: leave such rows out, df.dropna(subset=[{c!r}]), or fill them, as "
            f"df[{c!r}].fillna(...) with a median or a word of its own"
        )


def encoded(df, features, standardise):
    """The Table of the columns `features`; ValueError for what is no number, flag or
    word."""
    from pandas.api.types import infer_dtype  # so that `import fedlib` stays quick

    parts, names, schema, numbers = [], [], [], []
    for c in features:
        kind = infer_dtype(df[c], skipna=False)
        if kind in WORDS:
            v, columns = of_words(df[c], c)
        elif kind in NUMBERS:
            v, columns = df[c].to_numpy(np.float64)[:, None], [str(c)]
        else:
            raise ValueError(
                f"column {c!r} holds {kind}, as {df[c].iloc[0]!r:.60}: give numbers, "
                f"df[{c!r}].astype(float), or text, df[{c!r}].astype(str), of dates "
                "the years; or leave it out by features="
            )
        if kind == "integer" and not standardise and np.abs(v).max() > EXACT:
            raise ValueError(
                f"column {c!r} holds the whole number {v.flat[np.abs(v).argmax()]:.0f}"
                f", and float32 is exact up to {EXACT}: use standardise=True, or leave "
                "it out if it is an identifier"
            )
        if v.shape[1] > 1:
            schema.append((str(c), "onehot", v.shape[1]))
        elif np.isin(v, (0, 1)).all():
            schema.append((columns[0], "flag", 1))
        else:
            schema.append((columns[0], "number", 1))
            numbers.append(len(names))
        parts.append(v)
        names += columns
    return Table(np.concatenate(parts, 1), names, schema, numbers)


def of_words(s, c):
    """(columns of 0 and 1 [N, k], their names) of a column of words."""
    values = sorted(set(s.tolist()), key=natural)
    if getattr(s.dtype, "ordered", False):
        values = [u for u in s.dtype.categories if u in set(values)]
    N, k = len(s), len(values)
    if N > 20 and k > N / 2:
        raise ValueError(
            f"column {c!r} holds {k} different words in {N} rows, as {s.iloc[0]!r:.60}"
            ": an identifier or free text; leave it out by features="
        )
    v = np.eye(k)[positions(s.tolist(), values).numpy()]
    names = [f"{c}={u}" for u in values]
    return (v, names) if k > 2 else (v[:, -1:], names[-1:])


def warn_giveaway(df, features, label, K):
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
