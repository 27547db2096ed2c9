"""Numbers and verdicts that the book reads from results/*.csv when it is built: the
roles, and what the directives share.

Nothing here computes a result. A key, field, paper or artefact that is not there, and a
cell without a number, is a warning, so `--warningiserror` stops the build: no page can
print a number that no file holds.
"""

import csv
import html
import math
import re
import shlex
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from repro import papers
from repro.bookbuild import copy_mathjax
from repro.ledger import slug

log = logging.getLogger(__name__)
# of a number that a paper prints, beside ours
NUMBERS = {
    "match": "same data and size; the reported number lies in our interval, which is "
    "no wider than the tolerance",
    "close": "same data and size; within the tolerance, or in an interval that is "
    "wider",
    "differs": "same data and size; outside. Or a setting that does not agree",
    "order holds": "other data, so the digits say nothing; the decided pairs of "
    "methods stand in the printed order",
    "order differs": "other data; a decided pair stands the other way round",
    "order open": "other data; no pair of methods is decided",
    "setting": "a constant or a worked example, and it agrees; never a result",
    "no comparison": "the paper prints no number here, or there is nothing to order",
    "not run": "no run yet",
}
# of a sentence
CLAIMS = {
    "yes": "the interval of the difference lies on the sentence's side of zero",
    "no": "it lies on the other side",
    "alike": "it lies within the margin: no difference that anybody would care about",
    "undecided": "it still leaves more than one answer open",
    "not testable": "our runs cannot tell, however many; the reason stands beside it",
    "not run": "a number is missing",
}
# of the gain that a paper prints with a sentence
GAINS = {
    "gain contained": "the gain that the paper prints lies in our interval",
    "gain excluded": "our interval ends below the gain that the paper prints",
    "gain exceeded": "our interval begins above the gain that the paper prints",
}
VERDICTS = {**NUMBERS, **CLAIMS, **GAINS, "not run": "no run yet"}
PAPERS = papers.each("title")
DATASETS = {
    "synthetic_0_0": "Synthetic(0, 0)",
    "synthetic_05_05": "Synthetic(0.5, 0.5)",
    "synthetic_1_1": "Synthetic(1, 1)",
    "cifar01": "CIFAR-10, Dir(0.1)",
    "office10": "Office-Caltech-10",
    "office10_alexnet": "Office-Caltech-10, AlexNet",
    "office10_resnet18": "Office-Caltech-10, ResNet18",
    "none": "",
    "all": "all data sets",
}
NAMES = {
    "mean_acc": "mean accuracy",
    "std_acc": "std of accuracy",
    "worst10_acc": "worst 10 %",
    "best10_acc": "best 10 %",
    "top10_minus_bottom10": "best 10 % − worst 10 %",
    "best_gini": "Gini",
    "gini_auc": "area under Gini",
    "delta_gini_vs_fedavg": "Gini − FedAvg's",
    "acc_amazon": "Amazon",
    "acc_caltech": "Caltech",
    "acc_dslr": "DSLR",
    "acc_webcam": "Webcam",
    "top1_acc_pct": "top-1 accuracy",
    "acc_mean_pct": "mean accuracy",
    "acc_lowest5_pct": "worst 5 %",
    "acc_lowest20_pct": "worst 20 %",
    "acc_top5_pct": "best 5 %",
}
FILES = ("ledger", "claims", "artefacts", "deviations", "facts", "effects", "bytes")
# files whose rows {num} can ask for, in the order in which a key is looked for
KEYED = FILES[:5]
MARKS = ("verdict", "holds", "status")
# what a reader can choose on the page of a file
CHOICES = {
    "ledger": {*"paper artefact dataset method metric rule data tier verdict".split()},
    "claims": {*"paper artefact by holds gain data tier".split()},
}
NEEDS = {"interval": ["ours_lo", "ours_hi"]}
NEEDS |= dict.fromkeys(("both", "difference"), ["reported", "ours"])
DEFAULT = dict(zip(KEYED, ("ours", "holds", "status", "effect", "value")))


def esc(text):
    """Text made safe for HTML, attributes included."""
    return html.escape(str(text), quote=True)


# ---- reading


def folder(env):
    """The results folder; it stands beside the book."""
    return Path(env.srcdir, env.config.fedbook_results).resolve()


@cache
def read(path, when):
    """Rows of a csv as dicts of text, in the file's order;
    `when` (its time) only keeps the cache fresh.
    """
    with open(path, newline="", encoding="utf-8") as f:
        return list(csv.DictReader(f))


