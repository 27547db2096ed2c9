"""The table of the search: results/search.csv, and what figures and the page say of it.

    python -m papers.search.table    results/search.csv -> fedlib/study/guide.csv

Rows are methods, X+FT with fine-tuning for every client; each is judged at the winner
of its search by the measure that is compared.
"""

import json

import numpy as np
import pandas as pd
from scipy import stats

from fedlib.cli.program import program
from fedlib.measures import metrics, verdicts
from fedlib.measures.statistics import interval
from fedlib.methods import METHODS
from fedlib.methods.others import FT
from fedlib.study import guide
from fedlib.study.once import once
from repro import cost

RULE, THREE, TWICE, AGAIN = "last10_mean", "Best of three", " 2x", " again"
CEILING = "Centralised"
CONTROLS = [CEILING, f"FedAvg{TWICE}", f"FedAvg{TWICE}{FT}"]
JUDGED = {"mean": ("mean_acc", 1.0), "worst": ("worst10_acc", 2.0)}  # metric, margin
COLUMNS = "method task winner_by metric mean lo hi n_seeds less_fedavg_ft less_local "
COLUMNS += "could_be_best setting gradients bytes"
FAMILIES = ("base", "fair", "drift", "flat", "domains", "personal")


def family(row):
    """The family of a row's method, as the packages of fedlib.methods."""
    if row == THREE:
        return "base"
    method = METHODS[row.replace(TWICE, "").removesuffix(FT)]
    return method.__module__.split(".")[2]


def doubled(method):
    """The row of a method with twice the batches."""
    return method.replace("FedAvg", f"FedAvg{TWICE}")


def seeds_of(decided, twice, again):
    """Every number of the studies, and of the best of three."""
    one, two, more = (run.seeds(rules=(RULE,)) for run in (decided, twice, again))
    two["method"], more["method"] = two.method.map(doubled), more.method + AGAIN
    every = pd.concat([one, two, more, best_of_three(decided, one)], ignore_index=True)
    return every.assign(study=decided.name)


def best_of_three(decided, seeds):
    """Rows of `seeds` for a user who runs Local, FedAvg and FedAvg+FT and takes, seed
    by seed, the one of the best validation rows."""
    out = []
    for by, measure in ("mean", metrics.mean_acc), ("worst", metrics.worst):
        part = decided.only(method=[*guide.THREE], setting=f"by={by}")
        val = part.validation(RULE, measure).sort_values("value", kind="stable")
        won = val.groupby(["dataset", "seed"]).tail(1)[["dataset", "seed", "method"]]
        some = seeds[seeds.setting == f"by={by}"]
        out.append(some.merge(won).assign(method=THREE))
    return pd.concat(out, ignore_index=True)


def values(seeds, by):
    """{task: values [S, rows]} of the measure by which a winner is judged."""
    of = (seeds.metric == JUDGED[by][0]) & (seeds.setting == f"by={by}")
    wide = lambda t: t.pivot(index="seed", columns="method", values="value")
    return {task: wide(t) for task, t in seeds[of].groupby("dataset", sort=False)}


def could_be_best(x):
    """The rows of x [S, rows] that no paired test puts below the leading one, after
    Holm's correction; controls are no rows."""
    x = x.drop(columns=CONTROLS, errors="ignore")
    top, n = x.mean().idxmax(), len(x)
    d = x.drop(columns=top).rsub(x[top], axis=0)
    error = d.std(ddof=1) / n**0.5
    p = pd.Series(stats.t.sf(d.mean() / error.clip(lower=1e-9), n - 1), d.columns)
    p = p.fillna(1.0).sort_values()
    open_ = np.maximum.accumulate(p * np.arange(len(p), 0, -1)) > verdicts.ALPHA
    return [top, *p.index[open_]]


def verdict(d, margin):
    """better, worse, alike or open, of differences d [S]."""
    said = verdicts.verdict(verdicts.single(np.asarray(d, float), margin, margin))
    return {"yes": "better", "no": "worse", "undecided": "open"}.get(said, said)


