"""What claims are tested with; used by the declarations (claims.yaml) and by the claims
of papers (papers/<paper>/claims.py).

Each function builds a test: a function that sees the Values of a paper at one tier and
returns a Finding. The most used: `better` (one run than another), `best` (one method
than all rivals), `throughout` (in all of several cases), `near` and `level`.
"""

import functools

import numpy as np
import pandas as pd

from fedlib.measures.statistics import average_ranks
from repro.claims.findings import (
    REACHED,
    Finding,
    counted,
    equal,
    joined,
    later,
    listed,
    positive,
    seen,
    sure,
    turned,
)
from repro.claims.values import (
    NotRun,
    NotTestable,
    common,
    keywords,
    say,
    sides,
    testing,
)
from repro.ledger import reported_by
from repro.metrics import METRICS


# ---------------------------------------------------------------- two runs
@testing
def better(v, metric, place, a, b, least=0.0):
    """Run a is better than run b by more than `least`, paired by seed.

    a, b: methods, or keyword arguments of Values.get. A negative `least` is a loss that
    is allowed, a positive one a gain that is claimed: both leave no room for "alike".
    """
    a, b = keywords(a), keywords(b)

    x, y, said = sides(v, metric, place, a, b)
    d, margin = METRICS[metric].sign * (x - y), METRICS[metric].margin_at(y.mean())
    if least:
        what = "a claimed gain" if least > 0 else "an allowed loss"
        said, margin = f"{said}, against {what} of {say(metric, abs(least))}", 0.0
    f = positive(metric, d - least, said, margin)
    return f._replace(gain=(metric, place, a, (b,), least))


@testing
def near(v, metric, place, a, b, margin):
    """Runs a and b differ by less than the margin, either way."""
    a, b = keywords(a), keywords(b)

    x, y, said = sides(v, metric, place, a, b)
    return equal(metric, x - y, said, margin)


# ---------------------------------------------------------------- one run
@testing
def level(
    v, metric, place, method, least=None, most=None, anywhere=False, needs="", **of
):
    """The mean of a run is at least or at most a number.

    On a stand-in a level says nothing, unless `anywhere`: of a correlation or a
    difference. needs: the data that it is about."""
    x = v.get(metric, method, place, **of)
    if not anywhere and "stand-in" in v.kind(place, of.get("study", "")):
        why = "the number is about data that are not here"
        raise NotTestable(f"needs {needs}: {why}" if needs else why)
    said = f"{method} {say(metric, x.mean())} against"
    sides = (least, 1, ("above", "below")), (most, -1, ("below", "above"))
    found = [
        positive(metric, sign * (x - end), f"{said} {end:g}", words=words)
        for end, sign, words in sides
        if end is not None
    ]
    return found[0] if len(found) == 1 else both(found)


def both(found):
    """Several findings that must all hold, one after the other in the evidence."""
    return joined(dict(enumerate(found, 1)), listed(found))


@testing
def larger(v, a, b, place, method, **of):
    """Of one run, metric a is larger than metric b, both in the same unit."""
    x, y = common(*(v.get(m, method, place, **of) for m in (a, b)))
    said = "; ".join(
        f"{METRICS[m].what}: {say(m, z.mean())}" for m, z in ((a, x), (b, y))
    )
    return positive(a, x - y, said, words=("larger", "smaller"))


@testing
def smaller(v, metric, place, method, **of):
    """A ratio is below 1; its logarithm is averaged over seeds."""
    x = v.get(metric, method, place, **of)
    if not (x > 0).all():
        span = f"from {x.min():.3g} to {x.max():.3g}"
        raise NotTestable(f"{METRICS[metric].what} {span}: no logarithm")
    log = np.log(x)
    said = f"{METRICS[metric].what}: {np.exp(log.mean()):.3g}, logarithm"
    return positive("log_ratio", -log, said, words=("below 0", "above 0"))


@testing
def exactly(v, metric, value, within=0.0, **of):
    """Every value of a run is this number: a property, not a sample."""
    x = v.get(metric, **of)
    allowed = f" within {within:g}" if within else ""
    span = f"{metric} from {x.min():.3g} to {x.max():.3g}"
    said = f"{len(x)} trial{'s' * (len(x) > 1)}, {span}, claimed {value:g}{allowed}"
    return sure((abs(x - value) <= within).all(), said)


