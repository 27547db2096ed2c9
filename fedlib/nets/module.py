"""Bring a network: any `torch.nn.Module` that maps x [B, ...] to logits [B, K].

    Task.from_arrays(x, y, client_id, network=torchvision.models.resnet18())
    Task.from_arrays(x, y, client_id, network=Module(net, head="fc", start="fresh"))

`Module` gives it the protocol of this package through `torch.func.functional_call`, so
the same code runs on one model, under `torch.func.grad` and under `torch.func.vmap`.
A task tries it on its first rows and refuses what cannot be trained, as far as these
show it. In training, its layers of batch norm and dropout, which mix the rows of a
batch or draw at random, are fedlib's own.
Letters: B batch, K classes, T tokens, D feature width.
"""

import copy
import hashlib
import math
import re
import threading
from collections.abc import Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from types import SimpleNamespace
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook

from ..core.errors import nearest, refuse_if, warn
from ..core.local import transformed
from ..core.random import fold, tag, uniform
from ..core.shards import Batch
from . import layers


class Module(layers.Net):
    """An nn.Module as a network of fedlib (see the package for the protocol).

    module: a private copy is taken; later changes to it are not seen. Its mode (train
    or eval) does not matter. Parameters with requires_grad = False are constants,
    neither trained nor sent. Weights have the precision of the task's x.

    head: what methods keep personal: the name of a submodule ("fc", "classifier.1"), or
    a list of names of submodules or parameters. None: the layer that runs last. A
    weight that is tied belongs to the module that has it first.

    start: "given": every seed starts from the module's own weights, so that a
    pretrained module stays pretrained; seeds then differ in cohorts and batches alone.
    "fresh": init(seed) calls `reset_parameters` of every submodule that has one, under
    a generator seeded by `seed`; what no such method reaches stays as given.

    An nn.Embedding reads tokens as whole numbers, though a task keeps them as floats.
    The module returns logits [B, K], or an object that has them as `.logits`.
    ValueError for a module that cannot be trained here, either at once or when a task
    tries it."""

    # found out by `tried`: does the head, a submodule, make the logits from features
    # [B, D], and else why not; is it z W' + c
    splits, head_module, why = False, "", "no task has tried it"
    linear, D, K = False, None, None
    tried_on = None  # shape of a row

    def __init__(
        self,
        module: nn.Module,
        head: str | Sequence[str] | None = None,
        start: str = "given",
    ):
        if isinstance(module, Module) and module.named_head is None:
            module, start = module.given, module.start
        at = self.at = f"network {kind(module)}"
        words = f"{at} with head = {head!r}: give a torch.nn.Module, and its head once"
        refuse_if(not isinstance(module, nn.Module), words)
        self.name, self.named_head, self.start = kind(module), head, start
        self.given = copy.deepcopy(module).cpu()
        self.weights, self.constants, self.owners, self.buffers = parted(self.given)
        for m in (m for m in module.modules() if isinstance(m, _BatchNorm)):
            words = f"{at}: give batch norm a momentum, as 0.1, and track_running_stats"
            refuse_if(m.momentum is None or m.running_mean is None, words)
        refuse_if(not self.owners, f"{at}: give a parameter requires_grad = True")
        bare = not any(".parametrizations." in f".{k}" for k in self.weights)
        words = "give 'given', or without parametrised weights 'fresh'"
        good = start in ("given", "fresh")[: 1 + bare]
        refuse_if(not good, f"{at}: start = {start!r}; {words}")
        norms = {n for n, m in module.named_modules() if "Norm" in kind(m)}
        self.norms = tuple(k for k in self.weights if k.rpartition(".")[0] in norms)
        self.cache = {}  # constants by device and precision
        names = [k for ks in self.owners.values() for k in ks]
        prefixes = [head] if isinstance(head, str) or not head else list(head)
        for p in prefixes if head is not None else ():
            near = nearest(p, [*self.owners, *names])
            why = f"names no parameter{near} (it has {[*self.owners]!s:.60})"
            why = f"{at}: head = {p!r} {why}"
            refuse_if(not any(below(k, p) for k in names), why)
        self.head = tuple(k for k in names if any(below(k, p) for p in prefixes))

    def __repr__(self):
        head = f", head={self.named_head!r}" if self.named_head is not None else ""
        return f"Module({self.name}{head})"

    # ------------------------------------------------------------ weights
    def init(self, seed: int, dtype=torch.float32) -> dict:
        """Weights and running statistics: a function of the seed alone, see `start`."""
        made = self.given
        if self.start == "fresh":  # outside everybody else's random numbers
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seed)
                made = copy.deepcopy(made)
                for m in made.modules():
                    if hasattr(m, "reset_parameters"):
                        m.reset_parameters()
        return {k: v.to(dtype, copy=True) for k, v in parted(made)[0].items()}

    @cached_property
    def identity(self):
        """One line that tells this network from others: its class, its size, a digest
        of architecture (its repr) and starting weights."""
        text = re.sub(r" at 0x[0-9a-f]+", "", repr(self.given))
        h = hashlib.sha256(repr((text, self.head, self.start)).encode())
        for k, v in (self.init(0, torch.float64) | self.constants).items():
            h.update(f"{k} {list(v.shape)}".encode())
            h.update(v.reshape(-1).view(torch.uint8).numpy().tobytes())
        P = sum(v.numel() for k, v in self.weights.items() if k not in self.buffers)
        return f"{self.name}, {P} parameters, {h.hexdigest()[:12]}"

    @property
    def layers(self):
        """One tuple of names per module with parameters of its own, the head last."""
        of_head = lambda names: set(names) <= set(self.head)
        return tuple(sorted(map(tuple, self.owners.values()), key=of_head))

    # ------------------------------------------------------------ forward
    def feat(self, w, x, b=None, stats=None):
        """x [B, ...] -> what the head gets [B, D], or logits where nothing is split."""
        return self.call("body" if self.splits else "whole", w, x, b, stats)

    def out(self, w, z):
        """What `feat` gives -> logits [B, K]."""
        return self.call("head", w, z) if self.splits else z

    def check_features(self, who, linear=False):
        """ValueError where `who` needs features [B, D], or a linear head on them, and
        there is none."""
        refuse_if(
            not self.splits or (linear and not self.linear),
            f"{who} needs the features before a last layer z W' + c, and {self!r} has "
            f"the head ({', '.join(self.head)}): {self.why or 'that is another layer'};"
            " give head= an nn.Linear with bias that runs last, or another method",
        )

    def call(self, part, w, x, b=None, stats=None):
        """The whole module, its body (a pass in place of the head) or its head with
        weights w on x; on a batch b as in training."""
        if not len(x):
            return x.new_zeros(0, self.D if part == "body" else self.K)
        shell, names, now = own_copy(self, part, b is not None)
        now.b, now.stats, now.draws = b, stats, 0
        held = {**self.constants_for(x), **w}
        if b is None:  # running statistics are constants in evaluation
            held |= {k: held[k].detach() for k in self.buffers if k in held}
        tensors = {name: held[k] for name, k in names.items()}
        out = functional_call(shell, tensors, (x,), tie_weights=False)
        return out if isinstance(out, torch.Tensor) else getattr(out, "logits", out)

    def constants_for(self, x):
        """The tensors that are not trained, where x is and in its precision."""
        at = x.device, x.dtype
        if at not in self.cache:
            fit = lambda v: v.to(*at) if v.is_floating_point() else v.to(x.device)
            self.cache[at] = {k: fit(v) for k, v in self.constants.items()}
        return self.cache[at]


