"""The procedural census: what its knobs do, against its specification's own figures,
and against the loader of real files.
"""

import functools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fedlib.data import acs as A
from fedlib.data.census import (
    Knobs,
    _below,
    _occupation,
    _pick,
    census,
    counterfactual,
    people,
    write_acs_layout,
)

SMALL = dict(clients=4, n_mean=80, n_test=60)
NONE = dict(bias_sex=0, bias_race=0, indirect_sex=0, indirect_race=0)


def knobs(*v):
    return dict(zip(Knobs._fields, v))


@functools.cache
def make(task="income", group="sex", *v):
    return census(task, group, **knobs(*v))


def rates(y, a):
    return float(y[a == 0].double().mean()), float(y[a == 1].double().mean())


# ---------------------------------------------------------------- shape and seeds
def test_a_pool():
    pool = census(**SMALL)
    assert (
        pool.kind == "synthetic"
        and pool.K == 2
        and pool.owners == ("AL", "AK", "AZ", "AR")
        and pool.x.shape[1] == 26
    )
    assert torch.equal(pool.a, pool.x[:, 0].long()) and pool.groups == A.groups(
        "sex", "income"
    )
    assert torch.equal(census(group="race", **SMALL).a, pool.x[:, 1].long())
    train = torch.ones(len(pool.y), dtype=torch.bool).index_fill(0, pool.test, False)
    assert (pool.owner[train].diff() >= 0).all() and (
        pool.owner[pool.test].diff() >= 0
    ).all()
    assert all(
        0 < int((pool.owner[s] == c).sum())
        for s in (train, pool.test)
        for c in range(4)
    )


def test_draws():
    a, b, other = (census(**SMALL, draw=d) for d in (0, 0, 1))
    assert all(
        torch.equal(getattr(a, f), getattr(b, f))
        for f in ("x", "y", "a", "owner", "test")
    )
    assert a.x.shape != other.x.shape or not torch.equal(a.x, other.x)


@pytest.mark.parametrize("test", [False, True])
def test_a_client_does_not_depend_on_the_others(test):
    few, many = people(**SMALL, test=test), people(**SMALL | dict(clients=9), test=test)
    assert len(few) == 4 and all(a.equals(b) for a, b in zip(few, many))


def test_the_training_draw_does_not_depend_on_the_test_draw():
    """And the test draw is no copy of it."""
    a, b = people(**SMALL), people(**SMALL | dict(n_test=200))
    assert all(i.equals(j) for i, j in zip(a, b))
    assert not any(
        np.array_equal(i.AGEP[:15], j.AGEP[:15])
        for i, j in zip(a, people(**SMALL, test=True))
    )


def test_sizes():
    n, m = (
        np.array([len(f) for f in people(clients=51, n_mean=100, n_test=300, test=t)])
        for t in (False, True)
    )
    assert (
        n.min() >= 25
        and n.max() <= 600
        and 80 < np.median(n) < 125
        and np.log(n).std() == pytest.approx(0.6, abs=0.15)
    )
    assert np.allclose(m / n, 3, atol=0.07)  # in proportion


def test_people_have_official_codes():
    frame = people(clients=6, n_mean=400)[1]
    official = dict(
        A.LISTS,
        RAC1P=range(1, 10),
        SEX=(1, 2),
        COW=range(10),
        HINS2=(1, 2),
        PUBCOV=(1, 2),
        SCHL=range(1, 25),
        WKHP=range(100),
        AGEP=range(17, 80),
        ST=(2,),
        POBP=(*A.FIPS.values(), *range(100, 555)),
    )
    for column, codes in official.items():
        assert set(frame[column].fillna(0).astype(int)) <= set(codes), column
    idle = frame.ESR != 1
    assert (
        frame.WKHP.isna().equals(idle)
        and frame.OCCP.isna().equals(idle)
        and frame.COW.isna().equals(idle)
    )
    assert (frame.FER.notna() == (frame.SEX == 2) & (frame.AGEP <= 50)).all()
    assert ((frame.NATIVITY == 2) == (frame.POBP >= 100)).all() and (
        (frame.NATIVITY == 2) == frame.CIT.isin([4, 5])
    ).all()


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_shift_moves_the_clients_apart(shift):
    race = [
        float((f.RAC1P != 1).mean())
        for f in people(clients=20, n_mean=2000, shift=shift)
    ]
    assert np.std(race) < 0.02 if shift == 0 else np.std(race) > 0.08
    assert shift or np.mean(race) == pytest.approx(1 / (1 + np.exp(1.1)), abs=0.01)


# ---------------------------------------------------------------- equations
def test_occupations_follow_softmax():
    rng, n = np.random.default_rng(0), 200_000
    skill, women = 0.7, 0.9
    logits = skill * np.linspace(1, -1, 8) + women * np.array(
        (-0.5, 0.6, -0.7, 0.4, 0.7, -0.4, -0.9, 0.3)
    )
    o = _occupation(rng.random(n), np.full(n, skill), np.full(n, women))
    assert np.allclose(
        np.bincount(o, minlength=8) / n,
        np.exp(logits) / np.exp(logits).sum(),
        atol=0.004,
    )


