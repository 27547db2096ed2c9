"""What leaves the device: every tensor of every message of every method, its shape and
its bytes; run by the stage traffic of dvc.yaml.

    python -m repro.traffic  one round of every method in the
                             simulation  ->  results/traffic.csv

    simulated(FedGA(task))  the rows of one method, as the simulation counts them
    deployed(FedGA(task))   the same, weighed on the wire of a federation in one process

One row per tensor of a message between the server and one client that takes part: way
"before" (before round 0), "down" and "up" (the round), "ask" and "answer" (a question
of the server), "score" (how good the model is on the client's own rows). bytes are
those of one message, messages how many of them there are in a round. What does not
leave: rows, labels, and what a client keeps.
"""

from __future__ import annotations

import math
from collections import Counter

import pandas as pd
import torch

from fedlib.core import ends, engine
from fedlib.core.task import SPLITS
from fedlib.methods import METHODS
from fedlib.study.table import write
from repro import facts

COLUMNS = ["method", "way", "name", "shape", "dtype", "bytes", "messages"]
ORDER = ("before", "down", "up", "ask", "answer", "score")


def simulated(method, **more):
    """The rows of a method on its task, from two runs of the engine: without a round,
    and with one. more: for engine.run.
    """
    start, one = (
        engine.run(method, rounds=R, device="cpu", progress=False, **more)
        for R in (0, 1)
    )
    # what a record knows of a client, it has said
    rows = [row("before", f"n.{s}", [], "int64", 1) for s in SPLITS]
    early = start.meta.get("tensors", {})
    rows += [
        row("before", name, *tensor)
        for way in early
        for name, tensor in early[way].items()
    ]
    for way, tensors in one.meta["tensors"].items():
        before = {name: k for name, (*_, k) in early.get(way, {}).items()}
        rows += [
            row(way, name, shape, kind, k - before.get(name, 0))
            for name, (shape, kind, k) in tensors.items()
        ]
    for what, series in (("acc", one.views), ("cells", one.cells)):
        times = Counter(
            (view, split) for moment, view, split in series if moment in ("pre", "post")
        )
        for (view, split), k in times.items():
            a = series["pre", view, split][0]  # [C, ...]
            rows.append(
                row("score", f"{what}.{view}.{split}", a.shape[1:], a.dtype.name, k)
            )
    return finish(method, rows)


def deployed(method, **more):
    """The same rows, weighed as client 0 gets and gives them, each message as bytes.

    more: for Federation.of.
    """
    from fedlib.deploy import message
    from fedlib.deploy.client import Site
    from fedlib.deploy.federation import Federation
    from fedlib.deploy.server import serve

    fed = Federation.of(method, 1, **more)
    sites = [Site(fed, c, fed.client_task(c, method.task)) for c in range(fed.C)]
    rows = []

    def weigh(way, tree, prefix=""):
        rows.extend(
            row(way, prefix + k.replace("/", "."), a.shape, a.dtype.name, 1)
            for k, a in message.pack(tree).items()
        )

    def exchange(requests, wait):
        out = {}
        for c, kind, about, tree in requests:
            out[c] = message.loads(
                message.dumps(
                    sites[c].answer(kind, about, message.loads(message.dumps(tree)))
                )
            )
            if c == 0 and about["t"] < 1:
                asked, early = (
                    f"{about['question'].rpartition('.')[2]}." * (kind == "ask"),
                    about["t"] < 0,
                )
                weigh("before" if early else "ask" if asked else "down", tree, asked)
                weigh(
                    "before"
                    if early
                    else {"ask": "answer", "score": "score"}.get(kind, "up"),
                    out[c],
                    asked,
                )
        return out

    serve(fed, exchange, log=lambda line: None)
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
    return t.sort_values(
        "way", key=lambda w: w.map(ORDER.index), kind="stable", ignore_index=True
    )


def table():
    """Every method, in one round on the tasks of results/bytes.csv."""
    return pd.concat(
        [simulated(method) for _, method in facts.each()], ignore_index=True
    )


def main():
    """Write results/traffic.csv."""
    torch.set_num_threads(1)
    write(table(), "results/traffic.csv")


if __name__ == "__main__":
    ends.program("python -m repro.traffic", main, takes_words=False)
