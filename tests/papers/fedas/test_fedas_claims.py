"""FedAS's claims and deviations: the list with its quotes, every pattern in each
verdict, and whatever params.yaml plans.
"""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import check_claims, declared

ACC = "top1_acc_pct"
CLAIMS = {c.key.removeprefix("fedas-"): c for c in declared("fedas")}
REPORTED = ledger.read_reported()
PRINTED = REPORTED[(REPORTED.paper == "fedas") & (REPORTED.artefact != "Table 4")]
RIVALS = sorted({m for m in PRINTED.method if not m.startswith("FedAS")})
FEW, MOST, ALL = (f"beta=0.1;P={P}" for P in (0.2, 0.6, 1))
NOISE = np.array([-1.0, 0.5, 0.1, 0.8, -0.4])  # of five seeds
TRACES = ("trace_rank_correlation", "trace_rows_rank_correlation")
RATIOS = (
    "trace_stragglers_over_online",
    "trace_mean_stragglers_over_online",
    "weight_stragglers_over_online",
)
DROPS = ("acc_drop_top5_points", "acc_drop_random5_points")


def runs(values, place="CIFAR-10", study="", metric=ACC, **more):
    """Long rows; values: {"method" or "method|setting": one number, or one a seed}."""
    row = {
        "paper": "fedas",
        "study": study or papers.main_study("fedas", place),
        "dataset": place,
        "metric": metric,
        "rule": "last10_mean" if metric in (ACC, "worst10_acc") else "run",
        "data": "real" if place == "digits" else "stand-in",
        "tier": "small",
    } | more
    return pd.DataFrame(
        row | {"method": method, "setting": setting, "seed": seed, "value": float(x)}
        for who, said in values.items()
        for method, _, setting in [who.partition("|")]
        for seed, x in enumerate(np.broadcast_to(said, 5))
    )


def check(key, *tables, **more):
    """The row of claims.csv of one claim."""
    return check_claims([CLAIMS[key]], pd.concat(tables), **more).iloc[0]


# ---------------------------------------------------------------- the list
SIZES = {
    **{"best": 28, "best-everywhere": 3, "robust-to-stragglers": 3, "fast": 3},
    **{"steadier-than-rivals": 3, "fairest": 3, "average-rank": 1, "beats-local": 9},
    **{"fine-tuning-helps": 3, "beats-fine-tuning": 9, "gain-beyond-download": 9},
    **{"beats-babu5": 9, "align-strength": 3, "align-strength-flat": 3},
    **{"who-downloads-matters": 3, "rule-flatters": 3, "fedavg-p-rises": 3},
    **{"fedbabu-flat": 3, "easier-when-skewed": 2, "pa-helps": 8, "cs-helps": 8},
    **{"both-help": 8, "pa-helps-same-download": 6, "cs-helps-same-download": 6},
    **{"alignment-moves-less": 2, "serial-beats-parallel": 2, "own-beats-global": 2},
    **{"aligning-helps": 2, "class-means-or-samples": 2, "top-parameters-matter": 2},
    **{"top-parameters-catastrophic": 2, "random-parameters-minor": 2},
    **{"trace-rises": 2, "trace-rises-per-row": 2, "stragglers-lower-trace": 2},
    **{"stragglers-lower-weight": 2, "stragglers-lower-trace-per-batch": 2},
    **{"weights-alike": 2, "pa-helps-cd2": 2, "robust-to-epochs": 2},
    **{"robust-to-batches": 2},
}


def test_no_family_lost_a_case():
    found = Counter(c.family.removeprefix("fedas-") for c in CLAIMS.values())
    assert found == SIZES and len(CLAIMS) == 173
    assert {c.by for c in CLAIMS.values() if c.place == "digits"} == {"ours"}


def test_every_cell_of_the_tables_has_its_claim():
    mine = PRINTED[PRINTED.method == "FedAS"]
    keys = {
        f"best-{ledger.slug(f'{p}-{s}')}" for p, s in zip(mine.dataset, mine.setting)
    }
    ours = {
        k for k, c in CLAIMS.items() if c.family == "fedas-best" and c.by == "paper"
    }
    assert keys == ours and len(keys) == 24


