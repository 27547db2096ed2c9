"""FFT-GP's claims and deviations: invented runs in which the paper is right, wrong,
undecided, and which params.yaml plans.
"""

import json

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import Finding, NotRun, Values, check_claims
from repro.ledger import METRICS, slug

OURS = papers.module("fft-gp", "claims")
CLAIMS = OURS.CLAIMS
FIGURE6 = OURS.FIGURE6
GAPS = OURS.GAPS
MOVED = OURS.MOVED
OUT = OURS.OUT
OWN = OURS.OWN
PLACES = OURS.PLACES
READINGS = OURS.READINGS
RIVALS = OURS.RIVALS
STEPS = OURS.STEPS
WORST = OURS.WORST
Units = OURS.Units
run = OURS.run
step = OURS.step
REPORTED = ledger.read_reported()
MINE = REPORTED[REPORTED.paper == "fft-gp"]
NAMED = {c.key.removeprefix("fft-gp-"): c for c in CLAIMS}
PARAMS = studies.load(ROOT / "params.yaml")
PLAN = PARAMS["fft-gp"]["studies"]
GUESTS = {p: t["guest"]["grid"] for p, t in PLAN["general"]["tasks"].items()}
ENTRIES = [d for d in claims.read_deviations() if d["id"].startswith("FFT-GP-")]
WHOLE = (*GAPS, *WORST, "weight_gap_correlation", "seconds_over_fedavg")
OPEN = (-30.0, 30.0, -30.0, 30.0, 0.0)  # what no pairing removes


def rows(u, method, value, how="", seeds=3, noise=(0.0,), **more):
    """One run's rows at every data set, left-out domain and seed of some units, with
    what the seeds of a unit share.
    """
    out = []
    for p in u.places:
        for i, g in enumerate(GUESTS[p] if u.out else ("",)):
            for s in range(seeds):
                shared = 0.1 * s + 0.2 * i + len(p) * (len(u.places) > 1)
                out.append(
                    {
                        "paper": "fft-gp",
                        "study": u.study or papers.main_study("fft-gp", p),
                        "dataset": p,
                        "method": method,
                        "setting": ";".join(filter(None, (g and f"guest={g}", how))),
                        "metric": u.metric,
                        "seed": s,
                        "rule": "run" if u.metric in WHOLE else "last",
                        "data": "stand-in",
                        "tier": "small",
                        "value": value
                        + shared
                        + noise[(s + (u.places.index(p) or 2 * i)) % len(noise)],
                    }
                    | more
                )
    return pd.DataFrame(out)


def one(key, *tables):
    try:
        return NAMED[key].test(Values.of(pd.concat(tables)))
    except NotRun as e:
        return Finding("not run", f"needs {e}")


def flips(key, make, good, bad, *fixed):
    """Yes with one value, no with another, undecided for one unit and where the units
    disagree, not run without. make: a function of a value, and keywords of `rows`, that
    gives a table.
    """
    found = one(key, make(good), *fixed)
    assert found.holds == "yes", found.evidence
    assert one(key, make(bad), *fixed).holds == "no"
    assert one(key, make(good, noise=OPEN), *fixed).holds == "undecided"
    assert one(key, *fixed).holds == "not run"
    return found


def compare(key, u, a, b):
    """A claim that says run a, (method, setting), is better than run b."""
    up = 1 if METRICS[u.metric].better == "high" else -1
    found = flips(
        key,
        lambda x, **k: rows(u, a[0], x, a[1], **k),
        50 + 5 * up,
        50 - 5 * up,
        rows(u, b[0], 50, b[1]),
    )
    assert "better by 5" in found.evidence and u.pairs in found.evidence
    single = [
        t[(t.seed == 0) & (t.dataset == u.places[0])]
        for t in (rows(u, a[0], 55, a[1]), rows(u, b[0], 50, b[1]))
    ]
    alone = one(key, *single)
    assert alone.holds in (
        ("not run",)
        if len(u.places) > 1
        else ("undecided",)
        if not u.out
        else ("yes", "no")
    ), alone.evidence


