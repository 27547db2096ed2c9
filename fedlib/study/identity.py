"""What names a run: its resolved specification and the versions of the units that make
its numbers; of a user's own methods and data also their source.

A unit is the engine, or a method, step, rule, source of data, partition or network,
such as "method FedAS". versions.toml lists the units whose numbers were changed on
purpose; others have version 1, which is left out. What keeps versions honest:
goldens/numbers.
"""

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
# entries of a description that are paths: the content counts, not the name
FILES = ("model", "weights")
TASK = {"partition": {"name": "natural"}, "batch": 32.0, "standard": False}
TASK |= {"parts": [0.8, 0.1, 0.1]}  # where nothing is said


def run_id(cell):
    """The name of a run, 16 hex digits. cell: a fedlib.study.studies.Cell."""
    what, used, paths = parts_of(cell)
    more = {"versions": raised(used), "files": sorted(map(content, paths))}
    more |= {"sources": user_defined(used), "mine": cell.mine}
    return digest(what | {"seed": cell.seed} | {k: v for k, v in more.items() if v})


def digest(what):
    """A name of what JSON can say, 16 hex digits."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:16]


def raised(used):
    """{unit: version} of those whose version is not 1."""
    now = versions()
    return {u: now[u] for u in sorted(used) if now.get(u, 1) != 1}


@functools.cache
def versions():
    """{unit: its version now} of every unit that versions.toml lists."""
    table = tomllib.loads(VERSIONS.read_text())
    return {unit: bumps[-1]["v"] for unit, bumps in table.items()}


def parts_of(cell):
    """(the specification that is hashed, the units, the files) of a cell."""
    what, used = of_method(METHODS[cell.method], cell.method, cell.kwargs, cell.engine)
    task, more, paths = of_task(cell.task)
    return what | {"task": task}, used | more, paths


@functools.cache
def of_method(cls, name, kwargs, settings):
    """(method, hyper-parameters and engine; units) of json; cls: its class now."""
    hyper = plain(make(name, None, **json.loads(kwargs)))
    units = frozenset({"engine", *methods(hyper | {"name": name})})
    del hyper["name"]
    run = without_defaults(engine.run, json.loads(settings))
    return {"method": name, "hyper": hyper, "engine": run}, units


@functools.cache
def of_task(text):
    """(the task without what is usual, units, files) of json."""
    entries, used, paths = (TASK | json.loads(text)).items(), set(), set()
    task = {k: described(k, v, used, paths) for k, v in entries}
    task = {k: v for k, v in task.items() if v != TASK.get(k, "")}
    return task, frozenset(used), frozenset(paths)


def methods(hyper):
    """The units of a resolved method: itself, its step and rule, the one inside."""
    out = [f"{k} {hyper[k]['name']}" for k in ("step", "rule") if k in hyper]
    inner = methods(hyper["inner"]) if "inner" in hyper else []
    return [f"method {hyper['name']}", *out, *inner]


def plain(v):
    """A value as the name sees it: 1 and 1.0 are one number, a tuple is a list, a cell
    its id, a method or a piece its name and its fields.

    A field that came later is left out at its hp(..., absent=VALUE)."""
    if isinstance(getattr(type(v), "id", None), property):
        return v.id
    if dataclasses.is_dataclass(v):
        # what a wrapper inherits, the one inside is given
        skip = ("task", *(BASE if isinstance(v, Wrap) else ()))
        named = [f for f in dataclasses.fields(v) if f.name not in skip]
        values = [(f.name, getattr(v, f.name), f.metadata) for f in named]
        old = lambda x, told: "absent" in told and x == told["absent"]
        names = {cls: name for name, cls in METHODS.items()}
        name = names.get(type(v), type(v).__name__)
        return {"name": name} | {k: plain(x) for k, x, m in values if not old(x, m)}
    if isinstance(v, dict):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    if hasattr(v, "tolist"):
        return v.tolist()
    return float(v) if isinstance(v, int) and not isinstance(v, bool) else v


def described(kind, v, used, paths):
    """An entry of a description without defaults; units and paths go to the sets."""
    if not isinstance(v, dict) or "name" not in v:
        return plain(v)
    used |= {f"{kind} {v['name']}"} if kind in tasks.TABLES else set()
    paths |= {v[k] for k in FILES if v.get(k)}
    given = {k: described(k, x, used, paths) for k, x in v.items() if k not in FILES}
    made = tasks.TABLES.get(kind, {}).get(v["name"])
    return without_defaults(made, given) if made else given


def without_defaults(f, given):
    """{argument: plain value} of a call of f, but of those at their default."""
    usual = {k: p.default for k, p in inspect.signature(f).parameters.items()}
    given = {k: plain(x) for k, x in given.items()}
    return {k: x for k, x in given.items() if k not in usual or x != plain(usual[k])}


def content(path):
    """The checksum of a file that a run reads; its path, if it is not there yet."""
    changed = os.path.isfile(path) and os.stat(path).st_mtime_ns
    return hashed(path, changed) if changed else path


hashed = functools.cache(lambda path, _: checksum(path, "sha256"))


# ---------------------------------------------------------------- edited sources
@functools.cache
def state():
    """Hash of the code that makes numbers and of the versions."""
    return files.sources(*NUMBERS, "study/versions.toml")[:16]


def warn_if_edited(records=()):
    """Warn where runs may be of other numbers than this code's, or of no commit."""
    edited = (r.meta["source"] for r in records if uncommitted(r.meta["commit"]))
    if state() != CHECKED.read_text().strip() or {*edited} - {files.source()}:
        warnings.warn(
            "the code that makes numbers was edited since runs were stored or kept in "
            "runs/. study(..., mine=True) computes yours, under names of their own; "
            "`python -m goldens.numbers check` compares; what edits left in runs/ may "
            "be deleted",
            stacklevel=3,
        )


