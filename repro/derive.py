"""Rows of seeds that are made of other rows, seed by seed: a difference to a rival, the
lowest of several, the best value of an axis, a run under another name; called by the
notebooks of papers, as repro.ledger.lead and so on.
"""

from __future__ import annotations

import math

import pandas as pd

from repro.metrics import METRICS
from repro.names import ResultError, axes, hint, pieces


def versus(seeds, metric="best_gini", method="FedAvg", name="delta_gini_vs_fedavg"):
    """The seeds with rows added: each method's metric minus that of `method` at the
    same seed, called `name`."""
    by = ["paper", "study", "dataset", "seed", "rule", "tier"]
    mine = seeds[seeds.metric == metric]
    base = mine[(mine.method == method) & (mine.setting == "")].set_index(by).value
    if base.empty:
        raise ResultError(
            f"versus: no {metric} of {method} in the seeds; "
            f"{hint(method, set(seeds.method))}"
        )
    other = mine[mine.method != method]
    delta = (
        other.value.to_numpy()
        - base.reindex(pd.MultiIndex.from_frame(other[by])).to_numpy()
    )
    other = other.assign(metric=name, value=delta).dropna(subset="value")
    return pd.concat([seeds, other], ignore_index=True)


def lead(seeds, method, rivals, name, metric="top1_acc_pct", new="delta_acc_points"):
    """The seeds with rows added: the metric of `method` minus that of its best rival,
    seed by seed, as method `name` and metric `new`.

    The best rival has the best mean over the seeds that are passed, at the same data
    set, rule, tier and point of the task (axes of the setting, which the added rows
    keep); so pass one seed alone where a paper has one. Raises ResultError.
    """
    mine = seeds[(seeds.metric == metric) & seeds.method.isin([method, *rivals])]
    mine = mine.assign(setting=[";".join(axes(how)) for how in mine.setting])
    sign, out = (-1 if METRICS[metric].better == "low" else 1), []
    for at, g in mine.groupby(["paper", "study", "dataset", "setting", "rule", "tier"]):
        if (twice := g.duplicated(["method", "seed"])).any():
            raise ResultError(
                f"lead: two runs of {g.method[twice].iloc[0]} with one seed at "
                f"{at[3]!r}; pass one of them"
            )
        own, other = g[g.method == method], g[g.method != method]
        if len(own) and len(other):
            best = (sign * other.groupby("method", sort=False).value.mean()).idxmax()
            value = (
                other[other.method == best].set_index("seed").value.reindex(own.seed)
            )
            out.append(
                own.assign(
                    method=name,
                    metric=new,
                    value=own.value.to_numpy() - value.to_numpy(),
                )
            )
    if not out:
        raise ResultError(
            f"lead: no {metric} of {method} beside one of {', '.join(rivals)} at one "
            "setting, rule and tier"
        )
    return pd.concat([seeds, pd.concat(out).dropna(subset="value")], ignore_index=True)


def lowest(seeds, methods, metric="acc_min_over_clients_pct"):
    """The seeds with rows added: the lowest value of several methods, point by point
    and seed by seed, under all their names, "PLGU-LF, PLGU-GRep". Only where every one
    of them has one; settings are compared by their axes. Raises ResultError.
    """
    mine = seeds[(seeds.metric == metric) & seeds.method.isin(methods)]
    # no variants of a method
    mine = mine[[pieces(how) == axes(how) for how in mine.setting]].reset_index(
        drop=True
    )
    by, out = ["paper", "study", "dataset", "setting", "seed", "rule", "tier"], []
    for _, g in mine.groupby(by):
        if set(g.method) == set(methods):
            out.append(g.loc[[g.value.idxmin()]].assign(method=", ".join(methods)))
    if not out:
        raise ResultError(
            f"lowest: at no setting and seed there is a {metric} of each of "
            f"{', '.join(methods)}"
        )
    return pd.concat([seeds, *out], ignore_index=True)


def peak(
    seeds,
    name="D",
    metric="acc_mean_pct",
    new="best_D",
    largest="largest_D",
    setting="global and personalised model",
    views=("global model", "personalised model"),
):
    """The seeds with rows added (rule "run"): along an axis of the settings ("D=0",
    "D=1", ...) the value at which the metric, averaged over the views, is best, seed by
    seed, and the largest value of the axis. Raises ResultError.
    """
    at = [
        {p.split("=")[0]: p.split("=")[1] for p in pieces(how) if "=" in p}
        for how in seeds.setting
    ]
    seen = [next((v for v in views if v in pieces(how)), None) for how in seeds.setting]
    mine = seeds.assign(
        at=[float(a[name]) if name in a else math.nan for a in at], view=seen
    ).reset_index(drop=True)
    mine = mine[(mine.metric == metric) & mine["at"].notna() & mine.view.notna()]
    if mine.rule.nunique() > 1:
        raise ResultError(
            f"peak: the seeds mix the rules {', '.join(sorted(set(mine.rule)))}; pass "
            "one"
        )
    sign, out = (-1 if METRICS[metric].better == "low" else 1), []
    for _, g in mine.groupby(["paper", "study", "dataset", "method", "seed", "tier"]):
        both = (
            g.pivot_table(index="at", columns="view", values="value")
            .reindex(columns=views)
            .dropna()
            .mean(axis=1)
        )
        if len(both) > 1:
            one = (
                g.iloc[[0]]
                .drop(columns=["at", "view"])
                .assign(setting=setting, rule="run")
            )
            out += [
                one.assign(metric=new, value=(sign * both).idxmax()),
                one.assign(metric=largest, value=both.index.max()),
            ]
    if not out:
        raise ResultError(
            f"peak: no {metric} of {' and '.join(views)} at two values of {name}"
        )
    return pd.concat([seeds, *out], ignore_index=True)


def renamed(seeds, names):
    """Some of the seeds under the names of a paper's table.

    names: {(method, part): (name, end)}: of our method, the runs whose setting is
    `part` ("by=size"; "" for the plain run) and axes of the task; these axes and `end`
    make the new setting. So {("FedAS", "by=size"): ("FedAS PA only", "PA=1;CS=0")}
    turns FedAS at "P=0.2;by=size" into FedAS PA only at "P=0.2;PA=1;CS=0". Raises
    ResultError.
    """
    out = []
    for (method, part), (name, end) in names.items():
        mine = seeds[seeds.method == method]
        fits = [
            set(pieces(how)) - set(axes(how)) == set(pieces(part))
            for how in mine.setting
        ]
        if not any(fits):
            raise ResultError(
                f"renamed: no seeds of {method} at {part!r}; there are "
                f"{sorted(set(mine.setting)) or 'none'}"
            )
        out.append(
            mine.assign(
                method=name,
                setting=[";".join(axes(how) + pieces(end)) for how in mine.setting],
            )[fits]
        )
    return pd.concat(out, ignore_index=True)
