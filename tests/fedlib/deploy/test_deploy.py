"""A federation in one process, every message as bytes: the same numbers as the
simulation, and nobody can spoil a round.
"""

import hashlib
import io
import json
import math
import re
import zipfile
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch
import yaml
from toys_clip import toy_towers
from toys_core import GROUPS, Normed, gap, same, seen, state, toy

from fedlib.core import checkpoint
from fedlib.core.clients import cohort_of
from fedlib.core.engine import run
from fedlib.core.groups import Block
from fedlib.core.pool import Pool
from fedlib.core.task import Task
from fedlib.core.tree import leaves, stack, tmap
from fedlib.deploy import client, message, server
from fedlib.deploy.act import question
from fedlib.deploy.client import Site
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.nets import MLP

R, M, SEED, NEAR = 3, 3, 1, 1e-6
SIZES = (9, 6, 11, 3)  # four clients, one shorter than a batch
QUICK = {
    "W": 1,
    "theta": math.inf,
    "tune": 1,
    "head_epochs": 1,
    "outer": 3,
    "J": 2,
    "size": 12,
    "pool": 30,
    "trials": 2,
}
BESIDE_CLIP = {"FedCLIP": "Adapter", "PromptFL": "Prompts"}
DEPLOYED = [n for n in METHODS if n not in ("FedAS-chained", "Centralised")]
pytestmark = pytest.mark.filterwarnings("ignore:the server's network agrees")


@cache
def task_of(name="plain"):
    if name in BESIDE_CLIP:
        return toy_towers(3, 5, network=BESIDE_CLIP[name], groups=GROUPS, sizes=SIZES)[
            1
        ]
    return (
        toy(Normed(5, 6, 3), sizes=SIZES)
        if name in ("normed", "FedBN")
        else toy(sizes=SIZES, groups=GROUPS)
    )


def build(name, task=None, **more):
    known = {f.name for f in fields(METHODS[name])}
    # calibrated from round 2 on
    late = {"rho": 0.3} if hasattr(METHODS[name], "phases") else {}
    return make(
        name,
        task or task_of(name),
        **{k: v for k, v in QUICK.items() if k in known} | late | more,
    )


def through(tree):
    return message.loads(message.dumps(tree))


def wire(site, spoil=lambda c, kind, about, out: out, seen=None):
    """An exchange.

    site: c -> Site. spoil: what becomes of an answer; None: it is late. seen: a list of
    what was asked.
    """

    def exchange(requests, wait):
        out = {}
        for c, kind, about, tree in requests:
            if seen is not None:
                seen.append((about["t"], kind, c))
            try:
                got = spoil(
                    c, kind, about, through(site(c).answer(kind, about, through(tree)))
                )
                out |= {} if got is None else {c: got}
            except Exception as e:
                out[c] = ValueError(str(e))
        return out

    return exchange


class Deployment:
    """A federation of the clients of one task.

    folder: every message finds a client that was started anew.
    """

    def __init__(
        self, method, folder=None, spoil=lambda c, kind, about, out: out, **more
    ):
        usual = {"rounds": R, "seed": SEED, "cohort": M, "every": 2}
        self.fed, self.folder, self.spoil, self.lines, self.asked = (
            Federation.of(method, **(usual | more)),
            folder,
            spoil,
            [],
            [],
        )
        self.tasks = [
            self.fed.client_task(c, method.task) for c in range(method.task.C)
        ]
        self.sites = (
            [] if folder else [Site(self.fed, c, t) for c, t in enumerate(self.tasks)]
        )

    def site(self, c):
        return (
            Site(self.fed, c, self.tasks[c], self.folder / f"client-{c}")
            if self.folder
            else self.sites[c]
        )

    def serve(self, folder=None):
        self.record = serve(
            self.fed, wire(self.site, self.spoil, self.asked), folder, self.lines.append
        )
        return self

    def state(self):
        return {
            "server": self.record.state["server"],
            "clients": stack([self.site(c).kept() for c in range(self.fed.C)]),
        }

    def left(self):
        return [line for line in self.lines if "left out of" in line or "count" in line]


def simulated(method, **more):
    return run(
        method,
        how="loop",
        device="cpu",
        **({"rounds": R, "seed": SEED, "cohort": M, "every": 2} | more),
    )


def views(rec):
    """What a record holds, without consistency: nobody has the rows to measure it."""
    return {k: v for k, v in seen(rec).items() if not k.startswith("alike")}


def agree(deployed, rec, but=()):
    """The same state and views; but: names of views in which somebody was not scored."""
    assert gap(deployed.state(), state(rec)) < NEAR
    mine, theirs = views(deployed.record), views(rec)
    assert list(mine) == list(theirs)
    for k in theirs:
        assert gap([mine[k]], [theirs[k]]) < NEAR or any(b in k for b in but), k
    return deployed


