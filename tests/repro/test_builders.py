"""Builders of tests: each is shown data in which its sentence holds, its contrary holds,
there is no difference worth the margin, the noise is too large, nothing can be tested,
and numbers are missing.
"""

import numpy as np
import pandas as pd
import pytest
from toys_claims import LUCK, OWN, PLACE, WIDE, table

from repro import claims, papers
from repro.claims import NotRun, NotTestable, Values
from repro.metrics import METRICS


def see(test, *tables, closed=None):
    return test(Values.of(pd.concat(tables), closed))


def two(x, **more):
    """FedGA against FedAvg's 80."""
    return table({"FedAvg": 80, "FedGA": x}, **more)


BETTER = claims.better("mean_acc", PLACE, "FedGA", "FedAvg")
CASES = [(83, "yes"), (77, "no"), (80.1, "alike"), (80 + WIDE, "undecided")]


# ---------------------------------------------------------------- two runs
@pytest.mark.parametrize("x, holds", CASES)
def test_better(x, holds):
    f = see(BETTER, two(x))
    assert f.holds == holds and f.metric == "mean_acc" and f.margin == 1
    words = {"yes": "better by 3.00", "no": "worse by 3.00", "alike": "no difference"}
    assert words.get(holds, "would decide it") in f.evidence
    assert (f.needs > 5) == (holds == "undecided")
    assert (f.span.lo > 0) == (holds == "yes") and (f.span.hi < 0) == (holds == "no")


def test_low_is_good_of_some_metrics():
    test = claims.better("best_gini", PLACE, "FedGA", "FedAvg")
    s = table({"FedAvg": 0.3 + OWN / 10, "FedGA": [0.1] * 5}, "best_gini")
    assert see(test, s).holds == "yes"


def test_pairing_sees_through_noise_that_seeds_share():
    assert see(BETTER, two(83, luck=100 * LUCK)).holds == "yes"
    assert see(BETTER, two(83 + 30 * LUCK)).holds == "undecided"


def test_only_common_seeds_count_in_difference_and_means():
    a = table({"FedAvg": 80}, luck=np.zeros(6))
    b = table({"FedGA": [83, 83, 83, 83.1, 83, 83, 0, 0]})
    f = see(BETTER, a, b)
    assert f.span.n == 6 and f.holds == "yes" and "FedGA 83.02" in f.evidence
    with pytest.raises(NotRun, match="no seed in common"):
        see(BETTER, a, b[b.seed > 5])


@pytest.mark.parametrize("n", [1, 2, 4])
def test_fewer_than_five_seeds_never_decide(n):
    f = see(BETTER, two(99, luck=LUCK[:n]))
    assert f.holds == "undecided" and np.isnan(f.span.lo) and "[" not in f.evidence


def test_pilot_seeds_never_decide():
    s = two(83)
    with pytest.raises(NotRun):
        see(BETTER, s.assign(seed=s.seed + 1000), table({"FedFV": 1}))


@pytest.mark.parametrize(
    "least, x, holds",
    [(-1, 79.5, "yes"), (-1, 77, "no"), (-1, 79, "undecided"), (2, 83, "yes")],
)
def test_a_loss_that_is_allowed_and_a_gain_that_is_claimed(least, x, holds):
    f = see(claims.better("mean_acc", PLACE, "FedGA", "FedAvg", least), two(x))
    said = "an allowed loss of 1.00" if least < 0 else "a claimed gain of 2.00"
    assert f.holds == holds and said in f.evidence


@pytest.mark.parametrize(
    "x, holds", [(80.1, "yes"), (83, "no"), (77, "no"), (80 + WIDE, "undecided")]
)
def test_near_and_its_contrary(x, holds):
    near = see(claims.near("mean_acc", PLACE, "FedGA", "FedAvg", 1.0), two(x))
    far = see(claims.differ("mean_acc", PLACE, "FedGA", "FedAvg", 1.0), two(x))
    other = {"yes": "no", "no": "yes"}
    assert near.holds == holds and far.holds == other.get(holds, holds)
    assert near.kind == "equal"


