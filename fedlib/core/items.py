"""A data set of items, one row each, becomes arrays or a table.

It may be a map-style torch Dataset of pairs (x, y) or of dicts, or a Hugging Face
Dataset, which has columns. Pictures become floats [channels, height, width] in [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .arrays import bare, entries
from .errors import nearest, warn
from .ranges import among, is_whole, listed

GREY, COLOUR = ("1", "L"), ("RGB", "P", "CMYK", "YCbCr", "HSV", "LAB")  # modes of PIL


class Columns(NamedTuple):
    """Lists of one entry per row, by name; None where an item has no such thing.

    classes: names of the classes, where the data set has them. names: what label,
    client and sensitive are called.
    """

    inputs: dict
    y: list
    client: object
    sensitive: object
    classes: list | None
    names: tuple


def columns_of(ds, client, label=None, sensitive=None, features=None):
    """Columns of a data set; see Task.from_dataset."""
    usable(ds)
    if hasattr(client, "load_partition"):
        ds, client = dealt(ds, client)
    if not len(ds):
        raise ValueError("the data set has 0 items: look at the filter it came from")
    if hasattr(ds, "column_names") and hasattr(ds, "features"):  # Hugging Face
        rows, names = ds, list(ds.column_names)
        column = lambda name: list(ds[name])
    else:
        rows = [ds[i] for i in range(len(ds))]
        names = keys_of(rows)
        column = lambda name: [row[name] for row in rows]
    if isinstance(names, int):
        label, features = places(names, label, features)
    else:
        roles = [v for v in (client, sensitive) if isinstance(v, str)]
        label, features = keys(names, label, features, roles)
    if not features or label in features:
        raise ValueError(
            f"features = {features!r:.80}: give one input or more, and not the label "
            f"{label!r}"
        )
    return Columns(
        {name: column(name) for name in features},
        [single(v) for v in column(label)],
        per_row("client", client, names, column, rows),
        per_row("sensitive", sensitive, names, column, rows),
        class_names(ds, label),
        (label, named("client", client, names), named("sensitive", sensitive, names)),
    )


def keys(names, label, features, roles):
    """(label, [inputs]) among the keys of an item; roles: keys that are no inputs."""
    label = "label" if label is None else label
    known(names, "label", label)
    if features is None:
        features = [n for n in names if n not in (label, *roles)]
    features = inputs(features)
    for name in features:
        known(names, "features", name)
    return label, features


def places(n, label, features):
    """(label, [inputs]) among the n places of a tuple."""
    label = 1 if label is None else label
    if features is None:
        features = 0 if is_whole(label) and label else 1
    features = inputs(features)
    for role, place, usual in (
        ("label", label, 1),
        *(("features", place, 0) for place in features),
    ):
        if not is_whole(place) or place not in range(n):
            raise ValueError(
                f"{role} = {place!r:.60}: an item is a tuple of {n} parts; give the "
                f"place of what you mean, 0 to {n - 1} (default {usual})"
            )
    return label, features


def inputs(features):
    """Those that are named or numbered, as a list; one may stand alone."""
    one = isinstance(features, str) or is_whole(features)
    found = [features] if one else listed(features)
    if found is None:
        raise ValueError(f"features = {features!r:.80}: give a list of inputs")
    return found


def usable(ds):
    """ValueError for what has no rows that can be asked for by number."""
    kind = type(ds).__name__
    if isinstance(ds, torch.utils.data.DataLoader):
        raise ValueError(f"ds is a {kind}: give its data set, ds.dataset")
    if isinstance(ds, dict):
        names = ", ".join(map(repr, ds))
        raise ValueError(
            f"ds is a {kind} of {names}: give one of them, ds[{next(iter(ds), 0)!r}]"
        )
    if hasattr(ds, "iloc"):
        raise ValueError(f"ds is a pandas {kind}: use Task.from_frame")
    if not hasattr(ds, "__getitem__") or not hasattr(ds, "__len__"):
        raise ValueError(
            f"ds is a {kind}, which cannot be asked for item i of n: give a map-style "
            "torch Dataset or a Hugging Face Dataset; a stream must be read into a "
            "list first, list(ds)"
        )
    if torch.is_tensor(ds) or isinstance(ds, (np.ndarray, str, bytes)):
        raise ValueError(f"ds is a {kind}, no data set: use Task.from_arrays")


def keys_of(items):
    """The keys of all items, or the length of the tuples that they are."""
    first = items[0]
    if isinstance(first, dict):
        for i, item in enumerate(items):
            if not isinstance(item, dict) or item.keys() != first.keys():
                raise ValueError(
                    f"item 0 has {list(first)}, item {i} {item!r:.80}: give all items "
                    "the same keys"
                )
        return list(first)
    if not isinstance(first, (tuple, list)) or len(first) < 2:
        raise ValueError(
            f"item 0 is {first!r:.80}: an item is a pair (x, y), or a dict"
        )
    for i, item in enumerate(items):
        if not isinstance(item, (tuple, list)) or len(item) != len(first):
            raise ValueError(
                f"item 0 has {len(first)} parts, item {i} is {item!r:.80}: give all "
                "items the same parts"
            )
    return len(first)


def known(names, role, name):
    if not among(name, names):
        raise ValueError(
            f"{role} = {name!r:.60} is not in the data set{nearest(name, names)} (it "
            f"has {', '.join(map(repr, names))})"
        )


def per_row(role, given, names, column, rows):
    """One value per row: from a column, a function of (number, item), or as given."""
    if given is None and role == "sensitive":
        return None
    if isinstance(given, str):
        if isinstance(names, int):
            raise ValueError(
                f"{role} = {given!r:.60}: items are tuples and have no columns; give "
                "one value per row, or a function of (row number, item)"
            )
        known(names, role, given)
        return [single(v) for v in column(given)]
    if callable(given) and not hasattr(given, "__array__"):
        return [single(asked(role, given, i, rows[i])) for i in range(len(rows))]
    values = entries(given, role, f"the {role} of every row")
    if len(values) != len(rows):
        raise ValueError(
            f"{role} has {len(values)} entries for {len(rows)} items: give one per item"
        )
    return values


def asked(role, function, i, item):
    """What a function of somebody's own says of an item; ValueError where it fails."""
    try:
        return function(i, item)
    except Exception as e:
        raise ValueError(
            f"{role} is a function that fails at row {i} with {type(e).__name__}: "
            f"{e!s:.200}; give a function of (row number, item)"
        ) from e


