"""How many runs a minute does a study make?

    python -m benchmarks.throughput
            44 short runs by each way, three times
    python -m benchmarks.throughput --rounds 4 --seeds 1 --reps 1

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

# no fedlib at the top: importing it belongs to the start-up of a worker
from __future__ import annotations

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

from . import harness

VARIANTS = ("one process", "pool", "pool, again", "dask")
COLUMNS = ["variant", "workers", "repetition", "runs", "start_wall_s", "start_cpu_s"]
COLUMNS += ["grid_wall_s", "grid_cpu_s", "runs_per_minute", "times_one"]
PATIENCE = 120  # seconds for the workers to come


def wait_for(there, what):
    until = time.monotonic() + PATIENCE
    while not there():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {PATIENCE} s")
        time.sleep(0.01)


def arrive(folder, n):
    """On a worker: import what runs need,
    and wait until n workers are at this point.
    """
    import fedlib.study.compute  # noqa: F401

    Path(folder, str(os.getpid())).touch()
    wait_for(lambda: len(os.listdir(folder)) >= n, f"{n} workers")


@contextmanager
def loopback(n, folder):
    """The address of a Dask scheduler with n workers of one thread."""
    env = os.environ | {"PYTHONPATH": str(harness.ROOT), "OMP_NUM_THREADS": "1"}
    file, quiet = folder / "scheduler.json", dict.fromkeys(("stdout", "stderr"), -3)

    def start(program, *args):
        module = f"distributed.cli.dask_{program}"
        here = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
        command = [sys.executable, "-m", module, *here, *args]
        return subprocess.Popen(command, cwd=folder, env=env, **quiet)

    alone = ["--nthreads", "1", "--no-nanny", "--local-directory", str(folder)]
    alone += ["--death-timeout", str(PATIENCE)]
    some = [start("scheduler", "--port", "0")]
    some += [start("worker", *alone) for _ in range(n)]
    try:
        wait_for(
            lambda: file.exists() and file.read_text().endswith("}"), "a scheduler"
        )
        yield json.loads(file.read_text())["address"]
    finally:
        for p in some:
            p.kill()
            p.wait()


def clocks():
    return time.perf_counter(), harness.tree_cpu()


def since(start, name):
    wall, cpu = (b - a for a, b in zip(start, clocks()))
    return {f"{name}_wall_s": wall, f"{name}_cpu_s": cpu}


def one(variant, workers, rounds, seeds):
    """The row of one variant, and a hash of its numbers."""
    start = clocks()
    from benchmarks.throughput import arrive  # as other processes know it
    from fedlib.core.record import Record
    from fedlib.study import compute, executor, studies

    grid = {"tasks": ["synthetic_0_0"], "rounds": rounds, "seeds": seeds}
    file = harness.ROOT / "params.yaml"
    todo, *_ = studies.cells(
        "fedga", "synthetic", file, "tiny", microscope=False, **grid
    )
    with tempfile.TemporaryDirectory() as tmp:
        come, tmp = Path(tmp, "come"), Path(tmp)
        come.mkdir()
        if variant == "pool, again":
            with executor.opened(workers=workers) as submit:
                submit(abs, 1).result()
            start = clocks()
        n = 1 if variant == "one process" else workers
        cluster = loopback(n, tmp) if variant == "dask" else nullcontext()
        with (
            cluster as address,
            executor.opened(address, None if address else n) as submit,
        ):
            for future in (
                [submit(arrive, str(come), n) for _ in range(n)] if submit else []
            ):
                future.result()
            row = {"variant": variant, "workers": n, "runs": len(todo)}
            row |= since(start, "start")
            start, pool = clocks(), SimpleNamespace(submit=submit) if submit else None
            folders = compute.compute_all(todo, tmp / "runs", workers=1, executor=pool)
            row |= since(start, "grid")
        values = [v.tobytes() for f in folders for v in Record.load(f).views.values()]
    row["runs_per_minute"] = 60 * len(todo) / row["grid_wall_s"]
    return row, hashlib.sha256(b"".join(values)).hexdigest()


def main():
    p = harness.parser("throughput", __doc__, reps=3)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--rounds", type=int, default=50)
    p.add_argument("--seeds", type=int, default=4, help="of each of the eleven methods")
    p.add_argument("--variants", nargs="+", choices=VARIANTS, default=VARIANTS)
    args, rows, numbers = p.parse_args(), [], {}
    for k in range(args.reps):
        took = {}
        for v in args.variants:
            row, numbers[v, k] = harness.fresh(
                one, v, args.workers, args.rounds, args.seeds
            )
            took[v] = row["grid_wall_s"]
            row["times_one"] = took.get("one process", float("nan")) / took[v]
            rows.append(row | {"repetition": k})
            harness.show(rows[-1:])
    if len({*numbers.values()}) > 1:
        raise SystemExit(f"the numbers differ: {numbers}")
    import torch

    torch.set_num_threads(1)  # as in every run above
    harness.keep(rows, args.out, COLUMNS, rounds=args.rounds, seeds=args.seeds)


if __name__ == "__main__":
    main()
