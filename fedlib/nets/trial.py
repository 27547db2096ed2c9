"""A network is tried on a task's first rows: what cannot be trained is refused there.

Letters: B batch, K classes, D feature width.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from ..core.errors import nearest
from ..core.shards import Batch
from .deep import AlexNetBN, ResNet18, ResNet50, WideResNet
from .forward import Training
from .layers import Net
from .module import Module, below, kind, logits, own_copy
from .small import CNN, MLP, FedAvgCNN, Linear

KNOWN = Linear, MLP, CNN, FedAvgCNN, ResNet18, ResNet50, WideResNet, AlexNetBN
ROWS = 2  # on which a network is tried
TABLES = nn.Embedding, nn.EmbeddingBag  # read whole numbers
PROTOCOL = ("init", "feat", "out", "head", "layers", "buffers")


def fitted(network, x, K):
    """The network of a task with rows x [N, ...] and labels 0 .. K - 1.

    An nn.Module becomes a `Module`. ValueError for what is no network, and for one that
    these rows and labels do not fit.
    """
    if isinstance(network, nn.Module):
        network = Module(network)
    if not isinstance(network, Module):
        check_own(network, x, K)
        return network
    if network.tried_on != (x.shape[1:], x.dtype, x.device):
        network = tried(network, x)
    check_classes(network.at, network.K, K)
    return network


def with_head(network, head):
    """The nn.Module `network` with this head; ValueError for any other network."""
    if isinstance(network, Module):
        if network.asked is not None:
            raise ValueError(
                f"head = {head!r} is given twice: {network!r} has one; leave one out"
            )
        network = copy.copy(network)
        network.asked, network.head = head, network.names_below(head)
        network.tried_on = None
        return network
    if isinstance(network, nn.Module):
        return Module(network, head)
    raise ValueError(
        f"head = {head!r} is for a torch.nn.Module, and the network is "
        f"{network!r:.80}: fedlib's own networks know their head; leave head out"
    )


# ---------------------------------------------------------------- fedlib's own protocol
def check_own(network, x, K):
    """ValueError for what is no network, or does not fit the rows or the labels."""
    names = [c.__name__ for c in KNOWN]
    what = network.__name__ if isinstance(network, type) else network
    known = f"(known: {', '.join(names)})"
    if isinstance(network, (type, str)):
        raise ValueError(
            f"network = {what!r} is {'a class' if what is not network else 'a name'}"
            f"{nearest(what, names)}; give an object, as MLP({x[:1].numel()}, 32, {K}) "
            f"or a torch.nn.Module {known}"
        )
    missing = [k for k in PROTOCOL if not hasattr(network, k)]
    if missing:
        raise ValueError(
            f"network = {network!r:.80} is no network: it has no {missing[0]!r}; give "
            f"a torch.nn.Module, or a network of fedlib.nets {known}"
        )
    rows = x[:ROWS]
    if not len(rows):
        return
    try:
        width = outputs(network, rows)
    except Exception as e:
        names = network.init(0, x.dtype)
        if not network.head or set(network.head) - set(names):
            raise ValueError(
                f"the head of {network!r:.200} names no layer: "
                f"({', '.join(network.head)}) is not among {', '.join(names)}; correct "
                "the network's `head`"
            ) from e
        raise ValueError(
            f"network {network!r:.200} cannot read rows of shape {list(x.shape[1:])} "
            f"({kind(e)}: {e}); give it the sizes of the data"
        ) from e
    check_classes(f"network {network!r:.200}", width, K)


def outputs(network, rows):
    """The number of logits that a network gives."""
    if isinstance(network, Net):
        try:  # zeros that take no memory; torch's device "meta" imports 800 modules
            zero, x = rows.new_zeros((), dtype=torch.float32), rows.float()
            shapes = {p.name: p.shapes for p in network.parts}
            w = {
                f"{n}.{leaf}": zero.expand(s)
                for n, leaves in shapes.items()
                for leaf, s in leaves.items()
            }
            return logits_of(network, w, x).shape[-1]
        except Exception:
            pass  # said again, and better, with values
    w = {k: v.to(rows.device) for k, v in network.init(0, rows.dtype).items()}
    return logits_of(network, w, rows).shape[-1]


@torch.no_grad()
def logits_of(network, w, rows):
    return network.out(w, network.feat(w, rows))


def check_classes(at, width, K):
    """As many logits as labels, or more."""
    if width < K:
        raise ValueError(
            f"{at} gives {width} logits per row, and the labels are 0 .. {K - 1}: give "
            f"its last layer {K} outputs"
        )


# ---------------------------------------------------------------- modules
def tried(network, x):
    """The Module after a trial on the first rows of x: K, D, head and what it does in
    training are known. ValueError for what cannot be trained."""
    network = copy.copy(network)
    network.__dict__.pop("identity", None)
    network.tried_on = (x.shape[1:], x.dtype, x.device)
    network.splits, network.alters = False, True
    if not len(x):
        raise ValueError(f"{network.at}: the task has no rows to try it on")
    devices = [x.device] if x.is_cuda else []
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        trial = Trial(network, x)
        trial.evaluation()
        trial.training()
        trial = trial.in_double()
        trial.rows_apart()
        trial.head()
    network.kept = {}  # constants in the precision of the trial
    return network


class Trial:
    """The passes of a trial; each check raises a ValueError of its own.

    share: by what share of the largest logit two passes may differ by rounding.
    """

    share = 0.05  # batch norm over two rows magnifies it

    def __init__(self, network, x):
        self.network, self.at, self.x = network, network.at, x
        self.rows = x[:ROWS]
        w = network.init(0, x.dtype)
        self.w = {k: v.to(x.device) for k, v in w.items()}

    def batch(self, rows, m=None):
        """Rows as a batch with a key, the last of them perhaps padding."""
        n, device = len(rows), rows.device
        i, key = torch.arange(n, device=device), torch.tensor(0, device=device)
        return Batch(rows, i * 0, None, m, i, key, n)

    def run(self, rows, b=None, seed=0, stats=None):
        """Logits of rows, in evaluation or on a batch; seed: of torch's own draws."""
        torch.default_generator.manual_seed(seed)
        if rows.is_cuda:
            torch.cuda.manual_seed(seed)
        return self.network.call("whole", self.w, rows, b, stats)

    def near(self, a, b):
        return near(a, b, self.share)

    def in_double(self):
        """The same trial in float64, if the module runs there."""
        fine = Trial(self.network, self.rows.double())
        fine.share = 1e-6
        try:
            fine.run(fine.rows)
            fine.run(fine.rows, fine.batch(fine.rows))
        except Exception:  # as where it makes float32 tensors itself
            return self
        return fine

    # ------------------------------------------------------------ evaluation
    def evaluation(self):
        """Logits [B, K] that are finite, no probabilities, and each row's own."""
        z = self.first_pass()
        if not isinstance(z, torch.Tensor):
            raise ValueError(
                f"{self.at} returns a {kind(z)}; wrap it in a module that returns the "
                "logits [B, K] alone"
            )
        if z.dim() != 2 or len(z) != len(self.rows) or not z.is_floating_point():
            raise ValueError(
                f"{self.at} returns {z.dtype} {list(z.shape)} for {len(self.rows)} "
                "rows; it must return logits [B, K], one per class also for two "
                "classes"
            )
        if not z.isfinite().all():
            raise ValueError(
                f"{self.at} returns NaN or infinity on the first rows; standardise x, "
                "or mend the module"
            )
        one = torch.ones_like(z[:, 0])
        if z.shape[1] > 1 and (z >= 0).all() and torch.allclose(z.sum(1), one):
            raise ValueError(
                f"{self.at} returns probabilities (they sum to 1 in every row); leave "
                "its last softmax out: the loss takes logits"
            )
        self.network.K = z.shape[1]
        if not near(self.run(self.rows, seed=1), z, 1e-5):
            raise ValueError(
                f"{self.at} gives the same rows different logits in evaluation: it "
                "draws at random, or keeps something between calls; draw only where "
                "self.training holds"
            )

    def first_pass(self):
        """The first output; tries whole numbers as tokens where it must."""
        network, x = self.network, self.x
        tables = [m for m in network.shell.modules() if isinstance(m, TABLES)]
        if network.tokens:
            self.check_tokens(tables)
        try:
            return self.run(self.rows)
        except Exception as e:
            error = e
        whole = bool((x == x.round()).all()) and x.dtype != torch.bool
        if network.tokens is None and tables and whole:
            network.tokens = True
            try:
                self.check_tokens(tables)
                return self.run(self.rows)
            except Exception as e:
                error = e
        if isinstance(error, ValueError) and str(error).startswith(self.at):
            raise error
        hint = ""
        if tables and not whole and network.tokens is None:
            hint = "; it has an embedding, which reads whole numbers, and x has others"
        raise ValueError(
            f"{self.at} cannot read rows of shape {list(x.shape[1:])} ({kind(error)}: "
            f"{str(error)[:300]}){hint}; it is called as module(x) with x [B, ...]: "
            "give it the sizes of the data, or wrap it in a module that takes x alone"
        ) from error

    def check_tokens(self, tables):
        """Whole numbers, which the table that reads them has."""
        x = self.x
        if not bool((x == x.round()).all()) or (len(x) and x.min() < 0):
            raise ValueError(
                f"{self.at}: tokens = True, and x holds numbers that are not whole, or "
                "negative; give token numbers 0, 1, 2 ..."
            )
        sizes, most, ones = [], int(x.max()), torch.ones_like(self.rows).long()

        def reads(m, args):  # the module's own input, not positions or types
            if args and args[0].shape == ones.shape and torch.equal(args[0], ones):
                sizes.append(m.num_embeddings)

        shell, _ = own_copy(self.network, "whole", False)
        hooks = [
            m.register_forward_pre_hook(reads)
            for m in shell.modules()
            if isinstance(m, TABLES)
        ]
        try:
            self.run(torch.ones_like(self.rows))
        except Exception:
            pass  # said by the pass on the rows themselves
        finally:
            for hook in hooks:
                hook.remove()
        small = [n for n in sizes if n <= most]
        if small:
            raise ValueError(
                f"{self.at}: x holds token {most}, and its embedding knows 0 .. "
                f"{small[0] - 1}; give nn.Embedding {most + 1} rows"
            )

    # ------------------------------------------------------------ training
    def training(self):
        """Nothing but batch norm mixes rows, nothing but dropout draws, and only
        running statistics change."""
        network, b = self.network, self.batch(self.rows)
        try:
            z = self.first_training(b)
        except Exception as e:
            if str(e).startswith(self.at):
                raise
            raise ValueError(
                f"{self.at} runs in evaluation and not in training ({kind(e)}: "
                f"{str(e)[:300]})"
            ) from e
        if not isinstance(z, torch.Tensor) or z.shape != (len(self.rows), network.K):
            raise ValueError(
                f"{self.at} returns other things in training than in evaluation; it "
                "must return logits [B, K] in both"
            )
        if not near(self.run(self.rows, b, 1, {}), z, 1e-5):
            raise ValueError(
                f"{self.at} draws at random while training, other than by dropout "
                f"(nn.Dropout, F.dropout){self.suspects()}; set its rate to 0, so that "
                "runs can be repeated"
            )

    def first_training(self, b):
        """A pass in training; of what is no weight nothing may change."""
        network, x = self.network, self.rows
        shell, tensors, known = network.filled("whole", self.w, x, True)
        before = {k: v.clone() for k, v in tensors.items()}
        torch.default_generator.manual_seed(0)
        with Training(b, {}, known) as mode:
            x = x.long() if network.tokens else x
            z = logits(functional_call(shell, tensors, (x,), tie_weights=False))
        network.alters = mode.acted
        for k, v in before.items():
            if not torch.equal(tensors[k], v):
                raise ValueError(
                    f"{self.at} changes its tensor {k} while training; only the "
                    "running statistics of nn.BatchNorm may change (use group norm in "
                    "place of an instance norm with statistics, weight norm in place "
                    "of a spectral norm)"
                )
        return z

    def rows_apart(self):
        """A row's logits are its own in evaluation; in training they depend on rows
        that count alone."""
        rows = self.rows
        if not self.near(self.run(rows[:1]), self.run(rows)[:1]):
            raise ValueError(
                f"{self.at} gives a row different logits beside other rows, also in "
                "evaluation; keep the rows apart (in recurrent layers and attention: "
                "batch_first = True)"
            )
        padded = torch.cat([rows, rows[:1]])
        m = torch.ones_like(padded.flatten(1)[:, 0])
        m[-1] = 0
        z = self.run(padded, self.batch(padded, m), 0, {})[: len(rows)]
        if not self.near(z, self.run(rows, self.batch(rows), 0, {})):
            raise ValueError(
                f"{self.at} gives a row different logits in training beside a row that "
                "does not count: something other than nn.BatchNorm mixes the rows of a "
                "batch; use group or layer norm"
            )

    def suspects(self):
        """Submodules with a rate of their own, for the message."""
        rates = ("dropout", "drop_prob", "p", "drop_path")
        found = [
            f"{n} ({kind(m)})"
            for n, m in self.network.shell.named_modules()
            for r in rates
            if isinstance(vars(m).get(r), float) and vars(m)[r] > 0
        ]
        found = [f for f in found if "(Dropout" not in f]
        return f": {', '.join(found[:3])}" if found else ""

    # ------------------------------------------------------------ the head
    def head(self):
        """Which layer is the head, and does it make the logits from features?"""
        network = self.network
        if network.asked is None:
            last = self.last_layer()
            network.head, place = tuple(network.owners[last]), last
        else:
            names = [network.asked] if isinstance(network.asked, str) else network.asked
            modules = dict(network.shell.named_modules())
            place = names[0] if len(names) == 1 and names[0] in modules else None
        if place is None:
            network.why = "it is not one submodule"
            return
        network.head_module = place
        try:
            network.why = self.apart()
        except Exception as e:
            network.why = f"without it the module fails ({kind(e)}: {str(e)[:100]})"
        network.splits = not network.why

    def last_layer(self):
        """The module with parameters of its own that is called last."""
        order, network = [], self.network
        shell, _ = own_copy(network, "whole", False)
        hooks = []
        for name, m in shell.named_modules():
            if name in network.owners:
                called = lambda m, args, name=name: order.append(name)
                hooks.append(m.register_forward_pre_hook(called))
        self.run(self.rows)
        for hook in hooks:
            hook.remove()
        return order[-1] if order else list(network.owners)[-1]

    def apart(self):
        """Why the head cannot be taken apart, or ""."""
        network, z = self.network, None
        if network.aliases and any(
            below(k, network.head_module) for k in network.aliases
        ):
            return "its weight is tied to another layer's"
        for b in (None, self.batch(self.rows)):
            new, whole = (None, None) if b is None else ({}, {})
            z = network.call("body", self.w, self.rows, b, new)
            if not isinstance(z, torch.Tensor) or z.dim() != 2:
                return "it does not get features [B, D]"
            if len(z) != len(self.rows):
                return "it does not get one row of features per row"
            out = self.run(self.rows, b, 0, whole)
            if not self.near(network.call("head", self.w, z), out):
                return "its output is not yet the logits"
            if b is not None and new.keys() != whole.keys():
                return "it holds batch norm"
        network.D = z.shape[1]
        network.linear = self.is_linear(z)
        return ""

    def is_linear(self, z):
        """Is the head z W' + c, as its two tensors say?"""
        shapes = [tuple(self.w[k].shape) for k in self.network.head]
        if shapes != [(self.network.K, z.shape[1]), (self.network.K,)]:
            return False
        W, c = (self.w[k] for k in self.network.head)
        return self.near(F.linear(z, W, c), self.network.call("head", self.w, z))


def near(a, b, share):
    """Do a and b differ by no more than a share of the largest of b?"""
    most = share * float(b.abs().max() + 1e-6)
    return a.shape == b.shape and float((a - b).abs().max()) <= most
