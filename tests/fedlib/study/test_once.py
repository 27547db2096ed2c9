"""What is measured once: kept as it is, named by what it was made from."""

import numpy as np
import pandas as pd
import pytest
from where import ROOT

from fedlib.core import provenance
from fedlib.study import compute, identity, once, studies

TREE = {
    "numbers": [1.0, 2.5, np.inf],
    "counts": {"a": 3, ("b", 2): True, 7: 0.1},
    "arrays": {
        ("view", "x"): np.arange(6, dtype=np.float32).reshape(2, 3),
        "long": np.array([2**40]),
    },
    "words": ["one", "two", {"three": "3"}],
    "nothing": None,
    "empty": {},
    "frame": pd.DataFrame(
        {
            "m": ["x", "y"],
            "v": [0.1 + 0.2, np.nan],
            "n": [1, 2],
            "all": [[1.0, 2.0], [3.0]],
        }
    ).set_index("m"),
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, pd.DataFrame):
        return a.equals(b)
    return type(a) is type(b) and (
        np.array_equal(a, b) and a.dtype == b.dtype
        if isinstance(a, np.ndarray)
        else a == b
    )


def test_a_tree_comes_back_as_it_was(here):
    got = once.write(here / "x.parquet", TREE, {"key": "k"})
    assert same(got, TREE) and once.read(here / "x.parquet")[1] == {"key": "k"}
    with pytest.raises(TypeError, match=r'\["a"\] is object; keep numbers, texts'):
        once.write(here / "y.parquet", {"a": object()}, {})
    assert same(once.write(here / "z.parquet", 1.5, {}), 1.5)  # a leaf alone


def counted(calls):
    def measure(x, more=1):
        calls.append(x)
        return {"twice": 2 * x + OFFSET}

    return measure


OFFSET = 0


def test_it_is_computed_once_until_what_it_depends_on_changes(here, monkeypatch):
    calls = []
    f = counted(calls)
    assert once.once("toy", "small", f, 3) == once.once("toy", "small", f, 3) == {
        "twice": 6
    } and calls == [3]
    (
        once.once("toy", "small", f, 4),
        once.once("toy", "tiny", f, 3),
        once.once("toy", "small", f, 3, more=2),
    )
    assert len(calls) == 4
    # what a notebook's function names counts, too
    monkeypatch.setitem(globals(), "OFFSET", 1)
    assert once.once("toy", "small", f, 3) == {"twice": 7} and len(calls) == 5


def test_a_run_counts_by_its_name_and_a_function_of_the_package_by_its_version(
    here, monkeypatch
):
    cell = studies.cells("fedas", "beside", ROOT / "params.yaml", "tiny")[0][0]

    def key(v):
        return once.key_of("n", "small", compute.describe_cell, (v,), {})

    before = key(cell)
    assert before == key(cell) != key("x")
    monkeypatch.setattr(
        identity, "versions", lambda: {"measure fedlib.compute.describe_cell": 2}
    )
    assert before != key(cell) and key(cell) == key(cell)
    monkeypatch.setattr(identity, "versions", lambda: {"engine": 2})
    assert before != key(cell)


def test_evidence_goes_before_runs_and_what_is_damaged_says_so(here):
    calls = []
    f = counted(calls)
    once.once("toy", "small", f, 3)
    (made,) = (here / "runs/kept").iterdir()
    (here / "evidence/kept").mkdir(parents=True)
    made.rename(here / "evidence/kept/toy.parquet")
    assert once.once("toy", "small", f, 3) == {"twice": 6} and calls == [3]
    once.once("toy", "small", f, 5)  # evidence of another question is left alone
    assert calls == [3, 5] and (here / "evidence/kept/toy.parquet").exists()
    (here / "evidence/kept/toy.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        once.Damaged, match="evidence/kept/toy.parquet cannot be read .*git checkout"
    ):
        once.once("toy", "small", f, 3)


def test_what_was_measured_is_packed_once_and_by_a_commit_only(here, monkeypatch):
    f = counted([])
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789+")
    once.once("toy", "small", f, 3)
    with pytest.raises(
        ValueError,
        match=(
            "runs/kept/toy-.*in no commit .*delete the file and draw its notebook again"
        ),
    ):
        once.pack("small")
    assert once.pack("tiny") == []
    next((here / "runs/kept").iterdir()).unlink()
    monkeypatch.setattr(provenance, "commit", lambda: "0123456789")
    once.once("toy", "small", f, 3)
    assert (
        once.pack("small") == [once.STORE / "toy.parquet"] and once.pack("small") == []
    )
    once.once("toy", "small", f, 4)
    # the newest question takes the place
    assert once.pack("small") == [once.STORE / "toy.parquet"]
    assert once.read(here / "evidence/kept/toy.parquet")[0] == {"twice": 8}
