"""Updates that point the same way count more."""

from dataclasses import dataclass

import torch

from ...core.method import Card, hp
from ...core.tree import leaves, normalize, without
from .aligned import Aligned


@dataclass(frozen=True)
class GRACE(Aligned):
    """Aligned local steps, and a server that trusts updates which agree with others.

    Zhang, Fan, Xu, Yao, Zhang, Wang. GRACE: A Generalized and Personalized Federated
    Learning Method for Medical Imaging. MICCAI 2023; formulas from its released code,
    whose client half is missing and rebuilt (`Aligned` with meta = "grace").

        D_i = w - w_i,   s_i = mean over j != i of cos(D_i, D_j)    eq:grace-consistency
        s  <- s - min s + 0.001  if min s < 0
        s  <- s / max s          if max s > 1                       eq:grace-shift
        p_i = n_i s_i / sum_j n_j s_j
        w  <- w - server_lr sum_i p_i D_i                           eq:grace-step

    Parameters only; buffers are averaged with the same p. Once one s_i is negative, the
    least consistent client counts for next to nothing. Equal updates, and a client
    alone, give FedAvg. cosine: "total" of all parameters together; "split" the mean
    over tensors; "reweight" with weights that fall from 1 at the first tensor to 0.
    """

    card = Card("zhang2023grace", "aligned local steps; consistent updates count more")
    ruled = False

    meta: str = hp(
        "grace", "the local step", "released code", ("mldg", "grace", "joint", "none")
    )
    cosine: str = hp(
        "total", "of which parts", "their code", ("total", "split", "reweight")
    )
    server_lr: float = hp(1.0, "step size of the server", "released code")

    def aggregate(self, server, up, r):
        w, n = server["w"], up["n"]  # n [M]
        D = self.progress(w, up["w"])  # [M, P]
        sizes = [v.numel() for v in leaves(without(w, self.task.buffers))]
        s = self.consistency(D, sizes)
        p = normalize(n * s)
        w = self.move(w, up["w"], self.server_lr * p @ D, p)  # eq:grace-step
        return {"w": w, "log": {"weight": p, "consistency": s}}

    def consistency(self, D, sizes):
        """s [M], positive, from updates D [M, P] of tensors of these sizes."""
        cos, others = self.cosines(D, sizes), max(len(D) - 1, 1)
        s = (cos.sum(1) - cos.diagonal()) / others  # eq:grace-consistency
        s = torch.where(s.min() < 0, s - s.min() + 1e-3, s)
        s = torch.where(s.max() > 1, s / s.max(), s)  # eq:grace-shift
        return torch.where(s.max() > 0, s, torch.ones_like(s))  # no update: FedAvg

    def cosines(self, D, sizes):
        """cos(D_i, D_j) [M, M], of all parameters or as a mean over the tensors."""
        parts = [D] if self.cosine == "total" else D.split(sizes, 1)
        units = [v / v.norm(dim=1, keepdim=True).clamp(min=1e-6) for v in parts]
        cos, L = torch.stack([u @ u.T for u in units]), len(parts)
        q = D.new_ones(L)
        if self.cosine == "reweight" and L > 1:
            q = torch.linspace(1, 0, L, dtype=D.dtype, device=D.device)
        return torch.einsum("l,lij->ij", normalize(q), cos)
