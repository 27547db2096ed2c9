"""Packing: the records of a study's finished runs become the files of its evidence.

What the files hold: fedlib.study.evidence. Letters: E evaluated rounds, C clients, A
groups.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core.record import Record
from . import lock
from .evidence import FILES, FORMAT, OWN, PART, VALUE, accuracy_of, aside, read, rows_of


# ---------------------------------------------------------------- records -> tables
def tables(items):
    """[(id, {columns of SPEC}, Record)] -> {file: table}, of the files that have
    rows.
    """
    blocks = {k: [] for k in FILES if k != "runs"}
    for i, (_, _, r) in enumerate(items):
        blocks["hits"] += hit_blocks(i, r)
        blocks["groups"] += group_blocks(i, r)
        blocks["alike"] += alike_blocks(i, r)
        blocks["logs"] += log_blocks(i, r)
    runs = [run_row(i, *item) for i, item in enumerate(items)]
    out = {"runs": pa.Table.from_pylist(runs)}
    for k, some in blocks.items():
        if some:
            parts = [pa.table(columns) for columns in some]
            joined = pa.concat_tables(parts, promote_options="permissive")
            out[k] = joined.unify_dictionaries().combine_chunks()
    return out


def run_row(run, name, spec, r):
    """A row of runs.parquet."""
    kinds = {
        k: {named(n): [str(v.dtype), *v.shape] for n, v in getattr(r, part).items()}
        for k, part in PART.items()
    }
    rest = {k: v for k, v in r.meta.items() if k not in OWN}
    arrays = {
        "rounds": [int(t) for t in r.rounds],
        "kinds": json.dumps(kinds),
        "meta": json.dumps(rest),
    }
    return {"run": run, "id": name} | spec | {k: r.meta.get(k) for k in OWN} | arrays


def hit_blocks(run, r):
    """[columns of hits.parquet], a block for each view."""
    out = []
    for (moment, view, split), a in r.views.items():
        n = rows_of(r.meta, moment, split)
        h = hits_of(a, n)
        keys = block(run, h.shape, r.rounds, moment=moment, view=view, split=split)
        rows = np.repeat(n.astype(np.int32), len(h))
        out.append(keys | {"rows": rows, "hits": flat(h)})
    return out


def group_blocks(run, r):
    """[columns of groups.parquet], a block for each view."""
    out = []
    for (moment, view, split), c in r.cells.items():
        group, outcome, prediction = np.indices(c.shape[2:], np.int8).reshape(3, -1)
        times = c.shape[0] * c.shape[1]
        keys = block(run, c.shape, r.rounds, moment=moment, view=view, split=split)
        keys |= {
            "group": np.tile(group, times),
            "outcome": np.tile(outcome, times),
            "prediction": np.tile(prediction, times),
        }
        out.append(keys | {"count": flat(c).astype(np.int32)})
    return out


def alike_blocks(run, r):
    """[columns of alike.parquet], a block for each view."""
    out = []
    for (moment, view), s in r.consistency.items():
        keys = block(run, s.shape, r.rounds, moment=moment, view=view)
        kind = np.tile(np.arange(s.shape[2], dtype=np.int8), s[..., 0].size)
        out.append(keys | {"kind": kind, "value": flat(s)})
    return out


def log_blocks(run, r):
    """[columns of logs.parquet], a block for each log."""
    out = []
    for k, v in r.logs.items():
        v = v.reshape(len(v), -1)
        keys = block(run, v.shape, np.arange(len(v)), "slot", name=k)
        out.append(keys | {"value": flat(v).astype(narrow(v))})
    return out


def named(key):
    """A view's (moment, view, split) or a log's name as one word."""
    return key if isinstance(key, str) else "|".join(key)


def hits_of(accuracy, n):
    """Counts [E, C] from accuracies [E, C] over n [C] rows; -1 for no rows.

    Raises ValueError unless they give the same bits.
    """
    counts = np.rint(accuracy.astype(np.float64) * n)
    h = np.where(np.isnan(accuracy), -1, counts).astype(np.int32)
    if not np.array_equal(accuracy_of(h, n, accuracy.dtype), accuracy, equal_nan=True):
        raise ValueError(
            "its accuracies are not counts over its clients' rows, so that it cannot "
            "be packed without loss"
        )
    return h


def flat(a):
    """[E, C, ...] client by client, then by round: neighbours in the file are
    neighbours in time, which compresses well.
    """
    return np.swapaxes(a, 0, 1).ravel()


def block(run, shape, rounds, across="client", **words):
    """Key columns of an array [E, C, ...] of one run, in the order of `flat`."""
    (E, C), each = shape[:2], int(np.prod(shape[2:], dtype=int))
    n = E * C * each
    code = pa.array(np.zeros(n, np.int8))
    word = lambda w: pa.DictionaryArray.from_arrays(code, pa.array([w]))
    clients = np.repeat(np.arange(C, dtype=np.int16), E * each)
    times = np.tile(np.repeat(np.asarray(rounds[:E], np.int16), each), C)
    names = {k: word(w) for k, w in words.items()}
    return {
        "run": np.full(n, run, np.int32),
        **names,
        across: clients,
        "round": times,
    }


def narrow(v):
    """float32 where it holds the same numbers."""
    back, floats = v.astype(np.float32).astype(v.dtype), v.dtype.kind == "f"
    return np.float32 if np.array_equal(back, v, equal_nan=floats) else np.float64


# ---------------------------------------------------------------- writing
def pack(items, folder):
    """Write a study's runs, [(id, {columns of SPEC}, Record)]; returns bytes.

    Order and bytes depend on the runs alone.

    The files are written beside the folder, read back and compared with every record,
    then put in its place, so that it is whole whenever the process ends. Raises
    ValueError for a run that would not come back as it is.
    """
    folder, order = Path(folder), ("dataset", "method", "setting", "seed")
    items = sorted(items, key=lambda x: (*(x[1][k] for k in order), x[0]))
    with lock.alone(folder):
        recover(folder)
        new = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        try:
            write(items, new)
            check_back(items, new, folder)
            size = sum(f.stat().st_size for f in new.iterdir())
            swap(new, folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
    folder.with_name(folder.name + ".lock").unlink(missing_ok=True)
    return size


def write(items, folder):
    """Write the Parquet files."""
    for k, t in tables(items).items():
        encoding, keys = None, True
        if k in VALUE:
            how = "BYTE_STREAM_SPLIT" if VALUE[k] == "value" else "PLAIN"
            encoding = {VALUE[k]: how}
            keys = [c for c in t.column_names if c not in encoding]
        pq.write_table(
            t.replace_schema_metadata({"fedlib": FORMAT}),
            folder / f"{k}.parquet",
            compression="zstd",
            compression_level=19,
            use_dictionary=keys,
            column_encoding=encoding,
            row_group_size=250_000,
        )


def check_back(items, new, folder):
    """ValueError unless every record comes back from the folder `new` as it is."""
    back = read(new)
    for name, spec, r in items:
        if not same(r, back[name]):
            raise ValueError(
                f"{spec['method']} {spec['setting']} seed {spec['seed']} ({name}) does "
                f"not come back from {folder} as it was; nothing was changed there"
            )


def swap(new, folder):
    """Put `new` in the place of `folder`."""
    old = aside(folder)
    if folder.exists():
        os.rename(folder, old)
    os.rename(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def recover(folder):
    """A process that died between the two renames of `swap` has left the old files
    aside: they are the evidence.
    """
    if not folder.exists() and aside(folder).exists():
        os.rename(aside(folder), folder)
    shutil.rmtree(aside(folder), ignore_errors=True)


# ---------------------------------------------------------------- records
def without(rec, names):
    """The record without some of its logs."""
    logs = {k: v for k, v in rec.logs.items() if k not in names}
    return Record(rec.meta, rec.rounds, rec.views, logs, rec.cells, rec.consistency)


def same(a, b):
    """Equal meta, and arrays of equal types, shapes and bits."""
    x, y = arrays(a), arrays(b)
    metas = [json.dumps(r.meta, sort_keys=True) for r in (a, b)]
    return (
        metas[0] == metas[1]
        and x.keys() == y.keys()
        and all(same_array(x[k], y[k]) for k in x)
    )


def arrays(r):
    """{(part, key): array} of a record, and its rounds."""
    parts = ("views", "cells", "consistency", "logs")
    found = {(part, k): v for part in parts for k, v in getattr(r, part).items()}
    return found | {"rounds": np.asarray(r.rounds)}


def same_array(a, b):
    floats = a.dtype.kind == "f"
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=floats)
