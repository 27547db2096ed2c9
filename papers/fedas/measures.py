"""What FedAS's tables hold; used by its notebooks."""

import numpy as np

from fedlib.measures import curves, metrics
from fedlib.study.results import MEASURES

TOP1 = {  # of the rows of all clients together, and of the clients served worst
    "top1_acc_pct": lambda a, n: 100 * metrics.pooled_acc(a, n),
    "worst10_acc": MEASURES["worst10_acc"],
}
BOTH = {k: MEASURES[k] for k in ("mean_acc", "worst10_acc")}  # over clients
FIVE = "FedBABU-5"  # FedBABU tuned for five passes, as FedAvg-FT


def apart(table):
    """Settings taken apart: beta (0.1 on the digits), P, and FIVE as a method."""
    part = lambda k: table.setting.str.extract(rf"{k}=([\d.]+)")[0].astype(float)
    method = table.method.mask(table.setting.str.endswith("tune=5"), FIVE)
    return table.assign(beta=part("beta").fillna(0.1), P=part("P"), method=method)


def early(rec, moment, view):
    """Mean over the first half of the rounds of the accuracy over all test rows, in
    percent: how fast. Gaps are bridged."""
    a = 100 * metrics.pooled_acc(rec[moment, view, "test"], rec.meta["n"]["test"])
    # rounds behind each evaluation
    trained = curves.whole(rec)[: len(a)] + (moment == "post")
    return float(np.interp(np.arange(1, rec.rounds[-1] // 2 + 1), trained, a).mean())
