"""One claim of results/claims.csv in words: its effect, what would decide it, whether
it survives the number of tests.

`effect` and `printed` are turned so that a positive one speaks for the sentence; where
its `kind` is "equal", those near zero do.
"""

import math

from fedbook import TEMPLATES

from fedlib.measures.verdicts import LEAST, LOOKS
from repro.metrics import METRICS

TESTABLE = ("yes", "no", "alike", "undecided")
POINTS = ("accuracy", "tail", "points", "tail points", "spread")  # kinds of metrics
FALSE = 0.10  # Benjamini and Hochberg: the share of false ones among the survivors


def testable(r):
    return r["holds"] in TESTABLE


def drawable(r):
    return testable(r) and r["effect"] != ""


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


JOINTS = {*"a an the of in on at by to for is are has have with than = \u2264".split()}


def told_apart(texts):
    """Sentences of one family, as "this beats that: digits" -> (what they share, what
    tells each from the others)."""
    cut = [t.rstrip(".").rpartition(": ") for t in texts]
    if len(texts) == 1:
        what, _, where = cut[0]
        return (what, [where]) if what else (where, [""])
    if not all(what for what, _, _ in cut):
        cut = [("", "", what + colon + where) for what, colon, where in cut]
    shared, own = [], [[] for _ in texts]
    for part in (0, 2):
        runs = aligned([c[part].split() for c in cut])
        shared.append(" ".join(run[0] if same else "\u2026" for same, run in runs))
        for i, words in enumerate(own):
            words += [run[i].strip(" ,") for same, run in runs if not same]
    title = ": ".join(t for t in shared if t.strip("\u2026 "))
    labels = [" \u00b7 ".join(filter(None, words)) for words in own]
    return title.removesuffix("\u2026").rstrip(" :,"), labels


def aligned(split, ends=(True, True)):
    """Lists of words as runs, in order: [(do all share it?, its text in each list)].

    A shared run has three words or more, or lies at an end, of all lists: the left,
    the right one.
    """
    if not any(split):
        return []
    text = [" ".join(words) for words in split]
    n, at = max(shared_runs(split, ends), default=(0, None))
    if not n:
        return [(False, text)]
    left = [w[:k] for w, k in zip(split, at)]
    right = [w[k + n :] for w, k in zip(split, at)]
    same = [" ".join(w[k : k + n]) for w, k in zip(split, at)]
    before, after = aligned(left, (ends[0], False)), aligned(right, (False, ends[1]))
    return before + [(True, same)] + after


def shared_runs(split, ends):
    """(how many words, where they begin in each list) of what all lists share."""
    first = split[0]
    for i in range(len(first)):
        for j in range(i + 1, len(first) + 1):
            at, n = [place(words, first[i:j]) for words in split], j - i
            if None in at:
                break
            if first[j - 1] in JOINTS and j < len(first):
                continue  # "is better in", and then what?
            starts = ends[0] and not any(at)
            stops = ends[1] and all(k + n == len(w) for w, k in zip(split, at))
            if n >= 3 or starts or stops:
                yield n, at


def place(words, run):
    """Where a run of words begins first, or None."""
    n = len(run)
    return next((k for k in range(len(words)) if words[k : k + n] == run), None)


TEMPLATES.globals |= globals()
