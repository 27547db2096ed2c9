"""Glyphs: the same images whatever is asked for, different splits and styles, and a
task neither trivial nor hopeless.
"""

import pytest
import torch
from PIL import ImageFont, features

from fedlib.data.glyphs import (
    ALPHABET,
    CHUNK,
    COMPUTER_MODERN,
    DEJAVU,
    STIX,
    STYLES,
    Dice,
    _box,
    _glyphs,
    atlas,
    blur,
    colour,
    glyphs,
    hue_table,
    over,
    thicken,
    thin,
    typeface,
)

ALL = tuple(STYLES)


def saturation(x):
    return (x.amax(1) - x.amin(1)).mean()


def test_pool():
    pool = glyphs(103, classes=5)
    assert (
        pool.x.shape == (103, 3, 32, 32)
        and pool.x.dtype == torch.float32
        and pool.y.dtype == torch.int64
    )
    assert pool.owners == ("photo", "cartoon", "painting", "sketch") and torch.bincount(
        pool.owner
    ).tolist() == [26, 26, 26, 25]
    assert (
        pool.K == 5
        and set(pool.y.tolist()) == set(range(5))
        and pool.kind == "stand-in"
    )
    assert torch.bincount(glyphs([3, 9], styles=("neon", "photo")).owner).tolist() == [
        3,
        9,
    ]
    assert glyphs(6, styles="photo", size=48).x.shape == (6, 3, 48, 48)


@pytest.mark.parametrize("style", ALL)
def test_images(style):
    x = glyphs(64, styles=style).x
    assert (
        x.isfinite().all()
        and 0 <= x.min()
        and x.max() <= 1
        and (x.flatten(1).std(1) > 0.01).all()
    )
    # 256 levels, as in an image file
    assert torch.allclose(x * 255, (x * 255).round(), atol=1e-4)
    assert len(x.flatten(1).unique(dim=0)) == 64


def test_same_images_whatever_is_asked_for():
    few = glyphs(CHUNK + 50, styles="cartoon")
    _glyphs.cache_clear()
    many = glyphs([3, CHUNK + 260], styles=("sketch", "cartoon"))
    assert torch.equal(few.x, many.x[3 : CHUNK + 53]) and torch.equal(
        few.y, many.y[3 : CHUNK + 53]
    )


def test_other_splits_seeds_and_styles_are_other_images():
    base = glyphs(40, styles="photo")
    for other in (
        glyphs(40, styles="photo", split="test"),
        glyphs(40, styles="photo", seed=1),
    ):
        both = torch.cat([base.x, other.x]).flatten(1)
        assert len(both.unique(dim=0)) == 80
    colours = {s: float(saturation(glyphs(60, styles=s).x)) for s in ALL}
    assert (
        colours["sketch"] == 0
        and min(v for s, v in colours.items() if s != "sketch") > 0.05
    )
    assert colours["cartoon"] > 1.3 * colours["photo"]


def test_spurious_hue():
    """The class decides the hue by a table that is different in each style; a sketch
    has no hue.
    """
    tables = [hue_table(s, 10, 0) for s in ALL]
    assert all(
        sorted(t.tolist()) == pytest.approx([k / 10 for k in range(10)]) for t in tables
    )
    assert len({tuple(t.tolist()) for t in tables}) == len(tables)
    assert torch.equal(
        glyphs(30, styles="sketch", spurious=0).x,
        glyphs(30, styles="sketch", spurious=1).x,
    )

    def between(spurious):
        """Share of the variance of neon's mean colour that the class explains."""
        pool = glyphs(500, classes=4, styles="neon", spurious=spurious)
        mean = pool.x.mean((2, 3))
        centre = torch.stack([mean[pool.y == k].mean(0) for k in range(4)])
        return float(
            (centre[pool.y] - mean.mean(0)).square().sum()
            / (mean - mean.mean(0)).square().sum()
        )

    assert between(0) < 0.1 and between(1) > 0.3


def test_clutter():
    with_, without = (
        glyphs(200, styles="cartoon", clutter=1.0).x,
        glyphs(200, styles="cartoon", clutter=0.0).x,
    )
    # same dice, so only the clutter differs
    changed = (with_ != without).any(1).flatten(1)
    assert changed.any(1).float().mean() > 0.9 and changed.float().mean() < 0.4


