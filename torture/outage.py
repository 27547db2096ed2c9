"""SIGKILL in a real federation: of its server, of one client, of all clients.

Every attempt is a federation of its own on this machine, the server and three clients
each a process. At a random moment somebody is killed, and started again with the same
command. Lost is what does not end with the record and the server's state of a run that
nobody disturbs, bit for bit. On a slow machine a client may come back after `wait`; the
server must then have said that it leaves it out, and the run is the one without it.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import socket
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
import yaml

from fedlib import Record, Task, make, run
from fedlib.core.tree import leaves
from fedlib.nets import MLP

from .count import Count

attempts = 60
ROWS = ("server killed", "one client killed", "all clients killed")
AT_ONCE = 3  # federations; most of their time they wait
C, ROUNDS, D, K, N = 3, 4, 6, 3, 120
METHOD = {"name": "Ditto", "lam": 0.5, "lr": 0.1}
AWAY = "(?:no answer|it is not connected|it vanished)"  # what the server says
START = 3  # seconds in which a client may not have connected yet
ENDS = 240  # seconds after which a federation should have come to its end
# imports once, then every party is a fork with a life of its own
CTX = multiprocessing.get_context("forkserver")
PARTS = "federation", "server", "flower"
CTX.set_forkserver_preload(["fedlib.__main__", *(f"fedlib.deploy.{p}" for p in PARTS)])


def measure(n, seed):
    """n federations, dealt to the three rows in turn."""
    counts, truth = {row: Count(row) for row in ROWS}, undisturbed()
    with tempfile.TemporaryDirectory() as at, ThreadPoolExecutor(AT_ONCE) as pool:
        took = calm(Path(at) / "calm", truth)
        jobs = [(Path(at) / str(i), ROWS[i % 3], f"{seed} {i}") for i in range(n)]
        for row, why in pool.map(lambda job: attempt(*job, took, truth), jobs):
            counts[row].add("lost" if why else "accepted", why)
    return list(counts.values())


def calm(folder, truth):
    """Seconds that a federation takes if nobody is killed."""
    began = time.monotonic()
    with Parties(folder) as them:
        them.start("server", *range(C))
        them.ended(ENDS)
    if why := differs(truth, folder):
        raise AssertionError(f"undisturbed, and yet: {why}")
    return time.monotonic() - began


def attempt(folder, row, seed, took, truth):
    """One federation -> (its row, what was lost or None)."""
    draw = random.Random(seed)
    names = {"server killed": ["server"], "one client killed": [draw.randrange(C)]}
    names = names.get(row, [*range(C)])
    everybody = len(names) == C  # long enough that the server pauses, sometimes
    moment, pause = draw.uniform(0, took), draw.uniform(0, 25 if everybody else 2)
    # by default one answer is a round; here all must come
    more = ("--minimum", str(C)) if everybody else ()
    with Parties(folder, 20 if everybody else 60, more) as them:
        them.start("server", *range(C))
        time.sleep(moment)
        killed = them.kill(*names)
        time.sleep(pause)
        them.start(*killed)
        try:
            them.ended(ENDS, killed)
        except AssertionError as e:
            return row, f"seed {seed}, {row} at {moment:.2f} s: {e}"
    if not killed:  # it had come to its end
        return attempt(folder / "again", row, seed + "'", took / 2, truth)
    why = differs(truth, folder)
    return row, why and f"seed {seed}, {row} at {moment:.2f} s: {why}"


def differs(truth, folder):
    """What is not as in the run that nobody disturbed, or None."""
    got, want = Record.load(folder / "run"), truth
    cohorts = [ids[ids >= 0].tolist() for ids in got.logs["cohort"]]
    log = (folder / "server.txt").read_text()
    late = re.findall(rf"client (\d) left out of round (\d), [\w ]+: {AWAY}", log)
    without = {(int(t), int(c)) for c, t in late}
    missing = {(t, c) for t, ids in enumerate(cohorts) for c in {*range(C)} - {*ids}}
    if len(cohorts) != ROUNDS or not all(cohorts) or missing - without:
        return f"cohorts {cohorts}"
    if missing:
        want = undisturbed(lambda t: cohorts[min(t, ROUNDS - 1)])
    if got.views.keys() != want.views.keys():
        return f"views {sorted(got.views)}"
    for view, values in want.views.items():
        seen = got.views[view]
        if late:  # nobody has scored for who was away
            values = np.where(np.isnan(seen), np.nan, values)
        if not np.array_equal(seen, values, equal_nan=True):
            return f"{view} differs by {np.nanmax(np.abs(seen - values)):.2g}"
    ends = torch.load(folder / "end.pt"), leaves(want.state["server"])
    same = all(map(torch.equal, *ends)) and len(ends[0]) == len(ends[1])
    return None if same else "the server's state differs"


# ---------------------------------------------------------------- the federation
def rows_of(c):
    """x, y of client c."""
    g = np.random.default_rng(c)
    y = g.integers(K, size=N)
    return (g.normal(size=(N, D)) + np.eye(K, D)[y] * (1 + c)).astype(np.float32), y


def undisturbed(cohort=None):
    """The simulation, of all clients or with cohort(t) in round t -> Record."""
    x, y = map(np.concatenate, zip(*map(rows_of, range(C))))
    owners = np.repeat(np.arange(C), N)
    task = Task.from_arrays(x, y, owners, MLP(D, 5, K), batch=16)
    made = make(task=task, **METHOD)
    usual = {"how": "loop", "device": "cpu", "progress": False}
    return run(made, rounds=ROUNDS, cohort=cohort, **usual)


class Parties:
    """The processes of one federation: "server" and the numbers of the clients.

    None outlives the block.
    """

    def __init__(self, folder, wait=60, server=(), **more):
        # began: {name: when it was started, and how long its log was}
        self.folder, self.living, self.began = Path(folder), {}, {}
        self.folder.mkdir(parents=True)
        self.file, self.port = self.folder / "federation.yaml", free_port()
        self.more = tuple(server)
        network = {"name": "MLP", "hidden": 5}
        task = {"name": "toy", "clients": C, "classes": K, "shape": [D], "batch": 16}
        given = {"method": METHOD, "task": task | {"network": network}}
        given |= {"rounds": ROUNDS, "wait": wait}
        self.file.write_text(yaml.safe_dump(given | more))
        for c in range(C):
            np.savez(self.folder / f"mine-{c}.npz", **dict(zip("xy", rows_of(c))))

    def command(self, name):
        """The arguments of a party's command."""
        at, f = self.folder, str(self.file)
        if name == "server":
            told = ["--folder", at / "run", "--port", self.port, *self.more]
            return ["server", f, *map(str, told)]
        told = ["--client", name, "--data", at / f"mine-{name}.npz", "--folder"]
        told += [at / f"state-{name}", "--server", f"127.0.0.1:{self.port}", "--once"]
        told += ["--patience", "60"]
        return ["client", f, *map(str, told)]

    def start(self, *names):
        for name in names:
            told = self.command(name), str(self.path(name)), str(self.folder)
            p = CTX.Process(target=live, args=told, daemon=True)
            self.began[name] = time.time(), len(self.log(name))
            p.start()
            self.living[name] = p

    def kill(self, *names):
        """SIGKILL -> those that it hit."""
        hit = [name for name in names if self.living[name].is_alive()]
        for name in hit:
            self.living[name].kill()
        for name in hit:
            self.living[name].join()
        return hit

    def path(self, name):
        return self.folder / f"{name}.txt"

    def log(self, name="server"):
        """What a party has said."""
        return self.path(name).read_text() if self.path(name).exists() else ""

    def until(self, words, seconds=90, name="server"):
        """Wait for words in a log."""
        end = time.monotonic() + seconds
        while words not in self.log(name):
            if time.monotonic() > end:
                raise AssertionError(f"no {words!r} in {seconds} s:\n{self.log(name)}")
            time.sleep(0.02)

    def ended(self, seconds, again=()):
        """Wait until all have ended in peace.

        again: those who were started again. A client whose start takes until the
        federation is over looks for the server in vain, and may.
        """
        end = time.monotonic() + seconds
        for name in sorted(self.living, key=lambda name: name in again):
            p = self.living[name]
            p.join(max(0, end - time.monotonic()))
            if name != "server" and name in again and self.too_late(name):
                continue
            if p.exitcode != 0:
                raise AssertionError(f"{name}: exit {p.exitcode}\n{self.log(name)}")

    def too_late(self, name):
        """Did a client never connect, as all was over before it can have started?"""
        began, said = self.began[name]
        over = self.folder / "end.pt"  # written once, after the last round
        in_time = not over.exists() or over.stat().st_mtime > began + START
        return not in_time and "is connected" not in self.log(name)[said:]

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for p in self.living.values():
            p.kill()
            p.join(5)


def free_port():
    """Below those that connections get by themselves: nobody takes it while the server
    is dead.
    """
    draw = random.SystemRandom()
    while True:
        port = draw.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def live(argv, log, folder):
    """What one process does."""
    signal.alarm(ENDS + 60)  # it ends, whatever becomes of who started it
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    keep_the_state(Path(folder) / "end.pt")
    from fedlib.cli.main import main

    sys.exit(main(["deploy", *argv]))


def keep_the_state(path):
    """The record in a folder has no state: keep that of the server beside it."""
    save = Record.save

    def saved(record, folder):
        torch.save(leaves(record.state["server"]), path)
        save(record, folder)

    Record.save = saved
