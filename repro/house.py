"""The house: which module imports which, and the pictures of it in CONTRIBUTING.md.

    python -m repro.house     writes CONTRIBUTING.md's blocks between the marks
                              <!-- districts --> and <!-- rooms -->

Called by whoever moved a module; tests/repository/test_house.py compares the page with
what this writes, and tests/repository/test_laws.py asks `graph` for the imports that
its laws are about. Sources are read, not imported: the graph costs no torch.

Letters: a module is a file, a district a folder of fedlib (or repro, or papers).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PLACES = ("fedlib", "repro", "papers")


class Import(NamedTuple):
    """A module asks for another; late: inside a function."""

    source: str
    target: str
    path: str  # of the source, from the root
    line: int
    late: bool


def name_of(path, root=ROOT):
    """ "fedlib/core/tree.py" -> "fedlib.core.tree"; a package has its folder's name."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root=ROOT, places=PLACES):
    """{name: path} of all modules, in order."""
    return {
        name_of(p, root): p for at in places for p in sorted((root / at).rglob("*.py"))
    }


def district(name):
    """ "fedlib.methods.fair.afl" -> "methods"; fedlib itself is "fedlib"."""
    first, *rest = name.split(".")
    return rest[0] if first == "fedlib" and rest else first


def only_for_checkers(node):
    """Is this `if TYPE_CHECKING:`, which never runs?"""
    test = getattr(node, "test", None)
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(test)


def statements(tree, late=False):
    """(import statement, is it inside a function) of a syntax tree."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, late
        elif only_for_checkers(node):
            for part in node.orelse:
                yield from statements(part, late)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from statements(node, late or inside)


def asked(node, name, package):
    """The dotted names that an import statement of the module `name` may mean, each
    with the longer one first: `from ..core import engine` is fedlib.core.engine, where
    there is such a module, else fedlib.core.
    """
    if isinstance(node, ast.Import):
        return [(a.name,) for a in node.names]
    base = name.split(".")
    base = base[: len(base) - node.level + package] if node.level else []
    base = ".".join([*base, *filter(None, [node.module])])
    return [(f"{base}.{a.name}", base) for a in node.names]


def known(dotted, among):
    """The longest beginning of a dotted name that is a module, or None."""
    while dotted and dotted not in among:
        dotted = dotted.rpartition(".")[0]
    return dotted or None


def graph(root=ROOT, places=PLACES):
    """Every import of a module by another of the same house [Import], in order."""
    out, among = [], modules(root, places)
    for name, path in among.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node, late in statements(tree):
            for names in asked(node, name, path.name == "__init__.py"):
                to = next(filter(None, (known(n, among) for n in names)), None)
                if to and to != name:
                    at = path.relative_to(root).as_posix()
                    out.append(Import(name, to, at, node.lineno, late))
    return out


@cache
def here():
    """The graph of this repository, read once."""
    return tuple(graph())


def circle(edges):
    """The names on one circle of the edges {a: {b, ...}}, or []."""
    from graphlib import CycleError, TopologicalSorter

    try:
        TopologicalSorter(edges).prepare()
    except CycleError as e:
        return list(e.args[1])
    return []


def reached(edges):
    """{a: everything that some way leads to from a}."""
    out = {}
    for a in edges:
        seen, todo = set(), list(edges[a])
        while todo:
            b = todo.pop()
            if b not in seen:
                seen.add(b)
                todo += edges.get(b, ())
        out[a] = seen
    return out


def rings(edges):
    """The sets of names that reach each other, largest first; none in a graph without
    a circle.
    """
    to = reached(edges)
    found = {
        frozenset(b for b in to[a] if a in to.get(b, ())) for a in edges if a in to[a]
    }
    return sorted(map(set, found), key=lambda ring: (-len(ring), sorted(ring)))


def edges(imports, by=lambda name: name):
    """{a: {b, ...}} between modules, or what `by` makes of them."""
    out = {}
    for i in imports:
        out.setdefault(by(i.source), set())
        if by(i.source) != by(i.target):
            out[by(i.source)].add(by(i.target))
            out.setdefault(by(i.target), set())
    return out
