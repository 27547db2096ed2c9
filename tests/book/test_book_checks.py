"""The frame of chapters is checked, and what a built book must not have; both complain
of a page with one defect, and of no good page.
"""

import copy
import os
import re
from pathlib import Path

import pytest
import yaml
from toys_book import BOOK, chapter, course_book, frame, question
from where import ROOT

from repro import bookbuild, bookcheck, browse, course


# ---------------------------------------------------------------- frames of chapters
def changed(place, value):
    """The good frame with another value at a place such as ("quiz", 0, "ask")."""
    whole = inside = copy.deepcopy(frame())
    for part in place[:-1]:
        inside = inside[part]
    inside[place[-1]] = value
    return whole


MISTAKES = [  # place, value, what the complaint names
    (("goal",), [], ["goal", "'goals'"]),
    (("goals",), ["a", "b"], ["goals", "2", "3"]),
    (("goals", 1), 5, ["goals 2", "5"]),
    (("takeaways", 4), " ", ["takeaways 5"]),
    (("needs",), ["tow"], ["needs 1", "'two'"]),
    (("uses",), "signs", ["uses", "list"]),
    (("quiz",), frame()["quiz"][:4], ["quiz", "4", "5"]),
    (("quiz", 1, "aks"), "?", ["quiz 2", "aks", "'ask'"]),
    (("quiz", 0, "answers", 1, "right"), True, ["quiz 1", "2", "right"]),
    (("quiz", 0, "answers", 0, "right"), "yes", ["quiz 1", "right"]),
    (("quiz", 2, "answers", 0), {"says": "4", "right": True}, ["quiz 3", "because"]),
    (("quiz", 0, "answers", 1, "says"), "2", ["quiz 1", "'2'"]),
    (("quiz", 0, "answers"), frame()["quiz"][0]["answers"][:2], ["quiz 1", "2", "3"]),
    (("credit",), "Too short.", ["credit", "2", "60"]),
    (("credit",), "word " * 151, ["credit", "151", "150"]),
    (("reading", 0, "key"), "mcmahan2071", ["reading 1", "'mcmahan2017'"]),
    (("letters",), ["w"], ["letters"]),
    (("letters", 1), "one", ["letters", "1"]),
]


def test_a_mistake_in_a_frame_is_named_with_its_place(tmp_path):
    for i, (place, value, named) in enumerate(MISTAKES):
        frames = {"one": changed(place, value), "two": frame(needs=["one"])}
        book = course_book(tmp_path / f"{i}", frames)
        told = course.complaints(book, "one")
        assert told and told[0].startswith("book/course/one.yaml"), place
        assert not [n for n in named if n not in "\n".join(told)], (place, told)
        assert course.complaints(book, "two") == [], place
    needs = {"one": ["three"], "two": ["one"], "three": ["two"], "four": ["one"]}
    frames = {page: frame(needs=n) for page, n in needs.items()}
    less = {k: v for k, v in frame().items() if k != "credit"}
    book = course_book(tmp_path, frames | {"five": less, "six": "a: b: c"})
    (told,) = course.complaints(book, "one")
    assert "one -> three -> two -> one" in told
    assert course.complaints(book, "four") == []  # leads into the circle
    for page, named in (
        ("five", "credit"),
        ("six", "course/six.yaml"),
        ("no", "no.md"),
    ):
        assert named in course.complaints(book, page)[0]
    text = (book / "four.md").read_text().replace("```{quiz}\n```\n", "")
    (book / "four.md").write_text(text + "\n```{onward}\n```\n")
    told = course.complaints(book, "four")
    assert len(told) == 2 and "{quiz} 0" in told[0] and "{onward} 2" in told[1]