# ---------------------------------------------------------------- tensors of a module
def kind(m):
    return type(m).__name__


def below(name, prefix):
    """Is this tensor, or what it is computed from, inside `prefix`?"""
    return f"{name}.".startswith(f"{prefix}.")


def owned(module, tied=False):
    """(owner, name, tensor) of each parameter and buffer, a tied one once, or at each
    of its places; a module that is registered twice is visited once."""
    seen = set()
    for at, m in module.named_modules():
        for k, v in [*m._parameters.items(), *m._buffers.items()]:
            if v is not None and (tied or id(v) not in seen):
                seen.add(id(v))
                yield at.partition(".parametrizations")[0], f"{at}.{k}".lstrip("."), v


def parted(module):
    """(weights, constants, {module: its parameters}, buffers) of a module: weights are
    what is trained and the running statistics of batch norm, in order."""
    norms = [n for n, m in module.named_modules() if isinstance(m, _BatchNorm)]
    running = [f"{n}.running_{k}".lstrip(".") for n in norms for k in ("mean", "var")]
    weights, constants, owners = {}, {}, {}
    for owner, k, v in owned(module):
        trained = isinstance(v, nn.Parameter) and v.requires_grad
        values = weights if trained or k in running else constants
        values[k] = v.detach()
        if trained:
            owners[owner] = (*owners.get(owner, ()), k)
    return weights, constants, owners, tuple(k for k in weights if k in running)


