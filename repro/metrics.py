"""What is measured: its unit, and which direction is better; used by the ledger, the
claims and the book.

Here stands what fedlib measures for any method, and what several papers print. What one
paper alone measures stands in its metrics.yaml: {name: {better, unit, what}}.
"""

from __future__ import annotations

from typing import NamedTuple

import yaml

from repro import papers


class Metric(NamedTuple):
    """better: "high", "low", or "" for a number that is no score; unit: "%" and
    "accuracy" have a tolerance of 2 points."""

    better: str
    unit: str
    what: str


SHARED = {
    "mean_acc": Metric("high", "%", "mean over clients"),
    "val_acc": Metric("high", "%", "mean over clients, on validation rows"),
    "std_acc": Metric("low", "points", "population standard deviation over clients"),
    "worst10_acc": Metric(
        "high", "%", "mean of the lowest max(1, floor(C/10)) clients"
    ),
    "top10_acc": Metric("high", "%", "mean of the highest max(1, floor(C/10)) clients"),
    "top10_minus_bottom10": Metric("low", "points", "top10_acc - worst10_acc"),
    "best_gini": Metric("low", "", "Gini coefficient over clients, denominator m - 1"),
    "gini_auc": Metric("low", "", "sum over rounds of the smoothed test Gini"),
    "gini_level_after_round_50": Metric("low", "", "mean test Gini after round 50"),
    "early_mean_acc": Metric("high", "%", "mean test accuracy over rounds 1 to 50"),
    "late_mean_acc": Metric(
        "high", "%", "mean test accuracy over the rounds after 100"
    ),
    "learning_rate": Metric("", "", "setting"),
    "batch_size": Metric("", "", "setting"),
    "rounds": Metric("", "rounds", "setting"),
    "clients": Metric("", "count", "setting"),
    "samples": Metric("", "count", "setting"),
    "top1_acc_pct": Metric(
        "high",
        "%",
        "over all test rows, of the model and at the moment by which the method "
        "is judged",
    ),
    "seconds_over_fedavg": Metric("low", "", "time of a run over that of FedAvg"),
    "bytes_up": Metric("low", "bytes", "uploaded per client and round"),
    "bytes_down": Metric("low", "bytes", "downloaded per client and round"),
    "acc_mean_pct": Metric("high", "%", "mean over clients"),
    "acc_lowest5_pct": Metric("high", "%", "mean of the lowest 5% of the clients"),
    "acc_top5_pct": Metric("high", "%", "mean of the highest 5% of the clients"),
    "acc_min_over_clients_pct": Metric("high", "%", "accuracy of the worst client"),
}


def listed() -> dict[str, Metric]:
    """{name: Metric}, of SHARED and of the papers that are here."""
    found = dict(SHARED)
    for paper in papers.found():
        path = papers.folder() / paper / "metrics.yaml"
        text = path.read_text(encoding="utf-8") if path.exists() else "{}"
        for name, said in yaml.safe_load(text).items():
            if name in found:
                raise papers.PaperError(f"{path}: {name} is known already; rename it")
            found[name] = Metric(**{"better": "", "unit": ""} | said)
    return found


METRICS = listed()
