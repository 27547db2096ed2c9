"""SIGKILL at random moments of `fedlib.run` and of the command line, then the same call
again until it is done: nothing may be lost, and the bits are those of a quiet run.

Also here is what the other scripts of this kind share: calls in processes of their own,
moments, and what a folder holds in the end.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from fedlib.cli import main as cli
from fedlib.core import engine, files, record, tree
from fedlib.core.files import read_tensors
from fedlib.core.folder import RunFolder
from fedlib.data import tasks
from fedlib.methods.make import make

from .count import Count

attempts = 100  # kills
AGAIN = 3  # so often one run is killed at most
PATIENCE = 120  # seconds until a call counts as hanging
OWN = (
    "seconds",
    "commit",
    "source",
    "device",
)  # of a record's meta: not the same twice
LEFT = re.compile(r"\.lock|\.(new|old)/|\.[^/]+\.\d+@[^/]+$")
METHODS = ("FedAvg", "Ditto", "SCAFFOLD", "FedGA", "FedAdam", "FedRep", "FedDyn")
TASK = "synthetic:alpha=.5,beta=.5,sizes=[40,50,60,70,80]"


# ---------------------------------------------------------------- what is called
def one_run(name, folder):
    method = make(name, small_task())
    engine.run(method, rounds=25, seed=1, cohort=3, folder=folder, **quick())


def command(*words):
    """A command of `python -m fedlib`, which ends with its folder."""
    status = cli.main(list(map(str, words)))
    if status:
        raise SystemExit(status)


def quick():
    return {"checkpoint_every": 0, "device": "cpu", "progress": False}


@cache
def small_task():
    data = {"name": "synthetic", "alpha": 0.5, "beta": 0.5}
    data |= {"sizes": [40, 50, 60, 70, 80]}
    network = {"name": "MLP", "hidden": [8]}  # FedRep divides it into two parts
    return tasks.build({"data": data, "network": network}, 0, "small")


ONE = ("run", "Ditto", TASK, "--rounds", "20", "--device", "cpu", "--folder")
TWO = ("compare", "FedAvg", "Ditto", "--task", TASK, "--rounds", "10", "--seeds", "2")
TWO += ("--folder",)


# ---------------------------------------------------------------- processes
def fork():
    """Processes that need not import everything again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedlib.study.compute", "fedlib.cli.main"])
    return context


def start(f, *args, folder="", last=0):
    """f(*args) in a process of its own, which has begun; see `count_files`."""
    (here, there), (log, prints) = fork().Pipe(False), fork().Pipe(False)
    process = fork().Process(target=begin, args=(there, prints, folder, last, f, args))
    process.start()
    there.close()
    prints.close()
    assert here.poll(PATIENCE), "no process has begun"
    here.recv()
    process.log, process.said = log, here
    os.set_blocking(log.fileno(), False)
    return process


def begin(pipe, prints, folder, last, f, args):
    """In the process: what it prints goes into a pipe, and every round is kept."""
    torch.set_num_threads(1)
    for stream in (1, 2):
        os.dup2(prints.fileno(), stream)
    RunFolder.due = lambda self: True  # the command line keeps one in 30 s
    files.STALE = 0  # what a kill has left is swept at once
    record.commit = record.source = lambda: "0123456789"  # quicker than git
    pipe.send(True)
    times = count_files(str(folder), last)
    try:
        f(*args)
        pipe.send(len(times))
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def count_files(folder, last):
    """A list that grows whenever a file of a folder is opened, renamed or deleted;
    before the time `last` this process is killed."""
    times = []

    def hook(event, args):
        if event in ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"):
            path = args[0] if isinstance(args[0], (str, os.PathLike)) else ""
            if path and os.path.abspath(path).startswith(folder):
                times.append(event)
                if len(times) == last:
                    os.kill(os.getpid(), signal.SIGKILL)

    if folder:
        sys.addaudithook(hook)
    return times


def ended(process):
    """(exit status, what it has said) at its end; kills one that hangs."""
    process.join(PATIENCE)
    if process.is_alive():
        process.kill()
        process.join()
    try:
        said = os.read(process.log.fileno(), 2**16).decode()
    except BlockingIOError:  # a process that it has started still runs
        said = ""
    process.log.close()
    process.said.close()
    return process.exitcode, said


def kill(process, moment):
    """SIGKILL after so many seconds -> was it in time?"""
    process.join(moment)
    process.kill()
    status, _ = ended(process)
    return status == -signal.SIGKILL


