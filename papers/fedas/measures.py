"""What FedAS's tables hold."""

from fedlib.measures import metrics
from fedlib.study.results import MEASURES

TOP1 = {  # of the rows of all clients together, and of the clients served worst
    "top1_acc_pct": lambda a, n: 100 * metrics.pooled_acc(a, n),
    "worst10_acc": MEASURES["worst10_acc"],
}
BOTH = {k: MEASURES[k] for k in ("mean_acc", "worst10_acc")}  # over clients
