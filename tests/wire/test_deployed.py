"""What is deployed is what was simulated, to the bit: undisturbed, with clients that are
away or answer nonsense, and with servers and clients that are started again.
"""

import hashlib
import io
import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from pandas.testing import assert_frame_equal
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

from fedlib.core import checkpoint
from fedlib.core.tree import tmap
from fedlib.deploy import message, server
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.groups.fedfb import FedFB
from repro import traffic

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
    method = build(name, **KINDS[name])
    parties, record = Parties(method).serve(), simulated(method)
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
    # nobody is scored in round 1, so these messages bring the model and the upload
    for k, way in ((3, "down"), (4, "up")):
        told = sum(v["bytes"] for v in mine["bytes"][way].values())
        assert {sum(x[k] for x in asked if x[2] == c) for c in trained} == {told}


def test_both_count_the_same_traffic():
    for name in ("FedFB", "FedBN", "FedRep"):
        method = build(name)
        rows = traffic.simulated(method)
        assert_frame_equal(rows, traffic.deployed(method))
        assert ("ask" in set(rows.way)) == (name == "FedFB")


def test_own_models_are_scored_at_home():
    method, more = build("Ditto"), {"cohort": None, "own": True}
    record = simulated(method, **more)
    assert ("own", "global", "test") in record.views
    agree(Parties(method, **more).serve(), record)


def test_a_model_is_sent_once_a_round():
    """Receive, score and train need the same download."""
    parties = Parties(build("FedPer"), every=1, cohort=None).serve()
    sent = [(t, c) for _, t, c, down, _ in parties.asked if down]
    assert len(sent) == len(set(sent)) == (R + 1) * parties.fed.C


# ---------------------------------------------------------------- clients that fail
def raise_(why):
    raise RuntimeError(why)


def numbers(f):
    return lambda out: out | {"w": {k: f(v) for k, v in out["w"].items()}}


def late(out):
    return None


