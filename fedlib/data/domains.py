"""Glyphs in the domains of PACS, VLCS, OfficeHome, TerraIncognita and DomainNet:
stand-ins with no download.

A preset has as many domains as the real data set, under the same names, and mirrors
what sets these apart: the manner of drawing (PACS, OfficeHome, DomainNet), how
photographs are taken and which classes they show (VLCS), or where a fixed camera stands
(TerraIncognita). The pictures are the characters of `glyphs`, never the real objects.

In each domain the class decides the hue of some images, by a table of that domain: a
shortcut that misleads elsewhere. Images come in chunks of 500 as in `glyphs`, so image
k of a domain and split does not depend on how many are asked for.
"""

import unicodedata
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F

from ..core.errors import check_whole, is_whole
from ..core.pool import Pool
from . import glyphs as g
from .glyphs import CHUNK, STYLES, Dice, colour, over
from .settings import Count, Pixels, Seed, Share, Some, named, settings


@dataclass(frozen=True)
class Domain:
    """How the pictures of one domain look."""

    style: str  # of `glyphs`, or "camera": all in front of one scene, the domain's
    contrast: float | None = None  # between ink and ground; None: the style's own
    noise: float | None = None  # of pixels, of photo and camera
    clutter: float = 0.5  # probability of a second glyph at the rim
    zoom: tuple[float, float] = (0.75, 1.3)  # range of sizes
    shift: float = 0.22  # the largest move of the centre, in halves of the picture
    grey: float = 0.0  # probability of a picture without colour


@dataclass(frozen=True)
class Preset:
    """The domains of one data set."""

    classes: int
    domains: dict[str, Domain]
    spurious: float = 0.35  # probability that the class decides the hue
    prior: float | None = None  # c: Dirichlet(c, ..., c) of frequencies; None: even
    empty: bool = False  # is class 0 a picture without a glyph?


# Contrast and sizes are such that a small CNN, trained on all domains together with
# 500 images of 16 x 16 each (standardised, warp 0.25, 12 epochs), is right on 55 to
# 90 % of new images, and clearly less often on a domain that it has not seen.
FAR = {"zoom": (0.5, 0.95), "shift": 0.45}
DAY, NIGHT = Domain("camera", **FAR), Domain("camera", **FAR, grey=0.5)


def drawn_as(**styles):
    """Domains, each in a style of its own."""
    return {name: Domain(style) for name, style in styles.items()}


ART = {"art_painting": "painting", "cartoon": "cartoon", "photo": "photo"}
HOME = {"Art": "painting", "Clipart": "cartoon", "Product": "halftone"}
NET = {"clipart": "cartoon", "infograph": "halftone", "painting": "painting"}
NET |= {"quickdraw": "neon", "real": "photo", "sketch": "sketch"}
VLCS = {  # photographs: a close object, crowded and grainy, far, ordinary
    "Caltech101": Domain("photo", 0.45, 0.02, clutter=0.2, zoom=(1.10, 1.50)),
    "LabelMe": Domain("photo", 0.35, 0.06, 0.9, (0.60, 1.00), 0.35),
    "SUN09": Domain("photo", 0.45, zoom=(0.50, 0.85), shift=0.45),
    "VOC2007": Domain("photo", 0.40),
}
# two cameras take half of their pictures at night
TERRA = {"location_100": NIGHT, "location_38": DAY}
TERRA |= {"location_43": NIGHT, "location_46": DAY}
PRESETS = {
    "PACS": Preset(7, drawn_as(**ART, sketch="sketch")),
    "VLCS": Preset(5, VLCS, prior=2.0),
    "OfficeHome": Preset(65, drawn_as(**HOME, **{"Real World": "photo"}), 0.2),
    "TerraIncognita": Preset(10, TERRA, prior=0.7, empty=True),
    "DomainNet": Preset(100, drawn_as(**NET), 0.2),  # a hundred of its 345 classes
}
DRAWN = 32  # smaller images are drawn with so many pixels and then shrunk
EVEN = 0.2  # so much of every prior is uniform: no class is missing anywhere


