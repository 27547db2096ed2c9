"""Intervals, ranks, densities, verdicts: other libraries, published tables, by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedlib.measures import verdicts
from fedlib.measures.statistics import average_ranks, interval, kde, paired, smooth
from fedlib.measures.verdicts import ALPHA, LEAST, LEVEL, LOOKS, P
from repro.claims.findings import needed

RNG = np.random.default_rng(1)
X = [2.0, 4.0, 9.0]


def test_intervals():
    i = interval(X)
    assert i.mean == 5 and i.n == 3
    assert (i.lo, i.hi) == pytest.approx(stats.t.interval(0.95, 2, 5, stats.sem(X)))
    assert i.half == pytest.approx(i.hi - 5)
    one = interval([7.0])
    assert one.mean == 7 and math.isnan(one.lo) and math.isnan(one.hi)


def test_paired_matches_by_seed():
    a, b = pd.Series({0: 1.0, 1: 5.0, 2: 4.0}), pd.Series({2: 3.0, 0: 2.0, 1: 1.0})
    d = paired(a, b)
    assert d == interval([-1.0, 4.0, 1.0]) == paired([1, 5, 4], [2, 1, 3])


def test_what_cannot_be_told_is_refused():
    gaps = pd.DataFrame({"a": [1, 2], "b": [2, math.nan], "c": [3, 3]}, ["s", "t"])
    twice = pd.Series([1.0, 2.0], [0, 0])
    calls = {"finite": lambda: interval([1, math.nan])}
    calls["'t', 'b'"] = lambda: average_ranks(gaps)
    calls["0, 1"] = lambda: paired(pd.Series({0: 1.0}), pd.Series({1: 1.0}))
    calls["seeds 0"] = lambda: paired(twice, pd.Series([1.0, 2.0], [0, 1]))
    for word, call in calls.items():
        with pytest.raises(ValueError, match=word):
            call()


def test_critical_differences_of_the_published_table():
    """q of Demsar (2006), Table 5(a)."""
    for m, q in ((3, 2.343), (4, 2.569), (10, 3.164)):
        table = np.random.default_rng(m).normal(size=(14, m))
        want = q * math.sqrt(m * (m + 1) / 84)
        assert average_ranks(table).cd == pytest.approx(want, rel=5e-4)


def test_ranks_direction_ties_and_tests():
    table = pd.DataFrame(dict(good=[9, 8, 9, 9], tie=[5, 8, 5, 5], bad=[1, 1, 1, 2]))
    r = average_ranks(table)
    assert r.ranks.to_dict() == {"good": 1.125, "tie": 1.875, "bad": 3.0} and r.n == 4
    assert r.p == pytest.approx(stats.friedmanchisquare(*table.T.to_numpy()).pvalue)
    low = average_ranks(table, higher_is_better=False).ranks.to_dict()
    assert low == {"bad": 1.0, "tie": 2.125, "good": 2.875}
    q = (3.0 - 1.125) / math.sqrt(3 * 4 / 24) * math.sqrt(2)
    want = stats.studentized_range.sf(q, 3, np.inf)
    assert r.pairs.loc["good", "bad"] == pytest.approx(want, rel=1e-3)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30), st.integers(1, 12))
def test_smooth_is_a_centred_mean_that_gets_shorter_at_the_ends(v, window):
    ends = [(max(0, i - (window - 1) // 2), i + window // 2 + 1) for i in range(len(v))]
    want = [np.mean(v[a:b]) for a, b in ends]
    assert np.allclose(smooth(v, window), want, atol=1e-6)


def test_densities_are_mirrored_kernels():
    grid = np.linspace(0, 100, 2001)
    for values in ([99.0, 100, 100, 97], [0.0, 0, 50, 100], np.full(20, 100.0)):
        mass = np.trapezoid(kde(values, grid), grid)
        assert mass == pytest.approx(1, abs=0.01)
    x = np.array([40.0, 50, 52, 70])  # far from the bounds: scipy's, Silverman's width
    width = 0.9 * min(x.std(), stats.iqr(x) / 1.349) * len(x) ** -0.2
    want = stats.gaussian_kde(x, width / x.std(ddof=1))(grid)
    assert np.allclose(kde(x, grid), want, atol=1e-6)


def sample(n, mean, sd):
    """n numbers with exactly this mean and standard deviation."""
    x = stats.norm.ppf((np.arange(n) + 0.5) / n)
    return mean + sd * (x - x.mean()) / x.std(ddof=1)


def test_tests_are_those_of_other_libraries():
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.weightstats import ttost_paired

    a, b = RNG.normal(70, 3, 12), RNG.normal(69, 3, 12)
    p = verdicts.single(a - b, 1.0)
    assert p.yes == pytest.approx(stats.ttest_rel(a, b, alternative="greater").pvalue)
    assert p.no == pytest.approx(stats.ttest_rel(a, b, alternative="less").pvalue)
    assert p.alike == pytest.approx(ttost_paired(a, b, -1.0, 1.0)[0])
    ends = stats.ttest_rel(a, b).confidence_interval(1 - LEVEL)
    assert verdicts.span(a - b)[1:3] == pytest.approx(tuple(ends))
    for k in (1, 2, 9):
        q = RNG.random(k) ** 3
        want = multipletests(q, method="holm")[1].min()
        assert verdicts.holm(q) == pytest.approx(want)
    q = RNG.random(30) ** 2
    assert verdicts.survivors(q) == pytest.approx(multipletests(q, method="fdr_bh")[1])


def test_too_few_constant_or_without_a_margin():
    few = np.full(LEAST - 1, 9.0)
    assert verdicts.verdict(verdicts.single(few, 1.0)) == "undecided"
    assert np.isnan(verdicts.span(few).lo) and verdicts.span(few).mean == 9
    for value, said in ((0, "alike"), (0.4, "alike"), (0.6, "yes"), (-0.6, "no")):
        d = np.full(5, float(value))  # counts of rows coincide: width 1
        assert verdicts.verdict(verdicts.single(d, 1.0, 1.0)) == said
        s = verdicts.span(d, 1.0)
        assert (s.lo, s.hi) == pytest.approx((value - 0.5, value + 0.5))
    assert verdicts.verdict(verdicts.single(sample(40, 0, 0.01), 0)) == "undecided"


def test_sentences_put_together():
    how = {"yes": (3, 1), "no": (-3, 1), "alike": (0, 0.3), "undecided": (0.5, 3)}
    parts = {k: sample(10, *v) for k, v in how.items()}  # of each verdict, margin 1
    table = """yes yes: yes yes; yes no: no yes; yes alike: alike yes;
        yes undecided: undecided yes; no undecided: no undecided; no no: no no;
        alike alike: alike alike; no alike: no alike;
        alike undecided: undecided undecided"""
    for line in table.split(";"):
        names, said = (words.split() for words in line.split(":"))
        found = [verdicts.single(parts[n], 1.0) for n in names]
        got = [verdicts.verdict(f(found)) for f in (verdicts.all_of, verdicts.any_of)]
        assert got == said, line
    assert verdicts.contrary(P(0.1, 0.2, 0.3, 0.4)) == P(0.2, 0.1, 0.4, 0.3)
    p = verdicts.single(sample(5, -1, 0.5), 1.0)  # more cases need more to refute
    assert p.no < LEVEL / 2 < verdicts.all_of([p, *[P(0.5, 0.5)] * 9]).no


def test_so_many_seeds_are_needed():
    for mean, sd in ((1.0, 1.0), (0.3, 0.5), (0, 1), (-0.7, 2)):
        n = needed(sample(5, mean, sd), 1.0)
        p = lambda k, m=mean, s=sd: verdicts.single(sample(k, m, s), 1.0)
        assert verdicts.verdict(p(n)) != "undecided"
        before = [k for k in LOOKS if k < n][-1:] or [LEAST - 1]
        assert all(verdicts.verdict(p(k)) == "undecided" for k in before)
    assert needed(sample(40, 1, 1), 1.0) == 41  # more than are there
    assert np.isnan(needed([1.0], 1.0))
    assert needed(sample(5, 0, 1), 0) == np.inf


def test_all_looks_together_err_in_alpha():
    """Under no difference: at LEVEL in ALPHA, and at ALPHA each time in much more."""
    d = np.random.default_rng(2).standard_normal((20_000, LOOKS[-1]))
    p = np.min([stats.ttest_1samp(d[:, :n], 0, axis=1).pvalue for n in LOOKS], axis=0)
    assert np.mean(p < LEVEL) == pytest.approx(ALPHA, abs=3 * 0.0016)
    assert np.mean(p < ALPHA) > 2 * ALPHA
    assert verdicts.over_looks(LEVEL / 2) == pytest.approx(ALPHA / 2)
