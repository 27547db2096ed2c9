"""Check a built book; run by the stage book of dvc.yaml.

    python -m repro.bookcheck book/_build/html

It says, page by page, what a reader would stumble over, and fails if there is anything:
a link that leads nowhere, an id used twice, a picture without a description, a file
from another host; a page, a site or words beyond MOST. What loads and moves is looked
at in a browser (repro.browse).
"""

import gzip
import re
import sys
from base64 import b64decode
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from html import unescape
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from fedlib.cli.program import program

VALUE = r"""(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?"""
WORD = re.compile(rf"""([^\s"'>/=]+){VALUE}""")
TAG = re.compile(rf"""<([a-zA-Z][\w-]*)((?:\s+[^\s"'>/=]+{VALUE})*)\s*/?>""")
LOOKED_AT = re.compile(r"\b(?:id|src|href)\s*=")
MOST = {"words to read": 110_000, "MB": 25}  # of all pages; of the site
HEAVY = 1_000_000  # bytes of a page, what it loads apart
# not read: what stands around a page; code; letters of pictures; later slides
UNREAD = r"""(?s)^.*?<article[^>]*>|</article.*|<(script|style|svg|pre)\b.*?</\1>
|<section class="slide">.*?</section>|<span class="visually-hidden.*?</span>"""
# later rows of a table, a <details>, a box to open; last what is none of them
INSIDE = r"((?:(?!</?(?:details|div)\b).)*)"
FOLDED = rf"""(?s)(<tbody>(?:(?:(?!</t[rb]).)*</tr>){{5}})(?:(?!</table).)*</table>
<details[^>]*>|<details(?![^>]*\sopen)[^>]*>\s*(<summary(?:(?!</summary).)*)?{INSIDE}
</details>
|<div class="(?:[^"]* )?dropdown[^>]*>{INSIDE}</div>
|<(details|div)\b[^>]*>{INSIDE}</\5>"""
WITHIN = r"</?(?:a|span|code|em|strong|b|i|small|sub|sup|label|input)\b[^>]*>"
REMOTE = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:)?//", re.I)


class Page(NamedTuple):
    """{id: how often}; links (to, line); faults (what, line); words to read."""

    ids: Counter
    links: list
    faults: list
    words: int


def read(file):
    """The Page of a file; by a pattern, as books have a hundred megabytes."""
    text = file.read_text("utf-8")
    page, line, seen = Page(Counter(), [], [], to_read(text)), 1, 0
    text += rows_of(file)
    for found in TAG.finditer(text):
        tag, words = found[1].lower(), found[2]
        if not (tag in ("a", "img", "svg") or LOOKED_AT.search(words)):
            continue
        line, seen = line + text.count("\n", seen, found.start()), found.start()
        has = {k: unescape(v.strip("\"' ")).strip() for k, v in WORD.findall(words)}
        page.ids.update([has["id"]] if has.get("id") else [])
        if tag == "a":
            page.links.extend([(has["href"], line)] if has.get("href") else [])
        elif far := [u for k in ("src", "href") if REMOTE.match(u := has.get(k, ""))]:
            what = f"<{tag}> loads {far[0][:90]} from another host"
            page.faults.append((what, line))
        named = has.get("role") == "img" and has.get("aria-label")
        bare = tag == "svg" and not named or tag == "img" and not has.get("alt")
        if bare and has.get("aria-hidden") != "true":
            page.faults.append((f"<{tag}> has no description", line))
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
    with ProcessPoolExecutor() as pool:
        pages = dict(zip(files, pool.map(read, files, chunksize=4)))
    called = lambda path: path.relative_to(root).as_posix()
    sizes = (f.stat().st_size for f in root.rglob("*.*"))
    all_in = sum(p.words for p in pages.values()), sum(sizes) / 1e6
    most = zip(all_in, MOST.items())
    many = [f"{n:,.0f} {what}, more than {m:,}" for n, (what, m) in most if n > m]
    return many + [f"{called(p)}{what}" for p in pages for what in of_page(p, pages)]


def to_read(text):
    """How many words of a page stand there before anything is opened."""
    text, more = re.sub(UNREAD.replace("\n", ""), "", text), 1
    while more:  # from the inside out
        text, more = re.subn(FOLDED.replace("\n", ""), r" \1\2\6 ", text)
    return len(re.sub("<[^>]*>", " ", re.sub(WITHIN, "", text)).split())


def rows_of(page):
    """What of a page stands in files of its own."""
    files = sorted((page.parent / "_static/rows").glob(f"{page.stem}.*.js"))
    packed = (b64decode(f.read_text("utf-8")[8:-1]) for f in files)
    return "".join(gzip.decompress(p).decode() for p in packed)


def of_page(path, pages):
    """What is wrong with a page, as ":line: what"."""
    page = pages[path]
    if (size := path.stat().st_size) > HEAVY:
        yield f": {size:,} bytes, more than {HEAVY:,}"
    yield from (f":{line}: {what}" for what, line in page.faults)
    for name, n in sorted(page.ids.items()):
        if n > 1:
            yield f": the id {name!r} is used {n} times"
    for to, line in {to: line for to, line in reversed(page.links)}.items():
        if what := lost(path, pages, to):
            yield f":{line}: the link {to!r} leads to {what}"


@cache
def found(folder, name):
    """The file that a link in a folder names; None: there is none."""
    target = (folder / name).resolve()
    target = target / "index.html" if target.is_dir() else target
    return target if target.exists() else None


def lost(path, pages, address):
    """Where a link to this book leads, if that is nowhere."""
    part = urlsplit(address)
    if part.scheme or part.netloc or address == "#":
        return None
    target = found(path.parent, unquote(part.path)) if part.path else path
    if not target:
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
