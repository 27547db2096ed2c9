"""One look for every figure of the book, its standard charts, and figures saved with
where they come from.

    from fedlib import plots
    plots.use()

theme          palette, styles of the methods, matplotlib's settings
files          figures on disk: SVG, provenance
place          the repository that figures belong to
labels         where names stand in a figure
curves         charts over rounds, and the client x round heat map
distributions  charts of one number per client or seed
comparisons    charts that set methods against each other
forest         what a family of claims hangs on
tidy           frames drawn with seaborn
themed         colours that a dark page does not know
surfaces       the loss around a model, flat and for the book's 3-D views
"""

from .comparisons import (  # noqa: F401
    critical_difference,
    outside_better,
    radar,
    scatter_labelled,
    vectors,
)
from .curves import (  # noqa: F401
    band,
    by_client,
    curves_with_interval,
    gini_curves,
    interval,
    microscope,
    series,
    staleness,
)
from .distributions import bars_with_error, densities, dots, violins  # noqa: F401
from .files import Saved, inline, origin, save, svg  # noqa: F401
from .forest import VERDICTS, forest  # noqa: F401
from .labels import label_ends, label_points, spread  # noqa: F401
from .place import root  # noqa: F401
from .surfaces import above, ladder, landscapes, save_cloud, save_surface  # noqa: F401
from .theme import (  # noqa: F401
    DARK,
    DASHES,
    GRID,
    HEAT,
    INK,
    LABELS,
    LIGHT,
    MARKERS,
    METHOD_STYLE,
    PALETTE,
    PAPER,
    RC,
    SIDES,
    SIZE,
    SOFT,
    STRONG,
    Style,
    colour,
    label,
    look,
    style,
    text_colour,
    use,
)
from .themed import strangers  # noqa: F401
from .tidy import (  # noqa: F401
    BAR,
    CURVE,
    DENSITY,
    VIOLIN,
    colours,
    inside,
    looks,
    mirror,
    name_ends,
    name_peaks,
    name_rows,
    smooth,
    t95,
)
