"""The cases, as a fedlib Task and as a torch Module with the same weights.

    synthetic-30    softmax regression, Synthetic(0.5, 0.5) with the published sizes,
                    30 clients, 10 per round
    synthetic-100   the same with 100 clients of log-normal sizes, all in every round
    synthetic-mlp   the clients of synthetic-30 and a hidden layer, 60-32-10
    mlp             784-64-10, 51 clients x 200 rows, all in every round
    cnn             two convolutions, GroupNorm, one linear layer; 20 clients x 250
                    images of 3 x 32 x 32, all in every round
    resnet18        ResNet-18 for small images, GroupNorm; 2 clients x 50 images of
                    3 x 32 x 32 in one batch, both in every round

mlp, cnn and resnet18 time arithmetic, so their pixels are noise. Training rows only
count; each client has a few others for the checks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedlib import Task
from fedlib.core.pool import Pool
from fedlib.data.synthetic import synthetic
from fedlib.nets import CNN, MLP, Linear, ResNet18
from fedlib.nets.layers import ensure_torchvision, groups

NAMES = ("synthetic-30", "synthetic-100", "mlp", "cnn", "resnet18")
SMALL = ("synthetic-30", "synthetic-mlp", "mlp")  # for methods, one beside the other
IMAGES = ("cnn", "resnet18")
SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Case:
    """module() has the layers of task.network in the same order;
    lr and cohort are those of FedAvg.
    """

    name: str
    task: Task
    module: Callable[[], nn.Module]
    lr: float
    cohort: int

    def model(self, seed=0):
        """A Module with the initial weights of the task."""
        m = self.module()
        with torch.no_grad():
            for p, v in zip(m.parameters(), self.task.init(seed).values(), strict=True):
                p.copy_(v)
        return m.to(self.task.x.dtype)

    def rows(self, c):
        """x [n, ...], y [n] of one client's training rows."""
        return self.task.x[self.task.train[c]], self.task.y[self.task.train[c]]

    def pairs(self):
        """Each client's rows as a list of (x, y): quicker than a TensorDataset."""
        return [list(zip(*self.rows(c))) for c in range(self.task.C)]

    @property
    def rows_per_round(self):
        return float(np.mean([len(r) for r in self.task.train]) * self.cohort)

    def cohorts(self, seed=0):
        """Cohorts [M] without end, the same for every variant.

        Clients take turns: all are drawn once before one is drawn again, so that few
        rounds are as much work as many.
        """
        g, M = torch.Generator().manual_seed(seed), self.cohort
        while True:
            order = torch.randperm(self.task.C, generator=g)
            for ids in order[: len(order) // M * M].split(M):
                yield ids.sort().values


def noise(name, network, shape, clients, n, batch):
    """A task of random pixels and labels: n training rows at each client."""
    each = -(-n * 5 // 4)  # of which four fifths are training rows
    g, N = torch.Generator().manual_seed(0), clients * each
    x, y = torch.randn(N, *shape, generator=g), torch.randint(10, (N,), generator=g)
    pool = Pool(name, x, y, 10, "synthetic")
    return Task.from_rows(name, network, pool, torch.arange(N).split(each), batch=batch)


def regression(name, network, sizes=None):
    """A task of Synthetic(0.5, 0.5)."""
    pool = synthetic(0.5, 0.5, sizes) if sizes else synthetic(0.5, 0.5)
    owned = [(pool.owner == c).nonzero()[:, 0] for c in range(len(pool.owners))]
    return Task.from_rows(name, network, pool, owned)


def many_sizes():
    drawn = np.random.default_rng(0).lognormal(4, 2, 100).astype(int)
    return np.minimum(5000, drawn + 50).tolist()


def layers(*sizes):
    """The layers of fedlib.nets.MLP(*sizes)."""
    pairs = [nn.Linear(*p) for p in zip(sizes, sizes[1:])]
    return nn.Sequential(pairs[0], *(m for p in pairs[1:] for m in (nn.ReLU(), p)))


def cnn():
    """The layers of fedlib.nets.CNN(3, 10)."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, 2, 2, bias=False),
        *(nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(16, 32, 3, 1, 1, bias=False),
        *(nn.GroupNorm(8, 32), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(512, 10)),
    )


def resnet18():
    """The layers of fedlib.nets.ResNet18(10, norm="group", stem="cifar")."""
    ensure_torchvision()
    from torchvision import models

    norm = lambda channels: nn.GroupNorm(groups(channels), channels)
    net = models.resnet18(num_classes=10, norm_layer=norm)
    net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return net


def case(name):
    """The case with that name."""
    if name in ("synthetic-30", "synthetic-100"):
        many = name == "synthetic-100"
        task = regression(name, Linear(60, 10), many_sizes() if many else None)
        return Case(name, task, lambda: nn.Linear(60, 10), 0.01, 100 if many else 10)
    if name == "synthetic-mlp":
        task = regression(name, MLP(60, 32, 10))
        return Case(name, task, lambda: layers(60, 32, 10), 0.01, 10)
    if name == "mlp":
        task = noise(name, MLP(784, 64, 10), (784,), 51, 200, 32)
        return Case(name, task, lambda: layers(784, 64, 10), 0.05, 51)
    if name == "cnn":
        return Case(name, noise(name, CNN(3, 10), SHAPE, 20, 250, 32), cnn, 0.05, 20)
    if name == "resnet18":
        network = ResNet18(10, norm="group", stem="cifar")
        return Case(name, noise(name, network, SHAPE, 2, 50, 50), resnet18, 0.05, 2)
    known = ", ".join(dict.fromkeys((*NAMES, *SMALL)))
    raise ValueError(f"unknown case {name!r} (known: {known})")
