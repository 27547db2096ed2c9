"""A data set of items, one row each, becomes arrays or a table.

It may be a map-style torch Dataset of pairs (x, y) or of dicts, or a Hugging Face
Dataset, which has columns. Pictures become floats [channels, height, width] in [0, 1].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from .arrays import bare, per_row, plain
from .errors import nearest, warn
from .ranges import among, is_whole, listed

GREY, COLOUR = ("1", "L"), ("RGB", "P", "CMYK", "YCbCr", "HSV", "LAB")  # modes of PIL


class Columns(NamedTuple):
    """Lists of one entry per row; None where an item has no such thing.

    inputs: by key or place. classes: names of the classes, where the data set has them.
    names: what label, client and sensitive are called.
    """

    inputs: dict
    y: list
    client: object
    sensitive: object
    classes: list | None
    names: tuple


def columns_of(ds, client, label=None, sensitive=None, features=None):
    """Columns of a data set; see Task.from_dataset."""
    if hasattr(client, "load_partition"):
        ds, client = partitioned(ds, client)
    if hasattr(ds, "column_names") and hasattr(ds, "features"):  # Hugging Face
        items, names, column = ds, list(ds.column_names), lambda k: list(ds[k])
    else:
        items = items_of(ds)
        rows = list(map(parts_of, items))
        names, column = list(rows[0]), lambda k: [row[k] for row in rows]
    pairs = names == list(range(len(names)))
    label = (1 if pairs else "label") if label is None else label
    if features is None and pairs:
        features = 0 if label else 1
    if features is None:
        features = [k for k in names if not among(k, (label, client, sensitive))]
    one = isinstance(features, str) or is_whole(features)
    features = [features] if one else listed(features) or []
    for role, k in [("label", label), *(("features", k) for k in features)]:
        check_known(names, role, k)
    if not features or label in features:
        raise ValueError(
            f"features = {features!r:.80}: give one input or more, and not the label "
            f"{label!r}"
        )
    at_client, client = of_role("client", client, names, column, items)
    at_sensitive = None
    if sensitive is not None:
        at_sensitive, sensitive = of_role("sensitive", sensitive, names, column, items)
    inputs, y = {k: column(k) for k in features}, list(map(single, column(label)))
    called = label, at_client, at_sensitive
    return Columns(inputs, y, client, sensitive, class_names(ds, label), called)


def of_role(role, given, names, column, items):
    """(what it is called, one value per item): from a column, a function of (row
    number, item), or as given."""
    if isinstance(given, str):
        check_known(names, role, given)
        return given, list(map(single, column(given)))
    if callable(given) and not hasattr(given, "__array__"):
        given = [single(given(i, items[i])) for i in range(len(items))]
    values = per_row(given, role)
    if len(values) != len(items):
        raise ValueError(
            f"{role} has {len(values)} entries: give {len(items)}, one each"
        )
    return f"the {role}" if role in names else role, values


def items_of(ds):
    """The items of a data set, all read, with the same parts."""
    other = isinstance(ds, (dict, str, np.ndarray, torch.Tensor)) or hasattr(ds, "iloc")
    if other or not hasattr(ds, "__getitem__") or not hasattr(ds, "__len__"):
        raise ValueError(
            f"ds is a {type(ds).__name__}: give a map-style torch Dataset or a Hugging "
            "Face Dataset, of a DataLoader its dataset, a table to Task.from_frame, "
            "arrays to Task.from_arrays, a stream as list(ds)"
        )
    items = [ds[i] for i in range(len(ds))]
    if not items:
        raise ValueError("ds has 0 items: look at the filter that it came from")
    keys = [parts_of(v).keys() for v in items]
    for v, of in zip(items, keys):
        if of != keys[0] or len(of) < 2:
            raise ValueError(
                f"the item {v!r:.80} is no pair (x, y) and no dict, or has other parts "
                "than the first: give all items the same two parts or more"
            )
    return items


def parts_of(item):
    """An item as a dict, a tuple by its places; {} for what has no parts."""
    if isinstance(item, (tuple, list)):
        return dict(enumerate(item))
    return item if isinstance(item, dict) else {}


def check_known(names, role, k):
    if not among(k, names):
        raise ValueError(
            f"{role} = {k!r:.60} is not in the data set{nearest(k, names)} (it has "
            f"{', '.join(map(repr, names))}; of a tuple give a place)"
        )


def single(v):
    """A tensor or array of one number as that number."""
    return bare(v) if hasattr(v, "item") and np.size(v) == 1 else v


def class_names(ds, label):
    """The names that a data set gives to its classes 0 .. K-1, or None."""
    features = ds.features if hasattr(ds, "column_names") else {}
    names = getattr(features.get(label), "names", None) or getattr(ds, "classes", None)
    text = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
    return list(names) if text and len(names) > 1 else None


def partitioned(ds, partitioner):
    """(the rows of all partitions one after another, the partition of every row), of a
    partitioner of flwr-datasets."""
    from datasets import concatenate_datasets  # a partitioner comes with it

    if not partitioner.is_dataset_assigned():
        partitioner.dataset = ds
    parts = [partitioner.load_partition(i) for i in range(partitioner.num_partitions)]
    n, N, kind = [len(part) for part in parts], len(ds), type(partitioner).__name__
    if not all(n) or sum(n) > N or len(partitioner.dataset) != N:
        raise ValueError(
            f"the {kind} of {len(partitioner.dataset)} rows gives {sum(n)} rows, "
            f"{min(n)} or more to a client, and ds has {N}: let it divide these data, "
            "each row to one client and none without rows"
        )
    if sum(n) < N:
        warn(f"the {kind} leaves out {N - sum(n)} of {N} rows")
    names = getattr(partitioner, "partition_id_to_natural_id", None) or {}
    ids = [names.get(i, i) for i in range(len(parts))]
    return concatenate_datasets(parts), [c for c, k in zip(ids, n) for _ in range(k)]


# ---------------------------------------------------------------- inputs
def tabular(columns):
    """Whether the inputs are columns of single numbers or words, for a table."""
    first = [single(v[0]) for v in columns.inputs.values()]
    return all(not hasattr(v, "getpixel") and np.ndim(v) == 0 for v in first)


def table(columns):
    """The arguments of Task.from_frame that say the same."""
    import pandas as pd  # here, so that `import fedlib` stays quick

    inputs = {str(k): list(map(single, v)) for k, v in columns.inputs.items()}
    roles = zip(("label", "client", "sensitive"), map(str, columns.names), columns[1:4])
    roles = [(role, name, v) for role, name, v in roles if v is not None]
    df = pd.DataFrame(inputs | {name: v for _, name, v in roles})
    return {"df": df, "features": list(inputs)} | {role: k for role, k, _ in roles}


def stacked(columns):
    """The inputs [N, ...] of a data set with one input per item; float32 or whole."""
    if len(columns.inputs) > 1:
        raise ValueError(
            f"the data set has the inputs {list(columns.inputs)}, of which one or more "
            "are no single numbers: choose one by features="
        )
    (values,) = columns.inputs.values()
    x = np.stack([np.asarray(plain(picture(v, i))) for i, v in enumerate(values)])
    return x.astype(np.float32) if x.dtype.kind == "f" else x


def picture(v, i):
    """A picture as floats [channels, height, width] in [0, 1]; all else as it is.

    A PIL image is grey or RGB; of uint8 arrays, [H, W] is grey, a numpy array [H, W, 1
    or 3] has its channels last, and a tensor [1 or 3, H, W] first, as torchvision has.
    """
    if hasattr(v, "getpixel"):
        if v.mode not in GREY + COLOUR:
            raise ValueError(
                f"item {i} is a picture of mode {v.mode}: convert it first, as "
                'image.convert("RGB"); what lies behind transparent pixels, or the '
                "range of 16 bits, is yours to choose"
            )
        v = np.array(v.convert("L" if v.mode in GREY else "RGB"))
    if getattr(v, "dtype", None) not in (np.uint8, torch.uint8) or v.ndim not in (2, 3):
        return v
    pixels = (v if torch.is_tensor(v) else torch.tensor(v)).float() / 255
    if v.ndim == 2:
        return pixels[None]
    first, last = v.shape[0] in (1, 3), v.shape[2] in (1, 3)
    if not first and not last:
        raise ValueError(
            f"item {i} is a picture of shape {list(v.shape)}: give one or three "
            "channels, [H, W, 3] as a numpy array or [3, H, W] as a tensor"
        )
    return (
        pixels.permute(2, 0, 1)
        if last and not (first and torch.is_tensor(v))
        else pixels
    )
