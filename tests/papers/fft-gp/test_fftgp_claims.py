"""FFT-GP's claims and deviations: the list with its quotes, every pattern in each
verdict, and which runs params.yaml plans.
"""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import NotRun, Values, check_claims, declared
from repro.metrics import METRICS

CLAIMS = {c.key.removeprefix("fft-gp-"): c for c in declared("fft-gp")}
REPORTED = ledger.read_reported()
MINE = REPORTED[REPORTED.paper == "fft-gp"]
OWN, OUT, GLOBAL = "in_domain_acc_pct", "out_of_domain_acc_pct", "global_acc_pct"
SETS = ("PACS", "VLCS", "OfficeHome", "TerraInc", "DomainNet")
RIVALS = {
    OWN: ("FedAvg", "Ditto", "AFL", "q-FFL", "PerFedAvg", "GRACE"),
    OUT: ("FedAvg", "FedProx", "AFL", "q-FFL", "PerFedAvg", "GA", "GRACE"),
}
GAPS = ("gap_std_val", "gap_std_test", "gap_acc_std_val", "gap_acc_std_test")
WORST = ("gap_worst_val", "gap_worst_test")
RULES = ("FedAvg", "GA", "FAA", "FAA-lagged")
MOVED = "weight_gap_correlation"
WHOLE = (*GAPS, *WORST, MOVED, "seconds_over_fedavg")  # of a whole run
PARAMS = studies.load(ROOT / "params.yaml")
PLAN = PARAMS["fft-gp"]["studies"]
GUESTS = {p: t["guest"]["grid"] for p, t in PLAN["general"]["tasks"].items()}
ABROAD = ("general", "general-own", "ablation", "sweeps", "adapted_out")
NOISE = np.array([-1.0, 0.5, 0.1, 0.8, -0.4])  # of five seeds


def runs(values, metric, dataset="PACS", study="", **more):
    """Long rows; values: {"method" or "method|setting": one number, or one a seed}; one
    row for each domain left out, where the study has that.
    """
    row = {
        "paper": "fft-gp",
        "study": study or papers.main_study("fft-gp", dataset),
        "dataset": dataset,
        "metric": metric,
        "rule": "run" if metric in WHOLE else "last",
        "data": "stand-in",
        "tier": "small",
    } | more
    guests = [f"guest={g}" for g in GUESTS[dataset]] if study in ABROAD else [""]
    return pd.DataFrame(
        row
        | {"method": method, "setting": ";".join(filter(None, (guest, how)))}
        | {"seed": seed, "value": float(x) + i}
        for who, said in values.items()
        for method, _, how in [who.partition("|")]
        for i, guest in enumerate(guests)
        for seed, x in enumerate(np.broadcast_to(said, 5))
    )


def ahead(metric, d, mine, rivals, places=("PACS",), study="", **more):
    """A run that is better than others by d, on some data sets."""
    sign = 1 if METRICS[metric].better == "high" else -1
    values = {mine: 50 + sign * d} | dict.fromkeys(rivals, 50)
    return pd.concat(runs(values, metric, p, study, **more) for p in places)


def check(key, *tables, **more):
    """The row of claims.csv of one claim."""
    return check_claims([CLAIMS[key]], pd.concat(tables), **more).iloc[0]


# ---------------------------------------------------------------- the list
def test_no_claim_is_lost():
    assert len(CLAIMS) == len({c.text for c in CLAIMS.values()}) == 336
    ends = Counter(k.rsplit("-", 1)[1] for k in CLAIMS if not k.startswith("printed"))
    drawn = {"vlcs": 49, "officehome": 49, "terrainc": 49}  # in Figure 6
    assert ends == drawn | {"all": 53, "domainnet": 12, "pacs": 117}


def test_the_papers_claims_have_its_words():
    known = artefacts.names(REPORTED)["fft-gp"]
    for c in CLAIMS.values():
        assert c.artefact in known and c.text.endswith("."), c.key
        assert c.text.count(". ") == 0, c.key  # one sentence
        assert bool(c.quote) == bool(c.section) == (c.by == "paper"), c.key
        assert len(c.quote) <= 160 and c.quote == " ".join(c.quote.split()), c.key


def test_the_rivals_are_those_of_the_tables():
    for table, metric in (("Table 2", OWN), ("Table 3", OUT)):
        assert {*RIVALS[metric], "FFT-GP"} == set(MINE[MINE.artefact == table].method)


