"""{forest}: claims family by family, drawn (fedplot.py) and as a table."""

from fedbook import chip, esc, heads, nice, parallel, prose, raw, table, wrap
from fedeffects import amount, decides, families, testable, told_apart, unit, width
from fedplot import Axis, markers, picture
from fedtables import Table, fold

from repro.metrics import METRICS

FEW = 12  # rows of a family that are shown at once


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


def setup(app):
    return parallel(app, Forest)
