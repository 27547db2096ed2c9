"""FLGo: its servers and clients in its own simulation, without evaluation.

Models are averaged by size in all its methods, as the others do.
"""

import json
import sys
import tempfile
import time
from dataclasses import replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import flgo
from flgo.benchmark.base import BasicTaskPipe
from flgo.benchmark.toolkits.cv.classification import GeneralCalculator

from . import loaded, race

MODULES = {"FedAvg": "fedavg", "FedProx": "fedprox", "Ditto": "ditto"}
QUIET = {
    "learning_rate_decay": 1.0,
    "lr_scheduler": "-1",
    "eval_interval": 0,
    "gpu": [],
    "no_log_console": True,
    "no_tqdm": True,
    "train_holdout": 0.0,
}


def algorithm_of(method, draw):
    """FLGo's server and client with a clock, as its algorithms are given."""
    theirs = import_module(f"flgo.algorithm.{MODULES[method]}")

    # FLGo wraps methods of the classes that it is given: these are thrown away
    class Server(theirs.Server):
        def initialize(self, *args, **kwargs):
            super().initialize(*args, **kwargs)
            self.aggregation_option, self.ticks = "other", []

        def sample(self):
            return next(draw).tolist()

        def iterate(self):
            out = super().iterate()
            self.ticks.append(time.process_time())
            return out

    class Client(theirs.Client):
        pass

    found = ModuleType(f"clocked.{method}")
    found.Server, found.Client = Server, Client
    return found


def benchmark_of(case):
    """The case as a benchmark of FLGo, under a name that it can import."""

    class Pipe(BasicTaskPipe):
        feddata = {"client_names": [str(i) for i in range(case.task.C)]}

        def load_data(self, option):
            rows = loaded(case.name)[1]
            names = self.feddata["client_names"]
            return {n: {"train": r} for n, r in zip(names, rows)}

    sys.modules["fedlib_case.core"] = SimpleNamespace(
        TaskPipe=Pipe, TaskCalculator=GeneralCalculator
    )
    return "fedlib_case"


def federation(case, batch, cohort, rounds, method="FedAvg", epochs=1, **more):
    """more: FLGo's name and value of one hyperparameter (mu)."""
    option = QUIET | {
        "num_rounds": rounds,
        "num_epochs": epochs,
        "learning_rate": case.lr,
        "batch_size": batch,
        # int(clients x proportion) must be the cohort
        "proportion": min(1.0, (cohort + 0.5) / case.task.C),
        "algo_para": list(more.values()) or None,
    }
    draw = replace(case, cohort=cohort).cohorts()
    argv, sys.argv = sys.argv, sys.argv[:1]  # FLGo reads the command line
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "info").write_text(json.dumps({"benchmark": benchmark_of(case)}))
        Path(folder, "record").mkdir()
        model = flgo.convert_model(case.module, case.name)
        server = flgo.init(folder, algorithm_of(method, draw), option, model)
        sys.argv = argv
        server.model.model.load_state_dict(case.model().state_dict())
        server.run()
    return server.ticks[-1] - server.ticks[0], server.model


if __name__ == "__main__":
    race("flgo", f"flgo {version('flgo')}", federation)
