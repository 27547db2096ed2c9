"""What leaves the device: every tensor of every message of every method, its shape and
its bytes, from one round of each; run by the stage traffic of dvc.yaml.

    python -m repro.traffic    ->  results/traffic.csv, results/bytes.csv

traffic.csv has a row per tensor of a message between the server and one client that
takes part: way "before" (before round 0), "down", "up", "ask" and "answer" (a question
of the server), "score" (how good the model is on the client's own rows). bytes are
those of one message, messages how many there are in a round. Rows and labels do not
leave. bytes.csv puts the tensors of a name together.
"""

import math
from collections import Counter

import pandas as pd
import torch

from fedlib.cli.program import program
from fedlib.core import engine
from fedlib.core.task import SPLITS, Task
from fedlib.data import tasks
from fedlib.data.domains import domains
from fedlib.data.partition import natural
from fedlib.methods import METHODS
from fedlib.methods.groups.calibrated import Calibrated
from fedlib.methods.make import make
from fedlib.nets.clip import Adapter, Prompts
from fedlib.nets.towers import IMAGE, StandIn, TextTower
from fedlib.study.results import write
from repro import papers

TASK = {
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 1.0, "least": 20},
    "network": {"name": "MLP", "hidden": 32},
    "groups": {"by": "parity"},
}
NORMED = ("FedBN",)  # the same MLP with batch norm
BESIDE_CLIP = {"FedCLIP": Adapter, "PromptFL": Prompts}
COLUMNS = ["method", "way", "name", "shape", "dtype", "bytes", "messages"]
ORDER = ("before", "down", "up", "ask", "answer", "score")
WAYS = {"down": "down", "ask": "down", "up": "up", "answer": "up"}
SUMS = ["method", "direction", "name", "shape", "bytes"]


def beside_clip(network):
    """A task with an adapter or a prompt on features of the stand-in's size.

    Untrained towers do: what is sent is not theirs."""
    standin = papers.module("fft-gp", "standin")
    words, g = standin.vocabulary(), torch.Generator().manual_seed(0)
    weights = standin.start(TextTower(len(words)), g)
    weights |= {f"image.{k}": v for k, v in IMAGE.init(0).items()}
    towers = StandIn(weights | {"scale": torch.zeros(())}, words, 16)
    pool = domains("PACS", 20, size=16)
    pool = pool._replace(x=towers.encode_image(towers.preprocess(pool.x)))
    net = network(towers.d, pool.K, pool.classes, towers)
    return Task.from_rows("features", net, pool, natural(pool.owner))


def each():
    """(name, method) of all methods on the tasks whose messages are counted: MLP
    64-32-10 on digits, 6 clients, with batch norm for FedBN; for methods that train an
    adapter or a prompt, these beside towers of the stand-in's size."""
    usual = tasks.build(TASK)
    normed = tasks.build(TASK | {"network": TASK["network"] | {"norm": "batch"}})
    for name, cls in METHODS.items():
        task = normed if name in NORMED else usual
        task = beside_clip(BESIDE_CLIP[name]) if name in BESIDE_CLIP else task
        # a calibrated round sends nothing else
        quiet = {"rho": 0} if issubclass(cls, Calibrated) else {}
        yield name, make(name, task, lr=0.1, **quiet)


def runs(method, **more):
    """Two runs of a method on its task: without a round, and with one."""
    how = {"device": "cpu", "progress": False} | more
    return [engine.run(method, rounds=R, **how) for R in (0, 1)]


def simulated(method, **more):
    """The rows of traffic.csv of a method; more: for engine.run."""
    return sent(method, *runs(method, **more))


def sent(method, start, one):
    """The rows of traffic.csv of a method, from its two runs."""
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
            a = series["pre", view, split][0]  # [C, ...]
            name = f"{what}.{view}.{split}"
            rows.append(row("score", name, a.shape[1:], a.dtype.name, k))
    return finish(method, rows)


def row(way, name, shape, kind, messages):
    """One tensor of a message, with its bytes."""
    size = math.prod(shape) * getattr(torch, kind).itemsize
    return way, name, in_words(shape), kind, size, messages


def in_words(shape):
    """As "3 x 4"; some shapes are words already."""
    if isinstance(shape, str):
        return shape
    return " x ".join(map(str, shape)) or "one number"


def finish(method, rows):
    """Messages with the same tensors in one row, in order; without empty ones."""
    names = [k for k, cls in METHODS.items() if cls is type(method)]
    t = pd.DataFrame([(names[0], *r) for r in rows if r[4] and r[5]], columns=COLUMNS)
    t = t.groupby(COLUMNS[:-1], sort=False, as_index=False).messages.sum()
    place = lambda w: w.map(ORDER.index)
    return t.sort_values("way", key=place, kind="stable", ignore_index=True)


def size(net):
    """Trainable parameters P of a network."""
    return sum(v.numel() for k, v in net.init(0).items() if k not in net.buffers)


def messages(method, record):
    """The rows of bytes.csv of a method: one per direction and named leaf."""
    for way, leaves in record.meta["bytes"].items():
        for leaf, m in leaves.items():
            if m["bytes"]:  # no buffers of a network that has none
                yield method, WAYS[way], leaf, in_words(m["shape"]), m["bytes"]


def tables():
    """traffic.csv and bytes.csv of all methods."""
    traffic, sums = [], []
    for name, method in each():
        start, one = runs(method)
        traffic.append(sent(method, start, one))
        sums += messages(name, one)
    return pd.concat(traffic, ignore_index=True), pd.DataFrame(sums, columns=SUMS)


def main():
    """Write traffic.csv and bytes.csv."""
    torch.set_num_threads(1)
    for name, table in zip(("traffic", "bytes"), tables()):
        write(table, f"results/{name}.csv")


if __name__ == "__main__":
    program(main)
