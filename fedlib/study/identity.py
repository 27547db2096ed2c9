"""What names a run: its resolved specification and the versions of the units that make
its numbers; of a user's own methods and data also their source.

A unit is the engine, or a method, step, rule, source of data, partition or network,
such as "method FedAS". versions.toml lists the units whose numbers were changed on
purpose; others have version 1, which is left out. What keeps versions honest:
goldens/numbers.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import io
import json
import os
import textwrap
import tokenize
import tomllib
import warnings
from pathlib import Path
from types import FunctionType

from ..core import engine, files
from ..core.method import BASE, Wrap
from ..data import tasks
from ..data.files import checksum
from ..methods import METHODS
from ..methods.make import make
from ..pieces.robust import RULES
from ..pieces.steps import STEPS

VERSIONS = Path(__file__).with_name("versions.toml")
CHECKED = Path(__file__).with_name("checked.txt")
# sources that make numbers
NUMBERS = ("core/*.py", "data/*.py", "methods/**/*.py", "nets/*.py", "pieces/*.py")
KINDS = {"method": METHODS, "step": STEPS, "rule": RULES, **tasks.TABLES}
PLAIN = (bool, int, float, str, tuple, type(None))
# entries of a description that are paths: the content counts, not the name
FILES = ("model", "weights")


def run_id(cell):
    """The name of a run, 16 hex digits. cell: a fedlib.study.studies.Cell."""
    what, used, paths = parts_of(cell)
    more = {
        "versions": raised(used),
        "files": sorted(map(content, paths)),
        "sources": user_defined(used),
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
    used, paths = {"engine", *methods(hyper | {"name": name})}, set()
    entries = (TASK | json.loads(task)).items()
    task = {k: described(k, v, used, paths) for k, v in entries}
    task = {k: v for k, v in task.items() if v != TASK.get(k, "")}
    run = {k: plain(v) for k, v in json.loads(settings).items()}
    run = {k: v for k, v in run.items() if v != ENGINE.get(k, "")}
    del hyper["name"]
    what = {"task": task, "method": name, "hyper": hyper, "engine": run}
    return what, frozenset(used), frozenset(paths)


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


def described(kind, v, used, paths):
    """One entry of a description, without arguments at their default; its units go to
    the set `used`, paths to the set `paths`. Features are features of other data.
    """
    if not isinstance(v, dict) or "name" not in v:
        return plain(v)
    table, out = tasks.TABLES.get(kind, {}), {"name": v["name"]}
    used |= {f"{kind} {v['name']}"} if kind in tasks.TABLES else set()
    takes = inspect.signature(table[v["name"]]).parameters if v["name"] in table else {}
    for k, x in v.items():
        if k in FILES and x:
            paths.add(x)
        elif k != "name" and not (k in takes and plain(x) == plain(takes[k].default)):
            out[k] = described(k, x, used, paths)
    return out


def content(path):
    """The checksum of a file that a run reads; its path, if it is not there yet."""
    return _content(path, os.stat(path).st_mtime_ns) if os.path.isfile(path) else path


@functools.cache
def _content(path, _changed):
    return checksum(path, "sha256")


# ---------------------------------------------------------------- edited sources
@functools.cache
def state():
    """Hash of the code that makes numbers and of the versions."""
    return files.sources(*NUMBERS, "study/versions.toml")[:16]


@functools.cache
def warn_if_edited():
    """Say once that stored runs may be of other numbers than this code gives."""
    if state() != CHECKED.read_text().strip():
        warnings.warn(
            "the code that makes numbers was edited since the stored runs were made, "
            "and may give others. study(..., mine=True) computes what yours gives, "
            "under names of its own; `python -m goldens.numbers check` compares",
            stacklevel=3,
        )


def uncommitted(commit):
    """Whether sources are in no commit, so that nobody could make their numbers."""
    return commit.endswith("+") or commit == "unknown"


def warn_of_strays(records):
    """Say which runs {id: Record} were made by other sources than these, that are in no
    commit.
    """
    edited = {i: r.meta for i, r in records.items() if r.meta["commit"][-1:] == "+"}
    strays = [i for i, m in edited.items() if m["source"] != files.source()]
    if strays:
        warnings.warn(
            f"{len(strays)} runs, the first is {strays[0]}, were computed by sources "
            "that were edited and never committed; delete their folders",
            stacklevel=3,
        )


# ---------------------------------------------------------------- a user's own code
def user_defined(units):
    """{unit: hash of its source} of those units that are not of this package."""
    names = [u.split() for u in units if " " in u]
    things = {f"{kind} {name}": KINDS[kind][name] for kind, name in names}
    outside = lambda x: x.__module__.split(".")[0] != "fedlib"
    return {u: own(x) for u, x in things.items() if outside(x)}


def own(thing):
    """Hash of the source of a class or function, of its bases outside this package, and
    of the functions, classes and plain values of the same modules that they name;
    without comments and docstrings.
    """
    homes = {c.__module__ for c in getattr(thing, "__mro__", (thing,))}
    homes = {m for m in homes if m.split(".")[0] not in ("fedlib", "builtins")}
    found, seen = [], set()

    def visit(name, x):
        if isinstance(x, PLAIN):
            found.append(f"{name} = {x!r}")
        elif getattr(x, "__module__", None) in homes and x not in seen:
            seen.add(x)
            if inspect.isclass(x):
                for base in x.__mro__[1:]:
                    visit(base.__name__, base)
                for k, v in sorted(vars(x).items()):
                    inside = (getattr(v, a, None) for a in ("__func__", "fget", "func"))
                    v = inspect.unwrap(next(filter(None, inside), v))
                    if k != "card" and (written(v) or not k.startswith("__")):
                        visit(f"{name}.{k}", v)
            if isinstance(x, FunctionType):
                found.append(f"{name}: {text(x)}")
                for k in sorted(names(x.__code__) & x.__globals__.keys()):
                    visit(k, x.__globals__[k])

    visit(thing.__name__, thing)
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def written(v):
    """Whether a function stands in a file, and is not made by dataclass."""
    return isinstance(v, FunctionType) and v.__code__.co_filename != "<string>"


def names(code):
    """The names that a code object and the code inside it look up."""
    inside = [names(c) for c in code.co_consts if inspect.iscode(c)]
    return set(code.co_names).union(*inside)


def text(f):
    """The source of a function, without comments and docstrings where it is a statement
    of its own. OSError where it cannot be read: write it in a file or a notebook.
    """
    source = textwrap.dedent(inspect.getsource(f))
    try:
        return bare(source)
    except SyntaxError:  # a lambda inside of a call
        return source


def bare(source):
    """The lines of Python code without comments, docstrings and blank lines; the same
    text in every version of Python.
    """
    lines = source.splitlines()
    for kind, _, (row, column), *_ in tokenize.generate_tokens(
        io.StringIO(source).readline
    ):
        if kind == tokenize.COMMENT:
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        said = isinstance(node, ast.Expr) and getattr(node.value, "value", None)
        if isinstance(said, str):
            first, *rest = range(node.lineno - 1, node.end_lineno)
            lines[first] = lines[first][: node.col_offset]
            for row in rest:
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())
