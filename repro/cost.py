"""What a round of a method costs: time beside FedAvg's, and bytes per client."""

import dataclasses
import json
import time

import numpy as np
import pandas as pd
import torch

from fedlib.core import engine
from fedlib.core.method import Round
from fedlib.core.random import fold
from fedlib.core.tree import pick
from fedlib.methods.make import make
from fedlib.study import compute, studies
from fedlib.study.compare import one_thread

# rounds of a short and of a long run: their difference evaluates nothing
FEW, MANY = 1, 3
COMMON = {"lr", "epochs", "momentum", "decay", "last", "shuffle"}  # all methods' own
HOW = {"splits": ("test",), "progress": False, "device": "cpu"}
BYTES = {"bytes_up": ("up", "answer"), "bytes_down": ("down", "ask")}


def seconds_per_round(method):
    """CPU seconds of one round with all clients, without its evaluations."""

    def spent(rounds):
        began = time.process_time()
        engine.run(method, method.task, rounds, every=rounds, **HOW)
        return time.process_time() - began

    return (spent(MANY) - spent(FEW)) / (MANY - FEW)


def gradients(cell):
    """Gradients of a batch that the first client computes in a round, counted."""
    seen = []
    # a copy of its own, whose loss counts
    task = dataclasses.replace(compute.task_of(cell.task, cell.seed, cell.dataset))

    class Counting(type(task.loss)):
        def __init__(self, task):
            super().__init__(task)
            self.gradient = self.descend = None  # which would not call it

        def __call__(self, w, b):
            seen.append(torch.is_grad_enabled())
            return super().__call__(w, b)

    task.__dict__["loss"] = Counting(task)
    m = make(cell.method, task, **json.loads(cell.kwargs))
    w, ids = task.init(cell.seed), torch.arange(1)
    shard = task.shards(cell.seed, 0, 1, ids, m.plans())[0]
    with torch.no_grad():
        r = Round(0, 1, fold(torch.tensor(cell.seed), 0, -999), None, ids)
        down = pick(m.send(m.server(w, r), ids), 0)
        mine = m.receive(down, m.client(w, shard), shard)
        before = len(seen)
        m.local(down, mine, shard)
    return sum(seen[before:])


def costs(paper, study, dataset, repeats=3, methods=None, reference="FedAvg"):
    """One row per method: seconds_over_fedavg (median of the repetitions), ratios (all
    of them), bytes_up and bytes_down of a client and round.

    methods: those of the study, or these, with the study's hyper-parameters where it
    has them. Every repetition times the reference and then each method.
    """
    cells = studies.cells(paper, study)[0]
    cells = [c for c in cells if c.dataset == dataset and c.seed == 0]
    entries = {c.method: json.loads(c.kwargs) for c in reversed(cells)}
    task = compute.task_of(cells[0].task, 0, dataset)
    usual = {k: v for k, v in json.loads(cells[0].kwargs).items() if k in COMMON}
    names = methods or dict.fromkeys(c.method for c in cells)
    made = {n: make(n, task, **(usual | entries.get(n, {}))) for n in names}
    base, ratios = make(reference, task, **usual), []
    with one_thread(), torch.no_grad():
        for _ in range(repeats):
            unit = seconds_per_round(base)
            ratios.append([seconds_per_round(m) / unit for m in made.values()])
    sent = [engine.run(m, task, 1, **HOW).meta["bytes"] for m in made.values()]
    out = pd.DataFrame(index=pd.Index([*made], name="method"))
    out["seconds_over_fedavg"] = np.median(ratios, 0)
    for name, ways in BYTES.items():
        every = lambda s, ways=ways: [x for w in ways for x in s.get(w, {}).values()]
        out[name] = [sum(x["bytes"] for x in every(s)) for s in sent]
    return out.assign(ratios=[*map(list, zip(*ratios))])


def rows(table, paper, dataset, data, tier):
    """The table as rows of results/seeds, one per repetition and number of bytes."""
    base = {"paper": paper, "study": "cost", "dataset": dataset, "setting": ""}
    base |= {"rule": "run", "data": data, "device": "cpu, 1 thread"}
    out = []
    for name, r in table.iterrows():
        found = [("seconds_over_fedavg", k, v, tier) for k, v in enumerate(r.ratios)]
        found += [(k, 0, r[k], "exact") for k in BYTES]
        for metric, seed, value, of in found:
            one = {"method": name, "seed": seed, "metric": metric, "value": value}
            out.append(base | one | {"tier": of})
    return pd.DataFrame(out)
