"""EquFL's claims and deviations: invented runs in which the paper is right, wrong,
undecided, and which params.yaml plans.
"""

import json

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from fedlib.measures import bias
from fedlib.study import studies
from repro import artefacts, claims, ledger, papers
from repro.claims import NotRun, check_claims

TARGETS = papers.module("equfl", "targets")
OURS = papers.module("equfl", "claims")
CENSUS = OURS.CENSUS
CLAIMS = OURS.CLAIMS
LETTER = OURS.LETTER
LOSS = OURS.LOSS
MOVES = OURS.MOVES
NOISE = OURS.NOISE
PLACES = OURS.PLACES
RIVALS = OURS.RIVALS
RULES = OURS.RULES
SCORES = OURS.SCORES
SHARE = OURS.SHARE
SIGMAS = OURS.SIGMAS
SIMPLE = OURS.SIMPLE
STORED = OURS.STORED
swept = OURS.swept
REPORTED = ledger.read_reported()
MINE = REPORTED[REPORTED.paper == "equfl"]
SHAKE = (-0.002, 0.001, 0.0, 0.003, -0.002)  # what seeds share: pairing removes it
OPEN = (-0.6, 0.6, -0.6, 0.6, 0.0)  # what no pairing removes


def rows(
    method,
    value,
    setting="",
    metric="EO",
    place="Income-Sex",
    study="",
    noise=SHAKE,
    **more,
):
    """One run's rows, a seed each."""
    base = {
        "paper": "equfl",
        "study": study or papers.main_study("equfl", place),
        "dataset": place,
        "method": method,
        "setting": setting,
        "metric": metric,
        "rule": "last10_mean",
        "data": "synthetic",
        "tier": "small",
    } | more
    return pd.DataFrame(
        [base | {"seed": s, "value": value + n} for s, n in enumerate(noise)]
    )


NAMED = {c.key: c for c in CLAIMS}


def one(key, *tables):
    return check_claims([NAMED[f"equfl-{key}"]], pd.concat(tables), REPORTED).iloc[0]


def flips(key, *tables, good, bad):
    """Yes with the rows `good`, no with `bad`, undecided with one seed or where the
    seeds disagree, not run without.
    """
    assert one(key, *good, *tables).holds == "yes", one(key, *good, *tables).evidence
    assert one(key, *bad, *tables).holds == "no", one(key, *bad, *tables).evidence
    single = pd.concat([*good, *tables])
    assert one(key, single[single.seed == 0]).holds == "undecided"
    wide = [t.assign(value=t.value + np.resize(OPEN, len(t))) for t in good]
    assert one(key, *wide, *tables).holds == "undecided"
    assert one(key, *tables).holds == "not run"


def pair(metric, a, b, low=0.1, high=0.3):
    """Rows of runs a and b, keywords of `rows`:
    a good pair, in which a is lower, and a bad one.
    """
    return (
        [rows(**a, value=low, metric=metric)],
        [rows(**a, value=high + high - low, metric=metric)],
        [rows(**b, value=high, metric=metric)],
    )


def compare(key, metric, a, b, holds=("yes", "no")):
    """Claims that say run a is lower than run b."""
    good, bad, other = pair(metric, a, b)
    if holds == ("no", "yes"):
        good, bad = bad, good
    flips(key, *other, good=good, bad=bad)


# ------------------------------------------------------------------ the list


def test_claims_about_the_census_are_ours():
    assert {c.by for c in CLAIMS if c.place == "census"} == {"ours"}
    assert {c.artefact for c in CLAIMS} <= artefacts.names(REPORTED)["equfl"]
    assert len({c.key for c in CLAIMS}) == len(CLAIMS) == len({c.text for c in CLAIMS})
    # one sentence each
    assert all(
        c.text.endswith(".") and c.text.rstrip(".").count(". ") == 0 for c in CLAIMS
    )


def test_every_artefact_with_numbers_or_curves_has_a_claim_of_the_paper():
    mine = {c.artefact for c in CLAIMS if c.by == "paper"}
    # nothing said but numbers
    assert set(MINE.artefact) - mine == {"Table I", "text VI", "text settings"}
    assert {"Figure 1", "Figure 2", "Figure 3", "Figure 4", "Figure 5"} <= mine


