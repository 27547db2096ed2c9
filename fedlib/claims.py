"""What the papers say, apart from the digits: each claim as a computation, each deviation with its effect.

    python -m fedlib.claims      results/seeds/*.csv, deviations.yaml  ->  results/{claims,deviations,effects}.csv

A claim's test sees one value per seed and gives "yes", "no" or "undecided". Differences are paired by seed,
with 95% t intervals. "yes" and "no" both need an interval that excludes the contrary; means in the right order
inside the noise are "undecided", and so are a single seed and all of tier tiny. "not run": a number is missing
that the claim is about. Of the tiers there are, the best one that has all the numbers decides.
"""
from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import yaml

from .ledger import METRICS, TIERS, ResultError, _hint, parts, read_reported, slug, write
from .statistics import average_ranks, interval, paired

COLUMNS = ["key", "paper", "artefact", "claim", "holds", "evidence", "data", "tier", "by"]
DEVIATIONS = ["key", "paper", "title", "where", "methods", "mark", "paper_says", "code_says", "we_do", "why", "status",
              "dataset", "metric", "effect", "effect_lo", "effect_hi", "n_seeds", "data", "tier", "evidence"]
EFFECTS = ["key", "paper", "dataset", "metric", "ours_is", "other_is", "ours", "other", "effect", "effect_lo",
           "effect_hi", "n_seeds", "data", "tier", "evidence"]
FAIR = ("q-FedAvg", "FedFa", "FedMGDA+", "FedFV", "FedGini")
RIVALS = ("FedAvg", "FedProx", *FAIR)
OFFICE = ("FedAvg", "AFL", "FedProx", *FAIR)
SYNTHETIC = ("synthetic_0_0", "synthetic_05_05", "synthetic_1_1")
IMAGES = ("cifar01", "office10_alexnet", "office10_resnet18")
# data set -> the study in params.yaml with all methods on it, and the one that sweeps alpha
MAIN = dict.fromkeys(SYNTHETIC, "synthetic") | dict.fromkeys(IMAGES, "images") | {"none": "theory"}
SWEEP = dict.fromkeys(SYNTHETIC, "sweep") | dict.fromkeys(IMAGES, "sweep_images")


class NotRun(ResultError):
    """A number that a claim needs is not there."""


class Finding(NamedTuple):
    holds: str                                  # yes, no, undecided, not run
    evidence: str
    missing: tuple = ()


@dataclass(frozen=True)
class Values:
    """All runs of one paper at one tier."""
    runs: dict                          # (study, dataset, method, metric) -> {(setting, rule): Series [S]}
    kinds: dict                         # (study, dataset) -> kinds of data, as text

    @classmethod
    def of(cls, table):
        runs, by = {}, ["study", "dataset", "method", "metric", "setting", "rule"]
        for (*who, setting, rule), g in table.groupby(by):
            runs.setdefault(tuple(who), {})[setting, rule] = g.set_index("seed").value
        return cls(runs, {at: ", ".join(sorted(set(g.data))) for at, g in table.groupby(["study", "dataset"])})

    def kind(self, dataset, study=""):
        """Kinds of data behind a data set in a study, as text."""
        return self.kinds.get((study or MAIN.get(dataset, "main"), dataset), "")

    def get(self, metric, method, dataset="none", setting="", study="", rule=""):
        """One value per seed [S]. Raises NotRun.

        study: empty for the main study of the data set. rule: empty for the paper's own, that is best_val, or
        "run" for metrics of a whole run. setting: as in the seeds, or some of its parts ("theta=0.001"),
        which must single one out: the one with the fewest further parts. "draw=*" takes all of "draw=0",
        "draw=1", ... [draws], one seed each.
        """
        study = study or MAIN.get(dataset, "main")
        found = {how: x for (how, by), x in self.runs.get((study, dataset, method, metric), {}).items()
                 if by == rule or not rule and by in ("best_val", "run")}
        if setting.endswith("=*"):
            many = {how: x for how, x in found.items() if how.startswith(setting[:-1])}
            if many and all(len(x) == 1 for x in many.values()):
                return pd.Series({how: x.iloc[0] for how, x in many.items()})
        want, fits = _split(setting), []
        for how in found:
            if want <= _split(how) and (want or not how):
                fits.append((len(_split(how) - want), how))
        nearest = [how for extra, how in fits if extra == min(fits)[0]]
        if len(nearest) == 1:
            return found[nearest[0]]
        raise NotRun(" ".join(filter(None, (study, dataset, method, setting, metric, rule)))
                     + (f" (one of {' | '.join(nearest)}?)" if nearest else ""))


