"""What a notebook measures once and keeps, as it takes long or never comes out twice.

    found = once("plgu-flatness", tier, flatness.measure_all, cells)

The function returns a tree of numbers, texts, arrays and data frames. Its answer lies
in evidence/kept/<name>.json.gz, else in runs/kept/, named like a run: by what is given
and by its version; of a function of a notebook by its source.
"""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd

from ..core import files
from ..core.errors import refuse_if
from . import identity
from .store import reading

STORE, RUNS = Path("evidence/kept"), Path("runs/kept")
END = ".json.gz"


def once(name, tier, f, *args, **more):
    """f(*args, **more), a tree of what `encoded` takes; computed if it is not yet."""
    key = key_of(name, tier, f, args, more)
    path = RUNS / f"{name}-{key}{END}"
    for stored in filter(Path.exists, (STORE / f"{name}{END}", path)):
        answer, about = read(stored)
        if about["key"] == key:
            return answer
    made_by = {"commit": files.commit(), "source": files.source()}
    return write(path, f(*args, **more), {"key": key, "tier": tier} | made_by)


def key_of(name, tier, f, args, more):
    """The name of an answer, 16 hex digits."""
    package, _, module = f.__module__.partition(".")
    ours = package in ("fedlib", "repro", "papers")  # whichever folder it lies in
    unit = f"measure fedlib.{module.rpartition('.')[2]}.{f.__qualname__}"
    what = {"name": name, "tier": tier, "measure": unit if ours else identity.own(f)}
    what |= {"given": identity.plain([args, more]), "versions": identity.raised([unit])}
    return identity.digest(what)


def pack(tier):
    """Copy a tier's newest answers from runs/kept to evidence/kept -> changed paths."""
    newest, changed = {}, []
    for path in sorted(RUNS.glob(f"*{END}"), key=lambda p: p.stat().st_mtime_ns):
        if (about := read(path)[1])["tier"] == tier:
            newest[STORE / (path.name.rpartition("-")[0] + END)] = path, about
    for to, (path, about) in newest.items():
        if not to.exists() or read(to)[1]["key"] != about["key"]:
            made = f"{path} is of sources in no commit: commit, and measure again"
            refuse_if(identity.uncommitted(about["commit"]), made)
            to.parent.mkdir(parents=True, exist_ok=True)
            files.whole(to, lambda f, path=path: f.write(path.read_bytes()))
            changed.append(to)
    return changed


# ---------------------------------------------------------------- a tree <-> JSON
def write(path, tree, about):
    """Write a tree, and return it as it will be read."""
    text = json.dumps({"about": [*about.items()], "answer": encoded(tree)})
    path.parent.mkdir(parents=True, exist_ok=True)
    files.whole(path, lambda f: f.write(gzip.compress(text.encode(), mtime=0)))
    return read(path)[0]


def read(path):
    """(tree, what is known about it) of a file."""
    with reading(path):
        found = json.loads(gzip.decompress(path.read_bytes()), object_hook=decoded)
        return found["answer"], dict(found["about"])


def encoded(v):
    """A tree as JSON has it; keys may be texts, numbers and tuples of them."""
    if isinstance(v, dict):
        return {"dict": [[k, encoded(x)] for k, x in v.items()]}
    if isinstance(v, (list, tuple)):
        return [encoded(x) for x in v]
    if isinstance(v, pd.DataFrame):
        index = [k for k in v.index.names if k is not None]
        flat = v.reset_index() if index else v
        return {"frame": [index, [[k, flat[k].tolist()] for k in flat]]}
    if hasattr(v, "__array__") and not isinstance(v, (str, float)):
        a = np.asarray(v)
        short = a.astype(str).astype(float) if a.dtype == np.float32 else a
        return {"array": [str(a.dtype), list(a.shape), short.ravel().tolist()]}
    return v


def decoded(v):
    """A JSON object as the dictionary, array or frame that it stands for."""
    what, of = next(iter(v.items()))
    if what == "dict":
        return {tuple(k) if isinstance(k, list) else k: x for k, x in of}
    if what == "array":
        return np.array(of[2], of[0]).reshape(of[1])
    if what == "frame":
        frame = pd.DataFrame(dict(of[1]))
        return frame.set_index(of[0]) if of[0] else frame
    return v
