"""The runs that claims are tested on, and how two of them are compared; used by
repro.claims.builders and by the claims of papers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from fedlib.measures.verdicts import LEAST
from fedlib.study.seeds import PILOT
from repro import papers
from repro.ledger import METRICS, ResultError


class NotRun(ResultError):
    """A number that a claim needs is not there."""


class NotTestable(ResultError):
    """What is there cannot test a sentence; says why."""


@dataclass(frozen=True)
class Values:
    """All runs of one paper at one tier; those of pilot seeds are left out."""

    runs: dict  # (study, dataset, method, metric) -> {(setting, rule): {seed: value}}
    kinds: dict  # (study, dataset) -> kinds of data, as text
    paper: str
    closed: dict = field(
        default_factory=dict
    )  # data set -> why nothing is learnt there
    asked: set = field(default_factory=set)  # (study, data set) that were looked at

    @classmethod
    def of(cls, table, closed=None):
        """The rows of one paper at one tier, columns of results/seeds -> Values.

        closed: {data set: reason} of those that fail the gate (repro.regimes).
        """
        table = table[table.seed < PILOT]
        runs, by = (
            {},
            [
                "study",
                "dataset",
                "method",
                "metric",
                "setting",
                "rule",
                "seed",
                "value",
            ],
        )
        for *who, setting, rule, seed, value in zip(*(table[c] for c in by)):
            runs.setdefault(tuple(who), {}).setdefault((setting, rule), {})[seed] = (
                value
            )
        if len(of := sorted(set(table.paper))) != 1:
            raise ResultError(
                f"Values of the papers {', '.join(of) or 'none'}: pass the seeds of one"
            )
        kinds = {
            at: ", ".join(sorted(set(g.data)))
            for at, g in table.groupby(["study", "dataset"])
        }
        return cls(runs, kinds, *of, closed or {})

    def watched(self):
        """The same runs, and nothing asked yet."""
        return replace(self, asked=set())

    @functools.cached_property
    def studies(self):
        """{data set: the study with all methods on it}."""
        of = papers.main_datasets(self.paper)
        return {d: papers.main_study(self.paper, d) for d in of}

    @functools.cached_property
    def rule(self):
        """The selection rule by which the paper's claims are judged."""
        return papers.about(self.paper)["rule"]

    def main(self, dataset):
        """The study with all methods on a data set."""
        return self.studies.get(dataset, "main")

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
        them, seed by seed.
        """
        if not isinstance(dataset, str):
            return self.average(dataset, metric, method, setting, study, rule)
        study = study or self.main(dataset)
        self.asked.add((study, dataset))
        at = self.runs.get((study, dataset, method, metric), {})
        rules = (rule,) if rule else (self.rule, "run")
        found = {how: x for (how, by), x in at.items() if by in rules}
        if found and dataset in self.closed and scored(metric):
            raise NotTestable(self.closed[dataset])
        if "guest=*" in _split(setting):
            return self.over_guests(found, study, dataset, method, setting, metric)
        want, fits = _split(setting), []
        for how in found:
            if want <= _split(how) and (want or not how):
                fits.append((len(_split(how) - want), how))
        nearest = sorted(how for extra, how in fits if extra == min(fits)[0])
        if len(nearest) == 1:
            return pd.Series(found[nearest[0]], dtype=float)
        raise NotRun(
            " ".join(filter(None, (study, dataset, method, setting, metric, rule)))
            + (f" (one of {' | '.join(nearest)}?)" if nearest else "")
        )

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

        Raises NotRun where one is missing that another run of the study has.
        """
        said = [
            how
            for (s, d, _, m), runs in self.runs.items()
            if (s, d, m) == (study, dataset, metric)
            for how, _ in runs
        ]
        guests = sorted({p for how in said for p in _split(how) if _is_guest(p)})
        runs = {frozenset(_split(how)): x for how, x in found.items()}
        rest = frozenset(_split(setting)) - {"guest=*"}
        each = []
        for g in guests or ["guest=*"]:
            if (whole := rest | {g}) not in runs:
                where = setting.replace("guest=*", g)
                raise NotRun(" ".join((study, dataset, method, where, metric)))
            each.append(pd.Series(runs[whole], dtype=float))
        return together(each, f"{study} {dataset} {method} {setting} {metric}")

    def same(self, place, a, b):
        """Do two runs agree in every number that was measured of both, bit for bit?

        Not before LEAST seeds: accuracies are counts of rows, and a few coincide.
        """
        places = [place] if isinstance(place, str) else place
        metrics = {
            m for (_, d, who, m) in self.runs if d in places and who == a["method"]
        }
        found = 0
        for m in sorted(metrics):
            try:
                x, y = self.get(m, dataset=place, **a), self.get(m, dataset=place, **b)
            except (NotRun, NotTestable):
                continue
            both = x.index.intersection(y.index)
            found = max(found, len(both))
            if (x.loc[both] != y.loc[both]).any():
                return False
        return found >= LEAST

    def axis(self, metric, method, dataset, name, study):
        """Along an axis of a study, as "E=1", "E=5": {setting: Series [S]}, in order.

        Raises NotRun for fewer than two.
        """
        at = {
            how
            for (how, _) in self.runs.get((study, dataset, method, metric), {})
            if how.startswith(f"{name}=")
        }
        at = sorted(
            (how for how in at if ";" not in how),
            key=lambda how: float(how.split("=")[1]),
        )
        if len(at) < 2:
            raise NotRun(f"{study} {dataset} {method} {metric} at two values of {name}")
        return {how: self.get(metric, method, dataset, how, study) for how in at}


