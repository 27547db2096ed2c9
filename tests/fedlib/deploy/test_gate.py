"""The server's port under strangers: caps, who gives way, timeouts; a real server in a
crowd of idle and slow connections.
"""

import asyncio
import inspect
import itertools
import logging
import random
import resource
import socket
import sys
import threading
import time
from base64 import b64encode
from datetime import datetime, timedelta

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

pytest.importorskip("flwr")
from torture import port
from where import ROOT

from fedlib.deploy import command, gate, keys
from fedlib.deploy.gate import Caps, Gate, caps


# ---------------------------------------------------------------- how many
@pytest.fixture
def limits(monkeypatch):
    """limits(soft, hard, open): what the system says, and [what it is told]."""

    def limits(soft, hard, here=10):
        told = []
        monkeypatch.setattr(gate.resource, "getrlimit", lambda _: (soft, hard))
        monkeypatch.setattr(gate.resource, "setrlimit", lambda _, to: told.append(to))
        monkeypatch.setattr(gate.os, "listdir", lambda _: ["fd"] * here)
        return told

    return limits


def test_caps_leave_descriptors_for_the_checkpoint(limits):
    told = limits(10_000, 10_000)
    assert caps(3) == Caps(total=12 + 64, address=12 + 32, client=4) and not told
    limits(200, 200)
    assert caps(3).total == 12 + 64
    limits(130, 130)
    assert caps(3) == Caps(total=130 - 10 - 64 - 16, address=12 + 14, client=4)
    limits(112, 112)
    assert caps(3) == Caps(total=22, address=6 + 8, client=2)


