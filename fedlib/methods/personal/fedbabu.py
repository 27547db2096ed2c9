"""A body learned under a head that stays random."""

from dataclasses import dataclass

from ...core.method import Card, hp
from ..base.finetune import FedAvgFT
from .fedper import two_parts


@dataclass(frozen=True)
class FedBABU(FedAvgFT):
    """Average bodies trained under one random, frozen head; fine-tune both before use.

    Oh, Kim, Yun. FedBABU: Toward Enhanced Representation for Federated Image
    Classification. ICLR 2022. h0: the head of the common start.

        theta_i <- epochs passes of SGD on F_i(., h0)                 eq:fedbabu
        theta   <- sum_i n_i / n  theta_i                             eq:fedbabu-average
        (v_i, h_i) = `tune` passes of SGD on F_i from (theta, h0)     eq:tuned

    (v_i, h_i) are thrown away after use. The head is no argument of the descent, and is
    never sent: a client keeps h0 from the start. View "tuned" starts at the aggregated
    body for every client, online or not, and is the method; "global" is the shared body
    under the random head. The authors average uniformly and fine-tune 5 passes at a
    step size of their own; 10 passes at the common one follow PFLlib.
    """

    tune: int = hp(10, "passes of fine-tuning before use", "PFLlib", grid=(5, 10))

    card = Card("fedbabu2022", "a body under a frozen random head, then fine-tuned")

    def server(self, w, r):
        return {"w": two_parts(self, w, "trains the body of a network")[0]}

    def client(self, w, shard):
        return {"w": self.task.split(w)[1]}  # h0

    def local(self, down, mine, shard):
        loss = self.loss.beside(mine["w"])
        body = self.fit(loss, down["w"], shard)  # eq:fedbabu
        return mine, {"w": body, "n": shard.n}  # averaged: eq:fedbabu-average

    def views(self, down, mine, shard):
        return super().views({"w": down["w"] | mine["w"]}, mine, shard)
