"""Who may know whom. A new edge is a decision: write it into MAY with your change."""

import ast
import re
from graphlib import TopologicalSorter

from where import ROOT
from where_imports import edges, graph, modules, package, statements, trees

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
    "cli": {"core", "data", "deploy", "fedlib", "measures", "methods", "study"},
    "fedlib": {"core", "measures", "methods", "study"},
    "__main__": {"cli"},
}
MAY["repro"] = {*MAY["study"], "cli", "study"}
MAY["papers"] = MAY["repro"] | {"repro"}
# edges that lead upwards stay narrow: these modules, no others
CLI = {("fedlib.deploy.rows", "fedlib.cli.text")}
CLI |= {("fedlib.deploy.command", "fedlib.cli.text")}
CLI |= {(f"fedlib.deploy.{m}", "fedlib.cli.program") for m in ("app", "server")}
TASK = {("fedlib.core.task", "fedlib.nets")}
UPWARDS = {("core", "nets"): TASK, ("deploy", "cli"): CLI}
# modules of matplotlib that draw nothing, at the top of a module outside plots
FONTS = {("fedlib.data.glyphs", "matplotlib"), ("fedlib.data.glyphs", "ft2font")}
WORDS = {"Local", "Uniform", "Regular", "Reweight"}  # methods that are words, too


def test_a_package_asks_only_those_it_may_ask():
    assert len(graph()) > 1000
    for i in graph():
        a, b = package(i.source), package(i.target)
        assert a == b or b in MAY.get(a, ()), f"{i.source}:{i.line} asks {i.target}"
        if narrow := UPWARDS.get((a, b)):
            assert (i.source, i.target) in narrow, f"{i.source}:{i.line}"


def test_the_library_asks_for_no_paper_by_name_either():
    called = re.compile(r"(import_module|__import__|run_module)\(\s*.(repro|papers)\b")
    for name, path in modules().items():
        found = called.search(path.read_text("utf-8"))
        assert not name.startswith("fedlib") or not found, f"{name} asks {found[0]}"


def test_no_module_reaches_itself():
    TopologicalSorter(edges(graph())).prepare()


def test_only_plots_imports_what_draws_at_its_top():
    """pyplot takes a second, and looks for a screen: a machine that computes has none."""
    draws, free = ("matplotlib", "seaborn"), ("plots", "repro", "papers")
    for name in (n for n in trees() if package(n) not in free):
        for node in (node for node, late in statements(trees()[name]) if not late):
            of = f"{getattr(node, 'module', '') or ''}."
            asked = {a.name: (of + a.name).strip(".") for a in node.names}
            asked = {(name, a) for a, whole in asked.items() if whole.startswith(draws)}
            assert asked <= FONTS, f"{name}:{node.lineno}"


def test_every_draw_says_its_precision():
    """Else torch's default, which a user may have set, changes the numbers."""
    draws = {"torch.rand", "torch.randn"}
    for name in (n for n in trees() if n.startswith("fedlib")):
        for node in (n for n in ast.walk(trees()[name]) if isinstance(n, ast.Call)):
            said = {k.arg for k in node.keywords} & {"dtype", None}  # None: in a dict
            assert said or ast.unparse(node.func) not in draws, f"{name}:{node.lineno}"


def test_the_core_names_no_method_and_no_paper():
    from fedlib.methods import METHODS

    names = {*METHODS, *(m.__name__ for m in METHODS.values())} - WORDS
    papers = [p.parent.name for p in (ROOT / "papers").glob("*/paper.yaml")]
    assert {"q-FedAvg", "PLGULF"} <= names and "fft-gp" in papers
    one = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    word = re.compile(rf"(?<![\w-])({one}|(?i:{'|'.join(papers)}))(?!\w)")
    for path in (p for n, p in modules().items() if package(n) == "core"):
        found = word.search(path.read_text("utf-8"))
        assert not found, f"{path} names a method: {found[0]}"


def test_every_equation_of_a_method_has_an_oracle():
    """Its tag, eq:name, stands in a file of tests/oracles, beside what checks it."""
    tag = re.compile(r"\beq:([a-z][a-z0-9-]*)")
    tagged = lambda paths: {t for p in paths for t in tag.findall(p.read_text("utf-8"))}
    code = [p for n, p in modules().items() if package(n) in ("methods", "pieces")]
    code = tagged(code)
    tests = tagged(ROOT.glob("tests/oracles/*.py"))
    assert len(code) > 50 and not code - tests, code - tests