def where(u):
    return slug(u.places[0]) if len(u.places) == 1 else "all"


# what the tables say of OfficeHome is another sentence
EVERYWHERE = [("PACS",), ("OfficeHome",), PLACES]
TABLES = {OWN: ("own", "", False), OUT: ("out", "general", True)}


def units(metric, places):
    return Units(metric, places, *TABLES[metric][1:])


# ------------------------------------------------------------------ the list


def test_the_list():
    assert {c.artefact for c in CLAIMS} <= artefacts.names(REPORTED)["fft-gp"]
    assert (
        len({c.key for c in CLAIMS})
        == len(CLAIMS)
        == len({c.text for c in CLAIMS})
        == len(NAMED)
    )
    # one sentence each
    assert all(c.text.endswith(".") and c.text.count(". ") == 0 for c in CLAIMS)
    paper = {c.artefact for c in CLAIMS if c.by == "paper"}
    assert paper == {
        "Table 2",
        "Table 3",
        *(f"Figure 6({k})" for k in "abcd"),
        "Method",
        "Foundation models",
    }


def test_the_rivals_are_those_of_the_tables():
    for table, metric in (("Table 2", OWN), ("Table 3", OUT)):
        assert {*RIVALS[metric], "FFT-GP"} == set(MINE[MINE.artefact == table].method)


# ------------------------------------------------------------------ units


def test_units_are_what_a_comparison_pairs():
    one_, out, many = (
        Units(OWN, ("PACS",)),
        Units(OUT, ("PACS",), "general", True),
        Units(OUT, PLACES, "general", True),
    )
    v = Values.of(pd.concat([rows(one_, "FedAvg", 80), rows(many, "FedAvg", 60)]))
    x, y, z = (u.read(v, run("FedAvg")) for u in (one_, out, many))
    assert (
        list(x) == pytest.approx([80, 80.1, 80.2])
        and len(y) == 4 * 3
        and len(z) == 5 * 3
    )
    assert y[0, "cartoon"] == pytest.approx(60.2 + len("PACS")) and z[
        "PACS", 1
    ] == pytest.approx(y[1].mean())
    assert [u.pairs for u in (one_, out, many)] == [
        "seeds",
        "pairs of left-out domain and seed",
        "pairs of data set and seed",
    ]
    with pytest.raises(NotRun, match="general PACS FedProx guest=art_painting"):
        out.read(v, run("FedProx"))
    some = pd.concat(
        [
            rows(many, "FedAvg", 60),
            rows(many, "GA", 60).query("setting != 'guest=cartoon'"),
        ]
    )
    for u in (out, many):
        # others were run without it
        with pytest.raises(NotRun, match="general PACS GA guest=cartoon"):
            u.read(Values.of(some), run("GA"))
    assert (
        len(many.read(Values.of(some.query("setting != 'guest=cartoon'")), run("GA")))
        == 5 * 3
    )


def test_a_unit_that_broke_is_left_out():
    u = Units(OUT, PLACES, "general", True)
    t = rows(u, "FedAvg", 60)
    t.loc[
        (t.setting == "guest=sketch") & (t.dataset == "PACS") & (t.seed == 1), "value"
    ] = np.inf
    # no mean over three of four
    assert len(u.read(Values.of(t), run("FedAvg"))) == 5 * 3 - 1
    assert (
        len(Units(OUT, ("PACS",), "general", True).read(Values.of(t), run("FedAvg")))
        == 4 * 3 - 1
    )
    t["value"] = np.nan
    with pytest.raises(NotRun, match="as a number"):
        u.read(Values.of(t), run("FedAvg"))


