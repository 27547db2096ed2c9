"""The tasks of a federation: the server's has no rows, a client's has its own and
nobody else's.

Every client numbers its draws by (seed, round, client), so it draws from its own rows
what a simulation would draw for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ..cli.text import parse_task
from ..core.task import SPLITS, Task, cut_rows

NONE = torch.zeros(0, dtype=torch.long)


class NoRows(LookupError):
    """The server asked for rows of clients."""


@dataclass(frozen=True, eq=False)
class Part(Task):
    """A task of which one party holds a part. Consistency (`neighbours`) needs the rows
    of all clients side by side, which nobody has here: no row is compared."""

    def __post_init__(self):
        pass

    @property
    def neighbours(self):
        return {"rows": NONE, "near": torch.zeros(len(self.x), 0, dtype=torch.long)}


@dataclass(frozen=True, eq=False)
class Rowless(Part):
    """The server's: it knows how many rows each client has."""

    def shards(self, *args):
        raise NoRows(
            "this method cannot be deployed: its server needs the rows of the clients, "
            "which stay where they are; only a simulation can run it"
        )

    stacked = shards


def part(cls, fed, x, y, rows, a=None):
    """rows {split: [C row lists]}."""
    known = {"K": fed.K, "a": a, "groups": fed.groups}
    known |= {"batch": fed.task.batch, "kind": fed.task.kind}
    lists = [tuple(rows[s]) for s in SPLITS]
    return cls(fed.task.name, fed.network, x.to(fed.dtype), y, *lists, **known)


def only(fed, c, rows):
    """[C row lists]: these rows of client c, none of the others."""
    return [rows if k == c else NONE for k in range(fed.C)]


def server_task(fed, n=None):
    """Network and C clients. n {"train": [C], ...}: how many rows clients say they
    have."""
    count = lambda s: n[s] if n else [1] * fed.C
    count = {s: [NONE.new_zeros(1).expand(k) for k in count(s)] for s in SPLITS}
    a = None if fed.groups is None else NONE
    return part(Rowless, fed, torch.zeros(0, *fed.shape), NONE, count, a)


def stand_in(fed, n=8):
    """Made-up rows for client 0, n in every split."""
    g, at, a = torch.Generator().manual_seed(0), torch.arange(3 * n), None
    x = torch.randn(3 * n, *fed.shape, generator=g, dtype=torch.float32)
    if fed.groups is not None:
        a = at % fed.groups.A
        if fed.groups.column is not None:
            x[:, fed.groups.column] = a.float()
    rows = {s: only(fed, 0, r) for s, r in zip(SPLITS, at.split(n))}
    return part(Part, fed, x, at % fed.K, rows, a)


def client_task(fed, c, data):
    """Client c's task.

    data: a file mine.npz with x [n, ...], y [n] and, with groups, a [n], which are cut
    into train, test and validation as Task.from_rows does; a description as
    `python -m fedlib run` takes it ("digits:clients=3,dirichlet=.3"), or a whole Task,
    of which the rows of client c are taken. ValueError where c cannot train on it.
    """
    if not 0 <= c < fed.C:
        raise ValueError(f"client {c}: the federation has clients 0 to {fed.C - 1}")
    if str(data).endswith(".npz"):
        return sound(from_file(fed, c, data), c, f"{data}, client {c}")
    whole = data if isinstance(data, Task) else parse_task(str(data))
    return sound(cut(fed, c, whole), c, f"task {whole.name!r}, client {c}")


def cut(fed, c, whole):
    """Client c's part of a whole task."""
    named = lambda t: (t.C, t.K, t.groups and tuple(t.groups.names))
    if named(whole) != named(fed):
        raise ValueError(
            f"task {whole.name!r} has clients, classes and groups {named(whole)}, the "
            f"federation has {named(fed)}: let them agree"
        )
    own = [getattr(whole, s)[c] for s in SPLITS]
    r = torch.cat(own)
    at = torch.arange(len(r)).split([len(o) for o in own])
    rows = {s: only(fed, c, p) for s, p in zip(SPLITS, at)}
    x, a = shaped(fed, whole.x[r]), whole.a[r] if fed.groups else None
    return part(Part, fed, x, whole.y[r], rows, a)


def from_file(fed, c, path):
    """Client c's task from mine.npz."""
    names = ("x", "y", "a") if fed.groups else ("x", "y")
    try:
        with np.load(path, allow_pickle=False) as z:
            given = {k: torch.as_tensor(z[k]) for k in names}
        x = shaped(fed, given["x"]).to(fed.dtype)
        labels = {k: v.long() for k, v in given.items() if k != "x"}
        if any(len(v) != len(x) or (v != given[k]).any() for k, v in labels.items()):
            raise ValueError("y and a are whole numbers, one for each row of x")
    except Exception as e:  # a damaged zip can raise nearly anything
        raise ValueError(
            f"{path} cannot be used ({e}): write it with numpy.savez(path, x=x, y=y)"
        ) from e
    own = cut_rows(torch.arange(len(x)), c, fed.task.split, fed.task.parts)
    rows = {s: only(fed, c, r) for s, r in zip(SPLITS, own)}
    return part(Part, fed, x, rows=rows, **labels)


def shaped(fed, x):
    """Rows x in the shape of the federation; RuntimeError where they have another."""
    return x.reshape(len(x), *fed.shape)


def sound(task, c, at):
    """The task, if client c can train and be tested on it."""
    if not task.x.isfinite().all():
        raise ValueError(f"{at}: x holds NaN or infinity; drop these rows first")
    a = task.groups and (task.a < 0) | (task.a >= task.groups.A)
    if ((task.y < 0) | (task.y >= task.K)).any() or a is not None and a.any():
        raise ValueError(f"{at}: a label or a group is none of the federation's")
    if not len(task.train[c]) or not len(task.test[c]):
        raise ValueError(f"{at}: give at least one training and one test row")
    return task
