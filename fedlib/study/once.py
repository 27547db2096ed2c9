"""What a notebook measures once and keeps: sharpness of trained models, times of
rounds, whatever takes long or never comes out twice.

    found = once("plgu-flatness", tier, flatness.measure_all, cells)

The third argument is a function, the others go to it; it returns a tree of numbers,
texts and arrays. The answer lies in evidence/kept/<name>.parquet, from where the book
is drawn, else in runs/kept/, else the function computes it. It is named like a run: by
what the function is given, runs by their names, and by the versions of the function and
of the `units` it uses. A function that is no part of this package, as one written in a
notebook, counts by its source and by what it names there.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files, provenance
from . import foreign, identity
from .evidence import FORMAT, Damaged
from .studies import Cell

STORE, RUNS = Path("evidence/kept"), Path("runs/kept")
COLUMNS = {
    "path": pa.string(),
    "kind": pa.string(),
    "shape": pa.list_(pa.int32()),
    "numbers": pa.list_(pa.float64()),
    "text": pa.string(),
}


def once(name, tier, f, *args, units=(), **more):
    """f(*args, **more), a tree of dictionaries, lists, numbers, texts, arrays and data
    frames; computed where nobody has yet.
    """
    key = key_of(name, tier, f, args, more, units)
    for path in (STORE / f"{name}.parquet", RUNS / f"{name}-{key}.parquet"):
        if path.exists():
            kept, about = read(path)
            if about["key"] == key:
                return kept
    made_by = {"commit": provenance.commit(), "source": provenance.source()}
    about = {"key": key, "tier": tier} | made_by
    return write(RUNS / f"{name}-{key}.parquet", f(*args, **more), about)


def key_of(name, tier, f, args, more, units=()):
    """The name of an answer, 16 hex digits."""
    while isinstance(f, functools.partial):
        f, args, more = f.func, (*f.args, *args), f.keywords | more
    package, _, module = f.__module__.partition(".")
    ours = package in ("fedlib", "repro", "papers")
    # whichever folder it lies in
    unit = f"measure fedlib.{module.rpartition('.')[2]}.{f.__qualname__}"
    what = {
        "name": name,
        "tier": tier,
        "measure": unit if ours else foreign.own(f),
        "given": given([args, more]),
        "versions": identity.raised([unit, *units]),
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def given(v):
    """An argument as the name sees it: a run is its name."""
    if isinstance(v, Cell):
        return v.id
    if isinstance(v, dict):
        return {str(k): given(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [given(x) for x in v]
    return v.tolist() if hasattr(v, "tolist") else identity.plain(v)


def pack(tier):
    """Copy the newest answer of each name at this tier from runs/kept into
    evidence/kept -> the paths that changed.

    Raises ValueError for one that was measured by sources that are in no commit.
    """
    newest, done = {}, []
    for path in sorted(RUNS.glob("*.parquet"), key=lambda p: p.stat().st_mtime_ns):
        about = read(path)[1]
        if about["tier"] == tier:
            newest[path.name.rpartition("-")[0]] = path, about
    for name, (path, about) in newest.items():
        to = STORE / f"{name}.parquet"
        if to.exists() and read(to)[1]["key"] == about["key"]:
            continue
        if about["commit"].endswith("+") or about["commit"] == "unknown":
            raise ValueError(
                f"{path} was measured by sources that are in no commit "
                f"({about['commit']}), so that nobody can measure it again: commit "
                "them, delete the file and draw its notebook again"
            )
        to.parent.mkdir(parents=True, exist_ok=True)
        files.whole(to, lambda f, path=path: f.write(path.read_bytes()))
        done.append(to)
    return done


# ---------------------------------------------------------- a tree <-> one row per leaf
def write(path, tree, about):
    """Write a tree, and return it as it will be read."""
    rows = [row(at, leaf) for at, leaf in leaves(tree)]
    columns = {k: pa.array([r[k] for r in rows], kind) for k, kind in COLUMNS.items()}
    meta = {"fedlib": FORMAT, "about": json.dumps(about, sort_keys=True)}
    t = pa.table(columns).replace_schema_metadata(meta)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.whole(path, lambda f: pq.write_table(t, f, compression="zstd"))
    return read(path)[0]


def leaves(tree, at=()):
    """[(path, leaf)], the path a tuple of keys and of positions in lists."""
    if isinstance(tree, dict) and tree:
        return [x for k, v in tree.items() for x in leaves(v, (*at, plain_key(k)))]
    is_list = isinstance(tree, (list, tuple))
    if is_list and not all(isinstance(v, (int, float)) for v in tree):
        return [x for i, v in enumerate(tree) for x in leaves(v, (*at, [i]))]
    return [(at, tree)]


def plain_key(k):
    """Keys are texts, whole numbers, or tuples of them."""
    return {"tuple": list(k)} if isinstance(k, tuple) else k


def row(at, leaf):
    """One leaf: numbers with their kind and shape, or a text (json for None and for
    what is empty).
    """
    out = dict.fromkeys(COLUMNS) | {"path": json.dumps(at), "kind": "text"}
    if isinstance(leaf, str):
        return out | {"text": leaf}
    # leaves() leaves no other dictionary than an empty one
    if leaf is None or isinstance(leaf, dict):
        return out | {"kind": "json", "text": json.dumps(leaf)}
    if isinstance(leaf, pd.DataFrame):
        return out | {"kind": "frame", "text": frame_text(leaf)}
    a = np.asarray(leaf)
    if a.dtype.kind not in "fiub":
        raise TypeError(
            f"once: {json.dumps(at)} is {type(leaf).__name__}; keep numbers, texts, "
            "arrays, frames, lists, dicts"
        )
    plain = isinstance(leaf, (bool, int, float, list))
    kind = type(leaf).__name__ if plain else str(a.dtype)
    numbers = a.ravel().astype(float).tolist()
    return out | {"kind": kind, "shape": list(a.shape), "numbers": numbers}


def frame_text(frame):
    """A data frame as json: the names of its index, and its columns."""
    named = [k for k in frame.index.names if k is not None]
    data = (frame.reset_index() if named else frame).to_dict("list")
    return json.dumps({"index": named, "data": data}, default=lambda v: v.item())


def read(path):
    """(tree, what is known about it) of a file. Raises Damaged."""
    try:
        t = pq.read_table(path)
        meta = t.schema.metadata or {}
        if meta.get(b"fedlib") != FORMAT:
            raise ValueError("it is not of this format")
        root = {}
        for r in t.to_pylist():
            place(root, ["", *json.loads(r["path"])], value(r))
        return listed(root.get("", {})), json.loads(meta[b"about"])
    except (OSError, pa.ArrowException, ValueError, KeyError) as e:
        raise Damaged(
            f"{path} cannot be read ({str(e).splitlines()[0]}); restore it with "
            f"`git checkout -- {path}`, or delete it and let it be measured again"
        ) from e


def value(r):
    """The leaf of a row."""
    if r["kind"] == "frame":
        kept = json.loads(r["text"])
        frame = pd.DataFrame(kept["data"])
        return frame.set_index(kept["index"]) if kept["index"] else frame
    if r["kind"] in ("text", "json"):
        return r["text"] if r["kind"] == "text" else json.loads(r["text"])
    a = np.array(r["numbers"]).reshape(r["shape"])
    if r["kind"] in ("bool", "int", "float"):
        return {"bool": bool, "int": int, "float": float}[r["kind"]](a)
    return a.tolist() if r["kind"] == "list" else a.astype(r["kind"])


def place(tree, path, leaf):
    """Put a leaf at its path; positions of lists are keys (position,) until
    `listed`.
    """
    key, *rest = path
    key = (key[0],) if isinstance(key, list) else tuple_key(key)
    if rest:
        place(tree.setdefault(key, {}), rest, leaf)
    else:
        tree[key] = leaf


def tuple_key(k):
    """A key that was a tuple, marked as one; see `plain_key`."""
    return ("tuple", *k["tuple"]) if isinstance(k, dict) else k


def listed(tree):
    """Dictionaries of positions as lists, marked tuples as keys."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(isinstance(k, tuple) and k[0] != "tuple" for k in tree):
        return [listed(v) for _, v in sorted(tree.items())]
    return {k[1:] if isinstance(k, tuple) else k: listed(v) for k, v in tree.items()}
