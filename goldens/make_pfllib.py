"""Some rounds of PFLlib's FedAS, FedPAC, FedProto, SCAFFOLD, FedDyn, MOON, APFL and
FedBN on the federation of problem.py -> pfllib.npz, pfllib.json.

    git clone https://github.com/TsingZ0/PFLlib
    python -m venv env && env/bin/pip install cvxpy h5py matplotlib scikit-learn \\
        torch torchvision
    PFLLIB=PFLlib env/bin/python goldens/make_pfllib.py

PFLlib's own servers and clients do the work. Replaced are: the files that it reads rows
from, its shuffling, its random choices of clients and of their order, and the precision
of its solver. Each client is tested on its training rows. The last batch of a pass,
which it leaves out unless it is full, is kept except where drop_last is an argument.
"""

import contextlib
import importlib
import os
import subprocess
import sys
from collections import OrderedDict
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from problem import (
    ALL,
    BATCH,
    EPOCHS,
    HIDDEN,
    INPUTS,
    LR,
    SIZES,
    START,
    Answers,
    K,
    fill,
    flat,
    rows,
)
from torch.utils.data import DataLoader, TensorDataset

HOME = Path(os.environ.get("PFLLIB", "PFLlib")).resolve()
if not (HOME / "system").is_dir():
    raise SystemExit(
        f"PFLLIB names no folder with PFLlib's sources: {HOME / 'system'} is missing; "
        "set it to the folder that holds system/"
    )
sys.path.insert(0, str(HOME / "system"))

import cvxpy  # noqa: E402
from flcore.clients import clientbase  # noqa: E402
from flcore.servers import serverbase, serverpac  # noqa: E402
from flcore.trainmodel.models import BaseHeadSplit  # noqa: E402

cvxpy.Problem.solve = partialmethod(
    cvxpy.Problem.solve,
    solver="OSQP",
    eps_abs=1e-14,
    eps_rel=1e-14,
    max_iter=1_000_000,
)
for module in (clientbase, serverbase):
    module.read_client_data = lambda _, i, **more: TensorDataset(*rows(i))

THREE = (ALL,) * 3
LATE = (0, 2, 3), (1, 2), (0, 1, 3), (2, 3)  # client 1 is new in the second round
ABSENT = (0,), ALL, (0,), (0, 1)  # client 0 has no row of class 2
ARGS = {  # what PFLlib asks its command line for
    "device": "cpu",
    "dataset": "",
    "algorithm": "",
    "num_classes": K,
    "num_clients": len(SIZES),
    "local_learning_rate": LR,
    "local_epochs": EPOCHS,
    "batch_size": BATCH,
    "learning_rate_decay": False,
    "learning_rate_decay_gamma": 1.0,
    "join_ratio": 1.0,
    "random_join_ratio": False,
    "few_shot": 0,
    "time_select": False,
    "time_threthold": 1e9,
    "goal": "",
    "save_folder_name": "",
    "top_cnt": 1,
    "auto_break": False,
    "eval_gap": 1,
    "client_drop_rate": 0.0,
    "train_slow_rate": 0.0,
    "send_slow_rate": 0.0,
    "dlg_eval": False,
    "dlg_gap": 1,
    "batch_num_per_client": 0,
    "num_new_clients": 0,
    "fine_tuning_epoch_new": 0,
}


def net():
    """Base and head; the parameters have the order of problem.py."""
    base = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU())
    return fill(BaseHeadSplit(base, torch.nn.Linear(HIDDEN, K)))


def normed():
    """The same with batch norm between the first layer and relu; it starts at 1 and 0,
    its parameters are between those of the two layers.
    """
    layers = {
        "fc1": torch.nn.Linear(INPUTS, HIDDEN),
        "bn": torch.nn.BatchNorm1d(HIDDEN),
    }
    base = torch.nn.Sequential(OrderedDict(layers, relu=torch.nn.ReLU()))
    model = BaseHeadSplit(base, torch.nn.Linear(HIDDEN, K))
    first = sum(p.numel() for p in base.fc1.parameters())
    norm = np.repeat([1.0, 0.0], HIDDEN)
    return fill(model, np.concatenate([START[:first], norm, START[first:]]))


class Done(Exception):
    """All rounds are over."""


def federation(file, name, look, cohorts, order=1, drop_last=False, model=net, **args):
    """The clients of PFLlib's server after one round per cohort, and what `look`
    (server -> {name: array}) saw after each.

    order: 1 or -1, of the cohort when models are received.
    """
    clientbase.DataLoader = lambda rows, batch, **_: DataLoader(
        rows, batch, drop_last=drop_last
    )
    serverbase.random = serverpac.random = SimpleNamespace(
        sample=lambda clients, _: clients[::order]
    )
    module, looks = importlib.import_module(f"flcore.servers.{file}"), []

    class Server(getattr(module, name)):
        def select_clients(self):  # the first thing in every round
            if self.alive:
                looks.append(look(self))
            if len(looks) == len(cohorts):
                raise Done
            self.alive, ids = True, cohorts[len(looks)]
            self.num_join_clients = self.current_num_join_clients = len(ids)
            return [self.clients[i] for i in ids]

        def evaluate(self):
            pass

    args = ARGS | {"model": model(), "global_rounds": len(cohorts)} | args
    with contextlib.redirect_stdout(None), contextlib.suppress(Done):
        server = Server(SimpleNamespace(**args), 0)
        server.alive = False
        server.train()
    return server.clients, looks


