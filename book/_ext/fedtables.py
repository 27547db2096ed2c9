"""Tables that the book makes from results/*.csv: the ledger, reported beside ours,
artefacts, deviations, messages. How they look: fedtables.html.
"""

import re
from collections import Counter
from itertools import groupby

from docutils.parsers.rst import directives
from fedbook import (
    NUMBERS,
    Directive,
    folder,
    grouped,
    instead,
    nice,
    pairs,
    parallel,
    places,
    small,
)
from markupsafe import Markup

from repro import papers
from repro.ledger import METRICS, slug

VIEWS = papers.union("views")
COLUMNS = dict.fromkeys(["paper", "artefact", "dataset", "method", "metric"], "cat")
COLUMNS |= dict.fromkeys(["reported", "ours", "seeds"], "num")
COLUMNS |= {"data": "cat", "tier": "cat", "verdict": "text"}
DIGITS = ("match", "close", "differs", "no comparison", "not run")
LEADS = {"paper_says": "Paper", "code_says": "Code", "we_do": "Ours", "why": "Why"}


def counted(rows, column, order=()):
    """{value of a column: how many rows have it}, in the order given or found."""
    counts = Counter(r[column] for r in rows)
    return {v: counts[v] for v in order or counts if counts[v]}


class Ledger(Directive):
    """{ledger}: every number that a paper prints, a plain table whose first rows need
    no JavaScript; ledger.js makes it live. The rule, small print, gets a filter.
    """

    def run(self):
        return self.draw("ledger", printed(self.rows("ledger")))


def printed(rows):
    """The rows of numbers that a paper prints."""
    return [r for r in rows if r["reported"]]


class Verdicts(Directive):
    """{verdicts}: how many printed numbers of each paper have which verdict, and how
    many pairs of methods stand as printed; settings are counted apart, they are no
    results.
    """

    def run(self):
        found = printed(self.rows("ledger"))
        used = counted(found, "verdict", NUMBERS)
        return self.draw("verdicts", grouped(found, "paper"), used)


def words(argument):
    """'FedAvg q-FedAvg, FedGA "FedAS PA only"' -> list."""
    return [a or b for a, b in re.findall(r'"([^"]+)"|([^,\s"]+)', argument or "")]


def pieces(r):
    """The setting of a row taken apart: 'global model;
    C=10' -> {"view": "global model", "C": "10"}.

    Nothing if a part is neither a view of a model nor name=value.
    """
    parts = [p.strip() for p in r["setting"].split(";") if p.strip()]
    parts = [f"view={p}" if p in VIEWS else p for p in parts]
    good = all("=" in p for p in parts)
    return dict(p.split("=", 1) for p in parts) if good else {}


