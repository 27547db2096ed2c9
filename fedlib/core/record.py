"""A record, what a run leaves behind: vectors over clients, never their means, where
they come from, and the models at the end.

Letters: C clients, E evaluations, K classes, R rounds, n rows.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .clients import Clients, cohort_of
from .errors import is_whole, nearest, refuse_if
from .files import commit, read_tensors, source, write_tensors
from .method import describe, overrides
from .task import Model, row_counts
from .tree import Tree, pick, tmap

if TYPE_CHECKING:
    from pandas import DataFrame

Key: TypeAlias = tuple[str, str, str]  # moment, view, split
Who: TypeAlias = int | str | None  # a client by number or name; None: all
CPU = f"cpu {platform.machine()}"
# the beginning of an array's name -> the part of the record
PARTS = {"view": "views", "cells": "cells", "alike": "consistency", "log": "logs"}
# entries of meta by which two runs are one
SAME = "method parameters task network batch n rounds".split()
SAME += "seed cohort every precision init scored".split()
SPLIT = {"all": "train"}  # what is scored -> its rows in meta["n"]; of guests:
GUEST = {"test": "guest", "val": "guest_val", "all": "guest_train"}
COLUMNS = "round client name moment view split rows accuracy".split()
OWN_FIRST = ("personal", "tuned", "global")  # a client's view, where none is named
AT_ONCE = 1024  # rows that pass a model together


@dataclass
class Record:
    """Numbers of one run, each of every client at the scored rounds [E].

    meta         provenance
    rounds       [E]
    views        {(moment, view, split): [E, C]}, accuracies as fractions
    logs         {name: [R, ...]}, what the server logs
    cells        {(moment, view, split): [E, C, A, 2, 2]}, counts of group, outcome and
                 prediction, where a task has groups
    consistency  {(moment, view): [E, C, 2]}, with the neighbours, see `scoring.score`
    state        what server and clients hold at the end; like method, cohort and folder
                 in memory only, for `model`

    Moments: "pre" (after download, before training), "post" (after training), "own" (as
    uploaded), "guest" (clients that never take part)."""

    meta: dict[str, Any]
    rounds: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    views: dict[Key, np.ndarray] = field(default_factory=dict)
    logs: dict[str, np.ndarray] = field(default_factory=dict)
    cells: dict[Key, np.ndarray] = field(default_factory=dict)
    consistency: dict[tuple[str, str], np.ndarray] = field(default_factory=dict)
    state: Tree | None = None
    method: Any = field(default=None, compare=False)
    cohort: Any = field(default=None, compare=False)
    folder: Path | None = field(default=None, compare=False)

    @classmethod
    def of(cls, run):
        """An empty record of a run (`engine.Federation`), with what is known before."""
        method, task, cohort = run.method, run.task, run.cohort
        device, cuda = task.x.device, task.x.device.type == "cuda"
        meta = identity(method, task) | {
            **{"kind": task.kind, "clients": task.C, "owners": list(task.owners)},
            **{"rounds": run.R, "seed": run.seed, "every": run.every, "how": run.how},
            "precision": run.precision,
            "cohort": cohort if cohort is None or isinstance(cohort, int) else "given",
            "device": torch.cuda.get_device_name(device) if cuda else CPU,
            **{"torch": torch.__version__, "commit": commit(), "source": source()},
            **{"seconds": 0.0, "bytes": {}},
            "scored": [sorted(run.splits), run.guests, run.own],
        }
        if run.init is not None:
            meta["init"] = digest(run.init)
        return cls(meta, [], method=method, cohort=cohort, folder=run.folder.path)

    # ------------------------------------------------------------ filled by the engine
    def score(self, t, moment, scores):
        """What `scoring.score` found in round t."""
        if not self.rounds or self.rounds[-1] != t:
            self.rounds.append(t)
        keep = lambda part, key, v: part.setdefault((moment, *key), []).append(v)
        for view, splits in scores["acc"].items():
            for split, a in splits.items():
                a, n = a.cpu().numpy(), self.meta["n"].get(SPLIT.get(split, split))
                if moment != "guest":  # NaN where a client has no rows of the split
                    a = np.where(np.array(n) > 0, a, np.nan).astype(a.dtype)
                keep(self.views, (view, split), a)
        for view, splits in scores.get("cells", {}).items():
            for split, n in splits.items():
                n = n.cpu().numpy().round().astype(np.int32)
                keep(self.cells, (view, split), n)
        for view, s in scores.get("consistency", {}).items():
            keep(self.consistency, (view,), s.cpu().numpy())

    def log(self, t, ids, log):
        """The cohort ids [M] of round t, and what the server logs {name: tensor}."""
        self.logs.setdefault("cohort", []).append(ids.numpy())
        rounds = len(self.logs["cohort"])
        for k, v in log.items():
            past, v = self.logs.setdefault(k, []), v.detach().cpu().numpy()
            # what is logged for the first time keeps its round
            past += [np.full(v.shape, np.nan)] * (rounds - 1 - len(past)) + [v]

    def count(self, way, tree, once=False):
        """One message per client, leaves [M, ...], or [...] with once. meta["bytes"]
        has the size of each name at its first time, meta["tensors"] shape and type of
        each tensor and in how many messages it was."""
        sizes = self.meta.setdefault("bytes", {}).setdefault(way, {})
        tensors = self.meta.setdefault("tensors", {}).setdefault(way, {})
        for name in tree:
            named = [(k, x if once else x[0]) for k, x in paths(tree[name], name)]
            sizes.setdefault(name, size_of([x for _, x in named]))
            for path, x in named:
                seen = tensors.setdefault(path, [list(x.shape), str(x.dtype)[6:], 0])
                seen[2] += 1

    def finish(self, seconds):
        """Lists become arrays; the record can be read."""
        self.meta["seconds"] += seconds
        self.rounds = np.asarray(self.rounds, int)
        # a round in which nobody was online has an entry, too
        n = len(self.logs.get("cohort", ()))
        missing = lambda v: [np.full(np.shape(v[-1]), np.nan)] * (n - len(v))
        self.logs = {k: ragged([*v, *missing(v)]) for k, v in self.logs.items()}
        for part in PARTS.values():
            done = {k: np.asarray(v) for k, v in getattr(self, part).items()}
            setattr(self, part, done)

    def so_far(self, state=None):
        """A record of its own, finished, with what this one has up to now."""
        copy = replace(self, meta=dict(self.meta), state=state, **self.listed())
        copy.finish(0.0)
        return copy

    def listed(self):
        """Its rounds and parts as lists, to which the engine appends."""
        lists = lambda part: {k: list(v) for k, v in getattr(self, part).items()}
        return {"rounds": list(self.rounds)} | {p: lists(p) for p in PARTS.values()}

    # ------------------------------------------------------------ read by everybody
    def curve(
        self,
        metric: Callable[[np.ndarray], Any],
        view: str = "global",
        split: str = "test",
        moment: str = "pre",
    ) -> np.ndarray:
        """A function of fedlib.metrics at every scored round [E]."""
        return metric(self[moment, view, split])

    def __getitem__(self, key: Key) -> np.ndarray:
        if key not in self.views:
            raise KeyError(f"there is no view {key}; there are {[*self.views]}")
        return self.views[key]

    def frame(self) -> DataFrame:
        """A tidy table: one row per round, client (its number, of a guest -1, -2, ...),
        moment, view and split; name: its owner, if any; rows: how many it has of this
        split; accuracy: a fraction, missing where it has none."""
        import pandas as pd  # here, so that `import fedlib` stays quick

        table = [pd.DataFrame(columns=COLUMNS)]
        for (moment, view, split), a in self.views.items():
            (E, C), guests = np.shape(a), moment == "guest"
            ids, names = np.arange(C), [] if guests else self.meta["owners"]
            n = self.meta["n"][(GUEST if guests else SPLIT).get(split, split)]
            columns = {
                # a view that is scored after training has no row for the last round
                "round": np.asarray(self.rounds, int)[:E].repeat(C),
                "client": np.tile(-1 - ids if guests else ids, E),
                "name": (names or [None] * C) * E,
                **{"moment": moment, "view": view, "split": split, "rows": n * E},
                "accuracy": np.asarray(a, float).ravel(),
            }
            table.append(pd.DataFrame(columns))
        return pd.concat(table[1:] or table, ignore_index=True).infer_objects()

    def summary(self) -> dict[str, float]:
        """{"pre/global/test/mean": fraction, ".../worst": the mean of the worst tenth,
        ...} where each view was scored last; who has no rows does not count."""
        out = {}
        for key, views in self.views.items():
            if len(views):
                a = np.sort(np.asarray(views[-1], float))  # missing ones come last
                a = a[~np.isnan(a)] if not np.isnan(a).all() else a
                parts = {"mean": a, "worst": a[: max(1, len(a) // 10)]}
                out |= {"/".join((*key, k)): float(v.mean()) for k, v in parts.items()}
        return out

    def __repr__(self) -> str:
        meta, tests = self.meta, {k[4:]: v for k, v in self.summary().items()}
        said = ", ".join(f"{k} {v:.3f}" for k, v in tests.items() if "/test/" in k)
        return f"<Record of {meta['method']} on {meta['task']}: {said or 'no scores'}>"

    # ------------------------------------------------------------ the models at the end
    @torch.no_grad()
    def model(self, client: Who = None, view: str | None = None) -> Tree:
        """The weights {name: tensor} that the record's last row scored, on the CPU.

        client: None for the model that all share, else a client by its number or name.
        view: one of the method's, such as "global" or "tuned"; None: of a client the
        most personal one. From a folder: the same call of `run` returns its record.

        ValueError where the method has no such model, and says which it has."""
        view, f = chosen(self, client, view)
        names, w = self.method.task.shapes, f.w if isinstance(f, Model) else {}
        refuse_if(
            w.keys() != {*names},
            f"{self.meta['method']}: view {view!r} is not one set of weights of "
            f"{self.method.task.network}; use predict(x, ...)",
        )
        return {k: w[k].detach().clone().cpu() for k in names}

    @torch.no_grad()
    def predict(
        self, x: ArrayLike | Tensor, client: Who = None, view: str | None = None
    ) -> Tensor:
        """Probabilities [n, K] of the classes 0 .. K - 1 (task.classes has their names)
        for rows x [n, ...], prepared as the task's; client and view as in `model`."""
        _, f = chosen(self, client, view)
        task = self.method.task
        x = x if isinstance(x, Tensor) else torch.as_tensor(np.array(x, order="C"))
        why = f"x is {[*x.shape]}: give rows of {[*task.x.shape[1:]]}, as the task's"
        refuse_if(x.shape[1:] != task.x.shape[1:], why)
        x = x.to(task.x.device, task.x.dtype)
        return torch.cat([f(part) for part in x.split(AT_ONCE)]).softmax(1).cpu()

    # ------------------------------------------------- on disk: tensors, no pickle
    def __getstate__(self):
        """Between processes it travels without the data and the cohort's function."""
        return self.__dict__ | {"method": None, "cohort": None}

    def arrays(self):
        """{"view|pre|global|test": array, "log|weight": array, ...}."""
        parts = [(kind, getattr(self, part)) for kind, part in PARTS.items()]
        name = lambda k: k if isinstance(k, str) else "|".join(k)
        return {f"{kind}|{name(k)}": v for kind, part in parts for k, v in part.items()}

    def pack(self):
        """A finished record as a tree of plain values and tensors."""
        arrays = self.arrays() | {"rounds": self.rounds}
        tensors = {k: torch.as_tensor(np.asarray(v)) for k, v in arrays.items()}
        return {"meta": json.dumps(self.meta), "arrays": tensors}

    @classmethod
    def unpack(cls, packed, **more):
        """The record of such a tree; more: fields that no file holds."""
        arrays = {k: v.cpu().numpy() for k, v in packed["arrays"].items()}
        parts = {"rounds": arrays.pop("rounds")} | parts_of(arrays)
        return cls(json.loads(packed["meta"]), **parts, **more)

    def save(self, folder: str | Path) -> None:
        """Write the file `record`, which appears whole or not at all."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_tensors(Path(folder) / "record", self.pack())

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        """The record in a folder; ValueError where it cannot be read."""
        path = Path(folder) / "record"
        try:
            return cls.unpack(read_tensors(path, "cpu"), folder=Path(folder))
        except (OSError, KeyError, TypeError) as e:
            raise ValueError(f"{path} cannot be read ({e!r}); run it again") from e


# ---------------------------------------------------------------- which run it is of
def identity(method, task):
    """The entries of meta that say what was run on what."""
    return {
        "method": type(method).__name__,
        "parameters": describe(method),
        "task": task.name,
        "network": getattr(task.network, "identity", repr(task.network)),
        "batch": task.batch,
        "n": row_counts(task),
    }


def same_meta(there, here, at, entries=SAME):
    """The meta of the run there; ValueError where one of the entries differs here."""
    for k in entries:
        a, b = (json.dumps(meta.get(k), sort_keys=True) for meta in (there, here))
        refuse_if(
            a != b,
            f"{at} belongs to another run: {k} is {a:.90} there, {b:.90} here; give "
            "each run its own folder",
        )
    return {k: here[k] for k in entries if k in here} | there


def parts_of(arrays):
    """What `Record.arrays` gives, as the parts of a record."""
    parts = {part: {} for part in PARTS.values()}
    for name, v in arrays.items():
        kind, *key = name.split("|")
        parts[PARTS[kind]]["|".join(key) if kind == "log" else tuple(key)] = v
    return parts


def digest(w):
    """A hash of weights {name: tensor}."""
    h = hashlib.sha256()
    for name in sorted(w):
        v = w[name].detach().cpu().contiguous()
        h.update(f"{name} {list(v.shape)} {v.dtype}".encode())
        h.update(v.flatten().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:16]


def size_of(tensors):
    """Shape, number of values and of bytes of some tensors together."""
    one = len(tensors) == 1
    return {
        "shape": list(tensors[0].shape) if one else f"{len(tensors)} tensors",
        "values": sum(x.numel() for x in tensors),
        "bytes": sum(x.numel() * x.element_size() for x in tensors),
    }


def paths(tree, at):
    """(name, tensor) of every leaf, as ("w.fc.bias", b) where `at` is "w"."""
    if not isinstance(tree, dict):
        return [(at, tree)]
    return [p for k, v in tree.items() for p in paths(v, f"{at}.{k}")]


def ragged(v):
    """Arrays as one; rounds with fewer entries are filled with -1 (integers) or NaN."""
    v = [np.asarray(a) for a in v]
    if len({a.shape for a in v}) <= 1:
        return np.asarray(v)
    shape = len(v), *np.max([a.shape for a in v], 0)
    out = np.full(shape, -1 if v[0].dtype.kind == "i" else np.nan)
    for i, a in enumerate(v):
        out[(i, *map(slice, a.shape))] = a
    return out


# ---------------------------------------------------------------- models at the end
def chosen(record, client, view):
    """(name, view) that is asked for, as the last row of the record scored it."""
    meta, views_of = record.meta, views_at_end(record)
    ids = range(meta["clients"]) if client is None else [number(meta, client)]
    views = views_of(ids[0])
    own = next(v for v in (*OWN_FIRST, *views) if v in views)
    view = view or ("global" if client is None else own)
    same = lambda c: alike(views[view], views_of(c)[view])
    refuse_if(
        view not in views or not all(map(same, ids[1:])),
        f"{meta['method']} has no view {view!r}{nearest(view, views)} that all clients "
        f"share (it has {', '.join(map(repr, views))}); name a client: model(client=0)",
    )
    return view, views[view]


def views_at_end(record):
    """c -> {name: view} of client c, who has received where it would in the next round;
    ValueError where the state at the end is not known."""
    meta, method, state = record.meta, record.method, record.state
    path = record.folder and record.folder / "checkpoint"
    if state is None and method is not None and path and path.exists():
        state = read_tensors(path, method.task.x.device)["state"]
    refuse_if(
        not state or (state["t"] != meta["rounds"] and record.state is None),
        f"no model of {meta['method']} after {meta['rounds']} rounds in "
        f"{path or 'memory'}: it diverged ({meta.get('diverged', 'no')}), was run with "
        "keep_state=False, or read without its method; call run with its folder",
    )
    run = Clients(method, method.task, meta["seed"], state["t"], meta["rounds"])
    who = cohort_of(method, method.task, run.seed, run.t, record.cohort)
    down = method.send(state["server"], torch.arange(method.task.C))

    def views_of(c):
        _, (shard,) = run.shards(torch.tensor([c]))
        mine = tmap(torch.clone, pick(state["clients"], c))
        args = pick(down, c), mine, shard
        if overrides(method, "receive") and (method.download == "all" or c in who):
            args = pick(down, c), run.call(method.receive, args, c, "receive"), shard
        return run.call(method.views, args, c, "views")

    return views_of


def number(meta, client):
    """The number of a client, given by its number or its name."""
    C, names = meta["clients"], meta["owners"]
    if is_whole(client) and 0 <= client < C:
        return int(client)
    refuse_if(
        not isinstance(client, str) or names.count(client) != 1,
        f"client = {client!r}: give a number from 0 to {C - 1}, or a client's name, "
        f"where it has one{nearest(client, names)}",
    )
    return names.index(client)


def alike(one, other):
    """Are two clients' views the same weights? Not where each fits its own."""
    a, b = getattr(one, "w", 0), getattr(other, "w", 0)
    plain = type(one) is type(other) is Model and a.keys() == b.keys()
    return plain and all(torch.equal(a[k], b[k]) for k in a)
