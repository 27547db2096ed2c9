"""One style for every figure, `save` with provenance, and the standard plots of
the book.

Letters: C clients, R rounds, E evaluated rounds, S seeds. Accuracies are drawn in the
unit they come in.
A figure is one SVG in the light colours below. The book inlines it and swaps each
colour for a CSS variable of the same name (`PALETTE`), so one file serves both themes.
Colour is never the only sign: dash and marker change with it.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import yaml
from scipy.special import stdtrit

from ..measures.statistics import kde, smooth

# name of the CSS variable -> (colour on light ground, colour on dark ground).
# book/_assets/fedbook.css repeats it.
PALETTE = {
    "ink": ("#1f2933", "#e6eaee"),
    "soft": ("#5b6770", "#a9b4be"),
    "grid": ("#d5dbe1", "#3a4450"),
    "paper": ("#ffffff", "#1b2129"),
    "c1": ("#0072b2", "#62b6f0"),
    "c2": ("#a83200", "#ff955c"),
    "c3": ("#0b7f5c", "#3fce9f"),
    "c4": ("#a3478a", "#eba0d2"),
    "c5": ("#907a00", "#e8c04c"),
    "c6": ("#4a4f57", "#ccd3da"),
    "g1": ("#66707b", "#9aa5b1"),
    "g2": ("#868f99", "#7d8894"),
}
INK, SOFT, GRID, PAPER = (PALETTE[k][0] for k in ("ink", "soft", "grid", "paper"))
STRONG = [PALETTE[f"c{i}"][0] for i in range(1, 7)]
DASHES = ["-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2))]
MARKERS = "osD^vP"
# Heat maps on either ground: neither end is as dark as the dark page, and the middle is
# grey, so that blank is blank.
HEAT = mpl.colors.ListedColormap(
    mpl.colormaps["cividis"](np.linspace(0.16, 1, 256)), "heat"
)
SIDES = mpl.colors.LinearSegmentedColormap.from_list(
    "sides", ["#0b5a94", "#5d97c4", "#b9bcc0", "#e08a50", "#b23a00"]
)
TIERS = ("tiny", "small", "paper", "exact", "measured")
# nothing was trained; a benchmark
UNTIERED = {"exact": "drawn from a formula", "measured": "times of one machine"}
SIZE = (4.8, 3.0)  # inches; drawn this small, labels stay readable on a phone


class Style(NamedTuple):
    """How one method looks: palette name, dash, marker, line width in points,
    marker filled or hollow.
    """

    colour: str
    dash: object
    marker: str
    width: float = 1.6
    filled: bool = True


SPARE = [
    Style("ink", dash, mark, 2.0, False)
    for dash in ("-", "--", "-.", ":")
    for mark in ("*", "p", "h", "8")
]


class ByPaper(Mapping):
    """What the papers say of a method, by its name; read from papers/*/style.yaml when
    somebody asks.

    The papers are those of the repository that we work in, else of the one that fedlib
    lies in; without any it is empty. A method that two papers have is drawn as the
    first one says.
    """

    def __init__(self, field: int):
        self.field = field

    def _all(self) -> dict:
        return drawn(root(), Path(__file__).resolve().parents[2])[self.field]

    def __getitem__(self, method: str):
        return self._all()[method]

    def __iter__(self):
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


@cache
def drawn(*places: Path) -> tuple[dict, dict]:
    """({method: Style}, {method: name to print}), of the first place with papers."""
    found = [sorted(p.glob("papers/*/style.yaml"), key=_order) for p in places]
    styles, names = {}, {}
    for path in next(filter(None, found), ()):
        for method, given in yaml.safe_load(path.read_text(encoding="utf-8")).items():
            if method not in styles:
                if "label" in given:
                    names[method] = given.pop("label")
                styles[method] = Style(**given | {"dash": _dash(given["dash"])})
    return styles, names


def _order(path: Path) -> float:
    about = path.with_name("paper.yaml")
    if not about.exists():
        return np.inf
    return yaml.safe_load(about.read_text(encoding="utf-8"))["order"]


def _dash(given):
    """As matplotlib wants it: [0, [3, 1]] -> (0, (3, 1))."""
    return tuple(map(_dash, given)) if isinstance(given, list) else given


# The same colour, dash and marker per method in every figure. Six strong colours,
# then greys.
METHOD_STYLE, LABELS = ByPaper(0), ByPaper(1)


def look(method: str) -> Style:
    """The row of METHOD_STYLE, or for a method of the reader's own an ink line that
    depends on its name only.
    """
    return METHOD_STYLE.get(method) or SPARE[crc32(method.encode()) % len(SPARE)]


def colour(method: str) -> str:
    """Light colour of a method, as #rrggbb."""
    return PALETTE[look(method).colour][0]


def label(method: str) -> str:
    """The name to print."""
    return LABELS.get(method, method)


def style(method: str) -> dict:
    """Keywords for `ax.plot`: colour, dash, marker, width, label."""
    s, c = look(method), colour(method)
    return dict(
        color=c,
        linestyle=s.dash,
        marker=s.marker,
        linewidth=s.width,
        label=label(method),
        markersize=5,
        markerfacecolor=c if s.filled else PAPER,
        markeredgecolor=c,
        zorder=4 if method == "FedGA" else 3,
    )


RC = {
    "figure.figsize": SIZE,
    "figure.constrained_layout.use": True,
    "figure.dpi": 110,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "legend.fontsize": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "image.cmap": "cividis",
    "savefig.transparent": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "fedlib",  # text stays text; ids do not change from run to run
    "axes.prop_cycle": mpl.cycler(color=STRONG, linestyle=DASHES, marker=list(MARKERS)),
}


def use() -> None:
    """Set the style; once per notebook."""
    mpl.rcParams.update(RC)


# ---- saving


