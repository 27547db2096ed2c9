"""The benchmarks compare loops that compute the same, and fit what is known. Nothing is
timed here.
"""

import sys
from dataclasses import replace

import pytest
import torch
from where import ROOT

sys.path.insert(0, str(ROOT))


def test_a_round_of_each_loop_is_that_of_fedlib():
    """In float64, of every method by hand; what is a little off is refused."""
    from benchmarks import rounds
    from benchmarks.cases import case
    from benchmarks.rounds import METHODS, agree

    c = case("synthetic-mlp")
    few = {
        s: tuple(r[:25] for r in getattr(c.task, s)) for s in ("train", "val", "test")
    }
    c = replace(c, task=replace(c.task, **few))
    agree(c, hows=rounds.ways(c))
    changes = {"FedProx": {"mu": 0.2}, "Ditto": {"lam": 0.5}, "FedGA": {"alpha": 2.0}}
    changes |= {"FedRep": {"head_epochs": 4}, "FedAS": {"align_lr": 0.02}}
    for name, own in METHODS.items():
        agree(c, name)
        if name in changes:
            with pytest.MonkeyPatch.context() as m, pytest.raises(SystemExit):
                m.setitem(METHODS, name, replace(own, loop_hp=changes[name]))
                agree(c, name)
    linear = case("synthetic-30")
    assert sum(rounds.suits(m, linear) for m in METHODS) == 4
    turn = [next(draw) for draw in [linear.cohorts()] for _ in range(6)]
    for three in (turn[:3], turn[3:]):  # all are drawn once before one is drawn again
        assert torch.cat(three).sort().values.tolist() == [*range(30)]
