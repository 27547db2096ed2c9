"""Runs are found by their settings, declarations are read, and claims.csv says what was
found: at which tier, on which data, beside which printed gain.
"""

import math

import numpy as np
import pandas as pd
import pytest
import yaml
from scipy import stats
from toys_claims import BETTER, LUCK, OWN, PLACE, table, world

from fedlib.measures.verdicts import ALPHA, LEVEL
from repro import claims, ledger
from repro.claims import Claim, NotRun, NotTestable, Values, check_claims, declared
from repro.claims.printed import printed_gain
from repro.claims.report import closed_gates
from repro.ledger import ResultError


def claim(test=BETTER, key="fedga-x", place=PLACE, **more):
    return Claim(key, "fedga", "Table 5", "A sentence.", test, place, **more)


def checked(one, *tables, **more):
    """The row of one claim."""
    (row,) = check_claims([one], pd.concat(tables), **more).to_dict("records")
    return row


# ---------------------------------------------------------------- finding runs
def test_settings_and_axes_are_found_by_their_parts():
    names = "alpha=5;theta=0.01 alpha=10;theta=0.01 alpha=10;theta=0.01;norm=sum"
    names = [*names.split(), "alpha=5;theta=0.001"]
    v = Values.of(table({f"FedGA|{n}": [i, i] for i, n in enumerate(names)}))
    found = lambda how: v.get("mean_acc", "FedGA", PLACE, how, "synthetic").iloc[0]
    wanted = ("alpha=10", "norm=sum", "theta=0.001", "theta=0.01;alpha=5")
    assert [found(s) for s in wanted] == [1, 2, 3, 0]
    runs = {f"FedGA|E={k}": [k] for k in (10, 5, 1)} | {"FedGA|E=5;q=1": [0]}
    v, at = Values.of(table(runs)), ("mean_acc", "FedGA", PLACE)
    along = lambda k: v.axis(*at, k, "synthetic")  # in the order of numbers
    assert [(k, x[0]) for k, x in along("E").items()] == [
        (f"E={k}", k) for k in (1, 5, 10)
    ]
    for look, what in ((found, "alpha=5"), (found, ""), (found, "x=7"), (along, "q")):
        with pytest.raises(NotRun):
            look(what)


def test_rules_main_studies_pilots_kinds_and_means():
    more = {"paper": "fedas", "study": "grid", "dataset": "CIFAR-10"}
    fedas = table({"FedAS": [1, 1]}, "top1_acc_pct", **more)
    other = fedas.assign(rule="best_round_pooled", value=2.0, data="stand-in")
    late = fedas.assign(seed=1000 + fedas.seed, value=9.0)
    v = Values.of(pd.concat([fedas, other, late]))
    get = lambda **k: v.get("top1_acc_pct", "FedAS", "CIFAR-10", **k)
    assert list(get()) == [1, 1] and list(get(rule="best_round_pooled")) == [2, 2]
    assert v.kind("CIFAR-10") == "stand-in, synthetic" and v.kind("CIFAR-10", "x") == ""
    assert v.asked == {("grid", "CIFAR-10")} and v.watched().asked == set()
    with pytest.raises(ResultError):
        Values.of(pd.concat([fedas, table({"FedGA": [1.0]})]))
    v = Values.of(table({"FedGA": [3, 3]}, "gini_auc", rule="run"))  # of a whole run
    assert list(v.get("gini_auc", "FedGA", PLACE)) == [3, 3]
    with pytest.raises(NotRun):
        v.get("gini_auc", "FedGA", PLACE, rule="last")
    # over data sets, and over domains left out
    a, b = (
        table({"FedGA": x}, dataset=d) for d, x in (("a", [1, 2, 3]), ("b", [5, 6]))
    )
    both = pd.concat([a, b])
    mean = lambda v: v.get("mean_acc", "FedGA", ["a", "b"], study="synthetic")
    assert dict(mean(Values.of(both))) == {0: 3, 1: 4}
    with pytest.raises(NotTestable, match="b"):
        mean(Values.of(both, {"b": "shut"}))
    runs = {
        f"{m}|guest={g};q=1": [x] * 2 for m in "AB" for g, x in (("p", 1), ("r", 5))
    }
    t, how = table(runs), ("guest=*;q=1", "synthetic")
    get = lambda t: Values.of(t).get("mean_acc", "A", PLACE, *how)
    assert list(get(t)) == [3, 3]
    with pytest.raises(NotRun, match="guest=r"):
        get(t[~((t.method == "A") & t.setting.str.contains("guest=r"))])


# ---------------------------------------------------------------- the table
def test_a_row_says_what_was_found():
    row, d = checked(claim(by="ours"), world(83)), 3 + OWN
    said = row["holds"], row["n_seeds"], row["runs"], row["tier"], row["by"]
    assert said == ("yes", 5, f"synthetic:{PLACE}", "small", "ours")
    p = stats.ttest_1samp(d, 0, alternative="greater").pvalue
    lo, hi = stats.ttest_1samp(d, 0).confidence_interval(1 - LEVEL)
    assert np.allclose([row["effect"], row["lo"], row["hi"]], [d.mean(), lo, hi])
    assert row["p"] == pytest.approx(p * ALPHA / LEVEL) == row["q"]
    assert math.isnan(row["needs"]) and math.isnan(row["printed"])
    wide = checked(claim(), world(80 + 3 * LUCK + OWN))
    assert wide["holds"] == "undecided" and wide["needs"] > 5 and wide["p"] <= 1
    everywhere = checked(claim(place="all"), world(83, data="stand-in"))
    assert everywhere["data"] == "stand-in"


