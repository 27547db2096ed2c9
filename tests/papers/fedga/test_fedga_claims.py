"""FedGA's claims: the list with its quotes, and every pattern in each verdict."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import yaml
from where import ROOT

from repro import artefacts, claims, ledger, papers
from repro.claims import Values, check_claims, declared, seen
from repro.metrics import METRICS

CLAIMS = {c.key.removeprefix("fedga-"): c for c in declared("fedga")}
S00, S05, CIFAR = "synthetic_0_0", "synthetic_05_05", "cifar01"
FAIR = ("q-FedAvg", "FedFa", "FedMGDA+", "FedFV", "FedGini")
RIVALS = ("FedAvg", "FedProx", *FAIR)
NOISE = np.array([-1.0, 0.5, 0.1, 0.8, -0.4])  # of five seeds


def runs(values, metric, dataset=S05, **more):
    """Long rows; values: {"method" or "method|setting": one number, or one a seed}."""
    row = {
        "paper": "fedga",
        "study": papers.main_study("fedga", dataset),
        "dataset": dataset,
        "metric": metric,
        "rule": "last10_mean",
        "data": "synthetic",
        "tier": "small",
    } | more
    return pd.DataFrame(
        row | {"method": method, "setting": setting, "seed": seed, "value": float(x)}
        for who, said in values.items()
        for method, _, setting in [who.partition("|")]
        for seed, x in enumerate(np.broadcast_to(said, 5))
    )


def check(key, table, **more):
    """The row of claims.csv of one claim."""
    return check_claims([CLAIMS[key]], table, **more).iloc[0]


# ---------------------------------------------------------------- the list
SIZES = {
    **{"us-gini-together": 1, "trigger-cheaper": 4, "weight-bounds": 1, "upload": 1},
    **{"trigger-and-validation-cheaper": 3, "alpha-one-uniform": 1, "best": 19},
    **{"avgdiff-example": 1, "best-on-all": 6, "average-rank-best_gini": 1},
    **{"mean-not-below-fedavg": 6, "mean-not-below-fair": 6, "delay-helps": 20},
    **{"delay-keeps-mean_acc": 2, "fedfv-faster-early": 1, "gini-fedavg": 3},
    **{"gini-level": 1, "train-80-by-40": 1, "alpha-u-shape": 5},
    **{"alpha-strong-end": 1, "fedprox-like-fedavg": 3, "fair-rival-helps": 12},
    **{"worst10-near-zero": 2, "fedmgda-weak-released-step": 1},
    **{"fedmgda-strong-step-1": 1, "uniform-beats-fedavg": 18, "beats-uniform": 6},
    **{"mostly-uniform": 12, "delay-nothing": 6, "best-tuned": 24, "alike": 75},
}


def test_no_family_lost_a_case():
    found = Counter(c.family.removeprefix("fedga-") for c in CLAIMS.values())
    assert found == SIZES and len(CLAIMS) == 244


def test_the_papers_claims_have_its_words():
    known = artefacts.names(ledger.read_reported())["fedga"] | {"Section 5"}
    for c in CLAIMS.values():
        assert c.artefact in known and c.text.endswith("."), c.key
        assert bool(c.quote) == bool(c.section) == (c.by == "paper"), c.key
        assert len(c.quote) <= 160 and c.quote == " ".join(c.quote.split()), c.key


# ---------------------------------------------------------------- every verdict
def on_all(d):
    """FedGA ahead of its rivals by d margins on every metric of best-on-all."""
    scores = ("mean_acc", "std_acc", "best_gini", "worst10_acc")
    return pd.concat(ahead(m, d * METRICS[m].margin) for m in scores)


def ahead(metric, d, rivals=RIVALS, base=0.5, **more):
    sign = 1 if METRICS[metric].better == "high" else -1
    base = base if METRICS[metric].margin < 0.1 else 100 * base
    mine = {"FedGA": base + sign * d}
    return runs(mine | dict.fromkeys(rivals, base), metric, **more)


def timing(d):
    """FedGA's trigger and its validation pass are each 10^d times cheaper."""
    of = {"dataset": CIFAR, "study": "timing", "rule": "run"}
    trigger = {"FedGini": 1, "FedGA": 10.0**-d}
    first = runs(trigger, "trigger_time_seconds", **of)
    return pd.concat([first, runs({"FedGA": 10.0**-d}, "validation_seconds", **of)])


