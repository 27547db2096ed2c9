"""Bad input: every case says what is wrong, where, and what to do;
and what was there before is untouched.
"""

import os
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from toys_core import GROUPS, rows, same, seen, state, toy

from fedlib.core import engine, errors
from fedlib.core.method import Method
from fedlib.core.pool import Pool
from fedlib.core.record import Record
from fedlib.core.task import Task
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import Linear

NONE = torch.zeros(0, dtype=torch.long)


def run(*args, **more):
    return engine.run(*args, **({"device": "cpu"} | more))


def files(folder):
    """Everything in a folder, by name."""
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture
def before(tmp_path):
    """A finished run and one that was stopped half way."""
    run(FedAvg(toy()), rounds=3, seed=1, cohort=3, folder=tmp_path / "done")
    run(FedAvg(toy()), rounds=3, seed=1, cohort=3, folder=tmp_path / "half", upto=2)
    return SimpleNamespace(done=tmp_path / "done", half=tmp_path / "half")


# ---------------------------------------------------------------- names and values
METHOD = [
    (
        "FedAvgg",
        {},
        (
            "unknown method 'FedAvgg'; did you mean 'FedAvg'? (python -m fedlib "
            "methods lists them)"
        ),
    ),
    ("Dito", {}, "did you mean 'Ditto'?"),
    ("zzz", {}, "unknown method 'zzz' (python -m fedlib methods lists them)"),
    (
        "FedAvg",
        {"epoch": 2},
        (
            "FedAvg has no hyper-parameter 'epoch'; did you mean 'epochs'? (it has "
            "lr, epochs,"
        ),
    ),
    ("Ditto", {"lamb": 2}, "Ditto has no hyper-parameter 'lamb'; did you mean 'lam'?"),
    ("FedRep", {"qqq": 2}, "FedRep has no hyper-parameter 'qqq' (it has"),
    (
        "FedAvg",
        {"lr": -1},
        "FedAvg.lr = -1 is outside [0, inf]: step size of the clients",
    ),
    ("FedAvg", {"lr": float("nan")}, "FedAvg.lr = nan is outside"),
    ("FedAvg", {"lr": "0.1"}, "FedAvg.lr = '0.1' is no number"),
    (
        "FedAvg",
        {"momentum": 2},
        "FedAvg.momentum = 2 is outside [0, 1]: momentum of the clients",
    ),
    ("FedAvg", {"epochs": -1}, "FedAvg.epochs = -1 is outside [0, 1000000]"),
    (
        "FedAvg",
        {"epochs": 1.5},
        "FedAvg.epochs = 1.5 is not a whole number: passes over a client's rows",
    ),
    (
        "FedAvg",
        {"last": "skip"},
        (
            "FedAvg.last = 'skip' is not one of 'keep', 'drop': what to do with an "
            "incomplete last batch"
        ),
    ),
    (
        "Ditto",
        {"lam": -0.1},
        "Ditto.lam = -0.1 is outside [0, inf]: tie of the personal to the global model",
    ),
    ("FedRep", {"head_epochs": 0.5}, "FedRep.head_epochs = 0.5 is not a whole number"),
    ("pFedHN", {"depth": 11}, "PFedHN.depth = 11 is outside [0, 10]"),
    (
        "FedAvg",
        {"batches": -1},
        (
            "FedAvg.batches = -1 is outside [0, 1000000]: batches per round, "
            "instead of epochs"
        ),
    ),
    ("FedAvg", {"batches": 1.5}, "FedAvg.batches = 1.5 is not a whole number"),
    (
        "FedAvg",
        {"poisson": "yes"},
        "FedAvg.poisson = 'yes' is not one of True, False: each row joins a batch",
    ),
    ("EquFL", {"rho": 1.1}, "EquFL.rho = 1.1 is outside [0, 1]: share of the rounds"),
    (
        "EquFL",
        {"lam": -1},
        "EquFL.lam = -1 is outside [0, inf]: strength of the server's own update",
    ),
    (
        "EquFL",
        {"target": "TPR"},
        (
            "EquFL.target = 'TPR' is not one of 'EO', 'DP', 'CAL', 'CON', 'Multi', "
            "'Sum': the bias"
        ),
    ),
    ("EquFL", {"size": 1}, "EquFL.size = 1 is outside [2, 1000000]: rows of S"),
    (
        "EquFL",
        {"net": "huge"},
        "EquFL.net = 'huge' is not one of 'same', 'standard', 'deep', 'wide'",
    ),
    (
        "EquFL",
        {"traget": "EO"},
        "EquFL has no hyper-parameter 'traget'; did you mean 'target'?",
    ),
    ("EquFL", {"moment": 1}, "'moment'; did you mean 'momentum'?"),
    ("EquFL", {"inner": "FedAvgg"}, "unknown method 'FedAvgg'; did you mean 'FedAvg'?"),
    (
        "EquFL",
        {"inner": {"name": "FedProx", "muu": 1}},
        "FedProx has no hyper-parameter 'muu'; did you mean 'mu'?",
    ),
    ("EquFL", {"inner": {"rule": "Median"}}, "EquFL.inner = {'rule': 'Median'}: give"),
    (
        "EquFL",
        {"inner": {"name": ["x"]}},
        "EquFL.inner = {'name': ['x']}: give the name",
    ),
    ("EquFL", {"inner": 3}, "EquFL.inner = 3: give the name of a method, as 'FedAvg'"),
    ("FedAvg", {"step": {"name": {"a": 1}}}, "unknown step {'a': 1}"),
    ("FedAvg", {"rule": {"name": ["x"]}}, "unknown rule ['x']"),
    ("FedAvg", {"poisson": 1}, "FedAvg.poisson = 1 is not one of"),
    ("FedAvg", {"poisson": np.array([1, 2])}, "FedAvg.poisson = array([1, 2]) is not"),
    ({"a": 1}, {}, "unknown method {'a': 1}"),
    ("FedClip", {}, "did you mean 'FedCLIP'"),
    (
        "Gaussian-update",
        {"std": -1},
        "GaussianUpdate.std = -1 is outside [0, inf]: standard deviation of the noise",
    ),
    (
        "Uniform-update",
        {"bound": -1},
        "UniformUpdate.bound = -1 is outside [0, inf]: largest size of a coordinate",
    ),
    (
        "FedAvg",
        {"rule": "Medain"},
        (
            "unknown rule 'Medain'; did you mean 'Median'? (known: Mean, Median, "
            "TrimmedMean, MultiKrum,"
        ),
    ),
    ("FedAvg", {"rule": {"trim": 0.1}}, "unknown rule None (known: Mean, Median"),
    (
        "FedAvg",
        {"rule": {"name": "TrimmedMean", "trimm": 0.1}},
        "TrimmedMean has no 'trimm'; did you mean 'trim'? (it has trim)",
    ),
    (
        "FedAvg",
        {"rule": {"name": "Median", "trim": 0.1}},
        "Median has no 'trim' (it has nothing to set)",
    ),
    ("FedAvg", {"rule": {"name": "TrimmedMean", "trim": 0.5}}, "give 0 <= trim < 0.5"),
    (
        "FedAvg",
        {"step": "Privat"},
        "unknown step 'Privat'; did you mean 'Private'? (known: Plain, SAM, Private)",
    ),
    ("FedAvg", {"step": {"name": "SAM", "clip": 1}}, "SAM has no 'clip' (it has rho)"),
    (
        "FedAvg",
        {"step": {"name": "Private", "sigma": -1}},
        "Private(clip=1.0, sigma=-1): give clip > 0",
    ),
    (
        "FedAvg",
        {"step": {"name": "Private", "clip": 0}},
        "Private(clip=0, sigma=1.0): give clip > 0",
    ),
]


