"""Strangers at the port of a federation's server, one by one and in a crowd.

Real processes on this machine, with TLS and keys. Each kind must be refused: by
a status 4.. or by the end of its connection, in the seconds that the book promises.
A crowd comes while three clients train: no round may lose one of them.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import socket
import ssl
import sys
import tempfile
import threading
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import yaml
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fedlib import Record
from fedlib.cli.main import main
from fedlib.deploy import keys

from .count import Count

attempts = 300  # strangers; with them a crowd of 2,000 idle and 50 slow ones
PATIENCE = 14.0  # seconds: 10 for a header, and until somebody looks
CTX = multiprocessing.get_context("forkserver")
CTX.set_forkserver_preload(
    ["fedlib.__main__", "fedlib.deploy.server", "fedlib.deploy.flower"]
)
FLEET = "/v1/fleet/pull-messages"


def measure(n, seed):
    share = n / attempts
    idle, slow = max(20, round(2000 * share)), max(5, round(50 * share))
    return [strangers(n, seed), crowd(idle, slow, rounds=max(3, round(40 * share)))]


# ---------------------------------------------------------------- a federation
def federation(folder, rounds, clients=3):
    """Its file, the rows of each client, and keys in folder/keys."""
    g = np.random.default_rng(0)
    for c in range(clients):
        y = g.integers(3, size=60)
        x = (g.normal(size=(60, 4)) + np.eye(3, 4)[y]).astype(np.float32)
        np.savez(folder / f"mine-{c}.npz", x=x, y=y)
    task = {"name": "toy", "clients": clients, "classes": 3, "shape": [4], "batch": 16}
    task["network"] = {"name": "MLP", "hidden": 5}
    about = {"method": {"name": "FedAvg"}, "task": task, "rounds": rounds, "wait": 60}
    (folder / "federation.yaml").write_text(yaml.safe_dump(about))
    keys.make(folder / "keys", ["localhost"], clients)


def live(argv, log, files):
    """What one process does; files: its limit of open files, None: as it is."""
    signal.alarm(580)  # it ends, whatever becomes of us
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    sys.exit(main(["deploy", *map(str, argv)]))


@contextmanager
def processes():
    """start(log, *argv, files=None) -> process; none outlives the block."""
    started = []

    def start(log, *argv, files=None):
        p = CTX.Process(target=live, args=(argv, str(log), files), daemon=True)
        p.start()
        started.append(p)
        return p

    try:
        yield start
    finally:
        for p in started:
            p.kill()
            p.join(5)


def server(start, folder, files=None):
    """Start it, and return (process, port, log) as soon as it listens."""
    log = folder / "server.txt"
    argv = ("--folder", folder / "run", "--port", 0, "--keys", folder / "keys")
    p = start(log, "server", folder / "federation.yaml", *argv, files=files)
    end = time.monotonic() + 60
    while "listening at" not in (text := log.read_text() if log.exists() else ""):
        if p.exitcode is not None or time.monotonic() > end:
            raise RuntimeError(f"the server does not listen:\n{text}")
        time.sleep(0.05)
    return p, int(text.partition("listening at 127.0.0.1:")[2].split()[0]), log


def client(start, folder, port, c):
    argv = ("--client", c, "--data", folder / f"mine-{c}.npz", "--once")
    argv += ("--folder", folder / f"state-{c}", "--server", f"localhost:{port}")
    argv += ("--ca", folder / "keys/ca.pem", "--key", folder / f"keys/client-{c}.key")
    return start(
        folder / f"client-{c}.txt", "client", folder / "federation.yaml", *argv
    )


# ---------------------------------------------------------------- one stranger
@dataclass
class Stranger:
    """Somebody at a port, with what chance it has."""

    port: int
    folder: Path
    rng: random.Random
    patience: float = PATIENCE

    def tcp(self):
        s = socket.create_connection(("127.0.0.1", self.port), 30)
        s.settimeout(self.patience)
        return s

    def tls(self):
        trust = ssl.create_default_context(cafile=self.folder / "keys/ca.pem")
        return trust.wrap_socket(self.tcp(), server_hostname="localhost")

    def key(self, c=0):
        return keys.private(self.folder / f"keys/client-{c}.key")

    def send(self, data, tls=True):
        """Send it and hear the answer: its status, "closed" or "open"."""
        with self.tls() if tls else self.tcp() as s:
            with suppress(OSError):
                s.sendall(data)
            return heard(s)

    def drip(self, data, tls=True, first=b""):
        """The same at a few bytes a second, after what comes first."""
        with self.tls() if tls else self.tcp() as s:
            end = time.monotonic() + self.patience
            s.sendall(first)
            s.settimeout(0.3)
            for i in range(len(data)):
                try:
                    s.sendall(data[i : i + 1])
                    return "closed" if not (got := s.recv(99)) else status(got)
                except TimeoutError:
                    if time.monotonic() > end:
                        return "open"
                except OSError:
                    return "closed"
            return heard(s)


def heard(s):
    try:
        while (answer := status(s.recv(99))) == "100":  # "go on" is none
            pass
        return answer
    except TimeoutError:
        return "open"
    except OSError:
        return "closed"


def status(data):
    """Of the first bytes of an answer."""
    return data[9:12].decode() if data.startswith(b"HTTP/") else "closed"


def request(path=FLEET, head=(), body=b"", verb="POST"):
    lines = [f"{verb} {path} HTTP/1.1", "host: localhost", *head]
    if not any("content-length" in h or "transfer-encoding" in h for h in head):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def signature(pair, by=None, seconds=0.0):
    """Headers: the key of a pair, signed by it or by another, so long ago."""
    stamp = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()
    signed = (by or pair).sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
    return (
        f"flwr-public-key: {b64encode(keys.public(pair)).decode()}",
        f"flwr-timestamp: {stamp}",
        f"flwr-signature: {b64encode(signed).decode()}",
        "content-type: application/protobuf",
    )


def hello():
    """The first bytes of a TLS handshake."""
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    try:
        context.wrap_bio(
            ssl.MemoryBIO(), out, server_hostname="localhost"
        ).do_handshake()
    except ssl.SSLWantReadError:
        return out.read()


def activation(pair):
    """The request by which a client takes its place."""
    from flwr.proto.fleet_pb2 import ActivateNodeRequest

    asked = ActivateNodeRequest(public_key=keys.public(pair), heartbeat_interval=10)
    body = asked.SerializeToString()
    return request("/v1/fleet/activate-node", signature(pair), body)


def silence(s):
    with s.tls() as line:
        return heard(line)


def replay(s):
    """A request that was right, and again from another connection."""
    again = activation(s.key(1))
    s.send(again)
    return s.send(again)


def endless(s):
    """A body that is announced as huge, and goes on after the refusal."""
    with s.tls() as line:
        try:
            line.sendall(request(head=[f"content-length: {10**12}"]))
            while True:
                line.sendall(bytes(2**16))
        except TimeoutError:
            return "open"
        except OSError:
            return "closed"


def other():
    return ec.generate_private_key(keys.CURVE)


BAD_CHUNK = request(head=["transfer-encoding: chunked"], body=b"zz\r\nno number\r\n")
KINDS = {
    "nothing": lambda s: s.send(b"", tls=False),
    "no TLS": lambda s: s.send(request(), tls=False),
    "garbage": lambda s: s.send(s.rng.randbytes(s.rng.randint(1, 9999)), tls=False),
    "half a handshake": lambda s: s.send(hello()[: s.rng.randint(1, 200)], tls=False),
    "a slow handshake": lambda s: s.drip(hello(), tls=False),
    "a handshake, then nothing": silence,
    "a handshake, then garbage": lambda s: s.send(s.rng.randbytes(999) + b"\r\n\r\n"),
    "the front page": lambda s: s.send(request("/", verb="GET")),
    "the interface": lambda s: s.send(request("/openapi.json", verb="GET")),
    "sending code": lambda s: s.send(request("/v1/control/start-run")),
    "a way around": lambda s: s.send(request("/v1/fleet/../control/start-run")),
    "no key": lambda s: s.send(request()),
    "somebody's key": lambda s: s.send(request(head=signature(other()))),
    "registering it": lambda s: s.send(
        request("/v1/fleet/register-node", head=signature(other()))
    ),
    "a key, unsigned": lambda s: s.send(request(head=signature(s.key())[:2])),
    "a key, signed by another": lambda s: s.send(
        request(head=signature(s.key(), by=other()))
    ),
    "signed long ago": lambda s: s.send(request(head=signature(s.key(), seconds=400))),
    "signed tomorrow": lambda s: s.send(
        request(head=signature(s.key(), seconds=-86400))
    ),
    "a signed request again": replay,
    "a header of 30 MB": lambda s: s.send(request(head=[f"x: {'a' * 30_000_000}"])),
    "100,000 headers": lambda s: s.send(
        request(head=[f"x-{i}: {i}" for i in range(10**5)])
    ),
    "a path of 1 MB": lambda s: s.send(request("/v1/fleet/" + "a" * 10**6)),
    "a slow header": lambda s: s.drip(request(head=["x: " + "a" * 999])),
    "a slow body": lambda s: s.drip(
        bytes(999), first=request(head=["content-length: 999"])
    ),
    "a body that stops": lambda s: s.send(request(head=["content-length: 99"])),
    "an endless body": endless,
    "chunks": lambda s: s.send(
        request(head=["transfer-encoding: chunked"], body=b"1\r\na\r\n0\r\n\r\n")
    ),
    "chunks beside a length": lambda s: s.send(
        request(
            head=["content-length: 1", "transfer-encoding: chunked"],
            body=b"1\r\na\r\n0\r\n\r\n",
        )
    ),
    "chunks of a client beside a length": lambda s: s.send(
        request(
            head=[
                *signature(s.key()),
                "content-length: 1",
                "transfer-encoding: chunked",
            ],
            body=b"1\r\na\r\n0\r\n\r\n",
        )
    ),
    "a bad chunk": lambda s: s.send(BAD_CHUNK),
    "two lengths": lambda s: s.send(
        request(head=["content-length: 1", "content-length: 2"])
    ),
    "a negative length": lambda s: s.send(request(head=["content-length: -1"])),
    "a length of 30 digits": lambda s: s.send(
        request(head=["content-length: " + 30 * "9"])
    ),
    "an unknown verb": lambda s: s.send(request(verb="BREW")),
    "HTTP/2": lambda s: s.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "a null byte": lambda s: s.send(request(head=["x: a\0b"])),
    "an address of another": lambda s: s.send(
        request(head=["x-forwarded-for: 127.0.0.2"])
    ),
    "1,000 requests at once": lambda s: s.send(1000 * request()),
    "a websocket": lambda s: s.send(
        request("/", ["connection: upgrade", "upgrade: websocket"], verb="GET")
    ),
    "waiting to go on": lambda s: s.send(
        request(head=["expect: 100-continue", "content-length: 9"])
    ),
}


def outcome(answer):
    """What it counts as."""
    if answer == "closed" or answer.startswith("4"):
        return "clean"
    return "raw" if answer.startswith("5") else "silent"


def visits(n, seed, port, folder, patience=PATIENCE):
    """n strangers at a port, in turn of each kind: [(kind, answer)]."""

    def visit(i):
        kind = list(KINDS)[i % len(KINDS)]
        return kind, KINDS[kind](
            Stranger(port, folder, random.Random(seed + i), patience)
        )

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(visit, range(n)))


def strangers(n, seed):
    """n of them at one server; at the end it still serves a client."""
    count = Count("strangers at a TLS server")
    with tempfile.TemporaryDirectory() as name, processes() as start:
        folder = Path(name)
        federation(folder, rounds=1)
        process, port, log = server(start, folder)
        for kind, answer in visits(n, seed, port, folder):
            count.add(outcome(answer), f"{kind}: {answer}")
        s = Stranger(port, folder, random.Random(seed))
        served = s.send(activation(s.key()))
        text = log.read_text()
        if process.exitcode is not None or "Traceback" in text:
            count.add("raw", text[-300:])
        if served != "200" or text.count("\n") > len(KINDS):
            count.add("lost", f"a client hears {served}; the log is\n{text[-300:]}")
    return count


# ---------------------------------------------------------------- a crowd
class Crowd(threading.Thread):
    """Idle connections, all at once, and slow ones that come again when refused."""

    def __init__(self, port, folder, idle, slow):
        super().__init__(daemon=True)
        self.port, self.folder, self.numbers = port, folder, (idle, slow)
        self.over, self.lines = threading.Event(), []

    def run(self):
        idle, slow = self.numbers
        s = Stranger(self.port, self.folder, random.Random(0))
        threads = [threading.Thread(target=self.dawdle, args=(s,)) for _ in range(slow)]
        for t in threads:
            t.start()
        for _ in range(idle):
            with suppress(OSError):
                self.lines.append(s.tcp())
        for t in threads:
            t.join()
        for line in self.lines:
            line.close()

    def dawdle(self, s):
        while not self.over.wait(0.5):
            with suppress(OSError), s.tls() as line:
                for letter in request(head=["x: " + "a" * 999]):
                    line.sendall(bytes([letter]))
                    if self.over.wait(0.5):
                        return


def crowd(idle, slow, rounds, files=None):
    """Each round that three clients train in counts, and the end of the server.

    files: the server's limit of open files.
    """
    count = Count("idle and slow connections")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as name, processes() as start:
        folder = Path(name)
        federation(folder, rounds)
        process, port, log = server(start, folder, files)
        them = Crowd(port, folder, idle, slow)
        them.start()
        for c in range(3):
            client(start, folder, port, c)
        process.join(500)
        them.over.set()
        them.join(60)
        text = log.read_text()
        for t in range(rounds):
            full = f"round {t} of {rounds}: 3 clients" in text
            count.add("accepted" if full else "lost", f"round {t}: {text[-500:]}")
        ended = process.exitcode == 0 and (
            Record.load(folder / "run").meta["rounds"] == rounds
        )
        count.add("accepted" if ended else "lost", f"the end: {text[-500:]}")
        if len(them.lines) < idle:
            count.add(
                "raw", f"only {len(them.lines)} of {idle} were let in by the system"
            )
    return count
