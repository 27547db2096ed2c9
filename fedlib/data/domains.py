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

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import torch
import torch.nn.functional as F

from ..core.errors import nearest
from ..core.pool import Pool
from ..core.ranges import (
    SEEDS,
    check_bytes,
    check_number,
    check_whole,
    is_whole,
    short,
)
from .glyphs import (
    CHUNK,
    STYLES,
    Dice,
    at_the_rim,
    atlas,
    blur,
    colour,
    hue_table,
    over,
    thicken,
    warp,
)


@dataclass(frozen=True)
class Domain:
    """How the pictures of one domain look.

    style            a style of `glyphs`, or "camera": every picture in front of the
                     same scene, that of the domain
    contrast, noise  brightness between ink and ground, and pixel noise (photo and
                     camera); None: the style's own
    clutter          probability of a second glyph at the rim
    zoom, shift      range of sizes, and the largest move of the centre in halves of
                     the picture
    grey             probability of a picture without colour
    """

    style: str
    contrast: float | None = None
    noise: float | None = None
    clutter: float = 0.5
    zoom: tuple[float, float] = (0.75, 1.3)
    shift: float = 0.22
    grey: float = 0.0


@dataclass(frozen=True)
class Preset:
    """The domains of one data set.

    classes   number of classes; with `empty`, class 0 is a picture without a glyph
    spurious  probability that the class decides the hue
    prior     None: classes are equally frequent. A number c: a domain's frequencies are
              drawn from Dirichlet(c, ..., c)
    """

    classes: int
    domains: dict[str, Domain]
    spurious: float = 0.35
    prior: float | None = None
    empty: bool = False


# Contrast and sizes are such that a small CNN, trained on all domains together with
# 500 images of 16 x 16 each (standardised, warp 0.25, 12 epochs), is right on 55 to
# 90 % of new images, and clearly less often on a domain that it has not seen.
PRESETS = {
    "PACS": Preset(
        7,
        {
            "art_painting": Domain("painting"),
            "cartoon": Domain("cartoon"),
            "photo": Domain("photo"),
            "sketch": Domain("sketch"),
        },
    ),
    "VLCS": Preset(
        5,
        {  # photographs: one close object, crowded and grainy, far away, ordinary
            "Caltech101": Domain(
                "photo", contrast=0.45, noise=0.02, clutter=0.2, zoom=(1.10, 1.50)
            ),
            "LabelMe": Domain(
                "photo",
                contrast=0.35,
                noise=0.06,
                clutter=0.9,
                zoom=(0.60, 1.00),
                shift=0.35,
            ),
            "SUN09": Domain("photo", contrast=0.45, zoom=(0.50, 0.85), shift=0.45),
            "VOC2007": Domain("photo", contrast=0.40),
        },
        prior=2.0,
    ),
    "OfficeHome": Preset(
        65,
        {
            "Art": Domain("painting"),
            "Clipart": Domain("cartoon"),
            "Product": Domain("halftone"),
            "Real World": Domain("photo"),
        },
        spurious=0.2,
    ),
    "TerraIncognita": Preset(
        10,
        {  # two of the cameras take half of their pictures at night, in grey
            "location_100": Domain("camera", zoom=(0.5, 0.95), shift=0.45, grey=0.5),
            "location_38": Domain("camera", zoom=(0.5, 0.95), shift=0.45),
            "location_43": Domain("camera", zoom=(0.5, 0.95), shift=0.45, grey=0.5),
            "location_46": Domain("camera", zoom=(0.5, 0.95), shift=0.45),
        },
        prior=0.7,
        empty=True,
    ),
    "DomainNet": Preset(
        100,
        {  # a hundred of its 345 classes
            "clipart": Domain("cartoon"),
            "infograph": Domain("halftone"),
            "painting": Domain("painting"),
            "quickdraw": Domain("neon"),
            "real": Domain("photo"),
            "sketch": Domain("sketch"),
        },
        spurious=0.2,
    ),
}
DRAWN = 32  # smaller images are drawn with so many pixels and then shrunk
EVEN = 0.2  # so much of every prior is uniform: no class is missing anywhere


def domains(
    preset: str,
    n: int | Sequence[int] = 500,
    size: int = 32,
    warp: float = 1.0,
    classes: int | None = None,
    split: str = "train",
    seed: int = 0,
) -> Pool:
    """Glyph images as a Pool whose owner is the domain: x [N, 3, size, size] in [0, 1],
    y [N]; rows in the order of PRESETS.

    preset   PACS, VLCS, OfficeHome, TerraIncognita or DomainNet
    n        images per domain, or a list with one number per domain
    size     pixels per side, 16 to 128
    warp     how far glyphs are turned, shrunk, moved and bent: from 1 to 0, which is
             learnt from far fewer images
    classes  number of classes (default: the preset's)
    split    "train", "test" or any other word: different words give different images of
             the same domains
    seed     another seed: other images, scenes, hues and class frequencies

    Pool.classes holds the Unicode names of the characters. An image needs 0.3 to 0.4 ms
    of CPU time at 32 pixels or fewer, and 12 kB at 32. The last two pools are kept in
    memory: treat x as read-only.
    """
    if not isinstance(preset, str) or preset not in PRESETS:
        raise ValueError(
            f"domains: preset = {short(preset)}{nearest(preset, PRESETS)}; choose one "
            f"of {', '.join(PRESETS)}"
        )
    p = PRESETS[preset]
    counts = list(n) if isinstance(n, (list, tuple)) else [n] * len(p.domains)
    if len(counts) != len(p.domains) or not all(is_whole(m) and m >= 1 for m in counts):
        raise ValueError(
            f"domains: n = {short(n)}: give at least one image per domain, as one "
            f"number or as a list of {len(p.domains)} numbers"
        )
    check_whole("domains: size", size, 16, 128, " pixels per side")
    check_number("domains: warp", warp, 0, 1, "; 0: glyphs as printed")
    check_whole("domains: seed", seed, 0, SEEDS)
    K = p.classes if classes is None else classes
    check_whole(f"domains: {preset}: classes", K, 2 + p.empty)
    check_bytes(f"domains: n = {short(n)}", sum(counts) * 3 * size**2 * 4)
    return _domains(preset, tuple(counts), size, float(warp), K, str(split), seed)


