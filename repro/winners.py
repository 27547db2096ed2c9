"""Which settings win a search, by validation accuracy on pilot seeds.

    python -m repro.winners fedga grid finals
    python -m repro.winners fft-gp rates_out own_out

computes what is missing of a study that draws settings and of its finals, or of a grid
and of a second one at its best, and writes papers/<paper>/winners.yaml: of every method
and task the finalists, or the first grid's best; and the best of all by each of the
paper's `wins`, over pilots and evaluations of its rule:

    mean     highest mean accuracy over clients
    worst    highest accuracy of the worst tenth
    fair     lowest EO, of settings at most LOSS less accurate than FedAvg's best; where
             none is, the most accurate

The first of these chooses the finalists.
"""

import json
from collections import Counter
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


def main(paper, search, finals=None):
    """choose the settings of a search; compute what is missing of it

    paper: as fedga
    search: the study that draws the settings, as grid
    finals: the study that runs the best of them on more pilot seeds, or at more values
    """
    path, runs, about = Path("papers", paper, "winners.yaml"), [], papers.about(paper)
    for name in filter(None, (search, finals)):  # the second runs what won the first
        runs.append(study(paper, name))
        written = studies.read(path) if path.exists() else {}
        written[search] = chosen(about["rule"], about["wins"], *runs)
        text = yaml.safe_dump(written, sort_keys=False, default_flow_style=None)
        path.write_text(HEAD + text)


def chosen(rule, wins, drawn, *finals):
    """{method: {place: {"finalists": [...], without draws "first", and of finals each
    of `wins`}}}; place: the data set, and what settings say beside what is searched."""
    out, first = {}, "finalists" if "draws" in drawn.spec else "first"
    for key, *runs in (first, drawn), *((by, drawn, *finals) for by in wins if finals):
        by = key if key in wins else wins[0]
        for (dataset, method), level in levels(rule, by, *runs):
            cells = [c for run in runs for c, _ in run.of(dataset, method)]
            of = {c.setting: json.loads(c.kwargs) for c in cells}
            many = Counter(w.partition("=")[0] for w in {*";".join(of).split(";")})
            names = [k for k in of[cells[-1].setting] if many[k] > 1]
            places = [f"{dataset};{without(s, names)}".strip(";") for s in level.index]
            for at, some in level.groupby(places, sort=False):
                won = [{k: of[s][k] for k in names} for s in best(some, FINALISTS)]
                won = won if key == "finalists" else won[0]
                out.setdefault(method, {}).setdefault(at, {})[key] = won
    return out


def without(setting, names):
    """A setting without the hyper-parameters of these names."""
    return ";".join(w for w in setting.split(";") if w.partition("=")[0] not in names)


def levels(rule, by, *runs):
    """((data set, method), level of each setting), of settings with most pilots."""
    rows = lambda run: run.validation(rule, BY[by])
    level = lambda table: table.groupby(AT, sort=False).value.mean()
    if by == "fair":
        rows, level = lambda run: run.biases([rule], split="val"), fairness
    table = pd.concat(map(rows, runs)).set_index(AT)
    pilots = table.groupby(AT).seed.transform("nunique")
    for who, each in level(table[pilots == pilots.max()]).groupby(AT[:2], sort=False):
        yield who, each.droplevel(AT[:2])


def fairness(rows):
    """How far settings go by EO and accuracy, of rows of Study.biases: minus EO; where
    accuracy is more than LOSS below FedAvg's best, what comes after all others."""
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
