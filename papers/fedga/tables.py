"""Tables of FedGA: what its settings are, and which hyper-parameters were used."""

import dataclasses
import json

import pandas as pd

from fedlib.measures import curves, metrics
from fedlib.methods import METHODS
from fedlib.study.studies import kind_of, load, root, seeds_of, tiered

percent = lambda r: 100 * r.curve(metrics.mean_acc)  # at every evaluation [E]
CURVES = {  # of the whole run (rule "run"): record -> value
    "early_mean_acc": lambda r: curves.between(r, percent(r), 1, 50),
    "late_mean_acc": lambda r: curves.between(r, percent(r), 101),
    "gini_auc": curves.gini_auc,
    "gini_level_after_round_50": lambda r: curves.between(r, r.curve(metrics.gini), 51),
}


def declared(paper, path="params.yaml"):
    """The settings of tier paper as rows of results/seeds: declared, not measured."""
    out, p = [], load(path)[paper]
    for dataset, entry in p["tasks"].items():
        spec = tiered(entry, "paper")
        row = {"paper": paper, "study": "settings", "dataset": dataset, "method": "all"}
        row |= {"setting": "", "seed": 0, "rule": "run", "tier": "exact"}
        row["data"] = kind_of(root(spec["data"]))
        for k, v in declared_values(spec, dataset, p["studies"]).items():
            out += [row | {"metric": k, "value": v}] if v is not None else []
    return pd.DataFrame(out)


def declared_values(spec, dataset, studies):
    """{setting: value, None where a task has none}; spec: the task's."""
    runs = (
        len(seeds_of(tiered(s, "paper")["seeds"]))
        for s in studies.values()
        if dataset in s["tasks"]
    )
    return {
        "learning_rate": spec["train"]["lr"],
        "local_epochs": spec["train"]["epochs"],
        "batch_size": spec["batch"],
        "rounds": spec["run"]["rounds"],
        "dirichlet_concentration": spec.get("partition", {}).get("alpha"),
        "runs": next(runs, None),
    }


def hyper_row(cell):
    """The hyper-parameters of a cell in use and the grid searched, as its method says:
    {method, setting, used: "alpha = 3, ...", grid: "alpha in 1, 3, 5; ..."}."""
    cls, given = METHODS[cell.method], json.loads(cell.kwargs)
    known = {f.name: f for f in dataclasses.fields(cls)}
    used = {k: v for k, v in given.items() if k not in ("lr", "epochs", "last")}
    own = {
        n: f.metadata.get("grid") for n, f in known.items() if n in cls.__annotations__
    }
    grids = {n: ", ".join(map(short, grid)) for n, grid in own.items() if grid}
    values = {n: used.get(n, known[n].default) for n in (*used, *grids)}
    row = {"method": cell.method, "setting": cell.setting}
    row["used"] = ", ".join(f"{n} = {short(v)}" for n, v in values.items())
    return row | {"grid": "; ".join(f"{n} in {words}" for n, words in grids.items())}


def short(v):
    """A value of a hyper-parameter, in a table."""
    if isinstance(v, dict):
        return v["name"]
    return f"{v:g}" if type(v) in (int, float) else str(v)
