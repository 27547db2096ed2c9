"""Tables that the book makes from results/*.csv: the ledger, reported beside ours, claims, artefacts, deviations, messages."""
import re
from itertools import groupby

from docutils import nodes
from docutils.parsers.rst import directives
from fedbook import (
    DATASETS,
    VERDICTS,
    address,
    chip,
    esc,
    filtered,
    folder,
    identity,
    interval,
    log,
    nice,
    number,
    prose,
    raw,
    rows,
    tip,
    wrap,
)
from sphinx.util.docutils import SphinxDirective

from fedlib.ledger import METRICS, slug


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


COLUMNS = {"paper": "cat", "artefact": "cat", "dataset": "cat", "method": "cat", "metric": "cat", "reported": "num", "ours": "num",
           "seeds": "num", "data": "cat", "tier": "cat", "verdict": "cat"}
SMALL = {"dataset": "setting", "metric": "rule"}  # the small second line of a cell; `rule` gets a filter too


class Ledger(Table):
    """{ledger}: the whole ledger as a plain table that reads without JavaScript; ledger.js makes it live."""

    def run(self):
        def setting(r):
            return ", ".join(filter(None, [r.get("model", "") if r["paper"] == "fedga" and r["dataset"] == "office10" else "",
                                           r.get("setting", "").removeprefix("default")]))

        def cell(r, c):
            if c == "verdict":
                return chip(r[c])
            if c == "dataset":
                return esc(nice(c, r[c])) + (f"<small>{esc(setting(r))}</small>" if setting(r) else "")
            if c == "metric":
                return esc(nice(c, r[c])) + (f"<small>{esc(nice('rule', r['rule']))}</small>" if r["rule"] else "")
            if c == "reported":
                return esc(number(r, c)) + (f"<small>± {esc(r['reported_spread'])}</small>" if r["reported_spread"] else "")
            if c == "ours":
                return esc(number(r, c)) + (f"<small>{esc(interval(r))}</small>" if r["ours_lo"] else "")
            if c == "seeds":
                more = " · ".join(filter(None, [r.get("device"), f"{number(r, 'minutes', '.2g')} min" if r.get("minutes") else ""]))
                return esc(r["n_seeds"]) + (f"<small>{esc(more)}</small>" if more else "")
            return esc(nice(c, r[c]))

        table = self.rows("ledger")
        head = "".join(f'<th scope="col" data-kind="{k}" data-name="{c}"{f""" data-small="{SMALL[c]}" """ if SMALL.get(c) == "rule" else ""}>'
                       f"{c}</th>" for c, k in COLUMNS.items())
        body = "\n".join(f'<tr id="{esc(r["key"])}">' + "".join(f'<td class="c-{c}">{cell(r, c)}</td>' for c in COLUMNS) + "</tr>"
                         for r in table)
        legend = "Each row: a number of a paper, ours with its 95 % interval, and the verdict. Small print: setting, selection rule, spread, device and minutes."
        return [raw(f'<table id="ledger" class="ledger"><caption class="visually-hidden">{legend}</caption>'
                    f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table>")]


class Verdicts(Table):
    """{verdicts} [paper]: how many numbers of each artefact (of each paper, without argument) have which verdict.

    Option :explain: says below what each verdict means.
    """

    option_spec = {"explain": directives.flag}

    def run(self):
        paper = self.arguments[0] if self.arguments else None
        table = self.rows("ledger", **({"paper": paper} if paper else {}))
        if not table:
            return self.fail("no row of the ledger is of paper %r", paper)
        by = "artefact" if paper else "paper"
        lines = []
        for group in dict.fromkeys(r[by] for r in table):
            mine = [r["verdict"] for r in table if r[by] == group]
            where = {"paper": paper or group, **({"artefact": group} if paper else {})}
            bar = "".join(f'<a class="v-{slug(v)}" style="flex:{mine.count(v)}" href="{esc(filtered(self.env, self.env.docname, where | {"verdict": v}))}"'
                          f' title="{mine.count(v)} {v}"><span>{mine.count(v)}</span><span class="visually-hidden"> {v}</span></a>'
                          for v in VERDICTS if v in mine)
            lines.append(f'<tr><th scope="row"><a href="{esc(filtered(self.env, self.env.docname, where))}">{esc(nice(by, group))}</a></th>'
                         f'<td class="n">{len(mine)}</td><td><div class="stack">{bar}</div></td></tr>')
        used = [v for v in VERDICTS if any(r["verdict"] == v for r in table)]
        explain = "explain" in self.options
        legend = "" if explain else " ".join(map(chip, used))
        key = "".join(f"<div><dt>{chip(v)}</dt><dd>{esc(VERDICTS[v])}</dd></div>" for v in used)
        return [wrap(f'<table class="plain verdicts"><thead><tr><th scope="col">{by}</th><th scope="col" class="n">numbers</th>'
                     f'<th scope="col">verdicts</th></tr></thead><tbody>{"".join(lines)}</tbody></table>', legend),
                raw(f'<dl class="key">{key}</dl>' if explain else "")]


def words(argument):
    """'FedAvg q-FedAvg, FedGA' -> list."""
    return [w for w in re.split(r"[,\s]+", argument or "") if w]


class Reported(Table):
    """{reported} fedga Table 5: the paper's numbers above ours, per method and column, each linked to its row.

    Options: :metrics: :methods: :datasets: (names as in the csv, in the order wanted), :transpose: methods as columns.
    """

    option_spec = {"metrics": words, "methods": words, "datasets": words, "models": words, "transpose": directives.flag}

    def run(self):
        if len(self.arguments) < 2:
            return self.fail("{reported} needs a paper and an artefact, as in: fedga Table 5")
        paper, artefact = self.arguments[0], " ".join(self.arguments[1:])
        table = self.rows("ledger", paper=paper, artefact=artefact)
        if not table:
            return self.fail("{reported}: the ledger has no rows of %s %s", paper, artefact)
        for option, column in (("metrics", "metric"), ("methods", "method"), ("datasets", "dataset"), ("models", "model")):
            wanted = self.options.get(option)
            if wanted:
                there = {r[column] for r in table}
                if unknown := [w for w in wanted if w not in there]:
                    return self.fail("{reported} %s %s has no %s %s; it has %s", paper, artefact, column, unknown[0], ", ".join(sorted(there)))
                table = sorted((r for r in table if r[column] in wanted), key=lambda r: wanted.index(r[column]))
        at = [c for c in ("dataset", "model", "setting", "metric") if len({r.get(c, "") for r in table}) > 1] or ["metric"]
        for c in ("model", "setting"):  # a column that says nothing beyond the others is left out
            rest = [k for k in at if k != c]
            if c in at and len({tuple(r.get(k, "") for k in rest) for r in table}) == len({tuple(r.get(k, "") for k in at) for r in table}):
                at = rest
        columns = list(dict.fromkeys(tuple(r.get(c, "") for c in at) for r in table))
        if "metrics" in self.options and "metric" in at:
            columns.sort(key=lambda c: (columns.index(next(k for k in columns if k[:-1] == c[:-1])), self.options["metrics"].index(c[at.index("metric")])))
        methods = list(dict.fromkeys(r["method"] for r in table))
        cells = {(r["method"], tuple(r.get(c, "") for c in at)): r for r in table}
        best = {(c, f): self.best([cells[m, c] for m in methods if (m, c) in cells], f) for c in columns for f in ("reported", "ours")}

        def cell(m, c):
            r = cells.get((m, c))
            if r is None:
                return "<td></td>"

            def line(f, small):
                text = esc(number(r, f)) if r[f] else "–"
                strong = f"<b>{text}</b>" if r["key"] in best[c, f] else text
                return strong + (f" <small>{esc(small)}</small>" if small else "")

            return (f'<td><span class="rep">{line("reported", "± " + r["reported_spread"] if r["reported_spread"] else "")}</span>'
                    f'<a class="our" href="{self.href("ledger", r)}" title="{esc(tip("ledger", r))}">{line("ours", interval(r))} '
                    f'{chip(r["verdict"], brief=True)}</a></td>')

        def group(c):
            return ", ".join(esc(nice(k, v)) for k, v in zip(at[:-1], c) if v)

        def last(c):
            return esc(nice(at[-1], c[-1])) or "–"

        names = {m: esc(nice("method", m)) for m in methods}
        if "transpose" in self.options:
            head = '<tr><th scope="col"></th>' + "".join(f'<th scope="col">{names[m]}</th>' for m in methods) + "</tr>"
            body = ""
            for g, cs in groupby(columns, group):
                body += f'<tr class="part"><th scope="rowgroup" colspan="{len(methods) + 1}">{g}</th></tr>' if g else ""
                body += "".join(f'<tr><th scope="row">{last(c)}</th>{"".join(cell(m, c) for m in methods)}</tr>' for c in cs)
        else:
            groups = [(g, len(list(cs))) for g, cs in groupby(columns, group)]
            head = '<tr><th></th>' + "".join(f'<th scope="colgroup" colspan="{n}">{g}</th>' for g, n in groups) + "</tr>" if len(at) > 1 else ""
            head += '<tr><th scope="col"></th>' + "".join(f'<th scope="col">{last(c)}</th>' for c in columns) + "</tr>"
            body = "".join(f'<tr><th scope="row">{names[m]}</th>{"".join(cell(m, c) for c in columns)}</tr>' for m in methods)
        ran = [r for r in table if r["ours"]]

        def several(column, word):
            found = sorted({nice(column, r[column]) for r in ran if r[column]})
            return f"{word} {', '.join(found)}" if found else ""

        fixed = ", ".join(nice(c, table[0][c]) for c in ("dataset", "metric") if c not in at and nice(c, table[0].get(c)))
        how = "; ".join(filter(None, [several("data", "data"), several("tier", "tier"), several("n_seeds", "seeds"), several("rule", "rule")]))
        shown = [v for v in VERDICTS if any(r["verdict"] == v for r in table)]
        key = " ".join(chip(v) for v in shown)
        caption = (f'<b>{esc(nice("paper", paper))}, {esc(artefact)}</b>{" · " + esc(fixed) if fixed else ""}: <span class="rep">reported</span> above, '
                   f'<span class="our">ours</span> below with the 95 % interval over seeds; bold is best. {"Ours: " + esc(how) + "." if how else "Not run yet."} {key}')
        return [wrap(f'<table class="plain reported"><thead>{head}</thead><tbody>{body}</tbody></table>', caption, slug(f"{paper}-{artefact}"))]

    @staticmethod
    def best(column, field):
        """Keys of the best rows of a column; none when the metric has no direction or only one method ran."""
        scored = [(float(r[field]), r["key"]) for r in column if r[field]]
        better = METRICS[column[0]["metric"]].better if column and column[0]["metric"] in METRICS else ""
        if len(scored) < 2 or not better:
            return set()
        top = (max if better == "high" else min)(scored)[0]
        return {k for v, k in scored if v == top}


class Simple(Table):
    """One line per row of a file; `id` makes the rows the targets of {num} and {verdict} on the ledger page."""

    file, columns = "", ()

    def lines(self, table):
        head = "".join(f'<th scope="col">{esc(title)}</th>' for title, _ in self.columns)
        here = self.env.docname == "ledger"
        body = "".join((f'<tr id="{self.file}-{slug(identity(self.file, r))}">' if here else "<tr>")
                       + "".join(f"<td>{show(self, r)}</td>" for _, show in self.columns) + "</tr>" for r in table)
        return wrap(f'<table class="plain {self.file}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>')

    def run(self):
        where = {"paper": self.arguments[0]} if self.arguments else {}
        if len(self.arguments) > 1:
            where["artefact"] = " ".join(self.arguments[1:])
        table = self.rows(self.file, **where)
        return [self.lines(table)] if table else self.fail("{%s}: no row for %s", self.name, " ".join(self.arguments) or "any paper")


def origin(_, r):
    """Data and tier of a row."""
    return f'<small>{esc(" · ".join(v for v in (r.get("data"), "tier " + r["tier"] if r.get("tier") else "") if v))}</small>'


def place(_, r):
    """Paper and artefact of a row."""
    return f'{esc(nice("paper", r["paper"]))}, {esc(r["artefact"])}'


class Claims(Simple):
    """{claims} fedga [Table 5]: each claim of the paper, and whether it held in our runs."""

    file = "claims"
    columns = (("where", place), ("claim", lambda _, r: esc(prose(r["claim"])) + ("<small>a claim of ours</small>" if r.get("by") == "ours" else "")),
               ("holds", lambda _, r: chip(r["holds"])), ("evidence", lambda _, r: esc(prose(r["evidence"])) + origin(_, r)))


class Artefacts(Simple):
    """{artefacts} [fedga]: every table and figure of the papers, its state, and the page that shows it."""

    file = "artefacts"

    def page(self, r):
        page, _, part = r.get("page", "").removeprefix("book/").partition("#")
        page = re.sub(r"\.(html|md|ipynb)$", "", page)
        if page in ("", "ledger") or r["status"] == "not run":
            return ""
        if page not in self.env.found_docs:
            self.fail("artefacts.csv: %s %s names the page %r, which the book does not have", r["paper"], r["artefact"], page)
            return esc(page)
        uri = self.env.app.builder.get_relative_uri(self.env.docname, page) + (f"#{part}" if part else "")
        return f'<a href="{esc(uri)}">{esc(page.removeprefix("notebooks/"))}</a>'

    def state(self, r):
        reason = f'<small>{esc(r["reason"])}</small>' if r.get("reason") else ""
        return chip(r["status"]) + (reason or origin(self, r))

    def run(self):
        """Without a paper: one fold for each, closed where nothing was run."""
        if self.arguments:
            return super().run()
        out = []
        for paper, mine in groupby(self.rows(self.file), lambda r: r["paper"]):
            mine = list(mine)
            states = [r["status"] for r in mine]
            summary = " ".join(f"{chip(s)} {states.count(s)}" for s in dict.fromkeys(states))
            out.append(raw(f'<details class="group"{"" if set(states) == {"not run"} else " open"}><summary><b>{esc(nice("paper", paper))}</b> {summary}</summary>'
                           f"{self.lines(mine).astext()}</details>"))
        return out or self.fail("{artefacts}: results/artefacts.csv is empty")

    columns = (("where", place), ("what it shows", lambda _, r: esc(r["title"])),
               ("state", state), ("page", page))


class Deviations(Table):
    """{deviations} fedga [methods ...]: where we leave the paper, why, and what that changes, as measured."""

    def run(self):
        where = {"paper": self.arguments[0]} if self.arguments else {}
        table = self.rows("deviations", **where)
        wanted = set(self.arguments[1:])
        table = [r for r in table if not wanted or wanted & set(re.split(r"[;,\s]+", r.get("methods") or r.get("method") or ""))]
        if not table:
            return self.fail("{deviations}: no row for %s", " ".join(self.arguments) or "any paper")
        effects = {}
        if (folder(self.env) / "effects.csv").exists():
            for e in self.rows("effects", **where):
                effects.setdefault(e["key"], []).append(e)
        listing = nodes.enumerated_list(classes=["deviations"])
        for r in table:
            item = nodes.list_item()
            if self.env.docname == "ledger":
                item["ids"].append(f"deviations-{slug(r['key'])}")
            about = ", ".join(filter(None, [r.get("where"), r.get("methods", "").replace(" ", ", ")]))
            item += nodes.paragraph("", "", nodes.strong("", r.get("title") or r["key"]), raw(f" <small>{esc(about)}</small>"))
            for field, lead in (("paper_says", "Paper: "), ("code_says", "Code: "), ("we_do", "Ours: "), ("why", "Why: ")):
                if r.get(field):
                    kids, _ = self.parse_inline(r[field], lineno=self.lineno)
                    item += nodes.paragraph("", "", nodes.strong("", lead), *kids)
            item += raw(self.effects(r, [e for e in effects.get(r["key"], [r]) if e.get("effect")]))
            listing += item
        return [listing]

    def effects(self, r, measured):
        """What it changes, one line for each measured metric; or why nothing was measured."""
        if not measured:
            return f'<p class="effect">Effect: {chip(r.get("status") or "not measured")} <small>{esc(prose(r.get("evidence", "")))}</small></p>'
        lines = []
        for e in measured:
            width = f" ({number(e, 'effect_lo')} to {number(e, 'effect_hi')}, {e['n_seeds']} seeds)" if e.get("effect_lo") else ""
            lines.append(f'<li>{esc(nice("metric", e["metric"]))}: <b>{esc(number(e, "effect"))}</b>{esc(width)} '
                         f'<small>{esc(nice("dataset", e["dataset"]))} · {esc(e["data"])} · tier {esc(e["tier"])}</small></li>')
        return f'<div class="effect">Effect, ours minus the other way:<ul>{"".join(lines)}</ul></div>'


def size(n):
    """Bytes for readers: 4 bytes, 1.2 kB, 44.7 MB (powers of 1000)."""
    n = float(n)
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= scale:
            return f"{n / scale:.3g}\u202f{unit}"
    return f"{n:.0f}\u202fbytes"


class Sends(Table):
    """{sends} FedGA: what one client sends and receives in one round: names, shapes, bytes, as counted in a run."""

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
            total, plain = (sum(float(r["bytes"]) for r in t) for t in (mine, self.rows("bytes", method="FedAvg", direction=way)))
            more = ""
            if plain and method != "FedAvg":
                gap = total - plain
                more = " as FedAvg" if gap == 0 else f" {size(abs(gap))} {'more' if gap > 0 else 'less'} than FedAvg"
            lines = "".join(f'<tr><td><code>{esc(r["name"])}</code></td><td>{esc(r["shape"])}</td><td class="n">{size(r["bytes"])}</td></tr>' for r in mine)
            title = {"up": "leaves the device", "down": "reaches the device"}.get(way, way)
            out.append(f'<tbody><tr class="part"><th scope="rowgroup" colspan="2">{esc(title)}</th><th class="n">{size(total)}<small>{more}</small></th></tr>'
                       f"{lines}</tbody>")
        return [wrap('<table class="plain sends"><thead><tr><th scope="col">name</th><th scope="col">shape</th>'
                     f'<th scope="col" class="n">size</th></tr></thead>{"".join(out)}</table>', f"{esc(method)}: one client, one round, as counted")]


def setup(app):
    for directive in (Ledger, Verdicts, Reported, Claims, Artefacts, Deviations, Sends):
        app.add_directive(directive.__name__.lower(), directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
