"""Try to break fedlib, and count: every script of this folder, or those that are named.

python torture                       all of it, which takes hours
python torture kill_runs params      two scripts
python torture --share .1            a tenth of the attempts of each
python torture --write               the table also to results/reliability.csv

A script has `attempts`, how many it makes, and `measure(n, seed)`, which makes n of
them and returns a list of `Count`. A seed draws the same attempts again.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # in place of this folder
HERE, TABLE = Path(__file__).parent, Path("results/reliability.csv")
SCRIPTS = sorted({p.stem for p in HERE.glob("*.py")} - {"__main__", "count"})
COLUMNS = ("script", "row", "n", "clean", "accepted", "raw", "silent", "lost", "commit")


def main():
    from fedlib.core.files import commit  # this checkout's, by the line above

    p = argparse.ArgumentParser(prog="python torture", description=__doc__)
    p.add_argument("scripts", nargs="*", metavar="script")
    p.add_argument("--share", type=float, default=1.0, help="of the attempts (1)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--write", action="store_true", help=f"write {TABLE}")
    args = p.parse_args()
    if unknown := set(args.scripts) - set(SCRIPTS):
        p.error(f"{sorted(unknown)[0]} is no script; give some of {', '.join(SCRIPTS)}")
    bad, rows = 0, []
    for name in args.scripts or SCRIPTS:
        script, began = importlib.import_module(f"torture.{name}"), time.time()
        n = max(1, round(args.share * script.attempts))
        for c in script.measure(n, args.seed):
            shown = {k: getattr(c, k) for k in COLUMNS[1:-1]}
            print(name, *(f"{k}: {v}" for k, v in shown.items()), sep="   ")
            for line in c.examples:
                print("   ", line)
            rows.append({"script": name, "commit": commit()} | shown)
            bad += c.bad
        print(f"{name}: {time.time() - began:.0f} s\n", flush=True)
    if args.write:
        write(rows)
    sys.exit(bad > 0)


def write(rows):
    """Replace the rows of these scripts in the table."""
    old = list(csv.DictReader(TABLE.open())) if TABLE.exists() else []
    anew = {r["script"] for r in rows}
    rows = [r for r in old if r["script"] not in anew] + rows
    with TABLE.open("w", newline="") as f:
        out = csv.DictWriter(f, COLUMNS, lineterminator="\n")
        out.writeheader()
        out.writerows(sorted(rows, key=lambda r: (r["script"], r["row"])))


if __name__ == "__main__":
    main()
