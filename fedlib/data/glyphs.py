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

import hashlib
import math
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from pydantic import Field
from torch import Tensor

from ..core.errors import COUNT, check_bytes, is_whole, refuse_if
from ..core.pool import Pool
from .settings import Count, Different, Pixels, Seed, Share, Some, named, settings

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
COMPUTER_MODERN = "cmr10 cmb10 cmss10 cmtt10 cmti10".split()
FONTS = (
    "DejaVuSans DejaVuSans-Bold DejaVuSans-Oblique DejaVuSans-BoldOblique DejaVuSerif "
    "DejaVuSerif-Bold DejaVuSerif-Italic DejaVuSerif-BoldItalic DejaVuSansMono "
    "DejaVuSansMono-Bold DejaVuSansMono-Oblique DejaVuSansMono-BoldOblique "
    "STIXGeneral STIXGeneralBol STIXGeneralItalic STIXGeneralBolIta"
).split() + COMPUTER_MODERN
FEWEST_FONTS = 8  # a character that fewer fonts can draw is no class


# ---------------------------------------------------------------- step 0: the atlas
class Atlas(NamedTuple):
    """Every class in every font that has it, white on black, in twice the size."""

    ink: Tensor  # [K, F, 2S, 2S] uint8
    fonts: Tensor  # [K] number of fonts of the class; the rest of the row is black
    characters: tuple[str, ...]  # [K]


@lru_cache(maxsize=8)
def atlas(classes: int, size: int = 32) -> Atlas:
    """The first `classes` characters of the alphabet in all fonts that draw them."""
    side = 2 * size
    fonts = [typeface(name, side) for name in FONTS]
    faces = lambda c: [_face(c, *how, side) for *how, has in fonts if c in has]
    inked = ((c, [face for face in faces(c) if face is not None]) for c in ALPHABET)
    drawn = ((c, some) for c, some in inked if len(some) >= FEWEST_FONTS)
    drawn = dict(islice(drawn, classes))
    few = f"glyphs has 2 to {len(drawn)} classes, not {classes}"
    refuse_if(len(drawn) < classes, few)
    fonts = [*map(len, drawn.values())]
    ink = np.zeros((classes, max(fonts), side, side), np.uint8)
    for row, some in zip(ink, drawn.values()):
        row[: len(some)] = some
    return Atlas(torch.from_numpy(ink), torch.tensor(fonts), tuple(drawn))


def typeface(name, side):
    """A font, three quarters of `side` high; what measures it; its characters."""
    import matplotlib  # here, so that methods and tasks load without it
    from matplotlib.ft2font import FT2Font

    path = Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf")
    outlines = FT2Font(path)
    characters = set(map(chr, outlines.get_charmap()))
    if name in COMPUTER_MODERN:  # beyond these it has other signs at the code points
        characters = {c for c in characters if c.isascii() and c.isalnum()}
    layout = ImageFont.Layout.BASIC  # the one that every machine has
    font = ImageFont.truetype(str(path), 3 * side // 4, layout_engine=layout)
    return font, outlines, characters


def _face(c, font, outlines, side):
    """A character [side, side], its longer side 5/8; None for next to no ink."""
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
    """The random numbers of the chunk of n images that `where` names."""

    def __init__(self, *where, n=CHUNK, size=32):
        digest = hashlib.sha256("|".join(map(str, where)).encode()).digest()
        seed = int.from_bytes(digest[:7], "big")
        self.generator = torch.Generator().manual_seed(seed)
        self.n, self.size = n, size

    def uniform(self, low, high, *shape):
        """[n], or of another shape."""
        of = {"generator": self.generator, "dtype": torch.float32}
        drawn = torch.rand(shape or (self.n,), **of)
        return drawn * (high - low) + low

    def normal(self, *shape):
        return torch.randn(shape, generator=self.generator, dtype=torch.float32)

    def whole(self, below):
        return torch.randint(below, (self.n,), generator=self.generator)

    def each(self, low, high):
        """One number for each image [n, 1, 1, 1]."""
        return self.uniform(low, high, self.n, 1, 1, 1)

    def flip(self, p):
        """1 with probability p, else 0 [n, 1, 1, 1]."""
        return (self.each(0, 1) < p).float()

    def grain(self, channels):
        """Normal noise [n, channels, size, size]."""
        return self.normal(self.n, channels, self.size, self.size)

    def field(self, channels, cells):
        """A smooth random field [n, channels, size, size], about within +-1."""
        return 0.7 * grown(self.normal(self.n, channels, cells, cells), self.size)

    def tint(self, saturation, value, hue=None):
        """Flat colours [n, 3, 1, 1] of a range of saturations and of values."""
        hue = self.uniform(0, 1) if hue is None else hue
        return colour(hue, self.uniform(*saturation), self.uniform(*value))


# --------------------------------------------------------------- small image operations
def grown(x, size):
    """x [n, channels, cells, cells], interpolated to size x size pixels."""
    return F.interpolate(x, size=(size, size), mode="bicubic")


def blur(x):
    """3 x 3 mean."""
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)