def test_guests_together_are_a_mean_per_seed():
    u = Units(OUT, ("PACS",), "ablation", True)
    v = Values.of(pd.concat([rows(u, "GA", 60), rows(u, "GA", 70, "centre=True")]))
    plain, centred = (
        v.get(OUT, "GA", "PACS", s, "ablation")
        for s in ("guest=*", "guest=*;centre=True")
    )
    assert list(plain) == pytest.approx([60.3, 60.4, 60.5]) and list(
        centred - plain
    ) == pytest.approx([10] * 3)
    for setting in ("guest=*;metric=loss", "guest=*"):
        with pytest.raises(NotRun):
            v.get(
                OUT,
                "FAA" if setting == "guest=*" else "GA",
                "PACS",
                setting,
                "ablation",
            )


# ------------------------------------------------------------------ Tables 2 and 3


@pytest.mark.parametrize("places", EVERYWHERE)
@pytest.mark.parametrize("metric", TABLES)
def test_best_of_a_table(metric, places):
    u, key = units(metric, places), TABLES[metric][0]
    others = [rows(u, r, 50) for r in RIVALS[metric]]

    def best(key, method):
        flips(
            f"{key}-{where(u)}", lambda x, **k: rows(u, method, x, **k), 55, 45, *others
        )
        got = one(
            f"{key}-{where(u)}",
            rows(u, method, 55),
            rows(u, RIVALS[metric][-1], 60),
            *others[:-1],
        )
        assert got.holds == "no" and f"{RIVALS[metric][-1]} 6" in got.evidence
        lacking = one(f"{key}-{where(u)}", rows(u, method, 55), *others[:-1])
        assert (
            lacking.holds == "undecided"
            and f"not run: {RIVALS[metric][-1]}" in lacking.evidence
        )

    if places == ("OfficeHome",):
        compare(
            f"{key}-second-officehome",
            u,
            (RIVALS[metric][{OWN: 1, OUT: 3}[metric]], ""),
            run("FFT-GP"),
        )
        assert f"{key}-best-officehome" not in NAMED
    else:
        best(f"{key}-best", "FFT-GP")
    compare(f"{key}-above-fedavg-{where(u)}", u, run("FFT-GP"), run("FedAvg"))
    if len(places) > 1:
        best(f"{key}-lagged-best", "FFT-GP-lagged")
        compare(f"{key}-timing-all", u, run("FFT-GP"), run("FFT-GP-lagged"))
    if metric == OWN:
        compare(f"own-above-local-{where(u)}", u, run("FFT-GP"), run("Local"))
    else:
        compare(f"out-above-ga-{where(u)}", u, run("FFT-GP"), run("GA"))
        rest = [t for t in others if t.method.iloc[0] != "GA"]
        flips(
            f"ga-second-{where(u)}",
            lambda x, **k: rows(u, "GA", x, **k),
            55,
            45,
            rows(u, "FFT-GP", 90),
            *rest,
        )
        home = Units(OWN, places, "general-own", True)
        flips(
            f"own-best-one-out-{where(u)}",
            lambda x, **k: rows(home, "FFT-GP", x, **k),
            55,
            45,
            *(rows(home, r, 50) for r in RIVALS[OUT]),
        )


@pytest.mark.parametrize("places", EVERYWHERE)
def test_levels(places):
    for key, u, other, methods in (
        (
            "own-above-global",
            Units(OWN, places),
            Units("global_acc_pct", places),
            RIVALS[OWN],
        ),
        (
            "left-out-below-own",
            Units(OWN, places, "general-own", True),
            Units(OUT, places, "general", True),
            RIVALS[OUT],
        ),
    ):
        low, high = (
            [rows(other, m, 50) for m in (*methods, "FFT-GP")],
            [rows(u, m, 60) for m in methods],
        )
        flips(
            f"fft-gp-{key}-{where(u)}",
            lambda x, u=u, **k: rows(u, "FFT-GP", x, **k),
            60,
            40,
            *low,
        )
        got = [
            one(f"{key}-{where(u)}", rows(u, "FFT-GP", x), *high, *low)
            for x in (60, 40)
        ]
        assert [g.holds for g in got] == ["yes", "no"] and "(FFT-GP)" in got[1].evidence
        lacking = one(f"{key}-{where(u)}", *high, *low)
        assert lacking.holds == "undecided" and "not run: FFT-GP" in lacking.evidence


