"""What claims are tested with: the verdict follows from the differences alone, by
Student's t; what cannot be tested says so; sentences are put together with Holm. Then
how runs are found, declarations read, and what claims.csv says was found."""

import math

import numpy as np
import pandas as pd
import pytest
import toys_claims as hand
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from toys_claims import BETTER, LUCK, OWN, PLACE, see, table, world

from benchmarks import verdicts as errors
from fedlib.measures.verdicts import ALPHA, LEAST, LEVEL, LOOKS
from repro import claims, ledger
from repro.claims import Claim, NotRun, NotTestable, Values, check_claims
from repro.claims.declared import BUILDERS, declared
from repro.claims.declared import test_of as made_of
from repro.claims.report import printed_gain
from repro.ledger import ResultError
from repro.metrics import METRICS

WIDE = np.array([9, -9, 4, -4, 0.0])
OTHER = {"yes": "no", "no": "yes"}
MARGINS = {"mean_acc": (80, 1), "best_gini": (0.4, 0.01), "gini_auc": (20, 1)}
SALT, SD = st.integers(0, 10**6), st.sampled_from([0.02, 0.4, 3])


@settings(max_examples=30)
@given(st.sampled_from([*MARGINS]), st.floats(-4, 4), SD, st.integers(1, 12), SALT)
def test_a_verdict_follows_from_the_differences(name, mean, sd, n, salt):
    base, margin = MARGINS[name]
    rng = np.random.default_rng(salt)
    d = margin * (mean + sd * rng.normal(size=n))
    y = base + margin * rng.normal(size=n) * 9
    wide = 0.05 * y.mean() if name == "gini_auc" else margin  # a twentieth
    s = -1 if METRICS[name].better == "low" else 1
    runs = table({"FedAvg": y, "FedGA": y + s * d}, name)
    f = see(claims.better(name, PLACE, "FedGA", "FedAvg"), runs)
    assert np.isclose(f.margin, wide) and np.isclose(f.span.mean, d.mean())
    assert f.span.n == n and f.holds == hand.verdict(hand.positive(d, wide))
    if n >= LEAST:
        ends = stats.t.interval(1 - hand.LEVEL, n - 1, d.mean(), stats.sem(d))
        assert np.allclose(f.span[1:3], ends)


def test_how_many_seeds_would_decide():
    """The first look, or number beyond, at which the interval is narrow enough."""
    d = np.tile([0.9, -0.7], 4)  # mean 0.1, margin 1: 0.9 is the wider way
    f = claims.positive("mean_acc", pd.Series(d), "x")
    assert f.holds == "undecided" and f.needs in LOOKS
    other = claims.positive("mean_acc", pd.Series(2 * d), "x")
    both = claims.every(lambda v: f, lambda v: other)(None)
    assert f.needs < other.needs == both.needs
    assert np.isnan(claims.positive("mean_acc", pd.Series(OWN + 3), "x").needs)
    # differences without noise are as wide as the margin
    apart = table({"FedAvg": 80, "FedGA": 70}, "worst10_acc")  # not one computation
    for by, holds in ((3, "yes"), (0.6, "yes"), (0.4, "alike"), (-3, "no")):
        assert see(BETTER, world(80 + by + LUCK), apart).holds == holds, by


