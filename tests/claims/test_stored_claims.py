"""The stored tables are what the code makes of the stored seeds: a verdict that moves is
noticed here. Whether it was right is for the other tests."""

import json

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from repro import claims, ledger, papers
from repro.claims.report import closed_gates, headline

RESULTS, REPORTED = ROOT / "results", ledger.read_reported()
WORDS = ["key", "artefact", "family", "claim", "section", "quote", "by", "holds"]
WORDS += ["gain", "metric", "data", "tier", "runs", "kind"]
FILE = "metrics.json"
NUMBERS = ["effect", "lo", "hi", "n_seeds", "margin", "printed", "p", "needs"]


def seeds():
    """Rows of results/seeds by the rules of claims."""
    table = ledger.parts(RESULTS, "seeds")
    own = table.rule == table.paper.map(papers.each("rule"))
    return table[own | (table.rule == "run")]


def compared(new, name, words, numbers, of=None):
    """With the table of results/, or with its rows `of`."""
    path = RESULTS / f"{name}.csv"
    old = pd.read_csv(path, keep_default_na=False, na_values=[""])
    old = old if of is None else old.set_index("key", drop=False).loc[of]
    for c in words:
        a, b = (t[c].fillna("").astype(str) for t in (new, old))
        assert list(a) == list(b), (c, [*new.key[a.to_numpy() != b.to_numpy()]][:9])
    for c in numbers:
        a, b = (t[c].to_numpy(float) for t in (new, old))
        far = ~np.isclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)
        assert not far.any(), f"{c}: {[*new.key[far]][:9]}; run the stage results"


def test_claims_are_as_stored(tmp_path):
    """A case of each family, of sentences with many parts one by paper, and what papers
    say of their own tables."""
    some, every = {}, claims.listed()
    for c in every:
        many = c.test.__qualname__.startswith("throughout")
        some.setdefault(c.key if c.printed else (c.paper, many or c.family), c)
    old = pd.read_csv(RESULTS / "claims.csv")
    assert [*old.key] == [c.key for c in every], "run the stage results"
    gates = closed_gates(RESULTS)
    rows = seeds()
    made = claims.check_claims([*some.values()], rows, REPORTED, gates)
    compared(made, "claims", WORDS, NUMBERS, made.key)
    printed = made[made.tier == "exact"]  # counts of cases too
    assert len(printed) > 20
    compared(printed, "claims", ["evidence"], [], printed.key)
    assert set(made.holds) >= {"yes", "no", "alike", "undecided", "not testable"}
    # what a paper claims holds of what it prints, but for one sentence
    against = old[(old.by == "paper") & (old.printed < 0)]
    assert set(against.key) <= {"equfl-best-dp-mnist"}
    headline(tmp_path, old, rows)
    said, due = (json.loads((p / FILE).read_text()) for p in (tmp_path, RESULTS))
    assert due == said | {"verdicts": due["verdicts"]}


@pytest.mark.nightly
def test_all_tables_are_as_stored():
    """All claims, effects of deviations, and the ledger."""
    rows, ours = (ledger.parts(RESULTS, k) for k in ("seeds", "ours"))
    made = claims.check_claims(claims.listed(), rows, REPORTED, closed_gates(RESULTS))
    compared(made, "claims", WORDS, NUMBERS)
    made = claims.effects(claims.read_deviations(), rows)
    words = ["key", "dataset", "metric", "ours_is", "other_is", "data", "tier"]
    compared(made, "effects", words, ["ours", "effect", "effect_lo", "n_seeds"])
    made = ledger.join(REPORTED, ledger.best_tier(ours, ["key"]), rows)
    words = ["key", "rule", "data", "tier", "verdict", "pairs"]
    compared(made, "ledger", words, ["ours", "ours_lo", "ours_hi"])
