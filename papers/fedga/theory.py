"""What FedGA guarantees and costs, without training: sections 4.1, 4.3, 4.4 and Table 8
of its paper; used by notebooks/fedga. Letters: m participants, P parameters.
"""

import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import torch

from fedlib import nets
from fedlib.core import engine
from fedlib.data import tasks
from fedlib.methods import FedAvg, FedGA
from fedlib.methods.fair.fedga import gini
from repro.traffic import size

PARAMETERS = {  # data set -> (P, participants), section 6 of the paper and Table 8
    "office10_alexnet": (nets.AlexNetBN(K=10), 4),
    "office10_resnet18": (nets.ResNet18(K=10), 4),
    "cifar01": (nets.ResNet18(K=10), 10),
    "synthetic_0_0": (nets.Linear(60, 10), 10),
}


def weight_bounds(vectors):
    """Counts over random accuracy vectors of p_best < 1/m < p_worst broken, and the
    largest |p_i - 1/m| at alpha = 1.

    m uniform in 2 .. 100, alpha uniform in (1, 10), accuracies uniform; for both
    readings of the weights.
    """
    g, broken, off = np.random.default_rng(0), 0, 0.0
    for _ in range(vectors):
        m, alpha = int(g.integers(2, 101)), float(g.uniform(1, 10))
        a = torch.tensor(g.uniform(0, 1, m))
        for reading in ("none", "sum"):
            fields = [{"alpha": x, "weight_norm": reading} for x in (alpha, 1)]
            p, even = (FedGA.fair(SimpleNamespace(**f), a) for f in fields)
            broken += not p[a.argmax()] < 1 / m < p[a.argmin()]
            off = max(off, float((even - 1 / m).abs().max()))
    return {"weight_bound_violations": broken, "alpha_one_deviation": off}


def upload_bytes():
    """What one client uploads in a round of FedGA beyond FedAvg, counted from real
    messages, and the sizes of the models.
    """
    data = {"name": "synthetic", "alpha": 0, "beta": 0}
    task = tasks.build({"data": data, "network": {"name": "Linear"}})

    def up(method):
        how = {"cohort": 2, "progress": False, "device": "cpu"}
        sent = engine.run(method(task, lr=0.01), task, 1, **how).meta["bytes"]
        return sum(v["bytes"] for v in sent["up"].values())

    models = {d: 4 * size(net) for d, (net, _) in PARAMETERS.items()}
    return {"extra_upload_bytes": up(FedGA) - up(FedAvg)} | models


def fedgini_trigger(updates, past, theta=1e-5):
    """Stack m updates [P], take U_s, compare the window, as FedGini's server does."""
    u = torch.stack(updates).mean(0).square().mean()
    return past[:-1].mean() - torch.cat([past[1:-1], u[None]]).mean() < theta


def fedga_trigger(a, past, theta=1e-2):
    """Gini of m accuracies, compare the window: what FedGA's server does instead."""
    return past[:-1].mean() - torch.cat([past[1:-1], gini(a)[None]]).mean() < theta


@torch.no_grad()
def validation_pass(net, w, x, m):
    """What FedGA asks of m clients on top: a forward pass over validation rows x."""
    for _ in range(m):
        net.out(w, net.feat(w, x)).argmax(1)


def seconds(f, *args, times=1):
    """Wall seconds of one call; `times` calls where one is too short for the clock."""
    began = time.perf_counter()
    for _ in range(times):
        f(*args)
    return (time.perf_counter() - began) / times


def trigger_times(repeats, full=True):
    """Seconds of one round's trigger: dataset, method, metric, seed (repeat), value.

    The validation pass is timed where this machine can run it: 5 rows of 60 numbers
    per client for the linear model, 50 images of 32 x 32 in a ResNet18 for the others.
    full = False takes a hundredth of the image models' parameters.
    """
    out, past = [], torch.rand(11)
    for dataset, (net, m) in PARAMETERS.items():
        linear = dataset.startswith("synthetic")
        P = size(net) if full or linear else size(net) // 100
        g = torch.Generator().manual_seed(0)
        updates = [torch.randn(P, generator=g) * 1e-3 for _ in range(m)]
        a = torch.rand(m, generator=g)
        x = torch.rand((5, 60) if linear else (50, 3, 32, 32), generator=g)
        net = net if linear else nets.ResNet18(K=10)
        w, trigger = net.init(0), "trigger_time_seconds"
        for method, metric, times, call in (
            ("FedGini", trigger, 1, (fedgini_trigger, updates, past)),
            ("FedGA", trigger, 200, (fedga_trigger, a, past)),
            ("FedGA", "validation_seconds", 1, (validation_pass, net, w, x, m)),
        ):
            seconds(*call)  # warm up
            row = {"dataset": dataset, "method": method, "metric": metric}
            for k in range(repeats):
                out.append(row | {"seed": k, "value": seconds(*call, times=times)})
    return pd.DataFrame(out)


def exact(bounds, example, sizes):
    """Sections 4.1, 4.3 and 4.4 as rows of results/seeds."""
    found = [
        (k, "model_bytes", v) if k in PARAMETERS else ("none", k, v)
        for k, v in (bounds | example | sizes).items()
        if k != "exact"
    ]
    rows = pd.DataFrame(found, columns=["dataset", "metric", "value"])
    return named(rows.assign(method="FedGA", seed=0), "theory", "exact")


def named(rows, study, tier):
    """Rows of results/seeds, with the study that they are."""
    device = f"cpu, {torch.get_num_threads()} thread"
    rows = rows.assign(paper="fedga", study=study, tier=tier, device=device)
    return rows.assign(setting="", rule="run", data="synthetic")
