"""Units without a fingerprint, as a notebook's own method:
they are named by their source.
"""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from types import CodeType, FunctionType

from . import microruns, sources

PLAIN = (bool, int, float, str, tuple, type(None))


def unknown(units):
    """{unit: hash of its source} of those units that have no fingerprint,
    as a notebook's own method.
    """
    stored = sources.stored()
    return {u: own(made(u)) for u in sorted(units) if u not in stored}


def made(unit):
    """The class or function of a unit."""
    kind, _, name = unit.partition(" ")
    return microruns.KINDS[kind][0][name]


def own(thing):
    """Hash of the source of a class or function, of its bases outside this package, and
    of what they name.

    Followed are functions, classes and plain values of the same modules; comments and
    docstrings do not count.
    """
    bases = (
        {c.__module__ for c in inspect.getmro(thing)}
        if inspect.isclass(thing)
        else set()
    )
    homes = {thing.__module__} | {
        m for m in bases if m.partition(".")[0] not in ("fedlib", "builtins")
    }
    said, seen = [], set()

    def visit(name, x):
        if isinstance(x, PLAIN):
            said.append(f"{name} = {x!r}")
        elif getattr(x, "__module__", None) in homes and x not in seen:
            seen.add(x)
            for base in inspect.getmro(x)[1:] if inspect.isclass(x) else ():
                visit(base.__name__, base)
            for k, v in sorted(members(x).items()) if inspect.isclass(x) else ():
                visit(f"{name}.{k}", v)
            if isinstance(x, FunctionType):
                said.append(f"{name}: {text(x)}")
                for k in sorted(names(x.__code__) & x.__globals__.keys()):
                    visit(k, x.__globals__[k])

    visit(thing.__name__, thing)
    return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]


def members(cls):
    """{name: function or value} of a class's own body,
    without its card and without what dataclass writes.
    """
    inside = lambda v: (
        getattr(v, "__func__", None)
        or getattr(v, "fget", None)
        or getattr(v, "func", None)
        or v
    )
    body = {k: inspect.unwrap(inside(v)) for k, v in vars(cls).items() if k != "card"}
    written = lambda v: (
        isinstance(v, FunctionType) and v.__code__.co_filename != "<string>"
    )
    return {k: v for k, v in body.items() if not k.startswith("__") or written(v)}


def text(f):
    """The source of a function without comments and docstrings;
    its code where there is no source.
    """
    try:
        return sources.bare(textwrap.dedent(inspect.getsource(f)))
    except (OSError, TypeError, SyntaxError):
        return code(f.__code__)


def code(c):
    """The same of a code object, as words:
    instructions, names, constants and the code inside.
    """
    inside = [code(x) for x in c.co_consts if isinstance(x, CodeType)]
    # their order is chance
    sets = [sorted(map(repr, x)) for x in c.co_consts if isinstance(x, frozenset)]
    plain = [repr(x) for x in c.co_consts if isinstance(x, PLAIN)]
    return f"{c.co_code.hex()} {c.co_names} {c.co_varnames} {inside} {sets} {plain}"


def names(c):
    """The names that a code object and the code inside it look up."""
    return set(c.co_names).union(
        *(names(x) for x in c.co_consts if isinstance(x, CodeType))
    )
