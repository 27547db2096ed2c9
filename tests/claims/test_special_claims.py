"""What follows no pattern in the claims of papers: what a sentence is no test of."""

from functools import cache

import numpy as np

from repro import claims, papers
from repro.claims import Values, declared

PLGU = papers.module("plgu", "claims")
MEAN = "acc_mean_pct"
LF, GREP, GHN = "PLGU-LF", "PLGU-GRep", "PLGU-GHN"


SHAKE = np.array([0.002, -0.001, 0, -0.003, 0.002])
named = cache(lambda paper: {c.key: c.test for c in declared(paper)})


def judged(paper, test, runs, kinds=None):
    """The verdict of a test on runs {(study, place, method, metric): {setting: [..]}}."""
    rule = papers.about(paper)["rule"]
    each = lambda x: dict(enumerate([x] * 5 if np.ndim(x) < 1 else x))
    made = {at: {(k, rule): each(x) for k, x in of.items()} for at, of in runs.items()}
    return claims.seen(test, Values(made, kinds or {}, paper))


def seen(paper, key, runs, kinds=None):
    return judged(paper, named(paper)[f"{paper}-{key}"], runs, kinds)


def test_a_regulariser_with_one_answer_has_no_bias():
    """One of the answers at most a tenth as often as FedAvg's, in most seeds."""
    at = "Income-Sex"
    for yes, holds in (
        (0.3, "no"), (0.0, "not testable"), (0.029, "not testable"), (0.04, "no"),
        (0.92, "no"), (0.94, "not testable"), ([0, 0, 0.3, 0.3, 0.3], "no"),
        ([0, 0, 0, 0.3, 0.3], "not testable"),
    ):  # fmt: skip
        how = "target=EO;mu=0.3"
        runs = {
            ("switches", at, "Regular", "EO"): {how: 0.01 + SHAKE},
            ("switches", at, "Regular", "positive_rate"): {how: yes},
            ("census", at, "FedAvg", "positive_rate"): {"": 0.3},
            ("census", at, "FedAvg", "EO"): {"": 0.3 + SHAKE},
            ("census", at, "EquFL", "EO"): {"target=EO": 0.1},
        }
        for key in ("beats-regular-eo-income-sex", "regular-minor-eo-income-sex"):
            assert seen("equfl", key, runs).holds == holds, (key, yes)


def test_a_bias_below_the_margin_cannot_be_lowered_and_digits_need_real_data():
    at = "census", "Income-Sex"
    for base, holds in ((0.009, "not testable"), (0.011, "yes")):
        runs = {(*at, "EquFL", "EO"): {"target=EO": base / 9 + SHAKE / 9}}
        runs[(*at, "FedAvg", "EO")] = {"": base}
        assert seen("equfl", "half-share-eo-income-sex", runs).holds == holds
    runs = {(*at, "EquFL", "EO"): {"target=EO": 0.1 + SHAKE}}
    runs |= {(*at, "FedAvg", "EO"): {"": 0.4}}
    runs |= {("cost", at[1], "EquFL-EO", "seconds_over_fedavg"): {"": 1 + SHAKE}}
    of = {"metric": MEAN, "methods": [LF], "view": "G", "rivals": ["FedAvg"]}
    words = "gain_mean_pct_points_over_best_baseline"
    gains = PLGU.gains_as_printed(words, {"p": [10]}, **of)
    bend = 0.1 * np.arange(5.0) ** 2
    plgu = {("main", "p", LF, MEAN): {"G;C=10": 9 + bend}}
    plgu |= {("main", "p", "FedAvg", MEAN): {"G;C=10": 1 + bend + [0, 0, 0.1, 0, 0]}}
    for kind, holds in (("real", "yes"), ("real, stand-in", "not testable")):
        kinds = {(s, at[1]): kind for s in ("census", "cost")}
        for key in ("share-eo-income-sex", "cost-similar-income-sex"):
            assert seen("equfl", key, runs, kinds).holds == holds, key
        assert judged("plgu", gains, plgu, {("main", "p"): kind}).holds == holds


def test_hypernetworks_far_behind_training_alone_are_not_judged():
    own, at = "personalised model;C=10", ("tables", "digits")
    for points, holds in ((4.9, "no"), (5.1, "not testable")):
        for m, other in ((GHN, "pFedHN"), ("pFedHN", GHN)):
            end = lambda who: own + ";epochs=10" * (who == "pFedHN")
            runs = {(*at, "Local", MEAN): {own: 80}}
            runs |= {(*at, m, MEAN): {end(m): 80 - points, own: 80 - points}}
            runs |= {(*at, other, MEAN): {end(other): 80, own: 80}}
            runs |= {(*at, GHN, "acc_lowest20_pct"): {own: 50 + SHAKE}}
            runs |= {(*at, "pFedHN", "acc_lowest20_pct"): {end("pFedHN"): 70}}
            f = seen("plgu", "ghn-beyond-two-steps-lowest20-digits-c_10", runs)
            assert f.holds == holds and (m in f.reason) == (holds == "not testable")
    # a rival that can be judged refutes, whoever else is under-trained
    runs = {(*at, m, MEAN): {own: x} for m, x in (("Local", 80), ("pFedHN", 50))}
    runs |= {(*at, "Ditto", MEAN): {own: 75}, (*at, GHN, MEAN): {own: 40}}
    best = {"metric": MEAN, "place": "digits", "rivals": ["Ditto", "pFedHN"]}
    test = PLGU.trained(best=best | {"method": GREP, "setting": own})
    for mine, holds in ((70, "no"), (85, "not testable")):
        v = runs | {(*at, GREP, MEAN): {own: mine + SHAKE}}
        assert judged("plgu", test, v).holds == holds
