"""A record: what a run leaves behind.

Vectors over clients, never their means, and where they come from.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import subprocess
import zipfile
import zlib
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .types import Key, Look, Metric, Tree

PACKAGE = Path(__file__).parents[1]


@cache
def commit():
    """The commit of the source, with + when it has local changes;
    "unknown" outside git.
    """
    try:
        at = PACKAGE
        head = subprocess.run(
            ["git", "rev-parse", "--short=10", "HEAD"],
            cwd=at,
            capture_output=True,
            text=True,
            check=True,
        )
        dirty = subprocess.run(
            ["git", "status", "--porcelain", "--", "."],
            cwd=at,
            capture_output=True,
            text=True,
            check=True,
        )
        return head.stdout.strip() + ("+" if dirty.stdout.strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def source():
    """Hash of all sources of this package as the process found them: where numbers come
    from, never what names them.
    """
    return sources("**/*.py")[:16]


def describe(method):
    """A method's class and the hyper-parameters that differ by name,
    as plain values.
    """
    out = {}
    for f in fields(method):
        v = getattr(method, f.name)
        if f.name != "task":
            out[f.name] = (
                {type(v).__name__: describe(v)}
                if hasattr(v, "__dataclass_fields__")
                else v
            )
    return out


def sources(*patterns, root=PACKAGE):
    """Hash of source files of this package, by patterns as "nets/*.py";
    line ends do not count.
    """
    h = hashlib.sha256()
    for path in sorted({p for pattern in patterns for p in root.glob(pattern)}):
        h.update(
            path.relative_to(root).as_posix().encode()
            + b"\0"
            + path.read_bytes().replace(b"\r\n", b"\n")
            + b"\0"
        )
    return h.hexdigest()


@dataclass
class Record:
    """views: {(moment, view, split): [E, C]} accuracies as fractions at the rounds [E];
    logs: {name: [R, ...]}; meta: provenance.

    cells: {(moment, view, split): [E, C, A, 2, 2]} counts of group, outcome and
    prediction, and alike: {(moment, view): [E, C, 2]}, where a task has groups (see
    engine.score).
    Moments: "pre" (after download, before training), "post" (after training), "guest"
    (clients that never take part).
    """

    meta: dict[str, Any]
    rounds: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    views: dict[Key, np.ndarray] = field(default_factory=dict)
    logs: dict[str, np.ndarray] = field(default_factory=dict)
    cells: dict[Key, np.ndarray] = field(default_factory=dict)
    alike: dict[Look, np.ndarray] = field(default_factory=dict)
    state: Tree | None = None  # the final state, in memory only

    @classmethod
    def new(cls, method, task, R, seed, cohort, every, how, precision="float32"):
        dev = task.x.device
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
            "n": {
                s: [len(r) for r in getattr(task, s)] for s in ("train", "val", "test")
            }
            | {
                k: [len(g[i]) for g in task.guests]
                for i, k in ((2, "guest"), (1, "guest_val"), (0, "guest_train"))
                if k == "guest" or any(len(g[i]) for g in task.guests)
            },
            "device": torch.cuda.get_device_name(dev)
            if dev.type == "cuda"
            else f"cpu {platform.machine()}",
            "torch": torch.__version__,
            "commit": commit(),
            "source": source(),
            "seconds": 0.0,
            "bytes": {},
        }
        return cls(meta, rounds=[], views={}, logs={})

    # ------------------------------------------------------------ filled by the engine
    def score(self, t, moment, got):
        if not self.rounds or self.rounds[-1] != t:
            self.rounds.append(t)
        for view, splits in got.get("cells", {}).items():
            for split, n in splits.items():
                self.cells.setdefault((moment, view, split), []).append(
                    n.cpu().numpy().round().astype(np.int32)
                )
        for view, s in got.get("alike", {}).items():
            self.alike.setdefault((moment, view), []).append(s.cpu().numpy())
        for view, splits in got["acc"].items():
            for split, a in splits.items():
                a = a.cpu().numpy()
                if moment != "guest":  # no rows, no score
                    a = np.where(
                        np.array(self.meta["n"]["train" if split == "all" else split])
                        > 0,
                        a,
                        np.nan,
                    ).astype(a.dtype)
                self.views.setdefault((moment, view, split), []).append(a)

    def log(self, t, ids, log):
        self.logs.setdefault("cohort", []).append(ids.numpy())
        for k, v in log.items():
            past, v = self.logs.setdefault(k, []), v.detach().cpu().numpy()
            # a late entry keeps its round
            past += [np.full(v.shape, np.nan)] * (
                len(self.logs["cohort"]) - 1 - len(past)
            )
            past.append(v)

    def count(self, way, tree, once=False):
        """One message per client, leaves [M, ...], or [...] with once.

        meta["bytes"] has the size of each name at its first time, meta["tensors"] shape
        and type of each tensor and in how many messages it was.
        """
        known, tensors = (
            self.meta.setdefault(k, {}).setdefault(way, {})
            for k in ("bytes", "tensors")
        )
        for k in tree:
            named = paths(tree[k], k)
            if k not in known:
                one = [x if once else x[0] for _, x in named]
                known[k] = {
                    "shape": list(one[0].shape)
                    if len(one) == 1
                    else f"{len(one)} tensors",
                    "values": sum(x.numel() for x in one),
                    "bytes": sum(x.numel() * x.element_size() for x in one),
                }
            for path, x in named:
                if path not in tensors:
                    tensors[path] = [
                        list(x.shape[0 if once else 1 :]),
                        str(x.dtype)[6:],
                        0,
                    ]
                tensors[path][2] += 1

    def add_time(self, seconds):
        self.meta["seconds"] += seconds

    def finish(self, seconds):
        self.add_time(seconds)
        self.rounds = np.asarray(self.rounds, int)
        self.views, self.cells, self.alike = (
            {k: np.asarray(v) for k, v in d.items()}
            for d in (self.views, self.cells, self.alike)
        )
        # a round in which nobody was online has an entry, too
        n = len(self.logs.get("cohort", ()))
        self.logs = {
            k: ragged([*v, *[np.full(np.shape(v[-1]), np.nan)] * (n - len(v))])
            for k, v in self.logs.items()
        }

    def headline(self) -> str:
        moment, view, split = next(iter(self.views))
        return f"{view} {np.mean(self.views[moment, view, split][-1]):.3f}"

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
            have = ", ".join(map(str, self.views))
            raise KeyError(
                f"this record of {self.meta['method']} has no view {key}; it has {have}"
            )
        return self.views[key]

    # ------------------------------------------------- on disk: npz and json, no pickle
    def pack(self):
        """A tree of plain values and tensors, for the checkpoint."""
        tensors = lambda d: {
            "|".join(k): [torch.as_tensor(a) for a in v] for k, v in d.items()
        }
        return {
            "meta": json.dumps(self.meta),
            "rounds": list(map(int, self.rounds)),
            "views": tensors(self.views),
            "cells": tensors(self.cells),
            "alike": tensors(self.alike),
            "logs": {k: [torch.as_tensor(a) for a in v] for k, v in self.logs.items()},
        }

    def unpack(self, p):
        arrays = lambda d: {
            tuple(k.split("|")): [a.cpu().numpy() for a in v] for k, v in d.items()
        }
        logs = {k: [a.cpu().numpy() for a in v] for k, v in p["logs"].items()}
        return Record(
            json.loads(p["meta"]),
            list(p["rounds"]),
            arrays(p["views"]),
            logs,
            arrays(p["cells"]),
            arrays(p["alike"]),
        )

    def save(self, folder: str | Path) -> None:
        """Write record.npz and record.json, then the mark `done`;
        each file appears whole or not at all.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        arrays = {"rounds": self.rounds} | {
            "view|" + "|".join(k): v for k, v in self.views.items()
        }
        arrays |= {
            "|".join((what, *k)): v
            for what in ("cells", "alike")
            for k, v in getattr(self, what).items()
        }
        arrays |= {"log|" + k: v for k, v in self.logs.items()}
        buf = io.BytesIO()
        np.savez_compressed(buf, **arrays)
        meta = self.meta | {"sha256": hashlib.sha256(buf.getbuffer()).hexdigest()}
        whole(folder / "record.npz", lambda f: f.write(buf.getbuffer()))
        whole(
            folder / "record.json",
            lambda f: f.write(json.dumps(meta, indent=1, sort_keys=True).encode()),
        )
        whole(folder / "done", lambda f: f.write(b""))

    @classmethod
    def load(cls, folder: str | Path) -> Record:
        folder = Path(folder)
        try:
            body = (folder / "record.npz").read_bytes()
            with np.load(io.BytesIO(body), allow_pickle=False) as z:
                arrays = {k: z[k] for k in z.files}
            meta = json.loads((folder / "record.json").read_text())
            if meta.pop("sha256", None) != hashlib.sha256(body).hexdigest():
                raise ValueError("the checksum of record.npz does not fit")
        except (
            OSError,
            ValueError,
            KeyError,
            EOFError,
            zipfile.BadZipFile,
            zlib.error,
        ) as e:
            raise ValueError(
                f"record {folder} cannot be read ({e}); delete the folder to "
                "run it again"
            ) from e
        part = lambda what: {
            tuple(k.split("|")[1:]): v
            for k, v in arrays.items()
            if k.startswith(what + "|")
        }
        logs = {k[4:]: v for k, v in arrays.items() if k.startswith("log|")}
        return cls(
            meta, arrays["rounds"], part("view"), logs, part("cells"), part("alike")
        )


def paths(tree, at):
    """(name, tensor) of every leaf, as ("w.fc.bias", b) where `at` is "w"."""
    return (
        [p for k, v in tree.items() for p in paths(v, f"{at}.{k}")]
        if isinstance(tree, dict)
        else [(at, tree)]
    )


def whole(path, write):
    """Write a file through a hidden neighbour: it is there whole or not at all,
    also when the disk is full.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(part, "wb") as f:
            write(f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError as e:
        raise OSError(
            e.errno,
            f"{e.strerror} while writing {path}; what was there is untouched: make "
            "room, run again",
        ) from e
    finally:
        part.unlink(missing_ok=True)


def ragged(v):
    """A list of arrays as one array; rounds with fewer entries are filled with -1
    (integers) or NaN.
    """
    v = [np.asarray(a) for a in v]
    if len({a.shape for a in v}) <= 1:
        return np.asarray(v)
    out = np.full(
        (len(v), *np.max([a.shape for a in v], 0)),
        -1 if v[0].dtype.kind == "i" else np.nan,
    )
    for i, a in enumerate(v):
        out[(i, *map(slice, a.shape))] = a
    return out
