"""One interactive piece of the book on a page of its own, in a real browser.

    from play import browser, piece  # fixtures

    def test_it(piece):
        lorenz = piece("lorenz")
        lorenz.keys("accuracy of client 1", "ArrowUp", times=10)
        assert lorenz.rows()["mean"] == ["0.363"]

The page is what the directive {play} writes and what Sphinx would load; nothing is
built. The browser is Chromium; without it, or without Playwright, the tests are skipped.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from where import ROOT

from fedlib import plots

# where the notebooks have drawn; .ci/run names those of tier tiny
FIGURES = Path(os.environ.get("FIGURES", ROOT / "results/figures"))
PAGE = """<!DOCTYPE html>
<html data-theme="{theme}" lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="{assets}/fedbook.css">
<link rel="stylesheet" href="{assets}/play/play.css">
<script defer src="{assets}/play/play.js"></script>
<script defer src="{assets}/play/{name}.js"></script>
{others}
<style>.visually-hidden {{ position: absolute; width: 1px; height: 1px;
  overflow: hidden; clip: rect(0 0 0 0); }}
  * {{ box-sizing: border-box; }}
  html {{ font: 16px/1.5 sans-serif; --pst-font-family-base: sans-serif; }}
  body {{ margin: 0 auto; padding: 10px; max-width: 46rem;
    background: var(--pst-color-background); color: var(--pst-color-text-base); }}
  table {{ border-collapse: collapse; }}</style></head>
<body><figure class="fedfig">{markup}<figcaption>{caption}</figcaption></figure></body>
</html>"""


def directive():
    """The module book/_ext/fedplay.py."""
    if (ext := str(ROOT / "book/_ext")) not in sys.path:
        sys.path.insert(0, ext)
    import fedplay

    return fedplay


def still(name, folder):
    """(SVG text, meta) of a piece's picture: as the notebook drew it, else a blank."""
    drawn = sorted(FIGURES.rglob(f"play-{name}.svg"))
    if not drawn:
        drawn = [picture(folder, name)]
    meta = json.loads(drawn[0].with_suffix(".json").read_text("utf-8"))
    return drawn[0].read_text("utf-8"), meta


def picture(folder, name):
    """A picture of a piece that shows nothing, saved as a notebook saves it; its path."""
    fig, _ = plt.subplots()
    about = dict(data="x, synthetic", tier="exact", seeds="none", stage="x")
    where = dict(notebook="notebooks/teach/play.ipynb", folder=folder)
    words = dict(title=name, alt=f"The picture of {name}")
    return plots.save(fig, f"play-{name}", **words, **about, **where).path


def write(name, folder, theme="light", known=None):
    """A page with the piece `name` in `folder`, its path; known: what the notebook
    would hand to the script.
    """
    text, meta = still(name, folder)
    if known is not None:
        meta["play"] = known
    fedplay = directive()
    path = folder / f"{name}.html"
    # a page may hold a quiz, too: two scripts must not take the same name
    others = sorted((ROOT / "book/_assets").glob("*.js"))
    tags = [f'<script defer src="{script.as_uri()}"></script>' for script in others]
    parts = dict(
        name=name,
        others="\n".join(tags),
        theme=theme,
        assets=(ROOT / "book/_assets").as_uri(),
        markup=fedplay.markup(name, text, meta),
        caption=f"{meta['title']}. Try: {fedplay.PIECES[name]}",
    )
    path.write_text(PAGE.format(**parts), encoding="utf-8")
    return path


