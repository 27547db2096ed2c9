"""A record: what a run leaves behind.

Vectors over clients, never their means, and where they come from.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from . import models, tidy
from .files import whole
from .method import describe
from .provenance import commit, source
from .task import row_counts
from .types import Key, Look, Metric, Tree, Who

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch.nn import Module

    from .method import Method

M = TypeVar("M", bound="Module")
CPU = f"cpu {platform.machine()}"
# the beginning of an array's name in record.npz -> the part of the record
PARTS = {"view": "views", "cells": "cells", "alike": "consistency"}


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
    state        what server and clients hold at the end, in memory only; `model` also
                 finds it in the folder of the run
    method, cohort, folder
                 what was run, and where it is kept: for `model`, in memory only

    Moments: "pre" (after download, before training), "post" (after training), "own" (as
    uploaded), "guest" (clients that never take part).
    """

    meta: dict[str, Any]
    rounds: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    views: dict[Key, np.ndarray] = field(default_factory=dict)
    logs: dict[str, np.ndarray] = field(default_factory=dict)
    cells: dict[Key, np.ndarray] = field(default_factory=dict)
    consistency: dict[Look, np.ndarray] = field(default_factory=dict)
    state: Tree | None = None
    method: Any = field(default=None, compare=False)
    cohort: Any = field(default=None, compare=False)
    folder: Path | None = field(default=None, compare=False)

    @classmethod
    def new(cls, method, task, R, seed, cohort, every, how, precision="float32"):
        """An empty record of a run, with what is known before it."""
        device, cuda = task.x.device, task.x.device.type == "cuda"
        meta = {
            "method": type(method).__name__,
            "parameters": describe(method),
            "task": task.name,
            "kind": task.kind,
            "clients": task.C,
            "owners": list(task.owners),
            "rounds": R,
            "seed": seed,
            "every": every,
            "how": how,
            "precision": precision,
            "cohort": cohort if cohort is None or isinstance(cohort, int) else "given",
            "n": row_counts(task),
            "device": torch.cuda.get_device_name(device) if cuda else CPU,
            "torch": torch.__version__,
            "commit": commit(),
            "source": source(),
            "seconds": 0.0,
            "bytes": {},
        }
        own = getattr(task.network, "identity", None)  # of a module that a user brings
        meta |= {} if own is None else {"network": own}
        return cls(meta, rounds=[], views={}, logs={})

    # ------------------------------------------------------------ filled by the engine
    def score(self, t, moment, scores):
        """What `scoring.score` found in round t."""
        if not self.rounds or self.rounds[-1] != t:
            self.rounds.append(t)
        for view, splits in scores.get("cells", {}).items():
            for split, n in splits.items():
                n = n.cpu().numpy().round().astype(np.int32)
                self.cells.setdefault((moment, view, split), []).append(n)
        for view, s in scores.get("consistency", {}).items():
            self.consistency.setdefault((moment, view), []).append(s.cpu().numpy())
        for view, splits in scores["acc"].items():
            for split, a in splits.items():
                a = self.where_rows(moment, split, a.cpu().numpy())
                self.views.setdefault((moment, view, split), []).append(a)

    def where_rows(self, moment, split, a):
        """Accuracies a [C], NaN where a client has no rows of the split."""
        if moment == "guest":
            return a
        n = np.array(self.meta["n"]["train" if split == "all" else split])
        return np.where(n > 0, a, np.nan).astype(a.dtype)

    def log(self, t, ids, log):
        """The cohort ids [M] of round t, and what the server logs {name: tensor}."""
        self.logs.setdefault("cohort", []).append(ids.numpy())
        rounds = len(self.logs["cohort"])
        for k, v in log.items():
            past, v = self.logs.setdefault(k, []), v.detach().cpu().numpy()
            # what is logged for the first time keeps its round
            past += [np.full(v.shape, np.nan)] * (rounds - 1 - len(past))
            past.append(v)

    def count(self, way, tree, once=False):
        """One message per client, leaves [M, ...], or [...] with once.

        meta["bytes"] has the size of each name at its first time, meta["tensors"] shape
        and type of each tensor and in how many messages it was.
        """
        sizes = self.meta.setdefault("bytes", {}).setdefault(way, {})
        tensors = self.meta.setdefault("tensors", {}).setdefault(way, {})
        for name in tree:
            named = paths(tree[name], name)
            if name not in sizes:
                sizes[name] = size_of([x if once else x[0] for _, x in named])
            for path, x in named:
                shape = list(x.shape if once else x.shape[1:])
                tensors.setdefault(path, [shape, str(x.dtype)[6:], 0])[2] += 1

    def add_time(self, seconds):
        """Count more seconds of computing into meta."""
        self.meta["seconds"] += seconds

    def finish(self, seconds):
        """Lists become arrays; the record can be read."""
        self.add_time(seconds)
        self.rounds = np.asarray(self.rounds, int)
        for part in PARTS.values():
            done = {k: np.asarray(v) for k, v in getattr(self, part).items()}
            setattr(self, part, done)
        # a round in which nobody was online has an entry, too
        n = len(self.logs.get("cohort", ()))
        missing = lambda v: [np.full(np.shape(v[-1]), np.nan)] * (n - len(v))
        self.logs = {k: ragged([*v, *missing(v)]) for k, v in self.logs.items()}

    def headline(self) -> str:
        """The first view and the mean accuracy of its last evaluation, for a bar."""
        moment, view, split = next(iter(self.views))
        return f"{view} {np.mean(self.views[moment, view, split][-1]):.3f}"

    def so_far(self, state=None):
        """A record of its own, finished, with what this one has up to now."""
        listed = lambda d: {k: list(v) for k, v in d.items()}
        parts = {p: listed(getattr(self, p)) for p in (*PARTS.values(), "logs")}
        past = {"meta": dict(self.meta), "rounds": list(self.rounds), "state": state}
        copy = replace(self, **past, **parts)
        copy.finish(0.0)
        return copy

    # ------------------------------------------------------------ read by everybody
    def curve(
        self,
        metric: Metric,
        view: str = "global",
        split: str = "test",
        moment: str = "pre",
    ) -> np.ndarray:
        """metric (a function of fedlib.metrics) at every evaluated round [E]."""
        return metric(self[moment, view, split])

    def __getitem__(self, key: Key) -> np.ndarray:
        if key not in self.views:
            raise KeyError(f"there is no view {key}; there are {[*self.views]}")
        return self.views[key]

    def frame(self) -> DataFrame:
        """One row per round, client, moment, view and split, see `tidy.frame`."""
        return tidy.frame(self)

    def summary(self) -> dict[str, float]:
        """{"pre/global/test/mean": fraction, ".../worst": fraction, ...} of the last
        scored round; worst: the mean of the worst tenth of the clients."""
        return tidy.summary(self)

    def to_csv(self, path: str | Path) -> None:
        """Write `frame` with the columns method, task and seed in front, as .csv."""
        tidy.write(self, path, "csv")

    def to_parquet(self, path: str | Path) -> None:
        """The same as .parquet."""
        tidy.write(self, path, "parquet")

    def __repr__(self) -> str:
        return tidy.text(self)

    def _repr_html_(self):
        return tidy.html(self)

    def __getstate__(self):
        """Between processes it travels without the data and the cohort's function."""
        return self.__dict__ | {"method": None, "cohort": None}

    # ------------------------------------------------------------ the models at the end
    @overload
    def model(self, client: Who = ..., view: str | None = ...) -> Tree: ...

    @overload
    def model(self, client: Who = ..., view: str | None = ..., *, into: M) -> M: ...

    def model(self, client=None, view=None, into=None):
        """The weights {name: tensor} that a view has at the end, on the CPU.

        client: None for the model that all share, else a client by its number or its
        name. view: one of the method's, such as "global", "personal" or "tuned"; None:
        of a client the most personal one. into: your own nn.Module, which is filled
        with these weights and returned.

        It is the model that the last row of the record scored. A record that was read
        from a folder needs its method: Record.load(folder, method).

        ValueError where the method has no such model, and says which it has.
        """
        return models.model(self, client, view, into)

    def predict(
        self, x: ArrayLike | Tensor, client: Who = None, view: str | None = None
    ) -> Tensor:
        """Probabilities [n, K] of the classes for rows x [n, ...], prepared as those of
        the task; client and view as in `model`. Columns are in the order of the labels
        0 .. K - 1, or of task.classes where these have names.
        """
        return models.predict(self, x, client, view)

    def save_model(
        self, path: str | Path, client: Who = None, view: str | None = None
    ) -> None:
        """Write what `model` returns: as .pt, for torch.load(path, weights_only=True),
        or as .safetensors, where that package is installed."""
        models.save(self, path, client, view)

    # ------------------------------------------------- on disk: npz and json, no pickle
    def arrays(self):
        """{"view|pre|global|test": array, "log|weight": array, ...}: all but meta,
        rounds and state, by their names in record.npz."""
        out = {}
        for kind, part in PARTS.items():
            out |= {"|".join((kind, *k)): v for k, v in getattr(self, part).items()}
        return out | {f"log|{k}": v for k, v in self.logs.items()}

    def pack(self):
        """A tree of plain values and tensors, for the checkpoint."""
        arrays = {k: list(map(torch.as_tensor, v)) for k, v in self.arrays().items()}
        rounds = list(map(int, self.rounds))
        return {"meta": json.dumps(self.meta), "rounds": rounds, "arrays": arrays}

    @classmethod
    def unpack(cls, p):
        """The record of a packed tree p, which goes on."""
        arrays = {k: [a.cpu().numpy() for a in v] for k, v in p["arrays"].items()}
        return cls(json.loads(p["meta"]), list(p["rounds"]), **parts_of(arrays))

    def save(self, folder: str | Path) -> None:
        """Write record.npz and record.json, then the mark `done`; each file appears
        whole or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        buf = io.BytesIO()
        np.savez_compressed(buf, rounds=self.rounds, **self.arrays())
        body = buf.getbuffer()
        meta = self.meta | {"sha256": checksum(body, self.meta)}
        text = json.dumps(meta, indent=1, sort_keys=True).encode()
        whole(folder / "record.npz", lambda f: f.write(body))
        whole(folder / "record.json", lambda f: f.write(text))
        whole(folder / "done", lambda f: f.write(b""))

    @classmethod
    def load(cls, folder: str | Path, method: Method | None = None) -> Record:
        """The record in a folder; ValueError where it cannot be read.

        method: the one that was run, with its task, where `model` is wanted, as in
        Record.load(folder, fedlib.make(name, task)).
        """
        folder = Path(folder)
        try:
            record = stored(cls, folder)
        except Exception as e:  # whatever a damaged file leads json, zip and numpy to
            raise ValueError(
                f"record {folder} cannot be read ({e or type(e).__name__}); delete the "
                "folder to run it again"
            ) from e
        if method is not None:
            record.method = models.same_method(method, record)
        return record


# ---------------------------------------------------------------- read and checked
def stored(cls, folder):
    """The record in a folder, whose checksum fits; of earlier versions it is that of
    record.npz alone."""
    body = (folder / "record.npz").read_bytes()
    meta = json.loads((folder / "record.json").read_text())
    stored_sum = meta.pop("sha256", None)
    if stored_sum not in (checksum(body, meta), hashlib.sha256(body).hexdigest()):
        raise ValueError("record.npz or record.json does not fit the checksum")
    with np.load(io.BytesIO(body), allow_pickle=False) as z:
        arrays = {k: z[k] for k in z.files}
    rounds = arrays.pop("rounds")
    return cls(meta, rounds, **parts_of(arrays), folder=folder)


def parts_of(arrays):
    """What `Record.arrays` gives, as the parts of a record."""
    parts = {part: {} for part in (*PARTS.values(), "logs")}
    for name, v in arrays.items():
        kind, key = name.split("|", 1)
        if kind == "log":
            parts["logs"][key] = v
        elif kind in PARTS:
            parts[PARTS[kind]][tuple(key.split("|"))] = v
    return parts


def checksum(body, meta):
    """SHA-256 of record.npz and of what the record knows about its run, as json gives
    it back."""
    text = json.dumps(json.loads(json.dumps(meta)), sort_keys=True)
    return hashlib.sha256(b"".join((body, text.encode()))).hexdigest()


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
    """A list of arrays as one array; rounds with fewer entries are filled with -1
    (integers) or NaN."""
    v = [np.asarray(a) for a in v]
    if len({a.shape for a in v}) <= 1:
        return np.asarray(v)
    shape = len(v), *np.max([a.shape for a in v], 0)
    out = np.full(shape, -1 if v[0].dtype.kind == "i" else np.nan)
    for i, a in enumerate(v):
        out[(i, *map(slice, a.shape))] = a
    return out
