"""The ledger: the printed numbers are all there, the verdicts say what their definition
says, bad parts are refused.
"""

import json
import re
import shutil

import pandas as pd
import pytest
from where import ROOT

from fedlib import plots
from fedlib.measures import selection
from fedlib.measures.statistics import interval
from fedlib.study import results
from repro import artefacts, ledger, papers
from repro.ledger import METRICS, ResultError

REPORTED = ledger.read_reported()
TABLE5 = ("FedAvg", "q-FedAvg", "FedFV", "FedGA")


@pytest.fixture
def root(tmp_path):
    """In place of results/, empty."""
    return tmp_path


def seeds(values, metric="mean_acc", dataset="synthetic_05_05", **more):
    """Long rows from {method: values over seeds}."""
    base = {
        "paper": "fedga",
        "study": "main",
        "dataset": dataset,
        "setting": "",
        "metric": metric,
        "rule": "best_val",
        "data": "synthetic",
        "tier": "small",
    } | more
    return pd.DataFrame(
        [
            base | {"method": m, "seed": s, "value": v}
            for m, x in values.items()
            for s, v in enumerate(x)
        ]
    )


def part(values, artefact="Table 5", **more):
    """Rows of an ours part."""
    return ledger.cells(seeds(values, **more), "fedga", artefact)


def fedas(values, metric="top1_acc_pct", dataset="CIFAR-10", **more):
    """Long rows of FedAS from {(method, setting): values over seeds}."""
    base = {
        "paper": "fedas",
        "study": "grid",
        "dataset": dataset,
        "metric": metric,
        "rule": "last10_mean",
        "data": "real",
        "tier": "small",
    } | more
    return pd.DataFrame(
        [
            base | {"method": m, "setting": how, "seed": s, "value": v}
            for (m, how), x in values.items()
            for s, v in enumerate(x)
        ]
    )


def run(root):
    ledger.main(["--results", str(root)])
    return pd.read_csv(root / "ledger.csv", dtype=str, keep_default_na=False).set_index(
        "key"
    )


# ---------------------------------------------------------------- what the papers print


def test_every_printed_number_is_there():
    assert REPORTED.paper.value_counts().to_dict() == {
        "fedga": 207,
        "fedas": 284,
        "plgu": 266,
        "equfl": 649,
        "fft-gp": 90,
    }
    assert (REPORTED.improvement_pct != "").groupby(REPORTED.paper).sum().to_dict() == {
        "fedga": 0,
        "fedas": 0,
        "plgu": 0,
        "equfl": 295,
        "fft-gp": 0,
    }
    assert (REPORTED.rank_note != "").sum() == 90 and (
        REPORTED.reported_spread != ""
    ).sum() == 130


def test_lost_numbers_stay_empty_with_a_note():
    lost = REPORTED[REPORTED.reported == ""]
    assert lost.paper.value_counts().to_dict() == {"fedga": 6, "equfl": 6}
    assert (lost.note != "").all()
    # raises if one is no number
    pd.to_numeric(REPORTED.reported[REPORTED.reported != ""])


def test_reported_rows_follow_the_recipe():
    made = [
        ledger.key(r.paper, r.artefact, r.dataset, r.method, r.metric, r.setting)
        for r in REPORTED.itertuples()
    ]
    assert list(REPORTED.key) == made and REPORTED.key.is_unique
    assert REPORTED.key.map(
        lambda k: re.fullmatch(r"[a-z0-9_.-]+", k) is not None
    ).all()
    assert [METRICS[m].unit for m in REPORTED.metric] == list(REPORTED.unit)
    assert set(REPORTED.relation) == {"=", ">="}


def test_keys_are_readable():
    assert (
        ledger.key("fedga", "Table 5", "synthetic_05_05", "FedAvg", "mean_acc")
        == "fedga-table-5-synthetic_05_05-fedavg-mean_acc"
    )
    assert (
        ledger.key("x", "Table IV(a)", "d", "FedMGDA+", "m", "beta=0.1;P=1: why")
        == "x-table-iv-a-d-fedmgda-plus-beta_0.1-p_1-m"
    )


