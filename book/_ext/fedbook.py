"""Numbers and verdicts that the book reads from results/*.csv when it is built: the
roles, and what the directives share.

Nothing here computes a result. A key, field, paper or artefact that is not there, and a
cell without a number, is a warning, so `--warningiserror` stops the build: no page can
print a number that no file holds.
"""

import csv
import gzip
import math
import re
import shlex
import sys
from base64 import b64encode
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import yaml
from docutils import nodes
from docutils.statemachine import StringList
from fedlight import light
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from markupsafe import escape as esc
from pybtex import plugin
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx_proof.domain import ProofDomain

from repro import gate, papers
from repro.ledger import slug

log = logging.getLogger(__name__)
HERE = Path(__file__).parent  # what things are called stands in words.yaml
WORDS = yaml.safe_load((HERE / "words.yaml").read_text("utf-8"))
NUMBERS, CLAIMS, SMALL, GAINS, SAID, DATASETS, TASKS, *OTHERS = WORDS.values()
NAMES, PIECES, LINES, SIZES = OTHERS
VERDICTS = {**NUMBERS, **CLAIMS, **SMALL, **GAINS, "not run": "no run yet"}
PAPERS = papers.each("title")
FILES = ("ledger", "claims", "artefacts", "deviations", "facts", "effects", "bytes")
# files whose rows {num} can ask for, in the order in which a key is looked for
KEYED = FILES[:5]
HELD = 10  # rows of a live table that its page holds itself
MARKS = ("verdict", "holds", "status")
CHOSEN = (*MARKS, "size")  # values that no row may have
# what a reader can choose on the page of a file
CHOICES = {
    "ledger": {*"paper artefact dataset method metric rule data tier verdict".split()},
    "claims": {*"paper artefact by holds size gain data tier".split()},
}
DEFAULT = dict(zip(KEYED, ("ours", "holds", "status", "effect", "value")))


# ---- reading


def folder(env):
    """The results folder; it stands beside the book."""
    return Path(env.srcdir, env.config.fedbook_results).resolve()


def identity(row):
    """The name by which a row is asked for."""
    return row.get("key") or slug(f"{row.get('paper')}-{row.get('artefact')}")


@cache
def read(path, when):
    """(rows of a csv as dicts of text, the same by their identity); `when`, its time,
    only keeps the cache fresh.
    """
    with open(path, newline="", encoding="utf-8") as f:
        found = list(csv.DictReader(f))
    return found, {identity(r): r for r in found}


def table(env, name):
    """Both of results/<name>.csv, or None if there is no such file."""
    path = folder(env) / f"{name}.csv"
    if path.exists():
        env.note_dependency(str(path))
        return read(str(path), path.stat().st_mtime_ns)
    return None


def rows(env, name, location=None, **where):
    """Rows of results/<name>.csv whose columns equal `where` (case does not count); a
    warning if the file is missing.
    """
    found = table(env, name)
    if found is None:
        env.note_dependency(str(folder(env) / f"{name}.csv"))
        why = "results/%s.csv is missing: run the stage that writes it"
        log.warning(why, name, location=location)
        return []
    fits = lambda r: all(r.get(c, "").lower() == v.lower() for c, v in where.items())
    return list(filter(fits, found[0]))


def find(env, key):
    """(file, row) of a key, looked for in every file that exists; else (None, {})."""
    for name in KEYED:
        found = table(env, name)
        if found and key in found[1]:
            return name, found[1][key]
    return None, {}


def grouped(rows, column):
    """{value of a column: its rows}"""
    found = {}
    for r in rows:
        found.setdefault(r[column], []).append(r)
    return found


# ---- showing


def nice(column, value):
    """How a value of a column is printed."""
    value = value or ""
    known = {"paper": PAPERS, "dataset": DATASETS, "metric": NAMES, "verdict": SAID}
    known = known.get(column, {})
    if column == "metric":
        value = value.replace("_pct", "") if value not in known else value
    worded = column in ("metric", "rule", "method", "setting")
    return known.get(value, value.replace("_", " ") if worded else value)


