"""Studies: params.yaml, with papers/<paper>/studies.yaml beside it, as lists of cells.

    cells("fedga", "synthetic", tier="tiny")[0]        [Cell, ...]

A cell (task, method, setting, seed) is one run: what it is called, and everything that decides its numbers.
"""
from __future__ import annotations

import copy
import functools
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

from . import identity, method, tasks
from .methods import METHODS
from .tier import TIERS

RUN = ("rounds", "cohort", "online", "stragglers", "every", "splits", "guests", "own", "microscope", "how", "precision")
STUDY = ("title", "tasks", "methods", "without", "look", "seeds", *RUN, "source", *TIERS)
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


def load(path="params.yaml"):
    """The parameters, with every key checked."""
    try:
        tree_ = copy.deepcopy(parsed(Path(path).read_text()))
    except yaml.YAMLError as e:
        raise ValueError(f"{path} is not valid YAML: {e}") from e
    if tree_.get("tier") not in TIERS:
        raise ValueError(f"{path}: tier = {tree_.get('tier')!r}; give one of {', '.join(TIERS)}")
    for paper, p in tree_.items():
        if isinstance(p, dict):
            used = set(re.findall(r"\$(\w+)", json.dumps(p.get("studies", {}))))
            refuse(p, ("tasks", "studies", *sorted(used)), f"{path}: {paper}")
            for k in used - set(p):
                raise ValueError(f"{path}: a study of {paper} uses ${k}, which is not given{method.nearest(k, p)}")
            p["studies"] = {name: entry for notebook in p.get("studies", {}).values() for name, entry in notebook.items()}
            for kind, keys in (("tasks", TASK), ("studies", STUDY)):
                for name, entry in p.get(kind, {}).items():
                    at = f"{path}: {paper}.{kind}.{name}"
                    refuse(entry, keys, at)
                    for t in TIERS:
                        refuse(entry.get(t) or {}, keys, f"{at}.{t}")
    return tree_


@functools.lru_cache(maxsize=4)
def parsed(text):
    """YAML in C where PyYAML has it: ten times as quick, and every study asks twice."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def refuse(entry, keys, at):
    for k in entry:
        if k not in keys:
            raise ValueError(f"{at}: unknown key {k!r}{method.nearest(k, keys)} (known: {', '.join(keys)})")


def tiered(entry, tier):
    """An entry with the changes of its tier applied, one level deep."""
    base = {k: v for k, v in entry.items() if k not in TIERS}
    for k, v in (entry.get(tier) or {}).items():
        base[k] = v
    return base


def settings(kwargs, paper, tier="paper"):
    """One method's entry -> [(setting, hyper-parameters)]. Lists span a grid; a list of entries is a list of variants.

    A value "$name" is the paper's constant of that name, a value {small: 2, paper: 5} that of the tier; the latter is no variant
    and not named in the setting.
    """
    out = []
    for variant in kwargs if isinstance(kwargs, list) else [kwargs]:
        variant = {k: paper[v[1:]] if isinstance(v, str) and v.startswith("$") else v for k, v in (variant or {}).items()}
        silent = {k for k, v in variant.items() if isinstance(v, dict) and "name" not in v}      # {name: ...} is a piece
        for k in silent:
            if tier not in variant[k]:
                raise ValueError(f"{k} = {variant[k]} has no value for tier {tier}; give one for each of {', '.join(TIERS)}")
        variant = {k: v[tier] if k in silent else v for k, v in variant.items()}
        axes = [k for k, v in variant.items() if isinstance(v, list)]
        named = [k for k in (variant if isinstance(kwargs, list) else axes) if k not in silent]
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
    tree_ = load(path)
    tier = tier or tree_["tier"]
    for what, table in ((paper, tree_), (name, tree_.get(paper, {}).get("studies", {}))):
        if what not in table:
            raise ValueError(f"{path} has no {what!r}{method.nearest(what, table)} (it has {', '.join(table)})")
    p = tree_[paper]
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