def test_names_agree_with_the_rest_of_the_package():
    from fedlib.methods import METHODS

    assert set(selection.RULES) <= set(ledger.RULES)
    assert {
        *results.MEASURES,
        *results.CURVES,
        *results.TOP1,
        *results.TAILS,
    } <= set(METRICS)
    # a row has a look at least
    assert {m for own in papers.each("controls").values() for m in own} <= {
        *METHODS,
        *plots.METHOD_STYLE,
    }
    printed = {p: set(g) for p, g in REPORTED.groupby("paper").method}
    # what is printed is no control
    assert not any(set(own) & printed[p] for p, own in papers.each("controls").items())
    assert not any(
        set(own) & set(REPORTED.dataset) for own in papers.each("datasets").values()
    )


@pytest.mark.parametrize(
    "change, word",
    [
        ({"method": "Uniform"}, "method is 'Uniform'"),
        ({"dataset": "office"}, "dataset is 'office'"),
    ],
)
def test_controls_and_data_sets_of_ours_belong_to_a_paper(change, word):
    s = fedas(
        {("FedAvg-FT", "beta=0.1;P=0.2"): [60.0], ("FedAS-chained", ""): [61.0]},
        dataset="digits",
    )
    assert len(ledger.check(s, "seeds", REPORTED)) == 2
    with pytest.raises(ResultError, match=word):
        ledger.check(s.assign(**change), "seeds", REPORTED)
    with pytest.raises(ResultError, match="dataset is 'digits'"):
        ledger.check(seeds({"FedGA": [1.0]}, dataset="digits"), "seeds", REPORTED)


# ------------------------------------------------------------------ cells


def test_cells_are_means_with_t_intervals():
    x = {"FedAvg": [60, 62, 67], "Uniform": [70, 71, 72], "Ditto": [1, 2, 3]}
    with pytest.raises(ResultError, match="method is 'Ditto'"):
        part(x)
    t = part({k: x[k] for k in ("FedAvg", "Uniform")}).set_index("method")
    i = interval(x["FedAvg"])
    assert tuple(t.loc["FedAvg", ["value", "lo", "hi", "n_seeds"]]) == (
        i.mean,
        i.lo,
        i.hi,
        3,
    )
    # a control of ours
    assert t.loc["Uniform", "key"] == "fedga-table-5-synthetic_05_05-uniform-mean_acc"


def test_cells_take_rules_metrics_and_provenance():
    s = pd.concat(
        [
            seeds({"FedAvg": [60, 62]}, run_ids="b"),
            seeds({"FedAvg": [50, 52]}, rule="last", run_ids="b"),
        ]
    )
    s["minutes"], s["commit"] = 1.5, "abc"
    t = ledger.cells(s, "fedga", "Table 5", also=["last"], device="cpu")
    assert list(t.setting) == ["", "rule=last"] and list(t.value) == [61, 51]
    assert (
        list(t.minutes) == [3, 3]
        and list(t.run_ids) == ["b", "b"]
        and list(t.device) == ["cpu", "cpu"]
    )
    t = ledger.cells(
        seeds({"FedGA": [0.8, 0.9]}, "us_gini_pearson", rule="run"),
        "fedga",
        "Figure 1",
        metrics=["us_gini_pearson"],
    )
    assert (
        t.key.item() == "fedga-figure-1-synthetic_05_05-fedga-us_gini_pearson"
        and t.rule.item() == "run"
    )


def test_cells_refuse_what_they_cannot_use():
    both = pd.concat(
        [seeds({"FedAvg": [1, 2]}), seeds({"FedAvg": [1, 2]}, study="other")]
    )
    for s, artefact, word in (
        (both, "Table 5", "main, other"),
        (seeds({"FedAvg": [1]}), "Figure 1", "name the metrics"),
        (
            seeds({"FedAvg": [1]}, "best_gini", "cifar01"),
            "Table 5",
            "nothing for fedga Table 5",
        ),
    ):
        with pytest.raises(ResultError, match=word):
            ledger.cells(s, "fedga", artefact)


def test_a_round_that_never_comes_is_infinite():
    t = part(
        {"FedGA": [80, float("inf")]},
        "Figure 10",
        metric="round_from_which_highest_acc",
        rule="run",
        dataset="synthetic_0_0",
    )
    assert t.value.item() == float("inf") and pd.isna(t.lo.item())


def test_versus_subtracts_seed_by_seed():
    s = seeds({"FedAvg": [0.3, 0.2], "FedGA": [0.1, 0.15]}, "best_gini", "cifar01")
    d = ledger.versus(s).query("metric == 'delta_gini_vs_fedavg'")
    assert list(d.method) == ["FedGA", "FedGA"] and d.value.round(9).tolist() == [
        -0.2,
        -0.05,
    ]
    with pytest.raises(ResultError, match="no best_gini of FedGini"):
        ledger.versus(s, method="FedGini")