def test_shares_losses_and_storage_are_the_printed_ones():
    number = MINE.assign(
        value=pd.to_numeric(MINE.reported), percent=pd.to_numeric(MINE.improvement_pct)
    )
    for p in PLACES:
        bias_ = number[
            (number.artefact == f"Table II({LETTER[p]})") & (number.dataset == p)
        ]
        assert (
            dict(zip(SCORES, SHARE[p]))
            == bias_[bias_.method == "EquFL"].set_index("metric").percent.to_dict()
        )
        assert {*RIVALS} == {
            {v: k for k, v in TARGETS.PRINTED.items()}.get(m, m) for m in bias_.method
        } - {"FedAvg", "EquFL"}
        t = number[(number.artefact == f"Table III({LETTER[p]})")].pivot(
            index="setting", columns="method", values="value"
        )
        for m, loss in zip(SCORES, LOSS[p]):
            assert round(t.FedAvg[f"target={m}"] - t.EquFL[f"target={m}"], 4) == loss
        stored = (
            number[(number.artefact == "Table XI") & (number.dataset == p)]
            .set_index("metric")
            .value
        )
        assert STORED[p] == (stored.global_models_MB, stored.synthetic_dataset_MB)
    t = number[number.artefact == "Table VI"].pivot(
        index="method", columns="metric", values="value"
    )
    for aim, moves in MOVES.items():
        for m, way in moves.items():
            if (aim, m) != ("CAL", "DP"):  # 0.7122 for 0.0712
                assert way == (
                    "lowers" if t[m][f"EquFL-{aim}"] < t[m]["FedAvg"] else "raises"
                )


# ------------------------------------------------------------------ Tables II and III


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("m", SCORES)
def test_lowered_and_by_how_much(place, m):
    end, aim, base = (
        f"{m.lower()}-{ledger.slug(place)}",
        {"method": "EquFL", "setting": f"target={m}"},
        {"method": "FedAvg"},
    )
    compare(f"lowered-{end}", m, aim | {"place": place}, base | {"place": place})
    share = dict(zip(SCORES, SHARE[place]))[m]
    fed, flat = (
        rows("FedAvg", 0.4, metric=m, place=place, noise=(0.0,) * 5),
        {"metric": m, "place": place, "noise": (0.0,) * 5},
    )
    near = [
        rows("EquFL", 0.4 * (1 - (share + d) / 100), f"target={m}", **flat)
        for d in (1, -1)
    ]
    assert [one(f"share-{end}", fed, x).holds for x in near] == ["yes", "no"]
    assert (
        f"claimed {share:g}%, lower than that by -"
        in one(f"share-{end}", fed, near[1]).evidence
    )


def test_a_run_for_another_target_is_no_evidence():
    t = [rows("FedAvg", 0.3, metric="EO"), rows("EquFL", 0.1, "target=DP", "EO")]
    assert (
        one("lowered-eo-income-sex", *t).holds == "not run"
        and one("aim-dp-lowers-eo-income-sex", *t).holds == "yes"
    )


def rivals(metric, place, value, setting="", study="", change=None):
    return [
        rows(r, (change or {}).get(r, value), setting, metric, place, study)
        for r in RIVALS
    ]


@pytest.mark.parametrize("place", ["Income-Sex", "MNIST"])
@pytest.mark.parametrize("m", SCORES)
def test_best(place, m):
    key = f"best-{m.lower()}-{ledger.slug(place)}"
    mine = rows("EquFL", 0.1, f"target={m}", m, place)
    assert one(key, mine, *rivals(m, place, 0.2)).holds == "yes"
    got = one(key, mine, *rivals(m, place, 0.2, change={"Reweight": 0.05}))
    assert got.holds == "no" and "Reweight" in got.evidence
    some = one(key, mine, *rivals(m, place, 0.2)[:-1])
    assert some.holds == "undecided" and "not run: uniform noise" in some.evidence


def all_places(value, change=()):
    """Every method on every data set, EquFL for every target; change:
    {(place, metric): EquFL's score}.
    """
    out = []
    for p in PLACES:
        for m in SCORES:
            mine = dict(change).get((p, m), value)
            out += [
                rows("EquFL", mine, f"target={m}", m, p),
                rows("FedAvg", 0.4, metric=m, place=p),
                *rivals(m, p, 0.3),
            ]
    return out


def test_everywhere():
    keys = ("best-everywhere", "lowered-everywhere")
    assert [one(k, *all_places(0.1)).holds for k in keys] == ["yes", "yes"]
    assert [one(k, *all_places(0.1, {("MNIST", "DP"): 0.35})).holds for k in keys] == [
        "no",
        "yes",
    ]
    got = [one(k, *all_places(0.1, {("MNIST", "DP"): 0.5})) for k in keys]
    assert [g.holds for g in got] == ["no", "no"] and "DP MNIST" in got[1].evidence


