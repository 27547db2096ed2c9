"""The interactive pieces of the book in Chromium print the library's numbers. For the
browser step of CI and the night; FIGURES: where notebooks have drawn their pictures.
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
from fedlib.plots import inline
from repro import browse

FIGURES = Path(os.environ.get("FIGURES", ROOT / "results/figures"))


def opened(browser, name, path):
    """A page with a piece, ready."""
    (drawn,) = [*FIGURES.rglob(f"play-{name}.svg")]
    meta = json.loads(drawn.with_suffix(".json").read_text("utf-8"))
    picture = inline(drawn.read_text("utf-8"), name, meta["alt"])
    known = extension("fedfig").script(meta.get("play", {}))
    macros = extension("fedbook").macros("fedfig")
    html = str(macros.play(None, name, picture, meta, known))
    for js in ("play.js", f"{name}.js"):
        uri = (BOOK / "_assets/play" / js).as_uri()
        html += f'<script defer src="{uri}"></script>'
    path.write_text(f'<!DOCTYPE html><meta charset="utf-8"><body>{html}')
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector(".stage[data-ready]", state="attached")
    return page


@pytest.mark.nightly
def test_pieces_print_what_fedlib_computes(tmp_path):
    if browse.lacking() or not [*FIGURES.rglob("play-*.svg")]:
        pytest.skip("no browser, or no notebook has drawn a piece")
    from playwright.sync_api import sync_playwright

    row = lambda p, n: p.get_by_role("row", name=n).locator("td").all_inner_texts()
    slider = lambda page, name: page.get_by_role("slider", name=name, exact=True)
    with sync_playwright() as play:
        flags = dict(executable_path=browse.chromium(), args=list(browse.FLAGS))
        browser = play.chromium.launch(**flags)
        page = opened(browser, "lorenz", tmp_path / "a.html")
        slider(page, "accuracy of client 1").focus()
        for _ in range(7):
            page.keyboard.press("ArrowUp")
        a = np.array([0.47, 0.25, 0.5, 0.15, 0.45, 0.3, 0.4, 0.35])
        want = {"mean": metrics.mean_acc(a), "standard deviation": metrics.std_acc(a)}
        want |= {"worst 10 %": metrics.worst(a), "Gini": metrics.gini(a)}
        for name, value in (want | {"Jain": metrics.jain(a)}).items():
            assert row(page, name) == [f"{value:.3f}"], name
        page = opened(browser, "alpha", tmp_path / "b.html")
        slider(page, "α").fill("7.5")
        p = METHODS["FedGA"](alpha=7.5).fair(torch.tensor([1, 0.5, 0]).double())
        for i in range(3):
            assert row(page, f"weight of client {i + 1}")[2] == f"{p[i]:.3f}"