AT = {"metric": "mean_acc", "place": PLACE}
ONE = {"better": AT | {"a": {"method": "A"}, "b": "B"}}
NEAR = {"near": AT | {"a": "C", "b": "B", "margin": 1}}
LOSS = {"better": AT | {"a": "C", "b": "B", "least": -1}}
BEST = {"best": AT | {"rivals": ["B"], "method": "C"}}
DOWN = {"high": "P=1", "low": "P=0.2"}
FLAT = AT | {"method": "F", "axis": "E", "study": "synthetic", "margin": 2}
# builder: its arguments, and p from the runs a, b, c and from f, runs at E=1, 5, 10
EXAMPLES = {
    "better": (ONE["better"], lambda a, b, c, f: hand.positive(a - b)),
    "near": (AT | {"a": "A", "b": "B", "margin": 2}, lambda a, b, c, f: hand.equal(a - b, 2)),
    "best": (AT | {"rivals": ["B", "C"], "method": "A"}, lambda a, b, c, f: hand.all_of([hand.positive(a - b), hand.positive(a - c)])),
    "steadier": (AT | DOWN | {"rivals": ["S", "T"], "method": "R"}, lambda a, b, c, f: hand.all_of([hand.positive((b - c) - (a - b)), hand.positive((c - a) - (a - b))])),
    "flat": (FLAT, lambda a, b, c, f: hand.all_of([hand.equal(x - f.mean(0), 2) for x in f])),
    "larger": ({"a": "mean_acc", "b": "worst10_acc", "place": PLACE, "method": "A"}, lambda a, b, c, f: hand.positive(a - c)),
    "contrary": (ONE, lambda a, b, c, f: hand.contrary(hand.positive(a - b))),
    "every": ([ONE, NEAR], lambda a, b, c, f: hand.all_of([hand.positive(a - b), hand.equal(c - b, 1)])),
    "some": ([ONE, LOSS], lambda a, b, c, f: hand.any_of([hand.positive(a - b), hand.positive(c - b + 1, 0)])),
    "throughout": ({"here": ONE, "there": BEST}, lambda a, b, c, f: hand.all_of([hand.positive(a - b), hand.positive(c - b)])),
    "level": (AT | {"method": "A", "least": 40}, lambda a, b, c, f: hand.positive(a - 40)),
    "smaller": ({"metric": "gini_auc", "place": PLACE, "method": "A"}, lambda a, b, c, f: hand.positive(-np.log(a / 40), np.log(1.05))),
}  # fmt: skip
UNPAIRED = ("level", "smaller")  # of one run
kinds = st.sampled_from([(2, 0.6), (-2, 0.6), (0, 0.2), (0.5, 2)])


def runs(a, b, c, f):
    """A, B and C; three that lose a - b, b - c, c - a; F along an axis; two metrics."""
    made = {"A": a, "B": b, "C": c} | {f"F|E={k}": x for k, x in zip((1, 5, 10), f)}
    for m, (high, low) in {"R": (a, b), "S": (b, c), "T": (c, a)}.items():
        made |= {f"{m}|P=1": high, f"{m}|P=0.2": low}
    more = [table({"A": c}, "worst10_acc"), table({"A": a / 40}, "gini_auc")]
    return pd.concat([table(made), *more])


@pytest.mark.parametrize("name", sorted({*BUILDERS} - {"ranked", "exactly"}))
@settings(max_examples=7)
@given(SALT, kinds, st.sampled_from([4, 5, 9]))
def test_a_builder_says_what_its_differences_say(name, salt, kind, n):
    """Whatever seeds share changes nothing, and fewer than five never decide."""
    rng = np.random.default_rng(salt)
    (lift, noise), given_, p = kind, *EXAMPLES[name]
    x = 40 + noise * rng.normal(size=(6, n)) + lift * np.eye(6)[[0] * 6].T[:, :1]
    test = made_of({name: given_}, "fedga")
    due = p(*x[:3], x[3:])
    shared = 0 if name in UNPAIRED else 20 * rng.normal(size=n)
    for y in (x, x + shared):
        f = see(test, runs(*y[:3], y[3:]))
        assert f.holds == hand.verdict(due) and np.allclose(f.p, due, 1e-6, 1e-9)
    assert n >= LEAST or f.holds == "undecided"


@settings(max_examples=8)
@given(SALT)
def test_a_u_shape_and_a_slope(salt):
    rng = np.random.default_rng(salt)
    x = 80 + np.array([0, 1, 6, 3])[:, None] + rng.normal(size=(4, 6))
    along = lambda v: dict(zip((1, 2, 3, 6), map(pd.Series, x)))
    inside = [[hand.positive(x[k] - x[e]) for e in (0, 3)] for k in (1, 2)]
    due = hand.any_of(map(hand.all_of, inside))
    f = claims.inner("mean_acc", along)(None)
    assert f.holds == hand.verdict(due) and np.allclose(f.p, due, rtol=1e-6, atol=1e-12)
    low = claims.inner("std_acc", lambda v: {k: -s for k, s in along(v).items()})(None)
    assert np.allclose(low.p, due, rtol=1e-6, atol=1e-12)
    slopes = np.array([stats.linregress((1, 2, 3, 6), y).slope * 5 for y in x.T])
    f = claims.rising("mean_acc", along)(None)
    assert np.allclose(f.p, hand.positive(slopes), rtol=1e-6)


