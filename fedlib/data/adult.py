"""Adult: does a person earn more than 50,000 dollars a year? 45,222 people of the
United States in 1994, real.

B. Becker and R. Kohavi: Adult. UCI Machine Learning Repository, 1996
(doi 10.24432/C5XW20), under CC BY 4.0; they took it from the census database of 1994.
The table comes with this package, as `adult.npz`, and differs from the official files
`adult.data` and `adult.test`: rows with a blank ("?") are left out, and so are the
weight fnlwgt and which of the two files a row is from; education-num is the place in
the list of educations; of a country it is said whether it is the United States; and
rows are sorted by COLUMNS, from left to right; `write` makes it so. Where both official
files lie in `{root}/adult` they are read instead, and give the same rows: DIGEST says
so.

The encoder is fixed and public, as in `acs`: no constant is learnt. Column 0 is the
sex, 1 for women. Letters: N persons, D inputs.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import torch

from ..core.files import whole
from ..core.groups import Block, Groups
from ..core.pool import Pool
from .acs import Code, flag, number, onehot, pool
from .files import DAMAGED, DataError, data_root
from .settings import settings

FILES = ("adult.data", "adult.test")
ENTRIES = (  # of a line in these files
    "age workclass fnlwgt education education-num marital-status occupation "
    "relationship race sex capital-gain capital-loss hours-per-week native-country "
    "salary"
).split()
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
NUMBERS = ("age", "hours-per-week", "capital-gain", "capital-loss")
COLUMNS = (*WORDS, COUNTRY, *NUMBERS)
CARRIED = Path(__file__).with_name("adult.npz")
ROWS, DIGEST = 45_222, "0608810f89583e7f"  # of the table: the first digits of sha256
CUTS = ("occupation", "education")  # who may be a client, by age
AGES = (16, 30, 45, 90)  # a band ends with each but the first


# ---------------------------------------------------------------- the encoder
def dollars(column):
    return Code(column, "number", column, 1, lambda v: np.log1p(v)[:, None] / 4)


def age_squared(v):
    return (((v - 40) / 14) ** 2 - 1)[:, None]


LISTS = ("workclass", "marital-status", "occupation", "relationship", "race")
CODES = (
    flag("sex", "sex", lambda v: v == 1),
    number("age", 40, 14),
    Code("age squared", "number", "age", 1, age_squared),
    number("education", 9, 2.5),
    number("hours-per-week", 40, 12),
    dollars("capital-gain"),
    dollars("capital-loss"),
    *(onehot(column, *range(len(WORDS[column]))) for column in LISTS),
    flag("born in the US", COUNTRY, lambda v: v == 1),
)
RANGES = {  # where the form lets a number be lowest and highest
    "age": (17, 90),
    "age squared": (40, 90),
    "education": (0, 15),
    "hours-per-week": (1, 99),
    "capital-gain": (0, 99_999),
    "capital-loss": (0, 99_999),
}


def limits(code):
    """[lowest, highest] of a number in the units of x; of others nothing."""
    at = np.array(RANGES.get(code.name, ()))
    return np.float32(code.f(at)).flatten().tolist() if len(at) else []


EDGES = np.cumsum([0] + [code.width for code in CODES]).tolist()
SCHEMA = tuple(
    Block(code.name, code.kind, start, stop, *limits(code))
    for code, start, stop in zip(CODES, EDGES, EDGES[1:])
)


def encode(t):
    """Inputs x [N, D] float32 and answers y [N] int64 (1: more than 50,000 dollars) of
    columns {name: [N]}.
    """
    x = np.empty((len(t["salary"]), EDGES[-1]), np.float32)
    for code, block in zip(CODES, SCHEMA):
        x[:, block.start : block.stop] = code.f(t[code.column])
    return torch.from_numpy(x), torch.from_numpy(t["salary"])


# ---------------------------------------------------------------- the people
@settings(group=("sex",), by=CUTS, least=(1,))
def adult(
    group: str = "sex", by: str = "occupation", least: int = 200, root=None
) -> Pool:
    """The people as a Pool whose owner is an occupation, or education, and an age band,
    such as "Sales 31-45"; Pool.a holds the sex (men 0, women 1).

    group   "sex"
    by      "occupation" or "education"; bands are up to 30, to 45 and above
    least   a band with fewer persons joins the next one of its occupation; people of
            an occupation with fewer are left out
    root    folder above `adult` (default: the data folder)
    """
    t = table(root)
    owner, owners = clients(t, by, least)
    if len(owners) < 2:
        raise ValueError(f"adult: least = {least} leaves no two clients; give fewer")
    x, y = encode({name: v[owner >= 0] for name, v in t.items()})
    kind = Groups("sex", ("men", "women"), (1,), 0, (), SCHEMA)
    return pool("Adult", x, y, owner[owner >= 0], owners, "real", kind)


def clients(t, by, least):
    """Owner [N], -1 where nobody is, and the names of the owners."""
    band = np.searchsorted(AGES[1:-1], t["age"])
    owner, owners = np.full(len(band), -1), []
    for k, word in enumerate(WORDS[by]):
        mine = t[by] == k
        for bands in joined(np.bincount(band[mine], minlength=len(AGES) - 1), least):
            owner[mine & np.isin(band, bands)] = len(owners)
            owners.append(f"{word} {AGES[bands[0]] + 1}-{AGES[bands[-1] + 1]}")
    return owner, tuple(owners)


def joined(n, least):
    """Neighbours among bands of n persons, as lists with `least` persons or more; the
    last bands, where too few are left, join the list before.
    """
    out, new = [], []
    for k in range(len(n)):
        new.append(k)
        if n[new].sum() >= least:
            out, new = [*out, new], []
    return [*out[:-1], out[-1] + new] if out else []


# ---------------------------------------------------------------- the table
def table(root=None) -> dict[str, np.ndarray]:
    """COLUMNS as {name: [N] int64}; DataError for a file that is not as published."""
    folder = data_root(root) / "adult"
    there = all((folder / name).is_file() for name in FILES)
    rows, where = (official(folder), folder) if there else (carried(), CARRIED)
    content = np.ascontiguousarray(rows, "<i4").tobytes()
    found = hashlib.sha256(content).hexdigest()[: len(DIGEST)]
    if found != DIGEST:
        raise DataError(
            f"{where}: {rows.shape[1]:,} rows with digest {found}, expected {ROWS:,} "
            f"with {DIGEST}; get it again"
        )
    return dict(zip(COLUMNS, rows))


def carried() -> np.ndarray:
    """The table [columns, N] that comes with the package."""
    try:
        with np.load(CARRIED) as columns:
            return np.array([columns[name] for name in COLUMNS], np.int64)
    except (ValueError, *DAMAGED) as e:
        raise DataError(f"{CARRIED} is damaged ({e}); install fedlib again") from e


def official(folder) -> np.ndarray:
    """The table [columns, N] from adult.data and adult.test."""
    import pandas as pd  # here, so that methods and tasks load without it

    how = {"names": ENTRIES, "skipinitialspace": True, "na_values": "?", "comment": "|"}
    t = pd.concat([pd.read_csv(Path(folder, name), **how) for name in FILES]).dropna()
    t["salary"] = t["salary"].str.rstrip(".")
    t[COUNTRY] = t[COUNTRY] == "United-States"
    for column, words in WORDS.items():
        t[column] = pd.Categorical(t[column], words).codes
    return t[[*COLUMNS]].sort_values([*COLUMNS]).to_numpy(np.int64).T


def write(folder):
    """Make the carried table from the official files in `folder`."""
    columns = zip(COLUMNS, official(folder))
    small = {name: v.astype(np.min_scalar_type(v.max())) for name, v in columns}
    whole(CARRIED, lambda f: np.savez_compressed(f, **small))