def test_the_papers_claims_have_its_words():
    for c in CLAIMS.values():
        assert c.artefact in artefacts.names(REPORTED)["fedas"], c.key
        # one sentence, whose only other points are decimal ones
        assert c.text.endswith(".") and ". " not in c.text, c.key
        assert bool(c.quote) == bool(c.section) == (c.by == "paper"), c.key
        assert not c.quote or c.section in ("3.3", "3.4", "4.2", "4.3", "Figure 4")
        assert len(c.quote) <= 160 and c.quote == " ".join(c.quote.split()), c.key
    figures = {f"Figure {k}" for k in "3a 3b 4a 4b 5a 5b 6a 6b 7a 7b".split()}
    found = {c.artefact for c in CLAIMS.values() if c.by == "paper"}
    assert found == figures | {"Table 2", "Table 3", "Table 4"}


# ---------------------------------------------------------------- every verdict
def ahead(d, setting, place="CIFAR-10", **more):
    """FedAS ahead of its rivals by d."""
    values = {f"FedAS|{setting}": 80 + d} | {f"{r}|{setting}": 80 for r in RIVALS}
    return runs(values, place, **more)


def in_each_cell(d):
    settings = PRINTED.setting[PRINTED.dataset == "CIFAR-10"].unique()
    return pd.concat(ahead(d, s) for s in settings)


def stragglers(d):
    """What FedAS loses from all clients online to a fifth, at each skew."""
    cells = {
        (b, P): 80 + (P == 0.2) * (d - 5) for b in (0.1, 0.3, 0.5) for P in (0.2, 1)
    }
    return runs({f"FedAS|beta={b};P={P}": x for (b, P), x in cells.items()})


def losses(d):
    """What FedAS loses less than its rivals."""
    few = {f"{m}|P=0.2": 70 + d * (m == "FedAS") for m in (*RIVALS, "FedAS")}
    return runs(few | {f"{m}|P=1": 80 for m in (*RIVALS, "FedAS")}, "digits")


def modules(d):
    """Both modules ahead of each alone."""
    alone = {f"FedAS|P=1;{how}": 80 for how in ("by=size", "align=none")}
    return runs({"FedAS|P=1": 80 + d} | alone, "digits", "ablation")


def watched(metric, x, study="watch"):
    return runs({"FedAS": x}, "CIFAR-10", study, metric)


def swapped(top, random=3.0):
    drops = zip(DROPS, (top, random))
    return pd.concat(
        runs({"FedAS": x}, study="substitution", metric=m) for m, x in drops
    )


SAME = "FedPer-online|P=0.4"  # FedAS's rule of download
# claim -> (study, the better run, the other)
PAIRS = {
    "fine-tuning-helps-digits-p_0.2": ("", "FedAvg-FT|P=0.2", "FedAvg-P|P=0.2"),
    "beats-local-digits-p_0.2": ("", "FedAS|P=0.2", "Local|P=0.2"),
    "beats-fine-tuning-digits-p_0.2": ("", "FedAS|P=0.2", "FedAvg-FT|P=0.2"),
    "gain-beyond-download-digits-p_0.2": ("", "FedAS|P=0.2", "FedPer-online|P=0.2"),
    "beats-babu5-digits-p_0.4": ("", "FedAS|P=0.4", "FedBABU|P=0.4;tune=5"),
    "beats-fine-tuning-cifar-10-beta_0.1-p_1": ("", f"FedAS|{ALL}", f"FedAvg-FT|{ALL}"),
    "align-strength-digits": ("strength", "FedAS|align_lr=0.02", "FedAS|align_lr=0.1"),
    "easier-when-skewed-cifar-10-p_0.2": ("", f"FedAS|{FEW}", "FedAS|beta=0.5;P=0.2"),
    "pa-helps-digits-p_1": ("ablation", "FedAS|P=1;by=size", "FedPer|P=1"),
    "cs-helps-digits-p_1": ("ablation", "FedAS|P=1;align=none", "FedPer|P=1"),
    "pa-helps-same-download-digits-p_0.4": ("ablation", "FedAS|P=0.4;by=size", SAME),
    "cs-helps-same-download-digits-p_0.4": ("ablation", "FedAS|P=0.4;align=none", SAME),
    "serial-beats-parallel-digits": ("align", "FedAS", "FedAS-parallel"),
    "own-beats-global-digits": ("align", "FedAS", "FedAS-global"),
    "aligning-helps-digits": ("align", "FedAS", "FedAS|align=none"),
    "class-means-or-samples-digits": ("align", "FedAS", "FedAS|align=sample"),
    "pa-helps-cd2-digits": ("cd2", "CD2-pFed|align=True", "CD2-pFed"),
}