@pytest.mark.parametrize("place", PLACES)
def test_accuracy(place):
    end, of = (
        ledger.slug(place),
        {"metric": "accuracy", "place": place, "noise": (0.0,) * 5},
    )
    fed = [rows(m, v, **of) for m, v in (("FedAvg", 0.9), *((n, 0.7) for n in NOISE))]

    def cost(*d):
        return [rows("EquFL", 0.9 - x, f"target={m}", **of) for m, x in zip(SCORES, d)]

    printed = LOSS[place]
    assert (
        one(f"accuracy-kept-{end}", *fed, *cost(*(x - 1e-4 for x in printed))).holds
        == "yes"
    )
    got = one(
        f"accuracy-kept-{end}",
        *fed,
        *cost(*(x - 1e-4 for x in printed[:3]), printed[3] + 1e-4),
    )
    assert got.holds == "no" and "(CON)" in got.evidence
    assert [
        one(f"accuracy-not-reduced-{end}", *fed, *cost(*(x,) * 4)).holds
        for x in (0.004, 0.006)
    ] == ["yes", "no"]
    for n in NOISE:
        assert [
            one(f"{ledger.slug(n)}-costs-more-{end}", *fed, *cost(*(x,) * 4)).holds
            for x in (0.1, 0.3)
        ] == ["yes", "no"]


@pytest.mark.parametrize("n", NOISE)
def test_noise_is_no_remedy(n):
    fed = [rows("FedAvg", 0.4, metric=m) for m in SCORES]
    low, mixed = (
        [rows(n, 0.3 if m != "CON" else con, metric=m) for m in SCORES]
        for con in (0.3, 0.5)
    )
    assert one(f"{ledger.slug(n)}-no-remedy-income-sex", *fed, *mixed).holds == "yes"
    assert one(f"{ledger.slug(n)}-no-remedy-income-sex", *fed, *low).holds == "no"


# ------------------------------------------------------------------ Tables IV to X


@pytest.mark.parametrize("m", SCORES)
def test_variants(m):
    end, fed = f"{m.lower()}-income-sex", {"method": "FedAvg"}

    def aim(*how, study="", target=m):
        return {"method": "EquFL", "setting": ";".join((f"target={target}", *how))} | (
            {"study": study} if study else {}
        )

    for printed, ours in RULES.items():
        compare(
            f"{ledger.slug(printed)}-{end}",
            m,
            aim(f"rule={ours}", study="rules"),
            fed | {"setting": f"rule={ours}", "study": "rules"},
        )
    for k in (2, 3):
        how = {"setting": f"labels_per_client={k}", "study": "labels", "place": "MNIST"}
        mine = {
            "method": "EquFL",
            **how,
            "setting": f"labels_per_client={k};target={m}",
        }
        compare(f"labels-{k}-{m.lower()}-mnist", m, mine, fed | how)
        x = {v: rows(**mine, value=v, metric=m) for v in (0.1, 0.5)}
        others = rivals(m, "MNIST", 0.2, how["setting"], "labels")
        assert [
            one(f"labels-{k}-best-{m.lower()}-mnist", x[v], *others).holds
            for v in (0.1, 0.5)
        ] == ["yes", "no"]
    for net in ("deep", "wide", "same"):
        compare(f"net-{net}-{end}", m, aim(f"net={net}", study="switches"), fed)
    early = aim("collect=continuous", study="switches")
    compare(f"early-{end}", m, early, aim("collect=discrete", study="switches"))
    compare(f"early-rehearsed-{end}", m, early, aim(study="rewind"))
    regular = {"method": "Regular", "setting": f"target={m}", "study": "switches"}
    compare(f"beats-regular-{end}", m, aim(), regular)
    compare(f"regular-minor-{end}", m, regular, fed, ("no", "yes"))
    compare(
        f"mgda-beats-sum-{end}",
        m,
        aim(study="switches", target="Multi"),
        aim(study="switches", target="Sum"),
    )
    for other, way in MOVES[m].items():
        compare(
            f"aim-{m.lower()}-{way}-{other.lower()}-income-sex",
            other,
            aim(),
            fed,
            ("yes", "no") if way == "lowers" else ("no", "yes"),
        )


def test_a_small_gain_by_the_regulariser_is_minor():
    fed = rows("FedAvg", 0.4, noise=(0.0,) * 5)
    t = {
        v: rows("Regular", v, "target=EO", study="switches", noise=(0.0,) * 5)
        for v in (0.33, 0.31)
    }
    assert [one("regular-minor-eo-income-sex", fed, x).holds for x in t.values()] == [
        "yes",
        "no",
    ]


@pytest.mark.parametrize("net", ["deep", "wide", "same"])
def test_networks_alike(net):
    t = [
        rows("FedAvg", 0.4, noise=(0.0,) * 5),
        rows("EquFL", 0.2, "target=EO", noise=(0.0,) * 5),
    ]
    other = {
        v: rows("EquFL", v, f"target=EO;net={net}", study="switches", noise=(0.0,) * 5)
        for v in (0.23, 0.17, 0.25, 0.15)
    }
    assert [
        one(f"net-{net}-alike-eo-income-sex", *t, x).holds for x in other.values()
    ] == ["yes", "yes", "no", "no"]
    assert one(f"net-{net}-alike-eo-income-sex", *t).holds == "not run"
    fair = rows("FedAvg", 0.0, noise=(0.0,) * 5)  # nothing to improve
    assert (
        one(f"net-{net}-alike-eo-income-sex", fair, t[1], other[0.23]).holds
        == "not run"
    )


