"""Runs are found by their settings, declarations are read, and claims.csv says what was
found: at which tier, on which data, beside which printed gain.
"""

import json
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
from repro.claims.report import closed_gates, headline
from repro.ledger import ResultError

REPORTED = ledger.read_reported()
BETTER = claims.better("mean_acc", PLACE, "FedGA", "FedAvg")


def world(x, base=80, **more):
    return table({"FedAvg": base, "FedGA": x}, **more)


def claim(test=BETTER, key="fedga-x", place=PLACE, **more):
    return Claim(key, "fedga", "Table 5", "A sentence.", test, place, **more)


# ---------------------------------------------------------------- finding runs
def test_settings_and_axes_are_found_by_their_parts():
    names = "alpha=5;theta=0.01 alpha=10;theta=0.01 alpha=10;theta=0.01;norm=sum"
    names = [*names.split(), "alpha=5;theta=0.001"]
    v = Values.of(table({f"FedGA|{n}": [i, i] for i, n in enumerate(names)}, study="x"))
    found = lambda how: v.get("mean_acc", "FedGA", PLACE, how, "x").iloc[0]
    wanted = ("alpha=10", "norm=sum", "theta=0.001", "theta=0.01;alpha=5")
    assert [found(s) for s in wanted] == [1, 2, 3, 0]
    for many in ("alpha=5", "", "alpha=7"):
        with pytest.raises(NotRun):
            found(many)
    values = {f"FedGA|E={k}": [k] for k in (10, 5, 1)} | {"FedGA|E=5;q=1": [0]}
    along = lambda k: Values.of(table(values)).axis(*at, k, "synthetic")
    at = "mean_acc", "FedGA", PLACE  # in the order of numbers
    assert {k: x[0] for k, x in along("E").items()} == {"E=1": 1, "E=5": 5, "E=10": 10}
    assert [*along("E")] == ["E=1", "E=5", "E=10"]
    with pytest.raises(NotRun):
        along("q")


def test_rules_main_studies_pilots_and_kinds():
    more = {"paper": "fedas", "study": "grid", "dataset": "CIFAR-10"}
    fedas = table({"FedAS": [1, 1]}, "top1_acc_pct", **more)
    other = fedas.assign(rule="best_round_pooled", value=2.0, data="stand-in")
    late = fedas.assign(seed=1000, value=9.0)
    v = Values.of(pd.concat([fedas, other, late]).drop_duplicates())
    get = lambda **k: v.get("top1_acc_pct", "FedAS", "CIFAR-10", **k)
    assert list(get()) == [1, 1] and list(get(rule="best_round_pooled")) == [2, 2]
    assert v.kind("CIFAR-10") == "stand-in, synthetic" and v.kind("CIFAR-10", "x") == ""
    assert v.asked == {("grid", "CIFAR-10")} and v.watched().asked == set()
    with pytest.raises(ResultError):
        Values.of(pd.concat([fedas, table({"FedGA": [1.0]})]))
    run = table({"FedGA": [3, 3]}, "gini_auc", rule="run")  # of a whole run
    assert list(Values.of(run).get("gini_auc", "FedGA", PLACE)) == [3, 3]
    with pytest.raises(NotRun):
        Values.of(run).get("gini_auc", "FedGA", PLACE, rule="last")


def test_means_over_data_sets_and_domains_left_out():
    both = [table({"FedGA": [1, 2, 3]}, dataset="a", study="s")]
    both = pd.concat([*both, table({"FedGA": [5, 6]}, dataset="b", study="s")])
    mean = lambda v: v.get("mean_acc", "FedGA", ["a", "b"], study="s")
    assert dict(mean(Values.of(both))) == {0: 3, 1: 4}
    with pytest.raises(NotTestable, match="b"):
        mean(Values.of(both, {"b": "shut"}))
    runs = {f"{m}|guest=p;q=1": [1, 1] for m in "AB"}
    t = table(runs | {f"{m}|guest=r;q=1": [5, 5] for m in "AB"}, study="s")
    get = lambda t: Values.of(t).get("mean_acc", "A", PLACE, "guest=*;q=1", "s")
    assert list(get(t)) == [3, 3]
    with pytest.raises(NotRun, match="guest=r"):
        get(t[~((t.method == "A") & t.setting.str.contains("guest=r"))])


