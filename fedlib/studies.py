"""Studies: params.yaml, with papers/<paper>/studies.yaml beside it, as lists of cells.

    cells("fedga", "synthetic", tier="tiny")[0]        [Cell, ...]

A cell (task, method, setting, seed) is one run: what it is called, and everything that decides its numbers.
"""
from __future__ import annotations

import copy
import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from . import identity, method, tasks
from .methods import METHODS
from .tier import TIERS

RUN = ("rounds", "cohort", "online", "stragglers", "every", "splits", "guests", "own", "microscope", "how", "precision")
STUDY = ("title", "tasks", "methods", "without", "look", "seeds", *RUN, "logs", "source", *TIERS)
TASK = (*tasks.KEYS, "run", "label", *TIERS)


@dataclass(frozen=True)
class Cell:
    """One run: what it is called, and everything that decides its numbers."""
    dataset: str
    label: str                                         # what the data are, in words
    method: str
    setting: str
    seed: int
    data: str                                          # real, synthetic, stand-in
    task: str                                          # description of the task, json
    kwargs: str                                        # hyper-parameters, json
    engine: str                                        # what RUN lists, json
    mine: str = ""                                     # hash of edited sources, where a reader asked for runs of their own

    @property
    def id(self):
        """The name of the run: a hash of its resolved specification and of versions, see fedlib.identity."""
        return identity.run_id(self)


# ---------------------------------------------------------------- files -> tasks and studies
def load(path="params.yaml"):
    """{"tier": ..., paper: {knob: value, "tasks": {...}, "studies": {...}}}, every key checked, every $name replaced.

    The knobs of a paper are its section of `path`; its tasks and studies are those of papers/<paper>/studies.yaml beside `path`,
    or of the section itself where there is no such file. A paper that has neither is left out: its folder was taken away.
    """
    path = Path(path)
    tree = read(path)
    if tree.get("tier") not in TIERS:
        raise ValueError(f"{path}: tier = {tree.get('tier')!r}; give one of {', '.join(TIERS)}")
    sections = {name: v for name, v in tree.items() if isinstance(v, dict)}
    files = {f.parent.name: f for f in sorted(path.parent.glob("papers/*/studies.yaml"))}
    papers = {name: paper_of(name, sections.get(name, {}), path, files.get(name)) for name in sections | files}
    return {k: v for k, v in tree.items() if k not in papers} | {name: p for name, p in papers.items() if p["studies"]}


def paper_of(name, section, path, file=None):
    """One paper's knobs, tasks and studies, from its section of the file `path` and its own file."""
    body = read(file) if file else {k: section[k] for k in ("tasks", "studies") if k in section}
    at = str(file) if file else f"{path}: {name}"
    refuse(body, ("tasks", "studies"), at)
    used = {v[1:] for v in leaves(body) if isinstance(v, str) and v.startswith("$")}
    knobs = {k: v for k, v in section.items() if file or k not in body}
    if body:
        refuse(knobs, sorted(used), f"{path}: {name}")
    for k in sorted(used - set(knobs)):
        raise ValueError(f"{at} uses ${k}, which is not given{method.nearest(k, knobs)}; give {k} in {path}, section {name}")
    body = given(body, knobs)
    tasks_ = body.get("tasks") or {}
    studies = {s: entry for notebook in (body.get("studies") or {}).values() for s, entry in notebook.items()}
    for kind, entries, keys in (("tasks", tasks_, TASK), ("studies", studies, STUDY)):
        for k, entry in entries.items():
            refuse(entry, (*keys, "like") if kind == "tasks" else keys, f"{at}: {kind}.{k}")
            for t in TIERS:
                refuse(entry.get(t) or {}, keys, f"{at}: {kind}.{k}.{t}")
    return knobs | {"tasks": {k: whole(k, tasks_, f"{at}: tasks.{k}") for k in tasks_}, "studies": studies}


def read(path):
    """The dictionary in a YAML file, a copy of one's own."""
    try:
        tree = copy.deepcopy(parsed(path.read_text()))
    except yaml.YAMLError as e:
        raise ValueError(f"{path} is not valid YAML: {e}") from e
    if not isinstance(tree, dict):
        raise ValueError(f"{path} holds {tree!r}; it needs lines `key: value`")
    return tree