class Saved:
    """A figure on disk; as the last line of a notebook cell it shows itself, with its
    alt text and in both themes.
    """

    def __init__(self, path: Path, meta: dict):
        self.path, self.meta = path, meta

    def __repr__(self) -> str:
        return f"Saved({self.path.as_posix()!r})"

    def _repr_html_(self) -> str:
        m = {k: html.escape(str(v)) for k, v in self.meta.items()}
        picture = inline(
            self.path.read_text(encoding="utf-8"),
            "cell-" + self.path.stem,
            self.meta["alt"],
        )
        # an artefact's page
        target = (
            f' id="{m["name"]}"'
            if re.search(r"-(?:figure|table)-\d", self.meta["name"])
            else ""
        )
        return (
            f'<figure class="fedfig"{target}>{picture}<figcaption><b>{m["title"]}.</b> '
            f"<small>{html.escape(origin(self.meta))}</small></figcaption></figure>"
        )


def origin(meta: dict) -> str:
    """Where a figure comes from, in one line:
    "Synthetic(1, 1), synthetic · tier small · 5 seeds".
    """
    seeds, tier = meta["seeds"], UNTIERED.get(meta["tier"], f"tier {meta['tier']}")
    if seeds.isdigit() and seeds != "0":
        seeds = "one seed" if seeds == "1" else f"{seeds} seeds"
    elif seeds == "none":
        seeds = "no seeds"
    elif not seeds.startswith("seed"):
        seeds = f"seed{'' if seeds == '0' else 's'} {seeds}"
    return " · ".join([meta["data"], tier, seeds])


def save(
    fig,
    name,
    *,
    title,
    alt,
    data,
    tier,
    seeds,
    notebook,
    stage,
    folder="results/figures",
) -> Saved:
    """Write `name.svg` and `name.json`, byte for byte the same for the same drawing,
    and close the figure.

    title: the takeaway, one sentence without full stop (the book prints it; do not draw
    it).  alt: what a reader who cannot see the figure must know.  data: name and kind,
    as "Synthetic(1, 1), synthetic".  seeds: how many, or a list of which, or "none".
    notebook: path in the repository.  stage: the `dvc repro` target.  A relative folder
    counts from the repository's root. The commit is not written: a file cannot know the
    commit that will hold it; the book adds it.
    ValueError for an empty field or an unknown tier.
    """
    if not isinstance(seeds, (str, int)):
        seeds = list(seeds)
        run = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds)))
        seeds = (
            f"{seeds[0]}\u2013{seeds[-1]}"
            if run
            else ", ".join(map(str, seeds))
            if len(seeds) > 1
            else f"seed {seeds[0]}"
        )
    meta = dict(
        name=name,
        title=title,
        alt=alt,
        data=data,
        tier=tier,
        seeds=str(seeds),
        notebook=notebook,
        stage=stage,
    )
    for field, value in meta.items():
        if not isinstance(value, str) or not value.strip():
            raise ValueError(
                f"figure {name!r}: {field} is {value!r}; give a non-empty text, it is "
                "printed with the figure"
            )
    if tier not in TIERS:
        raise ValueError(
            f"figure {name!r}: unknown tier {tier!r}; use one of {', '.join(TIERS)}"
        )
    if not re.fullmatch(r"[A-Za-z][\w/.+-]*", name):
        raise ValueError(
            f"figure name {name!r}: use letters, digits and - _ . /, beginning "
            "with a letter"
        )
    path = root() / folder / name  # an absolute folder wins over the root
    path.parent.mkdir(parents=True, exist_ok=True)
    text = svg(fig, title, alt)
    view = re.search(r'viewBox="0 0 (\S+) (\S+)"', text)
    # inches
    meta["width"], meta["height"] = (round(float(v) / 72, 2) for v in view.groups())
    path.with_name(path.name + ".svg").write_text(text, encoding="utf-8", newline="\n")
    path.with_name(path.name + ".json").write_text(
        json.dumps(meta, indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
        newline="\n",
    )
    plt.close(fig)
    return Saved(path.with_name(path.name + ".svg"), meta)


def root() -> Path:
    """The repository's root: the nearest folder above the working directory with a
    pyproject.toml, else that directory.
    """
    here = Path.cwd()
    return next(
        (p for p in (here, *here.parents) if (p / "pyproject.toml").exists()), here
    )


def svg(fig, title: str, alt: str) -> str:
    """SVG text without date or program version, two decimals, with <title> and <desc>;
    larger where a label stands out.
    """
    out, more = io.StringIO(), {}
    with mpl.rc_context({"svg.hashsalt": RC["svg.hashsalt"], "svg.fonttype": "none"}):
        fig.draw_without_rendering()
        page, ink = fig.bbox_inches, fig.get_tightbbox()
        if (
            ink.x0 < page.x0 - 0.01
            or ink.y0 < page.y0 - 0.01
            or ink.x1 > page.x1 + 0.01
            or ink.y1 > page.y1 + 0.01
        ):
            more = {"bbox_inches": mpl.transforms.Bbox.union([page, ink.padded(0.03)])}
        fig.savefig(
            out, format="svg", metadata={"Date": None}, transparent=True, **more
        )
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", out.getvalue(), flags=re.S)
    text = re.sub(r"<!DOCTYPE.*?>\n?", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)

    def shorter(m):
        return re.sub(
            r"-?\d+\.\d{3,}(?!\d|e)",
            lambda v: f"{float(v[0]):.2f}".rstrip("0").rstrip("."),
            m[0],
        )

    text = re.sub(
        r'(?:\b(?:d|x|y|x1|x2|y1|y2|width|height|points)="[^"]*"|(?:translate|'
        r"rotate)\([^)]*\))",
        shorter,
        text,
    )
    head = f"<title>{html.escape(title)}</title>\n <desc>{html.escape(alt)}</desc>"
    text = re.sub(r"<svg [^>]*>", lambda m: m[0] + head, text, count=1)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def inline(text: str, prefix: str, alt: str) -> str:
    """The <svg> element for a page: colours as theme variables, ids unique to `prefix`,
    described by `alt`.
    """
    text = text[text.index("<svg") :]
    text = re.sub(
        r"<title>.*?</title>\s*<desc>.*?</desc>", "", text, count=1, flags=re.S
    )
    # in a page it would reach every other picture
    text = re.sub(r"<style.*?</style>", "", text, flags=re.S)
    for name, (light, _) in PALETTE.items():
        text = text.replace(light, f"var(--fig-{name}, {light})")
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    text = re.sub(
        r' id="([^"]+)"',
        lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "",
        text,
    )
    text = re.sub(r'(url\(#|href="#)', lambda m: f"{m[1]}{prefix}-", text)

    def head(m):
        kept = re.sub(
            r'\b(?:width|height|version|xmlns:xlink)="[^"]*" ?', "", m[1]
        ).rstrip()
        return f'<svg {kept} role="img" aria-label="{html.escape(alt)}">'

    return (
        re.sub(r"<svg ([^>]*)>", head, text, count=1)
        .replace("xlink:href", "href")
        .strip()
    )


# ---- placing labels


def spread(y, gap: float, low: float = -np.inf, high: float = np.inf) -> np.ndarray:
    """Positions nearest to y [n] (least squares) that keep their order and lie at least
    `gap` apart.

    With z_i = y_i - i gap this is monotone regression: pool neighbours that are out
    of order.
    """
    y = np.asarray(y, float)
    order = np.argsort(y, kind="stable")
    pools = []  # [sum, count]
    for rank, i in enumerate(order):
        pools.append([y[i] - rank * gap, 1])
        while (
            len(pools) > 1
            and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]
        ):
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    z = np.concatenate([np.full(c, s / c) for s, c in pools]) if pools else y
    z = np.minimum(np.maximum(z, low), max(low, high - (len(y) - 1) * gap))
    out = np.empty_like(y)
    out[order] = z + np.arange(len(y)) * gap
    return out


