"""Glyphs: small colour pictures of characters, drawn in several rendering styles.

A stand-in, with no download.

A class is a character, a style is a domain. One image is made in five steps:

    1  ink      a glyph of the class in one of up to 21 fonts, turned, scaled, sheared,
                shifted and bent  mask [N, 1, S, S]
    2  clutter  half of the images get a piece of another glyph at the rim
                mask [N, 1, S, S]
    3  hue      with probability `spurious` the class decides the ink's hue, by a table
                that is different in each style: a shortcut that works inside one style
                and misleads in the others
    4  style    photo, cartoon, painting, sketch, neon or halftone turns masks and hue
                into colours  [N, 3, S, S]
    5  rounding to 256 levels, as an image file would

Images come in chunks of 500 with one random generator each, seeded by (seed, style,
split, chunk). So image k of a style and split is the same however many images are asked
for, and different splits never share an image.
Letters: N images, S pixels per side, K classes, F fonts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

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

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

CHUNK = 500  # a constant of the format: changing it changes every image

# Characters in the order in which they become classes: clearly different shapes first,
# twins (O 0 o, I l 1, c C ...) left out.
ALPHABET = tuple(
    dict.fromkeys(
        "ABEFGHJKMNPQRSTXYZ234578abdefghjmnqrtuy&@#%?DLUVWi69"
        "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπρστφχψω"
        "БДЖЗИЛЦЧШЩЪЫЭЮЯбвджзйлфцшыэюя"
        "∀∂∃∇∈∉∏∑√∝∞∠∧∨∩∪∫∴≈≠≡≤≥⊂⊃⊆⊕⊗⊥§¶†‡©®¥£€¢←↑→↓↔⇒⇔♠♣♥♦♭♯ÆØßÞþæøłĦŊŦđħŋŧ"
        "÷±½¼¾¿¡«»≪≫⊄⊇⊖⊙∅∋∘∮□△▽◇○●▲▼◆★☆ĶŁŅŖŞŢĠĦĞŤÇÐÑÕÖÜÅŵŷžőűαℓ℧Ωℵ⌈⌋∝⊢⊣⊤∓"
    )
)
DEJAVU = tuple(
    f"DejaVu{family}{face}"
    for family, faces in (
        ("Sans", ("", "-Bold", "-Oblique", "-BoldOblique")),
        ("Serif", ("", "-Bold", "-Italic", "-BoldItalic")),
        ("SansMono", ("", "-Bold", "-Oblique", "-BoldOblique")),
    )
    for face in faces
)
STIX = ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta")
COMPUTER_MODERN = ("cmr10", "cmb10", "cmss10", "cmtt10", "cmti10")
FEWEST_FONTS = 8  # a character that fewer fonts can draw is no class


# ---------------------------------------------------------------- step 0: the atlas
class Atlas(NamedTuple):
    """Every class in every font that has it, white on black, twice as large as the
    images.
    """

    ink: Tensor  # [K, F, 2S, 2S] uint8
    fonts: Tensor  # [K] number of fonts of the class; the rest of the row is black
    characters: tuple[str, ...]  # [K]


class Typeface(NamedTuple):
    """A font of matplotlib: what draws it, what measures it, what it can draw."""

    font: ImageFont.FreeTypeFont
    outlines: FT2Font
    characters: set[str]


@lru_cache(maxsize=8)
def atlas(classes: int, size: int = 32) -> Atlas:
    """The first `classes` characters of the alphabet in all fonts of matplotlib that
    can draw them.
    """
    if not 2 <= classes <= len(ALPHABET):
        raise ValueError(f"glyphs has 2 to about 200 classes, not {classes}")
    side = 2 * size
    fonts = [typeface(name, side) for name in DEJAVU + STIX + COMPUTER_MODERN]
    drawn, characters = [], []
    for c in ALPHABET:
        if len(drawn) == classes:
            break
        faces = [_face(c, font, side) for font in fonts if c in font.characters]
        faces = [face for face in faces if face is not None]
        if len(faces) >= FEWEST_FONTS:
            drawn.append(np.stack(faces))
            characters.append(c)
    if len(drawn) < classes:
        raise ValueError(f"glyphs has 2 to {len(drawn)} classes, not {classes}")
    ink = np.zeros((classes, max(map(len, drawn)), side, side), np.uint8)
    for k, faces in enumerate(drawn):
        ink[k, : len(faces)] = faces
    return Atlas(
        torch.from_numpy(ink),
        torch.tensor([len(faces) for faces in drawn]),
        tuple(characters),
    )


def typeface(name, side):
    """A Typeface, its font three quarters of `side` high."""
    import matplotlib  # here, so that methods and tasks load without it
    from matplotlib.ft2font import FT2Font

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    outlines = FT2Font(path)
    characters = set(map(chr, outlines.get_charmap()))
    if name in COMPUTER_MODERN:  # beyond these it has other signs at the code points
        characters = {c for c in characters if c.isascii() and c.isalnum()}
    layout = ImageFont.Layout.BASIC  # the one that every machine has
    font = ImageFont.truetype(str(path), 3 * side // 4, layout_engine=layout)
    return Typeface(font, outlines, characters)


def _face(c, typeface, side):
    """One character [side, side] in one font, its longer side 5/8 of the square; None
    when the font draws next to nothing.
    """
    font, outlines, _ = typeface
    left, top, right, bottom = _box(c, font, outlines)
    if min(right - left, bottom - top) < side / 16:
        return None
    fit = side * 0.625 / max(right - left, bottom - top)
    font = font.font_variant(size=max(8, round(font.size * fit)))
    left, top, right, bottom = _box(c, font, outlines)
    image = Image.new("L", (side, side), 0)
    ImageDraw.Draw(image).text(
        ((side - right + left) / 2 - left, (side - bottom + top) / 2 - top),
        c,
        fill=255,
        font=font,
    )
    face = np.asarray(image)
    return face if face.mean() > 1.2 else None


def _box(c, font, outlines):
    """(left, top, right, bottom) of a character's ink and advance, in pixels.

    The advance is that of the outline. In Pillow's own box it is so only with libraqm,
    which many machines lack; without, it is a hinted one, up to a pixel off.
    """
    from matplotlib.ft2font import LoadFlags

    left, top, right, bottom = font.getbbox(c)
    if right <= font.getlength(c):  # the hinted advance hides where the ink ends
        image = Image.new("L", (2 * font.size, 2 * font.size))
        ImageDraw.Draw(image).text((0, 0), c, fill=255, font=font)
        right = image.getbbox()[2]
    units = outlines.load_char(ord(c), LoadFlags.NO_SCALE).horiAdvance
    advance = round(64 * units * font.size / outlines.units_per_EM) / 64
    return left, top, max(right, math.floor(advance + 0.5)), bottom


# ---------------------------------------------------------- random numbers of one chunk
class Dice:
    """The random numbers of one chunk of images of one style and split."""

    def __init__(self, *where):
        digest = hashlib.sha256("|".join(map(str, where)).encode()).digest()
        self.generator = torch.Generator().manual_seed(
            int.from_bytes(digest[:7], "big")
        )

    def uniform(self, low, high, *shape):
        return torch.rand(*shape, generator=self.generator) * (high - low) + low

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def whole(self, below, *shape):
        return torch.randint(below, shape, generator=self.generator)

    def flip(self, p, *shape):
        """1 with probability p, else 0."""
        return (torch.rand(*shape, generator=self.generator) < p).float()

    def field(self, n, channels, cells, size):
        """A smooth random field [n, channels, size, size], about within +-1: noise on a
        coarse grid, interpolated.
        """
        return 0.7 * F.interpolate(
            self.normal(n, channels, cells, cells), size=(size, size), mode="bicubic"
        )


# --------------------------------------------------------------- small image operations
def blur(x):
    """3 x 3 mean."""
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)


def thicken(mask):
    """3 x 3 maximum."""
    return F.max_pool2d(mask, 3, 1, 1)


def thin(mask):
    """3 x 3 minimum."""
    return -F.max_pool2d(-mask, 3, 1, 1)


def over(below, above, mask):
    """`above` where the mask is 1, `below` where it is 0."""
    return torch.lerp(below, above, mask)


def colour(hue, saturation, value):
    """Hue, saturation, value [n] in [0, 1] as flat colours [n, 3, 1, 1]."""
    k = (torch.tensor([5.0, 3.0, 1.0]) + 6 * hue[:, None]) % 6
    rgb = value[:, None] * (
        1 - saturation[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)
    )
    return rgb[:, :, None, None]


def grid(size):
    """Pixel rows and columns, each [size, size]."""
    return torch.meshgrid(
        torch.arange(float(size)), torch.arange(float(size)), indexing="ij"
    )


# ---------------------------------------------------------------- steps 1 and 2: masks
def warp(glyph, dice, strength=1.0, zoom=(0.62, 1.05), shift=0.22):
    """Atlas pictures [n, 1, 2S, 2S] -> ink [n, 1, S, S]: one affine map and one smooth
    bend, sampled once.

    strength 0 leaves the largest upright glyph; the dice are the same for every
    strength. At strength 1 the size lies in the range `zoom` and the centre moves by up
    to `shift` of half the picture.
    """
    n, size = len(glyph), glyph.shape[-1] // 2
    turn = strength * dice.uniform(-20, 20, n) * math.pi / 180
    largest, zoom = zoom[1], dice.uniform(*zoom, n)
    zoom = zoom + (1 - strength) * (largest - zoom)
    stretch = (strength * dice.uniform(-0.18, 0.18, n)).exp()
    shear = strength * dice.uniform(-0.2, 0.2, n)
    shift = strength * dice.uniform(-shift, shift, 2, n)
    cos, sin = turn.cos(), turn.sin()
    rows = [
        cos * stretch / zoom,
        (shear - sin) / zoom,
        shift[0],
        sin / zoom,
        cos / stretch / zoom,
        shift[1],
    ]
    at = F.affine_grid(
        torch.stack(rows, 1).view(n, 2, 3), (n, 1, size, size), align_corners=False
    )
    bend = F.interpolate(
        dice.normal(n, 2, 4, 4), size=(size, size), mode="bicubic"
    ).permute(0, 2, 3, 1)
    return F.grid_sample(glyph, at + 0.05 * strength * bend, align_corners=False).clamp(
        0, 1
    )


def at_the_rim(glyph, dice):
    """Atlas pictures [n, 1, 2S, 2S] -> the pieces [n, 1, S, S] that show when they are
    turned and pushed over the rim.
    """
    n, size = len(glyph), glyph.shape[-1] // 2
    turn = dice.uniform(0, 2 * math.pi, n)
    cos, sin = 1.3 * turn.cos(), 1.3 * turn.sin()
    rows = [cos, -sin, 1.05 * (3 * turn).cos(), sin, cos, 1.05 * (3 * turn).sin()]
    at = F.affine_grid(
        torch.stack(rows, 1).view(n, 2, 3), (n, 1, size, size), align_corners=False
    )
    return F.grid_sample(glyph, at, align_corners=False)


# ---------------------------------------------------------------- step 4: styles
# A style is a function (ink, clutter, hue, dice) -> image: masks [n, 1, S, S] and hues
# [n] -> [n, 3, S, S], not yet clamped. Rolled along the batch (`.roll(1, 0)`) a colour
# is that of another image: a random second colour at no cost.
def paper_and_ink(hue, contrast, dice):
    """Colours [n, 3, 1, 1] of the ground and of the ink, at least `contrast` apart in
    brightness where that fits.
    """
    n = len(hue)
    ground = dice.uniform(0.25, 0.95, n)
    away = torch.where(ground > 0.6, -1.0, 1.0)
    ink = (ground + away * dice.uniform(contrast, contrast + 0.35, n)).clamp(0.05, 1)
    return (
        colour(dice.uniform(0, 1, n), dice.uniform(0.15, 0.7, n), ground),
        colour(hue, dice.uniform(0.2, 0.9, n), ink),
    )


def photo(ink, clutter, hue, dice, contrast=0.28, noise=0.035):
    """Textured ground and ink, soft edges, uneven light, pixel noise."""
    n, size = len(ink), ink.shape[-1]
    below, above = paper_and_ink(hue, contrast, dice)
    below = (
        below
        + 0.11 * dice.field(n, 1, 4, size)
        + 0.09 * dice.field(n, 1, 11, size)
        + 0.05 * dice.field(n, 3, 5, size)
    )
    below = over(
        below, above.roll(1, 0) + 0.1 * dice.field(n, 1, 6, size), 0.55 * clutter
    )
    ink = over(ink, blur(ink), dice.flip(0.6, n, 1, 1, 1)) * dice.uniform(
        0.7, 1, n, 1, 1, 1
    )
    x = over(below, above + 0.08 * dice.field(n, 1, 9, size), ink)
    ramp = torch.linspace(-1, 1, size)
    light = (
        1
        + dice.uniform(-0.3, 0.3, n, 1, 1, 1) * ramp
        + dice.uniform(-0.3, 0.3, n, 1, 1, 1) * ramp[:, None]
    )
    return x * light + noise * dice.normal(n, 3, size, size)


def cartoon(ink, clutter, hue, dice):
    """Flat light ground of two colours, flat saturated ink with a dark outline."""
    n, size = len(ink), ink.shape[-1]
    below = over(
        colour(
            dice.uniform(0, 1, n), dice.uniform(0.1, 0.5, n), dice.uniform(0.75, 1, n)
        ),
        colour(
            dice.uniform(0, 1, n), dice.uniform(0.3, 0.8, n), dice.uniform(0.55, 1, n)
        ),
        (dice.field(n, 1, 3, size) > dice.uniform(-0.2, 0.5, n, 1, 1, 1)).float(),
    )
    other = colour(
        dice.uniform(0, 1, n), dice.uniform(0, 1, n), dice.uniform(0.4, 1, n)
    )
    below = over(below, other, (clutter > 0.5).float())
    flat = (ink > 0.45).float()
    x = over(
        below, colour(hue, dice.uniform(0.6, 1, n), dice.uniform(0.55, 1, n)), flat
    )
    outline = (thicken(flat) - flat) * dice.flip(0.85, n, 1, 1, 1)
    return over(x, dice.uniform(0, 0.2, n, 1, 1, 1), outline)


def painting(ink, clutter, hue, dice):
    """Coloured strokes, smeared in one direction, few levels of colour, the weave of
    the canvas.
    """
    n, size = len(ink), ink.shape[-1]
    below, above = paper_and_ink(hue, 0.3, dice)
    strokes = 0.13 * dice.field(n, 3, 7, size) + 0.07 * dice.field(n, 3, 16, size)
    below = over(below + strokes, above.roll(3, 0), 0.5 * clutter)
    x = over(below, above + strokes.roll(1, 0), 0.95 * blur(ink))
    ways = [(0, 1), (1, 0), (1, 1), (1, -1)]
    way, smeared = dice.whole(len(ways), n), torch.empty_like(x)
    for k, (dy, dx) in enumerate(ways):
        z = x[way == k]
        smeared[way == k] = (
            z + z.roll((dy, dx), (2, 3)) + z.roll((-dy, -dx), (2, 3))
        ) / 3
    levels = dice.uniform(4, 7, n, 1, 1, 1).round()
    row, column = grid(size)
    weave = 0.03 * (2 * ((row + column) % 2) - 1)
    return (
        (smeared.clamp(0, 1) * levels).round() / levels
        + weave
        + 0.03 * dice.normal(n, 1, size, size)
    )


def sketch(ink, clutter, hue, dice):
    """Pencil on paper: broken outlines, some hatching, no colour (the hue is not
    used).
    """
    n, size = len(ink), ink.shape[-1]
    edge, other = (
        0.9 * (thicken(ink) - thin(ink)),
        0.45 * (thicken(clutter) - thin(clutter)),
    )
    pressed = (
        dice.field(n, 1, 10, size) + dice.uniform(0.1, 0.7, n, 1, 1, 1) > 0
    ).float()
    way, pitch = (
        dice.uniform(0, math.pi, n, 1, 1, 1),
        dice.uniform(1.2, 2.2, n, 1, 1, 1),
    )
    row, column = grid(size)
    stripes = (((column * way.cos() + row * way.sin()) * pitch).sin() > 0.3).float()
    hatching = 0.45 * stripes * thin(ink) * dice.flip(0.5, n, 1, 1, 1)
    pencil = torch.maximum(
        torch.maximum(edge * (0.35 + 0.65 * pressed), other * pressed), hatching
    )
    paper = dice.uniform(0.85, 1, n, 1, 1, 1) + 0.03 * dice.field(n, 1, 6, size)
    grey = (
        paper
        - pencil * dice.uniform(0.45, 0.85, n, 1, 1, 1)
        + 0.03 * dice.normal(n, 1, size, size)
    )
    return grey.expand(-1, 3, -1, -1)


def neon(ink, clutter, hue, dice):
    """A glowing outline in the dark."""
    n, size = len(ink), ink.shape[-1]
    light = colour(hue, dice.uniform(0.5, 1, n), dice.uniform(0.8, 1, n))
    dark = 0.15 * dice.field(n, 3, 5, size).abs() + colour(
        *dice.uniform(0, 1, 2, n), dice.uniform(0.02, 0.25, n)
    )
    glow = 0.35 * blur(blur(blur(thicken(ink)))) + 0.75 * (thicken(ink) - thin(ink))
    return (
        dark
        + light * glow
        + 0.25 * light.roll(1, 0) * blur(clutter)
        + 0.03 * dice.normal(n, 3, size, size)
    )


def halftone(ink, clutter, hue, dice):
    """Print: two colours and a turned screen of dots."""
    n, size = len(ink), ink.shape[-1]
    below, above = paper_and_ink(hue, 0.45, dice)
    way, pitch = (
        dice.uniform(0, math.pi / 2, n, 1, 1, 1),
        dice.uniform(1.7, 2.6, n, 1, 1, 1),
    )
    row, column = grid(size)
    screen = (
        ((column * way.cos() + row * way.sin()) * pitch).sin()
        * ((row * way.cos() - column * way.sin()) * pitch).sin()
        + 1
    ) / 2
    tone = (
        0.75 * blur(ink) + 0.25 * clutter + 0.12 * dice.field(n, 1, 4, size) + 0.12
    ).clamp(0, 1)
    return over(below, above, (9 * (tone - screen)).sigmoid()) + 0.02 * dice.normal(
        n, 1, size, size
    )


STYLES = {
    "photo": photo,
    "cartoon": cartoon,
    "painting": painting,
    "sketch": sketch,
    "neon": neon,
    "halftone": halftone,
}


# ---------------------------------------------------------------- all steps
def hue_table(style, classes, seed):
    """The hue [K] that each class tends to have in this style: a permutation of the
    colour circle.
    """
    return (
        torch.randperm(classes, generator=Dice(seed, "hue", style).generator) / classes
    )


def chunk(number, style, split, letters, table, seed, spurious, clutter, strength):
    """The images [500, 3, S, S], in [0, 1] on 256 levels, and classes [500] of one
    chunk.
    """
    n, classes = CHUNK, len(letters.fonts)
    dice = Dice(seed, style, split, number)

    def some(y):
        """Pictures of the classes y, each in any of its fonts."""
        font = (dice.uniform(0, 1, n) * letters.fonts[y]).long()
        return letters.ink[y, font][:, None].float() / 255

    y = dice.whole(classes, n)
    ink = warp(some(y), dice, strength)
    rim = (
        at_the_rim(some(dice.whole(classes, n)), dice)
        * dice.flip(clutter, n, 1, 1, 1)
        * (1 - thicken(ink))
    )
    hue = torch.where(
        dice.flip(spurious, n) > 0,
        (table[y] + 0.02 * dice.normal(n)) % 1,
        dice.uniform(0, 1, n),
    )
    return STYLES[style](ink, rim, hue, dice).clamp(0, 1).mul(255).round().div(255), y


def glyphs(
    n: int | Sequence[int],
    classes: int = 10,
    styles: Sequence[str] = ("photo", "cartoon", "painting", "sketch"),
    split: str = "train",
    seed: int = 0,
    spurious: float = 0.35,
    clutter: float = 0.5,
    size: int = 32,
    warp: float = 1.0,
) -> Pool:
    """`n` glyph images as a Pool whose owner is the style: x [N, 3, size, size] in [0,
    1], y [N].

    n         images in all, shared evenly by the styles, or a list with one number
              per style
    classes   2 to about 200: that many characters
    styles    some of photo, cartoon, painting, sketch, neon, halftone; rows are in
              this order
    split     "train", "test" or any other word: different words give different images
    spurious  probability that the class decides the hue; 0 for pools whose styles are
              not used as domains
    clutter   probability of a second glyph at the rim
    size      pixels per side, 16 to 128; with few, photo, painting and halftone hide
              many of their glyphs
    warp      how far glyphs are turned, shrunk, moved and bent: from 1 to 0, which is
              learnt from far fewer images

    Needs about 0.2 ms of CPU time and 12 kB per image of 32 x 32. The last two pools
    are kept in memory: treat x as read-only.
    """
    styles = tuple(styles) if isinstance(styles, (list, tuple)) else (styles,)
    unknown = [s for s in styles if not isinstance(s, str) or s not in STYLES]
    if unknown or not styles or len(set(styles)) < len(styles):
        near = nearest(unknown[0], STYLES) if unknown else ""
        raise ValueError(
            f"glyphs: styles = {short(styles)}{near}; choose different ones of "
            f"{', '.join(STYLES)}"
        )
    check_number("glyphs: spurious", spurious, 0, 1, ", a probability")
    check_number("glyphs: clutter", clutter, 0, 1, ", a probability")
    check_number("glyphs: warp", warp, 0, 1, "; 0: glyphs as printed")
    check_whole("glyphs: size", size, 16, 128, " pixels per side")
    check_whole("glyphs: classes", classes, 2)
    check_whole("glyphs: seed", seed, 0, SEEDS)
    counts = list(n) if isinstance(n, (list, tuple)) else [n]
    if is_whole(n):
        counts = [n // len(styles) + (k < n % len(styles)) for k in range(len(styles))]
    enough = all(is_whole(m) and m >= 1 for m in counts)
    if len(counts) != len(styles) or not enough:
        raise ValueError(
            f"glyphs: n = {short(n)}: give at least one image for each of the "
            f"{len(styles)} styles, as one whole number or as a list with one number "
            "per style"
        )
    check_bytes(f"glyphs: n = {short(n)}", sum(counts) * 3 * size**2 * 4)
    return _glyphs(
        tuple(counts),
        classes,
        styles,
        str(split),
        seed,
        float(spurious),
        float(clutter),
        size,
        float(warp),
    )


@lru_cache(maxsize=2)
def _glyphs(counts, classes, styles, split, seed, spurious, clutter, size, strength):
    letters, N = atlas(classes, size), sum(counts)
    x, y, at = torch.empty(N, 3, size, size), torch.empty(N, dtype=torch.long), 0
    for style, count in zip(styles, counts):
        table = hue_table(style, classes, seed)
        for number in range(math.ceil(count / CHUNK)):
            images, labels = chunk(
                number, style, split, letters, table, seed, spurious, clutter, strength
            )
            m = min(CHUNK, count - number * CHUNK)
            x[at : at + m], y[at : at + m] = images[:m], labels[:m]
            at += m
    owner = torch.arange(len(styles)).repeat_interleave(torch.tensor(counts))
    return Pool(
        name=f"glyphs-{classes}",
        x=x,
        y=y,
        K=classes,
        kind="stand-in",
        owner=owner,
        owners=styles,
    )
