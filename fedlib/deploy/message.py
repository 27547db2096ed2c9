"""What travels: trees of tensors as named arrays and as bytes. Nothing is pickled, so
nothing that arrives can run.

    arrays = pack(tree)               {"w/fc.weight": array, ...}; unpack(arrays) back
    body = dumps(tree)                length, names, numbers; loads(body, limit) back
    tree = check(tree, like, limit)   in the names, shapes and types that are expected,
                                      or a ValueError that says why not
    code()                            hash of the source: both ends of a message must
                                      run the same
"""

from __future__ import annotations

import json
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import torch

from ..core.errors import nearest
from ..core.provenance import sources

TYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
EMPTY = np.zeros(0, np.uint8)  # stands for a dict without entries, under "name/"
# the sources that decide what is computed and sent
CORE = ("core/*", "pieces/*", "methods/**/*", "nets/*", "deploy/*")


def pack(tree, at=""):
    """A tree -> {"w/fc.weight": array, ...}, in order; an empty dict inside is
    {"buffers/": no bytes}.
    """
    out = {}
    for k, v in tree.items():
        if not isinstance(k, str) or not k or "/" in k:
            raise ValueError(f"{at + str(k)!r} cannot be sent: give a name without '/'")
        if isinstance(v, dict):
            out |= pack(v, f"{at}{k}/") if v else {f"{at}{k}/": EMPTY}
            continue
        is_tensor = isinstance(v, torch.Tensor)
        kind = v.dtype if is_tensor else type(v).__name__
        if not is_tensor or str(kind).removeprefix("torch.") not in TYPES:
            raise ValueError(
                f"{at + k!r} is {kind}: give tensors of {', '.join(TYPES)}"
            )
        out[at + k] = v.detach().cpu().contiguous().numpy()
    return out


def unpack(arrays):
    """The inverse of pack; the tensors own their memory."""
    tree = {}
    for path, a in arrays.items():
        *above, name = path.split("/")
        here = tree
        for k in above:
            here = here.setdefault(k, {})
            if not isinstance(here, dict):
                raise ValueError(f"{path!r}: {k!r} is a tensor and a dict")
        if name and name in here:
            raise ValueError(f"{path!r} comes twice")
        if name:
            here[name] = torch.from_numpy(np.array(a))
    return tree


def size(tree):
    """Bytes of the numbers of a tree."""
    return sum(a.nbytes for a in pack(tree).values())


def dumps(tree):
    """A tree as bytes: the length of the head (8 bytes), the head [[name, type, shape],
    ...] as json, the numbers.
    """
    arrays = pack(tree)
    names = [[k, a.dtype.name, list(a.shape)] for k, a in arrays.items()]
    head = json.dumps(names).encode()
    little = (a.astype(a.dtype.newbyteorder("<"), copy=False) for a in arrays.values())
    body = (a.tobytes() for a in little)
    return b"".join([len(head).to_bytes(8, "little"), head, *body])


def loads(body, limit=None):
    """The inverse of dumps.

    ValueError for anything else, and for more than `limit` bytes.
    """
    if limit is not None and len(body) > limit + 2**20:  # names are small
        raise ValueError(
            f"a message of {len(body):,} bytes, and the limit is {limit:,}"
        )
    try:
        n = 8 + int.from_bytes(body[:8], "little")
        head, arrays = json.loads(body[8:n]), {}
        for name, kind, shape in (
            head if isinstance(head, list) else [(head, None, None)]
        ):
            if kind not in TYPES or name in arrays:
                raise ValueError(f"{name!r} of type {kind!r}")
            kind, count = np.dtype(kind).newbyteorder("<"), prod(shape)
            arrays[name] = (
                np.frombuffer(body, kind, count, n)
                .reshape(shape)
                .astype(kind.newbyteorder("="))
            )
            n += count * kind.itemsize
        if n != len(body):
            raise ValueError(f"{len(body) - n} bytes are left over")
        return unpack(arrays)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise ValueError(f"this is no message of fedlib: {e}") from e


def check(tree, like, limit):
    """The tree in the order of `like`.

    ValueError for other names, shapes or types, for NaN or infinity, or too many bytes.
    """
    if not isinstance(tree, dict):
        raise ValueError(f"the answer is {type(tree).__name__}, not a tree")
    got, want = pack(tree), pack(like)
    total = sum(a.nbytes for a in got.values())
    if total > limit:
        raise ValueError(f"a payload of {total:,} bytes, and the limit is {limit:,}")
    for k in got:
        if k not in want:
            raise ValueError(
                f"unknown name {k!r}{nearest(k, [w for w in want if w not in got])}"
            )
    for k, w in want.items():
        if k not in got:
            raise ValueError(f"{k!r} is missing")
        a = got[k]
        if a.shape != w.shape or a.dtype != w.dtype:
            raise ValueError(
                f"{k!r} is {a.dtype} {list(a.shape)}, expected {w.dtype} "
                f"{list(w.shape)}"
            )
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            raise ValueError(f"{k!r} holds NaN or infinity")
    return unpack({k: got[k] for k in want})


@cache
def code(root=Path(__file__).parents[1]):
    """Hash of the source files that decide what is computed and sent."""
    return sources(*(f"{name}.py" for name in CORE), root=root)[:16]
