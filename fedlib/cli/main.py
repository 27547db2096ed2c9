"""The command line.

python -m fedlib methods              all methods, their papers, what they do
python -m fedlib show FedAvg          card, hyper-parameters, source of every value
python -m fedlib run FedAvg synthetic:alpha=.5,beta=.5      one method on one task
python -m fedlib run fedga/synthetic                    a study of params.yaml
python -m fedlib compare FedAvg Ditto --task digits     methods side by side
python -m fedlib data                 all data sets, and which are here; data get NAME
python -m fedlib table fedga "Table 5"    what the paper prints, what we got, the
                                          verdict
python -m fedlib cite FedAvg          BibTeX
python -m fedlib evidence check       the stored runs: compute, pack, check, verify
python -m fedlib deploy --help        a federation over a network: keys, server,
                                      clients
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import shlex
import sys
import tomllib
from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ..core.errors import nearest
from ..core.provenance import version
from ..core.ranges import DRAWS, SEEDS
from ..deploy import command
from ..study import TIERS
from . import complete, exits
from .report import columns, permitted, plain, report
from .text import file, known, parse_settings, parse_task, pick, whole

if not complete.ASKED:  # a shell that completes a word cannot wait for torch
    import torch

    from ..core import engine
    from ..core.task import Task
    from ..methods import METHODS
    from ..methods.cite import cite, paper
    from ..methods.make import make
    from ..study import compare as comparisons
    from ..study import lock

ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------- about methods
def methods(args):
    """list all methods"""
    rows = [("method", "paper", "")]
    for name, m in METHODS.items():
        p = paper(m)
        source = f"{p.authors}, {p.venue} {p.year}" if p else "-"
        rows.append((name, source, m.card.line if m.card else ""))
    print(columns(rows))


def show(args):
    """explain one method"""
    name, m = args.method, known(args.method)
    if c := m.card:
        print(f"{name}: {c.line}", paper(m) or "", sep="\n\n")
        cited = f"BibTeX: python -m fedlib cite {shlex.quote(name)}"
        print(f"{c.status} implementation; {cited}\n")
    print(inspect.getdoc(m) or "", hyper_text(m), sep="\n\n", end="\n\n")
    who = "all clients train" if m.who == "all" else "the sampled clients train"
    down = "all clients receive" if m.download == "all" else "those that train receive"
    need = "; clients need validation rows" if m.needs_val else ""
    print(f"{who} in a round; {down} the model{need}")
    print(f"source: {inspect.getfile(m).removeprefix(f'{ROOT}/')}")


def hyper_text(m):
    """A method's hyper-parameters, two lines each."""
    hyper = {f"{f.name} = {plain(f.default)}": f.metadata for f in fields(m)}
    hyper = {head: d for head, d in hyper.items() if "what" in d}
    wide, lines = max(map(len, hyper)), []
    for head, d in hyper.items():
        grid = ", ".join(map(plain, d["grid"] or ()))
        facts = {"permitted": permitted(d), "searched": grid, "source": d["source"]}
        words = "; ".join(f"{k} {v}" for k, v in facts.items() if v)
        lines += [f"  {head:{wide}}  {d['what']}", f"  {'':{wide}}  {words}"]
    return "\n".join(lines)


def bibtex(args):
    """print BibTeX of methods' papers"""
    print(cite(*args.methods))


# ---------------------------------------------------------------- runs
def run(args):
    """run one method on one task, or a study of params.yaml"""
    if args.task is None:
        return study(args)
    at = f"run {args.method} {args.task}"
    refuse(args, at, ("keep", "tier", "scheduler"), "a study, as `run fedga/synthetic`")
    settings = parse_settings(args.set)
    known(args.method)
    torch.set_num_threads(1)  # a second thread costs more than it brings
    task = parse_task(args.task)
    usual = {"rounds": 50, "seed": 0, "cohort": None, "every": 1}
    usual |= {"how": None, "device": None, "folder": None}
    usual |= {"threads": threads_for(task, args.device, args.how)}
    given = {k: getattr(args, k) for k in usual if getattr(args, k) is not None}
    how = usual | given | {"guests": bool(task.guests)}
    method = make(args.method, task, **settings)
    with lock.within(args.folder):
        record = engine.run(method, task, how.pop("rounds"), **how)
    report(args.method, task, record)


