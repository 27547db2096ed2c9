"""PLGU's claims: the list with its quotes, every pattern in each verdict, the printed
tables, and the runs that params.yaml plans.
"""

import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import check_claims, declared
from repro.ledger import ResultError
from repro.metrics import METRICS

CLAIMS = {c.key.removeprefix("plgu-"): c for c in declared("plgu")}
REPORTED = ledger.read_reported()
MEAN, LOW, TOP = "acc_mean_pct", "acc_lowest5_pct", "acc_top5_pct"
FIFTH = "acc_lowest20_pct"
LEAST, POOR = "acc_min_over_clients_pct", "pct_clients_far_below_mean"
EARLY = "early_mean_acc_pct"
GLOBAL, OWN, NOW = "global model", "personalised model", "refreshed model"
ALONE = "global model on one client's data"
LF, GREP, GHN = PLGU = ("PLGU-LF", "PLGU-GRep", "PLGU-GHN")
RIVALS = {
    GLOBAL: ("FedAvg", "FedSAM", "Ditto", "pFedMe"),
    OWN: ("Ditto", "pFedMe", "FedRep", "pFedHN"),
}
FIVE = (("CIFAR10", 10), ("CIFAR10", 100), ("CIFAR100", 10), ("CIFAR100", 100))
FIVE += (("TinyImageNet", 20),)
RISE = ("rise_0.05", "rise_0.1", "rise_0.5")
SHARPNESS = ("landscape_area", "lambda_max", "train_loss", *RISE)
NOISE = np.array([-1.0, 0.5, 0.1, 0.8, -0.4])  # of five seeds


def at(view, C, *more):
    """A setting of the main study."""
    return ";".join((view, f"C={C}", *more))


def runs(values, metric=MEAN, place="digits", study="tables", **more):
    """Long rows; values: {"method|setting": one number, or one a seed}."""
    row = {"paper": "plgu", "study": study, "dataset": place, "metric": metric}
    row |= {"rule": "last10_mean", "data": "real", "tier": "small"} | more
    return pd.DataFrame(
        row | {"method": method, "setting": setting, "seed": seed, "value": float(x)}
        for who, said in values.items()
        for method, _, setting in [who.partition("|")]
        for seed, x in enumerate(np.broadcast_to(said, 5))
    )


def check(key, table, **more):
    """The row of claims.csv of one claim."""
    beside = pd.concat([table, *(trained(table, p) for p in set(table.dataset))])
    keys = ["study", "dataset", "method", "setting", "metric", "rule", "seed"]
    return check_claims(
        [CLAIMS[key]], beside.drop_duplicates(keys), REPORTED, **more
    ).iloc[0]


def trained(table, place):
    """Clients that train alone, and the means of the hypernetworks of a table, unless
    it has them: as good.
    """
    here = {"Local"} | (set(table.method) & {"pFedHN", GHN})
    values = {f"{m}|{at(OWN, C)}": 40 for m in sorted(here) for C in (10, 20, 100)}
    return runs(values, place=place, data=table.data.iloc[0])


def cell(view, values, C=10, rivals=80, **more):
    """Methods of ours and the rivals of a view at one setting."""
    both = dict.fromkeys(RIVALS[view], rivals) | values
    return runs({f"{m}|{at(view, C)}": x for m, x in both.items()}, **more)


# ---------------------------------------------------------------- the list
SIZES = {
    **{"global": 21, "personalised": 21, "above-lf": 14, "above-baselines": 24},
    **{"stored-above-baselines": 21, "refreshed-above-baselines": 21},
    **{"global-everywhere": 3, "personalised-everywhere": 3, "all-three": 3},
    **{"top5-kept": 16, "fastest": 4, "fewer-poor-clients": 6},
    **{"all-clients-above-75": 1, "gain-mean": 1, "gain-lowest5": 1},
    **{"level-lowest5": 1, "beats-simple": 32, "grep-is-two-steps": 8},
    **{"grep-beyond-two-steps": 8, "two-steps-help": 8, "ghn-beyond-two-steps": 8},
    **{"perturbing-helps-global": 8, "perturbing-helps-personalised": 8},
    **{"perturbing-helps-refreshed": 8, "push-is-small-global": 8},
    **{"push-is-small-stored": 8, "push-is-small-refreshed": 8},
    **{"layers-help-without-perturbing": 8, "stored-beats-refreshed": 8},
    **{"refreshed-layers-help-without-perturbing": 8, "sum-one-is-nothing": 1},
    **{"moved-beats": 16, "moved-is": 16, "scores-help": 6},
    **{
        "moved-always-last": 2,
        "some-d-above-ends": 12,
        "default-d-best": 6,
        "ends-worse": 6,
    },
    **{"between-alike": 6, "k-best": 10, "rho-best": 10, "rho-inner": 10},
    **{"rho-large-hurts": 5, "flatter-area": 4, "flatter-rise": 4},
    **{"flatter-eigenvalue": 4, "at-like-loss-area": 14},
    **{"at-like-loss-eigenvalue": 14, "printed": 8, "printed-ours": 4},
}


def test_no_family_lost_a_case():
    found = Counter(c.family.removeprefix("plgu-") for c in CLAIMS.values())
    assert found == SIZES and len(CLAIMS) == 455


