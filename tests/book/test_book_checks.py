"""The checks of frames, labs and the built book see one defect, and no other."""

import copy
import os
import re
from graphlib import TopologicalSorter
from types import SimpleNamespace

import numpy as np
import pytest
from toys_book import BOOK, course_book, extension, frame, question
from where import ROOT

from repro import bookbuild, bookcheck, browse, course, teach


def changed(place, value):
    """The good frame with another value at a place such as ("quiz", 0, "ask")."""
    whole = inside = copy.deepcopy(frame())
    for part in place[:-1]:
        inside = inside[part]
    inside[place[-1]] = value
    return whole


MISTAKES = [  # place, value, what the complaint names
    (("goal",), [], ["goal", "permitted"]),
    (("goals",), ["a", "b"], ["goals", "2", "3"]),
    (("needs",), ["tow"], ["needs 1", "'two'"]),
    (("quiz", 1, "aks"), "?", ["quiz 2", "aks"]),
    (("quiz", 0, "answers", 1, "right"), True, ["quiz 1", "2", "right"]),
    (("quiz", 2, "answers", 0), {"says": "4", "right": True}, ["quiz 3", "because"]),
    (("quiz", 0, "answers"), frame()["quiz"][0]["answers"][:2], ["quiz 1", "2", "3"]),
    (("reading", 0, "key"), "mcmahan2071", ["reading 1", "'mcmahan2017'"]),
]


def test_a_mistake_in_a_frame_is_named_with_its_place(tmp_path):
    for i, (place, value, named) in enumerate(MISTAKES):
        frames = {"one": changed(place, value), "two": frame(needs=["one"])}
        book = course_book(tmp_path / f"{i}", frames)
        told = "\n".join(course.complaints(book, "one"))
        assert told and not [n for n in named if n not in told], (place, told)
        assert course.complaints(book, "two") == [], place


def test_minutes_and_the_next_chapter(tmp_path):
    read, bare = "word " * 400, frame(takeaways=[], credit=".", reading=[], quiz=[])
    code = f"\n```python\n{read}\n```\n"
    solved = f"\n````{{solution}} ex\n:class: x\n{read}{code}````\n"
    figures, equations = "\n```{fig} x\nword\n```\n" * 4, "\n$$\na\n$$\n" * 3
    tables = "\n| 1 | 2 |\n|---|:-:|\n| 3 | 4 |\n" * 2 + "\n```{source} x\n```\n" * 2
    cases = {"": 2, equations: 3, figures: 4, tables: 4, code: 2, solved: 2}  # 20, 30 s
    for more, minutes in cases.items():
        assert course.minutes_of(read + more, bare) == minutes, more[:20]
    assert course.minutes_of("", bare) == 1
    assert course.minutes_of(read, bare | {"quiz": [question(1)] * 5}) == 2 + 5
    assert course.minutes_of(read, bare | {"takeaways": [read] * 5}) == 12
    pages = {p: frame() for p in ("one", "two", "three", "apart")}
    book = course_book(tmp_path, pages, ["three", "record", "one", "two"])
    after = [course.onward(book, p) for p in ("three", "one", "two", "apart")]
    assert after == ["one", "two", None, None]
    asked = [course.order(question(i)) for i in range(30)]
    right = {next(k for k, a in enumerate(o) if a.get("right")) for o in asked}
    assert right == {0, 1, 2}  # no place of its own


