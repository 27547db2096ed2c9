"""FedAS's claims and deviations: invented runs in which the paper is right, wrong,
undecided, and which params.yaml plans.
"""

import json

import pandas as pd
import pytest
from where import ROOT

from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import check_claims

OURS = papers.module("fedas", "claims")
ACC = OURS.ACC
CLAIMS = OURS.CLAIMS
RATIOS = OURS.RATIOS
RIVALS = OURS.RIVALS
TABLES = OURS.TABLES
at = OURS.at
REPORTED = ledger.read_reported()
NOISE = (-0.2, 0.1, 0.0, 0.3, -0.2)  # what seeds share: pairing removes it
TRACES = ("trace_rank_correlation", "trace_rows_rank_correlation")
RATIO = (
    "trace_stragglers_over_online",
    "trace_mean_stragglers_over_online",
    "weight_stragglers_over_online",
)
DROPS = ("acc_drop_top5_points", "acc_drop_random5_points")


def rows(
    method,
    value,
    metric=ACC,
    place="CIFAR-10",
    setting="",
    study="",
    rule="last10_mean",
    noise=NOISE,
    **more,
):
    """One run's rows, a seed each."""
    base = {
        "paper": "fedas",
        "study": study or papers.main_study("fedas", place),
        "dataset": place,
        "method": method,
        "setting": setting,
        "metric": metric,
        "rule": rule,
        "data": "real",
        "tier": "small",
    } | more
    return pd.DataFrame(
        [base | {"seed": s, "value": value + n} for s, n in enumerate(noise)]
    )


def verdicts(*tables, like=""):
    """{key: holds} of the claims whose key holds `like`."""
    t = check_claims([c for c in CLAIMS if like in c.key], pd.concat(tables))
    return dict(zip(t.key, t.holds))


def one(key, *tables):
    c = [c for c in CLAIMS if c.key == key]
    assert len(c) == 1
    return check_claims(c, pd.concat(tables)).iloc[0]


def cell(place, P, mine, rivals, beta=0.1, **more):
    """FedAS and its rivals at one setting."""
    return pd.concat(
        [
            rows(m, v, place=place, setting=at(place, P, beta), **more)
            for m, v in ({"FedAS": mine} | dict.fromkeys(RIVALS, rivals)).items()
        ]
    )


# ------------------------------------------------------------------ the list


def test_every_cell_of_the_tables_has_its_claim():
    printed = REPORTED[
        (REPORTED.paper == "fedas")
        & (REPORTED.method == "FedAS")
        & (REPORTED.artefact != "Table 4")
    ]
    keys = {
        "-".join(("fedas-best", ledger.slug(r.dataset), ledger.slug(r.setting)))
        for r in printed.itertuples()
    }
    assert len(keys) == 24 and keys <= {c.key for c in CLAIMS if c.by == "paper"}
    assert set(RIVALS) == set(
        REPORTED[
            REPORTED.artefact.isin(TABLES.values()) & (REPORTED.paper == "fedas")
        ].method
    ) - {"FedAS", "FedAS minus best rival (delta row)"}


def test_claims_about_digits_are_ours():
    assert {c.by for c in CLAIMS if c.place == "digits"} == {"ours"}
    assert {c.artefact for c in CLAIMS} <= artefacts.names(REPORTED)["fedas"]
    # one sentence each
    assert all(c.text[:-1].count(".") == c.text[:-1].count("0.") for c in CLAIMS)


def test_figures_3_to_7_and_tables_2_to_4_are_covered():
    assert {c.artefact for c in CLAIMS if c.by == "paper"} == {
        "Table 2",
        "Table 3",
        "Table 4",
        *(
            f"Figure {k}"
            for k in ("3a", "3b", "4a", "4b", "5a", "5b", "6a", "6b", "7a", "7b")
        ),
    }


# ------------------------------------------------------------------ the tables


@pytest.mark.parametrize(
    "mine, noise, holds",
    [(90, NOISE, "yes"), (70, NOISE, "no"), (90, (0,), "undecided")],
)
def test_best_in_a_cell(mine, noise, holds):
    got = one(
        "fedas-best-cifar-10-beta_0.3-p_0.4",
        cell("CIFAR-10", 0.4, mine, 80, 0.3, noise=noise),
    )
    assert (
        got.holds == holds
        and got.data == "real"
        and "strongest of 9 rivals" in got.evidence
    )


def test_the_papers_rule_does_not_count():
    good = cell("digits", 0.2, 90, 80, rule="best_round_pooled")
    assert one("fedas-best-digits-p_0.2", good).holds == "not run"
    assert (
        one("fedas-best-digits-p_0.2", good, cell("digits", 0.2, 70, 80)).holds == "no"
    )


