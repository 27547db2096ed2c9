"""Frames drawn with seaborn: the looks of methods, and the traps of seaborn."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from scipy import stats

from fedlib import plots
from fedlib.measures import statistics

METHODS = ["FedAvg", "q-FedAvg", "FedGini", "FedGA"]
RNG = np.random.default_rng(0)
CLIENTS = pd.DataFrame(
    {
        "method": np.repeat(METHODS, 60),
        # many clients at either end, as after few rounds
        "acc": RNG.choice([0.0, 40, 70, 100], 240, p=[0.3, 0.1, 0.1, 0.5]),
    }
)
RUNS = pd.DataFrame(
    [
        dict(method=m, seed=s, round=t, acc=50 + i + RNG.normal())
        for i, m in enumerate(METHODS)
        for s in range(5)
        for t in range(30)
    ]
)


@pytest.fixture(autouse=True)
def clean():
    plots.use()
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def curves(ax):
    return sns.lineplot(
        RUNS, x="round", y="acc", ax=ax, **plots.CURVE, **plots.looks(METHODS)
    )


def violins(ax):
    both = plots.mirror(CLIENTS, "acc")
    look = plots.VIOLIN | plots.colours(METHODS)
    sns.violinplot(both, x="acc", y="method", ax=ax, **look)
    ax.set_xlim(0, 100)
    plots.name_rows(ax, METHODS)


def densities(ax):
    both = plots.mirror(CLIENTS, "acc")
    look = dict(hue="method", hue_order=METHODS, common_norm=False, **plots.DENSITY)
    sns.kdeplot(both, x="acc", ax=ax, **look)
    plots.name_peaks(ax, METHODS)


def bars(ax):
    look = plots.BAR | plots.colours(METHODS)
    sns.barplot(RUNS, x="acc", y="method", ax=ax, **look)
    plots.name_rows(ax, METHODS)


def points(ax):
    mean = RUNS.groupby("method")[["round", "acc"]].mean()
    look = plots.looks(METHODS, lines=False)
    sns.scatterplot(mean, x="round", y="acc", ax=ax, legend=False, **look)


DRAWN = dict(
    curves=curves, violins=violins, densities=densities, bars=bars, points=points
)


@pytest.mark.parametrize("name", DRAWN)
def test_the_dark_theme_knows_every_colour(ax, name):
    DRAWN[name](ax)
    assert plots.strangers(plots.svg(ax.get_figure(), "t", "a")) == []


def test_methods_look_as_in_every_other_figure(ax):
    curves(ax)
    drawn = {line.get_label(): line for line in ax.lines if line.get_label() in METHODS}
    handles, names = ax.get_legend_handles_labels()
    for handle, m in zip(handles, names):
        assert handle.get_color() == plots.colour(m)
        assert handle.get_linewidth() == plots.look(m).width
    assert set(names) == set(METHODS) and not set(drawn) - set(METHODS)
    plain = [h.get_linestyle() == "-" for h in handles]
    assert plain == [plots.look(m).dash == "-" for m in names]


def test_the_interval_is_students(ax):
    values = [1.0, 2.0, 4.0, 5.0, 9.0]
    want = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert plots.t95(values) == pytest.approx(want)
    assert plots.t95([1.0, 3.0]) == (1, 3)  # two seeds: their range
    assert plots.t95([2.0]) == (2, 2)
    sns.barplot(x=values, errorbar=plots.CURVE["errorbar"], ax=ax)
    assert ax.lines[0].get_xdata() == pytest.approx(want)


@pytest.mark.parametrize(
    "values", [CLIENTS.acc.to_numpy(), np.full(20, 100.0), np.array([0.0, 3, 97, 100])]
)
def test_a_density_is_that_of_the_mirrored_kernel(ax, values):
    """Compared with fedlib.measures, which mirrors within its own sum."""
    both = plots.mirror(pd.DataFrame({"acc": values}), "acc")
    sns.kdeplot(both, x="acc", ax=ax, **plots.DENSITY)
    x, y = ax.lines[0].get_data()
    within = (x >= 0) & (x <= 100)
    want = statistics.kde(values, x[within])
    assert np.allclose(3 * y[within], want, rtol=0.02, atol=1e-5)


def test_names_stand_at_the_peaks_in_the_methods_looks(ax):
    densities(ax)
    assert {t.get_text() for t in ax.texts} == {plots.label(m) for m in METHODS}
    for line, m in zip(ax.lines[::-1], METHODS):
        assert line.get_color() == plots.colour(m)
        assert line.get_marker() == plots.look(m).marker
        x, y = line.get_data()
        want = statistics.kde(CLIENTS[CLIENTS.method == m].acc, x)
        assert np.allclose(3 * y, want, rtol=0.02, atol=1e-5)
        assert x.min() >= 0 and x.max() <= 100


def test_names_stand_at_the_ends_instead_of_a_legend(ax):
    curves(ax)
    plots.name_ends(ax, RUNS, "acc", notes={"FedGA": "5.0"})
    assert ax.get_legend() is None
    names = {t.get_text(): t.xy for t in ax.texts}
    last = RUNS[RUNS["round"] == 29].groupby("method").acc.mean()
    assert names["FedGA  5.0"] == (29, pytest.approx(last["FedGA"]))
    assert names["FedAvg"] == (29, pytest.approx(last["FedAvg"]))


@pytest.mark.parametrize(
    "rounds, asked, used", [(30, 10, 6), (30, 4, 4), (200, 10, 10), (4, 10, 1)]
)
def test_smoothing_is_at_most_a_fifth_and_the_axis_says_it(rounds, asked, used):
    data = pd.concat([RUNS.assign(round=RUNS["round"] + 30 * i) for i in range(7)])
    data = data[data["round"] < rounds]
    out, words = plots.smooth(data, "acc", window=asked)
    assert words == ("round" if used == 1 else f"round (mean of {used} evaluations)")
    one = lambda d: d.query("method == 'FedGA' and seed == 2").acc
    assert np.array_equal(one(out), statistics.smooth(one(data), used))


@pytest.mark.parametrize("evaluations, words", [(60, "mean of 10"), (20, "mean of 4")])
def test_curves_of_arrays_are_smoothed_no_wider(ax, evaluations, words):
    v = RNG.normal(size=(3, evaluations))
    plots.curves_with_interval(range(evaluations), {"FedGA": v}, ax, window=10)
    assert words in ax.get_xlabel()
    window = int(words.split()[-1])
    want = statistics.smooth(v, window).mean(0)
    assert np.allclose(ax.lines[0].get_ydata(), want)
