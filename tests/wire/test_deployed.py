"""What is deployed is what was simulated, whoever is away or restarted."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toys_clip import toy_towers
from toys_core import same, seen
from toys_wire import SIZES, Parties, R, absent, agree, at, build, member, simulated

from fedlib.core.tree import leaves, tmap
from fedlib.deploy import server
from fedlib.deploy.client import ABOUT
from fedlib.deploy.rows import NoRows
from fedlib.deploy.server import TooFew, serve
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg

APART = ("Centralised", "FedAS-chained")  # their servers look into rows
TWICE = ("pFedHN", "pFedHN-chunked", "PLGU-GHN", "FedPAC")
pytestmark = pytest.mark.filterwarnings("ignore:the server's network agrees")


def build_any(name):
    if name in ("FedCLIP", "PromptFL"):
        network = "Adapter" if name == "FedCLIP" else "Prompts"
        return build(name, toy_towers(3, 5, network=network, sizes=SIZES)[1])
    return build(name, **({"rho": 0.3} if name == "EquFL" else {}))


@pytest.mark.parametrize("name", [m for m in METHODS if m not in APART])
def test_every_method_deployed_is_simulated(name):
    """One message for each client and round, but where each gets its own download."""
    method = build_any(name)
    more = {"own": True, "cohort": None} if name == "Ditto" else {}
    parties, record = Parties(method, **more).serve(), simulated(method, **more)
    agree(parties, record)
    assert not parties.left()
    for k in ("bytes", "tensors", "parameters", "method", "rounds", "seed", "clients"):
        assert parties.record.meta[k] == record.meta[k], k
    turns = [(t, c) for t, c, about in parties.asked if not about["question"]]
    assert (len(turns) > len(set(turns))) == (name in TWICE)


@pytest.mark.parametrize("name", APART)
def test_what_cannot_be_deployed_says_why(name):
    with pytest.raises(NoRows, match="only a simulation"):
        Parties(build(name)).serve()


late = lambda out: None
endless = lambda x: x.index_fill(0, torch.tensor(0), math.inf)
up = lambda change: lambda out: out | {"up": out["up"] | change(out["up"])}
FAULTS = {
    "late": late,
    "no tree": lambda out: ["w"],
    "fails": lambda out: 1 / 0,
    "a name more": up(lambda u: {"v": u["n"]}),
    "a name less": lambda out: out | {"up": {"n": out["up"]["n"]}},
    "infinite": up(lambda u: {"w": tmap(endless, u["w"])}),
    "shape": up(lambda u: {"w": tmap(lambda x: x[None], u["w"])}),
    "type": up(lambda u: {"w": tmap(torch.Tensor.float, u["w"])}),
    "rows": up(lambda u: {"n": u["n"] + 1}),
    "tensor for a tree": up(lambda u: {"w": u["n"]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_spoilt_answer_is_as_none(fault):
    """As if the client had not been drawn: it goes on from what it had before."""
    method = build("Ditto")
    c, more = member(method, 1), {"every": 3}
    parties = Parties(method, spoil=at(c, 1, FAULTS[fault]), **more)
    agree(parties.serve(), simulated(method, cohort=absent(method, c, 1), **more))
    assert parties.left() == [(c, 1)]


def test_answers_above_the_limit():
    with pytest.raises(TooFew, match="bytes, and the limit is 8"):
        Parties(build("FedAvg"), limit=8).serve()


def test_nobody_speaks_for_another():
    method = build("FedFa")
    c, other = member(method, 1), up(lambda u: {"cid": (u["cid"] + 1) % 4})
    parties = Parties(method, spoil=at(c, 1, other)).serve()
    assert parties.left() == [(c, 1)] and "'cid'" in parties.lines[0]
    agree(parties, simulated(method, cohort=absent(method, c, 1)))


def test_a_client_that_only_receives_and_is_away():
    method = build("FedPer-online")
    c = member(method, 1)
    parties = Parties(method, spoil=at(c, 1, kind="receive"))
    agree(parties.serve(), simulated(method, cohort=absent(method, c, 1)))


def test_scores_that_cannot_be_right():
    """Its accuracy is missing, whatever it claimed, and it is out of the round."""
    method, k = build("Ditto"), ("pre", "personal", "test")
    c = member(method, 2)
    record = simulated(method, cohort=absent(method, c, 2))
    pre = lambda out, **new: out | {"pre": out["pre"] | new}
    all_ = lambda v, acc: tmap(lambda x: x * 0 + v, acc)
    claim = lambda v: lambda out: pre(out, acc=all_(v, out["pre"]["acc"]))
    for fault in (late, claim(1.1), claim(-0.1), claim(math.nan)):
        parties = Parties(method, spoil=at(c, 2, fault, "score")).serve()
        agree(parties, record, but=("pre", "post", "cells"))
        mine, theirs = parties.record[k], record[k]
        assert np.isnan(mine).sum() == 1 and np.isnan(mine[1, c])
        assert (np.isnan(mine) | (mine == theirs)).all()
        assert all((n[1, c] == 0).all() for n in parties.record.cells.values())
        assert parties.left() == [(c, 2)]


def test_a_round_that_too_few_answer_is_asked_again(monkeypatch, tmp_path):
    """As if nothing had happened, nothing counted twice; or by a new start, later."""
    monkeypatch.setattr(server, "PAUSES", (0, 0))

    def once(times, t=1, part="train"):
        todo = {(c, k) for c in range(4) for k in range(times)}

        def spoil(c, about, out):
            if about["t"] != t or not about[part]:
                return out
            hit = next((x for x in sorted(todo) if x[0] == c), None)
            todo.discard(hit)
            return None if hit else out

        return spoil

    for name, part in (("FedPer", "train"), ("Ditto", "score"), ("FedFB", "question")):
        method = build(name)
        spoil = once(2, 2, part)
        parties = Parties(method, spoil=spoil, patience=60, minimum=2).serve()
        agree(parties, simulated(method))
        assert not parties.left() and "Asked again" in parties.lines[0], name
    method = build("Ditto")
    parties = Parties(method, tmp_path / "c", spoil=once(10**3))
    with pytest.raises(TooFew, match=r"round 1: 0 of 1 .*client \d: no answer"):
        parties.serve(tmp_path / "s")
    parties.spoil = None
    agree(parties.serve(tmp_path / "s"), simulated(method))
    again = serve(parties.fed, parties, tmp_path / "s")  # it is done: nobody is asked
    assert same(seen(again), seen(parties.record))


def test_methods_that_need_everybody_wait_for_everybody():
    method = build("AFL")
    c = member(method, 1)
    with pytest.raises(TooFew, match=f"3 of 4 .*client {c}"):
        Parties(method, spoil=at(c, 1)).serve()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("name", ("FedRep", "FedFB", "FedPer-online", "FedPAC"))
def test_the_server_is_killed_after_every_exchange(name, tmp_path):
    """Every client is started anew for each message, too; the bits are the same."""
    method, killed = build(name), set()
    parties = Parties(method, tmp_path / "clients", every=1)

    class Mortal:
        n = parties.n

        def __call__(self, requests, wait):
            out = parties(requests, wait)
            what = str([(c, about["t"], about) for c, (about, _) in requests.items()])
            if what in killed:
                return out
            killed.add(what)
            raise Killed

    while True:
        try:
            parties.record = serve(parties.fed, Mortal(), tmp_path / "s", print)
            break
        except Killed:
            pass
    agree(parties, simulated(method, every=1))
    assert len(killed) > R
    assert len([*(tmp_path / "clients").glob("*")]) in (0, 4)


@dataclass(frozen=True)
class Leaks(FedAvg):
    """Its question asks for numbers among which there is a row."""

    def peek(self, tree, mine, shard):
        x = shard.all().x
        return {"x": torch.cat([x[:4] + 1, x[-1:]])[None]}


def test_what_is_no_question_or_would_tell_a_row_is_refused(monkeypatch):
    monkeypatch.setitem(METHODS, "Leaks", Leaks)
    client = Parties(build("Leaks")).clients[0]
    down = {"w": client.method.task.init(0)}
    for name in ("local", "receive", "fit", "_rows", "__init__", "inner.local", "peek"):
        said = "row" if name == "peek" else "no question"
        with pytest.raises(ValueError, match=said):
            client.answer({"t": 0, "question": name}, down)
    for t in (-2, R + 1):
        with pytest.raises(ValueError, match=f"round {t}"):
            client.answer({"t": t, "train": True}, down)


def test_what_a_client_keeps_is_its_own(tmp_path):
    """Damaged, another's, of another federation, lost: refused, with its name."""
    parties = Parties(build("Ditto"), tmp_path, rounds=1, cohort=0).serve()
    path = next(tmp_path.glob("client-0-*"))
    right, run = path.read_bytes(), path.name.split("-")[-1]
    down = {"w": parties.tasks[0].init(0)}
    train = ABOUT | {"t": 0, "train": True, "run": run}
    want = parties.start(0).answer(train, down)
    assert same(want, parties.start(0).answer(train, down)), "the same again"
    assert leaves(parties.start(0).read(run))
    path.write_bytes(right[:-8] + b"damaged!")
    with pytest.raises(ValueError, match="client-0.*damaged"):
        parties.start(0).answer(train, down)
    path.write_bytes((tmp_path / f"client-1-{run}").read_bytes())
    with pytest.raises(ValueError, match="belongs to .*'client': 1"):
        parties.start(0).answer(train, down)
    path.unlink()
    with pytest.raises(ValueError, match=r"client 0 keeps .*goes on from 4"):
        parties.start(0).answer(train | {"t": 1, "on": 4, "done": 4}, down)
    other = Parties(build("Ditto", lam=0.3), tmp_path, rounds=1, cohort=0)
    with pytest.raises(ValueError, match="federation"):
        other.start(1).answer(train, down)
