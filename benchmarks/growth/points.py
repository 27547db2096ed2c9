"""One point of a growth curve: a federation that waits between blocks of rounds, and
tells what a block took.

    python -m benchmarks.growth.points '{"axis": "clients", "method": "FedAvg", "x": \\
        1000, "clients": 1000, "every": 11}' 0.2

It prints a json line when it has started, then one for every line it reads: {"round":
CPU seconds, "mib": peak so far}. The pause is inside the run, in its cohort function,
so every block meets a federation that is warm, and many points can take turns. With
`every` a block has so many rounds; the first scores all clients and is given as
"evaluated round", and what of it is the scoring as "scoring"; the others score nobody.
Without, a block lasts as long as the last argument says (CPU seconds) and nobody
is scored, but before round 0, as in every run: memory is always that of a run with
evaluation.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch

from fedlib.core import scoring

from ..cases import noise

NEVER, ROWS, BATCH = 10**9, 8, 4  # training rows per client, so two steps a round


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


def network(name):
    """(network, shape of a row)."""
    from fedlib.nets import MLP, Linear, ResNet18

    if name == "softmax":
        return Linear(60, 10), (60,)
    if name == "resnet18":
        return ResNet18(10, stem="cifar", norm="group"), (3, 32, 32)
    kind, _, width = name.partition("-")
    if kind != "mlp" or not width.isdigit():
        raise ValueError(
            f"net = {name!r}: give softmax, mlp-WIDTH (as mlp-64) or resnet18"
        )
    return MLP(784, int(width), 10), (784,)


def parameters(name):
    """How many parameters a network has."""
    return sum(v.numel() for v in network(name)[0].init(0).values())


def task_of(point):
    """Noise: each client has ROWS training rows,
    one for validation and one for testing.
    """
    return noise(point.net, *network(point.net), point.clients, ROWS, BATCH)


# ---------------------------------------------------------------- memory
def resident(what="VmRSS"):
    """MiB of this process now, or with "VmHWM" its largest so far (Linux)."""
    line = next(
        x
        for x in Path("/proc/self/status").read_text().splitlines()
        if x.startswith(what)
    )
    return int(line.split()[1]) / 1024


def forget_peak():
    """From here on the peak is counted anew."""
    Path("/proc/self/clear_refs").write_text("5")


# ---------------------------------------------------------------- the process
class Blocks:
    """A cohort function: draws like the engine, and stops at the end of each block
    until it is asked again.
    """

    def __init__(
        self, method, point, seconds, hear, say, before, clock=time.process_time
    ):
        self.method, self.point, self.seconds, self.hear, self.say, self.clock = (
            method,
            point,
            seconds,
            hear,
            say,
            clock,
        )
        self.before, self.ticks, self.began, self.scoring = before, [], clock(), 0.0

    def __call__(self, t):
        from fedlib.core.clients import cohort_of

        now = self.clock()
        if not t:
            self.pause({"start": now - self.began})
        elif self.full(now):
            self.pause(self.took([*self.ticks, now]))
        else:
            self.ticks.append(now)
        return cohort_of(self.method, self.method.task, 0, t, self.point.cohort)

    def full(self, now):
        return (
            len(self.ticks) == self.point.every
            if self.point.every
            else now - self.ticks[0] >= self.seconds
        )

    def took(self, ticks):
        if not self.point.every:
            return {"round": (ticks[-1] - ticks[0]) / (len(ticks) - 1)}
        return {
            "round": (ticks[-1] - ticks[1]) / (len(ticks) - 2),
            "evaluated round": ticks[1] - ticks[0],
            "scoring": self.scoring,
        }

    def pause(self, answer):
        self.say(answer | {"mib": resident("VmHWM") - self.before})
        if not self.hear():
            raise SystemExit  # nobody asks any more
        self.ticks, self.scoring = [self.clock()], 0.0

    def scored(self, score):
        """The engine's `score`, with a look at the clock."""

        def f(*args, **more):
            began = self.clock()
            try:
                return score(*args, **more)
            finally:
                self.scoring += self.clock() - began

        return f


def run(point, seconds, hear, say):
    """Start the federation of a point and answer until `hear` gives nothing.

    seconds: length of a block without evaluation.
    """
    from fedlib import make
    from fedlib.core import engine

    torch.set_num_threads(1)
    few = make(point.method, noise("few", *network("softmax"), 3, ROWS, BATCH))
    # libraries and kernels belong to the baseline
    engine.run(few, rounds=1, device="cpu", progress=False)
    forget_peak()
    before, began = resident(), time.process_time()
    method = make(point.method, task_of(point), lr=0.01)
    blocks = Blocks(method, point, seconds, hear, say, before)
    blocks.began = began  # building the task is part of the start
    with patch.object(engine, "score", blocks.scored(scoring.score)):
        engine.run(
            method,
            rounds=NEVER,
            cohort=blocks,
            every=point.every or NEVER,
            device="cpu",
            progress=False,
            splits=("test",),
        )


def talk(answer):
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    run(Point(**json.loads(sys.argv[1])), float(sys.argv[2]), sys.stdin.readline, talk)
