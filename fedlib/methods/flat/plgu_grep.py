"""A shared body made flat layer by layer, under heads that stay at home."""

from dataclasses import dataclass

import torch

from ...core.method import Card, Method, hp
from ...core.tree import scale, tmap
from ..personal.fedrep import FedRep
from .plgu import LayerWise


@dataclass(frozen=True)
class PLGUGRep(LayerWise, FedRep):
    """FedRep whose body takes pairs of steps, the second at a perturbed point.

    Qu, Li, Han, Duan, Shen, Chen. How to Prevent the Poor Performance Clients for
    Personalized Federated Learning. CVPR 2023, Algorithm 3.

        h_i   <- head_epochs passes of SGD on F_i(phi, .)                   eq:grep-head
        phi_i <- phi_i - lr g                                on each batch, and then
        phi_i <- phi_i - lr grad F_i(phi_i + e, h_i)         on the same    eq:grep-body
        phi   <- sum_i n_i / n  phi_i

    h_i is fitted to phi as received. e comes from g, with scores of how far this
    client's body was from phi when it last trained: the two bodies that equation 10
    compares are equal after the download, 0 / 0 (`against` = "drift" compares after the
    first of the two steps instead). A first training has equal scores. The equations
    write one batch a round; FedRep makes one pass (`steps` = 1 is literal). perturb =
    "none" leaves two plain steps per batch, FedRep-2x. The personal model is the own
    head on the newest shared body, also after training. fresh perturbs along a gradient
    of its own, a third one, as equation 12 reads; the text counts one extra step.
    """

    head_epochs: int = hp(5, "passes for the head", "the paper: K = 5", grid=(1, 5, 10))
    against: str = hp(
        "last", "what phi is compared with", "a choice", ("last", "drift")
    )
    fresh: bool = hp(
        False, "perturb along a third gradient", "equation 12, not the text"
    )
    steps: int = hp(0, "batches of the body; 0: `epochs` passes", "Algorithm 3: 1")

    card = Card("plgu2023", "FedRep with a body made flat layer by layer")
    # nothing to do on download: views put the own head on the newest shared body
    download = "cohort"
    receive = Method.receive

    def plans(self):
        train = {"train": self.plan(1, steps=self.steps)} if self.steps else {}
        return super().plans() | train

    def client(self, w, shard):
        body, head = self.task.split(w)
        return {"head": head, "body": body, "seen": shard.n < 0}

    def local(self, down, mine, shard):
        phi, seen, lr, loss = down["w"], mine["seen"], self.lr, self.loss
        h = self.fit(loss.beside(phi), mine["head"], shard.on("head"))  # eq:grep-head
        last = self.scores(self.movement(mine["body"], phi))
        last = torch.where(seen, last, 1.0)

        def s(g):
            drift = self.movement(scale(g, lr), tmap(torch.zeros_like, g))
            return last if self.against == "last" else self.scores(drift)

        pair = self.twice(self.step(loss.beside(h)), lr, s, self.fresh)
        body = self.descend(pair, phi, shard)  # eq:grep-body
        mine = {"head": h, "body": body, "seen": torch.ones_like(seen)}
        return mine, {"w": body, "n": shard.n}

    def views(self, down, mine, shard):
        return {"personal": self.task.net(down["w"] | mine["head"])}
