"""One script for a lent GPU: the tests on it, then FedAvg by fedlib.run (client after
client, under vmap, several seeds stacked), each against the loop and the floor.

    python -m benchmarks.gpu --budget 540
            results/benchmarks-gpu.csv and .json
    python -m benchmarks.gpu --small --reps 2 --seconds 0.02 --out gpu.csv
            a try-out on a CPU

It needs torch, numpy, pandas and fedlib, and fetches nothing. After --budget seconds
the variants that are left become rows that say so. Each case has a process of its own:
one that hangs or breaks the device costs only itself. On a CPU nothing is written
without --out.
"""

from __future__ import annotations

import math
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

import fedlib
from fedlib import Task
from fedlib.core.clients import float32
from fedlib.core.tree import pick, stack, tmap
from fedlib.methods.base.fedavg import FedAvg
from fedlib.nets import MLP, Linear, ResNet18

from . import harness
from .cases import Case, case, noise, resnet18
from .rounds import QUIET, ticking

COLUMNS = ["case", "variant", "precision", "seeds", "ms", "low", "high", "repetitions"]
COLUMNS += ["with_drawing_ms", "times_loop", "floor_ms", "floor_of", "times_floor"]
COLUMNS += ["difference_64", "difference_32", "note"]
CASES = {"linear-10": "synthetic-30", "linear-100": "synthetic-100"}
CASES |= {"mlp": "mlp", "cnn": "cnn", "resnet": None}
# clients, rows of each
SMALL = {"linear-10": (12, 96), "linear-100": (12, 96), "mlp": (6, 40), "cnn": (3, 40)}
LATE = 15  # seconds a case may overrun its share before it is killed
EXACT = 1e-8  # in float64: the same up to rounding
NEAR = 0.05  # in float32 a relu that flips is amplified within a round


# ---------------------------------------------------------------- cases, variants
def linear(case):
    """Made of linear layers and relu only?"""
    return isinstance(case.task.network, (Linear, MLP))


def cohort(case, t):
    """The clients of round t [M]."""
    g = torch.Generator().manual_seed(t)
    return torch.randperm(case.task.C, generator=g)[: case.cohort].sort().values


def double(case):
    return replace(case, task=case.task.double())


def setup(name, device, small=False):
    """The case with that name, its task on the device; small: of a size for a
    try-out.
    """
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


