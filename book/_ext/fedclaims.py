"""The claims of results/claims.csv: {claims} lists them with verdict, effect and what
would decide them, {forest} draws them family by family (fedplot.py), {claimsummary}
counts them.
"""

from docutils.parsers.rst import directives
from fedbook import (
    CLAIMS,
    GAINS,
    chip,
    esc,
    filtered,
    fold,
    heads,
    nice,
    parallel,
    part,
    prose,
    raw,
    small,
    table,
    wrap,
)
from fedeffects import (
    amount,
    decides,
    families,
    rarity,
    seeds,
    survives,
    testable,
    told_apart,
    unit,
    width,
)
from fedplot import Axis, markers, picture
from fedtables import Simple, Table, block, legend, live, origin, place

from fedlib.measures.verdicts import ALPHA
from repro.ledger import slug
from repro.metrics import METRICS

NUMERIC = ("effect", "q", "decided by")
FACETS = ("paper", "verdict", "by", "gain", "data", "tier", "needs", "survives")
FEW = 12  # rows of a family that are shown at once


# ---- the cells of a row


def sentence(_, r):
    """The claim; below it where the paper says so, and how."""
    quote = f"\u201c{r['quote']}\u201d" if r["quote"] else ""
    at = f"Section {r['section']}" if r["section"][:1].isdigit() else r["section"]
    said = " ".join(filter(None, [quote, at]))
    said = "ours, not the paper's" if r["by"] == "ours" else said
    return esc(prose(r["claim"])) + small(said)


def verdict(_, r):
    gain = chip(f"gain {r['gain']}") if r["gain"] else ""
    return f"{chip(r['holds'])} {gain}{small(prose(r['reason']))}"


def effect(_, r):
    """The difference with its interval; below it margin, seeds and the paper's gain."""
    if not r["effect"]:
        return ""
    margin = f"margin {amount(r, 'margin', '')}" if r["margin"] else ""
    paper = f"paper {amount(r, 'printed')}" if r["printed"] else ""
    below = small(nice("metric", r["metric"]), margin, seeds(r), paper)
    return f"{esc(amount(r, 'effect'))} {esc(width(r))} {esc(unit(r))}{below}"


def doubt(_, r):
    """q, and whether the claim survives so many tests."""
    shown = esc(rarity(r)) if r["q"] else ""
    return shown + ("<small>survives</small>" if survives(r) else "")


def answer(_, r):
    """The verdict, and what would decide it or whether it survives."""
    more = f"to decide it: {decides(r)}" if decides(r) else ""
    more = f"survives, q {rarity(r)}" if survives(r) else more
    return verdict(_, r) + small(more)


def evidence(_, r):
    said = "" if r["evidence"] == r["reason"] else prose(r["evidence"])
    return esc(said) + origin(_, r)


EVERY = (
    ("where", place),
    ("sentence", sentence),
    ("verdict", verdict),
    ("effect", effect),
    ("q", doubt),
    ("decided by", lambda _, r: esc(decides(r))),
    ("evidence", evidence),
)


class Claims(Simple):
    """{claims} fedga [Table 5]: each claim, its verdict and what that hangs on;
    families of three claims and more are drawn below. Without arguments: every
    claim, as a table to choose from (ledger.js).
    """

    file = "claims"
    columns = (
        ("sentence", sentence),
        ("verdict", answer),
        ("effect", effect),
        ("evidence", evidence),
    )

    def run(self):
        if not self.arguments:
            return [self.every(self.rows("claims"))]
        out, where = super().run(), dict(zip(["paper"], self.arguments))
        if len(self.arguments) > 1:
            where["artefact"] = " ".join(self.arguments[1:])
        marks, drawn = forests(self, self.rows("claims", **where), least=3)
        if drawn:
            n = "a family" if len(drawn) == 1 else f"{len(drawn)} families"
            about = fold(
                f"Effects and intervals, {n} of claims", "".join(drawn), "group"
            )
            out += [raw(marks), about]
        return out

    def every(self, table):
        """The table of all claims; its rows carry what they can be chosen by."""
        head = "".join(
            f'<th scope="col" data-kind="{"num" if t in NUMERIC else "text"}" '
            f'data-name="{t}">{t}</th>'
            for t, _ in EVERY
        )
        row = lambda r: "".join(
            f'<td class="c-{slug(t)}">{show(self, r)}</td>' for t, show in EVERY
        )
        body = "\n".join(
            f'<tr id="claims-{slug(r["key"])}" {choices(r)}>{row(r)}</tr>'
            for r in table
        )
        what = "Each row: a sentence, its verdict, and the difference that it hangs on."
        data = f'data-what="claims" data-facets="{" ".join(FACETS)}"'
        return live("all-claims", "ledger live claims", data, what, head, body)


def choices(r):
    """What a reader can choose rows by, as data of the row."""
    values = {"paper": nice("paper", r["paper"]), "verdict": r["holds"]}
    values |= {k: r[k] for k in ("by", "gain", "data", "tier")} | {"needs": decides(r)}
    values["survives"] = "yes" if survives(r) else "no" if r["holds"] == "yes" else ""
    return " ".join(f'data-{k}="{esc(v)}"' for k, v in values.items() if v)


# ---- drawn, family by family


def drawable(r):
    return testable(r) and r["effect"] != ""


def panel(rows, labels, title, name):
    """One axis: the first rows, the others folded."""
    equal = rows[0].get("kind") == "equal"
    speaks = (
        "in the grey band: for the sentence"
        if equal
        else "\u2190 against the sentence \u00b7 for it \u2192"
    )
    axis, rest = Axis(rows), len(rows) - FEW
    out = picture(rows[:FEW], labels[:FEW], axis, title)
    if rest > 0:
        out += fold(
            f"{rest} more", picture(rows[FEW:], labels[FEW:], axis, title)
        ).astext()
    return f'<p class="axis"><span>{esc(name)}</span> <span>{speaks}</span></p>{out}'


