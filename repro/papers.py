"""Which papers are here, and what lies in their folders; asked by the other modules of
repro, by the book and by notebooks.

    papers.found()                     ["fedga", "fedas", ...], in their order
    papers.about("fedga")              papers/fedga/paper.yaml
    papers.module("fft-gp", "claims")  papers/fft-gp/claims.py

A paper is a folder of papers/ with a paper.yaml:

    order       its place among the papers, a number of its own
    title       how it is called
    controls    methods of ours that it does not print
    datasets    data sets of ours that it does not use
    reference   the method that all others are compared with; FedAvg
    views       which model was tested, as a part of a setting that comes first
    axes        the parts of a setting (before "=") that tell of the task: skew, cohort
    switches    those that tell methods apart and not tables
    rule        the selection rule by which its claims and deviations are judged
    wins        by what a setting wins a search, see repro/winners.py; mean and worst
    rivals      what repro/rivals.py lists
    main        {study: the data sets on which it has all methods}
    gate        what its tasks are held against; regime: what its regimes need; both
                are explained in repro/regimes.py
    headline    {studies, methods, settings, metrics} of metrics.json

Beside it lie reported.csv (what it prints), deviations.yaml (where we leave it),
studies.yaml (what we run), seeds.yaml (seeds that open claims have added), metrics.yaml
(what it alone measures), style.yaml (how its methods are drawn), claims.yaml (its
sentences, and ours about it), artefacts.yaml (its tables and figures), and the module
claims.py (tests that follow no pattern). No module of a paper imports one of another
paper, so that a folder can be taken away.
"""

import functools
import importlib
import importlib.util
import sys
from pathlib import Path

from fedlib.study import studies

HERE = Path(__file__).resolve().parents[1]
FIELDS = "order title controls datasets reference views axes switches rule main gate"
FIELDS = (*FIELDS.split(), "regime", "headline", "wins", "rivals")
NEEDED = ("order", "title", "rule", "main", "headline")


class PaperError(ValueError):
    """A paper that is not here, or a paper.yaml that cannot be used."""


def folder():
    """papers/ of the repository that we work in, else of the one we belong to."""
    return _folder(Path.cwd())


@functools.cache
def _folder(here):
    near = (here, *here.parents)
    root = next((p for p in near if any(p.glob("papers/*/paper.yaml"))), HERE)
    return root / "papers"


def found(where=None):
    """The papers that are here, in the order that they give themselves.

    where: a folder of papers in place of the repository's."""
    return [*_found(Path(where or folder()))]


@functools.cache
def _found(where):
    names = [f.parent.name for f in where.glob("*/paper.yaml")]
    return sorted(names, key=lambda name: about(name, where)["order"])


def about(paper, where=None):
    """What papers/<paper>/paper.yaml says; lists that it does not have are empty."""
    return _read(Path(where or folder()) / paper / "paper.yaml")


# what a text in YAML holds, for all who ask: change nothing in it
parsed = functools.cache(studies.parsed)


@functools.cache
def _read(path):
    if not path.exists():
        here = ", ".join(found(path.parents[1]))
        raise PaperError(f"{path} is missing: here are {here}")
    said = parsed(path.read_text("utf-8"))
    if odd := set(said) - set(FIELDS):
        raise PaperError(f"{path}: unknown field {min(odd)!r}; {', '.join(FIELDS)}")
    if lost := set(NEEDED) - set(said):
        raise PaperError(f"{path}: {min(lost)} is missing")
    lists = ("controls", "datasets", "views", "axes", "switches")
    usual = {"reference": "FedAvg", "gate": {}, "regime": {}, "wins": ["mean", "worst"]}
    return dict.fromkeys(lists, ()) | usual | said


def each(field):
    """{paper: what its paper.yaml says of a field}, for all papers that are here."""
    return {paper: about(paper)[field] for paper in found()}


def union(*fields):
    """What the lists of some fields hold, of all papers together, without doubles."""
    every = [x for field in fields for given in each(field).values() for x in given]
    return tuple(dict.fromkeys(every))


@functools.cache
def main_study(paper, dataset):
    """The study with all methods on a data set; "main" where the paper names none."""
    studies = about(paper)["main"]
    return next((s for s, places in studies.items() if dataset in places), "main")


def module(paper, name):
    """papers/<paper>/<name>.py, imported once as papers.<paper>.<name>.

    A hyphen, which no identifier has, is an underscore there: papers.fft_gp.claims. A
    pool's process that was started where `papers` can be imported unpickles its
    functions."""
    where = folder().resolve()
    if not (path := where / paper / f"{name}.py").exists():
        raise PaperError(f"{path} is missing; papers: {', '.join(found())}")
    _package(where)
    return importlib.import_module(f"papers.{paper.replace('-', '_')}.{name}")


def _package(where):
    """Let `papers` be this folder, wherever sys.path may find another one."""
    known = sys.modules.get("papers")
    if known is not None and known.__file__ == str(where / "__init__.py"):
        return
    for other in [m for m in sys.modules if m.partition(".")[0] == "papers"]:
        del sys.modules[other]
    sys.meta_path[:] = [
        f for f in sys.meta_path if getattr(f, "__module__", "") != "papers"
    ]
    spec = importlib.util.spec_from_file_location("papers", where / "__init__.py")
    made = sys.modules["papers"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
