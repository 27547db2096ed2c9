"""Bias metrics: fairlearn, tables worked by hand, limits."""

from functools import partial

import numpy as np
import pytest

from fedlib.measures import bias

GROUP = ["EO", "EO_sum", "DP", "CAL", "CAL_ppv"]
# two groups: TPR 6/10, 9/10; FPR 2/10, 1/20; positive rate 8/20, 10/30; PPV 6/8, 9/10
HAND = np.array([[[8, 2], [4, 6]], [[19, 1], [1, 9]]])
NAMES = [*GROUP, "TPR", "FPR", "positive_rate", "accuracy"]
WORTH = [0.3, 0.45, 0.4 - 1 / 3, 0.15, abs(6 / 8 - 15 / 18), 0.75, 0.1, 0.36, 0.84]
WORTH = dict(zip(NAMES, WORTH))


def data(A, N=600, seed=0):
    """Groups, outcomes and predictions [N], all dependent."""
    r = np.random.default_rng(seed)
    a = r.integers(0, A, N)
    y = (r.random(N) < 0.3 + 0.15 * a).astype(int)
    return a, y, (r.random(N) < 0.2 + 0.4 * y + 0.1 * a * y).astype(int)


def count(a, y, said, A):
    n = np.zeros((A, 2, 2))
    np.add.at(n, (a, y, said), 1)
    return n


def test_a_table_by_hand():
    for name, value in WORTH.items():
        assert getattr(bias, name)(HAND) == pytest.approx(value, rel=1e-12), name


def test_fairlearn_agrees():
    import fairlearn.metrics as fm

    for A, seed in ((2, 0), (2, 1), (3, 2), (4, 3)):
        a, y, said = data(A, seed=seed)
        n, of = count(a, y, said, A), {"sensitive_features": a}
        odds = partial(fm.equalized_odds_difference, y, said, **of)
        rates = {"t": fm.true_positive_rate, "s": fm.selection_rate}
        by = fm.MetricFrame(metrics=rates, y_true=y, y_pred=said, **of)
        # y and yhat change places
        turned = fm.MetricFrame(metrics=rates["t"], y_true=said, y_pred=y, **of)
        gaps = by.by_group["t"] - by.overall["t"], turned.by_group - turned.overall
        want = [odds(agg="worst_case"), 2 * odds(agg="mean")]
        want += [fm.demographic_parity_difference(y, said, **of)]
        want += [float(gap.abs().max()) for gap in gaps]
        got = [getattr(bias, name)(n) for name in GROUP]
        assert got == pytest.approx(want, rel=1e-12)


def test_groups_have_no_order_and_leading_axes_are_free():
    n = np.random.default_rng(2).integers(0, 30, (4, 5, 3, 2, 2))
    for name in GROUP:
        f = getattr(bias, name)
        want = [[f(m) for m in row] for row in n]
        np.testing.assert_allclose(f(n), want, rtol=1e-12)
        np.testing.assert_allclose(f(n[:, :, [2, 0, 1]]), want, rtol=1e-12)


def test_a_cell_without_rows_is_skipped():
    padded = np.concatenate([HAND, np.zeros((1, 2, 2))])
    for name in GROUP:
        assert getattr(bias, name)(padded) == pytest.approx(WORTH[name])
        assert np.isnan(getattr(bias, name)(HAND[:1])), name
    n = np.array([[[8, 2], [0, 0]], [[19, 1], [1, 9]]])
    assert all(np.isnan(getattr(bias, m)(n)) for m in ("EO", "EO_sum", "CAL"))
    assert bias.DP(n) == pytest.approx(10 / 30 - 0.2)
    assert bias.CAL_ppv(n) == pytest.approx(0.75)
    np.testing.assert_allclose(bias.EO(np.stack([HAND, n])), [0.3, np.nan])


def test_pooling_is_counting_the_union():
    """Not the mean of clients' metrics: two fair clients can make an unfair union."""
    a, y, said = data(2)
    n = np.stack([count(a[c::4], y[c::4], said[c::4], 2) for c in range(4)])
    np.testing.assert_array_equal(bias.pooled(n), count(a, y, said, 2))
    np.testing.assert_array_equal(bias.pooled(n[None]), bias.pooled(n)[None])
    yes, no, nobody = [[0, 9], [0, 0]], [[9, 0], [0, 0]], [[0, 1], [0, 0]]
    fair = np.array([[yes, nobody], [[[1, 0], [0, 0]], no]])
    assert list(bias.DP(fair)) == [0, 0]
    assert bias.DP(bias.pooled(fair)) == pytest.approx(0.8)


def test_consistency_is_a_mean_over_rows():
    s = [[[3, 4], [0, 5]], [[1, 2], [0, 0]]]
    np.testing.assert_allclose(bias.CON(s), [[0.75, 0], [0.5, np.nan]])