# ------------------------------------------------------------------ Figure 6


@pytest.mark.parametrize("places", [("TerraInc",), tuple(FIGURE6)])
@pytest.mark.parametrize("metric", [*GAPS, *WORST])
def test_spread_of_the_gaps(metric, places):
    u, end = Units(metric, places, "fairness"), slug(metric)
    for rule in READINGS:
        for rival in ("FedAvg", "GA"):
            compare(
                f"{slug(rule)}-below-{rival.lower()}-{end}-{where(u)}",
                u,
                run(rule),
                run(rival),
            )
    if metric in GAPS:
        compare(f"timing-{end}-{where(u)}", u, run("FAA"), run("FAA-lagged"))


@pytest.mark.parametrize("m", MOVED)
@pytest.mark.parametrize("places", [("TerraInc",), tuple(FIGURE6)])
def test_more_weight_smaller_gap(places, m):
    u = Units("weight_gap_correlation", places, "fairness")
    shared = 0.2 + 6 * (len(places) > 1)  # of `rows`, on average
    for key, how, fixed in (
        ("smaller-gap", "", ()),
        ("same-round", "same round", ()),
        ("beyond-chance", "", (rows(u, m, 0, "gaps of FedAvg").assign(value=0.1),)),
    ):
        key = f"{slug(m)}-more-weight-{key}-{where(u)}"
        t = {
            x: rows(u, m, 0, how).assign(value=lambda t, x=x: x + 0.01 * t.seed)
            for x in (-0.6, 0.4)
        }
        assert [one(key, x, *fixed).holds for x in t.values()] == ["yes", "no"]
        assert "-0." in one(key, t[-0.6], *fixed).evidence
        assert (
            one(key, rows(u, m, -shared, how, noise=OPEN), *fixed).holds == "undecided"
        )
        for lost in (rows(u, "FedAvg", -0.6, how), t[-0.6].assign(value=np.nan)):
            assert one(key, lost, *fixed).holds == "not run"
    single = t[-0.6].query("dataset == 'TerraInc' and seed == 0")
    assert (
        one(f"{slug(m)}-more-weight-smaller-gap-terrainc", single).holds == "undecided"
    )


# -------------------------------------------------- which part helps, and what it costs


@pytest.mark.parametrize("metric", [OWN, OUT])
def test_ablation(metric):
    u, end = Units(metric, ("PACS",), "ablation", True), f"{metric.split('_')[0]}-pacs"
    for w in ("equal", "faa", "lagged"):
        for key, a, b in (
            ("meta-helps", "mldg", "none"),
            ("joint-helps", "joint", "none"),
            ("grace-helps", "grace", "none"),
            ("meta-beyond-joint", "mldg", "joint"),
        ):
            compare(f"{key}-{w}-{end}", u, step(w, a), step(w, b))
        if w != "equal":
            for meta in STEPS:
                compare(
                    f"{w}-weights-help-{meta}-{end}",
                    u,
                    step(w, meta),
                    step("equal", meta),
                )
    half = run("FFT-GP", "lr=0.025;ahead=0.01")
    compare(f"half-meta-helps-{end}", u, half, step("faa", "none"))
    compare(f"whole-beyond-half-{end}", u, step("faa", "mldg"), half)
    compare(f"faa-beyond-ga-{end}", u, step("faa", "none"), run("GA"))
    s = Units(metric, ("PACS",), "sweeps", True)
    compare(
        f"alignment-helps-{end}", s, run("FFT-GP", "lam=0.1"), run("FFT-GP", "lam=0")
    )


