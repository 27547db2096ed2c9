"""Studies: the parameters of a study as a list of cells.

    cells("fedga", "synthetic", tier="tiny")[0]        [Cell, ...]

A cell (task, method, setting, seed) is one run: what it is called, and everything that
decides its numbers. The files behind it: fedlib.study.parameters.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass

from ..core import errors
from ..data import tasks as tasks_
from ..methods import METHODS
from . import TIERS, checks, identity, schema
from . import seeds as seeds_
from .parameters import given, load, of_tier, place, plain, tiered
from .schema import RUN, by_tier, located


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
    engine: str  # what RUN lists, json
    mine: str = ""  # hash of edited sources, for a reader's own runs

    @property
    def id(self):
        """The name of the run: a hash of its resolved specification and of versions,
        see fedlib.study.identity.
        """
        return identity.run_id(self)


# ---------------------------------------------------------------- hyper-parameters
def settings(kwargs, paper, tier="paper", task="", tasks=(), at="", point=""):
    """One method's entry -> [(setting, hyper-parameters)].

    Lists span a grid; a list of entries is variants. A value "$name" is the paper's
    knob of that name, a value {small: 2, paper: 5} that of the tier, a value
    {pacs: 0.05, officehome: 0.1} that of the task, one of the paper's `tasks`, and a
    value {guest=photo: 0.05, guest=sketch: 0.1} that of the `point` of the task's grid;
    the latter three are no variants and not named in the setting, unless they are
    lists.
    """
    out, several = [], isinstance(kwargs, list)
    for entry in kwargs if several else [kwargs]:
        entry = given(entry or {}, paper)
        where = tier, task, point, tasks, at
        chosen = {k: choose(k, v, *where) for k, v in entry.items()}
        fixed = {k for k in entry if entry[k] is not chosen[k]}
        axes = [k for k, v in chosen.items() if isinstance(v, list)]
        named = [k for k in entry if k in axes or (several and k not in fixed)]
        for values in itertools.product(*[chosen[k] for k in axes]):
            full = chosen | dict(zip(axes, values))
            out.append((";".join(word(k, full[k]) for k in named), full))
    return out


def choose(name, value, tier, task, point, tasks, at):
    """What a hyper-parameter by tier, task or point is here; others as they are."""
    if not isinstance(value, dict) or "name" in value:
        return value
    at = f"{at}: {name} = {value}".removeprefix(": ")
    if value and all("=" in str(k) for k in value):
        if point not in value:
            here = f"{point!r} of {task}" if point else f"{task}, which has no grid"
            raise ValueError(f"{at} has no value for {here}; give one")
        return choose(name, value[point], tier, task, "", tasks, at)
    odd = [k for k in value if k not in TIERS and k not in tasks]
    if odd:
        raise ValueError(
            f"{at}: {odd[0]!r} is neither a tier ({', '.join(TIERS)}) nor a task of "
            f"the paper ({', '.join(tasks)}){errors.nearest(str(odd[0]), tasks)}"
        )
    if by_tier(value) or not value:
        inner = of_tier(value, tier, at.removesuffix(f" = {value}"))
    elif any(k in TIERS for k in value):
        raise ValueError(
            f"{at} mixes tiers with tasks; give values by tier, and by task below one"
        )
    elif task not in value:
        raise ValueError(f"{at} has no value for the task {task!r}; give one")
    else:
        inner = value[task]
    return choose(name, inner, tier, task, point, tasks, at)


def word(k, v):
    """A hyper-parameter in a setting: "alpha=5", "rule=Median"; a step goes by its
    values, "sigma=0.5".
    """
    if k == "step" and isinstance(v, dict) and len(v) > 1:
        return ";".join(word(j, u) for j, u in v.items() if j != "name")
    return f"{k}={v.get('name', v) if isinstance(v, dict) else v}"


# ---------------------------------------------------------------- cells
def cells(paper, name, path="params.yaml", tier=None, **changes):
    """(the cells of a study, the study at its tier, the tier).

    changes: values that replace the study's own, as a reader would try them.
    """
    tree = load(path)
    tier = tree["tier"] if tier is None else tier
    if tier not in TIERS:
        raise ValueError(f"tier = {tier!r}; give one of {', '.join(TIERS)}")
    at = f"{path}, with papers/*/studies.yaml beside it,"
    papers = {k: v for k, v in tree.items() if isinstance(v, dict)}
    p = found(paper, papers, f"{at} has no")
    entry = found(name, p["studies"], f"{at} has no")
    file = place(path, paper)
    at = f"{file}: studies.{name}"
    place_ = lambda _, keys: schema.dotted(file, ["studies", name, *keys])
    schema.check("study", changes, at, [*p["tasks"]], place_)
    study = located(at, tiered, entry, tier) | changes
    more = {}
    if tier == "small" and "seeds" not in changes:
        more = seeds_.added(path, paper, datasets(p)).get(name, {})
    out = planned(p, study, tier, file, at, more)
    for t in TIERS:  # a mistake is found whichever tier is asked for
        if t != tier:
            hidden = located(at, tiered, entry, t)
            planned(p, hidden, t, file, f"{at}, tier {t}", seeds=1)
    return out, study, tier


def planned(paper, study, tier, file, at, more=(), seeds=None):
    """The cells of a study at its tier.

    file: where the tasks stand; at: where the study does; more: {data set: seeds in
    all}; seeds: of so many seeds, for a look at what there is.
    """
    for k in ("tasks", "methods", "seeds"):
        if k not in study:
            raise ValueError(f"{at} has no {k}; give it some")
    out, every = [], [*paper["tasks"]]
    own_seeds = seeds_.seeds_of(study["seeds"], at)[:seeds]
    for dataset in study["tasks"]:
        task = found(dataset, paper["tasks"], f"{at} names the task")
        its = f"{file}: tasks.{dataset}"
        own, papers = (located(its, tiered, task, t) for t in (tier, "paper"))
        what = dataset, own.get("label", dataset)
        kind = kind_of(
            *(root(t.get("data"), f"{at}: {dataset}") for t in (own, papers))
        )
        drawn = own_seeds
        if dataset in more:
            drawn = seeds_.grown(own_seeds, more[dataset], at)
        grid = points(parts(own, study, dataset))
        for where, spec in located(f"{at}: {dataset}", list, grid):
            tasks = {s: seeds_.drawn(spec, s, f"{at}: {dataset}") for s in drawn}
            here = dataset, where
            for method, how, kw in methods_on(here, study, paper, tier, at, every):
                setting = ";".join(filter(None, (where, how)))
                out += [
                    Cell(*what, method, setting, seed, kind, *as_text(t, kw))
                    for seed, t in tasks.items()
                ]
    checks.check_cells(out, at)
    return out


def datasets(paper):
    """{study: its data sets at tier small} of a paper's tree; none where it names none,
    which is said once that study is planned.
    """
    own = lambda s: (s.get("small") or {}).get("tasks", s.get("tasks", []))
    return {k: [*plain(own(s), "small", k)] for k, s in paper["studies"].items()}


def methods_on(here, study, paper, tier, at, tasks=()):
    """(method, setting, hyper-parameters) of all that run here: (data set, point of its
    grid).
    """
    dataset, point = here
    for method, entry in study["methods"].items():
        found(method, METHODS, f"{at} names the method")
        if dataset not in study.get("without", {}).get(method, ()):
            where = dataset, tasks, f"{at}.methods.{method}", point
            for setting, kwargs in settings(entry, paper, tier, *where):
                yield method, setting, kwargs


def found(name, table, message):
    """table[name], or a ValueError: the message, the name, and what there is."""
    if name not in table:
        near = errors.nearest(name, table)
        raise ValueError(f"{message} {name!r}{near} (there are {', '.join(table)})")
    return table[name]


def parts(task, study, dataset):
    """A task at its tier with "train" and "run" at the end, changed by what the study
    says of the run, and then of this task alone.
    """
    out = {k: v for k, v in task.items() if k not in ("label", "train", "run")}
    out["train"] = task.get("train", {})
    told = {k: study[k] for k in RUN if k in study}
    out["run"] = {"every": 1} | task.get("run", {}) | told
    own = study["tasks"][dataset] or {} if isinstance(study["tasks"], dict) else {}
    for k, v in own.items():
        out[k] = out[k] | v if isinstance(out.get(k), dict) else v
    return out


def as_text(spec, kwargs):
    """(task, hyper-parameters, engine) of a cell as json, of a point of `parts`."""
    task = {k: v for k, v in spec.items() if k not in ("train", "run")}
    return tuple(map(json.dumps, (task, spec["train"] | kwargs, spec["run"])))


# ---------------------------------------------------------------- the grid of a task
def points(spec):
    """A task's grid -> (setting, task) at each point.

    Entries {grid: [...]} span it; `as` names the axis in the setting, else the key
    does. Entries of one name form one axis and advance together; the first of them is
    the value in the setting, unless one is `called` otherwise: of forty clients, all
    are called 100, the paper's number for all.
    """
    axes, called = axes_of(spec)
    check_lengths(axes, called)
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
                name = v.get("as", key or part)
                axes.setdefault(name, []).append((part, key, v["grid"]))
                if "called" in v or name not in called:
                    called[name] = v.get("called", v["grid"])
    return axes, called


def dotted(part, key):
    """Where an entry stands in a task: "run.rounds", "batch"."""
    return part if key is None else f"{part}.{key}"


def check_lengths(axes, called):
    """ValueError where the entries of an axis differ in length."""
    for name, axis in axes.items():
        if len({len(called[name]), *(len(grid) for *_, grid in axis)}) > 1:
            lengths = " and ".join(str(len(grid)) for *_, grid in axis)
            keys = ", ".join(dotted(part, key) for part, key, _ in axis)
            raise ValueError(
                f"the axis {name!r} has lists of {lengths} values: {keys} advance "
                "together, give as many of each"
            )


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
    tasks_.check_value("data", data, at)
    return root(data["data"], at) if "data" in data else data["name"]


def kind_of(source, papers=None):
    """The kind of data a source gives; what a paper did not use stands in for its own
    data.
    """
    return "stand-in" if papers not in (None, source) else MADE.get(source, "real")
