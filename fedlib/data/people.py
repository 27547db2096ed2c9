"""Tables of people, encoded by a fixed and public encoder: every constant stands below,
none is learnt, so no client's data leave the client. Sensitive attributes are inputs.

`acs`: the American Community Survey, person file; four yes-no questions, one client per
state. Tasks are those of Ding, Hardt, Miller and Schmidt, Retiring Adult: New Datasets
for Fair Machine Learning (NeurIPS 2021): the same filters, columns and targets. Files:
`{root}/{year}/1-Year/psam_p{FIPS}.csv`, as the official archives unpack from 2017 on
and as the package folktables expects. A blank becomes 0. Column 0 is 1 for women,
column 1 is 1 for everybody who is not white alone.

`adult`: does a person earn more than 50,000 dollars a year? 45,222 people of the United
States in 1994: B. Becker and R. Kohavi, Adult, UCI Machine Learning Repository, 1996
(doi 10.24432/C5XW20), under CC BY 4.0. The table comes with this package, `adult.npz`,
made from the official files `adult.data` and `adult.test`: rows with a blank ("?") are
left out, and so are the weight fnlwgt and which of the two files a row is from;
education-num is the place in the list of educations; of a country it is said whether it
is the United States; words are their place in WORDS, and rows are sorted by COLUMNS,
from left to right. Column 0 is 1 for women.

Letters: N persons, D inputs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch

from ..core.errors import refuse_if
from ..core.pool import Block, Groups, Pool
from .files import Archive, DataError, data_root
from .settings import Count, Different, named, settings


# ---------------------------------------------------------------- the encoder
class Code(NamedTuple):
    """How a column of a table becomes inputs: f maps its values [N] to [N] or
    [N, width]; ends: where the form lets a number be lowest and highest.
    """

    name: str
    kind: str
    column: str
    f: Callable
    width: int = 1
    ends: tuple = ()


def number(column, centre, scale, *ends):
    return Code(column, "number", column, lambda v: (v - centre) / scale, 1, ends)


def squared(column, centre, scale, *ends):
    f = lambda v: ((v - centre) / scale) ** 2 - 1
    return Code(f"{column} squared", "number", column, f, 1, ends)


def flag(name, column, test):
    return Code(name, "flag", column, test)


def onehot(column, *sets):
    """One input per code or tuple of codes; a code in none of them sets no input."""
    f = lambda v: np.stack([np.isin(v, s) for s in sets], 1)
    return Code(column, "onehot", column, f, len(sets))


def blocks(codes):
    """The columns of x in words, and their ranges in the units of x."""
    stops = np.cumsum([c.width for c in codes]).tolist()
    ends = [np.float32(c.f(np.array(c.ends))).tolist() if c.ends else [] for c in codes]
    return tuple(
        Block(c.name, c.kind, stop - c.width, stop, *range_)
        for c, stop, range_ in zip(codes, stops, ends)
    )


def inputs(codes, table):
    """x [N, D] float32 of columns {name: [N]}."""
    columns = (code.f(table[code.column]).reshape(-1, code.width) for code in codes)
    return torch.from_numpy(np.concatenate([np.float32(c) for c in columns], 1))


def pool(name, x, y, owner, owners, kind, groups, test=None) -> Pool:
    """Encoded persons as a Pool; ValueError for all in one group, or one answer."""
    a = x[:, groups.column].long()
    one = min(len(v.unique()) for v in (a, y)) < 2
    refuse_if(one, f"{name}: all persons have one {groups.name} or answer; use more")
    owner = torch.from_numpy(owner)
    return Pool(name, x, y, 2, kind, owner, tuple(owners), test, a, groups)


# ---------------------------------------------------------------- the survey's tasks
# the 50 states and Puerto Rico: the clients, in this order
STATES = tuple(
    "AL AK AZ AR CA CO CT DE FL GA HI ID IL IN IA KS KY LA ME MD MA MI MN MS MO MT NE "
    "NV NH NJ NM NY NC ND OH OK OR PA RI SC SD TN TX UT VT VA WA WV WI WY PR".split()
)
FIPS = dict(zip(STATES, [*sorted({*range(1, 57)} - {3, 7, 11, 14, 43, 52}), 72]))
# highest OCCP of the first ten occupations
CUTS = (440, 960, 1980, 2970, 3550, 4160, 4980, 5950, 7650, 8990)
LISTS = {name: (1, 2) for name in ("DIS", "NATIVITY", "DEAR", "DEYE")}
LISTS |= {"MAR": range(1, 6), "CIT": range(1, 6), "ANC": range(1, 5)}
LISTS |= {"RELP": range(18), "ESP": range(9), "MIG": range(4), "MIL": range(5)}
LISTS |= {"DREM": range(3), "ESR": range(7), "FER": range(3)}
ORIGINS = ("RACAIAN", "RACASN", "RACBLK", "RACNH", "RACPI", "RACSOR", "RACWHT")


def listed(names):
    """Each column by its official list of codes; 0, where it is listed, is a blank."""
    return [onehot(name, *LISTS[name]) for name in names.split()]


def yes(v):
    return v == 1


def occupation(v):
    return (np.searchsorted(CUTS, v)[:, None] == np.arange(11)) & (v > 0)[:, None]


def earns(t):
    """The filter of ACSIncome."""
    adult = (t["AGEP"] > 16) & (t["PINCP"] > 100)
    return adult & (t["WKHP"] > 0) & (t["PWGTP"] >= 1)


def poor(t):
    return (t["AGEP"] < 65) & (t["PINCP"] <= 30_000)


def everybody(t):
    return np.ones(len(t["SEX"]), bool)


class Problem(NamedTuple):
    """One question: the inputs, `outcome` of the column `target`, who is asked."""

    codes: tuple[Code, ...]
    target: str
    outcome: Callable = yes
    keep: Callable = everybody  # {column: [N]} -> [N] bool
    weight: tuple[str, ...] = ()  # a further column that `keep` reads

    @property
    def columns(self) -> tuple[str, ...]:
        columns = [c.column for c in self.codes]
        return tuple(dict.fromkeys([*columns, self.target, *self.weight]))


SEX = flag("sex", "SEX", lambda v: v == 2)
RACE = flag("race", "RAC1P", lambda v: v != 1)
OCCUPATION = Code("OCCP", "onehot", "OCCP", occupation, 11)
PERSON = (SEX, RACE, number("AGEP", 45, 17), squared("AGEP", 45, 17))
PERSON += (number("SCHL", 17, 4),)
INCOME = Code("PINCP", "number", "PINCP", lambda v: np.arcsinh(v / 10_000))
COVERAGE = listed("MAR DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM ESR FER")
COVERED = (*PERSON, INCOME, *COVERAGE)
WORK = (
    number("WKHP", 38, 13),
    onehot("MAR", 1, 5, (2, 3, 4)),
    onehot("COW", (1, 2), (3, 4, 5), (6, 7, 8)),
    OCCUPATION,
    onehot("RELP", 0, 1),
    flag("born abroad", "POBP", lambda v: v >= 100),
)
HOME = listed("MAR RELP DIS ESP CIT MIG MIL ANC NATIVITY DEAR DEYE DREM")
TASKS = {
    # ACSIncome: more than 50,000 dollars a year?
    "income": Problem(
        (*PERSON, *WORK), "PINCP", lambda v: v > 50_000, earns, ("PWGTP",)
    ),
    # ACSEmployment: at work?
    "employment": Problem((*PERSON, *HOME), "ESR"),
    # ACSPublicCoverage: people of low income, in public health insurance?
    "health": Problem(COVERED, "PUBCOV", yes, poor),
    # ACSHealthInsurance: insurance bought directly?
    "insurance": Problem((*COVERED, *(flag(c, c, yes) for c in ORIGINS)), "HINS2"),
}
# in the order of columns 0 and 1
GROUPS = {"sex": ("men", "women"), "race": ("white", "not white")}


def groups(group: str, task: str) -> Groups:
    """The sensitive attribute "sex" or "race" of a task; yes is positive."""
    column, schema = list(GROUPS).index(group), blocks(TASKS[task].codes)
    return Groups(group, GROUPS[group], (1,), column, schema=schema)


def keep(frame, task: str) -> np.ndarray:
    """[N] whether the task asks this person; a blank passes no filter."""
    return np.asarray(TASKS[task].keep(frame))


def encode(frame, task: str):
    """Inputs x [N, D] float32 and answers y [N] int64 (1: yes) of all rows; a DataFrame
    or {column: [N]}.

    The filter is not applied: see `keep`.
    """
    p = TASKS[task]
    v = {c: np.nan_to_num(np.asarray(frame[c], np.float64)) for c in p.columns}
    return inputs(p.codes, v), torch.from_numpy(p.outcome(v[p.target])).long()


# ---------------------------------------------------------------- the survey's files
Question = Annotated[str, named(TASKS, "task")]
Group = Annotated[str, named(GROUPS, "group")]
State = Annotated[str, named(FIPS, "state")]


@settings
def acs(
    task: Question = "income",
    group: Group = "sex",
    root=None,
    year: str | int = "2018",
    states: State | Different[State] | None = None,
    rows: Count | None = 5000,
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
    root = data_root() / "acs" if root is None else data_root(root)
    asked = [states] if isinstance(states, str) else states or STATES
    states = [state for state in STATES if state in asked]
    x, y = [], []
    for state in states:
        frame = read(root, state, year, TASKS[task].columns)
        frame = frame[keep(frame, task)]
        none = f"the task {task!r} asks nobody of {path(root, state, year)}"
        refuse_if(not len(frame), f"{none}: leave {state} out of states")
        if rows is not None and len(frame) > rows:
            rng = np.random.default_rng(FIPS[state])
            chosen = rng.choice(len(frame), rows, replace=False)
            frame = frame.iloc[np.sort(chosen)]
        xs, ys = encode(frame, task)
        x, y = x + [xs], y + [ys]
    owner = np.repeat(np.arange(len(y)), [len(ys) for ys in y])
    of = torch.cat(x), torch.cat(y), owner, states, "real", groups(group, task)
    return pool(f"ACS {task}", *of)


def path(root, state: str, year="2018") -> Path:
    """Where the person file of a state lies below `root`."""
    return Path(root, str(year), "1-Year", f"psam_p{FIPS[state]:02d}.csv")


def read(root, state: str, year, columns):
    """Columns of a state's person file as a DataFrame of float64, blanks NaN."""
    import pandas as pd  # here, so that methods and tasks load without it

    file = path(root, state, year)
    try:
        frame = pd.read_csv(file, usecols=[*columns], skipinitialspace=True)
        return frame.astype(np.float64)
    except (OSError, ValueError) as e:  # among them pandas' errors of parsing
        raise DataError(
            f"{file} cannot be read ({e}): `python -m fedlib data get acs` fetches the "
            "files of 2018; name the states whose files are there with states=[...]"
        ) from e


