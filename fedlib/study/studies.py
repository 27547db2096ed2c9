"""Studies: the parameters of a study as a list of cells.

    cells("fedga", "synthetic", tier="tiny")[0]        [Cell, ...]

A cell (task, method, setting, seed) is one run: what it is called, and everything that
decides its numbers. The files behind it: fedlib.study.spec.
"""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass

from ..data import tasks as tasks_
from ..methods import METHODS
from ..methods.make import make
from . import TIERS, identity
from . import seeds as seeds_
from .spec import (
    Grid,
    Run,
    Sections,
    Study,
    check,
    check_task,
    file_of,
    found,
    load,
    located,
    plain,
    tiered,
)


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
    engine: str  # arguments of the engine, those of spec.Run, json
    mine: str = ""  # hash of edited sources, for a reader's own runs

    @property
    def id(self):
        """The name of the run: a hash of its resolved specification and of versions,
        see fedlib.study.identity.
        """
        return identity.run_id(self)


# ---------------------------------------------------------------- cells
def cells(paper, name, path="params.yaml", tier=None, **changes):
    """(the cells of a study, the study at its tier, the tier).

    changes: values that replace the study's own, as a reader would try them. A mistake
    is found whichever tier is asked for: a ValueError that names the place.
    """
    tree = load(path)
    tier = tree["tier"] if tier is None else tier
    found(tier, dict.fromkeys(TIERS), "no tier")
    at = f"{path}, with papers/*/studies.yaml beside it, has no"
    book = found(paper, {k: v for k, v in tree.items() if k != "tier"}, at)
    entry = found(name, book["studies"], at)
    more, planned_at, specs = {}, {}, {}
    if tier == "small" and "seeds" not in changes:
        more = seeds_.added(path, paper, datasets(book)).get(name, {})
    for t in TIERS:
        asked = t == tier
        with located(f"{file_of(path, paper)}: studies.{name}, tier {t}"):
            specs[t] = tiered(entry, t) | (changes if asked else {})
            check(Study, specs[t])
            grown, few = (more, None) if asked else ({}, 1)
            planned_at[t] = planned(book, specs[t], t, grown, few)
    return planned_at[tier], specs[tier], tier


def planned(book, study, tier, more, few=None):
    """The cells of a study at its tier; book: the tasks of its paper, more: {data set:
    seeds in all}, few: of so many seeds, for a look at what there is.
    """
    out = []
    for dataset in study["tasks"]:
        seeds = seeds_.seeds_of(study["seeds"], "study")[:few]
        if dataset in more:
            seeds = seeds_.grown(seeds, more[dataset], "study")
        with located(f"tasks.{dataset}"):
            task = found(dataset, book["tasks"], "no task")
            out += of_task(dataset, task, study, tier, seeds, book["tasks"])
    if not out:
        raise ValueError("no runs: give tasks, methods and seeds")
    if len(set(out)) < len(out):
        c = next(c for c in out if out.count(c) > 1)
        what = f"tasks.{c.dataset}: methods.{c.method} has the setting {c.setting!r}"
        raise ValueError(f"{what} twice; give every variant, and every task, once")
    return out


def of_task(dataset, task, study, tier, seeds, tasks):
    """[Cell] of one task of a study."""
    own, papers = tiered(task, tier), tiered(task, "paper")
    what = dataset, own.get("label", dataset)
    kind = kind_of(root(own.get("data")), root(papers.get("data")))
    without, out = study.get("without", {}), []
    for point, spec in points(parts(own, study, dataset)):
        drawn = {s: seeds_.drawn(spec, s, "task") for s in seeds}
        check_task(drawn[seeds[0]])
        for method, entry in study["methods"].items():
            if dataset in without.get(method, ()):
                continue
            with located(f"methods.{method}"):
                for how, kwargs in settings(entry, tier, dataset, tasks, point):
                    makes(method, METHODS[method], as_text(spec, kwargs)[1])
                    setting = ";".join(filter(None, (point, how)))
                    for seed, t in drawn.items():
                        texts = as_text(t, kwargs)
                        out.append(Cell(*what, method, setting, seed, kind, *texts))
    return out


@functools.lru_cache(maxsize=4096)
def makes(name, cls, kwargs):
    """ValueError unless a method, now of class cls, takes these values (json)."""
    try:
        make(name, None, **json.loads(kwargs))
    except TypeError as e:  # an argument of make itself
        raise ValueError(e) from e


def datasets(book):
    """{study: its data sets at tier small} of a paper."""
    own = lambda s: (s.get("small") or {}).get("tasks", s.get("tasks", []))
    return {k: [*plain(own(s), "small", k)] for k, s in book["studies"].items()}


def parts(task, study, dataset):
    """A task at its tier with "train" and "run" at the end, changed by what the study
    says of the run, and then of this task alone.
    """
    last = {k: task.get(k, {}) for k in Sections.model_fields}
    check(Sections, last)
    out = {k: v for k, v in task.items() if k not in ("label", *last)} | last
    out["run"] = {"every": 1} | last["run"]
    out["run"] |= {k: study[k] for k in Run.model_fields if k in study}
    own = study["tasks"][dataset] or {} if isinstance(study["tasks"], dict) else {}
    for k, v in own.items():
        inside = isinstance(out.get(k), dict) and isinstance(v, dict)
        out[k] = out[k] | v if inside else v
    return out


