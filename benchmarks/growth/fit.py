"""Exponents: the slope of log y against log x over the upper range of a curve.

y = a + b x^p is ill-posed: a and p explain the same bend. So p is fitted where x is
large, and a only named where it shows: what the smallest point costs more than the
fitted line. An interval is the lowest and highest slope over the repetitions.
"""

from __future__ import annotations

import itertools
import math
import statistics
from typing import NamedTuple

import numpy as np
import pandas as pd

from fedlib.nets import MLP, Linear, ResNet18

VISIBLE = 0.2  # a fixed cost is named from this share of the smallest point on
COLUMNS = ["axis", "method", "measure", "exponent", "low", "high", "from", "to"]
COLUMNS += ["points", "at_one", "fixed"]
LEAST_MIB = 1  # below that, what is resident is the allocator's business
ROWS, BATCH, EXTRA = 8, 4, 2  # rows of a client: training, in a batch, other splits
METHODS = ("FedAvg", "Ditto")
NETS = {"softmax": "softmax regression", "resnet18": "ResNet18"}


def network(name):
    """(network, shape of a row); name: softmax, resnet18 or mlp-WIDTH."""
    if name == "softmax":
        return Linear(60, 10), (60,)
    if name == "resnet18":
        return ResNet18(10, stem="cifar", norm="group"), (3, 32, 32)
    return MLP(784, int(name.removeprefix("mlp-")), 10), (784,)


def parameters(name):
    """How many parameters a network has."""
    return sum(v.numel() for v in network(name)[0].init(0).values())


class Curve(NamedTuple):
    """x [n] increasing; y [k, n], one row per repetition."""

    x: np.ndarray
    y: np.ndarray

    def upper(self):
        """Only the points above the middle of the logarithmic axis,
        at least the last three.
        """
        n = int((self.x >= math.sqrt(self.x[0] * self.x[-1])).sum())
        n = max(n, min(3, len(self.x)))
        return Curve(self.x[-n:], self.y[:, -n:])

    def lines(self):
        """[(p, log b)] per repetition, over all points of this curve."""
        return [np.polyfit(np.log(self.x), np.log(y), 1) for y in self.y]

    def at(self, x):
        """(median, low, high) over repetitions of what was measured at x, else of what
        the fitted lines of the upper range give there.
        """
        if x in self.x:
            return middle(self.y[:, self.x == x][:, 0])
        lines = self.upper().lines()
        return middle([math.exp(p * math.log(x) + b) for p, b in lines])


def middle(values):
    return statistics.median(values), min(values), max(values)


def curve(table, axis, method, measure):
    """The curve of a table (see `__main__`), points without a number left out; measure
    may be "mib". None if there is none.
    """
    t = table[(table.axis == axis) & (table.method == method)].sort_values("x")
    if measure == "mib":
        t = t[t.mib.ge(LEAST_MIB)].drop_duplicates("x")
        y = t.mib.to_numpy(float)[None]
    else:
        t = t[(t.measure == measure) & t["median"].notna()]
        each = [list(map(float, str(e).split())) for e in t.each]
        k = min(map(len, each), default=0)
        y = np.array([e[:k] for e in each], float).reshape(len(each), k).T
    usable = len(t) and y.size and (y > 0).all()
    return Curve(t.x.to_numpy(float), y) if usable else None


def fits(table):
    """One row per curve of three points or more.

    at_one = b; fixed = a in the curve's unit, where it shows.
    """
    rows = []
    for (axis, method), here in table.groupby(["axis", "method"], sort=False):
        for measure in [*here.measure.dropna().unique(), "mib"]:
            c = curve(table, axis, method, measure)
            if c is None or len(c.x) < 3:
                continue
            part = c.upper()
            slopes, heights = zip(*part.lines())
            p, b = statistics.median(slopes), math.exp(statistics.median(heights))
            first = statistics.median(c.y[:, 0])
            over = first - b * c.x[0] ** p if len(part.x) < len(c.x) else 0
            ends = (min(slopes), max(slopes)) if len(slopes) > 1 else (None, None)
            fixed = over if over > VISIBLE * first else None
            at = part.x[0], part.x[-1], len(part.x), b, fixed
            rows.append([axis, method, measure, p, *ends, *at])
    return pd.DataFrame(rows, columns=COLUMNS)


