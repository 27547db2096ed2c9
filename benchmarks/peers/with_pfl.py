"""pfl-research: SimulatedBackend, FederatedAveraging and WeightByDatapoints in one
process. It does not shuffle rows.
"""

import time
from importlib.metadata import version

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from . import race


class Clock(TrainingProcessCallback):
    def __init__(self):
        self.ticks = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        self.ticks.append(time.process_time())
        return False, Metrics()


def federation(case, batch, cohort, rounds):
    users = {str(c): case.rows(c) for c in range(case.task.C)}
    made = lambda user: Dataset(users[user], user_id=user)
    data = FederatedDataset(made, get_user_sampler("minimize_reuse", list(users)))
    module, clock = case.model(), Clock()
    # pfl asks the module for its loss and metrics
    module.loss = lambda x, y, eval=False: F.cross_entropy(module(x), y)
    module.metrics = lambda x, y, eval=True: {}
    server = torch.optim.SGD(module.parameters(), lr=1.0)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=10**9,
            train_cohort_size=cohort,
            val_cohort_size=0,
        ),
        SimulatedBackend(data, data, [WeightByDatapoints()]),
        PyTorchModel(module, torch.optim.SGD, server),
        NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=case.lr, local_batch_size=batch
        ),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    return clock.ticks[-1] - clock.ticks[0], module


if __name__ == "__main__":
    note = lambda *_: "rows are not shuffled"
    race("pfl", f"pfl {version('pfl')}", federation, note=note)