def test_the_book_has_a_frame_a_lab_and_a_solution_for_every_chapter():
    chapters = course.chapters(BOOK)
    planned = [p for week in course.load(BOOK, course.PLAN) for p in week["pages"]]
    assert course.plan_complaints(BOOK) == [] and sorted(planned) == sorted(chapters)
    assert {*chapters} == course.framed(BOOK) and len(chapters) > 15
    needs = {page: course.load(BOOK, page)["needs"] for page in chapters}
    assert [*TopologicalSorter(needs).static_order()]  # an error where they go round
    for page in chapters:
        text = (BOOK / f"{page}.md").read_text("utf-8")
        assert not course.complaints(BOOK, page) and f":label: ex-{page}-class" in text
        for name in ("opening", "takeaways", "quiz", "credit", "onward"):
            n = len(re.findall(rf"(?m)^`{{3,}}\{{{name}\}}$", text))
            assert n == 1, (page, name)
        assert (ROOT / f"notebooks/labs/{page}.ipynb").exists(), page
        assert (BOOK / f"teachers/{page}.md").exists(), page
    for path in [*BOOK.glob("teachers/*.md"), *BOOK.glob("*.md")]:
        for test in re.findall(r"`(tests/[\w/.-]+)", path.read_text("utf-8")):
            assert (ROOT / test).exists(), f"{path.name} names {test}"


FINE = (
    '<p id="a">x</p><a href="#a">a</a> <a href="other.html#b">b</a> <a href="#">t</a>'
    '<a href="https://doi.org/10.1/2">doi</a><a href="ledger.html#?q=x">l</a>'
    '<svg role="img" aria-label="x"></svg><svg aria-hidden="true"></svg>'
    '<a href="sub/">s</a><img src="_static/x.png" alt="x">'
)
BROKEN = {
    '<script src="https://cdn.example.org/x.js"></script>': "<script>",
    '<img src="HTTPS://example.org/x.png" alt="x">': "<img>",
    '<img src="_static/x.png" alt=" ">': "description",
    '<p id="twice"></p><p id="twice"></p>': "'twice'",
    '<a href="nothing.html">x</a>': "nothing.html",
    '<a href="other.html#nothing">x</a>': "other.html",
}


def test_a_broken_page_is_named_and_a_fine_one_is_not(tmp_path):
    with pytest.raises(FileNotFoundError):
        bookcheck.check(tmp_path)  # no page at all
    (tmp_path / "_static").mkdir(), (tmp_path / "sub").mkdir()
    for name in ("other", "ledger", "sub/index"):
        (tmp_path / f"{name}.html").write_text('<p id="b"></p>')
    (tmp_path / "_static/x.png").write_bytes(b"")
    page = tmp_path / "page.html"
    page.write_text(FINE)
    assert bookcheck.check(tmp_path) == [] and bookcheck.main(tmp_path) == 0
    for body, named in BROKEN.items():
        page.write_text(FINE + "\n" + body)
        (found,) = bookcheck.check(tmp_path)
        assert named in found and found.startswith("page.html"), body[:50]
    assert bookcheck.main(tmp_path) == 1


def test_words_are_those_that_stand_there_before_anything_is_opened():
    table = f"<table><tbody>{'<tr><td>a</td></tr>' * 8}</tbody></table>"
    fold = "<details{}><summary>a b</summary><div><p>c d e</p></div></details>"
    cases = {fold.format(""): 2, fold.format(" open"): 5, table: 8}
    cases["<p>a <b>b</b>c</p><pre>d</pre><svg><text>e</text></svg>"] = 2
    cases[f'{table}<details class="more rows"><summary>a</summary></details>'] = 6
    cases[f'<div class="x dropdown"><div>{table}</div></div>a'] = 1
    cases[f"{fold.format('')}<div>{fold.format(' open')}</div>"] = 7
    for body, n in cases.items():
        assert bookcheck.to_read(f"a<article>{body}</article>b") == n, body


def test_a_page_and_a_site_keep_to_their_size(tmp_path, monkeypatch):
    (tmp_path / "page.html").write_text("<article>a b c</article>" + " " * 300)
    monkeypatch.setattr(bookcheck, "MOST", {"words to read": 2, "MB": 2e-4})
    monkeypatch.setattr(bookcheck, "HEAVY", 200)
    words, site, page = bookcheck.check(tmp_path)
    assert "3 words" in words and "MB" in site and page.startswith("page.html: 324")