def named(role, given, names):
    """The key that plays a role, or the role, where that is no key."""
    taken = not isinstance(names, int) and role in names
    return given if isinstance(given, str) else f"the {role}" if taken else role


def single(v):
    """A tensor or array of one number as that number."""
    return bare(v) if hasattr(v, "item") and np.size(v) == 1 else v


def class_names(ds, label):
    """The names that a data set gives to its classes 0 .. K-1, or None."""
    features = ds.features if hasattr(ds, "column_names") else {}
    names = getattr(features.get(label), "names", None) or getattr(ds, "classes", None)
    text = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
    return list(names) if text and len(names) > 1 else None


# ---------------------------------------------------------------- partitions
def dealt(ds, partitioner):
    """(the rows of all partitions one after another, the partition of every row), of a
    partitioner of flwr-datasets."""
    kind = type(partitioner).__name__
    if not partitioner.is_dataset_assigned():
        partitioner.dataset = ds
    whole = partitioner.dataset
    if whole is not ds and (
        len(whole) != len(ds) or whole.column_names != ds.column_names
    ):
        raise ValueError(
            f"client is a {kind} of another data set, {len(whole)} rows and columns "
            f"{whole.column_names}, and ds has {len(ds)} and {ds.column_names}: give "
            "the data set that it divides, partitioner.dataset"
        )
    parts = [partitioner.load_partition(i) for i in range(partitioner.num_partitions)]
    for i, part in enumerate(parts):
        if not len(part):
            raise ValueError(
                f"partition {i} of {len(parts)} of the {kind} has 0 rows: let it make "
                "fewer partitions, or larger ones"
            )
        if part.column_names != whole.column_names:
            raise ValueError(
                f"the {kind} divides columns, not rows (partition {i} has "
                f"{part.column_names}): a client here holds whole rows; choose a "
                "partitioner of rows"
            )
    n = [len(part) for part in parts]
    if sum(n) > len(whole):
        raise ValueError(
            f"the {kind} gives {sum(n)} rows of {len(whole)}, so a row to two clients: "
            "choose a partitioner that gives each row once"
        )
    if sum(n) < len(whole):
        warn(f"the {kind} leaves out {len(whole) - sum(n)} of {len(whole)} rows")
    names = getattr(partitioner, "partition_id_to_natural_id", None) or {}
    ids = [names.get(i, i) for i in range(len(parts))]
    from datasets import concatenate_datasets  # a partitioner comes with it

    return concatenate_datasets(parts), [c for c, k in zip(ids, n) for _ in range(k)]


