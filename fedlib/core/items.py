"""A data set of items, one row each, becomes columns: a table, or arrays.

It may be a map-style torch Dataset of pairs (x, y) or of dicts, or a Hugging Face
Dataset. Pictures become floats [channels, height, width] in [0, 1].
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from .errors import among, is_whole, listed, nearest, refuse_if
from .userdata import bare, plain

GREY, COLOUR = ("1", "L"), ("RGB", "P", "CMYK", "YCbCr", "HSV", "LAB")  # modes of PIL


def read(ds, client, label=None, sensitive=None, features=None):
    """(the door of Task that takes them, its arguments); see Task.from_dataset."""
    items, names = items_of(ds)
    pairs = names == list(range(len(names)))
    label = (1 if pairs else "label") if label is None else label
    if features is None:
        others = [k for k in names if not among(k, (label, client, sensitive))]
        features = (0 if label else 1) if pairs else others
    one = isinstance(features, str) or is_whole(features)
    features = [features] if one else listed(features) or []
    column = lambda k: [parts_of(v)[k] for v in items] if among(k, names) else []

    roles = {"label": label, "client": client}
    roles |= {} if sensitive is None else {"sensitive": sensitive}
    values, called = {}, {}  # one value per item, and what messages call it
    for role, given in roles.items():
        key = role == "label" or isinstance(given, str)
        if callable(given) and not hasattr(given, "__array__"):
            given = [given(i, v) for i, v in enumerate(items)]
        values[role] = list(map(bare, column(given) if key else listed(given) or []))
        called[role] = f"{given}" if key else f"the {role}" if role in names else role
    odd = {r: roles[r] for r, v in values.items() if len(v) != len(items)}
    if not features or label in features or not all(among(k, names) for k in features):
        odd["features"] = features
    said = "; ".join(f"{r} = {v!r:.60}{nearest(v, names)}" for r, v in odd.items())
    refuse_if(
        odd,
        f"{said}: {len(items)} items have {names!r:.200}; name one of them, of a "
        "tuple a place, or give one value per item; no input may be the label",
    )
    inputs = {f"{k}": column(k) for k in features}
    hf = ds.features if hasattr(ds, "column_names") else {}
    classes = getattr(hf.get(label), "names", None) or getattr(ds, "classes", None)
    how = {"name": "dataset", "classes": classes}
    if not any(hasattr(v[0], "getpixel") or np.ndim(v[0]) for v in inputs.values()):
        table = {k: list(map(bare, v)) for k, v in inputs.items()}
        table |= {called[role]: v for role, v in values.items()}
        how |= {"df": pd.DataFrame(table), "features": [*inputs]}
        return "from_frame", how | called
    refuse_if(
        len(inputs) > 1,
        f"features = {features}, and not all are single numbers: choose one of them",
    )
    x = [plain(picture(v, i)) for i, v in enumerate(*inputs.values())]
    x = np.stack(list(map(np.asarray, x)))
    how |= {"x": x.astype(np.float32) if x.dtype.kind == "f" else x}
    names = {"label": "y", "client": "client_id", "sensitive": "a"}
    return "from_arrays", how | {names[role]: v for role, v in values.items()}


def items_of(ds):
    """(the items of a data set, all read; their parts, which are the same)"""
    other = isinstance(ds, (dict, str, np.ndarray, torch.Tensor)) or hasattr(ds, "iloc")
    refuse_if(
        other or not hasattr(ds, "__getitem__") or not hasattr(ds, "__len__"),
        f"ds is a {type(ds).__name__}: give a map-style Dataset, of a DataLoader its "
        "dataset, a stream as list(ds), a table to from_frame, arrays to from_arrays",
    )
    items = [ds[i] for i in range(len(ds))]
    names = list(parts_of(items[0])) if items else []
    odd = [v for v in items if list(parts_of(v)) != names or len(names) < 2]
    refuse_if(
        odd or not items,
        f"ds has {len(items)} items, of which {odd[:1]!r:.80} is no pair (x, y) and no "
        "dict, or not like the first: give all the same two parts or more",
    )
    return items, names


def parts_of(item):
    """An item as a dict, a tuple by its places; {} for what has no parts."""
    item = dict(enumerate(item)) if isinstance(item, (tuple, list)) else item
    return item if isinstance(item, dict) else {}


def picture(v, i):
    """A picture as floats [channels, height, width] in [0, 1]; all else as it is.

    A PIL image is grey or RGB; of uint8 arrays, [H, W] is grey, a numpy array [H, W, 1
    or 3] has its channels last, and a tensor [1 or 3, H, W] first, as torchvision has.
    """
    mode = v.mode if hasattr(v, "getpixel") else "RGB"
    if hasattr(v, "getpixel"):
        v = np.array(v.convert("L" if mode in GREY else "RGB"))
    if getattr(v, "dtype", None) not in (np.uint8, torch.uint8) or v.ndim not in (2, 3):
        return v
    pixels = (v if torch.is_tensor(v) else torch.tensor(v)).float() / 255
    pixels = pixels[None] if v.ndim == 2 else pixels
    first, last = len(pixels) in (1, 3), pixels.shape[-1] in (1, 3)
    refuse_if(
        mode not in GREY + COLOUR or not (first or last),
        f"item {i} is a picture of mode {mode} and shape {list(v.shape)}: give 1 or 3 "
        'channels, as image.convert("RGB"), an array [H, W, 3] or a tensor [3, H, W]',
    )
    turned = last and not (first and (torch.is_tensor(v) or v.ndim == 2))
    return pixels.permute(2, 0, 1) if turned else pixels
