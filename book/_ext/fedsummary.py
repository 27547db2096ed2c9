"""{claimsummary} counts the claims of results/claims.csv."""

from docutils.parsers.rst import directives
from fedbook import CLAIMS, GAINS, esc, filtered, heads, nice, parallel, part, raw, wrap
from fedbook import table as made
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
            title = part(title, len(self.columns) + 2)
            body += f"{title}{''.join(lines)}" if lines else ""
        if not body:
            return self.fail("{claimsummary}: no claim of %s", " ".join(papers))
        head = heads(["paper"]) + heads(self.columns, "n") + heads(["verdicts"])
        explained = legend({**CLAIMS, **GAINS}) if "explain" in self.options else ""
        return [wrap(made("summary", head, body)), raw(explained)]

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
    return parallel(app, ClaimSummary)
