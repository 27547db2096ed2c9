"""A comparison as one page: report.html, which needs no network and no script. The text
of the page is report.html beside this file, a template of Jinja; here are its numbers.

Letters: C clients, S seeds, E evaluated rounds.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from jinja2 import Environment

from .. import plots
from ..measures import metrics
from ..measures.curves import WINDOW
from ..measures.statistics import interval, paired
from ..plots.curves import capped
from ..plots.labels import label_rows

WORDS = ("model", "seeds", "tuned")  # columns of a table that hold no measure
TEMPLATE = Path(__file__).with_name("report.html")
POINTS = 1.0  # a client gains or loses where its difference is larger, in points
ENOUGH = 3  # seeds, for a word on what is more than chance
EXTREMES = 10  # clients of either end in a table
BANDS = 4  # methods whose intervals can be told apart in one chart
GOLDEN = 0.618  # its multiples spread dots evenly in a row
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
HEADS = {  # column of a comparison's table -> what the page calls it
    "mean": "mean, %",
    "left out %": "clients left out, %",
    "Gini": "Gini (0: all alike)",
    "EO": "EO (0: groups alike)",
    "DP": "DP (0: groups alike)",
    "tuned": "chosen on validation rows",
    "model": "model scored",
}
RULES = {
    "best_val": "round with the best mean validation accuracy",
    "best_val_gini": "round with the lowest Gini of validation accuracies",
    "last": "last round",
    "last10_mean": "mean of the last rounds",
    "best_round_test": "best round on the test rows, which flatters",
    "best_round_pooled": "best round on the test rows, which flatters",
}
UPLOADS = {  # what uploads with these names hold; others are printed as they are
    "model weights": "w",
    "model weights, in part": "shared",
    "weights of the last layer": "head",
    "the number of its training rows": "n",
    "the number of its local steps": "a",
    "the change of its control variate, as large as the model": "dc",
    "its number among the clients": "cid",
    "the mean loss on its rows": "loss",
    "the accuracy on its rows": "acc",
    "one number on how much its weights matter (Fisher information)": "trace",
    "class prototypes (mean features of each class)": "proto means mu",
    "mean features, weighted by class": "h",
    "one number on how its features vary": "V",
    "counts of rows by class": "count classes",
    "counts of rows by group, outcome and prediction": "counts",
    "which classes it has": "held",
    "its sums of losses by group": "total sums",
    "the number of its rows": "size",
    "losses and accuracies on its rows": "measured own",
    "a gap between two losses on its rows": "report gap",
}
BY_NAME = {name: words for words, names in UPLOADS.items() for name in names.split()}
CONTROL = "a control: its rows themselves would have to leave"  # of Centralised


def page(c, against="FedAvg"):
    """The html text of a Comparison c; against: whom clients gain or lose to (where
    that is FedAvg and was not compared, the first method).
    """
    if not c.records:
        gaps = "".join(f"; {line}" for line in c.gaps())
        raise ValueError(f"report: nothing has finished to report on{gaps}")
    if against == "FedAvg" and against not in c.records:
        against = next(iter(c.records))
    c.known(against)
    order = list(c.ranked().index)
    others = [n for n in order if n != against]
    first = {name: c.records[name][0] for name in order}
    meta = first[order[0]].meta
    text = TEMPLATE.read_text("utf-8")
    template = Environment(autoescape=True).from_string(text)
    return template.render(
        colours=COLOURS,
        meta=meta,
        order=order,
        against=against,
        seeds=c.seeds(order[0]),
        tenth=tenth(c),
        tuned=c.tuned,
        gaps=c.gaps(),
        bands=BANDS,
        answer=answer(c, order, against),
        rule=RULES.get(c.rule.__name__, c.rule.__name__),
        ranking=ranking(c, order),
        violins=violins(c, order),
        curves=curves(c, order),
        **(gains(c, others, against) if others else {}),
        costs=[(name, *cost(c.records[name])) for name in order],
        uploads=[(name, *uploads(r)) for name, r in first.items()],
        groups=any(r.cells for r in first.values()),
        settings=settings(c, meta),
        call=c.call,
        parameters=[(n, listing(r.meta["parameters"])) for n, r in first.items()],
    )


# ---------------------------------------------------------------- numbers in words
def signed(value):
    """With its sign, as a minus that is one."""
    text = f"{value:+.1f}".replace("-", "\u2212")
    return text[1:] if float(f"{value:.1f}") == 0 else text


def half(value, digits=1):
    """± 1.2, or nothing where there is no interval."""
    return "" if math.isnan(value) else f"\u00b1 {value:.{digits}f}"


def size(n):
    """Bytes for readers: 4 bytes, 1.2 kB, 44.7 MB (powers of 1000)."""
    for unit, one in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= one:
            return f"{n / one:.1f}\u202f{unit}"
    return f"{n:.0f}\u202fbytes"


def joined(words, last="and"):
    """a, b and c"""
    *start, end = words
    return f"{', '.join(start)} {last} {end}" if start else end


def listing(parameters):
    return ", ".join(f"{k}={v}" for k, v in sorted(parameters.items()))


def tenth(c):
    """The worst tenth of the clients, in words."""
    return "worst client" if len(c.clients()) < 20 else "worst tenth"


# ---------------------------------------------------------------- the answer
def worst(c, name):
    """Mean accuracy of the worst tenth, in percent [S]."""
    return 100 * c.measure(name, metrics.worst)


def answer(c, order, against):
    """The sentences that answer the question, the first one first."""
    best, *rest = order
    i = interval(worst(c, best))
    at = f"{i.mean:.1f}\u202f% {half(i.half)}".rstrip()
    if not rest:
        return [f"{best} serves the {tenth(c)} at {at}. Compare a second one."]
    lead = f"{best} serves the {tenth(c)} best: {at}"
    if against != best:
        lead += f"; {against} {worst(c, against).mean():.1f}\u202f%"
    sentences = [f"{lead}.", certainty(c, best, rest)]
    means = {n: 100 * c.measure(n, metrics.mean_acc).mean() for n in c.records}
    top = max(means, key=means.get)
    if top != best:
        pair = f"{means[top]:.1f}\u202f%; {best} {means[best]:.1f}\u202f%"
        sentences.append(f"The mean over all clients is highest with {top}: {pair}.")
    sentences.append(who_gains(c, best if best != against else rest[0], against))
    return sentences


def certainty(c, best, rest):
    """Is the lead of the best more than chance?"""
    S = len(c.seeds(best))
    if S < ENOUGH:
        few = "One seed has" if S == 1 else "Two seeds have nearly"
        return f"{few} no interval, so this order may be chance: ask for three or more."
    same = [n for n in rest if not apart(c, best, n)]
    if not same:
        lead = f"With {S} seeds its lead over every other method is larger"
        return f"{lead} than the uncertainty of the difference."
    alike = f"It cannot be told apart from {joined(same, 'or')} with {S} seeds"
    return f"{alike}: the 95\u202f% interval of the difference holds 0."


def apart(c, a, b):
    """Does the interval of the difference of two worst tenths, over the seeds that both
    have, leave out 0?
    """
    x, y = (dict(zip(c.seeds(n), worst(c, n))) for n in (a, b))
    both = [s for s in x if s in y]
    if len(both) < 2:
        return False
    i = paired([x[s] for s in both], [y[s] for s in both])
    return not i.lo <= 0 <= i.hi


def who_gains(c, name, against):
    """How many clients a method serves better and worse than another."""
    frame = c.paired(against, POINTS)
    of = frame[frame.method == name]
    n = of.change.value_counts().reindex(["gain", "loss"], fill_value=0)
    low = of.loc[of.difference.idxmin()]
    gain = f"{n.gain} of {len(of)} clients gain more than a point against {against}"
    most = f"; {low.client} loses most ({signed(low.difference)} points)"
    lose = f"{n.loss} lose more than a point{most if low.change == 'loss' else ''}"
    return f"Under {name}, {gain}, and {lose}."


# ---------------------------------------------------------------- tables
def ranking(c, order):
    """(heads, rows, how many columns hold numbers), best worst tenth first."""
    full = c.table
    measures = [k for k in full if k not in WORDS and not k.startswith("\u00b1")]
    measures.sort(key=lambda k: k != "worst 10 %")
    words = [k for k in WORDS if k in full]
    names = HEADS | {"worst 10 %": f"{tenth(c)}, %"}
    rows = []
    for name, row in full.loc[order].iterrows():
        digits = {k: 3 if k in ("Gini", "EO", "DP") else 1 for k in measures}
        halves = {
            k: half(row.get(f"\u00b1 {k}", math.nan), digits[k]) for k in measures
        }
        cells = [(f"{row[k]:.{digits[k]}f}", halves[k]) for k in measures]
        rows.append((name, *cells, *(row[k] for k in words)))
    heads = ["method", *(names.get(k, k) for k in (*measures, *words))]
    return heads, rows, len(measures)


def gains(c, others, against):
    """Client by client against one method: a chart, counts, and either end by name."""
    frame, counts = c.paired(against, POINTS), c.gains(against, POINTS)
    by = {n: frame[frame.method == n] for n in others}
    sums = [f"{n}: {counts.gain[n]} gain, {counts.loss[n]} lose." for n in others]
    alt = f"Difference to {against} of every client. {' '.join(sums)}"
    rows = [
        (n, *map(int, r[["gain", "same", "loss"]]), signed(r["mean"]), signed(r.lowest))
        for n, r in counts.loc[others].iterrows()
    ]
    d = {n: of.difference.to_numpy() for n, of in by.items()}
    return {
        "differences": differences(d, alt),
        "gains": rows,
        "ends": {
            n: ends(of.sort_values("difference", kind="stable")) for n, of in by.items()
        },
    }


def ends(of):
    """{lose, gain: rows of the clients that do so most}."""
    low, high = of[of.difference < 0], of[of.difference > 0][::-1]
    row = lambda r: (
        r["client"],
        (signed(r["difference"]), half(r.get("± difference", math.nan))),
        f"{r['accuracy']:.1f}",
        f"{r['rows']:,}",
    )
    sides = {"lose": low.head(EXTREMES), "gain": high.head(EXTREMES)}
    return {k: [row(r) for r in some.to_dict("records")] for k, some in sides.items()}


def cost(records):
    """Seconds of a run; bytes of a client in a round, up and down; of the whole run."""
    r = records[0]
    sent = dict.fromkeys(("up", "answer", "down", "ask"), 0.0)
    for way, tensors in r.meta.get("tensors", {}).items():
        for shape, kind, times in tensors.values():
            sent[way] += math.prod(shape) * getattr(torch, kind).itemsize * times
    sent = {way: n / max(1, r.meta["rounds"]) for way, n in sent.items()}
    up, down = sent["up"] + sent["answer"], sent["down"] + sent["ask"]
    took_part = (np.asarray(r.logs["cohort"]) >= 0).sum()
    seconds = np.mean([r.meta["seconds"] for r in records])
    return f"{seconds:.1f}", size(up), size(down), size((up + down) * took_part)


def uploads(record):
    """What a client sends: in words; names and sizes, the largest first."""
    found = []
    for way in ("up", "answer"):
        tensors = record.meta.get("tensors", {}).get(way, {})
        for name, entry in record.meta["bytes"].get(way, {}).items():
            top = name.partition(".")[0]
            paths = sorted(p for p in tensors if p == name or p.startswith(f"{name}."))
            of_model = top == "gap" and entry["values"] > 1
            words = "changes of model weights" if of_model else BY_NAME.get(top, name)
            found.append((entry["bytes"], paths or [name], words))
    found.sort(key=lambda e: (-e[0], e[1]))
    words = list(dict.fromkeys(w for *_, w in found))
    words += [CONTROL] * (record.meta["method"] == "Centralised")
    return joined(words or ["nothing"]), ", ".join(
        f"{short(paths)}\u00a0({size(n)})" for n, paths, _ in found
    )


def short(paths):
    """Names of tensors, a long list by its ends."""
    if len(paths) <= 4:
        return ", ".join(paths)
    return f"{paths[0]}, {paths[1]}, \u2026, {paths[-1]}: {len(paths)} tensors"


def settings(c, meta):
    """{name: value} of what all runs share."""
    n, every = meta["n"], meta["every"]
    commits = sorted({r.meta["commit"] for of in c.records.values() for r in of})
    shared = {k: c.settings[k] for k in ("network", "batch") if k in c.settings}
    return {
        "task": meta["task"],
        "data": meta["kind"],
        "rows": ", ".join(f"{sum(n[s]):,} {s}" for s in ("train", "val", "test")),
        "rounds": meta["rounds"],
        "clients scored": f"every {every} rounds" if every > 1 else "every round",
        "clients per round": meta["cohort"] or f"all {meta['clients']}",
        "seeds": ", ".join(map(str, c.seeds(next(iter(c.records))))),
        **shared,
        "precision": meta["precision"],
        "PyTorch": meta["torch"],
        "device": meta["device"],
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


def violins(c, order):
    """The distribution of client accuracies of every method."""
    medians = {n: np.median(100 * c.accuracies(n)) for n in order}
    each = ", ".join(f"{n} {v:.0f}" for n, v in medians.items())
    alt = f"Distribution of client accuracies, one violin per method. Medians: {each}."
    values = {n: 100 * c.accuracies(n) for n in order}

    def draw(ax):
        plots.violins(values, ax)
        ax.set_xlabel("test accuracy of a client, %")

    return drawn(draw, "clients", 0.9 + 0.42 * len(order), alt)


def curves(c, order):
    """[(what, svg, smoothing window in evaluations)] over the rounds."""
    both = (tenth(c), metrics.worst), ("mean over clients", metrics.mean_acc)
    return [(what, *curve(c, order, what, metric)) for what, metric in both]


def curve(c, order, what, metric):
    keys = {n: ("pre", c.seen(n), "test") for n in order}
    rounds = {n: c.records[n][0].rounds for n in order}
    lines = {n: [100 * metric(r[k]) for r in c.records[n]] for n, k in keys.items()}
    last = ", ".join(f"{n} {np.mean(v, 0)[-1]:.0f}" for n, v in lines.items())
    alt = f"Test accuracy over rounds, {what}. At the end: {last} percent."
    every = [int(r[1] - r[0]) for r in rounds.values() if len(r) > 1]
    wanted = max(1, round(WINDOW / max(every, default=1)))
    window = capped(wanted, min(map(len, rounds.values())))
    if len(lines) > BANDS:
        lines = {name: np.mean(v, 0) for name, v in lines.items()}

    def draw(ax):
        plots.curves_with_interval(rounds, lines, ax, window=window)
        ax.set_ylabel(f"{what}, %")

    return drawn(draw, what.replace(" ", "-"), plots.SIZE[1], alt), window


def differences(values, alt):
    """Each client's difference to another method {method: [C]}, percentage points: a
    row of dots per method, with a bar at the mean.
    """
    sides = [plots.PALETTE[k][0] for k in ("c1", "c2")]

    def draw(ax):
        for y, d in zip(label_rows(ax, list(values)), map(np.sort, values.values())):
            off = 0.6 * (np.arange(len(d)) * GOLDEN % 1 - 0.5)
            colour = np.select([d > POINTS, d < -POINTS], sides, plots.SOFT)
            ax.scatter(d, y + off, c=colour, s=10, linewidth=0, alpha=0.75, zorder=2)
            ax.vlines(d.mean(), y - 0.4, y + 0.4, color=plots.INK, lw=2, zorder=3)
        ax.axvline(0, color=plots.SOFT, lw=1, zorder=1)
        reach = 1.05 * max(np.abs(d).max() for d in values.values()) + 0.5
        ax.set_xlim(-reach, reach)
        ax.set_xlabel("\u2190 loses \u2003 percentage points \u2003 gains \u2192")

    return drawn(draw, "gains", 0.9 + 0.5 * len(values), alt)
