"""Which values win a grid: the highest validation accuracy, a mean over clients, pilot
seeds and the evaluations that the paper's rule picks.

    python -m repro.winners fedga grid
    python -m repro.winners fft-gp rates_out own_out    a grid that two studies search

prints the winners as the methods of a study in papers/<paper>/studies.yaml. Where one
domain is left out, every domain has winners of its own.
"""

from __future__ import annotations

import json

import pandas as pd
import yaml

from fedlib.cli.program import program
from fedlib.study.experiment import study
from repro import papers


def winners(*runs, rule="last10_mean"):
    """{method: {data set: {point: {hyper-parameter: value}}}} of Studies that search
    grids together; of equals the one that stands first.

    point: what a setting says besides the values searched, as "guest=photo", or "".
    """
    searched, given = {}, {}
    for run in runs:
        for method, entry in run.spec["methods"].items():
            searched[method] = [*dict.fromkeys([*searched.get(method, ()), *entry])]
        given |= {(c.method, c.dataset, c.setting): c.kwargs for c in run.cells}
    table = pd.concat([run.validation(rule) for run in runs], ignore_index=True)
    names = table.method.map(searched)
    table["point"] = [*map(without, table.setting, names)]
    by = ["method", "dataset", "point"]
    level = table.groupby([*by, "setting"], sort=False).value.mean()
    out = {}
    for method, dataset, point, setting in level.groupby(by, sort=False).idxmax():
        values = json.loads(given[method, dataset, setting])
        found = {k: values[k] for k in searched[method]}
        out.setdefault(method, {}).setdefault(dataset, {})[point] = found
    return out


def without(setting, names):
    """A setting without the hyper-parameters of these names."""
    kept = (p for p in setting.split(";") if p.partition("=")[0] not in names)
    return ";".join(kept)


def by_task(found):
    """winners() as a study's methods: {method: {hyper-parameter: one value, or {data
    set: value} where they differ}}, and {point: value} below a data set likewise."""
    out = {}
    for method, places in found.items():
        names = next(iter(next(iter(places.values())).values()))
        for name in names:
            each = {
                place: one({point: kw[name] for point, kw in points.items()})
                for place, points in places.items()
            }
            out.setdefault(method, {})[name] = one(each)
    return out


def one(values):
    """The value that all of these are, or themselves."""
    first = next(iter(values.values()))
    return first if all(v == first for v in values.values()) else values


def main(paper, *studies):
    """Print the winners of the studies that search a paper's grid."""
    runs = [study(paper, name) for name in studies]
    found = by_task(winners(*runs, rule=papers.about(paper)["rule"]))
    print(yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=118))


if __name__ == "__main__":
    program(main)
