"""The growth curves on logarithmic axes, with the fitted lines and their slopes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from .fit import curve, fits

# title, axis, [(method, measure, label, colour, marker, dash)]
FEDAVG, DITTO = "c1", "c2"
PANELS = [
    (
        "Processor seconds of a round",
        "clients",
        "clients",
        [
            ("FedAvg", "round", "FedAvg", FEDAVG, "s", "-"),
            ("FedAvg", "evaluated round", "FedAvg, scored", FEDAVG, "s", "--"),
            ("Ditto", "round", "Ditto", DITTO, "o", "-"),
            ("Ditto", "evaluated round", "Ditto, scored", DITTO, "o", "--"),
        ],
    ),
    (
        "MiB",
        "clients",
        "clients",
        [
            ("FedAvg", "mib", "FedAvg", FEDAVG, "s", "-"),
            ("Ditto", "mib", "Ditto", DITTO, "o", "-"),
        ],
    ),
    (
        "Processor seconds of a round",
        "cohort",
        "clients in a round",
        [
            ("FedAvg", "round", "FedAvg", FEDAVG, "s", "-"),
            ("Ditto", "round", "Ditto", DITTO, "o", "-"),
        ],
    ),
    (
        "Processor seconds of a round",
        "parameters",
        "parameters",
        [
            ("FedAvg", "round", "FedAvg, MLP", FEDAVG, "s", "-"),
            ("Ditto", "round", "Ditto, MLP", DITTO, "o", "-"),
            ("FedAvg, ResNet18", "round", "FedAvg, ResNet18", FEDAVG, "D", ""),
            ("Ditto, ResNet18", "round", "Ditto, ResNet18", DITTO, "^", ""),
        ],
    ),
    (
        "MiB",
        "parameters",
        "parameters",
        [
            ("FedAvg", "mib", "FedAvg, MLP", FEDAVG, "s", "-"),
            ("Ditto", "mib", "Ditto, MLP", DITTO, "o", "-"),
        ],
    ),
    (
        "Seconds of S runs, on the clock",
        "seeds",
        "seeds",
        [
            ("one after another", "runs, wall", "one by one", "c6", "s", "-"),
            ("two processes", "runs, wall", "two processes", "c3", "D", "-"),
            ("stacked", "runs, wall", "stacked", "c4", "v", "-"),
        ],
    ),
]
# inches of a panel; its share of the width, the rest is for names
HEIGHT, AXES = 2.3, 0.7


def figure(csv, panels=None):
    """A Figure from benchmarks-growth.csv, one panel below the other.

    panels: numbers of PANELS (None: all that have data).
    """
    import matplotlib.pyplot as plt

    from fedlib import plots

    table = pd.read_csv(Path(csv))
    fitted = fits(table).set_index(["axis", "method", "measure"])
    chosen = [PANELS[i] for i in panels] if panels is not None else PANELS
    chosen = [
        p
        for p in chosen
        if any(curve(table, p[1], m, what) is not None for m, what, *_ in p[3])
    ]
    if not chosen:
        raise ValueError(
            f"{csv} has no curve to draw: run python -m benchmarks.growth, or name "
            f"other panels than {panels}"
        )
    with plt.rc_context(plots.RC):
        fig, axes = plt.subplots(
            len(chosen), 1, figsize=(plots.SIZE[0], HEIGHT * len(chosen)), squeeze=False
        )
        fig.get_layout_engine().set(rect=(0, 0, AXES, 1))
        ends = []
        for ax, (title, axis, below, lines) in zip(axes[:, 0], chosen):
            ax.set(xscale="log", yscale="log", title=title, xlabel=below)
            ends.append([])
            for method, what, name, tone, mark, dash in lines:
                c = curve(table, axis, method, what)
                if c is not None:
                    ends[-1].append(
                        draw(ax, plots, c, tone, mark, dash)
                        + (name, slope(fitted, (axis, method, what)))
                    )
            plain(ax, axis)
        fig.draw_without_rendering()
        for ax, e in zip(axes[:, 0], ends):
            names(ax, plots, e)
    return fig


def draw(ax, plots, c, tone, mark, dash):
    """Points with their range, and the fitted line over the part it holds for; (x, y,
    colour) of the last point.
    """
    colour, y = plots.PALETTE[tone][0], np.median(c.y, 0)
    ax.plot(
        c.x,
        y,
        color=colour,
        ls=dash or "none",
        lw=1.3,
        marker=mark,
        markersize=4.5,
        markerfacecolor=plots.PAPER if dash == "--" else colour,
    )
    if len(c.y) > 1:
        ax.vlines(c.x, c.y.min(0), c.y.max(0), color=colour, lw=1)
    if len(c.x) > 2:
        x = c.upper().x[[0, -1]]
        p, b = np.median(c.upper().lines(), 0)
        ax.plot(
            x,
            np.exp(b) * x**p,
            color=colour,
            lw=4,
            alpha=0.25,
            ls="-",
            marker="",
            solid_capstyle="butt",
        )
    return c.x[-1], y[-1], colour


def slope(fitted, key):
    return f" $x^{{{fitted.exponent[key]:.2f}}}$" if key in fitted.index else ""


def plain(ax, axis):
    """Few ticks with plain numbers: powers of ten, or 1, 2,
    5 where an axis spans less than two.
    """
    import matplotlib as mpl

    for way, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        short = high / low < 30
        way.set_major_locator(
            mpl.ticker.LogLocator(
                subs=(1, 2, 5) if short else (1,), numticks=8 if short else 5
            )
        )
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
    want = plots.spread(
        [p[1] for p in at], 11.5, box.y0 * point - 4, box.y1 * point + 6
    )
    for (x, y, colour, name, more), p, y_new in zip(ends, at, want):
        text = ax.annotate(
            name + more,
            (x, y),
            (right - p[0] + 8, y_new - p[1]),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=colour,
            annotation_clip=False,
        )
        text.set_in_layout(False)  # its place is kept free by AXES
