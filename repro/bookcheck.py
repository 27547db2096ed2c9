"""Check a built book; run by the stage book of dvc.yaml.

    python -m repro.bookcheck book/_build/html

It says, page by page, what a reader would stumble over, and fails if there is anything:
a file or script from another host, a link that leads nowhere, an id used twice, a
picture without a description, a page that is too heavy.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup

from fedlib.cli.program import program

HEAVY = 3_000_000  # bytes of one page
# every number of the papers, some 3,700 rows of about 700 bytes; every claim, some
# 1,800 rows of about 1,200 bytes, and its forest plots
HEAVY_PAGES = {"ledger.html": 4_400_000, "claims.html": 4_600_000}
LOADS = "src srcset poster data background action formaction xlink:href".split()
# scripts of our own: they name no address at all
OWN = (
    "_static/figures.js",
    "_static/ledger.js",
    "_static/looks.js",
    "_static/quiz.js",
    "_static/play/*.js",
)


class Page(NamedTuple):
    """What matters of one page: ids, links (to, line), addresses it loads (where, what,
    line), pictures without words (what, line).
    """

    ids: list
    links: list
    loads: list
    bare: list


def read(text):
    """The Page of a text in HTML."""
    page, has = Page([], [], [], []), lambda tag, name: (tag.get(name) or "").strip()
    for tag in BeautifulSoup(text, "html.parser").find_all(True):
        kind, line = tag.name, tag.sourceline
        page.ids.extend([tag["id"]] if tag.get("id") else [])
        for name, value in tag.attrs.items():
            if value and (name in LOADS or name == "href" and kind != "a"):
                page.loads.append((f"<{kind} {name}>", value, line))
        found = urls(has(tag, "style"))
        if kind == "a" and has(tag, "href"):
            page.links.append((tag["href"], line))
        elif kind == "style":
            found += urls(tag.get_text())
        elif kind == "script":
            # names of XML dialects, never fetched
            code = re.sub(r"https?://www\.w3\.org/[\w/#.-]*", "", tag.get_text())
            found += re.findall(r"(?:https?:|wss?:)//[^\s'\"`)]+", code)
        page.loads.extend((f"<{kind}>", address, line) for address in found)
        if tag.get("aria-hidden") == "true":
            continue
        if kind == "img" and not has(tag, "alt"):
            page.bare.append((f"<img src={tag.get('src')!r}> has no alt text", line))
        named = tag.get("role") == "img" and has(tag, "aria-label")
        if kind == "svg" and not named:
            page.bare.append(("<svg> has no role=img with aria-label", line))
    return page


def urls(css):
    """Addresses that a style sheet loads."""
    return re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s;]+)", css)


def remote(address):
    """Does it lead to another host?"""
    return bool(re.match(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", address, re.I))


def check(root) -> list[str]:
    """Every complaint about the book built in folder `root`, as "page:line: what"."""
    root = Path(root).resolve()
    files = sorted(root.rglob("*.html"))
    if not files:
        raise FileNotFoundError(
            f"{root} holds no page: python -m repro.bookbuild first"
        )
    sources = [f for f in files if "_static" not in f.relative_to(root).parts]
    pages = {f: read(f.read_text(encoding="utf-8")) for f in sources}
    called = lambda path: path.relative_to(root).as_posix()
    found = [f"{called(p)}{what}" for p in pages for what in of_page(root, p, pages)]
    for sheet in sorted(root.glob("_static/**/*.css")):
        css = re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.S)
        far = filter(remote, urls(css))
        found += [f"{called(sheet)}: loads {u} from another host" for u in far]
    for script in (path for own in OWN for path in sorted(root.glob(own))):
        text = script.read_text(encoding="utf-8")
        text = text.replace("http://www.w3.org/2000/svg", "")
        far = re.findall(r"https?://[^\s'\"`]+", text)
        found += [f"{called(script)}: names {u}" for u in far]
    return found


def of_page(root, path, pages):
    """What is wrong with a page, as ":line: what"."""
    page, size = pages[path], path.stat().st_size
    for where, value, line in page.loads:
        if remote(value):
            yield f":{line}: {where} loads {value[:90]} from another host"
    yield from (f":{line}: {what}" for what, line in page.bare)
    for name, n in sorted(Counter(page.ids).items()):
        if n > 1:
            yield f": the id {name!r} is used {n} times"
    limit = HEAVY_PAGES.get(path.relative_to(root).as_posix(), HEAVY)
    if size > limit:
        yield f": {size:,} bytes, more than {limit:,}"
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
