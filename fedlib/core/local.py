"""Local training: the only place that knows how a step is executed.

It is the same for one client after another, on plain leaf tensors, and for many at once
under `torch.func.vmap`. A step is a piece: loss -> direction (w, batch) -> tree.
"""

import threading
from dataclasses import dataclass

import torch

from .tree import add, build, deep, leaves, tmap, where

_here = threading.local()


def _depth():
    return getattr(_here, "depth", 0)


def transformed():
    """Inside vmap or torch.func.grad? (A private call; if it goes: True, slower.)"""
    return torch._C._functorch.peek_interpreter_stack() is not None


def differentiated():
    """Does somebody differentiate through what is computed here, or is it under more
    than one vmap? Closed forms build no graph, and know one vmap over clients."""
    return _depth() > 0 or deep()


class Gradient:
    """loss -> its gradient by the first argument: (w, *args) -> a tree.

    `torch.func.grad` inside a transform, autograd on leaf tensors outside (three times
    cheaper); nests to any order in both. Where nothing nests, a loss with a closed form
    gives its gradient itself, and `sgd` calls its whole descent, `descend`."""

    def __init__(self, loss):
        self.loss, self.exact = loss, getattr(loss, "gradient", None)
        self.descend = getattr(loss, "descend", None)

    def __call__(self, w, *args):
        if self.exact is not None and not differentiated():
            return self.exact(w, *args)
        if transformed():
            return torch.func.grad(self.loss)(w, *args)
        nested = _depth() > 0  # somebody differentiates through us: keep the graph
        p = [as_variable(x, nested) for x in leaves(w)]
        _here.depth = _depth() + 1
        try:
            with torch.enable_grad():
                out = self.loss(build(w, p), *args)
        finally:
            _here.depth -= 1
        g = torch.autograd.grad(out, p, create_graph=nested, allow_unused=True)
        return build(w, [torch.zeros_like(x) if d is None else d for d, x in zip(g, p)])


grad = Gradient


def as_variable(x, nested):
    """A tensor that autograd follows: a leaf, or a view where graphs are nested."""
    if x.requires_grad and (nested or x.is_leaf):
        return x.view_as(x) if nested else x
    return x.detach().requires_grad_()


def scan(step, carry, shard):
    """carry <- step(carry, batch) over the shard's plan; mere padding is no step."""
    for b in shard:
        new = step(carry, b)
        real = b.m is None or shard.full
        carry = new if real else where(b.m.sum() > 0, new, carry)
    return carry


def sgd(step, w, shard, lr, momentum=0.0, decay=0.0, pull=None):
    """Descend along step(w, batch) over the shard's plan and return the last w.

        v <- momentum v + step(w, b) + decay w + mu (w - anchor)    pull = (mu, anchor)
        w <- w - lr v

    In place on copies of the leaves, functional inside a transform: `w` and what
    closures captured are never written to. Buffers (batch norm) are refreshed at the
    weights before the step. w may also be a dict of models that move together, {"a":
    model, "b": model}; then the step gives a direction for each."""
    closed = getattr(step, "descend", None)
    if closed and shard.known and not differentiated():
        return closed(w, shard, lr, momentum, decay, pull)
    mu, anchor = pull if pull else (0.0, None)
    anchor = leaves(tmap(lambda _, a: a, w, anchor)) if mu else None  # in w's order
    descend = functional_sgd if transformed() or _depth() else sgd_in_place
    return descend(step, w, shard, lr, (momentum, decay, mu, anchor))


def velocity(g, w, v, momentum, decay, mu, anchor):
    """momentum v + g + decay w + mu (w - anchor); lists of tensors, v [] at first."""
    if decay:
        g = [gi.add(wi, alpha=decay) for gi, wi in zip(g, w)]
    if mu:
        g = [gi.add(wi - ai, alpha=mu) for gi, wi, ai in zip(g, w, anchor)]
    if momentum:
        g = [vi.mul(momentum).add(gi) for vi, gi in zip(v, g)]
    return g