# ---------------------------------------------------------------- what is averaged
def test_left_out_domains_and_data_sets_are_means_seed_by_seed():
    t = pd.concat(runs({"GA": 50 + NOISE}, OUT, p, "general") for p in SETS)
    v = Values.of(t)
    shift = {p: (len(GUESTS[p]) - 1) / 2 for p in SETS}  # of `runs`, on average
    one = v.get(OUT, "GA", "VLCS", "guest=*", "general")
    assert list(one) == pytest.approx(list(50 + shift["VLCS"] + NOISE))
    all_ = v.get(OUT, "GA", SETS, "guest=*", "general")
    assert list(all_) == pytest.approx(list(50 + np.mean([*shift.values()]) + NOISE))
    lost = (t.dataset == "PACS") & (t.setting == "guest=sketch") & (t.seed == 1)
    for left in (v.get(OUT, "GA", p, "guest=*", "general") for p in ("PACS", SETS)):
        assert len(left) == 5
    for p in ("PACS", SETS):  # no mean over three of four
        left = Values.of(t[~lost]).get(OUT, "GA", p, "guest=*", "general")
        assert list(left.index) == [0, 2, 3, 4]


def test_a_domain_that_others_were_run_without_is_missed():
    t = ahead(OUT, 5, "FFT-GP", ["GA"], ["PACS"], "general")
    lost = (t.method == "GA") & (t.setting == "guest=cartoon")
    c = check("out-above-ga-pacs", t[~lost])
    assert c.holds == "not run" and "general PACS GA guest=cartoon" in c.evidence
    with pytest.raises(NotRun, match="PACS FFT-GP guest=art_painting;meta=mldg"):
        # equal weights are another run, though their setting has that part
        other = runs({"FFT-GP|eta=0;meta=mldg": 50}, OUT, "PACS", "ablation")
        Values.of(other).get(OUT, "FFT-GP", "PACS", "guest=*;meta=mldg", "ablation")


def test_a_mean_needs_every_data_set_and_names_the_one_where_nothing_is_learnt():
    t = ahead(OWN, 5 + NOISE, "FFT-GP", RIVALS[OWN], SETS)
    c = check("own-best-all", t[t.dataset != "VLCS"])
    assert c.holds == "not run" and "VLCS" in c.evidence
    shut = {("fft-gp", "small", "DomainNet"): "nothing is learnt"}
    c = check("own-best-all", t, closed=shut)
    assert c.reason == "DomainNet, one of 5: nothing is learnt"
    assert c.tier == "small" and c.runs.count("personal:") == 5
    assert check("own-best-pacs", t, closed=shut).holds == "yes"


# ---------------------------------------------------------------- every verdict
def levels(d, study, other, methods, where):
    """Every method's local models are ahead of its global one by d."""
    base = runs(dict.fromkeys(methods, 50), other, study=where)
    return pd.concat([runs(dict.fromkeys(methods, 50 + d), OWN, study=study), base])


def weighed(values, places=("PACS",)):
    return pd.concat(runs(values, MOVED, p, "fairness") for p in places)


