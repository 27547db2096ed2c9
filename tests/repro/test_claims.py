"""Claims and deviations: each test is shown data in which the claim holds, fails,
cannot be decided, and is missing.
"""

import shutil

import pandas as pd
import pytest
import yaml
from where import ROOT

from fedlib.measures.statistics import paired
from repro import artefacts, claims, ledger, papers
from repro.claims import NotRun, Values, check_claims
from repro.ledger import METRICS, ResultError

FEDGA = papers.module("fedga", "claims")
CLAIMS = FEDGA.CLAIMS
REPORTED = ledger.read_reported()
NOISE = (-0.2, 0.1, 0.0, 0.3, -0.2)  # what seeds share: pairing removes it
PLACE = "synthetic_05_05"


def seeds(values, metric="best_gini", dataset=PLACE, noise=NOISE, **more):
    """Long rows: {method: value} plus common noise per seed;
    a value may be a list with its own noise.
    """
    base = {
        "paper": "fedga",
        "study": papers.main_study("fedga", dataset),
        "dataset": dataset,
        "setting": "",
        "metric": metric,
        "rule": "best_val",
        "data": "synthetic",
        "tier": "small",
    } | more
    rows = []
    for who, v in values.items():
        method, _, setting = who.partition("|")
        for s, x in enumerate(v if isinstance(v, list) else [v + n for n in noise]):
            rows.append(
                base
                | {
                    "method": method,
                    "seed": s,
                    "value": x,
                    "setting": setting or base["setting"],
                }
            )
    return pd.DataFrame(rows)


def see(test, *tables):
    return test(Values.of(pd.concat(tables)))


# ------------------------------------------------------------------ comparing

GOOD = {"FedGA": 0.1} | dict.fromkeys(FEDGA.RIVALS, 0.2)
WIDE = {"FedGA": [0.1, 0.3, 0.2], "FedFV": [0.2, 0.1, 0.4]}


def test_best_against_all_rivals():
    test = FEDGA.best("best_gini", PLACE)
    f = see(test, seeds(GOOD))
    assert (
        f.holds == "yes"
        and f.missing == ()
        and "strongest of 7 rivals" in f.evidence
        and "5 seeds" in f.evidence
    )
    f = see(test, seeds(GOOD | {"FedFV": 0.05}))
    assert (
        f.holds == "no" and "FedFV" in f.evidence and "better by -0.0500" in f.evidence
    )
    # there high is good
    assert see(FEDGA.best("mean_acc", PLACE), seeds(GOOD, "mean_acc")).holds == "no"
    f = see(test, seeds({m: GOOD[m] for m in ("FedGA", "FedAvg")}))
    assert (
        f.holds == "undecided"
        and "FedFV" in f.missing
        and "not run: FedProx" in f.evidence
    )
    # one rival can refute
    assert see(test, seeds({"FedGA": 0.3, "FedAvg": 0.1})).holds == "no"
    assert (
        see(FEDGA.best("best_gini", PLACE, ("FedFV",)), seeds(WIDE)).holds
        == "undecided"
    )
    assert see(test, seeds(GOOD, noise=(0,))).holds == "undecided"  # one seed
    with pytest.raises(NotRun, match="of the rivals"):
        see(test, seeds({"FedGA": 0.1}))
    with pytest.raises(NotRun, match="synthetic synthetic_05_05 FedGA best_gini"):
        see(test, seeds({"FedAvg": 0.1}))


def test_pairing_sees_through_noise_that_seeds_share():
    far = tuple(10 * n for n in NOISE)
    assert see(FEDGA.best("best_gini", PLACE), seeds(GOOD, noise=far)).holds == "yes"
    own = GOOD | {"FedGA": [0.1 - n for n in far]}
    assert (
        see(FEDGA.best("best_gini", PLACE), seeds(own, noise=far)).holds == "undecided"
    )


def test_seeds_in_common():
    v = Values.of(
        pd.concat([seeds({"FedGA": [1, 2, 3, 4]}), seeds({"FedAvg": [2, 3, 4.5]})])
    )
    g = claims.gain(v, "best_gini", {"method": "FedGA"}, {"method": "FedAvg"}, PLACE)
    assert g.n == 3 and g.mean == pytest.approx(3.5 / 3)
    with pytest.raises(NotRun, match="no seed in common"):
        claims.common(pd.Series({0: 1.0}), pd.Series({1: 1.0}))


