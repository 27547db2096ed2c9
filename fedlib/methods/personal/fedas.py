"""A downloaded body that first learns to speak like the old one, and clients weighted
by how much they have learned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from ...core.local import grad, scan, sgd
from ...core.method import Card, hp, uniform_weights
from ...core.tree import normalize, onehot, sqdist, sqnorm, where
from .fedper import FedPer


@dataclass(frozen=True)
class FedAS(FedPer):
    """FedPer for clients that are often offline: alignment on download, Fisher weights
    on upload.

    Yang, Huang, Ye. FedAS: Bridging Inconsistency in Personalized Federated Learning.
    CVPR 2024, and its released code. theta_i, h_i are the client's body and head as
    last trained, theta the body that it downloads, f the features [D].

        mu_c   = mean over the client's rows of class c of f(theta_i, x)  eq:fedas-means
        theta <- theta - align_lr grad sum_c mean_{x of class c}
            |f(theta, x) - mu_c|^2 / D                                  eq:fedas-align
        (theta_i, h_i) <- local training, from (theta, h_i)
        a_i    = sum over batches b of |grad mean_{(x, y) in b} -log p(y | x)|^2
                                                                        eq:fedas-trace
        theta <- sum_i a_i theta_i / sum_j a_j                          eq:fedas-weights

    Who does not train does not download: body and head stay a pair. The paper pulls
    each row to its own old feature in one step (align = "sample") and takes one
    gradient of the whole log-likelihood (trace = "full"); the defaults are the code's.
    align = "none", by = "size", download = "all" is FedPer.
    """

    card = Card(
        "FedAS: Bridging Inconsistency in Personalized Federated Learning",
        "Yang et al.",
        "CVPR",
        2024,
        "fedas2024",
        "FedPer, with old features kept on download and clients weighted by their "
        "Fisher trace",
        "https://github.com/xiyuanyang45/FedAS",
    )

    align: str = hp(
        "class_mean",
        "what features are pulled to",
        choices=("class_mean", "sample", "none"),
        source="code",
    )
    align_lr: float = hp(
        0.01, "step size of the alignment", range=(0, math.inf), source="code"
    )
    align_epochs: int = hp(
        1, "passes of the alignment", range=(0, 10**6), source="code"
    )
    reduction: str = hp(
        "mean",
        "squared distance: mean or sum over features",
        choices=("mean", "sum"),
        source="code; eq. 4",
    )
    skip_first: bool = hp(
        False,
        "no alignment before the first training",
        choices=(True, False),
        source="ours",
    )
    by: str = hp(
        "trace",
        "what makes the weights",
        choices=("trace", "softmax", "softmax_scaled", "minmax", "size"),
        source="equation 7; figure 6a",
    )
    trace: str = hp(
        "batch_sum",
        "which Fisher trace",
        choices=("batch_sum", "batch_mean", "sample_mean", "full"),
        source="batch_sum: code; full: equation 5",
    )
    download: str = hp(
        "cohort",
        "who downloads",
        choices=("cohort", "all"),
        source="code: those who train",
    )
    watch: bool = hp(
        False,
        "upload four more numbers, for the record",
        choices=(True, False),
        source="ours",
    )

    def plans(self):
        size = {"sample_mean": 1, "full": 10**9}.get(self.trace)
        rows = {"rows": self.plan(1, batch=1, shuffle=False)} if self.watch else {}
        return (
            super().plans()
            | {
                "align": self.plan(self.align_epochs),
                "fisher": self.plan(1, batch=size, shuffle=False),
            }
            | rows
        )

    def client(self, w, shard):
        zero = shard.n * 0
        return (
            {"w": w}
            | ({"met": zero} if self.skip_first else {})
            | ({"aligned": zero} if self.watch else {})
        )

    def receive(self, down, mine, shard):
        body, head = down["w"], self.task.split(mine["w"])[1]
        if self.align != "none":
            apart = alignment(
                self.task, mine["w"], shard.on("align"), self.align, self.reduction
            )
            # eq:fedas-align
            body = sgd(grad(apart), body, shard.on("align"), self.align_lr)
        if self.skip_first:
            body = where(mine["met"] > 0, body, down["w"])
        moved = {"aligned": sqdist(body, down["w"]).sqrt()} if self.watch else {}
        return mine | {"w": body | head} | moved

    def local(self, down, mine, shard):
        new, up = super().local(down, mine, shard)
        up["trace"] = self.fisher(new["w"], shard)
        if self.skip_first:
            new["met"] = mine["met"] + 1
        if self.watch:
            trained = sqdist(up["w"], self.task.split(mine["w"])[0]).sqrt()
            total, rows = traces(self.loss, new["w"], shard.on("rows"))
            batches = scan(lambda n, b: n + 1, shard.n * 0, shard.on("fisher"))
            up |= {
                "aligned": mine["aligned"],
                "trained": trained,
                "trace_rows": total / rows,
                "batches": batches,
            }
        return mine | new, up

    def fisher(self, w, shard):
        """The Fisher trace a_i [] of a model on a client's rows."""
        total, batches = traces(self.loss, w, shard.on("fisher"))  # eq:fedas-trace
        if self.trace == "full":
            return shard.n**2 * total  # of the sum over rows, not their mean
        return total if self.trace == "batch_sum" else total / batches

    def aggregate(self, server, up, r):
        new = super().aggregate(server, up, r)  # eq:fedas-weights
        new["log"] |= {
            k: up[k]
            for k in ("trace", "aligned", "trained", "trace_rows", "batches")
            if k in up
        }
        return new

    def weights(self, up):
        a, n = up["trace"], normalize(up["n"])
        above = a - a.min()
        p = {
            "trace": normalize(a),
            "softmax": a.softmax(0),
            "softmax_scaled": (a / a.mean()).softmax(0),
            "size": n,
            "minmax": torch.where(
                above.sum() > 0, normalize(above), uniform_weights(a)
            ),
        }[self.by]
        # no trace at all, or one too large: by size
        return torch.where(p.isfinite().all(), p, n)


