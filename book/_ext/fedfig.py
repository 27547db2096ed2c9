"""{fig}: a saved figure inlined as SVG, so that it follows the theme; with provenance,
a slider over frames, a 3-D view. {arrows}: two gradients that the reader turns, and
what each method makes of them.
"""

import json
import subprocess
from functools import cache

from docutils import nodes
from docutils.parsers.rst import directives
from fedbook import Directive, esc, fold, folder, parallel, raw

from fedlib.plots import inline, origin


def git(root, *command):
    """What git answers, or nothing outside a repository."""
    how = {"capture_output": True, "text": True, "timeout": 60, "check": True}
    try:
        return subprocess.run(["git", *command], cwd=root, **how).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def commit(root, name):
    """The commit that last changed a figure in git;
    for one that DVC keeps, the commit the book is built from.
    """
    last = git(root, "log", "-1", "--format=%h", "--", name)
    state = "describe", "--always", "--dirty= with changes"
    return last or git(root, *state) or "unknown"


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
        name, base = self.arguments[0], folder(self.env) / "figures"
        pattern = self.options.get("frames", name)
        paths = sorted(base.rglob(f"{pattern}.svg"))
        values = self.options.get("values", "").split()
        values = values or [str(i + 1) for i in range(len(paths))]
        if not paths:
            return self.fail("{fig}: results/figures has no %s.svg", pattern)
        if len({p.stem for p in paths}) < len(paths):
            why = "{fig} %s: several folders of results/figures hold it"
            return self.fail(why, name)
        if missing := [p.stem for p in paths if not p.with_suffix(".json").exists()]:
            why = "{fig}: %s.svg has no .json beside it; save it with fedlib.plots.save"
            return self.fail(why, missing[0])
        if len(paths) > 1 and len(values) != len(paths):
            why = "{fig} %s: %s values for %s frames"
            return self.fail(why, name, len(values), len(paths))
        metas = [self.about(p) for p in paths]
        body = self.pictures(paths, metas)
        if len(paths) > 1:
            body += self.slider(values)
        if "view" in self.options:
            path = next(base.rglob(f"{self.options['view']}.view.json"), None)
            if path is None:
                why = "{fig} %s: no %s.view.json"
                return self.fail(why, name, self.options["view"])
            body += self.view(path, metas[0]["alt"])
        return [self.figure(f'<div class="fig">{body}</div>', paths[0], metas[0])]

    def about(self, path):
        """What fedlib.plots.save wrote beside a picture."""
        beside = path.with_suffix(".json")
        for file in (path, beside):
            self.env.note_dependency(str(file))
        return json.loads(beside.read_text(encoding="utf-8"))

    def pictures(self, paths, metas):
        """All frames; the first one is shown."""
        wide, out = max(m["width"] for m in metas), ""
        for i, (p, m) in enumerate(zip(paths, metas)):
            # a page may show a figure twice
            shown = self.env.temp_data.setdefault("fedfig", {})
            shown[p.stem] = shown.get(p.stem, 0) + 1
            prefix = p.stem if shown[p.stem] == 1 else f"{p.stem}-again{shown[p.stem]}"
            picture = inline(p.read_text(encoding="utf-8"), prefix, m["alt"])
            more = f'data-title="{esc(m["title"])}" '
            out += frame(picture, wide, more, " hidden" if i else "")
        return out

    def slider(self, values):
        label, said = esc(self.options.get("label", "frame")), esc(" ".join(values))
        many = f'type="range" min="0" max="{len(values) - 1}" value="0"'
        moved = f'<input {many} data-values="{said}"><output>{esc(values[0])}</output>'
        return f'<label class="slider"><span>{label}</span>{moved}</label>'

    def view(self, path, alt):
        """A surface to turn."""
        self.env.note_dependency(str(path))
        data = path.read_text(encoding="utf-8").strip().replace("<", "\\u003c")
        return (
            f'<div class="view" data-alt="{esc(alt)}"><script '
            f'type="application/json">{data}</script>'
            "<noscript>The view that turns needs JavaScript; the picture above "
            "shows the same.</noscript></div>"
        )

    def figure(self, html, path, meta, more="", kind=()):
        """The figure with its title, the content and `more` as caption, and where it
        comes from."""
        text = " ".join([*self.content, *[more] * bool(more)])
        title = nodes.strong("", meta["title"] + ". ", classes=[*kind])
        kids = self.inline(text) if text else []
        caption = nodes.caption("", "", title, *kids)
        legend = nodes.legend("", raw(self.provenance(meta, path)))
        fig = nodes.figure("", raw(html), caption, legend, classes=["fedfig"])
        self.add_name(fig)
        self.set_source_info(fig)
        return fig

    def provenance(self, m, path):
        notebook = m["notebook"].removesuffix(".ipynb").removeprefix("./")
        if notebook in self.env.found_docs:
            uri = self.env.app.builder.get_relative_uri(self.env.docname, notebook)
            where = f'<a href="{esc(uri)}">{esc(m["notebook"])}</a>'
        else:
            why = "figure %s names a notebook that is no page of the book: %s"
            self.fail(why, m["name"], m["notebook"])
            where = esc(m["notebook"])
        last = esc(commit(str(path.parent), path.name))
        facts = {"notebook": where, "commit": f"<code>{last}</code>"}
        facts["again"] = f"<code>dvc repro {esc(m['stage'])}</code>"
        said = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in facts.items())
        return fold(esc(origin(m)), f"<dl>{said}</dl>", "prov").astext()


def frame(picture, width, more="", hidden=""):
    """A picture in its box; width in inches."""
    kind = "frame wide" if width > 5.6 else "frame"
    style = f'style="--natural:{width / 4.8:.3f}"'
    return f'<div class="{kind}" {more}{style}{hidden}>{picture}</div>'


class Arrows(Directive):
    """{arrows}: two or three clients' gradients as arrows to drag; the page computes
    what FedAvg, FedMGDA+ and FedFV take.

    :start:   "1,0.2; -0.6,0.9": the arrows' tips at first  :alt:  required, what the
              picture shows before it is touched
    """

    option_spec = dict.fromkeys(("start", "alt"), directives.unchanged_required)
    has_content = True

    def run(self):
        why = (
            '{arrows} needs :start: with two or three tips, as "1,0.2; -0.6,0.9", '
            "and :alt:"
        )
        try:
            tips = [t.split(",") for t in self.options["start"].split(";")]
            tips = [tuple(map(float, t)) for t in tips]
            alt = self.options["alt"]
        except (KeyError, ValueError):
            return self.fail(why)
        if not 2 <= len(tips) <= 3 or any(len(t) != 2 for t in tips):
            return self.fail(why)
        said = f'data-tips="{esc(json.dumps(tips))}" data-alt="{esc(alt)}"'
        still = f"<noscript>{esc(alt)} Dragging the arrows needs JavaScript.</noscript>"
        kids = self.inline(" ".join(self.content)) if self.content else []
        caption = nodes.caption("", "", *kids)
        html = raw(f'<div class="arrows" {said}>{still}</div>')
        return [nodes.figure("", html, caption, classes=["fedfig"])]


def setup(app):
    return parallel(app, Fig, Arrows)