def uncommitted(commit):
    """Whether sources are in no commit, so that nobody can make their numbers again."""
    return commit.endswith("+") or commit == "unknown"


# ---------------------------------------------------------------- a user's own code
def user_defined(units):
    """{unit: hash of its source} of those units that are not of this package."""
    names = [u.split() for u in units if " " in u]
    things = {f"{kind} {name}": KINDS[kind][name] for kind, name in names}
    outside = lambda x: x.__module__.split(".")[0] != "fedlib"
    return {u: own(x) for u, x in things.items() if outside(x)}


def own(thing):
    """Hash of the source of a class or function without comments and docstrings, of its
    bases outside this package, and of what they name in the same modules: functions,
    classes, plain values. OSError where there is no file or notebook to read it from.
    """
    homes = {c.__module__ for c in getattr(thing, "__mro__", (thing,))}
    homes = {m for m in homes if m.split(".")[0] not in ("fedlib", "builtins")}
    found, seen = [], set()

    def visit(name, x):
        if isinstance(x, (bool, int, float, str, tuple, type(None))):
            found.append(f"{name} = {x!r}")
        elif getattr(x, "__module__", None) in homes and x not in seen:
            seen.add(x)
            if inspect.isclass(x):
                for base in x.__mro__[1:]:
                    visit(base.__name__, base)
                for k, v in sorted(vars(x).items()):
                    for inside in ("__func__", "fget", "func"):
                        v = getattr(v, inside, v)
                    if k != "card" and (callable(v) or not k.startswith("__")):
                        visit(f"{name}.{k}", inspect.unwrap(v))
            # what dataclass writes stands in no file
            elif isinstance(x, FunctionType) and x.__code__.co_filename != "<string>":
                found.append(f"{name}: {bare(inspect.getsource(x))}")
                for k in sorted(names(x.__code__) & x.__globals__.keys()):
                    visit(k, x.__globals__[k])

    visit(thing.__name__, thing)
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def names(code):
    """The names that a code object and the code inside it look up."""
    inside = [names(c) for c in code.co_consts if inspect.iscode(c)]
    return set(code.co_names).union(*inside)


def bare(source):
    """Python without comments, docstrings and blank lines, alike in all versions."""
    source = textwrap.dedent(source)
    lines = source.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    for row, column in (t.start for t in tokens if t.type == tokenize.COMMENT):
        lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        said = isinstance(node, ast.Expr) and getattr(node.value, "value", None)
        if isinstance(said, str):
            first, last = node.lineno - 1, node.end_lineno
            lines[first] = lines[first][: node.col_offset]
            lines[first + 1 : last] = [""] * (last - first - 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())
