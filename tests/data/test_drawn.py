"""Drawn characters: the same image whatever else is asked for, and domains that differ
as described.
"""

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from matplotlib.colors import rgb_to_hsv

from fedlib.data import glyphs as g
from fedlib.data.domains import EVEN, PRESETS, domains, frequencies, scene


@cache
def large(preset):
    return domains(preset, 500, 16)


def of(pool, owner):
    mine = pool.owner == pool.owners.index(owner)
    return pool.x[mine], pool.y[mine]


def colourful(x):
    return (x.amax(1) - x.amin(1)).mean((1, 2))


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


def share_of_hue(x, y, table):
    """How often a neon tube has the hue of its class, to within a twentieth."""
    bright = x.amax(1, keepdim=True) ** 6
    mean = (bright * x).sum((2, 3))
    hsv = rgb_to_hsv((mean / mean.amax(1, keepdim=True)).numpy())
    away = (torch.from_numpy(hsv)[:, 0] - table[y] + 0.5) % 1 - 0.5
    return float(away.abs().lt(0.05).float().mean())


def test_classes_are_as_frequent_as_drawn():
    for preset, c in (("VLCS", 2.0), ("TerraIncognita", 0.7)):
        K = PRESETS[preset].classes
        v = torch.stack([frequencies((s, preset, "x"), K, c) for s in range(400)])
        assert torch.allclose(v.sum(1), torch.ones(400)) and v.min() >= EVEN / K - 1e-6
        variance = (1 - EVEN) ** 2 * (K - 1) / K**2 / (K * c + 1)
        assert float(v.var(0).mean()) == pytest.approx(variance, rel=0.15)
    assert torch.equal(frequencies((0, "a"), 4, None), torch.full((4,), 0.25))
    pool = large("TerraIncognita")
    for owner in pool.owners:
        want = 500 * frequencies((0, "TerraIncognita", owner), 10, 0.7)
        got = of(pool, owner)[1].bincount(minlength=10)
        assert ((got - want).square() / want).sum() < 35, owner


def test_a_camera_stays_where_it_is_and_some_work_at_night():
    """The mean of a camera's empty pictures is its scene; half of two cameras' pictures
    are grey; where nothing is there the middle changes less.
    """
    pool, half = large("TerraIncognita"), lambda v: F.avg_pool2d(v, 2)
    at = lambda owner: half(scene((0, "TerraIncognita", owner), 32))[0].mean(0)
    scenes = {o: at(o).flatten() for o in pool.owners}
    for owner, d in PRESETS["TerraIncognita"].domains.items():
        x, y = of(pool, owner)
        empty = x[y == 0].mean((0, 1)).flatten()
        alike = lambda s, e=empty: float(torch.corrcoef(torch.stack([e, s]))[0, 1])
        fit = {o: alike(s) for o, s in scenes.items()}
        assert fit[owner] > 0.85 and max(fit, key=fit.get) == owner
        grey = float((colourful(x) == 0).float().mean())
        assert grey == pytest.approx(d.grey, abs=0.08), owner
        v = x.mean(1) / x.mean((1, 2, 3))[:, None, None]
        change = (v - v[y == 0].median(0).values)[:, 4:12, 4:12].square().mean((1, 2))
        assert change[y > 0].median() > 1.5 * change[y == 0].median(), owner
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


def test_a_hue_is_a_shortcut_inside_one_domain():
    pool, p = domains("DomainNet", [1, 1, 1, 500, 1, 1]), PRESETS["DomainNet"]
    x, y = of(pool, "quickdraw")
    share = lambda o: share_of_hue(x, y, g.hue_table(f"DomainNet {o}", 100, 0))
    mine = p.spurious + (1 - p.spurious) * 0.1
    assert share("quickdraw") == pytest.approx(mine, abs=0.06)
    assert share("sketch") == pytest.approx(0.1, abs=0.05)
