"""Tests of EquFL's claims that the shared ones do not cover; claims.yaml says of which
sentences.

The paper reports one number per run and not its round; its claims are judged by the
mean of the last rounds. A column of its tables is a run of its own, trained to lower
that metric: so it is here. An improvement is a difference in percent of the mean bias
of FedAvg, so that seeds with little bias do not outweigh the others. Along an axis it
is judged by its slope over all values, or by its mean. Some sentences are held against
the paper's own tables alone: they see reported.csv in place of runs.
"""

import itertools
from functools import partial

import numpy as np
import pandas as pd

from repro import papers
from repro.claims import (
    NotRun,
    NotTestable,
    better,
    common,
    contrary,
    counted,
    equal,
    every,
    exactly,
    held,
    keywords,
    level,
    name,
    one_of,
    positive,
    printed,
    rising,
    say,
    seen,
    slopes,
    some,
    strongest,
    testing,
    throughout,
)
from repro.metrics import METRICS

PLACES = ("Income-Sex", "Employment-Sex", "Health-Sex", "Income-Race")
PLACES += ("MNIST", "CIFAR-10")
SIGMAS = ("0.5", "1.0", "2.0")
RULES = ("Median", "Trimmed-mean", "Multi-Krum", "DeepSight")
SWEEPS = {  # axis: (study, its value in the main study, data set)
    "rho": ("fraction", 0.5, "Income-Sex"),
    "lam": ("strength", 1, "Income-Sex"),
    "size": ("size", 1000, "Income-Sex"),
    "C": ("clients", None, "MNIST"),
}
# Bounds of ours, where the paper's words name no number. In points of improvement:
STEADY = 10.0  # an improvement that moves by less is the same
MINOR = 20.0  # a "minor" improvement is smaller
HALF = 0.5  # of its mean: a "stable" improvement moves by less
LINEAR = 0.9  # least correlation that is called "near-linear"
TENTH = 0.1  # of a point: two runs that lie closer together are as good as equal
ROUNDING = 0.01  # megabytes are printed with two digits

TARGETS = papers.module("equfl", "targets")
CALLED, SCORES = TARGETS.PRINTED, TARGETS.METRICS
FEDAVG = {"method": "FedAvg"}


def number(artefact, dataset, metric, column="reported", **of):
    """A number of reported.csv, of EquFL; column: or the percent printed beside it."""
    of = {"setting": "default", "method": "EquFL", "metric": metric, **of}
    found = printed("equfl", artefact=artefact, dataset=dataset, **of)
    return float(found[column].item())


def aimed(metric, study="", *more):
    """EquFL trained for a metric, as keywords of Values.get."""
    setting = ";".join((f"target={metric}", *more))
    return {"method": "EquFL", "setting": setting, "study": study}


# ---------------------------------------------------------------- scores and accuracy
def lowered(metric, place, a, b, names=("EquFL", "FedAvg")):
    """Run a has a lower score than run b; names: theirs in the paper's table, whose
    gain stands beside ours.
    """
    return beside(better(metric, place, a, b), metric, place, *names)


def lowest(metric, place, mine, rivals, **of):
    """EquFL has a lower score than every rival; of: keywords of the rivals' runs."""
    tests = {r: better(metric, place, mine, {"method": r, **of}) for r in rivals}
    names = [CALLED.get(r, r) for r in rivals]
    return beside(lambda v: strongest(v, tests), metric, place, "EquFL", *names)


def beside(test, metric, place, mine, *rivals):
    """A test with the gain that the paper prints of its methods, by its names."""
    own, *others = ({"method": m, "setting": None} for m in (mine, *rivals))
    gain = (metric, place, own, tuple(others), 0.0)
    return lambda v: test(v)._replace(gain=gain)


def everywhere(rivals):
    """EquFL is lower than all rivals, for every score on every data set."""
    cases = itertools.product(PLACES, SCORES)
    return throughout({f"{m} {p}": lowest(m, p, aimed(m), rivals) for p, m in cases})


@testing
def all_lowered(v, place, a):
    """Run a has all four scores below FedAvg's."""
    f = throughout({m: better(m, place, a, "FedAvg") for m in SCORES})(v)
    return f._replace(evidence=f"lower than FedAvg's: {f.evidence}")