def test_the_papers_one_seed_and_ours_over_all(root):
    """One artefact, two rules: the plain key has the paper's rule on its seed,
    "rule=..." ours on all of them.
    """
    cell = {("FedAS", "beta=0.1;P=0.2"): [80.0, 70.0]}
    s = pd.concat(
        [fedas(cell, rule="best_round_pooled"), fedas({k: [78.0, 66.0] for k in cell})]
    )
    t = ledger.cells(
        s[s.seed == 0],
        "fedas",
        "Table 3",
        rule="best_round_pooled",
    )
    assert (
        list(t.setting) == ["beta=0.1;P=0.2"]
        and list(t.value) == [80.0]
        and list(t.n_seeds) == [1]
    )
    t = ledger.cells(s, "fedas", "Table 3", rule=None, also=["last10_mean"])
    assert (
        list(t.setting) == ["beta=0.1;P=0.2;rule=last10_mean"]
        and list(t.value) == [72.0]
        and list(t.n_seeds) == [2]
    )
    for kw, word in (
        (dict(rule=None), "by no rule at all"),
        (dict(rule=None, also=["last"]), "by 'last'"),
    ):
        with pytest.raises(ResultError, match=word):
            ledger.cells(s, "fedas", "Table 3", **kw)
    both = [
        dict(rule="best_round_pooled", seed=0, study="grid"),
        dict(rule=None, also=["last10_mean"], study="grid"),
    ]
    other = fedas(cell, study="ablation", rule="best_round_pooled")
    ours = ledger.publish("fedas-x", [s, other], {"Table 3": both}, root)
    assert dict(zip(ours.key, ours.value)) == {
        "fedas-table-3-cifar-10-fedas-beta_0.1-p_0.2-top1_acc_pct": 80.0,
        (
            "fedas-table-3-cifar-10-fedas-beta_0.1-p_0.2-rule_last10_mean-top1_acc_pct"
        ): 72.0,
    }
    t = run(root)
    assert (
        t.loc["fedas-table-3-cifar-10-fedas-beta_0.1-p_0.2-top1_acc_pct", "ours"]
        == "80"
    )
    assert (
        t.loc[
            "fedas-table-3-cifar-10-fedas-beta_0.1-p_0.2-rule_last10_mean-top1_acc_pct",
            "verdict",
        ]
        == "no comparison"
    )


def test_lead_over_the_best_rival():
    s = fedas(
        {
            ("FedAS", "P=0.2"): [80, 70],
            ("FedPer", "P=0.2"): [70, 69],
            ("FedALA", "P=0.2"): [79, 50],
            ("Ditto", "P=0.2"): [99, 99],
            ("FedAS", "P=1"): [90, 91],
            ("FedALA", "P=1"): [85],
            ("FedPer", "P=0.4"): [1, 2],
        }
    )
    t = ledger.lead(
        s, "FedAS", ("FedPer", "FedALA"), "FedAS minus best rival (delta row)"
    )
    new = t[t.metric == "delta_acc_points"]
    assert len(t) == len(s) + 3 and set(new.method) == {
        "FedAS minus best rival (delta row)"
    }
    # P=0.2: FedPer has the better mean, although FedALA has the best seed; P=1: only
    # seed 0 has a rival
    assert [(r.setting, r.seed, r.value) for r in new.itertuples()] == [
        ("P=0.2", 0, 10),
        ("P=0.2", 1, 1),
        ("P=1", 0, 5),
    ]
    low = ledger.lead(
        s.assign(metric="best_gini"),
        "FedAS",
        ("FedPer", "FedALA"),
        "FedAS",
        "best_gini",
        "delta_gini_vs_fedavg",
    )
    assert low[low.metric != "best_gini"].value.iloc[0] == 1  # the lowest rival, FedALA
    for bad, word in (
        (s[s.method != "FedAS"], "no top1_acc_pct of FedAS"),
        (pd.concat([s, s]), "two runs of FedAS"),
    ):
        with pytest.raises(ResultError, match=word):
            ledger.lead(bad, "FedAS", ("FedPer", "FedALA"), "x")


