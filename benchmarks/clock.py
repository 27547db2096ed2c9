"""CPU seconds, not wall seconds: other work on the machine then costs
noise, not a factor.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def tree_cpu(pid=None):
    """CPU seconds of a process and all its living and reaped descendants
    (Linux; to 1/100 s).
    """
    seen, total = {}, 0.0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has just ended
        seen[int(path.parent.name)] = (
            int(fields[1]),
            sum(map(int, fields[11:15])) / TICK,
        )
    mine, todo = set(), [pid or os.getpid()]
    while todo:
        p = todo.pop()
        mine.add(p)
        todo += [c for c, (parent, _) in seen.items() if parent == p and c not in mine]
    for p in mine:
        total += seen.get(p, (0, 0.0))[1]
    return total


def interleave(variants, reps=5, seconds=1.0, clock=time.process_time):
    """variants {name: f}, f(n) runs n rounds and may return the CPU seconds they
    took -> {name: [rounds per CPU second]}.

    Every repetition visits every variant for about `seconds`, so a slow minute of the
    machine meets all of them.
    """

    def timed(f, n):
        start = clock()
        own = f(n)
        return clock() - start if own is None else own

    rounds = {}
    for name, f in variants.items():
        timed(f, 1)  # warm: allocator, kernels, caches
        once = timed(f, 1)
        rounds[name] = max(1, math.ceil(seconds / max(once, 1e-4)))
    rates = {name: [] for name in variants}
    for _ in range(reps):
        for name, f in variants.items():
            rates[name].append(rounds[name] / timed(f, rounds[name]))
    return rates


def summary(rates, base):
    """[{variant, rate, low, high, times}]: medians; times = median over repetitions of
    the ratio to the variant `base`.
    """
    return [
        {
            "variant": name,
            "rounds_per_cpu_s": statistics.median(r),
            "low": min(r),
            "high": max(r),
            "repetitions": len(r),
            "times_loader": statistics.median(a / b for a, b in zip(r, rates[base])),
        }
        for name, r in rates.items()
    ]


def provenance():
    """What the numbers depend on."""
    import torch

    from fedlib.core.provenance import commit

    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "commit": commit(),
        "load_average": [round(v, 2) for v in os.getloadavg()],
    }
