"""Clients abreast: functions that want the models of many clients at once.

`vmap` runs a function of one client at many. Where the whole of a computation is
better written for a stack of clients, as products of matrices are, it is left to
`abreast`, which hands over the stacks. `stretches` orders the batches of clients that
differ in size, so that nobody waits for the largest.
Letters: M clients, T local steps, B batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .tree import build, leaves, pick, tmap


def deep():
    """Inside torch.func.grad, or more than one vmap?

    (Two private calls; if they ever go, return True: slower, never wrong.)
    """
    transforms = torch._C._functorch.get_interpreter_stack() or []
    vmap = torch._C._functorch.TransformType.Vmap
    return len(transforms) > 1 or any(t.key() != vmap for t in transforms)


def abreast(f, *trees):
    """f(*stacks) -> a stack, seen as a function of one client: trees -> a tree.

    The stacks [M, ...] are those of all clients of the vmap around the call; without
    one, M = 1. At least one leaf must differ from client to client.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        alone = [tmap(lambda x: x[None], t) for t in trees]
        return pick(f(*alone), 0)
    like = []  # the structure of what f returns

    def on_leaves(*flat):
        flat = iter(flat)
        out = f(*[tmap(lambda _: next(flat), t) for t in trees])
        like.append(out)
        return tuple(leaves(out))

    flat = _OfMany.apply(on_leaves, *[x for t in trees for x in leaves(t)])
    return build(like[0], flat)


class _OfMany(torch.autograd.Function):
    """What vmap is told: call f with the stacks as they are."""

    @staticmethod
    def forward(f, *flat):
        raise RuntimeError("abreast: no argument differs from client to client")

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, dims, f, *flat):
        M = info.batch_size
        stacks = [
            x.expand(M, *x.shape) if d is None else x.movedim(d, 0)
            for x, d in zip(flat, dims[1:])
        ]
        out = f(*stacks)
        return out, (0,) * len(out)


def by_steps(plans):
    """The clients' numbers, those with most steps first.

    plans: [(rows, lengths of batches)], one per client.
    """
    return sorted(range(len(plans)), key=lambda i: -len(plans[i][1]))


class Stretch(NamedTuple):
    """J steps in a row that the first k clients take together, on batches of at most B
    rows; full: all of them have B."""

    J: int
    k: int
    B: int
    full: bool


class Timetable(NamedTuple):
    """The batches of many clients, step by step, and in a step client by client.

    rows [S, B] row numbers, S batches in all; n [S] how many of them are real: padding
    repeats the first. stretches: how the S batches follow one another.
    """

    rows: Tensor
    n: Tensor
    stretches: list[Stretch]


def timetable(plans):
    """The Timetable of clients in the order of `by_steps`; who has finished is left out
    of the steps that follow."""
    M, lengths = len(plans), [n for _, n in plans]
    at = [t * M + i for i, client in enumerate(lengths) for t in range(len(client))]
    step_by_step = torch.tensor(at, dtype=torch.long).argsort()
    n = torch.tensor([b for client in lengths for b in client], dtype=torch.long)
    first = (n.cumsum(0) - n)[step_by_step, None]
    n = n[step_by_step]
    known = n.tolist()
    i = torch.arange(max(known, default=0))
    place = torch.where(i < n[:, None], first + i, first)
    rows = torch.cat([r for r, _ in plans])[place]
    return Timetable(rows, n, alike(active(lengths), known))


def active(lengths):
    """How many clients take step t, [T]; lengths of their batches, most steps first."""
    steps = [len(client) for client in lengths]
    k, out = len(steps), []
    for t in range(steps[0]):
        while steps[k - 1] <= t:
            k -= 1
        out.append(k)
    return out


def alike(active, n):
    """The Stretches of steps in a row that are alike; n: the lengths of all batches."""
    out, i = [], 0
    for k in active:
        now = n[i : i + k]
        B, least = max(now), min(now)
        i += k
        step = (k, B, B == least)
        if out and out[-1][1:] == step:
            out[-1] = Stretch(out[-1].J + 1, *step)
        else:
            out.append(Stretch(1, *step))
    return out


def portions(stretches, most):
    """The stretches in lists of at most `most` batches; a long one is divided."""
    now, left = [], most
    for J, *alike in stretches:
        k = alike[0]
        while J:
            if k > left and now:
                yield now
                now, left = [], most
            some = min(J, max(1, left // k))
            now.append(Stretch(some, *alike))
            left -= some * k
            J -= some
    if now:
        yield now