def test_a_single_seed_is_paired_over_left_out_domains():
    u = Units(OUT, ("PACS",), "ablation", True)
    t = [
        rows(u, *x)
        for x in (("FFT-GP", 60, "meta=mldg", 1), ("FFT-GP", 55, "meta=none", 1))
    ]
    got = one("meta-helps-faa-out-pacs", *t)
    assert got.holds == "yes" and "4 pairs of left-out domain and seed" in got.evidence
    lone = one(
        "meta-helps-faa-out-pacs", t[0], t[1][t[1].setting != "guest=photo;meta=none"]
    )
    assert lone.holds == "not run" and "guest=photo" in lone.evidence


@pytest.mark.parametrize("method", ["FFT-GP", "FFT-GP-lagged"])
def test_cost(method):
    u, key = (
        Units("seconds_over_fedavg", ("PACS",), "cost"),
        f"{slug(method)}-cost-pacs",
    )
    t = {
        x: rows(u, method, x).assign(value=lambda t, x=x: x + 0.01 * t.seed)
        for x in (1.4, 1.1, 1.8)
    }
    assert [one(key, x).holds for x in t.values()] == ["yes", "no", "no"]
    assert (
        one(key, t[1.4][:1]).holds == "undecided"
        and "claimed 1.3 to 1.5" in one(key, t[1.4]).evidence
    )
    assert one(key, rows(u, method, 1.4)).holds == "undecided"  # 1.4 to 1.6
    assert one(key, rows(u, "GRACE", 1.4)).holds == "not run"


# ----------------------------------------------------------------- beside a frozen CLIP


@pytest.mark.parametrize(
    "u", [Units(OWN, ("PACS",), "adapted"), Units(OUT, ("PACS",), "adapted_out", True)]
)
def test_foundation_models(u):
    end, ce = f"{u.metric.split('_')[0]}-pacs", run("FedCLIP", "fedclip_loss=class_ce")
    for key, a, b in (
        ("fedclip-above-zero-shot", run("FedCLIP"), run("Zero-shot")),
        ("promptfl-above-zero-shot", run("PromptFL"), run("Zero-shot")),
        ("class-loss-above-zero-shot", ce, run("Zero-shot")),
        ("class-loss-helps", ce, run("FedCLIP")),
        ("prompts-above-adapter", run("PromptFL"), run("FedCLIP")),
        ("fft-gp-helps-adapter", run("FFT-GP (adapter)"), run("FedCLIP")),
        ("fft-gp-helps-prompts", run("FFT-GP (prompts)"), run("PromptFL")),
        ("fft-gp-beyond-class-loss", run("FFT-GP (adapter)"), ce),
    ):
        compare(f"{key}-{end}", u, a, b)
    clip = rows(u, "FedCLIP", 50)
    got = [
        one(f"prompts-near-adapter-{end}", rows(u, "PromptFL", x), clip).holds
        for x in (51, 49, 53, 47)
    ]
    assert got == ["yes", "yes", "no", "no"]
    assert (
        one(
            f"prompts-near-adapter-{end}", rows(u, "PromptFL", 51, noise=OPEN), clip
        ).holds
        == "undecided"
    )


# ----------------------------------------------------- the paper against its own tables


def printed(key, reported=REPORTED):
    return check_claims(
        [NAMED[f"printed-{key}"]],
        ledger.parts(ROOT / "no such folder", "seeds", REPORTED),
        reported,
    ).iloc[0]


def change(table, place, method, column="reported", value=None):
    out = REPORTED.copy()
    at = (
        (out.paper == "fft-gp")
        & (out.artefact == table)
        & (out.dataset == place)
        & (out.method == method)
    )
    assert at.sum() == 1
    out.loc[at, column] = value
    return out