# ---------------------------------------------------------------- the same numbers
@pytest.mark.parametrize("name", DEPLOYED)
def test_deployed_is_simulated(name):
    method = build(name)
    deployed, rec = Deployment(method).serve(), simulated(method)
    agree(deployed, rec)
    a, b = deployed.record.meta, rec.meta
    assert (
        all(a[k] == b[k] for k in ("bytes", "tensors", "parameters"))
        and not deployed.left()
    )
    assert all(a["n"][s] == b["n"][s] for s in ("train", "val", "test"))


@pytest.mark.parametrize(
    "name, more",
    [
        ("FedRep", {}),
        ("FedAvg", {"step": {"name": "SAM", "rho": 0.1}, "rule": "Median"}),
        ("EquFL", {"inner": {"name": "FedProx", "mu": 0.5}, "scale": "steps"}),
    ],
)
def test_batch_norm_pieces_and_wrappers(name, more):
    method = build(name, task_of("normed" if name == "FedRep" else "plain"), **more)
    agree(Deployment(method).serve(), simulated(method))


def test_own_models_are_scored_at_home():
    method = build("FedProx")
    rec = simulated(method, cohort=None, own=True)
    assert ("own", "global", "test") in rec.views
    agree(Deployment(method, cohort=None, own=True).serve(), rec)


def test_a_model_is_sent_once_a_round():
    """Receive, score and train need the same download."""
    sent = []

    def count(requests, wait):
        sent.extend((c, about["t"]) for c, _, about, tree in requests if leaves(tree))
        return exchange(requests, wait)

    d = Deployment(build("FedPer"), every=1, cohort=None)
    exchange = wire(d.site)
    serve(d.fed, count, log=d.lines.append)
    assert len(sent) == len(set(sent)) == (R + 1) * d.fed.C


# ---------------------------------------------------------------- a client that fails
def numbers(out, f):
    return {k: tmap(f, v) if k in ("w", "shared") else v for k, v in out.items()}


FAULTS = {  # what becomes of an answer, and what the log says
    "NaN": (lambda out: numbers(out, lambda x: x * math.nan), "holds NaN or infinity"),
    "infinity": (
        lambda out: numbers(out, lambda x: x + math.inf),
        "holds NaN or infinity",
    ),
    "shape": (
        lambda out: numbers(out, lambda x: x[..., None]),
        r"'w/fc1.weight' is float64 \[6, 5, 1\], expected .* \[6, 5\]",
    ),
    "type": (lambda out: numbers(out, torch.Tensor.float), "is float32"),
    "name": (lambda out: {"v": out["w"], "n": out["n"]}, "unknown name 'v/fc1.weight'"),
    "less": (lambda out: {"n": out["n"]}, "'w/fc1.weight' is missing"),
    "huge": (
        lambda out: out | {"more": torch.zeros(10**6)},
        "a payload of 4,000,464 bytes, and the limit is 1,000,000",
    ),
    "no tree": (lambda out: ["w"], "not a tree"),
    "no tensor": (lambda out: out | {"n": "many"}, "'n' is str"),
    "more rows": (
        lambda out: out | {"n": out["n"] + 10**6},
        "'n' is 10000.., this client's is",
    ),
    "late": (lambda out: None, "no answer within 60 s"),
    "error": (lambda out: ValueError("out\nof memory"), "out of memory"),
}


def at(c, t, kinds, fault):
    """Client c's answers to these kinds of messages in round t are spoilt."""
    return lambda who, kind, about, out: (
        fault(out) if (who, about["t"], kind) == (c, t, kinds) else out
    )


def absent(method, c, t, drawn=M):
    """The cohort of the simulation, without client c in round t."""

    def cohort(now):
        ids = cohort_of(method, method.task, SEED, now, drawn)
        return ids[ids != c] if now == t else ids

    return cohort


def member(method, t):
    return int(cohort_of(method, method.task, SEED, t, M)[1])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_spoilt_answer_is_left_out(fault):
    """Ditto: the client has trained its own model, and goes on from the one before, as
    if it had not been there.
    """
    method, (spoil, why) = build("Ditto"), FAULTS[fault]
    c = member(method, 1)
    assert c in cohort_of(method, method.task, SEED, 2, M)
    d = Deployment(method, spoil=at(c, 1, "local", spoil), limit=10**6, every=3).serve()
    agree(d, simulated(method, cohort=absent(method, c, 1), every=3))
    (line,) = d.left()
    assert (
        re.match(rf"client {c} left out of round 1, local: .*({why})", line)
        and "\n" not in line
    )


@pytest.mark.parametrize(
    "name",
    [
        "FedFa",
        "FedALA",
        "FedPAC",
        "FedAS-parallel",
        "FedPer",
        "PLGU-LF",
        "FedFV",
        "pFedHN",
    ],
)
@pytest.mark.parametrize("t", [0, 2])
def test_other_methods_without_a_client(name, t):
    method = build(name)
    c = member(method, t)
    d = Deployment(method, spoil=at(c, t, "local", lambda out: None)).serve()
    agree(d, simulated(method, cohort=absent(method, c, t)))


