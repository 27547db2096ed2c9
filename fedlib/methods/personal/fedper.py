"""A shared body and a head of one's own."""

from dataclasses import dataclass

import torch

from ...core.method import Card
from ..base.fedavg import FedAvg


def two_parts(method, w, does, bare=False):
    """Body and head of the model w; ValueError for a network that has not both.

    bare: a network whose head is empty will do.
    """
    (body, head), names = method.task.split(w), method.task.head
    if not body or len(head) < len(names) or not (names or bare):
        raise ValueError(
            f"{type(method).__name__} {does}, and {method.task.network} has the body "
            f"({', '.join(body)}) and the head ({', '.join(names)}) of {', '.join(w)}: "
            "give the task a network with a hidden layer, and a `head` among its layers"
        )
    return body, head


def class_mean(weights, means):
    """Means [M, K, D] of M clients' classes, with weights [M, K] -> (their mean
    [K, D], the weights' sum [K]); 0 for a class without weight."""
    n, total = weights.sum(0), torch.einsum("mk,mkd->kd", weights, means)
    return total / n.clamp(min=1)[:, None], n


@dataclass(frozen=True)
class FedPer(FedAvg):
    """Average the body of the network; the head never leaves the device.

    Arivazhagan, Aggarwal, Singh, Choudhary. Federated Learning with Personalization
    Layers. arXiv 1912.00818, 2019, Algorithm 1.

        min  sum_i n_i / n  F_i(theta, h_i)   over theta, h_1 .. h_C           eq:fedper

    theta: the body, h_i: the heads. Body and head are trained together, then only theta
    is averaged. Every client receives the new body, trained or not, so an absent client
    combines a fresh body with its old head. An empty head gives FedAvg.
    """

    card = Card("fedper2019", "a shared body, averaged; a head that stays")
    download = "all"
    post = ("personal",)

    def server(self, w, r):
        return {"w": two_parts(self, w, "shares the body of a network", bare=True)[0]}

    def client(self, w, shard):
        return {"w": w}

    def receive(self, down, mine, shard):
        return {"w": mine["w"] | down["w"]}  # the new body under the own head

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard)  # eq:fedper
        return {"w": w}, {"w": self.task.split(w)[0], "n": shard.n}

    def views(self, down, mine, shard):
        return {"personal": self.task.net(mine["w"])}


@dataclass(frozen=True)
class FedPerOnline(FedPer):
    """FedPer in which only the clients that train receive the body.

    So an absent client keeps body and head together. Not in the paper: the control that
    shows how much of a method's gain is merely who downloads when.
    """

    card = FedPer.card._replace(line="FedPer whose absent clients keep their body")
    download = "cohort"
