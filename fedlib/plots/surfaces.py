"""The loss around a model: contours side by side, and data of the book's 3-D views."""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np

from .files import FOLDER
from .theme import HEAT, LIGHT, drawn, label, look


def above(z, clip=5.0) -> np.ndarray:
    """Loss above the model's own: z [p, p] less its middle value, at most `clip`."""
    z = np.asarray(z, float)
    if z.shape != (len(z) // 2 * 2 + 1,) * 2 or not np.isfinite(z).all():
        raise ValueError(f"z has shape {z.shape}: give a finite square grid, odd size")
    return np.minimum(z - z[len(z) // 2, len(z) // 2], clip)


def ladder(top: float, rungs: int = 8) -> np.ndarray:
    """Levels 0, then 1, 2, 5, 10, ... times a power of ten, up to above `top`."""
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
    notes=None,
    name="loss above the model's",
):
    """Contours of `above(z, clip)` for surfaces {name: losses [p, p], [y, x]} in a row
    or grid of axes, all on one scale, with a cross at the model.

    Every panel has the same limits, levels and colours. levels: increasing, from 0
    (None: `ladder`, so that the bottom of a basin is resolved as well as its rim); each
    band has one colour. notes {name: a line under its title}. Returns the levels.
    """
    v = {m: above(z, clip) for m, z in surfaces.items()}
    axes, cut = np.atleast_2d(axes), any((z == clip).any() for z in v.values())
    if levels is None:
        levels = ladder(max(z.max() for z in v.values()) or 1.0)
        levels[-1] = clip if cut else levels[-1]
    extend = "min" if min(z.min() for z in v.values()) < 0 else "neither"
    norm = mpl.colors.BoundaryNorm(levels, HEAT.N, extend=extend)
    cross = dict(marker="+", color=LIGHT, markersize=9, markeredgewidth=1.4)
    for ax, (m, z) in zip(axes.flat, v.items(), strict=True):
        x = radius * np.linspace(-1, 1, len(z))
        bands = dict(levels=levels, cmap=HEAT, norm=norm, extend=extend)
        filled = ax.contourf(x, x, z, **bands)
        # also hides the seams of the bands
        lines = dict(colors=LIGHT, linewidths=0.5, alpha=0.55)
        ax.contour(x, x, z, levels=levels[1:], **lines)
        ax.plot(0, 0, ls="", **cross)
        note = (notes or {}).get(m, "")
        ax.set_title(f"{label(m)}\n{note}".strip(), fontsize=9)
        ax.grid(False)
        ax.spines[:].set_visible(False)
        at = [-radius, 0, radius]
        ax.set(aspect="equal", xticks=at, yticks=at)
        ax.set(xlabel="direction 1", ylabel="direction 2")
        # inwards, clear of the next panel's
        for text, side in zip(ax.get_xticklabels(), ("left", "center", "right")):
            text.set_horizontalalignment(side)
        ax.label_outer()
    place = dict(ax=list(axes.flat), shrink=0.85, aspect=22, pad=0.02)
    bar = axes[0, 0].get_figure().colorbar(filled, label=name, **place)
    bar.outline.set_visible(False)
    words = [f"{t:g}" for t in levels]
    bar.set_ticks(levels, labels=[*words[:-1], "\u2265 " * cut + words[-1]])
    bar.ax.tick_params(length=0)
    return levels


# ---------------------------------------------------------------- 3-D views of the book
def save_surface(name, surfaces: dict, *, extent=(-1, 1), axes, folder=FOLDER) -> Path:
    """JSON for a turnable view: {method: [n, n]}; ValueError if not finite."""
    digits = lambda v: [[float(f"{x:.4g}") for x in row] for row in v]
    z = {label(m): digits(v) for m, v in surfaces.items()}
    about = {"kind": "surface", "extent": list(extent), "axes": list(axes), "z": z}
    return _view(name, about, folder)


def save_cloud(name, points: dict, *, axes, folder=FOLDER) -> Path:
    """JSON for a turnable 3-D scatter {method: (x, y, z)} in the methods' colours."""
    six = lambda p: [float(f"{v:.6g}") for v in p]
    each = ((label(m), look(m).colour, six(p)) for m, p in points.items())
    at = [dict(zip(("name", "colour", "at"), one)) for one in each]
    return _view(name, {"kind": "cloud", "axes": list(axes), "points": at}, folder)


def _view(name, data, folder):
    path = drawn(folder) / f"{name}.view.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")
    return path
