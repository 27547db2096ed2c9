"""Stages that are recorded and replayed, on a processor without a graph: the same bits
as without, whoever takes part, wherever a run was stopped."""

from dataclasses import dataclass, replace

import pytest
import torch
from test_round import Broken, Looks, run, task
from toys_core import Normed, same, seen, state, toy
from where_round import Half, HalfAll

from fedlib.core import recorded
from fedlib.core.clients import mode
from fedlib.core.errors import Diverged
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.base.tuned import Tuned
from fedlib.nets import CNN, MLP, Linear
from fedlib.pieces.steps import SAM, Private

STEEP = {"lr": 0.3, "epochs": 2, "momentum": 0.5, "decay": 0.05}
CASES = {  # a network without a closed form, and those with one
    "batch norm": lambda: Half(task(Normed(5, 6, 3)), **STEEP),
    "softmax": lambda: FedAvg(task(Linear(5, 3)), **STEEP),
    "two layers": lambda: HalfAll(task(MLP(5, (6, 4), 3)), **STEEP),
    "noise": lambda: Half(task(), step=Private(0.3, 0.7)),
    "sharpness": lambda: FedAvg(task(), step=SAM(0.5), batches=3, last="drop"),
    "tuned": lambda: Tuned(task(), inner=FedAvg(task(), shuffle=False), tune=1),
}
uneven = [[5, 1], [], [3, 0, 2, 4], [1, 4], [2, 5], [0, 3]].__getitem__


@pytest.fixture
def replays(monkeypatch):
    """Stages are recorded from here on; how often each was replayed."""
    met, call = [], recorded.Recording.__call__
    counted = lambda self, *args: met.append(self) or call(self, *args)
    monkeypatch.setitem(recorded.MODE, "cpu", "eager")
    monkeypatch.setattr(recorded.Recording, "__call__", counted)
    return met


def both(make, monkeypatch, **more):
    """The records of a run as ever, and of one whose stages are recorded."""
    with monkeypatch.context() as m:
        m.setitem(recorded.MODE, "cpu", None)
        plain = run(make(), **more)
    return plain, run(make(), **more)


@pytest.mark.parametrize("case", CASES)
def test_a_replay_gives_the_same_bits(case, replays, monkeypatch):
    for how, cohort in (("vmap", None), ("vmap", uneven), ("loop", 4)):
        more = {"how": how, "cohort": cohort, "rounds": 4, "every": 3, "guests": True}
        del replays[:]
        a, b = both(CASES[case], monkeypatch, **more)
        assert same(state(a), state(b)) and same(seen(a), seen(b)), (how, cohort)
        assert "refused" not in b.meta and len(replays) > len({*map(id, replays)})
        assert a.meta["tensors"] == b.meta["tensors"], (how, cohort)


@dataclass(frozen=True)
class Sorted(FedAvg):
    """Looks at a number of the model: what is recorded cannot."""

    def local(self, down, mine, shard):
        steep = bool(torch.as_tensor(shard.t) > 1)
        w = self.fit(self.loss, down["w"], shard, 2 * self.lr if steep else self.lr)
        return mine, {"w": w, "n": shard.n}


def test_what_cannot_be_recorded_runs_as_ever(replays, monkeypatch):
    monkeypatch.setattr(recorded, "LONGEST", 9)
    for make, how, why in (
        (lambda: Sorted(toy(), lr=0.1), "vmap", "number"),
        (lambda: FedAvg(toy(), poisson=True), "vmap", "chance"),
        (lambda: FedAvg(toy(), batches=10), "loop", "steps"),
        (lambda: Looks(toy()), None, "vmap"),
    ):
        a, b = both(make, monkeypatch, how=how)
        assert same(state(a), state(b)) and same(seen(a), seen(b)), why
        assert why in b.meta["refused"]["local"], why


def test_a_round_late_a_model_that_is_not_finite_is_still_named(replays, monkeypatch):
    k = {"how": "loop", "cohort": lambda t: [5, 3, 1], "every": 3}
    met, bad = [], lambda: Broken(toy(), event="diverge")
    for way in (None, "eager"):
        monkeypatch.setitem(recorded.MODE, "cpu", way)
        with pytest.raises(Diverged) as e:
            run(bad(), rounds=4, **k)
        met.append(e.value)
    a, b = met
    assert (b.client, b.round) == (a.client, a.round) == (3, 1)
    assert same(seen(a.record), seen(b.record))


def test_large_convolutions_go_one_after_another_on_a_gpu():
    gpu, x = torch.device("cuda"), torch.zeros(len(toy().x), 3, 8, 8)
    of = lambda widths: replace(toy(), network=CNN(3, 3, widths), x=x)
    assert mode(of((4, 8)), gpu) == "vmap" == mode(toy(), gpu)
    assert mode(of((512, 256)), gpu) == "loop"