def correlations(d):
    both = ("us_gini_pearson", "us_gini_spearman")
    return pd.concat(runs({"FedAvg": 0.5 + d}, m, S00, rule="run") for m in both)


def sweep(values, place=S05, study="sweep"):
    """{alpha: Gini coefficients}."""
    table = {f"FedGA|alpha={alpha}": x for alpha, x in values.items()}
    return runs(table, "best_gini", place, study=study)


def tuned(d):
    """FedGA ahead of its rivals, all at the winners of their grids, by d; FedAvg has
    none. In the main study FedGA is far behind.
    """
    table = ahead("best_gini", d).assign(study="tuned")
    table.loc[table.method == "FedAvg", "study"] = "synthetic"
    return pd.concat([table, runs({"FedGA": 0.9}, "best_gini")])


# claim -> (margin, runs in which the effect is d, whose runs it needs)
PATTERNS = {
    "best-best_gini-" + S05: (0.01, lambda d: ahead("best_gini", d), "FedGA"),
    "best-on-all-" + S05: (1, on_all, "FedGA"),
    "delay-helps-mean_acc-" + S05: (
        1,
        lambda d: ahead("mean_acc", d, ["FedGA_ablation"]),
        "FedGA_ablation",
    ),
    "us-gini-together-" + S00: (0.1, correlations, "FedAvg"),
    "gini-above-fedavg-fedfv-office10_alexnet": (
        0.05,
        lambda d: runs(
            {"FedFV": 0.5 - d},
            "share_rounds_gini_below_fedavg",
            "office10_alexnet",
            rule="run",
            data="stand-in",
        ),
        "FedFV",
    ),
    "alpha-u-shape-" + S05: (
        0.01,
        lambda d: sweep({1: 0.3, 2: 0.33, 5: 0.3 - d, 10: 0.3}),
        "FedGA",
    ),
    "best-tuned-best_gini-" + S05: (0.01, tuned, "FedGA"),
    "uniform-beats-fedavg-mean_acc-" + S05: (
        1,
        lambda d: runs({"Uniform": 80 + d, "FedAvg": 80}, "mean_acc"),
        "Uniform",
    ),
    "alpha-strong-end-office10_resnet18": (
        0.01,
        lambda d: sweep(
            {1: 0.3, 5: 0.3, 10: 0.3 - d}, "office10_resnet18", "sweep_images"
        ),
        "FedGA",
    ),
    "mostly-uniform-mean_acc-" + S05: (
        1,
        lambda d: runs({"FedAvg": 50, "Uniform": 60 + d / 2, "FedGA": 70}, "mean_acc"),
        "Uniform",
    ),
    "trigger-and-validation-cheaper-" + CIFAR: (
        np.log10(1.05),
        lambda d: timing(d + np.log10(2)),
        "FedGini",
    ),
    # against a bound, which leaves no room for "alike"
    "trigger-cheaper-" + CIFAR: (0, lambda d: timing(d + 2), "FedGini"),
    "mean-not-below-fedavg-" + S05: (
        0,
        lambda d: ahead("mean_acc", d - 1, ["FedAvg"]),
        "FedAvg",
    ),
    "mean-not-below-fair-" + S05: (
        0,
        lambda d: ahead("mean_acc", d - 1, FAIR),
        "FedGA",
    ),
}
# verdict -> mean and spread of the effect, in margins
EFFECTS = {"yes": (5, 0.1), "no": (-5, 0.1), "alike": (0, 0.1), "undecided": (0.5, 3)}