def test_uniform_numbers_become_codes():
    assert _below(np.array([0, 0.249, 0.25, 0.999]), 4).tolist() == [0, 0, 1, 3]
    assert _pick(
        np.array([0, 0.49, 0.5, 0.51, 0.6, 0.99]), (0.5, 0, 0.1, 0.4)
    ).tolist() == [0, 0, 2, 2, 3, 3]


# ---------------------------------------------------------------- bias
# Base rate, that of men, that of women, and accuracy and DP of a logistic regression:
# figures of an earlier program for the same equations, with another stream of
# random numbers.
REFERENCE = {
    (1, 1, 1, 1): (0.253, 0.323, 0.171, 0.841, 0.176),
    (0.3, 0.3, 0.3, 0.3): (0.325, 0.353, 0.297, 0.803, 0.072),
    (0, 0, 0, 0): (0.367, 0.368, 0.366, 0.793, 0.004),
    (1, 1, 0, 0): (0.286, 0.345, 0.217, 0.819, 0.152),
    (0, 0, 1, 1): (0.320, 0.343, 0.297, 0.807, 0.061),
}
EO = {
    "income": {
        (0.3,) * 4: 0.067,
        (0,) * 4: 0.004,
        (1, 1, 0, 0): 0.145,
        (0, 0, 1, 1): 0.058,
    },
    "employment": {
        (1,) * 4: 0.147,
        (0.3,) * 4: 0.044,
        (0,) * 4: 0.014,
        (1, 1, 0, 0): 0.137,
        (0, 0, 1, 1): 0.014,
    },
}


@functools.cache
def regression(task, *v):
    """Predictions, answers and sexes of the test rows by a logistic regression on the
    training rows.
    """
    pool = make(task, "sex", *v)
    train = torch.ones(len(pool.y), dtype=torch.bool).index_fill(0, pool.test, False)
    fit = LogisticRegression(max_iter=200).fit(
        pool.x[train].numpy(), pool.y[train].numpy()
    )
    return (
        torch.from_numpy(fit.predict(pool.x[pool.test].numpy())),
        pool.y[pool.test],
        pool.a[pool.test],
    )


@pytest.mark.parametrize("v", REFERENCE)
def test_income_reference(v):
    pool, (said, y, a) = make("income", "sex", *v), regression("income", *v)
    men, women = rates(said, a)
    found = [
        float(pool.y.double().mean()),
        *rates(pool.y, pool.a),
        float((said == y).double().mean()),
        men - women,
    ]
    assert found == pytest.approx(REFERENCE[v], abs=0.03)


@pytest.mark.parametrize("task, v", [(t, v) for t in EO for v in EO[t]])
def test_equalized_odds_reference(task, v):
    said, y, a = regression(task, *v)
    gaps = [np.subtract(*rates(said[y == k], a[y == k])) for k in (0, 1)]
    assert max(map(abs, gaps)) == pytest.approx(EO[task][v], abs=0.03)


@pytest.mark.parametrize("task", A.TASKS)
@pytest.mark.parametrize("group", ["sex", "race"])
def test_no_knob_no_bias(task, group):
    """Within clients, where nobody is confounded: race and answer both vary over
    clients.
    """
    pool = make(task, group, 0, 0, 0, 0)
    gaps = [
        np.subtract(*rates(pool.y[own], pool.a[own]))
        for own in (pool.owner == c for c in range(51))
    ]
    sizes = torch.bincount(pool.owner).numpy()
    assert abs(np.average(gaps, weights=sizes)) < 0.03
    if group == "sex":
        assert abs(np.subtract(*rates(pool.y, pool.a))) < 0.03


@pytest.mark.parametrize(
    "knob, group, task, sign",
    [
        ("bias_sex", "sex", "income", 1),
        ("indirect_sex", "sex", "income", 1),
        ("bias_race", "race", "income", 1),
        ("indirect_race", "race", "income", 1),
        ("bias_sex", "sex", "employment", 1),
        ("bias_race", "race", "employment", 1),
        ("bias_sex", "sex", "health", -1),
        ("bias_race", "race", "health", -1),
    ],
)
def test_each_knob_moves_its_group_alone(knob, group, task, sign):
    other = {"sex": "race", "race": "sex"}[group]
    gap = {}
    for g in (group, other):
        pools = [
            census(task, g, shift=0, clients=20, n_mean=900, **NONE | {knob: k})
            for k in (0, 0.5, 1, 2)
        ]
        gap[g] = [sign * np.subtract(*rates(p.y, p.a)) for p in pools]
    assert (
        (np.diff(gap[group]) > 0.008).all()
        and abs(gap[group][0]) < 0.025
        and max(map(abs, gap[other])) < 0.035
    )


