"""Notebooks run whole or not at all, with the parameters they declare,
to the same bytes each time.
"""

import os

import nbformat
import pytest

from repro import bookbuild, run_notebook

PARAMS = """\
seed: 3
tier: small   # tiny, small or paper
toy:
  rounds: 4
  shape: {width: 2}
"""
GOOD = """\
import os, sys, time, warnings
from IPython.display import display
print("at", os.getcwd(), object(), flush=True)
time.sleep(0.05 * (os.getpid() % 2))
print("python", sys.prefix)
warnings.warn("mind the gap")
display({"where": os.path.abspath("x")})
import pandas as pd
display(*(pd.DataFrame({"a": [n]}).style.format("{:.1f}").highlight_max() for n in (1, 2)))
print(tier, rounds, shape)
open("seen.txt", "a").write(f"{tier} {rounds} {shape['width']}\\n")"""


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A folder with params.yaml and a notebook made of the given cells."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text(PARAMS)
    (tmp_path / "notebooks/toy").mkdir(parents=True)

    def write(*cells, declares='tier = "tiny"\nrounds: int = 1\nshape = {}'):
        first = nbformat.v4.new_code_cell(declares, metadata={"tags": ["parameters"]})
        nb = nbformat.v4.new_notebook(
            cells=[first, *map(nbformat.v4.new_code_cell, cells)]
        )
        nb.metadata.kernelspec = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }
        nbformat.write(nb, "notebooks/toy/main.ipynb")
        return tmp_path

    return write


def call(*more):
    return run_notebook.main(
        ["notebooks/toy/main.ipynb", "results/notebooks/toy", *more]
    )


def test_runs_with_its_parameters_to_the_same_bytes_twice(repo):
    root, out = repo(GOOD), "results/notebooks/toy/main.ipynb"
    before = dict(os.environ)
    assert call("--section", "toy", "--set", "rounds=7") == 0
    first = (root / out).read_bytes()
    # of params.yaml, --set last, a whole dict
    assert (root / "seen.txt").read_text() == "small 7 2\n"
    assert call("--section", "toy", "--set", "rounds=7") == 0
    assert (root / out).read_bytes() == first
    assert (
        str(root).encode() not in first
        and b"ipykernel_" not in first
        and b"papermill" not in first
    )
    nbformat.validate(nbformat.read(root / out, 4))
    # two styled tables stay two
    assert all(f"#T_{i}_row0_col0" in first.decode() for i in (0, 1))
    assert (
        os.listdir(root / "results/notebooks/toy") == ["main.ipynb"]
        and dict(os.environ) == before
    )


def test_a_failing_cell_is_told_and_the_last_good_result_stays(repo, capsys):
    root = repo("x = 1", "print('so far')\nraise OSError('no such river')")
    good = root / "results/notebooks/toy/main.ipynb"
    good.parent.mkdir(parents=True)
    good.write_text("the last good one")
    assert call() == 1
    said = capsys.readouterr().err
    for part in (
        "notebooks/toy/main.ipynb failed in cell [4]",
        "raise OSError('no such river')",
        "OSError: no such river",
        "runs/failed/toy/main.ipynb",
    ):
        assert part in said
    assert good.read_text() == "the last good one" and os.listdir(good.parent) == [
        "main.ipynb"
    ]
    assert "so far" in (root / "runs/failed/toy/main.ipynb").read_text()


@pytest.mark.parametrize(
    "words, params, told",
    [
        (
            ["--set", "round=3"],
            PARAMS,
            ["no parameter 'round'", "--set", "Did you mean 'rounds'?"],
        ),
        (["--set", "rounds"], PARAMS, ["--set rounds", "name=value"]),
        (
            ["--section", "toy"],
            PARAMS.replace("rounds", "ruonds"),
            ["'ruonds'", "params.yaml, section toy", "'rounds'"],
        ),
        (
            ["--section", "toys"],
            PARAMS,
            ["params.yaml has no section 'toys'", "Did you mean 'toy'?"],
        ),
        (
            [],
            PARAMS.replace("small", "smal", 1),
            ["params.yaml: no such tier: 'smal'", "Did you mean 'small'?"],
        ),
        (["--params", "param.yaml"], PARAMS, ["param.yaml"]),
        ([], "tier: [", ["params.yaml", "line 1"]),
    ],
)
def test_a_wrong_parameter_is_named_before_anything_runs(
    repo, capsys, words, params, told
):
    root = repo("open('ran', 'w')")
    (root / "params.yaml").write_text(params)
    assert call(*words) == 1
    said = capsys.readouterr().err
    assert [part for part in told if part not in said] == []
    assert not (root / "ran").exists() and not (root / "results").exists()


