"""Digits in domains against DomainBed's construction, written again with Pillow."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from fedlib.data.mnist5k import images, mnist5k
from fedlib.data.mnist_domains import colored, rotated
from fedlib.data.tasks import SOURCES

ANGLES = [0, 15, 30, 45, 60, 75]  # DomainBed's, and its environments' names below
FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
LEVEL = 1 / 255  # Pillow's images have whole grey levels


def parts(pool):
    """[(x, y)] of the domains."""
    return [(pool.x[pool.owner == k], pool.y[pool.owner == k]) for k in owners(pool)]


def owners(pool):
    return range(len(pool.owners))


def where(x):
    """For each image x [N, 1, 28, 28] its place among the 5,000, or KeyError."""
    place = {r.numpy().tobytes(): k for k, r in enumerate(images()[0])}
    assert len(place) == 5000
    return [place[r.numpy().tobytes()] for r in x.contiguous()]


def turned(x, angle, frame=0):
    """Images x [N, 1, 28, 28] as DomainBed turns them: Pillow's rotate, bilinear, black
    where nothing was; frame: black pixels around an image while it is turned.
    """
    grey = np.pad((x[:, 0] * 255).round().byte().numpy(), [(0, 0), *[(frame,) * 2] * 2])
    rotate = lambda g: Image.fromarray(g).rotate(angle, Image.BILINEAR, fillcolor=0)
    out = np.stack([np.asarray(rotate(g)) for g in grey])
    return torch.from_numpy(out[:, None, frame : frame + 28, frame : frame + 28] / 255)


# ---------------------------------------------------------------- rotated
def test_angles_are_domains_and_their_names():
    pool = rotated()
    assert pool.owners == ("0", "15", "30", "45", "60", "75") and pool.K == 10
    assert pool.x.shape == (5000, 1, 28, 28) and pool.x.dtype == torch.float32
    assert pool.y.dtype == torch.int64 and pool.y.bincount().tolist() == [500] * 10
    assert pool.owner.bincount().tolist() == [834, 834, 833, 833, 833, 833]
    assert pool.x.min() >= 0 and pool.x.max() <= 1 + 1e-5
    assert pool.kind == "real" and pool.name == "RotatedMNIST of 5,000 digits"
    assert rotated([7.5, 300]).owners == ("7.5", "300")
    assert SOURCES["rotated"] is rotated and SOURCES["colored"] is colored


def test_a_domain_is_its_images_turned_by_pillow():
    """But for Pillow's whole grey levels, which it rounds down. At the lower and the
    right edge it repeats the last pixels, which are hardly ever lit; inside a black
    frame there is no edge.
    """
    for angle in ANGLES[1:]:
        x, y = parts(rotated([0, angle]))[1]
        source = images()[0][dealt_to(1, 2)]
        assert torch.equal(y, images()[1][dealt_to(1, 2)])
        framed = (turned(source, angle, frame=8) - x).abs()
        assert framed.max() < 1.01 * LEVEL
        published = (turned(source, angle) - x).abs() > 1.01 * LEVEL
        assert published.double().mean() < 2e-4
        assert (turned(source, -angle) - x).abs().mean() > 20 * LEVEL


def dealt_to(k, n, draw=0):
    """Which images domain k of n has: each n-th of them in the order of the draw."""
    order = np.random.RandomState(draw).permutation(5000)
    return order[k::n].tolist()


def test_every_image_is_in_one_domain_and_keeps_its_digit():
    """Turned back from 90, 180 and 270 degrees no pixel is lost."""
    pool = rotated([0, 90, 180, 270], draw=3)
    back = [torch.rot90(x, -k, (2, 3)) for k, (x, _) in enumerate(parts(pool))]
    exact = (torch.cat(back) * 255).round() / 255
    place = where(exact)
    assert sorted(place) == list(range(5000))
    assert torch.equal(pool.y, images()[1][place])
    assert place == [i for k in range(4) for i in dealt_to(k, 4, draw=3)]


def test_corners_are_black_and_a_turn_loses_little_ink():
    for x, _ in parts(rotated()):
        assert x[..., [0, 0, 27, 27], [0, 27, 0, 27]].max() == 0
        assert x.mean() == pytest.approx(images()[0].mean().item(), rel=0.05)


def test_pixels_are_averaged_after_the_turn():
    fine, coarse = rotated(pool=1), rotated(pool=2)
    assert coarse.x.shape == (5000, 1, 14, 14)
    means = fine.x.reshape(-1, 1, 14, 2, 14, 2).mean((3, 5))
    assert torch.allclose(coarse.x, means, atol=1e-6)


# ---------------------------------------------------------------- coloured
def test_environments_have_domainbeds_names():
    pool = colored()
    assert pool.owners == tuple(FLIPS) and pool.K == 2 and pool.kind == "real"
    assert pool.x.shape == (5000, 2, 28, 28) and pool.y.dtype == torch.int64
    assert pool.owner.bincount().tolist() == [1667, 1667, 1666]
    assert colored([0, 0.5, 0.6, 1]).owners == ("+100%", "+50%", "-60%", "-100%")


@pytest.mark.parametrize("draw", [0, 7])
def test_colour_is_label_xor_flip_and_one_channel_is_black(draw):
    """DomainBed: label of the digit below five is 1; 25 % of the labels are flipped;
    colour = label xor flip; channel 1 - colour is set to 0.
    """
    wrong, n = [], 0
    for (x, y), flip in zip(parts(colored(draw=draw)), FLIPS.values(), strict=True):
        lit = x.flatten(2).sum(2) > 0  # [N, 2]
        assert torch.equal(lit.sum(1), torch.ones(len(x), dtype=torch.long))
        colour = lit[:, 1].long()
        shape = x.sum(1, keepdim=True)
        digit = images()[1][where(shape)]
        wrong.append(y != (digit < 5))
        share = (colour != y).double().mean().item()
        assert abs(share - flip) < 4 * (flip * (1 - flip) / len(x)) ** 0.5
        # flips know nothing of the wrong labels: the colour's only tie is the label's
        apart = (colour != y)[wrong[-1]].double().mean().item()
        assert abs(apart - flip) < 4 * (flip * (1 - flip) / (len(x) / 4)) ** 0.5
        n += len(x)
    share = torch.cat(wrong).double().mean().item()
    assert n == 5000 and abs(share - 0.25) < 4 * (0.25 * 0.75 / n) ** 0.5


def test_the_colour_is_all_there_is_at_the_ends():
    """flips 0 and 1: the colour is the label, or its contrary."""
    for (x, y), same in zip(parts(colored([0, 1])), (True, False), strict=True):
        green = x[:, 1].flatten(1).sum(1) > 0
        assert torch.equal(green, (y == 1) if same else (y == 0))


def test_every_image_is_in_one_colouring():
    place = where(colored(draw=2).x.sum(1, keepdim=True))
    assert place == [i for k in range(3) for i in dealt_to(k, 3, draw=2)]


def test_colours_do_not_hang_on_the_size_of_the_pixels():
    fine, coarse = colored(), colored(pool=2)
    assert torch.equal(fine.y, coarse.y) and coarse.x.shape == (5000, 2, 14, 14)
    means = fine.x.reshape(-1, 2, 14, 2, 14, 2).mean((3, 5))
    assert torch.allclose(coarse.x, means, atol=1e-6)


# ---------------------------------------------------------------- draws
@pytest.mark.parametrize("source", [rotated, colored])
def test_a_draw_deals_the_images_again(source):
    a, again, b = source(pool=4), source(pool=4, draw=0), source(pool=4, draw=1)
    assert torch.equal(a.x, again.x) and torch.equal(a.y, again.y)
    assert not torch.equal(a.x, b.x) and not torch.equal(a.y, b.y)
    assert a.owners == b.owners and torch.equal(a.owner, b.owner)


def test_another_draw_flips_other_labels_and_colours():
    """Image by image: a share of them changes label, 2 x 1/4 x 3/4, and colour."""

    def told(draw):
        pool = colored(draw=draw)
        order = np.argsort(where(pool.x.sum(1, keepdim=True)))
        return pool.y[order], (pool.x[:, 1].flatten(1).sum(1) > 0)[order]

    (y, colour), (other, others) = told(0), told(1)
    assert (y != other).double().mean() == pytest.approx(0.375, abs=0.03)
    assert (colour != others).double().mean() > 0.3


def test_who_writes_into_a_pool_does_not_change_the_next():
    for source in (rotated, colored):
        source().x.zero_()
    assert mnist5k().x.max() == 1


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize(
    "make, says",
    [
        (
            lambda: rotated([0]),
            "rotated: angles = [0]; give two or more numbers from 0",
        ),
        (lambda: rotated([]), "rotated: angles = []; give two or more numbers"),
        (lambda: rotated(45), "angles = 45; give two or more numbers"),
        (lambda: rotated("045"), "angles = '045'; give two or more numbers"),
        (lambda: rotated([0, "45"]), "angles = [0, '45']; give two or more numbers"),
        (lambda: rotated([0, True]), "angles = [0, True]; give two or more numbers"),
        (
            lambda: rotated([0, 360]),
            "from 0 to 359, one for each domain, as in angles=",
        ),
        (lambda: rotated([-15, 0]), "angles = [-15, 0]; give two or more numbers"),
        (lambda: rotated([0, float("nan")]), "angles = [0, nan]; give two or more"),
        (lambda: rotated([15, 15.0]), "angles = [15, 15.0]; two domains are the same"),
        (lambda: rotated([15, 15 + 1e-9]), "two domains are the same, give each its"),
        (lambda: rotated(pool=3), "pool = 3: give a whole number that divides 28"),
        (lambda: rotated(draw=-1), "draw = -1: give a whole number >= 0"),
        (lambda: rotated(draw=None), "draw = None: give a whole number >= 0"),
        (lambda: colored([0.1]), "colored: flips = [0.1]; give two or more numbers"),
        (lambda: colored([0.1, 1.2]), "from 0 to 1, one for each domain, as in flips="),
        (lambda: colored([0.1, 0.1]), "flips = [0.1, 0.1]; two domains are the same"),
        (lambda: colored([0.1, None]), "flips = [0.1, None]; give two or more"),
        (lambda: colored(pool=0), "pool = 0: give a whole number"),
        (lambda: colored(draw=0.5), "draw = 0.5: give a whole number >= 0"),
    ],
)
def test_nonsense_is_refused(make, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        make()