@pytest.mark.parametrize("name, kw, says", METHOD)
def test_method(name, kw, says):
    with pytest.raises(ValueError) as e:
        make(name, toy(), **kw)
    assert says in str(e.value)


@pytest.mark.parametrize("task", [3, "digits", [toy()]])
def test_a_task_is_a_task(task):
    for act in (lambda: make("FedAvg", task), lambda: run(FedAvg(task), rounds=1)):
        with pytest.raises(ValueError, match=r"^task = .*: give a Task, such as"):
            act()


def test_what_a_method_is_around_is_a_method():
    with pytest.raises(ValueError, match=r"^EquFL.inner = 3: give a method, built on"):
        METHODS["EquFL"](toy(), inner=3)


def test_what_is_permitted_is_accepted():
    for name, kw in (
        ("FedAvg", {"lr": 1, "momentum": 0, "last": "drop"}),
        ("Ditto", {"lam": 0}),
        ("FedRep", {"head_epochs": 0}),
    ):
        assert run(make(name, toy(), **kw), rounds=1, cohort=2).rounds.tolist() == [
            0,
            1,
        ]


# ---------------------------------------------------------------- tasks
def with_x(change):
    x = toy().x.clone()
    change(x)
    return {"x": x}


def poke(x):
    x[7, 2], x[9, 0] = float("nan"), float("inf")


