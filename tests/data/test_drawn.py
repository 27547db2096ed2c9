"""Drawn characters: the same image whatever else is asked for, steps by hand, styles
and domains that differ as described; and the small CLIP that learns from them.
"""

import math
import unicodedata
from functools import cache

import numpy as np
import pytest
import torch
from matplotlib.colors import hsv_to_rgb, rgb_to_hsv

from fedlib.data import glyphs as g
from fedlib.data.domainbed import LAYOUTS
from fedlib.data.domains import EVEN, PRESETS, camera, domains, frequencies, scene

ALL = tuple(g.STYLES)


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


def test_small_operations_by_hand():
    dot = torch.zeros(1, 1, 5, 5)
    dot[0, 0, 2, 2] = 1
    box = g.thicken(dot)
    assert box[0, 0, 1:4, 1:4].all() and box.sum() == 9
    assert torch.equal(g.thin(box), dot) and g.thin(dot).sum() == 0
    assert torch.allclose(g.blur(dot), box / 9)
    assert torch.equal(g.over(dot, 1 - dot, dot), torch.zeros_like(dot))
    hsv = np.random.default_rng(0).random((50, 3)).astype(np.float32)
    want = torch.from_numpy(hsv_to_rgb(hsv))
    assert torch.allclose(
        g.colour(*torch.from_numpy(hsv).T)[:, :, 0, 0], want, atol=1e-5
    )
    one, again, other = (g.Dice(*w).normal(3) for w in ((0, "a"), (0, "a"), (1, "a")))
    assert torch.equal(one, again) and not torch.equal(one, other)
    dice = g.Dice(0)
    v = dice.uniform(2, 5, 4000)
    assert 2 <= v.min() < 2.01 and 4.99 < v.max() <= 5
    assert float(dice.flip(0.3, 4000).mean()) == pytest.approx(0.3, abs=0.03)
    assert dice.whole(4, 4000).bincount().min() > 900
    assert float(dice.field(200, 1, 4, 16).std()) == pytest.approx(0.5, abs=0.15)


def test_the_atlas():
    letters = g.atlas(40, 16)
    assert len(set(letters.characters)) == 40 and letters.fonts.min() >= 8
    plain = letters.ink[:, 0].float() / 255
    gaps = (plain[:, None] - plain[None]).abs().mean((2, 3)) + torch.eye(40)
    assert gaps.min() > 0.01 and gaps[:10, :10].min() > 0.02, "no two look alike"
    for k in (0, 39):
        used = letters.ink[k].flatten(1).any(1)
        assert used[: letters.fonts[k]].all() and not used[letters.fonts[k] :].any()
    assert g.atlas(10, 16).characters == letters.characters[:10]
    rows, columns = (letters.ink[:, 0].amax(d) > 60 for d in (2, 1))
    extent = torch.maximum(rows.sum(1), columns.sum(1)).float() / 32
    assert (extent - 0.625).abs().max() < 0.15, "the longer side is 5/8"


def test_a_warp_turns_shrinks_and_moves():
    ink = g.atlas(4, 16).ink[:, 0][:, None].float() / 255
    area = lambda zoom: float(
        (g.warp(ink, g.Dice(0), 1.0, (zoom, zoom), 0.0) > 0.5).sum()
    )
    assert area(0.5) == pytest.approx(area(1.0) / 4, rel=0.3)
    centre = torch.arange(16.0)
    moves = []
    for shift in (0.0, 0.5):
        v = g.warp(ink.repeat(20, 1, 1, 1), g.Dice(0), 1.0, (0.7, 0.7), shift).sum(
            (1, 3)
        )
        moves.append(((centre * v).sum(1) / v.sum(1) - 7.5).abs().mean())
    assert moves[1] > 2 * moves[0]
    still = g.warp(ink, g.Dice(0), 0.0)
    assert torch.equal(still, g.warp(ink, g.Dice(9), 0.0)), "as printed, by no dice"
    small = torch.nn.functional.avg_pool2d(ink, 2)
    assert torch.corrcoef(torch.stack([still.flatten(), small.flatten()]))[0, 1] > 0.9
    spread = []
    for warp in (0, 0.5, 1):
        pool = g.glyphs(500, 5, "sketch", clutter=0, size=16, warp=warp)
        x = pool.x.flatten(1)
        mean = torch.stack([x[pool.y == k].mean(0) for k in range(5)])
        spread.append(
            float((x - mean[pool.y]).square().sum() / (x - x.mean(0)).square().sum())
        )
    assert spread[0] + 0.1 < spread[1] + 0.05 < spread[2]
    rim = g.at_the_rim(ink.repeat(20, 1, 1, 1), g.Dice(0))[:, 0]
    edge = rim.clone()
    edge[:, 4:12, 4:12] = 0
    assert rim.sum() > 0 and edge.sum() > 0.75 * rim.sum()


