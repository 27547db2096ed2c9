"""The files around the package agree with each other,
and a fresh machine can install what they name.
"""

import ast
import re
import subprocess
import tomllib
from datetime import date
from importlib.metadata import distributions
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from where import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = SpecifierSet(PROJECT["requires-python"])
OLDEST = next(s.version for s in PYTHONS if s.operator == ">=")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*/*.ipynb"))
STATEMENTS = 15  # of a cell, imports aside: so much a reader takes in


def pins() -> dict[str, str]:
    lines = [
        s
        for s in (ROOT / "constraints.txt").read_text().splitlines()
        if not s.startswith("#")
    ]
    return {
        canonicalize_name(name): version
        for name, version in (s.split("==") for s in lines)
    }


def wanted() -> list[Requirement]:
    """Every requirement of pyproject.toml, the extras' included."""
    extras = PROJECT["optional-dependencies"].values()
    return [
        r
        for r in map(Requirement, sum(extras, PROJECT["dependencies"]))
        if r.name != PROJECT["name"]
    ]


def own_files() -> list[Path]:
    """What git keeps or is about to keep:
    tracked files, and new ones that are not ignored.
    """
    ask = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if ask.returncode:
        pytest.skip("no git checkout here, so no list of tracked files")
    return [
        ROOT / name
        for name in ask.stdout.split("\0")
        if name and (ROOT / name).is_file()
    ]


# what is installed


@pytest.mark.parametrize("need", wanted(), ids=lambda r: r.name)
def test_constraints_pin_what_pyproject_admits(need):
    assert need.specifier.contains(pins()[canonicalize_name(need.name)]), need


def test_constraints_name_no_build_and_no_place():
    # no +cpu, no @ file
    assert not [v for v in pins().values() if not re.fullmatch(r"[\w.]+", v)]
    assert not [n for n in pins() if n.startswith(("nvidia", "cuda", "triton"))]


def test_constraints_install_on_the_oldest_python():
    """pip would search for hours instead of naming the pin that asks for a
    later patch release.
    """
    pinned, asked = pins(), {}
    for d in distributions():
        if canonicalize_name(d.name) in pinned:
            asked[d.name] = d.metadata.get("Requires-Python") or ""
    assert len(asked) > len(wanted()) / 2
    assert {
        n: r for n, r in asked.items() if not SpecifierSet(r).contains(OLDEST)
    } == {}


def test_environment_yml_leaves_the_packages_to_pyproject():
    env = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [d for d in env["dependencies"] if isinstance(d, str)]
    (pip,) = [d["pip"] for d in env["dependencies"] if isinstance(d, dict)]
    (python,) = [d.removeprefix("python=") for d in conda if d.startswith("python")]
    assert set(conda) == {f"python={python}", "pip", "git", "make"} and env[
        "channels"
    ] == ["conda-forge"]
    assert PYTHONS.contains(python)
    assert pip == ["-c constraints.txt", "-e .[dev]"]


def test_makefile_and_pyproject_admit_the_same_pythons():
    said = re.search(
        r"not \((\d+), (\d+)\) <= sys\.version_info\[:2\] < \((\d+), (\d+)\)",
        (ROOT / "Makefile").read_text(),
    )
    assert SpecifierSet(">={}.{},<{}.{}".format(*said.groups())) == PYTHONS


@pytest.mark.parametrize("low", [0, 10])
def test_makefile_refuses_a_python_it_cannot_use(tmp_path, low):
    """The message names the versions that fit, before anything is installed."""
    wrong = tmp_path / "python"
    wrong.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo Python 3.{low}\nexit 1\n'
    )
    wrong.chmod(0o755)
    make = subprocess.run(
        ["make", f"PYTHON={wrong}", f"VENV={tmp_path}/venv", "test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert make.returncode and "fedlib needs Python 3.11, 3.12 or 3.13" in make.stderr
    assert f"Python 3.{low}" in make.stderr and not (tmp_path / "venv").exists()


# what is said about it


def test_citation_names_this_version_and_licence():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cff["title"].partition(":")[0], cff["version"], cff["license"]) == (
        PROJECT["name"],
        PROJECT["version"],
        PROJECT["license"],
    )
    assert (
        cff["authors"] == PROJECT["authors"] and cff["cff-version"] and cff["message"]
    )
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_package_citation_and_changelog_tell_of_the_same_version():
    """And of the same day; what comes next is collected above it."""
    told = re.findall(
        r"^## \[(.+?)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M
    )
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert told[0] == ("Unreleased", "")
    assert told[1] == (PROJECT["version"], str(cff["date-released"]))
    assert cff["version"] == PROJECT["version"]
    assert date.fromisoformat(told[1][1]) <= date.today()
    days = [day for _, day in told[1:]]
    assert days == sorted(days, reverse=True)


def test_make_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"\.PHONY: (.*)", text).group(1).split())
    said = subprocess.run(
        ["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"^  make (\w+)", said, re.M)) == phony
    assert phony >= {"paper", "test", "book", "lock", "clean"}


# what is kept in git


def test_no_path_of_one_machine_and_no_package_host():
    here = [
        r"/work/\w",
        r"/root/",
        r"/home/\w",
        r"/Users/\w",
        r"/tmp/\w",
        r"/\.library",
        r"pypi\.org",
        r"pythonhosted",
        r"anaconda\.org",
        r"npmjs",
        r"download\.pytorch",
    ]
    found = []
    for path in own_files():
        text = path.read_bytes().decode("utf-8", "ignore")
        if path != Path(__file__):
            found += [
                f"{path.relative_to(ROOT)}: {m[0]}"
                for m in re.finditer("|".join(here), text)
            ]
    assert found == []


def test_nothing_large_or_made_is_kept():
    files = own_files()
    # a study of forty seeds on several data sets is the largest file there is, then
    # every number of five papers
    kept = lambda f: {"evidence", "seeds"} & {*f.relative_to(ROOT).parts}
    numbers = {"results/ledger.csv", "results/ours.csv"}
    table = lambda f: str(f.relative_to(ROOT)) in numbers
    most = lambda f: 6_000_000 if kept(f) else 3_000_000 if table(f) else 2_000_000
    large = [str(f.relative_to(ROOT)) for f in files if f.stat().st_size > most(f)]
    assert large == []
    made = (
        "book/_build/",
        "book/notebooks/",
        "book/_assets/vendor/",
        "results/notebooks/",
        "runs/",
        "data/",
    )
    assert [f for f in files if str(f.relative_to(ROOT)).startswith(made)] == []


def test_gitignore_hides_what_is_made_and_no_source():
    def ignored(path):
        return (
            subprocess.run(
                ["git", "check-ignore", "-q", "--no-index", path], cwd=ROOT
            ).returncode
            == 0
        )

    if subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("no git checkout here")
    for path in (
        "results/notebooks/a/b.ipynb",
        "runs/x/record.npz",
        "data/cifar",
        "book/_build/html/a",
    ):
        assert ignored(path), path
    for path in (
        "fedlib/data/__init__.py",
        "notebooks/fedga/main.ipynb",
        "results/ledger.csv",
        "dvc.lock",
    ):
        assert not ignored(path), path


def test_there_are_notebooks():
    assert NOTEBOOKS


def statements(source):
    """How many statements a cell has, imports aside."""
    imports = (ast.Import, ast.ImportFrom)
    nodes = ast.walk(ast.parse(source))
    return sum(isinstance(n, ast.stmt) and not isinstance(n, imports) for n in nodes)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_notebook_is_clean(path):
    nb = nbformat.read(path, 4)
    nbformat.validate(nb)
    code = [c for c in nb.cells if c.cell_type == "code"]
    assert nb.metadata.kernelspec.name == "python3"
    assert sum("parameters" in c.metadata.get("tags", []) for c in code) == 1
    assert not [c.source for c in code if c.outputs or c.execution_count is not None]
    assert not [c.source for c in code if statements(c.source) > STATEMENTS]
    text = "".join(c.source for c in code)  # seaborn jitters with unseeded numbers
    assert "stripplot(" not in text or "jitter=False" in text
