"""The command line.

python -m fedlib methods
        all methods, their papers, what they do
python -m fedlib show FedAvg
        card, hyper-parameters, source of every value
python -m fedlib run FedAvg synthetic:alpha=.5,beta=.5  one method on one task
python -m fedlib run fedga/synthetic                    a study of params.yaml
python -m fedlib table fedga "Table 5"
        what the paper prints, what we got, the verdict
python -m fedlib cite FedAvg                            BibTeX
python -m fedlib evidence check
        the stored runs: compute, pack, check, verify
python -m fedlib deploy --help
        a federation over a network: keys, server, clients
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import torch

from ..core import engine, errors
from ..core.errors import nearest
from ..deploy import command
from ..methods import METHODS
from ..methods.cite import cite
from ..methods.make import make
from ..study import TIERS
from .report import columns, permitted, plain, quoted, report
from .text import Mistake, known, parse_settings, parse_task, pick

ROOT = Path(__file__).resolve().parents[2]


# ---------------------------------------------------------------- commands
def methods(args):
    """list all methods"""
    rows = [("method", "paper", "")]
    for name, m in METHODS.items():
        rows.append(
            (
                name,
                f"{m.card.authors}, {m.card.venue} {m.card.year}" if m.card else "-",
                m.card.line if m.card else "",
            )
        )
    print(columns(rows))


def show(args):
    """explain one method"""
    name, m = args.method, known(args.method)
    if m.card:
        c = m.card
        print(
            (
                f"{name}: {c.line}\n\n"
                f"{c.authors.rstrip('.')}. {c.title}. {c.venue} {c.year}. {c.url}"
            ).rstrip()
            + (
                "\n"
                f"{c.status} implementation; BibTeX: python -m fedlib cite "
                f"{quoted(name)}\n"
            )
        )
    print(inspect.getdoc(m) or "", end="\n\n")
    hps = [f for f in fields(m) if "what" in f.metadata]
    wide = max(len(f"{f.name} = {plain(f.default)}") for f in hps)
    for f in hps:
        d, head = f.metadata, f"{f.name} = {plain(f.default)}"
        facts = {
            "permitted": permitted(d),
            "searched": ", ".join(map(plain, d["grid"] or ())),
            "source": d["source"],
        }
        print(
            f"  {head:{wide}}  {d['what']}\n  {'':{wide}}  "
            + "; ".join(f"{k} {v}" for k, v in facts.items() if v)
        )
    who = (
        "all clients train in every round"
        if m.who == "all"
        else "the sampled clients train"
    )
    hear = (
        "all clients receive the model"
        if m.download == "all"
        else "those that train receive the model"
    )
    print(
        f"\n{who}; {hear}"
        + ("; clients need validation rows" if m.needs_val else "")
        + f"\nsource: {inspect.getfile(m).removeprefix(str(ROOT) + '/')}"
    )


def run(args):
    """run one method on one task, or a study of params.yaml"""
    if args.task is None:
        return study(args)
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
    rec = engine.run(
        method,
        task,
        50 if args.rounds is None else args.rounds,
        seed=args.seed or 0,
        cohort=args.cohort,
        every=args.every or 1,
        guests=bool(task.guests),
        how=args.how,
        folder=args.folder,
        device=device,
        threads=threads_for(task, device, args.how)
        if args.threads is None
        else args.threads,
    )
    report(args.method, task, rec)


def study(args):
    """Run what is missing of a study, print one table per measure."""
    from ..study import experiment

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
    changes = {
        k: getattr(args, k)
        for k in ("rounds", "cohort", "every")
        if getattr(args, k) is not None
    }
    done = experiment.study(
        paper,
        name,
        args.tier,
        ROOT / "params.yaml",
        ROOT / "runs",
        executor=args.scheduler,
        **changes,
    )
    if args.keep:
        experiment.keep(done, args.keep)
        print(f"kept {args.keep}\n")
    for measure in experiment.MEASURES:
        print(
            f"{paper}/{name}, tier {done.tier}: {measure}\n\n"
            f"{done.table(measure).round(3).to_string(na_rep='')}\n"
        )


def table(args):
    """print a table of a paper: reported, ours, verdict"""
    import pandas as pd

    path = ROOT / "results" / "ledger.csv"
    if not path.exists():
        raise Mistake(
            f"{path.relative_to(ROOT)} is missing: make it with "
            "`python -m repro.ledger`"
        )
    t = pd.read_csv(path, dtype=str, keep_default_na=False)
    t = t[t.paper == pick(args.paper, t.paper.unique(), "paper")]
    t = t[
        t.artefact
        == pick(args.artefact, t.artefact.unique(), f"artefact of {args.paper}")
    ]
    print(f"{args.paper}, {t.artefact.iloc[0]}\n")
    rows = [
        (
            "data set",
            "method",
            "metric",
            "setting",
            "reported",
            "ours",
            "seeds",
            "data",
            "tier",
            "verdict",
        )
    ]
    for r in t.itertuples():
        spread = f" ± {r.reported_spread}" if r.reported_spread else ""
        between = f" [{r.ours_lo}, {r.ours_hi}]" if r.ours_lo else ""
        rows.append(
            (
                r.dataset,
                r.method,
                r.metric,
                r.setting,
                (r.reported or "-") + spread,
                (r.ours or "-") + between,
                r.n_seeds or "-",
                r.data or "-",
                r.tier or "-",
                r.verdict,
            )
        )
    print(columns(rows))


def bibtex(args):
    """print BibTeX of methods' papers"""
    print(cite(*args.methods))


