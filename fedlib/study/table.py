"""Tables as csv, the same bytes for the same table."""

from __future__ import annotations

import math
from pathlib import Path


def shown(value):
    """A value in a cell: six significant digits, nothing for what is missing."""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        return f"{value + 0.0:.0f}" if value == round(value, 0) else f"{value:.6g}"
    return "" if value is None else str(value)


def write(table, path):
    """csv with six significant digits, "\\n" line ends and no index: the same table
    gives the same bytes.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.map(shown).to_csv(path, index=False, lineterminator="\n")
    return path
