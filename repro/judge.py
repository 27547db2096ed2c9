"""What ours says of a number that a paper prints: the verdicts of the ledger.

Same data and size: real or synthetic data, at the paper's sizes (tier paper). There
digits are judged, against our 95% interval (of fedlib.measures.verdicts.LEAST seeds at
least) and a tolerance, 2 points for accuracies, else 5% of the reported value:

    match         our half-width is at most the tolerance, and the reported number lies
                  inside our interval
    close         it is within the tolerance, or inside a wider interval
    differs       neither

A printed bound lies inside an interval that reaches it, and matches where the whole
interval keeps it. A printed number stands for all that round to its digits.

Other data: stand-ins, and smaller sizes. Digits are not judged, but the printed order
is: every two methods of one artefact, data set, model, setting (but the paper's
switches), metric, tier and kind of data are a pair, unless the paper's difference lies
within the larger of its two printed spreads. A pair is decided like a claim, from the
differences seed by seed. "Alike" decides against a printed difference that is larger
than the margin.

    order holds     all decided pairs of this method agree, and there is one
    order differs   a decided pair of this method disagrees
    order open      no pair of this method is decided

    setting         a constant, a worked example, or computed without chance (tier
                    exact), and it agrees; one that does not "differs". Never a result
    no comparison   the paper's number is lost or was never printed; or, on other data,
                    there is nothing to order; or a stand-in has another setting
    not run         we have no number
"""

import itertools
import math
from collections import defaultdict
from decimal import Decimal

import numpy as np

from fedlib.measures import verdicts
from fedlib.study.studies import PILOT
from repro import papers
from repro.metrics import METRICS
from repro.names import pieces

TOLERANCE = {"%": 2.0, "accuracy": 0.02}
GROUP = ["paper", "artefact", "dataset", "model", "setting", "metric", "tier", "data"]
RUN = ["paper", "dataset", "method", "metric", "rule", "tier"]


def judge(table, values):
    """The table with its verdict and, where an order is judged, how many pairs agree.

    table: rows of the ledger, numbers as floats but `reported` as printed; values:
    {key: {seed: value}}, as `by_seed` finds them."""
    order = orders(table[table.ours.notna() & (table.reported != "")], values)
    none = "no comparison", ""
    own = ((row.key, alone(row)) for row in table.itertuples())
    said = [(word, "") if word else order.get(key, none) for key, word in own]
    return table.assign(verdict=[v for v, _ in said], pairs=[p for _, p in said])


def alone(row):
    """The verdict of a row of the ledger that needs no other row -> word, or None."""
    if math.isnan(row.ours):
        return "not run"
    if row.reported == "":
        return "no comparison"
    if row.tier == "exact" or METRICS[row.metric].kind in ("setting", "exact"):
        if agrees(row):
            return "setting"
        return "no comparison" if row.data == "stand-in" else "differs"
    if row.tier == "paper" and row.data != "stand-in":
        return digits(row)
    return None


# ---------------------------------------------------------------- digits
def tolerance(row):
    """How far a number may be from the reported one, in the metric's unit."""
    unit = METRICS[row.metric].unit
    return TOLERANCE.get(unit, 0.05 * abs(float(row.reported))) + 1e-12


def rounding(printed):
    """Half a unit of the last printed digit: "64.48" -> 0.005."""
    return 0.5 * 10.0 ** Decimal(printed).as_tuple().exponent + 1e-12


def keeps(row, low, high):
    """Does the range [low, high] reach the reported number, or its bound?"""
    r, half = float(row.reported), rounding(row.reported)
    above, below = high >= r - half, low <= r + half
    return {">=": above, "<=": below, "=": above and below}[row.relation]


def agrees(row):
    """Is a number without chance in it the reported one? A setting exactly, a worked
    example by its digits, a quantity within the tolerance."""
    metric = METRICS[row.metric]
    if metric.kind == "setting":
        return math.isclose(row.ours, float(row.reported))
    wide = tolerance(row) if metric.margin else 0
    return keeps(row, row.ours - wide, row.ours + wide)


