"""The American Community Survey, person file: four yes-no questions about people, one
client per state.

Tasks are those of Ding, Hardt, Miller and Schmidt, Retiring Adult: New Datasets for
Fair Machine Learning (NeurIPS 2021): the same filters, columns and targets. Files:
`{root}/{year}/1-Year/psam_p{FIPS}.csv`, as the official archives unpack and as the
package folktables expects; up to 2016 `ss{yy}p{state}.csv`. `python -m fedlib data
get acs` fetches them.

The encoder is fixed and public: every constant stands below, none is learnt, so no
client's data leave the client. A blank becomes 0. Both sensitive attributes are inputs:
column 0 is 1 for women, column 1 is 1 for everybody who is not white alone.
Letters: N persons, D inputs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from ..core.groups import Block, Groups
from ..core.pool import Pool
from .files import DataError, data_root
from .settings import one_of, settings

# fmt: off
FIPS = dict(  # the 50 states and Puerto Rico: the clients, in this order
    AL=1, AK=2, AZ=4, AR=5, CA=6, CO=8, CT=9, DE=10,
    FL=12, GA=13, HI=15, ID=16, IL=17, IN=18, IA=19, KS=20,
    KY=21, LA=22, ME=23, MD=24, MA=25, MI=26, MN=27, MS=28,
    MO=29, MT=30, NE=31, NV=32, NH=33, NJ=34, NM=35, NY=36,
    NC=37, ND=38, OH=39, OK=40, OR=41, PA=42, RI=44, SC=45,
    SD=46, TN=47, TX=48, UT=49, VT=50, VA=51, WA=53, WV=54,
    WI=55, WY=56, PR=72,
)
# fmt: on
STATES = tuple(FIPS)
# types that are not left to the reader
TEXT = dict(RT=str, SERIALNO=str, SOCP=str, NAICSP=str, PINCP=np.float64)
# highest OCCP of the first ten occupations
CUTS = (440, 960, 1980, 2970, 3550, 4160, 4980, 5950, 7650, 8990)


# ---------------------------------------------------------------- the encoder
class Code(NamedTuple):
    """How a column of the survey becomes inputs: f maps its values [N] to [N,
    width].
    """

    name: str
    kind: str
    column: str
    width: int
    f: Callable


def number(column, centre, scale):
    return Code(column, "number", column, 1, lambda v: ((v - centre) / scale)[:, None])


def flag(name, column, test):
    return Code(name, "flag", column, 1, lambda v: test(v)[:, None])


def onehot(column, *sets):
    """One input per set of codes; a code in none of them sets no input."""
    sets = [s if isinstance(s, tuple) else (s,) for s in sets]
    # the last row: none
    table = np.zeros((max(map(max, sets)) + 2, len(sets)), np.float32)
    for j, s in enumerate(sets):
        table[list(s), j] = 1
    row = lambda v: table[np.minimum(v, len(table) - 1).astype(int)]
    return Code(column, "onehot", column, len(sets), row)


def age_squared(v):
    return (((v - 45) / 17) ** 2 - 1)[:, None]


def income(v):
    return np.arcsinh(v / 10_000)[:, None]


def occupation(v):
    return (np.searchsorted(CUTS, v)[:, None] == np.arange(11)) & (v > 0)[:, None]


SEX = flag("sex", "SEX", lambda v: v == 2)
RACE = flag("race", "RAC1P", lambda v: v != 1)
AGE = number("AGEP", 45, 17)
SCHOOL = number("SCHL", 17, 4)
HOURS = number("WKHP", 38, 13)
AGE2 = Code("AGEP squared", "number", "AGEP", 1, age_squared)
INCOME = Code("PINCP", "number", "PINCP", 1, income)
OCCUPATION = Code("OCCP", "onehot", "OCCP", 11, occupation)
LISTS = {name: (1, 2) for name in ("DIS", "NATIVITY", "DEAR", "DEYE")}
LISTS |= {"MAR": range(1, 6), "CIT": range(1, 6), "ANC": range(1, 5)}
LISTS |= {"RELP": range(18), "ESP": range(9), "MIG": range(4), "MIL": range(5)}
LISTS |= {"DREM": range(3), "ESR": range(7), "FER": range(3)}
ORIGINS = ("RACAIAN", "RACASN", "RACBLK", "RACNH", "RACPI", "RACSOR", "RACWHT")


def listed(names):
    """Each column by its official list of codes; 0, where it is listed, is a blank."""
    return tuple(onehot(name, *LISTS[name]) for name in names.split())


# ---------------------------------------------------------------- the tasks
class Problem(NamedTuple):
    """One question: who is asked (`keep`), the answer (`outcome` of the column
    `target`), and the inputs.
    """

    codes: tuple[Code, ...]
    target: str
    outcome: Callable
    keep: Callable | None = None  # {column: [N]} -> [N] bool; None: everybody
    asked: tuple[str, ...] = ()  # further columns that `keep` reads

    @property
    def columns(self) -> tuple[str, ...]:
        inputs = [c.column for c in self.codes]
        return tuple(dict.fromkeys([*inputs, self.target, *self.asked]))

    @property
    def D(self) -> int:
        return sum(c.width for c in self.codes)

    @property
    def schema(self) -> tuple[Block, ...]:
        edges = np.cumsum([0] + [c.width for c in self.codes]).tolist()
        places = zip(self.codes, edges, edges[1:])
        return tuple(Block(c.name, c.kind, i, j) for c, i, j in places)


def _yes(v):
    return v == 1


def _earns(t):
    """The filter of ACSIncome."""
    adult = (t["AGEP"] > 16) & (t["PINCP"] > 100)
    return adult & (t["WKHP"] > 0) & (t["PWGTP"] >= 1)


PERSON = (SEX, RACE, AGE, AGE2, SCHOOL)
EMPLOYMENT = listed("MAR RELP DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM")
COVERAGE = listed("MAR DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM ESR FER")
TASKS = {
    "income": Problem(  # ACSIncome: more than 50,000 dollars a year?
        (
            *PERSON,
            HOURS,
            onehot("MAR", 1, 5, (2, 3, 4)),
            onehot("COW", (1, 2), (3, 4, 5), (6, 7, 8)),
            OCCUPATION,
            onehot("RELP", 0, 1),
            flag("born abroad", "POBP", lambda v: v >= 100),
        ),
        "PINCP",
        lambda v: v > 50_000,
        _earns,
        ("PWGTP",),
    ),
    # ACSEmployment: at work?
    "employment": Problem((*PERSON, *EMPLOYMENT), "ESR", _yes),
    # ACSPublicCoverage: people of low income, in public health insurance?
    "health": Problem(
        (*PERSON, INCOME, *COVERAGE),
        "PUBCOV",
        _yes,
        lambda t: (t["AGEP"] < 65) & (t["PINCP"] <= 30_000),
    ),
    # ACSHealthInsurance: insurance bought directly?
    "insurance": Problem(
        (*PERSON, INCOME, *COVERAGE, *(flag(name, name, _yes) for name in ORIGINS)),
        "HINS2",
        _yes,
    ),
}
# in the order of columns 0 and 1
GROUPS = dict(sex=(SEX, ("men", "women")), race=(RACE, ("white", "not white")))


def problem(task: str) -> Problem:
    """The question of this name."""
    one_of("task", task, TASKS)
    return TASKS[task]


def groups(group: str, task: str) -> Groups:
    """The sensitive attribute "sex" or "race" of a task; the positive outcome is the
    answer yes.
    """
    one_of("group", group, GROUPS)
    column, schema = list(GROUPS).index(group), problem(task).schema
    return Groups(group, GROUPS[group][1], (1,), column, schema=schema)


def keep(frame, task: str) -> np.ndarray:
    """[N] whether the task asks this person; frame as for `encode`.

    A blank passes no filter.
    """
    p = problem(task)
    _complete(frame, p.columns)
    if p.keep is None:
        return np.ones(len(frame[p.target]), bool)
    return np.asarray(p.keep(frame))


def encode(frame, task: str):
    """Inputs x [N, D] float32 and answers y [N] int64 (1: yes) of all rows; a DataFrame
    or {column: [N]}.

    The filter is not applied: see `keep`.
    """
    p = problem(task)
    _complete(frame, p.columns)
    numbers = {name: np.asarray(frame[name], dtype=np.float64) for name in p.columns}
    v = {name: np.nan_to_num(column) for name, column in numbers.items()}
    x = np.empty((len(v[p.target]), p.D), np.float32)
    for code, block in zip(p.codes, p.schema):
        x[:, block.start : block.stop] = code.f(v[code.column])
    return torch.from_numpy(x), torch.from_numpy(p.outcome(v[p.target])).long()


# ---------------------------------------------------------------- the files
@settings(task=TASKS, group=GROUPS, rows=(1,))
def acs(
    task: str = "income",
    group: str = "sex",
    root=None,
    year: str = "2018",
    states: str | Sequence[str] | None = None,
    rows: int | None = 5000,
) -> Pool:
    """The survey as a Pool whose owner is the state; Pool.a holds the group of each
    person.

    task    "income", "employment", "health" or "insurance" (see TASKS)
    group   "sex" (men 0, women 1) or "race" (white alone 0, all others 1)
    root    folder above `{year}` (default: `acs` in the data folder)
    states  which states, by their two letters, so that a part of the files will do;
            default: all 51 of STATES, in that order
    rows    at most so many persons per state, drawn after the filter and always the
            same ones; None: all
    """
    p, kind, states = problem(task), groups(group, task), _states(states)
    root = data_root() / "acs" if root is None else data_root(root)
    x, y, n = [], [], []
    for state in states:
        frame = read(root, state, year, p.columns)
        frame = frame[keep(frame, task)]
        if not len(frame):
            raise ValueError(
                f"{path(root, state, year)} has no person whom the task {task!r} asks: "
                f"leave {state} out of states"
            )
        if rows is not None and len(frame) > rows:
            rng = np.random.default_rng(FIPS[state])
            chosen = rng.choice(len(frame), rows, replace=False)
            frame = frame.iloc[np.sort(chosen)]
        xs, ys = encode(frame, task)
        x, y, n = x + [xs], y + [ys], n + [len(ys)]
    owner = np.repeat(np.arange(len(n)), n)
    return pool(f"ACS {task}", torch.cat(x), torch.cat(y), owner, states, "real", kind)


def pool(name, x, y, owner, owners, kind, groups, test=None) -> Pool:
    """Encoded persons as a Pool; ValueError where all are in one group or all have one
    answer.
    """
    a = x[:, groups.column].long()
    answers = ("answer", y, ("no", "yes"))
    for what, v, names in ((groups.name, a, groups.names), answers):
        if len(found := v.unique()) < 2:
            only = ", ".join(names[k] for k in found) or "none"
            raise ValueError(
                f"{name}: all {len(v):,} persons have the {what} {only!r}, so nothing "
                "can be compared; use more states or persons"
            )
    owner = torch.from_numpy(owner)
    return Pool(name, x, y, 2, kind, owner, tuple(owners), test, a, groups)


def path(root, state: str, year="2018") -> Path:
    """Where the person file of a state lies below `root`."""
    if not re.fullmatch(r"[0-9]{4}", str(year)):
        raise ValueError(f"acs: year = {year!r}: give the year of the survey, as 2018")
    name = f"psam_p{FIPS[state]:02d}.csv"
    if int(year) < 2017:
        name = f"ss{int(year) % 100:02d}p{state.lower()}.csv"
    return Path(root) / str(year) / "1-Year" / name


def read(root, state: str, year="2018", columns=None):
    """The named columns (default: all) of a state's person file as a DataFrame; blanks
    are NaN.
    """
    import pandas as pd  # here, so that methods and tasks load without it

    file = path(root, state, year)
    how = {"skipinitialspace": True, "low_memory": False}
    try:
        there = pd.read_csv(file, nrows=0, skipinitialspace=True)
        _complete(there, columns or (), f"{file}: ")
        kinds = {c: t for c, t in TEXT.items() if c in (columns or there)}
        frame = pd.read_csv(file, usecols=columns, dtype=kinds, **how)
    except DataError:
        raise
    except (OSError, ValueError) as e:  # among them pandas' errors of parsing
        raise DataError(
            f"{file} cannot be read ({e}): `python -m fedlib data get acs` fetches the "
            "files of 2018; name the states whose files are there with states=[...]"
        ) from e
    for name in columns or ():
        if frame[name].dtype.kind not in "iuf" and name not in TEXT:
            raise DataError(
                f"{file}: the column {name} holds other things than numbers"
            )
    return frame


def _states(states):
    """The states that are named, each once, in the order of STATES."""
    states = STATES if states is None else states
    states = [states] if isinstance(states, str) else list(states)
    for state in states:
        one_of("state", state, STATES)
    if not states or len(set(states)) < len(states):
        raise ValueError(f"states = {states}: give each state once, and at least one")
    return tuple(s for s in STATES if s in states)


def _complete(there, columns, where=""):
    """DataError unless the columns are there."""
    if gone := [c for c in columns if c not in there]:
        hint = "is it a person file of 2018?"
        if "RELP" in gone and "RELSHIPP" in there:
            hint = "RELSHIPP took the place of RELP in 2019, so use a year up to 2018"
        raise DataError(f"{where}no column {', '.join(gone)}; {hint}")
