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

from fedlib.core import ends, engine
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
from fedlib.study import audit, table
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
    for name, method in each():
        counted = engine.run(method, rounds=1, progress=False, device="cpu").meta[
            "bytes"
        ]
        for way, leaves in counted.items():
            for leaf, m in leaves.items():
                if not m["bytes"]:  # buffers of a network that has none
                    continue
                shape = (
                    m["shape"]
                    if isinstance(m["shape"], str)
                    else " x ".join(map(str, m["shape"])) or "one number"
                )
                out.append(
                    dict(
                        method=name,
                        direction=WAYS[way],
                        name=leaf,
                        shape=shape,
                        bytes=m["bytes"],
                    )
                )
    return pd.DataFrame(out)


def size(net):
    """Trainable parameters P of a network."""
    return sum(v.numel() for k, v in net.init(0).items() if k not in net.buffers)


def clients(root="results"):
    """gates.csv for the page: what the clients of each paper's data sets hold."""
    names = {
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
    g = pd.read_csv(Path(root) / "gates.csv")
    g = g.round({k: 0 for k in ("rows_median", "test_median", "largest")})
    g["paper"] = [papers.about(p)["title"] for p in g.paper]
    return g[list(names)].rename(columns=names).drop_duplicates()


def durations(root="results"):
    """Per paper: how many runs there are, and their minutes of one processor core."""
    seeds = ledger.parts(root, "seeds", ledger.read_reported())
    out = []
    for (paper, study), g in seeds[seeds.run_ids != ""].groupby(["paper", "study"]):
        g = g.drop_duplicates("run_ids")
        where = f"results/seeds, study {study}"
        out += [
            dict(key=f"{paper}-{study}-runs", value=len(g), unit="runs", source=where),
            dict(
                key=f"{paper}-{study}-minutes",
                value=g.minutes.sum(),
                unit="minutes",
                source=where,
            ),
        ]
    return pd.DataFrame(out, columns=["key", "value", "unit", "source"])


def speeds(root="results"):
    """benchmarks.csv for the page: one row per variant, one column per case, "rounds
    per CPU second (times the usual loop)".
    """
    b = pd.read_csv(Path(root) / "benchmarks.csv", keep_default_na=False)
    b["cell"] = [
        f"{float(r):.3g} (x{float(t):.2g})" if r else "failed"
        for r, t in zip(b.rounds_per_cpu_s, b.times_loader)
    ]
    table = b.pivot_table(
        index=["variant", "version"],
        columns="case",
        values="cell",
        aggfunc="first",
        sort=False,
    )
    first = ("DataLoader", "fedlib")  # then the peers
    rank = lambda v: v.map(
        lambda name: next(
            (i for i, f in enumerate(first) if name.startswith(f)), len(first)
        )
    )
    return (
        table.fillna("").reset_index().sort_values("variant", key=rank, kind="stable")
    )


def methods(root="results"):
    """benchmarks-methods.csv for the page: one row per case and method, one column per
    program, "rounds per CPU second (times the loop of that method)".
    """
    b = pd.read_csv(Path(root) / "benchmarks-methods.csv")
    b["cell"] = [
        f"{r:.3g} (x{t:.2g})" if r > 0 else "none" if " has no " in note else "failed"
        for r, t, note in zip(b.rounds_per_cpu_s, b.times_loader, b.note.fillna(""))
    ]
    table = b.pivot_table(
        index=["case", "method"],
        columns="variant",
        values="cell",
        aggfunc="first",
        sort=False,
    )
    return table.fillna("").reset_index()


def convolutions(root="results"):
    """benchmarks-convolutions.csv for the page: one row per part of a step, one column
    per way, CPU microseconds forward + backward.
    """
    b = pd.read_csv(Path(root) / "benchmarks-convolutions.csv")
    b["cell"] = [
        f"{there:.0f} + {back:.0f}" if back else f"{there:.0f}"
        for there, back in zip(b.forward_us, b.backward_us)
    ]
    names = {"module": "torch.nn", "fedlib": "fedlib", "floor": "floor"}
    table = b.pivot_table("cell", "part", "way", aggfunc="first")[list(names)]
    order = b[b.way == "fedlib"].part.tolist()
    return table.rename(columns=names).fillna("").reindex(order).reset_index()


def servers(root="results"):
    """benchmarks-server.csv for the page: seconds of a whole run, and where they go."""
    b = pd.read_csv(Path(root) / "benchmarks-server.csv")
    once = b.proxy_s + b.matching_s
    return pd.DataFrame(
        {
            "server": b.method,
            "rounds": b.rounds,
            "a run, s": b.seconds,
            "clients, s": b.clients_s,
            "condensing once, s": once,
            "calibrating, ms a round": b.calibrating_ms_per_round,
            "times FedAvg": b.times_fedavg,
        }
    ).round(2)


def gpus(root="results"):
    """benchmarks-gpu.csv for the page: milliseconds of a round, drawing of the batches
    included, and beside them one core's of benchmarks.csv, where it has that case.
    """
    g = pd.read_csv(Path(root) / "benchmarks-gpu.csv")
    cpu = pd.read_csv(Path(root) / "benchmarks.csv").query("variant == 'fedlib'")
    cpu = 1000 / cpu.set_index("case").rounds_per_cpu_s
    cases = {
        "linear-10": "synthetic-30",
        "linear-100": "synthetic-100",
        "mlp": "mlp",
        "cnn": "cnn",
        "resnet": "resnet, 4 x 100",
    }
    stacked = "vmap, 5 seeds stacked"
    rows = []
    for case in g.case.unique():
        name = cases.get(case, case)
        ms = g[g.case == case].set_index(["variant", "precision"]).with_drawing_ms
        best = g[(g.case == case) & (g.seeds == 1) & (g.precision == "float32")]
        best = best.loc[best.with_drawing_ms.idxmin()]
        row = {
            "case": name,
            "loop": ms["loop", "float32"],
            "vmap": ms["vmap", "float32"],
            "five seeds at once, each": ms.get((stacked, "float32")),
            "quickest tried": best.with_drawing_ms,
            "which": best.variant,
            "floor": best.floor_ms,
            "one core of a CPU": cpu.get(name),
        }
        rows.append({k: short(v) for k, v in row.items()})
    return pd.DataFrame(rows)


def audits(root="results"):
    """audit-gpu.csv for the page: how many of each paper's runs have each verdict, and
    by how many points a mean is off in a run that is not the same: half of them, all.
    """
    a = pd.read_csv(Path(root) / "audit-gpu.csv")
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


def millions(root="results"):
    """benchmarks-million.csv for the page: what a million clients would need,
    in units that can be read.
    """
    m = pd.read_csv(Path(root) / "benchmarks-million.csv")
    m["needs"] = [amount(v, unit) for v, unit in zip(m.value, m.unit)]
    table = m.pivot_table(
        index=["model", "quantity", "basis"],
        columns="method",
        values="needs",
        aggfunc="first",
        sort=False,
    )
    return table.reset_index()[["model", "quantity", *m.method.unique(), "basis"]]


def amount(v, unit):
    """12.3 GB, 4.5 ms, 20 min: three digits and the unit that suits them."""
    scales = {
        "bytes": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "bytes")),
        "s": ((86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")),
    }[unit]
    size, name = next((s for s in scales if v >= s[0]), scales[-1])
    return f"{v / size:.3g} {name}" if v else "0"


def main():
    """Write the tables that pages show."""
    root = Path("results")
    if (root / "benchmarks-million.csv").exists():
        table.write(millions(root), root / "benchmarks-million-table.csv")
    if (root / "benchmarks-gpu.csv").exists():
        table.write(gpus(root), root / "benchmarks-gpu-table.csv")
    if (root / "audit-gpu.csv").exists():
        table.write(audits(root), root / "audit-gpu-table.csv")
    if (root / "benchmarks-server.csv").exists():
        table.write(servers(root), root / "benchmarks-server-table.csv")
    if (root / "benchmarks.csv").exists():
        table.write(speeds(root), root / "benchmarks-table.csv")
    if (root / "benchmarks-convolutions.csv").exists():
        to = root / "benchmarks-convolutions-table.csv"
        table.write(convolutions(root), to)
    if (root / "benchmarks-methods.csv").exists():
        table.write(methods(root), root / "benchmarks-methods-table.csv")
    table.write(messages(), root / "bytes.csv")
    table.write(clients(root), root / "clients.csv")
    table.write(durations(root), root / "facts.csv")


if __name__ == "__main__":
    ends.program("python -m repro.facts", main, takes_words=False)
