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
from ..core.ranges import SEEDS, check_bytes, is_whole, short
from .settings import settings

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
    fonts = torch.tensor([len(faces) for faces in drawn])
    return Atlas(torch.from_numpy(ink), fonts, tuple(characters))


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
    at = (side - right + left) / 2 - left, (side - bottom + top) / 2 - top
    ImageDraw.Draw(image).text(at, c, fill=255, font=font)
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
        seed = int.from_bytes(digest[:7], "big")
        self.generator = torch.Generator().manual_seed(seed)

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
        coarse = self.normal(n, channels, cells, cells)
        return 0.7 * F.interpolate(coarse, size=(size, size), mode="bicubic")

    def each(self, low, high, n):
        """One number for each of n images [n, 1, 1, 1]."""
        return self.uniform(low, high, n, 1, 1, 1)

    def tint(self, n, saturation, value, hue=None):
        """Flat colours [n, 3, 1, 1] of a range of saturations and of values."""
        hue = self.uniform(0, 1, n) if hue is None else hue
        return colour(hue, self.uniform(*saturation, n), self.uniform(*value, n))


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
    part = saturation[:, None] * torch.minimum(k, 4 - k).clamp(0, 1)
    return (value[:, None] * (1 - part))[:, :, None, None]


def grid(size):
    """Pixel rows and columns, each [size, size]."""
    side = torch.arange(float(size))
    return torch.meshgrid(side, side, indexing="ij")


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
    first = [cos * stretch / zoom, (shear - sin) / zoom, shift[0]]
    at = moved(first + [sin / zoom, cos / stretch / zoom, shift[1]], size)
    bend = F.interpolate(dice.normal(n, 2, 4, 4), size=(size, size), mode="bicubic")
    at = at + 0.05 * strength * bend.permute(0, 2, 3, 1)
    return F.grid_sample(glyph, at, align_corners=False).clamp(0, 1)


def moved(rows, size):
    """Where an affine map, its six numbers [n] each, looks for the pixels."""
    theta = torch.stack(rows, 1).view(-1, 2, 3)
    return F.affine_grid(theta, (len(theta), 1, size, size), align_corners=False)


def at_the_rim(glyph, dice):
    """Atlas pictures [n, 1, 2S, 2S] -> the pieces [n, 1, S, S] that show when they are
    turned and pushed over the rim.
    """
    n, size = len(glyph), glyph.shape[-1] // 2
    turn = dice.uniform(0, 2 * math.pi, n)
    cos, sin = 1.3 * turn.cos(), 1.3 * turn.sin()
    rows = [cos, -sin, 1.05 * (3 * turn).cos(), sin, cos, 1.05 * (3 * turn).sin()]
    return F.grid_sample(glyph, moved(rows, size), align_corners=False)


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


def lit(ink, above, below, dice, size):
    """Uneven ink over the ground, its edges soft in some pictures."""
    n = len(ink)
    soft = over(ink, blur(ink), dice.flip(0.6, n, 1, 1, 1))
    ink = soft * dice.each(0.7, 1, n)
    return over(below, above + 0.08 * dice.field(n, 1, 9, size), ink)


def photo(ink, clutter, hue, dice, contrast=0.28, noise=0.035):
    """Textured ground and ink, soft edges, uneven light, pixel noise."""
    n, size = len(ink), ink.shape[-1]
    below, above = paper_and_ink(hue, contrast, dice)
    for strength, channels, cells in ((0.11, 1, 4), (0.09, 1, 11), (0.05, 3, 5)):
        below = below + strength * dice.field(n, channels, cells, size)
    other = above.roll(1, 0) + 0.1 * dice.field(n, 1, 6, size)
    x = lit(ink, above, over(below, other, 0.55 * clutter), dice, size)
    ramp = torch.linspace(-1, 1, size)
    light = 1 + dice.each(-0.3, 0.3, n) * ramp
    light = light + dice.each(-0.3, 0.3, n) * ramp[:, None]
    return x * light + noise * dice.normal(n, 3, size, size)


