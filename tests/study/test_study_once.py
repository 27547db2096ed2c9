"""What is measured once and kept."""

import functools
import os

import numpy as np
import pandas as pd
import pytest
from toys_study import cell

from fedlib.core import provenance
from fedlib.study import compute, identity, once

OFFSET, CALLS = 0, []
FRAME = pd.DataFrame({"m": ["x", "y"], "v": [0.1 + 0.2, np.nan], "n": [1, 2]})
TREE = {
    "counts": {"a": 3, ("b", 2): True, 7: 0.1, "none": None, "empty": {}},
    "arrays": {("v", "x"): np.ones((2, 3), np.float32), "i": np.array([2**40])},
    "words": ["one", {"three": "3"}, [1.0, np.inf]],
    "many": [{"k": i} for i in range(12)],
    "frames": {"named": FRAME.set_index("m"), "flat": FRAME},
}


def measure(x, more=1):
    CALLS.append(x)
    return {"twice": 2 * x + OFFSET}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CALLS.clear()
    return CALLS


def test_a_tree_comes_back_as_it_was(tmp_path):
    back = once.write(tmp_path / "x.parquet", TREE, {"key": "k"})
    got, about = once.read(tmp_path / "x.parquet")
    with pd.option_context("display.precision", 17):
        assert repr(got) == repr(back) == repr(TREE) and about == {"key": "k"}
    assert once.write(tmp_path / "z.parquet", 1.5, {}) == 1.5
    with pytest.raises(TypeError, match='"a"'):
        once.write(tmp_path / "y.parquet", {"a": object()}, {})


def test_it_is_computed_once_until_what_it_depends_on_changes(calls, monkeypatch):
    def ask(*args, name="toy", tier="small", **more):
        return once.once(name, tier, measure, *args, **more)

    assert ask(3) == ask(3) == {"twice": 6} and calls == [3]
    asked = [(4, {}), (3, {"tier": "tiny"}), (3, {"more": 2}), (3, {"name": "other"})]
    for x, more in asked * 2:
        assert ask(x, **more) == {"twice": 2 * x}
    assert calls == [3, 4, 3, 3, 3]
    partial = functools.partial(compute.describe_cell, 1)

    def key(*args, f=compute.describe_cell, used=()):
        return once.key_of("n", "t", f, args, {}, used)

    assert key(cell()) == key(cell().id) != key(cell(seed=1))  # a run is its name
    assert key(1, 2) == key(2, f=partial) != key(2)
    was, used = key(1), key(1, used=["engine"])
    for moved in ("measure fedlib.compute.describe_cell", "engine"):
        with pytest.MonkeyPatch.context() as m:
            m.setattr(identity, "versions", lambda u=moved: {u: 2})
            assert key(1, used=["engine"]) != used
            assert (key(1) == was) == (moved == "engine")
    monkeypatch.setitem(globals(), "OFFSET", 1)  # a notebook's function counts with it
    assert ask(3) == {"twice": 7} and len(calls) == 6


def test_evidence_goes_before_runs_and_only_a_commit_is_packed(calls, monkeypatch):
    commit = {"now": "0123456789+"}
    monkeypatch.setattr(provenance, "commit", lambda: commit["now"])
    ask = lambda x, tier="small": once.once("toy", tier, measure, x)
    ask(3)
    assert once.pack("tiny") == []
    with pytest.raises(ValueError, match="toy.*0123456789"):
        once.pack("small")
    (made,) = once.RUNS.iterdir()
    made.unlink()
    commit["now"] = "0123456789"
    ask(3)
    (old,) = once.RUNS.iterdir()
    to = once.STORE / "toy.parquet"
    assert once.pack("small") == [to] and once.pack("small") == []
    body = old.read_bytes()
    old.unlink()
    assert ask(3) == {"twice": 6} and calls == [3, 3]  # from evidence
    old.write_bytes(body)
    os.utime(old, ns=(1, 1))
    ask(4)  # another question; the newest one is packed
    assert once.pack("small") == [to] and once.read(to)[0] == {"twice": 8}
    assert ask(4) == {"twice": 8} and calls == [3, 3, 4]
    to.write_bytes(b"PAR1")
    with pytest.raises(once.Damaged, match="toy.parquet.*git checkout"):
        ask(4)