@pytest.mark.parametrize("x, holds", [(80.2, "yes"), (84, "no")])
def test_alike_compares_each_two(x, holds):
    runs = [{"method": m} for m in ("FedAvg", "FedGA", "FedFV")]
    s = table({"FedAvg": 80, "FedGA": 80.1, "FedFV": x})
    assert see(claims.alike("mean_acc", PLACE, runs, 1.0), s).holds == holds


# ---------------------------------------------------------------- what is no test
def test_one_computation_is_no_test_of_two_names():
    s = two([80 + x for x in LUCK])
    with pytest.raises(NotTestable, match="the same computation"):
        see(BETTER, s)
    near = claims.near("mean_acc", PLACE, "FedGA", "FedAvg", 1.0)
    with pytest.raises(NotTestable, match="the same computation"):
        see(near, s)
    # counts may coincide, in a few seeds or in one metric
    few = s[s.seed < 4]
    assert see(BETTER, few).holds == see(near, few).holds == "undecided"
    apart = table({"FedAvg": 80, "FedGA": 70}, "worst10_acc")
    assert see(BETTER, s, apart).holds == "alike"


@pytest.mark.parametrize("bound, what", [(0, "floor"), (100, "ceiling")])
def test_a_floor_and_a_ceiling_are_no_test(bound, what):
    s = table({"FedAvg": [bound] * 5, "FedGA": [bound] * 5})
    other = table({"FedAvg": 80, "FedGA": 70}, "worst10_acc")
    with pytest.raises(NotTestable, match=what):
        see(BETTER, s, other)


def test_below_the_gate_scores_say_nothing():
    with pytest.raises(NotTestable, match="nothing is learnt"):
        see(BETTER, two(83), closed={PLACE: "nothing is learnt"})
    s = table({"FedGA": 0.001}, "trigger_time_seconds", rule="run")
    cheap = claims.level("trigger_time_seconds", PLACE, "FedGA", most=1)
    assert see(cheap, s, closed={PLACE: "nothing is learnt"}).holds  # a time still does


# ---------------------------------------------------------------- one run
@pytest.mark.parametrize(
    "x, least, most",
    [(83, "yes", "no"), (77, "no", "yes"), (80 + WIDE, "undecided", "undecided")],
)
def test_level(x, least, most):
    s = table({"FedGA": x}, luck=OWN)
    at_least = claims.level("mean_acc", PLACE, "FedGA", least=80)
    at_most = claims.level("mean_acc", PLACE, "FedGA", most=80)
    assert (see(at_least, s).holds, see(at_most, s).holds) == (least, most)
    with pytest.raises(NotTestable, match="data that are not here"):
        see(at_least, s.assign(data="stand-in"))
    anywhere = claims.level("mean_acc", PLACE, "FedGA", least=80, anywhere=True)
    assert see(anywhere, s.assign(data="stand-in")).holds == least


def test_level_between():
    test = claims.level("mean_acc", PLACE, "FedGA", least=75, most=85)
    found = [see(test, table({"FedGA": x}, luck=OWN)).holds for x in (80, 90, 70)]
    assert found == ["yes", "no", "no"]


def test_larger_of_two_metrics():
    test = claims.larger("mean_acc", "worst10_acc", PLACE, "FedGA")
    low = table({"FedGA": 50}, "worst10_acc")
    found = [see(test, table({"FedGA": x + OWN + LUCK}), low).holds for x in (80, 30)]
    assert found == ["yes", "no"]


@pytest.mark.parametrize("x, holds", [(0.5, "yes"), (2, "no"), (1.001, "alike")])
def test_smaller_ratio(x, holds):
    test = claims.smaller("gini_auc", PLACE, "FedGA")
    s = table({"FedGA": x * np.exp(OWN / 20)}, "gini_auc", rule="run")
    assert see(test, s).holds == holds
    with pytest.raises(NotTestable, match="logarithm"):
        see(test, s.assign(value=0.0))