def _split(setting):
    return set(filter(None, setting.split(";")))


@dataclass(frozen=True)
class Claim:
    """One sentence and how to test it. place, study: whose kind of data stands beside it."""
    key: str
    paper: str
    artefact: str
    text: str
    test: Callable[[Values], Finding]
    place: str = "none"
    by: str = "paper"                           # or "ours"
    study: str = ""


# comparing runs

def say(metric, x):
    """A number in the digits of its metric."""
    form = ".2f" if METRICS[metric].unit in ("%", "points") else ".4f" if "gini" in metric else ".3g"
    return format(x, form)


def _span(metric, i):
    if i.n < 2:
        return f"{say(metric, i.mean)}, one seed"
    return f"{say(metric, i.mean)} [{say(metric, i.lo)}, {say(metric, i.hi)}], {i.n} seeds"


def common(a, b):
    """The interval of a - b over the seeds that both have. Raises NotRun when there is none."""
    both = a.index.intersection(b.index)
    if not len(both):
        raise NotRun("no seed in common")
    return paired(a.loc[both], b.loc[both])


def gain(v, metric, a, b, place):
    """How much better a is than b (positive is good), paired; a, b: keywords of Values.get -> Interval."""
    x, y = v.get(metric, dataset=place, **a), v.get(metric, dataset=place, **b)
    return common(x, y) if METRICS[metric].better == "high" else common(y, x)


def decide(i, margin=0.0):
    """yes: the interval of a gain lies above -margin; no: below it; else undecided."""
    if i.n < 2:
        return "undecided"
    return "yes" if i.lo > -margin else "no" if i.hi < -margin else "undecided"


# tests: each returns a function Values -> Finding

def best(metric, place, rivals=RIVALS, method="FedGA", margin=0.0, **of):
    """`method` is better than every rival, by more than -margin."""
    def test(v):
        me, gains, missing = v.get(metric, method, place, **of), {}, []
        for r in rivals:
            try:
                gains[r] = gain(v, metric, {"method": method, **of}, {"method": r, **of}, place)
            except NotRun:
                missing.append(r)
        if not gains:
            raise NotRun(f"{place} {metric} of the rivals {', '.join(rivals)}")
        found = [decide(g, margin) for g in gains.values()]
        holds = "no" if "no" in found else "yes" if set(found) == {"yes"} and not missing else "undecided"
        top = min(gains, key=lambda r: gains[r].mean)                      # the strongest rival
        if holds == "no":
            top = min((r for r in gains if decide(gains[r], margin) == "no"), key=lambda r: gains[r].mean)
        it = v.get(metric, top, place, **of).mean()
        text = (f"{method} {say(metric, me.mean())}, strongest of {len(gains)} rivals {top} "
                f"{say(metric, it)}; better by {_span(metric, gains[top])}")
        lacking = f"; not run: {', '.join(missing)}" if missing else ""
        return Finding(holds, text + _allowed(margin) + lacking, tuple(missing))
    return test


def _allowed(margin):
    return f"; allowed loss {margin:g}" if margin else ""


def better(metric, place, a, b, margin=0.0):
    """Run a is better than run b by more than -margin; a, b: keyword arguments of Values.get."""
    def name(run):
        return " ".join(filter(None, (run["method"], run.get("setting", ""))))

    def test(v):
        g = gain(v, metric, a, b, place)
        x, y = (v.get(metric, dataset=place, **r).mean() for r in (a, b))
        text = f"{name(a)} {say(metric, x)}, {name(b)} {say(metric, y)}; better by {_span(metric, g)}"
        return Finding(decide(g, margin), text + _allowed(margin))
    return test


def near(metric, place, a, b, margin):
    """Methods a and b differ by less than the margin, either way."""
    def test(v):
        d = common(v.get(metric, a, place), v.get(metric, b, place))
        inside, outside = -margin < d.lo and d.hi < margin, d.hi < -margin or d.lo > margin
        holds = "undecided" if d.n < 2 else "yes" if inside else "no" if outside else "undecided"
        return Finding(holds, f"{a} minus {b}: {_span(metric, d)}; allowed +-{margin:g}")
    return test