def test_best_everywhere():
    all_ = [cell("digits", P, 90, 80) for P in RATIOS]
    key = "fedas-best-everywhere-digits"
    assert (
        one(key, *all_).holds == "yes" and one(key, *all_).evidence == "yes in 4 of 4"
    )
    assert one(key, *all_[1:], cell("digits", 0.2, 70, 80)).holds == "no"
    some = one(key, *all_[1:])
    assert some.holds == "undecided" and "not run: P=0.2" in some.evidence


@pytest.mark.parametrize(
    "few, robust, steadier", [(89, "yes", "yes"), (86, "yes", "no"), (80, "no", "no")]
)
def test_robust_to_stragglers(few, robust, steadier):
    # rivals lose 2 points
    t = [cell("digits", 1, 90, 85), cell("digits", 0.2, few, 83)]
    got = verdicts(*t, like="digits")
    assert (
        got["fedas-robust-to-stragglers-digits"],
        got["fedas-steadier-than-rivals-digits"],
    ) == (robust, steadier)
    assert (
        got["fedas-fedavg-p-rises-digits"] == "no"
        and got["fedas-fedbabu-flat-digits"] != "not run"
    )


@pytest.mark.parametrize(
    "values, holds",
    [
        (
            {
                "FedAvg-FT": 70,
                "FedAvg-P": 60,
                "FedAS": 80,
                "FedPer-online": 79,
                "FedPer": 75,
                "Local": 70,
            },
            "yes",
        ),
        (
            {
                "FedAvg-FT": 70,
                "FedAvg-P": 75,
                "FedAS": 60,
                "FedPer-online": 79,
                "FedPer": 78.9,
                "Local": 65,
            },
            "no",
        ),
    ],
)
def test_what_the_comparison_leaves_out(values, holds):
    t = [rows(m, v, place="digits", setting="P=0.2") for m, v in values.items()]
    got = verdicts(*t, like="digits")
    assert {
        got[f"fedas-{k}-digits-p_0.2"]
        for k in (
            "fine-tuning-helps",
            "beats-fine-tuning",
            "gain-beyond-download",
            "beats-local",
            "who-downloads-matters",
        )
    } == {holds}


@pytest.mark.parametrize("gain, holds", [(2, "yes"), (0.0, "no"), (0.5, "undecided")])
def test_what_the_rule_adds(gain, holds):
    t = rows("FedAS", gain, "rule_gain_points", "digits", "P=0.2", rule="run")
    assert one("fedas-rule-flatters-digits-p_0.2", t).holds == holds


# ------------------------------------------------------------------ the modules


def ablation(pa, cs, both, P="P=0.2", none=70, same=70):
    runs = (
        ("FedPer", "", none),
        ("FedPer-online", "", same),
        ("FedAS", ";by=size", pa),
        ("FedAS", ";align=none", cs),
        ("FedAS", "", both),
    )
    return pd.concat(
        [
            rows(m, v, place="digits", setting=f"{P}{how}", study="ablation")
            for m, how, v in runs
        ]
    )


@pytest.mark.parametrize(
    "table, pa, cs, both, same",
    [
        (ablation(75, 74, 80), "yes", "yes", "yes", "yes"),
        (ablation(65, 74, 70), "no", "yes", "no", "no"),
        (ablation(75, 65, 80), "yes", "no", "yes", "yes"),
        (ablation(75, 74, 80, same=78), "yes", "yes", "yes", "no"),
        (ablation(75, 74, 80)[lambda t: t.seed == 0], *["undecided"] * 4),
    ],
)
def test_modules(table, pa, cs, both, same):
    got = verdicts(table, like="digits-p_0.2")
    assert [
        got[f"fedas-{k}-digits-p_0.2"]
        for k in ("pa-helps", "cs-helps", "both-help", "pa-helps-same-download")
    ] == [pa, cs, both, same]
    assert verdicts(table, like="pa-helps-digits-p_0.4") == {
        "fedas-pa-helps-digits-p_0.4": "not run"
    }


@pytest.mark.parametrize("x, holds", [(0.5, "yes"), (3, "no")])
def test_weights_alike(x, holds):
    t = [
        rows("FedAS", v, place="digits", setting=how, study="weights")
        for how, v in (("", 80), ("by=softmax", 80 + x), ("by=minmax", 80))
    ]
    assert one("fedas-weights-alike-digits", *t).holds == holds
    assert one("fedas-weights-alike-digits", *t[:2]).holds == "not run"


