"""The tasks of a federation: the server's has no rows, a client's has its own and
nobody else's.

Every client numbers its draws by (seed, round, client), so it draws from its own rows
what a simulation would draw for it.
"""

from dataclasses import dataclass

import numpy as np
import torch

from ..cli.text import parse_task
from ..core.errors import refuse_if
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


def part(cls, fed, rows, x, y, a=None):
    """rows [splits, C]: numbers of rows of x."""
    known = {"K": fed.K, "a": a, "groups": fed.groups}
    known |= {"batch": fed.task.batch, "kind": fed.task.kind}
    rows = map(tuple, rows)
    return cls(fed.task.name, fed.network, x.to(fed.dtype), y, *rows, **known)


def only(fed, c, own, *data):
    """The Part with rows `own` [splits] at client c, none at the others."""
    rows = [[r if k == c else NONE for k in range(fed.C)] for r in own]
    return part(Part, fed, rows, *data)


def server_task(fed, n=None):
    """Network and C clients; n {split: [C]}: how many rows they say they have."""
    n = n or dict.fromkeys(SPLITS, [1] * fed.C)
    rows = [[NONE.new_zeros(1).expand(k) for k in n[s]] for s in SPLITS]
    a = None if fed.groups is None else NONE
    return part(Rowless, fed, rows, torch.zeros(0, *fed.shape), NONE, a)


def stand_in(fed, n=8):
    """Made-up rows for client 0, n in every split."""
    g, at, a = torch.Generator().manual_seed(0), torch.arange(3 * n), None
    x = torch.randn(3 * n, *fed.shape, generator=g, dtype=torch.float32)
    if fed.groups is not None:
        a = at % fed.groups.A
        if fed.groups.column is not None:
            x[:, fed.groups.column] = a.float()
    return only(fed, 0, at.split(n), x, at % fed.K, a)


def client_task(fed, c, data):
    """Client c's task; ValueError where c cannot train on it.

    data: a file mine.npz with x [n, ...], y [n] and, with groups, a [n], cut as by
    Task.from_rows; or a whole Task, or its description as `python -m fedlib run` takes
    it, of which the rows of client c are taken.
    """
    have = f"client {c}: the federation has clients 0 to {fed.C - 1}"
    refuse_if(not 0 <= c < fed.C, have)
    if str(data).endswith(".npz"):
        return sound(from_file(fed, c, data), c, f"{data}, client {c}")
    whole = data if isinstance(data, Task) else parse_task(str(data))
    return sound(cut(fed, c, whole), c, f"task {whole.name!r}, client {c}")


def cut(fed, c, whole):
    """Client c's part of a whole task."""
    mine, other = ((t.C, t.K, t.groups and tuple(t.groups.names)) for t in (fed, whole))
    refuse_if(
        mine != other,
        f"task {whole.name!r} has clients, classes and groups {other}, the federation "
        f"has {mine}: let them agree",
    )
    own = [getattr(whole, s)[c] for s in SPLITS]
    r = torch.cat(own)
    at = torch.arange(len(r)).split([*map(len, own)])
    x, a = shaped(fed, whole.x[r]), whole.a[r] if fed.groups else None
    return only(fed, c, at, x, whole.y[r], a)


def from_file(fed, c, path):
    """Client c's task from mine.npz."""
    try:
        with np.load(path, allow_pickle=False) as z:
            x, *labels = (
                torch.as_tensor(z[k]) for k in "xya"[: 3 if fed.groups else 2]
            )
        x = shaped(fed, x).to(fed.dtype)
        wrong = any(len(v) != len(x) or (v != v.long()).any() for v in labels)
        refuse_if(wrong, "y and a are whole numbers, one for each row of x")
    except Exception as e:  # a damaged zip can raise nearly anything
        raise ValueError(
            f"{path} cannot be used ({e}): write it with numpy.savez(path, x=x, y=y)"
        ) from e
    own = cut_rows(torch.arange(len(x)), c, fed.task.split, fed.task.parts)
    return only(fed, c, own, x, *(v.long() for v in labels))


def shaped(fed, x):
    """Rows x in the shape of the federation; RuntimeError where they have another."""
    return x.reshape(len(x), *fed.shape)


def sound(task, c, at):
    """The task, if client c can train and be tested on it."""
    finite, both = task.x.isfinite().all(), len(task.train[c]) and len(task.test[c])
    refuse_if(not finite, f"{at}: x holds NaN or infinity; drop these rows first")
    codes = [(task.y, task.K), *([(task.a, task.groups.A)] if task.groups else [])]
    odd = any(((v < 0) | (v >= n)).any() for v, n in codes)
    refuse_if(odd, f"{at}: a label or a group is none of the federation's")
    refuse_if(not both, f"{at}: give at least one training and one test row")
    return task