TASK = [
    (
        lambda: with_x(poke),
        (
            "task 'toy': 2 rows of x hold NaN or infinity, the first is row 7; drop or "
            "impute them first"
        ),
    ),
    (lambda: {"x": toy().x[:-1]}, "x has 152 rows and y 153; give one label per row"),
    (
        lambda: {"x": toy().x.long()},
        "x is torch.int64 and y torch.int64; x must be floating point and y integer",
    ),
    (
        lambda: {"y": toy().y.double() + 0.5},
        (
            "x is torch.float64 and y torch.float64; x must be floating point "
            "and y integer"
        ),
    ),
    (lambda: {"y": toy().y + 1}, "labels run from 1 to 3, K = 3 allows 0 to 2"),
    (lambda: {"y": toy().y - 1}, "labels run from -1 to 1, K = 3 allows 0 to 2"),
    (
        lambda: {"train": (NONE, *toy().train[1:])},
        "client 0 has 0 training and 6 test samples; drop it, merge it",
    ),
    (
        lambda: {"test": (*toy().test[:4], NONE, toy().test[5])},
        "client 4 has 11 training and 0 test samples",
    ),
    (
        lambda: {"val": toy().val[1:]},
        "6 train, 5 val and 6 test lists; give one of each per client",
    ),
    (lambda: {"train": (), "val": (), "test": ()}, "0 train, 0 val and 0 test lists"),
    (
        lambda: {"train": (toy().train[0] + 1000, *toy().train[1:])},
        "row numbers run from 0 to 1018, the data has 153 rows",
    ),
    (
        lambda: {"val": (toy().train[0][:4], *toy().val[1:])},
        "a row is used twice; each training or validation row",
    ),
    (
        lambda: {"test": (toy().train[0][:4], *toy().test[1:])},
        "row 10 is used twice, for training or validation and for testing",
    ),
    (
        lambda: {"test": (toy().test[0].repeat(2), *toy().test[1:])},
        "a client's test rows hold a row twice",
    ),
    (lambda: {"batch": 0}, "batch = 0; give a positive batch size"),
    (
        lambda: {"groups": GROUPS, "a": None},
        (
            "groups are described and a has None entries for 153 rows; give the "
            "group of every"
        ),
    ),
    (
        lambda: {"groups": GROUPS, "a": toy().a[:-2]},
        "groups are described and a has 151 entries for 153 rows",
    ),
    (
        lambda: {"groups": GROUPS, "a": toy().a + 1},
        "groups run from 1 to 2; 'code' has the 2 groups nought, one, numbered 0 to",
    ),
    (
        lambda: {"groups": GROUPS, "a": toy().a - 1},
        "groups run from -1 to 0; 'code' has the 2 groups",
    ),
    (
        lambda: {"groups": GROUPS, "a": toy().a * 0},
        (
            "the sensitive attribute 'code' takes only the value nought; two groups or "
            "more must have rows, and all that it names (nought, one), or leave it out"
        ),
    ),
    (
        lambda: {"groups": replace(GROUPS, positive=())},
        "0 of 153 rows have the positive outcome (); choose the positive classes",
    ),
    (
        lambda: {"groups": replace(GROUPS, positive=(0, 1, 2))},
        "153 of 153 rows have the positive outcome (0, 1, 2); choose",
    ),
    (
        lambda: {"groups": replace(GROUPS, positive=(7,))},
        "0 of 153 rows have the positive outcome (7,)",
    ),
]


