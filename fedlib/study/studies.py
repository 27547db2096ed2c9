"""Studies: what params.yaml and papers/<paper>/studies.yaml say, as a list of cells.

    cells("fedga", "synthetic", tier="tiny")[0]        [Cell, ...]

"$name" is the knob of that name, a paper's entry in params.yaml, and "$seed" the seed
of a run, which so draws its data, too. A task may be `like` another one. A value may be
one for each tier, {tiny: ..., small: ..., paper: ...}; what stands below a tier's name
replaces the others there. What a task may say is declared in fedlib.data.tasks.

seeds: 5 are 0 to 4, seeds: [0, 3, 7] these, seeds: {pilot: 3} are 1000, 1001, 1002.
Pilots choose, and never decide a claim: a choice fits the noise of its own seeds.
papers/<paper>/seeds.yaml has the seeds that open claims asked for (`python -m
repro.decide`): {study: {data set: 10}} are ten in all at tier small.

draws: 16 are so many settings of each method (fedlib.methods.search); lists are values
to draw from; skip: 16 leaves out the first. winners: STUDY runs what won there (`python
-m repro.winners`): on pilot seeds the finalists, else by=mean, by=worst; or one, as
`by: mean` or `by: first`.
"""

import functools
import itertools
import json
import pickle
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field, TypeAdapter

from ..core.errors import known, refuse_if, short
from ..core.tree import without
from ..data.settings import Count, Model, Seed, Some, Whole, check, named
from ..data.tasks import SOURCES, Description
from ..methods import METHODS, search
from ..methods.make import make
from . import TIERS, identity

FILE = "studies.yaml"
PILOT = 1000  # seeds from here on choose, and never decide

# ---------------------------------------------------------------- models
Few = Annotated[int, Field(ge=1, le=PILOT)]
Dict = dict[str, Any]
NotEmpty = Field(min_length=1)


def seeds_of(seeds):
    """The seeds [int] of an entry `seeds`: how many, which, or how many pilots."""
    if isinstance(seeds, dict):
        return [*range(PILOT, PILOT + seeds["pilot"])]
    return [*range(seeds)] if isinstance(seeds, int) else seeds


def apart(seeds):
    """The same entry; ValueError for a seed twice, and for pilots beside others."""
    every = seeds_of(seeds)
    mixed = len({*every}) < len(every) or len({s < PILOT for s in every}) > 1
    refuse_if(mixed, f"give each seed once; from {PILOT} on are pilots, kept apart")
    return seeds


Seeds = Annotated[
    Few | Some[Seed] | Annotated[dict[Literal["pilot"], Few], NotEmpty],
    AfterValidator(apart),
]
Method = Annotated[str, named(METHODS, "method")]


class Run(Model):
    """Arguments of the engine."""

    rounds: Whole
    cohort: Count | None = None
    online: Annotated[float, Field(gt=0, le=1)] = None
    stragglers: Dict = None  # see fedlib.core.clients.stragglers
    every: Count = None
    splits: Some[Literal["test", "val", "all"]] = None
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

    grid: Some[Any]
    axis: str = Field(None, alias="as")
    called: list[str | int | float] = None


class Study(Run):
    """A study at its tier; what it says of the run goes before what its tasks say."""

    rounds: Whole = None
    title: str = None
    tasks: Annotated[list[str] | dict[str, Dict | None], NotEmpty]
    methods: Annotated[dict[Method, Dict | None | Some[Dict | None]], NotEmpty]
    without: dict[Method, list[str]] = None
    look: dict[Method, Annotated[list[str], Field(min_length=2, max_length=2)]] = None
    seeds: Seeds
    draws: Few = None  # settings of each method, the local step among them
    skip: Few = 0  # so many of them, which an earlier search has tried
    winners: str = None  # the study that has searched them, see winners.yaml
    by: str = None  # which of them alone; settings do not name it
    logs: list[str] | dict[Method, list[str]] = None  # of every seed stored, not of 0
    curves: list[str] = None  # data sets whose every evaluation is, too
    stored: Literal["test"] = None  # leave numbers of validation rows out
    source: str = None


class Paper(Model):
    """A studies file: tasks, and studies by the notebook that reads them."""

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
    """What a text holds; anew for each caller, who may change it."""
    return pickle.loads(_parsed(text))


_parsed = functools.cache(lambda text: pickle.dumps(yaml.load(text, Loader)))