@testing
def conflict(v, place):
    """EquFL, aimed at one score, raises another one."""
    found = {
        f"{m} by {aim}": seen(better(m, place, "FedAvg", aimed(aim)), v)
        for aim, m in itertools.permutations(SCORES, 2)
    }
    raised = [k for k, f in found.items() if f.holds == "yes"]
    told = counted(found) + f"; raised: {', '.join(raised)}" * bool(raised)
    return one_of(found)._replace(evidence=told)


def accurate(place, rival, least=0.0, targets=SCORES, study=""):
    """Whatever its target, EquFL is more accurate than a rival, by `least`."""
    other = {"method": rival, "study": study}
    return throughout(
        {m: better("accuracy", place, aimed(m, study), other, least) for m in targets}
    )


def as_accurate(place, artefact):
    """EquFL loses no more accuracy than the paper prints, whatever its target."""

    def gain(m):
        of = partial(number, artefact, place, "accuracy", setting=f"target={m}")
        return round(of() - of(method="FedAvg"), 4)

    tests = {m: better("accuracy", place, aimed(m), "FedAvg", gain(m)) for m in SCORES}
    return at_hand(place, throughout(tests), "the printed loss")


@testing
def at_hand(v, place, test, what):
    """A test of printed digits, which needs the paper's own data."""
    if "stand-in" in v.kind(place):
        raise NotTestable(f"{what} is about data that are not here")
    return test(v)


# ---------------------------------------------------------------- improvements
def percent(metric):
    return f"{metric}_improvement_pct"


def scores(v, metric, place, *runs):
    """The scores of several runs over the seeds that all have -> Series [S] each.

    The last run is what the others are measured against: raises NotTestable where its
    mean is below the margin of the metric.
    """
    runs = [keywords(run) for run in runs]
    each = [v.get(metric, dataset=place, **run) for run in runs]
    both = pd.concat(each, axis=1, join="inner", keys=range(len(runs)))
    if not len(both):
        raise NotRun("no seed in common")
    base, least = both.iloc[:, -1].mean(), METRICS[metric].margin
    if base < least:
        raise NotTestable(
            f"{place}: {name(runs[-1])} has no {metric} that could be lowered: "
            f"{say(metric, base)}, below the margin of {least:g}"
        )
    return [both[k] for k in both]


def improvement(v, metric, place, a, b=FEDAVG):
    """How far run a lies below run b, in percent of b's mean [S]."""
    x, y = scores(v, metric, place, a, b)
    return 100 * (y - x) / y.mean()


@testing
def lowers_by(v, metric, place, a, share, b=FEDAVG):
    """Run a lowers the score of run b by more than `share` percent."""
    x, y = scores(v, metric, place, a, b)
    d = 100 * ((1 - share / 100) * y - x) / y.mean()
    gain = 100 * (1 - x.mean() / y.mean())
    said = f"{name(a)} lowers {metric} by {gain:.1f}%, against {share:g}%"
    return positive(percent(metric), d, said, 0.0, ("more", "less"))


def as_printed(metric, place, artefact, part=1):
    """EquFL improves on FedAvg by the printed percentage, or `part` of it, or more."""
    share = part * number(artefact, place, metric, column="improvement_pct")
    test = lowers_by(metric, place, aimed(metric), share)
    return test if part < 1 else at_hand(place, test, f"the printed {share:g}%")


@testing
def less_than_half(v, metric, place, a, rival, b):
    """Run a takes away less than half of the part of b's score that a rival does."""
    x, r, y = scores(v, metric, place, a, rival, b)
    takes = lambda run, z: f"{name(run)} takes away {say(metric, (y - z).mean())}"
    said = f"{takes(a, x)}, {takes(rival, r)}"
    d = (y - r) / 2 - (y - x)
    return positive(metric, d, f"{said}, half of it", 0.0, ("less", "more"))


@testing
def same_improvement(v, metric, place, a, b):
    """The improvements of runs a and b differ by less than STEADY points."""
    x, y = common(*(improvement(v, metric, place, run) for run in (a, b)))
    said = f"{name(a)} improves {metric} by {x.mean():.1f}%, "
    said += f"{name(b)} by {y.mean():.1f}%"
    return equal(percent(metric), x - y, said, STEADY)


# ---------------------------------------------------------------- a regulariser
def minor(metric, place, regular):
    """A regulariser lowers a score by less than MINOR percent."""
    return answering(place, regular, contrary(lowers_by(metric, place, regular, MINOR)))


