"""One look for every figure: palette, styles of the methods, matplotlib's settings.

A figure is one SVG in the light colours below. The book inlines it and swaps each
colour for a CSS variable of the same name (`PALETTE`), so one file serves both themes.
Colour is never the only sign: each method has a dash and a marker of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import matplotlib as mpl
import numpy as np
import yaml

from .place import root

# name of the CSS variable -> (colour on light ground, colour on dark ground);
# book/_assets/fedbook.css repeats it
PALETTE = {
    "ink": ("#1f2933", "#e6eaee"),
    "soft": ("#5b6770", "#a9b4be"),
    "grid": ("#d5dbe1", "#3a4450"),
    "paper": ("#ffffff", "#1b2129"),
    "c1": ("#0072b2", "#62b6f0"),
    "c2": ("#a83200", "#ff955c"),
    "c3": ("#0b7f5c", "#3fce9f"),
    "c4": ("#a3478a", "#eba0d2"),
    "c5": ("#907a00", "#e8c04c"),
    "c6": ("#4a4f57", "#ccd3da"),
    "g1": ("#66707b", "#9aa5b1"),
    "g2": ("#868f99", "#7d8894"),
}
INK, SOFT, GRID, PAPER = (PALETTE[k][0] for k in ("ink", "soft", "grid", "paper"))
STRONG = [PALETTE[f"c{i}"][0] for i in range(1, 7)]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2))]
MARKERS = "osD^vP"
# Heat maps on either ground: neither end is as dark as the dark page, and the middle is
# grey, so that blank is blank.
CIVIDIS = mpl.colormaps["cividis"](np.linspace(0.16, 1, 256))
HEAT = mpl.colors.ListedColormap(CIVIDIS, "heat")
SIDES = mpl.colors.LinearSegmentedColormap.from_list(
    "sides", ["#0b5a94", "#5d97c4", "#b9bcc0", "#e08a50", "#b23a00"]
)
# Ink that both themes leave as it is: on a heat map's cells, which they leave, too.
LIGHT, DARK = "#fefefe", "#101418"
SIZE = (4.8, 3.0)  # inches; drawn this small, labels stay readable on a phone


class Style(NamedTuple):
    """How one method looks: palette name, dash, marker, line width in points, marker
    filled or hollow.
    """

    colour: str
    dash: object
    marker: str
    width: float = 1.6
    filled: bool = True


class ByPaper(Mapping):
    """What the papers say of a method, by its name; read from papers/*/style.yaml when
    somebody asks.

    The papers are those of the repository that we work in, else of the one that fedlib
    lies in; without any it is empty. A method that two papers have is drawn as the
    first one says.
    """

    def __init__(self, field: int):
        self.field = field

    def _all(self) -> dict:
        return drawn(root(), Path(__file__).resolve().parents[2])[self.field]

    def __getitem__(self, method: str):
        return self._all()[method]

    def __iter__(self):
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@cache
def drawn(*places: Path) -> tuple[dict, dict]:
    """({method: Style}, {method: name to print}), of the first place with papers."""
    found = [sorted(p.glob("papers/*/style.yaml"), key=_order) for p in places]
    styles, names = {}, {}
    for path in next(filter(None, found), ()):
        for method, given in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            if method not in styles:
                if "label" in given:
                    names[method] = given.pop("label")
                styles[method] = Style(**given | {"dash": _dash(given["dash"])})
    return styles, names


def _order(path: Path) -> float:
    about = path.with_name("paper.yaml")
    if not about.exists():
        return np.inf
    return yaml.safe_load(about.read_text(encoding="utf-8"))["order"]


def _dash(given):
    """As matplotlib wants it: [0, [3, 1]] -> (0, (3, 1))."""
    return tuple(map(_dash, given)) if isinstance(given, list) else given


# The same colour, dash and marker per method in every figure. Six strong colours,
# then greys.
METHOD_STYLE, LABELS = ByPaper(0), ByPaper(1)
SPARE = [
    Style("ink", dash, mark, 2.0, False)
    for dash in ("-", "--", "-.", ":")
    for mark in ("*", "p", "h", "8")
]


def look(method: str) -> Style:
    """The row of METHOD_STYLE, or for a method of the reader's own an ink line that
    depends on its name only.
    """
    return METHOD_STYLE.get(method) or SPARE[crc32(method.encode()) % len(SPARE)]


def colour(method: str) -> str:
    """Light colour of a method, as #rrggbb."""
    return PALETTE[look(method).colour][0]


def face(method: str) -> str:
    """What fills a method's marker: its colour, or paper for a hollow one."""
    return colour(method) if look(method).filled else PAPER


def text_colour(method: str) -> str:
    """Colour of a method's name: some lines' pale grey is too pale for letters."""
    return PALETTE["g1"][0] if look(method).colour == "g2" else colour(method)


def label(method: str) -> str:
    """The name to print."""
    return LABELS.get(method, method)


def weight(method: str) -> str:
    """Font weight of a method's name."""
    return "bold" if method == "FedGA" else "normal"


def style(method: str) -> dict:
    """Keywords for `ax.plot`: colour, dash, marker, width, label."""
    own, c = look(method), colour(method)
    return dict(
        color=c,
        linestyle=own.dash,
        marker=own.marker,
        linewidth=own.width,
        label=label(method),
        markersize=5,
        markerfacecolor=face(method),
        markeredgecolor=c,
        zorder=4 if method == "FedGA" else 3,
    )


RC = {
    "figure.figsize": SIZE,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "image.cmap": "cividis",
    "savefig.transparent": True,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fedlib",  # ids do not change from run to run
    # colour alone: from a richer cycle seaborn dresses its error bars, too
    "axes.prop_cycle": mpl.cycler(color=STRONG),
}


def use() -> None:
    """Set the style; once per notebook."""
    mpl.rcParams.update(RC)
