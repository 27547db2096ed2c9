"""Bring a network: any `torch.nn.Module` that maps x [B, ...] to logits [B, K].

    Task.from_arrays(x, y, client_id, network=torchvision.models.resnet18())
    Task.from_arrays(x, y, client_id, network=Module(net, head="fc", start="fresh"))

`Module` gives it the protocol of this package through `torch.func.functional_call`, so
the same code runs on one model, under `torch.func.grad` and under `torch.func.vmap`.
A task tries it on its first rows (`trial`). In training, batch norm and dropout are
fedlib's own: torch hands every call of its functions to a `TorchFunctionMode` first,
and `Training` takes those that mix the rows of a batch or draw at random.
Letters: B batch, K classes, T tokens, D feature width.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from ..core.errors import nearest
from ..core.random import fold, tag, uniform
from .layers import normalised


class Module:
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
    a generator seeded by `seed`; what no such method reaches stays as given. Or a
    function without arguments that makes such a module, called under that generator.

    tokens: x holds whole numbers for an nn.Embedding (a task keeps them as floats).
    None: found out by trying.

    The module returns logits [B, K], or an object that has them as `.logits`.
    ValueError for a module that cannot be trained here, either at once or when a task
    tries it.
    """

    # found out by `trial`: does the head, a submodule, make the logits from features
    # [B, D], and else why not; is it z W' + c; is there batch norm or dropout
    splits, head_module, why = False, "", "no task has tried it"
    linear, alters, D, K = False, True, None, None
    tried_on = None  # shape, type and device of the rows

    def __init__(
        self,
        module: nn.Module,
        head: str | Sequence[str] | None = None,
        start: str | Callable[[], nn.Module] = "given",
        tokens: bool | None = None,
    ):
        if not isinstance(module, nn.Module):
            raise ValueError(f"Module({module!r:.60}): give a torch.nn.Module")
        self.name, self.named_head, self.tokens = kind(module), head, tokens
        self.at, self.start = f"network {self.name}", start
        self.text = re.sub(r" at 0x[0-9a-f]+", "", repr(module))
        for fault in faults(module):
            raise ValueError(f"{self.at} has {fault}")
        self.shell, self.aliases = emptied(module, self.at), tied(module)
        self.weights, self.constants, self.owners, self.buffers = parted(module)
        self.norm_layers = {n for n, m in module.named_modules() if "Norm" in kind(m)}
        self.cache = {}  # constants by device and precision
        self.head = () if head is None else self.names_below(head)
        if start not in ("given", "fresh") and not callable(start):
            raise ValueError(
                f"{self.at}: start = {start!r}; give 'given', 'fresh', or a function "
                "without arguments that makes such a module"
            )
        self.init(0)  # ValueError for a start that does not draw all of the weights

    def __repr__(self):
        head = f", head={self.named_head!r}" if self.named_head is not None else ""
        return f"Module({self.name}{head})"

    # ------------------------------------------------------------ weights
    def init(self, seed: int, dtype=torch.float32) -> dict:
        """Weights and running statistics: a function of the seed alone, see `start`."""
        w = self.weights if self.start == "given" else self.drawn(seed)
        return {k: v.to(dtype, copy=True) for k, v in w.items()}

    def drawn(self, seed):
        """Weights drawn from the seed, outside everybody else's random numbers."""
        fresh, values = self.start == "fresh", self.weights | self.constants
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            same = lambda k, v: like(v, values[k].clone())
            made = twin(self.shell, same) if fresh else self.start()
            for m in made.modules() if fresh else ():
                if hasattr(m, "reset_parameters"):
                    m.reset_parameters()
        found = parted(made)[0]
        shapes = lambda w: {k: v.shape for k, v in w.items()}
        odd = shapes(self.weights).items() - shapes(found).items()
        if odd or (fresh and ".parametrizations." in f".{'.'.join(found)}"):
            raise ValueError(
                f"{self.at}: start = {self.start!r:.60} draws no weights {dict(odd)}, "
                "or not those that are parametrised; give 'given', or a function that "
                "makes a module like the one given"
            )
        return {k: found[k] for k in self.weights}

    @cached_property
    def identity(self):
        """One line that tells this network from others: its class, its size, a digest
        of architecture (its repr) and starting weights."""
        how = self.start if isinstance(self.start, str) else "made"
        h = hashlib.sha256(repr((self.text, self.head, self.tokens, how)).encode())
        for k, v in (self.init(0, torch.float64) | self.constants).items():
            h.update(f"{k} {list(v.shape)}".encode())
            h.update(v.reshape(-1).view(torch.uint8).numpy().tobytes())
        P = sum(v.numel() for k, v in self.weights.items() if k not in self.buffers)
        return f"{self.name}, {P} parameters, {h.hexdigest()[:12]}"

    # ------------------------------------------------------------ names
    def names_below(self, head):
        """The parameters that `head` names; ValueError where it names none."""
        names = [k for ks in self.owners.values() for k in ks]
        for p in ([head] if isinstance(head, str) else head) or [head]:
            if not any(below(k, p) for k in names):
                has = [n for n in self.owners if n]
                raise ValueError(
                    f"{self.at}: head = {p!r} names no parameter"
                    f"{nearest(p, has + names)} (it has {', '.join(has):.60})"
                )
        prefixes = [head] if isinstance(head, str) else head
        return tuple(k for k in names if any(below(k, p) for p in prefixes))

    @property
    def layers(self):
        """One tuple of names per module with parameters of its own, the head last."""
        of_head = lambda names: set(names) <= set(self.head)
        return tuple(sorted(map(tuple, self.owners.values()), key=of_head))

    @property
    def norms(self):
        """Names of the norm layers' tensors, running statistics included."""
        inside = lambda k: k.rpartition(".")[0] in self.norm_layers
        return tuple(filter(inside, self.weights))

    @property
    def units(self):
        """The same as `layers`, but a norm layer belongs to the layer before it."""
        units, open_ = [], False  # has the last unit room for a norm layer?
        for names in self.layers:
            norm = names[0] in self.norms
            if norm and open_:
                units[-1] += names
            else:
                units.append(names)
            open_ = not norm
        return tuple(units)

    # ------------------------------------------------------------ forward
    def feat(self, w, x, b=None, stats=None):
        """x [B, ...] -> what the head gets [B, D], or logits where nothing is split."""
        if not len(x):
            return x.new_zeros(0, self.D if self.splits else self.K)
        return self.call("body" if self.splits else "whole", w, x, b, stats)

    def out(self, w, z):
        """What `feat` gives -> logits [B, K]."""
        if not self.splits:
            return z
        return self.call("head", w, z) if len(z) else z.new_zeros(0, self.K)

    def check_features(self, who, linear=False):
        """ValueError where `who` needs features [B, D], or a linear head on them, and
        there is none."""
        if self.splits and (self.linear or not linear):
            return
        raise ValueError(
            f"{who} needs the features before a last layer z W' + c, and {self!r} has "
            f"the head ({', '.join(self.head)}): {self.why or 'that is another layer'};"
            " give head= an nn.Linear with bias that runs last, or another method"
        )

    def call(self, part, w, x, b=None, stats=None):
        """The whole module, its body (a pass in place of the head) or its head with
        weights w on x; on a batch b as in training."""
        shell, tensors, names = self.filled(part, w, x, b is not None)
        x = x.long() if self.tokens and part != "head" else x
        ours = b is not None and self.alters
        with Training(b, stats, names) if ours else nullcontext():
            return logits(functional_call(shell, tensors, (x,), tie_weights=False))

    def filled(self, part, w, x, training):
        """(module, {name: tensor}, {id of a running statistic: its name in w})."""
        shell, names = own_copy(self, part, training)
        tensors, statistics = {}, {}
        for name, k in names:
            v = w[k] if k in self.weights else self.constant(k, x)
            if k in self.buffers:
                v = v if training else v.detach()  # in evaluation they are constants
                statistics[id(v)] = k
            tensors[name] = v
        return shell, tensors, statistics

    def constant(self, k, x):
        """A tensor that is not trained, where x is and in its precision."""
        at = k, x.device, x.dtype
        if at not in self.cache:
            v = self.constants[k].to(x.device)
            self.cache[at] = v.to(x.dtype) if v.is_floating_point() else v
        return self.cache[at]


