"""The command line: a command is a function, its arguments are its parameters.

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
python -m fedlib deploy --help        a federation over a network: its Flower app,
                                      its keys
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from importlib.metadata import entry_points
from inspect import getdoc, getfile
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

from ..core.errors import check_whole, nearest
from ..core.files import version
from ..deploy import command
from .program import (
    DEBUG,
    Parser,
    add_arguments,
    call,
    called,
    end,
    exit_status,
    summary,
)

# Commands import what they need: the others, and a shell that completes a word, need
# not wait for torch.
ROOT = Path(__file__).resolve().parents[2]
Device = Literal["cpu", "cuda"]


# ---------------------------------------------------------------- about methods
def methods():
    """list all methods"""
    from ..methods import METHODS
    from ..methods.cite import paper

    for name, m in METHODS.items():
        p = paper(m)
        source = f"{p.authors}, {p.venue} {p.year}" if p else "-"
        print(f"{name:16}  {source:48}  {m.card.line if m.card else ''}".rstrip())


def show(method):
    """explain one method"""
    from dataclasses import fields

    from ..methods import METHODS
    from ..methods.cite import paper

    m = METHODS[pick(method, METHODS, "method")]
    print(f"{method}: {m.card.line}\n\n{paper(m)}\n" if m.card else method)
    print(getdoc(m) or "", "\nhyper-parameters:")
    for f in fields(m):
        if "what" in (of := f.metadata):
            print(f"  {f.name} = {f.default}  {of['what']}")
            facts = {"permitted": of.get("choices") or of.get("range")}
            facts |= {"searched": of["grid"], "source": of["source"]}
            print("     ", "; ".join(f"{k} {v}" for k, v in facts.items() if v))
    who = lambda of: "all clients" if of == "all" else "the sampled clients"
    print(f"\n{who(m.who)} train in a round, {who(m.download)} receive the model")
    print(f"source: {getfile(m).removeprefix(f'{ROOT}/')}")


def bibtex(method, *methods):
    """print BibTeX of methods' papers"""
    from ..methods.cite import cite

    print(cite(method, *methods))


def pick(word, words, what):
    """The one of `words` that the user means; case and punctuation do not matter."""
    bare = lambda text: "".join(c for c in text.lower() if c.isalnum())
    found = {bare(w): w for w in words}.get(bare(word))
    if found is None:
        known = f"{nearest(word, words)} (known: {', '.join(words)})"
        raise ValueError(f"unknown {what} {word!r}{known}")
    return found


# ---------------------------------------------------------------- runs
def run(
    method,
    task=None,
    *,
    set: tuple = (),
    rounds: int = 50,
    cohort: int = None,
    seed: int = 0,
    every: int = 1,
    device: Device = None,
    how: Literal["loop", "vmap"] = None,
    threads: int = None,
    folder=None,
):
    """run one method on one task, or a study of params.yaml

    method: a method; or a study of params.yaml, as paper/study
    task: source:key=value,...  as synthetic:alpha=.5,beta=.5 or glyphs:network=CNN
    set: a hyper-parameter, NAME=VALUE; repeatable
    rounds: 50 unless given; a study's own
    cohort: clients per round (all)
    seed: of initial weights, cohorts and batches (0)
    every: evaluate every so many rounds (1)
    device: where to compute (cuda if there is one)
    how: clients one after another, or batched; never changes a result
    threads: clients trained at once; changes no bit (one per core for convolutions)
    folder: keep the record there; a killed run continues from it
    """
    import torch

    from ..core import engine
    from ..methods.make import make
    from ..study import lock
    from .report import report
    from .text import parse_task, settings

    torch.set_num_threads(1)  # a second thread costs more than it brings
    values, on = settings(set), parse_task(task)
    made = make(method, on, **values)
    if threads is None:  # convolutions on a CPU gain by them, see benchmarks/
        images = any(len(shape) == 4 for shape in on.shapes.values())
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        most = len(os.sched_getaffinity(0))
        threads = most if images and on_cpu and how != "vmap" else 1
    options = {"seed": seed, "cohort": cohort, "every": every, "device": device}
    options |= {"how": how, "threads": threads, "folder": folder}
    with lock.within(folder):
        record = engine.run(made, on, rounds, guests=bool(on.guests), **options)
    report(method, on, record)


