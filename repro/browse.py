"""Open the pages of a built book in a browser; run by `make browse`.

    python -m repro.browse book/_build/html
    python -m repro.browse book/_build/html one_round.html

Where repro.bookcheck reads the files, this looks at what becomes of them: wide and on a
phone, light and dark. It says, page by page, what a reader
would stumble over, and fails if there is anything: an error of a script, a file that is
missing or comes from another host, a page that scrolls sideways or does not list its
sections, letters of a figure that are tiny on a phone or lie on one another, what
axe-core calls a serious or critical barrier, a page that is too heavy.

It needs Chromium and no net. Where there is none it says so and passes. The pages share
one browser and load once each: it changes size and looks. A chapter takes seven
to eighteen seconds on a busy machine of two cores.
"""

import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
# Barriers that are not ours to take away: rule -> what stands in an element's selector
# or HTML. Sphinx sets a signature of several lines as <dl> with <dd> alone (api.html);
# docutils puts doc-biblioentry into a list, older rules want listitem.
EXCEPTED = {"definition-list": "^.*?<dl>", "aria-required-children": "citation-list"}


def chromium() -> str | None:
    """The browser of this machine."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def lacking() -> str | None:
    """What is missing here to look at pages, and how one gets it."""
    if not find_spec("playwright") or not find_spec("axe_playwright_python"):
        return "playwright or its axe is not installed: pip install -e '.[test]'"
    none = f"no browser ({', '.join(BROWSERS)}) on the PATH: apt-get install chromium"
    return None if chromium() else none


@contextmanager
def opened():
    """A browser without a net; every page has the functions of browse.js."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        how = {"viewport": WIDE, "color_scheme": "light", "reduced_motion": "reduce"}
        context = browser.new_context(**how)
        context.set_offline(True)
        context.add_init_script(path=Path(__file__).with_suffix(".js"))
        yield context
        browser.close()


def pages(root: Path, wanted: Sequence[str]) -> list[Path]:
    """The pages of the book, or those that are wanted."""
    first = root / "index.html"  # leads to the cover at once
    files = {*root.rglob("*.html")} - {*root.rglob("_static/**/*.html"), first}
    found = [root / name for name in wanted] or sorted(files) or [first]
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
        known = EXCEPTED.get(rule["id"], "(?!)")
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
        page.evaluate("asked.settled()")
        files = {f for url in asked if (f := local(url)) and f.is_file()}
        page.set_viewport_size(PHONE)
        yield from page.evaluate(
            "[...asked.sideways(), ...asked.letters(), ...asked.contents()]"
        )
        page.set_viewport_size(WIDE)
        page.evaluate("asked.shorter()")
        yield from barriers(axe, page, RULES, "light")
        page.emulate_media(color_scheme="dark")
        page.evaluate("asked.dark()")
        yield from barriers(axe, page, CONTRAST, "dark")
    except Error as problem:
        yield f"the browser gave up: {problem.message.splitlines()[0]}"
        files = set()
    finally:
        page.close()
    yield from (f"asks in vain for {url}" for url in sorted(lost))
    for text in dict.fromkeys(said):
        if "Failed to load resource" not in text:  # said above, with the address
            yield f"a script complains: {text[:200]}"
    if (size := sum(f.stat().st_size for f in files)) > HEAVY:
        yield f"loads {size:,} bytes, more than {HEAVY:,}"


def browse(root: str | Path, wanted: Sequence[str] = ()) -> Iterator[str]:
    """Every complaint about the book built in folder `root`, as "page: what", as soon
    as its page has been looked at."""
    from axe_playwright_python.sync_playwright import Axe

    root = Path(root).resolve()
    axe, paths = Axe(), pages(root, wanted)
    with opened() as context:
        for path in paths:
            at = path.relative_to(root).as_posix()
            for what in look(context, axe, path):
                yield f"{at}: {what}"


def main(folder="book/_build/html", *page):
    """Print what is wrong with the built pages of a folder; the exit status.

    page: only these, such as one_round.html"""
    if lack := lacking():
        return print(f"Not looked at in a browser: {lack}", file=sys.stderr)
    found = 0
    for found, what in enumerate(browse(folder, page), 1):  # noqa: B007
        print(what, file=sys.stderr, flush=True)
    print(f"{folder}: {found} complaints")
    return int(found > 0)


if __name__ == "__main__":
    program(main)
