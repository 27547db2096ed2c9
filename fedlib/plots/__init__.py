"""One look for every figure of the book, its standard charts, and figures saved with
where they come from.

    from fedlib import plots
    plots.use()

theme        palette, styles of the methods, matplotlib's settings
files        figures on disk: SVG, provenance
labels       where names stand in a figure
curves       charts over rounds, and the client x round heat map
comparisons  charts that set methods against each other
tidy         frames drawn with seaborn
surfaces     the loss around a model, flat and for the book's 3-D views
"""

# ruff: noqa: F401
from .comparisons import critical_difference, vectors, violins
from .curves import by_client, microscope, series
from .files import inline, origin, save, svg
from .labels import label_ends, label_points, name_rows, spread
from .surfaces import above, ladder, landscapes, save_cloud, save_surface
from .theme import (
    DARK,
    DASHES,
    GRID,
    HEAT,
    INK,
    LIGHT,
    MARKERS,
    PALETTE,
    PAPER,
    RC,
    SIDES,
    SIZE,
    SOFT,
    STRONG,
    Style,
    colour,
    drawn,
    label,
    look,
    root,
    style,
    use,
)
from .tidy import (
    BAR,
    CURVE,
    VIOLIN,
    colours,
    looks,
    mirror,
    name_ends,
    smooth,
    t95,
)