def study(
    method,
    *,
    tier: Literal["tiny", "small", "paper"] = None,
    rounds: int = None,
    cohort: int = None,
    every: int = None,
    keep=None,
):
    """run what is missing of a study, print one table per measure

    tier: size of a study (the one in params.yaml)
    keep: of a study: also write every seed's numbers to this file, as csv
    """
    from ..study import experiment, results

    paper, _, name = method.partition("/")
    if not name:
        example = f"`run {paper} synthetic:alpha=.5,beta=.5`"
        raise ValueError(f"run {paper}: on which task? As in {example}")
    where = {"path": in_checkout("params.yaml"), "runs": ROOT / "runs"}
    changes = {"rounds": rounds, "cohort": cohort, "every": every}
    changes = {k: v for k, v in changes.items() if v is not None}
    done = experiment.study(paper, name, tier, **where, **changes)
    if keep:
        results.write_seeds(done, keep)
        print(f"kept {keep}\n")
    for measure in results.MEASURES:
        numbers = done.table(measure).round(3).to_string(na_rep="")
        print(f"{method}, tier {done.tier}: {measure}\n\n{numbers}\n")


def in_checkout(file):
    """The path of a file that only a checkout has: studies are not installed."""
    if not (ROOT / file).exists():
        raise ValueError(
            f"there is no {file} in {ROOT}. Studies and their runs are part of the "
            "repository: clone it, `pip install -e .` there, and ask again"
        )
    return ROOT / file


def compare(
    method,
    *methods,
    data=None,
    client=None,
    label=None,
    sensitive=None,
    features=None,
    task=None,
    set: tuple = (),
    rounds: int = 50,
    seeds: int = 3,
    cohort: int = None,
    every: int = None,
    grid: bool = None,
    budget: int = None,
    folder=None,
    workers: int = 1,
    device: Device = None,
    report: Path = None,
    csv: Path = None,
):
    """compare methods on your own table, or on a built-in task

    methods: as FedAvg FedGA Ditto
    data: your rows: a file that ends in .csv, .tsv or .parquet
    client: column: whose row it is
    label: column: what is to be predicted
    sensitive: column: the group of a row's person, as sex
    features: columns to predict from, A,B (all others)
    task: a built-in task instead, as digits:clients=10,dirichlet=.3
    set: a hyper-parameter, METHOD.NAME=VALUE, as FedGA.alpha=3; repeatable
    rounds: 50 unless given
    seeds: how many (3)
    cohort: clients per round (all)
    every: score all clients every so many rounds (1; about 100 times in long runs)
    grid: choose hyper-parameters on validation rows, from the methods' own values
    budget: with --grid: configurations of each method (8)
    folder: keep the runs there; the same command goes on
    workers: processes (1); never changes a number
    device: where to compute
    report: write a page that answers, as report.html
    csv: write one row per method, seed and client
    """
    from ..study import compare as comparisons
    from .text import parse_task, settings

    methods = method, *methods
    if (data is None) == (task is None):
        raise ValueError(
            "compare needs a task: give --data FILE --client COLUMN --label COLUMN, or "
            "--task, as in --task digits:clients=10"
        )
    for file in filter(None, (report, csv)):
        if file.is_dir() or not file.absolute().parent.is_dir():
            raise ValueError(f"{file}: give a file in a folder that exists")
    own = {name: [] for name in methods}
    for pair in set:
        name, _, rest = pair.partition(".")
        own[pick(name, own, "method in --set")].append(rest)
    entries = [(name, settings(own[name])) for name in methods]
    table = {"label": label, "client": client, "sensitive": sensitive}
    table |= {
        "features": [k.strip() for k in features.split(",")] if features else None
    }
    on = parse_task(task) if data is None else task_of(Path(data), **table)
    more = {"cohort": cohort, "every": every, "device": device, "budget": budget}
    more = {k: v for k, v in more.items() if v is not None}
    more |= {"folder": folder, "workers": workers, "grid": grid}
    result = comparisons.compare(entries, on, rounds, seeds, **more)
    result.call = shlex.join(["python", "-m", "fedlib", *sys.argv[1:]])
    if result.records:
        print(result.ranked().to_string(), *result.cautions(), sep="\n")
        if report:
            print(f"\nwritten: {result.report(report)}")
        if csv:
            result.to_csv(csv)
            print(f"written: {csv}")
    gaps = "; ".join(result.gaps())
    if result.stopped == "interrupted":
        raise KeyboardInterrupt(gaps.replace("folder=", "--folder"))
    if gaps:
        raise ValueError(f"compare: {gaps}")


def task_of(file, **columns):
    """The Task of --data; columns: keywords of Task.from_frame."""
    import pandas as pd

    from ..core.task import Task

    read = {".csv": pd.read_csv, ".tsv": pd.read_table, ".parquet": pd.read_parquet}
    if file.suffix not in read or None in (columns["client"], columns["label"]):
        needed = f"a file that ends in {', '.join(read)}, --client and --label COLUMN"
        raise ValueError(f"--data {file}: give {needed}")
    return Task.from_frame(read[file.suffix](file), **columns)


