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

from ..core import provenance
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
    return provenance.sources(*NUMBERS, "study/versions.toml")[:16]


def released():
    """The state whose numbers were all compared last; "" where there is none."""
    return CHECKED.read_text().strip() if CHECKED.exists() else ""


@functools.cache
def warn_if_edited():
    """Say once that stored runs may be of other numbers than this code gives."""
    if state() != released():
        warnings.warn(
            "the code that makes numbers was edited since the stored runs were made, "
            "and may give others. study(..., mine=True) computes what yours gives, "
            "under names of its own; `python -m goldens.numbers check` compares",
            stacklevel=3,
        )


def warn_of_strays(records):
    """Say which runs {id: Record} were made by sources that are in no commit and are
    not these: a name holds no source text.
    """
    now, metas = provenance.source(), {i: r.meta for i, r in records.items()}
    strays = [
        i
        for i, meta in metas.items()
        if meta["commit"].endswith("+") and meta["source"] != now
    ]
    if strays:
        warnings.warn(
            f"{len(strays)} runs, the first is {strays[0]}, were computed by sources "
            "that were edited and never committed; delete their folders, and they are "
            "computed again",
            stacklevel=3,
        )


# ---------------------------------------------------------------- a user's own code
def unknown(units):
    """{unit: hash of its source} of those units that are not of this package."""
    out = {}
    for unit in sorted(set(units) - {"engine"}):
        kind, _, name = unit.partition(" ")
        thing = KINDS[kind][name]
        if thing.__module__.partition(".")[0] != "fedlib":
            out[unit] = own(thing)
    return out


def own(thing):
    """Hash of the source of a class or function, of its bases outside this package, and
    of what they name.

    Followed are functions, classes and plain values of the same modules; comments and
    docstrings do not count.
    """
    bases = inspect.getmro(thing) if inspect.isclass(thing) else ()
    modules = {c.__module__ for c in bases}
    outside = {m for m in modules if m.partition(".")[0] not in ("fedlib", "builtins")}
    homes = {thing.__module__} | outside
    found, seen = [], set()

    def visit(name, x):
        if isinstance(x, PLAIN):
            found.append(f"{name} = {x!r}")
        elif getattr(x, "__module__", None) in homes and x not in seen:
            seen.add(x)
            if inspect.isclass(x):
                for base in inspect.getmro(x)[1:]:
                    visit(base.__name__, base)
                for k, v in sorted(members(x).items()):
                    visit(f"{name}.{k}", v)
            if isinstance(x, FunctionType):
                found.append(f"{name}: {text(x)}")
                for k in sorted(names(x.__code__) & x.__globals__.keys()):
                    visit(k, x.__globals__[k])

    visit(thing.__name__, thing)
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]


def members(cls):
    """{name: function or value} of a class's own body, without its card and without
    what dataclass writes.
    """
    body = {k: plain_function(v) for k, v in vars(cls).items() if k != "card"}
    return {k: v for k, v in body.items() if not k.startswith("__") or written(v)}


def plain_function(v):
    """The function inside a method, a property or a cached property; else v."""
    inside = (getattr(v, k, None) for k in ("__func__", "fget", "func"))
    return inspect.unwrap(next(filter(None, inside), v))


def written(v):
    """Whether a function stands in a file, and is not made by dataclass."""
    return isinstance(v, FunctionType) and v.__code__.co_filename != "<string>"


def names(code):
    """The names that a code object and the code inside it look up."""
    inside = [names(c) for c in code.co_consts if inspect.iscode(c)]
    return set(code.co_names).union(*inside)


def text(f):
    """The source of a function, without comments and docstrings where it is a statement
    of its own. Raises ValueError where it cannot be read.
    """
    try:
        source = textwrap.dedent(inspect.getsource(f))
        return bare(source)
    except SyntaxError:  # a lambda inside of a call
        return source
    except OSError as e:
        raise ValueError(
            f"the source of {f.__qualname__} cannot be read, and names its runs; write "
            "it in a file or a notebook"
        ) from e


def bare(source):
    """The lines of Python code without comments, docstrings and blank lines; the same
    text in every version of Python.
    """
    lines, tree = source.splitlines(), ast.parse(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node):
            doc = node.body[0]
            first = doc.lineno - 1
            lines[first] = lines[first][: doc.col_offset]
            lines[first + 1 : doc.end_lineno] = [""] * (doc.end_lineno - doc.lineno)
    return "\n".join(line.rstrip() for line in lines if line.strip())