def table(decided, twice, seeds):
    """results/search.csv: one row per row of the search, task and winner."""
    how = {(c.method, c.dataset, c.setting): (c, r) for c, r in decided.of()}
    for c, r in twice.of():
        how[doubled(c.method), c.dataset, c.setting] = c, r
    one = {(c.method, c.kwargs): c for c, _ in how.values()}
    counts = once("search-gradients", decided.tier, gradients, [*one.values()])
    taken, out = dict(zip(one, counts)), []
    for by, (metric, _) in JUDGED.items():
        for task, x in values(seeds, by).items():
            best = could_be_best(x)
            for row in x:
                less = [(x[row] - x[k]).mean() for k in ("FedAvg+FT", "Local")]
                c, r = how.get((row, task, f"by={by}"), (None, None))
                cost = taken[c.method, c.kwargs] if c else None
                told = *interval(x[row]), *less, row in best, words(c), cost, sent(r)
                out.append((row, task, by, metric, *told))
    return pd.DataFrame(out, columns=COLUMNS.split())


# ---------------------------------------------------------------- the guide
WHY = {
    "alike": "clients do not differ",
    "three": "three digits each, equally many rows",
    "labels": "which digits, and how many rows",
    "teacher": "each learns from a teacher of its own",
    "few": "few rows, five digits each",
    "manners": "how an image looks",
    "people": "real people, by occupation and age",
}


def tasks_of(found):
    """fedlib/study/guide.csv of results/search.csv; each task is also placed beside the
    others alone, for the error of the guide."""
    rows = found[~found.method.isin([*CONTROLS, THREE])]
    of = {by: rows[rows.winner_by == by] for by in JUDGED}
    level = lambda by: of[by].pivot(index="task", columns="method", values="mean")
    mean, worst = level("mean"), level("worst")
    out = pd.DataFrame(map(guide.signs, mean.to_dict("index").values()), mean.index)
    out.columns = guide.SIGNS
    high = (
        of["worst"]
        .query("could_be_best and less_fedavg_ft > -2")  # what may diverge could be
        .sort_values("mean", ascending=False)
    )
    high = high[~high.setting.str.contains("tune=0")]  # that is the row without +FT
    some = lambda m: [*m[:6], *(k for k in m[6:] if k in guide.THREE)]
    high = high.groupby("task").method
    out["open"], out["first"] = high.size(), high.agg(some).str.join(", ")
    three = found[(found.method == THREE) & (found.winner_by == "worst")]
    out["three"] = worst.max(axis=1) - three.set_index("task")["mean"]
    for t in out.index if len(out) > 1 else ():
        near = guide.nearest(out.loc[t, guide.SIGNS], out.drop(t))["first"]
        first = near.iloc[0].split(",")[0]
        out.loc[t, "error"] = worst.loc[t].max() - worst.loc[t, first]
    out.insert(0, "why", out.index.map(WHY))
    return out.round(2).reset_index()


# ---------------------------------------------------------------- of one row
def words(c):
    """What a winner's cell is set to, beside what its task says of all."""
    own = json.loads(c.kwargs) if c else {}
    return ";".join(f"{k}={v}" for k, v in own.items() if k not in ("batches", "last"))


def sent(r):
    """Bytes of the messages between the server and one client in a round."""
    sizes = r.meta["bytes"].values() if r else ()
    return sum(x["bytes"] for way in sizes for x in way.values()) if r else None


def gradients(cells):
    """Gradients of a client in a round, of methods as in these cells."""
    return [cost.gradients(c.method, json.loads(c.kwargs)) for c in cells]


# ---------------------------------------------------------------- over tasks
def regret(seeds, by, draws=1000):
    """Points behind the best row of each task, the largest over the tasks: with its 90
    % interval over seeds drawn with replacement -> frame [rows]."""
    rng, behind = np.random.default_rng(0), []
    for x in values(seeds, by).values():
        x = x.drop(columns=CONTROLS, errors="ignore")
        at = rng.integers(0, len(x), (draws + 1, len(x)))
        at[0] = range(len(x))  # the seeds as they are
        level = pd.DataFrame(x.to_numpy()[at].mean(axis=1), columns=x.columns)
        behind.append(level.rsub(level.max(axis=1), axis=0))
    largest = pd.concat(behind).groupby(level=0).max()
    ends = largest[1:].quantile([0.05, 0.95]).T.set_axis(["lo", "hi"], axis=1)
    return pd.concat([largest.loc[0].rename("regret"), ends], axis=1)


def main():
    """write what the guide of fedlib knows, from results/search.csv"""
    known = tasks_of(pd.read_csv("results/search.csv"))
    known.to_csv(guide.TASKS, index=False, lineterminator="\n")


if __name__ == "__main__":
    program(main)