def level(metric, place, method, least=None, most=None, **of):
    """The mean of a run is at least or at most a number. On a stand-in a level says nothing: undecided."""
    def test(v):
        i = interval(v.get(metric, method, place, **of))
        low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
        bound = f"at least {least:g}" if most is None else f"at most {most:g}"
        text = f"{method} {_span(metric, i)}, claimed {bound}"
        if "stand-in" in v.kind(place, of.get("study", "")):
            return Finding("undecided", f"{text}; a level cannot be judged on a stand-in")
        yes, no = low <= i.lo and i.hi <= high, i.hi < low or i.lo > high
        return Finding("yes" if yes else "no" if no else "undecided", text)
    return test


def exactly(metric, value, within=0.0, **of):
    """Every value of a run is this number: a property, not a sample."""
    def test(v):
        x = v.get(metric, **of)
        return Finding("yes" if (abs(x - value) <= within).all() else "no",
                       f"{len(x)} trial{'s' * (len(x) > 1)}, {metric} from {x.min():.3g} to {x.max():.3g}, claimed {value:g}"
                       + (f" within {within:g}" if within else ""))
    return test


def every(*tests):
    """All of several tests hold; one "no" is enough for "no"."""
    def test(v):
        found = [t(v) for t in tests]
        holds = [f.holds for f in found]
        return Finding("no" if "no" in holds else "yes" if set(holds) == {"yes"} else "undecided",
                       " | ".join(f"{f.holds}: {f.evidence}" for f in found),
                       tuple(m for f in found for m in f.missing))
    return test


def orders(place, a, b, cost, least=2.0, also=()):
    """Method a costs at least 10^least times less than b; cost: the metric; also: further costs of a,
    added."""
    def test(v):
        mine, other = v.get(cost, a, place, study="timing"), v.get(cost, b, place, study="timing")
        for more in also:
            mine = mine + v.get(more, a, place, study="timing").reindex(mine.index)
        i = common(np.log10(other), np.log10(mine))
        holds = "undecided" if i.n < 2 else "yes" if i.lo >= least else "no" if i.hi < least else "undecided"
        medians = f"{b} {other.median():.2g} s, {a} {mine.median():.2g} s (medians)"
        return Finding(holds, f"{medians}: {i.mean:.2f} orders of magnitude [{i.lo:.2f}, {i.hi:.2f}], "
                              f"{i.n} repetitions, claimed {least:g} or more")
    return test


def _curve(v, place):
    """Gini at every alpha from 1 to 10 that was run, both ends included -> {alpha: Series}, the best alpha."""
    curve = {}
    for alpha in (1, 10, *range(2, 10)):
        try:
            curve[alpha] = v.get("best_gini", "FedGA", place, f"alpha={alpha}", SWEEP[place])
        except NotRun:
            if alpha in (1, 10):
                raise
    if len(curve) < 3:
        raise NotRun(f"an alpha between 1 and 10 on {place}")
    return curve, min(curve, key=lambda k: curve[k].mean())


def valley(place):
    """Gini is lowest at an alpha strictly between 1 and 10, of those run, and lower there than at both
    ends."""
    def test(v):
        curve, at = _curve(v, place)
        inner = min((a for a in curve if 1 < a < 10), key=lambda k: curve[k].mean())
        ends = {e: common(curve[e], curve[inner]) for e in (1, 10)}
        if at in (1, 10):
            holds = "no" if ends[at].n > 1 and ends[at].hi < 0 else "undecided"
        else:
            holds = "yes" if all(decide(i) == "yes" for i in ends.values()) else "undecided"
        rises = ", ".join(f"alpha {e} higher by {_span('best_gini', i)}" for e, i in ends.items())
        return Finding(holds, f"{len(curve)} values of alpha, lowest at {at}; against the best inner value, "
                              f"alpha {inner}: {rises}")
    return test


def slope(place):
    """Gini is lowest at the strong end, alpha = 10."""
    def test(v):
        curve, at = _curve(v, place)
        others = {a: common(curve[a], curve[10]) for a in curve if a != 10}
        found = [decide(i) for i in others.values()]
        holds = "no" if "no" in found else "yes" if set(found) == {"yes"} else "undecided"
        first = f"alpha 1 higher than alpha 10 by {_span('best_gini', others[1])}"
        return Finding(holds, f"{len(curve)} values of alpha, lowest at {at}; {first}")
    return test