@pytest.mark.parametrize("key", PATTERNS)
@pytest.mark.parametrize("verdict", EFFECTS)
def test_a_pattern_reaches_each_verdict(key, verdict):
    margin, made, _ = PATTERNS[key]
    mean, spread = EFFECTS[verdict]
    effect = (margin or 1) * (mean + spread * NOISE)
    c = check(key, made(effect))
    if verdict == "alike" and not margin:
        verdict = "undecided"
    assert c.holds == verdict, c.evidence
    assert (c.effect > 0) == (verdict != "no") or verdict in ("alike", "undecided")
    few = made(effect)
    assert check(key, few[few.seed < 4]).holds == "undecided"


@pytest.mark.parametrize("key", PATTERNS)
def test_what_is_missing_is_not_run(key):
    margin, made, who = PATTERNS[key]
    table = made((margin or 1) * (5 + 0.1 * NOISE))
    rest = pd.concat([table[table.method != who], runs({"AFL": 1}, "mean_acc")])
    c = check(key, rest)
    assert c.holds == "not run" and who in c.evidence


@pytest.mark.parametrize("key", PATTERNS)
def test_below_the_gate_scores_are_not_testable(key):
    margin, made, _ = PATTERNS[key]
    table = made((margin or 1) * (5 + 0.1 * NOISE))
    place = table.dataset.iloc[0]
    closed = {("fedga", "small", place): "nothing is learnt"}
    unscored = key.startswith(("us-gini", "trigger"))  # no scores of a model
    c = check(key, table, closed=closed)
    assert c.holds == ("yes" if unscored else "not testable"), c.evidence
    assert c.reason == "" or "nothing is learnt" in c.reason and c.tier == "small"
    assert check(key, table, closed={("fedga", "paper", place): "x"}).holds == "yes"


def beside(method, study=""):
    """Runs of a method in which it is x margins away from its fellow, FedGA or FedAvg."""
    fellow = "FedAvg" if method == "FedProx" else "FedGA"
    here = {"study": study} if study else {}
    other = {} if method == "Uniform" else here

    def made(x, metric, place):
        level, margin = (0.3, 0.01) if metric == "best_gini" else (80, 1)
        mine = runs({fellow: level}, metric, place, **here)
        return pd.concat(
            [mine, runs({method: level + margin * x}, metric, place, **other)]
        )

    return made


# claim -> (its runs, metric)
NEAR = {
    "fedprox-like-fedavg-": (beside("FedProx"), "mean_acc"),
    "delay-nothing-best_gini-": (beside("FedGA_ablation"), "best_gini"),
    "alike-fedfv-best_gini-": (beside("FedFV", "tuned"), "best_gini"),
    "alike-q-fedavg-mean_acc-": (beside("q-FedAvg", "tuned"), "mean_acc"),
    "alike-uniform-mean_acc-": (beside("Uniform", "tuned"), "mean_acc"),
}


@pytest.mark.parametrize("key", NEAR)
@pytest.mark.parametrize(
    "x, holds",
    [
        (0.2 + 0.1 * NOISE, "yes"),
        (3 + 0.1 * NOISE, "no"),
        (-2 - 0.1 * NOISE, "no"),
        (3 * NOISE, "undecided"),
        (0, "not testable"),  # one computation
    ],
)
def test_within_a_margin(key, x, holds):
    made, metric = NEAR[key]
    c = check(key + S00, made(x, metric, S00))
    assert c.holds == holds, c.evidence
    assert check(key + S00, made(x, metric, S05)).holds == "not run"


def test_within_is_the_metrics_margin():
    """The words of the sentences, "a point", are those of repro.metrics."""
    path = ROOT / "papers/fedga/claims.yaml"
    scores = yaml.safe_load(path.read_text(encoding="utf-8"))["shared"]["scores"]
    said = {s["metric"]: s["margin"] for s in scores if "margin" in s}
    assert said == {m: METRICS[m].margin for m in said} and len(said) == 3


