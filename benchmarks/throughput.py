"""How many runs a minute does a study make?

    python -m benchmarks.throughput
            44 short runs by each way, three times
    python -m benchmarks.throughput --rounds 4 --seeds 1 --repetitions 1

The same grid (all methods of fedga/synthetic on one of its data sets) by

    one process         one run after another, in the caller
    pool                processes on this machine, the default of a study
    pool, again         the next study of the same notebook: its pool starts from a
                        server that is there
    dask                a scheduler and as many workers, on loopback

Every line runs in a process of its own, with an empty folder of runs; all must give
the same numbers. Start-up (until every worker has imported fedlib, the caller included)
is apart from the grid. Seconds of wall, and of CPU of the whole process tree. Writes
results/benchmarks-throughput.csv and .json: what it ran on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

from . import clock

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "results" / "benchmarks-throughput.csv"
VARIANTS = ("one process", "pool", "pool, again", "dask")
COLUMNS = (
    "variant",
    "workers",
    "repetition",
    "runs",
    "start_wall_s",
    "start_cpu_s",
    "grid_wall_s",
    "grid_cpu_s",
    "runs_per_minute",
    "times_one",
)
PATIENCE = 120  # seconds for the workers to come


def arrive(folder, n):
    """On a worker: import what runs need,
    and wait until n workers are at this point.
    """
    import fedlib.study.compute  # noqa: F401

    Path(folder, str(os.getpid())).touch()
    until = time.monotonic() + PATIENCE
    while len(os.listdir(folder)) < n:
        if time.monotonic() > until:
            raise TimeoutError(f"{n} workers did not come within {PATIENCE} s")
        time.sleep(0.01)


@contextmanager
def loopback(n, folder):
    """The address of a Dask scheduler with n workers of one thread."""
    file, env, some = (
        folder / "scheduler.json",
        os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        [],
    )

    def start(program, *args):
        command = [
            sys.executable,
            "-m",
            f"distributed.cli.dask_{program}",
            "--host",
            "127.0.0.1",
            "--no-dashboard",
            *args,
        ]
        some.append(
            subprocess.Popen(
                command,
                cwd=folder,
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    try:
        start("scheduler", "--port", "0", "--scheduler-file", str(file))
        for _ in range(n):
            start(
                "worker",
                "--scheduler-file",
                str(file),
                "--nthreads",
                "1",
                "--no-nanny",
                "--local-directory",
                str(folder),
                "--death-timeout",
                str(PATIENCE),
            )
        until = time.monotonic() + PATIENCE
        while not (file.exists() and file.read_text().endswith("}")):
            if time.monotonic() > until or some[0].poll() is not None:
                raise SystemExit(
                    "no Dask scheduler came up; try `dask scheduler` by hand"
                )
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"]
    finally:
        for p in some:
            p.kill()
            p.wait()


def one(variant, workers, rounds, seeds):
    """Times one variant and prints a json line."""
    cpu, wall = clock.tree_cpu(), time.perf_counter()
    from fedlib.core.record import Record
    from fedlib.study import compute, executor, studies

    todo = studies.cells(
        "fedga",
        "synthetic",
        ROOT / "params.yaml",
        "tiny",
        tasks=["synthetic_0_0"],
        rounds=rounds,
        seeds=seeds,
        microscope=False,
    )[0]
    with tempfile.TemporaryDirectory() as tmp:
        if variant == "pool, again":
            with executor.opened(workers=workers) as submit:
                submit(abs, 1).result()
            cpu, wall = clock.tree_cpu(), time.perf_counter()
        come = Path(tmp, "come")
        come.mkdir()
        with (
            loopback(workers, Path(tmp))
            if variant == "dask"
            else nullcontext() as address
        ):
            n = 1 if variant == "one process" else workers
            with executor.opened(address, None if address else n) as submit:
                there = (
                    [submit(arrive, str(come), n) for _ in range(n)] if submit else []
                )
                for future in there:
                    future.result()
                started = clock.tree_cpu() - cpu, time.perf_counter() - wall
                cpu, wall = clock.tree_cpu(), time.perf_counter()
                folders = compute.compute_all(
                    todo,
                    Path(tmp, "runs"),
                    workers=1,
                    executor=SimpleNamespace(submit=submit) if submit else None,
                )
                grid = clock.tree_cpu() - cpu, time.perf_counter() - wall
        numbers = hashlib.sha256(
            b"".join(
                v.tobytes() for f in folders for v in Record.load(f).views.values()
            )
        )
    print(
        json.dumps(
            {
                "variant": variant,
                "workers": n,
                "runs": len(todo),
                "start_wall_s": started[1],
                "start_cpu_s": started[0],
                "grid_wall_s": grid[1],
                "grid_cpu_s": grid[0],
                "runs_per_minute": 60 * len(todo) / grid[1],
                "numbers": numbers.hexdigest(),
            }
        )
    )


def main(argv=None):
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput", description=__doc__.partition("\n")[0]
    )
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rounds", type=int, default=50)
    p.add_argument("--seeds", type=int, default=4, help="of each of the eleven methods")
    p.add_argument("--repetitions", type=int, default=3)
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    p.add_argument(
        "--limit", type=int, default=600, help="seconds after which a line is given up"
    )
    p.add_argument("--out", type=Path, default=OUT)
    p.add_argument("--one", choices=VARIANTS, help=argparse.SUPPRESS)
    args = p.parse_args(argv)
    if args.one:
        return one(args.one, args.workers, args.rounds, args.seeds)
    rows = []
    for k in range(args.repetitions):
        for variant in args.variants:
            command = [
                sys.executable,
                "-m",
                "benchmarks.throughput",
                "--one",
                variant,
                "--workers",
                str(args.workers),
                "--rounds",
                str(args.rounds),
                "--seeds",
                str(args.seeds),
            ]
            done = subprocess.run(
                command, cwd=ROOT, capture_output=True, text=True, timeout=args.limit
            )
            if done.returncode:
                raise SystemExit(f"{variant}: {done.stderr.strip().splitlines()[-1]}")
            rows.append(json.loads(done.stdout.splitlines()[-1]) | {"repetition": k})
            print(
                {
                    c: round(v, 2) if isinstance(v, float) else v
                    for c, v in rows[-1].items()
                    if c != "numbers"
                },
                flush=True,
            )
    if len({r["numbers"] for r in rows}) > 1:
        raise SystemExit(
            "the numbers differ: "
            + ", ".join(f"{r['variant']} {r['numbers'][:8]}" for r in rows)
        )
    import pandas as pd
    import torch

    torch.set_num_threads(1)  # as in every run above
    table = pd.DataFrame(rows)
    base = table[table.variant == "one process"].set_index("repetition").grid_wall_s
    table["times_one"] = table.repetition.map(base) / table.grid_wall_s
    args.out.parent.mkdir(parents=True, exist_ok=True)
    table[list(COLUMNS)].to_csv(
        args.out, index=False, float_format="%.4g", lineterminator="\n"
    )
    about = {"rounds": args.rounds, "seeds": args.seeds} | clock.provenance()
    args.out.with_suffix(".json").write_text(
        json.dumps(about, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