# ---------------------------------------------------------------- inputs
def tabular(columns):
    """Whether the inputs are columns of single numbers or words, for a table."""
    flat = lambda v: isinstance(v, (str, bool, int, float)) or np.ndim(v) == 0
    first = [single(v[0]) for v in columns.inputs.values()]
    return all(not is_picture(v) and flat(v) for v in first)


def table(columns):
    """The arguments of Task.from_frame that say the same."""
    import pandas as pd  # here, so that `import fedlib` stays quick

    inputs = {str(k): [single(v) for v in vs] for k, vs in columns.inputs.items()}
    label, client, sensitive = map(str, columns.names)
    how = {"label": label, "client": client, "features": list(inputs)}
    more = {label: columns.y, client: columns.client}
    if columns.sensitive is not None:
        more[sensitive] = columns.sensitive
        how["sensitive"] = sensitive
    return {"df": pd.DataFrame(inputs | more), **how}


def stacked(columns):
    """The inputs [N, ...] of a data set with one input per item."""
    if len(columns.inputs) > 1:
        raise ValueError(
            f"the data set has the inputs {list(columns.inputs)}, of which one or more "
            "are no single numbers: choose one by features="
        )
    ((name, values),) = columns.inputs.items()
    rows = [picture(v, i) for i, v in enumerate(values)]
    if not all(map(torch.is_tensor, rows)):
        try:
            rows = [torch.as_tensor(np.asarray(v)) for v in rows]
        except (TypeError, ValueError) as e:
            raise ValueError(
                f"the input {name!r} holds {type(values[0]).__name__} "
                f"({values[0]!r:.60}): make numbers of it first, by a transform of the "
                "data set"
            ) from e
    for i, v in enumerate(rows):
        if v.shape != rows[0].shape:
            raise ValueError(
                f"item 0 has shape {list(rows[0].shape)}, item {i} {list(v.shape)}: "
                "resize, cut or pad the items, and give all pictures one mode, so that "
                "they have one shape"
            )
    x = torch.stack(rows)
    return x.float() if x.is_floating_point() else x


def is_picture(v):
    return hasattr(v, "mode") and hasattr(v, "getpixel")


def picture(v, i):
    """A picture as floats [channels, height, width] in [0, 1]; all else as it is.

    A PIL image is grey or RGB; of uint8 arrays, [H, W] is grey, a numpy array [H, W, 1
    or 3] has its channels last, and a tensor [1 or 3, H, W] first, as torchvision has.
    """
    if is_picture(v):
        if v.mode not in GREY + COLOUR:
            raise ValueError(
                f"item {i} is a picture of mode {v.mode}: convert it first, as "
                'image.convert("RGB"); what lies behind transparent pixels, or the '
                "range of 16 bits, is yours to choose"
            )
        v = np.array(v.convert("L" if v.mode in GREY else "RGB"))
    if getattr(v, "dtype", None) not in (np.uint8, torch.uint8):
        return v
    shape = tuple(v.shape)
    if len(shape) not in (2, 3):
        return v
    pixels = (v if torch.is_tensor(v) else torch.tensor(v)).float() / 255
    if len(shape) == 2:
        return pixels[None]
    first, last = shape[0] in (1, 3), shape[2] in (1, 3)
    if not first and not last:
        raise ValueError(
            f"item {i} is a picture of shape {list(shape)}: give one or three "
            "channels, [H, W, 3] as a numpy array or [3, H, W] as a tensor"
        )
    if last and not (first and torch.is_tensor(v)):
        pixels = pixels.permute(2, 0, 1)
    return pixels
