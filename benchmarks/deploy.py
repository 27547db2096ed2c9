"""What do messages cost? The same federation four ways, on one machine.

    python -m benchmarks.deploy             FedGA, three clients, 10 rounds by each way;
                                            about a minute
    python -m benchmarks.deploy --rounds 3

    simulation              fedlib.core.engine, function calls
    messages in process     serve() and three Sites; every message becomes
                            bytes and back
    loopback                the command line: a server, three clients, one process each,
                            Flower between them
    loopback, TLS and keys  the same with certificates and signatures

Writes results/benchmarks-deploy.csv, .json (what it ran on) and .txt (the commands of
the last way and what they printed). Every way must give the same accuracies, bit for
bit. Seconds are of wall: on loopback most of a round is waiting. Client 0 speaks to
the server through a relay that counts the bytes of its connections, in both directions,
polls and signs of life included.
"""

from __future__ import annotations

import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
import yaml

from fedlib.cli.main import parse_task
from fedlib.core import engine
from fedlib.core.record import Record
from fedlib.deploy import message
from fedlib.deploy.client import Site
from fedlib.deploy.federation import Federation
from fedlib.deploy.server import serve

from . import harness

ROWS, CLIENTS, PATIENCE = "digits:clients=3,dirichlet=.3", 3, 300
TRAFFIC = ["messages", "bytes down", "bytes up", "bytes on the socket"]
COLUMNS = ["way", "ms per round", "start, s", *TRAFFIC]


def federation(rounds):
    """What all parties agree on, as the file has it."""
    task = {"name": "digits", "clients": CLIENTS, "classes": 10, "shape": [64]}
    task |= {"batch": 32, "network": {"name": "MLP", "hidden": 32}}
    return {"method": {"name": "FedGA", "lr": 0.1}, "rounds": rounds, "task": task}


def simulation(folder, rounds):
    """{column: value} and the record."""
    fed = Federation(**federation(rounds))
    task = replace(parse_task(ROWS), network=fed.network, batch=fed.task["batch"])
    took = {R: [] for R in (0, rounds)}
    for R in 5 * (0, rounds):
        began = time.perf_counter()
        record = engine.run(fed.make(task), rounds=R, device="cpu", progress=False)
        took[R].append(time.perf_counter() - began)
    start, all_ = map(statistics.median, took.values())
    return {"ms per round": 1000 * (all_ - start) / rounds, "start, s": start}, record


def in_process(folder, rounds):
    """serve() and Sites in this process. Bytes are those of client 0's messages."""
    began, fed, task = (
        time.perf_counter(),
        Federation(**federation(rounds)),
        parse_task(ROWS),
    )
    sites = [Site(fed, c, fed.client_task(c, task)) for c in range(CLIENTS)]
    sizes, stamps = [], []

    def exchange(requests, wait):
        out = {}
        for c, kind, about, tree in requests:
            asked = message.dumps(tree)
            answer = message.dumps(sites[c].answer(kind, about, message.loads(asked)))
            out[c] = message.loads(answer)
            # a round; not before, not the last look
            if c == 0 and 0 <= about["t"] < rounds:
                sizes.append((len(asked), len(answer)))
        return out

    log = lambda line: stamps.append((time.perf_counter(), line))
    record = serve(fed, exchange, log=log)
    return per_round(stamps, began, sizes, rounds), record


class Party:
    """`python -m fedlib deploy ...` in a folder; lines: [(when, what it printed)]."""

    def __init__(self, folder, *argv):
        env = {"PYTHONPATH": str(harness.ROOT), "PYTHONUNBUFFERED": "1"}
        env = os.environ | env | {"OMP_NUM_THREADS": "1"}
        pipes = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [sys.executable, "-m", "fedlib", "deploy", *map(str, argv)]
        self.process = subprocess.Popen(command, cwd=folder, env=env, **pipes)
        self.said, self.lines = " ".join(["$ python", *command[1:]]), []
        self.listening = threading.Thread(target=self.listen, daemon=True)
        self.listening.start()

    def listen(self):
        for line in self.process.stdout:
            self.lines.append((time.perf_counter(), line.rstrip()))

    def wait(self):
        failed = self.process.wait(PATIENCE)
        self.listening.join(PATIENCE)
        if failed:
            raise SystemExit("\n".join([self.said, *(text for _, text in self.lines)]))

    def transcript(self):
        """The command, and what it printed without blank lines: the first seven lines
        and the last seven."""
        some = [text for _, text in self.lines if text]
        some = some if len(some) < 16 else [*some[:7], "...", *some[-7:]]
        return "\n".join([self.said, *some, ""])