def mostly(metric, place, first, middle, last):
    """On the way from method `first` to `last`, the step to `middle` is longer than the rest."""
    def test(v):
        a, u, g = (v.get(metric, m, place) for m in (first, middle, last))
        both = a.index.intersection(u.index).intersection(g.index)
        a, u, g = (x.loc[both] for x in (a, u, g))
        sign = 1 if METRICS[metric].better == "high" else -1
        i = common(sign * (u - a), sign * (g - u))
        share = (u.mean() - a.mean()) / (g.mean() - a.mean()) if g.mean() != a.mean() else math.nan
        means = ", ".join(f"{m} {say(metric, x.mean())}" for m, x in ((first, a), (middle, u), (last, g)))
        return Finding(decide(i), f"{means}: {middle} alone makes {share:.0%} of the way; "
                                  f"first step longer by {_span(metric, i)}")
    return test


def together(place, least=0.5):
    """Update scale and Gini fall together: both correlations over rounds exceed `least`."""
    def test(v):
        found = {}
        for m in ("us_gini_pearson", "us_gini_spearman"):
            found[m.split("_")[-1]] = interval(v.get(m, "FedAvg", place))
        low, high = min(i.lo for i in found.values()), min(i.hi for i in found.values())
        n = min(i.n for i in found.values())
        return Finding("yes" if low > least else "no" if high < least else "undecided",
                       ", ".join(f"{m} {i.mean:.2f} [{i.lo:.2f}, {i.hi:.2f}]" for m, i in found.items())
                       + f", {n} seeds, claimed above {least:g}")
    return test


def most_rounds(place, method, below):
    """In most rounds the Gini coefficient is below FedAvg's (or above it): the share differs from one
    half."""
    def test(v):
        i = interval(v.get("share_rounds_gini_below_fedavg", method, place))
        yes, no = (i.lo > 0.5, i.hi < 0.5) if below else (i.hi < 0.5, i.lo > 0.5)
        ends = f" [{i.lo:.0%}, {i.hi:.0%}], {i.n} seeds" if i.n > 1 else ", one seed"
        return Finding("yes" if yes else "no" if no else "undecided",
                       f"{method} below FedAvg in {i.mean:.0%} of the rounds{ends}")
    return test


def ranked(metric, places, methods):
    """FedGA has the best average rank over settings, by more than Nemenyi's critical difference."""
    def test(v):
        rows = {}
        for place in places:
            try:
                rows[place] = {m: v.get(metric, m, place).mean() for m in methods}
            except NotRun:
                pass
        if len(rows) < 2:
            raise NotRun(f"{metric} of {', '.join(methods)} on two settings")
        r = average_ranks(pd.DataFrame(rows).T, METRICS[metric].better == "high")
        first, second = r.ranks.index[0], r.ranks.drop("FedGA").index[0]
        ahead = r.ranks[second] - r.ranks["FedGA"]
        holds = "yes" if ahead > r.cd else "no" if ahead < -r.cd else "undecided"
        return Finding(holds, f"{r.n} settings, {len(methods)} methods: FedGA ranks {r.ranks['FedGA']:.2f} on "
                              f"average, {second} {r.ranks[second]:.2f}; critical difference {r.cd:.2f}, "
                              f"Friedman p = {r.p:.2g}; first: {first}",
                       tuple(p for p in places if p not in rows))
    return test


# the claims of FedGA

LOWEST = {"std_acc": "the lowest standard deviation over clients", "best_gini": "the lowest Gini coefficient",
          "worst10_acc": "the highest worst-10% accuracy", "mean_acc": "the highest mean accuracy",
          "gini_auc": "the smallest area under the Gini curve",
          "late_mean_acc": "the highest accuracy after round 100",
          "test_acc_plateau": "a higher test accuracy than FedFa, FedFV and FedGini",
          "top10_minus_bottom10": "the smallest gap between best and worst 10%"}


