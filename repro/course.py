"""The frame of the course: what book/course/<page>.yaml may say, how long a page takes
to read, which page comes next. Read by book/_ext/fedcourse.py and by tests.

    course.complaints(Path("book"), "drift")     what is wrong with its frame: a list
    course.minutes(Path("book"), "drift")        to read it, exercises apart
    course.onward(Path("book"), "drift")         the next chapter of the book

A page with a file of this kind is a chapter. The file says:

    goals       three, each of which ends "After this page you can ..."
    needs       pages to read before; uses: what to know from elsewhere
    takeaways   five sentences
    quiz        five times {ask, answers, see}; an answer is {says, because, right}, and
                see names a label of the page
    credit      where the ideas come from
    reading     two to four entries {key, why}; keys of references.bib
    letters     {symbol: what it means on this page}

book/course/plan.yaml is the plan of the weeks: a list of {title, pages, lab, class,
project}; lab and class name the page whose lab and exercise for a class are done.
"""

import hashlib
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from annotated_types import Len
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from fedlib.core.errors import nearest, refuse_if, short
from fedlib.data.settings import Model, different
from fedlib.methods.cite import BIBLIOGRAPHY, entries
from fedlib.study.studies import located
from repro.papers import parsed

PLAN = "plan"  # the only file of book/course that is no page's
PER_MINUTE, EQUATION, FIGURE = 200, 20, 30  # words; seconds; seconds


# ---------------------------------------------------------------- files
def called(book: Path, page: str) -> str:
    """How messages call the file of a page's frame."""
    return f"{book.name}/course/{page}.yaml"


def load(book: Path, page: str):
    """What the file says; ValueError where it is no YAML."""
    with located(called(book, page)):
        return parsed((book / "course" / f"{page}.yaml").read_text("utf-8"))


def framed(book: Path) -> set[str]:
    """The pages that have a frame: the chapters."""
    return {p.stem for p in (book / "course").glob("*.yaml")} - {PLAN}


def contents(book: Path) -> list[str]:
    """The pages that _toc.yml names, in its order; patterns (glob) are left out."""
    toc = (book / "_toc.yml").read_text(encoding="utf-8")
    files = re.findall(r"(?m)^[ -]*(?:root|file): *(\S+)", toc)
    return [f.removesuffix(".md") for f in files]


def chapters(book: Path) -> list[str]:
    """The chapters of the contents, in their order."""
    return [page for page in contents(book) if page in framed(book)]


def onward(book: Path, page: str) -> str | None:
    """The chapter after this one in the contents, or None after the last."""
    return dict(pairwise(chapters(book))).get(page)


# ---------------------------------------------------------------- how long
def without(text: str, *names: str) -> str:
    """The page without these directives and what stands in them."""
    fence = rf"^ *(`{{3,}}|:{{3,}})\{{(?:{'|'.join(names)})\}}.*\n(?:.*\n)*? *\1 *$"
    return re.sub(fence, "", text, flags=re.M)


