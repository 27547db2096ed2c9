"""Tables of what a task lets anybody learn, and of how long clients train: from
results/gates.csv and results/regimes.csv, which python -m repro.regimes writes.
"""

from fedbook import SIZES, Directive, grouped, parallel

from repro import papers

FEW = 3  # settings of a study that are named in a line
WIDE = 130  # of a ruler, in pixels


def shown(text):
    """A number of a csv for readers: 1,234, 4.8, 133; nothing stays nothing."""
    if not text:
        return ""
    value = float(text)
    return f"{value:,.0f}" if value >= 100 or value.is_integer() else f"{value:.2g}"


def ruled(r):
    """Places on a ruler from chance to all rows, in pixels; None if they are one."""
    names = ("chance", "local", "reference", "centralised")
    values = {name: float(r[name]) for name in names}
    low, high = values["chance"], values["centralised"]
    if high <= low:
        return None
    values["middle"] = (low + high) / 2
    share = {
        k: min(1.2, max(-0.1, (v - low) / (high - low))) for k, v in values.items()
    }
    return {k: f"{15 + (WIDE - 40) * v:.1f}" for k, v in share.items()}


class Gates(Directive):
    """{gates} [paper]: accuracy by chance, alone, federated and with all rows in one
    place, for every data set of a paper, and whether claims about it can be tested.
    """

    def run(self):
        rows = self.asked("gates", "paper")
        said = [", ".join(sorted({r[c] for r in rows})) for c in ("tier", "n_seeds")]
        return self.draw("gates", grouped(rows, "paper"), *said)


class Regimes(Directive):
    """{regimes} paper: how long a client trains in each study, the paper's numbers
    above ours; what is the same in several studies or settings stands in one line.
    """

    required_arguments = 1

    def run(self):
        rows, main = self.asked("regimes", "paper"), papers.about(self.arguments[0])
        first = [r for r in rows if r["study"] in main["main"]]
        rest = [r for r in rows if r["study"] not in main["main"]]
        named = self.rows("gates", paper=self.arguments[0])
        names = {r["dataset"]: r["label"] for r in named}
        return self.draw("regimes", first, rest, names)


def merged(rows):
    """(data set, the studies where it was so, its cells) of each regime."""
    lines = {}
    for r in rows:
        same = r["dataset"], tuple(cell(r, column) for column in SIZES)
        lines.setdefault(same, []).append(r)
    return [(data, studies(mine), cells) for (data, cells), mine in lines.items()]


def cell(r, column):
    """The paper's number, nothing if it prints none in this study, and ours."""
    printed = any(v for k, v in r.items() if k.startswith("paper_"))
    theirs = shown(r.get(f"paper_{column}")) or "–"
    return theirs if printed else "", shown(r[column])


def studies(rows):
    """'grid: P=0.2, P=0.4; ablation'."""
    parts = []
    for study, mine in grouped(rows, "study").items():
        named = ", ".join(r["setting"] for r in mine[:FEW] if r["setting"])
        named += f" and {len(mine) - FEW} more" if len(mine) > FEW else ""
        parts.append(f"{study}: {named}" if named else study)
    return "; ".join(parts)


def setup(app):
    return parallel(app, Gates, Regimes)