def test_the_papers_own_numbers():
    """Readable in the two tables."""
    found = {
        k: printed(k)
        for k in (c.key.removeprefix("fft-gp-printed-") for c in CLAIMS if c.printed)
    }
    assert {
        k: (f.holds, f.evidence.split(";")[0].removeprefix("holds in "))
        for k, f in found.items()
    } == {
        "highest-own": ("no", "5 of 6"),
        "highest-out": ("no", "5 of 6"),
        "averages": ("yes", "15 of 15"),
        "marks": ("no", "11 of 12"),
        "fedavg-last": ("yes", "1 of 1"),
        "ga-second": ("yes", "1 of 1"),
        "left-out-below-own": ("yes", "36 of 36"),
    }
    assert "86.26 against 86.88 of Ditto" in found["highest-own"].evidence
    assert (
        "AFL 90.94 is unmarked, Ditto 90.88 is underlined, q-FFL 90.88 is underlined"
        in found["marks"].evidence
    )
    assert (
        found["averages"].tier == "exact"
        and printed("averages", None).holds == "not run"
    )


@pytest.mark.parametrize(
    "key, right",
    [
        ("highest-own", ("Table 2", "OfficeHome", "FFT-GP", "reported", "86.90")),
        ("highest-out", ("Table 3", "OfficeHome", "FFT-GP", "reported", "71.90")),
        ("marks", ("Table 2", "DomainNet", "AFL", "reported", "90.88")),
    ],
)
def test_a_paper_that_agrees_with_itself(key, right):
    out = change(*right)
    if key == "marks":
        out.loc[
            out.key == "fft-gp-table-2-domainnet-afl-in_domain_acc_pct", "rank_note"
        ] = "printed underlined"
    assert printed(key).holds == "no" and printed(key, out).holds == "yes"


@pytest.mark.parametrize(
    "key, wrong",
    [
        ("averages", ("Table 3", "VLCS", "GA", "reported", "79.99")),
        ("fedavg-last", ("Table 2", "Avg", "q-FFL", "reported", "89.00")),
        ("ga-second", ("Table 3", "Avg", "GRACE", "reported", "73.50")),
        ("ga-second", ("Table 3", "Avg", "GA", "reported", "80.00")),
        ("left-out-below-own", ("Table 3", "VLCS", "AFL", "reported", "90.00")),
    ],
)
def test_one_number_would_refute_what_holds(key, wrong):
    assert printed(key).holds == "yes" and printed(key, change(*wrong)).holds == "no"


# --------------------------------------------------------------- what params.yaml plans

CALLED = {
    "q-FedAvg": "q-FFL",
    ("PACS adapter", "FFT-GP"): "FFT-GP (adapter)",
    ("PACS prompts", "FFT-GP"): "FFT-GP (prompts)",
}
READS = {
    "personal": {"personal": (OWN, "global_acc_pct")},
    "general": {"general": (OUT,), "general-own": (OWN,)},
    "ablation": {"ablation": (OUT, OWN)},
    "sweeps": {"sweeps": (OUT, OWN)},
    "adapted": {"adapted": (OWN,)},
    "adapted_out": {"adapted_out": (OUT,)},
}