TABLE4 = {
    ("FedPer", ""): ("w/o PA and CS", "PA=0;CS=0"),
    ("FedAS", "by=size"): ("FedAS PA only", "PA=1;CS=0"),
    ("FedAS", "align=none"): ("FedAS CS only", "PA=0;CS=1"),
    ("FedAS", ""): ("FedAS", "PA=1;CS=1"),
}


def test_runs_under_the_names_of_a_table():
    s = fedas(
        {
            ("FedPer", "P=0.2"): [70, 71],
            ("FedAS", "P=0.2;by=size"): [72, 73],
            ("FedAS", "P=0.2;align=none"): [74, 73],
            ("FedAS", "P=0.2"): [80, 80],
            ("FedAS", "P=0.2;align=sample"): [1, 1],
            ("FedPer-online", "P=0.2"): [2, 2],
        },
        study="ablation",
    )
    t = ledger.renamed(s, TABLE4)
    t = t.assign(setting="beta=0.1;" + t.setting)
    assert (
        dict(zip(zip(t.method, t.setting), t.value))
        == {
            ("w/o PA and CS", "beta=0.1;P=0.2;PA=0;CS=0"): 71,
            ("FedAS PA only", "beta=0.1;P=0.2;PA=1;CS=0"): 73,
            ("FedAS CS only", "beta=0.1;P=0.2;PA=0;CS=1"): 73,
            ("FedAS", "beta=0.1;P=0.2;PA=1;CS=1"): 80,
        }
        and len(t) == 8
    )
    single = "FedAS PA only", "FedAS CS only"
    t = ledger.lead(t, "FedAS", single, "FedAS minus best single module (arrow)")
    arrow = t[t.metric == "delta_acc_points"]
    # over CS only, 73.5 on average
    assert list(arrow.setting) == ["beta=0.1;P=0.2"] * 2 and list(arrow.value) == [6, 7]
    made = ledger.cells(t, "fedas", "Table 4", rule="last10_mean")
    printed = REPORTED[(REPORTED.paper == "fedas") & (REPORTED.artefact == "Table 4")]
    # as the paper's
    assert set(made.key) == set(printed.key[printed.setting.str.contains("P=0.2")])
    with pytest.raises(ResultError, match="no seeds of FedAS at 'by=minmax'"):
        ledger.renamed(s, {("FedAS", "by=minmax"): ("FedAS", "")})


# ------------------------------------------------------------------ verdicts


# reported: FedAvg 64.48, q-FedAvg 81.01, FedFV 83.50, FedGA 84.00
RIGHT = {
    m: [x - 0.4, x - 0.2, x, x + 0.1, x + 0.5]
    for m, x in zip(TABLE5, (64.48, 81.01, 83.5, 84.0))
}
WRONG = dict(zip(TABLE5, reversed(RIGHT.values())))
ONE = {m: x[:1] for m, x in RIGHT.items()}


def judged(root, values, **more):
    """The rows of Table 5's mean accuracy in the ledger made of these values."""
    rows = seeds(values, **more)
    rows["run_ids"] = rows.method + rows.seed.astype(str)
    ledger.publish("fedga-x", rows, {"Table 5": {}}, root)
    t = run(root)
    return t[(t.artefact == "Table 5") & (t.metric == "mean_acc")].set_index("method")


def verdicts(root, values, **more):
    return judged(root, values, **more).verdict


def test_ledger_on_the_papers_data_and_size_compares_digits(root):
    v = verdicts(root, RIGHT, tier="paper")
    assert set(v[list(TABLE5)]) == {"match"} and set(v.drop(list(TABLE5))) == {
        "not run"
    }
    v = verdicts(root, {m: [x / 2 for x in y] for m, y in RIGHT.items()}, tier="paper")
    assert set(v[list(TABLE5)]) == {"differs"}


@pytest.mark.parametrize("how", [{"data": "stand-in", "tier": "paper"}, {}])
def test_other_data_and_sizes_are_judged_by_their_order(root, how):
    t = judged(root, RIGHT, **how).loc[list(TABLE5)]
    assert set(t.verdict) == {"order holds"}
    # FedFV and FedGA differ by less than their printed spreads
    assert list(t.pairs) == [f"{n} of {n} decided pairs agree" for n in (3, 3, 2, 2)]
    assert set(verdicts(root, WRONG, **how)[list(TABLE5)]) == {"order differs"}
    assert set(verdicts(root, ONE, **how)[list(TABLE5)]) == {"order open"}


