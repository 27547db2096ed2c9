"""A real federation on this machine: the server and every client are processes,
Flower carries the messages.
"""

import asyncio
import multiprocessing
import os
import signal
import socket
import ssl
import sys
import time
from base64 import b64encode
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import numpy as np
import pytest
import torch
import yaml

pytest.importorskip("flwr")

from fedlib import Record, Task, make, run
from fedlib.cli.main import main
from fedlib.deploy import command, keys
from fedlib.nets import MLP

D, K, ROWS = 6, 3, 80
# imports once, then every party is a fork with a life of its own
CTX = multiprocessing.get_context("forkserver")
CTX.set_forkserver_preload(
    [
        "fedlib.__main__",
        "fedlib.deploy.federation",
        "fedlib.deploy.server",
        "fedlib.deploy.flower",
    ]
)


@pytest.fixture
def calm(monkeypatch):
    """The command line in this process must not touch its signals, nor leave its
    environment changed.
    """
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)


# ---------------------------------------------------------------- the parties
def rows_of(c):
    g = np.random.default_rng(c)
    y = g.integers(K, size=ROWS)
    return (g.normal(size=(ROWS, D)) + np.eye(K, D)[y] * (1 + c)).astype(np.float32), y


def federation(folder, method, clients, rounds=3, **more):
    """federation.yaml in a folder, and the file mine-c.npz of each client."""
    task = {
        "name": "toy",
        "clients": clients,
        "classes": K,
        "shape": [D],
        "network": {"name": "MLP", "hidden": 5},
        "batch": 16,
    }
    folder.mkdir(exist_ok=True)
    for c in range(clients):
        np.savez(folder / f"mine-{c}.npz", **dict(zip("xy", rows_of(c))))
    path = folder / "federation.yaml"
    path.write_text(
        yaml.safe_dump(
            {"method": method, "task": task, "rounds": rounds, "wait": 60} | more
        )
    )
    return path


def simulated(method, clients, rounds=3, **more):
    x, y = map(np.concatenate, zip(*map(rows_of, range(clients))))
    task = Task.from_arrays(
        x, y, np.repeat(np.arange(clients), ROWS), MLP(D, 5, K), batch=16
    )
    return run(make(task=task, **method), rounds=rounds, **more)


def live(argv, log, trick):
    """What one process does."""
    signal.alarm(140)  # it ends, whatever becomes of the test
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if trick is not None:
        trick.play()
    sys.exit(main(["deploy", *map(str, argv)]))


@contextmanager
def parties():
    """start(log, *argv, trick=None) -> process; none outlives the block."""
    started = []

    def start(log, *argv, trick=None):
        p = CTX.Process(target=live, args=(argv, str(log), trick), daemon=True)
        p.start()
        started.append(p)
        return p

    try:
        yield start
    finally:
        for p in started:
            p.kill()
            p.join(5)


class Trick:
    """A client that changes what it answers: at(kind, t) -> what to do to the answer.

    Only tests have one.
    """

    def __init__(self, folder, **at):
        self.folder, self.at = folder, at

    def play(self):
        from fedlib.deploy.client import Site

        honest = Site.answer

        def answer(site, kind, about, tree):
            todo = self.at.get(f"{kind}{about['t']}")
            if todo == "vanish":
                os.kill(os.getpid(), signal.SIGKILL)
            if todo == "leave":  # as `kill` does: this message is still answered
                os.kill(os.getpid(), signal.SIGTERM)
            if todo == "hold":
                (self.folder / "held").touch()
                until(lambda: (self.folder / "go").exists(), "to be let go")
            got = honest(site, kind, about, tree)
            if todo == "nan":
                got["w"][next(iter(got["w"]))][0] = float("nan")
            if todo == "huge":
                got["w"] = {k: torch.zeros(200_000) for k in got["w"]}
            return got

        Site.answer = answer


def until(true, what, seconds=60, log=None):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise AssertionError(
                f"waited {seconds} s for {what}\n"
                + (Path(log).read_text() if log else "")
            )
        time.sleep(0.02)


def ended(process, log, seconds=100):
    process.join(seconds)
    assert process.exitcode is not None, f"still running:\n{Path(log).read_text()}"
    return process.exitcode, Path(log).read_text()


def port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