def body(server):
    """The averaged base [P']; a server of FedAS averages heads that nobody gets."""
    return flat(getattr(server.global_model, "base", server.global_model))


def table(prototypes):
    """{class: prototype or [] where there is none} as [K, D], NaN for the latter."""
    none = torch.full((HIDDEN,), np.nan)
    held = [prototypes.get(k, []) for k in range(K)]
    return torch.stack([none if isinstance(p, list) else p for p in held]).numpy()


def look_as(server):
    traces = [c.fim_trace_history[-1] for c in server.clients]
    return {"models": body(server), "traces": traces}


def look_pac(server):
    return {
        "models": body(server),
        "prototypes": table(server.global_protos),
        "heads": [flat(c.model.head) for c in server.clients],
    }


def look_proto(server):
    return {
        "models": table(server.global_protos),
        "hits": [c.test_metrics()[0] for c in server.clients],
    }


def look_moon(server):
    return {"models": flat(server.global_model)}


def look_apfl(server):
    return {
        "models": flat(server.global_model),
        "own": [flat(c.model_per) for c in server.clients],
        "alphas": [c.alpha for c in server.clients],
    }


def look_bn(server):
    named = server.global_model.named_parameters()
    shared = [p.detach().flatten() for k, p in named if "bn" not in k]
    norms = [c.model.base.bn for c in server.clients]
    return {
        "models": torch.cat(shared).numpy(),
        "statistics": [
            torch.cat([n.running_mean, n.running_var]).numpy() for n in norms
        ],
    }


def look_scaffold(server):
    """control is a list of tensors, one for each parameter."""
    control = [x.ravel() for x in server.global_c]
    return {"models": flat(server.global_model), "control": torch.cat(control).numpy()}


def look_dyn(server):
    return {"models": flat(server.global_model), "state": flat(server.server_state)}


WHAT = {
    "models": "parameters of the averaged base after each round [R, P']",
    "own": "each client's personal model after each round [R, C, P]",
    "alphas": "each client's share of its own model after each round [R, C]",
    "statistics": "each client's running mean and variance after each round [R, C, 2D]",
    "traces": "every client's latest Fisher trace after each round [R, C]",
    "prototypes": "the server's prototypes after each round [R, K, D], NaN: none",
    "heads": "the heads that clients hold after each round, mixed [R, C, P'']",
    "control": "the server's control variate after each round [R, P]",
    "state": "the server's state h after each round [R, P]",
    "hits": "how many of its rows each client predicts by the prototypes [R, C]",
}
MODELS = {
    "fedproto": WHAT["prototypes"],
    "moon": "parameters of the averaged model after each round [R, P]",
    "apfl": "parameters of the averaged model after each round [R, P]",
    "scaffold": "the server's parameters after each round [R, P]",
    "feddyn": "the server's parameters after each round [R, P]",
    "fedbn": "averaged parameters but those of batch norm after each round [R, P']",
}
METHODS = {  # file of the server, class, what is looked at after each round
    "fedas": ("serveras", "FedAS", look_as),
    "fedpac": ("serverpac", "FedPAC", look_pac),
    "fedproto": ("serverproto", "FedProto", look_proto),
    "moon": ("servermoon", "MOON", look_moon),
    "apfl": ("serverapfl", "APFL", look_apfl),
    "fedbn": ("serverbn", "FedBN", look_bn),
    "scaffold": ("serverscaffold", "SCAFFOLD", look_scaffold),
    "feddyn": ("serverdyn", "FedDyn", look_dyn),
}


def add(golden, cohorts=THREE, **args):
    method = golden.split("-")[0]
    file, name, look = METHODS[method]
    clients, looks = federation(file, name, look, cohorts, **args)
    what = WHAT | ({"models": MODELS[method]} if method in MODELS else {})
    seen = {k: ([a[k] for a in looks], what[k]) for k in looks[0]}
    last = "each client's model after the last round, not yet downloaded [C, P]"
    common = {
        "local_learning_rate": LR,
        "batch_size": BATCH,
        "local_epochs": EPOCHS,
        "cohorts": [list(c) for c in cohorts],
    }
    answers.add(
        golden,
        f"flcore.servers.{file}.{name}: train",
        common | {k: v for k, v in args.items() if k != "model"},
        seen | {"clients": ([flat(c.model) for c in clients], last)},
    )


answers = Answers("pfllib", ("cvxpy", "osqp"))
commit = ["git", "-C", str(HOME), "rev-parse", "HEAD"]
answers.versions["PFLlib"] = subprocess.run(
    commit, capture_output=True, text=True, check=True
).stdout.strip()
add("fedas")
add("fedas-late", LATE)
add("fedas-sixteen", LATE, batch_size=16)
add("fedas-dropped", LATE, batch_size=4, drop_last=True)
add("fedpac", lamda=0.6)
add("fedpac-late", LATE, lamda=5.0)
add("fedpac-order", LATE, lamda=1.0, order=-1)
add("fedproto", lamda=0.8)
add("fedproto-absent", ABSENT, lamda=0.8)
add("moon", mu=1.0, tau=0.5)
add("moon-late", LATE, mu=5.0, tau=0.2)
add("apfl", alpha=0.5)
add("apfl-late", LATE, alpha=0.25)
add("fedbn", model=normed)
add("fedbn-late", LATE, model=normed)
add("scaffold", server_learning_rate=1.0)
add("scaffold-late", LATE, server_learning_rate=0.7)
add("feddyn", alpha=0.4)
add("feddyn-late", LATE, alpha=0.4)
answers.save()
