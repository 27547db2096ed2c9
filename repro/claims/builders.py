"""What claims are tested with; used by the claims of papers (papers/<paper>/claims.py).

Each function but the first few, which they share, builds a test: a function that sees
the Values of a paper at one tier and returns a Finding. The most used: `better` (one
run than another), `best` (one method than all rivals), `throughout` (in all of several
cases), `near` and `level`.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd

from fedlib.measures.statistics import average_ranks, interval
from repro.claims.values import (
    Finding,
    NotRun,
    common,
    decide,
    gain,
    name,
    say,
    span,
)
from repro.ledger import METRICS

# what several tests share


def best(metric, place, rivals, method, margin=0.0, **of):
    """`method` is better than every rival, by more than -margin.

    of: further keywords of Values.get, the same for all. The evidence gives the gain
    over the rival that decides.
    """

    def test(v):
        me = v.get(metric, method, place, **of)
        gains, missing = gains_over(
            rivals,
            lambda r: gain(
                v, metric, {"method": method, **of}, {"method": r, **of}, place
            ),
            f"{place} {metric}",
        )
        holds, top = decide_all(gains, missing, margin)
        it = v.get(metric, top, place, **of).mean()
        text = (
            f"{method} {say(metric, me.mean())}, strongest of {len(gains)} rivals "
            f"{top} {say(metric, it)}; better by {span(metric, gains[top])}"
        )
        return Finding(holds, text + allowed(margin) + lacking(missing), missing)

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
        gains, missing = gains_over(
            rivals,
            lambda r: common(loss(v, r), mine),
            f"{place} {metric} at {high} and {low}",
        )
        holds, top = decide_all(gains, missing)
        text = (
            f"{method} loses {say(metric, mine.mean())} from {high} to {low}, hardest "
            f"of {len(gains)} rivals {top} {say(metric, loss(v, top).mean())}; less by "
            f"{span(metric, gains[top])}"
        )
        return Finding(holds, text + lacking(missing), missing)

    return test


def gains_over(rivals, gain_over, what):
    """The gain over each rival -> {rival: Interval}, those not run.

    gain_over: a function of a rival. what: in words, for the error. Raises NotRun when
    there is no rival at all.
    """
    gains, missing = {}, []
    for r in rivals:
        try:
            gains[r] = gain_over(r)
        except NotRun:
            missing.append(r)
    if not gains:
        raise NotRun(f"{what} of the rivals {', '.join(rivals)}")
    return gains, tuple(missing)


def decide_all(gains, missing, margin=0.0):
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


def lacking(missing):
    """The end of a sentence of evidence: which rivals were not run."""
    return f"; not run: {', '.join(missing)}" if missing else ""


def allowed(margin):
    """The end of a sentence of evidence: the margin of the claim."""
    return (
        f"; allowed loss {margin:g}"
        if margin > 0
        else f"; claimed by {-margin:g} or more"
        if margin < 0
        else ""
    )


def better(metric, place, a, b, margin=0.0):
    """Run a is better than run b by more than -margin, paired by seed.

    a, b: keyword arguments of Values.get. A positive margin is a loss that is allowed,
    a negative one a gain that is claimed.
    """

    def test(v):
        g = gain(v, metric, a, b, place)
        x, y = (v.get(metric, dataset=place, **r).mean() for r in (a, b))
        text = (
            f"{name(a)} {say(metric, x)}, {name(b)} {say(metric, y)}; better by "
            f"{span(metric, g)}"
        )
        return Finding(decide(g, margin), text + allowed(margin))

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
            " | ".join(f"{f.holds}: {f.evidence}" for f in found) + lacking(missing),
            missing,
        )

    return test


def throughout(tests):
    """All of several named tests hold, as `every`, with counts instead of the whole
    evidence.

    tests: {case in words: test}. Cases that were not run leave it undecided.
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
            holds, "; ".join(part) + lacking(tuple(dict.fromkeys(missing))), missing
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


def held(cases):
    """A sentence about printed numbers from
    {case: (does it hold, numbers in words)} -> Finding.
    """
    bad = {k: said for k, (good, said) in cases.items() if not good}
    return Finding(
        "no" if bad else "yes",
        f"holds in {len(cases) - len(bad)} of {len(cases)}"
        + "".join(f"; {k}: {said}" for k, said in bad.items()),
    )