class Reported(Directive):
    """{reported} fedga Table 5: the paper's numbers above ours, each linked to its row
    of the ledger.

    :methods:     names as in the csv, in the order wanted
    :rules:       show the other selection rules too, each as a row of its own
    :transpose:   methods as columns

    Parts of a setting that vary within a method make columns, each named; those
    that only tell methods apart do not. The first one on a page is the target
    `#fedga-table-5`.
    """

    option_spec = dict.fromkeys(("rules", "transpose"), directives.flag)
    option_spec |= {"methods": words}

    def run(self):
        every = self.asked("ledger", "paper", "artefact")
        printed = [(r["metric"], places(r["reported"])) for r in every]
        self.fmt = {m: f".{max(1, n)}f" for m, n in printed if n is not None}
        found = self.select(every)
        self.printed = any(r["reported"] for r in found)
        self.ran = {r["dataset"]: instead(r) for r in found if r["ours"]}
        self.layout(found)
        used = counted(found, "verdict", NUMBERS)
        groups = [(g, list(cs)) for g, cs in groupby(self.columns, self.group)]
        paper, artefact = self.arguments[0], " ".join(self.arguments[1:])
        name = f"{nice('paper', paper)}, {artefact}"
        anchor = slug(f"{paper}-{artefact}")
        anchors = self.env.temp_data.setdefault("fedtables", set())
        at = "" if anchor in anchors else anchor
        anchors.add(anchor)
        about = at, self.fixed(found), self.conditions(found), used
        return self.draw("reported", name, *about, groups, "transpose" in self.options)

    def select(self, found):
        """The rows that the options want, in their order."""
        if "rules" not in self.options:
            found = [r for r in found if "rule=" not in r["setting"]]
        wanted, there = self.options.get("methods", []), {r["method"] for r in found}
        if unknown := {*wanted} - there:
            where, known = " ".join(self.arguments), ", ".join(sorted(there))
            why = f"{{reported}} {where} has no method {min(unknown)}; it has {known}"
            raise self.warning(why)
        mine = (r for r in found if r["method"] in (wanted or there))
        return sorted(mine, key=lambda r: wanted and wanted.index(r["method"]))

    def fixed(self, found):
        """What all rows share, for the caption."""
        alone = [c for c in ("dataset", "metric") if c not in self.at]
        shared = [self.heading(c, found[0][c]) for c in alone]
        for k, v in pieces(found[0]).items():
            if k != "rule" and all(pieces(r).get(k) == v for r in found):
                shared.append(v if v in VIEWS else f"{k} = {v}")
        return ", ".join(filter(None, shared))

    def layout(self, found):
        """What makes a row of the table, what makes a column: `lines` and `columns`,
        {what tells one from the others: its title}; `at`: names of what makes a column.
        """
        several = lambda values: len(set(values)) > 1
        settings = {r["setting"] for r in found}
        # some methods were run in a second way: a row of its own
        inline = "" in settings and several(settings)
        apart = not inline and all(map(pieces, found))
        names = dict.fromkeys(k for r in found for k in pieces(r) if k != "rule")
        methods = grouped(found, "method").values()
        vary = [
            k
            for k in names
            if apart and any(several(pieces(r).get(k) for r in m) for m in methods)
        ]
        self.axes = [k for k in vary if all(k in pieces(r) for r in found)]
        own = [k for k in vary if k not in self.axes]
        own += ["rule"] * several(pieces(r).get("rule") for r in found)
        between = self.axes if apart else ["setting"] * (not inline)
        at = ["dataset", "model", *between, "metric"]
        self.at = [c for c in at if several(self.value(r, c) for r in found)]
        self.at = self.at or ["metric"]
        # what says nothing beyond the others is left out
        many = lambda at: len({self.column(r, at) for r in found})
        for c in ("model", "setting"):
            rest = [k for k in self.at if k != c]
            if c in self.at and many(rest) == many(self.at):
                self.at = rest

        def line(r):
            parts = [f"{k}={pieces(r)[k]}" for k in own if k in pieces(r)]
            return r["method"], r["setting"] if inline else ";".join(parts)

        columns = dict.fromkeys(map(self.column, found))
        columns = sorted(columns, key=self.rank(found))
        self.columns = {c: self.heading(self.at[-1], c[-1]) or "–" for c in columns}
        self.lines = {line(r): self.named(*line(r)) for r in found}
        self.table = {(line(r), self.column(r)): r for r in found}
        tops = lambda f: [self.best(self.cells([c]), f) for c in columns]
        self.top = {f: set().union(*tops(f)) for f in ("reported", "ours")}

    def cells(self, columns=None, lines=None):
        """Rows of the ledger, or None, of a column or of a line."""
        columns, lines = columns or self.columns, lines or self.lines
        return [self.table.get((m, c)) for m in lines for c in columns]

    def rank(self, found):
        """Columns of one data set stay together, inside in the order of the paper."""
        groups = list(dict.fromkeys(self.column(r)[:-1] for r in found))
        last = list(dict.fromkeys(self.column(r)[-1] for r in found))
        return lambda c: (groups.index(c[:-1]), last.index(c[-1]))

    def column(self, r, at=None):
        return tuple(self.value(r, c) for c in (self.at if at is None else at))

    def value(self, r, c):
        return (pieces(r) if c in self.axes else r).get(c, "")

    def group(self, c):
        return ", ".join(self.heading(k, v) for k, v in zip(self.at[:-1], c) if v)

    def heading(self, c, value):
        axis = c in self.axes and value and value not in VIEWS
        ran = self.ran.get(value) if c == "dataset" else ""
        return f"{c} = {value}" if axis else ran or nice(c, value)

    @staticmethod
    def named(method, setting):
        return Markup("{} {}").format(nice("method", method), small(setting)).strip()

    @staticmethod
    def conditions(found):
        """Data, tier, seeds and rule of our numbers, in words."""
        parts, words = [], {"data": "data", "tier": "tier", "n_seeds": "seeds"}
        for c, word in (words | {"rule": "rule"}).items():
            values = sorted({nice(c, r[c]) for r in found if r["ours"] and r[c]})
            parts += [f"{word} {', '.join(values)}"] if values else []
        return f"Ours: {'; '.join(parts)}." if parts else "Not run yet."

    @staticmethod
    def best(column, field):
        """Keys of the best rows of a column; none without direction or rival."""
        column = [r for r in column if r and r[field]]
        known = METRICS.get(column[0]["metric"]) if column else None
        better = known.better if known else ""
        if len(column) < 2 or not better:
            return set()
        value = lambda r: float(r[field])
        top = value((max if better == "high" else min)(column, key=value))
        return {r["key"] for r in column if value(r) == top}


