"""The figure style: palette, one look per method, saving, standard plots."""

import json
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedlib import plots
from fedlib.methods import METHODS

FIELDS = dict(
    title="Fair methods end higher",
    alt="Two rising curves.",
    data="Synthetic(1, 1), synthetic",
    tier="tiny",
    seeds=[1, 2, 3],
    notebook="notebooks/fedga/synthetic.ipynb",
    stage="fedga@synthetic",
)
# Machado, Oliveira, Fernandes 2009, severity 1: what a colour looks like to someone
# without one kind of cone


@pytest.fixture(autouse=True)
def clean():
    plots.use()
    yield
    plt.close("all")


@pytest.fixture
def ax():
    return plt.subplots()[1]


# colours and looks


def test_every_method_has_a_look_and_at_most_six_are_strong():
    assert all(isinstance(plots.look(m), plots.Style) for m in METHODS)
    strong = {s.colour for s in plots.METHOD_STYLE.values() if s.colour.startswith("c")}
    assert strong == {f"c{i}" for i in range(1, 7)}
    widest = max(s.width for s in plots.METHOD_STYLE.values())
    of_chapters = [m for m, s in plots.METHOD_STYLE.items() if s.width == widest]
    assert of_chapters == ["FedGA", "FedAS", "PLGU-LF", "EquFL", "FFT-GP"]


# saving


def drawing():
    fig, ax = plt.subplots()
    rounds = np.arange(0, 50, 5)
    plots.curves_with_interval(
        rounds,
        {
            "FedAvg": np.outer([1, 1.1, 0.9], rounds),
            "FedGA": np.outer([1, 2, 3], rounds),
        },
        ax,
    )
    return fig


def test_the_same_drawing_gives_the_same_bytes(tmp_path):
    first = plots.save(drawing(), "a", **FIELDS, folder=tmp_path / "1")
    with plt.rc_context({"svg.hashsalt": "another", "svg.fonttype": "path"}):
        second = plots.save(drawing(), "a", **FIELDS, folder=tmp_path / "2")
    for end in (".svg", ".json"):
        assert (
            first.path.with_suffix(end).read_bytes()
            == second.path.with_suffix(end).read_bytes()
        )
    text = first.path.read_text()
    assert "metadata" not in text and "Matplotlib" not in text and "<!--" not in text
    assert ">FedGA</text>" in text and "<desc>Two rising curves.</desc>" in text


def test_the_json_holds_what_the_book_prints(tmp_path):
    saved = plots.save(drawing(), "a", **FIELDS, folder=tmp_path)
    meta = json.loads((tmp_path / "a.json").read_text())
    assert (
        meta
        == saved.meta
        == {"name": "a", **FIELDS, "seeds": "1–3", "width": 4.8, "height": 3.0}
    )
    assert not plt.get_fignums()  # closed


@pytest.mark.parametrize(
    "seeds, tier, words",
    [
        ("5", "small", "toy · tier small · 5 seeds"),
        ("1", "tiny", "toy · tier tiny · one seed"),
        ("1–3", "paper", "toy · tier paper · seeds 1–3"),
        ("seed 4", "tiny", "toy · tier tiny · seed 4"),
        ("none", "exact", "toy · drawn from a formula · no seeds"),
        ("none", "measured", "toy · times of one machine · no seeds"),
    ],
)
def test_the_line_below_a_figure(seeds, tier, words):
    assert plots.origin({"data": "toy", "seeds": seeds, "tier": tier}) == words