def read(path, model=None):
    """The dictionary in a YAML file, as a model has it."""
    with located(path):
        tree = parsed(Path(path).read_text("utf-8"))
        refuse_if(not isinstance(tree, dict), f"{short(tree)}: give `key: value`")
        if model:
            check(model, tree)
    return tree


# ---------------------------------------------------------------- files
def load(path="params.yaml", paper="", **knobs):
    """{"tier": ..., paper: {knob: value, "tasks": {...}, "studies": {...}}}, every
    $name replaced but $seed, and every `like` followed; of papers that have a folder.
    knobs: values of one paper that replace those of the file, but where they are None.
    """
    if not Path(path).exists():
        hint = "work in the root of the repository, as kernels of `make lab` do"
        raise FileNotFoundError(f"{path} is not in {Path.cwd()}: {hint}")
    sections, folder = read(path, Params), Path(path).parent / "papers"
    for k, v in knobs.items():
        own = known(sections, f"section of {path}", paper) or {}
        old = known(own, f"knob of {paper} in {path}", k)
        sweep = isinstance([*old.values()][0] if by_tier(old) else old, list)
        few = sweep and not isinstance(v, list | None)
        refuse_if(few, f"{k} = {v!r}: this knob of {paper} is a sweep; give a list")
        own[k] = old if v is None else v
    tree = {"tier": sections.pop("tier")}
    files = {f.parent.name: f for f in sorted(folder.glob(f"*/{FILE}"))}
    for name in [k for k in sections | files if k in files]:
        knobs, body = sections.get(name) or {}, read(files[name], Paper)
        with located(files[name]):
            every = knobs | {"seed": "$seed"}
            tasks, groups = (given(body.get(k, {}), every) for k in Paper.model_fields)
            tasks = {k: whole(k, tasks) for k in tasks}
            studies = [study for group in groups.values() for study in group.items()]
            refuse_if(len(dict(studies)) < len(studies), "two studies have one name")
        tree[name] = knobs | {"tasks": tasks, "studies": dict(studies)}
    return tree


def mapped(v, f, name=""):
    """A tree with f(entry, its key) in place of every entry, from the top down."""
    v = f(v, name)
    if isinstance(v, dict):
        return {k: mapped(x, f, k) for k, x in v.items()}
    return [mapped(x, f, name) for x in v] if isinstance(v, list) else v


def given(value, knobs):
    """A value with the knob in place of every "$name"."""
    table = {f"${k}": v for k, v in knobs.items()}
    named = lambda v: isinstance(v, str) and v.startswith("$")
    return mapped(value, lambda v, _: known(table, "knob", v) if named(v) else v)


# ---------------------------------------------------------------- what is inherited
def whole(name, entries):
    """A task with all that it inherits by `like`."""
    own, others = dict(entries[name]), {k: v for k, v in entries.items() if k != name}
    if (like := own.pop("like", None)) is None:
        return own
    known(others, f"tasks.{name}.like", like)  # nor is there one of a circle
    return merged(whole(like, others), own)


def merged(base, change):
    """base changed: dictionaries merge, one with a `name` replaces, null deletes."""
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
    """A task or study at its tier, but for hyper-parameters by tier: see `settings`."""
    base = {k: v for k, v in entry.items() if k not in TIERS} | (entry.get(tier) or {})
    of = lambda v, k: of(known(v, f"tier of {k}:", tier), k) if by_tier(v) else v
    return {k: v if k == "methods" else mapped(v, of, k) for k, v in base.items()}


# ---------------------------------------------------------------- cells
@dataclass(frozen=True)
class Cell:
    """One run: what it is called, and everything that decides its numbers."""

    dataset: str
    label: str  # what the data are, in words
    method: str
    setting: str
    seed: int
    data: str  # real, synthetic, stand-in
    task: str  # description of the task, json
    kwargs: str  # hyper-parameters, json
    engine: str  # arguments of the engine, those of Run, json
    tier: str = ""  # "paper" also where its sizes are the paper's, whatever tier ran
    mine: str = ""  # hash of edited sources, for a reader's own runs
    id = property(identity.run_id, doc="The name of the run.")

    def __str__(self):
        words = self.dataset, self.method, self.setting, f"seed {self.seed}"
        return " ".join(filter(None, words))


