"""Bias metrics: fairlearn, brute force, tables worked by hand, limits."""

import fairlearn.metrics as fm
import numpy as np
import pytest

from fedlib.measures import bias

GROUP = ["EO", "EO_sum", "DP", "CAL", "CAL_ppv"]
# two groups, worked by hand:   TPR 6/10, 9/10; FPR 2/10, 1/20; positive rate 8/20,
# 10/30; PPV 6/8, 9/10
HAND = np.array([[[8, 2], [4, 6]], [[19, 1], [1, 9]]])
WORTH = {
    "EO": 0.3,
    "EO_sum": 0.3 + 0.15,
    "DP": 0.4 - 1 / 3,
    "CAL": 0.15,
    "CAL_ppv": abs(6 / 8 - 15 / 18),
    "TPR": 0.75,
    "FPR": 0.1,
    "positive_rate": 0.36,
    "accuracy": 0.84,
}


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


@pytest.mark.parametrize("name", WORTH)
def test_a_table_by_hand(name):
    assert getattr(bias, name)(HAND) == pytest.approx(WORTH[name], rel=1e-12)


@pytest.mark.parametrize("A", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_fairlearn_agrees(A, seed):
    a, y, said = data(A, seed=seed)
    n, of = count(a, y, said, A), {"sensitive_features": a}
    assert bias.EO(n) == pytest.approx(
        fm.equalized_odds_difference(y, said, agg="worst_case", **of), rel=1e-12
    )
    assert bias.EO_sum(n) == pytest.approx(
        2 * fm.equalized_odds_difference(y, said, agg="mean", **of), rel=1e-12
    )
    assert bias.DP(n) == pytest.approx(
        fm.demographic_parity_difference(y, said, **of), rel=1e-12
    )
    rate = fm.MetricFrame(
        metrics={
            "tpr": fm.true_positive_rate,
            "fpr": fm.false_positive_rate,
            "rate": fm.selection_rate,
        },
        y_true=y,
        y_pred=said,
        **of,
    )
    assert bias.CAL(n) == pytest.approx(
        (rate.by_group["tpr"] - rate.overall["tpr"]).abs().max(), rel=1e-12
    )
    for ours, theirs in (
        (bias.TPR, "tpr"),
        (bias.FPR, "fpr"),
        (bias.positive_rate, "rate"),
    ):
        assert ours(n) == pytest.approx(rate.overall[theirs], rel=1e-12)
    assert bias.accuracy(n) == pytest.approx((y == said).mean())
    # y and yhat change places
    ppv = fm.MetricFrame(metrics=fm.true_positive_rate, y_true=said, y_pred=y, **of)
    assert bias.CAL_ppv(n) == pytest.approx(
        (ppv.by_group - ppv.overall).abs().max(), rel=1e-12
    )


def test_consistency_is_the_double_loop():
    r = np.random.default_rng(0)
    x, said, k = r.normal(size=(40, 3)), r.integers(0, 2, 40), 5
    total = 0.0
    for i in range(40):
        near = sorted(
            (j for j in range(40) if j != i), key=lambda j: ((x[i] - x[j]) ** 2).sum()
        )[:k]
        total += abs(said[i] - sum(said[j] for j in near) / k)
    d = ((x[:, None] - x) ** 2).sum(-1) + np.diag(np.full(40, np.inf))
    # [40, 2]: one row each
    s = np.stack([abs(said - said[d.argsort(1)[:, :k]].mean(1)), np.ones(40)], -1)
    assert bias.CON(s.sum(0)) == pytest.approx(total / 40, rel=1e-12)
    np.testing.assert_allclose(
        bias.CON([[[3, 4], [0, 5]], [[1, 2], [0, 0]]]), [[0.75, 0], [0.5, np.nan]]
    )


@pytest.mark.parametrize("said", [0, 1])
def test_a_constant_predictor_is_unbiased(said):
    a, y, _ = data(3)
    n = count(a, y, np.full_like(y, said), 3)
    assert (
        bias.EO(n)
        == bias.EO_sum(n)
        == bias.DP(n)
        == bias.CAL(n)
        == bias.CON([0, len(y)])
        == 0
    )
    assert bias.positive_rate(n) == said
    # base rates differ
    assert np.isnan(bias.CAL_ppv(n)) if said == 0 else bias.CAL_ppv(n) > 0


def test_order_of_the_metrics():
    """CAL <= TPR gap <= EO <= EO_sum <= 2 EO for two groups; EO of a maximally unfair
    predictor is 1 and EO_sum 2.
    """
    n = np.random.default_rng(1).integers(1, 30, (500, 2, 2, 2))
    gap = abs(np.diff(n[..., 1, 1] / n[..., 1, :].sum(-1), axis=-1))[..., 0]
    assert (bias.CAL(n) <= gap).all() and (gap <= bias.EO(n)).all()
    assert (bias.EO(n) <= bias.EO_sum(n)).all() and (
        bias.EO_sum(n) <= 2 * bias.EO(n)
    ).all()
    worst = [[[5, 0], [5, 0]], [[0, 5], [0, 5]]]
    assert bias.EO(worst) == 1 and bias.EO_sum(worst) == 2 and bias.DP(worst) == 1


@pytest.mark.parametrize("name", GROUP)
def test_groups_have_no_order_and_leading_axes_are_free(name):
    f, n = (
        getattr(bias, name),
        np.random.default_rng(2).integers(0, 30, (4, 5, 3, 2, 2)),
    )
    want = [[f(m) for m in row] for row in n]
    np.testing.assert_allclose(f(n), want, rtol=1e-12)
    np.testing.assert_allclose(f(n[:, :, [2, 0, 1]]), want, rtol=1e-12)


def test_a_cell_without_rows_is_skipped():
    """An absent third group changes nothing; without positives in one of two groups
    only DP and the PPV can be compared.
    """
    padded = np.concatenate([HAND, np.zeros((1, 2, 2))])
    for name in GROUP:
        assert getattr(bias, name)(padded) == pytest.approx(WORTH[name])
    assert bias.empty(padded) == 2 and bias.empty(HAND) == 0
    n = np.array([[[8, 2], [0, 0]], [[19, 1], [1, 9]]])
    assert (
        all(np.isnan(getattr(bias, m)(n)) for m in ("EO", "EO_sum", "CAL"))
        and bias.empty(n) == 1
    )
    assert bias.DP(n) == pytest.approx(10 / 30 - 0.2) and bias.CAL_ppv(
        n
    ) == pytest.approx(0.75)
    assert all(np.isnan(getattr(bias, m)(HAND[:1])) for m in GROUP)
    np.testing.assert_allclose(bias.EO(np.stack([HAND, n])), [0.3, np.nan])


def test_pooling_is_counting_the_union():
    """Not the mean of clients' metrics: two fair clients can make an unfair union."""
    a, y, said = data(2)
    n = np.stack([count(a[c::4], y[c::4], said[c::4], 2) for c in range(4)])
    np.testing.assert_array_equal(bias.pooled(n), count(a, y, said, 2))
    np.testing.assert_array_equal(bias.pooled(n[None]), bias.pooled(n)[None])
    fair = np.array(
        [[[[0, 9], [0, 0]], [[0, 1], [0, 0]]], [[[1, 0], [0, 0]], [[9, 0], [0, 0]]]]
    )
    assert list(bias.DP(fair)) == [0, 0] and bias.DP(
        bias.pooled(fair)
    ) == pytest.approx(0.8)


def test_improvement_is_a_percentage_of_the_baseline():
    np.testing.assert_allclose(
        bias.improvement([0.2, 0.2, 0.1, 0], [0.1, 0.3, 0.1, 0.1]), [50, -50, 0, np.nan]
    )
    assert bias.improvement(0.0611, 0.0336) == pytest.approx(45.0, abs=0.05)


@pytest.mark.parametrize(
    "n, words",
    [
        ([HAND[0] * 0, HAND[1]], "attribute is constant: 1 of 2 groups"),
        ([HAND[0]], "attribute is constant: 1 of 1 groups"),
        ([HAND[0], HAND[0] * 0, HAND[1]], "group number 1 has no rows"),
        (HAND * [[1], [0]], "no row has the positive outcome y = 1"),
        (HAND * [[0], [1]], "no row has the negative outcome y = 0"),
        (HAND[0], r"counts of shape \[2, 2\]"),
    ],
)
def test_counts_that_leave_nothing_to_compare(n, words):
    with pytest.raises(ValueError, match=words):
        bias.check(n)


def test_check_looks_at_everybody_together_and_knows_names():
    bias.check(HAND)
    # one group per client is enough
    bias.check([[HAND[0], HAND[1] * 0], [HAND[0] * 0, HAND[1]]])
    with pytest.raises(ValueError, match="group 'older' has no rows"):
        bias.check([HAND[0], HAND[1], HAND[0] * 0], ("young", "middle", "older"))


@pytest.mark.parametrize(
    "call",
    [
        lambda: bias.EO(np.ones((2, 3))),
        lambda: bias.pooled(HAND),
        lambda: bias.CON([1, 2, 3]),
    ],
)
def test_arrays_of_the_wrong_shape(call):
    with pytest.raises(ValueError, match="of shape"):
        call()
