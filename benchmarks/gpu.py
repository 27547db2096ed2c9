"""One script for a lent GPU: the tests on it; every method, as ever against recorded;
rounds of FedAvg by fedlib.run, as ever and recorded; stored runs again.

    python -m benchmarks.gpu --budget 1500
            results/benchmarks-gpu.csv, benchmarks-gpu-equal.csv and audit-gpu.csv
    python -m benchmarks.gpu --device cpu --small --reps 2 --seconds 0.02 --out gpu.csv
            a try-out on a CPU, where stages are repeated without a graph

It needs torch, numpy, pandas and fedlib, and fetches nothing. After --budget seconds
what is left becomes rows that say so. Each case has a process of its own: one that
hangs or breaks the device costs only itself. On a CPU nothing is written without --out.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import fields, replace
from functools import partial

import torch

import fedlib
from fedlib import Task
from fedlib.core import recorded
from fedlib.core.pool import Pool
from fedlib.core.tree import leaves
from fedlib.data import tasks
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.nets import ResNet18
from fedlib.study import studies
from goldens.numbers import runs

from . import harness
from .cases import Case, case, noise, resnet18
from .rounds import QUIET, ticking

COLUMNS = ["case", "variant", "precision", "ms", "low", "high", "repetitions"]
COLUMNS += ["first_s", "times_loop", "difference_64", "difference_32", "note"]
EQUAL = ["method", "cohort", "difference_64", "continued_64", "refused", "note"]
CASES = {"linear-10": "synthetic-30", "linear-100": "synthetic-100"}
CASES |= {"mlp": "mlp", "cnn": "cnn", "resnet": None}
# of FedGA at tier paper: rows, and of these test rows, of each owner; their shape
PAPER = {"cifar01": ([50000], None, (3, 32, 32))}
SITES = [958, 1123, 157, 295], [192, 225, 32, 59]
PAPER |= {"office10_alexnet": (*SITES, (3, 256, 256))}
# clients, rows of each
SMALL = {"linear-10": (12, 96), "linear-100": (12, 96), "mlp": (6, 40), "cnn": (3, 40)}
# how clients run, whether stages are recorded, the precision; "fedlib": as run() does
VARIANTS = {
    "loop, as ever": ("loop", False, "float32"),
    "vmap, as ever": ("vmap", False, "float32"),
    "fedlib": (None, True, "float32"),
    "fedlib, tf32": (None, True, "tf32"),
}
LATE = 15  # seconds a case may overrun its share before it is killed
FIRST = 12  # rounds before the clock: shapes are met, and recorded
FEW = 4  # the same of cases at the paper's size
EXACT = 1e-8  # in float64: the same up to rounding
NEAR = 0.05  # in float32 a relu that flips is amplified, most in a deep network


# ---------------------------------------------------------------- cases, variants
def cohort(case, t):
    """The clients of round t [M]."""
    g = torch.Generator().manual_seed(t)
    return torch.randperm(case.task.C, generator=g)[: case.cohort].sort().values


def double(case):
    return replace(case, task=case.task.double())


def paper_cell(name):
    """A cell of FedGA's study at tier paper."""
    return studies.cells("fedga", "images", tier="paper", tasks=[name])[0][0]


