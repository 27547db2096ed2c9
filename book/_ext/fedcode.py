"""Methods in the book: source beside the equations, hyper-parameters, card, BibTeX; all
read from the package itself.
"""

import ast
import inspect
import math
import os
import re
from dataclasses import fields
from pathlib import Path

from docutils import nodes
from fedbook import Directive, log, parallel
from sphinx.directives.code import LiteralInclude

import fedlib
from fedlib.core.method import Method
from fedlib.methods import METHODS
from fedlib.methods.cite import BIBLIOGRAPHY, cite, paper

ROOT = Path(fedlib.__file__).resolve().parents[1]


class Named(Directive):
    """A directive whose argument names a method."""

    required_arguments, final_argument_whitespace = 1, True

    def run(self):
        name, known = self.arguments[0].strip(), ", ".join(METHODS)
        if name not in METHODS:
            why = f"no method {name!r}; fedlib has {known}"
            raise self.warning(f"{{{self.name}}}: {why}")
        cls = METHODS[name]
        self.env.note_dependency(inspect.getsourcefile(cls))
        return self.show(name, cls)


def bounds(f):
    """The range of a hyper-parameter, in words."""
    ends = f.metadata.get("range") or (None, None)
    low, high = (f"{v:g}" if v is not None and math.isfinite(v) else "" for v in ends)
    if low and high:
        return f"{low} to {high}"
    return f"≥ {low}" if low else f"≤ {high}" if high else ""


def searched(f):
    """Its grid, in words."""
    grid = f.metadata.get("grid") or ()
    grid = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in grid]
    return f"searched: {', '.join(grid)}" if grid else ""


class Hyper(Named):
    """{hyper} FedGA: the hyper-parameters: default, permitted values, values searched,
    meaning, source.
    """

    def show(self, name, cls):
        common = {f.name for f in fields(Method)}
        every = [f for f in fields(cls) if f.metadata.get("what")]
        own = [f for f in every if f.name not in common]
        shared = [f for f in every if f.name in common]
        return self.draw("hyper", name, own, shared)


class AboutBox(Named):
    """{about} FedGA: one line on the method, its paper, and how it is run."""

    def show(self, name, cls):
        # a wrapper does as the method inside
        own = METHODS[cls.around] if hasattr(cls, "around") else cls
        who = {True: "every client", False: "the sampled cohort"}
        facts = {"who trains": who[own.who == "all"]}
        facts["who receives"] = who[own.download == "all"]
        facts["scored"] = "before training" + " and after it" * bool(own.post)
        needs = ["validation rows on each client"] * own.needs_val
        needs += ["the groups of a sensitive attribute"] * (cls.needs_groups is True)
        if needs:
            facts["needs"] = ", ".join(needs)
        return self.draw("about", name, cls.card, paper(cls), facts)


class Cite(Named):
    """{cite} FedGA: the BibTeX entry of the method's paper, to copy."""

    def show(self, name, cls):
        self.env.note_dependency(str(BIBLIOGRAPHY))
        entry = cite(name)
        return [nodes.literal_block(entry, entry, language="bibtex")]


def first_line(node):
    """Of a definition, its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])


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
                return first_line(n), n.end_lineno, scope is not tree
    return None


def shown(name, parts):
    """(file, lines, are all inside a class?) of parts of a method or module, or of all
    from the first definition on.
    """
    cls, module = METHODS.get(name), ROOT / (name.replace(".", "/") + ".py")
    if cls is None and not module.is_file():
        known = ", ".join(METHODS)
        raise ValueError(f"no method and no module {name!r}; fedlib has {known}")
    path = Path(inspect.getsourcefile(cls)).resolve() if cls else module
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not parts:
        before = ast.Import, ast.ImportFrom, ast.Expr
        first = next(n for n in tree.body if not isinstance(n, before))
        return path, f"{first_line(first)}-", False
    spans = [span(tree, part, cls) for part in parts]
    if None in spans:
        raise ValueError(f"{name}: {path.name} has no {parts[spans.index(None)]}")
    lines = [f"{a - (i > 0)}-{b}" for i, (a, b, _) in enumerate(spans)]
    return path, ",".join(lines), all(inner for *_, inner in spans)


class Source(LiteralInclude):
    """{source} FedGA: the file of a method, or of a module such as
    `fedlib.core.engine`, from its first definition on, as it is on disk.

    Option :parts: weights aggregate (functions of the class or file, or Class.function)
    shows these alone; the options of literalinclude work too. Comments `# eq:label`
    become links to the equation `eq-label`. Long lines are wrapped.
    """

    option_spec = LiteralInclude.option_spec | {"parts": str.split}

    def run(self):
        name, parts = self.arguments[0].strip(), self.options.pop("parts", [])
        try:
            path, self.options["lines"], inside = shown(name, parts)
        except ValueError as why:
            raise self.warning(f"{{source}}: {why}") from why
        if inside:
            self.options["dedent"] = 4
        self.options.setdefault("language", "python")
        self.options.setdefault("caption", path.relative_to(ROOT).as_posix())
        self.options["class"] = ["source", *self.options.get("class", [])]
        there = Path(os.path.relpath(path, Path(self.env.srcdir).resolve()))
        self.arguments[0] = f"/{there.as_posix()}"
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
        numbers = app.env.toc_fignumbers.get(doc, {}).get("displaymath", {})
        fig = numbers.get(f"equation-{label}")
        number = ".".join(map(str, fig)) if fig else number
        uri = app.builder.get_relative_uri(page, doc) if doc != page else ""
        to = f'href="{uri}#equation-{label}" title="Equation {number}"'
        return f'<a class="eqlink" {to}>{m[1] or ""}({number})</a>'

    def line(text):
        """One line of code as a block that wraps; a link at its end goes right."""
        bare = re.sub(r"<[^>]+>", "", text)
        blank = r'(?:<span class="w">)?\s*(?:</span>)?((?:<span class="c1">)?)'
        link = r'<a class="eqlink"([^>]*>[^<]*</a>(?:</span>)?)$'
        text = re.sub(blank + link, r'\1<a class="eqlink tail"\2', text)
        indent = len(bare) - len(bare.lstrip())
        return f'<span class="line" style="--in:{indent}ch">{text}</span>\n'

    def block(m):
        code = re.sub(r"(# )?(?<![\w:-])eq:([a-z][\w-]*)", link, m[0])
        if "source" not in m[1]:
            return code
        head, _, rest = code.partition("<pre>")
        body, _, tail = rest.rpartition("</pre>")
        lines = body.removeprefix("<span></span>").rstrip().split("\n")
        return f"{head}<pre>{''.join(map(line, lines))}</pre>{tail}"

    if '<div class="highlight">' in context.get("body", ""):
        outer = r'<div class="([^"]*)highlight-\w+ notranslate">'
        highlighted = outer + r'<div class="highlight">.*?</div>'
        context["body"] = re.sub(highlighted, block, context["body"], flags=re.S)


def setup(app):
    app.add_directive("about", AboutBox)
    app.connect("html-page-context", link_equations)
    return parallel(app, Hyper, Cite, Source)
