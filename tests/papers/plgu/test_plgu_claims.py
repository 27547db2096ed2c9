"""PLGU's claims and deviations: invented runs in which the paper is right, wrong,
undecided, and which params.yaml plans.
"""

import json

import pandas as pd
import pytest
from where import ROOT

from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import check_claims
from repro.ledger import ResultError

OURS = papers.module("plgu", "claims")
ALONE = OURS.ALONE
CLAIMS = OURS.CLAIMS
GLOBAL = OURS.GLOBAL
LOW = OURS.LOW
MEAN = OURS.MEAN
NOW = OURS.NOW
OWN = OURS.OWN
PLGU = OURS.PLGU
RIVALS = OURS.RIVALS
SHARP = OURS.SHARP
TOP = OURS.TOP
along = OURS.along
at = OURS.at
default_D = OURS.default_D
REPORTED = ledger.read_reported()
NOISE = (-0.2, 0.1, 0.0, 0.3, -0.2)  # what seeds share: pairing removes it
SHARPNESS = [m for kind in SHARP.values() for m in kind]
LF, GREP, GHN = PLGU
WATCHED = (MEAN, LOW, TOP, "acc_min_over_clients_pct", "pct_clients_far_below_mean")


def rows(
    method,
    value,
    setting,
    metric=MEAN,
    place="digits",
    study="tables",
    noise=NOISE,
    **more,
):
    """One run's rows, a seed each."""
    base = {
        "paper": "plgu",
        "study": study,
        "dataset": place,
        "method": method,
        "setting": setting,
        "metric": metric,
        "rule": "last10_mean",
        "data": "real",
        "tier": "small",
    } | more
    return pd.DataFrame(
        [base | {"seed": s, "value": value + n} for s, n in enumerate(noise)]
    )


def one(key, *tables):
    c = [c for c in CLAIMS if c.key == key]
    assert len(c) == 1, key
    return check_claims(c, pd.concat(tables), REPORTED).iloc[0]


def cell(view, values, C=10, rivals=80.0, **more):
    """Methods of ours and the rivals of a view at one setting."""
    return pd.concat(
        [
            rows(m, v, at(view, C), **more)
            for m, v in (dict.fromkeys(RIVALS[view], rivals) | values).items()
        ]
    )


# ------------------------------------------------------------------ the list


def test_claims_about_digits_are_ours():
    assert {c.by for c in CLAIMS if c.place == "digits"} == {"ours"}
    assert {c.artefact for c in CLAIMS} <= artefacts.names(REPORTED)["plgu"]
    assert len({c.key for c in CLAIMS}) == len(CLAIMS)
    # one sentence each
    assert all(c.text.rstrip(".").replace("6.2", "").count(". ") == 0 for c in CLAIMS)


def test_every_artefact_with_numbers_or_curves_has_a_claim_of_the_paper():
    assert {c.artefact for c in CLAIMS if c.by == "paper"} == {
        *(f"Table {i}" for i in range(1, 5)),
        "Figure 1",
        "Figure 1 text",
        "Figure 4",
        "Figure 5",
        "Figure 6 text",
        "Figure 7",
        "Section 6.2 text",
    }


def test_every_printed_cell_of_the_main_tables_has_its_claim():
    keys = {c.key for c in CLAIMS if c.by == "paper"}
    for artefact, view in (("Table 1", "global"), ("Table 2", "personalised")):
        for r in REPORTED[
            (REPORTED.paper == "plgu") & (REPORTED.artefact == artefact)
        ].itertuples():
            for name in ("mean", "lowest5"):
                assert (
                    f"plgu-{view}-{name}-{ledger.slug(r.dataset)}-"
                    f"{ledger.slug(r.setting.split('; ')[1])}"
                ) in keys
        printed = REPORTED[(REPORTED.paper == "plgu") & (REPORTED.artefact == artefact)]
        assert {*RIVALS[GLOBAL if view == "global" else OWN]} == set(
            printed.method
        ) - set(PLGU)


