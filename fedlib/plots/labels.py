"""Where names stand in a figure: beside the ends of lines, beside points, in rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from .theme import SOFT, colour, label, text_colour, weight

LINE_HEIGHT = 11.5  # points between two names
# directions in which a name may stand, in order of preference, and distances in points
AROUND = (
    *((1, 0), (-1, 0), (0, 1), (0, -1)),
    *((0.75, 0.75), (-0.75, 0.75), (0.75, -0.75), (-0.75, -0.75)),
)
NEAR, FAR = 7, (14, 22)
SIDES_OF_A_POINT = [(dx, dy, r) for r in (NEAR, *FAR) for dx, dy in AROUND]


def check(where: str, rows: dict, width: int | None = None) -> dict:
    """The rows {method: values} as float arrays; ValueError if there are none, or if a
    row has another last axis than `width`.
    """
    out = {m: np.asarray(v, float) for m, v in rows.items()}
    bad = {m: v.shape for m, v in out.items() if not v.size or v.shape[-1:] != (width,)}
    if not out or (width is not None and bad):
        raise ValueError(
            f"{where}: give {{method: array}}, each with {width or 'some'} entries in "
            f"its last axis, not {bad or 'no method'}"
        )
    return out


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


def label_rows(ax, names: list[str]) -> np.ndarray:
    """Name the rows of a chart, the first on top, and return their heights [n].

    Rows, since names are read without turning the head, on a phone too.
    """
    at = np.arange(len(names))[::-1].astype(float)
    dress_rows(ax, names, at)
    ax.set_ylim(-0.6, len(names) - 0.4)
    return at


def dress_rows(ax, names, at) -> None:
    """Names of methods at the heights `at` in their colours, lines across only."""
    ax.set_yticks(at, [label(m) for m in names])
    for tick, m in zip(ax.get_yticklabels(), names):
        tick.set(color=text_colour(m), fontweight=weight(m))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    ax.spines["left"].set_visible(False)


def label_ends(ax, ends: dict, notes: dict | None = None) -> None:
    """Write each method's name to the right of its line's end (x, y), moved apart where
    names would collide; notes {method: text after its name}.
    """
    fig = ax.get_figure()
    fig.draw_without_rendering()
    point = 72 / fig.dpi  # points per pixel
    xy = {m: ax.transData.transform(p) * point for m, p in ends.items()}
    box = ax.get_window_extent()
    low, high = box.y0 * point - 4, box.y1 * point + 6
    heights = spread([y for _, y in xy.values()], LINE_HEIGHT, low, high)
    moved = {m: abs(new - y) > 3 for (m, (_, y)), new in zip(xy.items(), heights)}
    right = max(x for x, _ in xy.values())
    # room for the short lines that lead to the names
    gap = 13 if any(moved.values()) else 7
    for (m, (x, y)), new in zip(xy.items(), heights):
        lead = dict(color=colour(m), lw=0.7, relpos=(0, 0.5), shrinkA=1, shrinkB=3)
        ax.annotate(
            label(m) + (f"  {notes[m]}" if notes and m in notes else ""),
            ends[m],
            (right - x + gap, new - y),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=text_colour(m),
            annotation_clip=False,
            fontweight=weight(m),
            arrowprops=dict(arrowstyle="-", **lead) if moved[m] else None,
        )


def text_box(x, y, w, h, side) -> np.ndarray:
    """Box (x0, y0, x1, y1) of a text of width w and height h on one side (dx, dy, r) of
    the point (x, y); all in points.
    """
    dx, dy, r = side
    left = x + dx * r - (w if dx < 0 else w / 2 if dx == 0 else 0)
    middle = y + dy * r + dy * h / 3
    return np.array([left, middle - h / 2, left + w, middle + h / 2])


def overlap(a, b) -> float:
    """The area that two boxes (x0, y0, x1, y1) share."""
    return np.maximum(0, np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])).prod()


def label_points(
    ax, points: dict, names: dict | None = None, size: float = 9, avoid=()
) -> None:
    """Write a name beside each point (x, y), on the side where it covers least.

    names {point: text}, where not the point's own; size: of the letters, in points;
    avoid: lines [n, 2] to keep clear of.
    """
    fig = ax.get_figure()
    fig.draw_without_rendering()
    point, frame = 72 / fig.dpi, ax.get_window_extent()
    frame = np.array([frame.x0, frame.y0, frame.x1, frame.y1]) * point
    xy = {m: ax.transData.transform(p) * point for m, p in points.items()}
    taken = [np.array([x - 4, y - 4, x + 4, y + 4]) for x, y in xy.values()]
    lines = [ax.transData.transform(line) * point for line in avoid]
    ink = np.concatenate(lines) if lines else np.empty((0, 2))

    def cost(box, distance):
        covered = sum(overlap(box, t) for t in taken)
        below, above = np.maximum(0, frame[:2] - box[:2]), box[2:] - frame[2:]
        outside = below.sum() + np.maximum(0, above).sum()
        crossed = ((ink > box[:2] - 1) & (ink < box[2:] + 1)).all(1).sum()
        return covered + 8 * outside + 12 * crossed + distance

    for m, (x, y) in xy.items():
        text = (names or {}).get(m, label(m))
        w, h = 0.62 * size * len(text), 1.25 * size
        boxes = [(text_box(x, y, w, h, side), side) for side in SIDES_OF_A_POINT]
        box, (dx, dy, r) = min(boxes, key=lambda b: cost(b[0], b[1][2]))
        taken.append(box)
        lead = dict(arrowstyle="-", color=SOFT, lw=0.6, shrinkA=0, shrinkB=4)
        ax.annotate(
            text,
            points[m],
            (dx * r, dy * r + dy * h / 3),
            textcoords="offset points",
            fontsize=size,
            color=text_colour(m),
            va="center",
            ha="left" if dx > 0 else "right" if dx < 0 else "center",
            fontweight=weight(m),
            annotation_clip=False,
            arrowprops=lead if r > NEAR else None,
        )
