"""Landscapes: what stands where; no colour that a dark page misses."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from strange import strangers

from fedlib import plots


@pytest.fixture
def ax():
    plots.use()
    yield plt.subplots()[1]
    plt.close("all")


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