def test_the_soft_limit_is_raised_as_far_as_needed_and_allowed(limits):
    told = limits(256, 100_000)
    assert caps(100).total == 464 and told == [(10 + 464 + 80, 100_000)]
    told = limits(256, 400)
    assert caps(100).total == 310 and told == [(400, 400)]
    told = limits(256, resource.RLIM_INFINITY)
    assert caps(100).total == 464 and told == [(554, resource.RLIM_INFINITY)]
    told = limits(resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    assert caps(1000).total == 4064 and not told


def test_a_limit_that_is_too_low_for_the_clients_is_refused(limits):
    limits(256, 256)
    with pytest.raises(ValueError, match="room for 166 .* 100 clients need 216: .* 50"):
        caps(100)


def test_the_book_says_the_same_numbers():
    page = (ROOT / "book/operate.md").read_text(encoding="utf-8")
    for text in (
        f"{gate.CLIENT} of each client, and {gate.SPARE} of strangers",
        f"those of all clients and {gate.SPARE // 2}",
        f"{gate.KEPT} descriptors stay free",
        f"10 s and one more per {gate.SLOWEST // 1024} KiB",
        f"{gate.HEADER // 1024} KiB for a header, and for a stranger's body",
        f"{gate.LINES:,} lines in all",
    ):
        assert text in page
    assert inspect.signature(Gate).parameters["seconds"].default == 10
    assert len(port.KINDS) == 40


# ---------------------------------------------------------------- who gives way
class Visits:
    """Connections to a gate, without an event loop: come() -> its two ends."""

    def __init__(self, caps, clock=time.monotonic):
        self.lines, self.ends = [], []
        bound = socket.create_server(("127.0.0.1", 0))
        self.gate = Gate(bound, caps, self.lines.append, seconds=10, clock=clock)

    def come(self, address="127.0.0.1", client=None):
        to = self.gate.getsockname()
        mine = socket.create_connection(to, 5, source_address=(address, 0))
        theirs, _ = self.gate.accept()
        if client is not None:
            self.gate.trust(self.scope(mine), client)
        self.ends += [mine, theirs]
        return mine, theirs

    def scope(self, mine):
        return {"client": mine.getsockname(), "server": mine.getpeername()}

    def close(self):
        for s in [*self.ends, self.gate]:
            s.close()


@pytest.fixture
def visits():
    made = []
    yield lambda *a, **k: made.append(Visits(*a, **k)) or made[-1]
    for v in made:
        v.close()


def told_to_go(mine):
    mine.setblocking(False)
    try:
        return mine.recv(1) == b""
    except BlockingIOError:
        return False


def minutes():
    """A clock that goes on by one minute with each connection."""
    now = itertools.count(0.0, 60.0)
    return lambda: next(now)


def test_the_oldest_that_has_shown_no_key_gives_way(visits):
    v = visits(Caps(total=9, address=3, client=4), clock=minutes())
    known, a, b = v.come(client=0), v.come(), v.come()
    c = v.come()
    assert [told_to_go(x[0]) for x in (known, a, b, c)] == [False, True, False, False]
    d = v.come(client=1)
    assert [told_to_go(x[0]) for x in (known, b, c, d)] == [False, True, False, False]
    assert len(v.lines) == 1 and "more than 3 from there" in v.lines[0]  # once


def test_a_new_connection_has_time_to_show_its_key(visits):
    """However fast others come: who connects faster cannot push it out."""
    now = [0.0]
    v = visits(Caps(total=9, address=2, client=4), clock=lambda: now[0])
    first, second = v.come(), v.come()
    now[0] = gate.GRACE - 0.1
    assert told_to_go(v.come()[0]) and not told_to_go(first[0])
    now[0] = gate.GRACE
    third = v.come()
    assert [told_to_go(x[0]) for x in (first, second, third)] == [True, False, False]


def test_where_all_are_known_the_new_one_goes(visits):
    v = visits(Caps(total=2, address=9, client=4), clock=minutes())
    a, b, c = v.come(client=0), v.come(client=1), v.come()
    assert [told_to_go(x[0]) for x in (a, b, c)] == [False, False, True]
    assert "more than 2 in all" in v.lines[0]


def test_a_client_has_its_share_and_loses_its_oldest(visits):
    v = visits(Caps(total=9, address=9, client=2))
    other = v.come(client=1)
    mine = [v.come(client=0) for _ in range(3)]
    assert [told_to_go(x[0]) for x in (other, *mine)] == [False, True, False, False]
    # again over the same connection: nothing changes
    v.gate.trust(v.scope(mine[1][0]), 0)
    assert not told_to_go(mine[1][0]) and not told_to_go(mine[2][0])


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is Linux's")
def test_one_address_does_not_take_the_places_of_another(visits):
    v = visits(Caps(total=4, address=3, client=4), clock=minutes())
    there = v.come("127.0.0.2")
    here = [v.come() for _ in range(9)]
    assert not told_to_go(there[0])
    assert [told_to_go(x[0]) for x in here] == [True] * 6 + [False] * 3


def test_no_more_are_accepted_than_leave(visits):
    v = visits(Caps(total=2, address=2, client=1), clock=minutes())
    came = [v.come() for _ in range(2 + gate.LEAVING)]
    with pytest.raises(BlockingIOError):
        v.come()
    came[0][1].close()  # as its transport does
    waiting, _ = v.gate.accept()
    waiting.close()
    assert sum(told_to_go(x[0]) for x in came) == gate.LEAVING + 1


def test_a_place_is_free_when_a_connection_has_ended(visits):
    v = visits(Caps(total=2, address=2, client=1))
    for _ in range(9):
        mine, theirs = v.come()
        assert not told_to_go(mine)
        theirs.close()
    assert not v.lines and not v.gate.here()


# ---------------------------------------------------------------- how long
def test_a_connection_without_a_request_is_closed_one_at_work_is_not(visits):
    now = [0.0]
    v = visits(Caps(9, 9, 9), clock=lambda: now[0])
    idle, busy = v.come()[0], v.come(client=0)[0]
    with v.gate.request(v.scope(busy)):
        now[0] = 9.9
        asyncio.run(v.gate.sweep())
        assert not told_to_go(idle)
        now[0] = 10.1
        asyncio.run(v.gate.sweep())
        assert told_to_go(idle) and not told_to_go(busy)
        now[0] = 1000.0
        asyncio.run(v.gate.sweep())
    assert v.lines == ["refused: 127.0.0.1 sent no request in 10 s"]
    now[0] += gate.KEEP_ALIVE + 9
    asyncio.run(v.gate.sweep())
    assert not told_to_go(busy)
    now[0] += 2
    asyncio.run(v.gate.sweep())
    assert told_to_go(busy) and len(v.lines) == 1


def test_a_body_is_read_as_long_as_it_may_take(visits):
    v = visits(Caps(9, 9, 9))

    def body(parts, n=0, **how):
        parts = iter(parts)

        async def receive():
            if (part := next(parts, None)) is None:
                await asyncio.sleep(60)
            return part

        return asyncio.run(v.gate.body(receive, n, **how))

    part = lambda b, more=True: {"type": "http.request", "body": b, "more_body": more}
    assert body([part(b"ab"), part(b"c", False)]) == b"abc"
    assert body([part(b"ab"), part(b"c", False)], keep=False) == b""
    assert body([part(b"ab"), {"type": "http.disconnect"}]) is None
    v.gate.seconds = 0.01
    assert body([part(b"ab")]) is None
    began = time.monotonic()
    assert body([part(b"ab")], n=gate.SLOWEST // 4) is None
    assert time.monotonic() - began > 0.25  # larger ones may take longer


def test_the_log_has_a_refusal_once_and_ends(visits):
    v = visits(Caps(9, 9, 9))
    for i in range(3 * gate.LINES):
        v.gate.refuse(f"10.0.0.{i // 2}", "knocks")
    assert len(v.lines) == gate.LINES + 1 and len(set(v.lines)) == len(v.lines)
    assert "further ones are left out" in v.lines[-1]
    once, record = gate.Once(), logging.makeLogRecord
    said = [once.filter(record({"msg": m})) for m in ("a\n1", "a\n2", "b")]
    assert said == [True, False, True]


# ---------------------------------------------------------------- whose it is
def test_a_signature_counts_for_its_key_and_its_time():
    pair, other = keys.stand_in(0), keys.stand_in(1)
    fields = dict(h.split(": ") for h in port.signature(pair))
    stamp, signature = (
        fields[f"flwr-{k}"].encode() for k in ("timestamp", "signature")
    )
    now, key = datetime.fromisoformat(stamp.decode()), keys.public(pair)
    at = lambda s: keys.signed(stamp, signature, key, now + timedelta(seconds=s))
    assert [at(s) for s in (-6, -4, 0, 304, 306)] == [False, True, True, True, False]
    assert not keys.signed(stamp, signature, keys.public(other))
    assert not keys.signed(stamp.replace(b"+00:00", b""), signature, key)
    for wrong in (b"", b"=", b"AAAA", b"\xff"):
        assert not keys.signed(stamp, wrong, key)
        assert not keys.signed(wrong, signature, key)
    naive = b"2026-01-01T00:00:00"  # signed, but of no time zone
    sure = b64encode(pair.sign(naive, ec.ECDSA(hashes.SHA256())))
    assert not keys.signed(naive, sure, key)


# ---------------------------------------------------------------- a real server
def test_strangers_of_all_kinds_are_refused_and_a_client_is_served(tmp_path):
    """As tests/torture/port.py counts them, with a short time for a header."""
    from fedlib.deploy.flower import Link

    port.federation(tmp_path, rounds=1)
    certificate, secret, known = keys.server(tmp_path / "keys", 3)
    lines = []
    sock = Gate(socket.create_server(("127.0.0.1", 0)), caps(3), lines.append, 0.4)
    to = sock.getsockname()[1]
    with Link(sock, known, (certificate, secret), log=lines.append):
        answers = port.visits(len(port.KINDS), 0, to, tmp_path, patience=8)
        client = port.Stranger(to, tmp_path, random.Random(0))
        assert client.send(port.activation(client.key())) == "200"
    got = dict(answers)
    assert {k: a for k, a in got.items() if port.outcome(a) != "clean"} == {}
    assert got["a header of 30 MB"] == got["100,000 headers"] == "400"
    assert got["somebody's key"] == got["no key"] == "403"
    assert got["signed long ago"] == got["a signed request again"] == "401"
    assert got["a slow body"] == got["waiting to go on"] == "408"
    for why in (
        "has the key of no client",
        "asks for what is not there",
        "has a false or old signature of client 0",
        "repeats a request of client 1",
        "sent no request in 0.4 s",
    ):
        assert lines.count(f"refused: 127.0.0.1 {why}") == 1, lines


def test_no_round_is_lost_in_a_crowd():
    """Two hundred open files, three hundred idle connections, twenty slow ones."""
    count = port.crowd(300, 20, rounds=4, files=200)
    assert count.bad == 0 and count.n == 5, count.examples


@pytest.mark.full
def test_no_round_is_lost_in_a_large_crowd():
    count = port.crowd(2000, 50, rounds=20)
    assert count.bad == 0 and count.n == 21, count.examples


@pytest.mark.parametrize(
    ("answer", "hears"),
    [(b"", "nobody"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS")],
)
def test_a_client_tries_again_where_a_full_server_hangs_up(tmp_path, answer, hears):
    """An end is no proof that the server speaks no TLS; another answer is."""
    keys.make(tmp_path, ["localhost"], 1)
    with socket.create_server(("127.0.0.1", 0)) as s:

        def once():
            line, _ = s.accept()
            line.recv(9999)
            line.sendall(answer)
            line.close()

        thread = threading.Thread(target=once)
        thread.start()
        try:
            told = command.knock("127.0.0.1", s.getsockname()[1], tmp_path / "ca.pem")
            heard = "somebody" if told else "nobody"
        except ValueError as e:
            heard = str(e)
        thread.join()
    assert hears in heard
