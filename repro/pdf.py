"""Print the built book into one file, its pages in the order of the contents; run by
`make pdf`. Left out are notebooks, and lists to search in.

    python -m repro.pdf

It needs Chromium, as repro.browse does, whose browser sets all pages as one.
"""

import sys

from fedlib.cli.program import program
from repro import browse
from repro.bookbuild import BOOK, HTML
from repro.course import contents

OUT = {"slides", "ledger", "claims", "api", "changelog"}
PDF = HTML.parent / "book.pdf"


def main() -> int:
    """Print the book that is built; the exit status."""
    if lack := browse.lacking():
        print(f"Not printed: {lack}", file=sys.stderr)
        return 1
    names = [n for n in contents(BOOK) if n not in OUT and "/" not in n]
    with browse.opened() as context:
        page = context.new_page()
        page.goto((HTML / "one_round.html").resolve().as_uri())  # it sets formulas
        texts = [(n, (HTML / f"{n}.html").read_text("utf-8")) for n in names]
        page.evaluate("pages => asked.joined(pages)", texts)
        how = {"prefer_css_page_size": True, "outline": True, "tagged": True}
        page.pdf(path=PDF, scale=0.8, **how)
    print(f"The book: {PDF.resolve()}")
    return 0


if __name__ == "__main__":
    program(main)