# ------------------------------------------------------------------ the tables


@pytest.mark.parametrize(
    "mine, noise, holds",
    [(90, NOISE, "yes"), (70, NOISE, "no"), (90, (0,), "undecided")],
)
def test_global_model(mine, noise, holds):
    for metric, name in ((MEAN, "mean"), (LOW, "lowest5")):
        got = one(
            f"plgu-global-{name}-digits-c_10",
            cell(GLOBAL, {LF: mine}, metric=metric, noise=noise),
        )
        assert (
            got.holds == holds
            and "strongest of 4 rivals" in got.evidence
            and got.by == "ours"
        )
    assert (
        one("plgu-global-mean-digits-c_100", cell(GLOBAL, {LF: mine})).holds
        == "not run"
    )


@pytest.mark.parametrize(
    "grep, ghn, lf, holds",
    [(90, 70, 80, "yes"), (70, 90, 80, "yes"), (70, 70, 80, "no"), (90, 90, 95, "no")],
)
def test_one_of_the_two_is_best(grep, ghn, lf, holds):
    table = cell(OWN, {LF: lf, GREP: grep, GHN: ghn})
    assert one("plgu-personalised-mean-digits-c_10", table).holds == holds
    alone = one("plgu-personalised-mean-digits-c_10", table[table.method != GHN])
    assert alone.holds == ("yes" if grep > max(80, lf) else "undecided")


def test_some_of_several():
    yes, no, open_ = (
        lambda v, h=h: claims.Finding(h, f"it is {h}")
        for h in ("yes", "no", "undecided")
    )

    def lost(v):
        raise claims.NotRun("a run")

    for tests, holds in (
        ((no, yes), "yes"),
        ((no, no), "no"),
        ((no, open_), "undecided"),
        ((no, lost), "undecided"),
        ((yes, lost), "yes"),
    ):
        assert claims.some(*tests)(None).holds == holds
    assert claims.some(no, lost)(None).missing == ("a run",)
    with pytest.raises(claims.NotRun, match="a run or a run"):
        claims.some(lost, lost)(None)


def everywhere(view, values, metric, C10=None):
    """All five settings of the paper; C10: other values at CIFAR-10, C = 10."""
    five = [
        (p, C)
        for p, C in (
            ("CIFAR10", 10),
            ("CIFAR10", 100),
            ("CIFAR100", 10),
            ("CIFAR100", 100),
            ("TinyImageNet", 20),
        )
    ]
    return pd.concat(
        [
            cell(
                view,
                C10 if C10 and (p, C) == ("CIFAR10", 10) else values,
                C,
                metric=metric,
                place=p,
                data="stand-in",
            )
            for p, C in five
        ]
    )


def test_everywhere():
    good = everywhere(GLOBAL, {LF: 84}, MEAN)
    got = one("plgu-global-mean-everywhere", good)
    assert (got.holds, got.evidence, got.data) == ("yes", "yes in 5 of 5", "stand-in")
    bad = everywhere(GLOBAL, {LF: 84}, MEAN, {LF: 70})
    got = one("plgu-global-mean-everywhere", bad)
    assert got.holds == "no" and "no in 1 of 5 (CIFAR10 C = 10)" in got.evidence
    assert [
        one("plgu-gain-mean", t).holds
        for t in (good, everywhere(GLOBAL, {LF: 82}, MEAN))
    ] == ["yes", "no"]
    assert (
        one("plgu-global-mean-everywhere", good[good.dataset != "TinyImageNet"]).holds
        == "undecided"
    )


def test_all_three_methods():
    good = {LF: 84, GREP: 85, GHN: 86}
    keys = (
        "plgu-all-three-mean",
        "plgu-lf-above-baselines-mean-cifar10",
        "plgu-ghn-above-baselines-mean-cifar10",
    )
    assert [one(k, everywhere(OWN, good, MEAN)).holds for k in keys] == ["yes"] * 3
    assert [
        one(k, everywhere(OWN, good, MEAN, good | {LF: 75})).holds for k in keys
    ] == ["no", "no", "yes"]


