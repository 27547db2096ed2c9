"""The survey: fabricated person files read by us and by folktables,
and every input of the encoder by hand.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from folktables import (
    ACSDataSource,
    ACSEmployment,
    ACSHealthInsurance,
    ACSIncome,
    ACSPublicCoverage,
)
from folktables.load_acs import _STATE_CODES, state_list

from fedlib.data import acs as A
from fedlib.data.acs import FIPS, STATES, TASKS, acs, encode, groups, keep, read

ORACLE = dict(
    income=ACSIncome,
    employment=ACSEmployment,
    health=ACSPublicCoverage,
    insurance=ACSHealthInsurance,
)
THREE = ("AL", "CA", "PR")
N = 60


def fabricate(state, n=N):
    """A person file with children, whose ESR, COW, WKHP and PINCP are blank, and edge
    values of every filter.
    """
    rng = np.random.default_rng(FIPS[state])
    pick = lambda *codes: rng.choice(codes, n)
    t = pd.DataFrame(
        dict(
            RT="P",
            SERIALNO=[f"2018GQ{i:07d}" for i in range(n)],
            ST=FIPS[state],
            PUMA=pick(100, 200),
            PWGTP=pick(0, 1, 2, 50),
            AGEP=pick(3, 15, 16, 17, 30, 45, 64, 65, 80),
            CIT=pick(*range(1, 6)),
            COW=pick(*range(1, 10)),
            DEAR=pick(1, 2),
            DEYE=pick(1, 2),
            DIS=pick(1, 2),
            DREM=pick(1, 2),
            ESP=pick(*range(1, 9)),
            ESR=pick(*range(1, 7)),
            FER=pick(1, 2),
            HINS2=pick(1, 2),
            MAR=pick(*range(1, 6)),
            MIG=pick(1, 2, 3),
            MIL=pick(1, 2, 3, 4),
            NATIVITY=pick(1, 2),
            OCCP=pick(10, 440, 500, 960, 4980, 5000, 8990, 9005, 9830),
            PINCP=pick(-500, 0, 100, 101, 30000, 30001, 50000, 50001, 9e5),
            POBP=pick(1, 72, 99, 100, 303),
            POVPIP=pick(0, 501),
            PUBCOV=pick(1, 2),
            RAC1P=pick(*range(1, 10)),
            RELP=pick(*range(18)),
            SCHL=pick(*range(1, 25)),
            SEX=pick(1, 2),
            WKHP=pick(0, 1, 40, 99),
            ANC=pick(1, 2, 3, 4),
            SOCP="1110XX",
            NAICSP="928P",
            **{c: pick(0, 1) for c in A.ORIGINS},
        )
    )
    blank = t.AGEP < 16
    return t.assign(
        **{
            c: t[c].astype("Int64").mask(blank)
            for c in ("ESR", "COW", "WKHP", "PINCP", "MIL", "FER", "OCCP")
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("acs")
    (root / "2018" / "1-Year").mkdir(parents=True)
    for state in THREE:
        fabricate(state).to_csv(
            root / "2018" / "1-Year" / f"psam_p{FIPS[state]:02d}.csv", index=False
        )
    return root


def rewrite(root, to, state="AL", change=lambda t: t, year="2018"):
    """A copy of one state's file below the folder `to`, changed."""
    (to / year / "1-Year").mkdir(parents=True)
    change(pd.read_csv(A.path(root, state))).to_csv(
        A.path(to, state, year), index=False
    )
    return dict(root=to, year=year, states=[state])


# ---------------------------------------------------------------- against folktables
def test_states_are_those_of_folktables():
    assert list(STATES) == state_list and {s: f"{FIPS[s]:02d}" for s in STATES} == {
        s: _STATE_CODES[s] for s in state_list
    }


@pytest.mark.parametrize("task", TASKS)
def test_rows_answers_and_groups_are_those_of_folktables(root, task):
    """Their loader and task definition on the same files: same rows in the same order,
    same features, targets and groups.
    """
    frame = ACSDataSource("2018", "1-Year", "person", str(root)).get_data(
        states=list(THREE), download=False
    )
    features, y, race = ORACLE[task].df_to_numpy(frame)
    sex = features[:, ORACLE[task].features.index("SEX")]
    pool = acs(task, "sex", root, states=THREE)
    assert 0 < len(y) <= 3 * N and (len(y) < 3 * N) == (TASKS[task].keep is not None)
    assert (
        pool.y.tolist() == y.astype(int).tolist()
        and pool.a.tolist() == (sex == 2).astype(int).tolist()
    )
    assert (
        acs(task, "race", root, states=THREE).a.tolist()
        == (race != 1).astype(int).tolist()
    )
    numbers = {"AGEP": (45, 17), "SCHL": (17, 4), "WKHP": (38, 13)}
    for block in pool.groups.schema:
        if block.name in numbers:
            centre, scale = numbers[block.name]
            theirs = features[:, ORACLE[task].features.index(block.name)]
            assert np.allclose(
                pool.x[:, block.start] * scale + centre, theirs, atol=1e-4
            )
    own = [ORACLE[task].df_to_numpy(frame[frame.ST == FIPS[s]])[1] for s in THREE]
    assert (
        torch.bincount(pool.owner).tolist() == [len(v) for v in own]
        and pool.owners == THREE
    )


