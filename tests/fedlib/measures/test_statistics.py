"""Intervals and ranks against hand calculation, scipy, and the published tables."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedlib.measures.statistics import average_ranks, interval, paired

X = [2.0, 4.0, 9.0]


def test_t_interval_by_hand_and_scipy():
    i = interval(X)
    s = math.sqrt((9 + 1 + 16) / 2)  # mean 5
    assert i.mean == 5 and i.n == 3 and i.how == "t"
    assert i.half == pytest.approx(4.302653 * s / math.sqrt(3), rel=1e-6)  # t(.975, 2)
    assert (i.lo, i.hi) == pytest.approx(stats.t.interval(0.95, 2, 5, stats.sem(X)))


def test_bootstrap_is_seeded_and_near_the_normal_interval():
    x = np.random.default_rng(3).normal(10, 2, 400)
    i, z = interval(x, how="bootstrap"), 1.96 * x.std() / 20
    assert i == interval(x, how="bootstrap") and i != interval(
        x, how="bootstrap", seed=1
    )
    assert (i.lo, i.hi) == pytest.approx((x.mean() - z, x.mean() + z), abs=0.02)


def test_one_seed_has_no_interval():
    i = interval([7.0])
    assert (
        i.mean == 7
        and math.isnan(i.lo)
        and math.isnan(i.hi)
        and "no interval" in str(i)
    )


def test_interval_covers_as_often_as_it_says():
    x = np.random.default_rng(0).normal(size=(2000, 5))
    hit = [interval(row).lo <= 0 <= interval(row).hi for row in x]
    assert 0.93 < np.mean(hit) < 0.97


def test_paired_matches_by_seed():
    a, b = pd.Series({0: 1.0, 1: 5.0, 2: 4.0}), pd.Series({2: 3.0, 0: 2.0, 1: 1.0})
    d = paired(a, b)
    assert d == interval([-1.0, 4.0, 1.0]) == paired([1, 5, 4], [2, 1, 3])
    t = stats.ttest_rel([1, 5, 4], [2, 1, 3]).confidence_interval()
    assert (d.lo, d.hi) == pytest.approx((t.low, t.high))


def test_pairing_removes_what_the_seeds_share():
    level, noise = np.array([0.0, 50.0, 100.0]), np.array([1.0, 1.1, 0.9])
    assert paired(level + noise, level).half < 0.3 < interval(level).half


@pytest.mark.parametrize(
    "call, word",
    [
        (lambda: interval([]), "at least one seed"),
        (lambda: interval([1, math.nan]), "not finite"),
        (lambda: interval(X, how="z"), "'bootstrap'"),
        (lambda: interval(X, level=95), "0.95"),
        (lambda: paired(pd.Series({0: 1.0}), pd.Series({1: 1.0})), r"\[0, 1\]"),
        (lambda: paired([1, 2], [1, 2, 3]), "2 values against 3"),
        (
            lambda: paired(
                pd.Series([1.0, 2.0], [0, 0]), pd.Series([1.0, 2.0], [0, 1])
            ),
            "two values for seed 0",
        ),
        (lambda: average_ranks({"a": [1, 2], "b": [2, 1]}), "3 methods"),
        (lambda: average_ranks({"a": [1], "b": [2], "c": [3]}), "2 settings"),
        (
            lambda: average_ranks(
                pd.DataFrame({"a": [1, 2], "b": [2, math.nan], "c": [3, 3]}, ["s", "t"])
            ),
            "b has no",
        ),
    ],
)
def test_bad_input_is_explained(call, word):
    with pytest.raises(ValueError, match=word):
        call()


def test_critical_differences_of_the_published_table():
    """q of Demsar (2006), Table 5(a), 2.343 for 3 methods to 3.164 for 10, at level
    0.95.
    """
    for m, q in ((3, 2.343), (4, 2.569), (5, 2.728), (10, 3.164)):
        table = np.random.default_rng(m).normal(size=(14, m))
        assert average_ranks(table).cd == pytest.approx(
            q * math.sqrt(m * (m + 1) / 84), rel=5e-4
        )


def test_ranks_direction_ties_and_tests():
    table = pd.DataFrame(
        {"good": [9, 8, 9, 9], "tie": [5, 8, 5, 5], "bad": [1, 1, 1, 2]}, list("abcd")
    )
    r = average_ranks(table)
    assert r.ranks.to_dict() == {"good": 1.125, "tie": 1.875, "bad": 3.0} and r.n == 4
    assert r.p == pytest.approx(stats.friedmanchisquare(*table.T.to_numpy()).pvalue)
    assert average_ranks(table, higher_is_better=False).ranks.to_dict() == {
        "bad": 1.0,
        "tie": 2.125,
        "good": 2.875,
    }
    gap = 3.0 - 1.125
    assert (gap > r.cd) == (r.pairs.loc["good", "bad"] < 0.05)
    assert r.pairs.loc["good", "bad"] == pytest.approx(
        stats.studentized_range.sf(
            gap / math.sqrt(3 * 4 / 24) * math.sqrt(2), 3, np.inf
        ),
        rel=1e-3,
    )