def test_the_papers_claims_have_its_words():
    known = artefacts.names(REPORTED)["plgu"]
    for c in CLAIMS.values():
        assert c.artefact in known and c.text.endswith("."), c.key
        assert bool(c.quote) == bool(c.section) == (c.by == "paper"), c.key
        assert len(c.quote) <= 160 and c.quote == " ".join(c.quote.split()), c.key


def test_claims_about_digits_and_about_the_lowest_fifth_are_ours():
    assert {c.by for c in CLAIMS.values() if c.place == "digits"} == {"ours"}
    assert {c.by for k, c in CLAIMS.items() if "lowest20" in k} == {"ours"}


def test_every_sentence_about_the_lowest_clients_has_a_tail_that_decides():
    """But for the numbers that the paper prints."""
    low = {k for k in CLAIMS if "lowest5" in k and "printed" not in k}
    low -= {"gain-lowest5-cifar100-c_10", "level-lowest5-cifar100-c_10"}
    assert len(low) == 39
    assert {k.replace("lowest5", "lowest20") for k in low} <= set(CLAIMS)


def test_every_artefact_with_numbers_or_curves_has_a_claim_of_the_paper():
    figures = {"Figure 1", "Figure 4", "Figure 5", "Figure 6 text", "Figure 7"}
    tables = {"Table 1", "Table 2", "Table 3", "Table 4", "Section 6.2 text"}
    found = {c.artefact for c in CLAIMS.values() if c.by == "paper"}
    assert found == figures | tables


@pytest.mark.parametrize("artefact, view", [("Table 1", GLOBAL), ("Table 2", OWN)])
def test_every_printed_cell_of_the_main_tables_has_its_claim(artefact, view):
    mine = (REPORTED.paper == "plgu") & (REPORTED.artefact == artefact)
    printed = REPORTED[mine]
    assert set(RIVALS[view]) == set(printed.method) - set(PLGU)
    for place, setting in {*zip(printed.dataset, printed.setting)}:
        where = f"{ledger.slug(place)}-{ledger.slug(setting.split('; ')[1])}"
        for name in ("mean", "lowest5"):
            assert CLAIMS[f"{view.split()[0]}-{name}-{where}"].by == "paper"


# ---------------------------------------------------------------- every verdict
def ours(view, methods, metric=MEAN, C=10, loss=0, **more):
    """Methods that are ahead of the rivals of a view by d, less a loss."""
    sign = 1 if METRICS[metric].better == "high" else -1

    def made(d):
        values = dict.fromkeys(methods, 80 + sign * (d - loss))
        return cell(view, values, C, metric=metric, **more)

    return made


def versus(a, b, metric=MEAN, base=80, **more):
    """A run that is ahead of another by d."""
    sign = 1 if METRICS[metric].better == "high" else -1
    return lambda d: runs({a: base + sign * d, b: base}, metric, **more)


def whole(*parts):
    """Several tables as one."""
    return lambda d: pd.concat(made(d) for made in parts)


def sweep(axis, values, study, method=LF, view=OWN, place="digits"):
    """Runs along an axis: {value: accuracy}."""
    said = {f"{method}|{at(view, 10, f'{axis}={k}')}": x for k, x in values.items()}
    return runs(said, MEAN, place, study)


def layers(values):
    """A sweep of personal layers, of which PLGU-LF takes 1."""
    return sweep("D", values, "D_digits")


def flatter(*metrics):
    """PLGU-LF's global model is flatter than its personalised ones by d."""
    losses = lambda d: runs(dict.fromkeys(VIEWS_OF_LF, 0.1), "train_loss", **SHARP)
    sharp = [versus(*VIEWS_OF_LF, m, base=5, **SHARP) for m in metrics]
    return whole(losses, *sharp)