def label_ends(ax, ends: dict, notes: dict | None = None) -> None:
    """Write each method's name to the right of its line's end (x, y),
    moved apart where they would collide.
    """
    fig = ax.get_figure()
    fig.draw_without_rendering()
    point = 72 / fig.dpi  # points per pixel
    xy = {m: ax.transData.transform(p) * point for m, p in ends.items()}
    box = ax.get_window_extent()
    want = spread(
        [p[1] for p in xy.values()], 11.5, box.y0 * point - 4, box.y1 * point + 6
    )
    right = max(p[0] for p in xy.values())
    moved = {m: abs(y_new - y) > 3 for (m, (_, y)), y_new in zip(xy.items(), want)}
    # room for the short lines that lead to the names
    gap = 13 if any(moved.values()) else 7
    for (m, (x, y)), y_new in zip(xy.items(), want):
        text = label(m) + (f"  {notes[m]}" if notes and m in notes else "")
        ax.annotate(
            text,
            ends[m],
            (right - x + gap, y_new - y),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=text_colour(m),
            annotation_clip=False,
            fontweight="bold" if m == "FedGA" else "normal",
            arrowprops=dict(
                arrowstyle="-",
                color=colour(m),
                lw=0.7,
                relpos=(0, 0.5),
                shrinkA=1,
                shrinkB=3,
            )
            if moved[m]
            else None,
        )


def text_colour(method: str) -> str:
    """Colour of a method's name: the pale grey of some lines is too
    pale for letters.
    """
    return PALETTE["g1"][0] if look(method).colour == "g2" else colour(method)


SIDES_OF_A_POINT = [
    (dx, dy, r)
    for r in (7, 14, 22)
    for dx, dy in (
        (1, 0),
        (-1, 0),
        (0, 1),
        (0, -1),
        (0.75, 0.75),
        (-0.75, 0.75),
        (0.75, -0.75),
        (-0.75, -0.75),
    )
]


def text_box(x, y, w, h, side) -> np.ndarray:
    """Box (x0, y0, x1, y1) of a text of width w and height h on one side of the point
    (x, y); all in points.
    """
    dx, dy, r = side
    left = x + dx * r - (w if dx < 0 else w / 2 if dx == 0 else 0)
    middle = y + dy * r + dy * h / 3
    return np.array([left, middle - h / 2, left + w, middle + h / 2])


def label_points(
    ax, points: dict, names: dict | None = None, size: float = 9, avoid=()
) -> None:
    """Write a name beside each point (x, y), on the side where it covers least;
    `avoid`: lines [n, 2] to keep clear of.
    """
    fig = ax.get_figure()
    fig.draw_without_rendering()
    point, frame = 72 / fig.dpi, ax.get_window_extent()
    frame = np.array([frame.x0, frame.y0, frame.x1, frame.y1]) * point
    xy = {m: ax.transData.transform(p) * point for m, p in points.items()}
    taken = [np.array([x - 4, y - 4, x + 4, y + 4]) for x, y in xy.values()]
    ink = (
        np.concatenate([ax.transData.transform(line) * point for line in avoid])
        if len(avoid)
        else np.empty((0, 2))
    )

    def cost(box, far):
        covered = sum(
            np.maximum(
                0, np.minimum(box[2:], t[2:]) - np.maximum(box[:2], t[:2])
            ).prod()
            for t in taken
        )
        outside = (
            np.maximum(0, frame[:2] - box[:2]).sum()
            + np.maximum(0, box[2:] - frame[2:]).sum()
        )
        hit = ((ink > box[:2] - 1) & (ink < box[2:] + 1)).all(1).sum()
        return covered + 8 * outside + 12 * hit + far

    for m, (x, y) in xy.items():
        text = (names or {}).get(m, label(m))
        w, h = 0.62 * size * len(text), 1.25 * size
        boxes = [(text_box(x, y, w, h, side), side) for side in SIDES_OF_A_POINT]
        box, (dx, dy, r) = min(boxes, key=lambda b: cost(b[0], b[1][2]))
        taken.append(box)
        ax.annotate(
            text,
            points[m],
            (dx * r, dy * r + dy * h / 3),
            textcoords="offset points",
            fontsize=size,
            color=text_colour(m),
            va="center",
            ha="left" if dx > 0 else "right" if dx < 0 else "center",
            fontweight="bold" if m == "FedGA" else "normal",
            annotation_clip=False,
            arrowprops=dict(arrowstyle="-", color=SOFT, lw=0.6, shrinkA=0, shrinkB=4)
            if r > 7
            else None,
        )


