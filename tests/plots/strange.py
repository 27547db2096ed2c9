"""Colours of a figure that do not follow the page's theme.

The book swaps the colours of PALETTE between light and dark (files.inline). What is
drawn in any other colour stays as it is, and may vanish on a dark page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import matplotlib as mpl

from fedlib.plots.theme import DARK, HEAT, LIGHT, PALETTE, SIDES

SCALES = {mpl.colors.to_hex(s(i)) for s in (HEAT, SIDES) for i in range(s.N)}
KNOWN = {light for light, _ in PALETTE.values()} | SCALES | {LIGHT, DARK}
DRAWN = {"path", "use", "text", "tspan", "rect", "circle", "line", "polygon"}


def strangers(svg: str) -> list[str]:
    """Colours [n] of an SVG that the dark theme neither swaps nor leaves on purpose (a
    scale's, and ink on it). Matplotlib does not write a black fill: what has none is
    "#000000"."""
    found = set(_colours(ElementTree.fromstring(svg), {}))
    return sorted(found - KNOWN - {"none"})


def _colours(node, above: dict) -> Iterator[str]:
    """Visible colours of an element and of those inside; above: inherited style."""
    tag = node.tag.rpartition("}")[2]
    if tag in ("defs", "clipPath"):  # drawn where they are used, but hatches
        for hatch in node.iter(node.tag.replace(tag, "pattern")):
            yield from _colours(hatch, {})
        return
    own = dict(re.findall(r"([\w-]+):\s*([^;]+)", node.get("style", "")))
    said = {k: node.attrib[k] for k in ("fill", "stroke") if k in node.attrib}
    style = above | own | said
    shown = float(style.get("opacity", 1))
    if tag in DRAWN and not (tag == "text" and len(node)):
        for paint, usual in (("fill", "#000000"), ("stroke", "none")):
            colour = style.get(paint, usual)
            if shown * float(style.get(f"{paint}-opacity", 1)) and "url" not in colour:
                yield colour.strip().lower()
    for inner in node:
        yield from _colours(inner, style)