BARE = f"{LF}|{at(OWN, 10, 'perturb=none')}"
STORED, TODAY = f"{LF}|{at(OWN, 10)}", f"{LF}|{at(NOW, 10)}"
PUSHED, PLAIN = f"{LF}|{at(GLOBAL, 10)}", f"{LF}|{at(GLOBAL, 10, 'perturb=none')}"
SHARP = {"study": "flatness", "rule": "run"}
VIEWS_OF_LF = f"{LF}|{GLOBAL};age=whole", f"{LF}|{OWN};age=whole"
LIKE = f"{LF}|{GLOBAL};against=FedAvg"
LAYERS = f"{LF}|{NOW};perturb=none"
SIMPLE = {"Local": 80, "FedAvg-FT": 80}
# claim -> (margin, runs in which the effect is d, whose runs it needs)
PATTERNS = {
    "global-mean-digits-c_10": (1, ours(GLOBAL, [LF]), LF),
    "global-lowest5-digits-c_100": (2, ours(GLOBAL, [LF], LOW, 100), LF),
    "personalised-mean-digits-c_10": (
        1,
        lambda d: cell(OWN, {GREP: 60, GHN: 80 + d}),
        (GREP, GHN),
    ),
    "above-lf-lowest20-digits-c_10": (
        1,
        lambda d: cell(OWN, {LF: 80, GREP: 80 + d, GHN: 60}, metric=FIFTH),
        LF,
    ),
    "grep-above-baselines-mean-digits": (
        1,
        whole(ours(OWN, [GREP]), ours(OWN, [GREP], C=100)),
        GREP,
    ),
    "fastest-digits-c_10": (
        1,
        whole(
            ours(OWN, [GREP, GHN], EARLY, rule="run"),
            lambda d: runs({STORED: 80}, EARLY, rule="run"),
        ),
        GREP,
    ),
    "grep-fewer-poor-clients-digits-c_10": (5, ours(OWN, [GREP], POOR), GREP),
    "all-clients-above-75-cifar10-c_10": (
        2,
        lambda d: cell(OWN, dict.fromkeys(PLGU, 75 + d), metric=LEAST, place="CIFAR10"),
        GHN,
    ),
    "grep-beyond-two-steps-mean-digits-c_10": (
        1,
        versus(f"{GREP}|{at(OWN, 10)}", f"FedRep-2x|{at(OWN, 10)}"),
        "FedRep-2x",
    ),
    "ghn-beyond-two-steps-mean-digits-c_10": (
        1,
        versus(f"{GHN}|{at(OWN, 10)}", f"pFedHN|{at(OWN, 10, 'epochs=10')}"),
        GHN,
    ),
    "perturbing-helps-global-lowest20-digits-c_10": (
        1,
        versus(PUSHED, PLAIN, FIFTH),
        LF,
    ),
    "perturbing-helps-personalised-mean-digits-c_10": (1, versus(STORED, BARE), LF),
    "perturbing-helps-refreshed-lowest20-digits-c_10": (
        1,
        versus(TODAY, f"{TODAY};perturb=none", FIFTH),
        LF,
    ),
    "moved-beats-random-lowest20-digits": (
        1,
        versus(f"{LAYERS};keep=moved", f"{LAYERS};keep=random", FIFTH, study="layers"),
        LF,
    ),
    "stored-above-baselines-mean-digits-c_10": (1, ours(OWN, [LF]), LF),
    "layers-help-without-perturbing-mean-digits-c_10": (
        1,
        versus(BARE, f"FedAvg-FT|{at(OWN, 10)}"),
        "FedAvg-FT",
    ),
    "stored-beats-refreshed-lowest20-digits-c_10": (
        1,
        versus(STORED, TODAY, FIFTH),
        LF,
    ),
    "lf-beats-simple-mean-digits-c_10": (
        1,
        lambda d: cell(OWN, {LF: 80 + d, **SIMPLE}),
        LF,
    ),
    "refreshed-above-baselines-mean-digits-c_10": (
        1,
        whole(lambda d: cell(OWN, {}), lambda d: runs({TODAY: 80 + d})),
        LF,
    ),
    "lf-scores-help-mean-digits-global-model": (
        1,
        versus(f"{LF}|{GLOBAL}", f"{LF}|{GLOBAL};uniform=True", study="readings"),
        LF,
    ),
    "default-d-best-digits-personalised-model": (
        1,
        lambda d: layers({0: 70, 1: 80 + d, 2: 80, 3: 75}),
        LF,
    ),
    "ends-worse-digits-personalised-model": (
        1,
        lambda d: layers({0: 70, 1: 80 + d, 2: 99, 3: 80}),
        LF,
    ),
    "some-d-above-ends-mean-digits-personalised-model": (
        1,
        lambda d: layers({0: 80, 1: 60, 2: 80 + d, 3: 80}),
        LF,
    ),
    "grep-k-best-mean-cifar10-personalised-model": (
        1,
        lambda d: sweep("K", {1: 70, 5: 80 + d, 10: 80}, "K", GREP, place="CIFAR10"),
        GREP,
    ),
    "lf-rho-best-mean-cifar10-global-model": (
        1,
        lambda d: sweep(
            "rho", {0.05: 80 + d, 0.1: 80, 0.5: 70}, "rho", LF, GLOBAL, "CIFAR10"
        ),
        LF,
    ),
    "lf-rho-inner-mean-cifar10-refreshed-model": (
        1,
        lambda d: sweep(
            "rho", {0.01: 80, 0.1: 80 + d, 0.5: 80}, "rho", LF, NOW, "CIFAR10"
        ),
        LF,
    ),
    "global-flatter-area-digits": (0.25, flatter("landscape_area"), LF),
    "global-flatter-rise-digits": (0.25, flatter(*RISE), LF),
    "flatter-than-fedavg-at-like-loss-area-digits": (
        METRICS["like_loss_area"].margin,
        whole(lambda d: runs({LIKE: -d}, "like_loss_area", **SHARP), flatter()),
        LF,
    ),
    # against a bound, which leaves no room for "alike"
    "lf-top5-kept-global-model-digits": (
        0,
        whole(*(ours(GLOBAL, [LF], TOP, C, loss=1) for C in (10, 100))),
        LF,
    ),
    "gain-lowest5-cifar100-c_10": (
        0,
        ours(GLOBAL, [LF], LOW, loss=-2.03, place="CIFAR100"),
        LF,
    ),
    "between-alike-digits-personalised-model": (
        0,
        lambda d: layers({0: 99, 1: 80, 2: 79 + d, 3: 60}),
        LF,
    ),
    "ghn-rho-large-hurts-cifar10-personalised-model": (
        0,
        lambda d: sweep("rho", {0.05: 81 + d, 0.5: 80}, "rho", GHN, place="CIFAR10"),
        GHN,
    ),
}
# verdict -> mean and spread of the effect, in margins
EFFECTS = {"yes": (5, 0.1), "no": (-5, 0.1), "alike": (0, 0.1), "undecided": (0.5, 3)}