def test_warp():
    """Less warp, and the images of a class look more alike; the default is full
    strength.
    """

    def spread(**more):
        """Variance within classes as a share of all."""
        pool = glyphs(500, classes=5, styles="sketch", clutter=0, size=16, **more)
        x = pool.x.flatten(1)
        mean = torch.stack([x[pool.y == k].mean(0) for k in range(5)])
        return float((x - mean[pool.y]).square().sum() / (x - x.mean(0)).square().sum())

    assert spread(warp=0) < spread(warp=0.5) - 0.05 < spread(
        warp=1
    ) - 0.1 and spread() == spread(warp=1)
    assert torch.equal(glyphs(20, warp=0.3).y, glyphs(20).y)


def test_atlas():
    letters = atlas(40)
    assert (
        len(set(letters.characters)) == 40
        and letters.fonts.min() >= 8
        and letters.ink.shape[:1] == (40,)
    )
    plain = letters.ink[:, 0].float() / 255
    gap = (plain[:, None] - plain[None]).abs().mean((2, 3))
    gap += torch.eye(40)  # no two classes look alike
    assert gap.min() > 0.01 and gap[:10, :10].min() > 0.03
    for k in (0, 39):
        used = letters.ink[k].flatten(1).any(1)
        assert used[: letters.fonts[k]].all() and not used[letters.fonts[k] :].any()
    assert atlas(10).characters == letters.characters[:10]


@pytest.mark.skipif(not features.check("raqm"), reason="Pillow has no libraqm here")
@pytest.mark.parametrize("name", DEJAVU + STIX + COMPUTER_MODERN)
def test_a_character_is_as_large_as_with_libraqm(name):
    """The stored runs were made with it; many machines have none."""
    font, outlines, has = typeface(name, 64)
    raqm = ImageFont.truetype(font.path, font.size, layout_engine=ImageFont.Layout.RAQM)
    drawn = [c for c in ALPHABET if c in has]
    boxes = {c: (_box(c, font, outlines), raqm.getbbox(c)) for c in drawn}
    assert drawn and not {c: two for c, two in boxes.items() if two[0] != two[1]}


def test_neither_trivial_nor_hopeless():
    """Ridge regression on raw pixels stays far from a solution, and above chance."""
    train, test = (
        glyphs(1000, styles=("cartoon", "sketch"), spurious=0, split=s)
        for s in ("train", "test")
    )
    x, z = train.x.flatten(1) - 0.5, test.x.flatten(1) - 0.5
    dual = torch.linalg.solve(
        x @ x.T + 300 * torch.eye(len(x)), torch.eye(10)[train.y] - 0.1
    )
    score = ((z @ x.T @ dual).argmax(1) == test.y).float().mean()
    assert 0.14 < score < 0.40


def test_small_operations():
    mask = torch.zeros(1, 1, 5, 5)
    mask[0, 0, 2, 2] = 1
    assert (
        thicken(mask).sum() == 9
        and torch.equal(thin(thicken(mask)), mask)
        and thin(mask).sum() == 0
    )
    assert torch.allclose(blur(mask).sum(), torch.tensor(1.0)) and torch.equal(
        over(mask, 1 - mask, mask), torch.zeros_like(mask)
    )
    hue = torch.tensor([0, 1 / 3, 2 / 3, 0.5])
    pure = colour(hue, torch.tensor([1.0, 1, 1, 0]), torch.tensor([1.0, 1, 1, 0.5]))[
        :, :, 0, 0
    ]
    assert torch.allclose(
        pure,
        torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0.5]]),
        atol=1e-6,
    )
    one, again, other = (
        Dice(*where).normal(3) for where in ((0, "a"), (0, "a"), (1, "a"))
    )
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize(
    "arguments, says",
    [
        (dict(n=10, styles=("photo", "oil")), "choose different ones of photo"),
        (dict(n=10, styles=("photo", "photo")), "choose different ones"),
        (dict(n=3), "at least one image for each of the 4 styles"),
        (dict(n=[5, 5]), "one number per style"),
        (dict(n=8, spurious=1.5), "a probability"),
        (dict(n=8, size=8), "16 to 128 pixels"),
        (dict(n=8, warp=-0.1), "warp = -0.1: give a number from 0"),
        (dict(n=8, classes=1), "classes = 1: give a whole number >= 2"),
        (dict(n=8, classes=900), "classes, not 900"),
    ],
)
def test_bad_input(arguments, says):
    with pytest.raises(ValueError, match=says):
        glyphs(**arguments)