def tasks(r):
    """{data set of a paper: what ran in its place} for a row."""
    return TASKS.get(r.get("paper"), {}) if "stand-in" in r.get("data", "") else {}


def task(r):
    """What a row's data are called: what ran, never what it stands in for."""
    return tasks(r).get(r["dataset"]) or nice("dataset", r["dataset"])


def instead(r):
    """What ran, and for which data of the paper."""
    ran, meant = task(r), nice("dataset", r["dataset"])
    return ran if ran == meant else f"{ran} for {meant}"


def prose(text, r):
    """A sentence of a row, with names of data sets and metrics as the book's."""
    known = {**DATASETS, **NAMES, **tasks(r)}
    named = r"[\w-]*[A-Z_\d][\w-]*"
    return re.sub(named, lambda m: known.get(m[0], m[0]), text)


def places(text):
    """Number of decimals printed in a text such as "23.38"."""
    decimal = re.fullmatch(r"-?\d+(\.\d+)?", text or "")
    return len(text.partition(".")[2]) if decimal else None


def number(row, field, fmt=None):
    """A field of a ledger row as text: ours with as many decimals as the paper prints
    (at least one), true minus signs.
    """
    text = row.get(field, "")
    try:
        value = float(text)
    except ValueError:
        return text
    if fmt is None and field.startswith("ours"):
        printed = places(row.get("reported"))
        fmt = f".{max(1, printed)}f" if printed is not None else ".4g"
    elif fmt is None and field in ("effect", "effect_lo", "effect_hi"):
        fmt = "+.3g"
    if math.isinf(value):
        return "∞"
    out = format(value, fmt) if fmt else text
    if re.fullmatch(r"[-+]0\.?0*", out):
        out = out[1:]
    return out.replace("-", "\u2212") if fmt is None or fmt[-1] in "fgd%e" else out


def interval(row, fmt=None):
    """The interval of ours, "22.1 to 23.9", or nothing."""
    ends = (number(row, field, fmt) for field in ("ours_lo", "ours_hi"))
    return " to ".join(ends) if row.get("ours_lo") else ""


def seeds(row):
    return "one seed" if row["n_seeds"] == "1" else f"{row['n_seeds']} seeds"


def answer(r):
    """The verdict of a claim, "small yes" where its difference is inside the margin."""
    return f"small {r['holds']}" if r.get("size") == "small" else r["holds"]


def word(r):
    """That verdict as it is printed."""
    return SAID.get(answer(r), answer(r))


def chip(word, *, brief=False, says=""):
    """A verdict, status or answer: sign, word and colour; brief leaves the sign, the
    word stays for screen readers.
    """
    said = esc(says or SAID.get(word, word))
    inner = f'<span class="visually-hidden">{said}</span>' if brief else said
    tip = f' title="{said}: {esc(VERDICTS[word])}"' if word in VERDICTS else ""
    kind = f"chip{' brief' * brief} v-{slug(word)}"
    return Markup(f'<span class="{kind}"{tip}>{inner}</span>')