def test_nobody_speaks_for_another():
    method = build("FedFa")
    c = member(method, 1)
    d = Deployment(
        method,
        spoil=at(
            c, 1, "local", lambda out: out | {"cid": out["cid"] * 0 + (c + 1) % 4}
        ),
    ).serve()
    agree(d, simulated(method, cohort=absent(method, c, 1)))
    assert d.left() == [
        (
            f"client {c} left out of round 1, local: 'cid' is {(c + 1) % 4}, this "
            f"client's is {c}"
        )
    ]


@pytest.mark.parametrize(
    "name, kind, stage",
    [("FedPer-online", "receive", "receive"), ("FedFB", "ask", "ask sums")],
)
def test_failing_before_and_after_training(name, kind, stage):
    """FedPer-online, in a round without a look: only the cohort downloads, so its old
    body stays, too, and it is not asked to train. FedFB: the server computes its step
    again, without that client.
    """
    method = build(name)
    c = member(method, 1)
    d = Deployment(method, spoil=at(c, 1, kind, lambda out: None)).serve()
    agree(d, simulated(method, cohort=absent(method, c, 1)))
    assert d.left() == [
        f"client {c} left out of round 1, {stage}: no answer within 60 s"
    ]
    assert ((1, "local", c) in d.asked) == (kind == "ask")


def test_failing_to_be_scored():
    """Its accuracy is NaN, and it is not asked again in this round."""
    method = build("Ditto")
    c = member(method, 2)
    d = Deployment(method, spoil=at(c, 2, "score", lambda out: None)).serve()
    rec = simulated(method, cohort=absent(method, c, 2))
    agree(d, rec, but=("pre", "post", "cells"))
    a, b = (r["pre", "personal", "test"] for r in (d.record, rec))
    assert (
        np.isnan(a[1, c])
        and np.isnan(a).sum() == 1
        and (a[~np.isnan(a)] == b[~np.isnan(a)]).all()
    )
    assert len(d.left()) == 1 and (2, "local", c) not in d.asked


@pytest.fixture
def twice(monkeypatch):
    """A round that fails has one more try, at once."""
    monkeypatch.setattr(server, "PAUSES", (0,))


def once(kind, t, fault, c=None):
    """All clients' answers, or those of c, are spoilt the first time they are given."""
    seen = set()

    def spoil(who, got, about, out):
        first = who not in seen and (got, about["t"]) == (kind, t) and c in (None, who)
        return fault(out) if first and not seen.add(who) else out

    return spoil


