"""Claims: runs are found, declarations are read, and the table says what was found."""

import math
import re

import numpy as np
import pandas as pd
import pytest
import yaml
from toys_claims import LUCK, OWN, PLACE, table
from where import ROOT

from fedlib.measures.verdicts import ALPHA, LEVEL, LOOKS
from repro import artefacts, claims, ledger, papers
from repro.claims import Claim, NotRun, Values, check_claims, declared
from repro.claims.declared import QUOTE
from repro.claims.findings import REACHED
from repro.claims.printed import printed_gain
from repro.claims.report import closed_gates
from repro.ledger import ResultError

REPORTED = ledger.read_reported()


# ---------------------------------------------------------------- finding runs
def test_settings_are_found_by_their_parts():
    names = (
        "alpha=5;theta=0.01",
        "alpha=10;theta=0.01",
        "alpha=10;theta=0.01;weight_norm=sum",
        "alpha=5;theta=0.001",
    )
    values = {f"FedGA|{n}": [i, i] for i, n in enumerate(names)}
    v = Values.of(table(values, study="readings"))

    def found(setting):
        return v.get("mean_acc", "FedGA", PLACE, setting, "readings").iloc[0]

    wanted = ("alpha=10", "weight_norm=sum", "theta=0.001", "theta=0.01;alpha=5")
    assert [found(s) for s in wanted] == [1, 2, 3, 0]
    with pytest.raises(NotRun, match=r"alpha=5;theta=0.001 \| alpha=5;theta=0.01"):
        found("alpha=5")
    with pytest.raises(NotRun):
        found("")  # no run of that study is the plain one


def test_each_paper_has_its_rule_and_its_main_studies():
    more = {"paper": "fedas", "study": "grid", "dataset": "CIFAR-10"}
    fedas = table({"FedAS": [1, 1]}, "top1_acc_pct", rule="last10_mean", **more)
    v = Values.of(pd.concat([fedas, fedas.assign(rule="best_round_pooled", value=2.0)]))
    get = lambda **k: v.get("top1_acc_pct", "FedAS", "CIFAR-10", **k).iloc[0]
    assert (get(), get(rule="best_round_pooled")) == (1, 2)
    with pytest.raises(ResultError, match="fedas, fedga"):
        Values.of(pd.concat([fedas, table({"FedGA": [1.0]})]))


# ---------------------------------------------------------------- the list
ALL = claims.listed()


def test_claims_are_well_formed():
    known = artefacts.names(REPORTED)
    assert len({c.key for c in ALL}) == len(ALL)
    assert {c.paper for c in ALL} == set(papers.found())
    for c in ALL:
        assert c.artefact in known[c.paper] | {"Section 5"}, c.key
        assert c.text.endswith(".") and c.by in ("paper", "ours"), c.key
        assert c.place in {*papers.main_datasets(c.paper), "all"}, c.key
        assert c.key.startswith(f"{c.paper}-") and c.family.startswith(c.paper), c.key


def test_a_claim_of_a_paper_has_its_words_and_one_of_ours_has_none():
    for c in ALL:
        said = bool(c.section and c.quote)
        assert said == (c.by == "paper" and not c.printed) or c.printed, c.key
        assert len(c.quote) <= QUOTE and "\n" not in c.quote, c.key


def test_without_runs_every_claim_is_not_run():
    some = [c for c in ALL if c.paper == "fedga" and not c.printed]
    t = check_claims(some, ledger.parts(ROOT / "no such folder", "seeds", REPORTED))
    assert set(t.holds) == {"not run"} and list(t) == claims.COLUMNS
    t = check_claims(some, table({"AFL": 1}))
    assert set(t.holds) == {"not run"} and t.reason.str.startswith("needs ").all()


# ---------------------------------------------------------------- the table
def claim(test, key="fedga-x", **more):
    return Claim(key, "fedga", "Table 5", "A sentence.", test, PLACE, **more)


BETTER = claims.better("mean_acc", PLACE, "FedGA", "FedAvg")


def world(x, base=80, **more):
    return table({"FedAvg": base, "FedGA": x}, **more)


def test_a_row_says_what_was_found():
    t = check_claims([claim(BETTER, family="fedga-f", by="ours")], world(83))
    (row,) = t.to_dict("records")
    assert (row["holds"], row["metric"], row["n_seeds"]) == ("yes", "mean_acc", 5)
    assert row["effect"] == pytest.approx(3) and row["lo"] < 3 < row["hi"]
    assert (row["margin"], row["runs"]) == (1, f"synthetic:{PLACE}")
    assert row["p"] < 0.025 and row["q"] == pytest.approx(row["p"])
    assert math.isnan(row["needs"]) and math.isnan(row["printed"])


