"""Somebody's own arrays become a pool; what looks wrong is refused by name.

Every value may be a list, a numpy array, a torch tensor or a pandas object. Rows
belong together by position, so pandas objects must have one index.
Letters: N rows, D columns, K classes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from numbers import Real

import numpy as np
import torch

from .check_arrays import (
    check_classes,
    check_group_count,
    check_images,
    check_owners,
    check_rows,
    name_of,
)
from .errors import nearest
from .groups import describe
from .order import natural
from .pool import Pool
from .ranges import listed
from .schema import blocks

UNSIGNED = torch.uint16, torch.uint32, torch.uint64  # torch cannot compare them
EXACT = 2**24  # up to here float32 holds every whole number


def pool_of(
    x,
    y,
    client_id,
    name="arrays",
    a=None,
    positive=None,
    schema=None,
    classes=None,
    attribute="group",
    network=None,
    at=("y", "client_id", "a"),
):
    """A Pool of x [N, ...], y [N], client_id [N] and a [N]; see Task.from_arrays.

    attribute: the name of what a holds. network: the user's own, or None. at: what y,
    client_id and a are called in messages.
    """
    at_y, at_client, at_a = at
    name_of(name)
    aligned({"x": x, "y": y, "client_id": client_id, "a": a})
    given, x = x, numbers(x)
    if schema is not None and a is None:
        raise ValueError(
            "schema is given and a is not: it is for those who draw rows of every "
            "group; give a, the group of every row, or leave schema out"
        )
    described = None if schema is None else blocks(schema, x)
    check_rows(x)
    check_images(given, x, network is not None)
    y, classes = labels(y, classes, at_y)
    owner, owners = codes(client_id, at_client, "the client of every row")
    if not len(x) == len(y) == len(owner):
        raise ValueError(
            f"x has {len(x)} rows, y {len(y)}, client_id {len(owner)}: give one "
            "label and one client per row"
        )
    check_classes(y, classes, at_y)
    check_owners(len(y), owners, at_client)
    groups = None
    if a is not None:
        a = entries(a, at_a, "the group of every row")
        if len(a) != len(y):
            raise ValueError(
                f"a has {len(a)} entries for {len(y)} rows: give the group of every row"
            )
        codes(a, at_a, "the group of every row")  # refuses what is no group
        check_group_count(a, at_a)
        a = [int(v) if isinstance(v, float) else v for v in a]
        good = positive_classes(positive, classes, at_y)
        a, groups = describe(x, a, good, described, attribute)
    elif positive is not None:
        raise ValueError(
            f"positive = {positive!r:.80} is given and a is not: it says which classes "
            "are good for a person of a group; give a, the group of every row"
        )
    names = tuple(map(shown, classes))
    numbered = all(type(c) is int and c == k for k, c in enumerate(classes))
    pool = Pool(name, x, y, len(classes), "own", owner, tuple(map(shown, owners)))
    pool = pool._replace(a=a, groups=groups, classes=() if numbered else names)
    return pool


def named(pool):
    """The pool, with a hash of its content at the end of its name."""
    arrays = [pool.x, pool.y, pool.owner, *([] if pool.a is None else [pool.a])]
    content = b"".join(v.numpy().tobytes() for v in arrays)
    content += repr((pool.K, pool.groups)).encode()
    return pool._replace(name=f"{pool.name}-{hashlib.sha256(content).hexdigest()[:8]}")


# ---------------------------------------------------------------- inputs
def floating(x):
    """Whether x came as numbers with a fraction, not as codes such as words' places."""
    return "int" not in str(getattr(x, "dtype", ""))


def numbers(x, at="x", remedy="give an array of numbers [N, ...]"):
    """x as a floating-point tensor on the CPU: as precise as it is, float32 at least.

    ValueError for what holds no numbers, and for whole numbers that float32 rounds.
    """
    plain(x, at, remedy)
    if isinstance(x, (list, tuple)) and x and all(map(torch.is_tensor, x)):
        shapes = {tuple(v.shape) for v in x}
        if len(shapes) > 1:
            ragged(at, shapes)
        x = torch.stack(list(x))
    v = x if torch.is_tensor(x) else torch.from_numpy(array(x, at))
    v = v.detach().cpu()
    if v.dtype in UNSIGNED:
        v = torch.from_numpy(array(v.numpy(), at))
    if v.is_complex():
        raise ValueError(
            f"{at} is complex ({v.dtype}); give its real and imaginary part, or its "
            "size and angle, as columns of real numbers"
        )
    if v.is_floating_point():
        return v if v.dtype in (torch.float32, torch.float64) else v.float()
    if v.numel() and v.dtype != torch.bool:
        far = max(int(v.min()), int(v.max()), key=abs)
        if abs(far) > EXACT:
            raise ValueError(
                f"{at} holds the whole number {far}, and float32 is exact up to "
                f"{EXACT} only: give {at} as float64, standardise it, or leave out a "
                "column that is an identifier"
            )
    return v.float()


