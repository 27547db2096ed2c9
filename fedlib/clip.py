"""Two towers that were trained together, and are frozen: CLIP, or a small stand-in that needs no download.

An image tower and a text tower map into the same d dimensions, so that an image lies near the sentence that describes it
(Radford et al., ICML 2021). Choosing the nearest of K sentences classes an image without any training: zero-shot.

    load("evidence/clip-standin.pt")                   the stand-in, as `python -m fedlib.clip FILE` trains it
    load("open_clip_model.safetensors", "ViT-B-32")    weights for open_clip, and the name of their architecture
    load("folder")                                     a folder with open_clip_config.json and weights

Nothing is ever downloaded here. Letters: n images, c sentences, L tokens, w token width, d feature width, S pixels per side.
"""
from __future__ import annotations

import argparse
import copy
import io
import math
import re
import sys
import time
import unicodedata
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from .data.glyphs import ALPHABET, STYLES, atlas, glyphs
from .method import nearest
from .nets.layers import dense, linear_part, norm_part
from .nets.small import CNN
from .record import whole

FORMAT = "fedlib two towers 1"


class TwoTower(Protocol):
    """What the rest of the library asks of two towers. Every tensor in them is a constant.

    logit_scale: the factor before the softmax over cosines. template: a sentence with {} for the name of a class. kind: "real"
    or "stand-in".
    """
    d: int
    width: int
    context_length: int
    image_size: int
    logit_scale: float
    template: str
    kind: str

    def preprocess(self, x: Tensor) -> Tensor:
        """Images [n, 3, H, W] in [0, 1] -> [n, 3, S, S], as the image tower wants them."""

    def encode_image(self, x: Tensor) -> Tensor:
        """Preprocessed images [n, 3, S, S] -> [n, d], not normalised."""

    def tokenize(self, texts: list[str]) -> Tensor:
        """c sentences -> token numbers [c, L]; ValueError for one that does not fit."""

    def end(self, tokens: Tensor) -> Tensor:
        """Position of the end-of-text token [c], where a sentence is read off."""

    def token_embedding(self, tokens: Tensor) -> Tensor:
        """[c, L] -> [c, L, w]."""

    def encode_text_from_embeddings(self, x: Tensor, end: Tensor) -> Tensor:
        """Embedded sentences [c, L, w], which may hold learnt vectors, and their ends [c] -> [c, d], not normalised."""

    def encode_text(self, tokens: Tensor) -> Tensor:
        """[c, L] -> [c, d], not normalised."""


def label(name: str) -> str:
    """The name of a class as words: "Alarm_Clock" -> "Alarm Clock"."""
    return " ".join(name.replace("_", " ").split())


@lru_cache(maxsize=8)
@torch.no_grad()
def describe(towers, classes):
    """Normalised features [K, d] of one sentence per class (a tuple of names), "a picture of a <class>"."""
    return F.normalize(towers.encode_text(towers.tokenize([towers.template.format(label(c)) for c in classes])), dim=-1)


# ---------------------------------------------------------------- loading
def load(model, arch: str = "ViT-B-32"):
    """The towers of a path, kept in memory until its file changes; towers themselves pass through.

    model: a stand-in's file, a weight file for open_clip whose architecture is `arch`, or a folder with open_clip_config.json.
    OpenAI's weights, and a few others, were trained with the quick GELU: arch = "ViT-B-32-quickgelu". With another one they lose
    some points without an error, so a file with openai or quickgelu in its name is refused then; a folder's configuration knows.
    ValueError for a path that is not there, or is no CLIP file.
    """
    if not isinstance(model, (str, Path)):
        return model
    path = Path(model).resolve()
    if not path.exists():
        raise ValueError(f"model = {str(model)!r}: there is no such file; train the stand-in with `python -m fedlib.clip "
                         f"{model}`, or give CLIP weights for open_clip")
    files = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
    return _load(path, arch, tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files))


