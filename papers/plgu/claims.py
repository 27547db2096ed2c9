"""The tests of PLGU's claims that follow no pattern; claims.yaml names them."""

import functools

import numpy as np

from fedlib.measures.verdicts import LEAST
from repro.claims import (
    NotRun,
    NotTestable,
    best,
    better,
    common,
    every,
    held,
    inner,
    level,
    positive,
    printed,
    say,
    some,
    strongest,
    sure,
    testing,
    throughout,
)
from repro.metrics import METRICS

MEAN, LOW, TOP = "acc_mean_pct", "acc_lowest5_pct", "acc_top5_pct"
LF, GREP, GHN = PLGU = ("PLGU-LF", "PLGU-GRep", "PLGU-GHN")
OWN = "personalised model"


# ---------------------------------------------------------------- Tables 1 and 2
def settings(cohorts):
    """{place: cohorts} -> {name: (place, C)}."""
    each = [(place, C) for place, some_C in cohorts.items() for C in some_C]
    return {f"{place} C = {C}": (place, C) for place, C in each}


def everywhere(metric, cohorts, methods, view, rivals, least=0.0):
    """In all settings each method is better than every rival, as for `best`."""
    return throughout(
        {
            f"{m} {at}": best(metric, place, rivals, m, least, setting=f"{view};C={C}")
            for at, (place, C) in settings(cohorts).items()
            for m in methods
        }
    )


def one_everywhere(metric, cohorts, methods, view, rivals):
    """In each setting one of the methods is better than every rival."""
    one = functools.partial(best_of_two, metric, methods=methods, rivals=rivals)
    each = settings(cohorts).items()
    return throughout({at: one(p, setting=f"{view};C={C}") for at, (p, C) in each})


def best_of_two(metric, place, methods, rivals, setting):
    """One of the methods is better than every rival."""
    of = {"metric": metric, "place": place, "rivals": rivals, "setting": setting}
    return some(*(best(**of, method=m) for m in methods))


def ahead(metric, place, run, rivals, setting):
    """A run is better than every rival at another setting."""
    others = {r: {"method": r, "setting": setting} for r in rivals}
    return over(metric, place, run, others, "rivals")


def over(metric, place, run, others, what="other values"):
    """A run is better than each of several others, {name: run}."""
    tests = {at: better(metric, place, run, b) for at, b in others.items()}
    return lambda v: strongest(v, tests, what)


@testing
def same_run(v, place, a, b):
    """Two runs agree in every number of every seed, bit for bit."""
    x, y = common(*(v.get(MEAN, dataset=place, **run) for run in (a, b)))
    if len(x) < LEAST:
        raise NotTestable(f"{len(x)} seeds, and fewer than {LEAST} never decide")
    return sure(
        v.same(place, a, b),
        f"the same {METRICS[MEAN].what} in {(x == y).sum()} of {len(x)} seeds",
    )


# ---------------------------------------------------------------- printed numbers
def number(artefact, metric, methods=(LF,)):
    """The number that the paper prints of the methods, together."""
    of = {"artefact": artefact, "metric": metric, "method": ", ".join(methods)}
    return float(printed("plgu", **of).reported.item())


def at_least_printed(artefact, metric, place, methods, setting):
    """The mean of each method is at least the printed number."""
    least = number(artefact, metric, methods)
    return every(*(level(metric, place, m, least, setting=setting) for m in methods))


@testing
def gains_as_printed(v, gain, cohorts, **of):
    """PLGU-LF is always ahead by the `gain` of Section 6.2, not on a stand-in."""
    least = number("Section 6.2 text", gain)
    found = everywhere(cohorts=cohorts, least=least, **of)(v)
    if any("stand-in" in v.kind(place) for place in cohorts):
        raise NotTestable("the number is about data that are not here")
    return found


# ---------------------------------------------------------------- sweeps
def best_at(metric, place, run, axis, value, others):
    """A run is better at one value of an axis than at others."""
    at = functools.partial(changed, run, axis)
    return over(metric, place, at(value), {f"{axis}={k:g}": at(k) for k in others})


