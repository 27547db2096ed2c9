"""A network is tried on a task's first rows: what cannot be trained is refused there.

Whatever mixes the rows of a batch, draws at random or changes a buffer is found as far
as two rows show it; a module that does so only on other rows cannot be told from a good
one.
Letters: B batch, K classes, D feature width.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from ..core.shards import Batch
from .module import Module, Training, below, kind, own_copy

ROWS = 2  # on which a network is tried


def fitted(network, x, K):
    """The network of a task with rows x [N, ...] and labels 0 .. K - 1.

    An nn.Module becomes a `Module`. ValueError for what is no network, and for one that
    these rows and labels do not fit.
    """
    network = Module(network) if isinstance(network, nn.Module) else network
    at, width = f"network {network!r:.200}", K
    if isinstance(network, Module):
        if network.tried_on != (x.shape[1:], x.dtype, x.device):
            network = tried(network, x)
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
    return network


def with_head(network, head):
    """The nn.Module `network` with this head; ValueError for any other network."""
    if isinstance(network, nn.Module):
        return Module(network, head)
    if not isinstance(network, Module) or network.named_head is not None:
        raise ValueError(
            f"head = {head!r} is for a torch.nn.Module, not given twice; {network!r} "
            "knows its head: leave head out"
        )
    network = copy.copy(network)
    network.named_head, network.head = head, network.names_below(head)
    network.tried_on = None
    return network


@torch.no_grad()
def tried(network, x):
    """The Module after a trial on the first rows of x: K, D, head and what it does in
    training are known. ValueError for what cannot be trained."""
    network = copy.copy(network)
    network.__dict__.pop("identity", None)
    network.tried_on = (x.shape[1:], x.dtype, x.device)
    network.splits, network.alters = False, True
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        network.cache = {}
        trial = Trial(network, x[:ROWS])
        for fine, words in trial.checks(x):
            if not fine:
                raise ValueError(f"{network.at} {words}")
        trial.in_double().head()
        network.cache = {}  # without the precision of the trial
    return network


class Trial:
    """The passes of a trial.

    share: by what share of the largest logit two passes may differ by rounding.
    """

    share = 0.05  # batch norm over two rows magnifies it

    def __init__(self, network, rows):
        self.network, self.rows = network, rows
        w = network.init(0, rows.dtype)
        self.w = {k: v.to(rows.device) for k, v in w.items()}

    def batch(self, rows, m=None):
        """Rows as a batch with a key, the last of them perhaps padding."""
        i = torch.arange(len(rows), device=rows.device)
        return Batch(rows, i * 0, None, m, i, i.new_zeros(()), len(rows))

    def run(self, rows, b=None, seed=0, stats=None, part="whole"):
        """What a part gives, in evaluation or on a batch; seed: of torch's draws."""
        torch.manual_seed(seed)
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

    def in_double(self):
        """The same trial in float64, if the module runs there."""
        fine = Trial(self.network, self.rows.double())
        fine.share = 1e-6
        try:
            fine.run(fine.rows)
            fine.run(fine.rows, fine.batch(fine.rows))
        except ValueError:  # as where it makes float32 tensors itself
            return self
        return fine

    def checks(self, x):
        """(is it so, what is wrong where not), one after another."""
        network, rows, b = self.network, self.rows, self.batch(self.rows)
        yield len(x), "has no rows to be tried on"
        whole = bool((x == x.round()).all())
        table = any(isinstance(m, nn.Embedding) for m in network.shell.modules())
        if network.tokens is None and table and whole:
            try:
                self.run(rows)
            except ValueError:
                network.tokens = True
        words = "reads tokens, and x holds numbers that are not whole; give 0, 1, 2 ..."
        yield whole or not network.tokens, words

        z, tensor = self.run(rows), torch.is_tensor
        words = f"{z.dtype} {list(z.shape)}" if tensor(z) else f"a {kind(z)}"
        words = f"returns {words} for {len(rows)} rows; return logits [B, K] alone"
        yield tensor(z) and z.dim() == 2 and len(z) == len(rows), words
        yield z.is_floating_point(), words
        network.K, sums = z.shape[1], z.sum(1)
        yield z.isfinite().all(), "returns NaN or infinity; standardise x"
        words = (
            "returns probabilities, and the loss takes logits; leave its softmax out"
        )
        shares = network.K > 1 and (z >= 0).all() and sums.allclose(sums / sums)
        yield not shares, words
        yield (
            self.run(rows, seed=1).allclose(z, atol=1e-5),
            "gives the same rows different logits in evaluation: it draws at random or "
            "keeps something; draw only where self.training holds",
        )
        y = self.run(rows, b, 0, {})
        words = "returns another shape in training than in evaluation"
        yield tensor(y) and y.shape == z.shape, words
        moved = self.moved(b)
        yield (
            not moved,
            f"changes its tensor {', '.join(moved)} while training, as only running "
            "statistics of nn.BatchNorm may; use group norm, weight norm",
        )
        yield (
            self.run(rows, b, 1, {}).allclose(y, atol=1e-5),
            "draws at random while training, other than by nn.Dropout or F.dropout; "
            "set its rate to 0, so that runs can be repeated",
        )
        fine = self.in_double()
        rows, padded = fine.rows, torch.cat([fine.rows, fine.rows[:1]])
        yield (
            fine.near(fine.run(rows[:1]), fine.run(rows)[:1]),
            "gives a row different logits beside other rows, also in evaluation; keep "
            "the rows apart (recurrent layers and attention: batch_first = True)",
        )
        m = torch.ones_like(padded.flatten(1)[:, 0])
        m[-1] = 0
        z = fine.run(padded, fine.batch(padded, m), 0, {})[: len(rows)]
        yield (
            fine.near(z, fine.run(rows, fine.batch(rows), 0, {})),
            "gives a row different logits in training beside a row that does not "
            "count: it mixes the rows of a batch; use nn.BatchNorm or nn.GroupNorm",
        )

    def moved(self, b):
        """What changes in training beside running statistics; and is a layer ours?"""
        network, x = self.network, self.rows
        shell, tensors, names = network.filled("whole", self.w, x, True)
        before = {k: v.clone() for k, v in tensors.items()}
        with Training(b, {}, names) as mode:
            x = x.long() if network.tokens else x
            functional_call(shell, tensors, (x,), tie_weights=False)
        network.alters = mode.acted
        return [k for k, v in before.items() if not torch.equal(tensors[k], v)]

    # ------------------------------------------------------------ the head
    def head(self):
        """Which layer is the head, and does it make the logits from features?"""
        network, names = self.network, self.network.named_head
        if names is None:
            names = self.last_layer()
            network.head = network.owners[names]
        place, *more = [names] if isinstance(names, str) else names
        if more or place not in dict(network.shell.named_modules()):
            network.why = "it is not one submodule"
            return
        network.head_module = place
        try:
            network.why = self.apart()
        except ValueError as e:
            network.why = f"without it the module fails ({str(e)[:200]})"
        network.splits = not network.why

    def last_layer(self):
        """The module with parameters of its own that is called last."""
        order, owners = [], self.network.owners
        shell, _ = own_copy(self.network, "whole", False)
        hooks = [
            m.register_forward_pre_hook(lambda m, args, name=name: order.append(name))
            for name, m in shell.named_modules()
            if name in owners
        ]
        self.run(self.rows)
        for hook in hooks:
            hook.remove()
        return order[-1] if order else [*owners][-1]

    def apart(self):
        """Why the head cannot be taken apart, or ""."""
        network = self.network
        if any(below(k, network.head_module) for k in network.aliases):
            return "its weight is tied to another layer's"
        for b in (None, self.batch(self.rows)):
            new, whole = (None, None) if b is None else ({}, {})
            z = self.run(self.rows, b, 0, new, "body")
            if not torch.is_tensor(z) or z.dim() != 2 or len(z) != len(self.rows):
                return "it does not get features [B, D]"
            out = self.run(self.rows, b, 0, whole)
            logits = self.run(z, part="head")
            if not self.near(logits, out) or (
                b is not None and new.keys() != whole.keys()
            ):
                return "its output is not yet the logits, or it holds batch norm"
        network.D, tensors = z.shape[1], [self.w[k] for k in network.head]
        linear = [v.shape for v in tensors] == [(network.K, network.D), (network.K,)]
        network.linear = linear and self.near(F.linear(z, *tensors), logits)
        return ""