def loopback(folder, rounds, safe=False):
    """The commands, each in a process of its own."""
    (folder / "federation.yaml").write_text(yaml.safe_dump(federation(rounds)))
    began, port, shown = time.perf_counter(), free(), []
    mine = lambda c: ["--ca", "keys/ca.pem", "--key", f"keys/client-{c}.key"] * safe
    if safe:
        shown += [Party(folder, "keys", "keys", "--host", "localhost", "--clients", 3)]
        shown[0].wait()
    with ExitStack() as stack, Relay(port) as relay:

        def party(name, *argv):
            p = Party(folder, name, "federation.yaml", *argv)
            stack.callback(p.process.kill)
            return p

        keys = ["--keys", "keys"] * safe
        parties = [party("server", "--folder", "run", "--port", port, *keys)]
        for c in range(CLIENTS):
            who = ["--client", c, "--data", ROWS, "--folder", f"state-{c}"]
            at = f"127.0.0.1:{port if c else relay.port}"
            parties.append(party("client", *who, "--server", at, "--once", *mine(c)))
        for p in parties:
            p.wait()
        time.sleep(0.2)
    size = re.compile(r"\w+: ([\d,]+) bytes came, ([\d,]+) go")
    sizes = [size.match(text) for _, text in parties[1].lines]
    # neither "client" nor the end
    sizes = [[int(n.replace(",", "")) for n in m.groups()] for m in sizes if m][1:-2]
    row = per_round(parties[0].lines, began, sizes, rounds)
    row["bytes on the socket"] = sum(relay.bytes) / rounds
    said = "\n".join(p.transcript() for p in [*shown, parties[0], parties[2]])
    return row | {"said": said}, Record.load(folder / "run")


def per_round(stamps, began, sizes, rounds):
    """From the moments at which the server said that a round was over."""
    ends = [at for at, line in stamps if line.startswith("round ")]
    took = [1000 * (b - a) for a, b in zip(ends, ends[1:])]
    counts = [n / rounds for n in (len(sizes), *map(sum, zip(*sizes)))]
    row = {"ms per round": statistics.median(took), "start, s": ends[0] - began}
    return row | dict(zip(TRAFFIC, counts))


def free():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class Relay:
    """A port that passes everything on to another one of this machine, and counts it:
    bytes [to the server, from it].
    """

    def __init__(self, to):
        self.to, self.bytes = to, [0, 0]
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.open, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.door.close()

    def open(self):
        with suppress(OSError):
            while True:
                here, there = self.door.accept()[0], socket.socket()
                if there.connect_ex(("127.0.0.1", self.to)):  # no server yet
                    here.close()
                    continue
                for way in ((0, here, there), (1, there, here)):
                    threading.Thread(target=self.send, args=way, daemon=True).start()

    def send(self, way, a, b):
        with suppress(OSError):
            while some := a.recv(2**16):
                self.bytes[way] += len(some)
                b.sendall(some)
        with suppress(OSError):
            b.shutdown(socket.SHUT_WR)


WAYS = {
    "simulation": simulation,
    "messages in process": in_process,
    "loopback": loopback,
    "loopback, TLS and keys": lambda *args: loopback(*args, safe=True),
}


def shown(value):
    """1,234, 15.8, 0.12."""
    return format(value, ",.0f" if value >= 100 else ".1f" if value >= 1 else ".2g")


def main():
    p = harness.parser("deploy", __doc__)
    p.add_argument("--rounds", type=int, default=10)
    args = p.parse_args()
    torch.set_num_threads(1)
    rows, states = [], {}
    for way, f in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            row, record = f(Path(folder), args.rounds)
        states[way] = [record["pre", "global", s] for s in ("test", "val")]
        said = row.pop("said", None)
        rows.append({"way": way} | {k: shown(v) for k, v in row.items()})
        print(rows[-1], flush=True)
        same = zip(states[way], states["simulation"])
        if any((a != b).any() for a, b in same):
            raise SystemExit(f"{way} has other accuracies than the simulation")
    more = {"method": "FedGA", "clients": CLIENTS, "rounds": args.rounds, "data": ROWS}
    harness.keep(rows, args.out, COLUMNS, **more, flower=version("flwr"))
    args.out.with_suffix(".txt").write_text(said)


if __name__ == "__main__":
    main()