@pytest.mark.parametrize("mine, holds", [(79.5, "yes"), (85, "yes"), (78, "no")])
def test_top_clients_keep_theirs(mine, holds):
    for C in (10, 100):
        t = [
            cell(v, dict.fromkeys(PLGU, mine if C == k else 90), k, metric=TOP)
            for v in (GLOBAL, OWN)
            for k in (10, 100)
        ]
        for m, view in (
            ("lf", "global"),
            ("lf", "personalised"),
            ("grep", "personalised"),
            ("ghn", "personalised"),
        ):
            assert one(f"plgu-{m}-top5-kept-{view}-model-digits", *t).holds == holds


def test_poor_clients_and_speed():
    few = [
        cell(
            OWN,
            dict.fromkeys(PLGU, v),
            rivals=20.0,
            metric="pct_clients_far_below_mean",
        )
        for v in (10, 30)
    ]
    assert [one("plgu-grep-fewer-poor-clients-digits-c_10", t).holds for t in few] == [
        "yes",
        "no",
    ]
    for ghn, holds in ((90, "yes"), (75, "no")):
        fast = cell(
            OWN, {LF: 80, GREP: 90, GHN: ghn}, metric="early_mean_acc_pct", rule="run"
        )
        assert one("plgu-fastest-digits-c_10", fast).holds == holds
    for worst, holds in ((80, "yes"), (60, "no")):
        t = cell(OWN, {LF: 90, GREP: 90, GHN: worst}, metric="acc_min_over_clients_pct")
        assert one("plgu-all-clients-above-75-digits-c_10", t).holds == holds
    stand_in = cell(
        OWN,
        dict.fromkeys(PLGU, 90),
        metric="acc_min_over_clients_pct",
        place="CIFAR10",
        data="stand-in",
    )
    assert one("plgu-all-clients-above-75-cifar10-c_10", stand_in).holds == "undecided"


@pytest.mark.parametrize(
    "gain, low, holds", [(3, 60, ("yes", "yes")), (1, 50, ("no", "no"))]
)
def test_numbers_of_section_6_2(gain, low, holds):
    t = cell(GLOBAL, {LF: low}, rivals=low - gain, metric=LOW, place="CIFAR100")
    assert (
        "claimed by 2.03 or more" in one("plgu-gain-lowest5-cifar100-c_10", t).evidence
    )
    assert (
        tuple(
            one(f"plgu-{k}-lowest5-cifar100-c_10", t).holds for k in ("gain", "level")
        )
        == holds
    )


# ------------------------------------------------------------------ controls


@pytest.mark.parametrize("x, holds", [(3, "yes"), (-3, "no")])
@pytest.mark.parametrize("name, metric", [("mean", MEAN), ("lowest5", LOW)])
def test_controls(x, holds, name, metric):
    own, both = at(OWN, 10), at(GLOBAL, 10)
    for key, mine, other in (
        ("grep-beyond-two-steps", (GREP, own), ("FedRep-2x", own)),
        ("two-steps-help", ("FedRep-2x", own), ("FedRep", own)),
        ("ghn-beyond-two-steps", (GHN, own), ("pFedHN", own + ";epochs=10")),
        ("perturbing-helps-global", (LF, both), (LF, both + ";perturb=none")),
        ("perturbing-helps-personalised", (LF, own), (LF, own + ";perturb=none")),
        (
            "layers-help-without-perturbing",
            (LF, own + ";perturb=none"),
            ("FedAvg-FT", own),
        ),
        ("stored-beats-refreshed", (LF, own), (LF, at(NOW, 10))),
    ):
        t = [
            rows(mine[0], 80 + x, mine[1], metric),
            rows(*(other[0], 80), other[1], metric),
        ]
        assert one(f"plgu-{key}-{name}-digits-c_10", *t).holds == holds, key
        assert one(f"plgu-{key}-{name}-digits-c_10", t[0]).holds == "not run"
    for m, key in zip(PLGU, ("lf", "grep", "ghn")):
        t = [
            rows(k, v, own, metric)
            for k, v in ((m, 80 + x), ("Local", 80), ("FedAvg-FT", 70))
        ]
        assert one(f"plgu-{key}-beats-simple-{name}-digits-c_10", *t).holds == holds


