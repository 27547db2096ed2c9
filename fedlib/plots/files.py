"""Figures on disk: the same bytes for the same drawing, and where each comes from."""

import html
import io
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt

from .theme import PALETTE, drawn

TIERS = ("tiny", "small", "paper", "exact", "measured")
# tiers in which nothing was trained, or nothing comes out twice
UNTIERED = {"exact": "drawn from a formula", "measured": "times of one machine"}
FOLDER = "results/figures"
ARTEFACT = r"-(?:figure|table)-\d"  # the name of a paper's own figure or table
NUMBERED = (  # attributes of an SVG whose numbers are shortened
    r'(?:\b(?:d|x|y|x1|x2|y1|y2|width|height|points)="[^"]*"'
    r"|(?:translate|rotate)\([^)]*\))"
)
LONG_NUMBER = r"-?\d+\.\d{3,}(?!\d|e)"


class Saved:
    """A figure on disk, which a notebook shows with its alt text in both themes."""

    def __init__(self, path: Path, meta: dict):
        self.path, self.meta = path, meta

    def __repr__(self) -> str:
        return f"Saved({self.path.as_posix()!r})"

    def _repr_html_(self) -> str:
        text = self.path.read_text(encoding="utf-8")
        picture = inline(text, "cell-" + self.path.stem, self.meta["alt"])
        name, title = (html.escape(self.meta[k]) for k in ("name", "title"))
        # an artefact's page links to it
        target = f' id="{name}"' if re.search(ARTEFACT, self.meta["name"]) else ""
        return (
            f'<figure class="fedfig"{target}>{picture}<figcaption><b>{title}.</b> '
            f"<small>{html.escape(origin(self.meta))}</small></figcaption></figure>"
        )


def origin(meta: dict) -> str:
    """Where a figure comes from: "digits, real · tier small · 5 seeds"."""
    tier = UNTIERED.get(meta["tier"], f"tier {meta['tier']}")
    return " · ".join([meta["data"], tier, meta["seeds"]])


def in_words(seeds) -> str:
    """How many seeds, which, or a note: 7 -> "7 seeds", [4] -> "seed 4", [0, 1, 2] ->
    "seeds 0–2", "none" -> "no seeds", "0 only" -> "seeds 0 only".
    """
    if not isinstance(seeds, (str, int)):
        some = list(seeds)
        run = len(some) > 2 and some == list(range(some[0], some[0] + len(some)))
        which = f"{some[0]}\u2013{some[-1]}" if run else ", ".join(map(str, some))
        return f"seed{'s' * (len(some) > 1)} {which}"
    seeds = str(seeds)
    if seeds.isdigit():
        return "one seed" if seeds == "1" else f"{seeds} seeds"
    note = seeds if seeds.startswith("seed") else f"seeds {seeds}"
    return "no seeds" if seeds == "none" else note


def save(
    fig, name, *, title, alt, data, tier, seeds, notebook, stage, folder=FOLDER, more=()
) -> Saved:
    """Write `name.svg` and `name.json`, byte for byte the same for the same drawing,
    and close the figure.

    title: the takeaway, one sentence without full stop (the book prints it; do not draw
    it).  alt: what a reader who cannot see the figure must know.  data: name and kind,
    as "Synthetic(1, 1), synthetic".  seeds: how many, or a list of which, or "none".
    notebook: path in the repository.  stage: the `dvc repro` target.  folder: see
    `drawn`.  more: {name: what a piece's script on the page must know}.  ValueError for
    an empty field or an unknown tier.
    """
    meta = dict(name=name, title=title, alt=alt, data=data, tier=tier)
    meta |= dict(seeds=in_words(seeds), notebook=notebook, stage=stage)
    empty = [k for k, v in meta.items() if not (isinstance(v, str) and v.strip())]
    if empty or tier not in TIERS:
        raise ValueError(
            f"figure {name!r}, {empty or tier}: every field is a text, it is printed "
            f"with the figure; tier is one of {', '.join(TIERS)}"
        )
    path = drawn(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = svg(fig, title, alt)
    points = re.search(r'viewBox="0 0 (\S+) (\S+)"', text).groups()
    meta["width"], meta["height"] = (round(float(v) / 72, 2) for v in points)  # inches
    picture, about = (path.with_name(path.name + end) for end in (".svg", ".json"))
    picture.write_text(text, encoding="utf-8", newline="\n")
    said = json.dumps(meta | dict(more), indent=1, ensure_ascii=False) + "\n"
    about.write_text(said, encoding="utf-8", newline="\n")
    plt.close(fig)
    return Saved(picture, meta)


def svg(fig, title: str, alt: str) -> str:
    """SVG text without date or program version, two decimals."""
    out, about = io.StringIO(), {"Title": title, "Description": alt}
    about |= {"Date": None, "Creator": None}
    fig.savefig(out, format="svg", metadata=about)
    short = lambda m: f"{float(m[0]):.2f}".rstrip("0").rstrip(".")
    return re.sub(NUMBERED, lambda m: re.sub(LONG_NUMBER, short, m[0]), out.getvalue())


def inline(text: str, prefix: str, alt: str) -> str:
    """The <svg> element for a page: theme variables, ids unique to `prefix`, `alt`."""
    text = text[text.index("<svg") :].replace("xlink:href", "href").strip()
    # in a page a style would reach every other picture; an image drawn twice has one id
    more = r"<(title|metadata|style).*?</\1>|<!--.*?-->|(?<=\s)id=\"image\w+\""
    text = re.sub(rf"\s*(?:{more})", "", text, flags=re.S)
    for name, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--fig-{name}, {light})")
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{prefix}-", text)
    said = f'<svg role="img" aria-label="{html.escape(alt)}" '
    sized = r'<svg (?:(?:width|height|xmlns:xlink)="[^"]*"\s*)*'
    return re.sub(sized, lambda _: said, text, count=1)