@pytest.mark.parametrize("x, holds", [(80.5, "yes"), (79.5, "yes"), (78.5, "no")])
def test_better_by_more_than_a_margin(x, holds):
    test = claims.better(
        "mean_acc", PLACE, {"method": "FedGA"}, {"method": "FedAvg"}, 1.0
    )
    f = see(test, seeds({"FedAvg": 80.0, "FedGA": x}, "mean_acc"))
    assert f.holds == holds and "allowed loss 1" in f.evidence


@pytest.mark.parametrize(
    "x, holds",
    [(80.4, "yes"), (79.4, "yes"), (82, "no"), ([79.0, 82.0, 80.0], "undecided")],
)
def test_near(x, holds):
    values = {
        "FedAvg": [80.0, 80.0, 80.0],
        "FedProx": x if isinstance(x, list) else [x] * 3,
    }
    assert (
        see(
            claims.near("mean_acc", PLACE, "FedProx", "FedAvg", 1.0),
            seeds(values, "mean_acc"),
        ).holds
        == holds
    )


def test_level():
    least, most = (
        claims.level("worst10_acc", PLACE, "FedAvg", **k)
        for k in ({"least": 80}, {"most": 5.0})
    )
    for value, a, b in (
        ([0.0, 1.0, 0.5], "no", "yes"),
        ([90.0, 91.0, 92.0], "yes", "no"),
        ([0.0, 9.0, 4.0], "no", "undecided"),
    ):
        s = seeds({"FedAvg": value}, "worst10_acc")
        assert (see(least, s).holds, see(most, s).holds) == (a, b)
    f = see(least, seeds({"FedAvg": 90}, "worst10_acc", data="stand-in"))
    assert f.holds == "undecided" and "stand-in" in f.evidence


def test_exactly():
    test = claims.exactly("weight_bound_violations", 0, method="FedGA")
    made = {"metric": "weight_bound_violations", "dataset": "none", "rule": "run"}
    assert see(test, seeds({"FedGA": [0]}, **made)).holds == "yes"
    assert see(test, seeds({"FedGA": [0, 1]}, **made)).holds == "no"


@pytest.mark.parametrize(
    "x, holds",
    [(80.4, "no"), (82, "yes"), (78, "yes"), ([79.0, 82.0, 80.0], "undecided")],
)
def test_differ_is_the_contrary_of_near(x, holds):
    values = {
        "FedAvg": [80.0, 80.0, 80.0],
        "FedProx": x if isinstance(x, list) else [x] * 3,
    }
    f = see(
        claims.differ("mean_acc", PLACE, "FedProx", "FedAvg", 1.0),
        seeds(values, "mean_acc"),
    )
    assert f.holds == holds and "claimed beyond +-1" in f.evidence


@pytest.mark.parametrize("x, holds", [(0.4, "yes"), (1.2, "no"), (2.5, "no")])
def test_alike_compares_each_two(x, holds):
    runs = [{"method": m} for m in ("FedAvg", "FedProx", "FedFV")]
    s = seeds({"FedAvg": 80.0, "FedProx": 80.0 + x, "FedFV": 80.0 - x / 2}, "mean_acc")
    assert see(claims.alike("mean_acc", PLACE, runs, 1.0), s).holds == holds
    with pytest.raises(NotRun, match="FedFV"):
        see(claims.alike("mean_acc", PLACE, runs, 1.0), s[s.method != "FedFV"])


