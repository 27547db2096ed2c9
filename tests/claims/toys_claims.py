"""Runs typed by hand, as rows of results/seeds, and verdicts by hand: Student's t, two
one-sided tests, Holm; p values of yes, no, above -margin and below margin, as
fedlib.measures.verdicts gives them."""

import numpy as np
import pandas as pd
from scipy.special import stdtr

from repro import claims, papers
from repro.claims import Values

PLACE = "synthetic_05_05"
LUCK = np.array([-2, 1, 0, 3, -2.0])  # what seeds share: pairing removes it
OWN = np.array([0.2, -0.1, 0.0, 0.1, -0.2])  # of one run
LEVEL = 0.0151  # of a verdict at one look, two-sided
BETTER = claims.better("mean_acc", PLACE, "FedGA", "FedAvg")


def table(values, metric="mean_acc", dataset=PLACE, luck=LUCK, **more):
    """Long rows of {"method|setting": mean, or values}; odd runs have noise of own."""
    base = {"paper": "fedga", "study": "synthetic", "dataset": dataset}
    base |= {"metric": metric, "rule": papers.about("fedga")["rule"]}
    base |= {"data": "synthetic", "tier": "small"}
    rows = []
    for k, (who, x) in enumerate(values.items()):
        method, _, setting = who.partition("|")
        if np.isscalar(x):
            x = x + luck + (k % 2) * np.resize(OWN, len(luck))
        run = base | {"method": method, "setting": setting} | more
        run["run_ids"] = [f"{method}{setting}{s}" for s in range(len(x))]
        rows.append(pd.DataFrame(run | {"seed": range(len(x)), "value": x}))
    return pd.concat(rows, ignore_index=True).astype({"value": float})


def world(x, base=80, **more):
    return table({"FedAvg": base, "FedGA": x}, **more)


def see(test, *tables, closed=None):
    return test(Values.of(pd.concat(tables), closed))


def above(d, least, width=0.0):
    """p of "the mean of d is above `least`"."""
    n, sd = len(d), np.std(d, ddof=1) if len(d) > 1 else 0
    if n < 5:
        return 1.0
    if np.ptp(d) <= 1e-12 * abs(d).max():
        return 0.0 if d[0] - width / 2 > least else 1.0
    return float(stdtr(n - 1, (least - d.mean()) / (sd / n**0.5)))


def positive(d, m=1):
    near = (above(d, -m, m), above(-d, -m, m)) if m else (1.0, 1.0)
    return above(d, 0, m), above(-d, 0, m), *near


def equal(d, m):
    inside = max(above(d, -m, m / 2), above(-d, -m, m / 2))
    apart = min(above(d, m, m / 2), above(-d, m, m / 2))
    return inside, apart, 1.0, 1.0


def all_of(parts):
    yes, no, low, high = zip(*parts)
    k = len(yes)
    return max(yes), min(1.0, k * min(no)), max(low), min(1.0, k * min(high))


def contrary(p):
    return p[1], p[0], p[3], p[2]


def any_of(parts):
    return contrary(all_of([contrary(p) for p in parts]))


def verdict(p):
    said = {"yes": p[0], "no": p[1], "alike": max(p[2:])}
    return next((k for k, x in said.items() if x < LEVEL / 2), "undecided")