def test_a_relative_folder_counts_from_the_repository(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    assert (
        plots.save(drawing(), "a", **FIELDS).path == tmp_path / "results/figures/a.svg"
    )


def test_inline_follows_the_theme_and_repeats_no_id(tmp_path):
    text = plots.save(drawing(), "a", **FIELDS, folder=tmp_path).path.read_text()
    one, two = (plots.inline(text, p, 'say "no" & go') for p in ("x", "y"))
    ids = re.findall(r' id="([^"]+)"', one + two)
    assert ids and len(ids) == len(set(ids))
    assert {i.split("-")[0] for i in ids} == {"x", "y"}
    for used in re.findall(r'(?:url\(#|href="#)([^")]+)', one + two):
        assert used in ids
    assert (
        one.startswith("<svg")
        and 'aria-label="say &quot;no&quot; &amp; go"' in one
        and "<style" not in one
    )
    assert not re.search(r"<svg[^>]* (width|height)=", one)
    assert set(re.findall(r"#[0-9a-f]{6}", one)) == set(
        re.findall(r"var\(--fig-\w+, (#[0-9a-f]{6})\)", one)
    )


# standard plots

ACC = np.random.default_rng(0).uniform(20, 95, (3, 40))
SEVERAL = {
    m: np.clip(ACC + 2 * i, 0, 100)
    for i, m in enumerate(["FedAvg", "FedFV", "FedGini", "FedGA_ablation", "FedGA"])
}
ROUNDS = np.arange(0, 100, 10)
CURVES = {m: v[:, :10] for m, v in SEVERAL.items()}
DRAWN = {
    "curves": lambda ax: plots.curves_with_interval(ROUNDS, CURVES, ax),
    "gini": lambda ax: plots.gini_curves(ROUNDS, CURVES, ax),
    "violins": lambda ax: plots.violins(SEVERAL, ax),
    "densities": lambda ax: plots.densities(SEVERAL, ax),
    "bars": lambda ax: plots.bars_with_error(
        {m: v.mean(1) for m, v in SEVERAL.items()}, ax, reported={"FedGA": 50}
    ),
    "scatter": lambda ax: plots.scatter_labelled(
        {m: (v.mean(), v.std()) for m, v in SEVERAL.items()}, ax
    ),
    "ranks": lambda ax: plots.critical_difference(
        {m: i + 1.0 for i, m in enumerate(SEVERAL)}, 1.5, ax
    ),
    "vectors": lambda ax: plots.vectors(
        {"client 1": (1, 0.2), "client 2": (-0.5, 1), "FedAvg": (0.25, 0.6)}, ax
    ),
    "radar": lambda ax: plots.radar(
        {m: [0.2, 0.5, 1] for m in SEVERAL}, ["mean", "std", "Gini"], ax
    ),
}


@pytest.mark.parametrize("name", DRAWN)
def test_standard_plots_use_colours_the_theme_can_swap_and_name_each_method(
    tmp_path, name
):
    fig, ax = plt.subplots(
        subplot_kw={"projection": "polar"} if name == "radar" else {}
    )
    DRAWN[name](ax)
    text = plots.save(fig, "a", **FIELDS, folder=tmp_path).path.read_text()
    assert set(re.findall(r"#[0-9a-f]{6}\b", text)) <= {
        light for light, _ in plots.PALETTE.values()
    }
    for m in ["client 1", "client 2", "FedAvg"] if name == "vectors" else SEVERAL:
        assert re.search(
            rf">{re.escape(plots.label(m))}(?: |<)", text.replace("&#160;", " ")
        ), m


def test_curves_show_the_mean_and_its_interval(ax):
    values = np.array([[1.0, 2, 6], [3, 4, 0], [2, 3, 3]])
    plots.curves_with_interval([0, 1, 2], {"FedGA": values}, ax)
    assert ax.lines[0].get_ydata().tolist() == [2, 3, 3]
    low, high = (
        f(ax.collections[0].get_paths()[0].vertices[:, 1]) for f in (np.min, np.max)
    )
    half = (
        stats.t.ppf(0.975, 2)
        * np.array([values[:, i].std(ddof=1) for i in range(3)])
        / np.sqrt(3)
    )
    assert low == pytest.approx(
        (values.mean(0) - half).min()
    ) and high == pytest.approx((values.mean(0) + half).max())


def test_two_seeds_are_drawn_as_their_range(ax):
    plots.curves_with_interval([0, 1], {"FedGA": [[1.0, 2], [3, 2]]}, ax)
    edge = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (edge.min(), edge.max()) == (1, 3)


def test_one_seed_has_no_band(ax):
    plots.curves_with_interval([0, 1], {"FedGA": [[1.0, 2.0]]}, ax)
    assert not ax.collections


def test_gini_curves_print_the_area_of_the_unsmoothed_mean(ax):
    plots.gini_curves([0, 10, 20], {"FedGA": [[0.4, 0.2, 0.2]]}, ax, window=3)
    assert [t.get_text() for t in ax.texts] == ["FedGA  5.0"]


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=12), st.floats(0.1, 20))
def test_spread_keeps_order_gap_and_middle(y, gap):
    out = plots.spread(y, gap)
    order = np.argsort(y, kind="stable")
    assert (np.diff(out[order]) >= gap - 1e-9).all()
    assert out.mean() == pytest.approx(np.mean(y), abs=1e-6)
    if len(y) == 1 or np.diff(np.sort(y)).min() >= gap:
        assert np.allclose(out, y)


def test_spread_stays_within_its_bounds():
    out = plots.spread([0, 0, 0, 50], 10, 5, 45)
    assert out.min() >= 5 and out.max() <= 45 and np.diff(out).min() >= 10