# ---------------------------------------------------------------- a million clients
def needed(table, clients=10**6, cohorts=(10, 1000)):
    """What so many clients would need: rows of results/benchmarks-million.csv.

    `basis` says where a number comes from: measured; computed (a product of sizes);
    extrapolated from x to y along the fitted line, or in proportion where one client's
    work is all there is (ResNet18). Times are CPU seconds of one thread. A curve that
    is not there is left out.
    """
    rows = []
    for net, method in itertools.product(NETS, METHODS):
        size, row = 4 * parameters(net), 4 * math.prod(network(net)[1]) + 8
        held = size * clients * (method == "Ditto")
        sizes = {"models of the server": size, "models kept by clients": held}
        sizes[f"data, {ROWS + EXTRA} rows per client"] = row * (ROWS + EXTRA) * clients
        found = [(k, (v, v, v), "bytes", "computed") for k, v in sizes.items()]
        found += (regression if net == "softmax" else deep)(
            table, method, clients, cohorts
        )
        rows += [[method, NETS[net], k, *v, unit, how] for k, v, unit, how in found]
    columns = ["method", "model", "quantity", "value", "low", "high", "unit", "basis"]
    return pd.DataFrame(rows, columns=columns)


def regression(table, method, clients, cohorts):
    """Along the lines of the axis of clients."""
    draw, draw_how = drawing(table, clients)
    known = [curve(table, "clients", method, m) for m in ("mib", "round", "scoring")]
    mib, steady, scored = known
    far = lambda c: f"extrapolated from {c.x[-1]:.0f} to {clients} clients"
    if mib is not None and len(mib.x) > 2:
        held = [v * 2**20 for v in mib.at(clients)]
        yield "resident memory, data included", held, "bytes", far(mib)
    if steady is None or scored is None or len(steady.x) < 3:
        return
    wide = curve(table, "cohort", method, "round")
    for m in cohorts:
        if m == 10:
            took, how = steady.at(clients), far(steady)
        elif wide is not None and len(wide.x) > 2:
            took, how = wide.at(m), "measured at 1000 clients"
            if m not in wide.x:
                how = f"extrapolated from {wide.x[-1]:.0f} to {m} in the cohort"
        else:
            continue
        yield f"a round, cohort {m}", [v + draw for v in took], "s", how + draw_how
    yield "scoring every client once", scored.at(clients), "s", far(scored)


def deep(table, method, clients, cohorts):
    """In proportion, from the one point with this network."""
    label = f"{method}, ResNet18"
    known = [curve(table, "parameters", label, m) for m in ("round", "scoring")]
    if None in known:
        return
    here = table[(table.axis == "parameters") & (table.method == label)]
    few, (draw, draw_how) = int(here.clients.iloc[0]), drawing(table, clients)
    took, scored = (middle(c.y[:, 0]) for c in known)
    for m in cohorts:
        how = f"extrapolated from 10 to {m} in the cohort, in proportion"
        how = f"measured with {few} clients" if m == 10 else how
        values = [v * m / 10 + draw for v in took]
        yield f"a round, cohort {m}", values, "s", how + draw_how
    how = f"extrapolated from {few} to {clients} clients, in proportion"
    yield "scoring every client once", [v * clients / few for v in scored], "s", how


def drawing(table, clients):
    """(seconds, how this was obtained) of drawing a cohort:
    it alone of a round grows with all clients.
    """
    c = curve(table, "clients", "drawing the cohort", "draw")
    if c is None:
        return 0.0, "; without drawing the cohort"
    how = (
        "measured"
        if clients in c.x
        else f"extrapolated from {c.x[-1]:.0f} to {clients}"
    )
    return c.at(clients)[0], f"; drawing the cohort {how}"
