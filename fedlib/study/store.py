"""The store of finished runs: Parquet files, which pandas, DuckDB and Polars read
without fedlib.

    evidence/<paper>-<study>/
        runs.parquet    a row per run: its name, what was run, seed, origin; `meta` has
                        the rest of its record, `kinds` the types and shapes of its
                        arrays, in the order of the other files
        hits.parquet    of the rows of a client, how many are right; -1: it has none
        logs.parquet    what was logged; slot: place in the cohort
        groups.parquet  counts by group, outcome, prediction; client -1: of all clients
        alike.parquet   consistency, see engine.score

Hits / rows in float32 is bit for bit the accuracy that the run recorded. An array [E,
C, ...] of E evaluated rounds and C clients is stored client by client, then round by
round, which compresses well.

A lock lies beside what one process alone may write: runs/0123456789abcdef.lock. It is
a file (filelock.SoftFileLease: where a cluster shares files, locks of the operating
system are not to be relied on). Left by a process that died it is taken over: at once
on one host, else after LEASE seconds. A holder that only slept goes on beside its
successor: both compute the same numbers.
"""

import functools
import json
import math
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from filelock import SoftFileLease, Timeout

from ..core.errors import refuse_if
from ..core.record import Record, parts_of
from ..measures.runs import rows_of

HEARTBEAT, LEASE = 15.0, 120.0  # seconds; every process must have the same LEASE
# what was run, as columns
SPEC = "paper study dataset label method setting seed data task kwargs engine versions"
SPEC = SPEC.split()
# of a run's meta, as columns; its rest repeats
OWN = ("seconds", "device", "torch", "commit", "source")
ORDER = ("dataset", "method", "setting", "seed")  # of runs in a folder


class Part(NamedTuple):
    """How arrays [E, C, ...] of one kind are stored."""

    kind: str  # as Record.arrays calls it
    keys: tuple  # columns of the rest of its name
    axes: tuple  # columns of the axes after E
    value: str  # column of the numbers


VIEW, GROUPS = ("moment", "view", "split"), ("group", "outcome", "prediction")
PARTS = {
    "hits": Part("view", VIEW, ("client",), "hits"),
    "logs": Part("log", ("name",), ("slot",), "value"),
    "groups": Part("cells", VIEW, ("client", *GROUPS), "count"),
    "alike": Part("alike", VIEW[:2], ("client", "kind"), "value"),
}
# of the columns but those with floats and words; the others are bytes
TYPES = dict.fromkeys(("run", "rows", "hits", "count"), np.int32)
TYPES |= dict.fromkeys(("client", "slot", "round"), np.int16)
ENCODED = {"value": "BYTE_STREAM_SPLIT", "round": "DELTA_BINARY_PACKED"}
ENCODED |= {"hits": "PLAIN", "count": "PLAIN"}