def test_minutes_and_the_next_chapter(tmp_path):
    read, bare = "word " * 400, frame(takeaways=["."] * 5, credit=".", reading=[])
    code = f"\n```python\n{read}\n```\n"
    solved = f"\n````{{solution}} ex\n:class: x\n{read}{code}````\n"
    for more, minutes in {
        "": 2,
        "\n$$\na\n$$\n" * 3: 3,  # 20 s each
        "\n```{fig} x\nword\n```\n" * 4: 4,  # 30 s each
        code: 2,
        solved: 2,
    }.items():
        assert course.minutes_of(read + more, bare) == minutes, more[:20]
    assert course.minutes_of("", bare) == 1
    assert course.minutes_of(read, frame(takeaways=[read] * 5)) == 12
    assert course.counts(chapter("x"))["exercises"] == 1
    pages = {p: frame() for p in ("one", "two", "three", "apart")}
    book = course_book(tmp_path, pages, ["three", "record", "one", "two"])
    after = [course.onward(book, p) for p in ("three", "one", "two", "apart")]
    assert after == ["one", "two", None, None]
    asked = [course.order(question(i)) for i in range(30)]
    right = {next(k for k, a in enumerate(o) if a.get("right")) for o in asked}
    assert right == {0, 1, 2}  # no place of its own
    plan = [{"title": "t", "pages": ["one"], "lab": "one", "class": "nine"}]
    (book / "course/plan.yaml").write_text(yaml.safe_dump(plan))
    told = course.plan_complaints(book)
    assert any("'nine'" in t for t in told) and any("project" in t for t in told)


def test_the_book_has_a_frame_a_lab_and_a_solution_for_every_chapter():
    chapters = course.chapters(BOOK)
    planned = [p for week in course.load(BOOK, course.PLAN) for p in week["pages"]]
    assert course.plan_complaints(BOOK) == [] and sorted(planned) == sorted(chapters)
    assert {*chapters} == course.framed(BOOK) and len(chapters) > 15
    for page in chapters:
        assert course.complaints(BOOK, page) == []
        text = (BOOK / f"{page}.md").read_text("utf-8")
        assert f":label: ex-{page}-class\n" in text, page
        assert f"{{solution}} ex-{page}-class" not in text, page
        assert f"](notebooks/labs/{page}.ipynb)" in text, page
        assert (ROOT / f"notebooks/labs/{page}.ipynb").exists(), page
        assert (BOOK / f"teachers/{page}.md").exists(), page
        seen = {q["see"] for q in course.load(BOOK, page)["quiz"] if "see" in q}
        assert not [label for label in seen if label not in text], page
    files = [*BOOK.glob("teachers/*.md"), *BOOK.glob("*.md")]
    for path in files:  # tests that they name as sources exist
        for name in re.findall(r"`(tests/[\w/.-]+)`", path.read_text("utf-8")):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_colours_and_signs_are_those_of_the_verdicts():
    from toys_book import extension

    from fedlib import plots
    from repro.names import slug

    css, book = (BOOK / "_assets/fedbook.css").read_text(), extension("fedbook")
    colour, sign = {}, {}
    for selectors, body in re.findall(r"^([^{}\n]*)\{([^{}]*)\}", css, re.M):
        for name in re.findall(r"\.v-([\w-]+)", selectors):
            if mark := re.search(r'content: "(\S+) "', body):
                sign[name] = mark[1]
            elif c := re.search(r"--c: var\(--fig-(\w+)\)", body):
                colour.setdefault(name, c[1])
    for group in (book.NUMBERS, book.CLAIMS, book.GAINS):
        names = [*map(slug, group)]
        assert {*names} <= colour.keys()
        assert len({sign[n] for n in names}) == len(names)  # never by colour alone
    for theme, head in enumerate(["html", r'html\[data-theme="dark"\]']):
        block = re.search(rf"^{head} \{{(.*?)\}}", css, re.M | re.S)[1]
        want = {name: pair[theme] for name, pair in plots.PALETTE.items()}
        assert dict(re.findall(r"--fig-(\w+): (#[0-9a-f]{6})", block)) == want