def tied(module):
    """{another name of a tensor: its first}."""
    first, places = {}, owned(module, tied=True)
    return {k: first[id(v)] for _, k, v in places if first.setdefault(id(v), k) != k}


_here = threading.local()  # a call fills in its module: each thread has its own


def own_copy(network, part, training):
    """(module, {name in it: name in w}, what its layers are told) of a part, for this
    thread and this mode. It has no values, which a call fills in: one that is forgotten
    cannot go unseen."""
    copies = _here.__dict__.setdefault("copies", WeakKeyDictionary())
    mine = copies.setdefault(network, {})
    if (part, training) not in mine:
        first, at = tied(network.given), network.head_module
        of, prefix = copy.deepcopy(network.given).to("meta").train(training), ""
        place, _, name = at.rpartition(".")
        if part == "head" and name:
            of, prefix = of.get_submodule(at), f"{at}."
        elif part == "body" and name:
            setattr(of.get_submodule(place), name, nn.Identity())
        elif part == "body":  # the whole module is the head
            of = nn.Identity()
        now, counter = SimpleNamespace(), "num_batches_tracked"  # the momentum is fixed
        names = [k for _, k, _ in owned(of, tied=True) if not k.endswith(counter)]
        names = {k: first.get(prefix + k, prefix + k) for k in names}
        for n, m in of.named_modules():
            if isinstance(m, (nn.Embedding, nn.EmbeddingBag)):
                m.register_forward_pre_hook(tokens)
            elif type(m) in DROPOUTS and m.training:
                m.forward = partial(dropout, m, now)
            elif isinstance(m, _BatchNorm):
                m.num_batches_tracked = None
                if m.training and type(m).forward is _BatchNorm.forward:
                    m.forward = partial(batch_norm, m, now, n)
        mine[part, training] = of, names, now
    return mine[part, training]


# ------------------------------------------------- in training; now: b, stats, draws
def tokens(embedding, args):
    """What an embedding reads, as whole numbers."""
    i, *more = args
    if not transformed() and i.is_floating_point() and bool((i != i.round()).any()):
        raise ValueError("an embedding reads whole numbers; give x of 0, 1, 2 ...")
    return i.long(), *more


