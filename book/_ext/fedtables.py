"""Tables that the book makes from results/*.csv: the ledger, reported beside ours,
artefacts, deviations, messages. Claims have a file of their own, fedclaims.py.
"""

import re
from itertools import groupby

from docutils import nodes
from docutils.parsers.rst import directives
from fedbook import (
    NUMBERS,
    address,
    chip,
    esc,
    filtered,
    folder,
    home,
    identity,
    interval,
    log,
    nice,
    number,
    places,
    prose,
    raw,
    rows,
    tip,
    wrap,
)
from sphinx.util.docutils import SphinxDirective

from repro import papers
from repro.ledger import METRICS, slug

VIEWS = papers.union("views")


class Table(SphinxDirective):
    """A directive that prints rows of a results file."""

    optional_arguments = 8
    final_argument_whitespace = False

    def rows(self, name, **where):
        return rows(self.env, name, self.get_location(), **where)

    def fail(self, why, *args):
        log.warning(why, *args, location=self.get_location())
        return []

    def href(self, name, row):
        return esc(address(self.env, name, row, self.env.docname))


COLUMNS = {
    "paper": "cat",
    "artefact": "cat",
    "dataset": "cat",
    "method": "cat",
    "metric": "cat",
    "reported": "num",
    "ours": "num",
    "seeds": "num",
    "data": "cat",
    "tier": "cat",
    "verdict": "cat",
}


class Ledger(Table):
    """{ledger}: the whole ledger as a plain table that reads without JavaScript;
    ledger.js makes it live.

    Small print stands in <small>: setting, rule, spread, interval, device and minutes,
    how many pairs agree; the rule gets a filter of its own.
    """

    @staticmethod
    def cell(r, c):
        main, small = nice(c, r.get(c)), ""
        if c == "verdict":
            pairs = f"<small>{esc(r['pairs'])}</small>" if r.get("pairs") else ""
            return chip(r[c]) + pairs
        if c == "dataset":
            small = r.get("setting", "").removeprefix("default")
        elif c == "metric":
            small = nice("rule", r["rule"])
        elif c == "reported":
            main, small = (
                number(r, c),
                r["reported_spread"] and f"± {r['reported_spread']}",
            )
        elif c == "ours":
            main, small = number(r, c), interval(r)
        elif c == "seeds":
            minutes = f"{number(r, 'minutes', '.2g')} min" if r.get("minutes") else ""
            main, small = (
                r["n_seeds"],
                " · ".join(filter(None, [r.get("device"), minutes])),
            )
        return esc(main) + (f"<small>{esc(small)}</small>" if small else "")

    def run(self):
        head = "".join(
            (
                f'<th scope="col" data-kind="{kind}" '
                f'data-name="{c}"{" data-small=rule" if c == "metric" else ""}>{c}</th>'
            )
            for c, kind in COLUMNS.items()
        )
        body = "\n".join(
            f'<tr id="{esc(r["key"])}">'
            + "".join(f'<td class="c-{c}">{self.cell(r, c)}</td>' for c in COLUMNS)
            + "</tr>"
            for r in self.rows("ledger")
        )
        what = (
            "Each row: a number of a paper, ours with its 95 % interval, and the "
            "verdict. Small print: setting, selection rule, spread, device, minutes, "
            "how many decided pairs of methods agree."
        )
        return [
            raw(
                '<table id="ledger" class="ledger live" data-what="numbers"><caption '
                f'class="visually-hidden">{what}</caption>'
                f"<thead><tr>{head}</tr></thead>\n<tbody>\n"
                f"{body}\n</tbody></table>"
            )
        ]