# ---------------------------------------------------------------- the table
def test_a_row_says_what_was_found():
    c = claim(family="fedga-f", by="ours", section="5", quote="words")
    (row,) = check_claims([c], world(83)).to_dict("records")
    said = {"holds": "yes", "metric": "mean_acc", "n_seeds": 5, "margin": 1}
    said |= {"runs": f"synthetic:{PLACE}", "data": "synthetic", "family": "fedga-f"}
    said |= {"key": "fedga-x", "claim": "A sentence.", "section": "5", "quote": "words"}
    said |= {"tier": "small", "by": "ours", "kind": "sign", "reason": ""}
    assert {k: row[k] for k in said} == said
    d = 3 + OWN - 0 * LUCK
    t = stats.ttest_1samp(d, 0, alternative="greater")
    lo, hi = stats.ttest_1samp(d, 0).confidence_interval(1 - LEVEL)
    assert np.allclose([row["effect"], row["lo"], row["hi"]], [d.mean(), lo, hi])
    assert row["p"] == pytest.approx(t.pvalue * ALPHA / LEVEL) == row["q"]
    assert math.isnan(row["needs"]) and math.isnan(row["printed"])
    wide = check_claims([claim()], world(80 + 3 * LUCK + OWN)).iloc[0]
    assert wide.holds == "undecided" and wide.needs > 5 and wide.p <= 1
    everywhere = check_claims([claim(place="all")], world(83, data="stand-in"))
    assert everywhere.data.item() == "stand-in"


def test_false_discoveries_are_counted_by_paper_and_author():
    each = (81, 80.4, 80.2)
    made = {f"m{i}": x + 2 * OWN + LUCK for i, x in enumerate(each)}
    test = lambda m: claims.better("mean_acc", PLACE, m, "FedAvg")
    some = [claim(test(m), m, by="ours") for m in made] + [claim(test("m2"), "z")]
    t = check_claims(some, table({"FedAvg": 80.0 + LUCK} | made)).set_index("key")
    p, q = t.p[:3].to_numpy(), t.q[:3].to_numpy()
    order = np.argsort(p)
    by_hand = np.minimum.accumulate((p[order] * 3 / np.arange(1, 4))[::-1])[::-1]
    assert np.allclose(q[order], by_hand) and t.q["z"] == t.p["z"] == t.p["m2"]


def test_the_gain_that_the_paper_prints():
    def printed(values, **more):
        row = {"paper": "fedga", "artefact": "Table 5", "dataset": PLACE, "setting": ""}
        row |= {"metric": "mean_acc"} | more
        said = ({"method": m, "reported": x} for m, x in values.items())
        return pd.DataFrame([row | x for x in said])

    for gain, said in ((3.1, "contained"), (9, "excluded"), (0.5, "exceeded")):
        t = printed({"FedAvg": "70", "FedGA": str(70 + gain)})
        row = check_claims([claim()], world(83), t).iloc[0]
        assert row.gain == said and row.printed == pytest.approx(gain)
    near = claims.near("mean_acc", PLACE, "FedGA", "FedAvg", 1.0)
    for other in (claim(by="ours"), claim(key="y", test=near)):
        assert check_claims([other], world(83), t).printed.isna().all()
    assert check_claims([claim()], world(83, data="stand-in"), t).printed.isna().all()
    gain = lambda asked, t: printed_gain(asked, claim(), t)

    def asked(*rivals, least=0.0, metric="mean_acc", places=PLACE, **of):
        others = tuple({"method": r} for r in rivals)
        return metric, places, {"method": "FedGA", **of}, others, least

    t = printed({"FedAvg": "70", "FedGA": "75", "FedFV": "74", "AFL": ""})
    assert gain(asked("FedAvg", "FedFV"), t) == pytest.approx(1)
    assert gain(asked("FedAvg", least=2), t) == pytest.approx(3)
    assert gain(asked("FedAvg", "AFL"), t) is None
    assert gain(asked("FedAvg", setting="q=1"), t) is None
    t.setting = ["default", "q=1; p=2", "", ""]
    assert gain(asked("FedAvg", setting="p=2;q=1;guest=*"), t) == 5
    low = asked("FedAvg", setting=None, metric="std_acc")
    assert gain(low, t.assign(metric="std_acc")) == -5
    many = asked("FedAvg", setting=None, places=["a", "b"])
    assert gain(many, t.assign(dataset="Avg")) == 5 and gain(many, t) is None


