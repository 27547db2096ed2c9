"""The benchmarks compare loops that compute the same, and fit what is known. Nothing is
timed here.
"""

import sys
from dataclasses import replace

import pandas as pd
import pytest
import torch
from where import ROOT

sys.path.insert(0, str(ROOT))


def test_a_round_of_each_loop_is_that_of_fedlib():
    """In float64, of every method by hand; what is a little off is refused."""
    from benchmarks import methods, rounds
    from benchmarks.cases import case
    from benchmarks.ours import after
    from benchmarks.usual import Usual, difference

    c = case("synthetic-mlp")
    few = {
        s: tuple(r[:25] for r in getattr(c.task, s)) for s in ("train", "val", "test")
    }
    c = replace(c, task=replace(c.task, **few))
    rounds.agree(c)
    off = Usual(replace(c, lr=1.05 * c.lr), batch=10**6)
    off.round(torch.arange(2))
    assert difference(after(c, "loop", 2).values(), off.model.parameters()) > 1e-4
    changes = {"FedProx": {"mu": 0.2}, "Ditto": {"lam": 0.5}, "FedGA": {"alpha": 2.0}}
    changes |= {"FedRep": {"head_epochs": 4}, "FedAS": {"align_lr": 0.02}}
    for name, own in methods.METHODS.items():
        methods.agree(c, name)
        if name in changes:
            with pytest.MonkeyPatch.context() as m, pytest.raises(SystemExit):
                m.setitem(methods.METHODS, name, replace(own, loop_hp=changes[name]))
                methods.agree(c, name)
    linear = case("synthetic-30")
    assert sum(methods.suits(m, linear) for m in methods.METHODS) == 4
    turn = [next(draw) for draw in [linear.cohorts()] for _ in range(6)]
    for three in (turn[:3], turn[3:]):  # all are drawn once before one is drawn again
        assert torch.cat(three).sort().values.tolist() == [*range(30)]


def test_rates_and_operations_are_counted():
    from benchmarks import clock, floor
    from benchmarks.cases import case

    rows = clock.summary({"a": [10, 20, 30], "b": [20, 60, 60]}, "a")
    assert [r["times_loader"] for r in rows] == [1, 2]
    assert (rows[0]["low"], rows[0]["high"], rows[1]["rounds_per_cpu_s"]) == (
        10,
        30,
        60,
    )
    order, now = [], [0.0]

    def variant(name, cost):
        def f(n):
            order.append((name, n))
            now[0] += n * cost

        return f

    both = {"slow": variant("slow", 0.5), "quick": variant("quick", 0.1)}
    rates = clock.interleave(both, 3, 1.0, clock=lambda: now[0])
    assert rates == {"slow": pytest.approx([2] * 3), "quick": pytest.approx([10] * 3)}
    assert order[4:] == [("slow", 2), ("quick", 10)] * 3
    assert floor.flops(case("synthetic-30")) == pytest.approx(2 * 2 * 60 * 10)


def test_growth_is_fitted_on_the_upper_range():
    from benchmarks.growth import __main__ as growth
    from benchmarks.growth import fits, points, seeds

    def line(method, f, noise):
        for x in (10**k for k in range(7)):
            v = [f(x) * k for k in noise]
            told = dict(axis="clients", method=method, measure="round", x=x, clients=10)
            told |= dict(median=v[0], low=min(v), high=max(v), repetitions=len(v))
            yield told | {"mib": x / 1000, "each": " ".join(map(repr, v))}

    some = [*line("a", lambda x: 5 + x**0.5, (1.0, 1.1))]
    some += line("b", lambda x: 3 * x, (1.0,))
    f = fits(pd.DataFrame(some, columns=growth.COLUMNS))
    f = f.set_index(["method", "measure"])
    a, b = f.loc["a", "round"], f.loc["b", "round"]
    assert a.exponent == pytest.approx(0.5, abs=0.02)
    assert (a["from"], a.points) == (1000, 4)
    assert a.fixed == pytest.approx(5, rel=0.15) and a.low <= a.exponent <= a.high
    assert b.exponent == pytest.approx(1) and b.at_one == pytest.approx(3)
    assert pd.isna(b.fixed) and f.loc["a", "mib"].exponent == pytest.approx(1)
    assert [points.parameters(n) for n in ("softmax", "mlp-1")] == [610, 805]
    task = points.task_of(points.Point("seeds", "FedAvg", 2, 12)).double()
    many = seeds.stacked(task, seeds.copies(task, 2), 2, 2, "vmap", shuffle=False)
    for s in range(2):
        one = seeds.single(task, s, 2, shuffle=False).state["server"]["w"]
        w = {k: v[s] for k, v in many.state["server"]["w"].items()}
        assert all(torch.allclose(w[k], one[k], atol=1e-12) for k in one)


def test_a_sample_of_the_evidence_is_spread_over_its_strata():
    from benchmarks import evidence
    from fedlib.study.studies import Cell

    cell = lambda m, s: Cell("a", "a", m, "", s, "real", "{}", "{}", "{}")
    todo = [cell(f"m{i}", s) for i in range(4) for s in range(5)]
    for n in (1, 3, 10, 99):
        got = evidence.sample("a/b", todo, n)
        assert len(set(got)) == len(got) == min(n, 20) and set(got) <= set(todo)
        assert got == evidence.sample("a/b", todo[::-1], n)
    ten = {c.method for c in evidence.sample("a/b", todo, 10)}
    assert ten == {c.method for c in todo}
