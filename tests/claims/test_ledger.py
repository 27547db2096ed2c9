"""The ledger: numbers are means over the seeds of the rule, keys are those that the
papers print, verdicts follow their definition, bad parts are refused."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import toys_claims
from scipy import stats

from fedlib.measures.verdicts import LEAST
from repro import artefacts, judge, ledger
from repro.ledger import ResultError

REPORTED, NAN, INF = ledger.read_reported(), float("nan"), float("inf")
TABLE5 = {"FedAvg": 64.48, "q-FedAvg": 81.01, "FedFV": 83.5, "FedGA": 84.0}  # printed
RIGHT = {m: [x - 0.4, x - 0.2, x, x + 0.1, x + 0.5] for m, x in TABLE5.items()}
CELL = "fedga", "Table 5", ["mean_acc"]
MAIN = {"study": "main", "rule": "best_val"}


def seeds(values, metric="mean_acc", paper="fedga", **more):
    return toys_claims.table(values, metric, **MAIN | {"paper": paper} | more)


def cells(s, *at, **more):
    s = ledger.check(s, "seeds", REPORTED)
    return ledger.cells(s, *at, reported=REPORTED, **more)


def part(values, artefact="Table 5", **more):
    return cells(seeds(values, **more), "fedga", artefact)


# reported, ours, lo, hi, seeds, what differs from a percentage at paper size, verdict
DIGITS = [
    ("64.48", 64.0, 63, 65, 5, {}, "match"),
    ("64.48", 63.0, 61.6, 64.477, 5, {}, "match"),  # all that rounds to 64.48
    ("64.48", 63.0, 61.6, 64.474, 5, {}, "close"),
    ("64.48", 64.0, 63, 65, 4, {}, "close"),  # too few seeds for an interval
    ("64.48", 64.4, 62.3, 66.5, 5, {}, "close"),  # inside, but wide
    ("64.48", 60, 58, 62, 5, {"reported_spread": "5"}, "differs"),
    ("64.48", 66.48, 66, 66.9, 5, {}, "close"),  # two points, and not inside
    ("64.48", 66.49, NAN, NAN, 1, {}, "differs"),
    ("18.60", 19.5, NAN, NAN, 1, {"metric": "std_acc"}, "close"),  # 5 %
    ("0.7386", 0.7580, NAN, NAN, 1, {"metric": "accuracy"}, "close"),  # a fraction
    ("0.7386", 0.7590, NAN, NAN, 1, {"metric": "accuracy"}, "differs"),
    ("80", 91.5, 90, 93, 5, {"relation": ">="}, "match"),  # a bound
    ("80", 91.5, 75, 108, 5, {"relation": ">="}, "close"),
    ("80", 77, 76, 78, 5, {"relation": "<="}, "match"),
    ("5", 5.0, NAN, NAN, 1, {"metric": "runs", "tier": "exact"}, "setting"),
    ("0.1", 0.104, NAN, NAN, 1, {"metric": "learning_rate", "tier": "small"}, "differs"),
    ("23", 3.0, NAN, NAN, 1, {"metric": "largest_D", "data": "stand-in"}, "no comparison"),
    ("1.56", 1.7, NAN, NAN, 1, {"metric": "total_MB", "tier": "exact"}, "differs"),
    ("64.48", 64.48, NAN, NAN, 1, {"data": "stand-in"}, None),  # the order decides
]  # fmt: skip


def test_what_a_number_says_alone():
    names = ("reported", "ours", "ours_lo", "ours_hi", "n_seeds")
    base = {"metric": "mean_acc", "relation": "=", "data": "synthetic", "tier": "paper"}
    for *numbers, more, verdict in DIGITS:
        row = base | {"reported_spread": ""} | dict(zip(names, numbers)) | more
        assert judge.alone(SimpleNamespace(**row)) == verdict, row


BASE = dict.fromkeys(("model", "setting", "reported_spread"), "")
BASE |= {"paper": "fedga", "artefact": "Table 5", "dataset": "cifar01", "tier": "small"}
BASE |= {"data": "stand-in", "relation": "=", "metric": "mean_acc", "n_seeds": 5}
BASE |= {"ours": 50.0, "ours_lo": NAN, "ours_hi": NAN}


def group(reported, spread=(), **more):
    """Rows of one table, of {method: printed number}; their keys are the methods."""
    t = pd.DataFrame([BASE | more] * len(reported)).assign(method=[*reported])
    t = t.assign(key=t.method, reported=[*reported.values()])
    return t.assign(reported_spread=[*spread]) if spread else t


def drawn(means, n=LEAST, sd=0.1, first=0):
    rng, at = np.random.default_rng(0), range(first, first + n)
    return {m: pd.Series(rng.normal(x, sd, n), at) for m, x in means.items()}


TWO, ABC = {"A": "60.0", "B": "70.0"}, {"A": "60.0", "B": "70.0", "C": "80.0"}
HOLDS, DIFFERS, OPEN = "order holds", "order differs", "order open"
ORDERS = [
    (group(ABC), drawn({"A": 10, "B": 20, "C": 30}), [HOLDS] * 3, "2 of 2"),
    (group(ABC), drawn({"A": 10, "B": 30, "C": 20}), [HOLDS, DIFFERS, DIFFERS], "2 of 2"),
    (group({"A": "0.3", "B": "0.1"}, metric="best_gini"), drawn({"A": 0.5, "B": 0.2}, sd=0.01), [HOLDS] * 2, "1 of 1"),
    (group(TWO), drawn({"A": 10, "B": 20}, LEAST - 1), [OPEN] * 2, ""),
    (group(TWO), drawn({"A": 10, "B": 11}, sd=9), [OPEN] * 2, ""),
    (group(TWO), drawn({"A": 10, "B": 20}, first=1000), [OPEN] * 2, ""),  # pilots
    (group(TWO), drawn({"A": 10}) | drawn({"B": 20}, first=9), [OPEN] * 2, ""),
    (group(TWO), drawn({"A": 50, "B": 50}), [DIFFERS] * 2, "0 of 1"),  # alike
    (group({"A": "60.0", "B": "60.9"}), drawn({"A": 50, "B": 50}), [OPEN] * 2, ""),
    (group(TWO, ["3", "12"]), drawn({"A": 20, "B": 10}), [OPEN] * 2, ""),
    (group(TWO, ["3", "9"]), drawn({"A": 20, "B": 10}), [DIFFERS] * 2, "0 of 1"),
]  # fmt: skip


def test_the_printed_order_is_judged_seed_by_seed():
    for table, values, verdicts, counts in ORDERS:
        found = judge.orders(table, values)
        assert [v for v, _ in found.values()] == verdicts, (values, found)
        assert counts in found["A"][1]
    both = drawn({"A": 10, "B": 20})
    none = [group({"A": "60.0"}), group({"A": "1", "B": "2"}, metric="best_D")]
    for change in ({"dataset": "cifar10"}, {"tier": "paper"}, {"setting": "q=1"}):
        none.append(pd.concat([group({"A": "60.0"}), group({"B": "70.0"}, **change)]))
    assert [judge.orders(t, both) for t in none] == [{}] * 5
    table = group(TWO, paper="fedas")  # whose switches do not part a table
    for other, n in (("P=0.2;PA=1;CS=1", 2), ("P=1;PA=1;CS=1", 0)):
        table["setting"] = ["P=0.2;PA=0;CS=0", other]
        assert len(judge.orders(table, both)) == n


def test_a_row_finds_its_seeds_again():
    rows = seeds({"FedGA": [1.0, 2.0, 4.0], "FedGA|q=1": [7.0, 8.0, 9.0]})
    ours, one = cells(rows, *CELL), cells(rows[rows.seed == 1], *CELL)
    more = pd.concat([rows, seeds({"FedGA": [3.0, 3, 9]}, study="other")])
    found = [dict(x) for t in (ours, one) for x in judge.by_seed(t, more).values()]
    assert found == [{0: 1, 1: 2, 2: 4}, {0: 7, 1: 8, 2: 9}, {1: 2.0}, {1: 8.0}]
    assert judge.by_seed(ours.assign(value=6.0), rows) == {}  # no row's mean
    assert judge.by_seed(ours.assign(run_ids="x y"), rows) == {}


def test_cells_are_means_with_t_intervals():
    x = [60.0, 62, 67]
    s = [seeds({"FedAvg": x, "Uniform": x}), seeds({"FedAvg": [5, 7]}, rule="last")]
    s = pd.concat(s).assign(minutes=1.5)
    t = cells(s, "fedga", "Table 5", also=["last"])
    t = t.set_index(["method", "setting"])
    row = t.loc["FedAvg", ""]
    ends = stats.t.interval(0.95, 2, np.mean(x), stats.sem(x))
    assert np.allclose([row.value, row.lo, row.hi], [63, *ends])
    assert (row.n_seeds, row.rule, row.minutes) == (3, "best_val", 4.5)
    assert row.run_ids == "FedAvg0 FedAvg1 FedAvg2"
    assert row.key == "fedga-table-5-synthetic_05_05-fedavg-mean_acc"
    assert t.value["FedAvg", "rule=last"] == 6 and len(t) == 3
    inf = seeds({"FedGA": [80, INF]}, "mean_acc", rule="run")  # as of a round
    t = cells(inf, *CELL)
    assert t.value.item() == INF and pd.isna(t.lo.item()) and t.rule.item() == "run"
    views = "personalised model;C=10", "personalised model;C=100", "global model;C=10"
    s = {f"FedRep|{how}": [k] for k, how in enumerate(views, 1)}
    s = seeds(s, "acc_mean_pct", "plgu", dataset="CIFAR10", rule="last10_mean")
    of = {"metrics": ["acc_mean_pct"], "rule": "last10_mean"}
    take = lambda how: cells(s, "plgu", "Table 2", settings=how, **of)
    assert list(take(["global model"]).value) == [3]
    mine = take({"C=10;personalised model": "mine"})
    assert (list(mine.setting), list(mine.value)) == (["mine"], [1])


def test_reported_beside_ours(tmp_path):
    """Digits at paper size, order elsewhere; missing cells stay, ours alone at the end."""
    own = RIGHT | {"Uniform": [78.0] * 5}
    turned = own | {"FedAvg": own["q-FedAvg"], "q-FedAvg": own["FedAvg"]}
    order = [DIFFERS, DIFFERS, HOLDS, HOLDS]
    for values, tier, said in ((own, "paper", ["match"] * 4), (turned, "small", order)):
        rows = seeds(values, tier=tier)
        ledger.publish("fedga-x", [rows], {"Table 5": [{"study": "main"}]}, tmp_path)
        both = (ledger.parts(tmp_path, k) for k in ("ours", "seeds"))
        t = ledger.join(REPORTED, *both)
        mine = t[(t.artefact == "Table 5") & (t.metric == "mean_acc")]
        mine = mine.set_index("method")
        assert list(mine.verdict[[*TABLE5]]) == said
        assert set(mine.drop([*own]).verdict) == {"not run"}
        alone = mine.loc["Uniform"]
        assert (alone.verdict, alone.model) == ("no comparison", "linear")
        assert np.allclose(mine.ours["FedAvg"], np.mean(values["FedAvg"]))
        assert len(t) == len(REPORTED) + 1 and mine.index[0] == "FedAvg"
        assert float(mine.reported["FedGA"]) == 84 and mine.n_seeds["FedGA"] == 5
    side = ledger.beside(part(own), "fedga", "Table 5").droplevel("dataset")
    assert tuple(side.loc["FedGA", "mean_acc"][["reported", "ours"]]) == (84.0, 84.0)


def test_the_best_tier_counts_and_one_part_has_a_number(tmp_path):
    def save(values, tier, name):
        ledger.save(part(values, tier=tier), "ours", name, tmp_path)

    rows = lambda: ledger.parts(tmp_path, "ours")
    save({"FedGA": [84] * 3, "FedFV": [80] * 3}, "paper", "a")
    save({"FedGA": [50] * 3, "FedAvg": [51] * 3}, "small", "b")
    t = ledger.best_tier(rows(), ["key"]).set_index("method")
    assert t.value.to_dict() == {"FedGA": 84, "FedFV": 80, "FedAvg": 51}
    save({"FedGA": [1, 2]}, "paper", "c")
    with pytest.raises(ResultError, match="c.parquet"):
        rows()


FINE, SEEDS = part({"FedAvg": [60, 62, 67]}), seeds({"FedAvg": [1, 2]})
WRONG = {"metric": "mean_ac", "paper": "fedgaa", "artefact": "Table 55", "dataset": "synthetic_05", "method": "FedAvgg", "rule": "best", "data": "fake", "tier": "huge", "key": "fedga-table-5-x", "value": "many", "lo": 99.0, "n_seeds": 2.5, "verdict": "verdict"}  # fmt: skip
BAD = [  # what is changed, the word that the refusal names
    *((FINE.assign(**{c: v}), str(v)) for c, v in WRONG.items()),
    (FINE.assign(value=NAN), "value"), (FINE.assign(hi=NAN), "nan"), (FINE.assign(n_seeds=0), "n_seeds"), (FINE.drop(columns="tier"), "tier"), (pd.concat([FINE, FINE]), "row 2"),
    (SEEDS.assign(seed=0), "row 2"), (SEEDS.assign(study=""), "study"), (SEEDS.assign(seed=0.5), "seed"),
]  # fmt: skip


def test_malformed_parts_are_refused(tmp_path):
    for rows, word in BAD:
        with pytest.raises(ResultError, match=word):
            ledger.check(rows, "seeds" if "study" in rows else "ours", REPORTED)
    with pytest.raises(ResultError):
        cells(pd.concat([SEEDS, SEEDS.assign(study="b")]), *CELL)
    # what the papers print
    of = ["paper", "artefact", "dataset", "method", "metric", "setting"]
    made = [ledger.key(*row) for row in REPORTED[of].itertuples(index=False)]
    assert list(REPORTED.key) == made and REPORTED.key.is_unique
    assert [ledger.METRICS[m].unit for m in REPORTED.metric] == list(REPORTED.unit)
    lost = pd.to_numeric(REPORTED.reported).isna()
    assert (REPORTED.note[lost] != "").all() and set(REPORTED.relation) == {"=", ">="}


def test_artefacts_follow_their_evidence(tmp_path):
    root, small = tmp_path / "results", {"tier": "small", "data": "synthetic"}
    (root / "figures").mkdir(parents=True)
    real = small | {"tier": "paper"}
    made = {"fedga-figure-1": real, "fedga-figure-11": real, "fedga-figure-15": small}
    made["fedga-figure-6"] = real | {"data": "glyphs (stand-in)"}
    for slug, said in (made | {"fedas-figure-2": real | {"tier": "exact"}}).items():
        (root / f"figures/{slug}.svg").write_text("<svg/>")
        (root / f"figures/{slug}.json").write_text(json.dumps(said))
    mine = part({m: [1, 2, 3] for m in TABLE5}, tier="paper")
    ledger.save(mine, "ours", "fedga-x", root)
    ledger.main(results=root)
    assert len(pd.read_csv(root / "ledger.csv")) == len(REPORTED)
    a = pd.read_csv(root / "artefacts.csv", index_col=["paper", "artefact"])
    assert a.status["fedas", "Figure 1"] == "done"  # Figure 2 shows it
    of = a.loc["fedga"]
    reduced = ["Figure 6", "Figure 15", "Figure 1", "Table 5"]
    assert set(of.status[reduced]) == {"reduced"} and "28 of 32" in of.reason["Table 5"]
    assert list(of.status[["Figure 11", "Figure 10"]]) == ["done", "not run"]
    assert of.tier["Figure 15"] == "small" and of.data["Figure 6"] == "stand-in"
    at = {"dataset": "synthetic_0_0", "rule": "run"}
    rows = seeds({"FedAvg": [0.9]}, "us_gini_pearson", **at)
    rows = cells(rows, "fedga", "Figure 1", ["us_gini_pearson"])
    a = artefacts.table(REPORTED, rows, root).set_index(["paper", "artefact"])
    one = a.loc["fedga", "Figure 1"]
    assert (one.tier, one.status) == ("small", "reduced")  # its worst part's
    assert "pearson" not in one.reason and "pearson" in of.reason["Figure 1"]
