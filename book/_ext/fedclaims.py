"""{claims} lists the claims of results/claims.csv with verdict, effect and what would
decide them. fedforest.py draws them, fedsummary.py counts them.
"""

from fedbook import chip, esc, nice, parallel, prose, raw
from fedeffects import amount, decides, rarity, seeds, survives, unit, width
from fedforest import forests
from fedtables import Simple, fold, live, origin, place, small

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


def setup(app):
    return parallel(app, Claims)