def beats_regular(metric, place, a, regular):
    """Run a has a lower score than a regulariser."""
    names = "EquFL", "Regular"
    return answering(place, regular, lowered(metric, place, a, regular, names))


@testing
def answering(v, place, a, test):
    """A test of run a, which says nothing of bias where a gives nearly all rows one
    answer for most seeds, and FedAvg does not.
    """
    runs = (keywords(a), FEDAVG)
    yes, usual = common(*(v.get("positive_rate", dataset=place, **run) for run in runs))
    if TARGETS.one_answer(yes, usual).mean() > 0.5:
        raise NotTestable(
            f"{name(a)} gives nearly all rows one answer, without bias: it says "
            f"yes to {yes.mean():.1%}, FedAvg to {usual.mean():.1%}"
        )
    return test(v)


def collapses(place, mu, least, study=""):
    """A regulariser of weight mu costs more accuracy than `least`, for some target."""
    runs = [aimed(m, study, f"mu={mu:g}") | {"method": "Regular"} for m in SCORES]
    return some(*(better("accuracy", place, "FedAvg", r, least) for r in runs))


# ---------------------------------------------------------------- noise, cost, storage
def private(metric, place, sigmas, same):
    """Under noise of these sizes EquFL is below FedAvg without noise, or with it."""
    tests = {}
    for s in (f"sigma={sigma}" for sigma in sigmas):
        rival = FEDAVG | ({"setting": s, "study": "private"} if same else {})
        tests[s] = better(metric, place, aimed(metric, "private", s), rival)
    return throughout(tests)


def noisier(metric, place, method, setting=""):
    """The larger the noise at the clients, the larger the metric."""

    def along(v):
        out = {0.0: v.get(metric, method, place, setting)}
        for s in SIGMAS:
            how = ";".join(filter(None, (setting, f"sigma={s}")))
            out[float(s)] = v.get(metric, method, place, how, "private")
        return out

    return rising(metric, along)


@testing
def cost(v, metric, place, method, most):
    """A run takes at most so many times as long as one of FedAvg."""
    ratio = v.get(metric, method, place, study="cost").mean()
    if "stand-in" in v.kind(place, "cost"):
        raise NotTestable(
            "making the rows takes as long however long the clients train, and "
            "here they train for a few batches a round: at this size a ratio of "
            f"{ratio:.1f} says nothing about the paper's"
        )
    return level(metric, place, method, most=most, study="cost")(v)


def stored(place):
    """Models and synthetic rows take the printed megabytes."""
    of = {"dataset": place, "method": "EquFL", "setting": "server storage"}

    def size(metric):
        x = number("Table XI", place, metric, setting=of["setting"])
        return exactly(metric, x, ROUNDING * x, study="storage", **of)

    return every(size("global_models_MB"), size("synthetic_dataset_MB"))


# ---------------------------------------------------------------- along an axis
def swept(v, metric, method, axis, low=None, high=None):
    """Improvements over FedAvg in percent along an axis, in order, the value of the
    main study among them; or from `low` to `high` -> frame [S, values] of the seeds
    that have all. Raises NotRun for fewer than two values.
    """
    study, default, place = SWEEPS[axis]
    aim = f"target={metric}" if method == "EquFL" else ""
    found = {}
    for how, _ in v.runs.get((study, place, method, metric), {}):
        at, _, value = how.replace(aim, "").strip(";").partition("=")
        if at == axis and aim in how:
            found[float(value)] = {"setting": how, "study": study}
    if default is not None:
        found.setdefault(float(default), {"setting": aim})
    if len(found) < 2:
        raise NotRun(f"{study} {place} {method} {metric} at two values of {axis}")
    out = {}
    for k, run in sorted(found.items()):
        of = {} if default is not None else {"setting": f"C={k:g}", "study": study}
        run = {"method": method, **run}
        out[k] = improvement(v, metric, place, run, FEDAVG | of)
    x = pd.DataFrame(out).dropna()
    if not len(x):
        raise NotRun(f"{study} {place} {method} {metric} at all values for one seed")
    if lost := {low, high} - {None} - set(x):
        raise NotRun(f"a run at {min(lost):g}")
    return x.loc[:, low:high]


def means(x):
    """Improvements along an axis in words."""
    return ", ".join(f"{s.mean():.1f}% at {k:g}" for k, s in x.items())


