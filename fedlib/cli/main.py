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
import sys
import tomllib
from dataclasses import fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from ..core import ends
from ..core.errors import nearest
from ..core.provenance import version
from ..core.ranges import DRAWS, SEEDS
from ..deploy import command
from ..study import TIERS
from . import compare, complete, data
from .report import columns, permitted, plain, quoted, report
from .text import (
    Mistake,
    count,
    file,
    folder,
    known,
    parse_settings,
    parse_task,
    pick,
)

if not complete.ASKED:  # a shell that completes a word cannot wait for torch
    import torch

    from ..core import engine
    from ..methods import METHODS
    from ..methods.cite import cite, paper
    from ..methods.make import make
    from ..study import lock

ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------- commands
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
    if m.card:
        print(card_text(name, m))
    print(inspect.getdoc(m) or "", end="\n\n")
    print(hyper_text(m), end="\n\n")
    who, receivers = "the sampled clients train", "those that train receive the model"
    if m.who == "all":
        who = "all clients train in every round"
    if m.download == "all":
        receivers = "all clients receive the model"
    need = "; clients need validation rows" if m.needs_val else ""
    print(f"{who}; {receivers}{need}")
    print(f"source: {inspect.getfile(m).removeprefix(str(ROOT) + '/')}")


def card_text(name, m):
    """A method's card: what it is, its paper, and how to cite it."""
    cite = f"BibTeX: python -m fedlib cite {quoted(name)}"
    about = f"{paper(m) or ''}\n{m.card.status} implementation; {cite}".lstrip()
    return f"{name}: {m.card.line}\n\n{about}\n"


def hyper_text(m):
    """A method's hyper-parameters, two lines each."""
    hps = {f"{f.name} = {plain(f.default)}": f.metadata for f in fields(m)}
    hps = {head: d for head, d in hps.items() if "what" in d}
    wide, lines = max(map(len, hps)), []
    for head, d in hps.items():
        facts = {
            "permitted": permitted(d),
            "searched": ", ".join(map(plain, d["grid"] or ())),
            "source": d["source"],
        }
        words = "; ".join(f"{k} {v}" for k, v in facts.items() if v)
        lines += [f"  {head:{wide}}  {d['what']}", f"  {'':{wide}}  {words}"]
    return "\n".join(lines)


def run(args):
    """run one method on one task, or a study of params.yaml"""
    if args.task is None:
        return study(args)
    refuse_of_study(args)
    if args.scheduler:
        raise Mistake(
            f"run {args.method} --scheduler: one run stays on "
            "this machine; a study goes to a cluster, as in "
            f"`run fedga/synthetic --scheduler {args.scheduler}`"
        )
    m, device = known(args.method), device_of(args.device)
    # a second thread costs more than it brings, see benchmarks/
    torch.set_num_threads(1)
    task = parse_task(args.task)
    method = make(args.method, task, **parse_settings(args.set, m))
    threads = args.threads
    if threads is None:
        threads = threads_for(task, device, args.how)
    with lock.within(args.folder):
        rec = engine.run(
            method,
            task,
            50 if args.rounds is None else args.rounds,
            seed=0 if args.seed is None else args.seed,
            cohort=args.cohort,
            every=1 if args.every is None else args.every,
            guests=bool(task.guests),
            how=args.how,
            folder=args.folder,
            device=device,
            threads=threads,
        )
    report(args.method, task, rec)


def refuse_of_study(args):
    """Mistake for an option that only a study has, beside a method and a task."""
    for flag, why in (
        ("keep", "--folder keeps the record of one run"),
        ("tier", "one run has the sizes of its task"),
    ):
        if getattr(args, flag) is not None:
            raise Mistake(
                f"run {args.method} {args.task} --{flag} {getattr(args, flag)}: that "
                f"is for a study, as in `run fedga/synthetic`; {why}"
            )


def study(args):
    """Run what is missing of a study, print one table per measure."""
    # here, since the other commands need no tables of results
    from ..study import experiment, results

    paper, name = paper_and_study(args)
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


