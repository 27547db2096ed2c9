"""The files around the package agree with each other, and what git keeps is ours."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from where import ROOT

PINS, HASH = "constraints.txt", r" \\\n    --hash=sha256:[0-9a-f]{64}"


def text(name):
    return (ROOT / name).read_text("utf-8")


@cache
def project():
    return tomllib.loads(text("pyproject.toml"))


def pythons():
    """(what is admitted, ["3.11", ...])"""
    admitted = SpecifierSet(project()["project"]["requires-python"])
    return admitted, [f"3.{k}" for k in range(30) if admitted.contains(f"3.{k}")]


def lock(name):
    """{package: requirement} of a file of lock/, each line of which has checksums."""
    body = text(f"lock/{name}.txt").partition("\n")[2]
    one = r"[a-z0-9-]+==[\w.+]+(?: ; [^\\\n]+)?"
    assert re.fullmatch(f"(?:{one}(?:{HASH})+\n)+", body), name
    found = [Requirement(line) for line in re.sub(HASH, "", body).splitlines()]
    return {canonicalize_name(r.name): r for r in found}


def test_constraints_and_locks_have_what_pyproject_admits():
    p, pins = project()["project"], re.findall(r"(?m)^([^#\n]+)==(.+)$", text(PINS))
    known = {canonicalize_name(name): v for name, v in pins}
    every = sum(p["optional-dependencies"].values(), p["dependencies"])
    wanted = [r for r in map(Requirement, every) if r.name != "fedlib"]
    for r in wanted:
        assert r.specifier.contains(known[canonicalize_name(r.name)]), r
    assert all(re.fullmatch(r"[\w.]+", v) for v in known.values())  # no +cpu, no file
    build, packages, cuda, cpu = map(lock, ("build", "packages", "cuda", "cpu"))
    assert {n: str(r.specifier)[2:] for n, r in (build | packages).items()} == known
    for name, r in cuda.items():  # apart, so that others are spared the gigabytes
        assert not r.marker.evaluate({"sys_platform": "darwin"}) and name not in known
    for name, r in cpu.items():
        assert str(r.specifier).partition("+")[0] == str(packages[name].specifier)
    for python in pythons()[1]:
        at = {"python_version": python, "python_full_version": f"{python}.0"}
        for marker in (packages[canonicalize_name(r.name)].marker for r in wanted):
            assert marker is None or marker.evaluate(at), (marker, python)


def test_what_make_and_others_install_is_pinned_and_of_these_pythons():
    make, admitted = text("Makefile"), pythons()[0]
    said = re.search(r"\((\d+), (\d+)\) <= sys\S+\[:2\] < \((\d+), (\d+)\)", make)
    assert SpecifierSet(">={}.{},<{}.{}".format(*said.groups())) == admitted
    assert re.search(r"^LOCKED := .* --require-hashes.* --no-deps", make, re.M)
    env = yaml.safe_load(text("environment.yml"))["dependencies"]
    python = next(d.partition("=")[2] for d in env if str(d).startswith("python"))
    binder = text(".binder/runtime.txt").strip().removeprefix("python-")
    assert admitted.contains(python) and admitted.contains(binder)
    assert env[-1]["pip"][0] == "-c constraints.txt"
    assert "-c constraints.txt" in text(".binder/postBuild")


def test_package_citation_and_changelog_tell_of_the_same_version():
    p, cff = project()["project"], yaml.safe_load(text("CITATION.cff"))
    told = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", text("CHANGELOG.md"), re.M)
    assert told[0] == ("Unreleased", "")
    assert told[1] == (p["version"], str(cff["date-released"]))
    for field in ("version", "license", "authors"):
        assert cff[field] == p[field], field
    url = yaml.safe_load(text("book/_config.yml"))["repository"]["url"]
    named = p.get("urls", {}).get("Repository", ""), cff.get("repository-code", "")
    assert named == (url, url)


def test_the_package_ships_its_data_and_says_that_it_is_typed():
    data = project()["tool"]["setuptools"]["package-data"]
    shipped = {Path(p.replace(".", "/"), f) for p, fs in data.items() for f in fs}
    listed = (f.relative_to(ROOT) for f in own_files() if f.suffix != ".py")
    assert {f for f in listed if f.parts[0] == "fedlib"} <= shipped


def test_the_lazy_names_of_fedlib_are_those_that_a_type_checker_is_told():
    import fedlib

    shown = text("fedlib/__init__.py").partition("if TYPE_CHECKING:")[2]
    for name, place in fedlib.MADE_IN.items():
        assert f"    from .{place} import {name}\n" in shown, name
    assert {*fedlib.MADE_IN, "metrics"} == {*fedlib.__all__}
    used = text("tests/laws/typed_usage.py")  # mypy reads it in `make lint`
    assert not [n for n in fedlib.__all__ if not re.search(rf"\b{n}\b", used)]


def test_the_code_and_the_commands_of_the_readme_are_right(tmp_path, monkeypatch):
    from fedlib.cli import main as cli
    from fedlib.cli import program

    monkeypatch.chdir(tmp_path)
    readme, names = text("README.md"), {}
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.S)
    exec(code.replace("rounds=30, seeds=3", "rounds=6, seeds=2"), names)
    table, task = names["result"].table, names["task"]
    assert [*table.index] == ["FedAvg", "FedGA"] and task.C == 20
    assert (table["mean"] > 200 / task.K).all() and (table["Gini"] > 0).all()
    assert (table["worst 10 %"] < table["mean"]).all()
    assert Path("report.html").stat().st_size > 1000 and Path("violin.svg").exists()
    for line in re.findall(r"^ +python -m fedlib (.*?)(?:   .*)?$", readme, re.M):
        words, commands = shlex.split(line), cli.COMMANDS
        name = next(c for c in commands if words[: c.count(" ") + 1] == c.split())
        parser = program.parser_of(commands[name])
        parser.parse_intermixed_args(words[name.count(" ") + 1 :])
    for name in re.findall(r"\]\(([\w./-]+)\)", readme):
        assert (ROOT / name).exists(), name


def test_workflows_pin_actions_may_only_read_and_end_by_themselves():
    for path in ROOT.glob(".github/workflows/*.yml"):
        flow, pinned = path.read_text(), r"actions/[\w-]+@[0-9a-f]{40}  # v[\d.]+"
        assert "secrets." not in flow, path.name
        assert all(re.fullmatch(pinned, a) for a in re.findall(r"uses: *(.+)", flow))
        flow = yaml.safe_load(flow)
        assert flow["permissions"] == {"contents": "read"}, path.name
        for name, job in flow["jobs"].items():
            assert job["timeout-minutes"] <= 180, (path.name, name)
            if "permissions" in job:  # who may write runs no code of ours
                assert not any("run" in s for s in job["steps"]), (path.name, name)
    asked = re.findall(r"python-version: \W?([\d.]+)", text(".github/workflows/ci.yml"))
    assert {*asked} == {pythons()[1][0], pythons()[1][-1]}


@cache
def own_files():
    """Tracked files, and new ones that are not ignored."""
    ask = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    said = subprocess.run(ask, cwd=ROOT, capture_output=True, text=True)
    if said.returncode:
        pytest.skip("no git checkout here, so no list of tracked files")
    return [p for p in (ROOT / n for n in said.stdout.split("\0")[:-1]) if p.is_file()]


def test_nothing_large_made_or_of_one_machine_is_kept():
    here = r"/work/\w|/root/|/home/\w|/Users/\w|/tmp/\w|/\.library|pypi\.org|npmjs"
    place = re.compile(rf"{here}|pythonhosted|anaconda\.org|download\.pytorch")
    made = ("book/_build/", "book/notebooks/", "book/_assets/vendor/", "runs/", "data/")
    for f in own_files():
        name = f.relative_to(ROOT).as_posix()
        kept = re.match("evidence/|results/(seeds/|ledger.csv)", name)
        assert f.stat().st_size < (6_000_000 if kept else 2_000_000), name
        assert not name.startswith((*made, "results/notebooks/")), name
        found = place.search(f.read_bytes().decode("utf-8", "ignore"))
        assert f == Path(__file__) or not found, f"{name}: {found[0]}"


def test_notebooks_are_clean_and_have_one_cell_of_parameters():
    for path in sorted(ROOT.glob("notebooks/*/*.ipynb")):
        nb = json.loads(path.read_text("utf-8"))
        code = [c for c in nb["cells"] if c["cell_type"] == "code"]
        knobs = [c for c in code if "parameters" in c["metadata"].get("tags", [])]
        assert nb["metadata"]["kernelspec"]["name"] == "python3", path
        assert len(knobs) == 1, path
        for c in code:
            assert not c["outputs"] and c["execution_count"] is None, path
        text = "\n".join("".join(c["source"]) for c in nb["cells"])
        if path.parent.name == "labs":
            asked, told = text.split("\n# The figures")[0].split("<summary>What was")
            names = re.findall(r"(?m)^(\w+) = \.\.\.  # ", asked)
            checked = re.findall(r'(?m)^check\("[^"]+", (\w+), ', asked)
            assert names == ["prediction", names[-1]] and {*names} == {*checked}, path
            assert "assert " in told and "assert " not in asked, path


@pytest.mark.nightly
def test_an_installed_wheel_works_in_an_empty_folder(tmp_path):
    env = os.environ | {"PYTHONPATH": "", "OMP_NUM_THREADS": "1"}
    source, home, empty = (tmp_path / n for n in ("source", "venv", "empty"))
    source.mkdir(), empty.mkdir()
    how = {"check": True, "env": env, "cwd": empty, "stdout": subprocess.PIPE}
    said = lambda *command: subprocess.run([*map(str, command)], **how).stdout
    wheel = ("fedlib", "repro", "pyproject.toml", "README.md", "LICENSE")
    said("cp", "-r", *(ROOT / name for name in wheel), source)
    pip, alone = (sys.executable, "-m", "pip"), ("-q", "--no-deps")
    said(*pip, "wheel", *alone, "--no-build-isolation", "-w", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    said(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / "bin/python"
    said(*pip, "--python", python, "install", *alone, "--no-index", wheel)
    (site,) = home.glob("lib/python3*/site-packages")
    (site / "others.pth").write_text(f"{Path(yaml.__file__).parents[1]}\n")
    assert said(python, *"-m fedlib run FedGA digits:clients=4 --rounds 1".split())
