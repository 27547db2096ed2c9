"""Points of growth curves: federations, and runs of several seeds, each in a process of
its own that is timed when asked.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

import fedlib
from fedlib.core import engine, scoring
from fedlib.core.clients import cohort_of

from ..cases import noise
from ..rounds import QUIET
from ..stacked import Stacked, copies, stacked_cohort
from .fit import BATCH, ROWS, network

NEVER = 10**9
CLIENTS, COHORT = 30, 10  # on the axis of seeds
KINDS = ("one after another", "two processes", "stacked")
clock = time.process_time


def resident(what="VmRSS"):
    """MiB of this process now, or with "VmHWM" its largest so far (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(x for x in lines if x.startswith(what)).split()[1]) / 1024


def baseline():
    """MiB of this process, from here on counted anew."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident()


def task_of(net, clients):
    return noise(net, *network(net), clients, ROWS, BATCH)


# ---------------------------------------------------------------- federations
@dataclass(frozen=True)
class Point:
    """net: softmax, mlp-WIDTH or resnet18; every: rounds from one evaluation to the
    next (2 or more), 0: none; x: where on its axis the point lies."""

    axis: str
    method: str
    x: int
    clients: int
    cohort: int = 10
    net: str = "softmax"
    every: int = 0

    @property
    def label(self):
        """The name of its curve."""
        return self.method if self.net != "resnet18" else f"{self.method}, ResNet18"


def federation(pipe, point, seconds):
    """Answer with what a block of rounds took: {"round": CPU seconds, "mib": peak}.

    The pause is inside the run, in its cohort function, so every block meets a
    federation that is warm. With `every` a block has so many rounds; the first scores
    all clients and is given as "evaluated round", and what of it is the scoring as
    "scoring". Without, a block lasts `seconds` and nobody is scored but before round 0,
    as in every run: memory is always that of a run with evaluation.
    """
    torch.set_num_threads(1)
    few = fedlib.make(point.method, task_of("softmax", 3))
    # libraries and kernels belong to the baseline
    engine.run(few, rounds=1, device="cpu", progress=False)
    before, began = baseline(), clock()
    method = fedlib.make(point.method, task_of(point.net, point.clients), lr=0.01)
    ticks, scored, start = [], [], []

    def score(*args, **more):
        at = clock()
        try:
            return scoring.score(*args, **more)
        finally:
            scored.append(clock() - at)

    def cohort(t):
        now, every = clock(), point.every
        if not t:
            start.append(now - began)
        if not t or (len(ticks) == every if every else now - ticks[0] >= seconds):
            if t:
                mib = {"mib": resident("VmHWM") - before, "start": start[0]}
                pipe.send(block([*ticks, now], sum(scored), every) | mib)
            pipe.recv()
            ticks[:], scored[:] = [clock()], []
        else:
            ticks.append(now)
        return cohort_of(method, method.task, 0, t, point.cohort)

    with patch.object(engine, "score", score):
        more = {"rounds": NEVER, "every": point.every or NEVER}
        engine.run(method, cohort=cohort, **more, **QUIET)


def block(ticks, scoring, every):
    """Seconds of a block, from the moments at which its rounds began."""
    if not every:
        return {"round": (ticks[-1] - ticks[0]) / (len(ticks) - 1)}
    round_ = (ticks[-1] - ticks[1]) / (len(ticks) - 2)
    return {"round": round_, "evaluated round": ticks[1] - ticks[0], "scoring": scoring}


# ---------------------------------------------------------------- seeds
def single(task, seed, rounds):
    """One run without evaluation after round 0."""
    method = fedlib.make("FedAvg", task, lr=0.01)
    more = {"rounds": NEVER, "every": NEVER, "upto": rounds, "seed": seed}
    fedlib.run(method, cohort=COHORT, **more, **QUIET)


def job(task, seed, rounds):
    """In a worker: (process, its CPU seconds for one run, its peak in MiB)."""
    torch.set_num_threads(1)
    began = clock()
    single(task, seed, rounds)
    return os.getpid(), clock() - began, resident("VmHWM")


def seeds(pipe, kind, S, rounds):
    """Answer with what S runs of a federation took, seeds 0 .. S-1: {"runs": CPU
    seconds of all processes, "runs, wall": seconds, "mib": ...}."""
    torch.set_num_threads(1)
    task, pool = task_of("softmax", CLIENTS), None
    many = copies(task, S) if kind == "stacked" else None
    single(task, 0, 1)
    before = baseline()
    if kind == "two processes":
        pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
        list(pool.map(job, [task] * 2, [0, 1], [2] * 2))  # started and warm
    while pipe.recv():
        cpu, wall, theirs, mib = clock(), time.perf_counter(), 0.0, None
        if pool:
            done = list(pool.map(job, [task] * S, range(S), [rounds] * S))
            theirs, mib = (
                sum(d[1] for d in done),
                sum({d[0]: d[2] for d in done}.values()),
            )
        elif kind == "stacked":
            cohort = lambda t: stacked_cohort(task, S, COHORT, t)
            more = {"rounds": NEVER, "every": NEVER, "upto": rounds, "how": "vmap"}
            fedlib.run(Stacked(many, seeds=S, lr=0.01), cohort=cohort, **more, **QUIET)
        else:
            for s in range(S):
                single(task, s, rounds)
        took = {
            "runs": clock() - cpu + theirs,
            "runs, wall": time.perf_counter() - wall,
        }
        mib = resident("VmHWM") - before if mib is None else mib
        pipe.send(took | {"mib": mib})
