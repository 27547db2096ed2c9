"""Verdicts of differences: against other libraries, by hand, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from fedlib.measures import verdicts
from fedlib.measures.verdicts import ALPHA, LEAST, LEVEL, LOOKS, P
from repro.claims import errors

RNG = np.random.default_rng(1)


def sample(n, mean, sd):
    """n numbers with exactly this mean and standard deviation."""
    x = stats.norm.ppf((np.arange(n) + 0.5) / n)
    return mean + sd * (x - x.mean()) / x.std(ddof=1)


# ---------------------------------------------------------------- one difference
def test_tests_are_those_of_other_libraries():
    from statsmodels.stats.weightstats import ttost_paired

    a, b = RNG.normal(70, 3, 12), RNG.normal(69, 3, 12)
    p = verdicts.single(a - b, 1.0)
    assert p.yes == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert p.no == pytest.approx(stats.ttest_rel(a, b, alternative="less").pvalue)
    assert p.alike == pytest.approx(ttost_paired(a, b, -1.0, 1.0)[0])
    assert verdicts.within(a - b, 1.0) == pytest.approx(p.alike)
    ends = stats.ttest_rel(a, b).confidence_interval(1 - LEVEL)
    assert verdicts.span(a - b)[1:3] == pytest.approx(tuple(ends))


@pytest.mark.parametrize("n", LOOKS)
@pytest.mark.parametrize("mean", [-2, -0.8, -0.2, 0, 0.2, 0.8, 2])
@pytest.mark.parametrize("sd", [0.1, 0.7, 4])
def test_a_verdict_is_what_its_interval_says(n, mean, sd):
    d = sample(n, mean, sd)
    _, lo, hi, _ = verdicts.span(d)
    inside = -1 < lo and hi < 1
    said = "yes" if lo > 0 else "no" if hi < 0 else "alike" if inside else "undecided"
    assert verdicts.verdict(verdicts.single(d, 1.0)) == said


def test_fewer_than_five_seeds_never_decide():
    few = np.full(LEAST - 1, 9.0)
    assert verdicts.verdict(verdicts.single(few, 1.0)) == "undecided"
    assert np.isnan(verdicts.span(few).lo) and verdicts.span(few).mean == 9


@pytest.mark.parametrize(
    "value, said", [(0, "alike"), (0.4, "alike"), (0.6, "yes"), (-0.6, "no")]
)
def test_differences_that_do_not_vary_have_a_width(value, said):
    d = np.full(5, float(value))
    assert verdicts.verdict(verdicts.single(d, 1.0, 1.0)) == said
    s = verdicts.span(d, 1.0)
    assert (s.lo, s.hi) == pytest.approx((value - 0.5, value + 0.5))


def test_without_a_margin_nothing_is_alike():
    assert verdicts.verdict(verdicts.single(sample(40, 0, 0.01), 0)) == "undecided"


@pytest.mark.parametrize("bad", [[], [1.0, np.nan, 2, 3, 4]])
def test_values_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="finite"):
        verdicts.span(bad)


# ---------------------------------------------------------------- several of them
def test_holm_is_that_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    for k in (1, 2, 9):
        p = RNG.random(k) ** 3
        assert verdicts.holm(p) == pytest.approx(
            multipletests(p, method="holm")[1].min()
        )


def test_benjamini_and_hochberg_are_those_of_statsmodels():
    from statsmodels.stats.multitest import multipletests

    p = RNG.random(30) ** 2
    assert verdicts.survivors(p) == pytest.approx(multipletests(p, method="fdr_bh")[1])
    assert len(verdicts.survivors([])) == 0


PARTS = {  # one difference of each verdict, margin 1
    "yes": sample(10, 3, 1),
    "no": sample(10, -3, 1),
    "alike": sample(10, 0, 0.3),
    "undecided": sample(10, 0.5, 3),
}


@pytest.mark.parametrize(
    "parts, every, some",
    [
        ("yes yes", "yes", "yes"),
        ("yes no", "no", "yes"),
        ("yes alike", "alike", "yes"),
        ("yes undecided", "undecided", "yes"),
        ("no undecided", "no", "undecided"),
        ("no no", "no", "no"),
        ("alike alike", "alike", "alike"),
        ("no alike", "no", "alike"),
        ("alike undecided", "undecided", "undecided"),
    ],
)
def test_sentences_put_together(parts, every, some):
    found = [verdicts.single(PARTS[p], 1.0) for p in parts.split()]
    assert verdicts.verdict(verdicts.all_of(found)) == every
    assert verdicts.verdict(verdicts.any_of(found)) == some


def test_what_a_sentence_denies():
    p = P(0.1, 0.2, 0.3, 0.4)
    assert verdicts.contrary(p) == P(0.2, 0.1, 0.4, 0.3)
    assert verdicts.contrary(verdicts.contrary(p)) == p


def test_more_cases_need_more_to_refute():
    p = verdicts.single(sample(5, -1, 0.5), 1.0)
    assert p.no < LEVEL / 2 < verdicts.all_of([p, *[P(0.5, 0.5)] * 9]).no


# ---------------------------------------------------------------- seeds and looks
@pytest.mark.parametrize("mean, sd", [(1.0, 1.0), (0.3, 0.5), (0, 1), (-0.7, 2)])
def test_so_many_seeds_are_needed(mean, sd):
    n = verdicts.needed(sample(5, mean, sd), 1.0)
    decided = lambda k: verdicts.verdict(verdicts.single(sample(k, mean, sd), 1.0))
    assert decided(n) != "undecided"
    before = [k for k in LOOKS if k < n][-1:] or [LEAST - 1]
    assert all(decided(k) == "undecided" for k in before)


def test_seeds_that_cannot_be_told():
    assert np.isnan(verdicts.needed([1.0], 1.0))
    assert verdicts.needed(sample(5, 0, 1), 0) == np.inf


def test_the_level_is_the_one_that_makes_all_looks_err_in_alpha():
    d = np.random.default_rng(2).standard_normal((100_000, LOOKS[-1]))
    p = [stats.ttest_1samp(d[:, :n], 0, axis=1).pvalue for n in LOOKS]
    assert np.quantile(np.min(p, axis=0), ALPHA) == pytest.approx(LEVEL, abs=6e-4)
    assert verdicts.over_looks(LEVEL / 2) == pytest.approx(ALPHA / 2)


# ---------------------------------------------------------------- proof by simulation
HONEST = ("normal", "counts", "skewed")
TRIALS = 2000
LUCK = 3 * (ALPHA * (1 - ALPHA) / TRIALS) ** 0.5  # three standard errors of a share


def test_the_declared_five_percent_hold():
    table = errors.rates(TRIALS, seed=3, shapes=HONEST)
    assert len(table) == 4 * len(HONEST) * len(errors.TRUTHS)
    bad = table[table.wrong > ALPHA + LUCK]
    assert bad.empty, bad.to_string()
    shares = table[["yes", "no", "alike", "undecided"]].sum(axis=1)
    assert shares.to_numpy() == pytest.approx(1.0)
    two = table[table.truth == "two deviations"]
    assert (two.yes > 0.95).all() and (two.seeds < 12).all()  # and they do decide


def test_looking_four_times_at_five_percent_would_not_hold(monkeypatch):
    monkeypatch.setattr(verdicts, "LEVEL", ALPHA)
    table = errors.rates(TRIALS, seed=3, shapes=("normal",))
    none = table[(table.truth == "none") & (table.verdict_of == "better")]
    assert none.wrong.item() > ALPHA + 2 * LUCK


def test_a_strong_skew_breaks_them_and_the_table_says_so():
    table = errors.rates(TRIALS, seed=3, shapes=("very skewed",))
    assert table[table.truth == "none"].wrong.max() > ALPHA + LUCK
