"""Two rounds of FLGo's horizontal methods on the federation of problem.py -> flgo.npz,
flgo.json.

    python -m venv env && env/bin/pip install flgo cvxopt && env/bin/python \\
        goldens/make_flgo.py

FLGo's own server and client objects train and aggregate. Two things of its machinery
are replaced: the simulated network (here the server calls its clients in turn), and the
shuffling of the data loader.
"""

import importlib
from types import SimpleNamespace

import cvxopt
import torch
from flgo.benchmark.toolkits.cv.classification import GeneralCalculator
from flgo.utils.fmodule import FModule
from problem import (
    ALL,
    BATCH,
    EPOCHS,
    HIDDEN,
    INPUTS,
    LR,
    ROUNDS,
    SIZES,
    Answers,
    K,
    fill,
    flat,
    rows,
)

cvxopt.solvers.options |= {
    "show_progress": False,
    "abstol": 1e-12,
    "reltol": 1e-12,
    "feastol": 1e-12,
}
OPTION = {
    "task": "",
    "scene": "horizontal",
    "num_rounds": ROUNDS,
    "num_epochs": EPOCHS,
    "num_steps": -1,
    "batch_size": BATCH,
    "learning_rate": LR,
    "optimizer": "SGD",
    "momentum": 0.0,
    "weight_decay": 0.0,
    "clip_grad": 0.0,
    "algo_para": None,
    "learning_rate_decay": 1.0,
    "lr_scheduler": "-1",
    "proportion": 1.0,
    "sample": "full",
    "aggregate": "other",
    "eval_interval": 1,
    "test_batch_size": 512,
    "test_parallel": False,
    "num_parallels": 1,
    "num_workers": 0,
    "pin_memory": False,
    "server_with_cpu": True,
}


class Net(FModule):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc = torch.nn.Linear(INPUTS, HIDDEN), torch.nn.Linear(HIDDEN, K)

    def forward(self, x):
        return self.fc(self.fc1(x).relu())


class InOrder(GeneralCalculator):
    def get_dataloader(self, dataset, batch_size=64, **more):
        return super().get_dataloader(dataset, batch_size, shuffle=False)


class Party:
    gv = SimpleNamespace(apply_for_device=lambda: torch.device("cpu"))
    TaskCalculator = InOrder


def federation(
    name,
    cohorts=(ALL,) * ROUNDS,
    aggregate=None,
    momentum=0.0,
    weight_decay=0.0,
    **para,
):
    """FLGo's server after one round per cohort, and what it held after each: the model
    and the clients' models.
    """
    module = importlib.import_module(f"flgo.algorithm.{name}")
    option = OPTION | {
        "algo_para": list(para.values()) or None,
        "momentum": momentum,
        "weight_decay": weight_decay,
    }

    class Client(Party, module.Client):
        pass

    class Server(Party, module.Server):
        def sample(self):
            return list(cohorts[self.current_round - 1])

        def communicate(self, ids):
            self.received_clients = ids
            return self.unpack([self.clients[i].reply(self.pack(i)) for i in ids])

    server, clients = Server(option), [Client(option) for _ in SIZES]
    server.model = fill(Net())
    for i, client in enumerate(clients):
        client.set_id(i)
        client.set_data(torch.utils.data.TensorDataset(*rows(i)), "train")
    server.register_clients(clients)
    for party in (server, *clients):
        party.initialize()
    assert list(server.algo_para.items()) == list(para.items()), server.algo_para
    if aggregate:
        server.aggregation_option = aggregate
    models = []
    for _ in cohorts:
        server.iterate()
        server.current_round += 1
        models.append(flat(server.model))
    return server, models


def add(golden, name, more=lambda server: {}, **arguments):
    server, models = federation(name, **arguments)
    said = {
        k: [list(c) for c in v] if k == "cohorts" else v for k, v in arguments.items()
    }
    common = {
        "learning_rate": LR,
        "batch_size": BATCH,
        "num_epochs": EPOCHS,
        "rounds": len(models),
    }
    answers.add(
        golden,
        f"flgo.algorithm.{name}: Server.iterate, once per round",
        common | said,
        {"models": (models, "parameters of the server after each round [R, P]")}
        | more(server),
    )


answers = Answers("flgo", ("flgo", "cvxopt"))
add("fedavg", "fedavg")
add("fedavg-partial", "fedavg", cohorts=((0, 2, 3), (1, 2)))
add("fedavg-uniform", "fedavg", aggregate="uniform")
add("fedavg-momentum", "fedavg", momentum=0.9, weight_decay=0.01)
add("fedprox", "fedprox", mu=0.3)
add("fedprox-sizes", "fedprox", aggregate="other", mu=0.3)
add("qfedavg", "qfedavg", q=2.0)
add("qfedavg-small", "qfedavg", q=0.1)
add(
    "afl",
    "afl",
    learning_rate_lambda=0.1,
    more=lambda s: {
        "lambda": (s.dynamic_lambdas, "mixture after the last round [C]"),
        "result": (
            flat(s.result_model),
            "the model that is scored, after the last round [P]",
        ),
    },
)
add(
    "fedfa",
    "fedfa",
    beta=0.4,
    gamma=0.7,
    more=lambda s: {
        "m": (flat(s.m), "momentum of the server after the last round [P]")
    },
)
add("fedfa-partial", "fedfa", cohorts=((0, 1, 2), (1, 2, 3)), beta=0.4, gamma=0.7)
add("fedfv", "fedfv", alpha=0.0, tau=0)
add("fedfv-kept", "fedfv", alpha=0.4, tau=0)
add("fedfv-tau1", "fedfv", alpha=1.0, tau=1)
add("fedfv-tau3", "fedfv", cohorts=((0, 1), (2, 3), (0, 2), (1, 3)), alpha=0.0, tau=3)
add("fedmgda", "fedmgda", eta=1, epsilon=0.1)
add("fedmgda-free", "fedmgda", eta=1, epsilon=1.0)
add(
    "ditto",
    "ditto",
    mu=0.7,
    more=lambda s: {
        "personal": (
            [flat(c.model) for c in s.clients],
            "personal models after the last round [C, P]",
        )
    },
)
answers.save()
