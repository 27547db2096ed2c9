"""Scoring: what a model gets right at every client, group by group, and next door.

Letters: M clients, A groups, n rows, K classes.
"""

from __future__ import annotations

import torch

from .task import NEIGHBOURS
from .tree import where


def score(method, down, clients, run, shards, splits, views=None, receives=None):
    """{"acc": {view: {split: [M]}}}: each client's accuracy on its own rows.

    down, clients: stacks [M, ...], what the clients were sent and what they keep. run:
    the Clients of this round. views: names of those to score, None for all. receives
    [M]: the clients that receive before they are scored; what they then keep is
    dropped, so that it is never held twice.

    A task with groups also gives "cells" {view: {split: [M, A, 2, 2]}}, the counts of
    `Groups.tally`, and "consistency" {view: [M, 2]}, see `inconsistency`.
    """

    def at_client(down, mine, *rest):
        *received, shard = rest
        if received:
            new = method.receive(down, mine, shard)
            mine = where(received[0]["receives"], new, mine)
        return score_client(method, down, mine, shard, splits, views)

    stacks = (down, clients)
    if receives is not None:
        stacks = (down, clients, {"receives": receives})
    return run.each(at_client, stacks, shards, "views")


def score_client(method, down, mine, shard, splits, views=None):
    """The same for one client: {view: {split: []}} and so on.

    All rows pass a model together, once; their logits are then taken apart.
    """
    groups = method.task.groups
    batches = {s: shard.all(s) for s in splits}
    blocks = [b.x for b in batches.values()]
    y = joined([b.y for b in batches.values()])
    if groups:
        own, near = next_door(method.task, shard)
        blocks += [own.x, method.task.x[near].flatten(0, 1)]
    x, sizes = joined(blocks), [len(b) for b in blocks]
    out = {"acc": {}} | ({"cells": {}, "consistency": {}} if groups else {})
    for name, view in method.views(down, mine, shard).items():
        if views is None or name in views:
            z = view(x)
            logits = dict(zip((*splits, "own", "neighbours"), z.split(sizes)))
            out["acc"][name] = accuracies(method, z[: len(y)], y, batches)
            if groups:
                out["cells"][name] = {
                    s: groups.tally(logits[s], b) for s, b in batches.items()
                }
                theirs = logits["neighbours"].view(*near.shape, z.shape[-1])
                apart = inconsistency(groups, own, logits["own"], theirs)
                out["consistency"][name] = apart
    return out


def accuracies(method, logits, y, batches):
    """{split: []}: the share of a split's rows that are right; logits, y of all."""
    hits = method.hits(logits, y).split([len(b.x) for b in batches.values()])
    return {s: b.avg(h) for (s, b), h in zip(batches.items(), hits)}


def next_door(task, shard):
    """A client's test rows that have neighbours, as a batch of n, and the rows of these
    neighbours [n, NEAR]."""
    own = shard.all(NEIGHBOURS)
    return own, task.neighbours["near"][own.row]


def inconsistency(groups, own, logits, neighbours):
    """[2]: sum of |yhat_i - mean of the neighbours' yhat|, and the number of rows.

    own: a batch of n rows; logits [n, K] its, neighbours [n, NEAR, K] theirs
    (Zemel et al., ICML 2013).
    """
    mine, theirs = (
        groups.outcome(z.argmax(-1)).to(z.dtype) for z in (logits, neighbours)
    )
    apart = (mine - theirs.mean(1)).abs()
    counts = torch.ones_like(apart) if own.m is None else own.m
    return torch.stack([(counts * apart).sum(), counts.sum()])


def joined(tensors):
    """One tensor of several, without a copy of a lone one."""
    return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
