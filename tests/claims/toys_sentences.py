"""A second, plain writing of what a declared claim says.

`judged(world, test)` reads a test as claims.yaml spells it. It makes up every run that
the sentence is about, as it comes to it, and gives the p values that must be found:
yes, no, above -margin, below margin. The statistics are Student's t by hand.
"""

import itertools
import re
import zlib
from functools import cache
from typing import NamedTuple

import numpy as np
import yaml
from scipy.special import stdtr, stdtrit
from where import ROOT

from repro.claims import Values
from repro.metrics import METRICS

LEVEL = 0.0151  # of a verdict at one look, two-sided
# kind: by how many margins the sentence's side is ahead, noise in margins, seeds
KINDS = {"ahead": (2, 0.6, 8), "behind": (-2, 0.6, 8)}
KINDS |= {"equal": (0, 0.25, 10), "noisy": (0.5, 1.6, 6)}


# ---------------------------------------------------------------- statistics by hand
def above(d, least, width=0.0):
    """p of "the mean of d is above `least`"."""
    n, sd = len(d), np.std(d, ddof=1) if len(d) > 1 else 0
    if n < 5:
        return 1.0
    if np.ptp(d) <= 1e-12 * abs(d).max():
        return 0.0 if d[0] - width / 2 > least else 1.0
    return float(stdtr(n - 1, (least - d.mean()) / (sd / n**0.5)))


def positive(metric, d, margin=None):
    m = METRICS[metric].margin_at(0) if margin is None else margin
    near = (above(d, -m, m), above(-d, -m, m)) if m else (1.0, 1.0)
    return above(d, 0, m), above(-d, 0, m), *near


def equal(d, m):
    inside = max(above(d, -m, m / 2), above(-d, -m, m / 2))
    apart = min(1.0, 2 * min(above(d, m, m / 2), above(-d, m, m / 2)))
    return inside, apart, 1.0, 1.0


def sure(good):
    return (0.0, 1.0, 1.0, 1.0) if good else (1.0, 0.0, 1.0, 1.0)


def all_of(parts):
    yes, no, low, high = zip(*parts)
    k = len(yes)
    return max(yes), min(1.0, k * min(no)), max(low), min(1.0, k * min(high))


def contrary(p):
    return p[1], p[0], p[3], p[2]


def any_of(parts):
    return contrary(all_of([contrary(p) for p in parts]))


def verdict(p):
    said = {"yes": p[0], "no": p[1], "alike": max(p[2:])}
    return next((k for k, x in said.items() if x < LEVEL / 2), "undecided")


class LightTest(NamedTuple):
    """What scipy.stats.ttest_1samp gives of one sample, without what makes it dear."""

    pvalue: float
    middle: float
    se: float
    df: int

    def confidence_interval(self, level):
        half = stdtrit(self.df, (1 + level) / 2) * self.se
        return self.middle - half, self.middle + half


def light_ttest(d, popmean, axis=-1, alternative="two-sided"):
    d = np.asarray(d, float)
    n, se = len(d), d.std(ddof=1) / len(d) ** 0.5
    p = stdtr(n - 1, (popmean - d.mean()) / se) if se else np.nan
    return LightTest(p, d.mean(), se, n - 1)


# ---------------------------------------------------------------- runs made up
@cache
def paper_yaml(paper):
    return yaml.safe_load((ROOT / f"papers/{paper}/paper.yaml").read_text("utf-8"))


def run_of(run):
    return {"method": run} if isinstance(run, str) else dict(run)


def paired(*runs):
    """Values {seed: x} of several runs over the seeds that all have, in order."""
    seeds = sorted(set(runs[0]).intersection(*runs))
    return np.array([[x[s] for s in seeds] for x in runs])


def over_seeds(f, *runs):
    """f of the paired values of several runs, again by seed."""
    seeds = sorted(set(runs[0]).intersection(*runs))
    return dict(zip(seeds, f(*paired(*runs))))


def mean_of(runs):
    return over_seeds(lambda *x: np.mean(x, axis=0), *runs)


