"""Other people's programs, each in the interpreter of its own environment: asked for a
row by `Peer.ask`, they answer it by `race`, beside the usual loop in their process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import cache
from typing import NamedTuple

import torch

from fedlib.nets.layers import ensure_torchvision

from .. import harness
from ..cases import case
from ..usual import difference

ensure_torchvision()  # FLGo imports it
THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Peer(NamedTuple):
    """At most so many repetitions of at least so many CPU seconds: starting Flower
    costs half a minute a time. with_methods: more than FedAvg."""

    key: str
    name: str
    reps: int = 7
    seconds: float = 0.0
    with_methods: bool = False
    python: str = ""

    def ask(self, case, reps, seconds, method, limit=900):
        """The row of a case; a failure is a row with its reason."""
        much = str(min(reps, self.reps)), str(max(seconds, self.seconds))
        what = [f"benchmarks.peers.with_{self.key}", case, *much, method]
        env = os.environ | THREAD | {"PYTHONPATH": str(harness.ROOT)}
        pipes = {"capture_output": True, "text": True, "timeout": limit}
        try:
            command = [self.python, "-m", *what]
            done = subprocess.run(command, env=env, cwd=harness.ROOT, **pipes)
        except subprocess.TimeoutExpired:
            return {"variant": self.name, "note": f"not finished after {limit} s"}
        lines = [x for x in done.stdout.splitlines() if x.startswith('{"variant"')]
        if lines:
            return json.loads(lines[0])
        why = [x for x in done.stderr.splitlines() if x.strip()]
        why = why[-1][:200] if why else f"exit status {done.returncode}"
        return {"variant": self.name, "note": f"failed: {why}"}


KNOWN = (
    Peer("pfllib", "PFLlib", with_methods=True),
    Peer("flgo", "FLGo", with_methods=True),
    Peer("flower", "Flower simulation", 3, 4.0),
)
PEERS = ", ".join(p.key for p in KNOWN)


def peers_in(folder):
    """The peers with an environment in the folder; PFLlib's sources lie there, too."""
    if folder is None:
        return []
    os.environ.setdefault("PFLLIB", str(folder.resolve() / "PFLlib"))
    pythons = {p: folder.resolve() / p.key / "bin/python" for p in KNOWN}
    found = [p._replace(python=str(at)) for p, at in pythons.items() if at.exists()]
    if not found:
        raise SystemExit(
            f"{folder} holds no environment of a peer: make one of {PEERS} in it, see "
            "benchmarks/README.md"
        )
    return found


# ---------------------------------------------------------------- in its own process
@cache
def loaded(name):
    """A case and its clients' rows as lists of (x, y), made once in each process."""
    c = case(name)
    return c, c.pairs()


def race(key, release, federation, cpu=time.process_time, note=lambda case, method: ""):
    """Check a peer against the usual loop, time the two in turn, print one json line.

    federation(case, batch, cohort, rounds, method, **hyperparameters) trains from the
    case's initial weights and returns (CPU seconds of the rounds after the first, the
    final Module). Arguments of the command: case, repetitions, seconds, method.
    """
    from ..rounds import METHODS

    torch.set_num_threads(1)
    c, method = case(sys.argv[1]), sys.argv[4]
    name = next(p.name for p in KNOWN if p.key == key)
    setting, said = METHODS[method], "one round of a full batch:"
    full, loop = setting.usual(c, 10**6), setting.usual(c)
    more, times = {}, 1
    if method != "FedAvg":  # a pull does nothing in the first step
        more, times = {"method": method} | setting.theirs[key], 2
        full.epochs, said = 2, "two rounds of two full batches:"
    for _ in range(times):
        full.round(torch.arange(c.task.C))
    again = {"epochs": 2} if times > 1 else {}
    _, theirs = federation(c, 10**6, c.task.C, times, **more, **again)
    apart = difference(theirs.parameters(), full.model.parameters())
    timed = lambda n: federation(c, c.task.batch, c.cohort, n + 1, **more)[0]
    args = int(sys.argv[2]), float(sys.argv[3]), cpu
    row = harness.beside_the_loop(loop.rounds(c.cohorts()), {name: timed}, *args)[1]
    said = [f"{said} the model differs from the loop's by {apart:.0e}", note(c, method)]
    row |= {"version": f"{release}, torch {torch.__version__}"}
    print(json.dumps(row | {"note": "; ".join(filter(None, said))}), flush=True)