# A square of ink, clutter at the left, hues red and green: how each style shows them.
def shown(style, hue, clutter=0.0, **more):
    ink, other = torch.zeros(60, 1, 16, 16), torch.zeros(60, 1, 16, 16)
    ink[:, :, 5:11, 5:11], other[:, :, :, :3] = 1, clutter
    draw = style if callable(style) else g.STYLES[style]
    return draw(
        ink,
        other,
        torch.full((60,), hue),
        g.Dice(style if isinstance(style, str) else "c"),
        **more,
    )


def test_styles_show_ink_hue_and_clutter():
    for style in [*ALL, lambda *a, **k: camera(scene((0, "x"), 16), *a, **k)]:
        red, again, green = (shown(style, h) for h in (0.0, 0.0, 1 / 3))
        assert torch.equal(red, again) and red.shape == (60, 3, 16, 16)
        inside, outside = red[:, :, 5:11, 5:11], red[:, :, :, 13:]
        if style == "sketch":
            assert torch.equal(red, green), "no colour"
            edge = red[:, 0, 4:12, 4:12].mean() - outside.mean()
            assert edge < -0.1, "a pencil is darker than paper"
        else:
            change = (red - green)[:, :, 4:12, 4:12].mean((0, 2, 3))
            assert change[0] > 0.05 > -0.05 > change[1] and abs(change[2]) < 0.02, style
            far = (red - green)[:, :, :2, :2].abs().mean()
            assert far < change[0] / 3, style
            apart = (inside.mean((1, 2, 3)) - outside.mean((1, 2, 3))).abs()
            assert apart.mean() > 0.1, style
        near, far = (shown(style, 0.0, 1.0) - red).abs().split([7, 9], 3)
        assert near.mean() > 0.01 and far.mean() < near.mean() / 4, style
    dark = {s: float(shown(s, 0.0)[:, :, :, 13:].mean()) for s in ALL}
    assert max(dark, key=dark.get) == "sketch" and min(dark, key=dark.get) == "neon"
    assert dark["neon"] < 0.2 < 0.6 < dark["cartoon"]
    flat = {s: float(shown(s, 0.0)[:, :, 6:10, 6:10].std((2, 3)).mean()) for s in ALL}
    assert flat["cartoon"] < 1e-6 < 0.01 < flat["photo"]
    line = shown("cartoon", 0.0)[:, :, 4, 6:10].mean((1, 2))
    assert float((line < 0.25).float().mean()) == pytest.approx(0.85, abs=0.12)
    plain, noisy = (shown("photo", 0.0, noise=v) for v in (0.0, 0.1))
    assert float((noisy - plain).std()) == pytest.approx(0.1, rel=0.05)
    below, above = g.paper_and_ink(torch.zeros(500), 0.3, g.Dice(1))
    value = lambda v: v.amax(1)[:, 0, 0]
    apart = (value(above) - value(below)).abs()
    assert apart.min() >= 0.1 and (apart >= 0.3 - 1e-6).float().mean() > 0.7
    assert value(below).min() >= 0.25 and value(above).max() <= 1


