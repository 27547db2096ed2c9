"""What is deployed is what was simulated, to the bit: undisturbed, with clients that are
away or answer nonsense, and with servers and clients that are started again.
"""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toys_core import same
from toys_wire import (
    M,
    Parties,
    R,
    about,
    absent,
    agree,
    at,
    build,
    member,
    scores,
    simulated,
)

from fedlib.core.tree import tmap
from fedlib.deploy import server
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.groups.fedfb import FedFB

KINDS = {  # what makes each of them another kind
    "FedAvg": {"step": {"name": "SAM", "rho": 0.1}, "rule": "Median"},
    "SCAFFOLD": {},  # state at the server and at clients
    "FedAdam": {},  # state at the server
    "Ditto": {},  # a model of one's own, scored after training
    "FedRep": {},  # all clients download, and keep a head
    "FedPer-online": {},  # the cohort downloads
    "FedFB": {},  # asks those that have trained
    "FAA": {},  # needs and asks all clients
    "FedBN": {},  # batch norm
    "FedFa": {},  # its uploads say whose they are
    "EquFL": {"inner": {"name": "FedProx", "mu": 0.5}, "rho": 0.3},  # one in another
    "FFT-GP": {},  # two phases
}
pytestmark = pytest.mark.filterwarnings("ignore:the server's network agrees")


@pytest.fixture
def at_once(monkeypatch):
    """A round that fails has one more try, and no pause before it."""
    monkeypatch.setattr(server, "PAUSES", (0,))


# ---------------------------------------------------------------- undisturbed
@pytest.mark.parametrize("name", KINDS)
def test_deployed_is_simulated(name):
    more = {"cohort": None, "own": True} if name == "Ditto" else {}
    method = build(name, **KINDS[name])
    parties, record = Parties(method, **more).serve(), simulated(method, **more)
    agree(parties, record)
    mine, theirs = parties.record.meta, record.meta
    for k in ("bytes", "tensors", "parameters", "method", "rounds", "seed", "clients"):
        assert mine[k] == theirs[k], k
    assert all(mine["n"][s] == theirs["n"][s] for s in ("train", "val", "test"))
    assert not parties.left()
    ids = record.logs["cohort"][1].tolist()
    asked = [x for x in parties.asked if x[0] in ("receive", "local") and x[1] == 1]
    trained = [c for kind, _, c, *_ in asked if kind == "local"]
    assert trained == [c for c in ids if c >= 0]
    # nobody is scored in round 1, so these messages bring the model and the upload, once
    for k, way in ((3, "down"), (4, "up")):
        told = sum(v["bytes"] for v in mine["bytes"][way].values())
        assert {sum(x[k] for x in asked if x[2] == c) for c in trained} == {told}


# ---------------------------------------------------------------- clients that fail
def numbers(f):
    return lambda out: out | {"w": {k: f(v) for k, v in out["w"].items()}}


def late(out):
    return None


FAULTS = (
    late,
    numbers(lambda x: x.index_fill(0, torch.tensor(0), math.inf)),
    numbers(lambda x: x[..., None]),
    numbers(torch.Tensor.float),
    lambda out: {"v": out["w"], "n": out["n"]},
    lambda out: {"n": out["n"]},
    lambda out: out | {"more": torch.zeros(1)},
    lambda out: ["w"],
    lambda out: out | {"n": out["n"] + 1},
    lambda out: 1 / 0,
)


AWAY = [
    *(("Ditto", 1, "local", fault) for fault in FAULTS),
    *((name, t, "local", late) for name in ("FedALA", "PLGU-LF") for t in (0, 2)),
    *((name, 1, "local", late) for name in ("FedFV", "SCAFFOLD")),
    # nobody speaks for another
    ("FedFa", 1, "local", lambda out: out | {"cid": (out["cid"] + 1) % 4}),
    ("FedPer-online", 1, "receive", late),  # it is not asked to train
    ("FedFB", 1, "ask", late),  # the server computes its step again
]


def test_a_spoilt_answer_is_as_none():
    """As if the client had not been drawn: it goes on from what it had before."""
    known = {}
    for name, t, kind, fault in AWAY:
        method = build(name)
        c, more = member(method, t), {"every": 3} if name == "Ditto" else {}
        if (name, t) not in known:
            known[name, t] = simulated(method, cohort=absent(method, c, t), **more)
        parties = Parties(method, spoil=at(c, t, kind, fault), limit=10**6, **more)
        agree(parties.serve(), known[name, t])
        assert parties.left() == [(c, t, kind)], (name, kind, fault)
        trained = ["local", t, c] in [a[:3] for a in parties.asked]
        assert trained == (kind != "receive")