def cartoon(ink, clutter, hue, dice):
    """Flat light ground of two colours, flat saturated ink with a dark outline."""
    n, size = len(ink), ink.shape[-1]
    one, two = dice.tint(n, (0.1, 0.5), (0.75, 1)), dice.tint(n, (0.3, 0.8), (0.55, 1))
    border = dice.field(n, 1, 3, size) > dice.each(-0.2, 0.5, n)
    below = over(one, two, border.float())
    below = over(below, dice.tint(n, (0, 1), (0.4, 1)), (clutter > 0.5).float())
    flat = (ink > 0.45).float()
    x = over(below, dice.tint(n, (0.6, 1), (0.55, 1), hue), flat)
    outline = (thicken(flat) - flat) * dice.flip(0.85, n, 1, 1, 1)
    return over(x, dice.each(0, 0.2, n), outline)


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
        ahead, behind = z.roll((dy, dx), (2, 3)), z.roll((-dy, -dx), (2, 3))
        smeared[way == k] = (z + ahead + behind) / 3
    levels = dice.each(4, 7, n).round()
    row, column = grid(size)
    weave = 0.03 * (2 * ((row + column) % 2) - 1)
    flat = (smeared.clamp(0, 1) * levels).round() / levels
    return flat + weave + 0.03 * dice.normal(n, 1, size, size)


def sketch(ink, clutter, hue, dice):
    """Pencil on paper: broken outlines, some hatching, no colour (the hue is not
    used).
    """
    n, size = len(ink), ink.shape[-1]
    edge = 0.9 * (thicken(ink) - thin(ink))
    other = 0.45 * (thicken(clutter) - thin(clutter))
    pressed = (dice.field(n, 1, 10, size) + dice.each(0.1, 0.7, n) > 0).float()
    way, pitch = dice.each(0, math.pi, n), dice.each(1.2, 2.2, n)
    row, column = grid(size)
    stripes = (((column * way.cos() + row * way.sin()) * pitch).sin() > 0.3).float()
    hatching = 0.45 * stripes * thin(ink) * dice.flip(0.5, n, 1, 1, 1)
    lines = torch.maximum(edge * (0.35 + 0.65 * pressed), other * pressed)
    pencil = torch.maximum(lines, hatching)
    paper = dice.each(0.85, 1, n) + 0.03 * dice.field(n, 1, 6, size)
    grey = paper - pencil * dice.each(0.45, 0.85, n)
    return (grey + 0.03 * dice.normal(n, 1, size, size)).expand(-1, 3, -1, -1)


def neon(ink, clutter, hue, dice):
    """A glowing outline in the dark."""
    n, size = len(ink), ink.shape[-1]
    light = dice.tint(n, (0.5, 1), (0.8, 1), hue)
    dark = 0.15 * dice.field(n, 3, 5, size).abs()
    dark = dark + colour(*dice.uniform(0, 1, 2, n), dice.uniform(0.02, 0.25, n))
    glow = 0.35 * blur(blur(blur(thicken(ink)))) + 0.75 * (thicken(ink) - thin(ink))
    x = dark + light * glow + 0.25 * light.roll(1, 0) * blur(clutter)
    return x + 0.03 * dice.normal(n, 3, size, size)


def halftone(ink, clutter, hue, dice):
    """Print: two colours and a turned screen of dots."""
    n, size = len(ink), ink.shape[-1]
    below, above = paper_and_ink(hue, 0.45, dice)
    way, pitch = dice.each(0, math.pi / 2, n), dice.each(1.7, 2.6, n)
    row, column = grid(size)
    along = ((column * way.cos() + row * way.sin()) * pitch).sin()
    across = ((row * way.cos() - column * way.sin()) * pitch).sin()
    screen = (along * across + 1) / 2
    tone = 0.75 * blur(ink) + 0.25 * clutter + 0.12 * dice.field(n, 1, 4, size) + 0.12
    x = over(below, above, (9 * (tone.clamp(0, 1) - screen)).sigmoid())
    return x + 0.02 * dice.normal(n, 1, size, size)


DRAW = photo, cartoon, painting, sketch, neon, halftone
STYLES = {draw.__name__: draw for draw in DRAW}


# ---------------------------------------------------------------- all steps
def hue_table(style, classes, seed):
    """The hue [K] that each class tends to have in this style: a permutation of the
    colour circle.
    """
    dice = Dice(seed, "hue", style)
    return torch.randperm(classes, generator=dice.generator) / classes


