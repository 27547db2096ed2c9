"""At which value each rival of EquFL runs: chosen on pilot seeds, by one rule for all.

    python -m papers.equfl.winners

The study `grid` runs FedAvg and every value of every rival on the same pilots. On each
task the value with the lowest EO wins, of those whose accuracy is at most LOSS below
FedAvg's; where none is, the most accurate one. EO and accuracy are means over pilots
and over the rounds that the paper's rule picks. Of equals the one that stands first.

A test compares the winners with the values in studies.yaml, and with the regulariser's
in claims.yaml.
"""

from __future__ import annotations

import json

import yaml

from fedlib.cli.program import program
from fedlib.study.experiment import study as read
from repro import papers

LOSS = 0.01  # of accuracy, a point, that a fairer value may cost


def chosen(method, study=None):
    """{task: {hyper-parameter: value}} of a rival; study: the grid, if read already.

    Raises ValueError for a method without a list of values there.
    """
    study = study or read("equfl", "grid")
    entry = study.spec["methods"].get(method) or {}
    names = [name for name, values in entry.items() if isinstance(values, list)]
    if not names:
        raise ValueError(f"{method} has no values in the study {study.name}")
    values = {
        (c.dataset, c.setting): {name: json.loads(c.kwargs)[name] for name in names}
        for c in study.cells
        if c.method == method
    }
    scores = means(study)
    return {
        task: values[task, best(scores[task, method], scores[task, "FedAvg"][""])]
        for task in dict.fromkeys(task for task, _ in values)
    }


def means(study):
    """{(task, method): {setting: {metric: its mean over pilots}}}."""
    rows = study.biases((papers.about("equfl")["rule"],))
    by = ["dataset", "method", "setting"]
    table = rows.pivot_table(index=by, columns="metric", values="value", sort=False)
    out = {}
    for (task, method, setting), row in table.iterrows():
        out.setdefault((task, method), {})[setting] = row.to_dict()
    return out


def best(scores, fedavg):
    """The setting that the rule chooses, of {setting: {metric: mean}}."""
    least = fedavg["accuracy"] - LOSS
    kept = {s: x for s, x in scores.items() if x["accuracy"] >= least}
    if kept:
        return min(kept, key=lambda s: kept[s]["EO"])
    return max(scores, key=lambda s: scores[s]["accuracy"])


def main():
    """Print the winners, {method: {task: {hyper-parameter: value}}}."""
    grid = read("equfl", "grid")
    methods = [m for m in grid.spec["methods"] if m != "FedAvg"]
    won = {m: chosen(m, grid) for m in methods}
    print(yaml.safe_dump(won, sort_keys=False, default_flow_style=None, width=88))


if __name__ == "__main__":
    program(main)