def evidence(args):
    """compute, pack, check or verify the stored runs of the studies"""
    from ..study import audit

    with contextlib.chdir(ROOT):
        audit.command(args)


def deploy(args):
    """run a federation over a network: its keys, its server, its clients"""
    torch.set_num_threads(1)
    command.run(args)


def device_of(name):
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
class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (--help explains)\n")


COMMANDS = {
    "methods": methods,
    "show": show,
    "run": run,
    "table": table,
    "cite": bibtex,
    "evidence": evidence,
    "deploy": deploy,
}


def parser():
    p = Parser(
        prog="python -m fedlib",
        description="Fairness and personalisation in federated learning.",
        epilog=__doc__.partition("\n")[2],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sub = p.add_subparsers(dest="command", required=True, metavar="command")
    at = {
        name: sub.add_parser(name, help=f.__doc__, description=f.__doc__)
        for name, f in COMMANDS.items()
    }
    at["show"].add_argument("method")
    r = at["run"]
    r.add_argument("method", help="a method; or a study of params.yaml, as paper/study")
    r.add_argument(
        "task",
        nargs="?",
        help="source:key=value,...  as synthetic:alpha=.5,beta=.5 or "
        "digits:clients=10,dirichlet=.3 or glyphs:n=2000,network=CNN",
    )
    r.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a hyper-parameter; repeatable",
    )
    r.add_argument("--rounds", type=int, help="50 unless told; a study's own")
    r.add_argument("--cohort", type=int, help="clients per round (all)")
    r.add_argument(
        "--seed", type=int, help="of initial weights, cohorts and batches (0)"
    )
    r.add_argument("--every", type=int, help="evaluate every so many rounds (1)")
    r.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="where to compute (cuda if there is one)",
    )
    r.add_argument(
        "--how",
        choices=("loop", "vmap"),
        help="clients one after another, or batched; never changes a result",
    )
    r.add_argument(
        "--threads",
        type=int,
        help=(
            "clients trained at once; changes no bit (one per core for "
            "convolutions, else 1)"
        ),
    )
    r.add_argument(
        "--tier", choices=TIERS, help="size of a study (the one in params.yaml)"
    )
    r.add_argument(
        "--scheduler",
        metavar="tcp://HOST:PORT",
        help="compute a study on this Dask cluster ($FEDLIB_SCHEDULER)",
    )
    r.add_argument(
        "--folder", help="keep the record there; a killed run continues from it"
    )
    r.add_argument(
        "--keep",
        metavar="FILE",
        help="of a study: also write every seed's numbers there, as csv",
    )
    at["table"].add_argument("paper")
    at["table"].add_argument("artefact", help='as "Table 5"')
    at["cite"].add_argument("methods", nargs="+", metavar="METHOD")
    e = at["evidence"]
    e.add_argument("what", choices=("compute", "pack", "check", "verify"))
    e.add_argument(
        "names", nargs="*", metavar="PAPER[/STUDY]", help="some papers or studies only"
    )
    e.add_argument("--workers", type=int, help="compute: processes (one per core)")
    e.add_argument(
        "--anew",
        action="store_true",
        help="pack: what runs/ has goes before what is packed already",
    )
    e.add_argument("--sample", type=int, default=20, help="verify: how many runs (20)")
    e.add_argument("--seed", type=int, default=0, help="verify: which ones (0)")
    e.add_argument(
        "--write",
        action="store_true",
        help="verify: keep the answer in results/audit.csv, which the book prints",
    )
    command.add(at["deploy"])
    return p


def main(argv=None):
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
            raise Mistake(
                f"unknown command {argv[0]!r}{nearest(argv[0], COMMANDS)} (known: "
                f"{', '.join(COMMANDS)})"
            )
        args = parser().parse_args(argv)
        COMMANDS[args.command](args)
    except BrokenPipeError:  # as in `... | head`
        return 1
    except (ValueError, OSError, errors.ClientError) as e:
        print(f"python -m fedlib: {textwrap.shorten(str(e), 600)}", file=sys.stderr)
        return 2
    return 0