# ------------------------------------------ the same numbers, whatever stops and starts
METHODS = [
    {"name": "FedGA", "lr": 0.1},
    {"name": "Ditto", "lam": 0.5, "lr": 0.1},
    {"name": "FedRep", "lr": 0.1},
]


@pytest.mark.full
def test_three_methods_give_the_numbers_of_the_simulation(tmp_path):
    """FedGA undisturbed.

    Ditto: the server and a client are killed in round 1 and started again. FedRep: a
    client leaves in round 1 and comes back. What a client keeps is in its folder only.
    """
    with parties() as start:
        ways = {}
        for method in METHODS:
            folder, at = tmp_path / method["name"], f"127.0.0.1:{port()}"
            file = federation(folder, method, 2)
            server = (
                folder / "server.txt",
                "server",
                file,
                "--folder",
                folder / "run",
                "--port",
                at.split(":")[1],
            )
            client = [
                (
                    folder / f"client-{c}.txt",
                    "client",
                    file,
                    "--client",
                    c,
                    "--data",
                    folder / f"mine-{c}.npz",
                    "--folder",
                    folder / f"state-{c}",
                    "--server",
                    at,
                    "--once",
                )
                for c in range(2)
            ]
            tricks = {
                "Ditto": Trick(folder, local1="hold"),
                "FedRep": Trick(folder, local1="leave"),
            }
            ways[method["name"]] = (
                server,
                client,
                [
                    start(*server),
                    start(*client[0], trick=tricks.get(method["name"])),
                    start(*client[1]),
                ],
            )
        server, client, running = ways["FedRep"]
        assert ended(running[1], client[0][0])[0] == 0
        running[1] = start(*client[0])
        server, client, running = ways["Ditto"]
        until((tmp_path / "Ditto/held").exists, "client 0 of Ditto", log=server[0])
        for p in (running[0], running[2]):
            p.kill()
            p.join(5)
        running[2], running[0] = start(*client[1]), start(*server)
        (tmp_path / "Ditto/go").touch()
        for method in METHODS:
            server, client, running = ways[method["name"]]
            code, log = ended(running[0], server[0])
            assert code == 0, log
            assert (
                "left out" not in log
                and f"{method['name']} on toy: 2 clients, 3 rounds" in log
            )
            assert [ended(p, c[0], 20)[0] for p, c in zip(running[1:], client)] == [
                0,
                0,
            ]
            got, want = (
                Record.load(tmp_path / method["name"] / "run"),
                simulated(method, 2),
            )
            assert got.views.keys() == want.views.keys()
            for view, values in want.views.items():
                np.testing.assert_allclose(
                    got.views[view],
                    values,
                    rtol=0,
                    atol=1e-6,
                    err_msg=f"{method['name']} {view}",
                )
            assert got.meta["bytes"] == want.meta["bytes"]
        assert "going on with round 1 of 3" in ways["Ditto"][0][0].read_text()


