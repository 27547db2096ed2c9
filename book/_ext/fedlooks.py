"""{looks}: seeds are drawn until a difference is decided, a picture to play with
(looks.js). {margins}: the margin of each kind of metric. {errors}: how often each
verdict errs, as simulated (results/verdicts-errors.csv).
"""

import json

import numpy as np
from docutils.parsers.rst import directives
from fedbook import CLAIMS, chip, esc, heads, parallel, part, raw, table, wrap
from fedplot import Axis, markers, picture
from fedtables import Table
from scipy import stats

from fedlib.measures import verdicts
from fedlib.measures.verdicts import LEVEL, LOOKS
from repro.ledger import slug
from repro.metrics import KINDS

SHOWN = tuple(v for v in CLAIMS if v in (*verdicts.DECIDED, "undecided"))


class Looks(Table):
    """{looks}: one experiment, look by look; the body is the caption of
    the live picture.

    :difference: :deviation: :margin:   where the sliders stand, in points
    """

    has_content = True
    option_spec = dict.fromkeys(("difference", "deviation", "margin"), float)

    def run(self):
        start = {"difference": 1.0, "deviation": 2.0, "margin": 1.0, **self.options}
        looks = [{"seeds": n, "t": stats.t.isf(LEVEL / 2, n - 1)} for n in LOOKS]
        rows = experiment(**start)
        axis = Axis(rows)
        labels = [f"{r['n_seeds']} seeds" for r in rows]
        title = (
            f"One experiment: the true difference is {start['difference']:g}, "
            f"the deviation between seeds {start['deviation']:g}, the margin "
            f"{start['margin']:g}"
        )
        drawn = picture(rows, labels, axis, title)
        data = json.dumps({"start": start, "looks": looks})
        still = f'<span class="still">{esc(title)}, in points.</span>'
        live = f'<span class="live" hidden>{esc(" ".join(self.content))}</span>'
        caption = f"<figcaption>{still}{live}</figcaption>"
        data = f'<script type="application/json">{data}</script>'
        figure = f'<figure class="forest looks">{drawn}{caption}{data}</figure>'
        return [raw(markers(self) + figure)]


def experiment(difference, deviation, margin, seed=0):
    """Normal differences looked at until they are decided -> rows as fedplot draws
    them.
    """
    d = np.random.default_rng(seed).normal(difference, deviation, LOOKS[-1])
    rows = []
    for n in LOOKS:
        mean, lo, hi, _ = verdicts.span(d[:n])
        holds = verdicts.verdict(verdicts.single(d[:n], margin))
        values = {"effect": mean, "lo": lo, "hi": hi, "margin": margin, "n_seeds": n}
        row = {k: str(v) for k, v in values.items()} | {"holds": holds}
        rows.append(row | {"metric": "", "printed": "", "claim": f"Look {n}"})
        if holds in verdicts.DECIDED:
            break
    return rows


class Margins(Table):
    """{margins}: the smallest difference that anybody would care about, for each kind
    of metric, and why; of repro/metrics.py.
    """

    def run(self):
        body = ""
        for name, kind in KINDS.items():
            if kind.margin:
                margin = f"{kind.margin:.0%}" if kind.relative else f"{kind.margin:g}"
                cells = f'<td class="n">{margin}</td><td>{esc(kind.why_margin)}</td>'
                body += f'<tr><th scope="row">{esc(name)}</th>{cells}</tr>'
        return [wrap(table("", heads(["kind", "margin", "why"]), body))]


class Errors(Table):
    """{errors} [verdict_of ...]: shares of the answers for each kind of sentence and
    each truth, as bars and as numbers, with the share of wrong ones.

    :shape:   normal: only differences of this shape
    """

    option_spec = {"shape": directives.unchanged}
    numbers = (*SHOWN, "wrong", "seeds")

    def run(self):
        rows = self.rows("verdicts-errors")
        if self.arguments:
            rows = [r for r in rows if r["verdict_of"] in self.arguments]
        if "shape" in self.options:
            rows = [r for r in rows if r["shape"] == self.options["shape"]]
        if not rows:
            return self.fail("{errors}: no row for %s", " ".join(self.arguments))
        kinds = {}
        for r in rows:
            kinds.setdefault(r["verdict_of"], []).append(r)
        span = len(self.numbers) + len(self.words()) + 1
        body = "".join(
            part(esc(kind), span) + "".join(map(self.line, mine))
            for kind, mine in kinds.items()
        )
        head = heads(self.words().values()) + heads(self.numbers, "n")
        worst = 100 * max(float(r["wrong"]) for r in rows)
        caption = (
            "Shares of the answers in percent, and seeds on average. Of the answers at "
            f"most {worst:.1f} % are wrong. {' '.join(map(chip, SHOWN))}"
        )
        return [wrap(table("errors", head + heads(["answers"]), body), caption)]

    def words(self):
        """{column: its heading}; a shape that all rows have needs no column."""
        shape = {} if "shape" in self.options else {"shape": "differences"}
        return {"truth": "truth"} | shape

    def line(self, r):
        share = {v: 100 * float(r[v]) for v in (*SHOWN, "wrong")}
        bar = "".join(
            f'<span class="v-{slug(v)}" style="flex:{share[v]:g}"></span>'
            for v in SHOWN
            if share[v]
        )
        numbers = "".join(f'<td class="n">{s:.1f}</td>' for s in share.values())
        shape = f"<td>{esc(r['shape'])}</td>" if "shape" in self.words() else ""
        return (
            f'<tr><th scope="row">{esc(r["truth"])}</th>{shape}{numbers}'
            f'<td class="n">{float(r["seeds"]):.1f}</td>'
            f'<td><div class="shares" aria-hidden="true">{bar}</div></td></tr>'
        )


def setup(app):
    return parallel(app, Looks, Margins, Errors)
