"""Tables that the book makes from results/*.csv: the ledger, reported beside ours,
artefacts, deviations, messages. Claims have a file of their own, fedclaims.py.
"""

import re
from itertools import groupby

from docutils import nodes
from docutils.parsers.rst import directives
from fedbook import (
    NUMBERS,
    Directive,
    address,
    chip,
    esc,
    filtered,
    fold,
    folder,
    heads,
    home,
    identity,
    interval,
    nice,
    number,
    parallel,
    part,
    places,
    prose,
    raw,
    small,
    table,
    tip,
    wrap,
)

from repro import papers
from repro.ledger import METRICS, slug

VIEWS = papers.union("views")


class Table(Directive):
    """A directive that prints rows of a results file."""

    optional_arguments = 8
    final_argument_whitespace = False


NAMES = "paper artefact dataset method metric reported ours seeds data tier verdict"
COLUMNS = dict.fromkeys(NAMES.split(), "cat")
COLUMNS |= dict.fromkeys(("reported", "ours", "seeds"), "num")


class Ledger(Table):
    """{ledger}: the whole ledger as a plain table that reads without JavaScript;
    ledger.js makes it live. The rule, small print, gets a filter of its own.
    """

    @staticmethod
    def cell(r, c):
        if c == "verdict":
            return chip(r[c]) + small(r.get("pairs"))
        if c == "dataset":
            setting = r.get("setting", "").removeprefix("default")
            return esc(nice(c, r[c])) + small(setting)
        if c == "metric":
            return esc(nice(c, r[c])) + small(nice("rule", r["rule"]))
        if c == "reported":
            spread = r["reported_spread"] and f"± {r['reported_spread']}"
            return esc(number(r, c)) + small(spread)
        if c == "ours":
            return esc(number(r, c)) + small(interval(r))
        if c == "seeds":
            minutes = f"{number(r, 'minutes', '.2g')} min" if r.get("minutes") else ""
            return esc(r["n_seeds"]) + small(r.get("device"), minutes)
        return esc(nice(c, r.get(c)))

    def line(self, r):
        cells = (f'<td class="c-{c}">{self.cell(r, c)}</td>' for c in COLUMNS)
        return f'<tr id="{esc(r["key"])}">{"".join(cells)}</tr>'

    def run(self):
        rule = {"metric": " data-small=rule"}
        head = "".join(
            f'<th scope="col" data-kind="{k}" data-name="{c}"{rule.get(c, "")}>{c}</th>'
            for c, k in COLUMNS.items()
        )
        body = "\n".join(map(self.line, self.rows("ledger")))
        what = (
            "Each row: a number of a paper, ours with its 95 % interval, and the "
            "verdict. Small print: setting, selection rule, spread, device, minutes, "
            "how many decided pairs of methods agree."
        )
        return [live("ledger", "ledger live", 'data-what="numbers"', what, head, body)]


def live(name, kind, data, what, head, body):
    """A table that reads without JavaScript; ledger.js makes it live."""
    caption = f'<caption class="visually-hidden">{what}</caption>'
    head = f"<thead><tr>{head}</tr></thead>"
    body = f"<tbody>\n{body}\n</tbody>"
    at = f'<table id="{name}" class="{kind}" {data}>'
    return raw(f"{at}{caption}{head}\n{body}</table>")


