"""One aggregation of each of Flower's strategies on models made up for the
purpose -> flower.npz, flower.json.

    python -m venv env && env/bin/pip install flwr torch && env/bin/python \\
        goldens/make_flower.py

Flower has no clients of its own: its strategies aggregate what clients reply. Four
replies (model, number of rows, loss) are handed to the strategies of both of its
interfaces: flwr.serverapp (messages) and the older flwr.server (parameters).
"""

import logging

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common import (
    Code,
    FitRes,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.server import strategy as older
from flwr.serverapp import strategy
from flwr.supercore.task_identity import TaskIdentity
from problem import LR, SHAPES, SIZES, START, Answers

logging.getLogger("flwr").setLevel(logging.ERROR)
# a message wants to know who sends it
TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1
C = len(SIZES)
rng = np.random.default_rng(3)
CLIENTS = START + 0.3 * rng.normal(size=(C, len(START)))
LOSSES = rng.uniform(0.2, 3, C)
CENTRAL = 0.9


def parts(vector):
    """A vector [P] as the arrays of a model."""
    cuts = np.cumsum([np.prod(s) for s in SHAPES.values()])[:-1]
    return [
        a.reshape(s) for a, s in zip(np.split(np.array(vector), cuts), SHAPES.values())
    ]


def vector(arrays):
    return np.concatenate([np.ravel(a) for a in arrays])


def record(v):
    return ArrayRecord(
        {k: Array(np.ascontiguousarray(a)) for k, a in zip(SHAPES, parts(v))}
    )


def replies(clients):
    """The clients' messages, each the reply to a message of the server."""
    out = []
    for i, v in enumerate(clients):
        asked = Message(RecordDict(), dst_node_id=i + 1, message_type="train")
        metrics = MetricRecord(
            {"num-examples": SIZES[i], "train_loss": float(LOSSES[i])}
        )
        out.append(
            Message(
                RecordDict({"arrays": record(v), "metrics": metrics}), reply_to=asked
            )
        )
    return out


class Grid:
    """The part of a grid of nodes that configure_train asks."""

    def get_node_ids(self):
        return range(1, C + 1)


def new(s, clients=CLIENTS):
    """The model after one round of a strategy of flwr.serverapp,
    and the mu that FedProx sends along.
    """
    sent = list(s.configure_train(1, record(START), ConfigRecord(), Grid()))
    arrays, _ = s.aggregate_train(1, replies(clients))
    return vector(arrays[k].numpy() for k in SHAPES), [
        m.content["config"].get("proximal-mu") for m in sent
    ]


def old(s, clients=CLIENTS):
    """The model after one round of a strategy of flwr.server."""
    if hasattr(s, "pre_weights"):
        s.pre_weights = parts(START)
    results = [
        (
            None,
            FitRes(Status(Code.OK, ""), ndarrays_to_parameters(parts(v)), SIZES[i], {}),
        )
        for i, v in enumerate(clients)
    ]
    out, _ = s.aggregate_fit(1, results, [])
    return vector(parameters_to_ndarrays(out))


answers = Answers("flower", ("flwr",))
answers.add(
    "replies",
    "made up for the purpose; no package was called",
    {},
    {
        "clients": (CLIENTS, "parameters of the clients: start + 0.3 normal [C, P]"),
        "losses": (LOSSES, "losses of the clients [C]"),
        "sizes": (SIZES, "rows of the clients [C]"),
    },
)
AFTER, S, O = (
    "parameters of the server after one round [P]",
    "flwr.serverapp.strategy",
    "flwr.server.strategy",
)
answers.add(
    "fedavg",
    f"{S}.FedAvg.aggregate_train",
    {},
    {"model": (new(strategy.FedAvg())[0], AFTER)},
)
answers.add(
    "fedavg-older",
    f"{O}.FedAvg.aggregate_fit",
    {},
    {"model": (old(older.FedAvg()), AFTER)},
)
answers.add(
    "fedavg-older-all",
    f"{O}.FedAvg.aggregate_fit",
    {"inplace": False},
    {"model": (old(older.FedAvg(inplace=False)), AFTER)},
)
model, mu = new(strategy.FedProx(proximal_mu=0.3))
answers.add(
    "fedprox",
    f"{S}.FedProx.configure_train, aggregate_train",
    {"proximal_mu": 0.3},
    {"model": (model, AFTER), "mu": (mu, "the mu that every client is sent [C]")},
)
answers.add(
    "median",
    f"{S}.FedMedian.aggregate_train",
    {},
    {"model": (new(strategy.FedMedian())[0], AFTER)},
)
answers.add(
    "median-three",
    f"{S}.FedMedian.aggregate_train",
    {"clients": "the first three"},
    {"model": (new(strategy.FedMedian(), CLIENTS[:3])[0], AFTER)},
)
answers.add(
    "median-older",
    f"{O}.FedMedian.aggregate_fit",
    {},
    {"model": (old(older.FedMedian()), AFTER)},
)
for golden, q in (("qfedavg", 2.0), ("qfedavg-small", 0.1), ("qfedavg-zero", 0.0)):
    answers.add(
        golden,
        f"{S}.QFedAvg.configure_train, aggregate_train",
        {"client_learning_rate": LR, "q": q},
        {"model": (new(strategy.QFedAvg(client_learning_rate=LR, q=q))[0], AFTER)},
    )
answers.add(
    "qfedavg-older",
    f"{O}.QFedAvg.aggregate_fit",
    {"qffl_learning_rate": LR, "q_param": 2.0, "evaluate_fn": CENTRAL},
    {
        "model": (
            old(
                older.QFedAvg(
                    q_param=2.0,
                    qffl_learning_rate=LR,
                    evaluate_fn=lambda *_: (CENTRAL, {}),
                )
            ),
            AFTER,
        ),
        "loss": (
            CENTRAL,
            (
                "what the server's evaluate_fn says is the loss of the model before "
                "the round []"
            ),
        ),
    },
)
answers.save()
