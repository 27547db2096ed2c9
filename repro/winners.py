"""Which settings win a search, by validation accuracy on pilot seeds.

    python -m repro.winners fedga grid finals

computes what is missing of a study that draws settings and of its finals, and writes
papers/<paper>/winners.yaml: of every method and task the finalists, the best mean over
clients and the best worst tenth, over pilots and evaluations of the paper's rule.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import yaml

from fedlib.cli.program import program
from fedlib.measures import metrics
from fedlib.methods.search import FINALISTS, best
from fedlib.study import studies
from fedlib.study.experiment import study

from . import papers

BY = {"mean": metrics.mean_acc, "worst": metrics.worst}
HEAD = "# What searches chose on pilot seeds: by `python -m repro.winners`.\n"


def main(paper, search, finals):
    """choose the settings of a search; compute what is missing of it

    paper: as fedga
    search: the study that draws the settings, as grid
    finals: the study that runs the best of them on more pilot seeds
    """
    path, runs = Path("papers", paper, "winners.yaml"), []
    for name in search, finals:  # whose cells are the finalists of the first
        runs.append(study(paper, name))
        written = studies.read(path) if path.exists() else {}
        written[search] = chosen(papers.about(paper)["rule"], *runs)
        text = yaml.safe_dump(written, sort_keys=False, width=100)
        path.write_text(HEAD + text)


def chosen(rule, drawn, *finals):
    """{method: {data set: {"finalists": [...], and of finals "mean", "worst"}}}."""
    out = {}
    for (method, dataset), level in levels(rule, metrics.mean_acc, drawn):
        some = [point(drawn, method, dataset, s) for s in best(level, FINALISTS)]
        out.setdefault(method, {})[dataset] = {"finalists": some}
    for by, measure in BY.items() if finals else ():
        for (method, dataset), level in levels(rule, measure, drawn, *finals):
            some = {c.setting: 0 for c in finals[0].only(dataset, method).cells}
            out[method][dataset][by] = point(
                drawn, method, dataset, *best(level[[*some]])
            )
    return out


def levels(rule, measure, *runs):
    """((method, data set), accuracy of each setting, a mean over pilots) of all."""
    table = pd.concat([run.validation(rule, measure) for run in runs])
    for who, rows in table.groupby(["method", "dataset"], sort=False):
        yield who, rows.groupby("setting", sort=False).value.mean()


def point(run, method, dataset, setting):
    """The values that a setting names."""
    ((cell, _), *_) = run.of(dataset, method, setting)
    kwargs = json.loads(cell.kwargs)
    return {k: kwargs[k] for k in (w.partition("=")[0] for w in setting.split(";"))}


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


if __name__ == "__main__":
    program(main)
