"""The guard: no stored run is taken where the code as it is now would give other numbers.

    check(cells)         nothing; or Moved, which says what moved and what can be done

A run's name holds no source text. So somebody who edits a method and asks for a study would be given the runs of
the code before the edit. Hence the micro-runs of the units of these cells are repeated, once for every state of the
sources: what was compared and found the same is noted in runs/.checked, which all processes share.
"""
from __future__ import annotations

import functools
import hashlib
import inspect
import json
import textwrap
from pathlib import Path
from types import CodeType, FunctionType

from . import fingerprints, identity, microruns, record, sources

NOTES = ".checked"
PLAIN = (bool, int, float, str, tuple, type(None))


class Moved(ValueError):
    """The sources give other numbers than those that the stored runs were made with."""


# ---------------------------------------------------------------- the check
def check(cells, runs="runs"):
    """Raise Moved where a unit of these cells has other numbers than its fingerprint, or none for its version.

    Nothing is repeated for sources whose fingerprints were all compared before they were committed.
    """
    if sources.state() == sources.released():
        return
    notes, found, fine = Path(runs, NOTES), [], []
    done = read(notes)
    for unit, labels in wanted(cells).items():
        left = [label for label in labels if entry(unit, label) not in done]
        bad = wrong(unit, left) if left else None
        if bad:
            found.append(bad)
        else:
            fine += [entry(unit, label) for label in left]
    write(notes, fine)
    if found:
        raise Moved(message(found))


def wrong(unit, labels):
    """The Finding of a unit, some of its micro-runs repeated, or None."""
    new = set(labels) - fingerprints.stored()[unit]["runs"].keys()
    return (fingerprints.moved(unit, fingerprints.repeat(unit, labels)) or fingerprints.pending(unit)
            or (fingerprints.incomplete(unit) if new else None))


def message(found):
    """What moved, and the two ways on."""
    return "\n".join((
        "the stored runs, those of the book, were made by other code than this:", *(f"  {f}" for f in found),
        "To see what your code gives, ask for study(..., mine=True): it is computed anew, under names of its own, kept in "
        "runs/ and never packed.", fingerprints.advice(found))).rstrip()


def wanted(cells):
    """{unit: labels of the micro-runs that concern these cells}: the defaults, and what the cells set."""
    out = {}
    for cell in {(c.method, c.kwargs, c.task, c.engine): c for c in cells}.values():
        values = dict(settings({k: json.loads(getattr(cell, k)) for k in ("kwargs", "task", "engine")}))
        for unit in identity.units(cell):
            if unit in fingerprints.stored():
                out.setdefault(unit, {}).update(dict.fromkeys(asked(labels(unit), values)))
    return {unit: list(some) for unit, some in sorted(out.items())}


@functools.cache
def labels(unit):
    """The labels of all micro-runs that a unit has now."""
    return tuple(microruns.runs(unit))


def settings(tree):
    """(name, value) of all that a cell sets, at every depth: pieces and the method inside are dicts."""
    for k, v in tree.items():
        yield k, v
        if isinstance(v, dict):
            yield from settings(v)


def asked(known, values):
    """The labels of `known` that settings {name: value} concern; of a number, whatever number is tried."""
    for label in known:
        name, given, _ = label.partition("=")
        exact = f"{name}={values.get(name)}"
        if not given or name in values and (label == exact or exact not in known):
            yield label


def salt():
    """Hash of all sources, 16 hex digits: what names a run that is of these sources only."""
    return record.source()


# ---------------------------------------------------------------- notes
def entry(unit, label):
    """The line that notes a comparison; the hash at its end, so that half a line says nothing."""
    return f"{unit}: {label} {sources.state()}"


def read(notes):
    """The lines of the notes; whatever else a file holds says nothing."""
    try:
        return set(notes.read_bytes().decode(errors="replace").split("\n"))
    except OSError:
        return set()


def write(notes, lines):
    """Add lines in one piece, so that processes do not mix theirs. Where none can be written, none is noted."""
    if not lines:
        return
    try:
        notes.parent.mkdir(parents=True, exist_ok=True)
        with open(notes, "ab", buffering=0) as f:
            f.write("\n".join(["", *lines, ""]).encode())
    except OSError:
        pass


# ---------------------------------------------------------------- units of somebody else
def unknown(cells):
    """{unit: hash of its source} of the units of these cells without a fingerprint, as a notebook's own method."""
    stored = fingerprints.stored()
    units = {u for c in cells for u in identity.units(c)}
    return {u: own(made(u)) for u in sorted(units) if u not in stored}


def made(unit):
    """The class or function of a unit."""
    kind, _, name = unit.partition(" ")
    return microruns.KINDS[kind][0][name]


def own(thing):
    """Hash of the source of a class or function, of its bases outside this package, and of what they name.

    Followed are functions, classes and plain values of the same modules; comments and docstrings do not count.
    """
    bases = {c.__module__ for c in inspect.getmro(thing)} if inspect.isclass(thing) else set()
    homes = {thing.__module__} | {m for m in bases if m.partition(".")[0] not in ("fedlib", "builtins")}
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
    """{name: function or value} of a class's own body, without its card and without what dataclass writes."""
    inside = lambda v: getattr(v, "__func__", None) or getattr(v, "fget", None) or getattr(v, "func", None) or v
    body = {k: inspect.unwrap(inside(v)) for k, v in vars(cls).items() if k != "card"}
    written = lambda v: isinstance(v, FunctionType) and v.__code__.co_filename != "<string>"
    return {k: v for k, v in body.items() if not k.startswith("__") or written(v)}


def text(f):
    """The source of a function without comments and docstrings; its code where there is no source."""
    try:
        return sources.bare(textwrap.dedent(inspect.getsource(f)))
    except (OSError, TypeError, SyntaxError):
        return code(f.__code__)


def code(c):
    """The same of a code object, as words: instructions, names, constants and the code inside."""
    inside = [code(x) for x in c.co_consts if isinstance(x, CodeType)]
    sets = [sorted(map(repr, x)) for x in c.co_consts if isinstance(x, frozenset)]       # their order is chance
    plain = [repr(x) for x in c.co_consts if isinstance(x, PLAIN)]
    return f"{c.co_code.hex()} {c.co_names} {c.co_varnames} {inside} {sets} {plain}"


def names(c):
    """The names that a code object and the code inside it look up."""
    return set(c.co_names).union(*(names(x) for x in c.co_consts if isinstance(x, CodeType)))
