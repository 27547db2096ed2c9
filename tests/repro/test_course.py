"""The frame of the chapters: what its files may say, how it is shown, and the quiz in a
browser.
"""

import copy
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from where import ROOT

from fedlib.methods.cite import BIBLIOGRAPHY
from repro import course

BOOK = ROOT / "book"
WORDS = "word " * 410


def question(i):
    return {
        "ask": f"What is ${i} + 1$?",
        "answers": [
            {"says": f"{i + 1}", "right": True, "because": f"One after {i}."},
            {"says": f"{i}", "because": f"That is {i} itself."},
            {"says": f"{i + 7}", "because": "Too far."},
        ],
    }


FRAME = {
    "goals": ["add $1$", "say what `add` does", "stop"],
    "needs": [],
    "uses": ["numbers", "signs"],
    "takeaways": ["One is $1$.", "Two is more.", "Three is odd.", "Four.", "Five."],
    "quiz": [question(i) for i in range(1, 6)],
    "credit": "{cite:t}`mcmahan2017` averages. " + "It is a sentence of words. " * 11,
    "reading": [
        {"key": "mcmahan2017", "why": "Section 3 says *how*."},
        {"key": "mcmahan2017", "why": "Section 4 says *when*."},
    ],
    "letters": {"w": "the model", "n_i": "rows of client $i$"},
}
PAGE = """# {title}

(sec-{title})=
## Start

{words}

$$
a = b
$$ (eq-{title})

```{{opening}}
```

```{{takeaways}}
```

```{{quiz}}
```

````{{exercise}} Try
:label: ex-{title}-class
These words are not read: {words}
````

```{{credit}}
```

```{{onward}}
```
"""


def framed(**changes):
    return copy.deepcopy(FRAME) | changes


def small(root, frames, contents=None):
    """A book below `root` with these chapters."""
    book = root / "book"
    (book / "course").mkdir(parents=True)
    for page, frame in frames.items():
        text = (
            frame if isinstance(frame, str) else yaml.safe_dump(frame, sort_keys=False)
        )
        (book / f"course/{page}.yaml").write_text(text)
        (book / f"{page}.md").write_text(PAGE.format(title=page, words=WORDS))
    chapters = [{"file": page} for page in contents or frames]
    toc = {"format": "jb-book", "root": "index", "chapters": chapters}
    (book / "_toc.yml").write_text(yaml.safe_dump(toc))
    return book


# ---------------------------------------------------------------- what a file may say
def test_a_good_frame_has_nothing_to_complain_about(tmp_path):
    book = small(tmp_path, {"one": framed(), "two": framed(needs=["one"])})
    assert course.complaints(book, "one") == course.complaints(book, "two") == []


def change(place, value):
    """The frame with a value at a place such as ("quiz", 0, "ask")."""
    frame = framed()
    inside = frame
    for part in place[:-1]:
        inside = inside[part]
    inside[place[-1]] = value
    return frame