def test_violins_mark_median_and_worst_tenth(ax):
    plots.violins({"FedGA": np.arange(20.0)}, ax)
    drawn = [line.get_xdata() for line in ax.lines]
    assert [9.5, 9.5] in [list(x) for x in drawn] and [0.5] in [list(x) for x in drawn]


def test_bars_take_seeds_or_an_interval(ax):
    plots.bars_with_error(
        {"FedAvg": np.array([1.0, 2.0, 3.0]), "FedGA": (5, 4, 7)},
        ax,
        reported={"FedGA": 6},
    )
    assert [b.get_width() for b in ax.patches] == [2, 5]
    spans = [list(line.get_xdata()) for line in ax.lines]
    half = stats.t.ppf(0.975, 2) / np.sqrt(3)
    assert (
        [4, 7] in spans
        and [6] in spans
        and any(np.allclose(s, [2 - half, 2 + half]) for s in spans if len(s) == 2)
    )


def test_microscope_sorts_clients_and_leaves_the_absent_blank(ax):
    values = plots.by_client([[0, 2], [1, 2]], [[0.1, 0.3], [0.2, 0.4]], 3)
    assert np.array_equal(
        values, [[0.1, np.nan], [np.nan, 0.2], [0.3, 0.4]], equal_nan=True
    )
    # largest on top: clients 1, 2, 0
    image = plots.microscope([1, 2], values, ax, order=[5, 9, 7])
    shown = image.get_array()
    assert shown.mask.tolist() == [[True, False], [False, False], [False, True]]
    assert shown[1].tolist() == [0.3, 0.4] and image.cmap(np.ma.masked)[3] == 0


def test_a_two_sided_scale_is_centred(ax):
    image = plots.microscope([1, 2], [[-1.0, 3.0]], ax, centre=0)
    assert image.get_clim() == (-3, 3)


def test_methods_closer_than_the_critical_difference_are_joined(ax):
    plots.critical_difference(
        {"FedGA": 1.0, "FedFV": 2.0, "FedGini": 2.5, "FedAvg": 4.0}, 1.2, ax
    )
    joined = [
        tuple(np.round(line.get_xdata(), 2))
        for line in ax.lines
        if line.get_linewidth() > 3
    ]
    assert joined == [(0.95, 2.05), (1.95, 2.55)]


def test_outside_better_turns_what_should_be_low():
    table = [[1, 10, 5], [3, 20, 5], [2, 40, 5]]
    assert np.allclose(
        plots.outside_better(table, [False, True, False]),
        [[0, 1, 1], [1, 2 / 3, 1], [0.5, 0, 1]],
    )


def test_views_to_turn_are_plain_json(tmp_path):
    z = np.array([[0.0, 1.23456], [2, 3]])
    surface = json.loads(
        plots.save_surface(
            "s", {"FedGA_ablation": z}, extent=(-2, 2), folder=tmp_path
        ).read_text()
    )
    assert surface == {
        "kind": "surface",
        "extent": [-2, 2],
        "axes": ["direction 1", "direction 2", "loss"],
        "z": {"FedGA ablated": [[0.0, 1.235], [2.0, 3.0]]},
    }
    cloud = json.loads(
        plots.save_cloud(
            "c", {"FedGA": (1, 2, 3)}, axes=("a", "b", "c"), folder=tmp_path
        ).read_text()
    )
    assert cloud["points"] == [{"name": "FedGA", "colour": "c2", "at": [1.0, 2.0, 3.0]}]


def test_a_cohort_that_is_not_full_leaves_the_others_alone():
    v = plots.by_client([[2, 0], [1, -1]], [[5.0, 6.0], [7.0, np.nan]], 3)
    assert np.array_equal(v, [[6, np.nan], [np.nan, 7], [5, np.nan]], equal_nan=True)
    assert plots.staleness([[2, 0], [1, -1], [2, -1]], 3).tolist() == [
        [0, 1, 2],
        [1, 0, 1],
        [0, 1, 0],
    ]


def test_a_series_shows_mean_and_band(ax):
    plots.series([1, 2, 3], [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]], ax, i=1, label="trace")
    (line,) = ax.lines
    assert (
        line.get_ydata().tolist() == [2, 3, 4]
        and line.get_label() == "trace"
        and len(ax.collections) == 1
    )
    plots.series([1, 2], [5.0, 6.0], ax)
    assert len(ax.lines) == 2 and len(ax.collections) == 1  # one seed has no band