def thicken(mask):
    """3 x 3 maximum."""
    return F.max_pool2d(mask, 3, 1, 1)


def edge(mask):
    """3 x 3 maximum minus minimum."""
    return thicken(mask) + thicken(-mask)


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
def bent(glyph, dice, strength=1.0, zoom=(0.62, 1.05), shift=0.22):
    """Atlas pictures [n, 1, 2S, 2S] -> ink [n, 1, S, S]: one affine map and one smooth
    bend, sampled once.

    strength 0 leaves the largest upright glyph; the dice are the same for every
    strength. At strength 1 the size lies in the range `zoom` and the centre moves by up
    to `shift` of half the picture.
    """
    turn = strength * dice.uniform(-20, 20) * math.pi / 180
    largest, zoom = zoom[1], dice.uniform(*zoom)
    zoom = zoom + (1 - strength) * (largest - zoom)
    stretch = (strength * dice.uniform(-0.18, 0.18)).exp()
    shear = strength * dice.uniform(-0.2, 0.2)
    right, down = strength * dice.uniform(-shift, shift, 2, dice.n)
    cos, sin = turn.cos(), turn.sin()
    across = [cos * stretch / zoom, (shear - sin) / zoom, right]
    at = moved(across + [sin / zoom, cos / stretch / zoom, down], dice.size)
    bend = grown(dice.normal(dice.n, 2, 4, 4), dice.size)
    at = at + 0.05 * strength * bend.permute(0, 2, 3, 1)
    return F.grid_sample(glyph, at, align_corners=False).clamp(0, 1)


def moved(rows, size):
    """Where an affine map, its six numbers [n] each, looks for the pixels."""
    theta = torch.stack(rows, 1).view(-1, 2, 3)
    return F.affine_grid(theta, (len(theta), 1, size, size), align_corners=False)


def at_the_rim(glyph, dice):
    """Atlas pictures [n, 1, 2S, 2S], turned, pushed over the rim: [n, 1, S, S]."""
    turn = dice.uniform(0, 2 * math.pi)
    cos, sin = 1.3 * turn.cos(), 1.3 * turn.sin()
    rows = [cos, -sin, 1.05 * (3 * turn).cos(), sin, cos, 1.05 * (3 * turn).sin()]
    return F.grid_sample(glyph, moved(rows, dice.size), align_corners=False)


# ---------------------------------------------------------------- step 4: styles
# A style is a function (ink, clutter, hue, dice) -> image: masks [n, 1, S, S] and hues
# [n] -> [n, 3, S, S], not yet clamped. Rolled along the batch (`.roll(1, 0)`) a colour
# is that of another image: a random second colour at no cost.
def paper_and_ink(hue, contrast, dice):
    """Colours [n, 3, 1, 1] of ground and ink, `contrast` apart where that fits."""
    ground = dice.uniform(0.25, 0.95)
    away = torch.where(ground > 0.6, -1.0, 1.0)
    ink = (ground + away * dice.uniform(contrast, contrast + 0.35)).clamp(0.05, 1)
    return (
        colour(dice.uniform(0, 1), dice.uniform(0.15, 0.7), ground),
        colour(hue, dice.uniform(0.2, 0.9), ink),
    )


def lit(ink, above, below, dice):
    """Uneven ink over the ground, its edges soft in some pictures."""
    ink = over(ink, blur(ink), dice.flip(0.6)) * dice.each(0.7, 1)
    return over(below, above + 0.08 * dice.field(1, 9), ink)


def photo(ink, clutter, hue, dice, contrast=0.28, noise=0.035):
    """Textured ground and ink, soft edges, uneven light, pixel noise."""
    below, above = paper_and_ink(hue, contrast, dice)
    for strength, channels, cells in ((0.11, 1, 4), (0.09, 1, 11), (0.05, 3, 5)):
        below = below + strength * dice.field(channels, cells)
    other = above.roll(1, 0) + 0.1 * dice.field(1, 6)
    x = lit(ink, above, over(below, other, 0.55 * clutter), dice)
    ramp = torch.linspace(-1, 1, dice.size)
    light = 1 + dice.each(-0.3, 0.3) * ramp
    light = light + dice.each(-0.3, 0.3) * ramp[:, None]
    return x * light + noise * dice.grain(3)


