"""The laws of the house: which part may know which.

They are read off the sources (repro.house.graph), so that they are quick and an import
inside a function counts as well. A message names file and line.
"""

import ast
import io
import os
import re
import subprocess
import sys
import tokenize

import pytest
from where import ROOT

from repro import house

FEDLIB = {n: p for n, p in house.modules().items() if n.partition(".")[0] == "fedlib"}

# Who may ask whom: {district: districts}. Tight, so a new edge is a decision: write it
# here with your change, or do without.
MAY = {
    "core": {"nets"},
    "nets": {"core"},
    "pieces": {"core", "nets"},
    "data": {"core", "nets"},
    "measures": {"core"},
    "plots": {"measures"},
    "methods": {"core", "nets", "pieces"},
    "study": {"core", "data", "measures", "methods", "nets", "pieces", "plots"},
    "deploy": {"cli", "core", "data", "methods", "pieces"},
    "cli": {"core", "data", "deploy", "measures", "methods", "pieces", "study"},
    "fedlib": {"core", "measures", "methods", "study"},
    "__main__": {"cli"},
    "repro": {
        "core",
        "data",
        "deploy",
        "measures",
        "methods",
        "nets",
        "pieces",
        "plots",
        "study",
    },
}
# a paper's own modules may ask for what the reproduction may, and for it
MAY["papers"] = MAY["repro"] | {"repro"}
# the two edges that lead upwards stay narrow
UPWARDS = house.UPWARDS


def said(imports):
    """One line for each import: where it is, and what it asks for."""
    return "\n".join(
        dict.fromkeys(f"{i.path}:{i.line} asks {i.target}" for i in imports)
    )


def trees(names):
    """(path from the root, syntax tree) of modules."""
    for path in names.values():
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text("utf-8"))


# ---------------------------------------------------------------- who knows whom
def test_the_library_knows_neither_the_reproduction_nor_a_paper():
    """Else nobody could use the library without the papers it was written for."""
    found = []
    for path, tree in trees(FEDLIB):
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            elif isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called in ("import_module", "__import__", "run_module"):
                    names = [getattr(node.args[0], "value", None)]
            found += [
                f"{path}:{node.lineno} asks {n}"
                for n in names
                if isinstance(n, str) and n.partition(".")[0] in ("repro", "papers")
            ]
    assert not found, "fedlib may not import these:\n" + "\n".join(found)


def test_a_district_asks_only_those_it_may_ask():
    """Layers keep a change local: what nobody above may ask for can be moved."""
    bad = []
    for i in house.here():
        a, b = house.district(i.source), house.district(i.target)
        allowed = a == b or b in MAY.get(a, set())
        pairs = UPWARDS.get((a, b))
        if not allowed or (pairs and (i.source, i.target) not in pairs):
            bad.append(i)
    assert not bad, f"edges that the table MAY or UPWARDS does not have:\n{said(bad)}"


def test_no_module_reaches_itself():
    """Modules on a circle can only be read, tested and changed together. An import
    inside a function hides a circle, and does not break it.
    """
    edges = house.edges(house.here())
    bad = []
    for ring in house.rings(edges):
        inside = [i for i in house.here() if i.source in ring and i.target in ring]
        bad.append(f"{' <-> '.join(sorted(ring))}\n{said(inside)}")
    assert not bad, "circles of imports:\n" + "\n".join(bad)


def test_graphlib_finds_a_circle_where_we_do():
    """Another way to the same answer."""
    edges = house.edges(house.here())
    assert bool(house.circle(edges)) == bool(house.rings(edges))
    toy = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}
    assert house.rings(toy) == [{"b", "c"}]
    assert set(house.circle(toy)) == {"b", "c"}
    assert house.rings({"a": {"b"}, "b": set()}) == house.circle({"a": {"b"}}) == []


