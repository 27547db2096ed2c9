"""A trained adapter on a frozen CLIP."""

from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F

from ...core.local import adam
from ...core.method import Card, hp
from ...nets.clip import Adapter
from ...pieces.steps import Private
from ..base.fedavg import Uniform


def check_network(method, kind):
    """ValueError where a method's task has a network of another kind."""
    task, name = method.task, kind.__name__
    if task is not None and not isinstance(task.network, kind):
        raise ValueError(
            f"{type(method).__name__} trains the network {name}, and {task.name!r} has "
            f"{type(task.network).__name__}: give the task {name}"
        )


@dataclass(frozen=True)
class FedCLIP(Uniform):
    """Averaging of a small adapter beside a frozen CLIP, whose towers are never sent.

    Lu, Hu, Wang, Xie. FedCLIP: Fast Generalization and Personalization for CLIP in
    Federated Learning. IEEE Data Engineering Bulletin, 2023.

        u_i  = z_i * A(z_i), normalised                               eq:fedclip-adapter
        S_ij = s u_i' t_(y_j),    P = softmax of a row, Q of a column of S
        L    = -1/(2B) sum_i (log P_ii + log Q_ii)                    eq:fedclip-loss
        A   <- 1/M sum_i A_i                                          eq:fedclip-average

    A: the network Adapter. z_i, t_(y_i): features of image i of a batch of B rows, and
    of the sentence of its class; s: CLIP's logit scale. Adam with new moments in every
    round. In S two rows of one class count as a mismatch although their sentences are
    the same: so it is published. fedclip_loss = "class_ce" is cross-entropy over the K
    classes instead. A batch of one row is left out. Features of images are computed
    once, without augmentation.
    """

    card = Card("lu2023fedclip", "averages a small adapter beside a frozen CLIP")

    lr: float = hp(5e-5, "step size of Adam", "the authors' code")
    decay: float = hp(0.2, "weight decay, added to the gradient", "the authors' code")
    beta1: float = hp(0.9, "decay of mean gradients", "the authors' code", (0, 1))
    beta2: float = hp(0.98, "decay of mean squares", "the authors' code", (0, 1))
    eps: float = hp(1e-6, "keeps Adam from dividing by 0", "the authors' code")
    fedclip_loss: str = hp(
        "contrastive", "loss of the adapter", "published", ("contrastive", "class_ce")
    )

    def __post_init__(self):
        super().__post_init__()
        check_network(self, Adapter)
        if isinstance(self.step, Private) and self.fedclip_loss == "contrastive":
            raise ValueError(
                "FedCLIP.step is Private, and the contrastive loss has no gradient of "
                "a row to clip; take fedclip_loss = 'class_ce'"
            )
        if self.momentum or 1 in (self.beta1, self.beta2):
            raise ValueError(
                f"FedCLIP has momentum = {self.momentum}, beta1 = {self.beta1}, beta2 "
                f"= {self.beta2}: give Adam its betas below 1, and no momentum"
            )

    def local(self, down, mine, shard):
        loss, batches = self.contrastive, shard.altered(paired)
        if self.fedclip_loss == "class_ce":
            loss, batches = self.loss, shard
        step, betas = self.step(loss), (self.beta1, self.beta2)
        w = adam(step, down["w"], batches, self.lr, betas, self.eps, self.decay)
        return mine, {"w": w, "n": shard.n}

    def contrastive(self, w, b):
        """The contrastive loss [] over the rows of a batch that count."""
        net = self.task.network
        S = net.cosines(net.feat(w, b.x, b), net.text.to(b.x)[b.y])  # [B, B]
        i = torch.arange(len(S), device=S.device)
        both = S, S.T
        if b.m is not None:  # padding is no mismatch; its diagonal keeps it finite
            padding = (b.m == 0) & (i[:, None] != i)
            both = [s.masked_fill(padding, -inf) for s in both]
        loss = sum(F.cross_entropy(s, i, reduction="none") for s in both)
        return b.avg(loss) / 2  # eq:fedclip-loss


def paired(batches):
    """Those in which two rows or more count."""
    for b in batches:
        if b.m is not None:
            yield b._replace(m=b.m * (b.m.sum() > 1))
        elif len(b.y) > 1:
            yield b