@lru_cache(maxsize=4)
def _load(path, arch, _stamp):
    if path.is_dir():
        return OpenClip.load(f"local-dir:{path}", None)
    if path.suffix == ".safetensors":
        return OpenClip.load(arch, path)
    try:
        got = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as e:                             # a damaged file can raise nearly anything
        raise ValueError(f"{path} is not a CLIP file ({type(e).__name__}): give a file that `python -m fedlib.clip` wrote, or a "
                         "state dict for open_clip; a TorchScript archive must be converted first") from e
    if isinstance(got, dict) and got.get("format") == FORMAT:
        try:
            return StandIn(**{k: v for k, v in got.items() if k != "format"})
        except (TypeError, KeyError) as e:
            raise ValueError(f"{path} is not a CLIP file, although it says so ({e}): train the stand-in again") from e
    inside = got.get("state_dict", got) if isinstance(got, dict) else {}
    if not any(str(k).removeprefix("module.").startswith("visual.") for k in inside):
        raise ValueError(f"{path} is not a CLIP file: it holds neither a stand-in nor the tensors visual.* of open_clip; give a "
                         "file that `python -m fedlib.clip` wrote, or weights for open_clip")
    return OpenClip.load(arch, path)


class OpenClip:
    """A model of open_clip, frozen. Its text tower must be CLIP's own: tokens of byte pairs, causal attention."""

    kind = "real"
    template = "a picture of a {}"

    def __init__(self, model, tokenizer, name):
        self.model, self.tokenizer, self.name = model.eval().requires_grad_(False), tokenizer, name
        text = self._text(model)
        pool = getattr(text, "text_pool_type", getattr(text, "pool_type", "argmax"))
        if pool not in ("argmax", "eos") or text.attn_mask is None or getattr(text, "cls_emb", None) is not None:
            raise ValueError(f"{name} has another text tower than CLIP's (pooling {pool!r}); give a model such as ViT-B-32")
        self.eos = None if pool == "argmax" else getattr(text, "text_eos_id", getattr(text, "eos_id", None))
        self.context_length, self.width = text.positional_embedding.shape
        size = model.visual.image_size
        self.image_size = size if isinstance(size, int) else size[0]
        self.logit_scale = float(model.logit_scale.detach().exp())
        tokens = self.tokenize(["a photo of a cat"])
        whole_, parts = self.encode_text(tokens), self.encode_text_from_embeddings(self.token_embedding(tokens), self.end(tokens))
        if not torch.allclose(whole_, parts, rtol=1e-3, atol=1e-4 * float(whole_.abs().max())):
            raise ValueError(f"{name}: embedding the tokens and encoding the embeddings is not encode_text here; install the "
                             "version of open_clip that fedlib[clip] names")
        self.d = whole_.shape[1]

    def __repr__(self):
        return f"OpenClip({self.name})"

    @classmethod
    def load(cls, name, path):
        """name: an architecture of open_clip with weights from `path`, or "local-dir:FOLDER"."""
        try:
            from . import vision  # noqa: F401, I001   open_clip imports torchvision: this must come first
            import open_clip
        except ImportError as e:
            raise ValueError(f"CLIP weights need the package open_clip ({e}): install it with `pip install fedlib[clip]`, or use "
                             "the stand-in, `python -m fedlib.clip PATH`") from e
        at = path or name.removeprefix("local-dir:")
        if path is None and not (Path(at) / "open_clip_config.json").is_file():
            raise ValueError(f"{at} has no open_clip_config.json: give a folder with this file and weights, or a weight file")
        if path is None and not any(f.suffix in (".safetensors", ".bin", ".pth") for f in Path(at).iterdir()):
            raise ValueError(f"{at} has a configuration and no weights (.safetensors, .bin, .pth): they are not downloaded")
        if path is not None and name not in open_clip.list_models():
            raise ValueError(f"arch = {name!r} is no architecture of open_clip{nearest(name, open_clip.list_models())}")
        try:
            config = open_clip.get_model_config(name)
        except ValueError as e:
            raise ValueError(f"{at}/open_clip_config.json is no configuration of open_clip ({e})") from e
        text = config["text_cfg"]
        if text.get("hf_model_name") or text.get("hf_tokenizer_name") or "siglip" in name.lower():
            raise ValueError(f"{name} has a text tower or tokenizer of another package; give a model with CLIP's own, "
                             "as ViT-B-32")
        if path is not None and re.search("openai|quickgelu", path.name.lower()) and not config.get("quick_gelu"):
            raise ValueError(f"{path.name}: these weights were trained with the quick GELU and {name} has another; take "
                             f"arch = \"{name}-quickgelu\"")
        try:
            model = open_clip.create_model(name, None if path is None else str(path), weights_only=True)
        except Exception as e:
            raise ValueError(f"{at} does not hold weights of {name} ({type(e).__name__}: {str(e).splitlines()[0][:200]}); "
                             "give the name of their architecture") from e
        return cls(model, open_clip.get_tokenizer(name), name)

    @staticmethod
    def _text(model):
        return getattr(model, "text", model)           # below .text in a CustomTextCLIP

    @lru_cache(maxsize=4)                              # noqa: B019   one copy for each precision and device
    def _as(self, dtype, device):
        return self.model if dtype == torch.float32 and device.type == "cpu" else copy.deepcopy(self.model).to(device, dtype)

    def preprocess(self, x):
        how = getattr(self.model.visual, "preprocess_cfg", {})
        mean, std = (torch.tensor(how.get(k) or d, dtype=x.dtype, device=x.device).view(3, 1, 1) for k, d in (
            ("mean", (0.48145466, 0.4578275, 0.40821073)), ("std", (0.26862954, 0.26130258, 0.27577711))))
        return (square(x, self.image_size, "bicubic") - mean) / std

    @torch.no_grad()
    def encode_image(self, x):
        return self._as(x.dtype, x.device).encode_image(x)

    def tokenize(self, texts):
        for text in texts:
            fits(text, len(self.tokenizer.encode(text)) + 2, self.context_length)
        return self.tokenizer(texts, context_length=self.context_length)

    def end(self, tokens):
        return tokens.argmax(1) if self.eos is None else (tokens == self.eos).int().argmax(1)

    @torch.no_grad()
    def token_embedding(self, tokens):
        return self._text(self._as(torch.float32, tokens.device)).token_embedding(tokens)

    @torch.no_grad()
    def encode_text(self, tokens):
        return self._as(torch.float32, tokens.device).encode_text(tokens)

    def encode_text_from_embeddings(self, x, end):
        text, L = self._text(self._as(x.dtype, x.device)), int(end.max()) + 1          # causal: what comes later is not seen
        z = text.transformer(x[:, :L] + text.positional_embedding[:L], attn_mask=text.attn_mask[:L, :L])
        z, project = text.ln_final(read(z, end)), text.text_projection
        return z if project is None else project(z) if callable(project) else z @ project


