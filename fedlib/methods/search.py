"""One search for all methods: K settings of each, with the local step among them.

    steps     one in each of K equal parts of log(LOW .. HIGH), the same for all
    values    of one name in one random order, each as often as the others: methods
              that share a hyper-parameter try the same values of it

The K settings run on one pilot seed. Those FINALISTS of the highest mean validation
accuracy run on two more, and of them win the best mean and the best worst tenth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from ..core.method import BASE, Method, Wrap
from ..core.tree import subset, without

LOW, HIGH = 0.01, 1.0  # of the local step
PILOTS, FINALISTS = 3, 4
BESIDE = 2  # values that a method may search beside its step


def steps(K: int) -> list[float]:
    """K step sizes in van der Corput's order: each beginning covers the range."""
    mirrored = [int(f"{i:b}"[::-1], 2) / 2 ** len(f"{i:b}") for i in range(K)]
    u = np.array(mirrored) + 0.5 / K
    return [float(f"{s:.3g}") for s in LOW * (HIGH / LOW) ** u]


def balanced(name: str, values: Sequence[Any], K: int) -> list[Any]:
    """K of the values, each as often as the others, in an order drawn by the name."""
    rng, n = np.random.default_rng(crc32(name.encode())), len(values)
    turns = [rng.permutation(n) for _ in range(-(-K // n))]
    return [values[i] for i in np.concatenate(turns)[:K]]


def step(m: Method) -> str:
    """The name of a method's local step."""
    return "inner_lr" if hasattr(getattr(m, "inner", m), "inner_lr") else "lr"


def declared(m: Method) -> dict[str, Sequence[Any]]:
    """{hyper-parameter: values}: the first BESIDE that a method declares several values
    of; around another one (Tuned, "FedGA+FT") those of that one, too."""
    grid = lambda f: f.metadata.get("grid") or ()
    several = [(f.name, g) for f in fields(m) if len(g := grid(f)) > 1]
    inner = declared(m.inner) if isinstance(m, Wrap) else {}
    return inner | dict(several[:BESIDE])


def settings(
    m: Method, K: int, values: Mapping[str, Sequence[Any]] | None = None
) -> list[dict[str, Any]]:
    """The K settings {hyper-parameter: value} of a method.

    values: those to draw from beside the step; None: what is `declared`.
    """
    of = declared(m) if values is None else values
    columns = {step(m): steps(K)} | {k: balanced(k, v, K) for k, v in of.items()}
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def best(level: pd.Series, n: int = 1) -> list[Any]:
    """The n labels of the highest values, of equals the first."""
    return level.sort_values(ascending=False, kind="stable").index[:n].tolist()


def at(m: Method, **values: Any) -> Method:
    """A method at these values; of a wrapper, the one inside at what it has not."""
    own = {f.name for f in fields(m)} - {*BASE} if isinstance(m, Wrap) else values
    mine = subset(values, own)
    if rest := without(values, own):
        mine["inner"] = at(m.inner, **rest)
    return replace(m, task=None, **mine)