def test_a_stand_in_alone_is_not_compared(root):
    assert (
        verdicts(root, {"FedGA": [84.0] * 3}, data="stand-in")["FedGA"]
        == "no comparison"
    )


def test_ours_without_a_printed_number(root):
    time = seeds(
        {"FedGA": [1e-6] * 3, "FedGini": [2.0] * 3},
        "trigger_time_seconds",
        "cifar01",
        rule="run",
    )
    ours = [
        part(RIGHT | {"Uniform": [78.0] * 3}),
        ledger.cells(time, "fedga", "Table 8"),
    ]
    ledger.save(pd.concat(ours), "ours", "fedga-x", root)
    t = run(root)
    assert len(t) == len(REPORTED) + 1
    # the six times are lost
    assert set(t[t.artefact == "Table 8"].verdict) == {"no comparison", "not run"}
    own = t.loc["fedga-table-5-synthetic_05_05-uniform-mean_acc"]
    assert (own.verdict, own.reported, own.model, own.ours) == (
        "no comparison",
        "",
        "linear",
        "78",
    )
    assert t.index.get_loc(own.name) == max(
        map(t.index.get_loc, t[(t.paper == "fedga") & (t.artefact == "Table 5")].index)
    )


def test_nothing_run_gives_a_whole_ledger(root):
    t = run(root)
    assert len(t) == len(REPORTED) and set(t.verdict) == {"not run"}
    assert list(pd.read_csv(root / "ours.csv")) == ledger.OURS
    assert set(pd.read_csv(root / "artefacts.csv").status) == {"not run"}


def test_same_parts_same_bytes(root):
    table = part({"FedAvg": [60.123456789, 62, 67], "FedGA": [80, 81, 82]})
    ledger.save(table, "ours", "fedga-x", root)
    files = ("ours.csv", "ledger.csv", "artefacts.csv")
    run(root)
    first = [(root / f).read_bytes() for f in files]
    ledger.save(table.iloc[::-1], "ours", "fedga-x", root)
    run(root)
    assert first == [(root / f).read_bytes() for f in files] and b"\r" not in first[0]


# ------------------------------------------------------------------ tiers


def test_the_best_tier_wins_and_is_named(root):
    ledger.save(
        part({"FedGA": [84] * 3, "FedFV": [80] * 3}, tier="paper"),
        "ours",
        "fedga-x",
        root,
    )
    made = ledger.keep("paper", root)
    assert [p.name for p in made] == ["fedga-x.paper.csv"]
    ledger.save(
        part({"FedGA": [50] * 3, "FedGini": [51] * 3}, tier="small"),
        "ours",
        "fedga-x",
        root,
    )
    t = run(root)
    t = t[(t.artefact == "Table 5") & (t.metric == "mean_acc")].set_index("method")
    assert t.loc[["FedGA", "FedFV", "FedGini"], ["tier", "ours"]].values.tolist() == [
        ["paper", "84"],
        ["paper", "80"],
        ["small", "51"],
    ]


def test_a_fresh_part_replaces_its_kept_copy(root):
    ledger.save(
        part({"FedGA": [84] * 3, "FedFV": [80] * 3}, tier="paper"),
        "ours",
        "fedga-x",
        root,
    )
    ledger.keep("paper", root)
    ledger.save(part({"FedGA": [85] * 3}, tier="paper"), "ours", "fedga-x", root)
    t = run(root)
    t = t[(t.artefact == "Table 5") & (t.metric == "mean_acc")].set_index("method").ours
    assert (t["FedGA"], t["FedFV"]) == ("85", "80")


def test_kept_seeds_do_not_mix_with_fresh_ones(root):
    ledger.save(seeds({"FedGA": [1, 2, 3]}, tier="paper"), "seeds", "x", root)
    ledger.keep("paper", root)
    ledger.save(seeds({"FedGA": [7, 8]}, tier="paper"), "seeds", "x", root)
    assert list(ledger.parts(root, "seeds", REPORTED).value) == [7, 8]


# ------------------------------------------------------------------ what is refused

FINE = part({"FedAvg": [60, 62, 67]})


def broken(**change):
    return FINE.assign(**change)