def test_all_metrics_at_once_and_conflict():
    fed = [rows("FedAvg", 0.4, metric=m) for m in SCORES]
    good, bad = (
        [
            rows(
                "EquFL", 0.3 if m != "CAL" else cal, "target=Multi", m, study="switches"
            )
            for m in SCORES
        ]
        for cal in (0.3, 0.5)
    )
    assert one("multi-lowers-all-income-sex", *fed, *good).holds == "yes"
    got = one("multi-lowers-all-income-sex", *fed, *bad)
    assert got.holds == "no" and "(CAL)" in got.evidence
    runs = [rows("EquFL", 0.3, f"target={t}", m) for t in SCORES for m in SCORES]
    assert one("targets-conflict-income-sex", *fed, *runs).holds == "no"
    worse = [
        t.assign(value=t.value + 0.2)
        if (t.setting.iloc[0], t.metric.iloc[0]) == ("target=CON", "EO")
        else t
        for t in runs
    ]
    assert one("targets-conflict-income-sex", *fed, *worse).holds == "yes"


def test_the_regulariser_may_collapse():
    of = {"metric": "accuracy", "noise": (0.0,) * 5}
    fed = rows("FedAvg", 0.8, **of)
    t = {
        v: [
            rows(
                "Regular",
                v if m == "EO" else 0.8,
                f"target={m}",
                study="switches",
                **of,
            )
            for m in SCORES
        ]
        for v in (0.6, 0.795)
    }
    assert [one("regular-collapses-income-sex", fed, *x).holds for x in t.values()] == [
        "yes",
        "no",
    ]


# ----------------------------------------------------------------- noise, cost, storage


def private(method, values, metric="EO", target=""):
    return [
        rows(
            method,
            v,
            ";".join(filter(None, (target, f"sigma={s}"))),
            metric,
            study="private",
        )
        for s, v in zip(SIGMAS, values)
    ]


@pytest.mark.parametrize(
    "values, below, same, raised",
    [
        ((0.12, 0.14, 0.16), "yes", "yes", "yes"),
        ((0.12, 0.14, 0.5), "no", "no", "yes"),
        ((0.12, 0.16, 0.14), "yes", "yes", "no"),
    ],
)
def test_private(values, below, same, raised):
    t = [
        rows("FedAvg", 0.3),
        rows("EquFL", 0.1, "target=EO"),
        *private("FedAvg", (0.2, 0.25, 0.45)),
        *private("EquFL", values, target="target=EO"),
    ]
    keys = ("private-eo", "private-same-noise-eo", "noise-raises-eo")
    assert [one(f"{k}-income-sex", *t).holds for k in keys] == [below, same, raised]


@pytest.mark.parametrize(
    "values, holds",
    [((0.78, 0.76, 0.7), "yes"), ((0.78, 0.7, 0.76), "no"), ((0.82, 0.76, 0.7), "no")],
)
def test_noise_costs_accuracy(values, holds):
    t = [rows("FedAvg", 0.8, metric="accuracy"), *private("FedAvg", values, "accuracy")]
    assert one("noise-costs-accuracy-income-sex", *t).holds == holds


@pytest.mark.parametrize("ratio, holds", [(1.1, "yes"), (1.5, "no")])
def test_cost(ratio, holds):
    t = rows(
        "EquFL-EO",
        ratio,
        metric="seconds_over_fedavg",
        study="cost",
        rule="run",
        data="stand-in",
    )
    assert one("cost-similar-income-sex", t).holds == holds


@pytest.mark.parametrize("place", PLACES)
def test_storage(place):
    models, synthetic = STORED[place]
    for x, y, holds in (
        (models, synthetic, "yes"),
        (1.1 * models, synthetic, "no"),
        (models, 0.5 * synthetic, "no"),
    ):
        t = [
            rows(
                "EquFL",
                v,
                "server storage",
                m,
                place,
                "storage",
                rule="run",
                noise=(0,),
                tier="exact",
            )
            for m, v in (("global_models_MB", x), ("synthetic_dataset_MB", y))
        ]
        assert one(f"storage-{ledger.slug(place)}", *t).holds == holds


# ------------------------------------------------------------------ sweeps

DEFAULT = {"rho": 0.5, "lam": 1, "size": 1000}
STUDY = {"rho": "fraction", "lam": "strength", "size": "size", "C": "clients"}


