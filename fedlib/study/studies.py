"""Studies: params.yaml, with papers/<paper>/studies.yaml beside it, as lists of cells.

    cells("fedga", "synthetic", tier="tiny")[0]        [Cell, ...]

A cell (task, method, setting, seed) is one run: what it is called, and everything that
decides its numbers.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..core import errors
from ..data import tasks
from ..methods import METHODS
from . import TIERS, identity

RUN = (
    "rounds",
    "cohort",
    "online",
    "stragglers",
    "every",
    "splits",
    "guests",
    "own",
    "microscope",
    "how",
    "precision",
)
STUDY = (
    "title",
    "tasks",
    "methods",
    "without",
    "look",
    "seeds",
    *RUN,
    "logs",
    "source",
    *TIERS,
)
TASK = (*tasks.KEYS, "run", "label", *TIERS)


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


# ----------------------------------------------------------- files -> tasks and studies
def load(path="params.yaml"):
    """{"tier": ..., paper: {knob: value, "tasks": {...}, "studies": {...}}}, checked,
    every $name replaced.

    The knobs of a paper are its section of `path`; its tasks and studies are those of
    papers/<paper>/studies.yaml beside `path`, or of the section itself where there is
    no such file. A paper that has neither is left out: its folder was taken away.
    """
    path = Path(path)
    tree = read(path)
    if tree.get("tier") not in TIERS:
        raise ValueError(
            f"{path}: tier = {tree.get('tier')!r}; give one of {', '.join(TIERS)}"
        )
    sections = {name: v for name, v in tree.items() if isinstance(v, dict)}
    files = {
        f.parent.name: f for f in sorted(path.parent.glob("papers/*/studies.yaml"))
    }
    papers = {
        k: paper_of(k, sections.get(k, {}), path, files.get(k))
        for k in sections | files
    }
    rest = {k: v for k, v in tree.items() if k not in papers}
    refuse(rest, ("tier", "seed"), str(path))
    return rest | {k: p for k, p in papers.items() if p["studies"]}


def paper_of(name, section, path, file=None):
    """One paper's knobs, tasks and studies,
    from its section of the file `path` and its own file.
    """
    body = (
        read(file)
        if file
        else {k: section[k] for k in ("tasks", "studies") if k in section}
    )
    at = str(file) if file else f"{path}: {name}"
    refuse(body, ("tasks", "studies"), at)
    tasks, groups = body.get("tasks") or {}, body.get("studies") or {}
    check(tasks, TASK, ("like",), f"{at}: tasks")
    for notebook, group in groups.items():
        check(group, STUDY, (), f"{at}: studies.{notebook}")
    knobs = {k: v for k, v in section.items() if file or k not in body}
    used = [v[1:] for v in leaves(body) if isinstance(v, str) and v.startswith("$")]
    if body:
        check_knobs(knobs, used, name, path, at)
    tasks = given(tasks, knobs)
    return knobs | {
        "tasks": {k: whole(k, tasks, f"{at}: tasks.{k}") for k in tasks},
        "studies": one_by_one(given(groups, knobs), at),
    }


def check_knobs(knobs, used, name, path, at):
    """Refuse knobs of the file `path` that nothing in `at` uses,
    and uses of what is not there.
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


def check(entries, keys, more, at):
    """Refuse unknown keys of {name: entry}, also below its tiers.

    more: keys that only an entry may have.
    """
    if not isinstance(entries, dict):
        raise ValueError(f"{at} is {entries!r}; it needs entries `name: {{...}}`")
    for k, entry in entries.items():
        refuse(entry, (*keys, *more), f"{at}.{k}")
        for t in TIERS:
            refuse(entry.get(t) or {}, keys, f"{at}.{k}.{t}")


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
        raise ValueError(
            f"{at} is {entry!r}; it needs entries (known: {', '.join(keys)})"
        )
    for k in entry:
        if k not in keys:
            raise ValueError(
                f"{at}: unknown key {k!r}{errors.nearest(k, keys)} (known: "
                f"{', '.join(keys)})"
            )


