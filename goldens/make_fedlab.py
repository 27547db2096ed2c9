"""Rounds of FedLab's algorithms on the federation of problem.py -> fedlab.npz,
fedlab.json.

    python -m venv env && env/bin/pip install torchvision fedlab && env/bin/python \\
        goldens/make_fedlab.py

FedLab's own trainers and server handlers do the work; what they upload is handed over
in place of its network. Two trainers do not run as they are and are given what they
lack, and no more: qFedAvgClientTrainer reads a learning rate `lr` that its setup_optim
does not keep, and DittoSerialClientTrainer reads `args` (its local_process calls
functions that do not exist, so `train` is called directly).
"""

# problem comes before what imports torchvision
from types import SimpleNamespace  # noqa: I001

import torch
from problem import (
    BATCH,
    EPOCHS,
    HIDDEN,
    INPUTS,
    LR,
    ROUNDS,
    SIZES,
    START,
    Answers,
    K,
    fill,
    flat,
    rows,
)
from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.algorithm.ditto import DittoSerialClientTrainer
from fedlab.contrib.algorithm.fedprox import (
    FedProxSerialClientTrainer,
    FedProxServerHandler,
)
from fedlab.contrib.algorithm.qfedavg import qFedAvgClientTrainer, qFedAvgServerHandler
from fedlab.utils.aggregator import Aggregators
from torch.utils.data import DataLoader, TensorDataset

C = len(SIZES)
Quiet = SimpleNamespace(info=lambda *_: None)
Data = SimpleNamespace(
    get_dataloader=lambda i, batch: DataLoader(TensorDataset(*rows(i)), batch)
)


def net():
    return fill(
        torch.nn.Sequential(
            torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, K)
        )
    )


def handler_of(handler):
    h = handler(net(), ROUNDS, 1.0, logger=Quiet)
    h.num_clients = C
    return h


def serial(handler, trainer, *optim):
    """The models of the server [R, P] when one trainer plays all clients."""
    server, t, models = handler_of(handler), trainer(net(), C, logger=Quiet), []
    t.setup_dataset(Data)
    t.setup_optim(EPOCHS, BATCH, LR, *optim)
    for _ in range(ROUNDS):
        t.local_process(server.downlink_package, list(range(C)))
        for package in t.uplink_package:
            server.load(package)
        models.append(flat(server.model))
    return models


def qfedavg(q, epochs, batch):
    server, models = handler_of(qFedAvgServerHandler), []
    for _ in range(ROUNDS):
        packages = []
        for i in range(C):
            t = qFedAvgClientTrainer(net(), logger=Quiet)
            t.lr = LR
            t.setup_dataset(Data)
            t.setup_optim(epochs, batch, LR, q)
            t.local_process(server.downlink_package, i)
            packages.append(t.uplink_package)
        for package in packages:
            server.load(package)
        models.append(flat(server.model))
    return models


def ditto(mu):
    """Server models [R, P], and the clients' own models at the end [C, P]."""
    server, t, own, models = (
        handler_of(SyncServerHandler),
        DittoSerialClientTrainer(net(), C, logger=Quiet),
        [START] * C,
        [],
    )
    t.args = SimpleNamespace(epochs=EPOCHS, lr=LR, mu=mu)
    t.setup_optim(EPOCHS, BATCH, LR)
    for _ in range(ROUNDS):
        (down,) = server.downlink_package
        for i in range(C):
            mine, up = t.train(
                down, torch.as_tensor(own[i]), Data.get_dataloader(i, BATCH)
            )
            own[i] = mine.numpy().copy()
            server.load([up])
        models.append(flat(server.model))
    return models, own


MODELS = "parameters of the server after each round [R, P]"
common = {"lr": LR, "batch_size": BATCH, "epochs": EPOCHS, "rounds": ROUNDS}
answers = Answers("fedlab", ("fedlab",))
answers.add(
    "fedavg",
    "SGDSerialClientTrainer.local_process, SyncServerHandler.load",
    common,
    {"models": (serial(SyncServerHandler, SGDSerialClientTrainer), MODELS)},
)
answers.add(
    "fedprox",
    "FedProxSerialClientTrainer.local_process, FedProxServerHandler.load",
    common | {"mu": 0.3},
    {"models": (serial(FedProxServerHandler, FedProxSerialClientTrainer, 0.3), MODELS)},
)
one = {"epochs": 1, "batch_size": max(SIZES)}
answers.add(
    "qfedavg",
    "qFedAvgClientTrainer.local_process, qFedAvgServerHandler.load",
    common | one | {"q": 2.0},
    {"models": (qfedavg(2.0, 1, max(SIZES)), MODELS)},
)
answers.add(
    "qfedavg-batches",
    "qFedAvgClientTrainer.local_process, qFedAvgServerHandler.load",
    common | {"q": 2.0},
    {"models": (qfedavg(2.0, EPOCHS, BATCH), MODELS)},
)
models, own = ditto(0.7)
answers.add(
    "ditto",
    "DittoSerialClientTrainer.train, SyncServerHandler.load",
    common | {"mu": 0.7},
    {
        "models": (models, MODELS),
        "personal": (own, "personal models after the last round [C, P]"),
    },
)
updates = torch.tensor(START) + 0.3 * torch.randn(
    C, len(START), generator=torch.Generator().manual_seed(2)
)
answers.add(
    "aggregate",
    "Aggregators.fedavg_aggregate",
    {"weights": SIZES},
    {
        "clients": (
            updates.numpy(),
            "parameters of the clients: start + 0.3 normal [C, P]",
        ),
        "model": (
            Aggregators.fedavg_aggregate(
                list(updates), torch.tensor(SIZES) * 1.0
            ).numpy(),
            "their average [P]",
        ),
    },
)
answers.save()