def rows(env, name, location=None, **where):
    """Rows of results/<name>.csv whose columns equal `where` (case does not count); a
    warning if the file is missing.
    """
    path = folder(env) / f"{name}.csv"
    env.note_dependency(str(path))
    if not path.exists():
        log.warning(
            "%s is missing: run the stage that writes it",
            f"results/{name}.csv",
            location=location,
        )
        return []
    found = read(str(path), path.stat().st_mtime_ns)
    fits = lambda r: all(r.get(c, "").lower() == v.lower() for c, v in where.items())
    return list(filter(fits, found))


def identity(name, row):
    """The name by which a row is asked for."""
    return row["key"] if "key" in row else slug(f"{row['paper']}-{row['artefact']}")


def find(env, key, location=None):
    """(file, row) of a key, looked for in every file that exists;
    (None, {}) if there is none.
    """
    only, _, bare = key.rpartition(":")
    for name in [only] * (only in KEYED) if only else KEYED:
        path = folder(env) / f"{name}.csv"
        if path.exists():
            env.note_dependency(str(path))
            table = by_key(str(path), path.stat().st_mtime_ns, name)
            if bare in table:
                return name, table[bare]
    return None, {}


@cache
def by_key(path, when, name):
    """Rows by their identity."""
    return {identity(name, r): r for r in read(path, when)}


# ---- showing


def nice(column, value):
    """How a value of a column is printed."""
    value = value or ""
    if column == "paper":
        return PAPERS.get(value, value)
    if column == "dataset":
        return DATASETS.get(value, value)
    if column == "metric":
        return NAMES.get(value, value.replace("_pct", "").replace("_", " "))
    if column in ("rule", "method", "setting"):
        return value.replace("_", " ")
    return value


def prose(text):
    """A sentence from a file, with the names of data sets and metrics as the
    book prints them.
    """
    known, names = {**DATASETS, **NAMES}, r"\b[a-z]+\d*(?:_[a-z0-9]+)+\b|\bcifar01\b"
    return re.sub(names, lambda m: known.get(m[0]) or m[0], text)


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


def chip(word, *, brief=False):
    """A verdict, status or answer: sign, word and colour; brief leaves the sign, the
    word stays for screen readers.
    """
    kind = slug(word)
    inner = f'<span class="visually-hidden">{esc(word)}</span>' if brief else esc(word)
    tip = f' title="{esc(word)}: {esc(VERDICTS[word])}"' if word in VERDICTS else ""
    return f'<span class="chip{" brief" if brief else ""} v-{kind}"{tip}>{inner}</span>'


def tip(name, row):
    """Where a number comes from, in one line."""
    named = ("paper", "artefact", "dataset", "method", "metric")
    parts = [nice(c, row.get(c)) for c in named]
    parts.append(prose(row.get("source") or row.get("claim") or row.get("title") or ""))
    if row.get("data"):
        parts.append(f"{row['data']} data, tier {row['tier']}")
    if row.get("n_seeds"):
        parts.append(f"{row['n_seeds']} seeds")
    return ", ".join(p for p in parts if p)


def address(env, name, row, docname):
    """Link to the row on the page that lists its file; facts have no page."""
    if name == "facts":
        return None
    key, page = identity(name, row), home(name)
    page = env.app.builder.get_relative_uri(docname, page)
    return f"{page}#{key if name == 'ledger' else f'{name}-{slug(key)}'}"


def home(name):
    """The page that lists every row of a file."""
    return "claims" if name == "claims" else "ledger"


def filtered(env, docname, where, name="ledger"):
    """Link to the page of a file, showing only the rows with these values."""
    where = {"verdict" if c == "holds" else c: nice(c, v) for c, v in where.items()}
    uri = env.app.builder.get_relative_uri(docname, home(name))
    return f"{uri}#?{urlencode(where)}"


def raw(text):
    return nodes.raw("", text, format="html")


def wrap(table, caption="", anchor=""):
    """A table that scrolls inside its own box on a narrow screen, by keyboard too;
    its caption stays in view.
    """
    head = f"<figcaption>{caption}</figcaption>" if caption else ""
    name = f' id="{esc(anchor)}"' if anchor else ""
    box = f'<div class="scroll" tabindex="0">{table}</div>'
    return raw(f'<figure class="tab"{name}>{head}{box}</figure>')