# ---------------------------------------------------------------- what is stored
LEDGER = "dataset method metric setting reported ours ours_lo ours_hi n_seeds data tier"


def table(paper, artefact):
    """print a table of a paper: reported, ours, verdict

    artefact: as "Table 5"
    """
    import pandas as pd

    t = pd.read_csv(in_checkout("results/ledger.csv"), dtype=str, keep_default_na=False)
    t = t[t.paper == pick(paper, t.paper.unique(), "paper")]
    t = t[t.artefact == pick(artefact, t.artefact.unique(), f"artefact of {paper}")]
    print(f"{paper}, {t.artefact.iloc[0]}\n")
    print(t[[*LEDGER.split(), "verdict"]].replace("", "-").to_string(index=False))


def evidence(
    what: Literal["compute", "pack", "check", "verify"],
    *names,
    workers: int = None,
    anew: bool = False,
    sample: int = 20,
    seed: int = 0,
    device: Device = "cpu",
    write: bool = False,
):
    """compute, pack, check or verify the stored runs of the studies

    names: some papers or studies only, PAPER[/STUDY]
    workers: processes; compute: one per core, verify: one
    anew: pack: what runs/ has goes before what is packed already
    sample: verify: how many runs (20)
    seed: verify: which ones (0)
    device: verify: on it (cpu)
    write: verify: keep the answer in results/audit.csv, or audit-gpu.csv
    """
    given = SimpleNamespace(**locals() | {"names": [*names]})
    from ..study import audit

    check_whole("--sample", sample, 1)
    check_whole("--workers", 1 if workers is None else workers, 1)
    in_checkout("params.yaml")
    with contextlib.chdir(ROOT):
        audit.command(given)


def data(do: Literal["get"] = None, *names, root=None, mirror=None):
    """list all data sets, or get the files of some

    do: get the files of some
    names: data sets
    root: data folder ($FEDLIB_DATA, or data)
    mirror: take the files from this address, and not from their official one
    """
    from ..data import get

    if do is None:
        for row in get.table(root):
            print("{:14}  {:48}  {:26}  {:36}  {}".format(*row))
        print("\npython -m fedlib data get NAME fetches files where they are missing")
    elif not names:
        raise ValueError("data get: which? As in `data get cifar10`; `data` lists them")
    for name in names:
        if get.entry(name).by:
            print(f"{name}: nothing to get, {get.status(name, root)}")
        else:
            print(f"{name}:", *get.get(name, root, mirror))


# ---------------------------------------------------------------- the program
COMMANDS = {
    "methods": methods,
    "show": show,
    "run": run,
    "compare": compare,
    "data": data,
    "table": table,
    "cite": bibtex,
    "evidence": evidence,
    "deploy": {"app": command.app, "keys": command.keys},
}


def parser():
    """The parser of all commands, those of other packages included: a function, by the
    entry point group fedlib.commands.
    """
    p = Parser(
        prog=called(),
        description="Fairness and personalisation in federated learning.",
        epilog=__doc__.partition("\n")[2],
    )
    where = "show where a mistake was found, as a traceback; anywhere on the line"
    p.add_argument(DEBUG, action="store_true", help=where)
    p.add_argument("--version", action="version", version=f"fedlib {version()}")
    others = {e.name: e.load() for e in entry_points(group="fedlib.commands")}
    add_commands(p, others | COMMANDS)
    return p


def add_commands(parser, commands):
    """Commands {name: function, or further commands} of a parser."""
    sub = parser.add_subparsers(metavar="command", required=True)
    for name, act in commands.items():
        if isinstance(act, dict):
            add_commands(sub.add_parser(name, help=" and ".join(act)), act)
        else:
            one = sub.add_parser(name, help=summary(act), description=summary(act))
            add_arguments(one, act, *[study] * (act is run))
            one.set_defaults(act=act)


def obey(words):
    """Do what the words say."""
    if not words:
        return parser().print_help()
    given = vars(parser().parse_args(words))
    act = given.pop("act")
    if act is run and given["task"] is None:
        act = study
        del given["task"]
    return call(act, given)


def main(argv=None):
    """Run a command -> its exit status, see fedlib.cli.program."""
    return exit_status(obey, sys.argv[1:] if argv is None else list(argv))


def entry():
    """The command `fedlib` of an installed package."""
    if "_ARGCOMPLETE" in os.environ:  # a shell asks by this variable
        import argcomplete

        argcomplete.autocomplete(parser(), always_complete_options="long")
    end(obey)
