"""Can a task be learned, and how long do its clients train? The gates and the regimes
of all papers; run by the stage results of dvc.yaml.

    python -m repro.regimes  the studies `gate` and studies.yaml
                             ->  results/{gates,regimes}.csv

A gate is (reference - chance) / (centralised - chance), of accuracies in percent, means
over clients and pilot seeds: what a federation reaches of what one model on all rows
does. Below LEAST a claim about accuracy cannot be tested there. A regime is what one
client does, at our tier and as the paper says; counts of steps are those of the client
in the middle (the median over clients).

paper.yaml says where a paper needs more:

    gate:
      reference: best    the best federation of the study `gate` in place of FedAvg
      chance: own        each client's own most frequent class in place of one for all
      why                the reason for either
    regime:
      clients, rows      {data set: how many}; rows may be a list, those of each client.
                         Needed where the paper's data are not ours to make
      unsaid             {what: [data sets]}, what the paper does not say, of SAYS
"""

from __future__ import annotations

import functools
import json
from statistics import mean, median

import numpy as np
import pandas as pd
import torch

from fedlib.cli.program import program
from fedlib.core.clients import size, stragglers
from fedlib.core.record import Record
from fedlib.core.shards import Plan, draw
from fedlib.data import tasks
from fedlib.measures.selection import RULES
from fedlib.study import compute, studies
from fedlib.study.experiment import study
from fedlib.study.results import MEASURES, write
from fedlib.study.studies import load, tiered
from repro import papers

GATE, LEAST = "gate", 0.5
ALONE = ("Local", "Centralised")  # no federation
MNIST_5K = ("mnist5k", "digit_sites", "digit_pairs", "rotated", "colored")
HERE = {*studies.KINDS, *MNIST_5K, "digits", "adult"}  # data that need no download
DEALT = ("data", "partition", "guest", "parts", "test", "owners")  # decide who has what
SAYS = {  # a number of a regime -> what it hangs on
    "rounds": "rounds",
    "clients": "clients",
    "cohort": "cohort",
    "participations": "rounds clients cohort",
    "epochs": "epochs",
    "steps_per_pass": "rows clients batch",
    "steps_per_participation": "rows clients batch epochs",
    "steps_in_all": "rounds clients cohort rows batch epochs",
}
SAYS = {k: {*words.split()} for k, words in SAYS.items()}


# ---------------------------------------------------------------- gates
def gates(paper, tier=None):
    """One row per data set of the paper's study `gate`."""
    done, said = study(paper, GATE, tier), papers.about(paper)
    any_method = said["gate"].get("reference") == "best"
    own = said["gate"].get("chance") == "own"
    table = done.seeds({"acc": MEASURES["mean_acc"]}, (said["rule"],))
    for dataset in done.datasets():
        here = table[(table.dataset == dataset) & (table.metric == "acc")]
        acc = here.groupby("method", sort=False).value.mean()
        best = acc.drop([*ALONE]).idxmax() if any_method else "FedAvg"
        runs = [c for c, _ in done.of(dataset, "FedAvg")]
        made = [compute.task_of(c.task, c.seed, c.dataset) for c in runs]
        chance = mean(100 * constant(task, own) for task in made)
        room = acc["Centralised"] - chance
        gate = (acc[best] - chance) / room if room > 0 else None
        passes = gate is not None and gate >= LEAST
        row = {"paper": paper, "dataset": dataset, "label": runs[0].label}
        row |= {"tier": here.tier.iloc[0], "n_seeds": len(runs), "chance": chance}
        row |= {"local": acc["Local"], "reference": acc[best]}
        row |= {"reference_method": best, "centralised": acc["Centralised"]}
        row |= {"gate": gate, "passes": "yes" if passes else "no"}
        yield row | holdings(made[0])


def holdings(task):
    """What the clients of a task hold; classes and the share of the largest one are the
    median client's, of its training rows.
    """
    counts = [torch.bincount(task.y[r], minlength=task.K) for r in task.train]
    held, test = torch.stack(counts).double(), [len(r) for r in task.test]  # [C, K]
    n = held.sum(1)
    return {
        "clients": len(n),
        "rows_least": int(n.min()),
        "rows_median": median(n.tolist()),
        "rows_most": int(n.max()),
        "test_median": median(test),
        "classes": f"{median((held > 0).sum(1).tolist()):g} of {task.K}",
        "largest": 100 * median((held.amax(1) / n).tolist()),
    }


def constant(task, own):
    """Accuracy of the best constant prediction on the test rows, a mean over clients.

    own: each client predicts its own most frequent class.
    """
    counts = [torch.bincount(task.y[r], minlength=task.K) / len(r) for r in task.test]
    share = torch.stack(counts)  # [C, K]
    return float(share.amax(1).mean() if own else share.mean(0).amax())


