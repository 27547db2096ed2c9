"""Test every claim, measure every deviation, and write the tables; called by
`python -m repro.claims`, a command of the stage results of dvc.yaml.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from fedlib.study.table import write
from repro import papers
from repro.claims.deviations import deviations, effects, read_deviations
from repro.claims.values import Finding, NotRun, Values
from repro.ledger import TIERS, best_tier, parts, read_reported

COLUMNS = [
    "key",
    "paper",
    "artefact",
    "claim",
    "holds",
    "evidence",
    "data",
    "tier",
    "by",
]
# field of a headline in paper.yaml -> column of the seeds
HEADLINE = {
    "studies": "study",
    "methods": "method",
    "settings": "setting",
    "metrics": "metric",
}


def listed():
    """The claims of all papers that are here, paper by paper."""
    return tuple(c for p in papers.found() for c in papers.module(p, "claims").CLAIMS)


def check_claims(claims, seeds, reported=None):
    """claims.csv: one row per claim -> frame [claims, COLUMNS].

    seeds: all parts, any tiers; reported: frame of reported.csv, without which claims
    about printed numbers are "not run".
    """
    tiers = [t for t in reversed(TIERS) if (seeds.tier == t).any()]
    at = {(p, t): Values.of(g) for (p, t), g in seeds.groupby(["paper", "tier"])}
    rows = []
    for c in claims:
        if c.printed:
            f = (
                Finding("not run", "needs the printed numbers")
                if reported is None
                else c.test(reported)
            )
            rows.append(
                (
                    c.key,
                    c.paper,
                    c.artefact,
                    c.text,
                    f.holds,
                    f.evidence,
                    "",
                    "" if reported is None else "exact",
                    c.by,
                )
            )
            continue
        found = {}
        for t in tiers:
            if (c.paper, t) in at:
                try:
                    found[t] = c.test(at[c.paper, t])
                except NotRun as e:
                    found[t] = Finding("not run", f"needs {e}", ("all",))
        tier = next((t for t in found if not found[t].missing), None) or next(
            (t for t in found if found[t].holds != "not run"), None
        )
        f = (
            found[tier]
            if tier
            else next(iter(found.values()), Finding("not run", "no runs of this paper"))
        )
        if tier == "tiny" and f.holds in ("yes", "no"):
            f = Finding("undecided", f"{f.evidence}; tier tiny decides nothing")
        places = papers.main_datasets(c.paper) if c.place == "all" else [c.place]
        kinds = (
            {at[c.paper, tier].kind(p, c.study) for p in places} - {""} if tier else ()
        )
        data = ", ".join(sorted(kinds))
        rows.append(
            (
                c.key,
                c.paper,
                c.artefact,
                c.text,
                f.holds,
                f.evidence,
                data,
                tier or "",
                c.by,
            )
        )
    return pd.DataFrame(rows, columns=COLUMNS)


def headline(root, claims, seeds):
    """metrics.json, for `dvc metrics show` and `diff`: each paper's method and its
    controls, counts of claims and verdicts.

    claims: the frame of check_claims; seeds: all parts, any tiers.
    """
    out = {}
    for paper in papers.found():
        about = papers.about(paper)
        own = seeds[(seeds.paper == paper) & (seeds.rule == about["rule"])]
        for wanted, column in HEADLINE.items():
            own = own[own[column].isin(about["headline"][wanted])]
        by = ["dataset", "setting", "method", "metric"]
        for at, x in best_tier(own, by).groupby(by).value.mean().items():
            inner = out.setdefault(paper, {})
            for name in filter(None, at[:-1]):
                inner = inner.setdefault(name, {})
            inner[at[-1]] = round(float(x), 4)
    out["claims"] = {
        k: int(n) for k, n in claims.holds.value_counts().sort_index().items()
    }
    if (ledger := root / "ledger.csv").exists():
        counts = (
            pd.read_csv(ledger, usecols=["verdict"]).verdict.value_counts().sort_index()
        )
        out["verdicts"] = {k: int(n) for k, n in counts.items()}
    (root / "metrics.json").write_text(json.dumps(out, indent=1) + "\n")


def main(argv=None):
    """Test every claim and measure every deviation;
    write claims.csv, deviations.csv and effects.csv.
    """
    parser = argparse.ArgumentParser(
        prog="python -m repro.claims", description=main.__doc__
    )
    parser.add_argument(
        "--results",
        default="results",
        help="folder with seeds/ (default: results)",
    )
    root = Path(parser.parse_args(argv).results)
    reported = read_reported()
    seeds = parts(root, "seeds", reported)
    table = check_claims(listed(), seeds, reported)
    write(table, root / "claims.csv")
    entries = read_deviations()
    measured = effects(entries, seeds)
    write(measured, root / "effects.csv")
    write(deviations(entries, measured), root / "deviations.csv")
    headline(root, table, seeds)
    counts = table.holds.value_counts()
    print(
        f"{len(table)} claims: "
        + ", ".join(f"{n} {v}" for v, n in counts.sort_index().items())
    )
