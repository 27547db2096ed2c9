"""What lies in the folders of papers: they are found, any can be taken away, metrics have
margins, deviations have effects; EquFL's tables, FedGA's theory; and what their special claims
are no test of."""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from toys_claims import PLACE, table

from repro import claims, papers
from repro.claims import Values, declared
from repro.metrics import METRICS


def test_papers_have_an_order_and_metrics_a_margin():
    assert papers.found() == ["fedga", "fedas", "plgu", "equfl", "fft-gp", "search"]
    assert papers.each("switches")["fedga"] == ()
    assert papers.union("axes", "views")[:4] == ("beta", "P", "E", "B")
    main = papers.main_study
    assert (main("fedga", "none"), main("fedga", "x")) == ("theory", "main")
    for name, m in METRICS.items():
        assert 0 <= m.margin < math.inf and m.bounds[0] < m.bounds[1], name
        assert (m.margin == 0) == (m.kind in ("setting", "exact")), name
    at = dict(mean_acc=1, acc_lowest20_pct=1, std_acc=1, log_ratio=math.log(1.05))
    at |= dict.fromkeys(("EO", "best_gini", "accuracy"), 0.01)
    at |= dict.fromkeys(("worst10_acc", "top10_minus_bottom10", "acc_lowest5_pct"), 2)
    at |= dict.fromkeys(("seconds", "bytes_up", "gini_auc"), 4)  # a twentieth
    assert {k: METRICS[k].margin_at(-80) for k in at} == pytest.approx(at)
    low, high = "std_acc best_gini EO DP CAL CON seconds bytes_up", "mean_acc accuracy"
    for better, names in (("low", low), ("high", high)):
        assert {METRICS[m].better for m in names.split()} == {better}


ENTRY = dict.fromkeys(("title", "where", "paper", "code", "ours", "why"), "w")
ENTRY |= {"id": "FedGA-1", "mark": "certain"}
EFFECT = {"dataset": PLACE, "metrics": ["mean_acc", "best_gini"]}
EFFECT |= {"ours": {"method": "FedGA"}, "other": {"method": "FedGA", "rule": "last"}}


def test_an_effect_is_ours_minus_other_seed_by_seed():
    ours, other = np.array([0.1, 0.2, 0.4]), np.array([0.2, 0.2, 0.5])
    last = table({"FedGA": [*other, 9]}, "best_gini", rule="last")
    s = pd.concat([table({"FedGA": ours}, "best_gini"), last])
    none = {"id": "FedGA-2", "unmeasured": "no data", "methods": ["AFL"]}
    entries = [ENTRY | {"effect": [EFFECT]}, ENTRY | none]
    better = s.assign(value=s.value * 2, tier="paper")
    for tables, tier, k in (([s], "small", 1), ([s, better], "paper", 2)):
        e = claims.effects(entries, pd.concat(tables))
        row, d = e.iloc[1], k * (ours - other)
        ends = stats.t.interval(0.95, 2, d.mean(), stats.sem(d))
        found = [row.effect, row.effect_lo, row.effect_hi, row.ours, row.other]
        assert np.allclose(found, [d.mean(), *ends, k * ours.mean(), k * other.mean()])
        assert (row.n_seeds, row.tier, e.evidence[0]) == (3, tier, "not run")
    t = claims.deviations(entries, e).set_index("key")
    assert list(t.status) == ["measured", "not measured"]
    assert list(t.methods) == ["FedGA", "AFL"] and t.metric["fedga-1"] == "best_gini"
    assert t.effect["fedga-1"] == pytest.approx(d.mean())


COLUMNS = "method setting seed EO DP accuracy positive_rate".split()
RUNS = [
    ("FedAvg", "", 0, 0.2, 0.4, 0.80, 0.3),
    ("FedAvg", "", 1, 0.4, 0.4, 0.90, 0.3),
    ("Gaussian-update", "", 0, 0.3, 0.4, 0.50, 0.03),
    ("Gaussian-update", "", 1, 0.3, 0.4, 0.50, 0.3),
    ("EquFL", "target=EO", 0, 0.1, 0.3, 0.79, 0.3),
    ("EquFL", "target=EO", 1, 0.2, 0.3, 0.90, 0.3),
    ("EquFL", "target=DP;source=real", 0, 0.1, 0.1, 0.79, 0.3),
    ("EquFL", "target=Sum", 0, 0.1, 0.1, 0.79, 0.3),
]