FIGURE6 = SETS[:4]
HOME = (*RIVALS[OWN], "FFT-GP")
AWAY = (*RIVALS[OUT], "FFT-GP")
EQUAL = "FFT-GP|eta=0;trials=1;meta="
# claim -> whose runs it needs, `ahead` (or another function of d) and its arguments
PATTERNS = {
    "own-best-pacs": ("FFT-GP", OWN, "FFT-GP", RIVALS[OWN]),
    "own-best-all": ("FFT-GP", OWN, "FFT-GP", RIVALS[OWN], SETS),
    "out-best-vlcs": ("FFT-GP", OUT, "FFT-GP", RIVALS[OUT], ["VLCS"], "general"),
    "out-lagged-best-all": (
        *("FFT-GP-lagged", OUT, "FFT-GP-lagged", RIVALS[OUT]),
        *(SETS, "general"),
    ),
    "own-second-officehome": ("Ditto", OWN, "Ditto", ["FFT-GP"], ["OfficeHome"]),
    "out-second-officehome": (
        *("q-FFL", OUT, "q-FFL", ["FFT-GP"]),
        *(["OfficeHome"], "general"),
    ),
    "own-above-local-pacs": ("Local", OWN, "FFT-GP", ["Local"]),
    "out-above-ga-all": ("GA", OUT, "FFT-GP", ["GA"], SETS, "general"),
    "ga-second-pacs": (
        *("GA", OUT, "GA", [m for m in RIVALS[OUT] if m != "GA"]),
        *(["PACS"], "general"),
    ),
    "own-best-one-out-pacs": (
        *("FFT-GP", OWN, "FFT-GP", RIVALS[OUT]),
        *(["PACS"], "general-own"),
    ),
    "own-above-global-pacs": (HOME, lambda d: levels(d, "", GLOBAL, HOME, "")),
    "fft-gp-own-above-global-pacs": (HOME, lambda d: levels(d, "", GLOBAL, HOME, "")),
    "left-out-below-own-pacs": (
        AWAY,
        lambda d: levels(d, "general-own", OUT, AWAY, "general"),
    ),
    "faa-below-fedavg-gap_std_val-all": (
        *("FAA", "gap_std_val", "FAA", ["FedAvg"], FIGURE6, "fairness"),
    ),
    "faa-lagged-below-ga-gap_acc_std_test-terrainc": (
        *("GA", "gap_acc_std_test", "FAA-lagged", ["GA"], ["TerraInc"], "fairness"),
    ),
    "faa-below-ga-gap_worst_val-vlcs": (
        *("GA", "gap_worst_val", "FAA", ["GA"], ["VLCS"], "fairness"),
    ),
    "timing-gap_std_test-pacs": (
        *("FAA", "gap_std_test", "FAA", ["FAA-lagged"], ["PACS"], "fairness"),
    ),
    "ga-more-weight-smaller-gap-all": ("GA", lambda d: weighed({"GA": -d}, FIGURE6)),
    "faa-more-weight-beyond-chance-pacs": (
        "FAA",
        lambda d: weighed({"FAA": -d, "FAA|gaps of FedAvg": 0}),
    ),
    "ga-more-weight-same-round-pacs": ("GA", lambda d: weighed({"GA|same round": -d})),
    "meta-helps-equal-in-pacs": (
        *("FFT-GP", OWN, f"{EQUAL}mldg", [f"{EQUAL}none"], ["PACS"], "ablation"),
    ),
    "lagged-weights-help-joint-out-pacs": (
        *("FFT-GP-lagged", OUT, "FFT-GP-lagged|meta=joint", [f"{EQUAL}joint"]),
        *(["PACS"], "ablation"),
    ),
    "half-meta-helps-out-pacs": (
        *("FFT-GP", OUT, "FFT-GP|lr=0.025;ahead=0.01", ["FFT-GP|meta=none"]),
        *(["PACS"], "ablation"),
    ),
    "alignment-helps-in-pacs": (
        *("FFT-GP", OWN, "FFT-GP|lam=0.1", ["FFT-GP|lam=0"], ["PACS"], "sweeps"),
    ),
    "class-loss-helps-out-pacs": (
        *("FedCLIP", OUT, "FedCLIP|fedclip_loss=class_ce", ["FedCLIP"]),
        *(["PACS"], "adapted_out"),
    ),
    "fft-gp-helps-prompts-in-pacs": (
        *("PromptFL", OWN, "FFT-GP (prompts)", ["PromptFL"], ["PACS"], "adapted"),
    ),
}


def made(key, d):
    """Runs in which the effect of a claim is d, in the unit of its metric."""
    _, how, *rest = PATTERNS[key]
    return how(d) if callable(how) else ahead(how, d, *rest)


def margin(key):
    how = PATTERNS[key][1]
    metric = (MOVED if "weight-" in key else OWN) if callable(how) else how
    return METRICS[metric].margin


# verdict -> mean and spread of the effect, in margins
EFFECTS = {"yes": (5, 0.1), "no": (-5, 0.1), "alike": (0, 0.1), "undecided": (0.5, 3)}


@pytest.mark.parametrize("key", PATTERNS)
@pytest.mark.parametrize("verdict", EFFECTS)
def test_a_pattern_reaches_each_verdict(key, verdict):
    mean, spread = EFFECTS[verdict]
    table = made(key, margin(key) * (mean + spread * NOISE))
    c = check(key, table)
    assert c.holds == verdict, c.evidence
    assert c.n_seeds == 5  # not pairs with domains or data sets
    if verdict in ("yes", "no"):
        assert (c.effect > 0) == (verdict == "yes") and abs(c.effect) < 6 * c.margin
    few = check(key, table[table.seed < 4])
    assert few.holds == "undecided"


@pytest.mark.parametrize("key", PATTERNS)
def test_what_is_missing_is_not_run(key):
    table, who = made(key, margin(key) * (5 + 0.1 * NOISE)), PATTERNS[key][0]
    rest = table[~table.method.isin([who] if isinstance(who, str) else who)]
    c = check(key, rest, runs({"Local": 1}, GLOBAL))
    assert c.holds == "not run" and "needs" in c.evidence