@pytest.mark.parametrize("task", TASKS)
def test_the_encoder_reads_the_features_of_folktables(task):
    """All of their features but the state, and beyond them only the race for
    "insurance".
    """
    ours = {c.column for c in TASKS[task].codes}
    assert ours == set(ORACLE[task].features) - {"ST"} | {"RAC1P"}


# ---------------------------------------------------------------- the encoder
def test_income_inputs_by_hand():
    person = dict(
        SEX=[2, 1, 1],
        RAC1P=[1, 9, 1],
        AGEP=[62, 28, 45],
        SCHL=[21, 17, 1],
        WKHP=[51, 38, 12],
        MAR=[3, 5, 1],
        COW=[2, 7, 3],
        OCCP=[961, 440, 9830],
        RELP=[0, 1, 12],
        POBP=[100, 99, 1],
        PINCP=[50001, 50000, 9],
        PWGTP=[1] * 3,
    )
    x, y = encode(person, "income")
    assert (
        y.tolist() == [1, 0, 0] and x.dtype == torch.float32 and y.dtype == torch.int64
    )
    work = {k: [float(k == i) for i in range(11)] for k in (2, 0, 10)}
    hand = [
        [1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0, *work[2], 1, 0, 1],
        [0, 1, -1, 0, 0, 0, 0, 1, 0, 0, 0, 1, *work[0], 0, 1, 0],
        [0, 0, 0, -1, -4, -2, 1, 0, 0, 0, 1, 0, *work[10], 0, 0, 0],
    ]
    assert x.shape == (3, 26) and torch.equal(x, torch.tensor(hand))


def test_occupations_are_cut_where_the_spec_says():
    edges = np.array(A.CUTS)
    group = lambda v: A.OCCUPATION.f(np.asarray(v, dtype=float)).argmax(1).tolist()
    assert group(edges) == list(range(10)) and group(edges + 1) == list(range(1, 11))
    assert not A.OCCUPATION.f(np.zeros(1)).any()  # a blank has no occupation


@pytest.mark.parametrize(
    "task, D", [("income", 26), ("employment", 66), ("health", 59), ("insurance", 66)]
)
def test_schema_describes_the_columns(root, task, D):
    pool = acs(task, root=root, states=THREE)
    schema = pool.groups.schema
    assert pool.x.shape[1] == D == schema[-1].stop and [b.start for b in schema] == [
        0
    ] + [b.stop for b in schema[:-1]]
    assert (schema[0].name, schema[1].name) == ("sex", "race") and len(
        {b.name for b in schema}
    ) == len(schema)
    assert (
        pool.groups == groups("sex", task)
        and pool.groups.column == 0
        and groups("race", task).column == 1
    )
    for b in schema:
        v = pool.x[:, b.start : b.stop]
        assert b.kind in ("number", "flag", "onehot") and (
            b.kind == "onehot" or b.stop - b.start == 1
        )
        if b.kind != "number":
            assert ((v == 0) | (v == 1)).all() and v.any()
        if b.kind == "onehot" and not (task == "income" and b.name in ("RELP", "COW")):
            assert (v.sum(1) == 1).all(), b.name
    assert torch.isfinite(pool.x).all()


def test_a_blank_is_the_category_zero():
    person = {c: np.array([1.0]) for c in TASKS["health"].columns} | dict(
        ESR=np.array([np.nan]), PINCP=np.array([np.nan])
    )
    x, _ = encode(person, "health")
    at = {b.name: b.start for b in groups("sex", "health").schema}
    assert (
        x[0, at["ESR"]] == 1
        and x[0, at["PINCP"]] == 0
        and not keep(person, "health")[0]
    )


def test_a_code_outside_the_list_sets_no_input():
    x = A.onehot("MIG", 0, 1, 2, 3).f(np.array([3.0, 4.0, 99.0]))
    assert x.tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]


# ---------------------------------------------------------------- files
def test_clients_are_in_the_order_of_the_list_whatever_is_asked(root):
    a, b = acs(root=root, states=("PR", "AL")), acs(root=root, states=("AL", "PR"))
    assert (
        a.owners == b.owners == ("AL", "PR")
        and torch.equal(a.x, b.x)
        and a.kind == "real"
        and a.test is None
        and a.K == 2
    )
    assert torch.equal(acs(root=root, states="AL").x, a.x[a.owner == 0])