def pairs(rows):
    """(pairs of methods as printed, decided pairs); each is in the rows of both."""
    found = (re.match(r"(\d+) of (\d+)", r["pairs"]) for r in rows)
    counts = [(int(m[1]), int(m[2])) for m in found if m]
    return tuple(sum(n) // 2 for n in zip(*counts)) or (0, 0)


def judged(r, brief=False):
    """The chip of a row: its answer, status, verdict, or how many pairs agree."""
    as_printed = re.match(r"\d+ of \d+", r.get("pairs", ""))
    says = f"{as_printed[0]} pairs as printed" if as_printed else ""
    word = answer(r) if "holds" in r else r.get("verdict") or r["status"]
    return chip(word, brief=brief, says=says)


def tip(name, row):
    """Where a number comes from, in one line."""
    named = ("paper", "artefact", "method", "metric")
    parts = [nice(c, row.get(c)) for c in named]
    parts.insert(2, task(row) if "dataset" in row else "")
    said = row.get("source") or row.get("claim") or row.get("title") or ""
    parts.append(prose(said, row))
    parts.append(f"{row['data']} data, tier {row['tier']}" if row.get("data") else "")
    parts.append(f"{row['n_seeds']} seeds" if row.get("n_seeds") else "")
    return ", ".join(filter(None, parts))


def address(env, name, row, docname):
    """Link to the row on the page that lists it, if there is one."""
    if not (page := home(name, row)):
        return None
    page = env.app.builder.get_relative_uri(docname, page)
    return f"{page}#{anchor(name, row)}"


def anchor(name, row):
    """The id of a row on that page."""
    key = identity(row)
    return key if name == "ledger" else f"{name}-{slug(key)}"


def home(name, row):
    """The page that lists a row; none has facts, or numbers that no paper prints."""
    if name == "deviations":
        return f"{row['paper'].replace('-', '')}_record"
    listed = name in ("claims", "artefacts") or name == "ledger" and row["reported"]
    return name if listed else None


def filtered(env, docname, where, name="ledger"):
    """Link to the page of a file, showing only the rows with these values."""
    where = {"verdict" if c == "holds" else c: nice(c, v) for c, v in where.items()}
    uri = env.app.builder.get_relative_uri(docname, name)
    return f"{uri}#?{urlencode(where)}"


def raw(text):
    return nodes.raw("", text, format="html")


def small(*texts):
    """Small print, or nothing."""
    shown = " · ".join(filter(None, texts))
    return Markup("<small>{}</small>").format(shown) if shown else ""


# ---- directives


def source(name):
    """A template; a line break in it, with what indents the next line, is no blank."""
    return re.sub(r"\n\s*", "", (HERE / name).read_text("utf-8"))


TEMPLATES = Environment(
    loader=FunctionLoader(source), autoescape=True, undefined=StrictUndefined
)
TEMPLATES.globals |= globals()


def macros(module):
    """Those of <module>.html, which see what the module sees."""
    about = vars(sys.modules[module])
    return TEMPLATES.get_template(f"{module}.html", globals=about).module


class Directive(SphinxDirective):
    """A directive that reads results and draws them by a macro of <module>.html; it
    raises self.warning(...) where it cannot.
    """

    optional_arguments = 8
    final_argument_whitespace = False

    def rows(self, name, **where):
        return rows(self.env, name, self.get_location(), **where)

    def asked(self, name, *columns):
        """Rows of a file that the arguments ask for, these columns' values in order,
        the last one's with blanks.
        """
        values = self.arguments[: len(columns) - 1]
        values += [" ".join(self.arguments[len(values) :])]
        found = self.rows(name, **{c: v for c, v in zip(columns, values) if v})
        if not found:
            said = " ".join(self.arguments) or "any paper"
            raise self.warning(f"{{{self.name}}}: results/{name}.csv has no {said!r}")
        return found

    def draw(self, macro, *values):
        """The nodes of a macro: raw HTML, and between it the Markdown of its `md`."""
        self.texts = []
        html = getattr(macros(type(self).__module__), macro)(self, *values)
        parts = re.split("\0(\\d+)\0", html)
        parts[::2] = [[raw(text)] for text in parts[::2]]
        parts[1::2] = [self.texts[int(i)] for i in parts[1::2]]
        return sum(parts, [])

    def md(self, text, block=False):
        """In a template: Markdown of the page, one paragraph or several."""
        words = [nodes.inline("", "", *self.inline(text))] if not block else []
        self.texts.append(words or self.block(text))
        return f"\0{len(self.texts) - 1}\0"

    def inline(self, text):
        return self.parse_inline(" ".join(text.split()), lineno=self.lineno)[0]

    def block(self, text):
        box = nodes.Element()
        self.state.nested_parse(StringList(text.splitlines(), "block"), 0, box)
        return box.children

    def shown(self, where, name="ledger"):
        """Link to the rows of a file with these values."""
        return filtered(self.env, self.env.docname, where, name)

    def page(self, name):
        """Link to a page."""
        return self.env.app.builder.get_relative_uri(self.env.docname, name)


def parallel(app, *directives):
    """Add directives by their names in lower case; what `setup` gives."""
    for directive in directives:
        app.add_directive(directive.__name__.lower(), directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


# ---- roles


class Role(SphinxRole):
    """Prints the `html` of text from a file; a ValueError of it is a warning."""

    rows = Directive.rows

    def run(self):
        try:
            return [raw(self.html())], []
        except ValueError as why:
            at = self.get_location()
            log.warning("{%s}`%s`: %s", self.name, self.text, why, location=at)
            return [nodes.problematic("", self.text)], []

    def link(self, body, name, row):
        uri = address(self.env, name, row, self.env.docname)
        return number_link(body, uri, esc(tip(name, row)))


def number_link(body, uri, tip=""):
    """A number, linked to where it comes from if that has a page."""
    title = f' title="{tip}"' if tip else ""
    tag, to = ("span", "") if uri is None else ("a", f' href="{esc(uri)}"')
    return f'<{tag} class="num"{to}{title}>{body}</{tag}>'


class Num(Role):
    """{num}`key field format`: one number; the field, a column, may be left out."""

    def html(self):
        key, *rest = self.text.split()
        name, row = find(self.env, key)
        if name is None:
            raise ValueError(f"no number: no file of {', '.join(KEYED)} has {key!r}")
        field = rest.pop(0) if rest and rest[0] in row else DEFAULT[name]
        fmt = rest.pop(0) if rest else None
        if rest or (fmt and not re.fullmatch(r"[+,]?\.?\d*[dfgse%]", fmt)):
            what = f"a key, a field ({', '.join(row)}), a format such as .1f"
            raise ValueError(f"expected {what}")
        if not row.get(field):
            why = row.get("verdict") or row.get("status") or "no value"
            raise ValueError(f"no number: {field} is empty ({why})")
        return self.link(self.show(row, field, fmt), name, row)

    def show(self, row, field, fmt):
        if field in MARKS:
            return chip(row[field])
        numeric = re.match(r"[-+]?[\d.]", row[field])
        if fmt:
            float(row[field])
        shown = number(row, field, fmt) if numeric else nice(field, row[field])
        unit = row.get("unit") if field == "value" else ""
        return esc(f"{shown}\u202f{unit}" if unit else shown)


class Verdict(Role):
    """{verdict}`key`: the chip of a row (verdict, holds or status), linked to it; or
    {verdict}`match`: the chip alone.
    """

    def html(self):
        if self.text in VERDICTS:
            return chip(self.text)
        name, row = find(self.env, self.text.strip())
        if not any(row.get(f) for f in MARKS):
            raise ValueError("no verdict: neither a verdict nor a row that has one")
        return self.link(judged(row), name, row)


class Count(Role):
    """{count}`ledger paper=fedga verdict=match`: how many rows of a file have these
    values; linked to them. A verdict that no row has is no mistake.
    """

    def html(self):
        name, *rest = shlex.split(self.text)
        where, everything = dict(part.split("=", 1) for part in rest), self.rows(name)
        for c, v in where.items():
            found = {r[c].lower() for r in everything if c in r}
            if everything and (not found or v.lower() not in found and c not in CHOSEN):
                raise ValueError(f"no row of {name} has {c}={v}")
        linked = name in CHOICES and where.keys() <= CHOICES[name]
        uri = filtered(self.env, self.env.docname, where, name) if linked else None
        return number_link(len(self.rows(name, **where)), uri)


turned = cache(gate.turned)


class Rests(Role):
    """{rests}`yes: fedga-a fedga-b-*; small no, undecided: fedga-c`: the claims that a
    finding rests on, as signs; before each the answers with which the finding agrees.
    It was written with the knobs of the commit: at others it need not agree.
    """

    def html(self):
        named = rested(self.text, self.rows("claims"), turned())
        return " ".join(self.link(judged(r, True), "claims", r) for r in named)


def rested(text, claims, free=()):
    """The rows that {rests} names. ValueError: another answer, of papers not free."""
    found = []
    for words, _, names in (part.partition(":") for part in text.split(";")):
        agreed = re.split(", *", words.strip())
        for name in names.split():
            mine = [r for r in claims if fnmatchcase(r["key"], name)]
            judged = (r for r in mine if r["paper"] not in free)
            tested = (r for r in judged if r["tier"] not in ("", "tiny"))
            if odd := [r for r in tested if answer(r) not in agreed]:
                is_now = f"{odd[0]['key']} is {answer(odd[0])}"
                raise ValueError(f"{is_now}, not {words.strip()}: mend the finding")
            if not mine:
                raise ValueError(f"no claim {name}")
            found += mine
    return found


# ---- pages


# script -> what a page must hold to need it
NEEDED = dict.fromkeys(("copybutton", "clipboard"), 'class="highlight')
NEEDED |= {"looks.js": 'looks"', "quiz.js": "<fieldset", "slides.js": 'class="deck'}
NEEDED |= dict.fromkeys(("mathjax", "tex-svg"), 'class="math')
NEEDED["figures.js"] = r'class="(?:fedfig|fig|arrows|pair)|eqlink'
NEEDED["ledger.js"] = "data-kind=|<template"


def lean(app, page, template, context, doctree):
    """Drop scripts that do harm, or nothing: thebe's (loaded twice, names a remote
    host), the copy button's on a page without code (it fails there at every click), our
    own where there is nothing to move or to sort. And ids that occur twice.
    """
    body = context.get("body", "")
    drop = ["thebe", *(s for s, needs in NEEDED.items() if not re.search(needs, body))]
    # exercises, solutions and proofs carry the same id each
    body = re.sub(r' id="(?:exercise|solution|proof)-content"', "", body)
    context["body"] = apart(Path(app.outdir), page, light(f"<style></style>{body}"))
    tree = context.get("generate_toctree_html", str)  # the theme's toggles lack a name
    named = lambda **how: str(tree(**how)).replace("<summary", '<summary title="more"')
    context["generate_toctree_html"] = named

    def needed(s):
        said = f"{getattr(s, 'filename', s)}{getattr(s, 'attributes', '')}".lower()
        return not any(d in said for d in drop)

    context["script_files"] = [*filter(needed, context.get("script_files", []))]


def apart(folder, page, body):
    """A body whose <template>s, what nobody looks at yet, stand packed in files of the
    folder that ledger.js reads.
    """
    parts = re.split("(?s)<template>(.*?)</template>", body)
    for i in range(1, len(parts), 2):
        packed = b64encode(gzip.compress(parts[i].encode(), mtime=0)).decode()
        path = folder / "_static/rows" / f"{page}.{i}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'ROWS = "{packed}"')
        parts[i] = f'<template data-rows="_static/rows/{path.name}"></template>'
    return "".join(parts)


def setup(app):
    app.add_config_value("fedbook_results", "../results", "env")
    for role in (Num, Verdict, Count, Rests):
        app.add_role(role.__name__.lower(), role())
    app.connect("html-page-context", lean, priority=900)
    # else each reference looks through all installed packages for it
    plugin.find_plugin = cache(plugin.find_plugin)
    # two that do not say that they can be read in parallel: one has nothing to merge,
    # the other runs when all is read
    ProofDomain.merge_domaindata = lambda *_: None
    if numbers := app.extensions.get("sphinx_multitoc_numbering"):
        numbers.parallel_read_safe = True
    return parallel(app)
