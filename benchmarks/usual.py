"""Methods the way they are usually written, with PyTorch and the paper beside it: a
DataLoader per client, a deep copy of the model, an optimizer object.
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
    apart = [(p - q).abs().max() / q.abs().max().clamp(min=1e-12) for p, q in zip(a, b)]
    return max(v.item() for v in apart)


class Usual:
    """FedAvg. model: the global one; one call of `round` trains the clients ids [M] and
    averages them by size.
    """

    epochs = 1  # passes over a client's rows

    def __init__(self, case, batch=None, seed=0, **hp):
        self.case, self.model, self.lr = case, case.model(seed), case.lr
        pairs, batch = case.pairs(), batch or case.task.batch
        self.loaders = [DataLoader(p, batch, shuffle=True) for p in pairs]
        self.sizes = torch.tensor([len(p) for p in pairs], dtype=torch.double)
        self.__dict__.update(hp)

    def round(self, ids):
        models = [self.local(c) for c in ids.tolist()]
        p = self.weights(ids)
        new = {k: sum(p_i * m[k] for p_i, m in zip(p, models)) for k in models[0]}
        self.model.load_state_dict(self.model.state_dict() | new)

    def rounds(self, draw):
        """f(n) trains n rounds of the cohorts that are drawn."""
        return lambda n: [self.round(next(draw)) for _ in range(n)] and None

    def fit(self, model, c, epochs=None, **how):
        fit(model, self.loaders[c], self.lr, epochs or self.epochs, **how)

    def local(self, c):
        """What client c uploads."""
        model = copy.deepcopy(self.model)
        self.fit(model, c)
        return model.state_dict()

    def weights(self, ids):
        return self.sizes[ids] / self.sizes[ids].sum()


class FedProx(Usual):
    mu = 0.1

    def fit(self, model, c, **how):
        super().fit(model, c, pull=(self.mu, self.model))


class Own(Usual):
    """own: a model per client, made when it first trains."""

    def __init__(self, *args, **hp):
        super().__init__(*args, **hp)
        self.own, self.first = {}, copy.deepcopy(self.model)

    def mine(self, c):
        if c not in self.own:
            self.own[c] = copy.deepcopy(self.first)
        return self.own[c]


class Ditto(Own):
    lam = 1.0

    def local(self, c):
        self.fit(self.mine(c), c, pull=(self.lam, self.model))
        return super().local(c)


class FedPer(Own):
    """The last layer is the head and stays at home."""

    def parts(self, model):
        """Parameters of the body, and of the head."""
        ps = list(model.parameters())
        return ps[:-2], ps[-2:]

    def body(self, model):
        """The state of the body."""
        return dict(list(model.state_dict().items())[:-2])

    def receive(self, c):
        model = self.mine(c)
        model.load_state_dict(model.state_dict() | self.body(self.model))
        return model

    def local(self, c):
        model = self.receive(c)
        self.fit(model, c)
        return copy.deepcopy(self.body(model))


class FedRep(FedPer):
    head_epochs = 1

    def fit(self, model, c, **how):
        """Head and body by turns; the other rests."""
        body, head = self.parts(model)
        turns = (head, body, self.head_epochs), (body, head, self.epochs)
        for part, rest, epochs in turns:
            model.requires_grad_(True)
            for p in rest:
                p.requires_grad_(False)
            super().fit(model, c, epochs, part=part)
        model.requires_grad_(True)


class FedAS(FedPer):
    """Old features are kept on download; Fisher traces are the weights."""

    align_lr = 0.01

    def __init__(self, *args, **hp):
        super().__init__(*args, **hp)
        self.traces = {}

    def receive(self, c):
        old = copy.deepcopy(self.mine(c))
        model, loader = super().receive(c), self.loaders[c]
        with torch.no_grad():
            seen = [(old[:-1](x), y) for x, y in loader]
        z, y = (torch.cat(v) for v in zip(*seen))
        means = {k: z[y == k].mean(0) for k in y.unique().tolist()}
        optimizer = torch.optim.SGD(self.parts(model)[0], lr=self.align_lr)
        for x, y in loader:
            z = model[:-1](x)
            far = [((z[y == k] - means[k]) ** 2).mean() for k in y.unique().tolist()]
            optimizer.zero_grad()
            sum(far).backward()
            optimizer.step()
        return model

    def local(self, c):
        up, model = super().local(c), self.mine(c)
        self.traces[c] = 0.0
        for x, y in self.loaders[c]:
            loss = F.cross_entropy(model(x), y)
            gs = torch.autograd.grad(loss, [*model.parameters()])
            self.traces[c] += sum((g**2).sum() for g in gs).item()
        return up

    def weights(self, ids):
        a = torch.tensor([self.traces[c] for c in ids.tolist()], dtype=torch.double)
        return a / a.sum()


class FedGA(Usual):
    """Weights by the error of the model as sent, on rows for validation."""

    alpha = 5.0

    def __init__(self, *args, **hp):
        super().__init__(*args, **hp)
        self.acc, task = {}, self.case.task
        pairs = [(list(zip(task.x[r], task.y[r])), len(r)) for r in task.val]
        self.val = [DataLoader(rows, n) for rows, n in pairs]

    def local(self, c):
        right = lambda x, y: (self.model(x).argmax(1) == y).double().mean()
        with torch.no_grad():
            each = torch.stack([right(x, y) for x, y in self.val[c]])
        self.acc[c] = each.mean().item()
        return super().local(c)

    def weights(self, ids):
        e = torch.tensor([1 - self.acc[c] for c in ids.tolist()], dtype=torch.double)
        return self.alpha**e / (self.alpha**e).sum()