def refuse_outside(command, needed):
    """Mistake where this is no checkout: studies and their runs are not installed."""
    if not (ROOT / needed).exists():
        raise Mistake(
            f"{command}: there is no {needed} in {ROOT}. Studies and stored runs are "
            "part of the repository, not of the installed package: clone it, "
            "`pip install -e .` there, and ask again"
        )


def paper_and_study(args):
    """(paper, study) of "paper/study"; Mistake for what a study does not take."""
    paper, _, name = args.method.partition("/")
    if not name and args.method in METHODS:
        raise Mistake(
            f"run {args.method}: on which task? As in "
            f"`run {args.method} synthetic:alpha=.5,beta=.5`"
        )
    if not name:
        raise Mistake(
            f"no method {args.method!r}{nearest(args.method, METHODS)}; a study is "
            "paper/study, as in fedga/synthetic"
        )
    for flag in ("set", "seed", "device", "how", "folder", "threads"):
        if getattr(args, flag) is not None and getattr(args, flag) != []:
            raise Mistake(
                f"run {args.method} --{flag}: a study has its own; change --tier, "
                "--rounds, --cohort or --every"
            )
    return paper, name


HEAD = ("data set", "method", "metric", "setting", "reported", "ours", "seeds", "data")


def table(args):
    """print a table of a paper: reported, ours, verdict"""
    import pandas as pd  # here, so that the other commands start without it

    path = ROOT / "results" / "ledger.csv"
    if not path.exists():
        raise Mistake(
            f"{path.relative_to(ROOT)} is missing: make it with "
            "`python -m repro.ledger`"
        )
    t = pd.read_csv(path, dtype=str, keep_default_na=False)
    t = t[t.paper == pick(args.paper, t.paper.unique(), "paper")]
    artefacts = t.artefact.unique()
    t = t[t.artefact == pick(args.artefact, artefacts, f"artefact of {args.paper}")]
    print(f"{args.paper}, {t.artefact.iloc[0]}\n")
    rows = [ledger_row(r) for r in t.itertuples()]
    print(columns([(*HEAD, "tier", "verdict"), *rows]))


def ledger_row(r):
    """The cells of one row of the ledger."""
    spread = f" ± {r.reported_spread}" if r.reported_spread else ""
    between = f" [{r.ours_lo}, {r.ours_hi}]" if r.ours_lo else ""
    reported, ours = (r.reported or "-") + spread, (r.ours or "-") + between
    what = (r.dataset, r.method, r.metric, r.setting, reported, ours)
    return (*what, r.n_seeds or "-", r.data or "-", r.tier or "-", r.verdict)


def bibtex(args):
    """print BibTeX of methods' papers"""
    print(cite(*args.methods))


def evidence(args):
    """compute, pack, check or verify the stored runs of the studies"""
    from ..study import audit  # here, so that the other commands start without it

    refuse_outside("evidence", "params.yaml")

    device_of(args.device)
    with contextlib.chdir(ROOT):
        audit.command(args)


def deploy(args):
    """run a federation over a network: its keys, its server, its clients"""
    torch.set_num_threads(1)
    command.run(args)