def test_what_is_there_may_be_no_test():
    """Pilots, missing runs, one computation, floors, closed gates, stand-ins."""
    s, shut = world(83), {PLACE: "nothing is learnt"}
    apart = s.assign(seed=s.seed + 9 * (s.method == "FedGA"))
    late = s.assign(seed=s.seed + 1000)
    for bad in ([late, table({"FedFV": 1})], [apart], [s[s.method == "FedGA"]]):
        with pytest.raises(NotRun):
            see(BETTER, *bad)
    assert see(BETTER, s, late.assign(value=0.0)).span.n == 5
    test = claims.best("mean_acc", PLACE, ("FedAvg", "AFL"), "FedGA")
    f = see(test, s)
    assert (f.holds, f.missing) == ("undecided", ("AFL",))
    assert see(test, world(77)).holds == "no"  # a rival refutes it alone
    near = claims.near("mean_acc", PLACE, "FedGA", "FedAvg", 1.0)
    level = claims.level("mean_acc", PLACE, "FedGA", least=60)
    smaller = claims.smaller("gini_auc", PLACE, "FedGA")
    same, other = world(80 + LUCK), table({"FedAvg": 80, "FedGA": 70}, "worst10_acc")
    low, high = (pd.concat([world([x] * 5, [x] * 5), other]) for x in (0, 100))
    ratio = table({"FedGA": [0.5, 0, 1, 1, 1]}, "gini_auc", rule="run")
    cases = [(BETTER, same), (near, same), (BETTER, low), (BETTER, high), (near, low)]
    cases += [(level, world(83, data="stand-in")), (smaller, ratio)]
    for test, runs, closed in (*((*c, None) for c in cases), (BETTER, s, shut)):
        with pytest.raises(NotTestable):
            see(test, runs, closed=closed)
    for test in (BETTER, near):
        assert see(test, same[same.seed < 4]).holds == "undecided"  # may coincide
        assert see(test, same, other).holds in ("alike", "yes")
    size = table({"FedGA": 5, "FedAvg": 9}, "bytes_up", luck=OWN)  # no score
    lighter = claims.better("bytes_up", PLACE, "FedGA", "FedAvg")
    assert see(lighter, size, closed=shut).holds == "yes"
    assert see(BETTER, s, closed={"cifar01": "x"}).holds == "yes"
    between = claims.level("mean_acc", PLACE, "FedGA", least=75, most=85)
    for x, holds in ((80, "yes"), (90, "no"), (70, "no")):
        assert see(between, table({"FedGA": x}, luck=OWN)).holds == holds


D = {"yes": OWN + 3, "no": OWN - 3, "alike": OWN + 0.1, "undecided": OWN + WIDE}


def sentence(holds):
    def test(v):
        if holds in D:
            return claims.positive("mean_acc", pd.Series(D[holds]), holds)
        raise {"not run": NotRun, "not testable": NotTestable}[holds](holds)

    return test


SENTENCES = """
yes, alike                 | alike        | yes
no, alike                  | no           | alike
yes, not testable          | not testable | yes
no, not testable           | no           | not testable
undecided, not testable    | undecided    | undecided
yes, not run               | undecided    | yes
no, not run                | no           | undecided
"""


def test_sentences_put_together():
    for line in SENTENCES.strip().splitlines():
        parts, every, some = (x.strip() for x in line.split("|"))
        tests = [sentence(p) for p in parts.split(", ")]
        both, one = dict(zip("ab", tests)), claims.some(*tests)
        strongest = lambda v, t=both: claims.strongest(v, t)
        found = claims.throughout(both), strongest, one, claims.contrary(one)
        due = [every, every, some, OTHER.get(some, some)]
        assert [claims.seen(t, None).holds for t in found] == due, line


def test_a_study_grows_while_a_sentence_is_open_and_few_err():
    d = np.full((3, 40), 3.0) + np.tile([0.1, -0.1], 20)
    d[1, 5:] = -50  # yes at five seeds, whatever comes later
    d[2] = np.tile([9.0, -9.0], 20)
    found, took = errors.sequential(d, errors.judged)
    assert [*found[0]] == ["yes", "yes", "undecided"] and [*took] == [5, 5, 40]
    found, took = errors.sequential(d[:, None], errors.judged)  # of one study
    assert [*found[:, 0]] == ["yes", "no", "undecided"] and [*took] == [40]
    at = np.arange(5.0)[:, None, None]
    assert np.allclose(errors.slope(at * 2 + 7), 8)  # from end to end
    t = errors.rates(80, shapes=("normal", "counts")).set_index("truth")
    none, two = t.loc["none"], t.loc["two deviations"]
    assert np.allclose(t[["yes", "no", "alike", "undecided"]].sum(axis=1), 1)
    assert np.allclose(none.wrong, none.yes + none.no) and t.wrong.max() < 0.12
    assert np.allclose(two.wrong, two.no + two.alike) and two.yes.min() > 0.9
    assert two.seeds.max() < t.seeds["half a margin"].min()


