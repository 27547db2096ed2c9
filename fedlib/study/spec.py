"""What params.yaml and papers/<paper>/studies.yaml may say: the models, and the files
as plain dictionaries.

    load()["fedga"]["tasks"]["cifar01"]

"$name" is the knob of that name, a paper's entry in params.yaml. A task may be `like`
another one. A value may be one for each tier, {tiny: ..., small: ..., paper: ...}. What
a task may say stands in fedlib.data.tasks, a hyper-parameter with its method.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field

from ..core.errors import COUNT, SEEDS, refuse_if, short
from ..data.settings import Model, check
from ..data.tasks import Description, known
from ..methods import METHODS
from . import TIERS

PILOT = 1000  # seeds from here on choose, and never decide

# ---------------------------------------------------------------- models
Whole = Annotated[int, Field(ge=0, le=COUNT)]
Count = Annotated[int, Field(ge=1, le=COUNT)]
Few = Annotated[int, Field(ge=1, le=PILOT)]
Dict = dict[str, Any]
NotEmpty = Field(min_length=1)


def seeds_of(seeds):
    """The seeds [int] of an entry `seeds`: how many, which, or how many pilots."""
    if isinstance(seeds, dict):
        return [*range(PILOT, PILOT + seeds["pilot"])]
    return [*range(seeds)] if isinstance(seeds, int) else seeds


def apart(seeds):
    """ValueError for a seed that occurs twice, and for pilots beside others."""
    every = seeds_of(seeds)
    mixed = len({*every}) < len(every) or len({s < PILOT for s in every}) > 1
    refuse_if(mixed, f"give each seed once; from {PILOT} on are pilots, kept apart")
    return seeds


Seeds = Annotated[
    Few
    | Annotated[list[Annotated[int, Field(ge=0, le=SEEDS)]], NotEmpty]
    | Annotated[dict[Literal["pilot"], Few], NotEmpty],
    AfterValidator(apart),
]
Method = Annotated[str, AfterValidator(lambda m: known(METHODS, "method", m) and m)]


class Stragglers(Model):
    portion: Annotated[float, Field(ge=0, lt=1)] = None
    every: Count = None
    exchanged: bool = None


class Run(Model):
    """Arguments of the engine."""

    rounds: Whole
    cohort: Count | None = None
    online: Annotated[float, Field(gt=0, le=1)] = None
    stragglers: Stragglers = None
    every: Count = None
    splits: Annotated[list[Literal["test", "val", "all"]], NotEmpty] = None
    guests: bool = None
    own: bool = None
    microscope: bool = None
    how: Literal["loop", "vmap"] | None = None


class Point(Description):
    """A task at one point of its grid; `train` is checked by the methods."""

    train: Dict
    run: Run


class Grid(Model):
    """An entry of a task that spans an axis; what its values are called there."""

    grid: Annotated[list, NotEmpty]
    axis: str = Field(None, alias="as")
    called: list[str | int | float] = None


class Study(Run):
    """A study at its tier; what it says of the run goes before what its tasks say."""

    rounds: Whole = None
    title: str = None
    tasks: Annotated[list[str] | dict[str, Dict | None], NotEmpty]
    methods: Annotated[
        dict[Method, Dict | None | Annotated[list[Dict | None], NotEmpty]], NotEmpty
    ]
    without: dict[Method, list[str]] = None
    look: dict[Method, Annotated[list[str], Field(min_length=2, max_length=2)]] = None
    seeds: Seeds
    logs: dict[str, Whole] = None
    source: str = None


class Paper(Model):
    """A studies file: tasks, and studies by the notebook that reads them; entries of
    either below a tier's name replace its own at that tier.
    """

    tasks: dict[str, Dict] = {}
    studies: dict[str, dict[str, Dict]] = {}


class Params(Model, extra="allow"):
    """params.yaml: a tier, and the knobs of each paper."""

    __pydantic_extra__: dict[str, Dict | None]
    tier: Literal["tiny", "small", "paper"]


@contextmanager
def located(at):
    """What is wrong inside is a ValueError that begins with the place."""
    try:
        yield
    except (TypeError, ValueError, RecursionError, yaml.YAMLError) as e:
        raise ValueError(f"{at}: {e}") from e


# ---------------------------------------------------------------- YAML
class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """YAML in C where PyYAML has it; a key that occurs twice is refused."""

    def flatten_mapping(self, node):
        if not hasattr(node, "checked"):  # before keys from elsewhere are merged in
            node.checked, seen = True, set()
            for key, _ in node.value:
                at = f"line {key.start_mark.line + 1}"
                refuse_if(key.value in seen, f"{at}: {key.value!r} is there already")
                seen.add(key.value)
        super().flatten_mapping(node)


# 1e-05, as DVC writes a small number for `-S`, is a number; for YAML 1.1 it is a word.
Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), [*"-+0123456789"]
)


def parsed(text):
    """What a text holds."""
    return yaml.load(text, Loader)


def read(path):
    """The dictionary in a YAML file."""
    with located(path):
        tree = parsed(Path(path).read_text("utf-8"))
        refuse_if(not isinstance(tree, dict), f"{short(tree)}: give `key: value`")
    return tree


# ---------------------------------------------------------------- files
def load(path="params.yaml"):
    """{"tier": ..., paper: {knob: value, "tasks": {...}, "studies": {...}}}, every
    $name replaced and every `like` followed.

    The knobs of a paper are its section of `path`; its tasks and studies stand in
    papers/<paper>/studies.yaml beside `path`, else in the section. A paper that has
    none is left out: its folder was taken away.
    """
    path, sections = Path(path), read(path)
    with located(path):
        check(Params, sections)
    tree = {"tier": sections.pop("tier")}
    files = sorted(path.parent.glob("papers/*/studies.yaml"))
    for name in dict.fromkeys([*sections, *(f.parent.name for f in files)]):
        at, knobs = file_of(path, name), sections.get(name) or {}
        body = {k: knobs[k] for k in Paper.model_fields if k in knobs}
        body = read(at) if Path(at).is_file() else body
        with located(at):
            check(Paper, body)
            tasks, groups = (given(body.get(k, {}), knobs) for k in Paper.model_fields)
            tasks = {k: whole(k, tasks) for k in tasks}
            studies = [study for group in groups.values() for study in group.items()]
            twice = len(dict(studies)) < len(studies)
            refuse_if(twice, "two studies have one name; rename one of them")
        if studies:
            tree[name] = knobs | {"tasks": tasks, "studies": dict(studies)}
    return tree


def file_of(path, paper):
    """Where the studies of a paper stand."""
    file = Path(path).parent / "papers" / paper / "studies.yaml"
    return str(file) if file.is_file() else f"{path}: {paper}"


def given(value, knobs):
    """A value with the knob in place of every "$name"."""
    if isinstance(value, dict):
        return {k: given(v, knobs) for k, v in value.items()}
    if isinstance(value, list):
        return [given(v, knobs) for v in value]
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    return known({f"${k}": v for k, v in knobs.items()}, "knob", value)


# ---------------------------------------------------------------- what is inherited
def whole(name, entries):
    """A task with all that it inherits by `like`."""
    own, others = dict(entries[name]), {k: v for k, v in entries.items() if k != name}
    if (like := own.pop("like", None)) is None:
        return own
    known(others, f"tasks.{name}.like", like)  # nor is there one of a circle
    return merged(whole(like, others), own)


def merged(base, change):
    """base with the entries of change: a dictionary changes that of base, one with a
    `name`, another piece, replaces it, and a null takes the entry away.
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


def by_tier(value):
    """Whether it is a value for each tier, {tiny: ..., small: ..., paper: ...}."""
    return isinstance(value, dict) and bool(value) and set(value) <= set(TIERS)


def tiered(entry, tier):
    """A task or study as its tier has it: its entries below the tier's name, and values
    by tier, but of hyper-parameters, which `studies.settings` reads.
    """
    base = {k: v for k, v in entry.items() if k not in TIERS} | (entry.get(tier) or {})
    return {k: v if k == "methods" else plain(v, tier, k) for k, v in base.items()}


def plain(value, tier, name):
    """A value with all values by tier inside it chosen."""
    if by_tier(value):
        return plain(known(value, f"tier of {name}:", tier), tier, name)
    if isinstance(value, dict):
        return {k: plain(v, tier, k) for k, v in value.items()}
    return [plain(v, tier, name) for v in value] if isinstance(value, list) else value
