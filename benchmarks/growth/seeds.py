"""S runs of one federation with seeds 0 .. S-1: one after another, in two processes, or
stacked as more clients under vmap.

    python -m benchmarks.growth.seeds '{"method": "stacked", "x": 4}' 20

answers like `points`: {"runs": CPU seconds of all processes, "runs, wall": seconds,
"mib": ...} for 20 rounds of each seed.

Stacked, S seeds are one federation of S times the clients with S server models.
Weights, data and cohorts are those of the S runs, and so are the results where batches
are not shuffled; shuffled batches are drawn by other keys: other samples, same work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch

from fedlib import Task
from fedlib.core.tree import pick, stack, tmap
from fedlib.methods.base.fedavg import FedAvg

from ..cases import noise
from .points import BATCH, NEVER, ROWS, forget_peak, network, resident, talk

CLIENTS, COHORT = 30, 10
KINDS = ("one after another", "two processes", "stacked")


@dataclass(frozen=True)
class Stacked(FedAvg):
    """FedAvg for several seeds at once: client s C + c is client c of seed s, and is
    averaged with its own seed's clients.
    """

    seeds: int = 1

    def server(self, w, r):
        return {"w": stack([self.task.init(s) for s in range(self.seeds)])}

    def send(self, server, ids):
        return {
            "w": pick(
                server["w"], ids.div(self.task.C // self.seeds, rounding_mode="floor")
            )
        }

    def aggregate(self, server, up, r):
        n = up["n"].view(self.seeds, -1)
        p = n / n.sum(1, keepdim=True)
        by_seed = lambda x: torch.einsum(
            "sm,sm...->s...", p, x.view(*p.shape, *x.shape[1:])
        )
        return {"w": tmap(by_seed, up["w"])}


def copies(task, S):
    """The same clients S times, as one task."""
    N = len(task.x)
    splits = (
        tuple(r + s * N for s in range(S) for r in split)
        for split in (task.train, task.val, task.test)
    )
    x = task.x.repeat(S, *(1 for _ in task.x.shape[1:]))
    return Task(
        f"{task.name} x {S}",
        task.network,
        x,
        task.y.repeat(S),
        *splits,
        K=task.K,
        batch=task.batch,
        kind=task.kind,
    )


def single(task, seed, rounds, **more):
    """One run without evaluation after round 0; its Record."""
    import fedlib

    return fedlib.run(
        FedAvg(task, lr=0.01, **more),
        rounds=NEVER,
        seed=seed,
        cohort=COHORT,
        every=NEVER,
        upto=rounds,
        device="cpu",
        progress=False,
        splits=("test",),
    )


def stacked(task, many, S, rounds, how="vmap", **more):
    """All S in one run; many: copies(task, S)."""
    import fedlib
    from fedlib.core.clients import cohort_of

    method = Stacked(many, lr=0.01, seeds=S, **more)
    cohorts = lambda t: torch.cat(
        [s * task.C + cohort_of(method, task, s, t, COHORT) for s in range(S)]
    )
    return fedlib.run(
        method,
        rounds=NEVER,
        cohort=cohorts,
        every=NEVER,
        upto=rounds,
        how=how,
        device="cpu",
        progress=False,
        splits=("test",),
    )


def job(task, seed, rounds):
    """In a worker: (process, its CPU seconds for one run, its peak in MiB)."""
    torch.set_num_threads(1)
    began = time.process_time()
    single(task, seed, rounds)
    return os.getpid(), time.process_time() - began, resident("VmHWM")


def run(kind, S, rounds, hear, say):
    """Answer until `hear` gives nothing."""
    torch.set_num_threads(1)
    task, pool = noise("softmax", *network("softmax"), CLIENTS, ROWS, BATCH), None
    many = copies(task, S) if kind == "stacked" else None
    single(task, 0, 1)
    forget_peak()
    before = resident()
    if kind == "two processes":
        pool = ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))
        list(pool.map(job, [task] * 2, [0, 1], [2] * 2))  # started and warm
    say({})
    while hear():
        cpu, wall, theirs, mib = time.process_time(), time.perf_counter(), 0.0, None
        if pool:
            done = list(pool.map(job, [task] * S, range(S), [rounds] * S))
            theirs, mib = (
                sum(d[1] for d in done),
                sum(dict((d[0], d[2]) for d in done).values()),
            )
        elif kind == "stacked":
            stacked(task, many, S, rounds)
        else:
            for s in range(S):
                single(task, s, rounds)
        answer = {
            "runs": time.process_time() - cpu + theirs,
            "runs, wall": time.perf_counter() - wall,
        }
        say(answer | {"mib": resident("VmHWM") - before if mib is None else mib})
    if pool:
        pool.shutdown()


if __name__ == "__main__":
    spec = json.loads(sys.argv[1])
    run(spec["method"], spec["x"], int(float(sys.argv[2])), sys.stdin.readline, talk)
