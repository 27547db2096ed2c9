"""SIGKILL of the workers of a study: two processes that share the runs of one folder,
or a pool of two. Whoever is left goes on, and the same call ends with the same bits."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from pathlib import Path

from filelock import SoftFileLease

from fedlib.study import compute, studies

from .count import Count
from .kill_runs import PATIENCE, Call, begun, compared, end, ended, kill

attempts = 40  # kills
PARAMS = Path(__file__).parents[1] / "params.yaml"
GRID = {"tasks": ["synthetic_0_0"], "methods": {"FedAvg": {}, "FedGA": {}}}
ONE_IN = 5  # so often the workers are a pool, which begins slowly


def alone(folder):
    compute.compute_all(cells(), folder, workers=1)


def pool(folder):
    compute.compute_all(cells(), folder, workers=2)


def cells():
    return studies.cells("fedga", "synthetic", PARAMS, "tiny", rounds=8, **GRID)[0]


# ---------------------------------------------------------------- two processes
def one_of_two(call, folder, chance):
    """Kill one of two processes, or both -> (kills, name of a count, why)."""
    both = [call.start(folder) for _ in range(2)]
    victims = chance.choice([both[:1], both[1:], both])
    until_begun(both[0], folder)
    most = 0.5 * call.seconds / len(victims)
    most = 0.9 * call.seconds / len(victims)
    made = sum(kill(p, chance.uniform(0, most)) for p in victims)
    found = begun(folder)
    for p in both:
        if p not in victims:
            status, said = ended(p)
            if status:
                return made, found, ("lost", f"who was left: {said[-300:]!r}")
            outcome = compared(call, folder)
            if outcome[0] != "accepted":
                return made, found, outcome
    return made, found, end(call, folder)


def until_begun(process, folder):
    """Wait for something to lose: most of a short study's time goes before it."""
    for _ in range(100 * PATIENCE):
        if process.exitcode is not None or begun(folder):
            return
        process.join(0.01)


# ---------------------------------------------------------------- a pool
def one_of_a_pool(call, folder, chance):
    """Kill who has a run in its hands, or the caller -> (kills, a count, why)."""
    process = Call(pool).start(folder)
    until_begun(process, folder)
    process.join(chance.uniform(0, 0.5 * call.seconds))
    worker = None if chance.random() < 0.5 else holder(folder)
    if worker is None:
        made = kill(process, 0)
    else:
        made = killed_by_number(worker)
        ended(process)  # says that a worker was killed
    return made, begun(folder), end(call, folder)


def holder(folder):
    """The process that has a run in its hands, by the lock; None where nobody has."""
    owners = [SoftFileLease(path).owner for path in folder.glob("*.lock")]
    return next((o.pid for o in owners if o), None)


def killed_by_number(pid):
    """SIGKILL to a process of ours -> was it there?"""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def measure(n, seed):
    chance, count, full = random.Random(seed), Count("studies with two workers"), []
    call = Call(alone).measure()
    for i in range(10 * n):
        way = one_of_a_pool if i % ONE_IN == ONE_IN - 1 else one_of_two
        with tempfile.TemporaryDirectory() as at:
            made, found, outcome = way(call, Path(at, "run"), chance)
        full += [found] * made
        for _ in range(made):
            count.add(*outcome)
        if count.n >= n:
            break
    print(f"{count.row}: {sum(full)} of {len(full)} kills found something to lose")
    return [count]
