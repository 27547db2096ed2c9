"""A network that writes networks."""

import math
from dataclasses import dataclass

import torch
from torch.func import vjp

from ...core.method import Card, hp, uniform_weights
from ...core.random import fold, normal, tag
from ...core.tree import add, broadcast, leaves, mean, sub, subset, tmap, without
from ..base.fedavg import FedAvg


@dataclass(frozen=True)
class PFedHN(FedAvg):
    """A hypernetwork on the server turns one vector per client into the client's model.

    Shamsian, Navon, Fetaya, Chechik. Personalized Federated Learning using
    Hypernetworks. ICML 2021, Algorithm 1.

        z_i  = relu(.. relu(e_i H_1 + c_1) ..) / sqrt(width)
        w_i  = b + z_i A                                                 eq:pfedhn-model
        phi <- phi - server_lr / M  sum_i (d w_i / d phi)' (w_i - w_i~)  eq:pfedhn-step

    phi = (e, H, c, A, b). w_i~ is w_i after training at client i; one vector-Jacobian
    product gives the whole sum. Clients keep nothing. b starts at the usual initial
    model and A small, so that first models are close to task.init: `spread` standard
    deviations of each tensor apart. If only b moved, server_lr = 1 would be the plain
    average of the models. A guest gets the model of the mean vector. Unlike the paper:
    one server step per round on the mean of a cohort; the paper takes one client per
    step, by 0.01 with momentum 0.9. Batch-norm statistics are averaged, not generated.
    Memory of the server: (width + 1) P numbers.
    """

    server_lr: float = hp(
        1.0, "step size of the hypernetwork", "a guess", grid=(0.3, 1.0, 3.0)
    )
    size: int = hp(0, "length of a vector; 0: 1 + C // 4", "released code", (0, 10**4))
    width: int = hp(100, "width of the hidden layers", "released code", (1, 10**5))
    depth: int = hp(3, "hidden layers; 0: linear", "the paper", (0, 10), grid=(0, 1, 3))
    spread: float = hp(0.1, "how far first models lie apart", "a choice")

    card = Card("pfedhn2021", "a hypernetwork on the server writes each client's model")
    ruled = False

    def server(self, w, r):
        w, buffers = without(w, self.task.buffers), subset(w, self.task.buffers)
        draws = normal(fold(r.key, tag("hypernetwork")), self.blank(w))
        return draws | {
            "H": tmap(lambda h: h * math.sqrt(2 / len(h)), draws["H"]),
            "c": {k: h.new_zeros(h.shape[1]) for k, h in draws["H"].items()},
            "A": tmap(lambda a, s: a * self.spread * s, draws["A"], self.deviation(w)),
            "b": w,
            "buffers": buffers,
        }

    def blank(self, w):
        """What is drawn at the start, without values: vectors e [C, size], hidden
        layers H, and A [width, ...]."""
        new = leaves(w)[0].new_empty
        n = self.size or 1 + self.task.C // 4
        width = self.width if self.depth else n
        A = {k: new(width, *v.shape) for k, v in w.items()}
        return {"e": new(self.task.C, n), "H": self.hidden(new, n), "A": A}

    def hidden(self, new, n):
        """Hidden layers [n, width], [width, width], ... without values."""
        sizes = [n] + [self.width] * self.depth
        return {f"{k}": new(s) for k, s in enumerate(zip(sizes, sizes[1:]))}

    def deviation(self, w):
        """Standard deviations of the initial tensors, in the structure of A."""
        return {k: v.std(correction=0) for k, v in w.items()}

    def vectors(self, phi, ids):
        """The vectors of clients ids [M, size]; a guest's is the mean."""
        self.check(phi)
        ids, e = ids.to(phi["e"].device), phi["e"]
        return torch.where((ids < 0)[:, None], e.mean(0), e[ids.clamp(min=0)])

    def codes(self, phi, z):
        """Vectors [..., size] -> codes z [..., width], in which models are linear."""
        for k in phi["H"]:
            z = (z @ phi["H"][k] + phi["c"][k]).relu()
        return z / math.sqrt(z.shape[-1])

    def models(self, phi, z):
        """Codes [..., width] -> parameters, every leaf [..., its shape]."""
        w = lambda b, A: b + torch.tensordot(z, A, 1)  # eq:pfedhn-model
        return tmap(w, phi["b"], phi["A"])

    def write(self, phi, ids):
        """The models of clients ids [M], parameters only; every leaf [M, ...]."""
        return self.models(phi, self.codes(phi, self.vectors(phi, ids)))

    def reference(self, server):
        """The mean of all C clients' models: the model of their mean code."""
        z = self.codes(server, self.vectors(server, torch.arange(len(server["e"]))))
        return self.models(server, z.mean(0)) | server["buffers"]

    def check(self, phi):
        """Refuse a state that was trained for another network or for other clients."""
        have = {k: tuple(v.shape) for k, v in phi["b"].items()}
        want = {k: tuple(s) for k, s in self.task.shapes.items()}
        if have != without(want, self.task.buffers) or len(phi["e"]) != self.task.C:
            raise ValueError(
                f"{type(self).__name__}: this state of the server, of {len(phi['e'])} "
                f"clients' models {have}, is not of task {self.task.name!r}, of "
                f"{self.task.C} and {want}; use the task that it was trained on"
            )

    def send(self, server, ids):
        return {"w": self.write(server, ids) | broadcast(server["buffers"], ids)}

    def local(self, down, mine, shard):
        w = self.fit(self.loss, down["w"], shard)
        return mine, self.change(down["w"], w, shard)

    def change(self, w, trained, shard):
        """What a client uploads: w_i - w_i~, the trained buffers, its number."""
        buffers = self.task.buffers
        gap = sub(without(w, buffers), without(trained, buffers))
        return {"gap": gap, "buffers": subset(trained, buffers), "cid": shard.cid}

    def aggregate(self, server, up, r):
        phi, M = without(server, ("buffers",)), len(up["cid"])
        _, product = vjp(lambda phi: self.write(phi, up["cid"]), phi)
        (g,) = product(up["gap"])  # sum_i (d w_i / d phi)' (w_i - w_i~)
        phi = add(phi, g, -self.server_lr / M)  # eq:pfedhn-step
        p = uniform_weights(up["cid"].to(server["e"].dtype))
        return phi | {"buffers": mean(up["buffers"], p)}

    def views(self, down, mine, shard):
        return {"personal": self.task.net(down["w"])}