def test_false_discoveries_are_counted_by_paper_and_author():
    each = (81, 80.4, 80.2)
    made = {f"m{i}": x + 2 * OWN + LUCK for i, x in enumerate(each)}
    test = lambda m: claims.better("mean_acc", PLACE, m, "FedAvg")
    some = [claim(test(m), m, by="ours") for m in made] + [claim(test("m2"), "z")]
    t = check_claims(some, table({"FedAvg": 80.0 + LUCK} | made)).set_index("key")
    assert np.allclose(t.q[:3], stats.false_discovery_control(t.p[:3]))
    assert t.q["z"] == t.p["z"] == t.p["m2"]


def test_the_gain_that_the_paper_prints():
    def printed(values):
        row = {"paper": "fedga", "artefact": "Table 5", "dataset": PLACE, "setting": ""}
        said = ({"method": m, "reported": x} for m, x in values.items())
        return pd.DataFrame([row | {"metric": "mean_acc"} | x for x in said])

    for gain, said in ((3.1, "contained"), (9, "excluded"), (0.5, "exceeded")):
        t = printed({"FedAvg": "70", "FedGA": str(70 + gain)})
        row = checked(claim(), world(83), reported=t)
        assert row["gain"] == said and row["printed"] == pytest.approx(gain)
    for one, data in ((claim(by="ours"), "synthetic"), (claim(), "stand-in")):
        assert math.isnan(checked(one, world(83, data=data), reported=t)["printed"])

    def gain(t, *rivals, least=0.0, metric="mean_acc", places=PLACE, **of):
        others = tuple({"method": r} for r in rivals or ["FedAvg"])
        asked = metric, places, {"method": "FedGA", **of}, others, least
        return printed_gain(asked, claim(), t)

    t = printed({"FedAvg": "70", "FedGA": "75", "FedFV": "74", "AFL": ""})
    assert gain(t, "FedAvg", "FedFV") == 1 and gain(t, least=2) == 3
    assert gain(t, "FedAvg", "AFL") is gain(t, setting="q=1") is None
    t.setting = ["default", "q=1; p=2", "", ""]
    assert gain(t, setting="p=2;q=1;guest=*") == 5
    low = gain(t.assign(metric="std_acc"), setting=None, metric="std_acc")
    many = {"setting": None, "places": ["a", "b"]}
    assert low == -5 and gain(t.assign(dataset="Avg"), **many) == 5
    assert gain(t, **many) is None


def test_the_best_complete_tier_decides():
    c = claim(claims.best("mean_acc", PLACE, ("FedAvg", "FedFV"), "FedGA"))
    whole = table({"FedAvg": 80, "FedGA": 83, "FedFV": 70})
    bad = table({"FedAvg": 80, "FedGA": 75, "FedFV": 70})
    for tables, holds, tier in (
        ([whole, bad.assign(tier="paper")], "no", "paper"),
        ([whole, world(75).assign(tier="paper")], "yes", "small"),
        ([world(75).assign(tier="paper")], "no", "paper"),
        ([whole.assign(tier="tiny")], "undecided", "tiny"),
        ([table({"FedFV": 1})], "not run", ""),
        ([pd.DataFrame(columns=ledger.SEEDS)], "not run", ""),
    ):
        row = checked(c, *tables)
        assert (row["holds"], row["tier"]) == (holds, tier)


def test_a_gate_closes_its_data_set_at_its_tier(tmp_path):
    row = {"paper": "fedga", "tier": "small", "reference_method": "x", "gate": 0.2}
    row |= {"chance": 10.0, "centralised": 90.0, "dataset": PLACE}
    rows = pd.DataFrame(
        [row | {"passes": "no"}, row | {"dataset": "b", "passes": "yes"}]
    )
    rows.to_csv(tmp_path / "gates.csv", index=False)
    closed = closed_gates(tmp_path)
    assert list(closed) == [("fedga", "small", PLACE)]
    assert checked(claim(), world(83), closed=closed)["holds"] == "not testable"
    for key in (("fedga", "paper", PLACE), ("fedas", "small", PLACE)):
        assert checked(claim(), world(83), closed={key: "x"})["holds"] == "yes"


# ---------------------------------------------------------------- declarations
# The claims of papers, as they are read, are compared with claims.csv.
TEST = {"metric": "mean_acc", "place": PLACE, "a": "FedGA", "b": "{m}"}
ENTRY = {"key": "over-{m}", "for": {"who": [{"m": "FedAvg", "section": 7}]}}
ENTRY |= {"artefact": "T", "text": "{m} loses.", "test": {"better": TEST}, "section": 5}
REFUSED = [({"txt": "x"}, "txt"), ({"text": ""}, "text"), ({"key": "twice"}, "twice")]
REFUSED += [({"text": "{who} wins."}, "who"), ({"test": {"beter": {}}}, "beter")]


def test_declarations(tmp_path):
    path = tmp_path / "fedga/claims.yaml"
    path.parent.mkdir()

    def read(**more):
        cases = {"who": [*ENTRY["for"]["who"], {"m": "FedFV"}]}
        entry = ENTRY | {"for": cases} | more
        path.write_text(yaml.safe_dump({"claims": [entry]}))
        return declared("fedga", tmp_path)

    one, two = read()
    assert (one.key, two.key, two.text) == (
        "fedga-over-fedavg",
        "fedga-over-fedfv",
        "FedFV loses.",
    )
    assert (one.family, one.section) == ("fedga-over", "5")  # not the case's
    assert one.test(Values.of(world(83))).holds == "yes"
    for change, word in REFUSED:
        with pytest.raises(ResultError, match=word):
            read(**change)
