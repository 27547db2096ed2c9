"""Forests and landscapes: what stands where; no colour that a dark page misses."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from strange import strangers

from fedlib import plots
from fedlib.plots.theme import PALETTE

ROW = dict(effect=2.0, lo=1.0, hi=3.0, margin=0.5, printed=4.0, holds="yes")
NONE = dict.fromkeys(("effect", "lo", "hi", "margin", "printed"), "")
SAID = [
    dict(claim="it is better"),
    dict(claim="worse", effect=-2, lo=-3, hi=-1, printed="", holds="no"),
    dict(claim="like", effect=0.1, lo=-0.2, hi=0.4, holds="alike"),
    dict(claim="open", lo=-90, hi=94, holds="undecided"),
    NONE | dict(claim="at chance", holds="not testable"),
    NONE | dict(claim="to come", holds="not run"),
]
ROWS = pd.DataFrame([ROW | said for said in SAID])


@pytest.fixture
def ax():
    plots.use()
    yield plt.subplots()[1]
    plt.close("all")


def marks(ax, y):
    """Lines of a row: [(x, marker)]."""
    of = [line for line in ax.lines if set(line.get_ydata()) == {y}]
    return [(list(line.get_xdata()), line.get_marker()) for line in of]


def test_a_forest_shows_effects_intervals_margins_and_the_papers_gains(ax):
    plots.forest(ax, ROWS)
    drawn = marks(ax, 0)
    assert ([2], "o") in drawn and any(x == [1, 3] for x, _ in drawn)
    assert {x[0] for x, m in drawn if m == "|"} == {1, 3}
    printed = [line for line in ax.lines if line.get_marker() == "D"]
    assert [line.get_xdata()[0] for line in printed] == [4, 4, 4]
    assert not marks(ax, 4) and not marks(ax, 5)  # neither has an effect
    bands = [(b.get_x(), b.get_x() + b.get_width()) for b in ax.patches]
    assert bands == [(-0.5, 0.5)] * 4
    words = {t.get_text(): t.get_color() for t in ax.texts}
    assert words == {k: PALETTE[m.colour][0] for k, m in plots.VERDICTS.items()}
    low, high = ax.get_xlim()  # the wide interval ends in arrows
    assert -12 < low < -3 and 4 < high < 12
    assert [m for x, m in marks(ax, 3) if m in "<>|"] == ["<", ">"]
    assert ax.get_ylim() == (5.5, -0.5)
    with pytest.raises(ValueError, match="better"):  # an effect outside its interval
        plots.forest(ax, ROWS.assign(lo=2.5))


def test_a_strange_colour_is_found():
    plots.use()
    line = lambda ax, c: ax.plot([0, 1], color=c)
    text = lambda ax, c: ax.text(0.5, 0.5, "a", color=c)
    patch = lambda ax, c: ax.fill_between([0, 1], [1, 2], color=c)
    strange, black = "#123456", "#000000"  # matplotlib does not write black
    for draw, c in ((line, strange), (text, strange), (text, black), (patch, black)):
        fig, ax = plt.subplots()
        draw(ax, c)
        assert strangers(plots.svg(fig, "t", "a")) == [c]
    fig, ax = plt.subplots()
    for i, (light, _) in enumerate(plots.PALETTE.values()):
        ax.plot([i], [i], "o", color=light)
    ax.contourf(np.add.outer(range(9), range(9)), cmap=plots.HEAT)
    assert strangers(plots.svg(fig, "t", "a")) == []
    plt.close("all")


def paraboloid(x0=0.0, y0=0.0, scale=1.0, base=0.0, p=21):
    """[y, x]: base + scale ((x - x0)^2 + 4 (y - y0)^2)."""
    x = np.linspace(-1, 1, p)
    return base + scale * ((x - x0) ** 2 + 4 * (x[:, None] - y0) ** 2)


def test_what_is_drawn_is_the_rise_above_the_model_at_most_the_clip():
    v = plots.above(paraboloid(scale=10, base=3), 5)
    assert v[10, 10] == 0 and v.max() == 5 and v[10, 11] == pytest.approx(0.1)
    assert plots.above(paraboloid(0.5)).min() == pytest.approx(-0.25)
    with pytest.raises(ValueError, match="shape"):
        plots.above(np.zeros((4, 4)))
    assert plots.ladder(4.9).tolist() == [0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
    assert plots.ladder(5.1).tolist() == [0, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]


def test_all_panels_share_levels_colours_and_limits(ax):
    fig, axes = plt.subplots(2, 2)
    z = {"FedAvg": paraboloid(), "FedGA": paraboloid(0.4, base=7)}
    z |= {"a": paraboloid(scale=0.1), "b": paraboloid(scale=9)}
    levels = plots.landscapes(z, axes, radius=0.5, clip=4, notes={"FedGA": "loss 7"})
    assert levels.tolist() == [0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 4]
    filled = [next(c for c in a.collections if c.filled) for a in axes.flat]
    assert all(c.norm is filled[0].norm for c in filled)
    assert all(c.levels.tolist() == levels.tolist() for c in filled)
    limits = {(a.get_xlim(), a.get_ylim()) for a in axes.flat}
    assert limits == {((-0.5, 0.5), (-0.5, 0.5))}
    titles = [a.get_title("left") for a in axes.flat]
    assert titles == ["FedAvg", "FedGA\nloss 7", "a", "b"]
    assert filled[0].extend == "min"  # FedGA has places below its model
    plots.landscapes({"a": paraboloid()}, ax)  # the flat direction is x
    lines = next(c for c in ax.collections if not c.filled)
    ring = lines.get_paths()[2].get_extents()
    assert ring.width == pytest.approx(2 * ring.height, rel=0.1)
