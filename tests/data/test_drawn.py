"""Drawn characters: the same image whatever else is asked for, and domains that differ
as described.
"""

from functools import cache

import pytest
import torch
import torch.nn.functional as F

from fedlib.data import glyphs as g
from fedlib.data.domains import EVEN, PRESETS, domains, frequencies, scene


@cache
def large():
    return domains("TerraIncognita", 500, 16)


def test_an_image_hangs_on_its_style_split_and_number_alone():
    few = g.glyphs(g.CHUNK + 5, 10, "cartoon", size=16)
    many = g.glyphs([3, g.CHUNK + 20], 10, ("sketch", "cartoon"), size=16)
    assert torch.equal(few.x, many.x[3 : g.CHUNK + 8])
    assert torch.equal(few.y, many.y[3 : g.CHUNK + 8])
    assert torch.equal(many.owner, torch.tensor([0] * 3 + [1] * (g.CHUNK + 20)))
    for more in ({"split": "test"}, {"seed": 1}, {"styles": "photo"}):
        other = g.glyphs(40, **{"styles": "cartoon", "size": 16} | more)
        both = torch.cat([few.x[:40], other.x]).flatten(1)
        assert len(both.unique(dim=0)) == 80, more
    assert len(few.x.flatten(1).unique(dim=0)) == len(few.x)
    pool = g.glyphs(103, 5, size=16)
    assert pool.owner.bincount().tolist() == [26, 26, 26, 25]
    assert pool.owners == ("photo", "cartoon", "painting", "sketch")
    levels = pool.x * 255  # as in an image file
    assert torch.allclose(levels, levels.round(), atol=1e-4)
    weaker = g.glyphs(103, 5, size=16, warp=0.3)
    assert torch.equal(weaker.y, pool.y) and not torch.equal(weaker.x, pool.x)
    n = g.glyphs(500, 4, "sketch", size=16).y.bincount()
    assert (n - 125).abs().max() < 40


def test_classes_are_as_frequent_as_drawn():
    for preset, c in (("VLCS", 2.0), ("TerraIncognita", 0.7)):
        K = PRESETS[preset].classes
        v = torch.stack([frequencies((s, preset, "x"), K, c) for s in range(400)])
        assert torch.allclose(v.sum(1), torch.ones(400)) and v.min() >= EVEN / K - 1e-6
        variance = (1 - EVEN) ** 2 * (K - 1) / K**2 / (K * c + 1)
        assert float(v.var(0).mean()) == pytest.approx(variance, rel=0.15)
    assert torch.equal(frequencies((0, "a"), 4, None), torch.full((4,), 0.25))
    pool = large()
    for owner in pool.owners:
        want = 500 * frequencies((0, "TerraIncognita", owner), 10, 0.7)
        mine = pool.owner == pool.owners.index(owner)
        got = pool.y[mine].bincount(minlength=10)
        assert ((got - want).square() / want).sum() < 35, owner


def test_a_domain_is_the_same_at_any_size_and_number():
    pool, half = large(), lambda v: F.avg_pool2d(v, 2)
    fine, coarse = (scene((0, "x"), size) for size in (64, 32))
    assert (half(fine) - coarse).abs().max() < 0.03
    drawn = lambda size, **k: domains("TerraIncognita", [7, 1, 1, 1], size, **k)
    few, double = drawn(16), drawn(32)
    gaps = half(double.x) - few.x
    assert torch.equal(few.y, double.y) and gaps.abs().max() < 1 / 255 + 1e-6
    assert torch.equal(few.x[:7], pool.x[:7])
    assert few.owner.tolist() == [0] * 7 + [1, 2, 3]
    for more in ({"split": "test"}, {"seed": 1}):
        assert not torch.equal(drawn(16, **more).x, few.x)
    for owner, d in PRESETS["TerraIncognita"].domains.items():  # those who see at night
        x = pool.x[pool.owner == pool.owners.index(owner)]
        grey = float((x.amax(1) == x.amin(1)).all((1, 2)).float().mean())
        assert grey == pytest.approx(d.grey, abs=0.08), owner