def test_throughout_counts():
    tests = {p: FEDGA.best("best_gini", p, ("FedAvg",)) for p in FEDGA.SYNTHETIC}
    good, bad = {"FedGA": 0.1, "FedAvg": 0.2}, {"FedGA": 0.3, "FedAvg": 0.2}
    s00, s05, s11 = FEDGA.SYNTHETIC
    f = see(claims.throughout(tests), *(seeds(good, dataset=p) for p in tests))
    assert f == ("yes", "yes in 3 of 3", ())
    f = see(
        claims.throughout(tests),
        seeds(good, dataset=s00),
        seeds(bad, dataset=s05),
        seeds(good, dataset=s11, noise=(0,)),
    )
    assert (
        f.holds == "no"
        and f.evidence == f"no in 1 of 3 ({s05}); yes in 1 of 3; undecided in 1 of 3"
    )
    f = see(
        claims.throughout(tests), seeds(good, dataset=s00), seeds(good, dataset=s05)
    )
    assert (f.holds, f.missing) == (
        "undecided",
        (s11,),
    ) and f"not run: {s11}" in f.evidence
    with pytest.raises(NotRun, match="one of"):
        see(claims.throughout(tests), seeds({"FedFV": 0.1}))


def test_steadier():
    def world(loss):
        both = [
            seeds(
                {m: 80.0 - (x if how == "P=0.2" else 0) for m, x in loss.items()},
                "mean_acc",
                setting=how,
            )
            for how in ("P=0.2", "P=1")
        ]
        return pd.concat(
            [both[0], both[1].assign(value=both[1].value + both[1].seed % 2 * 0.01)]
        )

    test = claims.steadier(
        "mean_acc", PLACE, ("FedAvg", "FedProx"), "FedGA", "P=1", "P=0.2"
    )
    f = see(test, world({"FedGA": 1, "FedAvg": 3, "FedProx": 5}))
    assert (
        f.holds == "yes"
        and "FedGA loses 1.00" in f.evidence
        and "hardest of 2 rivals FedAvg 3.00" in f.evidence
    )
    assert "less by 2.00" in f.evidence
    f = see(test, world({"FedGA": 4, "FedAvg": 3, "FedProx": 5}))
    assert f.holds == "no" and "FedAvg" in f.evidence
    f = see(test, world({"FedGA": 1, "FedAvg": 3}))
    assert f.holds == "undecided" and f.missing == ("FedProx",)
    with pytest.raises(NotRun, match="of the rivals"):
        see(test, world({"FedGA": 1}))


@pytest.mark.parametrize(
    "values, holds",
    [
        ({1: 80, 5: 80.5, 10: 79.5}, "yes"),
        ({1: 80, 5: 84, 10: 80}, "no"),
        ({1: 80, 5: [78.0, 82.5, 81.5, 80.0, 79.0], 10: 80}, "undecided"),
    ],
)
def test_flat_along_an_axis(values, holds):
    s = seeds(
        {f"FedGA|E={e}": x for e, x in values.items()}, "mean_acc", study="epochs"
    )
    test = claims.flat("mean_acc", PLACE, "FedGA", "E", "epochs", 1.0)
    f = see(test, s)
    # in the order of numbers
    assert f.holds == holds and "over E=1, E=5, E=10; farthest" in f.evidence
    assert see(test, s[s.seed == 0]).holds == "undecided"  # one seed
    with pytest.raises(NotRun, match="at two values of E"):
        see(test, s[s.setting == "E=1"])


@pytest.mark.parametrize(
    "x, holds",
    [
        ([0.5, 0.6, 0.4], "yes"),
        ([2.0, 2.5, 1.8], "no"),
        ([0.5, 2.0, 1.0], "undecided"),
        ([0.5], "undecided"),
        ([0.5, 0.0, 0.4], "undecided"),
    ],
)
def test_smaller_ratio(x, holds):
    s = seeds({"FedGA": x}, "aligned_over_trained", rule="run")
    f = see(claims.smaller("aligned_over_trained", PLACE, "FedGA"), s)
    assert f.holds == holds and ("no logarithm" in f.evidence) == (0.0 in x)


@pytest.mark.parametrize(
    "top, holds", [(30, "yes"), (1, "no"), ([0.0, 9.0, 3.0, 2.5, 1.0], "undecided")]
)
def test_larger_of_two_metrics(top, holds):
    s = [
        seeds({"FedGA": x}, f"acc_drop_{k}_points", rule="run")
        for k, x in (("top5", top), ("random5", 2.0))
    ]
    f = see(
        claims.larger(
            "acc_drop_top5_points", "acc_drop_random5_points", PLACE, "FedGA"
        ),
        *s,
    )
    assert f.holds == holds and "replaced: 2.00; larger by" in f.evidence


