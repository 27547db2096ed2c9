"""The loss around a model: contours side by side, and data of the book's 3-D views."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np

from .files import FOLDER, write_view
from .labels import check
from .theme import HEAT, LIGHT, label, look


def above(z, clip=5.0) -> np.ndarray:
    """Loss above the model's own: z [p, p] less its middle value, at most `clip`; what
    landscapes and their 3-D views draw.
    """
    z = np.asarray(z, float)
    if z.shape != (len(z) // 2 * 2 + 1,) * 2 or not np.isfinite(z).all():
        raise ValueError(
            f"z has shape {z.shape}: give a square grid of odd size, all finite"
        )
    return np.minimum(z - z[len(z) // 2, len(z) // 2], clip)


def ladder(top: float, rungs: int = 8) -> np.ndarray:
    """Levels 0 and then 1, 2, 5, 10, ... times a power of ten, the last at or just
    above `top`.
    """
    every = np.array([float(f"{m}e{e}") for e in range(-12, 13) for m in (1, 2, 5)])
    last = int(np.argmax(every >= top * (1 - 1e-9)))
    return np.array([0.0, *every[last - rungs + 1 : last + 1]])


def landscapes(
    surfaces: dict,
    axes,
    *,
    radius=1.0,
    clip=5.0,
    levels=None,
    notes: dict | None = None,
    name="loss above the model's",
):
    """Contours of `above(z, clip)` for surfaces {name: losses [p, p], [y, x]} in a row
    or grid of axes, all on one scale.

    Every panel has the same limits, levels and colours. levels: increasing, from 0
    (None: `ladder`, so that the bottom of a basin is resolved as well as its rim); each
    band has one colour. notes {name: a line under its title}. Returns the levels.
    """
    v = {m: above(z, clip) for m, z in check("landscapes", surfaces).items()}
    axes = np.atleast_2d(axes)
    cut = any((z == clip).any() for z in v.values())
    if levels is None:
        levels = ladder(max(z.max() for z in v.values()) or 1.0)
        levels[-1] = clip if cut else levels[-1]
    levels = np.asarray(levels, float)
    sunk = min(z.min() for z in v.values()) < 0
    extend = "min" if sunk else "neither"
    norm = mpl.colors.BoundaryNorm(levels, HEAT.N, extend=extend)
    bands = dict(levels=levels, cmap=HEAT, norm=norm, extend=extend)
    for k, (ax, (m, z)) in enumerate(zip(axes.flat, v.items(), strict=True)):
        drawn = _panel(ax, z, radius, bands)
        note = f"\n{notes[m]}" if notes and m in notes else ""
        ax.set_title(label(m) + note, fontsize=9)
        _name_axes(ax, *divmod(k, axes.shape[1]), bottom=axes.shape[0] - 1)
    _scale(drawn, axes, levels, name, cut)
    return levels


def _panel(ax, z, radius, bands):
    """One landscape z [p, p] with a cross at the model; returns its filled contours."""
    x = radius * np.linspace(-1, 1, len(z))
    drawn = ax.contourf(x, x, z, **bands)
    # also hides the seams of the bands
    lines = dict(colors=LIGHT, linewidths=0.5, alpha=0.55)
    ax.contour(x, x, z, levels=bands["levels"][1:], **lines)
    cross = dict(marker="+", color=LIGHT, markersize=9, markeredgewidth=1.4)
    ax.plot(0, 0, ls="", **cross)
    ax.grid(False)
    ax.spines[:].set_visible(False)
    at = [-radius, 0, radius]
    ax.set(aspect="equal", xticks=at, yticks=at)
    return drawn


def _name_axes(ax, row, column, bottom):
    """Names and numbers along the outer panels only."""
    # inwards, clear of the next panel's
    for text, side in zip(ax.get_xticklabels(), ("left", "center", "right")):
        text.set_horizontalalignment(side)
    if row == bottom:
        ax.set_xlabel("direction 1")
    else:
        ax.set_xticklabels([])
    if column == 0:
        ax.set_ylabel("direction 2")
    else:
        ax.set_yticklabels([])


def _scale(drawn, axes, levels, name, cut):
    """One colour bar for all panels; cut: the last level stands for more, too."""
    place = dict(ax=list(axes.flat), shrink=0.85, aspect=22, pad=0.02)
    bar = axes[0, 0].get_figure().colorbar(drawn, spacing="uniform", **place)
    bar.set_label(name)
    bar.outline.set_visible(False)
    words = [f"{t:g}" for t in levels]
    words[-1] = "\u2265 " * cut + words[-1]
    bar.set_ticks(levels, labels=words)
    bar.ax.tick_params(length=0)


# ---------------------------------------------------------------- 3-D views of the book
def save_surface(
    name,
    surfaces: dict,
    *,
    extent=(-1, 1),
    axes=("direction 1", "direction 2", "loss"),
    folder=FOLDER,
) -> Path:
    """JSON for the book's turnable view: surfaces {method: [n, n]}, four significant
    digits. ValueError if not finite.
    """
    z = {label(m): v for m, v in check("save_surface", surfaces).items()}
    if not all(np.isfinite(v).all() for v in z.values()):
        raise ValueError(f"save_surface {name!r}: not all finite; clip it first")
    digits = lambda v: [[float(f"{x:.4g}") for x in row] for row in v]
    z = {m: digits(v) for m, v in z.items()}
    data = {"kind": "surface", "extent": list(extent), "axes": list(axes), "z": z}
    return write_view(name, data, folder)


def save_cloud(name, points: dict, *, axes, folder=FOLDER) -> Path:
    """JSON for the book's turnable 3-D scatter: points {method: (x, y, z)}, drawn with
    the methods' colours.
    """
    six = lambda p: [float(f"{v:.6g}") for v in p]
    drawn = [
        {"name": label(m), "colour": look(m).colour, "at": six(p)}
        for m, p in check("save_cloud", points, 3).items()
    ]
    data = {"kind": "cloud", "axes": list(axes), "points": drawn}
    return write_view(name, data, folder)
