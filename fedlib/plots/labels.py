"""Where names stand in a figure: beside the ends of lines, beside points, in rows."""

import numpy as np
from scipy.optimize import isotonic_regression

from .theme import SOFT, colour, label, text_colour, weight

LINE_HEIGHT = 11.5  # points between two names
# where a name may stand beside its point, in points, the best place first
NEAR = ((7, 0), (-7, 0), (0, 11), (0, -11), (5, 9), (-5, 9), (5, -9), (-5, -9))
AROUND = NEAR + tuple((2 * x, 2 * y) for x, y in NEAR)


def spread(y, gap: float, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """Positions nearest to y [n] (least squares) that keep their order and lie at least
    `gap` apart, from `low` to `high`: with z_i = y_i - i gap, monotone regression.
    """
    y = np.asarray(y, float)
    order, steps = np.argsort(y, kind="stable"), np.arange(len(y)) * gap
    z = isotonic_regression(y[order] - steps).x if len(y) else y
    out = np.empty_like(y)
    out[order] = np.clip(z, low, max(low, high - max(steps, default=0))) + steps
    return out


def name_rows(ax, methods) -> None:
    """Rows 0, 1, ... of a chart: printed names in their colours, the first on top."""
    methods = list(methods)
    ax.set_yticks(range(len(methods)), [label(m) for m in methods])
    for tick, m in zip(ax.get_yticklabels(), methods):
        tick.set(color=text_colour(m), fontweight=weight(m))
    ax.set(ylabel="", ylim=(len(methods) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    ax.spines["left"].set_visible(False)


def label_ends(ax, ends: dict, notes: dict | None = None) -> None:
    """Names to the right of lines' ends (x, y), moved apart; notes {method: more}."""
    fig = ax.get_figure()
    fig.draw_without_rendering()
    point = 72 / fig.dpi  # points per pixel
    x, y = (ax.transData.transform([*ends.values()]) * point).T
    box = ax.get_window_extent()
    heights = spread(y, LINE_HEIGHT, box.y0 * point - 4, box.y1 * point + 6)
    moved = abs(heights - y) > 3
    # room for the short lines that lead to the names
    right = x.max() + (13 if moved.any() else 7)
    for i, (m, end) in enumerate(ends.items()):
        lead = dict(color=colour(m), lw=0.7, relpos=(0, 0.5), shrinkA=1, shrinkB=3)
        ax.annotate(
            f"{label(m)}  {(notes or {}).get(m, '')}".rstrip(),
            end,
            (right - x[i], heights[i] - y[i]),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=text_colour(m),
            annotation_clip=False,
            fontweight=weight(m),
            arrowprops=dict(arrowstyle="-", **lead) if moved[i] else None,
        )


def label_points(ax, points: dict, names=None, size: float = 9, avoid=()) -> None:
    """Write a name beside each point (x, y), on the side where it covers least.

    names {point: text}, where not the point's own; size: of the letters, in points;
    avoid: lines [n, 2] to keep clear of.
    """
    ax.get_figure().draw_without_rendering()
    frame, taken = ax.get_window_extent(), []
    ink = ax.transData.transform(np.concatenate([[*points.values()], *avoid]))
    how = dict(textcoords="offset points", annotation_clip=False)
    for m, at in points.items():
        look = dict(fontsize=size, color=text_colour(m), fontweight=weight(m))
        name = (names or {}).get(m, label(m))
        text = ax.annotate(name, at, (0, 0), va="center", **how, **look)

        def box(place, text=text):
            side = "left" if place[0] > 0 else "right" if place[0] < 0 else "center"
            text.set(position=place, ha=side)
            return text.get_window_extent().padded(2)

        def hidden(place, box=box):
            b = box(place)
            inside = frame.contains(*b.min) and frame.contains(*b.max)
            taken_ = b.count_overlaps(taken) + (not inside)
            return b.count_contains(ink) + 3 * taken_

        best = min(AROUND, key=hidden)
        taken.append(box(best))
        if best not in NEAR:
            lead = dict(arrowstyle="-", color=SOFT, lw=0.6, shrinkA=0, shrinkB=4)
            ax.annotate("", at, best, **how, arrowprops=lead)
