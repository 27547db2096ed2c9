"""Charts over rounds: curves with intervals, and the client x round heat map.

Letters: C clients, R rounds, E evaluated rounds, S seeds, M clients of a cohort.
Accuracies are drawn in the unit they come in.
"""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from scipy.special import stdtrit

from ..measures.statistics import smooth
from .labels import label_ends
from .theme import DASHES, HEAT, MARKERS, STRONG, style


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
    rounds = rounds if isinstance(rounds, dict) else dict.fromkeys(curves, rounds)
    window, ends = capped(window, min(map(len, rounds.values()))), {}
    for i, (m, v) in enumerate(curves.items()):
        v = smooth(np.atleast_2d(v), window)
        step = max(1, v.shape[1] // 7)  # evaluations from marker to marker
        start = (i * step) // len(curves)  # so that markers of two curves do not meet
        _with_band(rounds[m], v, ax, markevery=(start, step), **style(m))
        ends[m] = rounds[m][-1], v[:, -1].mean()
    ax.set_xlabel(over_rounds(window))
    ax.margins(x=0.01)
    label_ends(ax, ends)
    return ax


def series(x, values, ax, *, i=0, **more):
    """A line that belongs to no method, of values [E] or [S, E] over seeds, with its
    band; i chooses colour, dash and marker.
    """
    c, dash, mark = (some[i % len(some)] for some in (STRONG, DASHES, MARKERS))
    _with_band(x, values, ax, color=c, ls=dash, marker=mark, ms=4, **more)
    return ax


def _with_band(x, values, ax, **look):
    mean, half = band(np.atleast_2d(values))
    ax.plot(x, mean, **look)
    if half.any():
        shade = dict(color=look["color"], alpha=0.16, linewidth=0)
        ax.fill_between(x, mean - half, mean + half, **shade)
    whole = np.array_equal(x, np.round(x))
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=whole))


# ---------------------------------------------------------------- heat map
def microscope(values, ax, *, order, name="accuracy"):
    """Client x round heat map of values [C, R]; nan (absent) stays blank; returns the
    image. order [C]: clients are sorted by it, largest on top (size, or accuracy).
    """
    C, R = values.shape
    v = values[np.argsort(-np.asarray(order, float), kind="stable")]
    shape = dict(aspect="auto", extent=(-0.5, R - 0.5, C + 0.5, 0.5))
    image = ax.imshow(v, cmap=HEAT, interpolation="none", **shape)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="round", ylabel="client, in order")
    ax.locator_params(integer=True)
    bar = ax.get_figure().colorbar(image, ax=ax, pad=0.02, aspect=28, label=name)
    bar.outline.set_visible(False)
    return image