class Verdicts(Table):
    """{verdicts} [paper]: how many numbers of each artefact (of each paper, without
    argument) have which verdict; settings are counted apart, they are no results.

    Option :explain: says below what each verdict means.
    """

    option_spec = {"explain": directives.flag}

    def run(self):
        paper = self.arguments[0] if self.arguments else None
        found = self.rows("ledger", **({"paper": paper} if paper else {}))
        if not found:
            return self.fail("no row of the ledger is of paper %r", paper)
        by, body = "artefact" if paper else "paper", ""
        for group in dict.fromkeys(r[by] for r in found):
            body += self.line(by, paper, [r for r in found if r[by] == group])
        used = [v for v in NUMBERS if any(r["verdict"] == v for r in found)]
        head = heads([by]) + heads(["results", "settings"], "n")
        head += heads(["verdicts of the results"])
        explain = "explain" in self.options
        chips = "" if explain else " ".join(map(chip, used))
        explained = raw(legend(NUMBERS, used) if explain else "")
        return [wrap(table("verdicts", head, body), chips), explained]

    def line(self, by, paper, mine):
        group, found = mine[0][by], [r["verdict"] for r in mine]
        where = {"paper": paper, "artefact": group} if paper else {"paper": group}
        settings = found.count("setting")
        shown = [v for v in NUMBERS if v in found and v != "setting"]
        bar = "".join(self.part(v, found.count(v), where) for v in shown)
        name = f'<a href="{self.shown(where)}">{esc(nice(by, group))}</a>'
        counts = len(found) - settings, self.linked(settings, where)
        cells = "".join(f'<td class="n">{n}</td>' for n in counts)
        bar = f'<td><div class="stack">{bar}</div></td>'
        return f'<tr><th scope="row">{name}</th>{cells}{bar}</tr>'

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
    about = f'style="flex:{n}" href="{href}" title="{n} {verdict}"'
    said = f'<span>{n}</span><span class="visually-hidden"> {verdict}</span>'
    return f'<a class="v-{slug(verdict)}" {about}>{said}</a>'


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

    chosen = ("metrics", "methods", "datasets", "models")
    option_spec = dict.fromkeys((*chosen, "settings"), words)
    option_spec |= dict.fromkeys(("rules", "transpose"), directives.flag)

    def run(self):
        if len(self.arguments) < 2:
            why = "{reported} needs a paper and an artefact, as in: fedga Table 5"
            return self.fail(why)
        paper, artefact = self.arguments[0], " ".join(self.arguments[1:])
        every = self.rows("ledger", paper=paper, artefact=artefact)
        printed = [(r["metric"], places(r["reported"])) for r in every]
        self.fmt = {m: f".{max(1, n)}f" for m, n in printed if n is not None}
        found, wrong = self.select(every)
        if wrong:
            return self.fail("{reported} %s %s%s", paper, artefact, wrong)
        self.layout(found)
        name = f"<b>{esc(nice('paper', paper))}, {esc(artefact)}</b>{self.fixed(found)}"
        how = '<span class="our">ours</span>'
        if self.printed:
            how = f'<span class="rep">reported</span> above, {how} below'
        shown = [chip(v) for v in NUMBERS if any(r["verdict"] == v for r in found)]
        caption = (
            f"{name}: {how} with the 95 % interval over seeds; bold is best. "
            f"{self.conditions(found)} {' '.join(shown)}"
        )
        body = self.turned() if "transpose" in self.options else self.upright()
        anchors = self.env.temp_data.setdefault("fedtables", set())
        anchor = slug(f"{paper}-{artefact}")
        at = "" if anchor in anchors else anchor
        anchors.add(anchor)
        return [wrap(f'<table class="plain reported">{body}</table>', caption, at)]

    def select(self, found):
        """(the rows that the options want, in their order; what is wrong with them)."""
        if not found:
            return found, ": the ledger has no rows of it"
        for option in self.chosen:
            wanted, c = self.options.get(option), option[:-1]
            known = sorted({r[c] for r in found})
            for w in wanted or ():
                if w not in known:
                    return found, f" has no {c} {w}; it has {', '.join(known)}"
            if wanted:
                mine = (r for r in found if r[c] in wanted)
                found = sorted(mine, key=lambda r: wanted.index(r[c]))
        parts = dict(p.partition("=")[::2] for p in self.options.get("settings", ()))
        known = sorted({"=".join(p) for r in found for p in pieces(r).items()})
        for p in map("=".join, parts.items()):
            if p not in known:
                return found, f" has no setting {p}; it has {', '.join(known)}"
        found = [r for r in found if parts.items() <= pieces(r).items()]
        if "rules" not in self.options and "rule" not in parts:
            found = [r for r in found if "rule=" not in r.get("setting", "")]
        return found, "" if found else ": no row has all of these options"

    def fixed(self, found):
        """What all rows share, for the caption."""
        first, columns = found[0], ("dataset", "metric")
        same = [nice(c, first[c]) for c in columns if c not in self.at]
        shared = ", ".join(filter(None, same))
        for k, v in pieces(first).items():
            if k != "rule" and all(pieces(r).get(k) == v for r in found):
                shared += f", {v if v in VIEWS else f'{k} = {v}'}"
        return f" · {esc(shared)}" if shared else ""

    def layout(self, found):
        """What makes a row, what makes a column: `line` of a row of the ledger, `at`
        the columns of the csv that vary.
        """
        settings = {r.get("setting", "") for r in found}
        self.printed = any(r["reported"] for r in found)
        # some methods were run in a second way: a row of its own
        self.inline_settings = "" in settings and len(settings) > 1
        self.rules = len({pieces(r).get("rule") for r in found}) > 1
        apart = not self.inline_settings and all(map(pieces, found))
        names = dict.fromkeys(k for r in found for k in pieces(r) if k != "rule")
        methods = {r["method"] for r in found}
        vary = lambda k: {(r["method"], pieces(r).get(k)) for r in found}
        several = [k for k in names if apart and len(vary(k)) > len(methods)]
        # without a value: a row of its own with
        self.axes = [k for k in several if all(k in pieces(r) for r in found)]
        self.switches = [k for k in several if k not in self.axes]
        between = self.axes if apart else ["setting"] * (not self.inline_settings)
        at = [c for c in ("dataset", "model", *between, "metric")]
        at = [c for c in at if len({self.value(r, c) for r in found}) > 1]
        self.at = at or ["metric"]
        # what says nothing beyond the others is left out
        many = lambda at: len({self.column(r, at) for r in found})
        for c in ("model", "setting"):
            rest = [k for k in self.at if k != c]
            if c in self.at and many(rest) == many(self.at):
                self.at = rest
        columns = dict.fromkeys(map(self.column, found))
        self.columns = sorted(columns, key=self.rank(found))
        self.lines = list(dict.fromkeys(map(self.line, found)))
        self.cells = {(self.line(r), self.column(r)): r for r in found}
        self.top = {}
        for c in self.columns:
            mine = [self.cells[m, c] for m in self.lines if (m, c) in self.cells]
            self.top |= {(c, f): self.best(mine, f) for f in ("reported", "ours")}

    def rank(self, found):
        """Columns of one data set stay together;
        inside, the order asked for or that of the paper.
        """
        groups = list(dict.fromkeys(self.column(r)[:-1] for r in found))
        last = list(dict.fromkeys(self.column(r)[-1] for r in found))
        if self.at[-1] == "metric" and "metrics" in self.options:
            last = self.options["metrics"]
        return lambda c: (groups.index(c[:-1]), last.index(c[-1]))

    def column(self, r, at=None):
        return tuple(self.value(r, c) for c in (self.at if at is None else at))

    def value(self, r, c):
        return (pieces(r) if c in self.axes else r).get(c, "")

    def line(self, r):
        if self.inline_settings:
            return r["method"], r.get("setting", "")
        own, found = [*self.switches, *["rule"] * self.rules], pieces(r)
        return r["method"], ";".join(f"{k}={found[k]}" for k in own if k in found)

    @staticmethod
    def named(line):
        method, setting = line
        said = f" <small>{esc(setting)}</small>" if setting else ""
        return esc(nice("method", method)) + said

    def group(self, c):
        return ", ".join(self.heading(k, v) for k, v in zip(self.at[:-1], c) if v)

    def last(self, c):
        return self.heading(self.at[-1], c[-1]) or "–"

    def heading(self, c, value):
        axis = c in self.axes and value and value not in VIEWS
        return esc(f"{c} = {value}" if axis else nice(c, value))

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
        above = f'<span class="rep">{text("reported", spread)}</span>' * self.printed
        uri = esc(address(self.env, "ledger", r, self.env.docname))
        below = f"{text('ours', interval(r, fmt))} {chip(r['verdict'], brief=True)}"
        link = f'<a class="our" href="{uri}" title="{esc(tip("ledger", r))}">'
        return f"<td>{above}{link}{below}</a></td>"

    def row(self, name, cells):
        return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'

    def upright(self):
        """Methods down, columns across; above them their data sets."""
        groups = [(g, len(list(cs))) for g, cs in groupby(self.columns, self.group)]
        spans = [f'<th scope="colgroup" colspan="{n}">{g}</th>' for g, n in groups]
        head = f"<tr><td></td>{''.join(spans)}</tr>" if len(self.at) > 1 else ""
        head += f"<tr><td></td>{heads(map(self.last, self.columns))}</tr>"
        row = lambda m: self.row(self.named(m), (self.cell(m, c) for c in self.columns))
        return f"<thead>{head}</thead><tbody>{''.join(map(row, self.lines))}</tbody>"

    def turned(self):
        """Methods across, columns down, in blocks by data set."""
        head = f"<tr><td></td>{heads(map(self.named, self.lines))}</tr>"
        row = lambda c: self.row(self.last(c), (self.cell(m, c) for m in self.lines))
        body = ""
        for g, cs in groupby(self.columns, self.group):
            body += part(g, len(self.lines) + 1) if g else ""
            body += "".join(map(row, cs))
        return f"<thead>{head}</thead><tbody>{body}</tbody>"

    @staticmethod
    def conditions(found):
        """Data, tier, seeds and rule of our numbers, in words."""
        parts, words = [], {"data": "data", "tier": "tier", "n_seeds": "seeds"}
        for c, word in (words | {"rule": "rule"}).items():
            values = sorted({nice(c, r[c]) for r in found if r["ours"] and r[c]})
            parts += [f"{word} {', '.join(values)}"] if values else []
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

    def lines(self, found):
        here, body = self.env.docname == home(self.file), ""
        for r in found:
            name = f' id="{self.file}-{slug(identity(self.file, r))}"' * here
            cells = "".join(f"<td>{show(self, r)}</td>" for _, show in self.columns)
            body += f"<tr{name}>{cells}</tr>"
        head = heads(esc(title) for title, _ in self.columns)
        return wrap(table(self.file, head, body))

    def run(self):
        where = dict(zip(["paper"], self.arguments))
        if len(self.arguments) > 1:
            where["artefact"] = " ".join(self.arguments[1:])
        found = self.rows(self.file, **where)
        if not found:
            asked = " ".join(self.arguments) or "any paper"
            return self.fail("{%s}: no row for %s", self.name, asked)
        return [self.lines(found)]


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
            why = "artefacts.csv: %s %s names the page %r, which the book does not have"
            self.fail(why, r["paper"], r["artefact"], page)
            return esc(page)
        uri = self.env.app.builder.get_relative_uri(self.env.docname, page)
        uri += f"#{part}" if part else ""
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
            counts = {s: states.count(s) for s in states}
            summary = " ".join(f"{chip(s)} {n}" for s, n in counts.items())
            name = f"<b>{esc(nice('paper', paper))}</b> {summary}"
            closed = set(states) == {"not run"}
            out.append(fold(name, self.lines(mine).astext(), "group", not closed))
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

    leads = {"paper_says": "Paper", "code_says": "Code", "we_do": "Ours", "why": "Why"}

    def run(self):
        where, wanted = dict(zip(["paper"], self.arguments)), set(self.arguments[1:])
        found = self.rows("deviations", **where)
        methods = lambda r: {*words(r.get("methods"))}
        found = [r for r in found if not wanted or wanted & methods(r)]
        if not found:
            asked = " ".join(self.arguments) or "any paper"
            return self.fail("{deviations}: no row for %s", asked)
        effects = {}
        if (folder(self.env) / "effects.csv").exists():
            for e in self.rows("effects", **where):
                effects.setdefault(e["key"], []).append(e)
        listing = nodes.enumerated_list(classes=["deviations"])
        for r in found:
            item = nodes.list_item()
            if self.env.docname == "ledger":
                item["ids"].append(f"deviations-{slug(r['key'])}")
            about = ", ".join(filter(None, [r.get("where"), *words(r.get("methods"))]))
            measured = [e for e in effects.get(r["key"], [r]) if e.get("effect")]
            item += raw(
                f"<details><summary><b>{esc(r.get('title') or r['key'])}</b> "
                f"<small>{esc(about)}</small>{self.effects(r, measured)}</summary>"
            )
            for field, lead in self.leads.items():
                if r.get(field):
                    lead, kids = nodes.strong("", f"{lead}: "), self.inline(r[field])
                    item += nodes.paragraph("", "", lead, *kids)
            item += raw("</details>")
            listing += item
        return [listing]

    @staticmethod
    def effects(r, measured):
        """What it changes, one line for each comparison;
        or why nothing was measured.
        """
        if not measured:
            why = f"<small>{esc(prose(r.get('evidence', '')))}</small>"
            state = chip(r.get("status") or "not measured")
            return f'<span class="effect">{state} {why}</span>'
        columns = ("dataset", "data", "tier", "n_seeds", "ours_is", "other_is")
        comparison = lambda e: tuple(e.get(c, "") for c in columns)

        def value(e):
            ends = [number(e, field) for field in ("effect_lo", "effect_hi")]
            width = f" ({' to '.join(ends)})" if e.get("effect_lo") else ""
            effect = f"<b>{esc(number(e, 'effect'))}</b>{esc(width)}"
            return f"{esc(nice('metric', e['metric']))} {effect}"

        out = ""
        for key, same in groupby(sorted(measured, key=comparison), comparison):
            dataset, data, tier, n, ours, other = key
            seeds = "one seed" if n == "1" else f"{n} seeds"
            where = [nice("dataset", dataset), data, f"tier {tier}", seeds]
            where += [f"{ours} against {other}"] if ours else []
            about = f"<small>{esc(' · '.join(where))}</small>"
            out += f'<span class="effect">{", ".join(map(value, same))} {about}</span>'
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
        method, body = " ".join(self.arguments), ""
        found = self.rows("bytes", method=method)
        if not found:
            return self.fail("{sends}: results/bytes.csv has no method %r", method)
        ways = {"up": "leaves the device", "down": "reaches the device"}
        total = lambda rows: sum(float(r["bytes"]) for r in rows)
        for way in dict.fromkeys(r["direction"] for r in found):
            mine, more = [r for r in found if r["direction"] == way], ""
            plain = total(self.rows("bytes", method="FedAvg", direction=way))
            if plain and method != "FedAvg":
                gap = total(mine) - plain
                word = "more" if gap > 0 else "less"
                more = f" {size(abs(gap))} {word} than FedAvg" if gap else " as FedAvg"
            head = f'<th scope="rowgroup" colspan="2">{esc(ways.get(way, way))}</th>'
            head += f'<th class="n">{size(total(mine))}<small>{more}</small></th>'
            body += f'<tbody><tr class="part">{head}</tr>'
            for r in mine:
                name = (
                    f"<td><code>{esc(r['name'])}</code></td><td>{esc(r['shape'])}</td>"
                )
                body += f'<tr>{name}<td class="n">{size(r["bytes"])}</td></tr>'
            body += "</tbody>"
        head = (
            f"<thead><tr>{heads(['name', 'shape'])}{heads(['size'], 'n')}</tr></thead>"
        )
        what = f"{esc(method)}: one client, one round, as counted"
        return [wrap(f'<table class="plain sends">{head}{body}</table>', what)]


def setup(app):
    return parallel(app, Ledger, Verdicts, Reported, Artefacts, Deviations, Sends)