@pytest.mark.parametrize("key", PATTERNS)
@pytest.mark.parametrize("verdict", EFFECTS)
def test_a_pattern_reaches_each_verdict(key, verdict):
    margin, made, _ = PATTERNS[key]
    mean, spread = EFFECTS[verdict]
    table = made((margin or 1) * (mean + spread * NOISE))
    if verdict == "alike" and not margin:
        verdict = "undecided"
    c = check(key, table)
    assert c.holds == verdict, c.evidence
    assert (c.effect > 0) == (verdict != "no") or verdict in ("alike", "undecided")
    assert check(key, table[table.seed < 4]).holds == "undecided"


@pytest.mark.parametrize("key", PATTERNS)
def test_what_is_missing_is_not_run(key):
    margin, made, who = PATTERNS[key]
    table = made((margin or 1) * (5 + 0.1 * NOISE))
    rest = table[~table.method.isin([who] if isinstance(who, str) else who)]
    c = check(key, pd.concat([rest, runs({"Local|none": 1})]))
    assert c.holds == "not run" and "needs" in c.evidence


@pytest.mark.parametrize("key", PATTERNS)
def test_below_the_gate_scores_are_not_testable(key):
    margin, made, _ = PATTERNS[key]
    table = made((margin or 1) * (5 + 0.1 * NOISE))
    closed = {("plgu", "small", table.dataset.iloc[0]): "nothing is learnt"}
    c = check(key, table, closed=closed)
    unscored = "flatter" in key  # no score of a model
    assert c.holds == ("yes" if unscored else "not testable"), c.evidence
    assert unscored or "nothing is learnt" in c.reason


def world(sign, data="real"):
    """All that PLGU trains is ahead of all rivals everywhere, or behind."""
    ahead = {LF: 5, GREP: 6, GHN: 6}  # margins
    parts = []
    for place, C in (*FIVE, ("digits", 10), ("digits", 100)):
        for m in (MEAN, LOW, FIFTH, TOP, EARLY, POOR):
            way = sign if METRICS[m].better == "high" else -sign
            gain = {
                k: way * d * METRICS[m].margin * 1.01**NOISE for k, d in ahead.items()
            }
            of = {"metric": m, "place": place, "data": data}
            of |= {"rule": "run"} if m == EARLY else {}
            parts.append(cell(OWN, {k: 50 + g for k, g in gain.items()}, C, 50, **of))
            parts.append(cell(GLOBAL, {LF: 50 + gain[LF]}, C, 50, **of))
            parts.append(runs({f"{LF}|{at(NOW, C)}": 50 + gain[LF]}, **of))
            if m == MEAN:
                parts.append(runs({f"Local|{at(OWN, C)}": 40}, **of))
    return pd.concat(parts)


@pytest.mark.parametrize("sign, holds", [(1, "yes"), (-1, "no")])
def test_a_world_in_which_the_paper_is_right_or_wrong(sign, holds):
    families = ("global", "personalised", "above-baselines", "all-three", "top5-kept")
    families += ("global-everywhere", "personalised-everywhere", "fastest")
    families += ("fewer-poor-clients", "gain-mean", "gain-lowest5")
    families += ("stored-above-baselines", "refreshed-above-baselines")
    some = [c for c in CLAIMS.values() if c.family.removeprefix("plgu-") in families]
    table = check_claims(some, world(sign), REPORTED)
    odd = table[table.holds != holds]
    assert len(some) == 145 and odd.empty, odd[["key", "evidence"]].to_string()
    assert (np.sign(table.effect) == sign).all() and (table.n_seeds == 5).all()


def test_one_lost_setting_refutes_everywhere():
    table = world(1)
    lost = (table.dataset == "CIFAR10") & (table.setting == at(GLOBAL, 10))
    table.loc[lost & (table.method == "FedSAM") & (table.metric == MEAN), "value"] = 99
    c = check("global-mean-everywhere", table)
    assert c.holds == "no" and "no in 1 of 5 (PLGU-LF CIFAR10 C = 10)" in c.evidence
    rest = table[table.dataset != "CIFAR10"]
    c = check("global-mean-everywhere", rest)
    assert c.holds == "undecided" and "yes in 3 of 5" in c.evidence


def test_printed_numbers_say_nothing_of_stand_ins():
    table = world(1, "stand-in")
    least = table[table.metric == POOR].assign(metric=LEAST)
    table = pd.concat([table, least])
    keys = ("gain-mean", "gain-lowest5-cifar100-c_10", "level-lowest5-cifar100-c_10")
    for key in (*keys, "all-clients-above-75-cifar10-c_10"):
        c = check(key, table)
        assert c.holds == "not testable" and "not here" in c.reason, key
    assert check("global-mean-everywhere", table).holds == "yes"


@pytest.mark.parametrize("x, holds", [(59, "yes"), (54, "no")])
def test_the_printed_level_of_the_lowest_clients(x, holds):
    table = runs({PUSHED: x + 0.1 * NOISE}, LOW, "CIFAR100")
    assert check("level-lowest5-cifar100-c_10", table).holds == holds


