"""Which values win a grid: the highest validation accuracy, a mean over clients, pilot
seeds and the evaluations of the last ten rounds.

    python -m repro.winners fedga    the winners of its study `grid`, as the methods of
                                     the study `tuned` in papers/fedga/studies.yaml
"""

from __future__ import annotations

import argparse
import json

import yaml

from fedlib.study.experiment import study


def winners(run):
    """{method: {data set: {hyper-parameter: value}}} of a Study that searches grids;
    of equals the one that stands first."""
    table = run.validation("last10_mean")
    by = ["method", "dataset", "setting"]
    level = table.groupby(by, sort=False).value.mean()
    best = level.groupby(["method", "dataset"], sort=False).idxmax()
    given = {(c.method, c.dataset, c.setting): json.loads(c.kwargs) for c in run.cells}
    out = {}
    for method, dataset, setting in best:
        searched = run.spec["methods"][method]
        values = given[method, dataset, setting]
        out.setdefault(method, {})[dataset] = {k: values[k] for k in searched}
    return out


def by_task(found):
    """winners() as a study's methods: {method: {hyper-parameter: one value, or {data
    set: value} where they differ}}."""
    out = {}
    for method, places in found.items():
        names = next(iter(places.values()))
        for name in names:
            values = {place: kw[name] for place, kw in places.items()}
            same = len(set(values.values())) == 1
            one = next(iter(values.values()))
            out.setdefault(method, {})[name] = one if same else values
    return out


def main(argv=None):
    """Print the winners of a paper's study `grid`."""
    parser = argparse.ArgumentParser(prog="python -m repro.winners")
    parser.add_argument("paper")
    found = by_task(winners(study(parser.parse_args(argv).paper, "grid")))
    print(yaml.safe_dump(found, sort_keys=False, default_flow_style=None, width=118))


if __name__ == "__main__":
    main()
