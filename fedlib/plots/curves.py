"""Charts over rounds: curves with intervals, and the client x round heat map.

Letters: C clients, R rounds, E evaluated rounds, S seeds, M clients of a cohort.
Accuracies are drawn in the unit they come in.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from scipy.special import stdtrit

from ..measures.statistics import smooth
from .labels import check, label_ends
from .theme import DASHES, HEAT, MARKERS, SIDES, STRONG, colour, style


# ---------------------------------------------------------------- numbers to draw
def band(values):
    """Mean and half-width [...] over the seeds of values [S, ...]: Student's t at 95 %
    from three seeds on; two seeds are drawn as their range, one as a line.
    """
    v, n = np.asarray(values, float), len(values)
    if n < 3:
        return v.mean(0), (v.max(0) - v.min(0)) / 2
    return v.mean(0), stdtrit(n - 1, 0.975) * v.std(0, ddof=1) / np.sqrt(n)


def by_client(cohort, values, C: int) -> np.ndarray:
    """Values [R, M] of the cohorts [R, M] as a matrix [C, R]; nan where a client was
    absent. A client below 0 is nobody.
    """
    cohort, values = np.asarray(cohort, int), np.asarray(values, float)
    out = np.full((C, len(cohort)), np.nan)
    there = cohort >= 0
    out[cohort[there], there.nonzero()[0]] = values[there]
    return out


# ---------------------------------------------------------------- curves
def capped(window: int, evaluations: int) -> int:
    """A smoothing window in evaluations, at most a fifth of them: a wider one shows
    itself rather than the run.
    """
    return max(1, min(window, evaluations // 5))


def over_rounds(window: int) -> str:
    """The name of an axis of rounds, with the smoothing of the curves above it."""
    return "round" if window == 1 else f"round (mean of {window} evaluations)"


def curves_with_interval(rounds, curves: dict, ax, *, window=1):
    """Mean over seeds of curves {method: [S, E] or [E]} against rounds [E], or {method:
    [E]}, with its interval as a band (see `band`), and names at the lines' ends.

    window: centred moving average over that many evaluations, at most a fifth of all,
    before the interval is taken; the x axis says so.
    """
    curves, ends = check("curves_with_interval", curves), {}
    rounds = rounds if isinstance(rounds, dict) else dict.fromkeys(curves, rounds)
    window = capped(window, min(map(len, rounds.values())))
    for i, (m, v) in enumerate(curves.items()):
        mean, half = band(smooth(np.atleast_2d(v), window))
        step = max(1, len(mean) // 7)  # evaluations from marker to marker
        start = (i * step) // len(curves)  # so that markers of two curves do not meet
        ax.plot(rounds[m], mean, markevery=(start, step), **style(m))
        if half.any():
            edges = mean - half, mean + half
            ax.fill_between(rounds[m], *edges, color=colour(m), alpha=0.16, linewidth=0)
        ends[m] = rounds[m][-1], mean[-1]
    ax.set_xlabel(over_rounds(window))
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=True))
    ax.margins(x=0.01)
    label_ends(ax, ends)
    return ax


def series(x, values, ax, *, i=0, **more):
    """A line that belongs to no method, of values [E] or [S, E] over seeds, with its
    band; i chooses colour, dash and marker.
    """
    c, dash, mark = (some[i % len(some)] for some in (STRONG, DASHES, MARKERS))
    mean, half = band(np.atleast_2d(values))
    ax.plot(x, mean, color=c, ls=dash, marker=mark, ms=4, **more)
    ax.fill_between(x, mean - half, mean + half, color=c, alpha=0.16, linewidth=0)
    whole = np.array_equal(x, np.round(x))
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=whole))
    return ax


# ---------------------------------------------------------------- heat map
def microscope(
    rounds, values, ax, *, order=None, name="accuracy", centre=None, bounds=None
):
    """Client x round heat map of values [C, R]; nan (absent) stays blank; returns the
    image.

    order [C]: sort clients by it, largest on top (size, or final accuracy).  centre:
    middle of a two-sided scale.
    """
    rounds = np.asarray(rounds)
    v = check("microscope", {name: values}, len(rounds))[name]
    if order is not None:
        v = v[np.argsort(-np.asarray(order, float), kind="stable")]
    low, high = bounds or (np.nanmin(v), np.nanmax(v))
    if centre is not None:
        reach = max(high - centre, centre - low)
        low, high = centre - reach, centre + reach
    step = (rounds[-1] - rounds[0]) / max(1, len(rounds) - 1) or 1
    image = ax.imshow(
        np.ma.masked_invalid(v),
        aspect="auto",
        interpolation="none",
        vmin=low,
        vmax=high,
        cmap=HEAT if centre is None else SIDES,
        extent=(rounds[0] - step / 2, rounds[-1] + step / 2, len(v) + 0.5, 0.5),
    )
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="round", ylabel="client, in order" if order is not None else "client")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=True))
    bar = ax.get_figure().colorbar(image, ax=ax, pad=0.02, aspect=28)
    bar.set_label(name)
    bar.outline.set_visible(False)
    return image