def read(z, end):
    """z [c, L, w] at the positions end [c] -> [c, w]."""
    return z[torch.arange(len(end), device=end.device), end]


def square(x, size, mode):
    """Images [n, 3, H, W] in [0, 1] -> [n, 3, size, size]: the shorter side resized, the middle cut out."""
    if x.shape[-2:] != (size, size):
        k = size / min(x.shape[-2:])
        h, w = (max(size, round(k * s)) for s in x.shape[-2:])
        x = F.interpolate(x, size=(h, w), mode=mode, antialias=True).clamp(0, 1)
        top, left = (h - size) // 2, (w - size) // 2
        x = x[..., top:top + size, left:left + size]
    return x


def fits(text, n, context):
    if n > context:
        raise ValueError(f"{text!r} has {n} tokens with its start and end, and the text tower reads {context}: shorten it, or "
                         "take fewer context vectors (M)")


# ---------------------------------------------------------------- the stand-in
@dataclass(frozen=True)
class TextTower:
    """A transformer over words, as CLIP's but small: blocks that normalise first, causal attention, read off at the end.

    Plain products of tensors, so that it runs under grad and vmap. w: width, H: heads.
    """
    words: int
    width: int = 64
    heads: int = 2
    blocks: int = 2
    context: int = 32
    d: int = 64

    @cached_property
    def parts(self):
        w, parts = self.width, []
        for k in range(self.blocks):
            parts += [norm_part(f"text.{k}.norm1", w, "group"), linear_part(f"text.{k}.qkv", 3 * w, w),
                      linear_part(f"text.{k}.mix", w, w), norm_part(f"text.{k}.norm2", w, "group"),
                      linear_part(f"text.{k}.up", 4 * w, w), linear_part(f"text.{k}.down", w, 4 * w)]
        return (*parts, norm_part("text.norm", w, "group"), linear_part("text.project", self.d, w))

    def init(self, generator):
        w = {"text.words": 0.5 * torch.randn(self.words, self.width, generator=generator),
             "text.places": 0.1 * torch.randn(self.context, self.width, generator=generator)}
        return w | {name: v for p in self.parts for name, v in p.draw(generator).items()}

    def __call__(self, w, x, end):
        """Embedded words [c, L, w], ends [c] -> [c, d]."""
        L = int(end.max()) + 1                         # causal: what comes after the last end is not seen
        z = x[:, :L] + w["text.places"][:L]
        for k in range(self.blocks):
            z = z + self.attend(w, f"text.{k}", norm(w, f"text.{k}.norm1", z))
            z = z + dense(w, f"text.{k}.down", F.gelu(dense(w, f"text.{k}.up", norm(w, f"text.{k}.norm2", z))))
        return dense(w, "text.project", norm(w, "text.norm", read(z, end)))

    def attend(self, w, name, z):
        """softmax(q k' / sqrt(w / H)) v in each head; no word looks at a later one."""
        c, L, _ = z.shape
        q, k, v = dense(w, f"{name}.qkv", z).view(c, L, 3, self.heads, -1).unbind(2)
        a = torch.einsum("cihe,cjhe->chij", q, k) / math.sqrt(q.shape[-1])
        later = torch.ones(L, L, dtype=torch.bool, device=z.device).triu(1)
        a = a.masked_fill(later, -math.inf).softmax(-1)
        return dense(w, f"{name}.mix", torch.einsum("chij,cjhe->cihe", a, v).reshape(c, L, -1))


