"""Other alignments: those of FedAS's Figure 4b, and that of its first release."""

from dataclasses import dataclass

import torch

from ...core.method import hp
from ...core.tree import broadcast, pick, put, stack, subset
from .fedas import FedAS, class_means
from .fedper import class_mean


@dataclass(frozen=True)
class Aligned(FedAS):
    """What the variants share: they always align, without FedAS's other switches."""

    align: str = hp(
        "class_mean", "what features are pulled to", "code", ("class_mean", "sample")
    )
    skip_first: bool = hp(False, "not in this variant", "ours", (False,))
    watch: bool = hp(False, "not in this variant", "ours", (False,))


@dataclass(frozen=True)
class FedASParallel(Aligned):
    """FedAS that aligns while it trains: descent on F_i + lam A, A of eq:fedas-align.

    Yang et al., CVPR 2024, Figure 4b, which gives no formula: the target is FedAS's,
    from the client's old body.
    """

    card = FedAS.card._replace(line="FedAS that aligns while it trains (its Figure 4b)")
    lam: float = hp(1.0, "weight of the alignment beside the loss", "ours")

    def client(self, w, shard):
        return super().client(w, shard) | {"old": w}

    def receive(self, down, mine, shard):
        return mine | {"w": mine["w"] | down["w"], "old": mine["w"]}

    def local(self, down, mine, shard):
        A = self.feature_loss(mine["old"], shard)
        loss = lambda v, b: self.loss(v, b) + self.lam * A(v, b)
        w = self.fit(loss, mine["w"], shard)
        body, trace = self.task.split(w)[0], self.fisher(w, shard)
        return mine | {"w": w}, {"w": body, "n": shard.n, "trace": trace}


@dataclass(frozen=True)
class FedASGlobal(Aligned):
    """FedAS that aligns to everybody's class means, not to its own.

        mu_c <- mean_i mu_ic over the cohort's clients with class c      eq:fedas-global

    mu_ic is eq:fedas-means of client i's trained body. A class that no client of the
    cohort holds keeps its mean; one that never had any does not pull. Yang et al., CVPR
    2024, Figure 4b, which gives no formula.
    """

    card = FedAS.card._replace(line="FedAS that aligns to all clients' means")
    align: str = hp(
        "class_mean", "what features are pulled to", "figure 4b", ("class_mean",)
    )

    def server(self, w, r):
        seen = self.task.x.new_zeros(self.task.K)
        mu = seen.new_zeros(len(seen), self.task.network.D)
        return super().server(w, r) | {"mu": mu, "seen": seen}

    def send(self, server, ids):
        return broadcast(subset(server, ("w", "mu", "seen")), ids)

    def receive(self, down, mine, shard):
        means = down["mu"], down["seen"]
        body = self.aligned(down["w"], mine["w"], shard, means)
        return mine | {"w": mine["w"] | body}

    def local(self, down, mine, shard):
        new, up = super().local(down, mine, shard)
        mu, n, _ = class_means(self.task, new["w"], shard.on("align"))
        return new, up | {"mu": mu, "held": (n > 0).to(mu.dtype)}

    def aggregate(self, server, up, r):
        mu, n = class_mean(up["held"], up["mu"])  # eq:fedas-global
        return super().aggregate(server, up, r) | {
            "mu": torch.where(n[:, None] > 0, mu, server["mu"]),
            "seen": torch.maximum(server["seen"], up["held"].amax(0)),
        }


@dataclass(frozen=True)
class FedASChained(Aligned):
    """FedAS as first released: a round's clients align one and the same body in turn.

        theta^(0) = theta
        theta^(k) = theta^(k-1) aligned by the k-th client, which trains from it

    There the aligned module was the server's own; a later release copies it. Only a
    simulation can do this: the server reaches for the clients' rows and their last
    bodies. A control, for batches that do not depend on the round.
    """

    card = FedAS.card._replace(line="FedAS whose clients align one body in turn")

    shuffle: bool = hp(
        False, "fixed batches, for the server replays them", "code", (False,)
    )

    def server(self, w, r):
        s = super().server(w, r)
        return s | {"old": stack([w] * self.task.C)}

    def send(self, server, ids):
        body, aligned = server["w"], {}
        order = ids.sort().values  # by client number, as the code does
        shards = self.task.shards(0, 0, 1, order, self.plans())
        for c, shard in zip(order.tolist(), shards):
            if c >= 0:
                body = self.aligned(body, pick(server["old"], c), shard)
            aligned[c] = body
        return {"w": stack([aligned[c] for c in ids.tolist()])}

    def receive(self, down, mine, shard):
        return mine | {"w": mine["w"] | down["w"]}

    def local(self, down, mine, shard):
        new, up = super().local(down, mine, shard)
        return new, up | {"cid": shard.cid}

    def aggregate(self, server, up, r):
        bodies = put(subset(server["old"], up["w"]), up["cid"], up["w"])
        return super().aggregate(server, up, r) | {"old": server["old"] | bodies}