FAULTS = {
    "NaN": numbers(lambda x: x * math.nan),
    "one infinity": numbers(lambda x: x.index_fill(0, torch.tensor(0), math.inf)),
    "shape": numbers(lambda x: x[..., None]),
    "type": numbers(torch.Tensor.float),
    "name": lambda out: {"v": out["w"], "n": out["n"]},
    "less": lambda out: {"n": out["n"]},
    "more": lambda out: out | {"more": torch.zeros(1)},
    "huge": lambda out: out | {"more": torch.zeros(10**6)},
    "no tree": lambda out: ["w"],
    "no tensor": lambda out: out | {"n": "many"},
    "more rows": lambda out: out | {"n": out["n"] + 1},
    "fewer rows": lambda out: out | {"n": out["n"] - 1},
    "late": late,
    "error": lambda out: raise_("out\nof \x1b[2J memory"),
}
AWAY = [
    *(("Ditto", 1, "local", fault) for fault in FAULTS.values()),
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
        assert all(line.isprintable() for line in parties.lines)
        trained = ["local", t, c] in [a[:3] for a in parties.asked]
        assert trained == (kind != "receive")


def test_failing_to_be_scored():
    """Its accuracy is missing, whatever it claimed, and it is out of the round."""
    method = build("Ditto")
    c = member(method, 2)
    record = simulated(method, cohort=absent(method, c, 2))
    claim = lambda v: lambda out: out | {"acc": tmap(lambda x: x * 0 + v, out["acc"])}
    for fault in (late, claim(1.1), claim(-0.1)):
        parties = Parties(method, spoil=at(c, 2, "score", fault)).serve()
        agree(parties, record, but=("pre", "post", "cells"))
        k = ("pre", "personal", "test")
        mine, theirs = parties.record[k], record[k]
        assert np.isnan(mine).sum() == 1 and np.isnan(mine[1, c])
        assert (np.isnan(mine) | (mine == theirs)).all()
        for kind, counts in parties.record.cells.items():
            assert (counts[1, c] == 0).all() or kind[0] == "guest"
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
    for kind, t in [(k, 2) for k in ("receive", "score", "local", "ask")] + [
        ("score", R)
    ]:
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


def test_a_client_that_diverges_says_so_itself(at_once, tmp_path):
    parties = Parties(build("FedAvg", lr=3e38, decay=3e38, epochs=9))
    with pytest.raises(ValueError, match="not finite; lower lr"):
        parties.serve(tmp_path)
    assert not (tmp_path / "done").exists()


def test_a_round_of_which_nothing_comes_is_begun_again_later(at_once, tmp_path):
    """Where all are needed, or squares overflow: the error names the client, the state
    is kept, and with the same folder it goes on.
    """
    large = lambda out: tmap(lambda x: x * 0 + 1e200 if x.dim() > 1 else x, out)
    for name, fault in (
        ("AFL", late),
        ("FFT-GP", late),
        ("FedGini", large),
        ("FedPAC", large),
    ):
        method = build(name)
        c = member(method, 1)
        parties = Parties(method, spoil=at(c, 1, "local", fault))
        with pytest.raises(ValueError, match=f"round 1 .*client {c}"):
            parties.serve(tmp_path / name)
        parties.spoil = None
        agree(parties.serve(tmp_path / name), simulated(method))


def test_before_round_0_all_must_answer_and_say_how_many_rows_they_have():
    wrong = lambda s, n: lambda out: {"n": out["n"] | {s: torch.tensor(n)}}
    for fault in (late, wrong("train", 0), wrong("test", 0), wrong("val", -1)):
        with pytest.raises(ValueError, match="client 3 "):
            Parties(build("FedAvg"), spoil=at(3, -1, "client", fault)).serve()


# ---------------------------------------------------------------- a server that asks much
def test_only_questions_are_answered():
    site = Parties(build("FAA")).sites[0]
    ask = lambda name: site.answer("ask", about(site.fed, question=name), {"w": {}})
    for name in ("local", "receive", "views", "client", "fit", "loss", "_rows", "plans",
                 "__init__", "nothing", "inner.local", "report.__self__", ""):  # fmt: skip
        with pytest.raises(ValueError, match="question"):
            ask(name)


@dataclass(frozen=True)
class Leaks(FedAvg):
    """Its questions ask for numbers among which there is a row, or none."""

    def peek(self, tree, mine, shard):
        x = shard.all().x
        return {"x": torch.cat([x[:4] + 1, x[-1:]])[None]}

    def harmless(self, tree, mine, shard):
        return {"x": shard.all().x.mean(0), "y": shard.all().x[:, :3]}


def test_rows_do_not_leave(at_once, monkeypatch):
    """EquFL's control asks for rows: every client refuses."""
    parties = Parties(build("EquFL", source="real", rho=0.3), cohort=None, rounds=4)
    with pytest.raises(ValueError, match="row"):
        parties.serve()
    assert {c for c, _, stage in parties.left() if stage == "ask"} == {0, 1, 2, 3}
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
                       ("local", {"on": "x"}), ("local", {"code": "0" * 16}),
                       ("local", {"federation": "1"}), ("local", {"on": 6}),
                       ("local", {"t": 2, "kept": True}), ("shares", {})):  # fmt: skip
        with pytest.raises(ValueError):
            site.answer(kind, about(site.fed, **more), down)
    with pytest.raises(ValueError, match="limit"):
        site.answer("local", about(site.fed), {"w": torch.zeros(20_000)})


def test_the_code_is_its_files(tmp_path):
    def code(text=b"a = 1\n", name="core/engine.py"):
        message.code.cache_clear()
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text)
        return message.code(tmp_path)

    one = code()
    assert code(b"a = 1\r\n") == one != code(b"a = 2\n")
    for part in ("core", "pieces", "methods/deep", "nets", "deploy"):
        assert code(name=f"{part}/new.py") != one, part
        one = code()
    assert code(name="plots/new.py") == one
    message.code.cache_clear()


# ---------------------------------------------------------------- messages of one round
def test_a_message_again_has_the_same_answer_and_another_one_its_own(tmp_path):
    """Two models in one round, as after a restart of the server: to each its own."""
    for name in ("FedAvg", "Ditto"):
        parties = Parties(build(name))
        fed, init = parties.fed, parties.tasks[1].init
        downs = [{"w": init(0)}, {"w": init(7)}]

        def begun(folder=None, parties=parties, fed=fed):
            site = parties.start(1, folder)
            site.answer("client", about(fed, t=-1), {})
            return site

        train = lambda site, k, fed=fed, **at: site.answer("local", about(fed, **at), k)
        want = [train(begun(), k) for k in downs]
        assert not same(*want)
        for folder in (None, tmp_path / name):
            site = begun(folder)
            for k in (0, 0, 1, 1, 0):
                assert same(train(site, downs[k]), want[k]), (name, folder, k)
                site = parties.start(1, folder) if folder else site
            own = site.kept()
            next_ = train(site, downs[0], t=1, on=2, done=2)
            assert not same(next_, want[0])  # other batches
            # the round before counts for good: what it built on is gone
            assert name == "FedAvg" or not same(site.kept(), own)