def base_of(m):
    low, high = m.bounds
    if np.isfinite(low) and np.isfinite(high):
        return (low + high) / 2
    return 0.0 if m.kind == "log ratio" else 10.0


def better_is(metric):
    return 1 if METRICS[metric].better == "high" else -1


class World:
    """Runs of one paper, made when asked for; as dictionaries for Values."""

    def __init__(self, paper, kind, salt=0, n=None):
        self.paper, self.kind, self.salt = paper, kind, salt
        self.lift, self.noise, usual = KINDS[kind]
        self.n = n or usual
        self.made, self.runs, self.asked = {}, {}, set()

    def main(self, place):
        studies = paper_yaml(self.paper)["main"]
        return next((s for s, at in studies.items() if place in at), "main")

    def ask(self, metric, method, place="none", setting="", study="", **how):
        """Values by seed. how: up, in `lift`s; base; unit, in place of a margin;
        shift, on top."""
        if not isinstance(place, str):
            each = [self.ask(metric, method, p, setting, study, **how) for p in place]
            return mean_of(each)
        study = study or self.main(place)
        self.asked.add((study, place))
        if "guest=*" in setting:
            at = [setting.replace("*", g) for g in ("p", "q")]
            each = [self.ask(metric, method, place, s, study, **how) for s in at]
            return mean_of(each)
        key = study, place, method, metric, frozenset(setting.split(";"))
        if key not in self.made:
            name = [*key[:4], *sorted(key[4])]
            self.made[key] = mine = self.drawn(repr(name), metric, **how)
            rule = paper_yaml(self.paper)["rule"]
            other = next(r for r in ("best_round_test", "last") if r != rule)
            runs = self.runs.setdefault(key[:4], {})
            setting = ";".join(filter(None, setting.split(";")))
            runs[setting, rule] = mine
            runs[setting, other] = dict.fromkeys(range(self.n), -77.0)
        return self.made[key]

    def drawn(self, name, metric, up=0, base=None, unit=None, shift=0.0):
        rng = np.random.default_rng([zlib.crc32(name.encode()), self.salt])
        m = METRICS[metric]
        base = base_of(m) if base is None else base
        unit = unit or m.margin_at(base) or m.margin or 0.01 * (abs(base) or 1)
        x = (
            base
            + shift
            + unit * (self.lift * up + self.noise * rng.normal(size=self.n))
        )
        lost = 1 if self.n > 6 and rng.random() < 0.2 else None
        return {seed: float(v) for seed, v in enumerate(x) if seed != lost}

    def values(self, **more):
        return Values(self.runs, {}, self.paper, **more)


# ---------------------------------------------------------------- the builders
SAYS = {}


def says(f):
    """Enter a function as what a builder of its name says."""
    return SAYS.setdefault(f.__name__, f)


def judged(w, test):
    """The p values of a test as claims.yaml spells it."""
    ((name, given),) = test.items()
    if name == "throughout":
        return all_of([judged(w, t) for t in given.values()])
    if name in ("contrary", "every", "some"):
        parts = [judged(w, t) for t in (given if isinstance(given, list) else [given])]
        return {"contrary": lambda p: contrary(p[0]), "every": all_of, "some": any_of}[
            name
        ](parts)
    return SAYS[name](w, **given)


@says
def better(w, metric, place, a, b, least=0.0):
    s = better_is(metric)
    x = w.ask(metric, place=place, **run_of(a), up=s, shift=s * least)
    x, y = paired(x, w.ask(metric, place=place, **run_of(b)))
    margin = 0 if least else METRICS[metric].margin_at(y.mean())
    return positive(metric, s * (x - y) - least, margin)


@says
def near(w, metric, place, a, b, margin):
    x = w.ask(metric, place=place, **run_of(a), up=1, unit=margin)
    x, y = paired(x, w.ask(metric, place=place, **run_of(b), unit=margin))
    return equal(x - y, margin)


@says
def differ(w, **given):
    return contrary(near(w, **given))


