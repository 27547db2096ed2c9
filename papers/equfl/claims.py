"""Tests of EquFL's claims that the shared ones do not cover; claims.yaml says of which
sentences.

The paper reports one number per run and not its round; its claims are judged by the
mean of the last rounds. A column of its tables is a run of its own, trained to lower
that metric: so it is here. Some sentences are held against the paper's own tables
alone: they see reported.csv in place of runs.
"""

from __future__ import annotations

import itertools

import pandas as pd

from fedlib.measures import bias
from repro import papers
from repro.claims import (
    NotRun,
    NotTestable,
    better,
    common,
    counted,
    equal,
    even,
    every,
    exactly,
    held,
    joined,
    name,
    one_of,
    positive,
    rising,
    seen,
    some,
    strongest,
    throughout,
)
from repro.ledger import key, reported_by

SCORES = ("EO", "DP", "CAL", "CON")
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
STEADY = 10.0  # a "stable" sweep stays as near to its mean
STEP = 5.0  # a "sharp" gain is larger, a "plateau" and a step back are smaller
MINOR = 20.0  # a "minor" improvement is smaller
LINEAR = 0.9  # least correlation that is called "near-linear"
ROUNDING = 0.01  # megabytes are printed with two digits

CALLED = papers.module("equfl", "targets").PRINTED
REPORTED = reported_by("equfl").set_index("key")


def number(artefact, place, method, metric, setting="", column="reported"):
    """A number of reported.csv; column: or the percent printed beside it."""
    row = REPORTED.loc[key("equfl", artefact, place, method, metric, setting)]
    return float(row[column])


def aimed(metric, study="", *more):
    """EquFL trained for a metric, as keywords of Values.get."""
    return {
        "method": "EquFL",
        "setting": ";".join((f"target={metric}", *more)),
        "study": study,
    }


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


def adds_less(metric, place, a, b, most):
    """Run a has a score that is less than `most` above that of run b."""
    return better(metric, place, a, b, -most)


def everywhere(rivals):
    """EquFL is lower than all rivals, for every score on every data set."""
    return throughout(
        {f"{m} {p}": lowest(m, p, aimed(m), rivals) for p in PLACES for m in SCORES}
    )


def all_lowered(place, a):
    """Run a has all four scores below FedAvg's."""
    whole = throughout({m: better(m, place, a, "FedAvg") for m in SCORES})

    def test(v):
        f = whole(v)
        return f._replace(evidence=f"lower than FedAvg's: {f.evidence}")

    return test


def conflict(place):
    """EquFL, aimed at one score, raises another one."""
    tests = {
        f"{m} by {aim}": better(m, place, "FedAvg", aimed(aim))
        for aim, m in itertools.permutations(SCORES, 2)
    }

    def test(v):
        found = {k: seen(raised, v) for k, raised in tests.items()}
        raised = [k for k, f in found.items() if f.holds == "yes"]
        told = counted(found) + f"; raised: {', '.join(raised)}" * bool(raised)
        return one_of(found)._replace(evidence=told)

    return test


def accurate(place, rival, least=0.0, targets=SCORES, study=""):
    """Whatever its target, EquFL is more accurate than a rival, by `least`."""
    other = {"method": rival, "study": study}
    return throughout(
        {m: better("accuracy", place, aimed(m, study), other, least) for m in targets}
    )


def as_accurate(place, artefact):
    """EquFL loses no more accuracy than the paper prints, whatever its target."""

    def printed(method, m):
        return number(artefact, place, method, "accuracy", f"target={m}")

    gain = {m: printed("EquFL", m) - printed("FedAvg", m) for m in SCORES}
    tests = {
        m: better("accuracy", place, aimed(m), "FedAvg", round(gain[m], 4))
        for m in SCORES
    }
    return at_hand(place, throughout(tests), "the printed loss")


def at_hand(place, test, what):
    """A test of printed digits, which needs the paper's own data."""

    def own(v):
        if "stand-in" in v.kind(place):
            raise NotTestable(f"{what} is about data that are not here")
        return test(v)

    return own


# ---------------------------------------------------------------- improvements
def percent(metric):
    return f"{metric}_improvement_pct"


def improvement(v, metric, place, a, **of):
    """By how many percent run a lies below FedAvg, seed by seed [S].

    Raises NotTestable where FedAvg has no bias.
    """
    x, b = common(
        v.get(metric, dataset=place, **a), v.get(metric, "FedAvg", place, **of)
    )
    out = pd.Series(bias.improvement(b, x), b.index).dropna()
    if not len(out):
        raise NotTestable(f"{place}: FedAvg has no {metric} that could be lowered")
    return out


