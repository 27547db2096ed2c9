"""What is deployed is what was simulated, to the bit, whoever is away or restarted."""

import math
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from toys_core import same, seen
from toys_wire import M, Parties, R, about, absent, agree, at, build, member, simulated

from fedlib.core.tree import tmap
from fedlib.deploy import client, server
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg

# state at the server, at clients; own models; all download, or the cohort; questions to
# some, to all; batch norm; uploads that say whose they are; two phases; one in another
PLAIN = (
    "SCAFFOLD FedAdam Ditto FedRep FedPer-online FedFB FAA FedBN FedFa FFT-GP PLGU-LF"
)
KINDS = dict.fromkeys(PLAIN.split(), {}) | {
    "FedAvg": {"step": {"name": "SAM", "rho": 0.1}, "rule": "Median"},
    "EquFL": {"inner": {"name": "FedProx", "mu": 0.5}, "rho": 0.3},
}
pytestmark = pytest.mark.filterwarnings("ignore:the server's network agrees")


@pytest.mark.parametrize("name", KINDS)
def test_deployed_is_simulated(name, tmp_path):
    """Also where clients are started again before every message."""
    more = {"cohort": None, "own": True} if name == "Ditto" else {}
    folder = tmp_path if name in ("PLGU-LF", "FedFB", "Ditto") else None
    method = build(name, **KINDS[name])
    parties, record = Parties(method, folder, **more).serve(), simulated(method, **more)
    agree(parties, record)
    assert all(len([*f.glob("step-*")]) <= 3 for f in tmp_path.iterdir())  # not all
    mine, theirs = parties.record.meta, record.meta
    for k in ("bytes", "tensors", "parameters", "method", "rounds", "seed", "clients"):
        assert mine[k] == theirs[k], k
    assert all(mine["n"][s] == theirs["n"][s] for s in ("train", "val", "test"))
    assert not parties.left()
    # nobody is scored in round 1, so these messages bring the model and the upload, once
    asked = [x for x in parties.asked if x[0][:2] in (("receive", 1), ("local", 1))]
    trained = [at[2] for at, *_ in asked if at[0] == "local"]
    assert trained == [c for c in record.logs["cohort"][1].tolist() if c >= 0]
    for k, way in enumerate(("down", "up"), 1):
        told = sum(v["bytes"] for v in mine["bytes"][way].values())
        assert {sum(x[k] for x in asked if x[0][2] == c) for c in trained} == {told}


late = lambda out: None
endless = lambda x: x.index_fill(0, torch.tensor(0), math.inf)
AWAY = [
    *((name, 1, "local", late) for name in ("FedALA", "FedFV", "SCAFFOLD", "Ditto")),
    ("FedALA", 0, "local", late), ("Ditto", 1, "local", lambda out: ["w"]),
    ("Ditto", 1, "local", lambda out: 1 / 0),
    ("Ditto", 1, "local", lambda out: out | {"w": tmap(endless, out["w"])}),
    ("Ditto", 1, "local", lambda out: out | {"n": out["n"] + 1}),
    ("FedFa", 1, "local", lambda out: out | {"cid": (out["cid"] + 1) % 4}),  # another's
    ("FedPer-online", 1, "receive", late),  # it is not asked to train
    ("FedFB", 1, "ask", late),  # the server computes its step again
]  # fmt: skip


def test_a_spoilt_answer_is_as_none():
    """As if the client had not been drawn: it goes on from what it had before."""
    for name, t, kind, fault in AWAY:
        method = build(name)
        c, more = member(method, t), {"every": 3} if name == "Ditto" else {}
        parties = Parties(method, spoil=at(c, t, kind, fault), limit=10**6, **more)
        agree(parties.serve(), simulated(method, cohort=absent(method, c, t), **more))
        assert parties.left() == [(c, t, kind)], (name, kind, fault)
        assert (("local", t, c) in [a[0] for a in parties.asked]) == (kind != "receive")


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


def once(kind, t):
    """Everybody's first answer to one kind of message in round t is late."""
    todo = {(c, kind, t) for c in range(4)}
    spoil = lambda which, out: todo.discard(which) if which in todo else out
    return lambda c, k, about, out: spoil((c, k, about["t"]), out)


def test_an_empty_round_is_tried_again(monkeypatch, tmp_path):
    """As if nothing had happened, nothing counted twice; or by a new start, later."""
    monkeypatch.setattr(server, "PAUSES", (0,))  # one more try, and no pause before it
    for kind, t in zip(("receive", "score", "local", "ask", "score"), (2, 2, 2, 2, R)):
        method = build("FedFB" if kind == "ask" else "FedPer")
        more = {"every": 1, "cohort": None}
        parties = Parties(method, spoil=once(kind, t), **more).serve()
        record = simulated(method, **more)
        agree(parties, record)
        assert parties.record.meta["tensors"] == record.meta["tensors"], kind
        assert {r for _, r, _ in parties.left()} == {t}
    method = build("AFL")  # it needs all
    c = member(method, 1)
    parties = Parties(method, spoil=at(c, 1, "local"))
    with pytest.raises(ValueError, match=f"round 1 .*client {c}"):
        parties.serve(tmp_path)
    parties.spoil = None
    agree(parties.serve(tmp_path), simulated(method))


