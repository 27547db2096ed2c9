"""Which settings win a search, by validation accuracy on pilot seeds.

    python -m repro.winners fedga grid     the winners of FedGA's study `grid`

computes what is missing of the search and of its finals, and writes both to
papers/<paper>/winners.yaml: of every method and task the finalists, the best mean over
clients, and the best worst tenth (see fedlib.methods.search); means over pilots and the
evaluations that the paper's rule picks.
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

HEAD = """\
# What searches chose on pilot seeds, by validation rows: written by `python -m
# repro.winners PAPER SEARCH`, committed by you; a test compares.
"""


def main(paper, search):
    """choose the settings of a search; compute what is missing of it

    paper: as fedga
    search: the study that draws the settings, as grid
    """
    rule, there = papers.about(paper)["rule"], studies.load()[paper]["studies"]
    path = Path("papers", paper, studies.FILE).with_name("winners.yaml")
    drawn = study(paper, search)
    chosen = finalists(drawn, rule)
    write(path, search, chosen)
    for name in (k for k, v in there.items() if v.get("winners") == search):
        if studies.cells(paper, name)[0][0].seed >= studies.PILOT:
            of_finals(drawn, study(paper, name), rule, chosen)
    write(path, search, chosen)


def write(path, search, chosen):
    """Put the choices of a search into the file of its paper."""
    every = studies.read(path) if path.exists() else {}
    text = yaml.safe_dump(every | {search: chosen}, sort_keys=False, width=100)
    path.write_text(HEAD + text)


def finalists(drawn, rule):
    """{method: {data set: {"finalists": [settings]}}} of a study that draws them."""
    out = {}
    for (method, dataset), level in levels(rule, drawn):
        some = [point(drawn, method, dataset, s) for s in best(level, FINALISTS)]
        out.setdefault(method, {})[dataset] = {"finalists": some}
    return out


def of_finals(drawn, finals, rule, chosen):
    """Add what wins: by the "mean" of clients, and by their "worst" tenth."""
    for by, measure in ("mean", metrics.mean_acc), ("worst", metrics.worst):
        for (method, dataset), level in levels(rule, drawn, finals, measure=measure):
            some = {c.setting: 0 for c in finals.only(dataset, method).cells}
            (won,) = best(level[[*some]])
            chosen[method][dataset][by] = point(finals, method, dataset, won)


def levels(rule, *runs, measure=metrics.mean_acc):
    """Of every method and data set the validation accuracy of each setting, a mean over
    pilots: ((method, data set), Series).
    """
    table = pd.concat([run.validation(rule, measure) for run in runs])
    for who, rows in table.groupby(["method", "dataset"], sort=False):
        yield who, rows.groupby("setting", sort=False).value.mean()


def point(run, method, dataset, setting):
    """The values that a setting names."""
    ((cell, *_), *_) = run.of(dataset, method, setting)
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
    kept = (p for p in setting.split(";") if p.partition("=")[0] not in names)
    return ";".join(kept)


if __name__ == "__main__":
    program(main)
