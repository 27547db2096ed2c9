"""What every peer shares: check it against the usual loop for one round,
then time the two in turn.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache
from importlib.metadata import version

import torch

from .. import clock
from ..cases import case
from ..usual import Usual


@cache
def loaded(name):
    """A case and its clients' rows as lists of (x, y), made once in each process."""
    c = case(name)
    return c, [list(zip(x, y)) for x, y in c.clients]


def difference(a, b):
    """Largest difference of two models' parameters, in units of the largest one."""
    pairs = zip(a.parameters(), b.parameters(), strict=True)
    return max(
        ((p - q).abs().max() / q.abs().max().clamp(min=1e-12)).item() for p, q in pairs
    )


def race(name, package, federation, cpu=time.process_time, note=""):
    """Time a peer and print one json line.

    federation(case, batch, cohort, rounds) trains from the case's initial weights and
    returns (CPU seconds of the rounds after the first, the final Module). Arguments of
    the command: case, repetitions, CPU seconds per repetition.
    """
    torch.set_num_threads(1)
    c, reps, seconds = case(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    one = Usual(c, batch=10**6)
    one.round(torch.arange(c.task.C))
    apart = difference(federation(c, 10**6, c.task.C, 1)[1], one.model)
    usual, draw = Usual(c), c.cohorts()

    def loop(n):
        for _ in range(n):
            usual.round(next(draw))

    rates = clock.interleave(
        {
            "DataLoader loop": loop,
            name: lambda n: federation(c, c.task.batch, c.cohort, n + 1)[0],
        },
        reps,
        seconds,
        cpu,
    )
    row = clock.summary(rates, "DataLoader loop")[1]
    said = f"one full-batch round differs from the loop's by {apart:.0e}" + (
        f"; {note}" if note else ""
    )
    print(
        json.dumps(
            {
                "variant": name,
                "version": f"{package} {version(package)}, torch {torch.__version__}",
                **row,
                "note": said,
            }
        ),
        flush=True,
    )
