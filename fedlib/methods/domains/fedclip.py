"""A trained adapter on a frozen CLIP."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.local import Private, adam
from ...core.method import Card, hp
from ...nets.clip import Adapter
from ..base.fedavg import Uniform


@dataclass(frozen=True)
class FedCLIP(Uniform):
    """Averaging of a small adapter beside a frozen CLIP; the towers stay where they are
    and are never sent.

    Lu, Hu, Wang, Xie. FedCLIP: Fast Generalization and Personalization for CLIP in
    Federated Learning. IEEE Data Engineering Bulletin, 2023.

        u_i = z_i * A(z_i), normalised        A: the network Adapter  eq:fedclip-adapter
        S_ij = s u_i' t_(y_j)                  images and sentences of a batch of B rows
        L = -1/(2B) sum_i (log softmax_j(S_ij)[i] + log softmax_j(S_ji)[i])
                                                                      eq:fedclip-loss
        A <- 1/M sum_i A_i                     every client the same  eq:fedclip-average

    Adam with new moments in every round. In S two rows of one class count as a mismatch
    although their sentences are the same: so it is published, and with few classes
    nearly every batch has such rows. fedclip_loss = "class_ce" is cross-entropy over
    the K classes instead. A row alone has nothing to be told from, so a batch of one
    row is left out.

    The paper sends images through the tower in every pass; here their features are
    computed once, without augmentation.
    """

    card = Card(
        "FedCLIP: Fast Generalization and Personalization for CLIP in "
        "Federated Learning",
        "Lu et al.",
        "IEEE Data Engineering Bulletin",
        2023,
        "lu2023fedclip",
        "averages a small adapter beside a frozen CLIP",
        "https://arxiv.org/abs/2302.13485",
    )

    lr: float = hp(
        5e-5, "step size of Adam", range=(0, math.inf), source="the authors' code"
    )
    decay: float = hp(
        0.2,
        "weight decay, added to the gradient",
        range=(0, math.inf),
        source="the authors' code",
    )
    beta1: float = hp(
        0.9, "decay of the mean of gradients", range=(0, 1), source="the authors' code"
    )
    beta2: float = hp(
        0.98,
        "decay of the mean of squared gradients",
        range=(0, 1),
        source="the authors' code",
    )
    eps: float = hp(
        1e-6,
        "keeps Adam from dividing by 0",
        range=(0, math.inf),
        source="the authors' code",
    )
    fedclip_loss: str = hp(
        "contrastive",
        "loss of the adapter",
        choices=("contrastive", "class_ce"),
        source="published: contrastive",
    )

    def __post_init__(self):
        super().__post_init__()
        if self.task is not None and not isinstance(self.task.network, Adapter):
            raise ValueError(
                f"FedCLIP trains the network Adapter, and {self.task.name!r} "
                f"has {type(self.task.network).__name__}: give the task network "
                "{name: Adapter} and data {name: features}"
            )
        if isinstance(self.step, Private) and self.fedclip_loss == "contrastive":
            raise ValueError(
                "FedCLIP.step is Private, which clips the gradient of each row; the "
                "contrastive loss has none: take "
                'fedclip_loss="class_ce"'
            )
        if self.momentum:
            raise ValueError(
                f"FedCLIP.momentum = {self.momentum}: its clients use Adam; set "
                "beta1 instead"
            )
        if 1 in (self.beta1, self.beta2):
            raise ValueError(
                f"FedCLIP has beta1 = {self.beta1} and beta2 = {self.beta2}: give "
                "numbers below 1"
            )

    def local(self, down, mine, shard):
        loss, shard_ = (
            (self.loss, shard)
            if self.fedclip_loss == "class_ce"
            else (self.contrastive, shard.altered(paired))
        )
        w = adam(
            self.step(loss),
            down["w"],
            shard_,
            self.lr,
            (self.beta1, self.beta2),
            self.eps,
            self.decay,
        )
        return mine, {"w": w, "n": shard.n}

    def contrastive(self, w, b):
        """eq:fedclip-loss over the rows of a batch that count."""
        net = self.task.network
        S = net.cosines(net.feat(w, b.x, b), net.text.to(b.x)[b.y])  # [B, B]
        i = torch.arange(len(S), device=S.device)
        # padding is nobody's mismatch; its own diagonal keeps it finite
        if b.m is not None:
            out = (b.m == 0) & (i[:, None] != i)
            both = S.masked_fill(out, -math.inf), S.T.masked_fill(out, -math.inf)
        else:
            both = S, S.T
        return b.avg(sum(F.cross_entropy(s, i, reduction="none") for s in both)) / 2


def paired(batches):
    """Those in which two rows or more count."""
    for b in batches:
        if b.m is not None:
            yield b._replace(m=b.m * (b.m.sum() > 1))
        elif len(b.y) > 1:
            yield b