def leaves(value):
    """All values inside dictionaries and lists that are neither."""
    inside = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list)
        else None
    )
    return [value] if inside is None else [leaf for v in inside for leaf in leaves(v)]


def given(value, knobs):
    """A value with every "$name" in it replaced by the knob of that name."""
    if isinstance(value, dict):
        return {k: given(v, knobs) for k, v in value.items()}
    if isinstance(value, list):
        return [given(v, knobs) for v in value]
    return (
        knobs[value[1:]] if isinstance(value, str) and value.startswith("$") else value
    )


def whole(name, entries, at, trail=()):
    """A task with all that it inherits by `like`."""
    own = dict(entries[name])
    if "like" not in own:
        return own
    other = own.pop("like")
    if other not in entries:
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
        alike = (
            isinstance(v, dict)
            and isinstance(base.get(k), dict)
            and by_tier(v) == by_tier(base[k])
        )
        out[k] = merged(base[k], v) if alike and "name" not in v else v
        if v is None:
            del out[k]
    return out


def by_tier(value):
    """Whether it is a value for each tier, {tiny: ..., small: ..., paper: ...}."""
    return isinstance(value, dict) and bool(value) and set(value) <= set(TIERS)


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


# ---------------------------------------------------------------- a study -> cells
def settings(kwargs, paper, tier="paper"):
    """One method's entry -> [(setting, hyper-parameters)].

    Lists span a grid; a list of entries is variants.

    A value "$name" is the paper's knob of that name, a value {small: 2, paper: 5}
    that of the tier; the latter is no variant and not named in the setting, unless it
    is a list.
    """
    out = []
    for variant in kwargs if isinstance(kwargs, list) else [kwargs]:
        variant = given(variant or {}, paper)
        # else a piece
        chosen = {
            k for k, v in variant.items() if isinstance(v, dict) and "name" not in v
        }
        variant = {
            k: of_tier(v, tier, k) if k in chosen else v for k, v in variant.items()
        }
        axes = [k for k, v in variant.items() if isinstance(v, list)]
        named = [
            k
            for k in variant
            if k in axes or (isinstance(kwargs, list) and k not in chosen)
        ]
        for point in itertools.product(*[variant[k] for k in axes]):
            full = variant | dict(zip(axes, point))
            out.append((";".join(word(k, full[k]) for k in named), full))
    return out


def word(k, v):
    """A hyper-parameter in a setting: "alpha=5", "rule=Median";
    a step goes by its values, "sigma=0.5".
    """
    if k == "step" and isinstance(v, dict) and len(v) > 1:
        return ";".join(word(j, u) for j, u in v.items() if j != "name")
    return f"{k}={v['name'] if isinstance(v, dict) else v}"


def cells(paper, name, path="params.yaml", tier=None, **changes):
    """(the cells of a study, the study at its tier, the tier).

    changes: values that replace the study's own, as a reader would try them.
    """
    tree = load(path)
    tier = tier or tree["tier"]
    at = f"{path}, with papers/*/studies.yaml beside it,"
    p = found(paper, tree, f"{at} has no")
    study = tiered(found(name, p["studies"], f"{at} has no"), tier) | changes
    at = f"{place(path, paper)}: studies.{name}"
    refuse(study, STUDY, at)
    out = []
    for dataset in study["tasks"]:
        entry = found(dataset, p["tasks"], f"{at} names the task")
        own, papers = tiered(entry, tier), tiered(entry, "paper")
        what = dataset, own.get("label", dataset)
        kind = kind_of(root(own["data"]), root(papers["data"]))
        for where, spec in points(parts(own, study, dataset)):
            for m, kwargs in study["methods"].items():
                found(m, METHODS, f"{at} names the method")
                if dataset in study.get("without", {}).get(m, ()):
                    continue
                for how, kw in settings(kwargs, p, tier):
                    setting = ";".join(filter(None, (where, how)))
                    texts = as_text(spec, m, kw)
                    out += [
                        Cell(*what, m, setting, seed, kind, *texts)
                        for seed in range(study["seeds"])
                    ]
    return out, study, tier


