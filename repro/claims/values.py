"""The runs that claims are tested on, and how two of them are compared; used by
repro.claims.builders and by the claims of papers.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from fedlib.measures.verdicts import LEAST
from fedlib.study.studies import PILOT
from repro import papers
from repro.ledger import METRICS, ResultError, pieces


class NotRun(ResultError):
    """A number that a claim needs is not there."""


class NotTestable(ResultError):
    """What is there cannot test a sentence; says why."""


def testing(f):
    """A function of the Values, or the reported table, and of what a claim says: as one
    of what it says alone, which gives the test."""
    takes = inspect.signature(f)

    @functools.wraps(f)
    def builder(*args, **more):
        takes.bind(None, *args, **more)  # what is missing is said before all tests
        return lambda v: f(v, *args, **more)

    return builder


@dataclass(frozen=True)
class Values:
    """All runs of one paper at one tier; those of pilot seeds are left out.

    closed: {data set: why nothing is learnt there}; asked: (study, data set) that were
    looked at."""

    runs: dict  # (study, dataset, method, metric) -> {(setting, rule): {seed: value}}
    kinds: dict  # (study, dataset) -> kinds of data, as text
    paper: str
    closed: dict = field(default_factory=dict)
    asked: set = field(default_factory=set)

    @classmethod
    def of(cls, table, closed=None):
        """The rows of one paper at one tier, columns of results/seeds -> Values.

        closed: {data set: reason} of those that fail the gate (repro.regimes)."""
        table = table[table.seed < PILOT]
        if len(of := sorted(set(table.paper))) != 1:
            raise ResultError(f"Values of the papers {of}: pass the seeds of one")
        runs: dict = {}
        by = "study dataset method metric setting rule seed value".split()
        for *who, setting, rule, seed, value in zip(*(table[c].tolist() for c in by)):
            of_run = runs.setdefault(tuple(who), {}).setdefault((setting, rule), {})
            of_run[seed] = value
        data = table.groupby(["study", "dataset"]).data
        kinds = {at: ", ".join(sorted(set(kind))) for at, kind in data}
        return cls(runs, kinds, *of, closed or {})

    def watched(self):
        """The same runs, and nothing asked yet."""
        return replace(self, asked=set())

    @functools.cached_property
    def rule(self):
        """The selection rule by which the paper's claims are judged."""
        return papers.about(self.paper)["rule"]

    def main(self, dataset):
        """The study with all methods on a data set."""
        return papers.main_study(self.paper, dataset)

    def kind(self, dataset, study=""):
        """Kinds of data behind a data set in a study, as text."""
        return self.kinds.get((study or self.main(dataset), dataset), "")

    def get(self, metric, method, dataset="none", setting="", study="", rule=""):
        """One value per seed [S]. Raises NotRun.

        study: empty for the main study of the data set. rule: empty for the one by
        which the paper's claims are judged, or "run" for metrics of a whole
        run. setting: as in the seeds, or some of its parts ("theta=0.001"), which must
        single one out: the one with the fewest further parts; "guest=*" takes the mean
        over the domains left out, seed by seed. dataset: or several, for the mean over
        them, seed by seed."""
        if not isinstance(dataset, str):
            return self.average(dataset, metric, method, setting, study, rule)
        study = study or self.main(dataset)
        self.asked.add((study, dataset))
        at = self.runs.get((study, dataset, method, metric), {})
        rules = (rule,) if rule else (self.rule, "run")
        found = {how: x for (how, by), x in at.items() if by in rules}
        if found and dataset in self.closed and scored(metric):
            raise NotTestable(self.closed[dataset])
        want = set(pieces(setting))
        if "guest=*" in want:
            return self.over_guests(found, study, dataset, method, setting, metric)
        more = {how: len(set(pieces(how)) - want) for how in found if fits(want, how)}
        nearest = sorted(how for how in more if more[how] == min(more.values()))
        if len(nearest) == 1:
            return pd.Series(found[nearest[0]], dtype=float)
        what = (study, dataset, method, setting, metric, rule)
        one_of = f" (one of {' | '.join(nearest)}?)" if nearest else ""
        raise NotRun(" ".join(filter(None, what)) + one_of)

    def average(self, datasets, metric, *run):
        """The mean over data sets, seed by seed; run: the rest of `get`'s arguments."""
        each, (method, *how) = [], run
        for d in datasets:
            try:
                each.append(self.get(metric, method, d, *how))
            except NotTestable as e:
                raise NotTestable(f"{d}, one of {len(datasets)}: {e}") from None
        return together(each, f"{' '.join(datasets)} {method} {metric}")

    def over_guests(self, found, study, dataset, method, setting, metric):
        """The mean over the domains left out of the runs `found`, seed by seed.

        Raises NotRun where one is missing that another run of the study has."""
        like = (study, dataset, metric)
        others = [x for (s, d, _, m), x in self.runs.items() if (s, d, m) == like]
        parts = {part for x in others for how, _ in x for part in pieces(how)}
        guests = sorted(part for part in parts if part.startswith("guest="))
        runs, each = {frozenset(pieces(how)): x for how, x in found.items()}, []
        for guest in guests or ["guest=*"]:
            where = setting.replace("guest=*", guest)
            if (at := frozenset(pieces(where))) not in runs:
                raise NotRun(" ".join((study, dataset, method, where, metric)))
            each.append(pd.Series(runs[at], dtype=float))
        return together(each, f"{study} {dataset} {method} {setting} {metric}")

    def same(self, place, a, b):
        """Do two runs agree in every number that was measured of both, bit for bit?

        Not before LEAST seeds: accuracies are counts of rows, and a few coincide."""
        places, found = [place] if isinstance(place, str) else place, 0
        of = {m for _, d, who, m in self.runs if d in places and who == a["method"]}
        for m in sorted(of):
            with suppress(NotRun, NotTestable):
                x, y = common(*(self.get(m, dataset=place, **run) for run in (a, b)))
                found = max(found, len(x))
                if (x != y).any():
                    return False
        return found >= LEAST

    def axis(self, metric, method, dataset, name, study):
        """Along an axis of a study, as "E=1", "E=5": {setting: Series [S]}, in order.

        Raises NotRun for fewer than two."""
        runs = self.runs.get((study, dataset, method, metric), {})
        at = {how for how, _ in runs if how.startswith(f"{name}=") and ";" not in how}
        if len(at) < 2:
            raise NotRun(f"{study} {dataset} {method} {metric} at two values of {name}")
        number = lambda how: float(how.split("=")[1])
        get = lambda how: self.get(metric, method, dataset, how, study)
        return {how: get(how) for how in sorted(at, key=number)}


