"""Effects of claims as SVG, each with its interval, on one axis.

Positions across are percentages, so the picture fills any width while letters keep
their size; colours are those of the verdicts (fedbook.css), and so are the marks: a
verdict is told by its word, shape and colour.
"""

import textwrap

from fedbook import CLAIMS, TEMPLATES, macros, prose, seeds, word
from fedeffects import amount, unit, width
from fedtables import counted
from matplotlib.ticker import MaxNLocator

LINE, STRIP = 15, 24  # heights of a line of the label, and of effect and interval
STEP = 12  # down from a claim to the next one of its row
LETTERS = 44  # of a label's line at 360 pixels
BESIDE = 9  # of these the effect takes, beside the verdict


def marks(directive):
    """The marks, once for each page; the plots refer to them."""
    known = directive.env.temp_data.get("fedforest")
    directive.env.temp_data["fedforest"] = True
    return "" if known else macros(__name__).marks()


class Axis:
    """Values -> percent of the width. It holds zero, every effect, printed gain and
    margin; an interval that is much wider ends in an arrow.
    """

    def __init__(self, rows):
        def values(field):
            return [float(r[field]) for r in rows if r[field]]

        kept = [0.0, *values("effect"), *values("printed")]
        kept += [s * m for m in values("margin") for s in (-1, 1)]
        reach = 1.5 * max(map(abs, kept)) or 1.0
        ends = [v for v in values("lo") + values("hi") if abs(v) <= reach]
        self.low, self.high = min(kept + ends), max(kept + ends)

    def at(self, value):
        """Percent of the width, kept inside."""
        share = (float(value) - self.low) / (self.high - self.low)
        return 3 + 94 * min(1.0, max(0.0, share))

    def percent(self, value, start=None):
        """As text, of a value or from `start` to it."""
        return f"{self.at(value) - (0 if start is None else self.at(start)):.2f}%"

    def inside(self, value):
        return self.low <= float(value) <= self.high

    def ticks(self):
        found = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        return [t for t in found if self.inside(t)]


def spoken(r):
    """A claim in one line, for those who point at it or listen."""
    effect = f"{amount(r, 'effect')} {width(r)} {unit(r)}"
    said = [
        f"{prose(r['claim'], r)} {word(r)}: {effect}",
        seeds(r),
        f"margin {amount(r, 'margin', '')}" if r["margin"] else "",
        f"the paper prints {amount(r, 'printed')}" if r["printed"] else "",
    ]
    return ", ".join(s.strip() for s in said if s)


def picture(rows, labels, title, axis=None):
    """Claims that share an axis, as one SVG; above each those `before` it."""
    y, claims = 4, []
    for r, label in zip(rows, labels):
        beside = " " * (BESIDE + len(word(r)))
        lines = textwrap.wrap(label, LETTERS, initial_indent=beside)[:3] or [""]
        top = y + LINE * len(lines)
        claims.append((r, [line.strip() for line in lines], y, top))
        y = top + STRIP + STEP * len(r.get("before", ())) + 6
    counts = counted(rows, "holds", CLAIMS).items()
    said = ", ".join(f"{n} {v}" for v, n in counts)
    return macros(__name__).drawing(claims, axis or Axis(rows), title, said, y)


TEMPLATES.globals |= globals()
