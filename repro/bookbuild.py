"""Build the book from the results that are there; run by the stage book of dvc.yaml and
by `make book`.

    python -m repro.bookbuild

Two things are copied below book/ first, because Sphinx wants its sources there and
git should not hold them: the papers' executed notebooks, and MathJax's one file out of
the installed sphinx-mathjax-offline, so that the pages ask no other host. Every warning
is an error. Labs are no pages: a chapter offers the file itself.
"""

import filecmp
import os
import shutil
import warnings
from importlib import metadata
from pathlib import Path

from fedlib import plots
from fedlib.cli.program import program
from repro.gate import digest

BOOK = Path("book")
HTML = BOOK / "_build/html"
NOTEBOOKS, FIGURES = Path("results/notebooks"), Path("results/figures")
MATHJAX = "static/mathjax/tex-svg.js"
UNREAD = "*.map", "*.ttf", "*.[mp]o", "fontawesome.js*"  # no page asks for these
JOBS = min(len(os.sched_getaffinity(0)), 4) + 1  # one hands out and collects


def copy(source: Path, to: Path) -> None:
    """Copy `source` unless `to` holds its bytes: Sphinx re-reads what changed."""
    if not (to.exists() and filecmp.cmp(source, to, shallow=False)):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)


def copy_notebooks() -> list[Path]:
    """Make the notebooks below book/ those of papers below results/; the copies. What
    an older checkout has drawn by notebooks that are no more is removed."""
    to, made = BOOK / "notebooks", sorted(NOTEBOOKS.glob("*/*.ipynb"))
    for gone in [p for p in made if not Path(*p.parts[1:]).exists()]:
        made.remove(gone)
        gone.unlink()
        shutil.rmtree(FIGURES / f"{gone.parent.name}-{gone.stem}", ignore_errors=True)
    copies = {to / p.relative_to(NOTEBOOKS): p for p in made if p.parent.name != "labs"}
    for stale in {*to.rglob("*.ipynb")} - {*copies}:
        stale.unlink()
    for there, path in copies.items():
        copy(path, there)
    return [*copies]


def copy_mathjax() -> None:
    """Put MathJax 3 (SVG output, one file) below book/."""
    package = "sphinx-mathjax-offline"
    file = Path(metadata.distribution(package).locate_file(f"{package}/{MATHJAX}"))
    copy(file, BOOK / "_assets/vendor" / file.name)


def forget() -> None:
    """Remove what was built by other extensions, settings or contents, or of other
    pages. Of all else Sphinx builds anew what has changed."""
    made_by = HTML.parent / "made_by"
    patterns = "_ext/**/*.*", "_*.yml", "_assets/*.*"
    decide = [f for pattern in patterns for f in BOOK.glob(pattern)]
    decide += Path(plots.__file__).parent.glob("*.py")  # put figures into pages
    names = sorted(f"{f}" for f in [*BOOK.glob("*.md"), *BOOK.glob("notebooks/*/*")])
    now = f"{digest(f for f in decide if '__pycache__' not in f.parts)} {names}"
    if not made_by.exists() or made_by.read_text() != now:
        shutil.rmtree(made_by.parent, ignore_errors=True)
        made_by.parent.mkdir()
        made_by.write_text(now)
    shutil.rmtree(HTML / "_downloads", ignore_errors=True)  # of earlier figures


def sphinx() -> bool:
    """Build the pages as `jupyter-book build` does, on all cores; whether it failed."""
    from jupyter_book.sphinx import build_sphinx

    # an extension looks at every object there is, also at those that torch gives up
    warnings.filterwarnings("ignore", "`torch", FutureWarning)
    book = BOOK.resolve()
    said = {"external_toc_path": f"{book}/_toc.yml", "latex_individualpages": False}
    said |= {"nitpicky": True}
    how = {"path_config": book / "_config.yml", "confoverrides": said, "jobs": JOBS}
    how |= dict.fromkeys(("noconfig", "warningiserror", "keep_going"), True)
    return bool(build_sphinx(book, HTML.resolve(), **how))


def main() -> int:
    """Copy what the book needs and build it; the exit status."""
    copy_notebooks()
    copy_mathjax()
    for name in ("claims", "ledger"):
        shutil.make_archive(BOOK / "notebooks" / name, "zip", "results", f"{name}.csv")
    forget()
    failed = sphinx()
    if not failed:
        for pattern in UNREAD:
            [file.unlink() for file in HTML.rglob(pattern)]
        pages = sorted(p.relative_to(HTML).as_posix() for p in HTML.rglob("*.html"))
        Path("results/pages.txt").write_text("\n".join(pages) + "\n")
        print(f"The book: {(HTML / 'index.html').resolve()}")
    return failed


if __name__ == "__main__":
    program(main)
