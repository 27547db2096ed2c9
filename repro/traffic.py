"""What leaves the device: every tensor of every message of every method, its shape and
its bytes; run by the stage traffic of dvc.yaml.

    python -m repro.traffic  one round of every method  ->  results/traffic.csv

One row per tensor of a message between the server and one client that takes part: way
"before" (before round 0), "down", "up", "ask" and "answer" (a question of the server),
"score" (how good the model is on the client's own rows). bytes are those of one
message, messages how many there are in a round. Rows and labels do not leave.
"""

from __future__ import annotations

import math
from collections import Counter

import pandas as pd
import torch

from fedlib.cli.program import program
from fedlib.core import engine
from fedlib.core.task import SPLITS
from fedlib.methods import METHODS
from fedlib.study.results import write
from repro import facts

COLUMNS = ["method", "way", "name", "shape", "dtype", "bytes", "messages"]
ORDER = ("before", "down", "up", "ask", "answer", "score")


def simulated(method, **more):
    """The rows of a method on its task, from two runs of the engine: without a round,
    and with one. more: for engine.run.
    """
    run = lambda R: engine.run(method, rounds=R, device="cpu", progress=False, **more)
    start, one = run(0), run(1)
    # what a record knows of a client, it has said
    rows = [row("before", f"n.{s}", [], "int64", 1) for s in SPLITS]
    early = start.meta.get("tensors", {})
    for tensors in early.values():
        rows += [row("before", name, *tensor) for name, tensor in tensors.items()]
    for way, tensors in one.meta["tensors"].items():
        before = {name: k for name, (*_, k) in early.get(way, {}).items()}
        for name, (shape, kind, k) in tensors.items():
            rows.append(row(way, name, shape, kind, k - before.get(name, 0)))
    for what, series in (("acc", one.views), ("cells", one.cells)):
        moments = [at for at in series if at[0] in ("pre", "post")]
        for (view, split), k in Counter(at[1:] for at in moments).items():
            a, name = (
                series["pre", view, split][0],
                f"{what}.{view}.{split}",
            )  # [C, ...]
            rows.append(row("score", name, a.shape[1:], a.dtype.name, k))
    return finish(method, rows)


def row(way, name, shape, kind, messages):
    """One tensor of a message, with its bytes."""
    size = math.prod(shape) * torch.empty(0, dtype=getattr(torch, kind)).element_size()
    return way, name, " x ".join(map(str, shape)) or "one number", kind, size, messages


def finish(method, rows):
    """Messages with the same tensors in one row,
    those without numbers left out, in order.
    """
    names = [k for k, cls in METHODS.items() if cls is type(method)]
    t = pd.DataFrame([(names[0], *r) for r in rows if r[4] and r[5]], columns=COLUMNS)
    t = t.groupby(COLUMNS[:-1], sort=False, as_index=False).messages.sum()
    place = lambda w: w.map(ORDER.index)
    return t.sort_values("way", key=place, kind="stable", ignore_index=True)


def table():
    """Every method, in one round on the tasks of results/bytes.csv."""
    rows = [simulated(method) for _, method in facts.each()]
    return pd.concat(rows, ignore_index=True)


def main():
    """Write results/traffic.csv."""
    torch.set_num_threads(1)
    write(table(), "results/traffic.csv")


if __name__ == "__main__":
    program(main)
