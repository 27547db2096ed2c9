"""Faulty clients over the wire: a federation of three processes on loopback, in which
one client does another deed of given/hostile.py in every round.

The order of the deeds, and what is drawn in them (which tensor, which number, which
bytes), hang on the seed. About a second per deed.
"""

from __future__ import annotations

import random
import tempfile
import warnings
from pathlib import Path

from .count import Count
from .given import hostile
from .given.parties import parties

attempts = 330


def measure(n, seed):
    """[Count] of n deeds.

    clean: left out with the reason. accepted: of no effect, as it should be. raw: a
    server that does not end well, or another reason. silent: taken, though it should be
    refused. lost: a round, or a model other than that of a simulation without the deed.
    """
    count, dice = Count("faulty clients over the wire"), random.Random(seed)
    while count.n < n:
        deeds = dice.sample(sorted(hostile.DEEDS), len(hostile.DEEDS))[: n - count.n]
        federation(count, deeds, dice.randrange(2**31))
    return [count]


def federation(count, deeds, seed):
    """Count the deeds of one federation."""
    with tempfile.TemporaryDirectory() as folder, parties() as start:
        try:
            with warnings.catch_warnings(action="ignore"):
                text, reasons, far = hostile.suffered(
                    Path(folder), start, deeds, seed, wait=8
                )
        except Exception as e:
            for deed in deeds:
                count.add("raw", f"seed {seed}, {deed}: {e!r:.200}")
            return
        if (Path(folder) / "exploded").exists():
            count.add("silent", f"seed {seed}: a pickle ran")
    for t, deed in enumerate(deeds, 1):
        want, got = hostile.DEEDS[deed], reasons[t]
        wrong = hostile.verdict(text, reasons, far, deeds)[deed]
        if wrong is None:
            count.add("accepted" if want is None else "clean")
        elif far > 1e-6:
            count.add("lost", f"seed {seed}, {wrong}")
        else:
            count.add("raw" if got else "silent", f"seed {seed}, {wrong}")