def fits(want, setting):
    """Has a setting all parts that are wanted, and is it plain where none are?"""
    return want <= set(pieces(setting)) if want else not setting


def together(each, what):
    """The mean of several Series over the seeds that all have. Raises NotRun."""
    x = pd.concat(each, axis=1).dropna().mean(axis=1)
    if not len(x):
        raise NotRun(f"{what}: no seed in common")
    return x


@dataclass(frozen=True)
class Claim:
    """One sentence and how to test it.

    place, study: whose kind of data stands beside it. printed: the test sees
    reported.csv, a frame, in place of Values: of a paper that is held against its
    own numbers. family: what the claim is one case of. section, quote: where the paper
    says so, in at most a line of its own words; empty for a claim of ours."""

    key: str
    paper: str
    artefact: str
    text: str
    test: Callable[[Values | pd.DataFrame], Any]  # -> findings.Finding
    place: str = "none"
    by: str = "paper"  # or "ours"
    study: str = ""
    printed: bool = False
    family: str = ""
    section: str = ""
    quote: str = ""


def scored(metric):
    """Does a metric score a model, so that it says nothing where nothing is learnt?"""
    m = METRICS[metric]
    return bool(m.better) and m.kind not in ("size", "count", "setting", "exact")


def say(metric, x):
    """A number in the digits of its metric."""
    if METRICS[metric].unit in ("%", "points"):
        return format(x, "z.2f")
    return format(x, ".4f" if "gini" in metric else ".3g")


def sides(v, metric, place, a, b):
    """Two runs, keywords of Values.get, over the seeds that both have -> two Series,
    and what they are in words.

    Raises NotRun, and NotTestable where both sides are one computation, or lie at a
    bound of the metric."""
    x, y = common(*(v.get(metric, dataset=place, **run) for run in (a, b)))
    if a != b and (x == y).all() and v.same(place, a, b):
        every = "agree in every number, as the same computation does"
        raise NotTestable(f"{name(a)} and {name(b)} {every}")
    for bound, what in zip(METRICS[metric].bounds, ("floor", "ceiling")):
        if (x == bound).all() and (y == bound).all():
            at = f"all sides at the {what}, {say(metric, bound)}"
            raise NotTestable(f"{METRICS[metric].what}: {at}")
    said = (f"{name(run)} {say(metric, z.mean())}" for run, z in ((a, x), (b, y)))
    return x, y, ", ".join(said)


def common(x, y):
    """Two Series over the seeds that both have. Raises NotRun when there is none."""
    if not x.index.equals(y.index):
        both = x.index.intersection(y.index)
        x, y = x.loc[both], y.loc[both]
    if not len(x):
        raise NotRun("no seed in common")
    return x, y


def name(run):
    """A run, keyword arguments of Values.get or the name of a method, in words; parts
    that are averaged over ("guest=*") go without saying."""
    run = keywords(run)
    said = [p for p in pieces(run.get("setting", "")) if not p.endswith("=*")]
    return " ".join(filter(None, (run["method"], ";".join(said))))


def keywords(run):
    """A run as keywords of Values.get; a method's name is enough."""
    return {"method": run} if isinstance(run, str) else run