# ---------------------------------------------------------------- restarts
def test_clients_are_started_again_before_every_message(tmp_path):
    for name in ("FedALA", "PLGU-LF", "FedFB", "Ditto"):
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
        method, killed = build(name), set()
        parties = Parties(method, every=1)
        honest = parties.exchange

        def mortal(requests, wait, killed=killed, honest=honest):
            out, what = honest(requests, wait), (requests[0][1], requests[0][2]["t"])
            if what in killed:
                return out
            killed.add(what)
            raise KeyboardInterrupt

        parties.exchange = mortal
        record = simulated(method, every=1)
        TRAINED.clear()
        while True:
            try:
                parties.serve(tmp_path / name)
                break
            except KeyboardInterrupt:
                pass
        agree(parties, record)
        # one more is the example at the server, at each start
        trained = [x for x in TRAINED if TRAINED.count(x) == 1]
        assert len(killed) > 2 * R
        assert name != "Counted" or len(trained) >= R * M - R
        again = serve(parties.fed, None, tmp_path / name)  # it is done: nobody is asked
        assert same(scores(again), scores(parties.record))


def test_a_lost_folder_of_a_client_is_noticed(tmp_path):
    method = build("Ditto")
    c = member(method, 1)

    def lose(out):
        for path in (tmp_path / f"client-{c}").glob("*"):
            path.unlink()
        return out

    parties = Parties(method, tmp_path, at(c, 1, "local", lose)).serve()
    assert [x[:2] for x in parties.left()] == [(c, 2), (c, 3)]
    assert all("folder" in line for line in parties.lines if "left out" in line)


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    parties = Parties(build("Ditto"), tmp_path, rounds=1).serve(tmp_path / "server")
    for bad in (lambda b: b[:-8] + b"damaged!", lambda b: b[:-1], lambda b: b""):
        path = max((tmp_path / "client-0").glob("step-*"))
        right = path.read_bytes()
        path.write_bytes(bad(right))
        with pytest.raises(ValueError, match="step-.*damaged"):
            parties.site(0)
        path.write_bytes(right)
    with pytest.raises(ValueError, match="client 1 .*client 2"):
        parties.start(2, tmp_path / "client-1")
    other = Parties(build("Ditto", lam=0.3), tmp_path, rounds=1)
    with pytest.raises(ValueError, match="another federation"):
        other.serve(tmp_path / "server")
    with pytest.raises(ValueError, match="federation"):
        other.site(1)
    # a new server does not overwrite what clients have learned
    with pytest.raises(ValueError, match="client . is in round 0"):
        parties.serve()
    path = tmp_path / "server/clients.json"
    n = json.loads(path.read_text())
    n["n"]["train"].pop()
    for text in ("", "[]", "{", '{"n": 5}', '{"federation": 1}', "\0", json.dumps(n)):
        path.write_text(text)
        with pytest.raises(ValueError, match="clients.json.*damaged"):
            parties.serve(tmp_path / "server")


def test_steps_in_a_checkpoint_that_cannot_be_are_refused(tmp_path):
    def stop(c, kind, about, out):
        if about["t"] == 1:
            raise KeyboardInterrupt
        return out

    parties = Parties(build("FedAvg"), spoil=stop)
    with pytest.raises(KeyboardInterrupt):
        parties.serve(tmp_path)
    path = tmp_path / "checkpoint"
    kept, record = checkpoint.read(path, "cpu")
    trained = kept["steps"]
    assert sorted(set(trained)) == [0, 2] and len(trained) == 4
    for steps in (None, {}, [], [2], ["2"] * 4, [True] * 4, [3] * 4, [-1] * 4):
        buf = io.BytesIO()
        torch.save({"state": kept | {"steps": steps}, "record": record}, buf)
        body = buf.getvalue()
        path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        with pytest.raises(ValueError, match="checkpoint.*steps"):
            parties.serve(tmp_path)


# ---------------------------------------------------------------- what cannot be deployed
def test_what_cannot_be_deployed_is_said_before_anybody_is_asked():
    for name in ("FedAS-chained", "Centralised"):
        with pytest.raises(ValueError, match=name):
            serve(Federation.of(build(name), 1), None)
    least = 464  # bytes of FedAvg's upload
    with pytest.raises(ValueError, match="limit"):
        serve(Federation.of(build("FedAvg"), 1, limit=least - 1), None)
    Parties(build("FedAvg"), limit=least).serve()
