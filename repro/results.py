"""All tables of results/, from what the notebooks have published; a stage of dvc.yaml.
Among them what clients hold (clients.csv), and how long runs took (facts.csv).

    python -m repro.results
"""

from pathlib import Path

import pandas as pd

from benchmarks import tables
from fedlib.cli.program import program
from fedlib.study.results import write
from repro import ledger, papers, regimes, rivals
from repro.claims import report

ROOT = Path("results")
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


def clients(root=ROOT):
    """gates.csv for the page: what the clients of each paper's data sets hold."""
    g = pd.read_csv(root / "gates.csv")
    g = g.round({k: 0 for k in ("rows_median", "test_median", "largest")})
    g["paper"] = [papers.about(p)["title"] for p in g.paper]
    return g[[*HELD]].rename(columns=HELD).drop_duplicates()


def durations(root=ROOT):
    """Per paper: how many runs there are, and their minutes of one processor core."""
    seeds = ledger.parts(root, "seeds")
    out = []
    for (paper, study), g in seeds[seeds.run_ids != ""].groupby(["paper", "study"]):
        g = g.drop_duplicates("run_ids")
        for unit, value in (("runs", len(g)), ("minutes", g.minutes.sum())):
            name, where = f"{paper}-{study}-{unit}", f"results/seeds, study {study}"
            out.append((name, value, unit, where))
    return pd.DataFrame(out, columns=["key", "value", "unit", "source"])


def main() -> None:
    """Write them, in the order in which they read each other."""
    for step in (ledger, regimes, report, rivals, tables):
        step.main()
    write(clients(), ROOT / "clients.csv")
    write(durations(), ROOT / "facts.csv")


if __name__ == "__main__":
    program(main)
