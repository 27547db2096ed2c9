"""fingerprints.json: what short runs of every unit gave, and what differs from it now.

A run is named by its specification and the versions of the units that it uses
(fedlib.study.identity), never by source text. So a comment, a type hint or a faster
loop renames nothing, and an edit that moves numbers must raise a version. That it did
not is noticed here. The file has a line for each unit, with its version and, of each of
its short runs, {what: [count, norm, projection]}.
"""

from __future__ import annotations

import datetime
import functools
import json
import math
from pathlib import Path
from typing import NamedTuple

from fedlib.core.errors import nearest
from fedlib.core.files import whole
from fedlib.methods import METHODS
from fedlib.study import identity

from . import runs

FILE = Path(__file__).with_name("fingerprints.json")
TOLERANCE = 1e-6  # of the size of the numbers; rounding moves 1e-9 or less
PIXELS = 1e-3  # the same of drawn images: rounding flips some of 256 levels
DRAWN = ("data glyphs", "data domains", "data features")
DIGITS = 10  # of a number that is noted
MANY = 0.8  # of the methods: then what they all stand on has moved


class Finding(NamedTuple):
    """What is wrong with a unit: it moved, its version was raised and nothing noted, or
    it is incomplete.
    """

    what: str
    unit: str
    version: int
    why: str

    def __str__(self):
        return f"{self.what.upper()} {self.unit} (version {self.version}): {self.why}"


@functools.cache
def stored(path=FILE):
    """{unit: {"version": int, "runs": {label: {what: numbers}}}} as it was last noted;
    numbers: [count, norm, projection].
    """
    return json.loads(path.read_text())


# ---------------------------------------------------------------- comparing
def apart(a, b):
    """How far two short runs {what: numbers} are apart, relative to their size; inf
    where shapes differ.
    """
    if a.keys() != b.keys():
        return math.inf
    return max((distance(a[k], b[k]) for k in a), default=0.0)


def distance(a, b):
    """The same of two [count, norm, projection]."""
    (n, norm, along), (m, other, beside) = a, b
    if n != m:
        return math.inf
    return max(abs(norm - other), abs(along - beside)) / (max(norm, other) or 1.0)


def moves(unit, now):
    """{label: by how much} of the short runs {label: numbers} that are not as stored,
    rounding aside.
    """
    noted = stored()[unit]["runs"]
    tolerance = PIXELS if unit in DRAWN else TOLERANCE
    both = [label for label in now if label in noted]
    by = {label: apart(noted[label], now[label]) for label in both}
    return {label: d for label, d in by.items() if d > tolerance}


def repeat(unit, labels=None):
    """{label: numbers} of a unit's short runs; labels: of these only."""
    known = runs.runs(unit).items()
    return {k: run() for k, run in known if labels is None or k in labels}


def findings(unit, defaults=False):
    """[Finding] of a unit, its short runs repeated."""
    if unit not in stored():
        return [incomplete(unit)]
    now = repeat(unit, [runs.DEFAULTS] if defaults else None)
    return [f for f in (moved(unit, now), pending(unit), incomplete(unit)) if f]


def moved(unit, now):
    """The Finding of a unit whose version is as it was and whose numbers are not, or
    None.
    """
    version, by = stored()[unit]["version"], moves(unit, now)
    if not by or identity.versions().get(unit, 1) != version:
        return None
    far, where = max(by.values()), listed(by)
    why = f"by {far:.1e} in {where}" if far < math.inf else f"another shape in {where}"
    return Finding("moved", unit, version, why)


def pending(unit):
    """The Finding of a unit whose version is not the one that was noted, or None."""
    now, noted = identity.versions().get(unit, 1), stored()[unit]["version"]
    if now == noted:
        return None
    todo = to_write(unit) if now > noted else "a version never goes back"
    why = f"its numbers were noted at version {noted}; {todo}"
    return Finding("raised", unit, now, why)


def incomplete(unit):
    """The Finding of a unit that has other short runs than were noted, as after a new
    hyper-parameter, or None.
    """
    there = set(runs.runs(unit))
    noted = set(stored().get(unit, {"runs": ()})["runs"])
    if there == noted:
        return None
    both = (("new: ", sorted(there - noted)), ("gone: ", sorted(noted - there)))
    why = "; ".join(word + listed(labels) for word, labels in both if labels)
    version = identity.versions().get(unit, 1)
    return Finding("incomplete", unit, version, f"{why}; {to_write(unit)}")


