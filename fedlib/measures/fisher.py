"""Which parameters of a trained model matter? Replace a few of them and look at the
accuracy (FedAS, Figure 3a).

A model is a tree with P parameters; its scores are a tree of the same shape.
"""

import torch

from ..core.local import grad, scan
from ..core.random import seed_of
from ..core.tree import add, leaves, tmap, unrow, without

WITH = ("fresh", "zero", "other")


def diagonal(task, w, shard):
    """The Fisher diagonal as FedAS's code sums it: squared gradients of batches."""
    params = without(w, task.buffers)
    rest = {k: w[k] for k in w if k not in params}

    def batch(s, b):
        g = grad(lambda v: task.loss(v | rest, b))(params)
        return add(s, tmap(torch.square, g))

    return scan(batch, tmap(torch.zeros_like, params), shard)


def chosen(score, share, seed=None):
    """A tree of truth values: the `share` of all entries of the model with the largest
    score, or a random share if a seed is given.
    """
    flat = torch.cat([x.flatten() for x in leaves(score)])
    P, k = len(flat), max(1, int(share * len(flat)))
    if seed is None:
        at = flat.topk(k).indices
    else:
        g = torch.Generator().manual_seed(seed_of(seed, 77))
        at = torch.randperm(P, generator=g)[:k].to(flat.device)
    none = torch.zeros(P, dtype=torch.bool, device=flat.device)
    return unrow(none.index_fill(0, at, True), score)


def replaced(task, w, mask, how="fresh", seed=0, other=None):
    """The model w, masked entries replaced: "fresh" draws, "zero", those of `other`."""
    new = {
        "fresh": lambda: task.init(10**6 + seed),
        "zero": lambda: tmap(torch.zeros_like, w),
        "other": lambda: other,
    }[how]()
    return w | {k: torch.where(m, new[k], w[k]) for k, m in mask.items()}


def by_layer(task, mask):
    """{layer: share of its entries that are chosen}, the layers in order."""
    out = {}
    for names in task.layers:
        if some := [mask[k].flatten() for k in names if k in mask]:
            layer = names[0].rpartition(".")[0] or names[0]
            out[layer] = float(torch.cat(some).double().mean())
    return out
