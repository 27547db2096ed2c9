"""What the papers say, apart from the digits: each claim as a computation, each
deviation with its effect; run by the stage results of dvc.yaml.

    python -m repro.claims      results/seeds/*.csv, papers/*/deviations.yaml  ->
                                results/{claims,deviations,effects}.csv, metrics.json
    python -m repro.claims.errors      how often such verdicts err, by simulation  ->
                                results/verdicts-errors.csv

The sentences of each paper are in papers/<paper>/claims.yaml (declared) and claims.py;
here is what they are tested with: the runs (values), verdicts of differences
(findings), the tests (builders), and the tables that come of it (deviations, report).

A claim's test sees one value per seed, and differences are paired by seed. The verdicts
yes, no, alike and undecided are those of fedlib.measures.verdicts, with the margin of
each metric (repro.metrics): so two equal methods are "alike", fewer than five seeds
never decide, and neither does tier tiny. "not testable": nothing is learnt on the task
(results/gates.csv), both sides are one computation or lie at a floor or ceiling, or the
number is about data that are not here. "not run": a number is missing that the claim is
about. Of the tiers there are, the best one that has all the numbers decides.
"""

from repro.claims.builders import (
    alike,
    best,
    better,
    both,
    contrary,
    differ,
    even,
    every,
    exactly,
    flat,
    held,
    inner,
    lacking,
    larger,
    level,
    near,
    one_of,
    ranked,
    rising,
    smaller,
    some,
    steadier,
    strongest,
    throughout,
)
from repro.claims.declared import declared
from repro.claims.deviations import (
    DEVIATIONS,
    EFFECTS,
    deviations,
    effects,
    read_deviations,
)
from repro.claims.findings import (
    Finding,
    counted,
    equal,
    interval,
    joined,
    positive,
    seen,
    sure,
    turned,
)
from repro.claims.report import COLUMNS, check_claims, headline, listed, main
from repro.claims.values import (
    Claim,
    NotRun,
    NotTestable,
    Values,
    common,
    keywords,
    name,
    pair,
    say,
)

__all__ = [
    "COLUMNS",
    "DEVIATIONS",
    "EFFECTS",
    "Claim",
    "Finding",
    "NotRun",
    "NotTestable",
    "Values",
    "alike",
    "best",
    "better",
    "both",
    "check_claims",
    "common",
    "contrary",
    "counted",
    "declared",
    "deviations",
    "differ",
    "effects",
    "equal",
    "even",
    "every",
    "exactly",
    "flat",
    "headline",
    "held",
    "inner",
    "interval",
    "joined",
    "keywords",
    "lacking",
    "larger",
    "level",
    "listed",
    "main",
    "name",
    "near",
    "one_of",
    "pair",
    "positive",
    "ranked",
    "read_deviations",
    "rising",
    "say",
    "seen",
    "smaller",
    "some",
    "steadier",
    "strongest",
    "sure",
    "throughout",
    "turned",
]
