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
from .forward import Training
from .module import Module, below, kind, own_copy

ROWS = 2  # on which a network is tried
PROTOCOL = ("init", "feat", "out", "head", "layers", "buffers")


def fitted(network, x, K):
    """The network of a task with rows x [N, ...] and labels 0 .. K - 1.

    An nn.Module becomes a `Module`. ValueError for what is no network, and for one that
    these rows and labels do not fit.
    """
    network = Module(network) if isinstance(network, nn.Module) else network
    at = f"network {network!r:.200}"
    if not isinstance(network, Module):
        width = outputs(network, x[:ROWS], at)
    else:
        if network.tried_on != (x.shape[1:], x.dtype, x.device):
            network = tried(network, x)
        at, width = network.at, network.K
    if width is not None and width < K:
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
        twice = "is given twice" if isinstance(network, Module) else "is for a module"
        raise ValueError(
            f"head = {head!r} {twice}, and the network is {network!r:.80}, which knows "
            "its head; leave head out"
        )
    network = copy.copy(network)
    network.named_head, network.head = head, network.names_below(head)
    network.tried_on = None
    return network


@torch.no_grad()
def outputs(network, rows, at):
    """The number of logits of a network that has the protocol itself; None: no rows."""
    missing = [k for k in PROTOCOL if not hasattr(network, k)]
    if missing or isinstance(network, type):
        raise ValueError(
            f"{at} is no network ({missing[0] if missing else 'a class'}): give a "
            "torch.nn.Module, or an object such as fedlib.nets.MLP(inputs, 32, K)"
        )
    if not len(rows):
        return None
    try:
        w = {k: v.to(rows.device) for k, v in network.init(0, rows.dtype).items()}
        return network.out(w, network.feat(w, rows)).shape[-1]
    except Exception as e:
        raise ValueError(
            f"{at} cannot read rows of shape {list(rows.shape[1:])} ({kind(e)}: {e}); "
            "give it the sizes of the data"
        ) from e


# ---------------------------------------------------------------- modules
def tried(network, x):
    """The Module after a trial on the first rows of x: K, D, head and what it does in
    training are known. ValueError for what cannot be trained."""
    if not len(x):
        raise ValueError(f"{network.at}: the task has no rows to try it on")
    network = copy.copy(network)
    network.__dict__.pop("identity", None)
    network.tried_on = (x.shape[1:], x.dtype, x.device)
    network.splits, network.alters = False, True
    devices = [x.device] if x.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        network.cache = {}
        trial = Trial(network, x[:ROWS])
        trial.tokens(x)
        trial.evaluation()
        trial.training()
        trial = trial.in_double()
        trial.rows_apart()
        trial.head()
        network.cache = {}  # without the precision of the trial
    return network


