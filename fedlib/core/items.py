"""A data set of items, one row each, becomes columns: a table, or arrays.

It may be a map-style torch Dataset of pairs (x, y) or of dicts, or a Hugging Face
Dataset. Pictures become floats [channels, height, width] in [0, 1].
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from .errors import among, is_whole, listed, nearest
from .userdata import bare, plain

GREY, COLOUR = ("1", "L"), ("RGB", "P", "CMYK", "YCbCr", "HSV", "LAB")  # modes of PIL


def read(ds, client, label=None, sensitive=None, features=None):
    """(the door of Task that takes them, its arguments); see Task.from_dataset."""
    items = items_of(ds)
    rows = list(map(parts_of, items))
    names, column = list(rows[0]), lambda k: [row[k] for row in rows]
    pairs = names == list(range(len(names)))
    label = (1 if pairs else "label") if label is None else label
    if features is None:
        others = [k for k in names if not among(k, (label, client, sensitive))]
        features = (0 if label else 1) if pairs else others
    one = isinstance(features, str) or is_whole(features)
    features = [features] if one else listed(features) or []

    # what each role is called, and one value per item
    called, values = {"label": label}, {}
    by_key = [("label", label), *(("features", k) for k in features)]
    for role, given in {"client": client, "sensitive": sensitive}.items():
        if isinstance(given, str):
            called[role] = given
            by_key.append((role, given))
        elif role == "client" or given is not None:
            called[role] = f"the {role}" if role in names else role
            if callable(given) and not hasattr(given, "__array__"):
                given = [given(i, items[i]) for i in range(len(items))]
            values[role] = [bare(u) for u in listed(given) or ()]
    odd = [(role, k) for role, k in by_key if not among(k, names)]
    odd += [("features", features)] * (not features or label in features)
    short = [(role, len(v)) for role, v in values.items() if len(v) != len(items)]
    for role, what in odd + short:
        raise ValueError(
            f"{role} = {what!r:.60}: the data set has {len(items)} items with "
            f"{', '.join(map(repr, names))}{nearest(what, names)}; name one of them, "
            "of a tuple a place, or give one value per item; no input may be the label"
        )
    for role, k in called.items():
        values[role] = values.get(role) or list(map(bare, column(k)))

    inputs = {k: column(k) for k in features}
    how = {"name": "dataset", "classes": class_names(ds, label)}
    first = [bare(v[0]) for v in inputs.values()]
    if all(not hasattr(v, "getpixel") and np.ndim(v) == 0 for v in first):
        table = {str(k): list(map(bare, v)) for k, v in inputs.items()}
        how |= {"features": list(table)} | {role: str(k) for role, k in called.items()}
        table |= {str(k): values[role] for role, k in called.items()}
        return "from_frame", how | {"df": pd.DataFrame(table)}
    if len(inputs) > 1:
        raise ValueError(
            f"the data set has the inputs features = {features}, of which one or more "
            "are no single numbers: choose one by features="
        )
    x = [np.asarray(plain(picture(v, i))) for i, v in enumerate(inputs[features[0]])]
    x = np.stack(x)
    how |= {"x": x.astype(np.float32) if x.dtype.kind == "f" else x}
    names = {"label": "y", "client": "client_id", "sensitive": "a"}
    return "from_arrays", how | {names[role]: v for role, v in values.items()}


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
    parts = [parts_of(v).keys() for v in items]
    odd = [v for v, of in zip(items, parts) if of != parts[0] or len(of) < 2]
    if odd or not items:
        raise ValueError(
            f"ds has {len(items)} items, and of {odd[:1]!r:.80} no pair (x, y) and no "
            "dict, or other parts than the first: give all the same two parts or more"
        )
    return items


def parts_of(item):
    """An item as a dict, a tuple by its places; {} for what has no parts."""
    if isinstance(item, (tuple, list)):
        return dict(enumerate(item))
    return item if isinstance(item, dict) else {}


def class_names(ds, label):
    """The names that a data set gives to its classes 0 .. K-1, or None."""
    features = ds.features if hasattr(ds, "column_names") else {}
    names = getattr(features.get(label), "names", None) or getattr(ds, "classes", None)
    text = isinstance(names, (list, tuple)) and all(isinstance(n, str) for n in names)
    return list(names) if text and len(names) > 1 else None


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
    turned = last and not (first and torch.is_tensor(v))
    return pixels.permute(2, 0, 1) if turned else pixels
