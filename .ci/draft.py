"""Let the book be built where not all notebooks ran, as continuous integration does:

    python .ci/draft.py tiers/tiny

In that copy a figure that nobody drew gets a stand-in, a notebook that nobody ran
stands there without outputs, and the numbers are those of the repository. So every
page, link and directive is built, as readers get it but for the figures.
"""

import csv
import fnmatch
import json
import os
import re
import shutil
import sys
from pathlib import Path
from string import ascii_lowercase

HERE = Path.cwd()

FIGURES, RUN = Path("results/figures"), Path("results/notebooks")
SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="346pt" height="120pt" '
    'viewBox="0 0 346 120"><path d="M 10 110 L 336 10" stroke="currentColor"/></svg>'
)
ABOUT = {
    "title": "Not drawn here",
    "alt": "a line, in the place of a figure that was not drawn",
    "data": "none",
    "tier": "tiny",
    "seeds": "none",
    "notebook": "notebooks/labs/fedga.ipynb",
    "stage": "labs@fedga",
    "width": 4.8,
    "height": 1.7,
}
DIRECTIVE = re.compile(r"(?m)^ *[`:]{3,}\{fig\} +(\S+)\n((?: *:\w+:.*\n)*)")


def wanted(name: str, options: str) -> tuple[str, list[str]]:
    """What a {fig} looks for, and the files it would find: one, or one per value."""
    given = dict(re.findall(r":(\w+): *(.*)", options))
    if "frames" not in given:
        return name, [name]
    more = len(given["values"].split()) if "values" in given else 2
    frame = lambda letter: re.sub(r"[*?]", letter, given["frames"])
    return given["frames"], [name, *map(frame, ascii_lowercase[1:more])]


def stand_ins() -> int:
    """Figures for all {fig} and {play} that find none."""
    shutil.rmtree(FIGURES / "draft", ignore_errors=True)
    drawn, made = {p.stem for p in FIGURES.rglob("*.svg")}, set()
    turned = next(FIGURES.rglob("*.view.json"))
    (FIGURES / "draft").mkdir(parents=True, exist_ok=True)
    for page in Path("book").rglob("*.md"):
        text = page.read_text("utf-8")
        pieces = {f"play-{name}" for name in re.findall(r"\{play\} +(\S+)", text)}
        made |= pieces - drawn
        for found in DIRECTIVE.findall(text):
            pattern, files = wanted(*found)
            for name in re.findall(r":view: *(\S+)", found[1]):
                if not [*FIGURES.rglob(f"{name}.view.json")]:
                    shutil.copy(turned, FIGURES / f"draft/{name}.view.json")
            if not fnmatch.filter(drawn, pattern):
                made |= {*files}
    for file in made:
        (FIGURES / f"draft/{file}.svg").write_text(SVG)
        (FIGURES / f"draft/{file}.json").write_text(json.dumps(ABOUT | {"name": file}))
    cover = Path("book/intro.md").read_text("utf-8")
    for row in csv.DictReader(open("results/artefacts.csv", encoding="utf-8")):
        shown = f"{row['paper']}: {row['artefact']}: " in cover
        for file in re.findall(r"figures/\S+\.svg", " ".join(row.values())) * shown:
            to = Path("results", file)
            to.parent.mkdir(parents=True, exist_ok=True)
            to.exists() or to.write_text(SVG)
    return len(made)


def not_run() -> int:
    missing = [
        p
        for p in Path("notebooks").glob("*/*.ipynb")
        if not (RUN / p.relative_to("notebooks")).exists()
    ]
    for p in missing:
        to = RUN / p.relative_to("notebooks")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(p, to)
    return len(missing)


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    for table in (HERE / "results").glob("*.csv"):
        shutil.copy(table, "results")
    print(f"{stand_ins()} figures and {not_run()} notebooks have stand-ins")