def _fedga():
    s00, s05, s11 = SYNTHETIC
    cifar, alex, res = IMAGES
    places = (*SYNTHETIC, *IMAGES)
    ga, avg = {"method": "FedGA"}, {"method": "FedAvg"}

    def claim(artefact, place, name, text, test, by="paper", study=""):
        where = place if place in places else ""
        return Claim("-".join(filter(None, ("fedga", slug(name), where))), "fedga", artefact,
                     text + (f": {where}." if where else "."), test, place, by, study)

    # the trigger
    yield claim("Figure 1", s00, "us-gini-together",
                "Update scale and Gini coefficient fall together over the rounds of FedAvg", together(s00))
    cost = "trigger_time_seconds"
    for p in (alex, res, cifar):
        yield claim("Table 8", p, "trigger-cheaper",
                    "FedGA's trigger is orders of magnitude cheaper than FedGini's",
                    orders(p, "FedGA", "FedGini", cost), study="timing")
        yield claim("Table 8", p, "trigger-and-validation-cheaper",
                    "Counted with its validation pass, FedGA's trigger is still cheaper than FedGini's",
                    orders(p, "FedGA", "FedGini", cost, 0.0, ("validation_seconds",)), "ours", "timing")
    yield claim("Table 8", s00, "trigger-cheaper",
                "On the linear model, too, FedGA's trigger is at least 100 times cheaper",
                orders(s00, "FedGA", "FedGini", cost), "ours", "timing")

    # theory
    yield claim("Section 4.3", "none", "weight-bounds",
                "The worst client weighs more than 1/m, the best less",
                exactly("weight_bound_violations", 0, method="FedGA"))
    yield claim("Section 4.3", "none", "alpha-one-uniform",
                "alpha = 1 gives every participant the weight 1/m",
                exactly("alpha_one_deviation", 0, 1e-12, method="FedGA"))
    yield claim("Section 4.4", "none", "avgdiff-example",
                "In the worked example the mean pairwise difference falls by about 1.2 points",
                exactly("example_delta_avgdiff", -0.012, 5e-4, method="FedGA"))
    yield claim("Section 4.1", "none", "upload", "FedGA sends 4 bytes per client and round beyond FedAvg",
                exactly("extra_upload_bytes", 4, method="FedGA"))

    # fairness: the best of all methods
    for artefact, p, metric, rivals in (
            ("Table 2", cifar, "std_acc", RIVALS), ("Figure 3", cifar, "worst10_acc", RIVALS),
            ("Figure 4", cifar, "best_gini", RIVALS),
            ("Figure 5", alex, "gini_auc", ("FedAvg", "FedProx", "FedFV", "FedGini")),
            ("Table 3", res, "std_acc", OFFICE), ("Figure 7", res, "best_gini", OFFICE),
            ("Figure 7", res, "mean_acc", OFFICE),
            ("Figure 8", res, "test_acc_plateau", ("FedFa", "FedFV", "FedGini")),
            ("Figure 9", s00, "best_gini", RIVALS), ("Figure 9", s00, "std_acc", RIVALS),
            ("Table 4", s00, "worst10_acc", RIVALS), ("Figure 10", s00, "late_mean_acc", RIVALS),
            ("Table 5", s05, "mean_acc", RIVALS), ("Table 5", s05, "std_acc", RIVALS),
            ("Table 5", s05, "worst10_acc", RIVALS), ("Table 5", s05, "best_gini", RIVALS),
            ("Figure 13", s05, "top10_minus_bottom10", RIVALS),
            ("Figure 15", s11, "best_gini", RIVALS), ("Figure 15", s11, "worst10_acc", RIVALS)):
        yield claim(artefact, p, f"best-{metric}", f"FedGA has {LOWEST[metric]}", best(metric, p, rivals))

    # accuracy is not the price
    for p in places:
        yield claim("Section 5", p, "mean-not-below-fedavg",
                    "FedGA's mean accuracy is at most a point below FedAvg's",
                    better("mean_acc", p, ga, avg, 1.0))
        yield claim("Section 5", p, "mean-not-below-fair",
                    "FedGA's mean accuracy is at most a point below that of any fair rival",
                    best("mean_acc", p, FAIR, margin=1.0))

    # all metrics at once
    for p, artefact, by in (
            (s00, "Figure 9", "ours"), (s05, "Table 5", "paper"), (s11, "Figure 15", "ours"),
            (cifar, "Table 2", "ours"), (alex, "Figure 5", "ours"), (res, "Figure 7", "paper")):
        metrics = ("mean_acc", "std_acc", "best_gini") + (("worst10_acc",) if p not in (alex, res) else ())
        rivals = OFFICE if p == res else RIVALS
        yield claim(artefact, p, "best-on-all", "FedGA is better than every rival on all metrics",
                    every(*(best(m, p, rivals) for m in metrics)), by)
    yield claim("Section 5", "all", "average-rank-best_gini",
                "Over the data sets FedGA ranks first on Gini, beyond the critical difference",
                ranked("best_gini", places, (*RIVALS, "FedGA")), "ours")

    # delay against none
    for p in places:
        artefact, ablation = ("Table 6" if p in (alex, res) else "Table 7"), {"method": "FedGA_ablation"}
        for metric in ("std_acc", "best_gini") + (() if p in (alex, res) else ("worst10_acc", "mean_acc")):
            yield claim(artefact, p, f"delay-helps-{metric}",
                        f"Delay improves {metric}, {METRICS[metric].what}",
                        better(metric, p, ga, ablation))
        if p in (alex, res):
            yield claim(artefact, p, "delay-keeps-mean_acc", "Delay costs at most a point of mean accuracy",
                        better("mean_acc", p, ga, ablation, 1.0))

    # curves
    yield claim("Figure 10", s00, "fedfv-faster-early", "FedFV is faster than FedGA in the first rounds",
                better("early_mean_acc", s00, {"method": "FedFV"}, ga))
    for m, below in (("FedGA", True), ("FedFV", False), ("FedGini", False)):
        side = "below" if below else "above"
        yield claim("Figure 6", alex, f"gini-{side}-fedavg-{m}",
                    f"{m}'s Gini coefficient is {side} FedAvg's in most rounds", most_rounds(alex, m, below))
    yield claim("Figure 5", alex, "gini-level",
                "After round 50 FedGA's Gini coefficient is about 0.1 or lower",
                level("gini_level_after_round_50", alex, "FedGA", most=0.105))
    yield claim("Figure 8", res, "train-80-by-40", "FedGA passes 80% training accuracy within 40 rounds",
                level("train_acc_by_round_40", res, "FedGA", least=80))

    # the strength alpha
    for p in places:
        if p == res:
            yield claim("Figure 16", p, "alpha-strong-end",
                        "The Gini coefficient is lowest at the strongest alpha", slope(p))
        else:
            yield claim("Figure 16", p, "alpha-u-shape",
                        "The Gini coefficient is U-shaped in alpha", valley(p))

    # the rivals
    for p, artefact in zip(SYNTHETIC, ("Figure 9", "Table 5", "Figure 15")):
        yield claim(artefact, p, "fedprox-like-fedavg", "FedProx is within a point of FedAvg's mean accuracy",
                    near("mean_acc", p, "FedProx", "FedAvg", 1.0))
        for m in ("q-FedAvg", "FedFa", "FedFV", "FedGini"):
            yield claim(artefact, p, f"fair-rival-helps-{m}", f"{m} has a lower Gini coefficient than FedAvg",
                        better("best_gini", p, {"method": m}, avg))
    for m in ("FedAvg", "FedProx"):
        yield claim("Table 4", s00, f"worst10-near-zero-{m}", f"{m} leaves the worst 10% near zero, below 5%",
                    level("worst10_acc", s00, m, most=5.0))
    yield claim("Table 5", s05, "fedmgda-weak-released-step",
                "FedMGDA+ is less accurate than FedAvg, with the released server step, the learning rate",
                better("mean_acc", s05, avg, {"method": "FedMGDA+", "setting": "server_lr=0.01"}))
    yield claim("Table 5", s05, "fedmgda-strong-step-1",
                "With a server step of 1 FedMGDA+ is more accurate than FedAvg",
                better("mean_acc", s05, {"method": "FedMGDA+"}, avg), "ours")

    # other draws of the data, and what the gain is made of
    draws = {"setting": "draw=*", "study": "draws"}
    for m in ("FedAvg", "q-FedAvg", "FedFV", "Uniform", "FedGA_ablation"):
        yield claim("Table 5", s05, f"over-draws-below-{m}",
                    f"Over draws of the data set FedGA has a lower Gini coefficient than {m}",
                    better("best_gini", s05, ga | draws, {"method": m} | draws), "ours")
    for p in SYNTHETIC:
        for metric in ("mean_acc", "best_gini"):
            yield claim("Table 5", p, f"mostly-uniform-{metric}",
                        f"Most of the way from FedAvg to FedGA is uniform instead of size weights ({metric})",
                        mostly(metric, p, "FedAvg", "Uniform", "FedGA"), "ours")
        yield claim("Table 5", p, "beats-uniform", "FedGA has a lower Gini coefficient than uniform weights",
                    better("best_gini", p, ga, {"method": "Uniform"}), "ours")


