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
    credit      where the ideas come from, in 60 to 150 words
    reading     two to four entries {key, why}; keys of references.bib
    letters     {symbol: what it means on this page}

book/course/plan.yaml is the plan of the weeks: a list of {title, pages, lab, class,
project}; lab and class name the page whose lab and exercise for a class are done.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from pathlib import Path

import yaml

from fedlib.core.errors import nearest
from fedlib.core.ranges import short
from fedlib.methods.cite import BIBLIOGRAPHY, entries

PLAN = "plan"  # the only file of book/course that is no page's
DIRECTIVES = ("opening", "takeaways", "quiz", "credit", "onward")
PER_MINUTE, EQUATION, FIGURE = 200, 20, 30  # words; seconds; seconds
CREDIT = 60, 150  # words


# ---------------------------------------------------------------- files
def called(book: Path, page: str) -> str:
    """How messages call the file of a page's frame."""
    return f"{book.name}/course/{page}.yaml"


def load(book: Path, page: str):
    """What the file says; ValueError where it is no YAML."""
    text = (book / "course" / f"{page}.yaml").read_text(encoding="utf-8")
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as e:
        raise ValueError(
            f"{called(book, page)} is no YAML ({' '.join(str(e).split())}): put texts "
            "with a colon, or with a special character in front, into quotes"
        ) from e


def framed(book: Path) -> set[str]:
    """The pages that have a frame: the chapters."""
    return {p.stem for p in (book / "course").glob("*.yaml")} - {PLAN}


def contents(book: Path) -> list[str]:
    """The pages that _toc.yml names, in its order; patterns (glob) are left out."""

    def files(node):
        if isinstance(node, dict):
            yield from (str(node[k]) for k in ("root", "file") if k in node)
            node = list(node.values())
        if isinstance(node, list):
            for child in node:
                yield from files(child)

    toc = yaml.safe_load((book / "_toc.yml").read_text(encoding="utf-8"))
    return [f.removesuffix(".md") for f in files(toc)]


def chapters(book: Path) -> list[str]:
    """The chapters of the contents, in their order."""
    known = framed(book)
    return [page for page in contents(book) if page in known]


def onward(book: Path, page: str) -> str | None:
    """The chapter after this one in the contents, or None after the last."""
    order = chapters(book)
    after = order[order.index(page) + 1 :] if page in order else []
    return after[0] if after else None


# ---------------------------------------------------------------- how long
def without(text: str, *names: str) -> str:
    """The page without these directives and what stands in them."""
    fence = rf"^ *(`{{3,}}|:{{3,}})\{{(?:{'|'.join(names)})\}}.*\n(?:.*\n)*? *\1 *$"
    return re.sub(fence, "", text, flags=re.M)


def words(text: str) -> int:
    """Words of prose of a page in Markdown. Code, options of directives and formulas
    are left out; what a role prints counts as a word.
    """
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
    """How many words, equations, figures and exercises a page in Markdown has; an
    exercise and its solution count as an exercise only.
    """
    read = without(text, "exercise", "solution")
    pictures = r"(?m)^ *[`:]{3,}\{(?:fig|play|arrows|looks)\}|^!\["
    return Counter(
        words=words(read),
        equations=len(re.findall(r"\$\$.*?\$\$", read, re.S)),
        figures=len(re.findall(pictures, read)),
        exercises=len(re.findall(r"(?m)^ *[`:]{3,}\{exercise\}", text)),
    )


def minutes_of(text: str, frame: dict) -> int:
    """Minutes to read a page with this frame: whole ones, at least one.

    200 words a minute, those of the page and of its takeaways, credit and reading list;
    20 s for an equation on a line of its own; 30 s for a figure. Source code, tables
    that the build prints, the quiz and the exercises are not counted.
    """
    n = counts(text)
    own = [*frame["takeaways"], frame["credit"], *(r["why"] for r in frame["reading"])]
    read = n["words"] + sum(map(words, own))
    looked = EQUATION * n["equations"] + FIGURE * n["figures"]
    return max(1, round(read / PER_MINUTE + looked / 60))


def minutes(book: Path, page: str) -> int:
    """Minutes to read a chapter, from its files."""
    text = (book / f"{page}.md").read_text(encoding="utf-8")
    return minutes_of(text, load(book, page))


def order(question: dict) -> list[dict]:
    """The answers in the order in which they are shown: by a hash, since who writes
    them tends to put the right one first.
    """
    told = lambda a: hashlib.sha256((question["ask"] + a["says"]).encode()).digest()
    return sorted(question["answers"], key=told)


# ---------------------------------------------------------------- what is wrong
# An asker yields complaints about a value v; at: its place, such as "quiz 2, ask".
def text(v, at):
    """A text that is not empty."""
    if not isinstance(v, str):
        yield f"{at} = {short(v)}: write a text, in quotes"
    elif not v.strip():
        yield f"{at} is empty: write a text"


def switch(v, at):
    """True or false."""
    if not isinstance(v, bool):
        yield f"{at} = {short(v)}: write true, or leave it out"


