"""A comparison as one page: report.html, which needs no network and no script. The text
of the page is report.html beside this file, a template of Jinja; here are its numbers.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from jinja2 import Environment

from .. import plots
from ..core.errors import refuse_if
from ..measures import metrics
from ..measures.curves import WINDOW
from ..plots.curves import capped

TEMPLATE = Path(__file__).with_name("report.html")
EXTREMES = 10  # clients of either end in a table
BANDS = 4  # methods whose intervals can be told apart in one chart
COLOURS = {  # name -> (on light ground, on dark ground)
    "ground": ("#fdfdfb", "#14181d"),
    "card": ("#ffffff", "#1b2129"),
    "text": ("#1f2933", "#dfe4e8"),
    "muted": ("#56626d", "#a3adb7"),
    "line": ("#d9dcd8", "#37414c"),
    "band": ("#f3f4f1", "#20272f"),
    "accent": ("#14507a", "#7fc0f2"),
    "alarm": ("#a83200", "#ff955c"),
} | {f"fig-{k}": v for k, v in plots.PALETTE.items()}


def page(c, against="FedAvg"):
    """The html text of a Comparison c; against: whom clients gain or lose to (the first
    method, where FedAvg was not compared).
    """
    refuse_if(not c.records, "; ".join(["report: nothing has finished", *c.gaps()]))
    if against == "FedAvg" and against not in c.records:
        against = next(iter(c.records))
    c.known(against)
    ranked = c.ranked()
    order = list(ranked.index)
    first = {name: c.records[name][0] for name in order}
    others = [n for n in order if n != against]
    template = Environment(autoescape=True).from_string(TEMPLATE.read_text("utf-8"))
    return template.render(
        c=c,
        colours=COLOURS,
        meta=first[order[0]].meta,
        order=order,
        against=against,
        bands=BANDS,
        ranking=ranking(ranked),
        violins=drawn(c.violin, "clients", 0.9 + 0.42 * len(order), spread(c)),
        curves=[
            curve(c, order, "worst tenth", metrics.worst),
            curve(c, order, "mean over clients", metrics.mean_acc),
        ],
        changes=changes(c.paired(against), others) if others else {},
        costs=[(name, *cost(c.records[name])) for name in order],
        uploads=[(name, sent(r.meta["bytes"])) for name, r in first.items()],
        settings=settings(c, first[order[0]].meta),
        parameters=[
            (n, ", ".join(f"{k}={v}" for k, v in sorted(r.meta["parameters"].items())))
            for n, r in first.items()
        ],
    )


# ---------------------------------------------------------------- numbers
def pair(value, half=math.nan, digits=1, sign=""):
    """(a number, half its interval) in words; a minus is one."""
    text = f"{value:{sign}.{digits}f}".replace("-", "\u2212")
    return text, "" if math.isnan(half) else f"\u00b1 {half:.{digits}f}"


def size(n):
    """Bytes for readers: 4 bytes, 1.2 kB, 44.7 MB (powers of 1000)."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= one:
            return f"{n / one:.1f}\u202f{unit}"
    return f"{n:.0f}\u202fbytes"


def ranking(table):
    """(heads, rows, how many columns hold numbers) of a table of a comparison."""
    words = [k for k in ("model", "seeds", "tuned") if k in table]
    measures = [k for k in table if k not in words and not k.startswith("\u00b1")]
    digits = {
        k: 1 if k in ("mean", "worst 10 %", "left out %") else 3 for k in measures
    }
    half = lambda row, k: row.get(f"\u00b1 {k}", math.nan)
    rows = [
        (name, *(pair(r[k], half(r, k), d) for k, d in digits.items()), *r[words])
        for name, r in table.iterrows()
    ]
    return ["method", *measures, *words], rows, len(measures)


def changes(frame, names):
    """{method: ({change: clients}, rows of the clients that lose and gain most)}."""
    found = {}
    for name in names:
        of = frame[frame.method == name].sort_values("difference", kind="stable")
        ends = of if len(of) <= 2 * EXTREMES else of.iloc[np.r_[:EXTREMES, -EXTREMES:0]]
        rows = [
            (who, pair(d, half, sign="+"), f"{accuracy:.1f}", f"{n:,}")
            for _, who, n, accuracy, d, half, _ in ends.itertuples(index=False)
        ]
        found[name] = of.change.value_counts().to_dict(), rows
    return found


