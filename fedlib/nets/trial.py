"""A network is tried on a task's first rows: what cannot be trained is refused there.

Whatever mixes the rows of a batch, draws at random or changes a buffer is found as far
as two rows show it; a module that does so only on other rows cannot be told from a good
one.
Letters: B batch, K classes, D feature width.
"""

from __future__ import annotations

import contextlib
import copy

import torch
import torch.nn.functional as F
from torch import nn

from ..core.errors import warn
from ..core.shards import Batch
from .module import Module, below, kind, own_copy, tied

ROWS = 2  # on which a network is tried


def fitted(task):
    """{"network": that of a task, "K": its number of classes}.

    An nn.Module becomes a `Module`, which may have more outputs than labels occur.
    ValueError for what is no network, and for one that rows and labels do not fit.
    """
    network, x, K = task.network, task.x, task.K
    network = Module(network) if isinstance(network, nn.Module) else network
    at, width = f"network {network!r:.200}", K
    if isinstance(network, Module):
        network = network if network.tried_on == x.shape[1:] else tried(network, x)
        at, width = network.at, network.K
    else:
        try:
            w = network.init(0, x.dtype)
            assert {*network.head, *network.buffers, *network.layers[0]} <= {*w}
            if len(x):
                w = {k: v.to(x.device) for k, v in w.items()}
                width = network.out(w, network.feat(w, x[:ROWS])).shape[-1]
        except Exception as e:
            raise ValueError(
                f"{at} is no network, or cannot read rows of shape {list(x.shape[1:])} "
                f"({kind(e)}: {e}); give a torch.nn.Module, or one of fedlib.nets with "
                "the sizes of the data"
            ) from e
    if width < K:
        raise ValueError(
            f"{at} gives {width} logits per row, and the labels are 0 .. {K - 1}: give "
            f"its last layer {K} outputs"
        )
    if network.buffers and min(task.batch, *map(len, task.train)) == 1:
        warn(
            f"{at} has batch norm, and batch = {task.batch}, or a client has one "
            "training row: the norm of one row forgets it; give more, or another norm"
        )
    return {"network": network, "K": width if isinstance(network, Module) else K}


def with_head(network, head):
    """The nn.Module `network` with this head; ValueError for any other network."""
    if isinstance(network, nn.Module):
        return Module(network, head)
    if not isinstance(network, Module) or network.named_head is not None:
        raise ValueError(
            f"head = {head!r} is for a torch.nn.Module, not given twice; {network!r} "
            "knows its head: leave head out"
        )
    return Module(network.given, head, network.start)


@torch.no_grad()
def tried(network, x):
    """The Module after a trial on the first rows of x: K, D, head and what it does in
    training are known. ValueError for what cannot be trained."""
    if not len(x):
        raise ValueError(f"{network.at} has no rows to be tried on")
    network, rows = copy.copy(network), x[:ROWS].clone()
    network.tried_on, network.cache = x.shape[1:], {}
    for stale in ("identity", "units"):
        vars(network).pop(stale, None)
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        first = trial = Trial(network, rows, 0.05)  # of two rows a norm is coarse
        with contextlib.suppress(ValueError):  # it makes float32 tensors itself
            trial = Trial(network, rows.double(), 1e-6)
        trial.in_place |= first.in_place
        for wrong, words in trial.faults():
            if wrong:
                raise ValueError(f"{network.at} {words}")
        network.K = trial.z.shape[1]
        network.why = trial.head()
        network.splits = not network.why
        trial.w |= {k: 1000 * trial.w[k] for k in network.head}
        u = trial.run(trial.rows)
        if u.any() and bool(((u >= 0) & (u <= 1)).all()):
            warn(
                f"{network.at} returns numbers from 0 to 1, however large its last "
                "layer; the loss takes logits: leave its sigmoid out"
            )
    network.cache = {}  # without the precision of the trial
    return network