@pytest.mark.parametrize("change, says", TASK)
def test_task(change, says):
    with pytest.raises(ValueError) as e:
        replace(toy(), **change())
    assert says in str(e.value) and str(e.value).startswith("task 'toy': ")


def pool(n=40):
    g = torch.Generator().manual_seed(0)
    return Pool("mine", torch.randn(n, 5, generator=g), torch.arange(n) % 3, 3, "real")


ROWS = [
    (
        {"parts": (0.8, 0.1)},
        "parts = (0.8, 0.1): give three shares (train, val, test) that sum to 1",
    ),
    ({"parts": (0.8, 0.1, 0.2)}, "that sum to 1"),
    ({"parts": (1.2, -0.1, -0.1)}, "give three shares"),
    (
        {"rows": rows([38, 2])},
        (
            "client 1 has 1 training and 0 test samples; drop it, merge it with "
            "another, or raise"
        ),
    ),
    ({"rows": ()}, "0 train, 0 val and 0 test lists"),
    (
        {"rows": (torch.arange(20), torch.arange(10, 30))},
        "task 'mine': a row is given to two clients, or twice to one",
    ),
]


@pytest.mark.parametrize("change, says", ROWS)
def test_from_rows(change, says):
    kw = {"rows": rows([20, 20]), "parts": (0.8, 0.1, 0.1)} | change
    with pytest.raises(ValueError) as e:
        Task.from_rows("mine", Linear(5, 3), pool(), kw["rows"], parts=kw["parts"])
    assert says in str(e.value)


ARRAYS = [
    (
        lambda x, y, c: (x[:-1], y, c),
        "x has 39 rows, y 40, client_id 40: give one label and one client per row",
    ),
    (lambda x, y, c: (x, y, c[:-1]), "x has 40 rows, y 40, client_id 39"),
    (
        lambda x, y, c: (x, y + 0.5, c),
        "y holds fractions: labels must be integers 0 .. K-1",
    ),
    (
        lambda x, y, c: (x, y - 1, c),
        "labels run from -1 to 1: classes are numbered 0 to K-1",
    ),
    (
        lambda x, y, c: (x * np.nan, y, c),
        "40 rows of x hold NaN or infinity, the first is row 0",
    ),
    (
        lambda x, y, c: (x, y, ["a"] * 39 + ["b"]),
        "client 1 has 0 training and 0 test samples",
    ),
]


@pytest.mark.parametrize("change, says", ARRAYS)
def test_from_arrays(change, says):
    x, y, c = (
        np.random.RandomState(0).randn(40, 5),
        np.arange(40.0) % 3,
        ["a", "b"] * 20,
    )
    # integers stored as floats are fine
    assert Task.from_arrays(x, y, c, Linear(5, 3)).C == 2
    with pytest.raises(ValueError) as e:
        Task.from_arrays(*change(x, y, c), Linear(5, 3))
    assert says in str(e.value)


# the columns in words
AGE, JOB = ("age", "number", 1, (-1, 2)), ("job", "onehot", 3)
WORDS = ["sex", AGE, JOB, ("born abroad", "flag")]