def test_levels_of_differences_count_on_stand_ins_too():
    s = seeds(
        {"FedGA": [20, 21, 19]}, "acc_drop_top5_points", rule="run", data="stand-in"
    )
    assert (
        see(claims.level("acc_drop_top5_points", PLACE, "FedGA", least=10), s).holds
        == "undecided"
    )
    assert (
        see(
            claims.level(
                "acc_drop_top5_points", PLACE, "FedGA", least=10, anywhere=True
            ),
            s,
        ).holds
        == "yes"
    )
    assert (
        see(
            claims.level(
                "acc_drop_top5_points", PLACE, "FedGA", most=10, anywhere=True
            ),
            s,
        ).holds
        == "no"
    )


def test_every():
    both = claims.every(FEDGA.best("best_gini", PLACE), FEDGA.best("mean_acc", PLACE))
    good, bad = seeds(GOOD), seeds({m: 1 - v for m, v in GOOD.items()}, "mean_acc")
    assert see(both, good, bad).holds == "yes"
    assert see(both, good, seeds(GOOD, "mean_acc")).holds == "no"
    assert see(both, good, seeds(GOOD, "mean_acc", noise=(0,))).holds == "undecided"


def test_orders_of_magnitude():
    t = {
        "metric": "trigger_time_seconds",
        "study": "timing",
        "rule": "run",
        "dataset": "cifar01",
    }
    cost = pd.concat(
        [
            seeds({"FedGini": [2.0, 2.1, 1.9], "FedGA": [2e-6, 1e-6, 3e-6]}, **t),
            seeds({"FedGA": [0.5, 0.5, 0.5]}, **t | {"metric": "validation_seconds"}),
        ]
    )
    f = see(FEDGA.orders("cifar01", "FedGA", "FedGini", "trigger_time_seconds"), cost)
    assert f.holds == "yes" and "6.04 orders of magnitude" in f.evidence
    f = see(
        FEDGA.orders(
            "cifar01",
            "FedGA",
            "FedGini",
            "trigger_time_seconds",
            2.0,
            ("validation_seconds",),
        ),
        cost,
    )
    assert f.holds == "no" and "0.60 orders" in f.evidence


def curve(ginis, **more):
    return seeds(
        {
            f"FedGA|alpha={a}": [g + n for n in (0, 0.001, -0.001)]
            for a, g in ginis.items()
        },
        study="sweep",
        **more,
    )


def test_alpha_curves():
    u = {1: 0.3, 2: 0.2, 5: 0.1, 10: 0.2}
    down = {1: 0.3, 2: 0.2, 5: 0.15, 10: 0.1}
    flat = {1: 0.2, 2: 0.2, 5: 0.1999, 10: 0.2}
    valley = FEDGA.valley(PLACE)
    assert (
        see(valley, curve(u)).holds == "yes"
        and "lowest at 5" in see(valley, curve(u)).evidence
    )
    assert see(valley, curve(down)).holds == "no"
    assert (
        see(
            valley,
            seeds({f"FedGA|alpha={a}": [g] for a, g in u.items()}, study="sweep"),
        ).holds
        == "undecided"
    )
    noisy = seeds(
        {f"FedGA|alpha={a}": [g, g + 0.1 * a, g - 0.1 * a] for a, g in flat.items()},
        study="sweep",
    )
    assert see(valley, noisy).holds == "undecided"
    assert (
        see(FEDGA.slope(PLACE), curve(down)).holds == "yes"
        and see(FEDGA.slope(PLACE), curve(u)).holds == "no"
    )
    for some, word in (
        ({1: 0.3, 2: 0.2, 3: 0.4}, "alpha=10"),
        ({1: 0.3, 10: 0.2}, "between 1 and 10"),
    ):
        with pytest.raises(NotRun, match=word):
            see(valley, curve(some))


