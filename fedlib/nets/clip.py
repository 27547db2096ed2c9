"""Networks beside a frozen CLIP: an adapter (FedCLIP), or a prompt (PromptFL).

Both read the image features [B, d] of `fedlib.data.features` and class an image by the
nearest of K sentences, one per class:

    logits = s cos(z, t_k)

with z the image features, t_k the text features of class k, s the towers' logit scale.
The towers are constants: neither in `init`'s tree nor sent, so any method of the
library runs on these networks. There is no last layer that belongs to classes, so
`head` is (): methods that personalise a head have nothing to personalise here.
Letters: B batch, K classes, d feature width, w token width, L tokens,
M context vectors.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F

from ..core.errors import check_whole, refuse_if
from .layers import Net, dense, linear_part
from .towers import describe, label, load


@dataclass(frozen=True, eq=False)
class Towers(Net):
    """What both share.

    inputs: d. classes: K names. model: two towers, or what `towers.load` reads."""

    inputs: int
    K: int
    classes: tuple = field(default=(), repr=False)
    model: Any = None

    head = ()
    D = property(lambda self: self.inputs)

    def __post_init__(self):
        there = self.model is not None and len(self.classes) == self.K
        words = "give two towers or their path as model, K names, inputs as features"
        mistaken = not there or self.towers.d != self.inputs
        refuse_if(mistaken, f"{self}, {len(self.classes)} names of classes: {words}")

    @cached_property
    def towers(self):
        return load(self.model)

    @cached_property
    def text(self):
        """Normalised features [K, d] of "a picture of a <class>", computed once."""
        return describe(self.towers, tuple(self.classes))

    def zero_shot(self, x):
        """Logits [B, K] without any training."""
        return self.cosines(F.normalize(x, dim=-1), self.text.to(x))

    def cosines(self, z, t):
        """s z t' for normalised features z [B, d] and t [K, d]."""
        return self.towers.logit_scale * F.linear(z, t)


@dataclass(frozen=True, eq=False)
class Adapter(Towers):
    """FedCLIP's adapter: a gate on every image feature, the sentences stay as they are.

        A(z)     = softmax(W2 tanh(W1 z + b1) + b2)
        features = z * A(z), normalised
        logits   = s features t'

    2 d^2 + 2 d parameters. The softmax makes the gated features about d times smaller;
    normalising undoes that. With W2 = 0 and b2 = 0 the gate is 1/d for every feature,
    so the network classes as without training."""

    @cached_property
    def parts(self):
        d = self.inputs
        return linear_part("one", d, d), linear_part("two", d, d)

    def feat(self, w, x, b=None, stats=None):
        A = dense(w, "two", dense(w, "one", x).tanh()).softmax(-1)
        return F.normalize(x * A, dim=-1)

    def out(self, w, z):
        text = vars(self)["text"] = self.text.to(z.device)  # sent there once
        return self.cosines(z, text.to(z))


@dataclass(frozen=True, eq=False)
class Prompts(Towers):
    """PromptFL's prompt (CoOp): M learnt vectors in place of the words before a class.

        t_k = text tower([start] ctx_1 ... ctx_M [class k] . [end]), normalised

    M w parameters. ctx starts normal with deviation 0.02, or as the words of `ctx_init`
    ("a photo of a"; then M is their number). class_specific: each class has vectors of
    its own, K M w parameters. Every logit is one pass of K sentences through the text
    tower, of which only ctx is differentiated."""

    M: int = 16
    ctx_init: str = ""
    class_specific: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_whole("Prompts: M", self.M, 1, why=" of context vectors")
        self.sentences  # noqa: B018  too long for the text tower: say so now

    @cached_property
    def start(self):
        """Embedded words of ctx_init [M, w]; none without it."""
        tokens = self.towers.tokenize([self.ctx_init])
        end = int(self.towers.end(tokens)[0])
        return self.towers.token_embedding(tokens)[0, 1:end]

    @property
    def length(self):
        """The number of context vectors."""
        return len(self.start) or self.M

    @cached_property
    def sentences(self):
        """Sentences, embedded, with place-holders for ctx [K, L, w]; their ends [K]."""
        context = " ".join(["X"] * self.length)
        tokens = self.towers.tokenize([f"{context} {label(c)}." for c in self.classes])
        return self.towers.token_embedding(tokens), self.towers.end(tokens)

    layers = units = (("ctx",),)
    buffers = ()
    per_row = False  # what `aligned` returns has a row per class, not per image

    def init(self, seed, dtype=torch.float32):
        shape = (self.K,) * self.class_specific + (self.length, self.towers.width)
        g = torch.Generator().manual_seed(seed)
        ctx = 0.02 * torch.randn(shape, generator=g, dtype=torch.float32)
        ctx = self.start.expand(shape).clone() if len(self.start) else ctx
        return {"ctx": ctx.to(dtype)}

    def texts(self, w):
        """Normalised text features t [K, d] under the context [M, w] or [K, M, w]."""
        (x, end), ctx = self.sentences, w["ctx"]
        x, end = x.to(ctx), end.to(ctx.device)
        start, rest = x[:, :1], x[:, 1 + self.length :]
        x = torch.cat([start, ctx.expand(self.K, *ctx.shape[-2:]), rest], 1)
        return F.normalize(self.towers.encode_text_from_embeddings(x, end), dim=-1)

    def feat(self, w, x, b=None, stats=None):
        return F.normalize(x, dim=-1)

    def out(self, w, z):
        return self.cosines(z, self.texts(w))

    def aligned(self, w, x, b=None):
        """What models are compared by: text features [K, d]; those of images are
        equal in all."""
        return self.texts(w)
