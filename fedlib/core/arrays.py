"""Somebody's own arrays become a pool.

Every value may be a list, a numpy array, a torch tensor or a pandas object; rows belong
together by position. What would give wrong numbers in silence is refused, what can be
trained on and looks wrong is a DataWarning.
Letters: N rows, D columns, K classes, C clients.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from numbers import Number, Real

import numpy as np
import torch

from .errors import nearest, warn
from .groups import blocks, describe, natural, positions
from .pool import Pool
from .ranges import listed

EXACT = 2**24  # up to here float32 holds every whole number
FEW = 10  # test rows of a client: one more hit moves its accuracy by 10 points
LARGE = 1e3  # a column that reaches this far is probably not standardised
MANY = 20  # groups
SIDE = 5  # pixels per side from which on [N, a, b, 3] is read as images


def pool_of(
    x, y, client_id, a, positive, classes, schema, name, own, names=None, roles=None
):
    """A Pool of x [N, ...], y [N], client_id [N] and a [N]; see Task.from_arrays.

    own: the network is the user's. names: of the columns of x [N, D]. roles: what y,
    client_id and a are called in messages, and what a holds.
    """
    at_y, at_client, at_a, attribute = roles or ("y", "client_id", "a", "group")
    same_index(x=x, y=y, client_id=client_id, a=a)
    if a is None and not (schema is None and positive is None):
        raise ValueError(
            "schema and positive are of use for groups, and a is not given: give a, "
            "the group of every row, or leave them out"
        )
    names = list(x.columns) if hasattr(x, "columns") else names
    given, x = x, numbers(x)
    check_rows(x, "your data", names)
    check_images(given, x, own)
    described = None if schema is None else blocks(schema, x)
    of_rows = {at_y: per_row(y, at_y), at_client: per_row(client_id, at_client)}
    of_rows |= {} if a is None else {at_a: per_row(a, at_a)}
    sizes = {k: len(v) for k, v in of_rows.items()}
    if set(sizes.values()) != {len(x)}:
        raise ValueError(f"x has {len(x)} rows and {sizes}: give one entry per row")
    dtype, (y, clients, *_) = getattr(y, "dtype", None), of_rows.values()
    y, classes = labels(y, dtype, classes, at_y)
    owners = sorted(set(clients), key=natural)
    check_classes(y, classes, at_y)
    check_clients(len(y), owners, at_client)
    groups = None
    if a is not None:
        good, a = positive_classes(positive, classes, at_y), of_rows[at_a]
        if len(set(a)) > MANY:
            warn(f"{at_a} has {len(set(a))} groups: make bands first (pandas.cut)")
        a, groups = describe(x, a, good, described, attribute)
    K, owner = len(classes), positions(clients, owners)
    numbered = [(type(c), c) for c in classes] == [(int, k) for k in range(K)]
    called = () if numbered else tuple(map(str, classes))
    pool = Pool(name, x, y, K, "own", owner, tuple(map(str, owners)))
    return pool._replace(a=a, groups=groups, classes=called)


def named(pool):
    """The pool, with a hash of its content at the end of its name."""
    arrays = [pool.x, pool.y, pool.owner, *([] if pool.a is None else [pool.a])]
    content = b"".join(v.numpy().tobytes() for v in arrays)
    content += repr((pool.K, pool.groups)).encode()
    return pool._replace(name=f"{pool.name}-{hashlib.sha256(content).hexdigest()[:8]}")


def same_index(**given):
    """ValueError for pandas objects whose rows are not the same rows in one order."""
    indexed = [(k, v.index) for k, v in given.items() if hasattr(v, "iloc")]
    for (first, one), (k, two) in pairwise(indexed):
        if len(one) == len(two) and not one.equals(two):
            i = int(np.argmax(one != two))
            raise ValueError(
                f"{first} and {k} have different indexes, {one[i]!r} and {two[i]!r} at "
                f"position {i}: rows belong together by position; take {k}.loc[{first}"
                ".index], or, if the order is right, reset_index(drop=True) of both"
            )


# ---------------------------------------------------------------- x
def plain(v):
    """A tensor as an array of numpy; all else as it is."""
    if not torch.is_tensor(v):
        return v
    v = v.detach().cpu()
    return (v.float() if v.dtype == torch.bfloat16 else v).numpy()


def numbers(x):
    """x as a floating-point tensor on the CPU: as precise as it is, float32 at least.

    ValueError for what are no real numbers, and for whole numbers that float32 rounds.
    """
    if hasattr(x, "columns"):
        x = x.to_numpy(np.result_type(*[d.type for d in x.dtypes]))
    if isinstance(x, np.ma.MaskedArray):
        x = x.astype(float).filled(np.nan)
    x = list(map(plain, x)) if isinstance(x, (list, tuple)) else plain(x)
    v, leaf = np.asarray(x), x
    if v.dtype.kind not in "biuf":
        raise ValueError(
            f"x holds {v.dtype}, the first is {next(v.flat, None)!r:.60}: give real "
            "numbers, or a DataFrame to Task.from_frame, which turns words into columns"
        )
    if v.dtype.kind in "iu" and v.size:
        far = max(int(v.max()), -int(v.min()))
        if far > EXACT:
            raise ValueError(
                f"x holds the whole number {far} or its negative, and float32 is exact "
                f"up to {EXACT}: give x as float64, standardise it, or leave out a "
                "column that is an identifier"
            )
    while isinstance(leaf, list | tuple) and len(leaf):
        leaf = leaf[0]
    double = v.dtype.kind == "f" and v.itemsize > 4
    if type(leaf) in (int, float):  # torch reads lists of Python's numbers as float32
        double = False
    return torch.from_numpy(np.require(v, np.float64 if double else np.float32, "CW"))


def check_rows(x, at, names=None):
    """ValueError unless x [N, D, ...] has rows, all of them finite; names: of the D."""
    if x.dim() < 2 or not x.numel():
        raise ValueError(
            f"{at}: x has shape {list(x.shape)}; give a row of numbers per label, "
            "[N, D], for a single column x[:, None]"
        )
    bad = (~x.flatten(1).isfinite().all(1)).nonzero()[:, 0]
    if len(bad):
        row = x[bad[0]].flatten()
        j = int((~row.isfinite()).nonzero()[0])
        raise ValueError(
            f"{at}: {len(bad)} rows of x hold NaN or infinity, the first is row "
            f"{int(bad[0])} in column {names[j] if names else j} ({row[j].item()}); "
            "drop or impute them first"
        )


def check_images(given, x, own=False):
    """Images are [N, channels, height, width] in [0, 1].

    given: x as it came, whose type says whether it holds pixels of 0 to 255. own: they
    go through a network of the user's, which may read another order.
    """
    shape = list(x.shape)
    if x.dim() == 4 and shape[3] in (1, 3) and min(shape[1:3]) >= SIDE:
        last = f"x has shape {shape}, images with their {shape[3]} channels last: give "
        last += "[N, channels, height, width], as x.transpose(0, 3, 1, 2)"
        if not own:
            raise ValueError(last)
        warn(last)
    if x.dim() < 3 or x.max() <= 1:
        return
    dtype = str(getattr(given, "dtype", ""))
    pixels = f"x has shape {shape} and whole numbers up to {x.max():.0f}: pixels are "
    pixels += "expected in [0, 1]; divide by 255, or by what is white"
    if "uint8" in dtype or ("int" in dtype and x.dim() == 4):
        raise ValueError(pixels)
    if x.dim() == 4 and x.min() >= 0 and torch.equal(x, x.round()):
        warn(pixels)


def warn_columns(x, names=None):
    """A DataWarning for columns of x [N, D] that reach far, naming the farthest."""
    far = x.abs().amax(0)
    many, j = int((far > LARGE).sum()), int(far.argmax())
    if many:
        warn(
            f"column {j if names is None else repr(names[j])} of x reaches "
            f"{far[j].item():g} ({many} columns reach beyond {LARGE:g}): training by "
            "gradients may diverge; standardise, as x = (x - x.mean(0)) / x.std(0)"
        )


# ---------------------------------------------------------------- one value per row
def bare(u):
    """A value as one of Python's; a whole float, as pandas makes it, as an int."""
    u = u.item() if hasattr(u, "item") else u
    return int(u) if isinstance(u, float) and u.is_integer() else u


