"""How to run a page that is a notebook: a line below its title, and buttons for other
people's machines where the book knows its repository (_config.yml).
"""

from pathlib import Path

from docutils import nodes
from sphinx import addnodes


def source(app, docname):
    """The notebook of a page, as the repository has it; None for another page."""
    path = Path(app.srcdir).parent / f"{docname}.ipynb"
    return path if docname.startswith("notebooks/") and path.is_file() else None


def line(docname):
    """The line below the title of a notebook's page."""
    name = f"{docname}.ipynb"
    link = addnodes.download_reference("", "download", reftarget=f"/../{name}")
    again = "dvc repro " + docname.removeprefix("notebooks/").replace("/", "@")
    draw, lab, file = (nodes.literal("", w) for w in (again, "make lab", name))
    parts = nodes.Text("Draw it: "), draw, nodes.Text(". Run it: "), lab
    end = nodes.Text(", then "), file, nodes.Text(" ("), link, nodes.Text(").")
    return nodes.paragraph("", "", *parts, *end, classes=["run-this-page"])


def add(app, doctree):
    """Put the line below the title of a page that is a notebook."""
    docname = app.env.docname
    title = next(iter(doctree.findall(nodes.title)), None)
    if source(app, docname) and title is not None:
        section = title.parent
        section.insert(section.index(title) + 1, line(docname))


def no_buttons(app, config):
    """Without a repository nothing can be launched, edited or asked about."""
    if not config.html_theme_options.get("repository_url"):
        of = [f"use_{what}_button" for what in ("edit_page", "issues", "repository")]
        config.html_theme_options |= dict.fromkeys(["launch_buttons", *of], {})


def setup(app):
    app.connect("config-inited", no_buttons, priority=100)
    # before Sphinx collects what is to be downloaded
    app.connect("doctree-read", add, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
