"""Calls from Python: fedlib.run and fedlib.compare with one argument that is nonsense.

What is refused must be so by a `raise` of ours; what is accepted must end with
accuracies.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from fedlib.core import engine
from fedlib.core.errors import Diverged
from fedlib.methods import METHODS
from fedlib.methods.make import make
from fedlib.study.compare import compare
from goldens.numbers import toys

from .commands import Endless, finite, limits, ours
from .count import Count

ODD = [
    *(None, True, False, 0, 1, 2, -1, 1.5, 2.0, float("nan"), float("inf"), 1e300),
    *(10**12, 2**64, "", "a", "FedAvg", "test", "loop", "cpu", "personal", b"x", 1j),
    *([], [1], [0, 0], ["a"], {}, {"a": 1}, (), (1, 2), {1}, object(), range(3)),
    *(np.int64(2), np.float32(0.5), np.array(2), np.array([1, 2]), np.array([])),
    *(torch.tensor(1), torch.ones(2), torch.device("cpu"), METHODS["FedAvg"], print),
    *(lambda *a: 0, lambda *a: [0], lambda *a: None, Path("x"), "\0", "/dev/null/x"),
    *(lambda *a: [0.5], lambda *a: [True], lambda *a: [[0]], lambda *a: [2**70]),
    *(Fraction(1, 2), Decimal(1), pd.NA, np.bool_(True), np.ones((2, 2)), "x" * 300),
    *(np.array(["a"]), np.datetime64("now"), pd.Series([0]), [None], [[0]], ["x", 1]),
]
RUN = [
    *("task", "rounds", "seed", "cohort", "every", "how", "splits", "guests"),
    *("own", "microscope", "folder", "device", "progress"),
    *("upto", "on_round", "checkpoint_every", "keep_state", "init"),
]
COMPARE = [
    *("methods", "task", "rounds", "seeds", "rule", "view", "folder", "workers"),
    *("grid", "progress", "cohort", "every", "device", "how", "nonsense"),
]
attempts = len(ODD) * len(RUN + COMPARE)  # each value for each argument


def called(name, value, on_run):
    """The records of a call whose argument `name` is `value`."""
    if on_run:
        method = make("Ditto", toys.toy())
        usual = {"rounds": 1, "device": "cpu", "progress": False}
        return [engine.run(method, **usual | {name: value})]
    usual = {"methods": ["FedAvg", "Ditto"], "task": toys.toy(), "rounds": 1}
    given = usual | {"seeds": 1, "progress": False} | {name: value}
    found = compare(**given)
    assert str(found), "no table"
    return [r for some in found.records.values() for r in some]


def judged(name, value, on_run):
    """(outcome, why) of a call."""
    try:
        with warnings.catch_warnings(action="ignore"), limits():
            records = called(name, value, on_run)
    except Diverged:
        return "clean", ""
    except (ValueError, TypeError, OSError) as e:
        return ("clean", "") if ours(e) else ("raw", repr(e))
    except (Exception, Endless) as e:
        return "raw", repr(e)
    return ("accepted", "") if all(map(finite, records)) else ("silent", "no numbers")


def measure(n, seed):
    """n calls -> [Count]."""
    draw, count = random.Random(f"calls {seed}"), Count("run and compare from Python")
    whole = [(name, v, True) for name in RUN for v in ODD]
    whole += [(name, v, False) for name in COMPARE for v in ODD]
    with tempfile.TemporaryDirectory() as at, contextlib.chdir(at):
        for name, value, on_run in draw.sample(whole, min(n, len(whole))):
            outcome, why = judged(name, value, on_run)
            what = "run" if on_run else "compare"
            count.add(outcome, f"{what}({name}={value!r:.60}): {why:.300}")
    return [count]
