"""An own model that is tied to the common one, and a common one that follows it."""

from dataclasses import dataclass

import torch

from ...core.local import scan
from ...core.method import Card, hp
from ...core.tree import add, sub, tmap, where
from ..base.fedavg import FedAvg
from ..drift.corrections import mean_update, stepped


@dataclass(frozen=True)
class PFedMe(FedAvg):
    """Federated averaging of Moreau envelopes.

    T. Dinh, Tran, Nguyen. Personalized Federated Learning with Moreau Envelopes.
    NeurIPS 2020, Algorithm 1. Client i descends on the envelope
    min_theta F_i(theta) + lam/2 |theta - w|^2 instead of F_i. On each batch:

        inner_steps times, with g_i = grad F_i(theta_i),
        theta_i <- theta_i - inner_lr (g_i + lam (theta_i - w_i))       eq:pfedme-inner
        w_i     <- w_i - outer_lr lam (w_i - theta_i)                   eq:pfedme-outer
        w       <- (1 - beta) w + beta sum_i n_i / n  w_i               eq:pfedme-server

    lam (w_i - theta_i) is the envelope's gradient. Both start from the downloaded w;
    theta_i goes on from batch to batch, as in the authors' code. theta_i is the
    personal model; that code, by a shared tensor, scores w_i in its place. Its weight
    decay of theta is `decay`. Only the cohort trains. A client that never trained is
    served by the present w. Batch norm: w_i carries the statistics of theta_i; the
    server averages them without beta. The common step size `lr` is not used: it would
    be far too long for lam = 15. Limits: lam -> infinity gives theta_i = w_i and FedAvg
    with step outer_lr. On any convex F_i the inner descent needs inner_lr lam < 2 (with
    curvature h: inner_lr (lam + h) < 2); outer_lr lam < 2 keeps the descent on the
    envelope from diverging, and from 1 on w_i overshoots theta_i.
    """

    lam: float = hp(15.0, "tie of theta to w", "released scripts", grid=(1.0, 2.0))
    inner_steps: int = hp(5, "steps of theta on each batch", "the paper: K", (1, 10**4))
    inner_lr: float = hp(0.03, "step size of theta", "a choice")
    outer_lr: float = hp(0.03, "step size of w", "a choice", grid=(0.1, 0.3, 0.9))
    beta: float = hp(1.0, "how far the server goes", "scripts; 2 when tuned")

    card = Card("pfedme2020", "descent on each client's Moreau envelope")
    post = ("personal",)

    def __post_init__(self):
        super().__post_init__()
        for name in ("inner_lr", "outer_lr"):
            lr = getattr(self, name)
            if not 0 < self.lam or lr * self.lam >= 2:
                raise ValueError(
                    f"{type(self).__name__}.{name} = {lr!r} with lam = {self.lam!r}: "
                    f"give a tie lam above 0, and {name} below 2 / lam, better half of "
                    "that, or the descent diverges"
                )

    def client(self, w, shard):
        return {"w": w, "seen": shard.n < 0}

    def local(self, down, mine, shard):
        gradient, lam = self.step(self.loss), self.lam

        def batch(c, b):
            theta, w, v = c["theta"], c["w"], c["v"]
            stats = self.task.refresh(theta, b) if self.task.buffers else {}
            for _ in range(self.inner_steps):
                g = add(gradient(theta, b), sub(theta, w), lam)
                v = add(add(g, theta, self.decay), v, self.momentum)
                theta = add(theta, v, -self.inner_lr)  # eq:pfedme-inner
            w = add(w, sub(w, theta), -self.outer_lr * lam)  # eq:pfedme-outer
            return {"theta": theta | stats, "w": w | stats, "v": v}

        w = down["w"]
        c = scan(batch, {"theta": w, "w": w, "v": tmap(torch.zeros_like, w)}, shard)
        mine = {"w": c["theta"], "seen": torch.ones_like(mine["seen"])}
        return mine, {"w": c["w"], "n": shard.n}

    def aggregate(self, server, up, r):
        w, p = server["w"], self.weights(up)
        d, buffers = mean_update(self, w, up["w"], p)
        w = stepped(w, d, self.beta, buffers)  # eq:pfedme-server
        return {"w": w, "log": {"weight": p}}

    def views(self, down, mine, shard):
        own = where(mine["seen"], mine["w"], down["w"])
        return super().views(down, mine, shard) | {"personal": self.task.net(own)}
