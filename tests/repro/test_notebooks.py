"""Notebooks that a student can fork: short cells, and none of seaborn's traps."""

import ast
import json
import re

import pytest
from where import ROOT

LINES = 15  # of code in a cell; blank lines and comments are free
TEACH = """
add_your_method bring_your_own clients_differ conflict deploy domains drift engine equfl fisher flat
groups keeping_close measuring_fairness one_round own_model personalise play play_more privacy prompts query
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
LABS = sorted(p.stem for p in (ROOT / "notebooks/labs").glob("*.ipynb"))
LAB = 40  # lines of code in a whole lab
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


# ---------------------------------------------------------------- labs
def lab(name):
    """The code cells of a lab, as JSON."""
    nb = json.loads((ROOT / f"notebooks/labs/{name}.ipynb").read_text("utf-8"))
    return [c for c in nb["cells"] if c["cell_type"] == "code"]


def is_knob(cell):
    return "parameters" in cell["metadata"].get("tags", [])


@pytest.mark.parametrize("name", LABS)
def test_a_lab_is_short_and_has_one_cell_of_knobs(name):
    sources = ["".join(c["source"]) for c in lab(name)]
    assert sum(map(lines, sources)) <= LAB and max(map(lines, sources)) <= LINES
    (knobs,) = [s for c, s in zip(lab(name), sources) if is_knob(c)]
    assert knobs == sources[0] and re.search(r"^tier = ", knobs, re.M)
    assert 2 <= lines(knobs) <= 4
    folder = f'"results/figures/labs-{name}"'  # what its stage declares
    assert "plots.save" not in "".join(sources) or folder in "".join(sources)


@pytest.mark.parametrize("name", LABS)
def test_a_lab_checks_itself_and_stores_nothing(name):
    rest = [c for c in lab(name) if not is_knob(c)]
    trees = [ast.parse("".join(c["source"])) for c in rest]
    checks = [n for t in trees for n in ast.walk(t) if isinstance(n, ast.Assert)]
    assert checks and all(n.msg for n in checks), "an assert says what it means"
    assert not any(c["outputs"] or c["execution_count"] for c in lab(name))


@pytest.mark.parametrize("name", LABS)
def test_the_titles_of_a_lab_follow_its_knobs(name):
    assert not [
        fixed for c in lab(name) for fixed in fixed_titles("".join(c["source"]))
    ]


def fixed_titles(source):
    """Titles that are typed: title="..." or title = "..."."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.keyword) and node.arg == "title":
            value = node.value
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "title":
            value = node.value
        else:
            continue
        if isinstance(value, ast.Constant):
            yield value.value


def test_a_typed_title_is_seen():
    assert list(fixed_titles('save(fig, title="3 labels")')) == ["3 labels"]
    assert not list(fixed_titles('title = f"{n} labels"\nsave(fig, title=title)'))
