"""{forest}: claims family by family, drawn (fedplot.py) and as a table."""

from fedbook import chip, esc, nice, prose, raw, wrap
from fedeffects import (
    amount,
    decides,
    families,
    testable,
    told_apart,
    unit,
    width,
)
from fedplot import Axis, markers, picture
from fedtables import Table

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
    axis = Axis(rows)
    out = picture(rows[:FEW], labels[:FEW], axis, title)
    if rows[FEW:]:
        out += (
            f'<details class="more"><summary>{len(rows) - FEW} more</summary>'
            f"{picture(rows[FEW:], labels[FEW:], axis, title)}</details>"
        )
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
    return (
        f'<figure class="forest"><figcaption><b>{esc(title)}</b></figcaption>{drawn}'
        f'<details class="more"><summary>As a table</summary>{listed(rows, labels)}'
        "</details></figure>"
    )


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
    heads = ("claim", "verdict", "effect", "interval", "margin", "paper", "seeds")
    body = "".join(
        f'<tr><th scope="row">{esc(label or r["claim"])}</th><td>{chip(r["holds"])}'
        f"<small>{esc(decides(r))}</small></td>"
        + "".join(
            f'<td class="n">{esc(text)}</td>'
            for text in (
                f"{amount(r, 'effect')} {unit(r)}",
                width(r),
                amount(r, "margin", ""),
                amount(r, "printed"),
                r["n_seeds"],
            )
        )
        + "</tr>"
        for r, label in zip(rows, labels)
    )
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    return wrap(
        f'<table class="plain"><thead><tr>{head}</tr></thead><tbody>{body}</tbody>'
        "</table>"
    ).astext()


def forests(directive, table, least=1):
    """Every family of a table with at least so many claims to draw."""
    found = families(table).values()
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
            out.append(
                raw(
                    f'<details class="group"><summary><b>{esc(nice("paper", paper))}'
                    f"</b> {len(mine)} families</summary>{''.join(mine)}</details>"
                )
            )
        return out


def setup(app):
    app.add_directive("forest", Forest)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