def array(x, at):
    """A numpy array of numbers that torch can read.

    ValueError names what else x holds.
    """
    if is_pandas(x) and hasattr(x, "columns"):
        x = of_frame(x, at)
    try:
        v = np.asarray(x)
    except (ValueError, TypeError) as e:
        ragged(at, e)
    if v.dtype.kind not in "biufc":
        what = {"U": "text", "S": "text", "T": "text", "M": "dates", "m": "durations"}
        first = v.flat[0] if v.size else None
        raise ValueError(
            f"{at} holds {what.get(v.dtype.kind, 'objects')} ({v.dtype}), the first is "
            f"{first!r:.60}: give numbers, or a DataFrame to Task.from_frame, which "
            "turns words into columns of 0 and 1"
        )
    if isinstance(x, (list, tuple)) and type(leaf(x)) in (int, float):
        v = v.astype(np.float32) if v.dtype.kind == "f" else v  # as torch reads lists
    if v.dtype.kind == "f" and v.dtype.itemsize > 8:
        v = v.astype(np.float64)
    if v.dtype.kind == "u" and v.dtype.itemsize > 1:
        v = v.astype(np.float64 if v.size and v.max() > EXACT else np.int64)
        if v.dtype.kind == "f":
            raise ValueError(
                f"{at} holds the whole number {int(v.max())}, and float32 is exact up "
                f"to {EXACT} only: give {at} as float64, or standardise it"
            )
    v = v.astype(v.dtype.newbyteorder("="), copy=False)
    return v if v.flags.writeable and not negative(v) else v.copy()


def negative(v):
    """An array that is read backwards, which torch cannot do."""
    return any(s < 0 for s in v.strides)


def leaf(v):
    """The first entry of nested lists."""
    while isinstance(v, (list, tuple)) and v:
        v = v[0]
    return v


def of_frame(df, at):
    """The values of a DataFrame whose columns are numbers without gaps."""
    for j, (c, dtype) in enumerate(df.dtypes.items()):
        if getattr(dtype, "kind", "O") not in "biufc":
            raise ValueError(
                f"column {c!r} of {at} is {dtype}, not a number: give the DataFrame to "
                "Task.from_frame, which turns words into columns of 0 and 1"
            )
        if gone := int(df.iloc[:, j].isna().sum()):
            raise ValueError(
                f"column {c!r} of {at} has {gone} missing values: "
                "drop these rows (df.dropna()) or fill them (df.fillna(df.median()))"
            )
    return df.to_numpy(np.result_type(*[d.type for d in df.dtypes]))


def plain(v, at, remedy):
    """ValueError for what is no array at all, and for a masked one."""
    if isinstance(v, np.ma.MaskedArray):
        raise ValueError(
            f"{at} is a masked array, {int(np.ma.count_masked(v))} of its entries are "
            "masked: leave these rows out, or fill them with v.filled(...)"
        )
    if hasattr(v, "toarray"):
        raise ValueError(
            f"{at} is a sparse {type(v).__name__}: give {at}.toarray(), or leave out "
            "columns until it fits in memory"
        )
    if torch.is_tensor(v) and v.is_meta:
        raise ValueError(f"{at} is a tensor of the device meta, without data: {remedy}")
    if torch.is_tensor(v) and (v.layout != torch.strided or v.is_quantized):
        raise ValueError(f"{at} is a {v.layout} tensor; give {at}.to_dense()")
    lists = isinstance(v, Sequence) and not isinstance(v, (str, bytes))
    if not lists and not hasattr(v, "__array__") and not hasattr(v, "tolist"):
        raise ValueError(f"{at} = {v!r:.80} ({type(v).__name__}): {remedy}")


def ragged(at, why):
    raise ValueError(
        f"{at} has rows of different shapes ({why!s:.160}): pad, cut or resize them, "
        "so that all rows have one shape"
    )


def aligned(given):
    """ValueError for pandas objects whose rows are not the same rows in one order."""
    pandas = {k: v for k, v in given.items() if hasattr(v, "index") and is_pandas(v)}
    (first, *others) = pandas or (None,)
    for k in others:
        one, two = pandas[first].index, pandas[k].index
        if len(one) == len(two) and not one.equals(two):
            pairs = enumerate(zip(one.tolist(), two.tolist()))
            other = ((i, p, q) for i, (p, q) in pairs if p != q)
            i, here, there = next(other, (0, one[0], two[0]))
            raise ValueError(
                f"{first} and {k} have different indexes, at position {i} it is "
                f"{here!r} and {there!r}: rows belong together by position; take "
                f"{k}.loc[{first}.index], or, if the order is right, "
                "reset_index(drop=True) of both"
            )


