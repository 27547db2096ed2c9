"""Evidence: the finished runs of a study as Parquet files, which pandas, DuckDB and
Polars read without fedlib.

    evidence/<paper>-<study>/
        runs.parquet     a row per run: its name, what was run, seed, origin; `meta` has
                         the rest of its record
        hits.parquet     run, moment, view, split, client, round, rows, hits  rows of a
                         client, how many are right
        logs.parquet     run, name, slot, round, value  slot: place in the cohort
        groups.parquet   run, moment, view, split, client, round, group, outcome,
                         prediction, count
        alike.parquet    run, moment, view, client, round, kind, value  consistency, see
                         engine.score

Hits are exact counts: hits / rows in float32 is bit for bit the accuracy that the run
recorded; -1 is a client without rows. Everything is written by `pack`, which reads it
back and compares, and read by `read`. A study's key `logs` {name: seeds} keeps a log
that has a number for every client and round for so many seeds only; the weights of a
model are not kept at all.

Letters: E evaluated rounds, C clients, A groups.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.record import Record
from . import lock

FORMAT = b"1"
FILES = ("runs", "hits", "logs", "groups", "alike")
# file -> part of a Record
PART = {"hits": "views", "logs": "logs", "groups": "cells", "alike": "alike"}
# the column that is not a key
VALUE = {"hits": "hits", "logs": "value", "groups": "count", "alike": "value"}
SPEC = (
    "paper",
    "study",
    "dataset",
    "label",
    "method",
    "setting",
    "seed",
    "data",
    "task",
    "kwargs",
    "engine",
    "versions",
)
# of a run's meta, as columns; its rest repeats
OWN = ("seconds", "device", "torch", "commit", "source")
ROWS = {
    ("guest", "test"): "guest",
    ("guest", "val"): "guest_val",
    ("guest", "all"): "guest_train",
}


class Damaged(ValueError):
    """Stored evidence cannot be read; says which file, and how to get it back."""


def rows_of(meta, moment, split):
    """Rows per client [C] behind an accuracy."""
    return np.array(
        meta["n"][ROWS.get((moment, split), "train" if split == "all" else split)]
    )


def hits_of(accuracy, n):
    """Counts [E, C] from accuracies [E, C] over n [C] rows; -1 for no rows.

    Raises ValueError unless they give the same bits.
    """
    h = np.where(
        np.isnan(accuracy), -1, np.rint(accuracy.astype(np.float64) * n)
    ).astype(np.int32)
    if not np.array_equal(accuracy_of(h, n, accuracy.dtype), accuracy, equal_nan=True):
        raise ValueError(
            "its accuracies are not counts over its clients' rows, so that it cannot "
            "be packed without loss"
        )
    return h


def accuracy_of(hits, n, dtype=np.float32):
    with np.errstate(all="ignore"):
        return np.where(hits < 0, np.nan, hits.astype(dtype) / n.astype(dtype)).astype(
            dtype
        )


# ---------------------------------------------------------------- records -> tables
def tables(items):
    """[(id, {columns of SPEC}, Record)] -> {file: table},
    of the files that have rows.
    """
    parts = {k: [] for k in FILES}
    for i, (name, spec, r) in enumerate(items):
        kinds = {
            k: {named(n): [str(v.dtype), *v.shape] for n, v in getattr(r, p).items()}
            for k, p in PART.items()
        }
        rest = {k: v for k, v in r.meta.items() if k not in OWN}
        parts["runs"].append(
            {"run": i, "id": name}
            | spec
            | {k: r.meta.get(k) for k in OWN}
            | {
                "rounds": [int(t) for t in r.rounds],
                "kinds": json.dumps(kinds),
                "meta": json.dumps(rest),
            }
        )
        for (moment, view, split), a in r.views.items():
            n = rows_of(r.meta, moment, split)
            h = hits_of(a, n)
            keys = block(i, h.shape, r.rounds, moment=moment, view=view, split=split)
            parts["hits"].append(
                keys | {"rows": np.repeat(n.astype(np.int32), len(h)), "hits": flat(h)}
            )
        for (moment, view, split), c in r.cells.items():
            group, outcome, prediction = np.indices(c.shape[2:], np.int8).reshape(3, -1)
            times = c.shape[0] * c.shape[1]
            keys = block(i, c.shape, r.rounds, moment=moment, view=view, split=split)
            keys |= {
                "group": np.tile(group, times),
                "outcome": np.tile(outcome, times),
                "prediction": np.tile(prediction, times),
            }
            parts["groups"].append(keys | {"count": flat(c).astype(np.int32)})
        for (moment, view), s in r.alike.items():
            keys = block(i, s.shape, r.rounds, moment=moment, view=view)
            parts["alike"].append(
                keys
                | {
                    "kind": np.tile(
                        np.arange(s.shape[2], dtype=np.int8), s[..., 0].size
                    ),
                    "value": flat(s),
                }
            )
        for k, v in r.logs.items():
            v = v.reshape(len(v), -1)
            keys = block(i, v.shape, np.arange(len(v)), "slot", name=k)
            parts["logs"].append(keys | {"value": flat(v).astype(narrow(v))})
    out = {"runs": pa.Table.from_pylist(parts.pop("runs"))}
    for k, some in parts.items():
        if some:
            joined = pa.concat_tables(
                [pa.table(p) for p in some], promote_options="permissive"
            )
            out[k] = joined.unify_dictionaries().combine_chunks()
    return out


def named(key):
    """A view's (moment, view, split) or a log's name as one word."""
    return key if isinstance(key, str) else "|".join(key)


def flat(a):
    """[E, C, ...] client by client, then by round: neighbours in the file are
    neighbours in time, which compresses well.
    """
    return np.swapaxes(a, 0, 1).ravel()


def block(run, shape, rounds, across="client", **words):
    """Key columns of an array [E, C, ...] of one run, in the order of `flat`."""
    (E, C), each = shape[:2], int(np.prod(shape[2:], dtype=int))
    n = E * C * each
    word = lambda w: pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(n, np.int8)), pa.array([w])
    )
    return (
        {"run": np.full(n, run, np.int32)}
        | {k: word(w) for k, w in words.items()}
        | {
            across: np.repeat(np.arange(C, dtype=np.int16), E * each),
            "round": np.tile(np.repeat(np.asarray(rounds[:E], np.int16), each), C),
        }
    )


def narrow(v):
    """float32 where it holds the same numbers."""
    return (
        np.float32
        if np.array_equal(
            v.astype(np.float32).astype(v.dtype), v, equal_nan=v.dtype.kind == "f"
        )
        else np.float64
    )


# ---------------------------------------------------------------- writing
def pack(items, folder):
    """Write a study's runs, [(id, {columns of SPEC}, Record)]; returns bytes.

    Order and bytes depend on the runs alone.

    The files are written beside the folder, read back and compared with every record,
    then put in its place, so that it is whole whenever the process ends. Raises
    ValueError for a run that would not come back as it is.
    """
    folder = Path(folder)
    items = sorted(
        items,
        key=lambda x: (
            x[1]["dataset"],
            x[1]["method"],
            x[1]["setting"],
            x[1]["seed"],
            x[0],
        ),
    )
    with lock.alone(folder):
        recover(folder)
        new = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            write(items, new)
            back = read(new)
            for name, spec, r in items:
                if not same(r, back[name]):
                    raise ValueError(
                        f"{spec['method']} {spec['setting']} seed {spec['seed']} "
                        f"({name}) does not come back from {folder} as it was; nothing "
                        "was changed there"
                    )
            size = sum(f.stat().st_size for f in new.iterdir())
            swap(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    folder.with_name(folder.name + ".lock").unlink(missing_ok=True)
    return size


def write(items, folder):
    for k, t in tables(items).items():
        plain = (
            {VALUE[k]: "BYTE_STREAM_SPLIT" if VALUE[k] == "value" else "PLAIN"}
            if k in VALUE
            else None
        )
        keys = [c for c in t.column_names if not plain or c not in plain]
        pq.write_table(
            t.replace_schema_metadata({"fedlib": FORMAT}),
            folder / f"{k}.parquet",
            compression="zstd",
            compression_level=19,
            use_dictionary=keys if plain else True,
            column_encoding=plain,
            row_group_size=250_000,
        )


def swap(new, folder):
    """Put `new` in the place of `folder`."""
    old = aside(folder)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def aside(folder):
    return folder.with_name(f".{folder.name}.old")


def there(folder):
    """The folder, or the old one aside that a process which died in `swap` has left."""
    folder = Path(folder)
    return aside(folder) if aside(folder).exists() and not folder.exists() else folder


def recover(folder):
    """A process that died between the two renames of `swap` has left the old files
    aside: they are the evidence.
    """
    if not folder.exists() and aside(folder).exists():
        os.rename(aside(folder), folder)
    shutil.rmtree(aside(folder), ignore_errors=True)


def without(rec, names):
    """The record without some of its logs."""
    return Record(
        rec.meta,
        rec.rounds,
        rec.views,
        {k: v for k, v in rec.logs.items() if k not in names},
        rec.cells,
        rec.alike,
    )


def same(a, b):
    """Equal meta, and arrays of equal types, shapes and bits."""
    kinds = ("views", "cells", "alike", "logs")
    x, y = (
        {(kind, k): v for kind in kinds for k, v in getattr(r, kind).items()}
        | {"rounds": np.asarray(r.rounds)}
        for r in (a, b)
    )
    return (
        json.dumps(a.meta, sort_keys=True) == json.dumps(b.meta, sort_keys=True)
        and x.keys() == y.keys()
        and all(
            x[k].dtype == y[k].dtype
            and np.array_equal(x[k], y[k], equal_nan=x[k].dtype.kind == "f")
            for k in x
        )
    )


# ---------------------------------------------------------------- reading
def read(folder, only=None):
    """{id: Record} of a packed study; only: these ids. Raises Damaged."""
    folder = there(folder)
    listed = table(folder, "runs").to_pylist()
    out, kinds = {}, {}
    for row in listed:
        meta = json.loads(row["meta"]) | {k: row[k] for k in OWN if row[k] is not None}
        out[row["run"]] = Record(meta, np.array(row["rounds"], int))
        kinds[row["run"]] = json.loads(row["kinds"])
    for k in VALUE:
        if any(kind[k] for kind in kinds.values()):
            try:
                fill(k, table(folder, k), out, kinds)
                whole = all(
                    len(getattr(r, PART[k])) == len(kinds[i][k]) for i, r in out.items()
                )
            except (KeyError, ValueError, IndexError) as e:
                if isinstance(e, Damaged):
                    raise
                whole = False
            if not whole:
                raise Damaged(
                    f"{folder}/{k}.parquet does not belong to the runs beside it; "
                    + again(folder)
                )
    return {
        row["id"]: out[row["run"]]
        for row in listed
        if only is None or row["id"] in only
    }


def table(folder, name):
    path = folder / f"{name}.parquet"
    try:
        t = pq.read_table(path)
    except (OSError, pa.ArrowInvalid, pa.ArrowException) as e:
        raise Damaged(
            f"{path} cannot be read ({str(e).splitlines()[0]}); " + again(folder)
        ) from e
    if (t.schema.metadata or {}).get(b"fedlib") != FORMAT:
        raise Damaged(
            (
                f"{path} is not evidence of this format: it lacks the mark "
                f"fedlib = {FORMAT.decode()}; "
            )
            + again(folder)
        )
    return t.unify_dictionaries().combine_chunks()


def again(folder):
    return (
        f"restore it with `git checkout -- {folder}`, or delete {folder} and run "
        "`make evidence`"
    )


def fill(kind, t, records, kinds):
    """Put the arrays of one file into the records {run: Record}."""
    number = lambda c: t[c].to_numpy()
    run, value = number("run"), number(VALUE[kind])
    words = [c for c in ("name", "moment", "view", "split") if c in t.column_names]
    coded = [t[c].combine_chunks() for c in words]
    codes, names = (
        [np.asarray(c.indices) for c in coded],
        [c.dictionary.to_pylist() for c in coded],
    )
    for start, end in stretches(run, *codes):
        r, v = records[run[start]], value[start:end]
        key = tuple(n[c[start]] for n, c in zip(names, codes))
        dtype, first, *rest = kinds[run[start]][kind]["|".join(key)]
        if kind == "logs":
            r.logs[key[0]] = turned(v, -1, first).reshape(first, *rest).astype(dtype)
        elif kind == "hits":
            r.views[key] = accuracy_of(
                turned(v, rest[0], first), rows_of(r.meta, key[0], key[2]), dtype
            )
        else:
            getattr(r, PART[kind])[key] = turned(v, rest[0], first, *rest[1:]).astype(
                dtype
            )


def turned(v, *shape):
    """The inverse of `flat`.

    Contiguous, since the last digit of a float32 mean depends on the layout.
    """
    return np.ascontiguousarray(np.swapaxes(v.reshape(shape), 0, 1))


def stretches(*keys):
    """[(start, end)] of the rows in which no key changes."""
    change = np.any([k[1:] != k[:-1] for k in keys], 0)
    at = [0, *(np.flatnonzero(change) + 1).tolist(), len(keys[0])]
    return list(zip(at[:-1], at[1:])) if len(keys[0]) else []


# ---------------------------------------------------------------- what is there
def listed(folder, columns=("id", *SPEC, *OWN)):
    """runs.parquet of a packed study as a list of dictionaries; an empty one where it
    is not packed. Raises Damaged.
    """
    path = there(folder) / "runs.parquet"
    return (
        _listed(path, os.stat(path).st_mtime_ns, tuple(columns))
        if path.exists()
        else []
    )


@functools.lru_cache(maxsize=256)
def _listed(path, _changed, columns):
    return table(path.parent, "runs").select([*columns]).to_pylist()


def find(ids, paper, study, root="evidence"):
    """{id: Record} of those runs that are stored, first in the study's own folder,
    then in the paper's others.
    """
    root, out = Path(root), {}
    own = root / f"{paper}-{study}"
    for folder in [own, *sorted(f for f in root.glob(f"{paper}-*") if f != own)]:
        wanted = set(ids) - set(out)
        wanted &= {row["id"] for row in listed(folder, ("id",))} if wanted else set()
        if wanted:
            out |= stored(
                folder,
                os.stat(there(folder) / "runs.parquet").st_mtime_ns,
                frozenset(wanted),
            )
    return out


@functools.lru_cache(maxsize=4)
def stored(folder, _changed, ids):
    return read(folder, ids)