@pytest.mark.parametrize(
    "middle, holds, share",
    [(0.15, "yes", "75%"), (0.28, "no", "10%"), (0.2, "undecided", "50%")],
)
def test_mostly(middle, holds, share):
    values = {
        "FedAvg": [0.3, 0.31, 0.29],
        "Uniform": [middle, middle + 0.012, middle - 0.012],
        "FedGA": [0.1, 0.11, 0.09],
    }
    f = see(
        FEDGA.mostly("best_gini", PLACE, "FedAvg", "Uniform", "FedGA"),
        seeds(values),
    )
    assert f.holds == holds and share in f.evidence


@pytest.mark.parametrize(
    "r, holds",
    [
        ([0.9, 0.95, 0.92], "yes"),
        ([0.1, 0.12, 0.11], "no"),
        ([0.2, 0.9, 0.5], "undecided"),
    ],
)
def test_together(r, holds):
    two = [
        seeds({"FedAvg": r}, f"us_gini_{k}", rule="run")
        for k in ("pearson", "spearman")
    ]
    assert see(FEDGA.together(PLACE), *two).holds == holds


@pytest.mark.parametrize(
    "share, below, above",
    [
        ([0.8, 0.9, 0.85], "yes", "no"),
        ([0.2, 0.1, 0.15], "no", "yes"),
        ([0.4, 0.6, 0.5], "undecided", "undecided"),
        ([0.9], "undecided", "undecided"),
    ],
)
def test_most_rounds(share, below, above):
    s = seeds({"FedFV": share}, "share_rounds_gini_below_fedavg", rule="run")
    assert [
        see(FEDGA.most_rounds(PLACE, "FedFV", b), s).holds for b in (True, False)
    ] == [below, above]


def test_ranked():
    methods = ("FedAvg", "FedProx", "FedFV", "FedGA")
    good = dict(zip(methods, (0.4, 0.3, 0.2, 0.1)))
    places = (*FEDGA.SYNTHETIC, *FEDGA.IMAGES)
    test = claims.ranked("best_gini", places, methods, "FedGA")

    def f(values, where=places):
        return see(test, *(seeds(values, dataset=p) for p in where))

    assert f(good).holds == "undecided"  # one rank ahead of FedFV: not enough
    assert (
        "FedGA ranks 1.00" in f(good).evidence
        and f(good, places[:2]).missing == places[2:]
    )
    assert f(dict(zip(methods, (0.1, 0.2, 0.3, 0.4)))).holds == "no"
    with pytest.raises(NotRun, match="on two settings"):
        f(good, places[:1])


# ------------------------------------------------------------------ finding runs


def test_settings_are_found_by_their_parts():
    names = (
        "alpha=5;theta=0.01",
        "alpha=10;theta=0.01",
        "alpha=10;theta=0.01;weight_norm=sum",
        "alpha=5;theta=0.001",
    )
    v = Values.of(
        seeds({f"FedGA|{n}": [i, i] for i, n in enumerate(names)}, study="readings")
    )

    def found(setting):
        return v.get("best_gini", "FedGA", PLACE, setting, "readings").iloc[0]

    assert [
        found(s)
        for s in ("alpha=10", "weight_norm=sum", "theta=0.001", "theta=0.01;alpha=5")
    ] == [1, 2, 3, 0]
    with pytest.raises(NotRun, match=r"alpha=5;theta=0.001 \| alpha=5;theta=0.01"):
        found("alpha=5")
    with pytest.raises(NotRun):
        found("")  # no run of that study is the plain one


def test_draws_stand_in_for_seeds():
    s = pd.concat(
        [
            seeds({f"{m}|draw={d}": [x + d] for d in range(4)}, study="draws")
            for m, x in (("FedGA", 0.1), ("FedFV", 0.2))
        ]
    )
    run = {"setting": "draw=*", "study": "draws"}
    f = see(
        claims.better(
            "best_gini", PLACE, {"method": "FedGA"} | run, {"method": "FedFV"} | run
        ),
        s,
    )
    assert f.holds == "yes" and "4 seeds" in f.evidence


