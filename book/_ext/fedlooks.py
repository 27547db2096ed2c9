"""{looks}: seeds are drawn until a difference is decided, a picture to play with
(looks.js). {margins}: the margin of each kind of metric. {errors}: how often each
verdict errs, as simulated (results/verdicts-errors.csv).
"""

import json

import numpy as np
from docutils.parsers.rst import directives
from fedbook import CLAIMS, Directive, grouped, parallel
from fedplot import picture
from scipy import stats

from fedlib.measures import verdicts
from fedlib.measures.verdicts import LEVEL, LOOKS
from repro.metrics import KINDS

SHOWN = tuple(v for v in CLAIMS if v in (*verdicts.DECIDED, "undecided"))


class Looks(Directive):
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
        title = (
            "One experiment: the true difference is {difference:g}, the deviation "
            "between seeds {deviation:g}, the margin {margin:g}"
        ).format(**start)
        drawn = picture(rows, [f"{r['n_seeds']} seeds" for r in rows], title)
        data = json.dumps({"start": start, "looks": looks})
        return self.draw("looks", drawn, title, data)


def experiment(difference, deviation, margin, seed=0):
    """Normal differences, looked at until decided -> rows as fedplot draws them."""
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


class Margins(Directive):
    """{margins}: the smallest difference that anybody would care about, for each kind
    of metric, and why; of repro/metrics.py.
    """

    def run(self):
        return self.draw("margins", KINDS)


class Errors(Directive):
    """{errors} [verdict_of]: shares of the answers for each kind of sentence and each
    truth, as bars and as numbers, with the share of wrong ones.

    :shape:   normal: only differences of this shape
    """

    option_spec = {"shape": directives.unchanged}

    def run(self):
        shape = self.options.get("shape")
        rows = self.asked("verdicts-errors", "verdict_of")
        rows = [r for r in rows if shape in (None, r["shape"])]
        worst = 100 * max(float(r["wrong"]) for r in rows)
        return self.draw("errors", grouped(rows, "verdict_of"), worst, not shape)


def setup(app):
    return parallel(app, Looks, Margins, Errors)