@contextmanager
def alone(folder, wait=True):
    """Hold the lock of a folder: True; False without it, where nobody waits."""
    path = Path(f"{Path(folder).absolute()}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    how = {"lease_duration": LEASE, "heartbeat_interval": HEARTBEAT}
    lease = SoftFileLease(path, blocking=wait, poll_interval=0.2, **how)
    with suppress(Timeout), lease:  # takes over what is stale
        yield True
        return
    yield False


@contextmanager
def reading(path):
    """What goes wrong inside is a ValueError with the remedy."""
    try:
        yield
    except (OSError, EOFError, LookupError, TypeError, ValueError) as e:
        raise ValueError(
            f"{path} cannot be read ({e!s:.200}); restore it with `git checkout -- "
            f"{path}`, or delete it and make it again, as by `make evidence`"
        ) from e


def accuracy_of(hits, n, dtype=np.float32):
    """Accuracies [E, C] from hits [E, C] and rows n [C]; NaN for a client without."""
    with np.errstate(all="ignore"):
        accuracy = hits.astype(dtype) / n.astype(dtype)
    return np.where(hits < 0, np.nan, accuracy).astype(dtype)


# ---------------------------------------------------------------- records -> tables
def tables(items):
    """[(id, {columns of SPEC}, Record)] -> {file: table}, of files that have rows."""
    rows, blocks = [], {file: [] for file in PARTS}
    files = {part.kind: file for file, part in PARTS.items()}
    for i, (name, spec, r) in enumerate(items):
        kinds = {file: {} for file in PARTS}
        for word, a in r.arrays().items():
            kind, *key = word.split("|")
            kinds[files[kind]]["|".join(key)] = [str(a.dtype), *a.shape]
            columns = columns_of(PARTS[files[kind]], i, key, a, r)
            blocks[files[kind]].append(pa.table(columns))
        own = {k: r.meta.get(k) for k in OWN} | {"rounds": [int(t) for t in r.rounds]}
        rest = {k: v for k, v in r.meta.items() if k not in OWN}
        texts = {"kinds": json.dumps(kinds), "meta": json.dumps(rest)}
        rows.append({"run": i, "id": name} | spec | own | texts)
    out = {"runs": pa.Table.from_pylist(rows)}
    for file in filter(blocks.get, PARTS):
        t = pa.concat_tables(blocks[file], promote_options="permissive")
        out[file] = t.unify_dictionaries().combine_chunks()
    return out


def columns_of(part, run, key, a, r):
    """An array [E, C, ...] of run number `run` as the columns of its file."""
    rounds = np.asarray(r.rounds)
    if part.kind == "log":
        a, rounds = a.reshape(len(a), -1), np.arange(len(a))
        small = a.astype(np.float32)  # half the bytes, where it holds the same numbers
        a = small if np.array_equal(small, a, equal_nan=True) else a.astype(np.float64)
    a = np.swapaxes(a, 0, 1)
    axes = part.axes[0], "round", *part.axes[1:]
    at = {"run": np.full(a.size, run)}
    at |= zip(axes, np.indices(a.shape).reshape(a.ndim, -1))
    at["round"] = rounds[at["round"]]
    if part.kind != "log" and len(a) == 1 < len(rows_of(r.meta, (*key[:2], "test"))):
        at["client"] = at["client"] - 1  # of all clients together
    if part.kind == "view":
        n = rows_of(r.meta, key)
        hits = np.nan_to_num(np.rint(a.T.astype(np.float64) * n), nan=-1).astype(int)
        back = np.array_equal(accuracy_of(hits, n, a.dtype), a.T, equal_nan=True)
        where = f"{r.meta['method']} seed {r.meta['seed']}: accuracies {' '.join(key)}"
        refuse_if(not back, f"{where} must be counts over the rows of the clients")
        at["rows"], a = n[at["client"]], hits.T
    at = {k: v.astype(TYPES.get(k, np.int8)) for k, v in at.items()}
    word = lambda w: pa.DictionaryArray.from_arrays(np.zeros(a.size, np.int8), [w])
    named = {"run": at.pop("run")} | {k: word(w) for k, w in zip(part.keys, key)}
    a = a.astype(TYPES.get(part.value, a.dtype)).ravel()
    return named | at | {part.value: a}


# ---------------------------------------------------------------- tables -> records
def read(folder):
    """{id: Record} of a stored study, which may be empty."""
    folder, out = Path(folder), {}
    if not folder.exists():
        return out
    with reading(folder):
        rows = pq.read_table(folder / "runs.parquet").to_pylist()
        for row in rows:
            row["kinds"], row["arrays"] = json.loads(row["kinds"]), {}
            own = {k: row[k] for k in OWN if row[k] is not None}
            row["meta"] = json.loads(row["meta"]) | own
        for file in PARTS:
            kinds = [(r, *x) for r in rows for x in r["kinds"][file].items()]
            if kinds:
                fill(PARTS[file], pq.read_table(folder / f"{file}.parquet"), kinds)
        for r in rows:
            rounds = np.array(r["rounds"], int)
            out[r["id"]] = Record(r["meta"], rounds, **parts_of(r["arrays"]))
    return out


def fill(part, t, kinds):
    """The arrays in table t to their runs; kinds: (row, name, [type, *shape]) each."""
    sizes = [math.prod(shape) for _, _, (_, *shape) in kinds]
    runs = np.repeat([row["run"] for row, *_ in kinds], sizes)
    other = not np.array_equal(runs, t["run"])
    refuse_if(other, f"runs.parquet describes other {part.value} than there are")
    values = np.split(t[part.value].to_numpy(), np.cumsum(sizes))
    for (row, name, (dtype, *shape)), v in zip(kinds, values):
        E, C, *rest = shape if part.kind != "log" else (shape[0], -1)
        # contiguous, since the last digit of a float32 mean depends on the layout
        a = np.ascontiguousarray(np.swapaxes(v.reshape(C, E, *rest), 0, 1))
        if part.kind == "view":
            a = accuracy_of(a, rows_of(row["meta"], name.split("|")), dtype)
        row["arrays"][f"{part.kind}|{name}"] = a.reshape(shape).astype(dtype)


# ---------------------------------------------------------------- folders
def pack(items, folder):
    """Write a study's runs, [(id, {columns of SPEC}, Record)], in place of the old
    ones; the bytes depend on these alone. ValueError: accuracies would not come back.
    """
    folder, new = Path(folder), Path(folder).with_name(f".{Path(folder).name}.new")
    items = sorted(items, key=lambda x: (*(x[1][k] for k in ORDER), x[0]))
    how = {"compression": "brotli", "compression_level": 11, "row_group_size": 250_000}
    made = tables(items)
    with alone(folder):
        shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
        new.mkdir(parents=True)
        for file, t in made.items():
            own = {k: v for k, v in ENCODED.items() if k in t.column_names}
            how["use_dictionary"] = not own or sorted({*t.column_names} - own.keys())
            how["column_encoding"] = own or None
            t = t.replace_schema_metadata({"fedlib": "1"})
            pq.write_table(t, new / f"{file}.parquet", **how)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(new, folder)


def listed(folder, columns=("id", *SPEC, *OWN)):
    """[{column: value}] of the runs of a stored study, which may be empty."""
    if not Path(folder).exists():
        return []
    with reading(folder):
        return pq.read_table(f"{folder}/runs.parquet", columns=[*columns]).to_pylist()


def find(ids, paper, study, root="evidence"):
    """{id: Record} of those that are stored: in the study's own folder, else whole."""
    out, own = {}, Path(root, f"{paper}-{study}")
    for folder in dict.fromkeys([own, *sorted(own.parent.glob(f"{paper}-*/"))]):
        wanted = {row["id"] for row in listed(folder, ("id",))} & {*ids} - out.keys()
        if wanted:
            stored = _read(folder, os.stat(folder / "runs.parquet").st_mtime_ns)
            some = zip(wanted, map(stored.get, wanted))
            out |= {i: r for i, r in some if folder == own or "picked" not in r.meta}
    return out


_read = functools.lru_cache(maxsize=4)(lambda folder, _changed: read(folder))
