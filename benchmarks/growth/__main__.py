"""Ask every point in turns; write the table, the fits, what a million clients need."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import SimpleNamespace

import torch

from fedlib.core.clients import cohort_of

from .. import harness
from . import __doc__ as about
from .fit import METHODS, fits, needed, parameters
from .points import CLIENTS, KINDS, Point, federation, seeds

COLUMNS = ["axis", "method", "measure", "x", "clients", "repetitions", "median", "low"]
COLUMNS += ["high", "mib", "note", "each"]
AXES = ("clients", "cohort", "parameters", "seeds")
STACK = 8  # seeds that are stacked at most


def plan(axis, args):
    """[(function and its arguments, name of the curve, x, clients)] of an axis."""
    if axis == "seeds":
        some = [
            (k, S) for k in KINDS for S in args.seeds if k != "stacked" or S <= STACK
        ]
        return [((seeds, k, S, args.rounds), k, S, CLIENTS) for k, S in some]
    points, C = [], args.clients_of_cohort
    for m in METHODS:
        if axis == "clients":
            points += [Point(axis, m, x, x, min(10, x), every=11) for x in args.clients]
        elif axis == "cohort":
            points += [Point(axis, m, x, C, x) for x in args.cohort]
        else:
            nets = [(f"mlp-{h}", 0) for h in args.widths]
            nets += [] if args.no_resnet else [("resnet18", 2)]
            points += [Point(axis, m, parameters(n), 10, 10, n, e) for n, e in nets]
    return [((federation, p, args.seconds), p.label, p.x, p.clients) for p in points]


def measure(axis, args):
    """All rows of an axis. Every process answers once to get warm, then in turns; a
    dear one (more than --most CPU seconds) twice only.
    """
    todo = plan(axis, args)
    answers, notes = [[] for _ in todo], [""] * len(todo)
    with ExitStack() as stack:
        process = lambda f, *more: harness.process(f, *more, limit=args.limit)
        asks = [stack.enter_context(process(*what)) for what, *_ in todo]
        for k in range(args.reps + 1):
            for i, ask in enumerate(asks):
                spent = sum(v for a in answers[i] for v in a.values())
                if not notes[i] and (k <= 2 or spent <= args.most):
                    try:
                        answers[i].append(ask())
                    except (RuntimeError, TimeoutError) as e:
                        notes[i] = str(e)
    rows = []
    for (_, method, x, clients), found, note in zip(todo, answers, notes):
        whole = "mib: the workers as a whole" if method == "two processes" else ""
        same = {"axis": axis, "method": method, "x": x, "clients": clients}
        same |= {
            "note": note or whole,
            "mib": max((a["mib"] for a in found), default=None),
        }
        rows += rows_of(same, found[1:]) or [same]
    return rows + [draws(C, args.reps) for C in args.draws if axis == "clients"]


def numbers(v):
    """The columns of a row that hold numbers."""
    return harness.spread(v, "median") | {"each": " ".join(f"{s:.5g}" for s in v)}


def rows_of(same, answers):
    """A row per measure of one point."""
    values = {k: [a[k] for a in answers] for k in [*answers[:1], {}][0] if k != "mib"}
    if "start" in values:
        values["start"] = values.pop("start")[:1]
    return [same | {"measure": k} | numbers(v) for k, v in values.items()]


def draws(C, reps):
    """The row of drawing ten of C clients, as every round does."""
    method, task = SimpleNamespace(who="sample"), SimpleNamespace(C=C)
    f = lambda n: [cohort_of(method, task, 0, t, 10) for t in range(n)] and None
    seconds = [1 / r for r in harness.interleave({"draw": f}, reps, 0.05)["draw"]]
    row = {"axis": "clients", "method": "drawing the cohort", "measure": "draw"}
    return row | {"x": C, "clients": C} | numbers(seconds)


def options():
    p = harness.parser("growth", about, reps=5, seconds=0.2)
    p.add_argument("--axes", nargs="+", choices=AXES, default=AXES)
    for name, default, what in (
        ("--clients", [10, 30, 100, 300, 1000, 3000, 10000], "clients, cohort 10"),
        ("--cohort", [10, 30, 100, 300, 1000], "clients in a round"),
        ("--widths", [1, 4, 20, 100, 500, 2500, 12600], "of the MLP 784-WIDTH-10"),
        ("--seeds", [1, 2, 4, 8, 16], f"runs; stacked up to {STACK}"),
        ("--draws", [10**3, 10**4, 10**5, 10**6], "clients of whom a cohort is drawn"),
    ):
        p.add_argument(name, type=int, nargs="+", default=default, help=what)
    p.add_argument("--clients-of-cohort", type=int, default=1000, help="of so many")
    p.add_argument("--no-resnet", action="store_true")
    p.add_argument("--rounds", type=int, default=20, help="of a run of one seed")
    p.add_argument(
        "--most", type=float, default=8.0, help="CPU seconds, then two repetitions"
    )
    p.add_argument("--limit", type=float, default=120.0, help="seconds for an answer")
    p.add_argument(
        "--million", type=int, default=10**6, help="clients to extrapolate to"
    )
    return p


def main():
    args = options().parse_args()
    torch.set_num_threads(1)
    million = args.out.with_name(args.out.stem.replace("growth", "million") + ".csv")
    for axis in dict.fromkeys(args.axes):
        began = time.time()
        rows = measure(axis, args)
        harness.show(rows, COLUMNS[:-1])
        more = {"command": "python -m benchmarks.growth", "order": ("axis", AXES)}
        more |= {"listed": "axes", "wall_s": round(time.time() - began)}
        table = harness.keep(rows, args.out, COLUMNS, "axis", **more)
        fit = args.out.with_name(args.out.stem + "-fit.csv")
        for t, path in ((fits(table), fit), (needed(table, args.million), million)):
            t.to_csv(path, index=False, float_format="%.5g", lineterminator="\n")


if __name__ == "__main__":
    main()
