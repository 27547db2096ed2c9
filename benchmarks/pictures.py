"""The figures of the page How fast is a round?, drawn from the tables of results/."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from fedlib import plots
from fedlib.core.shards import Plan, draw

from .cases import case

OURS = ("fedlib", "fedlib loop", "fedlib vmap")
ORDER = (*OURS, "PFLlib", "FLGo", "Flower simulation")
ROW = 0.2  # inches
# variant -> palette name, marker
MARKS = {"fedlib": ("c1", "o"), "PFLlib": ("c2", "s"), "FLGo": ("c3", "^")}


def ratios(csv):
    """The table with what is drawn: times, and its low and high, in rounds of the
    usual loop beside it.
    """
    t = pd.read_csv(Path(csv))
    t = t[t.variant != "DataLoader loop"].copy()
    unit = t.times_loader / t.rounds_per_cpu_s
    return t.assign(least=t.low * unit, most=t.high * unit)


def empty(rows, below, width=None):
    """(figure, axes) with room for so many rows, the first one at the top."""
    with plt.rc_context(plots.RC):
        fig, ax = plt.subplots(figsize=(width or plots.SIZE[0], 0.65 + ROW * rows))
        ax.set(xscale="log", xlabel=below, ylim=(-rows + 0.4, 0.6))
        ax.grid(axis="x")
        ax.grid(visible=False, axis="y")
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    return fig, ax


def numbers(ax, low, high):
    """Few plain numbers on the logarithmic axis, and a line at 1."""
    ax.set_xlim(low, high)
    subs = (1,) if high / low > 200 else (1, 3) if high / low > 60 else (1, 2, 5)
    ax.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=subs, numticks=12))
    ax.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    ax.axvline(1, color=plots.INK, lw=1, ls="-", marker="")


def grouped(groups, below):
    """(figure, axes, {(group, name): y}) of groups [(title, names)]: a row for each
    name, top down, below the title of its group.
    """
    at, heads, y = {}, {}, 0
    for group, names in groups:
        heads[group], y = y, y - 1
        for name in names:
            at[group, name], y = y, y - 1
    fig, ax = empty(-y, below)
    ax.set_yticks([*heads.values(), *at.values()], [*heads, *(name for _, name in at)])
    for label in ax.get_yticklabels()[: len(heads)]:
        label.set_fontweight("bold")
    return fig, ax, at


def short(v):
    """135, 5.2, 0.27."""
    return f"{v:.0f}" if v >= 10 else f"{v:.1f}" if v >= 0.95 else f"{v:.2f}"


def side_by_side(csv):
    """Bars from 1, where the usual loop is: to the right is quicker."""
    t = ratios(csv).set_index(["case", "variant"])
    cases = list(dict.fromkeys(k[0] for k in t.index))
    groups = [(c, [v for v in ORDER if (c, v) in t.index]) for c in cases]
    below = "times the rounds of the usual loop, same processor time"
    fig, ax, at = grouped(groups, below)
    for key, y in at.items():
        r, own = t.loc[key], key[1] == "fedlib"
        if np.isnan(r.times_loader):
            ax.text(1.04, y, "no result", va="center", fontsize=8.5, color=plots.SOFT)
            continue
        colour = plots.PALETTE["c1" if key[1] in OURS else "g1"][0]
        face = colour if own or key[1] not in OURS else plots.PAPER
        bar = {"left": 1, "height": 0.62, "facecolor": face, "edgecolor": colour}
        ax.barh(y, r.times_loader - 1, **bar)
        ax.hlines(y, r.least, r.most, color=plots.INK, lw=1)
        look = {"fontsize": 8.5, "fontweight": "bold" if own else "normal"}
        ax.text(max(r.most, 1) * 1.06, y, short(r.times_loader), va="center", **look)
    numbers(ax, min(0.8, t.least.min() * 0.85), t.most.max() * 1.6)
    return fig


def by_method(csv):
    """A row per method; a mark per program, the usual loop of that method at 1."""
    t = ratios(csv)
    each = t.groupby("case", sort=False)
    groups = [(c, list(dict.fromkeys(g.method))) for c, g in each]
    below = "times the rounds of the same method in the usual loop"
    fig, ax, at = grouped(groups, below)
    for name, (tone, mark) in MARKS.items():
        g = t[(t.variant == name) & t.times_loader.notna()]
        y = np.array([at[k] for k in zip(g.case, g.method)])
        colour = plots.PALETTE[tone][0]
        ax.hlines(y, g.least, g.most, color=colour, lw=1.2)
        look = {"color": colour, "marker": mark, "ls": "none", "ms": 5.5}
        ax.plot(g.times_loader, y, label=name, **look)
    numbers(ax, min(0.8, t.least.min() * 0.85), t.most.max() * 1.15)
    fig.legend(loc="outside upper center", ncols=3, handletextpad=0.2)
    return fig


def above_the_floor(csv):
    """How many times the time of its arithmetic a round takes; 1 is the floor."""
    t = pd.read_csv(Path(csv))
    fig, ax = empty(1.5 * len(t) + 1, "times the floor (1: nothing but arithmetic)")
    ax.set_ylim(-len(t) + 0.4, 0.6)
    colour, soft = plots.PALETTE["c1"][0], plots.PALETTE["g1"][0]
    for y, r in zip(range(0, -len(t), -1), t.itertuples()):
        ax.barh(y, r.times_floor - 1, left=1, height=0.5, color=colour)
        ax.text(r.times_floor * 1.07, y, short(r.times_floor), va="center", fontsize=9)
    y = -np.arange(len(t))
    marks = {"color": plots.INK, "ls": "none", "markersize": 6}
    if "loop_times_floor" in t:
        look = marks | {"color": soft, "marker": "v"}
        ax.plot(t.loop_times_floor, y + 0.36, label="one client after another", **look)
    if "times_own_convolutions" in t:
        own = t.times_floor / t.times_own_convolutions
        ax.plot(own, y, **marks, marker="|", mew=2, label="its own convolutions alone")
    ax.set_yticks(y, t.case)
    numbers(ax, 0.9, t.times_floor.max() * 2)
    fig.legend(loc="outside upper center", ncols=2, handletextpad=0.2)
    return fig


def stacked_plan(case_name="synthetic-100", cohort=10, seed=0):
    """What one cohort does when it is stacked: a row per client, longest first, a cell
    per step; a step is one product of all clients that are not done. From the plan of a
    real round.
    """
    c = replace(case(case_name), cohort=cohort)
    ids = next(c.cohorts(seed)).tolist()
    plan = lambda i: draw(c.task.train[i], Plan(), seed, c.task.batch)
    lengths = {i: len(plan(i)[1]) for i in ids}
    ids = sorted(ids, key=lambda i: (-lengths[i], i))
    steps = np.array([lengths[i] for i in ids])
    fig, ax = empty(len(ids) + 1.5, "step")
    ax.set(xscale="linear", ylim=(-len(ids) + 0.3, 1.9))
    for k, n in enumerate(steps):
        cells = [(s + 0.08, 0.84) for s in range(n)]
        ax.broken_barh(cells, (-k - 0.36, 0.72), facecolor=plots.PALETTE["c1"][0])
        if k:
            ax.text(n + 0.5, -k, "done", fontsize=8, va="center", color=plots.SOFT)
    now = int(steps[len(steps) // 2])  # the last step of the client in the middle
    alive = int((steps >= now).sum())
    box = (now - 1, -alive + 0.5), 1, alive
    tone = plots.PALETTE["c2"][0]
    ax.add_patch(Rectangle(*box, fill=False, ec=tone, lw=1.8))
    what = f"one product: the {alive} clients that still train"
    look = {"fontsize": 9, "va": "center", "color": tone}
    arrow, to = {"arrowstyle": "-", "color": tone}, (now + 0.04 * steps[0], 1.4)
    ax.annotate(what, (now - 0.5, 0.5), to, arrowprops=arrow, **look)
    ax.set_yticks(-np.arange(len(ids)), [f"client {i}" for i in ids])
    ax.set_xlim(0, steps[0] + 0.5)
    return fig
