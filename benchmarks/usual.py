"""FedAvg the way it is usually written: a DataLoader per client, a deep copy of the
model, an optimizer object.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader


class Usual:
    """state: the global model.

    One call of `round` trains the clients ids [M] and averages them by size.
    """

    def __init__(self, case, batch=None, seed=0):
        self.model, self.lr = case.model(seed), case.lr
        # a list of (x, y): quicker than TensorDataset
        pairs = [list(zip(x, y)) for x, y in case.clients]
        self.loaders = [
            DataLoader(p, batch or case.task.batch, shuffle=True) for p in pairs
        ]
        self.sizes = torch.tensor([len(p) for p in pairs])

    def round(self, ids):
        models = []
        for c in ids.tolist():
            model = copy.deepcopy(self.model)
            model.train()
            optimizer = torch.optim.SGD(model.parameters(), lr=self.lr)
            for x, y in self.loaders[c]:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            models.append(model.state_dict())
        p = self.sizes[ids] / self.sizes[ids].sum()
        self.model.load_state_dict(
            {k: sum(p_i * m[k] for p_i, m in zip(p, models)) for k in models[0]}
        )