class Piece:
    """What a reader does with a piece, and what it prints."""

    def __init__(self, page, name):
        self.page, self.name, self.problems = page, name, []
        page.on("pageerror", lambda e: self.problems.append(str(e)))
        page.on("console", self._note)

    def _note(self, message):
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def control(self, label):
        """A handle or slider by its label."""
        return self.page.get_by_role("slider", name=label, exact=True)

    def value(self, label):
        """Where a handle or slider stands."""
        node = self.control(label)
        now = node.get_attribute("aria-valuenow")
        return float(node.input_value() if now is None else now)

    def keys(self, label, *keys, times=1):
        """Press keys on a handle or slider."""
        self.control(label).focus()
        for key in keys * times:
            self.page.keyboard.press(key)

    def set(self, label, value):
        """Put a slider (<input type=range>) to a value."""
        self.control(label).fill(str(value))

    def drag(self, label, dx, dy):
        """Drag a handle by the mouse, in pixels from its dot."""
        dot = self.control(label).locator(".dot")
        dot.scroll_into_view_if_needed()
        box = dot.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + dx / 2, y + dy / 2)
        self.page.mouse.move(x + dx, y + dy)
        self.page.mouse.up()

    def press(self, text):
        """Press a button."""
        self.page.get_by_role("button", name=text, exact=True).click()

    def choose(self, text):
        """Choose one of several."""
        self.page.get_by_role("radio", name=text, exact=True).check()

    def rows(self, k=0):
        """The k-th table of numbers: {first cell: the other cells}, minus signs plain."""
        table = self.page.locator(".play table").nth(k)
        rows = [r.locator("th, td") for r in table.locator("tbody tr").all()]
        cells = [[plain(t) for t in r.all_inner_texts()] for r in rows]
        return {first: rest for first, *rest in cells}

    def numbers(self, row, k=0):
        """The numbers of a row."""
        return [float(cell) for cell in self.rows(k)[row]]

    def note(self, k=0):
        """The k-th line of text below the picture."""
        return plain(self.page.locator(".play .note").nth(k).inner_text())

    def said(self):
        """What a screen reader is told, once it is."""
        self.page.wait_for_timeout(900)
        return plain(self.page.locator("[aria-live]").inner_text())


def plain(text):
    """True minus signs as hyphens, so that float() reads them; one kind of blank."""
    return re.sub(r"\s+", " ", text.replace("\u2212", "-")).strip()


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window; closed with the module, since while Playwright is open
    its event loop runs and no other can.
    """
    api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium here")
    with api.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def piece(browser, tmp_path):
    """name -> the piece, ready; at the end nothing may have been complained about."""
    opened = []

    def make(name, *, width=1000, height=1000, theme="light", known=None, **context):
        size = {"width": width, "height": height}
        page = browser.new_context(viewport=size, **context).new_page()
        opened.append(Piece(page, name))
        page.goto(write(name, tmp_path, theme, known).as_uri())
        if context.get("java_script_enabled", True):
            page.wait_for_selector(".stage[data-ready]", state="attached")
        return opened[-1]

    yield make
    for one in opened:
        assert not one.problems, f"{one.name} complains: {one.problems}"
        one.page.context.close()


def behaves(piece, name, known=None):
    """What holds for every piece: the picture gives way to it and comes back in print
    and without scripts; no page scrolls sideways on a phone; every control has a name.
    """
    shown = piece(name, known=known)
    assert shown.page.locator(".stage").is_visible()
    assert not shown.page.locator(".still").is_visible()
    shown.page.emulate_media(media="print")
    assert shown.page.locator(".still svg").is_visible()
    assert not shown.page.locator(".stage").is_visible()
    bare = piece(name, known=known, java_script_enabled=False)
    assert bare.page.locator(".still svg").is_visible()
    assert bare.page.locator(".stage").count() == 0
    phone = piece(name, known=known, width=390, theme="dark")
    wide = "document.documentElement.scrollWidth"
    assert phone.page.evaluate(wide) <= 390
    for node in phone.page.get_by_role("slider").all():
        label = node.get_attribute("aria-label") or node.evaluate(
            "n => n.closest('label').querySelector('span').textContent"
        )
        assert label and node.get_attribute("aria-valuetext")
    inside = """[...document.querySelectorAll('.stage > svg')].every(svg =>
      [...svg.querySelectorAll('text')].every(t => {
        const a = t.getBoundingClientRect(), b = svg.getBoundingClientRect();
        return a.left > b.left - 1 && a.right < b.right + 1 && a.top > b.top - 1 &&
          a.bottom < b.bottom + 1; }))"""
    assert phone.page.evaluate(inside), "a label leaves its picture on a phone"