ADDRESS = "https://www2.census.gov/programs-surveys/acs/data/pums/2018/1-Year/"
SURVEY = tuple(
    Archive(path("acs", s).as_posix(), f"{ADDRESS}csv_p{s.lower()}.zip") for s in STATES
)

# ---------------------------------------------------------------- Adult
WORDS = {  # in the table a word is its place here
    "occupation": "Adm-clerical Armed-Forces Craft-repair Exec-managerial "
    "Farming-fishing Handlers-cleaners Machine-op-inspct Other-service Priv-house-serv "
    "Prof-specialty Protective-serv Sales Tech-support Transport-moving",
    "education": "Preschool 1st-4th 5th-6th 7th-8th 9th 10th 11th 12th HS-grad "
    "Some-college Assoc-voc Assoc-acdm Bachelors Masters Prof-school Doctorate",
    "sex": "Male Female",
    "relationship": "Husband Not-in-family Other-relative Own-child Unmarried Wife",
    "marital-status": "Divorced Married-AF-spouse Married-civ-spouse "
    "Married-spouse-absent Never-married Separated Widowed",
    "workclass": "Federal-gov Local-gov Private Self-emp-inc Self-emp-not-inc "
    "State-gov Without-pay",
    "race": "Amer-Indian-Eskimo Asian-Pac-Islander Black Other White",
    "salary": "<=50K >50K",
}
WORDS = {column: tuple(words.split()) for column, words in WORDS.items()}
COUNTRY = "native-country"  # in the table 1 for the United States, else 0
COLUMNS = (*WORDS, COUNTRY, "age", "hours-per-week", "capital-gain", "capital-loss")
CARRIED = Path(__file__).with_name("adult.npz")
AGES = (16, 30, 45, 90)  # a band of clients ends with each but the first


