"""Trees: nested dicts of tensors, and the few operations on them that a method needs.

A model is a tree. A stack is a tree whose leaves have a client dimension in front,
[M, ...]. `vmap` runs a function of one client at many; `batched` gives it their stacks,
as products of matrices want them. Letters: M cohort, P parameters, K classes.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

Tree: TypeAlias = dict[str, Any]  # nested dicts of tensors
View: TypeAlias = Callable[[Tensor], Tensor]  # rows [n, ...] -> logits [n, K]


def tmap(f, *trees):
    """f leaf by leaf over trees of one structure."""
    if not isinstance(trees[0], dict):
        return f(*trees)
    return {k: tmap(f, *[t[k] for t in trees]) for k in trees[0]}


def leaves(t):
    """The tensors of a tree, in order."""
    return [x for v in t.values() for x in leaves(v)] if isinstance(t, dict) else [t]


def build(like, flat):
    """The list `flat` in the structure of `like`; the inverse of `leaves`."""
    it = iter(flat)
    return tmap(lambda _: next(it), like)


def add(a, b, s=1.0):
    """a + s b."""
    return tmap(lambda x, y: x + s * y, a, b)


def sub(a, b):
    """a - b."""
    return tmap(torch.sub, a, b)


def scale(t, s):
    """s t."""
    return tmap(lambda x: x * s, t)


def where(c, a, b):
    """a where the tensor c holds, else b."""
    return tmap(lambda x, y: torch.where(c, x, y), a, b)


def sqdist(a, b):
    """|a - b|^2, a scalar."""
    return sum(leaves(tmap(lambda x, y: F.mse_loss(x, y, reduction="sum"), a, b)))


def sqnorm(t):
    """|t|^2, a scalar."""
    return sum((x * x).sum() for x in leaves(t))


def subset(t, names):
    """The entries of a dict that `names` has; None: all."""
    return {k: t[k] for k in t if names is None or k in names}


def without(t, names):
    """The other entries."""
    return {k: t[k] for k in t if k not in names}


def pick(stack_, i):
    """Row i (an int or an index tensor) of every leaf."""
    return tmap(lambda x: x[i], stack_)


def put(stack_, i, rows_):
    """A copy of the stack with rows i [M] replaced."""
    return tmap(lambda x, y: x.index_copy(0, i, y), stack_, rows_) if stack_ else stack_


def stack(trees):
    """A list of M trees as one tree of [M, ...]."""
    return tmap(lambda *x: torch.stack(x), *trees) if trees else {}


def unstack(stack_, M):
    """The M rows of a stack as trees (views); of a `broadcast` one the same tensors."""
    tensors = leaves(stack_)
    if M and not any(x.stride(0) for x in tensors):
        return [pick(stack_, 0)] * M
    rows_ = [x.unbind() if x.stride(0) else x[:1].unbind() * M for x in tensors]
    return [build(stack_, row) for row in zip(*rows_)]


def sent(x, device):
    """A tensor on a device, which is not waited for."""
    if device.type == "cuda" and x.device.type == "cpu":
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def broadcast(tree, ids):
    """The same tree for all of `ids`: a leading [M] of stride 0, no memory."""
    return tmap(lambda x: x.expand(len(ids), *x.shape), tree)


def mean(stack_, p):
    """sum_i p_i s_i over the leading client dimension; p [M]."""
    return tmap(lambda x: torch.tensordot(p.to(x.dtype), x, 1), stack_)


def rows(stack_):
    """The stack as one matrix [M, P]."""
    return torch.cat([x.reshape(len(x), -1) for x in leaves(stack_)], 1)


def unrow(v, like):
    """A vector [P] in the structure of `like`."""
    ls = leaves(like)
    parts = v.split([x.numel() for x in ls])
    return build(like, [p.view(x.shape) for p, x in zip(parts, ls)])


def normalize(n):
    """n [M] as weights that sum to one."""
    return n / n.sum()


def onehot(y, K, like, m=None):
    """Labels y [...] as [..., K] in the type of `like`, times the mask m. (F.one_hot
    fails inside vmap(grad).)"""
    o = (y[..., None] == torch.arange(K, device=y.device)).to(like.dtype)
    return o if m is None else o * m[..., None]


def deep():
    """Inside torch.func.grad, or more than one vmap? (Two private calls; if they ever
    go, return True: slower, never wrong.)"""
    transforms = torch._C._functorch.get_interpreter_stack() or []
    vmap = torch._C._functorch.TransformType.Vmap
    return len(transforms) > 1 or any(t.key() != vmap for t in transforms)


def batched(f, *trees):
    """f(*stacks) -> a stack, seen as a function of one client: trees -> a tree. The
    stacks [M, ...] are of all clients of the vmap around the call (without one, M = 1);
    one leaf or more must differ from client to client."""
    if torch._C._functorch.peek_interpreter_stack() is None:
        return pick(f(*[tmap(lambda x: x[None], t) for t in trees]), 0)
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
        whole = lambda x, d: x.expand(M, *x.shape) if d is None else x.movedim(d, 0)
        out = f(*map(whole, flat, dims[1:]))
        return out, (0,) * len(out)