@dataclass(frozen=True)
class Stacked(FedAvg):
    """Several seeds of FedAvg as one federation: client s C + c is client c of seed s,
    and is averaged with its own seed's.

    Weights, data and cohorts are those of the S runs, and so are the results where
    batches are not shuffled; shuffled batches are drawn by other keys: other samples,
    same work.
    """

    seeds: int = 1

    def server(self, w, r):
        return {"w": stack([self.task.init(s) for s in range(self.seeds)])}

    def send(self, server, ids):
        seed = ids.div(self.task.C // self.seeds, rounding_mode="floor")
        return {"w": pick(server["w"], seed)}

    def aggregate(self, server, up, r):
        n = up["n"].view(self.seeds, -1)
        p = n / n.sum(1, keepdim=True)
        parts = lambda x: x.view(*p.shape, *x.shape[1:])
        mean = lambda x: torch.einsum("sm,sm...->s...", p, parts(x))
        return {"w": tmap(mean, up["w"])}


def copies(task, S):
    """The same clients S times, as one task."""
    N, splits = len(task.x), (task.train, task.val, task.test)
    rows = [tuple(r + s * N for s in range(S) for r in split) for split in splits]
    x, y = task.x.repeat(S, *(1 for _ in task.x.shape[1:])), task.y.repeat(S)
    more = {"K": task.K, "batch": task.batch, "kind": task.kind}
    return Task(f"{task.name} x {S}", task.network, x, y, *rows, **more)


def now(device):
    """Wall seconds, after everything that was asked of the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def engine_rounds(case, how, S=1):
    """(f, once): f(n) -> seconds of n rounds of S seeds, no evaluation between;
    once() -> the (first seed's) model after round 0.
    """
    task, device, seeds = case.task, case.task.x.device, {}
    C = task.C
    draw = lambda t: torch.cat([s * C + cohort(case, t) for s in range(S)])
    more = {"cohort": draw, "how": how, "device": str(device)}
    if S > 1:
        task, seeds = copies(task, S), {"seeds": S}
    method = partial(ticking(Stacked if S > 1 else FedAvg), task, lr=case.lr, **seeds)
    method = partial(method, now=partial(now, device))

    def f(n):
        timed = method()
        fedlib.run(timed, rounds=n + 2, every=n + 3, upto=n + 1, **QUIET | more)
        return timed.ticks[-1] - timed.ticks[0]

    def once():
        record = fedlib.run(method(), rounds=2, every=3, upto=1, **QUIET | more)
        w = record.state["server"]["w"]
        return w if S == 1 else pick(w, 0)

    return f, once


class Variant(NamedTuple):
    """make(case) -> (f, once): see `engine_rounds`."""

    name: str
    make: callable
    seeds: int = 1


def variants(case, S):
    """Those that suit a case, the loop first; S seeds stacked."""
    out = [Variant(how, partial(engine_rounds, how=how)) for how in ("loop", "vmap")]
    if case.name != "resnet":
        make = partial(engine_rounds, how="vmap", S=S)
        out.append(Variant(f"vmap, {S} seeds stacked", make, seeds=S))
    return out


# ---------------------------------------------------------------- the floor
def best(f, now, reps=7):
    """Seconds of the quickest of several, since only other work can make it slower."""
    f()
    took = []
    for _ in range(reps):
        start = now()
        f()
        took.append(now() - start)
    return min(took)


def rates(n, images, channels, side, device, now):
    """FLOP/s of one product, n x n, and of one convolution of so many images."""
    a, b = torch.randn(2, n, n, device=device)
    x = torch.randn(images, channels, side, side, device=device)
    w = torch.randn(channels, channels, 3, 3, device=device)
    x, w = (v.contiguous(memory_format=torch.channels_last) for v in (x, w))
    convolve = partial(F.conv2d, x, w, padding=1)
    took = best(lambda: a @ b, now), best(convolve, now)
    conv = 2 * images * side**2 * 9 * channels**2
    return {"product": 2 * n**3 / took[0], "convolution": conv / took[1]}


def flops(model, x, y):
    """Floating point operations of one row's forward and backward pass."""
    with FlopCounterMode(display=False) as count, torch.enable_grad():
        F.cross_entropy(model(x), y).backward()
    return count.get_total_flops() / len(x)


def reached(device):
    """{"product": FLOP/s, "convolution": FLOP/s, "copy": bytes/s}; small sizes on a
    CPU.
    """
    big, clock = device.type == "cuda", partial(now, device)
    sizes = (8192, 256, 128, 32) if big else (512, 8, 32, 16)
    with float32(), torch.no_grad():
        out = rates(*sizes, device, clock)
    to = torch.empty(2 ** (28 if big else 24), dtype=torch.uint8, device=device)
    source = torch.ones_like(to)
    # read and written
    return out | {"copy": 2 * to.numel() / best(lambda: to.copy_(source), now=clock)}


def work(case):
    """FLOP and bytes of an average round: rows forward and backward; a step reads the
    weights, and again to write them.
    """
    task, w = case.task, {k: v.requires_grad_() for k, v in case.task.init(0).items()}
    r = task.train[0][: task.batch].to(task.x.device)
    each = flops(lambda x: task.logits(w, x), task.x[r], task.y[r])
    sizes = torch.tensor([len(c) for c in task.train], dtype=torch.double)
    steps = (sizes / task.batch).ceil().mean() * case.cohort
    rows, P = sizes.mean() * case.cohort, sum(v.numel() for v in w.values())
    traffic = 4 * (3 * P * steps + rows * task.x[0].numel())
    return float(each * rows), float(traffic)


def floor(load, reach, linear):
    """(seconds, "flop" or "bytes"): the longer of arithmetic and memory traffic."""
    rate = reach["product" if linear else "convolution"]
    return max((load[0] / rate, "flop"), (load[1] / reach["copy"], "bytes"))


# ---------------------------------------------------------------- one case
def apart(a, b):
    """Largest difference of two models, in units of the largest weight of its tensor;
    infinite where one is not finite.
    """
    far = [((a[k] - b[k]).abs().max() / b[k].abs().max().clamp(min=1e-12)) for k in b]
    return max(d.item() if d == d else math.inf for d in far)


def compared(case, v, reference):
    """(f, difference in float64, difference in float32) after one round; ValueError
    where it is not the loop.
    """
    d64 = apart(v.make(double(case))[1](), reference[1])
    f, once = v.make(case)
    d32 = apart(once(), reference[0])
    if not (d64 < EXACT and d32 < NEAR):
        off = f"{d64:.1e} in float64, {d32:.1e} in float32"
        raise ValueError(f"not timed: after one round {off} from the loop")
    return f, d64, d32


def measure(name, device, small, reach, budget, reps, seconds, S):
    """The rows of a case: check each variant against the loop, then let them take
    turns. Milliseconds of one seed, drawing of batches included.
    """
    torch.set_num_threads(1)
    case, until = setup(name, device, small), time.monotonic() + budget
    reference = [engine_rounds(c, "loop")[1]() for c in (case, double(case))]
    rows, ready = [], []
    for v in variants(case, S):
        row = {"case": name, "variant": v.name, "precision": "float32"}
        rows.append(row | {"seeds": v.seeds})
        if time.monotonic() > until:
            rows[-1]["note"] = "not tried: the budget is spent"
        else:
            try:
                f, exact, near = compared(case, v, reference)
                rows[-1] |= {"difference_64": exact, "difference_32": near}
                f(1)
                n = max(1, math.ceil(seconds / max(f(1), 1e-5)))
                ready.append((rows[-1], v, f, n, []))
            except Exception as e:  # whatever it is, the next variant may work
                rows[-1]["note"] = f"{type(e).__name__}: {e}".splitlines()[0][:200]
    for k in range(reps):
        for _, v, f, n, took in ready:
            if k == 0 or time.monotonic() < until:
                took.append(f(n) / n / v.seeds)
    load = work(case)
    loop = next((took for _, v, _, _, took in ready if v.name == "loop"), [])
    for row, _, _, _, took in ready:
        least, what = floor(load, reach, linear(case))
        row |= harness.spread([1e3 * s for s in took], "ms")
        row |= {"with_drawing_ms": row["ms"], "times_floor": row["ms"] / 1e3 / least}
        row |= {"floor_ms": 1e3 * least, "floor_of": what}
        if pairs := list(zip(loop, took)):
            row["times_loop"] = statistics.median(a / b for a, b in pairs)
    return rows


# ---------------------------------------------------------------- all of it
def tests(device, seconds):
    """One line about the tests whose `device` is cuda."""
    if device.type != "cuda" or not seconds:
        return "skipped: no CUDA device, or no time for them"
    found = sorted((harness.ROOT / "tests").rglob("test_*.py"))
    takes = re.compile(r"def test\w*\(.*\bdevice\b")
    files = [str(f) for f in found if takes.search(f.read_text())]
    options = "-m pytest -q -k cuda -p no:cacheprovider --continue-on-collection-errors"
    how = {"capture_output": True, "text": True, "timeout": seconds}
    how |= {"cwd": harness.ROOT, "env": os.environ | {"OMP_NUM_THREADS": "1"}}
    try:
        done = subprocess.run([sys.executable, *options.split(), *files], **how)
    except subprocess.TimeoutExpired:
        return f"not finished after {seconds:.0f} s"
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    bad = [x for x in lines if x.startswith(("FAILED", "ERROR"))]
    return "; ".join([*bad[:20], *lines[-1:]])


def main():
    p = harness.parser("gpu", __doc__, cases=[*CASES], reps=5, seconds=0.25)
    p.add_argument("--budget", type=float, default=540.0, help="seconds in all")
    p.add_argument("--tests", type=float, default=120.0, help="of them; 0: no tests")
    p.add_argument("--stack", type=int, default=5, help="seeds that are stacked")
    p.add_argument("--small", action="store_true", help="cases of a size for a try-out")
    p.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    args = p.parse_args()
    began, device, rows = time.monotonic(), torch.device(args.device), []
    cuda = device.type == "cuda"
    torch.set_num_threads(1)
    tested = tests(device, args.tests)
    reach = reached(device)
    print(f"tests on {device}: {tested}\nreached: {reach}", flush=True)
    for i, name in enumerate(args.cases):
        left = args.budget - (time.monotonic() - began) - LATE
        share = max(1.0, left / (len(args.cases) - i))
        sizes = share, args.reps, args.seconds, args.stack
        try:
            job = measure, name, device, args.small, reach, *sizes
            found = harness.fresh(*job, limit=share + LATE)
        except Exception as e:  # the process may have died of anything
            why = f"{type(e).__name__}: {e}"[:200]
            found = [{"case": name, "variant": "all", "note": why}]
        rows += found
        harness.show(found, COLUMNS[1:])
        if (cuda and not args.small) or args.out != p.get_default("out"):
            said = {"device": torch.cuda.get_device_name(device) if cuda else "cpu"}
            said |= {"tests": tested, "reached": reach, "small": args.small}
            said |= {"seeds_stacked": args.stack}
            said |= {"wall_s": round(time.monotonic() - began)}
            harness.keep(rows, args.out, COLUMNS, **said)


if __name__ == "__main__":
    main()