def threads_for(task, device, how):
    """Clients trained at once: one per core where they are convolutions on a CPU (see
    benchmarks/), else one.
    """
    images = any(len(shape) == 4 for shape in task.shapes.values())
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    return len(os.sched_getaffinity(0)) if images and on_cpu and how != "vmap" else 1


def refuse(args, at, flags, what):
    """ValueError for an option that is not for this command, but for `what`."""
    for flag in flags:
        if getattr(args, flag):
            raise ValueError(f"{at} --{flag}: leave it out, it is for {what}")


def study(args):
    """Run what is missing of a study, print one table per measure."""
    # here, since the other commands need no tables of results
    from ..study import experiment, results

    paper, _, name = args.method.partition("/")
    if not name:
        known(args.method)
        example = f"`run {paper} synthetic:alpha=.5,beta=.5`"
        raise ValueError(f"run {paper}: on which task? As in {example}")
    flags = "set", "seed", "device", "how", "folder", "threads"
    refuse(args, f"run {args.method}", flags, "one method on one task")
    refuse_outside(f"run {args.method}", "params.yaml")
    given = {k: getattr(args, k) for k in ("rounds", "cohort", "every")}
    changes = {k: v for k, v in given.items() if v is not None}
    where = {"path": ROOT / "params.yaml", "runs": ROOT / "runs"}
    cluster = {"executor": args.scheduler}
    done = experiment.study(paper, name, args.tier, **where, **cluster, **changes)
    if args.keep:
        results.write_seeds(done, args.keep)
        print(f"kept {args.keep}\n")
    for measure in results.MEASURES:
        numbers = done.table(measure).round(3).to_string(na_rep="")
        print(f"{paper}/{name}, tier {done.tier}: {measure}\n\n{numbers}\n")


def refuse_outside(at, needed):
    """ValueError where this is no checkout: studies and their runs are not
    installed.
    """
    if not (ROOT / needed).exists():
        raise ValueError(
            f"{at}: there is no {needed} in {ROOT}. Studies and their runs are part of "
            "the repository: clone it, `pip install -e .` there, and ask again"
        )


def compare(args):
    """compare methods on your own table, or on a built-in task"""
    settings = {name: [] for name in args.methods}
    for pair in args.set:
        name, _, rest = pair.partition(".")
        settings[pick(name, settings, "method in --set")].append(rest)
    if (args.data is None) == (args.task is None):
        raise ValueError(
            "compare needs a task: give --data FILE --client COLUMN --label COLUMN, or "
            "--task, as in --task digits:clients=10"
        )
    entries = [(name, parse_settings(settings[name])) for name in args.methods]
    task = parse_task(args.task) if args.data is None else task_of(args)
    more = {k: getattr(args, k) for k in ("cohort", "every", "device", "budget")}
    more = {k: v for k, v in more.items() if v is not None}
    more |= {"folder": args.folder, "workers": args.workers, "grid": args.grid or None}
    result = comparisons.compare(entries, task, args.rounds, args.seeds, **more)
    result.call = command_line(args)
    if result.records:
        print(result.ranked().to_string(), *result.cautions(), sep="\n")
        if args.report:
            print(f"\nwritten: {result.report(args.report)}")
        if args.csv:
            result.to_csv(args.csv)
            print(f"written: {args.csv}")
    gaps = "; ".join(result.gaps())
    if result.stopped == "interrupted":
        raise KeyboardInterrupt(gaps.replace("folder=", "--folder"))
    if gaps:
        raise ValueError(f"compare: {gaps}")


