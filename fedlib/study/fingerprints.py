"""Fingerprints of every unit's micro-runs: they say when an edit moved numbers.

    python -m fedlib.study.fingerprints check
    python -m fedlib.study.fingerprints check --defaults FedAS data
    python -m fedlib.study.fingerprints write "method FedAS"

The first repeats all micro-runs and compares; the second those of some units, only at
default settings; the third notes new numbers, after a version was raised.

A run is named by its specification and the versions of the units that it uses
(fedlib.study.identity), never by source text. So a comment, a type hint or a faster
loop renames nothing, and an edit that moves numbers must raise a version. That it did
not is noticed here. fingerprints.json has a line for each unit, with its version and,
of each of its micro-runs, {what: [count, norm, projection]}.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import time
import tomllib
from typing import NamedTuple

import torch

from ..core import ends
from ..core.errors import nearest
from ..core.files import whole
from ..methods import METHODS
from . import identity, microruns, sources

FILE = sources.FILE
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


# ---------------------------------------------------------------- comparing
def apart(a, b):
    """How far two micro-runs {what: numbers} are apart, relative to their size; inf
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
    """{label: by how much} of the micro-runs {label: numbers} that are not as stored,
    rounding aside.
    """
    kept = sources.stored()[unit]["runs"]
    tolerance = PIXELS if unit in DRAWN else TOLERANCE
    by = {label: apart(kept[label], got) for label, got in now.items() if label in kept}
    return {label: d for label, d in by.items() if d > tolerance}


def repeat(unit, labels=None):
    """{label: numbers} of a unit's micro-runs; labels: of these, where it still has
    them.
    """
    return {
        label: run()
        for label, run in microruns.runs(unit).items()
        if labels is None or label in labels
    }


def moved(unit, now):
    """The Finding of a unit whose version is as it was and whose numbers are not, or
    None.
    """
    version, by = sources.stored()[unit]["version"], moves(unit, now)
    if not by or identity.versions().get(unit, 1) != version:
        return None
    far, where = max(by.values()), listed(by)
    why = f"by {far:.1e} in {where}" if far < math.inf else f"another shape in {where}"
    return Finding("moved", unit, version, why)


def listed(labels):
    """The first labels, and how many more there are."""
    more = f" and {len(labels) - 4} more" if len(labels) > 4 else ""
    return ", ".join([*labels][:4]) + more


def pending(unit):
    """The Finding of a unit whose version is not the one that was noted, or None."""
    now, noted = identity.versions().get(unit, 1), sources.stored()[unit]["version"]
    if now == noted:
        return None
    todo = to_write(unit) if now > noted else "a version never goes back"
    why = f"its numbers were noted at version {noted}; {todo}"
    return Finding("raised", unit, now, why)


def to_write(unit):
    """How to note a unit's numbers."""
    return f'run python -m fedlib.study.fingerprints write "{unit}"'


def incomplete(unit):
    """The Finding of a unit that has other micro-runs than were noted, as after a new
    hyper-parameter, or None.
    """
    there = set(microruns.runs(unit))
    noted = set(sources.stored().get(unit, {"runs": ()})["runs"])
    if there == noted:
        return None
    both = (("new: ", sorted(there - noted)), ("gone: ", sorted(noted - there)))
    why = "; ".join(word + listed(labels) for word, labels in both if labels)
    version = identity.versions().get(unit, 1)
    return Finding("incomplete", unit, version, f"{why}; {to_write(unit)}")


def findings(unit, defaults=False):
    """[Finding] of a unit, its micro-runs repeated."""
    if unit not in sources.stored():
        return [incomplete(unit)]
    now = repeat(unit, [microruns.DEFAULTS] if defaults else None)
    return [f for f in (moved(unit, now), pending(unit), incomplete(unit)) if f]


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
        "python -m fedlib.study.fingerprints write. If it was not meant, undo the edit."
    )


