"""{play}: a piece that the reader moves, with a picture of it where no script runs.

A piece is a script, book/_assets/play/NAME.js, and a figure, play-NAME.svg, that a
notebook has drawn with fedlib's own functions. A page that holds a piece loads
play.js, play.css and the scripts of its own pieces; no other page does.
"""

import json
import re
from pathlib import Path

from docutils.parsers.rst import directives
from fedbook import esc, folder, parallel
from fedfig import Fig, frame

from fedlib.plots import inline

# name -> what a reader should try; the last sentence of the caption
PIECES = {
    "lorenz": "press North and South in turn, and say which one is fairer and by which "
    "measure.",
    "alpha": "start at α = 1 and find the α from which on the largest loss is no "
    "longer that of client 3.",
    "driftline": "raise the local steps T and watch the resting point leave the "
    "minimum; then bring it back, once with η and once with μ.",
    "cohort": "draw 1,000 rounds with pairs, then halve the step and draw them again: "
    "does the mean move towards 3?",
    "trigger": "lift one point in the middle of the curve and see whether the trigger "
    "fires earlier or later.",
    "thresholds": "find two thresholds at which both groups have the same share of "
    "positive decisions, and read what the other two measures say.",
    "leak": "add noise until you cannot read the digit any more; then take the noise "
    "away, and put eight rows into the batch.",
    "triangle": "push domain 3 down until its angle is obtuse: where does the star go, "
    "and can your weights follow?",
    "sam": "lower the step size to 0.04 and let them step: does SAM still leave the "
    "sharp valley? Then turn the radius up.",
    "message": "choose FedProto, then PromptFL: what do they send in place of a model?",
}


def markup(name, picture, meta):
    """The HTML of a piece inside its <figure>: the picture `picture` (SVG text), which
    its script replaces; `meta` is what fedlib.plots.save wrote beside it, with what
    the script needs to know in meta["play"].
    """
    shown = inline(picture, f"play-{name}", meta["alt"])
    known = json.dumps(meta.get("play", {})).replace("<", "\\u003c")
    return (
        f'<div class="play" data-play="{esc(name)}"><div class="still">'
        f"{frame(shown, meta['width'])}"
        '<noscript><p class="hint">With JavaScript on, this picture can be moved.</p>'
        f'</noscript></div><script type="application/json">{known}</script></div>'
    )


class Play(Fig):
    """An interactive piece by its name; the content is the caption.

    :name:  target for {numref}
    """

    option_spec = {"name": directives.unchanged}

    def run(self):
        name = self.arguments[0]
        if name not in PIECES:
            known = ", ".join(sorted(PIECES))
            return self.fail("{play}: no piece %r; there are %s", name, known)
        script = Path(self.env.srcdir, "_assets/play", f"{name}.js")
        found = sorted((folder(self.env) / "figures").rglob(f"play-{name}.svg"))
        if not script.exists():
            return self.fail("{play} %s: no book/_assets/play/%s.js", name, name)
        if len(found) != 1 or not found[0].with_suffix(".json").exists():
            why = (
                "{play} %s: results/figures needs one play-%s.svg with its .json, "
                "drawn by notebooks/teach"
            )
            return self.fail(why, name, name)
        if name in self.env.temp_data.setdefault("fedplay", []):
            return self.fail("{play} %s stands on this page already", name)
        self.env.temp_data["fedplay"].append(name)
        meta, picture = self.about(found[0]), found[0].read_text(encoding="utf-8")
        html, what = markup(name, picture, meta), f"**Try:** {PIECES[name]}"
        # the title is true of the picture, so it goes with it
        return [self.figure(html, found[0], meta, what, ["at-first"])]


def scripts(app, page, template, context, doctree):
    """Give a page what its pieces need."""
    names = re.findall(r'data-play="([\w-]+)"', context.get("body", ""))
    if names:
        app.add_css_file("play/play.css")
        for name in ["play", *names]:
            app.add_js_file(f"play/{name}.js", loading_method="defer")


def setup(app):
    app.connect("html-page-context", scripts)
    return parallel(app, Play)
