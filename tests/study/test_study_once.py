"""What is measured once and kept; how flat minima are and how the loss runs between
models, on losses with known answers; what a round costs.
"""

import functools
import itertools
import os
import types
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from toys_core import Noisy, toy
from toys_study import cell

from fedlib.core import provenance
from fedlib.measures import landscape
from fedlib.methods.base.fedavg import FedAvg
from fedlib.study import compute, cost, flatness, identity, once, paths

TREE = {
    "numbers": [1.0, 2.5, np.inf],
    "counts": {"a": 3, ("b", 2): True, 7: 0.1},
    "arrays": {("v", "x"): np.ones((2, 3), np.float32), "i": np.array([2**40])},
    "words": ["one", {"three": "3"}, [1.0, 2.0]],
    "many": [{"k": i} for i in range(12)],
    "nothing": None,
    "empty": {},
}
FRAME = pd.DataFrame({"m": ["x", "y"], "v": [0.1 + 0.2, np.nan], "n": [1, 2]})
TREE["frame"], TREE["flat"] = FRAME.set_index("m"), FRAME


def alike(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, pd.DataFrame):
        return a.equals(b)
    equal = np.array_equal(a, b) and getattr(a, "dtype", 0) == getattr(b, "dtype", 0)
    return type(a) is type(b) and equal


OFFSET = 0


def measure(x, more=1):
    CALLS.append(x)
    return {"twice": 2 * x + OFFSET}


CALLS = []


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    CALLS.clear()
    return CALLS


def test_a_tree_comes_back_as_it_was(tmp_path):
    assert alike(once.write(tmp_path / "x.parquet", TREE, {"key": "k"}), TREE)
    got, about = once.read(tmp_path / "x.parquet")
    assert alike(got, TREE) and about == {"key": "k"}
    assert alike(once.write(tmp_path / "z.parquet", 1.5, {}), 1.5)
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
    unit = "measure fedlib.compute.describe_cell"
    for moved, used, moves in (
        (unit, (), True),
        ("engine", ("engine",), True),
        ("engine", (), False),
    ):
        was = key(1, used=used)
        with pytest.MonkeyPatch.context() as m:
            m.setattr(identity, "versions", lambda u=moved: {u: 2})
            assert (key(1, used=used) != was) == moves, moved
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


# ---------------------------------------------------------------- flat, and between
def bowl(w):
    return 3 * w["w"].square().sum()


def at(*x):
    return {"w": torch.tensor(x, dtype=torch.float64)}


def test_how_flat_a_known_bowl_is():
    got = flatness.numbers(bowl, at(1.0, -1.0, 1.0, -1.0))
    assert (got["train_loss"], got["weight_norm"], got["converged"]) == (12, 2, 1)
    assert got["lambda_max"] == pytest.approx(6)
    for rho in flatness.RHO:  # uphill is away from 0
        want = 3 * ((2 + rho) ** 2 - 4)
        assert got[f"rise_{rho:g}"] == pytest.approx(want, rel=1e-5)
    assert set(flatness.METRICS) <= set(got)
    for a, want in (([0.5, 0.9, 0.1, 0.7, 0.5], [2, 4, 1]), ([0.3, 0.2], [1, 1, 0])):
        found = flatness.places(np.array(a))
        assert [found[k] for k in ("worst", "median", "best")] == want
    assert flatness.some(40, 3) == [0, 20, 39] and flatness.some(3, 8) == [0, 1, 2]
    seen = {"w": {"a": torch.ones(2, 2)}, "seen": torch.tensor([True, False])}
    state = {"server": {"w": {"a": torch.zeros(2)}}, "clients": seen}
    own = [flatness.own("PLGU-LF", state, i)["a"].tolist() for i in (0, 1)]
    assert own == [[1, 1], [0, 0]]  # who never trained is served by the server


def test_lines_between_known_models():
    z = paths.towards(bowl, at(2.0), at(1.0), 7)
    assert z.tolist() == [3 * (2 - x) ** 2 for x in (-1.5, -1, -0.5, 0, 0.5, 1, 1.5)]
    up = paths.uphill(bowl, at(-2.0), 5)
    steps = (-0.5, -0.25, 0, 0.25, 0.5)
    assert up.tolist() == pytest.approx([3 * (2 + x) ** 2 for x in steps])
    ellipse = lambda w: (w["w"] ** 2 * torch.tensor([1.0, 4.0, 0.5])).sum() / 2
    plane = paths.curved(ellipse, at(0.0, 0.0, 0.0), 3)
    assert plane["values"] == pytest.approx([4, 1])
    z = np.asarray(plane["z"])
    assert z[1, 1] == 0
    assert sorted((z[0, 1], z[1, 0])) == pytest.approx([0.5, 2], rel=1e-4)


@pytest.fixture(scope="module")
def group():
    task = {"network": {"name": "MLP", "hidden": 3}}
    some = itertools.product((0, 1), ("FedAvg", "PLGU-LF"))
    return [cell(m, task=task, seed=s, lr=0.1) for s, m in some]


