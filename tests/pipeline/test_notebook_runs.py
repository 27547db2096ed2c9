"""A notebook runs whole or not at all, with the parameters that it declares, to the same
bytes each time.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from fedlib.cli import program
from repro import run_notebook as rn

PARAMS = "seed: 3\ntier: small\ntoy: {rounds: 4}\n"
GOOD = """\
import os, sys, warnings
print("at", os.getcwd(), object(), sys.prefix, os.path.abspath("x"), flush=True)
warnings.warn("mind the gap")
print(tier, rounds, sorted(k for k in os.environ if "THREADS" in k), hash("a"))
open("seen.txt", "a").write(f"{tier} {rounds}\\n")"""
OUT = "results/notebooks/toy/main.ipynb"


def notebook(*cells, declares='tier = "tiny"\nrounds: int = 1'):
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    first = new_code_cell(declares, metadata={"tags": ["parameters"]})
    nb = new_notebook(cells=[first, *map(new_code_cell, cells)])
    nb.metadata.kernelspec = dict(name="python3", display_name="P", language="python")
    Path("notebooks/toy").mkdir(parents=True, exist_ok=True)
    nbformat.write(nb, "notebooks/toy/main.ipynb")
    return nb


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    return tmp_path


def call(*more):
    words = ["notebooks/toy/main.ipynb", "results/notebooks/toy", *more]
    return program.exit_status(partial(program.obey, rn.main), words)


def test_it_runs_with_its_parameters_to_the_same_bytes_twice(here):
    notebook(GOOD)
    before, out = dict(os.environ), []
    for _ in range(2):
        assert call() == 0
        out.append(Path(OUT).read_bytes())
    assert Path("seen.txt").read_text() == "small 1\n" * 2  # what it declares alone
    assert out[0] == out[1]
    text = out[0].decode()
    traces = str(here), "ipykernel_", "papermill", sys.prefix
    assert not [t for t in traces if t in text]
    assert "mind the gap" in text and "./x" in text and "OMP_NUM_THREADS" in text
    assert os.listdir(Path(OUT).parent) == ["main.ipynb"]
    assert dict(os.environ) == before and not Path("runs").exists()


def test_a_cell_that_fails_is_told_and_the_last_good_result_stays(here, capsys):
    notebook("x = 1", "print('so far')\nraise OSError('no such river')")
    Path(OUT).parent.mkdir(parents=True)
    Path(OUT).write_text("the last good one")
    assert call() == 1
    assert "OSError: no such river" in capsys.readouterr().err
    assert os.listdir(Path(OUT).parent) == ["main.ipynb"]
    assert Path(OUT).read_text() == "the last good one"
    assert "so far" in Path("runs/failed/toy/main.ipynb").read_text()


def test_a_wrong_word_is_named_before_anything_runs(here, capsys):
    nb = notebook(declares="a = b = 1\nc: int = 2\nd.e = 3\nf()")
    assert rn.declared(nb, Path("n")) == ["a", "b", "c"]
    notebook("open('ran', 'w')")
    Path("params.yaml").write_text(PARAMS.replace("small", "smal"))
    assert call() == 2 and "'smal'" in capsys.readouterr().err
    assert not Path("ran").exists() and not Path("results").exists()


def test_what_differs_between_two_runs_is_taken_out_and_nothing_else(tmp_path):
    from nbformat.v4 import new_code_cell, new_notebook, new_output

    piece = lambda name, text: new_output("stream", name=name, text=text)
    figure = new_output("display_data", {"image/png": "T_00000 0x123456789ab"})
    a, b, c = piece("stdout", "a"), piece("stderr", "b"), piece("stdout", "c")
    both = [piece("stdout", "ac"), b, figure, a, b]
    assert rn.joined([a, b, c, figure, b, a]) == both
    said = f"{tmp_path}/x at 0x7f00deadbeef, 0xff, T_12345 T_abcde T_12345 T_1234"
    cell = new_code_cell("f'T_12345'", outputs=[piece("stdout", said)])
    cell.outputs.append(figure)
    nb = new_notebook(cells=[cell])
    nb.metadata.language_info = {"version": "3.11.1", "name": "python"}
    cell.metadata.papermill = {"duration": 1}
    kept = json.loads(rn.same_bytes(nb, tmp_path))
    cell = kept["cells"][0]
    assert cell["outputs"][0]["text"] == ["./x at 0x..., 0xff, T_0 T_1 T_0 T_1234"]
    assert cell["outputs"][1]["data"] == {"image/png": "T_00000 0x123456789ab"}
    assert cell["source"] == ["f'T_12345'"] and cell["id"] == "cell-0"
    assert kept["metadata"]["language_info"] == {"name": "python"}
    assert cell["metadata"] == {}
