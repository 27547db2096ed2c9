"""The interactive pieces of the book in Chromium print the library's numbers. For the
browser step of CI and for the night; FIGURES names the pictures that notebooks have
drawn there, with what pieces know from them.
"""

import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from toys_book import BOOK, extension
from where import ROOT

from fedlib.measures import metrics
from fedlib.methods import METHODS
from repro import browse

pytestmark = pytest.mark.nightly
FIGURES = Path(os.environ.get("FIGURES", ROOT / "results/figures"))
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>x</title>
<meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="{assets}/fedbook.css">
<link rel="stylesheet" href="{assets}/play/play.css">
<script defer src="{assets}/play/play.js"></script>
<script defer src="{assets}/play/{name}.js"></script>{others}
<style>* {{ box-sizing: border-box }} .visually-hidden {{ position: absolute; width: 1px;
height: 1px; overflow: hidden; clip: rect(0 0 0 0) }}</style></head><body>
<figure class="fedfig">{markup}</figure></body></html>"""
NAMES = {p.stem for p in (BOOK / "_assets/play").glob("*.js")} - {"play"}


@pytest.fixture(scope="module")
def chromium():
    if lack := browse.lacking():
        pytest.skip(lack)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        yield play.chromium.launch(
            executable_path=browse.chromium(), args=list(browse.FLAGS)
        )


@pytest.fixture
def piece(chromium, tmp_path):
    """name -> a page with the piece, ready; no script may have complained at the end."""
    opened, told = [], []

    def open_page(name, width=1000, **context):
        drawn = sorted(FIGURES.rglob(f"play-{name}.svg"))
        if not drawn:
            pytest.skip(f"no notebook has drawn play-{name}.svg")
        meta = json.loads(drawn[0].with_suffix(".json").read_text("utf-8"))
        meta.setdefault("play", {})
        markup = extension("fedplay").markup(name, drawn[0].read_text("utf-8"), meta)
        scripts = (p.as_uri() for p in sorted((BOOK / "_assets").glob("*.js")))
        others = "".join(f'<script defer src="{uri}"></script>' for uri in scripts)
        assets = (BOOK / "_assets").as_uri()
        html = PAGE.format(name=name, others=others, markup=markup, assets=assets)
        (tmp_path / f"{name}.html").write_text(html, "utf-8")
        size = {"width": width, "height": 1000}
        page = chromium.new_context(viewport=size, offline=True, **context).new_page()
        page.on("pageerror", lambda e: told.append(f"{name}: {e}"))
        page.goto((tmp_path / f"{name}.html").as_uri())
        opened.append(page)
        if context.get("java_script_enabled", True):
            page.wait_for_selector(".stage[data-ready]", state="attached")
        return page

    yield open_page
    assert not told
    for page in opened:
        page.context.close()


def rows(page):
    """{first cell: the other cells} of the table of numbers, with plain minus signs."""
    lines = page.locator(".play table").first.locator("tbody tr").all()
    cells = [r.locator("th, td").all_inner_texts() for r in lines]
    plain = lambda t: re.sub(r"\s+", " ", t.replace("\u2212", "-")).strip()
    return {plain(first): [*map(plain, rest)] for first, *rest in cells}


def slider(page, label):
    return page.get_by_role("slider", name=label, exact=True)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_piece_gives_way_in_print_and_on_a_phone(piece, name):
    page = piece(name)
    assert page.locator(".stage").is_visible()
    assert not page.locator(".still").is_visible()
    page.emulate_media(media="print")
    assert page.locator(".still svg").is_visible()
    bare = piece(name, java_script_enabled=False)
    assert bare.locator(".still svg").is_visible()
    phone = piece(name, width=390)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    for node in phone.get_by_role("slider").all():
        assert node.get_attribute("aria-valuetext")


def test_pieces_print_what_fedlib_computes(piece):
    page = piece("lorenz")
    slider(page, "accuracy of client 1").focus()
    for _ in range(7):
        page.keyboard.press("ArrowUp")
    a = np.array([0.47, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35])
    want = {"mean": metrics.mean_acc(a), "standard deviation": metrics.std_acc(a)}
    want |= {"worst 10 %": metrics.worst(a), "Gini": metrics.gini(a)}
    for name, value in (want | {"Jain": metrics.jain(a)}).items():
        assert rows(page)[name] == [f"{value:.3f}"], name
    page = piece("alpha")
    slider(page, "α").fill("7.5")
    p = METHODS["FedGA"](alpha=7.5).fair(torch.tensor([1, 0.5, 0]).double())
    for i in range(3):
        assert rows(page)[f"weight of client {i + 1}"][2] == f"{p[i]:.3f}"