@pytest.mark.parametrize(
    "x, holds",
    [
        (80.2 + 0.1 * NOISE, "yes"),
        (83 + 0.1 * NOISE, "no"),
        (80 + 3 * NOISE, "undecided"),
        (80, "not testable"),  # one computation
    ],
)
def test_scores_that_sum_to_one(x, holds):
    values = {f"{LF}|{GLOBAL};scale=sum1": x, f"{LF}|{GLOBAL};perturb=none": 80}
    table = runs(values, study="readings")
    assert check("sum-one-is-nothing-digits", table).holds == holds


def test_a_tail_of_zeros_is_a_floor():
    zeros = cell(GLOBAL, {LF: 0}, rivals=0, metric=LOW)
    apart = cell(GLOBAL, {LF: 81 + 0.1 * NOISE})  # else they are one computation
    c = check("global-lowest5-digits-c_10", pd.concat([zeros, apart]))
    assert c.holds == "not testable" and "floor" in c.reason


def test_a_plain_run_is_not_mistaken_for_its_variant():
    own = at(OWN, 10)
    values = {f"pFedHN|{own}": 90, f"pFedHN|{own};epochs=10": 70}
    table = runs(values | {f"{GHN}|{own}": 80 + 0.1 * NOISE})
    c = check("ghn-beyond-two-steps-mean-digits-c_10", table)
    assert c.holds == "yes" and "70.00" in c.evidence


def test_at_the_papers_sizes_five_layers_are_judged():
    values = {0: 80, 1: 89.5, 5: 90 + 0.1 * NOISE, 10: 89.8, 21: 70}
    table = sweep("D", values, "D", place="CIFAR10")
    for key in ("ends-worse", "between-alike"):
        c = check(f"{key}-cifar10-personalised-model", table)
        assert c.holds == "yes" and "D=5" in c.evidence
    rest = table[~table.setting.str.endswith("D=5")]
    for key in ("ends-worse", "between-alike", "default-d-best"):
        assert check(f"{key}-cifar10-personalised-model", rest).holds == "not run"


def test_two_values_are_the_least_of_a_sweep():
    c = check("ends-worse-digits-personalised-model", layers({1: 80}))
    assert c.holds == "not run" and "two values of D" in c.evidence
    c = check("between-alike-digits-personalised-model", layers({0: 70, 1: 80, 3: 70}))
    assert c.holds == "not run" and "between the ends" in c.evidence


def test_one_radius_refutes_flatness():
    flat = flatter(*RISE[:2])(1 + 0.1 * NOISE)
    sharp = versus(*VIEWS_OF_LF, RISE[2], base=5, **SHARP)(-1 + 0.1 * NOISE)
    c = check("global-flatter-rise-digits", pd.concat([flat, sharp]))
    assert c.holds == "no" and "rise_0.5" in c.evidence
    assert "training losses of 0.1 and 0.1" in c.evidence


# ---------------------------------------------------------------- controls
ALIKE = {  # claim of equivalence -> (its margin, two runs, study, metric)
    "grep-is-two-steps-lowest20-digits-c_10": (
        1,
        (f"{GREP}|{at(OWN, 10)}", f"FedRep-2x|{at(OWN, 10)}", FIFTH),
    ),
    "push-is-small-global-mean-digits-c_10": (2, (PUSHED, PLAIN, MEAN)),
    "push-is-small-stored-mean-digits-c_10": (2, (STORED, BARE, MEAN)),
    "push-is-small-refreshed-lowest20-digits-c_10": (
        2,
        (TODAY, f"{TODAY};perturb=none", FIFTH),
    ),
    "moved-is-first-mean-digits": (
        2,
        (f"{LAYERS};keep=moved", f"{LAYERS};keep=first", MEAN),
    ),
    "moved-is-none-mean-digits": (2, (f"{LAYERS};keep=moved", f"{LAYERS};D=0", MEAN)),
    "moved-is-fedavg-ft-mean-digits": (
        2,
        (f"{LAYERS};keep=moved", f"FedAvg-FT|{OWN}", MEAN),
    ),
}


@pytest.mark.parametrize("key", ALIKE)
@pytest.mark.parametrize(
    "mean, spread, holds",
    [
        (0.4, 0.1, "yes"),
        (-0.4, 0.1, "yes"),
        (3, 0.1, "no"),
        (-3, 0.1, "no"),
        (0.4, 3, "undecided"),
    ],
)
def test_a_control_can_say_that_nothing_differs(key, mean, spread, holds):
    margin, (a, b, metric) = ALIKE[key]
    study = "layers" if key.startswith("moved") else "tables"
    d = margin * (mean + spread * NOISE)
    c = check(key, versus(a, b, metric, study=study)(d))
    assert c.holds == holds, c.evidence
    assert c.margin == margin and c.n_seeds == 5


def test_whether_the_layer_that_moved_most_is_the_last():
    a, b = (f"{LAYERS};keep={k}" for k in ("moved", "last"))
    table = lambda d, seeds: versus(a, b, study="layers")(d)[lambda t: t.seed < seeds]
    last = "moved-always-last-digits"
    c = check(last, table(0, 5))
    assert c.holds == "yes" and "in 5 of 5 seeds" in c.evidence
    c = check(last, table(np.array([0, 0, 0, 1e-3, 0]), 5))
    assert c.holds == "no" and "in 4 of 5 seeds" in c.evidence
    assert check(last, table(0, 4)).holds == "not testable"


