"""Facts that pages quote: what one client sends and receives (bytes.csv), what clients
hold (clients.csv), and how long things took (facts.csv); run by the stage results of
dvc.yaml.

    python -m repro.facts        results/seeds/*.csv, gates.csv and one round of every
                                 method  ->  results/{bytes,clients,facts}.csv
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
from fedlib.data.standin import vocabulary
from fedlib.methods import METHODS
from fedlib.methods.groups.calibrated import Calibrated
from fedlib.methods.make import make
from fedlib.nets.clip import Adapter, Prompts
from fedlib.nets.towers import IMAGE, StandIn, TextTower
from fedlib.study import audit, results
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
    words = vocabulary()
    weights = TextTower(len(words)).init(torch.Generator().manual_seed(0)) | {
        f"image.{k}": v for k, v in IMAGE.init(0).items()
    }
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


def read(root, name, **how):
    """A table of results."""
    return pd.read_csv(Path(root) / f"{name}.csv", **how)


def wide(b, index, columns):
    """The texts `cell` of a long table, in the order in which they stand there."""
    how = {"values": "cell", "aggfunc": "first", "sort": False}
    return b.pivot_table(index=index, columns=columns, **how).fillna("").reset_index()


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
    g = read(root, "gates")
    g = g.round({k: 0 for k in ("rows_median", "test_median", "largest")})
    g["paper"] = [papers.about(p)["title"] for p in g.paper]
    return g[[*HELD]].rename(columns=HELD).drop_duplicates()


def durations(root="results"):
    """Per paper: how many runs there are, and their minutes of one processor core."""
    seeds = ledger.parts(root, "seeds", ledger.read_reported())
    out = []
    for (paper, study), g in seeds[seeds.run_ids != ""].groupby(["paper", "study"]):
        g = g.drop_duplicates("run_ids")
        for unit, value in (("runs", len(g)), ("minutes", g.minutes.sum())):
            name, where = f"{paper}-{study}-{unit}", f"results/seeds, study {study}"
            out.append((name, value, unit, where))
    return pd.DataFrame(out, columns=["key", "value", "unit", "source"])


def speeds(root="results"):
    """benchmarks.csv for the page: one row per variant, one column per case, "rounds
    per CPU second (times the usual loop)".
    """
    b = read(root, "benchmarks", keep_default_na=False)
    b["cell"] = [
        f"{float(r):.3g} (x{float(t):.2g})" if r else "failed"
        for r, t in zip(b.rounds_per_cpu_s, b.times_loader)
    ]
    table = wide(b, ["variant", "version"], "case")
    first = ("DataLoader", "fedlib")  # then the peers
    place = lambda v: next((i for i, f in enumerate(first) if v.startswith(f)), 2)
    return table.iloc[table.variant.map(place).argsort(kind="stable")]


def methods(root="results"):
    """benchmarks-methods.csv for the page: one row per case and method, one column per
    program, "rounds per CPU second (times the loop of that method)".
    """
    b = read(root, "benchmarks-methods")
    b["cell"] = [
        f"{r:.3g} (x{t:.2g})" if r > 0 else "none" if " has no " in note else "failed"
        for r, t, note in zip(b.rounds_per_cpu_s, b.times_loader, b.note.fillna(""))
    ]
    return wide(b, ["case", "method"], "variant")


def servers(root="results"):
    """benchmarks-server.csv for the page: seconds of a whole run, and where they go."""
    b = read(root, "benchmarks-server")
    shown = {
        "server": b.method,
        "rounds": b.rounds,
        "a run, s": b.seconds,
        "clients, s": b.clients_s,
        "condensing once, s": b.proxy_s + b.matching_s,
        "calibrating, ms a round": b.calibrating_ms_per_round,
        "times FedAvg": b.times_fedavg,
    }
    return pd.DataFrame(shown).round(2)


CASES = {"linear-10": "synthetic-30", "linear-100": "synthetic-100"}
CASES |= {"resnet": "resnet, 4 x 100"}


def gpus(root="results"):
    """benchmarks-gpu.csv for the page: milliseconds of a round, drawing of the batches
    included, and beside them one core's of benchmarks.csv, where it has that case.
    """
    g, cpu = read(root, "benchmarks-gpu"), read(root, "benchmarks")
    cpu = cpu[cpu.variant == "fedlib"].set_index("case").rounds_per_cpu_s
    rows = []
    for case in g.case.unique():
        own, name = g[g.case == case], CASES.get(case, case)
        ms = own.set_index(["variant", "precision"]).with_drawing_ms
        best = own[(own.seeds == 1) & (own.precision == "float32")]
        best = best.loc[best.with_drawing_ms.idxmin()]
        row = {
            "case": name,
            "loop": ms["loop", "float32"],
            "vmap": ms["vmap", "float32"],
            "five seeds at once, each": ms.get(("vmap, 5 seeds stacked", "float32")),
            "quickest tried": best.with_drawing_ms,
            "which": best.variant,
            "floor": best.floor_ms,
            "one core of a CPU": 1000 / cpu[name] if name in cpu else None,
        }
        rows.append({k: short(v) for k, v in row.items()})
    return pd.DataFrame(rows)


def audits(root="results"):
    """audit-gpu.csv for the page: how many of each paper's runs have each verdict, and
    by how many points a mean is off in a run that is not the same: half of them, all.
    """
    a = read(root, "audit-gpu")
    rows = []
    for paper in papers.found():
        own = a[a.study.str.startswith(f"{paper}/")]
        counts = {v: int((own.verdict == v).sum()) for v in audit.VERDICTS}
        row = {"paper": papers.about(paper)["title"], "runs": len(own)} | counts
        off = own[own.verdict != "same"].points
        row |= {"points, median": short(off.median()), "points, most": short(off.max())}
        rows.append(row)
    return pd.DataFrame(rows)


def short(v):
    """Three digits of a number, nothing where there is none; words as they are."""
    if isinstance(v, str):
        return v
    return "" if v is None or pd.isna(v) else f"{float(f'{v:.3g}'):g}"


TABLES = {
    "benchmarks-gpu": gpus,
    "audit-gpu": audits,
    "benchmarks-server": servers,
    "benchmarks": speeds,
    "benchmarks-methods": methods,
}


def main():
    """Write the tables that pages show."""
    root = Path("results")
    for name, made in TABLES.items():
        if (root / f"{name}.csv").exists():
            results.write(made(root), root / f"{name}-table.csv")
    results.write(messages(), root / "bytes.csv")
    results.write(clients(root), root / "clients.csv")
    results.write(durations(root), root / "facts.csv")


if __name__ == "__main__":
    program(main)
