"""The frame of a chapter, from book/course/<page>.yaml: {opening}, {takeaways}, {quiz},
{credit}, {onward}; and of the course: {plan}, {slides}. What the files may say:
repro/course.py.

Texts are Markdown of the page that shows them, so that its roles and labels work.
"""

import json
import re
import shutil
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from fedbook import Directive, esc, folder, log, parallel, raw

from fedlib.plots import origin
from repro import course

# beginning of a label -> role; others: ref
NAMED = {"eq": "eq", "fig": "numref", "thm": "prf:ref"}


class Frame(Directive):
    """A part of the frame of this page; show(frame) gives its nodes."""

    def run(self):
        book, page = Path(self.env.srcdir), self.env.docname
        for name in (f"course/{page}.yaml", "_toc.yml", f"{page}.md"):
            self.env.note_dependency(str(book / name))
        if page not in course.framed(book):
            why = "{%s}: there is no %s: write it, or take the directive out"
            return self.fail(why, self.name, course.called(book, page))
        if course.complaints(book, page):  # each is a warning already: complain
            return []
        return self.show(course.load(book, page))

    def inline(self, text):
        """Markdown of one paragraph as nodes."""
        return super().inline(" ".join(text.split()))

    def block(self, text):
        """Markdown as nodes."""
        box = nodes.Element()
        self.state.nested_parse(StringList(text.splitlines(), "course"), 0, box)
        return box.children

    def paragraph(self, text, **kw):
        return nodes.paragraph("", "", *self.inline(text), **kw)

    def listed(self, texts, kind=nodes.bullet_list):
        items = [nodes.list_item("", self.paragraph(t)) for t in texts]
        return kind("", *items)

    def row(self, name, text):
        """A line of a list of names and what belongs to them."""
        words = nodes.inline("", "", *self.inline(text))
        return raw(f"<div><dt>{esc(name)}</dt><dd>"), words, raw("</dd></div>")

    def box(self, title, kind, *kids):
        """A box as those of MyST, with an id to lead to."""
        head = nodes.title("", "", *self.inline(title))
        return nodes.admonition("", head, *kids, classes=["course", kind], ids=[kind])


class Opening(Frame):
    """{opening}: goals, what to read and to know before, how long it takes, letters."""

    def show(self, frame):
        kids = [
            self.paragraph("After this page you can"),
            self.listed(frame["goals"]),
            raw('<dl class="needs">'),
            *self.row("Read before", self.before(frame["needs"])),
            *self.row("Know before", "; ".join(frame["uses"]) or "nothing"),
            raw(f"<div><dt>Takes</dt><dd>{self.takes(frame)}</dd></div></dl>"),
        ]
        kids += self.letters(frame["letters"])
        return [self.box("On this page", "opening", *kids)]

    @staticmethod
    def before(needs):
        return ", ".join(f"{{doc}}`/{page}`" for page in needs) or "nothing"

    def takes(self, frame):
        text = (Path(self.env.srcdir) / f"{self.env.docname}.md").read_text("utf-8")
        n, read = course.counts(text), course.minutes_of(text, frame)
        own = "exercise" if n["exercises"] == 1 else "exercises"
        more = f" and {n['exercises']} {own}" if n["exercises"] else ""
        quiz = 'then a <a href="#quiz">quiz</a>'
        return f"about {read} minute{'s' * (read > 1)} to read, {quiz}{more}"

    def letters(self, letters):
        """The folded table of letters."""
        if not letters:
            return []
        name = "Letters on this page"
        head = f'<details class="letters"><summary>{name}</summary>'
        out = [raw(f'{head}<table class="plain"><tbody>')]
        words = lambda text: nodes.inline("", "", *self.inline(text))
        for s, meaning in letters.items():
            out += [raw('<tr><th scope="row">'), words(s if "$" in s else f"${s}$")]
            out += [raw("</th><td>"), words(meaning), raw("</td></tr>")]
        return [*out, raw("</tbody></table></details>")]


class Takeaways(Frame):
    """{takeaways}: five sentences."""

    def show(self, frame):
        found = self.listed(frame["takeaways"], nodes.enumerated_list)
        return [self.box("To take away", "takeaways", found)]


class Quiz(Frame):
    """{quiz}: five questions. Without JavaScript the answers with their reasons are
    folded below each; quiz.js shows the reason of an answer when it is chosen.
    """

    def show(self, frame):
        n, asked = len(frame["quiz"]), []
        for i, question in enumerate(frame["quiz"], 1):
            asked += self.question(i, n, question)
        last = raw('<p class="score" aria-live="polite"></p>')
        return [self.box("Quiz", "quiz", *asked, last)]

    def question(self, i, n, question):
        shown, name = course.order(question), f"quiz-{i}"
        head = (
            f'<fieldset aria-labelledby="{name}-n {name}-ask">'
            f'<legend id="{name}-n">Question {i} of {n}</legend>'
            f'<div class="ask" id="{name}-ask">'
        )
        out = [raw(head), *self.block(question["ask"])]
        out.append(raw('</div><div class="choices">'))
        for k, answer in enumerate(shown):
            out += self.choice(name, k, answer)
        opened = '<details class="reasons"><summary>Answers</summary><ul>'
        out.append(raw(f"</div>{opened}"))
        for answer in shown:
            out += self.reason(answer, question.get("see"))
        last = '<div class="told" aria-live="polite"></div></fieldset>'
        return [*out, raw(f"</ul></details>{last}")]

    def choice(self, name, k, answer):
        says = nodes.inline("", "", *self.inline(answer["says"]))
        field = f'<input type="radio" name="{name}" value="{k}">'
        return raw(f"<label>{field}"), says, raw("</label>")

    def reason(self, answer, see):
        """An answer with what is to be said of it."""
        right = answer.get("right", False)
        says = nodes.inline("", "", *self.inline(answer["says"]), classes=["says"])
        because = self.inline(answer["because"])
        if see:
            role = NAMED.get(see.partition("-")[0], "ref")
            because += [nodes.Text(" "), *self.inline(f"See {{{role}}}`{see}`.")]
        sign, word = ("✓", "Right") if right else ("✗", "Not this one")
        hidden = f'<span aria-hidden="true">{sign}</span>'
        verdict = f'<strong class="verdict">{hidden} {word}.</strong> '
        item = raw(f'<li class="{"right" if right else "wrong"}">{verdict}')
        why = nodes.inline("", "", *because, classes=["because"])
        return item, says, raw(" "), why, raw("</li>")