def test_bought_insurance_depends_on_nothing_but_age():
    pool = make("insurance", "sex", 3, 3, 3, 3)
    assert (
        abs(np.subtract(*rates(pool.y, pool.a))) < 0.015
        and 0.1 < pool.y.double().mean() < 0.2
    )


# ---------------------------------------------------------------- effects
def test_effects_by_path():
    """Without one kind of path the answers of that world are the answers as they are,
    person by person.
    """
    none, direct, indirect, both = (
        counterfactual(**SMALL | dict(clients=20), **NONE | k)
        for k in (
            {},
            dict(bias_sex=1),
            dict(indirect_sex=1),
            dict(bias_sex=1, indirect_sex=1),
        )
    )
    assert (
        torch.equal(none.total, none.y) and none.effect("direct") == none.effect() == 0
    )
    assert torch.equal(direct.direct, direct.total) and direct.effect() < -0.05
    assert torch.equal(indirect.direct, indirect.y) and indirect.effect() < -0.02
    assert both.effect() < both.effect("direct") < -0.05


def test_effects_are_of_the_persons_of_the_pool():
    for task in A.TASKS:
        pool, e = census(task, **SMALL), counterfactual(task, **SMALL)
        assert torch.equal(pool.y, e.y) and torch.equal(pool.a, e.s)
    assert e.effect() == 0  # bought insurance


def test_effect_is_women_minus_men_by_hand():
    from fedlib.data.census import Effects

    s, y, flipped = (
        torch.tensor(v) for v in ([0, 0, 1, 1], [1, 1, 0, 1], [0, 1, 1, 1])
    )
    e = Effects(s, y, y, flipped)  # (0-1) + (1-1) + (0-1) + (1-1)
    assert e.effect() == -0.5 and e.effect("direct") == 0


def test_effect_agrees_with_the_gap_where_nothing_selects():
    """Sex is drawn by lot and employment asks everybody, so the gap of the groups is
    the total effect up to sampling.
    """
    pool, e = (
        make("employment", "sex", 1, 0, 0, 0),
        counterfactual("employment", **NONE | dict(bias_sex=1)),
    )
    men, women = rates(pool.y, pool.a)
    assert women - men == pytest.approx(e.effect(), abs=0.012) and e.effect() < -0.05


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("task", A.TASKS)
def test_the_loader_of_real_files_reads_it_back(tmp_path, task):
    files = write_acs_layout(tmp_path, **SMALL)
    assert [f.name for f in files] == [
        "psam_p01.csv",
        "psam_p02.csv",
        "psam_p04.csv",
        "psam_p05.csv",
    ]
    back, pool = (
        A.acs(task, root=tmp_path, states=A.STATES[:4], rows=None),
        census(task, **SMALL),
    )
    train = torch.ones(len(pool.y), dtype=torch.bool).index_fill(0, pool.test, False)
    for field in ("x", "y", "a", "owner"):
        assert torch.equal(getattr(back, field), getattr(pool, field)[train]), field
    assert (
        back.owners == pool.owners
        and back.groups == pool.groups
        and back.kind == "real"
    )


def test_folktables_reads_it_too(tmp_path):
    from folktables import ACSDataSource, ACSIncome

    write_acs_layout(tmp_path, **SMALL)
    frame = ACSDataSource("2018", "1-Year", "person", str(tmp_path)).get_data(
        states=list(A.STATES[:4]), download=False
    )
    _, y, _ = ACSIncome.df_to_numpy(frame)
    assert (
        y.astype(int).tolist()
        == A.acs(root=tmp_path, states=A.STATES[:4], rows=None).y.tolist()
    )


# ---------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    "arguments, says",
    [
        (dict(task="incomes"), "unknown task 'incomes'; did you mean 'income'"),
        (dict(group="age"), "unknown group 'age'"),
        (dict(clients=0), "clients = 0: give a whole number from 1 to 51"),
        (dict(clients=52), "clients = 52: give a whole number from 1 to 51"),
        (dict(n_mean=3), "n_mean = 3"),
        (dict(n_test=0), "n_test = 0"),
        (dict(shift=-1), "shift = -1"),
        (dict(bias_sex=-0.5), "bias_sex = -0.5: give a number >= 0"),
        (dict(indirect_race=float("nan")), "indirect_race = nan"),
    ],
)
def test_bad_input(arguments, says):
    with pytest.raises(ValueError, match=says):
        census(**arguments)


@pytest.mark.filterwarnings("ignore:overflow encountered in exp")
def test_a_strength_beyond_the_integers_of_a_machine_is_a_number():
    huge, same = (census(**SMALL, indirect_sex=v) for v in (2**70, float(2**70)))
    assert torch.equal(huge.x, same.x) and huge.x.isfinite().all()
