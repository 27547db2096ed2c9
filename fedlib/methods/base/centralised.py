"""No federation: what a model gets that sees the rows of all clients."""

from dataclasses import dataclass, replace

import torch

from ...core.method import Card, Method


@dataclass(frozen=True)
class Centralised(Method):
    """One model is trained on the rows of all clients, as if they lay in one place.

        F(w) = sum_i n_i / n  F_i(w)                              eq:centralised-loss
        w <- `epochs` passes of SGD on F from w                       eq:centralised

    The control for every federation: what does it cost that rows stay where they are?
    A round is as many passes over all rows as a client of FedAvg makes over its own, or
    as many batches as all clients make together. Batches mix the clients, so they are
    always shuffled. Only a simulation can do this.
    """

    card = Card("mcmahan2017", "one model on the rows of all clients (a control)")
    ruled = False
    who = "all"

    def plans(self):
        steps = self.batches * self.task.C or None
        return {"train": self.plan(self.epochs, steps=steps, shuffle=True)}

    def server(self, w, r):
        self.pooled(r)  # who has no rows, as in a deployment, says so here
        return {"w": w}

    def local(self, down, mine, shard):
        return mine, {"n": shard.n}

    def aggregate(self, server, up, r):
        return {"w": self.fit(self.loss, server["w"], self.pooled(r))}  # eq:centralised

    def pooled(self, r):
        """The shard of round r that holds the training rows of all clients."""
        task = self.task  # its first client stands for all; nobody scores this one
        everything = (torch.cat(task.train),)  # eq:centralised-loss
        rows = {"train": everything, "val": task.val[:1], "test": task.test[:1]}
        one, first = replace(task, **rows, owners=()), torch.tensor([0])
        return one.shards(int(r.key), r.t, r.rounds, first, self.plans())[0]