def as_printed(metric, place, artefact):
    """EquFL improves on FedAvg by the printed percentage, or more."""
    share = number(artefact, place, "EquFL", metric, column="improvement_pct")

    def test(v):
        x = improvement(v, metric, place, aimed(metric)) - share
        said = f"improvement of {metric} against the printed {share:g}%"
        return positive(percent(metric), x, said, 0.0, ("more", "less"))

    return at_hand(place, test, f"the printed {share:g}%")


def same_improvement(metric, place, a, b):
    """The improvements of runs a and b differ by less than STEADY points."""

    def test(v):
        x, y = common(*(improvement(v, metric, place, run) for run in (a, b)))
        said = f"{name(a)} improves {metric} by {x.mean():.1f}%, "
        said += f"{name(b)} by {y.mean():.1f}%"
        return equal(percent(metric), x - y, said, STEADY)

    return test


def minor(metric, place, regular):
    """A regulariser lowers a score by less than MINOR percent."""

    def test(v):
        x = improvement(v, metric, place, regular)
        said = (
            f"{name(regular)} improves {metric} by {x.mean():.1f}% against {MINOR:g}%"
        )
        return positive(percent(metric), MINOR - x, said, 0.0, ("less", "more"))

    return answering(place, regular, test)


def beats_regular(metric, place, a, regular):
    test = lowered(metric, place, a, regular, ("EquFL", "Regular"))
    return answering(place, regular, test)


def answering(place, a, test):
    """A test of run a, which says nothing where a gives all rows one answer."""

    def both_answers(v):
        if v.get("positive_rate", dataset=place, **a).isin([0, 1]).all():
            raise NotTestable(f"{name(a)} gives all rows one answer, without bias")
        return test(v)

    return both_answers


def collapses(place, least):
    """A regulariser costs more accuracy than `least`, for some target."""
    runs = [aimed(m, "switches") | {"method": "Regular"} for m in SCORES]
    return some(*(better("accuracy", place, "FedAvg", r, least) for r in runs))


# ---------------------------------------------------------------- noise and storage
def private(metric, place, same):
    """Under every noise EquFL is below FedAvg without noise, or with the same."""

    def rival(how):
        at = {"setting": how, "study": "private"} if same else {}
        return {"method": "FedAvg", **at}

    settings = [f"sigma={s}" for s in SIGMAS]
    return throughout(
        {
            s: better(metric, place, aimed(metric, "private", s), rival(s))
            for s in settings
        }
    )


def noisier(metric, place, method, setting=""):
    """The larger the noise at the clients, the larger the metric."""

    def along(v):
        out = {0.0: v.get(metric, method, place, setting)}
        for s in SIGMAS:
            how = ";".join(filter(None, (setting, f"sigma={s}")))
            out[float(s)] = v.get(metric, method, place, how, "private")
        return out

    return rising(metric, along)


def stored(place):
    """Models and synthetic rows take the printed megabytes."""
    of = {"method": "EquFL", "dataset": place, "setting": "server storage"}
    said = {
        m: number("Table XI", place, "EquFL", m, of["setting"])
        for m in ("global_models_MB", "synthetic_dataset_MB")
    }
    return every(
        *(exactly(m, x, ROUNDING * x, study="storage", **of) for m, x in said.items())
    )


