"""The table of the search: results/search.csv, and what figures and the page say of it.

Rows are methods, X+FT with fine-tuning for every client; each is judged at the winner
of its search by the measure that is compared.
"""

import functools
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from scipy import stats

from fedlib.core.engine import run
from fedlib.data import tasks
from fedlib.measures import metrics, verdicts
from fedlib.measures.statistics import interval
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.methods.others import FT
from fedlib.nets import MLP

RULE, CEILING, THREE = "last10_mean", "Centralised", "Best of three"
OF_THREE = ["Local", "FedAvg", "FedAvg+FT"]
JUDGED = {"mean": ("mean_acc", 1.0), "worst": ("worst10_acc", 2.0)}  # metric, margin
FAMILIES = ("base", "fair", "drift", "flat", "domains", "personal")


def family(row):
    """The family of a row's method, as the packages of fedlib.methods."""
    if row == THREE:
        return "base"
    return METHODS[row.removesuffix(FT)].__module__.split(".")[2]


def best_of_three(decided, seeds):
    """Rows of `seeds` for a user who runs Local, FedAvg and FedAvg+FT and takes, seed
    by seed, the one of the best validation rows."""
    out = []
    for by, measure in ("mean", metrics.mean_acc), ("worst", metrics.worst):
        part = decided.only(method=OF_THREE, setting=f"by={by}")
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
    Holm's correction; the ceiling is no row."""
    x = x.drop(columns=CEILING, errors="ignore")
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


def table(decided, seeds):
    """results/search.csv: one row per row of the search, task and winner."""
    how = {(c.method, c.dataset, c.setting): (c, r) for c, r in decided.of()}
    out = []
    for by, (metric, _) in JUDGED.items():
        for task, x in values(seeds, by).items():
            best = could_be_best(x)
            for row in x:
                less = {k: (x[row] - x[k]).mean() for k in ("FedAvg+FT", "Local")}
                c, r = how.get((row, task, f"by={by}"), (None, None))
                mean, lo, hi, n = interval(x[row])
                said = {"method": row, "task": task, "winner_by": by, "metric": metric}
                said |= {"mean": mean, "lo": lo, "hi": hi, "n_seeds": n}
                said |= {
                    "less_fedavg_ft": less["FedAvg+FT"],
                    "less_local": less["Local"],
                }
                said |= {"could_be_best": row in best, "setting": words(c)}
                said |= {"gradients": gradients(c) if c else None, "bytes": sent(r)}
                out.append(said)
    return pd.DataFrame(out)


def words(c):
    """What a winner's cell is set to, beside what its task says of all."""
    own = json.loads(c.kwargs) if c else {}
    return ";".join(f"{k}={v}" for k, v in own.items() if k not in ("batches", "last"))


def sent(r):
    """Bytes of the messages between the server and one client in a round."""
    sizes = r.meta["bytes"].values() if r else ()
    return sum(x["bytes"] for way in sizes for x in way.values()) if r else None


# ---------------------------------------------------------------- gradients
class Counted(MLP):
    """An MLP that counts the batches on which a gradient may be taken."""

    dense, seen = None, 0

    def feat(self, *args):
        Counted.seen += torch.is_grad_enabled()
        return super().feat(*args)


def gradients(c):
    """Gradients of a client in a round, of a cell's method at its setting: counted in
    the second and third round of two clients; scoring does not count."""
    return _gradients(c.method, c.kwargs)


@functools.cache
def _gradients(name, kwargs):
    data = {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "sizes": [160, 160]}
    task = tasks.build({"data": data, "network": {"name": "MLP", "hidden": 8}}, 0, "")
    net = task.network
    task = replace(task, network=Counted(net.inputs, net.hidden, net.K), batch=16)
    method, seen = make(name, task, **json.loads(kwargs) | {"lr": 0.001}), []
    for rounds in 1, 3:  # both are scored before round 0, and never again
        Counted.seen, how = 0, {"how": "loop", "every": 4, "splits": ("test",)}
        run(method, task, 3, upto=rounds, progress=False, **how)
        seen.append(Counted.seen)
    return (seen[1] - seen[0]) / 4


# ---------------------------------------------------------------- over tasks
def regret(seeds, by, draws=1000):
    """Points behind the best row of each task, the largest over the tasks: with its 90
    % interval over seeds drawn with replacement -> frame [rows]."""
    rng, each = np.random.default_rng(0), values(seeds, by)
    each = {t: x.drop(columns=CEILING, errors="ignore") for t, x in each.items()}
    behind = lambda x: x.mean().rsub(x.mean().max())

    def largest(draw):
        return pd.DataFrame({t: behind(draw(x)) for t, x in each.items()}).max(axis=1)

    again = lambda x: x.iloc[rng.integers(0, len(x), len(x))]
    found = pd.DataFrame([largest(again) for _ in range(draws)])
    ends = found.quantile([0.05, 0.95]).T.set_axis(["lo", "hi"], axis=1)
    return pd.concat([largest(lambda x: x).rename("regret"), ends], axis=1)
