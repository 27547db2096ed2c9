"""{claims} lists the claims of results/claims.csv with verdict, effect and what would
decide them. fedforest.py draws them, fedsummary.py counts them.
"""

from fedbook import chip, esc, nice, prose, raw
from fedeffects import amount, decides, rarity, seeds, survives, unit, width
from fedforest import forests
from fedtables import Simple, origin, place

from repro.ledger import slug

NUMERIC = ("effect", "q", "decided by")
FACETS = ("paper", "verdict", "by", "gain", "data", "tier", "needs", "survives")


# ---- the cells of a row


def sentence(_, r):
    """The claim; below it where the paper says so, and how."""
    quote = f"\u201c{r['quote']}\u201d" if r["quote"] else ""
    at = f"Section {r['section']}" if r["section"][:1].isdigit() else r["section"]
    said = " ".join(filter(None, [quote, at]))
    said = "ours, not the paper's" if r["by"] == "ours" else said
    return esc(prose(r["claim"])) + (f"<small>{esc(said)}</small>" if said else "")


def verdict(_, r):
    gain = chip(f"gain {r['gain']}") if r["gain"] else ""
    why = f"<small>{esc(prose(r['reason']))}</small>" if r["reason"] else ""
    return f"{chip(r['holds'])} {gain}{why}"


def effect(_, r):
    """The difference with its interval; below it margin, seeds and the paper's gain."""
    if not r["effect"]:
        return ""
    small = [
        nice("metric", r["metric"]),
        f"margin {amount(r, 'margin', '')}" if r["margin"] else "",
        seeds(r),
        f"paper {amount(r, 'printed')}" if r["printed"] else "",
    ]
    return (
        f"{esc(amount(r, 'effect'))} {esc(width(r))} {esc(unit(r))}"
        f"<small>{esc(' · '.join(filter(None, small)))}</small>"
    )


def doubt(_, r):
    """q, and whether the claim survives so many tests."""
    shown = esc(rarity(r)) if r["q"] else ""
    return shown + ("<small>survives</small>" if survives(r) else "")


def answer(_, r):
    """The verdict, and what would decide it or whether it survives."""
    more = f"to decide it: {decides(r)}" if decides(r) else ""
    more = f"survives, q {rarity(r)}" if survives(r) else more
    return verdict(_, r) + (f"<small>{esc(more)}</small>" if more else "")


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
            out.append(
                raw(
                    f'{marks}<details class="group"><summary>Effects and intervals, '
                    f"{n} of claims</summary>{''.join(drawn)}</details>"
                )
            )
        return out

    def every(self, table):
        """The table of all claims; its rows carry what they can be chosen by."""
        head = "".join(
            f'<th scope="col" data-kind="{"num" if t in NUMERIC else "text"}" '
            f'data-name="{t}">{t}</th>'
            for t, _ in EVERY
        )
        body = "\n".join(
            f'<tr id="claims-{slug(r["key"])}" {choices(r)}>'
            + "".join(
                f'<td class="c-{slug(t)}">{show(self, r)}</td>' for t, show in EVERY
            )
            + "</tr>"
            for r in table
        )
        return raw(
            '<table id="all-claims" class="ledger live claims" data-what="claims" '
            f'data-facets="{" ".join(FACETS)}"><caption class="visually-hidden">Each '
            "row: a sentence, its verdict, and the difference that it hangs on."
            f"</caption><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"
            "</table>"
        )


def choices(r):
    """What a reader can choose rows by, as data of the row."""
    values = {
        "paper": nice("paper", r["paper"]),
        "verdict": r["holds"],
        "by": r["by"],
        "gain": r["gain"],
        "data": r["data"],
        "tier": r["tier"],
        "needs": decides(r),
        "survives": "yes" if survives(r) else "no" if r["holds"] == "yes" else "",
    }
    return " ".join(f'data-{k}="{esc(v)}"' for k, v in values.items() if v)


def setup(app):
    app.add_directive("claims", Claims)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
