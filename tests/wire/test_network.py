"""Over the network: Flower between a server and clients, and who is let in."""

import socket
import threading
from base64 import b64encode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace as Of

import numpy as np
import pytest
import torch
import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from test_federation import FILE
from toys_wire import Parties, agree, build, simulated

from fedlib.cli.main import main
from fedlib.deploy import command, keys
from fedlib.deploy.gate import Gate, caps
from fedlib.deploy.message import dumps

flower = pytest.importorskip("fedlib.deploy.flower", reason="needs flwr")
C = 4


def signature(key, stamp=None, by=None):
    """The head of a request of a client."""
    stamp = (stamp or datetime.now(UTC).isoformat()).encode()
    sign = b64encode((by or key).sign(stamp, ec.ECDSA(hashes.SHA256())))
    names = "flwr-public-key", "flwr-timestamp", "flwr-signature"
    return dict(zip(names, (b64encode(keys.public(key)), stamp, sign)))


def test_flower_carries_the_same_numbers_and_strangers_are_refused(monkeypatch):
    """Client 2 answers too much, then excuses itself; client 1 dies and comes back."""
    monkeypatch.setenv("no_proxy", "*")
    limit, dead = 20_000, []

    def spoil(c, kind, about, out):
        if (c, kind) == (1, "local") and not dead and not dead.append(c):
            raise KeyboardInterrupt
        much = (c, kind, about["t"]) == (2, "local", 1)
        if (c, kind, about["t"]) == (2, "local", 2):
            raise ValueError("no \x1b[2J power\nround 99")
        return out | {"more": torch.zeros(limit)} if much else out

    method = build("FedFB")
    parties = Parties(method, spoil=spoil, cohort=None, limit=limit)
    log = parties.lines.append
    known = {c: keys.public(keys.stand_in(c)) for c in range(C)}
    sock = Gate(socket.create_server(("127.0.0.1", 0)), caps(C), log)
    there = f"127.0.0.1:{sock.getsockname()[1]}"

    def join(c):
        answer = lambda *message: parties.answer(c, *message)
        how = keys.stand_in(c), None, 10**8, True, 60.0
        with suppress(KeyboardInterrupt):
            return flower.join(answer, c, there, *how, log=lambda line: None)
        join(c)

    with flower.Link(sock, known, None, limit, 60.0, None, log) as link:
        me, other, unknown = map(keys.stand_in, (0, 1, C))
        now = datetime.now(UTC)
        old, now = (now - timedelta(seconds=400)).isoformat(), now.isoformat()
        pull, push = "fleet/pull-messages", "fleet/push-messages"
        for path, head, status in (
            ("control/start-run", signature(me), 404), (pull, {}, 403),
            (pull, signature(unknown), 403), (pull, signature(me, old), 401),
            (pull, signature(me, by=other), 401), (pull, signature(me, now), None),
            (pull, signature(me, now), 401),  # again
            (pull, signature(me), 413), (push, signature(me), 413),
        ):  # fmt: skip
            body = bytes(limit + flower.SLACK + 1) if status == 413 else b""
            url, no = f"http://{there}/v1/{path}", {"trust_env": False}
            got = flower.httpx.post(url, content=body, headers=head, **no)
            assert got.status_code == status or not status, (path, got)
        parties.exchange = link.exchange
        todo = [lambda: (parties.serve(), link.end())]
        todo += [partial(join, c) for c in range(C)]
        threads = [threading.Thread(target=f, daemon=True) for f in todo]  # may hang
        for do in (threading.Thread.start, partial(threading.Thread.join, timeout=60)):
            assert not any(map(do, threads))
        assert not any(t.is_alive() for t in threads), "told so, a client leaves"
    cohort = lambda t: [c for c in range(C) if c != 2 or t not in (1, 2)]
    agree(parties, simulated(method, cohort=cohort), but=("pre", "cells"))
    assert parties.left() == [(2, 1, "local"), (2, 2, "local")]
    assert all(line.isprintable() for line in parties.lines)
    # nobody answers for another: not from its node, and not what it was asked
    flower.SPEAKER.set(0)
    forged = Of(metadata=Of(src_node_id=link.nodes[1]))
    assert link.state.store_message_and_object_tree(forged) == (False, [])
    flower.SPEAKER.set(None)
    asked = flower.named(flower.Message(flower.RecordDict(), 1, "query"))
    told = {"kind": "local", "client": 0, "about": "{}", "tree": dumps({})}
    eight = lambda *message: {"x": torch.zeros(2)}
    reply = lambda c, limit: flower.reply_to(asked, told, eight, c, limit, log)
    assert not reply(0, 8).has_error()
    assert reply(1, 8).has_error() and reply(0, 7).has_error()


