"""{fig}: a saved figure inlined as SVG, so that it follows the theme; with provenance,
a slider over frames, a 3-D view. {arrows}: two gradients that the reader turns, and
what each method makes of them.
"""

import json
import subprocess
from functools import cache

from docutils import nodes
from docutils.parsers.rst import directives
from fedbook import esc, folder, raw
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from fedlib.plots import inline, origin

log = logging.getLogger(__name__)


def git(root, *command):
    """What git answers, or nothing outside a repository."""
    try:
        return subprocess.run(
            ["git", *command],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


@cache
def commit(root, name):
    """The commit that last changed a figure in git;
    for one that DVC keeps, the commit the book is built from.
    """
    last = git(root, "log", "-1", "--format=%h", "--", name)
    return (
        last or git(root, "describe", "--always", "--dirty= with changes") or "unknown"
    )


class Fig(SphinxDirective):
    """A figure of results/figures, by name, with the takeaway as its title and where it
    came from.

    :name:    target for {numref}
    :frames:  a glob; one frame is shown at a time, a slider moves; :label: what moves,
              :values: what the slider prints
    :view:    name of a .view.json; a 3-D surface or cloud to turn, below the picture
    """

    required_arguments, has_content = 1, True
    option_spec = {
        "name": directives.unchanged,
        "frames": directives.unchanged,
        "label": directives.unchanged,
        "values": directives.unchanged,
        "view": directives.unchanged,
    }

    def fail(self, why, *args):
        log.warning(why, *args, location=self.get_location())
        return []

    def run(self):
        base = folder(self.env) / "figures"
        paths = sorted(
            base.rglob(self.options.get("frames", self.arguments[0]) + ".svg")
        )
        if not paths:
            return self.fail(
                "{fig}: results/figures has no %s.svg",
                self.options.get("frames", self.arguments[0]),
            )
        if len({p.stem for p in paths}) < len(paths):
            return self.fail(
                "{fig} %s: several folders of results/figures hold it",
                self.arguments[0],
            )
        if missing := [p.stem for p in paths if not p.with_suffix(".json").exists()]:
            return self.fail(
                "{fig}: %s.svg has no .json beside it; save figures with "
                "fedlib.plots.save",
                missing[0],
            )
        metas = [
            json.loads(p.with_suffix(".json").read_text(encoding="utf-8"))
            for p in paths
        ]
        for p in paths:
            self.env.note_dependency(str(p))
            self.env.note_dependency(str(p.with_suffix(".json")))
        width = max(m["width"] for m in metas)
        body = []
        for i, (p, m) in enumerate(zip(paths, metas)):
            # a page may show a figure twice
            shown = self.env.temp_data.setdefault("fedfig", {})
            shown[p.stem] = shown.get(p.stem, 0) + 1
            prefix = p.stem if shown[p.stem] == 1 else f"{p.stem}-again{shown[p.stem]}"
            picture = inline(p.read_text(encoding="utf-8"), prefix, m["alt"])
            kind, hidden = (
                "frame wide" if width > 5.6 else "frame",
                " hidden" if i else "",
            )
            body.append(
                f'<div class="{kind}" data-title="{esc(m["title"])}" '
                f'style="--natural:{width / 4.8:.3f}"{hidden}>'
                f"{picture}</div>"
            )
        if len(paths) > 1:
            values = (
                self.options["values"].split()
                if "values" in self.options
                else [str(i + 1) for i in range(len(paths))]
            )
            if len(values) != len(paths):
                return self.fail(
                    "{fig} %s: %s values for %s frames",
                    self.arguments[0],
                    len(values),
                    len(paths),
                )
            body.append(
                f'<label class="slider"><span>{esc(self.options.get("label", "frame"))}'
                f'</span><input type="range" min="0" max="{len(paths) - 1}" value="0" '
                f'data-values="{esc(" ".join(values))}">'
                f"<output>{esc(values[0])}</output></label>"
            )
        if "view" in self.options:
            path = next(base.rglob(f"{self.options['view']}.view.json"), None)
            if path is None:
                return self.fail(
                    "{fig} %s: no %s.view.json", self.arguments[0], self.options["view"]
                )
            self.env.note_dependency(str(path))
            data = path.read_text(encoding="utf-8").strip().replace("<", "\\u003c")
            body.append(
                f'<div class="view" data-alt="{esc(metas[0]["alt"])}"><script '
                f'type="application/json">{data}</script>'
                "<noscript>The view that turns needs JavaScript; the picture above "
                "shows the same.</noscript></div>"
            )
        m = metas[0]
        kids, _ = (
            self.parse_inline(" ".join(self.content), lineno=self.lineno)
            if self.content
            else ([], [])
        )
        fig = nodes.figure(
            "",
            raw(f'<div class="fig">{"".join(body)}</div>'),
            nodes.caption("", "", nodes.strong("", m["title"] + ". "), *kids),
            nodes.legend("", raw(self.provenance(m, paths[0]))),
            classes=["fedfig"],
        )
        self.add_name(fig)
        self.set_source_info(fig)
        return [fig]

    def provenance(self, m, path):
        notebook = m["notebook"].removesuffix(".ipynb").removeprefix("./")
        if notebook in self.env.found_docs:
            uri = self.env.app.builder.get_relative_uri(self.env.docname, notebook)
            where = f'<a href="{esc(uri)}">{esc(m["notebook"])}</a>'
        else:
            self.fail(
                "figure %s names a notebook that is no page of the book: %s",
                m["name"],
                m["notebook"],
            )
            where = esc(m["notebook"])
        return (
            f'<details class="prov"><summary>{esc(origin(m))}</summary><dl>'
            f"<dt>notebook</dt><dd>{where}</dd><dt>commit</dt><dd><code>"
            f"{esc(commit(str(path.parent), path.name))}</code></dd><dt>again</dt><dd>"
            f"<code>dvc repro {esc(m['stage'])}</code></dd></dl></details>"
        )


class Arrows(SphinxDirective):
    """{arrows}: two or three clients' gradients as arrows to drag; the page computes
    what FedAvg, FedMGDA+ and FedFV take.

    :start:   "1,0.2; -0.6,0.9": the arrows' tips at first  :alt:  required, what the
              picture shows before it is touched
    """

    option_spec = {
        "start": directives.unchanged_required,
        "alt": directives.unchanged_required,
    }
    has_content = True

    def run(self):
        try:
            tips = [
                tuple(float(v) for v in tip.split(","))
                for tip in self.options["start"].split(";")
            ]
            if not 2 <= len(tips) <= 3 or any(len(t) != 2 for t in tips):
                raise ValueError
            alt = self.options["alt"]
        except (KeyError, ValueError):
            log.warning(
                '{arrows} needs :start: with two or three tips, as "1,0.2; -0.6,0.9", '
                "and :alt:",
                location=self.get_location(),
            )
            return []
        kids, _ = (
            self.parse_inline(" ".join(self.content), lineno=self.lineno)
            if self.content
            else ([], [])
        )
        return [
            nodes.figure(
                "",
                raw(
                    f'<div class="arrows" data-tips="{esc(json.dumps(tips))}" '
                    f'data-alt="{esc(alt)}">'
                    f"<noscript>{esc(alt)} Dragging the arrows needs "
                    "JavaScript.</noscript></div>"
                ),
                nodes.caption("", "", *kids),
                classes=["fedfig"],
            )
        ]


def setup(app):
    app.add_directive("fig", Fig)
    app.add_directive("arrows", Arrows)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
