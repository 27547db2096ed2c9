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
import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..core.errors import nearest
from ..core.provenance import sources
from ..core.ranges import is_whole

TYPES = ("float32", "float64", "float16", "int64", "int32", "uint8", "bool")
EMPTY = np.zeros(0, np.uint8)  # stands for a dict without entries, under "name/"
HEAD = 2**20  # bytes of names, types and shapes
TENSORS = 2**14
ROW = 2**13  # characters of one entry
NAME, DEPTH, DIMENSIONS = 512, 8, 32
LARGEST = 2**40  # numbers of one tensor
# the sources that decide what is computed and sent
CORE = ("core/*", "pieces/*", "methods/**/*", "nets/*", "deploy/*")


def pack(tree):
    """A tree -> {"w/fc.weight": array, ...}, in order; an empty dict inside is
    {"buffers/": no bytes}.
    """
    out = {}
    for path, v in flat(tree):
        if path.endswith("/"):
            out[path] = EMPTY
            continue
        is_tensor = isinstance(v, torch.Tensor)
        kind = v.dtype if is_tensor else type(v).__name__
        if not is_tensor or str(kind).removeprefix("torch.") not in TYPES:
            raise ValueError(f"{path!r} is {kind}: give tensors of {', '.join(TYPES)}")
        out[path] = v.detach().cpu().contiguous().numpy()
    return out


def unpack(arrays):
    """The inverse of pack; the tensors own their memory."""
    # one copy, in the byte order of this machine
    own = lambda a: torch.from_numpy(np.array(a, a.dtype.newbyteorder("=")))
    return nested(arrays, own)


def flat(tree, at=""):
    """(path, leaf) for each leaf of nested dicts; ("at/", {}) for an empty dict."""
    for k, v in tree.items():
        if not isinstance(k, str) or not k or "/" in k:
            raise ValueError(f"{at + str(k)!r} cannot be sent: give a name without '/'")
        if isinstance(v, dict) and v:
            yield from flat(v, f"{at}{k}/")
        else:
            yield (f"{at}{k}/" if isinstance(v, dict) else at + k), v


def nested(leaves, value=lambda leaf: leaf):
    """The inverse of flat, with value(leaf) in place of each leaf."""
    tree = {}
    for path, leaf in leaves.items():
        *above, name = path.split("/")
        here = tree
        for k in above:
            here = here.setdefault(k, {})
            if not isinstance(here, dict):
                raise ValueError(f"{path!r}: {k!r} is a tensor and a dict")
        if name and name in here:
            raise ValueError(f"{path!r} comes twice")
        if name:
            here[name] = value(leaf)
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
    numbers = (a.tobytes() for a in little)
    body = b"".join([len(head).to_bytes(8, "little"), head, *numbers])
    try:
        entries(body)  # else nobody could read it
    except ValueError as e:
        raise ValueError(f"a tree that cannot be sent: {e}") from None
    return body


def loads(body, limit=None):
    """The inverse of dumps: no tree that it cannot have written is read, and of the
    numbers there is one copy beside `body`.

    ValueError for anything else, and for more than `limit` bytes of numbers.
    """
    try:
        found = entries(body, limit)
    except ValueError as e:
        raise ValueError(f"this is no message of fedlib: {e}") from e
    views = {}
    for e in found:
        view = np.frombuffer(body, e.type, math.prod(e.shape), e.start)
        views[e.name] = view.reshape(e.shape)
    return unpack(views)


# ---------------------------------------------------------------- what a head may say
class Entry(NamedTuple):
    """One tensor of a message: its path, type and shape, and where its bytes begin."""

    name: str
    type: np.dtype
    shape: list
    start: int