# ---------------------------------------------------------------- against rivals
@testing
def best(v, metric, place, rivals, method, least=0.0, **of):
    """`method` is better than every rival, by more than `least` (as for `better`).

    of: further keywords of Values.get, the same for all. The evidence gives the gain
    over the rival that decides."""
    me = {"method": method, **of}

    v.get(metric, dataset=place, **me)
    runs = {r: {"method": r, **of} for r in rivals}
    tests = {r: better(metric, place, me, run, least) for r, run in runs.items()}
    gain = (metric, place, me, tuple(runs.values()), least)
    return strongest(v, tests)._replace(gain=gain)


def strongest(v, tests, what="rivals"):
    """All of several comparisons with rivals as one: {rival: test} -> Finding.

    what: the rivals, in words. Alike: nowhere worse by the margin, and ahead of some
    rival by less than it."""
    found = reached(v, tests, f"one of the rivals {', '.join(tests)}")
    spans = {r: f for r, f in found.items() if f.span is not None}
    f = joined(found, "")
    r = next((r for r in spans if spans[r].span == f.span), next(iter(spans)))
    lost = [r for r, x in found.items() if x.holds == "not run"]
    own, whole = (later(x.holds, x.needs) for x in (spans[r], f))
    said = spans[r].evidence.removesuffix(own) + f.evidence
    said += "; undecided" if lost and whole else whole
    text = f"of {len(found)} {what} {r} decides: {said}" if len(found) > 1 else said
    text += f"; not run: {', '.join(lost)}" if lost else ""
    return f._replace(evidence=text, missing=tuple(lost))


def reached(v, tests, what):
    """{name: Finding} of tests {name: test}. Raises NotTestable or NotRun, with `what`
    was needed, where none of them came to a verdict."""
    found = {name: seen(test, v) for name, test in tests.items()}
    if not any(f.holds in REACHED for f in found.values()):
        closed = [f.reason for f in found.values() if f.reason]
        raise NotTestable(closed[0]) if closed else NotRun(what)
    return found


def steadier(metric, place, rivals, method, high, low, **of):
    """From setting `high` to setting `low` the method loses less than every rival."""

    def loss(v, m):
        x, y = common(*(v.get(metric, m, place, how, **of) for how in (high, low)))
        return x - y

    def less(rival):
        def test(v):
            theirs, mine = common(loss(v, rival), loss(v, method))
            own, other = say(metric, mine.mean()), say(metric, theirs.mean())
            said = f"from {high} to {low} {method} loses {own}, {rival} {other}"
            return positive(metric, theirs - mine, said, words=("less", "more"))

        return test

    return lambda v: strongest(v, {r: less(r) for r in rivals})


@testing
def ranked(v, metric, places, methods, method):
    """`method` has the best average rank over settings, by more than Nemenyi's critical
    difference.

    places: data sets, or pairs of a data set and a setting."""
    of = [at if isinstance(at, (tuple, list)) else (at,) for at in places]

    means = {}
    for at in of:
        one = lambda v, at=at: {m: v.get(metric, m, *at).mean() for m in methods}
        means[" ".join(at)] = seen(one, v)
    rows = {at: x for at, x in means.items() if isinstance(x, dict)}
    if len(rows) < 2:
        closed = [f.reason for f in means.values() if getattr(f, "reason", "")]
        need = f"{metric} of {', '.join(methods)} on two settings"
        raise NotTestable(closed[0]) if closed else NotRun(need)
    r = average_ranks(pd.DataFrame(rows).T, METRICS[metric].better == "high")
    first, second = r.ranks.index[0], r.ranks.drop(method).index[0]
    mine, other = r.ranks[method], r.ranks[second]
    near, ahead = abs(other - mine) <= r.cd, other > mine
    holds = "undecided" if near else "yes" if ahead else "no"
    said = f"{r.n} settings, {len(methods)} methods: {method} ranks {mine:.2f} on "
    said += f"average, {second} {other:.2f}; critical difference {r.cd:.2f}, "
    said += f"Friedman p = {r.p:.2g}; first: {first}"
    return Finding(holds, said, tuple(at for at in means if at not in rows))


