"""What benchmarks have measured, as pages of the book show it; a stage of dvc.yaml.

python -m benchmarks.tables     results/<name>.csv -> results/<name>-table.csv
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from fedlib.cli.program import program
from fedlib.study import audit
from fedlib.study.results import write
from repro import papers


def read(root, name, **how):
    """A table of results."""
    return pd.read_csv(Path(root) / f"{name}.csv", **how)


def wide(b, index, columns):
    """The texts `cell` of a long table, in the order in which they stand there."""
    how = {"values": "cell", "aggfunc": "first", "sort": False}
    return b.pivot_table(index=index, columns=columns, **how).fillna("").reset_index()


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
            write(made(root), root / f"{name}-table.csv")


if __name__ == "__main__":
    program(main)
