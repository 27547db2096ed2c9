"""What a million clients would need, from the fitted costs; nothing here is typed by
hand but the number of clients.

`basis` says where a number comes from: measured; computed (a product of sizes);
extrapolated from x to y along the fitted line, or in proportion where one client's work
is all there is (ResNet18). Times are CPU seconds of one thread.
"""

from __future__ import annotations

import itertools
import math
import statistics

import pandas as pd

from .fit import curve
from .points import ROWS, network, parameters

COLUMNS = ["method", "model", "quantity", "value", "low", "high", "unit", "basis"]
METHODS, NETS = (
    ("FedAvg", "Ditto"),
    {"softmax": "softmax regression", "resnet18": "ResNet18"},
)
FLOAT, LABEL = 4, 8  # bytes
EXTRA = 2  # rows for validation and test (see `points`)


def needed(table, clients=10**6, cohorts=(10, 1000)):
    """Rows of results/benchmarks-million.csv from the points of benchmarks-growth.csv;
    a curve that is not there is left out.
    """
    rows = []
    for net, method in itertools.product(NETS, METHODS):

        def add(quantity, values, unit, basis, head=(method, NETS[net])):
            rows.append([*head, quantity, *values, unit, basis])

        P, shape = parameters(net), network(net)[1]
        add("models of the server", same(FLOAT * P), "bytes", "computed")
        add(
            "models kept by clients",
            same(FLOAT * P * clients * (method == "Ditto")),
            "bytes",
            "computed",
        )
        row = FLOAT * math.prod(shape) + LABEL
        add(
            f"data, {ROWS + EXTRA} rows per client",
            same(row * (ROWS + EXTRA) * clients),
            "bytes",
            "computed",
        )
        (regression if net == "softmax" else deep)(table, method, clients, cohorts, add)
    return pd.DataFrame(rows, columns=COLUMNS)


def regression(table, method, clients, cohorts, add):
    """Along the lines of the axis of clients."""
    draw = drawing(table, clients)
    mib, round_, scored = (
        curve(table, "clients", method, m) for m in ("mib", "round", "scoring")
    )
    far = lambda c, to: f"extrapolated from {c.x[-1]:.0f} to {to} clients"
    if mib is not None and len(mib.x) > 2:
        add(
            "resident memory, data included",
            [v * 2**20 for v in mib.at(clients)],
            "bytes",
            far(mib, clients),
        )
    if round_ is None or scored is None or len(round_.x) < 3:
        return
    steady = round_.at(clients)
    wide = curve(table, "cohort", method, "round")
    for m in cohorts:
        if m == 10:
            add(
                "a round, cohort 10",
                plus(steady, draw[0]),
                "s",
                far(round_, clients) + draw[1],
            )
        elif wide is not None and len(wide.x) > 2:
            there = m in wide.x
            y = middle(wide.y[:, wide.x == m][:, 0]) if there else wide.at(m)
            how = (
                "measured at 1000 clients"
                if there
                else f"extrapolated from {wide.x[-1]:.0f} to {m} in the cohort"
            )
            add(f"a round, cohort {m}", plus(y, draw[0]), "s", how + draw[1])
    add("scoring every client once", scored.at(clients), "s", far(scored, clients))


def deep(table, method, clients, cohorts, add):
    """In proportion, from the one point with this network."""
    label = f"{method}, ResNet18"
    round_, scored = (
        curve(table, "parameters", label, m) for m in ("round", "scoring")
    )
    if round_ is None or scored is None:
        return
    few, draw = (
        int(
            table[(table.axis == "parameters") & (table.method == label)].clients.iloc[
                0
            ]
        ),
        drawing(table, clients),
    )
    for m in cohorts:
        how = (
            f"measured with {few} clients"
            if m == 10
            else f"extrapolated from 10 to {m} in the cohort, in proportion"
        )
        add(
            f"a round, cohort {m}",
            plus([v * m / 10 for v in middle(round_.y[:, 0])], draw[0]),
            "s",
            how + draw[1],
        )
    each = [v * clients / few for v in middle(scored.y[:, 0])]
    add(
        "scoring every client once",
        each,
        "s",
        f"extrapolated from {few} to {clients} clients, in proportion",
    )


def drawing(table, clients):
    """(seconds, how this was obtained) of drawing a cohort:
    it alone of a round grows with all clients.
    """
    c = curve(table, "clients", "drawing the cohort", "draw")
    if c is None:
        return 0.0, "; without drawing the cohort"
    if clients in c.x:
        return statistics.median(
            c.y[:, c.x == clients][:, 0]
        ), "; drawing the cohort measured"
    return c.at(clients)[
        0
    ], f"; drawing the cohort extrapolated from {c.x[-1]:.0f} to {clients}"


def same(v):
    return v, v, v


def middle(values):
    return statistics.median(values), min(values), max(values)


def plus(values, s):
    return [v + s for v in values]
