"""Charts that set methods against each other: violins, ranks, arrows."""

import numpy as np

from ..measures.metrics import worst
from ..measures.statistics import Ranks, kde
from .labels import label_points, name_rows
from .theme import GRID, INK, PAPER, SOFT, SPARE, colour, label, look, text_colour


def violins(values: dict, ax):
    """Client accuracies {method: [C] or [S, C]}; bar: median, triangle: worst tenth."""
    grid = np.linspace(0, 100, 201)
    for y, (m, v) in enumerate(values.items()):
        density, c = kde(v, grid), colour(m)
        half = 0.42 * density / density.max()
        keep = half > 0.004
        x, low, high = grid[keep], y - half[keep], y + half[keep]
        ax.fill_between(x, low, high, color=c, alpha=0.32, linewidth=0)
        ax.plot(x, np.stack([high, low], 1), color=c, lw=1)
        bar = dict(color=INK, lw=2, solid_capstyle="butt", clip_on=False)
        ax.plot([np.median(v)] * 2, [y - 0.24, y + 0.24], **bar)
        mark = dict(marker=">", markersize=6, color=INK, markerfacecolor=PAPER)
        ax.plot(worst(v).mean(), y, ls="", clip_on=False, zorder=5, **mark)
    name_rows(ax, values)
    ax.set_xlim(0, 100)
    return ax


def critical_difference(ranks: Ranks, ax):
    """Average ranks on a line, 1 best; what is alike is joined (Demsar 2006)."""
    import scikit_posthocs  # here, since it takes a second to load

    names = {m: label(m) for m in ranks.ranks.index}
    scikit_posthocs.critical_difference_diagram(
        ranks.ranks.rename(names),
        ranks.pairs.rename(names).rename(names, axis=1),
        ax=ax,
        label_fmt_left="{label}  {rank:.2f}\u00a0",
        label_fmt_right="\u00a0{label}  {rank:.2f}",
        label_props={"fontsize": 9},
        elbow_props={"linewidth": 1.2, "linestyle": "-", "marker": ""},
        crossbar_props={"color": INK, "linewidth": 3.2, "ls": "-", "marker": ""},
        color_palette={label(m): text_colour(m) for m in names},
        text_h_margin=0.1,
    )
    ax.grid(False)
    return ax


def vectors(arrows: dict, ax, *, notes=None):
    """Arrows {name: (x, y)} from the origin, named at their tips or by notes."""
    for m, tip in arrows.items():
        own = look(m)
        known = dict(color=colour(m), lw=own.width, linestyle=own.dash)
        line = dict(color=SOFT, lw=1.4) if own in SPARE else known
        arrow = dict(arrowstyle="-|>", shrinkA=0, shrinkB=0, **line)
        ax.annotate("", tuple(tip), (0, 0), arrowprops=arrow)
    ax.axhline(0, color=GRID, lw=0.8, marker="", ls="-")
    ax.axvline(0, color=GRID, lw=0.8, marker="", ls="-")
    tips = np.array([(0, 0), *arrows.values()], float)
    ends = np.stack([tips.min(0), tips.max(0)])
    (left, bottom), (right, top) = ends + 0.14 * np.ptp(ends) * np.array([[-1], [1]])
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    shafts = [np.linspace(0.1, 1, 24)[:, None] * np.asarray(v) for v in arrows.values()]
    label_points(ax, arrows, avoid=shafts, names=notes)
    return ax
