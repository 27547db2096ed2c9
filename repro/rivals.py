"""At which values everybody ran: as stated, and as a search chose; run by the stage
results of dvc.yaml.

    python -m repro.rivals    studies.yaml, results/seeds  ->  results/rivals.csv

A row per task, method and winner: the values that the search moved, as stated and as it
chose; the metric that the winner is judged by, a mean over deciding seeds; and the
gradients of a client's visit, over those of plain training. paper.yaml says

    rivals    studies: {at the winners: [at stated values]}; by: {winner: metric}
"""

import functools
import json
from pathlib import Path

import pandas as pd

from fedlib.cli.program import program
from fedlib.methods.make import make
from fedlib.study import studies
from fedlib.study.results import write
from repro import cost, ledger, papers

AT = ["metric", "dataset", "method", "setting"]


def rivals(paper, seeds):
    """The rows of a paper; seeds: those of results/seeds."""
    said, tree = papers.about(paper), studies.load()[paper]["studies"]
    for name, before in said.get("rivals", {}).get("studies", {}).items():
        of = seeds[(seeds.study == name) & (seeds.rule == said["rule"])]
        level = of.groupby(AT).value.agg(value="mean", n_seeds="size")
        moved = searched(paper, tree[name]["winners"])
        stated = {}
        for c in (c for s in before for c in cells(paper, s).values()):
            stated.setdefault((c.dataset, c.method), c)
        for (dataset, method, setting), c in cells(paper, name).items():
            by = setting.removeprefix("by=") or tree[name]["by"]
            at = said["rivals"]["by"].get(by), dataset, method, setting
            if at in level.index and method in moved:
                row = {"paper": paper, "task": c.label, "method": method}
                row["stated"] = values(stated.get((dataset, method)), moved[method])
                row |= {"winner_by": by, "searched": values(c, moved[method])}
                row |= {"metric": at[0], **level.loc[at]}
                yield row | {"gradients": over_plain(c)}


def cells(paper, name):
    """{(data set, method, setting): Cell} of a study."""
    found = studies.cells(paper, name)[0]
    return {(c.dataset, c.method, c.setting): c for c in found}


def searched(paper, name):
    """{method: the hyper-parameters that a search has moved, on any task}."""
    won = studies.read(papers.folder() / paper / "winners.yaml")[name]
    each = {m: [v for at in of.values() for v in at.values()] for m, of in won.items()}
    flat = lambda v: v if isinstance(v, list) else [v]
    return {m: {k: 0 for v in of for s in flat(v) for k in s} for m, of in each.items()}


def values(c, names):
    """lr=0.1;mu=1, also where a method's usual value stands for what is not given."""
    given = json.loads(c.kwargs) if c else {}
    m = c and make(c.method, None, **given)
    return ";".join(f"{k}={given.get(k, getattr(m, k))}" for k in names) if c else ""


def over_plain(c):
    """The gradients of a visit over those of a client that trains alone."""
    kwargs = {k: v for k, v in json.loads(c.kwargs).items() if k != "lr"}
    plain = {k: v for k, v in kwargs.items() if k in cost.COMMON | {"batches"}}
    one = taken("Local", json.dumps(plain))
    return round(taken(c.method, json.dumps(kwargs)) / one, 1)


@functools.cache
def taken(method, kwargs):
    return cost.gradients(method, json.loads(kwargs))


def main():
    """write results/rivals.csv"""
    seeds = ledger.parts(Path("results"), "seeds")
    every = [row for p in papers.found() for row in rivals(p, seeds[seeds.paper == p])]
    write(pd.DataFrame(every), Path("results/rivals.csv"))


if __name__ == "__main__":
    program(main)
