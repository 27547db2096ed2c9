"""The stored tables are what the code makes of the stored seeds: a verdict that moves is
noticed here. Whether it was right is for the other tests.
"""

from collections import Counter
from functools import cache

import numpy as np
import pandas as pd
import scipy.stats
from scipy.special import stdtrit
from toys_sentences import light_ttest
from where import ROOT

from repro import claims, ledger
from repro.claims.report import closed_gates

RESULTS, CASES = ROOT / "results", 2
WORDS = ["key", "artefact", "family", "claim", "section", "quote", "by", "holds"]
WORDS += ["gain", "metric", "data", "tier", "runs", "kind"]
NUMBERS = ["effect", "lo", "hi", "n_seeds", "margin", "printed", "p", "needs"]


@cache
def seeds():
    """All rows of results/seeds, unchecked, since that takes as long as all else."""
    files = sorted((RESULTS / "seeds").glob("*.csv"))
    kinds = dict.fromkeys(ledger.POINT, str) | {"seed": int}
    of = {"usecols": [*ledger.POINT, "value", "data", "tier"], "keep_default_na": False}
    return pd.concat([pd.read_csv(f, dtype=kinds, **of) for f in files])


def stored(name):
    return pd.read_csv(RESULTS / f"{name}.csv", keep_default_na=False, na_values=[""])


def compared(new, old, words, numbers):
    for c in words:
        a, b = (t[c].fillna("").astype(str) for t in (new, old))
        assert list(a) == list(b), (
            f"{c}: {[*new.key[a.to_numpy() != b.to_numpy()]][:9]}"
        )
    for c in numbers:
        a, b = (t[c].to_numpy(float) for t in (new, old))
        far = ~np.isclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True)
        assert not far.any(), f"{c}: {[*new.key[far]][:9]}; run the stage results"


def test_claims_are_as_stored(monkeypatch):
    """Some cases of each family."""
    monkeypatch.setattr(scipy.stats, "ttest_1samp", light_ttest)
    monkeypatch.setattr(scipy.stats.t, "isf", lambda p, df: -stdtrit(df, p))
    cases, some, every = Counter(), [], claims.listed()
    for c in every:
        cases[c.family] += 1
        some += [c] * (cases[c.family] <= CASES)
    old = stored("claims").set_index("key", drop=False)
    assert [*old.key] == [c.key for c in every], "run the stage results"
    made = claims.check_claims(
        some, seeds(), ledger.read_reported(), closed_gates(RESULTS)
    )
    compared(made, old.loc[made.key], WORDS, NUMBERS)