def test_each_paper_has_its_rule_and_its_main_studies():
    fedas = seeds(
        {"FedAS": [1, 1]},
        "top1_acc_pct",
        "CIFAR-10",
        paper="fedas",
        study="grid",
        rule="last10_mean",
    )
    both = pd.concat([fedas, fedas.assign(rule="best_round_pooled", value=2.0)])
    assert Values.of(both).get("top1_acc_pct", "FedAS", "CIFAR-10").iloc[0] == 1
    assert (
        Values.of(both)
        .get("top1_acc_pct", "FedAS", "CIFAR-10", rule="best_round_pooled")
        .iloc[0]
        == 2
    )
    with pytest.raises(ResultError, match="fedas, fedga"):
        Values.of(pd.concat([fedas, seeds({"FedGA": 0.1})]))


def test_the_rule_is_the_papers_unless_asked():
    v = Values.of(
        pd.concat(
            [
                seeds({"FedGA": [1, 1]}),
                seeds({"FedGA": [2, 2]}, rule="last"),
                seeds({"FedGA": [3, 3]}, "gini_auc", rule="run"),
            ]
        )
    )
    got = [
        v.get("best_gini", "FedGA", PLACE),
        v.get("best_gini", "FedGA", PLACE, rule="last"),
        v.get("gini_auc", "FedGA", PLACE),
    ]
    assert [x.iloc[0] for x in got] == [1, 2, 3]


# ------------------------------------------------------------------ the list


def test_claims_are_well_formed():
    known, all_ = artefacts.names(REPORTED), claims.listed()
    assert len({c.key for c in all_}) == len(all_) and {c.paper for c in all_} == set(
        papers.found()
    )
    for c in all_:
        assert (
            c.artefact in known[c.paper] | {"Section 5"}
            and c.text.endswith(".")
            and c.by in ("paper", "ours")
        ), c.key
        assert c.place in {*papers.main_datasets(c.paper), "all"} and c.key.startswith(
            f"{c.paper}-"
        ), c.key


def test_without_runs_every_claim_is_not_run():
    t = check_claims(CLAIMS, ledger.parts(ROOT / "no such folder", "seeds", REPORTED))
    assert set(t.holds) == {"not run"} and list(t) == claims.COLUMNS
    t = check_claims(CLAIMS, seeds({"AFL": 0.1}))
    assert set(t.holds) == {"not run"} and t.evidence.str.startswith("needs ").all()


def everything(sign):
    """Runs in which FedGA is ahead of all others on every metric (sign 1) or behind
    (sign -1), everywhere.
    """
    methods = ("FedAvg", "Uniform", *FEDGA.OFFICE[1:], "FedGA_ablation", "FedGA")
    out = []
    for p in (*FEDGA.SYNTHETIC, *FEDGA.IMAGES):
        for metric in (
            "mean_acc",
            "std_acc",
            "worst10_acc",
            "best_gini",
            "gini_auc",
            "late_mean_acc",
            "test_acc_plateau",
            "top10_minus_bottom10",
        ):
            up = sign if METRICS[metric].better == "high" else -sign
            out.append(
                seeds({m: 50 + up * 5 * i for i, m in enumerate(methods)}, metric, p)
            )
    return pd.concat(out)


def test_a_world_in_which_the_paper_is_right_and_one_in_which_it_is_wrong():
    about = {
        c.key
        for c in CLAIMS
        if c.key.startswith(
            ("fedga-best-", "fedga-delay-", "fedga-mean-not-", "fedga-fair-")
        )
    }
    for sign, holds in ((1, "yes"), (-1, "no")):
        t = check_claims(CLAIMS, everything(sign)).set_index("key")
        assert set(t.holds[list(about)]) == {holds}
        assert (
            t.data[list(about)].eq("synthetic").all()
            and t.evidence[list(about)].str.contains("5 seeds").all()
        )
    assert len(about) > 60


def test_the_best_complete_tier_decides():
    c = [c for c in CLAIMS if c.key == f"fedga-best-best_gini-{PLACE}"]
    whole, bad, part = (
        seeds(GOOD),
        seeds(GOOD | {"FedGA": 0.5}),
        seeds({"FedGA": 0.5, "FedAvg": 0.2}),
    )
    for tables, holds, tier in (
        ([whole, bad.assign(tier="paper")], "no", "paper"),
        ([whole, part.assign(tier="paper")], "yes", "small"),
        ([part.assign(tier="paper")], "no", "paper"),
        ([whole.assign(tier="tiny")], "undecided", "tiny"),
    ):
        t = check_claims(c, pd.concat(tables))
        assert (t.holds.item(), t.tier.item()) == (holds, tier)


