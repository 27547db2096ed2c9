"""A data set of items becomes a table, one row each; see Task.from_dataset."""

import numpy as np
import pandas as pd
import torch

from .errors import listed, refuse_if
from .userdata import bare, plain


def read(ds, client, label=None, sensitive=None, features=None):
    """The arguments of Task.from_frame that a data set gives; see Task.from_dataset."""
    items = items_of(ds)
    parts, pairs = [*map(parts_of, items)], not isinstance(items[0], dict)
    table = {k: [v[k] for v in parts] for k in parts[0]}
    label = (1 if pairs else "label") if label is None else label
    roles = {"client": client, "sensitive": sensitive}
    for role, given in roles.items():
        if callable(given) and not hasattr(given, "__array__"):
            given = [given(i, v) for i, v in enumerate(items)]
        if given is not None and not isinstance(given, str):
            values, roles[role] = listed(given) or [], f"the {role}"
            refuse_if(
                len(values) != len(items),
                f"{role} = {given!r:.80}: give one value for each of {len(items)} items"
                ", the name of a part, or a function of (number, item)",
            )
            table[roles[role]] = values
    if features is None:
        features = [k for k in parts[0] if k not in (label, *roles.values())]
        features = features[:1] if pairs else features
    features = listed(features) or [features]
    for k in [k for k in table if k in features]:
        table[k] = [picture(v, i) for i, v in enumerate(table[k])]
    series = lambda v: pd.Series([bare(plain(u)) for u in v])
    df = pd.DataFrame({k: series(v) for k, v in table.items()})
    hf = ds.features if hasattr(ds, "column_names") else {}
    classes = getattr(hf.get(label), "names", None) or getattr(ds, "classes", None)
    how = {"name": "dataset", "classes": classes, "label": label, "features": features}
    return how | roles | {"df": df}


def items_of(ds):
    """The items of a data set, all read, which have the same parts."""
    try:
        items = [ds[i] for i in range(len(ds))]
    except (TypeError, KeyError):  # such as a stream, or a table
        items = []
    names = [*parts_of(items[0])] if items else []
    odd = [v for v in items if [*parts_of(v)] != names or len(names) < 2]
    refuse_if(
        odd or not items,
        f"ds is a {type(ds).__name__} with {len(items)} items, of which {odd[:1]!r:.80}"
        " is no pair (x, y), no dict, or not like the first: give a map-style Dataset, "
        "of a DataLoader its dataset, a stream as list(ds), a table to from_frame",
    )
    return items


def parts_of(item):
    """An item as a dict, a tuple by its places; {} for what has no parts."""
    item = dict(enumerate(item)) if isinstance(item, (tuple, list)) else item
    return item if isinstance(item, dict) else {}


def picture(v, i):
    """A picture as floats [channels, height, width] in [0, 1]; all else as it is.

    A PIL image is grey or RGB; of uint8 arrays, [H, W] is grey, a numpy array [H, W, 1
    or 3] has its channels last, and a tensor [1 or 3, H, W] first, as torchvision."""
    if hasattr(v, "getpixel"):
        v = np.array(v.convert("L" if v.mode in ("1", "L") else "RGB"))
    if getattr(v, "dtype", None) not in (np.uint8, torch.uint8) or v.ndim not in (2, 3):
        return v
    pixels = (v if torch.is_tensor(v) else torch.tensor(v)).float() / 255
    pixels = pixels[None] if v.ndim == 2 else pixels
    first, last = len(pixels) in (1, 3), pixels.shape[-1] in (1, 3)
    refuse_if(
        not (first or last),
        f"item {i} is a picture of shape {list(v.shape)}: give 1 or 3 channels, as an "
        "array [H, W, 3] or a tensor [3, H, W]",
    )
    turned = last and not (first and (torch.is_tensor(v) or v.ndim == 2))
    return pixels.permute(2, 0, 1) if turned else pixels
