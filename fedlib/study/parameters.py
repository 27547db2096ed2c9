"""Parameters: params.yaml, with papers/<paper>/studies.yaml beside it, read, checked
and written out.

A value may depend on the tier, {tiny: ..., small: ..., paper: ...}, that of a method
also on the task (fedlib.study.studies.settings); "$name" is the knob of that name in
params.yaml; a task may be `like` another one. Unknown keys are refused.
"""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path

from ..core import errors
from ..core.ranges import short
from ..methods import METHODS
from . import TIERS, schema
from .reader import read, text_of, tree_of
from .schema import by_tier, leaves


# ---------------------------------------------------------------- files
def load(path="params.yaml"):
    """{"tier": ..., paper: {knob: value, "tasks": {...}, "studies": {...}}}, checked,
    every $name replaced.

    The knobs of a paper are its section of `path`; its tasks and studies are those of
    papers/<paper>/studies.yaml beside `path`, or of the section itself where there is
    no such file. A paper that has neither is left out: its folder was taken away.
    """
    path = Path(path)
    tree = read(path)
    schema.check("rest", {"tier": tree.get("tier")}, str(path))
    sections = {name: v for name, v in tree.items() if isinstance(v, dict)}
    found = sorted(path.parent.glob("papers/*/studies.yaml"))
    files = {f.parent.name: f for f in found}
    for k in files:
        if tree.get(k) is not None and k not in sections:
            raise ValueError(
                f"{path}: {k} = {short(tree[k])}: give the knobs of {files[k]}, as "
                "`name: value`"
            )
    papers = {}
    for k in sections | files:
        knobs, file = json.dumps(sections.get(k, {})), files.get(k)
        text = text_of(file) if file else ""
        where = k, str(path), str(file or "")
        papers[k] = copy.deepcopy(paper_of(*where, knobs, text, (*METHODS.items(),)))
    rest = {k: v for k, v in tree.items() if k not in papers}
    schema.check("rest", rest, str(path))
    return rest | {k: p for k, p in papers.items() if p["studies"]}


@functools.lru_cache(maxsize=16)
def paper_of(name, path, file, section, text, methods):
    """One paper's knobs, tasks and studies, from its section (json) of the file `path`
    and the text of its own file, where it has one. methods: METHODS now.
    """
    at, section = file or f"{path}: {name}", json.loads(section)
    body = {k: section[k] for k in ("tasks", "studies") if k in section}
    if file:
        body = tree_of(text, file)
    schema.check("outline", body, at)
    knobs = {k: v for k, v in section.items() if file or k not in body}
    schema.check("section", knobs, f"{path}: {name}")
    if body:
        used = [v[1:] for v in leaves(body) if isinstance(v, str) and v[:1] == "$"]
        check_knobs(knobs, used, name, path, at)
    tasks, groups = (given(body.get(k) or {}, knobs) for k in ("tasks", "studies"))
    complete = {k: whole(k, tasks, f"{at}: tasks.{k}") for k in tasks}
    # a mistake is reported where it stands, and not where it is inherited
    in_order = sorted(complete, key=lambda k: "like" in tasks[k])
    paper = {"tasks": {k: complete[k] for k in in_order}, "studies": groups}
    place = functools.partial(origin, body, f"{path}: {name}")
    schema.check("paper", paper, at, [*tasks], place)
    return knobs | {"tasks": complete, "studies": one_by_one(groups, at)}


def origin(body, section, at, keys):
    """Where a value of a paper stands: in its file, or among the knobs of a section."""
    for i in range(len(keys) + 1):
        if isinstance(body, str) and body.startswith("$"):
            return schema.dotted(section, [body[1:], *keys[i:]])
        try:
            body = body[keys[i]]
        except (KeyError, IndexError, TypeError):  # inherited
            break
    return schema.dotted(at, keys)


