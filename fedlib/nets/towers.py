"""Two frozen towers that were trained together: CLIP, or a small stand-in.

An image tower and a text tower map into the same d dimensions, so that an image lies
near the sentence that describes it (Radford et al., ICML 2021). Choosing the nearest of
K sentences classes an image without any training: zero-shot.

    load("evidence/clip-standin.pt")
            the stand-in, as `python -m papers.fft-gp.standin FILE` trains it
    load("folder")
            weights for open_clip, beside their open_clip_config.json

Nothing is ever downloaded here. Two towers have, all tensors constants:

    d, width, context_length, image_size    of features, tokens, sentences, pixels
    logit_scale, template, kind    the factor before the softmax over cosines; a
            sentence with {} for the name of a class; "real" or "stand-in"
    preprocess(x), encode_image(x)    images [n, 3, H, W] in [0, 1] -> [n, 3, S, S]
            -> [n, d], not normalised
    tokenize(texts), end(tokens)    c sentences -> token numbers [c, L] (ValueError if
            too long), and [c], the position where a sentence is read off
    token_embedding(tokens), encode_text(tokens)    [c, L] -> [c, L, w], and [c, d]
    encode_text_from_embeddings(x, end)    the same of sentences [c, L, w], which may
            hold learnt vectors

Letters: n images, c sentences, L tokens, w token width, d feature width, S pixels per
side.
"""

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F

from ..core.errors import refuse_if
from .images import CNN
from .layers import dense, ensure_torchvision

FORMAT = "fedlib two towers 1"


def label(name: str) -> str:
    """The name of a class as words: "Alarm_Clock" -> "Alarm Clock"."""
    return " ".join(name.replace("_", " ").split())


@torch.no_grad()
def describe(towers, classes):
    """Normalised features [K, d] of "a picture of a <class>"; classes: K names."""
    sentences = [towers.template.format(label(c)) for c in classes]
    return F.normalize(towers.encode_text(towers.tokenize(sentences)), dim=-1)


def load(model):
    """The towers of a path, in memory until it changes; towers pass through.

    model: a stand-in's file, or a folder with open_clip_config.json and weights.
    ValueError for a path that is not there, or is neither."""
    if not isinstance(model, (str, Path)):
        return model
    path = Path(model).resolve()
    try:
        return _load(path, path.stat().st_mtime_ns)
    except Exception as e:  # a damaged file can raise nearly anything
        what = f"model = {str(model)!r} is not CLIP ({type(e).__name__}: {e!s:.200})"
        raise ValueError(
            f"{what}; give a file of `python -m papers.fft-gp.standin`, or after `pip "
            "install fedlib[clip]` a folder with open_clip_config.json and its weights"
        ) from e


@lru_cache(maxsize=4)
def _load(path, _stamp):
    if path.is_dir():
        return OpenClip(path)
    got = torch.load(path, map_location="cpu", weights_only=True)
    refuse_if(got.pop("format") != FORMAT, f"not of the format {FORMAT!r}")
    return StandIn(**got)


class Pair:
    """What two towers share. A sentence is read off at its largest token."""

    def end(self, tokens):
        return tokens.argmax(1)

    def encode_text(self, tokens):
        x, end = self.token_embedding(tokens), self.end(tokens)
        return self.encode_text_from_embeddings(x, end)


class OpenClip(Pair):
    """A model of open_clip from a folder, frozen, in float32; its text tower must be
    CLIP's own, as ViT-B-32's: causal attention, read off at the largest token."""

    kind, template = "real", "a picture of a {}"

    def __init__(self, folder):
        ensure_torchvision()
        import open_clip

        self.name, at = folder.name, f"local-dir:{folder}"
        about = open_clip.get_model_config(at)
        known = {"context_length", "vocab_size", "width", "heads", "layers"}
        more = {*about["text_cfg"]} - known
        refuse_if(more, f"a text tower with {more}, which CLIP's has not")
        model = open_clip.create_model(at, weights_only=True, require_pretrained=True)
        self.model = model.eval().requires_grad_(False)
        self.tokenizer, self.d = open_clip.get_tokenizer(at), about["embed_dim"]
        self.text = getattr(model, "text", model)  # of a CustomTextCLIP
        self.context_length, self.width = self.text.positional_embedding.shape
        self.image_size = model.visual.preprocess_cfg["size"][0]
        self.logit_scale = float(model.logit_scale.exp())

    def __repr__(self):
        return f"OpenClip({self.name})"

    def preprocess(self, x):
        config = self.model.visual.preprocess_cfg
        mean, std = (x.new_tensor(config[k]).view(3, 1, 1) for k in ("mean", "std"))
        return (square(x, self.image_size, "bicubic") - mean) / std

    @torch.no_grad()
    def encode_image(self, x):
        return self.model.to(x.device).encode_image(x.float())

    def tokenize(self, texts):
        for text in texts:
            fits(text, len(self.tokenizer.encode(text)) + 2, self.context_length)
        return self.tokenizer(texts, context_length=self.context_length)

    def token_embedding(self, tokens):
        return self.text.to(tokens.device).token_embedding(tokens)

    def encode_text_from_embeddings(self, x, end):
        text, L = self.text.to(x.device), int(end.max()) + 1
        z = x[:, :L].float() + text.positional_embedding[:L]
        z = text.ln_final(text.transformer(z, attn_mask=text.attn_mask[:L, :L]))
        return (read(z, end) @ text.text_projection).to(x)