@pytest.mark.parametrize(
    "place, value, says",
    [
        (("goal",), [], "goal: unknown key; did you mean 'goals'? (known: goals,"),
        (("goals",), ["a", "b"], "goals has 2 entries: write exactly 3"),
        (("goals", 1), 5, "goals 2 = 5: write a text, in quotes"),
        (("takeaways", 4), " ", "takeaways 5 is empty: write a text"),
        (("needs",), ["tow"], "no page of the book; did you mean 'two'?"),
        (("uses",), "signs", "uses = 'signs': write a list"),
        (("quiz",), FRAME["quiz"][:4], "quiz has 4 entries: write exactly 5"),
        (("quiz", 1, "aks"), "?", "quiz 2, aks: unknown key; did you mean 'ask'?"),
        (
            ("quiz", 0, "answers", 1, "right"),
            True,
            "quiz 1, answers: 2 have right: true; mark exactly one",
        ),
        (
            ("quiz", 2, "answers", 0),
            {"says": "4", "right": True},
            "quiz 3, answers 1, because is missing: add it",
        ),
        (
            ("quiz", 0, "answers", 1, "says"),
            "2",
            "quiz 1, answers: '2' stands there twice",
        ),
        (
            ("quiz", 0, "answers"),
            FRAME["quiz"][0]["answers"][:2],
            "answers has 2 entries: write 3 to 4",
        ),
        (("credit",), "Too short.", "credit has 2 words: write 60 to 150"),
        (("reading", 0, "key"), "mcmahan2071", "did you mean 'mcmahan2017'?"),
        (("letters",), ["w"], "letters = ['w']: write lines"),
        (("letters", 1), "one", "letters, the symbol 1 = 1: write a text"),
    ],
)
def test_a_mistake_is_named_with_its_place_and_a_remedy(tmp_path, place, value, says):
    book = small(tmp_path, {"one": change(place, value), "two": framed()})
    told = "\n".join(course.complaints(book, "one"))
    assert told.startswith("book/course/one.yaml: ") and says in told


def test_a_missing_key_no_yaml_and_a_lost_page_are_named(tmp_path):
    frame = framed()
    del frame["credit"]
    book = small(tmp_path, {"one": frame, "two": "a: b: c", "three": framed()})
    (told,) = course.complaints(book, "one")
    assert told == "book/course/one.yaml: credit is missing: add it"
    assert "book/course/two.yaml is no YAML" in course.complaints(book, "two")[0]
    (book / "three.md").unlink()
    assert "the book has no three.md" in course.complaints(book, "three")[0]


def test_a_page_shows_each_part_once(tmp_path):
    book = small(tmp_path, {"one": framed()})
    text = (book / "one.md").read_text().replace("```{quiz}\n```\n", "")
    (book / "one.md").write_text(text + "\n```{onward}\n```\n")
    assert course.complaints(book, "one") == [
        "book/one.md has {quiz} 0 times: a chapter has it once",
        "book/one.md has {onward} 2 times: a chapter has it once",
    ]


def test_needs_that_go_round_are_named(tmp_path):
    needs = {"one": ["three"], "two": ["one"], "three": ["two"], "four": ["one"]}
    book = small(tmp_path, {page: framed(needs=n) for page, n in needs.items()})
    (told,) = course.complaints(book, "one")
    assert "one -> three -> two -> one: take one of them out" in told
    assert course.complaints(book, "four") == []  # leads into the circle, is not in it


# ---------------------------------------------------------------- computed
def test_minutes_are_words_equations_and_figures(tmp_path):
    read = "word " * 400
    frame = framed(takeaways=["."] * 5, credit=".", reading=[])
    assert course.minutes_of(read, frame) == 2
    assert course.minutes_of(read + "\n$$\na\n$$\n" * 3, frame) == 3  # 3 x 20 s
    assert course.minutes_of(read + "\n```{fig} x\nword\n```\n" * 4, frame) == 4
    assert course.minutes_of(read + f"\n```python\n{read}\n```\n", frame) == 2
    solved = f"````{{solution}} ex\n:class: dropdown\n{read}\n```python\n1\n```\n````\n"
    assert course.minutes_of(read + "\n" + solved, frame) == 2
    assert course.counts(PAGE.format(title="x", words="w"))["exercises"] == 1


def test_the_next_chapter_follows_the_contents(tmp_path):
    pages = {p: framed() for p in ("one", "two", "three", "apart")}
    book = small(tmp_path, pages, ["three", "record", "one", "two"])
    assert course.chapters(book) == ["three", "one", "two"]
    after = [course.onward(book, p) for p in ("three", "one", "two", "apart")]
    assert after == ["one", "two", None, None]


def test_the_right_answer_has_no_place_of_its_own():
    asked = [course.order(question(i)) for i in range(30)]
    places = {next(k for k, a in enumerate(o) if a.get("right")) for o in asked}
    assert places == {0, 1, 2}
    assert course.order(question(1)) == course.order(question(1))