def cartoon(ink, clutter, hue, dice):
    """Flat light ground of two colours, flat saturated ink with a dark outline."""
    one, two = dice.tint((0.1, 0.5), (0.75, 1)), dice.tint((0.3, 0.8), (0.55, 1))
    border = dice.field(1, 3) > dice.each(-0.2, 0.5)
    below = over(one, two, border.float())
    below = over(below, dice.tint((0, 1), (0.4, 1)), (clutter > 0.5).float())
    flat = (ink > 0.45).float()
    x = over(below, dice.tint((0.6, 1), (0.55, 1), hue), flat)
    outline = (thicken(flat) - flat) * dice.flip(0.85)
    return over(x, dice.each(0, 0.2), outline)


def painting(ink, clutter, hue, dice):
    """Strokes smeared in one direction, few levels of colour, a canvas's weave."""
    below, above = paper_and_ink(hue, 0.3, dice)
    strokes = 0.13 * dice.field(3, 7) + 0.07 * dice.field(3, 16)
    below = over(below + strokes, above.roll(3, 0), 0.5 * clutter)
    x = over(below, above + strokes.roll(1, 0), 0.95 * blur(ink))
    ways = [(0, 1), (1, 0), (1, 1), (1, -1)]
    way, smeared = dice.whole(len(ways)), torch.empty_like(x)
    for k, (dy, dx) in enumerate(ways):
        z = x[way == k]
        ahead, behind = z.roll((dy, dx), (2, 3)), z.roll((-dy, -dx), (2, 3))
        smeared[way == k] = (z + ahead + behind) / 3
    levels = dice.each(4, 7).round()
    row, column = grid(dice.size)
    weave = 0.03 * (2 * ((row + column) % 2) - 1)
    flat = (smeared.clamp(0, 1) * levels).round() / levels
    return flat + weave + 0.03 * dice.grain(1)


def sketch(ink, clutter, hue, dice):
    """Pencil on paper: broken outlines, some hatching; the hue is not used."""
    pressed = (dice.field(1, 10) + dice.each(0.1, 0.7) > 0).float()
    way, pitch = dice.each(0, math.pi), dice.each(1.2, 2.2)
    row, column = grid(dice.size)
    stripes = (((column * way.cos() + row * way.sin()) * pitch).sin() > 0.3).float()
    hatching = 0.45 * stripes * -thicken(-ink) * dice.flip(0.5)
    outline = 0.9 * edge(ink) * (0.35 + 0.65 * pressed)
    lines = torch.maximum(outline, 0.45 * edge(clutter) * pressed)
    pencil = torch.maximum(lines, hatching)
    paper = dice.each(0.85, 1) + 0.03 * dice.field(1, 6)
    grey = paper - pencil * dice.each(0.45, 0.85)
    return (grey + 0.03 * dice.grain(1)).expand(-1, 3, -1, -1)


def neon(ink, clutter, hue, dice):
    """A glowing outline in the dark."""
    light = dice.tint((0.5, 1), (0.8, 1), hue)
    dark = 0.15 * dice.field(3, 5).abs()
    dark = dark + colour(*dice.uniform(0, 1, 2, dice.n), dice.uniform(0.02, 0.25))
    glow = 0.35 * blur(blur(blur(thicken(ink)))) + 0.75 * edge(ink)
    x = dark + light * glow + 0.25 * light.roll(1, 0) * blur(clutter)
    return x + 0.03 * dice.grain(3)


def halftone(ink, clutter, hue, dice):
    """Print: two colours and a turned screen of dots."""
    below, above = paper_and_ink(hue, 0.45, dice)
    way, pitch = dice.each(0, math.pi / 2), dice.each(1.7, 2.6)
    row, column = grid(dice.size)
    along = ((column * way.cos() + row * way.sin()) * pitch).sin()
    across = ((row * way.cos() - column * way.sin()) * pitch).sin()
    screen = (along * across + 1) / 2
    tone = 0.75 * blur(ink) + 0.25 * clutter + 0.12 * dice.field(1, 4) + 0.12
    x = over(below, above, (9 * (tone.clamp(0, 1) - screen)).sigmoid())
    return x + 0.02 * dice.grain(1)


