"""What the papers say, apart from the digits: each claim as a computation, each
deviation with its effect; run by the stage results of dvc.yaml.

    python -m repro.claims      results/seeds/*.parquet, papers/*/deviations.yaml  ->
                                results/{claims,deviations,effects}.csv, metrics.json
    python -m benchmarks.verdicts      how often such verdicts err, by simulation  ->
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

# What the claims of papers are written with: papers/<paper>/claims.py imports it here.
from repro.claims.values import *  # noqa: F403 I001
from repro.claims.findings import *  # noqa: F403
from repro.claims.builders import *  # noqa: F403
from repro.claims.declared import declared as declared
from repro.claims.deviations import DEVIATIONS as DEVIATIONS
from repro.claims.deviations import EFFECTS as EFFECTS
from repro.claims.deviations import deviations as deviations
from repro.claims.deviations import effects as effects
from repro.claims.deviations import read_deviations as read_deviations
from repro.claims.report import COLUMNS as COLUMNS
from repro.claims.report import check_claims as check_claims
from repro.claims.report import listed as listed
from repro.claims.report import main as main
