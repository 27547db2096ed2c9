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

from fedlib.core import ends

BOOK = Path("book")
HTML = BOOK / "_build/html"
NOTEBOOKS = Path("results/notebooks")
MATHJAX = "static/mathjax/tex-svg.js"
JUPYTER_BOOK = [
    sys.executable,
    "-c",
    "import sys; from jupyter_book.cli.main import main; sys.exit(main())",
]


def copy(source: Path, to: Path) -> None:
    """Copy `source` unless `to` already holds its bytes,
    so that Sphinx re-reads only what changed.
    """
    if not (to.exists() and filecmp.cmp(source, to, shallow=False)):
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to)


def copy_notebooks(
    source: Path = NOTEBOOKS, to: Path = BOOK / "notebooks"
) -> list[Path]:
    """Make the notebooks below `to` those below `source`; the list of copies."""
    copies = [
        to / path.relative_to(source)
        for path in sorted(source.glob("*/*.ipynb"))
        if not path.name.startswith(".")
    ]
    for stale in set(to.rglob("*.ipynb")) - set(copies):
        stale.unlink()
    for path in copies:
        copy(source / path.relative_to(to), path)
    return copies


def copy_mathjax(to: Path = BOOK / "_assets/vendor") -> Path:
    """Put MathJax 3 (SVG output, one file) below `to`; the copy's path."""
    package = "sphinx-mathjax-offline"
    for file in metadata.files(package) or ():
        if file.as_posix().endswith(MATHJAX):
            copy(Path(file.locate()), to / file.name)
            return to / file.name
    raise FileNotFoundError(
        f"the installed {package} holds no {MATHJAX}: install the version that"
        " constraints.txt names."
    )


def missing_notebooks(copies: list[Path], book: Path = BOOK) -> list[str]:
    """Notebook pages that the table of contents names and no run has made,
    such as "notebooks/fedga/main".
    """
    import yaml

    def files(node):
        if isinstance(node, dict):
            yield from (str(node[key]) for key in ("root", "file") if key in node)
            node = list(node.values())
        if isinstance(node, list):
            for child in node:
                yield from files(child)

    toc = yaml.safe_load((book / "_toc.yml").read_text())
    made = {path.relative_to(book).with_suffix("").as_posix() for path in copies}
    return sorted(
        {f.removesuffix(".ipynb") for f in files(toc) if f.startswith("notebooks/")}
        - made
    )


def sphinx(book: Path = BOOK) -> int:
    """Run the build, its output passing through;
    on failure say the warnings once more, together.
    """
    command = [
        *JUPYTER_BOOK,
        "build",
        str(book),
        "--warningiserror",
        "--nitpick",
        "--keep-going",
    ]
    seen = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as build:
        for line in build.stdout:
            print(line, end="", flush=True)
            if any(word in line for word in ("WARNING", "ERROR", "CRITICAL")):
                seen.append(line)
    if build.returncode:
        print(
            "\nThe book was not built. Warnings and errors, each of which counts: "
            f"{len(seen)}",
            file=sys.stderr,
        )
        sys.stderr.writelines(seen)
    return build.returncode


def main() -> int:
    """Copy what the book needs and build it; the exit status."""
    if not (BOOK / "_toc.yml").exists():
        print(
            f"repro.bookbuild: no {BOOK}/_toc.yml here; run it in the "
            "repository's root.",
            file=sys.stderr,
        )
        return 1
    missing = missing_notebooks(copy_notebooks())
    if missing:
        print(
            f"repro.bookbuild: the book's contents name {', '.join(missing)}, which no "
            "run has made yet. `make paper` runs what is missing.",
            file=sys.stderr,
        )
        return 1
    copy_mathjax()
    # no page stays that is not in the book any more
    shutil.rmtree(HTML, ignore_errors=True)
    failed = sphinx()
    if not failed:
        pages = sorted(
            path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html")
        )
        HTML.with_name("pages.txt").write_text("\n".join(pages) + "\n")
        print(f"The book: {(HTML / 'index.html').resolve()}")
    return failed


if __name__ == "__main__":
    ends.program("python -m repro.bookbuild", main, takes_words=False)