# ---------------------------------------------------------------- what a folder holds
def held(folder):
    """{file or run: digest} of a folder, and what should not be there any more.

    A run is what its record says, without times and places, and the state it ends with.
    """
    found, left = {}, []
    for path in sorted(p for p in Path(folder).rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if LEFT.search(name):
            left.append(name)
        elif path.name == "record":
            found[name] = digest_of(record.Record.load(path.parent))
        elif path.name == "checkpoint":
            state = read_tensors(path, "cpu")["state"]
            found[name] = digest([x.numpy().tobytes() for x in numbers(state)])
        else:
            found[name] = digest([path.read_bytes()])
    return found, left


def numbers(state):
    return [torch.as_tensor(x) for x in tree.leaves(state)]


def digest_of(r):
    """Of a record: its numbers, and its meta but OWN."""
    meta = json.dumps({k: v for k, v in r.meta.items() if k not in OWN}, sort_keys=True)
    parts = [r.rounds, *(v for p in (r.views, r.cells, r.logs) for v in p.values())]
    return digest([meta.encode(), *(v.tobytes() for v in parts)])


def digest(bodies):
    return hashlib.sha256(b"\0".join(bodies)).hexdigest()[:16]


def begun(folder):
    """Is there a round or a run to lose?"""
    names = ("checkpoint", "record")
    return any(p.name in names for p in Path(folder).rglob("*"))


# ---------------------------------------------------------------- the kills
@dataclass
class Call:
    """f(*args, folder); undisturbed it leaves `found`, and takes so many seconds and
    uses of files."""

    f: object
    args: tuple = ()
    found: dict = field(default_factory=dict)
    seconds: float = 0.0
    files: int = 0

    def start(self, folder, last=0):
        return start(self.f, *self.args, folder, folder=folder, last=last)

    def measure(self):
        """Undisturbed, once."""
        if not self.found:
            with tempfile.TemporaryDirectory() as at:
                process, since = self.start(Path(at, "run")), time.monotonic()
                with suppress(EOFError):  # it has failed, and says why
                    self.files = process.said.recv()
                status, said = ended(process)
                self.seconds = time.monotonic() - since
                self.found, left = held(Path(at, "run"))
            assert status == 0 and not left and self.found, said
        return self

    def killed(self, folder, part, chance):
        """Start it and kill it after a part of its seconds, or of its uses of files ->
        was it in time?"""
        if chance.random() < 0.5:
            return kill(self.start(folder), part * self.seconds)
        process = self.start(folder, 1 + int(part * self.files))
        return ended(process)[0] == -signal.SIGKILL


def killed(call, n, chance, count, full):
    """Up to n kills of one call in one folder, then the end; `full` gets whether each
    found something to lose."""
    call.measure()
    with tempfile.TemporaryDirectory() as at:
        folder, rest, made = Path(at, "run"), 0.95, 0
        while made < n:
            part = chance.uniform(0, rest)
            if not call.killed(folder, part, chance):
                break  # it was done before
            made, rest = made + 1, rest - part
            full.append(begun(folder))
        outcome = end(call, folder)
    for _ in range(made):
        count.add(*outcome)


def end(call, folder):
    """(name of a count, why) of the call that goes on to the end."""
    status, said = ended(call.start(folder))
    if status:
        return "lost", f"{call.args}: {said[-300:]!r}"
    return compared(call, folder)


def compared(call, folder):
    """(name of a count, why): is everything there, and nothing else?"""
    found, left = held(folder)
    differ = sorted(
        k for k in call.found.keys() | found if call.found.get(k) != found.get(k)
    )
    if differ:
        return "lost", f"{call.args}: {', '.join(differ)} gone or of other bits"
    if left:
        return "silent", f"{call.args}: left behind {', '.join(left)}"
    return "accepted", ""


def kills(row, calls, n, chance, most=AGAIN):
    """The row of n kills of these calls, in turn, and how many found something to
    lose."""
    count, full, tries = Count(row), [], 0
    while count.n < n and tries < 10 * n:
        call = calls[tries % len(calls)]
        killed(call, min(most, n - count.n), chance, count, full)
        tries += 1
    print(f"{row}: {sum(full)} of {len(full)} kills found something to lose")
    assert 2 * sum(full) >= len(full), f"{row}: too few kills found something to lose"
    return count


def measure(n, seed):
    chance = random.Random(seed)
    runs = [Call(one_run, (name,)) for name in METHODS]
    commands = [Call(command, args) for args in (ONE, TWO)]
    some = max(1, round(0.6 * n))
    return [
        kills("runs, SIGKILL and resume", runs, some, chance),
        kills("command line", commands, n - some, chance),
        *together([*commands, runs[1]], max(1, n // 8), chance),
    ]


# ---------------------------------------------------------------- two at once
def together(calls, n, chance):
    """Two processes in one folder at once, of which one may be killed."""
    count = Count("two processes in one folder")
    for i in range(n):
        call = calls[i % len(calls)].measure()
        with tempfile.TemporaryDirectory() as at:
            count.add(*both(call, Path(at, "run"), chance))
    return [count]


def both(call, folder, chance):
    """(name of a count, why) of two equal calls at once."""
    first = call.start(folder)
    first.join(chance.uniform(0, 0.5 * call.seconds))
    second = call.start(folder)
    if chance.random() < 0.5:
        kill(first, chance.uniform(0, 0.5 * call.seconds))
    else:
        status, said = ended(first)
        if status:
            return "lost", f"{call.args}, the first: {said[-300:]!r}"
    status, said = ended(second)
    if status:
        return "lost", f"{call.args}, the second: {said[-300:]!r}"
    return compared(call, folder)