def test_a_tail_of_zeros_is_a_floor_unless_it_is_the_claim():
    zeros = dict.fromkeys(("FedGA", "FedGA_ablation", *RIVALS), 0)
    low = runs(zeros, "worst10_acc", S00)
    apart = ahead("mean_acc", 1, [m for m in zeros if m != "FedGA"], dataset=S00)
    low = pd.concat([low, apart])  # else they are one computation
    for key in ("best-worst10_acc-", "delay-helps-worst10_acc-"):
        c = check(key + S00, low)
        assert c.holds == "not testable" and "floor" in c.reason
    c = check("worst10-near-zero-fedavg-" + S00, low)
    assert c.holds == "yes" and "below by 5.00" in c.evidence


def test_one_lost_metric_refutes_best_on_all():
    table = on_all(5 + 0.1 * NOISE)
    worst = table.metric == "worst10_acc"
    table.loc[worst & (table.method == "FedFV"), "value"] = 99.0
    c = check("best-on-all-" + S05, table)
    assert c.holds == "no" and c.evidence.count("yes: ") == 3
    table.loc[worst, "value"] = 0.0
    assert check("best-on-all-" + S05, table).holds == "not testable"


@pytest.mark.parametrize("far, holds", [(0, "yes"), (4e-4, "yes"), (6e-4, "no")])
def test_the_example_rounds_to_the_printed_number(far, holds):
    table = runs({"FedGA": -0.012 + far}, "example_delta_avgdiff", "none", rule="run")
    assert check("avgdiff-example", table.head(1)).holds == holds


def test_properties_need_one_trial():
    made = runs({"FedGA": [0, 0, 1, 0, 0]}, "weight_bound_violations", "none")
    assert check("weight-bounds", made.head(1)).holds == "yes"
    assert check("weight-bounds", made).holds == "no"


@pytest.mark.parametrize(
    "key", ["gini-level-office10_alexnet", "train-80-by-40-office10_resnet18"]
)
def test_printed_levels_say_nothing_of_stand_ins(key):
    place = key.split("-")[-1]
    metric = {"gini": "gini_level_after_round_50", "train": "train_acc_by_round_40"}
    good, bad = {"gini": (0.105, 0.2), "train": (85, 60)}[key.split("-")[0]]
    for x, data, holds in (
        (good, "real", "yes"),
        (bad, "real", "no"),
        (good, "stand-in", "not testable"),
    ):
        values = {"FedGA": x * (1 + 0.01 * NOISE)}
        table = runs(values, metric[key.split("-")[0]], place, rule="run", data=data)
        c = check(key, table)
        assert c.holds == holds
        assert (c.holds == "not testable") == ("needs Office-Caltech-10" in c.reason)


def test_a_part_of_the_sweep_is_no_sweep():
    part = sweep({1: 0.3, 2: 0.2, 5: 0.3})
    f = seen(CLAIMS["alpha-u-shape-" + S05].test, Values.of(part))
    assert f.holds == "not run" and "alpha=10" in f.evidence
    ends = sweep({1: 0.3, 10: 0.3})
    assert check("alpha-u-shape-" + S05, ends).holds == "not run"


@pytest.mark.parametrize("sign, holds", [(1, "no"), (-1, "no"), (0, "alike")])
def test_a_slope_and_a_plateau_are_no_valley(sign, holds):
    """Falling or rising all the way; level but for less than the margin."""
    luck = np.random.default_rng(0).normal(0, 5e-4, (10, 5))
    table = sweep({a: 0.3 + 0.02 * sign * a + x for a, x in zip(range(1, 11), luck)})
    c = check("alpha-u-shape-" + S05, table)
    assert c.holds == holds, c.evidence


def test_ranks():
    places = (S00, S05, "synthetic_1_1", CIFAR, "office10_alexnet", "office10_resnet18")
    values = {m: 0.1 + 0.01 * i for i, m in enumerate(("FedGA", *RIVALS))}
    table = pd.concat(runs(values, "best_gini", p) for p in places)
    c = check("average-rank-best_gini", table)
    assert c.holds == "undecided" and "FedGA ranks 1.00" in c.evidence
    turned = table.assign(value=1 - table.value)
    assert check("average-rank-best_gini", turned).holds == "no"


