"""What the evidence costs: the draw, what runs share, and a measurement of this very
code, twice.
"""

import json
import re
from collections import Counter

import pandas as pd
import pytest

from benchmarks import evidence
from fedlib.study.studies import Cell

RUN = '{"rounds": 40, "every": 10}'


def cell(method="FedAvg", dataset="a", seed=0, setting="", task="{}", **kwargs):
    told = json.dumps(kwargs), RUN
    return Cell(dataset, dataset, method, setting, seed, "real", task, *told)


def grid(*sizes):
    """Cells of as many methods, so many seeds of each."""
    return [cell(f"m{i}", seed=s) for i, n in enumerate(sizes) for s in range(n)]


# ---------------------------------------------------------------- the draw
@pytest.mark.parametrize("n", [1, 3, 10, 99])
def test_a_sample_is_spread_over_the_strata(n):
    todo = grid(5, 5, 5, 5)
    got = evidence.sample("a/b", todo, n)
    assert len(set(got)) == len(got) == min(n, 20) and set(got) <= set(todo)
    assert got == evidence.sample("a/b", todo[::-1], n)
    if n == 10:
        assert set(Counter(c.method for c in got).values()) <= {2, 3}


def test_every_cell_is_as_likely_as_any_other():
    todo = grid(9, 2, 1)  # a stratum counts by its number of cells
    drawn = [evidence.sample(f"p/{k}", todo, 3) for k in range(4000)]
    share = Counter(c for some in drawn for c in some)
    assert len(share) == 12
    # 4000 draws of 1 in 4: five standard deviations are 137
    assert all(abs(n - 1000) < 137 for n in share.values())


def test_every_study_with_evidence_is_there():
    names = {k.replace("/", "-") for k in evidence.studies()}
    folders = {
        f.parent.name for f in (evidence.ROOT / "evidence").glob("*/runs.parquet")
    }
    assert folders <= names


# ---------------------------------------------------------------- what runs share
def test_runs_that_differ_after_the_trail_share_it():
    some = [
        *(cell("EquFL", setting=t, target=t, lr=0.1) for t in ("EO", "DP", "CAL")),
        cell("EquFL", setting="x", target="EO", lr=0.2),
        cell("EquFL", setting="EO", target="EO", lr=0.1, seed=1),
        cell("EquFL", setting="EO", target="EO", lr=0.1, task='{"batch": 1}'),
        cell("FedAvg", setting="alone", lr=0.1),
    ]
    assert [evidence.sharing(c, some) for c in some] == [3, 3, 3, 1, 1, 1, 1]


# ---------------------------------------------------------------- one cell
def clock_of(per_round, fixed=0.0, asked=None):
    """A code that takes so many seconds per round, and `fixed` where nothing is
    shared.
    """

    def ask(cell, rounds, times):
        if asked is not None:
            asked.append((rounds, times))
        return [per_round * rounds + (fixed if k == 0 else 0) for k in range(times)]

    return ask


def test_a_short_run_is_measured_whole_and_twice():
    asked = []
    row = evidence.measure(cell(), {"after": clock_of(0.1, asked=asked)}, 20, 1)
    assert asked == [(10, 1), (40, 2)]
    assert (row["rounds"], row["of"], row["after_s"]) == (40, 40, 4.0)


def test_a_long_run_is_cut_and_scaled_in_both_versions():
    """One of them would be quick enough: both are cut all the same."""
    asked = []
    asks = {"before": clock_of(1.0, asked=asked), "after": clock_of(0.2)}
    row = evidence.measure(cell(), asks, 20, 1)
    assert asked == [(10, 1), (10, 1)]
    assert (row["rounds"], row["of"]) == (10, 40)
    assert (row["before_s"], row["after_s"]) == (40.0, 8.0)


def test_what_is_shared_counts_by_parts():
    asks = {"before": clock_of(0.1), "after": clock_of(0.1, fixed=2.0)}
    row = evidence.measure(cell(), asks, 99, 4)
    assert row["after_s"] == 4.5 and row["before_s"] == 4.0 and row["shared"] == 4


# ---------------------------------------------------------------- a whole study
TASK = {
    "data": {"name": "synthetic", "alpha": 0.5, "beta": 0.5, "sizes": [40, 50]},
    "network": {"name": "Linear"},
}


def test_a_study_by_two_versions(tmp_path):
    """Here both are this code. Written, found again, and measured anew if asked."""
    task, run = json.dumps(TASK), json.dumps({"rounds": 9, "every": 3})
    todo = [
        Cell("toy", "toy", m, "", s, "synthetic", task, '{"lr": 0.01}', run)
        for m in ("FedAvg", "FedGA")
        for s in range(3)
    ]
    clones = {"before": evidence.ROOT, "after": evidence.ROOT}
    row, entry = evidence.study("toy/toy", todo, 2, clones, 60)
    assert (row["study"], row["runs"], row["sampled"]) == ("toy/toy", 6, 2)
    for k in clones:
        mean = sum(r[f"{k}_s"] for r in entry["cells"]) / 2
        assert row[f"{k}_min"] == pytest.approx(6 * mean / 60) and mean > 0
    assert {r["method"] for r in entry["cells"]} == {"FedAvg", "FedGA"}
    out, order = tmp_path / "cost.csv", ["toy/first", "toy/toy"]
    sources = {k: entry[k]["source"] for k in clones}
    assert not evidence.known(out, "toy/toy", 2, sources)
    evidence.keep(out, row, entry, order)
    evidence.keep(out, row | {"study": "toy/first"}, entry, order)
    evidence.keep(out, row | {"runs": 7}, entry, order)
    table = pd.read_csv(out)
    assert list(table) == evidence.COLUMNS
    assert table.study.tolist() == order and table.runs.tolist() == [6, 7]
    assert evidence.known(out, "toy/toy", 2, sources)
    assert not evidence.known(out, "toy/toy", 3, sources)
    assert not evidence.known(out, "toy/toy", 2, sources | {"before": "other"})
    assert not evidence.known(out, "toy/third", 2, sources)


def test_a_cell_that_cannot_run_says_why():
    bad = cell("FedAvg", task=json.dumps(TASK | {"colour": 1}))
    with evidence.version(evidence.ROOT) as (ask, about):
        assert set(about) == {"commit", "source", "torch"}
        with pytest.raises(RuntimeError, match="unknown key 'colour'"):
            ask(bad, 2, 1)
        good = cell("FedAvg", task=json.dumps(TASK), lr=0.01)
        assert len(ask(good, 2, 3)) == 3  # and goes on


def test_a_folder_without_our_code_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=re.escape(str(tmp_path))):
        with evidence.version(tmp_path):
            pass