def cost(records):
    """Seconds of a run; bytes of a client in a round, up and down; of the whole run."""
    r = records[0]
    ways = dict.fromkeys(("up", "answer", "down", "ask"), 0.0)
    for way, tensors in r.meta.get("tensors", {}).items():
        for shape, kind, times in tensors.values():
            one = math.prod(shape) * getattr(torch, kind).itemsize
            ways[way] += one * times / max(1, r.meta["rounds"])
    up, down = ways["up"] + ways["answer"], ways["down"] + ways["ask"]
    took_part = (np.asarray(r.logs["cohort"]) >= 0).sum()
    seconds = np.mean([r.meta["seconds"] for r in records])
    return f"{seconds:.1f}", size(up), size(down), size((up + down) * took_part)


def sent(ways):
    """What a client sends in a round: names and sizes, the largest first."""
    entries = (ways.get("up", {}) | ways.get("answer", {})).items()
    largest = sorted(entries, key=lambda e: -e[1]["bytes"])
    return ", ".join(f"{k}\u00a0({size(e['bytes'])})" for k, e in largest) or "nothing"


def settings(c, meta):
    """{name: value} of what all runs share."""
    n = meta["n"]
    commits = sorted({r.meta["commit"] for of in c.records.values() for r in of})
    return {
        "task": f"{meta['task']} ({meta['kind']} data)",
        "rows": ", ".join(f"{sum(n[s]):,} {s}" for s in ("train", "val", "test")),
        "rounds": f"{meta['rounds']}, clients scored every {meta['every']}",
        "round that counts": c.rule.__name__,
        "clients per round": meta["cohort"] or f"all {meta['clients']}",
        "seeds": ", ".join(map(str, c.seeds(next(iter(c.records))))),
        **{k: c.settings[k] for k in ("network", "batch") if k in c.settings},
        **{k: meta[k] for k in ("precision", "device")},
        "PyTorch": meta["torch"],
        "commit of fedlib": ", ".join(commits),
    }


# ---------------------------------------------------------------- charts
def drawn(draw, name, height, alt):
    """The <svg> element of a figure of this height in inches, which follows the page's
    theme; draw(ax) fills it, and its ids begin with the name.
    """
    import matplotlib.pyplot as plt  # here, so that it is imported to draw only

    with plt.rc_context(plots.RC):
        fig, ax = plt.subplots(figsize=(plots.SIZE[0], height))
        draw(ax)
        text = plots.svg(fig, "figure", alt)
        plt.close(fig)
    return plots.inline(text, name, alt)


def spread(c):
    """The picture of the clients in words."""
    medians = {n: np.median(100 * c.accuracies(n)) for n in c.records}
    each = ", ".join(f"{n} {v:.0f}" for n, v in medians.items())
    return f"Distribution of client accuracies, one violin per method. Medians: {each}."


def curve(c, order, what, metric):
    """(what, svg, smoothing window in evaluations) of a metric over the rounds."""
    keys = {n: ("pre", c.seen(n), "test") for n in order}
    rounds = {n: c.records[n][0].rounds for n in order}
    lines = {n: [100 * metric(r[k]) for r in c.records[n]] for n, k in keys.items()}
    last = ", ".join(f"{n} {np.mean(v, 0)[-1]:.0f}" for n, v in lines.items())
    alt = f"Test accuracy over rounds, {what}. At the end: {last} percent."
    every = c.records[order[0]][0].meta["every"]
    window = capped(max(1, round(WINDOW / every)), min(map(len, rounds.values())))
    if len(lines) > BANDS:
        lines = {name: np.mean(v, 0) for name, v in lines.items()}

    def draw(ax):
        plots.curves_with_interval(rounds, lines, ax, window=window)
        ax.set_ylabel(f"{what}, %")

    return what, drawn(draw, what.replace(" ", "-"), plots.SIZE[1], alt), window