def test_a_plain_run_is_not_mistaken_for_its_variant():
    own = at(OWN, 10)
    t = [rows("pFedHN", v, how) for v, how in ((90, own), (70, own + ";epochs=10"))]
    got = one("plgu-ghn-beyond-two-steps-mean-digits-c_10", *t, rows(GHN, 80, own))
    assert got.holds == "yes" and "70.00" in got.evidence


@pytest.mark.parametrize(
    "x, helps, nothing", [(3, "yes", "no"), (-3, "no", "no"), (0.0, "undecided", "yes")]
)
def test_readings(x, helps, nothing):
    t = [
        rows(LF, v, how, m, study="readings")
        for m in (MEAN, LOW)
        for v, how in (
            (80 + x, GLOBAL),
            (80, GLOBAL + ";uniform=True"),
            (80 + x, GLOBAL + ";scale=sum1"),
            (80, GLOBAL + ";perturb=none"),
        )
    ]
    assert {
        one(f"plgu-lf-scores-help-{k}-digits-global-model", *t).holds
        for k in ("mean", "lowest5")
    } == {helps}
    assert one("plgu-sum-one-is-nothing-digits", *t).holds == nothing


# ------------------------------------------------------------------ sweeps


def sweep(
    axis, values, study=None, method=LF, view=OWN, metric=MEAN, place="digits", **more
):
    """Runs along an axis: {value: accuracy}."""
    of = {"metric": metric, "place": place, "study": study or axis} | more
    return pd.concat(
        [rows(method, v, at(view, 10, f"{axis}={k}"), **of) for k, v in values.items()]
    )


def test_along_keeps_the_order_of_numbers():
    v = claims.Values.of(sweep("K", {10: 1, 1: 2, 5: 3}))
    assert list(along(v, MEAN, LF, "digits", "K", OWN, "K")) == [1, 5, 10]
    with pytest.raises(claims.NotRun, match="two values of rho"):
        along(v, MEAN, LF, "digits", "K", OWN, "rho")
    assert [default_D(x) for x in ((0, 1, 2, 3, 4), (0, 1, 4), (0, 1, 5, 10, 21))] == [
        1,
        1,
        5,
    ]


@pytest.mark.parametrize(
    "values, best, ends, alike, some",
    [
        ({0: 80, 1: 90, 2: 88, 3: 89.5, 4: 70}, "yes", "yes", "no", "yes"),
        ({0: 80, 1: 90, 2: 89.5, 3: 89.5, 4: 70}, "yes", "yes", "yes", "yes"),
        ({0: 80, 1: 82, 2: 90, 3: 91, 4: 70}, "no", "yes", "yes", "yes"),
        ({0: 95, 1: 90, 2: 90, 3: 90, 4: 70}, "no", "no", "yes", "no"),
        ({0: 95, 1: 90, 4: 70}, "no", "no", "not run", "no"),
    ],
)
def test_number_of_personal_layers(values, best, ends, alike, some):
    t = sweep("D", values, "D_digits")
    keys = ("default-d-best", "ends-worse", "between-alike", "some-d-above-ends-mean")
    assert [one(f"plgu-{k}-digits-personalised-model", t).holds for k in keys] == [
        best,
        ends,
        alike,
        some,
    ]
    assert {one(f"plgu-{k}-digits-global-model", t).holds for k in keys} == {"not run"}
    assert (
        one("plgu-default-d-best-digits-personalised-model", t[t.seed == 0]).holds
        == "undecided"
    )


