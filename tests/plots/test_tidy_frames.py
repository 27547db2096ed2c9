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
# many clients at either end, as after few rounds
ACC = RNG.choice([0.0, 40, 70, 100], 240, p=[0.3, 0.1, 0.1, 0.5])
CLIENTS = pd.DataFrame({"method": np.repeat(METHODS, 60), "acc": ACC})
RUNS = pd.MultiIndex.from_product(
    [METHODS, range(5), range(30)], names=["method", "seed", "round"]
).to_frame(index=False)
RUNS["acc"] = 50 + RUNS["method"].map(METHODS.index) + RNG.normal(size=len(RUNS))


@pytest.fixture(autouse=True)
def clean():
    plots.use()
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def curves(ax):
    look = plots.CURVE | plots.looks(METHODS)
    return sns.lineplot(RUNS, x="round", y="acc", ax=ax, **look)


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


def points(ax):
    mean = RUNS.groupby("method")[["round", "acc"]].mean()
    look = plots.looks(METHODS, lines=False)
    sns.scatterplot(mean, x="round", y="acc", ax=ax, legend=False, **look)


def test_the_dark_theme_knows_every_colour():
    for draw in (curves, violins, densities, points):
        fig, ax = plt.subplots()
        draw(ax)
        assert plots.strangers(plots.svg(fig, "t", "a")) == [], draw


def test_methods_look_as_in_every_other_figure(ax):
    curves(ax)
    handles, names = ax.get_legend_handles_labels()
    for h, m in zip(handles, names):
        assert h.get_color() == plots.colour(m)
        assert h.get_linewidth() == plots.look(m).width
        assert (h.get_linestyle() == "-") == (plots.look(m).dash == "-")
    assert set(names) == set(METHODS)
    plots.name_ends(ax, RUNS, "acc", notes={"FedGA": "5.0"})  # instead of a legend
    assert ax.get_legend() is None
    at = {t.get_text(): t.xy for t in ax.texts}
    last = RUNS[RUNS["round"] == 29].groupby("method").acc.mean()
    assert at["FedGA  5.0"] == (29, pytest.approx(last["FedGA"]))
    assert at["FedAvg"] == (29, pytest.approx(last["FedAvg"]))


def test_the_interval_is_students(ax):
    values = [1.0, 2.0, 4.0, 5.0, 9.0]
    want = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert plots.t95(values) == pytest.approx(want)
    assert plots.t95([1.0, 3.0]) == (1, 3)  # two seeds: their range
    assert plots.t95([2.0]) == (2, 2)
    sns.barplot(x=values, errorbar=plots.CURVE["errorbar"], ax=ax)
    assert ax.lines[0].get_xdata() == pytest.approx(want)


def test_a_density_is_that_of_the_mirrored_kernel():
    """Compared with fedlib.measures, which mirrors within its own sum."""
    for values in (CLIENTS.acc.to_numpy(), np.full(20, 100.0), [0.0, 3, 97, 100]):
        both, ax = plots.mirror(pd.DataFrame({"acc": values}), "acc"), plt.subplots()[1]
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


def test_smoothing_is_at_most_a_fifth_and_the_axis_says_it(ax):
    data = pd.concat([RUNS.assign(round=RUNS["round"] + 30 * i) for i in range(7)])
    one = lambda d: d.query("method == 'FedGA' and seed == 2").acc
    for rounds, asked, used in ((30, 10, 6), (30, 4, 4), (200, 10, 10), (4, 10, 1)):
        some = data[data["round"] < rounds]
        out, words = plots.smooth(some, "acc", window=asked)
        assert (str(used) in words) == (used > 1)
        assert np.array_equal(one(out), statistics.smooth(one(some), used))
    for evaluations, used in ((60, 10), (20, 4)):  # curves of arrays, no wider
        ax, v = plt.subplots()[1], RNG.normal(size=(3, evaluations))
        plots.curves_with_interval(range(evaluations), {"FedGA": v}, ax, window=10)
        want = statistics.smooth(v, used).mean(0)
        assert np.allclose(ax.lines[0].get_ydata(), want)
