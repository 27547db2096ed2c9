"""Tables of what a task lets anybody learn, and of how long clients train: from
results/gates.csv and results/regimes.csv, which python -m repro.regimes writes.
"""

from itertools import groupby

from fedbook import chip, esc, nice, raw, wrap
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
            return self.fail(
                "{gates}: no row for %s", " ".join(self.arguments) or "any"
            )
        head = "".join(heading(t, n) for n, t in enumerate(GATES))
        body = ""
        for paper, mine in groupby(table, lambda r: r["paper"]):
            name = esc(nice("paper", paper))
            part = f'<th scope="rowgroup" colspan="{len(GATES)}">{name}</th>'
            body += f'<tr class="part">{part}</tr>{"".join(map(self.line, mine))}'
        seeds = ", ".join(sorted({r["n_seeds"] for r in table}))
        tiers = ", ".join(sorted({r["tier"] for r in table}))
        caption = (
            "Accuracy in percent, a mean over clients. The gate is (federated − chance)"
            " / (all rows − chance); on the ruler from chance to all rows, ● is the "
            f"federation, ○ a client alone. Tier {esc(tiers)}; pilot seeds: {seeds}."
        )
        return [
            wrap(
                f'<table class="plain gates"><thead><tr>{head}</tr></thead>'
                f"<tbody>{body}</tbody></table>",
                caption,
            )
        ]

    def line(self, r):
        """One data set: verdict and gate first, so that a phone shows them."""
        same = r["label"] == nice("dataset", r["dataset"])
        name = "" if same else f"<small>{esc(nice('dataset', r['dataset']))}</small>"
        other = r["reference_method"] != "FedAvg"
        method = f"<small>{esc(r['reference_method'])}</small>" if other else ""
        gate = f"{float(r['gate']):.2f}" if r["gate"] else "–"
        values = [gate, self.ruler(r)]
        values += [f"{float(r[c]):.1f}" for c in ("chance", "local")]
        values += [f"{float(r['reference']):.1f}{method}"]
        values += [f"{float(r['centralised']):.1f}"]
        cells = "".join(f'<td class="n">{v}</td>' for v in values)
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
        return (
            f'<svg width="{WIDE}" height="{HIGH}" role="img" aria-label="the '
            f'federation goes {float(r["gate"]):.0%} of the way to all rows">'
            f'<g stroke="currentColor" fill="none"><path d="M{x(chance):.1f} {y}'
            f'H{x(top):.1f}"/>{ends}</g>'
            f'<circle cx="{x(r["local"]):.1f}" cy="{y}" r="4" stroke="var(--fig-c5)" '
            'fill="var(--pst-color-background)" stroke-width="1.6"/>'
            f'<circle cx="{x(r["reference"]):.1f}" cy="{y}" r="4" '
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
        opened = '<details class="group"><summary>The other studies</summary>'
        folded = f"{opened}{self.lines(rest).astext()}</details>" if rest else ""
        return [self.lines(first, caption), raw(folded)]

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
        return wrap(
            '<table class="plain reported regimes"><thead><tr>'
            f"{head}</tr></thead><tbody>{body}</tbody></table>",
            caption,
        )

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
    app.add_directive("gates", Gates)
    app.add_directive("regimes", Regimes)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