def test_which_run_stands_in_which_column():
    targets, gains = papers.module("equfl", "targets"), [100 / 3, 200 / 3]
    s = pd.DataFrame(RUNS, columns=COLUMNS).assign(dataset="toy", CAL=0.1, CON=0.0)
    s = targets.rows(s)
    judged = targets.aims(pd.concat([s, s.assign(EO=s.EO + 0.2)]))  # two evaluations
    by = judged.groupby("row").metric.agg(lambda v: " ".join(dict.fromkeys(v)))
    due = dict.fromkeys(["FedAvg", "Gaussian-update", "EquFL-Sum"], "EO DP CAL CON")
    assert dict(by) == due | {"EquFL": "EO", "EquFL, real rows": "DP"}
    assert np.allclose(judged[judged.row == "EquFL"].bias, [0.2, 0.3])
    compared = targets.against(targets.aims(s))
    of = compared.set_index(["row", "metric", "seed"]).sort_index()
    assert np.allclose(of.gain["EquFL", "EO"], gains)
    assert np.allclose(of.points["EquFL", "EO"], [-1, 0])
    assert of.gain["FedAvg", "CON"].isna().all()
    assert list(of.constant["Gaussian-update", "DP"]) == [True, False]
    assert not of.constant["FedAvg"].any()
    mean = targets.summary(compared).sort_index().loc["toy", "EO", "EquFL"]
    due = [50, *stats.t.interval(0.95, 1, 50, stats.sem(gains)), 2]
    assert np.allclose(mean[["gain", "low", "high", "seeds"]].to_numpy(float), due)
    # rows of seeds
    runs = {"FedAvg": [0.2, 0.4], "EquFL|target=EO;q=1": [0.1, 0.2]}
    runs |= {"EquFL|target=DP": [0.3, 0.3]}
    s = pd.concat([table(runs, "EO"), table(runs, "accuracy")])
    own, t = targets.own(s), targets.accuracies(s)
    due = {("FedAvg", "", "EO"), ("EquFL", "q=1", "EO")}
    assert {*zip(own.method, own.setting, own.metric)} == due
    due = {("FedAvg", f"target={m}") for m in targets.METRICS}
    due |= {("EquFL", "q=1;target=EO"), ("EquFL", "target=DP")}
    assert {*zip(t.method, t.setting)} == due
    assert set(targets.transfer(s).method) == {"FedAvg", "EquFL-EO", "EquFL-DP"}
    gain = targets.improvements(own)
    assert np.allclose(gain.value, gains) and set(gain.method) == {"EquFL"}


def test_fedgas_theory():
    theory = papers.module("fedga", "theory")
    bounds = [*theory.weight_bounds(20).values()]  # violations, and a deviation
    assert bounds == pytest.approx([0, 0], abs=1e-12)
    # the trigger asks for the mean of a window to fall by less than theta
    past = torch.ones(5) * 0.5
    for u, fired in ((0.5, True), (0.1, False)):
        now = [torch.full((3,), u**0.5)] * 2
        assert bool(theory.fedgini_trigger(now, past, 0.05)) == fired
    assert not theory.fedga_trigger(torch.full((4,), 0.3), past, 0.05)  # Gini 0


PLGU = papers.module("plgu", "claims")
MEAN = "acc_mean_pct"
LF, GHN = "PLGU-LF", "PLGU-GHN"
SHAKE = np.array([0.002, -0.001, 0, -0.003, 0.002])
named = cache(lambda paper: {c.key: c.test for c in declared(paper)})


def judged(paper, test, runs, kinds=None):
    """The verdict of a test on runs {(study, place, method, metric): {setting: [..]}}."""
    rule = papers.about(paper)["rule"]
    each = lambda x: dict(enumerate([x] * 5 if np.ndim(x) < 1 else x))
    made = {at: {(k, rule): each(x) for k, x in of.items()} for at, of in runs.items()}
    return claims.seen(test, Values(made, kinds or {}, paper))


def seen(paper, key, runs, kinds=None):
    return judged(paper, named(paper)[f"{paper}-{key}"], runs, kinds)


def test_a_regulariser_with_one_answer_has_no_bias():
    """One of the answers at most a tenth as often as FedAvg's, in most seeds."""
    at = "Income-Sex"
    for yes, holds in (
        (0.3, "no"), (0.0, "not testable"), (0.029, "not testable"), (0.04, "no"),
        (0.92, "no"), (0.94, "not testable"), ([0, 0, 0.3, 0.3, 0.3], "no"),
        ([0, 0, 0, 0.3, 0.3], "not testable"),
    ):  # fmt: skip
        how = "target=EO;mu=0.3"
        runs = {
            ("switches", at, "Regular", "EO"): {how: 0.01 + SHAKE},
            ("switches", at, "Regular", "positive_rate"): {how: yes},
            ("census", at, "FedAvg", "positive_rate"): {"": 0.3},
            ("census", at, "FedAvg", "EO"): {"": 0.3 + SHAKE},
            ("census", at, "EquFL", "EO"): {"target=EO": 0.1},
        }
        for key in ("beats-regular-eo-income-sex", "regular-minor-eo-income-sex"):
            assert seen("equfl", key, runs).holds == holds, (key, yes)


def test_a_bias_below_the_margin_cannot_be_lowered_and_digits_need_real_data():
    at = "census", "Income-Sex"
    for base, holds in ((0.009, "not testable"), (0.011, "yes")):
        runs = {(*at, "EquFL", "EO"): {"target=EO": base / 9 + SHAKE / 9}}
        runs[(*at, "FedAvg", "EO")] = {"": base}
        assert seen("equfl", "half-share-eo-income-sex", runs).holds == holds
    runs = {(*at, "EquFL", "EO"): {"target=EO": 0.1 + SHAKE}}
    runs |= {(*at, "FedAvg", "EO"): {"": 0.4}}
    runs |= {("cost", at[1], "EquFL-EO", "seconds_over_fedavg"): {"": 1 + SHAKE}}
    of = {"metric": MEAN, "methods": [LF], "view": "G", "rivals": ["FedAvg"]}
    words = "gain_mean_pct_points_over_best_baseline"
    gains = PLGU.gains_as_printed(words, {"p": [10]}, **of)
    bend = 0.1 * np.arange(5.0) ** 2
    plgu = {("main", "p", LF, MEAN): {"G;C=10": 9 + bend}}
    plgu |= {("main", "p", "FedAvg", MEAN): {"G;C=10": 1 + bend + [0, 0, 0.1, 0, 0]}}
    for kind, holds in (("real", "yes"), ("real, stand-in", "not testable")):
        kinds = {(s, at[1]): kind for s in ("census", "cost")}
        for key in ("share-eo-income-sex", "cost-similar-income-sex"):
            assert seen("equfl", key, runs, kinds).holds == holds, key
        assert judged("plgu", gains, plgu, {("main", "p"): kind}).holds == holds
