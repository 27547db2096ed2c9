"""What the papers say, apart from the digits: each claim as a computation, each
deviation with its effect.

    python -m repro.claims      results/seeds/*.csv, deviations.yaml  ->
                                results/{claims,deviations,effects}.csv

The sentences of each paper are in claims_<paper>.py; here is what they are tested with.

A claim's test sees one value per seed and gives "yes", "no" or "undecided". Differences
are paired by seed, with 95% t intervals. "yes" and "no" both need an interval that
excludes the contrary; means in the right order inside the noise are "undecided", and so
are a single seed and all of tier tiny. "not run": a number is missing that the claim is
about. Of the tiers there are, the best one that has all the numbers decides.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from fedlib.measures.statistics import average_ranks, interval, paired
from fedlib.study.table import write
from repro.ledger import (
    METRICS,
    TIERS,
    ResultError,
    _hint,
    best_tier,
    parts,
    read_reported,
)

COLUMNS = [
    "key",
    "paper",
    "artefact",
    "claim",
    "holds",
    "evidence",
    "data",
    "tier",
    "by",
]
DEVIATIONS = [
    "key",
    "paper",
    "title",
    "where",
    "methods",
    "mark",
    "paper_says",
    "code_says",
    "we_do",
    "why",
    "status",
    "dataset",
    "metric",
    "effect",
    "effect_lo",
    "effect_hi",
    "n_seeds",
    "data",
    "tier",
    "evidence",
]
EFFECTS = [
    "key",
    "paper",
    "dataset",
    "metric",
    "ours_is",
    "other_is",
    "ours",
    "other",
    "effect",
    "effect_lo",
    "effect_hi",
    "n_seeds",
    "data",
    "tier",
    "evidence",
]
# data set -> the study in params.yaml with all methods on it
MAIN = {
    "fedga": dict.fromkeys(
        ("synthetic_0_0", "synthetic_05_05", "synthetic_1_1"), "synthetic"
    )
    | dict.fromkeys(("cifar01", "office10_alexnet", "office10_resnet18"), "images")
    | {"none": "theory"},
    "fedas": {"CIFAR-10": "grid", "CIFAR-100": "grid", "digits": "digits"},
    "plgu": dict.fromkeys(("CIFAR10", "CIFAR100", "TinyImageNet", "digits"), "tables")
    | {"none": "printed"},
    "equfl": dict.fromkeys(
        ("Income-Sex", "Employment-Sex", "Health-Sex", "Income-Race"), "census"
    )
    | dict.fromkeys(("MNIST", "CIFAR-10"), "images")
    | {"census": "knobs", "none": "printed"},
    "fft-gp": dict.fromkeys(
        ("PACS", "VLCS", "OfficeHome", "TerraInc", "DomainNet", "Avg"), "personal"
    )
    | {"none": "printed"},
}
# by which claims and deviations are judged
RULE = {
    "fedga": "best_val",
    "fedas": "last10_mean",
    "plgu": "last10_mean",
    "equfl": "last10_mean",
    "fft-gp": "last",
}


class NotRun(ResultError):
    """A number that a claim needs is not there."""


class Finding(NamedTuple):
    holds: str  # yes, no, undecided, not run
    evidence: str
    missing: tuple = ()


@dataclass(frozen=True)
class Values:
    """All runs of one paper at one tier."""

    runs: dict  # (study, dataset, method, metric) -> {(setting, rule): {seed: value}}
    kinds: dict  # (study, dataset) -> kinds of data, as text
    paper: str = "fedga"

    @classmethod
    def of(cls, table):
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
        if len(papers := sorted(set(table.paper))) > 1:
            raise ResultError(
                f"Values of the papers {', '.join(papers)}: pass the seeds of one"
            )
        kinds = {
            at: ", ".join(sorted(set(g.data)))
            for at, g in table.groupby(["study", "dataset"])
        }
        return cls(runs, kinds, *papers)

    def main(self, dataset):
        """The study with all methods on a data set."""
        return MAIN.get(self.paper, {}).get(dataset, "main")

    def kind(self, dataset, study=""):
        """Kinds of data behind a data set in a study, as text."""
        return self.kinds.get((study or self.main(dataset), dataset), "")

    def get(self, metric, method, dataset="none", setting="", study="", rule=""):
        """One value per seed [S]. Raises NotRun.

        study: empty for the main study of the data set. rule: empty for the one by
        which the paper's claims are judged (RULE), or "run" for metrics of a whole
        run. setting: as in the seeds, or some of its parts ("theta=0.001"), which must
        single one out: the one with the fewest further parts. "draw=*" takes all of
        "draw=0", "draw=1", ... [draws], one seed each; "guest=*" the mean over the
        domains left out, seed by seed.
        """
        study = study or self.main(dataset)
        rules = (rule,) if rule else (RULE.get(self.paper, "best_val"), "run")
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


# comparing runs


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


# tests: each returns a function Values -> Finding


def best(metric, place, rivals, method, margin=0.0, **of):
    """`method` is better than every rival, by more than -margin."""

    def test(v):
        me = v.get(metric, method, place, **of)
        gains, missing = _each(
            rivals,
            lambda r: gain(
                v, metric, {"method": method, **of}, {"method": r, **of}, place
            ),
            f"{place} {metric}",
        )
        holds, top = _against(gains, missing, margin)
        it = v.get(metric, top, place, **of).mean()
        text = (
            f"{method} {say(metric, me.mean())}, strongest of {len(gains)} rivals "
            f"{top} {say(metric, it)}; better by {span(metric, gains[top])}"
        )
        return Finding(holds, text + _allowed(margin) + _lacking(missing), missing)

    return test


def steadier(metric, place, rivals, method, high, low, **of):
    """From setting `high` to setting `low` the method loses less than every rival."""

    def loss(v, m):
        return (
            v.get(metric, m, place, high, **of)
            .sub(v.get(metric, m, place, low, **of))
            .dropna()
        )

    def test(v):
        mine = loss(v, method)
        gains, missing = _each(
            rivals,
            lambda r: common(loss(v, r), mine),
            f"{place} {metric} at {high} and {low}",
        )
        holds, top = _against(gains, missing)
        text = (
            f"{method} loses {say(metric, mine.mean())} from {high} to {low}, hardest "
            f"of {len(gains)} rivals {top} {say(metric, loss(v, top).mean())}; less by "
            f"{span(metric, gains[top])}"
        )
        return Finding(holds, text + _lacking(missing), missing)

    return test


def _each(rivals, against, what):
    """The gain over each rival -> {rival: Interval}, those not run.

    Raises NotRun when there is none.
    """
    gains, missing = {}, []
    for r in rivals:
        try:
            gains[r] = against(r)
        except NotRun:
            missing.append(r)
    if not gains:
        raise NotRun(f"{what} of the rivals {', '.join(rivals)}")
    return gains, tuple(missing)


def _against(gains, missing, margin=0.0):
    """The verdict over all rivals, and the rival that decides: the strongest, or of
    those that refute the strongest.
    """
    found = {r: decide(g, margin) for r, g in gains.items()}
    holds = (
        "no"
        if "no" in found.values()
        else "yes"
        if set(found.values()) == {"yes"} and not missing
        else "undecided"
    )
    return holds, min(
        (r for r in gains if holds != "no" or found[r] == "no"),
        key=lambda r: gains[r].mean,
    )


def _lacking(missing):
    return f"; not run: {', '.join(missing)}" if missing else ""


def _allowed(margin):
    return (
        f"; allowed loss {margin:g}"
        if margin > 0
        else f"; claimed by {-margin:g} or more"
        if margin < 0
        else ""
    )


def name(run):
    """A run, keyword arguments of Values.get or the name of a method, in words."""
    return (
        run
        if isinstance(run, str)
        else " ".join(filter(None, (run["method"], run.get("setting", ""))))
    )


def better(metric, place, a, b, margin=0.0):
    """Run a is better than run b by more than -margin; a, b:
    keyword arguments of Values.get.
    """

    def test(v):
        g = gain(v, metric, a, b, place)
        x, y = (v.get(metric, dataset=place, **r).mean() for r in (a, b))
        text = (
            f"{name(a)} {say(metric, x)}, {name(b)} {say(metric, y)}; better by "
            f"{span(metric, g)}"
        )
        return Finding(decide(g, margin), text + _allowed(margin))

    return test


def _apart(v, metric, place, a, b):
    """Run a minus run b, methods or keywords of Values.get -> Interval."""
    a, b = ({"method": x} if isinstance(x, str) else x for x in (a, b))
    return common(v.get(metric, dataset=place, **a), v.get(metric, dataset=place, **b))


def near(metric, place, a, b, margin):
    """Runs a and b, methods or keywords of Values.get,
    differ by less than the margin, either way.
    """

    def test(v):
        d = _apart(v, metric, place, a, b)
        inside, outside = (
            -margin < d.lo and d.hi < margin,
            d.hi < -margin or d.lo > margin,
        )
        holds = (
            "undecided"
            if d.n < 2
            else "yes"
            if inside
            else "no"
            if outside
            else "undecided"
        )
        return Finding(
            holds, f"{name(a)} minus {name(b)}: {span(metric, d)}; allowed +-{margin:g}"
        )

    return test


def differ(metric, place, a, b, margin):
    """Runs a and b differ by more than the margin, either way:
    the contrary of `near`.
    """

    def test(v):
        f = near(metric, place, a, b, margin)(v)
        return Finding(
            {"yes": "no", "no": "yes"}.get(f.holds, f.holds),
            f.evidence.replace("allowed", "claimed beyond"),
        )

    return test


def alike(metric, place, runs, margin):
    """Each two of several runs (keywords of Values.get) differ by less
    than the margin.
    """
    return every(
        *(near(metric, place, a, b, margin) for a, b in itertools.combinations(runs, 2))
    )


def flat(metric, place, method, axis, study, margin):
    """Along an axis of a study, "E", no value is farther than the margin from their
    mean, seed by seed.
    """

    def test(v):
        # [S, values]
        x = pd.DataFrame(v.axis(metric, method, place, axis, study)).dropna()
        if not len(x):
            raise NotRun(
                f"{study} {place} {method} {metric} at all values of {axis} "
                "for one seed"
            )
        at = {how: interval(d) for how, d in x.sub(x.mean(axis=1), axis=0).items()}
        far = max(at, key=lambda how: abs(at[how].mean))
        inside = [-margin < i.lo and i.hi < margin for i in at.values()]
        outside = [i.hi < -margin or i.lo > margin for i in at.values()]
        holds = (
            "undecided"
            if len(x) < 2
            else "no"
            if any(outside)
            else "yes"
            if all(inside)
            else "undecided"
        )
        return Finding(
            holds,
            f"mean {say(metric, x.to_numpy().mean())} over {', '.join(at)}; farthest "
            f"{far}: {span(metric, at[far])}; allowed +-{margin:g}",
        )

    return test


def smaller(metric, place, method, **of):
    """A ratio is below 1; its logarithm is averaged over seeds."""

    def test(v):
        x = v.get(metric, method, place, **of)
        if not (x > 0).all():
            return Finding(
                "undecided",
                f"{METRICS[metric].what} from {x.min():.3g} to {x.max():.3g}: no "
                "logarithm",
            )
        i = interval(np.log(x))
        ends = (
            f" [{np.exp(i.lo):.3g}, {np.exp(i.hi):.3g}], {i.n} seeds"
            if i.n > 1
            else ", one seed"
        )
        holds = (
            "undecided"
            if i.n < 2
            else "yes"
            if i.hi < 0
            else "no"
            if i.lo > 0
            else "undecided"
        )
        return Finding(
            holds,
            f"{METRICS[metric].what}: {np.exp(i.mean):.3g}{ends}; claimed below 1",
        )

    return test


def larger(a, b, place, method, **of):
    """Of one run, metric a is larger than metric b, both in the same unit."""

    def test(v):
        x, y = (v.get(m, method, place, **of) for m in (a, b))
        i = common(x, y)
        return Finding(
            decide(i),
            f"{METRICS[a].what}: {say(a, x.mean())}; {METRICS[b].what}: "
            f"{say(b, y.mean())}; larger by {span(a, i)}",
        )

    return test


def level(metric, place, method, least=None, most=None, anywhere=False, **of):
    """The mean of a run is at least or at most a number.

    On a stand-in a level says nothing: undecided, unless `anywhere`: for a correlation
    or a difference.
    """

    def test(v):
        i = interval(v.get(metric, method, place, **of))
        low, high = (
            (-math.inf if least is None else least),
            (math.inf if most is None else most),
        )
        bound = f"at least {least:g}" if most is None else f"at most {most:g}"
        text = f"{method} {span(metric, i)}, claimed {bound}"
        if not anywhere and "stand-in" in v.kind(place, of.get("study", "")):
            return Finding(
                "undecided", f"{text}; a level cannot be judged on a stand-in"
            )
        yes, no = low <= i.lo and i.hi <= high, i.hi < low or i.lo > high
        return Finding("yes" if yes else "no" if no else "undecided", text)

    return test


def exactly(metric, value, within=0.0, **of):
    """Every value of a run is this number: a property, not a sample."""

    def test(v):
        x = v.get(metric, **of)
        return Finding(
            "yes" if (abs(x - value) <= within).all() else "no",
            (
                f"{len(x)} trial{'s' * (len(x) > 1)}, {metric} from {x.min():.3g} to "
                f"{x.max():.3g}, claimed {value:g}"
            )
            + (f" within {within:g}" if within else ""),
        )

    return test


def every(*tests):
    """All of several tests hold; one "no" is enough for "no"."""

    def test(v):
        found = [t(v) for t in tests]
        holds = [f.holds for f in found]
        return Finding(
            "no" if "no" in holds else "yes" if set(holds) == {"yes"} else "undecided",
            " | ".join(f"{f.holds}: {f.evidence}" for f in found),
            tuple(m for f in found for m in f.missing),
        )

    return test


def some(*tests):
    """One of several tests holds; "no" where each of them fails."""

    def test(v):
        found, missing = [], []
        for t in tests:
            try:
                found.append(t(v))
            except NotRun as e:
                missing.append(str(e))
        if not found:
            raise NotRun(" or ".join(missing))
        holds = {f.holds for f in found}
        missing = (*missing, *(m for f in found for m in f.missing))
        return Finding(
            "yes"
            if "yes" in holds
            else "no"
            if holds == {"no"} and not missing
            else "undecided",
            " | ".join(f"{f.holds}: {f.evidence}" for f in found) + _lacking(missing),
            missing,
        )

    return test


def throughout(tests):
    """All of several named tests hold, as `every`,
    with counts instead of the whole evidence.
    """

    def test(v):
        found, missing = {}, []
        for at, t in tests.items():
            try:
                found[at] = t(v)
            except NotRun:
                missing.append(at)
        if not found:
            raise NotRun(f"one of {', '.join(tests)}")
        where = {
            h: [at for at, f in found.items() if f.holds == h]
            for h in ("no", "yes", "undecided")
        }
        part = [
            f"{h} in {len(at)} of {len(tests)}" + f" ({', '.join(at)})" * (h == "no")
            for h, at in where.items()
            if at
        ]
        missing = (*missing, *(m for f in found.values() for m in f.missing))
        holds = (
            "no"
            if where["no"]
            else "yes"
            if len(where["yes"]) == len(tests)
            else "undecided"
        )
        return Finding(
            holds, "; ".join(part) + _lacking(tuple(dict.fromkeys(missing))), missing
        )

    return test


def ranked(metric, places, methods, method):
    """`method` has the best average rank over settings, by more than Nemenyi's critical
    difference.

    places: data sets, or pairs of a data set and a setting.
    """

    def test(v):
        rows = {}
        for place in places:
            at = place if isinstance(place, tuple) else (place,)
            try:
                rows[" ".join(at)] = {m: v.get(metric, m, *at).mean() for m in methods}
            except NotRun:
                pass
        if len(rows) < 2:
            raise NotRun(f"{metric} of {', '.join(methods)} on two settings")
        r = average_ranks(pd.DataFrame(rows).T, METRICS[metric].better == "high")
        first, second = r.ranks.index[0], r.ranks.drop(method).index[0]
        ahead = r.ranks[second] - r.ranks[method]
        holds = "yes" if ahead > r.cd else "no" if ahead < -r.cd else "undecided"
        return Finding(
            holds,
            f"{r.n} settings, {len(methods)} methods: {method} ranks "
            f"{r.ranks[method]:.2f} on average, {second} {r.ranks[second]:.2f}; "
            f"critical difference {r.cd:.2f}, Friedman p = {r.p:.2g}; first: {first}",
            tuple(
                p
                for p in places
                if " ".join(p if isinstance(p, tuple) else (p,)) not in rows
            ),
        )

    return test


def listed():
    """The claims of all papers, paper by paper.

    Their lists import this module, so it asks for them late.
    """
    from repro import (
        claims_equfl,
        claims_fedas,
        claims_fedga,
        claims_fftgp,
        claims_plgu,
    )

    return (
        *claims_fedga.CLAIMS,
        *claims_fedas.CLAIMS,
        *claims_plgu.CLAIMS,
        *claims_equfl.CLAIMS,
        *claims_fftgp.CLAIMS,
    )


def check_claims(claims, seeds, reported=None):
    """claims.csv: one row per claim -> frame [claims, COLUMNS].

    seeds: all parts, any tiers; reported: frame of reported.csv, without which claims
    about printed numbers are "not run".
    """
    tiers = [t for t in reversed(TIERS) if (seeds.tier == t).any()]
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    rows = []
    for c in claims:
        if c.printed:
            f = (
                Finding("not run", "needs the printed numbers")
                if reported is None
                else c.test(reported)
            )
            rows.append(
                (
                    c.key,
                    c.paper,
                    c.artefact,
                    c.text,
                    f.holds,
                    f.evidence,
                    "",
                    "" if reported is None else "exact",
                    c.by,
                )
            )
            continue
        found = {}
        for t in tiers:
            if (c.paper, t) in at:
                try:
                    found[t] = c.test(at[c.paper, t])
                except NotRun as e:
                    found[t] = Finding("not run", f"needs {e}", ("all",))
        tier = next((t for t in found if not found[t].missing), None) or next(
            (t for t in found if found[t].holds != "not run"), None
        )
        f = (
            found[tier]
            if tier
            else next(iter(found.values()), Finding("not run", "no runs of this paper"))
        )
        if tier == "tiny" and f.holds in ("yes", "no"):
            f = Finding("undecided", f"{f.evidence}; tier tiny decides nothing")
        places = MAIN[c.paper] if c.place == "all" else [c.place]
        kinds = (
            {at[c.paper, tier].kind(p, c.study) for p in places} - {""} if tier else ()
        )
        data = ", ".join(sorted(kinds))
        rows.append(
            (
                c.key,
                c.paper,
                c.artefact,
                c.text,
                f.holds,
                f.evidence,
                data,
                tier or "",
                c.by,
            )
        )
    return pd.DataFrame(rows, columns=COLUMNS)


# deviations

MARKS = ("certain", "supported", "reconstruction")
FIELDS = {
    "id",
    "title",
    "where",
    "paper",
    "code",
    "ours",
    "why",
    "mark",
    "methods",
    "effect",
    "unmeasured",
}
RUN = {"method", "setting", "study", "metric", "rule"}


def read_deviations(root="results"):
    """deviations.yaml: a list of mappings with FIELDS, `effect` (a list) or
    `unmeasured` (a reason) -> dicts.

    An effect is {dataset, metrics, ours, other}; ours and other are keywords of
    Values.get: {method, setting, study, metric, rule}, all but the method optional.
    `metric` replaces the listed one. Raises ResultError.
    """
    path = Path(root) / "deviations.yaml"
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as e:
        raise ResultError(f"{path} is no valid YAML: {e}") from None
    if not isinstance(entries, list) or not all(isinstance(d, dict) for d in entries):
        raise ResultError(f"{path}: give a list of deviations, each a mapping")
    count = {}
    for d in entries:
        at = f"{path}, {d.get('id', 'entry without id')}"
        if odd := set(d) - FIELDS:
            raise ResultError(
                f"{at}: unknown field {min(odd)!r}; {_hint(min(odd), FIELDS)}"
            )
        lost = FIELDS - {"methods", "effect", "unmeasured"} - {k for k in d if d[k]}
        if lost:
            raise ResultError(f"{at}: {min(lost)} is missing")
        paper, _, number = d["id"].rpartition("-")
        count[paper] = count.get(paper, 0) + 1
        if number != str(count[paper]):
            raise ResultError(
                f"{at}: number the deviations in order; here "
                f"{paper}-{count[paper]} is due"
            )
        if d["mark"] not in MARKS:
            raise ResultError(f"{at}: mark is {d['mark']!r}; {_hint(d['mark'], MARKS)}")
        if bool(d.get("effect")) == bool(d.get("unmeasured")):
            raise ResultError(
                f"{at}: give either an effect to compute or a reason under unmeasured"
            )
        for e in d.get("effect") or ():
            if odd := set(e) - {"dataset", "metrics", "ours", "other"}:
                raise ResultError(f"{at}: unknown field {min(odd)!r} in an effect")
            if lost := {"dataset", "metrics", "ours", "other"} - set(e):
                raise ResultError(f"{at}: an effect has no {min(lost)}")
            for side in ("ours", "other"):
                if odd := set(e[side]) - RUN:
                    raise ResultError(
                        f"{at}: unknown field {min(odd)!r} in {side}; "
                        f"{_hint(min(odd), RUN)}"
                    )
                if "method" not in e[side]:
                    raise ResultError(f"{at}: {side} has no method")
            for m in (
                *e["metrics"],
                *(e[s]["metric"] for s in ("ours", "other") if "metric" in e[s]),
            ):
                if m not in METRICS:
                    raise ResultError(f"{at}: metric is {m!r}; {_hint(m, METRICS)}")
    return entries


def effects(entries, seeds):
    """effects.csv: what each deviation changes, ours minus other, paired by
    seed -> frame [.., EFFECTS].

    One row per deviation, comparison and metric. seeds: all parts, any tiers; the best
    tier with both sides counts.
    """
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    rows, shown = [], ("method", "study", "setting", "metric", "rule")
    for d in entries:
        paper = d["id"].rpartition("-")[0].lower()
        for e in d.get("effect") or ():
            name = {
                side: " ".join(e[side][k] for k in shown if k in e[side])
                for side in ("ours", "other")
            }
            for metric in e["metrics"]:
                row = {
                    "key": d["id"].lower(),
                    "paper": paper,
                    "dataset": e["dataset"],
                    "metric": metric,
                    "ours_is": name["ours"],
                    "other_is": name["other"],
                    "evidence": "not run",
                }
                for tier in reversed(TIERS):
                    if (paper, tier) in at and (
                        found := _effect(at[paper, tier], metric, e)
                    ):
                        row |= found | {"tier": tier}
                        break
                rows.append(row)
    return pd.DataFrame(rows, columns=EFFECTS)


def _effect(v, metric, e):
    """One comparison at one tier -> columns of EFFECTS,
    or None where a side was not run.
    """
    of, data = (
        {"metric": metric, "dataset": e["dataset"]},
        v.kind(e["dataset"], e["ours"].get("study", "")),
    )
    try:
        x, y = v.get(**of | e["ours"]), v.get(**of | e["other"])
        both = x.index.intersection(y.index)
        x, y = x.loc[both], y.loc[both]
        if not np.isfinite([*x, *y]).all():  # a round that never comes has no mean
            return {
                "n_seeds": len(both),
                "data": data,
                "evidence": f"{metric} {_never(x)} against {_never(y)}",
            }
        i = common(x, y)
    except NotRun:
        return None
    return {
        "ours": x.mean(),
        "other": y.mean(),
        "effect": i.mean,
        "effect_lo": i.lo,
        "effect_hi": i.hi,
        "data": data,
        "n_seeds": i.n,
        "evidence": (
            f"{metric} {say(metric, x.mean())} against {say(metric, y.mean())}: "
            f"{span(metric, i)}"
        ),
    }


def deviations(entries, measured):
    """deviations.csv: one row per deviation, with its first effect as the headline and
    all of them as evidence -> frame [deviations, DEVIATIONS]. measured: the frame of
    `effects`.
    """
    rows = []
    for d in entries:
        mine = measured[measured.key == d["id"].lower()]
        done = mine[mine.evidence != "not run"]
        status = (
            "not measured" if mine.empty else "measured" if len(done) else "not run"
        )
        head = done[done.effect.notna()].head(1).to_dict("records") if len(done) else []
        methods = d.get("methods") or sorted(
            {e[s]["method"] for e in d.get("effect") or () for s in ("ours", "other")}
        )
        said = [
            f"{r.dataset}, {r.ours_is} and {r.other_is}: {r.evidence}"
            for r in done.itertuples()
        ]
        rows.append(
            {
                "key": d["id"].lower(),
                "paper": d["id"].rpartition("-")[0].lower(),
                "title": d["title"],
                "where": d["where"],
                "methods": " ".join(methods),
                "mark": d["mark"],
                "paper_says": d["paper"],
                "code_says": d["code"],
                "we_do": d["ours"],
                "why": d["why"],
                "status": status,
                "evidence": d.get("unmeasured") or " | ".join(said),
            }
            | {c: head[0][c] for c in DEVIATIONS[11:19] if head}
        )
    return pd.DataFrame(rows, columns=DEVIATIONS)


def _never(x):
    """A Series with infinite values in words:
    "11 to 14", "80 to 80, never in 1 of 2 seeds".
    """
    ends, lost = x[np.isfinite(x)], int((~np.isfinite(x)).sum())
    return ", ".join(
        filter(
            None,
            (
                f"{ends.min():g} to {ends.max():g}" if len(ends) else "",
                f"never in {lost} of {len(x)} seeds" if lost else "",
            ),
        )
    )


HEADLINE = {  # paper -> studies, methods, settings, metrics of metrics.json
    "fedga": (
        ("synthetic", "images"),
        ("FedAvg", "Uniform", "FedGA"),
        ("",),
        ("mean_acc", "worst10_acc", "best_gini"),
    ),
    "fedas": (
        ("grid", "digits"),
        ("FedAS", "FedPer", "FedAvg-P", "FedAvg-FT"),
        ("beta=0.1;P=0.2", "beta=0.1;P=1", "P=0.2", "P=1"),
        ("top1_acc_pct", "worst10_acc"),
    ),
    "plgu": (
        ("tables",),
        (
            "FedAvg",
            "FedSAM",
            "FedRep",
            "FedRep-2x",
            "Local",
            "PLGU-LF",
            "PLGU-GRep",
            "PLGU-GHN",
        ),
        (
            "global model;C=10",
            "personalised model;C=10",
            "global model;C=20",
            "personalised model;C=20",
        ),
        ("acc_mean_pct", "acc_lowest5_pct"),
    ),
    "equfl": (
        ("census", "images"),
        ("FedAvg", "Reweight", "EquFL"),
        ("", "target=EO", "target=DP"),
        ("EO", "DP", "accuracy"),
    ),
    "fft-gp": (
        ("personal", "Table 3"),
        ("FedAvg", "Local", "GA", "GRACE", "FFT-GP", "FFT-GP-lagged"),
        ("",),
        ("in_domain_acc_pct", "global_acc_pct", "out_of_domain_acc_pct"),
    ),
}


def headline(root, claims):
    """metrics.json, for `dvc metrics show` and `diff`: each paper's method and its
    controls, counts of claims and verdicts.
    """
    seeds, out = parts(root, "seeds", read_reported(root)), {}
    for paper, wanted in HEADLINE.items():
        own = seeds[(seeds.paper == paper) & (seeds.rule == RULE[paper])]
        for column, allowed in zip(("study", "method", "setting", "metric"), wanted):
            own = own[own[column].isin(allowed)]
        by = ["dataset", "setting", "method", "metric"]
        for at, x in best_tier(own, by).groupby(by).value.mean().items():
            inner = out.setdefault(paper, {})
            for name in filter(None, at[:-1]):
                inner = inner.setdefault(name, {})
            inner[at[-1]] = round(float(x), 4)
    out["claims"] = {
        k: int(n) for k, n in claims.holds.value_counts().sort_index().items()
    }
    if (ledger := root / "ledger.csv").exists():
        counts = (
            pd.read_csv(ledger, usecols=["verdict"]).verdict.value_counts().sort_index()
        )
        out["verdicts"] = {k: int(n) for k, n in counts.items()}
    (root / "metrics.json").write_text(json.dumps(out, indent=1) + "\n")


def main(argv=None):
    """Test every claim and measure every deviation;
    write claims.csv, deviations.csv and effects.csv.
    """
    parser = argparse.ArgumentParser(
        prog="python -m repro.claims", description=main.__doc__
    )
    parser.add_argument(
        "--results",
        default="results",
        help="folder with reported.csv (default: results)",
    )
    root = Path(parser.parse_args(argv).results)
    reported = read_reported(root)
    seeds = parts(root, "seeds", reported)
    table = check_claims(listed(), seeds, reported)
    write(table, root / "claims.csv")
    entries = read_deviations(root)
    measured = effects(entries, seeds)
    write(measured, root / "effects.csv")
    write(deviations(entries, measured), root / "deviations.csv")
    headline(root, table)
    counts = table.holds.value_counts()
    print(
        f"{len(table)} claims: "
        + ", ".join(f"{n} {v}" for v, n in counts.sort_index().items())
    )


if __name__ == "__main__":
    # the module that the lists import, not its second copy called __main__
    from repro.claims import main as run

    run()