def is_pandas(v):
    return type(v).__module__.partition(".")[0] == "pandas"


# ---------------------------------------------------------------- one value per row
def entries(v, at, what):
    """One hashable Python value per row, a list [N]; none of them is missing.

    ValueError says which row is wrong.
    """
    remedy = f"give {what}, one value per row"
    plain(v, at, remedy)
    shape = tuple(v.shape) if hasattr(v, "shape") else (len(v),)
    if len(shape) != 1:
        one = "; for a single column give its values, v[:, 0]" if 1 in shape[1:] else ""
        raise ValueError(f"{at} has shape {list(shape)}: {remedy}{one}")
    if torch.is_tensor(v):
        v = v.detach().cpu()
    v = np.asarray(v) if isinstance(v, memoryview) else v
    values = v.tolist() if hasattr(v, "tolist") else list(v)
    values = [bare(u) for u in map(single, values)]
    for i, u in enumerate(values):
        if missing(u):
            raise ValueError(
                f"{at} is missing at row {i} ({u!r}): {remedy}, or leave such rows out"
            )
        try:
            hash(u)
        except (TypeError, ValueError):  # the latter of a memoryview
            raise ValueError(
                f"{at} holds a {type(u).__name__} at row {i} ({u!r:.60}): {remedy}"
            ) from None
        if isinstance(u, complex):
            raise ValueError(f"{at} is complex at row {i} ({u!r}): {remedy}")
    refuse_mixed(values, at)
    return values


def refuse_mixed(values, at):
    """ValueError for True or False beside numbers: to Python True is 1."""
    flags = [i for i, u in enumerate(values) if isinstance(u, bool)]
    numbers = [u for u in values if isinstance(u, Real) and not isinstance(u, bool)]
    if flags and numbers:
        raise ValueError(
            f"{at} holds {values[flags[0]]} at row {flags[0]} and the number "
            f"{numbers[0]!r}: write all as numbers, or all as True and False"
        )


def single(v):
    """v; a tensor or an array with several entries as a list, which is refused."""
    return v.tolist() if hasattr(v, "tolist") and getattr(v, "ndim", 0) else v


def bare(v):
    """v; of a number of numpy or torch the one of Python."""
    if getattr(v, "is_meta", False):
        raise ValueError("a tensor of the device meta holds no data; give numbers")
    return v.item() if hasattr(v, "item") else v


def missing(v):
    """None, NaN, pandas' NA or NaT, or an empty text."""
    if isinstance(v, str):
        return not v.strip()
    gap = v is None or type(v).__name__ in ("NAType", "NaTType")
    return gap or (isinstance(v, float) and v != v)


def codes(v, at, what):
    """(numbers 0, 1, ... of the values [N], the values in natural order).

    ValueError for fractions, and for two values that read the same.
    """
    v = entries(v, at, what)
    values = sorted(set(v), key=natural)
    for u in values:
        if isinstance(u, float) and not u.is_integer():
            raise ValueError(
                f"{at} holds the fraction {u!r} at row {v.index(u)}: give {what}, as "
                "names or whole numbers; cut a measured quantity into bands first "
                "(pandas.cut)"
            )
    known = {}
    for u in values:
        if shown(u) in known:
            raise ValueError(
                f"{at} holds {known[shown(u)]!r} and {u!r}, which read the same: write "
                "one of them, as in [str(v) for v in values]"
            )
        known[shown(u)] = u
    number = {u: i for i, u in enumerate(values)}
    return torch.tensor([number[u] for u in v], dtype=torch.long), values


def shown(v):
    """A value as a name: 3.0, as pandas makes it, is "3"."""
    return str(int(v)) if isinstance(v, float) and v.is_integer() else str(v)


