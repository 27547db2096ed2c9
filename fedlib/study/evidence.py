"""Evidence: the finished runs of a study as Parquet files, which pandas, DuckDB and
Polars read without fedlib.

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
recorded; -1 is a client without rows. The files are written by fedlib.study.packing,
which reads them back and compares, and read here. A study's key `logs` {name: seeds}
keeps a log that has a number for every client and round for so many seeds only; the
weights of a model are not kept at all.

Letters: E evaluated rounds, C clients, A groups.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.record import Record

FORMAT = b"1"
FILES = ("runs", "hits", "logs", "groups", "alike")
# file -> part of a Record
PART = {"hits": "views", "logs": "logs", "groups": "cells", "alike": "consistency"}
# file -> the column that is not a key
VALUE = {"hits": "hits", "logs": "value", "groups": "count", "alike": "value"}
SPEC = (  # columns that say what was run
    *("paper", "study", "dataset", "label", "method", "setting", "seed", "data"),
    *("task", "kwargs", "engine", "versions"),
)
# of a run's meta, as columns; its rest repeats
OWN = ("seconds", "device", "torch", "commit", "source")
ROWS = {  # (moment, split) -> key of meta["n"], where it is not the split's name
    ("guest", "test"): "guest",
    ("guest", "val"): "guest_val",
    ("guest", "all"): "guest_train",
}


class Damaged(ValueError):
    """Stored evidence cannot be read; says which file, and how to get it back."""


def rows_of(meta, moment, split):
    """Rows per client [C] behind an accuracy."""
    usual = "train" if split == "all" else split
    return np.array(meta["n"][ROWS.get((moment, split), usual)])


def accuracy_of(hits, n, dtype=np.float32):
    """Accuracies [E, C] from hits [E, C] and rows n [C]; NaN for a client without."""
    with np.errstate(all="ignore"):
        accuracy = hits.astype(dtype) / n.astype(dtype)
    return np.where(hits < 0, np.nan, accuracy).astype(dtype)


# ---------------------------------------------------------------- one folder
def aside(folder):
    """Where the old files of a folder lie while new ones take their place."""
    return folder.with_name(f".{folder.name}.old")


def there(folder):
    """The folder, or the old one aside that a process which died in `packing.swap` has
    left.
    """
    folder = Path(folder)
    return aside(folder) if aside(folder).exists() and not folder.exists() else folder


def read(folder, only=None):
    """{id: Record} of a packed study; only: these ids. Raises Damaged."""
    folder = there(folder)
    rows = table(folder, "runs").to_pylist()
    records, kinds = {}, {}
    for row in rows:
        meta = json.loads(row["meta"]) | {k: row[k] for k in OWN if row[k] is not None}
        records[row["run"]] = Record(meta, np.array(row["rounds"], int))
        kinds[row["run"]] = json.loads(row["kinds"])
    for kind in VALUE:
        if any(k[kind] for k in kinds.values()):
            fill_whole(folder, kind, records, kinds)
    return {
        row["id"]: records[row["run"]]
        for row in rows
        if only is None or row["id"] in only
    }


def table(folder, name):
    """A file of a folder as an Arrow table. Raises Damaged."""
    path = folder / f"{name}.parquet"
    try:
        t = pq.read_table(path)
    except (OSError, pa.ArrowInvalid, pa.ArrowException) as e:
        why = str(e).splitlines()[0]
        raise Damaged(f"{path} cannot be read ({why}); {again(folder)}") from e
    if (t.schema.metadata or {}).get(b"fedlib") != FORMAT:
        raise Damaged(
            f"{path} is not evidence of this format: it lacks the mark "
            f"fedlib = {FORMAT.decode()}; {again(folder)}"
        )
    return t.unify_dictionaries().combine_chunks()


def again(folder):
    """How to get a damaged folder back."""
    return (
        f"restore it with `git checkout -- {folder}`, or delete {folder} and run "
        "`make evidence`"
    )


def fill_whole(folder, kind, records, kinds):
    """`fill` from a file of the folder; Damaged unless it fills every run's part."""
    try:
        fill(kind, table(folder, kind), records, kinds)
        whole = all(
            len(getattr(r, PART[kind])) == len(kinds[run][kind])
            for run, r in records.items()
        )
    except Damaged:
        raise
    except (KeyError, ValueError, IndexError):
        whole = False
    if not whole:
        raise Damaged(
            f"{folder}/{kind}.parquet does not belong to the runs beside it; "
            + again(folder)
        )


def fill(kind, t, records, kinds):
    """Put the arrays of one file into the records {run: Record}.

    t: the file's table; kinds {run: {file: {key: [dtype, *shape]}}}.
    """
    number = lambda c: t[c].to_numpy()
    run, value = number("run"), number(VALUE[kind])
    words = [c for c in ("name", "moment", "view", "split") if c in t.column_names]
    coded = [t[c].combine_chunks() for c in words]
    codes = [np.asarray(c.indices) for c in coded]
    names = [c.dictionary.to_pylist() for c in coded]
    for start, end in stretches(run, *codes):
        r, v = records[run[start]], value[start:end]
        key = tuple(n[c[start]] for n, c in zip(names, codes))
        dtype, first, *rest = kinds[run[start]][kind]["|".join(key)]
        if kind == "logs":
            r.logs[key[0]] = turned(v, -1, first).reshape(first, *rest).astype(dtype)
        elif kind == "hits":
            n = rows_of(r.meta, key[0], key[2])
            r.views[key] = accuracy_of(turned(v, rest[0], first), n, dtype)
        else:
            array = turned(v, rest[0], first, *rest[1:])
            getattr(r, PART[kind])[key] = array.astype(dtype)


def turned(v, *shape):
    """The inverse of `packing.flat`: values v as an array of this shape with its first
    two axes exchanged.

    Contiguous, since the last digit of a float32 mean depends on the layout.
    """
    return np.ascontiguousarray(np.swapaxes(v.reshape(shape), 0, 1))


def stretches(*keys):
    """[(start, end)] of the rows in which no key changes."""
    if not len(keys[0]):
        return []
    change = np.any([k[1:] != k[:-1] for k in keys], 0)
    at = [0, *(np.flatnonzero(change) + 1).tolist(), len(keys[0])]
    return list(zip(at[:-1], at[1:]))


# ---------------------------------------------------------------- all folders
def listed(folder, columns=("id", *SPEC, *OWN)):
    """runs.parquet of a packed study as a list of dictionaries; an empty one where it
    is not packed. Raises Damaged.
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
            out |= stored(folder, changed, frozenset(wanted))
    return out


@functools.lru_cache(maxsize=4)
def stored(folder, _changed, ids):
    return read(folder, ids)
