"""Tidy frames (fedlib.study.results) drawn with seaborn: the methods' looks, and what
seaborn gets wrong for a few seeds and for bounded accuracies.

    some, words = plots.smooth(scores(run), "mean_acc")
    sns.lineplot(some, x="round", y="mean_acc", **plots.CURVE, **plots.looks(M))
    ax.set_xlabel(words)
    plots.name_ends(ax, some, "mean_acc")

    both = plots.mirror(clients, "acc")
    sns.violinplot(both, x="acc", y="method", **plots.VIOLIN, **plots.colours(M))
    ax.set_xlim(0, 100)
    plots.name_rows(ax, M)
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from ..measures import statistics
from .curves import band
from .labels import label_ends
from .theme import INK, SOFT, colour, look

DASHES = {"-": "", "--": (4, 1.5), "-.": (3, 1.25, 1.5, 1.25), ":": (1, 1)}
ONE_RUN = ("dataset", "method", "setting", "seed", "moment", "view")


# ---------------------------------------------------------------- looks of the methods
def looks(methods: Iterable[str], lines: bool = True) -> dict[str, Any]:
    """Keywords for sns.lineplot, or with lines=False for sns.scatterplot: a column
    "method" has the colour, dash and marker of every other figure.
    """
    styles = {m: look(m) for m in methods}
    known = dict(hue_order=list(styles), palette={m: colour(m) for m in styles})
    words = dict(hue="method", style="method", **known)
    if not lines:
        return words | dict(markers={m: s.marker for m, s in styles.items()})
    # a dash as seaborn wants it: on, off, on, off, ... or "" for solid
    plain = lambda dash: DASHES[dash] if isinstance(dash, str) else dash[1]
    dashes = {m: plain(s.dash) for m, s in styles.items()}
    widths = {m: s.width for m, s in styles.items()}
    return words | dict(dashes=dashes, size="method", sizes=widths, markers=False)


def colours(methods: Iterable[str]) -> dict[str, Any]:
    """Keywords for sns.barplot, violinplot, boxplot, a row per method, none faded."""
    methods = list(methods)
    palette = {m: colour(m) for m in methods}
    order = dict(order=methods, hue="method", hue_order=methods, palette=palette)
    return order | dict(saturation=1, legend=False)


# ---------------------------------------------------------------- curves
def t95(values) -> tuple[float, float]:
    """errorbar= of the mean of values [S]: its t interval, for two their range."""
    mean, half = band(np.asarray(values, float))
    return float(mean - half), float(mean + half)


CURVE = dict(errorbar=t95, err_kws=dict(alpha=0.16, linewidth=0))  # for sns.lineplot
BAR = dict(  # for sns.barplot
    errorbar=t95, capsize=0.3, alpha=0.75, err_kws=dict(color=INK, linewidth=1.4)
)


def smooth(data: pd.DataFrame, *columns: str, window: int = 10):
    """The frame with columns smoothed along the rounds of each run (centred moving
    average), and the words for the x axis that say so.

    data: in the order of the rounds. window: evaluations, at most a fifth of them all:
    a wider one shows itself rather than the run.
    """
    runs = data.groupby([k for k in ONE_RUN if k in data], sort=False)
    window = max(1, min(window, int(runs.size().min()) // 5))
    moved = runs[list(columns)].transform(lambda v: statistics.smooth(v, window))
    words = f" (mean of {window} evaluations)" * (window > 1)
    return data.assign(**moved), "round" + words


def name_ends(ax, data: pd.DataFrame, y: str, x: str = "round", notes=None) -> None:
    """Names at the ends of lines for a legend; notes {method: text after its name}."""
    if ax.get_legend():
        ax.get_legend().remove()
    ax.margins(x=0.01)
    last = data[data[x] == data.groupby("method")[x].transform("max")]
    ends = last.groupby("method", sort=False)[[x, y]].mean()
    label_ends(ax, {m: tuple(at) for m, at in zip(ends.index, ends.values)}, notes)


# ---------------------------------------------------------------- bounded quantities
def mirror(data: pd.DataFrame, column: str, bounds=(0, 100)) -> pd.DataFrame:
    """The frame with its values mirrored at both bounds, for sns.violinplot and VIOLIN
    with the axis limited to them: seaborn cuts a density there, as if few clients piled
    up at 0 or 100 %. ValueError for values beyond.
    """
    v = data[column]
    if not v.between(*bounds).all():
        raise ValueError(f"mirror: {column} is not all within {bounds}")
    sides = [data.assign(**{column: 2 * end - v}) for end in bounds]
    return pd.concat([data, *sides], ignore_index=True)


def inside(kde) -> float:
    """bw_method= for mirrored values: Silverman's width of the real third of them, as
    the factor of the standard deviation of all that scipy's gaussian_kde wants.
    """
    v = kde.dataset[0, : kde.dataset.shape[1] // 3]
    return statistics.silverman(v) / kde.dataset.std(ddof=1)


# for sns.violinplot of mirrored values
VIOLIN = dict(bw_method=inside, cut=0, gridsize=301, inner=None, density_norm="width")
VIOLIN |= dict(alpha=0.4, linewidth=1, linecolor=SOFT)
