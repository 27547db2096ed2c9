"""FedLab: StandalonePipeline with its SGDSerialClientTrainer and SyncServerHandler,
which averages clients uniformly.
"""

import contextlib  # noqa: I001
import time
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace

# FedLab imports torchvision, which needs this first beside a CPU build of torch
import fedlib.nets.vision  # noqa: F401

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.core.standalone import StandalonePipeline
from torch.utils.data import DataLoader

from . import loaded, race

QUIET = SimpleNamespace(info=lambda *_: None)


class Clocked(StandalonePipeline):
    def evaluate(self):
        self.ticks.append(time.process_time())


def federation(case, batch, cohort, rounds):
    share, pairs = cohort / case.task.C, loaded(case.name)[1]
    handler = SyncServerHandler(case.model(), rounds, share, logger=QUIET)
    draw = replace(case, cohort=cohort).cohorts()
    handler.sample_clients = lambda: next(draw).tolist()
    trainer = SGDSerialClientTrainer(case.model(), case.task.C, logger=QUIET)
    loader = lambda client, batch: DataLoader(pairs[client], batch, shuffle=True)
    trainer.setup_dataset(SimpleNamespace(get_dataloader=loader))
    trainer.setup_optim(1, batch, case.lr)
    pipeline = Clocked(handler, trainer)
    pipeline.ticks = []
    with contextlib.redirect_stdout(None):
        pipeline.main()
    return pipeline.ticks[-1] - pipeline.ticks[0], handler.model


if __name__ == "__main__":
    note = lambda *_: "averages clients uniformly"
    race("fedlab", f"fedlab {version('fedlab')}", federation, note=note)
