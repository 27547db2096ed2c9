"""People: the survey as folktables reads it, the procedural census by its own promises,
and Adult by the published counts and by hand."""

import hashlib
import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedlib.data import people as A
from fedlib.data.census import census, people

THREE, N = ("AL", "CA", "PR"), 90
EDGES = dict(  # the codes on both sides of every filter and cut
    *[{}],
    PWGTP=(0, 1, 50), AGEP=(3, 15, 16, 17, 45, 64, 65), CIT=range(1, 6), COW=range(1, 10),
    DEAR=(1, 2), DEYE=(1, 2), DIS=(1, 2), DREM=(1, 2), ESP=range(1, 9), ESR=range(1, 7),
    FER=(1, 2), HINS2=(1, 2), MAR=range(1, 6), MIG=(1, 2, 3), MIL=range(1, 5),
    NATIVITY=(1, 2), OCCP=(10, 440, 441, 4980, 8990, 9005), RELP=range(18), ANC=range(1, 5),
    PINCP=(-500, 0, 100, 101, 30000, 30001, 50000, 50001), POBP=(1, 72, 99, 100, 303),
    POVPIP=(0, 501), PUBCOV=(1, 2), RAC1P=range(1, 10), SCHL=range(1, 25), SEX=(1, 2),
    WKHP=(0, 1, 40, 99), PUMA=(100, 200), **{c: (0, 1) for c in A.ORIGINS},
)  # fmt: skip
SCALES = {"AGEP": (45, 17), "SCHL": (17, 4), "WKHP": (38, 13)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Person files of three states; of children some columns are blank."""
    root = tmp_path_factory.mktemp("acs")
    for state in THREE:
        rng = np.random.default_rng(A.FIPS[state])
        t = pd.DataFrame({k: rng.choice([*v], N) for k, v in EDGES.items()})
        t["SERIALNO"] = [f"2018GQ{i:07d}" for i in range(N)]
        t = t.assign(RT="P", ST=A.FIPS[state], SOCP="1110XX", NAICSP="9P")
        for c in ("ESR", "COW", "WKHP", "PINCP", "MIL", "FER", "OCCP"):
            t[c] = t[c].astype("Int64").mask(t.AGEP < 16)
        A.path(root, state).parent.mkdir(parents=True, exist_ok=True)
        t.to_csv(A.path(root, state), index=False)
    return root


def test_the_survey_is_that_of_folktables(root):
    """Their loader and their tasks on the same files: the same rows in the same order,
    features, answers and groups."""
    import folktables as ft
    from folktables.load_acs import _STATE_CODES, state_list

    theirs = dict(zip(A.TASKS, (ft.ACSIncome, ft.ACSEmployment)))
    theirs |= {"health": ft.ACSPublicCoverage, "insurance": ft.ACSHealthInsurance}
    assert list(A.STATES) == state_list
    assert all(f"{A.FIPS[s]:02d}" == _STATE_CODES[s] for s in state_list)
    source = ft.ACSDataSource("2018", "1-Year", "person", str(root))
    frame = source.get_data(states=list(THREE), download=False)
    for task, problem in theirs.items():
        v, y, race = problem.df_to_numpy(frame)
        column = {k: v[:, i] for i, k in enumerate(problem.features)}
        pool = A.acs(task, "sex", root, states=THREE)
        assert pool.y.tolist() == y.astype(int).tolist() and 0 < len(y) <= 3 * N
        assert pool.a.tolist() == (column["SEX"] == 2).astype(int).tolist()
        other = A.acs(task, "race", root, states=THREE)
        assert other.a.tolist() == (race != 1).astype(int).tolist()
        own = [len(problem.df_to_numpy(frame[frame.ST == A.FIPS[s]])[1]) for s in THREE]
        assert pool.owner.bincount().tolist() == own and pool.owners == THREE
        used = {c.column for c in A.TASKS[task].codes}
        assert used == set(problem.features) - {"ST"} | {"RAC1P"}
        assert other.groups.column == 1 and torch.equal(other.x[:, 1].long(), other.a)
        stop, lists = 0, dict(A.LISTS) if task != "income" else {}
        blank = lambda name, v=column: np.nan_to_num(v[name])
        for b in pool.groups.schema:
            x, stop, start = pool.x[:, b.start : b.stop], b.stop, stop
            assert b.start == start
            if b.kind == "onehot" and b.name in lists:  # each code has its own input
                codes = np.array([*lists[b.name]])
                assert np.array_equal(codes[x.argmax(1)], blank(b.name)), b.name
                assert (x.sum(1) == 1).all(), b.name
            elif b.name in SCALES:
                centre, scale = SCALES[b.name]
                assert np.allclose(x[:, 0] * scale + centre, column[b.name], atol=1e-4)
            elif b.name in A.ORIGINS:
                assert np.array_equal(x[:, 0], column[b.name] == 1)
            elif b.name == "PINCP":
                assert np.allclose(x[:, 0], np.arcsinh(blank("PINCP") / 1e4))
        assert stop == pool.x.shape[1] and pool.x.isfinite().all()


def test_income_by_hand():
    person = dict(
        SEX=[2, 1, 1], RAC1P=[1, 9, 1], AGEP=[62, 28, 45], SCHL=[21, 17, 1],
        WKHP=[51, 38, 12], MAR=[3, 5, 1], COW=[2, 7, 3], OCCP=[961, 440, 9830],
        RELP=[0, 1, 12], POBP=[100, 99, 1], PINCP=[50001, 50000, 9], PWGTP=[1] * 3,
    )  # fmt: skip
    x, y = A.encode(person, "income")
    work = {k: [float(k == i) for i in range(11)] for k in (2, 0, 10)}
    assert y.tolist() == [1, 0, 0]
    assert x.tolist() == [
        [1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, *work[2], 1, 0, 1],
        [0, 1, -1, 0, 0, 0, 0, 1, 0, 0, 0, 1, *work[0], 0, 1, 0],
        [0, 0, 0, -1, -4, -2, 1, 0, 0, 0, 1, 0, *work[10], 0, 0, 0],
    ]
    cuts, of = np.array(A.CUTS), lambda v: A.OCCUPATION.f(np.asarray(v, float))
    assert of(cuts).argmax(1).tolist() == [*range(10)] and not of([0]).any()
    assert of(cuts + 1).argmax(1).tolist() == [*range(1, 11)]


def test_files_states_and_the_cap(root, tmp_path):
    load = lambda **k: A.acs("employment", root=root, **{"states": THREE} | k)
    full, a, b = load(rows=None), load(rows=20), load(states=("PR", "CA"), rows=20)
    assert full.owner.bincount().tolist() == [N] * 3 and b.owners == ("CA", "PR")
    assert a.owner.bincount().tolist() == [20] * 3
    assert torch.equal(a.x[a.owner == 2], b.x[b.owner == 1]), "whoever else is there"
    all_, mine = full.x[full.owner == 0].tolist(), a.x[a.owner == 0].tolist()
    places = [all_.index(row) for row in mine]
    assert places == sorted(places) != [*range(20)]
    assert A.path("d", "CA", "2017").as_posix() == "d/2017/1-Year/psam_p06.csv"
    t, file = pd.read_csv(A.path(root, "AL")), A.path(tmp_path, "AL")
    file.parent.mkdir(parents=True)
    no_cow = t.drop(columns=["COW"])
    for table, name in ((t.assign(SEX=1), "sex"), (t[:0], "psam"), (no_cow, "COW")):
        table.to_csv(file, index=False)
        with pytest.raises(ValueError, match=name):
            A.acs(root=tmp_path, states=["AL"])


SMALL = dict(clients=4, n_mean=80, n_test=60)
NONE = dict(bias_sex=0, bias_race=0, indirect_sex=0, indirect_race=0)


def test_a_client_hangs_on_its_number_and_the_draw_alone():
    of = lambda **more: people(**SMALL | more)
    same = lambda one, two: [a.equals(b) for a, b in zip(one, two)] == [True] * 4
    train, test = of(), of(test=True)
    assert same(train, of(clients=9)) and same(train, of(n_test=200))
    assert same(test, of(test=True, clients=9))
    for a, b in zip(train, test):
        assert not np.array_equal(a.POVPIP[:15], b.POVPIP[:15])
    sizes = lambda t: np.array([*map(len, people(n_mean=100, n_test=300, test=t))])
    n, m = sizes(False), sizes(True)
    assert n.min() >= 25 and n.max() <= 600 and 80 < np.median(n) < 125
    assert np.log(n).std() == pytest.approx(0.6, abs=0.15)
    assert np.allclose(m / n, 3, atol=0.07)
    of = lambda **more: people(clients=20, n_mean=2000, **more)
    race = lambda k: [float((f.RAC1P != 1).mean()) for f in of(shift=k)]
    assert np.std(race(1.0)) > 0.08 and np.std(race(0.0)) < 0.02
    assert np.mean(race(0.0)) == pytest.approx(1 / (1 + math.exp(1.1)), abs=0.01)


def gap(task, group, **knobs):
    """Share of yes of the first group minus that of the second."""
    pool = census(task, group, 20, 900, 20, shift=0, **NONE | knobs)
    y = pool.y.double()
    return float(y[pool.a == 0].mean() - y[pool.a == 1].mean())


def test_each_knob_moves_its_group_alone():
    cases, both = [(k, "income", 1) for k in NONE], ("bias_sex", "bias_race")
    cases += [(k, t, v) for k in both for t, v in (("employment", 1), ("health", -1))]
    for knob, task, sign in cases:
        group, other = ("sex", "race") if "sex" in knob else ("race", "sex")
        mine = [sign * gap(task, group, **{knob: k}) for k in (0, 1, 2)]
        assert (np.diff(mine) > 0.012).all() and abs(mine[0]) < 0.025, (knob, mine)
        assert abs(gap(task, other, **{knob: 2})) < 0.035, knob


def test_adult_by_the_published_counts_and_by_hand():
    """The first of adult.data: 39 years, Bachelors, a gain of 2,174 dollars, 40 hours."""
    pool, t = A.adult(), A.table()
    assert len(t["salary"]) == 45_222 and round(100 * t["salary"].mean(), 2) == 24.78
    share = [round(float(pool.y[pool.a == a].double().mean()), 3) for a in (0, 1)]
    assert share == [0.312, 0.114] and torch.equal(pool.a, pool.x[:, 0].long())
    numbers = [-1 / 14, (1 / 14) ** 2 - 1, 3 / 2.5, 0, math.log(2175) / 4, 0]
    ones = [("workclass", "State-gov"), ("marital-status", "Never-married")]
    ones += [("occupation", "Adm-clerical"), ("relationship", "Not-in-family")]
    words = [float(w == v) for k, v in [*ones, ("race", "White")] for w in A.WORDS[k]]
    near = torch.isclose(pool.x, torch.tensor([0, *numbers, *words, 1]), atol=1e-6)
    (at,) = near.all(1).nonzero()[:, 0]
    assert pool.y[at] == 0 and pool.owners[pool.owner[at]] == "Adm-clerical 31-45"
    stop, g = 0, pool.groups
    assert (g.names, g.positive, g.column) == (("men", "women"), (1,), 0)
    for b in g.schema:
        v, start, stop = pool.x[:, b.start : b.stop], stop, b.stop
        assert b.start == start
        assert b.kind != "number" or (v.min() >= b.low > -9 and v.max() <= b.high < 12)
        assert b.kind != "onehot" or (v.sum(1) == 1).all()
    rows = np.stack([t[k] for k in A.COLUMNS])
    digest = hashlib.sha256(rows.astype("<i4").tobytes()).hexdigest()
    assert digest[:16] == "0608810f89583e7f"


@given(st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(1, 20))
def test_small_bands_join_the_next(n, least):
    lists = A.joined(np.array(n), least)
    assert sum(lists, []) == [*range(len(n))] * (sum(n) >= least)
    for i, bands in enumerate(lists):
        assert sum(n[b] for b in bands) >= least
        last = i == len(lists) - 1
        assert last or sum(n[b] for b in bands[:-1]) < least, "larger than it must be"
