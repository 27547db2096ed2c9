"""Check a built book; run by the stage book of dvc.yaml.

    python -m repro.bookcheck book/_build/html

It says, page by page, what a reader would stumble over, and fails if there is anything:
a file or script from another host, a link that leads nowhere, an id used twice, a
picture without a description, a page that is too heavy.
"""

from __future__ import annotations

import argparse
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fedlib.core import ends

HEAVY = 3_000_000  # bytes of one page
# every number of the papers, some 3,700 rows of about 700 bytes; every claim, some
# 1,800 rows of about 1,200 bytes, and its forest plots
HEAVY_PAGES = {"ledger.html": 4_400_000, "claims.html": 4_600_000}
LOADS = {
    "src",
    "srcset",
    "poster",
    "data",
    "background",
    "action",
    "formaction",
    "xlink:href",
}
# scripts of our own: they name no address at all
OWN = (
    "_static/figures.js",
    "_static/ledger.js",
    "_static/looks.js",
    "_static/quiz.js",
    "_static/play/*.js",
)


class Link(NamedTuple):
    """Where an <a> leads, and the line it stands on."""

    to: str
    line: int


class Page(HTMLParser):
    """What matters of one page: ids, links, addresses it loads,
    pictures, plain scripts.
    """

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.loads, self.bare, self.inside = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        """Note ids, links and what the element loads."""
        a, line = dict(attrs), self.getpos()[0]
        if "id" in a:
            self.ids.append(a["id"])
        for name, value in attrs:
            if value and (name in LOADS or name == "href" and tag != "a"):
                self.loads.append((f"<{tag} {name}>", value, line))
            if value and name == "style":
                self.loads += [(f"<{tag} style>", u, line) for u in urls(value)]
        if tag == "a" and a.get("href"):
            self.links.append(Link(a["href"], line))
        hidden = a.get("aria-hidden") == "true"
        if tag == "img" and not (a.get("alt") or "").strip() and not hidden:
            self.bare.append((f"<img src={a.get('src')!r}> has no alt text", line))
        if (
            tag == "svg"
            and not hidden
            and not (a.get("role") == "img" and (a.get("aria-label") or "").strip())
        ):
            self.bare.append(("<svg> has no role=img with aria-label", line))
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        """Leave the element."""
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data):
        """Note what style sheets and scripts load."""
        if self.inside[-1:] == ["style"]:
            self.loads += [("<style>", u, self.getpos()[0]) for u in urls(data)]
        elif self.inside[-1:] == ["script"]:
            # names of XML dialects, never fetched
            bare = re.sub(r"https?://www\.w3\.org/[\w/#.-]*", "", data)
            self.loads += [
                ("<script>", u, self.getpos()[0])
                for u in re.findall(r"(?:https?:|wss?:)//[^\s'\"`)]+", bare)
            ]


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
            f"{root} holds no page: build the book first, with python -m "
            "repro.bookbuild"
        )
    sources = [f for f in files if "_static" not in f.relative_to(root).parts]
    pages = {f: Page(f.read_text(encoding="utf-8")) for f in sources}
    found = []
    for path, page in pages.items():
        at = path.relative_to(root).as_posix()
        found += [
            f"{at}:{line}: {where} loads {value[:90]} from another host"
            for where, value, line in page.loads
            if remote(value)
        ]
        found += [f"{at}:{line}: {what}" for what, line in page.bare]
        found += [
            f"{at}: the id {i!r} is used {page.ids.count(i)} times"
            for i in sorted(set(page.ids))
            if page.ids.count(i) > 1
        ]
        limit = HEAVY_PAGES.get(at, HEAVY)
        if path.stat().st_size > limit:
            found.append(f"{at}: {path.stat().st_size:,} bytes, more than {limit:,}")
        found += [
            f"{at}:{link.line}: {complaint}"
            for link in page.links
            if (complaint := lost(root, path, pages, link.to))
        ]
    for sheet in sorted(root.glob("_static/**/*.css")):
        found += [
            f"{sheet.relative_to(root).as_posix()}: loads {u} from another host"
            for u in urls(
                re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.S)
            )
            if remote(u)
        ]
    for script in (path for own in OWN for path in sorted(root.glob(own))):
        text = script.read_text(encoding="utf-8")
        text = text.replace("http://www.w3.org/2000/svg", "")
        found += [
            f"{script.relative_to(root).as_posix()}: names {u}"
            for u in re.findall(r"https?://[^\s'\"`]+", text)
        ]
    return found


def lost(root, path, pages, address):
    """What is wrong with a link to this book, or None;
    links to other hosts are not followed.
    """
    part = urlsplit(address)
    if part.scheme or part.netloc or address == "#":
        return None
    target = (path.parent / unquote(part.path)).resolve() if part.path else path
    target = target / "index.html" if target.is_dir() else target
    if not target.exists():
        return f"the link {address!r} leads to no file"
    name = unquote(part.fragment)
    if (
        name
        and not name.startswith("?")
        and target in pages
        and name not in pages[target].ids
    ):
        return (
            f"the link {address!r} leads to no place on "
            f"{target.relative_to(root).as_posix()}"
        )
    return None


def main(argv=None) -> int:
    """Print what is wrong with the pages; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m repro.bookcheck", description=(__doc__ or "").split("\n\n")[2]
    )
    parser.add_argument(
        "folder",
        nargs="?",
        default="book/_build/html",
        help="the built pages (book/_build/html)",
    )
    args = parser.parse_args(argv)
    try:
        found = check(args.folder)
    except FileNotFoundError as problem:
        print(problem, file=sys.stderr)
        return 1
    print(
        "\n".join(found) or f"{args.folder}: nothing to complain about",
        file=sys.stderr if found else sys.stdout,
    )
    return bool(found)


if __name__ == "__main__":
    ends.program("python -m repro.bookcheck", main)
