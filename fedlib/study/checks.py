"""The runs of a study fit together: none occurs twice, and none would be refused once
it is computed. What a single value may be is declared in fedlib.study.schema.
"""

from __future__ import annotations

import functools
import json

from ..data import tasks
from ..methods import METHODS
from ..methods.make import make
from .schema import located


def check_cells(cells, at):
    """ValueError for a study without cells, for a cell that occurs twice, and for a
    task, run or method that would be refused once it is computed.
    """
    if not cells:
        raise ValueError(f"{at} has no runs: give it tasks, methods and seeds")
    seen = set()
    for c in cells:
        if c in seen:
            raise ValueError(
                f"{at}: {c.method} on {c.dataset} has the setting {c.setting!r} twice; "
                "give every variant once"
            )
        seen.add(c)
        place = f"{at}: {c.dataset}"
        located(place, planned, c.task, c.engine)
        located(f"{place}, {c.method}", made, c.method, METHODS[c.method], c.kwargs)


@functools.lru_cache(maxsize=4096)
def planned(task, run):
    """A task and what the engine is told (json) are complete and known."""
    tasks.check(json.loads(task), "description")
    if "rounds" not in json.loads(run):
        raise ValueError("run has no rounds; give run: {rounds: 100}")


@functools.lru_cache(maxsize=4096)
def made(name, cls, kwargs):
    """The method takes these hyper-parameters (json); cls: its class now."""
    make(name, None, **json.loads(kwargs))