@dataclass(frozen=True)
class Leaks(FedAvg):
    """Its question asks for numbers among which there is a row."""

    def peek(self, tree, mine, shard):
        x = shard.all().x
        return {"x": torch.cat([x[:4] + 1, x[-1:]])[None]}


def test_what_is_no_question_or_makes_no_sense_is_refused(monkeypatch):
    monkeypatch.setitem(METHODS, "Leaks", Leaks)
    site = Parties(build("Leaks"), limit=10**4).begun(0)
    down, much = {"w": site.method.task.init(0)}, {"w": torch.zeros(20_000)}
    site.answer("receive", about(site.fed), down)  # kept for round 0
    site.answer("local", about(site.fed, kept=True), {})
    hooks = ("local", "receive", "fit", "_rows", "__init__", "inner.local", "")
    for kind, more, *tree in (
        *(("ask", {"question": name}) for name in hooks), ("ask", {"question": "peek"}),
        ("train", {}), ("local", {"t": R + 1}), ("local", {"t": -2}), ("local", {"on": "6"}),
        ("local", {"code": "0" * 16}), ("local", {"federation": "1"}),
        ("local", {"t": 2, "kept": True}), ("local", {}, much),
    ):  # fmt: skip
        with pytest.raises(
            ValueError, match="row" if "peek" in more.values() else None
        ):
            site.answer(kind, about(site.fed, **more), (*tree, down)[0])


def test_a_message_again_has_the_same_answer_and_another_one_its_own(tmp_path):
    """Two models in one round, as after a restart of the server: to each its own."""
    parties = Parties(build("Ditto"))
    fed, downs = parties.fed, [{"w": parties.tasks[1].init(k)} for k in (0, 7)]

    train = lambda site, k, **at: site.answer("local", about(fed, **at), downs[k])
    want = [train(parties.begun(1), k) for k in (0, 1)]
    assert not same(*want)
    for folder in (None, tmp_path):
        site = parties.begun(1, folder)
        for k in (0, 0, 1, 1, 0):
            assert same(train(site, k), want[k]), (folder, k)
            site = parties.start(1, folder) if folder else site
        own = site.kept()
        assert not same(train(site, 0, t=1, on=2, done=2), want[0])  # other batches
        # and the round before counts for good: what it built on is gone
        assert not same(site.kept(), own)
    with pytest.raises(ValueError, match="step 6"):
        train(site, 0, t=2, on=6)


def test_the_server_is_killed_after_every_exchange(tmp_path, monkeypatch):
    """Answers are lost each time; nobody trains twice, and the bits are the same."""
    acts, act = [], client.act
    noted = lambda *a: acts.append((a[1], a[3], a[4]["t"])) or act(*a)
    monkeypatch.setattr(client, "act", noted)
    for name in ("FedFB", "FedRep"):
        method, killed, folder = build(name), set(), tmp_path / name
        parties = Parties(method, every=1)

        def mortal(requests, wait, killed=killed, honest=parties.exchange):
            out, what = honest(requests, wait), (requests[0][1], requests[0][2]["t"])
            if what in killed:
                return out
            killed.add(what)
            raise KeyboardInterrupt

        record, parties.exchange = simulated(method, every=1), mortal
        acts.clear()
        while not (folder / "done").exists():
            with suppress(KeyboardInterrupt):
                parties.serve(folder)
        agree(parties, record)
        trained = [a for a in acts if a[1] == "local"]
        assert len(trained) == len(set(trained)) == R * M and len(killed) > 2 * R
        again = serve(parties.fed, None, folder)  # it is done: nobody is asked
        assert same(seen(again), seen(parties.record))


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    parties = Parties(build("Ditto"), tmp_path, rounds=1).serve(tmp_path / "server")
    path = max((tmp_path / "client-0").glob("step-*"))
    right = path.read_bytes()
    path.write_bytes(right[:-8] + b"damaged!")
    with pytest.raises(ValueError, match="step-.*damaged"):
        parties.site(0)
    path.write_bytes(right)
    other = Parties(build("Ditto", lam=0.3), tmp_path, rounds=1)
    for words, f in {
        "client 1 .*client 2": lambda: parties.start(2, tmp_path / "client-1"),
        "another federation": lambda: other.serve(tmp_path / "server"),
        "federation": lambda: other.site(1),
        # a new server does not overwrite what clients have learned
        "client . is in round 0": parties.serve,
    }.items():
        with pytest.raises(ValueError, match=words):
            f()


def test_what_cannot_be_deployed_is_said_before_anybody_is_asked():
    least = 464  # bytes of FedAvg's upload
    for name, limit in (("FedAS-chained", 10**8), ("FedAvg", least - 1)):
        with pytest.raises(ValueError, match=name[:6]):
            serve(Federation.of(build(name), 1, limit=limit), None)
    Parties(build("FedAvg"), limit=least).serve()
