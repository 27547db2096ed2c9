"""The runs that claims are tested on, and how two of them are compared; used by
repro.claims.builders and by the claims of papers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from fedlib.measures.statistics import paired
from repro import papers
from repro.ledger import METRICS, ResultError


class NotRun(ResultError):
    """A number that a claim needs is not there."""


class Finding(NamedTuple):
    """What a test found, in one word and in a sentence; missing: what was not run."""

    holds: str  # yes, no, undecided, not run
    evidence: str
    missing: tuple = ()


@dataclass(frozen=True)
class Values:
    """All runs of one paper at one tier."""

    runs: dict  # (study, dataset, method, metric) -> {(setting, rule): {seed: value}}
    kinds: dict  # (study, dataset) -> kinds of data, as text
    paper: str

    @classmethod
    def of(cls, table):
        """The rows of one paper at one tier, columns of results/seeds -> Values."""
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
        return cls(runs, kinds, *of)

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
        single one out: the one with the fewest further parts. "draw=*" takes all of
        "draw=0", "draw=1", ... [draws], one seed each; "guest=*" the mean over the
        domains left out, seed by seed.
        """
        study = study or self.main(dataset)
        rules = (rule,) if rule else (self.rule, "run")
        at = self.runs.get((study, dataset, method, metric), {})
        found = {how: x for (how, by), x in at.items() if by in rules}
        if "guest=*" in _split(setting):
            guests = sorted(
                {p for how in found for p in _split(how) if p.startswith("guest=")}
            )
            if not guests:
                raise NotRun(" ".join((study, dataset, method, setting, metric)))
            each = [
                self.get(
                    metric, method, dataset, setting.replace("guest=*", g), study, rule
                )
                for g in guests
            ]
            return pd.concat(each, axis=1).dropna().mean(axis=1)
        if setting.endswith("=*"):
            many = {how: x for how, x in found.items() if how.startswith(setting[:-1])}
            if many and all(len(x) == 1 for x in many.values()):
                return pd.Series(
                    {how: v for how, x in many.items() for v in x.values()}
                )
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


@dataclass(frozen=True)
class Claim:
    """One sentence and how to test it.

    place, study: whose kind of data stands beside it. printed: the test sees
    reported.csv, a frame, in place of Values: of a paper that is held against its
    own numbers.
    """

    key: str
    paper: str
    artefact: str
    text: str
    test: Callable[[Values | pd.DataFrame], Finding]
    place: str = "none"
    by: str = "paper"  # or "ours"
    study: str = ""
    printed: bool = False


def say(metric, x):
    """A number in the digits of its metric."""
    form = (
        ".2f"
        if METRICS[metric].unit in ("%", "points")
        else ".4f"
        if "gini" in metric
        else ".3g"
    )
    return format(x, form)


def span(metric, i):
    """An interval in words."""
    if i.n < 2:
        return f"{say(metric, i.mean)}, one seed"
    return (
        f"{say(metric, i.mean)} [{say(metric, i.lo)}, {say(metric, i.hi)}], {i.n} seeds"
    )


def common(a, b):
    """The interval of a - b over the seeds that both have.

    Raises NotRun when there is none.
    """
    both = a.index.intersection(b.index)
    if not len(both):
        raise NotRun("no seed in common")
    return paired(a.loc[both], b.loc[both])


def gain(v, metric, a, b, place):
    """How much better a is than b (positive is good), paired; a, b:
    keywords of Values.get -> Interval.
    """
    x, y = v.get(metric, dataset=place, **a), v.get(metric, dataset=place, **b)
    return common(x, y) if METRICS[metric].better == "high" else common(y, x)


def decide(i, margin=0.0):
    """yes: the interval of a gain lies above -margin; no: below it; else undecided."""
    if i.n < 2:
        return "undecided"
    return "yes" if i.lo > -margin else "no" if i.hi < -margin else "undecided"


def name(run):
    """A run, keyword arguments of Values.get or the name of a method, in words."""
    return (
        run
        if isinstance(run, str)
        else " ".join(filter(None, (run["method"], run.get("setting", ""))))
    )
