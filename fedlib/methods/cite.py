"""BibTeX of the papers behind the methods.

A method of another package has its entry in a references.bib beside its file.
"""

import inspect
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .make import named

BIBLIOGRAPHY = Path(__file__).with_name("references.bib")  # the book's, too


def entries(text: str) -> dict[str, str]:
    """{key: entry} of a BibTeX file; an entry runs from its @ to the next, or to a
    comment of its own line."""
    parts = re.split(r"^(?=[ \t]*[@%])", text, flags=re.M)
    heads = [re.match(r"\s*@\w+\s*\{\s*([^,\s}]+)\s*,", part) for part in parts]
    return {head[1]: part.strip() for head, part in zip(heads, parts) if head}


@cache
def of_fedlib():
    """The entries of this package's own bibliography."""
    return entries(BIBLIOGRAPHY.read_text(encoding="utf-8"))


def references(cls):
    """{key: entry} of fedlib, and of the file beside a method of another package."""
    if cls.__module__.startswith("fedlib."):
        return of_fedlib()
    try:
        beside = Path(inspect.getfile(cls)).with_name(BIBLIOGRAPHY.name)
        return of_fedlib() | entries(beside.read_text(encoding="utf-8"))
    except (OSError, TypeError):  # no such file; or a class of a notebook
        return of_fedlib()


def cite(*methods: str) -> str:
    """The BibTeX entries of methods, by their names in `fedlib.METHODS`.

    A paper behind several of them comes once. Raises ValueError for an unknown method,
    or one whose paper is not in the bibliography.
    """
    out = {}
    for cls in map(named, methods):
        key = cls.card and cls.card.bibkey
        if key not in references(cls):
            raise ValueError(
                f"{cls.__name__}: its card names the paper {key!r}, and {BIBLIOGRAPHY} "
                "has no such entry, nor has a references.bib beside its file"
            )
        out[key] = references(cls)[key]
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
    entry = references(cls).get(cls.card and cls.card.bibkey)
    if entry is None:
        return None
    of = dict(re.findall(r"(\w+)\s*=\s*\{(.*)\},?\s*$", entry, re.M))
    of = {k.lower(): re.sub(r"[{}\\]", "", v) for k, v in of.items()}
    names = [a.partition(",")[0] for a in of.get("author", "-").split(" and ")]
    authors = ", ".join(names) if len(names) < 3 else f"{names[0]} et al."
    venue = of.get("booktitle") or of.get("journal") or f"arXiv {of.get('eprint', '')}"
    short = re.search(r"\(([^()]+)\)$", venue)
    venue = short[1] if short else venue.removeprefix("Proceedings of the ")
    return Paper(
        authors, of.get("title", ""), venue, of.get("year", ""), of.get("url", "")
    )
