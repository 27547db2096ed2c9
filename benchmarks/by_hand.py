"""Methods the way they are usually written, on the loop of `usual`: what one would
write first with PyTorch and the paper beside it.
"""

from __future__ import annotations

import copy
import itertools

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from .usual import Usual, fit


class FedProx(Usual):
    def __init__(self, case, batch=None, seed=0, mu=0.1):
        super().__init__(case, batch, seed)
        self.mu = mu

    def local(self, c):
        model = copy.deepcopy(self.model)
        fit(model, self.loaders[c], self.lr, self.epochs, pull=(self.mu, self.model))
        return model.state_dict()


class Own(Usual):
    """own: a model per client, made when it first trains."""

    def __init__(self, case, batch=None, seed=0):
        super().__init__(case, batch, seed)
        self.own, self.first = {}, copy.deepcopy(self.model)

    def mine(self, c):
        if c not in self.own:
            self.own[c] = copy.deepcopy(self.first)
        return self.own[c]


class Ditto(Own):
    def __init__(self, case, batch=None, seed=0, lam=1.0):
        super().__init__(case, batch, seed)
        self.lam = lam

    def local(self, c):
        pull = (self.lam, self.model)
        fit(self.mine(c), self.loaders[c], self.lr, self.epochs, pull=pull)
        return super().local(c)


class FedPer(Own):
    """The last layer is the head and stays at home."""

    def parts(self, model):
        """Parameters of the body, and of the head."""
        ps = list(model.parameters())
        return ps[:-2], ps[-2:]

    def body(self, model):
        """The state of the body."""
        state = model.state_dict()
        return {k: state[k] for k in list(state)[:-2]}

    def receive(self, c):
        model = self.mine(c)
        model.load_state_dict(model.state_dict() | self.body(self.model))
        return model

    def local(self, c):
        model = self.receive(c)
        fit(model, self.loaders[c], self.lr, self.epochs)
        return copy.deepcopy(self.body(model))


class FedRep(FedPer):
    def __init__(self, case, batch=None, seed=0, head_epochs=1):
        super().__init__(case, batch, seed)
        self.head_epochs = head_epochs

    def fit_head(self, model, c):
        body, head = self.parts(model)
        for p in body:
            p.requires_grad_(False)
        fit(model, self.loaders[c], self.lr, self.head_epochs, head)
        for p in body:
            p.requires_grad_(True)

    def local(self, c):
        model = self.receive(c)
        self.fit_head(model, c)
        body, head = self.parts(model)
        for p in head:
            p.requires_grad_(False)
        fit(model, self.loaders[c], self.lr, self.epochs, body)
        for p in head:
            p.requires_grad_(True)
        return copy.deepcopy(self.body(model))


class FedAS(FedPer):
    """Old features are kept on download; Fisher traces are the weights."""

    def __init__(self, case, batch=None, seed=0, align_lr=0.01):
        super().__init__(case, batch, seed)
        self.align_lr, self.traces = align_lr, {}

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
            loss = sum(
                ((z[y == k] - means[k]) ** 2).mean() for k in y.unique().tolist()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model

    def local(self, c):
        up, model = super().local(c), self.mine(c)
        self.traces[c] = 0.0
        for x, y in self.loaders[c]:
            gs = torch.autograd.grad(
                F.cross_entropy(model(x), y), list(model.parameters())
            )
            self.traces[c] += sum((g**2).sum() for g in gs).item()
        return up

    def weights(self, ids):
        a = torch.tensor([self.traces[c] for c in ids.tolist()], dtype=torch.double)
        return a / a.sum()


class PLGUGRep(FedRep):
    """FedRep with a second step at a point perturbed layer by layer."""

    def __init__(self, case, batch=None, seed=0, head_epochs=1, rho=0.05):
        super().__init__(case, batch, seed, head_epochs)
        self.rho, self.scores = rho, {}

    def layers(self, model):
        body, _ = self.parts(model)
        return [body[i : i + 2] for i in range(0, len(body), 2)]

    def local(self, c):
        phi, model = copy.deepcopy(self.model), self.receive(c)
        s = self.score(c, phi)
        self.fit_head(model, c)
        body = [p for layer in self.layers(model) for p in layer]
        for x, y in itertools.chain(*[self.loaders[c]] * self.epochs):
            g = torch.autograd.grad(F.cross_entropy(model(x), y), body)
            length = sum((v**2).sum() for v in g).sqrt() + 1e-12
            e = [self.rho / length * s[i // 2] * v for i, v in enumerate(g)]
            with torch.no_grad():
                for p, v, w in zip(body, g, e):
                    p.sub_(self.lr * v).add_(w)
            g = torch.autograd.grad(F.cross_entropy(model(x), y), body)
            with torch.no_grad():
                for p, v, w in zip(body, g, e):
                    p.sub_(w).sub_(self.lr * v)
        self.scores[c] = copy.deepcopy(model)
        return copy.deepcopy(self.body(model))

    def score(self, c, phi):
        """Where this client's body was when it last trained, against the one sent."""
        L = len(self.layers(phi))
        if c not in self.scores:
            return torch.ones(L)
        moved = [
            sum(((p - q) ** 2).sum() for p, q in zip(a, b)).sqrt().item()
            / sum(p.numel() for p in a)
            for a, b in zip(self.layers(self.scores[c]), self.layers(phi))
        ]
        m = torch.tensor(moved, dtype=torch.double)
        return L * m / m.sum() if m.sum() > 1e-12 else torch.ones(L)


class FedGA(Usual):
    """Weights by the error of the model as sent, on rows for validation."""

    def __init__(self, case, batch=None, seed=0, alpha=5.0):
        super().__init__(case, batch, seed)
        self.alpha, self.acc, task = alpha, {}, case.task
        self.val = [
            DataLoader(list(zip(task.x[r], task.y[r])), len(r)) for r in task.val
        ]

    def local(self, c):
        with torch.no_grad():
            hits = [
                (self.model(x).argmax(1) == y).double().mean() for x, y in self.val[c]
            ]
        self.acc[c] = torch.stack(hits).mean().item()
        return super().local(c)

    def weights(self, ids):
        e = torch.tensor([1 - self.acc[c] for c in ids.tolist()], dtype=torch.double)
        return self.alpha**e / (self.alpha**e).sum()
