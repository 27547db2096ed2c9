"""Updates counted per local step."""

from dataclasses import dataclass

from ...core.method import Card
from ...core.tree import without
from ..base.fedavg import FedAvg
from .corrections import gradients_in


@dataclass(frozen=True)
class FedNova(FedAvg):
    """Averages what clients do per local step, so that who steps more pulls no harder.

    Wang, Liu, Liang, Joshi, Poor. Tackling the Objective Inconsistency Problem in
    Heterogeneous Federated Optimization. NeurIPS 2020, for local SGD with and without
    momentum.

    |a_i|: number of local steps of client i; with momentum a gradient acts in later
    steps, too, and |a_i| = sum_k (1 - momentum^k) / (1 - momentum).

        d_i = (w - w_i) / |a_i|                                   eq:fednova-direction
        tau = sum_i p_i |a_i|                                         eq:fednova-steps
        w  <- w - tau sum_i p_i d_i,   p_i = n_i / n                eq:fednova-average

    Where all clients step equally often this is FedAvg. FedAvg's p_i counts client i
    as p_i |a_i|: with epochs and batches of one size |a_i| grows as n_i, and a large
    client counts twice. One more number per client goes up. Buffers are averaged.
    """

    card = Card("wang2020fednova", "averages the clients' updates per local step")

    def local(self, down, mine, shard):
        mine, up = super().local(down, mine, shard)
        return mine, up | {"a": gradients_in(shard, self.momentum)}

    def aggregate(self, server, up, r):
        w, p, a = server["w"], self.weights(up), up["a"]
        # a client without a step has no update: 0 / 1
        d = self.progress(w, up["w"]) / a.clamp(min=1)[:, None]  # eq:fednova-direction
        tau = p @ a  # eq:fednova-steps
        mean = self.rule(d, p, without(w, self.task.buffers), self.task)
        w = self.move(w, up["w"], tau * mean, p)  # eq:fednova-average
        return {"w": w, "log": {"weight": p, "steps": a}}