def sweep(axis, percent, method="EquFL", metric="EO", noise=(0.0,) * 5):
    """Runs along an axis that improve by so many percent: {value: percent}, the default
    in the main study, and FedAvg's.
    """
    place, out = "MNIST" if axis == "C" else "Income-Sex", []
    aim = f"target={metric}" if method == "EquFL" else ""
    for k, p in percent.items():
        how = f"{axis}={k};{aim}" if axis in ("C", "size") else f"{aim};{axis}={k}"
        at = (
            {"study": "", "setting": aim}
            if k == DEFAULT.get(axis)
            else {"study": STUDY[axis], "setting": how.strip(";")}
        )
        out.append(
            rows(
                method,
                0.4 * (1 - p / 100),
                metric=metric,
                place=place,
                noise=noise,
                **at,
            )
        )
        if axis == "C" and method == "EquFL":
            out.append(
                rows(
                    "FedAvg", 0.4, f"C={k}", metric, place, "clients", noise=(0.0,) * 5
                )
            )
    if axis != "C" and method == "EquFL":
        out.append(rows("FedAvg", 0.4, metric=metric, noise=(0.0,) * 5))
    return out


def test_swept_takes_the_default_and_keeps_the_order_of_numbers():
    t = pd.concat(
        [
            *sweep("size", {100: 10, 1000: 30, 250: 20}),
            rows("EquFL", 0.1, "target=EO;source=start", study="size"),
            *sweep("C", {200: 5, 5: 7}),
        ]
    )
    v = claims.Values.of(t)
    x = swept(v, "EO", "EquFL", "size")
    assert list(x) == [100, 250, 1000] and [round(s.mean()) for s in x.values()] == [
        10,
        20,
        30,
    ]
    assert {k: round(s.mean()) for k, s in swept(v, "EO", "EquFL", "C").items()} == {
        5: 7,
        200: 5,
    }
    with pytest.raises(
        NotRun, match="strength Income-Sex EquFL EO at two values of lam"
    ):
        swept(v, "EO", "EquFL", "lam")
    with pytest.raises(NotRun):
        swept(v, "EO", "Gaussian-update", "size")


@pytest.mark.parametrize("m", SCORES)
@pytest.mark.parametrize("axis", STUDY)
def test_along_an_axis(axis, m):
    place, values = (
        ("mnist", (5, 10, 50))
        if axis == "C"
        else (
            "income-sex",
            {"rho": (0.2, 0.5, 0.8), "lam": (0.25, 1, 4), "size": (100, 1000, 2000)}[
                axis
            ],
        )
    )
    end, key = f"{m.lower()}-{place}", ledger.slug(axis) if axis != "C" else "C"

    def made(*percent, method="EquFL"):
        return sweep(axis, dict(zip(values, percent)), method, m)

    assert [
        one(f"helps-at-every-{key}-{end}", *made(*p)).holds
        for p in ((30, 20, 25), (30, -5, 25))
    ] == ["yes", "no"]
    if axis in ("rho", "C"):
        got = [
            one(f"stable-along-{key}-{end}", *made(*p)).holds
            for p in ((30, 32, 28), (30, 30, 60))
        ]
        assert got == ["yes", "no"]
        assert (
            one(
                f"stable-along-{key}-{end}", *(t[t.seed == 0] for t in made(30, 32, 28))
            ).holds
            == "undecided"
        )
    if axis != "size":
        noisy = RIVALS if axis == "C" else NOISE
        other = [t for r in noisy for t in made(15, 10, 12, method=r)]
        worse = [t for r in noisy for t in made(15, 25, 12, method=r)]
        assert [
            one(f"ahead-at-every-{key}-{end}", *made(30, 20, 25), *x).holds
            for x in (other, worse)
        ] == ["yes", "no"]
        lacking = one(f"ahead-at-every-{key}-{end}", *made(30, 20, 25), *other[:3])
        assert lacking.holds == "undecided" and "not run" in lacking.evidence
    if axis == "rho":
        for r in NOISE:
            got = [
                one(
                    f"{ledger.slug(r)}-wilder-{end}",
                    *made(30, 20, 25),
                    *made(*p, method=r),
                ).holds
                for p in ((40, 10, 0), (15, 12, 14))
            ]
            assert got == ["yes", "no"]
    if axis == "lam":
        both = [
            one(f"{k}-lambda-{end}", *made(*p)).holds
            for k in ("grows-with", "linear-in")
            for p in ((10, 20, 50), (30, 38, 32), (50, 20, 10))
        ]
        assert both == ["yes", "no", "no", "yes", "no", "no"]
        for r in NOISE:
            got = [
                one(
                    f"{ledger.slug(r)}-erratic-{end}",
                    *made(10, 20, 30),
                    *made(*p, method=r),
                ).holds
                for p in ((10, 20, 3), (10, 20, 30))
            ]
            assert got == ["yes", "no"]
    if axis == "size":
        sharp, flat = (
            [
                one(f"{k}-1000-{end}", *made(*p)).holds
                for p in ((10, 40, 42), (38, 40, 60))
            ]
            for k in ("sharp-to", "flat-from")
        )
        assert sharp == flat == ["yes", "no"]
        assert one(f"more-rows-help-{end}", *made(10, 40, 42)).holds == "not run"
        got = [
            one(
                f"more-rows-help-{end}",
                *sweep("size", {500: p, 1000: 40, 2000: 40}, metric=m),
            ).holds
            for p in (10, 60)
        ]
        assert got == ["yes", "no"]


