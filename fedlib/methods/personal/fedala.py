"""A head that is mixed from the old and the new one, element by element."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.local import transformed
from ...core.method import Card, hp
from ...core.tree import add, onehot, sqnorm, sub, tmap, where
from ..base.fedavg import FedAvg


def some(c):
    """Does c hold for any client at hand?

    (Private calls; if they ever go, return True: slower, never wrong.)
    """
    while transformed() and torch._C._functorch.is_functorch_wrapped_tensor(c):
        c = torch._C._functorch.get_unwrapped(c)
    return bool(c.any())


@dataclass(frozen=True)
class FedALA(FedAvg):
    """Each client starts from the downloaded body and a mixture of its own head and the
    downloaded one, and learns the mixture.

    Zhang, Hua, Wang, Song, Xue, Ma, Guan. FedALA: Adaptive Local Aggregation for
    Personalized Federated Learning. AAAI 2023, Algorithm 1 (one layer, the head), and
    its released code.

    l: the client's head of before, g: the downloaded head (K D + K numbers each), A_i:
    as many weights in [0, 1], at first 1.

        h_i  = l + A_i * (g - l)                                          eq:fedala-mix
        A_i <- clip(A_i - eta dF_i/dh (theta, h_i) * (g - l), 0, 1)
            theta as downloaded                                           eq:fedala-step

    The weights are learned on a random contiguous `share` of the client's rows, batches
    in fixed order, by every client in every round, trained or not; l and g stay put
    meanwhile. One pass per round; at first sight of another head as many as it takes
    until the last `window` of more than `window` losses (of the last batch of each
    pass) have a standard deviation below `tol`, at most `cap`. Where l = g, as in round
    0, nothing is learned. eta = 0 keeps A = 1: that is FedAvg. theta does not move
    while A is learned, so the features z [B, D] of the rows are computed once, and the
    rest is linear:

        e = (softmax(z h_W' + h_c) - onehot(y)) / B      [B, K]     dF/dh_W = e' z
            dF/dh_c = 1' e                                              eq:fedala-linear

    The incomplete batch is dropped, as in FedAS's copy of the code; the released code
    keeps it and has no `cap`. The loss is the cross-entropy, whatever `step` and `rule`
    are. Memory: one client's features, n D numbers.
    """

    eta: float = hp(
        1.0,
        "step size of the mixing weights; 0 gives FedAvg",
        range=(0, math.inf),
        grid=(0.1, 1.0, 10.0),
        source="the paper and its code: 1",
    )
    share: float = hp(
        0.8,
        "share of a client's rows on which the weights are learned",
        range=(0, 1),
        source="the paper: 80 %",
    )
    tol: float = hp(
        0.1,
        "standard deviation of losses that ends the first learning",
        range=(0, math.inf),
        source="released code",
    )
    window: int = hp(
        10, "losses that are looked at", range=(1, 10**3), source="released code"
    )
    cap: int = hp(
        50,
        "passes of the first learning at most",
        range=(1, 10**6),
        source="a choice: the released code has none",
    )

    card = Card(
        "FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
        "Zhang et al.",
        "AAAI",
        2023,
        "fedala2023",
        "every client learns, weight by weight, how much of the new head it takes",
        "https://arxiv.org/abs/2212.01197",
    )
    download = "all"
    post = ("personal",)

    def plans(self):
        return super().plans() | {
            "ala": self.plan(1, last="drop", shuffle=False, block=self.share)
        }

    def server(self, w, r):
        _, head = self.task.split(w)
        if [v.dim() for v in head.values()] != [2, 1]:
            raise ValueError(
                "FedALA mixes a linear head, a weight and a bias; the head of "
                f"{self.task.network} is ({', '.join(head)}): give the task a network "
                "whose head is its last linear layer"
            )
        return super().server(w, r)

    def client(self, w, shard):
        return {
            "w": w,
            "A": tmap(torch.ones_like, self.task.split(w)[1]),
            "met": shard.n * 0,
        }

    def receive(self, down, mine, shard):
        (theta, g), (_, l) = self.task.split(down["w"]), self.task.split(mine["w"])
        A, d, rows, losses = mine["A"], sub(g, l), None, []
        differ = on = sqnorm(d) > 0
        while len(losses) < self.cap and some(on):
            rows = rows or [self.features(theta, b) for b in shard.on("ala")]
            new, loss = self.learn(A, l, d, rows, shard.n * 0)
            A, losses = where(on, new, A), [*losses, loss]
            calm = torch.stack(losses[-self.window :]).std(correction=0) < self.tol
            on = on & (mine["met"] == 0) & ~(calm & (len(losses) > self.window))
        head = add(l, tmap(torch.mul, A, d))  # eq:fedala-mix
        return {
            "w": mine["w"] | theta | head,
            "A": A,
            "met": torch.where(differ, 1.0, mine["met"]).to(mine["met"].dtype),
        }

    def features(self, theta, b):
        """What learning needs of a batch: z [B, D], labels [B, K] and the share of each
        row in a mean [B, 1], 0 for padding.
        """
        z = self.task.feat(theta, b.x, b)
        y = onehot(b.y, self.task.K, z)
        return (
            z,
            y,
            torch.full_like(z[:, :1], 1 / len(z))
            if b.m is None
            else b.m[:, None] / b.m.sum().clamp(min=1),
        )

    def learn(self, A, l, d, rows, loss):
        """One pass over rows (see `features`) -> the weights,
        and the loss of the last batch before its step.
        """
        W, c = self.task.head
        for z, y, m in rows:
            h = add(l, tmap(torch.mul, A, d))
            p = F.log_softmax(F.linear(z, h[W], h[c]), 1)  # [B, K]
            e = (p.exp() - y) * m  # eq:fedala-linear
            s = {W: e.T @ z, c: e.sum(0)}
            # eq:fedala-step
            A = {k: (A[k] - self.eta * s[k] * d[k]).clamp(0, 1) for k in A}
            # padding is no batch
            loss = torch.where(m.sum() > 0, -(p * y * m).sum(), loss)
        return A, loss

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard)
        return mine | {"w": w}, {"w": w, "n": shard.n}

    def views(self, down, mine, shard):
        return {"personal": self.task.net(mine["w"])}
