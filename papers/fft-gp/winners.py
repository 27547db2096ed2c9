"""Which values win a grid of FFT-GP's studies, on each task and domain left out, by
validation accuracy on pilot seeds.
"""

import json

import pandas as pd


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
    return ";".join(p for p in setting.split(";") if p.partition("=")[0] not in names)
