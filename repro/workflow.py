"""The diagram of one round of a method; called by notebooks of papers and chapters.

papers/<paper>/workflow.py has the boxes of the paper's methods.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

from fedlib import plots


def draw(steps):
    """One round of a method: five boxes in a loop -> figure.

    steps: (who, what, x, y) of each box; who is "server" or "clients", what may have
    two lines, x and y are its middle in the unit square."""
    fig, ax = plt.subplots(figsize=(4.8, 3.4))
    for who, what, x, y in steps:
        c = plots.STRONG[0] if who == "server" else plots.STRONG[1]
        frame = {"boxstyle": "round,pad=0.012", "edgecolor": c, "lw": 1.6}
        corner, size = (x - 0.155, y - 0.085), (0.31, 0.17)
        ax.add_patch(FancyBboxPatch(corner, *size, facecolor="none", **frame))
        ax.text(x, y + 0.055, who, ha="center", va="center", fontsize=8.5, color=c)
        ax.text(x, y - 0.025, what, ha="center", va="center", fontsize=8.5)
    xy = [(x, y) for _, _, x, y in steps]
    for (x0, y0), (x1, y1), bend in zip(xy, xy[1:] + xy[:1], (-0.2, 0, 0, 0, -0.2)):
        across, down = (0.17 * np.sign(x1 - x0), 0), (0, 0.105 * np.sign(y1 - y0))
        sx, sy = across if y0 == y1 or y0 == 0.9 else down
        ex, ey = across if y0 == y1 or y1 == 0.9 else down
        arrow = {"arrowstyle": "-|>", "color": plots.SOFT, "lw": 1.3}
        arrow["connectionstyle"] = f"arc3,rad={bend}"
        ax.annotate("", (x1 - ex, y1 - ey), (x0 + sx, y0 + sy), arrowprops=arrow)
    ax.set(xlim=(-0.03, 1.03), ylim=(0.16, 1.02))
    ax.axis("off")
    return fig