@settings
def domains(
    preset: Annotated[str, named(PRESETS, "preset")],
    n: Count | Some[Count] = 500,
    size: Pixels = 32,
    warp: Share = 1.0,
    classes: g.Classes | None = None,
    split: str = "train",
    seed: Seed = 0,
) -> Pool:
    """Glyph images as a Pool whose owner is the domain: x [N, 3, size, size] in [0, 1],
    y [N]; rows in the order of PRESETS.

    preset   PACS, VLCS, OfficeHome, TerraIncognita or DomainNet
    n        images per domain, or a list with one number per domain
    size, warp, split  as for `glyphs`
    classes  number of classes (default: the preset's)
    seed     another seed: other images, scenes, hues and class frequencies

    Pool.classes holds the Unicode names of the characters. An image needs 0.3 to 0.4 ms
    of CPU time at 32 pixels or fewer, and 12 kB at 32.
    """
    p = PRESETS[preset]
    D, K = len(p.domains), p.classes if classes is None else classes
    counts = g.numbers("domains", [n] * D if is_whole(n) else n, D, size)
    check_whole(f"domains: {preset}: classes", K, 2 + p.empty)
    owners, letters = tuple(p.domains), g.atlas(K - p.empty, max(size, DRAWN))

    def chunk_of(k, number):
        return chunk(preset, owners[k], number, split, letters, seed, float(warp), size)

    x, y, owner = g.filled(counts, size, chunk_of)
    names = [unicodedata.name(c).lower() for c in letters.characters]
    of = f"{preset}-glyphs", x, y, K, "stand-in", owner, owners
    return Pool(*of, classes=tuple(["empty"] * p.empty + names))


def chunk(preset, name, number, split, letters, seed, strength, size):
    """Images [500, 3, S, S] on 256 levels in [0, 1], and classes, of one chunk."""
    p, d = PRESETS[preset], PRESETS[preset].domains[name]
    first, drawn = int(p.empty), letters.ink.shape[-1] // 2
    K = first + len(letters.fonts)
    fixed = seed, preset, name
    dice = Dice(*fixed, split, number, size=drawn)
    often = frequencies(fixed, K, p.prior)
    y = torch.multinomial(often, CHUNK, replacement=True, generator=dice.generator)
    ink = g.some(letters, (y - first).clamp(min=0), dice)
    ink = g.bent(ink, dice, strength, d.zoom, d.shift)
    if p.empty:
        ink = ink * (y > 0)[:, None, None, None]
    table = g.hue_table(f"{preset} {name}", K, seed)
    own = {"contrast": d.contrast, "noise": d.noise}
    own = {k: v for k, v in own.items() if v is not None}
    camera_ = d.style == "camera"
    draw = partial(camera, scene(fixed, drawn)) if camera_ else STYLES[d.style]
    of = ink, y, letters, table, dice, p.spurious, d.clutter
    x = g.coloured(partial(draw, **own), *of)
    x = over(x, x.mean(1, keepdim=True), dice.flip(d.grey))
    return g.levels(F.interpolate(x.clamp(0, 1), (size, size), mode="area")), y


def frequencies(fixed, K, prior):
    """The shares [K] of the classes in a domain, positive, the same in all splits."""
    if prior is None:
        return torch.full((K,), 1 / K)
    rng = np.random.default_rng(Dice(*fixed, "prior").generator.initial_seed())
    drawn = torch.from_numpy(rng.dirichlet(np.full(K, prior))).float()
    return EVEN / K + (1 - EVEN) * drawn


# ------------------------------------------------------ a camera that stays where it is
def scene(fixed, size):
    """What the domain's camera sees when nothing is there [1, 3, size, size]."""
    dice = Dice(*fixed, "scene", n=1, size=size)
    x = dice.tint((0.2, 0.5), (0.35, 0.75))
    for strength, channels, cells in ((0.14, 1, 4), (0.08, 3, 5), (0.08, 1, 11)):
        x = x + strength * dice.field(channels, cells)
    return x


def camera(scene, ink, clutter, hue, dice, contrast=0.42, noise=0.035):
    """The ink before the scene, mostly darker than a bright one, as the hour lights."""
    ground = scene.mean()
    away = 1 - 2 * (dice.uniform(0, 1) < ground).float()
    value = ground + away * dice.uniform(contrast, contrast + 0.35)
    above = colour(hue, dice.uniform(0.2, 0.9), value.clamp(0.05, 1))
    below = over(scene, above.roll(1, 0), 0.55 * clutter)
    x = g.lit(ink, above, below, dice)
    ramp = torch.linspace(-1, 1, dice.size)
    light = dice.each(0.6, 1.1) + dice.each(-0.2, 0.2) * ramp
    return x * light + noise * dice.grain(3)