class Verdicts(Table):
    """{verdicts} [paper]: how many numbers of each artefact (of each paper, without
    argument) have which verdict; settings are counted apart, they are no results.

    Option :explain: says below what each verdict means.
    """

    option_spec = {"explain": directives.flag}

    def run(self):
        paper = self.arguments[0] if self.arguments else None
        table = self.rows("ledger", **({"paper": paper} if paper else {}))
        if not table:
            return self.fail("no row of the ledger is of paper %r", paper)
        by, body = "artefact" if paper else "paper", ""
        for group in dict.fromkeys(r[by] for r in table):
            found = [r["verdict"] for r in table if r[by] == group]
            where = {"paper": paper, "artefact": group} if paper else {"paper": group}
            settings = found.count("setting")
            bar = "".join(
                self.part(v, found.count(v), where)
                for v in NUMBERS
                if v in found and v != "setting"
            )
            body += (
                f'<tr><th scope="row"><a href="{self.shown(where)}">'
                f"{esc(nice(by, group))}</a></th>"
                f'<td class="n">{len(found) - settings}</td>'
                f'<td class="n">{self.linked(settings, where)}</td>'
                f'<td><div class="stack">{bar}</div></td></tr>'
            )
        used = [v for v in NUMBERS if any(r["verdict"] == v for r in table)]
        head = (
            f'<th scope="col">{by}</th><th scope="col" class="n">results</th>'
            '<th scope="col" class="n">settings</th><th scope="col">verdicts of the '
            "results</th>"
        )
        return [
            wrap(
                f'<table class="plain verdicts"><thead><tr>{head}</tr></thead><tbody>'
                f"{body}</tbody></table>",
                "" if "explain" in self.options else " ".join(map(chip, used)),
            ),
            raw(legend(NUMBERS, used) if "explain" in self.options else ""),
        ]

    def shown(self, where):
        return esc(filtered(self.env, self.env.docname, where))

    def linked(self, n, where):
        href = self.shown(where | {"verdict": "setting"})
        return f'<a href="{href}">{n}</a>' if n else "0"

    def part(self, verdict, n, where):
        return block(verdict, n, self.shown(where | {"verdict": verdict}))


def legend(meanings, used=None):
    """What verdicts mean, as a list."""
    key = "".join(
        f"<div><dt>{chip(v)}</dt><dd>{esc(means)}</dd></div>"
        for v, means in meanings.items()
        if used is None or v in used
    )
    return f'<dl class="key">{key}</dl>'


def block(verdict, n, href):
    """One block of a bar: as wide as its count, linked to its rows."""
    return (
        f'<a class="v-{slug(verdict)}" style="flex:{n}" href="{href}" title="{n} '
        f'{verdict}"><span>{n}</span><span class="visually-hidden"> '
        f"{verdict}</span></a>"
    )


def words(argument):
    """'FedAvg q-FedAvg, FedGA "FedAS PA only"' -> list."""
    return [a or b for a, b in re.findall(r'"([^"]+)"|([^,\s"]+)', argument or "")]


def pieces(r):
    """The setting of a row taken apart: 'global model;
    C=10' -> {"view": "global model", "C": "10"}.

    Nothing if a part is neither a view of a model nor name=value.
    """
    parts = [p.strip() for p in r.get("setting", "").split(";") if p.strip()]
    parts = [("view", "=", p) if p in VIEWS else p.partition("=") for p in parts]
    return {k: v for k, sign, v in parts} if all(sign for _, sign, _ in parts) else {}


