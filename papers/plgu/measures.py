"""What PLGU's tables hold: clients served worst and best, of each view of a model."""

import numpy as np
import pandas as pd

from fedlib.measures import metrics
from fedlib.study.results import MEASURES

TAILS = {  # each the mean of a group
    "acc_mean_pct": MEASURES["mean_acc"],
    "acc_lowest20_pct": lambda a: 100 * metrics.worst(a, 0.2),
    "acc_lowest5_pct": lambda a: 100 * metrics.worst(a, 0.05),
    "acc_top5_pct": lambda a: 100 * metrics.best(a, 0.05),
    "acc_min_over_clients_pct": lambda a: 100 * np.min(a, -1),
    "std_acc": MEASURES["std_acc"],
}


def views(run, names, measures, rules, setting=lambda c: c.setting):
    """Seeds of every view that a record holds, before training. names {view: what the
    paper calls it}, which comes first in the setting, as "personalised model;C=10";
    setting: what follows, from the cell.
    """
    out, ends = [], {c.id: setting(c) for c in run.cells}
    for view, name in names.items():
        rows = run.seeds(measures, rules, scored=("pre", view))
        words = [";".join(filter(None, (name, ends[i]))) for i in rows.run_ids]
        out.append(rows.assign(setting=words))
    return pd.concat(out, ignore_index=True)
