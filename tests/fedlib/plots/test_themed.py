"""No figure has a colour that a dark page does not know."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from where import ROOT

from fedlib import plots

FIGURES = sorted((ROOT / "results/figures").rglob("*.svg"))


@pytest.fixture
def ax():
    plots.use()
    yield plt.subplots()[1]
    plt.close("all")


def test_every_figure_follows_the_theme():
    if not FIGURES:
        pytest.skip("no figures yet; `make paper` draws them")
    odd = {p.stem: plots.strangers(p.read_text("utf-8")) for p in FIGURES}
    odd = {name: colours for name, colours in odd.items() if colours}
    assert not odd, f"colours that the dark theme does not know: {odd}"


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: ax.plot([0, 1], color="#123456"),
        lambda ax: ax.text(0.5, 0.5, "a", color="#123456"),
        lambda ax: ax.fill_between([0, 1], [1, 2], color="#123456"),
        lambda ax: ax.bar([1], [2], color="#ffffff", hatch="/", edgecolor="#123456"),
        lambda ax: ax.scatter([1], [2], color="#123456"),
    ],
)
def test_a_strange_colour_is_found(ax, draw):
    draw(ax)
    assert plots.strangers(plots.svg(ax.get_figure(), "t", "a")) == ["#123456"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: ax.text(0.5, 0.5, "a", color="black"),
        lambda ax: ax.fill_between([0, 1], [1, 2], color="black"),
        lambda ax: ax.bar([1], [2], yerr=[1], color=plots.INK),  # its whiskers
    ],
)
def test_black_is_found_where_matplotlib_does_not_write_it(ax, draw):
    draw(ax)
    assert plots.strangers(plots.svg(ax.get_figure(), "t", "a")) == ["#000000"]


def test_the_palette_and_the_scales_are_known(ax):
    for i, (light, _) in enumerate(plots.PALETTE.values()):
        ax.plot([i], [i], "o", color=light)
    ax.contourf(np.add.outer(range(9), range(9)), cmap=plots.HEAT)
    ax.contourf(np.add.outer(range(9), range(9)), cmap=plots.SIDES)
    ax.text(1, 1, "a", color=plots.LIGHT)
    ax.text(1, 2, "a", color=plots.DARK)
    ax.plot([0, 1], color="#123456", alpha=0)
    assert plots.strangers(plots.svg(ax.get_figure(), "t", "a")) == []
