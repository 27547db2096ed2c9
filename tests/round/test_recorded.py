"""Stages that are recorded, on a processor without a graph; test_round asks for bits."""

from dataclasses import replace

import pytest
import torch
from test_round import Broken, run
from toys_core import same, seen, state, toy

from fedlib.core import recorded
from fedlib.core.clients import mode
from fedlib.core.errors import Diverged
from fedlib.methods.base.fedavg import FedAvg
from fedlib.nets import CNN


def both(make, **more):
    """[a run as ever, one whose stages are recorded], or what they raise."""
    for way in (None, "eager"):
        with pytest.MonkeyPatch.context() as m:
            m.setitem(recorded.MODE, "cpu", way)
            try:
                yield run(make(), every=3, **more)
            except Diverged as e:
                yield e


def test_what_cannot_be_recorded_runs_as_ever(monkeypatch):
    monkeypatch.setattr(recorded, "LONGEST", 9)
    a, b = both(lambda: FedAvg(toy(), batches=10), how="loop")
    assert same(state(a) | seen(a), state(b) | seen(b))
    assert "10 steps" in b.meta["refused"]["local"]


def test_a_stage_is_recorded_once(monkeypatch):
    met, call = [], recorded.Recording.__call__
    counted = lambda self, *args: met.append(self) or call(self, *args)
    monkeypatch.setattr(recorded.Recording, "__call__", counted)
    cohort = [[0, 5], [2, 4], [3, 1], []].__getitem__  # of 3, 3 and 5 steps at most
    [*both(lambda: FedAvg(toy()), how="vmap", cohort=cohort)]
    assert len(met) == 3 and met[0] is met[1] is not met[2]


def test_a_model_that_is_not_finite_is_named_a_round_late():
    bad = lambda: Broken(toy(), event="diverge")
    a, b = both(bad, how="loop", cohort=lambda t: [5, 3, 1])
    assert (b.client, b.round) == (a.client, a.round) == (3, 1)
    assert same(seen(a.record), seen(b.record))


def test_large_convolutions_go_one_after_another_on_a_gpu():
    x = torch.zeros(len(toy().x), 3, 8, 8)
    of = lambda *widths: replace(toy(), network=CNN(3, 3, widths), x=x)
    found = [mode(t, torch.device("cuda")) for t in (toy(), of(512, 256))]
    assert found == ["vmap", "loop"]
