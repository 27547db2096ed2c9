"""The stored tables are what the code makes of the stored seeds: a verdict that moves is
noticed here. Whether it was right is for the other tests.
"""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from repro import claims, ledger, papers
from repro.claims.report import closed_gates

RESULTS, CASES = ROOT / "results", 1
WORDS = ["key", "artefact", "family", "claim", "section", "quote", "by", "holds"]
WORDS += ["gain", "metric", "data", "tier", "runs", "kind"]
NUMBERS = ["effect", "lo", "hi", "n_seeds", "margin", "printed", "p", "needs"]


def seeds():
    """Rows of results/seeds by the rules of claims, unchecked: checks are dear."""
    files = sorted((RESULTS / "seeds").glob("*.csv"))
    kinds = dict.fromkeys(ledger.POINT, str) | {"seed": int}
    of = {"usecols": [*ledger.POINT, "value", "data", "tier"], "keep_default_na": False}
    table = pd.concat([pd.read_csv(f, dtype=kinds, **of) for f in files])
    own = table.rule == table.paper.map(papers.each("rule"))
    return table[own | (table.rule == "run")]


def stored(name):
    return pd.read_csv(RESULTS / f"{name}.csv", keep_default_na=False, na_values=[""])


def compared(new, old, words, numbers):
    for c in words:
        a, b = (t[c].fillna("").astype(str) for t in (new, old))
        assert list(a) == list(b), (c, [*new.key[a.to_numpy() != b.to_numpy()]][:9])
    for c in numbers:
        a, b = (t[c].to_numpy(float) for t in (new, old))
        far = ~np.isclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)
        assert not far.any(), f"{c}: {[*new.key[far]][:9]}; run the stage results"


def test_claims_are_as_stored():
    """Some cases of each family, and what papers say of their own tables."""
    cases, some, every = Counter(), [], claims.listed()
    for c in every:
        cases[c.family] += 1
        some += [c] * bool(c.printed or cases[c.family] <= CASES)
    old = stored("claims").set_index("key", drop=False)
    assert [*old.key] == [c.key for c in every], "run the stage results"
    reported = ledger.read_reported()
    made = claims.check_claims(some, seeds(), reported, closed_gates(RESULTS))
    compared(made, old.loc[made.key], WORDS, NUMBERS)
    printed = made[made.tier == "exact"]  # counts of cases too
    assert len(printed) > 20
    compared(printed, old.loc[printed.key], ["evidence"], [])
    assert set(made.holds) >= {"yes", "no", "alike", "undecided", "not testable"}
    assert "not run" not in set(old.holds)
    # what a paper claims holds of what it prints, but for one sentence
    against = old[(old.by == "paper") & (old.printed < 0)]
    assert set(against.key) <= {"equfl-best-dp-mnist"}


@pytest.mark.nightly
def test_all_tables_are_as_stored():
    """All claims, effects of deviations, and the ledger."""
    reported = ledger.read_reported()
    rows, ours = (ledger.parts(RESULTS, k, reported) for k in ("seeds", "ours"))
    made = claims.check_claims(claims.listed(), rows, reported, closed_gates(RESULTS))
    compared(made, stored("claims"), WORDS, NUMBERS)
    made = claims.effects(claims.read_deviations(), rows)
    words = ["key", "dataset", "metric", "ours_is", "other_is", "data", "tier"]
    compared(made, stored("effects"), words, ["ours", "effect", "effect_lo", "n_seeds"])
    made = ledger.join(reported, ledger.best_tier(ours, ["key"]), rows)
    words = ["key", "rule", "data", "tier", "verdict", "pairs"]
    compared(made, stored("ledger"), words, ["ours", "ours_lo", "ours_hi"])