def test_a_client_that_diverges_says_so_itself(twice, tmp_path):
    """Nobody has trained, so nothing is done: an error, in the clients' own words."""
    d = Deployment(build("FedAvg", lr=3e38, decay=3e38, epochs=9))
    why = (
        "round 0 of 3 does not count: nobody trained; left out: client .*the "
        "trained model is not finite; lower lr.* it went 2 times"
    )
    with pytest.raises(ValueError, match=why):
        d.serve(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["clients.json"]


@pytest.mark.parametrize("kind", ["receive", "score", "local", "ask"])
@pytest.mark.parametrize("fault", [lambda out: None, lambda out: ValueError("full")])
def test_an_empty_round_is_tried_again(kind, fault, twice):
    """The federation ends as if nothing had happened: same record, same state."""
    method = build("FedFB" if kind == "ask" else "FedPer")
    d = Deployment(method, spoil=once(kind, 2, fault), every=1, cohort=None).serve()
    sim = simulated(method, every=1, cohort=None)
    agree(d, sim)
    assert [line for line in d.lines if "it is tried again" in line]
    assert [len(ids) for ids in d.record.logs["cohort"]] == [4] * R
    assert d.record.meta["tensors"] == sim.meta["tensors"]  # nothing counted twice


def test_nobody_to_be_scored_at_the_end(twice):
    """The last scores are missed by all: asked for again, and a run without is none."""
    method, gone = build("Ditto"), lambda out: None
    agree(Deployment(method, spoil=once("score", R, gone)).serve(), simulated(method))
    with pytest.raises(
        ValueError, match="round 3 of 3 .* nobody could be scored; left"
    ):
        Deployment(
            method,
            spoil=lambda c, kind, about, out: (
                None if (kind, about["t"]) == ("score", R) else out
            ),
        ).serve()


@pytest.mark.parametrize("name", ["AFL", "FFT-GP"])
def test_a_method_that_needs_everybody_does_not_go_on_without(name, twice, tmp_path):
    """Two tries fail; the server ends and says so, and goes on when all are back."""
    method = build(name)
    d = Deployment(method, spoil=at(2, 1, "local", lambda out: None))
    with pytest.raises(
        ValueError, match=f"{name} needs all 4 clients; left out: client 2: no answer"
    ):
        d.serve(tmp_path)
    assert not (tmp_path / "done").exists()
    d.spoil = lambda c, kind, about, out: out
    agree(d.serve(tmp_path), simulated(method))
    assert [len(ids[ids >= 0]) for ids in d.record.logs["cohort"]] == [4] * R


@pytest.mark.parametrize(
    "name, why",
    [
        ("FedGini", "the new state of the server is not finite"),
        ("FedPAC", "FedPAC cannot aggregate these answers"),
    ],
)
def test_finite_numbers_that_are_too_large(name, why, twice, tmp_path):
    """They pass as numbers, and their squares overflow.

    The error says whose they are; the state is kept, and goes on without them.
    """
    method = build(name)
    c = member(method, 1)
    large = lambda out: tmap(lambda x: x * 0 + 1e200 if x.dim() > 1 else x, out)
    d = Deployment(method, spoil=at(c, 1, "local", large))
    with pytest.raises(
        ValueError, match=f"{why}.* 1e.200, is in the answer of client {c}"
    ):
        d.serve(tmp_path)
    assert [line[:28] for line in d.left()] == ["round 1 of 3 does not count:"]
    d.spoil = lambda c, kind, about, out: out
    agree(d.serve(tmp_path), simulated(method))


# ---------------------------------------------------------- a server that asks too much
@pytest.mark.parametrize(
    "name",
    [
        "local",
        "receive",
        "views",
        "client",
        "fit",
        "loss",
        "_rows",
        "__init__",
        "plans",
        "nothing",
        "inner.local",
        "report.__self__",
        "",
    ],
)
def test_only_questions_are_answered(name):
    d = Deployment(build("FAA"))
    about = {
        "code": message.code(),
        "federation": d.fed.digest,
        "t": 0,
        "on": 0,
        "done": 0,
        "question": name,
    }
    with pytest.raises(ValueError, match="is no question of FAA"):
        d.sites[0].answer("ask", about, {})
    assert question(d.sites[0].method, "report")


def test_rows_do_not_leave(twice):
    """EquFL's control asks for rows: every client refuses, and the server says why."""
    d = Deployment(build("EquFL", source="real"), cohort=None)
    with pytest.raises(ValueError, match="round 2 .*a row of this client's data"):
        d.serve()
    refusals = [line for line in d.lines if "left out of round 2, ask own_rows" in line]
    assert len(refusals) == 2 * 4 and all(
        "a row of this client's data" in line for line in refusals
    )


@pytest.mark.parametrize(
    "kind, more, why",
    [
        ("train", {}, "none of fedlib's"),
        ("local", {"t": 99}, "round 99 is none"),
        ("local", {"on": "x"}, "none of fedlib's"),
        (
            "local",
            {"code": "0" * 16},
            "runs another version of fedlib: install the same one everywhere",
        ),
        ("local", {"federation": "1"}, "has another federation file"),
        ("local", {"on": 6}, "keeps no state of step 6"),
        ("local", {"t": 2, "kept": True}, "the download of round 2 is gone"),
    ],
)
def test_messages_that_make_no_sense(kind, more, why):
    d = Deployment(build("Ditto"))
    about = {
        "code": message.code(),
        "federation": d.fed.digest,
        "t": 0,
        "on": 0,
        "done": 0,
    } | more
    with pytest.raises(ValueError, match=why):
        d.sites[0].answer(kind, about, {})


def test_another_version_is_refused_before_round_0(monkeypatch):
    d = Deployment(build("FedAvg"))
    answer = wire(d.site)

    def exchange(requests, wait):
        old = [
            (c, k, about | ({"code": "an older one"} if c == 2 else {}), tree)
            for c, k, about, tree in requests
        ]
        return answer(old, wait)

    with pytest.raises(
        ValueError,
        match=(
            r"client 2 is not ready \(client: the server runs "
            r"another version of fedlib"
        ),
    ):
        serve(d.fed, exchange)


def test_the_code_is_its_files(tmp_path):
    (tmp_path / "methods").mkdir()
    (tmp_path / "core").mkdir()
    engine = tmp_path / "core" / "engine.py"
    engine.write_bytes(b"a = 1\n")
    first = message.code(tmp_path)
    message.code.cache_clear()
    engine.write_bytes(b"a = 1\r\n")
    assert message.code(tmp_path) == first != message.code()
    message.code.cache_clear()
    engine.write_bytes(b"a = 2\n")
    assert message.code(tmp_path) != first
    engine.write_bytes(b"a = 1\n")
    message.code.cache_clear()
    (tmp_path / "methods" / "new.py").write_bytes(b"")
    assert message.code(tmp_path) != first


# ---------------------------------------------------------------- restarts
@pytest.mark.parametrize("name", ["FedALA", "PLGU-LF", "FedFB", "Ditto"])
def test_clients_restart_before_every_message(name, tmp_path):
    method = build(name)
    agree(Deployment(method, tmp_path).serve(), simulated(method))


@pytest.mark.parametrize("name", ["FedRep", "FedFB", "FedAvg"])
def test_the_server_is_killed_after_every_exchange(name, tmp_path, monkeypatch):
    """Answers are lost each time; nobody trains twice, and the numbers are those of an
    uninterrupted run.
    """
    method, trained = build(name), []
    honest = client.act

    def act(method, c, fed, kind, about, *rest):
        trained.append((about["t"], c)) if kind == "local" else None
        return honest(method, c, fed, kind, about, *rest)

    monkeypatch.setattr(client, "act", act)
    d, whole = Deployment(method, every=1), Deployment(method, every=1).serve()
    trained.clear()
    killed = set()

    def once(requests, wait):
        out, what = wire(d.site)(requests, wait), (requests[0][1], requests[0][2]["t"])
        if what not in killed:
            killed.add(what)
            raise KeyboardInterrupt
        return out

    for _ in range(50):
        try:
            d.record = serve(d.fed, once, tmp_path / "server", d.lines.append)
            break
        except KeyboardInterrupt:
            pass
    agree(d, simulated(method, every=1))
    assert (
        len(killed) > 2 * R
        and sorted(trained) == sorted(set(trained))
        and len(trained) == R * M
    )
    assert same(d.state(), whole.state()) and same(views(d.record), views(whole.record))
    again = serve(d.fed, None, tmp_path / "server")  # it is done: nobody is asked
    assert same(views(again), views(whole.record))


def test_a_lost_client_folder_is_noticed(tmp_path):
    method = build("Ditto")
    c = member(method, 1)

    def lose(who, kind, about, out):
        if (who, kind, about["t"]) == (c, "local", 1):
            for path in (tmp_path / f"client-{c}").glob("*"):
                path.unlink()
        return out

    d = Deployment(method, tmp_path, lose).serve()
    assert [line[:30] for line in d.left()] == [
        f"client {c} left out of round {t}, " for t in (2, 3)
    ]
    assert all(
        f"client {c} keeps no state of step 4 (it has none): bring its folder back"
        in line
        for line in d.left()
    )


def test_damaged_and_foreign_folders_are_refused(tmp_path):
    method = build("Ditto")
    d = Deployment(method, tmp_path, rounds=1).serve(tmp_path / "server")
    path = max((tmp_path / "client-0").glob("step-*"))
    path.write_bytes(path.read_bytes()[:-8] + b"damaged!")
    with pytest.raises(ValueError, match="client-0/step-.* is damaged"):
        d.site(0)
    with pytest.raises(
        ValueError, match="belongs to client 1 of federation .*, this is client 2"
    ):
        Site(d.fed, 2, d.tasks[2], tmp_path / "client-1")
    other = Deployment(build("Ditto", lam=0.3), tmp_path, rounds=1)
    with pytest.raises(ValueError, match="belongs to another federation"):
        other.serve(tmp_path / "server")
    with pytest.raises(ValueError, match="belongs to client 1 of federation"):
        other.site(1)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"n": 5}', '{"federation": 1}', "\0"])
