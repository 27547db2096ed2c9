"""What the papers say, apart from the digits: each claim as a computation, each
deviation with its effect; run by the stage results of dvc.yaml.

    python -m repro.claims      results/seeds/*.csv, papers/*/deviations.yaml  ->
                                results/{claims,deviations,effects}.csv, metrics.json

The sentences of each paper are in papers/<paper>/claims.py; here is what they are
tested with: the runs (values), the tests (builders), and the tables that come of it
(deviations, report).

A claim's test sees one value per seed and gives "yes", "no" or "undecided". Differences
are paired by seed, with 95% t intervals. "yes" and "no" both need an interval that
excludes the contrary; means in the right order inside the noise are "undecided", and so
are a single seed and all of tier tiny. "not run": a number is missing that the claim is
about. Of the tiers there are, the best one that has all the numbers decides.
"""

from repro.claims.builders import (
    alike,
    allowed,
    best,
    better,
    decide_all,
    differ,
    every,
    exactly,
    flat,
    gains_over,
    held,
    lacking,
    larger,
    level,
    near,
    ranked,
    smaller,
    some,
    steadier,
    throughout,
)
from repro.claims.deviations import (
    DEVIATIONS,
    EFFECTS,
    deviations,
    effects,
    read_deviations,
)
from repro.claims.report import COLUMNS, check_claims, headline, listed, main
from repro.claims.values import (
    Claim,
    Finding,
    NotRun,
    Values,
    common,
    decide,
    gain,
    name,
    say,
    span,
)

__all__ = [
    "COLUMNS",
    "DEVIATIONS",
    "EFFECTS",
    "Claim",
    "Finding",
    "NotRun",
    "Values",
    "alike",
    "allowed",
    "best",
    "better",
    "check_claims",
    "common",
    "decide",
    "decide_all",
    "deviations",
    "differ",
    "effects",
    "every",
    "exactly",
    "flat",
    "gain",
    "gains_over",
    "headline",
    "held",
    "lacking",
    "larger",
    "level",
    "listed",
    "main",
    "name",
    "near",
    "ranked",
    "read_deviations",
    "say",
    "smaller",
    "some",
    "span",
    "steadier",
    "throughout",
]