@pytest.mark.parametrize(
    "table, kind, word",
    [
        (broken(verdict="match"), "ours", "no column 'verdict'"),
        (broken().drop(columns="tier"), "ours", "'tier' is missing"),
        (
            broken(metric="mean_ac"),
            "ours",
            "metric is 'mean_ac'; did you mean 'mean_acc'",
        ),
        (broken(paper="fedgaa"), "ours", "did you mean 'fedga'"),
        (broken(artefact="Table 55"), "ours", "did you mean 'Table 5'"),
        (broken(dataset="synthetic_05"), "ours", "did you mean 'synthetic_05_05'"),
        (broken(method="FedAvgg"), "ours", "did you mean 'FedAvg'"),
        (broken(rule="best"), "ours", "rule is 'best'"),
        (broken(data="fake"), "ours", "data is 'fake'"),
        (broken(tier="huge"), "ours", "tier is 'huge'"),
        (broken(key="fedga-table-5-x"), "ours", "make keys with ledger.key"),
        (broken(value="many"), "ours", "row 1: value is 'many'; give a number"),
        (broken(value=float("nan")), "ours", "value is ''"),
        (broken(method=None), "ours", "method is ''"),
        (broken(lo=99.0), "ours", "must hold the value"),
        (broken(hi=float("nan")), "ours", "or be empty"),
        (broken(n_seeds=2.5), "ours", "n_seeds is 2.5"),
        (
            pd.concat([broken(), broken()]),
            "ours",
            "row 2: fedga-table-5-.* occurs twice",
        ),
        (seeds({"FedAvg": [1, 2]}).assign(seed=0), "seeds", "row 2: .* occurs twice"),
        (seeds({"FedAvg": [1, 2]}).assign(study=""), "seeds", "name the experiment"),
        (seeds({"FedAvg": [1, 2]}).assign(seed=0.5), "seeds", "seed is 0.5"),
    ],
)
def test_malformed_parts_are_refused(table, kind, word):
    with pytest.raises(ResultError, match=word):
        ledger.check(table, kind, REPORTED, "here")


def test_files_are_named_in_errors(root):
    path = ledger.save(part({"FedAvg": [1, 2]}), "ours", "a", root)
    ledger.save(part({"FedAvg": [1, 2]}), "ours", "b", root)
    with pytest.raises(
        ResultError, match="fedavg-mean_acc is in a.csv and in b.csv, at tier small"
    ):
        run(root)
    (root / "ours" / "b.csv").write_text("")
    with pytest.raises(ResultError, match="b.csv is empty"):
        run(root)
    (root / "ours" / "b.csv").write_text(
        path.read_text().replace("synthetic,small", "synthetic,smal")
    )
    with pytest.raises(
        ResultError, match="b.csv, row 1: tier is 'smal'; did you mean 'small'"
    ):
        run(root)
    (root / "ours" / "b.csv").rename(root / "ours" / "b.huge.csv")
    with pytest.raises(ResultError, match="'huge' is no tier"):
        run(root)
    (root / "ours" / "b.huge.csv").rename(root / "ours" / "b.paper.csv").write_text(
        path.read_text()
    )
    with pytest.raises(
        ResultError, match="b.paper.csv, row 1: tier 'small'; here is 'paper'"
    ):
        run(root)


@pytest.mark.parametrize(
    "kind, name", [("our", "x"), ("ours", "Fed GA"), ("ours", "x.paper")]
)
def test_save_insists_on_names(root, kind, name):
    with pytest.raises(ResultError, match="save"):
        ledger.save(part({"FedAvg": [1, 2]}), kind, name, root)


def test_reported_file_is_checked(tmp_path):
    folder = tmp_path / "papers"
    shutil.copytree(ROOT / "papers/plgu", folder / "plgu")
    path = folder / "plgu/reported.csv"
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    assert len(ledger.read_reported(folder)) == len(lines) - 1
    for bad, word in (
        (text.replace("relation", "relations", 1), "columns must be"),
        ("".join([*lines, lines[-1]]), "occurs twice"),
        (text.replace(",plgu,", ",fedas,", 1), "row 1: paper is 'fedas'"),
    ):
        path.write_text(bad)
        with pytest.raises(ResultError, match=word):
            ledger.read_reported(folder)
    path.unlink()
    with pytest.raises(ResultError, match="is missing"):
        ledger.read_reported(folder)
    with pytest.raises(ResultError, match="has no paper"):
        ledger.read_reported(tmp_path)


# ------------------------------------------------------------------ reading aids