def test_a_damaged_list_of_clients_is_named(tmp_path, text):
    d = Deployment(build("FedAvg"), tmp_path, rounds=1).serve(tmp_path / "server")
    path, known = tmp_path / "server" / "clients.json", tmp_path / "kept"
    path.rename(known)
    path.write_text(text)
    with pytest.raises(ValueError, match=r"clients.json is damaged .*bring a copy"):
        d.serve(tmp_path / "server")
    n = json.loads(known.read_text())
    n["n"]["train"].pop()
    path.write_text(json.dumps(n))
    with pytest.raises(ValueError, match=r"is damaged .*not \d clients"):
        d.serve(tmp_path / "server")


@pytest.mark.parametrize("steps", [None, {}, [], [2], ["2"], [True], [99], [-1]])
def test_damaged_steps_in_the_servers_checkpoint_are_named(steps, tmp_path):
    def stop(c, kind, about, out):
        if about["t"] == 1:
            raise KeyboardInterrupt
        return out

    d = Deployment(build("FedAvg"), spoil=stop)
    with pytest.raises(KeyboardInterrupt):
        d.serve(tmp_path)
    path = tmp_path / "checkpoint"
    state, record = checkpoint.read(path, "cpu")
    if steps and steps != [2]:  # else there are too few
        steps = steps * d.fed.C
    buf = io.BytesIO()
    torch.save({"state": state | {"steps": steps}, "record": record}, buf)
    body = buf.getvalue()
    path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    with pytest.raises(ValueError, match="is damaged .*steps = .*: it needs"):
        d.serve(tmp_path)