def dollars(column):
    return Code(column, "number", column, lambda v: np.log1p(v) / 4, 1, (0, 99_999))


ADULT = (
    flag("sex", "sex", yes),
    number("age", 40, 14, 17, 90),
    squared("age", 40, 14, 40, 90),
    number("education", 9, 2.5, 0, 15),
    number("hours-per-week", 40, 12, 1, 99),
    dollars("capital-gain"),
    dollars("capital-loss"),
    *(
        onehot(column, *range(len(WORDS[column])))
        for column in "workclass marital-status occupation relationship race".split()
    ),
    flag("born in the US", COUNTRY, yes),
)


@settings
def adult(
    group: Literal["sex"] = "sex",
    by: Literal["occupation", "education"] = "occupation",
    least: Count = 200,
) -> Pool:
    """Adult as a Pool whose owner is an occupation, or education, and an age band, such
    as "Sales 31-45"; Pool.a holds the sex (men 0, women 1).

    group   "sex"
    by      "occupation" or "education"; bands are up to 30, to 45 and above
    least   a band with fewer persons joins the next one of its occupation; people of
            an occupation with fewer are left out
    """
    t = table()
    band, owner, owners = np.searchsorted(AGES[1:-1], t["age"]), t["age"] * 0 - 1, []
    for k, word in enumerate(WORDS[by]):
        mine = t[by] == k
        for bands in joined(np.bincount(band[mine], minlength=len(AGES) - 1), least):
            owner[mine & np.isin(band, bands)] = len(owners)
            owners.append(f"{word} {AGES[bands[0]] + 1}-{AGES[bands[-1] + 1]}")
    few = f"adult: least = {least} leaves no two clients; give fewer"
    refuse_if(len(owners) < 2, few)
    asked = {name: v[owner >= 0] for name, v in t.items()}
    x, y = inputs(ADULT, asked), torch.from_numpy(asked["salary"])
    kind = Groups("sex", GROUPS["sex"], (1,), 0, (), blocks(ADULT))
    return pool("Adult", x, y, owner[owner >= 0], owners, "real", kind)


def joined(n, least):
    """Lists of neighbouring bands with `least` persons; the rest joins the last."""
    out, new = [], []
    for k in range(len(n)):
        new.append(k)
        if n[new].sum() >= least:
            out, new = [*out, new], []
    return [*out[:-1], out[-1] + new] if out else []


def table() -> dict[str, np.ndarray]:
    """COLUMNS of the carried table as {name: [N] int64}."""
    with np.load(CARRIED) as columns:
        return {name: columns[name].astype(np.int64) for name in COLUMNS}