def paired(key):
    """A pattern: the first run of a pair is ahead of the other by d."""
    study, a, b = PAIRS[key]
    place = "digits" if "digits" in key else "CIFAR-10"
    return 1, lambda d: runs({a: 80 + d, b: 80}, place, study), b.partition("|")[0]


RATIO = np.log(1.05)
# claim -> (margin, runs in which the effect is d, whose runs it needs)
PATTERNS = {
    "best-cifar-10-beta_0.1-p_0.6": (1, lambda d: ahead(d, MOST), "FedAS"),
    "fast-digits-p_0.6": (
        1,
        lambda d: ahead(d, "P=0.6", "digits", metric="early_acc_pct"),
        "FedAS",
    ),
    "fairest-cifar-10-beta_0.1-p_0.2": (
        2,
        lambda d: ahead(d, FEW, metric="worst10_acc"),
        "FedAS",
    ),
    "best-everywhere-cifar-10": (1, in_each_cell, "FedAS"),
    "steadier-than-rivals-digits": (1, losses, "FedAS"),
    "both-help-digits-p_1": (1, modules, "FedAS"),
    "rule-flatters-cifar-10-beta_0.1-p_0.2": (
        1,
        lambda d: runs({f"FedAS|{FEW}": 0.5 + d}, metric="rule_gain_points"),
        "FedAS",
    ),
    "trace-rises-cifar-10": (0.1, lambda d: watched(TRACES[0], 0.5 + d), "FedAS"),
    "stragglers-lower-weight-cifar-10": (
        RATIO,
        lambda d: watched(RATIOS[2], np.exp(-d), "stragglers"),
        "FedAS",
    ),
    "alignment-moves-less-cifar-10": (
        RATIO,
        lambda d: watched("aligned_over_trained", np.exp(-d)),
        "FedAS",
    ),
    "top-parameters-matter-cifar-10": (1, lambda d: swapped(3 + d), "FedAS"),
    "top-parameters-catastrophic-cifar-10": (1, lambda d: swapped(10 + d), "FedAS"),
    "random-parameters-minor-cifar-10": (1, lambda d: swapped(9, 2 - d), "FedAS"),
    # against a bound, which leaves no room for "alike"
    "robust-to-stragglers-cifar-10": (0, stragglers, "FedAS"),
    "robust-to-stragglers-digits": (
        0,
        lambda d: runs({"FedAS|P=0.2": 75 + d, "FedAS|P=1": 80}, "digits"),
        "FedAS",
    ),
    "fedavg-p-rises-cifar-10": (
        0,
        lambda d: runs({f"FedAvg-P|{ALL}": 80 + d, f"FedAvg-P|{FEW}": 75}),
        "FedAvg-P",
    ),
} | {key: paired(key) for key in PAIRS}
# verdict -> mean and spread of the effect, in margins
EFFECTS = {"yes": (5, 0.1), "no": (-5, 0.1), "alike": (0, 0.1), "undecided": (0.5, 3)}
SCORES = {ACC, "worst10_acc", "early_acc_pct"}


def made(key, verdict):
    margin, table, _ = PATTERNS[key]
    mean, spread = EFFECTS[verdict]
    return table((margin or 1) * (mean + spread * NOISE))


@pytest.mark.parametrize("key", PATTERNS)
@pytest.mark.parametrize("verdict", EFFECTS)
def test_a_pattern_reaches_each_verdict(key, verdict):
    table = made(key, verdict)
    c = check(key, table)
    alike = "alike" if PATTERNS[key][0] else "undecided"
    assert c.holds == (alike if verdict == "alike" else verdict), c.evidence
    assert verdict not in ("yes", "no") or (c.effect > 0) == (verdict == "yes")
    assert check(key, table[table.seed < 4]).holds == "undecided"


@pytest.mark.parametrize("key", PATTERNS)
def test_what_is_missing_is_not_run(key):
    table, who = made(key, "yes"), PATTERNS[key][-1]
    c = check(key, table[table.method != who], runs({"FedRep": 80}))
    assert c.holds == "not run" and c.evidence.startswith("needs "), c.evidence


