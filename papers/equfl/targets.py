"""Which run stands in which column: EquFL and Regular are trained once for every metric
of a table, other methods once for all. Used by the notebooks of EquFL.

Functions from seeds to seeds (columns of results/seeds; see Study.biases). A run with
"target=EO" in its setting was trained to lower EO; with "target=Multi" or none, for no
metric in particular.
"""

from __future__ import annotations

import pandas as pd

from repro.ledger import ResultError

METRICS = ("EO", "DP", "CAL", "CON")
# ours -> the name in the paper's tables
PRINTED = {"Gaussian-update": "Gaussian", "Uniform-update": "Uniform"}


def parts(setting):
    """(target, the rest of the setting):
    "target=EO;rule=Median" -> ("EO", "rule=Median").
    """
    pieces = [p for p in setting.split(";") if p]
    target = next((p.split("=")[1] for p in pieces if p.startswith("target=")), "")
    return target, ";".join(p for p in pieces if not p.startswith("target="))


def split(seeds):
    """The seeds with a column `target` ("" for none), which has left the setting, and
    methods as the paper prints them.
    """
    both = [parts(s) for s in seeds.setting]
    return seeds.assign(
        target=[t for t, _ in both],
        setting=[rest for _, rest in both],
        method=seeds.method.replace(PRINTED),
    )


def own(seeds, metrics=METRICS):
    """Every metric from the run that was trained for it;
    from any run without such a target.
    """
    s = split(seeds)
    return s[
        s.metric.isin(metrics) & ((s.target == s.metric) | ~s.target.isin(METRICS))
    ].drop(columns="target")


def accuracies(seeds):
    """Accuracies with the setting "target=EO", ...:
    a run without a target stands in all four columns.
    """
    s = split(seeds)
    s = s[(s.metric == "accuracy") & (s.target.isin(METRICS) | (s.target == ""))]
    each = pd.concat(
        [s[(s.target == m) | (s.target == "")].assign(column=m) for m in METRICS]
    )
    ends = [
        ";".join(filter(None, (rest, f"target={m}")))
        for rest, m in zip(each.setting, each.column)
    ]
    return each.assign(setting=ends).drop(columns=["target", "column"])


def transfer(seeds):
    """All metrics of every run, the target in the method's name: EquFL-EO."""
    s = split(seeds)
    return s.assign(
        method=[f"{m}-{t}" if t else m for m, t in zip(s.method, s.target)]
    ).drop(columns="target")


def called(seeds, names):
    """The runs of {(method, setting): (printed method, printed setting)} alone, under
    these names. Raises ResultError.
    """
    out = []
    for (method, setting), (name, end) in names.items():
        mine = seeds[(seeds.method == method) & (seeds.setting == setting)]
        if mine.empty:
            raise ResultError(
                f"called: no seeds of {method} at {setting!r}; there are "
                f"{sorted(set(seeds.setting[seeds.method == method])) or 'none'}"
            )
        out.append(mine.assign(method=name, setting=end))
    return pd.concat(out, ignore_index=True)


def improvements(seeds, reference="FedAvg", at=""):
    """By how many percent of the mean bias of `reference` (at the setting `at`) each
    run lies below it at the same seed; negative: above. The mean over seeds is then the
    improvement of the mean.
    """
    by = ["dataset", "metric", "rule"]
    base = (
        seeds[(seeds.method == reference) & (seeds.setting == at)]
        .set_index([*by, "seed"])
        .value
    )
    if base.empty:
        raise ResultError(f"improvements: no seeds of {reference} at {at!r}")
    s = seeds[(seeds.method != reference) | (seeds.setting != at)]
    b = base.reindex(pd.MultiIndex.from_frame(s[[*by, "seed"]])).to_numpy()
    mean = base.groupby(level=by).mean().reindex(pd.MultiIndex.from_frame(s[by]))
    return s.assign(value=100 * (b - s.value.to_numpy()) / mean.to_numpy()).dropna(
        subset="value"
    )
