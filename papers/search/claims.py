"""The tests of the search's claims that follow no pattern; claims.yaml names them."""

from dataclasses import replace
from itertools import permutations

import pandas as pd
from scipy.stats import kendalltau

from repro.claims import (
    NotRun,
    best,
    better,
    every,
    near,
    positive,
    testing,
    throughout,
)
from repro.claims.builders import equal


def flat(rows):
    """Lists of rows as one."""
    return [r for row in rows for r in (row if isinstance(row, list) else [row])]


def above(metric, place, method, rivals, setting, least):
    """No rival is above a row by -least or more; the row itself is no rival."""
    others = [r for r in flat(rivals) if r != method]
    return best(metric, place, others, method, least, setting=setting)


def since(seed, **of):
    """As `above`, on the seeds from one on: those before it have named the row."""
    new = lambda x: {s: y for s, y in x.items() if s >= seed}
    some = lambda runs: {how: new(x) for how, x in runs.items()}
    of = above(**of)
    return lambda v: of(replace(v, runs={k: some(x) for k, x in v.runs.items()}))


def within(metric, place, method, rivals, setting, margin):
    """Each rival is within the margin of a row."""
    at = lambda m: {"method": m, "setting": setting}
    return every(*(near(metric, place, at(r), at(method), margin) for r in rivals))


def again(metric, place, rows, setting, margin):
    """Each row is within the margin of itself, searched a second time."""
    return every(
        *(within(metric, place, r, [f"{r} again"], setting, margin) for r in rows)
    )


def beats(metric, places, method, rival, by):
    """A row is better than another one on each task."""
    a, b = ({"method": m, "setting": f"by={by}"} for m in (method, rival))
    return throughout({p: better(metric, p, a, b) for p in places})


def worst_tenths(v, place, rows, by="worst"):
    """The worst tenth of rows by seed [S, rows]. Raises NotRun."""
    get = lambda m: v.get("worst10_acc", m, place, f"by={by}")
    x = pd.DataFrame({m: get(m) for m in flat(rows)}).dropna()
    if not len(x):
        raise NotRun(f"{place}: no seed that all rows have")
    return x


def chosen_by(places, rows, margin):
    """On the mean over rows, the choice by worst tenth and by mean are alike."""

    def on(v, place):
        worst, mean = (worst_tenths(v, place, rows, by) for by in ("worst", "mean"))
        d = (worst - mean).dropna().mean(axis=1)
        return equal("worst10_acc", d, "by worst less by mean", margin)

    return throughout({p: testing(on)(p) for p in places})


@testing
def orders(v, places, rows):
    """tau(s, b): Kendall's tau of the order of seed s on a task with that of the other
    seeds on task b. Half of it on the same task is more than the mean over others."""
    x = {p: worst_tenths(v, p, rows) for p in places}
    seeds = sorted(set.intersection(*(set(t.index) for t in x.values())))
    tau = lambda s, a, b: kendalltau(x[a].loc[s], x[b].drop(s).mean()).statistic
    d = {}
    for s in seeds:
        same = [tau(s, p, p) for p in places]
        other = [tau(s, a, b) for a, b in permutations(places, 2)]
        d[s] = sum(same) / len(same) / 2 - sum(other) / len(other)
    return positive("kendall_tau", pd.Series(d), "half of the same task's tau")