def per_row(v, at):
    """One hashable Python value per row, a list [N]: names, or whole numbers.

    ValueError names the first row that has none, and values that only seem alike.
    """
    import pandas as pd  # here, so that `import fedlib` stays quick

    try:
        s = pd.Series(plain(v))
        values, gaps = list(map(bare, s.tolist())), s.isna().tolist()
        set(values)
    except (TypeError, ValueError, RuntimeError) as e:
        raise ValueError(f"{at} has not one value per row, [N]: {e}; give one") from e
    kinds = {}
    for i, u in enumerate(values):
        if gaps[i] or (isinstance(u, str) and not u.strip()):
            raise ValueError(
                f"{at} is missing at row {i} ({u!r}): give one value per row, or leave "
                "such rows out"
            )
        if isinstance(u, Number) and not isinstance(u, int):
            raise ValueError(
                f"{at} holds {u!r} at row {i}, no name and no whole number: cut a "
                "measured quantity into bands first (pandas.cut)"
            )
        kinds.setdefault(bool if isinstance(u, bool) else isinstance(u, int), i)
    if len(kinds) > 1:  # to Python True is 1, to a reader "1" is
        (i, j, *_) = kinds.values()
        raise ValueError(
            f"{at} mixes {values[i]!r:.40} (row {i}) and {values[j]!r:.40} (row {j}): "
            "write all as text, [str(v) for v in values], or all as numbers"
        )
    return values