# ---------------------------------------------------------------- a built book
FINE = (
    '<p id="a">x</p><a href="#a">a</a> <a href="other.html#b">b</a> <a href="#">t</a>'
    '<a href="https://doi.org/10.1/2">doi</a><a href="ledger.html#?q=x">l</a>'
    '<svg role="img" aria-label="x"></svg><svg aria-hidden="true"></svg>'
    '<a href="sub/">s</a><img src="_static/x.png" alt="x">'
    '<script>const x = "http://www.w3.org/2000/svg";</script>'
)
BROKEN = {
    '<script src="https://cdn.example.org/x.js"></script>': "<script src>",
    '<link rel="stylesheet" href="//fonts.example.org/x.css">': "<link href>",
    '<img src="HTTPS://example.org/x.png" alt="x">': "<img src>",
    '<img srcset="https://example.org/x.png 2x" src="_static/x.png" alt="x">': "<img srcs",
    "<style>@import 'https://example.org/x.css';</style>": "<style>",
    '<p style="background: url(https://example.org/x.png)">': "<p style>",
    '<script>fetch("https://example.org/x.json")</script>': "<script>",
    '<img src="_static/x.png" alt=" ">': "alt",
    "<svg></svg>": "<svg>",
    '<svg role="img" aria-label=" "></svg>': "<svg>",
    '<p id="twice"></p><p id="twice"></p>': "'twice'",
    '<a href="nothing.html">x</a>': "nothing.html",
    '<a href="other.html#nothing">x</a>': "other.html",
    '<a href="#nothing">x</a>': "page.html",
    "x" * (bookcheck.HEAVY + 1): f"{bookcheck.HEAVY:,}",
}


def test_a_broken_page_is_named_and_a_fine_one_is_not(tmp_path, capsys):
    assert bookcheck.main([str(tmp_path)]) == 1  # no page at all
    (tmp_path / "_static/play").mkdir(parents=True)
    (tmp_path / "sub").mkdir()
    files = {"other": '<p id="b"></p>', "ledger": "<p></p>", "sub/index": ""}
    for name, text in files.items():
        (tmp_path / f"{name}.html").write_text(text)
    (tmp_path / "_static/x.png").write_bytes(b"")
    css, script = tmp_path / "_static/x.css", tmp_path / "_static/play/alpha.js"
    css.write_text("/* https://example.org */ p { background: url(data:x) }")
    script.write_text('x = "http://www.w3.org/2000/svg"')
    page = tmp_path / "page.html"
    page.write_text(FINE)
    assert bookcheck.check(tmp_path) == [] and bookcheck.main([str(tmp_path)]) == 0
    for body, named in BROKEN.items():
        page.write_text(FINE + "\n" + body)
        (found,) = bookcheck.check(tmp_path)
        assert named in found and found.startswith("page.html"), body[:50]
    assert (
        bookcheck.main([str(tmp_path)]) == 1 and "page.html" in capsys.readouterr().err
    )
    page.write_text(FINE)
    css.write_text("@font-face { src: url('https://example.org/x.woff2') }")
    script.write_text("fetch('https://example.org/x')")
    found = bookcheck.check(tmp_path)
    assert len(found) == 2 and all("https://example.org/x" in f for f in found)


def test_scripts_of_ours_name_no_address_and_share_no_name():
    scripts = [*(BOOK / "_assets").glob("*.js"), *(BOOK / "_assets/play").glob("*.js")]
    line, names = r"^(?:async )?(?:function\*?|const|let|var|class) +(\w+)", []
    for path in scripts:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", text), path.name
        names += re.findall(line, text, re.M)
    twice = {n for n in names if names.count(n) > 1}
    assert len(scripts) > 10 and "startQuiz" in names and not twice, twice