def _split(setting):
    return set(filter(None, setting.split(";")))


def _is_guest(part):
    return part.startswith("guest=")


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
    says so, in at most a line of its own words; empty for a claim of ours.
    """

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
    form = (
        "z.2f"
        if METRICS[metric].unit in ("%", "points")
        else ".4f"
        if "gini" in metric
        else ".3g"
    )
    return format(x, form)


def pair(v, metric, a, b, place):
    """How much better a is than b, positive is good, over the seeds that both have, and
    both sides; a, b: keywords of Values.get -> three Series.

    Raises NotRun, and NotTestable where both sides are one computation, or lie at a
    bound of the metric.
    """
    x, y = v.get(metric, dataset=place, **a), v.get(metric, dataset=place, **b)
    x, y = common(x, y)
    d = x - y if METRICS[metric].better == "high" else y - x
    if a != b and (d == 0).all() and v.same(place, a, b):
        raise NotTestable(same_numbers(a, b))
    refuse_bounds(metric, x, y)
    return d, x, y


def same_numbers(a, b):
    """Why two runs that agree in everything test nothing."""
    return (
        f"{name(a)} and {name(b)} agree in every number, as the same computation does"
    )


def common(x, y):
    """Two Series over the seeds that both have. Raises NotRun when there is none."""
    both = x.index.intersection(y.index)
    if not len(both):
        raise NotRun("no seed in common")
    return x.loc[both], y.loc[both]


def refuse_bounds(metric, *sides):
    """Raise NotTestable where all values lie at one bound of the metric."""
    for bound, what in zip(METRICS[metric].bounds, ("floor", "ceiling")):
        if all((x == bound).all() for x in sides):
            raise NotTestable(
                f"{METRICS[metric].what}: all sides at the {what}, {say(metric, bound)}"
            )


def name(run):
    """A run, keyword arguments of Values.get or the name of a method, in words; parts
    that are averaged over ("guest=*") go without saying.
    """
    if isinstance(run, str):
        return run
    parts = run.get("setting", "").split(";")
    said = ";".join(p for p in parts if p and not p.endswith("=*"))
    return " ".join(filter(None, (run["method"], said)))


def keywords(run):
    """A run as keywords of Values.get; a method's name is enough."""
    return {"method": run} if isinstance(run, str) else run
