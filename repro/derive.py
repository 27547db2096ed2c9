"""Rows of seeds that are made of other rows, seed by seed: a difference to a rival, the
lowest of several, the best value of an axis, a run under another name; called by the
notebooks of papers, as repro.ledger.lead and so on.
"""

import pandas as pd

from repro.metrics import METRICS
from repro.names import ResultError, axes, hint, pieces


def with_rows(seeds, rows, none):
    """The seeds with rows added, frames; ResultError `none` where there are none."""
    if not rows:
        raise ResultError(none)
    return pd.concat([seeds, *rows], ignore_index=True)


def versus(seeds):
    """The seeds with rows added: each method's Gini coefficient minus that of FedAvg at
    the same seed."""
    by = ["paper", "study", "dataset", "seed", "rule", "tier"]
    mine = seeds[seeds.metric == "best_gini"]
    fedavg = mine.method == "FedAvg"
    base = mine[fedavg & (mine.setting == "")].set_index(by).value
    if base.empty:
        known = hint("FedAvg", set(seeds.method))
        raise ResultError(f"versus: no best_gini of FedAvg in the seeds; {known}")
    theirs = base.reindex(pd.MultiIndex.from_frame(mine[~fedavg][by])).to_numpy()
    other = mine[~fedavg].assign(metric="delta_gini_vs_fedavg")
    other["value"] -= theirs
    return with_rows(seeds, [other.dropna(subset="value")], "")


def lead(seeds, method, rivals, name, metric="top1_acc_pct", new="delta_acc_points"):
    """The seeds with rows added: the metric of `method` minus that of its best rival,
    seed by seed, as method `name` and metric `new`.

    The best rival has the best mean over the seeds that are passed, at the same data
    set, rule, tier and point of the task (axes of the setting, which the added rows
    keep); so pass one seed alone where a paper has one. Raises ResultError."""
    mine = seeds[(seeds.metric == metric) & seeds.method.isin([method, *rivals])]
    mine = mine.assign(setting=[";".join(axes(how)) for how in mine.setting])
    out = []
    for at, g in mine.groupby(["paper", "study", "dataset", "setting", "rule", "tier"]):
        if g.duplicated(["method", "seed"]).any():
            raise ResultError(f"lead: two runs of a method and seed at {at}; pass one")
        own, other = g[g.method == method], g[g.method != method]
        if len(own) and len(other):
            means = other.groupby("method", sort=False).value.mean()
            other = other[other.method == (METRICS[metric].sign * means).idxmax()]
            theirs = other.set_index("seed").value.reindex(own.seed).to_numpy()
            ahead = own.value.to_numpy() - theirs
            out.append(own.assign(method=name, metric=new, value=ahead))
    none = f"lead: no {metric} of {method} beside one of {', '.join(rivals)} anywhere"
    return with_rows(seeds, [x.dropna(subset="value") for x in out], none)


def lowest(seeds, methods, metric="acc_min_over_clients_pct"):
    """The seeds with rows added: the lowest value of several methods, point by point
    and seed by seed, under all their names, "PLGU-LF, PLGU-GRep". Only where every one
    of them has one; settings are compared by their axes. Raises ResultError."""
    mine = seeds[(seeds.metric == metric) & seeds.method.isin(methods)]
    # no variants of a method
    plain = [pieces(how) == axes(how) for how in mine.setting]
    mine = mine[plain].reset_index(drop=True)
    by = ["paper", "study", "dataset", "setting", "seed", "rule", "tier"]
    there = mine.groupby(by)["method"].transform("nunique")
    first = mine[there == len({*methods})].groupby(by)["value"].idxmin()
    low = mine.loc[first].assign(method=", ".join(methods))
    none = f"lowest: at no setting and seed is a {metric} of each: {', '.join(methods)}"
    return with_rows(seeds, [low] if len(low) else [], none)


def peak(seeds):
    """The seeds with rows added (rule "run"): along the settings "D=0", "D=1", ... the
    value at which the mean accuracy, averaged over global and personalised model, is
    best, seed by seed, as best_D, and the largest value. Raises ResultError."""
    views, metric = ("global model", "personalised model"), "acc_mean_pct"
    parts = seeds.setting.map(pieces)
    at = [next((p for p in own if p.startswith("D=")), "=nan") for own in parts]
    view = [next((v for v in views if v in own), None) for own in parts]
    mine = seeds.assign(at=[float(p.split("=")[1]) for p in at], view=view)
    mine = mine[(mine.metric == metric) & mine["at"].notna() & mine.view.notna()]
    if mine.rule.nunique() > 1:
        raise ResultError(f"peak: the seeds mix the rules {set(mine.rule)}; pass one")
    out = []
    for _, g in mine.groupby(["paper", "study", "dataset", "method", "seed", "tier"]):
        both = g.pivot_table(index="at", columns="view", values="value")
        both = both.reindex(columns=views).dropna().mean(axis=1)
        if len(both) > 1:
            one = g.iloc[[0]].drop(columns=["at", "view"])
            one = one.assign(setting="global and personalised model", rule="run")
            out.append(one.assign(metric="best_D", value=both.idxmax()))
            out.append(one.assign(metric="largest_D", value=both.index.max()))
    none = f"peak: no {metric} of {' and '.join(views)} at two values of D"
    return with_rows(seeds, out, none)


def renamed(seeds, names):
    """Some of the seeds under the names of a paper's table.

    names: {(method, part): (name, end)}: of our method, the runs whose setting is
    `part` ("by=size"; "" for the plain run) and axes of the task; these axes and `end`
    make the new setting. So {("FedAS", "by=size"): ("FedAS PA only", "PA=1;CS=0")}
    turns FedAS at "P=0.2;by=size" into FedAS PA only at "P=0.2;PA=1;CS=0". Raises
    ResultError."""
    out = []
    for (method, part), (name, end) in names.items():
        mine = seeds[seeds.method == method]
        left = [set(pieces(how)) - set(axes(how)) for how in mine.setting]
        mine = mine[[rest == set(pieces(part)) for rest in left]]
        if mine.empty:
            raise ResultError(f"renamed: no seeds of {method} at {part!r}")
        how = [";".join(axes(how) + pieces(end)) for how in mine.setting]
        out.append(mine.assign(method=name, setting=how))
    return pd.concat(out, ignore_index=True)
