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
from fedlib.study import compute, identity, studies
from fedlib.study.experiment import study
from fedlib.study.once import once
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
    fed = [c for c, _ in done.of(None, "FedAvg")]
    made = once(f"{paper}-gate", done.tier, counts, fed)  # [(train, test) of a cell]
    for dataset in done.datasets():
        here = table[(table.dataset == dataset) & (table.metric == "acc")]
        acc = here.groupby("method", sort=False).value.mean()
        best = acc.drop([*ALONE]).idxmax() if any_method else "FedAvg"
        runs = [c for c in fed if c.dataset == dataset]
        held = [rows for c, rows in zip(fed, made) if c.dataset == dataset]
        chance = mean(100 * constant(test, own) for _, test in held)
        room = acc["Centralised"] - chance
        gate = (acc[best] - chance) / room if room > 0 else None
        passes = gate is not None and gate >= LEAST
        row = {"paper": paper, "dataset": dataset, "label": runs[0].label}
        row |= {"tier": here.tier.iloc[0], "n_seeds": len(runs), "chance": chance}
        row |= {"local": acc["Local"], "reference": acc[best]}
        row |= {"reference_method": best, "centralised": acc["Centralised"]}
        row |= {"gate": gate, "passes": "yes" if passes else "no"}
        yield row | holdings(*held[0])


def counts(cells):
    """Rows of each class that clients train and are tested on: two arrays [C, K]."""
    made = (compute.task_of(c.task, c.seed, c.dataset) for c in cells)
    of = lambda y, K, rows: np.stack([np.bincount(y[r], minlength=K) for r in rows])
    return [[of(t.y, t.K, rows) for rows in (t.train, t.test)] for t in made]


def holdings(train, test):
    """What clients hold, from counts [C, K]; classes and the share of the largest one
    are the median client's, of its training rows."""
    n = train.sum(1)
    return {
        "clients": len(n),
        "rows_least": int(n.min()),
        "rows_median": float(median(n.tolist())),
        "rows_most": int(n.max()),
        "test_median": median(test.sum(1).tolist()),
        "classes": f"{median((train > 0).sum(1).tolist()):g} of {train.shape[1]}",
        "largest": 100 * median((train.max(1) / n).tolist()),
    }


def constant(test, own):
    """Accuracy of the best constant prediction on test rows, a mean over clients; test:
    counts [C, K]. own: each client predicts its own most frequent class."""
    share = torch.tensor(test / test.sum(1, keepdims=True)).float()
    return float(share.amax(1).mean() if own else share.mean(0).amax())


# ---------------------------------------------------------------- regimes
def regimes(paper, tier=None):
    """One row per study, data set and setting of the task."""
    tree, said = load(), papers.about(paper)
    tier = tier or tree["tier"]
    needs = said["regime"]
    unsaid = needs.get("unsaid", {})
    found = {}  # study -> its points at our tier, and at the paper's
    for name in [n for n in tree[paper]["studies"] if n != GATE]:
        theirs = points(tree[paper], name, "paper")  # but for data sets of ours
        theirs = {k: v for k, v in theirs.items() if k[0] not in said["datasets"]}
        found[name] = points(tree[paper], name, tier), theirs
    each = (v for both in found.values() for of in both for v in of.values())
    texts = sorted({here(task) for task, *_ in each} - {""})
    now = {u: v for u, v in identity.versions().items() if u.split()[0] in tasks.TABLES}
    known = once(f"{paper}-dealt", tier, dealt, texts, now)
    sizes = lambda task: tuple(known.get(here(task), ()))
    for name in found:
        for (dataset, setting), point in found[name][0].items():
            row = {"paper": paper, "study": name, "dataset": dataset}
            row |= {"setting": setting} | regime(*point, sizes=sizes(point[0]))
            row["last_evaluations"] = evaluations(point[2])
            spec = found[name][1].get((dataset, setting))
            clients, rows = (needs.get(k, {}).get(dataset) for k in ("clients", "rows"))
            more = (clients, json.dumps(rows), sizes(spec[0])) if spec else ()
            printed = regime(*spec, *more) if spec else {}
            lacks = {what for what, where in unsaid.items() if dataset in where}
            yield row | {
                f"paper_{k}": None if SAYS[k] & lacks else printed.get(k) for k in SAYS
            }


def points(p, name, tier):
    """{(data set, setting): (task, hyper-parameters, engine)} of a study of paper p, as
    json; without what only a method has. Where a seed draws the data, those of seed 0.
    """
    spec, out = tiered(p["studies"][name], tier), {}
    for dataset in spec["tasks"]:
        own = tiered(p["tasks"][dataset], tier)
        for where, point in studies.points(studies.parts(own, spec, dataset)):
            task, train, run = studies.as_text(studies.given(point, {"seed": 0}))
            out[dataset, where] = task, json.dumps(train), run
    return out


@functools.cache
def regime(task, kwargs, engine, clients=None, rows="null", sizes=()):
    """{name of SAYS: number, None where the rows are not known}, all texts json.

    clients, rows: of data that are not here; sizes: the clients' rows of those that are
    """
    task, train, run = map(json.loads, (task, kwargs, engine))
    sizes = sizes or client_sizes(task, clients, json.loads(rows))
    C, batch = len(sizes), task.get("batch", 32)
    M = cohort(run, C)
    passed = Plan(1, batch, train.get("last", "keep"), False)
    epochs, steps = train.get("epochs", 1), train.get("batches") or None
    plan = passed._replace(epochs=epochs, steps=steps)
    out = {"rounds": run["rounds"], "clients": C, "cohort": M}
    out["participations"] = run["rounds"] * M / C
    if sizes[0] is None:
        return out | {"epochs": None if plan.steps else plan.epochs}
    a_pass, steps = (median(count(n, p) for n in sizes) for p in (passed, plan))
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


def here(task):
    """What decides who has which rows, json, of data that are here; else nothing."""
    task = {k: v for k, v in json.loads(task).items() if k in DEALT}
    images = task["data"].get("data")  # features are as many as their images
    made = studies.root(task["data"]) in HERE
    data = images if isinstance(images, dict) else task["data"]
    return json.dumps(task | {"data": data}) if made else ""


def dealt(texts, versions):
    """{task as `here` says it: the training rows of each client}; versions: of what
    deals, since a new one deals otherwise."""
    made = lambda task: tasks.build(json.loads(task) | {"network": {"name": "Linear"}})
    return {task: [len(r) for r in made(task).train] for task in texts}


def client_sizes(task, clients, rows):
    """Training rows of each client [C]; None each where nobody knows them.

    task: its description; rows: how many are dealt, or those of each client."""
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