# -------------------------------------------------- TLS, keys, and clients that do harm
@pytest.mark.full
def test_strangers_are_refused_and_clients_that_fail_are_left_out(
    tmp_path, calm, capsys
):
    file, big = (
        federation(tmp_path, {"name": "FedAvg", "lr": 0.1}, 3, 4, limit=10**6, wait=20),
        tmp_path / "big.yaml",
    )
    big.write_text(file.read_text().replace("limit: 1000000", "limit: 1000000000"))
    for name in ("keys", "others"):
        assert (
            main(
                [
                    "deploy",
                    "keys",
                    str(tmp_path / name),
                    "--host",
                    "localhost",
                    "--clients",
                    "3",
                ]
            )
            == 0
        )
    at = port()

    def client(c, file=file, ca="keys", key="keys"):
        return (
            "client",
            str(file),
            "--client",
            str(c),
            "--data",
            str(tmp_path / f"mine-{c}.npz"),
            "--folder",
            str(tmp_path / f"state-{c}"),
            "--server",
            f"localhost:{at}",
            "--once",
            "--ca",
            str(tmp_path / ca / "ca.pem"),
            "--key",
            str(tmp_path / key / f"client-{c}.key"),
        )

    with parties() as start:
        log = tmp_path / "server.txt"
        server = start(
            log,
            "server",
            file,
            "--folder",
            tmp_path / "run",
            "--port",
            at,
            "--keys",
            tmp_path / "keys",
        )
        until(
            lambda: log.exists() and "listening" in log.read_text(),
            "the server",
            log=log,
        )
        # a wrong key, a wrong CA, no TLS, somebody else's number; and nothing but the
        # Fleet API is there
        assert (
            ended(
                start(tmp_path / "stranger.txt", *client(0, key="others")),
                tmp_path / "stranger.txt",
                60,
            )[0]
            == 2
        )
        assert "does not know this key" in (tmp_path / "stranger.txt").read_text()
        assert main(["deploy", *client(0, ca="others")]) == 2
        assert "is not the server that" in capsys.readouterr().err
        plain = client(0)[:-4]
        assert main(["deploy", *plain]) == 2
        assert "if it speaks TLS, give --ca and --key" in capsys.readouterr().err
        trust = ssl.create_default_context(cafile=tmp_path / "keys/ca.pem")
        for path in (
            "control/start-run",
            "control/register-node",
            "runtime/acquire-task",
        ):
            assert (
                httpx.post(
                    f"https://localhost:{at}/v1/{path}", verify=trust, trust_env=False
                ).status_code
                == 404
            )
        tricks = (
            None,
            Trick(tmp_path, local1="vanish"),
            Trick(tmp_path, local1="nan", local2="huge"),
        )
        them = [
            start(
                tmp_path / f"client-{c}.txt",
                *client(c, big if c == 2 else file),
                trick=t,
            )
            for c, t in enumerate(tricks)
        ]
        code, text = ended(server, log)
        assert code == 0, text
        for line in (
            "refused: 127.0.0.1 has the key of no client",
            "client 1 left out of round 1, local: it vanished while it was at work",
            "client 2 left out of round 1, local: 'w/fc1.weight' holds NaN",
            (
                "client 2 left out of round 2, local: its answer is larger than the "
                "limit of 1,000,000 bytes"
            ),
            *(f"round {t} of 4: {n} clients" for t, n in enumerate((3, 1, 1, 2))),
        ):
            assert line in text, f"{line!r} is not in\n{text}"
        assert [
            ended(them[c], tmp_path / f"client-{c}.txt", 20)[0] for c in (0, 2)
        ] == [0, 0]
        assert not any(
            os.access(p, os.R_OK) and p.stat().st_mode & 0o077
            for p in (tmp_path / "keys").iterdir()
        )


def test_the_door_counts_an_answer_and_refuses_it_once(monkeypatch):
    from fedlib.deploy import gate
    from fedlib.deploy.flower import SLACK, door

    monkeypatch.setattr(keys, "signed", lambda *_: True)
    passed, codes, refused, key = [], [], {}, keys.public(keys.stand_in(0))
    times = iter(range(99))

    async def app(scope, *_):
        passed.append(scope["path"])

    async def send(event):
        codes.append(event.get("status"))

    port = gate.Gate(socket.create_server(("127.0.0.1", 0)), gate.Caps(9, 9, 9))
    asgi = door(app, {0: key}, 100, refused, port)

    def knock(path, n, key=key):
        async def receive():
            return {"type": "http.request", "body": bytes(n)}

        codes.clear()
        head = [(b"content-length", b"%d" % n), (b"flwr-public-key", b64encode(key))]
        head.append((b"flwr-timestamp", b"%d" % next(times)))
        asyncio.run(
            asgi(
                {
                    "type": "http",
                    "path": f"/v1/{path}",
                    "headers": head,
                    "client": ("10.0.0.9", 1),
                },
                receive,
                send,
            )
        )
        return codes[0] if codes else 200

    assert (
        knock("fleet/pull-messages", 10) == 200
        and knock("fleet/pull-messages", SLACK + 1) == 413
    )
    assert (
        knock("fleet/pull-messages", 10, b"another") == 403
        and knock("control/start-run", 10) == 404
    )
    assert (
        knock("fleet/push-messages", 10) == knock("fleet/push-object", SLACK) == 200
        and knock("fleet/push-object", 91) == 413
    )
    assert "limit of 100 bytes" in refused.pop(0)
    # a part of the same answer
    assert knock("fleet/push-object", 10) == 413 and not refused
    assert knock("fleet/push-messages", 10) == 200 and len(passed) == 4  # the next one
    port.close()