@pytest.mark.parametrize("key", PATTERNS)
def test_below_the_gate_scores_are_not_testable(key):
    table = made(key, margin(key) * (5 + 0.1 * NOISE))
    shut = {("fft-gp", "small", table.dataset.iloc[-1]): "nothing is learnt"}
    c = check(key, table, closed=shut)
    assert c.holds == "not testable" and "nothing is learnt" in c.reason


def test_a_rival_that_was_not_run_leaves_it_open():
    table = ahead(OWN, 5 + NOISE, "FFT-GP", RIVALS[OWN][:-1])
    c = check("own-best-pacs", table)
    assert c.holds == "undecided" and "not run: GRACE" in c.evidence
    one = runs({"GRACE": 80 + NOISE}, OWN)
    assert check("own-best-pacs", table, one).holds == "no"


@pytest.mark.parametrize(
    "x, holds", [(51, "yes"), (49, "yes"), (53, "no"), (47, "no"), (50, "undecided")]
)
@pytest.mark.parametrize("end, study", [("in", "adapted"), ("out", "adapted_out")])
def test_prompts_near_adapter(x, holds, end, study):
    spread = 5 if holds == "undecided" else 0.1
    values = {"PromptFL": x + spread * NOISE, "FedCLIP": 50}
    table = runs(values, {"in": OWN, "out": OUT}[end], "PACS", study)
    assert check(f"prompts-near-adapter-{end}-pacs", table).holds == holds


@pytest.mark.parametrize(
    "x, holds", [(1.4, "yes"), (1.1, "no"), (2.9, "no"), (1.3, "undecided")]
)
def test_cost(x, holds):
    values = {"FFT-GP": x + 0.01 * NOISE}
    table = runs(values, "seconds_over_fedavg", "PACS", "cost")
    assert check("fft-gp-cost-pacs", table).holds == holds


@pytest.mark.parametrize(
    "key, metric, study, table, place",
    [
        ("own-best-vlcs", OWN, "", "Table 2", "VLCS"),
        ("out-best-vlcs", OUT, "general", "Table 3", "VLCS"),
        ("out-best-all", OUT, "general", "Table 3", "Avg"),
    ],
)
def test_the_printed_gain_stands_beside_real_data_only(
    key, metric, study, table, place
):
    numbers = MINE[(MINE.artefact == table) & (MINE.dataset == place)]
    printed = numbers.set_index("method").reported.astype(float)
    gain = printed["FFT-GP"] - printed.drop("FFT-GP").max()
    places = SETS if place == "Avg" else [place]
    for data in ("real", "stand-in"):
        rows = ahead(
            metric, gain + NOISE, "FFT-GP", RIVALS[metric], places, study, data=data
        )
        c = check(key, rows, reported=REPORTED)
        if data == "real":
            assert c.printed == pytest.approx(gain) and c.gain == "contained"
        else:
            assert np.isnan(c.printed)


# ---------------------------------------------------------------- printed numbers
def printed(key, reported=REPORTED):
    none = ledger.parts(ROOT / "no such folder", "seeds", REPORTED)
    return check_claims([CLAIMS[f"printed-{key}"]], none, reported).iloc[0]


def change(table, place, method, value):
    out = REPORTED.copy()
    mine = (out.paper == "fft-gp") & (out.artefact == table)
    at = mine & (out.dataset == place) & (out.method == method)
    assert at.sum() == 1
    out.loc[at, "reported"] = value
    return out


@pytest.mark.parametrize(
    "key, holds, said",
    [
        ("highest-own", "no", "5 of 6; OfficeHome: 86.26 against 86.88 of Ditto"),
        ("highest-out", "no", "5 of 6; OfficeHome: 71.43 against 71.82 of q-FFL"),
        ("averages", "yes", "15 of 15"),
        ("marks", "no", "11 of 12; Table 2 DomainNet: AFL 90.94 is unmarked"),
        ("fedavg-last", "yes", "1 of 1"),
        ("ga-second", "yes", "1 of 1"),
        ("left-out-below-own", "yes", "36 of 36"),
    ],
)
def test_the_papers_own_numbers(key, holds, said):
    found = printed(key)
    assert found.holds == holds and f"holds in {said}" in found.evidence
    assert found.tier == "exact" and printed(key, None).holds == "not run"


@pytest.mark.parametrize(
    "key, other",
    [
        ("highest-own", ("Table 2", "OfficeHome", "FFT-GP", "86.90")),
        ("highest-out", ("Table 3", "OfficeHome", "FFT-GP", "71.90")),
        ("marks", ("Table 2", "DomainNet", "AFL", "90.00")),
        ("averages", ("Table 3", "VLCS", "GA", "79.99")),
        ("fedavg-last", ("Table 2", "Avg", "q-FFL", "89.00")),
        ("ga-second", ("Table 3", "Avg", "GRACE", "73.50")),
        ("ga-second", ("Table 3", "Avg", "GA", "80.00")),
        ("left-out-below-own", ("Table 3", "VLCS", "AFL", "90.00")),
    ],
)
def test_one_number_would_turn_it(key, other):
    assert {printed(key).holds, printed(key, change(*other)).holds} == {"yes", "no"}


