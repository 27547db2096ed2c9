"""The growth curves on logarithmic axes, with the fitted lines and their slopes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from .fit import curve, fits

SECONDS, FEDAVG, DITTO = "Processor seconds of a round", ("c1", "s"), ("c2", "o")
ROUNDS = [("FedAvg", "round", "FedAvg", *FEDAVG, "-")]
ROUNDS += [("Ditto", "round", "Ditto", *DITTO, "-")]
SCORED = [("FedAvg", "evaluated round", "FedAvg, scored", *FEDAVG, "--")]
SCORED += [("Ditto", "evaluated round", "Ditto, scored", *DITTO, "--")]
MIB = [(m, "mib", name, *look, "-") for m, _, name, *look, _ in ROUNDS]
MLPS = [(m, what, f"{m}, MLP", *look) for m, what, _, *look in ROUNDS]
DEEP = [("FedAvg, ResNet18", "round", "FedAvg, ResNet18", "c1", "D", "")]
DEEP += [("Ditto, ResNet18", "round", "Ditto, ResNet18", "c2", "^", "")]
SEEDS = [("one after another", "runs, wall", "one by one", "c6", "s", "-")]
SEEDS += [("two processes", "runs, wall", "two processes", "c3", "D", "-")]
SEEDS += [("stacked", "runs, wall", "stacked", "c4", "v", "-")]
# title, axis, below it, [(method, measure, label, colour, marker, dash)]
PANELS = [
    (SECONDS, "clients", "clients", [ROUNDS[0], SCORED[0], ROUNDS[1], SCORED[1]]),
    ("MiB", "clients", "clients", MIB),
    (SECONDS, "cohort", "clients in a round", ROUNDS),
    (SECONDS, "parameters", "parameters", MLPS + DEEP),
    (
        "MiB",
        "parameters",
        "parameters",
        [(m, w, f"{n}, MLP", *x) for m, w, n, *x in MIB],
    ),
    ("Seconds of S runs, on the clock", "seeds", "seeds", SEEDS),
]
# inches of a panel; its share of the width, the rest is for names
HEIGHT, AXES = 2.3, 0.7


def figure(csv):
    """A Figure from benchmarks-growth.csv, one panel below the other: all that have
    data.
    """
    import matplotlib.pyplot as plt

    from fedlib import plots

    table = pd.read_csv(Path(csv))
    exponent = fits(table).set_index(["axis", "method", "measure"]).exponent
    known = lambda axis, line: curve(table, axis, *line[:2])
    drawn = [p for p in PANELS if any(known(p[1], x) is not None for x in p[3])]
    if not drawn:
        raise ValueError(f"{csv} has no curve to draw: run python -m benchmarks.growth")
    size = plots.SIZE[0], HEIGHT * len(drawn)
    with plt.rc_context(plots.RC):
        fig, axes = plt.subplots(len(drawn), 1, figsize=size, squeeze=False)
        fig.get_layout_engine().set(rect=(0, 0, AXES, 1))
        ends = []
        for ax, (title, axis, below, lines) in zip(axes[:, 0], drawn):
            ax.set(xscale="log", yscale="log", title=title, xlabel=below)
            here = []
            for method, what, name, *look in lines:
                c, p = known(axis, (method, what)), exponent.get((axis, method, what))
                if c is not None:
                    name += "" if p is None else f" $x^{{{p:.2f}}}$"
                    here.append((*draw(ax, plots, c, *look), name))
            ends.append(here)
            plain(ax, axis)
        fig.draw_without_rendering()
        for ax, here in zip(axes[:, 0], ends):
            names(ax, plots, here)
    return fig


def draw(ax, plots, c, tone, mark, dash):
    """Points with their range, and the fitted line over the part it holds for; (x, y,
    colour) of the last point.
    """
    colour, y = plots.PALETTE[tone][0], np.median(c.y, 0)
    face = plots.PAPER if dash == "--" else colour
    look = {"marker": mark, "markersize": 4.5, "markerfacecolor": face}
    ax.plot(c.x, y, color=colour, ls=dash or "none", lw=1.3, **look)
    if len(c.y) > 1:
        ax.vlines(c.x, c.y.min(0), c.y.max(0), color=colour, lw=1)
    if len(c.x) > 2:
        x = c.upper().x[[0, -1]]
        p, b = np.median(c.upper().lines(), 0)
        look = {"ls": "-", "marker": "", "solid_capstyle": "butt"}
        ax.plot(x, np.exp(b) * x**p, color=colour, lw=4, alpha=0.25, **look)
    return c.x[-1], y[-1], colour


def plain(ax, axis):
    """Few ticks with plain numbers: powers of ten, or 1, 2,
    5 where an axis spans less than two.
    """
    import matplotlib as mpl

    for way, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        few = {"subs": (1, 2, 5), "numticks": 8} if high / low < 30 else {"numticks": 5}
        way.set_major_locator(mpl.ticker.LogLocator(**few))
        way.set_major_formatter(mpl.ticker.FuncFormatter(number))
        way.set_minor_locator(mpl.ticker.NullLocator())
    if axis == "seeds":
        ax.set_xticks([1, 2, 4, 8, 16], labels=["1", "2", "4", "8", "16"])


def number(v, _=None):
    """0.01, 1, 1k, 10M."""
    return f"{v / 1e6:g}M" if v >= 1e6 else f"{v / 1e3:g}k" if v >= 1e3 else f"{v:g}"


def names(ax, plots, ends):
    """Each curve's name and slope to the right of its last point,
    moved apart where they would meet.
    """
    point = 72 / ax.get_figure().dpi
    at = [ax.transData.transform(e[:2]) * point for e in ends]
    box, right = ax.get_window_extent(), max(p[0] for p in at)
    low, high = box.y0 * point - 4, box.y1 * point + 6
    want = plots.spread([p[1] for p in at], 11.5, low, high)
    look = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    for (x, y, colour, name), p, y_new in zip(ends, at, want):
        to, look["color"] = (right - p[0] + 8, y_new - p[1]), colour
        text = ax.annotate(name, (x, y), to, annotation_clip=False, **look)
        text.set_in_layout(False)  # its place is kept free by AXES