def claim(test=BETTER, key="fedga-x", place=PLACE, **more):
    return Claim(key, "fedga", "Table 5", "A sentence.", test, place, **more)


def checked(one, *tables, **more):
    """The row of one claim."""
    (row,) = check_claims([one], pd.concat(tables), **more).to_dict("records")
    return row


def test_settings_and_axes_are_found_by_their_parts():
    names = "alpha=5;theta=0.01 alpha=10;theta=0.01 alpha=10;theta=0.01;norm=sum"
    names = [*names.split(), "alpha=5;theta=0.001"]
    v = Values.of(table({f"FedGA|{n}": [i, i] for i, n in enumerate(names)}))
    found = lambda how: v.get("mean_acc", "FedGA", PLACE, how, "synthetic").iloc[0]
    wanted = ("alpha=10", "norm=sum", "theta=0.001", "theta=0.01;alpha=5")
    assert [found(s) for s in wanted] == [1, 2, 3, 0]
    runs = {f"FedGA|E={k}": [k] for k in (10, 5, 1)} | {"FedGA|E=5;q=1": [0]}
    v, at = Values.of(table(runs)), ("mean_acc", "FedGA", PLACE)
    along = lambda k: v.axis(*at, k, "synthetic")  # in the order of numbers
    assert [*along("E")] == ["E=1", "E=5", "E=10"]
    assert [x[0] for x in along("E").values()] == [1, 5, 10]
    for look, what in ((found, "alpha=5"), (found, ""), (found, "x=7"), (along, "q")):
        with pytest.raises(NotRun):
            look(what)


def test_rules_main_studies_pilots_kinds_and_means():
    more = {"paper": "fedas", "study": "grid", "dataset": "CIFAR-10"}
    fedas = table({"FedAS": [1, 1]}, "top1_acc_pct", **more)
    other = fedas.assign(rule="best_round_pooled", value=2.0, data="stand-in")
    late = fedas.assign(seed=1000 + fedas.seed, value=9.0)
    v = Values.of(pd.concat([fedas, other, late]))
    get = lambda **k: v.get("top1_acc_pct", "FedAS", "CIFAR-10", **k)
    assert list(get()) == [1, 1] and list(get(rule="best_round_pooled")) == [2, 2]
    assert v.kind("CIFAR-10") == "stand-in, synthetic" and v.kind("CIFAR-10", "x") == ""
    assert v.asked == {("grid", "CIFAR-10")} and v.watched().asked == set()
    with pytest.raises(ResultError):
        Values.of(pd.concat([fedas, table({"FedGA": [1.0]})]))
    v = Values.of(table({"FedGA": [3, 3]}, "gini_auc", rule="run"))  # of a whole run
    assert list(v.get("gini_auc", "FedGA", PLACE)) == [3, 3]
    with pytest.raises(NotRun):
        v.get("gini_auc", "FedGA", PLACE, rule="last")
    # over domains left out
    runs = {"A|guest=p;q=1": [1, 1], "A|guest=r;q=1": [5, 5], "B|guest=r;q=1": [5, 5]}
    t, how = table(runs), ("guest=*;q=1", "synthetic")
    get = lambda t: Values.of(t).get("mean_acc", "A", PLACE, *how)
    assert list(get(t)) == [3, 3]
    with pytest.raises(NotRun, match="guest=r"):
        get(t[(t.method == "B") | (t.setting == "guest=p;q=1")])


def test_a_row_says_what_was_found():
    row, d = checked(claim(by="ours"), world(83)), 3 + OWN
    said = row["holds"], row["n_seeds"], row["runs"], row["tier"], row["by"]
    assert said == ("yes", 5, f"synthetic:{PLACE}", "small", "ours")
    p = stats.ttest_1samp(d, 0, alternative="greater").pvalue
    lo, hi = stats.ttest_1samp(d, 0).confidence_interval(1 - LEVEL)
    assert np.allclose([row["effect"], row["lo"], row["hi"]], [d.mean(), lo, hi])
    assert row["p"] == pytest.approx(p * ALPHA / LEVEL) == row["q"]
    wide = checked(claim(), world(80 + 3 * LUCK + OWN))
    assert wide["holds"] == "undecided" and wide["needs"] > 5 and wide["p"] <= 1
    assert checked(claim(place="all"), world(83, data="real"))["data"] == "real"
    # false discoveries are counted by paper, author and answer
    made = {f"m{x}": x + OWN / 2 + LUCK for x in (82, 80.4, 80.1, 79.3, 76, 80.9)}
    test = lambda m: claims.better("mean_acc", PLACE, m, "FedAvg")
    some = [claim(test(m), m, by="ours") for m in made] + [claim(test("m80.1"), "z")]
    t = check_claims(some, table({"FedAvg": 80.0 + LUCK} | made)).set_index("key")
    assert [*t.holds] == "yes yes alike no no yes alike".split()
    assert [*t["size"]] == ["beyond", "small", "", "small", "beyond", "", ""]
    every = [hand.positive(x - 80 - LUCK) for x in made.values()]
    every = np.array([[yes, no, max(near)] for yes, no, *near in every]) * ALPHA / LEVEL
    at, q = ([*range(6)], [0, 0, 2, 1, 1, 0]), every.clip(max=1)
    q = stats.false_discovery_control(q, axis=0)
    assert np.allclose(t.p[:6], every[at]) and np.allclose(t.q[:6], q[at])
    assert t.q["z"] == t.p["z"] == t.p["m80.1"]