def test_at_the_papers_sizes_five_layers_are_judged():
    t = sweep(
        "D", {0: 80, 1: 89.5, 5: 90, 10: 89.8, 21: 70}, place="CIFAR10", tier="paper"
    )
    got = one("plgu-ends-worse-cifar10-personalised-model", t)
    assert got.holds == "yes" and got.evidence.startswith("D = 5")
    assert one("plgu-between-alike-cifar10-personalised-model", t).holds == "yes"


@pytest.mark.parametrize(
    "axis, values, best",
    [
        ("K", {1: 70, 5: 90, 10: 80}, "yes"),
        ("K", {1: 70, 5: 90, 10: 95}, "no"),
        ("rho", {0.05: 90, 0.1: 85, 0.5: 70}, "yes"),
        ("rho", {0.05: 70, 0.1: 85, 0.5: 80}, "no"),
    ],
)
def test_sweeps(axis, values, best):
    for m, key, view in (
        (LF, "lf", GLOBAL),
        (LF, "lf", OWN),
        (GREP, "grep", OWN),
        (GHN, "ghn", OWN),
    ):
        of, end = (
            {"method": m, "view": view, "place": "CIFAR10"},
            f"cifar10-{ledger.slug(view)}",
        )
        for metric, name in ((MEAN, "mean"), (LOW, "lowest5")):
            assert (
                one(
                    f"plgu-{key}-{axis.lower()}-best-{name}-{end}",
                    sweep(axis, values, metric=metric, **of),
                ).holds
                == best
            )
        if axis == "rho":
            assert (
                one(
                    f"plgu-{key}-rho-large-hurts-{end}", sweep(axis, values, **of)
                ).holds
                == best
            )
    some = sweep(axis, dict(list(values.items())[:2]), place="CIFAR10")
    got = one(f"plgu-lf-{axis.lower()}-best-mean-cifar10-personalised-model", some)
    assert (
        got.holds == ("no" if values.get(0.05) == 70 else "undecided")
        and "not run" in got.evidence
    )


def test_a_small_loss_at_a_large_rho_is_no_large_one():
    t = sweep("rho", {0.05: 80.5, 0.1: 80, 0.5: 80}, place="CIFAR10")
    assert one("plgu-lf-rho-large-hurts-cifar10-personalised-model", t).holds == "no"
    assert one("plgu-lf-rho-best-mean-cifar10-personalised-model", t).holds == "yes"


# ------------------------------------------------------------------ flatness


@pytest.mark.parametrize("flat, holds", [(1.0, "yes"), (9.0, "no")])
def test_flatness(flat, holds):
    small = [0.1 * n for n in NOISE]
    runs = {
        "global-flatter": ((LF, GLOBAL), (LF, OWN)),
        "personalised-sharper-on-same-data": ((LF, ALONE), (LF, OWN)),
        "data-alone-sharpen": ((LF, GLOBAL), (LF, ALONE)),
        "others-too": (("Ditto", GLOBAL), ("Ditto", OWN)),
        "flatter-than-fedavg": ((LF, GLOBAL), ("FedAvg", GLOBAL)),
        "flatter-than-fedsam": ((LF, GLOBAL), ("FedSAM", GLOBAL)),
        "flatter-by-perturbing": ((LF, GLOBAL), (LF, f"{GLOBAL};perturb=none")),
    }
    for key, (a, b) in runs.items():
        t = [
            rows(m, v, how, k, study="flatness", rule="run", noise=small)
            for (m, how), v in ((a, flat), (b, 5.0))
            for k in SHARPNESS
        ]
        for kind in SHARP:
            assert one(f"plgu-{key}-{kind}-digits", *t).holds == holds
    mixed = [
        rows(LF, v, how, k, study="flatness", rule="run", noise=small)
        for k in SHARPNESS
        for how, v in ((GLOBAL, 9.0 if k == "rise_0.5" else 1.0), (OWN, 5.0))
    ]
    got = one("plgu-global-flatter-rise-digits", *mixed)
    assert got.holds == "no" and "rise_0.5" in got.evidence


# ----------------------------------------------------- the paper against its own tables