def test_a_new_server_does_not_overwrite_what_clients_have_learned(tmp_path):
    d = Deployment(build("Ditto"), tmp_path, cohort=None).serve()
    with pytest.raises(
        ValueError,
        match=(
            "client 0 is in round 2 already, and the server starts anew: give it its "
            "old folder"
        ),
    ):
        d.serve()
    plain = Deployment(build("FedAvg"), cohort=None).serve()  # nothing to lose
    assert same(plain.state(), plain.serve().state())


def test_everybody_must_be_there_before_round_0():
    d = Deployment(
        build("FedAvg"), spoil=lambda c, kind, about, out: None if c == 3 else out
    )
    with pytest.raises(
        ValueError,
        match=(
            "client 3 is not ready .*no answer within 60 s.*all 4 clients must answer"
        ),
    ):
        d.serve()


# -------------------------------------------------------------- what cannot be deployed
def test_a_server_that_needs_rows():
    with pytest.raises(
        ValueError,
        match=(
            "FedAS-chained cannot be deployed: its server needs the rows of the clients"
        ),
    ):
        serve(Federation.of(build("FedAS-chained"), 1), None)


def test_a_limit_below_the_model():
    with pytest.raises(
        ValueError, match="limit = 100, and FedAvg sends 456 bytes; raise the limit"
    ):
        serve(Federation.of(build("FedAvg"), 1, limit=100), None)


# ------------------------------------------------------ the file, and rows of one's own
TEXT = """
method: {name: FedAvg, lr: 0.5}
task: {name: mine, clients: 3, classes: 3, shape: [4], network: {name: MLP, hidden: 6}, batch: 8, parts: [.6, .2, .2]}
rounds: 2
"""


def write(path, **changes):
    given = yaml.safe_load(TEXT)
    for k, v in changes.items():
        given[k] = (
            given[k] | v
            if isinstance(v, dict) and isinstance(given.get(k), dict)
            else v
        )
    path.write_text(yaml.safe_dump({k: v for k, v in given.items() if v != "-"}))
    return path


def test_rows_from_files_are_cut_as_in_the_simulation(tmp_path):
    g = torch.Generator().manual_seed(0)
    x, y, owner = (
        torch.randn(90, 2, 2, generator=g),
        torch.arange(90) % 3,
        torch.arange(90) // 30,
    )
    for c in range(3):
        np.savez(
            tmp_path / f"{c}.npz", x=x[owner == c].numpy(), y=y[owner == c].numpy()
        )
    fed = Federation.load(write(tmp_path / "federation.yaml"))
    sites = [Site(fed, c, fed.client_task(c, tmp_path / f"{c}.npz")) for c in range(3)]
    record = serve(fed, wire(sites.__getitem__), log=lambda line: None)
    pool = Pool("mine", x.reshape(90, 4), y, 3, "real")
    task = Task.from_rows(
        "mine",
        MLP(4, 6, 3),
        pool,
        [(owner == c).nonzero()[:, 0] for c in range(3)],
        0,
        (0.6, 0.2, 0.2),
        batch=8,
    )
    rec = run(make("FedAvg", task, lr=0.5), rounds=2, how="loop", device="cpu")
    assert same(record.state["server"], rec.state["server"]) and same(
        views(record), views(rec)
    )
    assert record.meta["n"] == rec.meta["n"]


def test_rows_from_a_description(tmp_path):
    path = write(
        tmp_path / "federation.yaml",
        task={
            "classes": 10,
            "shape": [64],
            "network": "Linear",
            "parts": [0.8, 0.1, 0.1],
        },
    )
    fed = Federation.load(path)
    part = fed.client_task(1, "digits:clients=3,dirichlet=.3")
    assert 0 < len(part.x) < 1797 and len(part.x) == sum(
        len(r[1]) for r in (part.train, part.val, part.test)
    )
    assert [len(r) for r in part.train] == [0, len(part.train[1]), 0]
    assert type(part.network).__name__ == "Linear" and part.batch == 8


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"round": 3}, "unknown key 'round'; did you mean 'rounds'?"),
        ({"rounds": "-"}, "'rounds' is missing"),
        ({"rounds": 1.5}, "rounds = 1.5; give a whole number"),
        ({"cohort": 9}, "cohort = 9: the task 'mine' has 3 clients"),
        ({"wait": 0}, "wait = 0; give seconds"),
        ({"limit": True}, "limit = True; give a whole number of bytes"),
        (
            {"method": {"name": "FedAgv"}},
            "unknown method 'FedAgv'; did you mean 'FedAvg'?",
        ),
        ({"method": {"lrr": 1}}, "no hyper-parameter 'lrr'; did you mean 'lr'?"),
        ({"method": 3}, "method: 3 is no mapping"),
        (
            {"task": {"clinets": 3}},
            "task: unknown key 'clinets'; did you mean 'clients'?",
        ),
        (
            {"task": {"shape": 4}},
            r"task.shape = 4; give the shape of one row, as \[64\]",
        ),
        (
            {"task": {"network": {"name": "MPL"}}},
            "unknown .*task.network: 'MPL'; did you mean 'MLP'?",
        ),
        (
            {"task": {"network": {"name": "MLP"}}},
            "task.network MLP: 'hidden' is missing",
        ),
        (
            {"task": {"network": {"name": "MLP", "hiden": 3}}},
            "unknown key 'hiden'; did you mean 'hidden'?",
        ),
        ({"task": {"dtype": "half"}}, "task.dtype = 'half'; give float32 or float64"),
        ({"task": {"groups": {"name": "sex"}}}, "task.groups: 'names' is missing"),
        ({"method": {"name": "FairFed"}}, "FairFed needs to know the groups"),
    ],
)
def test_mistakes_in_the_file(changes, why, tmp_path):
    with pytest.raises(ValueError, match=why):
        Federation.load(write(tmp_path / "federation.yaml", **changes))


