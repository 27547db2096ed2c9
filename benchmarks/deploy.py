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

import argparse
import csv
import json
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

from .clock import provenance

OUT = Path(__file__).resolve().parents[1] / "results"
ROWS, CLIENTS, PATIENCE = "digits:clients=3,dirichlet=.3", 3, 100
COLUMNS = (
    "way",
    "ms per round",
    "start, s",
    "messages",
    "bytes down",
    "bytes up",
    "bytes on the socket",
)


def federation(rounds):
    """What all parties agree on, as the file has it."""
    return {
        "method": {"name": "FedGA", "lr": 0.1},
        "rounds": rounds,
        "task": {
            "name": "digits",
            "clients": CLIENTS,
            "classes": 10,
            "shape": [64],
            "batch": 32,
            "network": {"name": "MLP", "hidden": 32},
        },
    }


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
    fed, task, count, stamps, began = (
        Federation(**federation(rounds)),
        parse_task(ROWS),
        [0, 0, 0],
        [],
        time.perf_counter(),
    )
    sites = [Site(fed, c, fed.client_task(c, task)) for c in range(CLIENTS)]

    def exchange(requests, wait):
        out = {}
        for c, kind, about, tree in requests:
            asked = message.dumps(tree)
            answer = message.dumps(sites[c].answer(kind, about, message.loads(asked)))
            out[c] = message.loads(answer)
            # a round; not before, not the last look
            if c == 0 and 0 <= about["t"] < rounds:
                count[:] = [count[0] + 1, count[1] + len(asked), count[2] + len(answer)]
        return out

    record = serve(
        fed, exchange, log=lambda line: stamps.append((time.perf_counter(), line))
    )
    return per_round(stamps, began, count, rounds), record


def loopback(folder, rounds, safe=False):
    """The commands, each in a process of its own."""
    (folder / "federation.yaml").write_text(yaml.safe_dump(federation(rounds)))
    began, port, lines, made = time.perf_counter(), free(), {}, []
    if safe:
        made.append(
            command(folder, "keys", "keys", "--host", "localhost", "--clients", CLIENTS)
        )
        lines["keys"] = [(0, line.rstrip()) for line in made[0].stdout]
        made[0].wait(PATIENCE)
    with ExitStack() as stack:
        count = stack.enter_context(relay(port))
        us = ["--keys", "keys"] if safe else []
        parties = [
            command(
                folder,
                "server",
                "federation.yaml",
                "--folder",
                "run",
                "--port",
                port,
                *us,
            )
        ]
        for c in range(CLIENTS):
            me = (
                ["--ca", "keys/ca.pem", "--key", f"keys/client-{c}.key"] if safe else []
            )
            at = f"127.0.0.1:{count.port if c == 0 else port}"
            parties.append(
                command(
                    folder,
                    "client",
                    "federation.yaml",
                    "--client",
                    c,
                    "--data",
                    ROWS,
                    "--folder",
                    f"state-{c}",
                    "--server",
                    at,
                    "--once",
                    *me,
                )
            )
        for name, p in zip(("server", *range(CLIENTS)), parties):
            stack.callback(p.kill)
            lines[name] = []
            threading.Thread(target=listen, args=(p, lines[name]), daemon=True).start()
        for p in parties:
            if p.wait(PATIENCE):
                raise SystemExit(
                    "\n".join(text for some in lines.values() for _, text in some)
                )
        time.sleep(0.2)
    sizes = [
        re.match(r"\w+: ([\d,]+) bytes came, ([\d,]+) go", text) for _, text in lines[0]
    ]
    # neither "client" nor the end
    sizes = [[int(n.replace(",", "")) for n in m.groups()] for m in sizes if m][1:-2]
    row = per_round(
        lines["server"], began, [len(sizes), *map(sum, zip(*sizes))], rounds
    )
    said = transcript(
        [*made, parties[0], parties[2]],
        [lines[k] for k in ("keys", "server", 1) if k in lines],
    )
    return row | {
        "bytes on the socket": sum(count.bytes) / rounds,
        "said": said,
    }, Record.load(folder / "run")


def per_round(stamps, began, count, rounds):
    """From the moments at which the server said that a round was over."""
    ends = [at for at, line in stamps if line.startswith("round ")]
    took = [1000 * (b - a) for a, b in zip(ends, ends[1:])]
    return {
        "ms per round": statistics.median(took),
        "start, s": ends[0] - began,
        **dict(zip(COLUMNS[3:6], (n / rounds for n in count))),
    }


def command(folder, *argv):
    env = os.environ | {
        "PYTHONPATH": str(OUT.parent),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "fedlib", "deploy", *map(str, argv)],
        cwd=folder,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def listen(process, lines):
    for line in process.stdout:
        lines.append((time.perf_counter(), line.rstrip()))


def free():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


class relay:
    """A port that passes everything on to another one of this machine, and counts it:
    bytes [to the server, from it].
    """

    def __init__(self, to):
        self.to, self.bytes, self.door = (
            to,
            [0, 0],
            socket.create_server(("127.0.0.1", 0)),
        )
        self.port = self.door.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self._open, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.door.close()

    def _open(self):
        with suppress(OSError):
            while True:
                here, there = self.door.accept()[0], socket.socket()
                if there.connect_ex(("127.0.0.1", self.to)):  # no server yet
                    here.close()
                    continue
                for way, a, b in ((0, here, there), (1, there, here)):
                    threading.Thread(
                        target=self._pass, args=(way, a, b), daemon=True
                    ).start()

    def _pass(self, way, a, b):
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
    "loopback, TLS and keys": lambda folder, rounds: loopback(
        folder, rounds, safe=True
    ),
}


def main(argv=None):
    p = argparse.ArgumentParser(
        prog="benchmarks.deploy", description=__doc__.splitlines()[0]
    )
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument(
        "--out", type=Path, default=OUT, help="folder of the results (results)"
    )
    args = p.parse_args(argv)
    torch.set_num_threads(1)
    rows, states = [], {}
    for way, f in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            row, record = f(Path(folder), args.rounds)
        states[way], said = (
            [record["pre", "global", s] for s in ("test", "val")],
            row.pop("said", None),
        )
        rows.append(
            {"way": way}
            | {k: "" if row.get(k) is None else shown(row[k]) for k in COLUMNS[1:]}
        )
        print(rows[-1], flush=True)
    if any(
        (a != b).any() for s in states.values() for a, b in zip(s, states["simulation"])
    ):
        raise SystemExit("the ways do not agree")
    about = provenance() | {
        "flower": "1.41.0",
        "method": "FedGA",
        "clients": CLIENTS,
        "rounds": args.rounds,
        "rows": ROWS,
    }
    with (args.out / "benchmarks-deploy.csv").open("w", newline="") as f:
        out = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(rows)
    (args.out / "benchmarks-deploy.json").write_text(json.dumps(about, indent=1) + "\n")
    (args.out / "benchmarks-deploy.txt").write_text(said)


def shown(value):
    return (
        f"{value:,.0f}"
        if value >= 100
        else f"{value:.1f}"
        if value >= 1
        else f"{value:.2g}"
    )


def transcript(parties, lines):
    """Each command, and what it printed without blank lines:
    the first seven lines and the last seven.
    """
    out = []
    for p, some in zip(parties, lines):
        some = [text for _, text in some if text]
        out += [
            "$ python " + " ".join(p.args[1:]),
            *(some if len(some) < 16 else [*some[:7], "...", *some[-7:]]),
            "",
        ]
    return "\n".join(out)


if __name__ == "__main__":
    main()
