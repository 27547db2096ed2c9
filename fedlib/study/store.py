"""The store of finished runs: Parquet files, which pandas, DuckDB and Polars read
without fedlib.

    evidence/<paper>-<study>/
        runs.parquet    a row per run: its name, what was run, seed, origin; `meta` has
                        the rest of its record
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
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.record import Record
from . import lock

FORMAT = b"1"
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
    across: str  # column of the axis C
    axes: tuple  # columns of the axes after it
    value: str  # column of the numbers


VIEW = ("moment", "view", "split")
CELL = ("group", "outcome", "prediction")
PARTS = {
    "hits": Part("views", VIEW, "client", (), "hits"),
    "logs": Part("logs", ("name",), "slot", (), "value"),
    "groups": Part("cells", VIEW, "client", CELL, "count"),
    "alike": Part("consistency", VIEW[:2], "client", ("kind",), "value"),
}
FILES = ("runs", *PARTS)


class Damaged(ValueError):
    """Stored runs cannot be read; says which file, and how to get it back."""


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
    """Counts [E, C] from accuracies [E, C] over n [C] rows; -1 for no rows.

    Raises ValueError unless they give the same bits.
    """
    counts = np.rint(accuracy.astype(np.float64) * n)
    hits = np.where(np.isnan(accuracy), -1, counts).astype(np.int32)
    if not same_array(accuracy_of(hits, n, accuracy.dtype), accuracy):
        raise ValueError("accuracies are no counts over the rows of the clients")
    return hits


# ---------------------------------------------------------------- records -> tables
def tables(items):
    """[(id, {columns of SPEC}, Record)] -> {file: table}, of the files that have
    rows.
    """
    rows = [run_row(i, *item) for i, item in enumerate(items)]
    out = {"runs": pa.Table.from_pylist(rows)}
    for file, part in PARTS.items():
        blocks = [
            pa.table(columns(part, i, key, a, r))
            for i, (_, _, r) in enumerate(items)
            for key, a in getattr(r, part.field).items()
        ]
        if blocks:
            t = pa.concat_tables(blocks, promote_options="permissive")
            out[file] = t.unify_dictionaries().combine_chunks()
    return out


def run_row(run, name, spec, r):
    """A row of runs.parquet; kinds {file: {key: [dtype, *shape]}}."""
    kinds = {
        file: {joined(k): [str(a.dtype), *a.shape] for k, a in arrays.items()}
        for file, arrays in ((f, getattr(r, p.field)) for f, p in PARTS.items())
    }
    rest = {k: v for k, v in r.meta.items() if k not in OWN}
    own = {k: r.meta.get(k) for k in OWN} | {"rounds": [int(t) for t in r.rounds]}
    texts = {"kinds": json.dumps(kinds), "meta": json.dumps(rest)}
    return {"run": run, "id": name} | spec | own | texts


def joined(key):
    """A view's (moment, view, split) or a log's name as one word."""
    return key if isinstance(key, str) else "|".join(key)


def columns(part, run, key, a, r):
    """An array [E, C, ...] of run number `run` as the columns of its file."""
    rounds = np.asarray(r.rounds)
    if part.field == "logs":
        a, key, rounds = a.reshape(len(a), -1), (key,), np.arange(len(a))
    a = np.swapaxes(a, 0, 1)
    client, time, *more = np.indices(a.shape, np.int32).reshape(a.ndim, -1)
    code = pa.array(np.zeros(a.size, np.int8))
    words = [pa.DictionaryArray.from_arrays(code, pa.array([w])) for w in key]
    out = {"run": np.full(a.size, run, np.int32)} | dict(zip(part.keys, words))
    out[part.across] = client.astype(np.int16)
    out["round"] = rounds[time].astype(np.int16)
    out |= {k: i.astype(np.int8) for k, i in zip(part.axes, more)}
    if part.field == "views":
        n = rows_of(r.meta, key)
        out["rows"], a = n[client].astype(np.int32), hits_of(a.T, n).T
    elif part.field == "cells":
        a = a.astype(np.int32)
    elif part.field == "logs" and same_array(a.astype(np.float32).astype(a.dtype), a):
        a = a.astype(np.float32)
    elif part.field == "logs":
        a = a.astype(np.float64)
    return out | {part.value: a.ravel()}


# ---------------------------------------------------------------- tables -> records
def read(folder, only=None):
    """{id: Record} of a stored study; only: these ids. Raises Damaged."""
    folder = there(folder)
    rows, records, kinds = table(folder, "runs").to_pylist(), {}, {}
    for row in rows:
        meta = json.loads(row["meta"]) | {k: row[k] for k in OWN if row[k] is not None}
        records[row["run"]] = Record(meta, np.array(row["rounds"], int))
        kinds[row["run"]] = json.loads(row["kinds"])
    for file in PARTS:
        if any(k[file] for k in kinds.values()):
            fill(folder, file, records, kinds)
    some = [row for row in rows if only is None or row["id"] in only]
    return {row["id"]: records[row["run"]] for row in some}


def table(folder, file):
    """A file of a folder as an Arrow table. Raises Damaged."""
    path = folder / f"{file}.parquet"
    try:
        t = pq.read_table(path)
    except (OSError, pa.ArrowException) as e:
        raise damaged(path, str(e).splitlines()[0]) from e
    if (t.schema.metadata or {}).get(b"fedlib") != FORMAT:
        raise damaged(path, f"it lacks the mark fedlib = {FORMAT.decode()}")
    return t.unify_dictionaries().combine_chunks()


def damaged(path, why):
    """Damaged, with the remedy."""
    at = path.parent
    return Damaged(
        f"{path} cannot be read ({why}); restore it with `git checkout -- {at}`, or "
        f"delete {at} and run `make evidence`"
    )


def fill(folder, file, records, kinds):
    """Put the arrays of a file into records {run: Record}, in the order in which they
    were written; kinds {run: {file: {key: [dtype, *shape]}}}.
    """
    part, t, start = PARTS[file], table(folder, file), 0
    try:
        run, value = (t[c].to_numpy() for c in ("run", part.value))
        words = [t[c].combine_chunks() for c in part.keys]
        codes = [np.asarray(w.indices) for w in words]
        names = [w.dictionary.to_pylist() for w in words]
        for i, kind in kinds.items():
            for name, (dtype, *shape) in kind[file].items():
                key = (name,) if file == "logs" else tuple(name.split("|"))
                end = start + math.prod(shape)
                for at in {start, end - 1} if end > start else ():
                    found = tuple(n[c[at]] for n, c in zip(names, codes))
                    if (run[at], found) != (i, key):
                        raise ValueError(f"{found} of run {run[at]} in place of {key}")
                a = array(file, records[i].meta, key, value[start:end], dtype, shape)
                getattr(records[i], part.field)[name if file == "logs" else key] = a
                start = end
        if start != len(value):
            raise ValueError(f"{len(value)} rows in place of {start}")
    except (KeyError, ValueError, IndexError) as e:
        why = f"it does not belong to the runs beside it: {e}"
        raise damaged(folder / f"{file}.parquet", why) from e


def array(file, meta, key, value, dtype, shape):
    """An array from its values, client by client.

    Contiguous, since the last digit of a float32 mean depends on the layout.
    """
    E, C, *rest = shape if file != "logs" else (shape[0], math.prod(shape[1:]))
    a = np.ascontiguousarray(np.swapaxes(value.reshape(C, E, *rest), 0, 1))
    if file == "hits":
        return accuracy_of(a, rows_of(meta, key), dtype)
    return a.reshape(shape).astype(dtype)


# ---------------------------------------------------------------- a folder
def pack(items, folder):
    """Write a study's runs, [(id, {columns of SPEC}, Record)]; returns bytes.

    Order and bytes depend on the runs alone. The files are written beside the folder,
    read back and compared with every record, then put in its place, so that it is whole
    whenever the process ends. Raises ValueError for a run that would not come back.
    """
    folder = Path(folder)
    new, old = folder.with_name(f".{folder.name}.new"), aside(folder)
    items = sorted(items, key=lambda x: (*(x[1][k] for k in ORDER), x[0]))
    with lock.alone(folder):
        if old.exists() and not folder.exists():  # a process died between two renames
            os.rename(old, folder)
        for left in (old, new):
            shutil.rmtree(left, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            write(items, new)
            check_back(items, new, folder)
            size = sum(f.stat().st_size for f in new.iterdir())
            if folder.exists():
                os.rename(folder, old)
            os.rename(new, folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    folder.with_name(folder.name + ".lock").unlink(missing_ok=True)
    return size


def write(items, folder):
    """Write the Parquet files."""
    how = {"compression": "zstd", "compression_level": 19, "row_group_size": 250_000}
    for file, t in tables(items).items():
        encoding, keys = None, True
        if file in PARTS:
            value = PARTS[file].value
            encoding = {value: "BYTE_STREAM_SPLIT" if value == "value" else "PLAIN"}
            keys = [c for c in t.column_names if c != value]
        how |= {"use_dictionary": keys, "column_encoding": encoding}
        t = t.replace_schema_metadata({"fedlib": FORMAT})
        pq.write_table(t, folder / f"{file}.parquet", **how)


def check_back(items, new, folder):
    """ValueError unless every record comes back from the folder `new` as it is."""
    back = read(new)
    for name, spec, r in items:
        if not same(r, back[name]):
            raise ValueError(
                f"{spec['method']} {spec['setting']} seed {spec['seed']} ({name}) does "
                f"not come back from {folder} as it was; nothing was changed there"
            )


def same(a, b):
    """Equal meta, and arrays of equal types, shapes and bits."""
    x, y = arrays(a), arrays(b)
    metas = {json.dumps(r.meta, sort_keys=True) for r in (a, b)}
    if len(metas) > 1 or x.keys() != y.keys():
        return False
    return all(same_array(x[k], y[k]) for k in x)


def arrays(r):
    """{(part, key): array} of a record, and its rounds."""
    fields = [p.field for p in PARTS.values()]
    found = {(f, k): a for f in fields for k, a in getattr(r, f).items()}
    return found | {"rounds": np.asarray(r.rounds)}


def same_array(a, b):
    """Equal type, shape and numbers; NaN is NaN."""
    floats = a.dtype.kind == "f"
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=floats)


def aside(folder):
    """Where the old files of a folder lie while new ones take their place."""
    return folder.with_name(f".{folder.name}.old")


def there(folder):
    """The folder, or the old one aside that a process which died in `pack` has left."""
    folder = Path(folder)
    return aside(folder) if aside(folder).exists() and not folder.exists() else folder


# ---------------------------------------------------------------- all folders
def listed(folder, columns=("id", *SPEC, *OWN)):
    """runs.parquet of a stored study as a list of dictionaries; an empty one where
    there is none. Raises Damaged.
    """
    path = there(folder) / "runs.parquet"
    if not path.exists():
        return []
    return _listed(path, os.stat(path).st_mtime_ns, tuple(columns))


@functools.lru_cache(maxsize=256)
def _listed(path, _changed, columns):
    return table(path.parent, "runs").select([*columns]).to_pylist()


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