def forest(rows):
    """A family of claims: a panel for each kind of effect, and the table."""
    rows = sorted(filter(drawable, rows), key=lambda r: -float(r["effect"]))
    shared, labels = told_apart([prose(r["claim"]) for r in rows])
    title = shared or named(rows[0])
    panels = {}
    for r, label in zip(rows, labels):
        panels.setdefault((quantity(r), r.get("kind")), []).append((r, label))
    drawn = "".join(
        panel([r for r, _ in mine], [x for _, x in mine], title, name)
        for (name, _), mine in panels.items()
    )
    caption = f"<figcaption><b>{esc(title)}</b></figcaption>"
    same = fold("As a table", listed(rows, labels)).astext()
    return f'<figure class="forest">{caption}{drawn}{same}</figure>'


def quantity(r):
    """What an axis shows: differences of different quantities have different axes."""
    known = METRICS.get(r["metric"])
    if unit(r) == "points" or (known and known.kind == "bias"):
        return unit(r) or "bias"
    return nice("metric", r["metric"])


def named(r):
    """A family whose sentences share no word: "FedGA: trigger cheaper"."""
    rest = r["family"].removeprefix(f"{r['paper']}-").replace("-", " ")
    return f"{nice('paper', r['paper'])}: {rest}"


def listed(rows, labels):
    """What the plot shows, as a table."""
    body = ""
    for r, label in zip(rows, labels):
        effect = f"{amount(r, 'effect')} {unit(r)}", width(r)
        more = amount(r, "margin", ""), amount(r, "printed"), r["n_seeds"]
        cells = "".join(f'<td class="n">{esc(text)}</td>' for text in (*effect, *more))
        verdict = f"<td>{chip(r['holds'])}<small>{esc(decides(r))}</small></td>"
        name = f'<th scope="row">{esc(label or r["claim"])}</th>'
        body += f"<tr>{name}{verdict}{cells}</tr>"
    titles = "claim", "verdict", "effect", "interval", "margin", "paper", "seeds"
    return wrap(table("", heads(titles), body)).astext()


def forests(directive, rows, least=1):
    """Every family of these claims with at least so many claims to draw."""
    found = families(rows).values()
    drawn = [f for f in found if len(list(filter(drawable, f))) >= least]
    return markers(directive) if drawn else "", [forest(f) for f in drawn]


class Forest(Table):
    """{forest} fedga, or {forest} fedga-best: the claims of a paper family by family,
    or one family; without argument those of all papers, a fold for each.
    """

    def run(self):
        name = " ".join(self.arguments)
        rows = [r for r in self.rows("claims") if name in ("", r["paper"], r["family"])]
        marks, drawn = forests(self, rows)
        if name and not rows:
            return self.fail("{forest}: no effect to draw for %r", name)
        if name and not drawn:  # at tier tiny
            return [raw("<p>No interval to draw: too few seeds here.</p>")]
        if name:
            return [raw(marks + "".join(drawn))]
        out = [raw(marks)]
        for paper in dict.fromkeys(r["paper"] for r in rows):
            _, mine = forests(self, [r for r in rows if r["paper"] == paper])
            name = f"<b>{esc(nice('paper', paper))}</b> {len(mine)} families"
            out.append(fold(name, "".join(mine), "group"))
        return out


# ---- counted


class ClaimSummary(Table):
    """{claimsummary} [fedga]: how many sentences, testable, decided, with which answer;
    how many "yes" chance alone would give, how many survive. Ours stand apart.

    Option :explain: says below what each verdict means.
    """

    option_spec = {"explain": directives.flag}
    columns = ("sentences", "testable", "decided", "yes", "by chance", "survive")

    def run(self):
        found = self.rows("claims")
        papers = self.arguments or list(dict.fromkeys(r["paper"] for r in found))
        body = ""
        for by, title in (("paper", "Sentences of the papers"), ("ours", "Our own")):
            lines = [
                self.line(paper, by, mine)
                for paper in papers
                if (mine := [r for r in found if (r["paper"], r["by"]) == (paper, by)])
            ]
            title = part(title, len(self.columns) + 2)
            body += f"{title}{''.join(lines)}" if lines else ""
        if not body:
            return self.fail("{claimsummary}: no claim of %s", " ".join(papers))
        head = heads(["paper"]) + heads(self.columns, "n") + heads(["verdicts"])
        explained = legend({**CLAIMS, **GAINS}) if "explain" in self.options else ""
        return [wrap(table("summary", head, body)), raw(explained)]

    def line(self, paper, by, mine):
        """One paper: counts and a bar, each block linked to its claims."""
        answers = [r["holds"] for r in mine]
        tested = sum(map(testable, mine))
        counts = (
            len(mine),
            tested,
            tested - answers.count("undecided"),
            answers.count("yes"),
            f"{tested * ALPHA / 2:.1f}",
            sum(map(survives, mine)),
        )
        where = {"paper": paper, "by": by}

        def shown(**more):
            return esc(filtered(self.env, self.env.docname, where | more, "claims"))

        counted = [(v, answers.count(v)) for v in CLAIMS if v in answers]
        bar = "".join(block(v, n, shown(holds=v)) for v, n in counted)
        cells = "".join(f'<td class="n">{n}</td>' for n in counts)
        name = f'<a href="{shown()}">{esc(nice("paper", paper))}</a>'
        bar = f'<td><div class="stack">{bar}</div></td>'
        return f'<tr><th scope="row">{name}</th>{cells}{bar}</tr>'


def setup(app):
    return parallel(app, Claims, Forest, ClaimSummary)