def test_the_best_complete_tier_decides():
    c = [claim(claims.best("mean_acc", PLACE, ("FedAvg", "FedFV"), "FedGA"))]
    whole = table({"FedAvg": 80, "FedGA": 83, "FedFV": 70})
    bad = table({"FedAvg": 80, "FedGA": 75, "FedFV": 70})
    for tables, holds, tier in (
        ([whole, bad.assign(tier="paper")], "no", "paper"),
        ([whole, world(75).assign(tier="paper")], "yes", "small"),
        ([world(75).assign(tier="paper")], "no", "paper"),
        ([whole.assign(tier="tiny")], "undecided", "tiny"),
        ([table({"FedFV": 1})], "not run", ""),
    ):
        (row,) = check_claims(c, pd.concat(tables)).to_dict("records")
        assert (row["holds"], row["tier"]) == (holds, tier)
    none = check_claims(c, pd.DataFrame(columns=ledger.SEEDS)).iloc[0]
    assert none.holds == "not run" and list(none.index) == claims.COLUMNS


def test_a_gate_closes_its_data_set_at_its_tier(tmp_path):
    row = {"paper": "fedga", "dataset": PLACE, "tier": "small", "reference_method": "x"}
    row |= {"gate": 0.2, "chance": 10.0, "centralised": 90.0, "passes": "no"}
    other = row | {"dataset": "synthetic_0_0", "passes": "yes"}
    pd.DataFrame([row, other]).to_csv(tmp_path / "gates.csv", index=False)
    closed = closed_gates(tmp_path)
    assert list(closed) == [("fedga", "small", PLACE)]
    assert closed_gates(tmp_path / "no") == {}
    t = check_claims([claim()], world(83), closed=closed)
    assert t.holds.item() == "not testable" and "20%" in t.reason.item()
    assert t.effect.isna().all()
    for key in (("fedga", "paper", PLACE), ("fedas", "small", PLACE)):
        t = check_claims([claim()], world(83), closed={key: "x"})
        assert t.holds.item() == "yes"


def test_the_headline_is_of_the_best_tier_and_the_papers_rule(tmp_path):
    seeds = table({"FedAvg": 80, "FedGA": 83 + LUCK}, luck=np.zeros(5))
    ledger_ = pd.DataFrame({"verdict": ["match", "match", "close"]})
    ledger_.to_csv(tmp_path / "ledger.csv")
    better = seeds[seeds.method == "FedGA"].assign(tier="paper", value=90.0)
    more = [better, seeds.assign(rule="last", value=1.0), table({"AFL": 1})]
    found = pd.DataFrame({"holds": ["yes", "no", "yes"]})
    headline(tmp_path, found, pd.concat([seeds, *more]))
    said = json.loads((tmp_path / "metrics.json").read_text())
    assert said["verdicts"] == {"match": 2, "close": 1}
    assert said["claims"] == {"yes": 2, "no": 1}
    of = {"FedAvg": {"mean_acc": 80}, "FedGA": {"mean_acc": 90}}
    assert said["fedga"] == {PLACE: of}


# ---------------------------------------------------------------- declarations
ENTRY = yaml.safe_load("""
key: over-{m}-{dataset}
for: {dataset: [synthetic_05_05], who: [{m: FedAvg}, {m: FedFV}]}
artefact: Table 5
text: FedGA is better than {m}.
test: {better: {metric: mean_acc, place: "{dataset}", a: FedGA, b: "{m}"}}
place: "{dataset}"
section: 5
quote: FedGA is better.
""")
REFUSED = [
    ({"txt": "x"}, "txt"),
    ({"text": ""}, "text"),
    ({"test": {"beter": {}}}, "beter"),
    ({"test": {"better": {}, "near": {}}}, "test"),
    ({"test": {"python": "nothing_here"}}, "nothing_here"),
    ({"text": "{who} wins."}, "who"),
    ({"key": "twice"}, "twice"),
]


def test_declarations(tmp_path):
    path = tmp_path / "fedga/claims.yaml"
    path.parent.mkdir()
    assert declared("fedga", tmp_path) == []

    def read(*entries):
        path.write_text(yaml.safe_dump({"claims": list(entries)}))
        return declared("fedga", tmp_path)

    one, two = read(ENTRY)
    keys = [f"fedga-over-{m}-{PLACE}" for m in ("fedavg", "fedfv")]
    assert [one.key, two.key] == keys and two.text.endswith("than FedFV.")
    assert one.family == two.family == "fedga-over"
    said = one.section, one.quote, one.place, one.by
    assert said == ("5", "FedGA is better.", PLACE, "paper")
    assert one.test(Values.of(world(83))).holds == "yes"
    for change, word in REFUSED:
        with pytest.raises(ResultError, match=word) as e:
            read(ENTRY | change)
        assert "claims.yaml" in str(e.value), change