class Reported(Table):
    """{reported} fedga Table 5: the paper's numbers above ours, each linked to its row
    of the ledger.

    :metrics: :methods: :datasets: :models:   names as in the csv, in the order wanted;
                                              a method with blanks in "quotes"
    :settings:    beta=0.1 P=0.2: only rows with these parts in their setting;
                  rule=last10_mean: only that selection rule
    :rules:       show the other selection rules too, each as a row of its own
    :transpose:   methods as columns

    Parts of a setting that vary within a method make columns, each named; those
    that only tell methods apart do not. The first one on a page is the target
    `#fedga-table-5`.
    """

    option_spec = {
        "metrics": words,
        "methods": words,
        "datasets": words,
        "models": words,
        "settings": words,
        "rules": directives.flag,
        "transpose": directives.flag,
    }

    def run(self):
        if len(self.arguments) < 2:
            return self.fail(
                "{reported} needs a paper and an artefact, as in: fedga Table 5"
            )
        paper, artefact = self.arguments[0], " ".join(self.arguments[1:])
        table = self.rows("ledger", paper=paper, artefact=artefact)
        if not table:
            return self.fail(
                "{reported}: the ledger has no rows of %s %s", paper, artefact
            )
        self.fmt = {
            r["metric"]: f".{max(1, places(r['reported']))}f"
            for r in table
            if places(r["reported"]) is not None
        }
        for option in ("metrics", "methods", "datasets", "models"):
            wanted, column = self.options.get(option), option[:-1]
            if wanted and (
                unknown := [w for w in wanted if w not in {r[column] for r in table}]
            ):
                return self.fail(
                    "{reported} %s %s has no %s %s; it has %s",
                    paper,
                    artefact,
                    column,
                    unknown[0],
                    ", ".join(sorted({r[column] for r in table})),
                )
            if wanted:
                table = sorted(
                    (r for r in table if r[column] in wanted),
                    key=lambda r, w=wanted, c=column: w.index(r[c]),
                )
        parts = dict(p.partition("=")[::2] for p in self.options.get("settings", ()))
        for part in parts.items():
            if part not in (found := {p for r in table for p in pieces(r).items()}):
                return self.fail(
                    "{reported} %s %s has no setting %s; it has %s",
                    paper,
                    artefact,
                    "=".join(part),
                    ", ".join(sorted(map("=".join, found))),
                )
        table = [r for r in table if parts.items() <= pieces(r).items()]
        if "rules" not in self.options and "rule" not in parts:
            table = [r for r in table if "rule=" not in r.get("setting", "")]
        if not table:
            return self.fail(
                "{reported} %s %s: no row has all of these options", paper, artefact
            )
        self.layout(table)
        fixed = ", ".join(
            nice(c, table[0][c])
            for c in ("dataset", "metric")
            if c not in self.at and nice(c, table[0][c])
        )
        fixed += "".join(
            f", {v if v in VIEWS else f'{k} = {v}'}"
            for k, v in pieces(table[0]).items()
            if k != "rule" and all(pieces(r).get(k) == v for r in table)
        )
        how = (
            (
                '<span class="rep">reported</span> above, '
                '<span class="our">ours</span> below'
            )
            if self.printed
            else '<span class="our">ours</span>'
        )
        caption = (
            f"<b>{esc(nice('paper', paper))}, "
            f"{esc(artefact)}</b>{' · ' + esc(fixed) if fixed else ''}: {how} with the "
            f"95 % interval over seeds; bold is best. {self.conditions(table)} "
        ) + " ".join(chip(v) for v in NUMBERS if any(r["verdict"] == v for r in table))
        body = self.turned() if "transpose" in self.options else self.upright()
        anchors, anchor = (
            self.env.temp_data.setdefault("fedtables", set()),
            slug(f"{paper}-{artefact}"),
        )
        first = anchor not in anchors
        anchors.add(anchor)
        return [
            wrap(
                f'<table class="plain reported">{body}</table>',
                caption,
                anchor if first else "",
            )
        ]

    def layout(self, table):
        """What makes a row, what makes a column: `line` of a row of the ledger, `at`
        the columns of the csv that vary.
        """
        settings = {r.get("setting", "") for r in table}
        self.printed = any(r["reported"] for r in table)
        # some methods were run in a second way: a row of its own
        self.inline = "" in settings and len(settings) > 1
        self.rules = len({pieces(r).get("rule") for r in table}) > 1
        apart = not self.inline and all(map(pieces, table))
        names = (
            dict.fromkeys(k for r in table for k in pieces(r) if k != "rule")
            if apart
            else ()
        )
        methods = {r["method"] for r in table}
        self.axes = [
            k
            for k in names
            if len({(r["method"], pieces(r).get(k)) for r in table}) > len(methods)
        ]
        # without a value: a row of its own with
        self.switches = [k for k in self.axes if not all(k in pieces(r) for r in table)]
        self.axes = [k for k in self.axes if k not in self.switches]
        vary = [
            c
            for c in (
                "dataset",
                "model",
                *(self.axes if apart else ["setting"]),
                "metric",
            )
            if len({self.value(r, c) for r in table}) > 1
        ]
        self.at = [c for c in vary if not (c == "setting" and self.inline)] or [
            "metric"
        ]
        # what says nothing beyond the others is left out
        for c in ("model", "setting"):
            rest = [k for k in self.at if k != c]
            if c in self.at and len({self.column(r, rest) for r in table}) == len(
                {self.column(r) for r in table}
            ):
                self.at = rest
        self.columns = sorted(
            dict.fromkeys(map(self.column, table)), key=self.rank(table)
        )
        self.lines = list(dict.fromkeys(map(self.line, table)))
        self.cells = {(self.line(r), self.column(r)): r for r in table}
        self.top = {
            (c, f): self.best(
                [self.cells[m, c] for m in self.lines if (m, c) in self.cells], f
            )
            for c in self.columns
            for f in ("reported", "ours")
        }

    def rank(self, table):
        """Columns of one data set stay together;
        inside, the order asked for or that of the paper.
        """
        groups = list(dict.fromkeys(self.column(r)[:-1] for r in table))
        metrics = self.options.get("metrics") or list(
            dict.fromkeys(r["metric"] for r in table)
        )
        last = (
            metrics
            if self.at[-1] == "metric"
            else list(dict.fromkeys(self.column(r)[-1] for r in table))
        )
        return lambda c: (groups.index(c[:-1]), last.index(c[-1]))

    def column(self, r, at=None):
        return tuple(self.value(r, c) for c in (self.at if at is None else at))

    def value(self, r, c):
        return (pieces(r) if c in self.axes else r).get(c, "")

    def line(self, r):
        rule = f"rule={pieces(r)['rule']}" if self.rules and "rule" in pieces(r) else ""
        switches = [f"{k}={pieces(r)[k]}" for k in self.switches if k in pieces(r)]
        return r["method"], r.get("setting", "") if self.inline else ";".join(
            [*switches, *filter(None, [rule])]
        )

    @staticmethod
    def named(line):
        method, setting = line
        return esc(nice("method", method)) + (
            f" <small>{esc(setting)}</small>" if setting else ""
        )

    def group(self, c):
        return ", ".join(self.heading(k, v) for k, v in zip(self.at[:-1], c) if v)

    def last(self, c):
        return self.heading(self.at[-1], c[-1]) or "–"

    def heading(self, c, value):
        return esc(
            f"{c} = {value}"
            if c in self.axes and value and value not in VIEWS
            else nice(c, value)
        )

    def cell(self, m, c):
        r = self.cells.get((m, c))
        if r is None:
            return "<td></td>"

        # a control: as many decimals as the paper prints beside it
        fmt = None if r["reported"] else self.fmt.get(r["metric"])

        def text(f, small):
            shown = esc(number(r, f, fmt)) if r[f] else "–"
            shown = f"<b>{shown}</b>" if r["key"] in self.top[c, f] else shown
            return shown + (f" <small>{esc(small)}</small>" if small else "")

        spread = r["reported_spread"] and f"± {r['reported_spread']}"
        above = (
            f'<span class="rep">{text("reported", spread)}</span>'
            if self.printed
            else ""
        )
        return (
            f'<td>{above}<a class="our" href="{self.href("ledger", r)}" '
            f'title="{esc(tip("ledger", r))}">{text("ours", interval(r, fmt))} '
            f"{chip(r['verdict'], brief=True)}</a></td>"
        )

    def upright(self):
        """Methods down, columns across; above them their data sets."""
        groups = [(g, len(list(cs))) for g, cs in groupby(self.columns, self.group)]
        spans = "".join(
            f'<th scope="colgroup" colspan="{n}">{g}</th>' for g, n in groups
        )
        head = f"<tr><td></td>{spans}</tr>" if len(self.at) > 1 else ""
        head += (
            "<tr><td></td>"
            + "".join(f'<th scope="col">{self.last(c)}</th>' for c in self.columns)
            + "</tr>"
        )
        body = "".join(
            (
                f'<tr><th scope="row">{self.named(m)}</th>'
                f"{''.join(self.cell(m, c) for c in self.columns)}</tr>"
            )
            for m in self.lines
        )
        return f"<thead>{head}</thead><tbody>{body}</tbody>"

    def turned(self):
        """Methods across, columns down, in blocks by data set."""
        head = (
            "<tr><td></td>"
            + "".join(f'<th scope="col">{self.named(m)}</th>' for m in self.lines)
            + "</tr>"
        )
        body = ""
        for g, cs in groupby(self.columns, self.group):
            body += (
                (
                    '<tr class="part"><th scope="rowgroup" '
                    f'colspan="{len(self.lines) + 1}">{g}</th></tr>'
                )
                if g
                else ""
            )
            for c in cs:
                body += (
                    f'<tr><th scope="row">{self.last(c)}</th>'
                    f"{''.join(self.cell(m, c) for m in self.lines)}</tr>"
                )
        return f"<thead>{head}</thead><tbody>{body}</tbody>"

    @staticmethod
    def conditions(table):
        """Data, tier, seeds and rule of our numbers, in words."""
        parts = []
        for column, word in (
            ("data", "data"),
            ("tier", "tier"),
            ("n_seeds", "seeds"),
            ("rule", "rule"),
        ):
            if found := sorted(
                {nice(column, r[column]) for r in table if r["ours"] and r[column]}
            ):
                parts.append(f"{word} {', '.join(found)}")
        return f"Ours: {esc('; '.join(parts))}." if parts else "Not run yet."

    @staticmethod
    def best(column, field):
        """Keys of the best rows of a column;
        none when the metric has no direction or only one method ran.
        """
        scored = [(float(r[field]), r["key"]) for r in column if r[field]]
        known = METRICS.get(column[0]["metric"]) if column else None
        better = known.better if known else ""
        if len(scored) < 2 or not better:
            return set()
        top = (max if better == "high" else min)(scored)[0]
        return {k for v, k in scored if v == top}


