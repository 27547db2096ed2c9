"""Papers are found, their modules imported, and any of them can be taken away."""

import ast
import os
import pickle
import re
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pandas as pd
import pytest
from where import ROOT

from fedlib import plots
from fedlib.plots import theme
from repro import artefacts, claims, ledger, metrics, papers
from repro.papers import PaperError

GONE = "fedas"
LEFT = ("fedga", "plgu", "equfl", "fft-gp")


def test_papers_come_in_the_order_that_they_give_themselves():
    assert papers.found() == ["fedga", "fedas", "plgu", "equfl", "fft-gp"]
    assert papers.about("fft-gp")["title"] == "FFT-GP"
    assert papers.about("plgu")["reference"] == "FedAvg"
    assert papers.each("switches")["fedga"] == ()
    assert papers.union("axes", "views")[:4] == ("beta", "P", "E", "B")
    assert papers.main_study("fedga", "none") == "theory"
    assert papers.main_study("fedga", "MNIST") == "main"
    assert papers.main_datasets("equfl")[-2:] == ["census", "none"]


@pytest.mark.parametrize(
    "change, word",
    [
        (("rule: last10_mean", "rules: last10_mean"), "unknown field 'rules'"),
        (("rule: last10_mean", "# none"), "rule is missing"),
        (("order: 1", "order: 3"), "same order"),
    ],
)
def test_a_bad_paper_yaml_is_refused(tmp_path, change, word):
    for paper in ("fedga", "plgu"):
        text = (ROOT / "papers" / paper / "paper.yaml").read_text()
        (tmp_path / paper).mkdir()
        (tmp_path / paper / "paper.yaml").write_text(text.replace(*change))
    with pytest.raises(PaperError, match=word):
        papers.found(tmp_path)


def test_what_is_not_here_is_named():
    with pytest.raises(PaperError, match="missing: here are fedga"):
        papers.about("fedgb")
    for paper, name in (("fedga", "nothing"), ("fedgb", "claims")):
        with pytest.raises(PaperError, match=f"{paper}/{name}.py is missing"):
            papers.module(paper, name)


def test_a_module_is_imported_once_and_its_functions_are_pickled():
    made = papers.module("fft-gp", "claims")
    assert made.__name__ == "papers.fft_gp.claims" in sys.modules
    assert papers.module("fft-gp", "claims") is made
    assert pickle.loads(pickle.dumps(made.below)) is made.below