DRAW = photo, cartoon, painting, sketch, neon, halftone
STYLES = {draw.__name__: draw for draw in DRAW}


# ---------------------------------------------------------------- all steps
def hue_table(style, classes, seed):
    """The hue [K] of each class in this style: a permutation of the colour circle."""
    dice = Dice(seed, "hue", style)
    return torch.randperm(classes, generator=dice.generator) / classes


def some(letters, k, dice):
    """Pictures [n, 1, 2S, 2S] of the letters k [n], each in any of its fonts."""
    font = (dice.uniform(0, 1) * letters.fonts[k]).long()
    return letters.ink[k, font][:, None].float() / 255


def coloured(draw, ink, y, letters, table, dice, spurious, clutter):
    """The ink [n, 1, S, S] of classes y [n], with pieces of other glyphs at the rim of
    a share `clutter` of the pictures, and in a share `spurious` the hue of its class,
    drawn in a style: [n, 3, S, S], not yet clamped.
    """
    other = at_the_rim(some(letters, dice.whole(len(letters.fonts)), dice), dice)
    rim = other * dice.flip(clutter) * (1 - thicken(ink))
    misled = dice.flip(spurious).flatten() > 0
    own = (table[y] + 0.02 * dice.normal(dice.n)) % 1
    hue = torch.where(misled, own, dice.uniform(0, 1))
    return draw(ink, rim, hue, dice)


def levels(x):
    """Images on 256 levels from 0 to 1, as a file has them."""
    return x.clamp(0, 1).mul(255).round().div(255)


def filled(counts, size, chunk_of):
    """Images x [N, 3, size, size] and classes y [N] of all owners, counts[k] each, from
    chunk_of(k, number); and whose they are [N].
    """
    x, y = [], []
    for k, count in enumerate(counts):
        for number in range(math.ceil(count / CHUNK)):
            images, labels = chunk_of(k, number)
            m = min(CHUNK, count - number * CHUNK)
            x, y = [*x, images[:m]], [*y, labels[:m]]
    owner = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return torch.cat(x), torch.cat(y), owner


def numbers(at, n, owners, size):
    """How many images each owner has; ValueError unless each has one, and all fit."""
    wrong, at = len(n) != owners or min(n) < 1, f"{at}: n = {n}"
    refuse_if(wrong, f"{at}: give at least one image for each of {owners} owners")
    check_bytes(at, sum(n) * 3 * size**2 * 4)
    return tuple(n)


Classes = Annotated[int, Field(ge=2, le=COUNT)]
Named = Annotated[str, named(STYLES, "style")]


@settings
def glyphs(
    n: Count | Some[Count],
    classes: Classes = 10,
    styles: Named | Different[Named] = ("photo", "cartoon", "painting", "sketch"),
    split: str = "train",
    seed: Seed = 0,
    spurious: Share = 0.35,
    clutter: Share = 0.5,
    size: Pixels = 32,
    warp: Share = 1.0,
) -> Pool:
    """`n` glyph images as a Pool whose owner is the style: x [N, 3, size, size] in [0,
    1], y [N].

    n         images in all, shared evenly by the styles, or a list with one number
              per style
    classes   2 to about 200 characters
    styles    some of STYLES; rows are in this order
    split     "train", "test" or any other word: different words give different images
    spurious  probability that the class decides the hue; 0 for pools whose styles are
              not used as domains
    clutter   probability of a second glyph at the rim
    size      pixels per side; with few, photo, painting, halftone hide many glyphs
    warp      how far glyphs are turned, shrunk, moved and bent: from 1 to 0, which is
              learnt from far fewer images

    Needs about 0.2 ms of CPU time and 12 kB per image of 32 x 32.
    """
    styles = (styles,) if isinstance(styles, str) else tuple(styles)
    S = len(styles)
    counts = [n // S + (k < n % S) for k in range(S)] if is_whole(n) else n
    counts = numbers("glyphs", counts, S, size)
    letters = atlas(classes, size)

    def chunk_of(k, number):
        style = styles[k]
        dice = Dice(seed, style, split, number, size=size)
        y = dice.whole(classes)
        ink = bent(some(letters, y, dice), dice, float(warp))
        table = hue_table(style, classes, seed)
        of = ink, y, letters, table, dice, spurious, clutter
        return levels(coloured(STYLES[style], *of)), y

    x, y, owner = filled(counts, size, chunk_of)
    return Pool(f"glyphs-{classes}", x, y, classes, "stand-in", owner, styles)
