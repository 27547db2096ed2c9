"""One claim of results/claims.csv in words: its effect, what would decide it, whether
it survives the number of tests.

`effect` and `printed` are turned so that a positive one speaks for the sentence; where
its `kind` is "equal", those near zero do.
"""

import math

from fedlib.measures.verdicts import LEAST, LOOKS
from repro.metrics import METRICS

TESTABLE = ("yes", "no", "alike", "undecided")
POINTS = ("accuracy", "tail", "points", "tail points", "spread")  # kinds of metrics
FALSE = 0.10  # Benjamini and Hochberg: the share of false ones among the survivors


def testable(r):
    return r["holds"] in TESTABLE


def survives(r):
    """Does a "yes" stand although so many sentences were tested?"""
    return r["holds"] == "yes" and bool(r["q"]) and float(r["q"]) <= FALSE


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
    text = format(
        float(r[field]), f"{sign}.3g" if places is None else f"{sign}.{places}f"
    )
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


def seeds(r):
    return "one seed" if r["n_seeds"] == "1" else f"{r['n_seeds']} seeds"


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


def families(table):
    """Claims by the declaration that they are cases of -> {family: claims}."""
    found = {}
    for r in table:
        found.setdefault(r["family"], []).append(r)
    return found


def told_apart(texts):
    """Sentences of one family -> (what they share, what tells each from the others)."""
    texts = [t.rstrip(".") for t in texts]
    if len(texts) == 1:
        shared, _, rest = texts[0].rpartition(": ")
        return (shared, [rest]) if shared else (texts[0], [""])
    split = [t.split() for t in texts]
    ahead = common(split)
    behind = common([w[ahead:][::-1] for w in split])
    middle = [" ".join(w[ahead : len(w) - behind]).rstrip(":") for w in split]
    first = split[0]
    shared = first[:ahead] + ["\u2026"] + first[len(first) - behind :]
    return " ".join(shared if behind else shared[:-1]).rstrip(":"), middle


def common(split):
    """How many words do all lists begin with?"""
    n = 0
    for words in zip(*split):
        if len(set(words)) > 1:
            break
        n += 1
    return n