@functools.lru_cache(maxsize=16)
def parsed(text):
    """YAML in C where PyYAML has it: ten times as quick, and every study asks twice."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def refuse(entry, keys, at):
    """ValueError unless `entry` is a dictionary with no other than these keys."""
    if not isinstance(entry, dict):
        raise ValueError(f"{at} is {entry!r}; it needs entries (known: {', '.join(keys)})")
    for k in entry:
        if k not in keys:
            raise ValueError(f"{at}: unknown key {k!r}{method.nearest(k, keys)} (known: {', '.join(keys)})")


def leaves(value):
    """All values inside dictionaries and lists that are neither."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [value] if inside is None else [leaf for v in inside for leaf in leaves(v)]


def given(value, knobs):
    """A value with every "$name" in it replaced by the knob of that name."""
    if isinstance(value, dict):
        return {k: given(v, knobs) for k, v in value.items()}
    if isinstance(value, list):
        return [given(v, knobs) for v in value]
    return knobs[value[1:]] if isinstance(value, str) and value.startswith("$") else value


def whole(name, entries, at, trail=()):
    """A task with all that it inherits by `like`."""
    own = dict(entries[name])
    if "like" not in own:
        return own
    other = own.pop("like")
    if other not in entries:
        raise ValueError(f"{at}: like: {other!r}{method.nearest(other, entries)} (there are {', '.join(entries)})")
    if other in (*trail, name):
        raise ValueError(f"{at}: like leads in a circle, {' -> '.join((*trail, name, other))}; write one of them out")
    return merged(whole(other, entries, at, (*trail, name)), own)


def merged(base, change):
    """base with the entries of change. A dictionary changes that of base, unless it has a `name`: another piece replaces the
    whole. A null takes the entry away."""
    out = dict(base)
    for k, v in change.items():
        alike = isinstance(v, dict) and isinstance(base.get(k), dict) and by_tier(v) == by_tier(base[k])
        out[k] = merged(base[k], v) if alike and "name" not in v else v
    return {k: v for k, v in out.items() if v is not None}


def by_tier(value):
    """Whether it is a value for each tier, {tiny: ..., small: ..., paper: ...}."""
    return isinstance(value, dict) and bool(value) and set(value) <= set(TIERS)


def of_tier(value, tier, name):
    """What a value {tiny: ..., small: ..., paper: ...} is at a tier."""
    if tier not in value:
        raise ValueError(f"{name} = {value} has no value for tier {tier}; give one for each of {', '.join(TIERS)}")
    return value[tier]


def tiered(entry, tier):
    """A task or study as its tier has it: entries below the tier's name replace the entry's own, and values by tier are that
    tier's. Hyper-parameters keep theirs, which `settings` reads."""
    base = {k: v for k, v in entry.items() if k not in TIERS} | (entry.get(tier) or {})
    return {k: v if k == "methods" else plain(v, tier, k) for k, v in base.items()}