# ------------------------------------------------------------------ deviations


@pytest.fixture
def folder(tmp_path):
    """A folder of papers with FedGA alone."""
    (tmp_path / "papers/fedga").mkdir(parents=True)
    shutil.copy(ROOT / "papers/fedga/paper.yaml", tmp_path / "papers/fedga")
    return tmp_path / "papers"


ENTRIES = claims.read_deviations()
ENTRY = {
    "id": "FedGA-1",
    "title": "t",
    "where": "w",
    "paper": "p",
    "code": "c",
    "ours": "o",
    "why": "y",
    "mark": "certain",
}
EFFECT = {
    "dataset": PLACE,
    "metrics": ["best_gini"],
    "ours": {"method": "FedGA"},
    "other": {"method": "FedGA", "rule": "last"},
}


SCORES = (
    "mean_acc",
    "std_acc",
    "worst10_acc",
    "best_gini",
    "top10_minus_bottom10",
    "std_acc_ddof1",
    "best_gini_m",
)
CURVES = (
    "gini_auc",
    "late_mean_acc",
    "early_mean_acc",
    "test_acc_plateau",
    "us_gini_pearson",
    "us_gini_spearman",
    "share_rounds_gini_below_fedavg",
    "trigger_round",
    "gini_level_after_round_50",
    "train_acc_by_round_40",
)
THEORY = (
    "weight_bound_violations",
    "alpha_one_deviation",
    "example_delta_avgdiff",
    "extra_upload_bytes",
)


@pytest.fixture(scope="module")
def planned():
    """Invented numbers for every run that params.yaml plans at tier paper,
    and for theory and timing.
    """
    from fedlib.study import studies

    plans = yaml.safe_load(
        (ROOT / "papers/fedga/studies.yaml").read_text(encoding="utf-8")
    )
    tables = []
    for notebook, group in plans["studies"].items():
        for study in group if notebook != "grid" else ():
            todo = studies.cells("fedga", study, ROOT / "params.yaml", "paper")[0]
            base = pd.DataFrame(
                [
                    {
                        "dataset": c.dataset,
                        "method": c.method,
                        "setting": c.setting,
                        "seed": c.seed,
                        "study": study,
                        "data": c.data,
                        "value": float(len(c.method)),
                    }
                    for c in todo
                ]
            )
            tables += [base.assign(metric=m, rule="best_val") for m in SCORES]
            tables += [
                base.assign(metric=m, rule=r)
                for m in SCORES[:4]
                for r in ("last", "best_val_gini")
            ]
            tables += [base.assign(metric=m, rule="run") for m in CURVES]
    for p in ("synthetic_0_0", *FEDGA.IMAGES):
        tables += [
            seeds(
                {"FedGA": 1.0, "FedGini": 2.0},
                m,
                p,
                study="timing",
                rule="run",
                noise=(0, 0.1, 0.2),
            )
            for m in ("trigger_time_seconds", "validation_seconds")
        ]
    tables += [seeds({"FedGA": [0]}, m, "none", rule="run") for m in THEORY]
    return pd.concat(tables, ignore_index=True).assign(paper="fedga", tier="paper")


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS, planned)
    assert list(t.key[t.holds == "not run"]) == []


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    """What is misspelt in deviations.yaml, or gone from params.yaml,
    would stay "not run" for ever.
    """
    e = claims.effects([d for d in ENTRIES if d["id"].startswith("FedGA-")], planned)
    assert list(e.key[e.evidence == "not run"]) == []


