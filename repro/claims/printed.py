"""The gain that a paper prints, for a claim that compares runs; used by
repro.claims.report.
"""

from __future__ import annotations

from repro.metrics import METRICS


def printed_gain(asked, claim, reported):
    """How much better the paper's method is than the best of its rivals, in the units
    of the metric and beyond what the claim takes off -> float, or None where the paper
    does not print both.

    asked: (metric, place, run, rivals, least) of a Finding; runs are keywords of
    Values.get. The paper's numbers are those of the claim's own artefact.
    """
    if asked is None or reported is None or claim.by == "ours":
        return None
    metric, place, mine, rivals, least = asked
    table = reported[
        (reported.paper == claim.paper)
        & (reported.artefact == claim.artefact)
        & (reported.dataset == place)
        & (reported.metric == metric)
    ]
    sign = 1 if METRICS[metric].better == "high" else -1
    own = number(table, mine)
    others = [x for x in (number(table, r) for r in rivals) if x is not None]
    if own is None or len(others) < len(rivals):
        return None
    return min(sign * (own - x) for x in others) - least


def number(table, run):
    """The printed number of a run -> float, or None unless there is exactly one.

    A setting of None is any: of a run that goes by the names of the paper's table.
    """
    wanted = run.get("setting", "")
    mine = table[(table.method == run["method"]) & (table.reported != "")]
    if wanted is not None:
        mine = mine[[parts(s) == parts(wanted) for s in mine.setting]]
    return float(mine.reported.iloc[0]) if len(mine) == 1 else None


def parts(setting):
    """A setting as a set of its parts; "default" is none."""
    return {s.strip() for s in setting.split(";")} - {"", "default"}