def published(tier):
    """Invented numbers for every run that params.yaml plans at a tier,
    as the notebooks publish them.
    """
    out, base = [], {"paper": "fft-gp", "tier": tier, "data": "stand-in"}
    with pytest.MonkeyPatch.context() as m:
        m.setattr(studies, "load", lambda path: PARAMS)  # once is enough
        planned = {
            study: studies.cells("fft-gp", study, tier=tier)[0] for study in PLAN
        }
    for study, found in planned.items():
        for c in found:
            who = CALLED.get((c.dataset, c.method), CALLED.get(c.method, c.method))
            at = base | {
                "dataset": c.dataset.split()[0],
                "setting": c.setting,
                "seed": c.seed,
            }
            value = 40 + len(who + c.setting) % 7 + 0.1 * c.seed
            at |= {"method": who, "value": value}
            out += [
                at | {"study": s, "metric": m, "rule": r}
                for s, metrics in READS.get(study, {}).items()
                for m in metrics
                for r in ("last", "best_val")
            ]
            if study == "fairness":
                out += [
                    at
                    | {
                        "study": study,
                        "method": k,
                        "metric": m,
                        "rule": "run",
                        "value": 0.1 * len(k) + 0.01 * c.seed,
                    }
                    for k in ("FedAvg", "GA", *READINGS)
                    for m in (*GAPS, *WORST)
                ]
                out += [
                    at
                    | {
                        "study": study,
                        "method": k,
                        "metric": "weight_gap_correlation",
                        "rule": "run",
                        "value": -0.3,
                        "setting": how,
                    }
                    for k in ("GA", *READINGS)
                    for how in ("", "gaps of FedAvg", "same round")
                ]
            if study in ("adapted", "adapted_out") and who == "PromptFL":
                out += [
                    at
                    | {
                        "study": study,
                        "method": "Zero-shot",
                        "metric": READS[study][study][0],
                        "rule": "last",
                    }
                ]
    t = pd.DataFrame(out)
    some = (
        t[t.study == "general"]
        .groupby(["dataset", "method", "seed", "metric", "rule"], as_index=False)
        .value.mean()
    )
    mean = (
        t[t.study == "personal"]
        .groupby(["study", "method", "seed", "metric", "rule"], as_index=False)
        .value.mean()
    )
    table3 = some.assign(study="Table 3")
    avg = table3.groupby(
        ["study", "method", "seed", "metric", "rule"], as_index=False
    ).value.mean()
    cost = pd.DataFrame(
        [
            {
                "study": "cost",
                "dataset": "PACS",
                "method": m,
                "seed": s,
                "metric": "seconds_over_fedavg",
                "rule": "run",
                "value": 1.4,
            }
            for m in ("FFT-GP", "FFT-GP-lagged")
            for s in range(3)
        ]
    )
    extra = pd.concat(
        [table3, avg.assign(dataset="Avg"), mean.assign(dataset="Avg"), cost]
    ).assign(setting="", **base)
    return pd.concat([t, extra], ignore_index=True)


@pytest.fixture(
    scope="module", params=[pytest.param("small", marks=pytest.mark.full), "paper"]
)
def planned(request):
    return published(request.param)


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS, planned, REPORTED)
    assert set(t.data[t.tier != "exact"]) == {"stand-in"} and set(t.holds) >= {
        "yes",
        "no",
        "undecided",
    }
    assert (
        list(t.key[t.holds == "not run"]) == []
        and not t.evidence.str.contains("not run").any()
    )


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    e = claims.effects(ENTRIES, planned)
    assert len(e) > 20 and list(e.key[e.evidence == "not run"]) == []


def test_the_planned_runs_can_be_stored(planned):
    assert len(ledger.check(planned, "seeds", REPORTED)) == len(planned)


def test_tier_tiny_decides_nothing_and_breaks_nothing():
    t = published("tiny")
    odd = t.assign(
        value=np.random.default_rng(0).choice([0.0, 1.0, np.inf], len(t))
    ).sample(frac=0.8, random_state=0)
    got = check_claims([c for c in CLAIMS if not c.printed], odd, REPORTED)
    assert set(got.holds) == {"undecided", "not run"}
    claims.effects(ENTRIES, odd)


def test_headline(planned, tmp_path):
    ledger.save(planned, "seeds", "fft-gp-x", tmp_path)
    claims.headline(
        tmp_path,
        check_claims(CLAIMS[:1], planned),
        ledger.parts(tmp_path, "seeds", REPORTED),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())["fft-gp"]
    assert set(found) == {*PLACES, "Avg"} and {OWN, OUT, "global_acc_pct"} <= set(
        found["Avg"]["FFT-GP"]
    )
