"""Tables of what a task lets anybody learn, and of how long clients train: from
results/gates.csv and results/regimes.csv, which python -m repro.regimes writes.
"""

from itertools import groupby

from fedbook import chip, esc, fold, nice, parallel, part, small, wrap
from fedbook import table as made
from fedtables import Table

from repro import papers

SIZES = {  # column -> heading
    "rounds": "rounds",
    "clients": "clients",
    "cohort": "of them in a round",
    "participations": "rounds of a client",
    "epochs": "passes in a round",
    "steps_per_pass": "steps in a pass",
    "steps_per_participation": "steps in a round",
    "steps_in_all": "steps of a client in all",
    "last_evaluations": "in the mean",
}
GATES = "data|testable|gate||chance|alone|federated|all rows".split("|")
FEW = 3  # settings of a study that are named in a line
BROAD = ' style="min-width:9.5rem;white-space:normal"'
WIDE, HIGH = 130, 16  # of a ruler, in pixels


def heading(title, n):
    """A column's heading; numbers, which follow n = 0, stand to the right."""
    number = ' class="n" style="white-space:normal"' if n else ""
    return f'<th scope="col"{number}>{title}</th>'


def shown(text):
    """A number of a csv for readers: 1,234, 4.8, 133; nothing stays nothing."""
    if not text:
        return ""
    value = float(text)
    return f"{value:,.0f}" if value >= 100 or value.is_integer() else f"{value:.2g}"


class Gates(Table):
    """{gates} [paper]: accuracy by chance, alone, federated and with all rows in one
    place, for every data set of a paper, and whether claims about it can be tested.
    """

    def run(self):
        where = {"paper": self.arguments[0]} if self.arguments else {}
        table = self.rows("gates", **where)
        if not table:
            asked = " ".join(self.arguments) or "any"
            return self.fail("{gates}: no row for %s", asked)
        head = "".join(heading(t, n) for n, t in enumerate(GATES))
        body = ""
        for paper, mine in groupby(table, lambda r: r["paper"]):
            body += part(esc(nice("paper", paper)), len(GATES)) + "".join(
                map(self.line, mine)
            )
        seeds = ", ".join(sorted({r["n_seeds"] for r in table}))
        tiers = ", ".join(sorted({r["tier"] for r in table}))
        caption = (
            "Accuracy in percent, a mean over clients. The gate is (federated − chance)"
            " / (all rows − chance); on the ruler from chance to all rows, ● is the "
            f"federation, ○ a client alone. Tier {esc(tiers)}; pilot seeds: {seeds}."
        )
        return [wrap(made("gates", head, body), caption)]

    def line(self, r):
        """One data set: verdict and gate first, so that a phone shows them."""
        same = r["label"] == nice("dataset", r["dataset"])
        name = "" if same else small(nice("dataset", r["dataset"]))
        other = r["reference_method"] != "FedAvg"
        method = small(r["reference_method"]) if other else ""
        shown = lambda c: f"{float(r[c]):.1f}"
        values = [f"{float(r['gate']):.2f}" if r["gate"] else "–", self.ruler(r)]
        values += [shown("chance"), shown("local"), shown("reference") + method]
        cells = "".join(
            f'<td class="n">{v}</td>' for v in [*values, shown("centralised")]
        )
        first = f"<td>{esc(r['label'])}{name}</td><td>{chip(r['passes'])}</td>"
        return f"<tr>{first}{cells}</tr>"

    @staticmethod
    def ruler(r):
        """From chance (0) to all rows (1), the gate at a half, as a small drawing."""
        chance, top = float(r["chance"]), float(r["centralised"])
        if top <= chance:
            return ""

        def x(value):
            share = (float(value) - chance) / (top - chance)
            return 15 + (WIDE - 40) * min(1.2, max(-0.1, share))

        middle, y = (x(chance) + x(top)) / 2, HIGH / 2
        ends = "".join(
            f'<path d="M{at:.1f} {y - h}v{2 * h}"/>'
            for at, h in ((x(chance), 4), (middle, 6), (x(top), 4))
        )
        far = f"the federation goes {float(r['gate']):.0%} of the way to all rows"
        line = f'<path d="M{x(chance):.1f} {y}H{x(top):.1f}"/>{ends}'
        hollow = 'stroke="var(--fig-c5)" fill="var(--pst-color-background)"'
        return (
            f'<svg width="{WIDE}" height="{HIGH}" role="img" aria-label="{far}">'
            f'<g stroke="currentColor" fill="none">{line}</g>'
            f'<circle cx="{x(r["local"]):.1f}" cy="{y}" r="4" {hollow} '
            f'stroke-width="1.6"/><circle cx="{x(r["reference"]):.1f}" cy="{y}" r="4" '
            'fill="var(--fig-c5)"/></svg>'
        )


class Regimes(Table):
    """{regimes} paper: how long a client trains in each study, the paper's numbers
    above ours; what is the same in several studies or settings stands in one line.
    """

    def run(self):
        if not self.arguments:
            return self.fail("{regimes} needs a paper")
        table = self.rows("regimes", paper=self.arguments[0])
        if not table:
            return self.fail("{regimes}: no row for %s", self.arguments[0])
        main = papers.about(self.arguments[0])["main"]
        first = [r for r in table if r["study"] in main]
        rest = [r for r in table if r["study"] not in main]
        caption = (
            '<span class="rep">the paper</span> above, where it says, '
            '<span class="our">ours</span> below; steps are those of the client in the '
            "middle, “in the mean” how many evaluations the last rounds have."
        )
        others = (
            [fold("The other studies", self.lines(rest).astext(), "group")]
            if rest
            else []
        )
        return [self.lines(first, caption), *others]

    def lines(self, table, caption=""):
        """One line for each data set and regime of rows, with where it was so."""
        lines = {}
        for r in table:
            same = r["dataset"], "".join(self.cell(r, column) for column in SIZES)
            lines.setdefault(same, {}).setdefault(r["study"], []).append(r["setting"])
        titles = ["data, studies", *SIZES.values()]
        head = "".join(heading(title, n) for n, title in enumerate(titles))
        body = "".join(
            f"<tr><td{BROAD}>{esc(nice('dataset', dataset))}"
            f"<small>{self.studies(where)}</small></td>{cells}</tr>"
            for (dataset, cells), where in lines.items()
        )
        return wrap(made("reported regimes", head, body), caption)

    @staticmethod
    def cell(r, column):
        theirs = shown(r.get(f"paper_{column}")) or "–"
        printed = any(v for k, v in r.items() if k.startswith("paper_"))
        above = f'<span class="rep">{theirs}</span>' if printed else ""
        return f'<td class="n">{above}{shown(r[column])}</td>'

    @staticmethod
    def studies(where):
        """'grid: P=0.2, P=0.4; ablation', of {study: settings}."""
        parts = []
        for study, settings in where.items():
            named = ", ".join(filter(None, settings[:FEW]))
            more = len(settings) - FEW
            named += f" and {more} more" if more > 0 else ""
            parts.append(f"{study}: {named}" if named else study)
        return esc("; ".join(parts))


def setup(app):
    return parallel(app, Gates, Regimes)