@pytest.mark.parametrize("key", PATTERNS)
def test_below_the_gate_scores_are_not_testable(key):
    table = made(key, "yes")
    closed = {("fedas", "small", table.dataset.iloc[0]): "nothing is learnt"}
    c = check(key, table, closed=closed)
    scored = set(table.metric) <= SCORES
    assert c.holds == ("not testable" if scored else "yes"), c.evidence


# ---------------------------------------------------------------- within a margin
def weights(x, study="weights"):
    others = {"FedAS|by=softmax": 80, "FedAS|by=minmax": 80.2}
    return runs({"FedAS": 80 + x} | others, "digits", study)


def axis(name, study):
    at = (8, 16, 64)
    return lambda x: runs(
        {f"FedAS|{name}={k}": 80 + x * (k == 16) for k in at}, study=study
    )


# claim -> (margin, runs that are x apart, what it says of 0 and of 10 margins)
CLOSE = {
    "weights-alike-digits": (1, weights, "yes", "no"),
    "robust-to-epochs-cifar-10": (1, axis("E", "epochs"), "yes", "no"),
    "robust-to-batches-cifar-10": (1, axis("B", "batches"), "yes", "no"),
    "align-strength-flat-digits": (
        1,
        lambda x: runs(
            {"FedAS|align_lr=0.005": 80 + x, "FedAS|align_lr=0.02": 80},
            "digits",
            "strength",
        ),
        "yes",
        "no",
    ),
    "fedbabu-flat-digits": (
        2,
        lambda x: runs({"FedBABU|P=0.2": 80 + x, "FedBABU|P=1": 80}, "digits"),
        "yes",
        "no",
    ),
    "who-downloads-matters-digits-p_0.2": (
        1,
        lambda x: runs({"FedPer-online|P=0.2": 80 + x, "FedPer|P=0.2": 80}, "digits"),
        "no",
        "yes",
    ),
}


@pytest.mark.parametrize("key", CLOSE)
def test_within_a_margin(key):
    margin, table, near, far = CLOSE[key]
    for x, holds in ((0, near), (10, far), (-10, far), (30 * NOISE, "undecided")):
        assert check(key, table(margin * (x + 0.1 * NOISE))).holds == holds, x
    one = table(0.1 * NOISE)
    assert check(key, one[one.seed == 0]).holds == "undecided"
    assert check(key, runs({"FedRep": 80})).holds == "not run"


@pytest.mark.parametrize("mine, holds", [(1, "yes"), (-1, "no"), (0, "undecided")])
def test_the_average_rank(mine, holds):
    """FedAS first, last, or in the middle of what noise has ordered."""
    luck = np.random.default_rng(0)
    tables = []
    for (place, s), _ in PRINTED.groupby(["dataset", "setting"]):
        values = {f"{r}|{s}": 80 + luck.normal(size=5) for r in (*RIVALS, "FedAS")}
        tables.append(
            runs(values | {f"FedAS|{s}": 80 + 20 * mine} if mine else values, place)
        )
    c = check("average-rank", *tables)
    assert c.holds == holds and c.evidence.startswith("24 settings, 10 methods")
    assert check("average-rank", tables[0]).holds == "not run"


# ---------------------------------------------------------------- what is no test
def test_one_computation_and_a_ceiling_are_no_test():
    same = {"FedAS|P=0.4;by=size": 80 + NOISE, "FedPer|P=0.4": 80 + NOISE}
    c = check("pa-helps-digits-p_0.4", runs(same, "digits", "ablation"))
    assert c.holds == "not testable" and "the same computation" in c.reason
    top = runs(dict.fromkeys(same, 100), "digits", "ablation")
    apart = runs({"FedAS|P=0.4;by=size": 1}, "digits", "ablation", "worst10_acc")
    other = runs({"FedPer|P=0.4": 2}, "digits", "ablation", "worst10_acc")
    c = check("pa-helps-digits-p_0.4", top, apart, other)
    assert c.holds == "not testable" and "ceiling" in c.reason


def test_the_papers_rule_does_not_count():
    good = ahead(5 + NOISE, "P=0.2", "digits", rule="best_round_pooled")
    assert check("best-digits-p_0.2", good).holds == "not run"
    bad = ahead(-5 + NOISE, "P=0.2", "digits")
    assert check("best-digits-p_0.2", good, bad).holds == "no"