@lru_cache(maxsize=2)
def _domains(preset, counts, size, strength, K, split, seed):
    p, N = PRESETS[preset], sum(counts)
    letters = atlas(K - p.empty, max(size, DRAWN))
    x, y, at = torch.empty(N, 3, size, size), torch.empty(N, dtype=torch.long), 0
    for name, count in zip(p.domains, counts):
        for number in range(math.ceil(count / CHUNK)):
            images, labels = chunk(
                preset, name, number, split, letters, seed, strength, size
            )
            m = min(CHUNK, count - number * CHUNK)
            x[at : at + m], y[at : at + m] = images[:m], labels[:m]
            at += m
    names = p.empty * ("empty",) + tuple(
        unicodedata.name(c).lower() for c in letters.characters
    )
    return Pool(
        name=f"{preset}-glyphs",
        x=x,
        y=y,
        K=K,
        kind="stand-in",
        owners=tuple(p.domains),
        classes=names,
        owner=torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)),
    )


def chunk(preset, name, number, split, letters, seed, strength, size):
    """The images [500, 3, S, S], in [0, 1] on 256 levels, and classes [500] of one
    chunk of one domain.
    """
    p, n = PRESETS[preset], CHUNK
    d, first, drawn = p.domains[name], int(p.empty), letters.ink.shape[-1] // 2
    K = first + len(letters.fonts)
    dice, fixed = Dice(seed, preset, name, split, number), (seed, preset, name)

    def some(k):
        """Pictures of the letters k, each in any of its fonts."""
        font = (dice.uniform(0, 1, n) * letters.fonts[k]).long()
        return letters.ink[k, font][:, None].float() / 255

    y = torch.multinomial(
        frequencies(fixed, K, p.prior), n, replacement=True, generator=dice.generator
    )
    ink = warp(some((y - first).clamp(min=0)), dice, strength, d.zoom, d.shift)
    if p.empty:
        ink = ink * (y > 0)[:, None, None, None]
    rim = (
        at_the_rim(some(dice.whole(K - first, n)), dice)
        * dice.flip(d.clutter, n, 1, 1, 1)
        * (1 - thicken(ink))
    )
    hue = torch.where(
        dice.flip(p.spurious, n) > 0,
        (hue_table(f"{preset} {name}", K, seed)[y] + 0.02 * dice.normal(n)) % 1,
        dice.uniform(0, 1, n),
    )
    draw = (
        partial(camera, scene(fixed, drawn)) if d.style == "camera" else STYLES[d.style]
    )
    x = draw(
        ink,
        rim,
        hue,
        dice,
        **{
            k: v
            for k, v in (("contrast", d.contrast), ("noise", d.noise))
            if v is not None
        },
    )
    x = over(x, x.mean(1, keepdim=True), dice.flip(d.grey, n, 1, 1, 1))
    x = F.interpolate(x.clamp(0, 1), (size, size), mode="area")
    return x.mul(255).round().div(255), y


def frequencies(fixed, K, prior):
    """The shares [K] of the classes in a domain, positive, of sum 1; the same in every
    split.
    """
    if prior is None:
        return torch.full((K,), 1 / K)
    rng = np.random.default_rng(Dice(*fixed, "prior").generator.initial_seed())
    return (
        EVEN / K
        + (1 - EVEN) * torch.from_numpy(rng.dirichlet(np.full(K, prior))).float()
    )


# ------------------------------------------------------ a camera that stays where it is
def scene(fixed, size):
    """What the camera of a domain sees [1, 3, size, size] when nothing is there; the
    same at every size, in finer detail.
    """
    dice = Dice(*fixed, "scene")
    ground = colour(
        dice.uniform(0, 1, 1), dice.uniform(0.2, 0.5, 1), dice.uniform(0.35, 0.75, 1)
    )
    return (
        ground
        + 0.14 * dice.field(1, 1, 4, size)
        + 0.08 * dice.field(1, 3, 5, size)
        + 0.08 * dice.field(1, 1, 11, size)
    )


def camera(scene, ink, clutter, hue, dice, contrast=0.42, noise=0.035):
    """The ink in front of the scene, more often darker than a bright one than a dark
    one, in the light of the hour.
    """
    n, size = len(ink), ink.shape[-1]
    ground = scene.mean()
    away = 1 - 2 * dice.flip(ground, n)
    value = (ground + away * dice.uniform(contrast, contrast + 0.35, n)).clamp(0.05, 1)
    above = colour(hue, dice.uniform(0.2, 0.9, n), value)
    below = over(scene, above.roll(1, 0), 0.55 * clutter)
    ink = over(ink, blur(ink), dice.flip(0.6, n, 1, 1, 1)) * dice.uniform(
        0.7, 1, n, 1, 1, 1
    )
    x = over(below, above + 0.08 * dice.field(n, 1, 9, size), ink)
    ramp = torch.linspace(-1, 1, size)
    light = (
        dice.uniform(0.6, 1.1, n, 1, 1, 1) + dice.uniform(-0.2, 0.2, n, 1, 1, 1) * ramp
    )
    return x * light + noise * dice.normal(n, 3, size, size)
