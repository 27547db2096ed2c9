"""Open the pages of a built book in a browser; run by `make browse`.

    python -m repro.browse book/_build/html
    python -m repro.browse book/_build/html one_round.html

Where repro.bookcheck reads the files, this looks at what becomes of them: wide and on a
phone, light and dark, on the screen and in print. It says, page by page, what a reader
would stumble over, and fails if there is anything: an error of a script, a file that is
missing or comes from another host, a page that scrolls sideways, what axe-core calls
a serious or critical barrier, a page that is too heavy, print that fails.

It needs Chromium and no net. Where there is none it says so and passes. The pages share
one browser and load once each: it changes size, looks and medium. All pages would take
long, so of the notebooks, whose pages are made alike, one per folder is opened, unless
--all asks for the others or they are named; a chapter takes seven to eighteen seconds
on a busy machine of two cores.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from fedlib.cli.program import program

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
WIDE = {"width": 1300, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE = 60_000  # milliseconds for one page
HEAVY = 9_000_000  # bytes of everything that a page loads
BARRIERS = ("serious", "critical")
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa"]}
CONTRAST = {"type": "rule", "values": ["color-contrast"]}
CHAPTER = "main .admonition.opening"
# Formulas are set after the page has loaded; colours must not be caught half-way.
SETTLED = """async () => {
  if (window.MathJax?.startup?.promise) await window.MathJax.startup.promise
  await document.fonts.ready
  const still = document.createElement("style")
  still.textContent = "* { transition: none !important; animation: none !important }"
  document.head.append(still)
}"""
# What sticks out of the page and is not cut off or scrolled by something around it.
SIDEWAYS = """() => {
  const root = document.scrollingElement, width = root.clientWidth
  if (root.scrollWidth <= width + 1) return null
  const drawer = e => getComputedStyle(e).position === "fixed"
  const held = e => {
    if (drawer(e)) return true
    for (e = e.parentElement; e && e !== document.body; e = e.parentElement)
      if (getComputedStyle(e).overflowX !== "visible" || drawer(e)) return true
  }
  const wide = [...document.querySelectorAll("body *")].find(e =>
    e.getBoundingClientRect().right + scrollX > width + 1 && !held(e))
  const name = wide && wide.tagName.toLowerCase() + (wide.id && "#" + wide.id) +
    [...wide.classList].map(c => "." + c).join("")
  return `${root.scrollWidth} px wide on a screen of ${width}: ` +
    (wide ? `<${name}>` : "a long word")
}"""
# A drawing has one name as a whole (repro.bookcheck sees to it), and the rows of a long
# table are made alike: the rest would only cost axe-core time.
SHORTER = """() => document.querySelectorAll(
  "svg > :not(title), tbody > tr:nth-child(n + 40)").forEach(e => e.remove())"""
DARK = """() => Object.assign(
  document.documentElement.dataset, {theme: "dark", mode: "dark"})"""


# Barriers that are not ours to take away: rule -> (where they stand, found in an
# element's selector or HTML; why they stay).
EXCEPTED = {
    "definition-list": (
        r"^.*?<dl>",
        "Sphinx sets a signature of several lines as <dl> with <dd> alone (api.html)",
    ),
    "aria-required-children": (
        "citation-list",
        "docutils puts doc-biblioentry into a list, older rules want listitem",
    ),
}
# Errors of scripts that are not ours, by a part of what they say, and why they stay.
THEIRS = {
    # looks for the list of contents on the right, which some pages do not have, to
    # hide it behind a wide figure: nothing is there to be hidden
    "_static/scripts/sphinx-book-theme.js"
}


def chromium() -> str | None:
    """The browser of this machine."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def lacking() -> str | None:
    """What is missing here to look at pages, and how one gets it."""
    if not find_spec("playwright") or not find_spec("axe_playwright_python"):
        return "playwright or its axe is not installed: pip install -e '.[test]'"
    none = f"no browser ({', '.join(BROWSERS)}) on the PATH: apt-get install chromium"
    return None if chromium() else none


def pages(root: Path, wanted: Sequence[str], every: bool) -> list[Path]:
    """The pages of the book, or those that are wanted; of notebooks, the first of
    every folder, if not `every` one.
    """
    files = sorted({*root.rglob("*.html")} - {*root.rglob("_static/**/*.html")})
    first = {f.parent: f for f in reversed(files)}.values()
    notebook = lambda f: f.relative_to(root).parts[0] == "notebooks"
    some = [f for f in files if every or f in first or not notebook(f)]
    found = [root / name for name in wanted] or some or [root / "index.html"]
    if missing := [str(path) for path in found if not path.is_file()]:
        raise FileNotFoundError(f"no such page: {', '.join(missing)}")
    return found