def cells(paper, name, path="params.yaml", tier=None, knobs=None, **changes):
    """(the cells of a study, the study at its tier, the tier). knobs: see `load`;
    changes: values that replace the study's own. ValueError for a mistake, with its
    place."""
    tree = load(path, paper, **(knobs or {}))
    folder, out = Path(path).parent / "papers" / paper, []
    usual = tree.pop("tier")
    tier = known({t: t for t in TIERS}, "tier", usual if tier is None else tier)
    book = known(tree, f"paper in {path}:", paper)
    entry = known(book["studies"], f"study of {paper}:", name)
    with located(f"{folder / FILE}: studies.{name}, tier {tier}"):
        study = tiered(entry, tier) | changes
        check(Study, study)
        usual = tier == "small" and "seeds" not in changes
        more = added(folder / "seeds.yaml", name) if usual else {}
        if "winners" in study:
            won = read(folder / "winners.yaml")
            study["won"] = known(won, "search", study["winners"])
        for dataset in study["tasks"]:
            with located(f"tasks.{dataset}"):
                task = known(book["tasks"], "task", dataset)
                seeds = grown(seeds_of(study["seeds"]), more.get(dataset, 0), "study")
                out += of_task(dataset, task, study, tier, seeds, book["tasks"])
        cell, n = (Counter(out).most_common(1) or [("nothing", 0)])[0]
        refuse_if(n != 1, f"give tasks and methods, each variant once: {cell}")
    return out, study, tier


def of_task(dataset, task, study, tier, seeds, tasks):
    """[Cell] of one task of a study."""
    own, papers = tiered(task, tier), tiered(task, "paper")
    what = dataset, own.get("label", dataset)
    kind, out = kind_of(root(own.get("data")), root(papers.get("data"))), []
    for point, spec in points(parts(own, study, dataset)):
        check(Point, given(spec, {"seed": seeds[0]}))
        texts = {s: as_text(given(spec, {"seed": s})) for s in seeds}
        for method, entry in study["methods"].items():
            if dataset in study.get("without", {}).get(method, ()):
                continue
            with located(f"methods.{method}"):
                at = tier, dataset, tasks, point
                for how, kwargs in variants(method, entry, study, *at):
                    make(method, None, **spec["train"] | kwargs)
                    setting = f"{point};{how}".strip(";")
                    for seed, (text, train, run) in texts.items():
                        cell = *what, method, setting, seed, kind, text
                        out.append(Cell(*cell, json.dumps(train | kwargs), run, tier))
    return out


def parts(task, study, dataset):
    """A task changed by what a study says of its runs, then by that of this task."""
    out = {k: v for k, v in task.items() if k not in ("label", "train", "run")}
    out |= {"train": task.get("train", {}), "run": {"every": 1}}
    run = {k: study[k] for k in Run.model_fields if k in study}
    own = study["tasks"][dataset] if isinstance(study["tasks"], dict) else {}
    changes = {"run": task.get("run", {})}, {"run": run}, own or {}
    return functools.reduce(merged, changes, out)


def as_text(spec):
    """(task as json, what all methods train with, engine as json) of a point."""
    task = {k: v for k, v in spec.items() if k not in ("train", "run")}
    return json.dumps(task), spec["train"], json.dumps(spec["run"])


# ---------------------------------------------------------------- hyper-parameters
def variants(method, entry, study, tier, task, tasks, point):
    """[(setting, hyper-parameters)] of one method: as its entry has them, or drawn, or
    won by a search, its own or of the method that it is `like`."""
    out, some, place = [], None, f"{task};{point}".strip(";")
    if "draws" in study:
        values = {k: v for k, v in (entry or {}).items() if isinstance(v, list)}
        entry = without(entry or {}, values)
        some = search.settings(make(method, None), study["draws"], values)
        some = some[study.get("skip", 0) :]
    for how, fixed in settings(entry, tier, task, tasks, point):
        each = {how: {}}
        if "winners" in study:
            won = known(study["won"], "winners of", fixed.pop("like", method))
            won = won.get(f"{place};{how}") or known(won, f"{method} on", place)
            each = {f"by={by}": of for by, of in won.items() if by != "finalists"}
            if "by" in study:
                each = {how: known(won, "winner", study["by"])}
            elif min(seeds_of(study["seeds"])) >= PILOT:
                some = won["finalists"]
        if some:
            each = {";".join(word(*kv) for kv in s.items()): s for s in some}
        out += [(how, fixed | of) for how, of in each.items()]
    return out


