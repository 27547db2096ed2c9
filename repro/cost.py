"""What a round of a method costs: time beside FedAvg's, and bytes per client."""

import copy
import dataclasses
import functools
import json
import time
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

from fedlib.core import engine
from fedlib.core.local import Gradient
from fedlib.data import tasks
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.study import compute, studies
from fedlib.study.compare import one_thread

# rounds of a short and of a long run: their difference evaluates nothing
FEW, MANY, FIVE = 1, 3, 5
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


def gradients(name, kwargs, task=None):
    """Gradients that a client takes in a round of a method, a mean over two rounds and
    all clients, on a task, else on 128 rows in batches of 16; scoring does not count.
    """
    task = task or small("groups" in METHODS[name].__module__)
    net = copy.copy(task.network)  # without a closed form, which takes many at once
    object.__setattr__(net, "__class__", type("Open", (type(net),), {"dense": None}))
    task = dataclasses.replace(task, network=net)
    m, one = make(name, task, **kwargs | {"lr": 0.001}), Gradient.__call__
    how, seen = HOW | {"how": "loop", "every": FIVE}, []
    for rounds in FEW, MANY:  # both are scored before round 0, and never again
        with patch.object(Gradient, "__call__", autospec=True, side_effect=one) as took:
            engine.run(m, task, FIVE, upto=rounds, **how)
        seen.append(took.call_count)
    return (seen[1] - seen[0]) / (MANY - FEW) / task.C


@functools.cache
def small(groups):
    """A task of two clients, whose rows may belong to groups."""
    data = {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "sizes": [160, 160]}
    if groups:
        data = {"name": "census", "task": "income", "group": "sex", "clients": 2}
    task = tasks.build({"data": data, "network": {"name": "MLP", "hidden": 8}}, 0, "")
    return dataclasses.replace(task, batch=16)


def costs(paper, study, dataset, repeats=3, methods=None, reference="FedAvg"):
    """One row per method: seconds_over_fedavg (median of the repetitions), ratios (all
    of them), bytes_up and bytes_down of a client and round.

    methods: those of the study, or these, with the study's hyper-parameters where it
    has them. Every repetition times the reference and then each method."""
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
