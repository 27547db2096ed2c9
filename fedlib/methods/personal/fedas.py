"""Bodies aligned with the old one on download, and averaged by Fisher traces."""

from dataclasses import dataclass

import torch

from ...core.local import grad, scan, sgd
from ...core.method import Card, hp, uniform_weights
from ...core.tree import add, normalize, onehot, sqdist, sqnorm, where
from .fedper import FedPer


def minmax(a, n):
    """Traces a [M] less their minimum, over their sum; equal ones weigh the same."""
    above = a - a.min()
    return torch.where(above.sum() > 0, normalize(above), uniform_weights(a))


TRACES = "batch_sum", "batch_mean", "sample_mean", "full"
# other weights [M] than the paper's, from traces a [M] and shares of the rows n [M]
READINGS = {
    "softmax": lambda a, n: a.softmax(0),
    "softmax_scaled": lambda a, n: (a / a.mean()).softmax(0),
    "minmax": minmax,
    "size": lambda a, n: n,
}


@dataclass(frozen=True)
class FedAS(FedPer):
    """FedPer for clients that are often offline: align on download, weigh on upload.

    Yang, Huang, Ye. FedAS: Bridging Inconsistency in Personalized Federated Learning.
    CVPR 2024, and its released code. theta_i, h_i are the client's body and head as
    last trained, theta the body that it downloads, f the features [D], b batches.

        mu_c   = mean of f(theta_i, x) over its rows of class c         eq:fedas-means
        A      = sum_c mean_{x of class c} |f(theta, x) - mu_c|^2 / D
        theta <- theta - align_lr grad A(theta)                         eq:fedas-align
        (theta_i, h_i) <- local training, from (theta, h_i)
        a_i    = sum_b |grad mean_{(x, y) in b} -log p(y | x)|^2        eq:fedas-trace
        theta <- sum_i a_i theta_i / sum_j a_j                          eq:fedas-weights

    Who does not train does not download: body and head stay a pair.

    The defaults are the released code's. The paper's own: align = "sample" pulls each
    row to its own old feature, reduction = "sum" takes the squared norm (equation 4),
    trace = "full" one gradient of the whole log-likelihood (equation 5); by = "trace"
    is both. Readings of Figure 6a: by = "softmax", "softmax_scaled", "minmax".
    Ablations and controls: align = "none", by = "size", skip_first, download = "all",
    and the traces "batch_mean" and "sample_mean"; watch only records. align = "none",
    by = "size", download = "all" is FedPer.
    """

    card = Card("fedas2024", "FedPer, with old features kept, and Fisher weights")

    align: str = hp(
        "class_mean", "target of the features", "code", ("class_mean", "sample", "none")
    )
    align_lr: float = hp(0.01, "step size of the alignment", "code")
    align_epochs: int = hp(1, "passes of the alignment", "code")
    reduction: str = hp(
        "mean", "mean or sum over features", "code; eq. 4", ("mean", "sum")
    )
    skip_first: bool = hp(False, "no alignment before the first training", "ours")
    by: str = hp("trace", "what makes the weights", "equation 7", ("trace", *READINGS))
    trace: str = hp("batch_sum", "which Fisher trace", "code", TRACES)
    download: str = hp("cohort", "who downloads", "code", ("cohort", "all"))
    watch: bool = hp(False, "upload four more numbers, for the record", "ours")

    needs_features = property(lambda self: self.align != "none")

    def plans(self):
        # "full": one batch of all rows
        size = {"sample_mean": 1, "full": 10**9}.get(self.trace)
        plans = super().plans() | {
            "align": self.plan(self.align_epochs),
            "fisher": self.plan(1, batch=size, shuffle=False),
        }
        rows = {"rows": self.plan(1, batch=1, shuffle=False)}
        return plans | (rows if self.watch else {})

    def client(self, w, shard):
        zero = shard.n * 0
        trainings = {"met": zero} if self.skip_first else {}
        return {"w": w} | trainings | ({"aligned": zero} if self.watch else {})

    def receive(self, down, mine, shard):
        body, head = down["w"], self.task.split(mine["w"])[1]
        if self.align != "none":
            body = self.aligned(body, mine["w"], shard)  # eq:fedas-align
        if self.skip_first:
            body = where(mine["met"] > 0, body, down["w"])
        moved = {"aligned": sqdist(body, down["w"]).sqrt()} if self.watch else {}
        return mine | {"w": body | head} | moved

    def feature_loss(self, old, shard, means=None):
        """The loss A(v, batch) of the alignment with the client's old model."""
        batches = shard.on("align")
        return alignment(self.task, old, batches, self.align, self.reduction, means)

    def aligned(self, body, old, shard, means=None):
        """The body after descent on A."""
        A = self.feature_loss(old, shard, means)
        return sgd(grad(A), body, shard.on("align"), self.align_lr)

    def local(self, down, mine, shard):
        new, up = super().local(down, mine, shard)
        up["trace"] = self.fisher(new["w"], shard)
        if self.skip_first:
            new["met"] = mine["met"] + 1
        if self.watch:
            up |= self.watched(mine, new["w"], shard)
        return mine | new, up

    def fisher(self, w, shard):
        """The Fisher trace a_i [] of a model on a client's rows."""
        total, batches = traces(self.loss, w, shard.on("fisher"))  # eq:fedas-trace
        if self.trace == "full":
            return shard.n**2 * total  # of the sum over rows, not their mean
        return total if self.trace == "batch_sum" else total / batches

    def watched(self, mine, w, shard):
        """Four numbers for the record, each [].

        How far the body moved in alignment and in training, the mean trace of single
        rows, and the number of batches.
        """
        body = lambda w: self.task.split(w)[0]
        total, rows = traces(self.loss, w, shard.on("rows"))
        return {
            "aligned": mine["aligned"],
            "trained": sqdist(body(w), body(mine["w"])).sqrt(),
            "trace_rows": total / rows,
            "batches": scan(lambda n, b: n + 1, shard.n * 0, shard.on("fisher")),
        }

    def aggregate(self, server, up, r):
        new = super().aggregate(server, up, r)  # eq:fedas-weights
        numbers = ("trace", "aligned", "trained", "trace_rows", "batches")
        new["log"] |= {k: up[k] for k in numbers if k in up}
        return new

    def weights(self, up):
        a, n = up["trace"], normalize(up["n"])
        p = normalize(a) if self.by == "trace" else READINGS[self.by](a, n)
        # no trace at all, or one too large: by size
        return torch.where(p.isfinite().all(), p, n)


