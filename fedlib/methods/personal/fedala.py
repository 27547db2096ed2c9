"""A head that is mixed from the old and the new one, element by element."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ...core.local import transformed
from ...core.method import Card, hp
from ...core.tree import onehot, sqnorm, sub, tmap, where
from ..base.fedavg import FedAvg


def some(c):
    """Does c hold for any client, also inside vmap?

    (Private calls; if they ever go, return True: slower, never wrong.)
    """
    while transformed() and torch._C._functorch.is_functorch_wrapped_tensor(c):
        c = torch._C._functorch.get_unwrapped(c)
    return bool(c.any())


def mix(A, l, d):
    """l + A * d, element by element."""
    return tmap(lambda A, l, d: l + A * d, A, l, d)


@dataclass(frozen=True)
class FedALA(FedAvg):
    """Each client learns how much of the downloaded head to mix into its own.

    Zhang, Hua, Wang, Song, Xue, Ma, Guan. FedALA: Adaptive Local Aggregation for
    Personalized Federated Learning. AAAI 2023, Algorithm 1 (one layer, the head), and
    its released code.

    theta: the body as downloaded. l: the client's last head, g: the downloaded head
    (K D + K numbers each), A_i: as many weights in [0, 1], at first 1.

        h_i  = l + A_i * (g - l)                                        eq:fedala-mix
        A_i <- clip(A_i - eta dF_i/dh (theta, h_i) * (g - l), 0, 1)     eq:fedala-step

    The weights are learned on a random contiguous `share` of the client's rows, batches
    in fixed order, by every client in every round, trained or not. One pass per round;
    at first sight of another head as many as it takes until the last `window` of more
    than `window` losses (of the last batch of each pass) have a standard deviation
    below `tol`, at most `cap`. Where l = g, as in round 0, nothing is learned. eta = 0
    keeps A = 1: that is FedAvg. theta does not move while A is learned, so the features
    z [B, D] of the rows are computed once, and the rest is linear:

        e = (softmax(z h_W' + h_c) - onehot(y)) / B      [B, K]
        dF/dh_W = e' z,   dF/dh_c = 1' e                                eq:fedala-linear

    The incomplete batch is dropped, as in FedAS's copy of the code; the released code
    keeps it and has no `cap`. The loss is the cross-entropy, whatever `step` is.
    """

    eta: float = hp(
        1.0, "step size of the mixing weights", "the paper", grid=(0.1, 1.0, 10.0)
    )
    share: float = hp(0.8, "share of the rows for learning", "the paper", (0, 1))
    tol: float = hp(0.1, "deviation of losses that ends learning", "released code")
    window: int = hp(10, "losses that are looked at", "released code", (1, 10**3))
    cap: int = hp(50, "passes of a first learning", "a choice", (1, 10**6))

    card = Card("fedala2023", "every client learns how much of the new head it takes")
    download = "all"
    post = ("personal",)
    needs_features = needs_linear_head = True

    waits = "Not recorded on a GPU: it learns until all have converged."

    def plans(self):
        ala = self.plan(1, last="drop", shuffle=False, block=self.share)
        return super().plans() | {"ala": ala}

    def server(self, w, r):
        _, head = self.task.split(w)
        if [v.dim() for v in head.values()] != [2, 1]:
            raise ValueError(
                f"FedALA mixes a linear head; that of {self.task.network} is "
                f"({', '.join(head)}): give the task a network with a linear head"
            )
        return super().server(w, r)

    def client(self, w, shard):
        A = tmap(torch.ones_like, self.task.split(w)[1])
        return {"w": w, "A": A, "met": shard.n * 0}

    def receive(self, down, mine, shard):
        (theta, g), (_, l) = self.task.split(down["w"]), self.task.split(mine["w"])
        A, d, met, batches, losses = mine["A"], sub(g, l), mine["met"], None, []
        differ = learns = sqnorm(d) > 0
        while len(losses) < self.cap and some(learns):
            batches = batches or [self.features(theta, b) for b in shard.on("ala")]
            new, loss = self.learn(A, l, d, batches, shard.n * 0)
            A, losses = where(learns, new, A), [*losses, loss]
            spread = torch.stack(losses[-self.window :]).std(correction=0)
            converged = (spread < self.tol) & (len(losses) > self.window)
            learns = learns & (met == 0) & ~converged
        head = mix(A, l, d)  # eq:fedala-mix
        met = torch.where(differ, 1.0, met).to(met.dtype)
        return {"w": mine["w"] | theta | head, "A": A, "met": met}

    def features(self, theta, b):
        """Features z [B, D] and labels y [B, K] of a batch, and each row's weight m
        [B, 1], which sum to one; 0 for padding."""
        z = self.task.feat(theta, b.x, b)
        m = torch.full_like(z[:, :1], 1 / len(z))
        if b.m is not None:
            m = b.m[:, None] / b.m.sum().clamp(min=1)
        return z, onehot(b.y, self.task.K, z), m

    def learn(self, A, l, d, batches, loss):
        """One pass over batches (see `features`) -> (A, loss of the last batch)."""
        W, c = self.task.head
        for z, y, m in batches:
            h = mix(A, l, d)
            log_p = F.log_softmax(F.linear(z, h[W], h[c]), 1)  # [B, K]
            e = (log_p.exp() - y) * m  # eq:fedala-linear
            g = {W: e.T @ z, c: e.sum(0)}
            moved = {k: A[k] - self.eta * g[k] * d[k] for k in A}
            A = {k: v.clamp(0, 1) for k, v in moved.items()}  # eq:fedala-step
            not_padding = m.sum() > 0
            loss = torch.where(not_padding, -(log_p * y * m).sum(), loss)
        return A, loss

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard)
        return mine | {"w": w}, {"w": w, "n": shard.n}

    def views(self, down, mine, shard):
        return {"personal": self.task.net(mine["w"])}
