"""Facts that pages quote: what one client sends and receives (bytes.csv), what clients
hold (clients.csv), and how long things took (facts.csv); run by the stage results of
dvc.yaml.

    python -m repro.facts        results/seeds/*.parquet, gates.csv and one round of
                                 every method  ->  results/{bytes,clients,facts}.csv
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from fedlib.cli.program import program
from fedlib.core import engine
from fedlib.core.task import Task
from fedlib.data import tasks
from fedlib.data.domains import domains
from fedlib.data.partition import natural
from fedlib.methods import METHODS
from fedlib.methods.groups.calibrated import Calibrated
from fedlib.methods.make import make
from fedlib.nets.clip import Adapter, Prompts
from fedlib.nets.towers import IMAGE, StandIn, TextTower
from fedlib.study import results
from repro import ledger, papers

TASK = {
    "data": {"name": "digits"},
    "partition": {"name": "dirichlet", "clients": 6, "alpha": 1.0, "least": 20},
    "network": {"name": "MLP", "hidden": 32},
    "groups": {"by": "parity"},
}
NORMED = ("FedBN",)  # the same MLP with batch norm
BESIDE_CLIP = {"FedCLIP": Adapter, "PromptFL": Prompts}
WAYS = {"down": "down", "ask": "down", "up": "up", "answer": "up"}


def beside_clip(network):
    """A task with an adapter or a prompt on features of the stand-in's size.

    Untrained towers do: what is sent is not theirs.
    """
    standin = papers.module("fft-gp", "standin")
    words, g = standin.vocabulary(), torch.Generator().manual_seed(0)
    weights = standin.start(TextTower(len(words)), g)
    weights |= {f"image.{k}": v for k, v in IMAGE.init(0).items()}
    towers = StandIn(weights | {"scale": torch.zeros(())}, words, 16)
    pool = domains("PACS", 20, size=16)
    pool = pool._replace(x=towers.encode_image(towers.preprocess(pool.x)))
    return Task.from_rows(
        "features",
        network(towers.d, pool.K, pool.classes, towers),
        pool,
        natural(pool.owner),
    )


def each():
    """(name, method) of all methods on the tasks whose messages are counted: MLP
    64-32-10 on digits, 6 clients, with batch norm for FedBN; for methods that train an
    adapter or a prompt, these beside towers of the stand-in's size.
    """
    usual = tasks.build(TASK)
    normed = tasks.build(TASK | {"network": TASK["network"] | {"norm": "batch"}})
    for name, cls in METHODS.items():
        task = normed if name in NORMED else usual
        task = beside_clip(BESIDE_CLIP[name]) if name in BESIDE_CLIP else task
        # a calibrated round sends nothing else
        quiet = {"rho": 0} if issubclass(cls, Calibrated) else {}
        yield name, make(name, task, lr=0.1, **quiet)


def messages():
    """One row per method, direction and named leaf, as counted in one real round."""
    out = []
    one_round = {"rounds": 1, "progress": False, "device": "cpu"}
    for name, method in each():
        counted = engine.run(method, **one_round).meta["bytes"]
        for way, leaves in counted.items():
            for leaf, m in leaves.items():
                shape = m["shape"]
                if not isinstance(shape, str):
                    shape = " x ".join(map(str, shape)) or "one number"
                if m["bytes"]:  # no buffers of a network that has none
                    out.append((name, WAYS[way], leaf, shape, m["bytes"]))
    return pd.DataFrame(out, columns=["method", "direction", "name", "shape", "bytes"])


def size(net):
    """Trainable parameters P of a network."""
    return sum(v.numel() for k, v in net.init(0).items() if k not in net.buffers)


HELD = {
    "paper": "paper",
    "label": "data set",
    "clients": "clients",
    "rows_least": "training rows: fewest",
    "rows_median": "median",
    "rows_most": "most",
    "test_median": "test rows, median",
    "classes": "classes, median",
    "largest": "largest class, %",
}


def clients(root="results"):
    """gates.csv for the page: what the clients of each paper's data sets hold."""
    g = pd.read_csv(Path(root) / "gates.csv")
    g = g.round({k: 0 for k in ("rows_median", "test_median", "largest")})
    g["paper"] = [papers.about(p)["title"] for p in g.paper]
    return g[[*HELD]].rename(columns=HELD).drop_duplicates()


def durations(root="results"):
    """Per paper: how many runs there are, and their minutes of one processor core."""
    seeds = ledger.parts(root, "seeds")
    out = []
    for (paper, study), g in seeds[seeds.run_ids != ""].groupby(["paper", "study"]):
        g = g.drop_duplicates("run_ids")
        for unit, value in (("runs", len(g)), ("minutes", g.minutes.sum())):
            name, where = f"{paper}-{study}-{unit}", f"results/seeds, study {study}"
            out.append((name, value, unit, where))
    return pd.DataFrame(out, columns=["key", "value", "unit", "source"])


def main():
    """Write bytes.csv, clients.csv and facts.csv."""
    root = Path("results")
    results.write(messages(), root / "bytes.csv")
    results.write(clients(root), root / "clients.csv")
    results.write(durations(root), root / "facts.csv")


if __name__ == "__main__":
    program(main)
