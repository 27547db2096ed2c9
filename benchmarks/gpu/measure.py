"""One case: check each variant against the loop, then let them take turns."""

from __future__ import annotations

import math
import statistics
import time
from functools import partial

from . import checks, engine, floor
from .setups import SEEN, TARGETS, padded
from .step import options
from .variants import variants

COLUMNS = [
    "case",
    "variant",
    "precision",
    "seeds",
    "ms",
    "low",
    "high",
    "repetitions",
    "with_drawing_ms",
    "times_loop",
    "times_loop_drawn",
    "target",
    "winner",
    "floor_ms",
    "floor_of",
    "times_floor",
    "difference_64",
    "difference_32",
    "note",
]


def compared(setup, v, reference):
    """(f, difference in float64 or None, difference in float32) after one round;
    ValueError where it is not the loop.
    """
    with options(v.precision, v.pixels):
        d64 = None
        if v.precision == "float32":
            d64 = checks.apart(v.make(setup.double())[1](), reference[1])
            if not d64 < checks.EXACT:
                raise ValueError(
                    f"not timed: after one round in float64 it is {d64:.1e} "
                    "from the loop"
                )
        f, once = v.make(setup)
        d32 = checks.apart(once(), reference[0])
        if not d32 < checks.NEAR and v.precision == "float32":
            raise ValueError(
                f"not timed: after one round in float32 it is {d32:.1e} from the loop"
            )
    return f, d64, d32


def drawing(setup):
    """Wall seconds of drawing a round's batches,
    which variants beside the engine do beforehand.
    """
    began = time.perf_counter()
    for t in range(SEEN):
        padded(setup, setup.plan(t))
    return (time.perf_counter() - began) / SEEN


def measure(setup, reach, left, reps, seconds, S):
    """The rows of a case.

    reach: see `floor.machine`; left() -> seconds that may still be spent.
    """
    rows, ready = [], []
    with options():
        reference = (
            engine.rounds(setup, "loop")[1](),
            engine.rounds(setup.double(), "loop")[1](),
        )
    for v in variants(setup, S):
        row = {
            "case": setup.name,
            "variant": v.name,
            "precision": v.precision,
            "seeds": v.seeds,
            "target": TARGETS.get(setup.name),
        }
        rows.append(row)
        if v.cuda and setup.device.type != "cuda":
            row["note"] = "needs CUDA"
        elif left() < 0:
            row["note"] = "not tried: the budget is spent"
        else:
            try:
                f, row["difference_64"], row["difference_32"] = compared(
                    setup, v, reference
                )
                with options(v.precision, v.pixels):
                    f(1)
                    ready.append(
                        (
                            row,
                            v,
                            partial(f, max(1, math.ceil(seconds / max(f(1), 1e-5)))),
                            [],
                        )
                    )
            except Exception as e:  # whatever it is, the next variant may work
                row["note"] = f"{type(e).__name__}: {e}".splitlines()[0][:200]
    for k in range(reps):
        for _, v, f, took in ready:
            if k == 0 or left() > 0:
                with options(v.precision, v.pixels):
                    took.append(f() / f.args[0] / v.seeds)
    finish(ready, floor.work(setup), reach, drawing(setup), setup.linear)
    return rows


def finish(ready, load, reach, draw, linear):
    """Medians, ratios to the loop with and without drawing, the floor, and the winner:
    `rule`. Times are those of one seed.
    """
    loop = next((took for _, v, _, took in ready if v.name == "loop"), None)
    for row, v, _, took in ready:
        own, ms = 0 if v.draws else draw, 1e3 * statistics.median(took)
        least, what = floor.floor(load, reach, v.precision, linear)
        row |= {
            "ms": ms,
            "low": 1e3 * min(took),
            "high": 1e3 * max(took),
            "repetitions": len(took),
            "floor_ms": 1e3 * least,
            "with_drawing_ms": ms + 1e3 * own,
            "floor_of": what,
            "times_floor": ms / 1e3 / least,
        }
        if loop:
            row["times_loop"] = statistics.median(
                a / (b + own) for a, b in zip(loop, took)
            )
            row["times_loop_drawn"] = statistics.median(
                a / b for a, b in zip(loop, took)
            )
    best = rule([row for row, *_ in ready])
    if best:
        best["winner"] = True


def rule(rows, stacked=False):
    """The quickest row that changes no number; of one seed, or of stacked seeds.

    None without any.
    """
    right = [
        r
        for r in rows
        if r.get("times_loop")
        and r["precision"] == "float32"
        and (r["seeds"] > 1) == stacked
    ]
    return max(right, key=lambda r: r["times_loop"], default=None)


def verdict(rows):
    """What the rule picks in each case, beside the target."""
    lines = []
    for case in dict.fromkeys(r["case"] for r in rows):
        for r in (
            rule([r for r in rows if r["case"] == case], many) for many in (False, True)
        ):
            if r:
                target = f", target x{r['target']}" if r["target"] else ""
                lines.append(
                    f"{case}: {r['variant']}, x{r['times_loop']:.1f} of the "
                    f"loop{target} (x{r['times_loop_drawn']:.1f} with batches "
                    f"drawn beforehand); {r['times_floor']:.1f} times the floor of "
                    f"{r['floor_of']}"
                )
    return "\n".join(lines)