def device_of(name):
    """The device of --device; Mistake where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise Mistake(
            f"--device cuda: torch {torch.__version__} finds no CUDA device here; use "
            "--device cpu"
        )
    return name


def threads_for(task, device, how):
    """Clients trained at once: one per core where they are convolutions on a CPU (see
    benchmarks/), else one.
    """
    images = any(len(shape) == 4 for shape in task.shapes.values())
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    return len(os.sched_getaffinity(0)) if images and on_cpu and how != "vmap" else 1


# ---------------------------------------------------------------- argparse
def program():
    """How this program was called."""
    return "fedlib" if Path(sys.argv[0]).stem == "fedlib" else "python -m fedlib"


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
        raise Mistake(f"{message} (`{self.prog} --help` explains)")


GROUP = "fedlib.commands"
COMMANDS = {
    "methods": methods,
    "show": show,
    "run": run,
    "compare": compare.run,
    "data": data.data,
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
    found, file = entry_points(group=GROUP), ROOT / "pyproject.toml"
    points = {e.name: e for e in found}
    if file.is_file():
        project = tomllib.loads(file.read_text("utf-8")).get("project", {})
        own = project.get("entry-points", {}).get(GROUP, {})
        points |= {name: EntryPoint(name, v, GROUP) for name, v in own.items()}
    return {name: e for name, e in points.items() if name not in COMMANDS}


def parser():
    p = Parser(
        prog=program(),
        description="Fairness and personalisation in federated learning.",
        epilog=__doc__.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole = "show where a mistake was found, as a traceback; anywhere on the line"
    p.add_argument("--debug", action="store_true", help=whole)
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
    arguments_of_run(at["run"])
    compare.add_arguments(at["compare"])
    arguments_of_evidence(at["evidence"])
    command.add(at["deploy"])
    data.add(at["data"])
    for name, point in further().items():
        add = point.load()
        one = sub.add_parser(name, help=add.__doc__, description=add.__doc__)
        one.set_defaults(act=add(one))
    return p


def arguments_of_run(p):
    add = p.add_argument
    method = add("method", help="a method; or a study of params.yaml, as paper/study")
    method.completer = complete.methods_and_studies
    example = (
        "source:key=value,...  as synthetic:alpha=.5,beta=.5 or "
        "digits:clients=10,dirichlet=.3 or glyphs:n=2000,network=CNN"
    )
    add("task", nargs="?", help=example).completer = complete.sources
    one = "a hyper-parameter; repeatable"
    add("--set", action="append", default=[], metavar="NAME=VALUE", help=one)
    add("--rounds", type=count(0), help="50 unless told; a study's own")
    add("--cohort", type=count(1), help="clients per round (all)")
    seeds = "of initial weights, cohorts and batches (0)"
    add("--seed", type=count(0, SEEDS), help=seeds)
    add("--every", type=count(1), help="evaluate every so many rounds (1)")
    where = "where to compute (cuda if there is one)"
    add("--device", choices=("cpu", "cuda"), help=where)
    how = "clients one after another, or batched; never changes a result"
    add("--how", choices=("loop", "vmap"), help=how)
    many = (
        "clients trained at once; changes no bit (one per core for convolutions, "
        "else 1)"
    )
    add("--threads", type=count(1, 10**4), help=many)
    add("--tier", choices=TIERS, help="size of a study (the one in params.yaml)")
    cluster = "compute a study on this Dask cluster ($FEDLIB_SCHEDULER)"
    add("--scheduler", metavar="tcp://HOST:PORT", help=cluster)
    kept = "keep the record there; a killed run continues from it"
    add("--folder", type=folder, help=kept)
    kept = "of a study: also write every seed's numbers there, as csv"
    add("--keep", type=file, metavar="FILE", help=kept)


def arguments_of_evidence(p):
    add = p.add_argument
    add("what", choices=("compute", "pack", "check", "verify"))
    some = "some papers or studies only"
    add("names", nargs="*", metavar="PAPER[/STUDY]", help=some)
    many = "processes; compute: one per core, verify: one"
    add("--workers", type=count(1, 10**4), help=many)
    anew = "pack: what runs/ has goes before what is packed already"
    add("--anew", action="store_true", help=anew)
    add("--sample", type=count(1), default=20, help="verify: how many runs (20)")
    add("--seed", type=count(0, DRAWS), default=0, help="verify: which ones (0)")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="verify: on it (cpu)")
    kept = "verify: keep the answer in results/audit.csv, or audit-gpu.csv"
    add("--write", action="store_true", help=kept)


def main(argv=None):
    """Run a command -> its exit status, see fedlib.core.ends; --debug, anywhere among
    the words, raises what went wrong.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    debug, words = ends.without_debug(words)
    return ends.ended(program(), lambda: obey(words), debug)


def obey(words):
    """Do what the words say."""
    if not words:
        parser().print_help()
        return
    names = [*COMMANDS, *further()]
    if not words[0].startswith("-") and words[0] not in names:
        raise Mistake(
            f"unknown command {words[0]!r}{nearest(words[0], names)} (known: "
            f"{', '.join(names)})"
        )
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
    ends.warn_as(program())
    sys.exit(main())
