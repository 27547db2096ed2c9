"""Effects of claims as SVG, each with its interval, on one axis.

Positions across are percentages, so the picture fills any width while letters keep
their size; colours are those of the verdicts (fedbook.css), and so are the marks: a
verdict is told by its word, shape and colour.
"""

import textwrap

from fedbook import CLAIMS, esc, prose
from fedeffects import amount, seeds, unit, width
from matplotlib.ticker import MaxNLocator

LINE, STRIP = 15, 24  # heights of a line of the label, and of effect and interval
LETTERS, BESIDE = (
    44,
    20,
)  # of a label's line at 360 pixels; those that the verdict takes
MARKERS = {
    "yes": '<circle r="5"/>',
    "no": '<path d="M-5,-5L5,5M-5,5L5,-5"/>',
    "alike": '<rect x="-5" y="-5" width="10" height="10"/>',
    "undecided": '<circle r="4.5" style="fill:var(--fig-paper)"/>',
    "printed": (
        '<path d="M0,-6L5,0L0,6L-5,0Z" style="fill:var(--fig-paper);'
        'stroke:var(--fig-ink)"/>'
    ),
    "left": '<path d="M-1,0L6,-4V4Z"/>',
    "right": '<path d="M1,0L-6,-4V4Z"/>',
}


def markers(directive):
    """The marks, once for each page; the plots refer to them."""
    if directive.env.temp_data.get("fedforest"):
        return ""
    directive.env.temp_data["fedforest"] = True
    marks = "".join(
        f'<g id="mark-{k}" fill="currentColor" stroke="currentColor" '
        f'stroke-width="2">{mark}</g>'
        for k, mark in MARKERS.items()
    )
    return (
        '<svg class="marks" aria-hidden="true" width="0" height="0">'
        f"<defs>{marks}</defs></svg>"
    )


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
        share = (value - self.low) / (self.high - self.low)
        return 3 + 94 * min(1.0, max(0.0, share))

    def inside(self, value):
        return self.low <= value <= self.high

    def ticks(self):
        found = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(self.low, self.high)
        return [t for t in found if self.inside(t)]


def row(r, label, y, axis):
    """One claim: label and verdict, below them margin band, interval and effect."""
    parts = []
    lines = textwrap.wrap(label, LETTERS, initial_indent=" " * BESIDE)[:3] or [""]
    for i, line in enumerate(map(str.strip, lines)):
        parts.append(f'<text x="0" y="{y + 12 + LINE * i}">{esc(line)}</text>')
    shown = f"{r['holds']} {amount(r, 'effect')}"
    parts.append(f'<text class="word" x="100%" y="{y + 12}">{shown}</text>')
    top = y + LINE * len(lines)
    middle = top + STRIP / 2

    def across(a, b, kind):
        x1, x2 = axis.at(a), axis.at(b)
        return (
            f'<line class="{kind}" x1="{x1:.2f}%" x2="{x2:.2f}%" y1="{middle}" '
            f'y2="{middle}"/>'
        )

    def mark(name, value):
        return f'<use href="#mark-{name}" x="{axis.at(value):.2f}%" y="{middle}"/>'

    if r["margin"]:
        m = float(r["margin"])
        x, wide = axis.at(-m), axis.at(m) - axis.at(-m)
        parts.append(
            f'<rect class="margin" x="{x:.2f}%" width="{wide:.2f}%" y="{top + 2}" '
            f'height="{STRIP - 4}"/>'
        )
    if r["lo"]:
        lo, hi = float(r["lo"]), float(r["hi"])
        parts.append(across(lo, hi, "bar"))
        parts += [mark("left", lo)] if not axis.inside(lo) else []
        parts += [mark("right", hi)] if not axis.inside(hi) else []
    if r["printed"]:
        parts.append(mark("printed", float(r["printed"])))
    parts.append(mark(r["holds"], float(r["effect"])))
    title = f"<title>{esc(spoken(r))}</title>"
    return f'<g class="v-{r["holds"]}">{title}{"".join(parts)}</g>', top + STRIP + 6


def spoken(r):
    """A claim in one line, for those who point at it or listen."""
    said = [
        f"{prose(r['claim'])} {r['holds']}: {amount(r, 'effect')} {width(r)} {unit(r)}",
        seeds(r),
        f"margin {amount(r, 'margin', '')}" if r["margin"] else "",
        f"the paper prints {amount(r, 'printed')}" if r["printed"] else "",
    ]
    return ", ".join(s.strip() for s in said if s)


def picture(rows, labels, axis, title):
    """Claims that share an axis, as one SVG."""
    y, body = 4, ""
    for r, label in zip(rows, labels):
        drawn, y = row(r, label, y, axis)
        body += drawn
    grid = "".join(
        f'<line class="{"zero" if t == 0 else "grid"}" x1="{axis.at(t):.2f}%" '
        f'x2="{axis.at(t):.2f}%" y1="4" y2="{y}"/>'
        for t in axis.ticks()
    )
    ticks = "".join(
        f'<text class="tick" x="{axis.at(t):.2f}%" y="{y + 14}">'
        f"{format(t, '.3g').replace('-', chr(0x2212))}</text>"
        for t in axis.ticks()
    )
    counts = [f"{n} {v}" for v in CLAIMS if (n := [r["holds"] for r in rows].count(v))]
    return (
        f'<svg role="img" aria-label="{esc(title)}: {", ".join(counts)}" width="100%" '
        f'height="{y + 22}"><desc>Effect and interval of {len(rows)} claims; the table '
        f"below has the same numbers.</desc>{grid}{body}{ticks}</svg>"
    )