def words(text: str) -> int:
    """Words of prose of a page in Markdown. Code, options of directives and formulas
    are left out; what a role prints counts as a word."""
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    code = r"^ *(`{3,})(?:python|bash|text|console|yaml|toml|json|mermaid)\n"
    text = re.sub(code + r"(?:.*\n)*? *\1 *$", "", text, flags=re.M)
    text = re.sub(r"(?m)^ *:[\w-]+:.*$", "", text)
    text = re.sub(r"(?m)^ *[`:]{3,}(?:\{(?:fig|source)\}.*|\{[\w:-]+\})?", "", text)
    text = re.sub(r"\$\$.*?\$\$(?: *\([\w-]+\))?", " ", text, flags=re.S)
    text = re.sub(r"\{[\w:]+\}`[^`]*`|\$[^$]*\$", "X", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    return len(re.findall(r"[A-Za-z][\w'’-]*", text))


def counts(text: str) -> Counter:
    """How many words, equations, figures (tables and listings are some, too) and
    exercises a page in Markdown has; with its solution an exercise counts as one only.
    """
    read = without(text, "exercise", "solution")
    shown = r"(?m)^ *[`:]+\{(fig|play|arrows|looks|forest|leads|source)\}|^!\[|^\|:?--"
    return Counter(
        words=words(read),
        equations=len(re.findall(r"\$\$.*?\$\$", read, re.S)),
        figures=len(re.findall(shown, read)),
        exercises=len(re.findall(r"(?m)^ *[`:]{3,}\{exercise\}", text)),
    )


def minutes_of(text: str, frame: dict) -> int:
    """Minutes for a page with this frame, its quiz included: whole ones, at least one.

    200 words a minute, those of takeaways, credit and reading list too; 20 s for a
    displayed equation; 30 s for a figure, a table, a listing; a minute for a question.
    """
    n = counts(text)
    own = [*frame["takeaways"], frame["credit"], *(r["why"] for r in frame["reading"])]
    read = n["words"] + sum(map(words, own))
    looked = EQUATION * n["equations"] + FIGURE * n["figures"]
    return max(1, round(read / PER_MINUTE + looked / 60 + len(frame["quiz"])))


def minutes(book: Path, page: str) -> int:
    """Minutes to read a chapter, from its files."""
    text = (book / f"{page}.md").read_text("utf-8")
    return minutes_of(text, load(book, page))


def order(question: dict) -> list[dict]:
    """The answers in the order in which they are shown: by a hash, since who writes
    them tends to put the right one first."""
    told = lambda a: hashlib.sha256((question["ask"] + a["says"]).encode()).digest()
    return sorted(question["answers"], key=told)


# ---------------------------------------------------------------- what is wrong
def known(what):
    """A validator of names of the context's list `what`."""

    def check(v, info):
        names = info.context[what]
        refuse_if(v not in names, f"no {what} {v!r}{nearest(v, names)}")
        return v

    return AfterValidator(check)


def one_is_right(answers):
    """The answers, of which one is right and none stands there twice."""
    right = sum(a.right for a in answers)
    refuse_if(right != 1, f"{right} have right: true; mark exactly one")
    different([a.says for a in answers])
    return answers


Text = Annotated[str, Field(pattern=r"\S")]
Page = Annotated[str, known("page")]
Chapter = Annotated[str, known("chapter")]


class Answer(Model):
    says: Text
    because: Text
    right: bool = False


class Question(Model):
    ask: Text
    answers: Annotated[list[Answer], Len(3, 4), AfterValidator(one_is_right)]
    see: Text = None


class Reading(Model):
    key: Annotated[str, known("reference")]
    why: Text


class Frame(Model):
    """What book/course/<page>.yaml says."""

    goals: Annotated[list[Text], Len(3, 3)]
    needs: list[Page]
    uses: list[Text]
    takeaways: Annotated[list[Text], Len(5, 5)]
    quiz: Annotated[list[Question], Len(5, 5)]
    credit: Text
    reading: Annotated[list[Reading], Len(2, 4)]
    letters: dict[Text, Text]


class Week(Model):
    """A week of book/course/plan.yaml."""

    title: Text
    pages: Annotated[list[Chapter], Len(1)]
    lab: Chapter
    class_: Chapter = Field(alias="class")
    project: Text


def faults(book, name, kind, **context):
    """What is wrong with a file of book/course: file, place, what, value of each."""
    try:
        TypeAdapter(kind).validate_python(load(book, name), context=context)
    except ValidationError as e:
        at = lambda part: str(part + 1) if isinstance(part, int) else part
        for one in e.errors():
            place = " ".join(map(at, one["loc"]))
            value = short(one["input"])
            yield f"{called(book, name)}: {place}: {one['msg']}, and not {value}"
    except ValueError as e:
        yield str(e)


def complaints(book: Path, page: str) -> list[str]:
    """What is wrong with the frame of a page: file, key, value and remedy of each."""
    pages, here = sorted(p.stem for p in book.glob("*.md")), called(book, page)
    if page not in pages:
        return [f"{here}: the book has no {page}.md{nearest(page, pages)}"]
    bibliography = entries(BIBLIOGRAPHY.read_text(encoding="utf-8"))
    return [*faults(book, page, Frame, page=pages, reference=bibliography)]


def plan_complaints(book: Path) -> list[str]:
    """What is wrong with the plan of the weeks."""
    return [*faults(book, PLAN, list[Week], chapter=framed(book))]