def test_what_is_looked_at_in_a_browser(tmp_path, monkeypatch):
    for name in ("a", "b", "notebooks/x/c", "notebooks/x/d", "_static/e"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.html").touch()
    few = lambda *of: [p.stem for p in browse.pages(tmp_path, *of)]
    assert few([], False) == ["a", "b", "c"] and few([], True) == ["a", "b", "c", "d"]
    assert few(["b.html"], False) == ["b"]
    for wanted, root in ((["f.html"], tmp_path), ([], tmp_path / "none")):
        with pytest.raises(FileNotFoundError):
            browse.pages(root, wanted, False)
    assert browse.local("file:///a%20b?x#y") == Path("/a b")
    assert browse.local("https://a/b") is None
    assert browse.sheets(b"<</Type /Page>> <</Type /Pages>> <</Type/Page\n>>") == 2
    assert not browse.has_text(b"stream\nnonsense\nendstream")
    monkeypatch.setenv("PATH", "")
    assert (browse.main(["x"]), browse.main(["x", "--must"])) == (0, 1)
    (known,) = {e.where for e in browse.EXCEPTED if e.rule == "definition-list"}

    class Axe:  # as axe-core answers
        def run(self, page, options):
            node = lambda html: {
                "target": ["x"],
                "html": html,
                "failureSummary": "a\nb",
            }
            rule = lambda name, impact, *nodes: {
                "id": name, "impact": impact, "nodes": [*map(node, nodes)]}  # fmt: skip
            self.response = {
                "violations": [
                    rule("image-alt", "critical", "<img>", "<img>"),
                    rule("minor", "moderate", "<p>"),
                    rule("definition-list", "serious", "<dl>"),
                    rule("aria-required-children", "serious", "<ul>"),
                ]
            }
            return self

    told = [*browse.barriers(Axe(), None, browse.RULES, "light")]
    assert [t.split(" ")[0] for t in told] == ["image-alt", "aria-required-children"]
    assert "2 times" in told[0] and re.search(known, "x <dl>")


def test_copies_follow_the_results(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source, half = (tmp_path / f"results/notebooks/toy/{n}.ipynb" for n in ("a", ".b"))
    source.parent.mkdir(parents=True)
    source.write_text("one")
    half.write_text("half")
    (copied,) = bookbuild.copy_notebooks()
    os.utime(copied, (1, 1))
    assert bookbuild.copy_notebooks() == [copied] and copied.stat().st_mtime == 1
    source.write_text("two")
    bookbuild.copy_notebooks()
    assert copied.read_text() == "two"
    toc = {"root": "index", "parts": [{"chapters": [{"file": "notebooks/toy/a"}]}]}
    (tmp_path / "book/_toc.yml").write_text(yaml.safe_dump(toc))
    relative = copied if not copied.is_absolute() else copied.relative_to(tmp_path)
    assert bookbuild.missing_notebooks([relative], Path("book")) == []
    source.unlink()
    assert bookbuild.copy_notebooks() == [] and not copied.exists()
    assert bookbuild.main() == 1 and "notebooks/toy/a" in capsys.readouterr().err
    assert bookbuild.copy_mathjax(tmp_path / "vendor").stat().st_size > 1_000_000
    (tmp_path / "book/_toc.yml").unlink()
    assert bookbuild.main() == 1 and "_toc.yml" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text, fails", [("One page.", False), ("[](nowhere.md)", True)]
)
def test_a_warning_fails_the_book(tmp_path, monkeypatch, capfd, text, fails):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book").mkdir()
    (tmp_path / "book/_config.yml").write_text("title: A\nauthor: B\n")
    (tmp_path / "book/_toc.yml").write_text("format: jb-book\nroot: intro\n")
    (tmp_path / "book/intro.md").write_text(f"# A toy\n\n{text}\n")
    assert bool(bookbuild.main()) == fails
    said = capfd.readouterr()
    assert ("nowhere" in said.err.partition("not built")[2]) == fails
    assert (tmp_path / "book/_build/pages.txt").exists() != fails
