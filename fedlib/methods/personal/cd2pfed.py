"""Some filters of every layer for all, some for oneself."""

import math
from dataclasses import dataclass

import torch

from ...core.local import grad, sgd
from ...core.method import Card, hp
from ...core.tree import add, scale, without
from ..base.fedavg import FedAvg
from .fedas import alignment


@dataclass(frozen=True)
class CD2pFed(FedAvg):
    """FedAvg on the first filters of each layer; the other filters stay on the device.

    Shen, Zhou, Yu. CD2-pFed: Cyclic Distillation-guided Channel Decoupling for Model
    Personalization in Federated Learning. CVPR 2022. Written without their code, which
    is not public; where the paper leaves a choice, it is ours.

        p_t = p min(1, t / (grow R))                                      eq:cd2-share
        filter j of C is private  <=>  j >= ceil((1 - p_t) C)             eq:cd2-private
        L = CE(w) + lam / 2 mean_s [KL(s||l) + KL(l||s)]                  eq:cd2-loss
        w <- b w' + (1 - b) w   after every pass, w' its result           eq:cd2-average
        shared entries <- sum_i n_i / n of the clients'                   eq:cd2-server

    The two halves of the network, shared (s) and private (l), teach each other. A
    filter is a row of a layer: its incoming weights, bias, norm gain, norm bias and
    running statistics. In the head the columns of private features are private; its
    bias is shared. So shared entries are the leading slices of all tensors, and only
    they travel (recorded bytes are those of round 0, the most). A filter that turns
    private starts from the last download. s, l: softmax outputs of the network with
    only its shared, only its private filters: the other rows are 0, which gives 0
    before and after any norm, relu, tanh or pool (a group norm over both halves sees
    those zeros); the head is whole in both. While a layer has no filter of one kind
    there is nothing to distil, and L = CE. All clients download. p = 0, lam = 0 is
    FedAvg; p = 1, grow = 0, lam = 0 local training, but for the head's bias. The paper
    lets b grow over the rounds.

    align: FedAS's alignment before training. Class means of the client's last trained
    model are the targets; shared entries of the body move, running statistics do not
    (FedAS, CVPR 2024, Figure 6b).
    """

    p: float = hp(
        0.5, "private filters, in the end", "a choice", (0, 1), grid=(0.25, 0.5, 0.75)
    )
    grow: float = hp(1.0, "share of the rounds while p_t grows", "linearly", (0, 1))
    lam: float = hp(1.0, "weight of the distillation", "a choice", grid=(0.1, 1.0))
    b: float = hp(1.0, "share of a pass in the moving average", "a choice", (0, 1))
    align: bool = hp(False, "align as FedAS before training", "FedAS, Figure 6b")
    align_lr: float = hp(0.01, "step size of the alignment", "FedAS's code")
    align_epochs: int = hp(1, "passes of the alignment", "FedAS's code")

    plans_ahead = True
    card = Card("cd2pfed2022", "shared and private filters, which teach each other")
    download = "all"
    post = ("personal",)
    needs_linear_head = True
    waits = "Not recorded on a GPU: the round decides how much of a model is shared."
    needs_features = property(lambda self: self.align)

    def plans(self):
        passes = {f"pass{e}": self.plan(1) for e in range(self.epochs)}
        align = {"align": self.plan(self.align_epochs)} if self.align else {}
        return (super().plans() if self.b == 1 else passes) | align

    # which entries are shared: all functions of the round alone
    def private(self, t, R):
        """The share p_t of private filters in round t of R."""
        grown = min(1.0, t / (self.grow * R)) if self.grow else 1.0
        return self.p * grown  # eq:cd2-share

    def kept(self, C, p):
        """How many of C filters are shared."""
        return math.ceil((1 - p) * C - 1e-9)  # eq:cd2-private; (1 - 0.7) 10 is above 3

    def cut(self, w, p):
        """The shared entries of a model: leading slices."""
        body, (W, c) = self.task.split(w)[0], self.task.head
        shared = {k: v[: self.kept(len(v), p)] for k, v in body.items()}
        # channels of the features, each of D / C columns
        C = len(w[self.task.layers[-2][0]])
        columns = self.kept(C, p) * (w[W].shape[1] // C)
        return shared | {W: w[W][:, :columns], c: w[c]}

    def paste(self, w, shared):
        """A model whose shared entries are replaced."""

        def joined(k, s):
            dim = int(k == self.task.head[0])  # the head is cut by columns
            start, end = s.shape[dim], w[k].shape[dim]
            private = w[k].narrow(dim, start, end - start)
            return torch.cat([s, private], dim) if private.numel() else s

        return w | {k: joined(k, s) for k, s in shared.items()}

    def half(self, w, p, own):
        """The network with only its private (own) or only its shared filters: the other
        rows of the body are 0."""

        def rows(v):
            s, l = v.tensor_split([self.kept(len(v), p)])
            halves = [torch.zeros_like(s), l] if own else [s, torch.zeros_like(l)]
            return torch.cat(halves)

        whole = (*self.task.head, *self.task.buffers)
        return {k: v if k in whole else rows(v) for k, v in w.items()}

    def empty(self, w, p):
        """The first layer without shared or private filters, if any."""
        names = (k for layer in self.task.layers[:-1] for k in layer)
        without = (k for k in names if self.kept(len(w[k]), p) in (0, len(w[k])))
        return next(without, None)

    # ------------------------------------------------------------
    def server(self, w, r):
        body, head = self.task.split(w)
        if not body or [v.dim() for v in head.values()] != [2, 1]:
            raise ValueError(
                f"CD2-pFed divides the filters below a linear head; {self.task.network}"
                f" has the body ({', '.join(body)}) and the head ({', '.join(head)}): "
                "give the task a network with a hidden layer"
            )
        if self.lam and (layer := self.empty(w, self.p)):
            raise ValueError(
                f"CD2pFed.p = {self.p!r}: layer {layer} has no shared or no private "
                "filter then; give another p, a wider layer, or lam = 0"
            )
        return {"w": w}

    def client(self, w, shard):
        return {"w": w} | ({"old": w} if self.align else {})

    def receive(self, down, mine, shard):
        return mine | {"w": self.paste(mine["w"], down["w"])}

    def local(self, down, mine, shard):
        w, p = mine["w"], self.private(shard.t, shard.R)
        if self.align:
            w = self.aligned(w, mine["old"], p, shard.on("align"))
        if self.b == 1:
            w = self.fit(self.objective(w, p), w, shard)
        else:
            for e in range(self.epochs):
                new = self.fit(self.objective(w, p), w, shard.on(f"pass{e}"))
                w = add(scale(w, 1 - self.b), new, self.b)  # eq:cd2-average
        mine = {"w": w} | ({"old": w} if self.align else {})
        return mine, {"shared": self.cut(w, p), "n": shard.n}

    def objective(self, w, p):
        """The loss (w, batch) -> [] of a round whose private share is p; of the w given
        here only shapes matter."""
        if not self.lam or self.empty(w, p):
            return self.loss

        def log_p(w, b, own):
            return self.task.logits(self.half(w, p, own), b.x, b).log_softmax(1)

        def loss(w, b):
            s, l = log_p(w, b, own=False), log_p(w, b, own=True)
            kl = ((s.exp() - l.exp()) * (s - l)).sum(1)  # KL(s||l) + KL(l||s)
            return self.loss(w, b) + self.lam / 2 * b.avg(kl)  # eq:cd2-loss

        return loss

    def aligned(self, w, old, p, shard):
        """w with its shared body moved towards the class means of the old model."""
        distance = alignment(self.task, old, shard)
        loss = lambda v, b: distance(self.paste(w, v), b)
        v = without(self.cut(w, p), (*self.task.head, *self.task.buffers))
        return self.paste(w, sgd(grad(loss), v, shard, self.align_lr))

    def aggregate(self, server, up, r):
        shared, p, w = up["shared"], self.weights(up), server["w"]
        before = {k: w[k][tuple(map(slice, v.shape[1:]))] for k, v in shared.items()}
        log = {"weight": p, "private": p.new_tensor(self.private(r.t, r.R))}
        return {"w": self.combine(before, shared, p), "log": log}  # eq:cd2-server

    def views(self, down, mine, shard):
        return {"personal": self.task.net(mine["w"])}
