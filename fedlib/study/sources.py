"""Code that is not the code of the stored runs: it is said, and has names of its own.

warn_if_edited()     were the sources that make numbers edited since all numbers
                     were compared (python -m goldens.numbers check)?
unknown(units)       methods and data from outside this package: a hash of the
                     source of each, which is part of a run's name
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import io
import textwrap
import tokenize
import warnings
from pathlib import Path
from types import FunctionType

from ..core import files
from ..data import tasks
from ..methods import METHODS
from ..pieces.robust import RULES
from ..pieces.steps import STEPS

CHECKED = Path(__file__).with_name("checked.txt")
NUMBERS = ("core/*.py", "data/*.py", "methods/**/*.py", "nets/*.py", "pieces/*.py")
KINDS = {"method": METHODS, "step": STEPS, "rule": RULES, **tasks.TABLES}
PLAIN = (bool, int, float, str, tuple, type(None))


# ---------------------------------------------------------------- edited sources
@functools.cache
def state():
    """Hash of the code that makes numbers and of the versions, as this process found
    them.
    """
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
    """Say which runs {id: Record} were made by sources that are in no commit and are
    not these: a name holds no source text.
    """
    made = {i: (r.meta["commit"][-1:], r.meta["source"]) for i, r in records.items()}
    strays = [i for i, m in made.items() if m[0] == "+" and m[1] != files.source()]
    if strays:
        warnings.warn(
            f"{len(strays)} runs, the first is {strays[0]}, were computed by sources "
            "that were edited and never committed; delete their folders",
            stacklevel=3,
        )


# ---------------------------------------------------------------- a user's own code
def unknown(units):
    """{unit: hash of its source} of those units that are not of this package."""
    things = {u: KINDS[u.split()[0]][u.split()[1]] for u in units if " " in u}
    return {
        u: own(x) for u, x in things.items() if x.__module__.split(".")[0] != "fedlib"
    }


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