class Trial:
    """The passes of a trial; each check raises a ValueError of its own.

    share: by what share of the largest logit two passes may differ by rounding.
    """

    share = 0.05  # batch norm over two rows magnifies it

    def __init__(self, network, rows):
        self.network, self.rows = network, rows
        w = network.init(0, rows.dtype)
        self.w = {k: v.to(rows.device) for k, v in w.items()}

    def check(self, fine, what):
        if not fine:
            raise ValueError(f"{self.network.at} {what}")

    def batch(self, rows, m=None):
        """Rows as a batch with a key, the last of them perhaps padding."""
        n, device = len(rows), rows.device
        i, key = torch.arange(n, device=device), torch.tensor(0, device=device)
        return Batch(rows, i * 0, None, m, i, key, n)

    def run(self, rows, b=None, seed=0, stats=None, part="whole"):
        """What a part gives, in evaluation or on a batch; seed: of torch's draws."""
        torch.default_generator.manual_seed(seed)
        if rows.is_cuda:
            torch.cuda.manual_seed(seed)
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

    # ------------------------------------------------------------ evaluation
    def tokens(self, x):
        """Does the module read x as tokens, whole numbers?"""
        network, whole = self.network, bool((x == x.round()).all())
        table = any(isinstance(m, nn.Embedding) for m in network.shell.modules())
        if network.tokens is None and table and whole:
            try:
                self.run(self.rows)
            except ValueError:
                network.tokens = True
        what = "reads tokens, and x holds numbers that are not whole; give 0, 1, 2 ..."
        self.check(whole or not network.tokens, what)

    def evaluation(self):
        """Logits [B, K] that are finite, no probabilities, and the same each time."""
        z, B = self.run(self.rows), len(self.rows)
        tensor = isinstance(z, torch.Tensor)
        what = f"{z.dtype} {list(z.shape)}" if tensor else f"a {kind(z)}"
        fine = tensor and z.dim() == 2 and len(z) == B and z.is_floating_point()
        self.check(fine, f"returns {what} for {B} rows; return logits [B, K] alone")
        self.network.K, one = z.shape[1], torch.ones_like(z[:, 0])
        self.check(z.isfinite().all(), "returns NaN or infinity; standardise x")
        sums = z.shape[1] > 1 and (z >= 0).all() and torch.allclose(z.sum(1), one)
        what = "returns probabilities, and the loss takes logits; leave its softmax out"
        self.check(not sums, what)
        self.check(
            torch.allclose(self.run(self.rows, seed=1), z, atol=1e-5),
            "gives the same rows different logits in evaluation: it draws at random, "
            "or keeps something; draw only where self.training holds",
        )

    def rows_apart(self):
        """A row's logits are its own in evaluation; in training they depend on rows
        that count alone."""
        rows = self.rows
        self.check(
            self.near(self.run(rows[:1]), self.run(rows)[:1]),
            "gives a row different logits beside other rows, also in evaluation; keep "
            "the rows apart (recurrent layers and attention: batch_first = True)",
        )
        padded = torch.cat([rows, rows[:1]])
        m = torch.ones_like(padded.flatten(1)[:, 0])
        m[-1] = 0
        z = self.run(padded, self.batch(padded, m), 0, {})[: len(rows)]
        self.check(
            self.near(z, self.run(rows, self.batch(rows), 0, {})),
            "gives a row different logits in training beside a row that does not "
            "count: it mixes the rows of a batch; use nn.BatchNorm or nn.GroupNorm",
        )

    # ------------------------------------------------------------ training
    def training(self):
        """Nothing but dropout draws, and only running statistics change."""
        b, network = self.batch(self.rows), self.network
        z = self.run(self.rows, b, 0, {})
        same = isinstance(z, torch.Tensor) and z.shape == (len(self.rows), network.K)
        self.check(same, "returns another shape in training than in evaluation")
        self.check_constants(b)
        self.check(
            torch.allclose(self.run(self.rows, b, 1, {}), z, atol=1e-5),
            "draws at random while training, other than by nn.Dropout or F.dropout; "
            "set its rate to 0, so that runs can be repeated",
        )

    def check_constants(self, b):
        """Of what is no running statistic nothing changes in training."""
        network, x = self.network, self.rows
        shell, tensors, names = network.filled("whole", self.w, x, True)
        before = {k: v.clone() for k, v in tensors.items()}
        with Training(b, {}, names) as mode:
            x = x.long() if network.tokens else x
            functional_call(shell, tensors, (x,), tie_weights=False)
        network.alters = mode.acted
        moved = [k for k, v in before.items() if not torch.equal(tensors[k], v)]
        self.check(
            not moved,
            f"changes its tensor {', '.join(moved)} while training, as only the "
            "running statistics of nn.BatchNorm may; use group norm, weight norm",
        )

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
            if not isinstance(z, torch.Tensor) or z.dim() != 2:
                return "it does not get features [B, D]"
            if len(z) != len(self.rows):
                return "it does not get one row of features per row"
            out = self.run(self.rows, b, 0, whole)
            if not self.near(self.run(z, part="head"), out):
                return "its output is not yet the logits"
            if b is not None and new.keys() != whole.keys():
                return "it holds batch norm"
        network.D, network.linear = z.shape[1], self.is_linear(z)
        return ""

    def is_linear(self, z):
        """Is the head z W' + c, as its two tensors say?"""
        shapes = [tuple(self.w[k].shape) for k in self.network.head]
        if shapes != [(self.network.K, z.shape[1]), (self.network.K,)]:
            return False
        W, c = (self.w[k] for k in self.network.head)
        return self.near(F.linear(z, W, c), self.run(z, part="head"))