def digits(row):
    """Do our digits agree with the printed ones, on the same data and size?

    row: relation, reported, ours, ours_lo, ours_hi, n_seeds, metric -> "match",
    "close" or "differs"."""
    wide = tolerance(row)
    seen = row.n_seeds >= verdicts.LEAST and not math.isnan(row.ours_lo)
    inside = seen and keeps(row, row.ours_lo, row.ours_hi)
    if row.relation == "=":
        sure = inside and row.ours_hi - row.ours_lo <= 2 * wide
    else:
        ends = (row.ours_lo, row.ours_hi)
        sure = seen and all(keeps(row, end, end) for end in ends)
    if sure:
        return "match"
    near = keeps(row, row.ours - wide, row.ours + wide)
    return "close" if inside or near else "differs"


# ---------------------------------------------------------------- order
def orders(table, values):
    """{key: (verdict, how many pairs agree)} of the rows that have somebody to be
    ordered with; table: as for `judge`, rows of both numbers."""
    switches, found = papers.each("switches"), {}
    task = [
        ";".join(s for s in pieces(how) if s.split("=")[0] not in switches[paper])
        for paper, how in zip(table.paper, table.setting)
    ]
    for _, group in table.assign(setting=task).groupby(GROUP):
        found |= order(group, values)
    return found


def order(group, values):
    """{key: (verdict, how many pairs agree)} of the methods of one table; empty where
    the metric is no score, or a method stands alone."""
    if len(group) < 2 or not METRICS[group.metric.iloc[0]].better:
        return {}
    votes = {key: [] for key in group.key}
    for a, b in itertools.combinations(group.itertuples(), 2):
        spreads = [float(x.reported_spread or 0) for x in (a, b)]
        if abs(float(a.reported) - float(b.reported)) > max(spreads):
            vote = agree(a, b, values)
            votes[a.key].append(vote)
            votes[b.key].append(vote)
    return {key: counted(v) for key, v in votes.items()}


def agree(a, b, values):
    """Do our seeds put two rows in the printed order? None while that is open."""
    if a.key not in values or b.key not in values:
        return None
    printed = float(a.reported) - float(b.reported)
    mine, theirs = values[a.key], values[b.key]
    both = [(x, theirs[n]) for n, x in mine.items() if n in theirs and n < PILOT]
    x, y = np.array(both).reshape(-1, 2).T
    metric = METRICS[a.metric]
    margin = metric.margin_at((abs(x).mean() + abs(y).mean()) / 2) if len(x) else 0
    found = verdicts.verdict(verdicts.single(np.sign(printed) * (x - y), margin))
    if found == "alike":
        said = abs(float(a.reported)) + abs(float(b.reported))
        return False if abs(printed) > metric.margin_at(said / 2) else None
    return {"yes": True, "no": False}.get(found)


def counted(votes):
    """(verdict, how many pairs agree) of the votes of one method's pairs."""
    if decided := [v for v in votes if v is not None]:
        verdict = "order holds" if all(decided) else "order differs"
        return verdict, f"{sum(decided)} of {len(decided)} decided pairs agree"
    few = "no pair that the paper tells apart", "its only pair is undecided"
    many = f"none of {len(votes)} pairs is decided"
    return "order open", (*few, many)[min(len(votes), 2)]


def by_seed(ours, seeds):
    """{key: {seed: value}} of the rows of ours.

    The rows of seeds of one study and setting, from the runs that the row names, as
    many as it says and with the mean that it gives. Rows without are left out."""
    groups, found = defaultdict(lambda: defaultdict(list)), {}
    by = [*RUN, *"setting study run_ids seed value".split()]
    for *run, setting, study, ids, seed, value in zip(*(seeds[c].tolist() for c in by)):
        groups[*run][study, setting].append(({*ids.split()}, seed, value))
    for row in ours.itertuples():
        near, runs = groups[*(getattr(row, c) for c in RUN)], {*row.run_ids.split()}
        for at in sorted(near, key=lambda at: (at[1] != row.setting, at)):
            mine = {seed: x for ids, seed, x in near[at] if ids and ids <= runs}
            x = np.array([*mine.values()])
            same = len(x) == row.n_seeds  # of the value a file leaves out digits
            if same and abs(x.mean().item() - row.value) <= 1e-5 * abs(x).max():
                found[row.key] = mine
                break
    return found
