"""The interactive pieces of the book in Chromium print the library's numbers. For the
browser step of CI and for the night; FIGURES names the pictures that notebooks have
drawn there, with what pieces know from them.
"""

import json
import os
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


@pytest.fixture
def piece(tmp_path):
    """name -> a page with the piece, ready; no script may have complained at the end."""
    if lack := browse.lacking():
        pytest.skip(lack)
    from playwright.sync_api import sync_playwright

    told = []

    def open_page(name):
        drawn = sorted(FIGURES.rglob(f"play-{name}.svg"))
        if not drawn:
            pytest.skip(f"no notebook has drawn play-{name}.svg")
        meta = json.loads(drawn[0].with_suffix(".json").read_text("utf-8"))
        meta.setdefault("play", {})
        markup = extension("fedplay").markup(name, drawn[0].read_text("utf-8"), meta)
        html = f'<!DOCTYPE html><html><meta charset="utf-8">{markup}'
        for js in ("play/play.js", f"play/{name}.js"):
            html += f'<script defer src="{(BOOK / "_assets" / js).as_uri()}"></script>'
        path = tmp_path / f"{name}.html"
        path.write_text(html)
        page = chromium.new_context(offline=True).new_page()
        page.on("pageerror", lambda e: told.append(f"{name}: {e}"))
        page.goto(path.as_uri())
        page.wait_for_selector(".stage[data-ready]", state="attached")
        return page

    with sync_playwright() as play:
        flags = dict(executable_path=browse.chromium(), args=list(browse.FLAGS))
        chromium = play.chromium.launch(**flags)
        yield open_page
    assert not told


def test_pieces_print_what_fedlib_computes(piece):
    row = lambda page, name: page.get_by_role("row", name=name).locator("td")
    slider = lambda page, name: page.get_by_role("slider", name=name, exact=True)
    page = piece("lorenz")
    slider(page, "accuracy of client 1").focus()
    for _ in range(7):
        page.keyboard.press("ArrowUp")
    a = np.array([0.47, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35])
    want = {"mean": metrics.mean_acc(a), "standard deviation": metrics.std_acc(a)}
    want |= {"worst 10 %": metrics.worst(a), "Gini": metrics.gini(a)}
    for name, value in (want | {"Jain": metrics.jain(a)}).items():
        assert row(page, name).all_inner_texts() == [f"{value:.3f}"], name
    page = piece("alpha")
    slider(page, "α").fill("7.5")
    p = METHODS["FedGA"](alpha=7.5).fair(torch.tensor([1, 0.5, 0]).double())
    for i in range(3):
        told = row(page, f"weight of client {i + 1}").all_inner_texts()
        assert told[2] == f"{p[i]:.3f}"
