"""The benchmarks compare loops that compute the same. Nothing is timed here."""

import sys
from dataclasses import replace

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
    cut = lambda s: tuple(r[:25] for r in getattr(c.task, s))
    c = replace(
        c, task=replace(c.task, **{s: cut(s) for s in ("train", "val", "test")})
    )
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