def test_p_is_that_of_all_looks():
    wide = world(80 + np.array([9, -9, 4, -4, 0.5]))
    row = check_claims([claim(BETTER)], wide).iloc[0]
    assert row.p > 0.5 and row.needs > LOOKS[-1]
    edge = claims.positive("mean_acc", pd.Series(OWN + 1), "x")
    assert float(edge.p.yes) * ALPHA / LEVEL < ALPHA / 2


@pytest.mark.parametrize(
    "gain, said", [(3.1, "contained"), (9, "excluded"), (0.5, "exceeded")]
)
def test_the_gain_that_the_paper_prints(gain, said):
    reported = REPORTED[:0].copy()
    for k, (m, x) in enumerate({"FedAvg": 70, "FedGA": 70 + gain}.items()):
        row = {"key": str(k), "paper": "fedga", "artefact": "Table 5"}
        row |= {"dataset": PLACE, "method": m, "metric": "mean_acc", "setting": ""}
        reported.loc[k] = pd.Series(row | {"reported": str(x)})
    c = claim(BETTER)
    row = check_claims([c], world(83), reported).iloc[0]
    assert row.gain == said and row.printed == pytest.approx(gain)
    assert f"gain of {gain:.2f}" in row.evidence
    asked = ("mean_acc", PLACE, {"method": "FedGA"}, ({"method": "FedFV"},), 0)
    assert printed_gain(asked, c, reported) is None  # that rival is not printed
    mine = claim(BETTER, by="ours")
    assert check_claims([mine], world(83), reported).printed.isna().all()


def test_the_best_complete_tier_decides():
    c = [claim(claims.best("mean_acc", PLACE, ("FedAvg", "FedFV"), "FedGA"))]
    whole = table({"FedAvg": 80, "FedGA": 83, "FedFV": 70})
    bad = table({"FedAvg": 80, "FedGA": 75, "FedFV": 70})
    for tables, holds, tier in (
        ([whole, bad.assign(tier="paper")], "no", "paper"),
        ([whole, world(75).assign(tier="paper")], "yes", "small"),
        ([world(75).assign(tier="paper")], "no", "paper"),
        ([whole.assign(tier="tiny")], "undecided", "tiny"),
    ):
        t = check_claims(c, pd.concat(tables))
        assert (t.holds.item(), t.tier.item()) == (holds, tier)


def test_a_gate_closes_its_data_set_alone(tmp_path):
    row = {"paper": "fedga", "dataset": PLACE, "tier": "small"}
    row |= {"reference_method": "FedAvg"}
    row |= {"gate": 0.2, "chance": 10.0, "centralised": 90.0, "passes": "no"}
    other = row | {"dataset": "synthetic_0_0", "passes": "yes"}
    pd.DataFrame([row, other]).to_csv(tmp_path / "gates.csv", index=False)
    closed = closed_gates(tmp_path)
    assert list(closed) == [("fedga", "small", PLACE)]
    assert closed_gates(tmp_path / "no") == {}
    t = check_claims([claim(BETTER)], world(83), closed=closed)
    assert t.holds.item() == "not testable" and "20%" in t.reason.item()
    assert t.effect.isna().all()


# ---------------------------------------------------------------- all of ours
def found():
    """The claims of this repository on the numbers that it holds."""
    seeds = ledger.parts(ROOT / "results", "seeds", REPORTED)
    return check_claims(ALL, seeds, REPORTED, closed_gates(ROOT / "results"))


@pytest.fixture(scope="module")
def today():
    return found()


def test_a_verdict_reads_like_its_evidence(today):
    """The numbers of a row lead to its verdict, and its sentence has these numbers."""
    assert set(today.holds) <= {*REACHED, "not testable", "not run"}
    for r in today.itertuples():
        if r.holds not in REACHED:
            assert r.reason and r.evidence, r.key
            assert math.isnan(r.effect), r.key
            continue
        assert not r.reason, r.key
        if r.kind != "sign" or math.isnan(r.lo):
            assert r.kind or math.isnan(r.lo), r.key
        elif r.holds in ("yes", "no", "alike"):
            good = {
                "yes": r.lo > 0,
                "no": r.hi < 0,
                "alike": math.isnan(r.margin) or r.hi < r.margin,
            }
            assert good[r.holds], (r.key, r.holds, r.lo, r.hi)
        if r.n_seeds < LOOKS[0]:
            assert r.holds == "undecided" and math.isnan(r.lo), r.key