def test_where_fedavg_has_no_bias_nothing_is_improved():
    t = [
        x if x.method.iloc[0] != "FedAvg" else x.assign(value=0.0)
        for x in sweep("rho", {0.2: 10, 0.5: 20})
    ]
    assert one("stable-along-rho-eo-income-sex", *t).holds == "not run"


# ------------------------------------------------------------------ controls of ours


@pytest.mark.parametrize("m", SCORES)
def test_what_the_matching_does(m):
    def mine(source=""):
        return {
            "method": "EquFL",
            "setting": f"target={m}" + f";source={source}" * bool(source),
        } | ({"study": "size"} if source else {})

    end = f"{m.lower()}-income-sex"
    compare(f"matching-helps-{end}", m, mine(), mine("start"))
    compare(f"start-helps-{end}", m, mine("start"), {"method": "FedAvg"})
    compare(f"real-rows-better-{end}", m, mine("real"), mine())


@pytest.mark.parametrize("place", CENSUS)
def test_simple_rivals(place):
    for r in SIMPLE:
        compare(
            f"{ledger.slug(r)}-lower-eo-{ledger.slug(place)}",
            "EO",
            {"method": r, "place": place},
            {"method": "EquFL", "setting": "target=EO", "place": place},
        )


@pytest.mark.parametrize("d, holds", [(0.0, "yes"), (0.05, "no"), (-0.05, "no")])
def test_a_noise_start_does_nothing(d, holds):
    t = [
        rows("FedAvg", 0.3),
        rows(
            "EquFL", 0.3 + d, "start=noise;labels=balanced;target=EO", study="readings"
        ),
    ]
    assert one("noise-start-does-nothing-income-sex", *t).holds == holds


@pytest.mark.parametrize("m", ["EO", "DP"])
def test_knobs_and_one_batch(m):
    def at(method, k):
        return {
            "method": method,
            "setting": f"knob={k}" + f";target={m}" * (method == "EquFL"),
            "place": "census",
        }

    end = f"{m.lower()}-census"
    fed = rows(**at("FedAvg", 0), value=0.02, metric=m)
    got = [
        one(
            f"no-bias-added-{end}", fed, rows(**at("EquFL", 0), value=v, metric=m)
        ).holds
        for v in (0.021, 0.06)
    ]
    assert got == ["yes", "no"]
    compare(f"knob-measured-{end}", m, at("FedAvg", 0), at("FedAvg", 1))
    for k in ("0.3", "1"):
        compare(f"knob-{k}-{end}", m, at("EquFL", k), at("FedAvg", k))
    single = {"study": "single"}
    compare(
        f"one-batch-{m.lower()}-income-sex",
        m,
        {"method": "EquFL", "setting": f"target={m}"} | single,
        {"method": "FedAvg"} | single,
    )
    of = {"metric": "accuracy", "study": "single"}
    t = {
        d: [
            rows("FedAvg", 0.8, **of),
            *(rows("EquFL", 0.8 - d, f"target={k}", **of) for k in ("EO", "DP")),
        ]
        for d in (0.001, 0.05)
    }
    assert [one("one-batch-accuracy-income-sex", *x).holds for x in t.values()] == [
        "yes",
        "no",
    ]


# ----------------------------------------------------- the paper against its own tables


def printed(key, reported=REPORTED):
    c = [c for c in CLAIMS if c.key == f"equfl-printed-{key}"]
    return check_claims(
        c, ledger.parts(ROOT / "no such folder", "seeds", REPORTED), reported
    ).iloc[0]


def change(where, value, column="reported"):
    """The printed numbers with some replaced."""
    out = REPORTED.copy()
    at = (out.paper == "equfl") & pd.concat(
        [out[c] == v for c, v in where.items()], axis=1
    ).all(axis=1)
    assert at.any()
    out.loc[at, column] = value
    return out