def labels(y, classes=None, at="y"):
    """(y [N] as numbers 0 .. K-1, the K classes as somebody writes them).

    Words are numbered in natural order, an ordered pandas category in its own. Whole
    numbers are what they say, so they begin at 0 and leave no gap, or `classes` lists
    them.
    """
    shape = tuple(getattr(y, "shape", ()) or np.shape(leaf_row(y)))
    if len(shape) > 1:
        several(y, shape)
    v = entries(y, at, "the class of every row")
    for i, u in enumerate(v):
        if isinstance(u, float) and not u.is_integer():
            raise ValueError(
                f"{at} holds fractions: labels must be integers 0 .. K-1, and row {i} "
                f"has {u!r}; for a quantity to predict, make bands first (pandas.cut)"
            )
    v = [int(u) if isinstance(u, float) else u for u in v]
    words = [i for i, u in enumerate(v) if not isinstance(u, Real)]
    if words and len(words) < len(v):
        other = next(i for i, u in enumerate(v) if isinstance(u, Real))
        raise ValueError(
            f"{at} mixes words and numbers, as {v[words[0]]!r:.40} at row {words[0]} "
            f"and {v[other]!r} at row {other}: write all as text, [str(v) for v in y]"
        )
    there = sorted(set(v), key=natural)
    if classes is not None:
        return by_list(v, there, classes, at)
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "ordered", False):
        there = [c for c in dtype.categories if c in set(there)]
    whole = not words and not any(isinstance(u, bool) for u in there)
    if whole and there != list(range(len(there))):
        gaps(there)
    number = {u: i for i, u in enumerate(there)}
    return torch.tensor([number[u] for u in v], dtype=torch.long), there


def leaf_row(y):
    """The nested lists that y may be, as far as their shape goes."""
    return y if isinstance(y, (list, tuple)) and y and is_row(y[0]) else ()


def is_row(v):
    return isinstance(v, (list, tuple)) or getattr(v, "ndim", 0) > 0


def several(y, shape):
    """ValueError for labels with more than one number per row."""
    v = np.asarray(y.detach().cpu() if torch.is_tensor(y) else y)
    flags = v.dtype.kind in "biuf" and np.isin(v, (0, 1)).all()
    remedy = "give one class per row; several labels per row are not supported"
    if hasattr(y, "columns"):
        remedy = f"give one column, as y[{list(y.columns)[0]!r}]"
    elif shape[1:] == (1,):
        remedy = "give the values of the single column, y[:, 0]"
    elif len(shape) == 2 and flags and (v.sum(1) == 1).all():
        remedy = "these are one-hot rows: give y.argmax(1)"
    raise ValueError(f"y has shape {list(shape)}, labels have shape [N]: {remedy}")


def gaps(there):
    """ValueError for whole numbers that are no 0 .. K-1."""
    K, lo, hi = len(there), there[0], there[-1]
    short = there if K <= 6 else [*there[:3], "...", *there[-2:]]
    written = "[" + ", ".join(map(str, short)) + "]"
    if lo == 0 and hi < 1000:
        written = f"range({hi + 1})"
    none = next(k for k in range(K + 1) if k not in there)
    gap = f", and no row has {none}" if lo >= 0 else ""
    raise ValueError(
        f"labels run from {lo} to {hi}{gap}: classes are numbered 0 to K-1 without "
        f"gaps. List every class that can occur, classes={written}, or renumber them, "
        "y = numpy.unique(y, return_inverse=True)[1]"
    )


def by_list(v, there, classes, at):
    """The same where somebody lists the classes: as labels, or as names of 0 .. K-1."""
    each = [bare(u) for u in listed(classes) or ()]
    good = len(each) > 1 and all(isinstance(u, (str, Real)) for u in each)
    if not good or len(set(map(shown, each))) < len(each):
        raise ValueError(
            f"classes = {classes!r:.80}: list all classes, two or more, each once"
        )
    classes = each
    known = {u: i for i, u in enumerate(classes)}
    if not all(u in known for u in there):
        numbered = all(isinstance(u, int) for u in there)
        if not numbered or any(isinstance(c, Real) for c in classes):
            odd = next(u for u in there if u not in known)
            raise ValueError(
                f"{at} holds {odd!r} at row {v.index(odd)}, which is not among classes "
                f"= {classes!r:.120}{nearest(odd, classes)}; add it, or leave such "
                "rows out"
            )
        if not 0 <= there[0] <= there[-1] < len(classes):
            raise ValueError(
                f"labels run from {there[0]} to {there[-1]}, and classes has "
                f"{len(classes)} names, for 0 to {len(classes) - 1}: list the names of "
                "all classes"
            )
        known = {i: i for i in range(len(classes))}
    return torch.tensor([known[u] for u in v], dtype=torch.long), classes


def positive_classes(positive, classes, at):
    """The numbers of the classes that are good for a person; None: the second."""
    if positive is None:
        return (1,)
    if isinstance(positive, (str, bytes)) or not hasattr(positive, "__iter__"):
        positive = [positive]
    known = {shown(u): i for i, u in enumerate(classes)}
    found = []
    for u in positive:
        u = bare(u)
        if shown(u) not in known:
            written = ", ".join(map(repr, classes[:20]))
            raise ValueError(
                f"positive names the class {u!r}, and {at} has {written}"
                f"{nearest(u, classes)}; name classes that are good for a person"
            )
        found.append(known[shown(u)])
    return tuple(dict.fromkeys(found))
