"""What the methods against drift share."""

import torch

from ...core.local import scan
from ...core.tree import add, sub, subset, without


def corrected(direction, c):
    """(w, batch) -> direction(w, batch) + c, for a tree c over parameters only."""

    def g(w, b):
        d = direction(w, b)
        return d | add(subset(d, c), c)

    return g


def gradients_in(shard, momentum):
    """|a_i|_1 []: how many gradients make up a client's update (w - w_i) / lr.

    The velocity v <- momentum v + g carries a gradient on into later steps; without
    momentum this is the number of local steps.
    """

    def one(c, _):
        v = momentum * c["v"] + 1
        return {"v": v, "a": c["a"] + v}

    zero = torch.zeros_like(shard.n)
    return scan(one, {"v": zero, "a": zero}, shard)["a"]


def mean_update(method, w, ws, p):
    """Models [M, ...] -> (what the clients' average is ahead of w, its buffers).

    The first is over parameters, by the method's rule; the second as FedAvg has them.
    """
    buffers = method.task.buffers
    average = method.combine(w, ws, p)
    ahead = sub(without(average, buffers), without(w, buffers))
    return ahead, subset(average, buffers)


def stepped(w, step, lr, buffers):
    """w + lr step over the parameters, beside these buffers."""
    return w | add(without(w, buffers), step, lr) | buffers


def zeros(w, buffers):
    """A tree of zeros over the parameters of w."""
    return {k: torch.zeros_like(x) for k, x in w.items() if k not in buffers}