def described(x=None, schema=WORDS, **more):
    """A task of 40 people with 6 columns; x {(row, column): value} is what they have
    instead.
    """
    i = torch.arange(40)
    rows = torch.zeros(40, 6)
    rows[:, 0], rows[:, 1], rows[:, 5] = i % 2, torch.linspace(-1, 2, 40), i % 3 == 0
    rows[i[:-1], 2 + i[:-1] % 3] = 1  # the last row has no job
    for place, value in (x or {}).items():
        rows[place] = value
    more = {"a": i % 2} | more
    return Task.from_arrays(rows, i // 2 % 2, i % 4 // 2, schema=schema, **more)


def instead(i, entry):
    """The schema with another entry i."""
    return {"schema": WORDS[:i] + [entry] + WORDS[i + 1 :]}


SCHEMA = [
    # the list
    (
        {"schema": []},
        "schema = []: give a list with an entry for the columns of x, in their order; "
        'an entry is name, (name, kind), (name, kind, width) or (name, "number", '
        "width, (low, high))",
    ),
    ({"schema": "age"}, "schema = 'age': give a list"),
    ({"schema": {"age": "number"}}, "schema = {'age': 'number'}: give a list"),
    ({"schema": ("age", "number")}, "schema = ('age', 'number'): give a list"),
    (
        {"schema": WORDS[:-1]},
        "schema describes 5 columns, and x has 6; let the widths of its 3 entries sum "
        "to 6",
    ),
    ({"schema": [*WORDS, "more"]}, "schema describes 7 columns, and x has 6; let"),
    (instead(2, ("job", "onehot", 4)), "schema describes 7 columns, and x has 6"),
    (instead(2, ("job", "onehot", 10**30)), "and x has 6; let the widths"),
    (
        instead(3, "age"),
        "schema[3] = 'age': columns 1 and 5 both begin a block 'age'; give each block "
        "a name of its own",
    ),
    (
        {"x": {}, "a": None},
        "schema is given and a is not: it is for those who draw rows of every group; "
        "give a, the group of every row, or leave schema out",
    ),
    # an entry
    (instead(1, 3), "schema[1] = 3: give name, (name, kind), (name, kind, width) or"),
    (instead(1, None), "schema[1] = None: give name, (name, kind)"),
    (instead(1, ("age",)), "schema[1] = ('age',): give name, (name, kind)"),
    (instead(1, {"name": "age"}), "schema[1] = {'name': 'age'}: give name, (name,"),
    (instead(1, (*AGE, 1)), "schema[1] = ('age', 'number', 1, (-1, 2), 1): give name"),
    (
        instead(1, (7, "number")),
        "schema[1] = (7, 'number'): the name is 7; give a text",
    ),
    (instead(1, ""), "schema[1] = '': the name is ''; give a text"),
    (
        instead(2, ("job", "one-hot", 3)),
        "schema[2] = ('job', 'one-hot', 3): unknown kind 'one-hot'; did you mean "
        "'onehot'? (known: number, flag, onehot)",
    ),
    (instead(2, ("job", "word", 3)), "unknown kind 'word' (known: number, flag,"),
    (instead(1, ("age", None)), "unknown kind None"),
    (instead(1, ("age", ["number"])), "unknown kind ['number']; did you mean"),
    # a width
    (
        instead(1, ("age", "number", 0)),
        "schema[1] = ('age', 'number', 0): width = 0; give the number of columns, 1 or "
        "more",
    ),
    (instead(1, ("age", "number", -1)), "width = -1; give the number of columns, 1"),
    (instead(1, ("age", "number", 1.0)), "width = 1.0; give the number of columns"),
    (instead(1, ("age", "number", True)), "width = True; give the number of columns"),
    (instead(1, ("age", "number", (-1, 2))), "width = (-1, 2); give the number of"),
    (instead(1, ("age", "number", "1")), "width = '1'; give the number of columns"),
    (
        instead(3, ("born abroad", "onehot")),
        "schema[3] = ('born abroad', 'onehot'): width = 1; give the number of columns, "
        "2 or more, or call a single column a flag",
    ),
    # a range
    (
        instead(1, ("age", "number", 1, (2, -1))),
        "schema[1] = ('age', 'number', 1, (2, -1)): the range is (2, -1); give two "
        "numbers (low, high) with low < high; an end may be infinite",
    ),
    (instead(1, ("age", "number", 1, (2, 2))), "the range is (2, 2); give two"),
    (instead(1, ("age", "number", 1, (-1, np.nan))), "the range is (-1, nan); give"),
    (instead(1, ("age", "number", 1, (np.nan, 2))), "the range is (nan, 2); give"),
    (instead(1, ("age", "number", 1, (-1,))), "the range is (-1,); give two numbers"),
    (instead(1, ("age", "number", 1, (-1, 0, 2))), "the range is (-1, 0, 2); give"),
    (instead(1, ("age", "number", 1, 2)), "the range is 2; give two numbers"),
    (instead(1, ("age", "number", 1, "02")), "the range is '02'; give two numbers"),
    (instead(1, ("age", "number", 1, ("a", 2))), "the range is ('a', 2); give two"),
    (instead(1, ("age", "number", 1, (-1, None))), "the range is (-1, None); give"),
    (instead(1, ("age", "number", 1, (False, True))), "the range is (False, True);"),
    (
        instead(3, ("born abroad", "flag", 1, (0, 1))),
        "schema[3] = ('born abroad', 'flag', 1, (0, 1)): flag means 0 or 1 and takes "
        "no range; leave (0, 1) out, or use number",
    ),
    # the rows
    (
        {"x": {(7, 1): 2.5}},
        "schema[1] = ('age', 'number', 1, (-1, 2)): row 7 of x holds 2.5 in column 1; "
        "clip it, or widen the range",
    ),
    ({"x": {(7, 1): -1.5}}, "row 7 of x holds -1.5 in column 1; clip it, or widen"),
    (
        {"x": {(7, 1): np.nan}},
        "schema[1] = ('age', 'number', 1, (-1, 2)): row 7 of x holds nan in column 1; "
        "drop or impute what is not finite",
    ),
    ({"x": {(7, 0): np.nan}}, "schema[0] = 'sex': row 7 of x holds nan in column 0;"),
    ({"x": {(7, 3): np.inf}}, "row 7 of x holds inf in column 3; drop or impute"),
    (
        {"x": {(9, 5): 2}},
        "schema[3] = ('born abroad', 'flag'): row 9 of x holds 2.0 in column 5; flag means "
        "0 or 1; recode it, or use number",
    ),
    (instead(1, ("age", "flag")), "row 0 of x holds -1.0 in column 1; flag means 0"),
    ({"x": {(9, 3): 0.5}}, "row 9 of x holds 0.5 in column 3; onehot means 0 or 1"),
    (
        {"x": {(9, 4): 1}},
        "schema[2] = ('job', 'onehot', 3): row 9 of x holds 1.0 in column 4; it is the "
        "second 1 of this row; leave one, or use flag",
    ),
    # the code, which is the job's first column
    (
        {"a": (torch.arange(40) % 3 == 0)[:39].tolist() + [False]},
        "groups 'group': the code is column 2 of x, one of 3 in the one-hot block "
        "'job'; rows that are drawn get their code there and would not be one-hot any "
        "more: keep this column, as a flag, and leave the others of its block out",
    ),
]


@pytest.mark.parametrize("change, says", SCHEMA)
def test_schema(change, says):
    assert described().groups.column == 0
    with pytest.raises(ValueError) as e:
        described(**change)
    assert says in str(e.value)


@pytest.mark.parametrize("shape", [(40,), (40, 2, 3), (40, 1, 2, 3)])
def test_a_schema_is_for_columns(shape):
    x, i = torch.zeros(shape), torch.arange(40)
    with pytest.raises(ValueError) as e:
        Task.from_arrays(x, i % 2, i // 20, a=i % 2, schema=WORDS)
    assert str(e.value) == (
        f"schema describes the columns of x [N, D], and x is {list(shape)}; leave "
        "schema out for images, or give one row of numbers per person"
    )


# ---------------------------------------------------------------- runs
RUN = [
    (
        {"cohort": 7},
        (
            "cohort = 7: the task 'toy' has 6 clients; give 1 to 6, None for all, or "
            "a function"
        ),
    ),
    ({"cohort": 0}, "cohort = 0"),
    ({"cohort": 2.5}, "cohort = 2.5"),
    ({"cohort": [1, 2]}, "or a function from the round"),
    (
        {"cohort": lambda t: [0, 0]},
        "cohort(2) = [0, 0]: give a list of different client numbers from 0 to 5",
    ),
    ({"cohort": lambda t: [6]}, "cohort(2) = [6]: give a list of different client"),
    ({"rounds": -1}, "rounds = -1, every = 1: give whole numbers"),
    ({"rounds": 2.5}, "rounds = 2.5"),
    ({"every": 0}, "every = 0: give whole numbers, rounds from 0 to 1e+09 and every"),
    ({"rounds": 10**12}, "rounds = 1000000000000, every = 1: give whole numbers"),
    ({"precision": np.array([])}, "precision = array"),
    ({"how": np.array(["loop"])}, "how = array"),
    ({"how": "fast"}, "how = 'fast': give 'loop', 'vmap' or None"),
    (
        {"chunk": 0},
        "chunk = 0: give a positive number of clients, or None for the whole cohort",
    ),
    ({"chunk": 2**64}, "chunk = 18446744073709551616: give a positive number"),
    ({"folder": "\0"}, "folder = '\\x00': give the path of a folder, or None"),
    (
        {"splits": ("train",)},
        "splits = ('train',): give some of 'test', 'val' and 'all' (the training rows)",
    ),
    ({"splits": ()}, "splits = ()"),
    ({"seed": 2}, "belongs to another run: seed is 1 there, 2 here"),
]


@pytest.mark.parametrize("change, says", RUN)
def test_run(change, says, before):
    kept = files(before.half)
    # a given cohort is part of the run's identity, so begin one
    if callable(change.get("cohort")):
        run(
            FedAvg(toy()),
            rounds=3,
            seed=1,
            cohort=lambda t: [0, 1],
            folder=before.half / "own",
            upto=2,
        )
        before.half, kept = before.half / "own", files(before.half / "own")
    with pytest.raises(ValueError) as e:
        run(
            FedAvg(toy()),
            **({"rounds": 3, "seed": 1, "cohort": 3, "folder": before.half} | change),
        )
    assert says in str(e.value) and files(before.half) == kept


@pytest.mark.parametrize(
    "name", [n for n in METHODS if METHODS[n].needs_groups is True]
)
def test_groups_that_a_method_needs(name, tmp_path):
    with pytest.raises(ValueError) as e:
        run(make(name, toy()), rounds=1, folder=tmp_path / "run")
    assert (
        f"{METHODS[name].__name__} needs to know the groups, and 'toy' has none: give "
        "the task a sensitive"
    ) in str(e.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["EquFL", "Gaussian-update"])
def test_a_wrapper_around_nothing(name):
    with pytest.raises(
        ValueError,
        match=f"{METHODS[name].__name__} wraps a method and inner is None: give inner=",
    ):
        run(METHODS[name](toy(groups=GROUPS)), rounds=1)


def test_groups_that_the_method_inside_needs():
    with pytest.raises(
        ValueError, match="needs to know the groups, and 'toy' has none"
    ):
        run(make("Gaussian-update", toy(), inner="Reweight"), rounds=1)


def test_no_task():
    with pytest.raises(ValueError, match="run needs a task: give one to the method"):
        run(FedAvg(), rounds=1)


@pytest.mark.parametrize("name", [n for n, c in METHODS.items() if c.needs_val is True])
def test_methods_that_need_validation_rows(name):
    task = replace(toy(), val=(toy().val[0], NONE, NONE, *toy().val[3:]))
    with pytest.raises(
        ValueError,
        match=(
            r"needs validation rows at every client; client 1 of 'toy' has none "
            r"\(2 in all\)"
        ),
    ):
        run(METHODS[name](task), rounds=1)
    assert run(FedAvg(task), rounds=1).rounds.tolist() == [0, 1]


def test_a_method_without_its_functions():
    @dataclass(frozen=True)
    class Empty(FedAvg):
        local = Method.local

    with pytest.raises(
        errors.ClientError,
        match=(
            "client 0, round 0, local: NotImplementedError: Empty has no local training"
        ),
    ):
        run(Empty(toy()), rounds=1)


def test_an_unknown_view_names_those_there_are():
    rec = run(FedAvg(toy()), rounds=1)
    with pytest.raises(
        KeyError,
        match=(
            r"record of FedAvg has no view \('pre', 'personal', 'test'\); it has "
            r"\('pre', 'global'"
        ),
    ):
        rec["pre", "personal", "test"]


# ---------------------------------------------------------------- files
def truncated(path):
    path.write_bytes(path.read_bytes()[:-200])


def half_gone(path):
    path.write_bytes(path.read_bytes()[:60])


def swapped(path):
    """A sound npz with other numbers: only the checksum tells."""
    with np.load(path) as z:
        arrays = {k: z[k] * 0 for k in z.files}
    np.savez_compressed(path, **arrays)


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))