def alignment(task, old, shard, target="class_mean", reduction="mean", means=None):
    """The loss A(v, b) -> [] between the features of v and of the client's old model.

    Squared distances are averaged over the rows of each class in the batch and summed
    over its classes. target: the old mean of the row's class over the shard's batches,
    or the old feature of the row itself. means: (mu [K, D], count [K]) to take instead
    of the old ones.
    """
    mu, count = means or (None, None)
    if means is None and target == "class_mean":
        mu, count, _ = class_means(task, old, shard)  # eq:fedas-means

    def A(v, b):
        goal = task.feat(old, b.x) if mu is None else mu[b.y]  # [B, D]
        d = (task.feat(v, b.x, b) - goal) ** 2
        d = d.mean(1) if reduction == "mean" else d.sum(1)  # [B]
        y = onehot(b.y, task.K, d, b.m)  # [B, K]
        y = y if mu is None else y * (count > 0)
        share = y / y.sum(0).clamp(min=1)  # of a row in the mean of its class
        return (d * share.sum(1)).sum()

    return A


def class_means(task, w, shard):
    """Of each class in the batches: mean feature [K, D], number of rows [K], and mean
    |feature|^2 [K]; 0 for an absent class."""

    def of_batch(s, b):
        z = task.feat(w, b.x)
        y = onehot(b.y, task.K, z, b.m)
        return add(s, {"z": y.T @ z, "n": y.sum(0), "q": y.T @ z.square().sum(1)})

    zero = shard.n.new_zeros(task.K)
    start = {"z": zero.new_zeros(task.K, task.network.D), "n": zero, "q": zero}
    s = scan(of_batch, start, shard)
    n = s["n"].clamp(min=1)
    return s["z"] / n[:, None], s["n"], s["q"] / n


def traces(loss, w, shard):
    """Sum of the squared gradients of the batches' mean losses; number of batches."""

    def of_batch(s, b):
        return {"sum": s["sum"] + sqnorm(grad(loss)(w, b)), "batches": s["batches"] + 1}

    s = scan(of_batch, {"sum": shard.n * 0, "batches": shard.n * 0}, shard)
    return s["sum"], s["batches"]