def test_where_losses_do_not_meet_sharpness_is_not_compared():
    key = "flatter-than-fedavg-at-like-loss-area-digits"
    table = PATTERNS[key][1](0.5 + 0.01 * NOISE)
    ratio = table.metric == "like_loss_area"
    c = check(key, table[~ratio | (table.seed < 3)])
    assert c.holds == "not testable" and "meet for 3 of 5 seeds" in c.reason
    c = check(key, table[~ratio])
    assert c.holds == "not testable" and "meet for 0 of 5 seeds" in c.reason


# ---------------------------------------------------------------- hypernetworks
def behind(points, m=GHN):
    """A method that far behind clients that train alone."""
    return runs({f"{m}|{at(OWN, 10)}": 80 - points, f"Local|{at(OWN, 10)}": 80})


@pytest.mark.parametrize("points, holds", [(4.9, "no"), (5.1, "not testable")])
@pytest.mark.parametrize("m", ["pFedHN", GHN])
def test_a_hypernetwork_far_behind_training_alone_is_not_judged(points, holds, m):
    values = {GHN: 50 + 0.1 * NOISE}
    low = cell(OWN, values, metric=FIFTH)
    low = low[low.method.isin(["pFedHN", GHN])]
    own = low[low.method == "pFedHN"].assign(setting=at(OWN, 10, "epochs=10"))
    other = ({"pFedHN", GHN} - {m}).pop()
    table = pd.concat([low, own, behind(points, m), behind(0, other)])
    table = table.drop_duplicates(["method", "setting", "metric", "seed"])
    plain = table[(table.metric == MEAN) & (table.method == "pFedHN")]
    more = plain.assign(setting=at(OWN, 10, "epochs=10"))
    c = check("ghn-beyond-two-steps-lowest20-digits-c_10", pd.concat([table, more]))
    assert c.holds == holds, c.evidence
    assert (f"{m} is under-trained" in c.reason) == (holds == "not testable")


def test_who_else_decides_is_heard():
    """GRep that is behind a rival refutes; GHN under-trained leaves GRep's yes."""
    ahead = {GREP: 85 + 0.1 * NOISE, GHN: 60}
    local = runs({f"Local|{at(OWN, 10)}": 80})
    good = pd.concat([cell(OWN, ahead), local])
    assert check("personalised-mean-digits-c_10", good).holds == "yes"
    bad = pd.concat([cell(OWN, ahead | {GREP: 70 + 0.1 * NOISE}), local])
    c = check("personalised-mean-digits-c_10", bad)
    assert c.holds == "not testable" and "under-trained" in c.reason
    grep = pd.concat([bad, cell(OWN, ahead | {GREP: 70 + 0.1 * NOISE}, 100)])
    grep = pd.concat([grep, runs({f"Local|{at(OWN, 100)}": 80})])
    assert check("grep-above-baselines-mean-digits", grep).holds == "no"


def test_a_sweep_is_judged_by_the_plain_run_of_its_cohort():
    key = "ghn-rho-inner-mean-cifar10-personalised-model"
    values = {0.01: 40, 0.05: 50 + 0.1 * NOISE, 0.5: 30}
    table = sweep("rho", values, "rho", GHN, place="CIFAR10")
    at_home = lambda points: behind(points).assign(dataset="CIFAR10")
    assert check(key, pd.concat([table, at_home(1)])).holds == "yes"
    assert check(key, pd.concat([table, at_home(6)])).holds == "not testable"


# ----------------------------------------------------- the paper against its own tables
def printed(key, reported=REPORTED):
    none = ledger.parts(ROOT / "no such folder", "seeds", REPORTED)
    return check_claims([CLAIMS[f"printed-{key}"]], none, reported).iloc[0]


def test_the_papers_own_numbers():
    """Readable in the tables; each is an entry of the list of contradictions."""
    keys = [k.removeprefix("printed-") for k, c in CLAIMS.items() if c.printed]
    found = {k: printed(k).holds for k in keys}
    assert {k for k, h in found.items() if h == "yes"} == {"gain-lowest5", "rho-mean"}
    own = printed("above-baselines").evidence
    assert "holds in 10 of 15" in own and own.count("PLGU-LF") == 5
    assert "holds in 83 of 84" in printed("between").evidence
    assert "K=10" in printed("between").evidence
    assert printed("gain-mean").evidence.count("against") == 4
    assert printed("everybody-above-75").evidence.count("lowest 5%") == 6
    assert printed("k-mean").tier == "exact"
    assert printed("k-mean", None).holds == "not run"


LAST = {
    "artefact": "Table 3",
    "method": GHN,
    "setting": "personalised model; C=10; K=10; rho=0.05",
}


def changed(where, value):
    """REPORTED with another number where columns have these values."""
    table = REPORTED.copy()
    hit = pd.concat([table[c] == x for c, x in where.items()], axis=1).all(axis=1)
    assert hit.any()
    table.loc[hit & (table.paper == "plgu"), "reported"] = value
    return table


@pytest.mark.parametrize(
    "key, where, value",
    [
        ("k-mean", LAST | {"metric": MEAN}, "70.0"),
        ("between", LAST | {"metric": LOW}, "70.0"),
        (
            "toy-example",
            {"artefact": "Figure 1 text", "method": "FedRep", "metric": MEAN},
            "71.32",
        ),
        (
            "everybody-above-75",
            {"artefact": "Table 2", "metric": LOW, "dataset": "CIFAR10"},
            "80.0",
        ),
        (
            "above-baselines",
            {"artefact": "Table 2", "method": LF, "metric": MEAN},
            "90.0",
        ),
        ("gain-mean", {"artefact": "Table 1", "method": LF, "metric": MEAN}, "90.0"),
    ],
)
def test_a_paper_that_agrees_with_itself(key, where, value):
    assert printed(key).holds == "no"
    assert printed(key, changed(where, value)).holds == "yes"