# ---- numbers behind the plots


def interval(values, level: float = 0.95):
    """Mean and half-width [...] over the seeds of values [S, ...], Student's t;
    half-width 0 for one seed.
    """
    v = np.asarray(values, float)
    n = len(v)
    if n < 2:
        return v.mean(0), np.zeros(v.shape[1:])
    return v.mean(0), stdtrit(n - 1, 0.5 + level / 2) * v.std(0, ddof=1) / np.sqrt(n)


def band(values, level: float = 0.95):
    """Mean and half-width to draw: `interval` from three seeds on; two seeds are drawn
    as their range, one as a line.
    """
    v = np.asarray(values, float)
    return (v.mean(0), (v.max(0) - v.min(0)) / 2) if len(v) == 2 else interval(v, level)


def by_client(cohort, values, C: int) -> np.ndarray:
    """Values [R, M] of the cohorts [R, M] as a matrix [C, R]; nan where a client was
    absent. A client below 0 is nobody.
    """
    cohort, values = np.asarray(cohort, int), np.asarray(values, float)
    if cohort.shape != values.shape:
        raise ValueError(
            f"by_client: cohort {cohort.shape} and values {values.shape} differ; give "
            "one value per client"
        )
    out = np.full((C, len(cohort)), np.nan)
    there, at = (
        cohort >= 0,
        np.broadcast_to(np.arange(len(cohort))[:, None], cohort.shape),
    )
    out[cohort[there], at[there]] = values[there]
    return out


def staleness(cohort, C: int) -> np.ndarray:
    """Rounds since each client was last online [C, R], from the cohorts [R, M]; 0 when
    it is, counted from the start at first.
    """
    online = np.isfinite(by_client(cohort, np.zeros(np.shape(cohort)), C))
    out = np.zeros(online.shape)
    for t in range(online.shape[1]):
        out[:, t] = np.where(online[:, t], 0, (out[:, t - 1] if t else 0) + 1)
    return out


def _check(where: str, rows: dict, width: int | None = None) -> dict:
    """The rows as float arrays; ValueError if there are none or a row has another last
    axis than `width`.
    """
    if not rows:
        raise ValueError(f"{where}: no method to draw; give a dict of method -> array")
    out = {m: np.asarray(v, float) for m, v in rows.items()}
    for m, v in out.items():
        if v.size == 0 or (width is not None and v.shape[-1] != width):
            raise ValueError(
                f"{where}: {m} has shape {v.shape}, its last axis must have "
                f"{width or 'some'} entries"
            )
    return out


# ---- standard plots