def test_a_signature_counts_for_its_key_and_its_time():
    pair = keys.stand_in(0)
    _, stamp, sign = signature(pair).values()
    now, key = datetime.fromisoformat(stamp.decode()), keys.public(pair)
    good = lambda s: keys.signed(stamp, sign, key, now + timedelta(seconds=s))
    assert [good(s) for s in (-6, -4, 0, 304, 306)] == [False, True, True, True, False]
    assert not keys.signed(stamp, sign, keys.public(keys.stand_in(1)))
    assert not keys.signed(stamp, b"AAAA", key) and not keys.signed(b"\xff", sign, key)


def test_keys_are_made_once_for_a_host_and_some_days(tmp_path):
    day = lambda *d: datetime(*d, tzinfo=UTC)
    keys.make(tmp_path, ["server.example", "10.0.0.1"], 2, 30, day(2020, 1, 1))
    certificate, _, known = keys.server(tmp_path, 2, day(2020, 1, 30))
    private = [keys.private(tmp_path / f"client-{c}.key") for c in (0, 1)]
    assert known == dict(enumerate(map(keys.public, private))) and known[0] != known[1]
    assert all(p.stat().st_mode & 0o077 == 0 for p in tmp_path.iterdir())
    mine = keys.authority(certificate, day(2020, 1, 30))
    mine.verify_directly_issued_by(keys.authority(tmp_path / "ca.pem", day(2020, 1, 2)))
    names = str([x.value for x in mine.extensions])
    assert all(h in names for h in ("server.example", "localhost", "10.0.0.1"))
    for at in (day(2019, 12, 31), day(2020, 2, 1), None):
        with pytest.raises(ValueError, match="2020"):
            keys.server(tmp_path, 2, at)
    (tmp_path / "server.key").write_bytes((tmp_path / "client-0.key").read_bytes())
    for f, *args in ((keys.make, "a", 2), (keys.server, 2, day(2020, 1, 2))):
        with pytest.raises(ValueError):
            f(tmp_path, *args)


def test_what_a_command_refuses_before_it_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(FILE))
    assert main("deploy keys made --host localhost --clients 3".split()) == 0
    np.savez("mine", x=np.random.default_rng(0).normal(size=(9, 4)), y=np.arange(9) % 3)
    base = {"server": "run ", "client": "state --client 0 --data mine.npz "}
    ca, key, now = "--ca made/ca.pem", "--key made/client-0.key", "--patience 0"
    for do, argv, name in (
        ("server", "--host 0.0.0.0", "--keys"), ("server", "--minimum 4", "--minimum"),
        ("server", f"--insecure --host 0.0.0.0 --port 0 {now}", "--insecure"),
        ("server", "--insecure --keys made", "--insecure"),
        ("client", "--server far.example:8000", "--ca"), ("client", ca, "--key"),
        ("client", key, "--ca"), ("client", f"{ca} {key} --insecure", "--insecure"),
    ):  # fmt: skip
        status = main(f"deploy {do} f.yaml --folder {base[do]}{argv}".split())
        assert status == 2 and name in capsys.readouterr().err, (do, argv)
    hosts = "::1", "localhost", "127.9.9.9", "a"
    assert [command.loopback(h) for h in hosts] == [True] * 3 + [False]
