"""Which settings win a search, by validation accuracy on pilot seeds.

    python -m repro.winners fedga grid finals

computes what is missing of a study that draws settings and of its finals, and writes
papers/<paper>/winners.yaml: of every method and task the finalists, and the best by
each of the paper's `wins`, over pilots and evaluations of its rule:

    mean     highest mean accuracy over clients
    worst    highest accuracy of the worst tenth
    fair     lowest EO, of settings at most LOSS less accurate than FedAvg's best; where
             none is, the most accurate

The first of these chooses the finalists.
"""

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

LOSS = 0.01  # of accuracy, a point, that a fairer setting may cost
AT = ["dataset", "method", "setting"]
BY = {"mean": metrics.mean_acc, "worst": metrics.worst}
HEAD = "# What searches chose on pilot seeds: by `python -m repro.winners`.\n"


def main(paper, search, finals):
    """choose the settings of a search; compute what is missing of it

    paper: as fedga
    search: the study that draws the settings, as grid
    finals: the study that runs the best of them on more pilot seeds
    """
    path, runs, about = Path("papers", paper, "winners.yaml"), [], papers.about(paper)
    for name in search, finals:  # whose cells are the finalists of the first
        runs.append(study(paper, name))
        written = studies.read(path) if path.exists() else {}
        written[search] = chosen(about["rule"], about["wins"], *runs)
        text = yaml.safe_dump(written, sort_keys=False, width=100)
        path.write_text(HEAD + text)


def chosen(rule, wins, drawn, *finals):
    """{method: {data set: {"finalists": [...], and of finals each of `wins`}}}."""
    out = {}
    for (dataset, method), level in levels(rule, wins[0], drawn):
        some = [point(drawn, method, dataset, s) for s in best(level, FINALISTS)]
        out.setdefault(method, {})[dataset] = {"finalists": some}
    for by in wins if finals else ():
        for (dataset, method), level in levels(rule, by, drawn, *finals):
            out[method][dataset][by] = point(drawn, method, dataset, *best(level))
    return out


def levels(rule, by, *runs):
    """((data set, method), level of each setting), of settings of the last run."""
    rows = lambda run: run.validation(rule, BY[by])
    level = lambda table: table.groupby(AT, sort=False).value.mean()
    if by == "fair":
        rows, level = lambda run: run.biases([rule], split="val"), fairness
    left = [(c.dataset, c.method, c.setting) for c in runs[-1].cells]
    table = pd.concat(map(rows, runs)).set_index(AT)
    table = table[table.index.isin(left)]
    for who, each in level(table).groupby(AT[:2], sort=False):
        yield who, each.droplevel(AT[:2])


def fairness(rows):
    """How far settings go by EO and accuracy, of rows of Study.biases: minus EO; where
    accuracy is more than LOSS below FedAvg's best, what comes after all others.
    """
    mean = rows.pivot_table("value", AT, "metric", sort=False)
    fedavg = mean.accuracy.xs("FedAvg", level="method").groupby("dataset").max()
    least = mean.index.get_level_values("dataset").map(fedavg) - LOSS
    return (-mean.EO).where(mean.accuracy >= least, mean.accuracy - 2).round(6)


def point(run, method, dataset, setting):
    """The values that a setting names."""
    ((cell, _), *_) = run.of(dataset, method, setting)
    kwargs = json.loads(cell.kwargs)
    return {k: kwargs[k] for k in (w.partition("=")[0] for w in setting.split(";"))}


if __name__ == "__main__":
    program(main)