def test_exactly():
    test = claims.exactly("mean_acc", 80, 0.5, method="FedGA", dataset=PLACE)
    found = [see(test, table({"FedGA": [x]})) for x in (80.4, 81)]
    assert [f.holds for f in found] == ["yes", "no"] and found[0].p is None


# ---------------------------------------------------------------- against rivals
RIVALS = ("FedAvg", "FedFV", "FedFa")


def field(mine, best=80, **more):
    """FedGA, one strong rival, two weak ones."""
    others = {"FedAvg": best, "FedGA": mine, "FedFV": 60, "FedFa": 60 + OWN + LUCK}
    return table(others, **more)


@pytest.mark.parametrize("x, holds", CASES)
def test_best_against_all_rivals(x, holds):
    f = see(claims.best("mean_acc", PLACE, RIVALS, "FedGA"), field(x))
    assert f.holds == holds and "of 3 rivals FedAvg decides" in f.evidence


def test_rivals_that_were_not_run_keep_it_open_unless_one_refutes():
    test = claims.best("mean_acc", PLACE, (*RIVALS, "FedGini"), "FedGA")
    f = see(test, field(83))
    assert f.holds == "undecided" and f.missing == ("FedGini",)
    assert f.evidence.endswith("not run: FedGini")
    assert see(test, field(77)).holds == "no"
    with pytest.raises(NotRun, match="of the rivals"):
        see(test, table({"FedGA": 80}))
    with pytest.raises(NotRun, match="FedGA mean_acc"):
        see(test, table({"FedAvg": 80}))


def test_many_rivals_make_a_chance_winner_harder():
    """A rival ahead at p near the level refutes alone, and not as one of nine."""
    ahead = 80 + LUCK + np.array([1.0, 1.6, 2.2, 0.8, 1.4])
    names = ["FedProx", "q-FedAvg", "FedFa", "FedMGDA+", "FedFV", "FedGini", "AFL"]
    s = table(
        {"FedGA": 80.0 + LUCK, "FedAvg": ahead} | {m: 60 + 2 * WIDE for m in names}
    )
    one = claims.best("mean_acc", PLACE, ("FedAvg",), "FedGA")
    many = claims.best("mean_acc", PLACE, ("FedAvg", *names), "FedGA")
    f = see(many, s)
    assert see(one, s).holds == "no" and f.holds == "undecided" and f.needs == 10
    assert f.evidence.endswith("too little for one of 8; 10 seeds would decide it")


@pytest.mark.parametrize("low, holds", [(78, "yes"), (60, "no"), (70.05, "alike")])
def test_steadier(low, holds):
    test = claims.steadier("mean_acc", PLACE, ("FedAvg",), "FedGA", "P=1", "P=0.2")
    s = table(
        {"FedAvg|P=1": 80, "FedGA|P=1": 80, "FedAvg|P=0.2": 70, "FedGA|P=0.2": low}
    )
    assert see(test, s).holds == holds


def test_ranked():
    places = ("synthetic_0_0", PLACE, "synthetic_1_1", "cifar01", "office10_alexnet")
    methods = ("FedGA", "FedAvg", "FedFV")
    test = claims.ranked("mean_acc", places, methods, "FedGA")
    many = lambda mine: pd.concat(
        table(dict(zip(methods, (mine, 70, 60))), dataset=p).assign(
            study=papers.main_study("fedga", p)
        )
        for p in places
    )
    assert [see(test, many(x)).holds for x in (80, 50)] == ["undecided", "no"]
    shut = dict.fromkeys(places, "nothing is learnt")
    with pytest.raises(NotTestable, match="nothing is learnt"):
        see(test, many(80), closed=shut)


# ---------------------------------------------------------------- along an axis
def axis(values):
    """FedGA at E=1, E=2, ..."""
    return table({f"FedGA|E={k}": x for k, x in values.items()})


