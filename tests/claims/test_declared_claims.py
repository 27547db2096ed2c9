"""Every declared claim says what its declaration says: the runs that it is about are
made up, and its p values, verdict and runs are those of a second, plain writing.
"""

from collections import Counter

import numpy as np
import pytest
import scipy.stats
from scipy.special import stdtrit
from toys_sentences import KINDS, World, entries, judged, light_ttest, verdict

from repro import papers
from repro.claims import declared
from repro.claims.printed import printed_gain
from repro.claims.values import NotRun
from repro.ledger import read_reported

UNSPOKEN = {"ranked", "python"}  # have tests of their own

AGAINST_ITSELF = {"equfl-best-dp-mnist"}  # the paper's table denies its sentence


def words(test):
    """All builders and functions that a test is made of."""
    if isinstance(test, dict):
        return {*test} | {w for v in test.values() for w in words(v)}
    return {w for v in test for w in words(v)} if isinstance(test, list) else set()


def same_words(c, case):
    """Is a claim spelled like its entry?"""
    usual = {"place": "none", "study": "", "by": "paper", "section": "", "quote": ""}
    said = usual | {"printed": False} | case
    return all(str(getattr(c, k)) == str(said[k]) for k in (*usual, "text", "artefact"))


def wrong(c, case, kind):
    """What is wrong with a claim on made-up runs of a kind -> words, verdict, gain."""
    w = World(c.paper, kind)
    p = judged(w, case["test"])
    v, due = w.values(), verdict(p)
    try:
        f = c.test(v)
    except NotRun as e:
        return f"asks for {e}", due, None
    if f.holds != due:
        return f"says {f.holds}, not {due}", due, None
    if f.p is not None and not np.allclose(f.p, p, rtol=1e-6, atol=1e-12):
        return f"has p {f.p}, not {p}", due, None
    return "" if v.asked == w.asked else f"asked {v.asked}", due, f.gain


def test_the_light_t_test_is_scipys():
    d = np.random.default_rng(0).normal(0.3, 1, 9)
    for least in (0, 0.5, -1):
        right = scipy.stats.ttest_1samp(d, least, alternative="greater")
        light = light_ttest(d, least)
        assert np.isclose(light.pvalue, right.pvalue, 1e-12)
        assert np.allclose(
            light.confidence_interval(0.9),
            scipy.stats.ttest_1samp(d, 0).confidence_interval(0.9),
        )


@pytest.mark.parametrize("paper", papers.found())
def test_claims_say_what_is_declared(paper, monkeypatch):
    monkeypatch.setattr(scipy.stats, "ttest_1samp", light_ttest)
    monkeypatch.setattr(scipy.stats.t, "isf", lambda p, df: -stdtrit(df, p))
    reported, found, cases, bad = read_reported(), Counter(), Counter(), {}
    claims, said = declared(paper), [*entries(paper)]
    assert len(claims) == len(said) == len({c.key for c in claims})
    for c, case in zip(claims, said):
        assert same_words(c, case), c.key
        if case.get("printed") or words(case["test"]) & UNSPOKEN:
            continue
        if cases[c.family] == len(KINDS):
            continue  # one case of a family for each kind of runs
        kind = [*KINDS][cases[c.family]]
        cases[c.family] += 1
        told, due, gain = wrong(c, case, kind)
        if told:
            bad[c.key] = f"{kind}: {told}"
        found[due] += 1
        g = printed_gain(gain, c, reported)
        if g is not None and g < 0 and c.key not in AGAINST_ITSELF:
            bad[c.key] = f"the paper prints a gain of {g}"
    assert not bad, "\n".join(f"{k}: {v}" for k, v in bad.items())
    assert set(found) == {"yes", "no", "alike", "undecided"}
