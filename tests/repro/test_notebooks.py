"""Notebooks that a student can fork: short cells, and none of seaborn's traps."""

import ast
import json

import pytest
from where import ROOT

LINES = 15  # of code in a cell; blank lines and comments are free
TEACH = """
add_your_method bring_your_own clients_differ conflict deploy domains drift engine equfl fisher flat
groups keeping_close measuring_fairness one_round own_model personalise play play_more prompts query
which_number
""".split()
FEDGA = "alpha grid images readings synthetic theory".split()
FEDAS = "ablation fisher grid robust".split()
PLGU = "flatness readings sweeps tables".split()
FFTGP = "ablation fairness foundation readings tables tuning".split()
REWRITTEN = [
    *(f"fedga/{name}" for name in FEDGA),
    *(f"fedas/{name}" for name in FEDAS),
    *(f"plgu/{name}" for name in PLGU),
    *(f"fft-gp/{name}" for name in FFTGP),
    "equfl/private",
    "equfl/readings",
    "equfl/sweeps",
    "equfl/adult",
    "equfl/paths",
    "equfl/tables",
    "equfl/rules",
    *(f"teach/{name}" for name in TEACH),
]
# seaborn's functions -> what each call must say, itself or through a look of plots
TRAPS = {
    "lineplot": {"errorbar"},
    "pointplot": {"errorbar"},
    "barplot": {"errorbar", "saturation"},
    "violinplot": {"bw_method", "saturation"},
    "boxplot": {"saturation"},
    "kdeplot": {"bw_method"},
    "relplot": {"errorbar"},
    "catplot": {"errorbar", "saturation"},
}
LOOKS = {  # in plots -> what it says
    "CURVE": {"errorbar"},
    "BAR": {"errorbar"},
    "DENSITY": {"bw_method"},
    "VIOLIN": {"bw_method"},
    "colours": {"saturation"},
}


def cells(name):
    """Sources of the code cells of a notebook."""
    nb = json.loads((ROOT / f"notebooks/{name}.ipynb").read_text("utf-8"))
    return ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code"]


def lines(source):
    """How many lines of code a cell has."""
    kept = map(str.strip, source.splitlines())
    return sum(bool(line) and not line.startswith("#") for line in kept)


def trapped(source):
    """Calls of seaborn that leave a trap open: a resampled interval, a faded colour or
    a density that is cut at its bounds.
    """
    tree = ast.parse(source)
    said = set()  # by the looks of plots anywhere in the cell
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "plots":
            said |= LOOKS.get(node.attr, set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sns."):
            lacks = TRAPS.get(node.func.attr, set()) - {k.arg for k in node.keywords}
            if lacks - said:
                yield f"{ast.unparse(node)} says nothing of {sorted(lacks - said)}"


@pytest.mark.parametrize("name", REWRITTEN)
def test_a_cell_fits_on_a_screen(name):
    long = [source for source in cells(name) if lines(source) > LINES]
    assert not long, f"cells of more than {LINES} lines:\n" + "\n\n".join(long)


@pytest.mark.parametrize("name", REWRITTEN)
def test_no_cell_falls_into_a_trap_of_seaborn(name):
    assert not [told for source in cells(name) for told in trapped(source)]


@pytest.mark.parametrize(
    "call, lacks",
    [
        ("sns.lineplot(d, x='round')", "errorbar"),
        ("sns.barplot(d, **plots.BAR)", "saturation"),
        ("sns.kdeplot(d, x='acc', cut=0)", "bw_method"),
        ("sns.violinplot(d, saturation=1, cut=0)", "bw_method"),
    ],
)
def test_a_trap_is_seen(call, lacks):
    (told,) = trapped(call)
    assert told.endswith(f"['{lacks}']")


def test_looks_of_plots_keep_clear_of_the_traps():
    assert not list(trapped("look = plots.CURVE\nsns.lineplot(d, **look)"))
    assert not list(trapped("sns.barplot(d, **plots.BAR, **plots.colours(M))"))
    assert not list(trapped("sns.heatmap(d)"))
    assert lines("a = 1\n\n# why\nb = 2") == 2