def heads(texts, kind=""):
    """Headings of columns; kind: "n" where numbers stand to the right."""
    right = f' class="{kind}"' if kind else ""
    return "".join(f'<th scope="col"{right}>{t}</th>' for t in texts)


def part(title, columns):
    """A row of a table that is the title of those below."""
    span = f'<th scope="rowgroup" colspan="{columns}">{title}</th>'
    return f'<tr class="part">{span}</tr>'


def table(kind, head, body):
    """A table of the book, of its headings and its rows."""
    name, inner = f"plain {kind}".strip(), f"<tbody>{body}</tbody>"
    return f'<table class="{name}"><thead><tr>{head}</tr></thead>{inner}</table>'


def small(*texts):
    """Small print, or nothing."""
    shown = " · ".join(filter(None, texts))
    return f"<small>{esc(shown)}</small>" if shown else ""


def fold(summary, inner, kind="more", opened=False):
    """What a reader may unfold."""
    first = f'<details class="{kind}"{" open" * opened}><summary>{summary}</summary>'
    return raw(f"{first}{inner}</details>")


class Directive(SphinxDirective):
    """A directive that reads results, or complains."""

    def rows(self, name, **where):
        return rows(self.env, name, self.get_location(), **where)

    def fail(self, why, *args):
        log.warning(why, *args, location=self.get_location())
        return []

    def inline(self, text):
        """Markdown of one paragraph as nodes."""
        return self.parse_inline(text, lineno=self.lineno)[0]


def parallel(app, *directives):
    """Add directives by their names in lower case; what `setup` gives."""
    for directive in directives:
        app.add_directive(directive.__name__.lower(), directive)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}


# ---- roles


class Role(SphinxRole):
    """A role that prints text from a file, or complains."""

    def fail(self, why, *args):
        log.warning(why, *args, location=self.get_location())
        return [nodes.problematic("", self.text)], []

    def link(self, body, name, row):
        where = esc(tip(name, row))
        return number_link(body, address(self.env, name, row, self.env.docname), where)


def number_link(body, uri, tip=""):
    """A number, linked to where it comes from if that has a page."""
    title = f' title="{tip}"' if tip else ""
    if uri is None:
        return [raw(f'<span class="num"{title}>{body}</span>')], []
    return [raw(f'<a class="num" href="{esc(uri)}"{title}>{body}</a>')], []


class Num(Role):
    """{num}`key field format`: one number.

    Fields: any column, or interval, both, difference. The field may be left out.
    """

    def run(self):
        words = self.text.split()
        key, rest = " ".join(words[:1]), words[1:]
        name, row = find(self.env, key)
        if name is None:
            known = ",".join(KEYED)
            why = "no number: the key %r is in none of results/{%s}.csv"
            return self.fail(why, key, known)
        field = rest.pop(0) if rest and rest[0] in {*row, *NEEDS} else DEFAULT[name]
        fmt = rest.pop(0) if rest else None
        if rest or (fmt and not re.fullmatch(r"[+,]?\.?\d*[dfgse%]", fmt)):
            fields = ", ".join([*row, *NEEDS] if name == "ledger" else row)
            why = "{num}`%s`: expected a key, a field (%s) and a format such as .1f"
            return self.fail(why, self.text, fields)
        if not all(row.get(f) for f in NEEDS.get(field, [field])):
            why = row.get("verdict") or row.get("status") or "no value"
            return self.fail("no number: %s of %r is empty (%s)", field, key, why)
        try:
            return self.link(self.show(name, row, field, fmt), name, row)
        except ValueError:
            why = "%s of %r is %r, not a number; leave the format out"
            return self.fail(why, field, key, row.get(field))

    def show(self, name, row, field, fmt):
        if field == "interval":
            return esc(interval(row, fmt))
        if field == "both":
            mark = chip(row["verdict"], brief=True) if row.get("verdict") else ""
            theirs, ours = (esc(number(row, f, fmt)) for f in ("reported", "ours"))
            return f"<span>{theirs} reported, {ours} ours</span> {mark}"
        if field == "difference":
            gap = {**row, "ours": str(float(row["ours"]) - float(row["reported"]))}
            shown = number(gap, "ours", fmt)
            return esc(shown if shown[0] in "+\u2212" else "+" + shown)
        if field in MARKS:
            return chip(row[field])
        if fmt:
            float(row[field])
        numeric = re.match(r"[-+]?[\d.]", row[field])
        shown = number(row, field, fmt) if numeric else nice(field, row[field])
        unit = row.get("unit") if field == "value" else ""
        return esc(f"{shown}\u202f{unit}" if unit else shown)