def test_one_large_number_would_refute_the_best_rho():
    large = {"artefact": "Table 4", "metric": MEAN}
    large |= {"setting": "personalised model; C=10; K=5; rho=0.5", "method": GREP}
    c = printed("rho-mean", changed(large, "99"))
    assert c.holds == "no" and c.evidence.startswith("holds in 3 of 4")


# ------------------------------------------------------- from seeds to the paper's rows


def test_settings_are_taken_and_called():
    t = pd.concat(
        [
            runs({f"FedRep|{at(OWN, C, *more)}": 70}, m)
            for C in (10, 100)
            for more in ((), ("epochs=10",))
            for m in (MEAN, LOW)
        ]
        + [runs({PUSHED: 60})]
    )
    base = {
        "artefact": "Figure 1 text",
        "metrics": [MEAN],
        "rule": "last10_mean",
    }
    got = ledger.cells(t, "plgu", settings={at(OWN, 10): OWN}, **base)
    assert set(got.setting) == {OWN, f"{OWN};epochs=10"}
    plain = got[got.setting == OWN].iloc[0]
    assert (
        plain.key == "plgu-figure-1-text-digits-fedrep-personalised-model-acc_mean_pct"
    )
    assert set(ledger.cells(t, "plgu", settings=[GLOBAL], **base).method) == {LF}
    assert len(ledger.cells(t, "plgu", **base)) == 5
    with pytest.raises(ResultError, match="nothing for plgu"):
        ledger.cells(t, "plgu", settings=["no such view"], **base)


def test_keys_of_ours_are_the_printed_ones():
    """Settings as the studies write them, without blanks,
    give the keys of reported.csv.
    """
    for r in REPORTED[REPORTED.paper == "plgu"].itertuples():
        assert (
            ledger.key(
                "plgu",
                r.artefact,
                r.dataset,
                r.method,
                r.metric,
                r.setting.replace("; ", ";"),
            )
            == r.key
        )


def test_the_lowest_of_three_methods():
    t = pd.concat(
        [
            runs({f"{m}|{at(OWN, 10)}": v + NOISE}, LEAST, "CIFAR10")
            for m, v in zip(PLGU, (60, 50, 70))
        ]
        + [runs({BARE: 10, f"{LF}|{at(OWN, 100)}": 1}, LEAST, "CIFAR10")]
    )
    got = ledger.lowest(t, PLGU)
    new = got[got.method == ", ".join(PLGU)]
    assert (
        len(new) == 5
        and set(new.setting) == {at(OWN, 10)}
        and list(new.value) == [50 + n for n in NOISE]
    )
    (made,) = ledger.cells(
        got,
        "plgu",
        "Figure 6 text",
        methods=[", ".join(PLGU)],
        settings={at(OWN, 10): OWN},
        rule="last10_mean",
    ).key
    assert made in set(REPORTED.key)
    with pytest.raises(ResultError, match="each of"):
        ledger.lowest(t[t.method != GHN], PLGU)


def test_the_best_number_of_layers():
    t = pd.concat(
        [
            sweep("D", dict(zip((0, 1, 5, 21), x)), "D", LF, view, "CIFAR10")
            for view, x in ((GLOBAL, (70, 70, 72, 74)), (OWN, (80, 90, 89, 70)))
        ]
    )
    got = ledger.peak(t)
    new = got[got.rule == "run"]
    assert set(new.setting) == {"global and personalised model"}
    assert set(new[new.metric == "best_D"].value) == {5} and set(
        new[new.metric == "largest_D"].value
    ) == {21}
    assert set(
        ledger.cells(
            new,
            "plgu",
            "Figure 5 text",
            rule="last10_mean",
        ).key
    ) <= set(REPORTED.key)
    with pytest.raises(ResultError, match="two values of D"):
        ledger.peak(t[t.setting.str.startswith(GLOBAL)])
    with pytest.raises(ResultError, match="mix the rules last, last10_mean"):
        ledger.peak(pd.concat([t, t.assign(rule="last")]))


def test_the_gain_over_the_best_baseline():
    t = pd.concat(
        [cell(GLOBAL, {LF: 84}, C, rivals=80 + C / 100) for C in (10, 100)]
        + [cell(OWN, {LF: 70}, 10)]
    )
    got = ledger.lead(
        t, LF, RIVALS[GLOBAL], LF, MEAN, "gain_mean_pct_points_over_best_baseline"
    )
    new = (
        got[got.metric == "gain_mean_pct_points_over_best_baseline"]
        .groupby("setting")
        .value.mean()
    )
    assert new.round(6).to_dict() == {
        at(GLOBAL, 10): 3.9,
        at(GLOBAL, 100): 3.0,
        at(OWN, 10): -10.0,
    }


# --------------------------------------------------------------- what params.yaml plans