@testing
def helps(v, metric, axis):
    """Over the values of an axis EquFL improves on FedAvg on average."""
    x = swept(v, metric, "EquFL", axis)
    return positive(percent(metric), x.mean(axis=1), f"{means(x)}; on average")


def ahead(metric, axis, rivals):
    """Over the values of an axis EquFL improves more than each rival on average."""

    def over(v, r):
        x, y = common(*(swept(v, metric, m, axis).mean(axis=1) for m in ("EquFL", r)))
        said = f"on average EquFL improves {metric} by {x.mean():.1f}%"
        return positive(percent(metric), x - y, f"{said}, {r} by {y.mean():.1f}%")

    return lambda v: strongest(v, {r: testing(over)(r) for r in rivals})


@testing
def stable(v, metric, axis, low=None, high=None):
    """Along an axis, or from `low` to `high`, the improvement moves, by its slope, by
    less than HALF of its mean, or by less than STEADY points.
    """
    x = swept(v, metric, "EquFL", axis, low, high)
    margin = max(STEADY, HALF * x.to_numpy().mean())
    return equal(percent(metric), slopes(x), f"{means(x)}; by the slope", margin)


@testing
def wilder(v, metric, axis, noise):
    """At the same value of an axis the improvement by noise varies more from run to run
    than that by EquFL: the logarithm of the ratio of their distances from the mean of
    all seeds, root mean square along the axis, of TENTH at least.

    A seed has one noise along the whole axis; in a curve of a few runs it is the draw
    of the noise that fluctuates.
    """

    def spread(x):
        return ((x - x.mean()) ** 2).mean(axis=1).pow(0.5).clip(lower=TENTH)

    x, y = common(*(spread(swept(v, metric, m, axis)) for m in (noise, "EquFL")))
    log = np.log(x / y)
    said = f"{noise} varies {np.exp(log.mean()):.3g} times as much as EquFL, "
    said += "logarithm"
    return positive("log_ratio", log, said, words=("above 0", "below 0"))


@testing
def grows(v, metric, axis, low=None, high=None, share=0.0):
    """Along an axis, or from `low` to `high`, the improvement grows, by its slope, by
    more than `share` of its mean.
    """
    x = swept(v, metric, "EquFL", axis, low, high)
    against = f", against {share:g} of the mean" if share else ""
    said = f"{means(x)}; by the slope{against}"
    d, margin = slopes(x) - share * x.mean(axis=1), 0.0 if share else None
    return positive(percent(metric), d, said, margin, ("more", "less"))


@testing
def linear(v, metric, axis):
    """The improvement's correlation with the axis is above LINEAR."""
    x = swept(v, metric, "EquFL", axis)
    r = x.T.corrwith(pd.Series(x.columns, x.columns)).dropna()
    if not len(r):
        raise NotTestable(f"the improvement of {metric} is the same at every {axis}")
    said = f"{means(x)}; correlation {r.mean():.2f} against {LINEAR:g}"
    return positive("linearity", r - LINEAR, said, 0.0, ("above", "below"))


# ------------------------------------------------ the paper against its own tables
BIAS = r"Table (II|IV|V|VI|VII|VIII|IX|X|XII)(\(.\))?$"
GROUPED = r"Table (II|V)\(.\)$", ["artefact", "metric"]
PERFECT = 0.185  # DP of a perfect classifier: 5 of 10 digits, unlike for odd and even
NEAR = 0.02  # to that, our bound
POINT = 0.01  # of accuracy, our bound for "high"


def cells(reported, artefacts, **where):
    """Numbers that the paper prints: rows of reported.csv with columns `value` and
    `percent`; artefacts: a pattern.
    """
    r = printed("equfl", reported, **where)
    r = r[(r.reported != "") & r.artefact.str.match(artefacts)]
    percents = pd.to_numeric(r.improvement_pct)
    return r.assign(value=r.reported.astype(float), percent=percents)


def table(reported, artefacts, index, columns, **where):
    """The same as a table of values."""
    r = cells(reported, artefacts, **where)
    return r.pivot(index=index, columns=columns, values="value")


def each(rows, good, said):
    """A sentence about every row of a table, which must be good."""
    names = [at if isinstance(at, str) else " ".join(at) for at in rows.index]
    return held({n: (good(r), said(r)) for n, (_, r) in zip(names, rows.iterrows())})


