"""Forest plots: effects, intervals, margins, and what the paper prints."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fedlib import plots
from fedlib.plots.theme import PALETTE

ROW = dict(effect=2.0, lo=1.0, hi=3.0, margin=0.5, printed=4.0, holds="yes")
NONE = dict(effect="", lo="", hi="", margin="", printed="")
ROWS = pd.DataFrame(
    [
        ROW | dict(claim="it is better"),
        ROW | dict(claim="worse", effect=-2, lo=-3, hi=-1, printed="", holds="no"),
        ROW | dict(claim="like", effect=0.1, lo=-0.2, hi=0.4, holds="alike"),
        ROW | dict(claim="open", lo=-90, hi=94, holds="undecided"),
        ROW | NONE | dict(claim="at chance", holds="not testable"),
        ROW | NONE | dict(claim="to come", holds="not run"),
    ]
)


@pytest.fixture
def ax():
    plots.use()
    yield plt.subplots()[1]
    plt.close("all")


def marks(ax, y):
    """Lines of a row: [(x, marker)]."""
    of = [line for line in ax.lines if set(line.get_ydata()) == {y}]
    return [(list(line.get_xdata()), line.get_marker()) for line in of]


def test_a_row_has_effect_interval_and_the_papers_gain(ax):
    plots.forest(ax, ROWS)
    drawn = marks(ax, 0)
    assert ([2], "o") in drawn and any(x == [1, 3] for x, _ in drawn)
    assert {x[0] for x, m in drawn if m == "|"} == {1, 3}
    printed = [line for line in ax.lines if line.get_marker() == "D"]
    assert sorted(line.get_xdata()[0] for line in printed) == [4, 4, 4]
    assert not marks(ax, 4) and not marks(ax, 5)  # neither has an effect


def test_the_band_is_the_margin_on_both_sides(ax):
    plots.forest(ax, ROWS)
    bands = [(b.get_x(), b.get_x() + b.get_width()) for b in ax.patches]
    assert bands == [(-0.5, 0.5)] * 4


def test_every_verdict_has_its_own_colour_or_word_and_shape(ax):
    plots.forest(ax, ROWS)
    words = {t.get_text(): t.get_color() for t in ax.texts}
    want = {k: PALETTE[m.colour][0] for k, m in plots.VERDICTS.items()}
    assert words == want and set(words) == set(ROWS.holds)
    drawn = [m for m in plots.VERDICTS.values() if m.marker]
    assert len({(m.marker, m.filled) for m in drawn}) == len(drawn)
    assert len({m.colour for m in drawn}) == len(drawn)


def test_a_wide_interval_ends_in_arrows_and_leaves_the_others_readable(ax):
    plots.forest(ax, ROWS)
    low, high = ax.get_xlim()
    assert -12 < low < -3 and 4 < high < 12
    assert [m for x, m in marks(ax, 3) if m in "<>|"] == ["<", ">"]
    assert all(low <= min(x) and max(x) <= high for x, _ in marks(ax, 3))


def test_the_first_row_is_on_top_and_the_theme_knows_every_colour(ax):
    plots.forest(ax, ROWS)
    assert ax.get_ylim() == (5.5, -0.5)
    assert [t.get_text() for t in ax.get_yticklabels()] == list(ROWS.claim)
    assert plots.strangers(plots.svg(ax.get_figure(), "t", "a")) == []


def test_the_axis_names_the_paper_only_where_it_prints_a_gain(ax):
    plots.forest(ax, ROWS.assign(printed=np.nan), unit="points of Gini")
    assert "the paper" not in ax.get_xlabel() and "of Gini" in ax.get_xlabel()


@pytest.mark.parametrize(
    "rows, words",
    [
        (ROWS[:0], "0 rows"),
        (ROWS.drop(columns="margin"), "margin"),
        (ROWS.assign(holds="perhaps"), "perhaps.*undecided"),
        (ROWS.assign(lo=2.5), "'it is better'.*outside"),
    ],
)
def test_bad_rows_say_which(ax, rows, words):
    with pytest.raises(ValueError, match=words):
        plots.forest(ax, rows)
