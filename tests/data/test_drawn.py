"""Drawn characters: the same image whatever else is asked for, and domains that differ
as described.
"""

from functools import cache

import pytest
import torch
from matplotlib.colors import rgb_to_hsv

from fedlib.data import glyphs as g
from fedlib.data.domains import EVEN, PRESETS, domains, frequencies, scene


@cache
def large(preset, n=500):
    return domains(preset, n, 16 if preset == "TerraIncognita" else 32)


def of(pool, owner):
    mine = pool.owner == pool.owners.index(owner)
    return pool.x[mine], pool.y[mine]


def colourful(x):
    return (x.amax(1) - x.amin(1)).mean((1, 2))


# ---------------------------------------------------------------- glyphs
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
    hue = torch.from_numpy(rgb_to_hsv((mean / mean.amax(1, keepdim=True)).numpy()))[
        :, 0
    ]
    return float(((hue - table[y] + 0.5) % 1 - 0.5).abs().lt(0.05).float().mean())


# ---------------------------------------------------------------- domains


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
    pool = large("TerraIncognita")
    at = lambda owner: scene((0, "TerraIncognita", owner), 32)
    scenes = {
        o: torch.nn.functional.avg_pool2d(at(o), 2)[0].mean(0).flatten()
        for o in pool.owners
    }
    for owner, d in PRESETS["TerraIncognita"].domains.items():
        x, y = of(pool, owner)
        empty = x[y == 0].mean((0, 1)).flatten()
        fit = {
            o: float(torch.corrcoef(torch.stack([empty, s]))[0, 1])
            for o, s in scenes.items()
        }
        assert fit[owner] > 0.85 and max(fit, key=fit.get) == owner
        grey = float((colourful(x) == 0).float().mean())
        assert grey == pytest.approx(d.grey, abs=0.08), owner
        v = x.mean(1) / x.mean((1, 2, 3))[:, None, None]
        change = (v - v[y == 0].median(0).values)[:, 4:12, 4:12].square().mean((1, 2))
        assert change[y > 0].median() > 1.5 * change[y == 0].median(), owner
    fine, coarse = (scene((0, "x"), size) for size in (64, 32))
    assert (torch.nn.functional.avg_pool2d(fine, 2) - coarse).abs().max() < 0.03
    few, drawn = (domains("TerraIncognita", [7, 1, 1, 1], size) for size in (16, 32))
    gaps = torch.nn.functional.avg_pool2d(drawn.x, 2) - few.x
    assert torch.equal(few.y, drawn.y) and gaps.abs().max() < 1 / 255 + 1e-6
    assert torch.equal(few.x[:7], pool.x[:7]) and few.owner.tolist() == [0] * 7 + [
        1,
        2,
        3,
    ]
    for more in ({"split": "test"}, {"seed": 1}):
        assert not torch.equal(
            domains("TerraIncognita", [7, 1, 1, 1], 16, **more).x, few.x
        )


def test_a_hue_is_a_shortcut_inside_one_domain():
    pool, p = domains("DomainNet", [1, 1, 1, 500, 1, 1]), PRESETS["DomainNet"]
    x, y = of(pool, "quickdraw")
    mine, other = (
        g.hue_table(f"DomainNet {o}", 100, 0) for o in ("quickdraw", "sketch")
    )
    share = p.spurious + (1 - p.spurious) * 0.1
    assert share_of_hue(x, y, mine) == pytest.approx(share, abs=0.06)
    assert share_of_hue(x, y, other) == pytest.approx(0.1, abs=0.05)