def test_a_single_difference_says_its_numbers_and_its_verdict(today):
    words = {
        "yes": r"(?!.*would decide)",
        "no": r"(?!.*would decide)",
        "alike": r".*(no difference|within|against)",
        "undecided": r".*(would decide it|undecided)",
    }
    single = today[today.holds.isin(REACHED) & today.effect.notna()]
    for r in single.itertuples():
        shown = [claims.say(r.metric, abs(x)) for x in (r.effect, r.lo, r.hi)]
        here = [x for x in shown if x != "nan" and x in r.evidence]
        simple = " | " not in r.evidence and " in " not in r.evidence
        if simple and r.kind == "sign":
            assert here, (r.key, shown, r.evidence)
            assert re.match(words[r.holds], r.evidence), (r.key, r.holds, r.evidence)
            n = "one seed" if r.n_seeds == 1 else f"{r.n_seeds:g} seeds"
            assert n in r.evidence, (r.key, r.evidence)


def test_fewer_than_five_seeds_have_decided_nothing(today):
    chance = today[today.n_seeds < LOOKS[0]]
    assert set(chance.holds) <= {"undecided"} and len(chance)


# ---------------------------------------------------------------- declarations
ENTRY = {
    "key": "over-{m}-{dataset}",
    "for": {
        "dataset": [PLACE],
        "who": [{"m": "FedAvg", "name": "averaging"}, {"m": "FedFV"}],
    },
    "artefact": "Table 5",
    "text": "FedGA is better than {m}.",
    "test": {
        "better": {"metric": "mean_acc", "place": "{dataset}", "a": "FedGA", "b": "{m}"}
    },
    "place": "{dataset}",
    "section": 5,
    "quote": "FedGA is better.",
}


@pytest.fixture
def file(tmp_path):
    """Writes entries to papers/fedga/claims.yaml below a folder -> the folder."""

    def write(*entries, **more):
        (tmp_path / "fedga").mkdir(exist_ok=True)
        text = yaml.safe_dump({"claims": list(entries)} | more)
        (tmp_path / "fedga/claims.yaml").write_text(text)
        return tmp_path

    return write


def test_a_grid_declares_a_family(file):
    got = declared("fedga", file(ENTRY))
    assert [c.key for c in got] == [
        f"fedga-over-{m}-{PLACE}" for m in ("fedavg", "fedfv")
    ]
    assert {c.family for c in got} == {"fedga-over"} and got[1].text.endswith("FedFV.")
    assert {(c.section, c.quote, c.place) for c in got} == {
        ("5", "FedGA is better.", PLACE)
    }
    assert got[0].test(Values.of(world(83))).holds == "yes"


def test_tests_stand_in_tests(file):
    inside = {
        "better": {"metric": "mean_acc", "place": PLACE, "a": "FedGA", "b": "FedAvg"}
    }
    for test, holds in (
        ({"contrary": inside}, "no"),
        ({"every": [inside, inside]}, "yes"),
        ({"throughout": {"a": inside, "b": {"contrary": inside}}}, "no"),
        ({"some": [inside, {"contrary": inside}]}, "yes"),
    ):
        entry = {k: v for k, v in ENTRY.items() if k != "for"}
        entry |= {"key": "x", "text": "A sentence.", "test": test, "place": PLACE}
        (c,) = declared("fedga", file(entry))
        assert c.test(Values.of(world(83))).holds == holds


@pytest.mark.parametrize(
    "change, word",
    [
        ({"txt": "x"}, "unknown field 'txt'; did you mean 'text'"),
        ({"text": ""}, "text is missing"),
        ({"test": {"beter": {}}}, "no test 'beter'; did you mean 'better'"),
        ({"test": {"better": {"metric": "mean_acc"}}}, "better: missing"),
        ({"test": {"better": {}, "near": {}}}, "give one builder"),
        ({"test": "better"}, "give one builder"),
        ({"test": {"python": "nothing_here"}}, "claims.py has no 'nothing_here'"),
        ({"text": "{who} wins."}, r"\{who\} is no name of the grid"),
        ({"key": "twice"}, "twice occurs twice"),
    ],
)
def test_bad_declarations_are_refused_by_name(file, change, word):
    with pytest.raises(ResultError, match=word) as e:
        declared("fedga", file(ENTRY | change))
    assert "claims.yaml" in str(e.value)


def test_a_file_with_other_parts_is_refused(file):
    with pytest.raises(ResultError, match="unknown part 'klaims'"):
        declared("fedga", file(ENTRY, klaims=[]))
    folder = file()
    (folder / "fedga/claims.yaml").write_text("a: [")
    with pytest.raises(ResultError, match="no valid YAML"):
        declared("fedga", folder)


# ---------------------------------------------------------------- the command
def test_main_writes_the_same_bytes_twice(tmp_path):
    ledger.save(table({"FedAvg": 80, "FedGA": 83 + LUCK}), "seeds", "fedga-x", tmp_path)
    made = []
    for _ in range(2):
        claims.main(["--results", str(tmp_path)])
        files = ("claims", "deviations", "effects")
        made.append([(tmp_path / f"{f}.csv").read_bytes() for f in files])
    assert made[0] == made[1]
    assert len(pd.read_csv(tmp_path / "claims.csv")) == len(ALL)
