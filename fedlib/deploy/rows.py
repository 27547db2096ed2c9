"""The tasks of a federation: the server's has no rows, a client's has its own and
nobody else's.

Every client numbers its draws by (seed, round, client), so it draws from its own rows
what a simulation would draw for it.
"""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass

import numpy as np
import torch

from ..cli.text import parse_task
from ..core.pool import Pool
from ..core.ranges import check_bytes, short
from ..core.task import SPLITS, Task

NONE = torch.zeros(0, dtype=torch.long)
DTYPES = {"float32": torch.float32, "float64": torch.float64}


class NoRows(LookupError):
    """The server asked for rows of clients."""


@dataclass(frozen=True, eq=False)
class Part(Task):
    """A task of which one party holds a part; clients without rows are in order.

    Consistency (`neighbours`) needs the rows of all clients side by side, which nobody
    has here: no row is compared.
    """

    def __post_init__(self):
        pass

    @property
    def neighbours(self):
        return {"rows": NONE, "near": torch.zeros(len(self.x), 0, dtype=torch.long)}


@dataclass(frozen=True, eq=False)
class Rowless(Part):
    """The server's: it knows how many rows each client has."""

    def shards(self, *args):
        raise NoRows

    stacked = shards


def part(cls, fed, x, y, rows, a=None):
    """rows {split: [C row lists]}."""
    t = fed.task
    return cls(
        t["name"],
        fed.network,
        x.to(DTYPES[t["dtype"]]),
        y,
        *(tuple(rows[s]) for s in SPLITS),
        K=fed.K,
        a=a,
        groups=fed.groups,
        batch=t["batch"],
        kind=t["kind"],
    )


def server_task(fed, n=None):
    """Network and C clients.

    n {"train": [C], "val": [C], "test": [C]}: how many rows clients say they have.
    """
    n = n or {s: [1] * fed.C for s in SPLITS}
    count = {s: [NONE.new_zeros(1).expand(k) for k in n[s]] for s in SPLITS}
    return part(
        Rowless,
        fed,
        torch.zeros(0, *fed.shape),
        NONE,
        count,
        None if fed.groups is None else NONE,
    )


def stand_in(fed, n=8):
    """Made-up rows for client 0, n in every split."""
    x, y = (
        torch.randn(3 * n, *fed.shape, generator=torch.Generator().manual_seed(0)),
        torch.arange(3 * n) % fed.K,
    )
    a = None if fed.groups is None else torch.arange(3 * n) % fed.groups.A
    if a is not None and fed.groups.column is not None:
        x[:, fed.groups.column] = a.float()
    return part(
        Part,
        fed,
        x,
        y,
        {
            s: [r] + [NONE] * (fed.C - 1)
            for s, r in zip(SPLITS, torch.arange(3 * n).split(n))
        },
        a,
    )


def client_task(fed, c, data):
    """Client c's task.

    data: a file mine.npz with x [n, ...], y [n] and, with groups, a [n]; or a
    description as `python -m fedlib run` takes it ("digits:clients=3,dirichlet=.3"), or
    a whole Task, of which the rows of client c are taken.

    The rows of a file are cut into train, test and validation as Task.from_rows does
    for client c.
    """
    if not 0 <= c < fed.C:
        raise ValueError(
            f"client {c}: {fed.at} has {fed.C} clients, numbered 0 to {fed.C - 1}"
        )
    if str(data).endswith(".npz"):
        return sound(from_file(fed, c, data), c, f"{data}, client {c}")
    if not isinstance(data, Task):
        data = parse_task(str(data))
    return sound(cut(fed, c, data), c, f"task {data.name!r}, client {c}")


def cut(fed, c, whole):
    """Client c's part of a whole task."""
    mine, theirs = (
        {"clients": t.C, "classes": t.K, "groups": t.groups and t.groups.names}
        for t in (fed, whole)
    )
    if mine != theirs:
        raise ValueError(
            f"task {whole.name!r} has {theirs}, {fed.at} has {mine}: let them agree"
        )
    own = [getattr(whole, s)[c] for s in SPLITS]
    r = torch.cat(own)
    at = torch.arange(len(r)).split([len(o) for o in own])
    rows = {s: [NONE] * c + [p] + [NONE] * (fed.C - c - 1) for s, p in zip(SPLITS, at)}
    return part(
        Part,
        fed,
        shaped(fed, whole.x[r], whole.name),
        whole.y[r],
        rows,
        whole.a[r] if fed.groups else None,
    )


