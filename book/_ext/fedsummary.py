"""{claimsummary} counts the claims of results/claims.csv."""

from docutils.parsers.rst import directives
from fedbook import CLAIMS, GAINS, esc, filtered, nice, raw, wrap
from fedeffects import survives, testable
from fedtables import Table, block, legend

from fedlib.measures.verdicts import ALPHA


class ClaimSummary(Table):
    """{claimsummary} [fedga]: how many sentences, testable, decided, with which answer;
    how many "yes" chance alone would give, how many survive. Ours stand apart.

    Option :explain: says below what each verdict means.
    """

    option_spec = {"explain": directives.flag}
    columns = ("sentences", "testable", "decided", "yes", "by chance", "survive")

    def run(self):
        table = self.rows("claims")
        papers = self.arguments or list(dict.fromkeys(r["paper"] for r in table))
        body = ""
        for by, title in (("paper", "Sentences of the papers"), ("ours", "Our own")):
            lines = [
                self.line(paper, by, mine)
                for paper in papers
                if (mine := [r for r in table if (r["paper"], r["by"]) == (paper, by)])
            ]
            span = len(self.columns) + 2
            part = (
                f'<tr class="part"><th scope="rowgroup" colspan="{span}">{title}</th>'
            )
            body += f"{part}</tr>{''.join(lines)}" if lines else ""
        if not body:
            return self.fail("{claimsummary}: no claim of %s", " ".join(papers))
        head = "".join(f'<th scope="col" class="n">{c}</th>' for c in self.columns)
        head = f'<th scope="col">paper</th>{head}<th scope="col">verdicts</th>'
        explained = legend({**CLAIMS, **GAINS}) if "explain" in self.options else ""
        return [
            wrap(
                f'<table class="plain summary"><thead><tr>{head}</tr></thead><tbody>'
                f"{body}</tbody></table>"
            ),
            raw(explained),
        ]

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

        bar = "".join(
            block(v, answers.count(v), shown(holds=v)) for v in CLAIMS if v in answers
        )
        cells = "".join(f'<td class="n">{n}</td>' for n in counts)
        return (
            f'<tr><th scope="row"><a href="{shown()}">{esc(nice("paper", paper))}</a>'
            f'</th>{cells}<td><div class="stack">{bar}</div></td></tr>'
        )


def setup(app):
    app.add_directive("claimsummary", ClaimSummary)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
