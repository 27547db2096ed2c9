"""The tests, the device, then each case in a process of its own.

One that hangs or breaks the device costs only itself.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pandas as pd
import torch

from .. import clock
from . import __doc__ as about
from . import checks
from .floor import machine
from .measure import COLUMNS, measure, verdict
from .setups import NAMES, setup
from .step import options

OUT = checks.ROOT / "results" / "benchmarks-gpu.csv"
LATE = 15  # seconds a case may overrun its share before it is killed


def share(case, seconds, args, reach, argv):
    """The rows of one case, measured by a process that is killed when
    it takes too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "rows.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.gpu",
            *argv,
            "--one",
            case,
            json.dumps(reach),
            str(at),
        ]
        empty = {"case": case, "variant": "all"}
        try:
            done = subprocess.run(
                [*command, "--budget", str(seconds)],
                cwd=checks.ROOT,
                stdout=subprocess.DEVNULL,
                text=True,
                stderr=subprocess.PIPE,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                timeout=seconds + LATE,
            )
        except subprocess.TimeoutExpired:
            return [empty | {"note": f"killed after {seconds + LATE:.0f} s"}]
        if not at.exists():
            last = done.stderr.strip().splitlines()
            return [
                empty
                | {
                    "note": "failed: "
                    + (last[-1][:200] if last else f"exit status {done.returncode}")
                }
            ]
        return json.loads(at.read_text())


def keep(rows, out, more):
    """Write what there is so far."""
    if out:
        out.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows, columns=COLUMNS).to_csv(
            out, index=False, float_format="%.5g", lineterminator="\n"
        )
        provenance = {
            "command": "python -m benchmarks.gpu",
            **clock.provenance(),
            **more,
        }
        out.with_suffix(".json").write_text(json.dumps(provenance, indent=1) + "\n")


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument(
        "--cases",
        nargs="+",
        choices=NAMES,
        default=NAMES,
        metavar="CASE",
        help=", ".join(NAMES),
    )
    p.add_argument(
        "--budget",
        type=float,
        default=540.0,
        help="seconds in all; what is left over is a row that says so",
    )
    p.add_argument(
        "--tests",
        type=float,
        default=120.0,
        help="seconds of them for the tests, 0: no tests",
    )
    p.add_argument("--reps", type=int, default=5)
    p.add_argument(
        "--seconds", type=float, default=0.25, help="of a variant in one repetition"
    )
    p.add_argument("--stack", type=int, default=5, help="seeds that are stacked")
    p.add_argument("--small", action="store_true", help="cases of a size for a try-out")
    p.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    p.add_argument(
        "--out",
        type=Path,
        help=(
            "default on CUDA: results/benchmarks-gpu.csv; on a CPU nothing is "
            "written without"
        ),
    )
    p.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    if args.reps < 1 or args.stack < 2:
        p.error(
            f"--reps {args.reps} --stack {args.stack}: give one repetition or more, "
            "and two seeds or more to stack"
        )
    began, device = time.monotonic(), torch.device(args.device)
    left = lambda: args.budget - (time.monotonic() - began)
    torch.set_num_threads(1)
    if args.one:
        case, reach, at = args.one
        rows = measure(
            setup(case, device, args.small),
            json.loads(reach),
            left,
            args.reps,
            args.seconds,
            args.stack,
        )
        return Path(at).write_text(json.dumps(rows)) and None
    out = args.out or (OUT if device.type == "cuda" and not args.small else None)
    tested = checks.tests(device, args.tests) if args.tests else "not asked for"
    print(f"tests on {device}: {tested}", flush=True)
    with options():
        reach = machine(device)
    print("reached:", json.dumps(reach), flush=True)
    rows, todo = [], list(dict.fromkeys(args.cases))
    for i, case in enumerate(todo):
        rows += share(
            case, max(1.0, (left() - LATE) / (len(todo) - i)), args, reach, argv
        )
        shown = pd.DataFrame([r for r in rows if r["case"] == case], columns=COLUMNS)
        print(
            shown.drop(columns=["case", "target"]).to_string(
                index=False, na_rep="", float_format="%.3g"
            ),
            flush=True,
        )
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        keep(
            rows,
            out,
            {
                "device": name,
                "tests": tested,
                "reached": reach,
                "small": args.small,
                "seeds_stacked": args.stack,
                "wall_s": round(time.monotonic() - began),
            },
        )
    print(verdict(rows))


if __name__ == "__main__":
    sys.exit(main())
