"""The command line: a command is a function, its arguments are its parameters. It
imports what it needs: the others need not wait for torch."""

from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Literal

import fedlib

from ..core.errors import check_whole, known, refuse_if
from ..deploy import command
from . import program

Device = Literal["cpu", "cuda"]


def methods():
    """list all methods"""
    for name, m in fedlib.METHODS.items():
        print(f"{name:16}  {m.card.line if m.card else ''}".rstrip())


def show(method):
    """explain one method: its hyper-parameters, and BibTeX of its paper"""
    from ..methods.make import named

    m = named(method)
    print(f"{method}: {m.card.line if m.card else ''}\n\n{m.__doc__}\n")
    for f in fields(m):
        if f.metadata:
            more = (k for k in ("range", "choices", "grid", "source") if f.metadata[k])
            facts = f.metadata["what"], *(f"{k} {f.metadata[k]}" for k in more)
            print(f"  {f.name} = {f.default}:", "; ".join(facts))
    bib = fedlib.cite(method) if m.card else ""
    print(f"\nsource: {m.__module__}\n{m.waits}\n{bib}")


def run(
    method,
    task,
    *,
    set: tuple = (),
    rounds: int = 50,
    cohort: int = None,
    seed: int = 0,
    every: int = 1,
    device: Device = None,
    folder=None,
):
    """run one method on one task

    task: source:key=value,...  as synthetic:alpha=.5,beta=.5 or glyphs:network=CNN
    set: a hyper-parameter, NAME=VALUE; repeatable
    folder: keep the record there; a killed run continues from it
    """
    import torch

    from ..measures import bias
    from .text import parse_task, settings

    torch.set_num_threads(1)  # a second thread costs more than it brings
    values, on = settings(",".join(set)), parse_task(task)
    made, how = fedlib.make(method, on, **values), {"guests": bool(on.guests)}
    how |= {"seed": seed, "cohort": cohort, "every": every, "device": device}
    record = fedlib.run(made, on, rounds, folder=folder, **how)
    found = {k: f"{100 * v:.1f} %" for k, v in record.summary().items()}
    for key, cells in record.cells.items():
        n = bias.pooled(cells[-1])
        found["/".join(key)] = f"EO {bias.EO(n):.3f}, DP {bias.DP(n):.3f}"
    print(record, *(f"{k:32} {v}" for k, v in found.items()), *on.compared, sep="\n")


def compare(
    method,
    *methods,
    data: Path = None,
    client=None,
    label=None,
    sensitive=None,
    positive=None,
    features=None,
    hidden: int = None,
    task=None,
    set: tuple = (),
    rounds: int = 50,
    seeds: int = 3,
    cohort: int = None,
    search: int = 0,
    folder=None,
    workers: int = 1,
    report: Path = None,
):
    """compare methods on your own table, or on a built-in task

    data: your rows: a file that ends in .csv, .tsv or .parquet
    client: column: whose row it is
    sensitive: column: the group of a row's person, as sex
    positive: the labels that are good for a person, A,B (the second)
    features: columns: the inputs, A,B (all others)
    hidden: units of a hidden layer; of a table without one it is softmax regression
    task: a built-in task instead, as digits:clients=10,dirichlet=.3
    set: a hyper-parameter, METHOD.NAME=VALUE, as FedGA.alpha=3; repeatable
    search: settings of each method to try first, its step among them, as 16
    report: write a page that answers, as report.html
    """
    from ..core.userdata import read
    from .text import parse_task, settings

    needed = "give --data FILE --client COLUMN --label COLUMN, or --task digits"
    refuse_if((data is None) == (task is None), needed)
    if report:
        report.open("a").close()  # can it be written? Not to be found out after hours
    own = {name: [] for name in (method, *methods)}
    for pair in set:
        name, _, rest = pair.partition(".")
        known(own, "method in --set", name).append(rest)
    entries = [(name, settings(",".join(own[name]))) for name in (method, *methods)]
    roles = {"label": label, "client": client, "sensitive": sensitive}
    several = {"positive": positive, "features": features}
    roles |= {k: words and words.split(",") for k, words in several.items()}
    on = parse_task(task) if task else fedlib.Task.from_frame(read(data), **roles)
    if hidden:
        on = replace(on, network=fedlib.nets.MLP(on.x.shape[1], hidden, on.K))
    how = {"folder": folder, "workers": workers, "cohort": cohort, "search": search}
    result = fedlib.compare(entries, on, rounds, seeds, **how)
    print(result)
    if report:
        print(f"\nwritten: {result.report(report)}")
    refuse_if(result.failed, f"missing: {', '.join(result.failed)}")


def evidence(
    what: Literal["compute", "pack", "check", "verify"],
    *names,
    tier: Literal["tiny", "small", "paper"] = None,
    anew: bool = False,
    sample: int = 20,
    seed: int = 0,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    dry_run: bool = False,
    write: bool = False,
):
    """compute, pack, check or verify the stored runs of the studies

    names: some papers or studies only, PAPER[/STUDY]
    tier: compute: size of the studies (the one in params.yaml)
    device: auto: compute: convolutions on a GPU, the rest beside it; verify: cpu
    dry_run: compute: say only how much there is to do, and what is missing
    anew: compute what is packed, too; pack what runs/ has before what is packed
    write: verify: keep the answer in results/audit.csv, or audit-gpu.csv
    """
    from ..study import audit

    check_whole("--sample", sample, 1)
    if what == "compute":
        audit.compute(names, tier=tier, device=device, dry_run=dry_run, anew=anew)
    elif what == "pack":
        audit.pack(names, anew=anew)
    elif what == "check":
        wrong = "\n".join(audit.check())
        refuse_if(wrong, wrong)
    else:
        on = "cpu" if device == "auto" else device
        audit.verify(sample, seed, names, on, None, write)


def data(*words):
    """list all data sets, or get the files of some

    words: get NAME ...
    """
    from ..data import get

    for row in [] if words else get.table():
        print("{:14}  {:48}  {:26}  {:36}  {}".format(*row))
    for name in words[1:] if words[:1] == ("get",) else words:
        here = get.entry(name).by != "files"
        print(f"{name}:", *([get.status(name)] if here else get.get(name)))


COMMANDS = {f.__name__: f for f in (methods, show, run, compare, data, evidence)}
COMMANDS |= {"deploy app": command.app, "deploy keys": command.keys}


def obey(words):
    """Do what the words say: a command, and its arguments."""
    name = next((c for c in COMMANDS if words[: c.count(" ") + 1] == c.split()), None)
    if name:
        return program.obey(COMMANDS[name], words[name.count(" ") + 1 :], name)
    if words == ["--version"]:
        return print("fedlib", fedlib.__version__)
    if words not in ([], ["-h"], ["--help"]):
        known(COMMANDS, "command", words[0])
    for name, f in COMMANDS.items():
        print(f"{program.called()} {name:12}  {f.__doc__.splitlines()[0]}")


main = partial(program.exit_status, obey)  # words -> exit status
