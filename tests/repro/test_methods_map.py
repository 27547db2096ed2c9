"""The map of methods: every limit that it prints is computed, and its rows come from
the classes themselves.
"""

import pytest
import torch
from toys_core import GROUPS, gap, toy

from fedlib.core.engine import run
from fedlib.core.tree import pick
from fedlib.methods import METHODS
from fedlib.methods.limits import FAVOURS, LIMITS
from fedlib.methods.make import make

SAME, OTHER = 1e-6, 1e-5  # models closer than the one, farther apart than the other


def served(name, view, everybody, rounds, **settings):
    """{name: tensor} of what a method serves its clients on the toy after some rounds:
    the models that its server sends, or the answers of a view on test rows.
    """
    task = toy(groups=GROUPS)
    m = make(name, task, lr=0.2, **settings)
    rec = run(m, rounds=rounds, cohort=None if everybody else 4, device="cpu")
    ids = torch.arange(task.C)
    down = m.send(rec.state["server"], ids)
    if view is None:
        return {k: v for k, v in down["w"].items() if k in task.init(0)}
    answers = []
    for i, shard in enumerate(task.shards(0, rounds, rounds, ids, m.plans())):
        d = pick(down, i)
        mine = m.receive(d, pick(rec.state["clients"], i), shard)
        answers.append(m.views(d, mine, shard)[view](shard.all("test").x))
    return {"answers": torch.stack(answers)}


def distance(limit, a, b, rounds):
    """How far the limit's method with settings a is from the other one with b."""
    everybody = any(METHODS[m].who == "all" for m in (limit.method, limit.gives))
    mine, its = limit.views or (None, None)
    one = served(limit.method, mine, everybody, rounds, **a)
    other = served(limit.gives, its, everybody, rounds, **b)
    assert set(other) <= set(one)
    return gap({k: one[k] for k in other}, other)


@pytest.mark.parametrize("limit", LIMITS, ids=lambda x: f"{x.method}-{x.gives}")
def test_a_limit_gives_the_other_method_and_other_settings_do_not(limit):
    at = limit.at | limit.both
    assert distance(limit, at, limit.both, limit.rounds) < SAME
    assert distance(limit, limit.unlike, {}, 4) > OTHER


def test_whom_a_method_favours_is_said_of_all_of_ours_and_of_nothing_else():
    assert set(FAVOURS) == set(METHODS) - METHODS.added
    assert {x.method for x in LIMITS} | {x.gives for x in LIMITS} <= set(FAVOURS)