def printed(key, reported=REPORTED):
    c = [c for c in CLAIMS if c.key == f"plgu-printed-{key}"]
    return check_claims(
        c, ledger.parts(ROOT / "no such folder", "seeds", REPORTED), reported
    ).iloc[0]


def test_the_papers_own_numbers():
    """Readable in the tables; each is an entry of the list of contradictions."""
    found = {
        k: printed(k).holds
        for k in (c.key.removeprefix("plgu-printed-") for c in CLAIMS if c.printed)
    }
    assert {k for k, h in found.items() if h == "yes"} == {"gain-lowest5", "rho-mean"}
    assert all(
        x in printed("above-baselines").evidence
        for x in ("PLGU-LF: holds in 0 of 5", "PLGU-GRep: holds in 5 of 5")
    )
    assert (
        "holds in 83 of 84" in printed("between").evidence
        and "K=10" in printed("between").evidence
    )
    assert (
        printed("gain-mean").evidence.count("against") == 4
        and printed("everybody-above-75").evidence.count("lowest 5%") == 6
    )
    assert (
        printed("k-mean").tier == "exact" and printed("k-mean", None).holds == "not run"
    )


LAST = {
    "artefact": "Table 3",
    "method": GHN,
    "setting": "personalised model; C=10; K=10; rho=0.05",
}


@pytest.mark.parametrize(
    "key, where, value",
    [
        ("k-mean", LAST | {"metric": MEAN}, "70.0"),
        (
            "toy-example",
            {"artefact": "Figure 1 text", "method": "FedRep", "metric": MEAN},
            "71.32",
        ),
        (
            "everybody-above-75",
            {"artefact": "Table 2", "metric": LOW, "dataset": "CIFAR10"},
            "80.0",
        ),
        ("between", LAST | {"metric": LOW}, "70.0"),
        (
            "above-baselines",
            {"artefact": "Table 2", "method": LF, "metric": MEAN},
            "90.0",
        ),
        ("gain-mean", {"artefact": "Table 1", "method": LF, "metric": MEAN}, "90.0"),
    ],
)
def test_a_paper_that_agrees_with_itself(key, where, value):
    changed = REPORTED.copy()
    at_ = (changed.paper == "plgu") & pd.concat(
        [changed[c] == v for c, v in where.items()], axis=1
    ).all(axis=1)
    assert at_.any()
    changed.loc[at_, "reported"] = value
    assert printed(key).holds == "no" and printed(key, changed).holds == "yes"


def test_rho_would_be_refuted_by_one_number():
    changed = REPORTED.copy()
    large = (
        (changed.artefact == "Table 4")
        & (changed.metric == MEAN)
        & changed.setting.str.endswith("rho=0.5")
    )
    changed.loc[large, "reported"] = "99"
    assert printed("rho-mean", changed).holds == "no" and printed(
        "rho-mean", changed
    ).evidence.startswith("holds in 0 of 4")


# ------------------------------------------------------- from seeds to the paper's rows


def test_settings_are_taken_and_called():
    t = pd.concat(
        [
            rows("FedRep", 70, at(OWN, C, *more), m)
            for C in (10, 100)
            for more in ((), ("epochs=10",))
            for m in (MEAN, LOW)
        ]
        + [rows(LF, 60, at(GLOBAL, 10))]
    )
    base = {
        "artefact": "Figure 1 text",
        "metrics": [MEAN],
        "rule": "last10_mean",
    }
    got = ledger.cells(t, "plgu", settings={at(OWN, 10): OWN}, **base)
    assert set(got.setting) == {OWN, f"{OWN};epochs=10"}
    plain = got[got.setting == OWN].iloc[0]
    assert (
        plain.key == "plgu-figure-1-text-digits-fedrep-personalised-model-acc_mean_pct"
    )
    assert set(ledger.cells(t, "plgu", settings=[GLOBAL], **base).method) == {LF}
    assert len(ledger.cells(t, "plgu", **base)) == 5
    with pytest.raises(ResultError, match="nothing for plgu"):
        ledger.cells(t, "plgu", settings=["no such view"], **base)