def changed(run, axis, value):
    """A run at a value of an axis."""
    return run | {"setting": f"{run['setting']};{axis}={value:g}"}


def along(v, metric, place, run, axis):
    """{value: run} of the values of an axis that a study sweeps, in order. Raises
    NotRun for fewer than two.
    """
    study, method, view = run["study"], run["method"], run["setting"]
    found = set()
    for how, _ in v.runs.get((study, place, method, metric), {}):
        parts = dict(p.partition("=")[::2] for p in how.split(";"))
        found |= {float(parts[axis])} if view in parts and axis in parts else set()
    if len(found) < 2:
        run = f"{study} {place} {method} {view} {metric}"
        raise NotRun(f"{run} at two values of {axis}")
    return {k: changed(run, axis, k) for k in sorted(found)}


def inside(metric, place, run, axis):
    """Some value between the ends of an axis is better than both."""

    def curve(v):
        runs = along(v, metric, place, run, axis)
        return {k: v.get(metric, dataset=place, **r) for k, r in runs.items()}

    return inner(metric, curve)


def layers(v, place, view, study):
    """{number of personal layers: run} of a sweep; and the number that PLGU-LF takes
    for itself: the paper's best one, or a quarter of all if that is fewer. Raises
    NotRun.
    """
    run = {"method": LF, "setting": view, "study": study}
    runs = along(v, MEAN, place, run, "D")
    D = min(number("Figure 5 text", "best_D"), max(1, max(runs) // 4))
    if D not in runs:
        raise NotRun(f"{LF} at D={D:g}")
    return runs, D


@testing
def default_best(v, place, view, study, ends=False):
    """The default number of layers is better than all others, or than both ends."""
    runs, D = layers(v, place, view, study)
    others = (min(runs), max(runs)) if ends else runs
    rest = {f"D={k:g}": runs[k] for k in others if k != D}
    return over(MEAN, place, runs[D], rest)(v)


@testing
def others_kept(v, place, view, study, least):
    """At no number between the ends PLGU-LF loses more than -least."""
    runs, D = layers(v, place, view, study)
    between = sorted(set(runs) - {min(runs), max(runs), D})
    if not between:
        raise NotRun(f"{study} {place} {LF} {view} between the ends of D")
    kept = lambda k: better(MEAN, place, runs[k], runs[D], least)
    return strongest(v, {f"D={k:g}": kept(k) for k in between}, "other values")


# ---------------------------------------------------------------- flatness
@testing
def flatter(v, metrics, place, a, b):
    """Run a is flatter than run b by every metric; the evidence names the training
    losses, without which sharpness says little.
    """
    tests = {m: better(m, place, a, b) for m in metrics}
    f = (throughout(tests) if len(tests) > 1 else tests[metrics[0]])(v)
    x, y = common(*(v.get("train_loss", dataset=place, **r) for r in (a, b)))
    losses = " and ".join(say("train_loss", z.mean()) for z in (x, y))
    return f._replace(evidence=f"{f.evidence}; at training losses of {losses}")


@testing
def at_like_loss(v, metric, place, method, setting, sharper=False):
    """A method is flatter, or `sharper`, than the one that its setting names, where
    both have the same training loss; metric: the logarithm of a ratio.
    """
    view = setting.partition(";")[0]
    words = ("flatter", "sharper")[:: -1 if sharper else 1]
    ran = v.get("train_loss", method, place, f"{view};age=whole", "flatness")
    try:
        x = v.get(metric, method, place, setting, "flatness")
    except NotRun:
        x = ran.iloc[:0]
    if len(x) < LEAST <= len(ran):
        raise NotTestable(f"the losses meet for {len(x)} of {len(ran)} seeds")
    if not len(x):
        raise NotRun(f"flatness {place} {method} {setting} {metric}")
    said = f"{np.exp(x.mean()):.3g} times as sharp, logarithm"
    return positive(metric, x if sharper else -x, said, words=words)


# ---------------------------------------------------------------- the paper's tables
def cells(reported, artefact, *metrics, **where):
    """Printed numbers of some artefacts, {(dataset, setting, method, metric): number};
    where: values of columns.
    """
    rows = printed("plgu", reported, artefact=artefact, metric=metrics, **where)
    by = ["dataset", "setting", "method", "metric"]
    return rows.set_index(by).reported.astype(float).to_dict()


@testing
def printed_above(reported, artefact, metric, methods, rivals, least=0.01, gain=""):
    """In every setting of a table the printed numbers of methods are above those of all
    rivals by `least` or more, a digit; or by a gain of Section 6.2.
    """
    least = number("Section 6.2 text", gain) if gain else least
    x, out = cells(reported, artefact, metric), {}
    for place, setting, m, _ in x:
        if m in methods:
            other = {r: x[place, setting, r, metric] for r in rivals}
            top, mine = max(other, key=other.get), x[place, setting, m, metric]
            said = f"{mine:.2f} against {other[top]:.2f} of {top}"
            good = round(mine - other[top], 2) >= least
            out[f"{m} {place} {setting.split('; ')[1]}"] = good, said
    return held(out)


@testing
def highest_printed(reported, artefact, metric, axis, value):
    """The printed number is highest at one value of an axis, method by method."""
    rows, out = {}, {}
    for (_, setting, m, _), x in cells(reported, artefact, metric).items():
        view, *rest = setting.split("; ")
        at = float(dict(p.split("=") for p in rest)[axis])
        rows.setdefault(f"{m} {view}", {})[at] = x
    for who, x in rows.items():
        top = max(x, key=x.get)
        said = f"{x[value]:.2f} at {value:g}, {x[top]:.2f} at {top:g}"
        out[who] = top == value, said
    return held(out)


def between(reported):
    """The lowest 5% are below and the top 5% above the mean, in each cell."""
    out = {}
    for artefact in ("Table 1", "Table 2", "Table 3", "Table 4"):
        x = cells(reported, artefact, LOW, MEAN, TOP)
        for p, s, m in dict.fromkeys(at[:3] for at in x):
            low, mean, top = (x[p, s, m, k] for k in (LOW, MEAN, TOP))
            said = f"{low:.2f}, {mean:.2f}, {top:.2f}"
            out[f"{artefact} {p} {m} {s}"] = low < mean < top, said
    return held(out)


def everybody(reported):
    """Every client above the number of Figure 6 leaves no lowest 5% below it."""
    (least,) = cells(reported, "Figure 6 text", "acc_min_over_clients_pct").values()
    low, out = cells(reported, "Table 2", LOW, dataset="CIFAR10", method=PLGU), {}
    for (_, setting, m, _), x in low.items():
        at = f"{m} {setting.split('; ')[1]}"
        out[at] = x >= least, f"the lowest 5% have {x:.2f}"
    return held(out)


def same(pairs):
    """Printed numbers that should be one: {case: (a, b)} -> Finding."""
    return held({k: (a == b, f"{a:.2f} and {b:.2f}") for k, (a, b) in pairs.items()})


def repeated(reported):
    """The cells of Tables 3 and 4 at the defaults, against Tables 1 and 2."""
    scores, end, out = (LOW, MEAN, TOP), "; K=5; rho=0.05", {}
    main = cells(reported, ("Table 1", "Table 2"), *scores)
    for artefact in ("Table 3", "Table 4"):
        for (p, s, m, k), x in cells(reported, artefact, *scores).items():
            if s.endswith(end):
                view = s.removesuffix(end)
                out[f"{artefact} {m} {view} {k}"] = x, main[p, view, m, k]
    return same(out)


def quoted(reported):
    """What section 6.2 quotes of PLGU-GRep, against Table 2."""
    text = cells(reported, "Section 6.2 text", LOW, MEAN, TOP, method=GREP)
    table = cells(reported, "Table 2", LOW, MEAN, TOP)
    return same({at[-1]: (x, table[at]) for at, x in text.items()})


def toy_example(reported):
    """The means of Figure 1, against Table 2."""
    view = "personalised model; C=10"
    table = cells(reported, "Table 2", MEAN, setting=view)
    text = cells(reported, "Figure 1 text", MEAN)
    return same({m: (x, table[p, view, m, k]) for (p, _, m, k), x in text.items()})