# ---------------------------------------------------------------- regimes
def regimes(paper, tier=None):
    """One row per study, data set and setting of the task."""
    tree, said = load(), papers.about(paper)
    tier = tier or tree["tier"]
    needs = said["regime"]
    unsaid = needs.get("unsaid", {})
    for name in tree[paper]["studies"]:
        if name == GATE:
            continue
        theirs = points(paper, name, "paper")  # but for data sets of ours
        theirs = {k: v for k, v in theirs.items() if k[0] not in said["datasets"]}
        for (dataset, setting), ours in points(paper, name, tier).items():
            row = {"paper": paper, "study": name, "dataset": dataset}
            row |= {"setting": setting} | regime(*ours)
            row["last_evaluations"] = evaluations(ours[2])
            spec = theirs.get((dataset, setting))
            clients, rows = (needs.get(k, {}).get(dataset) for k in ("clients", "rows"))
            printed = regime(*spec, clients, json.dumps(rows)) if spec else {}
            lacks = {what for what, where in unsaid.items() if dataset in where}
            yield row | {
                f"paper_{k}": None if SAYS[k] & lacks else printed.get(k) for k in SAYS
            }


def points(paper, name, tier):
    """{(data set, setting): (task, hyper-parameters, engine)} of a study at a tier, as
    json; without what only a method has. Where a seed draws the data, those of seed 0.
    """
    p = load()[paper]
    spec, out = tiered(p["studies"][name], tier), {}
    for dataset in spec["tasks"]:
        own = tiered(p["tasks"][dataset], tier)
        for where, point in studies.points(studies.parts(own, spec, dataset)):
            task = studies.given(point, {"seed": 0})
            out[dataset, where] = studies.as_text(task, {})
    return out


@functools.cache
def regime(task, kwargs, engine, clients=None, rows="null"):
    """{name of SAYS: number, None where the rows are not known}, all texts json.

    clients, rows: of data that are not here.
    """
    task, train, run = map(json.loads, (task, kwargs, engine))
    data = json.dumps({k: v for k, v in task.items() if k in DEALT})
    sizes = client_sizes(data, clients, rows)
    C, batch = len(sizes), task.get("batch", 32)
    M = cohort(run, C)
    once = Plan(1, batch, train.get("last", "keep"), False)
    epochs, steps = train.get("epochs", 1), train.get("batches") or None
    plan = once._replace(epochs=epochs, steps=steps)
    out = {"rounds": run["rounds"], "clients": C, "cohort": M}
    out["participations"] = run["rounds"] * M / C
    if sizes[0] is None:
        return out | {"epochs": None if plan.steps else plan.epochs}
    a_pass, steps = (median(count(n, p) for n in sizes) for p in (once, plan))
    return out | {
        "epochs": steps / a_pass if plan.steps else plan.epochs,
        "steps_per_pass": a_pass,
        "steps_per_participation": steps,
        "steps_in_all": out["participations"] * steps,
    }


def count(n, plan):
    """How many batches a plan makes of n rows."""
    return len(draw(torch.arange(n), plan, 0, plan.batch)[1])


def cohort(run, C):
    """How many of C clients train in a round; a mean where rounds differ."""
    if "online" in run:
        return size(C, run["online"])
    if "stragglers" in run:
        who = stragglers(C, **run["stragglers"])
        return mean(len(who(t)) for t in range(run["rounds"]))
    return run.get("cohort") or C


@functools.cache
def client_sizes(task, clients, rows):
    """Training rows of each client [C]; None each where nobody knows them.

    task: its description; rows: how many are dealt, or those of each client (json).
    """
    task, rows = json.loads(task), json.loads(rows)
    if studies.root(task["data"]) in HERE:
        images = task["data"].get("data")  # features are as many as their images
        data = images if isinstance(images, dict) else task["data"]
        made = tasks.build(task | {"data": data, "network": {"name": "Linear"}})
        return [len(r) for r in made.train]
    C = task.get("partition", {}).get("clients") or clients - ("guest" in task)
    if rows is None:
        return [None] * C
    each = rows if isinstance(rows, list) else [rows / C] * C
    return [int(task["parts"][0] * n) for n in each]


def evaluations(engine):
    """How many evaluations of a run its last10_mean averages."""
    run = json.loads(engine)
    rounds = np.array(sorted({*range(0, run["rounds"], run["every"]), run["rounds"]}))
    views = {("pre", "global", "test"): np.zeros((len(rounds), 1))}
    return len(RULES["last10_mean"](Record({}, rounds, views), "global"))


def main():
    """Write results/gates.csv and results/regimes.csv."""
    torch.set_num_threads(1)
    for f in (gates, regimes):
        rows = [row for paper in papers.found() for row in f(paper)]
        write(pd.DataFrame(rows), f"results/{f.__name__}.csv")


if __name__ == "__main__":
    program(main)
