"""Check a built book; run by the stage book of dvc.yaml.

    python -m repro.bookcheck book/_build/html

It says, page by page, what a reader would stumble over, and fails if there is anything:
a link that leads nowhere, an id used twice, a picture without a description, a file
from another host. What weighs and moves is looked at in a browser (repro.browse).
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from fedlib.cli.program import program

REMOTE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.I)


class Page(NamedTuple):
    """What matters of one page: ids; links (to, line); faults (what, line)."""

    ids: list
    links: list
    faults: list


def read(text):
    """The Page of a text in HTML."""
    page, has = Page([], [], []), lambda tag, name: (tag.get(name) or "").strip()
    for tag in BeautifulSoup(text, "html.parser").find_all(True):
        kind, line = tag.name, tag.sourceline
        page.ids.extend([tag["id"]] if tag.get("id") else [])
        if kind == "a":
            page.links.extend([(tag["href"], line)] if has(tag, "href") else [])
        elif far := [u for n in ("src", "href") if REMOTE.match(u := has(tag, n))]:
            page.faults.append(
                (f"<{kind}> loads {far[0][:90]} from another host", line)
            )
        if tag.get("aria-hidden") != "true":
            named = tag.get("role") == "img" and has(tag, "aria-label")
            bare = kind == "svg" and not named or kind == "img" and not has(tag, "alt")
            page.faults.extend([(f"<{kind}> has no description", line)] if bare else [])
    return page


def check(root) -> list[str]:
    """Every complaint about the book built in folder `root`, as "page:line: what"."""
    root = Path(root).resolve()
    files = [
        f for f in sorted(root.rglob("*.html")) if root / "_static" not in f.parents
    ]
    if not files:
        raise FileNotFoundError(
            f"{root} holds no page: python -m repro.bookbuild first"
        )
    pages = {f: read(f.read_text("utf-8") + rows_of(f)) for f in files}
    called = lambda path: path.relative_to(root).as_posix()
    return [f"{called(p)}{what}" for p in pages for what in of_page(p, pages)]


def rows_of(page):
    """The rows of a page's table that stand in a file of their own."""
    path = page.parent / "_static" / "rows" / f"{page.stem}.js"
    return "".join(json.loads(path.read_text("utf-8")[7:])) if path.exists() else ""


def of_page(path, pages):
    """What is wrong with a page, as ":line: what"."""
    page = pages[path]
    yield from (f":{line}: {what}" for what, line in page.faults)
    for name, n in sorted(Counter(page.ids).items()):
        if n > 1:
            yield f": the id {name!r} is used {n} times"
    for to, line in page.links:
        if what := lost(path, pages, to):
            yield f":{line}: the link {to!r} leads to {what}"


def lost(path, pages, address):
    """Where a link to this book leads, if that is nowhere; links to other hosts are not
    followed.
    """
    part = urlsplit(address)
    if part.scheme or part.netloc or address == "#":
        return None
    target = (path.parent / unquote(part.path)).resolve() if part.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return "no file"
    name = unquote(part.fragment)
    known = not name or name.startswith("?") or target not in pages
    return None if known or name in pages[target].ids else f"no place on {target.name}"


def main(folder="book/_build/html") -> int:
    """Print what is wrong with the built pages of a folder; the exit status."""
    found = check(folder)
    said = "\n".join(found) or f"{folder}: nothing to complain about"
    print(said, file=sys.stderr if found else sys.stdout)
    return bool(found)


if __name__ == "__main__":
    program(main)
