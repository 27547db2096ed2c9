"""What other programs read differently than fedlib: their readings, as methods."""

from dataclasses import dataclass

import torch

from fedlib.core.local import grad, scan, sgd
from fedlib.core.method import uniform_weights
from fedlib.core.tree import add, leaves, put, scale, sqdist, sqnorm, sub, tmap, where
from fedlib.methods.base.fedavg import Uniform
from fedlib.methods.drift.feddyn import FedDyn
from fedlib.methods.fair.fedfv import FedFV
from fedlib.methods.fair.qfedavg import QFedAvg
from fedlib.methods.flat.fedsam import FedSAM
from fedlib.methods.personal.apfl import APFL, mixed
from fedlib.methods.personal.fedala import FedALA
from fedlib.methods.personal.fedas import FedAS
from fedlib.methods.personal.fedpac import STEPS, TINY, FedPAC
from fedlib.methods.personal.fedproto import FedProto
from fedlib.methods.personal.pfedme import PFedMe
from fedlib.pieces.simplex import simplex_qp


def plain(cls):
    """A method with the uniform average in place of size weights."""
    return type(f"Plain{cls.__name__}", (cls,), {"weights": Uniform.weights})


class SummedLoss(QFedAvg):
    """FedLab: the loss of a client is the sum over the batches of its last pass, each
    before its own step."""

    def plans(self):
        return {"train": self.plan(1)}

    def local(self, down, mine, shard):
        w, direction = down["w"], self.step(self.loss)

        def step(w, b):
            nonlocal total
            total = total + self.loss(w, b)
            return direction(w, b)

        for _ in range(self.epochs):
            total = shard.n * 0
            w = sgd(step, w, shard, self.lr)
        return mine, {"w": w, "n": shard.n, "loss": total}


class ThisRound(FedFV):
    """FLGo: the tau rounds whose updates still count end with the present one."""

    def aggregate(self, server, up, r):
        G = self.progress(server["w"], up["w"])
        g = self.agree(G @ G.T, up["loss"]) @ G
        last = server["last"].index_copy(0, up["cid"], G)
        seen = server["seen"].index_fill(0, up["cid"], r.t)
        for k in reversed(range(self.tau)) if r.t + 1 >= self.tau else ():
            s = ((seen == r.t - k) & (last @ g < 0)).to(g.dtype) @ last
            g = g - (g @ s).clamp(max=0) / (s @ s).clamp(min=1e-30) * s
        g = g * (G.mean(0).norm() / g.norm())
        w = self.move(server["w"], up["w"], g, uniform_weights(up["loss"]))
        return {"w": w, "last": last, "seen": seen}


class OnlineALA(FedALA):
    """fluke: only the clients that train in a round download, and learn to mix."""

    download = "cohort"


class Lasting(FedProto):
    """fluke: prototypes stay until replaced; a class without one pulls towards zero; a
    client's first round has no pull."""

    def server(self, w, r):
        return super().server(w, r) | {"seen": self.task.x.new_zeros(self.task.C)}

    def send(self, server, ids):
        down = super().send(server, ids)
        return down | {"held": server["seen"][ids, None].expand_as(down["held"])}

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"cid": shard.cid}

    def aggregate(self, server, up, r):
        new = super().aggregate(server, up, r)
        proto = torch.where(new["held"][:, None] > 0, new["proto"], server["proto"])
        seen = server["seen"].index_fill(0, up["cid"], 1.0)
        return new | {"proto": proto, "seen": seen}


class Stale(FedSAM):
    """fluke: gradients are not cleared between batches, so the perturbation follows the
    present gradient plus the last perturbed one, across epochs and rounds."""

    def client(self, w, shard):
        return {"g": tmap(torch.zeros_like, w)}

    def local(self, down, mine, shard):
        d = grad(self.loss)

        def step(c, b):
            g = add(d(c["w"], b), c["g"])
            g = d(add(c["w"], scale(g, self.rho / sqnorm(g).sqrt())), b)
            return {"w": add(c["w"], g, -self.lr), "g": g}

        c = scan(step, {"w": down["w"], "g": mine["g"]}, shard)
        return {"g": c["g"]}, {"w": c["w"], "n": shard.n}


class Untied(PFedMe):
    """fluke: theta is tied to itself instead of to w_i, which is no tie, and theta
    itself is uploaded."""

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"w": mine["w"]}