# ---------------------------------------------------------------- versions.toml
def checked(table):
    """The table of versions.toml, or a ValueError that names what is wrong with it."""
    known = microruns.units()
    for unit, bumps in table.items():
        at = f"fedlib/study/versions.toml: {unit!r}"
        if unit not in known:
            kinds = ", ".join(microruns.KINDS)
            raise ValueError(
                f"{at} is no unit{nearest(unit, known)} (a unit is engine, or a name "
                f"after one of {kinds})"
            )
        is_list = isinstance(bumps, list) and all(isinstance(b, dict) for b in bumps)
        if not is_list or not bumps:
            raise ValueError(
                f"{at} = {bumps!r}: give a list with one entry for each time that it "
                'was raised, [{v = 2, why = "...", date = 2026-11-22}]'
            )
        for v, bump in enumerate(bumps, 2):
            refuse(bump, v, f"{at}, entry {v - 1}")
    return table


def refuse(bump, v, at):
    """ValueError for an entry that does not raise a version to v and say why and
    when.
    """
    if bump.get("v") != v:
        raise ValueError(
            f"{at}: v = {bump.get('v')!r}, and should be {v}: versions count 2, 3, "
            "... without a gap"
        )
    if not str(bump.get("why", "")).strip():
        raise ValueError(f"{at}: version {v} has no why; say in a line what changed")
    if not isinstance(bump.get("date"), datetime.date):
        raise ValueError(
            f"{at}: date = {bump.get('date')!r}; give a day without quotes, as "
            "2026-11-22"
        )
    unknown = sorted(bump.keys() - {"v", "why", "date"})
    if unknown:
        raise ValueError(f"{at}: unknown {', '.join(unknown)}; known: v, why, date")


# ---------------------------------------------------------------- writing
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


def write(units, path=FILE):
    """Note the numbers of these units; all other lines stay as they are.

    Returns the Findings of what it refuses: a unit whose numbers moved while its
    version did not, or whose version went back. What is within rounding of the stored
    numbers is left as it is.
    """
    kept = sources.stored(path) if path.exists() else {}
    refused, new = [], {}
    for unit in units:
        version, now = identity.versions().get(unit, 1), repeat(unit)
        found = moved(unit, now) if unit in kept else None
        if found or (unit in kept and version < kept[unit]["version"]):
            refused.append(found or pending(unit))
        elif unit not in kept or version != kept[unit]["version"] or incomplete(unit):
            same = {} if unit not in kept or moves(unit, now) else kept[unit]["runs"]
            runs = {label: same.get(label, n) for label, n in now.items()}
            new[unit] = {"version": version, "runs": runs}
    kept = kept | new
    text = ",\n".join(line(u, **kept[u]) for u in microruns.units() if u in kept)
    whole(path, lambda f: f.write(f"{{\n{text}\n}}\n".encode()))
    sources.stored.cache_clear()
    return refused


# ---------------------------------------------------------------- command line
def chosen(words):
    """The units that some words name: a unit, its name, or a kind; no words: all."""
    names = {u: {u, *u.split(" ", 1)} for u in microruns.units()}
    known = [*names, *(u.partition(" ")[2] for u in names)]
    for word in words:
        if not any(word in called for called in names.values()):
            raise ValueError(f"{word!r} is no unit{nearest(word, known)}")
    return [u for u, called in names.items() if not words or called & set(words)]


def main(argv=None):
    """Check or write; the exit status is 1 where something is wrong."""
    args = parser().parse_intermixed_args(argv)
    torch.set_num_threads(1)
    checked(tomllib.loads(identity.VERSIONS.read_text()))
    units, began = chosen(args.unit), time.process_time()
    if args.what == "write":
        found = write(units)
    else:
        found = [f for u in units for f in findings(u, args.defaults)]
    for f in found:
        print(f)
    if args.what == "check" and not (args.unit or args.defaults or found):
        whole(sources.CHECKED, lambda f: f.write(f"{sources.state()}\n".encode()))
    seconds = time.process_time() - began
    done = f"{len(units)} units, {len(found)} findings, {seconds:.0f} s of CPU time"
    print(advice(found) or done)
    return int(bool(found))


def parser():
    title, name = __doc__.partition("\n")[0], "python -m fedlib.study.fingerprints"
    cli = argparse.ArgumentParser(prog=name, description=title)
    cli.add_argument("what", choices=("check", "write"))
    some = "a unit (method FedAS), a name (FedAS), a kind (data); default: all"
    cli.add_argument("unit", nargs="*", help=some)
    few = "check only the micro-runs at default settings"
    cli.add_argument("--defaults", action="store_true", help=few)
    return cli


if __name__ == "__main__":
    ends.program("python -m fedlib.study.fingerprints", main)
