"""The tables and figures of the papers: what proves that we made each, and how far we
got; called by repro.ledger. papers/<paper>/artefacts.yaml lists those of a paper, by
the fields of Artefact; `notebook`, one of its notebooks, stands for that one's page.

An artefact is "done" when all its evidence is there, at the paper's sizes and not
from a stand-in; "reduced", with the reason, when something is smaller or missing;
"not run" when there is none. Nothing is typed: figures and tables are looked up below
results/figures (<name>.svg with <name>.json, or <name>.csv), numbers in the
ledger, and what has nothing to compute by its anchor in the source of its page of
the book.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from repro import papers
from repro.names import TIERS

COLUMNS = "paper artefact title status reason tier data page files".split()


@dataclass(frozen=True)
class Artefact:
    """One table or figure, and its evidence beside the cells printed there."""

    paper: str
    name: str  # as in reported.csv: "Table 5"
    title: str
    page: str = "ledger.html"  # in the built book; its anchor is the slug
    figure: bool = False  # <slug>.svg and .json, anywhere below results/figures
    table: bool = False  # <slug>.csv there
    cells: Sequence = ()  # metrics of ours that must be there beside the printed ones
    text: bool = False  # restated on its page, nothing to compute: the anchor is there
    shown: str = ""  # the artefact whose figure shows this one, too

    @property
    def slug(self):
        """The name of its files and its anchor: "fedga-table-5"."""
        name = f"{self.paper}-{self.name}".lower()
        return re.sub(r"[^a-z0-9]+", "-", name).strip("-")

    @property
    def anchor(self):
        """Its place on its page: its slug, or that of the figure that shows it."""
        return Artefact(self.paper, self.shown, "").slug if self.shown else self.slug


def listed():
    """The artefacts of all papers that are here, paper by paper."""
    return tuple(a for paper in papers.found() for a in listed_by(paper))


def listed_by(paper):
    """Those of papers/<paper>/artefacts.yaml."""
    for row in papers.parsed((papers.folder() / paper / "artefacts.yaml").read_text()):
        more = {k: v for k, v in row.items() if k != "notebook"}
        if "notebook" in row:
            more["page"] = f"notebooks/{paper}/{row['notebook']}.html"
        yield Artefact(paper, **more)


def names(reported):
    """{paper: the artefacts of its artefacts.yaml and its reported.csv}."""
    found = {p: set(g) for p, g in reported.groupby("paper").artefact}
    for a in listed():
        found.setdefault(a.paper, set()).add(a.name)
    return found


def table(reported, ours, root="results"):
    """artefacts.csv: one row per artefact with its status -> frame
    [artefacts, COLUMNS]. ours: one row per key."""
    rows = [row(a, reported, ours, Path(root)) for a in listed()]
    return pd.DataFrame(rows, columns=COLUMNS)


def row(a, reported, ours, root):
    """The row of one artefact."""
    of = lambda t: t[(t.paper == a.paper) & (t.artefact == a.name)]
    printed, mine = of(reported), of(ours)
    files, missing, tiers, kinds = shown(a, root)
    have = int(printed.key.isin(mine.key).sum())
    if have < len(printed):
        missing.append(f"{len(printed) - have} of {len(printed)} numbers")
    missing += [f"the number {m}" for m in a.cells if m not in set(mine.metric)]
    files += ["ledger.csv"] * bool(len(mine))
    tiers, kinds = tiers | set(mine.tier), kinds | set(mine.data)
    lowest = min(tiers, key=TIERS.index, default="")
    reasons = missing and [f"missing: {', '.join(missing)}"]
    if lowest in ("tiny", "small"):
        reasons = [*reasons, f"sizes of tier {lowest}"]
    if "stand-in" in kinds:
        reasons = [*reasons, "stand-in data"]
    status = "not run" if not files else "reduced" if reasons else "done"
    why, data = "; ".join(reasons) if files else "", ", ".join(sorted(kinds - {""}))
    page = f"{a.page}#{a.anchor}" if "/" in a.page or a.text else a.page
    return a.paper, a.name, a.title, status, why, lowest, data, page, " ".join(files)


def shown(a, root):
    """Figures, tables, text -> files, what is missing, tiers, kinds of data."""
    files, missing, tiers, kinds = [], [], set(), set()
    for wanted, end, what in ((a.figure, "svg", "figure"), (a.table, "csv", "table")):
        found = sorted((root / "figures").rglob(f"{a.anchor}.{end}")) if wanted else []
        files += [path.relative_to(root).as_posix() for path in found]
        missing += [f"the {what}"] * bool(wanted and not found)
        for about in (path.with_suffix(".json") for path in found if end == "svg"):
            facts = json.loads(about.read_text("utf-8")) if about.exists() else {}
            if facts.get("tier") not in TIERS or not facts.get("data"):
                raise ValueError(f"{about}: save it by plots.save, with tier and data")
            tiers.add(facts["tier"])
            kinds.add("stand-in" if "stand-in" in facts["data"] else "")
    source = (root.resolve().parent / "book" / a.page).with_suffix(".md")
    if a.text and source.exists() and f"({a.anchor})=" in source.read_text("utf-8"):
        files.append(f"../book/{source.name}")
        tiers.add("exact")
    return files, missing, tiers, kinds