@pytest.mark.parametrize("x, holds", [(3, "yes"), (-3, "no")])
def test_alignment_of_others_and_its_forms(x, holds):
    t = [
        rows("CD2-pFed", v, place="digits", setting=how, study="cd2")
        for how, v in (("align=True", 80 + x), ("", 80))
    ]
    assert one("fedas-pa-helps-cd2-digits", *t).holds == holds
    t = [
        rows(m, v, place="CIFAR-100", setting=how, study="align")
        for m, how, v in (
            ("FedAS", "", 50 + x),
            ("FedAS-parallel", "", 50),
            ("FedAS-global", "", 50),
            ("FedAS", "align=none", 50),
            ("FedAS", "align=sample", 50),
        )
    ]
    keys = (
        "serial-beats-parallel",
        "own-beats-global",
        "aligning-helps",
        "class-means-or-samples",
    )
    assert [one(f"fedas-{k}-cifar-100", *t).holds for k in keys] == [holds] * 4


# ------------------------------------------------------------------ the trace


@pytest.mark.parametrize(
    "rise, ratio, moved, holds", [(0.9, 0.5, 0.3, "yes"), (-0.5, 2.0, 3.0, "no")]
)
def test_traces(rise, ratio, moved, holds):
    small = [0.1 * n for n in NOISE]
    t = [
        rows("FedAS", rise, m, "digits", "watch=True", "watch", "run", small)
        for m in TRACES
    ]
    t += [
        rows("FedAS", ratio, m, "digits", "watch=True", "stragglers", "run", small)
        for m in RATIO
    ]
    t += [
        rows(
            "FedAS",
            moved,
            "aligned_over_trained",
            "digits",
            "watch=True",
            "watch",
            "run",
            small,
        )
    ]
    keys = (
        "trace-rises-digits",
        "trace-rises-per-row-digits",
        "stragglers-lower-trace-digits",
        "stragglers-lower-weight-digits",
        "stragglers-lower-trace-per-batch-digits",
        "alignment-moves-less-digits",
    )
    assert [one(f"fedas-{k}", *t).holds for k in keys] == [holds] * 6


@pytest.mark.parametrize(
    "top, random, holds",
    [
        (40, 1, ("yes", "yes", "yes")),
        (5, 8, ("no", "no", "no")),
        (5, 1, ("yes", "no", "yes")),
    ],
)
def test_substitution(top, random, holds):
    t = [
        rows("FedAS", v, m, "digits", study="substitution", rule="run", data="stand-in")
        for m, v in zip(DROPS, (top, random))
    ]
    assert (
        tuple(
            one(f"fedas-{k}-digits", *t).holds
            for k in (
                "top-parameters-matter",
                "top-parameters-catastrophic",
                "random-parameters-minor",
            )
        )
        == holds
    )


@pytest.mark.parametrize("axis, study", [("E", "epochs"), ("B", "batches")])
def test_robust(axis, study):
    def world(x):
        return pd.concat(
            [
                rows("FedAS", v, place="digits", setting=f"{axis}={k}", study=study)
                for k, v in ((8, 80), (16, 80 + x), (64, 80))
            ]
        )

    key = f"fedas-robust-to-{study}-digits"
    assert [one(key, world(x)).holds for x in (0.5, 6)] == ["yes", "no"]
    assert (
        one(key, world(0)[lambda t: t.seed == 0]).holds == "undecided"
        and one(key, ablation(1, 1, 1)).holds == "not run"
    )


# --------------------------------------------------------------- what params.yaml plans


@pytest.fixture(scope="module")
def planned():
    """Invented numbers for every run that params.yaml plans at tier paper,
    and for the substitution test.
    """
    tables = []
    entries = studies.load(ROOT / "params.yaml")["fedas"]["studies"]
    # which chapters and the gates read, and nothing publishes
    for study in [s for s in entries if s not in ("beside", "gate")]:
        todo = studies.cells("fedas", study, ROOT / "params.yaml", "paper")[0]
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
        if study in ("watch", "stragglers"):
            tables += [
                base.assign(metric=m, rule="run")
                for m in (*TRACES, *RATIO, "aligned_over_trained")
            ]
    tables += [
        rows("FedAS", 1.0, m, p, study="substitution", rule="run")
        for m in DROPS
        for p in ("CIFAR-10", "digits")
    ]
    return pd.concat(tables, ignore_index=True).assign(paper="fedas", tier="paper")


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS, planned)
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
        check_claims(CLAIMS[:1], planned),
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
