"""Exponents: the slope of log y against log x over the upper range of a curve.

y = a + b x^p is ill-posed: a and p explain the same bend. So p is fitted where x is
large, and a only named where it shows: what the smallest point costs more than the
fitted line. An interval is the lowest and highest slope over the repetitions.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

import numpy as np
import pandas as pd

VISIBLE = 0.2  # a fixed cost is named from this share of the smallest point on
COLUMNS = [
    "axis",
    "method",
    "measure",
    "exponent",
    "low",
    "high",
    "from",
    "to",
    "points",
    "at_one",
    "fixed",
]
LEAST_MIB = 1  # below that, what is resident is the allocator's business


class Curve(NamedTuple):
    """x [n] increasing; y [k, n], one row per repetition."""

    x: np.ndarray
    y: np.ndarray

    def upper(self):
        """Only the points above the middle of the logarithmic axis,
        at least the last three.
        """
        n = max(
            int((self.x >= math.sqrt(self.x[0] * self.x[-1])).sum()),
            min(3, len(self.x)),
        )
        return Curve(self.x[-n:], self.y[:, -n:])

    def lines(self):
        """[(p, log b)] per repetition, over all points of this curve."""
        return [np.polyfit(np.log(self.x), np.log(y), 1) for y in self.y]

    def at(self, x):
        """(median, low, high) over repetitions of what the fitted lines of the upper
        range give at x.
        """
        values = [math.exp(p * math.log(x) + b) for p, b in self.upper().lines()]
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
    return (
        Curve(t.x.to_numpy(float), y) if len(t) and y.size and (y > 0).all() else None
    )


def fits(table):
    """One row per curve of three points or more.

    at_one = b; fixed = a in the curve's unit, where it shows.
    """
    rows = []
    for axis, method in (
        table[["axis", "method"]].drop_duplicates().itertuples(index=False)
    ):
        here = table[(table.axis == axis) & (table.method == method)]
        for measure in [*here.measure.dropna().unique(), "mib"]:
            c = curve(table, axis, method, measure)
            if c is None or len(c.x) < 3:
                continue
            part = c.upper()
            slopes, heights = zip(*part.lines())
            p, b = statistics.median(slopes), math.exp(statistics.median(heights))
            first = statistics.median(c.y[:, 0])
            over = first - b * c.x[0] ** p if len(part.x) < len(c.x) else 0
            one = len(slopes) == 1
            rows.append(
                [
                    axis,
                    method,
                    measure,
                    p,
                    None if one else min(slopes),
                    None if one else max(slopes),
                    part.x[0],
                    part.x[-1],
                    len(part.x),
                    b,
                    over if over > VISIBLE * first else None,
                ]
            )
    return pd.DataFrame(rows, columns=COLUMNS)
