"""Two rounds of fluke's personalised methods on the federation of
problem.py -> fluke.npz, fluke.json.

    python -m venv env && env/bin/pip install fluke-fl && env/bin/python \\
        goldens/make_fluke.py

fluke's own server, clients and channel do the work. Its random choice of clients is
replaced by full participation, or by the cohorts named in the arguments; the test sets
stay empty.
"""

import importlib  # noqa: I001  problem comes before what imports torchvision
from copy import deepcopy

import numpy as np
import torch
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
from fluke.algorithms.fedproto import FedProtoModel
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader
from fluke.nets import EncoderHeadNet


def net():
    """Encoder and head; the parameters have the order of problem.py."""
    encoder = torch.nn.Sequential(torch.nn.Linear(INPUTS, HIDDEN), torch.nn.ReLU())
    return fill(EncoderHeadNet(encoder, torch.nn.Linear(HIDDEN, K)))


def federation(
    file,
    name,
    part=None,
    given=True,
    batch=BATCH,
    cohorts=(ALL,) * ROUNDS,
    weighted=True,
    server=None,
    optimizer=None,
    **client,
):
    """The server and the clients of an algorithm after one round per cohort, and the
    server's model after each.

    part: what the server holds: the whole network (None), its "encoder", its "head",
    or no model (""). given: whether a client is given a model of its own at the
    start. optimizer: (name of the optimizer in the algorithm's file, its arguments),
    None: SGD.
    """
    module = importlib.import_module(f"fluke.algorithms.{file}")
    algorithm = getattr(module, name)
    Client, Server = algorithm.get_client_class(None), algorithm.get_server_class(None)
    kind, more = (
        ("SGD", {})
        if optimizer is None
        else (getattr(module, optimizer[0]), optimizer[1])
    )
    optimizer = OptimizerConfigurator(
        {"name": kind, "lr": LR} | more,
        {"name": "StepLR", "step_size": 1, "gamma": 1.0},
    )
    clients = [
        Client(
            index=i,
            train_set=FastDataLoader(
                *rows(i), num_labels=K, batch_size=batch, shuffle=False
            ),
            test_set=None,
            optimizer_cfg=optimizer,
            loss_fn=torch.nn.CrossEntropyLoss(),
            **client,
            **({"model": net()} if given else {}),
        )
        for i in range(len(SIZES))
    ]
    held = {None: net(), "encoder": net().encoder, "head": net().head, "": None}[part]
    s = Server(
        model=held, test_set=None, clients=clients, weighted=weighted, **(server or {})
    )
    for c in clients:
        c.set_channel(s.channel)
    models, looks = [], []
    for t, ids in enumerate(cohorts):
        present = [clients[i] for i in ids]
        s.broadcast_model(present)
        for c in present:
            c.local_update(t + 1)
        if hasattr(s, "prototypes"):
            looks.append(deepcopy([c.prototypes for c in clients]))
        s.aggregate(present, s.receive_client_models(present, state_dict=False))
        models.append(flat(s.model) if part != "" else table(s.prototypes))
    return s, clients, models, looks


def table(prototypes):
    """{class: prototype or None} as [K, D], NaN where there is none."""
    return np.stack(
        [
            np.full(HIDDEN, np.nan) if prototypes[k] is None else prototypes[k].numpy()
            for k in range(K)
        ]
    )


def add(
    golden,
    file,
    name,
    what="parameters of what the server holds, after each round [R, P]",
    then=None,
    **arguments,
):
    s, clients, models, looks = federation(file, name, **arguments)
    common = {
        "lr": LR,
        "batch_size": arguments.pop("batch", BATCH),
        "rounds": len(models),
        "weighted": True,
    }
    said = {
        k: [list(c) for c in v] if k == "cohorts" else v
        for k, v in arguments.items()
        if k not in ("part", "given")
    }
    own = [flat(c.model) for c in clients if c.model is not None]
    arrays = {
        "models": (models, what),
        "clients": (
            own,
            "each client's model after the last round, not yet downloaded [C, P]",
        ),
    }
    if hasattr(clients[0], "personalized_model"):
        arrays["personal"] = (
            [flat(c.personalized_model) for c in clients],
            "personal models after the last round [C, P]",
        )
    if hasattr(clients[0], "weights"):
        weights = [
            np.concatenate([w.numpy().ravel() for w in c.weights]) for c in clients
        ]
        arrays["weights"] = (
            weights,
            "weights of the local aggregation, of the head's parameters [C, P']",
        )
    if looks:
        arrays["prototypes"] = (
            [[table(p) for p in ps] for ps in looks],
            "prototypes of the clients, as uploaded [R, C, K, D]",
        )
    answers.add(
        golden,
        f"fluke.algorithms.{file}.{name}: broadcast_model, local_update, aggregate",
        common | said,
        arrays,
    )
    if then:
        then(golden, s, clients)


def scores(model, client):
    """What a model says of a client's rows [n, K]."""
    with torch.no_grad():
        return model(rows(client.index)[0]).numpy()