def from_file(fed, c, path):
    """Client c's task from mine.npz."""
    try:
        given = tensors(path)
    except FileNotFoundError as e:
        raise ValueError(f"{path} cannot be read: there is no such file") from e
    except Exception as e:  # a damaged zip can raise nearly anything
        raise ValueError(
            f"{path} cannot be read ({e}): write it with numpy.savez(path, x=x, y=y)"
        ) from e
    want = {"x", "y"} | ({"a"} if fed.groups else set())
    lengths = {v.shape[:1] for v in given.values()}
    if set(given) != want or len(lengths) > 1 or () in lengths:
        raise ValueError(
            f"{path} holds "
            + ", ".join(f"{k} {list(v.shape)}" for k, v in given.items())
            + f": give {', '.join(sorted(want))} of one length"
        )
    for k in want - {"x"}:
        v = given[k]
        if v.is_floating_point() and not torch.equal(v, v.trunc()):
            raise ValueError(f"{path}: {k} holds a number that is not whole")
    t = fed.task
    x, y, a = (
        shaped(fed, given["x"], path).to(DTYPES[t["dtype"]]),
        given["y"].long(),
        given["a"].long() if fed.groups else None,
    )
    pool = Pool(t["name"], x, y, fed.K, t["kind"], a=a, groups=fed.groups)
    rows = [NONE] * c + [torch.arange(len(y))] + [NONE] * (fed.C - c - 1)
    return Part.from_rows(
        t["name"],
        fed.network,
        pool,
        rows,
        t["split"],
        tuple(t["parts"]),
        batch=t["batch"],
    )


def tensors(path):
    """The arrays of an npz file, as tensors. What their heads claim is compared with
    the file before memory is taken.
    """
    with zipfile.ZipFile(path) as pack:
        members = pack.infolist()
        for m in members:
            with pack.open(m) as f:
                check_head(f, m)
        names = [m.filename.removesuffix(".npy") for m in members]
        if len(names) != len(set(names)):
            raise ValueError("an array is in it twice")
        check_bytes("it", sum(m.file_size for m in members))
    with np.load(path, allow_pickle=False) as z:
        return {k: torch.as_tensor(z[k]) for k in names}


def check_head(f, member):
    """ValueError unless an array of real numbers fills its file."""
    if np.lib.format.read_magic(f) != (1, 0):
        raise ValueError(f"{member.filename} has a head of another kind")
    shape, _, dtype = np.lib.format.read_array_header_1_0(f)
    if dtype.kind not in "biuf":
        raise ValueError(f"{member.filename} is of type {dtype}, not real numbers")
    have = member.file_size - f.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != have:
        raise ValueError(
            f"{member.filename} has {have:,} bytes for {dtype} {short(shape)}"
        )


def shaped(fed, x, at):
    if math.prod(x.shape[1:]) != math.prod(fed.shape):
        raise ValueError(
            f"{at}: rows of shape {list(x.shape[1:])}, {fed.at} says {list(fed.shape)}"
        )
    return x.reshape(-1, *fed.shape)


def sound(task, c, at):
    """The task, if client c can train and be tested on it."""
    x, y, a = task.x, task.y, task.a
    if not x.isfinite().all():
        raise ValueError(
            f"{at}: {int((~x.flatten(1).isfinite().all(1)).sum())} rows of x hold NaN "
            "or infinity; drop them first"
        )
    for what, v, n in (
        ("labels", y, task.K),
        ("groups", a, task.groups and task.groups.A),
    ):
        if v is not None and len(v) and not 0 <= int(v.min()) <= int(v.max()) < n:
            raise ValueError(
                f"{at}: {what} run from {int(v.min())} to {int(v.max())}, the "
                f"federation allows 0 to {n - 1}"
            )
    if not len(task.train[c]) or not len(task.test[c]):
        raise ValueError(
            f"{at}: {len(task.train[c])} training and {len(task.test[c])} test rows; "
            "each needs one or more"
        )
    return task