# ---------------------------------------------------------------- along an axis
def swept(v, metric, method, axis):
    """{value of an axis: improvement over FedAvg in percent [S]}, in order, the value
    of the main study among them. Raises NotRun for fewer than two.
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
    out = {}
    for k, run in sorted(found.items()):
        of = {} if default is not None else {"setting": f"C={k:g}", "study": study}
        run = {"method": method, **run}
        out[k] = improvement(v, metric, place, run, **of)
    if len(out) < 2:
        raise NotRun(f"{study} {place} {method} {metric} at two values of {axis}")
    return out


def means(x):
    """Improvements along an axis in words, each over its seeds with a FedAvg."""
    return ", ".join(f"{s.mean():.1f}% at {k:g}" for k, s in x.items())


def helps(metric, axis):
    """At every value of an axis EquFL improves on FedAvg."""

    def test(v):
        x = swept(v, metric, "EquFL", axis)
        found = {f"{k:g}": positive(percent(metric), s, "") for k, s in x.items()}
        return joined(found, f"{means(x)}; lowered: {counted(found)}")

    return test


def ahead(metric, axis, rivals):
    """At every value of an axis EquFL improves more than each rival."""

    def over(r, k):
        def test(v):
            x, y = (swept(v, metric, m, axis) for m in ("EquFL", r))
            if k not in y:
                raise NotRun(f"{r} at {axis} = {k:g}")
            mine, theirs = common(x[k], y[k])
            return positive(percent(metric), mine - theirs, "")

        return test

    def test(v):
        at = swept(v, metric, "EquFL", axis)
        return throughout({f"{r} {k:g}": over(r, k) for r in rivals for k in at})(v)

    return test


def stable(metric, axis):
    """Along an axis the improvement stays within STEADY points of its mean."""
    return even(percent(metric), lambda v: swept(v, metric, "EquFL", axis), STEADY)


def wilder(metric, axis, noise):
    """Along an axis the improvement by noise spans more points than that by EquFL."""

    def test(v):
        frames = (pd.DataFrame(swept(v, metric, m, axis)) for m in (noise, "EquFL"))
        spans = (x.dropna().max(axis=1) - x.dropna().min(axis=1) for x in frames)
        x, y = common(*spans)
        said = f"{noise} spans {x.mean():.1f} points, EquFL {y.mean():.1f}"
        return positive(percent(metric), x - y, said, words=("more", "less"))

    return test


def ends(x, low, high):
    """Improvements at two values of an axis, over common seeds, and both in words."""
    if lost := {low, high} - set(x):
        raise NotRun(f"a run at {min(lost):g}")
    a, b = common(x[low], x[high])
    return a, b, f"{a.mean():.1f}% at {low:g}, {b.mean():.1f}% at {high:g}"


def larger_at(metric, axis, low, high):
    """The improvement is larger at one value of an axis than at another."""

    def test(v):
        x, y, said = ends(swept(v, metric, "EquFL", axis), low, high)
        return positive(percent(metric), y - x, said, words=("more", "less"))

    return test


def sharp(metric, axis, low, high):
    """From one value of an axis to another the improvement grows by STEP points."""

    def test(v):
        x, y, said = ends(swept(v, metric, "EquFL", axis), low, high)
        said += f", against a gain of {STEP:g} points"
        return positive(percent(metric), y - x - STEP, said, 0.0, ("more", "less"))

    return test


def plateau(metric, axis, low, high):
    """From one value of an axis to another the improvement moves by less than STEP."""

    def test(v):
        x, y, said = ends(swept(v, metric, "EquFL", axis), low, high)
        return equal(percent(metric), y - x, said, STEP)

    return test


def grows(metric, axis, method="EquFL"):
    """Along an axis the improvement grows, with no step back by STEP points."""

    def test(v):
        x = swept(v, metric, method, axis)
        whole = rising(percent(metric), lambda _: x, ("grows", "shrinks"))(v)
        found = {"as a whole": whole}
        for at in itertools.pairwise(x):
            a, b, said = ends(x, *at)
            step = positive(percent(metric), b - a + STEP, said)
            found["from {:g} to {:g}".format(*at)] = step
        told = f"{means(x)}; steady growth: {counted(found)}; {whole.evidence}"
        return joined(found, told)

    return test


def linear(metric, axis):
    """The improvement's correlation with the axis is above LINEAR."""

    def test(v):
        x = pd.DataFrame(swept(v, metric, "EquFL", axis)).dropna()
        r = x.T.corrwith(pd.Series(x.columns, x.columns)).dropna()
        if not len(r):
            raise NotTestable(
                f"the improvement of {metric} is the same at every {axis}"
            )
        said = f"correlation {r.mean():.2f} against {LINEAR:g}"
        return positive("linearity", r - LINEAR, said, 0.0, ("above", "below"))

    return test


# ------------------------------------------------ the paper against its own tables
BIAS = r"Table (II|IV|V|VI|VII|VIII|IX|X|XII)(\(.\))?$"
GROUPED = r"Table (II|V)\(.\)$"
PERFECT = 0.185  # DP of a perfect classifier: 5 of 10 digits, unlike for odd and even
NEAR = 0.02  # to that, our bound
POINT = 0.01  # of accuracy, our bound for "high"


def cells(reported, artefacts, **where):
    """Numbers that the paper prints: rows of reported.csv with columns `value` and
    `percent`.
    """
    r = reported[(reported.paper == "equfl") & (reported.reported != "")]
    r = r[r.artefact.str.match(artefacts)]
    for column, value in where.items():
        r = r[r[column] == value]
    percents = pd.to_numeric(r.improvement_pct)
    return r.assign(value=r.reported.astype(float), percent=percents)


def table(reported, artefacts, index, columns, **where):
    """The same as a table of values."""
    return cells(reported, artefacts, **where).pivot(
        index=index, columns=columns, values="value"
    )


def each_row(x, good, said):
    """A sentence about every row of a table, which must be good."""
    names = [at if isinstance(at, str) else " ".join(at) for at in x.index]
    return held({n: (good(r), said(r)) for n, (_, r) in zip(names, x.iterrows())})