def logits(out):
    """The tensor that a module returns, or the `.logits` of what it returns."""
    return out if isinstance(out, torch.Tensor) else getattr(out, "logits", out)


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
        values[k] = v.detach().cpu().clone()
        if trained:
            owners[owner] = (*owners.get(owner, ()), k)
    return weights, constants, owners, tuple(k for k in weights if k in running)


def tied(module):
    """{another name of a tensor: its first}."""
    first, places = {}, owned(module, tied=True)
    return {k: first[id(v)] for _, k, v in places if first.setdefault(id(v), k) != k}


def like(old, v):
    """v as a parameter or a tensor, as `old` is."""
    return nn.Parameter(v, old.requires_grad) if isinstance(old, nn.Parameter) else v


def twin(module, value):
    """A deep copy in which every parameter and buffer is value(name, tensor)."""
    return copy.deepcopy(module, {id(v): value(k, v) for _, k, v in owned(module)})


def emptied(module, at):
    """A copy of the module without values, which a call fills in: a tensor that is
    forgotten has no data, so it cannot go unseen."""
    try:
        shell = twin(module, lambda k, v: like(v, torch.empty_like(v, device="meta")))
    except Exception as e:
        raise ValueError(
            f"{at} cannot be copied ({kind(e)}: {e}); give it without results of "
            "earlier calls (old weight_norm), files or locks"
        ) from e
    for m in shell.modules():
        if isinstance(m, _BatchNorm):
            m.num_batches_tracked = None  # the momentum is fixed
    return shell


_here = threading.local()  # a call fills in its module: each thread has its own


