"""The figure style: one look per method, saving, and what standard charts draw."""

import itertools
import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import seaborn as sns
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from strange import strangers

from fedlib import plots
from fedlib.measures import statistics
from fedlib.measures.statistics import average_ranks
from fedlib.methods import METHODS

FIELDS = dict(title="Fair methods end higher", alt="Two curves.", data="toy")
FIELDS |= dict(tier="tiny", seeds=[1, 2, 3])
FIELDS |= dict(notebook="a.ipynb", stage="fedga@tables")


@pytest.fixture(autouse=True)
def clean():
    plots.use()
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


def test_every_method_has_a_look():
    assert all(isinstance(plots.look(m), plots.Style) for m in METHODS)
    light = [a for a, _ in plots.PALETTE.values()]
    assert len({*light}) == len(light)  # else a theme could not swap them


def drawing():
    fig, ax = plt.subplots()
    for i, k in enumerate((2, 3)):
        plots.series(range(10), np.outer([1, k, 1], range(10)), ax, i=i)
    return fig


def test_the_same_drawing_gives_the_same_bytes(tmp_path):
    first = plots.save(drawing(), "a", **FIELDS, folder=tmp_path / "1")
    second = plots.save(drawing(), "a", **FIELDS, folder=tmp_path / "2")
    for end in (".svg", ".json"):
        a, b = (s.path.with_suffix(end).read_bytes() for s in (first, second))
        assert a == b
    assert first.meta == json.loads(first.path.with_suffix(".json").read_text())
    assert first.meta.items() >= (FIELDS | {"name": "a", "seeds": "seeds 1–3"}).items()
    size = first.meta["width"], first.meta["height"]
    assert size == pytest.approx(plots.RC["figure.figsize"], abs=0.3)
    words = {5: "5 seeds", "1": "one seed", "none": "no seeds"}
    words["0 only"] = "seeds 0 only"
    assert all(plots.files.in_words(s) == w for s, w in words.items())
    assert plots.files.in_words([4]) == "seed 4"
    assert not plt.get_fignums()  # closed
    for wrong in ({"tier": "huge"}, {"alt": " "}):
        with pytest.raises(ValueError):
            plots.save(drawing(), **{"name": "a"} | FIELDS | wrong, folder=tmp_path)
    one, two = (plots.inline(first.path.read_text(), p, "say") for p in ("x", "y"))
    ids = re.findall(r' id="([^"]+)"', one + two)
    assert ids and len(ids) == len({*ids})  # also with a second figure on the page
    assert {*re.findall(r'(?:url\(#|href="#)([^")]+)', one + two)} <= {*ids}
    swapped = re.findall(r"var\(--fig-\w+, (#[0-9a-f]{6})\)", one)
    assert {*re.findall(r"#[0-9a-f]{6}", one)} == {*swapped}


NAMES = ["FedAvg", "FedFV", "FedGini", "FedGA_ablation", "FedGA"]
ACC = np.random.default_rng(0).uniform(20, 95, (3, 40))
SEVERAL = {m: np.clip(ACC + 2 * i, 0, 100) for i, m in enumerate(NAMES)}
RANKS = pd.DataFrame(np.random.default_rng(1).normal(size=(6, 5)), columns=NAMES)
RNG = np.random.default_rng(0)
# many clients at either end, as after few rounds
ENDS = RNG.choice([0.0, 40, 70, 100], 300, p=[0.3, 0.1, 0.1, 0.5])
CLIENTS = pd.DataFrame({"method": np.repeat(NAMES, 60), "acc": ENDS})
GRID, COLUMNS = (NAMES, range(5), range(30)), ["method", "seed", "round"]
RUNS = pd.DataFrame(itertools.product(*GRID), columns=COLUMNS)
RUNS["acc"] = 50 + RUNS["method"].map(NAMES.index) + RNG.normal(size=len(RUNS))


def curves(ax):
    look = plots.CURVE | plots.looks(NAMES)
    return sns.lineplot(RUNS, x="round", y="acc", ax=ax, **look)


def violins(ax):
    both = plots.mirror(CLIENTS, "acc")
    look = plots.VIOLIN | plots.colours(NAMES)
    sns.violinplot(both, x="acc", y="method", ax=ax, **look)
    ax.set_xlim(0, 100)
    plots.name_rows(ax, NAMES)


DRAWN = {f.__name__ + " of frames": f for f in (curves, violins)} | {
    "violins": lambda ax: plots.violins(SEVERAL, ax),
    "ranks": lambda ax: plots.critical_difference(average_ranks(RANKS), ax),
}


def test_charts_use_colours_the_theme_can_swap_and_name_each_method():
    for name, draw in DRAWN.items():
        fig, ax = plt.subplots()
        draw(ax)
        text = plots.svg(fig, "t", "a").replace("&#160;", " ")
        assert strangers(text) == [], name
        for m in NAMES if "frames" not in name else ():
            named = rf">\s*{re.escape(plots.label(m))}(?: |<)"
            assert re.search(named, text), (name, m)
        plt.close(fig)