def cal_below_eo(reported):
    """One model's CAL is at most its gap of true positives, and that at most its EO;
    of EquFL Table VI alone has one model in all columns.
    """
    at = ["artefact", "method", "setting"]
    x = table(reported, r"Table (II|V|VI)(\(.\))?$", at, "metric").droplevel("setting")
    one_model = [a == "Table VI" or m != "EquFL" for a, m in x.index]
    return each_row(
        x[one_model], lambda r: r.CAL <= r.EO, lambda r: f"{r.CAL:g} and {r.EO:g}"
    )


def lowest_printed(reported):
    x = table(reported, GROUPED, ["artefact", "metric"], "method")
    said = lambda r: f"{r.EquFL:g} against {r.min():g} of {r.idxmin()}"
    return each_row(x, lambda r: r.idxmin() == "EquFL", said)


def below_printed(reported):
    x = table(reported, GROUPED, ["artefact", "metric"], "method")
    return each_row(x, lambda r: r.EquFL < r.FedAvg, beside_fedavg)


def accuracy_printed(reported):
    x = table(reported, r"Table III\(", ["dataset", "setting"], "method")
    kept = lambda r: round(r.FedAvg - r.EquFL, 4) <= POINT
    return each_row(x, kept, beside_fedavg)


def beside_fedavg(row):
    return f"{row.EquFL:g} against {row.FedAvg:g}"


def percentages(reported):
    """The printed improvements are those of the printed scores, as far as their digits
    go.
    """
    out = {}
    for (a, m), g in cells(reported, BIAS).groupby(["artefact", "metric"], sort=False):
        b = g[g.method.isin(["FedAvg", *RULES])].value.iloc[0]
        for r in g[g.percent.notna()].itertuples():
            found = float(bias.improvement(b, r.value))
            digits = 0.1 + 0.005 * (1 + r.value / b) / b
            out[f"{a} {r.method} {m}"] = (
                abs(found - r.percent) <= digits,
                f"{r.percent:g}% printed, {found:.1f}% from the scores",
            )
    return held(out)


def text_of_race(reported):
    """The percentages of section V-C are those of Table II(d)."""
    text = reported[(reported.paper == "equfl") & (reported.artefact == "text V-C")]
    text = text[text.dataset == "Income-Race"].set_index("metric").improvement_pct
    other = cells(reported, r"Table II\(d\)", method="EquFL").set_index("metric")
    return held(
        {
            m: (s == other.percent[m], f"{s:g}% and {other.percent[m]:g}%")
            for m, s in text.astype(float).items()
        }
    )


def at_most_one(reported):
    return held(
        {
            f"{r.artefact} {r.method} {r.metric}": (r.value <= 1, f"{r.value:g}")
            for r in cells(reported, BIAS).itertuples()
        }
    )


def near_perfect(reported):
    x = cells(reported, r"Table (II\(e\)|V\(.\))$", metric="DP")
    return held(
        {
            f"{r.artefact} {r.method}": (abs(r.value - PERFECT) <= NEAR, f"{r.value:g}")
            for r in x.itertuples()
        }
    )


def four_accuracies(reported):
    x = cells(reported, r"Table III\(", method="EquFL")
    return held(
        {
            p: (g.value.nunique() > 1, f"four times {g.value.iloc[0]:g}")
            for p, g in x.groupby("dataset", sort=False)
        }
    )


def repeats(artefact, method, setting=""):
    """A row of another table repeats EquFL's scores of Table II(a)."""
    return both_rows(artefact, method, setting, lambda x, y: x == y)


def departs(artefact, method, setting=""):
    """In each score it does not."""
    return both_rows(artefact, method, setting, lambda x, y: x != y)


def both_rows(artefact, method, setting, good):
    def test(reported):
        row = cells(reported, f"{artefact}$", method=method)
        row = row[row.setting.str.startswith(setting)].set_index("metric").value
        mine = cells(reported, r"Table II\(a\)", method="EquFL")
        said = mine.set_index("metric").value
        return held(
            {m: (good(x, said[m]), f"{x:g} and {said[m]:g}") for m, x in row.items()}
        )

    return test


def rising_printed(reported):
    x = table(reported, r"Table XII$", "metric", "setting", method="EquFL")
    x = x[["sigma=0", "sigma#1", "sigma#2", "sigma#3"]]
    said = lambda r: " ".join(f"{v:g}" for v in r)
    return each_row(x, lambda r: r.is_monotonic_increasing, said)


def sums(reported):
    x = table(reported, r"Table XI$", "dataset", "metric")
    x["sum"] = (x.global_models_MB + x.synthetic_dataset_MB).round(6)
    said = lambda r: f"{r['sum']:g} and {r.total_MB:g}"
    return each_row(x, lambda r: r["sum"] == r.total_MB, said)