def read(z, end):
    """z [c, L, w] at the positions end [c] -> [c, w]."""
    return z[torch.arange(len(end), device=end.device), end]


def square(x, size, mode):
    """Images [n, 3, H, W] in [0, 1] -> [n, 3, size, size].

    The shorter side is resized, the middle cut out."""
    if x.shape[-2:] != (size, size):
        k = size / min(x.shape[-2:])
        h, w = (max(size, round(k * s)) for s in x.shape[-2:])
        x = F.interpolate(x, size=(h, w), mode=mode, antialias=True).clamp(0, 1)
        top, left = (h - size) // 2, (w - size) // 2
        x = x[..., top : top + size, left : left + size]
    return x


def fits(text, n, context):
    has = f"{text!r} has {n} tokens with its start and end, and the text tower reads"
    refuse_if(n > context, f"{has} {context}: shorten it, or take a smaller M")


# ---------------------------------------------------------------- the stand-in
@dataclass(frozen=True)
class TextTower:
    """A small transformer over words, as CLIP's.

    Blocks normalise first, attention is causal, the output is read off at the end.
    Plain products of tensors, so that it runs under grad and vmap. w: width, H: heads;
    weights "text.*", as papers/fft-gp/standin.py draws them."""

    words: int
    width: int = 64
    heads: int = 2
    blocks: int = 2
    context: int = 32
    d: int = 64

    def __call__(self, w, x, end):
        """Embedded words [c, L, w], ends [c] -> [c, d]."""
        L = int(end.max()) + 1  # causal: what comes after the last end is not seen
        z = x[:, :L] + w["text.places"][:L]
        leaves = lambda name: (w[f"{name}.weight"], w[f"{name}.bias"])
        norm = lambda name, z: F.layer_norm(z, z.shape[-1:], *leaves(name))
        for k in range(self.blocks):
            name = f"text.{k}"
            z = z + self.attend(w, name, norm(f"{name}.norm1", z))
            up = F.gelu(dense(w, f"{name}.up", norm(f"{name}.norm2", z)))
            z = z + dense(w, f"{name}.down", up)
        return dense(w, "text.project", norm("text.norm", read(z, end)))

    def attend(self, w, name, z):
        """softmax(q k' / sqrt(w / H)) v in each head; no word looks at a later one."""
        c, L, _ = z.shape
        q, k, v = dense(w, f"{name}.qkv", z).view(c, L, 3, self.heads, -1).unbind(2)
        a = torch.einsum("cihe,cjhe->chij", q, k) / math.sqrt(q.shape[-1])
        later = torch.ones(L, L, dtype=torch.bool, device=z.device).triu(1)
        a = a.masked_fill(later, -math.inf).softmax(-1)
        z = torch.einsum("chij,cjhe->cihe", a, v).reshape(c, L, -1)
        return dense(w, f"{name}.mix", z)


IMAGE = CNN(3, 64, widths=(32, 64))  # its "head" projects into the common space
PAD, START = "<pad>", "<start>"  # the end has the largest number, as in CLIP
END = "<end>"


def words_in(text):
    return re.findall(r"[\w-]+|\.", text.lower())


class StandIn(Pair):
    """Two small towers that were trained on captioned glyphs: a stand-in for CLIP.

    weights: {name: tensor}. words: the vocabulary, by number. zero_shot:
    {style: accuracy on ten classes, a fraction}. recipe: how it was trained."""

    kind, template = "stand-in", "a picture of {} ."

    def __init__(self, weights, words, image_size, zero_shot=None, recipe=None):
        self.weights = {k: v.detach() for k, v in weights.items()}
        self.words, self.image_size = tuple(words), image_size
        self.zero_shot, self.recipe = zero_shot or {}, recipe or {}
        self.number = {w: i for i, w in enumerate(self.words)}
        self.context_length, self.width = weights["text.places"].shape
        self.d = len(weights["text.project.weight"])
        self.logit_scale = float(self.weights["scale"].exp().clamp(max=100))
        context = self.context_length
        self.text = TextTower(len(self.words), self.width, context=context, d=self.d)

    def __repr__(self):
        return f"StandIn(d={self.d}, image_size={self.image_size})"

    def _as(self, like):
        """The weights in the precision and on the device of a tensor."""
        return {k: v.to(like) for k, v in self.weights.items()}

    def preprocess(self, x):
        return (square(x, self.image_size, "bilinear") - 0.5) / 0.25

    @torch.no_grad()
    def encode_image(self, x):
        return image(self._as(x), x)

    def tokenize(self, texts):
        out = torch.zeros(len(texts), self.context_length, dtype=torch.long)
        for row, text in zip(out, texts):
            words = words_in(text)
            unknown = [w for w in words if w not in self.number]
            say = f"{text!r}: the stand-in knows no {unknown}, only names of characters"
            refuse_if(unknown, f"{say}; other classes need CLIP's weights")
            tokens = [self.number[w] for w in (START, *words, END)]
            fits(text, len(tokens), self.context_length)
            row[: len(tokens)] = torch.tensor(tokens)
        return out

    def token_embedding(self, tokens):
        return self.weights["text.words"].to(tokens.device)[tokens]

    def encode_text_from_embeddings(self, x, end):
        return self.text(self._as(x), x, end)


def image(w, x):
    """Images [n, 3, S, S] -> [n, d] by the image tower."""
    w = {k.removeprefix("image."): v for k, v in w.items() if k.startswith("image.")}
    return IMAGE.out(w, IMAGE.feat(w, x))