def test_the_papers_own_numbers():
    """Readable in the tables; each is an entry of the list of contradictions."""
    found = {
        k: printed(k)
        for k in (c.key.removeprefix("equfl-printed-") for c in CLAIMS if c.printed)
    }
    assert {k for k, f in found.items() if f.holds == "yes"} == {
        "below-fedavg",
        "noise",
        "storage",
    }
    held = {
        k: f.evidence.split(";")[0].removeprefix("holds in ") for k, f in found.items()
    }
    assert held == {
        "best": "27 of 32",
        "below-fedavg": "32 of 32",
        "cal-below-eo": "36 of 61",
        "at-most-one": "363 of 364",
        "mnist-parity": "22 of 24",
        "improvements": "279 of 288",
        "income-race": "0 of 2",
        "accuracy": "12 of 24",
        "four-runs": "5 of 6",
        "first-thirty": "0 of 4",
        "without-noise": "3 of 4",
        "noise": "4 of 4",
        "storage": "6 of 6",
    }
    assert (
        "Uniform EO: 1.0523" in found["at-most-one"].evidence
        and "0.0226 and 0.0266" in found["without-noise"].evidence
    )
    assert found["noise"].tier == "exact" and printed("noise", None).holds == "not run"


@pytest.mark.parametrize(
    "key, changes",
    [
        (
            "at-most-one",
            [
                (
                    {"artefact": "Table II(f)", "method": "Uniform", "metric": "EO"},
                    "0.99",
                )
            ],
        ),
        (
            "mnist-parity",
            [
                (
                    {"artefact": f"Table V({k})", "method": "Reweight", "metric": "DP"},
                    "0.1900",
                )
                for k in "ab"
            ],
        ),
        (
            "four-runs",
            [
                (
                    {
                        "artefact": "Table III(c)",
                        "method": "EquFL",
                        "setting": "target=EO",
                    },
                    "0.8171",
                )
            ],
        ),
        (
            "without-noise",
            [
                (
                    {"artefact": "Table XII", "setting": "sigma=0", "metric": "DP"},
                    "0.0266",
                )
            ],
        ),
        (
            "best",
            [
                (
                    {"artefact": "Table II(e)", "method": "Reweight", "metric": "DP"},
                    "0.1900",
                ),
                *(
                    ({"artefact": f"Table V({k})", "method": m, "metric": s}, "0.4")
                    for k in "ab"
                    for m, s in (("Reweight", "DP"), ("FedFB", "CAL"))
                ),
            ],
        ),
        (
            "first-thirty",
            [
                (
                    {
                        "artefact": "Table VIII",
                        "method": "EquFL (Continuous)",
                        "metric": m,
                    },
                    "0.5",
                )
                for m in SCORES
            ],
        ),
        (
            "accuracy",
            [
                ({"artefact": f"Table III({k})", "method": "EquFL"}, "0.9900")
                for k in "adf"
            ],
        ),
    ],
)
def test_a_paper_that_agrees_with_itself(key, changes):
    right = REPORTED
    for where, value in changes:
        at = (right.paper == "equfl") & pd.concat(
            [right[c] == v for c, v in where.items()], axis=1
        ).all(axis=1)
        assert at.any()
        right = right.assign(reported=right.reported.where(~at, value))
    assert printed(key).holds == "no" and printed(key, right).holds == "yes", printed(
        key, right
    ).evidence


def test_percentages_of_a_paper_that_agrees_with_itself():
    race = {"artefact": "text V-C", "dataset": "Income-Race"}
    out = change(race | {"metric": "EO"}, "12.4", "improvement_pct")
    out.loc[
        (out.artefact == "text V-C")
        & (out.dataset == "Income-Race")
        & (out.metric == "DP"),
        "improvement_pct",
    ] = "10.4"
    assert printed("income-race", out).holds == "yes"
    out = REPORTED.copy()
    for r in out[
        (out.paper == "equfl") & (out.improvement_pct != "") & (out.reported != "")
    ].itertuples():
        same = out[
            (out.artefact == r.artefact)
            & (out.metric == r.metric)
            & out.method.isin(["FedAvg", *RULES])
        ]
        if len(same) and r.artefact != "text V-C":
            out.loc[r.Index, "improvement_pct"] = (
                f"{bias.improvement(float(same.reported.iloc[0]), float(r.reported)):.1f}"
            )
    assert printed("improvements", out).holds == "yes"
    low = MINE[
        MINE.artefact.str.match(r"Table (II|V|VI)(\(.\))?$") & (MINE.metric == "CAL")
    ].index
    out = REPORTED.copy()
    out.loc[low, "reported"] = "0.0001"
    assert printed("cal-below-eo", out).holds == "yes"


@pytest.mark.parametrize(
    "key, where, value",
    [
        (
            "below-fedavg",
            {"artefact": "Table II(b)", "method": "EquFL", "metric": "DP"},
            "0.0200",
        ),
        (
            "noise",
            {
                "artefact": "Table XII",
                "setting": "sigma#2",
                "method": "EquFL",
                "metric": "EO",
            },
            "0.0100",
        ),
        (
            "storage",
            {"artefact": "Table XI", "dataset": "MNIST", "metric": "total_MB"},
            "35.00",
        ),
    ],
)
def test_what_holds_would_be_refuted_by_one_number(key, where, value):
    assert (
        printed(key).holds == "yes" and printed(key, change(where, value)).holds == "no"
    )


