"""FedAvg the way it is usually written: a DataLoader per client, a deep copy of the
model, an optimizer object.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader


def fit(model, loader, lr, epochs=1, part=None, pull=None):
    """Descend on the cross-entropy; part: the parameters that move (None: all); pull:
    (mu, anchor) adds mu/2 |w - anchor|^2.
    """
    model.train()
    optimizer = torch.optim.SGD(part or model.parameters(), lr=lr)
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            if pull:
                pairs = zip(model.parameters(), pull[1].parameters())
                far = sum(((p - a.detach()) ** 2).sum() for p, a in pairs)
                loss = loss + pull[0] / 2 * far
            loss.backward()
            optimizer.step()


def difference(a, b):
    """Largest difference of two models' parameters, in units of the largest one of b; a
    may be a body, that is only the first of them.
    """
    pairs = list(zip(a, b))
    return max(
        ((p - q).abs().max() / q.abs().max().clamp(min=1e-12)).item() for p, q in pairs
    )


class Usual:
    """state: the global model.

    One call of `round` trains the clients ids [M] and averages them by size.
    """

    epochs = 1  # passes over a client's rows

    def __init__(self, case, batch=None, seed=0):
        self.case, self.model, self.lr = case, case.model(seed), case.lr
        # a list of (x, y): quicker than TensorDataset
        pairs = [list(zip(x, y)) for x, y in case.clients]
        self.loaders = [
            DataLoader(p, batch or case.task.batch, shuffle=True) for p in pairs
        ]
        self.sizes = torch.tensor([len(p) for p in pairs], dtype=torch.double)

    def round(self, ids):
        models = [self.local(c) for c in ids.tolist()]
        p = self.weights(ids)
        new = {k: sum(p_i * m[k] for p_i, m in zip(p, models)) for k in models[0]}
        self.model.load_state_dict(self.model.state_dict() | new)

    def local(self, c):
        """What client c uploads."""
        model = copy.deepcopy(self.model)
        fit(model, self.loaders[c], self.lr, self.epochs)
        return model.state_dict()

    def weights(self, ids):
        return self.sizes[ids] / self.sizes[ids].sum()