# ---------------------------------------------------------------- the book's own files
@pytest.mark.parametrize("page", sorted(course.framed(BOOK)))
def test_a_chapter_of_the_book_is_framed(page):
    assert course.complaints(BOOK, page) == []


def planned():
    return [p for w in course.load(BOOK, course.PLAN) for p in w["pages"]]


def test_the_plan_has_ten_weeks_and_every_chapter_once():
    assert course.plan_complaints(BOOK) == []
    assert len(course.load(BOOK, course.PLAN)) == 10
    assert sorted(planned()) == sorted(course.chapters(BOOK))


@pytest.mark.parametrize("page", planned())
def test_a_chapter_has_a_lab_and_an_exercise_with_a_solution_for_teachers(page):
    text = (BOOK / f"{page}.md").read_text("utf-8")
    label = f"ex-{page}-class"
    assert f":label: {label}\n" in text and f"{{solution}} {label}" not in text
    assert f"](notebooks/labs/{page}.ipynb)" in text
    assert (ROOT / f"notebooks/labs/{page}.ipynb").exists()
    assert (BOOK / f"teachers/{page}.md").exists()


# pages whose paper we have only in part: FedGA's and EquFL's formulas are lost in the
# text at hand, and of FFT-GP there is a summary
@pytest.mark.parametrize("page", ["fedga", "equfl", "fftgp"])
def test_a_reconstruction_says_so_before_the_first_section(page):
    top = (BOOK / f"{page}.md").read_text("utf-8").partition("\n## ")[0]
    assert re.search(r"\{admonition\} This page is a reconstruction", top)