# --------------------------------------------------------------- what params.yaml plans

WATCHED = (*SCORES, "EO_sum", "CAL_ppv", "positive_rate", "accuracy")


@pytest.fixture(
    scope="module", params=[pytest.param("small", marks=pytest.mark.full), "paper"]
)
def planned(request):
    """Invented numbers for every run that params.yaml plans at a tier, and for what the
    notebooks measure besides.
    """
    out = []
    entries = studies.load(ROOT / "params.yaml")["equfl"]["studies"]
    # the gates are published beside the claims
    for study in [s for s in entries if s != "gate"]:
        for c in studies.cells("equfl", study, ROOT / "params.yaml", request.param)[0]:
            base = {
                "dataset": c.dataset,
                "method": c.method,
                "setting": c.setting,
                "seed": c.seed,
                "study": study,
                "data": c.data,
                "paper": "equfl",
                "tier": request.param,
                "rule": "last10_mean",
            }
            out += [
                base
                | {
                    "metric": m,
                    "value": 0.01 * len(c.method + c.setting) + 0.001 * c.seed,
                }
                for m in WATCHED
            ]
    base = {
        "method": "EquFL",
        "setting": "",
        "seed": 0,
        "paper": "equfl",
        "rule": "run",
        "data": "stand-in",
        "value": 1.0,
    }
    out += [
        base
        | {
            "method": "EquFL-EO",
            "dataset": "Income-Sex",
            "study": "cost",
            "metric": "seconds_over_fedavg",
            "tier": request.param,
        }
    ]
    out += [
        base
        | {
            "dataset": p,
            "study": "storage",
            "setting": "server storage",
            "metric": m,
            "tier": request.param,
        }
        for p in PLACES
        for m in ("global_models_MB", "synthetic_dataset_MB")
    ]
    return pd.DataFrame(out)


def test_the_parameters_plan_every_run_that_a_claim_needs(planned):
    t = check_claims(CLAIMS, planned, REPORTED)
    assert (
        list(t.key[t.holds == "not run"]) == []
        and not t.evidence.str.contains("not run").any()
    )


def test_the_parameters_plan_every_run_that_a_deviation_compares(planned):
    entries = [d for d in claims.read_deviations() if d["id"].startswith("EQUFL-")]
    e = claims.effects(entries, planned)
    assert len(e) > 20 and list(e.key[e.evidence == "not run"]) == []


def test_the_planned_runs_can_be_stored(planned):
    """Every method and data set of the studies is known to the ledger."""
    assert len(ledger.check(planned, "seeds", REPORTED)) == len(planned)


def test_every_printed_score_of_the_main_tables_is_planned(planned):
    """Tables II and III: a cell of ours for each of the paper's."""
    for study, places in (("census", CENSUS), ("images", ("MNIST", "CIFAR-10"))):
        s = planned[planned.study == study]
        for p in places:
            for artefact, of in (
                (f"Table II({LETTER[p]})", TARGETS.own),
                (f"Table III({LETTER[p]})", TARGETS.accuracies),
            ):
                ours = ledger.cells(
                    of(s[s.dataset == p]),
                    "equfl",
                    artefact,
                    rule="last10_mean",
                )
                assert set(MINE[MINE.artefact == artefact].key) <= set(ours.key)


def test_headline(planned, tmp_path):
    ledger.save(planned, "seeds", "equfl-x", tmp_path)
    claims.headline(
        tmp_path,
        check_claims(CLAIMS[:1], planned),
        ledger.parts(tmp_path, "seeds", REPORTED),
    )
    found = json.loads((tmp_path / "metrics.json").read_text())["equfl"]
    assert set(found) == {*PLACES} and "EO" in found["Income-Sex"]["FedAvg"]


# ------------------------------------------------------------------ artefacts


def test_figures_tables_algorithms_and_theorems_are_listed():
    listed = {a.name for a in artefacts.listed() if a.paper == "equfl"}
    assert {
        *(f"Figure {i}" for i in range(1, 6)),
        "Algorithm 1",
        "Algorithm 2",
        "Theorem 1",
        "Theorem 2",
    } | set(MINE.artefact) == listed


def test_a_reference_without_bias_is_no_reference():
    """FedAvg that says no to everybody, as after a few rounds: nothing can lie below
    its bias, and no claim breaks on it.
    """
    t = [rows("FedAvg", 0.0, noise=(0.0, 0.0, 0.0))]
    t += [
        rows("EquFL", 0.1, "target=EO"),
        *(
            rows("EquFL", 0.1, f"rho={r};target=EO", study="fraction")
            for r in (0.2, 0.8)
        ),
    ]
    found = one("helps-at-every-rho-eo-income-sex", *t)
    assert found.holds == "not run" and "above zero" in found.evidence
