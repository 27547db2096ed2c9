"""Forest plot: what a family of claims hangs on, one row per claim."""

from __future__ import annotations

import textwrap
from typing import NamedTuple

import numpy as np
import pandas as pd

from .theme import GRID, INK, PALETTE, PAPER, SOFT


class Mark(NamedTuple):
    """How a verdict looks: palette name, marker, filled or hollow."""

    colour: str
    marker: str
    filled: bool = True


# colour and shape, so that nobody needs the colour; as on the book's pages
VERDICTS = {
    "yes": Mark("c3", "o"),
    "no": Mark("c2", "X"),
    "alike": Mark("c1", "s"),
    "undecided": Mark("c5", "o", filled=False),
    "not testable": Mark("g1", ""),
    "not run": Mark("g1", ""),
}
COLUMNS = ("effect", "lo", "hi", "margin", "printed")
REACH = 1.0  # how far intervals may stretch the axis, as a share of what it must hold
LETTERS = 30  # of a line of a claim's words


def forest(ax, rows: pd.DataFrame, *, label: str = "claim", unit: str = "points"):
    """Effects with their intervals, the first row on top.

    rows: columns effect, lo, hi, margin, printed (all in `unit`; positive speaks for
    the claim; "" or NaN where there is none), holds (the verdict), and `label`, the
    words of a row: rows of results/claims.csv. A verdict is told by colour, marker and
    word; the band holds differences that nobody would care about, the hollow diamond is
    the gain that the paper prints. An interval that leaves the axis ends in an arrow.
    ValueError for no rows, a missing column, an unknown verdict, or an effect outside
    its interval.
    """
    given = _checked(rows, label)
    n = len(given)
    ax.set(ylim=(n - 0.5, -0.5), xlim=_limits(given))
    for y, row in enumerate(given.itertuples(index=False)):
        _row(ax, y, row)
    ax.axvline(0, color=SOFT, lw=1, zorder=1.5)
    words = [textwrap.fill(text, LETTERS) for text in rows[label]]
    ax.set_yticks(range(n), words, fontsize=9)
    ax.tick_params(axis="y", length=0, pad=9)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    ax.spines["left"].set_visible(False)
    said = "; \u25c7 the paper" if given.printed.notna().any() else ""
    ax.set_xlabel(f"difference, {unit}; right speaks for the claim{said}", fontsize=9)
    return ax


def _checked(rows, label):
    """The numbers of the rows as floats, with their verdicts; ValueError."""
    numbers = rows[list(COLUMNS)].replace("", np.nan).astype(float)
    outside = (numbers.lo > numbers.effect) | (numbers.effect > numbers.hi)
    if (bad := outside | ~rows.holds.isin(VERDICTS)).any() or not len(rows):
        raise ValueError(
            f"forest: {rows[label][bad].tolist()}: give rows with an effect inside its "
            f"interval, and a verdict of {', '.join(VERDICTS)}"
        )
    return numbers.assign(holds=rows.holds)


def _limits(given):
    """An axis with zero, every effect, margin and printed gain, and as much of the
    intervals as leaves these apart.
    """
    must = [given.effect, given.printed, given.margin, -given.margin]
    must = np.nan_to_num(np.concatenate(must))  # zero, too
    least, most = must.min(), must.max()
    room = REACH * (most - least) or 1.0
    low = max(np.nanmin([least, *given.lo]), least - room)
    high = min(np.nanmax([most, *given.hi]), most + room)
    pad = 0.04 * (high - low)
    return low - pad, high + pad


def _row(ax, y, row):
    """One claim at the height y: band, interval, effect, printed gain, verdict."""
    mark = VERDICTS[row.holds]
    c = PALETTE[mark.colour][0]
    if row.margin > 0:
        band = dict(height=1, color=GRID, alpha=0.55, linewidth=0, zorder=0.5)
        ax.barh(y, 2 * row.margin, left=-row.margin, **band)
    if np.isfinite(row.effect):
        _interval(ax, y, row.lo, row.hi, c)
        point = dict(marker=mark.marker, ms=7, mfc=c if mark.filled else PAPER)
        ax.plot(row.effect, y, color=c, ls="", mew=1.5, zorder=4, **point)
    if np.isfinite(row.printed):
        diamond = dict(marker="D", ms=6, color=INK, mfc=PAPER, ls="", clip_on=False)
        ax.plot(row.printed, y - 0.28, zorder=3, **diamond)
    at = dict(transform=ax.get_yaxis_transform(), va="center", fontsize=9)
    ax.text(1.04, y, row.holds, color=c, **at)


def _interval(ax, y, lo, hi, c):
    """The interval [lo, hi], an arrow where it leaves the axis."""
    low, high = ax.get_xlim()
    ends = [max(lo, low), min(hi, high)]
    ax.plot(ends, [y, y], color=c, lw=1.8, solid_capstyle="butt", zorder=3)
    for end, at, limit, arrow in ((lo, ends[0], low, "<"), (hi, ends[1], high, ">")):
        out = end < limit if arrow == "<" else end > limit
        mark = dict(marker=arrow, ms=6) if out else dict(marker="|", ms=9, mew=1.4)
        ax.plot(at, y, color=c, ls="", clip_on=False, zorder=3, **mark)
