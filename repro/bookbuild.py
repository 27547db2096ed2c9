"""Build the book from the results that are there; run by the stage book of dvc.yaml and
by `make book`.

    python -m repro.bookbuild

Two things are copied below book/ first, because Sphinx wants its sources there and
git should not hold them: the executed notebooks, and MathJax's one file out of the
installed sphinx-mathjax-offline, so that the pages ask no other host. Every warning is
an error.
"""

from __future__ import annotations

import filecmp
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from fedlib import plots
from fedlib.cli.program import program
from repro.course import contents
from repro.gate import digest

BOOK = Path("book")
HTML = BOOK / "_build/html"
NOTEBOOKS = Path("results/notebooks")
MATHJAX = "static/mathjax/tex-svg.js"
JUPYTER_BOOK = "import sys; from jupyter_book.cli.main import main; sys.exit(main())"
STRICT = ["--warningiserror", "--nitpick", "--keep-going"]


def copy(source: Path, to: Path) -> None:
    """Copy `source` unless `to` already holds its bytes,
    so that Sphinx re-reads only what changed.
    """
    if not (to.exists() and filecmp.cmp(source, to, shallow=False)):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)


def copy_notebooks(source=NOTEBOOKS, to=BOOK / "notebooks") -> list[Path]:
    """Make the notebooks below `to` those below `source`; the list of copies."""
    done = [p for p in sorted(source.glob("*/*.ipynb")) if not p.name.startswith(".")]
    copies = [to / path.relative_to(source) for path in done]
    for stale in set(to.rglob("*.ipynb")) - set(copies):
        stale.unlink()
    for path, there in zip(done, copies):
        copy(path, there)
    return copies


def copy_mathjax(to: Path = BOOK / "_assets/vendor") -> Path:
    """Put MathJax 3 (SVG output, one file) below `to`; the copy's path."""
    package = "sphinx-mathjax-offline"
    for file in metadata.files(package) or ():
        if file.as_posix().endswith(MATHJAX):
            copy(Path(file.locate()), to / file.name)
            return to / file.name
    raise FileNotFoundError(
        f"{package} holds no {MATHJAX}: install the version of constraints.txt"
    )


def missing_notebooks(copies: list[Path], book: Path = BOOK) -> list[str]:
    """Notebook pages that the table of contents names and no run has made,
    such as "notebooks/fedga/main".
    """
    named = {page.removesuffix(".ipynb") for page in contents(book)}
    made = {path.relative_to(book).with_suffix("").as_posix() for path in copies}
    return sorted(page for page in named - made if page.startswith("notebooks/"))


def forget(book: Path = BOOK) -> None:
    """Remove what was built by other extensions, settings or contents, and pages whose
    sources are gone. Of all else Sphinx builds anew what has changed.
    """
    build, html = book / "_build", book / "_build/html"
    patterns = ("_ext/**/*.*", "_*.yml", "_assets/*.*")
    decide = [f for pattern in patterns for f in book.glob(pattern)]
    decide += Path(plots.__file__).parent.glob("*.py")  # put figures into pages
    now = digest(f for f in decide if "__pycache__" not in f.parts)
    if not (build / "made_by").exists() or (build / "made_by").read_text() != now:
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir()
        (build / "made_by").write_text(now)
    for page in html.rglob("*.html"):
        name = page.relative_to(html).with_suffix("")
        sources = [(book / name).with_suffix(end) for end in (".md", ".ipynb")]
        if name.parts[0] != "_static" and not any(f.exists() for f in sources):
            page.unlink()


def sphinx(book: Path = BOOK) -> int:
    """Run the build, its output passing through; the exit status."""
    command = [sys.executable, "-c", JUPYTER_BOOK, "build", str(book), *STRICT]
    return subprocess.run(command).returncode


def main() -> int:
    """Copy what the book needs and build it; the exit status."""
    if missing := missing_notebooks(copy_notebooks()):
        why = f"contents name {', '.join(missing)}, which no run has made yet"
        print(f"repro.bookbuild: {why}: `make paper` runs them.", file=sys.stderr)
        return 1
    copy_mathjax()
    forget()
    failed = sphinx()
    if not failed:
        pages = sorted(p.relative_to(HTML).as_posix() for p in HTML.rglob("*.html"))
        Path("results/pages.txt").write_text("\n".join(pages) + "\n")
        print(f"The book: {(HTML / 'index.html').resolve()}")
    return failed


if __name__ == "__main__":
    program(main)