def prediction(golden, server, clients):
    """What FedProto predicts with: a client's own prototypes."""
    said = [scores(FedProtoModel(c.model, c.prototypes, c.device), c) for c in clients]
    answers.add(
        f"{golden}-view",
        "fluke.algorithms.fedproto.FedProtoModel, of every client, after the rounds "
        "of fedproto",
        {},
        {
            "scores": (
                np.concatenate(said),
                (
                    "minus the mean squared distance to each prototype, each client's "
                    "rows in turn [N, K]"
                ),
            )
        },
    )


def tune_babu(golden, server, clients):
    """FedBABU's fine-tuning, which starts from what each client holds."""
    for c in clients:
        c.fine_tune()
    answers.add(
        f"{golden}-tuned",
        "fluke.algorithms.fedbabu.FedBABUClient.fine_tune, after the rounds of fedbabu",
        {"mode": "full", "fine_tuning_epochs": TUNE},
        {
            "scores": (
                np.concatenate([scores(c.model, c) for c in clients]),
                "logits, each client's rows in turn [N, K]",
            )
        },
    )


def tune(golden, server, clients):
    """The end of a federation: the global model is downloaded and fine-tuned."""
    server.broadcast_model(clients)
    for c in clients:
        c.finalize()
    answers.add(
        f"{golden}-tuned",
        "fluke.client.Client.finalize, after the rounds of fedavg",
        {"fine_tuning_epochs": TUNE},
        {
            "scores": (
                np.concatenate([scores(c.model, c) for c in clients]),
                "logits, each client's rows in turn [N, K]",
            )
        },
    )


TUNE = 3
answers = Answers("fluke", ("fluke-fl",))
add(
    "fedavg",
    "fedavg",
    "FedAVG",
    given=False,
    local_epochs=EPOCHS,
    fine_tuning_epochs=TUNE,
    then=tune,
)
add(
    "fedavg-default",
    "fedavg",
    "FedAVG",
    given=False,
    local_epochs=EPOCHS,
    weighted=False,
)
add("fedprox", "fedprox", "FedProx", given=False, local_epochs=EPOCHS, mu=0.3)
add("ditto", "ditto", "Ditto", local_epochs=EPOCHS, tau=3, lam=0.7)
add("fedper", "fedper", "FedPer", part="encoder", local_epochs=EPOCHS)
add(
    "fedper-partial",
    "fedper",
    "FedPer",
    part="encoder",
    local_epochs=EPOCHS,
    cohorts=((0, 2, 3), (1, 2)),
)
add("fedrep", "fedrep", "FedRep", part="encoder", local_epochs=3, tau=1)
add("lg-fedavg", "lg_fedavg", "LGFedAVG", part="head", local_epochs=EPOCHS)
add(
    "fedbabu",
    "fedbabu",
    "FedBABU",
    part="encoder",
    local_epochs=EPOCHS,
    mode="full",
    fine_tuning_epochs=TUNE,
    then=tune_babu,
)
TABLE = "prototypes of the server after each round [R, K, D], NaN where there is none"
add(
    "fedproto",
    "fedproto",
    "FedProto",
    TABLE,
    part="",
    local_epochs=EPOCHS,
    n_protos=K,
    lam=0.8,
    server={"n_protos": K},
    then=prediction,
)
add(
    "fedproto-absent",
    "fedproto",
    "FedProto",
    TABLE,
    part="",
    local_epochs=EPOCHS,
    n_protos=K,
    lam=0.8,
    server={"n_protos": K},
    cohorts=((0,), (0, 1, 2, 3), (0,), (0, 1)),
)
add(
    "fedala",
    "fedala",
    "FedALA",
    given=False,
    local_epochs=EPOCHS,
    batch=max(SIZES),
    ala_sample_size=1.0,
    eta=1.0,
    conergence_threshold=0.1,
)
add(
    "fedala-strict",
    "fedala",
    "FedALA",
    given=False,
    local_epochs=EPOCHS,
    batch=max(SIZES),
    ala_sample_size=1.0,
    eta=1.0,
)
add(
    "fedala-partial",
    "fedala",
    "FedALA",
    given=False,
    local_epochs=EPOCHS,
    batch=max(SIZES),
    ala_sample_size=1.0,
    eta=1.0,
    conergence_threshold=0.1,
    cohorts=(ALL, (0, 1), (1, 2, 3)),
)
add(
    "fedsam",
    "fedsam",
    "FedSAM",
    given=False,
    local_epochs=EPOCHS,
    rho=0.3,
    optimizer=("SAMOptimizer", {}),
)
add(
    "fedsam-once",
    "fedsam",
    "FedSAM",
    given=False,
    local_epochs=1,
    batch=max(SIZES),
    rho=0.3,
    optimizer=("SAMOptimizer", {}),
    cohorts=(ALL,),
)
add(
    "pfedme",
    "pfedme",
    "PFedMe",
    given=False,
    local_epochs=EPOCHS,
    k=3,
    server={"beta": 0.5},
    optimizer=("PFedMeOptimizer", {"lamda": 2.0, "mu": 0.01}),
)
answers.save()
