"""Which module of fedlib, repro and papers imports which, inside functions, too."""

import ast
from collections import namedtuple
from functools import cache

from where import ROOT

Import = namedtuple("Import", "source target line")


def modules(root=ROOT):
    """{dotted name: path}; a package has its folder's name."""
    found = {}
    for path in sorted(p for at in PLACES for p in (root / at).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


PLACES = ("fedlib", "repro", "papers")


def statements(tree, late=False):
    """(import, is it inside a function) of a syntax tree, but for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node, late
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for part in node.orelse:
                yield from statements(part, late)
        else:
            inside = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from statements(node, late or inside)


def asked(node, name, package):
    """The names that an import of module `name` may mean, each the longer one first."""
    if isinstance(node, ast.Import):
        return [(a.name,) for a in node.names]
    base = name.split(".")
    base = base[: len(base) - node.level + package] if node.level else []
    base = ".".join([*base, *filter(None, [node.module])])
    return [(f"{base}.{a.name}", base) for a in node.names]


@cache
def trees(root=ROOT):
    """{dotted name: syntax tree}"""
    return {n: ast.parse(p.read_text("utf-8")) for n, p in modules(root).items()}


def graph(root=ROOT):
    """Every import of a module by another one of them."""
    out, there = [], modules(root)
    for name, tree in trees(root).items():
        for node, _ in statements(tree):
            for names in asked(node, name, there[name].name == "__init__.py"):
                to = next((n for n in names if n in there), None)
                # `import fedlib.core.nothing` still asks for fedlib.core
                while to is None and "." in names[-1]:
                    names = [names[-1].rpartition(".")[0]]
                    to = names[0] if names[0] in there else None
                if to and to != name:
                    out.append(Import(name, to, node.lineno))
    return out


def edges(imports):
    to = lambda a: {i.target for i in imports if i.source == a}
    return {a: to(a) for a in {i.source for i in imports}}


def package(name):
    """fedlib.methods.fair.afl -> methods; fedlib itself is fedlib."""
    first, *rest = name.split(".")
    return rest[0] if first == "fedlib" and rest else first