def found(name, table, message):
    """table[name], or a ValueError that begins with the message and
    says what there is.
    """
    if name not in table:
        raise ValueError(
            f"{message} {name!r}{errors.nearest(name, table)} (there are "
            f"{', '.join(table)})"
        )
    return table[name]


def place(path, paper):
    """Where the studies of a paper stand, for a message."""
    file = Path(path).parent / "papers" / paper / "studies.yaml"
    return str(file) if file.is_file() else f"{path}: {paper}"


def parts(task, study, dataset):
    """A task at its tier with "train" and "run" at the end, changed by what the study
    says of the run, and then of this task alone."""
    out = {k: v for k, v in task.items() if k not in ("label", "train", "run")}
    out["train"] = task.get("train", {})
    out["run"] = (
        {"every": 1} | task.get("run", {}) | {k: study[k] for k in RUN if k in study}
    )
    own = study["tasks"][dataset] or {} if isinstance(study["tasks"], dict) else {}
    for k, v in own.items():
        out[k] = out[k] | v if isinstance(out.get(k), dict) else v
    return out


def as_text(spec, name, kwargs):
    """(task, hyper-parameters, engine) of a cell as json.

    spec: a point of `parts`; name: of the method.
    """
    task = {k: v for k, v in spec.items() if k not in ("train", "run")}
    every = spec["run"]["every"]
    run = spec["run"] | {
        "every": every if isinstance(every, int) else every.get(name, 1)
    }
    return json.dumps(task), json.dumps(spec["train"] | kwargs), json.dumps(run)


def points(spec):
    """A task's grid -> (setting, task) at each point.

    Entries {grid: [...]} span it; `as` names the axis in the setting, else the key
    does. Entries of one name form one axis and advance together; the first of them is
    the value in the setting, unless one is `called` otherwise: of forty clients, all
    are called 100, the paper's number for all.
    """
    axes, called = {}, {}
    for part, entry in spec.items():
        for k, v in (
            entry.items()
            if isinstance(entry, dict) and "grid" not in entry
            else ((None, entry),)
        ):
            if isinstance(v, dict) and "grid" in v:
                refuse(v, ("grid", "as", "called"), ".".join(filter(None, (part, k))))
                name = v.get("as", k or part)
                axes.setdefault(name, []).append((part, k, v["grid"]))
                if "called" in v or name not in called:
                    called[name] = v.get("called", v["grid"])
    for name, axis in axes.items():
        if len({len(called[name]), *(len(grid) for *_, grid in axis)}) > 1:
            lengths = " and ".join(str(len(grid)) for *_, grid in axis)
            keys = ", ".join(".".join(filter(None, a[:2])) for a in axis)
            raise ValueError(
                f"the axis {name!r} has lists of {lengths} values: {keys} advance "
                "together, give as many of each"
            )
    for point in itertools.product(*[range(len(axis[0][2])) for axis in axes.values()]):
        new = {
            part: dict(entry) if isinstance(entry, dict) else entry
            for part, entry in spec.items()
        }
        for i, (part, k, grid) in [
            (i, a) for i, axis in zip(point, axes.values()) for a in axis
        ]:
            if k is None:
                new[part] = grid[i]
            else:
                new[part][k] = grid[i]
        yield ";".join(f"{name}={called[name][i]}" for i, name in zip(point, axes)), new


def root(data):
    """The name of the source at the bottom of a description:
    features are features of something.
    """
    return root(data["data"]) if "data" in data else data["name"]


def kind_of(source, papers=None):
    """The kind of data a source gives; one that a paper did not use
    stands in for it.
    """
    made = {
        "synthetic": "synthetic",
        "census": "synthetic",
        "glyphs": "stand-in",
        "domains": "stand-in",
    }
    kind = made.get(source, "real")
    return "stand-in" if papers not in (None, source) else kind