# arguments on which the numbers of a comparison hang
SAME = "data client label sensitive features task set rounds seeds cohort every grid "
SAME += "budget"


def command_line(args):
    """The command that gives the same numbers again."""
    words = ["python", "-m", "fedlib", "compare", *args.methods]
    for name in SAME.split():
        value = getattr(args, name)
        for one in value if isinstance(value, list) else [value]:
            if one is True:
                words.append(f"--{name}")
            elif one not in (None, False):
                words += [f"--{name}", str(one)]
    return shlex.join(words)


def task_of(args):
    """The Task of --data, a csv, tsv or parquet file."""
    import pandas as pd  # here, so that the other commands start without it

    read = {".csv": pd.read_csv, ".tsv": pd.read_table, ".parquet": pd.read_parquet}
    kind = Path(args.data).suffix.lower()
    if kind not in read or args.client is None or args.label is None:
        kinds = ", ".join(read)
        needed = f"a file that ends in {kinds}, --client COLUMN and --label COLUMN"
        raise ValueError(f"--data {args.data}: give {needed}")
    given = args.features
    features = None if given is None else [k.strip() for k in given.split(",")]
    return Task.from_frame(
        read[kind](args.data),
        label=args.label,
        client=args.client,
        sensitive=args.sensitive,
        features=features,
    )


# ---------------------------------------------------------------- what is stored
HEAD = ("data set", "method", "metric", "setting", "reported", "ours", "seeds", "data")


def table(args):
    """print a table of a paper: reported, ours, verdict"""
    import pandas as pd  # here, so that the other commands start without it

    refuse_outside("table", "results/ledger.csv")
    path = ROOT / "results" / "ledger.csv"
    t = pd.read_csv(path, dtype=str, keep_default_na=False)
    t = t[t.paper == pick(args.paper, t.paper.unique(), "paper")]
    artefacts = t.artefact.unique()
    t = t[t.artefact == pick(args.artefact, artefacts, f"artefact of {args.paper}")]
    print(f"{args.paper}, {t.artefact.iloc[0]}\n")
    print(columns([(*HEAD, "tier", "verdict"), *map(ledger_row, t.itertuples())]))


def ledger_row(r):
    """The cells of one row of the ledger."""
    spread = f" ± {r.reported_spread}" if r.reported_spread else ""
    between = f" [{r.ours_lo}, {r.ours_hi}]" if r.ours_lo else ""
    reported, ours = (r.reported or "-") + spread, (r.ours or "-") + between
    what = (r.dataset, r.method, r.metric, r.setting, reported, ours)
    return (*what, r.n_seeds or "-", r.data or "-", r.tier or "-", r.verdict)


def evidence(args):
    """compute, pack, check or verify the stored runs of the studies"""
    from ..study import audit  # here, so that the other commands start without it

    refuse_outside("evidence", "params.yaml")
    with contextlib.chdir(ROOT):
        audit.command(args)


def data(args):
    """list all data sets, or get the files of some"""
    from ..data import get  # here, so that the other commands start without it

    if args.do is None:
        print(columns(get.table(args.root)))
        print("\npython -m fedlib data get NAME fetches files where they are missing")
        return
    if not args.names:
        raise ValueError("data get: which? As in `data get cifar10`; `data` lists them")
    for name in args.names:
        if get.entry(name).by:
            print(f"{name}: nothing to get, {get.status(name, args.root)}")
            continue
        files = get.get(name, args.root, args.mirror)
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        print(f"{name}: {files[0]}{more}")


def deploy(args):
    """run a federation over a network: its keys, its server, its clients"""
    torch.set_num_threads(1)
    command.run(args)


# ---------------------------------------------------------------- arguments
class Once(argparse.Action):
    """Store the value of an option; a second one would replace it in silence."""

    def __call__(self, parser, namespace, values, option_string=None):
        given = namespace.__dict__.setdefault("given", set())
        if option_string is not None and self.dest in given:
            parser.error(f"{option_string} is given twice; give it once")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.register("action", None, Once)

    def error(self, message):
        raise ValueError(f"{message} (`{self.prog} --help` explains)")