def test_clutter_and_hues_come_as_often_as_asked():
    same = {"styles": "cartoon", "classes": 4, "size": 16}
    none, some, all_ = (g.glyphs(400, clutter=c, **same).x for c in (0.0, 0.5, 1.0))
    seen = [(x != none).flatten(1).any(1).float().mean() for x in (some, all_)]
    assert seen[1] > 0.85 and float(seen[0] / seen[1]) == pytest.approx(0.5, abs=0.08)
    tables = [g.hue_table(s, 10, 0) for s in ALL]
    want = [k / 10 for k in range(10)]
    assert all(sorted(t.tolist()) == pytest.approx(want) for t in tables)
    assert len({tuple(t.tolist()) for t in tables}) == 6
    for spurious in (0.0, 0.35, 1.0):
        pool = g.glyphs(500, 10, "neon", size=32, clutter=0, spurious=spurious)
        near = share_of_hue(pool.x, pool.y, g.hue_table("neon", 10, 0))
        assert near == pytest.approx(spurious + (1 - spurious) * 0.1, abs=0.08)


def share_of_hue(x, y, table):
    """How often a neon tube has the hue of its class, to within a twentieth."""
    bright = x.amax(1, keepdim=True) ** 6
    mean = (bright * x).sum((2, 3))
    hue = torch.from_numpy(rgb_to_hsv((mean / mean.amax(1, keepdim=True)).numpy()))[
        :, 0
    ]
    return float(((hue - table[y] + 0.5) % 1 - 0.5).abs().lt(0.05).float().mean())


# ---------------------------------------------------------------- domains
def test_presets_are_the_data_sets_they_stand_for():
    told = {name: (p.classes, tuple(p.domains)) for name, p in PRESETS.items()}
    assert told == {k: (min(v.K, 100), tuple(v.images)) for k, v in LAYOUTS.items()}
    for name, p in PRESETS.items():
        styles = {d.style for d in p.domains.values()}
        one = {"VLCS": {"photo"}, "TerraIncognita": {"camera"}, "DomainNet": {*ALL}}
        assert styles == one.get(name, styles) and len(p.domains) == len(p.domains)
    pacs, terra = domains("PACS", 4, 16), domains("TerraIncognita", 4, 16)
    assert terra.classes[0] == "empty" and len(terra.classes) == terra.K == 10
    shown_ = [
        unicodedata.lookup(c.upper()) for c in (*pacs.classes, *terra.classes[1:])
    ]
    assert shown_ == [*g.atlas(7).characters, *g.atlas(9).characters]
    assert float(colourful(of(domains("PACS", 9, 16), "sketch")[0]).max()) == 0


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


# ---------------------------------------------------------------- the small CLIP
def test_words_and_captions_of_the_stand_in():
    from fedlib.data import standin as s

    words = s.vocabulary()
    assert len(set(words)) == len(words) and s.name_of("A") == "latin capital letter a"
    told = {w for c in g.ALPHABET for w in s.words_in(s.name_of(c))}
    assert told <= set(words) and {"photo", "neon", ".", "x", "empty"} <= set(words)
    forms, other = s.captions(0), s.captions(1)
    assert forms == s.captions(0) and forms != other and forms[:9] == other[:9]
    assert all(f.count("{}") == 1 for f in forms) and len(forms) == 25
    assert sum(s.SEEN.values()) == pytest.approx(1) and set(s.SEEN) == set(ALL)
    with pytest.raises(ValueError, match="images"):
        s.train(s.Recipe(100, 1))


@pytest.mark.nightly
def test_the_stand_in_learns_what_it_sees(tmp_path):
    """The same bits twice; centred on its corpus; better than chance after little."""
    from fedlib.data import standin as s
    from fedlib.nets.towers import load

    recipe = s.Recipe(1024, 6, classes=10, fresh=100)
    one, two = s.train(recipe), s.train(recipe)
    assert all(torch.equal(v, two.w[k]) for k, v in one.w.items())
    assert sum(one.zero_shot.values()) / 6 > 0.13 and set(one.zero_shot) == set(ALL)
    s.main([str(tmp_path / "f.pt"), "--tier", "tiny"])
    back = load(str(tmp_path / "f.pt"))
    assert back.recipe["images"] == s.TIERS["tiny"].images and math.isfinite(
        back.logit_scale
    )