class Credit(Frame):
    """{credit}: who had the ideas, and what to read next with a reason for each."""

    def show(self, frame):
        reading = [f"{{cite:t}}`{r['key']}`. {r['why']}" for r in frame["reading"]]
        read = nodes.paragraph("", "", nodes.strong("", "To read"))
        kids = [*self.block(frame["credit"]), read, self.listed(reading)]
        return [self.box("Where this comes from", "credit", *kids)]


class Onward(Frame):
    """{onward}: a link to the next chapter."""

    def show(self, frame):
        page = course.onward(Path(self.env.srcdir), self.env.docname)
        text = f"Next: {{doc}}`/{page}`" if page else "This was the last chapter."
        return [self.paragraph(text, classes=["onward"])]


class Plan(Frame):
    """{plan}: the weeks of book/course/plan.yaml, a table; minutes are those of the
    pages. An exercise for a class is named by its label, ex-<page>-class.
    """

    def run(self):
        book = Path(self.env.srcdir)
        self.env.note_dependency(str(book / "course/plan.yaml"))
        if course.plan_complaints(book):  # warnings already: complain
            return []
        weeks = course.load(book, course.PLAN)
        return [self.week(book, i, week) for i, week in enumerate(weeks, 1)]

    def week(self, book, i, week):
        for page in week["pages"]:
            self.env.note_dependency(str(book / f"{page}.md"))
            self.env.note_dependency(str(book / f"course/{page}.yaml"))
        pages = ", ".join(f"{{doc}}`/{page}`" for page in week["pages"])
        total = sum(course.minutes(book, page) for page in week["pages"])
        lab, own = f"{{doc}}`/notebooks/labs/{week['lab']}`", week["class"]
        parts = {
            "Read": f"{pages}; about {total} minutes",
            "In class": lab,
            "Hand in": f"{{ref}}`ex-{own}-class` of {{doc}}`/{own}`",
            "Project": week["project"],
        }
        rows = [row for name, text in parts.items() for row in self.row(name, text)]
        kids = [raw('<dl class="needs">'), *rows, raw("</dl>")]
        return self.box(f"Week {i}: {week['title']}", f"week-{i}", *kids)


def slides(text):
    """Names of the figures that a page in Markdown shows, at most three of them."""
    shown = re.findall(r"(?m)^ *[`:]{3,}\{fig\} +(\S+)", text)
    return list(dict.fromkeys(shown))[:3]


def frames(where, name):
    """The files of a figure, or of all its frames where name is that of the first."""
    names = f"{name[:-1]}?.svg" if name.endswith("-0") else f"{name}.svg"
    return sorted(where.rglob(names))


class Slides(Frame):
    """{slides}: up to three figures of each chapter, one to a printed page. A figure is
    a file beside the page, so that the page stays light.
    """

    def run(self):
        book, out = Path(self.env.srcdir), []
        for page in course.chapters(book):
            for name in slides((book / f"{page}.md").read_text("utf-8")):
                out += self.slide(page, name)
        return out

    def slide(self, page, name):
        found = frames(folder(self.env) / "figures", name)
        if not found:  # a warning of {fig} already
            return []
        shown = found[-1]  # of frames to slide through the last, which the title is of
        self.env.note_dependency(str(shown))
        about = json.loads(shown.with_suffix(".json").read_text("utf-8"))
        self.env.fedslides = getattr(self.env, "fedslides", {}) | {name: str(shown)}
        about["at"] = f'src="_images/slides/{esc(name)}.svg" alt="{esc(about["alt"])}"'
        title = f'<p class="title">{esc(about["title"])}</p>'
        where = f"{{doc}}`/{page}`. {origin(about)}"
        head = f'<section class="slide">{title}<img {about["at"]} loading="lazy">'
        return [raw(head), self.paragraph(where, classes=["source"]), raw("</section>")]


def copy_slides(app, problem):
    """Put the figures of the slides beside the pages."""
    to = Path(app.outdir, "_images/slides")
    for name, source in getattr(app.env, "fedslides", {}).items():
        if problem is None:
            to.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, to / f"{name}.svg")


def complain(app, env, docnames):
    """A warning for everything that is wrong with the frames of the book's pages."""
    book = Path(app.srcdir)
    strangers = course.framed(book) - {p.stem for p in book.glob("*.md")}
    if (book / "course/plan.yaml").exists() and "course" in env.found_docs:
        for told in course.plan_complaints(book):
            log.warning("%s", told)
    for page in sorted(course.framed(book) & {*env.found_docs} | strangers):
        for told in course.complaints(book, page):
            log.warning("%s", told)


def setup(app):
    app.connect("build-finished", copy_slides)
    app.connect("env-before-read-docs", complain)
    return parallel(app, Opening, Takeaways, Quiz, Credit, Onward, Plan, Slides)
