"""A procedural census: people drawn from equations, with as much bias as asked for.

The stand-in for the survey of `acs`.

Columns and codes are those of the official person file, so `acs` encodes these people
as it does real ones. Every client (a state) has its own u [6] ~ N(0, shift): age,
education, race, economy, nativity, mix of occupations. Sex s and race r of a person are
drawn first. They then act along two kinds of path, each with its own knob:

    path      knob           acts on
    direct    bias_sex       s -> being employed, income, public health cover
              bias_race      r -> being employed, income, public health cover
    indirect  indirect_sex   s -> occupation, hours, military service, and all that
                             follows from these
              indirect_race  r -> education, and all that follows from it

With all four at 0, s and r tell nothing about income, employment, cover or any other
column of a client's people but FER (births, of women aged 15 to 50). Directly bought
insurance (HINS2) depends on age alone. `draw` chooses the whole data set.

A person is a function of noise: random numbers are drawn per client, then one set of
equations serves all persons of all clients. So client c is the same however many
clients there are, and a person can be asked what would be if only the sex differed.
Letters: N persons, C clients.
"""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from pydantic import Field

from ..core.errors import COUNT, check_bytes
from ..core.pool import Pool
from . import people as acs
from .settings import Amount, Seed, settings

UNIFORM = (  # the uniform numbers of a person, in the order in which they are drawn
    "sex race race_code foreign citizen birthplace married single disabled ear eye "
    "memory occupation occupation_code employed idle worker public private relation "
    "moved military ancestry birth parents weight area poverty"
).split()
NORMAL = ["education_noise", "hours_noise", "income_noise"]
# RAC1P of those who are not white alone
RACES, RACE_SHARES = np.array([2, 3, 6, 8, 9]), (0.50, 0.04, 0.20, 0.14, 0.12)
ORIGINS = [3], [6], [2, 9], [], [], [8], [1, 9]  # RAC1P of those in acs.ORIGINS
# lowest OCCP of eight occupations
FIRST = np.array((10, 500, 1005, 2001, 3000, 3600, 4200, 5000))
LAST = np.array(acs.CUTS[:8])
PI = np.linspace(1, -1, 8)  # what an occupation asks and pays
# > 0: women's occupations
SEGREGATION = np.array((-0.5, 0.6, -0.7, 0.4, 0.7, -0.4, -0.9, 0.3))


class Knobs(NamedTuple):
    """How strongly sex and race act; 0: not at all."""

    bias_sex: float = 1.0
    bias_race: float = 1.0
    indirect_sex: float = 1.0
    indirect_race: float = 1.0


class Effects(NamedTuple):
    """Answers [N] of the persons of a pool, as they are and as they would be with the
    other sex and the same noise.
    """

    s: torch.Tensor  # sex, women 1
    y: torch.Tensor  # the answer as it is
    direct: torch.Tensor  # if only the direct paths saw the other sex
    total: torch.Tensor  # if all paths did

    def effect(self, path: str = "total") -> float:
        """Share of yes as women minus share of yes as men, over the same persons; path
        "direct" or "total".
        """
        change = getattr(self, path) - self.y
        return float((change * (1 - 2 * self.s)).double().mean())


States = Annotated[int, Field(ge=1, le=len(acs.STATES))]
Persons = Annotated[int, Field(ge=4, le=COUNT)]


@settings
def census(
    task: acs.Question = "income",
    group: acs.Group = "sex",
    clients: States = 51,
    n_mean: Persons = 600,
    n_test: Persons = 1000,
    shift: Amount = 1.0,
    bias_sex: Amount = 1.0,
    bias_race: Amount = 1.0,
    indirect_sex: Amount = 1.0,
    indirect_race: Amount = 1.0,
    draw: Seed = 0,
) -> Pool:
    """The procedural census as a Pool whose owner is the state; Pool.a holds the group,
    Pool.test the separate test draw.

    task, group as for `people.acs`; clients: the first so many of the 51 states;
    n_mean, n_test: median number of persons per client before the task's filter, in
    the training and in the test draw. Client sizes are log-normal with sigma 0.6,
    between a quarter and six times of it, in the same ratios in both draws.
    """
    z = noise(clients, n_mean, n_test, shift, draw)
    who = persons(z, Knobs(bias_sex, bias_race, indirect_sex, indirect_race))
    kept = acs.keep(who, task)
    x, y = acs.encode({name: v[kept] for name, v in who.items()}, task)
    test = torch.from_numpy(np.flatnonzero(z["test"][kept]))
    of = z["client"][kept], acs.STATES[:clients], "synthetic", acs.groups(group, task)
    return acs.pool("procedural census", x, y, *of, test)