def cal_below_eo(reported):
    """One model's CAL is at most its gap of true positives, and that at most its EO;
    of EquFL Table VI alone has one model in all columns.
    """
    at = ["artefact", "method", "setting"]
    x = table(reported, r"Table (II|V|VI)(\(.\))?$", at, "metric").droplevel("setting")
    x = x[[a == "Table VI" or m != "EquFL" for a, m in x.index]]
    return each(x, lambda r: r.CAL <= r.EO, lambda r: f"{r.CAL:g} and {r.EO:g}")


def by_method(reported, artefacts, index, good, said=None):
    """A sentence about EquFL beside FedAvg, or beside all methods."""
    x = table(reported, artefacts, index, "method")
    return each(x, good, said or (lambda r: f"{r.EquFL:g} against {r.FedAvg:g}"))


def lowest_printed(reported):
    said = lambda r: f"{r.EquFL:g} against {r.min():g} of {r.idxmin()}"
    best = lambda r: r.idxmin() == "EquFL"
    return by_method(reported, *GROUPED, best, said)


def below_printed(reported):
    return by_method(reported, *GROUPED, lambda r: r.EquFL < r.FedAvg)


def accuracy_printed(reported):
    kept = lambda r: round(r.FedAvg - r.EquFL, 4) <= POINT
    return by_method(reported, r"Table III\(", ["dataset", "setting"], kept)


def percentages(reported):
    """The printed improvements are those of the printed scores."""
    out = {}
    for (a, m), g in cells(reported, BIAS).groupby(["artefact", "metric"], sort=False):
        b = g[g.method.isin(["FedAvg", *RULES])].value.iloc[0]
        for r in g[g.percent.notna()].itertuples():
            found = 100 * (b - r.value) / b
            good = abs(found - r.percent) <= 0.1 + 0.005 * (1 + r.value / b) / b
            said = f"{r.percent:g}% printed, {found:.1f}% from the scores"
            out[f"{a} {r.method} {m}"] = good, said
    return held(out)


def text_of_race(reported):
    """The percentages of section V-C are those of Table II(d)."""
    text = printed("equfl", reported, artefact="text V-C", dataset="Income-Race")
    text = text.set_index("metric").improvement_pct.astype(float)
    other = cells(reported, r"Table II\(d\)", method="EquFL").set_index("metric")
    x = text.to_frame("a").join(other.percent.rename("b"))
    return each(x, lambda r: r.a == r.b, lambda r: f"{r.a:g}% and {r.b:g}%")


def at_most_one(reported):
    x = cells(reported, BIAS).set_index(["artefact", "method", "metric"])
    return each(x, lambda r: r.value <= 1, lambda r: f"{r.value:g}")


def near_perfect(reported):
    x = cells(reported, r"Table (II\(e\)|V\(.\))$", metric="DP")
    x = x.set_index(["artefact", "method"])
    return each(x, lambda r: abs(r.value - PERFECT) <= NEAR, lambda r: f"{r.value:g}")


def four_accuracies(reported):
    x = table(reported, r"Table III\(", "dataset", "setting", method="EquFL")
    return each(x, lambda r: r.nunique() > 1, lambda r: f"four times {r.iloc[0]:g}")


@testing
def repeats(reported, artefact, method, setting="", same=True):
    """A row of another table repeats EquFL's scores of Table II(a), or no score."""
    row = cells(reported, f"{artefact}$", method=method)
    row = row[row.setting.str.startswith(setting)].set_index("metric").value
    mine = cells(reported, r"Table II\(a\)", method="EquFL").set_index("metric")
    x = row.to_frame("a").join(mine.value.rename("b"))
    good = lambda r: (r.a == r.b) == same
    return each(x, good, lambda r: f"{r.a:g} and {r.b:g}")


def rising_printed(reported):
    x = table(reported, r"Table XII$", "metric", "setting", method="EquFL")
    x = x[["sigma=0", "sigma#1", "sigma#2", "sigma#3"]]
    said = lambda r: " ".join(f"{v:g}" for v in r)
    return each(x, lambda r: r.is_monotonic_increasing, said)


def sums(reported):
    x = table(reported, r"Table XI$", "dataset", "metric")
    x["both"] = (x.global_models_MB + x.synthetic_dataset_MB).round(6)
    said = lambda r: f"{r.both:g} and {r.total_MB:g}"
    return each(x, lambda r: r.both == r.total_MB, said)
