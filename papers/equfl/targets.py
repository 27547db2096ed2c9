"""Which run stands in which column: EquFL and Regular are trained once for every metric
of a table, other methods once for all. Used by the notebooks of EquFL.

Functions from seeds to seeds (columns of results/seeds; see Study.biases). A run with
"target=EO" in its setting was trained to lower EO; with "target=Multi" or none, for no
metric in particular.
"""

import pandas as pd

from fedlib.measures.statistics import interval
from repro.ledger import ResultError

METRICS = ("EO", "DP", "CAL", "CON")
# ours -> the name in the paper's tables
PRINTED = {"Gaussian-update": "Gaussian", "Uniform-update": "Uniform"}


def parts(setting):
    """(target, the rest): "target=EO;rule=Median" -> ("EO", "rule=Median")."""
    pieces = [p for p in setting.split(";") if p]
    target = next((p.split("=")[1] for p in pieces if p.startswith("target=")), "")
    return target, ";".join(p for p in pieces if not p.startswith("target="))


def split(seeds):
    """The seeds with a column `target` ("" for none), which has left the setting, and
    methods as the paper prints them.
    """
    target, rest = ([parts(s)[k] for s in seeds.setting] for k in (0, 1))
    method = seeds.method.replace(PRINTED)
    return seeds.assign(target=target, setting=rest, method=method)


def own(seeds, metrics=METRICS):
    """Every metric from the run trained for it, or from one without a target."""
    return judging(split(seeds), metrics).drop(columns="target")


def judging(s, metrics=METRICS):
    """Of a split or named table what its runs are judged by: a run with a target by
    this metric, any other run by all of them.
    """
    own = (s.target == s.metric) | ~s.target.isin(METRICS)
    return s[s.metric.isin(metrics) & own]


def accuracies(seeds):
    """Accuracies with the setting "target=EO", ...: a run without a target stands in
    all four columns.
    """
    s, out = split(seeds), []
    for m in METRICS:
        mine = s[(s.metric == "accuracy") & s.target.isin(("", m))]
        ends = [";".join(filter(None, (rest, f"target={m}"))) for rest in mine.setting]
        out.append(mine.assign(setting=ends))
    return pd.concat(out).drop(columns="target")


def transfer(seeds):
    """All metrics of every run, the target in the method's name: EquFL-EO."""
    s = split(seeds)
    names = [f"{m}-{t}" if t else m for m, t in zip(s.method, s.target)]
    return s.assign(method=names).drop(columns="target")


def improvements(seeds, at=""):
    """By how many percent of the mean bias of FedAvg (at the setting `at`) each run
    lies below it at the same seed; negative: above. The mean over seeds is then the
    improvement of the mean.
    """
    by = ["dataset", "metric", "rule"]
    mine = (seeds.method == "FedAvg") & (seeds.setting == at)
    if not mine.any():
        raise ResultError(f"improvements: no seeds of FedAvg at {at!r}")
    base = seeds[mine].set_index([*by, "seed"]).value.rename("base")
    means = base.groupby(level=by).mean().rename("mean")
    s = seeds[~mine]
    both = s.join(base, [*by, "seed"]).join(means, by)
    gain = 100 * (both.base - both.value) / both["mean"]
    return s.assign(value=gain).dropna(subset="value")


# ---------------------------------------------------------------- rows of figures
CHANGED = {  # a part of a setting -> in words
    "labels=model": "relabelled once",
    "labels=each": "relabelled each round",
    "source=start": "unmatched rows",
    "source=real": "real rows",
}
RARE = 0.1  # an answer given at most this share as often as by the reference is lost


def rows(seeds):
    """split(seeds) with a column `row`: the method and what is changed, as in "EquFL,
    real rows", "Regular, mu 0.1", "EquFL-Multi"; papers/equfl/style.yaml has looks.
    """
    s = split(seeds)
    return s.assign(row=[*map(_row, seeds.method, s.target, s.setting)])