@says
def alike(w, metric, place, runs, margin):
    pairs = itertools.combinations(runs, 2)
    return all_of([near(w, metric, place, a, b, margin) for a, b in pairs])


@says
def level(
    w, metric, place, method, least=None, most=None, anywhere=False, needs="", **of
):
    s, bound = (1, least) if least is not None else (-1, most)
    (x,) = paired(w.ask(metric, method, place, **of, up=s, base=bound))
    ends = [(1, least), (-1, most)]
    return all_of([positive(metric, k * (x - b)) for k, b in ends if b is not None])


@says
def larger(w, a, b, place, method, **of):
    x = w.ask(a, method, place, **of, up=1, base=10)
    x, y = paired(x, w.ask(b, method, place, **of, base=10))
    return positive(a, x - y)


@says
def smaller(w, metric, place, method, **of):
    x = w.ask(metric, method, place, **of, up=-1, base=1, unit=0.05)
    return positive("log_ratio", -np.log([*x.values()]))


@says
def exactly(w, metric, value, within=0.0, **of):
    w.noise, good = 0.0, w.kind in ("ahead", "equal")
    method = of.pop("method")
    place = of.pop("dataset", "none")
    off = 0.9 * within if good else 1.1 * within + 1e-9
    x = w.ask(metric, method, place, **of, base=value + off)
    return sure(all(abs(v - value) <= within for v in x.values()))


@says
def best(w, metric, place, rivals, method, least=0.0, **of):
    run = {"method": method, **of}
    others = [run | {"method": r} for r in rivals]
    return all_of([better(w, metric, place, run, r, least) for r in others])


@says
def steadier(w, metric, place, rivals, method, high, low, **of):
    def loss(m, up):
        x = w.ask(metric, m, place, high, **of)
        y = w.ask(metric, m, place, low, **of, up=up)
        return over_seeds(lambda x, y: x - y, x, y)

    mine = loss(method, 1)
    each = (paired(loss(r, 0), mine) for r in rivals)
    return all_of([positive(metric, x - y) for x, y in each])


@says
def flat(w, metric, place, method, axis, study, margin):
    at = [f"{axis}={k}" for k in (5, 10, 1)]
    x = paired(*(w.ask(metric, method, place, s, study, unit=margin) for s in at))
    return all_of([equal(row - x.mean(0), margin) for row in x])


def slopes(at, x):
    """Least-squares change over the length of an axis, x [values, S]."""
    at = np.array(at, float)
    a = at - at.mean()
    return (a @ x) / (a @ a) * np.ptp(at)


def inner(metric, curve):
    """curve: {value: values by seed}."""
    first, *middle, last = sorted(curve)
    s = better_is(metric)

    def over(k, end):
        x, y = paired(curve[k], curve[end])
        return positive(metric, s * (x - y))

    return any_of([all_of([over(k, e) for e in (first, last)]) for k in middle])


# ---------------------------------------------------------------- claims, spelled out
def spelled(value, case):
    """A value of claims.yaml with the words in braces replaced."""
    if isinstance(value, dict):
        return {spelled(k, case): spelled(v, case) for k, v in value.items()}
    if isinstance(value, list):
        return [spelled(v, case) for v in value]
    if not isinstance(value, str):
        return value
    if (whole := re.fullmatch(r"\{(\w+)\}", value)) is not None:
        return case[whole[1]]
    for name in case:
        value = value.replace("{" + name + "}", str(case[name]))
    return value


def entries(paper):
    """Every case of every entry of papers/<paper>/claims.yaml -> dicts."""
    text = (ROOT / f"papers/{paper}/claims.yaml").read_text("utf-8")
    for entry in yaml.load(text, yaml.CSafeLoader)["claims"]:
        grid = entry.pop("for", None) or {}
        lists = [
            [x if isinstance(x, dict) else {name: x} for x in values]
            for name, values in grid.items()
        ]
        for point in itertools.product(*lists):
            case = {k: v for part in point for k, v in part.items()}
            yield case | spelled(entry, case)
