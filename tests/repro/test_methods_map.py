"""The map of methods: every limit that it prints is computed, and its rows come from
the classes themselves.
"""

import csv
import importlib

import pytest
import torch
from toys_core import GROUPS, gap, toy
from where import ROOT

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


def test_what_is_declared_is_of_methods_of_ours_each_limit_once():
    assert set(FAVOURS) <= set(METHODS) - METHODS.added
    assert len({(x.method, x.said, x.gives) for x in LIMITS}) == len(LIMITS)
    assert {x.method for x in LIMITS} | {x.gives for x in LIMITS} <= set(FAVOURS)


# the rows


@pytest.fixture(scope="module")
def fedmap():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "book/_ext"))
        yield importlib.import_module("fedmap")


def bytes_table():
    with (ROOT / "results/bytes.csv").open(encoding="utf-8") as f:
        return list(csv.DictReader(f))


def test_the_lines_that_a_class_changes_are_those_it_overrides(fedmap):
    lines = {n: fedmap.changed(METHODS[n]) for n in METHODS}
    assert lines["FedAvg"] == [] and lines["Uniform"] == ["the weights"]
    assert lines["FedProx"] == lines["FedSAM"] == ["local training"]
    assert "when it starts" in lines["FedGA"] and "what is sent" in lines["SCAFFOLD"]
    assert lines["FedAvgM"] == ["the average", "what the server keeps"]
    assert lines["Gaussian-update"] == lines["EquFL"] == lines["FedAvgM"]
    everybody = [n for n in METHODS if any("every client" in x for x in lines[n])]
    assert set(everybody) == {n for n in METHODS if METHODS[n].who == "all"}


def test_traffic_is_that_of_the_counted_messages(fedmap):
    table = bytes_table()
    more = lambda name: fedmap.traffic(table, name)
    assert more("FedAvg") == more("Ditto") == ([], "as FedAvg")
    assert more("FedGA") == (["acc (4\u202fbytes)"], "1.00\u202f× up, 1.00\u202f× down")
    assert more("SCAFFOLD")[1] == "2.00\u202f× up, 2.00\u202f× down"
    assert more("FedPer")[0] == ["a part of the model only"]
    assert more("Local")[0] == ["no model"] and more("nobody's") == ([], "not counted")
    weights = fedmap.counted(table, "FedAvg", "up")["w"] / 4
    assert f"{weights:,.0f} weights" in (ROOT / "book/methods_map.md").read_text(
        "utf-8"
    )


def test_a_method_of_another_package_gets_a_row_without_what_is_declared(fedmap):
    class Stranger(METHODS["FedAvg"]):
        def weights(self, up):
            return up["n"]

    Stranger.__module__ = "elsewhere.stranger"
    assert fedmap.family(Stranger) is None and fedmap.family(METHODS["TERM"]) == "fair"
    assert fedmap.changed(Stranger) == ["the weights"]
    assert fedmap.explained("Stranger", Stranger, {"page": "FedAvg alone"}) is None


def test_the_page_that_explains_a_method_is_found_by_its_source(fedmap):
    texts = fedmap.pages(ROOT / "book")
    at = {n: fedmap.explained(n, c, texts) for n, c in METHODS.items()}
    assert at["FedAvg"] == "one_round" and at["FedAS"] == "fedas"
    assert at["FedAdam"] == "drift" and at["FedFV"] == "conflict"
