"""Runs typed by hand, as rows of results/seeds."""

import numpy as np
import pandas as pd

from repro import papers
from repro.claims import Values

PLACE = "synthetic_05_05"
LUCK = np.array([-2, 1, 0, 3, -2.0])  # what seeds share: pairing removes it
OWN = np.array([0.2, -0.1, 0.0, 0.1, -0.2])  # of one run
WIDE = np.array([9, -9, 4, -4, 0.0])


def table(values, metric="mean_acc", dataset=PLACE, luck=LUCK, **more):
    """Long rows of {"method|setting": mean, or values}; odd runs have noise of their
    own."""
    base = {"paper": "fedga", "study": "synthetic", "dataset": dataset}
    base |= {"metric": metric, "rule": papers.about("fedga")["rule"]}
    base |= {"data": "synthetic", "tier": "small"}
    rows = []
    for k, (who, x) in enumerate(values.items()):
        method, _, setting = who.partition("|")
        if np.isscalar(x):
            x = x + luck + (k % 2) * np.resize(OWN, len(luck))
        run = base | {"method": method, "setting": setting} | more
        rows += [run | {"seed": s, "value": float(v)} for s, v in enumerate(x)]
    return pd.DataFrame(rows)


def see(test, *tables, closed=None):
    return test(Values.of(pd.concat(tables), closed))