def own_copy(network, part, training):
    """(module, [(name in it, name in w)]) of a part, for this thread and this mode."""
    copies = _here.__dict__.setdefault("copies", WeakKeyDictionary())
    mine = copies.setdefault(network, {})
    if (part, training) not in mine:
        of, prefix = copy.deepcopy(network.shell).train(training), ""
        at = network.head_module
        place, _, name = at.rpartition(".")
        if part == "head" and name:
            of, prefix = of.get_submodule(at), f"{at}."
        elif part == "body" and name:
            setattr(of.get_submodule(place), name, nn.Identity())
        elif part == "body":  # the whole module is the head
            of = nn.Identity()
        names = [prefix + k for _, k, _ in owned(of, tied=True)]
        first = lambda k: network.aliases.get(k, k)
        mine[part, training] = of, [(k.removeprefix(prefix), first(k)) for k in names]
    return mine[part, training]


def faults(module):
    """What would be wrong without a word from torch."""
    for _, k, v in owned(module):
        if v.is_complex():
            yield f"complex {k}; make it two tensors"
    for n, m in module.named_modules():
        if isinstance(m, _BatchNorm) and m.momentum is None:
            yield (
                f"{n}.momentum = None, a mean over all batches, which clients do not "
                "share; give a number, as 0.1"
            )
    if not any(p.requires_grad for p in module.parameters()):
        yield "no parameter to train; give one requires_grad = True"


# ---------------------------------------------------------------- in training
class Training(TorchFunctionMode):
    """A forward pass in training mode on the batch b, as our own networks have it.

    names: {id of a running statistic: its name}; stats receives the updated ones, if it
    is a dict.
    """

    def __init__(self, b, stats, names):
        super().__init__()
        self.b, self.stats, self.names = b, stats, names
        self.draws, self.acted = 0, False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, place = kwargs or {}, DROPOUT_P.get(func, len(args))
        p = args[place] if place < len(args) else kwargs.get("dropout_p", 0)
        if func in DROPOUT_P and p:
            raise ValueError(
                "attention draws where nobody can repeat it; set its dropout = 0.0 "
                "(layer.self_attn.dropout = 0.0)"
            )
        if func not in OURS:
            return func(*args, **kwargs)
        self.acted = True
        return OURS[func](self, *args, **kwargs)

    def batch_norm(self, input, mean, var, weight, bias, training, momentum, eps):
        """`layers.normalised` in place of torch's: only rows that count are counted."""
        if not training:
            return F.batch_norm(input, mean, var, weight, bias, False, momentum, eps)
        if id(mean) not in self.names:
            raise ValueError("batch norm needs track_running_stats = True here")
        known = {self.names[id(v)]: v for v in (mean, var)}
        running = [(self.stats or {}).get(k, v) for k, v in known.items()]  # used twice
        one, b = input.new_ones(input.shape[1]), self.b
        if b.m is not None and len(input) != len(b.m):  # rows [B, T, D] as [B T, D]
            b = b._replace(m=b.m.repeat_interleave(len(input) // len(b.m)))
        gain, shift = (
            one if weight is None else weight,
            one - 1 if bias is None else bias,
        )
        update = self.stats is not None
        z, new = normalised(input, gain, shift, running, b, update, eps, momentum)
        if update:
            self.stats.update(zip(known, new))
        return z

    def dropout(self, input, p=0.5, training=True, inplace=False, train=True):
        """input with a share p of its entries 0 and the others / (1 - p)."""
        return self.dropped(input, p, input.shape) if training and train else input

    def channels(self, input, p=0.5, training=True, inplace=False):
        """The same for whole channels of input [B, channels, ...]."""
        shape = (*input.shape[:2], *(1 for _ in input.shape[2:]))
        return self.dropped(input, p, shape) if training else input

    def dropped(self, z, p, shape):
        """The k-th draw of a batch is a function of its key, k and the row's number;
        without a key nothing is drawn."""
        b, self.draws = self.b, self.draws + 1
        if not p or b.key is None:
            return z
        B = len(b.x)
        if shape[0] % B:
            raise ValueError(
                f"dropout sees {list(z.shape)}, not the batch first; use batch_first"
            )
        keys = fold(b.key, tag("dropout"), self.draws, b.row)[:, None]  # [B, 1]
        u = uniform(keys, (math.prod(shape) // B,)).view(shape)
        return z * ((u >= p).to(z.dtype) / (1 - p if p < 1 else 1))


# what draws inside, out of our reach, and the place of its argument dropout_p
PARAMETERS = inspect.signature(F.multi_head_attention_forward).parameters
DROPOUT_P = {F.multi_head_attention_forward: [*PARAMETERS].index("dropout_p")}
DROPOUT_P |= {F.scaled_dot_product_attention: 4}
OURS = {
    F.batch_norm: Training.batch_norm,
    F.dropout: Training.dropout,
    torch.dropout: Training.dropout,
    F.dropout1d: Training.channels,
    F.dropout2d: Training.channels,
    F.dropout3d: Training.channels,
}