def test_the_cap_is_a_fixed_sample(root):
    full, a, b = (
        acs("employment", root=root, states=s, rows=r)
        for s, r in ((THREE, None), (THREE, 20), (("CA", "PR"), 20))
    )
    assert (
        torch.bincount(full.owner).tolist() == [N] * 3
        and torch.bincount(a.owner).tolist() == [20] * 3
    )
    # whichever other states are there
    assert torch.equal(a.x[a.owner == 2], b.x[b.owner == 1])
    mine, all_ = a.x[a.owner == 0].tolist(), full.x[full.owner == 0].tolist()
    places = [all_.index(row) for row in mine]
    assert places == sorted(places) and places != list(range(20))


def test_default_folder(root, tmp_path, monkeypatch):
    (tmp_path / "acs").symlink_to(root)
    monkeypatch.setenv("FEDLIB_DATA", str(tmp_path))
    assert torch.equal(acs(states=THREE).x, acs(root=root, states=THREE).x)


def test_read_keeps_text_as_text(root):
    frame = read(root, "AL")
    assert (
        frame.SERIALNO[0] == "2018GQ0000000"
        and frame.SOCP[0] == "1110XX"
        and frame.PINCP.dtype == np.float64
    )
    assert frame.ESR.isna().equals(frame.AGEP < 16)


def test_old_file_names():
    assert A.path("d", "CA", 2016).as_posix() == "d/2016/1-Year/ss16pca.csv"
    assert A.path("d", "CA", "2017").as_posix() == "d/2017/1-Year/psam_p06.csv"


def test_a_group_may_be_absent_at_a_client(root, tmp_path):
    men = rewrite(root, tmp_path, change=lambda t: t.assign(SEX=1))
    (tmp_path / "2018" / "1-Year" / "psam_p06.csv").write_bytes(
        A.path(root, "CA").read_bytes()
    )
    pool = acs(**men | dict(states=["AL", "CA"]))
    assert not pool.a[pool.owner == 0].any() and pool.a.any()


@pytest.mark.parametrize(
    "change, says",
    [
        (
            dict(change=lambda t: t.assign(SEX=1)),
            "all .* persons have the sex 'men', so nothing",
        ),
        (
            dict(change=lambda t: t.assign(PINCP=400)),
            "have the answer 'no', so nothing can be compared",
        ),
        (
            dict(change=lambda t: t.assign(WKHP=0)),
            "psam_p01.csv has no person whom the task 'income' asks: leave AL out",
        ),
        (
            dict(change=lambda t: t.rename(columns={"RELP": "RELSHIPP"}), year="2019"),
            "no column RELP; RELSHIPP took .* 2018",
        ),
        (
            dict(change=lambda t: t.drop(columns=["COW", "WKHP"])),
            "psam_p01.csv: no column WKHP, COW; is it a person file",
        ),
        (
            dict(change=lambda t: t.assign(AGEP="old")),
            "column AGEP holds other things than numbers",
        ),
        (dict(change=lambda t: t.assign(PINCP="rich")), "damaged or cut short"),
    ],
)
def test_unusable_files(root, tmp_path, change, says):
    with pytest.raises(ValueError, match=says):
        acs(**rewrite(root, tmp_path, **change))


def test_empty_file(tmp_path):
    A.path(tmp_path, "AL").parent.mkdir(parents=True)
    A.path(tmp_path, "AL").write_text("")
    with pytest.raises(ValueError, match="psam_p01.csv is damaged or cut short"):
        acs(root=tmp_path, states=["AL"])


@pytest.mark.parametrize(
    "arguments, says",
    [
        (
            dict(states=["AL", "AK"]),
            (
                "psam_p02.csv does not exist: put .* of 2018 at "
                ".*/2018/1-Year/psam_p02.csv .*states="
            ),
        ),
        (dict(states=["ca"]), "unknown state 'ca'; did you mean 'CA'"),
        (dict(states=["DC"]), "unknown state 'DC'"),
        (dict(states=["AL", "AL"]), "each state once"),
        (dict(states=[]), "at least one"),
        (dict(states=["AL"], rows=0), "rows = 0"),
        (dict(states=["AL"], year="latest"), "year = 'latest'"),
        (dict(task="incom"), "unknown task 'incom'; did you mean 'income'"),
        (dict(group="gender"), "unknown group 'gender'"),
    ],
)
def test_bad_input(root, arguments, says):
    with pytest.raises(ValueError, match=says):
        acs(root=root, **arguments)


def test_frame_without_columns():
    with pytest.raises(ValueError, match="no column .*SEX"):
        encode({"AGEP": np.ones(2)}, "income")
