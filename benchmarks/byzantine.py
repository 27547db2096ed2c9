"""Which rule helps against clients whose updates are finite and wrong? 325 short runs,
three minutes on one processor; what they gave is kept with the repository.

    python -m benchmarks.byzantine      results/byzantine.csv, one row per run, and
                                   results/byzantine-table.csv, as the book prints it

FedAvg with five rules of aggregation on digits, ten clients, of which none, one or
three lie in every round. Scored is the global model on the test rows of the honest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch

from fedlib.cli.program import program
from fedlib.core import engine
from fedlib.core.errors import Diverged
from fedlib.core.method import hp
from fedlib.core.random import normal
from fedlib.core.tree import tmap
from fedlib.data import tasks
from fedlib.measures import metrics
from fedlib.methods import FedAvg
from fedlib.pieces.robust import DeepSight, Mean, Median, MultiKrum, TrimmedMean
from fedlib.study.results import write

CLIENTS, ROUNDS, SEEDS = 10, 40, range(5)
LIARS = (1, 3)
DIVIDED = {"name": "dirichlet", "clients": CLIENTS, "alpha": 1.0, "least": 40}
TASK = {"data": {"name": "digits"}, "network": {"name": "MLP", "hidden": 32}}
# three liars of ten are what each rule is set to stand
RULES = {
    "Mean": Mean(),
    "Median": Median(),
    "TrimmedMean": TrimmedMean(trim=0.3),
    "MultiKrum": MultiKrum(bad=0.3),
    "DeepSight": DeepSight(inputs=200),
}
COLUMNS = ["attack", "liars", "rule", "seed", "mean", "worst"]


# ----------------------------------------------------------------------- the attacks
def flipped(w, honest, theirs, r):
    """A step of the same length in the opposite direction."""
    return tmap(lambda a, b: 2 * a - b, w, theirs)


def scaled(w, honest, theirs, r):
    """A step a hundred times as long."""
    return tmap(lambda a, b: a + 100 * (b - a), w, theirs)


def noise(w, honest, theirs, r):
    """Normal noise of standard deviation 1 in place of a step."""
    return tmap(torch.add, w, normal(r.key, theirs))


def little(w, honest, theirs, r):
    """All liars send one model: the honest mean, 1.5 standard deviations aside in each
    weight (Baruch et al. 2019), which is still among the honest ones."""
    aside = lambda h, b: (h.mean(0) - 1.5 * h.std(0)).expand_as(b)
    return tmap(aside, honest, theirs)


# f(server's model, honest models [M, ...], what the liars trained, round) -> what the
# liars send
ATTACKS = {
    "sign flip": flipped,
    "times 100": scaled,
    "noise": noise,
    "labels": None,  # honest training on wrong labels
    "a little": little,
}


@dataclass(frozen=True)
class Attacked(FedAvg):
    """FedAvg in which the first clients send something else than they have trained."""

    attack: str = hp("labels", "what liars send", values=tuple(ATTACKS))
    liars: int = hp(0, "how many clients lie, the first ones", values=(0, CLIENTS))

    def aggregate(self, server, up, r):
        lie, k = ATTACKS[self.attack], self.liars
        if lie is not None and k:
            theirs = tmap(lambda x: x[:k], up["w"])
            honest = tmap(lambda x: x[k:], up["w"])
            sent = lie(server["w"], honest, theirs, r)
            up = up | {"w": tmap(lambda a, b: torch.cat([a, b]), sent, honest)}
        return super().aggregate(server, up, r)


def mislabelled(task, k):
    """The task in which the training labels of the first k clients are turned round."""
    y = task.y.clone()
    for c in range(k):
        rows = task.train[c]
        y[rows] = task.K - 1 - y[rows]
    return replace(task, y=y)


def one(task, rule, attack, liars, seed):
    """(mean, worst tenth) of the honest clients' accuracy in percent; NaN: no finite
    model.

    attack: a key of ATTACKS; "nobody lies"; "away": the liars are not there.
    """
    lies, there = attack in ATTACKS, list(range(liars, CLIENTS))
    if attack == "labels":
        task = mislabelled(task, liars)
    lie = {"attack": attack, "liars": liars} if lies else {}
    method = Attacked(task=task, lr=0.1, rule=RULES[rule], **lie)
    plain = {"rounds": ROUNDS, "seed": seed, "every": ROUNDS, "progress": False}
    cohort = (lambda t: there) if attack == "away" else None
    try:
        record = engine.run(method, cohort=cohort, device="cpu", **plain)
    except Diverged:
        return np.nan, np.nan
    acc = 100 * record["pre", "global", "test"][-1][there]
    return acc.mean(), metrics.worst(acc)


def cases():
    """(attack, how many lie), in the order of the table."""
    yield "nobody lies", 0
    for liars in LIARS:
        for attack in ("away", *ATTACKS):
            yield attack, liars


def runs():
    """Every case by every rule and seed, one row each."""
    rows = []
    for seed in SEEDS:
        task = tasks.build(TASK | {"partition": DIVIDED | {"seed": seed}}, split=seed)
        for attack, liars in cases():
            for rule in RULES:
                got = one(task, rule, attack, liars, seed)
                rows.append((attack, liars, rule, seed, *got))
    return pd.DataFrame(rows, columns=COLUMNS)


def table(each):
    """Means over seeds for the page: a row per case, a column per rule, "mean (worst
    tenth)"; without a finite model, "diverges"."""
    keys = ["attack", "liars", "rule"]
    means = each.groupby(keys, sort=False)[["mean", "worst"]].mean()
    lost = each["mean"].isna().groupby([each[k] for k in keys], sort=False).any()
    cells = [
        "diverges" if bad else f"{m:.1f} ({w:.1f})"
        for m, w, bad in zip(means["mean"], means.worst, lost)
    ]
    cells = pd.Series(cells, means.index).unstack("rule")[[*RULES]]
    order = pd.MultiIndex.from_tuples(cases(), names=keys[:2])
    shown = cells.reindex(order).reset_index()
    return shown.rename(columns={"attack": "what liars send"})


def main():
    """Write both tables."""
    torch.set_num_threads(1)
    each = runs()
    write(each, "results/byzantine.csv")
    write(table(each), "results/byzantine-table.csv")


if __name__ == "__main__":
    program(main)
