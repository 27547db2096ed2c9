"""Clients that are not in this process: the same bits, through six verbs."""

import pytest
import torch
from toys_core import GROUPS, Normed, same, seen, state, toy

from fedlib.core import engine
from fedlib.core.clients import Clients, cohort_of
from fedlib.core.tree import pick, tmap
from fedlib.methods.make import make

R = 3
RUN = {"rounds": R, "seed": 1, "cohort": 3, "every": 2, "how": "loop", "device": "cpu"}
METHODS = "FedAvg Ditto FedRep FedFB PLGU-LF SCAFFOLD FedBN".split()


class Elsewhere:
    """Clients of round t whose state is in `kept`; the engine has one number of each.
    away: {round: who does not answer to "local"}."""

    def __init__(self, fed, t, kept, away=()):
        self.t, self.kept, self.away = t, kept, dict(away).get(t, ())
        self.near = Clients(fed.method, fed.task, fed.seed, t, fed.R, "loop", None)
        self.shards = self.near.shards

    def each(self, f, trees, at_hand, stage):
        assert stage == "client"
        self.kept.update(self.near.each(f, trees, at_hand, stage))
        return {"steps": torch.zeros(len(at_hand[0]))}

    def keep(self, f, down, clients, at_hand, stage):
        ids = at_hand[0]
        here = self.present(ids) if stage == "local" else ids
        at = [i for i, c in enumerate(ids.tolist()) if c in here]
        if clients:
            clients["steps"][here] += 1
        there = self.near.shards(here)
        return self.near.keep(f, pick(down, at), self.kept, there, stage)

    def ask(self, question, tree, clients, at_hand):
        return self.near.ask(question, tree, self.kept, at_hand)

    def score(self, method, down, clients, at_hand, *rest):
        mine = pick(self.kept, at_hand[0])
        return self.near.score(method, down, mine, at_hand, *rest)

    def present(self, ids):
        return ids[[c not in self.away for c in ids.tolist()]]


def elsewhere(method, away=(), **more):
    kept = {}
    record = engine.run(method, reach=lambda f, t: Elsewhere(f, t, kept, away), **more)
    record.state["clients"] = tmap(torch.clone, kept)
    return record


@pytest.mark.parametrize("name", METHODS)
def test_clients_elsewhere_give_the_same_bits(name, tmp_path):
    network = Normed(5, 6, 3) if name == "FedBN" else None
    method = make(name, toy(network, groups=GROUPS))
    more = RUN | ({"cohort": None, "own": True} if name == "Ditto" else {})
    want = engine.run(method, **more)
    got = elsewhere(method, **more)
    assert same(seen(got), seen(want)) and same(state(got), state(want))
    assert got.meta["bytes"] == want.meta["bytes"]


def test_who_does_not_answer_is_as_if_not_drawn():
    method = make("Ditto", toy())
    drawn = lambda t: cohort_of(method, method.task, RUN["seed"], t, RUN["cohort"])
    gone = int(drawn(1)[1])
    without = lambda t: drawn(t)[(drawn(t) != gone) | (t != 1)]
    want = engine.run(method, **RUN | {"cohort": without})
    got = elsewhere(method, {1: (gone,)}, **RUN)
    assert same(seen(got), seen(want)) and same(state(got), state(want))
