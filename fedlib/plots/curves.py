"""Charts over rounds: curves with intervals, and the client x round heat map.

Letters: C clients, R rounds, E evaluated rounds, S seeds, M clients of a cohort.
Accuracies are drawn in the unit they come in.
"""

import matplotlib as mpl
import numpy as np
from scipy.special import stdtrit

from .theme import DASHES, HEAT, MARKERS, STRONG


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
    """Values [R, M] of cohorts [R, M] as [C, R]; nan: absent; below 0: nobody."""
    cohort, values = np.asarray(cohort, int), np.asarray(values, float)
    out = np.full((C, len(cohort)), np.nan)
    there = cohort >= 0
    out[cohort[there], there.nonzero()[0]] = values[there]
    return out


# ---------------------------------------------------------------- curves


def series(x, values, ax, *, i=0, **more):
    """A line of no method, values [E] or [S, E], its band; i: colour, dash, marker."""
    c, dash, mark = (some[i % len(some)] for some in (STRONG, DASHES, MARKERS))
    mean, half = band(np.atleast_2d(values))
    ax.plot(x, mean, color=c, ls=dash, marker=mark, ms=4, **more)
    if half.any():
        ax.fill_between(x, mean - half, mean + half, color=c, alpha=0.16, linewidth=0)
    whole = np.array_equal(x, np.round(x))
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=whole))
    return ax


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