# ---------------------------------------------------------------- what params.yaml plans
CALLED = {
    "q-FedAvg": "q-FFL",
    ("PACS adapter", "FFT-GP"): "FFT-GP (adapter)",
    ("PACS prompts", "FFT-GP"): "FFT-GP (prompts)",
}
READS = {  # study -> what the notebooks publish: [(study, metric)]
    "personal": [("personal", OWN), ("personal", GLOBAL)],
    "general": [("general", OUT), ("general-own", OWN), ("Table 3", OUT)],
    "ablation": [("ablation", OUT), ("ablation", OWN)],
    "sweeps": [("sweeps", OUT), ("sweeps", OWN)],
    "adapted": [("adapted", OWN)],
    "adapted_out": [("adapted_out", OUT)],
}


def published(tier):
    """Invented numbers for every run that params.yaml plans at a tier, as the notebooks
    publish them.
    """
    with pytest.MonkeyPatch.context() as m:
        m.setattr(studies, "load", lambda path: PARAMS)  # once is enough
        plan = {s: studies.cells("fft-gp", s, tier=tier)[0] for s in PLAN}
    out = []
    for study, found in plan.items():
        for c in found:
            who = CALLED.get((c.dataset, c.method), CALLED.get(c.method, c.method))
            at = {"dataset": c.dataset.split()[0], "method": who, "seed": c.seed}
            at |= {"setting": c.setting, "value": 40 + len(who) % 7 + 0.1 * c.seed}
            for s, metric in READS.get(study, ()):
                for rule in ("last", "best_val"):
                    out.append(at | {"study": s, "metric": metric, "rule": rule})
                    if (s, who) in (("adapted", "PromptFL"), ("adapted_out", who)):
                        out.append(out[-1] | {"method": "Zero-shot"})
            if study == "fairness":
                at |= {"study": study, "rule": "run"}
                out += [
                    at | {"method": k, "metric": m, "setting": how, "value": -0.3}
                    for k in RULES
                    for m in (*GAPS, *WORST, MOVED)
                    for how in ("", "gaps of FedAvg", "same round")
                ]
    t = pd.DataFrame(out)
    t.loc[t.study == "Table 3", "setting"] = ""
    t = t.drop_duplicates(["study", *ledger.POINT[2:], "rule"], ignore_index=True)
    both = t[t.study.isin(["personal", "Table 3"])]
    avg = both.drop_duplicates(["study", "method", "seed", "metric", "rule"])
    cost = {"study": "cost", "dataset": "PACS", "metric": "seconds_over_fedavg"}
    cost |= {"seed": 0, "rule": "run", "value": 1.4, "setting": ""}
    cost = pd.DataFrame([cost | {"method": m} for m in ("FFT-GP", "FFT-GP-lagged")])
    t = pd.concat([t, avg.assign(dataset="Avg"), cost], ignore_index=True)
    return t.assign(paper="fft-gp", tier=tier, data="stand-in")


@pytest.fixture(
    scope="module", params=[pytest.param("small", marks=pytest.mark.full), "paper"]
)
def planned(request):
    return published(request.param)


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS.values(), planned, REPORTED)
    assert set(t.data[t.tier != "exact"]) == {"stand-in"}
    assert list(t.key[t.holds == "not run"]) == []
    assert not t.evidence.str.contains("not run").any()


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    entries = claims.read_deviations()
    mine = [d for d in entries if d["id"].startswith("FFT-GP-")]
    e = claims.effects(mine, planned)
    assert len(e) > 20 and list(e.key[e.evidence == "not run"]) == []


def test_the_planned_runs_can_be_stored(planned, tmp_path):
    assert len(ledger.check(planned, "seeds", REPORTED)) == len(planned)
    ledger.save(planned, "seeds", "fft-gp-x", tmp_path)
    some = check_claims([CLAIMS["own-best-pacs"]], planned)
    claims.headline(tmp_path, some, ledger.parts(tmp_path, "seeds", REPORTED))
    found = json.loads((tmp_path / "metrics.json").read_text())["fft-gp"]
    assert set(found) == {*SETS, "Avg"}
    assert {OWN, OUT, GLOBAL} <= set(found["Avg"]["FFT-GP"])
