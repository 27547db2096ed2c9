"""One claim of results/claims.csv in words: its effect, what would decide it, whether
it survives the number of tests.

`effect` and `printed` are turned so that a positive one speaks for the sentence; where
its `kind` is "equal", those near zero do.
"""

import math
import re
from itertools import groupby

from fedbook import TEMPLATES

from fedlib.measures.verdicts import DECIDED, LEAST, LOOKS
from repro.metrics import METRICS

TESTABLE = (*DECIDED, "undecided")
POINTS = ("accuracy", "tail", "points", "tail points", "spread")  # kinds of metrics
FALSE = 0.10  # Benjamini and Hochberg: the share of false ones among the survivors


def testable(r):
    return r["holds"] in TESTABLE


def drawable(r):
    return testable(r) and r["effect"] != ""


def survives(r):
    """Does an answer stand although so many sentences were tested?"""
    return r["holds"] in DECIDED and bool(r["q"]) and float(r["q"]) <= FALSE


def rarity(r):
    """q as it is printed."""
    q = float(r["q"] or 1)
    return "< 0.001" if q < 0.001 else f"{q:.2g}"


def amount(r, field, sign="+"):
    """effect, lo, hi, printed or margin, as fine as the margin asks for."""
    if not r[field]:
        return ""
    margin = float(r["margin"] or 0)
    places = max(0, math.ceil(-math.log10(margin))) + 2 if margin else None
    fmt = f"{sign}.3g" if places is None else f"{sign}.{places}f"
    text = format(float(r[field]), fmt)
    return (text.lstrip("+-") if float(text) == 0 else text).replace("-", "\u2212")


def width(r):
    """The interval, "[-0.30, 1.20]", or nothing."""
    return f"[{amount(r, 'lo')}, {amount(r, 'hi')}]" if r["lo"] else ""


def unit(r):
    """points, s, MB ... of an effect; a difference of accuracies in % is in points."""
    known = METRICS.get(r["metric"])
    if known and known.kind in POINTS:
        return "points"
    return known.unit if known and known.unit not in ("accuracy", "bias") else ""


def decides(r):
    """What would decide an open claim: so many seeds, or none."""
    if r["holds"] != "undecided":
        return ""
    if not r["needs"] and int(r["n_seeds"] or 0) < LEAST:
        return f"at least {LEAST} seeds"
    if not r["needs"] or math.isinf(float(r["needs"])):
        return "not by seeds"
    few = float(r["needs"]) <= LOOKS[-1]
    return f"{r['needs']} seeds" if few else f"more than {LOOKS[-1]} seeds"


def told_apart(texts):
    """Sentences of one family, as "this beats that: digits" -> (the words that all
    share, what tells each from the others)."""
    cut = [t.rstrip(".").rpartition(": ") for t in texts]
    if len(texts) == 1:
        what, _, where = cut[0]
        return (what, [where]) if what else (where, [""])
    parts = re.compile(r", (?![^(]*\))").split  # not at Synthetic(0, 0)
    split = [[*f"{a}:".split(), *parts(b)] if a else b.split() for a, _, b in cut]
    shared = set.intersection(*map(set, split)).__contains__
    runs = [[(k, " ".join(run)) for k, run in groupby(w, shared)] for w in split]
    labels = [" \u00b7 ".join(x.strip(",:") for k, x in run if not k) for run in runs]
    title = " ".join(words if same else "\u2026" for same, words in runs[0])
    return title.removesuffix("\u2026").rstrip(" :,"), labels


TEMPLATES.globals |= globals()