def labels(v, dtype, classes, at):
    """(y [N] as numbers 0 .. K-1 of labels v [N], the K classes as one writes them).

    Words are numbered in natural order, an ordered category of pandas in its own. Whole
    numbers are what they say, so they begin at 0 and leave no gap, or `classes` lists
    them, or their names.
    """
    there = sorted(set(v), key=natural)
    if classes is not None:
        return by_list(v, there, classes, at)
    if getattr(dtype, "ordered", False):
        there = [bare(c) for c in dtype.categories if c in set(there)]
    elif isinstance(there[0], Real) and there != list(range(len(there))):
        K, lo, hi = len(there), there[0], there[-1]
        listing = f"range({hi + 1})" if lo == 0 and hi < 1000 else f"{there!s:.60}"
        raise ValueError(
            f"{at}: labels run from {lo} to {hi} and take {K} values; classes are "
            f"numbered 0 to K-1: list all, classes={listing}, or renumber them, "
            "numpy.unique(y, return_inverse=True)[1]"
        )
    return positions(v, there), there


def by_list(v, there, given, at):
    """The same where somebody lists the classes: as labels, or as names of 0 .. K-1."""
    classes = [bare(u) for u in listed(given) or ()]
    if len(set(map(str, classes))) < max(2, len(classes)):
        raise ValueError(
            f"classes = {given!r:.80}: list all classes, two or more, each once"
        )
    known, odd = classes, [u for u in there if u not in classes]
    if odd and not any(isinstance(u, Real) for u in classes):
        known = list(range(len(classes)))
        odd = [u for u in there if u not in known]
    if odd:
        raise ValueError(
            f"{at} holds {odd[0]!r} at row {v.index(odd[0])}, which is not among the "
            f"{len(classes)} classes = {classes!r:.120}{nearest(odd[0], classes)}; add "
            "it, or leave such rows out"
        )
    return positions(v, known), classes


def positive_classes(positive, classes, at):
    """The numbers of the classes that are good for a person; None: the second."""
    if positive is None:
        return (1,)
    known = {str(u): i for i, u in enumerate(classes)}
    given = listed(positive)
    good = [str(bare(u)) for u in ([positive] if given is None else given)]
    for u in good:
        if u not in known:
            raise ValueError(
                f"positive names the class {u!r:.60}, and {at} has "
                f"{', '.join(known):.200}{nearest(u, known)}; name classes that are "
                "good for a person"
            )
    return tuple(dict.fromkeys(known[u] for u in good))


# ---------------------------------------------------------------- what looks wrong
def check_classes(y, classes, at):
    """Two classes or more that occur; fewer than rows."""
    N, there = len(y), y.unique()
    if len(there) < 2:
        raise ValueError(
            f"{at} holds only the class {classes[int(y[0])]!r} in its {N} rows: there "
            "is nothing to tell apart; give rows of two classes or more"
        )
    if len(classes) > 10 and len(there) > N / 2:
        warn(
            f"{at} takes {len(there)} values in {N} rows: of a quantity make bands "
            "(pandas.cut); for an identifier choose another label"
        )


def check_clients(N, owners, at):
    """Fewer clients than rows, and more than one."""
    C = len(owners)
    said = f"{at} takes {C} different values in {N} rows, such as {owners[0]!r}: "
    if C == N:
        raise ValueError(f"{said}it numbers the rows; give whose row it is")
    if C == 1 or C > N / 5:
        warn(f"{said}give two clients or more, of five rows or more each")


def warn_clients(task):
    """A DataWarning for clients with so few test rows that accuracy is a guess."""
    n = [len(r) for r in task.test]
    few = [c for c in range(task.C) if n[c] < FEW]
    if few:
        least = min(few, key=lambda c: n[c])
        name = task.owners[least] if task.owners else least
        warn(
            f"fewer than {FEW} test rows at {len(few)} of {task.C} clients; client "
            f"{name!r} has {n[least]}, so its accuracy moves in steps of "
            f"{100 / n[least]:.0f} points: merge clients, or raise the test share"
        )