FILES = [
    ("record.npz", truncated),
    ("record.npz", half_gone),
    ("record.npz", flipped),
    ("record.npz", swapped),
    ("record.npz", os.unlink),
    ("record.npz", lambda p: p.write_bytes(b"")),
    ("record.json", lambda p: p.write_text(p.read_text()[:50])),
    ("record.json", os.unlink),
]


@pytest.mark.parametrize("name, damage", FILES)
def test_a_damaged_record_is_refused(name, damage, before):
    half, good = files(before.half), files(before.done)
    damage(before.done / name)
    for read in (
        lambda: Record.load(before.done),
        lambda: run(FedAvg(toy()), rounds=3, seed=1, cohort=3, folder=before.done),
    ):
        with pytest.raises(ValueError) as e:
            read()
        assert str(e.value).startswith(f"record {before.done} cannot be read (")
        assert str(e.value).endswith("; delete the folder to run it again")
    assert files(before.half) == half
    (before.done / name).write_bytes(good[name])
    assert same(
        seen(Record.load(before.done)),
        seen(run(FedAvg(toy()), rounds=3, seed=1, cohort=3)),
    )


@pytest.mark.parametrize("damage", [truncated, flipped])
def test_a_damaged_checkpoint_is_refused(damage, before):
    done = files(before.done)
    damage(before.half / "checkpoint")
    kept = files(before.half)
    with pytest.raises(
        ValueError,
        match="checkpoint .* is damaged .*; delete it to start this run again",
    ):
        run(FedAvg(toy()), rounds=3, seed=1, cohort=3, folder=before.half)
    assert files(before.half) == kept and files(before.done) == done
    (before.half / "checkpoint").unlink()  # what the message says helps
    again = run(FedAvg(toy()), rounds=3, seed=1, cohort=3, folder=before.half)
    assert same(seen(again), seen(Record.load(before.done)))