CLAIMS = tuple(_fedga())


def check_claims(claims, seeds):
    """claims.csv: one row per claim -> frame [claims, COLUMNS]. seeds: all parts, any tiers."""
    tiers = [t for t in reversed(TIERS) if (seeds.tier == t).any()]
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    rows = []
    for c in claims:
        found = {}
        for t in tiers:
            if (c.paper, t) in at:
                try:
                    found[t] = c.test(at[c.paper, t])
                except NotRun as e:
                    found[t] = Finding("not run", f"needs {e}", ("all",))
        tier = next((t for t in found if not found[t].missing), None) or next(
            (t for t in found if found[t].holds != "not run"), None)
        f = found[tier] if tier else next(iter(found.values()), Finding("not run", "no runs of this paper"))
        if tier == "tiny" and f.holds in ("yes", "no"):
            f = Finding("undecided", f"{f.evidence}; tier tiny decides nothing")
        places = MAIN if c.place == "all" else [c.place]
        kinds = {at[c.paper, tier].kind(p, c.study) for p in places} - {""} if tier else ()
        data = ", ".join(sorted(kinds))
        rows.append((c.key, c.paper, c.artefact, c.text, f.holds, f.evidence, data, tier or "", c.by))
    return pd.DataFrame(rows, columns=COLUMNS)