def entries(body, limit=None):
    """The entries of a message. Everything that its head says is checked before any
    number is read or a tree is built; ValueError where it is wrong.
    """
    if not isinstance(body, bytes):
        raise ValueError(f"it is {type(body).__name__}, not bytes")
    length = int.from_bytes(body[:8], "little")
    if limit is not None and len(body) > limit + 8 + HEAD:
        raise ValueError(f"it has {len(body):,} bytes, and the limit is {limit:,}")
    if length > HEAD:
        raise ValueError(f"its head has {length:,} bytes, more than {HEAD:,}")
    head, end, found = body[8 : 8 + length], 8 + length, []
    for row in rows(head):
        check_row(*row)
        e = Entry(row[0], np.dtype(row[1]).newbyteorder("<"), row[2], end)
        end += math.prod(e.shape) * e.type.itemsize
        found.append(e)
    if end != len(body):
        raise ValueError(f"it has {len(body):,} bytes, and its head says {end:,}")
    if limit is not None and end - 8 - length > limit:
        raise ValueError(
            f"numbers of {end - 8 - length:,} bytes, the limit is {limit:,}"
        )
    check_form(head, found)
    check_bools(body, found)
    return found


def rows(head):
    """[name, type, shape] of each entry. They are read one by one: a head of nothing
    but brackets would take many times its size if it were read at once.
    """
    text = head.decode("ascii")
    if text == "[]":
        return
    if not (text.startswith('[["') and text.endswith("]]]")):
        raise ValueError(f"its head begins {text[:20]!r}")
    # a quote inside a name has a backslash before it, so this is found in no name
    parts = text[3:-3].split(']], ["', TENSORS)
    if len(parts) > TENSORS:
        raise ValueError(f"more than {TENSORS:,} tensors")
    for part in parts:
        if len(part) > ROW:
            raise ValueError(f"an entry of {len(part):,} characters: {part[:40]!r}")
        try:
            row = json.loads(f'["{part}]]')
        except RecursionError:
            raise ValueError(f"an entry of brackets: {part[:40]!r}") from None
        if len(row) != 3:
            raise ValueError(f"an entry of {len(row)} parts: {part[:40]!r}")
        yield row


def check_row(name, kind, shape):
    """ValueError unless a tensor can have this name, type and shape."""
    if not isinstance(name, str) or not name.isprintable() or len(name) > NAME:
        raise ValueError(f"the name {str(name)[:40]!r}: up to {NAME} printable letters")
    if name.count("/") > DEPTH:
        raise ValueError(f"the name {name[:40]!r}: more than {DEPTH} dicts deep")
    if kind not in TYPES:
        raise ValueError(f"{name!r} of type {kind!r}")
    if not isinstance(shape, list) or len(shape) > DIMENSIONS:
        raise ValueError(f"{name!r} of shape {str(shape)[:40]}")
    if not all(is_whole(n) and n >= 0 for n in shape):
        raise ValueError(f"{name!r} of shape {str(shape)[:40]}")
    # an empty dimension hides no other one
    if math.prod(n or 1 for n in shape) > LARGEST:
        raise ValueError(f"{name!r} of shape {str(shape)[:40]}: too large")
    if name.endswith("/") and (kind, shape) != ("uint8", [0]):
        raise ValueError(f"{name!r} is an empty dict, and has {kind} {shape}")


def check_form(head, found):
    """ValueError unless dumps writes this head: one tree has one form."""
    names = [e.name for e in found]
    if [path for path, _ in flat(nested(dict.fromkeys(names)))] != names:
        raise ValueError("its names are twice, out of order or no tree")
    if json.dumps([[e.name, e.type.name, e.shape] for e in found]).encode() != head:
        raise ValueError("its head is written in another way")


def check_bools(body, found):
    """ValueError for a bool that is neither 0 nor 1."""
    for e in found:
        if e.type.kind == "b":
            v = np.frombuffer(body, np.uint8, math.prod(e.shape), e.start)
            if v.max(initial=0) > 1:
                raise ValueError(f"{e.name!r} holds the bool {v.max()}")


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
