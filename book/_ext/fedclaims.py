"""The claims of results/claims.csv: {claims} lists them with verdict, effect and what
would decide them, {forest} draws them family by family (fedplot.py), {leads} side
by side, {claimsummary} counts them. How they look: fedclaims.html.
"""

import re

from docutils.parsers.rst import directives
from fedbook import CLAIMS, GAINS, SMALL, Directive, grouped, nice, parallel, prose
from fedeffects import decides, drawable, survives, testable, told_apart, unit

from fedlib.measures.verdicts import ALPHA, DECIDED
from repro.metrics import METRICS

COLUMNS = dict.fromkeys(["where", "sentence", "verdict"], "text")
COLUMNS |= {"effect": "num", "q": "num", "decided by": "num", "evidence": "text"}
FACETS = tuple("paper verdict size by gain data tier needs survives".split())
MEANINGS = CLAIMS | SMALL | GAINS
FEW = 12  # rows of a family that are shown at once


class Claims(Directive):
    """{claims}: every claim, its verdict and what that hangs on, as a table to choose
    from (ledger.js); the papers' own come first.
    """

    def run(self):
        rows = sorted(self.rows("claims"), key=lambda r: r["by"] == "ours")
        return self.draw("claims", rows)


def choices(r):
    """What a reader can choose rows by, as data of the row."""
    values = {"paper": nice("paper", r["paper"]), "verdict": r["holds"]}
    values |= {k: r[k] for k in ("size", "by", "gain", "data", "tier")}
    lasts = ("yes" if survives(r) else "no") if r["holds"] in DECIDED else ""
    return values | {"needs": decides(r), "survives": lasts}


def forests(rows):
    """Every family of these claims: its title, rows and their labels, and a panel for
    each kind of effect.
    """
    out = []
    for mine in grouped(filter(drawable, rows), "family").values():
        mine = sorted(mine, key=lambda r: -float(r["effect"]))
        shared, labels = told_apart([prose(r["claim"], r) for r in mine])
        panels = {}
        for r, label in zip(mine, labels):
            panels.setdefault((quantity(r), r.get("kind")), []).append((r, label))
        panels = [(name, *map(list, zip(*rs))) for (name, _), rs in panels.items()]
        title = shared or named(mine[0])
        out.append(dict(title=title, rows=mine, labels=labels, panels=panels))
    return out


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


class Forest(Directive):
    """{forest} fedga, or {forest} fedga-best: the claims of a paper family by family,
    or one family, with its content as a title; without a name those of all papers.
    """

    has_content = True

    def run(self):
        name = " ".join(self.arguments)
        rows = [r for r in self.rows("claims") if name in ("", r["paper"], r["family"])]
        if not rows:
            raise self.warning(f"{{forest}}: no claim of {name or 'any paper'}")
        papers = {p: forests(mine) for p, mine in grouped(rows, "paper").items()}
        if name:  # at tier tiny there is nothing to draw
            papers = {p: drawn for p, drawn in papers.items() if drawn}
        return self.draw("forest", papers, name)


class Leads(Directive):
    """{leads}: what a method leads by, claim below claim; the last of a row is full.

    A line "label: a-{b,c}-{d|e}" has a-b-d and a-c-d in the first panel, a-b-e and
    a-c-e in the second; where one is not tested the row is only named below.

    :title:   of the figure  :panels:  of each, with bars between
    :marks:   what the claims of a row are, in turn, with bars between
    """

    option_spec = dict.fromkeys(("title", "panels", "marks"), directives.unchanged)
    has_content = True

    def run(self):
        claims = {r["key"]: r for r in self.rows("claims") if drawable(r)}
        panels = {name: [] for name in self.options["panels"].split("|")}
        untested = {}
        for line in self.content:
            label, _, keys = line.partition(": ")
            for rows, text in zip(panels.values(), spelled(keys, "|")):
                found = [claims.get(k) for k in spelled(text, ",")]
                if all(found):
                    rows.append(found[-1] | {"label": label, "before": found[:-1]})
                else:
                    untested[label] = text
        series = self.options.get("marks", "").split("|")
        return self.draw("leads", panels, series, untested)


def spelled(text, bar):
    """a-{b,c}, at the comma -> [a-b, a-c]."""
    found = re.search(rf"\{{([^{{}}]*[{bar}][^{{}}]*)\}}", text)
    words = found[1].split(bar) if found else []
    return [text.replace(found[0], word) for word in words] or [text]


def tallies(rows):
    """Sentences, testable, yes, by more than the margin, by chance, survivors."""
    tested, yes = sum(map(testable, rows)), [r for r in rows if r["holds"] == "yes"]
    sure = sum(r["size"] == "beyond" for r in yes)
    chance = f"{tested * ALPHA / 2:.1f}"
    return len(rows), tested, len(yes), sure, chance, sum(map(survives, rows))


class ClaimSummary(Directive):
    """{claimsummary} [fedga]: how many sentences, testable, with which answer, how many
    "yes" chance alone would give, how many answers survive. Ours stand apart.

    Option :explain: says below what each verdict means.
    """

    option_spec = {"explain": directives.flag}

    def run(self):
        by = grouped(self.asked("claims", "paper"), "by")
        kinds = [("Sentences of the papers", "paper"), ("Our own", "ours")]
        kinds = [(t, who, grouped(by.get(who, []), "paper")) for t, who in kinds]
        return self.draw("claimsummary", kinds, "explain" in self.options)


def setup(app):
    return parallel(app, Claims, Forest, Leads, ClaimSummary)
