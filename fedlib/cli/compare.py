"""python -m fedlib compare: methods side by side, on a table of rows or a built-in
task.

python -m fedlib compare FedAvg FedGA Ditto --data my.csv --client hospital --label y
python -m fedlib compare FedAvg Ditto --task digits:clients=10 --report report.html
"""

from __future__ import annotations

import shlex
from pathlib import Path

from ..core.errors import nearest
from . import complete
from .text import Mistake, known, parse_settings, parse_task

if not complete.ASKED:  # a shell that completes a word cannot wait for torch
    from ..core.task import Task
    from ..study.compare import compare

READ = {".csv": "read_csv", ".tsv": "read_csv", ".parquet": "read_parquet"}
# arguments on which the numbers hang
SAME = (
    *("data", "client", "label", "sensitive", "features", "task", "set"),
    *("rounds", "seeds", "cohort", "every", "grid", "budget"),
)


def run(args):
    """compare methods on your own table, or on a built-in task"""
    settings = settings_of(args.methods, args.set)
    if (args.data is None) == (args.task is None):
        raise Mistake(
            "compare needs a task: give --data FILE --client COLUMN --label COLUMN, or "
            "--task, as in --task digits:clients=10"
        )
    check_report(args.report)
    task = parse_task(args.task) if args.data is None else task_of(args)
    more = {k: getattr(args, k) for k in ("cohort", "every", "device", "budget")}
    result = compare(
        [(name, settings[name]) for name in args.methods],
        task,
        args.rounds,
        args.seeds,
        folder=args.folder,
        workers=args.workers,
        grid=args.grid or None,
        **{k: v for k, v in more.items() if v is not None},
    )
    result.call = command_line(args)
    if result.records:
        print(result.ranked().to_string(), *result.cautions(), sep="\n")
    if result.records and args.report:
        print(f"\nwritten: {result.report(args.report)}")
    if result.records and args.csv:
        result.to_csv(args.csv)
        print(f"written: {args.csv}")
    gaps = result.gaps()
    if result.stopped == "interrupted":
        raise KeyboardInterrupt("; ".join(gaps).replace("folder=", "--folder"))
    if gaps:
        raise Mistake("compare: " + "; ".join(gaps))


def command_line(args):
    """The command that gives the same numbers again."""
    words = ["python", "-m", "fedlib", "compare", *args.methods]
    for name in SAME:
        value = getattr(args, name)
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                words.append(f"--{name}")
            elif one not in (None, False):
                words += [f"--{name}", str(one)]
    return shlex.join(words)


def settings_of(methods, pairs):
    """{method: its hyper-parameters} from ["FedGA.alpha=3"]."""
    for name in methods:
        known(name)
    twice = next((m for i, m in enumerate(methods) if m in methods[:i]), None)
    if twice:
        raise Mistake(f"compare: {twice} is listed twice; leave one out")
    of = {name: [] for name in methods}
    for pair in pairs:
        name, dot, rest = pair.partition(".")
        if not dot or "=" in name:
            raise Mistake(
                f"--set {pair!r}: write METHOD.name=value, as in --set FedGA.alpha=3"
            )
        if name not in of:
            raise Mistake(
                f"--set {pair}: {name!r} is not compared{nearest(name, of)} (compared: "
                f"{', '.join(of)})"
            )
        of[name].append(rest)
    return {name: parse_settings(given, known(name)) for name, given in of.items()}


def check_report(path):
    """Mistake where a report could not be written in the end."""
    if path and (Path(path).is_dir() or not Path(path).absolute().parent.is_dir()):
        raise Mistake(
            f"--report {path}: give a file in a folder that exists, as in report.html"
        )


# ---------------------------------------------------------------- a table of rows
def task_of(args):
    """The Task of --data, with a message for each column that is not there."""
    for flag in ("client", "label"):
        if getattr(args, flag) is None:
            raise Mistake(f"--data {args.data} needs --{flag} COLUMN")
    frame = table(args.data)
    features = None
    if args.features is not None:
        features = [name.strip() for name in args.features.split(",") if name.strip()]
        if not features:
            raise Mistake(f"--features {args.features!r}: name columns, as in age,bmi")
    wanted = [
        *((flag, getattr(args, flag)) for flag in ("client", "label", "sensitive")),
        *(("features", name) for name in features or ()),
    ]
    for flag, name in wanted:
        if name is not None and name not in frame.columns:
            raise Mistake(
                f"--{flag} {name}: {args.data} has no such column"
                f"{nearest(name, frame.columns)} (it has "
                f"{', '.join(map(str, frame.columns[:20]))})"
            )
    return Task.from_frame(
        frame,
        label=args.label,
        client=args.client,
        sensitive=args.sensitive,
        features=features,
    )


def table(path):
    """The rows of a csv, tsv or parquet file."""
    import pandas as pd  # here, so that the other commands start without it

    file = Path(path)
    if not file.is_file():
        near = nearest(file.name, [p.name for p in file.absolute().parent.glob("*.*")])
        raise Mistake(f"--data {path}: there is no such file{near}")
    name = READ.get(file.suffix.lower())
    if name is None:
        raise Mistake(f"--data {path}: give a file that ends in {', '.join(READ)}")
    how = {"sep": "\t"} if file.suffix.lower() == ".tsv" else {}
    try:
        frame = getattr(pd, name)(file, **how)
    except Exception as e:  # whatever a reader raises
        raise Mistake(f"--data {path} cannot be read: {type(e).__name__}: {e}") from e
    if not len(frame):
        raise Mistake(f"--data {path} has no rows")
    return frame


# ---------------------------------------------------------------- argparse
def add_arguments(p):
    """The arguments of the command, on its parser."""
    add = p.add_argument
    add("methods", nargs="+", metavar="METHOD", help="as FedAvg FedGA Ditto")
    add("--data", metavar="FILE", help="your rows: csv, tsv or parquet")
    add("--client", metavar="COLUMN", help="whose row it is")
    add("--label", metavar="COLUMN", help="what is to be predicted")
    add("--sensitive", metavar="COLUMN", help="the group of a row's person, as sex")
    add("--features", metavar="A,B", help="columns to predict from (all others)")
    add("--task", help="a built-in task instead, as digits:clients=10,dirichlet=.3")
    one = "a hyper-parameter, as FedGA.alpha=3; repeatable"
    add("--set", action="append", default=[], metavar="METHOD.NAME=VALUE", help=one)
    add("--rounds", type=int, default=50, help="50 unless told")
    add("--seeds", type=int, default=3, help="how many (3)")
    add("--cohort", type=int, help="clients per round (all)")
    every = "score all clients every so many rounds (1; about 100 times in long runs)"
    add("--every", type=int, help=every)
    tune = "choose hyper-parameters on validation rows, from the methods' own values"
    add("--grid", action="store_true", help=tune)
    add("--budget", type=int, help="with --grid: configurations of each method (8)")
    add("--folder", help="keep the runs there; the same command goes on")
    add("--workers", type=int, default=1, help="processes (1); never changes a number")
    add("--device", choices=("cpu", "cuda"), help="where to compute")
    add("--report", metavar="FILE", help="write a page that answers, as report.html")
    add("--csv", metavar="FILE", help="write one row per method, seed and client")