def norm(w, name, z):
    """Layer norm."""
    return F.layer_norm(z, z.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"])


IMAGE = CNN(3, 64, widths=(32, 64))                    # its "head" projects into the common space
TEMPLATE = ("a", "the", "of", "picture", "photo", "character", *STYLES)
PAD, START = "<pad>", "<start>"                        # the end has the largest number, as in CLIP
END = "<end>"


def name_of(character):
    """"A" -> "latin capital letter a"."""
    return unicodedata.name(character).lower()


def words_in(text):
    return re.findall(r"[\w-]+|\.", text.lower())


def vocabulary():
    """The words of all glyphs' names and of the sentences around them; "x" is a place-holder, "empty" a picture of nothing."""
    names = {w for c in ALPHABET for w in words_in(name_of(c))}
    return (PAD, START, *sorted(names | set(TEMPLATE) | {".", "x", "empty"}), END)


class StandIn:
    """Two small towers that were trained on captioned glyphs. A stand-in for CLIP: the same code, other numbers.

    weights: {name: tensor}. words: the vocabulary, by number. zero_shot: {style: accuracy on ten classes, a fraction}. recipe:
    how it was trained.
    """
    kind = "stand-in"
    template = "a picture of {} ."

    def __init__(self, weights, words, image_size, zero_shot=None, recipe=None):
        self.weights, self.words, self.image_size = weights, tuple(words), image_size
        self.zero_shot, self.recipe = zero_shot or {}, recipe or {}
        self.number = {w: i for i, w in enumerate(self.words)}
        self.width = weights["text.words"].shape[1]
        self.context_length = len(weights["text.places"])
        self.d = len(weights["text.project.weight"])
        self.logit_scale = scale_of(weights)
        self.text = TextTower(len(self.words), self.width, context=self.context_length, d=self.d)
        self._copies = {}

    def __repr__(self):
        return f"StandIn(d={self.d}, image_size={self.image_size})"

    def _as(self, like):
        """The weights in the precision and on the device of a tensor."""
        at = like.dtype, like.device
        if at not in self._copies:
            self._copies[at] = {k: v.detach().to(like.device, like.dtype) for k, v in self.weights.items()}
        return self._copies[at]

    def preprocess(self, x):
        return (square(x, self.image_size, "bilinear") - 0.5) / 0.25

    @torch.no_grad()
    def encode_image(self, x):
        return image(self._as(x), x)

    def tokenize(self, texts):
        out = torch.zeros(len(texts), self.context_length, dtype=torch.long)
        for row, text in zip(out, texts):
            words = words_in(text)
            strange = [w for w in words if w not in self.number]
            if strange:
                raise ValueError(f"{text!r}: the stand-in does not know the word {strange[0]!r}; it reads names of "
                                 "characters, as the classes of glyphs and domains have them. Real classes need CLIP's weights")
            fits(text, len(words) + 2, self.context_length)
            row[:len(words) + 2] = torch.tensor([self.number[w] for w in (START, *words, END)])
        return out

    def end(self, tokens):
        return tokens.argmax(1)

    def token_embedding(self, tokens):
        return self._as(self.weights["text.words"])["text.words"].to(tokens.device)[tokens]

    def encode_text_from_embeddings(self, x, end):
        return self.text(self._as(x), x, end)

    def encode_text(self, tokens):
        return self.encode_text_from_embeddings(self.token_embedding(tokens), self.end(tokens))

    def save(self, path):
        """One file, whole or not at all."""
        path, file = Path(path), io.BytesIO()
        torch.save({"format": FORMAT, "weights": self.weights, "words": list(self.words), "image_size": self.image_size,
                    "zero_shot": self.zero_shot, "recipe": self.recipe}, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        whole(path, lambda f: f.write(file.getbuffer()))


def image(w, x):
    """Images [n, 3, S, S] -> [n, d] by the image tower."""
    w = {k.removeprefix("image."): v for k, v in w.items() if k.startswith("image.")}
    return IMAGE.out(w, IMAGE.feat(w, x))


def scale_of(w):
    """exp(logit scale), at most 100."""
    return float(w["scale"].detach().exp().clamp(max=100))


# ---------------------------------------------------------------- training it
@dataclass(frozen=True)
class Recipe:
    """How the stand-in is trained: images with captions, passes over them, pixels per side and warp as in `glyphs`. fresh: images
    of each style that measure its zero-shot accuracy afterwards."""
    images: int
    epochs: int
    size: int = 16
    warp: float = 0.25
    classes: int = 100
    batch: int = 256
    lr: float = 2e-3
    fresh: int = 500
    seed: int = 0


# Zero-shot on ten classes, mean of photo, cartoon, painting, sketch: at chance (11 %), 47 %, 64 %; 4, 20 and 130 s of CPU time.
TIERS = {"tiny": Recipe(1500, 2), "small": Recipe(10000, 8), "paper": Recipe(20000, 16, size=32, warp=1.0)}
SEEN = {"photo": 0.3, "neon": 0.3, "halftone": 0.3, "cartoon": 0.034, "painting": 0.033, "sketch": 0.033}   # shares of the corpus
FIXED = ("a picture of {} .", "a photo of the {} .", "the character {} .", *(f"a {s} of {{}} ." for s in STYLES))
LONG = 16                                              # and so many captions of 0 to 18 words, so that every position is learnt


def captions(seed):
    """Sentences with {} for a name."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(0, n, (), generator=g).item()
    return FIXED + tuple(" ".join([*(TEMPLATE[draw(len(TEMPLATE))] for _ in range(draw(19))), "{} ."]) for _ in range(LONG))


def train(recipe: Recipe) -> StandIn:
    """The stand-in of a recipe, a function of it alone. Symmetric contrastive loss over a batch of n images and its u different
    captions, cos [n, u]: an image has one caption, a caption all of its images.

        L = -1/2 mean_i log softmax_u(s cos_i)[caption of i] - 1/2 mean_u mean_(i of u) log softmax_i(s cos_u)[i]

    In training both sides are centred on the batch, without which all cosines are alike at first and nothing is learnt for long;
    at the end the mean over the corpus goes into the biases of the two projections.
    """
    if recipe.images < recipe.batch:
        raise ValueError(f"images = {recipe.images}: give at least one batch of {recipe.batch}")
    g = torch.Generator().manual_seed(recipe.seed + 1)
    letters = atlas(recipe.classes, recipe.size)
    counts = [max(1, round(recipe.images * share)) for share in SEEN.values()]
    pool = glyphs(counts, recipe.classes, tuple(SEEN), "corpus", 10_000 + recipe.seed, 0.0, size=recipe.size,
                  warp=recipe.warp)
    words = vocabulary()
    w = TextTower(len(words)).init(g) | {f"image.{k}": v for k, v in IMAGE.init(recipe.seed).items()}
    w["scale"] = torch.tensor(math.log(1 / 0.07))
    towers = StandIn(w, words, recipe.size, recipe=asdict(recipe))
    x, forms = towers.preprocess(pool.x), captions(recipe.seed)
    tokens = torch.stack([towers.tokenize([f.format(name_of(c)) for c in letters.characters]) for f in forms])   # [forms, K, L]
    own = torch.tensor([FIXED.index(f"a {s} of {{}} .") for s in SEEN])[pool.owner]      # the caption that names the style
    general = torch.tensor([i for i, f in enumerate(forms) if not 3 <= i < len(FIXED)])
    for v in w.values():
        v.requires_grad_()
    steps = recipe.epochs * (len(x) // recipe.batch)
    plain = [v for v in w.values() if v.dim() < 2]     # no decay on biases, norms and the scale
    adam = torch.optim.AdamW([{"params": [v for v in w.values() if v.dim() > 1], "weight_decay": 0.01},
                              {"params": plain, "weight_decay": 0.0}], recipe.lr)
    rate = torch.optim.lr_scheduler.OneCycleLR(adam, recipe.lr, total_steps=steps)
    for _ in range(recipe.epochs):
        for r in torch.randperm(len(x), generator=g).split(recipe.batch)[:len(x) // recipe.batch]:
            some = general[torch.randint(0, len(general), (), generator=g)]              # one form for the whole batch, so that
            form = own[r] if torch.rand((), generator=g) < 0.3 else some.expand(len(r))  # images of a class share their caption
            which, mine = (form * recipe.classes + pool.y[r]).unique(return_inverse=True)
            t = tokens.flatten(0, 1)[which]
            text = towers.text(w, w["text.words"][t], towers.end(t))
            z = image(w, x[r])
            cos = F.normalize(z - z.mean(0), dim=1) @ F.normalize(text - text.mean(0), dim=1).T
            logits = w["scale"].exp().clamp(max=100) * cos
            same = F.one_hot(mine, len(which)).float()                             # [n, u]
            to_image = -(logits.log_softmax(0) * same / same.sum(0)).sum(0).mean()
            adam.zero_grad()
            ((F.cross_entropy(logits, mine) + to_image) / 2).backward()
            adam.step()
            rate.step()
    w = {k: v.detach() for k, v in w.items()}
    with torch.no_grad():
        every = tokens[general].flatten(0, 1)
        w["image.fc.bias"] -= torch.cat([image(w, z) for z in x.split(500)]).mean(0)
        w["text.project.bias"] -= towers.text(w, w["text.words"][every], towers.end(every)).mean(0)
    towers = StandIn(w, words, recipe.size, recipe=asdict(recipe))
    return StandIn(w, words, recipe.size, zero_shot(towers, recipe), asdict(recipe))


def zero_shot(towers, recipe, classes=10):
    """{style: share of fresh images of the first classes that the nearest sentence names}."""
    text = describe(towers, tuple(name_of(c) for c in atlas(classes, recipe.size).characters))
    out = {}
    for style in STYLES:
        pool = glyphs(recipe.fresh, classes, style, "fresh", 20_000 + recipe.seed, size=recipe.size, warp=recipe.warp)
        z = towers.encode_image(towers.preprocess(pool.x))
        out[style] = float(((z @ text.T).argmax(1) == pool.y).float().mean())
    return out


def main(argv=None):
    """Train the stand-in and save it."""
    p = argparse.ArgumentParser(prog="python -m fedlib.clip", description=main.__doc__)
    p.add_argument("path", type=Path, help="the file to write")
    p.add_argument("--tier", default="small", choices=TIERS)
    p.add_argument("--size", type=int, help="pixels per side, as the images of the tasks")
    p.add_argument("--warp", type=float, help="warp of the glyphs, as in the tasks")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args(argv)
    torch.set_num_threads(1)                           # the same bits on every run
    given = {k: getattr(args, k) for k in ("size", "warp", "seed") if getattr(args, k) is not None}
    start = time.process_time()
    try:
        towers = train(replace(TIERS[args.tier], **given))
        towers.save(args.path)
    except (OSError, ValueError) as e:
        sys.exit(f"fedlib.clip: {e}")
    accuracy = ", ".join(f"{style} {100 * a:.1f}" for style, a in towers.zero_shot.items())
    print(f"{args.path}: tier {args.tier}, {time.process_time() - start:.0f} s of CPU time\n"
          f"zero-shot accuracy in % (chance 10): {accuracy}")


if __name__ == "__main__":
    main()
