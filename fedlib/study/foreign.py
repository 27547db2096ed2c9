"""Units without a fingerprint, as a notebook's own method: named by their source."""

from __future__ import annotations

import hashlib
import inspect
import textwrap
from types import CodeType, FunctionType

from . import microruns, sources

PLAIN = (bool, int, float, str, tuple, type(None))


def unknown(units):
    """{unit: hash of its source} of those units that have no fingerprint."""
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
    bases = inspect.getmro(thing) if inspect.isclass(thing) else ()
    modules = {c.__module__ for c in bases}
    outside = {m for m in modules if m.partition(".")[0] not in ("fedlib", "builtins")}
    homes = {thing.__module__} | outside
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
    """{name: function or value} of a class's own body, without its card and without
    what dataclass writes.
    """
    body = {k: plain_function(v) for k, v in vars(cls).items() if k != "card"}
    return {k: v for k, v in body.items() if not k.startswith("__") or written(v)}


def plain_function(v):
    """The function inside a method, a property or a cached property; else v."""
    for inside in ("__func__", "fget", "func"):
        if found := getattr(v, inside, None):
            return inspect.unwrap(found)
    return inspect.unwrap(v)


def written(v):
    """Whether a function stands in a file, and is not made by dataclass."""
    return isinstance(v, FunctionType) and v.__code__.co_filename != "<string>"


def text(f):
    """The source of a function without comments and docstrings; its code where there is
    no source.
    """
    try:
        return sources.bare(textwrap.dedent(inspect.getsource(f)))
    except (OSError, TypeError, SyntaxError):
        return code(f.__code__)


def code(c):
    """The same of a code object, as words: instructions, names, constants and the code
    inside.
    """
    inside = [code(x) for x in c.co_consts if isinstance(x, CodeType)]
    # their order is chance
    sets = [sorted(map(repr, x)) for x in c.co_consts if isinstance(x, frozenset)]
    plain = [repr(x) for x in c.co_consts if isinstance(x, PLAIN)]
    return f"{c.co_code.hex()} {c.co_names} {c.co_varnames} {inside} {sets} {plain}"


def names(c):
    """The names that a code object and the code inside it look up."""
    inside = [names(x) for x in c.co_consts if isinstance(x, CodeType)]
    return set(c.co_names).union(*inside)