def at_paper_size(name, device, small):
    """The case of such a cell, with noise in place of photographs."""
    (sizes, test, shape), cell = PAPER[name], paper_cell(name)
    spec, run = json.loads(cell.task), json.loads(cell.engine)
    partition = spec.get("partition", tasks.NATURAL)
    if small:
        shape = 3, *(max(32, s // 4) for s in shape[1:])
        sizes, test = [120 // len(sizes)] * len(sizes), test and [20] * len(sizes)
        partition |= {k: 3 for k in partition if k == "clients"}
    x, y = torch.randn(sum(sizes), *shape), torch.randint(10, (sum(sizes),))
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    pool = Pool(name, x, y, 10, "synthetic", owner, tuple(map(str, range(len(sizes)))))
    pool = tasks.hold_out(pool, test) if test else pool
    rows = tasks.divide(pool, partition)
    network = tasks.network_for(pool, spec["network"])
    cut = {"parts": spec["parts"], "batch": spec["batch"]}
    task = Task.from_rows(name, network, pool, rows, **cut).to(device)
    lr = json.loads(cell.kwargs)["lr"]
    return Case(name, task, None, lr, min(task.C, run.get("cohort", task.C)))


def setup(name, device, small=False):
    """The case with that name, its task on the device; small: of a size for a
    try-out.
    """
    if name in PAPER:
        return at_paper_size(name, device, small)
    if name == "resnet":  # a device needs more of it than a processor
        side, clients, rows, batch = (8, 2, 10, 4) if small else (32, 4, 100, 50)
        network = ResNet18(10, stem="cifar", norm="group")
        task = noise(name, network, (3, side, side), clients, rows, batch)
        return Case(name, task.to(device), resnet18, 0.05, task.C)
    c = case(CASES[name])
    task = c.task
    if small:
        clients, rows = SMALL[name]
        few = {k: getattr(task, k)[:clients] for k in ("val", "test", "owners")}
        task = replace(task, train=tuple(r[:rows] for r in task.train[:clients]), **few)
    M = min(c.cohort, task.C // 2 if name == "linear-10" else task.C)
    return replace(c, name=name, task=task.to(device), cohort=M)


def now(device):
    """Wall seconds, after everything that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def record(device, on):
    """From here on stages are recorded, or not."""
    usual = "graph" if device.type == "cuda" else "eager"
    recorded.MODE[device.type] = usual if on else None


def engine_rounds(case, how, on, precision):
    """(f, once): f(n) -> (seconds of n rounds, of those before), no evaluation between;
    once() -> the model after FIRST rounds.
    """
    task, device = case.task, case.task.x.device
    more = {"cohort": partial(cohort, case), "how": how, "device": str(device)}
    more |= {"precision": precision}
    timed = partial(ticking(FedAvg), task, lr=case.lr, now=partial(now, device))
    first = FEW if case.name in PAPER else FIRST

    def go(n):
        record(device, on)
        rounds, method = {"rounds": n + 1, "every": n + 2, "upto": n}, timed()
        return fedlib.run(method, **rounds, **QUIET | more), method.ticks

    def f(n):
        start, (_, ticks) = now(device), go(n + first)
        return ticks[-1] - ticks[first - 1], ticks[first - 1] - start

    return f, lambda: go(first)[0].state["server"]["w"]


# ---------------------------------------------------------------- one case
def apart(a, b):
    """Largest difference of two models, in units of the largest weight of its tensor;
    infinite where one is not finite.
    """
    far = [((a[k] - b[k]).abs().max() / b[k].abs().max().clamp(min=1e-12)) for k in b]
    return max(d.item() if d == d else math.inf for d in far)


def compared(case, how, reference):
    """(f, difference in float64, difference in the precision) after some rounds;
    ValueError where it is not the loop.
    """
    d64 = apart(engine_rounds(double(case), *how)[1](), reference[1])
    f, once = engine_rounds(case, *how)
    d32 = apart(once(), reference[0])
    deep = how[2] != "float32" or case.name in PAPER
    if not (d64 < EXACT and (d32 < NEAR or deep)):
        off = f"{d64:.1e} in float64, {d32:.1e} in {how[2]}"
        raise ValueError(f"not timed: after the first rounds {off} from the loop")
    return f, d64, d32


def measure(name, device, small, budget, reps, seconds):
    """The rows of a case: check each variant against the loop, then let them take
    turns. Milliseconds, drawing of batches included.
    """
    torch.set_num_threads(1)
    case, until = setup(name, device, small), time.monotonic() + budget
    loop = VARIANTS["loop, as ever"]
    reference = [engine_rounds(c, *loop)[1]() for c in (case, double(case))]
    rows, ready = [], []
    for variant, how in VARIANTS.items():
        rows.append({"case": name, "variant": variant, "precision": how[2]})
        if time.monotonic() > until:
            rows[-1]["note"] = "not tried: the budget is spent"
        else:
            try:
                f, exact, near = compared(case, how, reference)
                rows[-1] |= {"difference_64": exact, "difference_32": near}
                took, rows[-1]["first_s"] = f(1)
                n = max(1, math.ceil(seconds / max(took, 1e-5)))
                ready.append((rows[-1], f, n, []))
            except Exception as e:  # whatever it is, the next variant may work
                rows[-1]["note"] = f"{type(e).__name__}: {e}".splitlines()[0][:200]
    for k in range(reps):
        for _, f, n, took in ready:
            if k == 0 or time.monotonic() < until:
                took.append(f(n)[0] / n)
    loops = ready[0][-1] if ready and "loop" in ready[0][0]["variant"] else []
    for row, *_, took in ready:
        row |= harness.spread([1e3 * s for s in took], "ms")
        if name in PAPER:
            rounds = json.loads(paper_cell(name).engine)["rounds"]
            minutes = rounds * row["ms"] / 60000
            row["note"] = f"{rounds} rounds, unscored: {minutes:.3g} min"
        if pairs := list(zip(loops, took)):
            row["times_loop"] = statistics.median(a / b for a, b in pairs)
    return rows


# ---------------------------------------------------------------- every method
def equal(device, small, budget):
    """A row per method and cohort: how far its state after seven rounds is off where
    stages are recorded, and that of a run that was stopped in between from this one;
    what is not recorded, and why.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, until = [], time.monotonic() + budget
    for name in [*METHODS][:: 9 if small else 1]:
        known = {f.name for f in fields(METHODS[name])}
        quick = {k: v for k, v in runs.QUICK.items() if k in known}
        of = "Normed" if name in runs.NORMED else runs.CLIP.get(name)
        for few in (None, runs.COHORT):
            rows.append({"method": name, "cohort": few or "all"})
            if time.monotonic() > until:
                rows[-1]["note"] = "not tried: the budget is spent"
                continue
            how = {"how": "vmap", "cohort": few, "device": str(device), "rounds": 7}
            go = partial(fedlib.run, make(name, runs.toy_of(of), **quick), **how)
            record(device, False)
            plain = go()
            record(device, True)
            with tempfile.TemporaryDirectory() as folder:
                whole, _ = go(), go(folder=folder, upto=3)
                off = gap(whole, plain), gap(go(folder=folder), whole)
            rows[-1] |= dict(zip(EQUAL[2:4], off))
            refused = whole.meta.get("refused", {}).items()
            rows[-1]["refused"] = "; ".join(map(": ".join, refused))
    return rows


def gap(a, b):
    """The largest difference of what two runs hold at the end."""
    held = (leaves({k: r.state[k] for k in ("server", "clients")}) for r in (a, b))
    far = ((x.double() - y.double()).abs().nan_to_num() for x, y in zip(*held))
    return max(float(d.max()) for d in far if d.numel())


def verified(device, runs, seconds):
    """One line about stored runs that are computed again on the device."""
    words = f"-m fedlib evidence verify --sample {runs} --device {device.type}".split()
    words += ["--write"] if device.type == "cuda" else []
    try:
        done = asked(words, seconds)
    except subprocess.TimeoutExpired:
        return f"not finished after {seconds:.0f} s"
    lines = (done.stdout + done.stderr).strip().splitlines()
    found = [re.search(r"\b(same|rounding|DIFFERS)\b", x) for x in lines]
    counts = [m[1] for m in found if m]
    said = ", ".join(f"{counts.count(v)} {v}" for v in sorted({*counts}))
    return f"{said or lines[-1:]}; exit status {done.returncode}"


# ---------------------------------------------------------------- all of it
def asked(words, seconds):
    """What Python gives, asked so in the folder of the repository."""
    how = {"capture_output": True, "text": True, "timeout": max(1, seconds)}
    how |= {"cwd": harness.ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    return subprocess.run([sys.executable, *words], **how)


def tests(device, seconds):
    """One line about the tests that run there what they run on a processor."""
    if device.type != "cuda" or not seconds:
        return "skipped: no CUDA device, or no time for them"
    files = ["tests/contract", "tests/round/test_recorded.py"]
    options = "-m pytest -q -m not(nightly) -p no:cacheprovider"
    try:
        done = asked([*options.split(), *files], seconds)
    except subprocess.TimeoutExpired:
        return f"not finished after {seconds:.0f} s"
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    bad = [x for x in lines if x.startswith(("FAILED", "ERROR"))]
    return "; ".join([*bad[:20], *lines[-1:]])


def main():
    p = harness.parser("gpu", __doc__, cases=[*CASES, *PAPER], reps=5, seconds=0.25)
    p.add_argument("--budget", type=float, default=1500.0, help="seconds in all")
    p.add_argument("--tests", type=float, default=300.0, help="of them; 0: no tests")
    p.add_argument("--runs", type=int, default=240, help="stored runs to verify")
    p.add_argument("--small", action="store_true", help="cases of a size for a try-out")
    p.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    args = p.parse_args()
    began, device, rows = time.monotonic(), torch.device(args.device), []
    cuda, left = device.type == "cuda", lambda: args.budget - time.monotonic() + began
    writes = (cuda and not args.small) or args.out != p.get_default("out")
    torch.set_num_threads(1)
    tested = tests(device, min(args.tests, left()))
    print(f"tests on {device}: {tested}", flush=True)
    share = max(1.0, left() / 4)
    same = own_process(equal, device, args.small, share, limit=share + LATE)
    harness.show(same, EQUAL)
    if writes:
        harness.keep(same, args.out.with_stem(f"{args.out.stem}-equal"), EQUAL)
    for i, name in enumerate(args.cases):
        share = max(1.0, (left() / 2 - LATE) / (len(args.cases) - i))
        job = name, device, args.small, share, args.reps, args.seconds
        found = own_process(measure, *job, limit=share + LATE)
        rows += [{"case": name} | row for row in found]
        harness.show(found, COLUMNS[1:])
    audit = verified(device, args.runs, left()) if args.runs else "not asked for"
    print(f"stored runs on {device}: {audit}", flush=True)
    if writes:
        said = {"device": torch.cuda.get_device_name(device) if cuda else "cpu"}
        said |= {"tests": tested, "verified": audit}
        said |= {"small": args.small, "wall_s": round(time.monotonic() - began)}
        harness.keep(rows, args.out, COLUMNS, **said)


def own_process(f, *args, limit):
    """The rows of f(*args), or one that says why there are none."""
    try:
        return harness.fresh(f, *args, limit=limit)
    except Exception as e:  # the process may have died of anything
        return [{"variant": "all", "note": f"{type(e).__name__}: {e}"[:200]}]


if __name__ == "__main__":
    main()