def several(each, least=0, most=1000):
    """A list; each: asks about an entry."""

    def ask(v, at):
        if not isinstance(v, list):
            yield f"{at} = {short(v)}: write a list"
            return
        if not least <= len(v) <= most:
            span = f"{least} to {most}" if least < most else f"exactly {least}"
            yield f"{at} has {len(v)} entries: write {span}"
        for i, entry in enumerate(v):
            yield from each(entry, f"{at} {i + 1}")

    return ask


def table(fields, optional=()):
    """A dictionary with these keys; fields: {key: asks about its value}."""

    def ask(v, at):
        if not isinstance(v, dict):
            yield f"{at} = {short(v)}: write entries ({', '.join(fields)})"
            return
        at = at and f"{at}, "
        for key in v:
            if key not in fields:
                yield (
                    f"{at}{key}: unknown key{nearest(key, fields)} (known: "
                    f"{', '.join(fields)})"
                )
        for key, asks in fields.items():
            if key in v:
                yield from asks(v[key], f"{at}{key}")
            elif key not in optional:
                yield f"{at}{key} is missing: add it"

    return ask


def one_of(known, what):
    """A name of this list."""

    def ask(v, at):
        if v not in [*known]:
            yield f"{at} = {short(v)}: no {what}{nearest(v, known)}"

    return ask


def answers(v, at):
    """Three or four, of which one is right."""
    yield from several(ANSWER, 3, 4)(v, at)
    if isinstance(v, list):
        right = sum(isinstance(a, dict) and a.get("right") is True for a in v)
        if right != 1:
            yield f"{at}: {right} have right: true; mark exactly one"
        says = Counter(str(a.get("says")) for a in v if isinstance(a, dict))
        if twice := [s for s, n in says.items() if n > 1]:
            yield f"{at}: {short(twice[0])} stands there twice; take one out"


def credit(v, at):
    """A text of so many words."""
    yield from text(v, at)
    if isinstance(v, str) and not CREDIT[0] <= words(v) <= CREDIT[1]:
        yield f"{at} has {words(v)} words: write {CREDIT[0]} to {CREDIT[1]}"


def letters(v, at):
    """{symbol: meaning}."""
    if not isinstance(v, dict):
        yield f"{at} = {short(v)}: write lines 'symbol: its meaning', or {{}}"
        return
    for symbol, meaning in v.items():
        yield from text(symbol, f"{at}, the symbol {short(symbol)}")
        yield from text(meaning, f"{at}, {symbol}")


ANSWER = table({"says": text, "because": text, "right": switch}, ["right"])
QUESTION = table({"ask": text, "answers": answers, "see": text}, ["see"])


def frame_of(pages):
    """Asks about the whole file; pages: those of the book."""
    known = entries(BIBLIOGRAPHY.read_text(encoding="utf-8"))
    entry = table({"key": one_of(known, "entry of references.bib"), "why": text})
    return table(
        {
            "goals": several(text, 3, 3),
            "needs": several(one_of(pages, "page of the book")),
            "uses": several(text),
            "takeaways": several(text, 5, 5),
            "quiz": several(QUESTION, 5, 5),
            "credit": credit,
            "reading": several(entry, 2, 4),
            "letters": letters,
        }
    )


def complaints(book: Path, page: str) -> list[str]:
    """What is wrong with the frame of a page: file, key, value and remedy of each."""
    pages = sorted(p.stem for p in book.glob("*.md"))
    if page not in pages:
        return [
            f"{called(book, page)}: the book has no {page}.md{nearest(page, pages)}"
        ]
    try:
        told = [*frame_of(pages)(load(book, page), "")]
    except ValueError as e:
        return [str(e)]
    told = [f"{called(book, page)}: {what}" for what in told]
    source = (book / f"{page}.md").read_text(encoding="utf-8")
    for name in DIRECTIVES:
        n = len(re.findall(rf"(?m)^ *[`:]{{3,}}\{{{name}\}} *$", source))
        if n != 1:
            told.append(
                f"{book.name}/{page}.md has {{{name}}} {n} times: a chapter has it once"
            )
    if not told and (way := circle(book, page)):
        told.append(
            f"{called(book, page)}: needs go round in a circle, {' -> '.join(way)}: "
            "take one of them out"
        )
    return told


def circle(book: Path, page: str) -> list[str]:
    """The way along needs from a page back to it, or nothing."""

    @functools.cache
    def needs(p):
        try:
            frame = load(book, p) if p in framed(book) else {}
        except ValueError:
            frame = {}
        listed = frame.get("needs") if isinstance(frame, dict) else ()
        return tuple(listed) if isinstance(listed, list) else ()

    ways, seen = [[page]], set()
    while ways:
        way = ways.pop(0)
        for p in needs(way[-1]):
            if p == page:
                return [*way, p]
            if p not in seen:
                seen.add(p)
                ways.append([*way, p])
    return []


def plan_complaints(book: Path) -> list[str]:
    """What is wrong with the plan of the weeks."""
    page = one_of(framed(book), "chapter (a page with a file in book/course)")
    week = {"title": text, "pages": several(page, 1)}
    week |= {"lab": page, "class": page, "project": text}
    told = [*several(table(week), 1)(load(book, PLAN), "week")]
    return [f"{called(book, PLAN)}: {what}" for what in told]