# ------------------------------------------ bad input: one line that says what is wrong
@pytest.fixture
def told(tmp_path, calm, capsys):
    """told("client", "--server", ...) -> the error of that command, on a federation
    with keys in tmp_path / "keys".
    """
    file = federation(tmp_path, {"name": "FedAvg"}, 2)
    keys.make(tmp_path / "keys", ["server.example"], 2)
    base = {
        "server": ["--folder", "run"],
        "keys": [],
        "client": [
            "--client",
            "0",
            "--data",
            str(tmp_path / "mine-0.npz"),
            "--folder",
            str(tmp_path / "state"),
        ],
    }

    def told(do, *argv):
        assert (
            main(
                [
                    "deploy",
                    do,
                    *([] if do == "keys" else [str(file)]),
                    *base[do],
                    *map(str, argv),
                ]
            )
            == 2
        )
        return capsys.readouterr().err

    return told


def test_beyond_this_machine_there_is_no_federation_without_keys(told, tmp_path):
    for argv in (
        ("server", "--host", "0.0.0.0"),
        ("client", "--server", "server.example:8000"),
    ):
        assert "is not this machine alone" in told(*argv) and "give --" in told(*argv)
        assert "--insecure is for 127.0.0.1 only" in told(*argv, "--insecure")
    assert "give both" in told("client", "--ca", tmp_path / "keys/ca.pem")
    assert "give one of the two" in told(
        "server", "--insecure", "--keys", tmp_path / "keys"
    )


def test_a_port_in_use_and_an_address_that_is_not_ours(told, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as s:
        assert f"port {s.getsockname()[1]} of 127.0.0.1 is in use" in told(
            "server", "--port", s.getsockname()[1]
        )
    assert "cannot listen at 203.0.113.7:8000" in told(
        "server", "--host", "203.0.113.7", "--keys", tmp_path / "keys"
    )
    assert "give a number from 1 to 65535" in told("server", "--port", 99999)


def test_keys_that_are_out_of_date_missing_or_broken(told, tmp_path):
    old = tmp_path / "old"
    keys.make(old, ["server.example"], 2, days=30, now=datetime(2020, 1, 1, tzinfo=UTC))
    assert "is valid from 2019-12-31 to 2020-01-31, and today is" in told(
        "server", "--keys", old
    )
    key = tmp_path / "keys/client-0.key"
    assert "is valid from 2019-12-31" in told(
        "client", "--ca", old / "ca.pem", "--key", key
    )
    assert "a private key is needed there" in told(
        "client", "--ca", tmp_path / "keys/ca.pem", "--key", tmp_path / "client-7.key"
    )
    assert "holds no private key" in told(
        "client", "--ca", tmp_path / "keys/ca.pem", "--key", tmp_path / "keys/ca.pem"
    )
    (tmp_path / "keys/client-1.pub").unlink()
    assert "client-1.pub: a public key is needed there" in told(
        "server", "--keys", tmp_path / "keys"
    )
    (tmp_path / "keys/server.key").write_bytes(key.read_bytes())
    assert "do not belong together" in told("server", "--keys", tmp_path / "keys")
    assert "is not empty" in told(
        "keys", tmp_path / "keys", "--host", "a.example", "--clients", 2
    )


def test_a_server_that_is_not_there(told, monkeypatch):
    assert "nobody answers" in told(
        "client", "--server", f"127.0.0.1:{port()}", "--patience", 0
    )
    assert "write host:port" in told("client", "--server", "server.example")

    def unknown(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    assert "unknown host" in told("client", "--server", "localhost:8000")


def test_clients_that_do_not_come_are_named(told):
    assert "0 of 2 clients came within 0 s, client 0, 1 did not" in told(
        "server", "--port", port(), "--patience", 0
    )
    assert "--minimum 3" in told("server", "--minimum", 3)


def test_without_flower_the_error_says_how_to_get_it(told, monkeypatch):
    def none(name):
        raise command.PackageNotFoundError(name)

    monkeypatch.setattr(command, "version", none)
    assert "pip install 'fedlib[deploy]'" in told("server")
    monkeypatch.setattr(command, "version", lambda name: "1.40.0")
    assert "needs Flower 1.41.0, and 1.40.0 is installed" in told("client")
