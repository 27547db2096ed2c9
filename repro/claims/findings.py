"""From differences to a verdict and the sentence that gives its evidence; used by
repro.claims.builders and by the claims of papers.

A test of a claim ends in one of three functions: `positive` and `equal` judge one
difference over seeds, `sure` a property that no seed can change. `every` and `some` put
findings together. The statistics are those of fedlib.measures.verdicts.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from fedlib.measures import verdicts
from fedlib.measures.statistics import Interval
from fedlib.measures.verdicts import LEAST, LEVEL, LOOKS, P
from repro.claims.values import NotRun, NotTestable, say
from repro.metrics import METRICS

REACHED = ("yes", "no", "alike", "undecided")  # verdicts of numbers that are there
OPEN = P(1.0, 1.0)  # nothing can be said
SURE = {"yes": P(0.0, 1.0), "no": P(1.0, 0.0)}


class Finding(NamedTuple):
    """What a test found: a verdict, a sentence of evidence, and what it hangs on."""

    holds: str  # yes, no, alike, undecided, not testable, not run
    evidence: str
    missing: tuple = ()  # what was not run
    reason: str = ""  # why it is not testable
    p: P | None = None  # None: not a matter of chance
    kind: str = ""  # "sign": positive speaks for it; "equal": near 0 does
    metric: str = ""
    span: Interval | None = None  # of the difference that decides
    margin: float = math.nan
    needs: float = math.nan  # seeds that would decide it
    gain: tuple | None = None  # (metric, place, run, rivals) whose gain a paper prints


# ---------------------------------------------------------------- one difference
def positive(metric, d, said, margin=None, words=("better", "worse")):
    """The sentence "d is positive", d a Series over seeds -> Finding.

    said: the two sides in words. margin: of the metric, if None; 0 where there is no
    "alike", as for a metric whose margin is relative. words: for a d that is positive
    and one that is negative."""
    margin = METRICS[metric].margin_at(0) if margin is None else margin
    x = d.to_numpy(float)
    p, s = verdicts.single(x, margin, margin), verdicts.span(x, margin)
    p = P(*map(float, p))
    holds = verdicts.verdict(p)
    needs = math.nan if holds != "undecided" else needed(x, margin)
    told = f"{said}: {told_sign(metric, s, holds, margin, words)}{later(holds, needs)}"
    return Finding(holds, told, (), "", p, "sign", metric, s, margin, needs)


def equal(metric, d, said, margin):
    """The sentence "d lies within the margin" -> Finding; "no" where it lies beyond.

    A truth inside the margin can be beyond on its nearer side alone: no correction."""
    x = d.to_numpy(float)
    s = verdicts.span(x, margin / 2)
    within = verdicts.single(x, margin, margin / 2).alike
    apart = min(verdicts.beyond(x, margin / 2)(sign, margin) for sign in (1, -1))
    p = P(float(within), float(apart))
    holds = verdicts.verdict(p)
    needs = math.nan
    if holds == "undecided":
        needs = needed(margin - np.abs(x.mean()) + x - x.mean(), 0)
    ends = "within" if holds == "yes" else "beyond" if holds == "no" else "against"
    told = (
        f"{said}: apart by {interval(metric, s)}, {ends} the margin of "
        f"{say(metric, margin)}{later(holds, needs)}"
    )
    return Finding(holds, told, (), "", p, "equal", metric, s, margin, needs)


def sure(good, said):
    """A property that holds or not, whatever the seed -> Finding."""
    return Finding("yes" if good else "no", said)


def interval(metric, s):
    """An Interval in words: "1.20 [0.40, 2.00], 5 seeds"."""
    if math.isnan(s.lo):
        return f"{say(metric, s.mean)}, {seeds(s.n)}"
    ends = f"[{say(metric, s.lo)}, {say(metric, s.hi)}]"
    return f"{say(metric, s.mean)} {ends}, {seeds(s.n)}"


def seeds(n):
    """A number of seeds in words."""
    return "one seed" if n == 1 else f"{n} seeds"


def told_sign(metric, s, holds, margin, words):
    """The evidence of a difference, such that it reads like its verdict."""
    at = say(metric, margin)
    if holds == "alike":
        return f"no difference worth {at}: {interval(metric, s)}"
    verb = {"yes": f"{words[0]} by", "no": f"{words[1]} by"}.get(holds)
    away = -s if holds == "no" else s
    small = "small: less than the " * bool(verb and away.hi < margin)
    aside = f", {small}margin {at}" if margin else ""
    return f"{verb or 'difference'} {interval(metric, away)}{aside}"


SEEDS = np.r_[LOOKS, LOOKS[-1] + 1 : 2001]
HALF = stats.t.isf(LEVEL / 2, SEEDS - 1)  # an interval's half, over the standard error


def needed(d, margin):
    """At how many seeds would d [S] decide, if mean and deviation stay what they are?

    The first of LOOKS, or else the smallest number beyond them; inf for never, nan for
    a single seed, whose deviation is not known."""
    d = np.asarray(d, float)
    if d.size < 2:
        return math.nan
    mean, sd = abs(d.mean()), d.std(ddof=1)
    wide = max(mean, margin - mean)  # an interval of less than twice this decides
    good = SEEDS[(SEEDS > d.size) & (HALF * sd / np.sqrt(SEEDS) < wide)]
    return min(good.tolist(), default=math.inf)


def later(holds, needs):
    """How many seeds would decide what is undecided, as the end of a sentence."""
    if holds != "undecided":
        return ""
    if math.isnan(needs):
        return f"; undecided below {LEAST} seeds"
    many = f"{needs:g} seeds" if math.isfinite(needs) else "no number of seeds"
    return f"; {'undecided, ' * (needs > LOOKS[-1])}{many} would decide it"


# ---------------------------------------------------------------- several findings
def strength(f):
    """The P of a finding; of one that is no matter of chance, 0 and 1."""
    return f.p if f.p is not None else SURE.get(f.holds, OPEN)


def seen(test, v):
    """The finding of a test, "not testable" and "not run" among them."""
    try:
        return test(v)
    except NotTestable as e:
        return Finding("not testable", str(e), reason=str(e))
    except NotRun as e:
        return Finding("not run", f"needs {e}", (str(e),))


def joined(found, evidence, p=None):
    """All of several findings as one: {name: Finding}, a sentence -> Finding.

    p: of the whole, if not that of "every one of them holds". Parts that are not
    testable, or not run, can be outvoted by one that refutes the whole, else they keep
    it open."""
    parts = list(found.values())
    if all(f.holds == "not run" for f in parts):
        raise NotRun("; ".join(f.missing[0] for f in parts))
    p = verdicts.all_of([strength(f) for f in parts]) if p is None else p
    p = P(*map(float, p))
    holds, missing = verdicts.verdict(p), tuple(m for f in parts for m in f.missing)
    blind = [f for f in parts if f.holds == "not testable"]
    rest = {f.holds for f in parts} - {"not testable"}
    if holds == "undecided" and blind and rest <= {"yes", "alike"}:
        where = ", ".join(str(name) for name, f in found.items() if f in blind)
        reason = f"{blind[0].reason} ({where})"
        return Finding("not testable", evidence, missing, reason)
    last, evidence = decisive(parts, holds), evidence + too_little(parts, holds)
    needs = max_needs(parts) if holds == "undecided" and not missing else math.nan
    told = last._replace(holds=holds, evidence=evidence, missing=missing)
    chance = any(f.p is not None for f in parts)
    return told._replace(reason="", p=p if chance else None, needs=needs, gain=None)


def decisive(parts, holds):
    """Of several findings the one that their common verdict hangs on."""
    if holds == "no":
        return min(parts, key=lambda f: strength(f).no)
    with_span = [f for f in parts if f.span is not None] or parts
    if holds == "alike":
        return max(with_span, key=lambda f: (f.holds == "alike", strength(f).yes))
    return max(
        with_span, key=lambda f: (strength(f).yes, -f.span.mean if f.span else 0)
    )


def too_little(parts, holds):
    """The end of evidence that refutes a part, but not after Holm's correction; where
    all are alike, by less than the margin."""
    if holds not in ("undecided", "alike") or all(f.holds != "no" for f in parts):
        return ""
    within = "; within the margin" if holds == "alike" else ""
    return f"{within}; too little for one of {len(parts)}"


def max_needs(parts):
    """Seeds that would decide all of the open parts; at least the next look, where one
    is refuted, but not after Holm's correction."""
    if refuted := [f.span.n for f in parts if f.holds == "no" and f.span]:
        return min((n for n in LOOKS if n > max(refuted)), default=math.inf)
    wanted = [f.needs for f in parts if f.holds == "undecided"]
    return max(wanted, default=math.nan) if not np.isnan(wanted).any() else math.nan


def turned(f):
    """What a finding denies."""
    other = {"yes": "no", "no": "yes"}.get(f.holds, f.holds)
    p = None if f.p is None else verdicts.contrary(f.p)
    s = f.span and -f.span
    return f._replace(holds=other, p=p, span=s, gain=None)


def listed(found):
    """Findings one after the other, each with its verdict; like ones once."""
    return " | ".join(dict.fromkeys(f"{f.holds}: {f.evidence}" for f in found))


def counted(found):
    """{name: Finding} in counts: "yes in 3 of 5; no in 2 of 5 (a, b)"."""
    out = []
    for holds in ("no", "yes", "alike", "undecided", "not testable", "not run"):
        where = [name for name, f in found.items() if f.holds == holds]
        if where:
            names = (
                f" ({', '.join(where)})" if holds not in ("yes", "undecided") else ""
            )
            out.append(f"{holds} in {len(where)} of {len(found)}{names}")
    return "; ".join(out)