@settings
def counterfactual(task: acs.Question = "income", **given) -> Effects:
    """What the persons of `census` with the same arguments, row by row, would answer if
    they had the other sex.

    Who is asked does not change: the filter sees the person as it is.
    """
    z, knobs = drawn(**given)
    who = persons(z, knobs)
    kept, s, p = acs.keep(who, task), who["SEX"] == 2, acs.TASKS[task]
    direct, total = persons(z, knobs, ~s), persons(z, knobs, ~s, ~s)
    y = (p.outcome(w[p.target][kept]) for w in (who, direct, total))
    return Effects(*(torch.from_numpy(v).long() for v in (s[kept], *y)))


def people(test: bool = False, **given) -> list:
    """All persons of each client of `census` with these arguments, before any filter,
    as DataFrames like official person files: training or test draw.
    """
    import pandas as pd  # here, so that methods and tasks load without it

    z, knobs = drawn(**given)
    table = pd.DataFrame(persons(z, knobs))
    mine = [(z["client"] == c) & (z["test"] == test) for c in np.unique(z["client"])]
    return [table[rows].reset_index(drop=True) for rows in mine]


def drawn(**given):
    """The noise and the knobs of these arguments of `census`."""
    knobs = {k: given.pop(k) for k in Knobs._fields if k in given}
    return noise(**given), Knobs(**knobs)


