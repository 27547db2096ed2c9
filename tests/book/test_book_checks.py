"""The checks of frames, labs and the built book see one defect, and no other."""

import copy
import os
import re
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
    (("credit",), "Too short.", ["credit", "2", "60"]),
    (("credit",), "word " * 151, ["credit", "151", "150"]),
    (("reading", 0, "key"), "mcmahan2071", ["reading 1", "'mcmahan2017'"]),
]


def test_a_mistake_in_a_frame_is_named_with_its_place(tmp_path):
    for i, (place, value, named) in enumerate(MISTAKES):
        frames = {"one": changed(place, value), "two": frame(needs=["one"])}
        book = course_book(tmp_path / f"{i}", frames)
        told = "\n".join(course.complaints(book, "one"))
        assert told and not [n for n in named if n not in told], (place, told)
        assert course.complaints(book, "two") == [], place
    needs = {"one": ["three"], "two": ["one"], "three": ["two"], "four": ["one"]}
    book = course_book(tmp_path, {page: frame(needs=n) for page, n in needs.items()})
    (told,) = course.complaints(book, "one")
    assert "one -> three -> two -> one" in told
    assert course.complaints(book, "four") == []  # leads into the circle


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
    for page in chapters:
        text = (BOOK / f"{page}.md").read_text("utf-8")
        assert not course.complaints(BOOK, page) and f":label: ex-{page}-class" in text
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