def test_failing_to_be_scored():
    """Its accuracy is missing, whatever it claimed, and it is out of the round."""
    method, k = build("Ditto"), ("pre", "personal", "test")
    c = member(method, 2)
    record = simulated(method, cohort=absent(method, c, 2))
    claim = lambda v: lambda out: out | {"acc": tmap(lambda x: x * 0 + v, out["acc"])}
    for fault in (late, claim(1.1), claim(-0.1)):
        parties = Parties(method, spoil=at(c, 2, "score", fault)).serve()
        agree(parties, record, but=("pre", "post", "cells"))
        mine, theirs = parties.record[k], record[k]
        assert np.isnan(mine).sum() == 1 and np.isnan(mine[1, c])
        assert (np.isnan(mine) | (mine == theirs)).all()
        counts = [v for kind, v in parties.record.cells.items() if kind[0] != "guest"]
        assert all((n[1, c] == 0).all() for n in counts)
        assert parties.left() == [(c, 2, "score")]


def once(kind, t, fault):
    """Everybody's first answer to one kind of message in round t is spoilt."""
    met = set()

    def spoil(c, k, about, out):
        first = c not in met and (k, about["t"]) == (kind, t)
        return fault(out) if first and not met.add(c) else out

    return spoil


def test_an_empty_round_is_tried_again(at_once):
    """The federation ends as if nothing had happened, and nothing is counted twice."""
    for kind, t in (
        ("receive", 2),
        ("score", 2),
        ("local", 2),
        ("ask", 2),
        ("score", R),
    ):
        method = build("FedFB" if kind == "ask" else "FedPer")
        more = {"every": 1, "cohort": None}
        parties = Parties(method, spoil=once(kind, t, late), **more).serve()
        record = simulated(method, **more)
        agree(parties, record)
        assert parties.record.meta["tensors"] == record.meta["tensors"], kind
        assert {r for _, r, _ in parties.left()} == {t}
    never = lambda c, kind, about, out: None if about["t"] == 1 else out
    with pytest.raises(ValueError, match="round 1"):
        Parties(build("FedAvg"), spoil=never).serve()


def test_a_round_of_which_nothing_comes_is_begun_again_later(at_once, tmp_path):
    """Where all are needed: the error names the client, and the same folder goes on."""
    method = build("AFL")
    parties = Parties(method, spoil=at(member(method, 1), 1, "local"))
    with pytest.raises(ValueError, match=f"round 1 .*client {member(method, 1)}"):
        parties.serve(tmp_path)
    parties.spoil = None
    agree(parties.serve(tmp_path), simulated(method))


# ---------------------------------------------------------------- a server that asks much
def test_only_questions_are_answered():
    site = Parties(build("FAA")).sites[0]
    for name in ("local", "receive", "fit", "_rows", "__init__", "inner.local", ""):
        with pytest.raises(ValueError, match="question"):
            site.answer("ask", about(site.fed, question=name), {"w": {}})


@dataclass(frozen=True)
class Leaks(FedAvg):
    """Its questions ask for numbers among which there is a row, or none."""

    def peek(self, tree, mine, shard):
        x = shard.all().x
        return {"x": torch.cat([x[:4] + 1, x[-1:]])[None]}

    def harmless(self, tree, mine, shard):
        return {"x": shard.all().x.mean(0), "y": shard.all().x[:, :3]}


def test_rows_do_not_leave(at_once, monkeypatch):
    monkeypatch.setitem(METHODS, "Leaks", Leaks)
    site = Parties(build("Leaks")).sites[0]
    site.answer("ask", about(site.fed, question="harmless"), {})
    with pytest.raises(ValueError, match="row"):
        site.answer("ask", about(site.fed, question="peek"), {})


def test_messages_that_make_no_sense_are_refused():
    site = Parties(build("Ditto"), limit=10**4).sites[0]
    site.answer("client", about(site.fed, t=-1), {})
    down = {"w": site.method.task.init(0)}
    site.answer("receive", about(site.fed), down)  # kept for round 0
    site.answer("local", about(site.fed, kept=True), {})
    for kind, more in (("train", {}), ("local", {"t": R + 1}), ("local", {"t": -2}),
                       ("local", {"code": "0" * 16}), ("local", {"federation": "1"}),
                       ("local", {"on": 6}), ("local", {"t": 2, "kept": True})):  # fmt: skip
        with pytest.raises(ValueError):
            site.answer(kind, about(site.fed, **more), down)
    with pytest.raises(ValueError, match="limit"):
        site.answer("local", about(site.fed), {"w": torch.zeros(20_000)})


