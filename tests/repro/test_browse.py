"""The look at a built book in a browser: one defect per page, and each is found."""

import pytest

from repro import browse

FINE = """<!doctype html><html lang="en"><head><title>Fine</title>
<meta name="viewport" content="width=device-width"></head>
<body><main><h1>Fine</h1><p>One round.</p>{}</main></body></html>"""

# what a page has beside a fine one, and the words that complain about it
DEFECTS = {
    "error": (
        "<script>nowhere()</script>",
        "a script complains: ReferenceError: nowhere is not",
    ),
    "console": ("<script>console.error('lost')</script>", "a script complains: lost"),
    "remote": (
        '<img alt="a" src="https://example.org/a.png">',
        "asks another host for https://example.org/a.png",
    ),
    "missing": ('<img alt="a" src="gone.png">', "asks in vain for file:"),
    "wide": (
        '<p id="broad" style="width: 500px">wide</p>',
        "px wide on a screen of 390: <p#broad>",
    ),
    "word": (f"<p>{'x' * 80}</p>", "px wide on a screen of 390: a long word"),
    "alt": ('<img src="dot.svg">', "image-alt (critical, light)"),
    "button": ("<button></button>", "button-name (critical, light)"),
    "contrast": (
        "<style>:root:not([data-theme=dark]) p { color: #aaa }</style>",
        "color-contrast (serious, light)",
    ),
    "dark": (
        "<style>[data-theme=dark] p { color: #333; background: #222 }</style>",
        "color-contrast (serious, dark)",
    ),
    "heavy": ('<img alt="a" src="big.svg">', f"more than {browse.HEAVY:,}"),
    "blank": (
        '<div class="admonition opening">Goals</div>'
        "<style>@media print { main { break-before: page; display: block } "
        "body::before { content: ''; display: block; height: 1px } }</style>",
        "the first printed page is empty",
    ),
}
DOT = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><!--{}--></svg>'


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What is said about each page of a small book."""
    if lack := browse.lacking():
        pytest.skip(lack)
    book = tmp_path_factory.mktemp("book")
    (book / "dot.svg").write_text(DOT.format(""))
    (book / "big.svg").write_text(DOT.format("x" * browse.HEAVY))
    scroll = '<pre tabindex="0" style="overflow-x: auto">' + "x" * 300 + "</pre>"
    opening = '<div class="admonition opening">Goals</div>'
    (book / "fine.html").write_text(FINE.format(scroll + opening))
    for name, (defect, _) in DEFECTS.items():
        (book / f"{name}.html").write_text(FINE.format(defect))
    notebooks = book / "notebooks/labs"
    notebooks.mkdir(parents=True)
    for name in "ab":
        (notebooks / f"{name}.html").write_text(FINE.format("<button></button>"))
    return list(browse.browse(book))


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_named_and_nothing_else(found, name):
    said = [line for line in found if line.startswith(f"{name}.html: ")]
    assert len(said) == 1 and DEFECTS[name][1] in said[0]


def test_a_fine_page_is_passed(found):
    assert not [line for line in found if line.startswith("fine.html")]


def test_one_notebook_per_folder_is_opened(found):
    said = [line for line in found if line.startswith("notebooks/")]
    assert len(said) == 1 and said[0].startswith("notebooks/labs/a.html: button-name")


def test_exceptions_hold_for_their_rule_and_place_alone(monkeypatch, tmp_path):
    if lack := browse.lacking():
        pytest.skip(lack)
    theirs = '<button class="theirs"></button>'
    (known,) = browse.THEIRS
    script = tmp_path / known
    script.parent.mkdir(parents=True)
    script.write_text("nowhere()")
    theirs += f'<script src="{known}"></script>'
    (tmp_path / "a.html").write_text(FINE.format(theirs))
    (tmp_path / "b.html").write_text(FINE.format(theirs + "<button></button>"))
    excepted = browse.Excepted("button-name", r"\btheirs\b", "the theme's")
    monkeypatch.setattr(browse, "EXCEPTED", (excepted,))
    (said,) = browse.browse(tmp_path)
    assert said.startswith("b.html: button-name (critical, light), 1 times")


def test_pages_named_are_opened_and_must_exist(tmp_path):
    (tmp_path / "a.html").write_text("a")
    (tmp_path / "b.html").write_text("b")
    assert browse.pages(tmp_path, ["b.html"], False) == [tmp_path / "b.html"]
    with pytest.raises(FileNotFoundError, match="c.html"):
        browse.pages(tmp_path, ["c.html"], False)
    with pytest.raises(FileNotFoundError, match="holds no page"):
        browse.pages(tmp_path / "nothing", [], False)


def test_without_a_browser_it_says_so_and_passes(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert browse.main(["anywhere"]) == 0
    assert "apt-get install chromium" in capsys.readouterr().err
    assert browse.main(["anywhere", "--must"]) == 1


def test_an_empty_sheet_has_no_text():
    assert browse.sheets(b"<</Type /Page>> <</Type /Pages>> <</Type/Page\n>>") == 2
    assert not browse.has_text(b"stream\nnonsense\nendstream")
