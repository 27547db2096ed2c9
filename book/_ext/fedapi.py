"""The library's docstrings as the pages of the reference print them; it is
sphinx.ext.autodoc that reads them. They are plain text, not reStructuredText: `x` is
code, and what is indented or set in columns stays as it is. The first paragraph is
shown, what follows is folded below it.
"""

import re

COLUMNS = re.compile(r"^ |\S {3,}\S")  # of a line: indented, or with a wide gap inside


def paragraphs(lines):
    """Lists of the lines that stand together."""
    block = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line)
        elif block:
            yield block
            block = []


def words(text):
    """A paragraph as reStructuredText: code between backticks, all else as written."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a backtick alone
        return re.sub(r"([\\*_|`])", r"\\\1", text)
    plain = [re.sub(r"([\\*_|])", r"\\\1", part) for part in parts]
    plain[1::2] = [f"``{part}``\\ " for part in parts[1::2]]
    return "".join(plain)


def html(text):
    """A line of HTML as reStructuredText."""
    return [".. raw:: html", "", f"   {text}", ""]


def written(app, what, name, obj, options, lines):
    """Replace a docstring's lines by reStructuredText that says the same."""
    out = []
    for block in paragraphs(lines):
        if any(COLUMNS.search(line) for line in block):
            out += ["::", "", *("    " + line for line in block), ""]
        else:
            out += [words(" ".join(block)), ""]
    if (more := out[2:]) and out[0] != "::":
        head = *html('<details class="doc"><summary>'), *out[:2], *html("</summary>")
        out = [*head, *more, *html("</details>")]
    lines[:] = out


def setup(app):
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", written)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