# ---------------------------------------------------------------- messages of one round
def test_a_message_again_has_the_same_answer_and_another_one_its_own(tmp_path):
    """Two models in one round, as after a restart of the server: to each its own."""
    parties = Parties(build("Ditto"))
    fed, init = parties.fed, parties.tasks[1].init
    downs = [{"w": init(0)}, {"w": init(7)}]

    def begun(folder=None):
        site = parties.start(1, folder)
        site.answer("client", about(fed, t=-1), {})
        return site

    train = lambda site, k, **at: site.answer("local", about(fed, **at), k)
    want = [train(begun(), k) for k in downs]
    assert not same(*want)
    for folder in (None, tmp_path):
        site = begun(folder)
        for k in (0, 0, 1, 1, 0):
            assert same(train(site, downs[k]), want[k]), (folder, k)
            site = parties.start(1, folder) if folder else site
        own = site.kept()
        assert not same(train(site, downs[0], t=1, on=2, done=2), want[0])
        # other batches; and the round before counts for good: what it built on is gone
        assert not same(site.kept(), own)


# ---------------------------------------------------------------- restarts
def test_clients_are_started_again_before_every_message(tmp_path):
    for name in ("PLGU-LF", "FedFB", "Ditto"):
        method, folder = build(name), tmp_path / name
        agree(Parties(method, folder).serve(), simulated(method))
        kept = [len([*f.glob("step-*")]) for f in folder.iterdir()]
        assert len(kept) == 4 and max(kept) <= 3, "old steps are dropped"


TRAINED = []


@dataclass(frozen=True)
class Counted(FedFB):
    """Notes who trains when."""

    def local(self, down, mine, shard):
        TRAINED.append((shard.t, int(shard.cid)))
        return super().local(down, mine, shard)


def test_the_server_is_killed_after_every_exchange(tmp_path, monkeypatch):
    """Answers are lost each time; nobody trains twice, and the bits are the same."""
    monkeypatch.setitem(METHODS, "Counted", Counted)
    for name in ("Counted", "FedRep"):
        method, killed, folder = build(name), set(), tmp_path / name
        parties = Parties(method, every=1)

        def mortal(requests, wait, killed=killed, honest=parties.exchange):
            out, what = honest(requests, wait), (requests[0][1], requests[0][2]["t"])
            if what in killed:
                return out
            killed.add(what)
            raise KeyboardInterrupt

        record, parties.exchange = simulated(method, every=1), mortal
        TRAINED.clear()
        while not (folder / "done").exists():
            with suppress(KeyboardInterrupt):
                parties.serve(folder)
        agree(parties, record)
        # one more is the example at the server, at each start
        trained = [x for x in TRAINED if TRAINED.count(x) == 1]
        assert len(killed) > 2 * R
        assert name != "Counted" or len(trained) >= R * M - R
        again = serve(parties.fed, None, folder)  # it is done: nobody is asked
        assert same(scores(again), scores(parties.record))


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    parties = Parties(build("Ditto"), tmp_path, rounds=1).serve(tmp_path / "server")
    path = max((tmp_path / "client-0").glob("step-*"))
    right = path.read_bytes()
    for bad in (right[:-8] + b"damaged!", right[:-1], b""):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="step-.*damaged"):
            parties.site(0)
    path.write_bytes(right)
    other = Parties(build("Ditto", lam=0.3), tmp_path, rounds=1)
    for f, words in (
        (lambda: parties.start(2, tmp_path / "client-1"), "client 1 .*client 2"),
        (lambda: other.serve(tmp_path / "server"), "another federation"),
        (lambda: other.site(1), "federation"),
        # a new server does not overwrite what clients have learned
        (parties.serve, "client . is in round 0"),
    ):
        with pytest.raises(ValueError, match=words):
            f()


# ---------------------------------------------------------------- what cannot be deployed
def test_what_cannot_be_deployed_is_said_before_anybody_is_asked():
    least = 464  # bytes of FedAvg's upload
    for name, limit, word in (("FedAS-chained", 10**8, "FedAS"), ("Centralised", 10**8, "Centr"),
                              ("FedAvg", least - 1, "limit")):  # fmt: skip
        with pytest.raises(ValueError, match=word):
            serve(Federation.of(build(name), 1, limit=limit), None)
    Parties(build("FedAvg"), limit=least).serve()
