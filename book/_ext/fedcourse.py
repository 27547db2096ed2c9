"""The frame of a chapter, from book/course/<page>.yaml: {opening}, {takeaways}, {quiz},
{credit}, {onward}; and of the course: {plan}, {slides}. What the files may say:
repro/course.py; how they look: fedcourse.html.

Texts are Markdown of the page that shows them, so that its roles and labels work.
"""

import json
import re
from pathlib import Path

from fedbook import Directive, folder, parallel
from fedlight import light

from repro import course

# beginning of a label -> role; others: ref
NAMED = {"eq": "eq", "fig": "numref", "thm": "prf:ref"}


def pages(names):
    """Links to pages, as Markdown."""
    return ", ".join(f"{{doc}}`/{name}`" for name in names)


def see(question):
    """Where the answer stands, as Markdown."""
    label = question.get("see", "")
    role = NAMED.get(label.partition("-")[0], "ref")
    return f" See {{{role}}}`{label}`." if label else ""


class Frame(Directive):
    """A part of the frame of this page, drawn by the macro of its name."""

    def run(self):
        book, page = Path(self.env.srcdir), self.env.docname
        for name in (f"course/{page}.yaml", "_toc.yml", f"{page}.md"):
            self.env.note_dependency(str(book / name))
        if page not in course.framed(book):
            why = f"there is no {course.called(book, page)}: write it, or take it out"
            raise self.warning(f"{{{self.name}}}: {why}")
        if told := course.complaints(book, page):
            raise self.warning("\n".join(told))
        return self.draw(self.name, *self.said(book, course.load(book, page)))

    def said(self, book, frame):
        return [frame]


class Takeaways(Frame):
    """{takeaways}: five sentences."""


class Quiz(Frame):
    """{quiz}: five questions."""


class Credit(Frame):
    """{credit}: who had the ideas, and what to read next with a reason for each."""


class Opening(Frame):
    """{opening}: goals, what to read and to know before, how long it takes, letters."""

    def said(self, book, frame):
        text = (book / f"{self.env.docname}.md").read_text("utf-8")
        exercises = course.counts(text)["exercises"]
        return frame, course.minutes_of(text, frame), exercises


class Onward(Frame):
    """{onward}: a link to the next chapter."""

    def said(self, book, frame):
        return [course.onward(book, self.env.docname)]


class Plan(Directive):
    """{plan} [brief]: the weeks of book/course/plan.yaml; minutes are those of the
    pages. An exercise for a class is named by its label, ex-<page>-class.
    """

    def run(self):
        book = Path(self.env.srcdir)
        self.env.note_dependency(str(book / "course/plan.yaml"))
        if told := course.plan_complaints(book):
            raise self.warning("\n".join(told))
        weeks = []
        for week in course.load(book, course.PLAN):
            for page in week["pages"]:
                self.env.note_dependency(str(book / f"{page}.md"))
                self.env.note_dependency(str(book / f"course/{page}.yaml"))
            total = sum(course.minutes(book, page) for page in week["pages"])
            weeks.append((week, total))
        return self.draw("plan", weeks)


FIGURE = re.compile(r"(?ms)^ *([`:]{3,})\{fig\} +(\S+)\n(.*?)^ *\1 *$")
ASKED = re.compile(r"(?m)(?:^|(?<=[.?!:] )|(?<=\*\*))[A-Z][^.!?:|\n]{9,}\?")


def figures(text):
    """(name, question, caption) of each figure of a page in Markdown. The question is
    the last one since the figure before, its caption's too, else the heading.
    """
    parts = FIGURE.split(course.without(text, "exercise", "solution"))
    heads = []
    for before, name, body in zip(parts[::4], parts[2::4], parts[3::4]):
        caption = re.sub(r"(?m)^ *:\S.*\n", "", body)
        heads += re.findall(r"(?m)^#+ (.*)", before)
        yield name, [*heads, *ASKED.findall(before + caption)][-1], caption


def frames(where, name):
    """The files of a figure, or of all its frames where name is that of the first."""
    names = f"{name[:-1]}?.svg" if name.endswith("-0") else f"{name}.svg"
    return sorted(where.rglob(names))


class Slides(Directive):
    """{slides}: a talk for each week of the plan, a figure of its chapters on a screen.
    A figure is a file beside the page, so that the page stays light.
    """

    def run(self):
        book = Path(self.env.srcdir)
        of = lambda page: (page, course.load(book, page), [*self.screens(book, page)])
        weeks = course.load(book, course.PLAN)
        return self.draw("slides", [(w, [*map(of, w["pages"])]) for w in weeks])

    def screens(self, book, page):
        """(name, question, caption, what was saved beside it) of each figure."""
        to, text = Path(self.env.app.outdir, "_images/slides"), book / f"{page}.md"
        to.mkdir(parents=True, exist_ok=True)
        self.env.note_dependency(str(text))
        for name, *said in figures(text.read_text("utf-8")):
            if found := frames(folder(self.env) / "figures", name):  # else {fig} warns
                shown = found[-1]  # of frames the last, which the title is of
                self.env.note_dependency(str(shown))
                (to / f"{name}.svg").write_text(light(shown.read_text()))
                yield name, *said, json.loads(shown.with_suffix(".json").read_text())


def setup(app):
    return parallel(app, Opening, Takeaways, Quiz, Credit, Onward, Plan, Slides)