def place(path, paper):
    """Where the studies of a paper stand, for a message."""
    file = Path(path).parent / "papers" / paper / "studies.yaml"
    return str(file) if file.is_file() else f"{path}: {paper}"


# ---------------------------------------------------------------- what is refused
def check_knobs(knobs, used, name, path, at):
    """Refuse knobs of the file `path` that nothing in `at` uses, and uses of what is
    not there.
    """
    known = ", ".join(dict.fromkeys(used))
    for k in knobs:
        if k not in used:
            raise ValueError(
                f"{path}: {name}: unknown key {k!r}{errors.nearest(k, set(used))}; "
                f"no task or study of {at} uses ${k} (known: {known})"
            )
    for k in used:
        if k not in knobs:
            raise ValueError(
                f"{at} uses ${k}, which is not given{errors.nearest(k, knobs)}; "
                f"give {k} in {path}, section {name}"
            )


# ---------------------------------------------------------------- written out
def one_by_one(groups, at):
    """{notebook: {study: entry}} -> {study: entry}."""
    out = {}
    for notebook, group in groups.items():
        for k in group:
            if k in out:
                raise ValueError(
                    f"{at}: two studies are called {k!r}; rename the one of "
                    f"studies.{notebook}"
                )
        out |= group
    return out


def given(value, knobs):
    """A value with every "$name" in it replaced by the knob of that name."""
    if isinstance(value, dict):
        return {k: given(v, knobs) for k, v in value.items()}
    if isinstance(value, list):
        return [given(v, knobs) for v in value]
    is_knob = isinstance(value, str) and value.startswith("$")
    return knobs[value[1:]] if is_knob else value


def whole(name, entries, at, trail=()):
    """A task with all that it inherits by `like`."""
    own = dict(entries[name])
    if "like" not in own:
        return own
    other = own.pop("like")
    if not isinstance(other, str) or other not in entries:
        others = [k for k in entries if k != name]
        raise ValueError(
            f"{at}: like names the task {other!r}{errors.nearest(other, others)} "
            f"(there are {', '.join(others)})"
        )
    if other in (*trail, name):
        circle = " -> ".join((*trail, name, other))
        raise ValueError(
            f"{at}: like leads in a circle, {circle}; write one of them out"
        )
    return merged(whole(other, entries, at, (*trail, name)), own)


def merged(base, change):
    """base with the entries of change.

    A dictionary changes that of base, unless it has a `name`: another piece replaces
    the whole. A null takes the entry away.
    """
    out = dict(base)
    for k, v in change.items():
        deeper = changes_inside(base.get(k), v) and "name" not in v
        out[k] = merged(base[k], v) if deeper else v
        if v is None:
            del out[k]
    return out


def changes_inside(old, new):
    """Whether both are dictionaries of one kind: by tier, or not."""
    both = isinstance(old, dict) and isinstance(new, dict)
    return both and by_tier(old) == by_tier(new)


# ---------------------------------------------------------------- tiers
def of_tier(value, tier, name):
    """What a value {tiny: ..., small: ..., paper: ...} is at a tier."""
    if tier not in value:
        raise ValueError(
            f"{name} = {value} has no value for tier {tier}; "
            f"give one for each of {', '.join(TIERS)}"
        )
    return value[tier]


def tiered(entry, tier):
    """A task or study as its tier has it: entries below the tier's name replace the
    entry's own, and values by tier are that tier's. Hyper-parameters keep theirs, which
    `settings` reads.
    """
    base = {k: v for k, v in entry.items() if k not in TIERS} | (entry.get(tier) or {})
    return {k: v if k == "methods" else plain(v, tier, k) for k, v in base.items()}


def plain(value, tier, name):
    """A value with all values by tier inside it chosen."""
    if by_tier(value):
        return plain(of_tier(value, tier, name), tier, name)
    if isinstance(value, dict):
        return {k: plain(v, tier, k) for k, v in value.items()}
    return [plain(v, tier, name) for v in value] if isinstance(value, list) else value
