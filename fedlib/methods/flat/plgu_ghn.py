"""A hypernetwork whose models are trained flat, layer by layer."""

from dataclasses import dataclass

from torch.func import vmap

from ...core.method import Card
from ...core.tree import without
from ..personal.pfedhn import PFedHN
from .plgu import LayerWise


@dataclass(frozen=True)
class PLGUGHN(LayerWise, PFedHN):
    """pFedHN whose clients take pairs of steps, the second at a perturbed point.

    Derived, not printed: named in Qu, Li, Han, Duan, Shen, Chen. How to Prevent the
    Poor Performance Clients for Personalized Federated Learning. CVPR 2023, whose
    supplement holds the procedure. This one follows from pFedHN and from PLGU-GRep:

        theta <- theta - lr g,  then  theta <- theta - lr grad F_i(theta + e)
                                                                             eq:ghn-pair

    The server scores (LayerWise) the model it writes for client i against the mean of
    the models it would write for all C clients, and sends L numbers along. (Against the
    mean of the cohort's, scores would depend on who else is present.) perturb = "none"
    leaves two plain steps per batch: pFedHN with twice the steps.
    """

    card = Card("plgu2023", "a hypernetwork whose models are made flat (derived)")

    def send(self, server, ids):
        down, middle = super().send(server, ids), self.reference(server)
        scores = vmap(lambda w: self.scores(self.movement(w, middle)))
        return down | {"s": scores(without(down["w"], self.task.buffers))}

    def local(self, down, mine, shard):
        w, s = down["w"], lambda g: down["s"]
        pair = self.twice(self.step(self.loss), self.lr, s)
        trained = self.descend(pair, w, shard)  # eq:ghn-pair
        return mine, self.change(w, trained, shard)
