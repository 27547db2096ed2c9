"""FedLab: StandalonePipeline with its SGDSerialClientTrainer and SyncServerHandler,
which averages clients uniformly.
"""

import contextlib  # noqa: I001
import time
from dataclasses import replace
from importlib.metadata import version

# FedLab imports torchvision, which needs this first beside a CPU build of torch
import fedlib.nets.vision  # noqa: F401

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader

from .harness import race


class Data:
    """The part of FedLab's data set that its trainer uses."""

    def __init__(self, case):
        self.pairs = [list(zip(x, y)) for x, y in case.clients]

    def get_dataloader(self, client, batch):
        return DataLoader(self.pairs[client], batch, shuffle=True)


class Quiet:
    info = staticmethod(lambda *_: None)


class Clocked(StandalonePipeline):
    def evaluate(self):
        self.ticks.append(time.process_time())


def federation(case, batch, cohort, rounds):
    handler = SyncServerHandler(
        case.model(), rounds, cohort / case.task.C, logger=Quiet
    )
    draw = replace(case, cohort=cohort).cohorts()
    handler.sample_clients = lambda: next(draw).tolist()
    trainer = SGDSerialClientTrainer(case.model(), case.task.C, logger=Quiet)
    trainer.setup_dataset(Data(case))
    trainer.setup_optim(1, batch, case.lr)
    pipeline = Clocked(handler, trainer)
    pipeline.ticks = []
    with contextlib.redirect_stdout(None):
        pipeline.main()
    return pipeline.ticks[-1] - pipeline.ticks[0], handler.model


if __name__ == "__main__":
    race(
        "fedlab",
        "FedLab",
        f"fedlab {version('fedlab')}",
        federation,
        note=lambda *_: "averages clients uniformly",
    )
