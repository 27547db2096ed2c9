"""What names a run: its resolved specification and the versions of the units that make
its numbers. No source text.

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
from ..methods.make import piece
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
    return list(parts_of(cell)[1])


def parts_of(cell):
    """(the specification that is hashed, the units, the files) of a cell."""
    cls = METHODS[cell.method]
    return parts(cls, cell.method, cell.kwargs, cell.task, cell.engine)


def raised(used):
    """{unit: version} of those whose version is not 1."""
    now = versions()
    return {u: now[u] for u in used if now.get(u, 1) != 1}


@functools.cache
def versions(path=VERSIONS):
    """{unit: its version now} of every unit that versions.toml lists."""
    table = tomllib.loads(Path(path).read_text())
    return {unit: bumps[-1]["v"] for unit, bumps in table.items()}


@functools.cache
def parts(cls, name, kwargs, task, settings):
    """The same of json texts; cls: the method's class now."""
    hyper, task = resolved(name, json.loads(kwargs)), described(json.loads(task))
    run = {k: plain(v) for k, v in json.loads(settings).items()}
    run = {k: v for k, v in run.items() if v != ENGINE.get(k, "")}
    files = tuple(sorted(task.pop("files")))
    named = (f"{kind} {v['name']}" for kind, v in nested(task))
    used = {"engine", f"method {name}", *pieces(hyper), *named}
    what = {"task": task, "method": name, "hyper": hyper, "engine": run}
    return what, tuple(sorted(used)), files


# ---------------------------------------------------- a method and its hyper-parameters
def resolved(name, kwargs):
    """Every hyper-parameter with the value that will be used, as method.make
    distributes them over a method and the one inside.

    A field that came later declares hp(..., absent=the value that is the old
    behaviour), and is left out at that value.
    """
    cls = METHODS[name]
    # what a wrapper inherits, the one inside is given
    others = ("task", "inner", *(BASE if issubclass(cls, Wrap) else ()))
    own = [f for f in dataclasses.fields(cls) if f.name not in others]
    out = {}
    for f in own:
        value = kwargs.get(f.name, f.default)
        if f.name in ("step", "rule") and isinstance(value, (str, dict)):
            value = piece(f.name, value)
        if not ("absent" in f.metadata and value == f.metadata["absent"]):
            out[f.name] = plain(value)
    if issubclass(cls, Wrap):
        inside = kwargs.get("inner", cls.around)
        inside = {"name": inside} if isinstance(inside, str) else inside
        taken = {"inner", *(f.name for f in own)}
        given = {k: v for k, v in kwargs.items() if k not in taken} | inside
        out["inner"] = {"name": given.pop("name")} | resolved(inside["name"], given)
    return out


def pieces(hyper):
    """The units inside a resolved method: its step and rule, the method that it wraps,
    and what is inside that one.
    """
    out = [f"{k} {hyper[k]['name']}" for k in ("step", "rule") if k in hyper]
    if "inner" in hyper:
        out += [f"method {hyper['inner']['name']}", *pieces(hyper["inner"])]
    return out


def plain(v):
    """A value as the name sees it: 1 and 1.0 are one number, a tuple is a list, a piece
    its class and its fields.
    """
    if dataclasses.is_dataclass(v):
        names = [f.name for f in dataclasses.fields(v) if f.name != "task"]
        return {"name": type(v).__name__} | {n: plain(getattr(v, n)) for n in names}
    if isinstance(v, dict):
        return {k: plain(x) for k, x in sorted(v.items())}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return float(v) if isinstance(v, int) and not isinstance(v, bool) else v


# --------------------------------------------------- a task and what the engine is told
ENGINE = {
    k: plain(p.default) for k, p in inspect.signature(engine.run).parameters.items()
}
TASK = {  # where nothing is said
    "partition": {"name": "natural"},
    "batch": 32.0,
    "parts": [0.8, 0.1, 0.1],
    "standard": False,
}


def described(spec):
    """A task's description without what is a default, and "files": the paths in it,
    which are hashed by their content.
    """
    files = set()
    out = {k: described_part(k, v, files) for k, v in spec.items()}
    return {k: v for k, v in out.items() if v != TASK.get(k, "")} | {"files": files}


def described_part(kind, v, files):
    """One entry of a description; arguments at their default are left out, paths go to
    the set `files`.
    """
    if not isinstance(v, dict) or "name" not in v:
        return plain(v)
    default = defaults(kind, v["name"])
    out = {"name": v["name"]}
    for k, x in sorted(v.items()):
        if k in FILES and x:
            files.add(x)
        elif k != "name" and plain(x) != default.get(k, ""):
            out[k] = described_part(k, x, files)
    return out


def defaults(kind, name):
    """{argument: default} of a source of data, a partition or a network."""
    table = tasks.TABLES.get(kind, {})
    if name not in table:
        return {}
    arguments = inspect.signature(table[name]).parameters.items()
    return {k: plain(p.default) for k, p in arguments if p.default is not p.empty}


def nested(task):
    """(kind, description) of every source, partition and network of a task; features
    are features of other data.
    """
    out = [("network", task["network"])] if "network" in task else []
    out.append(("partition", task.get("partition", TASK["partition"])))
    data = task["data"]
    while data:
        out.append(("data", data))
        data = data.get("data")
    return out


def content(path):
    """The checksum of a file that a run reads; its path where it is not there yet: then
    the run itself will say so.
    """
    return _content(path, os.stat(path).st_mtime_ns) if os.path.isfile(path) else path


@functools.cache
def _content(path, _changed):
    return checksum(path, "sha256")
