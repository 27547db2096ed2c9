"""BibTeX of the papers behind the methods.

A method of another package has its entry in a references.bib beside its file.
"""

import inspect
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..core.errors import nearest
from . import METHODS

BIBLIOGRAPHY = Path(__file__).with_name("references.bib")  # the book's, too


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
        raise ValueError(f"{path} is missing: it is part of fedlib, install it again")
    of_fedlib, out = entries(Path(path).read_text(encoding="utf-8")), {}
    for name in methods:
        if name not in METHODS:
            raise ValueError(
                f"unknown method {name!r}{nearest(name, METHODS)} (python -m fedlib "
                "methods lists them)"
            )
        card = METHODS[name].card
        if card is None:
            raise ValueError(f"{name} names no paper: it has no card")
        known = of_fedlib | beside(METHODS[name])
        if card.bibkey not in known:
            at = path if name not in METHODS.added else place(METHODS[name])
            raise ValueError(
                f"{at} has no entry {card.bibkey!r}, the paper of "
                f"{name}{nearest(card.bibkey, known)}"
            )
        out[card.bibkey] = known[card.bibkey]
    return "\n\n".join(out.values())


class Paper(NamedTuple):
    """What is printed of a method's paper."""

    authors: str
    title: str
    venue: str
    year: str
    url: str

    def __str__(self):
        who = self.authors.rstrip(".")
        return f"{who}. {self.title}. {self.venue} {self.year}. {self.url}".rstrip()


def paper(cls) -> Paper | None:
    """The paper of a method, or None where no bibliography has it."""
    key = cls.card.bibkey if cls.card else None
    entry = (of_fedlib() | beside(cls)).get(key)
    if entry is None:
        return None
    of = dict(re.findall(r"(\w+)\s*=\s*\{(.*)\},?\s*$", entry, re.M))
    of = {k.lower(): re.sub(r"[{}\\]", "", v) for k, v in of.items()}
    names = [a.partition(",")[0] for a in of.get("author", "-").split(" and ")]
    authors = ", ".join(names) if len(names) < 3 else f"{names[0]} et al."
    venue = of.get("booktitle") or of.get("journal") or f"arXiv {of.get('eprint', '')}"
    short = re.search(r"\(([^()]+)\)$", venue)
    venue = short[1] if short else venue.removeprefix("Proceedings of the ")
    title, year, url = (of.get(k, "") for k in ("title", "year", "url"))
    return Paper(authors, title, venue, year, url)


@cache
def of_fedlib():
    """The entries of this package's own bibliography."""
    return entries(BIBLIOGRAPHY.read_text(encoding="utf-8"))


def place(cls):
    """Where another package keeps the references of a method."""
    return Path(inspect.getfile(cls)).with_name("references.bib")


def beside(cls):
    """{key: entry} of the bibliography beside a method of another package, if any."""
    if cls.__module__.partition(".")[0] == "fedlib":
        return {}
    try:
        return entries(place(cls).read_text(encoding="utf-8"))
    except (OSError, TypeError):  # no such file; or a class of a notebook
        return {}