class Full:
    """A disk that is full when the (at + 1)-th file is written."""

    def __init__(self, monkeypatch, at):
        self.calls, self.at = 0, at
        monkeypatch.setattr(os, "fsync", self)

    def __call__(self, handle):
        self.calls += 1
        if self.calls > self.at:
            raise OSError(28, "No space left on device")


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_full_disk_while_writing_a_record(at, before, monkeypatch):
    """Whichever of the three files fails: no half file, no mark, and the checkpoint is
    still there to go on from.
    """
    done, half = files(before.done), files(before.half)
    with monkeypatch.context() as m:
        Full(m, at)
        with pytest.raises(
            OSError,
            match=(
                "No space left on device while writing .*; what was there is untouched"
            ),
        ) as e:
            how = {"rounds": 3, "seed": 1, "cohort": 3, "keep_state": False}
            run(FedAvg(toy()), **how, folder=before.half)
        assert e.value.errno == 28
    now = files(before.half)
    assert (
        now["checkpoint"] == half["checkpoint"]
        and "done" not in now
        and len(now) == 1 + at
        and files(before.done) == done
    )
    # there is room again
    rest = run(FedAvg(toy()), rounds=3, seed=1, cohort=3, folder=before.half)
    assert same(seen(rest), seen(Record.load(before.done)))


def test_a_full_disk_while_overwriting_a_record(before, monkeypatch):
    rec, done = Record.load(before.done), files(before.done)
    rec.meta["seconds"] = -1.0

    Full(monkeypatch, 0)
    with pytest.raises(OSError, match="record.npz"):
        rec.save(before.done)
    assert files(before.done) == done


def test_a_full_disk_while_writing_a_checkpoint(tmp_path, monkeypatch):
    """The checkpoint of the round before survives, and leads to the same end."""
    with monkeypatch.context() as m:
        Full(m, 2)
        with pytest.raises(
            OSError, match="No space left on device while writing .*checkpoint"
        ):
            run(
                FedAvg(toy()),
                rounds=5,
                seed=1,
                cohort=3,
                folder=tmp_path,
                checkpoint_every=0,
            )
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint"]
    rest, whole = (
        run(FedAvg(toy()), rounds=5, seed=1, cohort=3, folder=f)
        for f in (tmp_path, None)
    )
    assert same(state(rest), state(whole)) and same(seen(rest), seen(whole))