class Verdict(Role):
    """{verdict}`key`: the chip of a row (verdict, holds or status), linked to it; or
    {verdict}`match`: the chip alone.
    """

    def run(self):
        if self.text in VERDICTS:
            return [raw(chip(self.text))], []
        name, row = find(self.env, self.text.strip())
        field = next((f for f in MARKS if row.get(f)), None)
        if not field:
            why = "no verdict: %r is neither a key nor one of %s"
            return self.fail(why, self.text, ", ".join(VERDICTS))
        return self.link(chip(row[field]), name, row)


class Rows(Role):
    """{rows}`text <paper=fedga method=FedGA verdict=differs>`:
    a link to the ledger with these filters set.
    """

    def run(self):
        m = re.fullmatch(r"(.+?)\s*<(.+)>", self.text, flags=re.S)
        if not m:
            return self.fail("{rows}`%s`: write text <column=value ...>", self.text)
        where, wrong = self.conditions("ledger", m[2])
        if wrong:
            return self.fail("{rows}`%s`: %s", self.text, wrong)
        uri = esc(filtered(self.env, self.env.docname, where))
        return [raw(f'<a href="{uri}">{esc(m[1])}</a>')], []

    def conditions(self, name, text):
        """('paper=fedga verdict="not run"' as a dict, what is wrong with it). A verdict
        that no row has is no mistake.
        """
        try:
            where = dict(part.split("=", 1) for part in shlex.split(text))
        except ValueError:
            return {}, "write column=value pairs, quote values with blanks"
        everything = rows(self.env, name, self.get_location())
        for c, v in where.items():
            if everything and c != "q" and c not in everything[0]:
                return where, f"{name} has no column {c}"
            if (
                everything
                and c not in MARKS
                and c != "q"
                and not any(r[c].lower() == v.lower() for r in everything)
            ):
                return where, f"no row of {name} has {c}={v}"
        return where, ""


class Count(Rows):
    """{count}`ledger paper=fedga verdict=match`: how many rows of a file have these
    values; linked to them.
    """

    def run(self):
        name, _, rest = self.text.partition(" ")
        if name not in FILES:
            known = ", ".join(FILES)
            return self.fail("{count}: no file %r, use one of %s", name, known)
        where, wrong = self.conditions(name, rest)
        if wrong:
            return self.fail("{count}`%s`: %s", self.text, wrong)
        n = len(rows(self.env, name, self.get_location(), **where))
        linked = name in CHOICES and where.keys() <= CHOICES[name]
        uri = filtered(self.env, self.env.docname, where, name) if linked else None
        return number_link(n, uri)


# ---- pages


# script -> what a page must hold to need it
NEEDED = dict.fromkeys(("copybutton", "clipboard"), 'class="highlight')
NEEDED |= {"ledger.js": "data-kind=", "looks.js": 'looks"', "quiz.js": "<fieldset"}
NEEDED["figures.js"] = r'class="(?:fig|arrows|pair)|eqlink'


def lean(app, page, template, context, doctree):
    """Drop scripts that do harm, or nothing: thebe's (loaded twice, names a remote
    host), the copy button's on a page without code (it fails there at every click), our
    own where there is nothing to move or to sort. And ids that occur twice.
    """
    body = context.get("body", "")
    drop = ["thebe"]
    for script, needed in NEEDED.items():
        if not re.search(needed, body):
            drop.append(script)

    def text(s):
        named = getattr(s, "filename", s), getattr(s, "attributes", "")
        return "".join(map(str, named)).lower()

    if body:  # exercises, solutions and proofs carry the same id each
        context["body"] = re.sub(r' id="(?:exercise|solution|proof)-content"', "", body)
    found = context.get("script_files", [])
    kept = [s for s in found if not any(d in text(s) for d in drop)]
    context["script_files"] = kept


def mathjax(app, config):
    """MathJax comes out of an installed package;
    it is put where `mathjax_path` looks for it.
    """
    copy_mathjax(Path(app.srcdir, "_assets/vendor"))


def setup(app):
    app.add_config_value("fedbook_results", "../results", "env")
    for name, role in (("num", Num), ("verdict", Verdict), ("count", Count)):
        app.add_role(name, role())
    app.add_role("rows", Rows())
    app.connect("config-inited", mathjax)
    app.connect("html-page-context", lean, priority=900)
    return parallel(app)