class Artefacts(Directive):
    """{artefacts} fedga: every table and figure of a paper, what stands as printed, and
    the command that draws it; without a name the places of all papers' as links. Where
    lines "fedga: Figure 12: its question" follow, a card for each paper, with the share
    that stands as printed, its notebooks and that figure.
    """

    has_content = True

    def run(self):
        found = self.asked("artefacts", "paper", "artefact")
        return self.draw("artefacts", grouped(found, "paper"))

    def notebooks(self, paper):
        """{name: link} of its pages, tables first."""
        start = f"notebooks/{paper}/"
        found = [p for p in self.env.found_docs if p.startswith(start)]
        found.sort(reverse=True)
        return {p.removeprefix(start): self.page(p) for p in found}

    def standing(self, r):
        """(pairs as printed, decided pairs), {verdict: how many other numbers}."""
        rows = self.rows("ledger", paper=r["paper"], artefact=r["artefact"])
        return pairs(rows), counted(rows, "verdict", DIGITS[:3])

    def where(self, r):
        """(link, name) of the page that shows it; nothing if it has none."""
        page, _, part = r["page"].replace(".html", "").partition("#")
        if page in ("", "ledger") or r["status"] == "not run":
            return "", ""
        if page not in self.env.found_docs:
            why = f"{r['paper']} {r['artefact']} names {page!r}, no page of the book"
            raise self.warning(f"artefacts.csv: {why}")
        part = f"#{part}" if part else ""
        return self.page(page) + part, page.removeprefix("notebooks/")


class Deviations(Directive):
    """{deviations} fedga [methods ...]: where we leave the paper, why,
    and what that changes, as measured.
    """

    def run(self):
        where, wanted = dict(zip(["paper"], self.arguments)), set(self.arguments[1:])
        found = self.rows("deviations", **where)
        methods = lambda r: {*words(r.get("methods"))}
        found = [r for r in found if not wanted or wanted & methods(r)]
        if not found:
            asked = " ".join(self.arguments) or "any paper"
            raise self.warning(f"{{deviations}}: no row for {asked}")
        effects = {}
        if (folder(self.env) / "effects.csv").exists():
            effects = grouped(self.rows("effects", **where), "key")
        shown = []
        for r in found:
            about = ", ".join(filter(None, [r.get("where"), *words(r.get("methods"))]))
            measured = [e for e in effects.get(r["key"], [r]) if e.get("effect")]
            shown.append((r, about, self.compared(measured)))
        return self.draw("deviations", shown)

    @staticmethod
    def compared(measured):
        """Effects of one comparison together."""
        columns = ("dataset", "data", "tier", "n_seeds", "ours_is", "other_is")
        comparison = lambda e: tuple(e.get(c, "") for c in columns)
        measured = sorted(measured, key=comparison)
        return [list(same) for _, same in groupby(measured, comparison)]


def size(n):
    """Bytes for readers: 4 bytes, 1.2 kB, 44.7 MB (powers of 1000)."""
    n = float(n)
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.3g}\u202f{unit}"
    return f"{n:.0f}\u202fbytes"


class Sends(Directive):
    """{sends} FedGA: what one client sends and receives in one round: names, shapes,
    bytes, as counted in a run.
    """

    def run(self):
        found, method = self.asked("bytes", "method"), " ".join(self.arguments)
        ways = {"up": "leaves the device", "down": "reaches the device"}
        total = lambda rows: sum(float(r["bytes"]) for r in rows)
        shown = []
        for way, mine in grouped(found, "direction").items():
            plain, more = total(self.rows("bytes", method="FedAvg", direction=way)), ""
            if plain and method != "FedAvg":
                gap = total(mine) - plain
                word = "more" if gap > 0 else "less"
                more = f" {size(abs(gap))} {word} than FedAvg" if gap else " as FedAvg"
            shown.append((ways[way], size(total(mine)), more, mine))
        return self.draw("sends", method, shown)


class Speeds(Directive):
    """{speeds}: rounds a second of every program, as bars beside the usual loop's."""

    def run(self):
        return self.draw("speeds", self.rows("benchmarks"))


def setup(app):
    tables = Ledger, Verdicts, Reported, Artefacts, Deviations, Sends, Speeds
    return parallel(app, *tables)