def test_printed_and_beside(root):
    assert ledger.printed("fedga", "Table 4", "worst10_acc")["FedGA"] == 28.94
    assert ledger.printed("fedga", "Table 8", "trigger_time_seconds") == {}
    with pytest.raises(ResultError, match="prints no mean_acc"):
        ledger.printed("fedga", "Table 4", "mean_acc")
    t = ledger.beside(
        part(RIGHT | {"Uniform": [78.0] * 3}), "fedga", "Table 5"
    ).droplevel("dataset")
    assert tuple(t.loc["FedGA", "mean_acc"][["reported", "ours"]]) == (84.0, 84.0)
    lost = part(
        {"FedGA": [1e-6, 2e-6]},
        "Table 8",
        metric="trigger_time_seconds",
        dataset="cifar01",
        rule="run",
    )
    assert len(ledger.beside(lost, "fedga", "Table 8")) == 1
    assert (
        pd.isna(t.loc["Uniform", ("mean_acc", "reported")])
        and t.loc["Uniform", ("mean_acc", "ours")] == 78
    )
    with pytest.raises(ResultError, match="did you mean"):
        ledger.beside(part(RIGHT), "fedga", "Tabel 5")


# ------------------------------------------------------------------ artefacts


def test_every_printed_artefact_is_listed_once():
    listed = [(a.paper, a.name) for a in artefacts.listed()]
    assert len(set(listed)) == len(listed) and set(
        zip(REPORTED.paper, REPORTED.artefact)
    ) <= set(listed)
    ours = {n for p, n in listed if p == "fedga"}
    assert {f"Figure {i}" for i in range(1, 17)} | {
        f"Table {i}" for i in range(1, 9)
    } <= ours
    fedas = {n for p, n in listed if p == "fedas"}
    assert fedas == {
        *(f"Table {i}" for i in range(1, 5)),
        "Figure 1",
        "Figure 2",
        *(
            f"Figure {i}"
            for i in ("3a", "3b", "4a", "4b", "5a", "5b", "6a", "6b", "7a", "7b")
        ),
    }
    plgu = {n for p, n in listed if p == "plgu"}
    assert {
        *(f"Figure {i}" for i in range(1, 8)),
        *(f"Table {i}" for i in range(1, 5)),
        *(f"Algorithm {i}" for i in range(1, 4)),
        "Theorem 1",
        "Theorem 2",
    } == plgu - {n for n in plgu if n.endswith("text") or "(" in n}
    equfl = {n for p, n in listed if p == "equfl"}
    assert {
        *(f"Figure {i}" for i in range(1, 6)),
        "Algorithm 1",
        "Algorithm 2",
        "Theorem 1",
        "Theorem 2",
    } == equfl - {*REPORTED[REPORTED.paper == "equfl"].artefact}
    assert all((a.paper, a.shown) in listed for a in artefacts.listed() if a.shown)
    assert len({a.slug for a in artefacts.listed()}) == len(listed)


@pytest.mark.parametrize(
    "a", [a for a in artefacts.listed() if "/" in a.page], ids=lambda a: a.slug
)
def test_every_page_has_its_anchor(a):
    cells = json.loads(
        (ROOT / a.page).with_suffix(".ipynb").read_text(encoding="utf-8")
    )["cells"]
    text = "".join("".join(c["source"]) for c in cells)
    if a.figure:  # a figure is its own anchor
        names = [
            re.sub(r"\\{\w+\\}", "(.*)", re.escape(n))
            for n in re.findall(r'save\(\s*fig,\s*f?"(.*?)"', text)
        ]
        names = [re.fullmatch(n, a.anchor) for n in names]
        assert f'"{a.anchor}"' in text or any(
            n and all(f'"{part}"' in text for part in n.groups()) for n in names
        )
    else:  # a table's, or the figure's beside it
        assert f"({a.anchor})=" in text or a.shown and f'"{a.anchor}"' in text


def figure(root, slug, tier="paper", data="Synthetic(0.5, 0.5), synthetic"):
    path = root / "figures" / "fedga-x" / f"{slug}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("<svg/>")
    path.with_suffix(".json").write_text(json.dumps({"tier": tier, "data": data}))


def status(root, paper="fedga"):
    run(root)
    table = pd.read_csv(root / "artefacts.csv", dtype=str, keep_default_na=False)
    return table.set_index(["paper", "artefact"]).loc[paper]