def test_a_wrong_notebook_is_named(repo, capsys):
    root = repo("pass")
    assert run_notebook.main(["notebooks/toy/mian.ipynb", "out"]) == 1
    assert "Did you mean 'notebooks/toy/main.ipynb'?" in capsys.readouterr().err
    nb = nbformat.read(root / "notebooks/toy/main.ipynb", 4)
    nb.cells[0].metadata.tags = []
    nbformat.write(nb, "notebooks/toy/main.ipynb")
    assert call() == 1
    assert "0 cells tagged `parameters`" in capsys.readouterr().err


def test_common_parameters_reach_only_those_who_declare_them(repo):
    root = repo("pass", declares="seed = 0")
    nb = nbformat.read(root / "notebooks/toy/main.ipynb", 4)
    names = run_notebook.declared(nb, root)
    assert run_notebook.parameters(names, root, root / "params.yaml") == {"seed": 3}


def test_printed_pieces_are_joined_in_a_fixed_order(tmp_path):
    def piece(name, text):
        return nbformat.v4.new_output("stream", name=name, text=text)

    figure = nbformat.v4.new_output("display_data", {"text/plain": "figure"})
    a, b = piece("stdout", "a"), piece("stderr", "b")
    once = run_notebook.joined([a, b, piece("stdout", "c"), figure, b, a])
    assert once == run_notebook.joined([b, piece("stdout", "ac"), figure, a, b])
    assert [o.get("text", "figure") for o in once] == ["ac", "b", "figure", "a", "b"]
    cell = nbformat.v4.new_code_cell(outputs=[a, b, a])
    text = run_notebook.same_bytes(nbformat.v4.new_notebook(cells=[cell]), tmp_path)
    assert [o.text for o in nbformat.reads(text, 4).cells[0].outputs] == ["aa", "b"]


# the book


@pytest.fixture
def book(repo):
    root = repo("pass")
    (root / "book").mkdir()
    (root / "book/_config.yml").write_text(
        "title: A toy\nauthor: Nobody\nonly_build_toc_files: true\n"
        "execute: {execute_notebooks: 'off'}\n"
    )
    (root / "book/_toc.yml").write_text(
        "format: jb-book\nroot: intro\nchapters:\n- file: notebooks/toy/main\n"
    )
    (root / "book/intro.md").write_text("# A toy\n\nOne page.\n")
    made = root / "results/notebooks/toy/main.ipynb"
    made.parent.mkdir(parents=True)
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A notebook")])
    nb.metadata.kernelspec = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    nbformat.write(nb, made)
    return root


def test_book_builds(book, capfd):
    assert bookbuild.main() == 0
    page = book / "book/_build/html/index.html"
    assert (
        page.exists() and capfd.readouterr().out.splitlines()[-1] == f"The book: {page}"
    )
    assert (
        "A notebook" in (book / "book/_build/html/notebooks/toy/main.html").read_text()
    )
    assert (
        "notebooks/toy/main.html"
        in (book / "book/_build/pages.txt").read_text().splitlines()
    )
    assert (book / "book/_assets/vendor/tex-svg.js").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "[](nowhere.md)",
        pytest.param("{py:class}`nowhere.Thing`", marks=pytest.mark.full),
    ],
)
def test_a_warning_fails_the_book_and_is_said_last(book, capfd, text):
    (book / "book/intro.md").write_text(f"# A toy\n\n{text}\n")
    assert bookbuild.main() != 0
    assert "nowhere" in capfd.readouterr().err.partition("The book was not built")[2]


def test_book_names_a_notebook_nobody_has_run(book, capsys):
    (book / "results/notebooks/toy/main.ipynb").unlink()
    assert bookbuild.main() == 1
    said = capsys.readouterr().err
    assert "notebooks/toy/main" in said and "make paper" in said


def test_copies_follow_the_results_and_keep_their_time(book):
    (copied,) = bookbuild.copy_notebooks()
    os.utime(copied, (1, 1))
    (book / "results/notebooks/toy/.main.part.ipynb").write_text("half")
    assert bookbuild.copy_notebooks() == [copied]
    assert copied.stat().st_mtime == 1  # unchanged, so Sphinx need not read it again
    source = book / "results/notebooks/toy/main.ipynb"
    source.write_text(source.read_text() + "\n")
    bookbuild.copy_notebooks()
    assert copied.read_bytes() == source.read_bytes()
    source.unlink()
    assert bookbuild.copy_notebooks() == [] and not copied.exists()