def functional_sgd(step, w, shard, lr, how):
    """`sgd` that writes nowhere, as transforms want it."""

    def one(carry, b):
        w, v = carry["w"], carry["v"]
        d = velocity(leaves(step(w, b)), leaves(w), leaves(v), *how)
        new = [wi - lr * di for wi, di in zip(leaves(w), d)]
        moved = over(build(w, new), refreshed(shard.task, w, b))
        return {"w": moved, "v": build(w, d) if v else v}

    zero = tmap(torch.zeros_like, w) if how[0] else {}
    return scan(one, {"w": w, "v": zero}, shard)["w"]


def sgd_in_place(step, w, shard, lr, how):
    """`sgd` on copies of the leaves, one client after another."""
    ls = [x.detach().clone() for x in leaves(w)]
    w, v = build(w, ls), [torch.zeros_like(x) for x in ls] if how[0] else []
    for x in ls:
        x.requires_grad_()
    with torch.no_grad():  # only `grad` opens it
        for b in shard:
            buffers = refreshed(shard.task, w, b)
            v = velocity(leaves(step(w, b)), ls, v, *how)
            for x, vi in zip(ls, v):
                x.add_(vi, alpha=-lr)
            copy(w, buffers)
    return tmap(torch.Tensor.detach, w)


def adam(step, w, shard, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.0):
    """Descend by Adam along step(w, batch) over the shard's plan, moments starting at 0
    (Kingma and Ba, ICLR 2015, Algorithm 1).

        g = step(w, b) + decay w                                k = 1, 2, ... batches
        m <- beta1 m + (1 - beta1) g
        v <- beta2 v + (1 - beta2) g^2
        w <- w - lr (m / (1 - beta1^k)) / (sqrt(v / (1 - beta2^k)) + eps)"""
    b1, b2 = betas

    def one(carry, b):
        w, k = carry["w"], carry["k"] + 1
        g = step(w, b)
        g = add(g, w, decay) if decay else g
        m = tmap(lambda m, g: b1 * m + (1 - b1) * g, carry["m"], g)
        v = tmap(lambda v, g: b2 * v + (1 - b2) * g * g, carry["v"], g)

        def moved(w, m, v):
            m, v = m / (1 - b1**k), v / (1 - b2**k)
            return w - lr * m / (v.sqrt() + eps)

        new = over(tmap(moved, w, m, v), refreshed(shard.task, w, b))
        return {"w": new, "m": m, "v": v, "k": k}

    zero, k = tmap(torch.zeros_like, w), leaves(w)[0].new_zeros(())
    return scan(one, {"w": w, "m": zero, "v": zero, "k": k}, shard)["w"]


def in_parts(step, n):
    """(w, batch) -> step(w, part 1, ..., part n); of fewer than n rows, nothing."""

    def g(w, b):
        parts = [b.part(k, n) for k in range(n)]
        if b.m is None:
            return step(w, *parts) if len(parts[-1].y) else tmap(torch.zeros_like, w)
        return where(parts[-1].m.sum() > 0, step(w, *parts), tmap(torch.zeros_like, w))

    return g


def refreshed(task, w, b):
    """The buffers of w, a model or models, after batch b; a frozen body's stay."""
    if any(isinstance(v, dict) for v in w.values()):
        return {k: refreshed(task, v, b) for k, v in w.items()} if task.buffers else {}
    return task.refresh(w, b) if any(k in w for k in task.buffers) else {}


def over(w, new):
    """The tree w with the leaves of `new` in place of its own."""
    return w | {k: over(w[k], v) if isinstance(v, dict) else v for k, v in new.items()}


def copy(w, new):
    """The same in place."""
    for k, v in new.items():
        copy(w[k], v) if isinstance(v, dict) else w[k].copy_(v)


@dataclass(frozen=True)
class Plain:
    """The gradient of the loss, the step of plain descent."""

    def __call__(self, loss):
        return grad(loss)
