"""One look for every figure: palette, styles of the methods, matplotlib's settings.

A figure is one SVG in the light colours below. The book inlines it and swaps each
colour for a CSS variable of the same name (`PALETTE`), so one file serves both themes.
Colour is never the only sign: dash and marker change with it.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import matplotlib as mpl
import numpy as np

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


# The same colour, dash and marker per method in every figure. Six strong colours,
# then greys.
METHOD_STYLE = {
    "FedGA": Style("c2", "-", "o", 2.6),
    "FedGA_ablation": Style("c2", (0, (3, 1.2)), "o", 1.6, False),
    "FedAvg": Style("c6", "--", "s", 1.9),
    "FedGini": Style("c1", "-.", "D"),
    "FedFV": Style("c3", (0, (5, 1, 1, 1, 1, 1)), "^"),
    "FedMGDA+": Style("c4", ":", "v", 1.9),
    "q-FedAvg": Style("c5", (0, (8, 2)), "P"),
    "FedProx": Style("g1", (0, (4, 1.5)), "X"),
    "FedFa": Style("g1", (0, (6, 1, 2, 1)), ">"),
    "Uniform": Style("g1", (0, (12, 2)), "d"),
    "AFL": Style("g2", (0, (2, 1)), "<"),
    "Ditto": Style("g1", (0, (1, 1)), "p"),
    "FedPer": Style("g2", (0, (4, 1, 1, 1)), "H"),
    "FedPer-online": Style("g2", (0, (4, 1, 1, 1, 1, 1)), "H", 1.6, False),
    "FedRep": Style("g2", (0, (8, 1.5, 1, 1.5)), "h"),
    "pFedHN": Style("g2", (0, (1, 1.6, 4, 1.6)), "*"),
    "FedAS": Style("c2", "-", "o", 2.6),
    "FedAvg-P": Style("c6", "--", "s", 1.9),
    "FedAvg-FT": Style("c6", (0, (3, 1, 1, 1)), "s", 1.9, False),
    "FedBABU": Style("c1", "-.", "D"),
    "FedALA": Style("c3", (0, (5, 1, 1, 1, 1, 1)), "^"),
    "FedPAC": Style("c4", ":", "v", 1.9),
    "LG-FedAvg": Style("c5", (0, (8, 2)), "P"),
    "FedProx-P": Style("g1", (0, (4, 1.5)), "X"),
    "FedProx-FT": Style("g1", (0, (2, 1.5)), "X", 1.6, False),
    "FedProto": Style("g1", (0, (6, 1, 2, 1)), ">"),
    "CD2-pFed": Style("g1", (0, (12, 2)), "d"),
    "Local": Style("g2", (0, (3, 2)), "8"),
    "FedAS-parallel": Style("c1", "--", "D", 1.6, False),
    "FedAS-global": Style("c4", "-.", "v", 1.6, False),
    "FedAS-chained": Style("c3", ":", "^", 1.6, False),
    "PLGU-LF": Style("c2", "-", "o", 2.6),
    "PLGU-GRep": Style("c1", (0, (5, 1.2)), "D", 2.2),
    "PLGU-GHN": Style("c3", "-.", "^", 2.2),
    "FedSAM": Style("c4", ":", "v", 1.9),
    "pFedMe": Style("c5", (0, (8, 2)), "P"),
    "pFedHN-chunked": Style("g1", (0, (1, 1.6, 4, 1.6)), "*", 1.6, False),
    "FedRep-2x": Style("g2", (0, (3, 1.5)), "h", 1.6, False),
    "EquFL": Style("c2", "-", "o", 2.6),
    "FLinear": Style("c1", "-.", "D"),
    "FairFed": Style("c3", (0, (5, 1, 1, 1, 1, 1)), "^"),
    "FedFB": Style("c4", ":", "v", 1.9),
    "Reweight": Style("c5", (0, (8, 2)), "P"),
    "Regular": Style("g2", (0, (2, 1)), "<"),
    "Gaussian-update": Style("g1", (0, (4, 1.5)), "X"),
    "Uniform-update": Style("g1", (0, (12, 2)), "d"),
    "FFT-GP": Style("c2", "-", "o", 2.6),
    "FFT-GP-lagged": Style("c2", (0, (3, 1.2)), "o", 1.6, False),
    "FFT-GP-beside": Style("c2", (0, (8, 1, 1, 1)), "o", 1.6, False),
    "FAA": Style("c2", (0, (6, 1)), "h", 2.2),
    "FAA-lagged": Style("c5", (0, (3, 1, 1, 1)), "p", 1.6, False),
    "GA": Style("c1", "-.", "D"),
    "GRACE": Style("c3", (0, (5, 1, 1, 1, 1, 1)), "^"),
    "PerFedAvg": Style("c4", ":", "v", 1.9),
    "Zero-shot": Style("g1", (0, (4, 1.5)), "X"),
    "FedCLIP": Style("c1", "-.", "D"),
    "PromptFL": Style("c3", (0, (5, 1, 1, 1, 1, 1)), "^"),
    "FFT-GP (adapter)": Style("c2", "-", "o", 2.2),
    "FFT-GP (prompts)": Style("c4", ":", "v", 1.9),
}
SPARE = [
    Style("ink", dash, mark, 2.0, False)
    for dash in ("-", "--", "-.", ":")
    for mark in ("*", "p", "h", "8")
]
LABELS = {
    "FedGA_ablation": "FedGA ablated",
    "Gaussian-update": "Gaussian noise",
    "Uniform-update": "uniform noise",
}


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
    "axes.prop_cycle": mpl.cycler(color=STRONG, linestyle=DASHES, marker=list(MARKERS)),
}


def use() -> None:
    """Set the style; once per notebook."""
    mpl.rcParams.update(RC)
