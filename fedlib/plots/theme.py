"""One look for every figure: palette, styles of the methods, matplotlib's settings.

A figure is one SVG in the light colours below. The book inlines it and swaps each
colour for a CSS variable of the same name (`PALETTE`), so one file serves both themes.
Colour is never the only sign: each method has a dash and a marker of its own.
"""

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import matplotlib as mpl
import numpy as np
import yaml

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


def root() -> Path:
    """The nearest folder, from the working one upwards, with a pyproject.toml."""
    here = Path.cwd()
    above = (p for p in (here, *here.parents) if (p / "pyproject.toml").exists())
    return next(above, here)


def drawn(folder: str | Path) -> Path:
    """Where a process writes what goes to `folder` of the repository: what is below
    results/ where the pipeline says, else to runs/mine/, so that a reader's notebook
    replaces nothing. An absolute folder stays.
    """
    first, *below = Path(folder).parts
    mine = os.environ.get("FEDLIB_RESULTS", "runs/mine")
    return root() / (Path(mine, *below) if first == "results" else folder)


# ---------------------------------------------------------------- looks of the methods
class Style(NamedTuple):
    """How one method looks."""

    colour: str  # its name in PALETTE
    dash: object
    marker: str
    width: float = 1.6  # points
    filled: bool = True
    label: str = ""  # the name to print where it is another


SPARE = [
    Style("ink", dash, mark, 2.0, False)
    for dash in ("-", "--", "-.", ":")
    for mark in ("*", "p", "h", "8")
]


@cache
def styles(*places: Path) -> dict[str, Style]:
    """{method: Style} of papers/*/style.yaml in the first place that has some."""
    read = lambda path: yaml.safe_load(path.read_text("utf-8"))
    order = lambda path: read(path.with_name("paper.yaml"))["order"]
    found = [[*p.glob("papers/*/style.yaml")] for p in places]
    tuples = lambda v: tuple(map(tuples, v)) if isinstance(v, list) else v
    out = {}
    for path in sorted(next(filter(None, found), ()), key=order):
        for method, given in read(path).items():
            out.setdefault(method, Style(**{k: tuples(v) for k, v in given.items()}))
    return out


def look(method: str) -> Style:
    """How a method is drawn: as its paper's style.yaml says, else in ink, by name."""
    known = styles(root(), Path(__file__).resolve().parents[2])
    return known.get(method) or SPARE[crc32(method.encode()) % len(SPARE)]


def colour(method: str) -> str:
    """Light colour of a method, as #rrggbb."""
    return PALETTE[look(method).colour][0]


def text_colour(method: str) -> str:
    """Colour of a method's name: some lines' pale grey is too pale for letters."""
    return PALETTE["g1"][0] if look(method).colour == "g2" else colour(method)


def label(method: str) -> str:
    """The name to print."""
    return look(method).label or method


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
        markerfacecolor=c if own.filled else PAPER,
        markeredgecolor=c,
        zorder=4 if method == "FedGA" else 3,
    )


# ---------------------------------------------------------------- settings
RC = mpl.rc_params_from_file(Path(__file__).with_name("fedlib.mplstyle"), False, False)
SIZE = RC["figure.figsize"]
RC |= {f"{k}.labelcolor": INK for k in ("axes", "xtick", "ytick")}
RC |= {"text.color": INK, "axes.titlecolor": INK, "grid.color": GRID}
RC |= {k: SOFT for k in ("axes.edgecolor", "xtick.color", "ytick.color")}
# colour alone: from a richer cycle seaborn dresses its error bars, too
RC["axes.prop_cycle"] = mpl.cycler(color=STRONG)


def use() -> None:
    """Set the style; once per notebook."""
    mpl.rcParams.update(RC)
