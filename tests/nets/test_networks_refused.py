"""What cannot be trained is refused before anything trains."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from toys_core import toy

from fedlib.core.task import Task
from fedlib.nets import MLP, FedAvgCNN, Linear, Module


class Then(nn.Module):
    """A linear layer, and something done to its output; in training alone, if so."""

    def __init__(self, then, always=True):
        super().__init__()
        self.fc, self.then, self.always = nn.Linear(5, 3), then, always

    def forward(self, x):
        z = self.fc(x)
        return self.then(z) if self.always or self.training else z


def normed(norm):
    return nn.Sequential(norm, nn.Linear(5, 3))


def with_statistics():
    norm = nn.InstanceNorm1d(1, track_running_stats=True)
    return nn.Sequential(nn.Unflatten(1, (1, 5)), norm, nn.Flatten(), nn.Linear(5, 3))


NETWORKS = {  # what must be named: what is given
    "2 logits": Linear(5, 2),
    "Linear gives 2": nn.Linear(5, 2),
    r"\[2\] for 2 rows": Then(lambda z: z[:, 0]),
    r"\[1, 3\] for 2": Then(lambda z: z[:1]),
    "int64": Then(lambda z: z.argmax(1)),
    "probabilities": Then(lambda z: z.softmax(1)),
    "no sigmoid": Then(torch.sigmoid),
    "alone and beside": Then(lambda z: z - z.mean(0)),
    "draw nothing": Then(lambda z: z + torch.randn(3)),
    "in training than": Then(lambda z: z[:, :2], False),
    "mixes rows or draws": Then(lambda z: z * torch.rand(3), False),
    "nn.GroupNorm": Then(lambda z: z - z.mean(0), False),
    "tensor 1.running": with_statistics(),
    "track_running_stats": normed(nn.BatchNorm1d(5, track_running_stats=False)),
    "x in place": nn.Sequential(nn.ReLU(inplace=True), nn.Linear(5, 3)),
    "whole numbers": nn.Sequential(nn.Embedding(3, 2), nn.Flatten(), nn.Linear(10, 3)),
    "momentum, as": normed(nn.BatchNorm1d(5, momentum=None)),
}


def test_networks_that_cannot_be_trained():
    for word, network in NETWORKS.items():
        with pytest.raises(ValueError, match=word):
            replace(toy(), network=network)
            pytest.fail(word)


def test_heads_starts_and_sizes():
    x, y, c = torch.randn(40, 5), torch.arange(40) % 3, torch.arange(40) % 4
    mlp = lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3))
    task = lambda net, head: Task.from_arrays(x, y, c, net, head=head)
    calls = {
        "2.weight": lambda: task(mlp(), "2.weigth"),
        "'fc'": lambda: task(MLP(5, 6, 3), "fc"),
        "its head once": lambda: task(Module(mlp(), head="0"), "2"),
        "fresh": lambda: Module(mlp(), start="fresch"),
        "size >= 16": lambda: FedAvgCNN(3, 10, size=12),
    }
    for word, call in calls.items():
        with pytest.raises(ValueError, match=word):
            call()
