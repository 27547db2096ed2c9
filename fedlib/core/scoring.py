"""Scoring: what a model gets right at every client, group by group, and next door.

A model that all clients have runs once over the rows of them all. Models of their own,
linear layers with relu between them, run side by side, one product per layer. Whatever
else a client would use runs at that client.
Letters: M clients, A groups, n rows, N rows of all clients, b clients of a block, L
rows of the longest of them, K classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .pooled import rows_of
from .task import NEIGHBOURS, Fitted, Model
from .tree import leaves, unstack, where


def score(method, down, clients, run, shards, splits, views=None, receives=None):
    """{"acc": {view: {split: [M]}}}: each client's accuracy on its own rows.

    down, clients: stacks [M, ...], what the clients were sent and what they keep. run:
    the Clients of this round. views: names of those to score, None for all. receives
    [M]: the clients that receive before they are scored; what they then keep is
    dropped, so that it is never held twice.

    A task with groups also gives "cells" {view: {split: [M, A, 2, 2]}}, the counts of
    `Groups.tally`, and "consistency" {view: [M, 2]}, see `inconsistency`.
    """
    if receives is not None:
        stacks = (down, clients, {"receives": receives})
        return each_alone(method, stacks, run, shards, splits, views)
    asked = ask(method, down, clients, run, shards, views)
    rows, scores = rows_of(method.task, shards[0], tuple(splits)), {}
    for k in asked[0]:
        of = [client[k] for client in asked]
        if isinstance(of[0], Fitted) and getattr(method.task.network, "dense", None):
            of = fitted(method, k, (down, clients), run, shards)
        scores[k] = pooled(method, of, run, rows)
    rest = [k for k, got in scores.items() if got is None]
    if rest:
        alone = each_alone(method, (down, clients), run, shards, splits, rest)
        scores |= {k: {kind: of[k] for kind, of in alone.items()} for k in rest}
    kinds = ("acc", "cells", "consistency") if method.task.groups else ("acc",)
    return {kind: {k: got[kind] for k, got in scores.items()} for kind in kinds}


def ask(method, down, clients, run, shards, names):
    """[{name: view}], which views every client has; nothing runs yet."""
    (ids, S), M = shards, len(shards[0])

    def one(*args):
        views = method.views(*args).items()
        return {k: v for k, v in views if names is None or k in names}

    calls = zip(ids.tolist(), zip(unstack(down, M), unstack(clients, M), S))
    return [run._call(one, args, c, "views") for c, args in calls]


def fitted(method, name, stacks, run, shards):
    """The view `name` of all clients, fitted together: [M models]."""

    def weights(down, mine, shard):
        return method.views(down, mine, shard)[name].w

    ws = run.each(weights, stacks, shards, f"view {name}")
    return [Model(method.task, w) for w in unstack(ws, len(shards[0]))]


# ---------------------------------------------------------------- many clients at once
def pooled(method, views, run, rows):
    """The scores of one view at all clients, views [M]: as `Rows.scores`, or None where
    every client has to run its own."""
    task, way = method.task, together(method.task.network, views, rows)
    if way is None:
        return None
    walk, forward = way

    def marks(who, r):
        """Of a block's rows: which are right and, with groups, the outcomes."""
        z, y = forward(who, task.x[r]).flatten(0, -2), task.y[r].flatten()
        hits = (method.hits(z, y),)
        return (*hits, task.groups.outcome(z.argmax(-1))) if task.groups else hits

    one = lambda *block: run._call(marks, block, "(many at once)", "views")
    said = zip(*run._map(one, walk.blocks))
    return rows.scores(*[torch.cat(v)[walk.at] for v in said])


def together(network, views, rows):
    """(walk, (clients, x) -> logits) of views that can be run together, else None."""
    dense = getattr(network, "dense", None)
    if not all(isinstance(view, Model) for view in views):
        return None
    if isinstance(views[0], Fitted):
        return None
    if all(same(m.w, views[0].w) for m in views):
        return rows.once, lambda who, x: views[0](x)
    if dense:
        ws = [m.w for m in views]
        return rows.apart, lambda who, x: side_by_side(dense, [ws[i] for i in who], x)
    return None


def same(w, v):
    """Are these the very same tensors?"""
    return w is v or all(a is b for a, b in zip(leaves(w), leaves(v)))


def side_by_side(dense, ws, x):
    """Logits [b, L, K] of b models ws, linear layers with relu between them; x [b, L,
    ...]. A layer that is the same in all of them is not copied."""
    z = x.flatten(2)
    for name in dense:
        z = z if name == dense[0] else z.relu_()
        W, c = ([w[f"{name}.{leaf}"] for w in ws] for leaf in ("weight", "bias"))
        if all(a is W[0] for a in W) and all(a is c[0] for a in c):
            z = F.linear(z, W[0], c[0])
        else:
            z = torch.baddbmm(torch.stack(c)[:, None], z, torch.stack(W).mT)
    return z


# ---------------------------------------------------------------- one client at a time
def each_alone(method, stacks, run, shards, splits, views=None):
    """The scores of every client's own run; stacks: as `score` has them."""

    def at_client(down, mine, *rest):
        *received, shard = rest
        if received:
            new = method.receive(down, mine, shard)
            mine = where(received[0]["receives"], new, mine)
        return score_client(method, down, mine, shard, splits, views)

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