@pytest.mark.full
@pytest.mark.parametrize("how", ["forkserver", "spawn"])
def test_a_process_of_a_pool_finds_the_functions_of_a_paper(how, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    f = papers.module("equfl", "claims").percent
    with ProcessPoolExecutor(1, mp_context=get_context(how)) as pool:
        assert pool.submit(f, "EO").result() == "EO_improvement_pct"


def test_a_metric_is_explained_once(monkeypatch):
    eo = metrics.METRICS["EO"]
    assert (eo.better, eo.unit, eo.what) == ("low", "bias", "equalised odds")
    assert metrics.METRICS["best_D"].better == metrics.METRICS["best_D"].unit == ""
    monkeypatch.setitem(metrics.SHARED, "EO", metrics.METRICS["EO"])
    with pytest.raises(PaperError, match="equfl.metrics.yaml: EO is known already"):
        metrics.listed()


def sources(*folders):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def test_no_module_of_a_paper_reads_another_paper():
    for path, text in sources("papers"):
        own = path.parent.name
        text = text.replace(ast.get_docstring(ast.parse(text), clean=False), "")
        for other in set(papers.found()) - {own}:
            asked = re.escape(other.replace("-", "_"))
            assert not re.search(rf"papers\.{asked}\b", text), path
            assert not re.search(rf'(module|about|by)\("{re.escape(other)}"', text)


def test_the_machinery_names_no_paper():
    for path, text in sources("repro"):
        words = {n.value for n in ast.walk(ast.parse(text)) if type(n) is ast.Constant}
        words = {w for w in words if isinstance(w, str)}
        if path.name != "house.py":  # whose example is a study of a paper
            assert not words & set(papers.found()), path


# ------------------------------------------------------------------ one paper fewer


@pytest.fixture
def without(tmp_path):
    """The repository without one paper's folder and runs; what is large is linked. The
    paper's rows of results/ are still there.
    """
    for name in ("params.yaml", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    leave = shutil.ignore_patterns("__pycache__", GONE)
    for name in ("fedlib", "repro", "papers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=leave)
    for name in ("ours", "seeds"):
        shutil.copytree(ROOT / "results" / name, tmp_path / "results" / name)
    (tmp_path / "evidence").mkdir()
    for path in (ROOT / "evidence").iterdir():
        if not path.name.startswith(f"{GONE}-"):
            (tmp_path / "evidence" / path.name).symlink_to(path)
    return tmp_path


def test_a_paper_fewer_in_this_process(without, monkeypatch, capsys):
    monkeypatch.chdir(without)
    assert tuple(papers.found()) == LEFT and "beta" not in papers.union("axes")
    reported = ledger.read_reported()
    assert set(reported.paper) == set(LEFT)
    ours = ledger.parts("results", "ours", reported)
    said = capsys.readouterr().out
    assert said.startswith("left out, since their papers are not here: ours/fedas-")
    assert said.count("\n") == 1
    seeds = ledger.parts("results", "seeds", reported)
    joined = ledger.join(reported, ours, seeds)
    assert set(ours.paper) == set(LEFT) == set(joined.paper)
    assert {a.paper for a in artefacts.listed()} == set(LEFT)
    assert {c.paper for c in claims.listed()} == set(LEFT)
    assert not any(d["id"].startswith("FedAS") for d in claims.read_deviations())
    assert "FedAS" not in plots.METHOD_STYLE and "FedGA" in plots.METHOD_STYLE
    assert plots.look("FedAS") in theme.SPARE


def test_a_method_of_two_papers_is_drawn_as_the_first_one_says(tmp_path):
    for paper, order, colour in (("a", 2, "c1"), ("b", 1, "c2")):
        folder = tmp_path / "papers" / paper
        folder.mkdir(parents=True)
        (folder / "paper.yaml").write_text(f"order: {order}\n")
        (folder / "style.yaml").write_text(
            f"Mine: {{colour: {colour}, dash: [0, [3, 1]], marker: o, label: {paper}}}"
        )
    styles, names = theme.drawn(tmp_path)
    assert styles == {"Mine": plots.Style("c2", (0, (3, 1)), "o")}
    assert names == {"Mine": "b"} and theme.drawn(tmp_path / "papers") == ({}, {})


def test_a_misspelt_paper_is_no_paper_that_is_gone(tmp_path):
    seeds = pd.read_csv(ROOT / "results/seeds/fedga-theory.csv", dtype=str)
    (tmp_path / "seeds").mkdir()
    path = tmp_path / "seeds/fedga-theory.csv"
    seeds.assign(paper="fedgaa").to_csv(path, index=False)
    with pytest.raises(ledger.ResultError, match="did you mean 'fedga'"):
        ledger.parts(tmp_path, "seeds", ledger.read_reported())


def rows(path):
    t = pd.read_csv(path, dtype=str, keep_default_na=False)
    return t[t.paper != GONE].reset_index(drop=True)


@pytest.mark.full
def test_a_paper_fewer_changes_nothing_of_the_others(without):
    """Ledger, claims and facts of the other papers, and the audit of their evidence."""
    code = """
import runpy, sys
sys.argv = ["x"]
for module in ("repro.ledger", "repro.regimes", "repro.claims", "repro.facts"):
    try:
        runpy.run_module(module, run_name="__main__")
    except SystemExit as end:  # of a program that has ended well
        assert not end.code, module
from fedlib.cli import main
sys.exit(main.main(["evidence", "check"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=without,
        env=os.environ | {"PYTHONPATH": str(without), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("left out, since their papers are not here") == 4
    assert done.stdout.strip().endswith("; complete")
    for name in (
        "ledger",
        "gates",
        "regimes",
        "claims",
        "deviations",
        "effects",
        "ours",
    ):
        mine = rows(without / f"results/{name}.csv")
        pd.testing.assert_frame_equal(mine, rows(ROOT / f"results/{name}.csv"))
    facts = pd.read_csv(without / "results/facts.csv")
    assert len(facts) and not facts.key.str.startswith(GONE).any()
