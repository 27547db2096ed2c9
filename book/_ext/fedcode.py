"""Methods in the book: source beside the equations, hyper-parameters, card, BibTeX; all
read from the package itself.
"""

import ast
import inspect
import math
import os
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

from docutils import nodes
from fedbook import chip, esc, raw, wrap
from sphinx.directives.code import LiteralInclude
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

import fedlib
from fedlib.methods.cite import BIBLIOGRAPHY, cite, paper

log = logging.getLogger(__name__)
ROOT = Path(fedlib.__file__).resolve().parents[1]


@cache
def methods():
    """Display name -> class."""
    from fedlib.methods import METHODS

    return METHODS


class Named(SphinxDirective):
    """A directive whose argument names a method."""

    required_arguments, final_argument_whitespace = 1, True

    def fail(self, why, *args):
        log.warning(why, *args, location=self.get_location())
        return []

    def run(self):
        name = self.arguments[0].strip()
        if name not in methods():
            return self.fail(
                "{%s}: no method %r; fedlib has %s",
                self.name,
                name,
                ", ".join(methods()),
            )
        cls = methods()[name]
        self.env.note_dependency(inspect.getsourcefile(cls))
        return self.show(name, cls)


def bounds(f):
    """The permitted values of a hyper-parameter, in words."""
    if f.metadata.get("choices"):
        return ", ".join(f"<code>{esc(c)}</code>" for c in f.metadata["choices"])
    low, high = f.metadata.get("range") or (None, None)
    low = None if low is not None and math.isinf(low) else low
    high = None if high is not None and math.isinf(high) else high
    if low is None and high is None:
        return ""
    if high is None:
        return f"≥ {low:g}"
    return f"≤ {high:g}" if low is None else f"{low:g} to {high:g}"


class Hyper(Named):
    """{hyper} FedGA: the hyper-parameters: default, permitted values, values searched,
    meaning, source.
    """

    def show(self, name, cls):
        from fedlib.core.method import Method

        common = {f.name for f in fields(Method)}
        every = [f for f in fields(cls) if f.metadata.get("what")]
        own, shared = (
            [f for f in every if f.name not in common],
            [f for f in every if f.name in common],
        )
        for f in every:
            if not f.metadata.get("source"):
                return self.fail(
                    "{hyper} %s: the hyper-parameter %s names no source", name, f.name
                )

        def line(f):
            grid = [
                f"{v:.3g}" if isinstance(v, float) else str(v)
                for v in f.metadata.get("grid") or ()
            ]
            searched = (
                f"<small>searched: {esc(', '.join(grid))}</small>" if grid else ""
            )
            return (
                f"<tr><td><code>{f.name}</code></td><td><code>{esc(f.default)}</code>"
                f"</td><td>{bounds(f)}{searched}</td><td>{esc(f.metadata['what'])}</td>"
                f"<td>{esc(f.metadata['source'])}</td></tr>"
            )

        def table(rows):
            head = "".join(
                f'<th scope="col">{h}</th>'
                for h in ("name", "default", "permitted", "meaning", "source")
            )
            return (
                f'<table class="plain hyper"><thead><tr>{head}</tr></thead><tbody>'
                f"{''.join(map(line, rows))}</tbody></table>"
            )

        out = (
            [wrap(table(own), f"{esc(name)}: hyper-parameters of its own")]
            if own
            else [nodes.paragraph("", f"{name} has no hyper-parameter of its own.")]
        )
        if shared:
            out.append(
                raw(
                    f'<details class="more"><summary>{len(shared)} '
                    'that every method has</summary><div class="scroll" '
                    f'tabindex="0">{table(shared)}</div></details>'
                )
            )
        return out


class AboutBox(Named):
    """{about} FedGA: one line on the method, its paper, and how it is run."""

    def show(self, name, cls):
        card = cls.card
        if card is None:
            return self.fail("{about}: the class of %s has no card", name)
        # a wrapper does as the method inside
        own = methods()[cls.around] if hasattr(cls, "around") else cls
        facts = {
            "who trains": "every client" if own.who == "all" else "the sampled cohort",
            "who receives": "every client"
            if own.download == "all"
            else "the sampled cohort",
            "scored": "before training" + (" and after it" if own.post else ""),
        }
        needs = ["validation rows on each client"] * own.needs_val
        needs += ["the groups of a sensitive attribute"] * (cls.needs_groups is True)
        if needs:
            facts["needs"] = ", ".join(needs)
        of = paper(cls)
        where = f'<a href="{esc(of.url)}">{esc(of.title)}</a>'
        cited, _ = self.parse_inline(f"{{cite:t}}`{card.bibkey}`", lineno=self.lineno)
        listing = "".join(
            f"<div><dt>{k}</dt><dd>{esc(v)}</dd></div>" for k, v in facts.items()
        )
        box = nodes.container(classes=["card-box"])
        line = card.line[:1].upper() + card.line[1:]
        box += raw(
            f'<p class="card-name"><b>{esc(name)}</b> '
            f"{chip(card.status)}</p><p>{esc(line)}.</p>"
        )
        box += nodes.paragraph(
            "",
            "",
            *cited,
            raw(f". <i>{where}</i>. {esc(of.venue)}."),
            classes=["card-paper"],
        )
        box += raw(f"<dl>{listing}</dl>")
        return [box]


class Cite(Named):
    """{cite} FedGA: the BibTeX entry of the method's paper, to copy."""

    def show(self, name, cls):
        self.env.note_dependency(str(BIBLIOGRAPHY))
        try:
            entry = cite(name)
        except ValueError as problem:
            return self.fail("{cite} %s: %s", name, problem)
        return [nodes.literal_block(entry, entry, language="bibtex")]


