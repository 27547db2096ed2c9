"""From accuracies to one number, for records that are made by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedlib.core.record import Record
from fedlib.measures import curves, metrics, selection
from repro import papers

early = papers.module("fedas", "measures").early
ACC = arrays(float, st.integers(2, 30), elements=st.floats(0.01, 1))


@given(ACC, st.sampled_from([0.1, 0.25, 0.5]))
def test_metrics_are_their_formulas(a, part):
    m = len(a)
    k = max(1, math.floor(part * m + 1e-9))
    low, high = sorted(a)[:k], sorted(a)[-k:]
    pairs = abs(a[:, None] - a).sum()
    want = {
        "mean_acc": a.sum() / m,
        "std_acc": math.sqrt(((a - a.mean()) ** 2).sum() / m),
        "worst": sum(low) / k,
        "best": sum(high) / k,
        "gap": (sum(high) - sum(low)) / k,
        "gini": pairs / (2 * (m - 1) * a.sum()),
        "avg_diff": pairs / (m * (m - 1)),
        "jain": a.sum() ** 2 / (m * (a**2).sum()),
    }
    for name, value in want.items():
        f = getattr(metrics, name)
        more = {"part": part} if name in ("worst", "best", "gap") else {}
        assert f(a, **more) == pytest.approx(value, abs=1e-7), name
        both = f(np.stack([a, a[::-1]]), **more)  # leading axes; clients have no order
        assert both == pytest.approx(value, abs=1e-7), name
    assert metrics.worst(a) == pytest.approx(np.mean(sorted(a)[: max(1, m // 10)]))
    assert metrics.pooled_acc([0.5, 1], [30, 10]) == 0.625


def record(test, val=None, rounds=None, moment="pre", **logs):
    test = np.asarray(test, float)
    rounds = np.arange(len(test)) if rounds is None else np.asarray(rounds)
    val = test if val is None else np.asarray(val, float)
    views = {(moment, "global", "test"): test, (moment, "global", "val"): val}
    meta = {"method": "toy", "seed": 0, "n": {"test": [30, 10], "val": [10, 10]}}
    return Record(meta, rounds, views, {k: np.asarray(v) for k, v in logs.items()})


def test_rules_pick_the_rounds_they_name():
    test = [[0.2, 0.2], [0.9, 0.5], [0.5, 1.0], [0.6, 0.6]]
    val = [[0.1, 0.1], [0.3, 0.5], [0.2, 0.6], [0.3, np.nan]]
    rec = record(test, val)
    at = {name: rule(rec).tolist() for name, rule in selection.RULES.items()}
    assert at["last"] == [3] and at["last10_mean"] == [3]
    assert at["best_val"] == [1]  # the first of two that are level
    assert at["best_val_gini"] == [0]
    assert at["best_round_test"] == [2]  # means .7, .75
    assert at["best_round_pooled"] == [1]  # rows .8, .625
    by = metrics.mean_acc, selection.best_val
    assert selection.select(rec, *by) == pytest.approx(0.7)
    assert selection.select(rec, *by, split="val") == pytest.approx(0.4)
    mean = selection.select(rec, metrics.worst, lambda *a: [0, -1])
    assert mean == pytest.approx((0.2 + 0.6) / 2)
    with pytest.raises(ValueError, match="toy"):
        selection.picked(lambda *a: [0.5], rec, "global")


def test_with_the_kept_rounds_alone_every_rule_picks_the_same():
    rng = np.random.default_rng(0)
    for every, R in ((1, 100), (5, 100), (2, 8)):
        rec = record(*rng.random((2, 1 + R // every, 2)), rounds=range(0, R + 1, every))
        rec.views["post", "own", "test"] = a = rng.random((R // every, 2))
        less = selection.kept(rec)
        same = np.isin(rec.rounds, less.rounds)
        assert len(rec.rounds) > same.sum() == len(less.rounds)
        assert (less["post", "own", "test"] == a[same[:-1]]).all()
        for name, rule in selection.RULES.items():
            for at in ("global", "pre"), ("own", "post"):
                if at[1] == "pre" or "val" not in name:
                    one, two = (r.rounds[rule(r, *at)].tolist() for r in (rec, less))
                    assert one == two, (name, at, R)
        with pytest.raises(ValueError, match="toy, seed 0.*mine"):
            curves.gini_auc(less)
        with pytest.raises(ValueError, match="toy: only rounds that the rules"):
            selection.picked(lambda rec, *_: [0], less, "global")  # of one's own


def test_the_last_ten_rounds_or_the_last_quarter():
    for every, R in ((1, 100), (5, 100), (1, 40), (1, 20), (2, 8), (1, 2)):
        for moment in ("pre", "post"):
            rounds = np.arange(0, R + 1, every)
            n = len(rounds) - (moment == "post")
            rec = record(np.ones((n, 2)), rounds=rounds, moment=moment)
            last = rounds[n - 1]
            want = [i for i in range(n) if last - rounds[i] < max(1, min(10, R / 4))]
            got = selection.last10_mean(rec, moment=moment).tolist()
            assert got == want and selection.last(rec, moment=moment) == [n - 1], R


def test_areas_and_windows():
    unfair = record(np.tile([1.0, 0.0], (41, 1)), rounds=np.arange(0, 401, 10))
    fair = record(np.tile([0.5, 0.5], (41, 1)), rounds=np.arange(0, 401, 10))
    assert curves.gini_auc(unfair) == pytest.approx(400, rel=1e-6)  # Gini 1
    assert (curves.gini(fair) < curves.gini(unfair)).all()
    assert curves.window(record(np.ones((5, 2)))) == 10
    assert curves.window(record(np.ones((5, 2)), rounds=[0, 5, 10, 15, 20])) == 2
    rise = record(np.repeat(np.linspace(0, 1, 101)[:, None], 2, 1))
    smooth = curves.accuracy(rise)
    assert smooth[50] == pytest.approx(50.5) and len(smooth) == 101  # 46 .. 55
    assert curves.between(rise, np.arange(101.0), 1, 3) == 2
    assert math.isnan(curves.between(rise, np.arange(101.0), 500))


def test_the_round_that_triggers():
    for on, first in (([0, 0, 1, 1], 2), ([0, 0], math.inf)):
        assert curves.trigger_round(record([[1]], on=on)) == first


def test_early_accuracy():
    # evaluated every other round: bridged; after training, one more round is behind
    views = {("pre", "tuned", "test"): np.array([[0.0], [0.4], [0.8]])}
    views["post", "own", "test"] = np.array([[0.2], [0.3], [0.4], [0.5]])
    sparse = Record({"n": {"test": [5]}}, np.array([0, 2, 4]), views)
    assert early(sparse, "pre", "tuned") == pytest.approx(100 * (0.2 + 0.4) / 2)
    dense = Record({"n": {"test": [5]}}, np.arange(5), views)
    assert early(dense, "post", "own") == pytest.approx(100 * (0.2 + 0.3) / 2)