GROUP = "fedlib.commands"
COMMANDS = {
    "methods": methods,
    "show": show,
    "run": run,
    "compare": compare,
    "data": data,
    "table": table,
    "cite": bibtex,
    "evidence": evidence,
    "deploy": deploy,
}


def further():
    """{name: entry point} of the commands that other packages add.

    An entry point is a function add(parser) that returns what the command runs. Of a
    checkout those of its pyproject.toml count, whenever it was installed.
    """
    points, file = (
        {e.name: e for e in entry_points(group=GROUP)},
        ROOT / "pyproject.toml",
    )
    if file.is_file():
        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
        own = project.get("entry-points", {}).get(GROUP, {})
        points |= {name: EntryPoint(name, v, GROUP) for name, v in own.items()}
    return {name: e for name, e in points.items() if name not in COMMANDS}


def program():
    """How this program was called."""
    return "fedlib" if Path(sys.argv[0]).stem == "fedlib" else "python -m fedlib"


def parser():
    p = Parser(
        prog=program(),
        description="Fairness and personalisation in federated learning.",
        epilog=__doc__.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    debug = "show where a mistake was found, as a traceback; anywhere on the line"
    p.add_argument("--debug", action="store_true", help=debug)
    p.add_argument("--version", action="version", version=f"fedlib {version()}")
    sub = p.add_subparsers(dest="command", metavar="command")
    at = {
        name: sub.add_parser(name, help=f.__doc__, description=f.__doc__)
        for name, f in COMMANDS.items()
    }
    at["show"].add_argument("method").completer = complete.methods
    at["table"].add_argument("paper").completer = complete.papers
    at["table"].add_argument("artefact", help='as "Table 5"')
    cited = at["cite"].add_argument("methods", nargs="+", metavar="METHOD")
    cited.completer = complete.methods
    arguments_of_run(at["run"].add_argument)
    arguments_of_compare(at["compare"].add_argument)
    arguments_of_evidence(at["evidence"].add_argument)
    arguments_of_data(at["data"].add_argument)
    command.add(at["deploy"])
    for name, point in further().items():
        add = point.load()
        one = sub.add_parser(name, help=add.__doc__, description=add.__doc__)
        one.set_defaults(act=add(one))
    return p


def arguments_of_run(add):
    method = add("method", help="a method; or a study of params.yaml, as paper/study")
    method.completer = complete.methods_and_studies
    example = (
        "source:key=value,...  as synthetic:alpha=.5,beta=.5 or glyphs:network=CNN"
    )
    add("task", nargs="?", help=example).completer = complete.sources
    one = "a hyper-parameter; repeatable"
    add("--set", action="append", default=[], metavar="NAME=VALUE", help=one)
    add("--rounds", type=whole(0), help="50 unless told; a study's own")
    add("--cohort", type=whole(1), help="clients per round (all)")
    seeds = "of initial weights, cohorts and batches (0)"
    add("--seed", type=whole(0, SEEDS), help=seeds)
    add("--every", type=whole(1), help="evaluate every so many rounds (1)")
    where = "where to compute (cuda if there is one)"
    add("--device", choices=("cpu", "cuda"), help=where)
    how = "clients one after another, or batched; never changes a result"
    add("--how", choices=("loop", "vmap"), help=how)
    many = "clients trained at once; changes no bit (one per core for convolutions)"
    add("--threads", type=whole(1, 10**4), help=many)
    add("--tier", choices=TIERS, help="size of a study (the one in params.yaml)")
    cluster = "compute a study on this Dask cluster ($FEDLIB_SCHEDULER)"
    add("--scheduler", metavar="tcp://HOST:PORT", help=cluster)
    add("--folder", help="keep the record there; a killed run continues from it")
    seeds = "of a study: also write every seed's numbers there, as csv"
    add("--keep", type=file, metavar="FILE", help=seeds)


def arguments_of_compare(add):
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
    grid = "choose hyper-parameters on validation rows, from the methods' own values"
    add("--grid", action="store_true", help=grid)
    add("--budget", type=int, help="with --grid: configurations of each method (8)")
    add("--folder", help="keep the runs there; the same command goes on")
    add("--workers", type=int, default=1, help="processes (1); never changes a number")
    add("--device", choices=("cpu", "cuda"), help="where to compute")
    page = "write a page that answers, as report.html"
    add("--report", type=file, metavar="FILE", help=page)
    rows = "write one row per method, seed and client"
    add("--csv", type=file, metavar="FILE", help=rows)


def arguments_of_evidence(add):
    add("what", choices=("compute", "pack", "check", "verify"))
    some = "some papers or studies only"
    add("names", nargs="*", metavar="PAPER[/STUDY]", help=some)
    many = "processes; compute: one per core, verify: one"
    add("--workers", type=whole(1, 10**4), help=many)
    anew = "pack: what runs/ has goes before what is packed already"
    add("--anew", action="store_true", help=anew)
    add("--sample", type=whole(1), default=20, help="verify: how many runs (20)")
    add("--seed", type=whole(0, DRAWS), default=0, help="verify: which ones (0)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="verify: on it (cpu)")
    kept = "verify: keep the answer in results/audit.csv, or audit-gpu.csv"
    add("--write", action="store_true", help=kept)


def arguments_of_data(add):
    add("do", nargs="?", choices=("get",), help="get the files of some")
    add("names", nargs="*", metavar="NAME", help="data sets")
    add("--root", metavar="DIR", help="data folder ($FEDLIB_DATA, or data)")
    other = "take the files from there, and not from their official address"
    add("--mirror", metavar="URL", help=other)


# ---------------------------------------------------------------- the program
def main(argv=None):
    """Run a command -> its exit status, see `exits`; --debug, anywhere among
    the words, raises what went wrong.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    debug, words = exits.DEBUG in words, [w for w in words if w != exits.DEBUG]
    return exits.status_of(program(), lambda: obey(words), debug)


def obey(words):
    """Do what the words say."""
    if not words:
        return parser().print_help()
    names = [*COMMANDS, *further()]
    if not words[0].startswith("-") and words[0] not in names:
        known = f"{nearest(words[0], names)} (known: {', '.join(names)})"
        raise ValueError(f"unknown command {words[0]!r}{known}")
    p = parser()
    args = p.parse_args(words)
    if args.command is None:
        p.error("which command?")
    act = COMMANDS.get(args.command) or args.act
    try:
        act(args)
    except KeyboardInterrupt as e:
        raise KeyboardInterrupt(str(e) or stopped(args)) from None


KEPT = {  # what Ctrl-C leaves of a command that goes on when it is given again
    "study": "finished runs are kept in runs/",
    "compute": "finished runs are kept in runs/",
    "pack": "studies that are packed stay so",
    "run": "finished rounds are kept in --folder",
    "compare": "finished rounds are kept in --folder",
    "data": "what has arrived is kept",
}


def stopped(args):
    """What to say of a command that was stopped by Ctrl-C."""
    what = getattr(args, "what", args.command)
    if what == "run" and args.task is None:
        what = "study"
    if what in ("run", "compare") and args.folder is None:
        return "stopped, and nothing is kept; with --folder the same command goes on"
    on = f"; {KEPT[what]}, and the same command goes on" if what in KEPT else ""
    return f"stopped{on}"


def entry():
    """The command `fedlib` of an installed package."""
    if complete.ASKED:
        complete.answer(parser())
    if sys.stdout is not None:  # a terminal may lack the letter of a name
        sys.stdout.reconfigure(errors="backslashreplace")
    exits.name_warnings(program())
    sys.exit(main())