def test_what_runs_leave_behind_is_measured(group):
    (pair, _), size = paths.groups(group), {"rows": 40, "points": 5}
    assert [(c.method, c.seed) for c in pair] == [("FedAvg", 0), ("PLGU-LF", 0)]
    _, lf = flatness.measure_all(pair, 1, clients=2, coarse=3, **size)
    bare = flatness.measure(pair[0], clients=2, **size, draw=())
    assert set(bare["sharpness"]) == {flatness.GLOBAL} and bare["surfaces"] == {}
    (_, task, fed), (_, _, r) = (compute.trained(c, "cpu") for c in pair)
    near = lambda v: pytest.approx(v, rel=1e-4)
    w, start = r.state["server"]["w"], fed.state["server"]["w"]
    mine = [flatness.own("PLGU-LF", r.state, i) for i in range(3)]
    loss = [landscape.data_loss(task, rows) for rows in task.train]
    sharp = lf["sharpness"]
    for view, models in ((flatness.ALONE, [w] * 3), (flatness.OWN, mine)):
        want = np.mean([float(loss[i](models[i])) for i in (0, 2)])
        assert sharp[view]["train_loss"] == near(want)
    who = flatness.places(r["pre", "personal", "test"][-1])
    assert lf["who"] == who
    for place, i in who.items():
        z = lf["surfaces"][flatness.OWN, place]
        assert z.shape == (5, 5) and z[2, 2] == near(float(loss[i](mine[i])))
    mean = lf["surfaces"][flatness.ALONE, "mean"]
    each = [float(f(w)) for f in loss]
    assert mean.shape == (3, 3) and mean[1, 1] == near(np.mean(each))
    found = paths.measure_all([pair], 1, **size, fine=3)[0]
    own = found["own"]["PLGU-LF", "train"]
    assert own.shape == (3, 5) and own[:, 2] == near(each)  # w lies in the middle
    both = paths.everybody(task, "test", 40)
    assert found["between"]["PLGU-LF", "test"][2] == near(float(both(start)))
    up = found["uphill"]["PLGU-LF"]
    assert up[1] < up[2] < up[3] and set(found["uphill"]) == {"FedAvg", "PLGU-LF"}
    some = {("FedAvg", ""), ("PLGU-LF", ""), ("PLGU-LF", "median")}
    assert set(found["curved"]) == some
    assert paths.measure(pair, **size, fine=3, draw=())["curved"] == {}


# ---------------------------------------------------------------- what a round costs
def test_bytes_and_gradients_of_a_round():
    task = {"network": {"name": "MLP", "hidden": 3}}
    body, head = 4 * (60 * 3 + 3), 4 * (3 * 10 + 10)
    sizes = {"FedAvg": body + head, "FedPer": body, "Local": 0, "LG-FedAvg": head}
    sent = {k: (v + 4, v) for k, v in sizes.items()}  # and the number of rows
    n = {}
    for method in (*sent, "Ditto", "FedSAM", "AFL"):
        c = cell(method, task=task, lr=0.1, epochs=2)
        n[method] = cost.gradients(c)
        if method in sent:
            m = compute.make.make(method, compute.task_of(c.task, 0, "d"), lr=0.1)
            got = cost.bytes_per_round(m)
            assert (got["bytes_up"], got["bytes_down"]) == sent[method], method
    toys = FedAvg(toy()), Noisy(toy())  # the latter asks for a number with a number
    plain, asks = (cost.bytes_per_round(m) for m in toys)
    assert {k: asks[k] - plain[k] for k in plain} == {"bytes_up": 8, "bytes_down": 8}
    assert n["Ditto"] == n["FedSAM"] == 2 * n["FedAvg"] == 2 * n["Local"]
    assert n["AFL"] == n["FedAvg"]  # its look at the loss takes no gradient
    batches = -(-len(compute.task_of(c.task, 0, "d").train[0]) // 32)
    assert n["FedAvg"] == 2 * batches


def test_the_time_of_a_round_beside_that_of_the_reference(monkeypatch):
    """By a clock that a round moves, and an evaluation."""
    now = [0.0]

    @dataclass(frozen=True)
    class Ticking(FedAvg):
        cost: float = 2.0

        def views(self, down, mine, shard):
            now[0] += 1
            return super().views(down, mine, shard)

        def aggregate(self, server, up, r):
            now[0] += self.cost
            return super().aggregate(server, up, r)

    clock = types.SimpleNamespace(process_time=lambda: now[0])
    monkeypatch.setattr("fedlib.study.cost.time", clock)
    made = {"a": Ticking(toy()), "b": Ticking(toy(), cost=6.0)}
    assert cost.time_ratios(made["a"], made, 2) == {"a": [1, 1], "b": [3, 3]}
    made = {
        "seconds_over_fedavg": 2,
        "bytes_up": 44,
        "bytes_down": 40,
        "ratios": [1, 3],
    }
    table = pd.DataFrame.from_dict({"m": made}, orient="index")
    rows = cost.rows(table, "toy", "d", "real", "tiny")
    got = [(r.metric, r.seed, r.value, r.tier) for r in rows.itertuples()]
    want = [("seconds_over_fedavg", k, v, "tiny") for k, v in ((0, 1), (1, 3))]
    assert got == [*want, ("bytes_up", 0, 44, "exact"), ("bytes_down", 0, 40, "exact")]