# ---------------------------------------------------------------- along an axis
@testing
def flat(v, metric, place, method, axis, study, margin):
    """Along an axis of a study, "E", no value is farther than the margin from their
    mean, seed by seed."""
    x = v.axis(metric, method, place, axis, study)
    x = pd.DataFrame(x).dropna()  # [S, values]
    if not len(x):
        raise NotRun(f"{metric} at all values of an axis for one seed")
    away, off = x.sub(x.mean(axis=1), axis=0), "off the mean"
    found = {at: equal(metric, d, f"{at} {off}", margin) for at, d in away.items()}
    return joined(found, "; ".join(f.evidence for f in found.values()))


@testing
def rising(v, metric, along, words=("rises", "falls"), margin=None):
    """Along an axis the metric rises: the least-squares slope of each seed, times the
    length of the axis, is positive.

    along: function of Values -> {value of the axis: Series over seeds}."""
    x = pd.DataFrame(along(v)).dropna()
    if x.shape[1] < 2 or not len(x):
        raise NotRun(f"{metric} at two values of an axis for one seed")
    if (x.max(axis=1) == x.min(axis=1)).all():
        raise NotTestable(f"{METRICS[metric].what}: the same at every value")
    at = x.columns
    said = f"from {at.min():g} to {at.max():g}, by the slope over {len(at)} values"
    return positive(metric, slopes(x), said, margin, words)


def slopes(x):
    """Each seed's slope along an axis times its length, for x [S, values] -> [S]."""
    at = x.columns.to_numpy(float)
    rise = np.polyfit(at, x.to_numpy().T, 1)[0] * (at.max() - at.min())
    return pd.Series(rise, x.index)


@testing
def inner(v, metric, along):
    """Some value between the ends of an axis is better than both (a U shape)."""
    x = along(v)
    ends, between = (min(x), max(x)), sorted(x)[1:-1]
    if not between:
        raise NotRun(f"{metric} between {ends[0]:g} and {ends[1]:g}")
    sign, found = METRICS[metric].sign, {}
    for k in between:
        over = []
        for e in ends:
            a, b = common(x[k], x[e])
            mine, end = say(metric, a.mean()), say(metric, b.mean())
            said = f"{mine} at {k:g}, {end} at {e:g}"
            over.append(positive(metric, sign * (a - b), said))
        found[k] = both(over)
    k = min(found, key=lambda k: (found[k].p.yes, -found[k].span.mean))
    told = f"of {len(found)} inner values {k:g} comes closest: {found[k].evidence}"
    return one_of(found)._replace(evidence=told, span=found[k].span)


# ---------------------------------------------------------------- several sentences
def contrary(test):
    """What a test denies."""
    return lambda v: turned(test(v))


def every(*tests):
    """All of several tests hold; Holm's correction where one that fails decides."""
    return lambda v: both([t(v) for t in tests])


@testing
def throughout(v, tests):
    """All of several named tests hold, as `every`, with counts instead of the whole
    evidence.

    tests: {case in words: test}. Cases that were not run leave it undecided."""
    found = reached(v, tests, f"one of {', '.join(tests)}")
    return joined(found, counted(found))


def some(*tests):
    """One of several tests holds, after Holm's correction; "no" where each fails."""
    return lambda v: one_of(reached(v, dict(enumerate(tests, 1)), "one of several"))


def one_of(found):
    """At least one of several findings holds: {name: Finding} -> Finding."""
    denied = {k: turned(f) for k, f in found.items()}
    return turned(joined(denied, listed(found.values())))


# ---------------------------------------------------------------- printed numbers
reported_once = functools.cache(reported_by)


def printed(paper, table=None, **where):
    """Rows of a paper's reported.csv with these values in these columns, or with one of
    a tuple of values; table: reported.csv, if it is read already."""
    table = reported_once(paper) if table is None else table[table.paper == paper]
    for column, x in where.items():
        table = table[table[column].isin(x if isinstance(x, tuple) else (x,))]
    return table


def held(cases):
    """A sentence about printed numbers {case: (does it hold, in words)}."""
    bad = {k: said for k, (good, said) in cases.items() if not good}
    where = "".join(f"; {k}: {said}" for k, said in bad.items())
    return sure(not bad, f"holds in {len(cases) - len(bad)} of {len(cases)}{where}")