def some(letters, k, dice):
    """Pictures [n, 1, 2S, 2S] of the letters k [n], each in any of its fonts."""
    font = (dice.uniform(0, 1, len(k)) * letters.fonts[k]).long()
    return letters.ink[k, font][:, None].float() / 255


def clutter_at(ink, letters, dice, p):
    """Pieces of other glyphs at the rim of a share p of the pictures, beside the ink
    [n, 1, S, S]."""
    n = len(ink)
    other = at_the_rim(some(letters, dice.whole(len(letters.fonts), n), dice), dice)
    return other * dice.flip(p, n, 1, 1, 1) * (1 - thicken(ink))


def hues(table, y, dice, spurious):
    """A hue for each image, in a share `spurious` of them that of its class."""
    n = len(y)
    misled = dice.flip(spurious, n) > 0
    own = (table[y] + 0.02 * dice.normal(n)) % 1
    return torch.where(misled, own, dice.uniform(0, 1, n))


def levels(x):
    """Images on 256 levels, as a file has them."""
    return x.mul(255).round().div(255)


def chunk(number, style, split, letters, table, seed, spurious, clutter, strength):
    """The images [500, 3, S, S], in [0, 1] on 256 levels, and classes [500] of one
    chunk.
    """
    dice = Dice(seed, style, split, number)
    y = dice.whole(len(letters.fonts), CHUNK)
    ink = warp(some(letters, y, dice), dice, strength)
    rim = clutter_at(ink, letters, dice, clutter)
    hue = hues(table, y, dice, spurious)
    return levels(STYLES[style](ink, rim, hue, dice).clamp(0, 1)), y


def filled(counts, size, chunk_of):
    """Images x [N, 3, size, size] and classes y [N] of all owners, counts[k] each, from
    chunk_of(k, number); and whose they are [N].
    """
    N, at = sum(counts), 0
    x, y = torch.empty(N, 3, size, size), torch.empty(N, dtype=torch.long)
    for k, count in enumerate(counts):
        for number in range(math.ceil(count / CHUNK)):
            images, labels = chunk_of(k, number)
            m = min(CHUNK, count - number * CHUNK)
            x[at : at + m], y[at : at + m] = images[:m], labels[:m]
            at += m
    return x, y, torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


def numbers(at, n, counts, size):
    """How many images each owner has; ValueError unless each has one, and all fit."""
    if not all(is_whole(m) and m >= 1 for m in counts):
        raise ValueError(
            f"{at}: n = {short(n)}: give at least one image for each of {len(counts)} "
            "owners, as one whole number or as a list with one number each"
        )
    check_bytes(f"{at}: n = {short(n)}", sum(counts) * 3 * size**2 * 4)
    return tuple(counts)


@settings(
    classes=(2,),
    seed=(0, SEEDS),
    spurious=(0, 1),
    clutter=(0, 1),
    size=(16, 128),
    warp=(0, 1),
)
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
    odd = [s for s in styles if not isinstance(s, str) or s not in STYLES]
    if odd or not styles or len(set(styles)) < len(styles):
        near = nearest(odd[0], STYLES) if odd else ""
        raise ValueError(
            f"glyphs: styles = {short(styles)}{near}; choose different ones of "
            f"{', '.join(STYLES)}"
        )
    S, given = len(styles), list(n) if isinstance(n, (list, tuple)) else [n]
    counts = [n // S + (k < n % S) for k in range(S)] if is_whole(n) else given
    counts = numbers("glyphs", n, counts if len(counts) == S else [0] * S, size)
    shares = float(spurious), float(clutter), float(warp)
    return _glyphs(counts, classes, styles, str(split), seed, size, *shares)


@lru_cache(maxsize=2)
def _glyphs(counts, K, styles, split, seed, size, spurious, clutter, strength):
    letters = atlas(K, size)

    def chunk_of(k, number):
        table = hue_table(styles[k], K, seed)
        how = seed, spurious, clutter, strength
        return chunk(number, styles[k], split, letters, table, *how)

    x, y, owner = filled(counts, size, chunk_of)
    return Pool(f"glyphs-{K}", x, y, K, "stand-in", owner, styles)