def _row(method, target, setting):
    aim = f"-{target}" if target and target not in METRICS else ""
    words = (CHANGED.get(p, p.replace("=", " ")) for p in setting.split(";") if p)
    return ", ".join([method + aim, *words])


def aims(scores):
    """From one row per run to one per run and metric that it is judged by.

    scores: rows(frames.biases(run, at=...)); several evaluations of a run are averaged.
    Columns: dataset, row, seed, accuracy, positive_rate, metric, bias. A run told to
    lower a metric is judged by this one, any other run by all four.
    """
    by = ["dataset", "row", "target", "seed"]
    values = [*METRICS, "accuracy", "positive_rate"]
    groups = scores.groupby(by, sort=False)[values]
    whole = groups.count().eq(groups.size(), axis=0)  # as Study.biases has it
    means = groups.mean().where(whole).reset_index()
    kept = [*by, "accuracy", "positive_rate"]
    long = means.melt(kept, METRICS, "metric", "bias")
    return judging(long).drop(columns="target").reset_index(drop=True)


def against(judged, reference="FedAvg"):
    """aims() beside the row `reference` of the same data set, metric and seed.

    New columns: gain, by how many percent of the reference's mean bias a run lies below
    it (the mean of the gains is the gain of the means; NaN where the reference has no
    bias); points, accuracy minus the reference's, in points; constant, see one_answer.
    """
    at = ["dataset", "metric", "seed"]
    base = judged[judged.row == reference].set_index(at)
    if base.empty:
        there = ", ".join(judged.row.unique())
        raise ResultError(f"against: no row {reference!r}; there are {there}")
    s = judged.join(base[["bias", "accuracy", "positive_rate"]].add_suffix("_base"), at)
    level = base.bias.groupby(level=at[:2]).mean().rename("level")
    level = judged.join(level, at[:2]).level
    return judged.assign(
        gain=100 * (s.bias_base - s.bias) / level.where(level > 0),
        points=100 * (s.accuracy - s.accuracy_base),
        constant=one_answer(s.positive_rate, s.positive_rate_base),
    )


def one_answer(yes, usual):
    """Is one of the two answers given at most RARE times as often as usual?"""
    return (yes <= RARE * usual) | (1 - yes <= RARE * (1 - usual))


def summary(compared):
    """against() by data set, metric and row: means over seeds; low and high, the 95 %
    t interval of the gain; constant, in how many of the `seeds`.
    """
    groups = compared.groupby(["dataset", "metric", "row"], sort=False)
    means = groups[["bias", "gain", "accuracy", "points", "positive_rate"]].mean()
    low, high = zip(*(_ends(v) for _, v in groups.gain))
    return means.assign(
        low=low,
        high=high,
        constant=groups.constant.sum(),
        seeds=groups.seed.nunique(),
    )


def _ends(v):
    return interval(v)[1:3] if v.notna().all() else (float("nan"),) * 2


def told(means):
    """summary() in words, for a table: ours, gain with its interval in percent,
    accuracy and share of yes in percent; "constant" where an answer is lost.
    """
    lost = zip(means.constant, means.seeds)
    return pd.DataFrame(
        {
            "ours": means.bias.map("{:.3f}".format),
            "gain, %": [*map(_gain, means.gain, means.low, means.high)],
            "accuracy, %": (100 * means.accuracy).map("{:.1f}".format),
            "yes, %": (100 * means.positive_rate).map("{:.1f}".format),
            "": [_lost(*of) for of in lost],
        },
        index=means.index,
    )


def _gain(mean, low, high):
    ends = f" [{round(low)}, {round(high)}]" if low < high else ""
    return f"{round(mean)}{ends}" if mean == mean else ""


def _lost(n, seeds):
    some = f" in {n} of {seeds}" if n < seeds else ""
    return f"constant{some}" if n else ""