VIEWS = {
    "FedAvg": (GLOBAL,),
    "FedSAM": (GLOBAL,),
    "Ditto": (GLOBAL, OWN),
    "pFedMe": (GLOBAL, OWN),
    LF: (GLOBAL, OWN, NOW),
}
AGAINST = {  # study flatness: who is compared at like loss, and with whom
    LF: {
        GLOBAL: ("FedAvg", "FedSAM", "unperturbed"),
        OWN: ("Ditto", "unperturbed", "global"),
    },
    "FedSAM": {GLOBAL: ("FedAvg",)},
}
AXES = {"D": "D", "D_digits": "D", "K": "K", "rho": "rho"}


def ends(c, study):
    """What the notebooks write behind the view."""
    kw = json.loads(c.kwargs)
    if study not in AXES:
        return c.setting
    K = (
        kw["head_epochs"]
        if c.method == GREP and "head_epochs" in kw
        else 5
        if c.method == GREP
        else kw["epochs"]
    )
    return (
        f"C=10;D={kw['D']}"
        if AXES[study] == "D"
        else f"C=10;K={K};rho={kw.get('rho', 0.05)}"
    )


@pytest.fixture(
    scope="module", params=[pytest.param("small", marks=pytest.mark.full), "paper"]
)
def planned(request):
    """Invented numbers for every run that params.yaml plans at a tier."""
    out = []
    entries = studies.load(ROOT / "params.yaml")["plgu"]["studies"]
    # the gates are published beside the claims
    for study in [s for s in entries if s != "gate"]:
        for c in studies.cells("plgu", study, ROOT / "params.yaml", request.param)[0]:
            views = VIEWS.get(c.method, (OWN,))
            for view in (
                (*views, ALONE) if study == "flatness" and c.method == LF else views
            ):
                base = {
                    "dataset": c.dataset,
                    "method": c.method,
                    "setting": ";".join(filter(None, (view, ends(c, study)))),
                    "seed": c.seed,
                    "study": study,
                    "data": c.data,
                    "value": float(len(c.method)),
                    "paper": "plgu",
                    "tier": request.param,
                }
                if study == "flatness":
                    out += [base | {"metric": m, "rule": "run"} for m in SHARPNESS]
                    out += [
                        base
                        | {"metric": m, "rule": "run", "setting": f"{view};against={r}"}
                        for m in ("like_loss_area", "like_loss_lambda_max")
                        for r in AGAINST.get(c.method, {}).get(view, ())
                        if c.setting == "age=whole"
                    ]
                else:
                    out += [
                        base | {"metric": m, "rule": r}
                        for m in (MEAN, LOW, FIFTH, TOP, LEAST, POOR)
                        for r in ("last10_mean", "last")
                    ]
                    out += [base | {"metric": "early_mean_acc_pct", "rule": "run"}]
    return pd.DataFrame(out)


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(list(CLAIMS.values()), planned, REPORTED)
    assert (
        list(t.key[t.holds == "not run"]) == []
        and not t.evidence.str.contains("not run").any()
    )


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    entries = [d for d in claims.read_deviations() if d["id"].startswith("PLGU-")]
    e = claims.effects(entries, planned)
    assert len(e) > 20 and list(e.key[e.evidence == "not run"]) == []


def test_the_planned_runs_can_be_stored(planned):
    """Every method and data set of the studies is known to the ledger."""
    assert len(ledger.check(planned, "seeds", REPORTED)) == len(planned)


def test_every_printed_number_of_the_tables_is_planned(planned):
    """Tables 1 to 4: a cell of ours for each of the paper's."""
    parts = {
        "Table 1": ("tables", [GLOBAL]),
        "Table 2": ("tables", [OWN]),
        "Table 3": ("K", None),
        "Table 4": ("rho", None),
    }
    for artefact, (study, views) in parts.items():
        ours = ledger.cells(
            planned[planned.study == study],
            "plgu",
            artefact,
            settings=views,
            rule="last10_mean",
        )
        want = set(
            REPORTED[(REPORTED.paper == "plgu") & (REPORTED.artefact == artefact)].key
        )
        assert want <= set(ours.key)


def test_headline(planned, tmp_path):
    ledger.save(planned, "seeds", "plgu-x", tmp_path)
    claims.headline(
        tmp_path,
        check_claims([CLAIMS["global-mean-digits-c_10"]], planned),
        ledger.parts(tmp_path, "seeds", REPORTED),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())["plgu"]
    assert set(found) == set(papers.main_datasets("plgu")) - {"none"} and set(
        found["TinyImageNet"]
    ) == {at(v, 20) for v in (GLOBAL, OWN, NOW)}
    assert found["digits"][at(OWN, 10)][GREP] == {LOW: 9.0, FIFTH: 9.0, MEAN: 9.0}
    assert found["digits"][at(NOW, 10)] == {LF: {LOW: 7.0, FIFTH: 7.0, MEAN: 7.0}}


# ------------------------------------------------------------------ artefacts


def test_figures_tables_algorithms_and_theorems_are_listed():
    listed = {a.name for a in artefacts.listed() if a.paper == "plgu"}
    assert {
        *(f"Figure {i}" for i in range(1, 8)),
        *(f"Table {i}" for i in range(1, 5)),
        *(f"Algorithm {i}" for i in range(1, 4)),
        "Theorem 1",
        "Theorem 2",
    } | set(REPORTED[REPORTED.paper == "plgu"].artefact) == listed
