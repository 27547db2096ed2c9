"""Over the network: Flower between a server and clients in threads of one process, who
is let in, how many connections there may be, and what is refused before anything starts.
"""

import asyncio
import socket
import sys
import threading
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import torch
import yaml
from test_federation import FILE
from toys_wire import Parties, agree, build, simulated

from fedlib.cli.main import main
from fedlib.deploy import command, gate, keys
from fedlib.deploy.gate import Caps, Gate, caps

flower = pytest.importorskip("fedlib.deploy.flower", reason="needs flwr")
C = 4


def within(f, seconds=120):
    """f() in a thread, so that a federation that hangs fails and does not hang us."""
    out = []
    thread = threading.Thread(target=lambda: out.append(f()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert out, "it did not end, or failed: see above"
    return out[0]


def signature(key, stamp=None, by=None):
    """The head of a request of a client."""
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    stamp = stamp or datetime.now(UTC).isoformat()
    sign = (by or key).sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    return {
        "flwr-public-key": b64encode(keys.public(key)).decode(),
        "flwr-timestamp": stamp,
        "flwr-signature": b64encode(sign).decode(),
    }


# ---------------------------------------------------------------- a whole federation
class Killed(BaseException):
    """The end of a process."""


def test_flower_carries_the_same_numbers_and_strangers_are_refused(monkeypatch):
    """Client 2 answers too much in round 1, and gives an excuse in round 2. Client 1
    dies with a message in hand, and is started again.
    """
    import httpx

    monkeypatch.setenv("no_proxy", "*")
    limit, dead = 20_000, []

    def spoil(c, kind, about, out):
        if (c, kind) == (1, "local") and not dead:
            dead.append(c)
            raise Killed
        if (c, kind, about["t"]) == (2, "local", 1):
            return out | {"more": torch.zeros(limit)}
        if (c, kind, about["t"]) == (2, "local", 2):
            raise ValueError("no \x1b[2J power\nround 99")
        return out

    method = build("FedFB")
    parties = Parties(method, spoil=spoil, cohort=None, limit=limit)
    known = {c: keys.public(keys.stand_in(c)) for c in range(C)}
    sock = Gate(socket.create_server(("127.0.0.1", 0)), caps(C), parties.lines.append)
    there = f"127.0.0.1:{sock.getsockname()[1]}"

    def join(c, key=None):
        answer = lambda *message: parties.answer(c, *message)
        rest = key or keys.stand_in(c), None, 10**8, True, 60.0
        try:
            flower.join(answer, c, there, *rest, log=lambda line: None)
        except Killed:
            join(c, key)

    with flower.Link(
        sock, known, None, limit, 60.0, None, parties.lines.append
    ) as link:
        with pytest.raises(ValueError, match="key"):
            join(0, keys.stand_in(C))
        old = (datetime.now(UTC) - timedelta(seconds=400)).isoformat()
        me, now = keys.stand_in(0), datetime.now(UTC).isoformat()
        for path, head, status in (
            ("control/start-run", signature(me), 404),
            ("fleet/pull-messages", {}, 403),
            ("fleet/pull-messages", signature(keys.stand_in(C)), 403),
            ("fleet/pull-messages", signature(me, old), 401),
            ("fleet/pull-messages", signature(me, by=keys.stand_in(1)), 401),
            ("fleet/activate-node", signature(me, now), None),
            ("fleet/activate-node", signature(me, now), 401),  # again
            ("fleet/pull-messages", signature(me), 413),
            ("fleet/push-messages", signature(me), 413),
        ):
            body = bytes(limit + flower.SLACK + 1) if status == 413 else b""
            url = f"http://{there}/v1/{path}"
            got = httpx.post(url, content=body, headers=head, trust_env=False)
            assert got.status_code == status or not status, (path, got)
        threads = [
            threading.Thread(target=join, args=(c,), daemon=True) for c in range(C)
        ]
        for t in threads:
            t.start()
        parties.exchange = link.exchange
        within(lambda: parties.serve())
        within(lambda: link.end() or True)
        for t in threads:
            t.join(60)
            assert not t.is_alive(), "told that it is over, a client leaves"
    cohort = lambda t: [c for c in range(C) if c != 2 or t not in (1, 2)]
    agree(parties, simulated(method, cohort=cohort), but=("pre", "cells"))
    assert parties.left() == [(2, 1, "local"), (2, 2, "local")]
    assert all(line.isprintable() for line in parties.lines)
    refused = [line for line in parties.lines if line.startswith("refused")]
    assert len(refused) == len(set(refused)) == 4


# ---------------------------------------------------------------- clients that are away
class World(flower.Link):
    """A link without Flower, and its time: life[c] is a list of (from, to), the seconds
    at which a process of client c lives; hung never answer, sick answer with an error.
    """

    def __init__(self, life, minimum=None, now=0.0, hung=(), sick=(), patience=0.0):
        self.life, self.now = dict(enumerate(life)), now
        self.hung, self.sick = hung, sick
        self.limit, self.patience, self.minimum = 10**6, patience, minimum or 1
        self.began, self.lines, self.asked = True, [], []
        self.log, self.nodes = self.lines.append, dict.fromkeys(self.life)
        self.refused, self.gone, self.signs = {}, set(), {}

    monotonic = lambda self: self.now

    def sleep(self, seconds):
        self.now += seconds

    def span(self, c):
        return next((a for a, b in self.life[c] if a <= self.now < b), None)

    def _nodes(self):
        for c in self.nodes:
            spans = [(a, min(b, self.now)) for a, b in self.life[c] if a <= self.now]
            beat = max((a + (b - a) // 5 * 5 for a, b in spans), default=-99.0)
            here = "ONLINE" if self.now < beat + 20 else "OFFLINE"  # for Flower
            status = getattr(flower.NodeStatus, here)
            yield c, SimpleNamespace(online_until=beat, status=status)

    def _send(self, c, *_):
        self.asked.append(c)
        return SimpleNamespace(taken=None)

    def _answer(self, c, sent):
        life = self.span(c)
        if life is None or sent.taken not in (None, life):
            return None
        if sent.taken is None:
            sent.taken, sent.when = life, self.now
        if c in self.sick:
            raise ValueError("its folder is damaged")
        return {} if c not in self.hung and self.now > sent.when + 3 else None

    def _vain(self, c, sent):
        return sent.taken is not None and self.span(c) not in (None, sent.taken)

    def _missing(self, connected, sent, wait):
        return TimeoutError() if connected else ConnectionError()

    def _forget(self, sent):
        pass


EVER = [(0, 10**6)]
OK, AWAY, LATE = dict, ConnectionError, TimeoutError


def ask(world, monkeypatch, *ids, t=1, wait=60):
    """One exchange -> [type of the answer of each], seconds."""
    monkeypatch.setattr(flower, "time", world)
    began = world.now
    out = world.exchange([(c, "local", {"t": t}, {}) for c in ids], wait)
    return [type(out[c]) for c in ids], world.now - began


def test_who_is_away_is_waited_for_as_long_as_it_should(monkeypatch):
    back = lambda at, gone=10: [(0, gone), (at, 10**6)]
    for life, more, ids, t, want, low, high, pauses in (
        # all die with the message in hand: one pause, and those that come soon are in
        ([back(500), back(507), back(530)], {"now": 9.0}, (0, 1, 2), 1, [OK] * 3, 491, 530, 1),
        # one that is away is waited for, and asked again if it comes in time
        ([[(0, 10)], EVER, EVER], {"now": 9.0}, (0, 1, 2), 1, [AWAY, OK, OK], 59, 62, 0),
        ([back(45), EVER], {"now": 9.0}, (0, 1), 1, [OK, OK], 36, 45, 0),
        ([EVER], {"hung": (0,)}, (0,), 1, [LATE], 59, 62, 0),
        ([EVER, EVER], {"sick": (0, 1)}, (0, 1), 1, [ValueError] * 2, 0, 1, 0),
        # a refusal is no answer: the federation waits for the one that can give one
        ([EVER, [(400, 10**6)]], {"sick": (0,)}, (0, 1), 1, [ValueError, OK], 402, 406, 1),
        ([EVER, back(300), [(0, 10)]], {"now": 9.0}, (0, 1), 1, [OK, AWAY], 59, 62, 0),
        ([EVER, back(300), [(0, 10)]], {"now": 9.0, "minimum": 2}, (0, 1), 1, [OK, OK], 292, 300, 1),
        # the minimum is of those that are asked; before round 0 all must answer
        ([EVER, [(200, 10**6)], EVER], {"minimum": 3}, (1,), 1, [OK], 202, 206, 1),
        ([EVER, [(200, 10**6)]], {}, (0, 1), -1, [OK, OK], 202, 206, 1),
        # Flower takes a client for connected for 20 s after its last sign of life
        ([[(0, 10)], back(400)], {"now": 9.0, "minimum": 1}, (0, 1), 1, [AWAY, OK], 392, 460, 1),
    ):  # fmt: skip
        world = World(life, **more)
        got, seconds = ask(world, monkeypatch, *ids, t=t)
        assert got == want and low <= seconds <= high, (life, more, got, seconds)
        assert len(world.lines) == 2 * pauses, world.lines
        if want == [AWAY, OK, OK]:  # once; the next round does not wait for it
            assert ask(world, monkeypatch, *ids)[1] < 5


def test_the_start_waits_for_all_and_then_for_the_minimum(monkeypatch):
    for t, minimum, ok in ((-1, 1, False), (0, None, True), (0, 2, False)):
        world = World([EVER, []], minimum, patience=100.0)
        world.began = False
        if ok:
            got, seconds = ask(world, monkeypatch, 0, 1, t=t)
            assert got == [OK, AWAY] and seconds > 100
        else:
            with pytest.raises(ValueError, match="client 1"):
                ask(world, monkeypatch, 0, 1, t=t)
    world = World([EVER, [(0, 1)]], now=30.0)  # the end is told to those who are there
    monkeypatch.setattr(flower, "time", world)
    world.end()
    assert world.asked == [0] and not world.lines


def test_a_client_looks_for_its_server_more_and_more_seldom(monkeypatch):
    tries, there, clock = [], iter(30 * [False]), SimpleNamespace(now=0.0)

    class Leave(threading.Event):
        def wait(self, seconds):
            tries.append(seconds)
            clock.now += seconds

    leave = Leave()
    knock = lambda: next(there, None) or (len(tries) > 29 and leave.set())
    monkeypatch.setattr(flower, "time", SimpleNamespace(monotonic=lambda: clock.now))
    flower.join(None, 0, "here", None, patience=1e9, knock=knock, leave=leave)
    for k, seconds in enumerate(tries[:29]):
        most = min(flower.LATE, flower.SOON * 2**k)
        assert most / 2 <= seconds <= most
    assert len(set(tries[5:29])) > 20  # not all clients at one time
    with pytest.raises(ValueError, match="nobody"):
        flower.join(
            None, 0, "here", None, patience=9, knock=lambda: False, leave=Leave()
        )


# ---------------------------------------------------------------- how many connections
def test_caps_leave_descriptors_for_the_checkpoint(monkeypatch):
    now, told, endless = {}, [], gate.resource.RLIM_INFINITY
    monkeypatch.setattr(gate.resource, "getrlimit", lambda _: now["limits"])
    monkeypatch.setattr(gate.resource, "setrlimit", lambda _, to: told.append(to))
    monkeypatch.setattr(gate.os, "listdir", lambda _: ["fd"] * 10)
    for clients, limits, want, raised in (
        (3, (10_000, 10_000), Caps(12 + 64, 12 + 32, 4), []),
        (3, (130, 130), Caps(130 - 10 - 64 - 16, 12 + 14, 4), [(130, 130)]),
        (3, (112, 112), Caps(22, 6 + 8, 2), [(112, 112)]),
        (100, (256, 100_000), Caps(464, 432, 4), [(554, 100_000)]),
        (100, (256, endless), Caps(464, 432, 4), [(554, endless)]),
        (1000, (endless, endless), Caps(4064, 4032, 4), []),
    ):
        now["limits"] = limits
        told.clear()
        assert caps(clients) == want and told == raised, limits
    now["limits"] = 256, 256
    with pytest.raises(ValueError, match="50"):
        caps(100)


class Visits:
    """Connections to a gate, without an event loop: come() -> the visitor's end."""

    def __init__(self, *caps, step=60.0):
        self.lines, self.now, self.step, self.ends = [], 0.0, step, {}
        bound = socket.create_server(("127.0.0.1", 0))
        clock = lambda: self.now
        self.gate = Gate(bound, Caps(*caps), self.lines.append, 10, clock)

    def come(self, client=None, address="127.0.0.1"):
        to = self.gate.getsockname()
        mine = socket.create_connection(to, 5, source_address=(address, 0))
        self.ends[mine], _ = self.gate.accept()
        self.now += self.step
        if client is not None:
            self.gate.trust(self.scope(mine), client)
        return mine

    def scope(self, mine):
        return {"client": mine.getsockname(), "server": mine.getpeername()}

    def gone(self, *mine):
        return "".join("_x"[self.left(m)] for m in mine)

    def left(self, mine):
        mine.setblocking(False)
        try:
            return mine.recv(1) == b""
        except BlockingIOError:
            return False

    def close(self):
        for s in (*self.ends, *self.ends.values(), self.gate):
            s.close()


@pytest.fixture
def visits():
    made = []
    yield lambda *a, **k: made.append(Visits(*a, **k)) or made[-1]
    for v in made:
        v.close()


def test_who_gives_way_at_the_gate(visits):
    v = visits(9, 3, 4)  # the oldest that has shown no key, said once
    came = [v.come(0), v.come(), v.come(), v.come(), v.come(1)]
    assert v.gone(*came) == "_xx__" and len(v.lines) == 1
    v = visits(9, 2, 4, step=0.0)  # a new one has time to show its key
    came = [v.come(), v.come()]
    v.now = gate.GRACE - 0.1
    came.append(v.come())
    v.now = gate.GRACE
    came.append(v.come())
    assert v.gone(*came) == "x_x_"
    v = visits(2, 9, 4)  # where all are known the new one goes
    assert v.gone(v.come(0), v.come(1), v.come()) == "__x"
    v = visits(9, 9, 2)  # a client has its share, and loses its oldest
    assert v.gone(v.come(1), v.come(0), v.come(0), v.come(0)) == "_x__"
    if sys.platform == "linux":  # one address does not take another's places
        v = visits(4, 3, 4)
        there = v.come(address="127.0.0.2")
        assert v.gone(there, *(v.come() for _ in range(9))) == "_xxxxxx___"
    v = visits(2, 2, 1)  # no more are accepted than leave
    came = [v.come() for _ in range(2 + gate.LEAVING)]
    with pytest.raises(BlockingIOError):
        v.come()
    v = visits(2, 2, 1)  # a place is free when a connection has ended
    for _ in range(9):
        v.ends[v.come()].close()
    assert not v.lines and not v.gate.here()


def test_how_long_a_connection_may_be_idle(visits):
    v = visits(9, 9, 9, step=0.0)
    idle, busy = v.come(), v.come(0)
    look = lambda now: setattr(v, "now", now) or asyncio.run(v.gate.sweep())
    with v.gate.request(v.scope(busy)):
        look(9.9)
        assert v.gone(idle, busy) == "__"
        look(1000.0)
        assert v.gone(idle, busy) == "x_" and len(v.lines) == 1
    look(1000.0 + gate.KEEP_ALIVE + 9)
    assert v.gone(busy) == "_"
    look(1000.0 + gate.KEEP_ALIVE + 11)
    assert v.gone(busy) == "x" and len(v.lines) == 1
    for i in range(3 * gate.LINES):
        v.gate.refuse(f"10.0.0.{i // 2}", "knocks")
    assert len(v.lines) == gate.LINES + 1 == len(set(v.lines))


# ---------------------------------------------------------------- whose it is
def test_a_signature_counts_for_its_key_and_its_time():
    pair = keys.stand_in(0)
    head = {k: v.encode() for k, v in signature(pair).items()}
    stamp, sign = head["flwr-timestamp"], head["flwr-signature"]
    now, key = datetime.fromisoformat(stamp.decode()), keys.public(pair)
    good = lambda s: keys.signed(stamp, sign, key, now + timedelta(seconds=s))
    assert [good(s) for s in (-6, -4, 0, 304, 306)] == [False, True, True, True, False]
    assert not keys.signed(stamp, sign, keys.public(keys.stand_in(1)))
    for wrong in (b"", b"=", b"AAAA", b"\xff", stamp.replace(b"+00:00", b"")):
        assert not keys.signed(stamp, wrong, key) and not keys.signed(wrong, sign, key)
    assert len({keys.public(keys.stand_in(c)) for c in range(9)}) == 9


def test_keys_are_made_once_for_a_host_and_some_days(tmp_path):
    old = tmp_path / "old"
    day = lambda *d: datetime(*d, tzinfo=UTC)
    keys.make(old, ["server.example", "10.0.0.1"], 2, 30, day(2020, 1, 1))
    certificate, secret, known = keys.server(old, 2, day(2020, 1, 30))
    own = [keys.public(keys.private(old / f"client-{c}.key")) for c in (0, 1)]
    assert known == dict(enumerate(own))
    assert len({*known.values()}) == 2
    assert all(p.stat().st_mode & 0o077 == 0 for p in old.iterdir())
    ca = keys.authority(old / "ca.pem", day(2020, 1, 30))
    mine = keys.authority(certificate, day(2020, 1, 30))
    mine.verify_directly_issued_by(ca)
    names = {
        str(e.value)
        for x in mine.extensions
        for e in getattr(x.value, "_general_names", ())
    }
    assert {"server.example", "localhost", "10.0.0.1"} <= names
    for at in (day(2019, 12, 31), day(2020, 2, 1), None):
        with pytest.raises(ValueError, match="2020"):
            keys.server(old, 2, at)
    (old / "server.key").write_bytes((old / "client-0.key").read_bytes())
    for f in (lambda: keys.server(old, 2, day(2020, 1, 2)), lambda: keys.make(old, ["a"], 2),
              lambda: keys.private(old / "ca.pem"), lambda: keys.private(old / "none"),
              lambda: keys.authority(old / "ca.key")):  # fmt: skip
        with pytest.raises(ValueError, match=str(old)):
            f()


# ---------------------------------------------------------------- before anything starts
def test_what_a_command_refuses_before_it_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    file, made = tmp_path / "f.yaml", tmp_path / "keys"
    file.write_text(yaml.safe_dump(FILE))
    assert (
        main(["deploy", "keys", str(made), "--host", "localhost", "--clients", "3"])
        == 0
    )
    assert len([*made.glob("client-*.pub")]) == 3
    capsys.readouterr()
    data = tmp_path / "mine.npz"
    import numpy as np

    np.savez(data, x=np.random.default_rng(0).normal(size=(9, 4)), y=np.arange(9) % 3)
    base = {"server": ["--folder", tmp_path / "run"],
            "client": ["--client", 0, "--data", data, "--folder", tmp_path / "state"]}  # fmt: skip
    ca, key = ("--ca", made / "ca.pem"), ("--key", made / "client-0.key")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.listen(0)
        for do, argv, names in (
            ("server", ("--host", "0.0.0.0"), ("0.0.0.0", "--keys")),
            ("server", (*"--host 0.0.0.0 --port 0 --patience 0 --insecure".split(),), ("--insecure",)),
            ("server", ("--insecure", "--keys", made), ("--insecure", "--keys")),
            ("server", ("--port", port), (str(port), "--port")),
            ("server", ("--port", 99999), ("99999",)),
            ("server", ("--host", "203.0.113.7", "--keys", made), ("203.0.113.7",)),
            ("server", ("--minimum", 4), ("--minimum", "3")),
            ("server", ("--minimum", 0), ("--minimum",)),
            ("server", ("--patience", "nan"), ("--patience",)),
            ("server", ("--port", 0, "--patience", 0), ("client 0, 1, 2",)),
            ("server", ("--keys", tmp_path), ("server.pem",)),
            ("client", ("--server", "far.example:8000"), ("far.example", "--ca")),
            ("client", (*ca,), ("--ca", "--key")), ("client", (*key,), ("--ca", "--key")),
            ("client", (*ca, *key, "--insecure"), ("--insecure",)),
            ("client", (*ca, "--key", made / "none"), ("none",)),
            ("client", ("--server", "far.example"), ("host:port",)),
            ("client", ("--server", "localhost:0"), ("host:port",)),
            ("client", ("--server", "127.0.0.1:1", "--patience", 0), ("127.0.0.1:1",)),
            ("client", ("--patience", -1), ("--patience",)),
        ):  # fmt: skip
            status = main(["deploy", do, str(file), *map(str, (*base[do], *argv))])
            said = capsys.readouterr().err
            assert status == 2 and all(n in said for n in names), (do, argv, said)
    assert command.address("[::1]:80") == ("::1", 80)
    assert [command.loopback(h) for h in ("127.9.9.9", "::1", "localhost", "10.0.0.1", "a")] == [
        True, True, True, False, False]  # fmt: skip


def test_a_client_knows_who_answers_it(tmp_path):
    """An end is no proof that the server speaks no TLS; another answer is."""
    keys.make(tmp_path, ["localhost"], 1)
    ca = tmp_path / "ca.pem"
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as s:

            def once(s=s, answer=answer):
                line, _ = s.accept()
                line.recv(9999)
                line.sendall(answer)
                line.close()

            thread = threading.Thread(target=once, daemon=True)
            thread.start()
            here = "127.0.0.1", s.getsockname()[1]
            if answer:
                with pytest.raises(ValueError, match="TLS"):
                    command.knock(*here, ca)
            else:
                assert command.knock(*here, ca) is False
            thread.join(60)
            assert command.knock(*here, None) is True
    assert command.knock(*here, None) is False  # nobody any more