def test_effects_are_ours_minus_other():
    d = [
        ENTRY | {"effect": [EFFECT]},
        ENTRY | {"id": "FedGA-2", "unmeasured": "no data", "methods": ["AFL"]},
    ]
    s = pd.concat(
        [
            seeds({"FedGA": [0.1, 0.2, 0.4]}),
            seeds({"FedGA": [0.2, 0.2, 0.5]}, rule="last"),
        ]
    )
    e = claims.effects(d, s)
    i = paired([0.1, 0.2, 0.4], [0.2, 0.2, 0.5])
    assert tuple(
        e.loc[0, ["effect", "effect_lo", "effect_hi", "n_seeds"]]
    ) == pytest.approx((i.mean, i.lo, i.hi, 3))
    t = claims.deviations(d, e).set_index("key")
    assert list(t.status) == ["measured", "not measured"] and list(t.methods) == [
        "FedGA",
        "AFL",
    ]
    assert (
        t.loc["fedga-1", "effect"] == pytest.approx(i.mean)
        and t.loc["fedga-2", "evidence"] == "no data"
    )
    assert (
        "0.2333 against 0.3000" in t.loc["fedga-1", "evidence"]
        and t.loc["fedga-1", "data"] == "synthetic"
    )


def test_effects_without_runs_and_without_end():
    d = [
        ENTRY
        | {
            "effect": [
                EFFECT | {"metrics": ["trigger_round"], "other": {"method": "FedGini"}}
            ]
        }
    ]
    empty = claims.effects(d, seeds({"FedAvg": 0.1}))
    assert (
        set(empty.evidence) == {"not run"}
        and claims.deviations(d, empty).status.item() == "not run"
    )
    s = seeds(
        {"FedGA": [11, 14], "FedGini": [80, float("inf")]}, "trigger_round", rule="run"
    )
    t = claims.deviations(d, claims.effects(d, s))
    assert t.status.item() == "measured" and pd.isna(t.effect.item())
    assert "11 to 14 against 80 to 80, never in 1 of 2 seeds" in t.evidence.item()


@pytest.mark.parametrize(
    "change, word",
    [
        ({"effekt": 1}, "unknown field 'effekt'; did you mean 'effect'"),
        ({"why": ""}, "why is missing"),
        ({"id": "FedGA-3"}, "here FedGA-1 is due"),
        ({"id": "FedAS-1"}, "deviations of fedga stand here"),
        ({"mark": "sure"}, "mark is 'sure'"),
        ({"unmeasured": None}, "either an effect"),
        ({"effect": [EFFECT]}, "either an effect"),
        (
            {"unmeasured": None, "effect": [EFFECT | {"metrics": ["gini"]}]},
            "metric is 'gini'; did you mean",
        ),
        (
            {"unmeasured": None, "effect": [EFFECT | {"data": 1}]},
            "unknown field 'data' in an effect",
        ),
        (
            {"unmeasured": None, "effect": [{"dataset": PLACE}]},
            "an effect has no metrics",
        ),
        (
            {"unmeasured": None, "effect": [EFFECT | {"ours": {"methods": "FedGA"}}]},
            "did you mean 'method'",
        ),
        (
            {"unmeasured": None, "effect": [EFFECT | {"ours": {"rule": "last"}}]},
            "ours has no method",
        ),
    ],
)
def test_malformed_deviations_are_refused(folder, change, word):
    (folder / "fedga/deviations.yaml").write_text(
        yaml.safe_dump([ENTRY | {"unmeasured": "x"} | change])
    )
    with pytest.raises(ResultError, match=word):
        claims.read_deviations(folder)


def test_broken_yaml_is_named(folder):
    path = folder / "fedga/deviations.yaml"
    for text, word in (("- [", "no valid YAML"), ("a: 1", "give a list")):
        path.write_text(text)
        with pytest.raises(ResultError, match=word):
            claims.read_deviations(folder)
    path.unlink()
    with pytest.raises(ResultError, match="deviations.yaml is missing"):
        claims.read_deviations(folder)


def test_main_writes_the_same_bytes_twice(tmp_path):
    ledger.save(everything(1), "seeds", "fedga-x", tmp_path)
    made = []
    for _ in range(2):
        claims.main(["--results", str(tmp_path)])
        made.append(
            [
                (tmp_path / f"{f}.csv").read_bytes()
                for f in ("claims", "deviations", "effects")
            ]
        )
    assert made[0] == made[1] and len(pd.read_csv(tmp_path / "claims.csv")) == len(
        claims.listed()
    )
    assert len(pd.read_csv(tmp_path / "deviations.csv")) == len(ENTRIES)