# ---------------------------------------------------------------- noise
@settings
def noise(
    clients: States = 51,
    n_mean: Persons = 600,
    n_test: Persons = 1000,
    shift: Amount = 1.0,
    draw: Seed = 0,
) -> dict:
    """All random numbers: per client u [6] and its size, per person uniform and normal
    numbers, training persons first.

    Client c draws from the c-th child of the seed, its size, training persons and test
    persons from children of that.
    """
    numbers = 6 * clients * (n_mean + n_test) * len(UNIFORM + NORMAL)
    check_bytes(f"census: n_mean = {n_mean}, n_test = {n_test}", numbers * 8)
    seeds = [child.spawn(3) for child in np.random.SeedSequence(draw).spawn(clients)]
    own = (np.random.default_rng(seed).standard_normal(7) for seed, _, _ in seeds)
    first = np.stack([*own])  # [C, 7]
    u, scale = shift * first[:, :6], np.exp(0.6 * first[:, 6])
    n = [np.clip(np.round(m * scale), m // 4, 6 * m) for m in (n_mean, n_test)]
    n = np.stack(n).astype(int)  # [2, C]
    beta = 1.6 * np.exp(0.15 * u[:, 0])
    U, Z, age = [], [], []
    for (part, c), m in np.ndenumerate(n):
        rng = np.random.default_rng(seeds[c][1 + part])
        U.append(rng.random((m, len(UNIFORM))))
        Z.append(rng.standard_normal((m, len(NORMAL))))
        age.append(rng.beta(1.3, beta[c], m))
    client = np.tile(np.arange(clients), 2).repeat(n.ravel())
    return dict(
        client=client,
        test=np.arange(len(client)) >= n[0].sum(),
        u=u[client].T,
        age=np.concatenate(age),
        **dict(zip(UNIFORM, np.concatenate(U).T.copy())),
        **dict(zip(NORMAL, np.concatenate(Z).T.copy())),
    )


# ---------------------------------------------------------------- equations
def persons(z, knobs, direct=None, indirect=None) -> dict:
    """Official columns {name: [N]}; blanks are NaN.

    direct, indirect: the sex that the direct and the indirect paths see; default: the
    person's own. SEX stays the person's own.
    """
    _, u_edu, u_race, u_econ, u_nat, u_occ = z["u"]
    s = z["sex"] < sigmoid(0.03)
    r = z["race"] < sigmoid(-1.1 + 0.8 * u_race)
    sd = s if direct is None else direct
    si = s if indirect is None else indirect
    sd_or_r = 0.45 * knobs.bias_sex * sd + 0.3 * knobs.bias_race * r
    age = 17 + np.floor(63 * z["age"])
    foreign = z["foreign"] < sigmoid(-1.9 + 0.8 * u_nat)
    e = 0.35 * u_edu - 0.45 * knobs.indirect_race * r + z["education_noise"]
    married = z["married"] < 0.75 * sigmoid((age - 30) / 8)
    disabled = z["disabled"] < sigmoid(-3.2 + 0.04 * (age - 40))

    women = knobs.indirect_sex * (2.0 * si - 1)
    o = occupation(z["occupation"], 0.8 * e + 0.2 * u_occ, women)
    employed = z["employed"] < sigmoid(
        1.2
        + 0.35 * e
        - 1.6 * ((age - 42) / 22) ** 2
        - sd_or_r
        - 1.2 * disabled
        + 0.2 * u_econ
    )
    hours = np.round(41 - 4 * knobs.indirect_sex * si + 8 * z["hours_noise"])
    hours = np.clip(hours, 1, 99)
    wage = (
        10.55
        + 0.38 * e
        + 0.26 * PI[o]
        + 0.022 * (hours - 40)
        - 0.0005 * (age - 48) ** 2
        + 0.10 * married
        + 0.15 * u_econ
        - 0.30 * knobs.bias_sex * sd
        - 0.22 * knobs.bias_race * r
        + 0.45 * z["income_noise"]
    )
    log_income = np.where(employed, wage, 9.2 + 0.9 * z["income_noise"])
    public = z["public"] < sigmoid(
        -1.1
        - 0.9 * (np.minimum(log_income, 10.3) - 9.6)
        + 1.2 * disabled
        + 0.35 * knobs.bias_sex * sd
        + 0.3 * knobs.bias_race * r
        - 0.2 * u_econ
    )
    private = z["private"] < sigmoid(-2 + 0.03 * (age - 42))
    served = z["military"] < sigmoid(-2.6 - 1.2 * women)
    mother = si & (age >= 15) & (age <= 50)
    sector = 1 + pick(z["worker"], (0.64, 0.08, 0.07, 0.05, 0.04, 0.06, 0.04, 0.02))
    job = FIRST[o] + below(z["occupation_code"], LAST[o] - FIRST[o] + 1)
    unmarried = np.where(age < 35, 5, np.array((2, 3, 5))[below(z["single"], 3)])
    relation = np.where(
        married,
        pick(z["relation"], (0.5, 0.48, 0.01, 0.01)),
        pick(z["relation"], (0.5, 0, 0.3, 0.2)),
    )

    fips = np.array(list(acs.FIPS.values()))
    home, elsewhere = fips[z["client"]], fips[below(z["birthplace"], len(fips))]
    born = np.where(z["citizen"] < 0.6, home, elsewhere)
    rac1p = np.where(r, RACES[pick(z["race_code"], RACE_SHARES)], 1)
    return dict(
        PWGTP=1 + below(z["weight"] ** 2, 300),
        AGEP=age.astype(int),
        ANC=1 + pick(z["ancestry"], (0.55, 0.25, 0.05, 0.15)),
        CIT=np.where(foreign, np.where(z["citizen"] < 0.5, 4, 5), 1),
        COW=np.where(employed, sector, np.nan),
        DEAR=2 - (disabled & (z["ear"] < 0.3)),
        DEYE=2 - (disabled & (z["eye"] < 0.2)),
        DREM=2 - (disabled & (z["memory"] < 0.35)),
        DIS=2 - disabled,
        ESP=np.where(age < 18, 1 + below(z["parents"], 8), np.nan),
        ESR=np.where(employed, 1, np.where(z["idle"] < 0.1, 3, 6)),
        FER=np.where(mother, 2 - (z["birth"] < 0.06), np.nan),
        HINS2=2 - private,
        MAR=np.where(married, 1, unmarried),
        MIG=1 + pick(z["moved"], (0.86, 0.01, 0.13)),
        MIL=np.where(served, 2, 4),
        NATIVITY=1 + foreign,
        OCCP=np.where(employed, job, np.nan),
        PINCP=np.round(np.exp(log_income)),
        POBP=np.where(foreign, 100 + below(z["birthplace"], 401), born),
        POVPIP=below(z["poverty"], 502),
        PUBCOV=2 - public,
        RAC1P=rac1p,
        **{k: 1 * np.isin(rac1p, own) for k, own in zip(acs.ORIGINS, ORIGINS)},
        RELP=np.array((0, 1, 2, 15))[relation],
        SCHL=np.clip(np.round(17 + 3.2 * e), 1, 24).astype(int),
        SEX=1 + s,
        WKHP=np.where(employed, hours, np.nan),
    )


def occupation(v, skill, women):
    """Occupation 0 .. 7 [N] by softmax(skill PI + women SEGREGATION), uniform v."""
    logits = skill[:, None] * PI + women[:, None] * SEGREGATION
    p = np.exp(logits - logits.max(1, keepdims=True)).cumsum(1)
    return (v[:, None] * p[:, -1:] >= p[:, :-1]).sum(1)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def below(v, n):
    """Whole number 0 .. n-1 from a uniform number v in [0, 1)."""
    return np.floor(v * n).astype(int)


def pick(v, shares):
    """Index by shares that add up to 1, from a uniform number v."""
    return np.searchsorted(np.cumsum(shares)[:-1], v, side="right")
