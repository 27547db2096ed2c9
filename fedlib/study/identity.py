"""What names a run: its resolved specification and the versions of the units that make
its numbers. No source text, but of what is not of this package.

A unit is the engine, or a method, step, rule, source of data, partition or network,
such as "method FedAS". versions.toml lists the units whose numbers were changed on
purpose; a unit that is not there has version 1, which is left out, so that a new kind
of unit renames nothing. What keeps versions honest: goldens/numbers.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import os
import tomllib
from pathlib import Path

from ..core import engine
from ..core.method import BASE, Wrap
from ..data import tasks
from ..data.files import checksum
from ..methods import METHODS
from ..methods.make import make
from . import sources

VERSIONS = Path(__file__).with_name("versions.toml")
# entries of a description that are paths: the content counts, not the name
FILES = ("model", "weights")


def run_id(cell):
    """The name of a run, 16 hex digits. cell: a fedlib.study.studies.Cell."""
    what, used, files = parts_of(cell)
    more = {
        "versions": raised(used),
        "files": sorted(map(content, files)),
        "sources": sources.unknown(used),
        "mine": cell.mine,
    }
    what = what | {"seed": cell.seed} | {k: v for k, v in more.items() if v}
    return digest(what)


def digest(what):
    """A name of what JSON can say, 16 hex digits."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def units(cell):
    """The units that make the numbers of a cell, in the order of their names."""
    return sorted(parts_of(cell)[1])


def raised(used):
    """{unit: version} of those whose version is not 1."""
    now = versions()
    return {u: now[u] for u in sorted(used) if now.get(u, 1) != 1}


@functools.cache
def versions(path=VERSIONS):
    """{unit: its version now} of every unit that versions.toml lists."""
    table = tomllib.loads(Path(path).read_text())
    return {unit: bumps[-1]["v"] for unit, bumps in table.items()}


def parts_of(cell):
    """(the specification that is hashed, the units, the files) of a cell."""
    cls = METHODS[cell.method]
    return parts(cls, cell.method, cell.kwargs, cell.task, cell.engine)


@functools.cache
def parts(cls, name, kwargs, task, settings):
    """The same of json texts; cls: the method's class now."""
    hyper = plain(make(name, None, **json.loads(kwargs)))
    used, files, task = (
        {"engine", *methods(hyper | {"name": name})},
        set(),
        json.loads(task),
    )
    task = {k: described(k, v, used, files) for k, v in (TASK | task).items()}
    task = {k: v for k, v in task.items() if v != TASK.get(k, "")}
    run = {k: plain(v) for k, v in json.loads(settings).items()}
    run = {k: v for k, v in run.items() if v != ENGINE.get(k, "")}
    del hyper["name"]
    what = {"task": task, "method": name, "hyper": hyper, "engine": run}
    return what, frozenset(used), frozenset(files)


def methods(hyper):
    """The units of a resolved method: itself, its step and rule, the one inside."""
    out = [f"{k} {hyper[k]['name']}" for k in ("step", "rule") if k in hyper]
    inner = methods(hyper["inner"]) if "inner" in hyper else []
    return [f"method {hyper['name']}", *out, *inner]


def plain(v):
    """A value as the name sees it: 1 and 1.0 are one number, a tuple is a list, a
    method or a piece its name and its fields.

    A field that came later declares hp(..., absent=the value that is the old
    behaviour), and is left out at that value.
    """
    if dataclasses.is_dataclass(v):
        # what a wrapper inherits, the one inside is given
        skip = ("task", *(BASE if isinstance(v, Wrap) else ()))
        named = [f for f in dataclasses.fields(v) if f.name not in skip]
        out = {f.name: getattr(v, f.name) for f in named}
        absent = {f.name: f.metadata["absent"] for f in named if "absent" in f.metadata}
        names = {cls: name for name, cls in METHODS.items()}
        out = {k: plain(x) for k, x in out.items() if k not in absent or x != absent[k]}
        return {"name": names.get(type(v), type(v).__name__)} | out
    if isinstance(v, dict):
        return {k: plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return float(v) if isinstance(v, int) and not isinstance(v, bool) else v


# where nothing is said
TASK = {"partition": {"name": "natural"}, "batch": 32.0, "standard": False}
TASK |= {"parts": [0.8, 0.1, 0.1]}
ENGINE = inspect.signature(engine.run).parameters.items()
ENGINE = {k: plain(p.default) for k, p in ENGINE}


def described(kind, v, used, files):
    """One entry of a description, without arguments at their default; its units go to
    the set `used`, paths to the set `files`. Features are features of other data.
    """
    if not isinstance(v, dict) or "name" not in v:
        return plain(v)
    table, out = tasks.TABLES.get(kind, {}), {"name": v["name"]}
    used |= {f"{kind} {v['name']}"} if kind in tasks.TABLES else set()
    takes = inspect.signature(table[v["name"]]).parameters if v["name"] in table else {}
    for k, x in v.items():
        if k in FILES and x:
            files.add(x)
        elif k != "name" and not (k in takes and plain(x) == plain(takes[k].default)):
            out[k] = described(k, x, used, files)
    return out


def content(path):
    """The checksum of a file that a run reads; its path, if it is not there yet."""
    return _content(path, os.stat(path).st_mtime_ns) if os.path.isfile(path) else path


@functools.cache
def _content(path, _changed):
    return checksum(path, "sha256")