class Simple(Table):
    """One line per row of a file; `id` makes the rows the targets of {num} and
    {verdict} on the ledger page.
    """

    file, columns = "", ()

    def lines(self, table):
        head = "".join(
            f'<th scope="col">{esc(title)}</th>' for title, _ in self.columns
        )
        here = self.env.docname == home(self.file)
        body = "".join(
            (
                f'<tr id="{self.file}-{slug(identity(self.file, r))}">'
                if here
                else "<tr>"
            )
            + "".join(f"<td>{show(self, r)}</td>" for _, show in self.columns)
            + "</tr>"
            for r in table
        )
        return wrap(
            '<table class="plain '
            f'{self.file}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        )

    def run(self):
        where = {"paper": self.arguments[0]} if self.arguments else {}
        if len(self.arguments) > 1:
            where["artefact"] = " ".join(self.arguments[1:])
        table = self.rows(self.file, **where)
        if not table:
            return self.fail(
                "{%s}: no row for %s",
                self.name,
                " ".join(self.arguments) or "any paper",
            )
        return [self.lines(table)]


def origin(_, r):
    """Data and tier of a row."""
    tier = f"tier {r['tier']}" if r.get("tier") else ""
    return f"<small>{esc(' · '.join(filter(None, [r.get('data'), tier])))}</small>"


def place(_, r):
    """Paper and artefact of a row."""
    return f"{esc(nice('paper', r['paper']))}, {esc(r['artefact'])}"


class Artefacts(Simple):
    """{artefacts} [fedga]: every table and figure of the papers, its state,
    and the page that shows it.
    """

    file = "artefacts"

    def page(self, r):
        page, _, part = r.get("page", "").removeprefix("book/").partition("#")
        page = re.sub(r"\.(html|md|ipynb)$", "", page)
        if page in ("", "ledger") or r["status"] == "not run":
            return ""
        if page not in self.env.found_docs:
            self.fail(
                "artefacts.csv: %s %s names the page %r, which the book does not have",
                r["paper"],
                r["artefact"],
                page,
            )
            return esc(page)
        uri = self.env.app.builder.get_relative_uri(self.env.docname, page) + (
            f"#{part}" if part else ""
        )
        return f'<a href="{esc(uri)}">{esc(page.removeprefix("notebooks/"))}</a>'

    def state(self, r):
        reason = f"<small>{esc(r['reason'])}</small>" if r.get("reason") else ""
        return chip(r["status"]) + (reason or origin(self, r))

    def run(self):
        """Without a paper: one fold for each, closed where nothing was run."""
        if self.arguments:
            return super().run()
        out = []
        for paper, mine in groupby(self.rows(self.file), lambda r: r["paper"]):
            mine = list(mine)
            states = [r["status"] for r in mine]
            summary = " ".join(
                f"{chip(s)} {states.count(s)}" for s in dict.fromkeys(states)
            )
            opened = "" if set(states) == {"not run"} else " open"
            out.append(
                raw(
                    f'<details class="group"{opened}><summary><b>'
                    f"{esc(nice('paper', paper))}</b> {summary}</summary>"
                    f"{self.lines(mine).astext()}</details>"
                )
            )
        return out or self.fail("{artefacts}: results/artefacts.csv is empty")

    columns = (
        ("where", place),
        ("what it shows", lambda _, r: esc(r["title"])),
        ("state", state),
        ("page", page),
    )


class Deviations(Table):
    """{deviations} fedga [methods ...]: where we leave the paper, why,
    and what that changes, as measured.
    """

    def run(self):
        where = {"paper": self.arguments[0]} if self.arguments else {}
        table = self.rows("deviations", **where)
        wanted = set(self.arguments[1:])
        table = [
            r for r in table if not wanted or wanted & set(words(r.get("methods")))
        ]
        if not table:
            return self.fail(
                "{deviations}: no row for %s", " ".join(self.arguments) or "any paper"
            )
        effects = {}
        if (folder(self.env) / "effects.csv").exists():
            for e in self.rows("effects", **where):
                effects.setdefault(e["key"], []).append(e)
        listing = nodes.enumerated_list(classes=["deviations"])
        for r in table:
            item = nodes.list_item()
            if self.env.docname == "ledger":
                item["ids"].append(f"deviations-{slug(r['key'])}")
            about = ", ".join(filter(None, [r.get("where"), *words(r.get("methods"))]))
            measured = [e for e in effects.get(r["key"], [r]) if e.get("effect")]
            item += raw(
                f"<details><summary><b>{esc(r.get('title') or r['key'])}</b> "
                f"<small>{esc(about)}</small>{self.effects(r, measured)}</summary>"
            )
            for field, lead in (
                ("paper_says", "Paper: "),
                ("code_says", "Code: "),
                ("we_do", "Ours: "),
                ("why", "Why: "),
            ):
                if r.get(field):
                    kids, _ = self.parse_inline(r[field], lineno=self.lineno)
                    item += nodes.paragraph("", "", nodes.strong("", lead), *kids)
            item += raw("</details>")
            listing += item
        return [listing]

    @staticmethod
    def effects(r, measured):
        """What it changes, one line for each comparison;
        or why nothing was measured.
        """
        if not measured:
            why = esc(prose(r.get("evidence", "")))
            return (
                f'<span class="effect">{chip(r.get("status") or "not measured")} '
                f"<small>{why}</small></span>"
            )

        def comparison(e):
            return tuple(
                e.get(c, "")
                for c in ("dataset", "data", "tier", "n_seeds", "ours_is", "other_is")
            )

        def value(e):
            width = (
                f" ({number(e, 'effect_lo')} to {number(e, 'effect_hi')})"
                if e.get("effect_lo")
                else ""
            )
            return (
                f"{esc(nice('metric', e['metric']))} "
                f"<b>{esc(number(e, 'effect'))}</b>{esc(width)}"
            )

        out = ""
        for (dataset, data, tier, n, ours, other), same in groupby(
            sorted(measured, key=comparison), comparison
        ):
            where = [
                nice("dataset", dataset),
                data,
                f"tier {tier}",
                "one seed" if n == "1" else f"{n} seeds",
            ]
            pair = [f"{ours} against {other}"] if ours else []
            out += (
                f'<span class="effect">{", ".join(map(value, same))} '
                f"<small>{esc(' · '.join([*where, *pair]))}</small></span>"
            )
        return out


def size(n):
    """Bytes for readers: 4 bytes, 1.2 kB, 44.7 MB (powers of 1000)."""
    n = float(n)
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.3g}\u202f{unit}"
    return f"{n:.0f}\u202fbytes"