def test_curves_show_the_mean_and_its_interval():
    values = np.array([[1.0, 2, 6], [3, 4, 0], [2, 3, 3]])
    half = stats.t.ppf(0.975, 2) * values.std(0, ddof=1) / np.sqrt(3)
    for seeds, ends in ((3, None), (2, (0, 6)), (1, ())):  # two: their range; one: none
        ax = plt.subplots()[1]
        plots.series([0, 1, 2], values[:seeds], ax)
        want = values[:seeds].mean(0)
        assert ax.lines[0].get_ydata().tolist() == want.tolist()
        edges = [c.get_paths()[0].vertices[:, 1] for c in ax.collections]
        ends = ((want - half).min(), (want + half).max()) if seeds == 3 else ends
        drawn = [v for e in edges for v in (e.min(), e.max())]
        assert drawn == pytest.approx(ends), seeds


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.floats(0.1, 20))
def test_spread_keeps_order_gap_and_middle(y, gap):
    out = plots.spread(y, gap)
    order = np.argsort(y, kind="stable")
    assert (np.diff(out[order]) >= gap - 1e-9).all()
    assert out.mean() == pytest.approx(np.mean(y), abs=1e-6)
    if len(y) == 1 or np.diff(np.sort(y)).min() >= gap:
        assert np.allclose(out, y)
    within = plots.spread([0, 0, 0, 50], 10, 5, 45)
    assert within.min() >= 5 and within.max() <= 45 and np.diff(within).min() >= 10


def test_violins(ax):
    plots.violins({"FedGA": np.arange(20.0)}, ax)
    drawn = [list(line.get_xdata()) for line in ax.lines]
    assert [9.5, 9.5] in drawn and [0.5] in drawn  # median, mean of the worst tenth


def test_microscope_sorts_clients_and_leaves_the_absent_blank(ax):
    values = plots.by_client([[0, 2], [1, 2]], [[0.1, 0.3], [0.2, 0.4]], 3)
    want = [[0.1, np.nan], [np.nan, 0.2], [0.3, 0.4]]
    assert np.array_equal(values, want, equal_nan=True)
    image = plots.microscope(values, ax, order=[5, 9, 7])  # clients 1, 2, 0
    shown = image.get_array()
    assert shown.mask.tolist() == [[True, False], [False, False], [False, True]]
    assert shown[1].tolist() == [0.3, 0.4] and image.cmap(np.ma.masked)[3] == 0
    few = plots.by_client([[2, 0], [1, -1]], [[5.0, 6.0], [7.0, 9.0]], 3)
    want = [[6, np.nan], [np.nan, 7], [5, np.nan]]
    assert np.array_equal(few, want, equal_nan=True)


def test_ranks(ax):
    table = pd.DataFrame({"FedGA": [2, 1] * 6, "FedFV": [1, 2] * 6, "FedAvg": 0})
    plots.critical_difference(average_ranks(table), ax)  # FedAvg is last in all twelve
    (joined,) = (line for line in ax.lines if line.get_linewidth() > 3)
    assert {*joined.get_xdata()} == {1.5}


def test_views_to_turn_are_plain_json(tmp_path):
    z = {"FedGA_ablation": np.array([[0.0, 1.23456], [2, 3]])}
    path = plots.save_surface("s", z, extent=(-2, 2), axes="abc", folder=tmp_path)
    surface = json.loads(path.read_text())
    assert surface["z"] == {"FedGA ablated": [[0.0, 1.235], [2.0, 3.0]]}
    assert surface["extent"] == [-2, 2]
    at = {"FedGA": (1, 2, 3)}
    path = plots.save_cloud("c", at, axes=("a", "b", "c"), folder=tmp_path)
    point = {"name": "FedGA", "colour": "c2", "at": [1.0, 2.0, 3.0]}
    assert json.loads(path.read_text())["points"] == [point]


def test_what_cannot_be_drawn_is_refused(ax):
    holes = {"FedGA": [[np.nan, 1], [1, 1]]}
    with pytest.raises(ValueError):
        plots.series([0, 1], [[1.0, 2, 3]], ax)
    with pytest.raises(ValueError):
        plots.save_surface("s", holes, axes="abc")


def test_methods_look_as_in_every_other_figure(ax):
    curves(ax)
    handles, names = ax.get_legend_handles_labels()
    for h, m in zip(handles, names):
        assert h.get_color() == plots.colour(m)
        assert h.get_linewidth() == plots.look(m).width
        assert (h.get_linestyle() == "-") == (plots.look(m).dash == "-")
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
    sns.barplot(x=values, errorbar=plots.CURVE["errorbar"], ax=ax)
    assert ax.lines[0].get_xdata() == pytest.approx(want)


def test_names_stand_beside_their_points_and_apart(ax):
    at = {m: (0.5 + 0.001 * i, 0.5) for i, m in enumerate(NAMES)}
    line = np.stack([np.linspace(0.5, 1, 50), np.full(50, 0.5)], 1)
    plots.label_points(ax, at, names={"FedGA": "mine"}, avoid=[line])
    names = [t for t in ax.texts if t.get_text()]
    want = {plots.label(m) for m in NAMES[:-1]} | {"mine"}
    assert {t.get_text() for t in names} == want
    boxes, ink = [t.get_window_extent() for t in names], ax.transData.transform(line)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    assert not any(b.count_contains(ink) for b in boxes)


def test_violins_of_mirrored_values_are_densities_up_to_the_bounds(ax):
    violins(ax)
    for m, body in zip(NAMES, ax.collections):
        (x, y), row = body.get_paths()[0].vertices.T, NAMES.index(m)
        want = statistics.kde(CLIENTS[CLIENTS.method == m].acc, x)
        got, some = abs(y - row), (x > 0) & (x < 100)
        got, want = (v[some] / v.max() for v in (got, want))
        assert np.allclose(got, want, atol=0.03)


def test_smoothing_is_at_most_a_fifth_and_the_axis_says_it(ax):
    data = pd.concat([RUNS.assign(round=RUNS["round"] + 30 * i) for i in range(7)])
    one = lambda d: d.query("method == 'FedGA' and seed == 2").acc
    for rounds, asked, used in ((30, 10, 6), (30, 4, 4), (200, 10, 10), (4, 10, 1)):
        some = data[data["round"] < rounds]
        out, words = plots.smooth(some, "acc", window=asked)
        assert (str(used) in words) == (used > 1)
        assert np.array_equal(one(out), statistics.smooth(one(some), used))