def settings(entry, tier="paper", task="", tasks=(), point=""):
    """One method's entry -> [(setting, hyper-parameters)].

    Lists span a grid; a list of entries is variants. A value may be by tier, {small: 2,
    paper: 5}, by task, {pacs: 0.05, officehome: 0.1}, or by the `point` of the task's
    grid, {guest=photo: 0.05}; the setting does not name these, unless they are lists.
    """
    out, several = [], isinstance(entry, list)
    for e in entry if several else [entry]:
        e = e or {}
        chosen = {k: choose(k, v, tier, task, tasks, point) for k, v in e.items()}
        axes = {k: v for k, v in chosen.items() if isinstance(v, list)}
        refuse_if([] in axes.values(), f"{e}: a list needs one value or more")
        named = [k for k in e if k in axes or (several and e[k] is chosen[k])]
        for values in itertools.product(*axes.values()):
            full = chosen | dict(zip(axes, values))
            out.append((";".join(word(k, full[k]) for k in named), full))
    return out


def choose(name, value, tier, task, tasks, point):
    """What a hyper-parameter by tier, task or point is here; others as they are."""
    if not isinstance(value, dict) or "name" in value:
        return value
    of_grid = [k for k in value if "=" in k]
    for key, every in ((tier, TIERS), (task, tasks), (point, of_grid)):
        if key in value and all(k in every for k in value):
            return choose(name, value[key], tier, task, tasks, point)
    none = f"there is none for {tier!r}, {task!r} or {point!r}"
    raise ValueError(f"{name} = {value}: give one for each tier, task or point; {none}")


def word(k, v):
    """A hyper-parameter in a setting, "rule=Median"; of a step its values."""
    if k == "step" and isinstance(v, dict) and len(v) > 1:
        return ";".join(word(j, u) for j, u in v.items() if j != "name")
    return f"{k}={v.get('name', v) if isinstance(v, dict) else v}"


# ---------------------------------------------------------------- the grid of a task
def points(spec):
    """A task's grid -> (setting, task) at each point.

    Entries {grid: [...]} span it; the setting names the axis by `as` or the key, and
    its values as the first entry, or as one is `called`, by the paper's numbers.
    Entries of one name form one axis and advance together."""
    axes = {}
    spans = lambda v: isinstance(v, dict) and "grid" in v

    def collect(v, name):
        if spans(v):
            with located(name):
                check(Grid, v)
            axes.setdefault(v.get("as", name), []).append((v["grid"], v.get("called")))
        return v

    mapped(spec, collect)
    called = {k: next((c for _, c in of if c), of[0][0]) for k, of in axes.items()}
    for axis, entries in axes.items():
        sizes = {len(grid) for grid, _ in entries} | {len(called[axis])}
        refuse_if(len(sizes) > 1, f"axis {axis!r}: give equally many values everywhere")
    for point in itertools.product(*(range(len(names)) for names in called.values())):
        at = dict(zip(called, point))
        words = [f"{axis}={called[axis][i]}" for axis, i in at.items()]
        here = lambda v, k, at=at: v["grid"][at[v.get("as", k)]] if spans(v) else v
        yield ";".join(words), mapped(spec, here)


# ---------------------------------------------------------------- seeds
def added(file, study):
    """{data set: seeds in all} of a study in its paper's seeds.yaml."""
    found = read(file).get(study, {}) if file.exists() else {}
    with located(f"{file}: {study}"):
        return TypeAdapter(dict[str, Few]).validate_python(found, strict=True)


def grown(own, n, at):
    """The study's own seeds, and the next ones from its least on until there are n."""
    pilots = n > len(own) and min(own) >= PILOT
    refuse_if(pilots, f"{at} has pilot seeds, which decide nothing; give it no more")
    fresh = (s for s in itertools.count(min(own)) if s not in own)
    return own + [*itertools.islice(fresh, max(0, n - len(own)))]


# ---------------------------------------------------------------- data
KINDS = {"synthetic": "synthetic", "census": "synthetic"}  # of others: real
KINDS |= {"glyphs": "stand-in", "domains": "stand-in"}


def root(data):
    """The name of the source at the bottom: features are features of other data."""
    name = data.get("name") if isinstance(data, dict) else None
    known(SOURCES, f"source, data = {data!r:.60}:", name)
    return root(data["data"]) if "data" in data else name


def kind_of(source, papers=None):
    """The kind of data; what a paper did not use stands in for its own data."""
    other = papers not in (None, source)
    return "stand-in" if other else KINDS.get(source, "real")