# deviations

MARKS = ("certain", "supported", "reconstruction")
FIELDS = {"id", "title", "where", "paper", "code", "ours", "why", "mark", "methods", "effect", "unmeasured"}
RUN = {"method", "setting", "study", "metric", "rule"}


def read_deviations(root="results"):
    """deviations.yaml: a list of mappings with FIELDS, `effect` (a list) or `unmeasured` (a reason) -> dicts.

    An effect is {dataset, metrics, ours, other}; ours and other are keywords of Values.get: {method, setting,
    study, metric, rule}, all but the method optional. `metric` replaces the listed one. Raises ResultError.
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
            raise ResultError(f"{at}: unknown field {min(odd)!r}; {_hint(min(odd), FIELDS)}")
        lost = FIELDS - {"methods", "effect", "unmeasured"} - {k for k in d if d[k]}
        if lost:
            raise ResultError(f"{at}: {min(lost)} is missing")
        paper, _, number = d["id"].rpartition("-")
        count[paper] = count.get(paper, 0) + 1
        if number != str(count[paper]):
            raise ResultError(f"{at}: number the deviations in order; here {paper}-{count[paper]} is due")
        if d["mark"] not in MARKS:
            raise ResultError(f"{at}: mark is {d['mark']!r}; {_hint(d['mark'], MARKS)}")
        if bool(d.get("effect")) == bool(d.get("unmeasured")):
            raise ResultError(f"{at}: give either an effect to compute or a reason under unmeasured")
        for e in d.get("effect") or ():
            if odd := set(e) - {"dataset", "metrics", "ours", "other"}:
                raise ResultError(f"{at}: unknown field {min(odd)!r} in an effect")
            if lost := {"dataset", "metrics", "ours", "other"} - set(e):
                raise ResultError(f"{at}: an effect has no {min(lost)}")
            for side in ("ours", "other"):
                if odd := set(e[side]) - RUN:
                    raise ResultError(f"{at}: unknown field {min(odd)!r} in {side}; {_hint(min(odd), RUN)}")
                if "method" not in e[side]:
                    raise ResultError(f"{at}: {side} has no method")
            for m in (*e["metrics"], *(e[s]["metric"] for s in ("ours", "other") if "metric" in e[s])):
                if m not in METRICS:
                    raise ResultError(f"{at}: metric is {m!r}; {_hint(m, METRICS)}")
    return entries


def effects(entries, seeds):
    """effects.csv: what each deviation changes, ours minus other, paired by seed -> frame [.., EFFECTS].

    One row per deviation, comparison and metric. seeds: all parts, any tiers; the best tier with both sides counts.
    """
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    rows, shown = [], ("method", "study", "setting", "metric", "rule")
    for d in entries:
        paper = d["id"].rpartition("-")[0].lower()
        for e in d.get("effect") or ():
            name = {side: " ".join(e[side][k] for k in shown if k in e[side]) for side in ("ours", "other")}
            for metric in e["metrics"]:
                row = {"key": d["id"].lower(), "paper": paper, "dataset": e["dataset"], "metric": metric,
                       "ours_is": name["ours"], "other_is": name["other"], "evidence": "not run"}
                for tier in reversed(TIERS):
                    if (paper, tier) in at and (found := _effect(at[paper, tier], metric, e)):
                        row |= found | {"tier": tier}
                        break
                rows.append(row)
    return pd.DataFrame(rows, columns=EFFECTS)


def _effect(v, metric, e):
    """One comparison at one tier -> columns of EFFECTS, or None where a side was not run."""
    of, data = {"metric": metric, "dataset": e["dataset"]}, v.kind(e["dataset"], e["ours"].get("study", ""))
    try:
        x, y = v.get(**of | e["ours"]), v.get(**of | e["other"])
        both = x.index.intersection(y.index)
        x, y = x.loc[both], y.loc[both]
        if not np.isfinite([*x, *y]).all():                          # a round that never comes has no mean
            return {"n_seeds": len(both), "data": data, "evidence": f"{metric} {_never(x)} against {_never(y)}"}
        i = common(x, y)
    except NotRun:
        return None
    return {"ours": x.mean(), "other": y.mean(), "effect": i.mean, "effect_lo": i.lo, "effect_hi": i.hi, "data": data,
            "n_seeds": i.n, "evidence":
            f"{metric} {say(metric, x.mean())} against {say(metric, y.mean())}: {_span(metric, i)}"}


def deviations(entries, measured):
    """deviations.csv: one row per deviation, with its first effect as the headline and all of them as evidence
    -> frame [deviations, DEVIATIONS]. measured: the frame of `effects`."""
    rows = []
    for d in entries:
        mine = measured[measured.key == d["id"].lower()]
        done = mine[mine.evidence != "not run"]
        status = "not measured" if mine.empty else "measured" if len(done) else "not run"
        head = done[done.effect.notna()].head(1).to_dict("records") if len(done) else []
        methods = d.get("methods") or sorted({e[s]["method"] for e in d.get("effect") or () for s in ("ours", "other")})
        said = [f"{r.dataset}, {r.ours_is} and {r.other_is}: {r.evidence}" for r in done.itertuples()]
        rows.append({"key": d["id"].lower(), "paper": d["id"].rpartition("-")[0].lower(), "title": d["title"],
                     "where": d["where"], "methods": " ".join(methods), "mark": d["mark"], "paper_says": d["paper"],
                     "code_says": d["code"], "we_do": d["ours"], "why": d["why"], "status": status,
                     "evidence": d.get("unmeasured") or " | ".join(said)}
                    | {c: head[0][c] for c in DEVIATIONS[11:19] if head})
    return pd.DataFrame(rows, columns=DEVIATIONS)


def _never(x):
    """A Series with infinite values in words: "11 to 14", "80 to 80, never in 1 of 2 seeds"."""
    ends, lost = x[np.isfinite(x)], int((~np.isfinite(x)).sum())
    return ", ".join(filter(None, (f"{ends.min():g} to {ends.max():g}" if len(ends) else "",
                                   f"never in {lost} of {len(x)} seeds" if lost else "")))


def headline(root, claims):
    """metrics.json, for `dvc metrics show` and `diff`: FedGA and its controls, and the counts of claims and verdicts."""
    seeds = parts(root, "seeds", read_reported(root))
    own = seeds[(seeds.rule == "best_val") & (seeds.setting == "") & seeds.study.isin(["synthetic", "images"])
                & seeds.method.isin(["FedAvg", "Uniform", "FedGA"]) & seeds.metric.isin(["mean_acc", "worst10_acc", "best_gini"])]
    out = {}
    for (paper, d, m, k), x in own.groupby(["paper", "dataset", "method", "metric"]).value.mean().items():
        out.setdefault(paper, {}).setdefault(d, {}).setdefault(m, {})[k] = round(float(x), 4)
    out["claims"] = {k: int(n) for k, n in claims.holds.value_counts().sort_index().items()}
    if (ledger := root / "ledger.csv").exists():
        counts = pd.read_csv(ledger, usecols=["verdict"]).verdict.value_counts().sort_index()
        out["verdicts"] = {k: int(n) for k, n in counts.items()}
    (root / "metrics.json").write_text(json.dumps(out, indent=1) + "\n")


def main(argv=None):
    """Test every claim and measure every deviation; write claims.csv, deviations.csv and effects.csv."""
    parser = argparse.ArgumentParser(prog="python -m fedlib.claims", description=main.__doc__)
    parser.add_argument("--results", default="results", help="folder with reported.csv (default: results)")
    root = Path(parser.parse_args(argv).results)
    seeds = parts(root, "seeds", read_reported(root))
    table = check_claims(CLAIMS, seeds)
    write(table, root / "claims.csv")
    entries = read_deviations(root)
    measured = effects(entries, seeds)
    write(measured, root / "effects.csv")
    write(deviations(entries, measured), root / "deviations.csv")
    headline(root, table)
    counts = table.holds.value_counts()
    print(f"{len(table)} claims: " + ", ".join(f"{n} {v}" for v, n in counts.sort_index().items()))


if __name__ == "__main__":
    main()
