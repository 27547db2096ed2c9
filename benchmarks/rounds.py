"""Rounds of FedAvg per CPU second: the usual DataLoader loop, fedlib, and peers.

    python -m benchmarks.rounds                                   the loop and fedlib
    python -m benchmarks.rounds --peer pfl=/path/to/venv/bin/python --peer flower=... \\
        --peer fedlab=...

Writes results/benchmarks.csv and its provenance results/benchmarks.json. One torch
thread. Before anything is timed, one round with full batches must give the same model
in every variant.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import torch

from . import clock
from .cases import NAMES, case
from .ours import after_one, ours
from .usual import Usual

ROOT = Path(__file__).resolve().parents[1]
# name -> module, repetitions, CPU seconds of each; starting Flower costs half a
# minute a time
PEERS = {
    "pfl": ("with_pfl", 7, 1),
    "fedlab": ("with_fedlab", 7, 1),
    "flower": ("with_flower", 3, 4),
}
COLUMNS = [
    "case",
    "variant",
    "version",
    "rounds_per_cpu_s",
    "low",
    "high",
    "times_loader",
    "repetitions",
    "note",
]


def difference(w, model):
    """Largest difference of the weights, in units of the largest weight."""
    pairs = list(zip(w.values(), model.parameters(), strict=True))
    return max(
        ((a - b).abs().max() / b.abs().max().clamp(min=1e-12)).item() for a, b in pairs
    )


def ways(c):
    """How fedlib is timed.

    Batching a ResNet takes longer than the loop, and so long that it is left out.
    """
    return ("loop",) if c.name == "resnet18" else ("loop", "vmap")


def agree(c, clients=2, tolerance=1e-6):
    """Refuse to time loops that do not compute the same, in float64."""
    c = replace(c, task=c.task.double())
    usual = Usual(c, batch=10**6)
    usual.model.double()
    usual.round(torch.arange(clients))
    for how in ways(c):
        d = difference(after_one(c, how, clients), usual.model)
        if not d < tolerance:
            raise SystemExit(
                f"{c.name}: after one round fedlib ({how}) and the DataLoader loop "
                f"differ by {d:.1e}; does benchmarks/cases.py still have the layers of "
                "fedlib/nets?"
            )


def here(name, reps, seconds):
    """Rows of one case, all variants in this process."""
    c = case(name)
    agree(c)
    usual, draw = Usual(c), c.cohorts()

    def loop(n):
        for _ in range(n):
            usual.round(next(draw))

    variants = {"DataLoader loop": loop} | {
        f"fedlib {how}": ours(c, how) for how in ways(c)
    }
    rows = clock.summary(clock.interleave(variants, reps, seconds), "DataLoader loop")
    return [
        {
            "case": name,
            "version": torch.__version__
            if r["variant"].startswith("Data")
            else version(),
            **r,
        }
        for r in rows
    ]


def version():
    from importlib.metadata import version

    return version("fedlib")


def peer(name, python, case_name, limit=900):
    """Rows of one peer, run by its own interpreter beside the DataLoader loop; a
    failure is a row with its reason.
    """
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    empty = {"case": case_name, "variant": name}
    module, reps, seconds = PEERS[name]
    try:
        done = subprocess.run(
            [
                python,
                "-m",
                f"benchmarks.peers.{module}",
                case_name,
                str(reps),
                str(seconds),
            ],
            env=env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except FileNotFoundError:
        return [empty | {"note": f"no interpreter {python}"}]
    except subprocess.TimeoutExpired:
        return [empty | {"note": f"not finished after {limit} s"}]
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"variant"')]
    if not lines:
        why = [line for line in done.stderr.splitlines() if line.strip()]
        return [
            empty
            | {
                "note": "failed: "
                + (why[-1][:200] if why else f"exit status {done.returncode}")
            }
        ]
    return [{"case": case_name, **json.loads(line)} for line in lines]


def main():
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.rounds", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--cases", nargs="+", default=NAMES, choices=NAMES, metavar="CASE")
    p.add_argument("--reps", type=int, default=7)
    p.add_argument(
        "--seconds",
        type=float,
        default=1.0,
        help="CPU seconds per variant and repetition",
    )
    p.add_argument(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PYTHON",
        help=f"{', '.join(PEERS)}",
    )
    p.add_argument(
        "--only-peers", action="store_true", help="keep the other rows that are there"
    )
    p.add_argument("--out", type=Path, default=ROOT / "results" / "benchmarks.csv")
    args = p.parse_args()
    torch.set_num_threads(1)
    for name in args.cases:
        new = [] if args.only_peers else here(name, args.reps, args.seconds)
        for entry in args.peer:
            who, _, python = entry.partition("=")
            if who not in PEERS or not python:
                p.error(
                    f"--peer {entry}: write NAME=PYTHON with NAME one of "
                    f"{', '.join(PEERS)}"
                )
            new += peer(who, python, name)
        print(
            pd.DataFrame(new, columns=COLUMNS)
            .round(3)
            .to_string(index=False, na_rep=""),
            flush=True,
        )
        keep(new, args.out)


def keep(rows, out):
    """Write the rows; those of the same case and variant that are there already are
    replaced, others stay, also in the json.
    """
    new, about = pd.DataFrame(rows, columns=COLUMNS), out.with_suffix(".json")
    again, runs = set(zip(new.case, new.variant)), []
    if out.exists():
        old = pd.read_csv(out)
        new = pd.concat(
            [old[[k not in again for k in zip(old.case, old.variant)]], new]
        )
    if about.exists():
        runs = [
            r | {"rows": [k for k in r["rows"] if tuple(k) not in again]}
            for r in json.loads(about.read_text())["runs"]
        ]
    runs.append(
        {
            "command": "python -m benchmarks.rounds",
            **clock.provenance(),
            "rows": sorted(again),
        }
    )
    order = {n: i for i, n in enumerate(NAMES)}
    new = new.sort_values("case", key=lambda s: s.map(order), kind="stable")
    out.parent.mkdir(parents=True, exist_ok=True)
    new.to_csv(out, index=False, float_format="%.4g", lineterminator="\n")
    about.write_text(
        json.dumps({"runs": [r for r in runs if r["rows"]]}, indent=1) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main())