def alignment(task, old, shard, target="class_mean", reduction="mean", means=None):
    """The loss (v, b) -> [] that pulls the features of v to those of the client's old
    model on the shard's batches.

    Squared distances are averaged over the rows of each class in the batch and summed
    over its classes. target: the old mean of the row's class, or the old feature of the
    row itself. means: (mu [K, D], count [K]) to take instead of the old ones.
    """
    # eq:fedas-means
    mu, count = means or (
        class_means(task, old, shard) if target == "class_mean" else (None, None)
    )

    def apart(v, b):
        goal = task.feat(old, b.x) if mu is None else mu[b.y]  # [B, D]
        d = (task.feat(v, b.x, b) - goal) ** 2
        d = d.mean(1) if reduction == "mean" else d.sum(1)
        one = onehot(b.y, task.K, d, b.m)  # [B, K]
        one = one if mu is None else one * (count > 0)
        return (d * (one / one.sum(0).clamp(min=1)).sum(1)).sum()

    return apart


def class_means(task, w, shard):
    """Mean feature [K, D] and number [K] of the rows of each class in the shard's
    batches; an absent class has mean 0.
    """

    def add(s, b):
        z = task.feat(w, b.x)
        one = onehot(b.y, task.K, z, b.m)
        return {"z": s["z"] + one.T @ z, "n": s["n"] + one.sum(0)}

    zero = shard.n.new_zeros(task.K)
    s = scan(add, {"z": zero[:, None].expand(-1, task.network.D), "n": zero}, shard)
    return s["z"] / s["n"].clamp(min=1)[:, None], s["n"]


def traces(loss, w, shard):
    """Sum over the shard's batches of the squared gradient of the batch's mean loss,
    and the number of batches.
    """

    def add(s, b):
        return {"sum": s["sum"] + sqnorm(grad(loss)(w, b)), "batches": s["batches"] + 1}

    s = scan(add, {"sum": shard.n * 0, "batches": shard.n * 0}, shard)
    return s["sum"], s["batches"]
