"""Functions that want the models of many clients at once.

`vmap` runs a function of one client at many. Where a computation is better written for
a stack of clients, as products of matrices are, `batched` hands over the stacks.
`timetable` orders the batches of clients that differ in size, so that nobody waits for
the largest.
Letters: M clients, T local steps, S batches of all clients, B batch.
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


def batched(f, *trees):
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

    flat = _Batched.apply(on_leaves, *[x for t in trees for x in leaves(t)])
    return build(like[0], flat)


class _Batched(torch.autograd.Function):
    """What vmap is told: call f with the stacks as they are."""

    @staticmethod
    def forward(f, *flat):
        raise RuntimeError("batched: no argument differs from client to client")

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


class Step(NamedTuple):
    """A local step of the first k clients, on batches of at most B rows; full: all of
    them have B."""

    k: int
    B: int
    full: bool


class Timetable(NamedTuple):
    """The batches of many clients, step by step, and in a step client by client.

    rows [S, B] row numbers, S batches in all; n [S] how many of them are real: padding
    repeats the first. steps [T]: which of the S batches go together.
    """

    rows: Tensor
    n: Tensor
    steps: list[Step]


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
    return Timetable(rows, n, steps_of(lengths, known))


def steps_of(lengths, n):
    """The Steps of clients with these lengths of batches, most steps first; n: the
    lengths step by step."""
    k, begin, out = len(lengths), 0, []
    for t in range(len(lengths[0])):
        while len(lengths[k - 1]) <= t:
            k -= 1
        now = n[begin : begin + k]
        begin += k
        out.append(Step(k, max(now), min(now) == max(now)))
    return out


def portions(steps, most):
    """The steps in lists of at most `most` batches each, or of one step."""
    now, left = [], most
    for step in steps:
        if now and step.k > left:
            yield now
            now, left = [], most
        now.append(step)
        left -= step.k
    if now:
        yield now