def local(address: str) -> Path | None:
    """The file that a page asked for; None if it is none."""
    part = urlsplit(address)
    return Path(unquote(part.path)) if part.scheme == "file" else None


def barriers(axe, page, rules: dict, looks: str) -> Iterator[str]:
    """What axe-core complains about, rule by rule, exceptions apart."""
    options = {"runOnly": rules, "resultTypes": ["violations"], "preload": False}
    for rule in axe.run(page, options=options).response["violations"]:
        known, _ = EXCEPTED.get(rule["id"], ("(?!)", ""))
        own = lambda node: not re.search(known, f"{node['target']} {node['html']}")  # noqa: B023
        places = [*filter(own, rule["nodes"])]
        if rule["impact"] in BARRIERS and places:
            first, n = places[0], len(places)
            what = " ".join(first["failureSummary"].split("\n")[1:2]).strip()
            where = f"{n} times, such as {first['html'][:160]!r}: {what[:200]}"
            yield f"{rule['id']} ({rule['impact']}, {looks}), {where}"


def look(context, axe, path: Path) -> Iterator[str]:
    """Every complaint about one page."""
    from playwright.sync_api import Error

    page, said, asked, lost = context.new_page(), [], set(), set()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda e: said.append(e.stack or str(e)))
    page.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
    page.on("request", lambda r: asked.add(r.url))
    page.on("requestfailed", lambda r: lost.add(r.url))
    try:
        page.goto(path.as_uri(), wait_until="load")
        page.evaluate(SETTLED)
        files = {f for url in asked if (f := local(url)) and f.is_file()}
        page.set_viewport_size(PHONE)
        if wide := page.evaluate(SIDEWAYS):
            yield wide
        page.set_viewport_size(WIDE)
        if page.query_selector(CHAPTER):
            if not re.search(rb"/Type\s*/Page\b", page.pdf(format="A4")):
                yield "print gives no page"
        page.evaluate(SHORTER)
        yield from barriers(axe, page, RULES, "light")
        page.emulate_media(color_scheme="dark")
        page.evaluate(DARK)
        yield from barriers(axe, page, CONTRAST, "dark")
    except Error as problem:
        yield f"the browser gave up: {problem.message.splitlines()[0]}"
        files = set()
    finally:
        page.close()
    remote = {u for u in asked if urlsplit(u).scheme not in ("file", "data", "blob")}
    yield from (f"asks another host for {url}" for url in sorted(remote))
    yield from (f"asks in vain for {url}" for url in sorted(lost - remote))
    for text in dict.fromkeys(said):
        said_above = "Failed to load resource" in text  # without the address
        if not said_above and not any(part in text for part in THEIRS):
            yield f"a script complains: {text[:200]}"
    if (size := sum(f.stat().st_size for f in files)) > HEAVY:
        yield f"loads {size:,} bytes, more than {HEAVY:,}"


def browse(root: str | Path, wanted: Sequence[str] = (), every=False) -> Iterator[str]:
    """Every complaint about the book built in folder `root`, as "page: what", as soon
    as its page has been looked at.
    """
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import sync_playwright

    root = Path(root).resolve()
    axe, paths = Axe(), pages(root, wanted, every)
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        context = browser.new_context(
            viewport=WIDE, color_scheme="light", reduced_motion="reduce"
        )
        context.set_offline(True)
        for path in paths:
            at = path.relative_to(root).as_posix()
            for what in look(context, axe, path):
                yield f"{at}: {what}"
        browser.close()


def main(folder="book/_build/html", *page, all: bool = False):
    """Print what is wrong with the built pages of a folder; the exit status.

    page: only these, such as one_round.html
    all: every notebook, not one per folder
    """
    if lack := lacking():
        return print(f"Not looked at in a browser: {lack}", file=sys.stderr)
    found = 0
    for found, what in enumerate(browse(folder, page, all), 1):  # noqa: B007
        print(what, file=sys.stderr, flush=True)
    print(f"{folder}: {found} complaints")
    return int(found > 0)


if __name__ == "__main__":
    program(main)