def as_text(spec, kwargs):
    """(task, hyper-parameters, engine) of a cell as json, of a point of `parts`."""
    task = {k: v for k, v in spec.items() if k not in ("train", "run")}
    return tuple(map(json.dumps, (task, spec["train"] | kwargs, spec["run"])))


# ---------------------------------------------------------------- hyper-parameters
def settings(entry, tier="paper", task="", tasks=(), point=""):
    """One method's entry -> [(setting, hyper-parameters)].

    Lists span a grid; a list of entries is variants. A value {small: 2, paper: 5} is
    that of the tier, {pacs: 0.05, officehome: 0.1} that of the task, one of the paper's
    `tasks`, and {guest=photo: 0.05, guest=sketch: 0.1} that of the `point` of the
    task's grid; these are no variants and not named in the setting, unless they are
    lists.
    """
    out, several = [], isinstance(entry, list)
    for e in entry if several else [entry]:
        e = e or {}
        chosen = {k: choose(k, v, tier, task, tasks, point) for k, v in e.items()}
        axes = {k: v for k, v in chosen.items() if isinstance(v, list)}
        if [] in axes.values():
            raise ValueError(f"{e}: give one value or more where there is a list")
        named = [k for k in e if k in axes or (several and e[k] is chosen[k])]
        for values in itertools.product(*axes.values()):
            full = chosen | dict(zip(axes, values))
            out.append((";".join(word(k, full[k]) for k in named), full))
    return out


def choose(name, value, tier, task, tasks, point):
    """What a hyper-parameter by tier, task or point is here; others as they are."""
    if not isinstance(value, dict) or "name" in value:
        return value
    kinds = (tier, TIERS), (task, tasks), (point, [k for k in value if "=" in k])
    for key, known in kinds:
        if key in value and all(k in known for k in value):
            return choose(name, value[key], tier, task, tasks, point)
    here = f"{tier!r}, {task!r}" + f" or {point!r}" * bool(point)
    raise ValueError(
        f"{name} = {value} has no value for {here}; give one for each of the tiers "
        f"({', '.join(TIERS)}), of the tasks, or of the points of the task's grid"
    )


def word(k, v):
    """A hyper-parameter in a setting: "alpha=5", "rule=Median"; a step goes by its
    values, "sigma=0.5".
    """
    if k == "step" and isinstance(v, dict) and len(v) > 1:
        return ";".join(word(j, u) for j, u in v.items() if j != "name")
    return f"{k}={v.get('name', v) if isinstance(v, dict) else v}"


# ---------------------------------------------------------------- the grid of a task
def points(spec):
    """A task's grid -> (setting, task) at each point.

    Entries {grid: [...]} span it; `as` names the axis in the setting, else the key
    does. Entries of one name form one axis and advance together; the first of them is
    the value in the setting, unless one is `called` otherwise: of forty clients, all
    are called 100, the paper's number for all.
    """
    axes, called = axes_of(spec)
    lengths = [len(axis[0][2]) for axis in axes.values()]
    for point in itertools.product(*map(range, lengths)):
        new = {k: dict(v) if isinstance(v, dict) else v for k, v in spec.items()}
        for i, axis in zip(point, axes.values()):
            for part, key, grid in axis:
                if key is None:
                    new[part] = grid[i]
                else:
                    new[part][key] = grid[i]
        setting = [f"{name}={called[name][i]}" for i, name in zip(point, axes)]
        yield ";".join(setting), new


def axes_of(spec):
    """({axis: [(part, key or None, values)]}, {axis: values in the setting})."""
    axes, called = {}, {}
    for part, entry in spec.items():
        inside = isinstance(entry, dict) and "grid" not in entry
        for key, v in entry.items() if inside else ((None, entry),):
            if isinstance(v, dict) and "grid" in v:
                with located(part if key is None else f"{part}.{key}"):
                    check(Grid, v)
                    name, names = v.get("as", key or part), v.get("called", v["grid"])
                    axes.setdefault(name, []).append((part, key, v["grid"]))
                    if "called" in v or name not in called:
                        called[name] = names
                    if {len(v["grid"]), len(names)} != {len(axes[name][0][2])}:
                        raise ValueError(f"{v}: give as many values for axis {name!r}")
    return axes, called


# ---------------------------------------------------------------- kinds of data
MADE = {
    "synthetic": "synthetic",
    "census": "synthetic",
    "glyphs": "stand-in",
    "domains": "stand-in",
}  # sources that draw their data


def root(data, at="task"):
    """The name of the source at the bottom of a description: features are features of
    something.
    """
    name = data.get("name") if isinstance(data, dict) else None
    tasks_.known(tasks_.SOURCES, f"source, {at}: data = {data!r:.60}:", name)
    return root(data["data"], at) if "data" in data else name


def kind_of(source, papers=None):
    """The kind of data a source gives; what a paper did not use stands in for its own
    data.
    """
    return "stand-in" if papers not in (None, source) else MADE.get(source, "real")