def batch_norm(m, now, name, z):
    """`layers.batch_norm` in place of m(z): only rows that count are counted."""
    b, one = now.b, z.new_ones(z.shape[1])
    if b.m is not None and len(z) != len(b.m):  # rows [B, T, D] as [B T, D]
        b = b._replace(m=b.m.repeat_interleave(len(z) // len(b.m)))
    w = {f"{name}.weight": one if m.weight is None else m.weight}
    w[f"{name}.bias"] = one - 1 if m.bias is None else m.bias
    w |= {f"{name}.running_{k}": getattr(m, f"running_{k}") for k in ("mean", "var")}
    return layers.batch_norm(w, name, z, b, now.stats, m.eps, m.momentum)


def dropout(m, now, z):
    """z with a share m.p of its entries (of its channels, nn.Dropout2d) 0, the others /
    (1 - p). The k-th draw of a batch is a function of its key, k and the row's number;
    without a key nothing is drawn."""
    b, now.draws = now.b, now.draws + 1
    if not m.p or b.key is None:
        return z
    shape = z.shape if type(m) is nn.Dropout else (*z.shape[:2], *[1] * (z.dim() - 2))
    keys = fold(b.key, tag("dropout"), now.draws, b.row)[:, None]  # [B, 1]
    u = uniform(keys, (math.prod(shape) // len(b.x),)).view(shape)
    return z * ((u >= m.p).to(z.dtype) / (1 - m.p if m.p < 1 else 1))


DROPOUTS = nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d


# ------------------------------------------------------------ on a task's first rows
ROWS = 2  # on which a network is tried


@contextmanager
def reading(at, x):
    """What fails while a network reads rows of x is a ValueError."""
    try:
        yield
    except Exception as e:
        why = f"{list(x.shape[1:])} ({kind(e)}: {e!s:.300})"
        sizes = "give a torch.nn.Module or a network of fedlib.nets of the data's sizes"
        raise ValueError(f"{at} cannot read rows of shape {why}; {sizes}") from e


def fitted(task):
    """{"network": that of a task, "K": its number of classes}.

    An nn.Module becomes a `Module`, which may have more outputs than labels occur.
    ValueError for what is no network, and for one that rows and labels do not fit."""
    network, x, K = task.network, task.x, task.K
    network = Module(network) if isinstance(network, nn.Module) else network
    own = isinstance(network, Module)
    at = network.at if own else f"network {network!r:.200}"
    if own:
        network = network if network.tried_on == x.shape[1:] else tried(network, x)
        width = network.K
    else:
        with reading(at, x):
            w = {k: v.to(x.device) for k, v in network.init(0, x.dtype).items()}
            assert {*network.head, *network.buffers, *network.layers[0]} <= {*w}
            z = network.out(w, network.feat(w, x[:ROWS])) if len(x) else x.expand(0, K)
            width = z.shape[-1]
    labels = f"the labels are 0 .. {K - 1}: give its last layer {K} outputs"
    refuse_if(width < K, f"{at} gives {width} logits per row, and {labels}")
    if network.buffers and min(task.batch, *map(len, task.train)) == 1:
        words = "one training row: the norm of one row forgets it; give another norm"
        warn(f"{at} has batch norm, and batch = {task.batch}, or a client has {words}")
    return {"network": network, "K": width if own else K}


@torch.no_grad()
def tried(network, x):
    """The Module after a trial on the first rows of x: K, D, head and what it does in
    training are known. ValueError for what cannot be trained."""
    refuse_if(not len(x), f"{network.at} has no rows to be tried on")
    network, rows = copy.copy(network), x[:ROWS].clone()
    network.tried_on, network.cache = x.shape[1:], {}
    for stale in ("identity", "units"):
        vars(network).pop(stale, None)
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        try:
            trial = Trial(network, rows.double(), 1e-6)
        except ValueError:  # it makes float32 itself, in which a norm of two is coarse
            trial = Trial(network, rows, 0.05)
        for wrong, words in trial.faults():
            refuse_if(wrong, f"{network.at} {words}")
        network.K = trial.z.shape[1]
        network.why = trial.head()
        network.splits = not network.why
    network.cache = {}  # without the precision of the trial
    return network


class Trial:
    """A few passes over the same rows.

    share: by what share of the largest logit two passes may differ by rounding."""

    def __init__(self, network, rows, share):
        self.network, self.rows, self.share = network, rows, share
        self.w = {k: v.to(rows.device) for k, v in network.init(0, rows.dtype).items()}
        self.b, self.held = batch(rows), network.constants_for(rows) | self.w
        self.before = {k: v.clone() for k, v in self.held.items()}
        self.z, self.alone = self.run(rows), self.run(rows[:1], seed=1)
        self.y = self.run(rows, self.b)

    def run(self, rows, b=None, seed=0, stats=None, part="whole", w=None):
        """What a part gives, in evaluation or on a batch; seed: of torch's draws."""
        torch.manual_seed(seed)
        stats = {} if stats is None else stats
        with reading(self.network.at, rows):
            return self.network.call(part, w or self.w, rows, b, stats)

    def near(self, a, b):
        """Do a and b differ by no more than a share of the largest of b?"""
        most = self.share * float(b.abs().max() + 1e-6)
        return a.shape == b.shape and float((a - b).abs().max()) <= most

    def faults(self):
        """(is it so, what is wrong), one after another."""
        z, y, rows, n = self.z, self.y, self.rows, len(self.rows)
        tensor, training = torch.is_tensor(z), "in training"
        got = f"{z.dtype} {list(z.shape)}" if tensor else f"a {kind(z)}"
        logits = tensor and z.dim() == 2 and len(z) == n and z.is_floating_point()
        yield not logits, f"returns {got} for {n} rows; return logits [B, K] alone"
        yield not z.isfinite().all(), "returns NaN or infinity; standardise x"
        yield rows._version, "changes x in place; write x = x - 1 and clamp, not clamp_"
        far = {k: 1000 * v for k, v in self.held.items() if v.is_floating_point()}
        u = self.run(rows, w=far)
        words = "returns probabilities; the loss takes logits: no softmax, no sigmoid"
        yield bool(u.any()) and bool(((u >= 0) & (u <= 1)).all()), words
        words = "gives a row other logits alone and beside others: mix no rows"
        yield not self.near(self.alone, z[:1]), f"{words}, draw nothing (batch_first?)"
        words = f"returns another shape {training} than in evaluation"
        yield not torch.is_tensor(y) or y.shape != z.shape, words
        moved = [k for k, v in self.before.items() if v.ne(self.held[k]).any()]
        words = f"changes its tensor {', '.join(moved)} {training}, which nobody"
        yield moved, f"{words} averages; use nn.BatchNorm, group or weight norm"
        padded, m = torch.cat([rows, rows[:1]]), rows.new_ones(n + 1)
        m[-1] = 0
        words = f"mixes rows or draws at random {training}; use nn.BatchNorm, "
        words += "nn.GroupNorm, nn.Dropout, attention with dropout = 0.0, no nn.RReLU"
        yield not self.near(self.run(padded, batch(padded, m), 1)[:n], y), words

    def head(self):
        """Finds the head; why it cannot be taken apart from features [B, D], or ""."""
        network, place = self.network, self.network.named_head
        if place is None:
            shell, *_ = own_copy(network, "whole", False)
            names, order = {m: n for n, m in shell.named_modules()}, [*network.owners]
            seen = lambda m, _: order.append(names.get(m))
            with register_module_forward_pre_hook(seen):
                self.run(self.rows)
            place = [n for n in order if n in network.owners][-1]
            network.head = network.owners[place]
        place, *more = [place] if isinstance(place, str) else place
        if more or place not in dict(network.given.named_modules()):
            return "it is not one submodule"
        network.head_module = place
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
            return f"without it the module fails ({e!s:.200})"
        network.D, tensors = z.shape[1], [self.w[k] for k in network.head]
        linear = [v.shape for v in tensors] == [(network.K, network.D), (network.K,)]
        network.linear = linear and self.near(F.linear(z, *tensors), out)
        return ""


def batch(rows, m=None):
    """Rows as a batch with a key, the last of them perhaps padding."""
    i = torch.arange(len(rows), device=rows.device)
    return Batch(rows, i * 0, None, m, i, i.new_zeros(()), len(rows))
