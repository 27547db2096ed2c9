"""What params.yaml and papers/<paper>/studies.yaml may say: the models, and the files
as plain dictionaries.

    load()["fedga"]["tasks"]["cifar01"]

"$name" is the knob of that name, a paper's entry in params.yaml. A task may be `like`
another one. A value may be one for each tier, {tiny: ..., small: ..., paper: ...}.

The models are of plain values. A study is checked where its knobs, tiers and grids are
resolved (fedlib.study.studies), and at every tier, so a value has one form. What a
hyper-parameter may be is declared by its method, hp(...).
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field

from ..core.errors import nearest
from ..core.ranges import COUNT, short
from ..data import tasks
from ..data.settings import Model, check
from ..methods import METHODS
from . import TIERS

# ---------------------------------------------------------------- models
Whole = Annotated[int, Field(ge=0, le=COUNT)]
Count = Annotated[int, Field(ge=1, le=COUNT)]
Name = Annotated[str, Field(pattern=r"^[^;\n]+$")]  # in a setting, as "B=8;online=1"
Dict = dict[str, Any]
NotEmpty = Field(min_length=1)


class Stragglers(Model):
    portion: Annotated[float, Field(ge=0, lt=1)] = None
    every: Count = None
    exchanged: bool = None


class Run(Model):
    """Arguments of the engine, in a task or a study."""

    rounds: Whole = None
    cohort: Count | None = None
    online: Annotated[float, Field(gt=0, le=1)] = None
    stragglers: Stragglers = None
    every: Count = None
    splits: Annotated[list[Literal["test", "val", "all"]], NotEmpty] = None
    guests: bool = None
    own: bool = None
    microscope: bool = None
    how: Literal["loop", "vmap"] | None = None
    precision: Literal["float32", "tf32", "bf16"] = None


class FullRun(Run):
    rounds: Whole


class Sections(Model):
    train: Dict
    run: Dict


class Task(tasks.Description):
    """A task at one point of its grid; `train` is checked by the methods."""

    train: Dict
    run: FullRun


class Grid(Model):
    """An entry of a task that spans an axis; what its values are called there."""

    grid: Annotated[list, NotEmpty]
    axis: str = Field(None, alias="as")
    called: list[Name | int | float] = None


def is_method(name):
    tasks.known(METHODS, "method", name)
    return name


Method = Annotated[str, AfterValidator(is_method)]
Variants = Dict | None | Annotated[list[Dict | None], NotEmpty]


class Study(Run):
    """A study at its tier."""

    title: str = None
    tasks: Annotated[list[str] | dict[str, Dict | None], NotEmpty]
    methods: Annotated[dict[Method, Variants], NotEmpty]
    without: dict[Method, list[str]] = None
    look: dict[Method, Annotated[list[str], Field(min_length=2, max_length=2)]] = None
    seeds: Any
    logs: dict[str, Whole] = None
    source: str = None


class Paper(Model):
    """A studies file: tasks, and studies by the notebook that reads them."""

    tasks: dict[str, Dict] = {}
    studies: dict[str, dict[str, Dict]] = {}


def check_task(spec):
    """ValueError unless a task is complete, and its source, partition and network take
    what they are given.
    """
    check(Task, spec)
    for kind in spec.keys() & tasks.TABLES.keys():
        given, made = spec[kind], tasks.TABLES[kind][spec[kind]["name"]]
        takes = {*inspect.signature(made).parameters, "name"}
        more = {"inputs", "channels", "K", "classes"} if kind == "network" else set()
        for k in given.keys() - takes - more:
            known = ", ".join(sorted(takes))
            near = nearest(k, takes)
            raise ValueError(
                f"{kind}.{k} = {short(given[k])}: no argument{near} ({known})"
            )


@contextmanager
def located(at):
    """A ValueError of what is inside begins with the place."""
    try:
        yield
    except ValueError as e:
        raise ValueError(f"{at}: {e}") from e


def found(name, table, message):
    """table[name], or a ValueError: the message, the name, and what there is."""
    if name not in table:
        near = nearest(str(name), table)
        raise ValueError(f"{message} {name!r}{near} (there are {', '.join(table)})")
    return table[name]


# ---------------------------------------------------------------- YAML
class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in C where PyYAML has it: ten times as quick, and every study asks twice."""

    # a date is a text
    yaml_implicit_resolvers = {
        k: [pair for pair in v if not pair[0].endswith("timestamp")]
        for k, v in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


# 1e-05, as DVC writes a small number for `-S`, is a number; for YAML 1.1 it is a word.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), [*"-+0123456789"]
)


