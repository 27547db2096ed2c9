"""The guard: no stored run is taken where the code as it is now would give other
numbers.

    check(cells)    nothing; or Moved, which says what moved and what can be done

A run's name holds no source text. So somebody who edits a method and asks for a study
would be given the runs of the code before the edit. Hence the micro-runs of the units
of these cells are repeated, once for every state of the sources: what was compared and
found the same is noted in runs/.checked, which all processes share.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from ..core import provenance
from . import fingerprints, identity, microruns, sources

NOTES = ".checked"


class Moved(ValueError):
    """The sources give other numbers than those that the stored runs were made with."""


# ---------------------------------------------------------------- the check
def check(cells, runs="runs"):
    """Raise Moved where a unit of these cells has other numbers than its fingerprint,
    or none for its version.

    Nothing is repeated for sources whose fingerprints were all compared before they
    were committed.
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
    new = set(labels) - sources.stored()[unit]["runs"].keys()
    return (
        fingerprints.moved(unit, fingerprints.repeat(unit, labels))
        or fingerprints.pending(unit)
        or (fingerprints.incomplete(unit) if new else None)
    )


def message(found):
    """What moved, and the two ways on."""
    lines = [
        "the stored runs, those of the book, were made by other code than this:",
        *(f"  {f}" for f in found),
        "To see what your code gives, ask for study(..., mine=True): it is computed "
        "anew, under names of its own, kept in runs/ and never packed.",
        fingerprints.advice(found),
    ]
    return "\n".join(lines).rstrip()


def wanted(cells):
    """{unit: labels of the micro-runs that concern these cells}: the defaults, and what
    the cells set.
    """
    out, stored = {}, sources.stored()
    for cell in {(c.method, c.kwargs, c.task, c.engine): c for c in cells}.values():
        texts = {"kwargs": cell.kwargs, "task": cell.task, "engine": cell.engine}
        values = dict(settings({k: json.loads(text) for k, text in texts.items()}))
        for unit in identity.units(cell):
            if unit in stored:
                concerned = dict.fromkeys(asked(labels(unit), values))
                out.setdefault(unit, {}).update(concerned)
    return {unit: list(some) for unit, some in sorted(out.items())}


@functools.cache
def labels(unit):
    """The labels of all micro-runs that a unit has now."""
    return tuple(microruns.runs(unit))


def settings(tree):
    """(name, value) of all that a cell sets, at every depth: pieces and the method
    inside are dictionaries.
    """
    for k, v in tree.items():
        yield k, v
        if isinstance(v, dict):
            yield from settings(v)


def asked(known, values):
    """The labels of `known` that settings {name: value} concern; of a number, whatever
    number is tried.
    """
    for label in known:
        name, given, _ = label.partition("=")
        exact = f"{name}={values.get(name)}"
        if not given or name in values and (label == exact or exact not in known):
            yield label


def salt():
    """Hash of all sources, 16 hex digits: what names a run that is of these sources
    only.
    """
    return provenance.source()


# ---------------------------------------------------------------- notes
def entry(unit, label):
    """The line that notes a comparison; the hash at its end, so that half a line says
    nothing.
    """
    return f"{unit}: {label} {sources.state()}"


def read(notes):
    """The lines of the notes; whatever else a file holds says nothing."""
    try:
        return set(notes.read_bytes().decode(errors="replace").split("\n"))
    except OSError:
        return set()


def write(notes, lines):
    """Add lines in one piece, so that processes do not mix theirs.

    Where none can be written, none is noted.
    """
    if not lines:
        return
    try:
        notes.parent.mkdir(parents=True, exist_ok=True)
        with open(notes, "ab", buffering=0) as f:
            f.write("\n".join(["", *lines, ""]).encode())
    except OSError:
        pass