# ---------------------------------------------------------------- the whole list
def world(sign):
    """FedGA is ahead of all others on every metric, or behind, everywhere."""
    scores = ("mean_acc", "std_acc", "worst10_acc", "best_gini", "gini_auc")
    scores += ("late_mean_acc", "test_acc_plateau", "top10_minus_bottom10")
    others = ("Uniform", "AFL", "FedGA_ablation", *RIVALS)
    return pd.concat(
        ahead(m, sign * 5 * METRICS[m].margin * 1.01**NOISE, others, dataset=p)
        for m in scores
        for p in papers.main_datasets("fedga")
        if p != "none"
    )


@pytest.mark.parametrize("sign, holds", [(1, "yes"), (-1, "no")])
def test_a_world_in_which_the_paper_is_right_or_wrong(sign, holds):
    about = ("best-", "delay-helps", "delay-keeps", "mean-not-", "beats-")
    some = [c for k, c in CLAIMS.items() if k.startswith(about) and "tuned" not in k]
    table = check_claims(some, world(sign))
    assert len(some) > 60 and set(table.holds) == {holds}
    assert (np.sign(table.effect) == sign).all() and (table.n_seeds == 5).all()


SCORES = ("mean_acc", "std_acc", "worst10_acc", "best_gini")
AT_BEST = (*SCORES, "top10_minus_bottom10", "std_acc_ddof1", "best_gini_m")
CURVES = (
    *("gini_auc", "late_mean_acc", "early_mean_acc", "test_acc_plateau"),
    *("us_gini_pearson", "us_gini_spearman", "share_rounds_gini_below_fedavg"),
    *("trigger_round", "gini_level_after_round_50", "train_acc_by_round_40"),
)
THEORY = (
    *("weight_bound_violations", "alpha_one_deviation", "extra_upload_bytes"),
    "example_delta_avgdiff",
)


CHOOSE = ("grid", "gate")  # of pilot seeds


@pytest.fixture(scope="module")
def planned():
    """Invented numbers for every run that params.yaml plans at tier paper, and for
    theory and timing.
    """
    from fedlib.study import studies

    path = ROOT / "papers/fedga/studies.yaml"
    plans = yaml.safe_load(path.read_text(encoding="utf-8"))["studies"]
    tables = []
    for study in (s for group in plans.values() for s in group if s not in CHOOSE):
        todo = studies.cells("fedga", study, ROOT / "params.yaml", "paper")[0]
        columns = ("dataset", "method", "setting", "seed", "data")
        base = pd.DataFrame([{k: getattr(c, k) for k in columns} for c in todo])
        base = base.assign(study=study, value=base.method.str.len().astype(float))
        tables += [
            base.assign(metric=m, rule=rule)
            for rule, metrics in (
                *(("last10_mean", AT_BEST), ("best_val", AT_BEST), ("last", SCORES)),
                *(("best_val_gini", SCORES), ("run", CURVES)),
            )
            for m in metrics
        ]
    for p in (S00, CIFAR, "office10_alexnet", "office10_resnet18"):
        of = {"dataset": p, "study": "timing", "rule": "run"}
        for m in ("trigger_time_seconds", "validation_seconds"):
            tables.append(runs({"FedGA": 1, "FedGini": 2 + 0.1 * NOISE}, m, **of))
    tables += [runs({"FedGA": 0}, m, "none", rule="run") for m in THEORY]
    return pd.concat(tables, ignore_index=True).assign(paper="fedga", tier="paper")


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS.values(), planned)
    assert list(t.key[t.holds == "not run"]) == []


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    """What is misspelt in deviations.yaml, or gone from params.yaml, would stay "not
    run" for ever.
    """
    entries = claims.read_deviations()
    mine = [d for d in entries if d["id"].startswith("FedGA-")]
    e = claims.effects(mine, planned)
    assert list(e.key[e.evidence == "not run"]) == []