def test_pages_are_lighter_and_show_the_same():
    light = extension("fedlight").light
    drawn = """<style></style><svg role="img"> <g id="axes_1"><path id="x-m0123456789"
      d="M 10.25 2.25\nL 3 4.567 z" style="fill: red"/> <use href="#x-m0123456789"
      x="1.25" style="fill: red"/></g></svg><p style="x">a</p>"""
    text = light(drawn)
    name = re.search(r'<path id="(\w+)" d="M10.2 2.25L3 4.567z" class="(\w+)"/>', text)
    assert f'<use href="#{name[1]}" x="1.2" class="{name[2]}"/></svg>' in text
    assert f".{name[2]}{{fill: red}}" in text and text.endswith('<p style="x">a</p>')
    table = (
        '<table border="1" class="dataframe"><thead></thead><tbody>{}</tbody></table>'
    )
    short = light(table.format("<tr></tr>" * 7) + table.format("<tr></tr>" * 8))
    assert short.count("<details") == 1 and short.endswith("</summary></details>")


def test_what_nobody_looks_at_yet_stands_apart_and_is_checked(tmp_path):
    page, row = tmp_path / "page.html", '<tr id="r{}"><td>{} > 1 <b>é</b></td></tr>'
    rows = "".join(row.format(i, i % 7) for i in range(50))
    body = f"<p><template>{rows}</template></p> <template>later</template>"
    short = extension("fedbook").apart(tmp_path, "page", body)
    assert short.count("></template>") == 2 and "<tr" not in short
    page.write_text(short + '<a href="#r49">x</a><a href="#r50">x</a>')
    assert bookcheck.rows_of(page) == rows + "later"
    (found,) = bookcheck.check(tmp_path)
    assert "'#r50'" in found


def test_barriers_of_a_page_are_the_serious_ones():
    rules = {"image-alt": "critical", "b": "moderate", "definition-list": "serious"}
    rules["aria-required-children"] = "serious"  # the one before is excepted on <dl>
    tags = dict(zip(rules, ["<img>", "<p>", "<dl>", "<ul>"]))
    node = lambda name: {"target": ["x"], "html": tags[name], "failureSummary": "a"}
    found = [dict(id=n, impact=i, nodes=[node(n)] * 2) for n, i in rules.items()]
    axe = SimpleNamespace(response={"violations": found})
    axe.run = lambda page, options: axe
    told = [*browse.barriers(axe, None, browse.RULES, "light")]
    assert [t.split(" ")[0] for t in told] == ["image-alt", "aria-required-children"]
    assert "2 times" in told[0]


def test_a_lab_asks_compares_and_judges(capsys):
    for yours, within, said in (
        (..., 1, ": fill in your line above, in place of `...`."),
        ((3, 1), None, ": you 3, 1, the run 3, 1.25."),
        ([3, 1], 0.2, ": you 3, 1, the run 3, 1.25. Not yet."),
        (np.array([3, 1.2]), np.float64(0.2), ": you 3, 1.2, the run 3, 1.25. Right."),
        ("x", 0.2, ": give 2 number(s), not 'x'."),
    ):
        teach.check("a", yours, [3, 1.25], within)
        assert capsys.readouterr().out == f"a{said}\n"


def test_copies_follow_the_results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "results/notebooks/toy/a.ipynb"
    lab = tmp_path / "results/notebooks/labs/a.ipynb"  # no page
    of = tmp_path / "notebooks/toy/a.ipynb", tmp_path / "notebooks/labs/a.ipynb"
    figures = tmp_path / "results/figures/toy-a"
    for path in (source, lab, *of, figures / "a.svg"):
        path.parent.mkdir(parents=True)
        path.write_text("one")
    (copied,) = bookbuild.copy_notebooks()
    os.utime(copied, (1, 1))
    assert bookbuild.copy_notebooks() == [copied] and copied.stat().st_mtime == 1
    source.write_text("two")
    assert bookbuild.copy_notebooks() == [copied] and copied.read_text() == "two"
    of[0].unlink()  # what it has drawn in an older checkout goes, too
    assert bookbuild.copy_notebooks() == [] and not copied.exists()
    assert not source.exists() and not figures.exists() and lab.exists()