def test_artefacts_follow_their_evidence(root):
    figure(root, "fedga-figure-11")
    figure(root, "fedga-figure-6", data="glyphs (stand-in)")
    figure(root, "fedga-figure-15", tier="small")
    figure(root, "fedga-figure-2", tier="exact", data="diagram")
    ledger.save(
        part({m: [1, 2, 3] for m in TABLE5}, tier="paper"),
        "ours",
        "fedga-x",
        root,
    )
    s = status(root)
    assert list(s.loc["Figure 11", ["status", "reason", "tier", "files"]]) == [
        "done",
        "",
        "paper",
        "figures/fedga-x/fedga-figure-11.svg",
    ]
    assert list(s.loc["Figure 6", ["status", "reason", "data"]]) == [
        "reduced",
        "stand-in data",
        "stand-in",
    ]
    assert list(s.loc["Figure 15", ["status", "reason"]]) == [
        "reduced",
        "sizes of tier small",
    ]
    assert s.loc["Figure 2", "status"] == "done"
    assert list(s.loc["Table 5", ["status", "reason"]]) == [
        "reduced",
        "missing: 28 of 32 numbers",
    ]
    assert s.loc["Figure 10", "status"] == "not run"


def test_an_artefact_with_figure_and_numbers_needs_both(root):
    figure(root, "fedga-figure-1")
    assert (
        status(root).loc["Figure 1", "reason"]
        == "missing: the number us_gini_pearson, the number us_gini_spearman"
    )
    s = pd.concat(
        [
            seeds(
                {"FedAvg": [0.9, 0.8]},
                f"us_gini_{k}",
                "synthetic_0_0",
                rule="run",
                tier="paper",
            )
            for k in ("pearson", "spearman")
        ]
    )
    ours = ledger.cells(s, "fedga", "Figure 1", metrics=set(s.metric))
    ledger.save(ours, "ours", "fedga-x", root)
    assert list(status(root).loc["Figure 1", ["status", "data"]]) == [
        "done",
        "synthetic",
    ]


def test_a_figure_without_provenance_is_refused(root):
    figure(root, "fedga-figure-11", tier="huge")
    with pytest.raises(ValueError, match="plots.save"):
        run(root)


def test_a_schematic_is_shown_by_the_figure_that_covers_it(root):
    figure(root, "fedas-figure-2", tier="exact", data="diagram")
    s = status(root, "fedas")
    for name in ("Figure 1", "Figure 2"):
        assert list(s.loc[name, ["status", "page", "files"]]) == [
            "done",
            "notebooks/fedas/fisher.html#fedas-figure-2",
            "figures/fedga-x/fedas-figure-2.svg",
        ]


def test_what_has_nothing_to_compute_is_done_where_its_page_has_it(tmp_path):
    root, page = tmp_path / "results", tmp_path / "book" / "notation.md"
    root.mkdir()
    assert status(root, "fedas").loc["Table 1", "status"] == "not run"
    page.parent.mkdir()
    page.write_text("# Notation")
    assert status(root, "fedas").loc["Table 1", "status"] == "not run"
    page.write_text("(fedas-table-1)=\n## Symbols of FedAS")
    assert list(
        status(root, "fedas").loc["Table 1", ["status", "reason", "tier", "page"]]
    ) == ["done", "", "exact", "notation.html#fedas-table-1"]


def test_rows_that_a_switch_tells_apart_are_ordered_together():
    """FedAS, Table 4: four methods, each with its own PA and CS, at one beta and P."""
    reported = ledger.read_reported()
    at = reported.setting.str.startswith("beta=0.1;P=0.2") & (
        reported.metric == "top1_acc_pct"
    )
    four = reported[(reported.artefact == "Table 4") & at]
    for sign, verdict in ((1, "order holds"), (-1, "order differs")):
        rows = [
            {
                "study": "ablation",
                "seed": seed,
                "value": 50 + sign * float(r.reported) + 0.1 * (seed * i % 5),
                "rule": "best_round_pooled",
                "data": "stand-in",
                "tier": "small",
                "run_ids": f"run{i}-{seed}",
            }
            | {c: getattr(r, c) for c in ledger.CELL if c != "artefact"}
            for i, r in enumerate(four.itertuples())
            for seed in range(5)
        ]
        how = dict(rule="best_round_pooled")
        rows = pd.DataFrame(rows)
        ours = ledger.cells(rows, "fedas", "Table 4", **how)
        found = ledger.join(reported, ours, rows)
        assert set(found[found.key.isin(four.key)].verdict) == {verdict}
    assert len(four) == 4