@pytest.mark.parametrize(
    "arrays, why",
    [
        ({"x": np.zeros((9, 4))}, "give x, y of one length"),
        ({"x": np.zeros((9, 4)), "y": np.zeros(8)}, "give x, y of one length"),
        (
            {"x": np.zeros((9, 5)), "y": np.zeros(9)},
            r"rows of shape \[5\], .* says \[4\]",
        ),
        (
            {"x": np.zeros((9, 4)), "y": np.full(9, 3)},
            "labels run from 3 to 3, the federation allows 0 to 2",
        ),
        ({"x": np.full((9, 4), np.nan), "y": np.zeros(9)}, "9 rows of x hold NaN"),
        ({"x": np.zeros((1, 4)), "y": np.zeros(1)}, "0 training and 0 test rows"),
        ({"x": np.array([{}]), "y": np.zeros(1)}, "cannot be read"),
        ({"x": np.zeros((9, 4), complex), "y": np.zeros(9)}, "not real numbers"),
        ({"x": np.zeros((9, 4)), "y": np.full(9, 0.5)}, "y holds .* not whole"),
        ({"x": np.zeros((9, 4)), "y": np.full(9, np.nan)}, "y holds .* not whole"),
        ({"x": np.float64(1), "y": np.float64(1)}, "give x, y of one length"),
    ],
)
def test_mistakes_in_the_rows(arrays, why, tmp_path):
    fed = Federation.load(write(tmp_path / "federation.yaml"))
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(ValueError, match=why):
        fed.client_task(0, tmp_path / "mine.npz")
    with pytest.raises(ValueError, match="numbered 0 to 2"):
        fed.client_task(3, tmp_path / "mine.npz")


def npz(path, x, name="x.npy"):
    """mine.npz with these bytes as an array."""
    y = io.BytesIO()
    np.save(y, np.zeros(9))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as pack:
        pack.writestr(name, x)
        pack.writestr("y.npy", y.getvalue())
    return path.read_bytes()


@pytest.mark.parametrize("shape", ["(1000000000000, 4)", "(9, -4)", "(10, 4)"])
def test_a_file_of_rows_that_claims_more_than_it_holds(shape, tmp_path):
    """Before any memory is taken."""
    fed = Federation.load(write(tmp_path / "federation.yaml"))
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    x = b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + bytes(9 * 4 * 8)
    npz(tmp_path / "mine.npz", x)
    with pytest.raises(ValueError, match="cannot be read .*288 bytes for float64"):
        fed.client_task(0, tmp_path / "mine.npz")


