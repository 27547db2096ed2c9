"""{fig}: a saved figure inlined as SVG, so that it follows the theme; with provenance,
a slider over frames, a 3-D view. {arrows}: two gradients that the reader turns, and
what each method makes of them.
"""

import json
import re
from collections import Counter
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from fedbook import PIECES, Directive, folder, log, parallel, prose

from fedlib.plots import inline, origin  # noqa: F401, for the template


class Fig(Directive):
    """A figure of results/figures, by name, with the takeaway as its title and where it
    came from.

    :name:    target for {numref}
    :frames:  a glob; one frame is shown at a time, a slider moves; :label: what moves,
              :values: what the slider prints
    :view:    name of a .view.json; a 3-D surface or cloud to turn, below the picture
    """

    required_arguments, has_content = 1, True
    names = ("name", "frames", "label", "values", "view")
    option_spec = dict.fromkeys(names, directives.unchanged)

    def run(self):
        name = self.arguments[0]
        pattern = self.options.get("frames", name)
        paths = self.files(f"{pattern}.svg")
        values = self.options.get("values", "").split()
        values = values or [str(i + 1) for i in range(len(paths))]
        if len(paths) > 1 and len(values) != len(paths):
            n = f"{len(values)} values for {len(paths)} frames"
            raise self.warning(f"{{fig}} {name}: {n}")
        frames = [(self.picture(p), self.about(p)) for p in paths]
        about, view = frames[0][1], ""
        if "view" in self.options:
            (path,) = self.files(f"{self.options['view']}.view.json")
            self.env.note_dependency(str(path))
            view = script(json.loads(path.read_text("utf-8")))
        wide = max(about["width"] for _, about in frames)
        drawn = self.draw("fig", frames, wide, values, view)
        return [self.figure(drawn, paths[0], about)]

    def files(self, pattern):
        """Figures with what plots.save wrote beside them, all of one folder."""
        paths = sorted((folder(self.env) / "figures").rglob(pattern))
        about = [p for p in paths if p.with_suffix(".json").exists()]
        if not paths or about != paths or len({p.name for p in paths}) < len(paths):
            why = f"results/figures needs one {pattern}, saved by fedlib.plots.save"
            raise self.warning(f"{{{self.name}}}: {why}")
        return paths

    def about(self, path):
        """What fedlib.plots.save wrote beside a picture, with the names of what ran."""
        beside = path.with_suffix(".json")
        for file in (path, beside):
            self.env.note_dependency(str(file))
        about = json.loads(beside.read_text(encoding="utf-8"))
        about["paper"] = about["stage"].partition("@")[0]
        return about | {k: prose(about[k], about) for k in ("title", "alt")}

    def picture(self, path):
        """The SVG; its ids are its own though a page may show a figure twice."""
        shown = self.env.temp_data.setdefault("fedfig", Counter())
        shown.update([path.stem])
        n = shown[path.stem]
        prefix = path.stem if n == 1 else f"{path.stem}-again{n}"
        about, drawn = self.about(path), path.read_text("utf-8")
        drawn = re.sub("[^<>]+</text>", lambda m: prose(m[0], about), drawn)
        return inline(drawn, prefix, about["alt"])

    def figure(self, drawn, path, about, more="", kind=()):
        """The figure, its title, the content and `more` as caption, its origin."""
        text = " ".join([*self.content, more]).strip()
        title = nodes.strong("", about["title"] + ". ", classes=[*kind])
        kids = self.inline(text) if text else []
        caption = nodes.caption("", "", title, *kids)
        legend = nodes.legend("", *self.provenance(about, path))
        fig = nodes.figure("", *drawn, caption, legend, classes=["fedfig"])
        self.add_name(fig)
        self.set_source_info(fig)
        return fig

    def provenance(self, about, path):
        notebook = about["notebook"].removesuffix(".ipynb")
        page = self.page(notebook) if notebook in self.env.found_docs else ""
        if not (page or Path(self.env.srcdir, "..", about["notebook"]).exists()):
            why = "figure %s names a notebook that is not there: %s"
            at = self.get_location()
            log.warning(why, about["name"], about["notebook"], location=at)
        return self.draw("provenance", about, page)


def script(known):
    """JSON that may stand in a script."""
    return json.dumps(known).replace("<", "\\u003c")


class Arrows(Directive):
    """{arrows}: two or three clients' gradients as arrows to drag; the page computes
    what FedAvg, FedMGDA+ and FedFV take.

    :start:   "1,0.2; -0.6,0.9": the arrows' tips at first  :alt:  required, what the
              picture shows before it is touched
    """

    option_spec = dict.fromkeys(("start", "alt"), directives.unchanged_required)
    has_content = True

    def run(self):
        tips = [t.split(",") for t in self.options["start"].split(";")]
        tips = json.dumps([tuple(map(float, t)) for t in tips])
        drawn = self.draw("arrows", tips, self.options["alt"])
        kids = self.inline(" ".join(self.content)) if self.content else []
        caption = nodes.caption("", "", *kids)
        return [nodes.figure("", *drawn, caption, classes=["fedfig"])]


class Play(Fig):
    """An interactive piece by its name; the content is the caption.

    :name:  target for {numref}
    """

    option_spec = {"name": directives.unchanged}

    def run(self):
        name = self.arguments[0]
        there = Path(self.env.srcdir, "_assets/play", f"{name}.js").exists()
        if name not in PIECES or not there:
            known = ", ".join(sorted(PIECES))
            raise self.warning(f"{{play}}: no piece {name!r}; there are {known}")
        (path,) = self.files(f"play-{name}.svg")
        about, what = self.about(path), f"**Try:** {PIECES[name]}"
        known = script(about.get("play", {}))
        drawn = self.draw("play", name, self.picture(path), about, known)
        # the title is true of the picture, so it goes with it
        return [self.figure(drawn, path, about, what, ["at-first"])]


def scripts(app, page, template, context, doctree):
    """Give a page what its pieces need."""
    names = re.findall(r'data-play="([\w-]+)"', context.get("body", ""))
    if names:
        app.add_css_file("play/play.css")
        for name in ["play", *names]:
            app.add_js_file(f"play/{name}.js", loading_method="defer")


def setup(app):
    app.connect("html-page-context", scripts)
    return parallel(app, Fig, Arrows, Play)