class Trial:
    """A few passes over the same rows.

    share: by what share of the largest logit two passes may differ by rounding.
    """

    def __init__(self, network, rows, share):
        self.network, self.rows, self.share = network, rows, share
        w = network.init(0, rows.dtype)
        self.w = {k: v.to(rows.device) for k, v in w.items()}
        held, version = network.constants_for(rows) | self.w, rows._version
        before = {k: v.clone() for k, v in held.items()}
        padded = torch.cat([rows, rows[:1]])
        m = torch.ones_like(padded.flatten(1)[:, 0])
        m[-1] = 0
        self.b, of_padded = batch(rows), batch(padded, m)
        self.z, self.alone = self.run(rows), self.run(rows[:1], seed=1)
        self.y, self.again = self.run(rows, self.b), self.run(rows, self.b, 1)
        self.padded = self.run(padded, of_padded)
        self.in_place = rows._version != version
        self.moved = [k for k, v in before.items() if not torch.equal(held[k], v)]

    def run(self, rows, b=None, seed=0, stats=None, part="whole"):
        """What a part gives, in evaluation or on a batch; seed: of torch's draws."""
        torch.manual_seed(seed)
        stats = {} if stats is None else stats
        try:
            return self.network.call(part, self.w, rows, b, stats)
        except Exception as e:
            mode = "evaluation" if b is None else "training"
            raise ValueError(
                f"{self.network.at} cannot read rows of shape {list(rows.shape[1:])} "
                f"in {mode} ({kind(e)}: {str(e)[:300]}); give it the sizes of the data"
            ) from e

    def near(self, a, b):
        """Do a and b differ by no more than a share of the largest of b?"""
        most = self.share * float(b.abs().max() + 1e-6)
        return a.shape == b.shape and float((a - b).abs().max()) <= most

    def faults(self):
        """(is it so, what is wrong), one after another."""
        z, y, n, tensor = self.z, self.y, len(self.rows), torch.is_tensor
        got = f"{z.dtype} {list(z.shape)}" if tensor(z) else f"a {kind(z)}"
        logits = tensor(z) and z.dim() == 2 and len(z) == n and z.is_floating_point()
        yield not logits, f"returns {got} for {n} rows; return logits [B, K] alone"
        yield not z.isfinite().all(), "returns NaN or infinity; standardise x"
        yield self.in_place, "changes x in place; write x = x - 1 and clamp, not clamp_"
        sums = z.sum(1)
        shares = z.shape[1] > 1 and (z >= 0).all() and sums.allclose(sums / sums)
        yield shares, "returns probabilities; the loss takes logits: no softmax"
        words = (
            "gives a row different logits alone and beside other rows: it mixes rows"
        )
        words += " (batch_first = True?), draws at random, or keeps something"
        yield not self.near(self.alone, z[:1]), words
        words = "returns another shape in training than in evaluation"
        yield not tensor(y) or y.shape != z.shape, words
        words = f"changes its tensor {', '.join(self.moved)} in training, which nobody"
        yield self.moved, f"{words} averages; use nn.BatchNorm, group or weight norm"
        words = "draws at random while training: use nn.Dropout, attention with dropout"
        yield not self.again.allclose(y, atol=1e-5), f"{words} = 0.0, no nn.RReLU"
        words = (
            "gives a row different logits in training beside one that does not count"
        )
        words += "; mix no rows: nn.BatchNorm, nn.GroupNorm, batch_first = True"
        yield not self.near(self.padded[:n], y), words

    def head(self):
        """Finds the head; why it cannot be taken apart from features [B, D], or ""."""
        network, place = self.network, self.network.named_head
        if place is None:
            place = self.last_layer()
            network.head = network.owners[place]
        place, *more = [place] if isinstance(place, str) else place
        if more or place not in dict(network.given.named_modules()):
            return "it is not one submodule"
        network.head_module = place
        if any(below(k, place) for k in tied(network.given)):
            return "its weight is tied to another layer's"
        try:
            for b in (None, self.b):
                new, whole = {}, {}
                z = self.run(self.rows, b, 0, new, "body")
                if not torch.is_tensor(z) or z.shape[:-1] != self.rows.shape[:1]:
                    return "it does not get features [B, D]"
                out, y = self.run(z, part="head"), self.run(self.rows, b, 0, whole)
                if not self.near(out, y) or new.keys() != whole.keys():
                    return "its output is not yet the logits, or it holds batch norm"
        except ValueError as e:
            return f"without it the module fails ({str(e)[:200]})"
        network.D, tensors = z.shape[1], [self.w[k] for k in network.head]
        linear = [v.shape for v in tensors] == [(network.K, network.D), (network.K,)]
        network.linear = linear and self.near(F.linear(z, *tensors), out)
        return ""

    def last_layer(self):
        """The module with parameters of its own that is called last."""
        owners, hooks = self.network.owners, []
        order, (shell, *_) = [*owners], own_copy(self.network, "whole", False)
        for name, m in shell.named_modules():
            if name in owners:
                called = lambda m, args, name=name: order.append(name)
                hooks.append(m.register_forward_pre_hook(called))
        self.run(self.rows)
        for hook in hooks:
            hook.remove()
        return order[-1]


def batch(rows, m=None):
    """Rows as a batch with a key, the last of them perhaps padding."""
    i = torch.arange(len(rows), device=rows.device)
    return Batch(rows, i * 0, None, m, i, i.new_zeros(()), len(rows))
