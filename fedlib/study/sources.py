"""Which sources make numbers, and in which state they are: what a reader may edit
without being asked, and what not.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import tokenize
from pathlib import Path

HOME = Path(__file__).parent
PACKAGE = HOME.parent
CHECKED = HOME / "checked.txt"
FILE = HOME / "fingerprints.json"
# the modules that make numbers, with all that they import when they are loaded
ROOTS = (
    "core/engine",
    "data/tasks",
    "methods/make",
    "core/online",
    "study/microruns",
)

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def state():
    """Hash of the code that makes numbers, of the versions and of the fingerprints, as
    this process found them.
    """
    h = hashlib.sha256()
    for path in modules():
        name = path.relative_to(PACKAGE).as_posix()
        h.update(f"{name}\0{bare(path.read_text())}\0".encode())
    for name in ("versions.toml", "fingerprints.json"):
        h.update((HOME / name).read_bytes().replace(b"\r\n", b"\n"))
    return h.hexdigest()[:16]


def released():
    """The state whose fingerprints were all compared last, by `python -m
    fedlib.study.fingerprints check`; "" where there is none.
    """
    return CHECKED.read_text().strip() if CHECKED.exists() else ""


def modules(home=PACKAGE, roots=ROOTS):
    """The files of this package that make numbers: the roots, and what they import when
    they are loaded.
    """
    found, todo = set(), [home / f"{r}.py" for r in roots]
    while todo:
        path = todo.pop()
        if path not in found:
            found.add(path)
            todo += imported(path, home)
    return sorted(found)


def imported(path, home):
    """The files of this package that a module imports at its top level."""
    out = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            at = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            out += [at / a.name for a in node.names] + [at]
    files = [f for at in out for f in (at.with_suffix(".py"), at / "__init__.py")]
    return [f for f in files if f.is_file() and f.is_relative_to(home)]


def bare(source):
    """The lines of Python code without comments, docstrings and blank lines; the same
    text in every version of Python.
    """
    lines, tree = source.splitlines(), ast.parse(source)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node):
            doc = node.body[0]
            first = doc.lineno - 1
            lines[first] = lines[first][: doc.col_offset]
            for row in range(first + 1, doc.end_lineno):
                lines[row] = ""
    return "\n".join(line.rstrip() for line in lines if line.strip())


@functools.cache
def stored(path=FILE):
    """{unit: {"version": int, "runs": {label: {what: numbers}}}} as it was last noted;
    numbers: [count, norm, projection].
    """
    return json.loads(path.read_text())
