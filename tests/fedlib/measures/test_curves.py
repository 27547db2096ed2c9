"""Numbers of whole runs on curves that can be read off."""

import math

import numpy as np
import pytest

from fedlib.core.record import Record
from fedlib.measures import curves


def record(test, rounds=None, val=None, **logs):
    test = np.asarray(test, float)
    rounds = np.arange(len(test)) if rounds is None else np.asarray(rounds)
    views = {
        ("pre", "global", "test"): test,
        ("pre", "global", "val"): test if val is None else np.asarray(val, float),
    }
    return Record({}, rounds, views, {k: np.asarray(v) for k, v in logs.items()})


def test_area_of_a_constant_gini_is_gini_times_rounds():
    r = record(np.tile([1.0, 0.0], (41, 1)), rounds=np.arange(0, 401, 10))
    # one client has everything: Gini 1
    assert curves.gini_auc(r) == pytest.approx(400, rel=1e-6)


def test_window_counts_rounds_not_evaluations():
    assert (
        curves.window(record(np.ones((5, 2)))) == 10
        and curves.window(record(np.ones((5, 2)), rounds=[0, 5, 10, 15, 20])) == 2
    )


def test_trigger_round_is_the_first_on_or_never():
    assert curves.trigger_round(record(np.ones((3, 2)), on=[0, 0, 1, 1])) == 2
    assert curves.trigger_round(record(np.ones((3, 2)), on=[0, 0])) == math.inf


def test_highest_from_is_the_last_crossing():
    a, b = np.array([1, 3, 1, 4, 5]), np.array([2, 2, 2, 2, 2])
    assert (
        curves.highest_from({"a": a, "b": b}, "a") == 3
        and curves.highest_from({"a": a, "b": b}, "b") is None
    )


def test_scale_and_gini_correlate_when_they_fall_together():
    val = [[1, 0], [0.8, 0.2], [0.6, 0.4], [0.5, 0.5]]
    r = record(val, val=val, update_scale=[4.0, 3.0, 2.0])
    got = curves.scale_and_gini(r)
    assert got["us_gini_spearman"] == pytest.approx(1) and got["us_gini_pearson"] > 0.99


def test_share_below_skips_the_common_start():
    low, high = (
        record(np.tile([0.5, 0.5], (21, 1))),
        record(np.tile([1.0, 0.0], (21, 1))),
    )
    assert curves.share_below(low, high) == 1 and curves.share_below(high, low) == 0


def test_between_and_plateau():
    r = record(np.repeat(np.linspace(0, 1, 101)[:, None], 2, 1))
    assert curves.between(r, np.arange(101.0), 1, 3) == 2 and math.isnan(
        curves.between(r, np.arange(101.0), 500)
    )
    p = curves.plateau(r)
    assert (
        p["test_acc_plateau_low"]
        < p["test_acc_plateau"]
        < p["test_acc_plateau_high"]
        <= 100
    )


def test_modes_find_the_pile():
    low, high, peak = curves.modes(
        np.r_[np.full(60, 80.0), np.full(20, 81.0), np.linspace(0, 100, 21)]
    )
    assert 70 < low < 80 < high < 86 and abs(peak - 80) < 2


def test_a_straggler_holds_its_last_value():
    r = record(
        np.ones((4, 3)),
        cohort=[[0, 2], [1, -1], [0, 1]],
        trace=[[5.0, 6.0], [7.0, np.nan], [8.0, 9.0]],
    )
    assert curves.held(r, "trace", [1, 2, 3]).tolist() == [
        [5, 2, 6],
        [5, 7, 6],
        [8, 9, 6],
    ]
    assert curves.trend(r, "trace") == 1


def test_late_clients_over_the_others_is_a_geometric_mean():
    v = [[1, 1, 1, 1], [2.0, 8.0, 1.0, 2.0], [2.0, 8.0, 1.0, 2.0]]
    assert curves.late_over_online(
        v, [False, False, True, True], first=1
    ) == pytest.approx(math.sqrt(2) / 4)


def test_early_accuracy_bridges_rounds_without_a_look():
    views = {
        ("pre", "tuned", "test"): np.array([[0.0], [0.4], [0.8]]),
        ("post", "own", "test"): np.array([[0.2], [0.3], [0.4], [0.5]]),
    }
    sparse = Record({"n": {"test": [5]}}, np.array([0, 2, 4]), views)
    assert curves.early(sparse, "pre", "tuned") == pytest.approx(100 * (0.2 + 0.4) / 2)
    dense = Record({"n": {"test": [5]}}, np.arange(5), views)
    assert curves.early(dense, "post", "own") == pytest.approx(100 * (0.2 + 0.3) / 2)
