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


def read(root, name):
    """A table of results."""
    return pd.read_csv(Path(root) / f"{name}.csv")


def methods(root="results"):
    """benchmarks-methods.csv for the page: one row per case and method, one column per
    program, "rounds per CPU second (times the loop of that method)".
    """
    b = read(root, "benchmarks-methods")
    b["cell"] = [
        f"{r:.3g} (x{t:.2g})" if r > 0 else "none" if " has no " in note else "failed"
        for r, t, note in zip(b.rounds_per_cpu_s, b.times_loader, b.note.fillna(""))
    ]
    how = {"values": "cell", "aggfunc": "first", "sort": False}
    table = b.pivot_table(index=["case", "method"], columns="variant", **how)
    return table.fillna("").reset_index()


def audits(root="results"):
    """audit-gpu.csv for the page: how many of each paper's runs have each verdict, and
    by how many points a mean is off in a run that is not the same: half of them, all.
    """
    a = read(root, "audit-gpu")
    rows = []
    for paper in papers.found():
        if (own := a[a.study.str.startswith(f"{paper}/")]).empty:
            continue
        counts = {v: int((own.verdict == v).sum()) for v in audit.VERDICTS}
        row = {"paper": papers.about(paper)["title"], "runs": len(own)} | counts
        off = own[own.verdict != "same"].points
        row |= {"points, median": off.median(), "points, most": off.max()}
        rows.append(row)
    digits = lambda v: f"{float(f'{v:.3g}'):g}" if v == v else ""
    table = pd.DataFrame(rows)
    points = [c for c in table if c.startswith("points")]
    return table.assign(**{c: table[c].map(digits) for c in points})


TABLES = {"audit-gpu": audits, "benchmarks-methods": methods}


def main():
    """Write the tables that pages show."""
    root = Path("results")
    for name, made in TABLES.items():
        if (root / f"{name}.csv").exists():
            write(made(root), root / f"{name}-table.csv")


if __name__ == "__main__":
    program(main)