def test_best_everywhere_counts_its_cells():
    key, ratios = "best-everywhere-digits", (0.2, 0.4, 0.6, 1)
    good = [ahead(5 + NOISE, f"P={P}", "digits") for P in ratios]
    assert check(key, *good).evidence == "yes in 4 of 4"
    assert check(key, *good[1:], ahead(-9 + NOISE, "P=0.2", "digits")).holds == "no"
    some = check(key, *good[1:])
    assert some.holds == "undecided" and "not run in 1 of 4 (P=0.2)" in some.evidence


def test_the_printed_gain_stands_beside_real_data_alone():
    key, close = "best-cifar-10-beta_0.1-p_0.2", ahead(0.5 + NOISE, FEW, data="real")
    assert (
        check(key, close.assign(data="stand-in"), reported=REPORTED).gain != "contained"
    )
    c = check(key, close, reported=REPORTED)
    mine = PRINTED[(PRINTED.dataset == "CIFAR-10") & (PRINTED.setting == FEW)]
    (delta,) = mine.reported[mine.metric == "delta_acc_points"].astype(float)
    assert c.gain == "contained" and c.printed == pytest.approx(delta)


# --------------------------------------------------------------- what params.yaml plans


@pytest.fixture(scope="module")
def planned():
    """Invented numbers for every run that params.yaml plans at tier paper,
    and for the substitution test; of the strengths of alignment those at tier small,
    which the claims name.
    """
    tables = []
    entries = studies.load(ROOT / "params.yaml")["fedas"]["studies"]
    # which chapters and the gates read, and nothing publishes
    for study in [s for s in entries if s not in ("beside", "gate")]:
        tier = "small" if study == "strength" else "paper"
        todo = studies.cells("fedas", study, ROOT / "params.yaml", tier)[0]
        base = pd.DataFrame(
            [
                {
                    "dataset": c.dataset,
                    "method": c.method,
                    "setting": c.setting,
                    "seed": c.seed,
                    "study": study,
                    "data": c.data,
                    "value": float(len(c.method)),
                }
                for c in todo
            ]
        )
        tables += [
            base.assign(metric=m, rule=r)
            for m in (ACC, "worst10_acc")
            for r in ("last10_mean", "best_round_pooled")
        ]
        if study in ("grid", "digits"):
            tables += [
                base.assign(metric=m, rule="last10_mean")
                for m in ("top1_acc_pre_pct", "top1_acc_post_pct")
            ]
            tables += [
                base.assign(metric=m, rule="run")
                for m in ("rule_gain_points", "early_acc_pct")
            ]
        if study in ("watch", "stragglers"):  # one ratio over both ways to be late
            once = base.assign(setting="").drop_duplicates()
            tables += [
                once.assign(metric=m, rule="run")
                for m in (*TRACES, *RATIOS, "aligned_over_trained")
            ]
    tables += [
        runs({"FedAS": 1.0}, p, "substitution", m)
        for m in DROPS
        for p in ("CIFAR-10", "digits")
    ]
    return pd.concat(tables, ignore_index=True).assign(paper="fedas", tier="paper")


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS.values(), planned)
    assert (
        list(t.key[t.holds == "not run"]) == []
        and not t.evidence.str.contains("not run").any()
    )


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    entries = [d for d in claims.read_deviations() if d["id"].startswith("FedAS-")]
    e = claims.effects(entries, planned)
    assert len(e) > 50 and list(e.key[e.evidence == "not run"]) == []


def test_the_planned_runs_can_be_stored(planned):
    """Every method and data set of the studies is known to the ledger."""
    assert len(ledger.check(planned, "seeds", REPORTED)) == len(planned)


def test_headline(planned, tmp_path):
    old = planned[(planned.study == "digits")].assign(tier="small", value=1.0)
    ledger.save(pd.concat([planned, old]), "seeds", "fedas-x", tmp_path)
    claims.headline(
        tmp_path,
        check_claims([CLAIMS["average-rank"]], planned),
        ledger.parts(tmp_path, "seeds", REPORTED),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())["fedas"]
    assert set(found) == set(papers.main_datasets("fedas")) and set(
        found["CIFAR-10"]
    ) == {
        "beta=0.1;P=0.2",
        "beta=0.1;P=1",
    }
    # of the best tier alone
    assert found["digits"]["P=1"]["FedAvg-FT"] == {ACC: 9.0, "worst10_acc": 9.0}
