"""What every peer shares: check it against the usual loop for one round,
then time the two in turn.
"""

from __future__ import annotations

import json
import sys
import time
from functools import cache

import torch

from .. import clock
from ..cases import case
from ..methods import METHODS
from ..usual import difference


@cache
def loaded(name):
    """A case and its clients' rows as lists of (x, y), made once in each process."""
    c = case(name)
    return c, [list(zip(x, y)) for x, y in c.clients]


def race(
    key, name, release, federation, cpu=time.process_time, note=lambda case, method: ""
):
    """Time a peer and print one json line.

    federation(case, batch, cohort, rounds, method, **hyperparameters) trains from the
    case's initial weights and returns (CPU seconds of the rounds after the first, the
    final Module); it is given epochs, too, if the method is not FedAvg. key: of the
    peer in METHODS; release: what version it is. Arguments of the command: case,
    repetitions, CPU seconds per repetition, and the method unless it is FedAvg.
    """
    torch.set_num_threads(1)
    c, reps, seconds = case(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    method = sys.argv[4] if len(sys.argv) > 4 else "FedAvg"
    setting = METHODS[method]
    more, passes, times = {}, 1, 1
    if method != "FedAvg":  # a pull does nothing in the first step
        more, passes, times = {"method": method} | setting.theirs[key], 2, 2
    one = setting.usual(c, 10**6)
    one.epochs = passes
    for _ in range(times):
        one.round(torch.arange(c.task.C))
    again = {"epochs": passes} if passes > 1 else {}
    _, theirs = federation(c, 10**6, c.task.C, times, **more, **again)
    apart = difference(theirs.parameters(), one.model.parameters())
    usual, draw = setting.usual(c), c.cohorts()

    def loop(n):
        for _ in range(n):
            usual.round(next(draw))

    rates = clock.interleave(
        {
            "DataLoader loop": loop,
            name: lambda n: federation(c, c.task.batch, c.cohort, n + 1, **more)[0],
        },
        reps,
        seconds,
        cpu,
    )
    row = clock.summary(rates, "DataLoader loop")[1]
    what = (
        "one round of a full batch:"
        if times == 1
        else "two rounds of two full batches:"
    )
    said = [f"{what} the model differs from the loop's by {apart:.0e}"]
    print(
        json.dumps(
            {
                "variant": name,
                "version": f"{release}, torch {torch.__version__}",
                **row,
                "note": "; ".join(filter(None, [*said, note(c, method)])),
            }
        ),
        flush=True,
    )
