"""A notebook runs whole or not at all, with what it declares, to the same bytes."""

import builtins
import dis
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from where import ROOT

from repro import draw, papers

PARAMS = "seed: 3\ntier: small\ntoy: {rounds: 4}\n"
GOOD = """\
import os, sys, warnings
print("at", os.getcwd(), object(), sys.prefix, os.path.abspath("x"), flush=True)
warnings.warn("mind the gap")
print(tier, rounds, sorted(k for k in os.environ if "THREADS" in k), hash("a"))
open("seen.txt", "a").write(f"{tier} {rounds}\\n")
from fedlib import plots
to = plots.drawn("results/figures/toy-main")
to.mkdir(parents=True)
(to / "a.svg").write_text("<svg/>")"""
OUT = "results/notebooks/toy/main.ipynb"


def notebook(*cells, declares='tier = "tiny"\nrounds: int = 1'):
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    first = new_code_cell(declares, metadata={"tags": ["parameters"]})
    nb = new_notebook(cells=[first, *map(new_code_cell, cells)])
    nb.metadata.kernelspec = dict(name="python3", display_name="P", language="python")
    Path("notebooks/toy").mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, "notebooks/toy/main.ipynb")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    return tmp_path


NOTEBOOK = Path("notebooks/toy/main.ipynb")


def call():
    """What a stage of dvc.yaml does."""
    words = ["-m", "repro.run_notebook", NOTEBOOK, "results/notebooks/toy"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    how = {"capture_output": True, "text": True, "env": environ}
    return subprocess.run([sys.executable, *words], **how)


def test_it_runs_with_its_parameters_to_the_same_bytes_twice(here):
    notebook(GOOD)
    out = []
    for _ in range(2):
        got = call()
        assert got.returncode == 0 and f"{OUT}: drawn in" in got.stdout, got
        out.append(Path(OUT).read_bytes())
    assert Path("seen.txt").read_text() == "small 1\n" * 2  # what it declares alone
    assert out[0] == out[1]
    text = out[0].decode()
    traces = str(here), "ipykernel_", "papermill", sys.prefix
    assert not [t for t in traces if t in text]
    assert "mind the gap" in text and "./x" in text and "OMP_NUM_THREADS" in text
    assert os.listdir(Path(OUT).parent) == ["main.ipynb"]
    assert os.listdir("results/figures/toy-main") == ["a.svg"]


def test_a_cell_that_fails_is_told_and_the_last_good_result_stays(here):
    notebook("x = 1", "print('so far')\nraise OSError('no such river')")
    Path(OUT).parent.mkdir(parents=True)
    Path(OUT).write_text("the last good one")
    got = call()
    assert got.returncode == 1 and "OSError: no such river" in got.stderr
    assert os.listdir(Path(OUT).parent) == ["main.ipynb"]
    assert Path(OUT).read_text() == "the last good one"
    assert "so far" in Path("runs/failed/toy/main.ipynb").read_text()


def test_a_wrong_word_is_named_before_anything_runs(here):
    notebook("open('ran', 'w')")
    Path("params.yaml").write_text(PARAMS.replace("small", "smal"))
    with pytest.raises(ValueError, match="'smal'"):
        draw.draw(NOTEBOOK)
    with pytest.raises(ValueError, match="did you mean 'notebooks/toy/main.ipynb'"):
        draw.draw(Path("notebooks/toy/mai.ipynb"))
    assert not Path("ran").exists() and not Path("results").exists()


def test_one_that_is_drawn_waits_until_something_that_it_depends_on_changes(here):
    notebook(GOOD)
    main, other = NOTEBOOK, NOTEBOOK.with_name("other.ipynb")
    other.write_bytes(main.read_bytes())
    words = lambda text: ["python", *text.split()]
    assert draw.wanted(words("dvc repro")) == [main, other]
    assert draw.wanted(words("dvc exp run -S toy.rounds=2")) == [main, other]
    assert draw.wanted(words("dvc repro -s toy@other gate")) == [other]
    assert draw.wanted(words("-m repro.run_notebook notebooks/toy/main.ipynb")) == []
    to = draw.folder_of(main)
    to.mkdir(parents=True)
    (to / "main.ipynb").write_text("{}")
    (to / "key").write_text(draw.key(main))
    assert draw.ready(main) and draw.stale(main) and not draw.ready(other)
    Path(OUT).parent.mkdir(parents=True)
    (to / "main.ipynb").rename(OUT)  # its stage takes it
    assert not draw.stale(main) and not draw.ready(main)
    Path("results/gate").mkdir()
    Path("results/gate/fedga.txt").write_text("other runs")
    assert draw.stale(main)


def test_what_differs_between_two_runs_is_taken_out_and_nothing_else(tmp_path):
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    piece = lambda name, text: new_output("stream", name=name, text=text)
    figure = new_output("display_data", {"image/png": "T_00000 0x123456789ab"})
    a, b, c = piece("stdout", "a"), piece("stderr", "b"), piece("stdout", "c")
    both = [piece("stdout", "ac"), b, figure, a, b]
    assert draw.joined([a, b, c, figure, b, a]) == both
    said = f"{tmp_path}/x at 0x7f00deadbeef, 0xff, T_12345 T_abcde T_12345 T_1234"
    cell = new_code_cell("f'T_12345'", outputs=[piece("stdout", said), figure])
    nb = new_notebook(cells=[cell])
    nb.metadata.language_info = {"version": "3.11.1", "name": "python"}
    cell.metadata.papermill = {"duration": 1}
    kept = json.loads(draw.same_bytes(nb, tmp_path))
    cell = kept["cells"][0]
    assert cell["outputs"][0]["text"] == ["./x at 0x..., 0xff, T_0 T_1 T_0 T_1234"]
    assert cell["outputs"][1]["data"] == {"image/png": "T_00000 0x123456789ab"}
    assert cell["source"] == ["f'T_12345'"] and cell["id"] == "cell-0"
    assert kept["metadata"]["language_info"] == {"name": "python"}
    assert cell["metadata"] == {}


def steps(code):
    inner = [steps(c) for c in code.co_consts if inspect.iscode(c)]
    own = [(s.opname, str(s.argval)) for s in dis.get_instructions(code)]
    return sum(inner, [s for s in own if s[1][:2] != "__"])


def test_a_section_needs_only_the_cells_above_the_first_heading():
    for path in (n for p in papers.found() for n in ROOT.glob(f"notebooks/{p}/*")):
        set_up, known, section = True, {*dir(builtins), "display"}, set()
        for c in json.loads(path.read_text())["cells"]:
            text = "".join(c["source"])
            if c["cell_type"] == "markdown" and "\n## " in f"\n{text}":
                set_up, section = False, set()
            elif c["cell_type"] == "code":
                done = steps(compile(text, "cell", "exec"))
                own = {n for s, n in done if s == "STORE_NAME"}
                read = {n for s, n in done if s in ("LOAD_NAME", "LOAD_GLOBAL")}
                assert not own & known and read <= known | section | own, (path, text)
                (known if set_up else section).update(own)
