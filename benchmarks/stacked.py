"""Several seeds of FedAvg as one federation: S times the clients, S server models.

Weights, data and cohorts are those of the S runs, and so are the results where batches
are not shuffled; shuffled batches are drawn by other keys: other samples, same work.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from fedlib import Task
from fedlib.core.tree import pick, stack, tmap
from fedlib.methods.base.fedavg import FedAvg


@dataclass(frozen=True)
class Stacked(FedAvg):
    """Client s C + c is client c of seed s, and is averaged with its own seed's."""

    seeds: int = 1

    def server(self, w, r):
        return {"w": stack([self.task.init(s) for s in range(self.seeds)])}

    def send(self, server, ids):
        seed = ids.div(self.task.C // self.seeds, rounding_mode="floor")
        return {"w": pick(server["w"], seed)}

    def aggregate(self, server, up, r):
        n = up["n"].view(self.seeds, -1)
        p = n / n.sum(1, keepdim=True)
        parts = lambda x: x.view(*p.shape, *x.shape[1:])
        mean = lambda x: torch.einsum("sm,sm...->s...", p, parts(x))
        return {"w": tmap(mean, up["w"])}


def copies(task, S):
    """The same clients S times, as one task."""
    N, splits = len(task.x), (task.train, task.val, task.test)
    rows = [tuple(r + s * N for s in range(S) for r in split) for split in splits]
    x, y = task.x.repeat(S, *(1 for _ in task.x.shape[1:])), task.y.repeat(S)
    more = {"K": task.K, "batch": task.batch, "kind": task.kind}
    return Task(f"{task.name} x {S}", task.network, x, y, *rows, **more)