class Sends(Table):
    """{sends} FedGA: what one client sends and receives in one round: names, shapes,
    bytes, as counted in a run.
    """

    def run(self):
        if not self.arguments:
            return self.fail("{sends} needs a method")
        method = " ".join(self.arguments)
        table = self.rows("bytes", method=method)
        if not table:
            return self.fail("{sends}: results/bytes.csv has no method %r", method)
        out = []
        for way in dict.fromkeys(r["direction"] for r in table):
            mine = [r for r in table if r["direction"] == way]
            total = sum(float(r["bytes"]) for r in mine)
            plain = sum(
                float(r["bytes"])
                for r in self.rows("bytes", method="FedAvg", direction=way)
            )
            more, gap = "", total - plain
            if plain and method != "FedAvg":
                more = (
                    " as FedAvg"
                    if gap == 0
                    else (
                        f" {size(abs(gap))} {'more' if gap > 0 else 'less'} than FedAvg"
                    )
                )
            title = {"up": "leaves the device", "down": "reaches the device"}.get(
                way, way
            )
            lines = "".join(
                f"<tr><td><code>{esc(r['name'])}</code></td><td>{esc(r['shape'])}</td>"
                f'<td class="n">{size(r["bytes"])}</td></tr>'
                for r in mine
            )
            out.append(
                '<tbody><tr class="part"><th scope="rowgroup" '
                f'colspan="2">{esc(title)}</th><th '
                f'class="n">{size(total)}<small>{more}</small></th></tr>{lines}</tbody>'
            )
        head = (
            '<th scope="col">name</th><th scope="col">shape</th><th scope="col" '
            'class="n">size</th>'
        )
        return [
            wrap(
                '<table class="plain '
                f'sends"><thead><tr>{head}</tr></thead>{"".join(out)}</table>',
                f"{esc(method)}: one client, one round, as counted",
            )
        ]


def setup(app):
    for directive in (Ledger, Verdicts, Reported, Artefacts, Deviations, Sends):
        app.add_directive(directive.__name__.lower(), directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
