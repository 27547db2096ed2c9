"""BibTeX of the papers behind the methods, out of the book's bibliography."""

from __future__ import annotations

import re
from pathlib import Path

from ..core.errors import nearest
from . import METHODS

BIBLIOGRAPHY = Path(__file__).resolve().parents[2] / "book" / "references.bib"


def entries(text):
    """{key: entry} of a BibTeX file; an entry runs from its @ to its closing brace."""
    out = {}
    head = r"^[ \t]*@(\w+)[ \t]*\{[ \t]*([^,\s}]+)[ \t]*,"
    for start in re.finditer(head, text, re.M):
        if start[1].lower() in ("comment", "string", "preamble"):
            continue
        depth, end = 0, len(text)
        for brace in re.finditer(r"(?<!\\)[{}]", text[start.start() :]):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                end = start.start() + brace.end()
                break
        out[start[2]] = text[start.start() : end].strip()
    return out


def cite(*methods: str, path: str | Path = BIBLIOGRAPHY) -> str:
    """The BibTeX entries of methods, by their names in `fedlib.METHODS`.

    A paper behind several of them comes once. Raises ValueError for an unknown method,
    or one whose paper is not in the bibliography.
    """
    if not Path(path).exists():
        raise ValueError(
            f"{path} is missing: it is part of the repository, restore it with git"
        )
    known, out = entries(Path(path).read_text(encoding="utf-8")), {}
    for name in methods:
        if name not in METHODS:
            raise ValueError(
                f"unknown method {name!r}{nearest(name, METHODS)} (python -m fedlib "
                "methods lists them)"
            )
        card = METHODS[name].card
        if card is None:
            raise ValueError(f"{name} names no paper: it has no card")
        if card.bibkey not in known:
            raise ValueError(
                f"{path} has no entry {card.bibkey!r}, the paper of "
                f"{name}{nearest(card.bibkey, known)}"
            )
        out[card.bibkey] = known[card.bibkey]
    return "\n\n".join(out.values())