def listed(labels):
    """The first labels, and how many more there are."""
    more = f" and {len(labels) - 4} more" if len(labels) > 4 else ""
    return ", ".join([*labels][:4]) + more


def to_write(unit):
    """How to note a unit's numbers."""
    return f'run python -m goldens.numbers write "{unit}"'


def advice(found):
    """What to do about units whose numbers moved; nothing where none did."""
    units = [f.unit for f in found if f.what == "moved"]
    if not units:
        return ""
    methods = sum(u.startswith("method ") for u in units)
    raised, why = ", ".join(units), ""
    if "engine" in units or methods > MANY * len(METHODS):
        raised = "engine"
        why = " (what the methods stand on moved, so one version says it for all)"
    return (
        f"If this was meant, raise by one the version of {raised} in "
        f"fedlib/study/versions.toml, with a line why{why}, and run "
        "python -m goldens.numbers write. If it was not meant, undo the edit."
    )


# ---------------------------------------------------------------- versions.toml
def checked(table):
    """The table of versions.toml, or a ValueError that names what is wrong with it."""
    known = runs.units()
    for unit, bumps in table.items():
        at = f"fedlib/study/versions.toml: {unit!r}"
        if unit not in known:
            kinds = ", ".join(runs.KINDS)
            hint = f"a unit is engine, or a name after one of {kinds}"
            raise ValueError(f"{at} is no unit{nearest(unit, known)} ({hint})")
        fits = isinstance(bumps, list) and bumps and all(map(fine, bumps, range(2, 99)))
        if not fits:
            raise ValueError(
                f"{at} = {bumps!r}: give a list with one entry for each time that it "
                'was raised, [{v = 2, why = "...", date = 2026-11-22}]: v counts 2, 3, '
                "... without a gap, why is a line, date a day without quotes"
            )
    return table


def fine(bump, v):
    """Whether an entry raises a version to v and says why and when."""
    return (
        isinstance(bump, dict)
        and bump.keys() == {"v", "why", "date"}
        and bump["v"] == v
        and bool(str(bump["why"]).strip())
        and isinstance(bump["date"], datetime.date)
    )


# ---------------------------------------------------------------- writing
def write(units, path=FILE):
    """Note the numbers of these units; all other lines stay as they are.

    Returns the Findings of what it refuses: a unit whose numbers moved while its
    version did not, or whose version went back. What is within rounding of the stored
    numbers is left as it is.
    """
    noted = stored(path) if path.exists() else {}
    refused, new = [], {}
    for unit in units:
        version, now = identity.versions().get(unit, 1), repeat(unit)
        found = moved(unit, now) if unit in noted else None
        if found or (unit in noted and version < noted[unit]["version"]):
            refused.append(found or pending(unit))
        elif unit not in noted or version != noted[unit]["version"] or incomplete(unit):
            still = unit in noted and not moves(unit, now)
            same = noted[unit]["runs"] if still else {}
            both = {label: same.get(label, n) for label, n in now.items()}
            new[unit] = {"version": version, "runs": both}
    noted = noted | new
    text = ",\n".join(line(u, **noted[u]) for u in runs.units() if u in noted)
    whole(path, lambda f: f.write(f"{{\n{text}\n}}\n".encode()))
    stored.cache_clear()
    return refused


def line(unit, version, runs):
    """The line of a unit in fingerprints.json."""
    runs = {
        label: {k: [*map(short, v)] for k, v in now.items()}
        for label, now in runs.items()
    }
    noted = {"version": version, "runs": runs}
    return f"{json.dumps(unit)}: {json.dumps(noted, separators=(',', ':'))}"


def short(x):
    """A number with few digits; a whole one without a point."""
    x = float(f"{x:.{DIGITS}g}")
    return int(x) if x.is_integer() else x


def chosen(names):
    """The units that some names mean: a unit, its name, or a kind; no names: all."""
    units = {u: {u, *u.split(" ", 1)} for u in runs.units()}
    known = [*units, *(u.partition(" ")[2] for u in units)]
    for name in names:
        if not any(name in called for called in units.values()):
            raise ValueError(f"{name!r} is no unit{nearest(name, known)}")
    return [u for u, called in units.items() if not names or called & set(names)]