# ---------------------------------------------------------------- built
CONF = """
import sys
sys.path[:0] = [{ext!r}]
extensions = ["myst_parser", "sphinx.ext.mathjax", "sphinxcontrib.bibtex",
              "sphinx_exercise", "fedbook", "fedcourse"]
bibtex_bibfiles = [{bib!r}]
myst_enable_extensions = ["dollarmath"]
exclude_patterns = ["_assets"]
html_static_path = ["_assets"]
html_js_files = ["quiz.js"]
html_css_files = ["fedbook.css"]
mathjax_path = "vendor/tex-svg.js"
"""
INDEX = """# Book

```{toctree}
one
two
```

```{bibliography}
```
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two chapters, built by plain Sphinx: quicker than the whole set-up."""
    quiz = [question(i) for i in range(1, 6)]
    quiz[0]["see"], quiz[1]["see"] = "sec-one", "eq-one"
    two = framed(needs=["one"], letters={})
    root = tmp_path_factory.mktemp("course")
    book = small(root, {"one": framed(quiz=quiz), "two": two})
    (book / "conf.py").write_text(
        CONF.format(ext=str(BOOK / "_ext"), bib=str(BIBLIOGRAPHY))
    )
    (book / "index.md").write_text(INDEX)
    (book / "_assets").mkdir()
    for name in ("quiz.js", "fedbook.css"):
        shutil.copy(BOOK / "_assets" / name, book / "_assets")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q"]
    done = subprocess.run(
        [*command, str(book), str(root / "html")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    read = lambda page: (root / f"html/{page}.html").read_text()
    return SimpleNamespace(root=root / "html", one=read("one"), two=read("two"))


def seen(html):
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_opening_names_goals_needs_minutes_and_letters(built):
    one, two = seen(built.one), seen(built.two)
    assert "After this page you can add \\(1\\) say what add does stop" in one
    assert "Read before nothing" in one and 'href="one.html"' in built.two
    minutes = course.minutes_of(PAGE.format(title="one", words=WORDS), framed())
    assert f"about {minutes} minutes to read, then a quiz and 1 exercise" in one
    assert "Letters on this page \\(w\\) the model" in one and "Letters" not in two


def test_the_rest_of_the_frame_is_there(built):
    one = seen(built.one)
    assert "To take away One is \\(1\\) ." in one
    assert "Where this comes from" in one and "Section 4 says when ." in one
    assert "Next: two" in one and "This was the last chapter." in seen(built.two)


def test_the_quiz_works_without_javascript(built):
    fields = re.findall(r"<fieldset.*?</fieldset>", built.one, re.S)
    assert len(fields) == 5
    for i, field in enumerate(fields, 1):
        assert field.count(f'<input type="radio" name="quiz-{i}"') == 3
        reasons = field[field.index("<details") :]
        assert seen(reasons).count("Not this one.") == 2
        assert f"✓ Right. {i + 1} One after {i}." in seen(reasons)
    assert 'href="#sec-one"' in fields[0] and 'href="#equation-eq-one"' in fields[1]


@pytest.fixture
def page(built):
    """The first chapter in a browser without a network."""
    sync = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("there is no chromium")
    with sync.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        asked = []
        page.on("request", lambda r: asked.append(r.url))
        page.goto((built.root / "one.html").as_uri())
        yield page
        stored = page.evaluate("localStorage.length + document.cookie.length")
        browser.close()
        assert stored == 0 and all(url.startswith("file:") for url in asked)


def test_the_quiz_by_keyboard_alone(page):
    press = page.keyboard.press
    page.locator("#quiz input").first.focus()
    right = [course.order(question(i)) for i in range(1, 6)]
    for i, shown in enumerate(right, 1):
        k = next(k for k, a in enumerate(shown) if a.get("right"))
        k = (k + 1) % 3 if i == 2 else k  # the second one is answered wrongly
        for _ in range(k):
            press("ArrowDown")
        field = page.locator("#quiz fieldset").nth(i - 1)
        assert not field.locator(".told").inner_text().strip()  # moving chooses nothing
        press("Space")
        told = field.locator(".told").inner_text()
        assert ("✗ Not this one." if i == 2 else "✓ Right.") in told
        assert shown[k]["because"] in told
        if i < 5:
            for _ in range(9):  # past links in what is told
                press("Tab")
                name = page.evaluate("document.activeElement.name || ''")
                if name == f"quiz-{i + 1}":
                    break
            assert name == f"quiz-{i + 1}"
    assert page.locator(".score").inner_text() == "4 of 5 right at the first choice."
    press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Start again"
    press("Enter")
    assert page.locator(".score").inner_text() == ""
    assert page.locator("#quiz input:checked").count() == 0
    assert page.evaluate("document.activeElement.name") == "quiz-1"


def test_answers_are_not_printed(page):
    page.locator("#quiz label").first.click()
    page.emulate_media(media="print")
    assert page.locator("#quiz .ask").first.is_visible()
    for part in (".told", ".reasons", ".score", "button"):
        assert not page.locator(f"#quiz {part}").first.is_visible()


def test_an_answer_can_be_read_out():
    """One of maths alone leaves its button without a name."""
    for path in sorted((BOOK / "course").glob("*.yaml")):
        quiz = yaml.safe_load(path.read_text("utf-8"))
        if path.stem == "plan":
            continue
        for answer in (a for q in quiz["quiz"] for a in q["answers"]):
            assert re.sub(r"\$[^$]*\$", "", answer["says"]).strip(), (path.name, answer)


def test_a_slide_shows_the_last_frame_of_a_figure_that_one_slides_through(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(str(BOOK / "_ext"))
    from fedcourse import frames

    for name in ("rows-0", "rows-1", "rows-2", "rows-2-wide", "alone"):
        (tmp_path / f"{name}.svg").write_text("<svg/>")
    names = lambda name: [p.stem for p in frames(tmp_path, name)]
    assert names("rows-0") == ["rows-0", "rows-1", "rows-2"]
    assert names("alone") == ["alone"] and names("none") == []