def read(path):
    """The dictionary in a YAML file, a copy of one's own."""
    try:
        tree = parsed(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        raise ValueError(f"{path} is not valid YAML: {' '.join(str(e).split())}") from e
    if not isinstance(tree, dict):
        raise ValueError(f"{path} holds {short(tree)}; it needs lines `key: value`")
    return copy.deepcopy(tree)


@functools.lru_cache(maxsize=16)
def parsed(text):
    """The dictionary, list or value of a text."""
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        check_keys(node, set())
        return loader.construct_document(node) if node else None
    finally:
        loader.dispose()


def check_keys(node, seen):
    """ValueError, with the line, for a key that occurs twice or is no text; seen: the
    nodes that were looked at, since an alias leads to one again.
    """
    if id(node) in seen or not isinstance(node, yaml.CollectionNode):
        return
    seen.add(id(node))
    inside = node.value
    if isinstance(node, yaml.MappingNode):
        lines = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            at = f"line {line}: the key {short(key.value)}"
            if key.tag.rpartition(":")[2] not in ("str", "merge", "value"):
                raise ValueError(f"{at} is no text; put it in quotes")
            if key.value in lines:
                first = f"is there already, in line {lines[key.value]}"
                raise ValueError(f"{at} {first}; take one of the two away")
            lines[key.value] = line
        inside = [v for _, v in node.value]
    for v in inside:
        check_keys(v, seen)


# ---------------------------------------------------------------- files
def load(path="params.yaml"):
    """{"tier": ..., paper: {knob: value, "tasks": {...}, "studies": {...}}}, every
    $name replaced and every `like` followed.

    The knobs of a paper are its section of `path`; its tasks and studies are those of
    papers/<paper>/studies.yaml beside `path`, or of the section itself where there is
    no such file. A paper that has neither is left out: its folder was taken away.
    """
    path = Path(path)
    sections = read(path)
    tier = sections.pop("tier", None)
    if tier not in TIERS:
        raise ValueError(
            f"{path}: tier = {short(tier)}: give one of {', '.join(TIERS)}"
        )
    files = sorted(path.parent.glob("papers/*/studies.yaml"))
    papers = {}
    for name in sections | {f.parent.name: f for f in files}:
        section = {} if sections.get(name) is None else sections[name]
        if not isinstance(section, dict):
            what = f"{path}: {name} = {short(section)}"
            raise ValueError(f"{what}: give the knobs of a paper, as `name: value`")
        papers[name] = paper_of(name, section, path)
    return {"tier": tier} | {k: p for k, p in papers.items() if p["studies"]}


def paper_of(name, section, path):
    """One paper's knobs, tasks and studies; section: its own of the file `path`."""
    at = file_of(path, name)
    alone = Path(at).is_file()  # else its section holds all
    inline = {k: v for k, v in section.items() if k in Paper.model_fields and not alone}
    body = read(at) if alone else inline
    knobs = {k: v for k, v in section.items() if k not in inline}
    with located(at):
        check(Paper, body)
        if body:
            check_knobs(knobs, [*knobs_in(body)], f"{path}: {name}")
        entries, groups = (given(body.get(k, {}), knobs) for k in ("tasks", "studies"))
        full = {k: whole(k, entries) for k in entries}
        studies = {k: entry for group in groups.values() for k, entry in group.items()}
        if len(studies) < sum(map(len, groups.values())):
            every = [k for group in groups.values() for k in group]
            twice = next(k for k in every if every.count(k) > 1)
            raise ValueError(f"two studies are called {twice!r}; rename one of them")
    return knobs | {"tasks": full, "studies": studies}


def file_of(path, paper):
    """Where the studies of a paper stand, for a message."""
    file = Path(path).parent / "papers" / paper / "studies.yaml"
    return str(file) if file.is_file() else f"{path}: {paper}"


# ---------------------------------------------------------------- knobs
def knobs_in(value):
    """The name of every "$name" inside dictionaries and lists."""
    if isinstance(value, (dict, list)):
        for v in value.values() if isinstance(value, dict) else value:
            yield from knobs_in(v)
    elif isinstance(value, str) and value.startswith("$"):
        yield value[1:]


def check_knobs(knobs, used, at):
    """ValueError for a knob that nothing uses, for a use of what is not there, and for
    a knob inside a knob.
    """
    for k in knobs:
        if k not in used:
            near, known = nearest(k, set(used)), ", ".join(dict.fromkeys(used))
            raise ValueError(f"{at}: unknown key {k!r}{near}: used are {known}")
        for inside in knobs_in(knobs[k]):
            raise ValueError(f"{at}.{k} holds the knob '${inside}'; write it out")
    for k in used:
        found(k, knobs, f"${k} is not given: {at} has no")


def given(value, knobs):
    """A value with every "$name" in it replaced by the knob of that name."""
    if isinstance(value, dict):
        return {k: given(v, knobs) for k, v in value.items()}
    if isinstance(value, list):
        return [given(v, knobs) for v in value]
    is_knob = isinstance(value, str) and value.startswith("$")
    return knobs[value[1:]] if is_knob else value


# ---------------------------------------------------------------- what is inherited
def whole(name, entries, trail=()):
    """A task with all that it inherits by `like`."""
    own = dict(entries[name])
    if "like" not in own:
        return own
    other = own.pop("like")
    others = {k: v for k, v in entries.items() if k not in (name, *trail)}
    if not isinstance(other, str) or other not in others:
        known = ", ".join(others)
        circle = " of this circle" if other in (name, *trail) else ""
        what = f"tasks.{name}.like = {short(other)}{circle}"
        raise ValueError(f"{what}: give another task (there are {known})")
    return merged(whole(other, entries, (*trail, name)), own)


def merged(base, change):
    """base with the entries of change.

    A dictionary changes that of base, unless it has a `name`: another piece replaces
    the whole. A null takes the entry away.
    """
    out = dict(base)
    for k, v in change.items():
        old = base.get(k)
        both = isinstance(old, dict) and isinstance(v, dict)
        deeper = both and by_tier(old) == by_tier(v) and "name" not in v
        out[k] = merged(old, v) if deeper else v
        if v is None:
            del out[k]
    return out


# ---------------------------------------------------------------- tiers
def by_tier(value):
    """Whether it is a value for each tier, {tiny: ..., small: ..., paper: ...}."""
    return isinstance(value, dict) and bool(value) and set(value) <= set(TIERS)


def tiered(entry, tier):
    """A task or study as its tier has it: entries below the tier's name replace the
    entry's own, and values by tier are that tier's. Hyper-parameters keep theirs, which
    `settings` reads.
    """
    below = entry.get(tier) or {}
    check(Levels, {tier: below})
    base = {k: v for k, v in entry.items() if k not in TIERS} | below
    return {k: v if k == "methods" else plain(v, tier, k) for k, v in base.items()}


class Levels(Model):
    tiny: Dict = None
    small: Dict = None
    paper: Dict = None


def plain(value, tier, name):
    """A value with all values by tier inside it chosen."""
    if by_tier(value):
        return plain(found(tier, value, f"{name} = {value} has no"), tier, name)
    if isinstance(value, dict):
        return {k: plain(v, tier, k) for k, v in value.items()}
    return [plain(v, tier, name) for v in value] if isinstance(value, list) else value
