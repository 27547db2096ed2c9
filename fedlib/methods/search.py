"""One search for all methods: K settings of each, with the local step among them.

    steps     one in each of K equal parts of log(LOW .. HIGH), the same for all
    values    of one name in one random order, each as often as the others: methods
              that share a hyper-parameter try the same values of it

The K settings run on one pilot seed. Those FINALISTS of the highest mean validation
accuracy run on two more, and of them win the best mean and the best worst tenth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any
from zlib import crc32

import numpy as np
import pandas as pd

from ..core.method import Method
from .make import FT, named

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


def step(cls: type[Method]) -> str:
    """The name of a method's local step."""
    return "inner_lr" if "inner_lr" in {f.name for f in fields(cls)} else "lr"


def declared(name: str) -> dict[str, Sequence[Any]]:
    """{hyper-parameter: values}: the first BESIDE that the method called `name` declares
    several values of, and those of fine-tuning, for "X+FT".
    """
    cls = named(name.removesuffix(FT))
    grids = {f.name: f.metadata.get("grid") for f in fields(cls)}
    several = [(k, v) for k, v in grids.items() if v and len(v) > 1]
    more = {"tune": (1, 5, 10)} if name.endswith(FT) else {}
    return dict(several[:BESIDE]) | more


def settings(
    name: str, K: int, values: Mapping[str, Sequence[Any]] | None = None
) -> list[dict[str, Any]]:
    """The K settings {hyper-parameter: value} of the method called `name`.

    values: those to draw from beside the step; None: what is `declared`.
    """
    of = declared(name) if values is None else values
    columns = {step(named(name.removesuffix(FT))): steps(K)}
    columns |= {k: balanced(k, v, K) for k, v in of.items()}
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def best(level: pd.Series, n: int = 1) -> list[Any]:
    """The n labels of the highest values, of equals the first; nan is below all."""
    order = level.sort_values(ascending=False, kind="stable", na_position="last")
    return order.index[:n].tolist()