def span(tree, name, cls):
    """First and last line of a function or class: "weights" (of the class, else of the
    file), "FedGA.weights" or "FedGA"; cls: None for a module."""
    owner, _, bare = name.rpartition(".")
    owner = owner or (cls.__name__ if cls else "")
    scopes = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == owner]
    scopes += [] if "." in name else [tree]
    for scope in scopes:
        for n in scope.body:
            if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name == bare:
                return (
                    min([n.lineno, *(d.lineno for d in n.decorator_list)]),
                    n.end_lineno,
                    scope is not tree,
                )
    return None


class Source(LiteralInclude):
    """{source} FedGA: the file of a method, or of a module such as
    `fedlib.core.engine`, from its first definition on, as it is on disk.

    Option :parts: weights aggregate (functions of the class or file, or Class.function)
    shows these alone; the options of literalinclude work too. Comments `# eq:label`
    become links to the equation `eq-label`. Long lines are wrapped.
    """

    option_spec = LiteralInclude.option_spec | {"parts": str.split}

    def run(self):
        name = self.arguments[0].strip()
        cls = methods().get(name)
        module = ROOT / (name.replace(".", "/") + ".py")
        if cls is None and not module.is_file():
            log.warning(
                "{source}: no method and no module %r; fedlib has %s",
                name,
                ", ".join(methods()),
                location=self.get_location(),
            )
            return []
        path = Path(inspect.getsourcefile(cls)).resolve() if cls else module
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if "parts" in self.options:
            wanted = self.options.pop("parts")
            spans = [span(tree, part, cls) for part in wanted]
            if None in spans:
                log.warning(
                    "{source} %s: %s has no %s",
                    name,
                    path.name,
                    wanted[spans.index(None)],
                    location=self.get_location(),
                )
                return []
            self.options["lines"] = ",".join(
                f"{first - (i > 0)}-{last}" for i, (first, last, _) in enumerate(spans)
            )
            if all(inner for *_, inner in spans):
                self.options["dedent"] = 4
        elif not {"pyobject", "lines", "start-at", "start-after"} & set(self.options):
            first = next(
                n
                for n in tree.body
                if not isinstance(n, (ast.Import, ast.ImportFrom, ast.Expr))
            )
            decorators = getattr(first, "decorator_list", [])
            start = min([first.lineno, *(d.lineno for d in decorators)])
            self.options["lines"] = f"{start}-"
        self.options.setdefault("language", "python")
        self.options.setdefault("caption", path.relative_to(ROOT).as_posix())
        self.options["class"] = ["source", *self.options.get("class", [])]
        self.arguments[0] = (
            "/"
            + Path(os.path.relpath(path, Path(self.env.srcdir).resolve())).as_posix()
        )
        return super().run()


def link_equations(app, page, template, context, doctree):
    """In code, `# eq:label` becomes `# (3)`, a link to the equation labelled eq-label,
    on whatever page it stands.
    """

    def link(m):
        label = "eq-" + m[2]
        doc, number = app.env.domaindata["math"]["objects"].get(label, (None, 0))
        if doc is None:
            log.warning("code names an unknown equation %s", label, location=page)
            return m[0]
        fig = (
            app.env.toc_fignumbers.get(doc, {})
            .get("displaymath", {})
            .get(f"equation-{label}")
        )
        number = ".".join(map(str, fig)) if fig else number
        uri = app.builder.get_relative_uri(page, doc) if doc != page else ""
        return (
            f'<a class="eqlink" href="{uri}#equation-{label}" title="Equation '
            f'{number}">{m[1] or ""}({number})</a>'
        )

    def line(text):
        """One line of code as a block that wraps with a hanging indent; a link at its
        end goes to the right edge.
        """
        bare = re.sub(r"<[^>]+>", "", text)
        blank, comment = (
            r'(?:<span class="w">)?\s*(?:</span>)?',
            r'((?:<span class="c1">)?)',
        )
        text = re.sub(
            blank + comment + r'<a class="eqlink"([^>]*>[^<]*</a>(?:</span>)?)$',
            r'\1<a class="eqlink tail"\2',
            text,
        )
        return (
            '<span class="line" '
            f'style="--in:{len(bare) - len(bare.lstrip())}ch">{text}</span>\n'
        )

    def block(m):
        code = re.sub(r"(# )?(?<![\w:-])eq:([a-z][\w-]*)", link, m[0])
        if "source" not in m[1]:
            return code
        head, _, rest = code.partition("<pre>")
        body, _, tail = rest.rpartition("</pre>")
        start, _, body = (
            body.rpartition("<span></span>")
            if body.startswith("<span></span>")
            else ("", "", body)
        )
        return (
            f"{head}<pre>{start}{''.join(map(line, body.rstrip().split(chr(10))))}"
            f"</pre>{tail}"
        )

    if '<div class="highlight">' in context.get("body", ""):
        highlighted = (
            r'<div class="([^"]*)highlight-\w+ notranslate"><div '
            r'class="highlight">.*?</div>'
        )
        context["body"] = re.sub(highlighted, block, context["body"], flags=re.S)


def setup(app):
    for name, directive in {
        "hyper": Hyper,
        "about": AboutBox,
        "cite": Cite,
        "source": Source,
    }.items():
        app.add_directive(name, directive)
    app.connect("html-page-context", link_equations)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
