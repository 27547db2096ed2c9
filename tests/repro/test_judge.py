"""What ours says of a printed number: every verdict is reached, by its definition."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from fedlib.measures.verdicts import LEAST
from fedlib.study.seeds import PILOT
from repro import judge, ledger

NAN = float("nan")


def row(reported, ours, lo=NAN, hi=NAN, n=1, **more):
    """A row of the ledger, of a metric in percent on synthetic data at paper size."""
    said = {
        "key": "k",
        "reported": reported,
        "reported_spread": "",
        "ours": ours,
        "ours_lo": lo,
        "ours_hi": hi,
        "n_seeds": n,
        "metric": "mean_acc",
        "relation": "=",
        "data": "synthetic",
        "tier": "paper",
    }
    return SimpleNamespace(**said | more)


# ---------------------------------------------------------------- digits
@pytest.mark.parametrize(
    "case, verdict",
    [
        (row("64.48", 64.0, 63, 65, 5), "match"),
        (row("64.48", 63.0, 61.6, 64.477, 5), "match"),  # all that rounds to 64.48
        (row("64.48", 64.0, 63, 65, 4), "close"),  # too few seeds for an interval
        (row("64.48", 64.4, 62.3, 66.5, 5), "close"),  # inside, but wide
        (row("64.48", 60, 50, 70, 5), "close"),
        (row("64.48", 60, 50, 70, 2), "differs"),  # the interval does not count
        (row("64.48", 60, 58, 62, 5), "differs"),
        (row("64.48", 60, 58, 62, 5, reported_spread="5"), "differs"),  # noise
        (row("64.48", 66.48, 66, 66.9, 5), "close"),  # two points, and not inside
        (row("64.48", 64.48), "close"),  # one seed
        (row("64.48", 66.49), "differs"),
        (row("18.60", 19.5, metric="std_acc"), "close"),  # 5 %
        (row("18.60", 19.6, metric="std_acc"), "differs"),
        (row("0.7386", 0.7580, metric="accuracy"), "close"),  # two points, a fraction
        (row("80", 91.5, 90, 93, 5, relation=">="), "match"),  # a bound
        (row("80", 91.5, 75, 108, 5, relation=">="), "close"),
        (row("80", 91.5, relation=">="), "close"),
        (row("80", 77, relation=">="), "differs"),
        (row("80", 77, 76, 78, 5, relation="<="), "match"),
        (
            row("100", float("inf"), metric="round_from_which_highest_acc", n=5),
            "differs",
        ),
    ],
)
def test_digits_on_the_same_data_and_size(case, verdict):
    assert judge.digits(case) == judge.alone(case) == verdict


@pytest.mark.parametrize(
    "case, verdict",
    [
        (row("", 64.0), "no comparison"),
        (row("64.48", NAN), "not run"),
        (row("5", 5.0, metric="runs", tier="exact", data="real"), "setting"),
        (row("5", 4.0, metric="runs", tier="exact", data="real"), "differs"),
        (row("0.1", 0.104, metric="learning_rate", tier="exact"), "differs"),
        (row("23", 3.0, metric="largest_D", data="stand-in"), "no comparison"),
        (row("0.012", 0.0121, metric="example_gini", tier="exact"), "setting"),
        (row("1.56", 1.6, metric="total_MB", tier="exact"), "setting"),  # 5 %
        (row("1.56", 1.7, metric="total_MB", tier="exact"), "differs"),
        (row("64.48", 64.48, data="stand-in"), None),  # the order decides
        (row("64.48", 64.48, tier="small"), None),
    ],
)
def test_what_a_row_says_alone(case, verdict):
    assert judge.alone(case) == verdict


# ---------------------------------------------------------------- order
def group(reported, spread=None, metric="mean_acc", **more):
    """Rows of one table, of {method: printed number}; their keys are the methods."""
    said = {"paper": "fedga", "artefact": "Table 5", "dataset": "cifar01"}
    said |= {"model": "", "setting": "", "tier": "small", "data": "stand-in"}
    return pd.DataFrame(
        {
            "key": list(reported),
            "method": list(reported),
            "metric": metric,
            "reported": list(reported.values()),
            "reported_spread": [(spread or {}).get(m, "") for m in reported],
        }
    ).assign(
        relation="=", ours=50.0, ours_lo=NAN, ours_hi=NAN, n_seeds=5, **said | more
    )


def drawn(means, seeds=LEAST, sd=0.1):
    """{method: values by seed} about its mean."""
    rng = np.random.default_rng(0)
    return {m: pd.Series(rng.normal(x, sd, seeds)) for m, x in means.items()}


SAID = {"A": "60.0", "B": "70.0", "C": "80.0"}
ORDERED = drawn({"A": 10, "B": 20, "C": 30})


def test_every_decided_pair_agrees():
    found = judge.order(group(SAID), ORDERED)
    assert set(found.values()) == {("order holds", "2 of 2 decided pairs agree")}


def test_one_decided_pair_disagrees():
    assert judge.order(group(SAID), drawn({"A": 10, "B": 30, "C": 20})) == {
        "A": ("order holds", "2 of 2 decided pairs agree"),
        "B": ("order differs", "1 of 2 decided pairs agree"),
        "C": ("order differs", "1 of 2 decided pairs agree"),
    }


def test_lower_may_be_better_and_nobody_asks():
    low = group({"A": "0.3", "B": "0.1"}, metric="best_gini")
    found = judge.order(low, drawn({"A": 0.5, "B": 0.2}, sd=0.01))
    assert {v for v, _ in found.values()} == {"order holds"}


@pytest.mark.parametrize(
    "values",
    [
        drawn({"A": 10, "B": 20}, seeds=LEAST - 1),
        drawn({"A": 10, "B": 11}, sd=9),  # noise
        {m: x.set_axis(range(PILOT, PILOT + LEAST)) for m, x in ORDERED.items()},
        drawn({"A": 10}),  # B's seeds are not known
        {"A": pd.Series([1.0, 1.1, 1, 1, 1]), "B": pd.Series([2.0] * 5, range(9, 14))},
    ],
)
def test_what_is_not_decided_is_open(values):
    found = judge.order(group({"A": "60.0", "B": "70.0"}), values)
    assert set(found.values()) == {("order open", "its only pair is undecided")}


def test_alike_speaks_against_a_printed_difference():
    alike = drawn({"A": 50, "B": 50})
    wide = judge.order(group({"A": "60.0", "B": "70.0"}), alike)
    assert set(wide.values()) == {("order differs", "0 of 1 decided pairs agree")}
    near = judge.order(group({"A": "60.0", "B": "60.9"}), alike)  # within the margin
    assert {v for v, _ in near.values()} == {"order open"}


def test_a_difference_within_the_printed_spreads_is_no_pair():
    table = group({"A": "60.0", "B": "70.0"}, {"A": "3", "B": "12"})
    found = judge.order(table, drawn({"A": 20, "B": 10}))
    assert set(found.values()) == {("order open", "no pair that the paper tells apart")}


def test_some_tables_have_no_order():
    assert judge.order(group({"A": "60.0"}), drawn({"A": 1})) == {}
    sizes = group({"A": "1", "B": "2"}, metric="best_D")
    assert judge.order(sizes, drawn({"A": 1, "B": 2})) == {}


@pytest.mark.parametrize("change", [{"dataset": "cifar10"}, {"tier": "paper"}])
def test_only_rows_of_one_table_are_ordered(change):
    table = pd.concat([group({"A": "60.0"}), group({"B": "70.0"}, **change)])
    assert judge.orders(table, drawn({"A": 10, "B": 20})) == {}


def test_the_papers_switches_do_not_part_a_table():
    table = group({"A": "60.0", "B": "70.0"}, paper="fedas")
    table["setting"] = ["P=0.2;PA=0;CS=0", "P=0.2;PA=1;CS=1"]
    assert len(judge.orders(table, drawn({"A": 10, "B": 20}))) == 2
    table["setting"] = ["P=0.2;PA=0;CS=0", "P=1;PA=1;CS=1"]
    assert judge.orders(table, drawn({"A": 10, "B": 20})) == {}


def test_the_whole_table_gets_its_verdicts():
    other, same = group(SAID), group({"D": "50.3"}, data="synthetic", tier="paper")
    same = same.assign(ours_lo=49.5, ours_hi=50.5)
    table = pd.concat([other, same, group({"E": ""})], ignore_index=True)
    values = drawn({"A": 10, "B": 20, "C": 15})
    found = judge.judge(table, values).set_index("key")
    said = ["order holds", "order differs", "order differs", "match", "no comparison"]
    assert list(found.verdict) == said and set(found.verdict) <= set(judge.VERDICTS)
    assert list(found.pairs[["D", "E"]]) == ["", ""]


# ---------------------------------------------------------------- values by seed
def seeds(**more):
    said = {"paper": "fedga", "study": "main", "dataset": "cifar01", "setting": ""}
    said |= {"method": "FedGA", "metric": "mean_acc", "rule": "best_val"}
    said |= {"tier": "small", "data": "stand-in"} | more
    return pd.DataFrame(
        [
            said | {"seed": s, "value": v, "run_ids": f"run{s}"}
            for s, v in enumerate(said.pop("values"))
        ]
    )


def test_a_row_finds_its_seeds_again():
    rows = pd.concat(
        [
            seeds(values=[1.0, 2.0, 4.0]),
            seeds(values=[7.0, 8.0, 9.0], setting="q=1"),
            seeds(values=[3.0, 3.0, 9.0], study="other"),
        ],
        ignore_index=True,
    )
    ours = ledger.cells(rows[rows.study == "main"], "fedga", "Table 2", ["mean_acc"])
    found = judge.by_seed(ours, rows)
    assert [list(found[key]) for key in ours.key] == [[1, 2, 4], [7, 8, 9]]
    assert list(found[ours.key[0]].index) == [0, 1, 2]
    # of the same runs, but no row's mean
    assert judge.by_seed(ours.assign(value=6.0, lo=NAN, hi=NAN), rows) == {}
    # other runs
    assert judge.by_seed(ours.assign(run_ids="run8 run9"), rows) == {}


def test_one_seed_of_several():
    rows = seeds(values=[1.0, 2.0, 4.0])
    ours = ledger.cells(rows[rows.seed == 1], "fedga", "Table 2", ["mean_acc"])
    assert [dict(x) for x in judge.by_seed(ours, rows).values()] == [{1: 2.0}]