def test_keys_of_ours_are_the_printed_ones():
    """Settings as the studies write them, without blanks,
    give the keys of reported.csv.
    """
    for r in REPORTED[REPORTED.paper == "plgu"].itertuples():
        assert (
            ledger.key(
                "plgu",
                r.artefact,
                r.dataset,
                r.method,
                r.metric,
                r.setting.replace("; ", ";"),
            )
            == r.key
        )


def test_the_lowest_of_three_methods():
    name = "acc_min_over_clients_pct"
    t = pd.concat(
        [rows(m, v, at(OWN, 10), name, "CIFAR10") for m, v in zip(PLGU, (60, 50, 70))]
        + [
            rows(LF, 10, at(OWN, 10, "perturb=none"), name, "CIFAR10"),
            rows(LF, 1, at(OWN, 100), name, "CIFAR10"),
        ]
    )
    got = ledger.lowest(t, PLGU)
    new = got[got.method == ", ".join(PLGU)]
    assert (
        len(new) == 5
        and set(new.setting) == {at(OWN, 10)}
        and list(new.value) == [50 + n for n in NOISE]
    )
    (made,) = ledger.cells(
        got,
        "plgu",
        "Figure 6 text",
        methods=[", ".join(PLGU)],
        settings={at(OWN, 10): OWN},
        rule="last10_mean",
    ).key
    assert made in set(REPORTED.key)
    with pytest.raises(ResultError, match="each of"):
        ledger.lowest(t[t.method != GHN], PLGU)


def test_the_best_number_of_layers():
    t = pd.concat(
        [
            sweep("D", dict(zip((0, 1, 5, 21), x)), view=view, place="CIFAR10")
            for view, x in ((GLOBAL, (70, 70, 72, 74)), (OWN, (80, 90, 89, 70)))
        ]
    )
    got = ledger.peak(t)
    new = got[got.rule == "run"]
    assert set(new.setting) == {"global and personalised model"}
    assert set(new[new.metric == "best_D"].value) == {5} and set(
        new[new.metric == "largest_D"].value
    ) == {21}
    assert set(
        ledger.cells(
            new,
            "plgu",
            "Figure 5 text",
            rule="last10_mean",
        ).key
    ) <= set(REPORTED.key)
    with pytest.raises(ResultError, match="two values of D"):
        ledger.peak(t[t.setting.str.startswith(GLOBAL)])
    with pytest.raises(ResultError, match="mix the rules last, last10_mean"):
        ledger.peak(pd.concat([t, t.assign(rule="last")]))


def test_the_gain_over_the_best_baseline():
    t = pd.concat(
        [cell(GLOBAL, {LF: 84}, C, rivals=80 + C / 100) for C in (10, 100)]
        + [cell(OWN, {LF: 70}, 10)]
    )
    got = ledger.lead(
        t, LF, RIVALS[GLOBAL], LF, MEAN, "gain_mean_pct_points_over_best_baseline"
    )
    new = (
        got[got.metric == "gain_mean_pct_points_over_best_baseline"]
        .groupby("setting")
        .value.mean()
    )
    assert new.round(6).to_dict() == {
        at(GLOBAL, 10): 3.9,
        at(GLOBAL, 100): 3.0,
        at(OWN, 10): -10.0,
    }


# --------------------------------------------------------------- what params.yaml plans

VIEWS = {
    "FedAvg": (GLOBAL,),
    "FedSAM": (GLOBAL,),
    "Ditto": (GLOBAL, OWN),
    "pFedMe": (GLOBAL, OWN),
    LF: (GLOBAL, OWN, NOW),
}
AXES = {"D": "D", "D_digits": "D", "K": "K", "rho": "rho"}