# ---------------------------------------------------------------- pictures
def test_only_plots_imports_what_draws():
    """A machine that computes need not draw: pyplot takes a second, and looks for a
    screen. fedlib.data.glyphs reads the fonts that come with matplotlib, and draws
    nothing with it.
    """
    drawing = ("matplotlib.pyplot", "seaborn")
    fonts = {"fedlib/data/glyphs.py": {"matplotlib", "matplotlib.ft2font"}}
    bad = []
    for path, tree in trees(FEDLIB):
        if path.startswith("fedlib/plots/"):
            continue
        for node, late in house.statements(tree):
            if isinstance(node, ast.Import):
                names = {a.name for a in node.names}
            else:
                names = {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
            draws = {n for n in names if n and n.startswith(drawing)}
            styles = {n for n in names if n and n.startswith("matplotlib")}
            if isinstance(node, ast.ImportFrom):
                styles = {node.module} & styles
            if not late and (draws or styles - fonts.get(path, set())):
                bad.append(f"{path}:{node.lineno} {', '.join(sorted(draws | styles))}")
    assert not bad, "imported at the top, outside fedlib/plots:\n" + "\n".join(bad)


def test_training_loads_nothing_that_draws():
    ask = (
        "import sys, fedlib, fedlib.core.engine; "
        "print([m for m in ('matplotlib.pyplot', 'seaborn') if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    got = subprocess.run(
        [sys.executable, "-c", ask],
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
    )
    assert (got.returncode, got.stdout.strip()) == (0, "[]"), got.stderr


# ---------------------------------------------------------------- the core is neutral
# names of methods that are also words: "local training", "uniform weights"
WORDS = {"Local", "Uniform", "Regular", "Reweight"}


def method_names():
    """The names and classes of METHODS, read off the source."""
    tree = ast.parse((ROOT / "fedlib/methods/__init__.py").read_text("utf-8"))
    (table,) = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and node.targets[0].id == "METHODS"
        and isinstance(node.value, ast.Dict)
    ]
    return {k.value for k in table.keys} | {v.id for v in table.values}


def paper_names():
    return {p.name for p in (ROOT / "papers").iterdir() if p.is_dir()}


def test_the_core_names_no_paper_and_no_method():
    """Whoever adds a method or a paper changes nothing in the core, and a reader of
    the core need know none of them.
    """
    assert {"FedAvg", "PLGULF", "q-FedAvg"} <= method_names()
    assert {"fedga", "plgu"} <= paper_names()
    of_methods = sorted(method_names() - WORDS, key=len, reverse=True)
    of_papers = sorted(paper_names() - {"__pycache__"}, key=len, reverse=True)
    name = re.compile(
        rf"(?<![\w-])({'|'.join(map(re.escape, of_methods))}"
        rf"|(?i:{'|'.join(map(re.escape, of_papers))}))(?!\w)"
    )
    bad = []
    for path in sorted((ROOT / "fedlib/core").glob("*.py")):
        with tokenize.open(path) as f:
            lines = list(io.StringIO(f.read()))
        bad += [
            f"{path.relative_to(ROOT)}:{i} names {m[1]}: {line.strip()}"
            for i, line in enumerate(lines, 1)
            for m in name.finditer(line)
        ]
    assert not bad, "the core names a method or a paper:\n" + "\n".join(bad)


# ---------------------------------------------------------------- the reproduction
REPRO = [p for n, p in house.modules().items() if n.partition(".")[0] == "repro"]


@pytest.mark.parametrize("path", REPRO, ids=lambda p: p.stem)
def test_a_module_of_the_reproduction_says_what_it_is(path):
    """The folder is read as a list of programs; the first line of each is its entry."""
    text = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    first = " ".join(text.partition("\n\n")[0].split())
    assert re.match(r"[A-Za-z].{15,}?[.:?](\s|$)", first), (
        f"{path.relative_to(ROOT)}:1 begins {first!r}: begin with a sentence"
    )
