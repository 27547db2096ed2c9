"""What all benchmarks share: CPU seconds (other work on the machine then costs noise,
not a factor), variants in turn, processes of their own, tables with the machine.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import platform
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import pandas as pd
import torch

from fedlib.core.files import commit

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"


def tree_cpu():
    """CPU seconds of this process and all its living and reaped descendants (Linux)."""
    parents, ticks, total, now = {}, {}, 0, {os.getpid()}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has just ended
            fields, pid = path.read_text().rpartition(")")[2].split(), path.parent.name
            parents[int(pid)] = int(fields[1])
            ticks[int(pid)] = sum(map(int, fields[11:15]))
    while now:
        total += sum(ticks.get(pid, 0) for pid in now)
        now = {pid for pid, parent in parents.items() if parent in now}
    return total / os.sysconf("SC_CLK_TCK")


def interleave(variants, reps=5, seconds=1.0, clock=time.process_time):
    """variants {name: f}, f(n) runs n rounds and may return the CPU seconds they took
    -> {name: [rounds per CPU second]}. Every repetition visits every variant for about
    `seconds`, so a slow minute of the machine meets all of them.
    """

    def timed(f, n):
        start = clock()
        own = f(n)
        return clock() - start if own is None else own

    rounds = {}
    for name, f in variants.items():
        timed(f, 1)  # warm: allocator, kernels, caches
        rounds[name] = max(1, math.ceil(seconds / max(timed(f, 1), 1e-4)))
    rates = {name: [] for name in variants}
    for _ in range(reps):
        for name, f in variants.items():
            rates[name].append(rounds[name] / timed(f, rounds[name]))
    return rates


def spread(values, name):
    """{name: the median, low, high, repetitions}."""
    ends = {"low": min(values), "high": max(values), "repetitions": len(values)}
    return {name: statistics.median(values)} | ends


def ratio(ours, theirs):
    """Median over repetitions of what ours is to theirs."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def beside_the_loop(loop, variants, reps, seconds, clock=time.process_time):
    """Rows of the usual loop and of variants that take turns with it."""
    rates = interleave({"DataLoader loop": loop} | variants, reps, seconds, clock)
    base, rows = rates["DataLoader loop"], []
    for name, r in rates.items():
        row = {"variant": name} | spread(r, "rounds_per_cpu_s")
        rows.append(row | {"times_loader": ratio(r, base)})
    return rows


# ---------------------------------------------------------------- processes
def fresh(f, *args, limit=600):
    """f(*args), computed by a process of its own that is killed after `limit` seconds.

    Raises what f raises, BrokenProcessPool if the process dies, TimeoutError.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as pool:
        try:
            return pool.submit(f, *args).result(limit)
        except TimeoutError:
            for child in multiprocessing.active_children():
                child.kill()
            raise TimeoutError(f"not finished within {limit:g} s") from None


# ---------------------------------------------------------------- commands, tables
def parser(module, about, out=None, **common):
    """The parser of `python -m benchmarks.<module>`; common: defaults of the options
    cases, reps and seconds."""
    p = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if names := common.get("cases"):
        p.add_argument("--cases", nargs="+", default=names, choices=names)
    if "reps" in common:
        p.add_argument("--reps", type=int, default=common["reps"])
    if "seconds" in common:
        what = "of CPU, per variant and repetition"
        p.add_argument("--seconds", type=float, default=common["seconds"], help=what)
    out = RESULTS / (out or f"benchmarks-{module}.csv")
    p.add_argument("--out", type=Path, default=out)
    return p


def machine():
    """What the numbers depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [x.partition(":")[2].strip() for x in lines if x.startswith("model name")]
    return {
        "cpu": [*models, platform.machine()][0],
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
        "load_average": [round(v, 2) for v in os.getloadavg()],
    }


def show(rows, columns=None):
    table = pd.DataFrame(rows, columns=columns)
    text = table.to_string(index=False, na_rep="", float_format="%.4g".__mod__)
    print(text, flush=True)


def keep(rows, out, columns=None, key=(), order=None, **more):
    """Write rows to the csv `out`, and to a json beside it what they ran on.

    key: column or columns; rows with the same key are replaced in both files, others
    stay. Without a key nothing stays. order: (column, its values in the order wanted).
    """
    new, about, runs = pd.DataFrame(rows, columns=columns), out.with_suffix(".json"), []
    named = lambda t: t.set_index(key).index
    again = sorted({*named(new)}) if key else []
    if key and out.exists():
        old = pd.read_csv(out)
        new = pd.concat([old[~named(old).isin(named(new))], new])
    for r in json.loads(about.read_text())["runs"] if key and about.exists() else []:
        names = [tuple(k) if isinstance(k, list) else k for k in r["rows"]]
        rest = [k for k in names if k not in again]
        runs += [r | {"rows": rest}] if rest else []
    if order:
        place = {v: i for i, v in enumerate(order[1])}
        new = new.sort_values(order[0], key=lambda s: s.map(place), kind="stable")
    runs.append(machine() | more | {"rows": again})
    out.parent.mkdir(parents=True, exist_ok=True)
    new.to_csv(out, index=False, float_format="%.5g", lineterminator="\n")
    about.write_text(json.dumps({"runs": runs}, indent=1) + "\n")
    return new