def ends(c, study):
    """What the notebooks write behind the view."""
    kw = json.loads(c.kwargs)
    if study not in AXES:
        return c.setting
    K = (
        kw["head_epochs"]
        if c.method == GREP and "head_epochs" in kw
        else 5
        if c.method == GREP
        else kw["epochs"]
    )
    return (
        f"C=10;D={kw['D']}"
        if AXES[study] == "D"
        else f"C=10;K={K};rho={kw.get('rho', 0.05)}"
    )


@pytest.fixture(
    scope="module", params=[pytest.param("small", marks=pytest.mark.full), "paper"]
)
def planned(request):
    """Invented numbers for every run that params.yaml plans at a tier."""
    out = []
    entries = studies.load(ROOT / "params.yaml")["plgu"]["studies"]
    # the gates are published beside the claims
    for study in [s for s in entries if s != "gate"]:
        for c in studies.cells("plgu", study, ROOT / "params.yaml", request.param)[0]:
            views = VIEWS.get(c.method, (OWN,))
            for view in (
                (*views, ALONE) if study == "flatness" and c.method == LF else views
            ):
                base = {
                    "dataset": c.dataset,
                    "method": c.method,
                    "setting": ";".join(filter(None, (view, ends(c, study)))),
                    "seed": c.seed,
                    "study": study,
                    "data": c.data,
                    "value": float(len(c.method)),
                    "paper": "plgu",
                    "tier": request.param,
                }
                if study == "flatness":
                    out += [base | {"metric": m, "rule": "run"} for m in SHARPNESS]
                else:
                    out += [
                        base | {"metric": m, "rule": r}
                        for m in WATCHED
                        for r in ("last10_mean", "last")
                    ]
                    out += [base | {"metric": "early_mean_acc_pct", "rule": "run"}]
    return pd.DataFrame(out)


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS, planned, REPORTED)
    assert (
        list(t.key[t.holds == "not run"]) == []
        and not t.evidence.str.contains("not run").any()
    )


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    entries = [d for d in claims.read_deviations() if d["id"].startswith("PLGU-")]
    e = claims.effects(entries, planned)
    assert len(e) > 20 and list(e.key[e.evidence == "not run"]) == []


def test_the_planned_runs_can_be_stored(planned):
    """Every method and data set of the studies is known to the ledger."""
    assert len(ledger.check(planned, "seeds", REPORTED)) == len(planned)


def test_every_printed_number_of_the_tables_is_planned(planned):
    """Tables 1 to 4: a cell of ours for each of the paper's."""
    parts = {
        "Table 1": ("tables", [GLOBAL]),
        "Table 2": ("tables", [OWN]),
        "Table 3": ("K", None),
        "Table 4": ("rho", None),
    }
    for artefact, (study, views) in parts.items():
        ours = ledger.cells(
            planned[planned.study == study],
            "plgu",
            artefact,
            settings=views,
            rule="last10_mean",
        )
        want = set(
            REPORTED[(REPORTED.paper == "plgu") & (REPORTED.artefact == artefact)].key
        )
        assert want <= set(ours.key)


def test_headline(planned, tmp_path):
    ledger.save(planned, "seeds", "plgu-x", tmp_path)
    claims.headline(
        tmp_path,
        check_claims(CLAIMS[:1], planned),
        ledger.parts(tmp_path, "seeds", REPORTED),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())["plgu"]
    assert set(found) == set(papers.main_datasets("plgu")) - {"none"} and set(
        found["TinyImageNet"]
    ) == {at(v, 20) for v in (GLOBAL, OWN)}
    assert found["digits"][at(OWN, 10)][GREP] == {LOW: 9.0, MEAN: 9.0}


# ------------------------------------------------------------------ artefacts


def test_figures_tables_algorithms_and_theorems_are_listed():
    listed = {a.name for a in artefacts.listed() if a.paper == "plgu"}
    assert {
        *(f"Figure {i}" for i in range(1, 8)),
        *(f"Table {i}" for i in range(1, 5)),
        *(f"Algorithm {i}" for i in range(1, 4)),
        "Theorem 1",
        "Theorem 2",
    } | set(REPORTED[REPORTED.paper == "plgu"].artefact) == listed
