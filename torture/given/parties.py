"""A real federation on this machine: the server and every client are processes,
Flower carries the messages.
"""

import multiprocessing
import os
import signal
import socket
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import yaml

from fedlib import Task, make, run
from fedlib.cli.main import main
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