def test_the_gain_that_the_paper_prints():
    of = {"paper": "fedga", "artefact": "Table 5", "dataset": PLACE, "setting": ""}
    printed = pd.DataFrame({"method": ["FedAvg", "FedGA", "FedFV", "AFL"]})
    printed = printed.assign(**of, metric="mean_acc")
    for gain, said in ((3.1, "contained"), (9, "excluded"), (0.5, "exceeded")):
        t = printed.assign(reported=["70", str(70 + gain), "74", ""])
        row = checked(claim(), world(83), reported=t)
        assert row["gain"] == said and row["printed"] == pytest.approx(gain)
    for one, data in ((claim(by="ours"), "synthetic"), (claim(), "stand-in")):
        assert math.isnan(checked(one, world(83, data=data), reported=t)["printed"])
    t = printed.assign(reported=["70", "75", "74", ""])
    gains = {("FedAvg FedFV", 0): 1, ("FedAvg", 2): 3, ("FedAvg AFL", 0): None}
    for (rivals, least), due in gains.items():
        others = [{"method": m} for m in rivals.split()]
        asked = "mean_acc", PLACE, {"method": "FedGA"}, others, least
        assert printed_gain(asked, claim(), t) == due


def test_the_best_complete_tier_decides_and_a_gate_closes_one():
    c = claim(claims.best("mean_acc", PLACE, ("FedAvg", "FedFV"), "FedGA"))
    whole = table({"FedAvg": 80, "FedGA": 83, "FedFV": 70})
    bad = table({"FedAvg": 80, "FedGA": 75, "FedFV": 70})
    for tables, holds, tier in (
        ([whole, bad.assign(tier="paper")], "no", "paper"),
        ([whole, world(75).assign(tier="paper")], "yes", "small"),
        ([whole.assign(tier="tiny")], "undecided", "tiny"),
        ([table({"FedFV": 1})], "not run", ""),
        ([pd.DataFrame(columns=ledger.SEEDS)], "not run", ""),
    ):
        row = checked(c, *tables)
        assert (row["holds"], row["tier"]) == (holds, tier)
    # a gate closes its data set at its tier
    closed = {("fedga", "paper", PLACE): "x", ("fedas", "small", PLACE): "x"}
    assert checked(claim(), world(83), closed=closed)["holds"] == "yes"
    closed["fedga", "small", PLACE] = "x"
    assert checked(claim(), world(83), closed=closed)["holds"] == "not testable"


# The claims of papers, as they are read, are compared with claims.csv.
TEST = {"metric": "mean_acc", "place": PLACE, "a": "FedGA", "b": "{m}"}
WHO = [{"m": "FedAvg", "section": 7}, {"m": "FedFV"}]
ENTRY = {"key": "over-{m}", "for": {"who": WHO}}
ENTRY |= {"artefact": "T", "text": "{m} loses.", "test": {"better": TEST}, "section": 5}
REFUSED = [({"txt": "x"}, "txt"), ({"key": "twice"}, "twice")]
REFUSED += [({"text": "{who} wins."}, "who"), ({"test": {"beter": {}}}, "beter")]


def test_declarations(tmp_path):
    path = tmp_path / "fedga/claims.yaml"
    path.parent.mkdir()

    def read(**more):
        path.write_text(yaml.safe_dump({"claims": [ENTRY | more]}))
        return declared("fedga", tmp_path)

    one, two = read()
    assert [one.key, two.key] == ["fedga-over-fedavg", "fedga-over-fedfv"]
    assert (two.text, one.section) == ("FedFV loses.", "5")  # not the case's
    assert one.test(Values.of(world(83))).holds == "yes"
    for change, word in REFUSED:
        with pytest.raises(ResultError, match=word):
            read(**change)