@pytest.mark.parametrize(
    "values, holds",
    [
        ((80, 80.1, 80.2), "yes"),
        ((70, 80, 90), "no"),
        ((80 + WIDE, 80, 80 - WIDE), "undecided"),
    ],
)
def test_flat(values, holds):
    test = claims.flat("mean_acc", PLACE, "FedGA", "E", "synthetic", 1.0)
    assert see(test, axis(dict(zip((1, 5, 10), values)))).holds == holds


def along(v):
    found = v.axis("mean_acc", "FedGA", PLACE, "E", "synthetic")
    return {float(k.split("=")[1]): x for k, x in found.items()}


@pytest.mark.parametrize(
    "values, rises, u",
    [
        ((70, 80, 90), "yes", "no"),
        ((90, 80, 70), "no", "no"),
        ((70, 80, 70), "alike", "yes"),
        ((80, 80, 80.1), "alike", "alike"),
        ((80 + WIDE, 80, 80 - 3 * WIDE), "undecided", "undecided"),
    ],
)
def test_trend_and_inner_value(values, rises, u):
    s = axis(dict(zip((1, 5, 9), values)))
    assert see(claims.rising("mean_acc", along), s).holds == rises
    assert see(claims.inner("mean_acc", along), s).holds == u


# ---------------------------------------------------------------- several sentences
def sentence(holds):
    """A test with this verdict."""
    if holds == "not run":
        return claims.better("mean_acc", PLACE, "FedGA", "AFL")
    if holds == "not testable":
        return claims.level("mean_acc", "cifar01", "FedGA", least=1, study="images")
    return claims.better("mean_acc", PLACE, holds, "FedAvg")


WORLD = (
    table({"FedAvg": 80, "yes": 83, "no": 77, "alike": 80.1 + OWN + LUCK})
    .pipe(lambda t: pd.concat([t, table({"undecided": 80 + WIDE, "FedGA": 80})]))
    .pipe(
        lambda t: pd.concat(
            [t, table({"FedGA": 80}, dataset="cifar01", study="images")]
        )
    )
)


@pytest.mark.parametrize(
    "parts, every, some",
    [
        ("yes yes", "yes", "yes"),
        ("yes no", "no", "yes"),
        ("yes alike", "alike", "yes"),
        ("yes undecided", "undecided", "yes"),
        ("no no", "no", "no"),
        ("no alike", "no", "alike"),
        ("yes not_testable", "not testable", "yes"),
        ("no not_testable", "no", "not testable"),
        ("undecided not_testable", "undecided", "undecided"),
        ("yes not_run", "undecided", "yes"),
        ("no not_run", "no", "undecided"),
        ("not_testable not_testable", "not testable", "not testable"),
        ("not_run not_run", "not run", "not run"),
    ],
)
def test_sentences_put_together(parts, every, some):
    tests = [sentence(p.replace("_", " ")) for p in parts.split()]
    v = Values.of(WORLD, {"cifar01": "nothing is learnt"})
    named = claims.throughout(dict(zip("ab", tests)))
    assert claims.seen(named, v).holds == every
    assert claims.seen(claims.some(*tests), v).holds == some


def test_counts_name_the_cases_that_fail():
    v = Values.of(WORLD)
    tests = {"here": sentence("yes"), "there": sentence("no")}
    f = claims.throughout(tests)(v)
    assert f.evidence == "no in 1 of 2 (there); yes in 1 of 2"


def test_held():
    f = claims.held({"a": (True, "1"), "b": (False, "2 against 3")})
    assert f.holds == "no" and f.evidence == "holds in 1 of 2; b: 2 against 3"
    assert claims.held({"a": (True, "1")}).holds == "yes"


def test_every_metric_of_a_difference_has_a_margin_to_be_alike_in():
    free = [k for k, m in METRICS.items() if m.better and not m.margin]
    assert not [k for k in free if METRICS[k].kind not in ("setting", "exact")]


def test_properties_put_together_are_still_no_matter_of_chance():
    sure = [claims.exactly("mean_acc", 80, method=m, dataset=PLACE) for m in ("a", "b")]
    f = see(claims.every(*sure), table({"a": [80], "b": [80]}))
    assert f.holds == "yes" and f.p is None