def curves_with_interval(
    rounds, curves: dict, ax, *, level=0.95, window=1, direct=True, notes=None
):
    """Mean over seeds of curves {method: [S, E] or [E]} against rounds [E], with the
    interval of the mean as a band (see `band`).

    rounds: one array, or {method: [E]} where methods were looked at in different
    rounds. window: centred moving average over that many evaluations, before the
    interval is taken. Names stand at the lines' ends.
    """
    own = (
        rounds
        if isinstance(rounds, dict)
        else dict.fromkeys(_check("curves_with_interval", curves, len(rounds)), rounds)
    )
    own = {m: np.asarray(own[m]) for m in curves}
    curves = {
        m: smooth(
            np.atleast_2d(_check("curves_with_interval", {m: v}, len(own[m]))[m]),
            window,
        )
        for m, v in curves.items()
    }
    for i, (m, v) in enumerate(curves.items()):
        mean, half = band(v, level)
        step = max(1, len(own[m]) // 7)
        ax.plot(own[m], mean, markevery=((i * step) // len(curves), step), **style(m))
        if len(v) > 1:
            ax.fill_between(
                own[m],
                mean - half,
                mean + half,
                color=colour(m),
                alpha=0.16,
                linewidth=0,
            )
    ax.set_xlabel("round")
    whole = all(np.all(x == np.round(x)) for x in own.values())
    ax.xaxis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=bool(whole)))
    ax.margins(x=0.01)
    if direct:
        label_ends(
            ax, {m: (own[m][-1], v.mean(0)[-1]) for m, v in curves.items()}, notes
        )
    else:
        ax.legend(ncols=2)
    return ax


def series(x, values, ax, *, i=0, level=0.95, **more):
    """One quantity that belongs to no method: mean over seeds of values [S, E]
    against x [E], with a band; i chooses the look.
    """
    v = np.atleast_2d(values)
    mean, half = band(v, level)
    c = STRONG[i % len(STRONG)]
    ax.plot(
        x,
        mean,
        color=c,
        ls=DASHES[i % len(DASHES)],
        marker=MARKERS[i % len(MARKERS)],
        ms=4,
        **more,
    )
    if len(v) > 1:
        ax.fill_between(x, mean - half, mean + half, color=c, alpha=0.16, lw=0)
    ax.xaxis.set_major_locator(
        mpl.ticker.MaxNLocator(
            "auto", integer=bool(np.all(np.asarray(x) == np.round(x)))
        )
    )
    return ax


def gini_curves(rounds, curves: dict, ax, *, window=10, level=0.95):
    """Gini coefficient per round, smoothed; the number after each name is the area
    under the unsmoothed mean curve.
    """
    rounds = np.asarray(rounds, float)
    area = {
        m: f"{np.trapezoid(np.atleast_2d(v).mean(0), rounds):.1f}"
        for m, v in curves.items()
    }
    curves_with_interval(rounds, curves, ax, window=window, level=level, notes=area)
    ax.set_ylabel("Gini coefficient")
    return ax


def _rows(ax, names: list[str]) -> np.ndarray:
    """Horizontal categories, first name on top:
    names are read without turning the head, on a phone too.
    """
    at = np.arange(len(names))[::-1].astype(float)
    ax.set_yticks(at, [label(m) for m in names])
    for tick, m in zip(ax.get_yticklabels(), names):
        tick.set(
            color=text_colour(m) if m in METHOD_STYLE else INK,
            fontweight="bold" if m == "FedGA" else "normal",
        )
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.grid(axis="x", visible=True)
    ax.spines["left"].set_visible(False)
    ax.set_ylim(-0.6, len(names) - 0.4)
    return at


def violins(values: dict, ax, *, bounds=(0, 100), part=0.1):
    """Distribution of client accuracies {method: [C] or [S, C]}; bar: median, triangle:
    mean of the worst `part`.
    """
    values = _check("violins", values)
    grid = np.linspace(*bounds, 201)
    for y, (m, v) in zip(_rows(ax, list(values)), values.items()):
        d = kde(v, grid, bounds)
        d = 0.42 * d / d.max()
        keep = d > 0.004
        ax.fill_between(
            grid[keep],
            y - d[keep],
            y + d[keep],
            color=colour(m),
            alpha=0.32,
            linewidth=0,
        )
        ax.plot(grid[keep], y + d[keep], color=colour(m), lw=1, marker="", ls="-")
        ax.plot(grid[keep], y - d[keep], color=colour(m), lw=1, marker="", ls="-")
        ax.plot(
            [np.median(v)] * 2,
            [y - 0.24, y + 0.24],
            color=INK,
            lw=2,
            marker="",
            ls="-",
            solid_capstyle="butt",
            clip_on=False,
        )
        seeds = np.sort(np.atleast_2d(v), -1)
        ax.plot(
            seeds[:, : max(1, int(part * seeds.shape[-1]))].mean(),
            y,
            marker=">",
            color=INK,
            ls="",
            markersize=6,
            markerfacecolor=PAPER,
            clip_on=False,
            zorder=5,
        )
    ax.set_xlim(*bounds)
    return ax


def densities(values: dict, ax, *, bounds=(0, 100)):
    """Smoothed distribution of client accuracies {method: [C] or [S, C]}, at most six
    lines; names at the peaks.
    """
    values = _check("densities", values)
    grid = np.linspace(*bounds, 201)
    peaks, lines = {}, []
    for i, (m, v) in enumerate(values.items()):
        d = kde(v, grid, bounds)
        lines.append(np.stack([grid, d], 1))
        ax.plot(grid, d, markevery=(4 * i, 28), **style(m))
        peaks[m] = (grid[d.argmax()], d.max())
    ax.set(
        xlim=bounds,
        ylim=(0, 1.12 * max(p[1] for p in peaks.values())),
        yticks=[],
        ylabel="share of clients",
    )
    label_points(ax, peaks, avoid=lines)
    return ax


def bars_with_error(values: dict, ax, *, reported: dict | None = None, level=0.95):
    """Horizontal bars {method: [S] or (mean, low, high)} with intervals; a hollow
    diamond marks the reported value.

    A tuple is drawn as it is; an array counts as one value per seed.
    """
    _check("bars_with_error", values)
    for y, (m, v) in zip(_rows(ax, list(values)), values.items()):
        if isinstance(v, tuple):
            mean, low, high = v
        else:
            mean, half = band(np.atleast_1d(np.asarray(v, float)), level)
            low, high = mean - half, mean + half
        s = look(m)
        ax.barh(
            y,
            mean,
            height=0.62,
            color=colour(m) if s.filled else PAPER,
            alpha=0.75 if s.filled else 1,
            edgecolor=colour(m),
            hatch=None if s.filled else "////",
            linewidth=1,
        )
        if low < high:
            ax.plot(
                [low, high], [y, y], color=INK, lw=1.4, marker="|", markersize=7, ls="-"
            )
        if reported and m in reported:
            ax.plot(
                reported[m],
                y,
                marker="D",
                color=INK,
                ls="",
                markerfacecolor=PAPER,
                markersize=6,
                zorder=5,
            )
    ax.axvline(0, color=SOFT, lw=0.8, marker="", ls="-")
    return ax


def radar(values: dict, axes: list[str], ax):
    """Scores {method: [k]} in [0, 1] on k spokes, outside is better; `ax` must be
    polar. Scale before: see `outside_better`.
    """
    values = _check("radar", values, len(axes))
    if ax.name != "polar":
        raise ValueError(
            "radar: ax is not polar; make it with "
            'plt.subplots(subplot_kw={"projection": "polar"})'
        )
    turn = np.linspace(0, 2 * np.pi, len(axes), endpoint=False)
    ax.set_theta_offset(np.pi / 2)
    ax.set_theta_direction(-1)
    for m, v in values.items():
        ax.plot([*turn, turn[0]], [*v, v[0]], **style(m))
    best = "FedGA" if "FedGA" in values else None
    if best:
        ax.fill(turn, values[best], color=colour(best), alpha=0.15, linewidth=0)
    ax.set_xticks(turn, [""] * len(axes))
    for t, word in zip(turn, axes):
        side = round(np.sin(t), 6)
        ax.text(
            t,
            1.16,
            word,
            ha="left" if side > 0 else "right" if side < 0 else "center",
            va="center",
        )
    ax.set_yticks([0.25, 0.5, 0.75, 1.0], [])
    ax.set_ylim(0, 1.04)
    ax.grid(True, axis="both")
    ax.spines["polar"].set_color(GRID)
    ax.get_figure().legend(*ax.get_legend_handles_labels(), loc="outside right center")
    return ax


def outside_better(table, lower_is_better) -> np.ndarray:
    """Columns of table [methods, k] stretched to [0, 1] over the methods, 1 the best; a
    constant column gives 1.
    """
    t = np.asarray(table, float)
    t = np.where(np.asarray(lower_is_better, bool), -t, t)
    low, high = t.min(0), t.max(0)
    return np.where(high > low, (t - low) / np.where(high > low, high - low, 1), 1.0)


def scatter_labelled(points: dict, ax, *, size: dict | None = None):
    """One marker per method at (x, y), named beside it; size {method: area in points^2}
    may carry a third number.
    """
    _check("scatter_labelled", points, 2)
    for m, (x, y) in points.items():
        s = look(m)
        ax.scatter(
            x,
            y,
            s=(size or {}).get(m, 46),
            marker=s.marker,
            color=colour(m) if s.filled else PAPER,
            edgecolor=colour(m),
            linewidth=1.2,
            zorder=4,
        )
    ax.margins(0.16)
    ax.grid(True, axis="both")
    label_points(ax, points)
    return ax


def lorenz(values: dict, ax):
    """Lorenz curve of client accuracies {method: [C]}: the share of all accuracy held
    by the worst x of the clients.
    """
    middle, lines = {}, []
    for i, (m, v) in enumerate(_check("lorenz", values).items()):
        share = np.concatenate([[0], np.cumsum(np.sort(v.ravel()))])
        x = np.linspace(0, 1, len(share))
        share = share / share[-1] if share[-1] > 0 else x
        ax.plot(x, share, markevery=0.16, **style(m))
        lines.append(np.stack([x, share], 1))
        k = int(len(x) * (0.4 + 0.13 * i))
        middle[m] = (x[min(k, len(x) - 1)], share[min(k, len(x) - 1)])
    ax.plot([0, 1], [0, 1], color=SOFT, ls="-", lw=0.9, marker="")
    ax.annotate(
        "all equal",
        (0.3, 0.3),
        (-6, 4),
        textcoords="offset points",
        ha="right",
        color=SOFT,
        fontsize=9,
    )
    ax.set(
        xlabel="share of clients, worst first",
        ylabel="their share of accuracy",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    label_points(ax, middle, avoid=lines)
    return ax


def microscope(
    rounds, values, ax, *, order=None, name="accuracy", centre=None, bounds=None
):
    """Client x round heat map of values [C, R]; nan (absent) stays blank; returns
    the image.

    order [C]: sort clients by it, largest on top (size, or final accuracy).  centre:
    middle of a two-sided scale.
    """
    v = np.asarray(values, float)
    rounds = np.asarray(rounds)
    if v.ndim != 2 or v.shape[1] != len(rounds):
        raise ValueError(
            f"microscope: values have shape {v.shape}; give [C, {len(rounds)}], one "
            "column per round"
        )
    if order is not None:
        v = v[np.argsort(-np.asarray(order, float), kind="stable")]
    low, high = bounds or (np.nanmin(v), np.nanmax(v))
    if centre is not None:
        reach = max(high - centre, centre - low)
        low, high = centre - reach, centre + reach
    step = (rounds[-1] - rounds[0]) / max(1, len(rounds) - 1) or 1
    image = ax.imshow(
        np.ma.masked_invalid(v),
        aspect="auto",
        interpolation="none",
        vmin=low,
        vmax=high,
        cmap=HEAT if centre is None else SIDES,
        extent=(rounds[0] - step / 2, rounds[-1] + step / 2, len(v) + 0.5, 0.5),
    )
    ax.grid(False)
    ax.spines[:].set_visible(False)
    ax.set(xlabel="round", ylabel="client, in order" if order is not None else "client")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(mpl.ticker.MaxNLocator("auto", integer=True))
    bar = ax.get_figure().colorbar(image, ax=ax, pad=0.02, aspect=28)
    bar.set_label(name)
    bar.outline.set_visible(False)
    return image


def contours(surfaces: dict, axes, *, extent=(-1, 1), levels=14, name="loss"):
    """Filled contours of surfaces {method: [n, n]} side by side on one scale; the flat
    partner of the 3-D view.
    """
    top = max(np.max(z) for z in _check("contours", surfaces).values())
    low = min(np.min(z) for z in surfaces.values())
    axes = np.atleast_1d(axes)
    for a, (m, z) in zip(axes, surfaces.items()):
        x = np.linspace(*extent, np.asarray(z).shape[1])
        drawn = a.contourf(x, x, z, levels=np.linspace(low, top, levels + 1))
        # white in both themes
        a.plot(0, 0, marker="+", color="#fefefe", markersize=9, ls="")
        a.grid(False)
        a.set(
            title=label(m),
            xlabel="direction 1",
            aspect="equal",
            xticks=[extent[0], 0, extent[1]],
            yticks=[extent[0], 0, extent[1]],
        )
    axes[0].set_ylabel("direction 2")
    bar = axes[0].get_figure().colorbar(drawn, ax=list(axes), shrink=0.75, aspect=24)
    bar.set_label(name)
    bar.outline.set_visible(False)
    bar.locator = mpl.ticker.MaxNLocator(5)
    bar.update_ticks()


def save_surface(
    name,
    surfaces: dict,
    *,
    extent=(-1, 1),
    axes=("direction 1", "direction 2", "loss"),
    folder="results/figures",
) -> Path:
    """JSON for the book's turnable view: surfaces {method: [n, n]}, four significant
    digits. ValueError if not finite.
    """
    for m, z in _check("save_surface", surfaces).items():
        if z.ndim != 2 or not np.isfinite(z).all():
            raise ValueError(
                f"save_surface {name!r}: {m} has shape {z.shape} or values that are "
                "not finite; clip it first"
            )
    data = {
        "kind": "surface",
        "extent": list(extent),
        "axes": list(axes),
        "z": {
            label(m): [[float(f"{v:.4g}") for v in row] for row in np.asarray(z)]
            for m, z in surfaces.items()
        },
    }
    return _write_json(name, data, folder)


def save_cloud(name, points: dict, *, axes, folder="results/figures") -> Path:
    """JSON for the book's turnable 3-D scatter: points {method: (x, y, z)},
    drawn with the methods' colours.
    """
    _check("save_cloud", points, 3)
    data = {
        "kind": "cloud",
        "axes": list(axes),
        "points": [
            {
                "name": label(m),
                "colour": look(m).colour,
                "at": [float(f"{v:.6g}") for v in p],
            }
            for m, p in points.items()
        ],
    }
    return _write_json(name, data, folder)


def _write_json(name, data, folder) -> Path:
    path = root() / folder / f"{name}.view.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(data, separators=(",", ":")) + "\n", encoding="utf-8", newline="\n"
    )
    return path


def critical_difference(ranks: dict, cd: float, ax):
    """Average ranks {method: rank} on a line, 1 best; methods closer than `cd` are
    joined: not told apart (Demsar 2006).
    """
    _check("critical_difference", ranks)
    names = sorted(ranks, key=ranks.get)
    r = np.array([ranks[m] for m in names], float)
    k = len(names)
    half = (k + 1) // 2
    groups, last = [], -1
    for i in range(k):
        j = int(np.flatnonzero(r <= r[i] + cd)[-1])
        if j > i and j > last:
            groups.append((r[i], r[j]))
            last = j
    deep = 0.28 + 0.16 * len(groups)
    ax.plot([1, k], [0, 0], color=SOFT, lw=1.2, marker="", ls="-")
    for t in range(1, k + 1):
        ax.plot([t, t], [0, 0.09], color=SOFT, lw=1, marker="", ls="-")
        ax.text(t, 0.14, str(t), ha="center", va="bottom", fontsize=9, color=INK)
    for i, (m, at) in enumerate(zip(names, r)):
        left = i < half
        y = -deep - 0.3 * (i if left else k - 1 - i)
        edge = 1 - 0.1 if left else k + 0.1
        ax.plot(
            [at, at, edge],
            [0, y, y],
            color=colour(m),
            lw=1.2,
            marker="",
            ls="-",
            clip_on=False,
        )
        ax.plot(
            at,
            0,
            color=colour(m),
            marker=look(m).marker,
            markersize=6,
            ls="",
            markerfacecolor=colour(m) if look(m).filled else PAPER,
            zorder=5,
        )
        ax.text(
            edge - 0.08 if left else edge + 0.08,
            y,
            f"{label(m)}  {at:.2f}",
            va="center",
            fontsize=9,
            ha="right" if left else "left",
            color=text_colour(m),
            fontweight="bold" if m == "FedGA" else "normal",
        )
    for g, (low, high) in enumerate(groups):
        y = -0.14 - 0.16 * g
        ax.plot(
            [low - 0.05, high + 0.05],
            [y, y],
            color=INK,
            lw=3.2,
            marker="",
            ls="-",
            solid_capstyle="round",
        )
    ax.plot(
        [1, 1 + cd], [0.62, 0.62], color=INK, lw=1.4, marker="|", markersize=7, ls="-"
    )
    ax.text(
        1 + cd / 2,
        0.68,
        f"critical difference {cd:.2f}",
        ha="center" if cd > 1.5 else "left",
        va="bottom",
        fontsize=9,
    )
    ax.set(xlim=(0.7, k + 0.3), ylim=(-deep - 0.3 * half, 1.0))
    ax.axis("off")
    return ax


def vectors(arrows: dict, ax, *, notes: dict | None = None):
    """Arrows {name: (x, y)} from the origin in the plane, named at their tips;
    for pictures of gradients.
    """
    _check("vectors", arrows, 2)
    tips = np.array([(0, 0), *arrows.values()], float)
    low, high = tips.min(0), tips.max(0)
    pad = 0.14 * (high - low).max()
    for m, (x, y) in arrows.items():
        known = m in METHOD_STYLE
        ax.annotate(
            "",
            (x, y),
            (0, 0),
            arrowprops=dict(
                arrowstyle="-|>",
                color=colour(m) if known else SOFT,
                shrinkA=0,
                shrinkB=0,
                lw=look(m).width if known else 1.4,
                linestyle=look(m).dash if known else "-",
            ),
        )
    ax.axhline(0, color=GRID, lw=0.8, marker="", ls="-")
    ax.axvline(0, color=GRID, lw=0.8, marker="", ls="-")
    ax.set(
        xlim=(low[0] - pad, high[0] + pad),
        ylim=(low[1] - pad, high[1] + pad),
        aspect="equal",
    )
    shafts = [np.linspace(0.1, 1, 24)[:, None] * np.asarray(v) for v in arrows.values()]
    label_points(
        ax,
        arrows,
        avoid=shafts,
        names={m: (notes or {}).get(m, label(m)) for m in arrows},
    )
    return ax


def above(z, clip=5.0) -> np.ndarray:
    """Loss above the model's own: z [p, p] less its middle value, at most `clip`; what
    landscapes and their 3-D views draw.
    """
    z = np.asarray(z, float)
    if (
        z.ndim != 2
        or z.shape[0] != z.shape[1]
        or len(z) % 2 == 0
        or not np.isfinite(z).all()
    ):
        raise ValueError(
            f"above: z has shape {z.shape} or values that are not finite; give a "
            "square grid of odd size, finite"
        )
    return np.minimum(z - z[len(z) // 2, len(z) // 2], clip)


def ladder(top: float, rungs: int = 8) -> np.ndarray:
    """Levels 0 and then 1, 2, 5, 10, ... times a power of ten,
    the last at or just above `top`.
    """
    k = next(
        k
        for k in range(-36, 37)
        if (1, 2, 5)[k % 3] * 10.0 ** (k // 3) >= top * (1 - 1e-9)
    )
    return np.array(
        [
            0.0,
            *(
                float(f"{(1, 2, 5)[i % 3]}e{i // 3}")
                for i in range(k - rungs + 1, k + 1)
            ),
        ]
    )


def landscapes(
    surfaces: dict,
    axes,
    *,
    radius=1.0,
    clip=5.0,
    levels=None,
    notes: dict | None = None,
    name="loss above the model's",
):
    """Contours of `above(z, clip)` for surfaces {name: losses [p, p], [y, x]} in a row
    or grid of axes, all on one scale.

    Every panel has the same limits, levels and colours. levels: increasing, from 0
    (None: `ladder`, so that the bottom of a basin is resolved as well as its rim); each
    band has one colour. notes {name: a line under its title}. Returns the levels.
    """
    v = {m: above(z, clip) for m, z in _check("landscapes", surfaces).items()}
    axes = np.atleast_2d(axes)
    if axes.size != len(v):
        raise ValueError(
            f"landscapes: {len(v)} surfaces and {axes.size} axes; give one for each"
        )
    top, sunk = max(z.max() for z in v.values()), min(z.min() for z in v.values()) < 0
    cut = any((z == clip).any() for z in v.values())
    if levels is None:
        levels = ladder(top if top > 0 else 1.0)
        levels[-1] = clip if cut else levels[-1]
    levels = np.asarray(levels, float)
    low = "min" if sunk else "neither"
    norm = mpl.colors.BoundaryNorm(levels, HEAT.N, extend=low)
    for k, (a, (m, z)) in enumerate(zip(axes.flat, v.items())):
        x = radius * np.linspace(-1, 1, len(z))
        drawn = a.contourf(x, x, z, levels=levels, cmap=HEAT, norm=norm, extend=low)
        # also hides the seams of the bands
        a.contour(
            x, x, z, levels=levels[1:], colors="#fefefe", linewidths=0.5, alpha=0.55
        )
        a.plot(
            0, 0, marker="+", color="#fefefe", markersize=9, markeredgewidth=1.4, ls=""
        )
        a.grid(False)
        a.spines[:].set_visible(False)
        at = [-radius, 0, radius]
        a.set(aspect="equal", xticks=at, yticks=at)
        a.set_title(
            label(m) + (f"\n{notes[m]}" if notes and m in notes else ""), fontsize=9
        )
        # inwards, clear of the next panel's
        for text, side in zip(a.get_xticklabels(), ("left", "center", "right")):
            text.set_horizontalalignment(side)
        row, column = divmod(k, axes.shape[1])
        if row == axes.shape[0] - 1:
            a.set_xlabel("direction 1")
        else:
            a.set_xticklabels([])
        if column == 0:
            a.set_ylabel("direction 2")
        else:
            a.set_yticklabels([])
    bar = (
        axes[0, 0]
        .get_figure()
        .colorbar(
            drawn,
            ax=list(axes.flat),
            shrink=0.85,
            aspect=22,
            spacing="uniform",
            pad=0.02,
        )
    )
    bar.set_label(name)
    bar.outline.set_visible(False)
    bar.set_ticks(
        levels,
        labels=[
            *(f"{t:g}" for t in levels[:-1]),
            ("\u2265 " if cut else "") + f"{levels[-1]:g}",
        ],
    )
    bar.ax.tick_params(length=0)
    return levels


def dots(values: dict, ax, *, of: dict | None = None, log=False, level=0.95):
    """One row per name: a dot per seed, the mean of values {name: [S]} and its interval
    (see `band`); for scalar measures.

    of {name: method}: whose colour and marker a row has, where its name is not a
    method's.  log: logarithmic axis, mean and interval of the logarithms, so values
    must be positive.
    """
    values = {m: np.atleast_1d(v) for m, v in _check("dots", values).items()}
    for m, v in values.items():
        if v.ndim != 1 or not np.isfinite(v).all() or (log and v.min() <= 0):
            raise ValueError(
                f"dots: {m} has values {v}; give one finite "
                f"{'positive ' if log else ''}number per seed"
            )
    at = _rows(ax, list(values))
    # none where a panel shares its axis with the first
    ticks = dict(zip(values, ax.get_yticklabels()))
    for y, (m, v) in zip(at, values.items()):
        method = (of or {}).get(m, m)
        s, c, u = look(method), colour(method), np.log(v) if log else v
        if m in ticks:
            ticks[m].set_color(text_colour(method))
        mean, half = band(u, level)
        low, middle, high = (
            np.exp([mean - half, mean, mean + half])
            if log
            else (mean - half, mean, mean + half)
        )
        if len(v) > 1:
            ax.plot(
                [low, high],
                [y, y],
                color=c,
                lw=s.width,
                marker="|",
                markersize=8,
                ls="-",
                zorder=3,
            )
            ax.plot(
                v,
                np.full(len(v), y - 0.26),
                color=c,
                marker=".",
                markersize=4,
                ls="",
                alpha=0.7,
            )
        ax.plot(
            middle,
            y,
            color=c,
            marker=s.marker,
            markersize=7,
            ls="",
            markerfacecolor=c if s.filled else PAPER,
            zorder=4,
        )
    if log:
        ax.set_xscale("log")
        ax.xaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
        ax.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    else:
        ax.set_xlim(left=0 if all(v.min() >= 0 for v in values.values()) else None)
    return ax