def test_a_damaged_file_of_rows(tmp_path):
    fed, path = Federation.load(write(tmp_path / "federation.yaml")), tmp_path / "m.npz"
    x = io.BytesIO()
    np.save(x, np.random.default_rng(0).standard_normal((9, 4)))
    body = npz(path, x.getvalue())
    fed.client_task(0, path)
    for damaged in (b"", b"PK", body[:200], body[:-1], body[:150] + b"?" + body[151:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="m.npz cannot be read"):
            fed.client_task(0, path)
    npz(path, x.getvalue(), name="y.npy")
    with pytest.raises(ValueError, match="twice"):
        fed.client_task(0, path)
    with pytest.raises(ValueError, match="there is no such file"):
        fed.client_task(0, tmp_path / "none.npz")


def test_both_ends_know_the_same_federation(tmp_path):
    one, same_, other = (
        Federation.load(write(tmp_path / f"{k}.yaml", **more))
        for k, more in enumerate(({}, {"wait": 5}, {"method": {"lr": 0.4}}))
    )
    assert one.digest == same_.digest != other.digest


@pytest.mark.parametrize("name", ["EquFL", "Gaussian-update", "FedAvg"])
def test_a_federation_of_a_method_can_be_written_down(name):
    fed = Federation.of(
        build(
            name, **{"step": {"name": "SAM", "rho": 0.1}} if name == "FedAvg" else {}
        ),
        R,
    )
    plain = json.loads(json.dumps({"method": fed.method, "task": fed.task}))
    back = Federation(**plain, rounds=R)
    task = back.server_task()
    assert (
        back.digest == fed.digest
        and back.groups == GROUPS
        and back.network == fed.network
    )
    assert back.make(task) == fed.make(task)


RANGES = (
    Block("sex", "flag", 0, 1),
    Block("age", "number", 1, 2, -1.5, 2.0),
    Block("income", "number", 2, 3, 0.0),
    Block("debt", "number", 3, 4, high=0.5),
    Block("score", "number", 4, 5),
)


def test_ranges_of_the_schema_are_written_down(tmp_path):
    """As JSON, which has no infinity, and as yaml; short blocks are read as well."""
    groups = replace(GROUPS, schema=RANGES)
    fed = Federation.of(make("FedAvg", toy(sizes=SIZES, groups=groups)), R)
    given = {"method": fed.method, "task": fed.task}
    text = json.dumps(given, allow_nan=False)
    assert [b[4:] for b in json.loads(text)["task"]["groups"]["schema"]] == [
        [None, None],
        [-1.5, 2.0],
        [0.0, None],
        [None, 0.5],
        [None, None],
    ]
    path = tmp_path / "federation.yaml"
    path.write_text(yaml.safe_dump(json.loads(text) | {"rounds": R}))
    for back in (Federation(**json.loads(text), rounds=R), Federation.load(path)):
        assert back.groups == groups == fed.groups and back.digest == fed.digest
    short = json.loads(text)
    blocks = short["task"]["groups"]["schema"]
    short["task"]["groups"]["schema"] = [b if any(b[4:]) else b[:4] for b in blocks]
    assert Federation(**short, rounds=R).groups.schema[0] == RANGES[0]


@pytest.mark.parametrize(
    "entry, why",
    [
        (["sex", "flag", 0], r"schema\[0\] = \['sex', 'flag', 0\]; give \[name, kind"),
        ("sex", r"schema\[0\] = 'sex'; give \[name, kind, start, stop\]"),
        (["age", "number", 0, 1, 2], r"or with a range \[name, kind, start, stop, low"),
        (["age", "number", 0, 1, 2, 1], r"the range is \[2, 1\]; give two numbers"),
        (["age", "number", 0, 1, "a", None], r"the range is \['a', inf\]; give two"),
        (["job", "onehot", 0, 5], "the code is column 0 of x, one of 5 in the one-hot"),
    ],
)
def test_mistakes_in_the_schema(entry, why):
    fed = Federation.of(build("FairFed"), R)
    groups = fed.task["groups"] | {"schema": [entry]}
    with pytest.raises(ValueError, match=why):
        Federation(fed.method, fed.task | {"groups": groups}, R)


# ---------------------------------------------------------------- messages
def test_bytes_and_back():
    tree = {
        "w": {
            "fc.weight": torch.randn(2, 3).T,
            "half": torch.ones(2, dtype=torch.float16),
        },
        "none": {},
        "n": torch.tensor(3.0),
        "seen": torch.tensor([True, False]),
        "deep": {"er": {"empty": torch.zeros(0, 4)}, "no": {}},
        "cid": torch.tensor(-1),
    }
    back = message.unpack(message.pack(tree))
    for got in (back, through(tree), message.check(through(tree), tree, 10**6)):
        assert same(got, tree) and repr(tmap(lambda x: 0, got)) == repr(
            tmap(lambda x: 0, tree)
        )
    assert (
        list(message.pack(tree))[:3] == ["w/fc.weight", "w/half", "none/"]
        and through({}) == {}
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"abc",
        b"\xff" * 40,
        message.dumps({"a": torch.ones(3)})[:-1],
        message.dumps({"a": torch.ones(3)}) + b"x",
        (2).to_bytes(8, "little") + b"{}",
        (24).to_bytes(8, "little") + b'[["a", "object", [1, 2]]]',
        (33).to_bytes(8, "little") + b'[["a", "float32", [99999999999]]]',
        (25).to_bytes(8, "little") + b'[["a", "float32", [-1]]] ',
    ],
)
def test_bytes_that_are_no_message(body):
    with pytest.raises(ValueError, match="no message of fedlib"):
        message.loads(body)


def test_what_cannot_be_sent():
    for tree, why in (
        ({"a/b": torch.ones(1)}, "without '/'"),
        ({"a": 1.0}, "'a' is float: give tensors of"),
        ({"a": torch.ones(1, dtype=torch.bfloat16)}, "bfloat16"),
    ):
        with pytest.raises(ValueError, match=why):
            message.dumps(tree)
    with pytest.raises(ValueError, match="and the limit is 10"):
        message.loads(b"0" * 2**21, 10)
