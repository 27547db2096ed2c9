"""Figures on disk: the same bytes for the same drawing, and where each comes from."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from .theme import PALETTE, RC, drawn

TIERS = ("tiny", "small", "paper", "exact", "measured")
# tiers in which nothing was trained, or nothing comes out twice
UNTIERED = {"exact": "drawn from a formula", "measured": "times of one machine"}
FOLDER = "results/figures"
NAME = r"[A-Za-z][\w/.+-]*"
ARTEFACT = r"-(?:figure|table)-\d"  # the name of a paper's own figure or table
NUMBERED = (  # attributes of an SVG whose numbers are shortened
    r'(?:\b(?:d|x|y|x1|x2|y1|y2|width|height|points)="[^"]*"'
    r"|(?:translate|rotate)\([^)]*\))"
)
LONG_NUMBER = r"-?\d+\.\d{3,}(?!\d|e)"
REFERENCE = r'(url\(#|href="#)'


class Saved:
    """A figure on disk; as the last line of a notebook cell it shows itself, with its
    alt text and in both themes.
    """

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
    return " · ".join([meta["data"], tier, _seeds_in_words(meta["seeds"])])


def _seeds_in_words(seeds: str) -> str:
    """As the book prints them: "5" -> "5 seeds", "none" -> "no seeds"."""
    if seeds.isdigit() and seeds != "0":
        return "one seed" if seeds == "1" else f"{seeds} seeds"
    if seeds == "none":
        return "no seeds"
    if seeds.startswith("seed"):
        return seeds
    return f"seed {seeds}" if seeds == "0" else f"seeds {seeds}"


def save(
    fig, name, *, title, alt, data, tier, seeds, notebook, stage, folder=FOLDER
) -> Saved:
    """Write `name.svg` and `name.json`, byte for byte the same for the same drawing,
    and close the figure.

    title: the takeaway, one sentence without full stop (the book prints it; do not draw
    it).  alt: what a reader who cannot see the figure must know.  data: name and kind,
    as "Synthetic(1, 1), synthetic".  seeds: how many, or a list of which, or "none".
    notebook: path in the repository.  stage: the `dvc repro` target.  folder: see
    `drawn`.  The commit is not written: a file cannot know the commit that will hold
    it; the book adds it.
    ValueError for an empty field or an unknown tier.
    """
    meta = dict(name=name, title=title, alt=alt, data=data, tier=tier)
    meta |= dict(seeds=_seeds_as_text(seeds), notebook=notebook, stage=stage)
    empty = [k for k, v in meta.items() if not (isinstance(v, str) and v.strip())]
    if empty or tier not in TIERS or not re.fullmatch(NAME, name):
        raise ValueError(
            f"figure {name!r}, {empty or tier}: every field is a text, it is printed "
            f"with the figure; tier is one of {', '.join(TIERS)}; the name is letters, "
            "digits and - _ . /, beginning with a letter"
        )
    path = drawn(folder) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = svg(fig, title, alt)
    points = re.search(r'viewBox="0 0 (\S+) (\S+)"', text).groups()
    meta["width"], meta["height"] = (round(float(v) / 72, 2) for v in points)  # inches
    picture = path.with_name(path.name + ".svg")
    about = path.with_name(path.name + ".json")
    _write(picture, text)
    _write(about, json.dumps(meta, indent=1, ensure_ascii=False) + "\n")
    plt.close(fig)
    return Saved(picture, meta)


def _seeds_as_text(seeds) -> str:
    """As the file keeps them: 7 -> "7", [1, 3] -> "1, 3", [4] -> "seed 4"; a run of
    three or more by its ends.
    """
    if isinstance(seeds, (str, int)):
        return str(seeds)
    seeds = list(seeds)
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}\u2013{seeds[-1]}"
    return ", ".join(map(str, seeds))


def write_view(name, data: dict, folder) -> Path:
    """Write `name.view.json`, what the book's turnable views read; its path."""
    path = drawn(folder) / f"{name}.view.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, json.dumps(data, separators=(",", ":")) + "\n")
    return path


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def svg(fig, title: str, alt: str) -> str:
    """SVG text without date or program version, two decimals, with <title> and <desc>;
    larger where a label stands out.
    """
    out = io.StringIO()
    with mpl.rc_context({k: RC[k] for k in ("svg.hashsalt", "svg.fonttype")}):
        fig.draw_without_rendering()
        frame = _frame(fig)
        kinds = {"format": "svg", "metadata": {"Date": None}, "transparent": True}
        fig.savefig(out, **kinds, **frame)
    text = out.getvalue()
    for dated in (
        r"\s*<metadata>.*?</metadata>",
        r"<!DOCTYPE.*?>\n?",
        r"<!--.*?-->\s*",
    ):
        text = re.sub(dated, "", text, flags=re.S)
    text = re.sub(NUMBERED, lambda m: re.sub(LONG_NUMBER, _two_decimals, m[0]), text)
    head = f"<title>{html.escape(title)}</title>\n <desc>{html.escape(alt)}</desc>"
    text = re.sub(r"<svg [^>]*>", lambda m: m[0] + head, text, count=1)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _frame(fig) -> dict:
    """Keywords for `savefig`: a larger page where something stands out of the page."""
    page, ink = fig.bbox_inches, fig.get_tightbbox()
    both = mpl.transforms.Bbox.union([page, ink])
    if np.abs(both.extents - page.extents).max() <= 0.01:
        return {}
    return {"bbox_inches": mpl.transforms.Bbox.union([page, ink.padded(0.03)])}


def _two_decimals(number: re.Match) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def inline(text: str, prefix: str, alt: str) -> str:
    """The <svg> element for a page: colours as theme variables, ids unique to `prefix`,
    described by `alt`.
    """
    text = text[text.index("<svg") :]
    described = r"<title>.*?</title>\s*<desc>.*?</desc>"
    text = re.sub(described, "", text, count=1, flags=re.S)
    # in a page it would reach every other picture
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    for name, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--fig-{name}, {light})")
    text = _own_ids(text, prefix)

    def head(m):
        sized = r'\b(?:width|height|version|xmlns:xlink)="[^"]*" ?'
        kept = re.sub(sized, "", m[1]).rstrip()
        return f'<svg {kept} role="img" aria-label="{html.escape(alt)}">'

    text = re.sub(r"<svg ([^>]*)>", head, text, count=1)
    return text.replace("xlink:href", "href").strip()


def _own_ids(text: str, prefix: str) -> str:
    """The SVG with `prefix` before every id that is referred to, without the others."""
    used = {target for _, target in re.findall(REFERENCE + r'([^")]+)', text)}

    def renamed(m):
        return f' id="{prefix}-{m[1]}"' if m[1] in used else ""

    text = re.sub(r' id="([^"]+)"', renamed, text)
    return re.sub(REFERENCE, lambda m: f"{m[1]}{prefix}-", text)