def plain(value, tier, name):
    """A value with all values by tier inside it chosen."""
    if by_tier(value):
        return plain(of_tier(value, tier, name), tier, name)
    if isinstance(value, dict):
        return {k: plain(v, tier, k) for k, v in value.items()}
    return [plain(v, tier, name) for v in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- a study -> cells
def settings(kwargs, paper, tier="paper"):
    """One method's entry -> [(setting, hyper-parameters)]. Lists span a grid; a list of entries is a list of variants.

    A value "$name" is the paper's knob of that name, a value {small: 2, paper: 5} that of the tier; the latter is no variant and
    not named in the setting, unless it is a list.
    """
    out = []
    for variant in kwargs if isinstance(kwargs, list) else [kwargs]:
        variant = given(variant or {}, paper)
        chosen = {k for k, v in variant.items() if isinstance(v, dict) and "name" not in v}      # {name: ...} is a piece
        variant = {k: of_tier(v, tier, k) if k in chosen else v for k, v in variant.items()}
        axes = [k for k, v in variant.items() if isinstance(v, list)]
        named = [k for k in variant if k in axes or (isinstance(kwargs, list) and k not in chosen)]
        for point in itertools.product(*[variant[k] for k in axes]):
            full = variant | dict(zip(axes, point))
            out.append((";".join(word(k, full[k]) for k in named), full))
    return out


def word(k, v):
    """A hyper-parameter in a setting: "alpha=5", "rule=Median"; a step goes by its own values, "sigma=0.5"."""
    if k == "step" and isinstance(v, dict) and len(v) > 1:
        return ";".join(word(j, u) for j, u in v.items() if j != "name")
    return f"{k}={v['name'] if isinstance(v, dict) else v}"


def cells(paper, name, path="params.yaml", tier=None, **changes):
    """The cells of a study. changes: values that replace the study's own, as a reader would try them."""
    tree = load(path)
    tier = tier or tree["tier"]
    for what, table in ((paper, tree), (name, tree.get(paper, {}).get("studies", {}))):
        if what not in table:
            raise ValueError(f"{path}, with papers/*/studies.yaml beside it, has no {what!r}{method.nearest(what, table)} "
                             f"(there are {', '.join(table)})")
    p = tree[paper]
    study_ = tiered(p["studies"][name], tier) | changes
    refuse(study_, STUDY, f"{paper}.{name}")
    out = []
    for dataset in study_["tasks"]:
        if dataset not in p["tasks"]:
            raise ValueError(f"{path}: {paper}.studies.{name} names the task {dataset!r}{method.nearest(dataset, p['tasks'])}")
        spec = tiered(p["tasks"][dataset], tier)
        label = spec.pop("label", dataset)
        train, run_ = spec.pop("train", {}), {"every": 1} | spec.pop("run", {})
        own = study_["tasks"][dataset] or {} if isinstance(study_["tasks"], dict) else {}
        parts = spec | {"train": train, "run": run_ | {k: study_[k] for k in RUN if k in study_}}  # a study overrules its tasks
        for k, v in own.items():
            parts[k] = parts[k] | v if isinstance(parts.get(k), dict) else v
        kind = kind_of(root(spec["data"]), root(tiered(p["tasks"][dataset], "paper")["data"]))
        for where, tspec in points(parts):
            train, run_ = tspec.pop("train"), tspec.pop("run")
            for m, kwargs in study_["methods"].items():
                if m not in METHODS:
                    raise ValueError(f"{path}: {paper}.studies.{name} names the method {m!r}{method.nearest(m, METHODS)}")
                if dataset in study_.get("without", {}).get(m, ()):
                    continue
                how_often = run_["every"] if isinstance(run_["every"], int) else run_["every"].get(m, 1)
                for how, kw in settings(kwargs, p, tier):
                    for seed in range(study_["seeds"]):
                        out.append(Cell(dataset, label, m, ";".join(s for s in (where, how) if s), seed, kind,
                                        json.dumps(tspec), json.dumps(train | kw), json.dumps(run_ | {"every": how_often})))
    return out, study_, tier


def points(spec):
    """A task's grid -> (setting, task) at each point. Entries {grid: [...]} span it; `as` names the axis in the setting, else
    the key does. Entries of one name form one axis and advance together; the first of them is the value in the setting, unless
    one is `called` otherwise: of forty clients, all are called 100, the paper's number for all."""
    axes, called = {}, {}
    for part, entry in spec.items():
        for k, v in entry.items() if isinstance(entry, dict) and "grid" not in entry else ((None, entry),):
            if isinstance(v, dict) and "grid" in v:
                refuse(v, ("grid", "as", "called"), ".".join(filter(None, (part, k))))
                name = v.get("as", k or part)
                axes.setdefault(name, []).append((part, k, v["grid"]))
                if "called" in v or name not in called:
                    called[name] = v.get("called", v["grid"])
    for name, axis in axes.items():
        if len({len(called[name]), *(len(grid) for *_, grid in axis)}) > 1:
            raise ValueError(f"the axis {name!r} has lists of {' and '.join(str(len(g)) for *_, g in axis)} values: "
                             + ", ".join(".".join(filter(None, a[:2])) for a in axis) + " advance together, give as many of each")
    for point in itertools.product(*[range(len(axis[0][2])) for axis in axes.values()]):
        new = {part: dict(entry) if isinstance(entry, dict) else entry for part, entry in spec.items()}
        for i, (part, k, grid) in [(i, a) for i, axis in zip(point, axes.values()) for a in axis]:
            if k is None:
                new[part] = grid[i]
            else:
                new[part][k] = grid[i]
        yield ";".join(f"{name}={called[name][i]}" for i, name in zip(point, axes)), new


def root(data):
    """The name of the source at the bottom of a description: features are features of something."""
    return root(data["data"]) if "data" in data else data["name"]


def kind_of(source, papers=None):
    """The kind of data a source gives; one that a paper did not use stands in for it."""
    kind = {"synthetic": "synthetic", "census": "synthetic", "glyphs": "stand-in", "domains": "stand-in"}.get(source, "real")
    return "stand-in" if papers not in (None, source) else kind