class ByTheNorm(FedDyn):
    """PFLlib: the pull is alpha/2 |v - w|, not squared, so that its gradient has length
    alpha/2 however far v is."""

    def local(self, down, mine, shard):
        w, tilt, gradient = down["w"], mine["l"], self.step(self.loss)

        def step(v, b):
            far = sqdist(v, w).sqrt().clamp(min=1e-30)
            pull = scale(sub(v, w), self.alpha / 2 / far)
            return sub(add(gradient(v, b), pull), tilt)

        wi = sgd(step, w, shard, self.lr)
        return {"l": add(tilt, sub(wi, w), -self.alpha)}, {"w": wi, "n": shard.n}


class BySixteen(FedAS):
    """PFLlib: alignment is in batches of 16 whatever the batches of the training."""

    def plans(self):
        plans = super().plans()
        return plans | {"align": plans["align"]._replace(batch=16)}


class FullBatches(BySixteen):
    """PFLlib: an incomplete batch is left out also where it is the only one, so a
    client of fewer than 16 rows never aligns."""

    def receive(self, down, mine, shard):
        w = super().receive(down, mine, shard)["w"]
        body, head = self.task.split(w)
        return {"w": where(shard.n >= 16, body, down["w"]) | head}


@dataclass(frozen=True)
class TheirPAC(FedPAC):
    """PFLlib: four readings, each of which can be taken back.

    plain: a prototype is the plain mean of the clients' means, whatever their rows.
    in_turn: a mixed head replaces its client's own before the next one is mixed.
    cut: weights below 1e-3 become 0 and the rest is not rescaled.
    swapped: models are received in another order than statistics, here in the opposite
    one, and the k-th mixture goes to the k-th model.
    """

    plain: bool = True
    in_turn: bool = True
    cut: bool = True
    swapped: bool = False

    def aggregate(self, server, up, r):
        new, A = super().aggregate(server, up, r), self.mixtures(up["h"], up["V"])
        order = list(range(len(A)))[:: -1 if self.swapped else 1]
        A = A.flip(0, 1) if self.swapped else A

        def mixed(heads):
            held = heads.clone()
            for i in order:
                held[i] = torch.tensordot(A[i], held if self.in_turn else heads, 1)
            return held

        held = (up["classes"] > 0).to(up["means"].dtype)  # [M, K]
        c = torch.einsum("ik,ikd->kd", held, up["means"]) / held.sum(0)[:, None]
        head = put(server["head"], up["cid"], tmap(mixed, up["head"]))
        return new | {"head": head} | ({"c": c} if self.plain else {})

    def mixtures(self, h, V):
        if not self.cut:
            return super().mixtures(h, V)
        d = (h[:, None] - h).flatten(2)  # [i, p, K D]
        A = simplex_qp(d @ d.mT + V.diag(), STEPS)
        return torch.where(A < TINY, 0.0, A)


@dataclass(frozen=True)
class TheirAPFL(APFL):
    """PFLlib: three readings, each of which can be taken back.

    alone: v descends on its own loss, not on the mixture's.
    late: alpha moves after the models, along their difference by then, on the mixture
    of the two gradients before, and shrinks by 0.02 lr alpha.
    replaced: v is replaced by the mixture after every round.
    """

    alone: bool = True
    late: bool = True
    replaced: bool = True

    def local(self, down, mine, shard):
        gradient, lr = self.step(self.loss), self.lr

        def batch(c, b):
            w, v, a = c["w"], c["v"], c["alpha"]
            g, h = gradient(w, b), gradient(v if self.alone else mixed(a, v, w), b)
            new_w = add(w, g, -lr)
            new_v = add(v, h if self.alone else scale(h, a), -lr)
            apart, along = sub(v, w), h
            if self.late:
                apart, along = sub(new_v, new_w), mixed(a, h, g)
            slope = sum(leaves(tmap(lambda d, g: (d * g).sum(), apart, along)))
            slope = slope + (0.02 * a if self.late else 0)
            a = (a - lr * slope).clamp(0, 1)
            return {"w": new_w, "v": new_v, "alpha": a}

        c = scan(batch, mine | {"w": down["w"]}, shard)
        v = mixed(c["alpha"], c["v"], c["w"]) if self.replaced else c["v"]
        return c | {"v": v}, {"w": c["w"], "n": shard.n}
