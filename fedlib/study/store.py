"""The store of finished runs: Parquet files, which pandas, DuckDB and Polars read
without fedlib.

    evidence/<paper>-<study>/
        runs.parquet    a row per run: its name, what was run, seed, origin; `meta` has
                        the rest of its record, `kinds` the types and shapes of its
                        arrays, in the order of the other files
        hits.parquet    run, moment, view, split, client, round, rows, hits: of the rows
                        of a client, how many are right
        logs.parquet    run, name, slot, round, value; slot: place in the cohort
        groups.parquet  run, moment, view, split, client, round, group, outcome,
                        prediction, count
        alike.parquet   run, moment, view, client, round, kind, value: consistency, see
                        engine.score

Hits are exact counts: hits / rows in float32 is bit for bit the accuracy that the run
recorded; -1 is a client without rows. An array [E, C, ...] is stored client by client,
then round by round: neighbours in a file are neighbours in time, which compresses well.
Letters: E evaluated rounds, C clients.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.record import Record
from . import lock

SPEC = (  # columns that say what was run
    *("paper", "study", "dataset", "label", "method", "setting", "seed", "data"),
    *("task", "kwargs", "engine", "versions"),
)
# of a run's meta, as columns; its rest repeats
OWN = ("seconds", "device", "torch", "commit", "source")
ORDER = ("dataset", "method", "setting", "seed")  # of runs in a folder
ROWS = {  # (moment, split) -> key of meta["n"], where it is not the split's name
    ("guest", "test"): "guest",
    ("guest", "val"): "guest_val",
    ("guest", "all"): "guest_train",
}


class Part(NamedTuple):
    """How a part of a Record, {key: array [E, C, ...]}, is stored."""

    field: str  # of the Record
    keys: tuple  # columns of the key
    axes: tuple  # columns of the axes after E
    value: str  # column of the numbers


VIEW = ("moment", "view", "split")
TABLE = ("client", "group", "outcome", "prediction")
PARTS = {
    "hits": Part("views", VIEW, ("client",), "hits"),
    "logs": Part("logs", ("name",), ("slot",), "value"),
    "groups": Part("cells", VIEW, TABLE, "count"),
    "alike": Part("consistency", VIEW[:2], ("client", "kind"), "value"),
}
FILES = ("runs", *PARTS)


class Damaged(ValueError):
    """Something stored cannot be read; says what, and how to get it back."""


@contextmanager
def reading(path):
    """What goes wrong inside is Damaged, with the remedy."""
    try:
        yield
    except (OSError, EOFError, LookupError, TypeError, ValueError) as e:
        raise Damaged(
            f"{path} cannot be read ({e!s:.200}); restore it with `git checkout -- "
            f"{path}`, or delete it and make it again, as by `make evidence`"
        ) from e


def rows_of(meta, key):
    """Rows [C] behind the accuracies of a key: of guests, or of the clients."""
    moment, _, split = key
    usual = "train" if split == "all" else split
    return np.array(meta["n"][ROWS.get((moment, split), usual)])


def accuracy_of(hits, n, dtype=np.float32):
    """Accuracies [E, C] from hits [E, C] and rows n [C]; NaN for a client without."""
    with np.errstate(all="ignore"):
        accuracy = hits.astype(dtype) / n.astype(dtype)
    return np.where(hits < 0, np.nan, accuracy).astype(dtype)


def hits_of(accuracy, n):
    """Counts [E, C] from accuracies [E, C] over n [C] rows; -1 for no rows."""
    counts = np.rint(accuracy.astype(np.float64) * n)
    return np.where(np.isnan(accuracy), -1, counts).astype(np.int32)


# ---------------------------------------------------------------- records -> tables
def tables(items):
    """[(id, {columns of SPEC}, Record)] -> {file: table}, of files that have rows."""
    rows, blocks = [], {file: [] for file in PARTS}
    for i, (name, spec, r) in enumerate(items):
        kinds = {file: {} for file in PARTS}
        for file, part in PARTS.items():
            for key, a in getattr(r, part.field).items():
                key = (key,) if file == "logs" else key
                kinds[file]["|".join(key)] = [str(a.dtype), *a.shape]
                blocks[file].append(pa.table(columns(part, i, key, a, r)))
        own = {k: r.meta.get(k) for k in OWN} | {"rounds": [int(t) for t in r.rounds]}
        rest = {k: v for k, v in r.meta.items() if k not in OWN}
        texts = {"kinds": json.dumps(kinds), "meta": json.dumps(rest)}
        rows.append({"run": i, "id": name} | spec | own | texts)
    out = {"runs": pa.Table.from_pylist(rows)}
    for file in filter(blocks.get, PARTS):
        t = pa.concat_tables(blocks[file], promote_options="permissive")
        out[file] = t.unify_dictionaries().combine_chunks()
    return out


def columns(part, run, key, a, r):
    """An array [E, C, ...] of run number `run` as the columns of its file."""
    rounds = np.asarray(r.rounds)
    if part.field == "logs":
        a, rounds = a.reshape(len(a), -1), np.arange(len(a))
    a = np.swapaxes(a, 0, 1)
    across, time, *more = np.indices(a.shape, np.int32).reshape(a.ndim, -1)
    out = {"run": np.full(a.size, run, np.int32)}
    out |= {k: pa.repeat(w, a.size).dictionary_encode() for k, w in zip(part.keys, key)}
    out[part.axes[0]] = across.astype(np.int16)
    out["round"] = rounds[time].astype(np.int16)
    out |= {k: i.astype(np.int8) for k, i in zip(part.axes[1:], more)}
    if part.field == "views":
        n = rows_of(r.meta, key)
        out["rows"], a = n[across].astype(np.int32), hits_of(a.T, n).T
    elif part.field == "cells":
        a = a.astype(np.int32)
    elif part.field == "logs":  # in half the bytes where these hold the same numbers
        small = a.astype(np.float32)
        a = small if same_array(small.astype(a.dtype), a) else a.astype(np.float64)
    return out | {part.value: a.ravel()}


# ---------------------------------------------------------------- tables -> records
def read(folder, only=None):
    """{id: Record} of a stored study; only: these ids. Raises Damaged."""
    folder, records, described = there(folder), {}, {file: [] for file in PARTS}
    with reading(folder):
        for row in pq.read_table(folder / "runs.parquet").to_pylist():
            own = {k: row[k] for k in OWN if row[k] is not None}
            meta, rounds = json.loads(row["meta"]) | own, np.array(row["rounds"], int)
            record = records[row["id"]] = Record(meta, rounds)
            for file, kinds in json.loads(row["kinds"]).items():
                described[file] += [(row["run"], record, *x) for x in kinds.items()]
        for file in filter(described.get, PARTS):
            t = pq.read_table(folder / f"{file}.parquet")
            fill(PARTS[file], t, *zip(*described[file]))
    return {i: r for i, r in records.items() if only is None or i in only}


def fill(part, t, runs, records, names, kinds):
    """Put the arrays in a file, table t, into their records; described one after
    another by number of the run, record, name and [type, *shape].
    """
    sizes = [math.prod(shape) for _, *shape in kinds]
    if not np.array_equal(np.repeat(runs, sizes), t["run"]):
        raise ValueError(f"runs.parquet describes other runs than {part.field} has")
    values = np.split(t[part.value].to_numpy(), np.cumsum(sizes))
    for record, name, (dtype, *shape), v in zip(records, names, kinds, values):
        E, C, *rest = shape if part.field != "logs" else (shape[0], -1)
        # contiguous, since the last digit of a float32 mean depends on the layout
        a = np.ascontiguousarray(np.swapaxes(v.reshape(C, E, *rest), 0, 1))
        key = name if part.field == "logs" else tuple(name.split("|"))
        if part.field == "views":
            a = accuracy_of(a, rows_of(record.meta, key), dtype)
        getattr(record, part.field)[key] = a.reshape(shape).astype(dtype)


# ---------------------------------------------------------------- a folder
def pack(items, folder):
    """Write a study's runs, [(id, {columns of SPEC}, Record)]; returns bytes.

    Order and bytes depend on the runs alone. The files are written beside the folder,
    read back and compared with every record, then put in its place, so that it is whole
    whenever the process ends. Raises ValueError for a run that would not come back.
    """
    folder = Path(folder)
    new, old = (folder.with_name(f".{folder.name}.{k}") for k in ("new", "old"))
    items = sorted(items, key=lambda x: (*(x[1][k] for k in ORDER), x[0]))
    with lock.alone(folder):
        if there(folder) == old:  # a process died between the two renames
            os.rename(old, folder)
        for left in (old, new):
            shutil.rmtree(left, ignore_errors=True)
        try:
            write(items, new)
            if folder.exists():
                os.rename(folder, old)
            os.rename(new, folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    return sum(f.stat().st_size for f in folder.iterdir())


def write(items, folder):
    """Write the Parquet files into a new folder, and read them back."""
    folder.mkdir(parents=True)
    how = {"compression": "zstd", "compression_level": 19, "row_group_size": 250_000}
    for file, t in tables(items).items():
        encoding, keys = None, True
        if file in PARTS:
            value = PARTS[file].value
            encoding = {value: "BYTE_STREAM_SPLIT" if value == "value" else "PLAIN"}
            keys = [c for c in t.column_names if c != value]
        how |= {"use_dictionary": keys, "column_encoding": encoding}
        t = t.replace_schema_metadata({"fedlib": "1"})
        pq.write_table(t, folder / f"{file}.parquet", **how)
    back = read(folder)
    for name, _, r in items:
        if not same(r, back[name]):
            raise ValueError(
                f"run {name} does not come back from {folder} as it was: accuracies "
                "must be counts over the rows of the clients"
            )


def same(a, b):
    """Equal meta, and arrays of equal types, shapes and bits."""
    x, y = ({"rounds": np.asarray(r.rounds)} | r.arrays() for r in (a, b))
    metas = {json.dumps(r.meta, sort_keys=True) for r in (a, b)}
    alike = len(metas) == 1 and x.keys() == y.keys()
    return alike and all(same_array(x[k], y[k]) for k in x)


def same_array(a, b):
    """Equal type, shape and numbers; NaN is NaN."""
    floats = a.dtype.kind == "f"
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=floats)


def there(folder):
    """The folder, or the old one beside it, where a process died in `pack`."""
    folder = Path(folder)
    old = folder.with_name(f".{folder.name}.old")
    return old if old.exists() and not folder.exists() else folder


# ---------------------------------------------------------------- all folders
def listed(folder, columns=("id", *SPEC, *OWN)):
    """runs.parquet of a stored study as a list of dictionaries; an empty one where
    there is none. Raises Damaged.
    """
    path = there(folder) / "runs.parquet"
    with reading(folder):
        t = pq.read_table(path, columns=[*columns]) if path.exists() else None
    return [] if t is None else t.to_pylist()


def find(ids, paper, study, root="evidence"):
    """{id: Record} of those runs that are stored, first in the study's own folder, then
    in the paper's others.
    """
    root, out = Path(root), {}
    own = root / f"{paper}-{study}"
    for folder in [own, *sorted(f for f in root.glob(f"{paper}-*") if f != own)]:
        wanted = set(ids) - set(out)
        wanted &= {row["id"] for row in listed(folder, ("id",))} if wanted else set()
        if wanted:
            changed = os.stat(there(folder) / "runs.parquet").st_mtime_ns
            out |= _found(folder, changed, frozenset(wanted))
    return out


@functools.lru_cache(maxsize=4)
def _found(folder, _changed, ids):
    return read(folder, ids)
